/* gradient.c: the gradient of a linear recurrence, in chunks of 8 elements as well. The cotangent R of the
 * state goes back from element to element:
 *
 *     R' = e^g R + a^T du + q^T dy,   dv = k R, du = b R, dk = v R^T, db = u R^T,   dq = dy S^T, da = du S^T
 *
 *     for each block of SN_REC_BLOCK elements, the last one first
 *         for each of its chunks: S before it, from the S before the block that was stored forward
 *         for each of its chunks, the last one first
 *             dv, du and R as in recurrence.c; dk, db of R, dq, da of S by transposed_read.c; dg
 *
 * R is a recurrence with queries k, keys q, values dy and the rule du = b R; its first element is the last.
 * The gradient of a log decay is the sum of the paths through the state that pass its element:
 *
 *     dg_t = row sums of R * e^g S
 *          = D (row sums of R * S at the chunk's ends) + those that begin in the chunk, end in it, or both
 *
 * Each part is a product of what is written, decays and what is read. So it is as small as the decays are;
 * a difference of sums, q dq - k dk, would keep the rounding errors of the paths that do not pass.
 *
 * The rows of R's tiles are in its own order: `flipped`. */
#include "codegen/recurrence/impl.h"

enum { CHUNKS = SN_REC_BLOCK / REC_CHUNK, LAST = REC_CHUNK - 1 };

typedef struct gradient {
    rec_space space;
    rec_plan s;        /* of the state; it has the operands and results */
    rec_plan r;        /* of its cotangent */
    rec_tile own;      /* [inner][cols]: the state before a chunk */
    rec_tile query, a; /* [CHUNK][inner] */
    rec_tile across; /* [1][inner], REC_ONE: its first element: the paths across the whole chunk */
    rec_tile dg;     /* [CHUNK][inner], REC_ONE: its first column */
    bool decays;     /* the gradient of decays is read */
    int64_t chunk;   /* elements of the tiles that each chunk has */
} gradient;

/* ---- plan ---- */

static void add_loads(gradient *g, const sn_recurrence *node) {
    rec_plan *s = &g->s;
    const int first = rec_update_row(s, 0), dy = sn_recurrence_dy(node);
    rec_add_load(s, SN_REC_K, REC_WHOLE, s->raw_keys[0].tile, 0, 0);
    if (s->decays == REC_ROWS) rec_add_load(s, SN_REC_G, REC_WHOLE, s->decay, 0, 0);
    rec_add_load(s, SN_REC_V, REC_COLUMNS, s->values_and_state, first, 0);
    if (s->n_update > 1) {
        rec_add_load(s, SN_REC_B, REC_WHOLE, s->raw_keys[1].tile, 0, 0);
        rec_add_load(s, dy + 1, REC_COLUMNS, s->values_and_state, 0, 0);
    }
    rec_add_load(s, SN_REC_Q, REC_WHOLE, g->query, 0, 0);
    if (node->delta) rec_add_load(s, SN_REC_A, REC_WHOLE, g->a, 0, 0);
    rec_add_load(s, dy, REC_COLUMNS, s->x[0].tile, 0, 0);
}

static void place_results(gradient *g, const sn_recurrence *node) {
    rec_rows *at = g->s.stored;
    at[SN_REC_DV] = (rec_rows){node->same ? g->r.out_u : g->r.out, 0, true};
    at[SN_REC_DQ] = (rec_rows){g->s.z, 0, false};
    at[SN_REC_DK] = (rec_rows){g->r.z, 0, true};
    if (node->delta) at[SN_REC_DA] = (rec_rows){g->s.z, REC_CHUNK, false};
    if (g->s.n_update > 1) at[SN_REC_DA + 1] = (rec_rows){g->r.z, REC_CHUNK, true};
    at[g->s.n_out - 1] = (rec_rows){g->dg, 0, false};
}

static void make(gradient *g, const sn_kernel *k, const sn_target *t) {
    *g = (gradient){.chunk = 0};
    rec_plan *s = &g->s, *r = &g->r;
    rec_plan_begin(s, &g->space, k, t);
    const sn_recurrence node = s->r;
    const bool two_keys = node.delta && !node.same;
    *r = *s;
    s->r.second = two_keys;
    s->r.delta = s->r.same = false;
    s->state_only = true;
    s->n_transposed = 1 + node.delta;
    rec_plan_tiles(s, REC_PER_CHUNK);
    s->decay = rec_place_decay(s, REC_PER_CHUNK);
    s->state = (rec_tile){0, s->cols, REC_BEFORE};
    s->next = (rec_tile){0, s->cols, REC_AFTER};
    g->own = rec_place(s, REC_PER_CHUNK, s->inner, s->cols);
    g->query = rec_place(s, REC_PER_CHUNK, REC_CHUNK, s->inner);
    if (node.delta) g->a = rec_place(s, REC_PER_CHUNK, REC_CHUNK, s->inner);
    for (int i = 0; i < s->n_update; i++)
        s->raw_keys[i].tile = rec_place(s, REC_PER_CHUNK, REC_CHUNK, s->inner);
    s->x[0].tile = rec_place(s, REC_PER_CHUNK, REC_CHUNK, s->cols);
    r->r.same = false;
    r->state_only = node.same;
    r->n_transposed = 1 + two_keys;
    r->order = node.reads == SN_READS_AFTER ? REC_READS_LATE : REC_READS_BEFORE;
    rec_plan_tiles(r, REC_PER_UNIT);
    r->state = r->next =
        rec_place(r, REC_PER_UNIT, r->inner, r->cols); /* follows `values_and_state` */
    r->decay = s->decay;
    r->flipped = true;
    r->raw_keys[0] = (rec_rows){g->query, 0, true};
    r->raw_keys[1] = (rec_rows){g->a, 0, true};
    r->x[0] = (rec_rows){s->values_and_state, rec_update_row(s, 0), true};
    r->x[1] = (rec_rows){s->values_and_state, 0, true};
    s->x[1] = (rec_rows){r->out_u, 0, true};
    g->dg = rec_place(s, REC_SHARED, REC_CHUNK, s->inner);
    g->across = rec_place(s, REC_SHARED, 1, s->inner);
    if (s->epilogue) s->epilogue_rows = rec_place(s, REC_SHARED, SN_REC_RESULTS, s->inner);
    g->chunk = g->space.used[REC_PER_CHUNK];
    s->block = SN_REC_BLOCK;
    s->group = rec_group_of(r, t);
    g->decays = s->epilogue || s->result[s->n_out - 1] >= 0;
    place_results(g, &node);
    add_loads(g, &node);
    rec_find_reads(s);
}

sn_dim rec_gradient_scratch(const sn_kernel *k, const sn_target *t) {
    gradient g;
    make(&g, k, t);
    const int64_t elements =
        g.space.used[REC_SHARED] + CHUNKS * g.chunk + g.s.group * g.space.used[REC_PER_UNIT];
    return sn_dim_const(k->m, elements * (int64_t)sn_dtype_size(g.s.t));
}

/* ---- tiles ---- */

static em_val load(em *e, const rec_plan *p, rec_tile tile, int row, em_val col) {
    return rec_load(e, p, rec_at(e, p, tile, row, col));
}

static void to_chunk(em *e, gradient *g, em_val i) {
    em_val first = em_add(e, em_mul(e, i, g->chunk), g->space.used[REC_SHARED]);
    g->space.base[REC_PER_CHUNK] = em_gep(e, e->scratch, g->s.t, first);
}

/* A chunk's rows, the last one first. */
static void flip(em *e, const rec_plan *p, rec_tile from, rec_tile to, int row, int64_t col,
                 int64_t n) {
    em_loop l = rec_for_vectors(e, p, n);
    for (int t = 0; t < REC_CHUNK; t++)
        rec_store(e, p, rec_at(e, p, to, row + LAST - t, em_add(e, l.i, col)),
                  load(e, p, from, t, l.i));
    em_end(e, &l);
}

/* ---- the state ---- */

/* The keys times the decays of the elements after them, and the product of all decays. */
static void decay_keys(em *e, const rec_plan *p) {
    em_loop l = rec_for_vectors(e, p, p->inner);
    em_val total = em_vf(e, 1), odd[REC_PAIRS] = {NULL};
    for (int t = LAST; t >= 0; t--) {
        for (int pair = 0; pair < p->n_update; pair++) {
            em_val x = em_mul(e, rec_row(e, p, p->raw_keys[pair], t, l.i), total);
            rec_store_key(e, p, rec_update_row(p, pair) + t, l.i, x, t % 2 ? NULL : odd[pair]);
            odd[pair] = x;
        }
        total = em_mul(e, total, rec_decay(e, p, t, l.i));
    }
    if (p->decays == REC_ROWS)
        rec_store(e, p, rec_at(e, p, p->total, 0, l.i), total);
    else
        em_store(e, p->t, rec_at(e, p, p->total, 0, 0), em_extract(e, total, 0));
    em_end(e, &l);
}

static void load_chunk(em *e, const rec_plan *p, const rec_unit *u) {
    rec_load_elements(e, p, u);
    if (p->decays == REC_ONE) rec_exp_decays(e, p);
}

static void update(em *e, const rec_plan *p, const rec_unit *u, rec_prefetch *ahead) {
    decay_keys(e, p);
    rec_join_values(e, p);
    for (int v = 0, n; v < p->cols / p->lanes; v += n)
        rec_emit_y(e, p, u, ahead, v, n = rec_vectors_at(e, p, v));
}

/* Chunk c of the block; the state before it. */
static void begin_chunk(em *e, gradient *g, rec_unit *u, em_val block, em_val c) {
    to_chunk(e, g, em_add(e, c, 1));
    g->space.base[REC_AFTER] = rec_at(e, &g->s, g->own, 0, 0);
    to_chunk(e, g, c);
    g->space.base[REC_BEFORE] = rec_at(e, &g->s, g->own, 0, 0);
    u->chunk = em_add(e, block, em_mul(e, c, REC_CHUNK));
}

/* The elements of the block's n chunks, and the state before each of them. */
static void begin_block(em *e, gradient *g, rec_unit *u, em_val block, em_val n) {
    rec_prefetch none = {.n = 0};
    to_chunk(e, g, em_i64(e, 0));
    rec_load_saved(e, &g->s, u, SN_REC_START, block, g->own);
    em_loop c = em_for(e, 0, n, 1);
    begin_chunk(e, g, u, block, c.i);
    load_chunk(e, &g->s, u);
    em_branch more = em_if(e, em_cmp(e, EM_LT, em_add(e, c.i, 1), n));
    update(e, &g->s, u, &none);
    em_endif(e, &more);
    em_end(e, &c);
}

/* ---- its cotangent ---- */

/* What R reads and adds, as far as the tiles of S do not serve. */
static void take_rows(em *e, const gradient *g) {
    const rec_plan *s = &g->s, *r = &g->r;
    const int q = rec_update_row(r, 0);
    if (!r->state_only) flip(e, s, s->raw_keys[0].tile, r->weights_y, 0, r->update_rows, s->inner);
    if (r->r.delta)
        flip(e, s, s->raw_keys[s->n_update - 1].tile, r->weights_u, 0, r->update_rows, s->inner);
    if (r->r.delta) flip(e, s, g->a, r->key, 0, 0, s->inner);
    flip(e, s, g->query, r->key, q, 0, s->inner);
    flip(e, s, s->x[0].tile, r->values_and_state, q, 0, s->cols);
}

/* ---- the gradient of decays ---- */

/* R * S at the chunk's ends: the sums of n rows from `row` on, as one vector of lanes for each. */
static void multiply_rows(em *e, const gradient *g, em_val row, em_val *sum) {
    em_loop l = rec_for_vectors(e, &g->s, g->s.cols);
    em_carries(e, &l, sum, REC_CHUNK);
    for (int i = 0; i < REC_CHUNK; i++) {
        em_val k = em_add(e, row, i), s = rec_load(e, &g->s, rec_at(e, &g->s, g->s.state, k, l.i)),
               r = rec_load(e, &g->r, rec_at(e, &g->r, g->r.state, k, l.i));
        tile_add(e, &sum[i], 1, s, &r);
    }
    em_end(e, &l);
}

/* The paths that pass the whole chunk. */
static void cross(em *e, const gradient *g) {
    const rec_plan *r = &g->r;
    const bool one = r->decays == REC_ONE;
    em_val sum[REC_CHUNK];
    em_loop l = em_for(e, 0, r->inner, REC_CHUNK);
    for (int i = 0; i < REC_CHUNK; i++) sum[i] = em_vf(e, 0);
    if (one) em_carries(e, &l, sum, REC_CHUNK);
    multiply_rows(e, g, l.i, sum);
    if (!one) {
        em_val d = em_load(e, r->t, rec_at(e, r, r->total, 0, l.i), REC_CHUNK);
        em_store(e, r->t, rec_at(e, r, g->across, 0, l.i),
                 em_mul(e, rec_sum_lanes(e, sum, REC_CHUNK), d));
    }
    em_end(e, &l);
    if (!one) return;
    for (int i = 1; i < REC_CHUNK; i++) sum[0] = em_add(e, sum[0], sum[i]);
    em_val d = em_load(e, r->t, rec_at(e, r, r->total, 0, 0), 1);
    em_store(e, r->t, rec_at(e, r, g->across, 0, 0), em_mul(e, em_reduce(e, EM_SUM, sum[0]), d));
}

/* Those, and the paths that begin in the chunk and leave it, as z of R has them by now. */
static void leave(em *e, const gradient *g) {
    const rec_plan *s = &g->s, *r = &g->r;
    em_loop l = rec_for_vectors(e, s, s->inner);
    em_val sum = s->decays == REC_ROWS ? load(e, s, g->across, 0, l.i) : em_vf(e, 0);
    for (int t = 0; t < REC_CHUNK; t++) {
        rec_store(e, s, rec_at(e, s, g->dg, t, l.i), sum);
        for (int pair = 0; pair < s->n_update; pair++)
            tile_add(e, &sum, 1, rec_row(e, s, s->raw_keys[pair], t, l.i),
                     (em_val[]){load(e, r, r->z, pair * REC_CHUNK + LAST - t, l.i)});
    }
    em_end(e, &l);
}

/* Columns of a chunk: keys of a pair, which decay element after element. */
typedef struct columns {
    em_val col, key[REC_CHUNK], dg[REC_CHUNK];
    int pair;
} columns;

/* The i-th z of element t: adds what it has of the first n keys. It also has ends of paths: each, times
 * the vector that is multiplied by z, counts for the elements that it passed, which are the first n, too:
 * number j for what was written before it. */
static void read_keys(em *e, const gradient *g, columns *c, int i, int t, int n) {
    const rec_plan *s = &g->s;
    const int row = i * REC_CHUNK + t;
    em_val to = rec_at(e, s, s->z, row, c->col), sum = c->pair ? em_vf(e, 0) : rec_load(e, s, to),
           by = load(e, s, i ? g->a : g->query, t, c->col);
    for (int j = 0; j < n; j++) {
        em_val weight = rec_at(e, s, s->read, rec_update_row(s, c->pair) + j, em_i64(e, row));
        if (g->decays) tile_add(e, &c->dg[j], 1, by, &sum);
        tile_add(e, &sum, 1, em_load_splat(e, s->t, weight, s->lanes), &c->key[j]);
    }
    rec_store(e, s, to, c->pair ? em_add(e, rec_load(e, s, to), sum) : sum);
}

static void read_pair(em *e, const gradient *g, columns *c) {
    const rec_plan *s = &g->s;
    for (int j = 0; j < REC_CHUNK; j++) c->key[j] = rec_row(e, s, s->raw_keys[c->pair], j, c->col);
    for (int t = 0; t < REC_CHUNK; t++) {
        for (int i = 0; i < s->n_transposed; i++)
            if (!rec_reads_after(s, i)) read_keys(e, g, c, i, t, t);
        em_val d = rec_decay(e, s, t, c->col);
        for (int j = 0; j < t; j++) c->key[j] = em_mul(e, c->key[j], d);
        for (int i = 0; i < s->n_transposed; i++)
            if (rec_reads_after(s, i)) read_keys(e, g, c, i, t, t + 1);
    }
}

/* dq and da, and the gradient of decays. */
static void read_all_keys(em *e, const gradient *g) {
    const rec_plan *s = &g->s;
    const bool one = s->decays == REC_ONE && g->decays;
    em_val sum[REC_CHUNK];
    em_loop l = rec_for_vectors(e, s, s->inner);
    columns c = {.col = l.i};
    for (int t = 0; t < REC_CHUNK; t++) sum[t] = em_vf(e, 0);
    if (one) em_carries(e, &l, sum, REC_CHUNK);
    for (int t = 0; t < REC_CHUNK && g->decays; t++) c.dg[t] = load(e, s, g->dg, t, l.i);
    for (c.pair = 0; c.pair < s->n_update; c.pair++) read_pair(e, g, &c);
    for (int t = 0; t < REC_CHUNK && g->decays; t++)
        if (one)
            sum[t] = em_add(e, sum[t], c.dg[t]);
        else
            rec_store(e, s, rec_at(e, s, g->dg, t, l.i), c.dg[t]);
    em_end(e, &l);
    if (!one) return;
    em_val across = em_load(e, s->t, rec_at(e, s, g->across, 0, 0), 1),
           all = em_add(e, rec_sum_lanes(e, sum, REC_CHUNK), em_splat(e, across, REC_CHUNK));
    for (int t = 0; t < REC_CHUNK; t++)
        em_store(e, s->t, rec_at(e, s, g->dg, t, 0), em_extract(e, all, t));
}

/* ---- the kernel ---- */

static void emit_chunk(em *e, const gradient *g, const rec_unit *u) {
    rec_prefetch ahead;
    const rec_plan *s = &g->s, *r = &g->r;
    const int vectors = (int)(r->cols / r->lanes);
    rec_prefetch_begin(e, s, u, rec_n_views(s), rec_work(s) - rec_update_work(s) + rec_work(r),
                       &ahead);
    take_rows(e, g);
    rec_emit_weights(e, r);
    rec_join_values(e, r);
    for (int v = 0, n; v < vectors; v += n)
        rec_emit_u(e, r, u, &ahead, v, n = rec_vectors_at(e, r, v));
    rec_emit_read(e, r, &ahead);
    if (g->decays) cross(e, g);
    if (g->decays) leave(e, g);
    rec_emit_keys(e, r);
    rec_emit_read(e, s, &ahead);
    read_all_keys(e, g);
    for (int v = 0, n; v < vectors; v += n)
        rec_emit_y(e, r, u, &ahead, v, n = rec_vectors_at(e, r, v));
    rec_store_elements(e, s, u);
}

static void emit_block(em *e, gradient *g, rec_unit *u, em_val block) {
    em_val left = em_add(e, em_sub(e, u->T, block), LAST),
           n = em_imin(e, em_div(e, left, REC_CHUNK), CHUNKS);
    begin_block(e, g, u, block, n);
    em_loop l = em_for(e, 0, n, 1);
    em_val c = em_sub(e, em_sub(e, n, 1), l.i);
    begin_chunk(e, g, u, block, c);
    emit_chunk(e, g, u);
    em_end(e, &l);
}

static void emit_group(em *e, gradient *g, rec_unit *u, em_val first, em_val n) {
    em_loop each = rec_for_units(e, &g->s, u, first, n);
    rec_load_state(e, &g->r, u, g->s.k->step->n_in - 1, g->r.state);
    rec_join_state(e, &g->r);
    em_end(e, &each);
    em_val blocks = em_div(e, em_add(e, u->T, SN_REC_BLOCK - 1), SN_REC_BLOCK);
    em_loop back = em_for(e, 0, blocks, 1);
    em_val block = em_mul(e, em_sub(e, em_sub(e, blocks, 1), back.i), SN_REC_BLOCK);
    each = rec_for_units(e, &g->s, u, first, n);
    rec_find_next(e, &g->s, u, first, each.i, n, true);
    emit_block(e, g, u, block);
    em_end(e, &each);
    em_end(e, &back);
    each = rec_for_units(e, &g->s, u, first, n);
    rec_store_state(e, &g->r, u);
    em_end(e, &each);
}

void rec_emit_gradient(em *e, const sn_kernel *k) {
    gradient g;
    rec_unit u = {.columns = NULL};
    em_val lo, hi, items;
    make(&g, k, e->target);
    em_kernel(e, k->name);
    items = em_i64(e, 1);
    for (int a = 0; a < g.s.r.n_lead; a++)
        items = em_mul(e, items, sn_kernel_dim(e, k, k->step->in[SN_REC_START].shape[a]));
    em_share(e, items, &lo, &hi);
    u.T = sn_kernel_dim(e, k, k->step->out[0].shape[0]);
    g.space.base[REC_SHARED] = e->scratch;
    g.space.units = em_gep(e, e->scratch, g.s.t, g.space.used[REC_SHARED] + CHUNKS * g.chunk);
    g.space.unit_bytes = em_i64(e, g.space.used[REC_PER_UNIT] * (int64_t)sn_dtype_size(g.s.t));
    em_loop group = em_for(e, lo, hi, g.s.group);
    emit_group(e, &g, &u, group.i, em_imin(e, em_sub(e, hi, group.i), g.s.group));
    em_end(e, &group);
    em_end_kernel(e);
}
