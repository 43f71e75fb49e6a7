/* mix.c: what kernels for mixed heads share: products of a tile of all heads with a matrix, what heads
 * see of a tile, work for the threads. */
#include "codegen/attention/mixed.h"

void att_load_matrix(em *e, const att_plan *p, const sn_head_matrix *w, bool transposed,
                     em_val to) {
    em_loop o = em_for(e, 0, p->a->heads, 1);
    em_loop h = em_for(e, 0, p->a->heads, 1);
    em_val row = transposed ? h.i : o.i, column = transposed ? o.i : h.i;
    em_val at = em_add(e, em_mul(e, row, em_size_value(e, w->row)),
                       em_mul(e, column, em_size_value(e, w->column)));
    em_val x = em_load(e, w->dtype, em_gep(e, em_buf(e, w->buf), w->dtype, at), 1);
    at = em_add(e, em_mul(e, h.i, p->a->heads), o.i);
    em_store(e, p->t, em_gep(e, to, p->t, at), x);
    em_end(e, &h);
    em_end(e, &o);
}

enum {
    UNROLL = 4, /* heads of an iteration */
    AHEAD = 8,  /* keys from the one at hand to the one that is prefetched */
    LINE = 64
};

/* Some rows of y at one key, at `at` of a head: rows o .. o + n - 1. */
typedef struct row_group {
    em_val at, o;
    int n, nv;
    bool fetches;       /* x of a key ahead is prefetched: weights of whole rows come from L3 */
    bool scales, keeps; /* x is multiplied by its factor, and kept in a->spare */
    bool kept;          /* x is in a->spare */
} row_group;

/* What head h adds to a group. */
static void add_head(em *e, const att_plan *p, const att_mix_args *a, const row_group *g, em_val h,
                     em_val *acc) {
    em_val column = em_mul(e, h, p->qb), x[ATT_NV];
    em_val from = em_gep(e, a->x, p->t, em_add(e, em_mul(e, h, att_mixed_head(p)), g->at));
    em_val factor = em_gep(e, a->factor, p->t, column), kept = em_gep(e, a->spare, p->t, column);
    em_val w = em_gep(e, a->w, p->t, em_add(e, em_mul(e, h, p->a->heads), g->o));
    for (int at = 0; g->fetches && at < g->nv * p->lanes * p->esize; at += LINE)
        em_prefetch(e, em_gep_bytes(e, from, (int64_t)AHEAD * p->qb * p->esize + at), false, 3);
    for (int v = 0; v < g->nv; v++) {
        em_val i = em_i64(e, v);
        x[v] = att_load(e, p, att_column(e, p, g->kept ? kept : from, i));
        if (g->scales) x[v] = em_mul(e, x[v], att_load(e, p, att_column(e, p, factor, i)));
        if (g->keeps) att_store(e, p, x[v], att_column(e, p, kept, i));
    }
    for (int i = 0; i < g->n; i++) {
        em_val s = em_load_splat(e, p->t, em_gep(e, w, p->t, i), p->lanes);
        tile_add(e, acc + i * g->nv, g->nv, s, x);
    }
}

static void emit_group(em *e, const att_plan *p, const att_mix_args *a, const row_group *g) {
    int heads = p->a->heads, whole = heads / UNROLL * UNROLL, n = g->n * g->nv;
    em_val acc[64];
    for (int i = 0; i < n; i++) acc[i] = em_vf(e, 0);
    if (whole) {
        em_loop h = em_for(e, 0, whole, UNROLL);
        em_carries(e, &h, acc, n);
        for (int u = 0; u < UNROLL; u++) add_head(e, p, a, g, em_add(e, h.i, u), acc);
        em_end(e, &h);
    }
    for (int h = whole; h < heads; h++) add_head(e, p, a, g, em_i64(e, h), acc);
    for (int i = 0; i < g->n; i++) {
        em_val row = em_mul(e, em_add(e, g->o, i), att_mixed_head(p));
        em_val to = em_gep(e, a->y, p->t, em_add(e, g->at, row));
        for (int v = 0; v < g->nv; v++)
            att_store(e, p, acc[i * g->nv + v], att_column(e, p, to, em_i64(e, v)));
    }
}

/* All rows of y at one key: groups of `rows` rows, and one of what is left. */
static void emit_key(em *e, const att_plan *p, const att_mix_args *a, bool scaled, int nv,
                     em_val key, int rows) {
    int heads = p->a->heads, whole = heads / rows * rows, first = scaled ? rows : 0;
    row_group g = {.at = em_mul(e, key, p->qb), .n = rows, .nv = nv};
    if (scaled) {
        row_group leader = g;
        leader.o = em_i64(e, 0);
        leader.scales = true, leader.keeps = rows < heads, leader.fetches = true;
        emit_group(e, p, a, &leader);
        g.kept = true;
    }
    if (first < whole) {
        em_loop o = em_for(e, first, whole, rows);
        g.o = o.i;
        emit_group(e, p, a, &g);
        em_end(e, &o);
    }
    g.o = em_i64(e, whole), g.n = heads - whole;
    if (g.n) emit_group(e, p, a, &g);
}

static void emit_scale(em *e, const att_plan *p, const att_mix_args *a, int nv, em_val key) {
    em_loop h = em_for(e, 0, p->a->heads, 1);
    em_val at = em_add(e, em_mul(e, h.i, att_mixed_head(p)), em_mul(e, key, p->qb));
    em_val factor = em_gep(e, a->factor, p->t, em_mul(e, h.i, p->qb));
    for (int v = 0; v < nv; v++) {
        em_val i = em_i64(e, v), x = att_load(e, p, att_column(e, p, em_gep(e, a->x, p->t, at), i));
        x = em_mul(e, x, att_load(e, p, att_column(e, p, factor, i)));
        att_store(e, p, x, att_column(e, p, em_gep(e, a->y, p->t, at), i));
    }
    em_end(e, &h);
}

em_val att_emit_mix(em *e, const att_plan *p, const att_mix_kind *k, int nv) {
    char suffix[32];
    snprintf(suffix, sizeof suffix, "%s%d", k->name, nv);
    att_mix_args a = att_mix_begin(e, p, suffix);
    int heads = p->a->heads, most = p->out_rows[nv] < heads ? p->out_rows[nv] : heads;
    int groups = (heads + most - 1) / most, rows = (heads + groups - 1) / groups;
    em_loop l = em_for(e, 0, a.keys, 1);
    if (k->matrix)
        emit_key(e, p, &a, k->scaled, nv, l.i, rows);
    else
        emit_scale(e, p, &a, nv, l.i);
    em_end(e, &l);
    return att_end(e);
}

bool att_check_mixed(const sn_attention_mixed *x, sn_dtype compute, sn_error *err) {
    const sn_attention *a = &x->a;
    if (a->gqa_ratio != 1 || a->sinks || a->rate > 0 || a->weights || a->row_scales)
        return sn_fail(err, SN_ERR_INTERNAL, "mixed attention: an option it does not have");
    if (a->k.dtype != compute || a->v.dtype != compute)
        return sn_fail(err, SN_ERR_INTERNAL, "mixed attention: k is %s and v %s, not %s",
                       sn_dtype_name(a->k.dtype), sn_dtype_name(a->v.dtype),
                       sn_dtype_name(compute));
    return true;
}

em_val att_mixed_visible_keys(em *e, const att_query_block *b, em_val k0, em_val n, em_val kinds) {
    const att_plan *p = b->p;
    em_loop g = em_for(e, 0, p->a->heads, 1);
    em_val keys = em_i64(e, 0);
    em_carries(e, &g, &keys, 1);
    em_var end = em_let(e, 0);
    att_classifier c;
    att_query_block of = *b;
    of.head = g.i;
    att_mask_begin(e, &of, &c);
    sn_interval sees = att_mask_tile(e, &of, &c, k0, n);
    em_val kind = em_select(e, sees.lo, SN_TILE_FULL, SN_TILE_PARTIAL);
    kind = em_select(e, sees.hi, kind, SN_TILE_SKIPPED);
    if (kinds) em_store(e, SN_I64, em_gep(e, kinds, p->t, em_mul(e, g.i, p->qb)), kind);
    em_branch some = em_if(e, sees.hi);
    att_mask_segments(e, &of, &c, k0, n, em_not(e, sees.lo));
    em_loop v = em_for(e, 0, b->nv, 1);
    em_val lo, hi;
    att_load_visible_keys(e, p, v.i, &lo, &hi);
    em_set(e, end, em_imax(e, em_get(e, end), hi));
    em_end(e, &v);
    em_endif(e, &some);
    keys = em_imax(e, keys, em_get(e, end));
    em_end(e, &g);
    return keys;
}

void att_mixed_deal(em *e, const att_plan *p, em_val fn, em_val items, em_val counter) {
    em_val all = em_mul(e, em_size_value(e, p->a->batch), items);
    em_val counts = LLVMBuildIsNotNull(e->b, counter, "");
    em_loop i = em_for(e, tile_take(e, counts, counter, 0), all, 1);
    em_val mine = tile_is_mine(e, i.i, e->nthreads, e->tid);
    em_branch here = em_if(e, LLVMBuildOr(e->b, counts, mine, ""));
    em_val at = em_sub(e, em_sub(e, all, 1), i.i);
    att_mixed_item_args args = {ATT_PASS_CONTEXT(e)};
    args.batch = em_div(e, at, items);
    args.index = em_rem(e, at, items);
    att_mixed_item_call(e, fn, args);
    em_endif(e, &here);
    i.step = em_sub(e, tile_take(e, counts, counter, em_add(e, i.i, 1)), i.i);
    em_end(e, &i);
}
