/* why.c: why tensors are stored: what their readers do with them that registers cannot serve. */
#include "codegen/program/why.h"
#include "codegen/program/calls.h"
#include "codegen/program/sizes.h"

#include <string.h>

enum { MAX_REASONS = 8 };

typedef struct finder {
    const sn_program *p;
    const sn_compiled_entry *c;
    const int64_t *symbol;
    int loss; /* the call that writes the loss of a training entry; -1: none */
} finder;

static const sn_plan *plan_of(const finder *f) {
    return f->c->code.plan;
}

/* ---- what a call does ---- */

static bool has_op(sn_module *m, const sn_region *r, bool (*is)(const sn_node *)) {
    if (!r) return false;
    sn_order order = sn_region_topo(m, r);
    for (int i = 0; i < order.n; i++)
        if (is(order.node[i])) return true;
    return false;
}

static bool is_reduction(const sn_node *n) {
    return n->op == SN_OP_reduce_sum || n->op == SN_OP_reduce_max || n->op == SN_OP_reduce_min;
}

static int count_ops(sn_module *m, const sn_region *r) {
    return r ? sn_region_topo(m, r).n : 0;
}

static const sn_kernel *kernel(const finder *f, int i) {
    return &f->c->code.kernel[i];
}

/* "call 7 (gemm layers.0.mlp.down_proj)" */
static const char *call(const finder *f, int i) {
    const char *name = sn_call_name(f->p, f->c, i);
    return sn_arena_printf(f->p->m, "call %d (%s%s%s)", i, sn_kernel_family_name(kernel(f, i)),
                           *name ? " " : "", name);
}

static const sn_region *body(const sn_kernel *k) {
    return k->traits->region == SN_NO_REGION ? NULL
                                             : sn_attr_region(k->step->node, k->traits->region);
}

/* The operand of step i that reads the buffer; -1: none. */
static int operand_of(const sn_step *s, int buffer) {
    for (int k = 0; k < s->n_in; k++)
        if (s->in[k].buffer == buffer) return k;
    return -1;
}

/* Does the step pick elements of its operand k by index? */
static bool picks(sn_module *m, const sn_kernel *k, int operand) {
    const sn_region *r = body(k);
    int arg = r ? sn_kernel_region_arg(k->step->node, operand) : -1;
    if (arg < 0 || arg >= r->n_arg) return false;
    sn_order order = sn_region_topo(m, r);
    for (int i = 0; i < order.n; i++)
        if (sn_ops[order.node[i]->op].flags & SN_OPF_RANDOM_ACCESS && order.node[i]->n_in &&
            order.node[i]->in[0] == r->arg[arg])
            return true;
    return false;
}

static bool same_shape(const sn_view *a, const sn_view *b) {
    bool same = a->rank == b->rank;
    for (int i = 0; same && i < a->rank; i++) same = a->shape[i] == b->shape[i];
    return same;
}

static bool same_order(const finder *f, const sn_view *a, const sn_view *b) {
    return sn_view_contiguous(f->p->m, a) == sn_view_contiguous(f->p->m, b);
}

/* ---- reasons ---- */

typedef struct reasons {
    const char *text[MAX_REASONS];
    int n;
    const char *remedy;
} reasons;

static void add(reasons *r, const char *text) {
    for (int i = 0; i < r->n; i++)
        if (!strcmp(r->text[i], text)) return;
    if (r->n < MAX_REASONS) r->text[r->n++] = text;
}

static void suggest(reasons *r, const char *text) {
    if (!r->remedy) r->remedy = text;
}

/* What the passes said about the operations of two calls. */
static void add_remarks(const finder *f, int writer, int reader, reasons *r) {
    const sn_passes *p = &f->p->passes;
    const sn_loc at[2] = {kernel(f, writer)->step->node->loc, kernel(f, reader)->step->node->loc};
    for (int i = 0; i < p->n_remark; i++) {
        sn_loc loc = p->remark[i].node->loc;
        for (int k = 0; k < 2 && p->remark[i].missed; k++)
            if (loc.file && at[k].file && loc.line == at[k].line && !strcmp(loc.file, at[k].file))
                add(r,
                    sn_arena_printf(f->p->m, "pass %s: %s", p->remark[i].pass, p->remark[i].text));
    }
}

/* Why call `reader` cannot compute what call `writer` writes, in registers, with its operand k. */
static void explain_pair(const finder *f, int writer, int reader, int k, reasons *r) {
    sn_module *m = f->p->m;
    const sn_kernel *w = kernel(f, writer), *x = kernel(f, reader);
    const sn_step *s = x->step;
    const int level = f->p->passes.o.level;
    const char *to = call(f, reader), *from = call(f, writer);
    const bool reduces = has_op(m, body(x), is_reduction);
    if (sn_step_is_extern(s) || sn_step_is_extern(w->step)) {
        add(r,
            sn_arena_printf(m, "%s is a primitive of a library: it takes and gives whole tensors",
                            sn_step_is_extern(s) ? to : from));
        suggest(r, "--backend native");
        return;
    }
    if (level < SN_LEVEL_GEMM) {
        add(r, sn_arena_printf(m, "level %d fuses only %s", level, sn_level_text[level]));
        suggest(r, "a higher fusion level (--level 4)");
    }
    if (x->traits->contraction && k < 2)
        add(r, sn_arena_printf(m,
                               "%s is a product: it reads each element of a factor many times, so "
                               "that it is computed once, before",
                               to));
    else if (x->traits->title)
        add(r, sn_arena_printf(m, "%s reads it in blocks, several times", to));
    else if (picks(m, x, k))
        add(r, sn_arena_printf(m, "%s picks elements of it by index", to));
    else if (x->traits == &sn_kernels[SN_KERNEL_column])
        add(r,
            sn_arena_printf(m, "%s adds up columns over all of its rows, which threads share", to));
    else if (w->traits->contraction && reduces)
        add(r, sn_arena_printf(m,
                               "%s needs whole rows of it, while %s makes panels of columns on all "
                               "threads; an epilogue sums at most %d panels along rows",
                               to, from, w->traits->epilogue.reductions));
    else if (w->traits->title)
        add(r,
            sn_arena_printf(
                m, "%s has no epilogue: attention holds a score, a mask and nothing after", from));
    else if (has_op(m, body(w), is_reduction) && !x->traits->contraction)
        add(r, sn_arena_printf(m, "%s reduces over rows or columns before %s can begin", from, to));
    else if (!same_order(f, &s->in[k], &w->step->out[0]))
        add(r, sn_arena_printf(m, "%s reads it in another order (transposed or cut)", to));
    else if (!same_shape(&s->out[0], &w->step->out[0]))
        add(r, sn_arena_printf(m, "%s and %s loop over different shapes", from, to));
    else if (count_ops(m, body(w)) + count_ops(m, body(x)) > x->traits->max_nodes)
        add(r, sn_arena_printf(m,
                               "%s and %s together have more than %d operations, the most of a "
                               "kernel",
                               from, to, x->traits->max_nodes));
    else
        add(r, sn_arena_printf(m, "no rule of the pass fuse joins %s and %s", from, to));
    add_remarks(f, writer, reader, r);
}

static void explain_temporary(const finder *f, const sn_stored *t, int buffer, reasons *r) {
    sn_module *m = f->p->m;
    const int writer = t->n_writes ? t->writes[0] : -1;
    bool backward = false;
    for (int i = 0; i < t->n_reads; i++) backward |= f->loss >= 0 && t->reads[i] > f->loss;
    if (writer >= 0 && writer <= f->loss && backward) {
        add(r, "the backward part reads it: it is kept from the forward part until then");
        suggest(r, "--memory-budget SIZE computes it again, if that is possible");
    }
    if (t->n_reads > 1)
        add(r,
            sn_arena_printf(m, "%d calls read it: computing it for each would be %d times the work",
                            t->n_reads, t->n_reads));
    for (int i = 0; i < t->n_reads && writer >= 0; i++) {
        if (writer <= f->loss && t->reads[i] > f->loss) continue; /* the backward part, see above */
        int k = operand_of(kernel(f, t->reads[i])->step, buffer);
        if (t->reads[i] != writer && k >= 0) explain_pair(f, writer, t->reads[i], k, r);
    }
    const sn_step *l = writer >= 0 ? sn_step_within(plan_of(f)->call[writer], SN_STEP_ROWS) : NULL;
    bool out = false;
    for (int j = 0; l && j < t->n_reads; j++)
        out |= t->reads[j] < l->first || t->reads[j] >= l->last;
    if (out) add(r, "it is made in a loop over rows and read after the loop");
    if (l && !out)
        add(r, sn_arena_printf(m, "calls %d to %d are a loop: only %lld rows of it exist at a time",
                               l->first, l->last - 1, (long long)l->block_rows));
    if (!t->n_reads) add(r, "no call reads it: its kernel has further results that are needed");
}

/* By kind of buffer; of parameters `prepared` and `trained` say more. */
static const struct {
    const char *what, *reason;
} leaves[] = {[SN_BUF_INPUT] = {"an input", "the caller owns it"},
              [SN_BUF_OUTPUT] = {"an output", "the caller wants it"},
              [SN_BUF_PARAM] = {"a parameter", "it comes from the weights"},
              [SN_BUF_STATE] = {"a state", "it outlives the run: the next run reads it"},
              [SN_BUF_TEMP] = {"between kernels", NULL}};

static const char *describe_leaf(const sn_program *p, const sn_buffer *b, reasons *r) {
    if (b->name && !strncmp(b->name, SN_PREPARED, sizeof SN_PREPARED - 1)) {
        add(r, "it depends on parameters only: it was computed once, when the weights were loaded");
        return "a prepared weight";
    }
    if (b->name && sn_program_trained(p, b->name)) {
        add(r, "the entry trains it: the next run reads what this one writes");
        return "a trained parameter";
    }
    if (leaves[b->kind].reason) add(r, leaves[b->kind].reason);
    return leaves[b->kind].what;
}

/* ---- the list ---- */

static const int *calls_with(const finder *f, int buffer, bool writes, int *n) {
    const sn_plan *plan = plan_of(f);
    int *list = sn_arena_alloc(f->p->m, sizeof *list * (size_t)(plan->n_call + 1));
    *n = 0;
    for (int i = 0; i < plan->n_call; i++) {
        const sn_step *s = plan->call[i];
        const sn_view *v = writes ? s->out : s->in;
        for (int k = 0; k < (writes ? s->n_out : s->n_in); k++)
            if (v[k].buffer == buffer && (!*n || list[*n - 1] != i)) list[(*n)++] = i;
    }
    return list;
}

static const char *type_of(const finder *f, const sn_stored *t, int buffer) {
    sn_module *m = f->p->m;
    const sn_buffer *b = &plan_of(f)->buffer[buffer];
    char shape[160] = "";
    for (int i = 0; i < t->n_writes && !*shape; i++) {
        const sn_step *s = kernel(f, t->writes[i])->step;
        for (int k = 0; k < s->n_out; k++)
            if (s->out[k].buffer == buffer)
                sn_shape_print(m, s->out[k].rank, s->out[k].shape, shape, sizeof shape);
    }
    if (*shape) return sn_arena_printf(m, "%s%s", sn_dtype_name(b->dtype), shape);
    sn_dim_print(m, b->count, shape, sizeof shape);
    return sn_arena_printf(m, "%s, %s elements", sn_dtype_name(b->dtype), shape);
}

static sn_stored describe(const finder *f, int buffer) {
    sn_module *m = f->p->m;
    const sn_plan *plan = plan_of(f);
    const sn_buffer *b = &plan->buffer[buffer];
    reasons r = {.n = 0};
    sn_stored t = {.name = b->name ? sn_arena_str(m, b->name) : "", .kind = b->kind};
    t.writes = calls_with(f, buffer, true, &t.n_writes);
    t.reads = calls_with(f, buffer, false, &t.n_reads);
    t.type = type_of(f, &t, buffer);
    t.bytes = (double)sn_buffer_bytes(m, b, f->symbol);
    t.what = describe_leaf(f->p, b, &r);
    t.first = t.last = -1;
    if (b->kind == SN_BUF_TEMP) {
        t.first = b->first, t.last = b->last;
        for (int i = 0; i < plan->n_buffer; i++)
            t.shares += i != buffer && plan->buffer[i].kind == SN_BUF_TEMP &&
                        plan->buffer[i].slot == b->slot;
        explain_temporary(f, &t, buffer, &r);
    }
    const char **text = sn_arena_alloc(m, sizeof *text * (size_t)(r.n + 1));
    for (int i = 0; i < r.n; i++) text[i] = r.text[i];
    t.reason = text;
    t.n_reason = r.n;
    t.remedy = r.remedy ? r.remedy : "";
    return t;
}

/* The call that writes the loss of an entry that also assigns; -1: none. */
static int loss_call(const sn_plan *plan) {
    for (int i = 0; i < plan->n_call && plan->entry->n_assign; i++)
        for (int k = 0; k < plan->call[i]->n_out; k++) {
            const sn_buffer *b = &plan->buffer[plan->call[i]->out[k].buffer];
            if (b->kind == SN_BUF_OUTPUT && b->name && !strcmp(b->name, "loss")) return i;
        }
    return -1;
}

typedef struct request {
    finder f;
    const char *sizes;
    sn_stored *list;
    int n;
    sn_error *err;
} request;

static void collect(void *ctx) {
    request *q = ctx;
    sn_module *m = q->f.p->m;
    const sn_plan *plan = plan_of(&q->f);
    int64_t *symbol = sn_arena_alloc(m, sizeof *symbol * (size_t)(sn_symbol_count(m) + 1));
    sn_sizes_middle(m, symbol);
    if (!sn_sizes_read(m, "sizes", q->sizes, symbol, q->err)) return;
    q->f.symbol = symbol;
    q->f.loss = loss_call(plan);
    q->list = sn_arena_alloc(m, sizeof *q->list * (size_t)(plan->n_buffer + 1));
    for (int leaves = 0; leaves < 2; leaves++)
        for (int i = 0; i < plan->n_buffer; i++) {
            if ((plan->buffer[i].kind != SN_BUF_TEMP) != leaves) continue;
            sn_stored t = describe(&q->f, i);
            int at = q->n++;
            for (; !leaves && at && q->list[at - 1].first > t.first; at--)
                q->list[at] = q->list[at - 1];
            q->list[at] = t;
        }
}

int sn_program_stored(const sn_program *p, const char *entry, const char *sizes,
                      const sn_stored **list, sn_error *err) {
    sn_error local = {0};
    request q = {.f = {.p = p, .c = sn_program_entry(p, entry)}, .sizes = sizes, .err = &local};
    if (!q.f.c) sn_fail(&local, SN_ERR_USAGE, "there is no entry '%s'", entry);
    if (q.f.c && !sn_module_try(p->m, collect, &q))
        sn_fail(&local, SN_ERR_MEMORY, "out of memory for a report on '%s'", entry);
    if (local.code) {
        sn_fail(err, local.code, "%s", local.message);
        return -1;
    }
    *list = q.list;
    return q.n;
}

static bool lies_at(const sn_node *n, const char *file, int line) {
    return n->loc.file && n->loc.line == line && (!file || !strcmp(n->loc.file, file));
}

typedef struct place {
    const sn_program *p;
    const sn_compiled_entry *c;
    const char *file;
    int line, from, found;
} place;

static bool computes(const place *q, const sn_node *n) {
    static const sn_attr_key regions[] = {SN_A_body, SN_A_prologue, SN_A_epilogue, SN_A_score,
                                          SN_A_mask};
    if (lies_at(n, q->file, q->line)) return true;
    for (size_t r = 0; r < sizeof regions / sizeof *regions; r++) {
        const sn_region *region = sn_attr_region(n, regions[r]);
        sn_order order = region ? sn_region_topo(q->p->m, region) : (sn_order){0};
        for (int k = 0; k < order.n; k++)
            if (lies_at(order.node[k], q->file, q->line)) return true;
    }
    return false;
}

static void search(void *ctx) {
    place *q = ctx;
    for (int i = q->from; q->c && q->found < 0 && i < q->c->code.plan->n_call; i++)
        if (computes(q, q->c->code.kernel[i].step->node)) q->found = i;
}

int sn_program_computes(const sn_program *p, const char *entry, const char *file, int line,
                        int from) {
    place q = {p, sn_program_entry(p, entry), file, line, from, -1};
    return sn_module_try(p->m, search, &q) ? q.found : -1;
}
