/* Scans whose body is elementwise: one kernel from level 2 on. Compared with the evaluator, at every
 * width of vectors that this machine has; the same bits for any number of threads. */
#include "bench/recurrence.h"
#include "frontend/sinter.h"
#include "ir/ir.h"
#include "tests/support/text.h"
#include "tests/support/effort.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>

/* More than a chunk of the sequence; not a whole number of vectors. */
enum { B = 2, T = 35, C = 37, N = 20, K = 5, MAX_IN = 6, MAX_OUT = 6, MAX_SIZE = B * T * C * K };

#define SEQ                                                                                        \
    { B, T, C }

/* ---- models ---- */

static void selective_step(sn_scan_step *s) {
    const sn_tensor *a = s->user;
    sn_tensor dt = col(s->x[1]), in = sn_mul(sn_mul(dt, col(s->x[0])), row(s->x[2]));
    s->next[0] = sn_add(sn_mul(sn_exp(sn_mul(dt, sn_neg(sn_exp(*a)))), s->carry[0]), in);
    s->y[0] = sn_sum(sn_mul(s->next[0], row(s->x[3])), -1);
}
static sn_scanned selective(const sn_tensor *in) {
    return sn_scan(.carry = {in[5]}, .x = {in[0], sn_sigmoid(in[1]), in[2], in[3]}, .axis = 1,
                   .body = selective_step, .user = &in[4]);
}

/* The same, its products contracted: what the gradient sums over are products, too */
static void contracted_step(sn_scan_step *s) {
    const sn_tensor *a = s->user;
    sn_tensor dt = s->x[1], in = sn_einsum("bc,bn->bcn", sn_mul(dt, s->x[0]), s->x[2]);
    s->next[0] = sn_add(sn_mul(sn_exp(sn_mul(col(dt), sn_neg(sn_exp(*a)))), s->carry[0]), in);
    s->y[0] = sn_einsum("bcn,bn->bc", s->next[0], s->x[3]);
}
static sn_scanned contracted(const sn_tensor *in) {
    return sn_scan(.carry = {in[5]}, .x = {in[0], sn_sigmoid(in[1]), in[2], in[3]}, .axis = 1,
                   .body = contracted_step, .user = &in[4]);
}
static void multiplied_step(sn_scan_step *s) {
    const sn_tensor *a = s->user;
    sn_tensor dt = s->x[1], in = sn_matmul(col(sn_mul(dt, s->x[0])), row(s->x[2]));
    s->next[0] = sn_add(sn_mul(sn_exp(sn_mul(col(dt), sn_neg(sn_exp(*a)))), s->carry[0]), in);
    s->y[0] = sn_squeeze(sn_matmul(s->next[0], col(s->x[3])), -1);
}
static sn_scanned multiplied(const sn_tensor *in) {
    return sn_scan(.carry = {in[5]}, .x = {in[0], sn_sigmoid(in[1]), in[2], in[3]}, .axis = 1,
                   .body = multiplied_step, .user = &in[4]);
}

/* A gate that all rows of a batch share: its gradient sums over the first axis of the carry */
static void shared_step(sn_scan_step *s) {
    const sn_tensor *a = s->user;
    s->next[0] = sn_tanh(sn_add(sn_mul(s->carry[0], *a), col(s->x[1])));
    s->y[0] = sn_mul(sn_sum(s->next[0], -1), s->x[0]);
}
static sn_scanned shared(const sn_tensor *in) {
    return sn_scan(.carry = {in[3]}, .x = {in[0], in[1]}, .axis = 1, .body = shared_step,
                   .user = &in[2]);
}

/* minLSTM: two gates that add up to one */
static void gates_step(sn_scan_step *s) {
    sn_tensor f = sn_sigmoid(s->x[0]), i = sn_sigmoid(s->x[1]), sum = sn_add(f, i);
    s->y[0] = s->carry[0]; /* before the element */
    s->next[0] = sn_add(sn_mul(sn_div(f, sum), s->carry[0]), sn_mul(sn_div(i, sum), s->x[2]));
}
static sn_scanned gates(const sn_tensor *in) {
    return sn_scan(.carry = {in[3]}, .x = {in[0], in[1], in[2]}, .axis = 1, .reverse = true,
                   .body = gates_step);
}

/* Reductions of reductions, and a second carry without the inner axis, which trades places */
static void stages_step(sn_scan_step *s) {
    sn_tensor h = sn_add(sn_mul(s->carry[0], 0.9), sn_mul(col(s->x[0]), row(s->x[1])));
    sn_tensor top = sn_amax_keep(h, -1), e = sn_exp(sn_sub(h, top)), sum = sn_sum_keep(e, -1);
    s->next[0] = sn_div(e, sum);
    s->next[1] = s->carry[2];
    s->next[2] = sn_add(sn_squeeze(sum, -1), s->carry[1]);
    s->y[0] = sn_where(sn_lt(s->index, 7), s->next[2], sn_squeeze(top, -1));
}
static sn_scanned stages(const sn_tensor *in) {
    return sn_scan(.carry = {in[2], in[3], in[4]}, .x = {in[0], in[1]}, .axis = 1,
                   .body = stages_step);
}

/* A carry that is the same all along the inner axis */
static void spread_step(sn_scan_step *s) {
    sn_tensor h = sn_tanh(sn_add(s->carry[0], sn_mul(col(s->x[0]), row(s->x[1]))));
    s->y[0] = sn_mean(sn_square(h), -1);
    s->next[0] = sn_broadcast(sn_expand(s->y[0], -1), B, C, K);
}
static sn_scanned spread(const sn_tensor *in) {
    return sn_scan(.carry = {in[2]}, .x = {in[0], in[1]}, .axis = 1, .body = spread_step);
}

/* S4D: complex states of each channel, whose decays are parameters; all states are results */
static void diagonal_step(sn_scan_step *s) {
    const sn_tensor *a = s->user;
    sn_tensor size = sn_exp(sn_neg(sn_exp(a[0]))), re = sn_mul(size, sn_cos(a[1])),
              im = sn_mul(size, sn_sin(a[1]));
    sn_tensor x = s->carry[0], y = s->carry[1];
    s->next[0] = sn_add(sn_sub(sn_mul(re, x), sn_mul(im, y)), col(s->x[0]));
    s->next[1] = sn_add(sn_mul(re, y), sn_mul(im, x));
    s->y[0] = s->next[1];
}
static sn_scanned diagonal(const sn_tensor *in) {
    return sn_scan(.carry = {in[3], in[4]}, .x = {in[0]}, .axis = 1, .body = diagonal_step,
                   .user = &in[1]);
}

/* No linear recurrence: what is read is not linear in the carry */
static void matrix_step(sn_scan_step *s) {
    sn_tensor S = sn_tanh(sn_add(s->carry[0], sn_mul(col(s->x[1]), row(s->x[2]))));
    s->next[0] = sn_sub(S, sn_matmul(col(s->x[1]), sn_matmul(row(s->x[1]), S)));
    s->y[0] = sn_squeeze(sn_matmul(row(s->x[0]), s->next[0]), -2);
}
static sn_scanned matrix(const sn_tensor *in) {
    return sn_scan(.carry = {in[3]}, .x = {sn_mul(in[0], 0.5), sn_mul(in[1], 0.3), in[2]},
                   .axis = 1, .body = matrix_step);
}

/* A memory that takes gradient steps: a norm over the lanes, sums over both axes, carries without them */
static void learning_step(sn_scan_step *s) {
    sn_tensor u = sn_squeeze(sn_matmul(row(s->x[0]), s->carry[0]), -2), e = sn_sub(u, s->x[1]);
    e = sn_mul(e, sn_rsqrt(sn_add(sn_mean_keep(sn_square(e), -1), 0.1)));
    sn_tensor S = sn_sub(sn_mul(s->carry[0], 0.9), sn_mul(col(s->x[0]), row(sn_mul(e, 0.2))));
    sn_tensor size = sn_mean(sn_mean(sn_square(S), -1), -1);
    s->next[1] = sn_add(sn_mul(s->carry[1], 0.5), size);
    s->next[2] = sn_mean(S, -1);
    s->next[0] = sn_div(S, sn_expand(col(sn_add(sn_square(s->next[1]), 1)), -1));
    s->y[0] = sn_mul(sn_amax(S, -2), col(s->carry[1]));
}
static sn_scanned learning(const sn_tensor *in) {
    return sn_scan(.carry = {in[2], in[3], in[4]}, .x = {in[0], in[1]}, .axis = 1,
                   .body = learning_step);
}

static const struct model {
    const char *name;
    sn_scanned (*build)(const sn_tensor *in);
    int n_in;
    int64_t shape[MAX_IN][4]; /* 0 ends it */
    bool strided;             /* the inputs are read as [B, T, C] but stored as [C, T, B] */
    enum back { LOOP, ONE_KERNEL, MORE } back; /* its gradient; MORE: tested with SN_TEST_LONG */
} models[] = {
    {"selective", selective, 6, {SEQ, SEQ, {B, T, N}, {B, T, N}, {C, N}, {B, C, N}}, false, MORE},
    {"selective 16",
     selective,
     6,
     {SEQ, SEQ, {B, T, 16}, {B, T, 16}, {C, 16}, {B, C, 16}},
     false,
     ONE_KERNEL},
    {"contracted 16",
     contracted,
     6,
     {SEQ, SEQ, {B, T, 16}, {B, T, 16}, {C, 16}, {B, C, 16}},
     false,
     ONE_KERNEL},
    {"multiplied",
     multiplied,
     6,
     {SEQ, SEQ, {B, T, 16}, {B, T, 16}, {C, 16}, {B, C, 16}},
     false,
     ONE_KERNEL},
    {"shared", shared, 4, {{1, T, C}, SEQ, {C, N}, {B, C, N}}, false, ONE_KERNEL},
    {"gates", gates, 4, {SEQ, SEQ, SEQ, {B, C}}, false, ONE_KERNEL},
    {"strided gates", gates, 4, {{C, T, B}, {C, T, B}, {C, T, B}, {B, C}}, true, MORE},
    {"spread", spread, 3, {SEQ, {B, T, K}, {B, C, K}}, false, MORE},
    {"stages", stages, 5, {SEQ, {B, T, N}, {B, C, N}, {B, C}, {B, C}}, false, MORE},
    {"diagonal", diagonal, 5, {{B, T, 3}, {3, C}, {3, C}, {B, 3, C}, {B, 3, C}}, false, MORE},
    {"matrix", matrix, 4, {{B, T, K}, {B, T, K}, SEQ, {B, K, C}}, false, MORE},
    {"learning", learning, 5, {{B, T, K}, SEQ, {B, K, C}, {B}, {B, K}}, false, ONE_KERNEL},
};

/* ---- running ---- */

typedef struct built {
    sn_module *m;
    int n_in, n_out;
    sn_tensor out[MAX_OUT];
    sn_arg_binding bind[MAX_IN];
    int64_t shape[MAX_IN][3];
    float data[MAX_IN][B * C * T];
} built;

static const char *const outputs[] = {"y", "h", "h1", "o3", "o4", "o5"};

/* Its results; or the gradient of the sum of their squares with respect to each input. */
static built *build(const struct model *c, bool symbolic, bool back) {
    static const char *const names[] = {"i0", "i1", "i2", "i3", "i4", "i5"};
    sn_tensor input[MAX_IN];
    built *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->m = sn_module_new(c->name);
    f->n_in = c->n_in;
    sn_dim length = symbolic ? sn_symbol(f->m, "T", 0, 64) : T;
    sn_tensor in[MAX_IN];
    sn_entry_begin(f->m, "main");
    uint32_t seed = 3;
    for (int i = 0; i < c->n_in; i++) {
        int64_t count = 1;
        int rank = 0;
        sn_dim dims[4];
        for (; rank < 3 && c->shape[i][rank]; rank++) {
            f->shape[i][rank] = c->shape[i][rank];
            dims[rank] = c->shape[i][rank] == T ? length : c->shape[i][rank];
            count *= c->shape[i][rank];
        }
        dims[rank] = SN_END;
        assert_true(count <= B * C * T);
        in[i] = input[i] = sn_input_at(SN_HERE, f->m, names[i], SN_F32, dims);
        if (c->strided && rank == 3) in[i] = sn_transpose(in[i], 2, 1, 0);
        for (int64_t e = 0; e < count; e++) {
            seed = seed * 1664525 + 1013904223;
            f->data[i][e] = (float)(seed >> 8) / (1 << 23) - 1;
        }
        f->bind[i] = (sn_arg_binding){names[i], SN_F32, rank, f->shape[i], f->data[i]};
    }
    sn_scanned r = c->build(in);
    f->out[f->n_out++] = r.y[0];
    f->out[f->n_out++] = r.carry[0];
    if (r.carry[1] && r.carry[1] != sn_module_error_node(f->m)) f->out[f->n_out++] = r.carry[1];
    if (back) {
        sn_tensor loss = sn_sum_all(sn_square(f->out[0]));
        for (int i = 1; i < f->n_out; i++) loss = sn_add(loss, sn_sum_all(sn_square(f->out[i])));
        f->n_out = f->n_in;
        sn_grad(loss, f->n_in, input, f->out);
    }
    for (int i = 0; i < f->n_out; i++) sn_output(outputs[i], f->out[i]);
    sn_error err;
    if (!sn_module_ok(f->m, &err)) fail_msg("%s: %s", c->name, err.message);
    return f;
}

static void run_with(built *f, const struct model *c, const sn_options *o, float (*out)[MAX_SIZE],
                     int64_t *count) {
    sn_error err = {0};
    sn_arg_binding to[MAX_OUT];
    int64_t shape[MAX_OUT][8];
    char *text = NULL;
    size_t size;
    sn_program *p = sn_compile(f->m, o, &err);
    if (!p) fail_msg("%s: %s", c->name, err.message);
    FILE *explained = open_memstream(&text, &size);
    sn_program_explain(p, "main", explained);
    fclose(explained);
    if (!strstr(text, "fused_scan") || strstr(text, "loop: scan"))
        fail_msg("%s: %s", c->name, text);
    free(text);
    sn_session *s = sn_session_new(p, NULL, &err);
    for (int i = 0; i < f->n_out; i++) {
        int rank = sn_output_shape(p, "main", f->bind, f->n_in, outputs[i], shape[i], &err);
        count[i] = 1;
        for (int a = 0; a < rank; a++) count[i] *= shape[i][a];
        assert_true(count[i] <= MAX_SIZE);
        to[i] = (sn_arg_binding){outputs[i], SN_F32, rank, shape[i], out[i]};
    }
    if (!sn_run(s, "main", f->bind, f->n_in, to, f->n_out, &err)) fail_msg("%s", err.message);
    sn_session_free(s);
    sn_program_free(p);
}

static void compare(built *f, const struct model *c, const int64_t *count, float (*got)[MAX_SIZE],
                    const char *target, double tolerance) {
    sn_eval *ev = sn_eval_new(f->m, &(int64_t){T});
    for (int i = 0; i < f->n_in; i++) {
        size_t n = sizeof(float);
        for (int a = 0; a < f->bind[i].rank; a++) n *= (size_t)f->shape[i][a];
        assert_true(sn_eval_bind(ev, f->bind[i].name, f->data[i], n));
    }
    for (int i = 0; i < f->n_out; i++) {
        const sn_value *v = sn_eval_node(ev, f->out[i]);
        if (!v) fail_msg("%s", sn_module_error(f->m)->message);
        assert_int_equal(v->n, count[i]);
        for (int64_t e = 0; e < v->n; e++)
            if (!(fabs((double)got[i][e] - v->data[e]) <= tolerance * (1 + fabs(v->data[e]))))
                fail_msg("%s, %s: %s[%d] is %g, not %g", c->name, target, outputs[i], (int)e,
                         (double)got[i][e], v->data[e]);
    }
    sn_eval_free(ev);
}

/* At the widest vectors, with several threads, and without AVX. */
static void check(const struct model *c, bool symbolic, bool back, int n_target) {
    static const char *const targets[] = {"native", "x86-64"};
    static float got[MAX_OUT][MAX_SIZE], again[MAX_OUT][MAX_SIZE];
    int64_t count[MAX_OUT];
    built *f = build(c, symbolic, back);
    for (int t = 0; t < n_target; t++) {
        sn_options o = sn_options_default();
#ifndef __x86_64__
        if (t) continue;
#endif
        o.target = targets[t];
        o.threads = 1;
        o.level = t ? 2 : 4;
        run_with(f, c, &o, got, count);
        compare(f, c, count, got, targets[t], back ? 1e-4 : 1e-5);
        if (t) continue;
        o.threads = 3;
        run_with(f, c, &o, again, count);
        for (int i = 0; i < f->n_out; i++)
            assert_memory_equal(got[i], again[i], (size_t)count[i] * sizeof **got);
    }
    sn_module_free(f->m);
    free(f);
}

static void right_values(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof models / sizeof *models; k++)
        check(&models[k], k % 2, false, k % 2 ? 1 : 2);
}

static void right_gradients(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof models / sizeof *models; k++)
        if (models[k].back == ONE_KERNEL || (models[k].back == MORE && effort_is_long()))
            check(&models[k], k % 2, true, effort_is_long() ? 2 : 1);
}

/* Sums of a gradient over channels, or over a batch, are sums of vectors: what its loop reduces are states. */
static void sums_of_vectors(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof models / sizeof *models; k++) {
        if (models[k].build != shared && strcmp(models[k].name, "selective 16") != 0) continue;
        built *f = build(&models[k], false, true);
        sn_error err = {0};
        sn_program *p = sn_compile(f->m, &(sn_options){.level = 4, .plan_only = true}, &err);
        if (!p) fail_msg("%s", err.message);
        char *text = explain_text(p, "main");
        const char *loop = strstr(text, "fused_scan "), *at = loop;
        while ((at = strstr(at + 1, "fused_scan "))) loop = at;
        const char *sums = strstr(loop, "reduce_sum x");
        if (!sums || atoi(sums + strlen("reduce_sum x")) > 2) fail_msg("%s", text);
        free(text);
        sn_program_free(p);
        sn_module_free(f->m);
        free(f);
    }
}

/* What is no such scan stays several kernels, and the remark says why. */
static void product_step(sn_scan_step *s) {
    const sn_tensor *w = s->user;
    s->next[0] = sn_tanh(sn_add(sn_matmul(s->carry[0], *w), s->x[0]));
    s->y[0] = s->next[0];
}
static void cut_step(sn_scan_step *s) {
    s->next[0] = sn_add(s->carry[0], s->x[0]);
    s->y[0] = sn_slice(s->next[0], 1, 0, 3);
}

static void crossed_step(sn_scan_step *s) {
    const sn_tensor *w = s->user;
    sn_tensor third = sn_sum(sn_mul(col(s->carry[0]), sn_expand(*w, 0)), -1);
    s->next[0] = sn_add(s->carry[0], s->x[0]);
    s->y[0] = sn_mul(sn_sum_keep(s->next[0], 0), sn_mul(third, sn_sum_keep(s->next[0], 1)));
}

/* The sum has an axis that is cut, but it is the product that makes a step wait for the whole carry. */
static void mixed_gates_step(sn_scan_step *s) {
    const sn_tensor *w = s->user;
    sn_tensor x = sn_concat(1, s->x[0], s->x[0]), part[2];
    sn_split(sn_add(x, sn_matmul(s->carry[0], sn_concat(1, *w, *w))), 1, 2, part);
    s->next[0] = s->y[0] = sn_mul(sn_sigmoid(part[0]), part[1]);
}
/* Attention in each step is one kernel, and the loop may have others. */
static void attention_step(sn_scan_step *s) {
    sn_tensor q = sn_reshape(s->carry[0], 1, 1, B, C);
    s->next[0] = s->y[0] = sn_add(sn_reshape(sn_attention(q, q, q), B, C), s->x[0]);
}

static void expect_remark(sn_scan_fn body, const char *why, const char *what_to_do) {
    sn_error err = {0};
    char *text = NULL;
    size_t size;
    sn_module *m = sn_module_new("apart");
    sn_entry_begin(m, "main");
    sn_tensor x = sn_input(m, "x", SN_F32, B, T, C), h = sn_input(m, "h", SN_F32, B, C),
              w = sn_input(m, "w", SN_F32, C, C);
    sn_output("y", sn_scan(.carry = {h}, .x = {x}, .axis = 1, .body = body, .user = &w).y[0]);
    sn_program *p = sn_compile(m, NULL, &err);
    if (!p) fail_msg("%s", err.message);
    FILE *out = open_memstream(&text, &size);
    sn_program_explain(p, "main", out);
    fclose(out);
    const char *found = strstr(text, why);
    if (strstr(text, "fused_scan ") || !found || !strstr(found, what_to_do)) fail_msg("%s", text);
    free(text);
    sn_program_free(p);
    sn_module_free(m);
}

static void remarks(void **state) {
    (void)state;
    static const char accept[] = "accepts the line", instead[] = "Instead: ";
    expect_remark(product_step, "the loop is several kernels: `dot` (test_fused_scan.c:", accept);
    expect_remark(mixed_gates_step,
                  "the loop is several kernels: `dot` (test_fused_scan.c:", accept);
    expect_remark(cut_step, "the loop is several kernels: `slice` (test_fused_scan.c:", instead);
    expect_remark(crossed_step,
                  "the loop is several kernels: `reduce_sum` (test_fused_scan.c:", instead);
    expect_remark(attention_step, "note, fused_scan", "`flash` (test_fused_scan.c:");
}

/* mLSTM: the matrix is a recurrence, the sum beside it a loop that the compiler makes. */
static void memory_step(sn_scan_step *s) {
    sn_tensor decay = sn_sigmoid(s->x[0]), k = s->x[0];
    s->next[0] = sn_add(sn_mul(s->carry[0], sn_expand(decay, -1)),
                        sn_mul(sn_expand(k, -1), sn_expand(sn_tanh(k), -2)));
    s->next[1] = sn_add(sn_mul(s->carry[1], decay), k);
    sn_tensor size = sn_add(sn_abs(sn_sum_keep(sn_mul(s->next[1], k), -1)), 9);
    s->y[0] = sn_div(sn_sum(sn_mul(s->next[0], sn_expand(k, -1)), -2), size);
}

/* Remarks are about the user's loop, and say so of its gradient's. */
static void loops_of_the_compiler(void **state) {
    (void)state;
    sn_module *m = sn_module_new("loops");
    sn_entry_begin(m, "main");
    sn_tensor x = sn_input(m, "x", SN_F32, B, T, C), w = sn_input(m, "w", SN_F32, C, C), g;
    sn_tensor h = sn_input(m, "h", SN_F32, B, C), S = sn_input(m, "S", SN_F32, B, C, C);
    sn_tensor y = sn_scan(.carry = {h}, .x = {x}, .axis = 1, .body = product_step, .user = &w).y[0];
    sn_grad(sn_sum_all(y), 1, &x, &g);
    sn_output("g", g);
    sn_output("z", sn_scan(.carry = {S, h}, .x = {x}, .axis = 1, .body = memory_step).y[0]);
    sn_error err = {0};
    sn_program *p = sn_compile(m, &(sn_options){.level = 4, .plan_only = true}, &err);
    if (!p) fail_msg("%s", err.message);
    char *text = explain_text(p, "main");
    const char *note = strstr(text, "one after the other");
    if (!note || strstr(note + 1, "one after the other")) fail_msg("%s", text);
    if (!strstr(text, "recurrence ") || !strstr(text, "the loop is several kernels") ||
        !strstr(text, "the loop of its gradient is several kernels"))
        fail_msg("%s", text);
    free(text);
    sn_program_free(p);
    sn_module_free(m);
}

/* What compiling strictly says of a loop of several kernels, and of one line that may be. */
static sn_code compile_strictly(bool accepts, const char *line, char **text) {
    sn_error err = {0};
    sn_module *m = sn_module_new("strict");
    sn_entry_begin(m, "main");
    sn_tensor x = sn_input(m, "x", SN_F32, B, T, C), h = sn_input(m, "h", SN_F32, B, C),
              w = sn_input(m, "w", SN_F32, C, C);
    sn_tensor y = sn_scan(.carry = {h}, .x = {x}, .axis = 1, .body = product_step, .user = &w).y[0];
    sn_output("y", accepts ? sn_accept_unfused(y) : y);
    sn_output("z", line && !*line ? sn_accept_unfused(sn_tanh(x)) : sn_tanh(x));
    sn_options o = sn_options_default();
    o.plan_only = o.strict_fusion = true;
    o.accept = line && *line ? line : NULL;
    sn_program *p = sn_compile(m, &o, &err);
    *text = p ? explain_text(p, "main") : strdup(err.message);
    sn_program_free(p);
    sn_module_free(m);
    return err.code;
}

static void expect_strict(bool accepts, const char *line, sn_code code, const char *said) {
    char *text;
    assert_int_equal(compile_strictly(accepts, line, &text), code);
    if (!strstr(text, said)) fail_msg("%s", text);
    free(text);
}

static void accepted(void **state) {
    (void)state;
    char *text, line[64], *end;
    assert_int_equal(compile_strictly(false, NULL, &text), SN_ERR_UNFUSED);
    assert_non_null(end = strstr(text, ": not fused (strict)"));
    snprintf(line, sizeof line, "%.*s", (int)(end - text), text);
    const char *name = strrchr(line, '/') ? strrchr(line, '/') + 1 : line;
    expect_strict(false, name, SN_OK, "accepted, fused_scan");
    expect_strict(false, "test_fused_scan.c:1", SN_ERR_USAGE, name);
    expect_strict(false, "scan.c:1", SN_ERR_USAGE, "no line of this name");
    expect_strict(true, NULL, SN_OK, "accepted, fused_scan");
    expect_strict(true, "", SN_OK, "nothing in this line is unfused");
    free(text);
}

/* Running products, also of zeros, maxima, and what a body combines have gradients. */
static sn_tensor decayed(sn_tensor before, sn_tensor x, const void *user) {
    (void)user;
    return sn_add(sn_mul(before, 0.5), x);
}

/* log(e^a + e^b), and the last element above -0.5: both are associative, the second one does not commute. */
static sn_tensor soft(sn_tensor before, sn_tensor x, const void *user) {
    (void)user;
    return sn_add(sn_max(before, x), sn_log1p(sn_exp(sn_neg(sn_abs(sn_sub(before, x))))));
}
static sn_tensor latest(sn_tensor before, sn_tensor x, const void *user) {
    (void)user;
    return sn_where(sn_gt(x, -0.5), x, before);
}

static void running(void **state) {
    static double data[2 * 4] = {0.5, 0, -2, 3, 1.5, -1, 4, 2};
    const sn_arg_binding bind = SN_BIND("x", SN_F64, data, 2, 4);
    (void)state;
    for (int i = 0; i < 7; i++) {
        sn_error err = {0};
        sn_grad_error worst;
        sn_module *m = sn_module_new("running");
        sn_entry_begin(m, "main");
        sn_tensor x = sn_input(m, "x", SN_F64, 2, 4), y = NULL;
        if (i == 0) y = sn_cumprod(x, 1);
        if (i == 1) y = sn_cummax(x, 1);
        if (i == 2) y = sn_cummin(x, 0);
        if (i == 3) y = sn_cumulate(x, .axis = 1, .reverse = true, .exclusive = true);
        if (i == 4) y = sn_cumulate(x, .axis = 1, .combine = decayed, .first = 2);
        if (i == 5)
            y = sn_cumulate(x, .axis = 1, .combine = soft, .first = -1, .associative = true);
        if (i == 6)
            y = sn_cumulate(x, .axis = 1, .combine = latest, .associative = true, .reverse = true);
        sn_tensor loss = sn_sum_all(sn_square(y));
        if (!sn_check_grad(loss, 1, &x, &bind, 1, &worst, &err)) fail_msg("%d: %s", i, err.message);
        if (!(worst.error <= 1e-6)) fail_msg("%d: %g", i, worst.error);
        sn_module_free(m);
    }
}

/* Few rows: a kernel of blocks, at most 64 of at least 2048 elements. */
enum { ROWS = 3, LONG = 5 * 2048 + 7, N_RUN = 7, N_FLOAT = 6 };

static void build_blocks(sn_module *m) {
    sn_entry_begin(m, "main");
    sn_dim length = sn_symbol(m, "T", 1, 1 << 20);
    sn_tensor x = sn_input(m, "x", SN_F32, ROWS, length), i = sn_input(m, "i", SN_I32, length, 2);
    sn_output("sum", sn_cumsum(x, 1));
    sn_output("product", sn_cumprod(sn_add(sn_mul(x, 1e-2), 1), 1));
    sn_output("most", sn_cummax(sn_transpose(x, 1, 0), 0));
    sn_output("before",
              sn_cumulate(x, .axis = 1, .reverse = true, .exclusive = true, .first = 0.5));
    sn_output("soft", sn_cumlogsumexp(x, 1));
    sn_output("latest", sn_cumulate(x, .axis = 1, .combine = latest, .associative = true,
                                    .reverse = true, .exclusive = true));
    sn_output("count", sn_cumsum(i, 0));
}

/* Element t of output k of row r, or of column r, from the one that was computed before it. */
static double expect_running(int k, double before, double x) {
    if (k == 1) return before * (x * 1e-2 + 1);
    if (k == 2) return before > x ? before : x;
    if (k == 4) return fmax(before, x) + log1p(exp(-fabs(before - x)));
    if (k == 5) return (float)x > -0.5F ? x : before;
    return before + x;
}

static void blocks(void **state) {
    static float x[ROWS * LONG], y[2][N_FLOAT][ROWS * LONG];
    static int32_t number[LONG * 2], count[2][LONG * 2];
    sn_error err = {0};
    sn_module *m = sn_module_new("blocks");
    (void)state;
    build_blocks(m);
    for (int e = 0; e < ROWS * LONG; e++) x[e] = (float)((e * 7919) % 1000) / 500 - 1;
    for (int e = 0; e < LONG * 2; e++) number[e] = e % 7;
    sn_arg_binding in[] = {SN_BIND("x", SN_F32, x, ROWS, LONG),
                           SN_BIND("i", SN_I32, number, LONG, 2)};
    for (int k = 0; k < 2; k++) {
        sn_options o = sn_options_default();
        o.threads = k ? 3 : 1;
        sn_program *p = sn_compile(m, &o, &err);
        sn_session *s = p ? sn_session_new(p, NULL, &err) : NULL;
        sn_arg_binding out[] = {SN_BIND("sum", SN_F32, y[k][0], ROWS, LONG),
                                SN_BIND("product", SN_F32, y[k][1], ROWS, LONG),
                                SN_BIND("most", SN_F32, y[k][2], LONG, ROWS),
                                SN_BIND("before", SN_F32, y[k][3], ROWS, LONG),
                                SN_BIND("soft", SN_F32, y[k][4], ROWS, LONG),
                                SN_BIND("latest", SN_F32, y[k][5], ROWS, LONG),
                                SN_BIND("count", SN_I32, count[k], LONG, 2)};
        if (!s || !sn_run(s, "main", in, 2, out, N_RUN, &err)) fail_msg("%s", err.message);
        sn_session_free(s);
        sn_program_free(p);
    }
    assert_memory_equal(y[0], y[1], sizeof y[0]);
    assert_memory_equal(count[0], count[1], sizeof count[0]);
    for (int r = 0; r < ROWS; r++)
        for (int k = 0; k < N_FLOAT; k++) {
            static const double first[] = {0, 1, -INFINITY, 0.5, -INFINITY, 0};
            bool reverse = k == 3 || k == 5; /* and without the element */
            double now = first[k];
            for (int e = 0; e < LONG; e++) {
                int t = reverse ? LONG - 1 - e : e;
                double next = expect_running(k, now, (double)x[r * LONG + t]);
                double got = (double)y[0][k][k == 2 ? t * ROWS + r : r * LONG + t];
                double want = reverse ? now : next;
                if (!(fabs(got - want) <= 1e-4 * (1 + fabs(want))))
                    fail_msg("output %d, row %d, element %d: %g, not %g", k, r, t, got, want);
                now = next;
            }
        }
    int32_t sum[2] = {0};
    for (int e = 0; e < LONG * 2; e++) assert_int_equal(count[0][e], sum[e % 2] += number[e]);
    sn_module_free(m);
}

/* A running sum along an axis within is stored in the order of its input: no kernel copies it. */
static void running_in_place(void **state) {
    (void)state;
    sn_module *m = sn_module_new("place");
    sn_dim B = sn_symbol(m, "B", 1, 9), T = sn_symbol(m, "T", 1, 99);
    sn_entry_begin(m, "main");
    sn_output("y", sn_cumsum(sn_input(m, "x", SN_F32, B, T, 2, 4), 1));
    sn_options o = sn_options_default();
    sn_error err = {0};
    sn_program *p = sn_compile(m, &o, &err);
    if (!p) fail_msg("%s", err.message);
    char *text = explain_text(p, "main");
    if (strstr(text, "copy (an output")) fail_msg("%s", text);
    free(text);
    sn_program_free(p);
    sn_module_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(right_values),
                                       cmocka_unit_test(right_gradients),
                                       cmocka_unit_test(sums_of_vectors),
                                       cmocka_unit_test(remarks),
                                       cmocka_unit_test(loops_of_the_compiler),
                                       cmocka_unit_test(accepted),
                                       cmocka_unit_test(running),
                                       cmocka_unit_test(running_in_place),
                                       cmocka_unit_test(blocks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
