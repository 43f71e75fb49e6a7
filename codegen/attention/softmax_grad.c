/* softmax_grad.c: the softmax of a tile in the backward pass. With s = mask(score(qk)):
 *
 *   p = e^(s - m - log l)
 *   ds = p (dp - D), with dropout of p and dp
 *   dqk = ds score'(qk); the other derivatives of the score go to captured tensors
 *
 * Without softmax, with the row's factor r and D already times the divisor's derivative:
 *
 *   p = r s, 0 where a key is masked;  ds = r (dp - D)
 *
 * s becomes p in place, dp becomes dqk (called ds where there is no score region). As words, both are
 * pairs of queries, side by side in half of the columns, for the sums over queries, and ds once more
 * pairs of keys, for dq. */
#include "codegen/attention/backward.h"

#include <math.h>

/* A vector of queries and the keys of a tile that it sees. */
typedef struct column {
    em_val s, dp;            /* pointers to this vector's part */
    em_val p, ds, ds_keys;   /* the same where the results go; ds_keys NULL: no words */
    em_val m, log2_l, delta; /* of the queries; delta: D; m: without softmax r */
    em_val lo, hi, k0, tk, q0, batch, head;
    em_val keep; /* words of the dropout mask; NULL: no dropout */
} column;

static em_val key_at(em *e, const att_plan *p, em_val base, em_val k) {
    return em_gep(e, base, p->t, em_mul(e, k, p->qb));
}

/* p = e^(s - m - log l). Decoding sums qk in another order: a score so large that its rounding
 * differs may exceed m, so p is bounded if decoding may have computed m. */
static em_val weight_of(em *e, const att_plan *p, const column *c, em_val score) {
    if (p->a->weights) return em_mul(e, score, c->m);
    bool decoded = p->a->tq.slot >= 0 || att_decodes_only(p->a);
    return att_exp2_minus(e, em_sub(e, score, c->m), c->log2_l, decoded);
}

/* x of key k as a factor of sums over queries. */
static void store_row(em *e, const att_plan *p, em_val base, em_val k, em_val x) {
    if (p->word > 1) x = tile_bf16_words(e, x);
    em_store_raw(e, x, key_at(e, p, base, k), (unsigned)(em_lanes_of(x) * p->esize));
}

/* ds of the n keys from k on as factors of dq, 0 for keys behind the last one. */
static void store_keys(em *e, const att_plan *p, const column *c, em_val k, int n,
                       const em_val *ds) {
    em_val x[4], row = em_lshr(e, k, 1), zero = em_vf(e, 0);
    if (!c->ds_keys) return;
    for (int u = 0; u < n; u++)
        x[u] = em_select(e, em_cmp(e, EM_LT, em_add(e, k, u), c->hi), ds[u], zero);
    for (int u = 0; u < n; u += 2)
        att_store(e, p, att_join_factors(e, p, x + u),
                  key_at(e, p, c->ds_keys, em_add(e, row, u / 2)));
}

/* Stores w after dropout to p; returns dp - D, with the dropout of w. */
static em_val pass_dropout(em *e, const att_plan *p, const column *c, em_val k, em_val w,
                           em_val dp) {
    em_val grad = att_load(e, p, dp);
    if (c->keep) {
        em_val bit = att_keep_bit(e, c->keep, k), by = em_vf(e, att_keep_factor(p));
        em_val factor = em_select(e, bit, by, em_vf(e, 0));
        w = em_mul(e, w, factor);
        grad = em_select(e, bit, em_mul(e, grad, by), em_vf(e, 0));
    }
    store_row(e, p, c->p, k, w);
    return em_sub(e, grad, c->delta);
}

/* Without regions: four keys at a time, then the rest. */
static void emit_plain(em *e, const att_plan *p, const column *c) {
    em_val whole = em_and(e, em_sub(e, c->hi, c->lo), -4);
    em_val middle = em_add(e, c->lo, whole), begin[] = {c->lo, middle}, end[] = {middle, c->hi};
    for (int part = 0; part < 2; part++) {
        int unroll = part ? p->word : 4;
        em_loop l = em_for(e, begin[part], end[part], unroll);
        em_val ds[4];
        for (int u = 0; u < unroll; u++) {
            em_val k = em_add(e, l.i, u), dp = key_at(e, p, c->dp, k);
            em_val w = weight_of(e, p, c, att_load(e, p, key_at(e, p, c->s, k)));
            em_val by = p->a->weights ? c->m : w;
            ds[u] = em_mul(e, by, pass_dropout(e, p, c, k, w, dp));
            store_row(e, p, c->ds, k, ds[u]);
        }
        store_keys(e, p, c, l.i, unroll, ds);
        em_end(e, &l);
    }
}

static em_val read_value(em *e, const att_backward *b, const att_regions *g, int i) {
    return att_lanes(e, &b->p, sn_region_value(&g->score.code, b->g->score->read[i].value));
}

/* Sums along the diagonals of the tile, for reads that depend on query - key only. */
typedef struct diagonals {
    em_val end;       /* keys of the loop, a multiple of four */
    em_val *at, *sum; /* [n_relative] */
} diagonals;

static diagonals begin_diagonals(em *e, const att_backward *b, const column *c) {
    em_val n = em_and(e, em_add(e, em_sub(e, c->hi, c->lo), 3), -4);
    diagonals s = {.end = em_add(e, c->lo, n)};
    if (!b->n_relative) return s;
    sn_module *m = b->g->score->region->out[0]->m;
    s.at = sn_arena_alloc(m, 2 * sizeof *s.at * (size_t)b->n_relative);
    s.sum = s.at + b->n_relative;
    for (int r = 0; r < b->n_relative; r++)
        s.at[r] = att_scratch(e, b->diagonal_offset + r * att_diagonal_bytes(&b->p));
    return s;
}

static void add_to_diagonals(em *e, const att_backward *b, const att_regions *g, const column *c,
                             diagonals *s, em_val k, em_val live) {
    const att_plan *p = &b->p;
    em_val i_end = em_sub(e, em_sub(e, s->end, 1), k), zero = em_vf(e, 0);
    for (int i = 0; i < b->g->score->n_read; i++) {
        int r = b->relative_row[i];
        if (r < 0) continue;
        em_val x = em_select(e, live, read_value(e, b, g, i), zero);
        x = em_select(e, em_cmp(e, EM_LT, k, c->hi), x, zero);
        s->sum[r] = att_add_to_diagonal(e, b, s->sum[r], x, em_gep(e, s->at[r], p->t, i_end));
    }
}

/* Adds the diagonals' sums to those of the head. */
static void flush_diagonals(em *e, const att_backward *b, const column *c, const diagonals *s) {
    const att_plan *p = &b->p;
    em_val key = em_sub(e, em_add(e, c->k0, c->hi), 1);
    em_val to = em_add(e, em_sub(e, c->q0, key), em_sub(e, c->tk, 1));
    em_val n = em_add(e, em_sub(e, c->hi, c->lo), p->lanes - 1);
    for (int r = 0; r < b->n_relative; r++) {
        em_val last = em_add(e, em_sub(e, em_sub(e, s->end, 1), c->lo), p->lanes);
        em_store(e, p->t, em_gep(e, s->at[r], p->t, last), em_vf(e, 0));
        att_add_relative_sums(e, b, r, em_gep(e, s->at[r], p->t, em_sub(e, s->end, c->hi)), to, n);
    }
}

/* Adds one key's cotangents of reads to the gradients of captured tensors; those of reads whose
 * element does not move go to sum[]. */
static void emit_contributions(em *e, const att_backward *b, const att_regions *g, const column *c,
                               em_val live, const em_var *sum, const em_val spill[2]) {
    for (int i = 0; i < b->g->score->n_read; i++) {
        if (b->relative_row[i] >= 0) continue;
        att_contribution r = att_find_element(e, b, &g->score.code, i, c->batch, c->head);
        r.x = em_select(e, live, read_value(e, b, g, i), em_vf(e, 0));
        if (att_read_is_uniform(b, g, i))
            em_set(e, sum[i], em_add(e, em_get(e, sum[i]), r.x));
        else if (r.lanes)
            att_add_lanes(e, &b->p, &r, spill);
        else
            att_add_element(e, &b->p, r.base, r.at, em_reduce(e, EM_SUM, r.x));
    }
}

/* With regions: four keys at a time. Keys beyond the last one repeat it; they do not contribute to
 * captured tensors. */
static void emit_regions(em *e, const att_backward *b, const column *c, att_regions *g,
                         em_val tables) {
    const att_plan *p = &b->p;
    const sn_score_grad *score = b->g->score;
    bool reads = b->g->n_table > 0;
    em_var *sum = NULL;
    em_val last = em_sub(e, c->tk, 1), spill[2] = {NULL};
    if (reads)
        sum = sn_arena_alloc(score->region->out[0]->m, sizeof *sum * (size_t)(score->n_read + 1));
    for (int i = 0; reads && i < score->n_read; i++) sum[i] = em_let(e, em_vf(e, 0));
    if (reads) spill[0] = em_stack(e, p->t, p->lanes), spill[1] = em_stack(e, SN_I64, p->lanes);
    diagonals diagonal = begin_diagonals(e, b, c);
    em_loop l = em_for(e, c->lo, c->hi, 4);
    for (int r = 0; r < b->n_relative; r++) diagonal.sum[r] = em_vf(e, 0);
    em_carries(e, &l, diagonal.sum, b->n_relative);
    em_val of_key[4];
    for (int u = 0; u < 4; u++) {
        em_val k = em_add(e, l.i, u), dp = key_at(e, p, c->dp, k);
        em_val k_abs = em_imin(e, em_add(e, c->k0, k), last);
        g->bias_tiles.key = k;
        em_val x = att_regions_apply(g, e, p, att_load(e, p, key_at(e, p, c->s, k)), k_abs);
        em_val w = weight_of(e, p, c, x), zero = em_vf(e, 0);
        /* masked keys have weight 0 also in rows that are NaN */
        em_val hidden = em_cmp(e, EM_EQ, x, em_vf(e, -INFINITY));
        w = em_select(e, hidden, zero, w);
        em_val none = p->a->weights ? hidden : em_cmp(e, EM_EQ, w, zero);
        em_val by = p->a->weights ? c->m : w;
        em_val ds = em_mul(e, by, pass_dropout(e, p, c, k, w, dp));
        ds = em_select(e, none, zero, ds); /* masked keys contribute nothing, even if dp is NaN */
        if (score) {
            att_regions_derive(g, e, ds);
            ds = em_select(e, none, zero, sn_region_value(&g->score.code, 1));
        }
        store_row(e, p, c->ds, k, ds);
        of_key[u] = ds;
        if (b->n_relative) add_to_diagonals(e, b, g, c, &diagonal, k, em_not(e, none));
        if (!reads || b->n_relative == score->n_read) continue;
        em_branch adds = em_if(e, em_and(e, tables, em_cmp(e, EM_LT, k, c->hi)));
        emit_contributions(e, b, g, c, em_not(e, none), sum, spill);
        em_endif(e, &adds);
    }
    store_keys(e, p, c, l.i, 4, of_key);
    em_end(e, &l);
    if (!reads) return;
    em_branch adds = em_if(e, tables);
    flush_diagonals(e, b, c, &diagonal);
    for (int i = 0; i < score->n_read; i++) {
        if (b->relative_row[i] >= 0 || !att_read_is_uniform(b, g, i)) continue;
        att_contribution r = att_find_element(e, b, &g->score.code, i, c->batch, c->head);
        att_add_element(e, p, r.base, r.at, em_reduce(e, EM_SUM, em_get(e, sum[i])));
    }
    em_endif(e, &adds);
}

em_val att_emit_softmax_grad(em *e, const att_backward *b, bool masked) {
    const att_plan *p = &b->p;
    static const char *const name[2][2] = {{"softmax_grad", "softmax_grad_mask"},
                                           {"softmax_grad_gathered", "softmax_grad_gathered_mask"}};
    att_softmax_grad_args q = att_softmax_grad_begin(e, p, name[p->gathered][masked]);
    att_use_context(e, q.buf, q.dim, q.scratch);
    em_val at = em_mul(e, q.v, p->lanes);
    column c = {.s = em_gep(e, att_scratch(e, p->s_offset), p->t, at),
                .dp = em_gep(e, att_scratch(e, b->dp_offset), p->t, at),
                .m = att_load(e, p, em_gep(e, att_scratch(e, b->m_offset), p->t, at)),
                .log2_l = att_load(e, p, em_gep(e, att_scratch(e, b->log2_l_offset), p->t, at)),
                .delta = att_load(e, p, em_gep(e, att_scratch(e, b->delta_offset), p->t, at)),
                .lo = q.lo,
                .hi = q.hi,
                .k0 = q.k0,
                .tk = em_size_value(e, p->a->tk),
                .q0 = em_add(e, q.q0, at),
                .batch = q.batch,
                .head = q.head};
    em_val result = em_mul(e, q.v, p->lanes / p->word);
    c.p = em_gep(e, att_scratch(e, p->s_offset), p->t, result);
    c.ds = em_gep(e, att_scratch(e, b->dp_offset), p->t, result);
    if (p->word > 1) c.ds_keys = em_gep(e, att_scratch(e, b->ds_offset), p->t, at);
    if (att_drops(p)) {
        att_keep_call(e, p->keep,
                      (att_keep_args){ATT_PASS_CONTEXT(e), .v = q.v, .k0 = q.k0, .q0 = q.q0,
                                      .batch = q.batch, .head = q.head});
        c.keep = att_keep_vector(e, p, q.v);
    }
    if (masked || p->a->score) {
        em_val row = att_lane_queries(e, p, em_add(e, q.q0, at), q.q0, q.v);
        /* the optimiser makes two loops, with and without tables: both must round alike */
        LLVMFastMathFlags fast = em_fast(e, b->g->n_table ? 0 : e->fmf);
        att_regions regions = {.relative = att_relative_index(e, p, em_add(e, q.q0, at))};
        att_regions_begin(&regions, e, p, masked, c.batch, c.head, row);
        att_load_bias_tiles(&regions, e, p, (em_val[]){c.batch, c.head}, em_add(e, q.q0, at), c.k0,
                            (em_val[]){c.lo, c.hi});
        emit_regions(e, b, &c, &regions, q.tables);
        em_fast(e, fast);
    } else {
        emit_plain(e, p, &c);
    }
    return att_end(e);
}
