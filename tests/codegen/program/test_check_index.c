/* check_index: a run stops at an index outside its table and names the operation, the index, the
 * table's size and the user's line; without it such an index is clamped. */
#include "frontend/sinter.h"
#include "ir/ir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include "tests/support/scratch.h"

enum { ROWS = 5, HEADS = 2, WIDTH = 8, CLASSES = 7 };

static sn_session *open_session(sn_module *m, sn_program **p, int level, bool checked) {
    sn_error err = {0};
    sn_options o = {.level = level, .threads = 2, .backend = "native", .check_index = checked};
    *p = sn_compile(m, &o, &err);
    if (!*p) fail_msg("level %d: %s", level, err.message);
    sn_session *s = sn_session_new_arrays(*p, NULL, 0, &err);
    if (!s) fail_msg("level %d: %s", level, err.message);
    return s;
}

static void expect_outside(const sn_error *err, const char *op, int line, int index, int size) {
    char text[160];
    snprintf(text, sizeof text, "%s at ", op);
    assert_int_equal(err->code, SN_ERR_RANGE);
    if (!strstr(err->message, text)) fail_msg("'%s' is not in: %s", text, err->message);
    snprintf(text, sizeof text,
             "test_check_index.c:%d: index %d is outside 0..%d, the table has %d", line, index,
             size - 1, size);
    if (!strstr(err->message, text)) fail_msg("'%s' is not in: %s", text, err->message);
}

/* rows of table at 2 i: indices that no caller has given. */
static void computed_indices(void **state) {
    (void)state;
    static const int32_t good[] = {0, 2, 1}, high[] = {1, 3, 2}, low[] = {0, -1, 2};
    float table[ROWS][2] = {{0}}, y[3][2], sum[2], before[2];
    for (int i = 0; i < 2 * ROWS; i++) (&table[0][0])[i] = (float)i + 1;
    for (int level = 0; level <= 4; level += 2)
        for (int checked = 0; checked < 2; checked++) {
            sn_error err = {0};
            sn_program *p;
            sn_module *m = sn_module_new("computed");
            sn_tensor i = sn_input(m, "i", SN_I32, sn_symbol(m, "N", 0, 9));
            sn_tensor x = sn_input(m, "x", SN_F32, ROWS, 2), total = sn_state(m, "sum", SN_F32, 2);
            int line = __LINE__ + 1;
            sn_tensor rows = sn_gather(x, 0, sn_mul(i, 2));
            sn_entry_begin(m, "main");
            sn_output("y", rows);
            sn_assign(total, sn_add(total, sn_sum(rows, 0)));
            sn_session *s = open_session(m, &p, level, checked);
            sn_arg_binding in[] = {SN_BIND("i", SN_I32, (void *)(uintptr_t)good, 3),
                                   SN_BIND("x", SN_F32, table, ROWS, 2)};
            sn_arg_binding out = SN_BIND("y", SN_F32, y, 3, 2);
            if (!sn_run(s, "main", in, 2, &out, 1, &err)) fail_msg("%s", err.message);
            assert_memory_equal(y[1], table[4], sizeof y[1]);
            assert_true(sn_state_read(s, "sum", before, sizeof before, &err));
            in[0].data = (void *)(uintptr_t)high;
            assert_int_equal(sn_run(s, "main", in, 2, &out, 1, &err), !checked);
            if (checked) {
                expect_outside(&err, "gather", line, 6, ROWS);
                assert_true(sn_state_read(s, "sum", sum, sizeof sum, &err));
                assert_memory_equal(sum, before, sizeof sum);
            } else {
                assert_memory_equal(y[1], table[ROWS - 1], sizeof y[1]);
            }
            in[0].data = (void *)(uintptr_t)low;
            err = (sn_error){0};
            assert_int_equal(sn_run(s, "main", in, 2, &out, 1, &err), !checked);
            if (checked)
                expect_outside(&err, "gather", line, -2, ROWS);
            else
                assert_memory_equal(y[1], table[0], sizeof y[1]);
            err = (sn_error){0};
            int64_t none[] = {0}, no_rows[] = {0, 2}; /* nothing is looked up */
            in[0].shape = none, in[0].data = NULL, out.shape = no_rows;
            if (!sn_run(s, "main", in, 2, &out, 1, &err)) fail_msg("%s", err.message);
            sn_session_free(s);
            sn_program_free(p);
            sn_module_free(m);
        }
}

/* The other operations that take an index, each with the largest one that fits and with the next. */
static void every_operation(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int size;
    } rows[] = {{"scatter_add", 3},         {"gather_nd", 3},         {"embedding", 3},
                {"cross_entropy", CLASSES}, {"take_blocks", CLASSES}, {"update_rows", CLASSES - 1},
                {"grouped_dot", 3},         {"ragged_dot", 4},        {"scatter_nd_add", 2}};
    enum { OPERATIONS = sizeof rows / sizeof *rows };
    float x[3][CLASSES] = {{0}};
    int32_t ids[] = {0, 1, 1};
    for (int op = 0; op < OPERATIONS; op++)
        for (int bad = 0; bad < 2; bad++) {
            sn_error err = {0};
            sn_program *p;
            sn_module *m = sn_module_new("operations");
            sn_tensor t = sn_input(m, "x", SN_F32, 3, CLASSES), i = sn_input(m, "i", SN_I32, 3);
            sn_tensor zero = sn_mul(i, 0), column = sn_expand(i, 1), y[OPERATIONS];
            sn_tensor maps = sn_reshape(t, 3, 1, CLASSES), sums = sn_sum(t, 1);
            const sn_loc here = SN_HERE;
            int line = __LINE__ + 1 + op;
            y[0] = sn_scatter_add(t, 0, i, 3);
            y[1] = sn_at(t, i, zero);
            y[2] = sn_embedding(t, i);
            y[3] = sn_cross_entropy(t, i);
            y[4] = sn_take_blocks(t, column, CLASSES);
            y[5] = sn_update_rows(t, 1, sn_slice(t, 1, 0, 2), i);
            sn_module_set_loc(m, here);
            y[6] = SN_NODE(m, grouped_dot, SN_NO_ATTRS, t, maps, column);
            y[7] = SN_NODE(m, ragged_dot, SN_ATTRS(SN_INT(blocks, 4)), t, t, column);
            y[8] = SN_NODE(m, scatter_nd_add, SN_ATTRS(SN_LIST(shape, 1, (sn_dim[]){2})), sums, i);
            if (op > 5) line = here.line;
            sn_entry_begin(m, "main");
            sn_output("y", y[op]);
            sn_session *s = open_session(m, &p, 4, true);
            ids[1] = rows[op].size - !bad;
            sn_arg_binding in[] = {SN_BIND("i", SN_I32, ids, 3),
                                   SN_BIND("x", SN_F32, x, 3, CLASSES)};
            if (sn_run(s, "main", in, 2, NULL, 0, &err) == bad)
                fail_msg("%s: %s", rows[op].name, err.message);
            if (bad) expect_outside(&err, rows[op].name, line, rows[op].size, rows[op].size);
            sn_session_free(s);
            sn_program_free(p);
            sn_module_free(m);
        }
}

/* What is added at an index behind the last element is added to that, before the first one to the first. */
static void added_outside(void **state) {
    (void)state;
    static const int32_t ids[] = {1, 2, -1}; /* twice: the last of three, behind, before */
    static const float x[] = {1, 2, 4}, sum[] = {4, 0, 3}, most[] = {4, -INFINITY, 2};
    for (int level = 0; level <= 4; level += 4) {
        sn_error err = {0};
        sn_program *p;
        sn_module *m = sn_module_new("outside");
        sn_tensor v = sn_input(m, "x", SN_F32, 3), table = sn_input(m, "t", SN_F32, 3), to = NULL;
        sn_tensor i = sn_mul(sn_input(m, "i", SN_I32, 3), 2);
        sn_entry_begin(m, "main");
        sn_output("rows", sn_scatter_add(sn_broadcast(sn_reshape(v, 3, 1), 3, 2), 0, i, 3));
        sn_output("columns", sn_scatter_add(sn_broadcast(sn_reshape(v, 1, 3), 2, 3), 1, i, 3));
        sn_output("largest", sn_scatter_max(v, 0, i, 3));
        sn_grad(sn_sum_all(sn_mul(sn_at(table, i), v)), 1, &table, &to);
        sn_output("elements", to);
        sn_session *s = open_session(m, &p, level, false);
        float rows[3][2], columns[2][3], largest[3], elements[3];
        sn_arg_binding in[] = {SN_BIND("x", SN_F32, (void *)(uintptr_t)x, 3),
                               SN_BIND("t", SN_F32, (void *)(uintptr_t)x, 3),
                               SN_BIND("i", SN_I32, (void *)(uintptr_t)ids, 3)};
        sn_arg_binding out[] = {
            SN_BIND("rows", SN_F32, rows, 3, 2), SN_BIND("columns", SN_F32, columns, 2, 3),
            SN_BIND("largest", SN_F32, largest, 3), SN_BIND("elements", SN_F32, elements, 3)};
        if (!sn_run(s, "main", in, 3, out, 4, &err)) fail_msg("%s", err.message);
        for (int k = 0; k < 3; k++) {
            assert_true(rows[k][0] == sum[k] && rows[k][1] == sum[k]);
            assert_true(columns[0][k] == sum[k] && columns[1][k] == sum[k]);
            assert_true(largest[k] == most[k] && elements[k] == sum[k]);
        }
        sn_session_free(s);
        sn_program_free(p);
        sn_module_free(m);
    }
}

static int score_line;

/* A bias by distance, from a table that is too short unless the index is clamped. */
static sn_tensor biased(const sn_score_ctx *c) {
    sn_tensor at = sn_add(sn_sub(c->q, c->k), 2);
    if (*(const bool *)c->user) at = sn_max(sn_min(at, ROWS - 1), 0);
    score_line = __LINE__ + 1;
    return sn_add(c->score, sn_at(c->captured[0], at, c->h));
}

/* Attention over T positions; table: [ROWS, HEADS]. */
static bool attend(int level, bool checked, bool clamped, int T, float *y, sn_error *err) {
    float qkv[3][32 * HEADS * WIDTH], table[ROWS * HEADS];
    for (int i = 0; i < 3 * 32 * HEADS * WIDTH; i++)
        (&qkv[0][0])[i] = (float)(i * 37 % 101) / 50 - 1;
    for (int i = 0; i < ROWS * HEADS; i++) table[i] = (float)i;
    sn_program *p;
    sn_module *m = sn_module_new("attention");
    sn_dim t = sn_symbol(m, "T", 1, 32);
    sn_tensor x[3];
    static const char *const names[] = {"q", "k", "v"};
    for (int i = 0; i < 3; i++) x[i] = sn_input(m, names[i], SN_F32, 1, HEADS, t, WIDTH);
    sn_tensor bias = sn_input(m, "bias", SN_F32, ROWS, HEADS);
    sn_entry_begin(m, "main");
    sn_output(
        "y", sn_attention(x[0], x[1], x[2], .score = biased, .captured = {bias}, .user = &clamped));
    sn_session *s = open_session(m, &p, level, checked);
    sn_arg_binding in[] = {SN_BIND("q", SN_F32, qkv[0], 1, HEADS, T, WIDTH),
                           SN_BIND("k", SN_F32, qkv[1], 1, HEADS, T, WIDTH),
                           SN_BIND("v", SN_F32, qkv[2], 1, HEADS, T, WIDTH),
                           SN_BIND("bias", SN_F32, table, ROWS, HEADS)};
    sn_arg_binding out = SN_BIND("y", SN_F32, y, 1, HEADS, T, WIDTH);
    bool ok = sn_run(s, "main", in, 4, &out, 1, err);
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(m);
    return ok;
}

static void tables_in_regions(void **state) {
    (void)state;
    static float want[32 * HEADS * WIDTH], y[32 * HEADS * WIDTH];
    for (int level = 0; level <= 4; level += 4) {
        sn_error err = {0};
        if (!attend(level, true, true, 32, want, &err)) fail_msg("%s", err.message);
        if (!attend(level, true, false, 3, y, &err)) fail_msg("%s", err.message);
        assert_false(attend(level, true, false, 4, y, &err));
        expect_outside(&err, "gather_nd", score_line, -1, ROWS);
        err = (sn_error){0};
        if (!attend(level, false, false, 32, y, &err)) fail_msg("%s", err.message);
        for (int i = 0; i < 32 * HEADS * WIDTH; i++) assert_float_equal(y[i], want[i], 1e-5F);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(computed_indices),
        cmocka_unit_test(every_operation),
        cmocka_unit_test(added_outside),
        cmocka_unit_test(tables_in_regions),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
