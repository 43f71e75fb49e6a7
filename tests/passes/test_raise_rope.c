/* test_raise_rope.c: rotary positions written by hand, as a half of each head rotated by the other:
 * they become `rope`, and only where they are that. */
#include "ir/ir.h"
#include "tests/support/raise_check.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { HEADS = 3, D = 16 };

static sn_tensor heads(sn_module *m) {
    sn_dim b = sn_symbol(m, "B", 1, 8), t = sn_symbol(m, "T", 1, 16);
    return sn_input(m, "x", SN_F32, b, HEADS, t, D);
}

static sn_tensor positions(sn_module *m) { /* [T] */
    sn_dim t = sn_symbol(m, "T", 1, 16);
    return sn_add(sn_arange(m, SN_I32, t), 3);
}

/* base^(-2i/d), [D / 2], by a power */
static sn_tensor frequencies(sn_module *m, double base) {
    sn_tensor i = sn_mul(sn_cast(sn_arange(m, SN_I32, D / 2), SN_F32), 2.0 / D);
    return sn_div(1, sn_pow(base, i));
}

static sn_tensor rotate_half(sn_tensor x) {
    sn_tensor a = sn_slice(x, -1, 0, D / 2), b = sn_slice(x, -1, D / 2, D / 2);
    return sn_concat(-1, sn_neg(b), a);
}

static sn_tensor twice(sn_tensor angle) {
    return sn_concat(-1, angle, angle);
}

static sn_tensor rotate(sn_tensor x, sn_tensor cos, sn_tensor sin) {
    return sn_add(sn_mul(x, cos), sn_mul(rotate_half(x), sin));
}

static sn_tensor column(sn_tensor pos) {
    return sn_cast(sn_expand(pos, -1), SN_F32);
}

/* [T, D] */
static sn_tensor angles(sn_module *m) {
    return twice(sn_mul(column(positions(m)), frequencies(m, 10000)));
}

#define SPELLING(name, expression)                                                                 \
    static sn_tensor name(sn_module *m) {                                                          \
        sn_tensor x = heads(m), a = angles(m);                                                     \
        return expression;                                                                         \
    }

/* ---- positions of rows ---- */

static sn_tensor by_op(sn_module *m) {
    sn_tensor x = heads(m);
    return sn_rope(x, positions(m), .halves = true);
}
SPELLING(by_hand, rotate(x, sn_cos(a), sn_sin(a)))
SPELLING(expanded, rotate(x, sn_expand(sn_expand(sn_cos(a), 0), 0), sn_expand(sn_sin(a), 0)))
SPELLING(last_first, sn_add(sn_mul(sn_sin(a), rotate_half(x)), sn_mul(sn_cos(a), x)))
SPELLING(times_minus_one, sn_add(sn_mul(x, sn_cos(a)),
                                 sn_mul(sn_concat(-1, sn_mul(sn_slice(x, -1, D / 2, D / 2), -1),
                                                  sn_slice(x, -1, 0, D / 2)),
                                        sn_sin(a))))
static sn_tensor by_exp(sn_module *m) {
    sn_tensor x = heads(m), i = sn_cast(sn_arange(m, SN_I32, D / 2), SN_F32);
    sn_tensor a = twice(sn_mul(sn_exp(sn_mul(i, -2 * log(10000) / D)), column(positions(m))));
    return rotate(x, sn_cos(a), sn_sin(a));
}
static sn_tensor by_quotient(sn_module *m) {
    sn_tensor x = heads(m), i = sn_cast(sn_arange(m, SN_I32, D / 2), SN_F32);
    sn_tensor a = twice(sn_div(column(positions(m)), sn_pow(10000, sn_mul(i, 2.0 / D))));
    return rotate(x, sn_cos(a), sn_sin(a));
}
CHECK(of_rows, "= rope %", S(by_op), S(by_hand), S(expanded), S(last_first), S(times_minus_one),
      S(by_exp), S(by_quotient))

/* ---- positions of each item's rows; another base; f32 positions ---- */

static sn_tensor item_positions(sn_module *m) {
    return sn_input(m, "pos", SN_F32, sn_symbol(m, "B", 1, 8), sn_symbol(m, "T", 1, 16));
}
static sn_tensor items_op(sn_module *m) {
    return sn_rope(heads(m), item_positions(m), .base = 500000, .halves = true);
}
static sn_tensor items_by_hand(sn_module *m) {
    sn_tensor a = sn_mul(sn_expand(item_positions(m), -1), frequencies(m, 500000));
    a = sn_expand(twice(a), 1); /* [B, 1, T, D] */
    return rotate(heads(m), sn_cos(a), sn_sin(a));
}
static sn_tensor items_late(sn_module *m) {
    sn_tensor a = twice(sn_mul(sn_expand(item_positions(m), -1), frequencies(m, 500000)));
    return rotate(heads(m), sn_expand(sn_cos(a), 1), sn_expand(sn_sin(a), 1));
}
CHECK(of_items, "= rope %", S(items_op), S(items_by_hand), S(items_late))

/* ---- heads of a linear map, as a model has them ---- */

static sn_tensor mapped(sn_module *m) {
    sn_dim b = sn_symbol(m, "B", 1, 8), t = sn_symbol(m, "T", 1, 16);
    sn_tensor x = sn_input(m, "x", SN_F32, b, t, 5);
    return sn_split_heads(sn_linear(x, sn_param(m, "w", SN_F32, HEADS * D, 5), NULL), HEADS);
}
static sn_tensor mapped_op(sn_module *m) {
    return sn_rope(mapped(m), positions(m), .halves = true);
}
static sn_tensor mapped_by_hand(sn_module *m) {
    sn_tensor a = angles(m);
    return rotate(mapped(m), sn_cos(a), sn_sin(a));
}
CHECK(of_maps, "= rope %", S(mapped_op), S(mapped_by_hand))

static sn_tensor rotated_then_scaled(sn_module *m) {
    return sn_mul(mapped_op(m), 0.5);
}
static sn_tensor scaled_map(sn_module *m) { /* before the heads are split */
    sn_dim b = sn_symbol(m, "B", 1, 8), t = sn_symbol(m, "T", 1, 16);
    sn_tensor x = sn_input(m, "x", SN_F32, b, t, 5);
    sn_tensor y = sn_linear(x, sn_param(m, "w", SN_F32, HEADS * D, 5), NULL);
    return sn_split_heads(sn_mul(y, 0.5), HEADS);
}
static sn_tensor scaled_then_rotated(sn_module *m) {
    return sn_rope(scaled_map(m), positions(m), .halves = true);
}
CHECK(of_scaled_maps, "= rope %", S(rotated_then_scaled), S(scaled_then_rotated))

/* ---- one token, at a position that is known when it runs ---- */

static sn_tensor token(sn_module *m) {
    return sn_input(m, "x", SN_F32, sn_symbol(m, "B", 1, 8), HEADS, 1, D);
}
static sn_tensor past(sn_module *m) {
    return sn_add(sn_arange(m, SN_I32, 1), sn_symbol(m, "P", 0, 9));
}
static sn_tensor token_op(sn_module *m) {
    sn_tensor x = token(m);
    return sn_rope(x, past(m), .halves = true);
}
static sn_tensor token_by_hand(sn_module *m) {
    sn_tensor x = token(m), a = twice(sn_mul(column(past(m)), frequencies(m, 10000)));
    return rotate(x, sn_cos(a), sn_sin(a));
}
CHECK(of_a_token, "= rope %", S(token_op), S(token_by_hand))

/* ---- part of the columns, and factors ---- */

enum { FROM = 2, PART = 8 };

static sn_tensor columns(sn_tensor x, int64_t first, int64_t n) {
    return sn_slice(x, -1, first, n);
}
static sn_tensor rotated(sn_module *m, sn_tensor x) {
    return sn_rope(columns(x, FROM, PART), positions(m), .halves = true);
}
static sn_tensor part_op(sn_module *m) {
    sn_tensor x = heads(m);
    const int64_t part[] = {FROM, FROM + PART};
    return SN_NODE(m, rope,
                   SN_ATTRS(SN_FLT(base, 10000), SN_FLT(scale, -1.5), SN_INT(interleaved, 0),
                            SN_LIST(columns, 2, part)),
                   x, positions(m));
}
static sn_tensor joined(sn_module *m) {
    sn_tensor x = heads(m), y = sn_mul(rotated(m, x), -1.5);
    return sn_concat(-1, columns(x, 0, FROM), y, columns(x, FROM + PART, D - FROM - PART));
}
static sn_tensor joined_twice(sn_module *m) { /* and scaled before */
    sn_tensor x = heads(m), y = sn_mul(columns(x, FROM, PART), -1.5);
    y = sn_concat(-1, columns(x, 0, FROM), sn_rope(y, positions(m), .halves = true));
    return sn_concat(-1, y, columns(x, 0, 0), columns(x, FROM + PART, D - FROM - PART));
}
CHECK(of_columns, "= rope %", S(part_op), S(joined), S(joined_twice))

/* ---- what only looks like it ---- */

static sn_tensor moved(sn_module *m) {
    sn_tensor x = heads(m);
    return sn_concat(-1, columns(x, FROM, D - PART), rotated(m, x));
}
static sn_tensor rotated_twice(sn_module *m) {
    sn_tensor x = heads(m);
    return sn_concat(-1, rotated(m, x), rotated(m, x));
}
static sn_tensor of_another(sn_module *m) {
    sn_tensor x = heads(m);
    return sn_concat(-1, columns(sn_tanh(x), 0, FROM), rotated(m, x),
                     columns(x, FROM + PART, D - FROM - PART));
}

SPELLING(other_sign, sn_sub(sn_mul(x, sn_cos(a)), sn_mul(rotate_half(x), sn_sin(a))))
SPELLING(two_angles, rotate(x, sn_cos(a), sn_sin(sn_mul(a, 2))))
SPELLING(other_tensor, sn_add(sn_mul(sn_tanh(x), sn_cos(a)), sn_mul(rotate_half(x), sn_sin(a))))
SPELLING(swapped, sn_add(sn_mul(x, sn_sin(a)), sn_mul(rotate_half(x), sn_cos(a))))
static sn_tensor not_geometric(sn_module *m) {
    sn_tensor f = sn_recip(sn_add(sn_cast(sn_arange(m, SN_I32, D / 2), SN_F32), 1));
    sn_tensor a = twice(sn_mul(column(positions(m)), f));
    return rotate(heads(m), sn_cos(a), sn_sin(a));
}
static sn_tensor learned(sn_module *m) {
    sn_tensor a = twice(sn_mul(column(positions(m)), sn_param(m, "f", SN_F32, D / 2)));
    return rotate(heads(m), sn_cos(a), sn_sin(a));
}
static sn_tensor halves_differ(sn_module *m) {
    sn_tensor a = sn_mul(column(positions(m)), frequencies(m, 10000));
    a = sn_concat(-1, a, sn_mul(a, 3));
    return rotate(heads(m), sn_cos(a), sn_sin(a));
}
static sn_tensor of_heads(sn_module *m) { /* an angle for each head, not each row */
    sn_tensor a = sn_mul(column(sn_arange(m, SN_I32, HEADS)), frequencies(m, 10000));
    a = sn_expand(twice(a), 1);
    return rotate(heads(m), sn_cos(a), sn_sin(a));
}

/* Not one rope of all columns. */
static void not_of_columns(void **state) {
    (void)state;
    static const raise_spelling list[] = {S(moved), S(rotated_twice), S(of_another)};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char *text = raise_text(&list[i]);
        if (strstr(text, "columns=")) fail_msg("%s became\n%s", list[i].name, text);
        free(text);
    }
}

static void left_alone(void **state) {
    (void)state;
    static const raise_spelling list[] = {S(other_sign),    S(two_angles), S(other_tensor),
                                          S(swapped),       S(learned),    S(not_geometric),
                                          S(halves_differ), S(of_heads)};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char *text = raise_text(&list[i]);
        if (strstr(text, "rope")) fail_msg("%s became\n%s", list[i].name, text);
        free(text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_rows),        cmocka_unit_test(of_items),
        cmocka_unit_test(of_maps),        cmocka_unit_test(of_scaled_maps),
        cmocka_unit_test(of_a_token),     cmocka_unit_test(of_columns),
        cmocka_unit_test(not_of_columns), cmocka_unit_test(left_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
