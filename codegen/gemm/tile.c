/* tile.c: one row of microtiles: `rows` rows of an MC block by a panel.
 * Chooses the microkernel, where it reads A and where it writes, what it prefetches, and calls the
 * epilogue when the accumulators are complete. */
#include "codegen/gemm/impl.h"

bool gemm_has_tile(const gemm_plan *p, int rows) {
    return (rows & (rows - 1)) == 0 || (p->odd_tiles && (rows == 3 || rows == 5));
}

bool gemm_halves(const gemm_plan *p, int left_over) {
    int two = 2 * p->half_mr - p->mr; /* left over if both halves are whole */
    if (two > 2) return false;
    bool shorter = p->odd_tiles && gemm_has_tile(p, p->half_mr - 1);
    return left_over > 0 && (left_over == two || (left_over == two - 1 && shorter));
}

/* Rows of the next microtile if `left` rows are left: MR, else the most that a microkernel has. MR +
 * 1 or 2 rows, if that is a power of two, are faster as two microtiles of half the size than as MR and
 * the rest; so is one row less, if there is a microkernel for it: a step of a microtile takes at
 * least the latency of a multiply-add. */
em_val gemm_tile_rows(em *e, const gemm_plan *p, em_val left) {
    em_val rows = one(e);
    for (int r = 2; r < p->mr; r++)
        if (gemm_has_tile(p, r)) rows = em_select(e, em_cmp(e, EM_GE, left, r), r, rows);
    em_val full = em_cmp(e, EM_GE, left, p->mr);
    for (int left_over = 1; left_over < p->mr; left_over++)
        if (gemm_halves(p, left_over))
            full = em_and(e, full, em_cmp(e, EM_NE, left, p->mr + left_over));
    return em_select(e, full, p->mr, rows);
}

/* Packed A of the tile-th microtile, which starts at row ir of the MC block. */
em_val gemm_packed_a(em *e, const gemm_plan *p, const gemm_state *s, em_val tile, em_val ir) {
    em_val row = p->pack_b ? em_add(e, s->ic_offset, ir) : ir;
    em_val slot = p->pack_b ? em_add(e, em_div(e, s->ic_offset, p->mr), tile) : tile;
    em_val offset = p->a_transposed ? em_mul(e, slot, p->kc * p->a_col_stride)
                                    : em_mul(e, row, p->a_row_stride);
    return em_gep(e, em_gep_bytes(e, e->scratch, p->a_offset), p->t, offset);
}

/* The same from column pc on. */
static em_val packed_a_block(em *e, const gemm_plan *p, const gemm_state *s, em_val tile,
                             em_val ir) {
    em_val a = gemm_packed_a(e, p, s, tile, ir);
    return p->keeps_partial_c ? em_gep(e, a, p->t, em_mul(e, s->pc, p->a_col_stride)) : a;
}

/* A of that microtile as the usual microkernels read it: packed, or in place. */
em_val gemm_a_tile(em *e, const gemm_plan *p, const gemm_state *s, em_val tile, em_val ir) {
    if (p->pack_a && !p->pack_a_per_call) return packed_a_block(e, p, s, tile, ir);
    em_val row = em_mul(e, em_add(e, s->ic, ir), em_size_value(e, p->g->a.row));
    return em_gep(e, s->a, p->t, em_add(e, row, s->pc));
}

/* The partial C of a microtile row; the start of scratch if K is a single block. */
static em_val partial_c(em *e, const gemm_plan *p, const gemm_state *s, em_val ir) {
    if (!p->k_blocked) return e->scratch;
    em_val rows = p->keeps_partial_c ? s->ib : em_i64(e, p->mc_outer);
    em_val row = em_mul(e, em_sub(e, s->jr, s->jc), rows);
    row = em_add(e, p->keeps_partial_c ? row : em_add(e, row, s->ic_offset), ir);
    em_val kc = p->keeps_partial_c ? s->kc : em_i64(e, p->kc);
    em_val one_block = em_cmp(e, EM_LE, s->k, kc);
    row = em_select(e, one_block, 0, em_mul(e, row, p->panel));
    return em_gep(e, e->scratch, p->t, row);
}

/* Where the microkernel writes: *c and *c_stride become those of C if the sums are complete (NULL:
 * always) and the panel is whole, else they stay. Returns that condition. */
static em_val choose_direct_c(em *e, const gemm_plan *p, const gemm_state *s, em_val ir,
                              em_val complete, em_val *c, em_val *c_stride) {
    const sn_gemm_operand *o = &p->g->c;
    em_val row = em_mul(e, em_add(e, s->ic, ir), em_size_value(e, o->row));
    em_val col = em_mul(e, s->jr, p->panel);
    em_val at = em_add(e, gemm_offset(e, p->g, o, s->batch), em_add(e, row, col));
    em_val direct = em_cmp(e, EM_LE, em_add(e, col, p->panel), s->n);
    if (complete) direct = em_and(e, direct, complete);
    *c = em_select(e, direct, em_gep(e, em_buf(e, o->buf), p->t, at), *c);
    *c_stride = em_select(e, direct, em_size_value(e, o->row), *c_stride);
    return direct;
}

/* The microkernel of `rows` rows. */
static void call_ukr(em *e, const gemm_plan *p, em_val rows, const gemm_ukr_args *args) {
    em_branch br[GEMM_TILE_ROWS];
    int n = 0;
    for (; n + 1 < p->n_tile_rows; n++) {
        br[n] = em_if(e, em_cmp(e, EM_EQ, rows, p->tile_rows[n]));
        gemm_ukr_call(e, p->fn.ukr[n], *args);
        em_else(e, &br[n]);
    }
    gemm_ukr_call(e, p->fn.ukr[n], *args);
    while (n > 0) em_endif(e, &br[--n]);
}

/* Number of microtiles of panel jr that have columns. */
static em_val count_panel_tiles(em *e, const gemm_plan *p, const gemm_state *s) {
    em_val all = em_i64(e, p->panel_tiles);
    if (p->panel_tiles == 1 || p->g->half_width) return all;
    em_val columns = em_sub(e, s->n, em_mul(e, s->jr, p->panel));
    return em_imin(e, all, em_ceil_div(e, columns, p->nr));
}

/* pack_a_per_call: the microkernel of a full microtile on packed A. The rows of A are needed last
 * in the panel's last microtile (j); there they may be replaced by those of the next MC block. */
static void call_ukr_packed_a(em *e, const gemm_plan *p, const gemm_state *s, gemm_ukr_args args,
                              em_val tile, em_val ir, em_val j) {
    args.a = packed_a_block(e, p, s, tile, ir);
    em_branch packing = {0};
    if (p->pack_in_microkernel) {
        em_val last = em_cmp(e, EM_EQ, em_add(e, j, 1), count_panel_tiles(e, p, s));
        packing = em_if(e, em_and(e, s->packs_next_a, last));
        gemm_ukr_call(e, p->fn.ukr_packing_a, args);
        em_else(e, &packing);
    }
    gemm_ukr_call(e, p->fn.ukr_packed_a, args);
    if (p->pack_in_microkernel) em_endif(e, &packing);
}

void gemm_call_epilogue(em *e, const gemm_plan *p, const gemm_state *s, em_val acc, em_val a,
                        em_val row, em_val rows, em_val panel) {
    em_val col = gemm_first_column(e, p, p->g->half_width, panel);
    gemm_epilogue_call(e, p->fn.epilogue,
                       (gemm_epilogue_args){.buf = e->buf,
                                            .dim = e->dim,
                                            .acc = acc,
                                            .a = a,
                                            .row = row,
                                            .n_rows = rows,
                                            .col = col,
                                            .batch0 = s->batch[0],
                                            .batch1 = s->batch[1],
                                            .batch2 = s->batch[2]});
}

/* The rows of A that a full microtile prefetches: those of the microtile at the same rows of the next MC
 * block, in the last panel; of the next microtile, if there is one panel. */
static void choose_next_a(em *e, const gemm_plan *p, const gemm_state *s, em_val ir,
                          gemm_ukr_args *args) {
    em_val stride = em_size_value(e, p->g->a.row);
    if (gemm_one_panel(p) && (!p->pack_a || p->pack_a_per_call)) {
        args->next_a = em_gep(e, args->a, p->g->a.dtype, em_mul(e, stride, p->mr));
        args->next_a_step = em_i64(e, GEMM_LINE);
        return;
    }
    em_val due = em_cmp(e, EM_NE, s->next_a_step, 0), row = em_mul(e, ir, stride);
    args->next_a = em_select(e, due, em_gep(e, s->next_a, p->g->a.dtype, row), args->a);
    args->next_a_step = s->next_a_step;
}

/* The microtiles of a panel that have columns, one after another. args: those of the first. */
static void emit_panel_tiles(em *e, const gemm_plan *p, const gemm_state *s, gemm_ukr_args args,
                             em_val tile, em_val ir, em_val rows) {
    em_loop l = em_for(e, 0, count_panel_tiles(e, p, s), 1);
    em_val col = em_mul(e, l.i, p->nr);
    if (!p->b_prefetch) { /* its share of the next panel */
        em_val share = em_add(e, em_mul(e, tile, p->panel_tiles), l.i);
        em_val at = em_mul(e, em_mul(e, share, s->kb), s->b_next_step);
        args.b_next = em_gep_bytes(e, s->b_next, at);
    }
    args.b = em_gep(e, args.b, p->b_type, col);
    args.tile = em_gep(e, args.tile, p->t, col);
    args.c = em_gep(e, args.c, p->t, col);
    if (p->prefetch_next_a) choose_next_a(e, p, s, ir, &args);
    if (p->pack_in_microkernel && p->k_blocked) {
        em_val row = em_mul(e, ir, em_size_value(e, p->g->a.row));
        args.next_a = em_gep(e, s->next_a, p->g->a.dtype, em_add(e, row, s->pc));
    }
    em_branch packed = {0};
    if (p->pack_a_per_call) {
        em_val full = em_cmp(e, EM_EQ, rows, p->mr);
        packed = em_if(e, em_and(e, s->packs_a, full));
        call_ukr_packed_a(e, p, s, args, tile, ir, l.i);
        em_else(e, &packed);
    }
    call_ukr(e, p, rows, &args);
    if (p->pack_a_per_call) em_endif(e, &packed);
    em_end(e, &l);
}

/* Rows [ir, ir + rows) of the MC block by panel jr; tile: their number in the ir loop. */
void gemm_emit_tile(em *e, const gemm_plan *p, const gemm_state *s, em_val tile, em_val ir,
                    em_val rows) {
    em_val acc = partial_c(e, p, s, ir);
    gemm_ukr_args args = {.a = gemm_a_tile(e, p, s, tile, ir),
                          .b = s->b_panel,
                          .tile = acc,
                          .k = s->kb,
                          .b_next_step = s->b_next_step,
                          .b_stride = s->b_stride,
                          .next_a_step = zero(e),
                          .pc = s->pc,
                          .c = acc,
                          .c_stride = em_i64(e, p->panel)};
    args.next_a = args.a;
    if (p->b_prefetch) args.b_next = gemm_emit_b_list(e, p, s, ir, rows);
    if (p->g->n_sums) gemm_prefetch_row_sums(e, p, s, ir, rows);
    args.c_list = p->c_prefetch ? gemm_emit_c_list(e, p, s, ir, rows, acc) : e->scratch;
    em_val complete = p->k_blocked ? em_cmp(e, EM_GE, em_add(e, s->pc, s->kb), s->k) : NULL;
    if (p->c_at_once) gemm_prefetch_epilogue(e, p, s, ir, rows, complete);
    em_val to_epilogue = complete; /* NULL: always */
    if (p->direct_c) {
        em_val direct = choose_direct_c(e, p, s, ir, complete, &args.c, &args.c_stride);
        to_epilogue = complete ? em_and(e, complete, em_not(e, direct)) : em_not(e, direct);
    }
    emit_panel_tiles(e, p, s, args, tile, ir, rows);

    em_branch br = {0};
    if (to_epilogue) br = em_if(e, to_epilogue);
    em_val a = p->g->row_scale ? gemm_packed_a(e, p, s, tile, ir) : e->scratch;
    gemm_call_epilogue(e, p, s, acc, a, em_add(e, s->ic, ir), rows, s->jr);
    if (to_epilogue) em_endif(e, &br);
}
