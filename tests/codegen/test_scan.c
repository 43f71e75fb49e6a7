/* sn_scan: compiled at every level, for any number of threads, against the evaluator; gradients;
 * loops in loops, from the end, over symbolic lengths; decoding from a state; mistakes. */
#include "codegen/program/program.h"
#include "frontend/sinter.h"
#include "ir/ir.h"
#include "passes/plan/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/support/artefact.h"
#include <math.h>

enum { B = 2, H = 3, D = 5, MAX_IN = 6, MAX_OUT = 12, MAX_SIZE = 4096 };

/* ---- models: inputs in[], results y and h ---- */

typedef struct model {
    const char *name;
    int n_in;
    int64_t shape[MAX_IN][5]; /* -1 ends it, -2: T */
    sn_scanned (*build)(const sn_tensor *in);
} model;

static void decay_step(sn_scan_step *s) {
    s->next[0] = sn_add(sn_mul(s->x[0], s->carry[0]), s->x[1]);
    s->y[0] = sn_mul(s->next[0], sn_cast(s->index, SN_F32));
}
static sn_scanned decay(const sn_tensor *in) {
    return sn_scan(.carry = {in[2]}, .x = {sn_sigmoid(in[0]), in[1]}, .axis = 1,
                   .body = decay_step);
}
static sn_scanned backwards(const sn_tensor *in) {
    return sn_scan(.carry = {in[2]}, .x = {sn_sigmoid(in[0]), in[1]}, .axis = 1, .reverse = true,
                   .body = decay_step);
}

/* h [B, D, H]: what a captured matrix and the step decide */
static void selective_step(sn_scan_step *s) {
    const sn_tensor *a = s->user;
    sn_tensor dt = sn_expand(s->x[1], -1), x = sn_expand(s->x[0], -1);
    sn_tensor keep = sn_exp(sn_mul(dt, *a)), write = sn_mul(sn_mul(dt, x), sn_expand(s->x[2], 1));
    s->next[0] = sn_add(sn_mul(keep, s->carry[0]), write);
    s->y[0] = sn_sum(sn_mul(s->next[0], sn_expand(s->x[3], 1)), -1);
}
static sn_scanned selective(const sn_tensor *in) {
    sn_tensor a = sn_neg(sn_exp(in[4]));
    return sn_scan(.carry = {in[5]}, .x = {in[0], sn_sigmoid(in[1]), in[2], in[3]}, .axis = 1,
                   .body = selective_step, .user = &a);
}

/* S [B, H, D, D] <- S + b k^T (v - k S) */
static void delta_step(sn_scan_step *s) {
    sn_tensor k = sn_expand(s->x[1], -2), v = sn_expand(s->x[2], -2);
    sn_tensor b = sn_expand(sn_expand(s->x[3], -1), -1);
    sn_tensor miss = sn_mul(b, sn_sub(v, sn_matmul(k, s->carry[0])));
    s->next[0] = sn_add(s->carry[0], sn_matmul(sn_transpose(k, 0, 1, 3, 2), miss));
    s->y[0] = sn_squeeze(sn_matmul(sn_expand(s->x[0], -2), s->next[0]), -2);
}
static sn_scanned delta(const sn_tensor *in) {
    return sn_scan(.carry = {in[4]}, .x = {in[0], sn_mul(in[1], 0.3), in[2], sn_sigmoid(in[3])},
                   .axis = 2, .body = delta_step);
}

/* h [B, D] <- tanh(h U + x), which no kernel computes for the whole sequence */
static void recurrent_step(sn_scan_step *s) {
    const sn_tensor *u = s->user;
    s->next[0] = sn_tanh(sn_add(sn_matmul(s->carry[0], *u), s->x[0]));
    s->y[0] = s->next[0];
}
static sn_scanned recurrent(const sn_tensor *in) {
    return sn_scan(.carry = {in[1]}, .x = {in[0]}, .axis = 1, .body = recurrent_step,
                   .user = &in[2]);
}

/* Two carries; the gradient reads only the first, from the last element on. */
static void pair_step(sn_scan_step *s) {
    const sn_tensor *u = s->user;
    s->next[0] = sn_add(sn_tanh(sn_matmul(s->carry[0], *u)), s->carry[1]);
    s->next[1] = sn_add(sn_mul(s->carry[1], 0.5), s->x[0]);
    s->y[0] = sn_mul(s->carry[0], s->x[0]);
}
static sn_scanned pair(const sn_tensor *in) {
    return sn_scan(.carry = {in[1], sn_neg(in[1])}, .x = {in[0]}, .axis = 1, .reverse = true,
                   .body = pair_step, .user = &in[2]);
}

/* for each row of x a loop over its columns, which begins with the carry */
static void inner_step(sn_scan_step *s) {
    s->next[0] = sn_tanh(sn_add(s->carry[0], s->x[0]));
    s->y[0] = sn_mul(s->next[0], s->next[0]);
}
static void outer_step(sn_scan_step *s) {
    sn_scanned r = sn_scan(.carry = {s->carry[0]}, .x = {s->x[0]}, .axis = 1, .body = inner_step);
    s->next[0] = sn_mul(r.carry[0], 0.5);
    s->y[0] = r.y[0];
}
static sn_scanned nested(const sn_tensor *in) {
    return sn_scan(.carry = {in[1]}, .x = {in[0]}, .axis = 1, .body = outer_step);
}

/* Loops over a count. The first reads the number of the iteration, the second does not. */
static void counted_step(sn_scan_step *s) {
    s->next[0] = sn_tanh(sn_add(s->carry[0], sn_mul(sn_cast(s->index, SN_F32), 0.1)));
    s->y[0] = s->next[0];
}
static sn_scanned counted(const sn_tensor *in) {
    sn_scanned r =
        sn_scan(.carry = {in[0]}, .count = sn_dim_of(in[1], 0), .axis = 1, .body = counted_step);
    r.y[0] = sn_mul(r.y[0], sn_expand(in[1], -1));
    return r;
}
static void iterated_step(sn_scan_step *s) {
    const sn_tensor *u = s->user;
    s->next[0] = sn_tanh(sn_matmul(s->carry[0], *u));
}
static sn_scanned iterated(const sn_tensor *in) {
    sn_scanned r = sn_scan(.carry = {in[0]}, .count = sn_dim_of(in[2], 0), .body = iterated_step,
                           .user = &in[1]);
    r.y[0] = sn_mul(r.carry[0], sn_sum_all(in[2]));
    return r;
}

/* A loop over a count for each element, which reads the number of its iteration and captures the carry and
 * the element. In the body of a loop over a count. */
static void refine_step(sn_scan_step *s) {
    const sn_tensor *in = s->user;
    sn_tensor miss = sn_sub(in[1], sn_matmul(s->carry[0], in[0]));
    sn_tensor share = sn_div(1, sn_add(sn_cast(s->index, SN_F32), 4));
    s->next[0] = sn_add(s->carry[0], sn_mul(miss, share));
}
static void solve_step(sn_scan_step *s) {
    sn_tensor pair = sn_matmul(sn_swap(s->x[0], 0, 1), s->x[0]);
    sn_tensor in[] = {sn_add(sn_mul(s->carry[0], 0.5), pair), s->x[0]};
    s->next[0] = in[0];
    s->y[0] = sn_scan(.carry = {s->x[0]}, .count = 3, .body = refine_step, .user = in).carry[0];
}
static void repeated_step(sn_scan_step *s) {
    const sn_tensor *x = s->user;
    sn_scanned r = sn_scan(.carry = {s->carry[0]}, .x = {*x}, .axis = 1, .body = solve_step);
    s->next[0] = r.carry[0];
    s->y[0] = r.y[0];
}
static sn_scanned repeated(const sn_tensor *in) {
    return sn_scan(.carry = {in[1]}, .count = 2, .body = repeated_step, .user = &in[0]);
}

static const model models[] = {
    {"decay", 3, {{B, -2, D, -1}, {B, -2, D, -1}, {B, D, -1}}, decay},
    {"backwards", 3, {{B, -2, D, -1}, {B, -2, D, -1}, {B, D, -1}}, backwards},
    {"selective",
     6,
     {{B, -2, D, -1}, {B, -2, D, -1}, {B, -2, H, -1}, {B, -2, H, -1}, {D, H, -1}, {B, D, H, -1}},
     selective},
    {"delta",
     5,
     {{B, H, -2, D, -1}, {B, H, -2, D, -1}, {B, H, -2, D, -1}, {B, H, -2, -1}, {B, H, D, D, -1}},
     delta},
    {"recurrent", 3, {{B, -2, D, -1}, {B, D, -1}, {D, D, -1}}, recurrent},
    {"pair", 3, {{B, -2, D, -1}, {B, D, -1}, {D, D, -1}}, pair},
    {"nested", 2, {{B, -2, D, -1}, {B, -1}}, nested},
    {"repeated", 2, {{B, -2, D, -1}, {D, D, -1}}, repeated},
    {"counted", 2, {{B, D, -1}, {-2, -1}}, counted},
    {"iterated", 3, {{B, D, -1}, {D, D, -1}, {-2, -1}}, iterated},
};

/* ---- running ---- */

typedef struct fixture {
    sn_module *m;
    sn_tensor in[MAX_IN], loss, out[MAX_OUT];
    int n_in, n_out;
    int64_t shape[MAX_IN][4];
    float data[MAX_IN][MAX_SIZE];
    sn_arg_binding bind[MAX_IN];
    char name[MAX_OUT][16];
    float want[MAX_OUT][MAX_SIZE];
} fixture;

static fixture *build(const model *c, int64_t T) {
    fixture *f = calloc(1, sizeof *f);
    static const char *const names[] = {"i0", "i1", "i2", "i3", "i4", "i5"};
    assert_non_null(f);
    f->m = sn_module_new(c->name);
    f->n_in = c->n_in;
    sn_dim length = sn_symbol(f->m, "T", 0, 64);
    sn_entry_begin(f->m, "main");
    uint32_t seed = 1;
    for (int i = 0; i < c->n_in; i++) {
        sn_dim dims[5];
        int64_t count = 1;
        int rank = 0;
        for (; c->shape[i][rank] != -1; rank++) {
            dims[rank] = c->shape[i][rank] == -2 ? length : c->shape[i][rank];
            f->shape[i][rank] = c->shape[i][rank] == -2 ? T : c->shape[i][rank];
            count *= f->shape[i][rank];
        }
        dims[rank] = SN_END;
        f->in[i] = sn_input_at(SN_HERE, f->m, names[i], SN_F32, dims);
        for (int64_t e = 0; e < count; e++) {
            seed = seed * 1664525 + 1013904223;
            f->data[i][e] = (float)(seed >> 8) / (1 << 24) - 0.5f;
        }
        f->bind[i] = (sn_arg_binding){names[i], SN_F32, rank, f->shape[i], f->data[i]};
    }
    sn_scanned r = c->build(f->in);
    f->loss = sn_add(sn_sum_all(sn_square(r.y[0])), sn_sum_all(sn_mul(r.carry[0], 0.5)));
    f->out[f->n_out++] = r.y[0];
    f->out[f->n_out++] = r.carry[0];
    sn_grad(f->loss, c->n_in, f->in, f->out + 2);
    f->n_out += c->n_in;
    for (int i = 0; i < f->n_out; i++) {
        snprintf(f->name[i], sizeof f->name[i], "o%d", i);
        sn_output(f->name[i], f->out[i]);
    }
    sn_error err;
    if (!sn_module_ok(f->m, &err)) fail_msg("%s", err.message);
    return f;
}

static void release(fixture *f) {
    sn_module_free(f->m);
    free(f);
}

static void run_at(fixture *f, int level, int threads, const char *target, float (*out)[MAX_SIZE],
                   int64_t *count) {
    sn_error err = {0};
    sn_options o = sn_options_default();
    sn_arg_binding to[MAX_OUT];
    int64_t shape[MAX_OUT][8];
    o.level = level;
    o.threads = threads;
    o.target = target;
    sn_program *p = sn_compile(f->m, &o, &err);
    if (!p) fail_msg("level %d: %s", level, err.message);
    sn_session *s = sn_session_new(p, NULL, &err);
    for (int i = 0; i < f->n_out; i++) {
        int rank = sn_output_shape(p, "main", f->bind, f->n_in, f->name[i], shape[i], &err);
        count[i] = 1;
        for (int a = 0; a < rank; a++) count[i] *= shape[i][a];
        assert_true(count[i] <= MAX_SIZE);
        to[i] = (sn_arg_binding){f->name[i], SN_F32, rank, shape[i], out[i]};
    }
    if (!sn_run(s, "main", f->bind, f->n_in, to, f->n_out, &err)) fail_msg("%s", err.message);
    sn_session_free(s);
    sn_program_free(p);
}

static void evaluate(fixture *f, int64_t T) {
    sn_eval *ev = sn_eval_new(f->m, &T);
    for (int i = 0; i < f->n_in; i++) {
        size_t n = 1;
        for (int a = 0; a < f->bind[i].rank; a++) n *= (size_t)f->shape[i][a];
        assert_true(sn_eval_bind(ev, f->bind[i].name, f->data[i], n * sizeof(float)));
    }
    for (int i = 0; i < f->n_out; i++) {
        const sn_value *v = sn_eval_node(ev, f->out[i]);
        if (!v) fail_msg("%s", sn_module_error(f->m)->message);
        for (int64_t e = 0; e < v->n; e++) f->want[i][e] = (float)v->data[e];
    }
    sn_eval_free(ev);
}

static void compare(fixture *f, const char *model, int level, int threads, const char *target) {
    static float got[MAX_OUT][MAX_SIZE];
    int64_t count[MAX_OUT];
    run_at(f, level, threads, target, got, count);
    for (int i = 0; i < f->n_out; i++)
        for (int64_t e = 0; e < count[i]; e++)
            if (!(fabsf(got[i][e] - f->want[i][e]) <= 2e-5f * (1 + fabsf(f->want[i][e]))))
                fail_msg("%s, level %d, %d threads: %s[%d] is %g, not %g", model, level, threads,
                         f->name[i], (int)e, (double)got[i][e], (double)f->want[i][e]);
}

static void every_model(void **state) {
    static const int64_t lengths[] = {0, 1, 7};
    (void)state;
    for (size_t k = 0; k < sizeof models / sizeof *models; k++)
        for (int l = 0; l < 3; l++) {
            fixture *f = build(&models[k], lengths[l]);
            evaluate(f, lengths[l]);
            for (int level = 0; level <= 4; level += l == 2 ? 1 : 4)
                compare(f, models[k].name, level, 2, NULL);
            if (l == 2) compare(f, models[k].name, 4, 3, "x86-64");
            release(f);
        }
}

static void same_bits(void **state) {
    static float a[MAX_OUT][MAX_SIZE], b[MAX_OUT][MAX_SIZE];
    int64_t count[MAX_OUT];
    (void)state;
    for (size_t k = 0; k < sizeof models / sizeof *models; k++) {
        fixture *f = build(&models[k], 7);
        run_at(f, 4, 1, NULL, a, count);
        for (int threads = 2; threads <= 5; threads += 3) {
            run_at(f, 4, threads, NULL, b, count);
            for (int i = 0; i < f->n_out; i++)
                assert_memory_equal(a[i], b[i], (size_t)count[i] * sizeof **a);
        }
        release(f);
    }
}

static void gradients(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof models / sizeof *models; k++) {
        fixture *f = build(&models[k], 4);
        sn_grad_error worst;
        sn_error err = {0};
        if (!sn_check_grad(f->loss, f->n_in, f->in, f->bind, f->n_in, &worst, &err))
            fail_msg("%s: %s", models[k].name, err.message);
        if (!(worst.error <= 1e-6))
            fail_msg("%s: input %d: %g", models[k].name, worst.index, worst.error);
        release(f);
    }
}

/* The text of the graph, and a graph that the passes have rewritten, are valid and mean the same. */
static void survives_text(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof models / sizeof *models; k++) {
        fixture *f = build(&models[k], 3);
        char *text = NULL, *again = NULL;
        size_t size;
        FILE *out = open_memstream(&text, &size);
        sn_print_module(out, f->m);
        fclose(out);
        sn_error err = {0};
        sn_module *m = sn_parse(text, "text", true, &err);
        if (!m) fail_msg("%s: %s", models[k].name, err.message);
        assert_true(sn_verify(m));
        out = open_memstream(&again, &size);
        sn_print_module(out, m);
        fclose(out);
        assert_string_equal(text, again);
        free(text);
        free(again);
        sn_module_free(m);
        release(f);
    }
}

/* Bytes that a run with T elements needs between kernels, a thread's included. */
static int64_t bytes_between(const sn_plan *plan, int64_t T) {
    int64_t bytes = sn_plan_arena((sn_plan *)plan, &T);
    for (int i = 0; i < plan->n_buffer; i++) {
        const sn_buffer *b = &plan->buffer[i];
        if (b->kind == SN_BUF_LOCAL) bytes += sn_buffer_bytes(plan->m, b, &T);
    }
    return bytes;
}

static void matrix_step(sn_scan_step *s) {
    s->next[0] = sn_tanh(sn_add(sn_matmul(s->carry[0], s->carry[0]), s->x[0]));
}

/* A carry much larger than an element: the gradient keeps about 2 sqrt(T) of them, not T. */
static void keeps_few_carries(void **state) {
    enum { WIDE = 32, SHORT = 64, LONG = 64 * 64, CARRY = WIDE * WIDE * (int)sizeof(float) };
    sn_error err = {0};
    (void)state;
    sn_module *m = sn_module_new("few");
    sn_dim length = sn_symbol(m, "T", 1, LONG);
    sn_entry_begin(m, "main");
    sn_tensor x = sn_input(m, "x", SN_F32, length), h = sn_input(m, "h", SN_F32, WIDE, WIDE), g;
    sn_scanned r = sn_scan(.carry = {h}, .x = {x}, .body = matrix_step);
    sn_grad(sn_sum_all(r.carry[0]), 1, &h, &g);
    sn_output("g", g);
    sn_program *p = sn_compile(m, NULL, &err);
    if (!p) fail_msg("%s", err.message);
    const sn_plan *plan = sn_program_entry(p, "main")->code.plan;
    int64_t few = bytes_between(plan, SHORT), many = bytes_between(plan, LONG);
    if (few < 2 * 8 * CARRY || few > 40 * CARRY) fail_msg("%lld", (long long)few);
    if (many < 2 * 64 * CARRY || many > 160 * CARRY) fail_msg("%lld", (long long)many);
    sn_program_free(p);
    sn_module_free(m);
}

/* ---- ahead of time ---- */

enum { AOT_T = 33, AOT_X = B * AOT_T * D, TAPS = 3 };

typedef struct artefact_model { /* scans.h */
    const void *weights;
    int64_t bytes, threads;
    void *pool;
    int32_t target, mapped;
} artefact_model;

typedef struct gradients_of {
    float loss, dx[AOT_X], du[D * D], da[D];
} gradients_of;

static void gated_step(sn_scan_step *s) {
    const sn_tensor *a = s->user;
    s->next[0] = sn_add(sn_mul(sn_sigmoid(*a), s->carry[0]), s->x[0]);
    s->y[0] = s->next[0];
}

/* A convolution over the last elements, a loop in one kernel, and one that no kernel computes. */
static sn_module *build_scans(void) {
    sn_module *m = sn_module_new("scans");
    sn_entry_begin(m, "step");
    sn_dim t = sn_symbol(m, "T", 1, AOT_T);
    sn_tensor x = sn_input(m, "x", SN_F32, B, t, D), h = sn_full(m, SN_F32, 0, B, D);
    sn_tensor all = sn_concat(1, sn_full(m, SN_F32, 0, B, TAPS - 1, D), x), y = NULL;
    for (int i = 0; i < TAPS; i++) {
        sn_tensor term = sn_mul(sn_slice(all, 1, i, t), 0.5 + i);
        y = y ? sn_add(y, term) : term;
    }
    sn_tensor u = sn_param(m, "u", SN_F32, D, D), a = sn_param(m, "a", SN_F32, D), g[3];
    y = sn_scan(.carry = {h}, .x = {y}, .axis = 1, .body = gated_step, .user = &a).y[0];
    y = sn_scan(.carry = {h}, .x = {y}, .axis = 1, .body = recurrent_step, .user = &u).y[0];
    sn_tensor loss = sn_sum_all(sn_square(y));
    sn_grad(loss, 3, ((sn_tensor[]){x, u, a}), g);
    sn_output("loss", loss);
    sn_output("dx", g[0]);
    sn_output("du", g[1]);
    sn_output("da", g[2]);
    return m;
}

static void ahead_of_time(void **state) {
    static gradients_of want, got;
    float x[AOT_X], u[D * D], a[D];
    sn_error err = {0};
    (void)state;
    sn_module *m = build_scans();
    sn_options o = sn_options_default();
    o.threads = 2;
    for (int i = 0; i < AOT_X; i++) x[i] = (float)(i * 71 % 211) / 100 - 1;
    for (int i = 0; i < D * D; i++) u[i] = (float)(i * 37 % 17) / 20 - 0.4F;
    for (int i = 0; i < D; i++) a[i] = (float)i / 4;
    sn_program *p = sn_compile(m, &o, &err);
    if (!p) fail_msg("%s", err.message);
    sn_arg_binding param[] = {SN_BIND("u", SN_F32, u, D, D), SN_BIND("a", SN_F32, a, D)};
    sn_session *s = sn_session_new_arrays(p, param, 2, &err);
    if (!s) fail_msg("%s", err.message);
    sn_emit_options emit = sn_emit_options_default();
    emit.name = "scans";
    emit.dir = scratch_dir;
    emit.compile = o;
    if (!sn_emit(s, &emit, &err)) fail_msg("%s", err.message);
    artefact_model model;
    int (*open)(artefact_model *, const char *);
    void (*close)(artefact_model *);
    int64_t (*workspace)(const artefact_model *, int64_t T);
    int (*step)(const artefact_model *, void *workspace, int64_t T, const float *x, float *loss,
                float *dx, float *du, float *da);
    const artefact_symbol names[] = {{(void *)&open, "scans_open"},
                                     {(void *)&close, "scans_close"},
                                     {(void *)&workspace, "scans_step_workspace"},
                                     {(void *)&step, "scans_step"}};
    void *lib = artefact_load("scans", names, sizeof names / sizeof *names);
    assert_int_equal(open(&model, scratch_path("scans.weights")), 0);
    for (int64_t t = 1; t <= AOT_T; t += 16) {
        memset(&want, 0, sizeof want);
        memset(&got, 0, sizeof got);
        sn_arg_binding out[] = {{"loss", SN_F32, 0, NULL, &want.loss},
                                SN_BIND("dx", SN_F32, want.dx, B, t, D),
                                SN_BIND("du", SN_F32, want.du, D, D),
                                SN_BIND("da", SN_F32, want.da, D)};
        if (!sn_run(s, "step", &SN_BIND("x", SN_F32, x, B, t, D), 1, out, 4, &err))
            fail_msg("%s", err.message);
        void *memory = aligned_alloc(64, (size_t)(workspace(&model, t) + 63) / 64 * 64);
        assert_non_null(memory);
        assert_int_equal(step(&model, memory, t, x, &got.loss, got.dx, got.du, got.da), 0);
        assert_true(want.loss > 0);
        assert_memory_equal(&want, &got, sizeof want);
        free(memory);
    }
    close(&model);
    dlclose(lib);
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(m);
}

/* One element at a time from a state gives what a whole sequence gives. */
static void decodes(void **state) {
    enum { T = 6 };
    float x[T * D], whole[T * D], one[D];
    sn_error err = {0};
    (void)state;
    sn_module *m = sn_module_new("decode");
    sn_dim length = sn_symbol(m, "T", 1, T);
    sn_entry_begin(m, "main");
    sn_tensor in = sn_input(m, "x", SN_F32, 1, length, D);
    sn_tensor h = sn_state(m, "h", SN_F32, 1, D);
    sn_scanned r = sn_scan(.carry = {h}, .x = {sn_sigmoid(in), in}, .axis = 1, .body = decay_step);
    sn_assign(h, r.carry[0]);
    sn_output("y", sn_sub(r.y[0], r.y[0]));
    sn_output("h", r.carry[0]);
    sn_program *p = sn_compile(m, NULL, &err);
    if (!p) fail_msg("%s", err.message);
    sn_session *s = sn_session_new(p, NULL, &err);
    for (int i = 0; i < T * D; i++) x[i] = (float)(i % 7) / 7;
    assert_true(sn_run(s, "main", &SN_BIND("x", SN_F32, x, 1, T, D), 1,
                       &SN_BIND("h", SN_F32, whole, 1, D), 1, &err));
    sn_session_reset(s);
    for (int t = 0; t < T; t++)
        assert_true(sn_run(s, "main", &SN_BIND("x", SN_F32, x + t * D, 1, 1, D), 1,
                           &SN_BIND("h", SN_F32, one, 1, D), 1, &err));
    assert_memory_equal(one, whole, sizeof one);
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(m);
}

static void sum_step(sn_scan_step *s) {
    s->y[0] = s->next[0] = sn_add(s->carry[0], s->x[0]);
}

/* With the option `chunk` running sums of pieces have the bits of the whole sequence's. */
static void pieces_keep_bits(void **state) {
    enum { T = 150 };
    static const int pieces[] = {1, 37, 64, 48};
    float x[D * T], whole[D * T], piece[D * T], part[D * T];
    sn_error err = {0};
    (void)state;
    sn_module *m = sn_module_new("pieces");
    sn_tensor in = sn_input(m, "x", SN_F32, D, sn_symbol(m, "T", 1, T));
    sn_tensor h = sn_state(m, "h", SN_F32, D);
    sn_entry_begin(m, "main");
    sn_scanned r = sn_scan(.carry = {h}, .x = {in}, .axis = 1, .body = sum_step);
    sn_assign(h, r.carry[0]);
    sn_output("y", r.y[0]);
    sn_program *p = sn_compile(m, &(sn_options){.level = 4, .invariant = "chunk"}, &err);
    sn_session *s = p ? sn_session_new(p, NULL, &err) : NULL;
    if (!s) fail_msg("%s", err.message);
    for (int i = 0; i < D * T; i++) x[i] = sinf((float)i);
    sn_arg_binding out = SN_BIND("y", SN_F32, whole, D, T);
    assert_true(sn_run(s, "main", &SN_BIND("x", SN_F32, x, D, T), 1, &out, 1, &err));
    sn_session_reset(s);
    for (size_t k = 0, at = 0; k < sizeof pieces / sizeof *pieces; at += (size_t)pieces[k++]) {
        const int n = pieces[k];
        for (int i = 0; i < D * n; i++) part[i] = x[i / n * T + (int)at + i % n];
        assert_true(sn_run(s, "main", &SN_BIND("x", SN_F32, part, D, n), 1,
                           &SN_BIND("y", SN_F32, piece, D, n), 1, &err));
        for (int i = 0; i < D * n; i++) assert_true(piece[i] == whole[i / n * T + (int)at + i % n]);
    }
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(m);
}

/* ---- mistakes ---- */

static void no_next(sn_scan_step *s) {
    s->y[0] = s->x[0];
}
static void wide_next(sn_scan_step *s) {
    s->next[0] = sn_expand(s->carry[0], 0);
}
static void nothing(sn_scan_step *s) {
    (void)s;
}

static void expect(sn_scan_fn body, bool carry, const char *message) {
    sn_module *m = sn_module_new("bad");
    sn_error err = {0};
    sn_entry_begin(m, "main");
    sn_tensor x = sn_input(m, "x", SN_F32, 4, 3), y = sn_input(m, "y", SN_F32, 5, 3);
    sn_tensor h = sn_input(m, "h", SN_F32, 3);
    sn_scan(.carry = {carry ? h : NULL}, .x = {x, body ? NULL : y}, .body = body ? body : nothing);
    assert_false(sn_module_ok(m, &err));
    if (!strstr(err.message, message)) fail_msg("%s", err.message);
    assert_non_null(strstr(err.message, "test_scan.c:"));
    sn_module_free(m);
}

static void mistakes(void **state) {
    (void)state;
    expect(NULL, true,
           "scan: sequence 1 is f32[5,3] 'y': its axis 0 must be as long as axis 0 of the first "
           "one, f32[4,3] 'x'");
    expect(no_next, true, "scan: the next carry 0 is NULL: the body must set it");
    expect(wide_next, true, "it must have the type of the carry, f32[3] 'h'");
    expect(nothing, false, "scan: the body sets neither a carry nor an output");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_model),       cmocka_unit_test(same_bits),
        cmocka_unit_test(gradients),         cmocka_unit_test(survives_text),
        cmocka_unit_test(keeps_few_carries), cmocka_unit_test(ahead_of_time),
        cmocka_unit_test(decodes),           cmocka_unit_test(pieces_keep_bits),
        cmocka_unit_test(mistakes)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
