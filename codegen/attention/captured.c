/* captured.c: captured tensors that regions read: which tensor a node reads, whether an index is in
 * range, the range of the values over a tile. */
#include "codegen/attention/impl.h"

const sn_attention_captured *att_captured_tensor(const att_captured *t, const sn_node *n,
                                                 int *index) {
    *index = (int)sn_attr_int(n->in[0], SN_A_index, -1) - t->first;
    if (*index >= 0 && *index < t->a->n_captured) return &t->a->captured[*index];
    sn_fail(&t->e->err, SN_ERR_INTERNAL,
            "attention: a region reads argument %d, which is not captured", *index + t->first);
    return NULL;
}

em_val att_clamp_index(em *e, em_val i, em_size size) {
    int n = em_lanes_of(i);
    em_val last = em_sub(e, em_size_value(e, size), 1);
    return em_imax(e, em_imin(e, i, em_splat(e, last, n)), em_splat(e, 0, n));
}

bool att_index_in_range(const att_captured *t, const sn_node *x, em_size axis) {
    const sn_attention *a = t->a;
    const em_size limit[] = {a->batch, EM_SIZE_CONST(a->heads), a->tq, a->tk};
    if (x->op == SN_OP_const)
        return axis.slot < 0 && sn_attr_flt(x, SN_A_value, -1) >= 0 &&
               sn_attr_flt(x, SN_A_value, -1) < (double)axis.value;
    int which = x->op == SN_OP_arg ? (int)sn_attr_int(x, SN_A_index, -1) - (t->first - 4) : -1;
    if (which < 0 || which > 3) return false;
    return axis.slot < 0 ? limit[which].slot < 0 && limit[which].value <= axis.value
                         : limit[which].slot == axis.slot;
}

em_val att_captured_scalar(em *e, const sn_attention *a, int i) {
    const sn_attention_captured *c = &a->captured[i];
    em_val at = em_gep(e, em_buf(e, c->buf), c->dtype, em_size_value(e, c->offset));
    return sn_emit_loaded(e, c->dtype, em_load(e, c->dtype, at, 1));
}

em_val att_dim_value(void *ctx, const sn_node *n) {
    const att_captured *t = ctx;
    sn_dim d = sn_attr_int(n, SN_A_dim, 0);
    if (d >= 0) return em_i64(t->e, d);
    if (t->a->dim) return t->a->dim(t->a->ctx, t->e, d);
    sn_fail(&t->e->err, SN_ERR_INTERNAL,
            "attention: a region uses a symbolic dimension, but the spec has no function dim");
    return em_i64(t->e, 0);
}

/* Minimum and maximum of a table, in n lanes. */
typedef struct row_range {
    sn_dtype as; /* i32; i64 for 64-bit integers */
    int n;
    em_var lo, hi; /* of each lane */
} row_range;

static row_range begin_range(em *e, const sn_attention_captured *c) {
    em_size stride = c->stride[c->rank - 1];
    row_range r = {.as = sn_dtype_size(c->dtype) < 8 ? SN_I32 : SN_I64};
    r.n = stride.slot < 0 && stride.value == 1 ? 16 : 1;
    em_val smallest = r.as == SN_I32 ? em_i32(e, INT32_MIN) : em_i64(e, INT64_MIN / 4);
    em_val largest = r.as == SN_I32 ? em_i32(e, INT32_MAX) : em_i64(e, INT64_MAX / 4);
    r.lo = em_let(e, em_splat(e, largest, r.n)), r.hi = em_let(e, em_splat(e, smallest, r.n));
    return r;
}

/* Includes elements last.lo .. last.hi of the last axis; base: pointer to index 0 of this axis. */
static void emit_row_range(em *e, const sn_attention_captured *c, em_val base, sn_interval last,
                           const row_range *r) {
    em_val end = em_add(e, last.hi, 1), stride = em_size_value(e, c->stride[c->rank - 1]);
    em_loop l = em_for(e, last.lo, end, r->n);
    em_val at = em_gep(e, base, c->dtype, em_mul(e, l.i, stride));
    em_val x = em_load(e, c->dtype, at, 1);
    if (r->n > 1) {
        em_val valid = em_tail_mask(e, em_sub(e, end, l.i), r->n);
        x = em_load_mask(e, c->dtype, at, r->n, valid, em_splat(e, x, r->n));
    }
    x = em_convert(e, x, c->dtype, r->as);
    em_set(e, r->lo, em_imin(e, em_get(e, r->lo), x));
    em_set(e, r->hi, em_imax(e, em_get(e, r->hi), x));
    em_end(e, &l);
}

/* For bools: both values have occurred, so further elements cannot change the range. */
static em_val are_mixed(em *e, const row_range *r) {
    em_val lo = em_get(e, r->lo), hi = em_get(e, r->hi);
    em_val no = em_cmp(e, EM_EQ, lo, em_like(e, lo, 0));
    em_val yes = em_cmp(e, EM_EQ, hi, em_like(e, hi, 1));
    if (r->n == 1) return em_and(e, no, yes);
    return em_and(e, att_any_lane(e, no), att_any_lane(e, yes));
}

/* With more elements than this the range is taken as unknown. */
static const int64_t max_elements = 1 << 16;

sn_interval att_captured_range(void *ctx, const sn_node *n, const sn_interval *index) {
    const att_captured *t = ctx;
    em *e = t->e;
    int which;
    const sn_attention_captured *c = att_captured_tensor(t, n, &which);
    if (!c || c->rank != n->n_in - 1 || c->rank > 4) return (sn_interval){NULL, NULL};
    sn_interval r[SN_MAX_RANK];
    em_val count = em_i64(e, 1);
    for (int i = 0; i < c->rank; i++) {
        em_val last = em_sub(e, em_size_value(e, c->shape[i]), 1);
        r[i].lo = em_imax(e, em_imin(e, index[i].lo, last), 0);
        r[i].hi = em_imax(e, em_imin(e, index[i].hi, last), 0);
        count = em_mul(e, count, em_add(e, em_sub(e, r[i].hi, r[i].lo), 1));
        count = em_imin(e, count, max_elements + 1);
        count = em_select(e, em_cmp(e, EM_LT, last, 0), max_elements + 1, count);
    }
    em_val small = em_cmp(e, EM_LE, count, max_elements);
    em_val low = em_i64(e, INT64_MIN / 4), high = em_i64(e, INT64_MAX / 4);
    em_var lo = em_let(e, low), hi = em_let(e, high); /* unknown */
    em_branch br = em_if(e, small);
    row_range row = begin_range(e, c);
    em_loop l[4];
    em_val at = em_size_value(e, c->offset);
    for (int i = 0; i < c->rank - 1; i++) {
        l[i] = em_for(e, r[i].lo, em_add(e, r[i].hi, 1), 1);
        at = em_add(e, at, em_mul(e, l[i].i, em_size_value(e, c->stride[i])));
    }
    em_branch more = em_if(e, n->dtype == SN_BOOL ? em_not(e, are_mixed(e, &row)) : em_i1(e, true));
    emit_row_range(e, c, em_gep(e, em_buf(e, c->buf), c->dtype, at), r[c->rank - 1], &row);
    em_endif(e, &more);
    for (int i = c->rank - 2; i >= 0; i--) em_end(e, &l[i]);
    em_set(e, lo, em_int_cast(e, em_reduce(e, EM_MIN, em_get(e, row.lo)), e->i64));
    em_set(e, hi, em_int_cast(e, em_reduce(e, EM_MAX, em_get(e, row.hi)), e->i64));
    em_endif(e, &br);
    sn_interval v = {em_get(e, lo), em_get(e, hi)};
    if (n->dtype != SN_BOOL) return v;
    /* bytes 0 and 1: certainly true if the minimum is 1 */
    return (sn_interval){em_cmp(e, EM_GT, v.lo, 0), em_cmp(e, EM_GT, v.hi, 0)};
}
