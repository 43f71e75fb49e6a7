/* philox.c: Philox4x32-10 [Salmon, Moraes, Dror and Shaw 2011] on vectors of counters. */
#include "codegen/emit/philox.h"

/* a k with both below 2^32: low half; the high one in *high. */
static em_val mul_wide(em *e, em_val a, uint32_t k, em_val *high) {
    int n = em_lanes_of(a);
    if (n % 2) {
        em_val wide = LLVMBuildZExt(e->b, a, em_vec(e->i64, n), "");
        em_val p = em_mul(e, wide, em_like(e, wide, (double)k));
        *high = em_int_cast(e, em_lshr(e, p, em_like(e, p, 32)), e->i32);
        return em_int_cast(e, p, e->i32);
    }
    /* lanes 0, 2, ... and 1, 3, ... where they are: x86 multiplies the low halves of
     * 64-bit lanes */
    em_val pair = em_bitcast(e, a, em_vec(e->i64, n / 2)), c = em_like(e, pair, (double)k);
    em_val even = em_mul(e, em_and(e, pair, em_like(e, pair, 0xFFFFFFFFu)), c);
    em_val odd = em_mul(e, em_lshr(e, pair, em_like(e, pair, 32)), c);
    even = em_bitcast(e, even, LLVMTypeOf(a));
    odd = em_bitcast(e, odd, LLVMTypeOf(a));
    int lane[2][64];
    for (int i = 0; i < n; i++)
        for (int h = 0; h < 2; h++) lane[h][i] = (i & ~1) + h + (i & 1 ? n : 0);
    *high = em_shuffle(e, even, odd, lane[1], n);
    return em_shuffle(e, even, odd, lane[0], n);
}

void sn_emit_philox(em *e, em_val c[4], em_val key) {
    em_val k0 = em_int_cast(e, key, e->i32), k1 = em_lshr(e, key, 32);
    k1 = em_int_cast(e, k1, e->i32);
    for (int round = 0; round < 10; round++) {
        em_val h0, h1, l0 = mul_wide(e, c[0], 0xD2511F53u, &h0),
                       l1 = mul_wide(e, c[2], 0xCD9E8D57u, &h1);
        c[0] = em_xor(e, em_xor(e, h1, c[1]), k0);
        c[2] = em_xor(e, em_xor(e, h0, c[3]), k1);
        c[1] = l1;
        c[3] = l0;
        k0 = em_add(e, k0, em_i32(e, (int32_t)0x9E3779B9u));
        k1 = em_add(e, k1, em_i32(e, (int32_t)0xBB67AE85u));
    }
}
