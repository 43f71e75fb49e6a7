/* compiled.c: compiles a random graph at every fusion level and compares with the evaluator.
 * Does not test what the contract leaves undefined: casts to integers out of range, integers beyond
 * 2^53. */
#include "tests/support/fuzz/fuzz.h"
#include "tests/support/jit_run.h"
#include "codegen/program/program.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static bool has_attention(const char *text) {
    return strstr(text, "attention") || strstr(text, "flash");
}

/* Whether an infinity may become NaN or vice versa. In attention's decomposition a visible value
 * that is not finite makes the whole row NaN, in its kernel only its own column; x + x y is
 * computed as x (1 + y). */
static bool infinities_differ(const char *text) {
    bool sums = strstr(text, " = add ") || strstr(text, " = sub ");
    return has_attention(text) || (sums && strstr(text, " = mul "));
}

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

/* Fused nodes are made by passes only, and states have fixed sizes. */
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
    return sn_ops[n->op].kind == SN_COMP ? n->decomposition : n;
}

bool fuzz_is_defined(const char *text, const int64_t *symbols) {
    sn_module *m = sn_parse(text, "text", false, NULL);
    if (!m) return false;
    bool ok = true;
    for (int i = 0; i < 20 && sn_rewrite_module(m, open_composite, NULL); i++) continue;
    const sn_entry *e = sn_entry_get(m, "f");
    sn_eval *ev = sn_eval_new(m, symbols);
    ok = ev && fuzz_bind(ev, m, e, symbols);
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

/* The graph with folding and without fused nodes; NULL: not possible. */
static sn_module *prepared(const char *text) {
    sn_module *m = sn_parse(text, "text", false, NULL);
    for (int i = 0; m && i < 20 && sn_rewrite_module(m, prepare, NULL); i++) continue;
    return m;
}

/* Whether two views may be of the same memory. */
static bool share_memory(const sn_plan *p, const sn_view *a, const sn_view *b) {
    const sn_buffer *x = &p->buffer[a->buffer], *y = &p->buffer[b->buffer];
    if (x->kind != SN_BUF_TEMP || y->kind != SN_BUF_TEMP) return a->buffer == b->buffer;
    return x->slot == y->slot;
}

static bool any_shared(const sn_plan *p, const sn_view *a, int n, const sn_view *b, int m) {
    for (int i = 0; i < n; i++)
        for (int k = 0; k < m; k++)
            if (share_memory(p, &a[i], &b[k])) return true;
    return false;
}

/* Threads wait between two steps if one writes what the other reads or writes: the order of a
 * run with few threads on a busy machine would not show that they do not. */
static bool has_barriers(jit_run *r) {
    const sn_plan *p = sn_program_entry(r->p, "f")->code.plan;
    for (int i = 0; i < p->n_step; i++)
        if (p->step[i].kind != SN_STEP_CALL) return true;
    for (int last = 1; last < p->n_call; last++)
        for (int first = last - 1; first >= 0 && !p->call[first + 1]->barrier; first--) {
            const sn_step *a = p->call[first], *b = p->call[last];
            if (!any_shared(p, a->out, a->n_out, b->in, b->n_in) &&
                !any_shared(p, a->out, a->n_out, b->out, b->n_out) &&
                !any_shared(p, a->in, a->n_in, b->out, b->n_out))
                continue;
            snprintf(r->why, sizeof r->why, "no barrier between steps %d and %d", first, last);
            return false;
        }
    return true;
}

bool fuzz_check_compiled(const char *text, const char *compute, const char *cache_dir, char *why,
                         size_t size) {
    double tolerance = compute || strstr(text, "f16") ? 0.03 : strstr(text, "f32") ? 1e-4 : 1e-9;
    /* fused kernels do not round to 16 bits between operations */
    int top = strstr(text, "f16") ? 0 : 4;
    bool ok = true;
    int64_t symbols[64];
    sn_module *parsed = sn_parse(text, "text", false, NULL);
    if (parsed) fuzz_symbol_values(parsed, symbols);
    sn_module_free(parsed);
    if (!parsed || !fuzz_is_defined(text, symbols)) return true;
    for (int level = 0; ok && level <= top; level++) {
        sn_options o = {
            .level = level, .threads = 1 + level % 2, .compute = compute, .cache_dir = cache_dir};
        jit_run r;
        sn_module *m = prepared(text);
        ok = jit_open(&r, m, &o, leaf_data, NULL);
        /* two products may become attention, in which a weight of 0 hides an infinite value */
        r.loose = infinities_differ(text) || compute;
        r.allow_nan = true; /* inputs have NaN */
        ok = ok && has_barriers(&r) && jit_check(&r, "f", symbols, tolerance, 100);
        if (!ok) snprintf(why, size, "level %d: %s", level, r.why);
        jit_close(&r);
        sn_module_free(m);
    }
    return ok;
}

/* ---- runs that must be rejected ---- */

enum { MAX_INPUTS = 64 };

/* Whether the evaluator accepts these sizes. Uses a new module each time, because module errors
 * persist. */
static bool evaluates(const char *text, const int64_t *symbols) {
    sn_module *m = prepared(text);
    const sn_entry *e = sn_entry_get(m, "f");
    sn_eval *ev = sn_eval_new(m, symbols);
    bool ok = ev && fuzz_bind(ev, m, e, symbols);
    for (int i = 0; ok && i < e->n_output; i++) ok = sn_eval_node(ev, e->output[i].node) != NULL;
    sn_eval_free(ev);
    sn_module_free(m);
    return ok;
}

/* A run with these sizes; its inputs point to inaccessible memory. */
static bool is_refused(jit_run *r, const int64_t *symbols, void *forbidden) {
    sn_arg_binding in[MAX_INPUTS];
    int64_t shape[MAX_INPUTS][SN_MAX_RANK];
    sn_order order = sn_entry_topo(r->m, sn_entry_get(r->m, "f"));
    sn_error err = {0};
    int n = 0;
    for (int i = 0; i < order.n; i++) {
        const sn_node *k = order.node[i];
        if (k->op != SN_OP_input) continue;
        for (int a = 0; a < k->rank; a++) shape[n][a] = sn_dim_eval(r->m, k->shape[a], symbols);
        in[n] = (sn_arg_binding){sn_attr_str(k, SN_A_name, ""), (sn_dtype)k->dtype, k->rank,
                                 shape[n], forbidden};
        n++;
    }
    for (int s = 0; s < sn_symbol_count(r->m); s++)
        in[n++] = (sn_arg_binding){.name = sn_symbol_at(r->m, s)->name,
                                   .dtype = SN_I64,
                                   .data = (void *)(uintptr_t)&symbols[s]};
    bool ran = sn_run(r->s, "f", in, n, NULL, 0, &err);
    if (!ran && (err.code == SN_ERR_RANGE || err.code == SN_ERR_SHAPE)) return true;
    snprintf(r->why, sizeof r->why, "%s", ran ? "not refused" : err.message);
    return false;
}

/* Attention of values that are not finite is undefined, and so are the argmax and the order of values
 * that differ by rounding errors. */
static bool is_continuous(const char *text, const int64_t *symbols) {
    sn_module *m = prepared(text);
    const sn_entry *e = sn_entry_get(m, "f");
    sn_eval *ev = sn_eval_new(m, symbols);
    bool ok = ev && fuzz_bind(ev, m, e, symbols);
    sn_order order = sn_entry_topo(m, e);
    for (int i = 0; ok && i < order.n; i++) {
        const sn_value *x = sn_eval_node(ev, order.node[i]);
        sn_op op = (sn_op)order.node[i]->op;
        ok = x && op != SN_OP_argmax && op != SN_OP_argsort;
        for (int64_t k = 0; ok && k < x->n; k++) ok = isfinite(x->data[k]);
    }
    sn_eval_free(ev);
    sn_module_free(m);
    return ok;
}

static bool check_sizes(jit_run *r, const char *text, const int64_t *symbols, double tolerance,
                        void *forbidden) {
    if (!evaluates(text, symbols)) return is_refused(r, symbols, forbidden);
    /* discontinuous where a rounding error matters: angles of any size, quotients next to an
     * integer */
    bool jumps = strstr(text, "= sin %") || strstr(text, "= cos %") || strstr(text, "= mod %");
    bool compared = fuzz_is_defined(text, symbols) && !jumps &&
                    (!has_attention(text) || is_continuous(text, symbols));
    if (compared) return jit_check(r, "f", symbols, tolerance, 100);
    jit_result got = {.n = 0};
    bool ok = jit_call(r, "f", symbols, &got);
    jit_result_free(&got);
    return ok;
}

/* All values of the two dims. */
static bool check_all_sizes(jit_run *r, const char *text, double tolerance, void *forbidden) {
    int64_t hi[2] = {0, 0}, at[2];
    int n = sn_symbol_count(r->m);
    for (int s = 0; s < n && s < 2; s++) hi[s] = sn_symbol_at(r->m, s)->hi;
    for (at[0] = 0; at[0] <= hi[0]; at[0]++)
        for (at[1] = 0; at[1] <= hi[1]; at[1]++) {
            if (check_sizes(r, text, at, tolerance, forbidden)) continue;
            size_t used = strlen(r->why);
            snprintf(r->why + used, sizeof r->why - used, " (T=%d, U=%d)", (int)at[0], (int)at[1]);
            return false;
        }
    return true;
}

bool fuzz_check_open(const char *text, const char *cache_dir, char *why, size_t size) {
    enum { PAGE = 1 << 16 };
    double tolerance = strstr(text, "f16") ? 0.03 : 1e-4;
    /* fused kernels do not round to 16 bits between operations */
    int step = strstr(text, "f16") ? 5 : 4;
    void *forbidden = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool ok = forbidden != MAP_FAILED;
    for (int level = 0; ok && level <= 4; level += step) {
        sn_options o = {.level = level, .threads = 2, .cache_dir = cache_dir, .backend = "native"};
        jit_run r;
        sn_module *m = prepared(text);
        if (!m) break;
        ok = jit_open(&r, m, &o, leaf_data, NULL);
        r.loose = infinities_differ(text);
        r.allow_nan = true; /* inputs have NaN */
        ok = ok && check_all_sizes(&r, text, tolerance, forbidden);
        if (!ok) snprintf(why, size, "level %d: %s", level, r.why);
        jit_close(&r);
        sn_module_free(m);
    }
    munmap(forbidden, PAGE);
    return ok;
}
