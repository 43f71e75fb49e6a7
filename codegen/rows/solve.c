/* solve.c: systems (1 + L) X = Y of a strictly lower L, or of its transpose, by forward substitution in
 * blocks of rows. A unit of work is a panel of columns of one system; its rows of X so far are in scratch.
 *
 *     for each block of rows of X
 *         rows = L (rows before) - Y        a product, with all accumulators in registers
 *         each row = -(row + L (rows of the block before it))
 *
 * The transpose is the same with rows and columns counted from the last. Threads share the units. Bits do not
 * depend on their number. */
#include "codegen/rows/lines.h"
#include "codegen/tile/tile.h"

enum { MAX_ROWS = 8, MAX_VECTORS = 2, UNROLL = 4 };

typedef struct matrix {
    em_val at;       /* first row, first column */
    em_val row, col; /* strides */
} matrix;

typedef struct solver {
    sn_dtype t;
    int rows, vectors; /* of a register tile */
    em_val T;
    em_val panel; /* rows of X: [T][vectors of columns] */
    em_val valid; /* columns of the panel that exist */
    matrix l, y, x;
} solver;

/* How many columns a panel has, at most; `vectors`: of registers. */
static int64_t panel_columns(const sn_kernel *k, const sn_target *t, int *vectors) {
    const sn_view *y = &k->step->in[1];
    const int64_t lanes = sn_target_lanes(t, y->dtype);
    int64_t n;
    bool narrow = sn_dim_is_const(k->m, y->shape[y->rank - 1], &n) && n <= lanes;
    *vectors = narrow ? 1 : MAX_VECTORS;
    return *vectors * lanes;
}

static em_val element(em *e, const solver *s, const matrix *a, em_val i, em_val j) {
    return em_gep(e, a->at, s->t, em_add(e, em_mul(e, i, a->row), em_mul(e, j, a->col)));
}

static em_val panel_row(em *e, const solver *s, em_val i) {
    return em_gep(e, s->panel, s->t, em_mul(e, i, (int64_t)s->vectors * e->lanes));
}

/* Vector v of row i of x or y, and how many of its lanes are columns. */
static em_val columns(em *e, const solver *s, const matrix *a, em_val i, int v, em_val *valid) {
    *valid = em_sub(e, s->valid, (int64_t)v * e->lanes);
    return element(e, s, a, i, em_i64(e, (int64_t)v * e->lanes));
}

/* acc += L[i.., j] X[j] for rows of L. */
static void add_row(em *e, const solver *s, em_val *acc, em_val i, int rows, em_val j) {
    em_val left[MAX_ROWS];
    for (int r = 0; r < rows; r++) left[r] = element(e, s, &s->l, em_add(e, i, r), j);
    tile_add_product(e, s->t, (unsigned)sn_dtype_size(s->t), acc, rows, s->vectors, left,
                     panel_row(e, s, j));
}

/* Rows [i, i + rows) of X; i is a multiple of `unroll`. */
static void emit_block(em *e, const solver *s, em_val i, int rows, int unroll) {
    const int n = s->vectors;
    em_val acc[MAX_ROWS * MAX_VECTORS], valid;
    for (int k = 0; k < rows * n; k++) {
        em_val p = columns(e, s, &s->y, em_add(e, i, k / n), k % n, &valid);
        acc[k] = em_neg(e, em_load_tail(e, s->t, p, e->lanes, valid));
    }
    em_loop l = em_for(e, 0, i, unroll);
    em_carries(e, &l, acc, rows * n);
    for (int u = 0; u < unroll; u++) add_row(e, s, acc, i, rows, em_add(e, l.i, u));
    em_end(e, &l);
    for (int r = 0; r < rows; r++) {
        em_val row = em_add(e, i, r), *mine = acc + r * n;
        for (int before = 0; before < r; before++) {
            em_val p = element(e, s, &s->l, row, em_add(e, i, before));
            tile_add(e, mine, n, em_load_splat(e, s->t, p, e->lanes), acc + before * n);
        }
        for (int v = 0; v < n; v++) {
            mine[v] = em_neg(e, mine[v]);
            em_store(e, s->t, em_gep(e, panel_row(e, s, row), s->t, (int64_t)v * e->lanes),
                     mine[v]);
            em_val p = columns(e, s, &s->x, row, v, &valid);
            em_store_tail(e, s->t, p, mine[v], valid);
        }
    }
}

/* The system's matrix in view number `buffer`; `backward`: from the last row on. */
static matrix matrix_of(em *e, const sn_kernel *k, const sn_view *v, int buffer, em_val system,
                        em_val T, bool backward) {
    const int last = v->rank - 1;
    em_val off = sn_line_offset(e, k, v, last, em_mul(e, system, T));
    matrix a = {.row = sn_kernel_dim(e, k, v->stride[last - 1]),
                .col = sn_kernel_dim(e, k, v->stride[last])};
    if (backward) off = em_add(e, off, em_mul(e, em_sub(e, T, 1), a.row));
    if (backward) a.row = em_sub(e, 0, a.row);
    a.at = em_gep(e, em_buf(e, buffer), v->dtype, off);
    return a;
}

static void emit(em *e, const sn_kernel *k) {
    const sn_view *l = &k->step->in[0], *y = &k->step->in[1], *x = &k->step->out[0];
    const bool back = sn_attr_int(k->step->node, SN_A_transposed, 0) != 0;
    solver s = {.t = y->dtype, .rows = e->target->vector_regs < 32 ? 4 : MAX_ROWS};
    em_kernel(e, k->name);
    const int64_t width = panel_columns(k, e->target, &s.vectors);
    em_val n = sn_line_extent(e, k, y, y->rank - 1), panels = em_ceil_div(e, n, width), lo, hi;
    s.T = sn_line_extent(e, k, y, y->rank - 2);
    em_val rows = sn_line_count(e, k, y, y->rank - 1),
           systems = em_div(e, rows, em_imax(e, s.T, 1));
    s.panel = e->scratch;
    em_share(e, em_mul(e, systems, panels), &lo, &hi);
    em_loop unit = em_for(e, lo, hi, 1);
    em_val system = em_div(e, unit.i, panels), col = em_mul(e, em_rem(e, unit.i, panels), width);
    s.valid = em_sub(e, n, col);
    s.l = matrix_of(e, k, l, 0, system, s.T, back);
    s.y = matrix_of(e, k, y, 1, system, s.T, back);
    s.x = matrix_of(e, k, x, 2, system, s.T, back);
    s.y.at = em_gep(e, s.y.at, s.t, em_mul(e, col, s.y.col));
    s.x.at = em_gep(e, s.x.at, s.t, em_mul(e, col, s.x.col));
    if (back) { /* element i, j is that of row T - 1 - j and column T - 1 - i */
        em_val last = em_mul(e, em_sub(e, s.T, 1), s.l.col), up = s.l.row;
        s.l = (matrix){em_gep(e, s.l.at, s.t, last), em_sub(e, 0, s.l.col), up};
    }
    em_val whole = em_round_down(e, s.T, s.rows);
    em_loop block = em_for(e, 0, whole, s.rows);
    emit_block(e, &s, block.i, s.rows, UNROLL);
    em_end(e, &block);
    em_loop rest = em_for(e, whole, s.T, 1);
    emit_block(e, &s, rest.i, 1, 1);
    em_end(e, &rest);
    em_end(e, &unit);
    em_end_kernel(e);
}

static sn_dim scratch(const sn_kernel *k, const sn_target *t) {
    const sn_view *y = &k->step->in[1];
    int vectors;
    const int64_t bytes = panel_columns(k, t, &vectors) * (int64_t)sn_dtype_size(y->dtype);
    return sn_dim_mul(k->m, y->shape[y->rank - 2], sn_dim_const(k->m, bytes));
}

const sn_family sn_family_solve = {.emit = emit, .scratch = scratch};
