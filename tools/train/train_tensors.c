/* train_tensors.c: what training changes: the parameters and the optimizer's states, where they lie in
 * the session, and which rows of them this rank has. */
#include "tools/train/train.h"

#include "codegen/program/program.h"
#include "ir/ir.h"

#include <stdlib.h>
#include <string.h>

static bool listed(const train_tensors *t, const char *name) {
    for (size_t i = 0; i < t->count; i++)
        if (!strcmp(t->tensor[i].whole.name, name)) return true;
    return false;
}

/* The parameter that the tensor is, or is a state of; NULL: neither. */
static const sn_weight *parameter_of(const sn_parameters *p, const char *name) {
    static const char prefix[] = "optimizer.";
    if (!strncmp(name, prefix, strlen(prefix))) {
        name = strchr(name + strlen(prefix), '.'); /* behind "m" or "v" */
        if (!name++) return NULL;
    }
    for (size_t i = 0; i < p->count; i++)
        if (!strcmp(p->weight[i].name, name)) return &p->weight[i];
    return NULL;
}

static bool same_shape(const sn_weight *a, const sn_weight *b) {
    bool same = a->rank == b->rank;
    for (int i = 0; same && i < a->rank; i++) same = a->shape[i] == b->shape[i];
    return same;
}

static bool describe(const char *name, const sn_node *n, const sn_parameters *p, int rank,
                     train_tensor *x, sn_error *err) {
    sn_weight w = {.name = name, .dtype = (sn_dtype)n->dtype, .rank = n->rank};
    for (int a = 0; a < n->rank; a++)
        if (!sn_dim_is_const(n->m, n->shape[a], &w.shape[a]))
            return sn_fail(err, SN_ERR_SHAPE, "'%s' has a symbolic shape", name);
    const sn_weight *of = parameter_of(p, name);
    bool part = of && !same_shape(of, &w);
    int64_t own = w.shape[0];
    if (part) {
        w.rank = of->rank;
        memcpy(w.shape, of->shape, sizeof w.shape);
    }
    int64_t elements = sn_weight_elements(&w), row = w.rank > 1 ? w.shape[w.rank - 1] : elements;
    w.bytes = (size_t)elements * sn_dtype_size(w.dtype);
    *x = (train_tensor){.whole = w,
                        .rows = row ? elements / row : 0,
                        .row_bytes = (size_t)row * sn_dtype_size(w.dtype),
                        .divided = part};
    x->last = x->rows;
    if (!part) return true;
    x->first = rank * own < x->rows ? rank * own : x->rows;
    x->last = x->first + own < x->rows ? x->first + own : x->rows;
    return true;
}

/* Accumulated gradients are zero between steps. */
static bool is_kept(const char *name) {
    return strncmp(name, "gradient.", 9) != 0;
}

bool train_tensors_open(sn_module *m, const sn_session *s, const sn_parameters *p, int rank,
                        train_tensors *out, sn_error *err) {
    *out = (train_tensors){0};
    const sn_entry *e = sn_entry_get(m, "train_step");
    if (!e) return sn_fail(err, SN_ERR_USAGE, "the model has no entry \"train_step\"");
    out->tensor = calloc((size_t)e->n_assign + 1, sizeof *out->tensor);
    if (!out->tensor) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    for (int i = 0; i < e->n_assign; i++) {
        const char *name = e->assign[i].name;
        train_tensor *x = &out->tensor[out->count];
        if (!is_kept(name) || listed(out, name)) continue;
        if (!describe(name, e->assign[i].node, p, rank, x, err)) return false;
        x->memory = (void *)(uintptr_t)sn_session_memory(s, name);
        x->share = sn_session_share(s, name);
        x->divided |= x->share.ranks > 0;
        if (!x->memory) return sn_fail(err, SN_ERR_INTERNAL, "the session has no '%s'", name);
        out->count++;
    }
    return true;
}

void train_tensors_close(train_tensors *t) {
    free(t->tensor);
    *t = (train_tensors){0};
}

const train_tensor *train_tensors_find(const train_tensors *t, const char *name) {
    for (size_t i = 0; i < t->count; i++)
        if (!strcmp(t->tensor[i].whole.name, name)) return &t->tensor[i];
    return NULL;
}

size_t train_tensor_bytes(const train_tensor *x) {
    if (x->share.ranks) return (size_t)sn_share_elements(&x->share) * sn_dtype_size(x->whole.dtype);
    return (size_t)(x->last - x->first) * x->row_bytes;
}

/* ---- shares ---- */

/* Calls fn for each run of elements of the share that lies in [first, first + count) of the whole: where it
 * is in the share, and how many of the range come before it. */
static void each_run(const sn_share *s, int64_t first, int64_t count,
                     void (*fn)(void *ctx, int64_t at, int64_t before, int64_t n), void *ctx) {
    for (int64_t i = 0; i < sn_share_runs(s); i++) {
        sn_elements r = sn_share_run(s, i);
        int64_t from = r.from > first ? r.from : first, last = r.from + r.count;
        if (last > first + count) last = first + count;
        if (from < last) fn(ctx, r.to + from - r.from, from - first, last - from);
    }
}

typedef struct copy {
    char *share, *rows;
    size_t size; /* of an element */
} copy;

static void to_share(void *ctx, int64_t at, int64_t before, int64_t n) {
    const copy *c = ctx;
    memcpy(c->share + (size_t)at * c->size, c->rows + (size_t)before * c->size,
           (size_t)n * c->size);
}

static void to_rows(void *ctx, int64_t at, int64_t before, int64_t n) {
    const copy *c = ctx;
    memcpy(c->rows + (size_t)before * c->size, c->share + (size_t)at * c->size,
           (size_t)n * c->size);
}

void train_share_take(const train_tensor *x, const void *from, int64_t first, int64_t count) {
    copy c = {x->memory, (char *)(uintptr_t)from, sn_dtype_size(x->whole.dtype)};
    each_run(&x->share, first, count, to_share, &c);
}

void train_share_join(const train_tensor *x, const void *all, int64_t first, int64_t count,
                      void *out) {
    size_t each = train_tensor_bytes(x);
    sn_share s = x->share;
    for (s.rank = 0; s.rank < s.ranks; s.rank++) {
        copy c = {(char *)(uintptr_t)all + (size_t)s.rank * each, out,
                  sn_dtype_size(x->whole.dtype)};
        each_run(&s, first, count, to_rows, &c);
    }
}
