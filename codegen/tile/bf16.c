/* bf16.c: products of bf16 with f32 sums: words of 2 elements, the lower half of a word first. Factors
 * are rounded to bf16, nearest even, and a step adds the product of the odd elements and then that of the
 * even ones:
 *
 *     c = fma(a0, b0, fma(a1, b1, c))        in f32; subnormal factors, sums and results are 0
 *
 *   native   AVX512-BF16 without AMX: vdpbf16ps computes exactly this. AArch64 with bf16: bfmlalt and
 *            bfmlalb, a multiply-add each.
 *   fused    elsewhere: both halves are widened, which gives the same bits where the target has FMA. On
 *            CPUs with AMX, whose vdpbf16ps is slow, too. */
#include "codegen/tile/tile.h"

enum { MAX_LANES = 16 /* f32 in a vector of a target with the instructions */ };

/* f32 as bf16 in the upper halves of i32, with zeros below; what is below the normal range is 0. */
static em_val upper_halves(em *e, em_val x) {
    const int n = em_lanes_of(x);
    em_val bits = em_bitcast(e, x, em_vec(e->i32, n));
    em_val exponent = em_and(e, bits, em_like(e, bits, 0x7f800000));
    bits = em_select(e, em_cmp(e, EM_EQ, exponent, em_like(e, bits, 0)), em_like(e, bits, 0), bits);
    x = em_convert(e, em_bitcast(e, bits, em_vec(e->f32, n)), SN_F32, SN_BF16);
    bits = LLVMBuildZExt(e->b, x, em_vec(e->i32, n), "");
    return em_shl(e, bits, em_like(e, bits, 16));
}

/* The same by the target's instruction, as i16. */
static em_val round_natively(em *e, em_val x) {
    const int n = em_lanes_of(x);
    em_val h = LLVMBuildFPTrunc(e->b, x, em_vec(LLVMBFloatTypeInContext(e->ctx), n), "");
    return em_bitcast(e, h, em_vec(e->i16, n));
}

/* Both at once: one instruction rounds them, another interleaves the halves. */
static em_val join_natively(em *e, em_val even, em_val odd) {
    static const char *const names[] = {"llvm.x86.avx512bf16.cvtne2ps2bf16.128",
                                        "llvm.x86.avx512bf16.cvtne2ps2bf16.256",
                                        "llvm.x86.avx512bf16.cvtne2ps2bf16.512"};
    const int n = em_lanes_of(even);
    int lane[2 * MAX_LANES];
    em_val h = em_intrinsic(e, names[n / 8], NULL, 0, (em_val[]){odd, even}, 2);
    for (int i = 0; i < 2 * n; i++) lane[i] = i / 2 + i % 2 * n;
    h = em_bitcast(e, h, em_vec(e->i16, 2 * n));
    return em_bitcast(e, em_shuffle(e, h, h, lane, 2 * n), em_vec(e->f32, n));
}

static bool rounds_natively(const sn_target *t) {
    return t->arch == SN_ARCH_X86_64 && t->has_bf16;
}

bool tile_bf16_is_native(const sn_target *t) {
    return t->has_bf16 && !t->slow_bf16;
}

em_val tile_bf16_join(em *e, em_val even, em_val odd) {
    if (rounds_natively(e->target)) return join_natively(e, even, odd);
    em_val low = upper_halves(e, even);
    low = em_or(e, em_lshr(e, low, em_like(e, low, 16)), upper_halves(e, odd));
    return em_bitcast(e, low, em_vec(e->f32, em_lanes_of(even)));
}

em_val tile_bf16_words(em *e, em_val x) {
    const int n = em_lanes_of(x);
    em_val h;
    if (rounds_natively(e->target)) {
        h = round_natively(e, x);
    } else {
        h = upper_halves(e, x);
        h = em_int_cast(e, em_lshr(e, h, em_like(e, h, 16)), e->i16);
    }
    return em_bitcast(e, h, em_vec(e->f32, n / 2));
}

em_val tile_bf16_round(em *e, em_val x) {
    return em_bitcast(e, upper_halves(e, x), LLVMTypeOf(x));
}

void tile_bf16_widen(em *e, em_val words, em_val *x) {
    em_type f32 = LLVMTypeOf(words);
    em_val bits = em_bitcast(e, words, em_vec(e->i32, em_lanes_of(words)));
    x[0] = em_bitcast(e, em_and(e, bits, em_like(e, bits, -65536)), f32);
    x[1] = em_bitcast(e, em_shl(e, bits, em_like(e, bits, 16)), f32);
}

int tile_bf16_terms(em *e, em_val words, em_val *x) {
    x[0] = x[1] = words;
    if (tile_bf16_is_native(e->target)) return 1;
    tile_bf16_widen(e, words, x);
    return 2;
}

void tile_bf16_lane(em *e, em_val words, int lane, em_val *x) {
    int at[2 * MAX_LANES];
    const int n = 2 * em_lanes_of(words);
    em_val h = em_bitcast(e, words, em_vec(LLVMBFloatTypeInContext(e->ctx), n));
    for (int odd = 1; odd >= 0; odd--) {
        for (int i = 0; i < n; i++) at[i] = 2 * lane + odd;
        x[1 - odd] = em_shuffle(e, h, h, at, n);
    }
}

static em_val add_native(em *e, const em_val *a, const em_val *b, em_val acc) {
    static const char *const names[] = {"llvm.x86.avx512bf16.dpbf16ps.128",
                                        "llvm.x86.avx512bf16.dpbf16ps.256",
                                        "llvm.x86.avx512bf16.dpbf16ps.512"};
    const int lanes = em_lanes_of(acc);
    em_type t = em_vec(LLVMBFloatTypeInContext(e->ctx), 2 * lanes);
    em_val args[] = {acc, em_bitcast(e, a[0], t), em_bitcast(e, b[0], t)};
    if (e->target->arch == SN_ARCH_X86_64)
        return em_intrinsic(e, names[lanes / 8], NULL, 0, args, 3);
    em_val odd[] = {acc, args[2], args[1]}, even[] = {NULL, args[2], em_bitcast(e, a[1], t)};
    if (e->target->sve_bytes) {
        even[0] = em_sve(e, "llvm.aarch64.sve.bfmlalt", false, odd, 3);
        return em_sve(e, "llvm.aarch64.sve.bfmlalb", false, even, 3);
    }
    even[0] = em_intrinsic(e, "llvm.aarch64.neon.bfmlalt", NULL, 0, odd, 3); /* a: by lane */
    return em_intrinsic(e, "llvm.aarch64.neon.bfmlalb", NULL, 0, even, 3);
}

em_val tile_bf16_add(em *e, const em_val *a, const em_val *b, em_val acc) {
    if (tile_bf16_is_native(e->target)) return add_native(e, a, b, acc);
    for (int i = 0; i < 2; i++) tile_add(e, &acc, 1, a[i], &b[i]);
    return acc;
}
