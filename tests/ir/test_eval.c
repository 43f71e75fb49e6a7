/* The reference evaluator and the decompositions where rows of tests/support/ops.def do not reach:
 * special values, errors that a user reads, rebinding, symbolic sizes, rounding. */
#include "ir/ir.h"
#include "runtime/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>

static sn_node *leaf(sn_module *m, sn_op op, const char *name, sn_dtype t, int rank,
                     const sn_dim *shape) {
    return sn_node_new(m, op, 0, NULL,
                       SN_ATTRS(SN_STR(name, name), SN_INT(dtype, t), SN_LIST(shape, rank, shape)));
}

#define SHAPE(...)                                                                                 \
    (int)(sizeof((sn_dim[]){__VA_ARGS__}) / sizeof(sn_dim)), (sn_dim[]) {                          \
        __VA_ARGS__                                                                                \
    }

static sn_node *input(sn_module *m, const char *name, sn_dtype t, int rank, const sn_dim *shape) {
    return leaf(m, SN_OP_input, name, t, rank, shape);
}

static void unbound_leaf_is_named(void **state) {
    (void)state;
    sn_module *m = sn_module_new("t");
    sn_module_set_loc(m, (sn_loc){"model.c", 12});
    sn_node *y = sn_b_unary(SN_OP_exp, leaf(m, SN_OP_param, "h.0.gain", SN_F32, SHAPE(3)));
    sn_module_set_loc(m, (sn_loc){0});
    sn_eval *ev = sn_eval_new(m, NULL);
    assert_null(sn_eval_node(ev, y));
    assert_non_null(strstr(sn_module_error(m)->message, "'h.0.gain' has no value"));
    assert_non_null(strstr(sn_module_error(m)->message, "model.c:12"));
    sn_eval_free(ev);
    sn_module_free(m);
}

static void wrong_size_is_explained(void **state) {
    (void)state;
    sn_module *m = sn_module_new("t");
    sn_node *x = input(m, "x", SN_F32, SHAPE(3));
    sn_eval *ev = sn_eval_new(m, NULL);
    assert_true(sn_eval_bind(ev, "x", (float[]){1, 2}, 8));
    assert_null(sn_eval_node(ev, x));
    assert_int_equal(sn_module_error(m)->code, SN_ERR_SHAPE);
    assert_non_null(strstr(sn_module_error(m)->message, "needs 3 elements of f32, but 8 bytes"));
    sn_eval_free(ev);
    sn_module_free(m);
}

static void rebinding_recomputes(void **state) {
    (void)state;
    sn_module *m = sn_module_new("t");
    sn_symbol_add(m, "T", 0, 100);
    sn_dim T = sn_symbol_add(m, "T", 0, 100);
    sn_node *x = input(m, "x", SN_I32, 1, &T);
    sn_node *sum = sn_b_reduce(SN_OP_reduce_sum, x, 1, (int64_t[]){0});
    sn_eval *ev = sn_eval_new(m, (int64_t[]){3});
    assert_true(sn_eval_bind(ev, "x", (int32_t[]){1, 2, 3}, 12));
    assert_true(sn_eval_node(ev, sum)->data[0] == 6);
    assert_true(sn_eval_bind(ev, "x", (int32_t[]){1, 2, 2147483647}, 12));
    assert_true(sn_eval_node(ev, sum)->data[0] == -2147483646.0); /* i32 wraps */
    sn_eval_free(ev);
    ev = sn_eval_new(m, (int64_t[]){0});
    assert_true(sn_eval_bind(ev, "x", "", 0));
    assert_true(sn_eval_node(ev, sum)->data[0] == 0);
    sn_eval_free(ev);
    sn_module_free(m);
}

static void index_out_of_range_is_named(void **state) {
    (void)state;
    sn_module *m = sn_module_new("t");
    sn_node *table = input(m, "table", SN_F32, SHAPE(4, 2)),
            *ids = input(m, "ids", SN_I32, SHAPE(3));
    sn_node *y = SN_NODE(m, embedding, SN_NO_ATTRS, table, ids);
    sn_eval *ev = sn_eval_new(m, NULL);
    sn_eval_bind(ev, "table", (float[8]){0}, 32);
    sn_eval_bind(ev, "ids", (int32_t[]){1, 4, 0}, 12);
    assert_null(sn_eval_node(ev, y));
    assert_int_equal(sn_module_error(m)->code, SN_ERR_RANGE);
    assert_non_null(strstr(sn_module_error(m)->message, "index 4 is outside [0, 4)"));
    sn_eval_free(ev);
    sn_module_free(m);
}

/* The last index that exists, the first that does not, and -1, of each operation that reads or writes by index. */
static void every_index_is_checked(void **state) {
    (void)state;
#define LEAF(name, type) "%" name ": " type " = input {name=\"" name "\"}\n"
    static const char leaves[] =
        "module m entry e {\n" LEAF("x", "f32[2,6]") LEAF("m", "f32[4,3,6]") LEAF("r", "f32[4,2]")
            LEAF("i", "i32[2]") LEAF("p", "i32[2,2]") LEAF("v", "f32[2]") LEAF("zero", "i32[2]");
    static const struct {
        const char *line;
        int size; /* of the axis */
    } rows[] = {
        {"f32[2,2] = gather %x, %i {axis=1}", 6},
        {"f32[2,3,6] = gather %m, %i {axis=0}", 4},
        {"f32[2] = gather_nd %x, %zero, %i", 6},
        {"f32[2] = gather_nd %x, %i, %zero", 2},
        {"f32[9,6] = scatter_add %x, %i {axis=0}", 9},
        {"f32[3,7] = scatter_nd_add %v, %i, %zero", 3},
        {"f32[3,7] = scatter_nd_add %v, %zero, %i", 7},
        {"f32[2,2,2] = take_blocks %x, %p {blocks=3}", 3},
        {"f32[2,2] = take_sorted %x, %p {axis=1}", 6},
        {"f32[4,3] = grouped_dot %x, %m, %p", 4},
        {"f32[5,2,6] = ragged_dot %r, %x, %p {blocks=5}", 5},
        {"f32[2,6] = embedding %x, %i", 2},
    };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        for (int bad = 0; bad < 3; bad++) {
            char text[1024];
            sn_error err = {0};
            const int32_t at = bad == 2 ? -1 : rows[k].size - 1 + bad, index[4] = {0, at, at, 0},
                          none[2] = {0};
            static const float data[72];
            snprintf(text, sizeof text, "%s%%y: %s output \"y\" = %%y }", leaves, rows[k].line);
            sn_module *m = sn_parse(text, "t.sn", true, &err);
            if (!m) fail_msg("%s", err.message);
            sn_eval *ev = sn_eval_new(m, NULL);
            sn_eval_bind(ev, "x", data, 48), sn_eval_bind(ev, "m", data, 288),
                sn_eval_bind(ev, "r", data, 32);
            sn_eval_bind(ev, "v", data, 8);
            sn_eval_bind(ev, "i", index, 8), sn_eval_bind(ev, "p", index, 16),
                sn_eval_bind(ev, "zero", none, 8);
            const sn_value *y = sn_eval_node(ev, sn_entry_get(m, "e")->output[0].node);
            if (!y != (bad > 0)) fail_msg("index %d: %s", at, rows[k].line);
            char want[64];
            snprintf(want, sizeof want, "index %d is outside [0, %d)", at, rows[k].size);
            if (bad && !strstr(sn_module_error(m)->message, want))
                fail_msg("%s", sn_module_error(m)->message);
            sn_eval_free(ev);
            sn_module_free(m);
        }
}

static void shape_errors_name_the_composite(void **state) {
    (void)state;
    sn_module *m = sn_module_new("t");
    sn_node *x = input(m, "x", SN_F32, SHAPE(2, 5)),
            *w = leaf(m, SN_OP_param, "w", SN_F32, SHAPE(3, 4));
    SN_NODE(m, linear, SN_NO_ATTRS, x, w);
    const char *text = sn_module_error(m)->message;
    assert_int_equal(sn_module_error(m)->code, SN_ERR_SHAPE);
    assert_non_null(strstr(text, "linear: "));
    assert_non_null(strstr(text, "f32[2,5] \"x\""));
    assert_non_null(strstr(text, "f32[3,4] \"w\""));
    sn_module_free(m);
}

/* f32 results stay in double unless rounding is requested; bf16 is always rounded */
static void rounding(void **state) {
    (void)state;
    sn_module *m = sn_module_new("t");
    sn_node *x = input(m, "x", SN_F32, SHAPE(1));
    sn_node *third = sn_b_scalar(SN_OP_div, x, 3), *narrow = sn_b_cast(third, SN_BF16);
    sn_eval *ev = sn_eval_new(m, NULL);
    sn_eval_bind(ev, "x", (float[]){1}, 4);
    assert_true(sn_eval_node(ev, third)->data[0] == 1.0 / 3);
    assert_true(sn_eval_node(ev, narrow)->data[0] == 0.333984375);
    sn_eval_set_exact(ev, false);
    assert_true(sn_eval_node(ev, third)->data[0] == (double)(1.0f / 3));
    sn_eval_free(ev);
    sn_module_free(m);
}

static void random_follows_its_recipe(void **state) {
    (void)state;
    sn_module *m = sn_module_new("t");
    sn_node *seed = input(m, "seed", SN_I64, SHAPE(2));
    sn_dim n[1] = {150};
    sn_node *u = SN_NODE(m, random, SN_ATTRS(SN_INT(stream, 5), SN_LIST(shape, 1, n)), seed);
    sn_node *v = SN_NODE(m, random, SN_ATTRS(SN_INT(stream, 6), SN_LIST(shape, 1, n)), seed);
    sn_eval *ev = sn_eval_new(m, NULL);
    sn_eval_bind(ev, "seed", (int64_t[]){0x123456789abLL, 7}, 16);
    const double *p = sn_eval_node(ev, u)->data, *q = sn_eval_node(ev, v)->data;
    for (uint32_t e = 0; e < 150; e++) { /* 64 elements from 16 blocks, word by word */
        uint32_t w[4], block = e / 64 * 16 + e % 16;
        sn_philox4x32((uint32_t[]){block, 0, 5, 7}, (uint32_t[]){0x456789abu, 0x123u}, w);
        assert_true(p[e] == (w[e % 64 / 16] >> 8) * 0x1p-24);
        assert_true(p[e] != q[e]);
    }
    sn_eval_free(ev);
    sn_module_free(m);
}

static void softmax_of_nothing_is_zero(void **state) {
    (void)state;
    sn_module *m = sn_module_new("t");
    sn_node *x = input(m, "x", SN_F32, SHAPE(2, 3));
    sn_node *p = SN_NODE(m, softmax, SN_NO_ATTRS, x);
    sn_node *logp = SN_NODE(m, log_softmax, SN_NO_ATTRS, x);
    sn_node *lse = SN_NODE(m, logsumexp, SN_NO_ATTRS, x);
    float inf = INFINITY;
    sn_eval *ev = sn_eval_new(m, NULL);
    sn_eval_bind(ev, "x", (float[]){-inf, -inf, -inf, -inf, 1000, 1000}, 24);
    static const double want[6] = {0, 0, 0, 0, 0.5, 0.5};
    for (int i = 0; i < 6; i++) assert_true(sn_eval_node(ev, p)->data[i] == want[i]);
    for (int i = 0; i < 4; i++) assert_true(sn_eval_node(ev, logp)->data[i] == -INFINITY);
    assert_true(sn_eval_node(ev, logp)->data[4] == -log(2));
    assert_true(sn_eval_node(ev, lse)->data[0] == -INFINITY);
    assert_true(sn_eval_node(ev, lse)->data[1] == 1000 + log(2));
    sn_eval_free(ev);
    sn_module_free(m);
}

/* mask: k <= q - 1, so row 0 sees nothing */
static sn_region *strictly_causal(sn_module *m) {
    sn_node *arg[4];
    for (int i = 0; i < 4; i++) arg[i] = sn_arg(m, i, SN_I32, 0, NULL);
    sn_node *sees = sn_b_binary(SN_OP_lt, arg[3], arg[2]);
    return sn_region_new(m, 4, arg, 1, &sees);
}

static void hidden_keys_contribute_nothing(void **state) {
    (void)state;
    sn_module *m = sn_module_new("t");
    sn_node *q = input(m, "q", SN_F32, SHAPE(1, 2, 3, 2)),
            *k = input(m, "k", SN_F32, SHAPE(1, 1, 3, 2));
    sn_node *v = input(m, "v", SN_F32, SHAPE(1, 1, 3, 1));
    sn_attr mask[] = {SN_REG(mask, strictly_causal(m))};
    sn_node *y = sn_node_new(m, SN_OP_attention, 3, (sn_node *[]){q, k, v}, 1, mask);
    sn_node *flash = sn_node_new(m, SN_OP_flash, 3, (sn_node *[]){q, k, v}, 1, mask);
    float nan = NAN;
    sn_eval *ev = sn_eval_new(m, NULL);
    sn_eval_bind(ev, "q", (float[]){1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0}, 48);
    sn_eval_bind(ev, "k", (float[]){0, 0, 0, 0, nan, nan}, 24);
    sn_eval_bind(ev, "v", (float[]){3, nan, nan}, 12);
    const sn_value *r = sn_eval_node(ev, y);
    assert_non_null(r);
    for (int h = 0; h < 2; h++) {
        assert_true(r->data[3 * h] == 0);     /* sees nothing */
        assert_true(r->data[3 * h + 1] == 3); /* sees key 0, not the NaN of key 1 */
        assert_true(isnan(r->data[3 * h + 2]));
    }
    const sn_value *f = sn_eval_node(ev, sn_b_result(flash, 0));
    const sn_value *lse = sn_eval_node(ev, sn_b_result(flash, 1));
    assert_int_equal(memcmp(f->data, r->data, 5 * sizeof(double)), 0);
    assert_int_equal(lse->rank, 4); /* [B, H, 2, Tq] */
    assert_true(lse->data[0] == -INFINITY && lse->data[1] == 0 &&
                lse->data[2] == 0); /* largest scores */
    assert_true(lse->data[3] == -INFINITY && lse->data[4] == 0 && lse->data[5] == log(2));
    sn_eval_free(ev);
    sn_module_free(m);
}

static void region_types_are_checked(void **state) {
    (void)state;
    sn_module *m = sn_module_new("t");
    sn_node *q = input(m, "q", SN_F32, SHAPE(1, 2, 3, 2));
    sn_node *bias = input(m, "bias", SN_F32, SHAPE(9));
    sn_attr mask[] = {SN_REG(mask, strictly_causal(m))};
    sn_node_new(m, SN_OP_attention, 4, (sn_node *[]){q, q, q, bias}, 1, mask);
    assert_non_null(strstr(sn_module_error(m)->message, "the mask region has 4 arguments"));
    assert_non_null(strstr(sn_module_error(m)->message, "1 captured"));
    sn_module_free(m);
}

static void integers_divide_downwards(void **state) {
    (void)state;
    sn_module *m = sn_module_new("t");
    sn_node *x = input(m, "x", SN_I32, SHAPE(5)), *y = input(m, "y", SN_I32, SHAPE(5));
    sn_node *div = sn_b_binary(SN_OP_div, x, y), *mod = sn_b_binary(SN_OP_mod, x, y);
    sn_eval *ev = sn_eval_new(m, NULL);
    sn_eval_bind(ev, "x", (int32_t[]){7, -7, 7, -7, 7}, 20);
    sn_eval_bind(ev, "y", (int32_t[]){2, 2, -2, -2, 0}, 20);
    static const double quotient[] = {3, -4, -4, 3, 0}, rest[] = {1, 1, -1, -1, 0};
    for (int i = 0; i < 5; i++) {
        assert_true(sn_eval_node(ev, div)->data[i] == quotient[i]);
        assert_true(sn_eval_node(ev, mod)->data[i] == rest[i]);
    }
    sn_eval_free(ev);
    sn_module_free(m);
}

static void casts_truncate_and_wrap(void **state) {
    (void)state;
    static const double in[] = {2.9, -2.9, 300, -129, 1e300, NAN};
    static const double as_i8[] = {2, -2, 44, 127, 0, 0}, as_u8[] = {2, 254, 44, 127, 0, 0};
    for (int i = 0; i < 6; i++) {
        assert_true(sn_round_to(SN_I8, in[i]) == as_i8[i]);
        assert_true(sn_round_to(SN_U8, in[i]) == as_u8[i]);
    }
    assert_true(sn_round_to(SN_I32, 0x1p31) == -0x1p31);
    assert_true(sn_round_to(SN_I64, -0x1p62) == -0x1p62);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unbound_leaf_is_named),
        cmocka_unit_test(wrong_size_is_explained),
        cmocka_unit_test(rebinding_recomputes),
        cmocka_unit_test(index_out_of_range_is_named),
        cmocka_unit_test(every_index_is_checked),
        cmocka_unit_test(shape_errors_name_the_composite),
        cmocka_unit_test(rounding),
        cmocka_unit_test(random_follows_its_recipe),
        cmocka_unit_test(softmax_of_nothing_is_zero),
        cmocka_unit_test(hidden_keys_contribute_nothing),
        cmocka_unit_test(region_types_are_checked),
        cmocka_unit_test(integers_divide_downwards),
        cmocka_unit_test(casts_truncate_and_wrap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
