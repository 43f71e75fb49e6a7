/* fetch.c: what a tile fetches while it is computed: the lines that its epilogue will read and
 * write, and (into L2) its share of the columns of B that are packed next. A tile takes
 * microseconds; asked for all at once the lines would wait for each other and for the tile's own
 * loads, so the micro-kernel walks lists of addresses, one a step of k. */
#include "codegen/gemm/impl.h"

enum { LINE = 64, SHORTEST = 128, LONGEST = 512 };

/* Lines of a tile's row of C; one more where rows may begin inside a line. */
static int result_lines(const gemm_plan *p) {
    const sn_gemm_operand *c = &p->g->c;
    if (p->g->no_store || !gemm_is(c->col, 1)) return 0;
    int size = (int)sn_dtype_size(c->dtype);
    bool aligned = c->row.slot < 0 && c->row.value * size % LINE == 0;
    return (p->epi_cols * size + LINE - 1) / LINE + !aligned;
}

/* Lines of a tile's row that the epilogue reads or writes. */
static int own_lines(const gemm_plan *p) {
    return result_lines(p) + p->g->n_prefetch;
}

/* Lines of a tile's sums that wait, in whole vectors of addresses. */
static int waiting_lines(const gemm_plan *p) {
    return p->keeps_partial_c ? (p->mr * p->panel * p->esize / LINE + 7) / 8 * 8 : 0;
}

static int power_of_two(int n) {
    int p = 8;
    while (p < n) p *= 2;
    return p;
}

void gemm_plan_prefetch(gemm_plan *p) {
    const sn_gemm *g = p->g;
    p->b_prefetch = p->c_prefetch = p->c_prefetch_shift = 0;
    if (p->kc < LINE || (g->k.slot < 0 && g->k.value < LINE)) return;
    int lines = p->mr * own_lines(p) + waiting_lines(p);
    if (lines && lines <= LONGEST && !gemm_is(g->m, 1)) p->c_prefetch = power_of_two(lines);
    while (p->c_prefetch && p->c_prefetch << (p->c_prefetch_shift + 1) <= p->kc)
        p->c_prefetch_shift++;
    if (!p->pack_b || g->scale_group) return;
    p->b_prefetch = SHORTEST;
    while (p->b_prefetch < LONGEST && p->b_prefetch < p->kc / 4) p->b_prefetch *= 2;
}

static void put(em *e, em_val list, em_val i, em_val address) {
    em_store_raw(e, address, em_at(e, list, SN_I64, i), 8);
}

/* A list of n places at byte `at` of scratch. Steps without a line of theirs fetch the
 * list's own. */
static em_val empty_list(em *e, int64_t at, int n) {
    em_val list = em_at_bytes(e, e->scratch, em_i64(e, at));
    em_val nothing = em_splat(e, LLVMBuildPtrToInt(e->b, list, e->i64, ""), 8);
    em_loop l = em_for(e, em_i64(e, 0), em_i64(e, n), em_i64(e, 8));
    em_store_raw(e, nothing, em_at(e, list, SN_I64, l.i), 8);
    em_end(e, &l);
    return list;
}

/* Places [8v, 8v + 8) of a tile's list: its rows' lines of C, eight at a time, because between two
 * tiles every instruction counts. */
static void put_result_lines(em *e, const gemm_plan *p, em_val list, em_val to, em_val rows,
                             int v) {
    const sn_gemm_operand *c = &p->g->c;
    int size = (int)sn_dtype_size(c->dtype), lines = result_lines(p);
    int last = p->epi_cols * size - 1;
    em_val row[8], byte[8];
    for (int l = 0; l < 8; l++) {
        int i = 8 * v + l, line = i % lines * LINE;
        row[l] = em_i64(e, i / lines);
        byte[l] = em_i64(e, line < last ? line : last);
    }
    em_val index = LLVMConstVector(row, 8),
           stride = em_mul(e, gemm_size(e, c->row), em_i64(e, size));
    em_val at = em_mul(e, index, em_splat(e, stride, 8));
    at = em_add(e, em_splat(e, to, 8), em_add(e, at, LLVMConstVector(byte, 8)));
    em_val nothing = em_splat(e, LLVMBuildPtrToInt(e->b, list, e->i64, ""), 8);
    at = em_select(e, em_cmp(e, EM_LT, index, em_splat(e, rows, 8)), at, nothing);
    em_store_raw(e, at, em_at(e, list, SN_I64, em_i64(e, 8 * v)), 8);
}

/* What the epilogue reads besides, behind the lines of C. */
static void put_touched(em *e, const gemm_plan *p, sn_gemm_at *at, em_val list, em_val rows) {
    const sn_gemm *g = p->g;
    em_val line[LONGEST], row0 = at->row;
    int first = p->mr * result_lines(p);
    em_loop l = em_for(e, em_i64(e, 0), rows, em_i64(e, 1));
    at->row = em_add(e, row0, l.i);
    g->prefetch_operands(g->ctx, e, at, line);
    em_val place = em_add(e, em_mul(e, l.i, em_i64(e, g->n_prefetch)), em_i64(e, first));
    for (int i = 0; i < g->n_prefetch; i++) put(e, list, em_add(e, place, em_i64(e, i)), line[i]);
    em_end(e, &l);
}

/* The sums of the tile that is next, at the list's end. */
static void put_waiting(em *e, const gemm_plan *p, em_val list, em_val sums) {
    em_val from = em_splat(e, LLVMBuildPtrToInt(e->b, sums, e->i64, ""), 8), byte[8];
    int n = waiting_lines(p);
    for (int i = 0; i < n; i += 8) {
        for (int l = 0; l < 8; l++) byte[l] = em_i64(e, (i + l) * LINE);
        em_store_raw(e, em_add(e, from, LLVMConstVector(byte, 8)),
                     em_at(e, list, SN_I64, em_i64(e, p->c_prefetch - n + i)), 8);
    }
}

em_val gemm_emit_c_prefetch_list(em *e, const gemm_plan *p, const gemm_state *s, em_val start,
                                 em_val rows, em_val sums) {
    const sn_gemm *g = p->g;
    const sn_gemm_operand *c = &g->c;
    sn_gemm_at at = {.batch = {s->batch[0], s->batch[1], s->batch[2]},
                     .row = em_add(e, s->ic, start),
                     .col = gemm_first_column(e, p, g->pair_distance, s->jr)};
    em_val list = em_at_bytes(e, e->scratch, em_i64(e, p->c_list_offset));
    em_branch walked = em_if(e, em_cmp(e, EM_GE, rows, em_i64(e, p->half_mr))); /* by these only */
    em_val behind = em_mul(e, rows, em_i64(e, p->panel * p->esize));
    if (p->k_blocked) { /* only the last chunk's sums leave */
        em_val due = em_cmp(e, EM_GE, em_add(e, s->pc, s->kb), s->k);
        rows = em_select(e, due, rows, em_i64(e, 0));
    }
    if (g->n_prefetch) empty_list(e, p->c_list_offset, p->c_prefetch);
    if (result_lines(p)) {
        em_val off =
            em_add(e, gemm_offset(e, g, c, at.batch), em_mul(e, at.row, gemm_size(e, c->row)));
        em_val to = em_at(e, em_buf(e, c->buf), c->dtype, em_add(e, off, at.col));
        to = LLVMBuildPtrToInt(e->b, to, e->i64, "");
        int n = g->n_prefetch ? p->mr * result_lines(p) : p->c_prefetch - waiting_lines(p);
        for (int v = 0; v < (n + 7) / 8; v++) put_result_lines(e, p, list, to, rows, v);
    }
    if (g->n_prefetch) put_touched(e, p, &at, list, rows);
    if (p->keeps_partial_c) put_waiting(e, p, list, em_at_bytes(e, sums, behind));
    em_endif(e, &walked);
    return list;
}

/* The lines that the tile's reductions go to are asked for when it begins: nothing else is near. */
void gemm_prefetch_row_sums(em *e, const gemm_plan *p, const gemm_state *s, em_val start,
                            em_val rows) {
    const sn_gemm *g = p->g;
    em_val line[SN_GEMM_SUMS], row = em_add(e, s->ic, start);
    em_val last = em_sub(e, em_add(e, row, rows), em_i64(e, 1));
    for (int end = 0; end < 2; end++) {
        sn_gemm_at at = {.batch = {s->batch[0], s->batch[1], s->batch[2]},
                         .row = end ? last : row,
                         .col = em_mul(e, s->jr, em_i64(e, p->epi_cols))};
        g->prefetch_row_sums(g->ctx, e, &at, line);
        for (int i = 0; i < g->n_sums; i++) em_prefetch(e, line[i], true, 3);
    }
}

/* Asked for as the ones who will write it; the caller's lines are its own. */
void gemm_prefetch_c(em *e, const gemm_plan *p, em_val list, em_val k) {
    em_val i =
        em_and(e, em_ashr(e, k, em_i64(e, p->c_prefetch_shift)), em_i64(e, p->c_prefetch - 1));
    em_prefetch(e, em_load_raw(e, e->ptr, em_at(e, list, SN_I64, i), 8), true, 3);
}

/* The tile's share of n things, by its rows. */
static void share_of(em *e, const gemm_state *s, em_val n, em_val start, em_val rows, em_val *lo,
                     em_val *hi) {
    em_val first = em_add(e, s->ic_offset, start);
    *lo = em_div(e, em_mul(e, n, first), s->n_rows_ic);
    *hi = em_div(e, em_mul(e, n, em_add(e, first, rows)), s->n_rows_ic);
}

/* The lines of B that are packed next: np panels further on, or the next chunk of this panel. */
static void put_source(em *e, const gemm_plan *p, const gemm_state *s, em_val list, em_val start,
                       em_val rows) {
    const sn_gemm_operand *b = &p->g->b;
    em_val zero = em_i64(e, 0), one = em_i64(e, 1), lo, hi;
    em_val panel = em_add(e, s->jr, em_i64(e, p->nc_panels)), k0 = zero, kn = s->kb;
    if (p->k_blocked) {
        em_val more = em_cmp(e, EM_LT, em_add(e, s->pc, s->kb), s->k);
        panel = em_select(e, more, s->jr, panel);
        k0 = em_select(e, more, em_add(e, s->pc, s->kb), zero);
    }
    panel = em_imin(e, panel, em_sub(e, s->panel_end, one));
    em_val row = gemm_size(e, b->row), col = gemm_size(e, b->col);
    em_val at =
        em_add(e, em_mul(e, k0, row), em_mul(e, em_mul(e, panel, em_i64(e, p->panel)), col));
    em_val from = em_at(e, s->b, b->dtype, at), room = em_i64(e, p->b_prefetch);
    int size = (int)sn_dtype_size(b->dtype);
    if (gemm_is(b->row, 1)) { /* columns lie along k */
        em_val lines = em_ceil_div(e, em_mul(e, kn, em_i64(e, size)), LINE);
        share_of(e, s, em_i64(e, p->panel), start, rows, &lo, &hi);
        em_loop j = em_for(e, lo, hi, one);
        em_val first = em_mul(e, em_sub(e, j.i, lo), lines);
        em_val column = em_at(e, from, b->dtype, em_mul(e, j.i, col));
        em_val n = em_imin(e, lines, em_imax(e, em_sub(e, room, first), zero));
        em_loop l = em_for(e, zero, n, one);
        put(e, list, em_add(e, first, l.i),
            em_at_bytes(e, column, em_mul(e, l.i, em_i64(e, LINE))));
        em_end(e, &l);
        em_end(e, &j);
        return;
    }
    int lines = (p->panel * size + LINE - 1) / LINE;
    share_of(e, s, kn, start, rows, &lo, &hi);
    hi = em_imin(e, hi, em_add(e, lo, em_i64(e, p->b_prefetch / lines)));
    em_loop k = em_for(e, lo, hi, one);
    em_val place = em_mul(e, em_sub(e, k.i, lo), em_i64(e, lines));
    em_val p0 = em_at(e, from, b->dtype, em_mul(e, k.i, row));
    for (int l = 0; l < lines; l++)
        put(e, list, em_add(e, place, em_i64(e, l)), em_at_bytes(e, p0, em_i64(e, l * LINE)));
    em_end(e, &k);
}

em_val gemm_emit_b_prefetch_list(em *e, const gemm_plan *p, const gemm_state *s, em_val start,
                                 em_val rows) {
    em_val list = empty_list(e, p->b_list_offset, p->b_prefetch);
    em_branch packs = {0};
    if (p->b_in_place) packs = em_if(e, em_not(e, s->b_in_place));
    put_source(e, p, s, list, start, rows);
    if (p->b_in_place) em_endif(e, &packs);
    return list;
}

void gemm_prefetch_b(em *e, const gemm_plan *p, em_val list, em_val k) {
    em_val i = em_and(e, k, em_i64(e, p->b_prefetch - 1));
    em_val line = em_load_raw(e, e->ptr, em_at(e, list, SN_I64, i), 8);
    em_prefetch(e, line, false, 2);
}
