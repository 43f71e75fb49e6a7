/* edge.c: what touches the operands outside the micro-kernel: finishing a tile (epilogue and
 * store), copying rows of A (with the prologue), packing panels of B. */
#include "codegen/gemm/impl.h"

/* Column j of a tile's row, as vectors of `lanes`, with a mask where the columns may end inside. */
static em_val column_mask(em *e, const gemm_plan *p, em_val n, em_val col) {
    const sn_gemm *g = p->g;
    if (g->pair_distance) {
        if (g->pair_distance % p->epi_cols == 0) return NULL;
        n = em_i64(e, g->pair_distance); /* one block */
    } else if (g->n.slot < 0 && g->n.value % p->panel == 0)
        return NULL;
    return em_tail_mask(e, em_sub(e, n, col), p->lanes);
}

static void store_result(em *e, const gemm_plan *p, em_val v, const sn_gemm_at *at) {
    const sn_gemm_operand *c = &p->g->c;
    em_val index =
        em_add(e, gemm_offset(e, p->g, c, at->batch), em_mul(e, at->row, gemm_size(e, c->row)));
    em_val col = gemm_size(e, c->col);
    index = em_add(e, index, em_mul(e, at->col, col));
    em_val to = em_at(e, em_buf(e, c->buf), c->dtype, index);
    if (gemm_is(c->col, 1)) {
        em_store_mask(e, c->dtype, to, v, at->mask);
        return;
    }
    for (int i = 0; i < p->lanes; i++)
        em_store_mask(e, c->dtype, em_at(e, to, c->dtype, em_mul(e, col, em_i64(e, i))),
                      em_extract(e, v, i), at->mask ? em_extract(e, at->mask, i) : NULL);
}

/* Row i of the tile that gemm_emit_epilogue finishes. */
static void finish_row(em *e, const gemm_plan *p, em_val i) {
    const sn_gemm *g = p->g;
    em_val n = gemm_size(e, g->n), col0 = em_param(e, 5);
    em_val sums = em_at(e, em_param(e, 2), p->t, em_mul(e, i, em_i64(e, p->panel)));
    for (int j = 0; j < p->epi_cols; j += p->lanes) {
        sn_gemm_at at = {.batch = {em_param(e, 6), em_param(e, 7), em_param(e, 8)},
                         .row = em_add(e, em_param(e, 3), i),
                         .col = em_add(e, col0, em_i64(e, j)),
                         .lanes = p->lanes};
        at.mask = column_mask(e, p, n, at.col);
        em_val acc[2] = {em_load(e, p->t, em_at(e, sums, p->t, em_i64(e, j)), p->lanes), NULL};
        if (g->pair_distance)
            acc[1] = em_load(e, p->t, em_at(e, sums, p->t, em_i64(e, j + p->epi_cols)), p->lanes);
        em_val v = g->epilogue ? g->epilogue(g->ctx, e, acc, &at) : acc[0];
        if (!g->no_store) store_result(e, p, v, &at);
    }
}

/* All rows of the tile, and the reductions of each. */
static void finish_rows(em *e, const gemm_plan *p, em_val n) {
    const sn_gemm *g = p->g;
    int lanes = 1;
    while (lanes < p->mr) lanes *= 2;
    em_val row = em_iota(e, e->i64, lanes), none = em_splat(e, em_f(e, 0), lanes);
    em_val first[SN_GEMM_SUMS], all[SN_GEMM_SUMS], sum[SN_GEMM_SUMS];
    em_loop l = em_for(e, em_i64(e, 0), n, em_i64(e, 1));
    for (int i = 0; i < g->n_sums; i++) first[i] = em_carry(e, &l, none);
    finish_row(e, p, l.i);
    if (g->n_sums) g->row_sums(g->ctx, e, sum);
    em_val here = g->n_sums ? em_cmp(e, EM_EQ, row, em_splat(e, l.i, lanes)) : NULL;
    for (int i = 0; i < g->n_sums; i++)
        em_next(e, &l, first[i], em_select(e, here, em_splat(e, sum[i], lanes), first[i]));
    em_end(e, &l);
    if (!g->n_sums) return;
    for (int i = 0; i < g->n_sums; i++) all[i] = em_final(e, &l, first[i]);
    sn_gemm_at at = {.batch = {em_param(e, 6), em_param(e, 7), em_param(e, 8)},
                     .row = em_param(e, 3),
                     .col = em_param(e, 5),
                     .mask = em_tail_mask(e, n, lanes),
                     .lanes = lanes};
    g->store_sums(g->ctx, e, all, &at);
}

/* void finish(buf, dim, T, row, rows, col, batch0, batch1, batch2)
 * T: sums of `rows` rows from row `row` on and of one panel from column `col` on. The tile is in
 * L1; going through it keeps one copy of the epilogue for all micro-kernels. */
em_val gemm_emit_epilogue(em *e, const gemm_plan *p) {
    const em_type params[] = {e->ptr, e->ptr, e->ptr, e->i64, e->i64,
                              e->i64, e->i64, e->i64, e->i64};
    em_val fn = gemm_function(e, p, "finish", params, 9, false);
    e->buf = em_param(e, 0);
    e->dim = em_param(e, 1);
    const sn_gemm *g = p->g;
    if (g->epilogue || p->direct_c) {
        finish_rows(e, p, em_param(e, 4));
    } else { /* short: a full tile's rows one behind the other */
        em_branch full = em_if(e, em_cmp(e, EM_EQ, em_param(e, 4), em_i64(e, p->mr)));
        for (int i = 0; i < p->mr; i++) finish_row(e, p, em_i64(e, i));
        em_else(e, &full);
        em_loop l = em_for(e, em_i64(e, 0), em_param(e, 4), em_i64(e, 1));
        finish_row(e, p, l.i);
        em_end(e, &l);
        em_endif(e, &full);
    }
    em_ret(e, NULL);
    return fn;
}

/* n elements at p, `stride` apart. */
static em_val load_strided(em *e, sn_dtype t, em_val p, sn_gemm_size stride, int n, em_val mask) {
    if (gemm_is(stride, 1)) return em_load_mask(e, t, p, n, mask, NULL);
    em_val index = em_mul(e, em_iota(e, e->i64, n), em_splat(e, gemm_size(e, stride), n));
    return em_gather(e, t, p, index, mask);
}

/* Transposes v[n] of n lanes in place, swapping blocks of doubling size across the diagonal. */
static void transpose_block(em *e, em_val *v, int n) {
    for (int size = 1; size < n; size *= 2)
        for (int i = 0; i < n; i++) {
            if (i & size) continue;
            int upper[64], lower[64];
            for (int l = 0; l < n; l++) {
                upper[l] = l & size ? n + l - size : l;
                lower[l] = l & size ? n + l : l + size;
            }
            em_val a = v[i], b = v[i + size];
            v[i] = em_shuffle(e, a, b, upper, n);
            v[i + size] = em_shuffle(e, a, b, lower, n);
        }
}

/* dst[i*dst_stride + j] = src[i + j*src_stride] for i < ni, j < nj; j beyond nj up to a whole
 * vector gives 0. Whole blocks in registers; they leave through the stack, so that only rows that
 * exist are written. */
static void transpose_tile(em *e, const gemm_plan *p, sn_dtype dtype, sn_dtype to_type, em_val src,
                           em_val src_stride, em_val dst, em_val dst_stride, em_val ni, em_val nj,
                           em_val width) {
    int n = p->lanes;
    em_val block = em_stack(e, p->t, (int64_t)n * n);
    em_loop li = em_for(e, em_i64(e, 0), ni, em_i64(e, n));
    em_val left = em_sub(e, ni, li.i), mask = em_tail_mask(e, left, n), v[64];
    em_loop lj = em_for(e, em_i64(e, 0), width, em_i64(e, n));
    for (int j = 0; j < n; j++) {
        em_val col = em_add(e, lj.i, em_i64(e, j));
        em_val exists = em_splat(e, em_cmp(e, EM_LT, col, nj), n);
        em_val from = em_at(e, src, dtype, em_add(e, li.i, em_mul(e, col, src_stride)));
        v[j] = em_load_mask(e, dtype, from, n, em_and(e, mask, exists), NULL);
    }
    transpose_block(e, v, n);
    for (int i = 0; i < n; i++) em_store(e, p->t, em_at(e, block, p->t, em_i64(e, i * n)), v[i]);
    em_loop row = em_for(e, em_i64(e, 0), em_imin(e, left, em_i64(e, n)), em_i64(e, 1));
    em_val x = em_load(e, p->t, em_at(e, block, p->t, em_mul(e, row.i, em_i64(e, n))), n);
    em_val to = em_mul(e, em_add(e, li.i, row.i), dst_stride);
    em_store(e, to_type, em_at(e, dst, to_type, em_add(e, to, lj.i)), x);
    em_end(e, &row);
    em_end(e, &lj);
    em_end(e, &li);
}

/* One vector of a row of A at column k: loaded, prepared, stored. */
static void copy_vector(em *e, const gemm_plan *p, em_val from, em_val to, sn_gemm_at *at,
                        em_val offset, em_val end, const em_val *state) {
    const sn_gemm *g = p->g;
    at->mask = em_tail_mask(e, em_sub(e, end, offset), p->lanes);
    em_val src = em_at(e, from, g->a.dtype, em_mul(e, at->col, gemm_size(e, g->a.col)));
    em_val x = load_strided(e, g->a.dtype, src, g->a.col, p->lanes, at->mask);
    if (g->prologue) x = g->prologue(g->ctx, e, x, at, state);
    em_store(e, p->t, em_at(e, to, p->t, offset), x);
}

/* dst[k][i] = A[row + i][k0 + k], i < rows, of which there are at most a_step: A's columns lie
 * together, and the micro-kernel reads a column's elements one by one anyway. */
static void emit_columns(em *e, const gemm_plan *p, em_val a, em_val dst, em_val row, em_val rows,
                         em_val k0, em_val kn) {
    const sn_gemm_operand *o = &p->g->a;
    em_val mask[8], col = gemm_size(e, o->col);
    int vectors = (int)p->a_col_stride / p->lanes;
    for (int v = 0; v < vectors; v++)
        mask[v] = em_tail_mask(e, em_sub(e, rows, em_i64(e, v * p->lanes)), p->lanes);
    em_val from = em_at(e, a, o->dtype, em_add(e, row, em_mul(e, k0, col)));
    em_loop l = em_for(e, em_i64(e, 0), kn, em_i64(e, 1));
    em_val src = em_at(e, from, o->dtype, em_mul(e, l.i, col));
    em_val to = em_at(e, dst, p->t, em_mul(e, l.i, em_i64(e, p->a_col_stride)));
    for (int v = 0; v < vectors; v++) {
        em_val at = em_i64(e, v * p->lanes);
        em_val x = em_load_mask(e, o->dtype, em_at(e, src, o->dtype, at), p->lanes, mask[v], NULL);
        em_store(e, p->t, em_at(e, to, p->t, at), x);
    }
    em_end(e, &l);
}

/* void copy(buf, dim, A, dst, row, rows, k0, kn, batch0, batch1, batch2)
 * dst[i*a_stride + k] = pro(A[row + i][k0 + k]), i < rows, k < kn; A: this batch item's base. Rows
 * are written in whole vectors (a_stride has room). */
em_val gemm_emit_pack_a(em *e, const gemm_plan *p) {
    const em_type params[] = {e->ptr, e->ptr, e->ptr, e->ptr, e->i64, e->i64,
                              e->i64, e->i64, e->i64, e->i64, e->i64};
    em_val fn = gemm_function(e, p, "copy", params, 11, false);
    e->buf = em_param(e, 0);
    e->dim = em_param(e, 1);
    const sn_gemm *g = p->g;
    em_val base = em_param(e, 2), dst = em_param(e, 3), row0 = em_param(e, 4), k0 = em_param(e, 6),
           kn = em_param(e, 7);
    if (p->a_transposed) {
        emit_columns(e, p, base, dst, row0, em_param(e, 5), k0, kn);
        em_ret(e, NULL);
        return fn;
    }
    em_loop rows = em_for(e, em_i64(e, 0), em_param(e, 5), em_i64(e, 1));
    sn_gemm_at at = {.batch = {em_param(e, 8), em_param(e, 9), em_param(e, 10)},
                     .row = em_add(e, row0, rows.i),
                     .col = em_i64(e, 0),
                     .lanes = p->lanes};
    em_val from = em_at(e, base, g->a.dtype, em_mul(e, at.row, gemm_size(e, g->a.row)));
    em_val to = em_at(e, dst, p->t, em_mul(e, rows.i, em_i64(e, p->a_row_stride)));
    em_val state[SN_GEMM_STATE] = {NULL};
    if (g->row_prologue) g->row_prologue(g->ctx, e, &at, state);
    em_loop l = em_for(e, em_i64(e, 0), kn, em_i64(e, p->lanes));
    at.col = em_add(e, k0, l.i);
    copy_vector(e, p, from, to, &at, l.i, kn, state);
    em_end(e, &l);
    em_end(e, &rows);
    em_ret(e, NULL);
    return fn;
}

/* void pack(buf, dim, src, dst, kn, columns)
 * dst[k][j] = src[k*row + j*col] for j < columns, 0 up to the panel's width; pair: half a panel of
 * these, then those `pair` columns further. */
em_val gemm_emit_pack_b(em *e, const gemm_plan *p, const char *suffix, sn_dtype dtype,
                        sn_gemm_size row, sn_gemm_size col, int64_t pair) {
    const em_type params[] = {e->ptr, e->ptr, e->ptr, e->ptr, e->i64, e->i64};
    em_val fn = gemm_function(e, p, suffix, params, 6, false);
    e->buf = em_param(e, 0);
    e->dim = em_param(e, 1);
    em_val dst = em_param(e, 3), kn = em_param(e, 4), columns = em_param(e, 5);
    em_val across = gemm_size(e, col), from[2] = {em_param(e, 2), NULL};
    int width = p->epi_cols, halves = pair ? 2 : 1;
    if (pair) from[1] = em_at(e, from[0], dtype, em_mul(e, across, em_i64(e, pair)));
    if (gemm_is(row, 1) && !gemm_is(col, 1)) {
        for (int half = 0; half < halves; half++)
            transpose_tile(e, p, dtype, p->b_type, from[half], across,
                           em_at(e, dst, p->b_type, em_i64(e, half * width)), em_i64(e, p->panel),
                           kn, columns, em_i64(e, width));
        em_ret(e, NULL);
        return fn;
    }
    em_val mask[64];
    for (int j = 0; j < width; j += p->lanes)
        mask[j / p->lanes] = em_tail_mask(e, em_sub(e, columns, em_i64(e, j)), p->lanes);
    em_loop l = em_for(e, em_i64(e, 0), kn, em_i64(e, 1));
    em_val at = em_mul(e, l.i, gemm_size(e, row));
    for (int half = 0; half < halves; half++) {
        em_val src = em_at(e, from[half], dtype, at);
        for (int j = 0; j < width; j += p->lanes) {
            em_val part = em_at(e, src, dtype, em_mul(e, across, em_i64(e, j)));
            em_val v = load_strided(e, dtype, part, col, p->lanes, mask[j / p->lanes]);
            em_val to = em_mul(e, l.i, em_i64(e, p->panel));
            to = em_add(e, to, em_i64(e, half * width + j));
            em_store(e, p->b_type, em_at(e, dst, p->b_type, to), v);
        }
    }
    em_end(e, &l);
    em_ret(e, NULL);
    return fn;
}

bool gemm_check_pair(sn_gemm_size n, int64_t pair, sn_dtype compute, sn_error *err) {
    bool blocks = n.slot < 0 && pair > 0 && n.value % (2 * pair) == 0;
    bool whole = n.value == 2 * pair || pair % (sn_gemm_panel(compute) / 2) == 0;
    if (pair && (!blocks || !whole))
        return sn_fail(err, SN_ERR_INTERNAL, "gemm: columns %lld apart do not go up in pairs",
                       (long long)pair);
    return true;
}

void sn_gemm_emit_pack(em *e, const char *name, const sn_gemm_pack *g) {
    gemm_plan p = {.name = name,
                   .t = e->compute,
                   .esize = (int)sn_dtype_size(e->compute),
                   .b_type = g->scale_group || g->narrow ? g->narrow_dtype : e->compute,
                   .lanes = e->lanes,
                   .panel = sn_gemm_panel(e->compute)};
    p.epi_cols = g->pair_distance ? p.panel / 2 : p.panel;
    if (!gemm_check_pair(g->n, g->pair_distance, e->compute, &e->err)) return;
    em_val pack =
        g->scale_group
            ? gemm_emit_int4_pack(e, &p, g->dtype, g->row, g->col, g->pair_distance)
            : gemm_emit_pack_b(e, &p, "panel", g->dtype, g->row, g->col, g->pair_distance);
    em_kernel(e, name);
    em_val n = gemm_size(e, g->n), k = gemm_size(e, g->k), lo, hi;
    em_share(e, em_ceil_div(e, n, p.panel), &lo, &hi);
    em_loop l = em_for(e, lo, hi, em_i64(e, 1));
    em_val col = gemm_first_column(e, &p, g->pair_distance, l.i);
    em_val left = em_sub(e, n, col); /* a half panel in blocks is always whole */
    if (g->pair_distance && g->n.value == 2 * g->pair_distance)
        left = em_sub(e, left, em_i64(e, g->pair_distance));
    em_val src = em_at(e, em_buf(e, 0), g->dtype, em_mul(e, col, gemm_size(e, g->col)));
    em_val rows = g->scale_group ? em_div(e, k, em_i64(e, INT4_PER_WORD)) : k;
    em_val to = em_mul(e, em_mul(e, l.i, rows), em_i64(e, p.panel));
    em_val args[] = {e->buf, e->dim, src, em_at(e, em_buf(e, 1), p.b_type, to), k, left};
    em_call(e, pack, args, 6);
    em_end(e, &l);
    em_end_kernel(e);
}
