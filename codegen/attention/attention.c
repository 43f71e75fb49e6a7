/* attention.c: the loops of an attention kernel: threads, blocks of queries, tiles of keys, which
 * of them to skip. */
#include "codegen/attention/impl.h"
#include "codegen/emit/vmath.h"

#include <math.h>
#include <stdio.h>

/* --- a block of queries ----------------------------------------------------------------------- */

typedef struct att_block {
    const att_plan *p;
    const att_micro *f;
    em_val softmax, softmax_mask, copy, look, diagonals, addend;
    att_span span;
    em_val kv_head, k_base, v_base;
    em_val copied;                   /* whether K and V are read from the copy in scratch */
    em_val out;                      /* this block's rows of the result */
    em_val next_q, after_k, after_v; /* of the block that follows; of the head that follows */
    em_val leaves;                   /* the head's last block: it fetches all of the next head */
    em_val from, to, part;           /* its keys now; whether they are part of all */
    em_val begins, ends;             /* whether these are its first keys, its last ones */
    em_val after_batch, after_head;  /* of the head that follows */
} att_block;

/* K and V of the tile at k0: pointers and distance of rows. */
typedef struct att_tile {
    em_val k0, n;
    em_val k, k_stride, v, v_stride, careful;
    em_val next_k, next_v, next_k_step, next_v_step; /* rows to fetch, bytes between them */
} att_tile;

static em_val row_bytes(em *e, const sn_attention_operand *o) {
    return em_mul(e, att_size(e, o->row), em_i64(e, (int64_t)sn_dtype_size(o->dtype)));
}

/* Bytes of K and V of a head that leave room for those of the next one in a core's cache. */
enum { FETCH_HEAD = 1 << 18 };

/* The rows that this tile's sums fetch: the next tile's, from the copy if they are in it already,
 * or the first of the next head; in the last block of a short head the next head's rows of this
 * tile, so that all of them are there when it begins. */
static void fetch_next(em *e, const att_block *b, att_tile *t) {
    const att_plan *p = b->p;
    const sn_attention *a = p->a;
    em_val next = em_add(e, t->k0, em_i64(e, ATT_KEYS)), zero = em_i64(e, 0);
    em_val more = em_and(e, em_cmp(e, EM_LT, next, b->to), em_not(e, b->leaves));
    em_val begin = em_select(e, b->part, b->from, zero), same = em_or(e, more, b->part);
    em_val row = em_select(e, more, next, em_select(e, b->leaves, t->k0, begin));
    em_val k = em_select(e, same, b->k_base, b->after_k);
    em_val v = em_select(e, same, b->v_base, b->after_v);
    t->next_k = em_gep(e, k, a->k.dtype, em_mul(e, row, att_size(e, a->k.row)));
    t->next_v = em_gep(e, v, a->v.dtype, em_mul(e, row, att_size(e, a->v.row)));
    t->next_k_step = row_bytes(e, &a->k);
    t->next_v_step = row_bytes(e, &a->v);
    if (!p->pack) return;
    em_val until = em_load(e, SN_I64, att_scratch(e, p->key_at + 8), 1);
    em_val ready = em_and(e, em_and(e, b->copied, more), em_cmp(e, EM_GT, until, next));
    t->next_k = em_select(e, ready, att_tail_rows(e, p, b->span.tk, false, next), t->next_k);
    t->next_v = em_select(e, ready, att_tail_rows(e, p, b->span.tk, true, next), t->next_v);
    em_val k_row = em_i64(e, (int64_t)a->d * p->esize),
           v_row = em_i64(e, (int64_t)a->dv * p->esize);
    t->next_k_step = em_select(e, ready, k_row, t->next_k_step);
    t->next_v_step = em_select(e, ready, v_row, t->next_v_step);
}

static void locate_tile(em *e, const att_block *b, att_tile *t) {
    const att_plan *p = b->p;
    if (b->copy || b->look) {
        em_val upto = em_add(e, t->k0, em_i64(e, ATT_KEYS));
        em_val until = em_load(e, SN_I64, att_scratch(e, p->key_at + 8), 1);
        em_branch br = em_if(e, em_cmp(e, EM_LT, until, upto));
        em_val args[] = {e->buf, e->dim, e->scratch, b->span.batch, b->kv_head, upto};
        em_branch copied = em_if(e, b->copied);
        if (b->copy) em_call(e, b->copy, args, 6);
        em_else(e, &copied);
        if (b->look) em_call(e, b->look, args, 6);
        em_endif(e, &copied);
        em_endif(e, &br);
    }
    t->k_stride = att_size(e, p->a->k.row);
    t->v_stride = att_size(e, p->a->v.row);
    t->k = em_gep(e, b->k_base, p->a->k.dtype, em_mul(e, t->k0, t->k_stride));
    t->v = em_gep(e, b->v_base, p->a->v.dtype, em_mul(e, t->k0, t->v_stride));
    if (p->pack) {
        t->k = em_select(e, b->copied, att_tail_rows(e, p, b->span.tk, false, t->k0), t->k);
        t->v = em_select(e, b->copied, att_tail_rows(e, p, b->span.tk, true, t->k0), t->v);
        t->k_stride = em_select(e, b->copied, em_i64(e, p->a->d), t->k_stride);
        t->v_stride = em_select(e, b->copied, em_i64(e, p->a->dv), t->v_stride);
    }
    fetch_next(e, b, t);
    t->careful = em_i1(e, false);
    if (p->check_v) {
        em_val flag = att_flags_at(e, p, LLVMBuildUDiv(e->b, t->k0, em_i64(e, ATT_KEYS), ""));
        t->careful = em_cmp(e, EM_NE, em_load(e, SN_U8, flag, 1), LLVMConstInt(e->i8, 0, false));
    }
}

/* What `scores` fetches on the way: rows of q and of the result for the next block; as long as more
 * tiles follow their part of a dense table, half of the rows each. */
static void fetch_sheet(em *e, const att_block *b, const att_tile *t, em_val key, em_val *first,
                        em_val ahead[2], em_val step[2]) {
    enum { ROWS = ATT_KEYS / 2 }; /* that `scores` goes over in a tile */
    em_val next = em_add(e, t->k0, em_i64(e, ATT_KEYS)), of[] = {b->span.batch, b->span.head};
    em_val at, by;
    if (!att_has_sheet(e, b->p)) return;
    att_sheet_ahead(e, b->p, of, b->span.q0, next, &at, &by);
    em_val more = em_cmp(e, EM_LT, next, b->span.tk), half = em_mul(e, by, em_i64(e, ROWS));
    *first = em_select(e, more, em_lshr(e, key, em_i64(e, 1)), *first);
    for (int i = 0; i < 2; i++) {
        ahead[i] = em_select(e, more, i ? em_gep_bytes(e, at, half) : at, ahead[i]);
        step[i] = em_select(e, more, by, step[i]);
    }
}

/* Calls fn for every vector that sees some keys of the tile; where `partial`, the softmax with
 * mask instead. */
static void call_of_visible(em *e, const att_block *b, const att_tile *t, em_val fn,
                            em_val partial) {
    em_loop l = em_for(e, em_i64(e, 0), b->span.nv, em_i64(e, 1));
    em_val lo = em_load(e, SN_I64, att_visible(e, b->p, l.i, 0), 1);
    em_val hi = em_load(e, SN_I64, att_visible(e, b->p, l.i, 1), 1);
    em_branch sees = em_if(e, em_cmp(e, EM_LT, lo, hi));
    em_val args[] = {e->buf, e->dim, e->scratch, l.i,           lo,
                     hi,     t->k0,  b->span.q0, b->span.batch, b->span.head};
    if (partial) {
        em_branch with = em_if(e, partial);
        em_call(e, b->softmax_mask, args, 10);
        em_else(e, &with);
        em_call(e, fn, args, 10);
        em_endif(e, &with);
    } else {
        em_call(e, fn, args, 10);
    }
    em_endif(e, &sees);
    em_end(e, &l);
}

/* The tile's scores, weights and sums, segment by segment. */
static void emit_tile(em *e, const att_block *b, const att_tile *t, em_val n_seg, em_val partial) {
    const att_plan *p = b->p;
    em_val zero = em_i64(e, 0), one = em_i64(e, 1);
    em_val s = att_scratch(e, p->s_at), q = att_state(e, p, p->q_at), o = att_state(e, p, p->o_at);
    em_val max_at = att_scratch(e, p->max_at);
    if (att_product_scores(p))
        for (int v = 0; v < ATT_NV; v++)
            em_store_raw(e, em_vf(e, -INFINITY), em_gep(e, max_at, p->t, em_i64(e, v * p->lanes)),
                         16);
    att_diagonals_reach(e, b->diagonals, &b->span, t->k0, t->n);
    if (b->addend) call_of_visible(e, b, t, b->addend, NULL);
    em_loop l = em_for(e, zero, n_seg, one);
    em_val f[4];
    for (int i = 0; i < 4; i++) f[i] = em_load(e, SN_I64, att_segment(e, p, l.i, i), 1);
    em_val row = em_gep(e, s, p->t, em_mul(e, f[0], em_i64(e, p->qb)));
    em_val first = em_lshr(e, em_add(e, t->k0, f[0]), one), ahead[] = {b->next_q, b->out};
    em_val step[] = {row_bytes(e, &p->a->q), row_bytes(e, &p->a->out)};
    fetch_sheet(e, b, t, f[0], &first, ahead, step);
    em_val scores[] = {em_gep(e, t->k, p->t, em_mul(e, f[0], t->k_stride)),
                       t->k_stride,
                       em_sub(e, f[1], f[0]),
                       em_sub(e, t->n, f[0]),
                       att_column(e, p, q, f[2]),
                       att_column(e, p, row, f[2]),
                       att_column(e, p, max_at, f[2]),
                       first,
                       ahead[0],
                       step[0],
                       ahead[1],
                       step[1]};
    att_call_by_count(e, b->f->scores, em_sub(e, f[3], f[2]), scores, 12);
    em_end(e, &l);

    call_of_visible(e, b, t, b->softmax, b->softmax_mask ? partial : NULL);

    em_branch quick = em_if(e, em_not(e, t->careful));
    l = em_for(e, zero, n_seg, one);
    for (int i = 0; i < 4; i++) f[i] = em_load(e, SN_I64, att_segment(e, p, l.i, i), 1);
    row = em_gep(e, s, p->t, em_mul(e, f[0], em_i64(e, p->qb)));
    em_val sums[] = {em_gep(e, t->v, p->t, em_mul(e, f[0], t->v_stride)),
                     t->v_stride,
                     att_column(e, p, row, f[2]),
                     att_column(e, p, o, f[2]),
                     em_sub(e, f[1], f[0]),
                     em_gep_bytes(e, t->next_k, em_mul(e, f[0], t->next_k_step)),
                     t->next_k_step,
                     em_gep_bytes(e, t->next_v, em_mul(e, f[0], t->next_v_step)),
                     t->next_v_step};
    att_call_by_count(e, b->f->sums, em_sub(e, f[3], f[2]), sums, 9);
    em_end(e, &l);
    if (p->check_v) {
        em_else(e, &quick);
        l = em_for(e, zero, b->span.nv, one);
        em_val lo = em_load(e, SN_I64, att_visible(e, p, l.i, 0), 1);
        em_val hi = em_load(e, SN_I64, att_visible(e, p, l.i, 1), 1);
        row = em_gep(e, s, p->t, em_mul(e, lo, em_i64(e, p->qb)));
        em_val careful[] = {em_gep(e, t->v, p->t, em_mul(e, lo, t->v_stride)), t->v_stride,
                            att_column(e, p, row, l.i), att_column(e, p, o, l.i),
                            em_sub(e, hi, lo)};
        em_call(e, b->f->careful_sums, careful, 5);
        em_end(e, &l);
    }
    em_endif(e, &quick);
}

/* --- the tiles of a block --------------------------------------------------------------------- */

static void emit_tiles(em *e, const att_block *b) {
    att_classifier c;
    att_span_begin(e, &b->span, &c);
    em_loop l = em_for(e, b->from, b->to, em_i64(e, ATT_KEYS));
    att_tile t = {.k0 = l.i, .n = em_imin(e, em_sub(e, b->span.tk, l.i), em_i64(e, ATT_KEYS))};
    sn_interval sees = att_span_sees(e, &b->span, &c, t.k0, t.n);
    em_branch seen = em_if(e, sees.hi);
    locate_tile(e, b, &t);
    em_val partial = em_not(e, sees.lo);
    em_val n_seg = att_span_segments(e, &b->span, &c, t.k0, t.n, partial);
    emit_tile(e, b, &t, n_seg, partial);
    em_endif(e, &seen);
    em_end(e, &l);
}

static void emit_lse(em *e, const att_block *b, em_val v, em_val q, em_val rows) {
    const att_plan *p = b->p;
    em_val m = em_load(e, p->t, att_column(e, p, att_state(e, p, p->m_at), v), p->lanes);
    em_val l = em_load(e, p->t, att_column(e, p, att_state(e, p, p->l_at), v), p->lanes);
    em_val none = em_cmp(e, EM_EQ, l, em_vf(e, 0));
    em_val log_sum = em_select(e, none, em_vf(e, -INFINITY), sn_vmath_emit(e, SN_V_LOG, l));
    em_val at = att_lse_at(e, p, b->span.batch, b->span.head, q, false);
    em_store_tail(e, p->t, at, m, rows);
    at = att_lse_at(e, p, b->span.batch, b->span.head, q, true);
    em_store_tail(e, p->t, at, log_sum, rows);
}

/* What the block's parameters tell of it: its queries, keys, K and V. */
static void begin_block(em *e, att_block *b) {
    const att_plan *p = b->p;
    const sn_attention *a = p->a;
    em_val head = em_param(e, 3), block = em_param(e, 4), heads = em_i64(e, a->heads);
    em_val group = em_i64(e, a->group), zero = em_i64(e, 0), one = em_i64(e, 1);
    em_val lanes = em_i64(e, p->lanes);
    b->span.tq = att_size(e, a->tq), b->span.tk = att_size(e, a->tk);
    b->from = em_param(e, 6), b->to = em_param(e, 7);
    b->begins = em_cmp(e, EM_EQ, b->from, zero), b->ends = em_cmp(e, EM_EQ, b->to, b->span.tk);
    b->part = em_not(e, em_and(e, b->begins, b->ends));
    em_val slot = em_param(e, 5), apart = em_i64(e, p->slots_at - p->state_bytes);
    em_val state = em_add(e, apart, em_mul(e, slot, em_i64(e, p->state_bytes)));
    state = em_select(e, em_cmp(e, EM_EQ, slot, zero), zero, state);
    em_store(e, SN_I64, att_scratch(e, p->slot_at), state);
    b->span.batch = em_div(e, head, heads), b->span.head = em_rem(e, head, heads);
    b->kv_head = em_div(e, b->span.head, group);
    b->k_base = att_base(e, &a->k, b->span.batch, b->kv_head);
    b->v_base = att_base(e, &a->v, b->span.batch, b->kv_head);
    em_val end = em_mul(e, att_size(e, a->batch), em_i64(e, a->heads));
    em_val after = em_imin(e, em_add(e, head, one), em_sub(e, end, one));
    b->after_batch = em_div(e, after, heads), b->after_head = em_rem(e, after, heads);
    em_val after_kv_head = em_div(e, b->after_head, group);
    b->after_k = att_base(e, &a->k, b->after_batch, after_kv_head);
    b->after_v = att_base(e, &a->v, b->after_batch, after_kv_head);
    /* vectors of queries spread evenly over the blocks */
    em_val vectors = em_ceil_div(e, b->span.tq, p->lanes), blocks = em_ceil_div(e, vectors, p->nv);
    em_val v0 = em_div(e, em_mul(e, vectors, block), blocks);
    em_val v1 = em_div(e, em_mul(e, vectors, em_add(e, block, one)), blocks);
    em_val bytes = em_mul(e, b->span.tk, em_i64(e, (int64_t)(a->d + a->dv) * p->esize));
    b->leaves =
        em_and(e, em_cmp(e, EM_EQ, v1, vectors), em_cmp(e, EM_LE, bytes, em_i64(e, FETCH_HEAD)));
    b->span.q0 = em_mul(e, v0, lanes), b->span.nv = em_sub(e, v1, v0);
    b->span.rows = em_imin(e, em_mul(e, b->span.nv, lanes), em_sub(e, b->span.tq, b->span.q0));
    /* a copy costs about as much as a few blocks lose on rows that lie apart */
    em_val uses = em_mul(e, b->span.tq, group);
    b->copied = p->convert ? em_i1(e, true) : em_cmp(e, EM_GT, uses, em_i64(e, p->copy_from));
    if (!p->pack || (p->copy_from < 0 && !p->convert)) b->copied = em_i1(e, false);
    if (b->copy || b->look) att_keys_enter(e, p, em_div(e, head, group));
    att_diagonals_enter(e, p, head);
}

/* With its first key the block loads its queries and sets maxima, sums and the result `o`. */
static void emit_start(em *e, const att_block *b, em_val q_base, em_val q_row, em_val o) {
    const att_plan *p = b->p;
    const sn_attention *a = p->a;
    em_val zero = em_i64(e, 0), one = em_i64(e, 1), lanes = em_i64(e, p->lanes);
    em_val q_to = att_state(e, p, p->q_at);
    em_branch first = em_if(e, b->begins);
    em_loop l = em_for(e, zero, b->span.nv, one);
    em_val q = em_add(e, b->span.q0, em_mul(e, l.i, lanes)),
           rows = em_imin(e, em_sub(e, b->span.tq, q), lanes);
    em_val load[] = {em_gep(e, q_base, a->q.dtype, em_mul(e, q, q_row)), q_row, rows,
                     att_column(e, p, q_to, l.i)};
    em_call(e, b->f->load_q, load, 4);
    em_store(e, p->t, att_column(e, p, att_state(e, p, p->m_at), l.i), em_vf(e, -INFINITY));
    em_store(e, p->t, att_column(e, p, att_state(e, p, p->l_at), l.i), em_vf(e, 0));
    em_loop d = em_for(e, zero, em_i64(e, a->dv), one);
    em_val row = em_gep(e, o, p->t, em_mul(e, d.i, em_i64(e, p->qb)));
    em_store(e, p->t, att_column(e, p, row, l.i), em_vf(e, 0));
    em_end(e, &d);
    em_end(e, &l);
    em_endif(e, &first);
}

/* After its last key the block's result goes from `o` to the rows `out`. */
static void emit_result(em *e, const att_block *b, em_val o, em_val out, em_val out_row) {
    const att_plan *p = b->p;
    const sn_attention *a = p->a;
    em_val lanes = em_i64(e, p->lanes);
    em_branch last = em_if(e, b->ends);
    em_loop l = em_for(e, em_i64(e, 0), b->span.nv, em_i64(e, 1));
    em_val q = em_add(e, b->span.q0, em_mul(e, l.i, lanes)),
           rows = em_imin(e, em_sub(e, b->span.tq, q), lanes);
    em_val store[] = {att_column(e, p, o, l.i),
                      att_column(e, p, att_state(e, p, p->l_at), l.i),
                      em_gep(e, out, a->out.dtype, em_mul(e, q, out_row)),
                      out_row,
                      rows,
                      att_scratch(e, p->dummy_at)};
    em_call(e, b->f->store_out, store, 6);
    if (a->lse_buf >= 0) emit_lse(e, b, l.i, q, rows);
    em_end(e, &l);
    em_endif(e, &last);
}

/* void block(buf, dim, scratch, head of all, block, slot, first key, key after the last): the block
 * begins with key 0, its result is stored after the last one. */
static em_val emit_block(em *e, const att_plan *p) {
    const sn_attention *a = p->a;
    att_micro f;
    att_emit_micro(e, p, &f);
    att_block b = {.p = p, .f = &f, .span.p = p};
    b.softmax = att_emit_softmax(e, p, false);
    b.softmax_mask = a->mask ? att_emit_softmax(e, p, true) : NULL;
    b.copy = p->pack ? att_emit_prepare(e, p, true) : NULL;
    b.look = p->check_v && !p->convert ? att_emit_prepare(e, p, false) : NULL;
    b.diagonals = att_emit_diagonals(e, p), b.addend = att_emit_addend(e, p);
    const em_type params[] = {e->ptr, e->ptr, e->ptr, e->i64, e->i64, e->i64, e->i64, e->i64};
    em_val fn = att_function(e, p, "block", params, 8);
    em saved = *e;
    e->buf = em_param(e, 0), e->dim = em_param(e, 1), e->scratch = em_param(e, 2);
    begin_block(e, &b);
    em_val q_base = att_base(e, &a->q, b.span.batch, b.span.head), q_row = att_size(e, a->q.row);
    em_val o = att_state(e, p, p->o_at);
    emit_start(e, &b, q_base, q_row, o);

    em_val out = att_base(e, &a->out, b.span.batch, b.span.head), out_row = att_size(e, a->out.row);
    em_val q_end = em_add(e, b.span.q0, b.span.rows),
           q_after = att_base(e, &a->q, b.after_batch, b.after_head);
    b.out = em_gep(e, out, a->out.dtype, em_mul(e, b.span.q0, out_row));
    b.next_q = em_select(e, em_cmp(e, EM_LT, q_end, b.span.tq),
                         em_gep(e, q_base, a->q.dtype, em_mul(e, q_end, q_row)), q_after);
    emit_tiles(e, &b);
    emit_result(e, &b, o, out, out_row);
    em_ret(e, NULL);
    e->buf = saved.buf, e->dim = saved.dim, e->scratch = saved.scratch;
    return fn;
}

/* --- the kernel ------------------------------------------------------------------------------- */

/* Those blocks of a head that fall to thread `tid` of n, to and fro; `at`: the first one's place in
 * the row. Where K and V of a head are large, some of its blocks take turns at a stretch of keys,
 * which stays in the cache meanwhile. */
static void emit_head(em *e, const att_plan *p, em_val block, em_val head, em_val at, em_val n,
                      em_val tid) {
    em_val zero = em_i64(e, 0), one = em_i64(e, 1), tk = att_size(e, p->a->tk);
    em_val blocks = em_ceil_div(e, em_ceil_div(e, att_size(e, p->a->tq), p->lanes), p->nv);
    em_val stretch = em_i64(e, att_stretch(p)), two = em_mul(e, n, em_i64(e, 2));
    em_val once = em_cmp(e, EM_LE, tk, em_i64(e, 2 * att_stretch(p)));
    stretch = em_select(e, once, em_imax(e, tk, one), stretch);
    em_val some = em_select(e, once, em_imax(e, blocks, one), em_mul(e, n, em_i64(e, ATT_SLOTS)));
    em_loop g = em_for(e, zero, blocks, some);
    em_loop k = em_for(e, zero, em_imax(e, tk, one), stretch);
    em_loop i = em_for(e, g.i, em_imin(e, em_add(e, g.i, some), blocks), one);
    em_val slot = em_carry(e, &i, zero), turn = em_rem(e, em_add(e, at, i.i), two);
    em_val back = em_sub(e, em_sub(e, two, one), turn);
    em_val mine = em_cmp(e, EM_EQ, em_imin(e, turn, back), tid);
    em_branch here = em_if(e, mine);
    em_val to = em_imin(e, em_add(e, k.i, stretch), tk);
    em_val args[] = {e->buf, e->dim, e->scratch, head, i.i, em_select(e, once, zero, slot),
                     k.i,    to};
    em_call(e, block, args, 8);
    em_endif(e, &here);
    em_next(e, &i, slot, em_add(e, slot, em_int_cast(e, mine, e->i64)));
    em_end(e, &i);
    em_end(e, &k);
    em_end(e, &g);
}

/* As many heads for every thread, whole, so that K and V stay in its cache; of the heads that are
 * left over the blocks are dealt out, which evens out masks that grow or shrink. */
static void emit_all_blocks(em *e, const att_plan *p, em_val block) {
    const sn_attention *a = p->a;
    em_val zero = em_i64(e, 0), one = em_i64(e, 1), n = e->nthreads, tid = e->tid;
    em_val heads = em_mul(e, att_size(e, a->batch), em_i64(e, a->heads));
    em_val blocks = em_ceil_div(e, em_ceil_div(e, att_size(e, a->tq), p->lanes), p->nv);
    em_val whole = em_div(e, heads, n), first = em_mul(e, whole, tid);
    att_keys_reset(e, p);
    att_diagonals_reset(e, p);
    em_loop h = em_for(e, first, em_add(e, first, whole), one);
    emit_head(e, p, block, h.i, zero, one, zero);
    em_end(e, &h);
    em_val left = em_mul(e, whole, n);
    h = em_for(e, left, heads, one);
    emit_head(e, p, block, h.i, em_mul(e, em_sub(e, h.i, left), blocks), n, tid);
    em_end(e, &h);
}

void sn_attention_emit(em *e, const char *name, const sn_attention *a) {
    att_plan p;
    if (!att_plan_make(&p, a, name, e->target, e->compute, &e->err)) return;
    bool known = a->tq.slot < 0, few_only = known && a->tq.value <= ATT_FEW;
    bool blocks_only = known && !few_only;
    att_plan_slots(&p);
    p.keep_word = att_emit_keep_word(e, &p);
    p.keep = few_only ? NULL : att_emit_keep(e, &p, p.keep_word);
    em_val block = few_only ? NULL : emit_block(e, &p),
           few = blocks_only ? NULL : att_emit_few(e, &p);
    em_kernel(e, name);
    if (few_only) {
        att_emit_few_heads(e, &p, few);
    } else if (blocks_only) {
        emit_all_blocks(e, &p, block);
    } else {
        em_branch is_few = em_if(e, em_cmp(e, EM_LE, att_size(e, a->tq), em_i64(e, ATT_FEW)));
        att_emit_few_heads(e, &p, few);
        em_else(e, &is_few);
        emit_all_blocks(e, &p, block);
        em_endif(e, &is_few);
    }
    em_end_kernel(e);
    if (p.most_parts > 1) att_emit_finish(e, &p);
}

sn_mask_kind sn_attention_explain(const sn_attention *a, char *why, size_t size) {
    static const char *const effect[] = {
        [0] = "no tile is skipped",
        [SN_SHOWS_EMPTY] = "tiles are skipped only where the rest of the mask hides them",
        [SN_SHOWS_FULL] =
            "no tile is skipped; those that the rest of the mask shows run without it",
        [SN_SHOWS_EMPTY | SN_SHOWS_FULL] = "tiles are skipped, or run without mask, only where the "
                                           "rest of the mask decides them",
    };
    const sn_node *culprit = NULL;
    int shows = a->mask ? sn_interval_shows(a->mask, &culprit) : 0;
    sn_mask_kind kind = !a->mask ? SN_MASK_NONE : shows ? SN_MASK_DECIDABLE : SN_MASK_UNDECIDABLE;
    if (!why) return kind;
    if (kind == SN_MASK_NONE)
        snprintf(why, size, "no mask");
    else if (culprit)
        snprintf(why, size, "%s: `%s` of %s cannot be bounded over a tile", effect[shows],
                 sn_ops[culprit->op].name, sn_dtype_name((sn_dtype)culprit->dtype));
    else
        snprintf(why, size, "empty tiles are skipped, full tiles run without mask");
    return kind;
}
