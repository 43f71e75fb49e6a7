/* quantise.c: weights of linear maps in fewer bits, by the option `weights`; and by the option
 * `compute` linear maps as products of integers. Else activations and sums stay f32.
 *
 *   bf16: W becomes bf16(W).
 *   int8: W[i,:] becomes s[i] q[i,:], s = max |W[i,:]| / 127, q = round(W / s), and s multiplies the
 *         product.
 *   int4: 32 of a row share a factor s, bf16, the value of largest magnitude over -8; W becomes s q
 *         with q = round(W / s) from -8 to 7. Where rows are not multiples of 32: int8.
 *   stored: as the weights file has it: f16, bf16, or integers with factors and minima in groups
 *         of a row (GGUF's blocks; integers of 4 bits in 4, others in 8).
 *   Matrices that the list `keep` names get more bits (keep.c).
 *   compute int8: with weights as int8, the map of x is p scale s, where x is about scale r, r of i8
 *         (int8_rows.h), and p = r q^T is a product of integers with i32 sums, which are exact. With
 *         factors in groups W stays as it is, and the map is scale (r W^T): the sums of a group are
 *         exact.
 *   Tables in which `embedding` looks rows up are stored in the same way: rows of q and of s are
 *   looked up. share.c stores a table that is also the weight of a linear map once.
 *
 * Requires composites (before expand). Breaks values by the rounding, on purpose: what is left is
 * spelled in ordinary operations, so the evaluator computes exactly what the kernels do. Only
 * weights that never change (parameters and what is made of them). The narrow type is stored
 * (fuse.c packs it); the widening casts vanish into the product. Terminates: one walk. */
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

/* The integers of a matrix, as floats, and what they are multiplied with. */
typedef struct integers {
    sn_node *q, *scale;
} integers;

/* q [N, K], scale [N, 1] */
static integers to_int8(sn_node *w) {
    int64_t row = 1;
    sn_node *max_abs = sn_b_reduce(SN_OP_reduce_max, sn_b_unary(SN_OP_abs, w), 1, &row);
    sn_node *scale = sn_b_scalar(SN_OP_mul, sn_b_scalar(SN_OP_max, max_abs, 1e-30), 1 / 127.0);
    return (integers){sn_b_unary(SN_OP_round, sn_b_binary(SN_OP_div, w, scale)), scale};
}

static sn_node *wide_int8(sn_node *q) {
    return sn_b_cast(sn_b_cast(q, SN_I8), SN_I32);
}

/* x with axes of size 1 behind it: [.., 1] for a result of `rank`. */
static sn_node *one_a_row(sn_node *x, int rank) {
    while (x->rank < rank) x = sn_b_column(x);
    return x;
}

/* The linear map n of integers: of its operand's rows, and of weights w. */
static sn_node *int8_product(const sn_node *n, integers w) {
    sn_int8_rows x = sn_int8_rows_of(n->in[0]);
    sn_node *in[] = {wide_int8(x.q), wide_int8(w.q)};
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

/* q [N, K / 32, 32], scale [N, K / 32, 1] */
static integers to_int4(sn_node *w) {
    int64_t last = 2;
    sn_node *g = sn_b_reshape(w, 3, (const sn_dim[]){w->shape[0], w->shape[1] / GROUP, GROUP});
    sn_node *high = sn_b_reduce(SN_OP_reduce_max, g, 1, &last);
    sn_node *low = sn_b_reduce(SN_OP_reduce_min, g, 1, &last);
    sn_node *down = sn_b_binary(SN_OP_lt, high, sn_b_unary(SN_OP_neg, low));
    sn_node *extreme = sn_b_select(down, low, high);
    sn_node *none = sn_b_scalar(SN_OP_eq, extreme, 0); /* all zeros: any scale will do */
    extreme = sn_b_select(none, sn_b_scalar(SN_OP_add, extreme, 1), extreme);
    sn_node *scale = through(sn_b_scalar(SN_OP_mul, extreme, -0.125), SN_BF16);
    sn_node *q = sn_b_unary(SN_OP_round, sn_b_binary(SN_OP_div, g, scale));
    return (integers){sn_b_scalar(SN_OP_max, sn_b_scalar(SN_OP_min, q, 7), -8), scale};
}

static sn_node *with_int8(const sn_node *n) {
    integers x = to_int8(n->in[1]);
    return sn_b_binary(SN_OP_mul, with_weight(n, through(x.q, SN_I8)),
                       by_column(n, sn_b_reshape(x.scale, 1, n->in[1]->shape)));
}

static sn_node *with_int4(const sn_node *n) {
    sn_node *w = n->in[1];
    if (!has_groups(w)) return with_int8(n);
    integers x = to_int4(w);
    sn_node *rounded = sn_b_binary(SN_OP_mul, through(x.q, SN_I8), x.scale);
    return with_weight(n, sn_b_reshape(rounded, 2, w->shape));
}

/* ---- tables ---- */

/* x [.., n size] as [.., n, size]. */
static sn_node *split_last(sn_node *x, int64_t size) {
    sn_dim shape[SN_MAX_RANK];
    for (int i = 0; i < x->rank; i++) shape[i] = x->shape[i];
    shape[x->rank - 1] /= size;
    shape[x->rank] = size;
    return sn_b_reshape(x, x->rank + 1, shape);
}

/* x [.., n, size] as [.., n size]. */
static sn_node *join_last(sn_node *x) {
    sn_dim shape[SN_MAX_RANK];
    for (int i = 0; i < x->rank - 1; i++) shape[i] = x->shape[i];
    shape[x->rank - 2] *= x->shape[x->rank - 1];
    return sn_b_reshape(x, x->rank - 1, shape);
}

/* Rows of `table`, stored as `narrow`, at the places of the look-up n; f32. */
static sn_node *rows_of(const sn_node *n, sn_node *table, sn_dtype narrow) {
    sn_node *in[2] = {sn_b_cast(table, narrow), n->in[1]};
    return sn_b_cast(sn_node_new(n->m, SN_OP_embedding, 2, in, n->n_attr, n->attr), SN_F32);
}

static sn_node *bf16_rows(const sn_node *n) {
    return rows_of(n, n->in[0], SN_BF16);
}

static sn_node *int8_rows(const sn_node *n) {
    integers x = to_int8(n->in[0]);
    return sn_b_binary(SN_OP_mul, rows_of(n, x.q, SN_I8), rows_of(n, x.scale, SN_F32));
}

static sn_node *int4_rows(const sn_node *n) {
    sn_node *table = n->in[0];
    if (!has_groups(table) || n->rank == SN_MAX_RANK) return int8_rows(n);
    integers x = to_int4(table);
    const sn_dim per_row[] = {table->shape[0], table->shape[1] / GROUP};
    sn_node *q = rows_of(n, sn_b_reshape(sn_b_cast(x.q, SN_I8), 2, table->shape), SN_I8);
    /* x.scale is widened bf16 */
    sn_node *scale = rows_of(n, sn_b_reshape(x.scale->in[0], 2, per_row), SN_BF16);
    return join_last(sn_b_binary(SN_OP_mul, split_last(q, GROUP), sn_b_column(scale)));
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

/* The scales or minima of all groups, [.., groups, 1]; NULL: there are none. */
static sn_node *stored_factors(const rows *r, sn_weight_part part) {
    sn_node *x = take_rows(r, part);
    sn_node *of = take_rows(r, part - SN_PART_SCALES + SN_PART_OF_SCALES);
    if (!x || !of) return x ? sn_b_cast(sn_b_column(x), SN_F32) : NULL;
    x = sn_b_cast(split_last(x, r->format->elements / r->format->group), SN_F32);
    return sn_b_column(join_last(sn_b_binary(SN_OP_mul, x, sn_b_cast(sn_b_column(of), SN_F32))));
}

/* The values of these rows, [.., K]; NULL: the parts cannot be told apart. */
static sn_node *stored_rows(const rows *r) {
    sn_node *q = take_rows(r, SN_PART_INTEGERS), *scale, *min;
    if (!q || q->rank + 1 > SN_MAX_RANK) return NULL;
    q = split_last(q, r->format->group);
    if (r->format->high - r->format->low < 16) /* a range that says: 4 bits */
        q = sn_b_scalar(SN_OP_max, sn_b_scalar(SN_OP_min, q, r->format->high), r->format->low);
    q = sn_b_cast(q, SN_F32);
    scale = stored_factors(r, SN_PART_SCALES);
    min = stored_factors(r, SN_PART_MINIMA);
    q = sn_b_binary(SN_OP_mul, q, scale);
    return join_last(min ? sn_b_binary(SN_OP_add, q, min) : q);
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
    if (!form.block) return form.dtype == SN_F32 ? n : rows_of(n, n->in[0], form.dtype);
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
