/* rope.c: rotary embeddings written by hand, in the form that rotates whole heads:
 *   x cos(a) + concat(-x[d/2 ..], x[.. d/2]) sin(a),  a = concat(p f, p f),  f[i] = base^(-2i/d)
 *   with positions p down the rows. The frequencies f may be computed in any way: their values are
 *   compared. Then what surrounds a rope: constant factors, and concatenations that put rotated
 *   columns back between the others,
 *   concat(x[.. a], rope(x[a .. b]), x[b ..]).
 *
 * Source: Su et al. 2021, "RoFormer", equation 34, pairs as in Hugging Face's `rotate_half`. */
#include "passes/graph_util.h"
#include "passes/match.h"
#include "passes/raise/raise.h"

#include <math.h>

enum { MAX_WIDTH = 1024 };

/* x if n is x[.., start .. ] on the last axis and whole on all others. */
static sn_node *columns_from(const sn_node *n, int64_t *start) {
    if (n->op != SN_OP_slice) return NULL;
    const sn_attr *from = sn_attr_get(n, SN_A_start), *step = sn_attr_get(n, SN_A_step);
    sn_node *x = n->in[0];
    int last = n->rank - 1;
    for (int a = 0; a <= last; a++) {
        bool fits = a == last ? sn_dim_is_const(n->m, from->v[a], start)
                              : from->v[a] == 0 && n->shape[a] == x->shape[a];
        if (!fits || (step && step->v[a] != 1)) return NULL;
    }
    return x;
}

/* The same for a number of columns. */
static sn_node *sliced(const sn_node *n, int64_t start, int64_t size) {
    int64_t from;
    sn_node *x = columns_from(n, &from);
    return x && from == start && n->shape[n->rank - 1] == size ? x : NULL;
}

/* x if n is concat(-x's second half, x's first half) of columns. */
static sn_node *rotated_half(const sn_node *n, int64_t width) {
    const int64_t h = width / 2;
    if (n->op != SN_OP_concat || n->n_in != 2 || sn_attr_int(n, SN_A_axis, 0) != n->rank - 1 ||
        n->in[0]->op != SN_OP_neg)
        return NULL;
    sn_node *x = sliced(n->in[1], 0, h);
    return x && x == sliced(n->in[0]->in[0], h, h) ? x : NULL;
}

static sn_node *other_factor(const sn_node *product, const sn_node *one) {
    for (int i = 0; i < 2 && product->op == SN_OP_mul; i++)
        if (product->in[i] == one) return product->in[1 - i];
    return NULL;
}

static sn_node *below_reshape(sn_node *n) {
    while (n->op == SN_OP_reshape) n = n->in[0];
    return n;
}

/* The angles of `n`, which is their sine or cosine, possibly reshaped, broadcast to x: by rows, or
 * by items (x's first axis) and rows. */
static sn_node *angles(sn_node *n, sn_op op, const sn_node *x, bool *items) {
    sn_node *t = sn_match_below(n);
    int rank = t->rank, shift = x->rank - rank;
    if (rank < 2 || t->shape[rank - 1] != x->shape[x->rank - 1] ||
        t->shape[rank - 2] != x->shape[x->rank - 2])
        return NULL;
    *items = false;
    for (int a = 0; a + 2 < rank; a++) {
        if (t->shape[a] == 1) continue;
        if (a + shift != 0) return NULL;
        *items = true;
    }
    t = below_reshape(t);
    return t->op == op ? below_reshape(t->in[0]) : NULL;
}

/* Whether the numbers depend on indices and constants alone. */
static bool is_known(sn_module *m, sn_node *n) {
    sn_order order = sn_topo(m, 1, &n);
    for (int i = 0; i < order.n; i++) {
        sn_op op = order.node[i]->op;
        bool known = op == SN_OP_const || op == SN_OP_iota || op == SN_OP_broadcast ||
                     op == SN_OP_reshape || sn_ops[op].kind == SN_ELEM;
        if (!known || !sn_static_shape(order.node[i])) return false;
    }
    return true;
}

/* Whether these are the frequencies of some base. The last one determines it most precisely. */
static bool find_base(const double *f, int64_t h, double *base) {
    *base = h > 1 ? pow(f[h - 1], -(double)h / (double)(h - 1)) : 10000;
    if (!(*base > 0) || !isfinite(*base)) return false;
    if (fabs(*base - round(*base)) < 1e-6 * *base) *base = round(*base);
    for (int64_t i = 0; i < h; i++)
        if (!sn_match_near(f[i], pow(*base, -(double)i / (double)h))) return false;
    return true;
}

/* Whether angles are positions times n's numbers, or divided by them. */
static bool is_frequencies(sn_module *m, sn_node *n, bool over, int64_t h, double *base) {
    sn_node *f = sn_match_vector(n);
    if (!f || f->shape[0] != h || !is_known(m, f)) return false;
    if (over) f = sn_b_unary(SN_OP_recip, f);
    int64_t *symbol = sn_arena_alloc(m, sizeof *symbol * (size_t)(sn_symbol_count(m) + 1));
    sn_eval *ev = sn_eval_new(m, symbol);
    const sn_value *v = ev ? sn_eval_node(ev, f) : NULL;
    bool found = v && find_base(v->data, h, base);
    sn_eval_free(ev);
    return found;
}

/* The positions, as [T] or [B, T], if `n`, broadcast to the angles `like`, has one per row. */
static sn_node *positions(sn_node *n, const sn_node *like, const sn_node *x, bool items) {
    sn_node *p = sn_match_row(n, like, like->rank - 1);
    sn_dim shape[2] = {x->shape[0], x->shape[x->rank - 2]};
    if (!p || (p->rank > 1 ? p->shape[p->rank - 2] : 1) != shape[1]) return NULL;
    sn_dim all = sn_dim_product(p->m, p->rank, p->shape);
    items &= all != shape[1];
    if (all != (items ? sn_dim_mul(p->m, shape[0], shape[1]) : shape[1])) return NULL;
    p = below_reshape(p);
    if (p->op == SN_OP_cast && !sn_dtype_is_float((sn_dtype)p->in[0]->dtype)) p = p->in[0];
    if (!p->rank) return sn_b_broadcast(p, 1 + items, shape + !items);
    return sn_b_reshape(p, 1 + items, shape + !items);
}

/* The rope computed by plain + rotated, where `half` is the factor of `rotated` that swaps halves. */
static sn_node *raise_sum(sn_raiser *r, const sn_node *plain, const sn_node *rotated, sn_node *half,
                          int64_t width) {
    sn_node *x = rotated_half(half, width), *sin = other_factor(rotated, half);
    sn_node *cos = x ? other_factor(plain, x) : NULL;
    bool items, again;
    if (!cos) return NULL;
    sn_node *angle = angles(cos, SN_OP_cos, x, &items);
    if (!angle || angle != angles(sin, SN_OP_sin, x, &again) || items != again ||
        angle->op != SN_OP_concat || angle->n_in != 2 || angle->in[0] != angle->in[1] ||
        sn_attr_int(angle, SN_A_axis, 0) != angle->rank - 1 || angle->dtype != x->dtype ||
        angle->shape[angle->rank - 1] != width)
        return NULL;
    sn_node *pair = below_reshape(sn_match_below(angle->in[0]));
    bool over = pair->op == SN_OP_div;
    if (!pair->rank) return NULL;
    for (int i = 0; i < 2 - over && (over || pair->op == SN_OP_mul); i++) {
        double base;
        sn_node *pos = positions(pair->in[i], pair, x, items);
        if (pos && is_frequencies(r->m, pair->in[1 - i], over, width / 2, &base))
            return sn_node_new(r->m, SN_OP_rope, 2, (sn_node *[]){x, pos},
                               SN_ATTRS(SN_FLT(base, base), SN_INT(interleaved, 0)));
    }
    return NULL;
}

sn_node *sn_raise_rope(sn_raiser *r, sn_node *n) {
    int64_t width;
    if (!sn_match_float(n) || n->rank < 2 ||
        !sn_dim_is_const(r->m, n->shape[n->rank - 1], &width) || width % 2 || width < 2 ||
        width > MAX_WIDTH)
        return NULL;
    for (int i = 0; i < 2; i++) {
        sn_node *rotated = n->in[i];
        for (int j = 0; j < 2 && rotated->op == SN_OP_mul; j++) {
            sn_node *rope = raise_sum(r, n->in[1 - i], rotated, rotated->in[j], width);
            if (rope) return rope;
        }
    }
    return NULL;
}

/* ---- around a rope ---- */

/* A rope that nothing else reads. */
static bool is_own_rope(const sn_raiser *r, const sn_node *n) {
    return n->op == SN_OP_rope && sn_raise_uses(r, n) <= 1;
}

/* The rope of x with another factor; columns: first and last + 1, NULL: all. */
static sn_node *rope_again(const sn_node *rope, sn_node *x, double scale, const int64_t *columns) {
    static const sn_attr_key kept[] = {SN_A_axis, SN_A_base, SN_A_interleaved};
    sn_node *in[3] = {x, rope->in[1], rope->n_in > 2 ? rope->in[2] : NULL};
    sn_attr attr[5];
    int n = 0;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (sn_attr_get(rope, kept[i])) attr[n++] = *sn_attr_get(rope, kept[i]);
    if (scale != 1) attr[n++] = SN_FLT(scale, scale);
    if (columns) attr[n++] = SN_LIST(columns, 2, columns);
    const sn_loc loc = sn_module_loc(x->m);
    sn_module_set_loc(x->m, rope->loc);
    sn_node *again = sn_node_new(x->m, SN_OP_rope, rope->n_in, in, n, attr);
    sn_module_set_loc(x->m, loc);
    return again;
}

/* c rope(x) */
sn_node *sn_raise_scaled_rope(sn_raiser *r, sn_node *n) {
    double c;
    const sn_node *rope = sn_match_scaled(n, &c);
    if (rope == n || !is_own_rope(r, rope) || sn_attr_get(rope, SN_A_columns)) return NULL;
    return rope_again(rope, rope->in[0], c * sn_attr_flt(rope, SN_A_scale, 1), NULL);
}

/* y of n = c y, which nothing else reads, also below views; NULL: n is not scaled. */
static sn_node *unscaled(const sn_raiser *r, sn_node *n, double *c) {
    if (sn_raise_uses(r, n) > 1) return NULL;
    if (sn_moves(n) || n->op == SN_OP_slice) {
        sn_node *x = unscaled(r, n->in[0], c);
        return x ? sn_node_with(n, &x) : NULL;
    }
    sn_node *x = sn_match_scaled(n, c);
    return x != n ? x : NULL;
}

/* rope(c x) */
sn_node *sn_raise_rope_of_scaled(sn_raiser *r, sn_node *n) {
    double c;
    if (sn_attr_get(n, SN_A_columns)) return NULL;
    sn_node *x = unscaled(r, n->in[0], &c);
    return x ? rope_again(n, x, c * sn_attr_flt(n, SN_A_scale, 1), NULL) : NULL;
}

/* concat of adjoining columns of x, one part of them rotated, as a rope of all these columns */
sn_node *sn_raise_rope_of_columns(sn_raiser *r, sn_node *n) {
    const int last = n->rank - 1;
    const sn_node *rope = NULL;
    sn_node *x = NULL;
    int64_t first = 0, at = 0, columns[2] = {0, 0};
    if (sn_attr_int(n, SN_A_axis, 0) != last) return NULL;
    for (int i = 0; i < n->n_in; i++) {
        sn_node *part = n->in[i];
        int64_t from, size;
        if (is_own_rope(r, part)) {
            if (rope) return NULL;
            rope = part;
            part = part->in[0];
        }
        sn_node *whole = columns_from(part, &from);
        if (!whole || !sn_dim_is_const(r->m, part->shape[last], &size)) return NULL;
        if (!x) x = whole, first = at = from;
        if (whole != x || from != at) return NULL;
        if (part != n->in[i]) {
            const sn_attr *inner = sn_attr_get(rope, SN_A_columns);
            columns[0] = at - first + (inner ? inner->v[0] : 0);
            columns[1] = at - first + (inner ? inner->v[1] : size);
        }
        at += size;
    }
    if (!rope) return NULL;
    return rope_again(rope, sn_b_slice(x, last, first, at - first),
                      sn_attr_flt(rope, SN_A_scale, 1), columns);
}
