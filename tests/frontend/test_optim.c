/* Optimizers, clipping and schedules against their formulas in plain C, through the evaluator and
 * as compiled code; parameters that change in a session; a model that learns. */
#include "frontend/models.h"
#include "ir/ir.h"
#include "runtime/rng.h"
#include "tests/support/effort.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "tests/support/scratch.h"

enum { STEPS = 7, N_W = 6, N_B = 3, N_ALL = N_W + N_B };

/* ---- the formulas in plain C ---- */

/* loss = sum curve (p - goal)^2 / 2 over a matrix w [2,3] and a vector b [3] */
typedef struct plain {
    double p[N_ALL], m[N_ALL], v[N_ALL], a[N_ALL], norm; /* a: averages */
    int t;
} plain;

static double goal_of(int i) {
    return sin(1.7 * i + 0.3);
}

static double curve_of(int i) {
    return 0.5 + 0.25 * i;
}

static void plain_step(plain *s, const sn_optimizer *o, double rate) {
    double g[N_ALL], square = 0;
    s->t++;
    for (int i = 0; i < N_ALL; i++) {
        g[i] = curve_of(i) * (s->p[i] - goal_of(i));
        square += g[i] * g[i];
    }
    s->norm = sqrt(square);
    double shrink = o->max_norm > 0 ? fmin(1, o->max_norm / (s->norm + 1e-6)) : 1;
    for (int i = 0; i < N_ALL; i++) {
        double *p = &s->p[i], *m = &s->m[i], *v = &s->v[i], x = g[i] * shrink;
        double decay = i < N_W ? o->decay : 0;
        if (o->kind == SN_ADAMW)
            *p -= rate * decay * *p;
        else
            x += decay * *p;
        if (o->kind == SN_SGD) {
            *m = o->momentum * *m + x;
            *p -= rate * (o->nesterov ? x + o->momentum * *m : *m);
        } else if (o->kind == SN_RMSPROP || o->kind == SN_ADAGRAD) {
            *v = o->kind == SN_ADAGRAD ? *v + x * x : o->beta2 * *v + (1 - o->beta2) * x * x;
            *p -= rate * x / (sqrt(*v) + o->eps);
        } else {
            *m = o->beta1 * *m + (1 - o->beta1) * x;
            *v = o->beta2 * *v + (1 - o->beta2) * x * x;
            double mean = *m / (1 - pow(o->beta1, s->t)), power = *v / (1 - pow(o->beta2, s->t));
            *p -= rate * mean / (sqrt(power) + o->eps);
        }
        if (o->average > 0) s->a[i] += fmax(1 - o->average, 1.0 / s->t) * (*p - s->a[i]);
    }
}

static plain plain_start(void) {
    plain s = {.t = 0};
    for (int i = 0; i < N_ALL; i++) s.p[i] = (float)cos(2.1 * i);
    return s;
}

/* ---- the same as a module ---- */

static sn_tensor distance(sn_module *m, sn_tensor p, int first, int n) {
    sn_tensor flat = sn_reshape(p, n), i = sn_add(sn_arange(m, SN_F32, n), first);
    sn_tensor away = sn_sub(flat, sn_sin(sn_add(sn_mul(i, 1.7), 0.3)));
    sn_tensor curve = sn_add(sn_mul(i, 0.25), 0.5);
    return sn_mul(sn_sum_all(sn_mul(curve, sn_square(away))), 0.5);
}

static sn_module *new_module(const sn_optimizer *o, double rate) {
    sn_module *m = sn_module_new("step");
    sn_tensor param[] = {sn_param(m, "w", SN_F32, 2, 3), sn_param(m, "b", SN_F32, 3)};
    sn_tensor loss = sn_add(distance(m, param[0], 0, N_W), distance(m, param[1], N_W, N_B));
    sn_entry_begin(m, "step");
    sn_output("loss", loss);
    sn_output("norm", sn_optimize(loss, sn_scalar(m, SN_F32, rate), 2, param, o));
    return m;
}

/* One step by the evaluator: every assigned value becomes the next one's. */
static void eval_step(sn_module *m, plain *s) {
    sn_entry *e = sn_entry_get(m, "step");
    sn_eval *ev = sn_eval_new(m, NULL);
    double t = s->t;
    sn_eval_bind_f64(ev, "w", s->p, N_W);
    sn_eval_bind_f64(ev, "b", s->p + N_W, N_B);
    sn_eval_bind_f64(ev, "optimizer.m.w", s->m, N_W);
    sn_eval_bind_f64(ev, "optimizer.m.b", s->m + N_W, N_B);
    sn_eval_bind_f64(ev, "optimizer.v.w", s->v, N_W);
    sn_eval_bind_f64(ev, "optimizer.v.b", s->v + N_W, N_B);
    sn_eval_bind_f64(ev, "optimizer.average.w", s->a, N_W);
    sn_eval_bind_f64(ev, "optimizer.average.b", s->a + N_W, N_B);
    sn_eval_bind_f64(ev, "optimizer.step", &t, 1);
    plain next = *s;
    for (int i = 0; i < e->n_assign; i++) {
        const char *name = e->assign[i].name;
        const sn_value *v = sn_eval_node(ev, e->assign[i].node);
        if (!v) fail_msg("%s", sn_module_error(m)->message);
        char last = name[strlen(name) - 1];
        double *to = strstr(name, ".m.")         ? next.m
                     : strstr(name, ".v.")       ? next.v
                     : strstr(name, ".average.") ? next.a
                                                 : next.p;
        if (!strcmp(name, "optimizer.step"))
            next.t = (int)v->data[0];
        else
            memcpy(to + (last == 'b' ? N_W : 0), v->data, sizeof(double) * (size_t)v->n);
    }
    next.norm = sn_eval_node(ev, e->output[1].node)->data[0];
    sn_eval_free(ev);
    *s = next;
}

static void check_close(const char *what, const plain *got, const plain *want, double tolerance) {
    assert_int_equal(got->t, want->t);
    for (int i = 0; i < N_ALL; i++)
        if (!(fabs(got->p[i] - want->p[i]) <= tolerance * (1 + fabs(want->p[i]))))
            fail_msg("%s, step %d: parameter %d is %.12g, not %.12g", what, want->t, i, got->p[i],
                     want->p[i]);
    for (int i = 0; i < N_ALL; i++)
        if (!(fabs(got->a[i] - want->a[i]) <= tolerance * (1 + fabs(want->a[i]))))
            fail_msg("%s, step %d: average %d is %.12g, not %.12g", what, want->t, i, got->a[i],
                     want->a[i]);
    assert_true(fabs(got->norm - want->norm) <= tolerance * (1 + want->norm));
}

static const sn_options quiet = {.level = -1, .threads = 2, .cache_dir = scratch_dir};

static sn_program *compiled(sn_module *m, const sn_options *o) {
    sn_error err = {0};
    sn_program *p = sn_compile(m, o, &err);
    if (!p) fail_msg("%s", err.message);
    return p;
}

static void need(bool ok, const sn_error *err) {
    if (!ok) fail_msg("%s", err->message);
}

static void compiled_steps(const char *what, sn_module *m, const sn_optimizer *o, double rate,
                           int level) {
    sn_error err = {0};
    sn_options options = quiet;
    options.level = level;
    sn_program *p = compiled(m, &options);
    plain want = plain_start(), got = want;
    float w[N_W], b[N_B], first[N_W];
    for (int i = 0; i < N_ALL; i++) *(i < N_W ? &w[i] : &b[i - N_W]) = (float)want.p[i];
    memcpy(first, w, sizeof w);
    const sn_arg_binding param[] = {SN_BIND("w", SN_F32, w, 2, 3), SN_BIND("b", SN_F32, b, 3)};
    sn_session *s = sn_session_new_arrays(p, param, 2, &err);
    need(s != NULL, &err);
    for (int k = 0; k < STEPS; k++) {
        float now[N_ALL], mean[N_ALL] = {0}, norm;
        int64_t t;
        const sn_arg_binding out = {.name = "norm", .dtype = SN_F32, .data = &norm};
        need(sn_run(s, "step", NULL, 0, &out, 1, &err), &err);
        plain_step(&want, o, rate);
        need(sn_state_read(s, "w", now, sizeof w, &err), &err);
        need(sn_state_read(s, "b", now + N_W, sizeof b, &err), &err);
        if (o->average > 0) {
            need(sn_state_read(s, "optimizer.average.w", mean, sizeof w, &err), &err);
            need(sn_state_read(s, "optimizer.average.b", mean + N_W, sizeof b, &err), &err);
        }
        need(sn_state_read(s, "optimizer.step", &t, sizeof t, &err), &err);
        got.t = (int)t;
        got.norm = norm;
        for (int i = 0; i < N_ALL; i++) got.p[i] = now[i], got.a[i] = mean[i];
        check_close(what, &got, &want, 1e-5);
    }
    assert_memory_equal(w, first, sizeof w); /* the caller's array is only read */
    sn_session_free(s);
    sn_program_free(p);
}

/* AdamW as a user writes it. */
static sn_tensor own_adamw(const sn_update *u) {
    double b1 = u->o->beta1, b2 = u->o->beta2;
    sn_tensor m = sn_update_state(u, "m"), v = sn_update_state(u, "v"), g = u->gradient;
    sn_tensor mean = sn_add(sn_mul(m, b1), sn_mul(g, 1 - b1));
    sn_tensor power = sn_add(sn_mul(v, b2), sn_mul(sn_square(g), 1 - b2));
    sn_assign(m, mean);
    sn_assign(v, power);
    mean = sn_div(mean, sn_sub(1, sn_exp(sn_mul(u->step, log(b1)))));
    power = sn_div(power, sn_sub(1, sn_exp(sn_mul(u->step, log(b2)))));
    sn_tensor kept = sn_mul(u->param, sn_sub(1, sn_mul(u->rate, u->decay)));
    return sn_sub(kept, sn_mul(sn_div(mean, sn_add(sn_sqrt(power), u->o->eps)), u->rate));
}

static const struct {
    const char *name;
    sn_optimizer o;
    double rate;
} cases[] = {
    {"sgd", {.kind = SN_SGD}, 0.1},
    {"sgd with decay", {.kind = SN_SGD, .decay = 0.1}, 0.1},
    {"momentum", {.kind = SN_SGD, .momentum = 0.9}, 0.05},
    {"nesterov", {.kind = SN_SGD, .momentum = 0.9, .nesterov = true, .decay = 0.01}, 0.05},
    {"clipped", {.kind = SN_SGD, .max_norm = 0.5}, 0.1},
    {"not clipped", {.kind = SN_SGD, .max_norm = 50}, 0.1},
    {"rmsprop", {.kind = SN_RMSPROP, .beta2 = 0.99, .eps = 1e-8}, 0.01},
    {"adagrad", {.kind = SN_ADAGRAD, .eps = 1e-10, .decay = 0.1}, 0.1},
    {"adam", {.kind = SN_ADAM, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}, 0.01},
    {"adam with decay",
     {.kind = SN_ADAM, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .decay = 0.1},
     0.01},
    {"adamw",
     {.kind = SN_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1, .max_norm = 1},
     0.01},
    {"adamw of a user",
     {.kind = SN_ADAMW,
      .update = own_adamw,
      .beta1 = 0.9,
      .beta2 = 0.95,
      .decay = 0.1,
      .eps = 1e-8,
      .max_norm = 1},
     0.01},
    {"adamw, averaged",
     {.kind = SN_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1, .average = 0.7},
     0.01},
    {"sgd, averaged", {.kind = SN_SGD, .max_norm = 0.5, .average = 0.9}, 0.1},
    {"adam without memory", {.kind = SN_ADAM, .beta1 = 0, .beta2 = 0, .eps = 1e-3}, 0.01},
};
enum { N_CASE = sizeof cases / sizeof *cases };

static void optimizers_by_the_evaluator(void **state) {
    (void)state;
    for (int c = 0; c < N_CASE; c++) {
        sn_module *m = new_module(&cases[c].o, cases[c].rate);
        plain want = plain_start(), got = want;
        for (int k = 0; k < STEPS; k++) {
            plain_step(&want, &cases[c].o, cases[c].rate);
            eval_step(m, &got);
            check_close(cases[c].name, &got, &want, 1e-6); /* the rate is an f32 constant */
        }
        sn_module_free(m);
    }
}

static void optimizers_compiled(void **state) {
    (void)state;
    for (int c = 0; c < N_CASE; c++) {
        sn_module *m = new_module(&cases[c].o, cases[c].rate);
        compiled_steps(cases[c].name, m, &cases[c].o, cases[c].rate, c % 2 ? 4 : 0);
        sn_module_free(m);
    }
}

/* PyTorch's, and those of the papers' code. */
static void usual_settings(void **state) {
    (void)state;
    static const struct {
        const char *name;
        sn_optimizer o;
    } usual[] = {
        {"sgd", {.kind = SN_SGD}},
        {"rmsprop", {.kind = SN_RMSPROP, .beta2 = 0.99, .eps = 1e-8}},
        {"adagrad", {.kind = SN_ADAGRAD, .eps = 1e-10}},
        {"adam", {.kind = SN_ADAM, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}},
        {"adamw", {.kind = SN_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .decay = 0.01}},
        {"lion", {.kind = SN_LION, .beta1 = 0.9, .beta2 = 0.99}},
        {"muon", {.kind = SN_MUON, .momentum = 0.95, .nesterov = true, .eps = 1e-7, .decay = 0.1}},
        {"normuon",
         {.kind = SN_NORMUON,
          .momentum = 0.95,
          .nesterov = true,
          .beta2 = 0.95,
          .eps = 1e-7,
          .decay = 0.1}},
        {"adafactor", {.kind = SN_ADAFACTOR, .eps = 0x1p-23}},
        {"shampoo",
         {.kind = SN_SHAMPOO,
          .momentum = 0.95,
          .nesterov = true,
          .beta2 = 0.95,
          .eps = 1e-5,
          .decay = 0.1}},
        {"soap", {.kind = SN_SOAP, .beta1 = 0.95, .beta2 = 0.95, .eps = 1e-8, .decay = 0.01}},
    };
    enum { N = sizeof usual / sizeof *usual };
    assert_null(sn_optimizer_names()[N]);
    for (int i = 0; i < N; i++) {
        const sn_optimizer *want = &usual[i].o, o = sn_optimizer_of(want->kind);
        const bool numbers = o.momentum == want->momentum && o.beta1 == want->beta1 &&
                             o.beta2 == want->beta2 && o.eps == want->eps &&
                             o.decay == want->decay && !o.max_norm && !o.average;
        assert_string_equal(sn_optimizer_names()[want->kind], usual[i].name);
        if (o.kind != want->kind || !numbers || o.nesterov != want->nesterov || o.polar || o.groups)
            fail_msg("the usual settings of %s", usual[i].name);
    }
}

static bool not_named(const char *name, int rank, const void *user) {
    (void)rank;
    return strcmp(name, user) != 0;
}

/* Which parameters decay: by default matrices; or as a function says. */
static void decay_groups(void **state) {
    (void)state;
    sn_module *m = sn_module_new("decay");
    sn_tensor w = sn_param(m, "w", SN_F32, 2, 3), b = sn_param(m, "b", SN_F32, 3);
    sn_tensor unused = sn_scalar(m, SN_F32, 2), zero = sn_mul(sn_sum_all(sn_add(w, b)), 0);
    sn_optimizer o = {.kind = SN_SGD, .decay = 0.5};
    sn_entry_begin(m, "usual");
    sn_optimize(zero, unused, 2, ((sn_tensor[]){w, b}), &o);
    o.decays = not_named;
    o.user = "w";
    sn_entry_begin(m, "chosen");
    sn_optimize(zero, unused, 2, ((sn_tensor[]){w, b}), &o);
    sn_eval *ev = sn_eval_new(m, NULL);
    const float ones[N_W] = {1, 1, 1, 1, 1, 1};
    sn_eval_bind(ev, "w", ones, sizeof ones);
    sn_eval_bind(ev, "b", ones, 3 * sizeof *ones);
    /* p - rate decay p = 0 with decay, 1 without */
    const sn_binding *usual = sn_entry_get(m, "usual")->assign;
    const sn_binding *chosen = sn_entry_get(m, "chosen")->assign;
    assert_true(sn_eval_node(ev, usual[0].node)->data[0] == 0);
    assert_true(sn_eval_node(ev, usual[1].node)->data[0] == 1);
    assert_true(sn_eval_node(ev, chosen[0].node)->data[0] == 1);
    assert_true(sn_eval_node(ev, chosen[1].node)->data[0] == 0);
    sn_eval_free(ev);
    sn_module_free(m);
}

/* ---- schedules ---- */

static double plain_rate(const sn_schedule *s, double t) {
    double warm = s->warmup > 0 ? fmin(1, t / (double)s->warmup) : 1, rate = s->peak;
    double u = fmin(1, fmax(0, (t - (double)s->warmup) / (double)(s->total - s->warmup)));
    if (s->kind == SN_LINEAR) rate = s->peak + u * (s->final - s->peak);
    if (s->kind == SN_COSINE) rate = s->final + (s->peak - s->final) * (1 + cos(M_PI * u)) / 2;
    if (s->kind == SN_INVERSE_SQRT) {
        double w = s->warmup > 0 ? (double)s->warmup : 1;
        return s->peak * fmin(sqrt(w / t), s->warmup > 0 ? t / w : 1);
    }
    return warm * rate;
}

static void schedules(void **state) {
    (void)state;
    static const sn_schedule all[] = {
        {.kind = SN_CONSTANT, .peak = 0.1},
        {.kind = SN_CONSTANT, .peak = 0.1, .warmup = 5},
        {.kind = SN_LINEAR, .peak = 0.1, .final = 0.01, .warmup = 5, .total = 20},
        {.kind = SN_LINEAR, .peak = 0.1, .total = 20},
        {.kind = SN_COSINE, .peak = 0.1, .final = 0.02, .warmup = 4, .total = 24},
        {.kind = SN_INVERSE_SQRT, .peak = 0.1, .warmup = 6},
        {.kind = SN_INVERSE_SQRT, .peak = 0.1},
    };
    enum { N = sizeof all / sizeof *all };
    sn_error err = {0};
    sn_module *m = sn_module_new("rates");
    sn_entry_begin(m, "rate");
    sn_tensor rate[N], step = sn_train_step(m);
    static const char *const names[] = {"r0", "r1", "r2", "r3", "r4", "r5", "r6"};
    for (int i = 0; i < N; i++) {
        rate[i] = sn_learning_rate_at(SN_HERE, step, &all[i]);
        sn_output(names[i], rate[i]);
    }
    sn_assign(step, sn_add(step, 1));
    sn_program *p = compiled(m, &quiet);
    sn_session *s = sn_session_new_arrays(p, NULL, 0, &err);
    need(s != NULL, &err);
    for (int64_t k = 0; k < 30; k++) {
        float got[N];
        sn_arg_binding out[N];
        for (int i = 0; i < N; i++)
            out[i] = (sn_arg_binding){.name = names[i], .dtype = SN_F32, .data = &got[i]};
        need(sn_run(s, "rate", NULL, 0, out, N, &err), &err);
        sn_eval *ev = sn_eval_new(m, NULL);
        sn_eval_bind(ev, "optimizer.step", &k, sizeof k);
        for (int i = 0; i < N; i++) {
            double want = plain_rate(&all[i], (double)k + 1);
            const sn_value *v = sn_eval_node(ev, rate[i]);
            assert_non_null(v);
            assert_true(fabs(v->data[0] - want) < 1e-7);
            assert_true(fabs(got[i] - want) < 1e-7);
        }
        sn_eval_free(ev);
    }
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(m);
}

/* ---- a model that learns ---- */

typedef struct trained {
    sn_model model;
    sn_arg_binding param[64];
    int64_t shape[64][SN_MAX_RANK];
    int n;
} trained;

static void build_model(trained *r) {
    static const char text[] = "{\"model_type\": \"gpt2\", \"vocab_size\": 11, \"n_positions\": 8, "
                               "\"n_embd\": 16, \"n_layer\": 1, \"n_head\": 2}";
    sn_error err = {0};
    sn_config *c = sn_config_parse("config.json", text, strlen(text), &err);
    sn_model_options o = {.entries = SN_LOSS | SN_FORWARD};
    need(sn_model_build(c, &o, &r->model, &err), &err);
    sn_config_free(c);
    sn_module *m = r->model.module;
    sn_tensor loss = sn_mean_all(sn_entry_get(m, "loss")->output[0].node), param[64];
    r->n = sn_params_of(loss, 64, param);
    sn_entry_begin(m, "train");
    sn_output("loss", loss);
    sn_optimizer adamw = sn_optimizer_of(SN_ADAMW);
    adamw.max_norm = 1;
    sn_tensor rate = sn_learning_rate(sn_train_step(m), .kind = SN_COSINE, .peak = 0.01,
                                      .warmup = 5, .total = 60);
    sn_optimize(loss, rate, r->n, param, &adamw);
    sn_rng rng = {.seed = 3, .stream = SN_STREAM_INIT};
    for (int i = 0; i < r->n; i++) {
        const sn_node *p = param[i];
        const char *name = sn_attr_str(p, SN_A_name, "");
        size_t count = 1;
        for (int a = 0; a < p->rank; a++) count *= (size_t)(r->shape[i][a] = p->shape[a]);
        float *v = malloc(count * sizeof *v);
        assert_non_null(v);
        bool gain = p->rank == 1 && strstr(name, "weight");
        for (size_t k = 0; k < count; k++)
            v[k] = gain ? 1 : p->rank > 1 ? 0.1f * (float)sn_rng_normal(&rng) : 0;
        r->param[i] = (sn_arg_binding){name, SN_F32, p->rank, r->shape[i], v};
    }
}

static void free_model(trained *r) {
    for (int i = 0; i < r->n; i++) free(r->param[i].data);
    sn_module_free(r->model.module);
}

static int32_t tokens[2][8] = {{1, 2, 3, 4, 5, 6, 7, 8}, {8, 7, 6, 5, 4, 3, 2, 1}};
static int32_t targets[2][8] = {{2, 3, 4, 5, 6, 7, 8, 9}, {7, 6, 5, 4, 3, 2, 1, 0}};

static float run_step(sn_session *s) {
    sn_error err = {0};
    float loss;
    const sn_arg_binding in[] = {SN_BIND("tokens", SN_I32, tokens, 2, 8),
                                 SN_BIND("targets", SN_I32, targets, 2, 8)};
    const sn_arg_binding out = {.name = "loss", .dtype = SN_F32, .data = &loss};
    need(sn_run(s, "train", in, 2, &out, 1, &err), &err);
    return loss;
}

static void forward(sn_session *s, float *logits) {
    sn_error err = {0};
    const sn_arg_binding in = SN_BIND("tokens", SN_I32, tokens, 2, 8);
    const sn_arg_binding out = SN_BIND("logits", SN_F32, logits, 2, 8, 11);
    need(sn_run(s, "forward", &in, 1, &out, 1, &err), &err);
}

/* The model learns two sentences by heart; every level takes the same way; other entries see the
 * parameters as they are now; sessions do not touch each other. */
static void model_learns(void **state) {
    (void)state;
    enum { N_LOGIT = 2 * 8 * 11, STEPS_LEARNT = 60 };
    sn_error err = {0};
    float first[5], last[5], before[N_LOGIT], after[N_LOGIT], again[N_LOGIT];
    for (int level = 0; level <= 4; level += 2) {
        if (!effort_takes((size_t)level, 4)) continue;
        trained r;
        build_model(&r);
        sn_options o = quiet;
        o.level = level;
        sn_program *p = compiled(r.model.module, &o);
        sn_session *s = sn_session_new_arrays(p, r.param, r.n, &err);
        sn_session *other = sn_session_new_arrays(p, r.param, r.n, &err);
        need(s && other, &err);
        forward(s, before);
        first[level] = run_step(s);
        for (int k = 1; k < STEPS_LEARNT; k++) last[level] = run_step(s);
        assert_true(first[level] > 2.2 && first[level] < 2.8); /* ln 11 = 2.4 */
        assert_true(last[level] < 0.2);
        forward(s, after);
        int right = 0;
        for (int t = 0; t < 16; t++) {
            int best = 0;
            for (int v = 0; v < 11; v++)
                if (after[t * 11 + v] > after[t * 11 + best]) best = v;
            right += best == targets[t / 8][t % 8];
        }
        assert_int_equal(right, 16);
        forward(other, again); /* the other session has not learnt anything */
        assert_memory_equal(again, before, sizeof before);
        sn_session_reset(s); /* forgets the optimizer's states, not the parameters */
        forward(s, again);
        assert_memory_equal(again, after, sizeof after);
        int64_t t = -1;
        need(sn_state_read(s, "optimizer.step", &t, sizeof t, &err), &err);
        assert_true(t == 0);
        sn_session_free(s);
        sn_session_free(other);
        sn_program_free(p);
        free_model(&r);
    }
    assert_true(fabsf(first[0] - first[4]) < 1e-5);
    if (effort_is_long()) assert_true(fabsf(first[0] - first[2]) < 1e-5);
    assert_true(fabsf(last[0] - last[4]) < 2e-2);
}

/* The same bits for any number of threads, over many steps. */
static void threads_agree(void **state) {
    (void)state;
    sn_error err = {0};
    trained r;
    float loss[3];
    build_model(&r);
    for (int n = 1; n <= 3; n++) {
        sn_options o = quiet;
        o.threads = n;
        sn_program *p = compiled(r.model.module, &o);
        sn_session *s = sn_session_new_arrays(p, r.param, r.n, &err);
        need(s != NULL, &err);
        for (int k = 0; k < 10; k++) loss[n - 1] = run_step(s);
        sn_session_free(s);
        sn_program_free(p);
    }
    assert_memory_equal(&loss[0], &loss[1], sizeof *loss);
    assert_memory_equal(&loss[0], &loss[2], sizeof *loss);
    free_model(&r);
}

/* ---- mistakes ---- */

static void expect_words(sn_module *m, const char *const *words) {
    sn_error err = {0};
    assert_false(sn_module_ok(m, &err));
    for (; *words; words++)
        if (!strstr(err.message, *words)) fail_msg("wanted '%s' in: %s", *words, err.message);
    sn_module_free(m);
}
#define EXPECT_WORDS(...) expect_words(m, (const char *const[]){__VA_ARGS__, NULL})

static sn_tensor gives_nothing(const sn_update *u) {
    (void)u;
    return NULL;
}

static sn_tensor gives_scalar(const sn_update *u) {
    return sn_sum_all(u->param);
}

static sn_tensor gives_f64(const sn_update *u) {
    return sn_cast(u->param, SN_F64);
}

static sn_tensor names_with_dot(const sn_update *u) {
    return sn_add(u->param, sn_update_state(u, "a.b"));
}

static sn_tensor assigns_scalar(const sn_update *u) {
    sn_assign(sn_update_state(u, "m"), u->rate);
    return u->param;
}

static sn_tensor assigns_parameter(const sn_update *u) {
    sn_assign(u->param, sn_neg(u->param));
    return u->param;
}

static sn_module *mistake(sn_tensor *loss, sn_tensor *w) {
    sn_module *m = sn_module_new("mistake");
    *w = sn_param(m, "w", SN_F32, 3);
    *loss = sn_sum_all(sn_square(*w));
    sn_entry_begin(m, "step");
    return m;
}

static void mistakes(void **state) {
    (void)state;
    sn_tensor loss, w, many[2];
    sn_optimizer o = sn_optimizer_of(SN_ADAM);
    sn_module *m = mistake(&loss, &w);
    sn_optimize(loss, sn_square(w), 1, &w, &o);
    EXPECT_WORDS("test_optim.c:", "sn_optimize", "rate", "f32[3]", "float scalar");
    m = mistake(&loss, &w);
    sn_optimize(sn_square(w), sn_scalar(m, SN_F32, 1), 1, &w, &o);
    EXPECT_WORDS("sn_grad", "f32[3]", "float scalar");
    m = mistake(&loss, &w);
    many[0] = w;
    many[1] = sn_square(w);
    sn_optimize(loss, sn_scalar(m, SN_F32, 1), 2, many, &o);
    EXPECT_WORDS("tensor 2", "parameter or a state");
    m = mistake(&loss, &w);
    sn_optimize(loss, sn_scalar(m, SN_F32, 1), 0, NULL, &o);
    EXPECT_WORDS("no parameter");
    m = mistake(&loss, &w);
    o.beta2 = 1;
    sn_optimize(loss, sn_scalar(m, SN_F32, 1), 1, &w, &o);
    EXPECT_WORDS("out of range", "sn_optimizer_of");
    m = mistake(&loss, &w);
    sn_learning_rate(loss, .peak = 1);
    EXPECT_WORDS("sn_learning_rate", "integer scalar");
    m = mistake(&loss, &w);
    sn_learning_rate(sn_train_step(m), .kind = SN_COSINE, .peak = 1, .warmup = 10, .total = 10);
    EXPECT_WORDS("warm-up of 10", "10 in all");
    m = mistake(&loss, &w);
    sn_assign(sn_square(w), w);
    EXPECT_WORDS("sn_assign", "not a state");
}

/* An update that returns something else than the new value, or misuses states. */
static void wrong_updates(void **state) {
    (void)state;
    static const struct {
        sn_update_fn update;
        const char *words[4];
    } wrong[] = {
        {gives_nothing, {"update of parameter 'w' returned NULL", "f32[3]"}},
        {gives_scalar, {"test_optim.c:", "returned", "f32[]", "f32[3]"}},
        {gives_f64, {"returned", "f64[3]", "the type and shape of the old one"}},
        {names_with_dot, {"sn_update_state", "'a.b' contains a dot"}},
        {assigns_scalar, {"sn_assign", "'optimizer.m.w'", "must be equal"}},
        {assigns_parameter, {"'w'", "assigned twice"}},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        sn_tensor loss, w;
        sn_module *m = mistake(&loss, &w);
        sn_optimizer o = {.update = wrong[i].update};
        sn_optimize(loss, sn_scalar(m, SN_F32, 1), 1, &w, &o);
        const char *words[5] = {0};
        memcpy(words, wrong[i].words, sizeof wrong[i].words);
        expect_words(m, words);
    }
}

/* A parameter that the loss does not depend on: its gradient is zero, so only weight decay moves
 * it. */
static void unused_parameter(void **state) {
    (void)state;
    for (int decay = 0; decay < 2; decay++) {
        sn_tensor loss, param[2];
        sn_module *m = mistake(&loss, &param[0]);
        param[1] = sn_param(m, "unused", SN_F32, 2, 2);
        sn_optimizer o = sn_optimizer_of(SN_ADAMW);
        o.decay = decay ? 0.5 : 0;
        sn_optimize(loss, sn_scalar(m, SN_F32, 0.25), 2, param, &o);
        sn_error err = {0};
        sn_program *p = sn_compile(m, &(sn_options){.level = -1, .cache_dir = scratch_dir}, &err);
        if (!p) fail_msg("%s", err.message);
        float w[3] = {1, 2, 3}, unused[4] = {1, -2, 3, -4}, now[4];
        sn_arg_binding value[] = {SN_BIND("w", SN_F32, w, 3),
                                  SN_BIND("unused", SN_F32, unused, 2, 2)};
        sn_session *s = sn_session_new_arrays(p, value, 2, &err);
        if (!s || !sn_run(s, "step", NULL, 0, NULL, 0, &err)) fail_msg("%s", err.message);
        assert_true(sn_state_read(s, "unused", now, sizeof now, &err));
        for (int i = 0; i < 4; i++) assert_true(now[i] == unused[i] * (decay ? 0.875F : 1));
        assert_true(sn_state_read(s, "w", now, sizeof w, &err));
        assert_true(now[0] < w[0]);
        sn_session_free(s);
        sn_program_free(p);
        sn_module_free(m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(optimizers_by_the_evaluator),
        cmocka_unit_test(optimizers_compiled),
        cmocka_unit_test(usual_settings),
        cmocka_unit_test(decay_groups),
        cmocka_unit_test(schedules),
        cmocka_unit_test(model_learns),
        cmocka_unit_test(threads_agree),
        cmocka_unit_test(mistakes),
        cmocka_unit_test(wrong_updates),
        cmocka_unit_test(unused_parameter),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
