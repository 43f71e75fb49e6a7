/* Optimizers of matrices, and groups: fifty steps of Lion, Muon, NorMuon, Adafactor, Shampoo and
 * SOAP, each on the parameters of its group, equal their formulas in plain C. */
#include "frontend/sinter.h"
#include "ir/ir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>

#include "tests/support/scratch.h"

enum { STEPS = 50, SIDE = 8, ROOM = SIDE * SIDE, ITERATIONS = 5 };
static const double rate = 0.02;

/* ---- the formulas in plain C ---- */

/* loss = sum curve (p - goal)^2 / 2 over all parameters [rows, columns]; columns 0: a vector */
typedef struct plain {
    const char *name;
    int rows, columns;
    double p[ROOM], m[ROOM], v[ROOM], row[SIDE], column[SIDE];
    double mean[2][ROOM], basis[2][ROOM]; /* of the left and the right side */
} plain;

static double goal_of(int i) {
    return sin(1.7 * i + 0.3);
}

static double curve_of(int i) {
    return 0.5 + 0.05 * i;
}

static double norm_of(const double *x, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

/* z += x y; x [r, k], y [k, c] */
static void add_product(double *z, const double *x, const double *y, int r, int k, int c) {
    for (int i = 0; i < r; i++)
        for (int j = 0; j < c; j++)
            for (int l = 0; l < k; l++) z[i * c + j] += x[i * k + l] * y[l * c + j];
}

static void plain_iterations(double *x, int r, int c, bool polar) {
    static const double jordan[3] = {3.4445, -4.7750, 2.0315},
                        express[ITERATIONS][3] = {{8.1566, -22.4833, 15.8788},
                                                  {4.0429, -2.8089, 0.5000},
                                                  {3.8917, -2.7725, 0.5061},
                                                  {3.2858, -2.3681, 0.4645},
                                                  {2.3465, -1.7098, 0.4232}};
    double n = fmax(norm_of(x, r * c), 1e-7) * (polar ? 1.02 : 1);
    for (int i = 0; i < r * c; i++) x[i] /= n;
    for (int k = 0; k < ITERATIONS; k++) {
        const double *f = polar ? express[k] : jordan;
        double t[ROOM], a[ROOM] = {0}, b[ROOM] = {0}, y[ROOM] = {0};
        for (int i = 0; i < r * c; i++) t[i % c * r + i / c] = x[i];
        add_product(a, x, t, r, c, r);
        add_product(b, a, a, r, r, r);
        for (int i = 0; i < r * r; i++) b[i] = f[1] * a[i] + f[2] * b[i];
        add_product(y, b, x, r, r, c);
        for (int i = 0; i < r * c; i++) x[i] = f[0] * x[i] + y[i];
    }
}

static void plain_muon(plain *s, const double *g, bool equal_rows, bool polar) {
    int r = s->rows, c = s->columns;
    double x[ROOM] = {0};
    for (int i = 0; i < r * c; i++) {
        s->m[i] = 0.95 * s->m[i] + g[i];
        x[i] = g[i] + 0.95 * s->m[i];
    }
    plain_iterations(x, r, c, polar);
    double before = norm_of(x, r * c);
    for (int i = 0; equal_rows && i < r; i++) {
        double size = norm_of(x + (ptrdiff_t)i * c, c);
        s->row[i] = 0.95 * s->row[i] + 0.05 * size * size / c;
        for (int j = 0; j < c; j++) x[i * c + j] /= sqrt(s->row[i]) + 1e-7;
    }
    double scale = 0.2 * sqrt(fmax(r, c)) * before / norm_of(x, r * c);
    for (int i = 0; i < r * c; i++) s->p[i] -= rate * (0.1 * s->p[i] + scale * x[i]);
}

static void plain_adafactor(plain *s, const double *g, int t) {
    int r = s->rows, c = s->columns ? s->columns : 1, n = r * c;
    double part = pow(t, -0.8), mean = 0, x[ROOM], size = norm_of(s->p, n) / sqrt(n);
    for (int i = 0; i < r; i++) {
        double now = norm_of(g + (ptrdiff_t)i * c, c);
        s->row[i] += part * (now * now / c - s->row[i]);
        mean += s->row[i] / r;
    }
    for (int j = 0; j < c; j++) {
        double now = 0;
        for (int i = 0; i < r; i++) now += g[i * c + j] * g[i * c + j] / r;
        s->column[j] += part * (now - s->column[j]);
    }
    for (int i = 0; i < n; i++)
        x[i] = g[i] / sqrt(s->columns ? s->row[i / c] * s->column[i % c] / mean : s->row[i]);
    double step = fmin(rate, 1 / sqrt(t)) * fmax(size, 1e-3) / fmax(norm_of(x, n) / sqrt(n), 1);
    for (int i = 0; i < n; i++) s->p[i] -= step * x[i];
}

static void plain_lion(plain *s, const double *g) {
    for (int i = 0; i < s->rows * (s->columns ? s->columns : 1); i++) {
        double x = 0.9 * s->m[i] + 0.1 * g[i];
        s->m[i] = 0.99 * s->m[i] + 0.01 * g[i];
        s->p[i] -= 0.1 * rate * ((x > 0) - (x < 0)); /* the group's factor */
    }
}

/* z = x y; x [r, k] or, transposed, [k, r]; y in the same way */
static void multiply(double *z, const double *x, bool swap_x, const double *y, bool swap_y, int r,
                     int k, int c) {
    for (int i = 0; i < r * c; i++) {
        double sum = 0;
        for (int l = 0; l < k; l++)
            sum += x[swap_x ? l * r + i / c : i / c * k + l] *
                   y[swap_y ? i % c * k + l : l * c + i % c];
        z[i] = sum;
    }
}

/* The mean of G G^T or G^T G; its size n. */
static int plain_mean(plain *s, const double *g, int axis) {
    double now[ROOM];
    int n = axis ? s->columns : s->rows, k = axis ? s->rows : s->columns;
    multiply(now, g, axis, g, !axis, n, k, n);
    for (int i = 0; i < n * n; i++) s->mean[axis][i] += 0.05 * (now[i] - s->mean[axis][i]);
    return n;
}

static bool has_side(const plain *s, int axis) {
    return axis ? s->columns < 2 * s->rows : s->rows < 2 * s->columns;
}

/* The eigenvalues w of a [n, n] and its eigenvectors, the columns of q, by rotations [Jacobi 1846]. */
static void eigenvectors(double *a, double *q, int n) {
    for (int i = 0; i < n * n; i++) q[i] = i % (n + 1) == 0;
    for (int place = 0; place < 40 * n * n; place++) {
        int i = place / n % n, j = place % n;
        if (i >= j) continue;
        double angle = 0.5 * atan2(2 * a[i * n + j], a[j * n + j] - a[i * n + i]);
        double c = cos(angle), d = sin(angle);
        for (int side = 0; side < 3; side++) /* rows of a, columns of a, columns of q */
            for (int k = 0; k < n; k++) {
                double *x = side == 2 ? q : a, *u, *v;
                u = side ? &x[k * n + i] : &x[i * n + k], v = side ? &x[k * n + j] : &x[j * n + k];
                double was = *u;
                *u = c * was - d * *v, *v = d * was + c * *v;
            }
    }
}

static void plain_shampoo(plain *s, const double *g) {
    int r = s->rows, c = s->columns;
    double x[ROOM], y[ROOM], power = has_side(s, 0) && has_side(s, 1) ? -0.25 : -0.5;
    double eps = strstr(s->name, "tall") ? 1e-3 : 1e-5; /* of the groups */
    for (int i = 0; i < r * c; i++) {
        s->m[i] = 0.95 * s->m[i] + g[i];
        x[i] = g[i] + 0.95 * s->m[i];
    }
    for (int axis = 0; axis < 2; axis++) {
        if (!has_side(s, axis)) continue;
        double a[ROOM], q[ROOM], root[ROOM];
        int n = plain_mean(s, g, axis);
        double size = 1.02 * norm_of(s->mean[axis], n * n);
        for (int i = 0; i < n * n; i++) a[i] = s->mean[axis][i] / size + (i % (n + 1) ? 0 : eps);
        eigenvectors(a, q, n);
        for (int i = 0; i < n * n; i++) y[i] = q[i] * pow(a[i % n * (n + 1)], power);
        multiply(root, y, false, q, true, n, n, n);
        multiply(y, axis ? x : root, false, axis ? root : x, false, r, n, c);
        memcpy(x, y, sizeof x);
    }
    double scale = 0.2 * sqrt(r * c) / norm_of(x, r * c);
    for (int i = 0; i < r * c; i++) s->p[i] -= rate * (0.1 * s->p[i] + scale * x[i]);
}

/* q moves towards the eigenvectors of a. */
static void plain_basis(double *q, const double *a, int n) {
    double h[ROOM], k[ROOM] = {0}, y[ROOM];
    multiply(y, a, false, q, false, n, n, n);
    multiply(h, q, true, y, false, n, n, n);
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n; j++) {
            double hi = h[i * n + i], hj = h[j * n + j];
            double x = h[i * n + j] / (fmax(hi, hj) + 1e-6 * norm_of(h, n * n));
            k[i * n + j] = hj < hi ? -x : x, k[j * n + i] = -k[i * n + j];
        }
    multiply(y, k, false, k, true, n, n, n);
    double less = 0.7 / fmax(0.7, sqrt(norm_of(y, n * n) / sqrt(2)));
    multiply(y, q, false, k, false, n, n, n);
    for (int i = 0; i < n * n; i++) q[i] += less * y[i];
    for (int step = 0; step < 3; step++) {
        multiply(h, q, true, q, false, n, n, n);
        multiply(y, q, false, h, false, n, n, n);
        for (int i = 0; i < n * n; i++) q[i] = 1.5 * q[i] - 0.5 * y[i];
    }
}

/* x times the bases, or their inverses */
static void into_bases(const plain *s, double *x, bool back) {
    for (int axis = 0; axis < 2; axis++) {
        double y[ROOM];
        const double *q = s->basis[axis];
        if (!has_side(s, axis)) continue;
        if (axis)
            multiply(y, x, false, q, back, s->rows, s->columns, s->columns);
        else
            multiply(y, q, !back, x, false, s->rows, s->rows, s->columns);
        memcpy(x, y, sizeof y);
    }
}

static void plain_soap(plain *s, const double *g, int t) {
    int count = s->rows * s->columns;
    double in[ROOM], x[ROOM];
    for (int axis = 0; axis < 2; axis++) {
        if (!has_side(s, axis)) continue;
        int n = plain_mean(s, g, axis);
        for (int i = 0; t == 1 && i < n * n; i++) s->basis[axis][i] = i % (n + 1) == 0;
        plain_basis(s->basis[axis], s->mean[axis], n);
    }
    for (int i = 0; i < count; i++) {
        s->m[i] = 0.95 * s->m[i] + 0.05 * g[i];
        x[i] = s->m[i], in[i] = g[i];
    }
    into_bases(s, in, false), into_bases(s, x, false);
    for (int i = 0; i < count; i++) {
        s->v[i] = 0.95 * s->v[i] + 0.05 * in[i] * in[i];
        x[i] /= sqrt(s->v[i] / (1 - pow(0.95, t))) + 1e-8;
    }
    into_bases(s, x, true);
    for (int i = 0; i < count; i++) s->p[i] -= rate * (0.01 * s->p[i] + x[i] / (1 - pow(0.95, t)));
}

static void plain_step(plain *s, int t) {
    double g[ROOM];
    for (int i = 0; i < ROOM; i++) g[i] = curve_of(i) * (s->p[i] - goal_of(i));
    if (strstr(s->name, "muon"))
        plain_muon(s, g, strstr(s->name, "nor"), strstr(s->name, "polar"));
    else if (strstr(s->name, "shampoo"))
        plain_shampoo(s, g);
    else if (strstr(s->name, "soap"))
        plain_soap(s, g, t);
    else if (strstr(s->name, "ada"))
        plain_adafactor(s, g, t);
    else
        plain_lion(s, g);
}

/* ---- the same as a module ---- */

/* Matrices nearly square and long ones: both forms of the iterations, on both sides. */
static const plain start[] = {
    {.name = "lion.w", .rows = 4, .columns = 6},
    {.name = "muon.w", .rows = 4, .columns = 4},
    {.name = "muon.tall", .rows = 8, .columns = 4},
    {.name = "polar_muon.wide", .rows = 4, .columns = 8},
    {.name = "normuon.w", .rows = 6, .columns = 4},
    {.name = "ada.w", .rows = 4, .columns = 6},
    {.name = "ada.b", .rows = 4},
    {.name = "shampoo.w", .rows = 4, .columns = 4},
    {.name = "shampoo.wide", .rows = 4, .columns = 8},
    {.name = "shampoo.tall", .rows = 8, .columns = 4},
    {.name = "soap.w", .rows = 6, .columns = 4},
    {.name = "soap.wide", .rows = 4, .columns = 8},
};
enum { N = sizeof start / sizeof *start };

static int count_of(const plain *s) {
    return s->rows * (s->columns ? s->columns : 1);
}

/* The input `part` scales the gradients. */
static sn_module *new_module(void) {
    sn_module *m = sn_module_new("updates");
    sn_tensor param[N], loss = NULL;
    for (int k = 0; k < N; k++) {
        const plain *s = &start[k];
        param[k] = s->columns ? sn_param(m, s->name, SN_F32, s->rows, s->columns)
                              : sn_param(m, s->name, SN_F32, s->rows);
        sn_tensor flat = sn_reshape(param[k], count_of(s)), i = sn_arange(m, SN_F32, count_of(s));
        sn_tensor away = sn_sub(flat, sn_sin(sn_add(sn_mul(i, 1.7), 0.3)));
        away = sn_mul(sn_square(away), sn_add(sn_mul(i, 0.05), 0.5));
        sn_tensor one = sn_mul(sn_sum_all(away), 0.5);
        loss = loss ? sn_add(loss, one) : one;
    }
    sn_optimizer_group group[] = {
        {.match = "normuon.*", .optimizer = sn_optimizer_of(SN_NORMUON)},
        {.match = "polar*", .axes = 2, .optimizer = sn_optimizer_of(SN_MUON)},
        {.match = "muon.*", .axes = 2, .optimizer = sn_optimizer_of(SN_MUON)},
        {.match = "ada.[wb]", .optimizer = sn_optimizer_of(SN_ADAFACTOR)},
        {.match = "shampoo.tall", .optimizer = sn_optimizer_of(SN_SHAMPOO)},
        {.match = "shampoo*", .optimizer = sn_optimizer_of(SN_SHAMPOO)},
        {.match = "soap*", .optimizer = sn_optimizer_of(SN_SOAP)},
        {.rate = 0.1, .optimizer = sn_optimizer_of(SN_LION)},
    };
    group[1].optimizer.polar = true;
    group[4].optimizer.eps = 1e-3;
    sn_optimizer o = {.kind = SN_SGD, .group = group, .groups = sizeof group / sizeof *group};
    sn_entry_begin(m, "step");
    loss = sn_sum_all(sn_mul(loss, sn_input(m, "part", SN_F32, 1)));
    sn_output("loss", loss);
    sn_optimize(loss, sn_scalar(m, SN_F32, rate), N, param, &o);
    return m;
}

static void need(bool ok, const sn_error *err) {
    if (!ok) fail_msg("%s", err->message);
}

/* A session in which parameter k begins at p_i = cos(2.1 i + k), as `want` does. */
static sn_session *new_session(sn_module *m, int level, plain *want, sn_program **p) {
    sn_error err = {0};
    float first[N][ROOM];
    int64_t shape[N][2];
    sn_arg_binding param[N];
    memcpy(want, start, sizeof start);
    for (int k = 0; k < N; k++) {
        for (int i = 0; i < ROOM; i++) want[k].p[i] = first[k][i] = (float)cos(2.1 * i + k);
        shape[k][0] = want[k].rows, shape[k][1] = want[k].columns;
        param[k] =
            (sn_arg_binding){want[k].name, SN_F32, want[k].columns ? 2 : 1, shape[k], first[k]};
    }
    *p = sn_compile(m, &(sn_options){.level = level, .threads = 2, .cache_dir = scratch_dir}, &err);
    need(*p != NULL, &err);
    sn_session *s = sn_session_new_arrays(*p, param, N, &err);
    need(s != NULL, &err);
    return s;
}

static void step(sn_session *s, float part) {
    sn_error err = {0};
    const sn_arg_binding in = {"part", SN_F32, 1, (int64_t[]){1}, &part};
    need(sn_run(s, "step", &in, 1, NULL, 0, &err), &err);
}

static void read_param(sn_session *s, const plain *of, float *now) {
    sn_error err = {0};
    need(sn_state_read(s, of->name, now, sizeof *now * (size_t)count_of(of), &err), &err);
}

static void compare(sn_session *s, const plain *want, int level) {
    float now[ROOM];
    read_param(s, want, now);
    for (int i = 0; i < count_of(want); i++)
        if (!(fabs(now[i] - want->p[i]) <= 2e-5))
            fail_msg("level %d, %s[%d]: %.8g, not %.8g", level, want->name, i, now[i], want->p[i]);
}

static void fifty_steps(void **state) {
    (void)state;
    sn_module *m = new_module();
    for (int level = 0; level <= 4; level += 4) {
        plain want[N];
        sn_program *p;
        sn_session *s = new_session(m, level, want, &p);
        for (int t = 1; t <= STEPS; t++) {
            step(s, 1);
            for (int k = 0; k < N; k++) plain_step(&want[k], t);
        }
        for (int k = 0; k < N; k++) compare(s, &want[k], level);
        sn_session_free(s);
        sn_program_free(p);
    }
    sn_module_free(m);
}

/* Steps of Adafactor have the same size for gradients of 1e-4. */
static void small_gradients(void **state) {
    (void)state;
    sn_module *m = new_module();
    plain want[N];
    sn_program *p;
    sn_session *s = new_session(m, 4, want, &p);
    for (int t = 1; t <= 10; t++) {
        step(s, 1e-4F);
        for (int k = 0; k < N; k++) plain_step(&want[k], t);
    }
    for (int k = 0; k < N; k++)
        if (!strncmp(want[k].name, "ada.", 4)) compare(s, &want[k], 4);
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(m);
}

/* Gradients become 0, as those of an expert that is not chosen: means decay to 0 through all sizes. */
static void gradients_vanish(void **state) {
    (void)state;
    sn_module *m = new_module();
    plain want[N];
    float before[N][ROOM], now[ROOM];
    sn_program *p;
    sn_session *s = new_session(m, 4, want, &p);
    for (int t = 0; t < 10; t++) step(s, 1);
    for (int k = 0; k < N; k++) read_param(s, &want[k], before[k]);
    for (int t = 0; t < 2500; t++) step(s, 0);
    for (int k = 0; k < N; k++) {
        read_param(s, &want[k], now);
        for (int i = 0; i < count_of(&want[k]); i++)
            if (!(fabs(now[i] - before[k][i]) < 2500 * rate))
                fail_msg("%s[%d]: %g after %g", want[k].name, i, now[i], before[k][i]);
    }
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(m);
}

/* The reference's steps of SOAP's bases end in eigenvectors of a constant matrix with eigenvalues from 1 to 1e-3, and stay
 * orthogonal. */
static void bases_of_soap(void **state) {
    (void)state;
    double x[ROOM], vectors[ROOM], a[ROOM], q[ROOM] = {0}, h[ROOM], y[ROOM];
    for (int i = 0; i < ROOM; i++) a[i] = sin(1.7 * (i / SIDE + 1) * (i % SIDE + 1));
    for (int i = 0; i < ROOM; i++) x[i] = a[i] + a[i % SIDE * SIDE + i / SIDE];
    eigenvectors(x, vectors, SIDE);
    for (int i = 0; i < ROOM; i++) y[i] = vectors[i] * pow(10, -3.0 * (i % SIDE) / (SIDE - 1));
    multiply(a, y, false, vectors, true, SIDE, SIDE, SIDE);
    for (int i = 0; i < SIDE; i++) q[i * (SIDE + 1)] = 1;
    for (int i = 0; i < 60; i++) plain_basis(q, a, SIDE);
    multiply(y, a, false, q, false, SIDE, SIDE, SIDE);
    multiply(h, q, true, y, false, SIDE, SIDE, SIDE);
    multiply(y, q, true, q, false, SIDE, SIDE, SIDE);
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) {
            double size = sqrt(h[i * (SIDE + 1)] * h[j * (SIDE + 1)]);
            assert_true(fabs(y[i * SIDE + j] - (i == j)) <= 1e-9);
            assert_true(i == j || fabs(h[i * SIDE + j]) <= 1e-3 * size);
        }
}

/* ---- groups ---- */

static bool assigns(sn_module *m, const char *name) {
    const sn_entry *e = sn_entry_get(m, "step");
    for (int i = 0; i < e->n_assign; i++)
        if (!strcmp(e->assign[i].name, name)) return true;
    return false;
}

/* The usual groups: matrices by Muon, but not embeddings and heads. */
static void hidden_matrices(void **state) {
    (void)state;
    static const char *const names[] = {"wte.weight", "h.0.fc.weight", "h.0.fc.bias", "lm_head.w"};
    sn_module *m = sn_module_new("hidden");
    sn_tensor param[4], loss = NULL;
    for (int i = 0; i < 4; i++) {
        param[i] = i == 2 ? sn_param(m, names[i], SN_F32, 4) : sn_param(m, names[i], SN_F32, 4, 4);
        loss = loss ? sn_add(loss, sn_sum_all(param[i])) : sn_sum_all(param[i]);
    }
    sn_optimizer muon = sn_optimizer_of(SN_MUON), adam = sn_optimizer_of(SN_ADAMW);
    adam.max_norm = 1;
    sn_optimizer_group group[SN_HIDDEN_GROUPS];
    sn_optimizer o = sn_optimizer_hidden(&muon, &adam, group);
    assert_true(o.max_norm == 1);
    sn_entry_begin(m, "step");
    sn_optimize(loss, sn_scalar(m, SN_F32, 1), 4, param, &o);
    sn_error err = {0};
    need(sn_module_ok(m, &err), &err);
    for (int i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "optimizer.v.%s", names[i]);
        assert_true(assigns(m, name) == (i != 1)); /* Muon has no second moment */
    }
    sn_module_free(m);
}

static sn_tensor takes_axis(const sn_update *u) {
    const int *axis = u->o->user;
    return sn_add(u->param, sn_update_axis_state(u, "row", *axis));
}

static void mistakes(void **state) {
    (void)state;
    static const int axis[] = {0, 2};
    const sn_optimizer muon = sn_optimizer_of(SN_MUON);
    const sn_optimizer_group clips = {.match = "w*", .optimizer = {.max_norm = 1}};
    const struct {
        sn_optimizer o;
        const char *words[2];
    } wrong[] = {
        {muon, {"updates matrices only, but parameter", "sn_optimizer_hidden"}},
        {{.group = &clips, .groups = 1}, {"group 1 ('w*')", "max_norm"}},
        {{.update = takes_axis, .user = &axis[0]}, {"axis 0 of", "a matrix"}},
        {{.update = takes_axis, .user = &axis[1]}, {"axis 2 of", "0 or 1"}},
        {{.kind = SN_SHAMPOO, .eps = 1e-9}, {"eps is 1e-09", "1e-6 to 1"}},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        sn_error err = {0};
        sn_module *m = sn_module_new("mistake");
        sn_tensor w = sn_param(m, "w", SN_F32, 3);
        sn_entry_begin(m, "step");
        sn_optimize(sn_sum_all(w), sn_scalar(m, SN_F32, 1), 1, &w, &wrong[i].o);
        assert_false(sn_module_ok(m, &err));
        for (int k = 0; k < 2; k++)
            if (!strstr(err.message, wrong[i].words[k]))
                fail_msg("wanted '%s' in: %s", wrong[i].words[k], err.message);
        sn_module_free(m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fifty_steps),      cmocka_unit_test(small_gradients),
        cmocka_unit_test(gradients_vanish), cmocka_unit_test(bases_of_soap),
        cmocka_unit_test(hidden_matrices),  cmocka_unit_test(mistakes),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
