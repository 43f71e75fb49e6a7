/* Linear recurrences written as sn_scan: from level 3 on they become chunks of products. Compared with
 * level 0, where the loop runs element by element: every kind of decay and delta rule, in either
 * orientation of the state, in lengths that are not multiples of a chunk and widths that are none of a
 * vector, with strong decays; with the same bits on one thread and on two. */
#include "bench/recurrence.h"
#include "frontend/sinter.h"
#include "passes/passes.h"
#include "tests/support/effort.h"
#include "tests/support/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>

enum { H = 2, K = 8, ODD_K = 13, ODD_V = 11, T = 99, MAX_IN = 6, MAX_OUT = 12, MAX_SIZE = 4096 };

static sn_tensor unit(sn_tensor k) {
    return sn_div(k, sn_sqrt(sn_add(sn_sum_keep(sn_square(k), -1), 1e-6)));
}
static sn_tensor decay(sn_tensor x, double strength) {
    return sn_exp(sn_mul(sn_softplus(x), -strength));
}

/* ---- the bodies: x[0 .. 2] are q, k, v ---- */

static void vector_step(sn_scan_step *s) {
    sn_tensor written = sn_einsum("bhj,bhi->bhij", s->x[2], s->x[1]);
    s->next[0] = sn_add(sn_mul(col(s->x[3]), s->carry[0]), written);
    s->y[0] = times_state(s->x[0], s->next[0]);
}
static void scalar_step(sn_scan_step *s) { /* state [V, K] */
    sn_tensor kept = sn_mul(sn_expand(col(s->x[3]), -1), s->carry[0]);
    s->next[0] = sn_add(kept, sn_mul(col(s->x[2]), row(s->x[1])));
    s->y[0] = sn_sum(sn_mul(s->next[0], row(s->x[0])), -1);
}
static void bonus_step(sn_scan_step *s) { /* reads the state before the element */
    const sn_tensor *u = s->user;
    sn_tensor now = sn_sum_keep(sn_mul(sn_mul(s->x[0], *u), s->x[1]), -1);
    s->y[0] = sn_add(times_state(s->x[0], s->carry[0]), sn_mul(now, s->x[2]));
    s->next[0] = sn_add(sn_mul(s->carry[0], col(s->x[3])), sn_matmul(col(s->x[1]), row(s->x[2])));
}
static void delta_step(sn_scan_step *s) {
    sn_tensor S = sn_mul(s->carry[0], sn_expand(col(s->x[3]), -1));
    sn_tensor miss = sn_sub(s->x[2], times_state(s->x[1], S));
    s->next[0] = sn_add(S, sn_mul(col(s->x[1]), row(sn_mul(col(s->x[4]), miss))));
    s->y[0] = times_state(s->x[0], s->next[0]);
}
static void general_step(sn_scan_step *s) { /* state [V, K] */
    sn_tensor moved = sn_matmul(s->carry[0], sn_matmul(col(s->x[4]), row(s->x[5])));
    sn_tensor kept = sn_add(sn_mul(s->carry[0], row(s->x[3])), moved);
    s->next[0] = sn_add(kept, sn_mul(col(s->x[2]), row(s->x[1])));
    s->y[0] = sn_sum(sn_mul(s->next[0], row(s->x[0])), -1);
}

/* Products of matrices, as papers write them: S (a I - b k^T k) + b v^T k, state [V, K], and (diag w + b^T a) S. */
static void right_step(sn_scan_step *s) {
    sn_tensor i = sn_arange(s->m, SN_I32, K), eye = sn_cast(sn_eq(sn_expand(i, 1), i), SN_F32);
    sn_tensor k = s->x[1], share = sn_sub(1.0, sn_expand(col(s->x[3]), -1));
    sn_tensor removed = sn_mul(sn_mul(sn_expand(col(s->x[4]), -1), col(k)), row(k));
    s->next[0] = sn_add(sn_matmul(s->carry[0], sn_sub(sn_mul(share, eye), removed)),
                        sn_mul(col(s->x[2]), row(sn_mul(col(s->x[4]), k))));
    s->y[0] = sn_sum(sn_mul(s->next[0], row(s->x[0])), -1);
}
static void left_step(sn_scan_step *s) {
    const sn_tensor *eye = s->user;
    sn_tensor low = sn_einsum("bhi,bhj->bhij", s->x[5], s->x[4]);
    sn_tensor kept = sn_matmul(sn_add(low, sn_mul(*eye, col(s->x[3]))), s->carry[0]);
    s->next[0] = sn_add(kept, sn_einsum("bhi,bhj->bhij", s->x[1], s->x[2]));
    s->y[0] = times_state(s->x[0], s->next[0]);
}

static sn_scanned gated(const sn_tensor *in) {
    return sn_scan(.carry = {in[4]}, .x = {in[0], in[1], in[2], decay(in[3], 0.3)}, .axis = 2,
                   .body = vector_step);
}
static sn_scanned strongly_gated(const sn_tensor *in) {
    return sn_scan(.carry = {in[4]}, .x = {in[0], in[1], in[2], decay(in[3], 40)}, .axis = 2,
                   .body = vector_step);
}
static sn_scanned state_space(const sn_tensor *in) {
    return sn_scan(.carry = {in[4]}, .x = {in[0], in[1], in[2], decay(in[3], 0.3)}, .axis = 2,
                   .body = scalar_step);
}
/* Decays of the heads that are known, as an array and by RetNet's formula. */
static void known_step(sn_scan_step *s) {
    sn_tensor array = sn_array(s->m, SN_F32, ((double[]){0.9, 0.99}), H, 1, 1);
    sn_tensor h = sn_iota(s->m, SN_F32, 0, H, 1, 1), gamma = sn_sub(1.0, sn_exp2(sn_sub(-5.0, h)));
    sn_tensor kept = sn_mul(sn_mul(array, gamma), s->carry[0]);
    s->next[0] = sn_add(kept, sn_mul(col(s->x[1]), row(s->x[2])));
    s->y[0] = times_state(s->x[0], s->next[0]);
}
static sn_scanned known(const sn_tensor *in) {
    return sn_scan(.carry = {in[3]}, .x = {in[0], in[1], in[2]}, .axis = 2, .body = known_step);
}
static sn_scanned with_bonus(const sn_tensor *in) {
    return sn_scan(.carry = {in[4]}, .x = {in[0], in[1], in[2], decay(in[3], 0.3)}, .axis = 2,
                   .body = bonus_step, .user = &in[5]);
}
static sn_scanned gated_delta(const sn_tensor *in) {
    return sn_scan(.carry = {in[4]},
                   .x = {in[0], unit(in[1]), in[2], sn_sigmoid(in[3]), sn_sigmoid(in[5])},
                   .axis = 2, .body = delta_step);
}
static sn_scanned general_delta(const sn_tensor *in) {
    sn_tensor k = unit(in[1]);
    return sn_scan(.carry = {in[4]},
                   .x = {in[0], in[1], in[2], decay(in[3], 0.3), sn_neg(k),
                         sn_mul(k, sn_sigmoid(in[5]))},
                   .axis = 2, .body = general_step);
}
static sn_scanned right_matrix(const sn_tensor *in) {
    return sn_scan(.carry = {in[4]},
                   .x = {in[0], unit(in[1]), in[2], sn_sigmoid(in[3]), sn_sigmoid(in[5])},
                   .axis = 2, .body = right_step);
}
static sn_scanned left_matrix(const sn_tensor *in) {
    sn_module *m = sn_module_of(in[0]);
    sn_tensor k = unit(in[1]), i = sn_iota(m, SN_I32, 0, K, K), j = sn_iota(m, SN_I32, 1, K, K);
    sn_tensor eye = sn_where(sn_eq(i, j), sn_scalar(m, SN_F32, 1), 0.0);
    return sn_scan(.carry = {in[4]},
                   .x = {in[0], in[1], in[2], decay(in[3], 0.3), sn_neg(k),
                         sn_mul(k, sn_sigmoid(in[5]))},
                   .axis = 2, .body = left_step, .user = &eye);
}
/* xLSTM's matrix memory as the paper writes it: besides the matrix a sum of keys and a running maximum. */
static void memory_step(sn_scan_step *s) {
    sn_tensor f = sn_log_sigmoid(s->x[3]), in = s->x[4], m = sn_max(sn_add(f, s->carry[2]), in);
    sn_tensor keep = col(sn_exp(sn_sub(sn_add(f, s->carry[2]), m))),
              take = col(sn_exp(sn_sub(in, m)));
    s->next[0] =
        sn_add(sn_mul(col(keep), s->carry[0]), sn_mul(col(sn_mul(take, s->x[1])), row(s->x[2])));
    s->next[1] = sn_add(sn_mul(keep, s->carry[1]), sn_mul(take, s->x[1]));
    s->next[2] = m;
    sn_tensor n = sn_abs(sn_sum_keep(sn_mul(s->next[1], s->x[0]), -1));
    s->y[0] = sn_div(times_state(s->x[0], s->next[0]), sn_max(n, sn_exp(sn_neg(col(m)))));
}
static sn_scanned memory(const sn_tensor *in) {
    sn_module *m = sn_module_of(in[0]);
    sn_tensor sum = sn_full(m, SN_F32, 0, 1, H, K), largest = sn_full(m, SN_F32, 0, 1, H);
    return sn_scan(.carry = {in[4], sum, largest}, .x = {in[0], in[1], in[2], in[3], in[5]},
                   .axis = 2, .body = memory_step);
}

/* Queries and keys that heads share, without an axis of heads, and a query that batches share; state [V, K]. */
static void shared_step(sn_scan_step *s) { /* x: q, k [B, K], v [B, H, V], decay [B, H] */
    const sn_tensor *u = s->user;
    sn_tensor written = sn_einsum("bhv,bk->bhvk", s->x[2], s->x[1]);
    s->next[0] = sn_add(sn_mul(col(col(s->x[3])), s->carry[0]), written);
    s->y[0] = sn_add(sn_einsum("bhvk,bk->bhv", s->next[0], s->x[0]),
                     sn_einsum("bhvk,hk->bhv", s->next[0], *u));
}
static sn_scanned shared(const sn_tensor *in) {
    sn_tensor q = sn_squeeze(in[0], 0), k = sn_squeeze(in[1], 0), v = sn_squeeze(in[2], 0);
    return sn_scan(.carry = {in[4]}, .x = {q, k, sn_reshape(v, H, T, 2, K / 2), decay(in[3], 0.3)},
                   .axis = 1, .body = shared_step, .user = &in[5]);
}

/* HGRN2's decays, whose lower bounds are running sums of a softmax: of the layers below, or as the difference from
 * the first layer's. Some are 0 in f32. */
static void bounded_step(sn_scan_step *s) {
    s->next[0] =
        sn_add(sn_mul(col(s->x[3]), s->carry[0]), sn_mul(col(sn_sub(1.0, s->x[3])), row(s->x[2])));
    s->y[0] = times_state(s->x[0], s->next[0]);
}
static sn_scanned bounded_by(const sn_tensor *in, sn_tensor low, double strength) {
    low = sn_expand(sn_slice(low, 0, 0, H), 1);
    sn_tensor f = sn_add(low, sn_mul(sn_sub(1, low), sn_sigmoid(sn_mul(in[3], strength))));
    return sn_scan(.carry = {in[4]}, .x = {in[0], in[1], in[2], f}, .axis = 2,
                   .body = bounded_step);
}
static sn_scanned bounded(const sn_tensor *in) {
    return bounded_by(in, sn_cumulate(sn_softmax(in[5], 0), .axis = 0, .exclusive = true), 400);
}
static sn_scanned bounded_as_published(const sn_tensor *in) {
    sn_tensor share = sn_softmax(in[5], 0);
    return bounded_by(in, sn_sub(sn_cumsum(share, 0), sn_slice(share, 0, 0, 1)), 2);
}

/* ---- running ---- */

#define SEQUENCE                                                                                   \
    { 1, H, T, K }
#define STATE                                                                                      \
    { 1, H, K, K }
#define ODD_STATE                                                                                  \
    { 1, H, ODD_K, ODD_V }
static const struct model {
    const char *name;
    sn_scanned (*build)(const sn_tensor *in);
    int n_in;
    int64_t shape[3][4]; /* of in[3 ..]; 0 ends a shape */
    bool slow;           /* its gradient takes long to compile */
    bool has_prologue;   /* at level 4 */
    bool odd;            /* ODD_K and ODD_V instead of K */
} models[] = {
    {"gated", gated, 5, {SEQUENCE, STATE}, true, true, false},
    {"strongly gated", strongly_gated, 5, {SEQUENCE, STATE}, true, true, false},
    {"state space", state_space, 5, {{1, H, T}, STATE}, false, false, false},
    {"known decays", known, 4, {STATE}, true, false, false},
    {"with bonus", with_bonus, 6, {SEQUENCE, STATE, {H, K}}, true, true, false},
    {"gated delta", gated_delta, 6, {{1, H, T}, STATE, {1, H, T}}, true, true, false},
    {"general delta", general_delta, 6, {SEQUENCE, STATE, SEQUENCE}, true, true, false},
    {"from the right", right_matrix, 6, {{1, H, T}, STATE, {1, H, T}}, true, true, false},
    {"from the left", left_matrix, 6, {SEQUENCE, STATE, SEQUENCE}, true, true, false},
    {"several carries", memory, 6, {{1, H, T}, STATE, {1, H, T}}, false, true, false},
    {"shared by heads", shared, 6, {{H, T, 2}, {H, 2, K / 2, K}, {2, K}}, false, true, false},
    {"bounded decays", bounded, 6, {SEQUENCE, STATE, {3, K}}, false, true, false},
    {"differences", bounded_as_published, 6, {SEQUENCE, STATE, {3, K}}, true, true, false},
    {"gated, 13 x 11", gated, 5, {{1, H, T, ODD_K}, ODD_STATE}, true, true, true},
    {"state space, 11 x 13", state_space, 5, {{1, H, T}, {1, H, ODD_V, ODD_K}}, false, false, true},
    {"gated delta, 13 x 11", gated_delta, 6, {{1, H, T}, ODD_STATE, {1, H, T}}, true, true, true},
};

typedef struct built {
    sn_module *m;
    sn_tensor in[MAX_IN], loss;
    sn_arg_binding bind[MAX_IN];
    int64_t shape[MAX_IN][4];
    float data[MAX_IN][MAX_SIZE];
    int n_out;
    bool gradient;
    char name[MAX_OUT][16];
} built;

/* gradient: of leaves, before which the loss is raised; else of what is made of them, without it. */
static built *build(const struct model *c, bool gradient, bool of_leaves) {
    static const char *const names[] = {"i0", "i1", "i2", "i3", "i4", "i5"};
    static const int64_t sequence[4] = SEQUENCE;
    built *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->m = sn_module_new(c->name);
    sn_entry_begin(f->m, "main");
    sn_tensor in[MAX_IN], out[MAX_OUT];
    uint32_t seed = 7;
    for (int i = 0; i < c->n_in; i++) {
        int64_t count = 1;
        int rank = 0;
        sn_dim dims[5];
        memcpy(f->shape[i], i < 3 ? sequence : c->shape[i - 3], sizeof f->shape[i]);
        if (c->odd && i < 3) f->shape[i][3] = i < 2 ? ODD_K : ODD_V;
        for (; rank < 4 && f->shape[i][rank]; rank++) count *= dims[rank] = f->shape[i][rank];
        dims[rank] = SN_END;
        assert_true(count <= MAX_SIZE);
        f->in[i] = sn_input_at(SN_HERE, f->m, names[i], SN_F32, dims);
        in[i] = of_leaves ? f->in[i] : sn_mul(f->in[i], sn_add(sn_mul(f->in[i], 0.0), 1.0));
        for (int64_t e = 0; e < count; e++) {
            seed = seed * 1664525 + 1013904223;
            f->data[i][e] = (float)(seed >> 8) / (1 << 23) - 1;
        }
        f->bind[i] = (sn_arg_binding){names[i], SN_F32, rank, f->shape[i], f->data[i]};
    }
    sn_scanned r = c->build(in);
    f->loss = sn_add(sn_sum_all(sn_square(r.y[0])), sn_sum_all(sn_square(r.carry[0])));
    out[f->n_out++] = r.y[0];
    out[f->n_out++] = r.carry[0];
    f->gradient = gradient;
    if (gradient) sn_grad(f->loss, c->n_in, in, out + 2);
    if (gradient) f->n_out += c->n_in;
    for (int i = 0; i < f->n_out; i++) {
        snprintf(f->name[i], sizeof f->name[i], "o%d", i);
        sn_output(f->name[i], out[i]);
    }
    sn_error err;
    if (!sn_module_ok(f->m, &err)) fail_msg("%s: %s", c->name, err.message);
    return f;
}

typedef struct way {
    int level, threads;
    const char *target, *compute;
} way;

static void run_at(built *f, const struct model *c, way how, float (*out)[MAX_SIZE],
                   int64_t *count) {
    sn_error err = {0};
    sn_options o = sn_options_default();
    sn_arg_binding to[MAX_OUT];
    int64_t shape[MAX_OUT][8];
    char *text = NULL;
    size_t size;
    o.level = how.level;
    o.threads = how.threads;
    o.target = how.target;
    o.compute = how.compute;
    sn_program *p = sn_compile(f->m, &o, &err);
    if (!p && err.code == SN_ERR_TARGET) return; /* a target that this machine is not */
    if (!p) fail_msg("%s, level %d: %s", c->name, how.level, err.message);
    FILE *explained = open_memstream(&text, &size);
    sn_program_explain(p, "main", explained);
    fclose(explained);
    assert_true((strstr(text, "  recurrence ") != NULL) == (how.level > 0));
    if (!f->gradient && (strstr(text, "prologue:") != NULL) != (how.level > 3 && c->has_prologue))
        fail_msg("%s, level %d: %s", c->name, how.level, text);
    assert_true((strstr(text, "products of bf16") != NULL) == (how.compute != NULL));
    free(text);
    sn_session *s = sn_session_new(p, NULL, &err);
    for (int i = 0; i < f->n_out; i++) {
        int rank = sn_output_shape(p, "main", f->bind, c->n_in, f->name[i], shape[i], &err);
        count[i] = 1;
        for (int a = 0; a < rank; a++) count[i] *= shape[i][a];
        to[i] = (sn_arg_binding){f->name[i], SN_F32, rank, shape[i], out[i]};
    }
    if (!sn_run(s, "main", f->bind, c->n_in, to, f->n_out, &err)) fail_msg("%s", err.message);
    sn_session_free(s);
    sn_program_free(p);
}

static double largest(int64_t count, const float *x) {
    double most = 0;
    for (int64_t e = 0; e < count; e++) most = fmax(most, fabs((double)x[e]));
    return most;
}

enum { OF_DECAYS = 2 + 3 /* result: the gradient of in[3] */ };

/* Relative to the largest element. The gradient of decays is a difference of sums of products of the
 * other operands with their gradients: relative to what these are, too. */
static void compare(const struct model *c, int n, const int64_t *count, float (*want)[MAX_SIZE],
                    float (*got)[MAX_SIZE], double tolerance) {
    for (int i = 0; i < n; i++) {
        double most = largest(count[i], want[i]), worst = 0;
        if (i == OF_DECAYS) most = fmax(most, largest(count[2], want[2]));
        for (int64_t e = 0; e < count[i]; e++) {
            double d = fabs((double)got[i][e] - (double)want[i][e]);
            if (!(d <= worst)) worst = d;
        }
        if (!(worst <= tolerance * most))
            fail_msg("%s: result %d differs by %g of %g", c->name, i, worst, most);
    }
}

static void same_values(void **state) {
    static float want[MAX_OUT][MAX_SIZE], got[MAX_OUT][MAX_SIZE];
    int64_t count[MAX_OUT];
    (void)state;
    for (size_t k = 0; k < sizeof models / sizeof *models; k++) {
        built *f = build(&models[k], false, true);
        run_at(f, &models[k], (way){0, 2, NULL, NULL}, want, count);
        run_at(f, &models[k], (way){4, 2, NULL, NULL}, got, count);
        compare(&models[k], f->n_out, count, want, got, 1e-5);
        run_at(f, &models[k], (way){4, 1, NULL, NULL}, want, count); /* the same bits */
        for (int i = 0; i < f->n_out; i++)
            assert_memory_equal(want[i], got[i], sizeof(float) * (size_t)count[i]);
        sn_module_free(f->m);
        free(f);
    }
}

/* Vectors of 4 instead of 8 lanes, without fused multiply-adds; a gradient, which is read both ways. */
static void same_with_narrow_vectors(void **state) {
    static float want[MAX_OUT][MAX_SIZE], got[MAX_OUT][MAX_SIZE];
    int64_t count[MAX_OUT];
    (void)state;
#if !defined __x86_64__
    skip();
#endif
    for (size_t k = 0; k < sizeof models / sizeof *models; k++) {
        if (!models[k].odd) continue;
        bool gradient = !models[k].slow || effort_is_long();
        built *f = build(&models[k], gradient, !gradient), *g = build(&models[k], gradient, true);
        run_at(f, &models[k], (way){0, 2, NULL, NULL}, want, count);
        run_at(g, &models[k], (way){4, 2, "x86-64", NULL}, got, count);
        compare(&models[k], f->n_out, count, want, got, 5e-5);
        sn_module_free(f->m);
        sn_module_free(g->m);
        free(f);
        free(g);
    }
}

/* The gradient through chunks against that of the loop. */
static void same_gradients(void **state) {
    static float want[MAX_OUT][MAX_SIZE], got[MAX_OUT][MAX_SIZE];
    int64_t count[MAX_OUT];
    (void)state;
    for (size_t k = 0; k < sizeof models / sizeof *models; k++) {
        if (models[k].slow && !effort_is_long()) continue;
        built *f = build(&models[k], true, false), *g = build(&models[k], true, true);
        run_at(f, &models[k], (way){0, 2, NULL, NULL}, want, count);
        run_at(g, &models[k], (way){4, 2, NULL, NULL}, got, count);
        compare(&models[k], f->n_out, count, want, got, 5e-5);
        sn_module_free(f->m);
        sn_module_free(g->m);
        free(f);
        free(g);
    }
}

/* What the graph after the passes means. */
static void evaluate(const built *f, const struct model *c, float (*out)[MAX_SIZE]) {
    sn_passes run;
    sn_pass_options o = {.level = 4, .backend = "native", .bf16_compute = true, .verify = true};
    assert_true(sn_passes_run(&run, f->m, &o));
    sn_eval *ev = sn_eval_new(f->m, NULL);
    for (int i = 0; i < c->n_in; i++) {
        size_t size = sizeof(float);
        for (int a = 0; a < f->bind[i].rank; a++) size *= (size_t)f->shape[i][a];
        assert_true(sn_eval_bind(ev, f->bind[i].name, f->data[i], size));
    }
    for (int i = 0; i < f->n_out; i++) {
        const sn_value *v = sn_eval_node(ev, sn_entry_at(f->m, 0)->output[i].node);
        if (!v) fail_msg("%s", sn_module_error(f->m)->message);
        for (int64_t e = 0; e < v->n; e++) out[i][e] = (float)v->data[e];
    }
    sn_eval_free(ev);
}

/* Products of bf16: the loop in f32 to 1 % of the largest element. The evaluator, which rounds the state
 * in each step where a kernel does so once a chunk, computes it to 1.5 %. The same bits on any number of
 * threads, and with and without the instruction. */
static void in_bf16(void **state) {
    static float want[MAX_OUT][MAX_SIZE], got[MAX_OUT][MAX_SIZE], again[MAX_OUT][MAX_SIZE];
    static const way same[] = {
        {4, 1, NULL, "bf16"}, {4, 3, "x86-64-v4", "bf16"}, {4, 3, "znver4", "bf16"}};
    int64_t count[MAX_OUT];
    (void)state;
    for (size_t k = 0; k < sizeof models / sizeof *models; k++) {
        const struct model *c = &models[k];
        const bool gradient = !c->slow || effort_is_long();
        if (c->slow && strcmp(c->name, "general delta") != 0 && !effort_is_long()) continue;
        if (!c->slow && !c->odd) continue;
        built *f = build(c, gradient, true), *g = build(c, gradient, true);
        run_at(f, c, (way){0, 2, NULL, NULL}, want, count);
        run_at(f, c, (way){4, 2, NULL, "bf16"}, got, count);
        compare(c, f->n_out, count, want, got, 1e-2);
        evaluate(g, c, again);
        compare(c, f->n_out, count, want, again, 1.5e-2);
        for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
            memcpy(again, got, sizeof got);
            run_at(f, c, same[i], again, count);
            for (int o = 0; o < f->n_out; o++)
                assert_memory_equal(again[o], got[o], sizeof(float) * (size_t)count[o]);
        }
        sn_module_free(f->m);
        sn_module_free(g->m);
        free(f);
        free(g);
    }
}

/* Decays that are a row of a table of run-time size: its numbers are not known. */
static void row_of_table(sn_scan_step *s) {
    sn_dim rows = sn_symbol(s->m, "T", 2, T);
    sn_tensor table = sn_reshape(sn_arange(s->m, SN_I32, sn_dim_mul(s->m, rows, H)), rows, H);
    sn_tensor h = sn_cast(sn_slice(table, 0, 0, 1), SN_F32);
    sn_tensor gamma = sn_reshape(sn_sub(1.0, sn_exp2(sn_sub(-5.0, h))), H, 1, 1);
    s->next[0] = sn_add(sn_mul(gamma, s->carry[0]), sn_mul(col(s->x[1]), row(s->x[2])));
    s->y[0] = times_state(s->x[0], s->next[0]);
}

/* The number of kernels of a loop of this body that begins with zeros, and of its gradient. */
static int count_kernels(sn_scan_fn body, int n, int64_t n_row) {
    sn_module *m = sn_module_new("zeros");
    sn_dim size = sn_symbol(m, "T", 2, T);
    sn_tensor x[4], grad[4];
    sn_options o = sn_options_default();
    sn_error err = {0};
    int count = 0;
    char name[] = "x0";
    sn_entry_begin(m, "main");
    for (int i = 0; i < n; i++, name[1]++)
        x[i] = sn_input(m, name, SN_F32, 1, H, size, i < 3 ? K : n_row);
    sn_tensor decays = n > 3 ? decay(x[3], 0.3) : NULL;
    sn_scanned r = sn_scan(.carry = {sn_full(m, SN_F32, 0, 1, H, K, K)}, .axis = 2,
                           .x = {x[0], x[1], x[2], decays}, .body = body);
    sn_grad(sn_sum_all(sn_square(r.y[0])), n, x, grad);
    for (int i = 0; i < n; i++) sn_output(sn_name_of(x[i]), grad[i]);
    o.plan_only = true;
    sn_program *p = sn_compile(m, &o, &err);
    if (!p) fail_msg("%s", err.message);
    char *text = explain_text(p, "main");
    if (sscanf(text, "entry main: %d kernel", &count) != 1) fail_msg("%s", text);
    free(text);
    sn_program_free(p);
    sn_module_free(m);
    return count;
}

static void from_zeros(void **state) {
    (void)state;
    assert_true(count_kernels(row_of_table, 3, 0) > 0);
    assert_in_range(count_kernels(vector_step, 4, K), 1, 8);
}

/* Pairs of columns as features: the outer product is a kernel, before which nothing is repeated. */
static void features_of_pairs(void **state) {
    (void)state;
    static const char *const name[] = {"q", "k", "v"};
    sn_module *m = sn_module_new("pairs");
    sn_tensor x[3];
    sn_options o = sn_options_default();
    sn_error err = {0};
    sn_entry_begin(m, "main");
    for (int i = 0; i < 3; i++) {
        x[i] = sn_input(m, name[i], SN_F32, 1, T, H, K);
        sn_tensor pairs = sn_mul(sn_expand(x[i], -1), sn_expand(x[i], -2));
        if (i < 2) x[i] = sn_reshape(pairs, 1, T, H, K * K);
        x[i] = sn_swap(x[i], 1, 2);
    }
    sn_scanned r =
        sn_scan(.carry = {sn_full(m, SN_F32, 0, 1, H, K, K * K)}, .axis = 2,
                .x = {x[0], x[1], x[2], sn_full(m, SN_F32, 0.5, 1, H, T)}, .body = scalar_step);
    sn_output("y", r.y[0]);
    o.plan_only = true;
    sn_program *p = sn_compile(m, &o, &err);
    if (!p) fail_msg("%s", err.message);
    char *text = explain_text(p, "main");
    if (!strstr(text, "  recurrence ") || strstr(text, "reshape before")) fail_msg("%s", text);
    free(text);
    sn_program_free(p);
    sn_module_free(m);
}

static void swapped_step(sn_scan_step *s) { /* what is read has heads before the batch */
    s->next[0] = sn_add(sn_mul(col(s->x[2]), s->carry[0]), sn_mul(col(s->x[1]), row(s->x[3])));
    s->y[0] = sn_einsum("bhi,bhij->hbj", s->x[0], s->next[0]);
}

static void plain_step(sn_scan_step *s) {
    swapped_step(s);
    s->y[0] = times_state(s->x[0], s->next[0]);
}

/* Heads before the batch in what is read; decays that may be negative, a positive number plus any. */
static void other_loops(void **state) {
    (void)state;
    enum { LENGTH = 40, SIZE = 2 * 2 * LENGTH * K };
    static const char *const name[] = {"q", "k", "g", "v"};
    static const int64_t shape[] = {2, 2, LENGTH, K};
    static float x[4][SIZE], y[2][SIZE];
    for (int i = 0; i < 4 * SIZE; i++) (&x[0][0])[i] = sinf((float)i) / 2;
    for (int i = 0; i < 4; i++) {
        sn_module *m = sn_module_new("other");
        sn_tensor in[4];
        sn_arg_binding bind[4], out = SN_BIND("y", SN_F32, y[i % 2], 2, 2, LENGTH, K);
        sn_error err = {0};
        sn_entry_begin(m, "main");
        for (int k = 0; k < 4; k++) {
            in[k] = sn_input(m, name[k], SN_F32, 2, 2, LENGTH, K);
            bind[k] = (sn_arg_binding){name[k], SN_F32, 4, shape, x[k]};
        }
        sn_tensor g = i < 2 ? sn_sigmoid(in[2]) : sn_add(sn_exp(sn_sub(in[2], 2)), in[2]);
        sn_scanned r =
            sn_scan(.carry = {sn_full(m, SN_F32, 0, 2, 2, K, K)}, .axis = 2,
                    .x = {in[0], in[1], g, in[3]}, .body = i < 2 ? swapped_step : plain_step);
        sn_output("y", r.y[0]);
        sn_program *p = sn_compile(m, &(sn_options){.level = i % 2 * 4}, &err);
        sn_session *s = p ? sn_session_new(p, NULL, &err) : NULL;
        if (!s || !sn_run(s, "main", bind, 4, &out, 1, &err)) fail_msg("%s", err.message);
        sn_session_free(s);
        sn_program_free(p);
        sn_module_free(m);
        for (int e = 0; i % 2 && e < SIZE; e++)
            if (!(fabsf(y[0][e] - y[1][e]) <= 1e-5F))
                fail_msg("%d: %g, not %g", i, y[1][e], y[0][e]);
    }
}

/* Two runs of TOKENS elements that begin where the last one ended. */
enum { TOKENS = 3, WIDE = 70 };
static void run_twice(sn_scan_fn step, int level, float (*y)[H * TOKENS * WIDE]) {
    const bool transposed = step == scalar_step; /* state [V, K] */
    static float data[4][H * TOKENS * WIDE];
    static const int64_t size[4] = {ODD_K, ODD_K, WIDE, ODD_K};
    static const char *const name[] = {"q", "k", "v", "g"};
    sn_module *m = sn_module_new("tokens");
    sn_tensor x[4],
        S = sn_state(m, "S", SN_F32, 1, H, transposed ? WIDE : ODD_K, transposed ? ODD_K : WIDE);
    sn_options o = sn_options_default();
    sn_error err = {0};
    int64_t shape[4][4];
    sn_arg_binding bind[4];
    sn_entry_begin(m, "main");
    for (int i = 0; i < 4; i++) {
        const int rank = i == 3 && transposed ? 3 : 4;
        memcpy(shape[i], (int64_t[]){1, H, TOKENS, size[i]}, sizeof shape[i]);
        for (int e = 0; e < H * TOKENS * WIDE; e++)
            data[i][e] = (float)(e * (i + 3) % 17) / 16 - 0.5F;
        x[i] = rank == 4 ? sn_input(m, name[i], SN_F32, 1, H, TOKENS, size[i])
                         : sn_input(m, name[i], SN_F32, 1, H, TOKENS);
        bind[i] = (sn_arg_binding){name[i], SN_F32, rank, shape[i], data[i]};
    }
    sn_scanned r =
        sn_scan(.carry = {S}, .x = {x[0], x[1], x[2], sn_sigmoid(x[3])}, .axis = 2, .body = step);
    sn_output("y", r.y[0]);
    sn_assign(S, r.carry[0]);
    o.level = level;
    sn_program *p = sn_compile(m, &o, &err);
    sn_session *s = p ? sn_session_new(p, NULL, &err) : NULL;
    if (!s) fail_msg("%s", err.message);
    char *text = explain_text(p, "main");
    if (level && (!strstr(text, "  recurrence ") || strstr(text, "copy"))) fail_msg("%s", text);
    free(text);
    sn_arg_binding out = SN_BIND("y", SN_F32, y[0], 1, H, TOKENS, WIDE);
    for (int k = 0; k < 2; k++, out.data = y[1])
        if (!sn_run(s, "main", bind, 4, &out, 1, &err)) fail_msg("%s", err.message);
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(m);
}

/* A state is overwritten by the carry at the end, without a copy, in either orientation. */
static void states_in_place(void **state) {
    static float want[2][H * TOKENS * WIDE], got[2][H * TOKENS * WIDE];
    (void)state;
    for (int i = 0; i < 2; i++) {
        run_twice(i ? scalar_step : vector_step, 0, want);
        run_twice(i ? scalar_step : vector_step, 4, got);
        for (int e = 0; e < H * TOKENS * WIDE; e++)
            assert_true(fabsf(want[1][e] - got[1][e]) <= 1e-5F && want[1][e] != want[0][e]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_values),       cmocka_unit_test(from_zeros),
        cmocka_unit_test(features_of_pairs), cmocka_unit_test(other_loops),
        cmocka_unit_test(states_in_place),   cmocka_unit_test(same_with_narrow_vectors),
        cmocka_unit_test(same_gradients),    cmocka_unit_test(in_bf16)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
