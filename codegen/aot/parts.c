/* parts.c: what the generated functions of an artefact share: how they begin, and how they fail. */
#include "codegen/aot/aot.h"

#include <stdarg.h>
#include <string.h>

const char *sn_aot_prefix(const sn_aot *a, int v, char text[96]) {
    snprintf(text, 96, "%s_v%d_", a->name, v);
    return text;
}

em_val sn_aot_get(em *e, em_val base, em_type t, int64_t offset) {
    return em_load_raw(e, t, em_gep_bytes(e, base, offset), 8);
}

void(sn_aot_put)(em *e, em_val base, int64_t offset, em_val v) {
    em_store_raw(e, v, em_gep_bytes(e, base, offset), 8);
}

/* Begins NAME_name. Such functions may keep their pointer arguments and these may alias, so the
 * attributes that em_function sets are removed. */
em_val sn_aot_function(em *e, const sn_aot *a, const char *name, em_type ret, const em_type *params,
                       int n, bool visible) {
    char full[160];
    snprintf(full, sizeof full, "%s_%s", a->name, name);
    em_val fn = LLVMGetNamedFunction(e->mod, full) ? NULL : em_function(e, full, ret, params, n);
    if (!fn) {
        sn_fail(&e->err, SN_ERR_USAGE,
                "the entry '%s' has the name of a function of the artefact: rename it", name);
        return em_function(e, "sn_twice", ret, params, n);
    }
    for (unsigned i = 1; i <= (unsigned)n; i++)
        for (int k = 0; k < 2; k++) {
            const char *promise = k ? "noalias" : SN_LLVM_NOCAPTURE;
            LLVMRemoveEnumAttributeAtIndex(
                fn, i, LLVMGetEnumAttributeKindForName(promise, strlen(promise)));
        }
    if (visible) LLVMSetLinkage(fn, LLVMExternalLinkage);
    return fn;
}

em_val sn_aot_constant(em *e, const char *name, em_val init) {
    em_val g = LLVMAddGlobal(e->mod, LLVMTypeOf(init), name);
    LLVMSetInitializer(g, init);
    LLVMSetGlobalConstant(g, 1);
    LLVMSetLinkage(g, LLVMInternalLinkage);
    return g;
}

em_val sn_aot_numbers(em *e, const char *name, em_val *number, int n) {
    return sn_aot_constant(e, name, LLVMConstArray2(e->i64, number, (uint64_t)n));
}

/* Sets the status if cond holds and no error was found before. */
void sn_aot_fail_if(em *e, em_var status, em_val cond, int code) {
    em_val free = em_cmp(e, EM_EQ, em_get(e, status), em_i32(e, 0));
    em_set(e, status, em_select(e, em_and(e, free, cond), em_i32(e, code), em_get(e, status)));
}

em_val sn_aot_is_ok(em *e, em_var status) {
    return em_cmp(e, EM_EQ, em_get(e, status), em_i32(e, 0));
}

void sn_aot_check_open(em *e, const sn_aot *a, em_val m, em_var status) {
    em_branch br = em_if(e, sn_aot_is_ok(e, status));
    em_val v = em_load_raw(e, e->i32, em_gep_bytes(e, m, SN_AOT_VARIANT), 4),
           w = sn_aot_get(e, m, e->ptr, SN_AOT_WEIGHTS);
    em_val known = em_ult(e, em_sub(e, v, em_i32(e, 1)), em_i32(e, a->n_variant));
    sn_aot_fail_if(e, status, em_or(e, em_not(e, known), LLVMBuildIsNull(e->b, w, "")),
                   SN_AOT_CLOSED);
    em_endif(e, &br);
}

void sn_aot_check_pointer(em *e, sn_aot *a, em_var status, em_val p, bool aligned, const char *fn,
                          const char *name) {
    sn_aot_fail_if(e, status, LLVMBuildIsNull(e->b, p, ""),
                   sn_aot_code(a, SN_AOT_ARGUMENT, "%s: '%s' is NULL", fn, name));
    if (!aligned) return;
    em_val odd = em_and(e, LLVMBuildPtrToInt(e->b, p, e->i64, ""), SN_AOT_ALIGN - 1);
    sn_aot_fail_if(e, status, em_cmp(e, EM_NE, odd, 0),
                   sn_aot_code(a, SN_AOT_ARGUMENT, "%s: '%s' is not aligned to %d bytes", fn, name,
                               SN_AOT_ALIGN));
}

int sn_aot_code(sn_aot *a, int kind, const char *fmt, ...) {
    char text[256 + SN_MAX_TEXT];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (int i = 0; i < a->n_message; i++)
        if (a->message[i].kind == kind && !strcmp(a->message[i].text, text))
            return kind | (i + 1) << 8;
    a->message = sn_arena_grow(a->m, a->message, sizeof *a->message, a->n_message, &a->cap_message);
    a->message[a->n_message++] = (sn_aot_message){kind, sn_arena_str(a->m, text)};
    return kind | a->n_message << 8;
}
