/* ops.c: arithmetic, comparisons, lanes and reductions of the emission vocabulary. */
#include "codegen/emit/emit.h"

/* Broadcasts a scalar operand to the lanes of the other; then the types must agree. */
static bool unify(em *e, const char *op, em_val *a, em_val *b) {
    int na = em_lanes_of(*a), nb = em_lanes_of(*b);
    if (na == 1 && nb > 1) *a = em_splat(e, *a, nb);
    if (nb == 1 && na > 1) *b = em_splat(e, *b, na);
    if (LLVMTypeOf(*a) == LLVMTypeOf(*b)) return true;
    char *ta = LLVMPrintTypeToString(LLVMTypeOf(*a)), *tb = LLVMPrintTypeToString(LLVMTypeOf(*b));
    sn_fail(&e->err, SN_ERR_INTERNAL, "%s: operands of types %s and %s", op, ta, tb);
    LLVMDisposeMessage(ta);
    LLVMDisposeMessage(tb);
    return false;
}

static em_val with_flags(em *e, em_val v) {
    if (LLVMCanValueUseFastMathFlags(v)) LLVMSetFastMathFlags(v, e->fmf);
    return v;
}

typedef LLVMValueRef builder2(LLVMBuilderRef, LLVMValueRef, LLVMValueRef, const char *);

static em_val arith(em *e, const char *op, builder2 *flt, builder2 *integer, em_val a, em_val b) {
    if (!unify(e, op, &a, &b)) return a;
    builder2 *build = em_is_float(a) ? flt : integer;
    if (!build) {
        sn_fail(&e->err, SN_ERR_INTERNAL, "%s: not defined on floats", op);
        return a;
    }
    return with_flags(e, build(e->b, a, b, ""));
}

LLVMFastMathFlags em_fast(em *e, LLVMFastMathFlags flags) {
    LLVMFastMathFlags old = e->fmf;
    e->fmf = flags;
    return old;
}

/* One line per operation: float builder, integer builder. */
#define BINARY(name, flt, integer)                                                                 \
    em_val(em_##name)(em * e, em_val a, em_val b) {                                                \
        return arith(e, "em_" #name, flt, integer, a, b);                                          \
    }
BINARY(add, LLVMBuildFAdd, LLVMBuildAdd)
BINARY(sub, LLVMBuildFSub, LLVMBuildSub)
BINARY(mul, LLVMBuildFMul, LLVMBuildMul)
BINARY(div, LLVMBuildFDiv, LLVMBuildSDiv)
BINARY(rem, NULL, LLVMBuildSRem)
BINARY(and, NULL, LLVMBuildAnd)
BINARY(or, NULL, LLVMBuildOr)
BINARY(xor, NULL, LLVMBuildXor)
BINARY(shl, NULL, LLVMBuildShl)
BINARY(lshr, NULL, LLVMBuildLShr)
BINARY(ashr, NULL, LLVMBuildAShr)

em_val em_not(em *e, em_val a) {
    return LLVMBuildNot(e->b, a, "");
}

em_val em_neg(em *e, em_val a) {
    return em_is_float(a) ? with_flags(e, LLVMBuildFNeg(e->b, a, "")) : LLVMBuildNeg(e->b, a, "");
}

em_val em_abs(em *e, em_val a) {
    if (em_is_float(a)) return em_unary_intrinsic(e, "llvm.fabs", a);
    return em_select(e, em_cmp(e, EM_LT, a, em_like(e, a, 0)), em_neg(e, a), a);
}

em_val em_sqrt(em *e, em_val a) {
    return em_unary_intrinsic(e, "llvm.sqrt", a);
}

/* WebAssembly fuses whole vectors only, by relaxed-simd, and calls a library for anything else. */
static const char *fma_name(const em *e, int bytes) {
    bool wasm = e->target->arch == SN_ARCH_WASM32;
    if (!e->target->has_fma || (wasm && bytes != e->target->vector_bytes)) return "llvm.fmuladd";
    return wasm ? "llvm.wasm.relaxed.madd" : "llvm.fma";
}

em_val em_fma(em *e, em_val a, em_val b, em_val c) {
    int n = em_lanes_of(a) > em_lanes_of(b) ? em_lanes_of(a) : em_lanes_of(b);
    if (em_lanes_of(c) > n) n = em_lanes_of(c);
    em_val args[] = {a, b, c};
    for (int i = 0; i < 3; i++)
        if (em_lanes_of(args[i]) == 1) args[i] = em_splat(e, args[i], n);
    if (!unify(e, "em_fma", &args[0], &args[1]) || !unify(e, "em_fma", &args[0], &args[2]))
        return a;
    em_type t = LLVMTypeOf(args[0]);
    return em_intrinsic(e, fma_name(e, n * (em_elem_type(args[0]) == e->f64 ? 8 : 4)), &t, 1, args,
                        3);
}

em_val em_max(em *e, em_val a, em_val b) {
    return em_select(e, em_cmp(e, EM_GT, a, b), a, b);
}

em_val em_min(em *e, em_val a, em_val b) {
    return em_select(e, em_cmp(e, EM_LT, a, b), a, b);
}

/* The same choice as an intrinsic for vectors of 512 bits: LLVM would take comparison and choice of
 * keep_nan apart and join them otherwise, to twice the instructions. NULL: no such vectors. */
static em_val pick_whole(em *e, em_val a, em_val b, bool max) {
    int lanes = em_lanes_of(a);
    bool wide = em_elem_type(a) == e->f64;
    if (!e->target->has_avx512 || lanes * (wide ? 64 : 32) != 512) return NULL;
    char name[40];
    snprintf(name, sizeof name, "llvm.x86.avx512.%s.%s.512", max ? "max" : "min",
             wide ? "pd" : "ps");
    return em_intrinsic(e, name, NULL, 0, (em_val[]){a, b, em_i32(e, 4)}, 3);
}

/* pick(a, b), or a NaN among the two. A NaN is unequal to itself: this takes two instructions more
 * than em_max and no library call; with a constant none, because the operand that may be NaN stands
 * second. (That also keeps InstCombine of LLVM 19 away from max(|x|, 0), which it makes
 * x > 0 ? |x| : 0.) */
static em_val keep_nan(em *e, em_val a, em_val b, em_val (*pick)(em *, em_val, em_val)) {
    if (!unify(e, "em_max_nan", &a, &b) || !em_is_float(a)) return pick(e, a, b);
    if (LLVMIsConstant(b)) return em_select(e, em_cmp(e, EM_EQ, b, b), pick(e, b, a), b);
    if (LLVMIsConstant(a)) return em_select(e, em_cmp(e, EM_EQ, a, a), pick(e, a, b), a);
    /* the choice is b if either is NaN, so only a NaN in `a` can be lost */
    em_val whole = pick_whole(e, a, b, pick == em_max);
    return em_select(e, em_cmp(e, EM_NE, a, a), a, whole ? whole : pick(e, a, b));
}

em_val em_max_nan(em *e, em_val a, em_val b) {
    return keep_nan(e, a, b, em_max);
}

em_val em_min_nan(em *e, em_val a, em_val b) {
    return keep_nan(e, a, b, em_min);
}

em_val(em_imin)(em *e, em_val a, em_val b) {
    return em_min(e, a, b);
}

em_val(em_imax)(em *e, em_val a, em_val b) {
    return em_max(e, a, b);
}

em_val(em_cmp)(em *e, em_cmp_op op, em_val a, em_val b) {
    static const LLVMRealPredicate real[] = {
        [EM_EQ] = LLVMRealOEQ, [EM_NE] = LLVMRealUNE, [EM_LT] = LLVMRealOLT,
        [EM_LE] = LLVMRealOLE, [EM_GT] = LLVMRealOGT, [EM_GE] = LLVMRealOGE};
    static const LLVMIntPredicate integer[] = {
        [EM_EQ] = LLVMIntEQ,  [EM_NE] = LLVMIntNE,  [EM_LT] = LLVMIntSLT,
        [EM_LE] = LLVMIntSLE, [EM_GT] = LLVMIntSGT, [EM_GE] = LLVMIntSGE};
    if (!unify(e, "em_cmp", &a, &b)) return em_i1(e, false);
    if (em_is_float(a)) return with_flags(e, LLVMBuildFCmp(e->b, real[op], a, b, ""));
    return LLVMBuildICmp(e->b, integer[op], a, b, "");
}

em_val em_ult(em *e, em_val a, em_val b) {
    if (!unify(e, "em_ult", &a, &b)) return em_i1(e, false);
    return LLVMBuildICmp(e->b, LLVMIntULT, a, b, "");
}

em_val(em_select)(em *e, em_val cond, em_val a, em_val b) {
    if (!unify(e, "em_select", &a, &b)) return a;
    int n = em_lanes_of(cond);
    if (n > 1 && em_lanes_of(a) == 1) {
        a = em_splat(e, a, n);
        b = em_splat(e, b, n);
    }
    return with_flags(e, LLVMBuildSelect(e->b, cond, a, b, ""));
}

/* --- constants -------------------------------------------------------------------------------- */

em_val em_vf(em *e, double v) {
    return em_splat(e, em_f(e, v), e->lanes);
}

em_val em_like(em *e, em_val x, double v) {
    return em_splat(e, em_const(em_elem_type(x), v), em_lanes_of(x));
}

/* --- conversions ------------------------------------------------------------------------------ */

em_val em_bitcast(em *e, em_val v, em_type t) {
    return LLVMBuildBitCast(e->b, v, t, "");
}

static unsigned bits_of(em_type elem) {
    switch (LLVMGetTypeKind(elem)) {
    case LLVMHalfTypeKind:
        return 16;
    case LLVMFloatTypeKind:
        return 32;
    case LLVMDoubleTypeKind:
        return 64;
    default:
        return LLVMGetIntTypeWidth(elem);
    }
}

static em_val resize_int(em *e, em_val v, em_type elem, bool is_signed) {
    unsigned from = bits_of(em_elem_type(v)), to = bits_of(elem);
    em_type t = em_vec(elem, em_lanes_of(v));
    if (from == to) return v;
    if (from > to) return LLVMBuildTrunc(e->b, v, t, "");
    return is_signed && from > 1 ? LLVMBuildSExt(e->b, v, t, "") : LLVMBuildZExt(e->b, v, t, "");
}

em_val em_int_cast(em *e, em_val v, em_type elem) {
    return resize_int(e, v, elem, true);
}

em_val em_idx(em *e, em_val v) {
    return resize_int(e, v, e->i64, true);
}

static em_val resize_float(em *e, em_val v, em_type elem) {
    unsigned from = bits_of(em_elem_type(v)), to = bits_of(elem);
    em_type t = em_vec(elem, em_lanes_of(v));
    if (from == to) return v;
    return from > to ? LLVMBuildFPTrunc(e->b, v, t, "") : LLVMBuildFPExt(e->b, v, t, "");
}

static em_val int_like(em *e, em_val x, uint32_t bits) {
    return em_splat(e, LLVMConstInt(e->i32, bits, 0), em_lanes_of(x));
}

static em_val as_f32(em *e, em_val bits) {
    return em_bitcast(e, bits, em_vec(e->f32, em_lanes_of(bits)));
}

static em_val as_i32(em *e, em_val f32) {
    return em_bitcast(e, f32, em_vec(e->i32, em_lanes_of(f32)));
}

static em_val bf16_to_f32(em *e, em_val h) {
    em_val wide = resize_int(e, h, e->i32, false);
    return as_f32(e, em_shl(e, wide, int_like(e, wide, 16)));
}

/* The bf16 values from which x was converted; NULL: it was not. */
static em_val widened_from(em *e, em_val x) {
    em_val bits = LLVMIsABitCastInst(x) ? LLVMGetOperand(x, 0) : NULL;
    bool shifted = bits && LLVMIsAInstruction(bits) && LLVMGetInstructionOpcode(bits) == LLVMShl &&
                   LLVMGetOperand(bits, 1) == int_like(e, bits, 16);
    em_val wide = shifted ? LLVMGetOperand(bits, 0) : NULL;
    em_val h = wide && LLVMIsAZExtInst(wide) ? LLVMGetOperand(wide, 0) : NULL;
    return h && em_elem_type(h) == e->i16 ? h : NULL;
}

/* sn_f32_to_bf16, lane by lane: round to nearest even on the integer image, NaN made quiet. The
 * ISA's own instruction flushes subnormals, so it is not used. */
static em_val f32_to_bf16(em *e, em_val x) {
    em_val exact = widened_from(e, x);
    if (exact) return exact;
    em_val u = as_i32(e, x), sixteen = int_like(e, u, 16);
    em_val odd = em_and(e, em_lshr(e, u, sixteen), int_like(e, u, 1));
    em_val r = em_add(e, u, em_add(e, odd, int_like(e, u, 0x7fff)));
    em_val nan = em_or(e, u, int_like(e, u, 0x400000));
    r = em_select(e, em_cmp(e, EM_NE, x, x), nan, r);
    return resize_int(e, em_lshr(e, r, sixteen), e->i16, false);
}

/* Without F16C LLVM would call a library function, one a lane: the same by integer operations.
 * Exponent and mantissa are moved into place and 112 is added to the exponent; infinity and NaN get
 * all ones. A subnormal half m 2^-24 is (2^-14 + m 2^-24) - 2^-14: all of these are normal in f32,
 * as kernels flush what is not. */
static em_val f16_to_f32_soft(em *e, em_val half) {
    em_val u = resize_int(e, half, e->i32, false);
    em_val mag = em_shl(e, em_and(e, u, int_like(e, u, 0x7fff)), int_like(e, u, 13));
    em_val above = as_f32(e, em_add(e, mag, int_like(e, u, 0x38800000)));
    em_val small = as_i32(e, em_sub(e, above, em_like(e, above, 0x1p-14)));
    em_val scaled = em_select(e, em_ult(e, mag, int_like(e, u, 0x00800000)), small,
                              em_add(e, mag, int_like(e, u, 0x38000000)));
    em_val special = em_ult(e, int_like(e, u, 0x0f7fffff), mag);
    em_val r = em_select(e, special, em_or(e, mag, int_like(e, u, 0x7f800000)), scaled);
    em_val sign = em_shl(e, em_and(e, u, int_like(e, u, 0x8000)), int_like(e, u, 16));
    return as_f32(e, em_or(e, r, sign));
}

/* sn_f32_to_f16, lane by lane. */
static em_val f32_to_f16_soft(em *e, em_val x) {
    em_val u = as_i32(e, x), a = em_and(e, u, int_like(e, u, 0x7fffffff));
    em_val sign = em_and(e, em_lshr(e, u, int_like(e, u, 16)), int_like(e, u, 0x8000));
    em_val fa = as_f32(e, a);
    em_val low =
        em_sub(e, as_i32(e, em_add(e, fa, em_like(e, fa, 0.5))), int_like(e, u, 0x3f000000));
    em_val odd = em_and(e, em_lshr(e, a, int_like(e, u, 13)), int_like(e, u, 1));
    em_val mid = em_add(e, em_add(e, a, int_like(e, u, 0xfffu - 0x38000000u)), odd);
    mid = em_lshr(e, mid, int_like(e, u, 13));
    em_val nan = em_and(e, em_lshr(e, a, int_like(e, u, 13)), int_like(e, u, 0x3ff));
    nan = em_or(e, nan, int_like(e, u, 0x7e00));
    em_val r = em_select(e, em_cmp(e, EM_LT, a, int_like(e, u, 0x38800000)), low, mid);
    r = em_select(e, em_cmp(e, EM_LT, a, int_like(e, u, 0x477ff000)), r, int_like(e, u, 0x7c00));
    r = em_select(e, em_cmp(e, EM_GT, a, int_like(e, u, 0x7f800000)), nan, r);
    return resize_int(e, em_or(e, r, sign), e->i16, false);
}

/* Converts any float element to f32 or f64 (`elem`). */
static em_val widen_float(em *e, em_val v, sn_dtype from, em_type elem) {
    if (from == SN_BF16) v = bf16_to_f32(e, v);
    if (from == SN_F16 && !e->target->has_f16c) v = f16_to_f32_soft(e, v);
    return resize_float(e, v, elem);
}

static em_val narrow_float(em *e, em_val v, sn_dtype to) {
    if (to == SN_F32 || to == SN_F64) return resize_float(e, v, em_mem_type(e, to));
    v = resize_float(e, v, e->f32);
    if (to == SN_BF16) return f32_to_bf16(e, v);
    return e->target->has_f16c ? resize_float(e, v, em_mem_type(e, SN_F16)) : f32_to_f16_soft(e, v);
}

/* Through i32 after clamping: LLVM would convert to bytes lane by lane. */
static em_val floats_to_bytes(em *e, em_val v, bool is_signed) {
    em_val low = em_like(e, v, is_signed ? -128 : 0), high = em_like(e, v, is_signed ? 127 : 255);
    v = em_select(e, em_cmp(e, EM_EQ, v, v), v, em_like(e, v, 0));
    v = em_min(e, em_max(e, v, low), high);
    v = LLVMBuildFPToSI(e->b, v, em_vec(e->i32, em_lanes_of(v)), "");
    return LLVMBuildTrunc(e->b, v, em_vec(e->i8, em_lanes_of(v)), "");
}

static em_val float_to_int(em *e, em_val v, em_type elem, bool is_signed) {
    if (elem == e->i8 && em_lanes_of(v) > 1) return floats_to_bytes(e, v, is_signed);
    em_type over[] = {em_vec(elem, em_lanes_of(v)), LLVMTypeOf(v)};
    return em_intrinsic(e, is_signed ? "llvm.fptosi.sat" : "llvm.fptoui.sat", over, 2, &v, 1);
}

em_val em_convert(em *e, em_val v, sn_dtype from, sn_dtype to) {
    bool f = sn_dtype_is_float(from), mask = bits_of(em_elem_type(v)) == 1;
    bool from_signed = from != SN_U8 && from != SN_BOOL;
    em_type elem = em_mem_type(e, to), t = em_vec(elem, em_lanes_of(v));
    if (mask) from_signed = false;
    if (from == to && !mask) return v;
    if (f) v = widen_float(e, v, from, from == SN_F64 ? e->f64 : e->f32);
    if (to == SN_BOOL)
        return resize_int(e, mask ? v : em_cmp(e, EM_NE, v, em_like(e, v, 0)), e->i8, false);
    if (!sn_dtype_is_float(to))
        return f ? float_to_int(e, v, elem, to != SN_U8) : resize_int(e, v, elem, from_signed);
    if (!f) {
        bool wide = to == SN_F64;
        t = em_vec(wide ? e->f64 : e->f32, em_lanes_of(v));
        v = from_signed ? LLVMBuildSIToFP(e->b, v, t, "") : LLVMBuildUIToFP(e->b, v, t, "");
    }
    return narrow_float(e, v, to);
}

/* --- lanes ------------------------------------------------------------------------------------ */

em_val(em_splat)(em *e, em_val scalar, int n) {
    if (n == 1) return scalar;
    if (LLVMIsConstant(scalar) && n <= 256) {
        em_val lane[256];
        for (int i = 0; i < n; i++) lane[i] = scalar;
        return LLVMConstVector(lane, (unsigned)n);
    }
    em_val poison = LLVMGetPoison(em_vec(LLVMTypeOf(scalar), n));
    em_val one = LLVMBuildInsertElement(e->b, poison, scalar, em_i32(e, 0), "");
    return LLVMBuildShuffleVector(e->b, one, poison, em_zero(em_vec(e->i32, n)), "");
}

em_val em_extract(em *e, em_val v, int lane) {
    return em_extract_at(e, v, em_i32(e, lane));
}

em_val em_extract_at(em *e, em_val v, em_val lane) {
    return em_lanes_of(v) == 1 ? v : LLVMBuildExtractElement(e->b, v, lane, "");
}

em_val em_insert(em *e, em_val v, em_val x, int lane) {
    return em_lanes_of(v) == 1 ? x : LLVMBuildInsertElement(e->b, v, x, em_i32(e, lane), "");
}

em_val em_shuffle(em *e, em_val a, em_val b, const int *lanes, int n) {
    em_val at[256];
    if (n > 256 || n < 1) {
        sn_fail(&e->err, SN_ERR_INTERNAL, "em_shuffle: %d lanes", n);
        return a;
    }
    if (n == 1) {
        int na = em_lanes_of(a);
        return lanes[0] < na ? em_extract(e, a, lanes[0]) : em_extract(e, b, lanes[0] - na);
    }
    for (int i = 0; i < n; i++) at[i] = lanes[i] < 0 ? LLVMGetPoison(e->i32) : em_i32(e, lanes[i]);
    return LLVMBuildShuffleVector(e->b, a, b, LLVMConstVector(at, (unsigned)n), "");
}

em_val em_part(em *e, em_val v, int first, int n) {
    int lanes[256];
    if (em_lanes_of(v) == 1) return v;
    for (int i = 0; i < n && i < 256; i++) lanes[i] = first + i;
    return em_shuffle(e, v, LLVMGetPoison(LLVMTypeOf(v)), lanes, n);
}

em_val em_concat(em *e, em_val a, em_val b) {
    int lanes[256], n = em_lanes_of(a) + em_lanes_of(b);
    if (em_lanes_of(a) == 1) {
        em_val v = LLVMGetPoison(em_vec(LLVMTypeOf(a), 2));
        return em_insert(e, em_insert(e, v, a, 0), b, 1);
    }
    for (int i = 0; i < n && i < 256; i++) lanes[i] = i;
    return em_shuffle(e, a, b, lanes, n);
}

/* Swaps off-diagonal blocks of size 1, 2, 4, ... */
void em_transpose(em *e, em_val *v, int n) {
    for (int size = 1; size < n; size *= 2)
        for (int i = 0; i < n; i++) {
            if (i & size) continue;
            int upper[64], lower[64];
            for (int l = 0; l < n; l++) {
                upper[l] = l & size ? n + l - size : l;
                lower[l] = l & size ? n + l : l + size;
            }
            em_val a = v[i], b = v[i + size];
            v[i] = em_shuffle(e, a, b, upper, n);
            v[i + size] = em_shuffle(e, a, b, lower, n);
        }
}

em_val em_combine(em *e, em_red op, em_val a, em_val b) {
    static em_val (*const combine[])(em *, em_val, em_val) = {
        [EM_SUM] = em_add, [EM_MAX] = em_max, [EM_MIN] = em_min};
    return combine[op](e, a, b);
}

em_val em_neutral(em *e, em_red op, em_type t) {
    em_val zero = em_zero(t);
    if (op == EM_SUM) return zero;
    if (em_is_float(zero)) return em_like(e, zero, op == EM_MAX ? -1.0 / 0.0 : 1.0 / 0.0);
    em_type elem = em_elem_type(zero);
    unsigned long long top = 1ull << (bits_of(elem) - 1);
    return em_splat(e, LLVMConstInt(elem, op == EM_MAX ? top : top - 1, 0), em_lanes_of(zero));
}

em_val em_reduce(em *e, em_red op, em_val v) {
    for (int n = em_lanes_of(v); n > 1; n = em_lanes_of(v)) {
        int half = n / 2;
        em_val low = em_part(e, v, 0, half), high = em_part(e, v, half, half);
        em_val folded = em_combine(e, op, low, high);
        if (n % 2) { /* an odd lane joins lane 0 */
            em_val odd = em_combine(e, op, em_extract(e, folded, 0), em_extract(e, v, n - 1));
            folded = em_insert(e, folded, odd, 0);
        }
        v = folded;
    }
    return v;
}

/* --- integers for tiling ---------------------------------------------------------------------- */

em_val em_ceil_div(em *e, em_val a, int64_t b) {
    em_val up = em_add(e, a, em_like(e, a, (double)(b - 1)));
    return LLVMBuildUDiv(e->b, up, em_like(e, a, (double)b), "");
}

em_val em_round_down(em *e, em_val a, int64_t b) {
    return em_sub(e, a, LLVMBuildURem(e->b, a, em_like(e, a, (double)b), ""));
}

void em_share(em *e, em_val n, em_val *lo, em_val *hi) {
    em_val next = em_add(e, e->tid, 1);
    *lo = LLVMBuildUDiv(e->b, em_mul(e, n, e->tid), e->nthreads, "");
    *hi = LLVMBuildUDiv(e->b, em_mul(e, n, next), e->nthreads, "");
}
