/* views.c: the operands and the result of attention found in plain operations, as views: q
 * [B,H,Tq,d], k and v [B,Hk,Tk,..] from the products' operands, whose axes may be in any order,
 * merged, or repeated. */
#include "passes/raise/attention.h"

#include <string.h>

static sn_dim product_of(const ra_match *k, const ra_order *o, int from, int n) {
    sn_dim p = 1;
    for (int i = 0; i < n; i++) p = sn_dim_mul(k->m, p, k->piece[o->index[from + i]].size);
    return p;
}

/* Where the heads are among the batch pieces; -1: nowhere. */
static int heads_of(const ra_match *k, const ra_order *o) {
    int at = -1;
    for (int i = o->n_batch - 1; i >= 0; i--) {
        const sn_dim size = k->piece[o->index[i]].size;
        if (k->head >= 0) {
            if (o->index[i] == k->head) return i;
        } else if (sn_dim_is_const(k->m, size, NULL) && (at < 0 || (i && size != 1))) {
            if (size != 1) return i;
            at = i;
        }
    }
    return at;
}

ra_order ra_order_pieces(const ra_match *k) {
    ra_order o = {.n_batch = 0};
    int n = 0;
    int *count[] = {[BATCH] = &o.n_batch, [GROUP] = &o.n_group, [QUERY] = &o.n_query};
    for (ra_role r = BATCH; r <= QUERY; r++)
        for (int i = 0; i < k->n_piece; i++)
            if (k->piece[i].role == r) {
                o.index[n++] = i;
                ++*count[r];
            }
    /* of several batch pieces the last one whose size is a number is the heads, rather one of several after the
     * first; a single one is the batch, unless heads mix */
    o.n_outer = o.n_batch;
    int at = o.n_batch > 1 || k->head >= 0 ? heads_of(k, &o) : -1;
    if (at >= 0) {
        int head = o.index[at];
        memmove(o.index + at, o.index + at + 1, sizeof *o.index * (size_t)(o.n_batch - 1 - at));
        o.index[--o.n_outer] = head;
    }
    o.B = product_of(k, &o, 0, o.n_outer);
    o.Hk = product_of(k, &o, o.n_outer, o.n_batch - o.n_outer);
    o.G = product_of(k, &o, o.n_batch, o.n_group);
    o.Tq = product_of(k, &o, o.n_batch + o.n_group, o.n_query);
    return o;
}

enum { MAX_AXES = 2 * MAX_PIECES };

/* The parts of the axes of a tensor, in order. name[i] >= 0 is a piece, otherwise KEY or WIDTH. */
enum { KEY = -1, WIDTH = -2 };
typedef struct parts {
    int name[MAX_AXES];
    sn_dim size[MAX_AXES];
    int n;
} parts;

static bool add_part(parts *p, int name, sn_dim size) {
    if (p->n == MAX_AXES) return false;
    p->name[p->n] = name;
    p->size[p->n++] = size;
    return true;
}

/* x with its axes replaced by these parts, reordered to `want`; parts that x does not have are
 * repeated. want: pieces and KEY; WIDTH, all of them in order, comes last. */
static sn_node *arrange(sn_node *x, const parts *have, int n_want, const int *want,
                        const sn_dim *want_size, sn_dim *full, int *n_full) {
    int64_t perm[SN_MAX_RANK];
    sn_dim one[SN_MAX_RANK];
    int n = 0, moved = 0;
    if (have->n > SN_MAX_RANK) return NULL;
    x = sn_b_reshape(x, have->n, have->size);
    for (int i = 0; i < n_want; i++) {
        int at = -1;
        for (int j = 0; j < have->n; j++)
            if (have->name[j] == want[i]) at = j;
        if (n == SN_MAX_RANK) return NULL;
        if (at >= 0) perm[moved++] = at;
        full[n] = want_size[i];
        one[n++] = at >= 0 ? want_size[i] : 1;
    }
    for (int j = 0; j < have->n; j++)
        if (have->name[j] == WIDTH) {
            if (n == SN_MAX_RANK) return NULL;
            perm[moved++] = j;
            full[n] = one[n] = have->size[j];
            n++;
        }
    if (moved != have->n) return NULL;
    *n_full = n;
    x = sn_b_reshape(sn_b_transpose(x, have->n, perm), n, one);
    return sn_b_broadcast(x, n, full);
}

/* *x with size 1 on an axis along which it is repeated. */
static void unspread(sn_node **x, int axis) {
    sn_dim shape[SN_MAX_RANK];
    memcpy(shape, (*x)->shape, sizeof *shape * (*x)->rank);
    shape[axis] = 1;
    *x = sn_b_broadcast((*x)->in[0], (*x)->rank, shape);
}

/* Whether the axis is repeated, and none of its pieces is a head of keys and values. */
static bool is_spread(const ra_match *k, const sn_node *x, int axis, const parts *p, int first) {
    if (!ra_repeats(x, axis)) return false;
    for (int i = first; i < p->n; i++)
        if (k->piece[p->name[i]].role == BATCH) return false;
    return true;
}

/* The parts of an operand of the scores. Repeated axes of keys that only queries need are
 * dropped. */
static bool score_parts(const ra_match *k, int side, sn_node **operand, parts *p) {
    const sn_node *x = k->scores->in[side];
    int from[2];
    p->n = 0;
    *operand = k->scores->in[side];
    for (int a = 0; a < x->rank; a++) {
        if (ra_is_listed(ra_contract_of(k->scores, side), a)) {
            if (!add_part(p, WIDTH, x->shape[a])) return false;
            continue;
        }
        for (int i = 0; i < k->scores->rank; i++) {
            ra_result_axis(k->scores, i, from);
            if (from[side] != a) continue;
            int first = p->n;
            if (i == k->key_axis && !add_part(p, KEY, x->shape[a])) return false;
            for (int j = 0; j < k->n_piece; j++)
                if (k->piece[j].axis == i && !add_part(p, j, k->piece[j].size)) return false;
            if (side == k->q_side || i == k->key_axis || !is_spread(k, x, a, p, first)) continue;
            p->n = first;
            unspread(operand, a);
        }
    }
    return true;
}

/* Pieces that form an index of the weights, in order. Those of size 1 belong to no digit. */
static bool index_parts(const ra_match *k, const sn_index *ix, parts *p) {
    for (int i = 0; i < ix->n; i++)
        for (int j = 0; j < k->n_piece; j++)
            if (k->piece[j].var == ix->d[i].src && k->piece[j].size != 1 &&
                !add_part(p, j, k->piece[j].size))
                return false;
    return true;
}

static bool value_parts(const ra_match *k, const score_step *w, sn_node **operand, parts *p) {
    int side = 1 - k->side;
    *operand = k->product->in[side];
    const sn_node *v = k->product->in[side];
    const sn_attr *bv = ra_batch_of(k->product, side), *bw = ra_batch_of(k->product, k->side);
    p->n = 0;
    for (int a = 0; a < v->rank; a++) {
        bool ok = true;
        if (ra_is_listed(ra_contract_of(k->product, side), a))
            ok = add_part(p, KEY, v->shape[a]);
        else if (!ra_is_listed(bv, a))
            ok = add_part(p, WIDTH, v->shape[a]);
        int first = p->n;
        for (int i = 0; bv && i < bv->n && ok; i++) {
            if (bv->v[i] != a) continue;
            ok = index_parts(k, &w->ix[bw->v[i]], p);
            if (!ok || !is_spread(k, v, a, p, first)) continue;
            p->n = first;
            unspread(operand, a);
        }
        if (!ok) return false;
    }
    return true;
}

/* Several contracted axes are in the order of the scores' lists in both q and k. */
static bool one_width(const ra_match *k) {
    const sn_attr *c = ra_contract_of(k->scores, 0);
    return c && c->n == 1;
}

bool ra_make_operands(const ra_match *k, const ra_order *o, const score_step *w, ra_operands *x) {
    parts p;
    sn_node *from;
    int want[MAX_PIECES + 1], n_full;
    sn_dim size[MAX_PIECES + 1], full[SN_MAX_RANK], d, Tk = k->scores->shape[k->key_axis];
    int side = k->q_side;
    sn_module *m = k->m;
    if (!one_width(k)) return false;
    d = k->scores->in[side]->shape[ra_contract_of(k->scores, side)->v[0]];
    for (int i = 0; i < k->n_piece; i++) {
        want[i] = o->index[i];
        size[i] = k->piece[o->index[i]].size;
    }
    if (!score_parts(k, side, &from, &p)) return false;
    x->q = arrange(from, &p, k->n_piece, want, size, full, &n_full);
    want[o->n_batch] = KEY;
    size[o->n_batch] = Tk;
    if (!x->q || !score_parts(k, 1 - side, &from, &p)) return false;
    x->k = arrange(from, &p, o->n_batch + 1, want, size, full, &n_full);
    if (!x->k || !value_parts(k, w, &from, &p)) return false;
    x->v = arrange(from, &p, o->n_batch + 1, want, size, full, &n_full);
    if (!x->v) return false;
    x->n_width = n_full - (o->n_batch + 1);
    memcpy(x->width, full + o->n_batch + 1, sizeof *full * (size_t)x->n_width);
    x->dv = sn_dim_product(m, x->n_width, x->width);
    sn_dim H = sn_dim_mul(m, o->Hk, o->G);
    x->q = sn_b_reshape(x->q, 4, (const sn_dim[]){o->B, H, o->Tq, d});
    x->k = sn_b_reshape(x->k, 4, (const sn_dim[]){o->B, o->Hk, Tk, d});
    x->v = sn_b_reshape(x->v, 4, (const sn_dim[]){o->B, o->Hk, Tk, x->dv});
    return sn_dim_is_const(m, d, NULL) && sn_dim_is_const(m, x->dv, NULL) &&
           sn_dim_is_const(m, H, NULL) && !sn_module_error(m)->code;
}

sn_node *ra_make_sink(const ra_match *k, const ra_order *o, const score_step *softmax) {
    parts p = {.n = 0};
    int want[MAX_PIECES], n_full;
    sn_dim size[MAX_PIECES], full[SN_MAX_RANK];
    for (int a = 0; a < k->sink->rank; a++)
        if (k->sink->shape[a] != 1 && !index_parts(k, &softmax->ix[a], &p)) return NULL;
    for (int i = 0; i < k->n_piece; i++) {
        want[i] = o->index[i];
        size[i] = k->piece[o->index[i]].size;
    }
    sn_node *z = arrange(k->sink, &p, k->n_piece, want, size, full, &n_full);
    sn_dim H = sn_dim_mul(k->m, o->Hk, o->G);
    return z ? sn_b_reshape(z, 3, (const sn_dim[]){o->B, H, o->Tq}) : NULL;
}

/* Adds the places of the pieces of an index to a permutation. */
typedef struct places {
    int64_t perm[SN_MAX_RANK];
    int n;
    bool used[MAX_PIECES];
} places;

static bool add_places(const ra_match *k, const ra_order *o, const sn_index *ix, places *to) {
    parts p = {.n = 0};
    if (!index_parts(k, ix, &p)) return false;
    for (int j = 0; j < p.n; j++)
        for (int at = 0; at < k->n_piece; at++) {
            if (o->index[at] != p.name[j]) continue;
            if (to->n == SN_MAX_RANK) return false;
            to->perm[to->n++] = at;
            to->used[p.name[j]] = true;
        }
    return true;
}

/* Axes of size 1 may be anywhere. */
static bool add_ones(const ra_match *k, const ra_order *o, places *to) {
    for (int at = 0; at < k->n_piece; at++) {
        if (to->used[o->index[at]]) continue;
        if (k->piece[o->index[at]].size != 1 || to->n == SN_MAX_RANK) return false;
        to->perm[to->n++] = at;
    }
    return true;
}

sn_node *ra_arrange_lse(const ra_match *k, const ra_order *o, const score_step *top, sn_node *lse) {
    sn_dim shape[MAX_PIECES];
    places to = {.n = 0};
    const int axis = (int)sn_attr_int(k->lse, SN_A_axis, k->lse->rank - 1);
    if (k->n_piece > SN_MAX_RANK) return NULL;
    for (int i = 0; i < k->n_piece; i++) shape[i] = k->piece[o->index[i]].size;
    for (int a = 0; a < k->lse->rank; a++)
        if (a != axis && !add_places(k, o, &top->ix[a], &to)) return NULL;
    if (!add_ones(k, o, &to) || to.n != k->n_piece) return NULL;
    lse = sn_b_transpose(sn_b_reshape(lse, k->n_piece, shape), k->n_piece, to.perm);
    return sn_b_reshape(lse, k->lse->rank, k->lse->shape);
}

sn_node *ra_arrange_result(const ra_match *k, const ra_order *o, const score_step *w,
                           const ra_operands *x, sn_node *y) {
    sn_dim shape[MAX_AXES];
    places to = {.n = 0};
    int n = 0, first_width;
    for (int i = 0; i < k->n_piece; i++) shape[n++] = k->piece[o->index[i]].size;
    first_width = n;
    for (int i = 0; i < x->n_width; i++) shape[n++] = x->width[i];
    if (n > SN_MAX_RANK) return NULL;
    const sn_node *dot = k->product;
    for (int i = 0, next = first_width; i < dot->rank; i++) {
        int from[2];
        ra_result_axis(dot, i, from);
        if (from[k->side] >= 0) {
            if (!add_places(k, o, &w->ix[from[k->side]], &to)) return NULL;
        } else {
            if (to.n == SN_MAX_RANK) return NULL;
            to.perm[to.n++] = next++;
        }
    }
    if (!add_ones(k, o, &to) || to.n != n) return NULL;
    y = sn_b_transpose(sn_b_reshape(y, n, shape), n, to.perm);
    return sn_b_reshape(y, dot->rank, dot->shape);
}
