/* GPT-2 [PH22 A10] and what the paper derives from it: GPT-3, Gopher; heads as circuits [TSE].
 * Compiled code at every level against the reference evaluator; several sizes with one program;
 * caches; padding; gradients; each relative's own lines against loops or against GPT-2. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/support/effort.h"
#include "tests/support/model_case.h"
#include "tests/support/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { V = 19, CONTEXT = 24, D = 12, H = 3, LAYERS = 2, T = 9 };

#define DECODER(type, more)                                                                        \
    "{\"model_type\": \"" type "\", \"vocab_size\": 19, \"n_positions\": 24, \"n_embd\": 12, "     \
    "\"n_head\": 3, \"n_layer\": 2" more "}"

static const char *const relatives[] = {
    DECODER("gpt2", ""),
    DECODER("gpt3", ", \"window_size\": 4"),
    DECODER("gopher", ""),
    "{\"model_type\": \"llama\", \"vocab_size\": 19, \"max_position_embeddings\": 24, "
    "\"hidden_size\": 12, \"intermediate_size\": 16, \"num_hidden_layers\": 1, "
    "\"num_attention_heads\": 6, \"num_key_value_heads\": 2, \"attention_bias\": true}",
    "{\"model_type\": \"tse_alt\", \"n_vocab\": 19, \"n_ctx\": 24, \"d_model\": 12, "
    "\"n_heads\": 2, \"n_layers\": 1}",
    "{\"model_type\": \"tse_gpt\", \"n_vocab\": 19, \"n_ctx\": 24, \"d_model\": 12, "
    "\"n_heads\": 2, \"n_layers\": 1}"};
enum { RELATIVES = sizeof relatives / sizeof *relatives };

static void levels_agree(void **state) {
    (void)state;
    for (int r = 0; r < RELATIVES; r++) {
        if (!effort_takes((size_t)r + 4, 6)) continue; /* all of them at level 4: spec_table */
        int32_t tokens[2 * T], targets[2 * T];
        model_case c;
        case_open(&c, relatives[r], SN_LOSS);
        fill_tokens(tokens, 2 * T, V);
        fill_tokens(targets, 2 * T, V - 1);
        case_size(&c, "B", 2);
        case_size(&c, "T", T);
        sn_arg_binding in[] = {SN_BIND("tokens", SN_I32, tokens, 2, T),
                               SN_BIND("targets", SN_I32, targets, 2, T)};
        case_check(&c, r == 2 ? 1 : 4, "loss", "loss", in, 2, 2 * T);
        case_close(&c);
    }
}

/* One program: other batches and lengths run without recompilation; padding changes no valid
 * output; the caches give what the full pass gives (property 8). */
static void sizes_padding_and_caches(void **state) {
    (void)state;
    for (int r = 0; r < RELATIVES; r++) {
        if (!effort_takes((size_t)r + 5, 6)) continue;
        model_case c;
        sn_program *p;
        sn_error err = {0};
        case_open(&c, relatives[r], SN_FORWARD | SN_CACHED);
        sn_session *s = case_compile(&c, 4, NULL, &p);
        int32_t two[2][T];
        static float both[2][T][V], padded[2][T][V], one[T][V], next[V];
        fill_tokens(two[0], 2 * T, V);
        sn_arg_binding in = SN_BIND("tokens", SN_I32, two, 2, T),
                       out = SN_BIND("logits", SN_F32, both, 2, T, V);
        need(sn_run(s, "forward", &in, 1, &out, 1, &err), &err);
        for (int t = 5; t < T; t++) two[0][t] ^= 1; /* the first sequence is 5 long */
        out.data = padded;
        need(sn_run(s, "forward", &in, 1, &out, 1, &err), &err);
        assert_memory_equal(both[0], padded[0], sizeof(float) * 5 * V);
        assert_memory_equal(both[1], padded[1], sizeof both[1]);
        assert_memory_not_equal(both[0][5], padded[0][5], sizeof(float) * V);
        /* the second sequence alone, whole and through the caches in pieces of 4, 1, 1, … */
        in = SN_BIND("tokens", SN_I32, two[1], 1, T), out = SN_BIND("logits", SN_F32, one, 1, T, V);
        need(sn_run(s, "forward", &in, 1, &out, 1, &err), &err);
        for (int at = 0, n = 4; at < T; at += n, n = 1) {
            sn_arg_binding step[] = {SN_BIND("tokens", SN_I32, two[1] + at, 1, n),
                                     SN_BIND_DIM("P", at)};
            sn_arg_binding last = SN_BIND("logits", SN_F32, next, 1, V);
            need(sn_run(s, n > 1 ? "prefill" : "decode", step, 2, &last, 1, &err), &err);
            for (int v = 0; v < V; v++) {
                float want = one[at + n - 1][v];
                assert_true(fabsf(want - both[1][at + n - 1][v]) < 1e-4f);
                if (!(fabsf(next[v] - want) < 1e-4f))
                    fail_msg("%s after %d tokens: %g, not %g", c.model.type, at + n, next[v], want);
            }
        }
        assert_int_equal(sn_program_stats(p).recompilations, 0);
        sn_session_free(s);
        sn_program_free(p);
        case_close(&c);
    }
}

static void gradients(void **state) {
    (void)state;
    for (int r = 0; r < RELATIVES; r++) {
        if (!effort_takes((size_t)r + 2, 4)) continue; /* others: test_grad, spec_table */
        model_case c;
        int32_t tokens[8], targets[8];
        fill_tokens(tokens, 8, V);
        fill_tokens(targets, 8, V - 1);
        sn_arg_binding in[] = {SN_BIND("tokens", SN_I32, tokens, 1, 8),
                               SN_BIND("targets", SN_I32, targets, 1, 8)};
        case_open(&c, relatives[r], SN_LOSS);
        case_check_grad(&c, "loss", "loss", in, 2);
        case_close(&c);
    }
}

/* ---- GPT-3 ---- */

static void run_attention(model_case *c, const char *tap, const int32_t *tokens, float *out) {
    sn_program *p;
    sn_error err = {0};
    sn_session *s = case_compile(c, 4, tap, &p);
    sn_arg_binding in = SN_BIND("tokens", SN_I32, (void *)(uintptr_t)tokens, 1, T);
    sn_arg_binding o = SN_BIND(tap, SN_F32, out, 1, H, T, T);
    need(sn_run(s, "forward", &in, 1, &o, 1, &err), &err);
    sn_session_free(s);
    sn_program_free(p);
}

/* Layer 0 sees every earlier token, layer 1 the last four; every row sums to 1 (property 2). */
static void gpt3_alternates(void **state) {
    (void)state;
    static float weight[H][T][T];
    int32_t tokens[T];
    model_case c;
    fill_tokens(tokens, T, V);
    case_open(&c, relatives[1], SN_FORWARD);
    for (int l = 0; l < 2; l++) {
        run_attention(&c, l ? "h.1.attention" : "h.0.attention", tokens, weight[0][0]);
        for (int h = 0; h < H; h++)
            for (int q = 0; q < T; q++) {
                double sum = 0;
                for (int k = 0; k < T; k++) {
                    bool seen = k <= q && (l == 0 || q - k < 4);
                    assert_true(seen ? weight[h][q][k] > 0 : weight[h][q][k] == 0);
                    sum += weight[h][q][k];
                }
                assert_true(fabs(sum - 1) < 1e-5);
            }
    }
    case_close(&c);
}

/* A band as wide as the context is not a restriction: GPT-2. */
static void gpt3_with_a_full_band_is_gpt2(void **state) {
    (void)state;
    double want[T * V], got[T * V];
    int32_t tokens[T];
    fill_tokens(tokens, T, V);
    sn_arg_binding in = SN_BIND("tokens", SN_I32, tokens, 1, T);
    for (int i = 0; i < 2; i++) {
        model_case c;
        case_open(&c, i ? DECODER("gpt3", ", \"window_size\": 24") : relatives[0], SN_FORWARD);
        case_size(&c, "B", 1);
        case_size(&c, "T", T);
        case_evaluate(&c, "forward", "logits", &in, 1, i ? got : want, T * V);
        case_close(&c);
    }
    for (int i = 0; i < T * V; i++) assert_true(fabs(got[i] - want[i]) < 1e-12);
}

/* ---- Gopher ---- */

/* y[out] = W x + b with W stored [in, out]; b may be NULL */
static void apply(const float *w, const float *b, const double *x, int n_in, int n_out, double *y) {
    for (int o = 0; o < n_out; o++) {
        y[o] = b ? b[o] : 0;
        for (int i = 0; i < n_in; i++) y[o] += w[i * n_out + o] * x[i];
    }
}

/* Attention weights of layer 0 by Transformer-XL's four terms, one pair of positions at a time. */
static void gopher_terms_by_hand(void **state) {
    (void)state;
    enum { W = D / H };
    static float weight[H][T][T];
    int32_t tokens[T];
    model_case c;
    fill_tokens(tokens, T, V);
    case_open(&c, relatives[2], SN_FORWARD);
    run_attention(&c, "h.0.attention", tokens, weight[0][0]);
    const float *wte = case_param(&c, "wte.weight"), *gain = case_param(&c, "h.0.ln_1.weight");
    const float *qkv_w = case_param(&c, "h.0.attn.c_attn.weight");
    const float *qkv_b = case_param(&c, "h.0.attn.c_attn.bias");
    const float *r_w = case_param(&c, "h.0.attn.r_net.weight"); /* [out, in] */
    const float *u = case_param(&c, "h.0.attn.r_w_bias"), *v = case_param(&c, "h.0.attn.r_r_bias");
    double qkv[T][3 * D];
    for (int t = 0; t < T; t++) {
        double x[D], square = 0;
        for (int i = 0; i < D; i++) square += pow(wte[tokens[t] * D + i], 2) / D;
        for (int i = 0; i < D; i++) x[i] = wte[tokens[t] * D + i] / sqrt(square + 1e-5) * gain[i];
        apply(qkv_w, qkv_b, x, D, 3 * D, qkv[t]);
    }
    for (int h = 0; h < H; h++)
        for (int q = 0; q < T; q++) {
            double e[T], sum = 0;
            for (int k = 0; k <= q; k++) {
                double sine[D], content = 0, position = 0;
                for (int i = 0; i < D; i++) {
                    double angle = (q - k) / pow(10000, (double)(i - i % 2) / D);
                    sine[i] = i % 2 ? cos(angle) : sin(angle);
                }
                for (int i = 0; i < W; i++) {
                    double r = 0, own = qkv[q][h * W + i];
                    for (int j = 0; j < D; j++) r += r_w[(h * W + i) * D + j] * sine[j];
                    content += (own + u[h * W + i]) * qkv[k][D + h * W + i]; /* (a) + (c) */
                    position += (own + v[h * W + i]) * r;                    /* (b) + (d) */
                }
                sum += e[k] = exp((content + position) / sqrt(W));
            }
            for (int k = 0; k <= q; k++) assert_true(fabs(weight[h][q][k] - e[k] / sum) < 1e-5);
        }
    case_close(&c);
}

/* The entry "lens": its last row is the forward pass, its first the embedding through the head. */
static void lens_ends_in_the_logits(void **state) {
    (void)state;
    for (int r = 0; r < 3; r += 2) {
        if (!effort_takes((size_t)r, 4)) continue;
        static float all[LAYERS + 1][T][V], logits[T][V];
        int32_t tokens[T];
        model_case c;
        sn_program *p;
        sn_error err = {0};
        fill_tokens(tokens, T, V);
        case_open(&c, relatives[r], SN_FORWARD | SN_LENS);
        sn_session *s = case_compile(&c, 4, NULL, &p);
        sn_arg_binding in = SN_BIND("tokens", SN_I32, tokens, 1, T);
        sn_arg_binding o = SN_BIND("logits", SN_F32, logits, 1, T, V);
        need(sn_run(s, "forward", &in, 1, &o, 1, &err), &err);
        o = SN_BIND("logits", SN_F32, all, LAYERS + 1, 1, T, V);
        need(sn_run(s, "lens", &in, 1, &o, 1, &err), &err);
        for (int t = 0; t < T; t++)
            for (int v = 0; v < V; v++)
                assert_true(fabsf(all[LAYERS][t][v] - logits[t][v]) < 1e-4f);
        assert_memory_not_equal(all[0], all[LAYERS], sizeof logits);
        sn_session_free(s);
        sn_program_free(p);
        case_close(&c);
    }
}

static int count(const char *text, const char *what) {
    int n = 0;
    for (; (text = strstr(text, what)); text++) n++;
    return n;
}

/* Attention in plain operations, with dropout and packed documents, trains with the fused kernels;
 * where it is not fused, the forward part exists only once. A second compilation gives the same. */
static void training_kernels(void **state) {
    (void)state;
    static const struct {
        int level, gemm, flash;
    } want[] = {{2, 19 + 3, 0}, {4, 12 + 3, 1}, {2, 19 + 3, 0}};
    static const char one_layer[] =
        "{\"model_type\": \"gpt2\", \"vocab_size\": 19, \"n_positions\": 24, "
        "\"n_embd\": 12, \"n_head\": 3, \"n_layer\": 1}";
    sn_training t = sn_training_default();
    t.dropout = 0.1;
    t.documents = true;
    sn_error err = {0};
    sn_config *c = sn_config_parse("x", one_layer, strlen(one_layer), &err);
    sn_model model;
    need(c && sn_model_build(c, &(sn_model_options){.entries = SN_TRAIN, .training = &t}, &model,
                             &err),
         &err);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        sn_options o = sn_options_default();
        o.level = want[i].level;
        o.backend = "native";
        o.plan_only = true;
        sn_program *p = sn_compile(model.module, &o, &err);
        need(p, &err);
        char *text = explain_text(p, "train_step");
        assert_int_equal(count(text, "  flash_grad "), want[i].flash);
        assert_int_equal(count(text, "  flash "), want[i].flash);
        assert_in_range(count(text, "  gemm "), 1, want[i].gemm);
        free(text);
        sn_program_free(p);
    }
    sn_module_free(model.module);
    sn_config_free(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(levels_agree),
                                       cmocka_unit_test(training_kernels),
                                       cmocka_unit_test(sizes_padding_and_caches),
                                       cmocka_unit_test(gradients),
                                       cmocka_unit_test(gpt3_alternates),
                                       cmocka_unit_test(gpt3_with_a_full_band_is_gpt2),
                                       cmocka_unit_test(gopher_terms_by_hand),
                                       cmocka_unit_test(lens_ends_in_the_logits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
