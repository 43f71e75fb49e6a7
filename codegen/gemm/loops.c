/* loops.c: the loop nest of a GEMM kernel, from a thread's share of C down to rows of microtiles.
 *
 * The five loops of BLIS (Goto and van de Geijn 2008; Van Zee and van de Geijn 2015) in two orders:
 *
 *   B packed in advance                      B packed here, or K blocked for mc_outer rows
 *                                            for ic' by mc_outer rows        (packs A or blocks K)
 *   for ic by MC rows: pack A                  for jc by NC panels
 *     for jc by NC panels (keeps_partial_c)      for pc by KC of K (k_blocked): pack B, pack A
 *       for pc by KC of K (keeps_partial_c)        for ic by MC rows
 *         for jr by panels                           for jr by panels
 *           for ir by MR rows                          for ir by MR rows
 *             for each NR columns of the panel: microkernel
 *             epilogue, if these were the last k
 *
 * Left, an MC block of A (3/8 of L2) stays in L2 while all panels of B stream past it once. With short
 * K B stays in L2, an MC block is few microtiles, and it and C are what streams. Right, an
 * NC block of B (1/4 of L2) is packed once and serves all MC blocks, or mc_outer (1024) rows.
 *
 * Assumptions
 *   MR  A microkernel has MR rows or a power of two below MR. The ir loop covers M exactly:
 *       no row beyond M is read.
 *   NR  two or four vectors. A panel has P columns, 128 bytes of the compute type on every ISA; P is a
 *       multiple of NR. Panels are zero beyond N; only the epilogue masks columns.
 *   MC  a multiple of MR. The ic loop divides its rows evenly, so its blocks may be smaller.
 *   KC  a multiple of a cache line, hence of the unrolling, unless it is K. pc ascends, and pc > 0
 *       continues the sums of partial C in scratch: each element of C is one chain of
 *       multiply-adds over k, whatever KC is.
 *   A   read in place at a constant row stride, or packed with padding, so that the MR rows are in
 *       different sets of L1. Packing applies the prologue.
 *   C   any strides, any alignment. Partial C has the layout of panels.
 *   Threads have disjoint shares of C, all of K, and scratch memory of their own, which holds
 *   partial C, packed A, packed B and the prefetch lists. */
#include "codegen/gemm/impl.h"

enum { B_PREFETCH_STEPS = 32 }; /* of k: prefetch distance if a panel serves one microtile row */

/* Rows of a panel that was packed in advance: K, and what is above it. */
static em_val panel_rows(em *e, const gemm_plan *p, const gemm_state *s) {
    return em_add(e, s->k, p->sum_rows);
}

/* Element k of a panel that was packed in advance. */
static em_val packed_panel(em *e, const gemm_plan *p, const gemm_state *s, em_val panel, em_val k) {
    em_val row = em_add(e, em_mul(e, panel, panel_rows(e, p, s)), em_add(e, k, p->sum_rows));
    return em_gep(e, s->b, p->b_type, em_mul(e, row, p->panel));
}

/* Unpacked B: the first column of a panel, from row pc on. */
static em_val b_columns(em *e, const gemm_plan *p, const gemm_state *s, em_val panel) {
    const sn_gemm_operand *b = &p->g->b;
    em_val col = em_mul(e, panel, p->panel);
    em_val k = gemm_elements(e, s->pc, p->dot->k_of_word);
    em_val at = p->g->ragged_k ? zero(e) : em_mul(e, k, em_size_value(e, b->row));
    return em_gep(e, s->b, b->dtype, em_add(e, at, em_mul(e, col, em_size_value(e, b->col))));
}

/* A panel of the NC block that is packed in scratch. */
static em_val nc_block_panel(em *e, const gemm_plan *p, const gemm_state *s, em_val panel) {
    em_val at = em_mul(e, em_sub(e, panel, s->jc), p->kc * p->panel);
    return em_gep(e, em_gep_bytes(e, e->scratch, p->b_offset), p->t, at);
}

static em_val columns_left(em *e, const gemm_plan *p, const gemm_state *s, em_val panel) {
    return em_sub(e, s->n, em_mul(e, panel, p->panel));
}

/* Whether this panel is read in place: only whole panels are. */
static em_val reads_in_place(em *e, const gemm_plan *p, const gemm_state *s, em_val panel) {
    em_val whole = em_cmp(e, EM_GE, columns_left(e, p, s, panel), p->panel);
    return em_and(e, s->b_in_place, whole);
}

/* ---- B of grouped integers ---- */

static void dequantize_block(em *e, const gemm_plan *p, const gemm_state *s, em_val lo, em_val hi) {
    em_loop l = em_for(e, lo, hi, 1);
    em_val first = em_add(e, em_mul(e, l.i, s->k), s->pc);
    first = gemm_elements(e, first, p->dot->k_of_word);
    em_val kb = gemm_elements(e, s->kb, p->dot->k_of_word);
    gemm_group_panel b = gemm_group_panel_at(e, p, s->b, first);
    gemm_dequantize_call(e, p->fn.dequantize,
                         (gemm_dequantize_args){.q = b.q,
                                                .factors = b.factors,
                                                .outer_scales = b.outer_scales,
                                                .dst = nc_block_panel(e, p, s, l.i),
                                                .n_groups = em_div(e, kb, p->g->groups.size)});
    em_end(e, &l);
}

static void call_pack_a(em *e, const gemm_plan *p, const gemm_state *s, em_val dst, em_val row,
                        em_val n_rows, em_val pc, em_val kb) {
    gemm_pack_a_call(e, p->fn.pack_a,
                     (gemm_pack_a_args){.buf = e->buf,
                                        .dim = e->dim,
                                        .a = s->a,
                                        .dst = dst,
                                        .row = row,
                                        .n_rows = n_rows,
                                        .pc = pc,
                                        .kb = kb,
                                        .batch0 = s->batch[0],
                                        .batch1 = s->batch[1],
                                        .batch2 = s->batch[2]});
}

/* M = 1: row row0 times panels [lo, hi), with the integers widened in registers. */
static void emit_group_row(em *e, const gemm_plan *p, gemm_state *s, em_val row0, em_val lo,
                           em_val hi) {
    const sn_gemm_groups *g = &p->g->groups;
    em_val row = s->a, sums = em_gep_bytes(e, e->scratch, p->sums_offset);
    if (p->g->n_blocks) {
        em_val of_a = gemm_row_of_a(e, p, gemm_sorted_row(e, s->batch[0], row0));
        row = em_gep(e, s->a, p->t, em_mul(e, of_a, em_size_value(e, p->g->a.row)));
    } else if (p->g->prologue || p->g->a.dtype != p->t || p->joined_k > 1) {
        row = em_gep_bytes(e, e->scratch, p->a_offset);
    }
    em_branch due = gemm_if_packs(e, s);
    if (row != s->a && !p->g->n_blocks) call_pack_a(e, p, s, row, zero(e), one(e), zero(e), s->k);
    if (p->fn.group_sums)
        gemm_group_sums_call(e, p->fn.group_sums, (gemm_group_sums_args){.a = row, .sums = sums});
    gemm_end_packs(e, s, &due);
    em_val row_scale = p->g->row_scale ? gemm_row_of_words(e, p, row) : e->scratch;
    em_loop jr = em_for(e, lo, hi, 1);
    gemm_group_panel b = gemm_group_panel_at(e, p, s->b, em_mul(e, jr.i, p->k.value));
    em_loop j = em_for(e, 0, p->panel_tiles, 1);
    em_val col = em_mul(e, j.i, p->nr);
    gemm_group_row_args args = {.a = row, .sums = sums};
    args.q = em_gep_bytes(e, b.q, em_mul(e, col, g->bits == 4 ? 4 : 1));
    args.factors = em_gep(e, b.factors, g->factor, col);
    args.outer_scales = em_gep(e, b.outer_scales, SN_F16, col);
    args.c = em_gep(e, e->scratch, p->t, col);
    em_branch last = em_if(e, em_cmp(e, EM_EQ, em_add(e, jr.i, 1), s->n_panels));
    gemm_group_row_call(e, p->fn.group_last_row, args);
    em_else(e, &last);
    gemm_group_row_call(e, p->fn.group_row, args);
    em_endif(e, &last);
    em_end(e, &j);
    gemm_call_epilogue(e, p, s, e->scratch, row_scale, row0, one(e), jr.i);
    em_end(e, &jr);
}

/* ---- packing ---- */

/* Packs panels [lo, hi) of the NC block, rows [pc, pc + kb). */
static void pack_b_block(em *e, const gemm_plan *p, const gemm_state *s, em_val lo, em_val hi) {
    if (p->fn.dequantize) {
        dequantize_block(e, p, s, lo, hi);
        return;
    }
    em_loop l = em_for(e, lo, hi, 1);
    em_branch br = {0};
    if (p->b_in_place) {
        br = em_if(e, reads_in_place(e, p, s, l.i));
        em_else(e, &br);
    }
    em_val src = b_columns(e, p, s, l.i), sorted = zero(e);
    const int of_word = p->dot->k_of_word;
    em_val k = p->g->ragged_k ? s->batch[1] : em_size_value(e, p->k);
    em_val kb = gemm_block_elements(e, k, s->pc, s->kb, of_word);
    if (p->g->ragged_k) sorted = em_add(e, s->batch[2], em_mul(e, s->pc, 8 * of_word));
    gemm_pack_b_call(e, p->fn.pack_b,
                     (gemm_pack_b_args){.buf = e->buf,
                                        .dim = e->dim,
                                        .src = src,
                                        .dst = nc_block_panel(e, p, s, l.i),
                                        .kb = kb,
                                        .n_cols = columns_left(e, p, s, l.i),
                                        .sorted = sorted});
    if (p->b_in_place) em_endif(e, &br);
    em_end(e, &l);
}

/* Packs rows [first, first + n) of A as rows ir and following of an MC block. */
static void pack_rows(em *e, const gemm_plan *p, const gemm_state *s, em_val first, em_val n,
                      em_val ir) {
    em_val pc = p->keeps_partial_c ? zero(e) : s->pc, kb = p->keeps_partial_c ? s->k : s->kb;
    call_pack_a(e, p, s, gemm_packed_a(e, p, s, zero(e), ir), first, n, pc, kb);
}

/* Packs rows [from, to) of the next MC block, as far as they exist. */
static void pack_next_rows(em *e, const gemm_plan *p, const gemm_state *s, em_val from, em_val to) {
    em_val n = em_sub(e, em_imin(e, to, s->next_ib), from);
    em_branch br = em_if(e, em_cmp(e, EM_GT, n, 0));
    pack_rows(e, p, s, em_add(e, s->next_ic, from), n, from);
    em_endif(e, &br);
}

/* Packs the MC block. Transposed A is packed by microtiles. */
static void pack_a_block(em *e, const gemm_plan *p, const gemm_state *s) {
    if (!p->a_transposed) {
        pack_rows(e, p, s, s->ic, s->ib, zero(e));
        return;
    }
    em_loop tile = em_for(e, 0, s->n_tiles, 1);
    em_val ir = zero(e);
    em_carries(e, &tile, &ir, 1);
    em_val rows = gemm_tile_rows(e, p, em_sub(e, s->ib, ir));
    em_val dst = gemm_packed_a(e, p, s, tile.i, ir);
    call_pack_a(e, p, s, dst, em_add(e, s->ic, ir), rows, s->pc, s->kb);
    ir = em_add(e, ir, rows);
    em_end(e, &tile);
}

/* ---- jr and ir loops ---- */

/* Sets what the state says about panel jr: where it is, what is prefetched meanwhile. hi: the end
 * of the jr loop. */
static void begin_panel(em *e, const gemm_plan *p, gemm_state *s, em_val hi) {
    em_val width = em_i64(e, p->panel);
    s->b_stride = width;
    if (!p->pack_b) {
        s->b_panel = packed_panel(e, p, s, s->jr, s->pc);
        em_val alone = em_cmp(e, EM_EQ, s->n_tiles, 1); /* prefetches this panel, not the next */
        em_val distance = em_select(e, alone, B_PREFETCH_STEPS, panel_rows(e, p, s));
        s->b_next = em_gep(e, s->b_panel, p->b_type, em_mul(e, distance, width));
        em_val last = em_cmp(e, EM_EQ, em_add(e, s->jr, 1), hi);
        s->b_next = em_select(e, em_and(e, last, s->has_next_panel), s->next_panel, s->b_next);
        s->is_last_panel = s->ends_use_of_a = em_and(e, last, s->has_next_block);
        if (p->keeps_partial_c) {
            s->ends_use_of_a = em_and(e, s->is_last_panel, s->is_last_nc);
            s->is_last_panel = em_and(e, s->is_last_panel, s->is_last_block);
        }
        s->next_a_step = em_select(e, s->is_last_panel, GEMM_LINE, 0);
        return;
    }
    em_val last = em_sub(e, hi, 1);
    s->b_next = nc_block_panel(e, p, s, em_imin(e, em_add(e, s->jr, 1), last));
    s->b_panel = nc_block_panel(e, p, s, s->jr);
    if (!p->b_in_place) return;
    em_val in_place = reads_in_place(e, p, s, s->jr);
    s->b_panel = em_select(e, in_place, b_columns(e, p, s, s->jr), s->b_panel);
    s->b_stride = em_select(e, in_place, em_size_value(e, p->g->b.row), width);
}

/* M = 1 and narrow panels: panel i of the first half of [lo, hi) together with panel i of the
 * second half, so that both halves are read sequentially. Returns the first panel that remains. */
static em_val emit_panel_pairs(em *e, const gemm_plan *p, gemm_state *s, em_val lo, em_val hi) {
    em_val single = em_cmp(e, EM_EQ, s->ib, 1);
    if (p->keeps_partial_c) single = em_and(e, single, em_cmp(e, EM_EQ, s->kb, s->k));
    em_branch br = em_if(e, single);
    em_val half = em_ashr(e, em_sub(e, hi, lo), one(e));
    em_val panel = em_mul(e, panel_rows(e, p, s), p->panel), distance = em_mul(e, half, panel);
    em_val second_acc = em_gep(e, e->scratch, p->t, p->panel);
    em_loop l = em_for(e, 0, half, 1);
    em_val first = em_add(e, lo, l.i), b = packed_panel(e, p, s, first, zero(e));
    em_loop j = em_for(e, 0, p->panel_tiles, 1);
    em_val col = em_mul(e, j.i, p->nr);
    gemm_ukr_call(e, p->fn.ukr_1x2,
                  (gemm_ukr_args){.a = gemm_a_tile(e, p, s, zero(e), zero(e)),
                                  .b = em_gep(e, b, p->b_type, col),
                                  .tile = em_gep(e, e->scratch, p->t, col),
                                  .k = s->k,
                                  .b_next = b,
                                  .b_next_step = zero(e),
                                  .b_stride = distance,
                                  .c_list = e->scratch,
                                  .next_a = b,
                                  .next_a_step = zero(e),
                                  .pc = zero(e),
                                  .c = e->scratch,
                                  .c_stride = zero(e)});
    em_end(e, &j);
    em_val a = p->g->row_scale ? gemm_packed_a(e, p, s, zero(e), zero(e)) : e->scratch;
    gemm_call_epilogue(e, p, s, e->scratch, a, s->ic, one(e), first);
    gemm_call_epilogue(e, p, s, second_acc, a, s->ic, one(e), em_add(e, first, half));
    em_end(e, &l);
    em_val rest = em_add(e, lo, em_add(e, half, half));
    em_endif(e, &br);
    return em_join(e, &br, rest, lo);
}

/* A full MC block by the whole ones of panels [lo, hi). Returns the first panel that remains. */
static em_val emit_block(em *e, const gemm_plan *p, const gemm_state *s, em_val lo, em_val hi) {
    const sn_gemm_operand *o = &p->g->c;
    em_val whole = em_imin(e, hi, em_div(e, s->n, p->panel));
    em_branch br = em_if(e, em_cmp(e, EM_EQ, s->ib, p->mc));
    em_val row = em_mul(e, s->ic, em_size_value(e, o->row)), col = em_mul(e, lo, p->panel);
    em_val at = em_add(e, gemm_offset(e, p->g, o, s->batch), em_add(e, row, col));
    gemm_block_call(e, p->fn.block,
                    (gemm_block_args){.a = gemm_a_tile(e, p, s, zero(e), zero(e)),
                                      .b = packed_panel(e, p, s, lo, s->pc),
                                      .c = em_gep(e, em_buf(e, o->buf), p->t, at),
                                      .c_stride = em_size_value(e, o->row),
                                      .n_panels = em_sub(e, whole, lo)});
    em_val rest = em_imax(e, lo, whole);
    em_endif(e, &br);
    return em_join(e, &br, rest, lo);
}

/* symmetric: the end of the panels before `hi` that have columns of the first `rows` rows' triangle. */
static em_val panels_up_to(em *e, const gemm_plan *p, em_val rows, em_val hi) {
    return em_imin(e, hi, em_ceil_div(e, rows, p->panel));
}

/* The ir loop: the microtile rows of the MC block. Behind the last panel they are replaced by rows
 * of the next block (pack_next_a), in the microkernel where both are full microtiles. */
static void emit_ir(em *e, const gemm_plan *p, gemm_state *s) {
    em_loop tile = em_for(e, 0, s->n_tiles, 1);
    em_val ir = zero(e);
    em_carries(e, &tile, &ir, 1);
    em_val rows = gemm_tile_rows(e, p, em_sub(e, s->ib, ir));
    em_val end = em_add(e, ir, rows), packs_next = s->is_last_panel;
    if (p->pack_a_per_call) packs_next = em_and(e, packs_next, s->packs_a);
    if (p->pack_in_microkernel) {
        em_val full = em_cmp(e, EM_EQ, rows, p->mr);
        em_val both = em_and(e, full, em_cmp(e, EM_LE, end, s->next_ib));
        s->packs_next_a = em_and(e, em_and(e, s->ends_use_of_a, s->packs_a), both);
        packs_next = em_and(e, packs_next, em_not(e, both));
    }
    em_branch reaches = {0};
    if (p->g->symmetric) { /* the diagonal, or what is below it */
        em_val last = em_add(e, s->ic, end);
        reaches = em_if(e, em_cmp(e, EM_GT, last, em_mul(e, s->jr, p->panel)));
    }
    gemm_emit_tile(e, p, s, tile.i, ir, rows);
    if (p->g->symmetric) em_endif(e, &reaches);
    if (p->pack_next_a) {
        em_branch br = em_if(e, packs_next);
        pack_next_rows(e, p, s, ir, end);
        em_endif(e, &br);
    }
    ir = end;
    em_end(e, &tile);
}

/* The jr loop: the MC block by panels [lo, hi). */
static void emit_jr(em *e, const gemm_plan *p, gemm_state *s, em_val lo, em_val hi) {
    if (p->g->symmetric) hi = panels_up_to(e, p, em_add(e, s->ic, s->ib), hi);
    if (p->fn.ukr_1x2) lo = emit_panel_pairs(e, p, s, lo, hi);
    if (p->fn.block) lo = emit_block(e, p, s, lo, hi);
    em_loop jr = em_for(e, lo, hi, 1);
    s->jr = jr.i;
    begin_panel(e, p, s, hi);
    emit_ir(e, p, s);
    em_end(e, &jr);
    if (p->pack_next_a) { /* the next block may be longer than this one */
        em_val end = p->pack_a_per_call ? em_select(e, s->packs_a, s->next_ib, 0) : s->next_ib;
        if (p->keeps_partial_c) end = em_select(e, s->is_last_block, end, 0);
        pack_next_rows(e, p, s, s->ib, end);
    }
}

/* ---- jc, pc and ic loops ---- */

/* keeps_partial_c: jc and pc loops within an MC block, for panels [lo, hi). */
static void emit_jc_pc(em *e, const gemm_plan *p, gemm_state *s, em_val lo, em_val hi) {
    em_loop jc = em_for(e, lo, hi, p->nc_panels);
    em_val end = em_imin(e, hi, em_add(e, jc.i, p->nc_panels));
    em_val last_jc = em_cmp(e, EM_EQ, end, hi);
    s->jc = jc.i;
    em_loop pc = em_for(e, 0, em_imax(e, s->k, 1), s->kc);
    s->pc = pc.i;
    s->kb = em_imin(e, s->kc, em_sub(e, s->k, pc.i));
    em_val k_end = em_add(e, s->pc, s->kb), last_pc = em_cmp(e, EM_GE, k_end, s->k);
    em_val next_jc = packed_panel(e, p, s, em_select(e, last_jc, lo, end), zero(e));
    s->next_panel = em_select(e, last_pc, next_jc, packed_panel(e, p, s, jc.i, k_end));
    s->is_last_nc = last_jc;
    s->is_last_block = em_and(e, last_jc, last_pc);
    s->has_next_panel = em_or(e, em_not(e, s->is_last_block), s->has_next_block);
    emit_jr(e, p, s, jc.i, end);
    em_end(e, &pc);
    em_end(e, &jc);
}

/* Number of microtiles that gemm_tile_rows makes of n < MR rows. */
static int tiles_of(const gemm_plan *p, int n) {
    int tiles = 0;
    for (int r = p->mr - 1; r >= 1; r--)
        if (gemm_has_tile(p, r)) tiles += n / r, n %= r;
    return tiles;
}

/* Number of microtile rows that gemm_tile_rows makes of n > 0 rows: powers of two are one for each
 * binary digit of the remainder. */
static em_val count_tiles(em *e, const gemm_plan *p, em_val n) {
    em_val rest = em_rem(e, n, p->mr), tiles = em_div(e, n, p->mr);
    em_val more = zero(e);
    if (!p->odd_tiles) more = em_unary_intrinsic(e, "llvm.ctpop", rest);
    for (int r = 1; r < p->mr && p->odd_tiles; r++)
        more = em_select(e, em_cmp(e, EM_EQ, rest, r), tiles_of(p, r), more);
    return em_add(e, tiles, more);
}

/* Number of full microtile rows among them, at least 1: they share the prefetch of a panel. */
static em_val count_full(em *e, const gemm_plan *p, em_val n) {
    em_val full = em_div(e, n, p->mr), rest = em_rem(e, n, p->mr);
    em_val less = em_sub(e, full, 1);
    for (int r = 1; r < p->mr; r++)
        if (gemm_halves(p, r)) full = em_select(e, em_cmp(e, EM_EQ, rest, r), less, full);
    return em_imax(e, full, 1);
}

enum { PACK = 1, MULTIPLY = 2 };

/* The microtile rows [lo, hi) of MC block `index` of `n_blocks`: about as many in each; with short K
 * each but the last is full. */
static void share_mc_block(em *e, const gemm_plan *p, em_val tiles, em_val index, em_val n_blocks,
                           em_val *lo, em_val *hi) {
    if (!p->short_k) {
        gemm_share(e, tiles, index, n_blocks, lo, hi);
        return;
    }
    *lo = em_mul(e, index, p->mc / p->mr);
    *hi = em_imin(e, em_add(e, *lo, p->mc / p->mr), tiles);
}

/* Sets what the state says about MC block `index` of `n_blocks`, which divide `tiles` microtile
 * rows from row0 on. */
static void begin_mc_block(em *e, const gemm_plan *p, gemm_state *s, em_val row0, em_val row1,
                           em_val tiles, em_val index, em_val n_blocks) {
    em_val lo, hi;
    share_mc_block(e, p, tiles, index, n_blocks, &lo, &hi);
    s->ic_offset = em_mul(e, lo, p->mr);
    s->ic = em_add(e, row0, s->ic_offset);
    em_val next = em_add(e, row0, em_mul(e, hi, p->mr));
    s->ib = em_sub(e, em_imin(e, next, row1), s->ic);
    s->has_next_block = em_cmp(e, EM_LT, next, row1);
    if (p->prefetch_next_a || p->pack_next_a) {
        share_mc_block(e, p, tiles, em_add(e, index, 1), n_blocks, &lo, &hi);
        em_val end = em_add(e, row0, em_mul(e, hi, p->mr));
        s->next_ic = next;
        s->next_ib = em_select(e, s->has_next_block, em_sub(e, em_imin(e, end, row1), next), 0);
        s->next_a = em_gep(e, s->a, p->g->a.dtype, em_mul(e, next, em_size_value(e, p->g->a.row)));
    }
    s->has_next_panel = s->has_next_block;
    s->n_tiles = count_tiles(e, p, s->ib);
    em_val sharing = em_mul(e, count_full(e, p, s->ib), p->panel_tiles);
    em_val bytes =
        em_i64(e, p->panel * (int)sn_dtype_size(p->b_type) - 1); /* of a row; rounds up */
    s->b_next_step = em_div(e, em_add(e, bytes, sharing), sharing);
    if (p->keeps_partial_c) s->pc = zero(e), s->kb = s->k;
}

/* The ic loop: rows [row0, row1) by MC blocks, which are packed (PACK), multiplied with panels
 * [panel0, panel1) (MULTIPLY), or both. With pack_next_a only the first block is packed here. */
static void emit_ic(em *e, const gemm_plan *p, gemm_state *s, em_val row0, em_val row1,
                    em_val panel0, em_val panel1, int what) {
    em_val tiles = em_ceil_div(e, em_sub(e, row1, row0), p->mr);
    em_val n_blocks = em_ceil_div(e, tiles, p->mc / p->mr);
    s->n_rows_ic = em_sub(e, row1, row0);
    em_loop ic = em_for(e, 0, n_blocks, 1);
    begin_mc_block(e, p, s, row0, row1, tiles, ic.i, n_blocks);
    if (p->pack_a && what & PACK) {
        em_branch due = {0}, packs = gemm_if_packs(e, s);
        em_val first = em_cmp(e, EM_EQ, ic.i, 0);
        if (p->pack_next_a)
            due = em_if(e, p->pack_a_per_call ? em_and(e, first, s->packs_a) : first);
        pack_a_block(e, p, s);
        if (p->pack_next_a) em_endif(e, &due);
        gemm_end_packs(e, s, &packs);
    }
    if (what & MULTIPLY && p->keeps_partial_c) emit_jc_pc(e, p, s, panel0, panel1);
    if (what & MULTIPLY && !p->keeps_partial_c) emit_jr(e, p, s, panel0, panel1);
    em_end(e, &ic);
}

/* Packs all rows [row0, row1) of A: for the first NC block only, unless K has several blocks. */
static void pack_a_rows(em *e, const gemm_plan *p, gemm_state *s, em_val row0, em_val row1,
                        em_val panel0) {
    em_val due = em_cmp(e, EM_EQ, s->jc, panel0);
    if (p->k_blocked) due = em_or(e, due, em_cmp(e, EM_GT, s->k, p->kc));
    em_branch br = em_if(e, due);
    emit_ic(e, p, s, row0, row1, panel0, panel0, PACK);
    em_endif(e, &br);
}

/* The order on the right: jc, pc, ic. */
static void emit_jc_pc_ic(em *e, const gemm_plan *p, gemm_state *s, em_val row0, em_val row1,
                          em_val panel0, em_val panel1) {
    if (p->g->symmetric) panel1 = panels_up_to(e, p, row1, panel1);
    em_loop jc = em_for(e, panel0, panel1, p->nc_panels), pc;
    em_val end = em_imin(e, panel1, em_add(e, jc.i, p->nc_panels));
    s->jc = jc.i;
    s->panel_end = panel1;
    s->pc = zero(e);
    s->kb = s->k;
    if (p->k_blocked) {
        pc = em_for(e, 0, em_imax(e, s->k, 1), p->kc);
        s->pc = pc.i;
        s->kb = em_imin(e, p->kc, em_sub(e, s->k, pc.i));
    }
    bool packs_both = p->pack_b && p->pack_a;
    if (p->pack_b)
        pack_b_block(e, p, s, jc.i, end);
    else
        s->next_panel = packed_panel(e, p, s, jc.i, s->pc);
    if (packs_both) pack_a_rows(e, p, s, row0, row1, panel0);
    emit_ic(e, p, s, row0, row1, jc.i, end, packs_both ? MULTIPLY : PACK | MULTIPLY);
    if (p->k_blocked) em_end(e, &pc);
    em_end(e, &jc);
}

/* The order on the left. */
static void emit_ic_jc_pc(em *e, const gemm_plan *p, gemm_state *s, em_val row0, em_val row1,
                          em_val panel0, em_val panel1) {
    s->packs_a = em_cmp(e, EM_GE, em_sub(e, panel1, panel0), p->pack_a_panels);
    s->jc = panel0;
    s->next_panel = packed_panel(e, p, s, panel0, zero(e));
    s->pc = zero(e);
    s->kb = s->k;
    if (p->keeps_partial_c) { /* few rows stay in L2 with all of K */
        em_val max_rows = em_i64(e, p->mc_bytes / p->esize / p->g->k.value);
        em_val few = em_cmp(e, EM_LE, em_sub(e, row1, row0), max_rows);
        s->kc = em_select(e, few, s->k, p->kc);
    }
    emit_ic(e, p, s, row0, row1, panel0, panel1, PACK | MULTIPLY);
}

void gemm_emit_loops(em *e, const gemm_plan *p, gemm_state *s, em_val row0, em_val row1,
                     em_val panel0, em_val panel1) {
    em_branch single = {0};
    if (p->fn.group_row) {
        single = em_if(e, em_cmp(e, EM_EQ, s->m, 1));
        emit_group_row(e, p, s, p->g->n_blocks ? row0 : zero(e), panel0, panel1);
        em_else(e, &single);
    }
    if (p->ints.on) {
        gemm_emit_int_loops(e, p, s, row0, row1, panel0, panel1);
        if (p->fn.group_row) em_endif(e, &single);
        return;
    }
    if (p->b_in_place) s->b_in_place = em_cmp(e, EM_LE, em_sub(e, row1, row0), p->mr * p->nv);
    if (p->keeps_partial_c || (!p->k_blocked && !p->pack_b)) {
        emit_ic_jc_pc(e, p, s, row0, row1, panel0, panel1);
    } else if (!p->k_blocked && !p->pack_a) {
        emit_jc_pc_ic(e, p, s, row0, row1, panel0, panel1);
    } else { /* scratch holds partial C or packed A of these rows */
        em_loop ic = em_for(e, row0, row1, p->mc_outer);
        em_val end = em_imin(e, row1, em_add(e, ic.i, p->mc_outer));
        emit_jc_pc_ic(e, p, s, ic.i, end, panel0, panel1);
        em_end(e, &ic);
    }
    if (p->fn.group_row) em_endif(e, &single);
}
