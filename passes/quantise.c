/* quantise.c: weights of linear maps in fewer bits, by the option `weights`; and by the option
 * `compute` linear maps as products of integers. Else activations and sums stay f32.
 *
 *   bf16: W becomes bf16(W).
 *   int8: W[i,:] becomes s[i] q[i,:], s = max |W[i,:]| / 127, q = round(W / s), and s multiplies the
 *         product.
 *   int4: 32 of a row share a factor s, bf16, the value of largest magnitude over -8; W becomes s q
 *         with q = round(W / s) from -8 to 7. Where rows are not multiples of 32: int8.
 *   stored: as the weights file has it: f16, bf16, or integers with factors and minima in groups
 *         of a row (GGUF's blocks and MXFP4; integers that fit 4 bits in 4, others in 8).
 *   Matrices that the list `keep` names get more bits (keep.c).
 *   compute int8: with weights as int8, the map of x is p scale s, where x is about scale r, r of i8
 *         (int8_rows.h), and p = r q^T is a product of integers with i32 sums, which are exact. With
 *         factors in groups W stays as it is, and the map is scale (r W^T): the sums of a group are
 *         exact.
 *   Tables in which `embedding` looks rows up are stored in the same way: rows of q and of s are
 *   looked up. share.c stores a table that is also the weight of a linear map once.
 *
 * Requires composites (before expand). Breaks values by the rounding, on purpose: what is left is
 * ordinary operations and the composites `dequantise` and `quantise_rows`, so the evaluator computes
 * exactly what the kernels do. Only weights that never change (parameters and what is made of them).
 * The narrow type is stored (fuse.c packs it); dequantise and the widening casts vanish into the
 * product. Terminates: one walk. */
#include "passes/graph_util.h"
#include "passes/file_blocks.h"
#include "passes/int8_rows.h"
#include "passes/keep.h"

#include <string.h>

enum {
    MIN_WEIGHT = 1024, /* minimum number of elements for which it pays */
    GROUP = 32         /* int4: numbers that share a scale */
};

/* x as it will be stored, and widened again. */
static sn_node *through(sn_node *x, sn_dtype narrow) {
    return sn_b_cast(sn_b_cast(x, narrow), SN_F32);
}

/* The linear map n without its bias, with w as its weight. */
static sn_node *with_weight(const sn_node *n, sn_node *w) {
    return sn_node_new(n->m, SN_OP_linear, 2, (sn_node *[]){n->in[0], w}, n->n_attr, n->attr);
}

/* One number per column of n's result, [out], over the axes that n makes of them. */
static sn_node *by_column(const sn_node *n, sn_node *v) {
    const sn_attr *size = sn_attr_get(n, SN_A_size);
    return size ? sn_b_reshape(v, size->n, size->v) : v;
}

static sn_node *with_bf16(const sn_node *n) {
    return with_weight(n, through(n->in[1], SN_BF16));
}

/* The integers of a matrix, i8, and what they are multiplied with. */
typedef struct integers {
    sn_node *q, *scale;
} integers;

/* q [N, K], scale [N, 1] */
static integers to_int8(sn_node *w) {
    int64_t row = 1;
    sn_node *max_abs = sn_b_reduce(SN_OP_reduce_max, sn_b_unary(SN_OP_abs, w), 1, &row);
    sn_node *scale = sn_b_scalar(SN_OP_mul, sn_b_scalar(SN_OP_max, max_abs, 1e-30), 1 / 127.0);
    sn_node *q = sn_b_unary(SN_OP_round, sn_b_binary(SN_OP_div, w, scale));
    return (integers){sn_b_cast(q, SN_I8), scale};
}

/* x with axes of size 1 behind it: [.., 1] for a result of `rank`. */
static sn_node *one_a_row(sn_node *x, int rank) {
    while (x->rank < rank) x = sn_b_column(x);
    return x;
}

/* The linear map n of integers: of its operand's rows, and of weights w. */
static sn_node *int8_product(const sn_node *n, integers w) {
    sn_int8_rows x = sn_int8_rows_of(n->in[0]);
    sn_node *in[] = {sn_b_cast(x.q, SN_I32), sn_b_cast(w.q, SN_I32)};
    sn_node *p = sn_node_new(n->m, SN_OP_linear, 2, in, n->n_attr, n->attr);
    p = sn_b_binary(SN_OP_mul, sn_b_cast(p, SN_F32), one_a_row(x.scale, n->rank));
    return sn_b_binary(SN_OP_mul, p, by_column(n, sn_b_reshape(w.scale, 1, n->in[1]->shape)));
}

/* The linear map n of weights w, integers with factors in groups, and of its operand's rows as
 * integers. */
static sn_node *int8_rows_product(const sn_node *n, sn_node *w) {
    sn_int8_rows x = sn_int8_rows_of(n->in[0]);
    sn_node *in[] = {sn_b_cast(x.q, SN_F32), w};
    sn_node *p = sn_node_new(n->m, SN_OP_linear, 2, in, n->n_attr, n->attr);
    return sn_b_binary(SN_OP_mul, p, one_a_row(x.scale, n->rank));
}

static bool has_groups(const sn_node *w) {
    int64_t row;
    return sn_dim_is_const(w->m, w->shape[1], &row) && row % GROUP == 0;
}

/* The same in groups: q [N, K], from -8 to 7, scale [N, K / 32], bf16. */
static integers to_int4(sn_node *w) {
    int64_t last = 2;
    sn_node *g = sn_b_reshape(w, 3, (const sn_dim[]){w->shape[0], w->shape[1] / GROUP, GROUP});
    sn_node *high = sn_b_reduce(SN_OP_reduce_max, g, 1, &last);
    sn_node *low = sn_b_reduce(SN_OP_reduce_min, g, 1, &last);
    sn_node *down = sn_b_binary(SN_OP_lt, high, sn_b_unary(SN_OP_neg, low));
    sn_node *extreme = sn_b_select(down, low, high);
    sn_node *none = sn_b_scalar(SN_OP_eq, extreme, 0); /* all zeros: any scale will do */
    extreme = sn_b_select(none, sn_b_scalar(SN_OP_add, extreme, 1), extreme);
    sn_node *scale = sn_b_cast(sn_b_scalar(SN_OP_mul, extreme, -0.125), SN_BF16);
    sn_node *q = sn_b_unary(SN_OP_round, sn_b_binary(SN_OP_div, g, sn_b_cast(scale, SN_F32)));
    q = sn_b_scalar(SN_OP_max, sn_b_scalar(SN_OP_min, q, 7), -8);
    return (integers){sn_b_reshape(sn_b_cast(q, SN_I8), 2, w->shape),
                      sn_b_reshape(scale, 2, (const sn_dim[]){g->shape[0], g->shape[1]})};
}

/* Their values. */
static sn_node *of_int4(integers x) {
    return SN_NODE(x.q->m, dequantise, SN_ATTRS(SN_INT(group, GROUP), SN_INT(bits, 4)), x.q,
                   x.scale);
}

static sn_node *with_int8(const sn_node *n) {
    integers x = to_int8(n->in[1]);
    return sn_b_binary(SN_OP_mul, with_weight(n, sn_b_cast(x.q, SN_F32)),
                       by_column(n, sn_b_reshape(x.scale, 1, n->in[1]->shape)));
}

static sn_node *with_int4(const sn_node *n) {
    sn_node *w = n->in[1];
    return has_groups(w) ? with_weight(n, of_int4(to_int4(w))) : with_int8(n);
}

/* ---- tables ---- */

/* Rows of a table at the places of the look-up n. bits: 4: of its integers; 0: others. */
static sn_node *rows_of(const sn_node *n, sn_node *table, int bits) {
    const sn_attr attr[2] = {SN_INT(axis, 0), SN_INT(bits, bits)};
    sn_node *in[2] = {table, n->in[1]};
    return sn_node_new(n->m, SN_OP_gather, 2, in, bits ? 2 : 1, attr);
}

/* The same of a table that is stored as `narrow`; f32. */
static sn_node *narrow_rows(const sn_node *n, sn_dtype narrow) {
    return sn_b_cast(rows_of(n, sn_b_cast(n->in[0], narrow), 0), SN_F32);
}

static sn_node *bf16_rows(const sn_node *n) {
    return narrow_rows(n, SN_BF16);
}

static sn_node *int8_rows(const sn_node *n) {
    integers x = to_int8(n->in[0]);
    return SN_NODE(n->m, dequantise, SN_NO_ATTRS, rows_of(n, x.q, 0), rows_of(n, x.scale, 0));
}

static sn_node *int4_rows(const sn_node *n) {
    sn_node *table = n->in[0];
    if (!has_groups(table) || n->rank == SN_MAX_RANK) return int8_rows(n);
    integers x = to_int4(table);
    return of_int4((integers){rows_of(n, x.q, 4), rows_of(n, x.scale, 0)});
}

/* ---- as stored ---- */

/* The rows of a matrix in blocks: all of them, or those at `ids`. */
typedef struct rows {
    const sn_passes *p;
    sn_node *w, *ids; /* ids NULL: all */
    const sn_block_format *format;
} rows;

static sn_node *take_rows(const rows *r, sn_weight_part part) {
    sn_node *x = sn_block_param(r->p, r->w, part);
    if (!x || !r->ids) return x;
    return sn_node_new(x->m, SN_OP_embedding, 2, (sn_node *[]){x, r->ids}, SN_NO_ATTRS);
}

/* The scales or minima of all groups, [.., groups]; NULL: there are none. */
static sn_node *stored_factors(const rows *r, sn_weight_part part) {
    sn_node *x = take_rows(r, part);
    sn_node *of = take_rows(r, part - SN_PART_SCALES + SN_PART_OF_SCALES);
    if (!x || !of) return x;
    const int groups = r->format->elements / r->format->group;
    return SN_NODE(x->m, dequantise, SN_ATTRS(SN_INT(group, groups)), x, of);
}

/* The values of these rows, [.., K]; NULL: the parts cannot be told apart. */
static sn_node *stored_rows(const rows *r) {
    const sn_block_format *f = r->format;
    const bool words = f->nibble < SN_NIBBLES;
    sn_node *x[3] = {take_rows(r, SN_PART_INTEGERS)};
    if (!x[0] || x[0]->rank + 1 > SN_MAX_RANK) return NULL;
    x[1] = stored_factors(r, SN_PART_SCALES);
    x[2] = stored_factors(r, SN_PART_MINIMA);
    const sn_attr attr[3] = {SN_INT(group, f->group), SN_INT(bits, 4), SN_INT(nibble, f->nibble)};
    return sn_node_new(r->w->m, SN_OP_dequantise, x[2] ? 3 : 2, x, 1 + words + (words && f->nibble),
                       attr);
}

static sn_node *as_stored(const sn_passes *p, const sn_node *n) {
    sn_node *w = n->in[1];
    sn_storage form = sn_file_storage(p, w);
    if (!form.block) return form.dtype == SN_F32 ? NULL : with_weight(n, through(w, form.dtype));
    sn_node *values = stored_rows(&(rows){p, w, NULL, form.block});
    return values ? with_weight(n, values) : NULL;
}

static const struct {
    const char *name;
    sn_node *(*make)(const sn_node *n); /* a linear map without its bias */
    sn_node *(*rows)(const sn_node *n); /* a look-up */
} kinds[] = {
    {"bf16", with_bf16, bf16_rows}, {"int8", with_int8, int8_rows}, {"int4", with_int4, int4_rows}};

bool sn_quantise_knows(const char *name) {
    if (!strcmp(name, "stored")) return true;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].name, name)) return true;
    return false;
}

/* Whether it pays to store w in fewer bits. */
static bool is_large_weight(const sn_node *w) {
    int64_t elements;
    return w->dtype == SN_F32 && sn_from_params_only(w) &&
           sn_dim_is_const(w->m, sn_dim_product(w->m, w->rank, w->shape), &elements) &&
           elements >= MIN_WEIGHT;
}

/* The storage of w, a matrix or a table. Products of integers need what a file has as floats as int8;
 * so do tables, because one that is also the matrix of a product is stored once. */
static const char *weights_of(const sn_passes *p, const sn_node *w) {
    const char *weights = sn_keep_weights(p, w);
    bool floats = !strcmp(weights, "stored") && !sn_file_storage(p, w).block;
    return floats && p->o.int8_compute && !sn_keep_products(p, w) ? "int8" : weights;
}

static sn_node *stored_look_up(const sn_passes *p, sn_node *n) {
    sn_storage form = sn_file_storage(p, n->in[0]);
    if (!form.block) return form.dtype == SN_F32 ? n : narrow_rows(n, form.dtype);
    sn_node *values = stored_rows(&(rows){p, n->in[0], n->in[1], form.block});
    return values ? values : n;
}

/* Whether the weights of n will be integers with factors in groups of a row. */
static bool is_grouped(const sn_passes *p, const sn_node *n, const char *weights) {
    if (!strcmp(weights, "stored")) return sn_file_storage(p, n->in[1]).block;
    return !strcmp(weights, "int4") && has_groups(n->in[1]);
}

/* Whether n is a product of integers, with one scale a column: its weights are stored as int8, and
 * sums are exact. */
static bool computes_int8(sn_passes *p, const sn_node *n, const char *weights) {
    int64_t k;
    if (!p->o.int8_compute || sn_keep_products(p, n->in[1]) || is_grouped(p, n, weights))
        return false;
    if (!strcmp(weights, "f32") || !strcmp(weights, "bf16")) {
        sn_remark_add(p, "quantise", n, true, "compute int8: weights of %s are widened to f32",
                      weights);
        return false;
    }
    if (sn_dim_is_const(n->m, n->in[1]->shape[1], &k) && k <= SN_INT8_MAX_SUM && n->rank >= 1)
        return true;
    sn_remark_add(p, "quantise", n, true,
                  "compute int8: sums of more than %d products might not fit 32 bits",
                  SN_INT8_MAX_SUM);
    return false;
}

static sn_node *look_up(const sn_passes *p, sn_node *n) {
    const char *weights = weights_of(p, n->in[0]);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].name, weights)) return kinds[i].rows(n);
    return !strcmp(weights, "stored") ? stored_look_up(p, n) : n;
}

/* The map n without its bias, with its weight in fewer bits, its operand as it is; NULL: it stays. */
static sn_node *narrow_weight(const sn_passes *p, const sn_node *n, const char *weights) {
    if (!strcmp(weights, "stored")) return as_stored(p, n);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].name, weights)) return kinds[i].make(n);
    return NULL;
}

/* The same, computed as the options say. */
static sn_node *narrow_map(sn_passes *p, const sn_node *n) {
    const char *weights = weights_of(p, n->in[1]);
    if (computes_int8(p, n, weights)) return int8_product(n, to_int8(n->in[1]));
    sn_node *y = narrow_weight(p, n, weights);
    bool rows = p->o.int8_compute && !sn_keep_products(p, n->in[1]) && is_grouped(p, n, weights);
    return y && rows ? int8_rows_product(n, y->in[1]) : y;
}

static sn_node *rule(void *ctx, sn_node *n) {
    sn_passes *p = ctx;
    if (n->op == SN_OP_embedding && is_large_weight(n->in[0])) return look_up(p, n);
    if (n->op != SN_OP_linear || n->dtype != SN_F32 || !is_large_weight(n->in[1])) return n;
    sn_node *y = narrow_map(p, n);
    if (!y) return n;
    return n->n_in > 2 ? sn_b_binary(SN_OP_add, y, by_column(n, n->in[2])) : y;
}

int sn_pass_quantise(sn_passes *p) {
    if (!p->o.weights || !p->o.constant_params) return 0;
    return sn_rewrite_module(p->m, rule, p);
}
