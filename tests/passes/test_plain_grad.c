/* Gradients of attention in plain operations: products, masks, biases and softmax, however written,
 * train with the attention kernels, forward and backward. The gradients equal those of the
 * operations themselves; memory grows with the number of tokens, not its square. */
#include "tests/support/effort.h"
#include "tests/support/jit_run.h"
#include "codegen/program/program.h"
#include "runtime/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/support/scratch.h"

enum { H = 4, HK = 2, D = 16, BUCKETS = 12, MAX_WRT = 6, MAX_TOKENS = 8192 };

typedef struct parts {
    sn_module *m;
    sn_dim B, T;
    sn_tensor q, k, v;      /* [B,heads,T,D] */
    sn_tensor wrt[MAX_WRT]; /* q, k, v as inputs, tables */
    int n_wrt;
} parts;

static sn_tensor wanted(parts *p, sn_tensor x) {
    return p->wrt[p->n_wrt++] = x;
}

static parts make_parts(sn_module *m, int key_heads) {
    parts p = {.m = m, .B = sn_symbol(m, "B", 0, 8), .T = sn_symbol(m, "T", 0, MAX_TOKENS)};
    p.q = sn_split_heads(wanted(&p, sn_input(m, "q", SN_F32, p.B, p.T, H * D)), H);
    p.k = sn_split_heads(wanted(&p, sn_input(m, "k", SN_F32, p.B, p.T, key_heads * D)), key_heads);
    p.v = sn_split_heads(wanted(&p, sn_input(m, "v", SN_F32, p.B, p.T, key_heads * D)), key_heads);
    return p;
}

static sn_tensor scores(const parts *p) {
    return sn_div(sn_matmul(p->q, sn_swap(p->k, -1, -2)), sqrt((double)D));
}

static sn_tensor weigh(const parts *p, sn_tensor weights) {
    return sn_merge_heads(sn_matmul(weights, p->v));
}

static sn_tensor queries(const parts *p) {
    return sn_iota(p->m, SN_I32, 0, p->T, p->T);
}
static sn_tensor keys(const parts *p) {
    return sn_iota(p->m, SN_I32, 1, p->T, p->T);
}

/* ---- what users write ---- */

static sn_tensor full(parts *p) {
    return weigh(p, sn_softmax(scores(p), -1));
}

static sn_tensor causal(parts *p) {
    return weigh(p, sn_softmax(sn_mask_scores(scores(p), sn_causal_mask(p->m, p->T, p->T)), -1));
}

/* softmax by hand, the mask on its weights */
static sn_tensor causal_by_hand(parts *p) {
    sn_tensor s = scores(p), e = sn_exp(sn_sub(s, sn_amax_keep(s, -1)));
    e = sn_where(sn_causal_mask(p->m, p->T, p->T), e, 0);
    return weigh(p, sn_div(e, sn_sum_keep(e, -1)));
}

static sn_tensor alibi(parts *p) {
    sn_tensor slope = sn_reshape(wanted(p, sn_input(p->m, "slope", SN_F32, H)), H, 1, 1);
    sn_tensor far = sn_div(sn_cast(sn_sub(keys(p), queries(p)), SN_F32), 16);
    sn_tensor s = sn_add(scores(p), sn_mul(slope, far));
    return weigh(p, sn_softmax(sn_mask_scores(s, sn_causal_mask(p->m, p->T, p->T)), -1));
}

/* T5's spirit: a learned table [buckets, heads] of the distance */
static sn_tensor buckets(parts *p) {
    sn_tensor table = wanted(p, sn_input(p->m, "table", SN_F32, BUCKETS, H));
    sn_tensor at = sn_min(sn_max(sn_sub(queries(p), keys(p)), 0), BUCKETS - 1);
    sn_tensor bias = sn_transpose(sn_embedding(table, at), 2, 0, 1);
    return weigh(p, sn_softmax(sn_add(scores(p), bias), -1));
}

static sn_tensor softcap(parts *p) {
    sn_tensor s = sn_mul(sn_tanh(sn_div(scores(p), 2)), 2);
    return weigh(p, sn_softmax(sn_mask_scores(s, sn_causal_mask(p->m, p->T, p->T)), -1));
}

static sn_tensor window(parts *p) {
    sn_tensor s = sn_where(sn_gt(keys(p), sn_sub(queries(p), 37)), scores(p), -INFINITY);
    return weigh(p, sn_softmax(sn_where(sn_le(keys(p), queries(p)), s, -INFINITY), -1));
}

static sn_tensor repeated(const parts *p, sn_tensor x) {
    sn_tensor wide = sn_broadcast(sn_expand(x, 2), p->B, HK, H / HK, p->T, D);
    return sn_reshape(wide, p->B, H, p->T, D);
}

static sn_tensor groups(parts *p) {
    p->k = repeated(p, p->k);
    p->v = repeated(p, p->v);
    return causal(p);
}

static sn_tensor documents(parts *p) {
    sn_tensor seen = sn_document_mask(sn_input(p->m, "document", SN_I32, p->B, p->T));
    sn_tensor s = sn_mask_scores(scores(p), seen);
    return weigh(p, sn_softmax(sn_mask_scores(s, sn_causal_mask(p->m, p->T, p->T)), -1));
}

static sn_tensor dropout(parts *p) {
    sn_tensor s = sn_mask_scores(scores(p), sn_causal_mask(p->m, p->T, p->T));
    sn_tensor w = sn_dropout(sn_softmax(s, -1), sn_input(p->m, "rng", SN_I64, 2), 0.25);
    return weigh(p, w);
}

/* a mask that forbids everything to some rows */
static sn_tensor hidden_rows(parts *p) {
    sn_tensor seen = sn_and(sn_lt(keys(p), sn_sub(queries(p), 20)), sn_lt(queries(p), 70));
    return weigh(p, sn_softmax(sn_mask_scores(scores(p), seen), -1));
}

static sn_tensor nothing_seen(parts *p) {
    return weigh(p, sn_softmax(sn_mask_scores(scores(p), sn_lt(keys(p), 0)), -1));
}

/* ---- weights that are not a softmax, and sinks ---- */

static sn_tensor visible(const parts *p) {
    return sn_causal_mask(p->m, p->T, p->T);
}

static sn_tensor retention(parts *p) {
    sn_tensor rate = sn_reshape(wanted(p, sn_input(p->m, "rate", SN_F32, H)), H, 1, 1);
    sn_tensor far = sn_cast(sn_max(sn_sub(queries(p), keys(p)), 0), SN_F32);
    sn_tensor decay = sn_where(visible(p), sn_exp(sn_mul(far, sn_neg(sn_softplus(rate)))), 0);
    sn_tensor w = sn_mul(scores(p), decay);
    return weigh(p, sn_div(w, sn_max(sn_abs(sn_sum_keep(w, -1)), 1)));
}

static sn_tensor squared(parts *p) {
    sn_tensor w = sn_where(visible(p), sn_square(sn_relu(scores(p))), 0);
    return sn_merge_heads(sn_div(sn_matmul(w, p->v), sn_add(sn_sum_keep(w, -1), 0.5)));
}

static sn_tensor sigmoid(parts *p) {
    p->k = repeated(p, p->k);
    p->v = repeated(p, p->v);
    return weigh(p, sn_sigmoid(sn_sub(sn_mask_scores(scores(p), visible(p)), 3)));
}

static sn_tensor sink(parts *p) {
    return sn_reshape(wanted(p, sn_input(p->m, "sink", SN_F32, H)), 1, H, 1, 1);
}

static sn_tensor sink_dropped(parts *p) {
    sn_tensor s = sn_mask_scores(scores(p), visible(p));
    sn_tensor a = sn_concat(-1, s, sn_broadcast(sink(p), p->B, H, p->T, 1));
    return weigh(p, sn_slice(sn_softmax(a, -1), -1, 0, p->T));
}

static sn_tensor sink_gate(parts *p) { /* a sink for each query */
    sn_tensor z = sn_expand(wanted(p, sn_input(p->m, "z", SN_F32, p->B, H, p->T)), -1);
    sn_tensor s = sn_mask_scores(scores(p), visible(p));
    sn_tensor gate = sn_sigmoid(sn_sub(sn_expand(sn_logsumexp(s, -1), -1), z));
    return sn_merge_heads(sn_mul(sn_matmul(sn_softmax(s, -1), p->v), gate));
}

static sn_tensor plus_one(parts *p) {
    sn_tensor e = sn_where(sn_lt(keys(p), sn_sub(queries(p), 20)), sn_exp(scores(p)), 0);
    return weigh(p, sn_div(e, sn_add(sn_sum_keep(e, -1), 1)));
}

typedef struct model {
    const char *name;
    int key_heads;
    sn_tensor (*attend)(parts *p);
} model;

static const model models[] = {
    {"full", H, full},
    {"causal", H, causal},
    {"causal by hand", H, causal_by_hand},
    {"alibi", H, alibi},
    {"buckets", H, buckets},
    {"softcap", H, softcap},
    {"window", H, window},
    {"groups", HK, groups},
    {"documents", H, documents},
    {"dropout", H, dropout},
    {"hidden rows", H, hidden_rows},
    {"nothing seen", H, nothing_seen},
    {"retention", H, retention},
    {"squared", H, squared},
    {"sigmoid", HK, sigmoid},
    {"dropped sink", H, sink_dropped},
    {"gate", H, sink_gate},
    {"plus one", H, plus_one},
};
enum { N_MODELS = sizeof models / sizeof *models, SOFTMAX_MODELS = 12 /* the first ones */ };

/* Entry "main": the result and the gradients of sum(weight result). own: of the operations as they
 * are, by the walk alone. */
static sn_module *build(const model *x, bool own) {
    sn_module *m = sn_module_new("plain");
    parts p = make_parts(m, x->key_heads);
    sn_tensor y = x->attend(&p), g[MAX_WRT];
    sn_tensor loss = sn_sum_all(sn_mul(y, sn_input(m, "weight", SN_F32, p.B, p.T, H * D)));
    if (own)
        sn_gradient(loss, p.n_wrt, p.wrt, g);
    else
        sn_grad(loss, p.n_wrt, p.wrt, g);
    sn_entry *e = sn_entry_add(m, "main");
    sn_entry_output(m, e, "y", y);
    for (int i = 0; i < p.n_wrt; i++) {
        char name[16];
        snprintf(name, sizeof name, "g%d", i);
        sn_entry_output(m, e, name, g[i]);
    }
    if (sn_module_error(m)->code) fail_msg("%s: %s", x->name, sn_module_error(m)->message);
    return m;
}

static void *leaf_data(void *ctx, const sn_node *leaf, const int64_t *symbol, size_t *bytes) {
    const float *odd = ctx; /* an element of q that is not finite; NULL: none */
    size_t n = 1;
    for (int a = 0; a < leaf->rank; a++) n *= (size_t)sn_dim_eval(leaf->m, leaf->shape[a], symbol);
    *bytes = n * sn_dtype_size((sn_dtype)leaf->dtype);
    void *data = malloc(*bytes + 1);
    const char *name = sn_attr_str(leaf, SN_A_name, "");
    sn_rng r = {.seed = (uint64_t)name[0] * 256 + (uint64_t)name[1], .stream = SN_STREAM_DATA};
    for (size_t i = 0; data && i < n; i++)
        if (leaf->dtype == SN_F32)
            ((float *)data)[i] = (float)(sn_rng_normal(&r) * 0.7);
        else if (leaf->dtype == SN_I64)
            ((int64_t *)data)[i] = (int64_t)i + 41;
        else
            ((int32_t *)data)[i] = (int32_t)(i % 140 / 37);
    if (data && odd && !strcmp(name, "q") && n > 50 * H * D) ((float *)data)[50 * H * D + 3] = *odd;
    return data;
}

static void explain(const sn_program *p, char *text, size_t size) {
    FILE *f = fmemopen(text, size, "w");
    assert_non_null(f);
    sn_program_explain(p, NULL, f);
    fclose(f);
}

static int count(const char *text, const char *what) {
    int n = 0;
    for (const char *s = strstr(text, what); s; s = strstr(s + 1, what)) n++;
    return n;
}

/* ---- tests ---- */

/* One kernel forward, one backward; no weights in memory. */
static void kernels(void **state) {
    const model *x = *state;
    if (x - models >= SOFTMAX_MODELS && !effort_takes((size_t)(x - models) + 1, 3)) skip();
    sn_module *m = build(x, false);
    jit_run run;
    sn_options o = {.level = 4, .threads = 2};
    if (!jit_open(&run, m, &o, leaf_data, NULL)) fail_msg("%s", run.why);
    static char text[1 << 16];
    explain(run.p, text, sizeof text);
    if (count(text, " flash ") != 1 || count(text, " flash_grad ") != 1 || count(text, "B,4,T,T]"))
        fail_msg("%s", text);
    int64_t symbol[] = {1, 1024};
    size_t bytes[2];
    jit_result out;
    for (int i = 0; i < 2; i++) {
        if (!jit_call(&run, "main", symbol, &out)) fail_msg("%s", run.why);
        bytes[i] = sn_session_workspace(run.s);
        jit_result_free(&out);
        symbol[1] *= 2;
    }
    if (bytes[1] > 2 * bytes[0] + 4096)
        fail_msg("%s: %zu bytes at T = 1024, %zu at 2048", x->name, bytes[0], bytes[1]);
    jit_close(&run);
    sn_module_free(m);
}

/* The gradients of sn_grad, compiled at `level`, against those of the operations themselves. */
static void compare(const model *x, int level, const int64_t *symbol, float *odd) {
    sn_module *raised = build(x, false), *plain = build(x, true);
    jit_run run, own;
    sn_options o = {.level = level, .threads = 2}, unfused = o;
    unfused.level = 0;
    jit_result got = {0}, want = {0};
    if (!jit_open(&run, raised, &o, leaf_data, odd) || !jit_call(&run, "main", symbol, &got))
        fail_msg("%s: %s", x->name, run.why);
    if (!jit_open(&own, plain, &unfused, leaf_data, odd) || !jit_call(&own, "main", symbol, &want))
        fail_msg("%s: %s", x->name, own.why);
    assert_int_equal(got.n, want.n);
    for (int i = 0; i < got.n; i++) {
        assert_int_equal(got.value[i].n, want.value[i].n);
        double most = 0;
        for (size_t k = 0; k < want.value[i].n; k++)
            most = fmax(most, fabs(jit_element(&want.value[i], k)));
        if (x->attend == nothing_seen) assert_true(most == 0);
        for (size_t k = 0; k < got.value[i].n; k++) {
            double a = jit_element(&got.value[i], k), b = jit_element(&want.value[i], k);
            if (odd && isnan(b) && (i || isnan(a))) continue;
            if (!(fabs(a - b) <= 2e-5 * (1 + most)))
                fail_msg("%s, level %d, B = %d, T = %d: %s[%zu] is %.9g, not %.9g", x->name, level,
                         (int)symbol[0], (int)symbol[1], got.value[i].name, k, a, b);
        }
    }
    jit_result_free(&got);
    jit_result_free(&want);
    jit_close(&run);
    jit_close(&own);
    sn_module_free(raised);
    sn_module_free(plain);
}

static void equal_gradients(void **state) {
    static const int64_t sizes[][2] = {{2, 99}, {1, 1}, {0, 5}, {3, 0}};
    size_t number = (size_t)((const model *)*state - models);
    if (!effort_takes(number, 3)) skip();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) compare(*state, 4, sizes[i], NULL);
    if (effort_takes(number, 6)) compare(*state, 2, sizes[0], NULL);
    if (effort_takes(number + 3, 6)) compare(*state, 0, sizes[0], NULL);
}

/* A score that is not finite makes the rows that see it NaN, as it does unfused. Gradients are NaN
 * where those are, if at all: unfused, NaN times the weight 0 of a hidden key is NaN, too. */
static void not_finite(void **state) {
    static const int64_t size[] = {1, 99};
    float odd[] = {NAN, INFINITY};
    (void)state;
    for (int i = 0; i < 2; i++) compare(&models[1], 4, size, &odd[i]);
}

int main(void) {
    static char name[2 * N_MODELS][48];
    struct CMUnitTest tests[2 * N_MODELS + 1];
    tests[0] = (struct CMUnitTest){"not finite", not_finite, NULL, NULL, NULL};
    for (int i = 0; i < N_MODELS; i++)
        for (int k = 0; k < 2; k++) {
            snprintf(name[2 * i + k], sizeof *name, "%s: %s", models[i].name,
                     k ? "kernels" : "gradients");
            tests[1 + 2 * i + k] =
                (struct CMUnitTest){name[2 * i + k], k ? kernels : equal_gradients, NULL, NULL,
                                    (void *)(uintptr_t)&models[i]};
        }
    return cmocka_run_group_tests_name("plain_grad", tests, scratch_make, scratch_end);
}
