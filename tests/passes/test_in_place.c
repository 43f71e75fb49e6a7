/* States written in place: kernels that may overwrite a state directly do so, and all others give
 * the same values as if every new value were stored separately. */
#include "codegen/program/program.h"
#include "frontend/sinter.h"
#include "ir/ir.h"
#include "passes/plan/in_place.h"
#include "tests/support/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 40, STEPS = 3 };

typedef struct in_place_case {
    const char *name;
    void (*build)(sn_module *m, sn_tensor a, sn_tensor b, sn_tensor x);
    int copies; /* kernels of the entry that only copy; -1: not counted */
    int slots;  /* of the workspace, at most; 0: any number */
} in_place_case;

static void build_update(sn_module *m, sn_tensor a, sn_tensor b, sn_tensor x) {
    (void)m;
    sn_tensor next = sn_add(sn_mul(b, 0.5), x);
    sn_assign(b, next);
    sn_assign(a, sn_sub(a, sn_mul(next, 0.1)));
}

static void build_swap(sn_module *m, sn_tensor a, sn_tensor b, sn_tensor x) {
    (void)m;
    sn_assign(a, b);
    sn_assign(b, sn_add(a, x));
}

/* each needs the other's old value, in another kernel */
static void build_circle(sn_module *m, sn_tensor a, sn_tensor b, sn_tensor x) {
    (void)m;
    sn_tensor mean_a = sn_mean_keep(a, -1), mean_b = sn_mean_keep(b, -1);
    sn_assign(a, sn_add(sn_matmul(x, sn_swap(x, 0, 1)), mean_b));
    sn_assign(b, sn_add(sn_matmul(sn_swap(x, 0, 1), x), mean_a));
}

static void build_old_output(sn_module *m, sn_tensor a, sn_tensor b, sn_tensor x) {
    (void)m;
    sn_output("before", a);
    sn_assign(a, sn_mul(a, x));
    sn_assign(b, sn_exp(sn_mul(x, 0.1)));
}

static void build_later_reader(sn_module *m, sn_tensor a, sn_tensor b, sn_tensor x) {
    (void)m;
    sn_tensor next = sn_mul(a, x);
    sn_output("mixed", sn_matmul(sn_add(next, b), a));
    sn_assign(a, next);
    sn_assign(b, sn_matmul(a, sn_mul(x, 0.1)));
}

static void build_row_norm(sn_module *m, sn_tensor a, sn_tensor b, sn_tensor x) {
    (void)m;
    sn_assign(a, sn_softmax(sn_add(a, x), -1));
    sn_assign(b, sn_sub(b, sn_mean_keep(b, -1)));
}

static void build_transposed(sn_module *m, sn_tensor a, sn_tensor b, sn_tensor x) {
    (void)m;
    sn_assign(a, sn_add(sn_swap(a, 0, 1), x));
    sn_assign(b, sn_add(sn_mul(sn_matmul(x, x), 0.01), sn_swap(b, 0, 1)));
}

static void build_product(sn_module *m, sn_tensor a, sn_tensor b, sn_tensor x) {
    (void)m;
    sn_tensor g = sn_matmul(sn_swap(x, 0, 1), x), v = sn_add(sn_mul(b, 0.9), sn_mul(g, 0.1));
    sn_assign(b, v);
    sn_assign(a, sn_sub(a, sn_mul(v, 0.01)));
}

/* ---- temporaries that a result may overwrite, and others that it must not ---- */

static sn_tensor product(sn_tensor x, sn_tensor y) {
    return sn_mul(sn_matmul(x, y), 0.1);
}

/* read twice by the same kernel, once at another index */
static void build_read_twice(sn_module *m, sn_tensor a, sn_tensor b, sn_tensor x) {
    (void)m;
    sn_tensor t = product(x, x), y = sn_add(t, sn_swap(t, 0, 1));
    sn_assign(a, product(y, x));
    sn_assign(b, sn_add(b, product(x, y)));
}

/* read again behind the kernel that could overwrite it */
static void build_read_later(sn_module *m, sn_tensor a, sn_tensor b, sn_tensor x) {
    (void)m;
    sn_tensor t = product(x, x), y = sn_softmax(t, -1);
    sn_assign(a, product(y, x));
    sn_assign(b, sn_add(product(t, y), b));
}

/* two results of one kernel, and one operand that both could overwrite */
static void build_two_results(sn_module *m, sn_tensor a, sn_tensor b, sn_tensor x) {
    (void)m;
    sn_tensor t = product(x, x), sum = sn_sum_keep(sn_exp(t), -1), y = sn_mul(t, sum),
              z = sn_div(t, sum);
    sn_assign(a, product(y, x));
    sn_assign(b, product(z, y));
}

/* the same, but the first result is written before the operand is read for the last time */
static void build_early_result(sn_module *m, sn_tensor a, sn_tensor b, sn_tensor x) {
    (void)m;
    sn_tensor t = product(x, x), y = sn_exp(t), z = sn_mul(t, sn_sum_keep(y, -1));
    sn_assign(a, product(y, x));
    sn_assign(b, product(z, y));
}

/* the result is a part of a buffer, and another part is written in between */
static void build_parts(sn_module *m, sn_tensor a, sn_tensor b, sn_tensor x) {
    (void)m;
    sn_tensor t = product(x, x), u = product(x, sn_swap(x, 0, 1));
    sn_tensor both = sn_concat(0, sn_softmax(t, -1), sn_softmax(u, -1));
    sn_output("both", both);
    sn_tensor sum = product(sn_swap(both, 0, 1), both);
    sn_assign(a, sn_add(sum, a));
    sn_assign(b, sn_add(product(u, sum), b));
}

/* a part of a temporary: all of it has no room where the result goes */
static void build_part_of(sn_module *m, sn_tensor a, sn_tensor b, sn_tensor x) {
    (void)m;
    sn_tensor both = sn_cumsum(sn_concat(0, x, sn_exp(x)), 1), other = product(x, x);
    sn_tensor low = sn_slice(both, 0, 0, N), high = sn_slice(both, 0, N, N);
    sn_tensor y = sn_softmax(sn_add(low, product(high, other)), -1);
    sn_assign(a, product(y, other));
    sn_assign(b, sn_add(product(y, sn_swap(x, 0, 1)), b));
}

/* what the result's buffer holds around it is written after the operand */
static void build_padded(sn_module *m, sn_tensor a, sn_tensor b, sn_tensor x) {
    (void)m;
    sn_tensor t = product(x, x), padded = sn_pad(sn_softmax(t, -1), 0, N, N, 0.25);
    sn_assign(a, product(sn_slice(padded, 0, N / 2, N), x));
    sn_assign(b, sn_add(product(sn_slice(padded, 0, N, N), sn_slice(padded, 0, 2 * N, N)), b));
}

/* written and read by a loop, whose kernels see one element at a time */
static void through_step(sn_scan_step *s) {
    s->next[0] = s->y[0] =
        sn_tanh(sn_add(sn_matmul(s->carry[0], *(const sn_tensor *)s->user), s->x[0]));
}

static void build_loop(sn_module *m, sn_tensor a, sn_tensor b, sn_tensor x) {
    (void)m;
    sn_tensor t = product(x, x), first = sn_squeeze(sn_slice(x, 0, 0, 1), 0);
    sn_tensor y = sn_scan(.carry = {sn_expand(first, 0)}, .x = {sn_expand(t, 1)}, .axis = 0,
                          .body = through_step, .user = &x)
                      .y[0];
    sn_assign(a, product(sn_softmax(sn_reshape(y, N, N), -1), x));
    sn_assign(b, sn_add(product(x, sn_softmax(t, -1)), b));
}

static sn_tensor other_rows(sn_module *m, sn_tensor x) {
    return sn_gather(x, 0, sn_sub(N - 1, sn_arange(m, SN_I32, N)));
}

/* a kernel reads a temporary at its own row and at another one, which it must not overwrite before */
static void build_far_rows(sn_module *m, sn_tensor a, sn_tensor b, sn_tensor x) {
    sn_tensor t = product(x, x), y = sn_softmax(sn_add(t, other_rows(m, t)), -1);
    sn_assign(a, product(y, x));
    sn_assign(b, sn_add(b, product(x, y)));
}

/* an operand of a sum is also read at other rows, so it is in memory before the sum is computed */
static void build_far_summand(sn_module *m, sn_tensor a, sn_tensor b, sn_tensor x) {
    sn_tensor t = sn_exp(sn_add(x, a));
    sn_assign(a, sn_tanh(sn_add(other_rows(m, t), t)));
    sn_assign(b, sn_mul(t, sn_sum_keep(t, -1)));
}

static const in_place_case cases[] = {
    {"update", build_update, 0, 0},
    {"swap", build_swap, -1, 0},
    {"circle", build_circle, -1, 0},
    {"old value as output", build_old_output, -1, 0},
    {"later reader", build_later_reader, -1, 0},
    {"row norm", build_row_norm, -1, 0},
    {"transposed", build_transposed, -1, 0},
    {"product", build_product, 0, 0},
    {"read twice", build_read_twice, -1, 0},
    {"read later", build_read_later, -1, 2},
    {"two results", build_two_results, -1, 2},
    {"early result", build_early_result, -1, 2},
    {"parts", build_parts, -1, 2},
    {"part of a temporary", build_part_of, -1, 0},
    {"padded", build_padded, -1, 0},
    {"loop", build_loop, -1, 0},
    {"far rows", build_far_rows, -1, 0},
    {"far summand", build_far_summand, -1, 0},
};

static sn_module *make(const in_place_case *c) {
    sn_module *m = sn_module_new(c->name);
    sn_tensor a = sn_state(m, "a", SN_F32, N, N), b = sn_state(m, "b", SN_F32, N, N);
    sn_entry_begin(m, "step");
    c->build(m, a, b, sn_input(m, "x", SN_F32, N, N));
    sn_error err = {0};
    if (!sn_module_ok(m, &err)) fail_msg("%s: %s", c->name, err.message);
    return m;
}

static int count_copies(const sn_program *p) {
    char *text = explain_text(p, "step");
    int n = 0;
    for (const char *s = text; (s = strstr(s, "body: copy")); s++) n++;
    free(text);
    return n;
}

static int count_slots(const sn_program *p) {
    char *text = explain_text(p, "step");
    const char *end = strstr(text, " memory slots");
    assert_non_null(end);
    while (end[-1] != ' ') end--;
    int n = atoi(end);
    free(text);
    return n;
}

static double *eval_next(sn_module *m, int assign, const double *a, const double *b,
                         const float *x) {
    sn_eval *ev = sn_eval_new(m, NULL);
    sn_eval_bind_f64(ev, "a", a, N * N);
    sn_eval_bind_f64(ev, "b", b, N * N);
    sn_eval_bind(ev, "x", x, sizeof(float) * N * N);
    const sn_entry *e = sn_entry_get(m, "step");
    const sn_value *v = sn_eval_node(ev, e->assign[assign].node);
    assert_non_null(v);
    double *copy = malloc(sizeof *copy * N * N);
    memcpy(copy, v->data, sizeof *copy * N * N);
    sn_eval_free(ev);
    return copy;
}

static void check(const in_place_case *c, int level) {
    sn_module *m = make(c), *ref = make(c);
    sn_options o = sn_options_default();
    o.level = level;
    sn_error err = {0};
    sn_program *p = sn_compile(m, &o, &err);
    if (!p) fail_msg("%s: %s", c->name, err.message);
    if (c->copies >= 0 && level == 4) assert_int_equal(count_copies(p), c->copies);
    if (c->slots && level == 4) assert_in_range(count_slots(p), 0, c->slots);
    sn_session *s = sn_session_new_arrays(p, NULL, 0, &err);
    if (!s) fail_msg("%s: %s", c->name, err.message);
    static float x[N * N], got[N * N];
    double *state[2] = {calloc(N * N, sizeof(double)), calloc(N * N, sizeof(double))};
    for (int i = 0; i < N * N; i++) {
        state[0][i] = got[i] = (float)sin(0.37 * i);
    }
    assert_true(sn_state_write(s, "a", got, sizeof got, &err));
    for (int t = 0; t < STEPS; t++) {
        for (int i = 0; i < N * N; i++) x[i] = (float)cos(0.11 * i + t);
        sn_arg_binding in = SN_BIND("x", SN_F32, x, N, N);
        if (!sn_run(s, "step", &in, 1, NULL, 0, &err)) fail_msg("%s: %s", c->name, err.message);
        const sn_entry *e = sn_entry_get(ref, "step");
        double *next[2] = {0};
        for (int i = 0; i < e->n_assign; i++)
            next[strcmp(e->assign[i].name, "a") != 0] = eval_next(ref, i, state[0], state[1], x);
        for (int k = 0; k < 2; k++) {
            free(state[k]);
            state[k] = next[k];
            assert_true(sn_state_read(s, k ? "b" : "a", got, sizeof got, &err));
            for (int i = 0; i < N * N; i++)
                if (!(fabs(got[i] - state[k][i]) <= 1e-4 * (1 + fabs(state[k][i]))))
                    fail_msg("%s, level %d, step %d: %s[%d] is %g, not %g", c->name, level, t,
                             k ? "b" : "a", i, (double)got[i], state[k][i]);
        }
    }
    free(state[0]);
    free(state[1]);
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(m);
    sn_module_free(ref);
}

static void test_states(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int level = 0; level <= 4; level += 2) check(&cases[i], level);
}

/* A product that is added to states, large enough for several threads. */
static void train_with(int threads, float *a, float *b) {
    enum { SIZE = 160 };
    static float x[SIZE * SIZE];
    for (int i = 0; i < SIZE * SIZE; i++) x[i] = (float)sin(0.7 * i);
    sn_module *m = sn_module_new("threads");
    sn_tensor state[] = {sn_state(m, "a", SN_F32, SIZE, SIZE),
                         sn_state(m, "b", SN_F32, SIZE, SIZE)};
    sn_entry_begin(m, "step");
    build_product(m, state[0], state[1], sn_input(m, "x", SN_F32, SIZE, SIZE));
    sn_options o = sn_options_default();
    o.threads = threads;
    sn_error err = {0};
    sn_program *p = sn_compile(m, &o, &err);
    sn_session *s = p ? sn_session_new_arrays(p, NULL, 0, &err) : NULL;
    if (!s) fail_msg("%s", err.message);
    sn_arg_binding in = SN_BIND("x", SN_F32, x, SIZE, SIZE);
    for (int t = 0; t < STEPS; t++) assert_true(sn_run(s, "step", &in, 1, NULL, 0, &err));
    assert_true(sn_state_read(s, "a", a, sizeof x, &err));
    assert_true(sn_state_read(s, "b", b, sizeof x, &err));
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(m);
}

static void test_threads(void **state) {
    (void)state;
    static float one[2][160 * 160], many[2][160 * 160];
    train_with(1, one[0], one[1]);
    for (int threads = 2; threads <= 3; threads++) {
        train_with(threads, many[0], many[1]);
        assert_memory_equal(one, many, sizeof one);
    }
    assert_true(one[0][1] != 0 && one[1][1] != 0);
}

/* A row norm has three loops: the mean, the variance, the result. The row is last read in the
 * third, so only what the third writes may overwrite it. */
static void last_reading_loop(void **state) {
    (void)state;
    sn_module *m = sn_module_new("loops");
    sn_tensor x = sn_input(m, "x", SN_F32, 4, N), free_row = sn_input(m, "f", SN_F32, 4, N);
    sn_tensor centred = sn_sub(x, sn_mul(sn_sum_keep(x, -1), 1.0 / N));
    sn_tensor spread = sn_sum_keep(sn_mul(centred, centred), -1);
    sn_tensor early = sn_mul(free_row, 2), middle = sn_exp(sn_sub(free_row, sn_sum_keep(x, -1))),
              late = sn_div(centred, sn_sqrt(spread));
    sn_node *arg[] = {x, free_row}, *out[] = {early, middle, late};
    const sn_region *body = sn_region_new(m, 2, arg, 3, out);
    assert_false(sn_reads_before(body, 0, 0)); /* written while the mean is still summed */
    assert_false(sn_reads_before(body, 0, 1)); /* one loop early */
    assert_true(sn_reads_before(body, 0, 2));
    assert_true(sn_reads_before(body, 1, 1)); /* read in two loops, for the last time here */
    assert_false(sn_reads_before(body, 1, 0));
    assert_true(sn_reads_before(body, 1, 2));
    sn_module_free(m);
}

/* What is computed from a parameter and a state is not computed once and for all. */
static void states_beside_parameters(void **state) {
    (void)state;
    enum { WIDTH = 4 };
    sn_module *m = sn_module_new("sums");
    sn_tensor w = sn_param(m, "w", SN_F32, WIDTH), a = sn_state(m, "a", SN_F32, WIDTH);
    sn_entry_begin(m, "step");
    sn_tensor next = sn_add(sn_mul(a, 2), w);
    sn_output("next", next);
    sn_assign(a, next);
    sn_options o = sn_options_default();
    sn_error err = {0};
    sn_program *p = sn_compile(m, &o, &err);
    float in[WIDTH] = {1, 2, 3, -4}, out[WIDTH];
    const sn_arg_binding param = SN_BIND("w", SN_F32, in, WIDTH);
    const sn_arg_binding result = SN_BIND("next", SN_F32, out, WIDTH);
    sn_session *s = p ? sn_session_new_arrays(p, &param, 1, &err) : NULL;
    if (!s) fail_msg("%s", err.message);
    float factor = 0;
    for (int t = 0; t < STEPS; t++) {
        factor = 2 * factor + 1;
        assert_true(sn_run(s, "step", NULL, 0, &result, 1, &err));
        for (int i = 0; i < WIDTH; i++) assert_float_equal(out[i], factor * in[i], 0);
    }
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states), cmocka_unit_test(test_threads),
        cmocka_unit_test(states_beside_parameters), cmocka_unit_test(last_reading_loop)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
