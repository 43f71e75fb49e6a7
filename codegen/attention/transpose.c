/* transpose.c: generated functions that transpose rows of queries to [element][query], where lanes
 * are queries, and back. */
#include "codegen/attention/impl.h"

/* n is a power of two. */
em_val att_join(em *e, em_val *part, int n) {
    for (; n > 1; n /= 2)
        for (int i = 0; i < n / 2; i++) part[i] = em_concat(e, part[2 * i], part[2 * i + 1]);
    return part[0];
}

/* Transposes the piece x piece square in each 128-bit piece of `piece` vectors. */
void att_transpose_pieces(em *e, const att_plan *p, em_val *x) {
    static const int pick4[4][4] = {{0, 16, 1, 17}, {2, 18, 3, 19}, {0, 1, 16, 17}, {2, 3, 18, 19}};
    static const int pick2[2][2] = {{0, 16}, {1, 17}};
    int n = p->lanes, pc = p->piece, mask[4][64];
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < n; i++) {
            int from = pc == 4 ? pick4[k][i % 4] : pick2[k & 1][i % 2];
            mask[k][i] = from < 16 ? i / pc * pc + from : n + i / pc * pc + from - 16;
        }
    em_val t[4];
    if (pc == 2) {
        t[0] = em_shuffle(e, x[0], x[1], mask[0], n);
        t[1] = em_shuffle(e, x[0], x[1], mask[1], n);
        x[0] = t[0], x[1] = t[1];
        return;
    }
    for (int i = 0; i < 4; i++)
        t[i] = em_shuffle(e, x[i / 2 * 2], x[i / 2 * 2 + 1], mask[i & 1], n);
    for (int i = 0; i < 4; i++) x[i] = em_shuffle(e, t[i / 2], t[2 + i / 2], mask[2 + (i & 1)], n);
}

/* Transposes n vectors of n pieces (n = 1, 2 or 4), with a piece as the element. */
static void transpose_blocks(em *e, const att_plan *p, int n, em_val *x) {
    static const int pick4[4][4] = {{0, 1, 4, 5}, {2, 3, 6, 7}, {0, 2, 4, 6}, {1, 3, 5, 7}};
    static const int pick2[4][4] = {{0, 2}, {1, 3}};
    int mask[4][64];
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < p->lanes; i++)
            mask[k][i] = (n == 4 ? pick4 : pick2)[k][i / p->piece] * p->piece + i % p->piece;
    em_val t[4];
    if (n == 2) {
        for (int i = 0; i < 2; i++) t[i] = em_shuffle(e, x[0], x[1], mask[i], p->lanes);
        x[0] = t[0], x[1] = t[1];
    }
    if (n != 4) return;
    for (int i = 0; i < 4; i++)
        t[i] = em_shuffle(e, x[i / 2 * 2], x[i / 2 * 2 + 1], mask[i & 1], p->lanes);
    for (int i = 0; i < 4; i++)
        x[i] = em_shuffle(e, t[i / 2], t[2 + i / 2], mask[2 + i % 2], p->lanes);
}

static void row_pointers(em *e, const att_plan *p, em_val base, sn_dtype t, em_val stride,
                         em_val rows, em_val *at) {
    em_val last = em_sub(e, rows, 1);
    for (int i = 0; i < p->lanes; i++)
        at[i] = em_gep(e, base, t, em_mul(e, em_imin(e, i, last), stride));
}

/* The same of the rows that index[] names. */
static void chosen_pointers(em *e, const att_plan *p, em_val base, sn_dtype t, em_val stride,
                            em_val index, em_val *at) {
    for (int i = 0; i < p->lanes; i++) {
        em_val row = em_idx(e, em_load(e, SN_I32, em_gep(e, index, SN_I32, i), 1));
        at[i] = em_gep(e, base, t, em_mul(e, row, stride));
    }
}

/* dst[i][lane] = factor * element i of the row at[lane]. */
static void load_rows(em *e, const att_plan *p, sn_dtype t, const em_val *at, int d, double factor,
                      int word, em_val dst) {
    em_val scale = em_vf(e, factor);
    int pc = p->piece, groups = p->lanes / pc, whole = d / pc * pc;
    em_loop l = em_for(e, 0, whole, pc);
    em_val x[4];
    for (int i = 0; i < pc; i++) {
        em_val part[4] = {NULL};
        for (int g = 0; g < groups; g++)
            part[g] = em_load(e, t, em_gep(e, at[i + pc * g], t, l.i), pc);
        x[i] = att_join(e, part, groups);
    }
    att_transpose_pieces(e, p, x);
    em_val out = em_gep(e, dst, p->t, em_mul(e, em_lshr(e, l.i, word - 1), p->qb));
    for (int i = 0; i < pc; i++) x[i] = em_mul(e, x[i], scale);
    for (int i = 0; i < pc; i += word)
        att_store(e, p, word > 1 ? att_join_factors(e, p, x + i) : x[i],
                  em_gep(e, out, p->t, (int64_t)i / word * p->qb));
    em_end(e, &l);
    for (int c = whole; c < d; c += word) {
        em_val v[2] = {em_vf(e, 0), em_vf(e, 0)};
        for (int j = 0; j < word && c + j < d; j++) {
            for (int i = 0; i < p->lanes; i++)
                v[j] = em_insert(e, v[j], em_load(e, t, em_gep(e, at[i], t, c + j), 1), i);
            v[j] = em_mul(e, v[j], scale);
        }
        att_store(e, p, word > 1 ? att_join_factors(e, p, v) : v[0],
                  em_gep(e, dst, p->t, (int64_t)c / word * p->qb));
    }
}

em_val att_emit_load_queries(em *e, const att_plan *p, const char *name, sn_dtype t, int d,
                             double factor, int word) {
    att_load_queries_args q = att_load_queries_begin(e, p, name);
    em_val at[64];
    row_pointers(e, p, q.src, t, q.stride, q.n_rows, at);
    load_rows(e, p, t, at, d, factor, word, q.dst);
    return att_end(e);
}

em_val att_emit_load_chosen(em *e, const att_plan *p, const char *name, sn_dtype t, int d,
                            double factor, int word) {
    att_chosen_args q = att_chosen_begin(e, p, name);
    em_val at[64];
    chosen_pointers(e, p, q.rows, t, q.stride, q.index, at);
    load_rows(e, p, t, at, d, factor, word, q.columns);
    return att_end(e);
}

/* Elements d0 .. d0 + n - 1 of acc, n <= lanes, to the output rows. */
static void emit_store_square(em *e, const att_plan *p, sn_dtype t, em_val acc, em_val factor,
                              em_val d0, int n, const em_val *row_at) {
    int pc = p->piece, groups = p->lanes / pc;
    em_val x[4][4]; /* [group of elements][element in it] */
    for (int g = 0; g < groups; g++) {
        for (int i = 0; i < pc; i++) {
            em_val at = em_gep(e, acc, p->t, em_mul(e, em_add(e, d0, g * pc + i), p->qb));
            x[g][i] = g * pc + i < n ? em_mul(e, factor, att_load(e, p, at)) : em_vf(e, 0);
        }
        att_transpose_pieces(e, p, x[g]);
    }
    for (int j = 0; j < pc; j++) {
        em_val y[4];
        for (int g = 0; g < groups; g++) y[g] = x[g][j];
        transpose_blocks(e, p, groups, y);
        for (int g = 0; g < groups; g++) {
            em_val at = em_gep(e, row_at[g * pc + j], t, d0);
            if (n == p->lanes)
                em_store(e, t, at, y[g]);
            else
                em_store_tail(e, t, at, y[g], em_i64(e, n));
        }
    }
}

static void store_rows(em *e, const att_plan *p, sn_dtype t, em_val acc, em_val factor, int d,
                       const em_val *at) {
    int whole = d / p->lanes * p->lanes;
    em_loop l = em_for(e, 0, whole, p->lanes);
    emit_store_square(e, p, t, acc, factor, l.i, p->lanes, at);
    em_end(e, &l);
    if (whole < d) emit_store_square(e, p, t, acc, factor, em_i64(e, whole), d - whole, at);
}

em_val att_emit_store_queries(em *e, const att_plan *p, const char *name, sn_dtype t, int dv,
                              double by) {
    att_store_queries_args q = att_store_queries_begin(e, p, name);
    em_val l_i = att_load(e, p, q.l), none = em_cmp(e, EM_EQ, l_i, em_vf(e, 0)), at[64];
    em_val factor = em_select(e, none, em_vf(e, 0), em_div(e, em_vf(e, by), l_i));
    for (int i = 0; i < p->lanes; i++) {
        em_val row = em_gep(e, q.dst, t, em_mul(e, i, q.stride));
        at[i] = em_select(e, em_cmp(e, EM_LT, i, q.n_rows), row, q.dummy);
    }
    store_rows(e, p, t, q.acc, factor, dv, at);
    return att_end(e);
}

em_val att_emit_store_chosen(em *e, const att_plan *p, const char *name, int d) {
    att_chosen_args q = att_chosen_begin(e, p, name);
    em_val at[64];
    chosen_pointers(e, p, q.rows, p->t, q.stride, q.index, at);
    store_rows(e, p, p->t, q.columns, em_vf(e, 1), d, at);
    return att_end(e);
}
