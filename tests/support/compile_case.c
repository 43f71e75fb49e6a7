/* compile_case.c: small graphs for the tests of compiled code; see compile_case.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include "codegen/backend.h"
#include "tests/support/compile_case.h"
#include "tests/support/effort.h"
#include "runtime/rng.h"
#include "tests/support/scratch.h"
#include "tests/support/text.h"

#include <xxhash.h>

static sn_node *leaf(sn_module *m, sn_op op, const char *name, sn_dtype t, int rank,
                     const sn_dim *shape) {
    return sn_node_new(m, op, 0, NULL,
                       SN_ATTRS(SN_STR(name, name), SN_INT(dtype, t), SN_LIST(shape, rank, shape)));
}

sn_node *cc_input(sn_module *m, const char *name, sn_dtype t, int rank, const sn_dim *shape) {
    return leaf(m, SN_OP_input, name, t, rank, shape);
}

sn_node *cc_param(sn_module *m, const char *name, sn_dtype t, int rank, const sn_dim *shape) {
    return leaf(m, SN_OP_param, name, t, rank, shape);
}

sn_node *cc_state(sn_module *m, const char *name, sn_dtype t, int rank, const sn_dim *shape) {
    return leaf(m, SN_OP_state, name, t, rank, shape);
}

sn_entry *cc_entry(sn_module *m, sn_node *y, const char *fmt, ...) {
    char name[96];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    assert_null(sn_entry_get(m, name));
    sn_entry *e = sn_entry_add(m, name);
    sn_entry_output(m, e, "y", y);
    return e;
}

sn_node *cc_dot(sn_node *x, sn_node *y, int n_batch, const int64_t *ba, const int64_t *bb,
                int n_contract, const int64_t *ca, const int64_t *cb) {
    return SN_NODE(x->m, dot,
                   SN_ATTRS(SN_LIST(batch_a, n_batch, ba), SN_LIST(batch_b, n_batch, bb),
                            SN_LIST(contract_a, n_contract, ca),
                            SN_LIST(contract_b, n_contract, cb)),
                   x, y);
}

sn_node *cc_slice(sn_node *x, const sn_dim *start, const sn_dim *size, const int64_t *step) {
    sn_attr a[3] = {SN_LIST(start, x->rank, start), SN_LIST(size, x->rank, size)};
    if (step) a[2] = SN_LIST(step, x->rank, step);
    return sn_node_new(x->m, SN_OP_slice, 1, &x, step ? 3 : 2, a);
}

/* ---- elements ---- */

static double element(sn_dtype t, sn_rng *r, uint32_t limit) {
    float z = sn_rng_normal(r);
    int32_t k = limit ? (int32_t)sn_rng_below(r, limit) : (int32_t)sn_rng_below(r, 19) - 9;
    if (t == SN_BOOL) return sn_rng_below(r, 2);
    if (t == SN_U8 && !limit) return sn_rng_below(r, 256);
    return sn_dtype_is_float(t) ? z : k;
}

static void *elements(void *ctx, const sn_node *n, const int64_t *symbol, size_t *bytes) {
    (void)ctx;
    const char *name = sn_attr_str(n, SN_A_name, "");
    sn_dtype t = (sn_dtype)n->dtype;
    size_t count = 1;
    for (int a = 0; a < n->rank; a++) count *= (size_t)sn_dim_eval(n->m, n->shape[a], symbol);
    *bytes = count * sn_dtype_size(t);
    void *p = calloc(count + 1, 8);
    if (!p) return NULL;
    sn_rng r = {.seed = XXH3_64bits(name, strlen(name)), .stream = SN_STREAM_DATA};
    uint32_t limit = name[0] == 'i' ? (uint32_t)strtoul(name + 1, NULL, 10) : 0;
    for (size_t i = 0; i < count; i++) sn_dtype_store(t, p, (int64_t)i, element(t, &r, limit));
    return p;
}

/* ---- checks ---- */

static void check_entries(jit_run *r, int level, int n_len, const int64_t *len, double tol) {
    for (int i = 0; i < sn_entry_count(r->m); i++)
        for (int k = 0; k < (sn_symbol_count(r->m) ? n_len : 1); k++) {
            const char *name = sn_entry_at(r->m, i)->name;
            int64_t symbol[4] = {0};
            for (int s = 0; s < sn_symbol_count(r->m); s++) symbol[s] = len[k];
            if (!jit_check(r, name, symbol, tol, 4))
                fail_msg("level %d, entry %s, T = %d: %s", level, name, (int)symbol[0], r->why);
        }
}

static void check_onednn(sn_module *m, int level, const char *compute, int primitives, int n_len,
                         const int64_t *len, double tol) {
    if (!sn_backend_library()) return;
    sn_options o = {.level = level, .threads = 2, .backend = "onednn", .compute = compute};
    jit_run r;
    if (!jit_open(&r, m, &o, elements, NULL))
        fail_msg("oneDNN in %s, level %d: %s", compute, level, r.why);
    int found = sn_program_stats(r.p).onednn;
    for (int again = 0; again < 2; again++) check_entries(&r, level, n_len, len, tol);
    jit_close(&r);
    if (primitives >= 0 && found != primitives)
        fail_msg("level %d: %d primitives, not %d", level, found, primitives);
}

void cc_check_onednn(sn_module *m, const char *compute, int primitives, int n_len,
                     const int64_t *len, double tol) {
    if (sn_module_error(m)->code) fail_msg("%s", sn_module_error(m)->message);
    for (int level = 0; level <= 4; level += 2)
        check_onednn(m, level, compute, primitives, n_len, len, tol);
}

void cc_check(sn_module *m, int lo, int hi, int n_len, const int64_t *len, double tol) {
    if (sn_module_error(m)->code) fail_msg("%s", sn_module_error(m)->message);
    static size_t calls;
    calls++;
    for (int level = lo; level <= hi; level++) {
        if (level != hi && !effort_takes(calls + (size_t)level, level == lo ? 5 : 15)) continue;
        sn_options o = {.level = level, .threads = 2};
        jit_run r;
        if (!jit_open(&r, m, &o, elements, NULL)) fail_msg("level %d: %s", level, r.why);
        check_entries(&r, level, n_len, len, tol);
        jit_close(&r);
    }
    if (effort_takes(calls, 12)) check_onednn(m, hi, "f32", -1, n_len, len, tol);
    sn_module_free(m);
}

void cc_check_threads(sn_module *m, int level, int64_t len) {
    sn_options o = {.level = level};
    char why[JIT_WHY];
    if (!jit_same_bits(m, &o, &len, elements, NULL, why)) fail_msg("%s", why);
}

int cc_count_report(sn_module *m, int level, const char *what) {
    sn_error err = {0};
    sn_options o = {.level = level, .plan_only = true, .backend = "native"};
    sn_program *p = sn_compile(m, &o, &err);
    if (!p) fail_msg("%s", err.message);
    char *text = explain_text(p, NULL);
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)); at++) n++;
    free(text);
    sn_program_free(p);
    return n;
}

int cc_begin(void **state) {
    return scratch_make(state);
}

int cc_end(void **state) {
    return scratch_end(state);
}
