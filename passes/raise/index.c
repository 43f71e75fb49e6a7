/* index.c: elements of tensors as scalar expressions of their indices (index.h). */
#include "passes/raise/index.h"
#include "passes/graph_util.h"

#include <string.h>

/* ---- numbers in mixed radix ---- */

sn_index sn_index_whole(sn_node *src, sn_dim size) {
    sn_index a = {.n = size != 1};
    if (a.n) a.d[0] = (sn_digit){src, 1, size, size};
    return a;
}

static bool digit_equal(const sn_digit *a, const sn_digit *b) {
    return a->src == b->src && a->low == b->low && a->size == b->size && a->total == b->total;
}

bool sn_index_equal(const sn_index *a, const sn_index *b) {
    if (a->n != b->n) return false;
    for (int i = 0; i < a->n; i++)
        if (!digit_equal(&a->d[i], &b->d[i])) return false;
    return true;
}

bool sn_index_is(const sn_index *a, const sn_node *src) {
    return a->n == 1 && a->d[0].src == src && a->d[0].low == 1 && a->d[0].size == a->d[0].total;
}

/* Adds a digit at the low end; two adjoining parts of one number are merged. */
static bool push(sn_module *m, sn_index *a, sn_digit d) {
    if (d.size == 1) return true;
    if (a->n) {
        sn_digit *t = &a->d[a->n - 1];
        if (t->src == d.src && t->total == d.total && t->low == sn_dim_mul(m, d.low, d.size)) {
            t->low = d.low;
            t->size = sn_dim_mul(m, t->size, d.size);
            return true;
        }
    }
    if (a->n == SN_MAX_DIGITS) return false;
    a->d[a->n++] = d;
    return true;
}

bool sn_index_append(sn_module *m, sn_index *a, const sn_index *b) {
    for (int i = 0; i < b->n; i++)
        if (!push(m, a, b->d[i])) return false;
    return true;
}

static sn_node *digit_value(sn_module *m, const sn_digit *d) {
    sn_node *v = d->src;
    sn_dtype t = (sn_dtype)v->dtype;
    if (d->low != 1) v = sn_b_binary(SN_OP_div, v, sn_b_dim(m, t, d->low));
    if (sn_dim_mul(m, d->low, d->size) != d->total)
        v = sn_b_binary(SN_OP_mod, v, sn_b_dim(m, t, d->size));
    return v;
}

sn_node *sn_index_value(sn_module *m, const sn_index *a) {
    if (a->n == 0) return sn_b_const(m, SN_I32, 0);
    sn_node *v = digit_value(m, &a->d[0]);
    for (int i = 1; i < a->n; i++) {
        sn_node *next = digit_value(m, &a->d[i]);
        if (next->dtype != v->dtype) {
            next = sn_b_cast(next, SN_I32);
            v = sn_b_cast(v, SN_I32);
        }
        v = sn_b_binary(SN_OP_mul, v, sn_b_dim(m, (sn_dtype)v->dtype, a->d[i].size));
        v = sn_b_binary(SN_OP_add, v, next);
    }
    return v;
}

/* Takes the digits that form `size` from the low end of *rest. */
static bool take_digits(sn_module *m, sn_index *rest, sn_dim size, sn_index *out) {
    sn_digit taken[SN_MAX_DIGITS];
    int n = 0;
    sn_dim q;
    while (size != 1) {
        if (!rest->n || n == SN_MAX_DIGITS) return false;
        sn_digit *t = &rest->d[rest->n - 1];
        if (sn_dim_div(m, size, t->size, &q)) {
            taken[n++] = *t;
            rest->n--;
            size = q;
        } else if (sn_dim_div(m, t->size, size, &q)) {
            taken[n++] = (sn_digit){t->src, t->low, size, t->total};
            t->low = sn_dim_mul(m, t->low, size);
            t->size = q;
            size = 1;
        } else {
            return false;
        }
    }
    out->n = 0;
    while (n > 0)
        if (!push(m, out, taken[--n])) return false;
    return true;
}

bool sn_index_reshape(sn_module *m, int rank, const sn_index *ix, int to_rank, const sn_dim *to,
                      sn_index *out) {
    sn_index all = {.n = 0};
    for (int i = 0; i < rank; i++)
        if (!sn_index_append(m, &all, &ix[i])) return false;
    for (int i = to_rank - 1; i >= 0; i--)
        if (!take_digits(m, &all, to[i], &out[i])) return false;
    return all.n == 0;
}

/* ---- forward: the index of a result from that of its operand ---- */

static bool push_broadcast(const sn_node *n, const sn_index *ix, sn_index *out) {
    int more = n->rank - n->in[0]->rank; /* axes of size 1 are added, but nothing is repeated */
    for (int i = 0; i < n->rank; i++) {
        if (n->shape[i] != (i < more ? 1 : n->in[0]->shape[i - more])) return false;
        out[i] = i < more ? (sn_index){.n = 0} : ix[i - more];
    }
    return true;
}

static bool push_reshape(const sn_node *n, const sn_index *ix, sn_index *out) {
    return sn_index_reshape(n->m, n->in[0]->rank, ix, n->rank, n->shape, out);
}

static bool push_transpose(const sn_node *n, const sn_index *ix, sn_index *out) {
    const sn_attr *perm = sn_attr_get(n, SN_A_perm);
    for (int i = 0; i < n->rank; i++) out[i] = ix[perm->v[i]];
    return true;
}

static bool push_same(const sn_node *n, const sn_index *ix, sn_index *out) {
    if (n->rank) memcpy(out, ix, sizeof *ix * n->rank);
    return true;
}

/* ---- backward: elements ---- */

enum { MAX_MEMO = 512 };

typedef struct memo {
    sn_node *n, *value;
    sn_index ix[SN_MAX_RANK];
} memo;

struct sn_element {
    sn_module *m;
    memo *done; /* [n_done] */
    int n_done, cap_done;
};

sn_element *sn_element_new(sn_module *m) {
    sn_element *e = sn_arena_alloc(m, sizeof *e);
    e->m = m;
    return e;
}

sn_node *sn_element_opened(sn_node *n) {
    return sn_ops[n->op].flags & SN_OPF_INLINE ? n->decomposition : NULL;
}

/* n itself, read at the index */
static sn_node *read_tensor(sn_element *e, sn_node *n, const sn_index *ix) {
    if (!n->rank) return n;
    sn_node *in[SN_MAX_RANK + 1] = {n};
    for (int i = 0; i < n->rank; i++) in[i + 1] = sn_index_value(e->m, &ix[i]);
    return sn_node_new(e->m, SN_OP_gather_nd, n->rank + 1, in, SN_NO_ATTRS);
}

static sn_node *pull_broadcast(sn_element *e, sn_node *n, const sn_index *ix) {
    sn_node *x = n->in[0];
    sn_index in[SN_MAX_RANK];
    for (int i = 0; i < x->rank; i++) {
        in[i] = ix[n->rank - x->rank + i];
        if (x->shape[i] == 1) in[i].n = 0;
    }
    return sn_element_of(e, x, in);
}

static sn_node *pull_reshape(sn_element *e, sn_node *n, const sn_index *ix) {
    sn_index in[SN_MAX_RANK];
    if (!sn_index_reshape(e->m, n->rank, ix, n->in[0]->rank, n->in[0]->shape, in)) return NULL;
    return sn_element_of(e, n->in[0], in);
}

static sn_node *pull_transpose(sn_element *e, sn_node *n, const sn_index *ix) {
    const sn_attr *perm = sn_attr_get(n, SN_A_perm);
    sn_index in[SN_MAX_RANK];
    for (int i = 0; i < n->rank; i++) in[perm->v[i]] = ix[i];
    return sn_element_of(e, n->in[0], in);
}

static sn_node *pull_slice(sn_element *e, sn_node *n, const sn_index *ix) {
    const sn_attr *start = sn_attr_get(n, SN_A_start), *step = sn_attr_get(n, SN_A_step);
    sn_index in[SN_MAX_RANK];
    for (int i = 0; i < n->rank; i++) {
        in[i] = ix[i];
        if (start->v[i] == 0 && (!step || step->v[i] == 1) && n->shape[i] == n->in[0]->shape[i])
            continue;
        sn_node *v = sn_index_value(e->m, &ix[i]);
        sn_dtype t = (sn_dtype)v->dtype;
        if (step && step->v[i] != 1) v = sn_b_scalar(SN_OP_mul, v, (double)step->v[i]);
        if (start->v[i] != 0) v = sn_b_binary(SN_OP_add, v, sn_b_dim(e->m, t, start->v[i]));
        in[i] = sn_index_whole(v, n->in[0]->shape[i]);
    }
    return sn_element_of(e, n->in[0], in);
}

static sn_node *pull_iota(sn_element *e, sn_node *n, const sn_index *ix) {
    return sn_b_cast(sn_index_value(e->m, &ix[sn_attr_int(n, SN_A_axis, 0)]), (sn_dtype)n->dtype);
}

/* x[.., ids[j..], ..] on one axis */
static sn_node *pull_gather(sn_element *e, sn_node *n, const sn_index *ix) {
    sn_node *x = n->in[0], *ids = n->in[1];
    int axis = (int)sn_attr_int(n, SN_A_axis, 0);
    sn_index in[SN_MAX_RANK];
    sn_node *id = sn_element_of(e, ids, ix + axis);
    if (!id) return NULL;
    for (int i = 0; i < x->rank; i++) in[i] = ix[i < axis ? i : i + ids->rank - 1];
    in[axis] = sn_index_whole(id, x->shape[axis]);
    return sn_element_of(e, x, in);
}

/* Whether it is truth values that depend on floats computed at run time. A mask that reads them as a
 * table in memory has bounds over a tile; one that computes them from the floats has not. */
static bool is_decided_by_floats(const sn_node *n) {
    if (n->dtype != SN_BOOL || sn_is_fixed(n)) return false;
    if (!sn_is_elementwise(n) && !sn_is_view(n)) return false;
    for (int i = 0; i < n->n_in; i++)
        if (sn_dtype_is_float((sn_dtype)n->in[i]->dtype) || is_decided_by_floats(n->in[i]))
            return true;
    return false;
}

/* Whether each element of n costs a function such as exp. */
static bool is_expensive(sn_node *n, int depth) {
    sn_node *opened = sn_element_opened(n);
    if (opened) return is_expensive(opened, depth);
    if (!depth || (!sn_is_elementwise(n) && !sn_is_view(n))) return false;
    if (sn_ops[n->op].flags & SN_OPF_EXPENSIVE) return true;
    for (int i = 0; i < n->n_in; i++)
        if (is_expensive(n->in[i], depth - 1)) return true;
    return false;
}

/* Whether the scalar is computed from two of the region's arguments, such as a query and a key. */
static bool is_of_pair(sn_node *n) {
    sn_order order = sn_topo(n->m, 1, &n);
    int count = 0;
    for (int i = 0; i < order.n; i++) count += order.node[i]->op == SN_OP_arg;
    return count > 1;
}

/* A table that is read at an index computed from query and key has far fewer elements than there are
 * pairs: it is stored if they are expensive. */
static sn_node *pull_gather_nd(sn_element *e, sn_node *n, const sn_index *ix) {
    sn_index in[SN_MAX_RANK];
    bool pair = false;
    for (int i = 0; i < n->in[0]->rank; i++) {
        sn_node *id = sn_element_of(e, n->in[1 + i], ix);
        if (!id) return NULL;
        in[i] = sn_index_whole(id, n->in[0]->shape[i]);
        pair |= is_of_pair(id);
    }
    if (is_decided_by_floats(n->in[0]) || (pair && is_expensive(n->in[0], 12)))
        return read_tensor(e, n->in[0], in);
    return sn_element_of(e, n->in[0], in);
}

static sn_node *pull_elem(sn_element *e, sn_node *n, const sn_index *ix) {
    sn_node *in[3];
    for (int i = 0; i < n->n_in; i++)
        if (!(in[i] = sn_element_of(e, n->in[i], ix))) return NULL;
    return sn_node_new(e->m, (sn_op)n->op, n->n_in, in, n->n_attr, n->attr);
}

static sn_node *pull_scalar(sn_element *e, sn_node *n, const sn_index *ix) {
    (void)e, (void)ix;
    return n;
}

/* How an index moves through an op. pull: the element of the result at an index, NULL: not
 * possible; push: the index of the result that corresponds to an index of operand 0. */
static const struct {
    sn_node *(*pull)(sn_element *e, sn_node *n, const sn_index *ix);
    bool (*push)(const sn_node *n, const sn_index *ix, sn_index *out);
} moves[SN_OP_COUNT] = {
#define MOVE(op, pull, push) [SN_OP_##op] = {pull, push}
#define ELEM(name, ...) MOVE(name, pull_elem, push_same),
#include "ir/ops.def"
    MOVE(const, pull_scalar, NULL),
    MOVE(dim_value, pull_scalar, NULL),
    MOVE(iota, pull_iota, NULL),
    MOVE(broadcast, pull_broadcast, push_broadcast),
    MOVE(reshape, pull_reshape, push_reshape),
    MOVE(transpose, pull_transpose, push_transpose),
    MOVE(slice, pull_slice, NULL),
    MOVE(gather, pull_gather, NULL),
    MOVE(embedding, pull_gather, NULL),
    MOVE(gather_nd, pull_gather_nd, NULL),
    MOVE(dropout, NULL, push_same),
};

bool sn_index_push(const sn_node *n, const sn_index *ix, sn_index *out) {
    return moves[n->op].push && moves[n->op].push(n, ix, out);
}

static sn_node *follow(sn_element *e, sn_node *n, const sn_index *ix) {
    sn_node *opened = sn_element_opened(n);
    if (opened) return sn_element_of(e, opened, ix);
    return moves[n->op].pull ? moves[n->op].pull(e, n, ix) : NULL;
}

static void remember(sn_element *e, sn_node *n, const sn_index *ix, sn_node *value) {
    if (e->n_done == MAX_MEMO) return;
    e->done = sn_arena_grow(e->m, e->done, sizeof *e->done, e->n_done, &e->cap_done);
    memo *d = &e->done[e->n_done++];
    d->n = n;
    d->value = value;
    if (n->rank) memcpy(d->ix, ix, sizeof *ix * n->rank);
}

sn_node *sn_element_of(sn_element *e, sn_node *n, const sn_index *ix) {
    for (int i = 0; i < e->n_done; i++) {
        const memo *d = &e->done[i];
        bool same = d->n == n;
        for (int a = 0; a < n->rank && same; a++) same = sn_index_equal(&d->ix[a], &ix[a]);
        if (same) return d->value;
    }
    sn_node *v = e->n_done < MAX_MEMO ? follow(e, n, ix) : NULL;
    if (!v) v = read_tensor(e, n, ix);
    remember(e, n, ix, v);
    return v;
}
