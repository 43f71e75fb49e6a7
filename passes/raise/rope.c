/* rope.c: rotary embeddings written by hand, in the form that rotates whole heads:
 *   x cos(a) + concat(-x[d/2 ..], x[.. d/2]) sin(a),  a = concat(p f, p f),  f[i] = base^(-2i/d)
 *   with positions p down the rows. The frequencies f may be computed in any way: their values are
 *   compared.
 *
 * Source: Su et al. 2021, "RoFormer", equation 34, pairs as in Hugging Face's `rotate_half`. */
#include "passes/graph_util.h"
#include "passes/match.h"
#include "passes/raise/raise.h"

#include <math.h>

enum { MOST_WIDTH = 1024 };

/* x if n is x[.., start .. start + size] on the last axis and whole on all others. */
static sn_node *sliced(const sn_node *n, int64_t start, int64_t size) {
    if (n->op != SN_OP_slice) return NULL;
    const sn_attr *from = sn_attr_get(n, SN_A_start), *step = sn_attr_get(n, SN_A_step);
    sn_node *x = n->in[0];
    int last = n->rank - 1;
    for (int a = 0; a <= last; a++) {
        bool fits = a == last ? from->v[a] == start && n->shape[a] == size
                              : from->v[a] == 0 && n->shape[a] == x->shape[a];
        if (!fits || (step && step->v[a] != 1)) return NULL;
    }
    return x;
}

/* x if n is concat(-x's second half, x's first half) of columns. */
static sn_node *half_turned(const sn_node *n, int64_t width) {
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

/* The rope computed by plain + turned, where `half` is the factor of `turned` that swaps halves. */
static sn_node *raise_sum(sn_raiser *r, const sn_node *plain, const sn_node *turned, sn_node *half,
                          int64_t width) {
    sn_node *x = half_turned(half, width), *sin = other_factor(turned, half);
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

static sn_node *raise_rope(sn_raiser *r, sn_node *n) {
    int64_t width;
    if (!sn_match_float(n) || n->rank < 2 ||
        !sn_dim_is_const(r->m, n->shape[n->rank - 1], &width) || width % 2 || width < 2 ||
        width > MOST_WIDTH)
        return NULL;
    for (int i = 0; i < 2; i++) {
        sn_node *turned = n->in[i];
        for (int j = 0; j < 2 && turned->op == SN_OP_mul; j++) {
            sn_node *rope = raise_sum(r, n->in[1 - i], turned, turned->in[j], width);
            if (rope) return rope;
        }
    }
    return NULL;
}

const sn_raising sn_raise_rope[] = {{SN_OP_add, raise_rope}, {SN_OP_COUNT, NULL}};
