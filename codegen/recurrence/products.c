/* products.c: the products of a chunk, with all accumulators in registers. Both factors are in scratch
 * and read in place: rows of the right one are contiguous, elements of the left one broadcast. Of bf16, an
 * element is a word of two, and so is a row. */
#include "codegen/recurrence/impl.h"

enum {
    LOG_ROWS = 2,
    ROWS = 1 << LOG_ROWS,
    MAX_VECTORS = REC_VECTORS,
    LOG_UNROLL = 2,
    UNROLL = 1 << LOG_UNROLL
};

/* A register tile of ROWS rows and n vectors of columns. */
typedef struct tile {
    em_val acc[ROWS * MAX_VECTORS];
    int n;
} tile;

static em_val plus(em *e, const rec_plan *p, em_val at, int64_t elements) {
    return em_gep(e, at, p->t, elements);
}

/* acc += element of each row times the vectors of a row of the right factor */
static void add_product(em *e, const rec_plan *p, tile *x, const em_val *element, em_val row) {
    tile_add_product(e, p->bf16 ? SN_BF16 : p->t, (unsigned)sn_dtype_size(p->t), x->acc, ROWS, x->n,
                     element, row);
}

/* Rows of the right factor in one of its vectors. */
static int rows_of_word(const rec_plan *p) {
    return p->bf16 ? 2 : 1;
}

static rec_tile right_factor(const rec_plan *p) {
    return p->bf16 ? p->words : p->values_and_state;
}

static em_val column(em *e, const rec_plan *p, int64_t first, int j) {
    return em_i64(e, first + (int64_t)j * p->lanes);
}

static void store_product(em *e, const rec_plan *p, const tile *x, rec_tile to, em_val row,
                          int64_t col) {
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < x->n; j++)
            rec_store(e, p, rec_at(e, p, to, em_add(e, row, i), column(e, p, col, j)),
                      x->acc[i * x->n + j]);
}

/* Rows of y. */
static void store_y(em *e, const rec_plan *p, const rec_unit *u, const tile *x, em_val row,
                    int64_t col) {
    for (int i = 0; i < ROWS; i++) {
        em_val r = em_add(e, row, i), to = rec_y_at(e, p, u, r, em_i64(e, col));
        for (int j = 0; j < x->n; j++)
            rec_store(e, p, em_gep(e, to, p->t, column(e, p, 0, j)), x->acc[i * x->n + j]);
    }
}

/* Columns of n vectors of weights times values_and_state: y; or u, without the rows of u. */
static void emit_product(em *e, const rec_plan *p, const rec_unit *unit, rec_prefetch *ahead,
                         rec_tile left, bool of_u, int vector, int n) {
    const rec_tile from = right_factor(p);
    const int64_t skipped = of_u ? REC_CHUNK : 0, rows = p->update_rows + p->inner,
                  first = skipped / rows_of_word(p), last = rows / rows_of_word(p),
                  iterations = (last - first) / UNROLL;
    int64_t col = (int64_t)vector * p->lanes;
    tile x = {.n = n};
    em_loop half = em_for(e, 0, REC_CHUNK, ROWS);
    rec_share share = rec_prefetch_half(e, ahead, REC_CHUNK * (rows - skipped) * n * p->lanes,
                                        em_cmp(e, EM_GE, half.i, ROWS));
    for (int i = 0; i < ROWS * x.n; i++) x.acc[i] = em_vf(e, 0);
    em_val zero = rec_left_column(e, p, 0), right = rec_at(e, p, from, 0, em_i64(e, col)),
           row[ROWS];
    for (int i = 0; i < ROWS; i++) row[i] = rec_at(e, p, left, em_add(e, half.i, i), zero);
    em_loop l = em_for(e, first, last, UNROLL);
    em_val iteration = em_lshr(e, em_sub(e, l.i, first), LOG_UNROLL);
    em_carries(e, &l, x.acc, ROWS * n);
    rec_prefetch_lines(e, &share, iteration, iterations);
    em_val x_at[ROWS], v = em_gep(e, right, p->t, em_mul(e, l.i, from.ld));
    for (int i = 0; i < ROWS; i++) x_at[i] = em_gep(e, row[i], p->t, l.i);
    for (int u = 0; u < UNROLL; u++) {
        em_val element[ROWS];
        for (int i = 0; i < ROWS; i++) element[i] = plus(e, p, x_at[i], u);
        add_product(e, p, &x, element, plus(e, p, v, u * from.ld));
    }
    em_end(e, &l);
    if (of_u)
        store_product(e, p, &x, p->out_u, half.i, col);
    else
        store_y(e, p, unit, &x, half.i, col);
    em_end(e, &half);
}

/* u_t += sum over j < t of (a_t . b_j) u_j; its products with v and S are there already. If b is k:
 * w_t = v_t + u_t, u_t += sum over j < t of (a_t . k_j) w_j. */
static void substitute(em *e, const rec_plan *p, int vector, int n) {
    enum { AT_ONCE = 2 };
    for (int first = 0; first < n; first += AT_ONCE) {
        const int m = n - first < AT_ONCE ? n - first : AT_ONCE;
        em_val row[REC_CHUNK][AT_ONCE], col = em_i64(e, (int64_t)(vector + first) * p->lanes);
        for (int t = 0; t < REC_CHUNK; t++) {
            em_val to = rec_at(e, p, p->out_u, t, col), sum[AT_ONCE];
            for (int i = 0; i < m; i++) sum[i] = rec_load(e, p, plus(e, p, to, i * p->lanes));
            for (int j = 0; j < t; j++) {
                em_val weight = rec_at(e, p, p->weights_u, t, em_i64(e, j));
                em_val w = em_load_splat(e, p->t, weight, p->lanes);
                tile_add(e, sum, m, w, row[j]);
            }
            em_val v = rec_at(e, p, p->values_and_state, t, col);
            for (int i = 0; i < m; i++) {
                row[t][i] = sum[i];
                if (p->r.same ? p->stores_u : t > 0)
                    rec_store(e, p, plus(e, p, to, i * p->lanes), sum[i]);
                if (!p->r.same) continue;
                em_val at = plus(e, p, v, i * p->lanes);
                rec_store(e, p, at, row[t][i] = em_add(e, rec_load(e, p, at), sum[i]));
            }
            for (int i = 0; i < m && t % 2; i++)
                rec_store_words(e, p, em_i64(e, t / 2), em_add(e, col, (int64_t)i * p->lanes),
                                row[t - 1][i], row[t][i]);
        }
    }
}

/* Rows of the state, as factors of the next chunk's products. */
static void store_state_words(em *e, const rec_plan *p, const tile *x, em_val row, int64_t col) {
    if (p->state_only && !p->r.delta) return; /* it has none */
    for (int i = 0; i < ROWS; i += 2)
        for (int j = 0; j < x->n; j++)
            rec_store_words(e, p, em_lshr(e, em_add(e, row, p->update_rows + i), 1),
                            column(e, p, col, j), x->acc[i * x->n + j], x->acc[(i + 1) * x->n + j]);
}

/* S = total S + key^T (u, v). */
static void update(em *e, const rec_plan *p, rec_prefetch *ahead, int vector, int n) {
    const rec_tile right = right_factor(p);
    int64_t col = (int64_t)vector * p->lanes;
    tile x = {.n = n};
    em_val d = NULL;
    if (p->decays == REC_ONE) d = em_load_splat(e, p->t, rec_at(e, p, p->total, 0, 0), p->lanes);
    rec_share share = rec_prefetch_part(ahead, p->update_rows * p->inner * n * p->lanes);
    em_loop l = em_for(e, 0, p->inner, ROWS);
    rec_prefetch_lines(e, &share, em_lshr(e, l.i, LOG_ROWS), p->inner / ROWS);
    for (int i = 0; i < ROWS; i++) {
        em_val row = em_add(e, l.i, i);
        if (p->decays == REC_ROWS)
            d = em_load_splat(e, p->t, rec_at(e, p, p->total, 0, row), p->lanes);
        for (int j = 0; j < x.n; j++) {
            em_val from = rec_at(e, p, p->state, row, column(e, p, col, j));
            x.acc[i * x.n + j] = em_mul(e, rec_load(e, p, from), d);
        }
    }
    for (int r = 0; r < p->update_rows; r += rows_of_word(p)) {
        em_val element[ROWS];
        for (int i = 0; i < ROWS; i++) element[i] = rec_at(e, p, p->key, r, em_add(e, l.i, i));
        add_product(e, p, &x, element, rec_at(e, p, right, r / rows_of_word(p), em_i64(e, col)));
    }
    store_product(e, p, &x, p->next, l.i, col);
    store_state_words(e, p, &x, l.i, col);
    em_end(e, &l);
}

void rec_emit_u(em *e, const rec_plan *p, const rec_unit *u, rec_prefetch *ahead, int vector,
                int n) {
    if (!p->r.delta) return;
    emit_product(e, p, u, ahead, p->weights_u, true, vector, n);
    substitute(e, p, vector, n);
}

void rec_emit_y(em *e, const rec_plan *p, const rec_unit *u, rec_prefetch *ahead, int vector,
                int n) {
    if (!p->state_only) emit_product(e, p, u, ahead, p->weights_y, false, vector, n);
    update(e, p, ahead, vector, n);
}
