/* common.c: what all files of the attention generator use: sizes, addresses, functions of the
 * emitted module, whole vectors in scratch. */
#include "codegen/attention/impl.h"

#include <math.h>
#include <stdio.h>

em_val att_base(em *e, const sn_attention_operand *o, em_val batch, em_val head) {
    em_val at =
        em_add(e, em_size_value(e, o->offset), em_mul(e, batch, em_size_value(e, o->batch)));
    at = em_add(e, at, em_mul(e, head, em_size_value(e, o->head)));
    return em_gep(e, em_buf(e, o->buf), o->dtype, at);
}

em_val att_load_row(em *e, const att_plan *p, sn_dtype t, em_val at, int n, em_val valid) {
    em_val x = valid ? em_load_tail(e, t, at, n, valid) : em_load(e, t, at, n);
    return t == SN_I8 ? em_convert(e, x, SN_I8, p->t) : x;
}

em_val att_row_scales(em *e, const att_plan *p, const sn_attention_operand *o, em_val base,
                      em_val k, int n, em_val valid) {
    em_val row = em_size_value(e, o->row);
    if (o->row.slot < 0 && o->row.value == 1)
        return att_load_row(e, p, o->dtype, em_gep(e, base, o->dtype, k), n, valid);
    em_val index = em_add(e, em_splat(e, k, n), em_iota(e, e->i64, n));
    index = em_mul(e, index, em_splat(e, row, n));
    return em_gather(e, o->dtype, base, index, valid ? em_tail_mask(e, valid, n) : NULL);
}

att_first att_first_state(em *e, const att_plan *p, em_val batch, em_val head, em_val q, int n,
                          em_val valid, em_val has_sink) {
    const sn_attention_operand *o = &p->a->sink;
    em_val zero = em_splat(e, em_f(e, 0), n), none = em_splat(e, em_f(e, -INFINITY), n);
    att_first s = {.m = p->a->weights ? zero : none, .l = zero};
    if (!p->a->sinks) return s;
    em_val base = att_base(e, o, batch, head), at = em_mul(e, q, em_size_value(e, o->row)), z;
    if (o->row.slot < 0 && o->row.value == 0)
        z = em_splat(e, em_load(e, o->dtype, base, 1), n);
    else
        z = n == 1 ? em_load(e, o->dtype, em_gep(e, base, o->dtype, at), 1)
                   : att_row_scales(e, p, o, base, q, n, valid);
    if (has_sink) z = em_select(e, has_sink, z, p->a->weights ? zero : none);
    if (p->a->weights) return (att_first){.m = zero, .l = z};
    em_val one = em_splat(e, em_f(e, 1), n);
    return (att_first){.m = z, .l = em_select(e, em_cmp(e, EM_EQ, z, none), zero, one)};
}

em_val att_plain_weight(em *e, em_val x) {
    em_val hidden = em_cmp(e, EM_EQ, x, em_like(e, x, -INFINITY));
    return em_select(e, hidden, em_like(e, x, 0), x);
}

em_val att_row_divisor(em *e, const att_plan *p, em_val l, em_val *slope) {
    em_val zero = em_like(e, l, 0), one = em_like(e, l, 1);
    *slope = p->a->weights == SN_WEIGHTS_SUM ? one : zero;
    if (p->a->weights == SN_WEIGHTS_SUM) return l;
    if (p->a->weights != SN_WEIGHTS_ABS_SUM) return one;
    em_val size = em_abs(e, l), sign = em_select(e, em_cmp(e, EM_LT, l, zero), em_neg(e, one), one);
    *slope = em_select(e, em_cmp(e, EM_GT, size, one), sign, zero);
    return em_max(e, size, one);
}

em_val att_reciprocal(em *e, em_val n) {
    em_val zero = em_like(e, n, 0), none = em_cmp(e, EM_EQ, n, zero);
    return em_select(e, none, zero, em_div(e, em_like(e, n, 1), n));
}

em_val att_lse_ptr(em *e, const att_plan *p, em_val batch, em_val head, em_val q, int part) {
    em_val row = em_add(e, em_mul(e, batch, p->a->heads), head);
    row = em_add(e, em_mul(e, row, p->a->lse_parts), part);
    em_val at = em_add(e, em_mul(e, row, em_size_value(e, p->a->tq)), q);
    return em_gep(e, em_buf(e, p->a->lse_buf), p->t, at);
}

att_name att_name_of(const att_plan *p, const char *suffix) {
    att_name name;
    snprintf(name.text, sizeof name.text, "%s.%s", p->name, suffix);
    return name;
}

em_val att_end(em *e) {
    em_val fn = e->fn;
    em_ret(e, NULL);
    return fn;
}

em_val att_scratch(em *e, int64_t offset) {
    return em_gep_bytes(e, e->scratch, offset);
}

em_val att_block_state(em *e, const att_plan *p, int64_t offset) {
    em_val current = em_load(e, SN_I64, att_scratch(e, p->current_state_offset), 1);
    return em_gep_bytes(e, att_scratch(e, offset), current);
}

em_val att_load(em *e, const att_plan *p, em_val ptr) {
    return em_load_raw(e, e->vt, ptr, (unsigned)(p->lanes * p->esize));
}

void att_add_product(em *e, const att_plan *p, em_val *acc, int rows, int nv, const em_val *left,
                     em_val right) {
    tile_add_product(e, p->factor, (unsigned)(p->lanes * p->esize), acc, rows, nv, left, right);
}

em_val att_count_words(em *e, const att_plan *p, em_val n) {
    return p->word == 1 ? n : em_lshr(e, em_add(e, n, 1), 1);
}

em_val att_join_factors(em *e, const att_plan *p, const em_val *x) {
    return p->word == 1 ? x[0] : tile_bf16_join(e, x[0], x[1]);
}

void att_store(em *e, const att_plan *p, em_val x, em_val ptr) {
    em_store_raw(e, x, ptr, (unsigned)(p->lanes * p->esize));
}

em_val att_lanes(em *e, const att_plan *p, em_val x) {
    return em_lanes_of(x) == 1 ? em_splat(e, x, p->lanes) : x;
}

em_val att_column(em *e, const att_plan *p, em_val base, em_val v) {
    return em_gep(e, base, p->t, em_mul(e, v, p->lanes));
}

em_val att_any_lane(em *e, em_val cond) {
    unsigned n = (unsigned)em_lanes_of(cond);
    em_type bits = LLVMIntTypeInContext(e->ctx, n);
    em_val packed = em_bitcast(e, cond, bits);
    return LLVMBuildICmp(e->b, LLVMIntNE, packed, LLVMConstInt(bits, 0, false), "");
}
