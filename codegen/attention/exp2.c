/* exp2.c: 2^x as softmax needs it: faster than the exact function, and never subnormal. */
#include "codegen/attention/impl.h"
#include "codegen/emit/vmath.h"

/* Minimax polynomials (Remez, relative error 7.5e-8): on [0, 1) and on [-1/2, 1/2]. */
static const double exp2_unit[] = {0.9999999250635297,   0.6931530732000754,
                                   0.24015361704533508,  0.055826318050040215,
                                   0.008989340094708694, 0.001877576673370389};
static const double exp2_half[] = {1.0000000716546822,  0.6931469670647331,  0.24022119723848476,
                                   0.05550713273542586, 0.00967554133421605, 0.0013276471979478776};

static em_val polynomial(em *e, em_val x, const double *c) {
    em_val y = em_like(e, x, c[5]);
    for (int i = 4; i >= 0; i--) y = em_fma(e, y, x, em_like(e, x, c[i]));
    return y;
}

static em_val avx512_op(em *e, const char *name, em_val x, em_val y) {
    em_val current = em_i32(e, 4); /* rounding as the CPU is set */
    em_val all = LLVMConstAllOnes(LLVMInt16TypeInContext(e->ctx));
    em_val args[] = {x, y, em_vf(e, 0), all, current};
    return em_intrinsic(e, name, NULL, 0, args, 5);
}

em_val att_exp2(em *e, em_val x) {
    return att_exp2_above(e, x, em_elem_type(x) == e->f32 ? -126 : -1022);
}

em_val att_exponent(em *e, const att_plan *p, em_val score, em_val m) {
    if (p->log2_scores) return em_sub(e, score, m);
    return em_fma(e, score, em_like(e, score, ATT_LOG2_E), em_neg(e, m));
}

em_val att_in_ln2(em *e, const att_plan *p, em_val score) {
    return p->log2_scores ? score : em_mul(e, score, em_like(e, score, ATT_LOG2_E));
}

em_val att_exp2_above(em *e, em_val x, int least) {
    em_val y;
    bool f32 = em_elem_type(x) == e->f32;
    if (!f32) {
        y = sn_vmath_emit(e, SN_V_EXP2, x);
    } else if (e->target->has_avx512 && em_lanes_of(x) == 16) {
        em_val part =
            avx512_op(e, "llvm.x86.avx512.mask.reduce.ps.512", x, em_i32(e, 1)); /* x - floor */
        y = avx512_op(e, "llvm.x86.avx512.mask.scalef.ps.512", polynomial(e, part, exp2_unit), x);
    } else { /* 1.5 2^23 moves the integer part to the low bits; from there to an exponent */
        em_val magic = em_like(e, x, 0x1.8p23), t = em_add(e, x, magic);
        em_val part = em_sub(e, x, em_sub(e, t, magic));
        em_type bits = em_vec(e->i32, em_lanes_of(x));
        em_val power = em_bitcast(e, t, bits);
        power = em_add(e, em_shl(e, power, em_like(e, power, 23)), em_like(e, power, 0x3f800000));
        y = em_mul(e, polynomial(e, part, exp2_half), em_bitcast(e, power, LLVMTypeOf(x)));
    }
    /* subnormal weights are worth nothing and would cost hundreds of cycles in each product */
    return em_select(e, em_cmp(e, EM_LT, x, em_like(e, x, least)), em_like(e, x, 0), y);
}
