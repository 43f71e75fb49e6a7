/* promote.c: a graph with every float promoted to f64, for gradient checks: single precision is
 * too coarse for differences. */
#include "ir/module_impl.h"

#include <string.h>

typedef struct promoter {
    sn_module *m;
    sn_node **to; /* by old id */
    uint32_t n;
} promoter;

static const sn_region *widen_region(promoter *w, const sn_region *r);

static sn_attr widen_attr(promoter *w, const sn_attr *a) {
    sn_attr r = *a;
    if (sn_attr_table[a->key].kind == SN_AK_REGION) r.r = widen_region(w, a->r);
    if (sn_attr_table[a->key].kind == SN_AK_DTYPE && sn_dtype_is_float((sn_dtype)a->i))
        r.i = SN_F64;
    return r;
}

static sn_node *widen_node(promoter *w, sn_node *n) {
    if (w->to[n->id]) return w->to[n->id];
    sn_node **in = sn_arena_alloc(w->m, sizeof *in * (size_t)(n->n_in + 1));
    sn_attr *attr = sn_arena_alloc(w->m, sizeof *attr * (size_t)(n->n_attr + 1));
    for (int i = 0; i < n->n_in; i++) in[i] = w->to[n->in[i]->id];
    for (int i = 0; i < n->n_attr; i++) attr[i] = widen_attr(w, &n->attr[i]);
    sn_module_set_loc(w->m, n->loc);
    /* a parameter's initial value is not bound as a weight: all named leaves become inputs */
    sn_op op = n->op == SN_OP_param || n->op == SN_OP_state ? SN_OP_input : (sn_op)n->op;
    sn_node *r = sn_node_new(w->m, op, n->n_in, in, n->n_attr, attr);
    /* random numbers and tables of angles are f32 by definition */
    if (r->n_result == 1 && sn_is_float(r) && r->dtype != SN_F64) r = sn_b_cast(r, SN_F64);
    return w->to[n->id] = r;
}

static const sn_region *widen_region(promoter *w, const sn_region *r) {
    sn_order order = sn_region_topo(w->m, r);
    sn_node **arg = sn_arena_alloc(w->m, sizeof *arg * (size_t)(r->n_arg + 1));
    sn_node **out = sn_arena_alloc(w->m, sizeof *out * (size_t)(r->n_out + 1));
    for (int i = 0; i < r->n_arg; i++) arg[i] = widen_node(w, r->arg[i]);
    for (int i = 0; i < order.n; i++) widen_node(w, order.node[i]);
    for (int i = 0; i < r->n_out; i++) out[i] = w->to[r->out[i]->id];
    return sn_region_new(w->m, r->n_arg, arg, r->n_out, out);
}

void sn_promote_to_f64(sn_module *m, int n, sn_node *const *root, sn_node **wide) {
    sn_order order = sn_topo(m, n, root);
    promoter w = {.m = m, .n = m->n_node};
    sn_loc loc = m->loc;
    w.to = sn_arena_alloc(m, sizeof *w.to * w.n);
    for (int i = 0; i < order.n && !m->error.code; i++) widen_node(&w, order.node[i]);
    m->loc = loc;
    for (int i = 0; i < n; i++) {
        wide[i] = m->error.code ? m->error_node : w.to[root[i]->id];
    }
}
