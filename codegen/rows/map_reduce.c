/* map_reduce.c: elementwise and row kernels. The threads share the rows of the domain. A row takes
 * one vector loop per stage; a stage ends with the row reductions that the next stage needs. Values
 * that a later stage needs again are recomputed if that is cheap, else cached in a row buffer,
 * which stays in L1. */
#include "codegen/rows/row_tile.h"

#include <string.h>

enum {
    ACCUMULATORS = 4,        /* independent partial results of a row reduction */
    FLAT_BLOCK = 4096,       /* elements of a work item where rows may be divided */
    SERIAL_ELEMENTS = 16384, /* smaller kernels run on one thread: to wake the others costs more */
};

typedef struct rows {
    sn_body b;
    int n_loop;                   /* stages with a loop: 0 .. n_loop-1 */
    bool shares_random;           /* four vectors of random numbers come from one computation */
    int out_loop[SN_MAX_RESULTS]; /* loop that stores a result; -1: after the loops, once a row */
} rows;

static bool is_reduce(const sn_item *it) {
    return sn_attr_get(it->n, SN_A_axes) != NULL;
}

static bool along_row(const sn_body *b, int item) {
    return b->item[item].vary >> b->row & 1;
}

/* ---- analysis: which loop needs which values ---- */

/* The values that loop `l` must compute along the row: operands of its reductions and results that
 * it stores. */
static int targets(const rows *r, int l, int *list) {
    const sn_body *b = &r->b;
    int n = 0;
    for (int i = 0; i < b->n_item; i++)
        if (is_reduce(&b->item[i]) && b->item[i].stage == l + 1) list[n++] = b->item[i].op[0];
    for (int o = 0; o < b->region->n_out; o++)
        if (r->out_loop[o] == l) list[n++] = b->out_item[o];
    return n;
}

static void mark_below(const sn_body *b, int item, uint8_t *mark) {
    if (mark[item] || !along_row(b, item)) return;
    mark[item] = 1;
    const sn_item *it = &b->item[item];
    for (int i = 0; i < it->n->n_in; i++)
        if (it->op[i] >= 0) mark_below(b, it->op[i], mark);
}

static bool is_cacheable(const sn_body *b, const sn_item *it) {
    return sn_dtype_is_float((sn_dtype)it->n->dtype) && it->n->op != SN_OP_arg &&
           it->cost >= SN_COST_KEEP_IN_ROW && (b->k->compute == SN_F64) == (it->n->dtype == SN_F64);
}

/* Whether a result can serve as the value's row buffer: it is stored without loss of precision. */
static bool result_caches(const rows *r, const sn_item *it) {
    const sn_body *b = &r->b;
    if (it->out < 0) return false;
    return b->k->step->out[it->out].dtype == b->k->compute && b->out_stride[it->out][b->row] == 1;
}

/* Visits what a later loop needs, from its targets down, and caches the expensive values that loop l
 * has computed. */
static void cache_for(rows *r, int l, const uint8_t *computed, int item, uint8_t *seen) {
    sn_body *b = &r->b;
    sn_item *it = &b->item[item];
    if (seen[item] || !along_row(b, item)) return;
    seen[item] = 1;
    if (it->cache >= 0 || (it->available && result_caches(r, it))) return;
    if (computed[item] && is_cacheable(b, it)) {
        bool stored_here = result_caches(r, it) && r->out_loop[it->out] == l;
        if (stored_here)
            it->available = true;
        else
            it->cache = b->n_cache++;
        return;
    }
    for (int i = 0; i < it->n->n_in; i++)
        if (it->op[i] >= 0) cache_for(r, l, computed, it->op[i], seen);
}

static void plan_loops(rows *r) {
    sn_body *b = &r->b;
    sn_module *m = b->k->m;
    r->n_loop = b->n_stage;
    for (int o = 0; o < b->region->n_out; o++) {
        r->out_loop[o] = b->out_row[o] ? b->item[b->out_item[o]].stage : -1;
        if (r->out_loop[o] + 1 > r->n_loop) r->n_loop = r->out_loop[o] + 1;
    }
    int *list = sn_arena_alloc(m, sizeof *list * (size_t)(b->n_item + SN_MAX_RESULTS));
    for (int l = 0; l < r->n_loop; l++) {
        uint8_t *computed = sn_arena_alloc(m, (size_t)b->n_item + 1);
        int n = targets(r, l, list);
        for (int i = 0; i < n; i++) mark_below(b, list[i], computed);
        for (int later = l + 1; later < r->n_loop; later++) {
            uint8_t *seen = sn_arena_alloc(m, (size_t)b->n_item + 1);
            n = targets(r, later, list);
            for (int i = 0; i < n; i++) cache_for(r, l, computed, list[i], seen);
        }
    }
    for (int i = 0; i < b->n_item; i++) b->item[i].available = false;
}

/* ---- analysis: which values propagate NaN ---- */

/* If x is NaN somewhere on the row, which items are then NaN: at that position, or (whole) on the
 * whole row? Does not rely on item `without` and on reductions that ignore NaN. */
typedef struct nan_trace {
    const sn_body *b;
    int x, without;
    uint8_t *known[2]; /* by `whole` and item: 0 not known yet, 1 no, 2 yes */
} nan_trace;

static bool shows_nan(const nan_trace *t, int item, bool whole);

static bool operand_shows(const nan_trace *t, const sn_item *it, int i, bool whole) {
    return it->op[i] >= 0 && shows_nan(t, it->op[i], whole);
}

static bool finds_nan(const nan_trace *t, const sn_item *it, bool whole) {
    const sn_node *n = it->n;
    if (n->op ==
        SN_OP_select) { /* comparisons with NaN are false, except `ne`: takes the last operand */
        const sn_item *c = &t->b->item[it->op[0]];
        bool compares = c->n->op == SN_OP_eq || c->n->op == SN_OP_lt || c->n->op == SN_OP_le;
        bool last = compares && (operand_shows(t, c, 0, whole) || operand_shows(t, c, 1, whole));
        return operand_shows(t, it, 2, whole) && (last || operand_shows(t, it, 1, whole));
    }
    if (!(sn_ops[n->op].flags & SN_OPF_PROPAGATES_NAN)) return false; /* as casts to integers */
    for (int i = 0; i < n->n_in; i++)
        if (operand_shows(t, it, i, whole && !is_reduce(it))) return true;
    return false;
}

static bool shows_nan(const nan_trace *t, int item, bool whole) {
    if (item == t->without || t->b->item[item].ignores_nan) return false;
    if (item == t->x) return !whole;
    uint8_t *known = &t->known[whole][item];
    if (!*known) *known = finds_nan(t, &t->b->item[item], whole) ? 2 : 1;
    return *known == 2;
}

/* Finds reductions that may ignore NaN because the results show it anyway, such as the maximum of a
 * softmax, whose sum becomes NaN too. They take one instruction instead of three. */
static void find_ignored_nans(sn_body *b) {
    for (int i = 0; i < b->n_item; i++) {
        sn_item *it = &b->item[i];
        if (it->n->op != SN_OP_reduce_max && it->n->op != SN_OP_reduce_min) continue;
        nan_trace t = {.b = b, .x = it->op[0], .without = i};
        for (int w = 0; w < 2; w++) t.known[w] = sn_arena_alloc(b->k->m, (size_t)b->n_item);
        it->ignores_nan = sn_dtype_is_float((sn_dtype)it->n->dtype);
        for (int o = 0; o < b->region->n_out; o++)
            it->ignores_nan &= shows_nan(&t, b->out_item[o], true);
    }
}

static bool make_plan(rows *r, em *e, const sn_kernel *k) {
    if (!sn_body_init(&r->b, e, k, true)) return false;
    r->shares_random = sn_body_shares_random(&r->b);
    plan_loops(r);
    find_ignored_nans(&r->b);
    return true;
}

/* ---- emission ---- */

/* Accumulators of one loop. They are variables because main loop and remainder loop share them. */
typedef struct sums {
    int *item;
    em_var (*acc)[ACCUMULATORS];
    int n;
} sums;

static em_val wide_value(sn_body *b, int item) {
    em_val v = sn_body_vector(b, item);
    return em_lanes_of(v) > 1 ? v : em_splat(b->e, v, b->lanes);
}

/* One vector of the row: stores results, caches values, adds to accumulator `u`. */
static void emit_position(rows *r, int l, sums *s, int u) {
    sn_body *b = &r->b;
    em *e = b->e;
    sn_body_forget_vectors(b);
    for (int i = 0; i < s->n; i++) {
        sn_item *red = &b->item[s->item[i]];
        em_val v = wide_value(b, red->op[0]);
        if (b->mask)
            v = em_select(e, b->mask, v, em_splat(e, sn_reduce_neutral(e, red->n), b->lanes));
        em_set(e, s->acc[i][u], sn_reduce(e, red->n, red->ignores_nan, v, em_get(e, s->acc[i][u])));
    }
    em_val result[SN_MAX_RESULTS]; /* all before the first store: a result may overwrite the
                                      operand of another one */
    for (int o = 0; o < b->region->n_out; o++)
        if (r->out_loop[o] == l) result[o] = sn_body_vector(b, b->out_item[o]);
    for (int o = 0; o < b->region->n_out; o++)
        if (r->out_loop[o] == l) sn_body_store(b, o, result[o]);
    for (int i = 0; i < b->n_item; i++) {
        sn_item *it = &b->item[i];
        em_val v = b->code.value[b->n_item + i];
        if (it->cache < 0 || it->available || !v) continue;
        em_store_mask(e, b->k->compute, em_gep(e, sn_body_cache_ptr(b, i), b->k->compute, b->j), v,
                      b->mask);
        it->filled = true;
    }
}

/* The second stage computes from L1 and leaves memory idle: it prefetches what the next row reads
 * and writes. */
static void prefetch_next_row(rows *r, int l) {
    sn_body *b = &r->b;
    if (l != 1 || b->mask) return;
    for (int i = 0; i < b->n_item; i++) sn_body_prefetch_next(b, i);
    for (int o = 0; o < b->region->n_out; o++) sn_body_prefetch_next_out(b, o);
}

/* Whole vectors of [lo, hi), `unroll` positions at a time: adjacent, or 16 elements apart where four
 * vectors share random numbers. */
static void vector_loop(rows *r, int l, sums *s, em_val lo, em_val hi, int unroll,
                        em_val masked_end) {
    sn_body *b = &r->b;
    em *e = b->e;
    bool grouped = unroll > 1 && r->shares_random;
    int distance = grouped ? RANDOM_BLOCKS : b->lanes;
    em_loop loop = em_for(e, lo, hi, (int64_t)distance * unroll);
    em_loop part = em_for(e, 0, distance, b->lanes);
    for (int u = 0; u < unroll; u++) {
        b->j = em_add(e, em_add(e, loop.i, part.i), (int64_t)distance * u);
        b->mask = masked_end ? em_tail_mask(e, em_sub(e, masked_end, b->j), b->lanes) : NULL;
        b->quarter = grouped ? u : -1;
        emit_position(r, l, s, u);
        prefetch_next_row(r, l);
    }
    b->quarter = -1;
    em_end(e, &part);
    em_end(e, &loop);
}

/* One stage over [lo, hi) of the row: unrolled main part, whole vectors, one masked vector. */
static void emit_stage(rows *r, int l, em_val lo, em_val hi) {
    sn_body *b = &r->b;
    em *e = b->e;
    sums s = {.n = 0};
    s.item = sn_arena_alloc(b->k->m, sizeof *s.item * (size_t)(b->n_item + 1));
    s.acc = sn_arena_alloc(b->k->m, sizeof *s.acc * (size_t)(b->n_item + 1));
    for (int i = 0; i < b->n_item; i++)
        if (is_reduce(&b->item[i]) && b->item[i].stage == l + 1) s.item[s.n++] = i;
    int *list = sn_arena_alloc(b->k->m, sizeof *list * (size_t)(b->n_item + SN_MAX_RESULTS));
    int n = targets(r, l, list), unroll = s.n || l || r->shares_random ? ACCUMULATORS : 1;
    for (int i = 0; i < n; i++) sn_body_uniforms(b, list[i]);
    for (int i = 0; i < s.n; i++) {
        em_val none = em_splat(e, sn_reduce_neutral(e, b->item[s.item[i]].n), b->lanes);
        for (int u = 0; u < ACCUMULATORS; u++) s.acc[i][u] = em_let(e, none);
    }
    em_val count = em_sub(e, hi, lo), at = lo;
    if (unroll > 1) {
        int64_t step = r->shares_random ? RANDOM_GROUP : (int64_t)b->lanes * unroll;
        em_val end = em_add(e, lo, em_round_down(e, count, step));
        vector_loop(r, l, &s, at, end, unroll, NULL);
        at = end;
    }
    if (!r->shares_random) { /* random numbers are much code: masked vectors do for all the rest */
        em_val whole = em_add(e, lo, em_round_down(e, count, b->lanes));
        vector_loop(r, l, &s, at, whole, 1, NULL);
        at = whole;
    }
    vector_loop(r, l, &s, at, hi, 1, hi);
    sn_body_forget_vectors(b);
    for (int i = 0; i < s.n; i++) {
        sn_item *red = &b->item[s.item[i]];
        em_val low =
            sn_reduce(e, red->n, red->ignores_nan, em_get(e, s.acc[i][0]), em_get(e, s.acc[i][1]));
        em_val high =
            sn_reduce(e, red->n, red->ignores_nan, em_get(e, s.acc[i][2]), em_get(e, s.acc[i][3]));
        b->code.value[s.item[i]] = sn_reduce_lanes(
            e, red->n, red->ignores_nan, sn_reduce(e, red->n, red->ignores_nan, low, high));
    }
    for (int i = 0; i < b->n_item; i++) { /* from here on later loops read what this one cached */
        sn_item *it = &b->item[i];
        bool stored = it->out >= 0 && r->out_loop[it->out] == l && result_caches(r, it) &&
                      is_cacheable(b, it);
        if (it->filled || stored) it->available = true;
    }
}

static void emit_row(rows *r, em_val lo, em_val hi) {
    sn_body *b = &r->b;
    sn_body_forget_row(b);
    sn_body_pointers(b);
    for (int l = 0; l < r->n_loop; l++) emit_stage(r, l, lo, hi);
    b->mask = NULL;
    for (int o = 0; o < b->region->n_out; o++)
        if (r->out_loop[o] < 0) {
            sn_body_uniforms(b, b->out_item[o]);
            b->j = em_i64(b->e, 0);
            em_val v = sn_body_vector(b, b->out_item[o]);
            sn_body_store(b, o, em_lanes_of(v) > 1 ? em_extract(b->e, v, 0) : v);
        }
}

/* Sets the indices of the axes outside the row from the row's number, innermost fastest. */
static void set_indices(sn_body *b, em_val row) {
    em *e = b->e;
    for (int a = b->rank - 1; a >= 0; a--) {
        if (a == b->row) continue;
        bool outermost = true;
        for (int o = 0; o < a; o++) outermost &= o == b->row || b->domain[o] == 1;
        if (b->domain[a] == 1)
            b->index[a] = em_i64(e, 0);
        else if (outermost)
            b->index[a] = row;
        else {
            em_val n = sn_body_extent(b, a);
            b->index[a] = em_rem(e, row, n);
            row = em_div(e, row, n);
        }
    }
}

/* Items [lo, hi): rows, or, for rows that are divided, their `blocks` blocks. */
static void emit_rows(rows *r, em_val lo, em_val hi, em_val blocks) {
    sn_body *b = &r->b;
    em *e = b->e;
    em_val from = em_i64(e, 0), to = sn_body_extent(b, b->row);
    em_loop loop = em_for(e, lo, hi, 1);
    if (blocks) {
        from = em_mul(e, em_rem(e, loop.i, blocks), FLAT_BLOCK);
        to = em_imin(e, to, em_add(e, from, FLAT_BLOCK));
        set_indices(b, em_div(e, loop.i, blocks));
    } else
        set_indices(b, loop.i);
    emit_row(r, from, to);
    em_end(e, &loop);
}

static void emit_map_reduce(em *e, const sn_kernel *k) {
    rows r = {.n_loop = 0};
    if (!make_plan(&r, e, k)) {
        sn_fail(&e->err, SN_ERR_INTERNAL, "%s", sn_module_error(k->m)->message);
        return;
    }
    sn_body *b = &r.b;
    em_kernel(e, k->name);
    em_val n_row = sn_body_extent(b, b->row), rows_total = em_i64(e, 1);
    for (int a = 0; a < b->rank; a++)
        if (a != b->row) rows_total = em_mul(e, rows_total, sn_body_extent(b, a));
    int64_t fixed;
    bool cut =
        !b->reduces && !(sn_dim_is_const(k->m, b->domain[b->row], &fixed) && fixed <= FLAT_BLOCK);
    em_val blocks = cut ? em_ceil_div(e, n_row, FLAT_BLOCK) : em_i64(e, 1);
    sn_row_tile tile;
    bool tiled = sn_row_tile_choose(b, e->target, &tile);
    em_val n_items = tiled ? sn_row_tile_count(b, &tile) : em_mul(e, rows_total, blocks), lo, hi;
    em_share(e, n_items, &lo, &hi);
    em_val small = em_cmp(e, EM_LE, em_mul(e, rows_total, n_row), SERIAL_ELEMENTS);
    em_val first = em_cmp(e, EM_EQ, e->tid, 0);
    lo = em_select(e, small, 0, lo);
    hi = em_select(e, small, em_select(e, first, n_items, 0), hi);
    if (tiled)
        sn_row_tile_emit(b, &tile, lo, hi);
    else
        emit_rows(&r, lo, hi, cut ? blocks : NULL);
    em_end_kernel(e);
}

static sn_dim map_reduce_scratch(const sn_kernel *k, const sn_target *t) {
    (void)t;
    rows r = {.n_loop = 0};
    if (!make_plan(&r, NULL, k)) return 0;
    sn_dim row = r.b.domain[r.b.row];
    return sn_dim_mul(k->m, row, (int64_t)(r.b.n_cache * (int)sn_dtype_size(k->compute)));
}

const sn_family sn_family_map_reduce = {.emit = emit_map_reduce, .scratch = map_reduce_scratch};
