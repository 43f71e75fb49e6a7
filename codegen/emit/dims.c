/* dims.c: symbolic dims at run time: polynomials of the symbols' values. */
#include "codegen/emit/dims.h"

/* a op b with the intrinsic that tells whether the result fits. */
static em_val checked(em *e, const char *name, em_val a, em_val b, const em_var *overflow) {
    em_val both = em_intrinsic(e, name, &e->i64, 1, (em_val[]){a, b}, 2);
    em_val lost = LLVMBuildExtractValue(e->b, both, 1, "");
    em_set(e, *overflow, em_or(e, em_get(e, *overflow), lost));
    return LLVMBuildExtractValue(e->b, both, 0, "");
}

static em_val add_dims(em *e, em_val a, em_val b, const em_var *overflow) {
    return overflow ? checked(e, "llvm.sadd.with.overflow", a, b, overflow) : em_add(e, a, b);
}

/* On wasm32 the intrinsic would call a product of 128 bits, __multi3. In f64 the product is right
 * to 2^-51 of it, so none below 2^62 is beyond 2^63; memory ends long before. */
static em_val mul_by_f64(em *e, em_val a, em_val b, const em_var *overflow) {
    em_val x = LLVMBuildSIToFP(e->b, a, e->f64, ""), y = LLVMBuildSIToFP(e->b, b, e->f64, "");
    em_val size = em_abs(e, em_mul(e, x, y));
    em_val lost = em_cmp(e, EM_LE, em_like(e, size, 0x1p62), size);
    em_set(e, *overflow, em_or(e, em_get(e, *overflow), lost));
    return em_mul(e, a, b);
}

em_val em_mul_checked(em *e, em_val a, em_val b, const em_var *overflow) {
    if (overflow && e->target->arch == SN_ARCH_WASM32) return mul_by_f64(e, a, b, overflow);
    return overflow ? checked(e, "llvm.smul.with.overflow", a, b, overflow) : em_mul(e, a, b);
}

/* The least integer that is not below of / by, as of > -by. */
static em_val emit_quot(em *e, const sn_module *m, sn_quot q, em_val symbols,
                        const em_var *overflow) {
    em_val up =
        add_dims(e, sn_dim_emit(e, m, q.of, symbols, overflow), em_i64(e, q.by - 1), overflow);
    return LLVMBuildSDiv(e->b, up, em_i64(e, q.by), "");
}

em_val sn_dim_emit(em *e, const sn_module *m, sn_dim d, em_val symbols, const em_var *overflow) {
    int64_t c;
    if (sn_dim_is_const(m, d, &c)) return em_i64(e, c);
    /* where the bounds fit, the value does, and sums modulo 2^64 give it */
    if (sn_dim_lo(m, d) > INT64_MIN && sn_dim_hi(m, d) < INT64_MAX) overflow = NULL;
    em_val sum = em_i64(e, 0);
    for (int t = 0; t < sn_dim_terms(m, d); t++) {
        const uint8_t *exponent;
        em_val product = em_i64(e, sn_dim_term(m, d, t, &exponent));
        for (int s = 0; s < sn_symbol_count(m); s++)
            for (int x = 0; x < exponent[s]; x++) {
                em_val v = em_load(e, SN_I64, em_gep(e, symbols, SN_I64, s), 1);
                product = em_mul_checked(e, product, v, overflow);
            }
        for (int q = 0; q < sn_quot_count(m); q++)
            for (int x = 0; x < exponent[SN_MAX_SYMBOLS + q]; x++) {
                em_val v = emit_quot(e, m, sn_quot_at(m, q), symbols, overflow);
                product = em_mul_checked(e, product, v, overflow);
            }
        sum = add_dims(e, sum, product, overflow);
    }
    return sum;
}
