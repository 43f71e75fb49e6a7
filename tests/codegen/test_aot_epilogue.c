/* test_aot_epilogue.c: what a product's epilogue does besides arithmetic at its own place, compiled
 * ahead of time: sums along rows, positions that repeat from item to item, and heads that are
 * rotated. The same bits as in the process that compiled it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "frontend/sinter.h"
#include "tests/support/artefact.h"
#include "tests/support/text.h"

enum { ITEMS = 3, MAX_T = 40, WIDTH = 24, COLUMNS = 64, HEADS = 2, D = 32 };
enum { LEFT = ITEMS * MAX_T * WIDTH, RIGHT = COLUMNS * WIDTH, RESULT = ITEMS * MAX_T * COLUMNS };

typedef struct model { /* epilogue.h */
    const void *weights;
    int64_t bytes, threads;
    void *pool;
    int32_t target, mapped;
} model;

typedef struct artefact {
    void *lib;
    model m;
    int (*open)(model *, const char *);
    void (*close)(model *);
    const char *(*message)(int);
    int64_t (*workspace)(const model *, int64_t T);
    int (*project)(const model *, void *workspace, int64_t T, const float *x, const float *pos,
                   const int32_t *at, float *sum, float *y, float *rotated);
} artefact;

typedef struct results {
    float sum[ITEMS * MAX_T], y[RESULT], rotated[RESULT];
} results;

static sn_module *build(void) {
    sn_module *m = sn_module_new("epilogue");
    sn_entry_begin(m, "project");
    sn_dim t = sn_symbol(m, "T", 0, MAX_T);
    sn_tensor x = sn_input(m, "x", SN_F32, ITEMS, t, WIDTH);
    sn_tensor w = sn_param(m, "w", SN_F32, COLUMNS, WIDTH);
    sn_tensor q = sn_param(m, "q", SN_F32, COLUMNS, WIDTH);
    sn_tensor y = sn_add(sn_linear(x, w, NULL), sn_input(m, "pos", SN_F32, t, COLUMNS));
    sn_output("sum", sn_sum(sn_square(y), -1));
    sn_output("y", y);
    sn_tensor heads = sn_split_heads(sn_linear(sn_tanh(x), q, NULL), HEADS);
    sn_output("rotated", sn_rope(heads, sn_input(m, "at", SN_I32, t), .halves = true));
    return m;
}

static void load(artefact *a) {
    const artefact_symbol names[] = {{(void *)&a->open, "epilogue_open"},
                                     {(void *)&a->close, "epilogue_close"},
                                     {(void *)&a->message, "epilogue_message"},
                                     {(void *)&a->workspace, "epilogue_project_workspace"},
                                     {(void *)&a->project, "epilogue_project"}};
    a->lib = artefact_load("epilogue", names, sizeof names / sizeof *names);
    assert_int_equal(a->open(&a->m, scratch_path("epilogue.weights")), 0);
}

static void fill(float *p, int n, int step) {
    for (int i = 0; i < n; i++) p[i] = (float)((i + 1) * step % 211) / 100 - 1;
}

/* Sums are taken, and a product swaps columns, as it does to rotate heads. */
static void expect_fused(const sn_program *p) {
    char *text = explain_text(p, "project"), *rest = text, *line;
    bool rotates = false;
    assert_non_null(strstr(text, "sums along rows"));
    while ((line = strtok_r(rest, "\n", &rest)))
        rotates |= strstr(line, "gemm") && strstr(line, "gather");
    assert_true(rotates);
    free(text);
}

/* One run of the session and one of the artefact. */
static void compare(sn_session *s, const artefact *a, int64_t t) {
    static float x[LEFT], pos[MAX_T * COLUMNS];
    static results want, got;
    int32_t at[MAX_T];
    sn_error err = {0};
    fill(x, LEFT, 71), fill(pos, MAX_T * COLUMNS, 91);
    for (int i = 0; i < MAX_T; i++) at[i] = 3 * i % 50;
    sn_arg_binding in[] = {SN_BIND("x", SN_F32, x, ITEMS, t, WIDTH),
                           SN_BIND("pos", SN_F32, pos, t, COLUMNS), SN_BIND("at", SN_I32, at, t)};
    sn_arg_binding out[] = {SN_BIND("sum", SN_F32, want.sum, ITEMS, t),
                            SN_BIND("y", SN_F32, want.y, ITEMS, t, COLUMNS),
                            SN_BIND("rotated", SN_F32, want.rotated, ITEMS, HEADS, t, D)};
    memset(&want, 0, sizeof want);
    memset(&got, 0, sizeof got);
    if (!sn_run(s, "project", in, 3, out, 3, &err)) fail_msg("%s", err.message);
    size_t bytes = (size_t)a->workspace(&a->m, t);
    void *workspace = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(workspace);
    int code = a->project(&a->m, workspace, t, x, pos, at, got.sum, got.y, got.rotated);
    if (code) fail_msg("%s", a->message(code));
    assert_true(want.sum[ITEMS * t - 1] > 0);
    assert_memory_equal(&want, &got, sizeof want);
    free(workspace);
}

static void same_bits(void **state) {
    (void)state;
    static float w[RIGHT], q[RIGHT];
    fill(w, RIGHT, 37), fill(q, RIGHT, 53);
    sn_error err = {0};
    sn_module *m = build();
    sn_options o = sn_options_default();
    o.backend = "native";
    o.threads = 2;
    sn_program *p = sn_compile(m, &o, &err);
    if (!p) fail_msg("%s", err.message);
    expect_fused(p);
    sn_arg_binding param[] = {SN_BIND("w", SN_F32, w, COLUMNS, WIDTH),
                              SN_BIND("q", SN_F32, q, COLUMNS, WIDTH)};
    sn_session *s = sn_session_new_arrays(p, param, 2, &err);
    if (!s) fail_msg("%s", err.message);
    sn_emit_options emit = sn_emit_options_default();
    emit.name = "epilogue";
    emit.dir = scratch_dir;
    emit.compile = o;
    if (!sn_emit(s, &emit, &err)) fail_msg("%s", err.message);
    artefact a = {0};
    load(&a);
    static const int64_t tokens[] = {1, 7, 33, MAX_T};
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) compare(s, &a, tokens[i]);
    a.close(&a.m);
    dlclose(a.lib);
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
