/* What passes/holds.c allows is what emitters emit: for each kernel, place and op with a rule a region
 * with the op compiles, for each op without one the emitter refuses. */
#include "codegen/entry.h"
#include "codegen/kernel.h"
#include "passes/holds.h"
#include "tests/support/effort.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { ROWS = 8, COLUMNS = 64, HALF = COLUMNS / 2 };
static const sn_dim shape[] = {ROWS, COLUMNS};
static const int64_t last = 1;

/* The region under construction: arguments x, y, z [ROWS, COLUMNS], then seed i64[2] and a table. */
typedef struct region {
    sn_module *m;
    sn_place at;
    sn_node *arg[5], *x;
    sn_op op;
} region;

/* ---- a value that the op is part of ---- */

static sn_node *elementwise(region *r) {
    static const char *const rules[SN_OP_COUNT] = {
#define ELEM(name, n, rule, ...) [SN_OP_##name] = #rule,
#include "ir/ops.def"
    };
    const char *rule = rules[r->op];
    sn_node *in[3];
    for (int i = 0; i < 3; i++) {
        bool truth = !strcmp(rule, "boole") || (!strcmp(rule, "select") && i == 0);
        bool bits = !strcmp(rule, "bits") || !strcmp(rule, "shift");
        in[i] = truth  ? sn_b_scalar(SN_OP_lt, r->arg[i], 0)
                : bits ? sn_b_cast(r->arg[i], SN_I32)
                       : r->arg[i];
    }
    sn_attr to = SN_INT(dtype, SN_I32);
    bool cast = r->op == SN_OP_cast;
    return sn_node_new(r->m, r->op, sn_ops[r->op].min_in, in, cast, cast ? &to : NULL);
}

static sn_node *leaf(region *r) {
    return sn_b_scalar(SN_OP_add, r->arg[1], 2); /* an argument, and a constant that is broadcast */
}

static sn_node *run_time_size(region *r) {
    return sn_b_dim(r->m, SN_F32, sn_symbol_add(r->m, "T", 1, 99));
}

static sn_node *indices(region *r) {
    return sn_b_iota(r->m, SN_F32, 2, shape, 1);
}

static sn_node *random_numbers(region *r) {
    return sn_node_new(r->m, SN_OP_random, 1, &r->arg[3],
                       SN_ATTRS(SN_INT(stream, 1), SN_LIST(shape, 2, shape)));
}

static sn_node *reduction(region *r) {
    if (r->at == SN_IN_EPILOGUE) return sn_over_panels(r->op, r->x);
    return sn_b_reduce(r->op, r->x, 1, &last);
}

static sn_node *split(region *r) {
    return sn_over_panels(SN_OP_reduce_sum, r->x);
}

/* Of neighbouring columns of a product, or of rows of a table. */
static sn_node *lookup(region *r) {
    bool swap = r->at == SN_IN_EPILOGUE;
    const sn_dim n = swap ? COLUMNS : ROWS;
    sn_node *i = sn_b_iota(r->m, SN_I32, 1, &n, 0);
    sn_node *odd = sn_b_scalar(SN_OP_mul, sn_b_scalar(SN_OP_mod, i, 2), 2);
    i = sn_b_binary(SN_OP_sub, sn_b_scalar(SN_OP_add, i, 1), odd);
    return sn_node_new(r->m, SN_OP_gather, 2, (sn_node *[]){swap ? r->x : r->arg[4], i},
                       SN_ATTRS(SN_INT(axis, swap)));
}

static sn_node *element_lookup(region *r) {
    sn_node *in[] = {r->arg[4], sn_b_iota(r->m, SN_I32, 2, shape, 0),
                     sn_b_iota(r->m, SN_I32, 2, shape, 1)};
    return sn_node_new(r->m, SN_OP_gather_nd, 3, in, 0, NULL);
}

static sn_node *halves(region *r) {
    return sn_b_binary(SN_OP_mul, sn_b_slice(r->x, 1, 0, HALF), sn_b_slice(r->x, 1, HALF, HALF));
}

/* In an epilogue the product does that. */
static sn_node *blocks(region *r) {
    const sn_dim rows[] = {ROWS, 1};
    if (r->at == SN_IN_EPILOGUE) return r->arg[1];
    return sn_node_new(r->m, SN_OP_take_blocks, 2,
                       (sn_node *[]){r->arg[4], sn_b_iota(r->m, SN_I32, 2, rows, 1)},
                       SN_ATTRS(SN_INT(blocks, 2)));
}

static sn_node *(*const samples[SN_OP_COUNT])(region *r) = {
#define ELEM(name, ...) [SN_OP_##name] = elementwise,
#include "ir/ops.def"
    [SN_OP_arg] = leaf,
    [SN_OP_const] = leaf,
    [SN_OP_broadcast] = leaf,
    [SN_OP_dim_value] = run_time_size,
    [SN_OP_iota] = indices,
    [SN_OP_random] = random_numbers,
    [SN_OP_reduce_sum] = reduction,
    [SN_OP_reduce_max] = reduction,
    [SN_OP_reduce_min] = reduction,
    [SN_OP_reshape] = split,
    [SN_OP_gather] = lookup,
    [SN_OP_gather_nd] = element_lookup,
    [SN_OP_slice] = halves,
    [SN_OP_take_blocks] = blocks,
};

/* ---- the kernel that contains it ---- */

static sn_node *input(sn_module *m, const char *name, sn_op op, sn_dtype t, int rank,
                      const sn_dim *size) {
    return sn_node_new(m, op, 0, NULL,
                       SN_ATTRS(SN_STR(name, name), SN_INT(dtype, t), SN_LIST(shape, rank, size)));
}

static sn_node *row_kernel(const region *r, sn_node *y, sn_node *const *operand) {
    sn_region *body = sn_region_new(r->m, 5, r->arg, 1, &y);
    return sn_node_new(r->m, SN_OP_map_reduce, 5, operand, SN_ATTRS(SN_REG(body, body)));
}

static sn_node *column_kernel(const region *r, sn_node *y, sn_node *const *operand) {
    const int64_t first = 0;
    return row_kernel(r, sn_b_reduce(SN_OP_reduce_sum, y, 1, &first), operand);
}

static sn_node *product(const region *r, sn_node *y, sn_node *const *operand) {
    const sn_dim square[] = {COLUMNS, COLUMNS}, two = ROWS;
    const bool pair = r->op == SN_OP_slice, selects = r->op == SN_OP_take_blocks,
               pro = r->at == SN_IN_PROLOGUE;
    sn_node *w = input(r->m, "w", SN_OP_param, SN_F32, 2, square);
    sn_attr packing[] = {SN_INT(dtype, SN_F32), SN_LIST(contract_b, 1, &last), SN_INT(pair, HALF)};
    w = sn_node_new(r->m, SN_OP_pack_b, 1, &w, 2 + pair, packing);
    sn_attr attr[8] = {SN_LIST(packed, 2, square), SN_LIST(contract_a, 1, &last),
                       SN_LIST(contract_b, 1, &last)};
    int n_attr = 3, n = 0;
    sn_node *in[8] = {operand[0], w}, **arg = (sn_node **)r->arg;
    n = 2;
    if (selects) {
        const sn_dim rows[] = {two, 1};
        in[n++] = input(r->m, "block", SN_OP_input, SN_I32, 2, rows);
        attr[n_attr++] = SN_INT(blocks, 2);
    } else {
        sn_region *region = sn_region_new(r->m, 3, arg, 1, &y);
        for (int i = 1; i < 3; i++) in[n++] = operand[i];
        attr[n_attr++] = pro ? SN_REG(prologue, region) : SN_REG(epilogue, region);
        if (pro) attr[n_attr++] = SN_INT(n_pro, 2);
    }
    if (pair) attr[n_attr++] = SN_INT(pair, HALF);
    return sn_node_new(r->m, SN_OP_gemm, n, in, n_attr, attr);
}

/* A norm, so that the prologue has a sum. */
static sn_node *product_of_rows(const region *r, sn_node *y, sn_node *const *operand) {
    if (y->dtype != SN_F32) y = sn_b_cast(y, SN_F32);
    sn_node *sum = sn_b_reduce(SN_OP_reduce_sum, r->x, 1, &last);
    return product(r, sn_b_binary(SN_OP_add, sn_b_binary(SN_OP_mul, r->x, sum), y), operand);
}

static const struct place {
    const char *name;
    sn_kernel_id kernel;
    sn_place at;
    sn_node *(*make)(const region *r, sn_node *y, sn_node *const *operand);
} places[] = {{"rows", SN_KERNEL_map_reduce, SN_IN_BODY, row_kernel},
              {"columns", SN_KERNEL_column, SN_IN_BODY, column_kernel},
              {"prologue", SN_KERNEL_gemm, SN_IN_PROLOGUE, product_of_rows},
              {"epilogue", SN_KERNEL_gemm, SN_IN_EPILOGUE, product}};
enum { N_PLACES = sizeof places / sizeof *places };

/* Replaces op `from` in the regions of n; the evaluator of regions looks at the op first. */
static void disguise(const sn_node *n, sn_op from, sn_op to) {
    for (int i = 0; i < n->n_attr; i++) {
        if (sn_attr_table[n->attr[i].key].kind != SN_AK_REGION) continue;
        sn_order order = sn_region_topo(n->m, n->attr[i].r);
        for (int k = 0; k < order.n; k++)
            if (order.node[k]->op == from) order.node[k]->op = (uint16_t)to;
    }
}

/* Emits the kernel with `op`, which stands where sample `as` is. */
static bool emits(const struct place *p, sn_op as, sn_op op, sn_error *err) {
    sn_module *m = sn_module_new("holds");
    const sn_dim two = 2, table[] = {ROWS, 2 * COLUMNS};
    region r = {.m = m, .at = p->at, .op = as};
    sn_node *operand[5];
    for (int i = 0; i < 5; i++) {
        sn_dtype t = i == 3 ? SN_I64 : SN_F32;
        int rank = i == 3 ? 1 : 2;
        const sn_dim *size = i == 3 ? &two : i == 4 ? table : shape;
        operand[i] = input(m, &"a\0b\0c\0d\0e"[2 * i], SN_OP_input, t, rank, size);
        r.arg[i] = sn_arg(m, i, t, rank, size);
    }
    r.x = r.arg[0];
    sn_node *y = samples[as](&r);
    bool of_shape = y && y->rank == 2 && y->shape[1] == COLUMNS && as != SN_OP_gather;
    if (of_shape || (y && !y->rank)) /* beside the kernel's main operand */
        y = sn_b_binary(SN_OP_add, r.x, sn_b_cast(y, SN_F32));
    sn_node *n = y ? p->make(&r, y, operand) : NULL;
    sn_entry *e = sn_entry_add(m, "forward");
    if (n) sn_entry_output(m, e, "y", n);
    sn_entry_code code;
    sn_target target;
    em emitter;
    bool ok = n && !sn_module_error(m)->code && sn_entry_code_make(m, e, NULL, &code) &&
              sn_target_init(&target, "x86-64-v3", err);
    if (!ok) fail_msg("%s: %s: %s", p->name, sn_ops[as].name, sn_module_error(m)->message);
    const sn_kernel *k = NULL;
    for (int i = 0; i < code.plan->n_step; i++)
        if (code.kernel[i].traits == &sn_kernels[p->kernel]) k = &code.kernel[i];
    if (!k) fail_msg("%s: %s: it is in another kernel", p->name, sn_ops[as].name);
    if (op != as) disguise(k->step->node, as, op);
    ok = em_init(&emitter, &target, k->name, k->compute, err);
    if (ok) k->family->emit(&emitter, k);
    ok = ok && em_finish(&emitter, err);
    em_free(&emitter);
    sn_module_free(m);
    return ok;
}

static void allowed(void **state) {
    (void)state;
    for (int i = 0, count = 0; i < N_PLACES; i++)
        for (int op = 0; op < SN_OP_COUNT; op++) {
            const struct place *p = &places[i];
            sn_error err = {0};
            if (!sn_kernel_knows(p->kernel, p->at, (sn_op)op)) continue;
            if (!samples[op]) fail_msg("no sample of %s", sn_ops[op].name);
            if (sn_ops[op].kind == SN_ELEM && !effort_takes((size_t)count++, 5)) continue;
            if (!emits(p, (sn_op)op, (sn_op)op, &err))
                fail_msg("%s: %s does not compile: %s", p->name, sn_ops[op].name, err.message);
        }
}

static void refused(void **state) {
    (void)state;
    for (int i = 0, count = 0; i < N_PLACES; i++)
        for (int op = 0; op < SN_OP_COUNT; op++) {
            const struct place *p = &places[i];
            sn_error err = {0};
            if (sn_kernel_knows(p->kernel, p->at, (sn_op)op) || !effort_takes((size_t)count++, 5))
                continue;
            if (emits(p, SN_OP_neg, (sn_op)op, &err))
                fail_msg("%s: %s compiles, and has no rule", p->name, sn_ops[op].name);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(allowed), cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
