/* bind.c: parameters and states of a session: where their memory is, what they begin with, and the
 * preparation of weights (packing, quantising) when the session is made.
 *
 * A parameter that an entry of the user reads has memory for as long as the session: the file's
 * pages or the caller's array if type and alignment fit, else a converted copy. One that only
 * preparations read has none: each preparation converts what it reads and frees it before the next
 * begins. The one that needs the most goes first, while little else is there, so that the peak is
 * the memory that stays and little more. */
#include "codegen/program/read_ahead.h"
#include "codegen/program/session.h"

#include <stdlib.h>
#include <string.h>

bound *sn_session_find(bound *list, int n, const char *name) {
    for (int i = 0; i < n; i++)
        if (!strcmp(list[i].name, name)) return &list[i];
    return NULL;
}

bool sn_session_is_prepared(const char *name) {
    return !strncmp(name, SN_PREPARED, sizeof SN_PREPARED - 1);
}

/* ---- where values come from ---- */

/* The name that files and arrays have for it. */
static const char *name_of(const sn_node *n) {
    return sn_stored_param_tensor(sn_attr_str(n, SN_A_name, ""));
}

/* The array of parameter n. NULL: there is none that fits, which is reported once, with
 * all others. */
static const sn_arg_binding *need_array(const sn_node *n, origin *o) {
    const char *name = name_of(n);
    const sn_arg_binding *a = NULL;
    for (int i = 0; i < o->n_array && !a; i++)
        if (!strcmp(o->array[i].name, name)) a = &o->array[i];
    if (!a) {
        sn_problem(&o->problems, "parameter '%s' is not bound", name);
        return NULL;
    }
    sn_dim shape[SN_MAX_RANK];
    bool fits = a->dtype == n->dtype && a->rank == n->rank;
    sn_share_whole(n, shape);
    for (int i = 0; fits && i < n->rank; i++) fits = a->shape[i] == shape[i];
    if (fits) return a;
    char want[160] = "";
    for (int i = 0, at = 0; i < n->rank && at < (int)sizeof want; i++)
        at += snprintf(want + at, sizeof want - (size_t)at, i ? ", %lld" : "%lld",
                       (long long)shape[i]);
    sn_problem(&o->problems,
               "parameter '%s' is bound to a tensor of another type or shape, expected %s [%s]",
               name, sn_dtype_name((sn_dtype)n->dtype), want);
    return NULL;
}

/* A part of the blocks of a tensor, which the passes found in the file. Its shape is that of the
 * tensor but for the last axis. */
static source read_part(const sn_weights *file, const sn_node *n, const char *name,
                        sn_weight_part part, origin *o) {
    sn_dtype dtype;
    sn_dim shape[SN_MAX_RANK];
    const sn_weight *t = sn_weights_find(file, name);
    int count = t && t->block ? sn_block_part(t->block, part, &dtype) : 0;
    if (!count) {
        sn_problem(&o->problems, "tensor '%s' is not stored in blocks", name);
        return (source){.dtype = (sn_dtype)n->dtype};
    }
    sn_share_whole(n, shape);
    shape[n->rank - 1] = shape[n->rank - 1] / count * t->block->elements;
    if (!sn_weights_need(file, name, n->rank, shape, &o->problems))
        return (source){.dtype = (sn_dtype)n->dtype};
    return (source){.data = t->data,
                    .dtype = SN_F32,
                    .bytes = t->bytes,
                    .block = t->block,
                    .scales = t->scales,
                    .split = true,
                    .part = part};
}

/* The tensor of that name in the file. Data NULL: there is none, which is reported once, with all
 * others. */
static bool read_file(const sn_weights *file, const sn_node *n, origin *o, source *out,
                      sn_error *err) {
    sn_weight_part part;
    const char *name = sn_block_param_tensor(name_of(n), &part);
    if (name) {
        *out = read_part(file, n, name, part, o);
        return true;
    }
    sn_dim shape[SN_MAX_RANK];
    sn_share_whole(n, shape);
    const sn_weight *w = sn_weights_need(file, name_of(n), n->rank, shape, &o->problems);
    if (!w) return true;
    *out = (source){.data = w->data,
                    .dtype = w->dtype,
                    .bytes = w->bytes,
                    .block = w->block,
                    .scales = w->scales};
    if (w->dtype == n->dtype || (n->dtype == SN_F32 && sn_dtype_is_float(w->dtype))) return true;
    return sn_fail(err, SN_ERR_FILE, "%s: tensor '%s' is %s, the model needs %s",
                   sn_weights_path(file), name_of(n), sn_dtype_name(w->dtype),
                   sn_dtype_name((sn_dtype)n->dtype));
}

/* As another session has it now. */
static bool read_session(const sn_session *like, const sn_node *n, origin *o, source *out,
                         sn_error *err) {
    const bound *b = sn_session_find(like->state, like->n_state, name_of(n));
    if (b && sn_program_trained(like->p, name_of(n))) {
        *out = (source){.data = b->data, .dtype = (sn_dtype)n->dtype, .bytes = b->bytes};
        return true;
    }
    b = sn_session_find(like->param, like->n_param, name_of(n));
    if (b)
        *out = b->from;
    else if (like->weights)
        return read_file(like->weights, n, o, out, err);
    else
        sn_problem(&o->problems, "parameter '%s' is not bound", name_of(n));
    return true;
}

static bool find_whole(const sn_node *n, origin *o, source *out, sn_error *err) {
    *out = (source){.dtype = (sn_dtype)n->dtype};
    if (o->like) return read_session(o->like, n, o, out, err);
    if (o->weights) return read_file(o->weights, n, o, out, err);
    const sn_arg_binding *a = need_array(n, o);
    if (a) out->data = a->data;
    return true;
}

/* Values that a block, or an element, becomes. */
static size_t values_of(const source *s) {
    sn_dtype dtype;
    if (!s->block) return 1;
    return (size_t)(s->split ? sn_block_part(s->block, s->part, &dtype) : s->block->elements);
}

/* Bytes in the file of that many values, which must be whole blocks; -1: they are not. */
static int64_t bytes_of(const source *s, int64_t values) {
    const int64_t each = (int64_t)values_of(s);
    if (!s->block) return values * (int64_t)sn_dtype_size(s->dtype);
    return values % each ? -1 : values / each * s->block->bytes;
}

/* s without its first values, whole blocks. */
static void advance(source *s, int64_t values) {
    s->data = (const char *)s->data + bytes_of(s, values);
    if (s->scales) s->scales += (size_t)values / values_of(s);
}

/* Where the share of a divided parameter is. One that is a run is as a tensor of its own. */
static bool find_source(const sn_node *n, origin *o, source *out, sn_error *err) {
    int64_t first, count;
    if (!find_whole(n, o, out, err)) return false;
    if (o->like || !out->data) return true; /* the other session has the same share */
    out->share = sn_share_of(n);
    if (!out->share.ranks) return true;
    if (out->share.nested) { /* whoever divides shares gives their parts values later */
        *out = (source){.dtype = (sn_dtype)n->dtype};
        return true;
    }
    out->run = sn_share_is_run(&out->share, &first, &count) && bytes_of(out, count) >= 0;
    if (out->run) {
        advance(out, first);
        out->bytes = (size_t)bytes_of(out, count);
        return true;
    }
    sn_elements r = sn_share_run(&out->share, 0);
    if (bytes_of(out, r.count) >= 0 && bytes_of(out, out->share.inner * out->share.size) >= 0)
        return true;
    return sn_fail(err, SN_ERR_USAGE,
                   "parameter '%s' is stored in blocks of %d elements, which %lld ranks would cut: "
                   "use fewer ranks",
                   name_of(n), out->block->elements, (long long)out->share.ranks);
}

typedef struct conversion {
    source from;
    size_t count;
    char *to;
    size_t size; /* bytes of an element of `to` */
    bool same;   /* of the same type: copied */
} conversion;

static void convert_part(void *arg, int64_t tid, int64_t n) {
    const conversion *c = arg;
    const sn_block_format *b = c->from.block;
    size_t size = b ? (size_t)b->bytes : sn_dtype_size(c->from.dtype), each = values_of(&c->from),
           units = c->count / each, begin = units * (size_t)tid / (size_t)n,
           end = units * (size_t)(tid + 1) / (size_t)n;
    const sn_weight w = {.dtype = c->from.dtype,
                         .data = (const char *)c->from.data + begin * size,
                         .bytes = (end - begin) * size,
                         .block = b,
                         .scales = c->from.scales ? c->from.scales + begin : NULL};
    if (c->from.split)
        sn_weight_split(&w, c->from.part, c->to + begin * each * c->size);
    else
        sn_weight_to_f32(&w, (float *)(void *)(c->to + begin * each * c->size));
}

/* Each thread converts its part of every run. */
static void convert_share(void *arg, int64_t tid, int64_t n) {
    const conversion *c = arg;
    const sn_share *share = &c->from.share;
    for (int64_t i = 0; i < sn_share_runs(share); i++) {
        sn_elements r = sn_share_run(share, i);
        conversion run = *c;
        advance(&run.from, r.from);
        run.count = (size_t)r.count;
        run.to = c->to + (size_t)r.to * c->size;
        if (c->same && !tid)
            memcpy(run.to, run.from.data, run.count * c->size);
        else if (!c->same)
            convert_part(&run, tid, n);
        if (!tid) memset(run.to + run.count * c->size, 0, (size_t)r.missing * c->size);
    }
}

/* The first value of b in its own type. */
static void copy_value(sn_session *s, const bound *b, void *to) {
    if (b->from.share.ranks && !b->from.run) {
        size_t size = sn_dtype_size(b->dtype);
        conversion c = {b->from, 0, to, size, b->from.dtype == b->dtype && !b->from.block};
        s->threads.run(&s->threads, convert_share, &c);
        return;
    }
    if (b->from.dtype == b->dtype && !b->from.block) {
        memcpy(to, b->from.data, b->bytes);
        return;
    }
    size_t size = sn_dtype_size(b->dtype);
    conversion c = {b->from, b->bytes / size, to, size, false};
    s->threads.run(&s->threads, convert_part, &c);
}

/* ---- parameters and states ---- */

static bool add_bound(bound **list, int *n, bound b, sn_error *err) {
    bound *grown = realloc(*list, sizeof *grown * (size_t)(*n + 1));
    if (!grown) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    *list = grown;
    grown[(*n)++] = b;
    return true;
}

/* The number of elements of a fixed shape; -1: it is symbolic, or the number overflows. */
static int64_t fixed_count(const sn_node *n) {
    int64_t count = 1, v;
    for (int a = 0; a < n->rank; a++)
        if (!sn_dim_is_const(n->m, n->shape[a], &v) || __builtin_mul_overflow(count, v, &count))
            return -1;
    return count;
}

static bool describe(const sn_node *n, const char *name, bound *b, sn_error *err) {
    int64_t count = fixed_count(n);
    *b = (bound){.name = name, .dtype = (sn_dtype)n->dtype};
    if (count >= 0 && !__builtin_mul_overflow((size_t)count, sn_dtype_size(b->dtype), &b->bytes))
        return true;
    return sn_fail(err, SN_ERR_SHAPE,
                   "'%s' has a symbolic shape; parameters and states need a fixed one", name);
}

static bool add_param(sn_session *s, const sn_leaf *l, origin *o, sn_error *err) {
    bound b;
    if (!describe(l->node, l->name, &b, err)) return false;
    if (sn_session_is_prepared(l->name)) {
        b.owned = true;
    } else {
        if (!find_source(l->node, o, &b.from, err)) return false;
        bool fits = b.from.dtype == b.dtype && !b.from.block &&
                    (!b.from.share.ranks || b.from.run) &&
                    (uintptr_t)b.from.data % sn_dtype_size(b.dtype) == 0;
        if (fits) b.data = (void *)(uintptr_t)b.from.data;
        b.owned = l->stays && !fits;
    }
    return add_bound(&s->param, &s->n_param, b, err);
}

static bool add_state(sn_session *s, const sn_leaf *l, origin *o, sn_error *err) {
    bound b;
    const sn_node *trained = sn_program_trained(s->p, l->name);
    if (trained && l->node->op == SN_OP_state) trained = l->node; /* which may be a share */
    if (!describe(l->node, l->name, &b, err) || (trained && !find_source(trained, o, &b.from, err)))
        return false;
    b.owned = true;
    return add_bound(&s->state, &s->n_state, b, err);
}

static bool add_leaves(sn_session *s, origin *o, sn_error *err) {
    for (int i = 0; i < s->p->n_leaf; i++) {
        const sn_leaf *l = &s->p->leaf[i];
        if (!(l->state ? add_state : add_param)(s, l, o, err)) return false;
    }
    return sn_problems_check(&o->problems,
                             s->weights ? sn_weights_path(s->weights) : "parameters of the session",
                             s->weights ? SN_ERR_FILE : SN_ERR_SHAPE, err);
}

/* ---- preparations ---- */

typedef struct piece { /* one entry that prepares */
    const sn_compiled_entry *c;
    size_t copies, workspace; /* bytes that it needs while it runs: converted sources, the rest */
    size_t results, reads;    /* reads: bytes of the file */
    size_t room;              /* in which these are read; 0: they are mapped only */
    sn_read_group group;      /* the tensors that it reads whole, each once */
} piece;

/* A block's bytes and at least one more, in whole lines. */
static size_t padded(size_t bytes) {
    enum { LINE = 64 };
    return (bytes + LINE) / LINE * LINE;
}

static const bound *param_of(const sn_session *s, const sn_buffer *b) {
    return b->kind == SN_BUF_PARAM ? sn_session_find(s->param, s->n_param, b->name) : NULL;
}

static const sn_extent *extent_of(const piece *p, const bound *b) {
    for (int i = 0; i < p->group.n; i++)
        if (p->group.extent[i].data == b->from.data) return &p->group.extent[i];
    return NULL;
}

/* extent: for the tensors that it reads. */
static piece measure_piece(const sn_session *s, const sn_compiled_entry *c, sn_extent *extent) {
    const sn_plan *plan = c->code.plan;
    const int64_t no_symbols[1] = {0};
    piece p = {.c = c,
               .workspace = (size_t)c->workspace(no_symbols, s->threads.n),
               .group = {.extent = extent}};
    for (int i = 0; i < plan->n_buffer; i++) {
        const bound *b = param_of(s, &plan->buffer[i]);
        if (b && !b->data && !b->owned) p.copies += padded(b->bytes);
        if (!b || !b->from.data || extent_of(&p, b)) continue;
        p.reads += b->from.bytes;
        if (b->from.bytes && !b->owned && (!b->from.share.ranks || b->from.run))
            extent[p.group.n++] = (sn_extent){b->from.data, b->from.bytes, NULL};
    }
    for (int i = 0; i < plan->entry->n_output; i++)
        p.results +=
            padded(sn_session_find(s->param, s->n_param, plan->entry->output[i].name)->bytes);
    return p;
}

static int largest_first(const void *a, const void *b) {
    const piece *x = a, *y = b;
    size_t m = x->copies + x->workspace + x->room, n = y->copies + y->workspace + y->room;
    if (m != n) return m > n ? -1 : 1;
    return (x->c > y->c) - (x->c < y->c);
}

/* Memory for what p reads converted, and the conversion; where what was read into memory is. */
static bool find_sources(sn_session *s, const piece *p, block *copies, sn_error *err) {
    const sn_entry_code *u = &p->c->code;
    void **table = s->fixed[p->c - s->p->entry];
    char *to;
    if (!sn_session_grow(copies, p->copies, err)) return false;
    to = copies->data;
    for (int i = 0; i < u->plan->n_buffer; i++) {
        const bound *b = param_of(s, &u->plan->buffer[i]);
        const sn_extent *x = b ? extent_of(p, b) : NULL;
        bool read = x && x->read;
        if (b && b->data && read) table[u->table[i]] = (void *)(uintptr_t)x->read;
        if (!b || b->data) continue;
        bound from = *b;
        if (read) from.from.data = x->read;
        copy_value(s, &from, to);
        table[u->table[i]] = to;
        to += padded(b->bytes);
    }
    return true;
}

/* Calls f for the bytes of the file that p reads. */
static void each_source(const sn_session *s, const piece *p,
                        void (*f)(const sn_weights *w, const void *data, size_t bytes)) {
    const sn_plan *plan = p->c->code.plan;
    for (int i = 0; s->weights && i < plan->n_buffer; i++) {
        const bound *b = param_of(s, &plan->buffer[i]);
        if (b) f(s->weights, b->from.data, b->from.bytes);
    }
}

/* What an earlier piece has used of the block beyond this one's bytes. */
static void drop_rest(const block *b, size_t bytes) {
    if (b->size > bytes) sn_memory_drop((char *)b->data + bytes, b->size - bytes);
}

static bool run_piece(sn_session *s, const piece *p, block *copies, sn_error *err) {
    const sn_entry *e = p->c->code.plan->entry;
    sn_arg_binding *out = calloc((size_t)e->n_output, sizeof *out);
    if (!out) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    for (int i = 0; i < e->n_output; i++) {
        const sn_node *n = e->output[i].node;
        const bound *b = sn_session_find(s->param, s->n_param, e->output[i].name);
        out[i] = (sn_arg_binding){b->name, b->dtype, n->rank, n->shape, b->data};
    }
    drop_rest(copies, p->copies);
    drop_rest(&s->workspace, p->workspace);
    bool ok = find_sources(s, p, copies, err) && sn_session_prepare(s, p->c, out, e->n_output, err);
    each_source(s, p, sn_weights_release);
    free(out);
    return ok;
}

static void free_block(block *b) {
    drop_rest(b, 0); /* free may keep the pages */
    free(b->data);
    *b = (block){0};
}

/* NULL: the pieces use the mapped pages. groups: [n], which stay until the reader ends. */
static sn_read_ahead *start_reader(const sn_session *s, const piece *list, int n,
                                   sn_read_group *groups) {
    if (!groups || !n || !list[0].room) return NULL;
    for (int i = 0; i < n; i++) groups[i] = list[i].group;
    return sn_read_ahead_start(s->weights, groups, n);
}

/* The disk reads for the next pieces while one is prepared. */
static bool prepare(sn_session *s, const piece *list, int n, sn_error *err) {
    const size_t max_ahead = (size_t)256 << 20;
    block copies = {0};
    size_t ahead = 0;
    double all = 0, done = 0;
    bool ok = true;
    sn_read_group *groups = calloc((size_t)n + 1, sizeof *groups);
    sn_read_ahead *reader = start_reader(s, list, n, groups);
    for (int i = 0; i < n; i++) all += (double)list[i].reads;
    for (int i = 0, next = 0; ok && i < n; i++) {
        for (; !reader && next < n && ahead < max_ahead; ahead += list[next++].reads)
            each_source(s, &list[next], sn_weights_prefetch);
        if (s->p->advance)
            s->p->advance(s->p->advance_ctx, "load weights", all > 0 ? done / all : 0);
        if (reader) sn_read_ahead_wait(reader, i);
        ok = run_piece(s, &list[i], &copies, err);
        ahead -= reader ? 0 : list[i].reads;
        done += (double)list[i].reads;
    }
    if (n && s->p->advance) s->p->advance(s->p->advance_ctx, "load weights", 1);
    sn_read_ahead_stop(reader);
    free(groups);
    free_block(&copies);
    free_block(&s->workspace);
    return ok;
}

/* ---- memory ---- */

/* Bytes of a list's blocks; with `at` they are given their places from there on. */
static size_t place(bound *list, int n, char *at) {
    size_t sum = 0;
    for (int i = 0; i < n; i++) {
        if (!list[i].owned) continue;
        if (at) list[i].data = at + sum;
        sum += padded(list[i].bytes);
    }
    return sum;
}

/* The most that is in use at a time: what stays, as far as it is made, one piece, and what is
 * read for the next. */
static size_t peak_of(size_t stays, const piece *list, int n) {
    size_t now = stays, peak;
    for (int i = 0; i < n; i++) now -= list[i].results;
    peak = now;
    for (int i = 0; i < n; i++) {
        size_t during = now + list[i].results + list[i].copies + list[i].workspace + list[i].room +
                        (i + 1 < n ? list[i + 1].room : 0);
        now += list[i].results;
        if (during > peak) peak = during;
    }
    return peak > now ? peak : now;
}

static bool check_room(const sn_session *s, size_t peak, size_t states, sn_error *err) {
    const double giga = 1e9;
    const char *kind = s->p->passes.o.weights;
    size_t memory = sn_memory_available(), space = sn_memory_space();
    bool resident = peak > memory;
    if (!resident && states <= space && peak <= space - states) return true;
    const char *advice =
        !kind ? "weights stored as bf16 need about half of that, int8 a quarter, int4 a sixth"
        : !strcmp(kind, "bf16") ? "weights stored as int8 need about half of that, int4 a third"
        : !strcmp(kind, "int8") ? "weights stored as int4 need about 3/5 of that"
                                : "close other programs, or use a machine with more memory";
    if (resident)
        return sn_fail(
            err, SN_ERR_MEMORY,
            "the weights of module %s need %.2f GB of memory, but %.2f GB are available; %s",
            sn_module_name(s->p->m), (double)peak / giga, (double)memory / giga, advice);
    return sn_fail(err, SN_ERR_MEMORY,
                   "module %s needs %.2f GB of memory for weights and %.2f GB for states, but the "
                   "process may use only %.2f GB more (ulimit -v, ulimit -d); %s",
                   sn_module_name(s->p->m), (double)peak / giga, (double)states / giga,
                   (double)space / giga, advice);
}

/* Caches are written in one place per head and layer: in huge pages, few tokens would take the memory
 * of many. Up to this size that does not matter. */
static void *map_states(const sn_session *s, size_t bytes) {
    const size_t max_huge = (size_t)256 << 20;
    return s->p->n_trained || bytes <= max_huge ? sn_memory_map(bytes)
                                                : sn_memory_map_sparse(bytes);
}

/* Memory for states and, unless they are mapped from the disk cache, for prepared and converted
 * parameters. Fresh pages are zero. */
static bool allocate(sn_session *s, size_t params, size_t states, sn_error *err) {
    const char *at = s->packed.data;
    s->states = (block){map_states(s, states), states};
    if (!at) {
        s->memory = (block){sn_memory_map(params), params};
        at = s->memory.data;
    }
    if (!s->states.data || !at)
        return sn_fail(err, SN_ERR_MEMORY,
                       "out of memory: %zu bytes for weights and %zu for states", params, states);
    place(s->param, s->n_param, (char *)(uintptr_t)at);
    place(s->state, s->n_state, s->states.data);
    return true;
}

static void fill(sn_session *s, bound *list, int n) {
    for (int i = 0; i < n; i++) {
        if (!list[i].owned || !list[i].from.data) continue;
        copy_value(s, &list[i], list[i].data);
        if (s->weights) sn_weights_release(s->weights, list[i].from.data, list[i].from.bytes);
    }
}

static void free_pieces(piece *list, int n) {
    for (int i = 0; i < n; i++) free(list[i].group.extent);
    free(list);
}

/* The part of each entry's buffer table that never changes. */
static bool fix_tables(sn_session *s, sn_error *err) {
    s->fixed = calloc((size_t)s->p->n_entry + 1, sizeof *s->fixed);
    if (!s->fixed) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    for (int i = 0; i < s->p->n_entry; i++) {
        const sn_entry_code *u = &s->p->entry[i].code;
        s->fixed[i] = calloc((size_t)u->n_table + 1, sizeof **s->fixed);
        if (!s->fixed[i]) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
        for (int b = 0; b < u->plan->n_buffer; b++) {
            const sn_buffer *buf = &u->plan->buffer[b];
            const bound *source = buf->kind == SN_BUF_STATE
                                      ? sn_session_find(s->state, s->n_state, buf->name)
                                      : param_of(s, buf);
            if (source) s->fixed[i][u->table[b]] = source->data;
        }
    }
    return true;
}

/* Lists the entries that prepare. */
static piece *list_pieces(const sn_session *s, int *n, sn_error *err) {
    piece *list = calloc((size_t)s->p->n_entry + 1, sizeof *list);
    *n = 0;
    for (int i = 0; list && i < s->p->n_entry; i++) {
        const sn_compiled_entry *c = &s->p->entry[i];
        if (!sn_compiled_prepares(c)) continue;
        sn_extent *extent = calloc((size_t)c->code.plan->n_buffer + 1, sizeof *extent);
        if (!extent) {
            free_pieces(list, *n);
            list = NULL;
        } else
            list[(*n)++] = measure_piece(s, c, extent);
    }
    if (!list) sn_fail(err, SN_ERR_MEMORY, "out of memory");
    return list;
}

/* Puts the pieces in the order in which they run, and chooses how they read. The page cache keeps
 * the file for the next session, if memory has room for it and for `params` bytes of weights; but
 * if that will map the packed weights, the file is needed once only. */
static void arrange(const sn_session *s, piece *list, int n, size_t params) {
    const size_t least = (size_t)16 << 20; /* reading less takes no time that anybody notices */
    size_t reads = 0;
    for (int i = 0; i < n; i++) reads += list[i].reads;
    bool keeps = reads <= SIZE_MAX - params && reads + params <= sn_memory_available() &&
                 !sn_packed_is_wanted(s, params);
    for (int i = 0; s->weights && reads >= least && !keeps && i < n; i++)
        list[i].room = sn_read_group_room(&list[i].group);
    qsort(list, (size_t)n, sizeof *list, largest_first);
}

bool sn_session_bind(sn_session *s, origin *o, sn_error *err) {
    int n;
    s->weights = o->like ? o->like->weights : o->weights;
    if (!add_leaves(s, o, err)) return false;
    piece *list = list_pieces(s, &n, err);
    if (!list) return false;
    size_t params = place(s->param, s->n_param, NULL), states = place(s->state, s->n_state, NULL);
    bool mapped = !o->like && sn_packed_map(s, params);
    arrange(s, list, n, params);
    bool ok = check_room(s, mapped ? 0 : peak_of(params, list, n), states, err) &&
              allocate(s, params, states, err);
    if (ok && !mapped) fill(s, s->param, s->n_param);
    if (ok) fill(s, s->state, s->n_state);
    ok = ok && fix_tables(s, err) && (mapped || prepare(s, list, n, err));
    if (ok && !mapped && !o->like) sn_packed_store(s, s->memory.data, params);
    free_pieces(list, n);
    return ok;
}
