/* loops.c: elementwise and row kernels. Rows of the domain are shared out to the threads; on a row
 * there is one vector loop a stage (a stage ends with the row reductions that the next one needs).
 * What a later stage needs again is recomputed if that is cheap, otherwise kept in a row buffer
 * that stays in the L1 cache. */
#include "codegen/rows/body.h"

#include <string.h>

enum {
    WORTH_KEEPING = 8,       /* cost from which on a value is kept for a later loop */
    ACCUMULATORS = 4,        /* independent partial results of a row reduction */
    FLAT_BLOCK = 4096,       /* elements of one unit of work where rows may be cut */
    SERIAL_ELEMENTS = 16384, /* below this one thread does it all: waking the others costs more */
};

typedef struct rows {
    sn_body b;
    int n_loop;                   /* stages with a loop: 0 .. n_loop-1 */
    bool draws;                   /* random numbers, four vectors from one computation */
    int out_loop[SN_MAX_RESULTS]; /* loop that stores a result; -1: after the loops, once a row */
} rows;

static bool is_reduce(const sn_item *it) {
    return sn_attr_get(it->n, SN_A_axes) != NULL;
}

static bool along_row(const sn_body *b, int item) {
    return b->item[item].vary >> b->row & 1;
}

/* ---- analysis: which loop needs which values ---- */

/* The values that loop `l` computes along the row for its own sake: operands of its reductions,
 * results that it stores. */
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

static bool keepable(const sn_body *b, const sn_item *it) {
    return sn_dtype_is_float((sn_dtype)it->n->dtype) && it->n->op != SN_OP_arg &&
           it->cost >= WORTH_KEEPING && (b->k->compute == SN_F64) == (it->n->dtype == SN_F64);
}

/* A result in memory as precise as the value serves as its row buffer. */
static bool result_keeps(const rows *r, const sn_item *it) {
    const sn_body *b = &r->b;
    if (it->out < 0) return false;
    return b->k->step->out[it->out].dtype == b->k->compute && b->out_stride[it->out][b->row] == 1;
}

/* Walks what a later loop needs, from its targets down, and keeps what loop l has computed and is
 * dear. */
static void keep_for(rows *r, int l, const uint8_t *computed, int item, uint8_t *seen) {
    sn_body *b = &r->b;
    sn_item *it = &b->item[item];
    if (seen[item] || !along_row(b, item)) return;
    seen[item] = 1;
    if (it->cache >= 0 || (it->available && result_keeps(r, it))) return;
    if (computed[item] && keepable(b, it)) {
        bool stored_here = result_keeps(r, it) && r->out_loop[it->out] == l;
        if (stored_here)
            it->available = true;
        else
            it->cache = b->n_cache++;
        return;
    }
    for (int i = 0; i < it->n->n_in; i++)
        if (it->op[i] >= 0) keep_for(r, l, computed, it->op[i], seen);
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
            for (int i = 0; i < n; i++) keep_for(r, l, computed, list[i], seen);
        }
    }
    for (int i = 0; i < b->n_item; i++) b->item[i].available = false;
}

/* ---- analysis: who sees a NaN ---- */

/* The question: is x NaN somewhere on the row, which items are then NaN, whatever item `without`
 * and the reductions that may already overlook one are: where x is, or (whole) on the whole row? */
typedef struct nan_trace {
    const sn_body *b;
    int x, without;
    uint8_t *known[2]; /* by `whole` and item: 0 not asked yet, 1 no, 2 yes */
} nan_trace;

static bool shows_nan(const nan_trace *t, int item, bool whole);

static bool operand_shows(const nan_trace *t, const sn_item *it, int i, bool whole) {
    return it->op[i] >= 0 && shows_nan(t, it->op[i], whole);
}

static bool finds_nan(const nan_trace *t, const sn_item *it, bool whole) {
    const sn_node *n = it->n;
    if (n->op == SN_OP_select) { /* no comparison with NaN holds but `ne`: the last operand */
        const sn_item *c = &t->b->item[it->op[0]];
        bool compares = c->n->op == SN_OP_eq || c->n->op == SN_OP_lt || c->n->op == SN_OP_le;
        bool last = compares && (operand_shows(t, c, 0, whole) || operand_shows(t, c, 1, whole));
        return operand_shows(t, it, 2, whole) && (last || operand_shows(t, it, 1, whole));
    }
    if (!(sn_ops[n->op].flags & SN_OPF_PROPAGATES_NAN) || !sn_dtype_is_float((sn_dtype)n->dtype))
        return false;
    for (int i = 0; i < n->n_in; i++)
        if (operand_shows(t, it, i, whole && !is_reduce(it))) return true;
    return false;
}

static bool shows_nan(const nan_trace *t, int item, bool whole) {
    if (item == t->without || t->b->item[item].quiet) return false;
    if (item == t->x) return !whole || !along_row(t->b, item);
    uint8_t *known = &t->known[whole][item];
    if (!*known) *known = finds_nan(t, &t->b->item[item], whole) ? 2 : 1;
    return *known == 2;
}

/* A softmax that overlooks a NaN when it looks for the maximum still adds it up: then the plain
 * instruction will do, in place of three. */
static void find_quiet(sn_body *b) {
    for (int i = 0; i < b->n_item; i++) {
        sn_item *it = &b->item[i];
        if (it->n->op != SN_OP_reduce_max && it->n->op != SN_OP_reduce_min) continue;
        nan_trace t = {.b = b, .x = it->op[0], .without = i};
        for (int w = 0; w < 2; w++) t.known[w] = sn_arena_alloc(b->k->m, (size_t)b->n_item);
        it->quiet = sn_dtype_is_float((sn_dtype)it->n->dtype);
        for (int o = 0; o < b->region->n_out; o++) it->quiet &= shows_nan(&t, b->out_item[o], true);
    }
}

static bool lay_out(rows *r, em *e, const sn_kernel *k) {
    if (!sn_body_init(&r->b, e, k, true)) return false;
    r->draws = sn_body_draws(&r->b);
    plan_loops(r);
    find_quiet(&r->b);
    return true;
}

/* ---- emission ---- */

/* All lanes to one value in a fixed order. */
static em_val join_lanes(em *e, const sn_item *red, em_val v) {
    for (int n = em_lanes_of(v) / 2; n >= 1; n /= 2)
        v = sn_body_join(e, red, n > 1 ? em_part(e, v, 0, n) : em_extract(e, v, 0),
                         n > 1 ? em_part(e, v, n, n) : em_extract(e, v, 1));
    return v;
}

/* Accumulators of one loop: variables, so that main and tail loop share them. */
typedef struct sums {
    int *item;
    em_var (*acc)[ACCUMULATORS];
    int n;
} sums;

static em_val wide_value(sn_body *b, int item) {
    em_val v = sn_body_vector(b, item);
    return em_lanes_of(v) > 1 ? v : em_splat(b->e, v, b->lanes);
}

/* The work of one vector of the row: store results, keep values, add to accumulator number `u`. */
static void emit_position(rows *r, int l, sums *s, int u) {
    sn_body *b = &r->b;
    em *e = b->e;
    sn_body_forget_vectors(b);
    for (int i = 0; i < s->n; i++) {
        sn_item *red = &b->item[s->item[i]];
        em_val v = wide_value(b, red->op[0]);
        if (b->mask)
            v = em_select(e, b->mask, v, em_splat(e, sn_body_neutral(e, red->n), b->lanes));
        em_set(e, s->acc[i][u], sn_body_join(e, red, v, em_get(e, s->acc[i][u])));
    }
    em_val result[SN_MAX_RESULTS]; /* all before the first is stored: it may lie where another
                                      one's operand does */
    for (int o = 0; o < b->region->n_out; o++)
        if (r->out_loop[o] == l) result[o] = sn_body_vector(b, b->out_item[o]);
    for (int o = 0; o < b->region->n_out; o++)
        if (r->out_loop[o] == l) sn_body_store(b, o, result[o]);
    for (int i = 0; i < b->n_item; i++) {
        sn_item *it = &b->item[i];
        if (it->cache < 0 || it->available || !it->vec) continue;
        em_store_mask(e, b->k->compute, em_gep(e, sn_body_cache_ptr(b, i), b->k->compute, b->j),
                      it->vec, b->mask);
        it->filled = true;
    }
}

/* The second stage computes from what is in L1 and leaves memory idle: it fetches what the next row
 * will read and write. */
static void fetch_next_row(rows *r, int l) {
    sn_body *b = &r->b;
    if (l != 1 || b->mask) return;
    for (int i = 0; i < b->n_item; i++) sn_body_fetch_next(b, i);
    for (int o = 0; o < b->region->n_out; o++) sn_body_fetch_next_out(b, o);
}

/* Whole vectors of [lo, hi): `unroll` positions at a time, next to each other or, where random
 * numbers are drawn for four at once, 16 elements apart. */
static void vector_loop(rows *r, int l, sums *s, em_val lo, em_val hi, int unroll,
                        em_val masked_end) {
    sn_body *b = &r->b;
    em *e = b->e;
    bool drawn = unroll > 1 && r->draws;
    int apart = drawn ? DRAWN_BLOCKS : b->lanes;
    em_loop loop = em_for(e, lo, hi, em_i64(e, (int64_t)apart * unroll));
    em_loop part = em_for(e, em_i64(e, 0), em_i64(e, apart), em_i64(e, b->lanes));
    for (int u = 0; u < unroll; u++) {
        b->j = em_add(e, em_add(e, loop.i, part.i), em_i64(e, (int64_t)apart * u));
        b->mask = masked_end ? em_tail_mask(e, em_sub(e, masked_end, b->j), b->lanes) : NULL;
        b->quarter = drawn ? u : -1;
        emit_position(r, l, s, u);
        fetch_next_row(r, l);
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
    int n = targets(r, l, list), unroll = s.n || l || r->draws ? ACCUMULATORS : 1;
    for (int i = 0; i < n; i++) sn_body_uniforms(b, list[i]);
    for (int i = 0; i < s.n; i++) {
        em_val none = em_splat(e, sn_body_neutral(e, b->item[s.item[i]].n), b->lanes);
        for (int u = 0; u < ACCUMULATORS; u++) s.acc[i][u] = em_let(e, none);
    }
    em_val count = em_sub(e, hi, lo), at = lo;
    if (unroll > 1) {
        int64_t step = r->draws ? DRAWN : (int64_t)b->lanes * unroll;
        em_val end = em_add(e, lo, em_round_down(e, count, step));
        vector_loop(r, l, &s, at, end, unroll, NULL);
        at = end;
    }
    em_val whole = em_add(e, lo, em_round_down(e, count, b->lanes));
    vector_loop(r, l, &s, at, whole, 1, NULL);
    vector_loop(r, l, &s, whole, hi, 1, hi);
    sn_body_forget_vectors(b);
    for (int i = 0; i < s.n; i++) {
        sn_item *red = &b->item[s.item[i]];
        em_val low = sn_body_join(e, red, em_get(e, s.acc[i][0]), em_get(e, s.acc[i][1]));
        em_val high = sn_body_join(e, red, em_get(e, s.acc[i][2]), em_get(e, s.acc[i][3]));
        red->uniform = join_lanes(e, red, sn_body_join(e, red, low, high));
    }
    for (int i = 0; i < b->n_item; i++) { /* from here on later loops read what this one kept */
        sn_item *it = &b->item[i];
        bool stored =
            it->out >= 0 && r->out_loop[it->out] == l && result_keeps(r, it) && keepable(b, it);
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

/* Splits a unit's number into the indices of the axes outside the row, innermost fastest. */
static void set_indices(sn_body *b, em_val unit) {
    em *e = b->e;
    for (int a = b->rank - 1; a >= 0; a--) {
        if (a == b->row) continue;
        bool outermost = true;
        for (int o = 0; o < a; o++) outermost &= o == b->row || b->domain[o] == 1;
        if (b->domain[a] == 1)
            b->index[a] = em_i64(e, 0);
        else if (outermost)
            b->index[a] = unit;
        else {
            em_val n = sn_body_extent(b, a);
            b->index[a] = em_rem(e, unit, n);
            unit = em_div(e, unit, n);
        }
    }
}

static void emit_loops(em *e, const sn_kernel *k) {
    rows r = {.n_loop = 0};
    if (!lay_out(&r, e, k)) {
        sn_fail(&e->err, SN_ERR_INTERNAL, "%s", sn_module_error(k->m)->message);
        return;
    }
    sn_body *b = &r.b;
    em_kernel(e, k->name);
    em_val zero = em_i64(e, 0), n_row = sn_body_extent(b, b->row), rows_total = em_i64(e, 1);
    for (int a = 0; a < b->rank; a++)
        if (a != b->row) rows_total = em_mul(e, rows_total, sn_body_extent(b, a));
    int64_t fixed;
    bool cut =
        !b->reduces && !(sn_dim_is_const(k->m, b->domain[b->row], &fixed) && fixed <= FLAT_BLOCK);
    em_val blocks = cut ? em_ceil_div(e, n_row, FLAT_BLOCK) : em_i64(e, 1);
    em_val units = em_mul(e, rows_total, blocks), lo, hi;
    em_share(e, units, &lo, &hi);
    em_val small = em_cmp(e, EM_LE, em_mul(e, rows_total, n_row), em_i64(e, SERIAL_ELEMENTS));
    em_val first = em_cmp(e, EM_EQ, e->tid, zero);
    lo = em_select(e, small, zero, lo);
    hi = em_select(e, small, em_select(e, first, units, zero), hi);
    em_loop loop = em_for(e, lo, hi, em_i64(e, 1));
    em_val from = zero, to = n_row;
    if (cut) {
        from = em_mul(e, em_rem(e, loop.i, blocks), em_i64(e, FLAT_BLOCK));
        to = em_imin(e, n_row, em_add(e, from, em_i64(e, FLAT_BLOCK)));
        set_indices(b, em_div(e, loop.i, blocks));
    } else
        set_indices(b, loop.i);
    emit_row(&r, from, to);
    em_end(e, &loop);
    em_end_kernel(e);
}

static sn_dim loops_scratch(const sn_kernel *k, const sn_target *t) {
    (void)t;
    rows r = {.n_loop = 0};
    if (!lay_out(&r, NULL, k)) return 0;
    sn_dim row = r.b.domain[r.b.row];
    return sn_dim_mul(k->m, row, (int64_t)(r.b.n_cache * (int)sn_dtype_size(k->compute)));
}

const sn_family sn_family_loops = {.emit = emit_loops, .scratch = loops_scratch};
