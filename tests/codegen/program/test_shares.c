/* test_shares.c: the shares that ranks have of divided parameters, of arrays and of tensors in blocks: runs of
 * each row, with zeros where no elements are left. */
#include "codegen/program/program.h"
#include "frontend/sinter.h"
#include "ir/ir.h"
#include "runtime/weights.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>
#include "tests/support/scratch.h"

enum { ROWS = 3, COLUMNS = 64 };

static void need(bool ok, const sn_error *err) {
    if (!ok) fail_msg("%s", err->message);
}

/* Twice what one of the ranks has of w, [rows, columns], divided along this axis; stays: an entry with
 * an input reads it, so that it is not computed once. */
static sn_program *compile_share(const char *name, int axis, int64_t rows, int64_t columns,
                                 int64_t ranks, int rank, bool stays) {
    sn_error err = {0};
    sn_module *m = sn_module_new("share");
    sn_mesh(m, "tensor", ranks);
    sn_mesh_place(m, rank);
    sn_entry_begin(m, "run");
    sn_dim shape[] = {rows, columns};
    const int64_t all = shape[axis];
    shape[axis] = (all + ranks - 1) / ranks;
    const sn_attr attr[] = {
        SN_STR(name, name),     SN_INT(dtype, SN_F32), SN_LIST(shape, 2, shape), SN_INT(axis, axis),
        SN_STR(mesh, "tensor"), SN_INT(ranks, ranks),  SN_LIST(parts, 1, &all)};
    sn_tensor w = sn_node_new(m, SN_OP_param, 0, NULL, 7, attr);
    sn_output("y", stays ? sn_mul(w, sn_input(m, "two", SN_F32, 1)) : sn_mul(w, 2));
    sn_program *p = sn_compile(m, &(sn_options){.level = 4, .threads = 1}, &err);
    need(p != NULL, &err);
    sn_module_free(m);
    return p;
}

/* w: whole. Columns that no rank has are 0. */
static void check_share(sn_session *s, const float *w, int64_t all, int64_t ranks, int rank) {
    sn_error err = {0};
    const int64_t each = (all + ranks - 1) / ranks;
    float y[ROWS * COLUMNS];
    sn_arg_binding out = SN_BIND("y", SN_F32, y, ROWS, each);
    need(sn_run(s, "run", NULL, 0, &out, 1, &err), &err);
    for (int64_t i = 0; i < ROWS * each; i++) {
        const int64_t column = rank * each + i % each;
        assert_true(y[i] == (column < all ? 2 * w[i / each * all + column] : 0));
    }
}

static void shares_of_arrays(void **state) {
    (void)state;
    enum { ALL = 5, RANKS = 2 };
    float w[ROWS * ALL];
    for (int i = 0; i < ROWS * ALL; i++) w[i] = (float)(i + 1);
    sn_arg_binding param = SN_BIND("w", SN_F32, w, ROWS, ALL);
    for (int rank = 0; rank < RANKS; rank++) {
        sn_error err = {0};
        sn_program *p = compile_share("w", 1, ROWS, ALL, RANKS, rank, false);
        sn_session *s = sn_session_new_arrays(p, &param, 1, &err);
        need(s != NULL, &err);
        check_share(s, w, ALL, RANKS, rank);
        sn_session_free(s);
        sn_program_free(p);
    }
}

/* A rank's rows are one run, and of the right type: they are read where they are. */
static void rows_in_place(void **state) {
    (void)state;
    static float w[2 * ROWS][COLUMNS];
    sn_arg_binding param = SN_BIND("w", SN_F32, w, 2 * ROWS, COLUMNS);
    for (int rank = 0; rank < 2; rank++) {
        sn_error err = {0};
        sn_program *p = compile_share("w", 0, 2 * ROWS, COLUMNS, 2, rank, true);
        sn_session *s = sn_session_new_arrays(p, &param, 1, &err);
        need(s != NULL, &err);
        assert_ptr_equal(sn_session_memory(s, "w"), w[rank * ROWS]);
        sn_session_free(s);
        sn_program_free(p);
    }
}

/* Two blocks a row, with a byte for each: a rank has one of them, and not half of one. */
static void shares_of_blocks(void **state) {
    (void)state;
    uint8_t bytes[ROWS * COLUMNS / 2], scales[ROWS * 2];
    float w[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS / 2; i++) bytes[i] = (uint8_t)(37 * i + 11);
    for (int i = 0; i < ROWS * 2; i++) scales[i] = (uint8_t)(125 + i);
    const sn_weight parts[] = {
        {"w_blocks", SN_U8, 3, {ROWS, 2, 16}, bytes, sizeof bytes, NULL, NULL},
        {"w_scales", SN_U8, 2, {ROWS, 2}, scales, sizeof scales, NULL, NULL}};
    sn_error err = {0};
    const char *path = scratch_path("blocks.safetensors");
    need(sn_weights_save(path, parts, 2, NULL, 0, &err), &err);
    sn_weights *file = sn_weights_open(path, &err);
    need(file && sn_weight_to_f32(sn_weights_find(file, "w_blocks"), w), &err);
    for (int ranks = 2; ranks <= 4; ranks += 2)
        for (int rank = 0; rank < 2; rank++) {
            sn_program *p = compile_share("w_blocks", 1, ROWS, COLUMNS, ranks, rank, false);
            sn_session *s = sn_session_new(p, file, &err);
            if (ranks == 2) {
                need(s != NULL, &err);
                check_share(s, w, COLUMNS, ranks, rank);
            } else {
                assert_null(s);
                assert_non_null(
                    strstr(err.message, "blocks of 32 elements, which 4 ranks would cut"));
            }
            sn_session_free(s);
            sn_program_free(p);
        }
    sn_weights_close(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(shares_of_arrays),
                                       cmocka_unit_test(rows_in_place),
                                       cmocka_unit_test(shares_of_blocks)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
