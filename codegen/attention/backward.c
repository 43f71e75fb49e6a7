/* backward.c: what flows back through attention: its plan and its loops.
 *
 * A block of queries goes over the tiles of keys; what it adds to dk and dv lies in scratch for all
 * keys of a head, dq in scratch for the block. So five products a tile suffice where a thread has a
 * K/V head for itself. Heads that are left over are done twice, for dq split by queries and for dk,
 * dv by keys: by the same code in the same order, so that the bits are the same. */
#include "codegen/attention/back.h"
#include "codegen/emit/vmath.h"

#include <math.h>

enum { GIVE_Q = 1, GIVE_KV = 2 }; /* what a call of `block` computes; tables go with q */

/* --- plan ------------------------------------------------------------------------------------- */

static bool check_spec(const sn_attention_grad *g, sn_error *err) {
    const sn_attention_operand *o[] = {&g->dout, &g->dq, &g->dk, &g->dv};
    for (int i = 0; i < 4; i++)
        if (!sn_dtype_is_float(o[i]->dtype))
            return sn_fail(err, SN_ERR_INTERNAL, "attention gradient: operand %d is %s", i,
                           sn_dtype_name(o[i]->dtype));
    if (g->a.lse_buf < 0 || (g->a.score != NULL) != (g->score != NULL))
        return sn_fail(err, SN_ERR_INTERNAL,
                       "attention gradient: log-sum-exp or the score's derivative is missing");
    return true;
}

static bool make_plan(att_back *b, const sn_attention_grad *g, const char *name, const sn_target *t,
                      sn_dtype compute, sn_error *err) {
    if (!check_spec(g, err) || !att_plan_make(&b->p, &g->a, name, t, compute, err)) return false;
    att_plan *p = &b->p;
    int64_t column = p->qb * p->esize;
    b->g = g;
    b->d = att_padded(p, g->a.d);
    b->dv = att_padded(p, g->a.dv);
    p->check_v = false; /* weights that are 0 are looked for one by one */
    p->derivative = g->score ? g->score->region : NULL;
    att_diagonals_find(p);
    att_find_diagonal_reads(b);
    b->dp_at = att_place(&p->tail_at, (ATT_KEYS + 16) * column);
    b->do_at = att_place(&p->tail_at, g->a.dv * column);
    b->dq_at = att_place(&p->tail_at, g->a.d * column);
    b->q_rows_at = att_place(&p->tail_at, (int64_t)p->qb * b->d * p->esize);
    b->do_rows_at = att_place(&p->tail_at, (int64_t)p->qb * b->dv * p->esize);
    b->top_at = att_place(&p->tail_at, column);
    b->log_sum_at = att_place(&p->tail_at, column);
    b->delta_at = att_place(&p->tail_at, column);
    b->slide_at = att_place(&p->tail_at, b->n_diagonal * att_slide_bytes(p));
    return true;
}

/* After the forward plan's scratch, copies of K and V included: dk, dv of a head. */
static em_val sums_at(em *e, const att_back *b, em_val tk, bool of_v, em_val k) {
    const att_plan *p = &b->p;
    em_val base = att_tail_rows(e, p, tk, false, em_i64(e, 0));
    em_val index = em_mul(e, k, em_i64(e, of_v ? b->dv : b->d));
    em_val copied = em_add(e, em_mul(e, tk, em_i64(e, p->a->d + p->a->dv)), em_i64(e, 63));
    if (p->pack) index = em_add(e, index, em_and(e, copied, em_i64(e, -64)));
    if (of_v) index = em_add(e, index, em_mul(e, tk, em_i64(e, b->d)));
    return em_gep(e, base, p->t, index);
}

em_val att_diagonal_sums(em *e, const att_back *b) {
    em_val tk = att_size(e, b->p.a->tk);
    return sums_at(e, b, tk, true, tk);
}

int64_t sn_attention_grad_scratch(const sn_attention_grad *g, const sn_target *t, sn_dtype compute,
                                  int64_t tq, int64_t tk) {
    att_back b;
    if (!make_plan(&b, g, "", t, compute, NULL)) return 0;
    int64_t rows = b.n_diagonal * att_diagonals_most(b.p.lanes, tq, tk) * b.p.esize;
    return att_scratch_bytes(&b.p, tq, tk, b.d + b.dv) + rows;
}

/* --- a block of queries ----------------------------------------------------------------------- */

typedef struct functions {
    em_val scores[ATT_NV + 1], dweights[ATT_NV + 1], sums[ATT_NV + 1];
    em_val outer_q, outer_do, rows_q, rows_do, load_q, load_do, load_out, store_q;
    em_val dscore, dscore_mask, copy, diagonals;
    em_val store_k, store_v, zero, zero_tables, give_diagonals;
} functions;

static void emit_functions(em *e, const att_back *b, functions *f) {
    const att_plan *p = &b->p;
    const sn_attention_grad *g = b->g;
    const sn_attention *a = &g->a;
    bool same = a->d == a->dv;
    for (int nv = 1; nv <= ATT_NV; nv++) {
        f->scores[nv] = att_emit_scores(e, p, "scores", nv, a->d, 0);
        f->dweights[nv] = same ? f->scores[nv] : att_emit_scores(e, p, "dweights", nv, a->dv, 0);
        f->sums[nv] = att_emit_sums(e, p, "sums", nv, a->d);
    }
    f->outer_q = att_emit_outer(e, p, "outer_q", b->d);
    f->outer_do = same ? f->outer_q : att_emit_outer(e, p, "outer_do", b->dv);
    f->rows_q = att_emit_copy_rows(e, p, "rows_q", a->q.dtype, a->d);
    f->rows_do = att_emit_copy_rows(e, p, "rows_do", g->dout.dtype, a->dv);
    f->load_q = att_emit_load(e, p, "load_q", a->q.dtype, a->d, a->scale);
    f->load_do = att_emit_load(e, p, "load_do", g->dout.dtype, a->dv, 1);
    f->load_out = att_emit_load(e, p, "load_out", a->out.dtype, a->dv, 1);
    f->store_q = att_emit_store(e, p, "store_q", g->dq.dtype, a->d, a->scale);
    f->dscore = att_emit_dscore(e, b, false);
    f->dscore_mask = a->mask ? att_emit_dscore(e, b, true) : NULL;
    f->diagonals = att_emit_diagonals(e, p);
    f->copy = p->pack ? att_emit_prepare(e, p, true) : NULL;
    f->store_k = att_emit_store_rows(e, p, "store_k", g->dk.dtype, a->d, a->scale);
    f->store_v = att_emit_store_rows(e, p, "store_v", g->dv.dtype, a->dv, 1);
    f->zero = att_emit_zero(e, p, "zero");
    f->zero_tables = att_emit_zero_tables(e, b);
    f->give_diagonals = att_emit_give_diagonals(e, b);
}

typedef struct block {
    const att_back *b;
    const functions *f;
    att_span span;
    em_val kv_head, k_base, v_base, give_q, give_kv;
} block;

/* Query r of operand o of the block's head. */
static em_val row_of(em *e, const block *w, const sn_attention_operand *o, em_val r) {
    em_val base = att_base(e, o, w->span.batch, w->span.head);
    return em_gep(e, base, o->dtype, em_mul(e, r, att_size(e, o->row)));
}

/* D = rowsum(d out * out) and both parts of the log-sum-exp, the log of the sum in powers of two.
 * The first one is +inf where there is no query or no visible key: then all weights come out
 * as 0. */
static void emit_row_numbers(em *e, const block *w, em_val v, em_val q, em_val rows) {
    const att_plan *p = &w->b->p;
    em_val x = att_column(e, p, att_scratch(e, w->b->do_at), v);
    em_val y = att_column(e, p, att_scratch(e, p->o_at), v);
    em_loop l = em_for(e, em_i64(e, 0), em_i64(e, p->a->dv), em_i64(e, 1));
    em_val sum = em_carry(e, &l, em_vf(e, 0)), at = em_mul(e, l.i, em_i64(e, p->qb));
    em_val a = att_load(e, p, em_gep(e, x, p->t, at)), b = att_load(e, p, em_gep(e, y, p->t, at));
    em_next(e, &l, sum, em_fma(e, a, b, sum));
    em_end(e, &l);
    att_store(e, p, em_final(e, &l, sum), att_column(e, p, att_scratch(e, w->b->delta_at), v));
    em_val part[2];
    for (int i = 0; i < 2; i++)
        part[i] = em_load_tail(e, p->t, att_lse_at(e, p, w->span.batch, w->span.head, q, i),
                               p->lanes, rows);
    em_val sees = em_cmp(e, EM_NE, part[1], em_vf(e, -INFINITY));
    em_val real = em_and(e, em_tail_mask(e, rows, p->lanes), sees);
    em_val top = em_select(e, real, part[0], em_vf(e, INFINITY));
    em_val log_sum = em_select(e, real, em_mul(e, part[1], em_vf(e, ATT_LOG2_E)), em_vf(e, 0));
    att_store(e, p, top, att_column(e, p, att_scratch(e, w->b->top_at), v));
    att_store(e, p, log_sum, att_column(e, p, att_scratch(e, w->b->log_sum_at), v));
}

/* Everything of the block's queries that the tiles need. */
static void emit_begin(em *e, const block *w) {
    const att_back *b = w->b;
    const att_plan *p = &b->p;
    const sn_attention *a = p->a;
    const sn_attention_operand *from[] = {&a->q, &b->g->dout, &a->out};
    const em_val load[] = {w->f->load_q, w->f->load_do, w->f->load_out};
    const int64_t to[] = {p->q_at, b->do_at, p->o_at};
    em_val zero = em_i64(e, 0), one = em_i64(e, 1), lanes = em_i64(e, p->lanes);
    em_loop l = em_for(e, zero, w->span.nv, one);
    em_val q = em_add(e, w->span.q0, em_mul(e, l.i, lanes));
    em_val rows = em_imin(e, em_sub(e, w->span.tq, q), lanes);
    for (int i = 0; i < 3; i++) {
        em_val args[] = {row_of(e, w, from[i], q), att_size(e, from[i]->row), rows,
                         att_column(e, p, att_scratch(e, to[i]), l.i)};
        em_call(e, load[i], args, 4);
    }
    emit_row_numbers(e, w, l.i, q, rows);
    em_end(e, &l);
    em_val all = em_mul(e, w->span.nv, lanes);
    em_branch kv = em_if(e, w->give_kv);
    em_val q_rows[] = {row_of(e, w, &a->q, w->span.q0), att_size(e, a->q.row), w->span.rows, all,
                       att_scratch(e, b->q_rows_at)};
    em_call(e, w->f->rows_q, q_rows, 5);
    em_val do_rows[] = {row_of(e, w, &b->g->dout, w->span.q0), att_size(e, b->g->dout.row),
                        w->span.rows, all, att_scratch(e, b->do_rows_at)};
    em_call(e, w->f->rows_do, do_rows, 5);
    em_endif(e, &kv);
    em_branch mine = em_if(e, w->give_q);
    em_val clear[] = {att_scratch(e, b->dq_at), em_i64(e, (int64_t)a->d * p->qb)};
    em_call(e, w->f->zero, clear, 2);
    em_endif(e, &mine);
}

static void emit_end(em *e, const block *w) {
    const att_plan *p = &w->b->p;
    const sn_attention_operand *to = &w->b->g->dq;
    em_val lanes = em_i64(e, p->lanes);
    em_loop l = em_for(e, em_i64(e, 0), w->span.nv, em_i64(e, 1));
    em_val q = em_add(e, w->span.q0, em_mul(e, l.i, lanes));
    att_store(e, p, em_vf(e, 1), att_scratch(e, p->l_at));
    em_val args[] = {att_column(e, p, att_scratch(e, w->b->dq_at), l.i),
                     att_scratch(e, p->l_at),
                     row_of(e, w, to, q),
                     att_size(e, to->row),
                     em_imin(e, em_sub(e, w->span.tq, q), lanes),
                     att_scratch(e, p->dummy_at)};
    em_call(e, w->f->store_q, args, 6);
    em_end(e, &l);
}

/* --- a tile ----------------------------------------------------------------------------------- */

typedef struct tile {
    em_val k0, n, k, k_stride, v, v_stride;
} tile;

static void locate_tile(em *e, const block *w, tile *t) {
    const att_plan *p = &w->b->p;
    const sn_attention *a = p->a;
    if (p->pack) {
        em_val upto = em_add(e, t->k0, em_i64(e, ATT_KEYS));
        em_branch br =
            em_if(e, em_cmp(e, EM_LT, em_load(e, SN_I64, att_scratch(e, p->key_at + 8), 1), upto));
        em_val args[] = {e->buf, e->dim, e->scratch, w->span.batch, w->kv_head, upto};
        em_call(e, w->f->copy, args, 6);
        em_endif(e, &br);
        t->k = att_tail_rows(e, p, w->span.tk, false, t->k0), t->k_stride = em_i64(e, a->d);
        t->v = att_tail_rows(e, p, w->span.tk, true, t->k0), t->v_stride = em_i64(e, a->dv);
        return;
    }
    t->k_stride = att_size(e, a->k.row), t->v_stride = att_size(e, a->v.row);
    t->k = em_gep(e, w->k_base, a->k.dtype, em_mul(e, t->k0, t->k_stride));
    t->v = em_gep(e, w->v_base, a->v.dtype, em_mul(e, t->k0, t->v_stride));
}

static em_val tile_row(em *e, const att_plan *p, int64_t base, em_val k, em_val vector) {
    em_val row = em_gep(e, att_scratch(e, base), p->t, em_mul(e, k, em_i64(e, p->qb)));
    return att_column(e, p, row, vector);
}

/* s = k q and d weights = v d out, segment by segment. */
static void emit_scores(em *e, const block *w, const tile *t, const em_val *f) {
    const att_plan *p = &w->b->p;
    em_val zero = em_i64(e, 0), max = att_scratch(e, p->max_at);
    for (int of_v = 0; of_v < 2; of_v++) {
        em_val from = of_v ? t->v : t->k, stride = of_v ? t->v_stride : t->k_stride;
        em_val row = em_gep(e, from, p->t, em_mul(e, f[0], stride));
        em_val args[] = {row,
                         stride,
                         em_sub(e, f[1], f[0]),
                         em_sub(e, t->n, f[0]),
                         att_column(e, p, att_scratch(e, of_v ? w->b->do_at : p->q_at), f[2]),
                         tile_row(e, p, of_v ? w->b->dp_at : p->s_at, f[0], f[2]),
                         max,
                         zero,
                         row,
                         zero,
                         row,
                         zero};
        att_call_by_count(e, of_v ? w->f->dweights : w->f->scores, em_sub(e, f[3], f[2]), args, 12);
    }
}

/* dv += weights d out, dk += ds q; dq += ds k */
static void emit_sums(em *e, const block *w, const tile *t, const em_val *f) {
    const att_back *b = w->b;
    const att_plan *p = &b->p;
    em_val keys = em_sub(e, f[1], f[0]), key = em_add(e, t->k0, f[0]);
    em_val first = em_mul(e, f[2], em_i64(e, p->lanes));
    em_val queries = em_mul(e, em_sub(e, f[3], f[2]), em_i64(e, p->lanes));
    em_branch kv = em_if(e, w->give_kv);
    for (int of_v = 1; of_v >= 0; of_v--) {
        em_val rows = att_scratch(e, of_v ? b->do_rows_at : b->q_rows_at);
        em_val args[] = {sums_at(e, b, w->span.tk, of_v, key),
                         tile_row(e, p, of_v ? p->s_at : b->dp_at, f[0], f[2]),
                         em_gep(e, rows, p->t, em_mul(e, first, em_i64(e, of_v ? b->dv : b->d))),
                         keys, queries};
        em_call(e, of_v ? w->f->outer_do : w->f->outer_q, args, 5);
    }
    em_endif(e, &kv);
    em_branch mine = em_if(e, w->give_q);
    em_val size = em_i64(e, p->esize), ahead = em_i64(e, ATT_KEYS);
    em_val args[] = {em_gep(e, t->k, p->t, em_mul(e, f[0], t->k_stride)),
                     t->k_stride,
                     tile_row(e, p, b->dp_at, f[0], f[2]),
                     att_column(e, p, att_scratch(e, b->dq_at), f[2]),
                     keys,
                     em_gep(e, t->k, p->t, em_mul(e, ahead, t->k_stride)),
                     em_mul(e, t->k_stride, size),
                     em_gep(e, t->v, p->t, em_mul(e, ahead, t->v_stride)),
                     em_mul(e, t->v_stride, size)};
    att_call_by_count(e, w->f->sums, em_sub(e, f[3], f[2]), args, 9);
    em_endif(e, &mine);
}

static void emit_tile(em *e, const block *w, tile *t, em_val n_seg, em_val partial) {
    const att_plan *p = &w->b->p;
    em_val zero = em_i64(e, 0), one = em_i64(e, 1), f[4];
    em_loop l = em_for(e, zero, n_seg, one);
    for (int i = 0; i < 4; i++) f[i] = em_load(e, SN_I64, att_segment(e, p, l.i, i), 1);
    emit_scores(e, w, t, f);
    em_end(e, &l);
    att_diagonals_reach(e, w->f->diagonals, &w->span, t->k0, t->n);
    l = em_for(e, zero, w->span.nv, one);
    em_val lo = em_load(e, SN_I64, att_visible(e, p, l.i, 0), 1);
    em_val hi = em_load(e, SN_I64, att_visible(e, p, l.i, 1), 1);
    em_branch sees = em_if(e, em_cmp(e, EM_LT, lo, hi));
    em_val args[] = {e->buf, e->dim,     e->scratch,    l.i,          lo,       hi,
                     t->k0,  w->span.q0, w->span.batch, w->span.head, w->give_q};
    em_branch with = em_if(e, partial);
    em_call(e, w->f->dscore_mask ? w->f->dscore_mask : w->f->dscore, args, 11);
    em_else(e, &with);
    em_call(e, w->f->dscore, args, 11);
    em_endif(e, &with);
    em_endif(e, &sees);
    em_end(e, &l);
    l = em_for(e, zero, n_seg, one);
    for (int i = 0; i < 4; i++) f[i] = em_load(e, SN_I64, att_segment(e, p, l.i, i), 1);
    emit_sums(e, w, t, f);
    em_end(e, &l);
}

/* void block(buf, dim, scratch, head of all, block, first key, key after the last, give) */
static em_val emit_block(em *e, const att_back *b, const functions *f) {
    const att_plan *p = &b->p;
    const sn_attention *a = p->a;
    const em_type params[] = {e->ptr, e->ptr, e->ptr, e->i64, e->i64, e->i64, e->i64, e->i64};
    em_val fn = att_function(e, p, "block", params, 8);
    em saved = *e;
    e->buf = em_param(e, 0), e->dim = em_param(e, 1), e->scratch = em_param(e, 2);
    em_val head = em_param(e, 3), turn = em_param(e, 4), from = em_param(e, 5);
    em_val to = em_param(e, 6), give = em_param(e, 7);
    em_val heads = em_i64(e, a->heads), group = em_i64(e, a->group);
    em_val zero = em_i64(e, 0), one = em_i64(e, 1), lanes = em_i64(e, p->lanes);
    block w = {.b = b, .f = f, .span = {.p = p}};
    w.give_q = em_cmp(e, EM_NE, em_and(e, give, em_i64(e, GIVE_Q)), zero);
    w.give_kv = em_cmp(e, EM_NE, em_and(e, give, em_i64(e, GIVE_KV)), zero);
    w.span.tq = att_size(e, a->tq), w.span.tk = att_size(e, a->tk);
    w.span.batch = em_div(e, head, heads), w.span.head = em_rem(e, head, heads);
    w.kv_head = em_div(e, w.span.head, group);
    w.k_base = att_base(e, &a->k, w.span.batch, w.kv_head);
    w.v_base = att_base(e, &a->v, w.span.batch, w.kv_head);
    em_val vectors = em_ceil_div(e, w.span.tq, p->lanes), blocks = em_ceil_div(e, vectors, ATT_NV);
    em_val v0 = em_div(e, em_mul(e, vectors, turn), blocks);
    em_val v1 = em_div(e, em_mul(e, vectors, em_add(e, turn, one)), blocks);
    w.span.q0 = em_mul(e, v0, lanes), w.span.nv = em_sub(e, v1, v0);
    w.span.rows = em_imin(e, em_mul(e, w.span.nv, lanes), em_sub(e, w.span.tq, w.span.q0));
    if (p->pack) att_keys_enter(e, p, em_div(e, head, group));
    att_diagonals_enter(e, p, head);
    att_classifier c;
    att_span_begin(e, &w.span, &c);
    em_val any = em_or(e, w.give_q, att_span_sees(e, &w.span, &c, from, em_sub(e, to, from)).hi);
    em_branch needed = em_if(e, any);
    emit_begin(e, &w);
    em_loop l = em_for(e, from, to, em_i64(e, ATT_KEYS));
    tile t = {.k0 = l.i, .n = em_imin(e, em_sub(e, w.span.tk, l.i), em_i64(e, ATT_KEYS))};
    sn_interval sees = att_span_sees(e, &w.span, &c, t.k0, t.n);
    em_branch seen = em_if(e, sees.hi);
    locate_tile(e, &w, &t);
    em_val partial = em_not(e, sees.lo);
    em_val n_seg = att_span_segments(e, &w.span, &c, t.k0, t.n, partial);
    emit_tile(e, &w, &t, n_seg, partial);
    em_endif(e, &seen);
    em_end(e, &l);
    em_branch mine = em_if(e, w.give_q);
    emit_end(e, &w);
    em_endif(e, &mine);
    em_endif(e, &needed);
    em_ret(e, NULL);
    e->buf = saved.buf, e->dim = saved.dim, e->scratch = saved.scratch;
    return fn;
}

/* --- the kernel ------------------------------------------------------------------------------- */

typedef struct kernel {
    const att_back *b;
    const functions *f;
    em_val block, blocks, tk;
} kernel;

static void call_block(em *e, const kernel *k, em_val head, em_val block, em_val from, em_val to,
                       int give) {
    em_val args[] = {e->buf, e->dim, e->scratch, head, block, from, to, em_i64(e, give)};
    em_call(e, k->block, args, 8);
}

/* When all blocks of a head are done. */
static void give_diagonals(em *e, const kernel *k, em_val head) {
    em_val heads = em_i64(e, k->b->p.a->heads);
    em_val args[] = {e->buf, e->dim, e->scratch, em_div(e, head, heads), em_rem(e, head, heads)};
    if (k->f->give_diagonals) em_call(e, k->f->give_diagonals, args, 5);
}

/* All blocks of the query heads of a K/V head, over keys from .. to - 1. */
static void emit_heads(em *e, const kernel *k, em_val unit, em_val from, em_val to, int give) {
    em_val group = em_i64(e, k->b->p.a->group), zero = em_i64(e, 0), one = em_i64(e, 1);
    em_loop h = em_for(e, zero, group, one);
    em_val head = em_add(e, em_mul(e, unit, group), h.i);
    em_loop i = em_for(e, zero, k->blocks, one);
    call_block(e, k, head, i.i, from, to, give);
    em_end(e, &i);
    if (give & GIVE_Q) give_diagonals(e, k, head);
    em_end(e, &h);
}

/* dk and dv of keys from .. to - 1: cleared, or stored. */
static void emit_key_sums(em *e, const kernel *k, em_val unit, em_val from, em_val to, bool store) {
    const att_back *b = k->b;
    const att_plan *p = &b->p;
    em_val n = em_sub(e, to, from), heads = em_i64(e, p->a->heads / p->a->group);
    for (int of_v = 0; of_v < 2; of_v++) {
        em_val sums = sums_at(e, b, k->tk, of_v, from);
        if (!store) {
            em_val clear[] = {sums, em_mul(e, n, em_i64(e, of_v ? b->dv : b->d))};
            em_call(e, k->f->zero, clear, 2);
            continue;
        }
        const sn_attention_operand *o = of_v ? &b->g->dv : &b->g->dk;
        em_val base = att_base(e, o, em_div(e, unit, heads), em_rem(e, unit, heads));
        em_val row = att_size(e, o->row);
        em_val args[] = {sums, n, em_gep(e, base, o->dtype, em_mul(e, from, row)), row};
        em_call(e, of_v ? k->f->store_v : k->f->store_k, args, 4);
    }
}

static void clear_tables(em *e, const kernel *k, em_val head) {
    em_val heads = em_i64(e, k->b->p.a->heads);
    em_val args[] = {e->buf, e->dim, em_div(e, head, heads), em_rem(e, head, heads)};
    if (k->f->zero_tables) em_call(e, k->f->zero_tables, args, 4);
}

/* Begins `if this is my turn`: things are dealt out to and fro. */
static em_branch begin_turn(em *e, em_val i) {
    em_val n = e->nthreads, two = em_mul(e, n, em_i64(e, 2)), turn = em_rem(e, i, two);
    em_val back = em_sub(e, em_sub(e, two, em_i64(e, 1)), turn);
    return em_if(e, em_cmp(e, EM_EQ, em_imin(e, turn, back), e->tid));
}

/* A K/V head all at once. */
static void emit_unit(em *e, const kernel *k, em_val unit) {
    em_val zero = em_i64(e, 0), group = em_i64(e, k->b->p.a->group);
    if (k->f->zero_tables) {
        em_loop h = em_for(e, zero, group, em_i64(e, 1));
        clear_tables(e, k, em_add(e, em_mul(e, unit, group), h.i));
        em_end(e, &h);
    }
    emit_key_sums(e, k, unit, zero, k->tk, false);
    emit_heads(e, k, unit, zero, k->tk, GIVE_Q | GIVE_KV);
    emit_key_sums(e, k, unit, zero, k->tk, true);
}

/* K/V heads that threads share. What flows to tables is added up by one thread a head. */
static void emit_shared_units(em *e, const kernel *k, em_val first, em_val end) {
    em_val zero = em_i64(e, 0), one = em_i64(e, 1), group = em_i64(e, k->b->p.a->group);
    bool tables = k->f->zero_tables != NULL;
    em_val parts = tables ? one : k->blocks;
    em_val count = em_mul(e, em_mul(e, em_sub(e, end, first), group), parts);
    em_loop i = em_for(e, zero, count, one);
    em_branch mine = begin_turn(e, i.i);
    em_val head = em_add(e, em_mul(e, first, group), em_div(e, i.i, parts));
    if (tables) {
        clear_tables(e, k, head);
        em_loop l = em_for(e, zero, k->blocks, one);
        call_block(e, k, head, l.i, zero, k->tk, GIVE_Q);
        em_end(e, &l);
        give_diagonals(e, k, head);
    } else {
        call_block(e, k, head, em_rem(e, i.i, parts), zero, k->tk, GIVE_Q);
    }
    em_endif(e, &mine);
    em_end(e, &i);

    em_val tiles = em_ceil_div(e, k->tk, ATT_KEYS);
    i = em_for(e, zero, em_mul(e, em_sub(e, end, first), tiles), one);
    mine = begin_turn(e, i.i);
    em_val unit = em_add(e, first, em_div(e, i.i, tiles));
    em_val from = em_mul(e, em_rem(e, i.i, tiles), em_i64(e, ATT_KEYS));
    em_val to = em_imin(e, em_add(e, from, em_i64(e, ATT_KEYS)), k->tk);
    emit_key_sums(e, k, unit, from, to, false);
    emit_heads(e, k, unit, from, to, GIVE_KV);
    emit_key_sums(e, k, unit, from, to, true);
    em_endif(e, &mine);
    em_end(e, &i);
}

void sn_attention_emit_grad(em *e, const char *name, const sn_attention_grad *g) {
    att_back b;
    functions f;
    if (!make_plan(&b, g, name, e->target, e->compute, &e->err)) return;
    b.p.keep_word = att_emit_keep_word(e, &b.p);
    b.p.keep = att_emit_keep(e, &b.p, b.p.keep_word);
    emit_functions(e, &b, &f);
    kernel k = {.b = &b, .f = &f, .block = emit_block(e, &b, &f)};
    em_kernel(e, name);
    const sn_attention *a = &g->a;
    em_val units = em_mul(e, att_size(e, a->batch), em_i64(e, a->heads / a->group));
    em_val whole = em_div(e, units, e->nthreads), first = em_mul(e, whole, e->tid);
    k.tk = att_size(e, a->tk);
    k.blocks = em_ceil_div(e, em_ceil_div(e, att_size(e, a->tq), b.p.lanes), ATT_NV);
    att_keys_reset(e, &b.p);
    att_diagonals_reset(e, &b.p);
    if (b.n_diagonal) {
        em_val n = em_mul(e, att_diagonal_elements(e, &b.p), em_i64(e, b.n_diagonal));
        em_call(e, f.zero, (em_val[]){att_diagonal_sums(e, &b), n}, 2);
    }
    em_loop u = em_for(e, first, em_add(e, first, whole), em_i64(e, 1));
    emit_unit(e, &k, u.i);
    em_end(e, &u);
    emit_shared_units(e, &k, em_mul(e, whole, e->nthreads), units);
    em_end_kernel(e);
}
