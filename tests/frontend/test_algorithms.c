/* Algorithms 1 to 7 of [PH22] on their own, and [SA]'s packed attention: compiled code at two
 * levels against the paper's loops in f64; their gradients; heads as two circuits [TSE]. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "frontend/algorithms.h"
#include "tests/support/effort.h"
#include "tests/support/model_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = 2, TX = 5, TZ = 7, DX = 6, DZ = 4, DA = 3, DM = 5, DOUT = 8, H = 2, NV = 11 };

/* ---- the paper, by loops ---- */

static double dot(const float *w, const double *x, int n) {
    double s = 0;
    for (int i = 0; i < n; i++) s += w[i] * x[i];
    return s;
}

/* y[t] = W x[t] + b for rows of width n_in */
static void rows_of(const model_case *c, const char *name, int first, int n_out, const float *x,
                    int T, int n_in, double *y) {
    char w[16], b[16];
    snprintf(w, sizeof w, "W_%s", name);
    snprintf(b, sizeof b, "b_%s", name);
    for (int t = 0; t < T; t++)
        for (int o = 0; o < n_out; o++) {
            const float *row = case_param(c, w) + (size_t)(first + o) * (size_t)n_in;
            double s = case_param(c, b)[first + o];
            for (int i = 0; i < n_in; i++) s += row[i] * (double)x[t * n_in + i];
            y[t * n_out + o] = s;
        }
}

/* A4 of head h (its rows of W_q, W_k, W_v), one sequence: X [n, dx], Z [m, dz] -> V~ [n, dv] */
static void attend(const model_case *c, int h, int da, int dv, const float *X, int n, int dx,
                   const float *Z, int m, int dz, bool causal, double *out) {
    double q[TZ * DM], k[TZ * DM], v[TZ * DOUT];
    rows_of(c, "q", h * da, da, X, n, dx, q);
    rows_of(c, "k", h * da, da, Z, m, dz, k);
    rows_of(c, "v", h * dv, dv, Z, m, dz, v);
    for (int i = 0; i < n; i++) {
        double e[TZ], sum = 0;
        for (int j = 0; j < m; j++) {
            double s = 0;
            for (int a = 0; a < da; a++) s += q[i * da + a] * k[j * da + a];
            bool seen = !causal || j <= i + m - n;
            sum += e[j] = seen ? exp(s / sqrt(da)) : 0;
        }
        for (int o = 0; o < dv; o++) {
            out[i * dv + o] = 0;
            for (int j = 0; j < m; j++) out[i * dv + o] += e[j] / sum * v[j * dv + o];
        }
    }
}

/* ---- one component in a module ---- */

typedef struct component {
    model_case c;
    sn_tensor X, Z; /* [B, T, DX], [B, S, DZ]; entry "f" is open */
    float x[B][TX][DX], z[B][TZ][DZ];
    int64_t shape[2][3];
    sn_arg_binding in[2];
} component;

/* Input i: f32 unless told otherwise; rows [B, T, width], or [B, width] for T = 0. */
static void bind_input(component *k, int i, const char *name, void *data, int64_t T,
                       int64_t width) {
    k->shape[i][0] = B, k->shape[i][1] = T ? T : width, k->shape[i][2] = width;
    k->in[i] = (sn_arg_binding){name, SN_F32, T ? 3 : 2, k->shape[i], data};
}

static sn_module *begin(component *k) {
    sn_module *m = sn_module_new("component");
    assert_non_null(m);
    k->c = (model_case){0};
    sn_dim b = sn_symbol(m, "B", 1, 8), T = sn_symbol(m, "T", 1, 16), S = sn_symbol(m, "S", 1, 16);
    sn_entry_begin(m, "f");
    k->X = sn_input(m, "X", SN_F32, b, T, DX);
    k->Z = sn_input(m, "Z", SN_F32, b, S, DZ);
    fill_floats(k->x[0][0], B * TX * DX, 3);
    fill_floats(k->z[0][0], B * TZ * DZ, 4);
    bind_input(k, 0, "X", k->x, TX, DX);
    bind_input(k, 1, "Z", k->z, TZ, DZ);
    return m;
}

static void finish(component *k, sn_tensor y) {
    sn_output("y", y);
    case_adopt(&k->c, sn_module_of(y));
    case_size(&k->c, "B", B);
    case_size(&k->c, "T", TX);
    case_size(&k->c, "S", TZ);
}

/* Compiled = evaluated at two levels, evaluated = want, and the gradient is right. */
static void check(component *k, int first, int n_in, bool gradient, const double *want, int n) {
    double got[B * TX * NV];
    assert_true(n <= (int)(sizeof got / sizeof *got));
    static size_t calls; /* gradients of the others are compiled, too */
    if (effort_takes(calls++, 2)) case_check(&k->c, 1, "f", "y", k->in + first, n_in, n);
    case_evaluate(&k->c, "f", "y", k->in + first, n_in, got, n);
    for (int i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) < 1e-6)) fail_msg("%d: %g, not %g", i, got[i], want[i]);
    if (gradient) case_check_grad(&k->c, "f", "y", k->in + first, n_in);
    case_close(&k->c);
}

static void a1_a2_a7(void **state) {
    (void)state;
    component k;
    int32_t ids[B][TX];
    double want[B * TX * NV];
    sn_module *m = begin(&k);
    sn_tensor v = sn_input(m, "v", SN_I32, sn_dim_of(k.X, 0), sn_dim_of(k.X, 1));
    sn_tensor e = sn_a1_token_embedding(v, NV, DX);
    e = sn_add(e, sn_a2_positional_embedding(m, sn_dim_of(v, 1), 16, DX));
    e = sn_add(e, sn_a2s_sinusoid(m, sn_dim_of(v, 1), 16, DX));
    finish(&k, sn_a7_unembedding(e, NV, true));
    fill_tokens(ids[0], B * TX, NV);
    k.in[0] = SN_BIND("v", SN_I32, ids, B, TX);
    const float *We = case_param(&k.c, "W_e"), *Wp = case_param(&k.c, "W_p");
    for (int b = 0; b < B; b++)
        for (int t = 0; t < TX; t++) {
            double x[DX], p[NV], sum = 0;
            for (int i = 0; i < DX; i++) { /* the paper counts t and i from 1 */
                double angle = (t + 1) / pow(16, 2.0 * (i / 2 + 1) / DX);
                x[i] = We[ids[b][t] * DX + i] + Wp[t * DX + i] + (i % 2 ? cos(angle) : sin(angle));
            }
            for (int o = 0; o < NV; o++) sum += p[o] = exp(dot(We + o * DX, x, DX));
            for (int o = 0; o < NV; o++) want[(b * TX + t) * NV + o] = p[o] / sum;
        }
    check(&k, 0, 1, true, want, B * TX * NV);
}

static void a3_single_query(void **state) {
    (void)state;
    component k;
    double want[B * DOUT];
    sn_module *m = begin(&k);
    sn_tensor e = sn_input(m, "e", SN_F32, sn_dim_of(k.Z, 0), DX);
    finish(&k, sn_a3_single_query_attention(e, k.Z, DA, DOUT));
    bind_input(&k, 0, "e", k.x, 0, DX);
    for (int b = 0; b < B; b++)
        attend(&k.c, 0, DA, DOUT, &k.x[0][0][0] + b * DX, 1, DX, k.z[b][0], TZ, DZ, false,
               want + b * DOUT);
    check(&k, 0, 2, true, want, B * DOUT);
}

static void a4_self_and_cross(void **state) {
    (void)state;
    for (int form = 0; form < 4; form++) {
        component k;
        double want[B * TX * DOUT];
        bool self = form & 1, causal = form & 2;
        begin(&k);
        finish(&k, sn_a4_attention(k.X, self ? k.X : k.Z, DA, DOUT, causal));
        for (int b = 0; b < B; b++)
            attend(&k.c, 0, DA, DOUT, k.x[b][0], TX, DX, self ? k.x[b][0] : k.z[b][0],
                   self ? TX : TZ, self ? DX : DZ, causal, want + b * TX * DOUT);
        check(&k, 0, self ? 1 : 2, form == 3, want, B * TX * DOUT);
    }
}

/* Heads with own maps and biases, d_mid and d_out free. */
static void a5_multi_head(void **state) {
    (void)state;
    for (int self = 0; self < 2; self++) {
        component k;
        double want[B * TX * DOUT];
        begin(&k);
        finish(&k, sn_a5_mh_attention(k.X, self ? k.X : k.Z, H, DA, DM, DOUT, self));
        for (int b = 0; b < B; b++) {
            double head[H][TX * DM];
            for (int h = 0; h < H; h++)
                attend(&k.c, h, DA, DM, k.x[b][0], TX, DX, self ? k.x[b][0] : k.z[b][0],
                       self ? TX : TZ, self ? DX : DZ, self, head[h]);
            for (int t = 0; t < TX; t++) {
                double y[H * DM];
                for (int h = 0; h < H; h++) memcpy(y + h * DM, head[h] + t * DM, sizeof *y * DM);
                for (int o = 0; o < DOUT; o++)
                    want[(b * TX + t) * DOUT + o] =
                        case_param(&k.c, "b_o")[o] +
                        dot(case_param(&k.c, "W_o") + o * H * DM, y, H * DM);
            }
        }
        check(&k, 0, self ? 1 : 2, !self, want, B * TX * DOUT);
    }
}

static void a6_norms(void **state) {
    (void)state;
    for (int rms = 0; rms < 2; rms++) {
        component k;
        double want[B * TX * DX];
        begin(&k);
        finish(&k, rms ? sn_a6r_rms_norm(k.X, 0) : sn_a6_layer_norm(k.X, 0));
        const float *gamma = case_param(&k.c, "gamma"), *x = k.x[0][0];
        for (int r = 0; r < B * TX; r++) {
            double mean = 0, variance = 0;
            for (int i = 0; i < DX && !rms; i++) mean += x[r * DX + i] / (double)DX;
            for (int i = 0; i < DX; i++) variance += pow(x[r * DX + i] - mean, 2) / DX;
            for (int i = 0; i < DX; i++)
                want[r * DX + i] = (x[r * DX + i] - mean) / sqrt(variance) * gamma[i] +
                                   (rms ? 0 : case_param(&k.c, "beta")[i]);
        }
        check(&k, 0, 1, true, want, B * TX * DX);
    }
}

/* One packed matrix: rows 0 .. d-1 are the queries' of X, then keys' and values' of Z. */
static void sa_packed(void **state) {
    (void)state;
    for (int self = 0; self < 2; self++) {
        component k;
        double want[B * TX * DX];
        float other[B][TZ][DX];
        sn_module *m = begin(&k);
        sn_tensor Z =
            self ? k.X : sn_input(m, "Y", SN_F32, sn_dim_of(k.Z, 0), sn_dim_of(k.Z, 1), DX);
        finish(&k, sn_sa_attention(k.X, Z, H, self));
        fill_floats(other[0][0], B * TZ * DX, 9);
        bind_input(&k, 1, "Y", other, TZ, DX);
        const float *w = case_param(&k.c, "qkv.weight");
        int n = self ? TX : TZ, W = DX / H;
        for (int b = 0; b < B; b++)
            for (int h = 0; h < H; h++)
                for (int i = 0; i < TX; i++) {
                    const float *z = self ? k.x[b][0] : other[b][0];
                    double e[TZ], sum = 0;
                    for (int j = 0; j < n; j++) {
                        double s = 0;
                        for (int a = h * W; a < (h + 1) * W; a++) {
                            double q = 0, key = 0;
                            for (int d = 0; d < DX; d++) {
                                q += w[a * DX + d] * k.x[b][i][d];
                                key += w[(DX + a) * DX + d] * z[j * DX + d];
                            }
                            s += q * key;
                        }
                        sum += e[j] = self && j > i ? 0 : exp(s / sqrt(W));
                    }
                    for (int a = h * W; a < (h + 1) * W; a++) {
                        double *y = &want[(b * TX + i) * DX + a];
                        *y = 0;
                        for (int j = 0; j < n; j++)
                            for (int d = 0; d < DX; d++)
                                *y += e[j] / sum * w[(2 * DX + a) * DX + d] * z[j * DX + d];
                    }
                }
        check(&k, 0, self ? 1 : 2, !self, want, B * TX * DX);
    }
}

/* A length over the learned positions, heads that do not divide the width: said at the call. */
static void refused(void **state) {
    (void)state;
    sn_error err = {0};
    sn_module *m = sn_module_new("long");
    sn_a2_positional_embedding(m, sn_symbol(m, "T", 1, 100), 64, DX);
    assert_false(sn_module_ok(m, &err));
    assert_int_equal(err.code, SN_ERR_RANGE);
    assert_non_null(strstr(err.message, "100 tokens, but only 64 positions"));
    sn_module_free(m);
    component k;
    err = (sn_error){0};
    m = begin(&k);
    sn_sa_attention(k.X, k.X, 4, false);
    assert_false(sn_module_ok(m, &err));
    assert_non_null(strstr(err.message, "into 4 equal heads"));
    sn_module_free(m);
}

/* ---- TSE-alt ---- */

#define TSE(type, more)                                                                            \
    "{\"model_type\": \"" type "\", \"n_vocab\": 11, \"n_ctx\": 12, \"n_layers\": 2, "             \
    "\"n_heads\": 2, \"d_model\": 6, \"d_mlp\": 8" more "}"

/* Full circuits from the usual maps: W_QK = W_Q^T W_K, W_OV = W_O W_V. Parameters of `to` that
 * `from` has too are copied. */
static void join_circuits(const model_case *from, model_case *to) {
    enum { D = 6, W = 3 };
    for (int p = 0; p < to->n_param; p++) {
        float *out = to->param[p].data;
        const char *name = to->param[p].name;
        char a[96], b[96];
        bool qk = strstr(name, "W_QK"), ov = strstr(name, "W_OV");
        if (!qk && !ov) {
            size_t bytes = sizeof *out;
            for (int i = 0; i < to->param[p].rank; i++) bytes *= (size_t)to->param[p].shape[i];
            memcpy(out, case_param(from, name), bytes);
            continue;
        }
        size_t base = (size_t)(strstr(name, qk ? "W_QK" : "W_OV") - name);
        snprintf(a, sizeof a, "%.*s%s.weight", (int)base, name, qk ? "W_Q" : "W_O");
        snprintf(b, sizeof b, "%.*s%s.weight", (int)base, name, qk ? "W_K" : "W_V");
        const float *x = case_param(from, a), *y = case_param(from, b);
        for (int i = 0; i < D; i++)
            for (int j = 0; j < D; j++) {
                double s = 0;
                for (int w = 0; w < W; w++) s += (qk ? x[w * D + i] : x[i * W + w]) * y[w * D + j];
                out[i * D + j] = (float)s;
            }
    }
}

/* Property 6's equality: heads as circuits, factored and full, whole and pair by pair, give what
 * usual heads give. */
static void tse_alt_equals_tse_gpt(void **state) {
    (void)state;
    static const char *const forms[] = {
        TSE("tse_alt", ""), TSE("tse_alt", ", \"circuits\": \"full\""),
        TSE("tse_alt", ", \"pairwise\": true"),
        TSE("tse_alt", ", \"circuits\": \"full\", \"pairwise\": true")};
    enum { N = 9 };
    int32_t tokens[B * N];
    double want[B * N * NV], got[B * N * NV];
    model_case usual;
    fill_tokens(tokens, B * N, NV);
    sn_arg_binding in = SN_BIND("tokens", SN_I32, tokens, B, N);
    case_open(&usual, TSE("tse_gpt", ""), SN_FORWARD);
    case_size(&usual, "B", B);
    case_size(&usual, "T", N);
    case_evaluate(&usual, "forward", "logits", &in, 1, want, B * N * NV);
    for (int f = 0; f < 4; f++) {
        model_case c;
        case_open(&c, forms[f], SN_FORWARD);
        join_circuits(&usual, &c);
        case_size(&c, "B", B);
        case_size(&c, "T", N);
        case_evaluate(&c, "forward", "logits", &in, 1, got, B * N * NV);
        for (int i = 0; i < B * N * NV; i++) assert_true(fabs(got[i] - want[i]) < 1e-5);
        if (effort_takes((size_t)f + 1, 4))
            case_check(&c, 4, "forward", "logits", &in, 1, B * N * NV);
        case_close(&c);
    }
    case_close(&usual);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a1_a2_a7),          cmocka_unit_test(a3_single_query),
        cmocka_unit_test(a4_self_and_cross), cmocka_unit_test(a5_multi_head),
        cmocka_unit_test(a6_norms),          cmocka_unit_test(sa_packed),
        cmocka_unit_test(refused),           cmocka_unit_test(tse_alt_equals_tse_gpt)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
