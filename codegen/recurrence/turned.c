/* turned.c: z = x S^T, of which gradients are made. With D_t the product of the chunk's decays before t,
 *     z_t = D_t (S x_t^T)^T + sum over j < t of (v_j . x_t) k_j D_t / D_j
 * if S is the one before the element; else the element's own decay, or key, is part of it. The rows of `right` are the u, v and S of the chunk: x right^T is x S^T and all these products of
 * vectors, each a sum over lanes. The keys, which decay element after element as in weights.c, are added. */
#include "codegen/recurrence/impl.h"

enum { ELEMENTS = 4, ROWS = 2 /* of a register tile */, MOST_VECTORS = 4 };

static em_val load(em *e, const rec_plan *p, rec_tile tile, int64_t row, em_val col) {
    return rec_load(e, p, rec_at_const(e, p, tile, row, col));
}

/* ---- x right^T ---- */

/* Vectors in a turn of the loop over columns. */
static int vectors_at_once(const rec_plan *p) {
    int n = (int)(p->cols / p->lanes), most = MOST_VECTORS;
    while (n % most) most /= 2;
    return most;
}

/* Vectors whose lanes are to be summed: of elements from number x of the tile on, and rows from j on of the
 * CHUNK at `row`. */
static void multiply(em *e, const rec_plan *p, em_val x, em_val row, int j,
                     em_val (*sum)[REC_CHUNK]) {
    const int turns = vectors_at_once(p);
    em_val acc[ELEMENTS][ROWS], carried[ELEMENTS][ROWS], from[ROWS], of[ELEMENTS];
    for (int r = 0; r < ROWS; r++) from[r] = em_gep(e, row, p->t, em_i64(e, (j + r) * p->right.ld));
    for (int i = 0; i < ELEMENTS; i++) of[i] = rec_at(e, p, p->x, em_addi(e, x, i), em_i64(e, 0));
    em_loop l = em_for(e, em_i64(e, 0), em_i64(e, p->cols), em_i64(e, (int64_t)turns * p->lanes));
    for (int i = 0; i < ELEMENTS; i++)
        for (int r = 0; r < ROWS; r++) acc[i][r] = carried[i][r] = em_carry(e, &l, em_vf(e, 0));
    for (int k = 0; k < turns; k++) {
        em_val col = em_addi(e, l.i, (int64_t)k * p->lanes), s[ROWS];
        for (int r = 0; r < ROWS; r++) s[r] = rec_load(e, p, em_gep(e, from[r], p->t, col));
        for (int i = 0; i < ELEMENTS; i++) {
            em_val v = rec_load(e, p, em_gep(e, of[i], p->t, col));
            for (int r = 0; r < ROWS; r++) acc[i][r] = em_fma(e, v, s[r], acc[i][r]);
        }
    }
    for (int i = 0; i < ELEMENTS; i++)
        for (int r = 0; r < ROWS; r++) em_next(e, &l, carried[i][r], acc[i][r]);
    em_end(e, &l);
    for (int i = 0; i < ELEMENTS; i++)
        for (int r = 0; r < ROWS; r++) sum[i][j + r] = em_final(e, &l, carried[i][r]);
}

static void multiply_all(em *e, const rec_plan *p, rec_prefetch *ahead) {
    const int64_t rows = p->first + p->inner, tiles = p->n_turned * REC_CHUNK / ELEMENTS;
    rec_share share = rec_prefetch_part(ahead, rows * p->cols * tiles * ELEMENTS);
    em_loop l = em_for(e, em_i64(e, 0), em_i64(e, rows / REC_CHUNK), em_i64(e, 1));
    em_val first = em_muli(e, l.i, REC_CHUNK), row = rec_at(e, p, p->right, first, em_i64(e, 0));
    em_loop each = em_for(e, em_i64(e, 0), em_i64(e, tiles), em_i64(e, 1));
    em_val sum[ELEMENTS][REC_CHUNK], x = em_muli(e, each.i, ELEMENTS);
    rec_prefetch_turn(e, &share, em_add(e, em_muli(e, l.i, tiles), each.i),
                      rows / REC_CHUNK * tiles);
    for (int j = 0; j < REC_CHUNK; j += ROWS) multiply(e, p, x, row, j, sum);
    for (int i = 0; i < ELEMENTS; i++)
        em_store(e, p->t, rec_at(e, p, p->read, em_addi(e, x, i), first), rec_sum_lanes(e, sum[i]));
    em_end(e, &each);
    em_end(e, &l);
}

/* ---- z ---- */

/* e^g of element t, a vector of columns from `col` on. */
static em_val decay(em *e, const rec_plan *p, int t, em_val col) {
    if (p->decays == REC_ROWS) return load(e, p, p->decay, t, col);
    return em_load_splat(e, p->t, rec_at_const(e, p, p->decay, 0, em_i64(e, t)), p->lanes);
}

/* Whether the i-th z reads the carry after the element. */
static bool is_after(const rec_plan *p, int i) {
    return p->r.reads == SN_READS_AFTER && !i;
}

/* What comes from the carry at the chunk's beginning. */
static void read_start(em *e, const rec_plan *p) {
    em_loop l = rec_for_vectors(e, p, p->inner);
    em_val total = em_vf(e, 1), col = em_addi(e, l.i, p->first);
    for (int t = 0; t < REC_CHUNK; t++) {
        em_val before = total;
        total = em_mul(e, total, decay(e, p, t, l.i));
        for (int i = 0; i < p->n_turned; i++) {
            const int row = i * REC_CHUNK + t;
            rec_store(e, p, rec_at_const(e, p, p->z, row, l.i),
                      em_mul(e, load(e, p, p->read, row, col), is_after(p, i) ? total : before));
        }
    }
    if (!p->weighs && p->decays == REC_ROWS)
        rec_store(e, p, rec_at_const(e, p, p->total, 0, l.i), total);
    if (!p->weighs && p->decays == REC_ONE)
        em_store(e, p->t, rec_at_const(e, p, p->total, 0, em_i64(e, 0)), em_extract(e, total, 0));
    em_end(e, &l);
}

/* z of element t, those that read the carry after it or the others, += products with n values, the first
 * in row `row`, times keys. */
static void add_keys(em *e, const rec_plan *p, bool after, int t, int row, int n, const em_val *key,
                     em_val col) {
    for (int i = 0; i < p->n_turned && n > 0; i++) {
        if (is_after(p, i) != after) continue;
        const int of = i * REC_CHUNK + t;
        em_val to = rec_at_const(e, p, p->z, of, col), sum = rec_load(e, p, to);
        for (int j = 0; j < n; j++) {
            em_val at = rec_at_const(e, p, p->read, of, em_i64(e, row + j));
            sum = em_fma(e, em_load_splat(e, p->t, at, p->lanes), key[j], sum);
        }
        rec_store(e, p, to, sum);
    }
}

/* The keys of a pair decay element after element, and are added in between. */
static void add_pair(em *e, const rec_plan *p, int pair) {
    const int row = rec_first_of(p, pair);
    em_loop l = rec_for_vectors(e, p, p->inner);
    em_val key[REC_CHUNK];
    for (int j = 0; j < REC_CHUNK; j++) key[j] = load(e, p, p->kept, row + j, l.i);
    for (int t = 0; t < REC_CHUNK; t++) {
        int decayed = rec_decayed(p, pair, t);
        add_keys(e, p, false, t, row, decayed, key, l.i);
        em_val d = decay(e, p, t, l.i);
        for (int j = 0; j < decayed; j++) key[j] = em_mul(e, key[j], d);
        add_keys(e, p, true, t, row, t + 1, key, l.i);
    }
    for (int j = 0; j < REC_CHUNK && !p->weighs; j++)
        rec_store(e, p, rec_at_const(e, p, p->key, row + j, l.i), key[j]);
    em_end(e, &l);
}

void rec_keep_keys(em *e, const rec_plan *p) {
    if (!p->n_turned || !p->weighs) return;
    em_loop l = rec_for_vectors(e, p, p->inner);
    for (int j = 0; j < p->first; j++)
        rec_store(e, p, rec_at_const(e, p, p->kept, j, l.i), load(e, p, p->key, j, l.i));
    em_end(e, &l);
}

void rec_emit_turned(em *e, const rec_plan *p, rec_prefetch *ahead) {
    multiply_all(e, p, ahead);
    read_start(e, p);
    for (int pair = 0; pair < p->pairs; pair++) add_pair(e, p, pair);
}
