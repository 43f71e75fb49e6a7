/* test_misuse.c: NULL arguments, fields and members, wrong enums, ranks and sizes: each is an error
 * that says what is wrong, or nothing at all where there is nobody to tell; no call crashes. */
#include "frontend/models.h"
#include "frontend/sinter.h"
#include "runtime/weights.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include "tests/support/scratch.h"

enum { ROWS = 4, WIDTH = 8, NUMBERS = 64 };

static sn_module *m;
static sn_tensor x, w;
static sn_dim T;
static sn_program *p;
static sn_session *s;
static sn_error err;
static float given[NUMBERS], weight[NUMBERS], result[NUMBERS];
static int32_t ids[ROWS];

static void open_module(void) {
    m = sn_module_new("misused");
    T = sn_symbol(m, "T", 1, 16);
    sn_entry_begin(m, "f");
    x = sn_input(m, "x", SN_F32, T, WIDTH);
    w = sn_param(m, "w", SN_F32, WIDTH, WIDTH);
}

/* A program with an index input, a state and a dimension that follows from no input. */
static int open_all(void **state) {
    scratch_make(state);
    open_module();
    sn_tensor y = sn_linear(x, w, NULL), sum = sn_state(m, "sum", SN_F32, WIDTH);
    sn_assign(sum, sn_add(sum, sn_sum(y, 0)));
    sn_output("y", sn_add(y, sn_embedding(w, sn_input(m, "ids", SN_I32, T))));
    sn_output("c", sn_sum_all(sn_kv_cache(y, "kv", sn_symbol(m, "P", 0, 15), 16)));
    sn_options o = {.level = -1, .threads = 1, .cache_dir = ""};
    sn_arg_binding param = SN_BIND("w", SN_F32, weight, WIDTH, WIDTH);
    p = sn_compile(m, &o, &err);
    s = p ? sn_session_new_arrays(p, &param, 1, &err) : NULL;
    if (!s) fail_msg("%s", err.message);
    return 0;
}

static int close_all(void **state) {
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(m);
    return scratch_end(state);
}

/* The call failed, with a message that has the word. */
static void expect(int line, bool ok, const char *word) {
    if (ok) fail_msg("line %d: accepted", line);
    if (!err.code || !strstr(err.message, word))
        fail_msg("line %d: wanted '%s' in: %s", line, word, err.message);
    err = (sn_error){0};
}
#define FAILS(word, ...) expect(__LINE__, __VA_ARGS__, word)

/* ---- building ---- */

#define DSL(word, ...)                                                                             \
    do {                                                                                           \
        open_module();                                                                             \
        __VA_ARGS__;                                                                               \
        expect(__LINE__, sn_module_ok(m, &err), word);                                             \
        sn_module_free(m);                                                                         \
    } while (0)

static void building(void **state) {
    (void)state;
    sn_module *kept = m;
    sn_tensor kept_w = w;
    sn_tensor part[2], none = NULL;
    sn_optimizer o = sn_optimizer_of(SN_ADAM), odd = sn_optimizer_of((sn_optimizer_kind)44);
    DSL("\"NULL\" is not a valid name", sn_symbol(m, NULL, 1, 2));
    DSL("needs a name", sn_input(m, NULL, SN_F32, 2));
    DSL("needs a name", sn_input(m, "", SN_F32, 2));
    DSL("'@'", sn_param(m, "@prepared.w", SN_F32, 2));
    DSL("'@'", sn_entry_begin(m, "@prepare"));
    DSL("'@'", sn_scope_push(m, "@prepared"));
    DSL("control characters", sn_entry_begin(m, "a\nb"));
    DSL("control characters", sn_output("y\x1b[2J", x));
    DSL("control characters", sn_name(x, "%s", "a\tb"));
    DSL("4096 bytes", for (int i = 0; i < 3000; i++) sn_scope_push(m, "s"));
    DSL("list of sizes is NULL", sn_input_at(SN_HERE, m, "q", SN_F32, NULL));
    DSL("list of sizes is NULL", sn_reshape_at(SN_HERE, x, NULL));
    DSL("list of axes is NULL", sn_transpose_at(SN_HERE, x, NULL));
    DSL("parts is NULL", sn_split(x, 1, 2, NULL));
    DSL("specification is NULL", sn_einsum(NULL, x, w));
    DSL("list of tensors is NULL", sn_grad(sn_sum_all(x), 1, NULL, part));
    DSL("list of gradients is NULL", sn_grad(sn_sum_all(x), 1, &x, NULL));
    DSL("operand 1 is NULL", sn_grad(sn_sum_all(x), 1, &none, part));
    DSL("setting", sn_optimize(sn_sum_all(w), sn_scalar(m, SN_F32, 1), 1, &w, NULL));
    DSL("setting", sn_optimize(sn_sum_all(w), sn_scalar(m, SN_F32, 1), 1, &w, &odd));
    DSL("NULL", sn_optimize(sn_sum_all(w), sn_scalar(m, SN_F32, 1), 1, NULL, &o));
    DSL("operand 1 is NULL", sn_apply_gradients(sn_scalar(m, SN_F32, 1), 1, &none, &w, &o));
    DSL("schedule is NULL", sn_learning_rate_at(SN_HERE, sn_train_step(m), NULL));
    DSL("unknown kind", sn_learning_rate(sn_train_step(m), .kind = (sn_schedule_kind)9, .peak = 1));
    DSL("operand 1 is NULL", sn_attention((sn_tensor)NULL, x, x));
    DSL("assigned twice in this entry", sn_tensor v = sn_state(m, "v", SN_F32, 8);
        sn_assign(v, sn_add(v, 1)); sn_assign(v, sn_add(v, 2)));
    DSL("unknown element type 99", sn_input(m, "q", (sn_dtype)99, 2));
    m = kept;
    w = kept_w;
}

/* Without an error argument: they return a neutral value. */
static void nothing_at_all(void **state) {
    (void)state;
    assert_int_equal(sn_module_error(NULL)->code, SN_ERR_USAGE);
    assert_null(sn_attention_at(SN_HERE, NULL));
    assert_null(sn_query_key_distance_at(SN_HERE, NULL));
    assert_null(sn_concat_at(SN_HERE, 0, NULL));
    assert_int_equal(sn_params_of(NULL, 4, NULL), 0);
    assert_int_equal(sn_params_of(w, 4, NULL), 1);
    assert_int_equal(sn_program_stats(NULL).kernels, 0);
    assert_null(sn_weights_at(NULL, 0));
    assert_null(sn_weights_find(NULL, "a"));
    sn_program_explain(NULL, NULL, stderr);
    sn_program_explain(p, NULL, NULL);
    const sn_kernel_call *calls;
    const char *const *remarks;
    assert_int_equal(sn_program_calls(NULL, "main", NULL, &calls, NULL), -1);
    assert_int_equal(sn_program_calls(p, NULL, NULL, &calls, NULL), -1);
    assert_int_equal(sn_program_calls(p, "none", NULL, &calls, NULL), -1);
    assert_int_equal(sn_program_remarks(NULL, NULL, true, &remarks, NULL), -1);
    assert_int_equal(sn_program_remarks(p, "none", true, &remarks, NULL), -1);
    sn_trace_seconds(NULL, NULL, 1);
    sn_session_reset(NULL);
    sn_session_free(NULL);
    sn_program_free(NULL);
    sn_module_free(NULL);
    sn_trace_end(NULL);
    sn_trace_print(NULL, stderr);
    assert_int_equal(sn_trace_lost(NULL), 0);
}

/* ---- lists of tensors ---- */

typedef struct call {
    sn_session *s;
    const char *entry;
    sn_arg_binding in[4], out[2];
    int n_in, n_out;
} call;

static const int64_t shape_x[] = {ROWS, WIDTH}, shape_ids[] = {ROWS}, past = 3;

static call good_call(void) {
    return (call){s,
                  "f",
                  {{"x", SN_F32, 2, shape_x, given},
                   {"ids", SN_I32, 1, shape_ids, ids},
                   {"P", SN_I64, 0, NULL, (void *)(uintptr_t)&past},
                   {"zz", SN_F32, 2, shape_x, given}},
                  {{"y", SN_F32, 2, shape_x, result}, {"c", SN_F32, 0, NULL, weight}},
                  3,
                  1};
}

static bool run(const call *c) {
    return sn_run(c->s, c->entry, c->n_in == -9 ? NULL : c->in, c->n_in == -9 ? 3 : c->n_in,
                  c->n_out == -9 ? NULL : c->out, c->n_out == -9 ? 1 : c->n_out, &err);
}
#define RUN(word, ...)                                                                             \
    do {                                                                                           \
        call c = good_call();                                                                      \
        __VA_ARGS__;                                                                               \
        expect(__LINE__, run(&c), word);                                                           \
    } while (0)

static void running(void **state) {
    (void)state;
    static const int64_t negative[] = {-4, WIDTH}, huge[] = {INT64_MAX, 8};
    call good = good_call();
    assert_true(run(&good));
    RUN("session or program is NULL", c.s = NULL);
    RUN("no entry 'NULL'", c.entry = NULL);
    RUN("no entry 'g'", c.entry = "g");
    RUN("input 1 has no name", c.in[0].name = NULL);
    RUN("'x' has no data", c.in[0].data = NULL);
    RUN("'ids' has no data", c.in[1].data = NULL);
    RUN("'P' has no data", c.in[2].data = NULL);
    RUN("shape is NULL", c.in[0].shape = NULL);
    RUN("rank 100", c.in[0].rank = 100);
    RUN("rank -1", c.in[0].rank = -1);
    RUN("99 is not an element type", c.in[0].dtype = (sn_dtype)99);
    RUN("size is negative", c.in[0].shape = negative);
    RUN("overflows", c.in[0].shape = huge);
    RUN("'x' is bound twice", c.in[3] = c.in[0]; c.n_in = 4);
    RUN("list of -3 inputs", c.n_in = -3);
    RUN("list of 3 inputs that is NULL", c.n_in = -9);
    RUN("list of 1 outputs that is NULL", c.n_out = -9);
    RUN("list of -1 outputs", c.n_out = -1);
    RUN("output 1 has no name", c.out[0].name = NULL);
    RUN("'y' has no data", c.out[0].data = NULL);
    RUN("shape is NULL", c.out[0].shape = NULL);
    RUN("overlaps input 'x'", c.out[0].data = given);
    RUN("overlaps input 'x'", c.out[0].data = given + 3);
    RUN("'y' and 'c' overlap", c.out[1].data = result + 5; c.n_out = 2);
    good.n_out = 2;
    good.n_in = 4; /* names that the entry has no use for are passed over */
    assert_true(run(&good));
}

static bool new_session(sn_arg_binding a, int n) {
    sn_arg_binding list[] = {a, a};
    sn_session *made = sn_session_new_arrays(p, list, n, &err);
    sn_session_free(made);
    return made != NULL;
}

static void sessions(void **state) {
    (void)state;
    sn_arg_binding a = SN_BIND("w", SN_F32, weight, WIDTH, WIDTH), b = a;
    float f[WIDTH];
    int64_t sizes[8];
    call c = good_call();
    FAILS("the module is NULL", sn_compile(NULL, NULL, &err) != NULL);
    FAILS("the program is NULL", sn_session_new(NULL, NULL, &err) != NULL);
    FAILS("the program is NULL", sn_session_new_arrays(NULL, NULL, 0, &err) != NULL);
    FAILS("list of 3 parameters that is NULL", sn_session_new_arrays(p, NULL, 3, &err) != NULL);
    FAILS("list of -1 parameters", new_session(a, -1));
    FAILS("bound twice", new_session(a, 2));
    FAILS("no name", (b = a, b.name = NULL, new_session(b, 1)));
    FAILS("no data", (b = a, b.data = NULL, new_session(b, 1)));
    FAILS("shape is NULL", (b = a, b.shape = NULL, new_session(b, 1)));
    FAILS("rank 1000", (b = a, b.rank = 1000, new_session(b, 1)));
    FAILS("is not an element type", (b = a, b.dtype = (sn_dtype)-1, new_session(b, 1)));
    FAILS("session is NULL", sn_state_read(NULL, "sum", f, sizeof f, &err));
    FAILS("name is NULL", sn_state_read(s, NULL, f, sizeof f, &err));
    FAILS("data is NULL", sn_state_read(s, "sum", NULL, sizeof f, &err));
    FAILS("data is NULL", sn_state_write(s, "sum", NULL, sizeof f, &err));
    FAILS("that is NULL", sn_output_shape(p, "f", NULL, 2, "y", sizes, &err) >= 0);
    FAILS("no output 'NULL'", sn_output_shape(p, "f", c.in, 3, NULL, sizes, &err) >= 0);
    FAILS("is NULL", sn_output_shape(p, "f", c.in, 3, "y", NULL, &err) >= 0);
    FAILS("session or program is NULL", sn_program_macs(NULL, "f", NULL, 0, &err) >= 0);
    FAILS("the session is NULL", sn_trace_begin(NULL, NULL, 10, &err) != NULL);
    FAILS("trace is NULL", sn_trace_write(NULL, "t", &err));
    FAILS("no loss", sn_check_grad(NULL, 0, NULL, NULL, 0, NULL, &err));
    FAILS("list is NULL", sn_check_grad(NULL, 2, NULL, NULL, 0, NULL, &err));
}

static bool emit(const char *name, int kinds, int n_label) {
    sn_emit_options o = sn_emit_options_default();
    o.dir = scratch_dir;
    o.name = name;
    o.kinds = kinds;
    o.n_label = n_label;
    return sn_emit(s, &o, &err);
}

/* Plans without code can be explained as others can, and do not run. */
static void plan_only(void **state) {
    (void)state;
    sn_options o = {.level = -1, .threads = 1, .cache_dir = "", .plan_only = true};
    sn_arg_binding param = SN_BIND("w", SN_F32, weight, WIDTH, WIDTH);
    sn_program *plan = sn_compile(m, &o, &err);
    if (!plan) fail_msg("%s", err.message);
    assert_int_equal(sn_program_stats(plan).compiled, 0);
    const sn_kernel_call *of_plan, *of_code;
    int n = sn_program_calls(plan, "f", NULL, &of_plan, &err);
    assert_true(n > 0);
    assert_int_equal(n, sn_program_calls(p, "f", NULL, &of_code, &err));
    for (int i = 0; i < n; i++) assert_string_equal(of_plan[i].kernel, of_code[i].kernel);
    FAILS("plan_only", sn_session_new_arrays(plan, &param, 1, &err) != NULL);
    sn_program_free(plan);
}

static void emitting(void **state) {
    (void)state;
    FAILS("session is NULL", sn_emit(NULL, NULL, &err));
    FAILS("options is NULL", sn_emit(s, NULL, &err));
    FAILS("C or C++", emit("int", SN_EMIT_OBJECT, 0));
    FAILS("C or C++", emit("namespace", SN_EMIT_OBJECT, 0));
    FAILS("kinds 64", emit("t", 64, 0));
    FAILS("3 labels", emit("t", SN_EMIT_OBJECT, 3));
    FAILS("-2 labels", emit("t", SN_EMIT_OBJECT, -2));
}

/* ---- files and models ---- */

static void runtime(void **state) {
    (void)state;
    sn_model model;
    sn_weight unnamed = {.dtype = SN_F32}, odd = {.name = "a", .dtype = (sn_dtype)55},
              empty = {.name = "a", .dtype = SN_F32, .rank = 1, .shape = {4}, .bytes = 16};
    const char *path = scratch_path("a.safetensors");
    FAILS("path is NULL", sn_weights_open(NULL, &err) != NULL);
    FAILS("path is NULL", sn_weights_save(NULL, &empty, 1, NULL, 0, &err));
    FAILS("list of tensors is NULL", sn_weights_save(path, NULL, 3, NULL, 0, &err));
    FAILS("has no name", sn_weights_save(path, &unnamed, 1, NULL, 0, &err));
    FAILS("unknown element type", sn_weights_save(path, &odd, 1, NULL, 0, &err));
    FAILS("data is NULL", sn_weights_save(path, &empty, 1, NULL, 0, &err));
    FAILS("config is NULL", sn_model_build(NULL, NULL, &model, &err));
    FAILS("function is NULL", sn_model_build_with(NULL, "x", NULL, &model, &err));
    FAILS("text is NULL", sn_config_parse("c", NULL, 4, &err) != NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(building), cmocka_unit_test(nothing_at_all), cmocka_unit_test(running),
        cmocka_unit_test(sessions), cmocka_unit_test(plan_only),      cmocka_unit_test(emitting),
        cmocka_unit_test(runtime),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
