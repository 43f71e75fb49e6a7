/* gather.c: masks by which each query chooses blocks of keys, such as table[query, key / 64]. The queries
 * of a block choose differently, so that most of its tiles are seen by few of them. For a strip of
 * queries, longer than a block, each KV tile therefore gets a list of the queries that see it, and
 * these are gathered into blocks. Their softmax states wait in scratch, a row for each query.
 *
 * A query meets its tiles in the same order as in a block of neighbours, so that both ways give the
 * same bits, but for dk and dv in bf16. The numbers of pairs decide, strip by strip, which way is taken;
 * dk and dv in bf16 always gather. */
#include "codegen/attention/impl.h"

enum {
    GROUP = 16, /* queries whose tiles are found at a time */
    STRIP_QUERIES = 4096,
    LEAST_BLOCK = 16, /* keys that share a choice */
    COST = 3,
    OF_COST = 2 /* a gathered pair of query and tile takes 3/2 of the time of another */
};

/* --- which masks ------------------------------------------------------------------------------ */

/* n is a quotient by a constant of at least LEAST_BLOCK. */
static bool is_coarse(const sn_node *n) {
    while (n->op == SN_OP_cast) n = n->in[0];
    if (n->n_in != 2 || n->in[1]->op != SN_OP_const) return false;
    double by = sn_attr_flt(n->in[1], SN_A_value, 0);
    return n->op == SN_OP_div           ? by >= LEAST_BLOCK
           : n->op == SN_OP_shift_right ? by >= 4 && by < 31
                                        : false;
}

/* Whether n reads a table at blocks of keys and at single queries. */
static bool is_choice(const sn_interval_code *c, const sn_node *n) {
    bool by_query = false, by_block = false;
    if (n->op != SN_OP_gather_nd || sn_dtype_is_float((sn_dtype)n->dtype)) return false;
    for (int j = 1; j < n->n_in; j++) {
        uint32_t deps = 0;
        for (int i = 0; i < c->order.n; i++)
            if (c->order.node[i] == n->in[j]) deps = c->deps[i];
        by_query |= deps == ATT_DEP_Q && !is_coarse(n->in[j]);
        by_block |= deps == ATT_DEP_K && is_coarse(n->in[j]);
    }
    return by_query && by_block;
}

bool sn_attention_gathers(const sn_attention *a) {
    em nowhere = {.buf = NULL}; /* nothing is emitted */
    sn_interval_code c = {.e = NULL};
    if (!a->mask || !sn_interval_begin(&c, &nowhere, a->mask)) return false;
    sn_interval_arg(&c, 2, (sn_interval){NULL, NULL}, ATT_DEP_Q);
    sn_interval_arg(&c, 3, (sn_interval){NULL, NULL}, ATT_DEP_K);
    for (int i = 0; i < c.order.n; i++)
        if (is_choice(&c, c.order.node[i])) return true;
    return false;
}

void att_gather_find(att_plan *p, int state_row, int kept_row) {
    const sn_attention *a = p->a;
    if (att_decodes_only(a) || !sn_attention_gathers(a)) return;
    p->kept_row = kept_row;
    int64_t most = a->tq.slot < 0 && a->tq.value < STRIP_QUERIES ? a->tq.value : STRIP_QUERIES;
    int block = p->nv * p->lanes;
    p->strip_blocks = (int)((most + block - 1) / block);
    p->strip_rows = (p->strip_blocks * block + GROUP - 1) / GROUP * GROUP;
    int64_t *end = &p->tail_offset, rows = p->strip_rows;
    p->strip_state_offset = att_place(end, (rows + 1) * state_row * p->esize);
    p->strip_m_offset = att_place(end, rows * p->esize);
    p->strip_l_offset = att_place(end, rows * p->esize);
    p->list_offset = att_place(end, (rows + p->qb) * 4);
    p->index_offset = att_place(end, p->qb * 4);
    p->gathers_offset = att_place(end, 8);
    att_place(end, rows / GROUP * 4); /* of a tile that has fewer keys */
}

/* For each KV tile and group of queries a word: bits of queries that see some of it, and all. */
int64_t att_gather_key_elements(const att_plan *p) {
    int64_t tile = p->strip_rows / GROUP * 4, key = ATT_TILE_KEYS * p->esize;
    return (tile + key - 1) / key;
}

static em_val word_at(em *e, const att_plan *p, em_val tile, em_val group) {
    em_val tk = em_size_value(e, p->a->tk);
    em_val base = em_gep(e, att_packed_end(e, p, tk), p->t, em_mul(e, tk, p->kept_row));
    em_val at = em_add(e, em_mul(e, tile, p->strip_rows / GROUP), group);
    return em_gep(e, base, SN_I32, at);
}

/* --- which queries see a tile ----------------------------------------------------------------- */

/* Range of a captured tensor; lanes are queries. Indices of lanes must be single numbers; at most one other
 * index is a range, whose elements are read one by one. */
static sn_interval chosen_range(void *ctx, const sn_node *n, const sn_interval *index) {
    const att_captured *t = ctx;
    em *e = t->e;
    int which, ranges = 0;
    const sn_attention_captured *c = att_captured_tensor(t, n, &which);
    if (!c || c->rank != n->n_in - 1) return (sn_interval){NULL, NULL};
    em_val at = em_size_value(e, c->offset), lo = em_like(e, at, 0), hi = lo, step = NULL;
    em_val single = em_splat(e, em_i1(e, true), GROUP), lanes = em_splat(e, lo, GROUP);
    for (int i = 0; i < c->rank; i++) {
        em_val from = att_clamp_index(e, index[i].lo, c->shape[i]);
        em_val stride = em_size_value(e, c->stride[i]);
        if (em_lanes_of(from) > 1) {
            single = em_and(e, single, em_cmp(e, EM_EQ, index[i].lo, index[i].hi));
            lanes = em_add(e, lanes, em_mul(e, from, stride));
        } else if (index[i].lo == index[i].hi) {
            at = em_add(e, at, em_mul(e, from, stride));
        } else {
            if (ranges++) return (sn_interval){NULL, NULL};
            lo = from, hi = att_clamp_index(e, index[i].hi, c->shape[i]), step = stride;
        }
    }
    em_val base = em_gep(e, em_buf(e, c->buf), c->dtype, at);
    bool is_bool = c->dtype == SN_BOOL;
    em_val most = is_bool ? em_i1(e, true) : em_i64(e, INT64_MAX / 4);
    em_val least = is_bool ? em_i1(e, false) : em_i64(e, INT64_MIN / 4);
    most = em_splat(e, most, GROUP), least = em_splat(e, least, GROUP);
    em_loop l = em_for(e, lo, em_add(e, hi, 1), 1);
    em_val range[2] = {most, least}, moved = lanes;
    em_carries(e, &l, range, 2);
    if (step) moved = em_add(e, lanes, em_mul(e, l.i, step));
    em_val x = sn_emit_loaded(e, c->dtype, em_gather(e, c->dtype, base, moved, NULL));
    if (!is_bool) x = em_convert(e, x, c->dtype, SN_I64);
    range[0] = is_bool ? em_and(e, range[0], x) : em_imin(e, range[0], x);
    range[1] = is_bool ? em_or(e, range[1], x) : em_imax(e, range[1], x);
    em_end(e, &l);
    return (sn_interval){em_select(e, single, range[0], least),
                         em_select(e, single, range[1], most)};
}

/* Bit i: lane i of x. */
static em_val bits_of(em *e, em_val x, em_val exists) {
    x = em_and(e, em_splat(e, x, em_lanes_of(x) > 1 ? 1 : GROUP), exists);
    return LLVMBuildZExt(e->b, em_bitcast(e, x, e->i16), e->i32, "");
}

em_val att_emit_choices(em *e, const att_plan *p) {
    att_choices_args q = att_choices_begin(e, p, "choices");
    att_use_context(e, q.buf, q.dim, q.scratch);
    em_val zero = em_like(e, q.n, 0), lane = em_iota(e, e->i64, GROUP);
    em_val last = em_splat(e, em_sub(e, em_size_value(e, p->a->tq), 1), GROUP);
    em_loop g = em_for(e, zero, em_ceil_div(e, q.n, GROUP), 1);
    em_val count[2] = {zero, zero}; /* pairs of query and tile; of group and tile */
    em_carries(e, &g, count, 2);
    em_val first = em_mul(e, g.i, GROUP);
    em_val i = em_imin(e, em_add(e, em_splat(e, em_add(e, q.q0, first), GROUP), lane), last);
    em_val exists = em_tail_mask(e, em_sub(e, q.n, first), GROUP);
    att_classifier c;
    att_classifier_begin(&c, e, p, NULL, q.batch, (sn_interval){q.head, q.head},
                         (sn_interval){i, i});
    c.code.at = chosen_range;
    sn_interval_emit(&c.code, ATT_DEP_HEAD | ATT_DEP_Q);
    em_loop t = em_for(e, q.k0, q.k1, ATT_TILE_KEYS);
    em_carries(e, &t, count, 2);
    em_val end = em_imin(e, em_add(e, t.i, ATT_TILE_KEYS), q.k1);
    sn_interval sees = att_classifier_finish(&c, (sn_interval){t.i, em_sub(e, end, 1)});
    em_val some = bits_of(e, sees.hi, exists), all = bits_of(e, sees.lo, exists);
    em_val word = em_or(e, some, em_shl(e, all, em_i32(e, GROUP)));
    em_store(e, SN_I32, word_at(e, p, em_div(e, t.i, ATT_TILE_KEYS), g.i), word);
    em_val n = em_int_cast(e, em_unary_intrinsic(e, "llvm.ctpop", some), e->i64);
    count[0] = em_add(e, count[0], n);
    count[1] = em_add(e, count[1], em_imin(e, n, 1));
    em_end(e, &t);
    em_end(e, &g);
    em_val less = em_cmp(e, EM_LT, em_mul(e, count[0], COST), em_mul(e, count[1], GROUP * OF_COST));
    em_store(e, SN_I64, att_scratch(e, p->gathers_offset), em_int_cast(e, less, e->i64));
    return att_end(e);
}

void att_strip_range(em *e, const att_plan *p, em_val head, em_val first, em_val end,
                     att_choices_args *c) {
    em_val tq = em_size_value(e, p->a->tq), v0, v1, v;
    att_block_vectors(e, p, tq, first, &v0, &v);
    att_block_vectors(e, p, tq, em_sub(e, end, 1), &v, &v1);
    c->batch = em_div(e, head, p->a->heads), c->head = em_rem(e, head, p->a->heads);
    c->q0 = em_mul(e, v0, p->lanes);
    c->n = em_sub(e, em_imin(e, em_mul(e, v1, p->lanes), tq), c->q0);
}

em_val att_strip_share(em *e, const att_plan *p, em_val blocks, em_val n) {
    em_val parts = em_select(e, em_cmp(e, EM_GT, n, 1), em_mul(e, n, 2), em_like(e, n, 1));
    em_val share = em_add(e, LLVMBuildUDiv(e->b, blocks, parts, ""), 1);
    return em_imin(e, share, p->strip_blocks);
}

em_val att_emit_list(em *e, const att_plan *p) {
    em_no_inline(e, att_list_function(e, att_name_of(p, "list").text));
    att_list_args q = att_list_params(e);
    att_use_context(e, q.buf, q.dim, q.scratch);
    em_val zero = em_like(e, q.n, 0), list = att_scratch(e, p->list_offset), no = em_i1(e, false);
    em_loop g = em_for(e, zero, em_ceil_div(e, q.n, GROUP), 1);
    em_val n = zero;
    em_carries(e, &g, &n, 1);
    em_val word = em_load(e, SN_I32, word_at(e, p, q.tile, g.i), 1);
    em_val some = em_and(e, word, em_i32(e, (1 << GROUP) - 1));
    em_val all = em_lshr(e, word, em_i32(e, GROUP)), group = em_int_cast(e, g.i, e->i32);
    em_loop l =
        em_for(e, zero, em_int_cast(e, em_unary_intrinsic(e, "llvm.ctpop", some), e->i64), 1);
    em_carries(e, &l, &some, 1);
    em_carries(e, &l, &n, 1);
    em_val args[] = {some, no};
    em_val bit = em_intrinsic(e, "llvm.cttz", &e->i32, 1, args, 2);
    em_val query = em_add(e, em_mul(e, group, em_i32(e, GROUP)), bit);
    em_val seen = em_and(e, em_lshr(e, all, bit), em_i32(e, 1));
    em_val entry = em_add(e, em_mul(e, query, em_i32(e, 2)), em_xor(e, seen, em_i32(e, 1)));
    em_store(e, SN_I32, em_gep(e, list, SN_I32, n), entry);
    some = em_and(e, some, em_sub(e, some, em_i32(e, 1)));
    n = em_add(e, n, 1);
    em_end(e, &l);
    em_end(e, &g);
    em_branch any = em_if(e, em_cmp(e, EM_GT, n, 0));
    em_val last = em_load(e, SN_I32, em_gep(e, list, SN_I32, em_sub(e, n, 1)), 1);
    for (int i = 0; i < p->qb; i++)
        em_store(e, SN_I32, em_gep(e, list, SN_I32, em_add(e, n, i)), last);
    em_endif(e, &any);
    em_val fn = e->fn;
    em_ret(e, n);
    return fn;
}

/* --- gathering -------------------------------------------------------------------------------- */

em_val att_listed(em *e, const att_plan *p, em_val at) {
    em_val list = att_scratch(e, p->list_offset);
    return em_load(e, SN_I32, em_gep(e, list, SN_I32, at), p->lanes);
}

em_val att_chosen_index(em *e, const att_plan *p, em_val v) {
    return em_gep(e, att_scratch(e, p->index_offset), SN_I32, em_mul(e, v, p->lanes));
}

em_val att_choose_queries(em *e, const att_plan *p, em_val v, em_val entries) {
    em_val one = em_like(e, entries, 1), zero = em_like(e, entries, 0);
    em_val partial = em_cmp(e, EM_NE, em_and(e, entries, one), zero);
    em_val index = em_ashr(e, entries, one);
    att_set_partial(e, p, v, att_any_lane(e, partial));
    em_store(e, SN_I32, att_chosen_index(e, p, v), index);
    return index;
}

void att_load_numbers(em *e, const att_plan *p, int64_t from, em_val index, em_val column) {
    att_store(e, p, em_gather(e, p->t, att_scratch(e, from), index, NULL), column);
}

void att_store_numbers(em *e, const att_plan *p, int64_t to, em_val index, em_val column) {
    em_val x = att_load(e, p, column);
    for (int i = 0; i < p->lanes; i++) {
        em_val at = em_gep(e, att_scratch(e, to), p->t, em_idx(e, em_extract(e, index, i)));
        em_store(e, p->t, at, em_extract(e, x, i));
    }
}
