/* bias_tile.c: tables that regions read at (.., q, .., k), such as dense biases and dense masks. The
 * part of a KV tile is transposed from rows of keys to [key][query] before the scores need it; bools
 * become words of 0 and 1. Each cache line of a row is read once, as a whole: where T is a power of
 * two, the rows are a power of two apart and would evict each other between visits. The qk
 * microkernel prefetches the lines of the next tile, a few at a time. */
#include "codegen/attention/impl.h"

enum { PIECE = 4, LINE = 16 }; /* keys of a transpose; keys of a cache line of f32 */

/* Whether n reads a table of floats or bools with k on the last, contiguous axis, q on another
 * axis, and b, h or constants on the rest. */
static bool is_query_key_table(const att_captured *t, const sn_attention_captured *c,
                               const sn_node *n, int piece, int *q_axis) {
    int last = n->n_in - 2, q_arg = t->first - 2, k_arg = t->first - 1;
    *q_axis = -1;
    bool fits = sn_dtype_is_float(c->dtype) || c->dtype == SN_BOOL;
    if (piece != PIECE || !fits || c->stride[last].slot >= 0) return false;
    for (int i = 0; i <= last; i++) {
        const sn_node *x = n->in[i + 1];
        int64_t arg = x->op == SN_OP_arg ? sn_attr_int(x, SN_A_index, -1) : -1;
        if (!att_index_in_range(t, x, c->shape[i])) return false;
        if (i == last && (arg != k_arg || c->stride[last].value != 1)) return false;
        if (i < last && arg == k_arg) return false;
        if (i < last && arg == q_arg) {
            if (*q_axis >= 0) return false;
            *q_axis = i;
        } else if (x->op != SN_OP_arg && x->op != SN_OP_const) {
            return false;
        }
    }
    return *q_axis >= 0;
}

/* Source and destination of a tile. */
typedef struct bias_tile {
    const att_plan *p;
    const sn_attention_captured *c;
    em_val base, row[64]; /* address of the tile's key 0; row offsets of the lanes */
    em_val dst;
    int width, group; /* elements between keys at dst; writes a multiple of `group` keys */
} bias_tile;

static em_val row_at(em *e, const bias_tile *s, em_val k) {
    return em_gep(e, s->dst, s->p->t, em_mul(e, k, s->width));
}

/* PIECE keys k .. of bools, which are the bytes of one integer in each lane. */
static void store_bools(em *e, const bias_tile *s, em_val k, em_val x) {
    em_val byte = em_like(e, x, 255);
    for (int u = 0; u < PIECE; u++) {
        em_val bits = em_and(e, em_lshr(e, x, em_like(e, x, 8 * u)), byte);
        bits = em_bitcast(e, bits, e->vt);
        em_store(e, s->p->t, row_at(e, s, em_add(e, k, u)), bits);
    }
}

static void transpose_bools(em *e, const bias_tile *s, em_val k) {
    em_val x = em_splat(e, em_i32(e, 0), s->p->lanes);
    for (int i = 0; i < s->p->lanes; i++) {
        em_val from = em_gep(e, s->base, SN_BOOL, em_add(e, s->row[i], k));
        x = em_insert(e, x, em_load_raw(e, e->i32, from, 1), i);
    }
    store_bools(e, s, k, x);
}

/* Keys k .. k + n - 1, n a multiple of PIECE. */
static void transpose_keys(em *e, const bias_tile *s, em_val k, int n) {
    const att_plan *p = s->p;
    em_val x[LINE / PIECE][PIECE], at[64];
    int groups = p->lanes / PIECE;
    for (int i = 0; i < p->lanes; i++)
        at[i] = em_gep(e, s->base, s->c->dtype, em_add(e, s->row[i], k));
    bool ahead = p->a->d < ATT_TILE_KEYS || p->derivative; /* else qk does it: att_bias_tile_next */
    for (int i = 0; i < p->lanes && n == LINE && ahead; i++)
        em_prefetch(e, em_gep(e, at[i], s->c->dtype, ATT_TILE_KEYS), false, 2);
    bool is_bool = s->c->dtype == SN_BOOL;
    if (is_bool && n == PIECE) {
        transpose_bools(e, s, k);
        return;
    }
    int columns = is_bool ? 1 : n / PIECE; /* four bools are moved as one integer */
    for (int i = 0; i < PIECE; i++)
        for (int c = 0; c < columns; c++) {
            em_val part[16] = {NULL};
            for (int g = 0; g < groups; g++) {
                em_val from = em_gep(e, at[i + PIECE * g], s->c->dtype, c * PIECE);
                part[g] = is_bool ? em_load_raw(e, em_vec(e->i32, PIECE), from, 1)
                                  : em_load(e, s->c->dtype, from, PIECE);
            }
            x[c][i] = att_join(e, part, groups);
        }
    for (int c = 0; c < columns; c++) {
        att_transpose_pieces(e, p, x[c]);
        for (int i = 0; i < PIECE; i++)
            if (is_bool)
                store_bools(e, s, em_add(e, k, PIECE * i), x[c][i]);
            else
                em_store(e, p->t, row_at(e, s, em_add(e, k, c * PIECE + i)), x[c][i]);
    }
}

/* Keys lo .. hi - 1, rounded up to whole groups: lines, then pieces, then single keys. Keys from
 * `have` on repeat the last one, as their scores do. */
static void transpose_rows(em *e, const bias_tile *s, em_val lo, em_val hi, em_val have) {
    static const int steps[] = {LINE, PIECE};
    em_val until = em_and(e, em_add(e, hi, s->group - 1), -s->group);
    em_val end = em_imin(e, until, have), at = lo;
    for (int i = 0; i < 2; i++) {
        em_val count = em_and(e, em_imax(e, em_sub(e, end, at), 0), -steps[i]);
        em_val stop = em_add(e, at, count);
        em_loop l = em_for(e, at, stop, steps[i]);
        transpose_keys(e, s, l.i, steps[i]);
        em_end(e, &l);
        at = stop;
    }
    em_loop l = em_for(e, at, until, 1);
    bool is_bool = s->c->dtype == SN_BOOL;
    em_val k = em_imin(e, l.i, em_sub(e, have, 1));
    em_val x = is_bool ? em_splat(e, em_i32(e, 0), s->p->lanes) : em_vf(e, 0);
    for (int i = 0; i < s->p->lanes; i++) {
        em_val from = em_gep(e, s->base, s->c->dtype, em_add(e, s->row[i], k));
        em_val v = em_load(e, s->c->dtype, from, 1);
        x = em_insert(e, x, is_bool ? em_int_cast(e, v, e->i32) : v, i);
    }
    em_store(e, s->p->t, row_at(e, s, l.i), is_bool ? em_bitcast(e, x, e->vt) : x);
    em_end(e, &l);
}

static em_val tile_pointer(em *e, const att_plan *p, int i) {
    int64_t bytes = (int64_t)ATT_BIAS_TILE_KEYS * p->lanes * p->esize;
    return att_scratch(e, p->bias_tile_offset + i * bytes);
}

/* Sets s->base for the table that n reads, to query 0 at key k0; returns the distance of rows in
 * elements. NULL: n reads no such table. of: batch and head. */
static em_val find_table(em *e, const att_plan *p, const att_captured *t, const sn_node *n,
                         const em_val of[2], em_val k0, bias_tile *s) {
    int which, q_axis;
    *s = (bias_tile){.p = p, .width = p->lanes, .group = PIECE};
    if (n->op != SN_OP_gather_nd || !(s->c = att_captured_tensor(t, n, &which)) ||
        !is_query_key_table(t, s->c, n, p->piece, &q_axis))
        return NULL;
    em_val at = em_add(e, em_size_value(e, s->c->offset), k0);
    for (int i = 0; i < n->n_in - 2; i++) {
        const sn_node *x = n->in[i + 1];
        if (i == q_axis) continue;
        em_val index = x->op == SN_OP_const ? em_i64(e, (int64_t)sn_attr_flt(x, SN_A_value, 0))
                                            : of[sn_attr_int(x, SN_A_index, 0) - (t->first - 4)];
        at = em_add(e, at, em_mul(e, index, em_size_value(e, s->c->stride[i])));
    }
    s->base = em_gep(e, em_buf(e, s->c->buf), s->c->dtype, at);
    return em_size_value(e, s->c->stride[q_axis]);
}

/* step: elements between rows. Lane i is query q0 + i, or the last one. */
static void set_rows(em *e, bias_tile *s, em_val q0, em_val step) {
    em_val last = em_sub(e, em_size_value(e, s->p->a->tq), 1);
    for (int i = 0; i < s->p->lanes; i++)
        s->row[i] = em_mul(e, em_imin(e, em_add(e, q0, i), last), step);
}

static void load_region_tiles(att_region *r, att_bias_tiles *all, em *e, const em_val of[2],
                              em_val q0, em_val k0, const em_val range[2]) {
    const att_plan *p = all->p;
    if (!r->used) return;
    r->captured.bias_tiles = all;
    sn_order order = sn_region_topo(r->code.region->out[0]->m, r->code.region);
    for (int j = 0; j < order.n && all->n < ATT_BIAS_TILES; j++) {
        bias_tile s;
        em_val step = find_table(e, p, &r->captured, order.node[j], of, k0, &s);
        if (!step) continue;
        set_rows(e, &s, q0, step);
        s.dst = tile_pointer(e, p, all->n);
        transpose_rows(e, &s, range[0], range[1], em_sub(e, em_size_value(e, p->a->tk), k0));
        all->node[all->n++] = order.node[j];
    }
}

/* The score's first read of such a table; NULL: there is none. */
static const sn_node *first_read(const att_captured *t, const att_plan *p) {
    sn_order order = {0};
    int which, q_axis;
    if (p->a->score) order = sn_region_topo(p->a->score->out[0]->m, p->a->score);
    for (int j = 0; j < order.n; j++) {
        const sn_node *n = order.node[j];
        const sn_attention_captured *c =
            n->op == SN_OP_gather_nd ? att_captured_tensor(t, n, &which) : NULL;
        if (c && is_query_key_table(t, c, n, p->piece, &q_axis)) return n;
    }
    return NULL;
}

static att_captured score_captured(em *e, const att_plan *p) {
    return (att_captured){.e = e, .a = p->a, .first = 5};
}

bool att_has_bias_tile(em *e, const att_plan *p) {
    att_captured t = score_captured(e, p);
    return first_read(&t, p) != NULL;
}

void att_bias_tile_next(em *e, const att_plan *p, const em_val of[2], em_val q0, em_val k0,
                        em_val *at, em_val *step) {
    att_captured t = score_captured(e, p);
    bias_tile s;
    em_val row = find_table(e, p, &t, first_read(&t, p), of, k0, &s);
    *at = em_gep(e, s.base, s.c->dtype, em_mul(e, q0, row));
    *step = em_mul(e, row, (int64_t)sn_dtype_size(s.c->dtype));
}

bool att_bias_in_place(em *e, const att_plan *p, const sn_node *n, const em_val of[2], em_val q0,
                       em_val k0, const em_val range[2], em_val dst) {
    att_captured t = score_captured(e, p);
    bias_tile s;
    em_val step = find_table(e, p, &t, n, of, k0, &s);
    if (!step || n->dtype == SN_BOOL) return false;
    set_rows(e, &s, q0, step);
    s.dst = dst, s.width = p->qb, s.group = ATT_SUBTILE_KEYS;
    transpose_rows(e, &s, range[0], range[1], em_sub(e, em_size_value(e, p->a->tk), k0));
    return true;
}

void att_load_bias_tiles(att_regions *g, em *e, const att_plan *p, const em_val of[2], em_val q0,
                         em_val k0, const em_val range[2]) {
    g->bias_tiles = (att_bias_tiles){.p = p};
    if (p->gathered) return; /* such queries read the table themselves */
    load_region_tiles(&g->score, &g->bias_tiles, e, of, q0, k0, range);
    load_region_tiles(&g->mask, &g->bias_tiles, e, of, q0, k0, range);
}

em_val att_bias_tile_row(em *e, const att_bias_tiles *s, const sn_node *n) {
    for (int i = 0; i < s->n; i++) {
        if (s->node[i] != n) continue;
        em_val at = em_mul(e, s->key, s->p->lanes);
        em_val x =
            em_load(e, s->p->t, em_gep(e, tile_pointer(e, s->p, i), s->p->t, at), s->p->lanes);
        if (n->dtype != SN_BOOL) return x;
        x = em_bitcast(e, x, em_vec(e->i32, s->p->lanes)); /* PIECE is 4, so the type is f32 */
        return em_cmp(e, EM_NE, x, em_like(e, x, 0));
    }
    return NULL;
}
