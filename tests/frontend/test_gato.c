/* Gato: a sequence of all four modalities: ids and squares' embeddings by loops; compiled code
 * against the evaluator at every level; gradients through both convolutions of the block; losses
 * masked by modality; the caches; wrong sizes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/support/model_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GATO(more)                                                                                 \
    "{\"model_type\": \"gato\", \"vocab_size\": 7, \"n_positions\": 16, \"n_embd\": 8, "           \
    "\"n_head\": 2, \"n_layer\": 1, \"discrete_values\": 5, \"continuous_bins\": 6, "              \
    "\"image_size\": 8, \"patch_size\": 4, \"num_channels\": 2, \"resnet_filters\": 4, "           \
    "\"resnet_groups\": 2" more "}"

enum { B = 2, T = 6, V = 7 + 5 + 6, D = 8, N = 2, C = 2, SIDE = 8, P = 4, F = 4, SQUARES = 4 };

typedef struct sequence {
    int32_t tokens[B * T], kinds[B * T], patches[B * T], targets[B * T];
    float values[B * T], images[N][C][SIDE][SIDE];
    sn_arg_binding in[6]; /* targets last */
    int64_t shape[2], picture[4];
} sequence;

static void fill(sequence *q) {
    static const float values[] = {-300, -0.5f, 0, 0.01f, 2, 1000};
    for (int i = 0; i < B * T; i++) {
        q->kinds[i] = i % 4;
        q->tokens[i] = i % 5;
        q->values[i] = values[i / 2];
        q->patches[i] = i * 5 % (N * SQUARES);
        /* predicted: text, discrete, nothing, continuous */
        q->targets[i] = i % 4 == 0 ? i % 7 : i % 4 == 1 ? 7 + i % 5 : i % 4 == 3 ? 12 + i % 6 : -1;
    }
    fill_floats(q->images[0][0][0], N * C * SIDE * SIDE, 7);
    q->shape[0] = B, q->shape[1] = T;
    q->picture[0] = N, q->picture[1] = C, q->picture[2] = q->picture[3] = SIDE;
    q->in[0] = (sn_arg_binding){"tokens", SN_I32, 2, q->shape, q->tokens};
    q->in[1] = (sn_arg_binding){"kinds", SN_I32, 2, q->shape, q->kinds};
    q->in[2] = (sn_arg_binding){"values", SN_F32, 2, q->shape, q->values};
    q->in[3] = (sn_arg_binding){"patches", SN_I32, 2, q->shape, q->patches};
    q->in[4] = (sn_arg_binding){"images", SN_F32, 4, q->picture, q->images};
    q->in[5] = (sn_arg_binding){"targets", SN_I32, 2, q->shape, q->targets};
}

static void open_gato(model_case *c, sequence *q, int entries) {
    fill(q);
    case_open(c, GATO(""), entries);
    case_size(c, "B", B);
    case_size(c, "T", T);
    case_size(c, "N", N);
}

/* The value of a tap of `forward`. */
static void run_tap(model_case *c, const sequence *q, const char *tap, sn_dtype type, int rank,
                    const int64_t *shape, void *out) {
    sn_program *p;
    sn_error err = {0};
    sn_session *s = case_compile(c, 4, tap, &p);
    sn_arg_binding o = {tap, type, rank, shape, out};
    need(sn_run(s, "forward", q->in, 5, &o, 1, &err), &err);
    sn_session_free(s);
    sn_program_free(p);
}

static void ids_by_modality(void **state) {
    (void)state;
    model_case c;
    sequence q;
    int32_t ids[B * T];
    open_gato(&c, &q, SN_FORWARD);
    assert_int_equal(c.model.vocab, V);
    run_tap(&c, &q, "ids", SN_I32, 2, q.shape, ids);
    for (int i = 0; i < B * T; i++) {
        double x = q.values[i], y = log(fabs(x) * 100 + 1) / log(256 * 100 + 1);
        y = fmax(fmin(x < 0 ? -y : y, 1), -1);
        int bin = (int)fmin(floor((y + 1) * 3), 5);
        const int want[4] = {q.tokens[i], 7 + q.tokens[i], 12 + bin, 0};
        assert_int_equal(ids[i], want[q.kinds[i]]);
    }
    case_close(&c);
}

/* ---- the ResNet block by loops ---- */

enum { HALF = P / 2 };

/* x [n_in][side][side] -> y [F][side / stride]^2, padding 1 */
static void convolve(const model_case *c, const char *name, int n_in, int side, int stride,
                     const double *x, double *y) {
    char w_name[64], b_name[64];
    snprintf(w_name, sizeof w_name, "resnet.%s.weight", name);
    snprintf(b_name, sizeof b_name, "resnet.%s.bias", name);
    const float *w = case_param(c, w_name), *b = case_param(c, b_name);
    int out = side / stride;
    for (int o = 0; o < F; o++)
        for (int i = 0; i < out; i++)
            for (int j = 0; j < out; j++) {
                double s = b[o];
                for (int ch = 0; ch < n_in; ch++)
                    for (int u = 0; u < 3; u++)
                        for (int v = 0; v < 3; v++) {
                            int r = i * stride + u - 1, k = j * stride + v - 1;
                            if (r < 0 || k < 0 || r >= side || k >= side) continue;
                            s += w[((o * n_in + ch) * 3 + u) * 3 + v] *
                                 x[(ch * side + r) * side + k];
                        }
                y[(o * out + i) * out + j] = s;
            }
}

/* GELU of the group norm: two groups of two channels */
static void activate(const model_case *c, const char *name, const double *x, double *y) {
    enum { GROUP = 2 * HALF * HALF };
    char w_name[64], b_name[64];
    snprintf(w_name, sizeof w_name, "resnet.%s.weight", name);
    snprintf(b_name, sizeof b_name, "resnet.%s.bias", name);
    for (int g = 0; g < 2; g++) {
        double mean = 0, variance = 0;
        for (int i = 0; i < GROUP; i++) mean += x[g * GROUP + i] / GROUP;
        for (int i = 0; i < GROUP; i++) variance += pow(x[g * GROUP + i] - mean, 2) / GROUP;
        for (int i = g * GROUP; i < (g + 1) * GROUP; i++) {
            int ch = i / (HALF * HALF);
            double z = (x[i] - mean) / sqrt(variance + 1e-5);
            z = z * case_param(c, w_name)[ch] + case_param(c, b_name)[ch];
            y[i] = z * (1 + erf(z / sqrt(2))) / 2;
        }
    }
}

static void squares_by_loops(void **state) {
    (void)state;
    model_case c;
    sequence q;
    float got[N * SQUARES][D];
    open_gato(&c, &q, SN_FORWARD);
    run_tap(&c, &q, "squares", SN_F32, 2, (const int64_t[]){N * SQUARES, D}, got);
    for (int n = 0; n < N * SQUARES; n++) {
        double x[C * P * P], a[F * HALF * HALF], y[F * HALF * HALF], z[F * HALF * HALF];
        for (int ch = 0; ch < C; ch++)
            for (int i = 0; i < P; i++)
                for (int j = 0; j < P; j++) {
                    int row = n % SQUARES / 2 * P + i, column = n % 2 * P + j;
                    x[(ch * P + i) * P + j] =
                        (2 * q.images[n / SQUARES][ch][row][column] - 1) / sqrt(P);
                }
        convolve(&c, "conv_in", C, P, 2, x, a);
        activate(&c, "norm1", a, y);
        convolve(&c, "conv1", F, HALF, 1, y, z);
        activate(&c, "norm2", z, y);
        convolve(&c, "conv2", F, HALF, 1, y, z);
        for (int d = 0; d < D; d++) {
            double s = case_param(&c, "resnet.out.bias")[d];
            for (int i = 0; i < F * HALF * HALF; i++)
                s += case_param(&c, "resnet.out.weight")[d * F * HALF * HALF + i] * (a[i] + z[i]);
            if (!(fabs(got[n][d] - s) < 1e-5)) fail_msg("square %d: %g, not %g", n, got[n][d], s);
        }
    }
    case_close(&c);
}

/* ---- the whole ---- */

/* Losses and their gradient; masked targets lose nothing; means by modality. */
static void losses(void **state) {
    (void)state;
    static const char *const names[] = {"text", "discrete", "continuous"};
    static const int first[] = {0, 7, 12, V};
    model_case c;
    sequence q;
    double loss[B * T], mean;
    open_gato(&c, &q, SN_LOSS);
    case_check(&c, 1, "loss", "loss", q.in, 6, B * T);
    case_evaluate(&c, "loss", "loss", q.in, 6, loss, B * T);
    for (int i = 0; i < B * T; i++) assert_true(q.targets[i] < 0 ? loss[i] == 0 : loss[i] > 0);
    for (int k = 0; k < 3; k++) {
        double sum = 0;
        int n = 0;
        for (int i = 0; i < B * T; i++)
            if (q.targets[i] >= first[k] && q.targets[i] < first[k + 1]) sum += loss[i], n++;
        case_evaluate(&c, "loss", names[k], q.in, 6, &mean, 1);
        assert_true(n > 0 && fabs(mean - sum / n) < 1e-6);
    }
    case_check_grad(&c, "loss", "loss", q.in, 6);
    case_close(&c);
}

/* Padding changes nothing before it; step by step is the whole; no recompilation. */
static void padding_and_caches(void **state) {
    (void)state;
    model_case c;
    sequence q;
    sn_program *p;
    sn_error err = {0};
    static float one[B][T][V], two[B][T][V], next[V];
    open_gato(&c, &q, SN_FORWARD | SN_CACHED);
    sn_session *s = case_compile(&c, 4, NULL, &p);
    sn_arg_binding out = SN_BIND("logits", SN_F32, one, B, T, V);
    need(sn_run(s, "forward", q.in, 5, &out, 1, &err), &err);
    q.kinds[B * T - 1] = 0, q.tokens[B * T - 1] = 6;
    out.data = two;
    need(sn_run(s, "forward", q.in, 5, &out, 1, &err), &err);
    assert_memory_equal(one, two, sizeof(float) * (B * T - 1) * V);
    for (int at = 0, n = 3; at < T; at += n, n = 1) {
        sn_arg_binding step[] = {SN_BIND("tokens", SN_I32, q.tokens + at, 1, n),
                                 SN_BIND("kinds", SN_I32, q.kinds + at, 1, n),
                                 SN_BIND("values", SN_F32, q.values + at, 1, n),
                                 SN_BIND("patches", SN_I32, q.patches + at, 1, n),
                                 q.in[4],
                                 SN_BIND_DIM("P", at)};
        sn_arg_binding last = SN_BIND("logits", SN_F32, next, 1, V);
        need(sn_run(s, n > 1 ? "prefill" : "decode", step, 6, &last, 1, &err), &err);
        for (int v = 0; v < V; v++) assert_true(fabsf(next[v] - one[0][at + n - 1][v]) < 1e-4f);
    }
    assert_int_equal(sn_program_stats(p).recompilations, 0);
    q.picture[2] = 4; /* images of another size */
    err = (sn_error){0};
    assert_false(sn_run(s, "forward", q.in, 5, &out, 1, &err));
    assert_non_null(strstr(err.message, "images"));
    sn_session_free(s);
    sn_program_free(p);
    case_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ids_by_modality),
                                       cmocka_unit_test(squares_by_loops), cmocka_unit_test(losses),
                                       cmocka_unit_test(padding_and_caches)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
