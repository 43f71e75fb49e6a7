/* What passes/holds.c allows is what emitters emit: for each kernel, place and op with a rule a region
 * with the op compiles, in each type that the rule allows; for each op without one the emitter refuses.
 * A pass joins the two at the levels that the kernel's row names. */
#include "codegen/entry.h"
#include "codegen/kernel.h"
#include "passes/holds.h"
#include "tests/support/effort.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { ROWS = 8, COLUMNS = 64, HALF = COLUMNS / 2, MAX_ARGS = 8 };
static const sn_dim shape[] = {ROWS, COLUMNS};
static const int64_t first = 0, last = 1;

/* The region under construction. */
typedef struct region {
    sn_module *m;
    const struct place *p;
    sn_op op;
    sn_dtype t, of; /* of the kernel; of what the op computes with */
    sn_node *operand[MAX_ARGS],
        *arg[MAX_ARGS]; /* [n_arg] of the kernel, from number 1 on; of the region */
    int n_arg;
    sn_node *x[3]; /* values in the region */
    sn_node *seed, *table, *index[2];
} region;

struct place {
    const char *name;
    sn_kernel_id kernel;
    sn_kernel_place at;
    void (*begin)(region *r);                /* sets its values */
    sn_node *(*make)(region *r, sn_node *y); /* the kernel that contains the region with result y */
};

static bool is_in(const region *r, sn_kernel_id kernel, sn_kernel_place at) {
    return r->p->kernel == kernel && r->p->at == at;
}

/* ---- a value that the op is part of ---- */

static sn_node *elementwise(region *r) {
    static const char *const rules[SN_OP_COUNT] = {
#define ELEM(name, n, rule, ...) [SN_OP_##name] = #rule,
#include "ir/ops.def"
    };
    const char *rule = rules[r->op];
    const bool floats = sn_dtype_is_float(r->of);
    sn_node *in[3];
    for (int i = 0; i < 3; i++) {
        bool truth = !strcmp(rule, "boole") || (!strcmp(rule, "select") && i == 0);
        bool bits = !strcmp(rule, "bits") || !strcmp(rule, "shift");
        bool fits = floats ? !bits : strcmp(rule, "flt") != 0;
        in[i] = truth  ? sn_b_scalar(SN_OP_lt, r->x[i], 0)
                : fits ? sn_b_cast(r->x[i], r->of)
                : bits ? sn_b_cast(r->x[i], SN_I32)
                       : r->x[i];
    }
    sn_attr to = SN_INT(dtype, SN_I32);
    bool cast = r->op == SN_OP_cast;
    return sn_node_new(r->m, r->op, sn_ops[r->op].min_in, in, cast, cast ? &to : NULL);
}

static sn_node *leaf(region *r) {
    return sn_b_scalar(SN_OP_add, r->x[1], 2); /* an argument, and a constant that is broadcast */
}

static sn_node *run_time_size(region *r) {
    return sn_b_dim(r->m, SN_F32, sn_symbol_add(r->m, "T", 1, 99));
}

static sn_node *indices(region *r) {
    return sn_b_iota(r->m, SN_F32, 2, shape, 1);
}

static sn_node *random_numbers(region *r) {
    return sn_node_new(r->m, SN_OP_random, 1, &r->seed,
                       SN_ATTRS(SN_INT(stream, 1), SN_LIST(shape, 2, shape)));
}

static sn_node *reduction(region *r) {
    if (is_in(r, SN_KERNEL_gemm, SN_IN_EPILOGUE)) return sn_over_panels(r->op, r->x[0]);
    int64_t row = r->x[0]->rank - 1;
    return sn_b_reduce(r->op, r->x[0], 1, r->p->kernel == SN_KERNEL_fused_scan ? &first : &row);
}

/* There and back. */
static sn_node *reshaped(region *r) {
    if (r->p->kernel == SN_KERNEL_gemm) return sn_over_panels(SN_OP_reduce_sum, r->x[0]);
    sn_node *x = sn_b_reshape(r->x[0], 3, (const sn_dim[]){ROWS, 1, COLUMNS});
    return sn_b_reshape(sn_b_unary(SN_OP_neg, x), 2, shape);
}

static sn_node *transposed(region *r) {
    const int64_t swapped[] = {1, 0};
    return sn_b_transpose(sn_b_unary(SN_OP_neg, sn_b_transpose(r->x[0], 2, swapped)), 2, swapped);
}

/* Along the first axis, for each column. */
static sn_node *dot(region *r) {
    return SN_NODE(r->m, dot,
                   SN_ATTRS(SN_LIST(batch_a, 1, &last), SN_LIST(batch_b, 1, &last),
                            SN_LIST(contract_a, 1, &first), SN_LIST(contract_b, 1, &first)),
                   r->x[0], r->x[1]);
}

/* Of neighbouring columns of a product, or of rows of a table. */
static sn_node *lookup(region *r) {
    bool swap = r->p->at == SN_IN_EPILOGUE;
    const sn_dim n = swap ? COLUMNS : ROWS;
    sn_node *i = sn_b_iota(r->m, SN_I32, 1, &n, 0);
    sn_node *odd = sn_b_scalar(SN_OP_mul, sn_b_scalar(SN_OP_mod, i, 2), 2);
    i = sn_b_binary(SN_OP_sub, sn_b_scalar(SN_OP_add, i, 1), odd);
    return sn_node_new(r->m, SN_OP_gather, 2, (sn_node *[]){swap ? r->x[0] : r->table, i},
                       SN_ATTRS(SN_INT(axis, swap)));
}

static sn_node *element_lookup(region *r) {
    return sn_node_new(r->m, SN_OP_gather_nd, 3, (sn_node *[]){r->table, r->index[0], r->index[1]},
                       0, NULL);
}

static sn_node *halves(region *r) {
    return sn_b_binary(SN_OP_mul, sn_b_slice(r->x[0], 1, 0, HALF),
                       sn_b_slice(r->x[0], 1, HALF, HALF));
}

/* In an epilogue the product does that. */
static sn_node *blocks(region *r) {
    const sn_dim rows[] = {ROWS, 1};
    if (r->p->at == SN_IN_EPILOGUE) return r->x[1];
    return sn_node_new(r->m, SN_OP_take_blocks, 2,
                       (sn_node *[]){r->table, sn_b_iota(r->m, SN_I32, 2, rows, 1)},
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
    [SN_OP_reshape] = reshaped,
    [SN_OP_transpose] = transposed,
    [SN_OP_dot] = dot,
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

/* An operand, and the region's argument for it, of a rank `less` smaller. */
static sn_node *add(region *r, sn_dtype t, int rank, const sn_dim *size, int less) {
    const int i = r->n_arg++;
    r->operand[i] = input(r->m, &"a\0b\0c\0d\0e\0f\0g\0h"[2 * i], SN_OP_input, t, rank, size);
    return r->arg[i] = sn_arg(r->m, i, t, rank - less, size + less);
}

static void begin_rows(region *r) {
    const sn_dim two = 2, table[] = {ROWS, 2 * COLUMNS};
    for (int i = 0; i < 3; i++) r->x[i] = add(r, r->t, 2, shape, 0);
    if (r->p->kernel == SN_KERNEL_gemm || r->p->kernel == SN_KERNEL_recurrence) return;
    r->seed = add(r, SN_I64, 1, &two, 0);
    r->table = add(r, SN_F32, 2, table, 0);
    for (int i = 0; i < 2; i++) r->index[i] = sn_b_iota(r->m, SN_I32, 2, shape, i);
}

static sn_node *row_kernel(region *r, sn_node *y) {
    sn_region *body = sn_region_new(r->m, r->n_arg, r->arg, 1, &y);
    return sn_node_new(r->m, SN_OP_map_reduce, r->n_arg, r->operand, SN_ATTRS(SN_REG(body, body)));
}

static sn_node *column_kernel(region *r, sn_node *y) {
    return row_kernel(r, sn_b_reduce(SN_OP_reduce_sum, y, 1, &first));
}

static sn_node *product(region *r, sn_node *y) {
    const sn_dim square[] = {COLUMNS, COLUMNS}, two = ROWS;
    const bool pair = r->op == SN_OP_slice, selects = r->op == SN_OP_take_blocks,
               pro = r->p->at == SN_IN_PROLOGUE;
    sn_node *w = input(r->m, "w", SN_OP_param, r->t, 2, square);
    sn_attr packing[] = {SN_INT(dtype, r->t), SN_LIST(contract_b, 1, &last), SN_INT(pair, HALF)};
    w = sn_node_new(r->m, SN_OP_pack_b, 1, &w, 2 + pair, packing);
    sn_attr attr[8] = {SN_LIST(packed, 2, square), SN_LIST(contract_a, 1, &last),
                       SN_LIST(contract_b, 1, &last)};
    int n_attr = 3, n = 2;
    sn_node *in[8] = {r->operand[0], w};
    if (selects) {
        const sn_dim rows[] = {two, 1};
        in[n++] = input(r->m, "block", SN_OP_input, SN_I32, 2, rows);
        attr[n_attr++] = SN_INT(blocks, 2);
    } else {
        sn_region *region = sn_region_new(r->m, 3, r->arg, 1, &y);
        for (int i = 1; i < 3; i++) in[n++] = r->operand[i];
        attr[n_attr++] = pro ? SN_REG(prologue, region) : SN_REG(epilogue, region);
        if (pro) attr[n_attr++] = SN_INT(n_pro, 2);
    }
    if (pair) attr[n_attr++] = SN_INT(pair, HALF);
    return sn_node_new(r->m, SN_OP_gemm, n, in, n_attr, attr);
}

/* A norm, so that the prologue has a sum. */
static sn_node *product_of_rows(region *r, sn_node *y) {
    sn_node *sum = sn_b_reduce(SN_OP_reduce_sum, r->x[0], 1, &last);
    return product(r, sn_b_binary(SN_OP_add, sn_b_binary(SN_OP_mul, r->x[0], sum), y));
}

/* q, k, v and g of three tensors. */
static sn_node *recurrence(region *r, sn_node *y) {
    const sn_dim carry[] = {COLUMNS, COLUMNS};
    sn_node *out[] = {y, r->x[1], r->x[2], r->x[1]};
    sn_node *in[] = {input(r->m, "s", SN_OP_input, r->t, 2, carry), r->operand[0], r->operand[1],
                     r->operand[2]};
    sn_region *rows = sn_region_new(r->m, 3, r->arg, 4, out);
    return sn_node_new(r->m, SN_OP_fused_recurrence, 4, in, SN_ATTRS(SN_REG(prologue, rows)));
}

/* dv, dS, dq, dk and dg, then q, k, v, g and dy. */
static void begin_results(region *r) {
    const sn_dim carry[] = {COLUMNS, COLUMNS};
    for (int i = 0; i < 5; i++) r->arg[i] = sn_arg(r->m, i, r->t, 2, i == 1 ? carry : shape);
    for (int i = 0; i < 3; i++) r->x[i] = r->arg[2 + i];
}

static sn_node *recurrence_results(region *r, sn_node *y) {
    const sn_dim carry[] = {COLUMNS, COLUMNS},
                 states[] = {ROWS + SN_REC_BLOCK, COLUMNS * COLUMNS / SN_REC_BLOCK};
    sn_node *in[7], *arg[10], *out[] = {r->arg[0], r->arg[1], y};
    for (int i = 0; i < 7; i++)
        in[i] = input(r->m, &"a\0b\0c\0d\0e\0f\0g"[2 * i], SN_OP_input, r -> t, 2,
                      i == 0   ? states
                      : i == 6 ? carry
                               : shape);
    for (int i = 0; i < 5; i++) arg[i] = sn_arg(r->m, i, r->t, 2, shape);
    sn_region *rows = sn_region_new(r->m, 5, arg, 5, arg);
    memcpy(arg, r->arg, 5 * sizeof *arg);
    for (int i = 5; i < 10; i++) arg[i] = sn_arg(r->m, i, r->t, 2, shape);
    return sn_node_new(r->m, SN_OP_fused_recurrence, 7, in,
                       SN_ATTRS(SN_INT(gradient, 1), SN_REG(prologue, rows),
                                SN_REG(epilogue, sn_region_new(r->m, 10, arg, 3, out))));
}

/* A carry, an element of a sequence, and a tensor. */
static void begin_loop(region *r) {
    const sn_dim all[] = {ROWS, ROWS, COLUMNS};
    r->x[0] = add(r, r->t, 2, shape, 0);
    r->x[1] = r->x[2] = add(r, r->t, 3, all, 1);
}

static sn_node *loop(region *r, sn_node *y) {
    sn_node *out[] = {y, y};
    sn_region *body = sn_region_new(r->m, r->n_arg, r->arg, 2, out);
    sn_op op = r->p->kernel == SN_KERNEL_cumulate ? SN_OP_cumulate : SN_OP_fused_scan;
    return sn_node_new(r->m, op, r->n_arg, r->operand,
                       SN_ATTRS(SN_INT(carries, 1), SN_INT(sequences, 1), SN_REG(body, body)));
}

static void begin_groups(region *r) {
    const sn_dim groups[] = {COLUMNS, 4, 16};
    r->x[0] = add(r, r->t, 3, groups, 0);
    r->x[1] = r->x[2] = sn_b_unary(SN_OP_abs, r->x[0]);
}

static sn_node *packing(region *r, sn_node *y) {
    const int64_t contract[] = {1, 2}, row = 2;
    sn_node *out[] = {sn_b_cast(y, SN_I8), sn_b_reduce(SN_OP_reduce_max, r->x[1], 1, &row)};
    return sn_node_new(r->m, SN_OP_pack_b, 1, r->operand,
                       SN_ATTRS(SN_INT(dtype, SN_I8), SN_LIST(contract_b, 2, contract),
                                SN_REG(prologue, sn_region_new(r->m, 1, r->arg, 2, out))));
}

/* A score, four indices, two numbers and a table. */
static void begin_score(region *r) {
    const sn_dim table[] = {ROWS, 2 * COLUMNS};
    sn_node *fixed[5];
    for (int i = 0; i < 5; i++) fixed[i] = add(r, i ? SN_I32 : r->t, 0, NULL, 0);
    for (int i = 1; i < 3; i++) r->x[i] = add(r, r->t, 0, NULL, 0);
    r->x[0] = fixed[0];
    r->table = add(r, SN_F32, 2, table, 0);
    r->index[0] = fixed[3];
    r->index[1] = fixed[4];
}

static sn_node *attention(region *r, sn_node *y) {
    const sn_dim heads[] = {1, 2, ROWS, HALF}, matrix[] = {2, 2};
    const bool mixed = r->p->kernel == SN_KERNEL_flash_mixed;
    sn_node *in[7] = {NULL};
    int n = 0;
    for (; n < 3; n++) in[n] = input(r->m, &"q\0k\0v"[2 * n], SN_OP_input, r -> t, 4, heads);
    if (mixed) in[n++] = input(r->m, "m", SN_OP_input, r->t, 2, matrix);
    for (int i = 5; i < 8; i++) in[n++] = r->operand[i];
    sn_region *score = sn_region_new(r->m, r->n_arg, r->arg, 1, &y);
    sn_attr attr[] = {SN_FLT(scale, 0.5), SN_REG(score, score), SN_INT(mix, 1)};
    return sn_node_new(r->m, mixed ? SN_OP_flash_mixed : SN_OP_flash, n, in, 2 + mixed, attr);
}

static const struct place places[] = {
    {"rows", SN_KERNEL_map_reduce, SN_IN_BODY, begin_rows, row_kernel},
    {"columns", SN_KERNEL_column, SN_IN_BODY, begin_rows, column_kernel},
    {"prologue", SN_KERNEL_gemm, SN_IN_PROLOGUE, begin_rows, product_of_rows},
    {"epilogue", SN_KERNEL_gemm, SN_IN_EPILOGUE, begin_rows, product},
    {"before a recurrence", SN_KERNEL_recurrence, SN_IN_PROLOGUE, begin_rows, recurrence},
    {"after a recurrence", SN_KERNEL_recurrence, SN_IN_EPILOGUE, begin_results, recurrence_results},
    {"loop", SN_KERNEL_fused_scan, SN_IN_BODY, begin_loop, loop},
    {"running result", SN_KERNEL_cumulate, SN_IN_BODY, begin_loop, loop},
    {"packing", SN_KERNEL_pack, SN_IN_PROLOGUE, begin_groups, packing},
    {"scores", SN_KERNEL_flash, SN_IN_SCORE, begin_score, attention},
    {"scores of mixed heads", SN_KERNEL_flash_mixed, SN_IN_SCORE, begin_score, attention}};
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

/* The kernel of sample `as`; *group: what passes know of it. NULL: its type does not fit. */
static sn_node *sample(region *r, const struct place *p, sn_op as, sn_dtype t, sn_dtype of) {
    *r = (region){.m = sn_module_new("holds"), .p = p, .op = as, .t = t, .of = of};
    p->begin(r);
    sn_node *y = samples[as](r);
    bool apart = y && y->rank &&
                 (as == SN_OP_gather || (is_in(r, SN_KERNEL_gemm, SN_IN_EPILOGUE) &&
                                         (y->rank != 2 || y->shape[1] != COLUMNS)));
    if (y && !apart) y = sn_b_binary(SN_OP_add, r->x[0], sn_b_cast(y, t));
    return y ? p->make(r, y) : NULL;
}

/* Emits kernel n with `op`, which stands where sample `as` is. */
static bool emits(region *r, sn_node *n, sn_op op, sn_error *err) {
    sn_entry *e = sn_entry_add(r->m, "forward");
    if (n) sn_entry_output(r->m, e, "y", n->n_result > 1 ? sn_b_result(n, n->n_result - 1) : n);
    sn_entry_code code;
    sn_target target;
    em emitter;
    bool ok = n && !sn_module_error(r->m)->code && sn_entry_code_make(r->m, e, NULL, &code) &&
              sn_target_init(&target, "x86-64-v3", err);
    if (!ok) fail_msg("%s: %s: %s", r->p->name, sn_ops[r->op].name, sn_module_error(r->m)->message);
    const sn_kernel *k = NULL;
    for (int i = 0; i < code.plan->n_call; i++)
        if (code.kernel[i].traits == &sn_kernels[r->p->kernel]) k = &code.kernel[i];
    if (!k) fail_msg("%s: %s: it is in another kernel", r->p->name, sn_ops[r->op].name);
    if (op != r->op) disguise(k->step->node, r->op, op);
    ok = em_init(&emitter, &target, k->name, k->compute, err);
    if (ok) k->family->emit(&emitter, k);
    ok = ok && em_finish(&emitter, err);
    em_free(&emitter);
    return ok;
}

static void allowed(void **state) {
    (void)state;
    for (int i = 0, count = 0; i < N_PLACES; i++)
        for (int op = 0; op < SN_OP_COUNT; op++) {
            const struct place *p = &places[i];
            sn_error err = {0};
            region r;
            if (!sn_kernel_knows(p->kernel, p->at, (sn_op)op)) continue;
            if (!samples[op]) fail_msg("no sample of %s", sn_ops[op].name);
            if (sn_ops[op].kind == SN_ELEM && !effort_takes((size_t)count++, 7)) continue;
            sn_node *n = sample(&r, p, (sn_op)op, SN_F32, SN_F32);
            if (!emits(&r, n, (sn_op)op, &err))
                fail_msg("%s: %s does not compile: %s", p->name, sn_ops[op].name, err.message);
            sn_module_free(r.m);
        }
}

static void refused(void **state) {
    (void)state;
    for (int i = 0, count = 0; i < N_PLACES; i++)
        for (int op = 0; op < SN_OP_COUNT; op++) {
            const struct place *p = &places[i];
            sn_error err = {0};
            region r;
            if (p->kernel == SN_KERNEL_fused_scan) continue; /* its emitter asks the rules itself */
            if (sn_kernel_knows(p->kernel, p->at, (sn_op)op) || !effort_takes((size_t)count++, 11))
                continue;
            sn_node *n = sample(&r, p, SN_OP_neg, SN_F32, SN_F32);
            if (emits(&r, n, (sn_op)op, &err))
                fail_msg("%s: %s compiles, and has no rule", p->name, sn_ops[op].name);
            sn_module_free(r.m);
        }
}

/* Whether the rules allow all of the region at this place. */
static bool holds(const region *r, const sn_node *n) {
    static const sn_attr_key keys[] = {[SN_IN_BODY] = SN_A_body,
                                       [SN_IN_PROLOGUE] = SN_A_prologue,
                                       [SN_IN_EPILOGUE] = SN_A_epilogue,
                                       [SN_IN_SCORE] = SN_A_score};
    const sn_dim square[] = {COLUMNS, COLUMNS};
    sn_node *w = input(r->m, "dense", SN_OP_param, r->t, 2, square),
            *product = SN_NODE(
                r->m, dot, SN_ATTRS(SN_LIST(contract_a, 1, &last), SN_LIST(contract_b, 1, &last)),
                input(r->m, "left", SN_OP_input, r->t, 2, shape), w);
    const sn_node *x = r->x[0];
    sn_group k = {.kernel = r->p->kernel, .rank = x->rank, .type = r->t, .member = &product};
    if (x->rank) memcpy(k.domain, x->shape, sizeof *x->shape * (size_t)x->rank);
    k.fused = k.packed = true;
    sn_order order = sn_region_topo(r->m, sn_attr_region(n, keys[r->p->at]));
    for (int i = 0; i < order.n; i++)
        if (sn_kernel_refuses(&k, r->p->at, order.node[i])) return false;
    return true;
}

/* What is allowed in one type compiles in it. */
static void types(void **state) {
    static const sn_dtype kernel[] = {SN_F32, SN_F64},
                          of[] = {SN_F64, SN_I32, SN_BF16, SN_I64, SN_F32, SN_I8, SN_BOOL};
    (void)state;
    for (int i = 0, count = 0; i < N_PLACES; i++)
        for (int op = 0; op < SN_OP_COUNT; op++)
            for (int c = 0; c < 14; c++) {
                sn_error err = {0};
                region r;
                if (sn_ops[op].kind != SN_ELEM || !effort_takes((size_t)count++, 61)) continue;
                sn_node *n = sample(&r, &places[i], (sn_op)op, kernel[c % 2], of[c / 2]);
                if (n && !sn_module_error(r.m)->code && holds(&r, n) &&
                    !emits(&r, n, (sn_op)op, &err))
                    fail_msg("%s: %s of %s does not compile: %s", places[i].name, sn_ops[op].name,
                             sn_dtype_name(of[c / 2]), err.message);
                sn_module_free(r.m);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(allowed), cmocka_unit_test(refused),
                                       cmocka_unit_test(types)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
