/* row_tile.c: several rows of a reduction at a time; see row_tile.h. */
#include "codegen/rows/row_tile.h"

enum {
    MAX_INNER = 4, /* rows of a tile along either axis */
    MAX_OUTER = 4,
    FEW_REGISTERS = 12, /* accumulators of a tile with 16 registers, ... */
    NO_FMA = 8,         /* ... where products need registers, too */
    MANY_REGISTERS = 16,
    CHAINS = 8, /* accumulators that keep the multiply-add units busy: two of four cycles each */
    MAX_ROWS = MAX_INNER * MAX_OUTER
};

/* ---- analysis ---- */

static int the_reduction(const sn_body *b) {
    int found = -1;
    for (int i = 0; i < b->n_item; i++) {
        if (!sn_attr_get(b->item[i].n, SN_A_axes)) continue;
        if (found >= 0) return -1;
        found = i;
    }
    return found;
}

/* The next axis with several rows before `axis`; -1: none. */
static int axis_before(const sn_body *b, int axis) {
    do axis--;
    while (axis >= 0 && (axis == b->row || b->domain[axis] == 1));
    return axis;
}

/* Whether an operand with elements along the row is the same for all rows along `axis`. */
static bool shares_operand(const sn_body *b, int axis) {
    bool any = false;
    for (int i = 0; i < b->n_item; i++) {
        const sn_item *it = &b->item[i];
        any |= it->n->op == SN_OP_arg && (it->vary >> b->row & 1) && !(it->vary >> axis & 1);
    }
    return any;
}

static int fixed_size(const sn_body *b, int axis, int most) {
    int64_t size;
    return sn_dim_is_const(b->k->m, b->domain[axis], &size) && size <= most ? (int)size : 0;
}

bool sn_row_tile_choose(const sn_body *b, const sn_target *t, sn_row_tile *tile) {
    int sum = the_reduction(b);
    *tile = (sn_row_tile){.inner = -1, .outer = -1, .n_inner = 1, .n_outer = 1};
    if (sn_kernel_keeps_chunks(b->k))
        return false; /* how many accumulators a sum has depends on the rows of the tile */
    if (sum < 0 || b->n_stage != 1 || b->item[sum].cost >= SN_COST_EXPENSIVE) return false;
    for (int o = 0; o < b->region->n_out; o++)
        if (b->out_row[o]) return false;
    int axis = axis_before(b, b->rank);
    if (axis >= 0 && shares_operand(b, axis) && fixed_size(b, axis, MAX_INNER)) {
        tile->inner = axis;
        tile->n_inner = fixed_size(b, axis, MAX_INNER);
        axis = axis_before(b, axis);
    }
    int most = t->vector_regs >= 32 ? MANY_REGISTERS : t->has_fma ? FEW_REGISTERS : NO_FMA;
    if (axis >= 0 && shares_operand(b, axis)) {
        int all = fixed_size(b, axis, MAX_OUTER), n = most / tile->n_inner;
        tile->outer = axis;
        tile->n_outer = n > MAX_OUTER ? MAX_OUTER : n;
        if (all && all < tile->n_outer) tile->n_outer = all;
    }
    int rows = tile->n_inner * tile->n_outer;
    tile->positions = rows < CHAINS ? CHAINS / rows : 1;
    return rows > 1;
}

/* ---- emission ---- */

/* What items hold for a row of the tile. */
typedef struct row_state {
    em_val *ptr, *value; /* [n_item]; as in the body's code */
} row_state;

typedef struct tile_emission {
    sn_body *b;
    const sn_row_tile *tile;
    int sum;           /* item of the reduction */
    int n_outer, rows; /* emitted at a time */
    row_state row[MAX_ROWS];
    em_var acc[MAX_ROWS][CHAINS];
} tile_emission;

/* Row r of the tile: those of one place on the inner axis follow one another, so that an operand that
 * varies along this axis is in a register for the rows that use it only. */
static int inner_of(const tile_emission *x, int r) {
    return r / x->n_outer;
}

static int outer_of(const tile_emission *x, int r) {
    return r % x->n_outer;
}

/* The first row of the tile for which the item has the same value as for row r. */
static int same_as(const tile_emission *x, int item, int r) {
    const sn_row_tile *t = x->tile;
    uint32_t vary = x->b->item[item].vary;
    int inner = t->inner >= 0 && (vary >> t->inner & 1) ? inner_of(x, r) : 0;
    int outer = t->outer >= 0 && (vary >> t->outer & 1) ? outer_of(x, r) : 0;
    return inner * x->n_outer + outer;
}

static void set_row(const tile_emission *x, em_val outer, int r) {
    sn_body *b = x->b;
    const sn_row_tile *t = x->tile;
    if (t->inner >= 0) b->index[t->inner] = em_i64(b->e, inner_of(x, r));
    if (t->outer >= 0) b->index[t->outer] = em_add(b->e, outer, outer_of(x, r));
    sn_body_forget_row(b);
    sn_body_pointers(b);
}

/* Addresses and values that do not change along the rows. */
static void begin_rows(tile_emission *x, em_val outer) {
    sn_body *b = x->b;
    for (int r = 0; r < x->rows; r++) {
        row_state *s = &x->row[r];
        size_t size = sizeof *s->ptr * (size_t)b->n_item;
        s->ptr = sn_arena_alloc(b->k->m, size);
        b->code.value = s->value = sn_arena_alloc(b->k->m, 2 * size);
        set_row(x, outer, r);
        sn_body_uniforms(b, b->item[x->sum].op[0]);
        for (int i = 0; i < b->n_item; i++) s->ptr[i] = b->item[i].ptr;
    }
}

/* Adds the vectors of all rows at b->j to accumulators u. */
static void emit_position(tile_emission *x, int u) {
    sn_body *b = x->b;
    em *e = b->e;
    const sn_item *sum = &b->item[x->sum];
    for (int r = 0; r < x->rows; r++) {
        b->code.value = x->row[r].value;
        for (int i = 0, v = b->n_item; i < b->n_item; i++, v++) {
            int same = same_as(x, i, r);
            b->item[i].ptr = x->row[r].ptr[i];
            b->code.value[v] = same == r ? NULL : x->row[same].value[v];
        }
        em_val v = sn_body_vector(b, sum->op[0]);
        if (em_lanes_of(v) == 1) v = em_splat(e, v, b->lanes);
        if (b->mask)
            v = em_select(e, b->mask, v, em_splat(e, sn_reduce_neutral(e, sum->n), b->lanes));
        em_set(e, x->acc[r][u], sn_reduce(e, sum->n, sum->ignores_nan, v, em_get(e, x->acc[r][u])));
    }
}

/* Vectors of [lo, hi), several in an iteration; masked: those that end beyond hi. */
static void emit_positions(tile_emission *x, em_val lo, em_val hi, int positions, bool masked) {
    sn_body *b = x->b;
    em *e = b->e;
    em_loop l = em_for(e, lo, hi, (int64_t)b->lanes * positions);
    for (int u = 0; u < positions; u++) {
        b->j = em_add(e, l.i, (int64_t)b->lanes * u);
        b->mask = masked ? em_tail_mask(e, em_sub(e, hi, b->j), b->lanes) : NULL;
        emit_position(x, u);
    }
    b->mask = NULL;
    em_end(e, &l);
}

static void store_row(tile_emission *x, em_val outer, int r, em_val sum) {
    sn_body *b = x->b;
    set_row(x, outer, r);
    b->code.value[x->sum] = sum;
    b->j = em_i64(b->e, 0);
    for (int o = 0; o < b->region->n_out; o++) {
        sn_body_uniforms(b, b->out_item[o]);
        sn_body_store(b, o, sn_body_vector(b, b->out_item[o]));
    }
}

/* A tile of n_outer rows of the outer axis, from `outer` on. */
static void emit_tile(sn_body *b, const sn_row_tile *tile, em_val outer, int n_outer) {
    em *e = b->e;
    tile_emission x = {.b = b,
                       .tile = tile,
                       .sum = the_reduction(b),
                       .n_outer = n_outer,
                       .rows = tile->n_inner * n_outer};
    const sn_item *sum = &b->item[x.sum];
    em_val none = em_splat(e, sn_reduce_neutral(e, sum->n), b->lanes), zero = em_i64(e, 0);
    begin_rows(&x, outer);
    for (int r = 0; r < x.rows; r++)
        for (int u = 0; u < tile->positions; u++) x.acc[r][u] = em_let(e, none);
    em_val n = sn_body_extent(b, b->row);
    em_val end = em_round_down(e, n, (int64_t)b->lanes * tile->positions);
    em_val whole = em_round_down(e, n, b->lanes);
    emit_positions(&x, zero, end, tile->positions, false);
    if (tile->positions > 1) emit_positions(&x, end, whole, 1, false);
    emit_positions(&x, whole, n, 1, true);
    for (int r = 0; r < x.rows; r++) {
        em_val all = em_get(e, x.acc[r][0]);
        for (int u = 1; u < tile->positions; u++)
            all = sn_reduce(e, sum->n, sum->ignores_nan, all, em_get(e, x.acc[r][u]));
        store_row(&x, outer, r, sn_reduce_lanes(e, sum->n, sum->ignores_nan, all));
    }
}

/* The size of the outer axis, in tiles. */
static em_val count_outer(sn_body *b, const sn_row_tile *tile) {
    if (tile->outer < 0) return em_i64(b->e, 1);
    return em_ceil_div(b->e, sn_body_extent(b, tile->outer), tile->n_outer);
}

em_val sn_row_tile_count(sn_body *b, const sn_row_tile *tile) {
    em_val n = count_outer(b, tile);
    for (int a = 0; a < b->rank; a++)
        if (a != b->row && a != tile->inner && a != tile->outer)
            n = em_mul(b->e, n, sn_body_extent(b, a));
    return n;
}

void sn_row_tile_emit(sn_body *b, const sn_row_tile *tile, em_val lo, em_val hi) {
    em *e = b->e;
    em_loop l = em_for(e, lo, hi, 1);
    em_val tiles = count_outer(b, tile), rest = em_div(e, l.i, tiles);
    uint32_t others = ((1u << b->rank) - 1) & ~(1u << b->row);
    if (tile->inner >= 0) others &= ~(1u << tile->inner);
    if (tile->outer >= 0) others &= ~(1u << tile->outer);
    for (int a = 0; a < b->rank; a++) b->index[a] = em_i64(e, 0);
    sn_body_split(b, others, rest);
    em_val outer = em_mul(e, em_rem(e, l.i, tiles), tile->n_outer);
    if (tile->n_outer == 1) {
        emit_tile(b, tile, outer, 1);
        em_end(e, &l);
        return;
    }
    em_val size = sn_body_extent(b, tile->outer), next = em_add(e, outer, tile->n_outer);
    em_branch full = em_if(e, em_cmp(e, EM_LE, next, size));
    emit_tile(b, tile, outer, tile->n_outer);
    em_else(e, &full);
    em_loop one = em_for(e, outer, size, 1);
    emit_tile(b, tile, one.i, 1);
    em_end(e, &one);
    em_endif(e, &full);
    em_end(e, &l);
}
