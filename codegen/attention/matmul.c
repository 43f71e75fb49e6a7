/* matmul.c: microkernels of a KV tile, as generated functions: qk (scores) and pv (weighted sums of
 * V). The accumulators of a call stay in registers. */
#include "codegen/attention/impl.h"

#include <math.h>

enum { LINE = 64 }; /* bytes of a cache line */

static em_val vector_at(em *e, const att_plan *p, em_val base, int64_t row, int v) {
    return em_gep(e, base, p->t, row * p->qb + (int64_t)v * p->lanes);
}

/* --- qk --------------------------------------------------------------------------------------- */

/* What qk prefetches: rows of two matrices, from an address on, `step` bytes apart. */
typedef struct qk_prefetch {
    em_val ptr[2], step[2];
} qk_prefetch;

/* Steps of an iteration. LLVM's scheduler loads the vectors of all of them at once where registers
 * hold more than one step's; what does not fit is spilled. */
static int choose_qk_unroll(const em *e, int d, int rows, int nv) {
    int steps = (e->target->vector_regs - rows * nv - 1) / nv;
    int unroll = steps == 2 || steps == 3 ? 2 : 4;
    return d < unroll ? d : unroll;
}

/* In four steps a line of each matrix: of four rows in turn, then their next line. */
static void prefetch_rows(em *e, const att_plan *p, const qk_prefetch *f, em_val i, int unroll) {
    em_val quarter = em_lshr(e, i, 2), at[2];
    em_val line = em_mul(e, em_lshr(e, i, 4), LINE);
    for (int m = 0; m < 2; m++) {
        em_val row = em_mul(e, em_and(e, quarter, 3), f->step[m]);
        at[m] = em_gep_bytes(e, f->ptr[m], em_add(e, row, line));
    }
    if (unroll == 2) {
        em_val first = em_cmp(e, EM_EQ, em_and(e, i, 2), 0);
        em_prefetch(e, em_select(e, first, at[0], at[1]), false, 2);
        return;
    }
    em_prefetch(e, at[0], false, 2);
    em_prefetch(e, at[1], !att_has_bias_tile(e, p), 2); /* rows of the result are written */
}

/* A group of keys: s[i][..] = sum of k[i][d] q[d][..] for i < rows; key[i]: row of K. */
static void emit_qk_group(em *e, const att_plan *p, int d, int rows, int nv, const em_val *key,
                          em_val q, const qk_prefetch *f, em_val *s) {
    int step = choose_qk_unroll(e, d, rows, nv), whole = d / step * step;
    em_loop l = em_for(e, 0, whole, step);
    em_val at[32];
    for (int i = 0; i < rows * nv; i++) s[i] = em_vf(e, 0);
    em_carries(e, &l, s, rows * nv);
    prefetch_rows(e, p, f, l.i, step);
    for (int u = 0; u < step; u++) {
        em_val at_d = em_add(e, l.i, u);
        for (int i = 0; i < rows; i++) at[i] = em_gep(e, key[i], p->t, at_d);
        em_val q_at = em_gep(e, q, p->t, em_mul(e, at_d, p->qb));
        att_add_product(e, p, s, rows, nv, at, q_at);
    }
    em_end(e, &l);
    for (int u = whole; u < d; u++) {
        for (int i = 0; i < rows; i++) at[i] = em_gep(e, key[i], p->t, u);
        att_add_product(e, p, s, rows, nv, at, vector_at(e, p, q, u, 0));
    }
}

/* Stores a group of scores; updates the maximum or adds to what is there, as the flags say. */
static void store_scores(em *e, const att_plan *p, const att_qk_args *a, em_val out, int rows,
                         int nv, int flags, const em_val *s) {
    for (int v = 0; v < nv; v++) {
        em_val max_ptr = vector_at(e, p, a->qk_max, 0, v),
               max = flags & ATT_QK_MAX ? att_load(e, p, max_ptr) : NULL;
        for (int i = 0; i < rows; i++) {
            em_val x = s[i * nv + v], dst = vector_at(e, p, out, i, v);
            if (flags & ATT_QK_SCALE) x = em_mul(e, x, em_vf(e, p->s_scale));
            if (flags & ATT_QK_ADD) x = em_add(e, x, att_load(e, p, dst));
            att_store(e, p, x, dst);
            if (max) max = em_max(e, x, max);
        }
        if (max) att_store(e, p, max, max_ptr);
    }
}

/* The scores of keys [0, n), which are stored, one key at a time. */
static void finish_scores(em *e, const att_plan *p, const att_qk_args *a, int nv, int flags,
                          em_val n) {
    em_loop l = em_for(e, 0, n, 1);
    em_val s[ATT_NV], out = em_gep(e, a->s, p->t, em_mul(e, l.i, p->qb));
    for (int v = 0; v < nv; v++) s[v] = att_load(e, p, vector_at(e, p, out, 0, v));
    store_scores(e, p, a, out, 1, nv, flags, s);
    em_end(e, &l);
}

em_val att_emit_qk(em *e, const att_plan *p, const char *name, int nv, int d, int flags) {
    char suffix[32];
    snprintf(suffix, sizeof suffix, "%s%d", name, nv);
    att_qk_args a = att_qk_begin(e, p, suffix);
    int rows = p->key_rows[nv];
    /* whole subtiles, so that the bias is added to each key once */
    if ((flags & ATT_QK_ADD) && rows > ATT_SUBTILE_KEYS) rows = ATT_SUBTILE_KEYS;
    em_val done = em_like(e, a.keys, 0);
    if (!(flags & ATT_QK_ADD) && att_takes_amx(e, p, att_words(p, d))) {
        done = att_emit_amx_scores(e, p, &a, nv, att_words(p, d));
        if (flags) finish_scores(e, p, &a, nv, flags, done);
    }
    em_loop l = em_for(e, done, a.keys, rows);
    em_val last = em_sub(e, em_sub(e, a.k_rows, 1), l.i);
    em_val key[32], s[64];
    for (int i = 0; i < rows; i++) {
        em_val row = em_add(e, l.i, em_imin(e, i, last));
        key[i] = em_gep(e, a.k, p->t, em_mul(e, row, a.k_stride));
    }
    em_val row = em_add(e, a.prefetch_row, em_lshr(e, l.i, 1));
    row = em_imin(e, row, ATT_NV * p->lanes);
    qk_prefetch f = {.step = {a.prefetch_step0, a.prefetch_step1}};
    f.ptr[0] = em_gep_bytes(e, a.prefetch0, em_mul(e, row, a.prefetch_step0));
    f.ptr[1] = em_gep_bytes(e, a.prefetch1, em_mul(e, row, a.prefetch_step1));
    emit_qk_group(e, p, att_words(p, d), rows, nv, key, a.q, &f, s);
    em_val out = em_gep(e, a.s, p->t, em_mul(e, l.i, p->qb));
    store_scores(e, p, &a, out, rows, nv, flags, s);
    em_end(e, &l);
    return att_end(e);
}

/* --- pv --------------------------------------------------------------------------------------- */

/* Rows of K and V that the next tile needs: pv prefetches a line of each per key. */
typedef struct pv_prefetch {
    em_val ptr[2], step[2]; /* step: bytes to the next row */
} pv_prefetch;

/* Elements of an output row: acc[i][..] += v[k][i] p[k][..], i < rows; v, acc: at the first one. */
static void emit_pv_group(em *e, const att_plan *p, int rows, int nv, em_val v_at, em_val acc_at,
                          const att_pv_args *a, const pv_prefetch *f) {
    em_val acc[64], at[32], ahead[2] = {f->ptr[0], f->ptr[1]}, p_at = a->p;
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < nv; v++)
            acc[i * nv + v] = att_load(e, p, vector_at(e, p, acc_at, i, v));
    int max_unroll = nv == ATT_NV ? 4 : 1; /* keys at a time, then the rest */
    em_val done = em_and(e, a->keys, -max_unroll);
    em_val begin[] = {em_i64(e, 0), done}, end[] = {done, a->keys};
    for (int part = 0; part < (max_unroll > 1 ? 2 : 1); part++) {
        int unroll = part ? 1 : max_unroll;
        em_loop l = em_for(e, begin[part], end[part], unroll);
        em_carries(e, &l, &v_at, 1);
        em_carries(e, &l, &p_at, 1);
        em_carries(e, &l, ahead, 2);
        em_carries(e, &l, acc, rows * nv);
        for (int u = 0; u < unroll; u++) {
            for (int i = 0; i < rows; i++) at[i] = em_gep(e, v_at, p->t, i);
            att_add_product(e, p, acc, rows, nv, at, p_at);
            for (int i = 0; i < 2; i++) {
                if (!i || rows * p->esize >= LINE) em_prefetch(e, ahead[i], false, 2);
                ahead[i] = em_gep_bytes(e, ahead[i], f->step[i]);
            }
            v_at = em_gep(e, v_at, p->t, a->v_stride);
            p_at = em_gep(e, p_at, p->t, p->qb);
        }
        em_end(e, &l);
    }
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < nv; v++)
            att_store(e, p, acc[i * nv + v], vector_at(e, p, acc_at, i, v));
}

/* Elements of an output row per group: the largest divisor of dv that leaves enough accumulators to
 * hide the latency, else groups of nearly equal size (the last ones smaller by one). */
static int choose_rows(const att_plan *p, int nv, int dv) {
    int max_rows = p->out_rows[nv] < dv ? p->out_rows[nv] : dv;
    for (int rows = max_rows; rows * nv >= 8 && rows > max_rows / 2; rows--)
        if (dv % rows == 0) return rows;
    int groups = (dv + max_rows - 1) / max_rows;
    return (dv + groups - 1) / groups;
}

/* What the group of elements c .. prefetches. Groups of a line or more prefetch that line of K and
 * of V; smaller ones alternate between a line of K and a line of V. */
static pv_prefetch choose_prefetch(em *e, const att_plan *p, int rows, em_val c,
                                   const att_pv_args *a) {
    em_val at = em_mul(e, c, p->esize);
    if (rows * p->esize >= LINE)
        return (pv_prefetch){{em_gep_bytes(e, a->next_k, at), em_gep_bytes(e, a->next_v, at)},
                             {a->next_k_step, a->next_v_step}};
    em_val group = LLVMBuildUDiv(e->b, c, em_i64(e, rows), "");
    em_val odd = em_cmp(e, EM_NE, em_and(e, group, 1), 0);
    at = em_mul(e, em_lshr(e, group, 1), LINE);
    em_val from = em_gep_bytes(e, em_select(e, odd, a->next_v, a->next_k), at);
    em_val step = em_select(e, odd, a->next_v_step, a->next_k_step);
    return (pv_prefetch){{from, from}, {step, step}};
}

em_val att_emit_pv(em *e, const att_plan *p, const char *name, int nv, int dv) {
    char suffix[32];
    snprintf(suffix, sizeof suffix, "%s%d", name, nv);
    att_pv_args a = att_pv_begin(e, p, suffix);
    em_branch rest = {0};
    const bool amx = att_takes_amx(e, p, dv);
    if (amx) {
        em_val done = att_emit_amx_sums(e, p, &a, nv, dv);
        a.v = em_gep(e, a.v, p->t, em_mul(e, done, a.v_stride));
        a.p = em_gep(e, a.p, p->t, em_mul(e, done, p->qb));
        a.keys = em_sub(e, a.keys, done);
        rest = em_if(e, em_cmp(e, EM_GT, a.keys, 0));
    }
    int size = choose_rows(p, nv, dv), groups = (dv + size - 1) / size;
    int smaller = groups * size - dv;
    for (int part = 0; part < 2; part++) {
        int rows = size - part, split = dv - smaller * (size - 1);
        int lo = part ? split : 0, hi = part ? dv : split;
        if (lo == hi) continue;
        em_loop l = em_for(e, lo, hi, rows);
        em_val acc = em_gep(e, a.acc, p->t, em_mul(e, l.i, p->qb));
        pv_prefetch f = choose_prefetch(e, p, rows, l.i, &a);
        emit_pv_group(e, p, rows, nv, em_gep(e, a.v, p->t, l.i), acc, &a, &f);
        em_end(e, &l);
    }
    if (amx) em_endif(e, &rest);
    return att_end(e);
}

static em_val emit_pv_nan_safe(em *e, const att_plan *p) {
    att_pv_nan_safe_args a = att_pv_nan_safe_begin(e, p, "pv_nan_safe");
    em_loop i = em_for(e, 0, p->a->dv, 1);
    em_val out = em_gep(e, a.acc, p->t, em_mul(e, i.i, p->qb));
    em_val acc = att_load(e, p, out);
    em_loop k = em_for(e, 0, a.keys, 1);
    em_carries(e, &k, &acc, 1);
    em_val weight[2] = {att_load(e, p, em_gep(e, a.p, p->t, em_mul(e, k.i, p->qb)))};
    em_val at = em_gep(e, em_gep(e, a.v, p->t, em_mul(e, k.i, a.v_stride)), p->t, i.i);
    em_val x[2] = {em_load_splat(e, p->t, at, p->lanes)};
    if (p->word > 1) tile_bf16_widen(e, weight[0], weight), tile_bf16_widen(e, x[0], x);
    for (int j = 0; j < p->word; j++) {
        em_val before = acc;
        tile_add(e, &acc, 1, x[j], &weight[j]);
        acc = em_select(e, em_cmp(e, EM_EQ, weight[j], em_vf(e, 0)), before, acc);
    }
    em_end(e, &k);
    att_store(e, p, acc, out);
    em_end(e, &i);
    return att_end(e);
}

void att_emit_functions(em *e, const att_plan *p, att_functions *f) {
    const sn_attention *a = p->a;
    int flags = (att_qk_is_score(p) ? ATT_QK_MAX : 0) | (p->bias.n ? ATT_QK_ADD : 0) |
                (p->s_scale != 1 ? ATT_QK_SCALE : 0);
    for (int nv = 1; nv <= ATT_NV; nv++) {
        f->qk[nv] = att_emit_qk(e, p, "qk", nv, a->d, flags);
        f->pv[nv] = att_emit_pv(e, p, "pv", nv, a->dv);
    }
    f->pv_nan_safe = p->scan_v ? emit_pv_nan_safe(e, p) : NULL;
    f->load_q = att_emit_load_queries(e, p, "load_q", a->q.dtype, a->d, p->q_scale, p->word);
    f->store_out =
        att_emit_store_queries(e, p, "store_out", a->out.dtype, a->dv, att_keep_factor(p));
}
