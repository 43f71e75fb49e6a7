/* tile.c: the products of a tile and the transposes around them, as functions of the
 * emitted module. All sums of a call stay in registers. */
#include "codegen/attention/impl.h"

#include <math.h>

static const double log2_e = 1.44269504088896340736;

static em_val vector_at(em *e, const att_plan *p, em_val base, int64_t row, int v) {
    return em_at(e, base, p->t, em_i64(e, row * p->qb + (int64_t)v * p->lanes));
}

static em_val load_vector(em *e, const att_plan *p, em_val at) {
    return em_load_raw(e, e->vt, at, (unsigned)(p->lanes * p->esize));
}

static void store_vector(em *e, const att_plan *p, em_val x, em_val at) {
    em_store_raw(e, x, at, (unsigned)(p->lanes * p->esize));
}

/* --- scores ----------------------------------------------------------------------------------- */

/* One step of both products: sums[i][v] += element[i] * vector[v]. */
static void add_products(em *e, const att_plan *p, int rows, int nv, const em_val *element_at,
                         em_val vectors_at, em_val *sum) {
    em_val x[ATT_NV];
    for (int v = 0; v < nv; v++) x[v] = load_vector(e, p, vector_at(e, p, vectors_at, 0, v));
    for (int i = 0; i < rows; i++) {
        em_val s = em_load_splat(e, p->t, element_at[i], p->lanes);
        for (int v = 0; v < nv; v++) sum[i * nv + v] = em_fma(e, s, x[v], sum[i * nv + v]);
    }
}

/* One group: S[i][..] for keys i < rows whose rows of K begin at key[i]. */
static void emit_score_group(em *e, const att_plan *p, int d, int rows, int nv, const em_val *key,
                             em_val q, const em_val *fetch_at, const em_val *fetch_step,
                             em_val *sum) {
    int step = d < 4 ? d : 4, whole = d / step * step;
    em_loop l = em_for(e, em_i64(e, 0), em_i64(e, whole), em_i64(e, step));
    em_val acc[64], first[64], at[32];
    for (int i = 0; i < rows * nv; i++) acc[i] = first[i] = em_carry(e, &l, em_vf(e, 0));
    em_val turn = em_lshr(e, l.i, em_i64(e, 2)), three = em_i64(e, 3);
    em_val line = em_mul(e, em_lshr(e, l.i, em_i64(e, 4)), em_i64(e, 64));
    for (int i = 0; i < 2; i++) { /* four rows, one after the other, then their next line */
        em_val row = em_mul(e, em_and(e, turn, three), fetch_step[i]);
        bool write = i && !att_has_sheet(e, p); /* the result's rows */
        em_prefetch(e, em_at_bytes(e, fetch_at[i], em_add(e, row, line)), write, 2);
    }
    for (int u = 0; u < step; u++) {
        em_val at_d = em_add(e, l.i, em_i64(e, u));
        for (int i = 0; i < rows; i++) at[i] = em_at(e, key[i], p->t, at_d);
        em_val q_at = em_at(e, q, p->t, em_mul(e, at_d, em_i64(e, p->qb)));
        add_products(e, p, rows, nv, at, q_at, acc);
    }
    for (int i = 0; i < rows * nv; i++) em_next(e, &l, first[i], acc[i]);
    em_end(e, &l);
    for (int i = 0; i < rows * nv; i++) sum[i] = em_final(e, &l, first[i]);
    for (int u = whole; u < d; u++) {
        for (int i = 0; i < rows; i++) at[i] = em_at(e, key[i], p->t, em_i64(e, u));
        add_products(e, p, rows, nv, at, vector_at(e, p, q, u, 0), sum);
    }
}

em_val att_emit_scores(em *e, const att_plan *p, const char *what, int nv, int d, bool with_max) {
    const em_type params[] = {e->ptr, e->i64, e->i64, e->i64, e->ptr, e->ptr,
                              e->ptr, e->i64, e->ptr, e->i64, e->ptr, e->i64};
    char suffix[32];
    snprintf(suffix, sizeof suffix, "%s%d", what, nv);
    em_val fn = att_function(e, p, suffix, params, 12);
    em_val k = em_param(e, 0), stride = em_param(e, 1), keys = em_param(e, 2),
           have = em_param(e, 3);
    em_val q = em_param(e, 4), s = em_param(e, 5), max_at = em_param(e, 6);
    int rows = p->key_rows[nv];
    em_loop l = em_for(e, em_i64(e, 0), keys, em_i64(e, rows));
    em_val last = em_sub(e, em_sub(e, have, em_i64(e, 1)), l.i);
    em_val key[32], sum[64];
    for (int i = 0; i < rows; i++) {
        em_val row = em_add(e, l.i, em_imin(e, em_i64(e, i), last));
        key[i] = em_at(e, k, p->t, em_mul(e, row, stride));
    }
    em_val row = em_add(e, em_param(e, 7), em_lshr(e, l.i, em_i64(e, 1)));
    em_val fetch_step[] = {em_param(e, 9), em_param(e, 11)}, fetch_at[2];
    row = em_imin(e, row, em_i64(e, ATT_NV * p->lanes));
    for (int i = 0; i < 2; i++)
        fetch_at[i] = em_at_bytes(e, em_param(e, 8 + 2 * i), em_mul(e, row, fetch_step[i]));
    emit_score_group(e, p, d, rows, nv, key, q, fetch_at, fetch_step, sum);
    em_val out = em_at(e, s, p->t, em_mul(e, l.i, em_i64(e, p->qb)));
    for (int v = 0; v < nv; v++) {
        em_val top = vector_at(e, p, max_at, 0, v), m = with_max ? load_vector(e, p, top) : NULL;
        for (int i = 0; i < rows; i++) {
            store_vector(e, p, sum[i * nv + v], vector_at(e, p, out, i, v));
            if (m) m = em_max(e, sum[i * nv + v], m);
        }
        if (m) store_vector(e, p, m, top);
    }
    em_end(e, &l);
    em_ret(e, NULL);
    return fn;
}

/* Rows of K and V that the next tile needs: one line of each is fetched a key. */
typedef struct fetch {
    em_val at[2], step[2]; /* pointer, bytes to the next row */
} fetch;

/* --- weighted sums of V ----------------------------------------------------------------------- */

static void emit_sum_group(em *e, const att_plan *p, int rows, int nv, em_val v_at, em_val v_stride,
                           em_val weights, em_val out, em_val keys, const fetch *f) {
    em_val sum[64], at[32], ahead[2] = {f->at[0], f->at[1]};
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < nv; v++)
            sum[i * nv + v] = load_vector(e, p, vector_at(e, p, out, i, v));
    int most = nv == ATT_NV ? 4 : 1; /* keys at a time, then the rest */
    em_val done = em_and(e, keys, em_i64(e, -most));
    em_val begin[] = {em_i64(e, 0), done}, end[] = {done, keys};
    for (int part = 0; part < (most > 1 ? 2 : 1); part++) {
        int unroll = part ? 1 : most;
        em_loop l = em_for(e, begin[part], end[part], em_i64(e, unroll));
        em_val v = em_carry(e, &l, v_at), w = em_carry(e, &l, weights), first[64];
        em_val v_u = v, w_u = w, next[2], next_u[2];
        for (int i = 0; i < 2; i++) next[i] = next_u[i] = em_carry(e, &l, ahead[i]);
        for (int i = 0; i < rows * nv; i++) first[i] = sum[i] = em_carry(e, &l, sum[i]);
        for (int u = 0; u < unroll; u++) {
            for (int i = 0; i < rows; i++) at[i] = em_at(e, v_u, p->t, em_i64(e, i));
            add_products(e, p, rows, nv, at, w_u, sum);
            for (int i = 0; i < 2; i++) {
                if (!i || rows * p->esize >= 64) em_prefetch(e, next_u[i], false, 2);
                next_u[i] = em_at_bytes(e, next_u[i], f->step[i]);
            }
            v_u = em_at(e, v_u, p->t, v_stride);
            w_u = em_at(e, w_u, p->t, em_i64(e, p->qb));
        }
        em_next(e, &l, v, v_u);
        em_next(e, &l, w, w_u);
        for (int i = 0; i < 2; i++) em_next(e, &l, next[i], next_u[i]);
        for (int i = 0; i < rows * nv; i++) em_next(e, &l, first[i], sum[i]);
        em_end(e, &l);
        for (int i = 0; i < rows * nv; i++) sum[i] = em_final(e, &l, first[i]);
        for (int i = 0; i < 2; i++) ahead[i] = em_final(e, &l, next[i]);
        v_at = em_final(e, &l, v);
        weights = em_final(e, &l, w);
    }
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < nv; v++)
            store_vector(e, p, sum[i * nv + v], vector_at(e, p, out, i, v));
}

/* Elements of a call: the largest divisor of dv that leaves enough sums to hide the latency, else
 * groups of nearly equal size (the last ones smaller by one). */
static int choose_rows(const att_plan *p, int nv, int dv) {
    int most = p->out_rows[nv] < dv ? p->out_rows[nv] : dv;
    for (int rows = most; rows * nv >= 8 && rows > most / 2; rows--)
        if (dv % rows == 0) return rows;
    int groups = (dv + most - 1) / most;
    return (dv + groups - 1) / groups;
}

/* What the call for elements c .. fetches: groups of a line or more take that line of K and of V,
 * smaller ones take a line of K and of V in turns. */
static fetch next_rows(em *e, const att_plan *p, int rows, em_val c) {
    em_val k = em_param(e, 5), v = em_param(e, 7), k_step = em_param(e, 6), v_step = em_param(e, 8);
    em_val at = em_mul(e, c, em_i64(e, p->esize)), one = em_i64(e, 1);
    if (rows * p->esize >= 64)
        return (fetch){{em_at_bytes(e, k, at), em_at_bytes(e, v, at)}, {k_step, v_step}};
    em_val turn = LLVMBuildUDiv(e->b, c, em_i64(e, rows), "");
    em_val odd = em_cmp(e, EM_NE, em_and(e, turn, one), em_i64(e, 0));
    at = em_mul(e, em_lshr(e, turn, one), em_i64(e, 64));
    em_val from = em_at_bytes(e, em_select(e, odd, v, k), at);
    em_val step = em_select(e, odd, v_step, k_step);
    return (fetch){{from, from}, {step, step}};
}

em_val att_emit_sums(em *e, const att_plan *p, const char *what, int nv, int dv) {
    const em_type params[] = {e->ptr, e->i64, e->ptr, e->ptr, e->i64,
                              e->ptr, e->i64, e->ptr, e->i64};
    char suffix[32];
    snprintf(suffix, sizeof suffix, "%s%d", what, nv);
    em_val fn = att_function(e, p, suffix, params, 9);
    em_val v = em_param(e, 0), stride = em_param(e, 1), w = em_param(e, 2), o = em_param(e, 3);
    int size = choose_rows(p, nv, dv), groups = (dv + size - 1) / size;
    int smaller = groups * size - dv;
    for (int part = 0; part < 2; part++) {
        int rows = size - part, split = dv - smaller * (size - 1);
        int lo = part ? split : 0, hi = part ? dv : split;
        if (lo == hi) continue;
        em_loop l = em_for(e, em_i64(e, lo), em_i64(e, hi), em_i64(e, rows));
        em_val out = em_at(e, o, p->t, em_mul(e, l.i, em_i64(e, p->qb)));
        fetch f = next_rows(e, p, rows, l.i);
        emit_sum_group(e, p, rows, nv, em_at(e, v, p->t, l.i), stride, w, out, em_param(e, 4), &f);
        em_end(e, &l);
    }
    em_ret(e, NULL);
    return fn;
}

static em_val emit_careful_sums(em *e, const att_plan *p) {
    const em_type params[] = {e->ptr, e->i64, e->ptr, e->ptr, e->i64};
    em_val fn = att_function(e, p, "careful", params, 5);
    em_val v = em_param(e, 0), stride = em_param(e, 1), w = em_param(e, 2), o = em_param(e, 3);
    em_loop i = em_for(e, em_i64(e, 0), em_i64(e, p->a->dv), em_i64(e, 1));
    em_val out = em_at(e, o, p->t, em_mul(e, i.i, em_i64(e, p->qb)));
    em_val before = load_vector(e, p, out);
    em_loop k = em_for(e, em_i64(e, 0), em_param(e, 4), em_i64(e, 1));
    em_val sum = em_carry(e, &k, before);
    em_val weight = load_vector(e, p, em_at(e, w, p->t, em_mul(e, k.i, em_i64(e, p->qb))));
    em_val at = em_at(e, em_at(e, v, p->t, em_mul(e, k.i, stride)), p->t, i.i);
    em_val more = em_fma(e, em_load_splat(e, p->t, at, p->lanes), weight, sum);
    em_val none = em_cmp(e, EM_EQ, weight, em_vf(e, 0));
    em_next(e, &k, sum, em_select(e, none, sum, more));
    em_end(e, &k);
    store_vector(e, p, em_final(e, &k, sum), out);
    em_end(e, &i);
    em_ret(e, NULL);
    return fn;
}

/* --- transposes ------------------------------------------------------------------------------- */

/* In every 128-bit piece of `piece` vectors: the piece x piece square transposed. */
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

/* Pieces as elements: n vectors of n pieces (n = 1, 2 or 4), transposed. */
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
    em_val last = em_sub(e, rows, em_i64(e, 1));
    for (int i = 0; i < p->lanes; i++)
        at[i] = em_at(e, base, t, em_mul(e, em_imin(e, em_i64(e, i), last), stride));
}

em_val att_emit_load(em *e, const att_plan *p, const char *name, sn_dtype t, int d, double factor) {
    const em_type params[] = {e->ptr, e->i64, e->i64, e->ptr};
    em_val fn = att_function(e, p, name, params, 4);
    em_val to = em_param(e, 3), at[64], scale = em_vf(e, factor);
    int pc = p->piece, groups = p->lanes / pc, whole = d / pc * pc;
    row_pointers(e, p, em_param(e, 0), t, em_param(e, 1), em_param(e, 2), at);
    em_loop l = em_for(e, em_i64(e, 0), em_i64(e, whole), em_i64(e, pc));
    em_val x[4];
    for (int i = 0; i < pc; i++) {
        em_val part[4] = {NULL};
        for (int g = 0; g < groups; g++)
            part[g] = em_load(e, t, em_at(e, at[i + pc * g], t, l.i), pc);
        for (int n = groups; n > 1; n /= 2)
            for (int g = 0; g < n / 2; g++) part[g] = em_concat(e, part[2 * g], part[2 * g + 1]);
        x[i] = part[0];
    }
    att_transpose_pieces(e, p, x);
    em_val out = em_at(e, to, p->t, em_mul(e, l.i, em_i64(e, p->qb)));
    for (int i = 0; i < pc; i++)
        store_vector(e, p, em_mul(e, x[i], scale), vector_at(e, p, out, i, 0));
    em_end(e, &l);
    for (int c = whole; c < d; c++) {
        em_val v = em_vf(e, 0);
        for (int i = 0; i < p->lanes; i++)
            v = em_insert(e, v, em_load(e, t, em_at(e, at[i], t, em_i64(e, c)), 1), i);
        store_vector(e, p, em_mul(e, v, scale), vector_at(e, p, to, c, 0));
    }
    em_ret(e, NULL);
    return fn;
}

/* Rows d0 .. d0 + n - 1 of O, n <= lanes, to elements d0 .. of the output rows. */
static void emit_store_square(em *e, const att_plan *p, sn_dtype t, em_val o, em_val factor,
                              em_val d0, int n, const em_val *row_at) {
    int pc = p->piece, groups = p->lanes / pc;
    em_val x[4][4]; /* [group of elements][element in it] */
    for (int g = 0; g < groups; g++) {
        for (int i = 0; i < pc; i++) {
            em_val at = em_at(e, o, p->t,
                              em_mul(e, em_add(e, d0, em_i64(e, g * pc + i)), em_i64(e, p->qb)));
            x[g][i] = g * pc + i < n ? em_mul(e, factor, load_vector(e, p, at)) : em_vf(e, 0);
        }
        att_transpose_pieces(e, p, x[g]);
    }
    for (int j = 0; j < pc; j++) {
        em_val y[4];
        for (int g = 0; g < groups; g++) y[g] = x[g][j];
        transpose_blocks(e, p, groups, y);
        for (int g = 0; g < groups; g++) {
            em_val at = em_at(e, row_at[g * pc + j], t, d0);
            if (n == p->lanes)
                em_store(e, t, at, y[g]);
            else
                em_store_tail(e, t, at, y[g], em_i64(e, n));
        }
    }
}

em_val att_emit_store(em *e, const att_plan *p, const char *name, sn_dtype t, int dv, double by) {
    const em_type params[] = {e->ptr, e->ptr, e->ptr, e->i64, e->i64, e->ptr};
    em_val fn = att_function(e, p, name, params, 6);
    em_val o = em_param(e, 0), sum = load_vector(e, p, em_param(e, 1)), out = em_param(e, 2);
    em_val stride = em_param(e, 3), rows = em_param(e, 4), dummy = em_param(e, 5), at[64];
    em_val none = em_cmp(e, EM_EQ, sum, em_vf(e, 0));
    em_val factor = em_select(e, none, em_vf(e, 0), em_div(e, em_vf(e, by), sum));
    for (int i = 0; i < p->lanes; i++) { /* rows that do not exist go nowhere */
        em_val row = em_at(e, out, t, em_mul(e, em_i64(e, i), stride));
        at[i] = em_select(e, em_cmp(e, EM_LT, em_i64(e, i), rows), row, dummy);
    }
    int whole = dv / p->lanes * p->lanes;
    em_loop l = em_for(e, em_i64(e, 0), em_i64(e, whole), em_i64(e, p->lanes));
    emit_store_square(e, p, t, o, factor, l.i, p->lanes, at);
    em_end(e, &l);
    if (whole < dv) emit_store_square(e, p, t, o, factor, em_i64(e, whole), dv - whole, at);
    em_ret(e, NULL);
    return fn;
}

void att_emit_micro(em *e, const att_plan *p, att_micro *f) {
    const sn_attention *a = p->a;
    for (int nv = 1; nv <= ATT_NV; nv++) {
        f->scores[nv] = att_emit_scores(e, p, "scores", nv, a->d, !a->score);
        f->sums[nv] = att_emit_sums(e, p, "sums", nv, a->dv);
    }
    f->careful_sums = p->check_v ? emit_careful_sums(e, p) : NULL;
    f->load_q =
        att_emit_load(e, p, "load_q", a->q.dtype, a->d, a->scale * (p->log2_scores ? log2_e : 1));
    f->store_out = att_emit_store(e, p, "store_out", a->out.dtype, a->dv, att_keep_factor(p));
}
