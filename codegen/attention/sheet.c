/* sheet.c: dense biases, dense masks and the like, tables read at (.., q, .., k): rows of keys are
 * turned into columns of queries before a tile's scores are gone through; masks as bits
 * of 0 and 1. A line of each row is
 * read once, whole: rows lie a power of two apart where T is one, and would drive each other out of
 * the cache between visits. The next tile's lines are fetched a few at a time while scores are
 * computed. */
#include "codegen/attention/impl.h"

enum { PIECE = 4, LINE = 16 }; /* keys of a transpose; of a line of f32 */

/* k on the last, contiguous axis of a table of floats or truth values, q on another, the rest b, h
 * or constants. */
static bool is_sheet(const att_tables *t, const sn_attention_captured *c, const sn_node *n,
                     int piece, int *q_axis) {
    int last = n->n_in - 2, q_arg = t->first - 2, k_arg = t->first - 1;
    *q_axis = -1;
    bool fits = sn_dtype_is_float(c->dtype) || c->dtype == SN_BOOL;
    if (piece != PIECE || !fits || c->stride[last].slot >= 0) return false;
    for (int i = 0; i <= last; i++) {
        const sn_node *x = n->in[i + 1];
        int64_t arg = x->op == SN_OP_arg ? sn_attr_int(x, SN_A_index, -1) : -1;
        if (!att_surely_inside(t, x, c->shape[i])) return false;
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

/* What is laid from where. */
typedef struct sheet {
    const att_plan *p;
    const sn_attention_captured *c;
    em_val base, row[64]; /* key 0 of the tile; offsets of the lanes' rows */
    em_val to;
    int width, group; /* elements from a key to the next; keys are laid in whole groups */
} sheet;

static em_val row_at(em *e, const sheet *s, em_val k) {
    return em_gep(e, s->to, s->p->t, em_mul(e, k, em_i64(e, s->width)));
}

/* PIECE keys k .. of truth values, the bytes of one integer in each lane. */
static void store_truth(em *e, const sheet *s, em_val k, em_val x) {
    em_val byte = em_like(e, x, 255);
    for (int u = 0; u < PIECE; u++) {
        em_val bits = em_and(e, em_lshr(e, x, em_like(e, x, 8 * u)), byte);
        bits = em_bitcast(e, bits, e->vt);
        em_store(e, s->p->t, row_at(e, s, em_add(e, k, em_i64(e, u))), bits);
    }
}

static void lay_truth(em *e, const sheet *s, em_val k) {
    em_val x = em_splat(e, em_i32(e, 0), s->p->lanes);
    for (int i = 0; i < s->p->lanes; i++) {
        em_val from = em_gep(e, s->base, SN_BOOL, em_add(e, s->row[i], k));
        x = em_insert(e, x, em_load_raw(e, e->i32, from, 1), i);
    }
    store_truth(e, s, k, x);
}

/* Keys k .. k + n - 1, n a multiple of PIECE. */
static void lay_keys(em *e, const sheet *s, em_val k, int n) {
    const att_plan *p = s->p;
    em_val x[LINE / PIECE][PIECE], at[64];
    int groups = p->lanes / PIECE;
    for (int i = 0; i < p->lanes; i++)
        at[i] = em_gep(e, s->base, s->c->dtype, em_add(e, s->row[i], k));
    bool ahead = p->a->d < ATT_KEYS || p->derivative; /* else `scores` does it: att_sheet_ahead */
    for (int i = 0; i < p->lanes && n == LINE && ahead; i++)
        em_prefetch(e, em_gep(e, at[i], s->c->dtype, em_i64(e, ATT_KEYS)), false, 2);
    bool truth = s->c->dtype == SN_BOOL;
    if (truth && n == PIECE) {
        lay_truth(e, s, k);
        return;
    }
    int columns = truth ? 1 : n / PIECE; /* four truth values go together as one integer */
    for (int i = 0; i < PIECE; i++)
        for (int c = 0; c < columns; c++) {
            em_val part[16] = {NULL};
            for (int g = 0; g < groups; g++) {
                em_val from = em_gep(e, at[i + PIECE * g], s->c->dtype, em_i64(e, c * PIECE));
                part[g] = truth ? em_load_raw(e, em_vec(e->i32, PIECE), from, 1)
                                : em_load(e, s->c->dtype, from, PIECE);
            }
            x[c][i] = att_join(e, part, groups);
        }
    for (int c = 0; c < columns; c++) {
        att_transpose_pieces(e, p, x[c]);
        for (int i = 0; i < PIECE; i++)
            if (truth)
                store_truth(e, s, em_add(e, k, em_i64(e, PIECE * i)), x[c][i]);
            else
                em_store(e, p->t, row_at(e, s, em_add(e, k, em_i64(e, c * PIECE + i))), x[c][i]);
    }
}

/* Lines, then pieces, then keys; those beyond the last repeat it, as their scores do. */
static void lay_sheet(em *e, const sheet *s, em_val lo, em_val hi, em_val have) {
    static const int steps[] = {LINE, PIECE};
    em_val until = em_and(e, em_add(e, hi, em_i64(e, s->group - 1)), em_i64(e, -s->group));
    em_val end = em_imin(e, until, have), at = lo;
    for (int i = 0; i < 2; i++) {
        em_val count =
            em_and(e, em_imax(e, em_sub(e, end, at), em_i64(e, 0)), em_i64(e, -steps[i]));
        em_val stop = em_add(e, at, count);
        em_loop l = em_for(e, at, stop, em_i64(e, steps[i]));
        lay_keys(e, s, l.i, steps[i]);
        em_end(e, &l);
        at = stop;
    }
    em_loop l = em_for(e, at, until, em_i64(e, 1));
    bool truth = s->c->dtype == SN_BOOL;
    em_val k = em_imin(e, l.i, em_sub(e, have, em_i64(e, 1)));
    em_val x = truth ? em_splat(e, em_i32(e, 0), s->p->lanes) : em_vf(e, 0);
    for (int i = 0; i < s->p->lanes; i++) {
        em_val from = em_gep(e, s->base, s->c->dtype, em_add(e, s->row[i], k));
        em_val v = em_load(e, s->c->dtype, from, 1);
        x = em_insert(e, x, truth ? em_int_cast(e, v, e->i32) : v, i);
    }
    em_store(e, s->p->t, row_at(e, s, l.i), truth ? em_bitcast(e, x, e->vt) : x);
    em_end(e, &l);
}

static em_val sheet_place(em *e, const att_plan *p, int i) {
    int64_t bytes = (int64_t)ATT_SHEET_KEYS * p->lanes * p->esize;
    return att_scratch(e, p->sheet_at + i * bytes);
}

/* Fills in where key 0 of the table's row of query 0 is, for keys from k0 on; returns the distance
 * of rows in elements, NULL: n is laid by nobody. of: batch and head. */
static em_val find_table(em *e, const att_plan *p, const att_tables *t, const sn_node *n,
                         const em_val of[2], em_val k0, sheet *s) {
    int which, q_axis;
    *s = (sheet){.p = p, .width = p->lanes, .group = PIECE};
    if (n->op != SN_OP_at || !(s->c = att_captured_of(t, n, &which)) ||
        !is_sheet(t, s->c, n, p->piece, &q_axis))
        return NULL;
    em_val at = em_add(e, att_size(e, s->c->offset), k0);
    for (int i = 0; i < n->n_in - 2; i++) {
        const sn_node *x = n->in[i + 1];
        if (i == q_axis) continue;
        em_val index = x->op == SN_OP_const ? em_i64(e, (int64_t)sn_attr_flt(x, SN_A_value, 0))
                                            : of[sn_attr_int(x, SN_A_index, 0) - (t->first - 4)];
        at = em_add(e, at, em_mul(e, index, att_size(e, s->c->stride[i])));
    }
    s->base = em_gep(e, em_buf(e, s->c->buf), s->c->dtype, at);
    return att_size(e, s->c->stride[q_axis]);
}

/* step: of rows. Lane i is query q0 + i, or the last one. */
static void set_rows(em *e, sheet *s, em_val q0, em_val step) {
    em_val last = em_sub(e, att_size(e, s->p->a->tq), em_i64(e, 1));
    for (int i = 0; i < s->p->lanes; i++)
        s->row[i] = em_mul(e, em_imin(e, em_add(e, q0, em_i64(e, i)), last), step);
}

static void lay_region(att_region *r, att_sheets *all, em *e, const em_val of[2], em_val q0,
                       em_val k0, const em_val range[2]) {
    const att_plan *p = all->p;
    if (!r->used) return;
    r->tables.sheets = all;
    sn_order order = sn_region_topo(r->code.region->out[0]->m, r->code.region);
    for (int j = 0; j < order.n && all->n < ATT_SHEETS; j++) {
        sheet s;
        em_val step = find_table(e, p, &r->tables, order.node[j], of, k0, &s);
        if (!step) continue;
        set_rows(e, &s, q0, step);
        s.to = sheet_place(e, p, all->n);
        lay_sheet(e, &s, range[0], range[1], em_sub(e, att_size(e, p->a->tk), k0));
        all->node[all->n++] = order.node[j];
    }
}

/* The score's first read of a table that is laid. NULL: there is none */
static const sn_node *first_read(const att_tables *t, const att_plan *p) {
    sn_order order = {0};
    int which, q_axis;
    if (p->a->score) order = sn_region_topo(p->a->score->out[0]->m, p->a->score);
    for (int j = 0; j < order.n; j++) {
        const sn_node *n = order.node[j];
        const sn_attention_captured *c = n->op == SN_OP_at ? att_captured_of(t, n, &which) : NULL;
        if (c && is_sheet(t, c, n, p->piece, &q_axis)) return n;
    }
    return NULL;
}

static att_tables score_tables(em *e, const att_plan *p) {
    return (att_tables){.e = e, .a = p->a, .first = 5};
}

bool att_has_sheet(em *e, const att_plan *p) {
    att_tables t = score_tables(e, p);
    return first_read(&t, p) != NULL;
}

void att_sheet_ahead(em *e, const att_plan *p, const em_val of[2], em_val q0, em_val k0, em_val *at,
                     em_val *step) {
    att_tables t = score_tables(e, p);
    sheet s;
    em_val row = find_table(e, p, &t, first_read(&t, p), of, k0, &s);
    *at = em_gep(e, s.base, s.c->dtype, em_mul(e, q0, row));
    *step = em_mul(e, row, em_i64(e, (int64_t)sn_dtype_size(s.c->dtype)));
}

bool att_sheet_in_place(em *e, const att_plan *p, const sn_node *n, const em_val of[2], em_val q0,
                        em_val k0, const em_val range[2], em_val to) {
    att_tables t = score_tables(e, p);
    sheet s;
    em_val step = find_table(e, p, &t, n, of, k0, &s);
    if (!step || n->dtype == SN_BOOL) return false;
    set_rows(e, &s, q0, step);
    s.to = to, s.width = p->qb, s.group = ATT_GROUP;
    lay_sheet(e, &s, range[0], range[1], em_sub(e, att_size(e, p->a->tk), k0));
    return true;
}

void att_regions_sheets(att_regions *g, em *e, const att_plan *p, const em_val of[2], em_val q0,
                        em_val k0, const em_val range[2]) {
    g->sheets = (att_sheets){.p = p};
    lay_region(&g->score, &g->sheets, e, of, q0, k0, range);
    lay_region(&g->mask, &g->sheets, e, of, q0, k0, range);
}

em_val att_sheet_row(em *e, const att_sheets *s, const sn_node *n) {
    for (int i = 0; i < s->n; i++) {
        if (s->node[i] != n) continue;
        em_val at = em_mul(e, s->key, em_i64(e, s->p->lanes));
        em_val x =
            em_load(e, s->p->t, em_gep(e, sheet_place(e, s->p, i), s->p->t, at), s->p->lanes);
        if (n->dtype != SN_BOOL) return x;
        x = em_bitcast(e, x, em_vec(e->i32, s->p->lanes)); /* pieces of four: the type is f32 */
        return em_cmp(e, EM_NE, x, em_like(e, x, 0));
    }
    return NULL;
}
