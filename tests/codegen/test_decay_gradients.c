/* The gradients of log decays, row by row, against derivatives in double: constant decays from -1e-4 to
 * -40 and mixed ones, of rows and of the whole carry, of plain and delta rules, read before and after, at
 * level 0 and at the highest one. Where decays are strong the gradient is as small as they are, and must
 * be as exact: a difference of sums is not. */
#include "bench/recurrence.h"
#include "frontend/sinter.h"
#include "tests/support/effort.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>

enum { H = 2, N = 16, T = 77, OPERANDS = 6 }; /* q, k, v, g, b [H,T,1], dy */

typedef struct rule {
    bool delta, before, one; /* one: a decay for the whole carry */
} rule;

static float data[OPERANDS][H * T * N];

/* ---- the derivative in double ---- */

static double at(int operand, int h, int t, int i) {
    return (double)data[operand][(h * T + t) * N + i];
}

static double decay_of(const rule *r, int h, int t, int k) {
    return exp(r->one ? (double)data[3][h * T + t] : at(3, h, t, k));
}

static double share(const rule *r, int h, int t) {
    return r->delta ? (double)data[4][h * T + t] : 0;
}

static double kept[T][N][N]; /* the carry times the decay, for each element */

static void carry(const rule *r, int h) {
    double S[N][N] = {{0}};
    for (int t = 0; t < T; t++)
        for (int v = 0; v < N; v++) {
            double read = 0;
            for (int k = 0; k < N; k++) {
                kept[t][k][v] = decay_of(r, h, t, k) * S[k][v];
                read += at(1, h, t, k) * kept[t][k][v];
            }
            double b = share(r, h, t), m = r->delta ? b * (at(2, h, t, v) - read) : at(2, h, t, v);
            for (int k = 0; k < N; k++) S[k][v] = kept[t][k][v] + at(1, h, t, k) * m;
        }
}

/* dg: [H,T,N or 1]; size: of a row, the root of the sum of the squares of what is added up. */
static void derivative(const rule *r, double (*dg)[N], double *size) {
    for (int h = 0; h < H; h++) {
        double R[N][N] = {{0}};
        carry(r, h);
        for (int t = T; t-- > 0;) {
            const int at_row = h * T + t;
            double all = 0;
            memset(dg[at_row], 0, sizeof dg[at_row]);
            size[at_row] = 0;
            for (int v = 0; v < N; v++) {
                double read = 0;
                if (!r->before)
                    for (int k = 0; k < N; k++) R[k][v] += at(0, h, t, k) * at(5, h, t, v);
                for (int k = 0; k < N; k++) read += at(1, h, t, k) * R[k][v];
                for (int k = 0; k < N; k++) R[k][v] -= share(r, h, t) * at(1, h, t, k) * read;
            }
            for (int k = 0; k < N; k++) {
                double squares = 0;
                for (int v = 0; v < N; v++) {
                    double x = R[k][v] * kept[t][k][v];
                    dg[at_row][r->one ? 0 : k] += x;
                    squares += x * x;
                    R[k][v] *= decay_of(r, h, t, k);
                    if (r->before) R[k][v] += at(0, h, t, k) * at(5, h, t, v);
                }
                size[at_row] = fmax(size[at_row], sqrt(squares));
                all += squares;
            }
            if (r->one) size[at_row] = sqrt(all);
        }
    }
}

/* ---- the same by sinter ---- */

static void step(sn_scan_step *s) { /* x: q, k, v, g, b */
    const rule *r = s->user;
    sn_tensor S = sn_mul(col(sn_exp(s->x[3])), s->carry[0]), m = s->x[2];
    if (r->delta) m = sn_mul(s->x[4], sn_sub(m, times_state(s->x[1], S)));
    s->next[0] = sn_add(S, sn_mul(col(s->x[1]), row(m)));
    s->y[0] = times_state(s->x[0], r->before ? s->carry[0] : s->next[0]);
}

static sn_module *build(rule *r) {
    static const char *const names[OPERANDS] = {"q", "k", "v", "g", "b", "dy"};
    sn_module *m = sn_module_new("decays");
    sn_tensor in[OPERANDS], dg;
    sn_entry_begin(m, "main");
    for (int i = 0; i < OPERANDS; i++)
        in[i] = sn_input(m, names[i], SN_F32, H, T, (i == 3 && r->one) || i == 4 ? 1 : N);
    sn_scanned y = sn_scan(.carry = {sn_full(m, SN_F32, 0, H, N, N)},
                           .x = {in[0], in[1], in[2], in[3], r->delta ? in[4] : NULL}, .axis = 1,
                           .body = step, .user = r);
    sn_grad(sn_sum_all(sn_mul(y.y[0], in[5])), 1, &in[3], &dg);
    sn_output("dg", dg);
    return m;
}

static sn_session *session(sn_module *m, int level) {
    sn_options o = sn_options_default();
    sn_error err = {0};
    o.level = level;
    o.threads = 2;
    sn_program *p = sn_compile(m, &o, &err);
    if (!p) fail_msg("level %d: %s", level, err.message);
    sn_session *s = sn_session_new(p, NULL, &err);
    assert_non_null(s);
    sn_program_free(p);
    return s;
}

static void run(sn_session *s, const rule *r, float *dg) {
    static const char *const names[OPERANDS] = {"q", "k", "v", "g", "b", "dy"};
    const int64_t shape[] = {H, T, N}, narrow[] = {H, T, 1};
    sn_arg_binding in[OPERANDS], out;
    sn_error err = {0};
    int n = 0;
    for (int i = 0; i < OPERANDS; i++)
        if (i != 4 || r->delta)
            in[n++] = (sn_arg_binding){names[i], SN_F32, 3,
                                       (i == 3 && r->one) || i == 4 ? narrow : shape, data[i]};
    out = (sn_arg_binding){"dg", SN_F32, 3, r->one ? narrow : shape, dg};
    if (!sn_run(s, "main", in, n, &out, 1, &err)) fail_msg("%s", err.message);
}

/* ---- tests ---- */

static uint32_t seed;

static float uniform(void) {
    seed = seed * 1664525 + 1013904223;
    return (float)(seed >> 8) / (1 << 23) - 1;
}

enum { MIXED, RARELY_STRONG, SOMETIMES_ZERO, KINDS };

static float decay_like(int kind) {
    float x = (uniform() + 1) / 2;
    if (kind == RARELY_STRONG) return x < 0.3f ? -20 : -1e-4f;
    if (kind == SOMETIMES_ZERO) return x < 0.1f ? -400 : -x;
    return -(float)pow(10, -4 + 5.6 * (double)x);
}

static void fill(void) {
    for (int i = 0; i < OPERANDS; i++)
        for (int e = 0; e < H * T * N; e++) data[i][e] = uniform();
    for (int t = 0; t < H * T; t++) { /* keys of length 1, which a delta rule needs */
        double sum = 0;
        for (int k = 0; k < N; k++) sum += (double)data[1][t * N + k] * (double)data[1][t * N + k];
        for (int k = 0; k < N; k++) data[1][t * N + k] /= (float)sqrt(sum);
        data[4][t] = (data[4][t] + 1) / 2;
    }
}

/* Row by row. Rows whose numbers are below the smallest f32 are zeros, or nearly. */
static void check(const rule *r, const char *what, double strength, const float *dg) {
    static double want[H * T][N], size[H * T];
    derivative(r, want, size);
    for (int t = 0; t < H * T; t++)
        for (int k = 0; k < (r->one ? 1 : N); k++) {
            double got = (double)dg[r->one ? t : t * N + k], d = fabs(got - want[t][k]);
            if (!(d <= 6e-6 * size[t] + 1e-37))
                fail_msg("%s%s%s, %s %g, row %d, %d: %g for %g, the row has %g",
                         r->delta ? "delta" : "plain", r->before ? " before" : "",
                         r->one ? " one" : "", what, strength, t, k, got, want[t][k], size[t]);
        }
}

static void every_row(void **state) {
    static const float strengths[] = {-1e-4f, -0.1f, -1, -5, -10, -20, -40};
    static float dg[H * T * N];
    (void)state;
    for (int of = 0; of < 16; of++) {
        rule r = {of & 1, of & 2, of & 4};
        const int level = of & 8 ? 4 : 0;
        seed = 11;
        fill();
        sn_module *m = build(&r);
        sn_session *s = session(m, level);
        for (size_t i = 0; i < sizeof strengths / sizeof *strengths; i++) {
            for (int e = 0; e < H * T * N; e++) data[3][e] = strengths[i];
            run(s, &r, dg);
            check(&r, "all", (double)strengths[i], dg);
        }
        for (int kind = 0; kind < KINDS; kind++) {
            for (int e = 0; e < H * T * N; e++) data[3][e] = decay_like(kind);
            run(s, &r, dg);
            check(&r, "kind", kind, dg);
        }
        sn_session_free(s);
        sn_module_free(m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_row)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
