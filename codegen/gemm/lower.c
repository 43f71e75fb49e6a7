/* lower.c: lowers gemm and pack_b steps to specs of the GEMM generator. The callbacks emit the
 * fused regions: the prologue's on rows of A, the epilogue's on microtiles of C. */
#include "codegen/emit/elem.h"
#include "codegen/gemm/gemm.h"
#include "codegen/gemm/lower_pack.h"
#include "codegen/tile/tile.h"
#include "codegen/emit/family.h"
#include "passes/plan/product.h"
#include "passes/holds.h"

#include <string.h>

/* An operand [batch.., rows, columns]. */
static sn_gemm_operand operand_of(const sn_kernel *k, const sn_view *v, int buf) {
    sn_gemm_operand o = {.buf = buf, .dtype = v->dtype, .offset = EM_SIZE_CONST(0)};
    for (int i = 0; i < SN_GEMM_BATCH; i++) o.batch[i] = EM_SIZE_CONST(0);
    for (int i = 0; i < v->rank - 2; i++) o.batch[i] = sn_kernel_size(k, v->stride[i]);
    o.row = sn_kernel_size(k, v->stride[v->rank - 2]);
    o.col = sn_kernel_size(k, v->stride[v->rank - 1]);
    return o;
}

struct fused_region;
typedef em_val emitter(em *e, const struct fused_region *x, const sn_node *n, int half);

/* A fused prologue or epilogue, and the position at which it is evaluated. */
typedef struct fused_region {
    emitter *const *leaves; /* by op */
    const sn_kernel *k;
    const sn_region *region; /* NULL: none */
    sn_region_code code;     /* copies: of the columns from at->col, and from at->other_col on */
    int first;               /* index of the step's operand that is argument 1 of the region */
    int n_reductions;        /* along rows, of a prologue */
    const sn_gemm_at *at;
    const em_val
        *given; /* argument 0: the accumulators of both copies; in a prologue, elements of A */
    const em_val *state; /* prologue: the row reductions that are known */
} fused_region;

/* The context of the callbacks. */
typedef struct fused {
    fused_region epi, pro;
    int main;                    /* index of the result that the generator stores; -1: none */
    bool both;                   /* both columns of a pair are stored */
    em_val part[SN_MAX_RESULTS]; /* row reductions: the vectors of the panel so far */
} fused;

/* Number of batch axes of a step's operands. */
static int batch_axes(const sn_kernel *k) {
    return k->step->in[0].rank - 2;
}

/* The index on axis `axis` of the elements at linear position `pos` (a scalar or a vector) of axes
 * [first, end) of `shape`. */
static em_val axis_index(em *e, const sn_kernel *k, const sn_dim *shape, int first, int end,
                         int axis, em_val pos) {
    int lanes = em_lanes_of(pos);
    em_val inner = em_i64(e, 1);
    for (int a = axis + 1; a < end; a++) inner = em_mul(e, inner, sn_kernel_dim(e, k, shape[a]));
    em_val i = em_div(e, pos, em_splat(e, inner, lanes));
    return axis == first ? i : em_rem(e, i, em_splat(e, sn_kernel_dim(e, k, shape[axis]), lanes));
}

/* Index of a view's first column axis. */
static int first_column(const sn_kernel *k, const sn_view *v) {
    return batch_axes(k) + sn_product_row_axes(k->m, k->step, v);
}

/* Element offset of the first element of row at->row. */
static em_val row_offset(em *e, const sn_kernel *k, const sn_view *v, const sn_gemm_at *at) {
    int n_batch = batch_axes(k), end = first_column(k, v);
    em_val off = em_i64(e, 0);
    for (int i = 0; i < end; i++) {
        if (v->stride[i] == 0) continue;
        em_val index =
            i < n_batch ? at->batch[i] : axis_index(e, k, v->shape, n_batch, end, i, at->row);
        off = em_add(e, off, em_mul(e, index, sn_kernel_dim(e, k, v->stride[i])));
    }
    return off;
}

static em_val column_vector(em *e, const sn_gemm_at *at) {
    return em_add(e, em_splat(e, at->col, at->lanes), em_iota(e, e->i64, at->lanes));
}

/* Whether all lanes of a vector of columns have the same index on every axis but the last. */
static bool is_whole_vector(const sn_kernel *k, sn_dim last, int lanes) {
    int64_t size;
    return sn_dim_is_const(k->m, last, &size) && size % lanes == 0;
}

/* Elements of view v at position `at`: a vector along the columns, or a scalar if all lanes are the
 * same. */
static em_val load_tile(em *e, const sn_kernel *k, const sn_view *v, int buf,
                        const sn_gemm_at *at) {
    int first = first_column(k, v), last = v->rank - 1;
    bool whole = first == last || is_whole_vector(k, v->shape[last], at->lanes);
    em_val off = row_offset(e, k, v, at), col = whole ? at->col : column_vector(e, at);
    if (!whole) off = em_splat(e, off, at->lanes);
    for (int a = first; a <= last; a++) {
        if (v->stride[a] == 0) continue;
        em_val i = axis_index(e, k, v->shape, first, v->rank, a, col);
        em_val by = em_splat(e, sn_kernel_dim(e, k, v->stride[a]), em_lanes_of(i));
        off = em_add(e, off, em_mul(e, i, by));
    }
    em_val p = em_buf(e, buf), by = sn_kernel_dim(e, k, v->stride[last]), x;
    if (!whole)
        x = em_gather(e, v->dtype, p, off, at->mask);
    else if (v->stride[last])
        x = tile_load(e, v->dtype, em_gep(e, p, v->dtype, off), by, at->lanes, at->mask);
    else
        x = em_load(e, v->dtype, em_gep(e, p, v->dtype, off), 1);
    return sn_emit_loaded(e, v->dtype, x);
}

/* Whether the operand is read once, row by row, with contiguous columns. */
static bool is_streamed(const sn_kernel *k, const sn_view *v) {
    int col = first_column(k, v);
    return v->rank == col + 1 && v->stride[col] == 1 && v->stride[col - 1] != 0;
}

/* Cache lines of one row of the operand in a panel. */
static int lines_of(const sn_kernel *k, const sn_view *v) {
    int columns = sn_panel_columns(k->compute);
    if (sn_attr_get(k->step->node, SN_A_pair)) columns /= 2;
    return (columns * (int)sn_dtype_size(v->dtype) + 63) / 64;
}

static void prefetch_operands(void *ctx, em *e, const sn_gemm_at *at, em_val *line) {
    const fused_region *x = &((const fused *)ctx)->epi;
    const sn_step *s = x->k->step;
    for (int i = x->first, n = 0; i < s->n_in; i++) {
        const sn_view *v = &s->in[i];
        if (!is_streamed(x->k, v)) continue;
        em_val off = em_add(e, row_offset(e, x->k, v, at), at->col);
        em_val p = em_gep(e, em_buf(e, i), v->dtype, off);
        for (int l = 0; l < lines_of(x->k, v); l++) line[n++] = em_gep_bytes(e, p, l * 64);
    }
}

static void store_tile(em *e, const sn_kernel *k, int out, em_val v, const sn_gemm_at *at) {
    const sn_view *w = &k->step->out[out];
    em_val step = sn_kernel_dim(e, k, w->stride[w->rank - 1]);
    if (em_lanes_of(v) == 1) v = em_splat(e, v, at->lanes);
    em_val off = em_add(e, row_offset(e, k, w, at), em_mul(e, at->col, step));
    em_val to = em_gep(e, em_buf(e, k->step->n_in + out), w->dtype, off);
    tile_store(e, w->dtype, to, step, v, at->mask);
}

/* Indices along a column axis; a scalar if all lanes have the same. */
static em_val emit_index(em *e, const sn_kernel *k, const sn_node *iota, const sn_gemm_at *at) {
    const sn_node *y = k->step->node; /* of the result's shape, aligned at the last axis */
    int axis = y->rank - iota->rank + (int)sn_attr_int(iota, SN_A_axis, 0);
    sn_dim inner = sn_dim_product(k->m, y->rank - 1 - axis, y->shape + axis + 1);
    em_val col = is_whole_vector(k, inner, at->lanes) ? at->col : column_vector(e, at);
    return sn_emit_integer(e, (sn_dtype)iota->dtype,
                           axis_index(e, k, y->shape, -1, y->rank, axis, col));
}

/* Swaps lanes i and i ^ distance. */
static em_val swap_lanes(em *e, em_val v, int distance) {
    int lane[64], n = em_lanes_of(v);
    for (int i = 0; i < n; i++) lane[i] = i ^ distance;
    return n > 1 ? em_shuffle(e, v, v, lane, n) : v;
}

/* ---- evaluation of a region at a position ---- */

/* A reduction along a row of a prologue. */
static bool is_of_row(const sn_node *n) {
    return n->op == SN_OP_reduce_sum || n->op == SN_OP_reduce_max;
}

/* From here on values are those at position `at`. */
static void move_to(em *e, fused_region *x, const sn_gemm_at *at, const em_val *given,
                    const em_val *state) {
    x->at = at;
    x->given = given;
    x->state = state;
    x->code.e = e;
    sn_region_forget(&x->code, ~0u);
}

static em_val value_at(const fused_region *x, const sn_node *n, int half) {
    return sn_region_at(&x->code, sn_region_place(&x->code, n), half);
}

/* Position of half 0 or 1: of the columns from at->col, or at->other_col, on. */
static sn_gemm_at half_at(const sn_gemm_at *at, int half) {
    sn_gemm_at r = *at;
    if (half) r.col = at->other_col;
    return r;
}

static em_val emit_arg(em *e, const fused_region *x, const sn_node *n, int half) {
    int arg = (int)sn_attr_int(n, SN_A_index, 0), buf = x->first + arg - 1;
    if (arg == 0) return x->given[half];
    if (buf == x->k->step->n_in) return x->at->row_scale; /* the prologue's second result */
    sn_gemm_at at = half_at(x->at, half);
    return load_tile(e, x->k, &x->k->step->in[buf], buf, &at);
}

static em_val emit_iota(em *e, const fused_region *x, const sn_node *n, int half) {
    sn_gemm_at at = half_at(x->at, half);
    return emit_index(e, x->k, n, &at);
}

static em_val emit_dim(em *e, const fused_region *x, const sn_node *n, int half) {
    (void)half;
    return sn_kernel_leaf(e, x->k, n);
}

/* A reshape that splits an epilogue's row into panels. */
static em_val emit_view(em *e, const fused_region *x, const sn_node *n, int half) {
    (void)e;
    return value_at(x, n->in[0], half);
}

/* Selects a half of pairs. */
static em_val emit_slice(em *e, const fused_region *x, const sn_node *n, int half) {
    (void)e, (void)half;
    return value_at(x, n->in[0], sn_attr_get(n, SN_A_start)->v[n->rank - 1] != 0);
}

/* Swaps columns: lanes of a vector, or the vectors from at->col and at->other_col on. */
static em_val emit_gather(em *e, const fused_region *x, const sn_node *n, int half) {
    if (x->given[1]) return value_at(x, n->in[0], !half);
    return swap_lanes(e, value_at(x, n->in[0], half), (int)sn_swap_distance(n));
}

/* A prologue knows its row sums. An epilogue's reduction ends with the panel. */
static em_val emit_reduction(em *e, const fused_region *x, const sn_node *n, int half) {
    (void)e;
    if (!x->state) return value_at(x, n->in[0], half);
    int sum = 0;
    for (int j = 0; x->code.order.node[j] != n; j++) sum += is_of_row(x->code.order.node[j]);
    return x->state[sum];
}

/* Of the ops that have a rule in passes/holds.c, those that are not elementwise. */
static emitter *const in_prologue[SN_OP_COUNT] = {[SN_OP_arg] = emit_arg,
                                                  [SN_OP_reduce_sum] = emit_reduction,
                                                  [SN_OP_reduce_max] = emit_reduction};
static emitter *const in_epilogue[SN_OP_COUNT] = {
    [SN_OP_arg] = emit_arg,
    [SN_OP_dim_value] = emit_dim,
    [SN_OP_iota] = emit_iota,
    [SN_OP_reshape] = emit_view,
    [SN_OP_slice] = emit_slice,
    [SN_OP_gather] = emit_gather,
    [SN_OP_reduce_sum] = emit_reduction,
    [SN_OP_reduce_max] = emit_reduction,
    [SN_OP_reduce_min] = emit_reduction,
};

static em_val emit_leaf(const sn_region_code *c, int i, int half) {
    const sn_node *n = c->order.node[i];
    const fused_region *x = c->ctx;
    return x->leaves[n->op] ? x->leaves[n->op](c->e, x, n, half) : NULL;
}

static void begin_region(em *e, fused_region *x) {
    if (!x->region) return;
    x->code = (sn_region_code){.copies = 2, .leaf = emit_leaf, .ctx = x};
    sn_region_begin(&x->code, e, x->region);
}

static em_val spread(em *e, em_val v, const sn_gemm_at *at) {
    return em_lanes_of(v) == 1 && at->lanes > 1 ? em_splat(e, v, at->lanes) : v;
}

static em_val add_part(em *e, const fused *f, int o, em_val v, const sn_gemm_at *at) {
    if (em_lanes_of(v) == 1) v = em_splat(e, v, at->lanes);
    return f->part[o] ? sn_reduce(e, f->epi.region->out[o], false, f->part[o], v) : v;
}

static em_val emit_epilogue(void *ctx, em *e, const em_val *acc, const sn_gemm_at *at) {
    fused *f = ctx;
    fused_region *x = &f->epi;
    move_to(e, x, at, acc, NULL);
    sn_gemm_at other = half_at(at, f->both);
    /* load everything before the first store: operands may alias results */
    em_val out[SN_MAX_RESULTS], second[SN_MAX_RESULTS];
    for (int o = 0; o < x->region->n_out; o++) {
        out[o] = value_at(x, x->region->out[o], 0);
        if (f->both) second[o] = value_at(x, x->region->out[o], 1);
    }
    for (int o = 0; o < x->region->n_out && f->both; o++) store_tile(e, x->k, o, second[o], &other);
    for (int o = 0; o < x->region->n_out; o++)
        if (sn_product_sums(x->k->step, o))
            f->part[o] = add_part(e, f, o, out[o], at);
        else if (o != f->main)
            store_tile(e, x->k, o, out[o], at);
    return f->main < 0 ? acc[0] : spread(e, out[f->main], at);
}

static void emit_panel_sums(void *ctx, em *e, em_val *sum) {
    fused *f = ctx;
    for (int o = 0, n_sum = 0; o < f->epi.k->step->n_out; o++) {
        if (!f->part[o]) continue;
        sum[n_sum++] = sn_reduce_lanes(e, f->epi.region->out[o], false, f->part[o]);
        f->part[o] = NULL;
    }
}

/* Address of result o, a row reduction, for this row and panel. */
static em_val sums_at(em *e, const sn_kernel *k, int o, const sn_gemm_at *at) {
    const sn_view *w = &k->step->out[o];
    em_val panel = em_div(e, at->col, sn_panel_columns(k->compute));
    panel = em_mul(e, panel, sn_kernel_dim(e, k, w->stride[w->rank - 1]));
    return em_gep(e, em_buf(e, k->step->n_in + o), w->dtype,
                  em_add(e, row_offset(e, k, w, at), panel));
}

static void prefetch_panel_sums(void *ctx, em *e, const sn_gemm_at *at, em_val *line) {
    const sn_kernel *k = ((const fused *)ctx)->epi.k;
    for (int o = 0, n = 0; o < k->step->n_out; o++)
        if (sn_product_sums(k->step, o)) line[n++] = sums_at(e, k, o, at);
}

/* Rows of a panel are usually contiguous (row_sums.c). */
static void store_panel_sums(void *ctx, em *e, const em_val *sum, const sn_gemm_at *at) {
    const sn_kernel *k = ((const fused *)ctx)->epi.k;
    for (int o = 0, n = 0; o < k->step->n_out; o++) {
        if (!sn_product_sums(k->step, o)) continue;
        const sn_view *w = &k->step->out[o];
        tile_store(e, w->dtype, sums_at(e, k, o, at), sn_kernel_dim(e, k, w->stride[w->rank - 2]),
                   sum[n++], at->mask);
    }
}

/* ---- prologue: elementwise on a row of A, with sums over the row as its state ---- */

static em_val row_vector(em *e, fused_region *pro, const sn_node *n, em_val x, const sn_gemm_at *at,
                         const em_val *state) {
    move_to(e, pro, at, &x, state);
    return spread(e, value_at(pro, n, 0), at);
}

/* What a reduction takes at a position; in lanes outside the row what does not change it. */
static em_val summand(em *e, fused_region *pro, const sn_node *sum, const sn_gemm_at *at,
                      const em_val *state) {
    const sn_kernel *k = pro->k;
    em_val x = load_tile(e, k, &k->step->in[0], 0, at);
    em_val v = row_vector(e, pro, sum->in[0], x, at, state);
    return at->mask ? em_select(e, at->mask, v, em_splat(e, sn_reduce_neutral(e, sum), at->lanes))
                    : v;
}

/* The row is in L1 after the first reduction; four accumulators hide the latency. */
static em_val emit_sum(em *e, fused_region *pro, const sn_node *sum, sn_gemm_at at,
                       const em_val *state) {
    enum { CHAINS = 4 };
    const sn_view *a = &pro->k->step->in[0];
    em_val n = sn_kernel_dim(e, pro->k, a->shape[a->rank - 1]), all[CHAINS];
    int64_t block = (int64_t)CHAINS * e->lanes;
    at.lanes = e->lanes;
    at.mask = NULL;
    em_val whole = em_round_down(e, n, block);
    em_loop l = em_for(e, 0, whole, block);
    for (int c = 0; c < CHAINS; c++) all[c] = em_splat(e, sn_reduce_neutral(e, sum), e->lanes);
    em_carries(e, &l, all, CHAINS);
    for (int c = 0; c < CHAINS; c++) {
        at.col = em_add(e, l.i, c * e->lanes);
        all[c] = sn_reduce(e, sum, false, all[c], summand(e, pro, sum, &at, state));
    }
    em_end(e, &l);
    for (int c = 1; c < CHAINS; c++) all[0] = sn_reduce(e, sum, false, all[0], all[c]);
    em_loop rest = em_for(e, whole, n, e->lanes);
    em_carries(e, &rest, all, 1);
    at.col = rest.i;
    at.mask = em_tail_mask(e, em_sub(e, n, rest.i), e->lanes);
    all[0] = sn_reduce(e, sum, false, all[0], summand(e, pro, sum, &at, state));
    em_end(e, &rest);
    return sn_reduce_lanes(e, sum, false, all[0]);
}

static void emit_row_sums(void *ctx, em *e, const sn_gemm_at *at, em_val *state) {
    fused_region *pro = &((fused *)ctx)->pro;
    const sn_order *o = &pro->code.order;
    for (int i = 0, n = 0; i < o->n; i++)
        if (is_of_row(o->node[i])) {
            state[n] = emit_sum(e, pro, o->node[i], *at, state);
            n++;
        }
    if (pro->region->n_out > 1) { /* of reductions only */
        move_to(e, pro, at, NULL, state);
        state[pro->n_reductions] = value_at(pro, pro->region->out[1], 0);
    }
}

static em_val emit_prologue(void *ctx, em *e, em_val x, const sn_gemm_at *at, const em_val *state) {
    fused_region *pro = &((fused *)ctx)->pro;
    return row_vector(e, pro, pro->region->out[0], x, at, state);
}

/* The columns are blocks; the indices select one for each row of C. */
static void describe_blocks(const sn_kernel *k, sn_gemm *g) {
    const sn_step *s = k->step;
    int i = sn_kernel_prologue_operand(s->node) - 1;
    const sn_view *index = &s->in[i];
    int64_t per_row = 0;
    sn_dim_is_const(k->m, index->shape[1], &per_row);
    g->n_blocks = sn_attr_int(s->node, SN_A_blocks, 0);
    g->m = sn_kernel_size(k, s->out[0].shape[s->out[0].rank - 2]);
    g->per_row = (int)per_row;
    g->index_buf = i;
    g->index_dtype = index->dtype;
    g->index_row = sn_kernel_size(k, index->stride[0]);
    g->index_col = sn_kernel_size(k, index->stride[1]);
}

static sn_gemm_groups groups_of(const sn_step *s) {
    if (!sn_attr_get(s->node, SN_A_group)) /* integers whose products are of bf16 */
        return (sn_gemm_groups){.size = 16, .bits = 8, .unscaled = true, .factor = SN_BF16};
    return (sn_gemm_groups){.size = (int)sn_attr_int(s->node, SN_A_group, 0),
                            .bits = s->in[1].dtype == SN_I8 ? 8 : 4,
                            .nibble = (sn_nibble)sn_attr_int(s->node, SN_A_nibble, 0),
                            .has_min = sn_attr_int(s->node, SN_A_minima, 0) != 0,
                            .outer_group = (int)sn_attr_int(s->node, SN_A_super, 0),
                            .factor = s->in[2].dtype,
                            .factor_buf = 2,
                            .outer_buf = 3};
}

static void make_spec(const sn_kernel *k, sn_gemm *g, fused *x) {
    const sn_step *s = k->step;
    const sn_view *a = &s->in[0];
    int n_batch = a->rank - 2, main = 0;
    while (main < s->n_out && sn_product_sums(s, main)) main++;
    const sn_view *c = &s->out[main < s->n_out ? main : 0];
    *g = (sn_gemm){.n_batch = n_batch, .ctx = x, .tile = k->tile};
    for (int i = 0; i < n_batch; i++) g->batch[i] = sn_kernel_size(k, a->shape[i]);
    g->m = sn_kernel_size(k, a->shape[n_batch]);
    if (sn_attr_get(s->node, SN_A_blocks)) describe_blocks(k, g);
    g->k = sn_kernel_size(k, a->shape[n_batch + 1]);
    g->half_width = sn_attr_int(s->node, SN_A_pair, 0);
    g->n = sn_kernel_size(k, sn_product_columns(k->m, s)); /* the result may have fewer (pairs) */
    g->a = operand_of(k, a, 0);
    g->c = operand_of(k, c, s->n_in + (main < s->n_out ? main : 0));
    g->b_packed = sn_attr_get(s->node, SN_A_packed) != NULL;
    if (g->b_packed) {
        g->b = (sn_gemm_operand){.buf = 1, .dtype = s->in[1].dtype};
        g->b.offset = g->b.row = g->b.col = EM_SIZE_CONST(0);
        for (int i = 0; i < SN_GEMM_BATCH; i++) g->b.batch[i] = EM_SIZE_CONST(0);
    } else
        g->b = operand_of(k, &s->in[1], 1);
    g->symmetric = sn_product_symmetric(k->m, s);
    g->dynamic = true;
    g->counter_buf = s->n_in + s->n_out;
    g->bf16 = sn_attr_get(s->node, SN_A_compute);
    if (sn_attr_get(s->node, SN_A_group) || (g->bf16 && g->b_packed && g->b.dtype == SN_I8))
        g->groups = groups_of(s);
    g->rows_alike = sn_kernel_invariant(k);
    g->int8 = g->b_packed && !g->groups.size && g->b.dtype == SN_I32;
    const sn_region *epi = sn_attr_region(s->node, SN_A_epilogue);
    const sn_region *pro = sn_attr_region(s->node, SN_A_prologue);
    *x = (fused){.epi = {.k = k}, .main = main < s->n_out ? main : -1};
    x->both = g->half_width && c->shape[n_batch + 1] == sn_product_columns(k->m, s);
    g->no_store = x->main < 0;
    if (pro) {
        sn_order o = sn_region_topo(k->m, pro);
        x->pro = (fused_region){.leaves = in_prologue,
                                .k = k,
                                .region = pro,
                                .first = sn_kernel_prologue_operand(s->node)};
        for (int i = 0; i < o.n; i++) g->n_state += is_of_row(o.node[i]);
        x->pro.n_reductions = g->n_state;
        g->row_scale = pro->n_out > 1;
        g->n_state += g->row_scale;
        if (g->n_state) g->row_prologue = emit_row_sums;
        g->prologue = emit_prologue;
    }
    if (epi) {
        int first = sn_kernel_region_operand(s->node);
        sn_order o = sn_region_topo(k->m, epi);
        x->epi = (fused_region){.leaves = in_epilogue, .k = k, .region = epi, .first = first};
        for (int i = 0; i < o.n && !g->half_width && !g->swap_distance; i++)
            g->swap_distance = sn_swap_distance(o.node[i]);
        g->epilogue = emit_epilogue;
        for (int i = 0; i < s->n_out; i++) g->n_sums += sn_product_sums(s, i);
        if (g->n_sums) g->row_sums = emit_panel_sums, g->store_sums = store_panel_sums;
        if (g->n_sums) g->prefetch_row_sums = prefetch_panel_sums;
        for (int i = first; i < s->n_in && !g->n_blocks; i++)
            if (is_streamed(k, &s->in[i])) g->n_prefetch += lines_of(k, &s->in[i]);
        if (g->n_prefetch) g->prefetch_operands = prefetch_operands;
    }
}

static void emit_gemm(em *e, const sn_kernel *k) {
    sn_gemm g;
    fused x;
    make_spec(k, &g, &x);
    begin_region(e, &x.pro);
    begin_region(e, &x.epi);
    sn_gemm_emit(e, k->name, &g);
}

static sn_dim gemm_scratch(const sn_kernel *k, const sn_target *t) {
    sn_gemm g;
    fused x;
    make_spec(k, &g, &x);
    const sn_view *c = &k->step->out[0];
    sn_dim sorted = sn_dim_mul(k->m, c->shape[c->rank - 2], sn_gemm_scratch_per_row(&g));
    return sn_dim_add(k->m, sn_dim_const(k->m, sn_gemm_scratch(&g, t, k->compute)), sorted);
}

static void emit_pack(em *e, const sn_kernel *k) {
    const sn_view *v = &k->step->in[0];
    sn_gemm_pack p = {.dtype = v->dtype,
                      .k = sn_kernel_size(k, v->shape[0]),
                      .n = sn_kernel_size(k, v->shape[1]),
                      .row = sn_kernel_size(k, v->stride[0]),
                      .col = sn_kernel_size(k, v->stride[1])};
    p.narrow_dtype = k->step->out[0].dtype;
    p.narrow = p.narrow_dtype != k->compute;
    p.packed4 = sn_attr_get(k->step->node, SN_A_group) != NULL;
    p.nibble = (sn_nibble)sn_attr_int(k->step->node, SN_A_nibble, 0);
    p.quads = sn_attr_get(k->step->node, SN_A_quads) != NULL;
    p.bf16 = sn_attr_get(k->step->node, SN_A_compute) != NULL;
    p.half_width = sn_attr_int(k->step->node, SN_A_pair, 0);
    gemm_lower_pack(e, k, &p);
    sn_gemm_emit_pack(e, k->name, &p);
}

static int gemm_tiles(const sn_kernel *k) {
    sn_gemm g;
    fused x;
    make_spec(k, &g, &x);
    return sn_gemm_tiles(&g);
}

const sn_family sn_family_gemm = {.emit = emit_gemm,
                                  .scratch = gemm_scratch,
                                  .dynamic = true,
                                  .tiles = gemm_tiles,
                                  .tile_name = sn_gemm_tile_name};
const sn_family sn_family_pack = {.emit = emit_pack};
