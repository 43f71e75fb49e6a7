/* fp4.c: integers of 4 bits that are twice a float of 4 bits (SN_NIBBLE_FP4), 0 1 2 3 4 6 8 12 by the low three bits:
 * three lines, 1, 2 and 4 apart. Products of bytes look them up instead. */
#include "codegen/gemm/impl.h"
#include "runtime/weights.h"

em_val gemm_fp4_code(em *e, em_val x) {
    em_val a = em_abs(e, x), sign = em_select(e, em_cmp(e, EM_LT, x, em_like(e, x, 0)),
                                              em_like(e, x, 8), em_like(e, x, 0));
    em_val half = em_lshr(e, em_add(e, a, em_like(e, a, 4)), em_like(e, a, 1));
    em_val quarter = em_lshr(e, em_add(e, a, em_like(e, a, 16)), em_like(e, a, 2));
    return em_or(e, em_imin(e, a, em_imin(e, half, quarter)), sign);
}

em_val gemm_fp4_value(em *e, em_val code) {
    em_val a = em_and(e, code, em_like(e, code, 7));
    em_val twice = em_sub(e, em_shl(e, a, em_like(e, a, 1)), em_like(e, a, 4));
    em_val four = em_sub(e, em_shl(e, a, em_like(e, a, 2)), em_like(e, a, 16));
    em_val minus = em_and(e, code, em_like(e, code, 8));
    a = em_imax(e, a, em_imax(e, twice, four));
    return em_select(e, em_cmp(e, EM_NE, minus, em_like(e, minus, 0)), em_neg(e, a), a);
}

em_val gemm_fp4_bytes(em *e, em_val codes) {
    static const char *const names[] = {"llvm.x86.ssse3.pshuf.b.128", "llvm.x86.avx2.pshuf.b",
                                        "llvm.x86.avx512.pshuf.b.512"};
    const int n = 4 * em_lanes_of(codes);
    em_val table = em_splat(e, em_const(e->i8, 0), n);
    for (int i = 0; i < n; i++)
        table = em_insert(e, table, em_const(e->i8, sn_fp4_doubled[i % 16] + GEMM_FP4_OFFSET), i);
    em_type bytes = em_vec(e->i8, n);
    em_val args[] = {table, em_bitcast(e, codes, bytes)};
    em_val x = e->target->sve_bytes ? em_sve(e, "llvm.aarch64.sve.tbl", true, args, 2)
               : e->target->arch == SN_ARCH_X86_64
                   ? em_intrinsic(e, names[n / 32], NULL, 0, args, 2)
                   : em_intrinsic(e, "llvm.aarch64.neon.tbl1", &bytes, 1, args, 2);
    return em_bitcast(e, x, em_vec(e->i32, n / 4));
}
