/* collective.c: defines the collectives (rows of ops.def with COLLECTIVE) over simulated ranks, and
 * their gradients. The loss is the sum of the losses of all ranks, so the gradient of each is its
 * transpose: all_reduce and all_to_all their own, all_gather and reduce_scatter each other's. */
#include "ir/eval_impl.h"
#include "ir/grad_impl.h"
#include "runtime/comm/comm.h"

#include <stdlib.h>
#include <string.h>

/* ---- values ---- */

/* One rank's operand as [outer, parts, inner]: `axis` is divided among the ranks. */
typedef struct block {
    int64_t outer, inner;
} block;

static block block_of(const sn_value *x, int64_t axis, int64_t parts) {
    block b = {1, 1};
    for (int i = 0; i < axis; i++) b.outer *= x->shape[i];
    for (int i = (int)axis; i < x->rank; i++) b.inner *= x->shape[i];
    b.inner /= parts;
    return b;
}

/* Every rank's operand, one after the other; NULL on error. The caller frees it. */
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

static int64_t ranks_of(const eval_call *c) {
    return sn_attr_int(c->n, SN_A_ranks, 1);
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
    shape[axis] *= ranks;
    double *out = sn_eval_alloc(c, x->dtype, x->rank, shape), *all = out ? gather(c, ranks) : NULL;
    if (!all) return false;
    block b = block_of(x, axis, 1);
    for (int64_t o = 0; o < b.outer; o++)
        for (int64_t r = 0; r < ranks; r++)
            memcpy(out + (o * ranks + r) * b.inner, all + r * x->n + o * b.inner,
                   (size_t)b.inner * sizeof *out);
    free(all);
    return true;
}

bool eval_reduce_scatter(eval_call *c) {
    const sn_value *x = c->in[0];
    int64_t ranks = ranks_of(c), axis = sn_attr_int(c->n, SN_A_axis, 0), shape[SN_MAX_RANK];
    memcpy(shape, x->shape, sizeof shape);
    shape[axis] /= ranks;
    double *out = sn_eval_alloc(c, x->dtype, x->rank, shape), *all = out ? gather(c, ranks) : NULL;
    if (!all) return false;
    block b = block_of(x, axis, ranks);
    for (int64_t o = 0; o < b.outer; o++)
        for (int64_t i = 0; i < b.inner; i++)
            out[o * b.inner + i] =
                add(all, x->n, (o * ranks + own_rank(c)) * b.inner + i, (sn_leaves){0, ranks});
    free(all);
    return true;
}

bool eval_all_to_all(eval_call *c) {
    const sn_value *x = c->in[0];
    int64_t ranks = ranks_of(c), axis = sn_attr_int(c->n, SN_A_axis, 0);
    double *out = sn_eval_alloc(c, x->dtype, x->rank, x->shape),
           *all = out ? gather(c, ranks) : NULL;
    if (!all) return false;
    block b = block_of(x, axis, ranks);
    for (int64_t o = 0; o < b.outer; o++)
        for (int64_t r = 0; r < ranks; r++)
            memcpy(out + (o * ranks + r) * b.inner,
                   all + r * x->n + (o * ranks + own_rank(c)) * b.inner,
                   (size_t)b.inner * sizeof *out);
    free(all);
    return true;
}

/* ---- gradients ---- */

static bool give_transpose(grad *c, sn_op op) {
    sn_attr attr[SN_ATTR_COUNT];
    int n = 0;
    for (int i = 0; i < c->n->n_attr; i++) /* the name is of the operand, not of its gradient */
        if (c->n->attr[i].key != SN_A_name) attr[n++] = c->n->attr[i];
    sn_gr_give(c, 0, sn_node_new(c->n->m, op, 1, &c->g, n, attr));
    return true;
}

bool grad_all_reduce(grad *c) {
    return give_transpose(c, SN_OP_all_reduce);
}

bool grad_all_gather(grad *c) {
    return give_transpose(c, SN_OP_reduce_scatter);
}

bool grad_reduce_scatter(grad *c) {
    return give_transpose(c, SN_OP_all_gather);
}

bool grad_all_to_all(grad *c) {
    return give_transpose(c, SN_OP_all_to_all);
}
