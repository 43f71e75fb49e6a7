/* collective.c: defines the collectives (rows of ops.def with COLLECTIVE) over simulated ranks, and
 * their gradients. The loss is the sum of the losses of all ranks, so the gradient of each is its
 * transpose: all_reduce and all_to_all their own, all_gather and reduce_scatter, and
 * collective_broadcast and collective_reduce, each other's, collective_permute the one that sends
 * back. */
#include "ir/eval_impl.h"
#include "ir/grad_impl.h"
#include "runtime/comm/comm.h"

#include <stdlib.h>
#include <string.h>

/* ---- values ---- */

/* A tensor as [outer, size, inner], whose axis is divided among the ranks: equal parts; the last may
 * not be full. */
typedef struct block {
    int64_t outer, size, inner, part;
} block;

static block block_of(int rank, const int64_t *shape, int64_t axis, int64_t ranks) {
    block b = {1, shape[axis], 1, (shape[axis] + ranks - 1) / ranks};
    for (int i = 0; i < axis; i++) b.outer *= shape[i];
    for (int i = (int)axis + 1; i < rank; i++) b.inner *= shape[i];
    return b;
}

/* Every rank's operand, one after another; NULL on error. The caller frees it. */
static double *gather(eval_call *c, int64_t ranks) {
    const sn_value *x = c->in[0];
    sn_comm *comm = sn_eval_comm(c);
    sn_error why = {0};
    size_t bytes = (size_t)x->n * sizeof *x->data;
    if (ranks > 1 && (!comm || comm->size != ranks)) {
        sn_eval_fail(c, SN_ERR_USAGE, "%lld ranks, but the evaluator has %d", (long long)ranks,
                     comm ? comm->size : 1);
        return NULL;
    }
    if (ranks > 1 && sn_eval_has_numbers(c)) {
        sn_eval_fail(c, SN_ERR_USAGE, "exact numbers are of one rank, not %lld", (long long)ranks);
        return NULL;
    }
    double *all = malloc((size_t)ranks * bytes + 1);
    if (!all) {
        sn_eval_fail(c, SN_ERR_MEMORY, "out of memory");
        return NULL;
    }
    memcpy((char *)all + (ranks > 1 ? (size_t)comm->rank * bytes : 0), x->data, bytes);
    if (ranks == 1 || sn_comm_gather(comm, all, bytes, &why)) return all;
    sn_eval_fail(c, why.code, "%s", why.message);
    free(all);
    return NULL;
}

/* Element e of the sum over ranks, in the order of comm.h. */
static double add(const double *all, int64_t n, int64_t e, sn_leaves span) {
    if (span.last - span.first == 1) return all[span.first * n + e];
    sn_leaves half[2];
    sn_leaves_split(span, half);
    return add(all, n, e, half[0]) + add(all, n, e, half[1]);
}

static int64_t ranks_of_node(const sn_node *n) {
    return sn_attr_int(n, SN_A_ranks, 1);
}

static int64_t ranks_of(const eval_call *c) {
    return ranks_of_node(c->n);
}

static int64_t own_rank(eval_call *c) {
    const sn_comm *comm = sn_eval_comm(c);
    return comm && ranks_of(c) > 1 ? comm->rank : 0;
}

bool eval_all_reduce(eval_call *c) {
    const sn_value *x = c->in[0];
    int64_t ranks = ranks_of(c);
    double *out = sn_eval_alloc(c, x->dtype, x->rank, x->shape),
           *all = out ? gather(c, ranks) : NULL;
    if (!all) return false;
    for (int64_t e = 0; e < x->n; e++) out[e] = add(all, x->n, e, (sn_leaves){0, ranks});
    free(all);
    return true;
}

bool eval_all_gather(eval_call *c) {
    const sn_value *x = c->in[0];
    int64_t ranks = ranks_of(c), axis = sn_attr_int(c->n, SN_A_axis, 0), shape[SN_MAX_RANK];
    memcpy(shape, x->shape, sizeof shape);
    shape[axis] = sn_attr_int(c->n, SN_A_extent, ranks * x->shape[axis]);
    double *out = sn_eval_alloc(c, x->dtype, x->rank, shape), *all = out ? gather(c, ranks) : NULL;
    if (!all) return false;
    block b = block_of(x->rank, shape, axis, ranks);
    for (int64_t o = 0; o < b.outer; o++)
        for (int64_t i = 0; i < b.size; i++)
            memcpy(out + (o * b.size + i) * b.inner,
                   all + i / b.part * x->n + (o * b.part + i % b.part) * b.inner,
                   (size_t)b.inner * sizeof *out);
    free(all);
    return true;
}

/* The own part of the operand, or (sum) of the ranks' sum. */
static bool eval_part(eval_call *c, bool sum) {
    const sn_value *x = c->in[0];
    int64_t ranks = ranks_of(c), axis = sn_attr_int(c->n, SN_A_axis, 0), shape[SN_MAX_RANK];
    block b = block_of(x->rank, x->shape, axis, ranks);
    memcpy(shape, x->shape, sizeof shape);
    shape[axis] = b.part;
    double *out = sn_eval_alloc(c, x->dtype, x->rank, shape);
    double *all = out && sum ? gather(c, ranks) : NULL;
    if (!out || (sum && !all)) return false;
    for (int64_t o = 0; o < b.outer; o++)
        for (int64_t i = 0; i < b.part * b.inner; i++) {
            int64_t at = own_rank(c) * b.part + i / b.inner;
            int64_t e = (o * b.size + at) * b.inner + i % b.inner;
            out[o * b.part * b.inner + i] = at >= b.size ? 0
                                            : sum        ? add(all, x->n, e, (sn_leaves){0, ranks})
                                                         : x->data[e];
        }
    free(all);
    return true;
}

bool eval_reduce_scatter(eval_call *c) {
    return eval_part(c, true);
}

bool eval_own_part(eval_call *c) {
    return eval_part(c, false);
}

bool eval_all_to_all(eval_call *c) {
    const sn_value *x = c->in[0];
    int64_t ranks = ranks_of(c), axis = sn_attr_int(c->n, SN_A_axis, 0);
    double *out = sn_eval_alloc(c, x->dtype, x->rank, x->shape),
           *all = out ? gather(c, ranks) : NULL;
    if (!all) return false;
    block b = block_of(x->rank, x->shape, axis, ranks);
    int64_t part = b.part * b.inner;
    for (int64_t o = 0; o < b.outer; o++)
        for (int64_t r = 0; r < ranks; r++)
            memcpy(out + (o * ranks + r) * part, all + r * x->n + (o * ranks + own_rank(c)) * part,
                   (size_t)part * sizeof *out);
    free(all);
    return true;
}

bool eval_collective_permute(eval_call *c) {
    const sn_value *x = c->in[0];
    int64_t ranks = ranks_of(c), from = own_rank(c) + sn_attr_int(c->n, SN_A_shift, 0);
    double *out = sn_eval_alloc(c, x->dtype, x->rank, x->shape),
           *all = out ? gather(c, ranks) : NULL;
    if (!all) return false;
    if (sn_attr_int(c->n, SN_A_wrap, 0)) from = (from + ranks) % ranks;
    if (from >= 0 && from < ranks) memcpy(out, all + from * x->n, (size_t)x->n * sizeof *out);
    free(all);
    return true;
}

bool eval_collective_broadcast(eval_call *c) {
    const sn_value *x = c->in[0];
    double *out = sn_eval_alloc(c, x->dtype, x->rank, x->shape),
           *all = out ? gather(c, ranks_of(c)) : NULL;
    if (!all) return false;
    memcpy(out, all + sn_attr_int(c->n, SN_A_root, 0) * x->n, (size_t)x->n * sizeof *out);
    free(all);
    return true;
}

bool eval_collective_reduce(eval_call *c) {
    const sn_value *x = c->in[0];
    if (!eval_all_reduce(c)) return false;
    if (own_rank(c) != sn_attr_int(c->n, SN_A_root, 0))
        memset(c->out->data, 0, (size_t)x->n * sizeof *x->data);
    return true;
}

/* Each simulated rank evaluates what all would hold together. */
bool eval_shard(eval_call *c) {
    return sn_eval_alias(c, c->in[0]->rank, c->in[0]->shape);
}

/* ---- gradients ---- */

/* more: an attribute of the transpose; NULL: none */
static bool give_transpose(grad *c, sn_op op, const sn_attr *more) {
    sn_attr attr[SN_ATTR_COUNT];
    int n = 0;
    for (int i = 0; i < c->n->n_attr; i++) /* the name is of the operand, not of its gradient */
        if (c->n->attr[i].key != SN_A_name && c->n->attr[i].key != SN_A_extent)
            attr[n++] = c->n->attr[i];
    if (more) attr[n++] = *more;
    sn_gr_give(c, 0, sn_node_new(c->n->m, op, 1, &c->g, n, attr));
    return true;
}

/* The gradient is divided as the tensor is. */
bool grad_shard(grad *c) {
    return give_transpose(c, SN_OP_shard, NULL);
}

bool grad_all_reduce(grad *c) {
    return give_transpose(c, SN_OP_all_reduce, NULL);
}

bool grad_all_gather(grad *c) {
    return give_transpose(c, SN_OP_reduce_scatter, NULL);
}

bool grad_reduce_scatter(grad *c) {
    const sn_node *x = c->n->in[0];
    int64_t size, axis = sn_attr_int(c->n, SN_A_axis, 0);
    bool cut = sn_dim_is_const(x->m, x->shape[axis], &size) && ranks_of_node(c->n) > 1;
    sn_attr extent = SN_INT(extent, cut ? size : 0);
    return give_transpose(c, SN_OP_all_gather, cut && size % ranks_of_node(c->n) ? &extent : NULL);
}

bool grad_collective_broadcast(grad *c) {
    return give_transpose(c, SN_OP_collective_reduce, NULL);
}

bool grad_collective_reduce(grad *c) {
    return give_transpose(c, SN_OP_collective_broadcast, NULL);
}

bool grad_all_to_all(grad *c) {
    return give_transpose(c, SN_OP_all_to_all, NULL);
}

sn_node *sn_b_permute(sn_node *x, int64_t shift, bool wrap, int n_attr, const sn_attr *attr,
                      int n_after, sn_node *const *after) {
    sn_node **in = sn_arena_alloc(x->m, sizeof *in * (size_t)(n_after + 1));
    const sn_attr *mesh = sn_attr_find(n_attr, attr, SN_A_mesh);
    sn_attr out[] = {*mesh, *sn_attr_find(n_attr, attr, SN_A_ranks), SN_INT(shift, shift),
                     SN_INT(wrap, wrap)};
    in[0] = x;
    for (int i = 0; i < n_after; i++) in[1 + i] = after[i];
    return sn_node_new(x->m, SN_OP_collective_permute, n_after + 1, in, 4, out);
}

sn_node *sn_b_own_rank(sn_module *m, const char *mesh, int64_t ranks) {
    sn_dim n = sn_dim_const(m, ranks), one = sn_dim_const(m, 1);
    sn_node *number = sn_b_iota(m, SN_F32, 1, &n, 0); /* every rank sends element r to rank r */
    sn_node *all = sn_node_new(m, SN_OP_all_to_all, 1, &number,
                               SN_ATTRS(SN_INT(axis, 0), SN_STR(mesh, mesh), SN_INT(ranks, ranks)));
    return sn_b_cast(sn_b_reshape(sn_b_slice(all, 0, 0, one), 0, NULL), SN_I32);
}

bool grad_collective_permute(grad *c) {
    const sn_node *n = c->n;
    sn_gr_give(c, 0,
               sn_b_permute(c->g, -sn_attr_int(n, SN_A_shift, 0), sn_attr_int(n, SN_A_wrap, 0),
                            n->n_attr, n->attr, 0, NULL));
    return true;
}
