/* prefetch.c: what a microtile prefetches while it is computed: the lines that its epilogue reads
 * and writes, and (into L2) its share of the columns of B that are packed next. A microtile takes
 * microseconds. If all lines were requested at once they would delay each other and the microtile's
 * own loads; therefore the microkernel walks a list of addresses, one each step of k. */
#include "codegen/gemm/impl.h"

enum { MIN_LIST = 128, MAX_LIST = 512, MAX_AT_ONCE = 18 };

/* Lines of C in a row of a panel; one more if rows may start inside a line. */
static int c_lines(const gemm_plan *p) {
    const sn_gemm_operand *c = &p->g->c;
    if (p->g->no_store || p->g->n_blocks || !gemm_is(c->col, 1)) return 0;
    int size = (int)sn_dtype_size(c->dtype);
    bool aligned = c->row.slot < 0 && c->row.value * size % GEMM_LINE == 0;
    return (p->epi_cols * size + GEMM_LINE - 1) / GEMM_LINE + !aligned;
}

/* Lines that the epilogue of a row reads or writes. */
static int epilogue_lines(const gemm_plan *p) {
    return c_lines(p) + p->g->n_prefetch;
}

/* Lines of a microtile row's partial C, in whole vectors of addresses. */
static int partial_c_lines(const gemm_plan *p) {
    return p->keeps_partial_c ? (p->mr * p->panel * p->esize / GEMM_LINE + 7) / 8 * 8 : 0;
}

static int power_of_two(int n) {
    int p = 8;
    while (p < n) p *= 2;
    return p;
}

void gemm_plan_prefetch(gemm_plan *p) {
    const sn_gemm *g = p->g;
    enum { MIN_STEPS = 64 };
    p->b_prefetch = p->c_prefetch = p->c_prefetch_shift = 0;
    p->c_at_once = false;
    if (p->kc < MIN_STEPS || (g->k.slot < 0 && g->k.value < MIN_STEPS)) return;
    int of_epilogue = p->mr * epilogue_lines(p), lines = of_epilogue + partial_c_lines(p);
    p->c_at_once = (p->small_tile || p->by_lane) && of_epilogue && of_epilogue <= MAX_AT_ONCE &&
                   !gemm_is(g->m, 1);
    if (lines && lines <= MAX_LIST && !gemm_is(g->m, 1) && !p->c_at_once)
        p->c_prefetch = power_of_two(lines);
    while (p->c_prefetch && p->c_prefetch << (p->c_prefetch_shift + 1) <= p->kc)
        p->c_prefetch_shift++;
    if (!p->pack_b || g->groups.size || g->ragged_k) return;
    p->b_prefetch = MIN_LIST;
    while (p->b_prefetch < MAX_LIST && p->b_prefetch < p->kc / 4) p->b_prefetch *= 2;
}

static void put(em *e, em_val list, em_val i, em_val address) {
    em_store_raw(e, address, em_gep(e, list, SN_I64, i), 8);
}

/* A list of n entries at byte `at` of scratch. An empty entry is the address of the list itself. */
static em_val empty_list(em *e, int64_t at, int n) {
    em_val list = em_gep_bytes(e, e->scratch, at);
    em_val empty = em_splat(e, LLVMBuildPtrToInt(e->b, list, e->i64, ""), 8);
    em_loop l = em_for(e, 0, n, 8);
    em_store_raw(e, empty, em_gep(e, list, SN_I64, l.i), 8);
    em_end(e, &l);
    return list;
}

/* ---- the epilogue's lines ---- */

/* Entries [8v, 8v + 8): lines of C, row by row. In vectors of eight, because instructions between
 * two microtiles are not hidden. to: C of the first row, an integer. */
static void put_c_lines(em *e, const gemm_plan *p, em_val list, em_val to, em_val rows, int v) {
    const sn_gemm_operand *c = &p->g->c;
    int size = (int)sn_dtype_size(c->dtype), lines = c_lines(p);
    int last = p->epi_cols * size - 1;
    em_val row[8], byte[8];
    for (int l = 0; l < 8; l++) {
        int i = 8 * v + l, line = i % lines * GEMM_LINE;
        row[l] = em_i64(e, i / lines);
        byte[l] = em_i64(e, line < last ? line : last);
    }
    em_val index = LLVMConstVector(row, 8);
    em_val stride = em_mul(e, em_size_value(e, c->row), size);
    em_val at = em_mul(e, index, em_splat(e, stride, 8));
    at = em_add(e, em_splat(e, to, 8), em_add(e, at, LLVMConstVector(byte, 8)));
    em_val empty = em_splat(e, LLVMBuildPtrToInt(e->b, list, e->i64, ""), 8);
    at = em_select(e, em_cmp(e, EM_LT, index, em_splat(e, rows, 8)), at, empty);
    em_store_raw(e, at, em_gep(e, list, SN_I64, 8 * v), 8);
}

/* After the lines of C: those of the epilogue's operands. */
static void put_operand_lines(em *e, const gemm_plan *p, sn_gemm_at *at, em_val list, em_val rows) {
    const sn_gemm *g = p->g;
    em_val line[MAX_LIST], row0 = at->row;
    int first = p->mr * c_lines(p);
    em_loop l = em_for(e, 0, rows, 1);
    at->row = em_add(e, row0, l.i);
    g->prefetch_operands(g->ctx, e, at, line);
    em_val entry = em_add(e, em_mul(e, l.i, g->n_prefetch), first);
    for (int i = 0; i < g->n_prefetch; i++) put(e, list, em_add(e, entry, i), line[i]);
    em_end(e, &l);
}

/* At the end: the partial C of the next microtile row, which starts at `acc`. */
static void put_partial_c(em *e, const gemm_plan *p, em_val list, em_val acc) {
    em_val from = em_splat(e, LLVMBuildPtrToInt(e->b, acc, e->i64, ""), 8), byte[8];
    int n = partial_c_lines(p);
    for (int i = 0; i < n; i += 8) {
        for (int l = 0; l < 8; l++) byte[l] = em_i64(e, (i + l) * GEMM_LINE);
        em_store_raw(e, em_add(e, from, LLVMConstVector(byte, 8)),
                     em_gep(e, list, SN_I64, p->c_prefetch - n + i), 8);
    }
}

em_val gemm_emit_c_list(em *e, const gemm_plan *p, const gemm_state *s, em_val ir, em_val rows,
                        em_val acc) {
    const sn_gemm *g = p->g;
    const sn_gemm_operand *c = &g->c;
    sn_gemm_at at = {.batch = {s->batch[0], s->batch[1], s->batch[2]},
                     .row = em_add(e, s->ic, ir),
                     .col = gemm_first_column(e, p, g->half_width, s->jr)};
    em_val list = em_gep_bytes(e, e->scratch, p->c_list_offset);
    em_branch used = em_if(e, em_cmp(e, EM_GE, rows, p->half_mr)); /* see micro.c */
    em_val acc_bytes = em_mul(e, rows, p->panel * p->esize);
    if (p->k_blocked) { /* only the last KC block has an epilogue */
        em_val complete = em_cmp(e, EM_GE, em_add(e, s->pc, s->kb), s->k);
        rows = em_select(e, complete, rows, 0);
    }
    if (g->n_prefetch) empty_list(e, p->c_list_offset, p->c_prefetch);
    if (c_lines(p)) {
        em_val off =
            em_add(e, gemm_offset(e, g, c, at.batch), em_mul(e, at.row, em_size_value(e, c->row)));
        em_val to = em_gep(e, em_buf(e, c->buf), c->dtype, em_add(e, off, at.col));
        to = LLVMBuildPtrToInt(e->b, to, e->i64, "");
        int n = g->n_prefetch ? p->mr * c_lines(p) : p->c_prefetch - partial_c_lines(p);
        for (int v = 0; v < (n + 7) / 8; v++) put_c_lines(e, p, list, to, rows, v);
    }
    if (g->n_prefetch) put_operand_lines(e, p, &at, list, rows);
    if (p->keeps_partial_c) put_partial_c(e, p, list, em_gep_bytes(e, acc, acc_bytes));
    em_endif(e, &used);
    return list;
}

void gemm_prefetch_epilogue(em *e, const gemm_plan *p, const gemm_state *s, em_val ir, em_val rows,
                            em_val complete) {
    const sn_gemm *g = p->g;
    const sn_gemm_operand *c = &g->c;
    sn_gemm_at at = {.batch = {s->batch[0], s->batch[1], s->batch[2]},
                     .col = gemm_first_column(e, p, g->half_width, s->jr)};
    int last = p->epi_cols * (int)sn_dtype_size(c->dtype) - 1, lines = c_lines(p);
    em_val off = em_add(e, gemm_offset(e, g, c, at.batch), at.col), line[MAX_AT_ONCE];
    em_val first = em_add(e, s->ic, ir);
    if (complete) rows = em_select(e, complete, rows, 0);
    em_loop l = em_for(e, 0, rows, 1);
    at.row = em_add(e, first, l.i);
    em_val to = em_add(e, off, em_mul(e, at.row, em_size_value(e, c->row)));
    if (lines) to = em_gep(e, em_buf(e, c->buf), c->dtype, to);
    for (int i = 0; i < lines; i++) {
        int byte = i * GEMM_LINE < last ? i * GEMM_LINE : last;
        em_prefetch(e, em_gep_bytes(e, to, byte), true, 3);
    }
    if (g->n_prefetch) g->prefetch_operands(g->ctx, e, &at, line);
    for (int i = 0; i < g->n_prefetch; i++) em_prefetch(e, line[i], false, 3);
    em_end(e, &l);
}

/* Row reductions are stored to few lines: those of the first and the last row are requested when
 * the microtile begins. */
void gemm_prefetch_row_sums(em *e, const gemm_plan *p, const gemm_state *s, em_val ir,
                            em_val rows) {
    const sn_gemm *g = p->g;
    em_val line[SN_GEMM_SUMS], row = em_add(e, s->ic, ir);
    em_val last = em_sub(e, em_add(e, row, rows), 1);
    for (int end = 0; end < 2; end++) {
        sn_gemm_at at = {.batch = {s->batch[0], s->batch[1], s->batch[2]},
                         .row = end ? last : row,
                         .col = em_mul(e, s->jr, p->epi_cols)};
        g->prefetch_row_sums(g->ctx, e, &at, line);
        for (int i = 0; i < g->n_sums; i++) em_prefetch(e, line[i], true, 3);
    }
}

/* Prefetched for writing, into L1. */
void gemm_prefetch_c(em *e, const gemm_plan *p, em_val list, em_val k) {
    em_val i = em_and(e, em_ashr(e, k, em_i64(e, p->c_prefetch_shift)), p->c_prefetch - 1);
    em_prefetch(e, em_load_raw(e, e->ptr, em_gep(e, list, SN_I64, i), 8), true, 3);
}

/* ---- the B that is packed next ---- */

/* The share [lo, hi) of n things of rows [ir, ir + rows). */
static void share_of_rows(em *e, const gemm_state *s, em_val n, em_val ir, em_val rows, em_val *lo,
                          em_val *hi) {
    em_val first = em_add(e, s->ic_offset, ir);
    *lo = em_div(e, em_mul(e, n, first), s->n_rows_ic);
    *hi = em_div(e, em_mul(e, n, em_add(e, first, rows)), s->n_rows_ic);
}

/* The columns of a panel, which are contiguous: column j starts at from + j * stride. */
static void put_b_columns(em *e, const gemm_plan *p, const gemm_state *s, em_val list, em_val from,
                          em_val stride, em_val ir, em_val rows) {
    sn_dtype t = p->g->b.dtype;
    em_val size = em_i64(e, (int64_t)sn_dtype_size(t)), lo, hi;
    em_val lines = em_ceil_div(e, em_mul(e, s->kb, size), GEMM_LINE);
    share_of_rows(e, s, em_i64(e, p->panel), ir, rows, &lo, &hi);
    em_loop j = em_for(e, lo, hi, 1);
    em_val first = em_mul(e, em_sub(e, j.i, lo), lines);
    em_val column = em_gep(e, from, t, em_mul(e, j.i, stride));
    em_val n = em_imin(e, lines, em_imax(e, em_sub(e, p->b_prefetch, first), 0));
    em_loop l = em_for(e, 0, n, 1);
    put(e, list, em_add(e, first, l.i), em_gep_bytes(e, column, em_mul(e, l.i, GEMM_LINE)));
    em_end(e, &l);
    em_end(e, &j);
}

/* The rows of a panel: row k starts at from + k * stride. */
static void put_b_rows(em *e, const gemm_plan *p, const gemm_state *s, em_val list, em_val from,
                       em_val stride, em_val ir, em_val rows) {
    sn_dtype t = p->g->b.dtype;
    int lines = (p->panel * (int)sn_dtype_size(t) + GEMM_LINE - 1) / GEMM_LINE;
    em_val lo, hi;
    share_of_rows(e, s, s->kb, ir, rows, &lo, &hi);
    hi = em_imin(e, hi, em_add(e, lo, p->b_prefetch / lines));
    em_loop k = em_for(e, lo, hi, 1);
    em_val entry = em_mul(e, em_sub(e, k.i, lo), lines);
    em_val row = em_gep(e, from, t, em_mul(e, k.i, stride));
    for (int l = 0; l < lines; l++)
        put(e, list, em_add(e, entry, l), em_gep_bytes(e, row, l * GEMM_LINE));
    em_end(e, &k);
}

/* The microtile row's share of the panel that is packed nc_panels later, or of the next KC block of
 * this panel. */
static void put_b_source(em *e, const gemm_plan *p, const gemm_state *s, em_val list, em_val ir,
                         em_val rows) {
    const sn_gemm_operand *b = &p->g->b;
    em_val panel = em_add(e, s->jr, p->nc_panels), pc = zero(e);
    if (p->k_blocked) {
        em_val more = em_cmp(e, EM_LT, em_add(e, s->pc, s->kb), s->k);
        panel = em_select(e, more, s->jr, panel);
        pc = em_select(e, more, em_add(e, s->pc, s->kb), 0);
    }
    panel = em_imin(e, panel, em_sub(e, s->panel_end, 1));
    em_val row = em_size_value(e, b->row), col = em_size_value(e, b->col);
    em_val at = em_add(e, em_mul(e, pc, row), em_mul(e, em_mul(e, panel, p->panel), col));
    em_val from = em_gep(e, s->b, b->dtype, at);
    if (gemm_is(b->row, 1))
        put_b_columns(e, p, s, list, from, col, ir, rows);
    else
        put_b_rows(e, p, s, list, from, row, ir, rows);
}

em_val gemm_emit_b_list(em *e, const gemm_plan *p, const gemm_state *s, em_val ir, em_val rows) {
    em_val list = empty_list(e, p->b_list_offset, p->b_prefetch);
    em_branch packs = {0};
    if (p->b_in_place) packs = em_if(e, em_not(e, s->b_in_place));
    put_b_source(e, p, s, list, ir, rows);
    if (p->b_in_place) em_endif(e, &packs);
    return list;
}

/* Prefetched for reading, into L2. */
void gemm_prefetch_b(em *e, const gemm_plan *p, em_val list, em_val k) {
    em_val i = em_and(e, k, p->b_prefetch - 1);
    em_val line = em_load_raw(e, e->ptr, em_gep(e, list, SN_I64, i), 8);
    em_prefetch(e, line, false, 2);
}
