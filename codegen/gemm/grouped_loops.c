/* grouped_loops.c: the loop nest of products by the integer units (grouped_int.c).
 *
 *   for ic by MC rows: pack A, with its sums over scale groups      (stays in L2)
 *     for jr by panels
 *       for pc by KC of K: unpack the panel and its factors         (stays in L1)
 *         for ir by MR rows, for each NR columns: microkernel
 *       epilogue
 *
 * A single row of 4-bit integers is multiplied with the panels as they are stored. The order of the
 * sums is the same. A call with one row of 8-bit integers widens them to f32 (emit_group_row): their
 * bytes take longer to arrive than to widen. */
#include "codegen/gemm/impl.h"

static int count_ukrs(const gemm_plan *p) {
    int n = 1;
    while (1 << n <= p->ints.mr) n++;
    return n;
}

static bool has_int_row(const gemm_plan *p) {
    return p->g->groups.bits == 4;
}

void gemm_emit_int_functions(em *e, gemm_plan *p) {
    p->fn.int_pack_a = gemm_emit_int_pack_a(e, p);
    if (has_int_row(p)) p->fn.int_row = gemm_emit_int_row(e, p);
    if (gemm_is(p->g->m, 1)) return;
    p->fn.int_unpack = gemm_emit_int_unpack(e, p);
    for (int i = 0; i < count_ukrs(p); i++) p->fn.int_ukr[i] = gemm_emit_int_ukr(e, p, 1 << i);
}

static em_val in_scratch(em *e, int64_t offset) {
    return em_gep_bytes(e, e->scratch, offset);
}

static em_val packed_row(em *e, const gemm_plan *p, em_val row) {
    return em_gep_bytes(e, in_scratch(e, p->a_offset), em_mul(e, row, p->ints.row_bytes));
}

static void pack_rows(em *e, const gemm_plan *p, const gemm_state *s, em_val row, em_val n) {
    gemm_int_pack_a_call(e, p->fn.int_pack_a,
                         (gemm_int_pack_a_args){.buf = e->buf,
                                                .dim = e->dim,
                                                .a = s->a,
                                                .dst = packed_row(e, p, zero(e)),
                                                .row = row,
                                                .n_rows = n,
                                                .batch0 = s->batch[0],
                                                .batch1 = s->batch[1],
                                                .batch2 = s->batch[2]});
}

static gemm_group_panel panel_at(em *e, const gemm_plan *p, const gemm_state *s, em_val panel,
                                 em_val k) {
    return gemm_group_panel_at(e, p, s->b, em_add(e, em_mul(e, panel, s->k), k));
}

static void emit_row(em *e, const gemm_plan *p, const gemm_state *s, em_val row, em_val panel0,
                     em_val panel1) {
    em_branch due = gemm_if_packs(e, s);
    pack_rows(e, p, s, row, one(e));
    gemm_end_packs(e, s, &due);
    em_loop jr = em_for(e, panel0, panel1, 1);
    gemm_group_panel b = panel_at(e, p, s, jr.i, zero(e));
    gemm_int_row_call(e, p->fn.int_row,
                      (gemm_int_row_args){.a = packed_row(e, p, zero(e)),
                                          .q = b.q,
                                          .factors = b.factors,
                                          .outer_scales = b.outer_scales,
                                          .c = e->scratch});
    gemm_call_epilogue(e, p, s, e->scratch, packed_row(e, p, zero(e)), row, one(e), jr.i);
    em_end(e, &jr);
}

static em_val sums_of(em *e, const gemm_plan *p, em_val row) {
    return em_gep(e, e->scratch, p->t, em_mul(e, row, p->panel));
}

static void clear_sums(em *e, const gemm_plan *p, em_val rows) {
    em_loop l = em_for(e, 0, em_mul(e, rows, p->panel), p->lanes);
    em_store(e, p->t, em_gep(e, e->scratch, p->t, l.i), em_vf(e, 0));
    em_end(e, &l);
}

/* The largest power of two up to MR and `left`, as its logarithm. */
static em_val log_rows(em *e, const gemm_plan *p, em_val left) {
    em_val log = zero(e);
    for (int i = 1; i < count_ukrs(p); i++)
        log = em_select(e, em_cmp(e, EM_GE, left, 1 << i), i, log);
    return log;
}

/* Row `row` and following of the packed rows by the unpacked panel: n_groups from k on. */
static void emit_tile(em *e, const gemm_plan *p, em_val row, em_val log, em_val k,
                      em_val n_groups) {
    const gemm_ints *x = &p->ints;
    em_val a = packed_row(e, p, row), group = em_div(e, k, p->g->groups.size);
    em_loop tile = em_for(e, 0, p->panel_tiles, 1);
    em_val col = em_mul(e, em_mul(e, tile.i, p->nr), 4);
    em_val comp = em_add(e, em_mul(e, group, 4), x->comp_offset);
    gemm_int_ukr_args args = {.a = em_gep_bytes(e, a, em_mul(e, k, 4 / x->k_of_word)),
                              .comp = em_gep_bytes(e, a, comp),
                              .b = em_gep_bytes(e, in_scratch(e, x->b_offset), col),
                              .factors = em_gep_bytes(e, in_scratch(e, x->factors_offset), col),
                              .acc = em_gep_bytes(e, sums_of(e, p, row), col),
                              .n_groups = n_groups};
    em_branch br[GEMM_TILE_ROWS];
    int last = count_ukrs(p) - 1;
    for (int i = last; i > 0; i--) {
        br[i] = em_if(e, em_cmp(e, EM_EQ, log, i));
        gemm_int_ukr_call(e, p->fn.int_ukr[i], args);
        em_else(e, &br[i]);
    }
    gemm_int_ukr_call(e, p->fn.int_ukr[0], args);
    for (int i = 1; i <= last; i++) em_endif(e, &br[i]);
    em_end(e, &tile);
}

/* The pc and ir loops of a panel. */
static void multiply_panel(em *e, const gemm_plan *p, const gemm_state *s, em_val panel,
                           em_val rows) {
    em_loop pc = em_for(e, 0, s->k, p->ints.kc);
    em_val kb = em_imin(e, p->ints.kc, em_sub(e, s->k, pc.i));
    em_val n_groups = em_div(e, kb, p->g->groups.size);
    gemm_group_panel b = panel_at(e, p, s, panel, pc.i);
    gemm_int_unpack_call(
        e, p->fn.int_unpack,
        (gemm_int_unpack_args){.q = b.q,
                               .factors = b.factors,
                               .outer_scales = b.outer_scales,
                               .dst = in_scratch(e, p->ints.b_offset),
                               .dst_factors = in_scratch(e, p->ints.factors_offset),
                               .n_groups = n_groups});
    em_loop ir = em_for(e, 0, rows, 1);
    em_val log = log_rows(e, p, em_sub(e, rows, ir.i));
    emit_tile(e, p, ir.i, log, pc.i, n_groups);
    ir.step = em_shl(e, 1, log);
    em_end(e, &ir);
    em_end(e, &pc);
}

static void emit_rows(em *e, const gemm_plan *p, const gemm_state *s, em_val row0, em_val row1,
                      em_val panel0, em_val panel1) {
    em_loop ic = em_for(e, row0, row1, p->ints.mc);
    em_val ib = em_imin(e, p->ints.mc, em_sub(e, row1, ic.i));
    pack_rows(e, p, s, ic.i, ib);
    em_loop jr = em_for(e, panel0, panel1, 1);
    clear_sums(e, p, ib);
    multiply_panel(e, p, s, jr.i, ib);
    em_loop ir = em_for(e, 0, ib, p->ints.mr);
    em_val n = em_imin(e, p->ints.mr, em_sub(e, ib, ir.i));
    gemm_call_epilogue(e, p, s, sums_of(e, p, ir.i), packed_row(e, p, ir.i), em_add(e, ic.i, ir.i),
                       n, jr.i);
    em_end(e, &ir);
    em_end(e, &jr);
    em_end(e, &ic);
}

void gemm_emit_int_loops(em *e, const gemm_plan *p, gemm_state *s, em_val row0, em_val row1,
                         em_val panel0, em_val panel1) {
    if (gemm_is(p->g->m, 1)) {
        if (has_int_row(p)) emit_row(e, p, s, row0, panel0, panel1);
        return;
    }
    em_branch single = {0};
    if (has_int_row(p)) {
        single = em_if(e, em_cmp(e, EM_EQ, s->m, 1));
        emit_row(e, p, s, row0, panel0, panel1);
        em_else(e, &single);
    }
    emit_rows(e, p, s, row0, row1, panel0, panel1);
    if (has_int_row(p)) em_endif(e, &single);
}
