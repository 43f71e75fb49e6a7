/* loop.c: attention in plain operations in the body of a scan becomes attention before it is decided which axes of
 * the loop are computed apart: as a row of a product each query would read all keys. What the body captures that
 * is made of indices alone, such as a mask, is computed inside, where the kernel of attention can skip its
 * tiles. */
#include "passes/graph_util.h"
#include "passes/raise/raise.h"

#include <string.h>

int sn_whole_gradients_below(sn_module *m, int n, sn_node *const *root) {
    const sn_order order = sn_topo(m, n, root);
    int count = 0;
    for (int i = 0; i < order.n; i++) {
        const sn_node *x = order.node[i];
        count += (sn_ops[x->op].flags & SN_OPF_RAISE_LOSS) != 0;
        if (x->op != SN_OP_scan) continue;
        const sn_region *body = sn_attr_region(x, SN_A_body);
        count += sn_whole_gradients_below(m, body->n_out, body->out);
    }
    return count;
}

/* Whether there are two products, which attention has. */
static bool may_attend(const sn_node *n, const sn_region *body) {
    const sn_order order = sn_region_topo(n->m, body);
    int products = 0;
    for (int i = 0; i < order.n; i++) {
        const int op = order.node[i]->op;
        products += op == SN_OP_dot || op == SN_OP_matmul;
        if (op == SN_OP_scan) products += 2; /* perhaps in its body */
    }
    return products > 1;
}

/* Whether x is made of indices, sizes and constants. */
static bool is_of_indices(sn_node *x) {
    const sn_order order = sn_topo(x->m, 1, &x);
    for (int i = 0; i < order.n; i++) {
        const sn_node *n = order.node[i];
        bool known = n->op == SN_OP_iota || n->op == SN_OP_const || n->op == SN_OP_dim_value;
        if (!known && (!n->n_in || (!sn_is_elementwise(n) && !sn_is_view(n)))) return false;
    }
    return true;
}

/* The operands of a loop under construction, and what stands for them in its body. */
typedef struct draft {
    sn_module *m;
    sn_node **in, **inside;
    int n_in;
} draft;

static sn_node *stand_in(const sn_node *type) {
    char name[48];
    snprintf(name, sizeof name, "@scan.%u", (unsigned)sn_module_node_count(type->m));
    return sn_node_new(type->m, SN_OP_input, 0, NULL,
                       SN_ATTRS(SN_STR(name, name), SN_INT(dtype, type->dtype),
                                SN_LIST(shape, type->rank, type->shape)));
}

static sn_node *add_operand(draft *d, sn_node *x, const sn_node *type) {
    d->in[d->n_in] = x;
    return d->inside[d->n_in++] = stand_in(type);
}

static const int64_t *order_of(const sn_node *x) {
    static const int64_t unchanged[SN_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    return x->op == SN_OP_transpose ? sn_attr_get(x, SN_A_perm)->v : unchanged;
}

/* x in terms of y, whose axes are in another order and for which `inside` stands; NULL: it is another tensor. */
static sn_node *transposed(const sn_node *x, const sn_node *y, sn_node *inside) {
    const sn_node *below = x->op == SN_OP_transpose ? x->in[0] : x;
    int64_t of_y[SN_MAX_RANK], perm[SN_MAX_RANK];
    if (below != (y->op == SN_OP_transpose ? y->in[0] : y)) return NULL;
    for (int a = 0; a < y->rank; a++) of_y[order_of(y)[a]] = a;
    for (int a = 0; a < x->rank; a++) perm[a] = of_y[order_of(x)[a]];
    return sn_b_transpose(inside, x->rank, perm);
}

/* The captured tensor x in the body. One that is captured transposed, too, is captured once, so that its gradients
 * are added up in one carry. first: the first captured operand. */
static sn_node *capture(draft *d, sn_node *x, int first) {
    sn_node *y = is_of_indices(x) ? x : NULL;
    for (int i = first; i < d->n_in && !y; i++) y = transposed(x, d->in[i], d->inside[i]);
    return y ? y : add_operand(d, x, x);
}

/* Operand i becomes what the body makes of it, if that is a transpose and all that it reads. */
static void transpose_outside(draft *d, int i, int n_out, sn_node **out) {
    const sn_order order = sn_topo(d->m, n_out, out);
    sn_node *user = NULL;
    for (int k = 0; k < n_out; k++)
        if (out[k] == d->inside[i]) return;
    for (int k = 0; k < order.n; k++)
        for (int a = 0; a < order.node[k]->n_in; a++) {
            if (order.node[k]->in[a] != d->inside[i]) continue;
            if (user || order.node[k]->op != SN_OP_transpose) return;
            user = order.node[k];
        }
    if (!user) return;
    sn_node *inside = stand_in(user);
    sn_rewrite_node(d->m, n_out, out, user, inside);
    d->in[i] = sn_node_with(user, &d->in[i]);
    d->inside[i] = inside;
}

sn_node *sn_raise_body(sn_raiser *r, sn_node *n) {
    const sn_scan s = sn_scan_of(n);
    const int first = s.n_carry + s.n_sequence;
    sn_node *out[SN_MAX_RESULTS];
    if (s.n_tile || s.again || !sn_raise_wants_attention(r) || !may_attend(n, s.body)) return NULL;
    sn_node **arg = sn_arena_alloc(n->m, 3 * sizeof *arg * (size_t)(s.n_in + 1));
    sn_attr *attr = sn_arena_alloc(n->m, sizeof *attr * n->n_attr);
    draft d = {.m = n->m, .in = arg + s.n_in + 1, .inside = arg + 2 * (s.n_in + 1)};
    const int n_remark = r->p->n_remark;
    for (int i = 0; i < s.n_in; i++)
        arg[i] =
            i < first ? add_operand(&d, n->in[i], s.body->arg[i]) : capture(&d, n->in[i], first);
    sn_region_inline(s.body, arg, out);
    const int before = sn_whole_gradients_below(n->m, s.body->n_out, out);
    if (!r->raise_nodes(r, s.body->n_out, out) || sn_module_error(n->m)->code ||
        sn_whole_gradients_below(n->m, s.body->n_out, out) == before) {
        r->p->n_remark = n_remark;
        return NULL;
    }
    for (int i = first; i < d.n_in; i++) transpose_outside(&d, i, s.body->n_out, out);
    memcpy(attr, n->attr, sizeof *attr * n->n_attr);
    for (int i = 0; i < n->n_attr; i++)
        if (attr[i].key == SN_A_body)
            attr[i].r = sn_region_extract(n->m, d.n_in, d.inside, s.body->n_out, out);
    return sn_node_new(n->m, SN_OP_scan, d.n_in, d.in, n->n_attr, attr);
}
