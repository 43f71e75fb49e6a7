/* dscore.c: from scores and the gradients of weights to weights and the gradients of
 * scores, through the derivative of the score region; what flows to captured tensors on the way. */
#include "codegen/attention/back.h"

#include <math.h>

/* A vector of queries and the keys of a tile that it sees. */
typedef struct column {
    em_val s, dp;               /* pointers */
    em_val top, log_sum, delta; /* values of the queries */
    em_val lo, hi, k0, tk, q0, batch, head;
    em_val keep; /* what dropout keeps; NULL: everything */
} column;

/* --- one vector of queries -------------------------------------------------------------------- */

static em_val key_at(em *e, const att_plan *p, em_val base, em_val k) {
    return em_gep(e, base, p->t, em_mul(e, k, em_i64(e, p->qb)));
}

/* The forward kernel for few queries adds up products in another order. Where a score is so large
 * that its rounding then differs, it may lie far above the row's maximum. */
static em_val weight_of(em *e, const att_plan *p, const column *c, em_val score) {
    bool few = p->a->tq.slot >= 0 || p->a->tq.value <= ATT_FEW;
    return att_exp2_less(e, em_sub(e, score, c->top), c->log_sum, few);
}

/* Stores what dropout leaves of weight w; returns what flows into w, less the row's mean. */
static em_val pass_dropout(em *e, const att_plan *p, const column *c, em_val k, em_val w, em_val s,
                           em_val dp) {
    em_val flow = att_load(e, p, dp);
    if (c->keep) {
        em_val bit = att_keep_bit(e, c->keep, k), by = em_vf(e, att_keep_factor(p));
        em_val factor = em_select(e, bit, by, em_vf(e, 0));
        w = em_mul(e, w, factor);
        flow = em_select(e, bit, em_mul(e, flow, by), em_vf(e, 0));
    }
    att_store(e, p, w, s);
    return em_sub(e, flow, c->delta);
}

/* No regions: four keys at a time, then the rest. */
static void emit_plain(em *e, const att_plan *p, const column *c) {
    em_val whole = em_and(e, em_sub(e, c->hi, c->lo), em_i64(e, -4));
    em_val middle = em_add(e, c->lo, whole), begin[] = {c->lo, middle}, end[] = {middle, c->hi};
    for (int part = 0; part < 2; part++) {
        int unroll = part ? 1 : 4;
        em_loop l = em_for(e, begin[part], end[part], em_i64(e, unroll));
        for (int u = 0; u < unroll; u++) {
            em_val k = em_add(e, l.i, em_i64(e, u)), s = key_at(e, p, c->s, k);
            em_val dp = key_at(e, p, c->dp, k);
            em_val w = weight_of(e, p, c, att_load(e, p, s));
            att_store(e, p, em_mul(e, w, pass_dropout(e, p, c, k, w, s, dp)), dp);
        }
        em_end(e, &l);
    }
}

static em_val read_value(em *e, const att_back *b, const att_regions *g, int i) {
    return att_lanes(e, &b->p, sn_region_value(&g->score.code, b->g->score->read[i].value));
}

/* Sums along the tile's diagonals, of reads that follow from the difference of query and key. */
typedef struct slide {
    em_val end;               /* after whole fours of keys */
    em_val *at, *first, *sum; /* [n_diagonal] */
} slide;

static slide place_slide(em *e, const att_back *b, const column *c) {
    em_val n = em_and(e, em_add(e, em_sub(e, c->hi, c->lo), em_i64(e, 3)), em_i64(e, -4));
    slide s = {.end = em_add(e, c->lo, n)};
    if (!b->n_diagonal) return s;
    sn_module *m = b->g->score->region->out[0]->m;
    s.at = sn_arena_alloc(m, 3 * sizeof *s.at * (size_t)b->n_diagonal);
    s.first = s.at + b->n_diagonal;
    s.sum = s.first + b->n_diagonal;
    for (int r = 0; r < b->n_diagonal; r++)
        s.at[r] = att_scratch(e, b->slide_at + r * att_slide_bytes(&b->p));
    return s;
}

static void slide_key(em *e, const att_back *b, const att_regions *g, const column *c, slide *s,
                      em_val k, em_val live) {
    const att_plan *p = &b->p;
    em_val back = em_sub(e, em_sub(e, s->end, em_i64(e, 1)), k), zero = em_vf(e, 0);
    for (int i = 0; i < b->g->score->n_read; i++) {
        int r = b->diagonal_row[i];
        if (r < 0) continue;
        em_val x = em_select(e, live, read_value(e, b, g, i), zero);
        x = em_select(e, em_cmp(e, EM_LT, k, c->hi), x, zero);
        s->sum[r] = att_along_diagonal(e, b, s->sum[r], x, em_gep(e, s->at[r], p->t, back));
    }
}

/* What was added up goes to the head's sums. */
static void end_slide(em *e, const att_back *b, const column *c, const slide *s) {
    const att_plan *p = &b->p;
    em_val one = em_i64(e, 1), key = em_sub(e, em_add(e, c->k0, c->hi), one);
    em_val to = em_add(e, em_sub(e, c->q0, key), em_sub(e, c->tk, one));
    em_val n = em_add(e, em_sub(e, c->hi, c->lo), em_i64(e, p->lanes - 1));
    for (int r = 0; r < b->n_diagonal; r++) {
        em_val top = em_add(e, em_sub(e, em_sub(e, s->end, one), c->lo), em_i64(e, p->lanes));
        em_store(e, p->t, em_gep(e, s->at[r], p->t, top), em_vf(e, 0));
        att_add_diagonals(e, b, r, em_gep(e, s->at[r], p->t, em_sub(e, s->end, c->hi)), to, n);
    }
}

/* What flows to captured tensors from one key. sum: of reads whose element stays, in the end. */
static void emit_contributions(em *e, const att_back *b, const att_regions *g, const column *c,
                               em_val live, const em_var *sum, const em_val spill[2]) {
    for (int i = 0; i < b->g->score->n_read; i++) {
        if (b->diagonal_row[i] >= 0) continue;
        att_contribution r = att_find_element(e, b, &g->score.code, i, c->batch, c->head);
        r.x = em_select(e, live, read_value(e, b, g, i), em_vf(e, 0));
        if (att_read_stays(b, g, i))
            em_set(e, sum[i], em_add(e, em_get(e, sum[i]), r.x));
        else if (r.lanes)
            att_add_lanes(e, &b->p, &r, spill);
        else
            att_add_element(e, &b->p, r.base, r.at, em_reduce(e, EM_SUM, r.x));
    }
}

/* Keys beyond the last one repeat it; they give nothing to captured tensors. */
static void emit_regions(em *e, const att_back *b, const column *c, att_regions *g, em_val tables) {
    const att_plan *p = &b->p;
    const sn_score_grad *score = b->g->score;
    bool reads = b->g->n_table > 0;
    em_var *sum = NULL;
    em_val last = em_sub(e, c->tk, em_i64(e, 1)), spill[2] = {NULL};
    if (reads)
        sum = sn_arena_alloc(score->region->out[0]->m, sizeof *sum * (size_t)(score->n_read + 1));
    for (int i = 0; reads && i < score->n_read; i++) sum[i] = em_let(e, em_vf(e, 0));
    if (reads) spill[0] = em_stack(e, p->t, p->lanes), spill[1] = em_stack(e, SN_I64, p->lanes);
    slide along = place_slide(e, b, c);
    em_loop l = em_for(e, c->lo, c->hi, em_i64(e, 4));
    for (int r = 0; r < b->n_diagonal; r++)
        along.first[r] = along.sum[r] = em_carry(e, &l, em_vf(e, 0));
    for (int u = 0; u < 4; u++) {
        em_val k = em_add(e, l.i, em_i64(e, u)), s = key_at(e, p, c->s, k);
        em_val dp = key_at(e, p, c->dp, k), k_abs = em_imin(e, em_add(e, c->k0, k), last);
        g->sheets.key = k;
        em_val x = att_regions_apply(g, e, p, att_load(e, p, s), k_abs);
        em_val w = weight_of(e, p, c, x), zero = em_vf(e, 0);
        /* a hidden key of a row that is NaN has no part in that */
        w = em_select(e, em_cmp(e, EM_EQ, x, em_vf(e, -INFINITY)), zero, w);
        em_val none = em_cmp(e, EM_EQ, w, zero);
        em_val ds = em_mul(e, w, pass_dropout(e, p, c, k, w, s, dp));
        ds = em_select(e, none, zero, ds); /* a hidden key gives nothing, whatever its value is */
        if (score) {
            att_regions_derive(g, e, ds);
            ds = em_select(e, none, zero, sn_region_value(&g->score.code, 1));
        }
        att_store(e, p, ds, dp);
        if (b->n_diagonal) slide_key(e, b, g, c, &along, k, em_not(e, none));
        if (!reads || b->n_diagonal == score->n_read) continue;
        em_branch give = em_if(e, em_and(e, tables, em_cmp(e, EM_LT, k, c->hi)));
        emit_contributions(e, b, g, c, em_not(e, none), sum, spill);
        em_endif(e, &give);
    }
    for (int r = 0; r < b->n_diagonal; r++) em_next(e, &l, along.first[r], along.sum[r]);
    em_end(e, &l);
    if (!reads) return;
    em_branch give = em_if(e, tables);
    end_slide(e, b, c, &along);
    for (int i = 0; i < score->n_read; i++) {
        if (b->diagonal_row[i] >= 0 || !att_read_stays(b, g, i)) continue;
        att_contribution r = att_find_element(e, b, &g->score.code, i, c->batch, c->head);
        att_add_element(e, p, r.base, r.at, em_reduce(e, EM_SUM, em_get(e, sum[i])));
    }
    em_endif(e, &give);
}

em_val att_emit_dscore(em *e, const att_back *b, bool masked) {
    const att_plan *p = &b->p;
    const em_type params[] = {e->ptr, e->ptr, e->ptr, e->i64, e->i64, e->i64,
                              e->i64, e->i64, e->i64, e->i64, e->i1};
    em_val fn = att_function(e, p, masked ? "dscore_mask" : "dscore", params, 11);
    em saved = *e;
    e->buf = em_param(e, 0), e->dim = em_param(e, 1), e->scratch = em_param(e, 2);
    em_val v = em_param(e, 3), q0 = em_param(e, 7);
    em_val at = em_mul(e, v, em_i64(e, p->lanes));
    column c = {.s = em_gep(e, att_scratch(e, p->s_at), p->t, at),
                .dp = em_gep(e, att_scratch(e, b->dp_at), p->t, at),
                .top = att_load(e, p, em_gep(e, att_scratch(e, b->top_at), p->t, at)),
                .log_sum = att_load(e, p, em_gep(e, att_scratch(e, b->log_sum_at), p->t, at)),
                .delta = att_load(e, p, em_gep(e, att_scratch(e, b->delta_at), p->t, at)),
                .lo = em_param(e, 4),
                .hi = em_param(e, 5),
                .k0 = em_param(e, 6),
                .tk = att_size(e, p->a->tk),
                .q0 = em_add(e, q0, at),
                .batch = em_param(e, 8),
                .head = em_param(e, 9)};
    if (att_drops(p)) {
        em_val args[] = {e->buf, e->dim, e->scratch, v, c.k0, q0, c.batch, c.head};
        em_call(e, p->keep, args, 8);
        c.keep = att_keep_vector(e, p, v);
    }
    if (masked || p->a->score) {
        em_val q =
            em_add(e, em_int_cast(e, em_add(e, q0, at), e->i32), em_iota(e, e->i32, p->lanes));
        em_val q_last = em_sub(e, att_size(e, p->a->tq), em_i64(e, 1));
        q = em_imin(e, q, em_int_cast(e, q_last, e->i32));
        /* with and without tables the optimiser makes two loops: both must round alike */
        LLVMFastMathFlags fast = em_fast(e, b->g->n_table ? 0 : e->fmf);
        att_regions regions = {.diagonal = att_diagonal_of(e, p, em_add(e, q0, at))};
        att_regions_begin(&regions, e, p, masked, c.batch, c.head, q);
        att_regions_sheets(&regions, e, p, (em_val[]){c.batch, c.head}, em_add(e, q0, at), c.k0,
                           (em_val[]){c.lo, c.hi});
        emit_regions(e, b, &c, &regions, em_param(e, 10));
        em_fast(e, fast);
    } else {
        emit_plain(e, p, &c);
    }
    em_ret(e, NULL);
    e->buf = saved.buf, e->dim = saved.dim, e->scratch = saved.scratch;
    return fn;
}
