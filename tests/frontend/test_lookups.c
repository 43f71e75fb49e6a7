/* How large the integers of an input may be, by the tables that are read at what is computed of them. */
#include "frontend/sinter.h"
#include "ir/lookups.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { TOKENS = 6 };

static int64_t limit(sn_module *m, sn_tensor input) {
    int64_t symbol[8] = {TOKENS};
    assert_int_equal(sn_module_error(m)->code, SN_OK);
    return sn_input_limit(m, sn_entry_get(m, "f"), input, symbol);
}

static void limits(void **state) {
    (void)state;
    sn_module *m = sn_module_new("m");
    sn_entry_begin(m, "f");
    sn_dim T = sn_symbol(m, "T", 1, 64);
    sn_tensor table = sn_param(m, "table", SN_F32, 9, 4),
              small = sn_param(m, "small", SN_F32, 3, 4);
    const char *name[] = {"direct",  "twice", "zero",    "part", "rest",
                          "clamped", "size",  "unknown", "free"};
    enum { N = sizeof name / sizeof *name };
    sn_tensor in[N], y = NULL;
    for (int i = 0; i < N; i++) in[i] = sn_input(m, name[i], SN_I32, T);
    sn_tensor data = sn_input(m, "data", SN_F32, T, 4);
    sn_tensor index[] = {in[0], sn_add(sn_mul(in[1], 2), 1),         /* 1, 3 .. 7 */
                         sn_add(sn_mul(in[2], 0), sn_div(in[3], 2)), /* zero: any; part: 0 .. 17 */
                         sn_mod(in[4], 9), sn_min(in[5], 8)};
    for (size_t i = 0; i < sizeof index / sizeof *index; i++) {
        sn_tensor row = sn_gather(table, 0, index[i]);
        y = y ? sn_add(y, row) : row;
    }
    y = sn_add(y, sn_gather(small, 0, in[0])); /* the smaller of two tables */
    y = sn_add(y, sn_gather(data, 0, in[6]));  /* as many rows as the run has */
    y = sn_add(y, sn_gather(table, 0, sn_cast(sn_sqrt(sn_cast(in[7], SN_F32)), SN_I32)));
    y = sn_add(y, sn_expand(sn_cast(in[8], SN_F32), 1));
    sn_output("y", y);
    static const int64_t want[N] = {3, 4, 0, 18, 0, 0, TOKENS, 0, 0};
    for (int i = 0; i < N; i++) {
        int64_t got = limit(m, in[i]);
        if (i == 4 || i == 5) /* nothing leaves the table */
            assert_true(got > 1 << 20);
        else
            assert_int_equal(got, want[i]);
    }
    sn_module_free(m);
}

/* The operations that take an index, each of an input of its own. */
static void operations(void **state) {
    (void)state;
    static const int64_t want[] = {7, 9, 9, 9, 5, 4, 9, 8, 3, 2, 9, 4};
    enum { N = sizeof want / sizeof *want };
    sn_module *m = sn_module_new("m");
    sn_entry_begin(m, "f");
    sn_tensor x = sn_input(m, "x", SN_F32, TOKENS, 7), w = sn_param(m, "w", SN_F32, 9, 7);
    sn_tensor in[N], column[N], y[N], flag = sn_lt(sn_sum(x, 1), 0);
    for (int i = 0; i < N; i++) {
        char name[] = {'i', (char)('a' + i), 0};
        in[i] = sn_input(m, name, i % 2 ? SN_I32 : SN_I64, TOKENS);
        column[i] = sn_expand(in[i], 1);
    }
    y[0] = sn_cross_entropy(x, in[0]);
    y[1] = sn_embedding(w, in[1]);
    y[2] = sn_scatter_add(x, 0, in[2], 9);
    y[3] = sn_at(w, in[3], sn_mul(in[3], 0));
    y[4] = sn_take_blocks(sn_param(m, "blocks", SN_F32, TOKENS, 20), column[4], 5);
    y[5] = sn_grouped_matmul(x, sn_param(m, "groups", SN_F32, 4, 3, 7), in[5]);
    y[6] = sn_take_along(sn_param(m, "rows", SN_F32, TOKENS, 9), 1, column[6]);
    y[7] = sn_update_rows(sn_param(m, "cache", SN_F32, TOKENS, 9), 1, sn_slice(x, 1, 0, 2), in[7]);
    y[8] = SN_NODE(m, ragged_dot, SN_ATTRS(SN_INT(blocks, 3)), x, x, column[8]);
    y[9] =
        SN_NODE(m, scatter_nd_add, SN_ATTRS(SN_LIST(shape, 1, (sn_dim[]){2})), sn_sum(x, 1), in[9]);
    y[10] = sn_gather(w, 0, sn_where(flag, in[10], 0)); /* whatever the condition is */
    y[11] =
        SN_NODE(m, grouped_dot, SN_NO_ATTRS, x, sn_param(m, "maps", SN_F32, 4, 3, 7), column[11]);
    for (int i = 0; i < N; i++) {
        char name[] = {'y', (char)('a' + i), 0};
        sn_output(name, y[i]);
    }
    for (int i = 0; i < N; i++) assert_int_equal(limit(m, in[i]), want[i]);
    sn_module_free(m);
}

/* The decomposition of a layer's attention reaches the layers before it: each is visited once. */
static void many_layers(void **state) {
    (void)state;
    sn_module *m = sn_module_new("m");
    sn_entry_begin(m, "f");
    sn_dim T = sn_symbol(m, "T", 1, 64);
    sn_tensor tokens = sn_input(m, "tokens", SN_I32, T);
    sn_tensor x = sn_gather(sn_param(m, "table", SN_F32, 9, 4), 0, tokens);
    x = sn_reshape(x, 1, 1, T, 4);
    for (int layer = 0; layer < 100; layer++) x = sn_attention(x, x, x, .causal = true);
    sn_output("y", x);
    assert_int_equal(limit(m, tokens), 9);
    sn_module_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(limits), cmocka_unit_test(operations),
                                       cmocka_unit_test(many_layers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
