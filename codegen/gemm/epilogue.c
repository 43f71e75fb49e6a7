/* epilogue.c: epilogue and store of a row of microtiles. */
#include "codegen/gemm/impl.h"
#include "runtime/memory.h"

/* Mask of the columns that exist in a vector from column col on; NULL: all, always. */
static em_val column_mask(em *e, const gemm_plan *p, em_val n, em_val col) {
    const sn_gemm *g = p->g;
    if (g->half_width) {
        if (g->half_width % p->epi_cols == 0) return NULL;
        n = em_i64(e, g->half_width); /* a single block */
    } else if (g->n.slot < 0 && g->n.value % p->panel == 0)
        return NULL;
    return em_tail_mask(e, em_sub(e, n, col), p->lanes);
}

static void store_c(em *e, const gemm_plan *p, em_val v, const sn_gemm_at *at) {
    const sn_gemm_operand *c = &p->g->c;
    em_val index =
        em_add(e, gemm_offset(e, p->g, c, at->batch), em_mul(e, at->row, em_size_value(e, c->row)));
    em_val col = em_size_value(e, c->col);
    index = em_add(e, index, em_mul(e, at->col, col));
    em_val to = em_gep(e, em_buf(e, c->buf), c->dtype, index);
    if (gemm_is(c->col, 1)) {
        em_store_mask(e, c->dtype, to, v, at->mask);
        return;
    }
    for (int i = 0; i < p->lanes; i++)
        em_store_mask(e, c->dtype, em_gep(e, to, c->dtype, em_mul(e, col, i)), em_extract(e, v, i),
                      at->mask ? em_extract(e, at->mask, i) : NULL);
}

/* symmetric: the lanes of a mask whose columns, from `col` on, are at most `last`. */
static em_val up_to_diagonal(em *e, const gemm_plan *p, em_val mask, em_val col, em_val last) {
    em_val below = em_tail_mask(e, em_sub(e, em_add(e, last, 1), col), p->lanes);
    return mask ? em_and(e, mask, below) : below;
}

/* A vector of a row of accumulators. */
static em_val load_row(em *e, const gemm_plan *p, em_val row, int col) {
    return em_load(e, p->t, em_gep(e, row, p->t, col), p->lanes);
}

/* Row i of the microtiles. */
static void emit_row(em *e, const gemm_plan *p, const gemm_epilogue_args *q, em_val i) {
    const sn_gemm *g = p->g;
    em_val n = em_size_value(e, g->n);
    em_val row = em_gep(e, q->acc, p->t, em_mul(e, i, p->panel)), c_row = em_add(e, q->row, i);
    em_val product_row = c_row;
    if (g->n_blocks) {
        c_row = gemm_sorted_row(e, q->batch0, c_row);
        product_row = gemm_row_of_a(e, p, c_row);
    }
    em_val row_scale = NULL;
    if (g->row_scale) {
        em_val words = em_add(e, em_mul(e, i, p->ints.row_bytes), p->ints.row_scale_offset);
        em_val at = p->ints.on ? em_gep_bytes(e, q->a, words) : gemm_row_scale(e, p, q->a, i);
        row_scale = em_load(e, SN_F32, at, 1);
    }
    bool one_panel = gemm_has_one_panel(p);
    for (int j = 0; j < p->epi_cols && (!one_panel || j < g->n.value); j += p->lanes) {
        sn_gemm_at at = {.batch = {q->batch0, q->batch1, q->batch2},
                         .row = product_row,
                         .col = em_add(e, q->col, j),
                         .lanes = p->lanes,
                         .row_scale = row_scale};
        at.mask = column_mask(e, p, n, at.col);
        if (g->symmetric) at.mask = up_to_diagonal(e, p, at.mask, at.col, c_row);
        em_val acc[2] = {load_row(e, p, row, j), NULL};
        if (g->half_width) {
            acc[1] = load_row(e, p, row, j + p->epi_cols);
            at.other_col = em_add(e, at.col, g->half_width);
        } else if (g->swap_distance >= p->lanes) { /* the columns exist where those from j on do */
            int other = j ^ (int)g->swap_distance;
            acc[1] = load_row(e, p, row, other);
            at.other_col = em_add(e, q->col, other);
        }
        em_val v = g->epilogue ? g->epilogue(g->ctx, e, acc, &at) : acc[0];
        at.row = c_row;
        if (g->n_blocks) at.col = em_sub(e, at.col, q->batch1);
        if (!g->no_store) store_c(e, p, v, &at);
    }
}

/* All rows, with the reductions of each: these are collected in the lanes of vectors and stored
 * together. */
static void emit_rows(em *e, const gemm_plan *p, const gemm_epilogue_args *q) {
    const sn_gemm *g = p->g;
    int lanes = 1;
    while (lanes < p->mr) lanes *= 2;
    em_val row = em_iota(e, e->i64, lanes), none = em_splat(e, em_f(e, 0), lanes);
    em_val all[SN_GEMM_SUMS], sum[SN_GEMM_SUMS];
    em_loop l = em_for(e, 0, q->n_rows, 1);
    for (int i = 0; i < g->n_sums; i++) all[i] = none;
    em_carries(e, &l, all, g->n_sums);
    emit_row(e, p, q, l.i);
    if (g->n_sums) g->row_sums(g->ctx, e, sum);
    em_val here = g->n_sums ? em_cmp(e, EM_EQ, row, em_splat(e, l.i, lanes)) : NULL;
    for (int i = 0; i < g->n_sums; i++)
        all[i] = em_select(e, here, em_splat(e, sum[i], lanes), all[i]);
    em_end(e, &l);
    if (!g->n_sums) return;
    sn_gemm_at at = {.batch = {q->batch0, q->batch1, q->batch2},
                     .row = q->row,
                     .col = q->col,
                     .mask = em_tail_mask(e, q->n_rows, lanes),
                     .lanes = lanes};
    g->store_sums(g->ctx, e, all, &at);
}

/* ---- symmetric: the mirrored places ---- */

/* Rows [first, first + lanes) of the microtiles, transposed: [column][row] in scratch. */
static void transpose_rows(em *e, const gemm_plan *p, const gemm_epilogue_args *q, int first,
                           em_val to, em_val stride) {
    em_val v[64], last = em_sub(e, q->n_rows, 1);
    em_loop l = em_for(e, 0, p->panel, p->lanes);
    for (int i = 0; i < p->lanes; i++) {
        em_val row = em_mul(e, em_imin(e, first + i, last), p->panel);
        em_val from = em_gep(e, q->acc, p->t, em_add(e, row, l.i));
        v[i] = em_load(e, p->t, from, p->lanes);
    }
    em_transpose(e, v, p->lanes);
    for (int i = 0; i < p->lanes; i++) {
        em_val at = em_add(e, em_mul(e, em_add(e, l.i, i), stride), first);
        em_store(e, p->t, em_gep(e, to, p->t, at), v[i]);
    }
    em_end(e, &l);
}

/* The elements below the diagonal, as those of the rows that are their columns. */
static void emit_mirror(em *e, const gemm_plan *p, const gemm_epilogue_args *q) {
    const sn_gemm *g = p->g;
    em_val tile = em_gep_bytes(e, q->a, p->mirror_offset);
    const int stride = SN_ROUND_UP(p->mr, p->lanes);
    for (int i = 0; i < p->mr; i += p->lanes) transpose_rows(e, p, q, i, tile, em_i64(e, stride));
    em_val end = em_imin(e, em_i64(e, p->panel),
                         em_sub(e, em_sub(e, em_add(e, q->row, q->n_rows), 1), q->col));
    em_loop l = em_for(e, 0, end, 1);
    sn_gemm_at at = {.batch = {q->batch0, q->batch1, q->batch2}, .lanes = p->lanes};
    at.row = em_add(e, q->col, l.i);
    for (int i = 0; i < p->mr; i += p->lanes) {
        em_val from = em_add(e, em_mul(e, l.i, stride), i);
        em_val acc[2] = {em_load(e, p->t, em_gep(e, tile, p->t, from), p->lanes), NULL};
        at.col = em_add(e, q->row, i);
        em_val above = up_to_diagonal(e, p, NULL, at.col, at.row);
        at.mask = em_and(e, em_tail_mask(e, em_sub(e, q->n_rows, i), p->lanes), em_not(e, above));
        em_val v = g->epilogue ? g->epilogue(g->ctx, e, acc, &at) : acc[0];
        if (!g->no_store) store_c(e, p, v, &at);
    }
    em_end(e, &l);
}

em_val gemm_emit_epilogue(em *e, const gemm_plan *p) {
    em_val fn = gemm_epilogue_function(e, gemm_name_of(p, "epilogue").text);
    gemm_epilogue_args q = gemm_epilogue_params(e);
    e->buf = q.buf;
    e->dim = q.dim;
    if (p->g->epilogue || p->direct_c || p->g->symmetric) {
        emit_rows(e, p, &q);
    } else { /* little code: unroll the rows of a full microtile */
        em_branch full = em_if(e, em_cmp(e, EM_EQ, q.n_rows, p->mr));
        for (int i = 0; i < p->mr; i++) emit_row(e, p, &q, em_i64(e, i));
        em_else(e, &full);
        em_loop l = em_for(e, 0, q.n_rows, 1);
        emit_row(e, p, &q, l.i);
        em_end(e, &l);
        em_endif(e, &full);
    }
    if (p->g->symmetric) emit_mirror(e, p, &q);
    em_ret(e, NULL);
    return fn;
}
