/* exp2.c: e^x as softmax needs it: faster than the exact function, and never subnormal.
 *
 * Callers pass the difference of a score and its row's maximum, in the score's own units. It is
 * exact where the two are close; log2 e multiplies it afterwards. The other order, score log2 e - m
 * log2 e, rounds each product by itself: at scores of 1e10 the difference would be off by
 * thousands. */
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

/* 2^(x log2 e - less); less NULL: 2^(x log2 e). At most 1 where `bounded`. */
static em_val power(em *e, em_val x, em_val less, bool bounded, int least) {
    bool wide = em_elem_type(x) == e->f64, avx512 = e->target->has_avx512 && em_lanes_of(x) == 16;
    em_val log2e = em_like(e, x, ATT_LOG2_E), y;
    bool fused = !wide && !avx512 && !less && e->target->has_fma; /* in the reduction's own steps */
    em_val z = fused ? x : em_mul(e, x, log2e);
    if (less) z = em_fma(e, x, log2e, em_neg(e, less));
    if (bounded) z = em_min(e, em_like(e, x, 0), z); /* NaN stays */
    if (wide) {
        y = sn_vmath_emit(e, SN_V_EXP2, z);
    } else if (avx512) {
        em_val part =
            avx512_op(e, "llvm.x86.avx512.mask.reduce.ps.512", z, em_i32(e, 1)); /* z - floor */
        y = avx512_op(e, "llvm.x86.avx512.mask.scalef.ps.512", polynomial(e, part, exp2_unit), z);
    } else { /* 1.5 2^23 moves the integer part to the low bits; from there to an exponent */
        em_val magic = em_like(e, z, 0x1.8p23);
        em_val t = fused ? em_fma(e, z, log2e, magic) : em_add(e, z, magic);
        em_val whole = em_sub(e, t, magic);
        em_val part = fused ? em_fma(e, z, log2e, em_neg(e, whole)) : em_sub(e, z, whole);
        em_type bits = em_vec(e->i32, em_lanes_of(z));
        em_val bit = em_bitcast(e, t, bits);
        bit = em_add(e, em_shl(e, bit, em_like(e, bit, 23)), em_like(e, bit, 0x3f800000));
        y = em_mul(e, polynomial(e, part, exp2_half), em_bitcast(e, bit, LLVMTypeOf(z)));
    }
    /* subnormal weights are worth nothing and would cost hundreds of cycles in each product */
    double bound = fused ? least * (1 - 1e-6) / ATT_LOG2_E : least; /* rounded towards 0 */
    em_val small = em_cmp(e, EM_LT, z, em_like(e, z, bound));
    return em_select(e, small, em_like(e, z, 0), y);
}

em_val att_exp(em *e, em_val x) {
    return power(e, x, NULL, false, em_elem_type(x) == e->f32 ? -126 : -1022);
}

em_val att_exp2_minus(em *e, em_val x, em_val less, bool bounded) {
    return power(e, x, less, bounded, em_elem_type(x) == e->f32 ? -100 : -960);
}
