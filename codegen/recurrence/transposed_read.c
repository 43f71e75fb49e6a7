/* transposed_read.c: z = x S^T, a state read transposed, which gradients need. With D_t the product of the
 * chunk's decays before t,
 *
 *     z_t = D_t (S x_t^T)^T + sum over j < t of (v_j . x_t) k_j D_t / D_j
 *
 * if S is the one before the element; else the element's own decay, or key, is part of it. The rows of
 * values_and_state are u, v and S of the chunk: times x^T they give S x^T and all products of vectors, with
 * the elements as lanes. So x and the result are transposed, S is not. The keys, which decay element after
 * element as in weights.c, are added. */
#include "codegen/recurrence/impl.h"

enum { MAX_ROWS = 16, UNROLL = 4 };

static em_val load(em *e, const rec_plan *p, rec_tile tile, int64_t row, em_val col) {
    return rec_load(e, p, rec_at(e, p, tile, row, col));
}

/* ---- values_and_state x^T ---- */

/* Blocks of CHUNK rows and columns. */
static void load_block(em *e, const rec_plan *p, rec_rows from, em_val row, em_val col, em_val *v) {
    for (int i = 0; i < REC_CHUNK; i++) {
        em_val r = em_add(e, row, from.row + (from.flipped ? REC_CHUNK - 1 - i : i));
        v[i] = em_load(e, p->t, rec_at(e, p, from.tile, r, col), REC_CHUNK);
    }
    em_transpose(e, v, REC_CHUNK);
}

static void store_block(em *e, const rec_plan *p, const em_val *v, rec_tile to, em_val row,
                        em_val col) {
    for (int i = 0; i < REC_CHUNK; i++)
        em_store(e, p->t, rec_at(e, p, to, em_add(e, row, i), col), v[i]);
}

/* Columns of S in a vector: 2 where it has twice as many lanes as there are elements. Then the lanes of
 * an element are next to each other, since two numbers of a row are broadcast by one load. */
static int columns_of(const rec_plan *p) {
    return p->lanes == 2 * p->n_transposed * REC_CHUNK ? 2 : 1;
}

static em_val interleave(em *e, em_val a, em_val b) {
    int lane[2 * REC_CHUNK];
    for (int i = 0; i < 2 * REC_CHUNK; i++) lane[i] = i / 2 + i % 2 * REC_CHUNK;
    return em_shuffle(e, a, b, lane, 2 * REC_CHUNK);
}

static em_val add_neighbours(em *e, em_val x) {
    int even[REC_CHUNK], odd[REC_CHUNK];
    for (int i = 0; i < REC_CHUNK; i++) odd[i] = (even[i] = 2 * i) + 1;
    return em_add(e, em_shuffle(e, x, x, even, REC_CHUNK), em_shuffle(e, x, x, odd, REC_CHUNK));
}

/* A row of transposed_x has the elements of columns_of(p) columns. */
static em_val transposed_x_at(em *e, const rec_plan *p, em_val col, int i) {
    em_val first = em_mul(e, col, (int64_t)p->n_transposed * REC_CHUNK);
    return em_gep(e, rec_at(e, p, p->transposed_x, 0, em_i64(e, i * REC_CHUNK)), p->t, first);
}

static void transpose_x(em *e, const rec_plan *p) {
    em_val v[REC_CHUNK];
    em_loop l = em_for(e, 0, p->cols, REC_CHUNK);
    const int n = columns_of(p);
    for (int i = 0; i < p->n_transposed; i++) {
        load_block(e, p, p->x[i], em_i64(e, 0), l.i, v);
        for (int c = 0; c < REC_CHUNK; c += n)
            em_store(e, p->t, transposed_x_at(e, p, em_add(e, l.i, c), i),
                     n == 2 ? interleave(e, v[c], v[c + 1]) : v[c]);
    }
    em_end(e, &l);
}

/* The products of the state, a row for each element. */
static void transpose_read(em *e, const rec_plan *p) {
    em_val v[REC_CHUNK];
    em_loop l = em_for(e, 0, p->inner, REC_CHUNK);
    for (int i = 0; i < p->n_transposed; i++) {
        em_val first = em_i64(e, (int64_t)i * REC_CHUNK);
        load_block(e, p, (rec_rows){.tile = p->read}, em_add(e, l.i, p->update_rows), first, v);
        store_block(e, p, v, p->z, first, l.i);
    }
    em_end(e, &l);
}

/* The numbers of a row from `at` on that a vector's columns are multiplied by. */
static em_val broadcast(em *e, const rec_plan *p, em_val at, int columns, int width) {
    int lane[2 * REC_CHUNK];
    if (columns == 1) return em_load_splat(e, p->t, at, width);
    em_val x = em_load(e, p->t, at, columns);
    for (int i = 0; i < width; i++) lane[i] = i % columns;
    return em_shuffle(e, x, x, lane, width);
}

/* n rows of a tile from `row` on, times x^T. */
static void multiply_rows(em *e, const rec_plan *p, rec_tile tile, em_val row, int n, int64_t to) {
    const int columns = columns_of(p), width = columns * p->n_transposed * REC_CHUNK;
    em_val acc[MAX_ROWS];
    em_loop l = em_for(e, 0, p->cols, UNROLL);
    for (int i = 0; i < n; i++) acc[i] = em_zero(em_vec(em_mem_type(e, p->t), width));
    em_carries(e, &l, acc, n);
    for (int k = 0; k < UNROLL; k += columns) {
        em_val col = em_add(e, l.i, k), from = rec_at(e, p, tile, row, col),
               x = em_load(e, p->t, transposed_x_at(e, p, col, 0), width);
        for (int i = 0; i < n; i++) {
            em_val s = em_gep(e, from, p->t, i * tile.ld);
            tile_add(e, &acc[i], 1, broadcast(e, p, s, columns, width), &x);
        }
    }
    em_end(e, &l);
    for (int i = 0; i < n; i++) {
        em_store(e, p->t, rec_at(e, p, p->read, em_add(e, row, to + i), 0),
                 columns == 2 ? add_neighbours(e, acc[i]) : acc[i]);
    }
}

/* All rows of a tile, as many at a time as registers hold sums of. */
static void multiply_tile(em *e, const rec_plan *p, const rec_share *share, rec_tile tile,
                          int64_t rows, int64_t to) {
    const int width = columns_of(p) * p->n_transposed * REC_CHUNK,
              each = (width + p->lanes - 1) / p->lanes,
              regs = e->target->vector_regs < 32 ? 8 : MAX_ROWS, n = regs / each;
    const int64_t iterations = rows / n;
    em_loop l = em_for(e, 0, iterations, 1);
    if (iterations) rec_prefetch_lines(e, share, l.i, iterations);
    multiply_rows(e, p, tile, em_mul(e, l.i, n), n, to);
    em_end(e, &l);
    if (rows % n) multiply_rows(e, p, tile, em_i64(e, rows - rows % n), (int)(rows % n), to);
}

/* ---- z ---- */

em_val rec_row(em *e, const rec_plan *p, rec_rows rows, int t, em_val col) {
    const int row = rows.flipped ? REC_CHUNK - 1 - t : t;
    return load(e, p, rows.tile, rows.row + row, col);
}

em_val rec_all_decays(em *e, const rec_plan *p) {
    int lane[REC_CHUNK];
    for (int t = 0; t < REC_CHUNK; t++) lane[t] = REC_CHUNK - 1 - t;
    em_val d = em_load(e, p->t, rec_at(e, p, p->decay, 0, 0), REC_CHUNK);
    return p->flipped ? em_shuffle(e, d, d, lane, REC_CHUNK) : d;
}

em_val rec_decay(em *e, const rec_plan *p, int t, em_val col) {
    if (p->flipped) t = REC_CHUNK - 1 - t;
    if (p->decays == REC_ROWS) return load(e, p, p->decay, t, col);
    return em_load_splat(e, p->t, rec_at(e, p, p->decay, 0, t), p->lanes);
}

bool rec_reads_after(const rec_plan *p, int i) {
    return p->order == REC_READS_AFTER && !i;
}

/* What comes from the state at the chunk's beginning. */
static void read_start(em *e, const rec_plan *p) {
    em_loop l = rec_for_vectors(e, p, p->inner);
    em_val total = em_vf(e, 1);
    for (int t = 0; t < REC_CHUNK; t++) {
        em_val before = total;
        total = em_mul(e, total, rec_decay(e, p, t, l.i));
        for (int i = 0; i < p->n_transposed; i++) {
            const int row = i * REC_CHUNK + t;
            em_val z = rec_at(e, p, p->z, row, l.i);
            rec_store(e, p, z,
                      em_mul(e, rec_load(e, p, z), rec_reads_after(p, i) ? total : before));
        }
    }
    em_end(e, &l);
}

/* z of element t, those that read the state after it or the others, += products with n values, the first
 * in row `row`, times keys. */
static void add_keys(em *e, const rec_plan *p, bool after, int t, int row, int n, const em_val *key,
                     em_val col) {
    for (int i = 0; i < p->n_transposed && n > 0; i++) {
        if (rec_reads_after(p, i) != after) continue;
        const int of = i * REC_CHUNK + t;
        em_val to = rec_at(e, p, p->z, of, col), sum = rec_load(e, p, to);
        for (int j = 0; j < n; j++) {
            em_val at = rec_at(e, p, p->read, row + j, em_i64(e, of));
            tile_add(e, &sum, 1, em_load_splat(e, p->t, at, p->lanes), &key[j]);
        }
        rec_store(e, p, to, sum);
    }
}

/* The keys of a pair decay element after element, and are added in between. */
static void add_pair(em *e, const rec_plan *p, int pair) {
    const int row = rec_update_row(p, pair);
    em_loop l = rec_for_vectors(e, p, p->inner);
    em_val key[REC_CHUNK];
    for (int j = 0; j < REC_CHUNK; j++) key[j] = rec_row(e, p, p->raw_keys[pair], j, l.i);
    for (int t = 0; t < REC_CHUNK; t++) {
        int decayed = rec_n_decayed(p, pair, t);
        add_keys(e, p, false, t, row, decayed, key, l.i);
        em_val d = rec_decay(e, p, t, l.i);
        for (int j = 0; j < decayed; j++) key[j] = em_mul(e, key[j], d);
        add_keys(e, p, true, t, row, t + 1, key, l.i);
    }
    em_end(e, &l);
}

void rec_emit_read(em *e, const rec_plan *p, rec_prefetch *ahead) {
    transpose_x(e, p);
    rec_share none = {.n = 0}, share = rec_prefetch_part(ahead, rec_read_work(p));
    multiply_tile(e, p, &none, p->values_and_state, p->update_rows, 0);
    multiply_tile(e, p, &share, p->state, p->inner, p->update_rows);
    transpose_read(e, p);
    read_start(e, p);
}

void rec_emit_keys(em *e, const rec_plan *p) {
    for (int pair = 0; pair < p->n_update; pair++) add_pair(e, p, pair);
}
