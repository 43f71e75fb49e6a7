/* The tables of passes/kernels: the manual says what they say. */
#include "frontend/sinter.h"
#include "passes/kernels/table.h"
#include "passes/passes.h"
#include "tests/support/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* The manual's table of levels is levels.def. */
static void manual_levels(void **state) {
    (void)state;
    char *manual = file_text(SN_SOURCE_DIR "/docs/manual.md"), row[300];
    for (int i = 0; i <= SN_LEVEL_COUNT; i++) {
        bool exists = i < SN_LEVEL_COUNT;
        snprintf(row, sizeof row, "\n| %d | %s", i, exists ? sn_level_text[i] : "");
        if (exists) strcat(row, " |\n");
        if (exists != !!strstr(manual, row)) fail_msg("docs/manual.md, level %d:%s", i, row);
    }
    free(manual);
}

static void levels(void **state) {
    (void)state;
    assert_true(sn_level_exists(-1) && sn_level_exists(0) && sn_level_exists(SN_LEVEL_HIGHEST));
    assert_false(sn_level_exists(-2) || sn_level_exists(SN_LEVEL_COUNT));
    assert_int_equal(sn_level_or_highest(-1), SN_LEVEL_HIGHEST);
    assert_int_equal(sn_level_or_highest(2), 2);
    assert_false(sn_level_fuses(0));
    assert_true(sn_level_fuses(1));
    for (int i = 0; i < SN_LEVEL_COUNT; i++)
        for (int from = 0; from < SN_LEVEL_COUNT; from++)
            assert_int_equal(sn_level_reaches(i, (sn_level)from), i >= from);
}

/* What a kernel holds at a level it holds at every higher one; level 0 holds nothing. */
static void holds(void **state) {
    (void)state;
    for (int k = 0; k < SN_KERNEL_COUNT; k++)
        for (int what = 0; what < SN_HOLDS_COUNT; what++) {
            bool before = false;
            for (int level = 0; level < SN_LEVEL_COUNT; level++) {
                bool now = sn_kernel_holds(&sn_kernels[k], (sn_holds)what, level);
                assert_true(now >= before && (level || !now));
                before = now;
            }
            assert_int_equal(before, sn_kernel_can_hold(&sn_kernels[k], (sn_holds)what));
        }
}

/* ---- passes join two operations at the levels that the row says ---- */

static const sn_dim few[] = {16, 64}, square[] = {64, 64};
static const int64_t rows = 0, columns = 1;

static sn_node *leaf(sn_module *m, sn_op op, const sn_dim *shape) {
    return sn_node_new(
        m, op, 0, NULL,
        SN_ATTRS(SN_STR(name, sn_ops[op].name), SN_INT(dtype, SN_F32), SN_LIST(shape, 2, shape)));
}

static sn_node *two(sn_node *x, sn_node *y) {
    (void)y;
    return sn_b_unary(SN_OP_tanh, sn_b_binary(SN_OP_mul, x, x));
}

static sn_node *share_of_row(sn_node *x, sn_node *y) {
    (void)y;
    return sn_b_binary(SN_OP_div, x, sn_b_reduce(SN_OP_reduce_sum, x, 1, &columns));
}

static sn_node *summed_columns(sn_node *x, sn_node *y) {
    (void)y;
    return sn_b_reduce(SN_OP_reduce_sum, sn_b_binary(SN_OP_mul, x, x), 1, &rows);
}

static sn_node *product(sn_node *x, sn_node *y) {
    return SN_NODE(x->m, dot,
                   SN_ATTRS(SN_LIST(contract_a, 1, &columns), SN_LIST(contract_b, 1, &columns)), x,
                   y);
}

static sn_node *tanh_of_product(sn_node *x, sn_node *y) {
    return sn_b_unary(SN_OP_tanh, product(x, y));
}

static sn_node *swapped_product(sn_node *x, sn_node *y) {
    sn_node *i = sn_b_iota(x->m, SN_I32, 1, square, 0);
    sn_node *odd = sn_b_scalar(SN_OP_mul, sn_b_scalar(SN_OP_mod, i, 2), 2);
    i = sn_b_binary(SN_OP_sub, sn_b_scalar(SN_OP_add, i, 1), odd);
    return sn_node_new(x->m, SN_OP_gather, 2, (sn_node *[]){product(x, y), i},
                       SN_ATTRS(SN_INT(axis, 1)));
}

static sn_node *product_of_norm(sn_node *x, sn_node *y) {
    return product(share_of_row(x, y), y);
}

static sn_node *gated(sn_node *x, sn_node *y) {
    sn_node *both = product(x, y);
    return sn_b_binary(SN_OP_mul, sn_b_slice(both, 1, 0, 32), sn_b_slice(both, 1, 32, 32));
}

static sn_node *recurrence_of_tanh(sn_node *x, sn_node *start) {
    sn_node *in[] = {start, sn_b_unary(SN_OP_tanh, x), x, x, x};
    return sn_b_result(sn_node_new(x->m, SN_OP_recurrence, 5, in, 0, NULL), 0);
}

static void joined(void **state) {
    static const struct {
        sn_kernel_id kernel;
        sn_holds what;
        sn_node *(*make)(sn_node *x, sn_node *y);
    } pairs[] = {{SN_KERNEL_map_reduce, SN_HOLDS_ELEMENTWISE, two},
                 {SN_KERNEL_map_reduce, SN_HOLDS_ROWS, share_of_row},
                 {SN_KERNEL_column, SN_HOLDS_OPERAND, summed_columns},
                 {SN_KERNEL_gemm, SN_HOLDS_ELEMENTWISE, tanh_of_product},
                 {SN_KERNEL_gemm, SN_HOLDS_COLUMN_SWAP, swapped_product},
                 {SN_KERNEL_gemm, SN_HOLDS_HALVES, gated},
                 {SN_KERNEL_gemm, SN_HOLDS_ROW_PROLOGUE, product_of_norm},
                 {SN_KERNEL_recurrence, SN_HOLDS_ROW_PROLOGUE, recurrence_of_tanh}};
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        for (int level = 0; level < SN_LEVEL_COUNT; level++) {
            sn_module *m = sn_module_new("pair");
            sn_entry *e = sn_entry_add(m, "forward");
            sn_pass_options o = {.level = level, .backend = "native", .constant_params = true};
            sn_passes p;
            int n = 0;
            sn_entry_output(m, e, "y",
                            pairs[i].make(leaf(m, SN_OP_input, few), leaf(m, SN_OP_param, square)));
            assert_true(sn_passes_run(&p, m, &o));
            sn_order order = sn_entry_topo(m, sn_entry_at(m, 0));
            bool one = false;
            for (int k = 0; k < order.n; k++) {
                sn_kernel_id kernel = sn_kernel_variant(order.node[k]);
                n += kernel != SN_KERNEL_NONE;
                one |= kernel == pairs[i].kernel;
            }
            one &= n == 1;
            if (one != sn_kernel_holds(&sn_kernels[pairs[i].kernel], pairs[i].what, level))
                fail_msg("pair %zu at level %d: %d kernels", i, level, n);
            sn_module_free(m);
        }
}

/* A row names its region, or says that it has none; each counts its operations. */
static void complete(void **state) {
    (void)state;
    for (int k = 1; k < SN_KERNEL_COUNT; k++) {
        const sn_kernel_traits *t = &sn_kernels[k];
        bool region = t->region != SN_NO_REGION;
        if (!t->flops || (region && sn_attr_table[t->region].kind != SN_AK_REGION) ||
            (t->rounds && !region))
            fail_msg("kernels.def: row '%s' is not complete", t->name);
    }
}

/* Every product that depends on an input says what must not change its bits, also in the body of a loop. */
static void step(sn_scan_step *s) {
    const sn_tensor *w = s->user;
    s->next[0] = sn_tanh(sn_add(sn_matmul(s->carry[0], *w), s->x[0]));
    s->y[0] = s->next[0];
}

static void invariant(void **state) {
    (void)state;
    for (int asked = 0; asked < 2; asked++) {
        sn_module *m = sn_module_new("m");
        sn_entry_begin(m, "e");
        sn_tensor w = sn_input(m, "w", SN_F32, 40, 40), x = sn_input(m, "x", SN_F32, 5, 4, 40);
        sn_scanned r = sn_scan(.carry = {sn_full(m, SN_F32, 0, 4, 40)}, .x = {sn_matmul(x, w)},
                               .body = step, .user = &w);
        sn_output("y", r.y[0]);
        const sn_pass_options o = {
            .level = SN_LEVEL_HIGHEST, .backend = "native", .invariant = asked};
        sn_passes p;
        if (!sn_passes_run(&p, m, &o)) fail_msg("%s", sn_module_error(m)->message);
        char *text = module_text(m), *rest = text, *line;
        int products = 0;
        while ((line = strtok_r(rest, "\n", &rest))) {
            if (!strstr(line, "= gemm")) continue;
            products++;
            if ((strstr(line, "invariant=1") != NULL) != asked) fail_msg("%s", line);
        }
        assert_int_equal(products, 2);
        free(text);
        sn_module_free(m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(manual_levels), cmocka_unit_test(levels),   cmocka_unit_test(holds),
        cmocka_unit_test(joined),        cmocka_unit_test(complete), cmocka_unit_test(invariant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
