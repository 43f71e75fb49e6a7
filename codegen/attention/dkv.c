/* dkv.c: what a query block adds to the gradients of a KV tile: dv += p^T dout, dk += ds^T q. Sums
 * over queries, with lanes along a row of K or V. */
#include "codegen/attention/backward.h"

enum { MAX_VECTORS = 4 }; /* of a row at a time */

static em_val vector_at(em *e, const att_plan *p, em_val row, int64_t i) {
    return em_gep(e, row, p->t, i);
}

/* Some vectors of the rows of c and b. */
typedef struct columns {
    int d, row; /* elements of a row of c, and to the next one */
    int width;  /* of a row of b */
    int first, nv;
} columns;

/* Elements of vector v of a row of c. */
static int elements_of(const att_plan *p, const columns *c, int v) {
    int left = c->d - c->first - v * p->lanes;
    return left < p->lanes ? left : p->lanes;
}

/* Of c's memory, which begins anywhere. */
static em_val load_sum(em *e, const att_plan *p, const columns *c, em_val row, int v) {
    int n = elements_of(p, c, v);
    em_val at = vector_at(e, p, row, v * p->lanes);
    return n == p->lanes ? em_load(e, p->t, at, n)
                         : em_load_tail(e, p->t, at, p->lanes, em_i64(e, n));
}

static void store_sum(em *e, const att_plan *p, const columns *c, em_val row, int v, em_val x) {
    int n = elements_of(p, c, v);
    em_val at = vector_at(e, p, row, v * p->lanes);
    if (n == p->lanes)
        em_store(e, p->t, at, x);
    else
        em_store_tail(e, p->t, at, x, em_i64(e, n));
}

/* c[i][..] += a[i][q] b[q][..] over q < queries, for i < rows; queries are pairs if factors are words.
 * Prefetches the same place of `next`. */
static void emit_group(em *e, const att_plan *p, int rows, const columns *of, em_val c_at,
                       em_val a_at, em_val b_at, em_val next_at, em_val queries) {
    em_val sum[64];
    int nv = of->nv, width = of->width;
    int n = rows * nv, vector = p->lanes / p->word, unroll = vector < 4 ? vector : 4;
    for (int i = 0; i < n; i++)
        sum[i] = load_sum(e, p, of, vector_at(e, p, c_at, i / nv * of->row), i % nv);
    for (int i = 0; i < rows; i++) em_prefetch(e, vector_at(e, p, next_at, i * of->row), true, 3);
    em_loop l = em_for(e, 0, queries, unroll);
    em_carries(e, &l, sum, n);
    em_val a = em_gep(e, a_at, p->t, l.i), b = em_gep(e, b_at, p->t, em_mul(e, l.i, width));
    for (int u = 0; u < unroll; u++) {
        em_val x[64];
        for (int i = 0; i < rows; i++) x[i] = vector_at(e, p, a, i * p->qb + u);
        att_add_product(e, p, sum, rows, nv, x, vector_at(e, p, b, u * width));
    }
    em_end(e, &l);
    for (int i = 0; i < n; i++)
        store_sum(e, p, of, vector_at(e, p, c_at, i / nv * of->row), i % nv, sum[i]);
}

/* Columns of all keys: in groups of as many keys as registers allow, then in smaller ones. */
static void emit_columns(em *e, const att_plan *p, const att_dkv_args *q, const columns *of) {
    int max_rows = (e->target->vector_regs - of->nv - 1) / of->nv, size[8], n = 0;
    size[n++] = max_rows > 12 ? 12 : max_rows;
    for (int rows = 8; rows; rows /= 2)
        if (rows < size[0]) size[n++] = rows;
    em_val done = em_i64(e, 0);
    for (int i = 0; i < n; i++) {
        em_val rows = em_i64(e, size[i]);
        em_val whole = em_mul(e, LLVMBuildUDiv(e->b, em_sub(e, q->keys, done), rows, ""), rows);
        em_loop l = em_for(e, done, em_add(e, done, whole), rows);
        em_val at = em_add(e, em_mul(e, l.i, of->row), of->first);
        emit_group(e, p, size[i], of, em_gep(e, q->c, p->t, at),
                   em_gep(e, q->a, p->t, em_mul(e, l.i, p->qb)), vector_at(e, p, q->b, of->first),
                   em_gep(e, q->next, p->t, at), q->queries);
        em_end(e, &l);
        done = em_add(e, done, whole);
    }
}

em_val att_emit_dkv(em *e, const att_plan *p, const char *name, int d, int row, int width) {
    att_dkv_args q = att_dkv_begin(e, p, name);
    int max_vectors = e->target->vector_regs >= 32 ? MAX_VECTORS : MAX_VECTORS / 2;
    int vectors = width / p->lanes, calls = (vectors + max_vectors - 1) / max_vectors;
    for (int i = 0, at = 0; i < calls; i++) {
        int nv = (vectors - at + calls - i - 1) / (calls - i);
        emit_columns(e, p, &q, &(columns){d, row, width, at * p->lanes, nv});
        at += nv;
    }
    return att_end(e);
}

/* A row of words at dst from the rows at row[]; second: whether the second one exists (NULL: it does);
 * row NULL: 0. */
static void copy_words(em *e, const att_plan *p, sn_dtype t, int d, double factor,
                       const em_val *row, em_val second, em_val dst) {
    for (int c = 0; c < att_padded(p, d); c += p->lanes) {
        em_val x[2] = {em_vf(e, 0), em_vf(e, 0)}, zero = x[0];
        for (int i = 0; i < p->word && row; i++) {
            em_val at = em_gep(e, row[i], t, c);
            x[i] = c + p->lanes <= d ? em_load(e, t, at, p->lanes)
                                     : em_load_tail(e, t, at, p->lanes, em_i64(e, d - c));
            if (factor != 1) x[i] = em_mul(e, x[i], em_vf(e, factor));
            if (i && second) x[i] = em_select(e, second, x[i], zero);
        }
        att_store(e, p, att_join_factors(e, p, x), vector_at(e, p, dst, c));
    }
}

em_val att_emit_copy_rows(em *e, const att_plan *p, const char *name, sn_dtype t, int d,
                          double factor) {
    att_copy_rows_args q = att_copy_rows_begin(e, p, name);
    em_val last = em_sub(e, q.n_rows, 1), words = att_count_words(e, p, q.n_rows);
    em_val begin[] = {em_i64(e, 0), words}, end[] = {words, att_count_words(e, p, q.n_dst)};
    int width = att_padded(p, d);
    for (int part = 0; part < 2; part++) { /* rows that exist, then zeros */
        em_loop l = em_for(e, begin[part], end[part], 1);
        em_val dst = em_gep(e, q.dst, p->t, em_mul(e, l.i, width)), row[2];
        em_val first = em_mul(e, l.i, p->word), second = em_add(e, first, 1);
        for (int i = 0; i < p->word; i++) {
            em_val r = i ? em_imin(e, second, last) : first;
            row[i] = em_gep(e, q.src, t, em_mul(e, r, q.stride));
        }
        em_val exists = em_cmp(e, EM_LE, second, last);
        copy_words(e, p, t, d, factor, part ? NULL : row, exists, dst);
        em_end(e, &l);
    }
    return att_end(e);
}

em_val att_emit_copy_chosen(em *e, const att_plan *p, const char *name, sn_dtype t, int d) {
    att_chosen_args q = att_chosen_begin(e, p, name);
    em_loop l = em_for(e, 0, p->lanes / p->word, 1);
    em_val row[2];
    for (int i = 0; i < p->word; i++) {
        em_val at = em_gep(e, q.index, SN_I32, em_add(e, em_mul(e, l.i, p->word), i));
        em_val r = em_idx(e, em_load(e, SN_I32, at, 1));
        row[i] = em_gep(e, q.rows, t, em_mul(e, r, q.stride));
    }
    em_val dst = em_gep(e, q.columns, p->t, em_mul(e, l.i, att_padded(p, d)));
    copy_words(e, p, t, d, 1, row, NULL, dst);
    em_end(e, &l);
    return att_end(e);
}

em_val att_emit_store_rows(em *e, const att_plan *p, const char *name, sn_dtype t, int d,
                           double factor) {
    att_store_rows_args q = att_store_rows_begin(e, p, name);
    int width = att_padded(p, d);
    em_loop l = em_for(e, 0, q.n_rows, 1);
    em_val src = em_gep(e, q.src, p->t, em_mul(e, l.i, width));
    em_val dst = em_gep(e, q.dst, t, em_mul(e, l.i, q.stride));
    for (int c = 0; c < width; c += p->lanes) {
        em_val x = att_load(e, p, vector_at(e, p, src, c));
        if (factor != 1) x = em_mul(e, x, em_vf(e, factor));
        if (c + p->lanes <= d)
            em_store(e, t, em_gep(e, dst, t, c), x);
        else
            em_store_tail(e, t, em_gep(e, dst, t, c), x, em_i64(e, d - c));
    }
    em_end(e, &l);
    return att_end(e);
}

em_val att_emit_zero(em *e, const att_plan *p, const char *name) {
    att_zero_args q = att_zero_begin(e, p, name);
    em_loop l = em_for(e, 0, q.elements, p->lanes);
    att_store(e, p, em_vf(e, 0), em_gep(e, q.dst, p->t, l.i));
    em_end(e, &l);
    return att_end(e);
}
