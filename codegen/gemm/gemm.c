/* gemm.c: a GEMM kernel as a whole: the functions it consists of, and how threads share C.
 * The loop nest of a thread's share is in loops.c. */
#include "codegen/gemm/impl.h"
#include "ir/ir.h"

enum {
    MAX_ROW_PARTS = 64,    /* of a grid of rows and columns */
    ROW_UNIT = 8,          /* threads share rows by multiples of this */
    DYNAMIC_FRACTION = 4,  /* dynamic schedule: 1/4 of the rows, because a core whose other hardware
                             thread is busy has been seen at 60 % of its speed, ... */
    DYNAMIC_MIN_ROWS = 28, /* ... in items of at least so many rows, fewer would wait for B, ... */
    DYNAMIC_MIN_PANELS = 6,   /* so many panels, or GEMM_PACK_A_PANELS if A is packed, */
    DYNAMIC_WORK_ITEMS = 256, /* and 1/256 of a thread's share of all work, if that is more; */
    DYNAMIC_ITEMS = 8,        /* so many items for a thread where the rows allow it, */
    DYNAMIC_MIN_ITEMS = 2,    /* or none if they would be fewer than so many */
    ROW_ITEM_BYTES =
        24 << 10 /* one row: of B in a work item, or more, and of the static share in */
};

/* Sets the indices of a batch item and the bases of its operands. */
static void begin_item(em *e, const gemm_plan *p, gemm_state *s, em_val item) {
    const sn_gemm *g = p->g;
    for (int i = SN_GEMM_BATCH - 1; i >= 0; i--) {
        s->batch[i] = i < g->n_batch ? item : zero(e);
        if (i < g->n_batch && i > 0) {
            em_val size = em_size_value(e, g->batch[i]);
            s->batch[i] = em_rem(e, item, size);
            item = em_div(e, item, size);
        }
    }
    em_val a = gemm_offset(e, g, &g->a, s->batch), b = gemm_offset(e, g, &g->b, s->batch);
    s->a = em_gep(e, em_buf(e, g->a.buf), g->a.dtype, a);
    s->b = em_gep(e, em_buf(e, g->b.buf), g->b.dtype, b);
}

/* ---- partition of C ---- */

/* Number of row parts of the grid of threads: all threads if each gets the rows of four full
 * microtiles, else the largest power of two for which that holds and that divides the threads. The
 * remaining factor divides the columns. */
static em_val count_row_parts(em *e, const gemm_plan *p, em_val m) {
    em_val nt = e->nthreads, parts = one(e), tiles = em_i64(e, 4 * p->mr);
    for (int d = 2; d <= MAX_ROW_PARTS; d *= 2) {
        em_val divides = em_cmp(e, EM_EQ, em_and(e, nt, d - 1), 0);
        em_val enough = em_cmp(e, EM_GE, m, em_mul(e, tiles, d));
        parts = em_select(e, em_and(e, divides, enough), d, parts);
    }
    return em_select(e, em_cmp(e, EM_GE, m, em_mul(e, tiles, nt)), nt, parts);
}

/* If the kernel packs B, threads prefer to divide the columns: then each panel is packed once, but
 * each thread packs all rows of A. */
static em_val choose_row_parts(em *e, const gemm_plan *p, const gemm_state *s) {
    em_val by_rows = count_row_parts(e, p, s->m);
    if (!p->pack_b) return by_rows;
    em_val columns = em_cmp(e, EM_GE, s->n_panels, em_mul(e, e->nthreads, 4));
    if (p->pack_a) columns = em_and(e, columns, em_cmp(e, EM_GE, s->n, s->m));
    return em_select(e, columns, 1, by_rows);
}

static em_val divide_up(em *e, em_val n, em_val by) {
    return em_div(e, em_add(e, n, em_sub(e, by, 1)), by);
}

/* A rectangle of C: rows [row0, row1), panels [panel0, panel1). */
typedef struct share {
    em_val row0, row1, panel0, panel1;
} share;

/* Part `part` of a grid of row_parts x col_parts of the first n_rows rows and n_panels panels. */
static share grid_share(em *e, em_val part, em_val row_parts, em_val col_parts, em_val n_rows,
                        em_val n_panels, em_val unit) {
    share r;
    gemm_share(e, divide_up(e, n_rows, unit), em_div(e, part, col_parts), row_parts, &r.row0,
               &r.row1);
    gemm_share(e, n_panels, em_rem(e, part, col_parts), col_parts, &r.panel0, &r.panel1);
    r.row1 = em_imin(e, em_mul(e, r.row1, unit), n_rows);
    r.row0 = em_mul(e, r.row0, unit);
    return r;
}

/* symmetric: where column part `part` begins, in panels: those from there on have the rest of the
 * triangle's area, n^2 (parts - part) / parts. */
static em_val triangle_cut(em *e, em_val n_panels, em_val part, em_val parts) {
    em_val rest = em_convert(e, em_sub(e, parts, part), SN_I64, SN_F64);
    em_val side = em_sqrt(e, em_div(e, rest, em_convert(e, parts, SN_I64, SN_F64)));
    side = em_mul(e, side, em_convert(e, n_panels, SN_I64, SN_F64));
    side = em_add(e, side, em_like(e, side, 0.5)); /* to the nearest */
    return em_sub(e, n_panels, em_convert(e, side, SN_F64, SN_I64));
}

/* ... of the triangle: the rows from the diagonal on. */
static share triangle_share(em *e, const gemm_plan *p, const gemm_state *s, em_val part,
                            em_val parts) {
    share r = {.row1 = s->m};
    r.panel0 = triangle_cut(e, s->n_panels, part, parts);
    r.panel1 = triangle_cut(e, s->n_panels, em_add(e, part, 1), parts);
    r.row0 = em_imin(e, em_mul(e, r.panel0, p->panel), s->m);
    return r;
}

/* ---- dynamic schedule ---- */

/* Whether long products have a dynamic remainder of rows. */
static bool divides_rows(const gemm_plan *p) {
    return p->g->dynamic && p->g->b_packed && !p->pack_b && !gemm_is(p->g->m, 1);
}

/* Whether products of one row have one of panels: if the first share of a thread packs all of A, even if
 * it has no panels. */
static bool divides_panels(const gemm_plan *p) {
    const em_size *m = &p->g->m;
    bool all_of_k = !p->k_blocked || p->keeps_partial_c;
    bool packs_once = p->fn.group_row || p->fn.int_row || (!p->pack_b && !p->ints.on && all_of_k);
    return p->g->dynamic && p->g->b_packed && packs_once && (m->slot >= 0 || m->value == 1);
}

/* Multiply-adds (a millisecond) from which on the last rows are scheduled dynamically. */
static const int64_t dynamic_from = (int64_t)1 << 27;

/* The dynamic remainder: the last rows of a long product, or the last panels of a product of one row.
 * Threads that are done with their static share take work items from a counter, so that nobody waits
 * long for a thread whose core was busy with something else. */
typedef struct remainder {
    em_val counter;                /* pointer */
    em_val exists;                 /* i1 */
    em_val rows, panels;           /* first so many of C that are divided statically, ... */
    em_val row_unit;               /* ... rows by multiples of this */
    em_val row0, panel0;           /* of the first work item */
    em_val item_rows, item_panels; /* of a work item */
    em_val n_item_cols;            /* work items side by side */
    em_val n_items;
} remainder;

/* Nothing but static shares, or the conditions that all remainders have. */
static remainder no_remainder(em *e, const gemm_plan *p, const gemm_state *s, em_val one_item) {
    remainder r = {.counter = em_buf(e, p->g->counter_buf),
                   .rows = s->m,
                   .panels = s->n_panels,
                   .row_unit = em_i64(e, ROW_UNIT),
                   .row0 = s->m,
                   .panel0 = zero(e),
                   .item_rows = one(e),
                   .item_panels = one(e),
                   .n_item_cols = one(e),
                   .n_items = zero(e)};
    r.exists = em_and(e, one_item, em_cmp(e, EM_GT, e->nthreads, 1));
    r.exists = em_and(e, r.exists, LLVMBuildIsNotNull(e->b, r.counter, ""));
    return r;
}

/* The panels of a work item: few enough for DYNAMIC_WORK_ITEMS, if the items of a column of them have
 * the rows of `blocks` MC blocks. */
static void choose_item_panels(em *e, const gemm_plan *p, const gemm_state *s, em_val blocks,
                               remainder *r) {
    em_val items = em_mul(e, e->nthreads, DYNAMIC_WORK_ITEMS / DYNAMIC_FRACTION);
    em_val panels = em_mul(e, em_div(e, s->n_panels, items), blocks);
    panels = em_imax(e, panels, p->pack_a ? GEMM_PACK_A_PANELS : DYNAMIC_MIN_PANELS);
    em_val wide = em_imax(e, em_div(e, s->n_panels, panels), 1);
    r->item_panels = divide_up(e, s->n_panels, wide);
    r->n_item_cols = divide_up(e, s->n_panels, r->item_panels);
}

/* n rounded down to a multiple of `by`, unless that is 0. */
static em_val whole_rounds(em *e, em_val n, em_val by) {
    return em_select(e, em_cmp(e, EM_GE, n, by), em_mul(e, em_div(e, n, by), by), n);
}

/* Shares and items are multiples of MR rows. Static shares are equal, and there are equally many items
 * for each thread, so that cores of the same speed finish together. The rows that remain make items
 * taller; smaller items at the end, where there are few items because they have all columns. */
static remainder plan_rows(em *e, const gemm_plan *p, const gemm_state *s, remainder r) {
    em_val nt = e->nthreads, work = em_mul(e, em_mul(e, s->m, s->n), s->k), mr = em_i64(e, p->mr);
    em_val least = em_i64(e, (DYNAMIC_MIN_ROWS + p->mr - 1) / p->mr); /* tiles: of MR rows */
    em_val tiles = divide_up(e, s->m, mr), part = em_div(e, tiles, DYNAMIC_FRACTION);
    em_val blocks = em_imax(e, em_ceil_div(e, part, p->mc / p->mr), 1);
    choose_item_panels(e, p, s, blocks, &r);
    blocks = em_imax(e, blocks, divide_up(e, em_mul(e, nt, DYNAMIC_ITEMS), r.n_item_cols));
    em_val item_tiles = em_imax(e, em_div(e, part, blocks), least);
    blocks = whole_rounds(e, em_div(e, part, item_tiles), nt);
    em_val n_items = em_mul(e, blocks, r.n_item_cols), dynamic = em_mul(e, blocks, item_tiles);
    r.exists = em_and(e, r.exists, em_cmp(e, EM_GE, work, dynamic_from));
    em_val few = em_mul(e, nt, DYNAMIC_MIN_ITEMS);
    r.exists = em_and(e, r.exists, em_cmp(e, EM_GE, n_items, few));

    em_val fixed = em_mul(e, em_div(e, em_sub(e, tiles, dynamic), nt), nt);
    em_val one_column = em_cmp(e, EM_EQ, r.n_item_cols, 1), taller = em_sub(e, tiles, fixed);
    taller = divide_up(e, taller, em_imax(e, blocks, 1));
    item_tiles = em_select(e, one_column, item_tiles, em_imax(e, taller, 1));
    r.item_rows = em_mul(e, item_tiles, mr);
    r.rows = r.row0 = em_select(e, r.exists, em_mul(e, fixed, mr), s->m);
    r.row_unit = em_select(e, r.exists, mr, r.row_unit);
    blocks = divide_up(e, em_sub(e, s->m, r.row0), r.item_rows);
    r.n_items = em_select(e, r.exists, em_mul(e, blocks, r.n_item_cols), 0);
    return r;
}

/* One row: its panels stream from memory, which threads do not share evenly. */
static remainder plan_panels(em *e, const gemm_plan *p, const gemm_state *s, remainder r) {
    const sn_gemm *g = p->g;
    int bits = g->groups.size ? g->groups.bits : 8 * (int)sn_dtype_size(p->b_type);
    em_val bytes = em_imax(e, em_mul(e, s->k, p->panel * bits / 8), 1);
    em_val panels = em_div(e, s->n_panels, DYNAMIC_FRACTION);
    em_val least = divide_up(e, em_i64(e, ROW_ITEM_BYTES), bytes);
    if (p->has_ukr_1x2) least = em_imax(e, least, 2); /* emit_panel_pairs */
    em_val items = em_mul(e, e->nthreads, DYNAMIC_ITEMS);
    r.item_panels = em_imax(e, least, divide_up(e, panels, items));
    r.n_items = em_select(e, r.exists, em_div(e, panels, r.item_panels), 0);
    r.panels = em_sub(e, s->n_panels, em_mul(e, r.n_items, r.item_panels));
    r.exists = em_cmp(e, EM_GT, r.n_items, 0);
    r.panel0 = r.panels;
    r.row0 = zero(e);
    r.n_item_cols = em_imax(e, r.n_items, 1);
    return r;
}

static remainder either(em *e, em_val yes, const remainder *a, const remainder *b) {
    remainder r = {.counter = a->counter};
    r.exists = em_select(e, yes, a->exists, b->exists);
    r.rows = em_select(e, yes, a->rows, b->rows);
    r.panels = em_select(e, yes, a->panels, b->panels);
    r.row_unit = em_select(e, yes, a->row_unit, b->row_unit);
    r.row0 = em_select(e, yes, a->row0, b->row0);
    r.panel0 = em_select(e, yes, a->panel0, b->panel0);
    r.item_rows = em_select(e, yes, a->item_rows, b->item_rows);
    r.item_panels = em_select(e, yes, a->item_panels, b->item_panels);
    r.n_item_cols = em_select(e, yes, a->n_item_cols, b->n_item_cols);
    r.n_items = em_select(e, yes, a->n_items, b->n_items);
    return r;
}

/* The remainder of a product whose batch is `one_item`, or not, and which threads divide by rows, or
 * not. */
static remainder plan_remainder(em *e, const gemm_plan *p, const gemm_state *s, em_val one_item,
                                em_val by_rows) {
    em_val single = em_cmp(e, EM_EQ, s->m, 1), several = em_not(e, single);
    remainder none = no_remainder(e, p, s, one_item), for_one_row = none, for_rows = none;
    none.exists = em_i1(e, false);
    for_rows.exists = em_and(e, for_one_row.exists, em_and(e, by_rows, several));
    for_rows = divides_rows(p) ? plan_rows(e, p, s, for_rows) : none;
    for_one_row = divides_panels(p) ? plan_panels(e, p, s, for_one_row) : none;
    return either(e, single, &for_one_row, &for_rows);
}

/* The share of step i: the static one (0), then work item i - 1. */
static share dynamic_share(em *e, const gemm_state *s, const remainder *r, em_val step,
                           share fixed) {
    em_val is_static = em_cmp(e, EM_EQ, step, 0), i = em_sub(e, step, 1);
    em_val row = em_add(e, r->row0, em_mul(e, em_div(e, i, r->n_item_cols), r->item_rows));
    em_val panel = em_add(e, r->panel0, em_mul(e, em_rem(e, i, r->n_item_cols), r->item_panels));
    share t;
    t.row0 = em_select(e, is_static, fixed.row0, em_imin(e, row, s->m));
    t.row1 = em_select(e, is_static, fixed.row1, em_imin(e, em_add(e, row, r->item_rows), s->m));
    t.panel0 = em_select(e, is_static, fixed.panel0, panel);
    t.panel1 = em_select(e, is_static, fixed.panel1,
                         em_imin(e, em_add(e, panel, r->item_panels), s->n_panels));
    return t;
}

/* Takes the next work item; ends the loop over them. */
static void end_dynamic(em *e, const remainder *r, em_loop *step) {
    em_branch br = em_if(e, r->exists);
    em_val next = em_add(e, em_fetch_add(e, r->counter, one(e)), 1);
    em_else(e, &br);
    em_endif(e, &br);
    step->step = em_sub(e, em_join(e, &br, next, one(e)), step->i);
    em_end(e, step);
}

/* ---- the kernel ---- */

/* Batch items whose K differs: all threads share the C of each, because some may have no k. */
static void emit_ragged(em *e, const gemm_plan *p, gemm_state *s, em_val items) {
    em_val row_parts = choose_row_parts(e, p, s);
    share c = grid_share(e, e->tid, row_parts, em_div(e, e->nthreads, row_parts), s->m, s->n_panels,
                         em_i64(e, ROW_UNIT));
    gemm_sort_ragged(e, p);
    em_loop item = em_for(e, 0, items, 1);
    begin_item(e, p, s, item.i);
    gemm_begin_ragged(e, p, s, item.i);
    gemm_emit_loops(e, p, s, c.row0, c.row1, c.panel0, c.panel1);
    em_end(e, &item);
}

/* Threads divide the batch items if these divide evenly or are many, else each item's C as a grid
 * of rows and columns. Results do not depend on it. */
static void emit_kernel(em *e, const gemm_plan *p) {
    const sn_gemm *g = p->g; /* int8: K in words */
    em_kernel(e, p->name);
    em_outer(e);
    gemm_state s = {
        .m = em_size_value(e, g->m), .n = em_size_value(e, g->n), .k = em_size_value(e, g->k)};
    if (g->k.slot >= 0) s.k = em_ceil_div(e, s.k, p->dot->k_of_word);
    em_val items = one(e);
    for (int i = 0; i < g->n_batch; i++) items = em_mul(e, items, em_size_value(e, g->batch[i]));
    s.n_panels = em_ceil_div(e, s.n, p->panel);

    gemm_begin_tiles(e, p);
    if (g->n_blocks) {
        begin_item(e, p, &s, zero(e));
        gemm_emit_blocks(e, p, &s);
        gemm_end_tiles(e, p);
        em_end_kernel(e);
        return;
    }
    if (g->ragged_k) {
        emit_ragged(e, p, &s, items);
        em_end_kernel(e);
        return;
    }
    em_val nt = e->nthreads, tid = e->tid, item0, item1;
    em_val even = em_cmp(e, EM_EQ, em_rem(e, items, nt), 0);
    em_val many = em_cmp(e, EM_GE, items, em_mul(e, nt, 4));
    em_val by_item = em_or(e, even, many);
    em_val row_parts = em_select(e, by_item, 1, choose_row_parts(e, p, &s));
    em_val col_parts = em_select(e, by_item, 1, em_div(e, nt, row_parts));
    em_val part = em_select(e, by_item, 0, tid);
    gemm_share(e, items, em_select(e, by_item, tid, 0), em_select(e, by_item, nt, 1), &item0,
               &item1);
    bool dynamic = divides_rows(p) || divides_panels(p);
    remainder rest = {.rows = s.m, .panels = s.n_panels, .row_unit = em_i64(e, ROW_UNIT)};
    if (dynamic)
        rest =
            plan_remainder(e, p, &s, em_cmp(e, EM_EQ, items, 1), em_cmp(e, EM_EQ, row_parts, nt));
    share c = grid_share(e, part, row_parts, col_parts, rest.rows, rest.panels, rest.row_unit);
    if (g->symmetric) c = triangle_share(e, p, &s, part, em_select(e, by_item, 1, nt));
    em_loop step;
    if (dynamic) {
        step = em_for(e, 0, em_add(e, rest.n_items, 1), 1);
        c = dynamic_share(e, &s, &rest, step.i, c);
        em_val again = em_cmp(e, EM_GT, step.i, 0), single = em_cmp(e, EM_EQ, s.m, 1);
        if (divides_panels(p)) s.keeps_a = em_and(e, again, single);
    }
    em_loop item = em_for(e, item0, item1, 1);
    begin_item(e, p, &s, item.i);
    gemm_emit_loops(e, p, &s, c.row0, c.row1, c.panel0, c.panel1);
    em_end(e, &item);
    if (dynamic) end_dynamic(e, &rest, &step);
    gemm_end_tiles(e, p);
    em_end_kernel(e);
}

void sn_gemm_emit(em *e, const char *name, const sn_gemm *g) {
    gemm_plan p;
    if (!gemm_plan_make(&p, g, e->target, e->compute, &e->err)) return;
    p.name = name;
    if (sn_debug_get()->gemm) {
        char text[512];
        uint32_t flags = sn_gemm_plan_flags(g, e->target, e->compute);
        fprintf(stderr, "gemm plan: %s\n", sn_gemm_plan_text(flags, text, sizeof text));
    }
    if (p.ints.on) gemm_emit_int_functions(e, &p);
    for (int i = 0; i < p.n_tile_rows && !p.ints.on; i++)
        p.fn.ukr[i] = gemm_emit_ukr(e, &p, p.tile_rows[i], GEMM_UKR);
    if (p.pack_a_per_call) p.fn.ukr_packed_a = gemm_emit_ukr(e, &p, p.mr, GEMM_UKR_PACKED_A);
    if (p.pack_in_microkernel) p.fn.ukr_packing_a = gemm_emit_ukr(e, &p, p.mr, GEMM_UKR_PACKING_A);
    if (g->groups.size && !p.ints.on) p.fn.dequantize = gemm_emit_dequantize(e, &p);
    if (p.has_group_row) {
        p.fn.group_row = gemm_emit_group_row(e, &p, false);
        p.fn.group_last_row = gemm_emit_group_row(e, &p, true);
        if (g->groups.has_min && !g->bf16) p.fn.group_sums = gemm_emit_group_sums(e, &p);
    }
    if (p.short_k) p.fn.block = gemm_emit_block(e, &p);
    if (p.has_ukr_1x2) p.fn.ukr_1x2 = gemm_emit_ukr(e, &p, 1, GEMM_UKR_1X2);
    p.fn.epilogue = gemm_emit_epilogue(e, &p);
    if (p.pack_a && (!p.ints.on || p.has_group_row)) p.fn.pack_a = gemm_emit_pack_a(e, &p);
    if (!g->b_packed) p.fn.pack_b = gemm_emit_pack_b(e, &p, g->b.dtype, g->b.row, g->b.col, 0);
    emit_kernel(e, &p);
}
