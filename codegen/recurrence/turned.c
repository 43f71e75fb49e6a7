/* turned.c: z = x S^T, S before the element, of which gradients are made. With D_t the product of the
 * chunk's decays before t,
 *     z_t = D_t (S x_t^T)^T + sum over j < t of (v_j . x_t) k_j D_t / D_j
 * The rows of `right` are the u, v and S of the chunk: right x^T is S x^T and all these products of
 * vectors, with the chunk's elements side by side in a vector. It is transposed, and the keys that decay
 * element after element, as in weights.c, are added. */
#include "codegen/recurrence/impl.h"

enum { KEYS = 4 /* in registers */, UNROLL = 4 };

/* ---- [CHUNK][CHUNK], transposed ---- */

/* Swaps blocks of `half` lanes beside the diagonal. */
static void swap_blocks(em *e, em_val *x, int half) {
    int low[REC_CHUNK], high[REC_CHUNK];
    for (int i = 0; i < REC_CHUNK; i++) {
        low[i] = i & half ? i - half + REC_CHUNK : i;
        high[i] = i & half ? i + REC_CHUNK : i + half;
    }
    for (int i = 0; i < REC_CHUNK; i++) {
        if (i & half) continue;
        em_val a = x[i], b = x[i + half];
        x[i] = em_shuffle(e, a, b, low, REC_CHUNK);
        x[i + half] = em_shuffle(e, a, b, high, REC_CHUNK);
    }
}

static void transpose(em *e, em_val *x) {
    for (int half = REC_CHUNK / 2; half; half /= 2) swap_blocks(e, x, half);
}

/* A loop over blocks of CHUNK of n columns. */
static em_loop for_blocks(em *e, int64_t n) {
    return em_for(e, em_i64(e, 0), em_i64(e, n), em_i64(e, REC_CHUNK));
}

static em_val load(em *e, const rec_plan *p, rec_tile tile, int64_t row, em_val col) {
    return em_load(e, p->t, rec_at_const(e, p, tile, row, col), REC_CHUNK);
}

static void store(em *e, const rec_plan *p, rec_tile tile, int64_t row, em_val col, em_val x) {
    em_store(e, p->t, rec_at_const(e, p, tile, row, col), x);
}

static void turn_x(em *e, const rec_plan *p) {
    em_loop l = for_blocks(e, p->cols);
    for (int i = 0; i < p->n_turned; i++) {
        em_val x[REC_CHUNK];
        for (int t = 0; t < REC_CHUNK; t++) x[t] = load(e, p, p->x, i * REC_CHUNK + t, l.i);
        transpose(e, x);
        for (int k = 0; k < REC_CHUNK; k++) {
            em_val row = em_addi(e, l.i, i * p->cols + k);
            em_store(e, p->t, rec_at(e, p, p->x_turned, row, em_i64(e, 0)), x[k]);
        }
    }
    em_end(e, &l);
}

/* ---- right x^T ---- */

enum { MOST_ROWS = 32 };

/* Products of rows `first` to first + n - 1. */
static void multiply(em *e, const rec_plan *p, rec_prefetch *ahead, int first, int n) {
    em_val acc[SN_REC_TURNED][MOST_ROWS], carried[SN_REC_TURNED][MOST_ROWS];
    const int64_t turns = p->cols / UNROLL;
    rec_prefetch_part(ahead);
    em_loop l = em_for(e, em_i64(e, 0), em_i64(e, turns), em_i64(e, 1));
    for (int i = 0; i < p->n_turned; i++)
        for (int r = 0; r < n; r++)
            acc[i][r] = carried[i][r] =
                em_carry(e, &l, em_zero(em_vec(em_mem_type(e, p->t), REC_CHUNK)));
    rec_prefetch_turn(e, ahead, l.i, turns);
    for (int k = 0; k < UNROLL; k++) {
        em_val x[SN_REC_TURNED], col = em_addi(e, em_muli(e, l.i, UNROLL), k);
        for (int i = 0; i < p->n_turned; i++) {
            em_val row = em_addi(e, col, i * p->cols);
            x[i] = em_load(e, p->t, rec_at(e, p, p->x_turned, row, em_i64(e, 0)), REC_CHUNK);
        }
        for (int r = 0; r < n; r++) {
            em_val at = rec_at_const(e, p, p->right, first + r, col);
            em_val s = em_load_splat(e, p->t, at, REC_CHUNK);
            for (int i = 0; i < p->n_turned; i++) acc[i][r] = em_fma(e, s, x[i], acc[i][r]);
        }
    }
    for (int i = 0; i < p->n_turned; i++)
        for (int r = 0; r < n; r++) em_next(e, &l, carried[i][r], acc[i][r]);
    em_end(e, &l);
    for (int i = 0; i < p->n_turned; i++)
        for (int r = 0; r < n; r++)
            store(e, p, p->z_turned, i * (p->first + p->inner) + first + r, em_i64(e, 0),
                  em_final(e, &l, carried[i][r]));
}

static void multiply_all(em *e, const rec_plan *p, rec_prefetch *ahead) {
    int rows = rec_turned_rows(e, p), all = (int)(p->first + p->inner);
    for (int first = 0; first < all; first += rows)
        multiply(e, p, ahead, first, rows < all - first ? rows : all - first);
}

/* ---- z ---- */

/* e^g of element t, columns from `col` on. */
static em_val decay(em *e, const rec_plan *p, int t, em_val col) {
    if (p->decays == REC_ROWS) return load(e, p, p->decay, t, col);
    return em_load_splat(e, p->t, rec_at_const(e, p, p->decay, 0, em_i64(e, t)), REC_CHUNK);
}

/* What comes from the carry at the chunk's beginning. */
static void read_start(em *e, const rec_plan *p) {
    em_loop l = for_blocks(e, p->inner);
    em_val before[REC_CHUNK], total = em_zero(em_vec(em_mem_type(e, p->t), REC_CHUNK));
    total = em_like(e, total, 1);
    for (int t = 0; t < REC_CHUNK; t++) {
        before[t] = total;
        total = em_mul(e, total, decay(e, p, t, l.i));
    }
    if (!p->weighs && p->decays == REC_ROWS) store(e, p, p->total, 0, l.i, total);
    if (!p->weighs && p->decays == REC_ONE)
        em_store(e, p->t, rec_at_const(e, p, p->total, 0, em_i64(e, 0)), em_extract(e, total, 0));
    for (int i = 0; i < p->n_turned; i++) {
        em_val z[REC_CHUNK], first = em_addi(e, l.i, i * (p->first + p->inner) + p->first);
        for (int k = 0; k < REC_CHUNK; k++) {
            em_val row = em_addi(e, first, k);
            z[k] = em_load(e, p->t, rec_at(e, p, p->z_turned, row, em_i64(e, 0)), REC_CHUNK);
        }
        transpose(e, z);
        for (int t = 0; t < REC_CHUNK; t++)
            store(e, p, p->z, i * REC_CHUNK + t, l.i, em_mul(e, z[t], before[t]));
    }
    em_end(e, &l);
}

/* z of element t += products with values j times keys. */
static void add_keys(em *e, const rec_plan *p, int t, int row, int n, const em_val *key,
                     em_val col) {
    for (int i = 0; i < p->n_turned && n > 0; i++) {
        em_val sum = load(e, p, p->z, i * REC_CHUNK + t, col);
        for (int j = 0; j < n; j++) {
            int64_t of = i * (p->first + p->inner) + row + j;
            em_val at = rec_at_const(e, p, p->z_turned, of, em_i64(e, t));
            sum = em_fma(e, em_load_splat(e, p->t, at, REC_CHUNK), key[j], sum);
        }
        store(e, p, p->z, i * REC_CHUNK + t, col, sum);
    }
}

/* Keys j0 .. j0 + KEYS - 1 of a pair decay element after element, and are added in between. */
static void add_pair(em *e, const rec_plan *p, int pair, int j0) {
    const int row = rec_first_of(p, pair) + j0;
    em_loop l = for_blocks(e, p->inner);
    em_val key[KEYS];
    for (int j = 0; j < KEYS; j++) key[j] = load(e, p, p->kept, row + j, l.i);
    for (int t = j0; t < REC_CHUNK; t++) {
        int before = t - j0, decayed = rec_decayed(p, pair, t) - j0;
        add_keys(e, p, t, row, before < KEYS ? before : KEYS, key, l.i);
        em_val d = decay(e, p, t, l.i);
        for (int j = 0; j < KEYS && j < decayed; j++) key[j] = em_mul(e, key[j], d);
    }
    for (int j = 0; j < KEYS && !p->weighs; j++) store(e, p, p->key, row + j, l.i, key[j]);
    em_end(e, &l);
}

void rec_keep_keys(em *e, const rec_plan *p) {
    if (!p->n_turned || !p->weighs) return;
    em_loop l = for_blocks(e, p->inner);
    for (int j = 0; j < p->first; j++) store(e, p, p->kept, j, l.i, load(e, p, p->key, j, l.i));
    em_end(e, &l);
}

void rec_emit_turned(em *e, const rec_plan *p, rec_prefetch *ahead) {
    if (p->decays == REC_ONE) store(e, p, p->decay, 0, em_i64(e, 0), rec_exp_decays(e, p));
    turn_x(e, p);
    multiply_all(e, p, ahead);
    read_start(e, p);
    for (int pair = 0; pair < p->pairs; pair++)
        for (int j = 0; j < REC_CHUNK; j += KEYS) add_pair(e, p, pair, j);
}
