/* gemm.c: the loops of a GEMM kernel: threads, batch, row groups, panels, tiles.
 * A group of A's rows (768 KB) stays in L2 while panels of B pass by; each panel meets the
 * group's tiles one after the other. Panels that are packed here are made a block (512 KB) at a
 * time, which then serves all groups: a thread packs each of its columns once, or once for 1024
 * rows. */
#include "codegen/gemm/impl.h"

enum {
    GEMM_COPY_PANELS = 20,    /* for so many A's rows are copied only because they lie badly */
    GEMM_FETCH_STEPS = 32,    /* of k, that a tile alone with its panel fetches ahead */
    GEMM_MOST_ROW_PARTS = 64, /* of a grid of rows and columns */
    GEMM_ROW_UNIT = 8,        /* threads share rows by so many */
    GEMM_TAIL = 8,            /* long products: this part of the rows is drawn, not shared, */
    GEMM_TAIL_TILES = 8,      /* at least: fewer would wait for B */
    GEMM_DRAWS = 256,         /* in about so many parts (of the whole) for each thread */
};

em_val gemm_size(em *e, sn_gemm_size s) {
    return s.slot < 0 ? em_i64(e, s.value) : em_dim(e, s.slot);
}

em_val gemm_first_column(em *e, const gemm_plan *p, int64_t pair, em_val panel) {
    em_val first = em_mul(e, panel, em_i64(e, p->epi_cols));
    if (!pair) return first;
    em_val h = em_i64(e, pair); /* behind the second halves of the blocks before */
    return em_add(e, first, em_mul(e, em_div(e, first, h), h));
}

em_val gemm_offset(em *e, const sn_gemm *g, const sn_gemm_operand *o, const em_val *batch) {
    em_val at = gemm_size(e, o->offset);
    for (int i = 0; i < g->n_batch; i++)
        at = em_add(e, at, em_mul(e, batch[i], gemm_size(e, o->batch[i])));
    return at;
}

em_val gemm_function(em *e, const gemm_plan *p, const char *suffix, const em_type *params, int n,
                     bool keep) {
    char name[256];
    snprintf(name, sizeof name, "%s.%s", p->name, suffix);
    em_val fn = em_function(e, name, e->tvoid, params, n);
    if (keep) {
        unsigned kind = LLVMGetEnumAttributeKindForName("noinline", 8);
        LLVMAddAttributeAtIndex(fn, LLVMAttributeFunctionIndex,
                                LLVMCreateEnumAttribute(e->ctx, kind, 0));
    }
    return fn;
}

static em_val zero(em *e) {
    return em_i64(e, 0);
}
static em_val one(em *e) {
    return em_i64(e, 1);
}

/* The start of part i when n things are shared evenly over c parts. */
static em_val cut(em *e, em_val n, em_val i, em_val c) {
    return em_div(e, em_mul(e, n, i), c);
}

static void share(em *e, em_val n, em_val part, em_val parts, em_val *lo, em_val *hi) {
    *lo = cut(e, n, part, parts);
    *hi = cut(e, n, em_add(e, part, one(e)), parts);
}

/* Rows of a tile where `left` rows are left: the most that the registers hold, then 8, 4, 2, 1.
 * Two more than the most are better served in halves. */
static em_val choose_rows(em *e, const gemm_plan *p, em_val left) {
    em_val rows = one(e);
    for (int r = 2; r < p->mr; r *= 2)
        rows = em_select(e, em_cmp(e, EM_GE, left, em_i64(e, r)), em_i64(e, r), rows);
    em_val full = em_cmp(e, EM_GE, left, em_i64(e, p->mr));
    em_val halves = em_cmp(e, EM_EQ, left, em_i64(e, p->mr + 2));
    return em_select(e, em_and(e, full, em_not(e, halves)), em_i64(e, p->mr), rows);
}

static void call_micro(em *e, const gemm_plan *p, em_val rows, const em_val *args) {
    em_branch br[GEMM_TILE_ROWS];
    int n = 0;
    for (; n + 1 < p->n_tile_rows; n++) {
        br[n] = em_if(e, em_cmp(e, EM_EQ, rows, em_i64(e, p->tile_rows[n])));
        em_call(e, p->fn.ukr[n], args, GEMM_UKR_PARAMS);
        em_else(e, &br[n]);
    }
    em_call(e, p->fn.ukr[n], args, GEMM_UKR_PARAMS);
    while (n > 0) em_endif(e, &br[--n]);
}

/* Epilogue and store of the sums of `rows` rows from row `row` on, in a panel. */
static void call_finish(em *e, const gemm_plan *p, const gemm_state *s, em_val sums, em_val row,
                        em_val rows, em_val panel) {
    em_val col = gemm_first_column(e, p, p->g->pair_distance, panel);
    em_val args[] = {e->buf, e->dim, sums, row, rows, col, s->batch[0], s->batch[1], s->batch[2]};
    em_call(e, p->fn.epilogue, args, 9);
}

/* Where the i-th tile, from row `start` of the group on, lies in the copy of A. */
static em_val copy_from(em *e, const gemm_plan *p, const gemm_state *s, em_val i, em_val start) {
    em_val row = p->pack_b ? em_add(e, s->ic_offset, start) : start;
    em_val slot = p->pack_b ? em_add(e, em_div(e, s->ic_offset, em_i64(e, p->mr)), i) : i;
    em_val from = p->a_transposed ? em_mul(e, slot, em_i64(e, p->kc * p->a_col_stride))
                                  : em_mul(e, row, em_i64(e, p->a_row_stride));
    return em_at(e, em_at_bytes(e, e->scratch, em_i64(e, p->a_offset)), p->t, from);
}

/* ... from column k0 on. */
static em_val copied_from(em *e, const gemm_plan *p, const gemm_state *s, em_val i, em_val start) {
    em_val from = copy_from(e, p, s, i, start);
    return p->keeps_partial_c ? em_at(e, from, p->t, s->pc) : from;
}

/* The same for the micro-kernel: there, or in A itself. */
static em_val rows_from(em *e, const gemm_plan *p, const gemm_state *s, em_val i, em_val start) {
    if (p->pack_a && !p->pack_a_per_call) return copied_from(e, p, s, i, start);
    em_val row = em_mul(e, em_add(e, s->ic, start), gemm_size(e, p->g->a.row));
    return em_at(e, s->a, p->t, em_add(e, row, s->pc));
}

/* Where the sums of the tile from row `start` of the group on go: to C itself if they are complete
 * (NULL: always) and the panel is whole. Returns whether that is so; else leaves *to as it
 * is. */
static em_val choose_target(em *e, const gemm_plan *p, const gemm_state *s, em_val start,
                            em_val complete, em_val *to, em_val *to_row) {
    const sn_gemm_operand *c = &p->g->c;
    em_val row = em_mul(e, em_add(e, s->ic, start), gemm_size(e, c->row));
    em_val first = em_mul(e, s->jr, em_i64(e, p->panel));
    em_val at = em_add(e, gemm_offset(e, p->g, c, s->batch), em_add(e, row, first));
    em_val whole = em_cmp(e, EM_LE, em_add(e, first, em_i64(e, p->panel)), s->n);
    if (complete) whole = em_and(e, whole, complete);
    *to = em_select(e, whole, em_at(e, em_buf(e, c->buf), p->t, at), *to);
    *to_row = em_select(e, whole, gemm_size(e, c->row), *to_row);
    return whole;
}

/* The tile of `rows` rows from row `start` of the group on, the i-th in order. */
static void emit_tile(em *e, const gemm_plan *p, const gemm_state *s, em_val i, em_val start,
                      em_val rows) {
    em_val tile = e->scratch;
    if (p->k_blocked) {
        em_val side = p->keeps_partial_c ? s->ib : em_i64(e, p->mc_outer);
        em_val at = em_mul(e, em_sub(e, s->jr, s->jc), side);
        at = em_add(e, p->keeps_partial_c ? at : em_add(e, at, s->ic_offset), start);
        em_val some = p->keeps_partial_c ? s->kc : em_i64(e, p->kc);
        em_val single = em_cmp(e, EM_LE, s->k, some); /* nothing waits */
        at = em_select(e, single, zero(e), em_mul(e, at, em_i64(e, p->panel)));
        tile = em_at(e, tile, p->t, at);
    }
    em_val a = rows_from(e, p, s, i, start);
    em_val next = s->b_next;
    if (p->b_prefetch)
        next = gemm_emit_b_prefetch_list(e, p, s, start, rows);
    else
        next = em_at_bytes(e, next, em_mul(e, em_mul(e, i, s->kb), s->b_next_step));
    if (p->g->n_sums) gemm_prefetch_row_sums(e, p, s, start, rows);
    em_val own = p->c_prefetch ? gemm_emit_c_prefetch_list(e, p, s, start, rows, tile) : e->scratch;
    em_val complete = p->k_blocked ? em_cmp(e, EM_GE, em_add(e, s->pc, s->kb), s->k) : NULL;
    em_val to = tile, to_row = em_i64(e, p->panel), rest = complete; /* what is left to finish */
    if (p->direct_c) {
        em_val there = choose_target(e, p, s, start, complete, &to, &to_row);
        rest = complete ? em_and(e, complete, em_not(e, there)) : em_not(e, there);
    }
    em_loop part = em_for(e, zero(e), em_i64(e, p->panel_tiles), one(e));
    em_val col = em_mul(e, part.i, em_i64(e, p->nr));
    em_val args[] = {a,
                     em_at(e, s->b_panel, p->b_type, col),
                     em_at(e, tile, p->t, col),
                     s->kb,
                     next,
                     s->b_next_step,
                     s->b_stride,
                     own,
                     a,
                     zero(e),
                     s->pc,
                     em_at(e, to, p->t, col),
                     to_row};
    if (p->prefetch_next_a) { /* the tile that lies there in the next group */
        em_val row = em_mul(e, start, gemm_size(e, p->g->a.row));
        em_val due = em_cmp(e, EM_NE, s->next_a_step, zero(e));
        args[8] = em_select(e, due, em_at(e, s->next_a, p->g->a.dtype, row), a);
        args[9] = s->next_a_step;
    }
    em_branch copied = {0};
    if (p->pack_a_per_call) {
        em_val full = em_cmp(e, EM_EQ, rows, em_i64(e, p->mr));
        copied = em_if(e, em_and(e, s->packs_a, full));
        args[0] = copied_from(e, p, s, i, start);
        em_branch taken = {0};
        if (p->pack_in_microkernel) {
            em_val part_last = em_cmp(e, EM_EQ, part.i, em_i64(e, p->panel_tiles - 1));
            taken = em_if(e, em_and(e, s->packs_next_a, part_last));
            em_call(e, p->fn.ukr_packing_a, args, GEMM_UKR_PARAMS);
            em_else(e, &taken);
        }
        em_call(e, p->fn.ukr_packed_a, args, GEMM_UKR_PARAMS);
        if (p->pack_in_microkernel) em_endif(e, &taken);
        em_else(e, &copied);
        args[0] = a;
    }
    call_micro(e, p, rows, args);
    if (p->pack_a_per_call) em_endif(e, &copied);
    em_end(e, &part);

    em_branch br = {0};
    if (rest) br = em_if(e, rest);
    call_finish(e, p, s, tile, em_add(e, s->ic, start), rows, s->jr);
    if (rest) em_endif(e, &br);
}

/* Where columns from panel `panel` on lie, from row k0 of B on. */
static em_val columns_from(em *e, const gemm_plan *p, const gemm_state *s, em_val panel) {
    const sn_gemm_operand *b = &p->g->b;
    em_val col = em_mul(e, panel, em_i64(e, p->panel));
    em_val at = em_mul(e, s->pc, gemm_size(e, b->row));
    return em_at(e, s->b, b->dtype, em_add(e, at, em_mul(e, col, gemm_size(e, b->col))));
}

/* A panel of the block in scratch. */
static em_val block_at(em *e, const gemm_plan *p, const gemm_state *s, em_val panel) {
    em_val at = em_mul(e, em_sub(e, panel, s->jc), em_i64(e, p->kc * p->panel));
    return em_at(e, em_at_bytes(e, e->scratch, em_i64(e, p->b_offset)), p->t, at);
}

static em_val columns_left(em *e, const gemm_plan *p, const gemm_state *s, em_val panel) {
    return em_sub(e, s->n, em_mul(e, panel, em_i64(e, p->panel)));
}

/* May the panel be read where it lies? It must be whole. */
static em_val reads_in_place(em *e, const gemm_plan *p, const gemm_state *s, em_val panel) {
    em_val whole = em_cmp(e, EM_GE, columns_left(e, p, s, panel), em_i64(e, p->panel));
    return em_and(e, s->b_in_place, whole);
}

/* Where row k0 of a panel of 4-bit integers and of its factors begin. */
static void four_from(em *e, const gemm_plan *p, const gemm_state *s, em_val panel, em_val k0,
                      em_val *words, em_val *factors) {
    em_val k = em_add(e, em_mul(e, panel, s->k), k0), width = em_i64(e, p->panel);
    em_val row = em_div(e, k, em_i64(e, INT4_PER_WORD)),
           group = em_div(e, k, em_i64(e, p->g->scale_group));
    *words = em_at(e, s->b, SN_I32, em_mul(e, row, width));
    *factors = em_at(e, em_buf(e, p->g->scale_buf), SN_BF16, em_mul(e, group, width));
}

static void widen_block(em *e, const gemm_plan *p, const gemm_state *s, em_val lo, em_val hi) {
    em_loop l = em_for(e, lo, hi, one(e));
    em_val args[4];
    four_from(e, p, s, l.i, s->pc, &args[0], &args[1]);
    args[2] = block_at(e, p, s, l.i);
    args[3] = em_div(e, s->kb, em_i64(e, p->g->scale_group));
    em_call(e, p->fn.int4_dequantize, args, 4);
    em_end(e, &l);
}

/* A product of one row, from the 4-bit integers themselves. */
static void emit_four_row(em *e, const gemm_plan *p, gemm_state *s, em_val lo, em_val hi) {
    em_val row = s->a;
    if (p->g->prologue) {
        row = em_at_bytes(e, e->scratch, em_i64(e, p->a_offset));
        em_val copy[] = {e->buf,  e->dim, s->a,        row,         zero(e),    one(e),
                         zero(e), s->k,   s->batch[0], s->batch[1], s->batch[2]};
        em_call(e, p->fn.pack_a, copy, 11);
    }
    em_loop l = em_for(e, lo, hi, one(e));
    em_loop part = em_for(e, zero(e), em_i64(e, p->panel_tiles), one(e));
    em_val col = em_mul(e, part.i, em_i64(e, p->nr));
    em_val args[4] = {row};
    four_from(e, p, s, l.i, zero(e), &args[1], &args[2]);
    args[1] = em_at(e, args[1], SN_I32, col);
    args[2] = em_at(e, args[2], SN_BF16, col);
    args[3] = em_at(e, e->scratch, p->t, col);
    em_branch last = em_if(e, em_cmp(e, EM_EQ, em_add(e, l.i, one(e)), s->n_panels));
    em_call(e, p->fn.int4_last_row, args, 4);
    em_else(e, &last);
    em_call(e, p->fn.int4_row, args, 4);
    em_endif(e, &last);
    em_end(e, &part);
    call_finish(e, p, s, e->scratch, zero(e), one(e), l.i);
    em_end(e, &l);
}

/* Packs the panels [lo, hi) of the block, rows k0 .. k0 + kn. */
static void pack_block(em *e, const gemm_plan *p, const gemm_state *s, em_val lo, em_val hi) {
    if (p->fn.int4_dequantize) {
        widen_block(e, p, s, lo, hi);
        return;
    }
    em_loop l = em_for(e, lo, hi, one(e));
    em_branch br = {0};
    if (p->b_in_place) {
        br = em_if(e, reads_in_place(e, p, s, l.i));
        em_else(e, &br);
    }
    em_val src = columns_from(e, p, s, l.i);
    em_val args[] = {
        e->buf, e->dim, src, block_at(e, p, s, l.i), s->kb, columns_left(e, p, s, l.i)};
    em_call(e, p->fn.pack_b, args, 6);
    if (p->b_in_place) em_endif(e, &br);
    em_end(e, &l);
}

/* Finds the panel's elements: packed ahead, in place, or in the block that was packed before. `hi`:
 * the end of the panels that are there. */
static void emit_panel_source(em *e, const gemm_plan *p, gemm_state *s, em_val hi) {
    em_val width = em_i64(e, p->panel);
    s->b_stride = width;
    if (!p->pack_b) {
        em_val at = em_mul(e, em_add(e, em_mul(e, s->jr, s->k), s->pc), width);
        s->b_panel = em_at(e, s->b, p->b_type, at);
        em_val alone = em_cmp(e, EM_EQ, s->n_tiles, one(e)); /* fetch this panel, else the next */
        em_val ahead = em_select(e, alone, em_i64(e, GEMM_FETCH_STEPS), s->k);
        s->b_next = em_at(e, s->b_panel, p->b_type, em_mul(e, ahead, width));
        em_val last = em_cmp(e, EM_EQ, em_add(e, s->jr, one(e)), hi);
        s->b_next = em_select(e, em_and(e, last, s->has_next_panel), s->next_panel, s->b_next);
        s->is_last_panel = em_and(e, last, s->has_next_block);
        if (p->keeps_partial_c) s->is_last_panel = em_and(e, s->is_last_panel, s->is_last_block);
        s->next_a_step = em_select(e, s->is_last_panel, em_i64(e, GEMM_LINE), zero(e));
        return;
    }
    em_val last = em_sub(e, hi, one(e));
    s->b_next = block_at(e, p, s, em_imin(e, em_add(e, s->jr, one(e)), last));
    s->b_panel = block_at(e, p, s, s->jr);
    if (!p->b_in_place) return;
    em_val there = reads_in_place(e, p, s, s->jr);
    s->b_panel = em_select(e, there, columns_from(e, p, s, s->jr), s->b_panel);
    s->b_stride = em_select(e, there, gemm_size(e, p->g->b.row), width);
}

/* A row alone with narrow panels: panel i of the first half together with panel i of the second, so
 * that both are read as they lie. Returns the first panel that is left. */
static em_val emit_twins(em *e, const gemm_plan *p, gemm_state *s, em_val lo, em_val hi) {
    em_val single = em_cmp(e, EM_EQ, s->ib, one(e));
    if (p->keeps_partial_c) single = em_and(e, single, em_cmp(e, EM_EQ, s->kb, s->k));
    em_branch alone = em_if(e, single);
    em_val half = em_ashr(e, em_sub(e, hi, lo), one(e));
    em_val panel = em_mul(e, s->k, em_i64(e, p->panel)), apart = em_mul(e, half, panel);
    em_val second = em_at(e, e->scratch, p->t, em_i64(e, p->panel));
    em_loop l = em_for(e, zero(e), half, one(e));
    em_val first = em_add(e, lo, l.i), b = em_at(e, s->b, p->b_type, em_mul(e, first, panel));
    em_loop part = em_for(e, zero(e), em_i64(e, p->panel_tiles), one(e));
    em_val col = em_mul(e, part.i, em_i64(e, p->nr));
    em_val args[] = {rows_from(e, p, s, zero(e), zero(e)),
                     em_at(e, b, p->b_type, col),
                     em_at(e, e->scratch, p->t, col),
                     s->k,
                     b,
                     zero(e),
                     apart,
                     e->scratch,
                     b,
                     zero(e),
                     zero(e),
                     e->scratch,
                     zero(e)};
    em_call(e, p->fn.ukr_1x2, args, GEMM_UKR_PARAMS);
    em_end(e, &part);
    call_finish(e, p, s, e->scratch, s->ic, one(e), first);
    call_finish(e, p, s, second, s->ic, one(e), em_add(e, first, half));
    em_end(e, &l);
    em_val rest = em_add(e, lo, em_add(e, half, half));
    em_endif(e, &alone);
    return em_join(e, &alone, rest, lo);
}

/* Rows [first, first + n) of A, to their places from row `place` of the group's copy on. */
static void copy_piece(em *e, const gemm_plan *p, const gemm_state *s, em_val first, em_val n,
                       em_val place) {
    em_val k0 = p->keeps_partial_c ? zero(e) : s->pc, kn = p->keeps_partial_c ? s->k : s->kb;
    em_val args[] = {e->buf,      e->dim,      s->a,       copy_from(e, p, s, zero(e), place),
                     first,       n,           k0,         kn,
                     s->batch[0], s->batch[1], s->batch[2]};
    em_call(e, p->fn.pack_a, args, 11);
}

/* Rows [from, to) of the next group's copy, as far as they exist. */
static void relay_rows(em *e, const gemm_plan *p, const gemm_state *s, em_val from, em_val to) {
    em_val n = em_sub(e, em_imin(e, to, s->next_ib), from);
    em_branch br = em_if(e, em_cmp(e, EM_GT, n, zero(e)));
    copy_piece(e, p, s, em_add(e, s->next_ic, from), n, from);
    em_endif(e, &br);
}

static void emit_panels(em *e, const gemm_plan *p, gemm_state *s, em_val lo, em_val hi) {
    if (p->fn.ukr_1x2) lo = emit_twins(e, p, s, lo, hi);
    em_loop panel = em_for(e, lo, hi, one(e));
    s->jr = panel.i;
    emit_panel_source(e, p, s, hi);
    em_loop tile = em_for(e, zero(e), s->n_tiles, one(e));
    em_val start = em_carry(e, &tile, zero(e));
    em_val rows = choose_rows(e, p, em_sub(e, s->ib, start));
    em_val end = em_add(e, start, rows), turns = s->is_last_panel;
    if (p->pack_a_per_call) turns = em_and(e, turns, s->packs_a);
    if (p->pack_in_microkernel) {
        em_val full = em_cmp(e, EM_EQ, rows, em_i64(e, p->mr));
        em_val both = em_and(e, full, em_cmp(e, EM_LE, end, s->next_ib));
        s->packs_next_a = em_and(e, turns, both);
        turns = em_and(e, turns, em_not(e, both));
    }
    emit_tile(e, p, s, tile.i, start, rows);
    if (p->pack_next_a) {
        em_branch turn = em_if(e, turns);
        relay_rows(e, p, s, start, end);
        em_endif(e, &turn);
    }
    em_next(e, &tile, start, end);
    em_end(e, &tile);
    em_end(e, &panel);
    if (p->pack_next_a) { /* it may have a tile more */
        em_val none = em_i64(e, 0);
        em_val rest = p->pack_a_per_call ? em_select(e, s->packs_a, s->next_ib, none) : s->next_ib;
        if (p->keeps_partial_c) rest = em_select(e, s->is_last_block, rest, none);
        relay_rows(e, p, s, s->ib, rest);
    }
}

/* The group's rows of A, columns k0 .. k0 + kn. */
static void copy_group(em *e, const gemm_plan *p, const gemm_state *s) {
    if (!p->a_transposed) {
        copy_piece(e, p, s, s->ic, s->ib, zero(e));
        return;
    }
    em_loop tile = em_for(e, zero(e), s->n_tiles, one(e));
    em_val start = em_carry(e, &tile, zero(e));
    em_val rows = choose_rows(e, p, em_sub(e, s->ib, start));
    em_val args[] = {e->buf,
                     e->dim,
                     s->a,
                     copy_from(e, p, s, tile.i, start),
                     em_add(e, s->ic, start),
                     rows,
                     s->pc,
                     s->kb,
                     s->batch[0],
                     s->batch[1],
                     s->batch[2]};
    em_call(e, p->fn.pack_a, args, 11);
    em_next(e, &tile, start, em_add(e, start, rows));
    em_end(e, &tile);
}

/* How many tiles choose_rows makes of n > 0 rows: the rest is taken apart by its binary digits. */
static em_val count_tiles(em *e, const gemm_plan *p, em_val n) {
    em_val rest = em_rem(e, n, em_i64(e, p->mr)), tiles = em_div(e, n, em_i64(e, p->mr));
    em_val ones = em_unary_intrinsic(e, "llvm.ctpop", rest);
    return em_add(e, tiles, ones);
}

/* How many of these have all the rows that registers hold, at least 1: they share the
 * next panel. */
static em_val count_full(em *e, const gemm_plan *p, em_val n) {
    em_val mr = em_i64(e, p->mr), full = em_div(e, n, mr), two = em_i64(e, 2);
    em_val halves = em_cmp(e, EM_EQ, em_rem(e, n, mr), two);
    full = em_select(e, halves, em_sub(e, full, one(e)), full);
    return em_imax(e, full, one(e));
}

/* Element k0 of a panel that was packed ahead. */
static em_val panel_at(em *e, const gemm_plan *p, const gemm_state *s, em_val panel, em_val k0) {
    em_val at = em_add(e, em_mul(e, panel, s->k), k0);
    return em_at(e, s->b, p->b_type, em_mul(e, at, em_i64(e, p->panel)));
}

/* The group against panels [lo, hi), some of them and a chunk of K at a time. */
static void emit_chunks(em *e, const gemm_plan *p, gemm_state *s, em_val lo, em_val hi) {
    em_loop some = em_for(e, lo, hi, em_i64(e, p->nc_panels));
    em_val end = em_imin(e, hi, em_add(e, some.i, em_i64(e, p->nc_panels)));
    em_val last = em_cmp(e, EM_EQ, end, hi);
    s->jc = some.i;
    em_loop chunk = em_for(e, zero(e), em_imax(e, s->k, one(e)), s->kc);
    s->pc = chunk.i;
    s->kb = em_imin(e, s->kc, em_sub(e, s->k, chunk.i));
    em_val k1 = em_add(e, s->pc, s->kb), whole = em_cmp(e, EM_GE, k1, s->k);
    em_val then = panel_at(e, p, s, em_select(e, last, lo, end), zero(e));
    s->next_panel = em_select(e, whole, then, panel_at(e, p, s, some.i, k1));
    s->is_last_block = em_and(e, last, whole);
    s->has_next_panel = em_or(e, em_not(e, s->is_last_block), s->has_next_block);
    emit_panels(e, p, s, some.i, end);
    em_end(e, &chunk);
    em_end(e, &some);
}

enum { COPY = 1, MULTIPLY = 2 };

/* Rows [row0, row1) in groups that stay in L2: their copies, their products with panels [lo, hi),
 * or both. */
static void emit_groups(em *e, const gemm_plan *p, gemm_state *s, em_val row0, em_val row1,
                        em_val panel0, em_val panel1, int what) {
    em_val tiles = em_ceil_div(e, em_sub(e, row1, row0), p->mr);
    em_val groups = em_ceil_div(e, tiles, p->mc / p->mr), mr = em_i64(e, p->mr), lo, hi;
    s->n_rows_ic = em_sub(e, row1, row0);
    em_loop group = em_for(e, zero(e), groups, one(e));
    share(e, tiles, group.i, groups, &lo, &hi);
    s->ic_offset = em_mul(e, lo, mr);
    s->ic = em_add(e, row0, s->ic_offset);
    em_val next = em_add(e, row0, em_mul(e, hi, mr));
    s->ib = em_sub(e, em_imin(e, next, row1), s->ic);
    s->has_next_block = em_cmp(e, EM_LT, next, row1);
    if (p->prefetch_next_a || p->pack_next_a) {
        share(e, tiles, em_add(e, group.i, one(e)), groups, &lo, &hi);
        em_val end = em_add(e, row0, em_mul(e, hi, mr));
        s->next_ic = next;
        s->next_ib =
            em_select(e, s->has_next_block, em_sub(e, em_imin(e, end, row1), next), zero(e));
        s->next_a = em_at(e, s->a, p->g->a.dtype, em_mul(e, next, gemm_size(e, p->g->a.row)));
    }
    s->has_next_panel = s->has_next_block;
    s->n_tiles = count_tiles(e, p, s->ib);
    em_val sharing = em_mul(e, count_full(e, p, s->ib), em_i64(e, p->panel_tiles));
    em_val line = em_i64(e, p->panel * (int)sn_dtype_size(p->b_type) - 1); /* rounded up */
    s->b_next_step = em_div(e, em_add(e, line, sharing), sharing);
    if (p->keeps_partial_c) s->pc = zero(e), s->kb = s->k;
    if (p->pack_a && what & COPY) {
        em_branch due = {0};
        em_val first = em_cmp(e, EM_EQ, group.i, zero(e));
        if (p->pack_next_a)
            due = em_if(e, p->pack_a_per_call ? em_and(e, first, s->packs_a) : first);
        copy_group(e, p, s);
        if (p->pack_next_a) em_endif(e, &due);
    }
    if (what & MULTIPLY && p->keeps_partial_c) emit_chunks(e, p, s, panel0, panel1);
    if (what & MULTIPLY && !p->keeps_partial_c) emit_panels(e, p, s, panel0, panel1);
    em_end(e, &group);
}

/* Copies the rows of A, for all panels if K is one chunk. */
static void copy_rows(em *e, const gemm_plan *p, gemm_state *s, em_val row0, em_val row1,
                      em_val panel0) {
    em_val due = em_cmp(e, EM_EQ, s->jc, panel0);
    if (p->k_blocked) due = em_or(e, due, em_cmp(e, EM_GT, s->k, em_i64(e, p->kc)));
    em_branch br = em_if(e, due);
    emit_groups(e, p, s, row0, row1, panel0, panel0, COPY);
    em_endif(e, &br);
}

/* Rows against panels, some panels and (chunked) some columns of A at a time: what is packed or
 * waits is for these panels. */
static void emit_blocks(em *e, const gemm_plan *p, gemm_state *s, em_val row0, em_val row1,
                        em_val panel0, em_val panel1) {
    em_loop some = em_for(e, panel0, panel1, em_i64(e, p->nc_panels)), chunk;
    em_val end = em_imin(e, panel1, em_add(e, some.i, em_i64(e, p->nc_panels)));
    s->jc = some.i;
    s->panel_end = panel1;
    s->pc = zero(e);
    s->kb = s->k;
    if (p->k_blocked) {
        chunk = em_for(e, zero(e), em_imax(e, s->k, one(e)), em_i64(e, p->kc));
        s->pc = chunk.i;
        s->kb = em_imin(e, em_i64(e, p->kc), em_sub(e, s->k, chunk.i));
    }
    bool ahead = p->pack_b && p->pack_a;
    if (p->pack_b) pack_block(e, p, s, some.i, end);
    if (ahead) copy_rows(e, p, s, row0, row1, panel0);
    emit_groups(e, p, s, row0, row1, some.i, end, ahead ? MULTIPLY : COPY | MULTIPLY);
    if (p->k_blocked) em_end(e, &chunk);
    em_end(e, &some);
}

/* A thread's part of one batch item. */
static void emit_rows(em *e, const gemm_plan *p, gemm_state *s, em_val row0, em_val row1,
                      em_val panel0, em_val panel1) {
    em_branch single = {0};
    if (p->fn.int4_row) {
        single = em_if(e, em_cmp(e, EM_EQ, s->m, one(e)));
        emit_four_row(e, p, s, panel0, panel1);
        em_else(e, &single);
    }
    if (p->b_in_place)
        s->b_in_place = em_cmp(e, EM_LE, em_sub(e, row1, row0), em_i64(e, 2 * p->mr));
    if (p->keeps_partial_c || (!p->k_blocked && !p->pack_b)) {
        em_val many = em_i64(e, GEMM_COPY_PANELS);
        s->packs_a = em_cmp(e, EM_GE, em_sub(e, panel1, panel0), many);
        s->jc = panel0;
        s->next_panel =
            em_at(e, s->b, p->b_type, em_mul(e, em_mul(e, panel0, s->k), em_i64(e, p->panel)));
        s->pc = zero(e);
        s->kb = s->k;
        if (p->keeps_partial_c) {
            em_val most = em_i64(e, p->mc_bytes / p->esize / p->g->k.value);
            em_val few = em_cmp(e, EM_LE, em_sub(e, row1, row0), most);
            s->kc = em_select(e, few, s->k, em_i64(e, p->kc));
        }
        emit_groups(e, p, s, row0, row1, panel0, panel1, COPY | MULTIPLY);
    } else if (!p->k_blocked && !p->pack_a) {
        emit_blocks(e, p, s, row0, row1, panel0, panel1);
    } else { /* what waits has room for so many rows */
        em_loop l = em_for(e, row0, row1, em_i64(e, p->mc_outer));
        em_val end = em_imin(e, row1, em_add(e, l.i, em_i64(e, p->mc_outer)));
        emit_blocks(e, p, s, l.i, end, panel0, panel1);
        em_end(e, &l);
    }
    if (p->fn.int4_row) em_endif(e, &single);
}

/* The item's index on each batch axis, and its operands. */
static void begin_item(em *e, const gemm_plan *p, gemm_state *s, em_val item) {
    const sn_gemm *g = p->g;
    for (int i = SN_GEMM_BATCH - 1; i >= 0; i--) {
        s->batch[i] = i < g->n_batch ? item : zero(e);
        if (i < g->n_batch && i > 0) {
            em_val size = gemm_size(e, g->batch[i]);
            s->batch[i] = em_rem(e, item, size);
            item = em_div(e, item, size);
        }
    }
    em_val a = gemm_offset(e, g, &g->a, s->batch), b = gemm_offset(e, g, &g->b, s->batch);
    s->a = em_at(e, em_buf(e, g->a.buf), g->a.dtype, a);
    s->b = em_at(e, em_buf(e, g->b.buf), g->b.dtype, b);
}

/* In how many parts the rows are shared: all threads if every one gets four tiles, else the largest
 * power of two for which that holds and that divides the threads; the rest share the columns. */
static em_val count_row_parts(em *e, const gemm_plan *p, em_val m) {
    em_val nt = e->nthreads, parts = one(e), tiles = em_i64(e, 4 * p->mr);
    for (int d = 2; d <= GEMM_MOST_ROW_PARTS; d *= 2) {
        em_val divides = em_cmp(e, EM_EQ, em_and(e, nt, em_i64(e, d - 1)), zero(e));
        em_val enough = em_cmp(e, EM_GE, m, em_mul(e, tiles, em_i64(e, d)));
        parts = em_select(e, em_and(e, divides, enough), em_i64(e, d), parts);
    }
    return em_select(e, em_cmp(e, EM_GE, m, em_mul(e, tiles, nt)), nt, parts);
}

/* The same where the kernel packs B: threads that share the columns pack each once, but each copies
 * all rows of A. */
static em_val choose_row_parts(em *e, const gemm_plan *p, const gemm_state *s) {
    em_val by_rows = count_row_parts(e, p, s->m);
    if (!p->pack_b) return by_rows;
    em_val columns = em_cmp(e, EM_GE, s->n_panels, em_mul(e, e->nthreads, em_i64(e, 4)));
    if (p->pack_a) columns = em_and(e, columns, em_cmp(e, EM_GE, s->n, s->m));
    return em_select(e, columns, one(e), by_rows);
}

/* Are there enough of packed panels, perhaps? */
static bool may_draw(const gemm_plan *p) {
    const sn_gemm *g = p->g;
    return g->dynamic && g->b_packed && !p->pack_b && !gemm_is(g->m, 1);
}

/* Multiplications of a product, tens of milliseconds, whose last rows are drawn. */
static const int64_t long_product = (int64_t)1 << 33;

/* A long product's last rows: threads draw panels of a group of them, when they are done with their
 * shares, so that nobody waits long for one whose core was busy with something else. */
typedef struct gemm_tail {
    em_val counter;            /* pointer */
    em_val draws;              /* is there a tail? */
    em_val row0;               /* it begins here */
    em_val rows, panels, wide; /* of a part; parts beside each other */
    em_val parts;              /* of all */
} gemm_tail;

static gemm_tail plan_tail(em *e, const gemm_plan *p, const gemm_state *s, em_val by_rows) {
    gemm_tail t = {.counter = em_buf(e, p->g->counter_buf), .row0 = s->m};
    em_val nt = e->nthreads, all = em_mul(e, em_mul(e, s->m, s->n), s->k);
    t.draws = em_cmp(e, EM_GE, all, em_i64(e, long_product));
    t.draws = em_and(e, t.draws, em_cmp(e, EM_GT, nt, one(e)));
    t.draws = em_and(e, t.draws, by_rows);
    em_val least = em_i64(e, (int64_t)GEMM_TAIL * GEMM_TAIL_TILES * p->mr);
    t.draws = em_and(e, t.draws, em_cmp(e, EM_GE, s->m, least));
    t.draws = em_and(e, t.draws, LLVMBuildIsNotNull(e->b, t.counter, ""));
    em_val tail = em_div(e, s->m, em_i64(e, GEMM_TAIL));
    em_val shared = em_round_down(e, em_sub(e, s->m, tail), GEMM_ROW_UNIT);
    t.row0 = em_select(e, t.draws, shared, s->m);
    tail = em_imax(e, em_sub(e, s->m, t.row0), one(e));
    em_val groups = em_ceil_div(e, tail, p->mc);
    t.rows = em_div(e, em_add(e, tail, em_sub(e, groups, one(e))), groups);
    em_val each = em_div(e, s->n_panels, em_mul(e, nt, em_i64(e, GEMM_DRAWS / GEMM_TAIL)));
    t.panels = em_imax(e, em_mul(e, each, groups), em_i64(e, GEMM_COPY_PANELS));
    t.wide = em_div(e, em_add(e, s->n_panels, em_sub(e, t.panels, one(e))), t.panels);
    t.parts = em_select(e, t.draws, em_mul(e, groups, t.wide), zero(e));
    return t;
}

/* Threads share the batch items if these go up evenly or are many, else a grid of rows and columns.
 * Sums do not depend on it. */
static void emit_kernel(em *e, const gemm_plan *p) {
    const sn_gemm *g = p->g;
    em_kernel(e, p->name);
    gemm_state s = {.m = gemm_size(e, g->m), .n = gemm_size(e, g->n), .k = gemm_size(e, g->k)};
    em_val items = one(e);
    for (int i = 0; i < g->n_batch; i++) items = em_mul(e, items, gemm_size(e, g->batch[i]));
    s.n_panels = em_ceil_div(e, s.n, p->panel);

    em_val nt = e->nthreads, tid = e->tid;
    em_val even = em_cmp(e, EM_EQ, em_rem(e, items, nt), zero(e));
    em_val many = em_cmp(e, EM_GE, items, em_mul(e, nt, em_i64(e, 4)));
    em_val by_item = em_or(e, even, many);
    em_val row_parts = em_select(e, by_item, one(e), choose_row_parts(e, p, &s));
    em_val col_parts = em_select(e, by_item, one(e), em_div(e, nt, row_parts));
    em_val part = em_select(e, by_item, zero(e), tid);
    em_val item0, item1, row0, row1, panel0, panel1;
    share(e, items, em_select(e, by_item, tid, zero(e)), em_select(e, by_item, nt, one(e)), &item0,
          &item1);
    bool draws = may_draw(p);
    gemm_tail tail = {.row0 = s.m};
    if (draws) {
        em_val by_rows = em_cmp(e, EM_EQ, row_parts, nt);
        tail = plan_tail(e, p, &s, em_and(e, by_rows, em_cmp(e, EM_EQ, items, one(e))));
    }
    share(e, em_ceil_div(e, tail.row0, GEMM_ROW_UNIT), em_div(e, part, col_parts), row_parts, &row0,
          &row1);
    share(e, s.n_panels, em_rem(e, part, col_parts), col_parts, &panel0, &panel1);
    row1 = em_imin(e, em_mul(e, row1, em_i64(e, GEMM_ROW_UNIT)), tail.row0);
    row0 = em_mul(e, row0, em_i64(e, GEMM_ROW_UNIT));

    em_loop work;
    if (draws) { /* the share, then what is drawn */
        work = em_for(e, zero(e), em_add(e, tail.parts, one(e)), one(e));
        em_val own = em_cmp(e, EM_EQ, work.i, zero(e)), i = em_sub(e, work.i, one(e));
        em_val first = em_add(e, tail.row0, em_mul(e, em_div(e, i, tail.wide), tail.rows));
        em_val left = em_mul(e, em_rem(e, i, tail.wide), tail.panels);
        row0 = em_select(e, own, row0, em_imin(e, first, s.m));
        row1 = em_select(e, own, row1, em_imin(e, em_add(e, first, tail.rows), s.m));
        panel0 = em_select(e, own, panel0, left);
        panel1 = em_select(e, own, panel1, em_imin(e, em_add(e, left, tail.panels), s.n_panels));
    }
    em_loop item = em_for(e, item0, item1, one(e));
    begin_item(e, p, &s, item.i);
    emit_rows(e, p, &s, row0, row1, panel0, panel1);
    em_end(e, &item);
    if (draws) {
        em_branch br = em_if(e, tail.draws);
        em_val next = em_add(e, em_fetch_add(e, tail.counter, one(e)), one(e));
        em_else(e, &br);
        em_endif(e, &br);
        work.step = em_sub(e, em_join(e, &br, next, one(e)), work.i);
        em_end(e, &work);
    }
    em_end_kernel(e);
}

void sn_gemm_emit(em *e, const char *name, const sn_gemm *g) {
    gemm_plan p;
    if (!gemm_plan_make(&p, g, e->target, e->compute, &e->err)) return;
    p.name = name;
    for (int i = 0; i < p.n_tile_rows; i++)
        p.fn.ukr[i] = gemm_emit_ukr(e, &p, p.tile_rows[i], GEMM_UKR);
    if (p.pack_a_per_call) p.fn.ukr_packed_a = gemm_emit_ukr(e, &p, p.mr, GEMM_UKR_PACKED_A);
    if (p.pack_in_microkernel) p.fn.ukr_packing_a = gemm_emit_ukr(e, &p, p.mr, GEMM_UKR_PACKING_A);
    if (g->scale_group) p.fn.int4_dequantize = gemm_emit_int4_dequantize(e, &p);
    bool plain = !g->prologue && g->a.dtype == p.t && gemm_is(g->a.col, 1);
    if (g->scale_group && (plain || (g->prologue && !p.k_blocked))) {
        p.fn.int4_row = gemm_emit_int4_row(e, &p, false);
        p.fn.int4_last_row = gemm_emit_int4_row(e, &p, true);
    }
    if (g->b_packed && sn_dtype_size(p.b_type) <= 4 && (!p.k_blocked || p.keeps_partial_c))
        p.fn.ukr_1x2 = gemm_emit_ukr(e, &p, 1, GEMM_UKR_1X2);
    p.fn.epilogue = gemm_emit_epilogue(e, &p);
    if (p.pack_a) p.fn.pack_a = gemm_emit_pack_a(e, &p);
    if (!g->b_packed)
        p.fn.pack_b = gemm_emit_pack_b(e, &p, "pack", g->b.dtype, g->b.row, g->b.col, 0);
    emit_kernel(e, &p);
}
