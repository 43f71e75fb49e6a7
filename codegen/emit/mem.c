/* mem.c: loads, stores, tails and gathers of the emission vocabulary. Partial vectors use
 * llvm.masked.*: one predicated instruction with AVX-512, vmaskmov with AVX (32 and 64 bit
 * elements), a branch per lane elsewhere. */
#include "codegen/emit/emit.h"
#include "runtime/threads.h"

em_val(em_gep)(em *e, em_val base, sn_dtype t, em_val index) {
    em_type elem = em_mem_type(e, t);
    return LLVMBuildInBoundsGEP2(e->b, elem, base, &index, 1, "");
}

em_val(em_gep_bytes)(em *e, em_val base, em_val offset) {
    return LLVMBuildInBoundsGEP2(e->b, e->i8, base, &offset, 1, "");
}

em_val(em_tail_mask)(em *e, em_val valid, int n) {
    if (n == 1) return em_cmp(e, EM_GT, valid, 0);
    /* lane numbers are as wide as the data, so that the mask needs no conversion on AVX2 */
    em_type elem = n * 8 == e->target->vector_bytes && n * 8 < 64 ? e->i64 : e->i32;
    em_val some = em_int_cast(e, em_imax(e, em_imin(e, valid, n), 0), elem);
    return em_cmp(e, EM_LT, em_iota(e, elem, n), em_splat(e, some, n));
}

em_val em_load_raw(em *e, em_type t, em_val p, unsigned align) {
    em_val v = LLVMBuildLoad2(e->b, t, p, "");
    if (align) LLVMSetAlignment(v, align);
    return v;
}

void(em_store_raw)(em *e, em_val v, em_val p, unsigned align) {
    em_val s = LLVMBuildStore(e->b, v, p);
    if (align) LLVMSetAlignment(s, align);
}

static em_val to_compute(em *e, sn_dtype t, em_val raw) {
    return sn_dtype_is_float(t) ? em_convert(e, raw, t, e->compute) : raw;
}

em_val em_load(em *e, sn_dtype t, em_val p, int n) {
    em_val raw = em_load_raw(e, em_vec(em_mem_type(e, t), n), p, (unsigned)sn_dtype_size(t));
    return to_compute(e, t, raw);
}

/* A load from the kernel's argument tables, which are constant while it runs. */
static em_val load_argument(em *e, em_type t, em_val table, int k) {
    em_val p = em_gep_bytes(e, table, 8 * (int64_t)k), v = em_load_raw(e, t, p, 8);
    unsigned kind = LLVMGetMDKindIDInContext(e->ctx, "invariant.load", 14);
    em_val empty = LLVMMetadataAsValue(e->ctx, LLVMMDNodeInContext2(e->ctx, NULL, 0));
    LLVMSetMetadata(v, kind, empty);
    return v;
}

em_val em_buf(em *e, int k) {
    return load_argument(e, e->ptr, e->buf, k);
}

em_val em_dim(em *e, int k) {
    return load_argument(e, e->i64, e->dim, k);
}

em_val em_size_value(em *e, em_size s) {
    return s.slot < 0 ? em_i64(e, s.value) : em_dim(e, s.slot);
}

/* A conditional scalar load is a branch, because there is no masked load of one element. */
static em_val load_scalar_if(em *e, em_type t, em_val p, unsigned align, em_val cond) {
    em_branch br = em_if(e, cond);
    em_val v = em_load_raw(e, t, p, align);
    em_endif(e, &br);
    return em_join(e, &br, v, em_zero(t));
}

static em_val masked_load(em *e, em_type t, em_val p, unsigned align, em_val mask) {
    em_type over[] = {t, e->ptr};
    em_val args[] = {p, em_i32(e, (int32_t)align), mask, em_zero(t)};
    return em_intrinsic(e, "llvm.masked.load", over, 2, args, 4);
}

em_val em_load_mask(em *e, sn_dtype t, em_val p, int n, em_val mask, em_val fill) {
    if (!mask) return em_load(e, t, p, n);
    em_type type = em_vec(em_mem_type(e, t), n);
    unsigned align = (unsigned)sn_dtype_size(t);
    em_val raw =
        n == 1 ? load_scalar_if(e, type, p, align, mask) : masked_load(e, type, p, align, mask);
    em_val v = to_compute(e, t, raw);
    return fill ? em_select(e, mask, v, em_splat(e, fill, em_lanes_of(fill) == 1 ? n : 1)) : v;
}

em_val em_load_tail(em *e, sn_dtype t, em_val p, int n, em_val valid) {
    return em_load_mask(e, t, p, n, em_tail_mask(e, valid, n), NULL);
}

em_val em_load_splat(em *e, sn_dtype t, em_val p, int n) {
    return em_splat(e, em_load(e, t, p, 1), n);
}

em_val em_gather(em *e, sn_dtype t, em_val base, em_val index, em_val mask) {
    int n = em_lanes_of(index);
    em_type type = em_vec(em_mem_type(e, t), n);
    em_val p = em_gep(e, base, t, index);
    if (n == 1) return em_load_mask(e, t, p, 1, mask, NULL);
    em_type over[] = {type, LLVMTypeOf(p)};
    em_val all = LLVMConstAllOnes(em_vec(e->i1, n));
    em_val args[] = {p, em_i32(e, (int32_t)sn_dtype_size(t)), mask ? mask : all, em_zero(type)};
    return to_compute(e, t, em_intrinsic(e, "llvm.masked.gather", over, 2, args, 4));
}

/* Converts a value to its form in memory: resizes integers, turns masks into 0 and 1. */
static em_val to_memory(em *e, sn_dtype t, em_val v) {
    em_type elem = em_elem_type(v);
    if (elem == e->f32) return em_convert(e, v, SN_F32, t);
    if (elem == e->f64) return em_convert(e, v, SN_F64, t);
    if (elem == em_mem_type(e, t)) return v;
    return em_convert(e, v, elem == e->i1 ? SN_BOOL : elem == e->i64 ? SN_I64 : SN_I32, t);
}

void(em_store)(em *e, sn_dtype t, em_val p, em_val v) {
    em_store_raw(e, to_memory(e, t, v), p, (unsigned)sn_dtype_size(t));
}

void em_store_mask(em *e, sn_dtype t, em_val p, em_val v, em_val mask) {
    if (!mask) {
        em_store(e, t, p, v);
        return;
    }
    unsigned align = (unsigned)sn_dtype_size(t);
    if (em_lanes_of(v) == 1) {
        em_branch br = em_if(e, mask);
        em_store(e, t, p, v);
        em_endif(e, &br);
        return;
    }
    em_val raw = to_memory(e, t, v);
    em_type over[] = {LLVMTypeOf(raw), e->ptr};
    em_val args[] = {raw, p, em_i32(e, (int32_t)align), mask};
    em_intrinsic(e, "llvm.masked.store", over, 2, args, 4);
}

void em_store_tail(em *e, sn_dtype t, em_val p, em_val v, em_val valid) {
    em_store_mask(e, t, p, v, em_tail_mask(e, valid, em_lanes_of(v)));
}

void em_prefetch(em *e, em_val p, bool write, int level) {
    em_val args[] = {p, em_i32(e, write), em_i32(e, level), em_i32(e, 1)};
    em_intrinsic(e, "llvm.prefetch", &e->ptr, 1, args, 4);
}

em_val(em_fetch_add)(em *e, em_val p, em_val v) {
    return LLVMBuildAtomicRMW(e->b, LLVMAtomicRMWBinOpAdd, p, v, LLVMAtomicOrderingMonotonic, 0);
}

/* --- floating-point state --------------------------------------------------------------------- */

static void load_mxcsr(em *e, em_val value) {
    em_val place = em_stack(e, SN_I32, 1);
    em_store_raw(e, value, place, 4);
    em_intrinsic(e, "llvm.x86.sse.ldmxcsr", NULL, 0, &place, 1);
}

em_val em_fp_enter(em *e) {
    em_val before = NULL;
    if (e->target->arch == SN_ARCH_X86_64) {
        em_val place = em_stack(e, SN_I32, 1);
        em_intrinsic(e, "llvm.x86.sse.stmxcsr", NULL, 0, &place, 1);
        before = em_load_raw(e, e->i32, place, 4);
        load_mxcsr(e, em_i32(e, SN_FP_MXCSR));
    }
    if (e->target->arch == SN_ARCH_AARCH64) {
        em_val state = em_i64(e, SN_FP_FPCR);
        before = em_intrinsic(e, "llvm.aarch64.get.fpcr", NULL, 0, NULL, 0);
        em_intrinsic(e, "llvm.aarch64.set.fpcr", NULL, 0, &state, 1);
    }
    return before;
}

void em_fp_leave(em *e, em_val before) {
    if (e->target->arch == SN_ARCH_X86_64) load_mxcsr(e, before);
    if (e->target->arch == SN_ARCH_AARCH64)
        em_intrinsic(e, "llvm.aarch64.set.fpcr", NULL, 0, &before, 1);
}
