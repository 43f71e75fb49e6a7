/* decode.c: attention of a few queries (decoding): one pass over K and V for all queries and all
 * heads that share them. Lanes are elements of a row in both products and keys in between, so that
 * the work takes much less time than memory. Up to four queries go through a tile together:
 * otherwise the cache would limit them. The keys may be split among threads (split_kv.c).
 *
 * A row is a query of one of the heads that share a K/V head. Its algorithm is that of forward.c,
 * with a scalar maximum:
 *
 *   m_i = -inf;  l_i = 0;  acc = 0;  load q_i                      emit_enter
 *   for each KV tile j that the mask does not hide:
 *       s = mask(score(q_i k_j^T))                                 emit_scores
 *       m_new = max(m_i, max(s));  alpha = e^(m_i - m_new)         emit_softmax
 *       p = e^(s - m_new);  l_i = alpha l_i + sum(p);  m_i = m_new
 *       acc = alpha acc + p v_j                                    emit_acc
 *   out_i = acc / l_i;  lse_i = (m_i, log l_i)                     att_emit_decode_result */
#include "codegen/attention/impl.h"
#include "codegen/emit/vmath.h"

#include <math.h>

enum {
    ACC_VECTORS = 8,  /* vectors of acc whose sums are in registers at a time */
    MAX_LINES = 8,    /* cache lines of a row of K in a narrow type that are prefetched */
    ROWS_PER_TILE = 4 /* rows that go through a tile together: K and V are read once for them */
};

typedef struct decode {
    const att_plan *p;
    em_val batch, kv_head, tk;
    em_val q0, queries; /* first query, number of queries */
    em_val row0, row1;
    em_val states;             /* softmax state of each row: see att_row_state */
    em_val k0;                 /* first key of the tile */
    em_val k_scales, v_scales; /* factors of the rows of K and V, or NULL */
    att_regions regions[ROWS_PER_TILE];
} decode;

em_val(att_row_state)(em *e, const att_plan *p, em_val states, em_val r, att_state_field field) {
    int dv = att_padded(p, p->a->dv);
    int at[] = {[ATT_ACC] = 0, [ATT_L] = dv, [ATT_M] = dv + p->lanes};
    em_val row = em_mul(e, r, att_row_state_size(p));
    return em_gep(e, states, p->t, em_add(e, row, at[field]));
}

/* Row r of an array in scratch. */
static em_val row_of(em *e, const att_plan *p, int64_t offset, em_val r, int width) {
    return em_gep(e, att_scratch(e, offset), p->t, em_mul(e, r, width));
}

/* x as a factor of a product. Lanes go along the rows, so that there are no pairs to add. */
static em_val as_factor(em *e, const att_plan *p, em_val x) {
    return p->factor == SN_BF16 ? tile_bf16_round(e, x) : x;
}

/* Elements i .. i + lanes - 1 of a row of d factors; 0 beyond its end. */
static em_val load_vector(em *e, const att_plan *p, sn_dtype t, em_val row, int i, int d) {
    em_val at = em_gep(e, row, t, i);
    em_val x = att_load_row(e, p, t, at, p->lanes, i + p->lanes <= d ? NULL : em_i64(e, d - i));
    return t == SN_BF16 || t == SN_I8 ? x : as_factor(e, p, x); /* those are exact */
}

/* The first row prefetches the next tile while it goes through a tile: that of this head if a whole
 * one is left, else the first of the next head. Returns the distance in elements; 0 for other
 * rows. */
static em_val prefetch_distance(em *e, const decode *w, const sn_attention_operand *o, em_val r) {
    em_val row = em_size_value(e, o->row);
    em_val left = em_sub(e, em_sub(e, w->tk, w->k0), ATT_TILE_KEYS);
    em_val other = em_sub(e, em_size_value(e, o->head), em_mul(e, w->k0, row));
    em_val far =
        em_select(e, em_cmp(e, EM_GE, left, ATT_TILE_KEYS), em_mul(e, row, ATT_TILE_KEYS), other);
    return em_select(e, em_cmp(e, EM_EQ, r, w->row0), far, 0);
}

/* Reduces `lanes` vectors to one whose lane i is the sum of vector i. Each step combines a pair of
 * vectors: the sums of one go to the lanes whose number has bit h, those of the other to the
 * rest. */
static em_val sum_each(em *e, const att_plan *p, em_val *x) {
    int n = p->lanes, keep[64], move[64];
    for (int h = 1; h < n; h *= 2) {
        for (int j = 0; j < n; j++) {
            keep[j] = j & h ? n + j : j;
            move[j] = j & h ? n + (j ^ h) : j ^ h;
        }
        for (int i = 0; i < n / h / 2; i++) {
            em_val a = x[2 * i], b = x[2 * i + 1];
            x[i] = em_add(e, em_shuffle(e, a, b, keep, n), em_shuffle(e, a, b, move, n));
        }
    }
    return x[0];
}

/* qk[u] = scaled query q[u] times keys k0 .. k0 + lanes - 1. Computes lanes / rows keys for all
 * queries at a time; this number changes no sum. Prefetches `ahead` elements behind each row of
 * K. */
static void emit_qk(em *e, const decode *w, em_val k_base, em_val k0, int rows, const em_val *q,
                    em_val ahead, em_val *qk) {
    const att_plan *p = w->p;
    const sn_attention_operand *o = &p->a->k;
    int d = p->a->d, n = p->lanes, whole = d / n * n, keys = n / rows;
    em_val stride = em_size_value(e, o->row), last = em_sub(e, w->tk, 1);
    int line = 64 / (int)sn_dtype_size(o->dtype);
    em_val part[ROWS_PER_TILE][ROWS_PER_TILE]; /* of a query: keys, group by group */
    for (int g = 0; g < rows; g++) {
        em_val row[64], next[64], sum[64];
        for (int i = 0; i < keys; i++) {
            em_val k = em_imin(e, em_add(e, k0, g * keys + i), last);
            row[i] = em_gep(e, k_base, o->dtype, em_mul(e, k, stride));
            next[i] = em_gep(e, row[i], o->dtype, ahead);
        }
        for (int i = 0; i < keys && n < line; i++) /* a line holds several vectors */
            for (int c = 0; c < d && c < MAX_LINES * line; c += line)
                em_prefetch(e, em_gep(e, next[i], o->dtype, c), false, 2);
        em_loop l = em_for(e, 0, whole, n);
        for (int i = 0; i < n; i++) sum[i] = em_vf(e, 0);
        em_carries(e, &l, sum, n);
        em_val x[ROWS_PER_TILE];
        for (int u = 0; u < rows; u++) x[u] = em_load(e, p->t, em_gep(e, q[u], p->t, l.i), n);
        for (int i = 0; i < keys; i++) {
            em_val y = load_vector(e, p, o->dtype, em_gep(e, row[i], o->dtype, l.i), 0, n);
            if (n >= line) em_prefetch(e, em_gep(e, next[i], o->dtype, l.i), false, 2);
            for (int u = 0; u < rows; u++) tile_add(e, &sum[u * keys + i], 1, x[u], &y);
        }
        em_end(e, &l);
        for (int u = 0; u < rows && whole < d; u++) {
            x[u] = em_load(e, p->t, em_gep(e, q[u], p->t, whole), n);
            for (int i = 0; i < keys; i++) {
                em_val y = load_vector(e, p, o->dtype, row[i], whole, d);
                tile_add(e, &sum[u * keys + i], 1, x[u], &y);
            }
        }
        em_val all = sum_each(e, p, sum);
        for (int u = 0; u < rows; u++)
            part[u][g] = rows > 1 ? em_part(e, all, u * keys, keys) : all;
    }
    for (int u = 0; u < rows; u++) qk[u] = att_join(e, part[u], rows);
}

/* The rows that go through a tile together. */
typedef struct tile_rows {
    int n;
    em_val row[ROWS_PER_TILE], head[ROWS_PER_TILE], q[ROWS_PER_TILE];
    em_val s[ROWS_PER_TILE]; /* pointers: scores of the tile, then weights p */
} tile_rows;

static em_val head_of(em *e, const decode *w, em_val row) {
    em_val first = em_mul(e, w->kv_head, w->p->a->gqa_ratio);
    return em_add(e, first, em_div(e, row, w->queries));
}

static em_val query_of(em *e, const decode *w, em_val row) {
    return em_add(e, w->q0, em_rem(e, row, w->queries));
}

static tile_rows take_rows(em *e, const decode *w, em_val r, int n) {
    const att_plan *p = w->p;
    tile_rows t = {.n = n};
    for (int u = 0; u < n; u++) {
        em_val row = em_add(e, r, u), first = em_i64(e, u * ATT_TILE_KEYS);
        t.row[u] = row;
        t.head[u] = head_of(e, w, row);
        t.q[u] = query_of(e, w, row);
        t.s[u] = em_gep(e, att_scratch(e, p->s_offset), p->t, first);
    }
    return t;
}

/* s = mask(score(qk)) for n keys and all rows of the tile; s_max: their maxima (scalars). */
static void emit_scores(em *e, decode *w, em_val k_base, em_val k0, em_val n, const tile_rows *t,
                        bool masked, em_val *s_max) {
    const att_plan *p = w->p;
    em_val q_at[ROWS_PER_TILE], x[ROWS_PER_TILE];
    em_val last = em_int_cast(e, em_sub(e, w->tk, 1), e->i32);
    for (int u = 0; u < t->n; u++) {
        q_at[u] = row_of(e, p, p->decode_q_offset, t->row[u], att_padded(p, p->a->d));
        att_regions_begin(&w->regions[u], e, p, masked, w->batch, t->head[u], t->q[u]);
    }
    em_loop l = em_for(e, 0, n, p->lanes);
    for (int u = 0; u < t->n; u++) s_max[u] = em_vf(e, -INFINITY);
    em_carries(e, &l, s_max, t->n);
    em_val at = em_add(e, k0, l.i), ahead = prefetch_distance(e, w, &p->a->k, t->row[0]);
    emit_qk(e, w, k_base, at, t->n, q_at, ahead, x);
    em_val k =
        em_add(e, em_splat(e, em_int_cast(e, at, e->i32), p->lanes), em_iota(e, e->i32, p->lanes));
    k = em_imin(e, k, em_splat(e, last, p->lanes));
    em_val left = em_sub(e, n, l.i), here = em_tail_mask(e, left, p->lanes), scale = NULL;
    if (p->a->row_scales)
        scale = att_row_scales(e, p, &p->a->k_scale, w->k_scales, at, p->lanes, left);
    for (int u = 0; u < t->n; u++) {
        if (scale) x[u] = em_mul(e, x[u], scale);
        if (p->s_scale != 1) x[u] = em_mul(e, x[u], em_vf(e, p->s_scale));
        x[u] = att_regions_apply(&w->regions[u], e, p, x[u], k);
        x[u] = em_select(e, here, x[u], em_vf(e, -INFINITY));
        em_store(e, p->t, em_gep(e, t->s[u], p->t, l.i), x[u]);
        s_max[u] = em_max(e, x[u], s_max[u]);
    }
    em_end(e, &l);
    for (int u = 0; u < t->n; u++) s_max[u] = em_reduce(e, EM_MAX, s_max[u]);
}

/* acc = alpha acc + p v for elements c .. c + vectors * lanes - 1 of the rows. keys 2: even and odd
 * keys have accumulators of their own, enough to hide the latency. */
static void emit_acc_columns(em *e, const decode *w, em_val v_base, em_val k0, em_val n,
                             const tile_rows *t, const em_val *alpha, int c, int vectors,
                             int keys) {
    enum { MAX_ACC = 2 * ACC_VECTORS };
    const att_plan *p = w->p;
    const sn_attention_operand *o = &p->a->v;
    int dv = p->a->dv, line = 64 / (int)sn_dtype_size(o->dtype);
    em_val stride = em_size_value(e, o->row), ahead = prefetch_distance(e, w, o, t->row[0]);
    em_val tile = em_mul(e, k0, stride), out[ROWS_PER_TILE];
    em_val sum[ROWS_PER_TILE][MAX_ACC]; /* of even keys, of odd ones */
    for (int r = 0; r < t->n; r++) {
        out[r] = att_row_state(e, p, w->states, t->row[r], ATT_ACC);
        for (int i = 0; i < keys * vectors; i++) {
            em_val at = em_gep(e, out[r], p->t, c + i * p->lanes);
            sum[r][i] =
                i < vectors ? em_mul(e, em_load(e, p->t, at, p->lanes), alpha[r]) : em_vf(e, 0);
        }
    }
    em_val even = em_and(e, n, -keys), lo[] = {em_i64(e, 0), even}, hi[] = {even, n};
    for (int part = 0; part < keys; part++) {
        int unroll = part ? 1 : keys;
        em_loop l = em_for(e, lo[part], hi[part], unroll);
        for (int r = 0; r < t->n; r++) em_carries(e, &l, sum[r], unroll * vectors);
        for (int u = 0; u < unroll; u++) {
            em_val k = em_add(e, l.i, u), at = em_add(e, tile, em_mul(e, k, stride));
            em_val row = em_gep(e, v_base, o->dtype, at), next = em_gep(e, row, o->dtype, ahead);
            em_val weight[ROWS_PER_TILE], counts[ROWS_PER_TILE];
            for (int r = 0; r < t->n; r++) {
                weight[r] = em_load_splat(e, p->t, em_gep(e, t->s[r], p->t, k), p->lanes);
                counts[r] = p->scan_v ? em_cmp(e, EM_NE, weight[r], em_vf(e, 0)) : NULL;
            }
            for (int i = 0; i < vectors; i++) {
                int at_i = c + i * p->lanes;
                if (at_i % line == 0 || line < p->lanes)
                    em_prefetch(e, em_gep(e, next, o->dtype, at_i), false, 2);
                em_val v = load_vector(e, p, o->dtype, row, at_i, dv);
                for (int r = 0; r < t->n; r++) {
                    em_val *acc = &sum[r][u * vectors + i], before = *acc;
                    tile_add(e, acc, 1, v, &weight[r]);
                    if (counts[r]) *acc = em_select(e, counts[r], *acc, before);
                }
            }
        }
        em_end(e, &l);
    }
    for (int r = 0; r < t->n; r++)
        for (int i = 0; i < vectors; i++) {
            em_val all = keys == 2 ? em_add(e, sum[r][i], sum[r][vectors + i]) : sum[r][i];
            em_store(e, p->t, em_gep(e, out[r], p->t, c + i * p->lanes), all);
        }
}

/* acc = alpha acc + p v, as many vectors of the rows at a time as fit into registers. The order of
 * summation over keys does not depend on the number of rows. */
static void emit_acc(em *e, const decode *w, em_val v_base, em_val k0, em_val n, const tile_rows *t,
                     const em_val *alpha) {
    int lanes = w->p->lanes, dv = w->p->a->dv, step = ACC_VECTORS * lanes;
    for (int c = 0; c < dv; c += step) {
        int vectors = (dv - c < step ? att_padded(w->p, dv - c) : step) / lanes;
        int keys = vectors <= ACC_VECTORS / 2 ? 2 : 1;
        int max_vectors = 2 * ACC_VECTORS / (t->n * keys);
        for (int i = 0; i < vectors; i += max_vectors)
            emit_acc_columns(e, w, v_base, k0, n, t, alpha, c + i * lanes,
                             vectors - i < max_vectors ? vectors - i : max_vectors, keys);
    }
}

/* -- update m_i and l_i -- of row u of the tile, and p = e^(s - m_i). Returns alpha. Without softmax
 * m_i stays 0 and p = s. */
static em_val emit_softmax(em *e, const decode *w, const tile_rows *t, int u, em_val k0, em_val n,
                           em_val s_max) {
    const att_plan *p = w->p;
    em_val m_ptr = att_row_state(e, p, w->states, t->row[u], ATT_M);
    em_val l_ptr = att_row_state(e, p, w->states, t->row[u], ATT_L);
    em_val m_i = em_load(e, p->t, m_ptr, 1);
    em_val m_new = p->a->weights ? m_i : em_max(e, s_max, m_i),
           none = em_cmp(e, EM_EQ, m_new, em_f(e, -INFINITY));
    em_store(e, p->t, m_ptr, m_new);
    em_val same = em_cmp(e, EM_EQ, m_new, m_i); /* then alpha is 1, but e^0 is slightly less */
    m_new = em_splat(e, em_select(e, none, em_f(e, 0), m_new), p->lanes);
    em_val alpha = att_exp(e, em_sub(e, em_splat(e, m_i, p->lanes), m_new));
    alpha = em_select(e, em_splat(e, same, p->lanes), em_vf(e, 1), alpha);
    em_val l_i = em_mul(e, em_load(e, p->t, l_ptr, p->lanes), alpha), kept = NULL;
    if (att_drops(p)) kept = att_keep_row(e, p, w->batch, t->head[u], t->q[u], k0);
    em_loop l = em_for(e, 0, n, p->lanes);
    em_carries(e, &l, &l_i, 1);
    em_val at = em_gep(e, t->s[u], p->t, l.i);
    em_val s = em_load(e, p->t, at, p->lanes);
    em_val x = p->a->weights ? att_plain_weight(e, s) : att_exp(e, em_sub(e, s, m_new)),
           dropped = x;
    if (kept) dropped = em_select(e, att_keep_lanes(e, kept, l.i, p->lanes), x, em_vf(e, 0));
    if (p->a->row_scales) { /* in place of each row of v; a hidden key's may be anything */
        em_val rows = em_add(e, k0, l.i), left = em_sub(e, n, l.i), zero = em_vf(e, 0);
        em_val scale = att_row_scales(e, p, &p->a->v_scale, w->v_scales, rows, p->lanes, left);
        em_val hidden = em_cmp(e, EM_EQ, dropped, zero);
        dropped = em_select(e, hidden, zero, em_mul(e, dropped, scale));
    }
    em_store(e, p->t, at, as_factor(e, p, dropped));
    l_i = em_add(e, l_i, x);
    em_end(e, &l);
    em_store(e, p->t, l_ptr, l_i);
    return alpha;
}

/* The tile of n keys for n_rows rows from r on. */
static void emit_rows(em *e, decode *w, em_val k_base, em_val v_base, em_val n, em_val r,
                      int n_rows, bool masked) {
    tile_rows t = take_rows(e, w, r, n_rows);
    em_val s_max[ROWS_PER_TILE], alpha[ROWS_PER_TILE];
    emit_scores(e, w, k_base, w->k0, n, &t, masked, s_max);
    for (int u = 0; u < n_rows; u++) alpha[u] = emit_softmax(e, w, &t, u, w->k0, n, s_max[u]);
    emit_acc(e, w, v_base, w->k0, n, &t, alpha);
}

/* How many rows go through a tile together. An unknown number of queries is taken as one, the most
 * likely, if more of them have another kernel. */
static int rows_together(const att_plan *p) {
    em_size tq = p->a->tq;
    int64_t unknown = p->a->by_query ? ATT_DECODE_QUERIES : 1;
    int64_t all = p->a->gqa_ratio * (tq.slot < 0 ? tq.value : unknown);
    int max_rows = p->lanes < ROWS_PER_TILE ? p->lanes : ROWS_PER_TILE;
    return all >= max_rows ? max_rows : all >= 2 ? 2 : 1;
}

/* The tile for all rows: `many` at a time, then one by one. */
static void emit_tile(em *e, decode *w, em_val k_base, em_val v_base, em_val n) {
    bool masked = w->p->a->mask != NULL;
    int many = rows_together(w->p);
    em_val count = em_and(e, em_sub(e, w->row1, w->row0), -many);
    em_val middle = em_add(e, w->row0, count), begin[] = {w->row0, middle};
    em_val end[] = {middle, w->row1};
    for (int part = 0; part < (many > 1 ? 2 : 1); part++) {
        int rows = part ? 1 : many;
        em_loop r = em_for(e, begin[part], end[part], rows);
        emit_rows(e, w, k_base, v_base, n, r.i, rows, masked);
        em_end(e, &r);
    }
}

/* m_i = -inf, l_i = 0, acc = 0, load q_i. The first split of the keys begins with the sink. */
static void emit_enter(em *e, const decode *w, em_val r) {
    const att_plan *p = w->p;
    em_val head = head_of(e, w, r), q = query_of(e, w, r);
    const sn_attention *a = p->a;
    em_val src = em_gep(e, att_base(e, &a->q, w->batch, head), a->q.dtype,
                        em_mul(e, q, em_size_value(e, a->q.row)));
    em_val dst = row_of(e, p, p->decode_q_offset, r, att_padded(p, a->d));
    em_val scale = em_vf(e, p->q_scale);
    for (int i = 0; i < a->d; i += p->lanes) {
        em_val x = load_vector(e, p, a->q.dtype, src, i, a->d);
        em_store(e, p->t, em_gep(e, dst, p->t, i), em_mul(e, x, scale));
    }
    em_val acc = att_row_state(e, p, w->states, r, ATT_ACC);
    for (int i = 0; i < a->dv; i += p->lanes)
        em_store(e, p->t, em_gep(e, acc, p->t, i), em_vf(e, 0));
    em_val begins = em_cmp(e, EM_EQ, w->k0, 0);
    att_first state = att_first_state(e, p, w->batch, head, q, 1, NULL, begins);
    em_val first_lane = em_tail_mask(e, 1, p->lanes);
    em_val l = em_select(e, first_lane, em_splat(e, state.l, p->lanes), em_vf(e, 0));
    em_store(e, p->t, att_row_state(e, p, w->states, r, ATT_L), l);
    em_store(e, p->t, att_row_state(e, p, w->states, r, ATT_M), state.m);
}

void(att_emit_decode_result)(em *e, const att_plan *p, em_val states, em_val r, em_val batch,
                             em_val head, em_val q) {
    const sn_attention *a = p->a;
    em_val l_i = em_load(e, p->t, att_row_state(e, p, states, r, ATT_L), p->lanes);
    l_i = em_reduce(e, EM_SUM, l_i);
    em_val none = em_cmp(e, EM_EQ, l_i, em_f(e, 0)), slope = NULL;
    em_val factor = em_select(e, none, em_f(e, 0), em_div(e, em_f(e, att_keep_factor(p)), l_i));
    em_val divisor = a->weights ? att_row_divisor(e, p, l_i, &slope) : NULL;
    if (divisor) factor = em_mul(e, em_f(e, att_keep_factor(p)), att_reciprocal(e, divisor));
    em_val out = em_gep(e, att_base(e, &a->out, batch, head), a->out.dtype,
                        em_mul(e, q, em_size_value(e, a->out.row)));
    em_val acc = att_row_state(e, p, states, r, ATT_ACC);
    for (int i = 0; i < a->dv; i += p->lanes) {
        em_val x = em_load(e, p->t, em_gep(e, acc, p->t, i), p->lanes);
        x = em_mul(e, x, em_splat(e, factor, p->lanes));
        em_val at = em_gep(e, out, a->out.dtype, i);
        if (i + p->lanes <= a->dv)
            em_store(e, a->out.dtype, at, x);
        else
            em_store_tail(e, a->out.dtype, at, x, em_i64(e, a->dv - i));
    }
    if (a->lse_buf < 0) return;
    em_val m_i = em_load(e, p->t, att_row_state(e, p, states, r, ATT_M), 1), log_sum = slope;
    if (divisor)
        m_i = att_reciprocal(e, divisor);
    else
        log_sum = em_select(e, none, em_f(e, -INFINITY), sn_vmath_emit(e, SN_V_LOG, l_i));
    em_store(e, p->t, att_lse_ptr(e, p, batch, head, q, 0), m_i);
    em_store(e, p->t, att_lse_ptr(e, p, batch, head, q, 1), log_sum);
}

em_val att_emit_decode(em *e, const att_plan *p) {
    const sn_attention *a = p->a;
    att_decode_args q = att_decode_begin(e, p, "decode");
    att_use_context(e, q.buf, q.dim, q.scratch);
    em_val kv_heads = em_i64(e, a->heads / a->gqa_ratio);
    decode w = {.p = p, .q0 = q.q0, .queries = q.queries, .tk = em_size_value(e, a->tk)};
    w.batch = em_div(e, q.kv_head, kv_heads), w.kv_head = em_rem(e, q.kv_head, kv_heads);
    w.k0 = q.k0;
    w.row0 = q.row0, w.row1 = q.row1, w.states = q.states;
    em_val head0 = em_mul(e, w.kv_head, a->gqa_ratio);
    em_val k_base = att_base(e, &a->k, w.batch, w.kv_head);
    em_val v_base = att_base(e, &a->v, w.batch, w.kv_head);
    if (a->row_scales) {
        w.k_scales = att_base(e, &a->k_scale, w.batch, w.kv_head);
        w.v_scales = att_base(e, &a->v_scale, w.batch, w.kv_head);
    }
    em_loop l = em_for(e, w.row0, w.row1, 1);
    emit_enter(e, &w, l.i);
    em_end(e, &l);

    att_classifier c;
    sn_interval heads = {head0, em_add(e, head0, em_sub(e, a->gqa_ratio, 1))};
    sn_interval queries = {w.q0, em_sub(e, em_add(e, w.q0, w.queries), 1)};
    if (a->mask) {
        att_classifier_begin(&c, e, p, NULL, w.batch, heads, queries);
        sn_interval_emit(&c.code, ATT_DEP_HEAD | ATT_DEP_Q);
    }
    em_loop tile = em_for(e, q.k0, q.k1, ATT_TILE_KEYS);
    w.k0 = tile.i;
    em_val n = em_imin(e, em_sub(e, q.k1, tile.i), ATT_TILE_KEYS);
    em_val visible = em_i1(e, true);
    if (a->mask) {
        sn_interval k = {tile.i, em_sub(e, em_add(e, tile.i, n), 1)};
        visible = att_classifier_finish(&c, k).hi;
    }
    em_branch br = em_if(e, visible);
    emit_tile(e, &w, k_base, v_base, n);
    em_endif(e, &br);
    em_end(e, &tile);

    em_branch complete = em_if(e, q.complete);
    l = em_for(e, w.row0, w.row1, 1);
    att_emit_decode_result(e, p, w.states, l.i, w.batch, head_of(e, &w, l.i), query_of(e, &w, l.i));
    em_end(e, &l);
    em_endif(e, &complete);
    return att_end(e);
}
