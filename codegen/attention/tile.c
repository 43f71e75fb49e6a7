/* tile.c: the products of a tile, as functions of the emitted module. All sums of a call stay in
 * registers. */
#include "codegen/attention/impl.h"

#include <math.h>

static em_val vector_at(em *e, const att_plan *p, em_val base, int64_t row, int v) {
    return em_gep(e, base, p->t, em_i64(e, row * p->qb + (int64_t)v * p->lanes));
}

/* --- scores ----------------------------------------------------------------------------------- */

/* One step of both products: sums[i][v] += element[i] * vector[v]. */
static void add_products(em *e, const att_plan *p, int rows, int nv, const em_val *element_at,
                         em_val vectors_at, em_val *sum) {
    em_val x[ATT_NV];
    for (int v = 0; v < nv; v++) x[v] = att_load(e, p, vector_at(e, p, vectors_at, 0, v));
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
        em_prefetch(e, em_gep_bytes(e, fetch_at[i], em_add(e, row, line)), write, 2);
    }
    for (int u = 0; u < step; u++) {
        em_val at_d = em_add(e, l.i, em_i64(e, u));
        for (int i = 0; i < rows; i++) at[i] = em_gep(e, key[i], p->t, at_d);
        em_val q_at = em_gep(e, q, p->t, em_mul(e, at_d, em_i64(e, p->qb)));
        add_products(e, p, rows, nv, at, q_at, acc);
    }
    for (int i = 0; i < rows * nv; i++) em_next(e, &l, first[i], acc[i]);
    em_end(e, &l);
    for (int i = 0; i < rows * nv; i++) sum[i] = em_final(e, &l, first[i]);
    for (int u = whole; u < d; u++) {
        for (int i = 0; i < rows; i++) at[i] = em_gep(e, key[i], p->t, em_i64(e, u));
        add_products(e, p, rows, nv, at, vector_at(e, p, q, u, 0), sum);
    }
}

em_val att_emit_scores(em *e, const att_plan *p, const char *what, int nv, int d, int flags) {
    const em_type params[] = {e->ptr, e->i64, e->i64, e->i64, e->ptr, e->ptr,
                              e->ptr, e->i64, e->ptr, e->i64, e->ptr, e->i64};
    char suffix[32];
    snprintf(suffix, sizeof suffix, "%s%d", what, nv);
    em_val fn = att_function(e, p, suffix, params, 12);
    em_val k = em_param(e, 0), stride = em_param(e, 1), keys = em_param(e, 2),
           have = em_param(e, 3);
    em_val q = em_param(e, 4), s = em_param(e, 5), max_at = em_param(e, 6);
    int rows = p->key_rows[nv];
    if ((flags & ATT_ADD) && rows > ATT_GROUP) rows = ATT_GROUP; /* a key's sum is added once */
    em_loop l = em_for(e, em_i64(e, 0), keys, em_i64(e, rows));
    em_val last = em_sub(e, em_sub(e, have, em_i64(e, 1)), l.i);
    em_val key[32], sum[64];
    for (int i = 0; i < rows; i++) {
        em_val row = em_add(e, l.i, em_imin(e, em_i64(e, i), last));
        key[i] = em_gep(e, k, p->t, em_mul(e, row, stride));
    }
    em_val row = em_add(e, em_param(e, 7), em_lshr(e, l.i, em_i64(e, 1)));
    em_val fetch_step[] = {em_param(e, 9), em_param(e, 11)}, fetch_at[2];
    row = em_imin(e, row, em_i64(e, ATT_NV * p->lanes));
    for (int i = 0; i < 2; i++)
        fetch_at[i] = em_gep_bytes(e, em_param(e, 8 + 2 * i), em_mul(e, row, fetch_step[i]));
    emit_score_group(e, p, d, rows, nv, key, q, fetch_at, fetch_step, sum);
    em_val out = em_gep(e, s, p->t, em_mul(e, l.i, em_i64(e, p->qb)));
    for (int v = 0; v < nv; v++) {
        em_val top = vector_at(e, p, max_at, 0, v),
               m = flags & ATT_MAX ? att_load(e, p, top) : NULL;
        for (int i = 0; i < rows; i++) {
            em_val x = sum[i * nv + v], to = vector_at(e, p, out, i, v);
            if (flags & ATT_ADD) x = em_add(e, x, att_load(e, p, to));
            att_store(e, p, x, to);
            if (m) m = em_max(e, x, m);
        }
        if (m) att_store(e, p, m, top);
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
        for (int v = 0; v < nv; v++) sum[i * nv + v] = att_load(e, p, vector_at(e, p, out, i, v));
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
            for (int i = 0; i < rows; i++) at[i] = em_gep(e, v_u, p->t, em_i64(e, i));
            add_products(e, p, rows, nv, at, w_u, sum);
            for (int i = 0; i < 2; i++) {
                if (!i || rows * p->esize >= 64) em_prefetch(e, next_u[i], false, 2);
                next_u[i] = em_gep_bytes(e, next_u[i], f->step[i]);
            }
            v_u = em_gep(e, v_u, p->t, v_stride);
            w_u = em_gep(e, w_u, p->t, em_i64(e, p->qb));
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
        for (int v = 0; v < nv; v++) att_store(e, p, sum[i * nv + v], vector_at(e, p, out, i, v));
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
        return (fetch){{em_gep_bytes(e, k, at), em_gep_bytes(e, v, at)}, {k_step, v_step}};
    em_val turn = LLVMBuildUDiv(e->b, c, em_i64(e, rows), "");
    em_val odd = em_cmp(e, EM_NE, em_and(e, turn, one), em_i64(e, 0));
    at = em_mul(e, em_lshr(e, turn, one), em_i64(e, 64));
    em_val from = em_gep_bytes(e, em_select(e, odd, v, k), at);
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
        em_val out = em_gep(e, o, p->t, em_mul(e, l.i, em_i64(e, p->qb)));
        fetch f = next_rows(e, p, rows, l.i);
        emit_sum_group(e, p, rows, nv, em_gep(e, v, p->t, l.i), stride, w, out, em_param(e, 4), &f);
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
    em_val out = em_gep(e, o, p->t, em_mul(e, i.i, em_i64(e, p->qb)));
    em_val before = att_load(e, p, out);
    em_loop k = em_for(e, em_i64(e, 0), em_param(e, 4), em_i64(e, 1));
    em_val sum = em_carry(e, &k, before);
    em_val weight = att_load(e, p, em_gep(e, w, p->t, em_mul(e, k.i, em_i64(e, p->qb))));
    em_val at = em_gep(e, em_gep(e, v, p->t, em_mul(e, k.i, stride)), p->t, i.i);
    em_val more = em_fma(e, em_load_splat(e, p->t, at, p->lanes), weight, sum);
    em_val none = em_cmp(e, EM_EQ, weight, em_vf(e, 0));
    em_next(e, &k, sum, em_select(e, none, sum, more));
    em_end(e, &k);
    att_store(e, p, em_final(e, &k, sum), out);
    em_end(e, &i);
    em_ret(e, NULL);
    return fn;
}

void att_emit_micro(em *e, const att_plan *p, att_micro *f) {
    const sn_attention *a = p->a;
    int flags = (att_product_scores(p) ? ATT_MAX : 0) | (p->addend.n ? ATT_ADD : 0);
    for (int nv = 1; nv <= ATT_NV; nv++) {
        f->scores[nv] = att_emit_scores(e, p, "scores", nv, a->d, flags);
        f->sums[nv] = att_emit_sums(e, p, "sums", nv, a->dv);
    }
    f->careful_sums = p->check_v ? emit_careful_sums(e, p) : NULL;
    f->load_q = att_emit_load(e, p, "load_q", a->q.dtype, a->d, a->scale);
    f->store_out = att_emit_store(e, p, "store_out", a->out.dtype, a->dv, att_keep_factor(p));
}
