/* train_tensors.c: what training changes: the parameters and the optimizer's states, where they lie in
 * the session, and which rows of them this rank has. */
#include "model/train/train.h"

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

/* The part of the share that this rank has, if the ranks of `data` divide it: rows one after another. A
 * share of columns is that of the rows of the part. */
static bool find_part(train_tensor *x, int rank) {
    x->at = rank * x->held;
    x->nested = true;
    if (!x->share.nested) x->share.outer = x->rows;
    x->share.nested = 0;
    return true;
}

static bool describe(const char *name, const sn_node *n, const sn_parameters *p, int rank,
                     train_tensor *x, sn_error *err) {
    sn_share share = x->share;
    sn_weight w = {.name = name, .dtype = (sn_dtype)n->dtype, .rank = n->rank};
    for (int a = 0; a < n->rank; a++)
        if (!sn_dim_is_const(n->m, n->shape[a], &w.shape[a]))
            return sn_fail(err, SN_ERR_SHAPE, "'%s' has a symbolic shape", name);
    const sn_weight *of = parameter_of(p, name);
    bool part = of && w.rank > 1 && !same_shape(of, &w); /* a vector of a matrix is whole */
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
                        .divided = part || share.ranks,
                        .share = share};
    x->last = x->rows;
    x->held = share.ranks ? sn_share_elements(&share) : elements;
    if (part && share.ranks) return find_part(x, rank);
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
        x->share = sn_session_share(s, name);
        if (!describe(name, e->assign[i].node, p, rank, x, err)) return false;
        x->memory = (void *)(uintptr_t)sn_session_memory(s, name);
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
    if (x->share.ranks) return (size_t)x->held * sn_dtype_size(x->whole.dtype);
    return (size_t)(x->last - x->first) * x->row_bytes;
}

/* ---- shares ---- */

typedef struct copy {
    char *held, *rows;
    size_t size; /* of an element */
    bool back;   /* to the rows */
} copy;

/* Of `count` elements of the share from `at` on, those of [first, first + held) are in memory. */
static void copy_run(const copy *c, int64_t at, int64_t before, int64_t count, int64_t first,
                     int64_t held) {
    int64_t from = at > first ? at : first, last = at + count;
    if (last > first + held) last = first + held;
    if (from >= last) return;
    char *mine = c->held + (size_t)(from - first) * c->size,
         *rows = c->rows + (size_t)(before + from - at) * c->size;
    memcpy(c->back ? rows : mine, c->back ? mine : rows, (size_t)(last - from) * c->size);
}

/* Copies what share s has of the elements [first, first + count) of the whole; its elements from `at`
 * on, `held` of them, are in memory. */
static void copy_share(const copy *c, const sn_share *s, int64_t at, int64_t held, int64_t first,
                       int64_t count) {
    for (int64_t i = 0; i < sn_share_runs(s); i++) {
        sn_elements r = sn_share_run(s, i);
        int64_t from = r.from > first ? r.from : first, last = r.from + r.count;
        if (last > first + count) last = first + count;
        if (from < last) copy_run(c, r.to + from - r.from, from - first, last - from, at, held);
    }
}

void train_share_take(const train_tensor *x, const void *from, int64_t first, int64_t count) {
    copy c = {x->memory, (char *)(uintptr_t)from, sn_dtype_size(x->whole.dtype), false};
    copy_share(&c, &x->share, x->at, x->held, first, count);
}

void train_share_join(const train_tensor *x, const void *all, int ranks, int64_t first,
                      int64_t count, void *out) {
    sn_share s = x->share;
    for (int r = 0; r < ranks; r++) {
        s.rank = r % s.ranks;
        copy c = {(char *)(uintptr_t)all + (size_t)r * train_tensor_bytes(x), out,
                  sn_dtype_size(x->whole.dtype), true};
        copy_share(&c, &s, r / s.ranks * x->held, x->held, first, count);
    }
}
