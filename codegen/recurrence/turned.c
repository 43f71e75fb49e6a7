/* turned.c: z = x S^T, of which gradients are made. With D_t the product of the chunk's decays before t,
 *     z_t = D_t (S x_t^T)^T + sum over j < t of (v_j . x_t) k_j D_t / D_j
 * if S is the one before the element; else the element's own decay, or key, is part of it. The rows
 * of `right` are the u, v and S of the chunk: right x^T is S x^T and all these products of vectors, whose
 * lanes are the elements. So x and the result are transposed, the carry is not. The keys, which decay
 * element after element as in weights.c, are added. */
#include "codegen/recurrence/impl.h"

enum { REGISTERS = 8 /* of sums */, UNROLL = 4 };

static em_val load(em *e, const rec_plan *p, rec_tile tile, int64_t row, em_val col) {
    return rec_load(e, p, rec_at_const(e, p, tile, row, col));
}

/* ---- right x^T ---- */

/* A block of CHUNK rows and columns of a tile, from row and column on, to the other one. */
static void move_block(em *e, const rec_plan *p, rec_tile from, em_val row, em_val col, rec_tile to,
                       em_val to_row, em_val to_col) {
    em_val v[REC_CHUNK];
    for (int i = 0; i < REC_CHUNK; i++)
        v[i] = em_load(e, p->t, rec_at(e, p, from, em_addi(e, row, i), col), REC_CHUNK);
    em_transpose(e, v, REC_CHUNK);
    for (int i = 0; i < REC_CHUNK; i++)
        em_store(e, p->t, rec_at(e, p, to, em_addi(e, to_row, i), to_col), v[i]);
}

static void turn_x(em *e, const rec_plan *p) {
    em_loop l = em_for(e, em_i64(e, 0), em_i64(e, p->cols), em_i64(e, REC_CHUNK));
    for (int i = 0; i < p->n_turned; i++) {
        em_val first = em_i64(e, (int64_t)i * REC_CHUNK);
        move_block(e, p, p->x, first, l.i, p->turned_x, l.i, first);
    }
    em_end(e, &l);
}

/* The products of the carry, a row for each element. */
static void turn_read(em *e, const rec_plan *p) {
    em_loop l = em_for(e, em_i64(e, 0), em_i64(e, p->inner), em_i64(e, REC_CHUNK));
    for (int i = 0; i < p->n_turned; i++) {
        em_val first = em_i64(e, (int64_t)i * REC_CHUNK);
        move_block(e, p, p->read, em_addi(e, l.i, p->first), first, p->z, first, l.i);
    }
    em_end(e, &l);
}

/* Rows of `right` times x^T: their elements are broadcast. */
static void multiply_all(em *e, const rec_plan *p, rec_prefetch *ahead) {
    const int width = p->n_turned * REC_CHUNK,
              n_row = REGISTERS * p->lanes / (width > p->lanes ? width : p->lanes);
    const int64_t rows = p->first + p->inner;
    rec_share share = rec_prefetch_part(ahead, rows * p->cols * width);
    em_loop each = em_for(e, em_i64(e, 0), em_i64(e, rows / n_row), em_i64(e, 1));
    em_val row = em_muli(e, each.i, n_row), from[REGISTERS], acc[REGISTERS], carried[REGISTERS];
    rec_prefetch_turn(e, &share, each.i, rows / n_row);
    for (int i = 0; i < n_row; i++)
        from[i] = rec_at(e, p, p->right, em_addi(e, row, i), em_i64(e, 0));
    em_loop l = em_for(e, em_i64(e, 0), em_i64(e, p->cols), em_i64(e, UNROLL));
    for (int i = 0; i < n_row; i++)
        acc[i] = carried[i] = em_carry(e, &l, em_zero(em_vec(em_mem_type(e, p->t), width)));
    for (int k = 0; k < UNROLL; k++) {
        em_val col = em_addi(e, l.i, k),
               x = em_load(e, p->t, rec_at(e, p, p->turned_x, col, em_i64(e, 0)), width);
        for (int i = 0; i < n_row; i++) {
            em_val s = em_load_splat(e, p->t, em_gep(e, from[i], p->t, col), width);
            acc[i] = em_fma(e, s, x, acc[i]);
        }
    }
    for (int i = 0; i < n_row; i++) em_next(e, &l, carried[i], acc[i]);
    em_end(e, &l);
    for (int i = 0; i < n_row; i++)
        em_store(e, p->t, rec_at(e, p, p->read, em_addi(e, row, i), em_i64(e, 0)),
                 em_final(e, &l, carried[i]));
    em_end(e, &each);
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
    em_val total = em_vf(e, 1);
    for (int t = 0; t < REC_CHUNK; t++) {
        em_val before = total;
        total = em_mul(e, total, decay(e, p, t, l.i));
        for (int i = 0; i < p->n_turned; i++) {
            const int row = i * REC_CHUNK + t;
            em_val z = rec_at_const(e, p, p->z, row, l.i);
            rec_store(e, p, z, em_mul(e, rec_load(e, p, z), is_after(p, i) ? total : before));
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
            em_val at = rec_at_const(e, p, p->read, row + j, em_i64(e, of));
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
    turn_x(e, p);
    multiply_all(e, p, ahead);
    turn_read(e, p);
    read_start(e, p);
    for (int pair = 0; pair < p->pairs; pair++) add_pair(e, p, pair);
}
