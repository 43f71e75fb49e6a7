/* dscore.c: from scores and the gradients of weights to weights and the gradients of
 * scores, through the derivative of the score region; what flows to captured tensors on the way. */
#include "codegen/attention/back.h"

#include <math.h>

/* A vector of queries and the keys of a tile that it sees. */
typedef struct column {
    em_val s, dp, lse, delta; /* pointers; values */
    em_val lo, hi, k0, tk, batch, head;
    em_val keep; /* what dropout keeps; NULL: everything */
} column;

/* --- captured tensors ------------------------------------------------------------------------- */

static const sn_attention_table *table_of(const att_back *b, int captured) {
    for (int i = 0; i < b->g->n_table; i++)
        if (b->g->table[i].captured == captured) return &b->g->table[i];
    return NULL;
}

/* The elements of a table that belong to one batch and head, but for its own axes. */
static em_val part_base(em *e, const sn_attention_table *t, em_val batch, em_val head) {
    em_val at = att_size(e, t->parts.offset), index[2] = {batch, head};
    for (int i = 0; i < 2; i++)
        if (t->axis[i] < 0)
            at = em_add(e, at, em_mul(e, index[i], att_size(e, t->parts.stride[i])));
    return at;
}

em_val att_emit_zero_tables(em *e, const att_back *b) {
    if (!b->g->n_table) return NULL;
    const att_plan *p = &b->p;
    const em_type params[] = {e->ptr, e->ptr, e->i64, e->i64};
    em_val fn = att_function(e, p, "zero_tables", params, 4);
    em saved = *e;
    e->buf = em_param(e, 0), e->dim = em_param(e, 1);
    for (int i = 0; i < b->g->n_table; i++) {
        const sn_attention_table *t = &b->g->table[i];
        em_val at = part_base(e, t, em_param(e, 2), em_param(e, 3));
        em_loop l[SN_MAX_RANK];
        int n = 0;
        for (int a = 0; a < t->parts.rank - 2; a++) {
            em_val index, stride = att_size(e, t->parts.stride[2 + a]);
            if (a == t->axis[0] || a == t->axis[1]) {
                index = em_param(e, a == t->axis[0] ? 2 : 3);
            } else {
                l[n] = em_for(e, em_i64(e, 0), att_size(e, t->parts.shape[2 + a]), em_i64(e, 1));
                index = l[n++].i;
            }
            at = em_add(e, at, em_mul(e, index, stride));
        }
        em_store(e, p->t, em_at(e, em_buf(e, t->parts.buf), p->t, at), em_f(e, 0));
        while (n > 0) em_end(e, &l[--n]);
    }
    em_ret(e, NULL);
    e->buf = saved.buf, e->dim = saved.dim;
    return fn;
}

static void add_element(em *e, const att_plan *p, em_val base, em_val at, em_val x) {
    em_val to = em_at(e, base, p->t, at);
    em_store(e, p->t, to, em_add(e, em_load(e, p->t, to, 1), x));
}

/* One read of a captured tensor: where its indices move with the query, each lane has an element of
 * its own, but often all have the same one. */
typedef struct contribution {
    em_val base, at; /* pointer; the part of the offset that all lanes share */
    em_val lanes;    /* the rest, NULL: 0 */
    em_val x;
} contribution;

static contribution find_element(em *e, const att_back *b, const att_regions *g, int i,
                                 const column *k) {
    const struct sn_score_read *r = &b->g->score->read[i];
    const sn_attention_table *t = table_of(b, r->captured);
    const sn_region_code *code = &g->score.code;
    contribution c = {.base = em_buf(e, t->parts.buf), .at = part_base(e, t, k->batch, k->head)};
    for (int j = 0; j < r->n_index; j++) {
        em_val index = em_idx(e, sn_region_value(code, r->value + 1 + j));
        index = att_clamp_index(e, index, t->parts.shape[2 + j]);
        em_val step = em_mul(e, index, att_size(e, t->parts.stride[2 + j]));
        if (em_lanes_of(step) > 1)
            c.lanes = c.lanes ? em_add(e, c.lanes, step) : step;
        else
            c.at = em_add(e, c.at, step);
    }
    return c;
}

/* Lanes in order, unless all add to one element. spill: place for a vector of numbers and one of
 * offsets. */
static void add_lanes(em *e, const att_plan *p, const contribution *c, const em_val spill[2]) {
    em_val first = em_extract(e, c->lanes, 0), lanes = em_i64(e, p->lanes);
    em_val apart = att_any_lane(e, em_cmp(e, EM_NE, c->lanes, em_splat(e, first, p->lanes)));
    em_branch br = em_if(e, apart);
    em_store(e, p->t, spill[0], c->x);
    em_store(e, SN_I64, spill[1], c->lanes);
    em_loop l = em_for(e, em_i64(e, 0), lanes, em_i64(e, 1));
    em_val at = em_load(e, SN_I64, em_at(e, spill[1], SN_I64, l.i), 1);
    em_val x = em_load(e, p->t, em_at(e, spill[0], p->t, l.i), 1);
    add_element(e, p, c->base, em_add(e, c->at, at), x);
    em_end(e, &l);
    em_else(e, &br);
    add_element(e, p, c->base, em_add(e, c->at, first), em_reduce(e, EM_SUM, c->x));
    em_endif(e, &br);
}

/* Does the read's element depend on the key or the query at all? */
static bool stays(const att_back *b, const att_regions *g, int i) {
    const struct sn_score_read *r = &b->g->score->read[i];
    uint32_t deps = 0;
    for (int j = 0; j < r->n_index; j++) deps |= sn_region_deps(&g->score.code, r->value + 1 + j);
    return !(deps & (ATT_DEP_Q | ATT_DEP_K | ATT_DEP_SCORE | ATT_DEP_GRAD));
}

/* --- one vector of queries -------------------------------------------------------------------- */

static em_val key_at(em *e, const att_plan *p, em_val base, em_val k) {
    return em_at(e, base, p->t, em_mul(e, k, em_i64(e, p->qb)));
}

/* 2^x. Weights that are far below what a gradient in the compute type can show are 0: their
 * products with small gradients would be subnormal, and each of those costs hundreds of cycles. */
static em_val weight_of(em *e, const att_plan *p, em_val x) {
    return att_exp2_above(e, x, p->t == SN_F32 ? -100 : -960);
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
            em_val w = weight_of(e, p, att_exponent(e, p, att_load(e, p, s), c->lse));
            att_store(e, p, em_mul(e, w, pass_dropout(e, p, c, k, w, s, dp)), dp);
        }
        em_end(e, &l);
    }
}

/* What flows to captured tensors from one key. sum: of reads whose element stays, in the end. */
static void emit_contributions(em *e, const att_back *b, const att_regions *g, const column *c,
                               em_val live, const em_var *sum, const em_val spill[2]) {
    for (int i = 0; i < b->g->score->n_read; i++) {
        contribution r = find_element(e, b, g, i, c);
        em_val x = sn_region_value(&g->score.code, b->g->score->read[i].value);
        if (em_lanes_of(x) == 1) x = em_splat(e, x, b->p.lanes);
        r.x = em_select(e, live, x, em_vf(e, 0));
        if (stays(b, g, i))
            em_set(e, sum[i], em_add(e, em_get(e, sum[i]), r.x));
        else if (r.lanes)
            add_lanes(e, &b->p, &r, spill);
        else
            add_element(e, &b->p, r.base, r.at, em_reduce(e, EM_SUM, r.x));
    }
}

/* Keys beyond the last one repeat it; they give nothing to captured tensors. */
static void emit_regions(em *e, const att_back *b, const column *c, att_regions *g, em_val tables) {
    const att_plan *p = &b->p;
    const sn_score_grad *score = b->g->score;
    bool reads = b->g->n_table > 0;
    em_var sum[SN_MAX_READS];
    em_val last = em_sub(e, c->tk, em_i64(e, 1)), spill[2] = {NULL};
    for (int i = 0; reads && i < score->n_read; i++) sum[i] = em_let(e, em_vf(e, 0));
    if (reads) spill[0] = em_stack(e, p->t, p->lanes), spill[1] = em_stack(e, SN_I64, p->lanes);
    em_loop l = em_for(e, c->lo, c->hi, em_i64(e, 4));
    for (int u = 0; u < 4; u++) {
        em_val k = em_add(e, l.i, em_i64(e, u)), s = key_at(e, p, c->s, k);
        em_val dp = key_at(e, p, c->dp, k), k_abs = em_imin(e, em_add(e, c->k0, k), last);
        g->sheets.key = k;
        em_val x = att_regions_apply(g, e, p, att_load(e, p, s), k_abs);
        em_val w = weight_of(e, p, att_exponent(e, p, x, c->lse)), zero = em_vf(e, 0);
        /* a hidden key of a row that is NaN has no part in that */
        w = em_select(e, em_cmp(e, EM_EQ, x, em_vf(e, -INFINITY)), zero, w);
        em_val none = em_cmp(e, EM_EQ, w, zero);
        em_val ds = em_mul(e, w, pass_dropout(e, p, c, k, w, s, dp));
        ds = em_select(e, none, zero, ds); /* a hidden key gives nothing, whatever its value is */
        if (score) {
            att_regions_derive(g, ds);
            ds = em_select(e, none, zero, sn_region_value(&g->score.code, 1));
        }
        att_store(e, p, ds, dp);
        if (!reads) continue;
        em_branch give = em_if(e, em_and(e, tables, em_cmp(e, EM_LT, k, c->hi)));
        emit_contributions(e, b, g, c, em_not(e, none), sum, spill);
        em_endif(e, &give);
    }
    em_end(e, &l);
    if (!reads) return;
    em_branch give = em_if(e, tables);
    for (int i = 0; i < score->n_read; i++) {
        if (!stays(b, g, i)) continue;
        contribution r = find_element(e, b, g, i, c);
        add_element(e, p, r.base, r.at, em_reduce(e, EM_SUM, em_get(e, sum[i])));
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
    column c = {.s = em_at(e, att_scratch(e, p->s_at), p->t, at),
                .dp = em_at(e, att_scratch(e, b->dp_at), p->t, at),
                .lse = att_load(e, p, em_at(e, att_scratch(e, b->lse_at), p->t, at)),
                .delta = att_load(e, p, em_at(e, att_scratch(e, b->delta_at), p->t, at)),
                .lo = em_param(e, 4),
                .hi = em_param(e, 5),
                .k0 = em_param(e, 6),
                .tk = att_size(e, p->a->tk),
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
