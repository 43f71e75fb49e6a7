/* What is left out because a mask hides it: blocks of keys in ring attention, tiles in kernels. Random masks of queries and
 * keys, whose numbers wrap, are computed for every pair of small tiles; no pair that is left out is visible. */
#include "codegen/attention/mask_intervals.h"
#include "codegen/jit/jit.h"
#include "passes/shard/shard.h"
#include "runtime/rng.h"
#include "tests/support/effort.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { N_ARGS = 4, QUERY = 2, KEY = 3, TILE = 4, DEPTH = 4, MAX_NODES = 256 };

typedef struct draw {
    sn_module *m;
    sn_rng rng;
    sn_node *arg[N_ARGS];
} draw;

static int below(draw *d, int n) {
    return (int)sn_rng_below(&d->rng, (uint32_t)n);
}

static sn_op one_of(draw *d, const sn_op *op, int n) {
    return op[below(d, n)];
}

static sn_node *draw_number(draw *d, int depth) {
    static const sn_op op[] = {SN_OP_add, SN_OP_sub, SN_OP_mul, SN_OP_min, SN_OP_max,
                               SN_OP_div, SN_OP_mod, SN_OP_xor, SN_OP_and, SN_OP_shift_right};
    static const double constant[] = {0, 1, 2, 3, 5, 7, 8, 16, -1, -4, 100000, 0x40000000};
    if (!depth || !below(d, 4)) {
        if (below(d, 5)) return d->arg[below(d, 2) ? QUERY : KEY];
        return sn_b_const(d->m, SN_I32, constant[below(d, sizeof constant / sizeof *constant)]);
    }
    if (!below(d, 12)) return sn_b_unary(SN_OP_neg, draw_number(d, depth - 1));
    sn_node *x = draw_number(d, depth - 1), *y = draw_number(d, depth - 1);
    return sn_b_binary(one_of(d, op, sizeof op / sizeof *op), x, y);
}

static sn_node *draw_mask(draw *d, int depth) {
    static const sn_op join[] = {SN_OP_and, SN_OP_or, SN_OP_xor, SN_OP_lt, SN_OP_le},
                       compare[] = {SN_OP_lt, SN_OP_le, SN_OP_eq, SN_OP_ne};
    if (depth < 2 || below(d, 2)) {
        sn_node *x = draw_number(d, depth), *y = draw_number(d, depth);
        return sn_b_binary(one_of(d, compare, 4), x, y);
    }
    if (!below(d, 4)) return sn_b_unary(SN_OP_not, draw_mask(d, depth - 1));
    sn_node *x = draw_mask(d, depth - 1), *y = draw_mask(d, depth - 1);
    if (!below(d, 4)) return sn_b_select(x, y, draw_mask(d, depth - 1));
    return sn_b_binary(one_of(d, join, 5), x, y);
}

static const sn_region *draw_region(draw *d) {
    for (int i = 0; i < N_ARGS; i++) d->arg[i] = sn_arg(d->m, i, SN_I32, 0, NULL);
    sn_node *out = draw_mask(d, DEPTH);
    return sn_region_new(d->m, N_ARGS, d->arg, 1, &out);
}

/* The mask of one pair, by the reference of every op. */
static bool sees(const sn_region *r, const sn_order *order, int64_t q, int64_t k) {
    double v[MAX_NODES];
    assert_in_range(order->n, 1, MAX_NODES);
    for (int i = 0; i < order->n; i++) {
        const sn_node *n = order->node[i];
        double x[3] = {0};
        for (int j = 0; j < n->n_in; j++)
            for (int b = 0; b < i; b++)
                if (order->node[b] == n->in[j]) x[j] = v[b];
        if (n->op == SN_OP_const)
            v[i] = sn_attr_flt(n, SN_A_value, 0);
        else if (n->op == SN_OP_arg)
            v[i] = n == r->arg[QUERY] ? (double)q : (double)k;
        else
            v[i] =
                sn_round_to((sn_dtype)n->dtype, sn_elem_ref((sn_op)n->op, true, x[0], x[1], x[2]));
    }
    return v[order->n - 1] != 0;
}

typedef struct tile {
    int64_t q[2], k[2];
} tile;

static tile draw_tile(draw *d) {
    static const int64_t from[] = {0, 4, 28, 60, 100, 4096, 60000};
    const int64_t q = from[below(d, 7)], k = from[below(d, 7)];
    return (tile){{q, q + TILE - 1}, {k, k + TILE - 1}};
}

static int visible(const sn_region *r, const sn_order *order, const tile *t) {
    int n = 0;
    for (int64_t q = t->q[0]; q <= t->q[1]; q++)
        for (int64_t k = t->k[0]; k <= t->k[1]; k++) n += sees(r, order, q, k);
    return n;
}

static void blocks_of_rings(void **state) {
    (void)state;
    const int masks = effort_is_long() ? 200000 : 1500;
    int left_out = 0;
    for (int i = 0; i < masks; i++) {
        draw d = {.m = sn_module_new("t"), .rng = {.seed = 7, .stream = (uint32_t)i}};
        const sn_region *r = draw_region(&d);
        const sn_order order = sn_region_topo(d.m, r);
        assert_int_equal(sn_module_error(d.m)->code, SN_OK);
        for (int n = 0; n < 8; n++) {
            const tile t = draw_tile(&d);
            if (!sh_hides(d.m, r, t.q, t.k)) continue;
            left_out++;
            if (visible(r, &order, &t))
                fail_msg("mask %d: queries from %ld see keys from %ld", i, t.q[0], t.k[0]);
        }
        sn_module_free(d.m);
    }
    assert_true(left_out > masks / 10);
}

static sn_kernel_fn *compile(sn_jit *jit, em *e, const sn_region *r) {
    sn_error err = {0};
    sn_interval_code c = {.e = e};
    em_kernel(e, "mask");
    assert_true(sn_interval_begin(&c, e, r));
    for (int i = QUERY; i <= KEY; i++)
        sn_interval_arg(&c, i, (sn_interval){em_dim(e, 2 * i), em_dim(e, 2 * i + 1)}, 1);
    sn_interval_emit(&c, 1);
    em_store(e, SN_BOOL, em_buf(e, 0), sn_interval_result(&c).lo);
    em_store(e, SN_BOOL, em_buf(e, 1), sn_interval_result(&c).hi);
    em_end_kernel(e);
    LLVMModuleRef mod = em_finish(e, &err);
    if (!mod || !sn_jit_compile(jit, mod, NULL, &err)) fail_msg("%s", err.message);
    void *p = sn_jit_lookup(jit, "mask", &err);
    sn_kernel_fn *f;
    memcpy(&f, &p, sizeof f);
    return f;
}

static void tiles_of_kernels(void **state) {
    (void)state;
    const int masks = effort_is_long() ? 5000 : 30;
    int empty = 0, full = 0;
    sn_target target;
    sn_error err = {0};
    assert_true(sn_target_init(&target, NULL, &err));
    for (int i = 0; i < masks; i++) {
        draw d = {.m = sn_module_new("t"), .rng = {.seed = 8, .stream = (uint32_t)i}};
        const sn_region *r = draw_region(&d);
        const sn_order order = sn_region_topo(d.m, r);
        sn_jit *jit = sn_jit_create(&target, NULL, &err);
        em e;
        assert_true(em_init(&e, &target, "mask", SN_F32, &err));
        sn_kernel_fn *f = compile(jit, &e, r);
        for (int n = 0; n < 40; n++) {
            const tile t = draw_tile(&d);
            uint8_t surely = 9, maybe = 9;
            f((void *[]){&surely, &maybe}, (int64_t[]){0, 0, 0, 0, t.q[0], t.q[1], t.k[0], t.k[1]},
              NULL, 0, 1);
            const int seen = visible(r, &order, &t);
            empty += !maybe, full += surely;
            if ((surely && seen < TILE * TILE) || (!maybe && seen))
                fail_msg(
                    "mask %d: queries from %ld, keys from %ld: %d visible, surely %d, maybe %d", i,
                    t.q[0], t.k[0], seen, surely, maybe);
        }
        em_free(&e);
        sn_jit_destroy(jit);
        sn_module_free(d.m);
    }
    assert_true(empty > masks && full > masks);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(blocks_of_rings),
                                       cmocka_unit_test(tiles_of_kernels)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
