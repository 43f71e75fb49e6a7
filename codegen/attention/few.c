/* few.c: attention of a few queries (decoding): K and V pass by once, for all queries and
 * all heads that share them. Lanes are elements of a row in both products and keys in between, so
 * that the work stays far below the time that memory takes; up to four heads that share K and V go
 * through a tile together, or the cache would be what limits them. Keys may be done in parts
 * (split.c). */
#include "codegen/attention/impl.h"
#include "codegen/emit/vmath.h"

#include <math.h>

enum {
    SUM_VECTORS = 8, /* vectors of an output row that are summed at a time */
    MOST_ROWS = 4    /* queries that go through a tile together: K and V are read once for them */
};

typedef struct few {
    const att_plan *p;
    em_val batch, kv_head, tq, tk;
    em_val first, end; /* rows: queries of heads, head by head */
    em_val state;      /* a record of each row: see att_record */
    em_val tile;       /* its first key */
    att_regions regions[MOST_ROWS];
} few;

em_val att_record(em *e, const att_plan *p, em_val state, em_val r, att_part part) {
    int dv = att_padded(p, p->a->dv), at[] = {[ATT_O] = 0, [ATT_L] = dv, [ATT_M] = dv + p->lanes};
    em_val row = em_mul(e, r, em_i64(e, att_record_size(p)));
    return em_gep(e, state, p->t, em_add(e, row, em_i64(e, at[part])));
}

static em_val row_of(em *e, const att_plan *p, int64_t base, em_val r, int width) {
    return em_gep(e, att_scratch(e, base), p->t, em_mul(e, r, em_i64(e, width)));
}

/* Elements i .. i + lanes - 1 of a row of d elements; beyond its end 0. */
static em_val load_part(em *e, const att_plan *p, sn_dtype t, em_val row, int i, int d) {
    em_val at = em_gep(e, row, t, em_i64(e, i));
    return i + p->lanes <= d ? em_load(e, t, at, p->lanes)
                             : em_load_tail(e, t, at, p->lanes, em_i64(e, d - i));
}

/* While the first row of queries goes through a tile it fetches the next one: of this head if a
 * whole one is left, else the first of the next head. */
static em_val fetch_distance(em *e, const few *w, const sn_attention_operand *o, em_val r) {
    em_val row = att_size(e, o->row), keys = em_i64(e, ATT_KEYS), zero = em_i64(e, 0);
    em_val left = em_sub(e, em_sub(e, w->tk, w->tile), keys);
    em_val other = em_sub(e, att_size(e, o->head), em_mul(e, w->tile, row));
    em_val far = em_select(e, em_cmp(e, EM_GE, left, keys), em_mul(e, row, keys), other);
    return em_select(e, em_cmp(e, EM_EQ, r, w->first), far, zero);
}

/* `lanes` vectors to one: lane i is the sum over vector i. At each step a pair of vectors keeps
 * half of its sums in the lanes whose number has bit h, half in the others. */
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

/* Scores of keys k0 .. k0 + lanes - 1 for the scaled queries at q[], before any region: x[u]. A
 * turn has some keys for all queries; how many changes no sum. Fetches what lies `far` elements
 * behind each row. */
static void emit_scores(em *e, const few *w, em_val k_base, em_val k0, int rows, const em_val *q,
                        em_val far, em_val *x) {
    const att_plan *p = w->p;
    const sn_attention_operand *o = &p->a->k;
    int d = p->a->d, n = p->lanes, whole = d / n * n, keys = n / rows;
    em_val stride = att_size(e, o->row), last = em_sub(e, w->tk, em_i64(e, 1));
    int line = 64 / (int)sn_dtype_size(o->dtype);
    em_val mine[MOST_ROWS][MOST_ROWS]; /* of a query, turn by turn */
    for (int turn = 0; turn < rows; turn++) {
        em_val row[64], ahead[64], sum[64], first[64];
        for (int i = 0; i < keys; i++) {
            em_val k = em_imin(e, em_add(e, k0, em_i64(e, turn * keys + i)), last);
            row[i] = em_gep(e, k_base, o->dtype, em_mul(e, k, stride));
            ahead[i] = em_gep(e, row[i], o->dtype, far);
        }
        em_loop l = em_for(e, em_i64(e, 0), em_i64(e, whole), em_i64(e, n));
        for (int i = 0; i < n; i++) first[i] = sum[i] = em_carry(e, &l, em_vf(e, 0));
        em_val part[MOST_ROWS];
        for (int u = 0; u < rows; u++) part[u] = em_load(e, p->t, em_gep(e, q[u], p->t, l.i), n);
        for (int i = 0; i < keys; i++) {
            em_val y = em_load(e, o->dtype, em_gep(e, row[i], o->dtype, l.i), n);
            if (n >= line) em_prefetch(e, em_gep(e, ahead[i], o->dtype, l.i), false, 2);
            for (int u = 0; u < rows; u++)
                sum[u * keys + i] = em_fma(e, part[u], y, sum[u * keys + i]);
        }
        for (int i = 0; i < n; i++) em_next(e, &l, first[i], sum[i]);
        em_end(e, &l);
        for (int i = 0; i < n; i++) sum[i] = em_final(e, &l, first[i]);
        for (int u = 0; u < rows && whole < d; u++) {
            part[u] = em_load(e, p->t, em_gep(e, q[u], p->t, em_i64(e, whole)), n);
            for (int i = 0; i < keys; i++) {
                em_val y = load_part(e, p, o->dtype, row[i], whole, d);
                sum[u * keys + i] = em_fma(e, part[u], y, sum[u * keys + i]);
            }
        }
        em_val all = sum_each(e, p, sum);
        for (int u = 0; u < rows; u++)
            mine[u][turn] = rows > 1 ? em_part(e, all, u * keys, keys) : all;
    }
    for (int u = 0; u < rows; u++) x[u] = att_join(e, mine[u], rows);
}

/* Query r + u of the rows that go through a tile together. */
typedef struct few_rows {
    int n;
    em_val row[MOST_ROWS], head[MOST_ROWS], q[MOST_ROWS];
    em_val s[MOST_ROWS]; /* scores of the tile, then weights */
} few_rows;

static few_rows take_rows(em *e, const few *w, em_val r, int n) {
    const att_plan *p = w->p;
    few_rows t = {.n = n};
    for (int u = 0; u < n; u++) {
        em_val row = em_add(e, r, em_i64(e, u)), first = em_i64(e, u * ATT_KEYS);
        em_val in_group = em_div(e, row, w->tq);
        t.row[u] = row;
        t.head[u] = em_add(e, em_mul(e, w->kv_head, em_i64(e, p->a->group)), in_group);
        t.q[u] = em_rem(e, row, w->tq);
        t.s[u] = em_gep(e, att_scratch(e, p->s_at), p->t, first);
    }
    return t;
}

/* All scores of the tile for the rows, through the regions; their maxima (scalars) to top. */
static void emit_tile_scores(em *e, few *w, em_val k_base, em_val k0, em_val n, const few_rows *t,
                             bool masked, em_val *top) {
    const att_plan *p = w->p;
    em_val lanes = em_i64(e, p->lanes), q_at[MOST_ROWS], first[MOST_ROWS], x[MOST_ROWS];
    em_val last = em_int_cast(e, em_sub(e, w->tk, em_i64(e, 1)), e->i32);
    for (int u = 0; u < t->n; u++) {
        q_at[u] = row_of(e, p, p->few_q_at, t->row[u], att_padded(p, p->a->d));
        att_regions_begin(&w->regions[u], e, p, masked, w->batch, t->head[u], t->q[u]);
    }
    em_loop l = em_for(e, em_i64(e, 0), n, lanes);
    for (int u = 0; u < t->n; u++) first[u] = em_carry(e, &l, em_vf(e, -INFINITY));
    em_val at = em_add(e, k0, l.i), far = fetch_distance(e, w, &p->a->k, t->row[0]);
    emit_scores(e, w, k_base, at, t->n, q_at, far, x);
    em_val k =
        em_add(e, em_splat(e, em_int_cast(e, at, e->i32), p->lanes), em_iota(e, e->i32, p->lanes));
    k = em_imin(e, k, em_splat(e, last, p->lanes));
    em_val here = em_tail_mask(e, em_sub(e, n, l.i), p->lanes);
    for (int u = 0; u < t->n; u++) {
        x[u] = att_regions_apply(&w->regions[u], e, p, x[u], k);
        x[u] = em_select(e, here, x[u], em_vf(e, -INFINITY));
        em_store(e, p->t, em_gep(e, t->s[u], p->t, l.i), x[u]);
        em_next(e, &l, first[u], em_max(e, x[u], first[u]));
    }
    em_end(e, &l);
    for (int u = 0; u < t->n; u++) top[u] = em_reduce(e, EM_MAX, em_final(e, &l, first[u]));
}

/* Vectors c .. c + vectors - 1 of the rows' sums: sum = sum factor + weights V. With `keys` of two
 * even and odd keys are summed apart, so that more sums are in flight than the latency. */
static void emit_sum_columns(em *e, const few *w, em_val v_base, em_val k0, em_val n,
                             const few_rows *t, const em_val *factor, int c, int vectors,
                             int keys) {
    enum { MOST = 2 * SUM_VECTORS };
    const att_plan *p = w->p;
    const sn_attention_operand *o = &p->a->v;
    int dv = p->a->dv;
    em_val stride = att_size(e, o->row), far = fetch_distance(e, w, o, t->row[0]);
    em_val tile = em_mul(e, k0, stride), out[MOST_ROWS];
    em_val first[MOST_ROWS][MOST], sum[MOST_ROWS][MOST]; /* of even keys, of odd ones */
    for (int r = 0; r < t->n; r++) {
        out[r] = att_record(e, p, w->state, t->row[r], ATT_O);
        for (int i = 0; i < keys * vectors; i++) {
            em_val at = em_gep(e, out[r], p->t, em_i64(e, c + i * p->lanes));
            sum[r][i] =
                i < vectors ? em_mul(e, em_load(e, p->t, at, p->lanes), factor[r]) : em_vf(e, 0);
        }
    }
    em_val even = em_and(e, n, em_i64(e, -keys)), lo[] = {em_i64(e, 0), even}, hi[] = {even, n};
    for (int part = 0; part < keys; part++) {
        int unroll = part ? 1 : keys, m = unroll * vectors;
        em_loop l = em_for(e, lo[part], hi[part], em_i64(e, unroll));
        for (int r = 0; r < t->n; r++)
            for (int i = 0; i < m; i++) first[r][i] = em_carry(e, &l, sum[r][i]);
        for (int u = 0; u < unroll; u++) {
            em_val k = em_add(e, l.i, em_i64(e, u)), at = em_add(e, tile, em_mul(e, k, stride));
            em_val row = em_gep(e, v_base, o->dtype, at), next = em_gep(e, row, o->dtype, far);
            em_val weight[MOST_ROWS], some[MOST_ROWS];
            for (int r = 0; r < t->n; r++) {
                weight[r] = em_load_splat(e, p->t, em_gep(e, t->s[r], p->t, k), p->lanes);
                some[r] = p->check_v ? em_cmp(e, EM_NE, weight[r], em_vf(e, 0)) : NULL;
            }
            for (int i = 0; i < vectors; i++) {
                int at_i = c + i * p->lanes;
                em_prefetch(e, em_gep(e, next, o->dtype, em_i64(e, at_i)), false, 2);
                em_val v = load_part(e, p, o->dtype, row, at_i, dv);
                for (int r = 0; r < t->n; r++) {
                    em_val was = first[r][u * vectors + i], y = em_fma(e, v, weight[r], was);
                    em_next(e, &l, was, some[r] ? em_select(e, some[r], y, was) : y);
                }
            }
        }
        em_end(e, &l);
        for (int r = 0; r < t->n; r++)
            for (int i = 0; i < m; i++) sum[r][i] = em_final(e, &l, first[r][i]);
    }
    for (int r = 0; r < t->n; r++)
        for (int i = 0; i < vectors; i++) {
            em_val all = keys == 2 ? em_add(e, sum[r][i], sum[r][vectors + i]) : sum[r][i];
            em_store(e, p->t, em_gep(e, out[r], p->t, em_i64(e, c + i * p->lanes)), all);
        }
}

/* O[r] = O[r] factor + weights V, some vectors of the rows at a time: what fits into registers. How
 * keys are summed follows from the row alone. */
static void emit_tile_sums(em *e, const few *w, em_val v_base, em_val k0, em_val n,
                           const few_rows *t, const em_val *factor) {
    int lanes = w->p->lanes, dv = w->p->a->dv, step = SUM_VECTORS * lanes;
    for (int c = 0; c < dv; c += step) {
        int vectors = (dv - c < step ? att_padded(w->p, dv - c) : step) / lanes;
        int keys = vectors <= SUM_VECTORS / 2 ? 2 : 1;
        int most = 2 * SUM_VECTORS / (t->n * keys);
        for (int i = 0; i < vectors; i += most)
            emit_sum_columns(e, w, v_base, k0, n, t, factor, c + i * lanes,
                             vectors - i < most ? vectors - i : most, keys);
    }
}

/* One tile for n rows from r on: as in blocks, but a row's maximum is one number and follows at
 * once. */
static void emit_rows_tile(em *e, few *w, em_val k_base, em_val v_base, em_val k0, em_val n,
                           em_val r, int rows, bool masked) {
    const att_plan *p = w->p;
    few_rows t = take_rows(e, w, r, rows);
    em_val top[MOST_ROWS], factor[MOST_ROWS];
    emit_tile_scores(e, w, k_base, k0, n, &t, masked, top);
    for (int u = 0; u < rows; u++) {
        em_val m_at = att_record(e, p, w->state, t.row[u], ATT_M);
        em_val l_at = att_record(e, p, w->state, t.row[u], ATT_L), old = em_load(e, p->t, m_at, 1);
        em_val m = em_max(e, top[u], old), none = em_cmp(e, EM_EQ, m, em_f(e, -INFINITY));
        em_store(e, p->t, m_at, m);
        m = em_splat(e, em_select(e, none, em_f(e, 0), m), p->lanes);
        factor[u] = att_exp(e, em_sub(e, em_splat(e, old, p->lanes), m));
        em_val before = em_mul(e, em_load(e, p->t, l_at, p->lanes), factor[u]), kept = NULL;
        if (att_drops(p)) kept = att_keep_word(e, p, p->keep_word, w->batch, t.head[u], t.q[u], k0);
        em_loop l = em_for(e, em_i64(e, 0), n, em_i64(e, p->lanes));
        em_val sum = em_carry(e, &l, before), at = em_gep(e, t.s[u], p->t, l.i);
        em_val x = att_exp(e, em_sub(e, em_load(e, p->t, at, p->lanes), m)), left = x;
        if (kept) left = em_select(e, att_keep_lanes(e, kept, l.i, p->lanes), x, em_vf(e, 0));
        em_store(e, p->t, at, left);
        em_next(e, &l, sum, em_add(e, sum, x));
        em_end(e, &l);
        em_store(e, p->t, l_at, em_final(e, &l, sum));
    }
    emit_tile_sums(e, w, v_base, k0, n, &t, factor);
}

/* Rows that go through a tile together; where the number of queries is not known, one is the most
 * likely. */
static int rows_together(const att_plan *p) {
    sn_gemm_size tq = p->a->tq;
    int64_t all = p->a->group * (tq.slot < 0 ? tq.value : 1);
    int most = p->lanes < MOST_ROWS ? p->lanes : MOST_ROWS;
    return all >= most ? most : all >= 2 ? 2 : 1;
}

/* The tile for all rows: some at a time, then one by one. */
static void emit_tile(em *e, few *w, em_val k_base, em_val v_base, em_val n) {
    bool masked = w->p->a->mask != NULL;
    int many = rows_together(w->p);
    em_val count = em_and(e, em_sub(e, w->end, w->first), em_i64(e, -many));
    em_val middle = em_add(e, w->first, count), begin[] = {w->first, middle};
    em_val end[] = {middle, w->end};
    for (int part = 0; part < (many > 1 ? 2 : 1); part++) {
        int rows = part ? 1 : many;
        em_loop r = em_for(e, begin[part], end[part], em_i64(e, rows));
        emit_rows_tile(e, w, k_base, v_base, w->tile, n, r.i, rows, masked);
        em_end(e, &r);
    }
}

static void emit_begin(em *e, const few *w, em_val r, em_val head, em_val q) {
    const att_plan *p = w->p;
    const sn_attention *a = p->a;
    em_val from = em_gep(e, att_base(e, &a->q, w->batch, head), a->q.dtype,
                         em_mul(e, q, att_size(e, a->q.row)));
    em_val to = row_of(e, p, p->few_q_at, r, att_padded(p, a->d));
    em_val scale = em_vf(e, a->scale);
    for (int i = 0; i < a->d; i += p->lanes) {
        em_val x = load_part(e, p, a->q.dtype, from, i, a->d);
        em_store(e, p->t, em_gep(e, to, p->t, em_i64(e, i)), em_mul(e, x, scale));
    }
    em_val out = att_record(e, p, w->state, r, ATT_O);
    for (int i = 0; i < a->dv; i += p->lanes)
        em_store(e, p->t, em_gep(e, out, p->t, em_i64(e, i)), em_vf(e, 0));
    em_store(e, p->t, att_record(e, p, w->state, r, ATT_L), em_vf(e, 0));
    em_store(e, p->t, att_record(e, p, w->state, r, ATT_M), em_f(e, -INFINITY));
}

void att_emit_result(em *e, const att_plan *p, em_val state, em_val r, em_val batch, em_val head,
                     em_val q) {
    const sn_attention *a = p->a;
    em_val l = em_load(e, p->t, att_record(e, p, state, r, ATT_L), p->lanes);
    l = em_reduce(e, EM_SUM, l);
    em_val none = em_cmp(e, EM_EQ, l, em_f(e, 0));
    em_val factor = em_select(e, none, em_f(e, 0), em_div(e, em_f(e, att_keep_factor(p)), l));
    em_val out = em_gep(e, att_base(e, &a->out, batch, head), a->out.dtype,
                        em_mul(e, q, att_size(e, a->out.row)));
    em_val from = att_record(e, p, state, r, ATT_O);
    for (int i = 0; i < a->dv; i += p->lanes) {
        em_val x = em_load(e, p->t, em_gep(e, from, p->t, em_i64(e, i)), p->lanes);
        x = em_mul(e, x, em_splat(e, factor, p->lanes));
        em_val at = em_gep(e, out, a->out.dtype, em_i64(e, i));
        if (i + p->lanes <= a->dv)
            em_store(e, a->out.dtype, at, x);
        else
            em_store_tail(e, a->out.dtype, at, x, em_i64(e, a->dv - i));
    }
    if (a->lse_buf < 0) return;
    em_val m = em_load(e, p->t, att_record(e, p, state, r, ATT_M), 1);
    em_val log_sum = em_select(e, none, em_f(e, -INFINITY), sn_vmath_emit(e, SN_V_LOG, l));
    em_store(e, p->t, att_lse_at(e, p, batch, head, q, false), m);
    em_store(e, p->t, att_lse_at(e, p, batch, head, q, true), log_sum);
}

/* void few(buf, dim, scratch, K/V head of all, first row, row after the last, first key, key after
 * the last, state, whether the result follows) */
em_val att_emit_few(em *e, const att_plan *p) {
    const sn_attention *a = p->a;
    const em_type params[] = {e->ptr, e->ptr, e->ptr, e->i64, e->i64,
                              e->i64, e->i64, e->i64, e->ptr, e->i1};
    em_val fn = att_function(e, p, "few", params, 10);
    em saved = *e;
    e->buf = em_param(e, 0), e->dim = em_param(e, 1), e->scratch = em_param(e, 2);
    em_val zero = em_i64(e, 0), one = em_i64(e, 1), group = em_i64(e, a->group);
    em_val kv_heads = em_i64(e, a->heads / a->group);
    few w = {.p = p, .tq = att_size(e, a->tq), .tk = att_size(e, a->tk)};
    w.batch = em_div(e, em_param(e, 3), kv_heads), w.kv_head = em_rem(e, em_param(e, 3), kv_heads);
    w.first = em_param(e, 4), w.end = em_param(e, 5), w.state = em_param(e, 8);
    em_val last = em_param(e, 7);
    em_val head0 = em_mul(e, w.kv_head, group);
    em_val k_base = att_base(e, &a->k, w.batch, w.kv_head);
    em_val v_base = att_base(e, &a->v, w.batch, w.kv_head);
    em_loop l = em_for(e, w.first, w.end, one);
    emit_begin(e, &w, l.i, em_add(e, head0, em_div(e, l.i, w.tq)), em_rem(e, l.i, w.tq));
    em_end(e, &l);

    att_classifier c;
    sn_interval heads = {head0, em_add(e, head0, em_sub(e, group, one))};
    sn_interval queries = {zero, em_sub(e, w.tq, one)};
    if (a->mask) {
        att_classifier_begin(&c, e, p, NULL, w.batch, heads, queries);
        sn_interval_emit(&c.code, ATT_DEP_HEAD | ATT_DEP_Q);
    }
    em_loop tile = em_for(e, em_param(e, 6), last, em_i64(e, ATT_KEYS));
    w.tile = tile.i;
    em_val n = em_imin(e, em_sub(e, last, tile.i), em_i64(e, ATT_KEYS)), maybe = em_i1(e, true);
    if (a->mask) {
        sn_interval k = {tile.i, em_sub(e, em_add(e, tile.i, n), one)};
        maybe = att_classifier_finish(&c, k).hi;
    }
    em_branch seen = em_if(e, maybe);
    emit_tile(e, &w, k_base, v_base, n);
    em_endif(e, &seen);
    em_end(e, &tile);

    em_branch whole = em_if(e, em_param(e, 9));
    l = em_for(e, w.first, w.end, one);
    em_val head = em_add(e, head0, em_div(e, l.i, w.tq));
    att_emit_result(e, p, w.state, l.i, w.batch, head, em_rem(e, l.i, w.tq));
    em_end(e, &l);
    em_endif(e, &whole);
    em_ret(e, NULL);
    e->buf = saved.buf, e->dim = saved.dim, e->scratch = saved.scratch;
    return fn;
}
