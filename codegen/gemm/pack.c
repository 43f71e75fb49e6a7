/* pack.c: packing rows of A (with the prologue) and panels of B, and the kernel that packs B. */
#include "codegen/gemm/impl.h"

/* n elements of a row of A, in the compute type; 8-bit integers as they are. */
static em_val load_of_a(em *e, const sn_gemm *g, em_val p, int n, em_val mask) {
    sn_dtype t = g->a.dtype;
    if (g->int8 && t == SN_I8 && gemm_is(g->a.col, 1)) return em_load_mask(e, t, p, n, mask, NULL);
    em_val x = gemm_load_strided(e, t, p, g->a.col, n, mask);
    return g->int8 && t == SN_I8 ? em_convert(e, x, e->compute, SN_I8) : x;
}

/* A matrix in memory for transpose_tile. */
typedef struct matrix {
    sn_dtype dtype;
    em_val base, stride; /* elements between rows */
} matrix;

/* dst[i][j] = src[j][i] for words i < ni of rows of so many elements, j < nj; 0 for nj <= j < width rounded
 * up to whole vectors. Blocks of lanes x lanes are transposed in registers and written through the
 * stack, so that only rows i < ni are written. */
static void transpose_tile(em *e, const gemm_plan *p, matrix src, matrix dst, em_val ni, em_val nj,
                           em_val width, em_val elements) {
    int n = p->lanes, loaded = n * p->dot->k_of_word;
    em_val block = em_stack(e, p->t, (int64_t)n * n);
    em_loop li = em_for(e, 0, ni, n);
    em_val left = em_sub(e, ni, li.i), first = gemm_elements(e, li.i, p->dot->k_of_word), v[64];
    em_val mask = em_tail_mask(e, em_sub(e, elements, first), loaded);
    em_loop lj = em_for(e, 0, width, n);
    for (int j = 0; j < n; j++) {
        em_val col = em_add(e, lj.i, j);
        em_val exists = em_splat(e, em_cmp(e, EM_LT, col, nj), loaded);
        em_val at = em_add(e, first, em_mul(e, col, src.stride));
        em_val from = em_gep(e, src.base, src.dtype, at);
        v[j] = gemm_load_row(e, src.dtype, from, loaded, em_and(e, mask, exists));
        if (loaded > n) v[j] = tile_bf16_words(e, v[j]);
    }
    em_transpose(e, v, n);
    for (int i = 0; i < n; i++) em_store(e, p->t, em_gep(e, block, p->t, i * n), v[i]);
    em_loop row = em_for(e, 0, em_imin(e, left, n), 1);
    em_val x = em_load(e, p->t, em_gep(e, block, p->t, em_mul(e, row.i, n)), n);
    em_val to = em_mul(e, em_add(e, li.i, row.i), dst.stride);
    em_store(e, dst.dtype, em_gep(e, dst.base, dst.dtype, em_add(e, to, lj.i)), x);
    em_end(e, &row);
    em_end(e, &lj);
    em_end(e, &li);
}

/* ---- A ---- */

/* A row of A that is packed to `to`. */
typedef struct packed_row {
    em_val from, to, pc; /* pc: the column that becomes element 0 */
    sn_gemm_at at;
    const em_val *state;
} packed_row;

/* Packs the vector from element `offset` on; mask: its elements, NULL: all. */
static void pack_vector(em *e, const gemm_plan *p, packed_row *r, em_val offset, em_val mask) {
    const sn_gemm *g = p->g;
    r->at.col = em_add(e, r->pc, offset);
    r->at.mask = mask;
    em_val src = em_gep(e, r->from, g->a.dtype, em_mul(e, r->at.col, em_size_value(e, g->a.col)));
    em_val x = load_of_a(e, g, src, p->lanes, mask);
    if (g->prologue) x = g->prologue(g->ctx, e, x, &r->at, r->state);
    if (p->joined_k > 1) {
        if (g->bf16 && mask) x = em_select(e, mask, x, em_like(e, x, 0)); /* of the last word */
        p->dot->store_a(e, p, x, r->to, offset);
        return;
    }
    if (g->row_scale) x = em_convert(e, x, SN_I8, p->t); /* in groups */
    em_store(e, p->t, em_gep(e, r->to, p->t, offset), x);
}

/* Elements [0, n): whole vectors, a few at a time, then the rest. */
static void pack_row(em *e, const gemm_plan *p, packed_row *r, em_val n) {
    enum { VECTORS = 4 };
    em_val whole = em_round_down(e, n, VECTORS * p->lanes);
    em_loop l = em_for(e, 0, whole, VECTORS * p->lanes);
    for (int i = 0; i < VECTORS; i++) pack_vector(e, p, r, em_add(e, l.i, i * p->lanes), NULL);
    em_end(e, &l);
    l = em_for(e, whole, n, p->lanes);
    pack_vector(e, p, r, l.i, em_tail_mask(e, em_sub(e, n, l.i), p->lanes));
    em_end(e, &l);
}

/* a_transposed: dst[k][i] = A[row + i][pc + k] for one microtile. A's columns are contiguous, and
 * the microkernel broadcasts single elements of a column anyway. */
static void pack_columns(em *e, const gemm_plan *p, const gemm_pack_a_args *q) {
    const sn_gemm_operand *o = &p->g->a;
    em_val mask[8], col = em_size_value(e, o->col);
    int vectors = (int)p->a_col_stride / p->lanes;
    for (int v = 0; v < vectors; v++)
        mask[v] = em_tail_mask(e, em_sub(e, q->n_rows, v * p->lanes), p->lanes);
    em_val pc = gemm_elements(e, q->pc, p->joined_k);
    em_val from = em_gep(e, q->a, o->dtype, em_add(e, q->row, em_mul(e, pc, col)));
    if (p->g->ragged_k) from = em_gep(e, q->a, o->dtype, q->row);
    em_loop l = em_for(e, 0, q->kb, 1);
    em_val k = gemm_elements(e, l.i, p->joined_k), here_k = em_add(e, pc, k), step = col;
    if (p->g->ragged_k) k = gemm_sorted_row(e, q->batch2, here_k);
    em_val src = em_gep(e, from, o->dtype, em_mul(e, k, col));
    em_val to = em_gep(e, q->dst, p->t, em_mul(e, l.i, p->a_col_stride));
    em_val all = p->g->ragged_k ? q->batch1 : em_size_value(e, p->k);
    if (p->g->ragged_k && p->g->bf16) {
        em_val odd = em_imin(e, em_add(e, here_k, 1), em_sub(e, all, 1));
        step = em_mul(e, em_sub(e, gemm_sorted_row(e, q->batch2, odd), k), col);
    }
    for (int v = 0; v < vectors; v++) {
        em_val at = em_i64(e, v * p->lanes), here = em_gep(e, src, o->dtype, at);
        em_val x = em_load_mask(e, o->dtype, here, p->lanes, mask[v], NULL);
        if (p->g->bf16) {
            em_val exists = em_cmp(e, EM_LT, em_add(e, here_k, 1), all);
            em_val both = em_and(e, mask[v], em_splat(e, exists, p->lanes));
            here = em_gep(e, here, o->dtype, step);
            x = tile_bf16_join(e, x, em_load_mask(e, o->dtype, here, p->lanes, both, NULL));
        }
        em_store(e, p->t, em_gep(e, to, p->t, at), x);
    }
    em_end(e, &l);
}

/* amx, and A's columns are contiguous: dst[i] = words of row + i from word pc on. Blocks of lanes x lanes are
 * transposed in registers, and written through the stack, so that only n_rows rows are. */
static void pack_transposed(em *e, const gemm_plan *p, const gemm_pack_a_args *q) {
    const sn_gemm_operand *o = &p->g->a;
    const int n = p->lanes;
    em_val block = em_stack(e, p->t, (int64_t)n * n), col = em_size_value(e, o->col);
    em_val pc = gemm_elements(e, q->pc, p->joined_k);
    em_val kb = gemm_block_elements(e, em_size_value(e, p->k), q->pc, q->kb, p->joined_k);
    em_val from = em_gep(e, q->a, o->dtype, em_add(e, q->row, em_mul(e, pc, col)));
    em_loop lk = em_for(e, 0, q->kb, n);
    em_loop li = em_for(e, 0, q->n_rows, n);
    em_val left = em_sub(e, q->n_rows, li.i), rows = em_tail_mask(e, left, n), v[64], x[2];
    for (int j = 0; j < n; j++) {
        for (int half = 0; half < p->joined_k; half++) {
            em_val k = em_add(e, gemm_elements(e, em_add(e, lk.i, j), p->joined_k), half);
            em_val mask = em_and(e, rows, em_splat(e, em_cmp(e, EM_LT, k, kb), n));
            em_val at = em_gep(e, from, o->dtype, em_add(e, li.i, em_mul(e, k, col)));
            x[half] = em_load_mask(e, o->dtype, at, n, mask, NULL);
        }
        v[j] = tile_bf16_join(e, x[0], x[1]);
    }
    em_transpose(e, v, n);
    for (int i = 0; i < n; i++) em_store(e, p->t, em_gep(e, block, p->t, i * n), v[i]);
    em_val dst = em_gep(e, q->dst, p->t, em_add(e, em_mul(e, li.i, p->a_row_stride), lk.i));
    em_loop row = em_for(e, 0, em_imin(e, left, n), 1);
    em_val y = em_load(e, p->t, em_gep(e, block, p->t, em_mul(e, row.i, n)), n);
    em_store(e, p->t, em_gep(e, dst, p->t, em_mul(e, row.i, p->a_row_stride)), y);
    em_end(e, &row);
    em_end(e, &li);
    em_end(e, &lk);
}

/* dst[i][k] = prologue(A[row + i][pc + k]). */
static void pack_rows(em *e, const gemm_plan *p, const gemm_pack_a_args *q) {
    const sn_gemm *g = p->g;
    em_loop rows = em_for(e, 0, q->n_rows, 1);
    em_val state[SN_GEMM_STATE] = {NULL};
    packed_row r = {.to = em_gep(e, q->dst, p->t, em_mul(e, rows.i, p->a_row_stride)),
                    .at = {.batch = {q->batch0, q->batch1, q->batch2},
                           .row = em_add(e, q->row, rows.i),
                           .col = zero(e),
                           .lanes = p->lanes},
                    .state = state};
    if (g->n_blocks) r.at.row = gemm_row_of_a(e, p, gemm_sorted_row(e, q->batch0, r.at.row));
    r.from = em_gep(e, q->a, g->a.dtype, em_mul(e, r.at.row, em_size_value(e, g->a.row)));
    if (g->row_prologue) g->row_prologue(g->ctx, e, &r.at, state);
    if (g->row_scale)
        em_store(e, SN_F32, gemm_row_scale(e, p, q->dst, rows.i), state[g->n_state - 1]);
    r.pc = gemm_elements(e, q->pc, p->joined_k);
    em_val k = em_size_value(e, p->k);
    pack_row(e, p, &r, gemm_block_elements(e, k, q->pc, q->kb, p->joined_k));
    em_end(e, &rows);
}

em_val gemm_emit_pack_a(em *e, const gemm_plan *p) {
    em_val fn = gemm_pack_a_function(e, gemm_name_of(p, "pack_a").text);
    gemm_pack_a_args q = gemm_pack_a_params(e);
    e->buf = q.buf;
    e->dim = q.dim;
    if (p->a_transposed)
        pack_columns(e, p, &q);
    else if (p->amx && p->a_by_columns)
        pack_transposed(e, p, &q);
    else
        pack_rows(e, p, &q);
    em_ret(e, NULL);
    return fn;
}

/* ---- B ---- */

/* Where a panel of B comes from. */
typedef struct b_source {
    sn_dtype dtype;
    em_size row, col;
    em_val col_stride;
    em_val from[2]; /* the halves of pairs, else one */
    int halves;
} b_source;

/* A plan for packing only has no spec. */
static bool is_ragged(const gemm_plan *p) {
    return p->g && p->g->ragged_k;
}

/* Words that kb elements fill. */
static em_val words_of(em *e, const gemm_plan *p, em_val kb) {
    return p->dot->k_of_word > 1 ? em_ceil_div(e, kb, p->dot->k_of_word) : kb;
}

static em_val sorted_row_of_b(em *e, const gemm_plan *p, em_val sorted, em_val i) {
    return gemm_row_of_a(e, p, gemm_sorted_row(e, sorted, i));
}

/* Row by row: columns are not contiguous. */
static void pack_by_rows(em *e, const gemm_plan *p, const gemm_pack_b_args *q, const b_source *b) {
    em_val mask[64];
    int width = p->epi_cols;
    for (int j = 0; j < width; j += p->lanes)
        mask[j / p->lanes] = em_tail_mask(e, em_sub(e, q->n_cols, j), p->lanes);
    em_loop l = em_for(e, 0, words_of(e, p, q->kb), 1);
    const int of_word = p->dot->k_of_word;
    em_val k = gemm_elements(e, l.i, of_word), step = em_size_value(e, b->row);
    em_val next = em_add(e, k, 1), exists = em_splat(e, em_cmp(e, EM_LT, next, q->kb), p->lanes);
    em_val at = em_mul(e, is_ragged(p) ? sorted_row_of_b(e, p, q->sorted, k) : k, step);
    if (is_ragged(p) && of_word > 1) {
        em_val odd = sorted_row_of_b(e, p, q->sorted, em_imin(e, next, em_sub(e, q->kb, 1)));
        step = em_sub(e, em_mul(e, odd, step), at);
    }
    for (int half = 0; half < b->halves; half++) {
        em_val src = em_gep(e, b->from[half], b->dtype, at);
        for (int j = 0; j < width; j += p->lanes) {
            em_val from = em_gep(e, src, b->dtype, em_mul(e, b->col_stride, j));
            em_val here = mask[j / p->lanes];
            em_val v = gemm_load_strided(e, b->dtype, from, b->col, p->lanes, here);
            if (of_word > 1) {
                from = em_gep(e, from, b->dtype, step);
                here = em_and(e, here, exists);
                v = tile_bf16_join(e, v,
                                   gemm_load_strided(e, b->dtype, from, b->col, p->lanes, here));
            }
            em_val to = em_mul(e, l.i, p->panel);
            to = em_add(e, to, half * width + j);
            em_store(e, p->b_type, em_gep(e, q->dst, p->b_type, to), v);
        }
    }
    em_end(e, &l);
}

em_val gemm_emit_pack_b(em *e, const gemm_plan *p, sn_dtype dtype, em_size row, em_size col,
                        int64_t half_width) {
    em_val fn = gemm_pack_b_function(e, gemm_name_of(p, "pack_b").text);
    gemm_pack_b_args q = gemm_pack_b_params(e);
    e->buf = q.buf;
    e->dim = q.dim;
    b_source b = {.dtype = dtype,
                  .row = row,
                  .col = col,
                  .col_stride = em_size_value(e, col),
                  .from = {q.src},
                  .halves = half_width ? 2 : 1};
    if (half_width) b.from[1] = em_gep(e, q.src, dtype, em_mul(e, b.col_stride, half_width));
    bool columns_contiguous = gemm_is(row, 1) && !gemm_is(col, 1) && !is_ragged(p);
    for (int half = 0; half < b.halves && columns_contiguous; half++) {
        em_val dst = em_gep(e, q.dst, p->b_type, half * p->epi_cols);
        transpose_tile(e, p, (matrix){dtype, b.from[half], b.col_stride},
                       (matrix){p->b_type, dst, em_i64(e, p->panel)}, words_of(e, p, q.kb),
                       q.n_cols, em_i64(e, p->epi_cols), q.kb);
    }
    if (!columns_contiguous) pack_by_rows(e, p, &q, &b);
    em_ret(e, NULL);
    return fn;
}

static void pack_panel(em *e, const gemm_plan *p, const sn_gemm_pack *g, em_val pack, em_val panel,
                       em_val col, em_val left) {
    em_val k = em_size_value(e, g->k);
    em_val src = em_gep(e, em_buf(e, 0), g->dtype, em_mul(e, col, em_size_value(e, g->col)));
    em_val rows = g->packed4 ? em_div(e, k, 8)
                  : g->quads ? em_add(e, em_ceil_div(e, k, 4), p->sum_rows)
                             : words_of(e, p, k);
    em_val to = em_mul(e, em_mul(e, panel, rows), p->panel);
    gemm_pack_b_call(e, pack,
                     (gemm_pack_b_args){.buf = e->buf,
                                        .dim = e->dim,
                                        .src = src,
                                        .dst = em_gep(e, em_buf(e, 1), p->b_type, to),
                                        .kb = k,
                                        .n_cols = left,
                                        .sorted = zero(e)});
}

void sn_gemm_emit_pack(em *e, const char *name, const sn_gemm_pack *g) {
    gemm_plan p = {.name = name,
                   .t = e->compute,
                   .dot = gemm_dot_of(&(sn_gemm){.bf16 = g->bf16}, e->target),
                   .sum_rows = g->quads,
                   .esize = (int)sn_dtype_size(e->compute),
                   .b_type = g->packed4 || (g->narrow && !g->bf16) ? g->narrow_dtype : e->compute,
                   .lanes = e->lanes,
                   .panel = sn_panel_columns(e->compute)};
    p.epi_cols = g->half_width ? p.panel / 2 : p.panel;
    if (!gemm_check_pair(g->n, g->half_width, e->compute, &e->err)) return;
    const gemm_quads quads = {g->dtype, g->row, g->col, g->half_width};
    em_val pack = g->prologue  ? NULL
                  : g->quads   ? gemm_emit_quads_pack(e, &p, &quads)
                  : g->packed4 ? gemm_emit_words_pack(e, &p, g)
                               : gemm_emit_pack_b(e, &p, g->dtype, g->row, g->col, g->half_width);
    em_kernel(e, name);
    em_val n = em_size_value(e, g->n), lo, hi;
    em_share(e, em_ceil_div(e, n, p.panel), &lo, &hi);
    em_loop l = em_for(e, lo, hi, 1);
    em_val col = gemm_first_column(e, &p, g->half_width, l.i);
    em_val left = em_sub(e, n, col); /* half panels are whole if there are several blocks */
    if (g->half_width && g->n.value == 2 * g->half_width) left = em_sub(e, left, g->half_width);
    if (g->prologue)
        gemm_emit_pack_groups(e, &p, g, l.i, col, left);
    else
        pack_panel(e, &p, g, pack, l.i, col, left);
    em_end(e, &l);
    em_end_kernel(e);
}
