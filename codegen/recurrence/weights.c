/* weights.c: what the elements of a chunk see of each other: weights, which are products of q and a with
 * earlier keys that have decayed since, and the decays that each vector states into the products.
 * Decays of rows are applied to the keys in registers, element after element, and read in between. One
 * decay of all rows is a factor of the weights. */
#include "codegen/emit/vmath.h"
#include "codegen/recurrence/impl.h"

enum { GROUP = 4 /* keys in registers */, MAX_VECTORS = 4 /* vectors of each */ };

/* y reads the state after the decay of its own element. */
static bool is_late(const rec_plan *p) {
    return p->order == REC_READS_AFTER;
}

/* ---- sums of lanes ---- */

/* Adds lanes `half` apart: the sums of a where that bit of a lane's number is 0, and those of b. A blend
 * and a shuffle. */
static em_val fold(em *e, em_val a, em_val b, int half) {
    int n = em_lanes_of(a), here[256], there[256];
    for (int i = 0; i < n; i++) {
        here[i] = i & half ? n + i : i;
        there[i] = here[i] ^ half;
    }
    return em_add(e, em_shuffle(e, a, b, here, n), em_shuffle(e, a, b, there, n));
}

em_val rec_sum_lanes(em *e, const em_val *v, int n) {
    const int lanes = em_lanes_of(v[0]);
    int m = n, lane[REC_CHUNK];
    em_val x[REC_CHUNK];
    for (int i = 0; i < n; i++) x[i] = v[i];
    for (int half = lanes / 2; half; half /= 2) {
        const int other = m > 1 ? m /= 2 : 0;
        for (int i = 0; i < m; i++) x[i] = fold(e, x[i], x[i + other], half);
    }
    /* the sum of v[i] is in lane i / m of x[i % m], or every so many lanes */
    for (int i = 0; i < n; i++) lane[i] = m > 1 ? i % m * lanes + i / m : i * lanes / n;
    for (; m > 1; m /= 2)
        for (int i = 0; i < m / 2; i++) x[i] = em_concat(e, x[2 * i], x[2 * i + 1]);
    return em_shuffle(e, x[0], x[0], lane, n);
}

/* The first n lanes of x, of others the rest. */
static em_val first_lanes(em *e, em_val x, int n, em_val others) {
    int lane[REC_CHUNK];
    if (n <= 0 || n >= REC_CHUNK) return n <= 0 ? others : x;
    for (int i = 0; i < REC_CHUNK; i++) lane[i] = i < n ? i : REC_CHUNK + i;
    return em_shuffle(e, x, others, lane, REC_CHUNK);
}

static em_type chunk_type(em *e, const rec_plan *p) {
    return em_vec(em_mem_type(e, p->t), REC_CHUNK);
}

/* Weights of a pair in y or u of element t: the first n. Those of u's own rows are for the substitution. */
static void store_weights(em *e, const rec_plan *p, bool of_u, int pair, int t, em_val w, int n) {
    const rec_tile left = of_u ? p->weights_u : p->weights_y;
    em_val col = em_i64(e, rec_update_row(p, pair));
    w = first_lanes(e, w, n, em_zero(chunk_type(e, p)));
    if (of_u && !rec_update_row(p, pair))
        em_store(e, p->t, rec_at(e, p, left, t, col), w);
    else
        rec_store_left(e, p, left, t, col, w);
}

/* ---- one decay of all rows ---- */

/* Products of vectors t0, t0 + 1 of tile `weights_y` with the first n keys of a pair. */
static void multiply(em *e, const rec_plan *p, rec_tile left, int pair, int t0, int n,
                     em_val *product) {
    em_val acc[2][REC_CHUNK];
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < REC_CHUNK; j++) acc[i][j] = em_vf(e, 0);
    for (int j0 = 0; j0 < n; j0 += GROUP) {
        em_loop l = rec_for_vectors(e, p, p->inner);
        for (int i = 0; i < 2; i++) em_carries(e, &l, &acc[i][j0], GROUP);
        em_val x[2], col = em_add(e, l.i, p->update_rows);
        for (int i = 0; i < 2; i++) x[i] = rec_load(e, p, rec_at(e, p, left, t0 + i, col));
        for (int j = 0; j < GROUP; j++) {
            int row = rec_update_row(p, pair) + j0 + j;
            em_val k = rec_load(e, p, rec_at(e, p, p->key, row, l.i));
            for (int i = 0; i < 2; i++) tile_add(e, &acc[i][j0 + j], 1, x[i], &k);
        }
        em_end(e, &l);
    }
    for (int i = 0; i < 2; i++) product[i] = rec_sum_lanes(e, acc[i], REC_CHUNK);
}

/* The products of `weights_y`'s vectors with a pair's keys, of CHUNK elements; n: how many count. */
static void multiply_all(em *e, const rec_plan *p, rec_tile left, int pair, const int *n,
                         em_val *product) {
    for (int t = 0; t < REC_CHUNK; t += 2) {
        int most = n[t] > n[t + 1] ? n[t] : n[t + 1];
        multiply(e, p, left, pair, t, most, product + t);
    }
}

enum { OF_Q, OF_A, OF_KEYS };

static em_val factor_at(em *e, const rec_plan *p, int which, int t) {
    return rec_at(e, p, p->factors, which, t);
}

/* Row `first` + t of a tile times a factor. */
static em_val scaled(em *e, const rec_plan *p, rec_tile tile, int first, int t, em_val col,
                     int which) {
    em_val by = em_load_splat(e, p->t, factor_at(e, p, which, t), p->lanes);
    return em_mul(e, rec_load(e, p, rec_at(e, p, tile, first + t, col)), by);
}

static void scale_left(em *e, const rec_plan *p, rec_tile tile, int which) {
    em_loop l = rec_for_vectors(e, p, p->inner);
    em_val col = em_add(e, l.i, p->update_rows);
    for (int t = 0; t < REC_CHUNK; t++)
        rec_store_left(e, p, tile, t, col, scaled(e, p, tile, 0, t, col, which));
    em_end(e, &l);
}

static void scale_keys(em *e, const rec_plan *p, int pair) {
    const int first = rec_update_row(p, pair), which = OF_KEYS + pair;
    em_val x[REC_CHUNK];
    em_loop l = rec_for_vectors(e, p, p->inner);
    for (int t = 0; t < REC_CHUNK; t++) {
        x[t] = scaled(e, p, p->key, first, t, l.i, which);
        rec_store_key(e, p, first + t, l.i, x[t], t % 2 ? x[t - 1] : NULL);
    }
    em_end(e, &l);
}

/* Weights of a pair: products times the decays since. */
static void weigh_by_one(em *e, const rec_plan *p, int pair, em_val decays) {
    em_val y[REC_CHUNK], u[REC_CHUNK], since = em_like(e, decays, 1);
    int seen[REC_CHUNK], by_u[REC_CHUNK];
    for (int t = 0; t < REC_CHUNK; t++) {
        seen[t] = rec_n_visible(p, pair, t);
        by_u[t] = rec_n_visible_to_u(p, pair, t);
    }
    if (!p->state_only) multiply_all(e, p, p->weights_y, pair, seen, y);
    if (p->r.delta) multiply_all(e, p, p->weights_u, pair, by_u, u);
    for (int t = 0; t < REC_CHUNK; t++) {
        em_val d = em_splat(e, em_extract(e, decays, t), REC_CHUNK), before = since;
        since = first_lanes(e, em_mul(e, since, d), rec_n_decayed(p, pair, t), since);
        if (!p->state_only)
            store_weights(e, p, false, pair, t, em_mul(e, y[t], is_late(p) ? since : before),
                          seen[t]);
        if (p->r.delta) store_weights(e, p, true, pair, t, em_mul(e, u[t], before), by_u[t]);
    }
    em_store(e, p->t, factor_at(e, p, OF_KEYS + pair, 0), since);
    scale_keys(e, p, pair);
}

void rec_exp_decays(em *e, const rec_plan *p) {
    em_val at = rec_at(e, p, p->decay, 0, 0);
    em_store(e, p->t, at, sn_vmath_emit(e, SN_V_EXP, em_load(e, p->t, at, REC_CHUNK)));
}

static void weigh_one(em *e, const rec_plan *p) {
    em_val decays = rec_all_decays(e, p), total = em_f(e, 1);
    for (int pair = 0; pair < p->n_update; pair++) weigh_by_one(e, p, pair, decays);
    for (int t = 0; t < REC_CHUNK; t++) {
        em_val before = total;
        total = em_mul(e, total, em_extract(e, decays, t));
        em_store(e, p->t, factor_at(e, p, OF_Q, t), is_late(p) ? total : before);
        em_store(e, p->t, factor_at(e, p, OF_A, t), before);
    }
    em_store(e, p->t, rec_at(e, p, p->total, 0, 0), total);
    if (!p->state_only) scale_left(e, p, p->weights_y, OF_Q);
    if (p->r.delta) scale_left(e, p, p->weights_u, OF_A);
}

/* ---- decays of rows ---- */

static em_val sum_at(em *e, const rec_plan *p, bool of_u, int t, int j) {
    return rec_at(e, p, p->sums, of_u * REC_CHUNK + t, em_i64(e, j));
}

/* Vectors of each row in registers. */
static int vectors_at_once(em *e, const rec_plan *p) {
    int n = e->target->vector_regs < 32 ? MAX_VECTORS / 2 : MAX_VECTORS;
    while (p->inner % ((int64_t)n * p->lanes)) n /= 2;
    return n;
}

/* A group of keys of a pair, of n columns each from column `first` on. */
typedef struct group {
    int pair, j0, n;
    bool begins; /* these are the first columns of the rows */
    em_val key[GROUP][MAX_VECTORS], col[MAX_VECTORS];
} group;

static void load_columns(em *e, const rec_plan *p, const group *g, rec_tile tile, int row,
                         int64_t first, em_val *v) {
    for (int w = 0; w < g->n; w++)
        v[w] = rec_load(e, p, rec_at(e, p, tile, row, em_add(e, g->col[w], first)));
}

/* Adds the products of row t of the left factor with the keys that y or u of element t sees. */
static void weigh(em *e, const rec_plan *p, const group *g, bool of_u, int t) {
    const int n = of_u ? rec_n_visible_to_u(p, g->pair, t) : rec_n_visible(p, g->pair, t);
    em_val x[MAX_VECTORS], sum[GROUP], to = sum_at(e, p, of_u, t, g->j0);
    if (g->j0 >= n) return;
    load_columns(e, p, g, of_u ? p->weights_u : p->weights_y, t, p->update_rows, x);
    for (int j = 0; j < GROUP; j++) {
        sum[j] = g->j0 + j < n ? NULL : em_vf(e, 0);
        for (int w = 0; w < g->n && g->j0 + j < n; w++)
            tile_add(e, &sum[j], 1, x[w], &g->key[j][w]);
    }
    em_val all = rec_sum_lanes(e, sum, GROUP);
    em_store(e, p->t, to, g->begins ? all : em_add(e, em_load(e, p->t, to, GROUP), all));
}

/* The keys decay element after element, read in between. */
static void decay_columns(em *e, const rec_plan *p, group *g, em_val first) {
    const int row = rec_update_row(p, g->pair) + g->j0;
    em_val d[MAX_VECTORS];
    for (int w = 0; w < g->n; w++) g->col[w] = em_add(e, first, (int64_t)w * p->lanes);
    for (int j = 0; j < GROUP; j++) load_columns(e, p, g, p->key, row + j, 0, g->key[j]);
    for (int t = g->j0; t < REC_CHUNK; t++) {
        for (int w = 0; w < g->n; w++) d[w] = rec_decay(e, p, t, g->col[w]);
        if (p->r.delta) weigh(e, p, g, true, t);
        if (!p->state_only && !is_late(p)) weigh(e, p, g, false, t);
        for (int j = 0; j < GROUP && g->j0 + j < rec_n_decayed(p, g->pair, t); j++)
            for (int w = 0; w < g->n; w++) g->key[j][w] = em_mul(e, g->key[j][w], d[w]);
        if (!p->state_only && is_late(p)) weigh(e, p, g, false, t);
    }
    for (int j = 0; j < GROUP; j++)
        for (int w = 0; w < g->n; w++)
            rec_store_key(e, p, row + j, g->col[w], g->key[j][w], j % 2 ? g->key[j - 1][w] : NULL);
}

/* Keys j0 .. j0 + GROUP - 1 of a pair. */
static void decay_keys(em *e, const rec_plan *p, int pair, int j0) {
    group g = {.pair = pair, .j0 = j0, .n = vectors_at_once(e, p), .begins = true};
    const int64_t each = (int64_t)g.n * p->lanes;
    decay_columns(e, p, &g, em_i64(e, 0));
    if (p->inner == each) return;
    g.begins = false;
    em_loop l = em_for(e, each, p->inner, each);
    decay_columns(e, p, &g, l.i);
    em_end(e, &l);
}

static void store_sums(em *e, const rec_plan *p, bool of_u, int pair, int t, int n) {
    em_val all = em_load(e, p->t, sum_at(e, p, of_u, t, 0), REC_CHUNK);
    store_weights(e, p, of_u, pair, t, all, n);
}

/* q and a times the decays that the state at the chunk's beginning has by then. */
static void decay_rows(em *e, const rec_plan *p) {
    em_loop l = rec_for_vectors(e, p, p->inner);
    em_val total = em_vf(e, 1), col = em_add(e, l.i, p->update_rows);
    for (int t = 0; t < REC_CHUNK; t++) {
        em_val before = total;
        total = em_mul(e, total, rec_decay(e, p, t, l.i));
        if (!p->state_only) {
            em_val q = rec_load(e, p, rec_at(e, p, p->weights_y, t, col));
            rec_store_left(e, p, p->weights_y, t, col, em_mul(e, q, is_late(p) ? total : before));
        }
        if (!p->r.delta) continue;
        em_val a = rec_load(e, p, rec_at(e, p, p->weights_u, t, col));
        rec_store_left(e, p, p->weights_u, t, col, em_mul(e, a, before));
    }
    rec_store(e, p, rec_at(e, p, p->total, 0, l.i), total);
    em_end(e, &l);
}

static void weigh_rows(em *e, const rec_plan *p) {
    for (int pair = 0; pair < p->n_update; pair++) {
        for (int j = 0; j < REC_CHUNK; j += GROUP) decay_keys(e, p, pair, j);
        for (int t = 0; t < REC_CHUNK; t++) {
            if (!p->state_only) store_sums(e, p, false, pair, t, rec_n_visible(p, pair, t));
            if (p->r.delta) store_sums(e, p, true, pair, t, rec_n_visible_to_u(p, pair, t));
        }
    }
    decay_rows(e, p);
}

void rec_emit_weights(em *e, const rec_plan *p) {
    if (p->decays == REC_ONE)
        weigh_one(e, p);
    else
        weigh_rows(e, p);
}
