/* sve.c: instructions of SVE on vectors of fixed length. LLVM selects most operations by itself from
 * vectors as long as the registers; these it has for its scalable types only. Also the order of vectors
 * in registers, which SVE's multiply-adds restrict. */
#include "codegen/emit/emit.h"

enum { QUAD_BITS = 128 };

static em_type scalable(em *e, em_type elem) {
    int bits = elem == e->f64 || elem == e->i64   ? 64
               : elem == e->f32 || elem == e->i32 ? 32
               : elem == e->i8                    ? 8
                                                  : 16;
    return LLVMScalableVectorType(elem, (unsigned)(QUAD_BITS / bits));
}

/* v as a value of type t, one of both is scalable: args and 0, where v begins. */
static em_val as_type(em *e, const char *name, em_type t, em_val *args, int n) {
    em_type over[] = {t, LLVMTypeOf(args[n - 1])};
    args[n] = em_i64(e, 0);
    return em_intrinsic(e, name, over, 2, args, n + 1);
}

static em_val to_scalable(em *e, em_val v) {
    em_type t = scalable(e, em_elem_type(v));
    return as_type(e, "llvm.vector.insert", t, (em_val[3]){LLVMGetPoison(t), v}, 2);
}

static em_val to_fixed(em *e, em_val v, em_type t) {
    return as_type(e, "llvm.vector.extract", t, (em_val[2]){v}, 1);
}

em_val em_sve(em *e, const char *name, bool overloaded, const em_val *args, int n) {
    enum { MAX = 4 };
    em_val in[MAX];
    for (int i = 0; i < n; i++)
        in[i] = em_lanes_of(args[i]) > 1 ? to_scalable(e, args[i]) : args[i];
    em_type over = LLVMTypeOf(in[0]);
    return to_fixed(e, em_intrinsic(e, name, &over, overloaded, in, n), LLVMTypeOf(args[0]));
}

em_val em_load_quads(em *e, em_type t, em_val p) {
    em_type v = scalable(e, LLVMGetElementType(t)),
            mask = LLVMScalableVectorType(e->i1, LLVMGetVectorSize(v));
    em_val every = em_i32(e, 31); /* the pattern "all" */
    em_val args[] = {em_intrinsic(e, "llvm.aarch64.sve.ptrue", &mask, 1, &every, 1), p};
    return to_fixed(e, em_intrinsic(e, "llvm.aarch64.sve.ld1rq", &v, 1, args, 2), t);
}

/* Multiply-adds of SVE take lanes from the first 8 registers only. LLVM would give some of these to the
 * vectors, mostly accumulators, and spill the others in every step: these vectors get later ones. */
void em_in_order(em *e, em_val *v, int n) {
    enum { MAX = 32, FIELD = 8, FIRST = 8 };
    if (n < 2 || n > MAX) {
        sn_fail(&e->err, SN_ERR_INTERNAL, "%d vectors in order, not 2 to %d", n, MAX);
        return;
    }
    const em_type fixed = LLVMTypeOf(v[0]);
    for (int i = 0; i < n && e->target->sve_bytes; i++) v[i] = to_scalable(e, v[i]);
    em_type types[MAX];
    char bind[2 * MAX * FIELD] = "";
    size_t used = 0;
    for (int i = 0; i < n; i++) types[i] = LLVMTypeOf(v[i]);
    const bool fix = e->target->sve_bytes && n <= MAX - FIRST;
    for (int i = 0; i < n; i++)
        used += (size_t)snprintf(bind + used, FIELD, fix ? "={z%d}," : "=w,", FIRST + i);
    for (int i = 0; i < n; i++) used += (size_t)snprintf(bind + used, FIELD, "%d,", i);
    used += (size_t)snprintf(bind + used, sizeof bind - used, "~{memory}");
    em_type all = LLVMStructTypeInContext(e->ctx, types, (unsigned)n, false);
    em_type type = LLVMFunctionType(all, types, (unsigned)n, false);
    em_val code =
        LLVMGetInlineAsm(type, "", 0, bind, used, true, false, LLVMInlineAsmDialectATT, false);
    em_val out = LLVMBuildCall2(e->b, type, code, v, (unsigned)n, "");
    for (int i = 0; i < n; i++) v[i] = LLVMBuildExtractValue(e->b, out, (unsigned)i, "");
    for (int i = 0; i < n && e->target->sve_bytes; i++) v[i] = to_fixed(e, v[i], fixed);
}
