/* fuzz_compiled.c: a random graph as machine code at every fusion level, against the evaluator.
 * What the contract leaves open is left out: casts to integers that do not fit, integers beyond
 * 2^53. */
#include "tests/fuzz.h"
#include "tests/jit_run.h"

#include <math.h>
#include <string.h>

static void *leaf_data(void *ctx, const sn_node *leaf, const int64_t *symbol, size_t *bytes) {
    (void)ctx;
    return fuzz_leaf_data(leaf, symbol, bytes);
}

static sn_node *opened(sn_node *n, int index) {
    sn_node *out[SN_MAX_RESULTS];
    int n_out;
    if (!sn_decompose(n->m, (sn_op)n->op, n->n_in, n->in, n->n_attr, n->attr, &n_out, out))
        return n;
    return out[index];
}

static bool has_fixed_shape(const sn_node *n) {
    for (int i = 0; i < n->rank; i++)
        if (!sn_dim_is_const(n->m, n->shape[i], NULL)) return false;
    return true;
}

/* Fused nodes are made by passes only, and what lives in a session has one size. */
static sn_node *prepare(void *ctx, sn_node *n) {
    (void)ctx;
    if (n->op == SN_OP_result && sn_ops[n->in[0]->op].kind == SN_FUSED)
        return opened(n->in[0], (int)sn_attr_int(n, SN_A_index, 0));
    if (sn_ops[n->op].kind == SN_FUSED && n->n_result == 1) return opened(n, 0);
    if ((n->op == SN_OP_param || n->op == SN_OP_state) && !has_fixed_shape(n))
        return sn_node_new(n->m, SN_OP_input, 0, NULL, n->n_attr, n->attr);
    return n;
}

static bool out_of_range(const sn_node *n, const sn_value *x) {
    static const double top[SN_DTYPE_COUNT] = {
        [SN_I32] = 2147483647, [SN_I64] = 0x1p53, [SN_I8] = 127, [SN_U8] = 255};
    double hi = top[n->dtype], lo = n->dtype == SN_U8 ? 0 : -hi;
    for (int64_t i = 0; hi > 0 && i < x->n; i++)
        if (!(x->data[i] > lo - 1 && x->data[i] < hi + 1)) return true;
    return false;
}

static sn_node *open_composite(void *ctx, sn_node *n) {
    (void)ctx;
    return sn_ops[n->op].kind == SN_COMP ? n->meaning : n;
}

/* Does the contract say what every element is? */
static bool is_defined(const char *text) {
    int64_t symbols[64];
    sn_module *m = sn_parse(text, "text", false, NULL);
    if (!m) return false;
    bool ok = true;
    for (int i = 0; i < 20 && sn_rewrite_module(m, open_composite, NULL); i++) continue;
    const sn_entry *e = sn_entry_get(m, "f");
    fuzz_symbol_values(m, symbols);
    sn_eval *ev = sn_eval_new(m, symbols);
    ok = ev && fuzz_bind(ev, m, e);
    sn_order order = sn_entry_topo(m, e);
    for (int i = 0; ok && i < order.n; i++) {
        sn_node *n = order.node[i];
        bool cast = n->op == SN_OP_cast && sn_dtype_is_float((sn_dtype)n->in[0]->dtype);
        if ((!cast && n->dtype != SN_I64) || sn_ops[n->op].kind == SN_FUSED) continue;
        const sn_value *x = sn_eval_node(ev, cast ? n->in[0] : n);
        ok = x && !out_of_range(n, x);
    }
    sn_eval_free(ev);
    sn_module_free(m);
    return ok;
}

bool fuzz_check_compiled(const char *text, const char *cache_dir, char *why, size_t size) {
    double tolerance = strstr(text, "f16") ? 0.03 : strstr(text, "f32") ? 1e-4 : 1e-9;
    int top = strstr(text, "f16") ? 0 : 4; /* fused kernels do not round to 16 bits in between */
    bool ok = true;
    if (!is_defined(text)) return true;
    for (int level = 0; ok && level <= top; level++) {
        sn_options o = {.level = level, .threads = 1 + level % 2, .cache_dir = cache_dir};
        int64_t symbols[64];
        jit_run r;
        sn_module *m = sn_parse(text, "text", false, NULL);
        if (!m) return true;
        for (int i = 0; i < 20 && sn_rewrite_module(m, prepare, NULL); i++) continue;
        fuzz_symbol_values(m, symbols);
        ok = jit_open(&r, m, &o, leaf_data, NULL);
        /* by attention's decomposition a visible value that is not finite makes the whole row NaN,
         * by its kernel only its own column */
        r.loose = strstr(text, "attention") || strstr(text, "flash");
        ok = ok && jit_check(&r, "f", symbols, tolerance, 100);
        if (!ok) snprintf(why, size, "level %d: %s", level, r.why);
        jit_close(&r);
        sn_module_free(m);
    }
    return ok;
}
