/* grad.c: reverse-mode differentiation: the gradient of a scalar, as additional nodes of the same
 * graph.
 *
 * It runs when the gradient is requested, rather than as a pass over a `grad` node. Nodes are
 * interned, so the values that the backward part needs are the forward nodes themselves; the
 * results are ordinary tensors, so gradients of gradients need nothing more; and the tensors that
 * the user names still exist, whereas a pass that raises or fuses might have removed them.
 *
 * The walk starts at the loss and follows descending ids (operands have smaller ids), so a node's
 * cotangent is complete when it is reached. A composite without GRAD is differentiated through its
 * decomposition, whose nodes lie between its operands and itself. Rules: grad_elem.c, grad_prims.c,
 * grad_comps.c. */
#include "ir/grad_impl.h"

#include <string.h>

enum { /* the short names of the flags column */
#define FLAG(name, bit, doc) name = SN_OPF_##name,
#include "ir/ops.def"
};

/* A missing rule is a link error. */
static const grad_fn rules[SN_OP_COUNT] = {
#define ELEM(name, n, rule, flags, doc, expr)                                                      \
    [SN_OP_##name] = ((flags)&NOGRAD) ? NULL : grad_##name,
#define PRIM(name, n, rule, flags, doc)                                                            \
    [SN_OP_##name] = ((flags) & (NOGRAD | LEAF)) ? NULL : grad_##name,
#define COMP(name, lo, hi, flags, api, doc) [SN_OP_##name] = ((flags)&GRAD) ? grad_##name : NULL,
#include "ir/ops.def"
};

bool sn_gr_wants(const grad *c, const sn_node *to) {
    return c->needs[to->id];
}

bool sn_gr_needs(const grad *c, int i) {
    return sn_gr_wants(c, c->n->in[i]);
}

static void accumulate(grad *c, sn_node *to, sn_node *d) {
    sn_node **sum = &c->sum[to->id];
    *sum = *sum ? OP2(add, *sum, d) : d;
}

void sn_gr_give_node(grad *c, sn_node *to, sn_node *d) {
    if (c->n->m->error.code) return;
    accumulate(c, to, sn_b_cast(d, (sn_dtype)to->dtype));
}

void sn_gr_give(grad *c, int i, sn_node *d) {
    sn_gr_give_node(c, c->n->in[i], d);
}

sn_node *sn_gr_fill(const sn_node *x, double value) {
    return sn_b_broadcast_like(sn_b_const(x->m, (sn_dtype)x->dtype, value), x);
}

/* Marks what the roots depend on, through operands and decompositions. */
static void mark_live(sn_module *m, int n, sn_node *const *root, uint8_t *live) {
    uint32_t end = 0;
    for (int i = 0; i < n; i++) {
        live[root[i]->id] = 1;
        if (root[i]->id >= end) end = root[i]->id + 1;
    }
    for (uint32_t id = end; id-- > 0;) {
        const sn_node *n = m->node[id];
        if (!live[id]) continue;
        for (int i = 0; i < n->n_in; i++) live[n->in[i]->id] = 1;
        if (n->decomposition) live[n->decomposition->id] = 1;
    }
}

/* Marks the live nodes on paths from a wanted tensor to a root; `count` ids. */
static void mark_needs(sn_module *m, uint32_t count, const uint8_t *live, uint8_t *needs) {
    for (uint32_t id = 0; id < count; id++) {
        const sn_node *n = m->node[id];
        bool carries = sn_dtype_is_float((sn_dtype)n->dtype) || n->n_result > 1;
        if (!live[id] || needs[id] || !carries) continue;
        bool any = false;
        for (int i = 0; i < n->n_in; i++) any |= needs[n->in[i]->id];
        if (!(sn_ops[n->op].flags & SN_OPF_NOGRAD))
            needs[id] = any;
        else if (any && n->op == SN_OP_update_rows)
            sn_module_note(m, n,
                           "its gradient is 0 by definition: caches are not differentiated; "
                           "sn_update has a gradient");
    }
}

/* Adds the contributions of n's cotangent to n's operands (or decomposition). */
static void step_back(grad *c) {
    const sn_node *n = c->n;
    bool wanted = false;
    for (int i = 0; i < n->n_in; i++) wanted |= sn_gr_needs(c, i);
    if (!wanted || (sn_ops[n->op].flags & SN_OPF_NOGRAD)) return;
    sn_module_set_loc(n->m, n->loc); /* the user's line of the differentiated node */
    if (rules[n->op] && rules[n->op](c)) return;
    if (n->decomposition)
        accumulate(c, n->decomposition, c->g);
    else
        sn_module_fail(n->m, SN_ERR_USAGE,
                       "gradient: %s is made by passes and has no gradient; take the gradient "
                       "before running passes",
                       sn_ops[n->op].name);
}

int sn_pullback(sn_node *y, sn_node *g, int n_wrt, sn_node *const *wrt, sn_node **out) {
    return sn_pullback_all(1, &y, &g, n_wrt, wrt, out);
}

int sn_pullback_all(int n_y, sn_node *const *y, sn_node *const *g, int n_wrt, sn_node *const *wrt,
                    sn_node **out) {
    sn_module *m = wrt[0]->m;
    int unused = 0;
    for (int i = 0; i < n_wrt; i++) out[i] = NULL;
    if (m->error.code) return n_wrt;
    uint32_t count = m->n_node; /* nodes created from here on are not visited */
    uint8_t *live = sn_arena_alloc(m, count), *needs = sn_arena_alloc(m, count);
    grad c = {.needs = needs, .sum = sn_arena_alloc(m, 2 * sizeof *c.sum * count), .count = count};
    c.lse = c.sum + count;
    sn_loc loc = m->loc;
    mark_live(m, n_y, y, live);
    for (int i = 0; i < n_wrt; i++) needs[wrt[i]->id] = 1;
    mark_needs(m, count, live, needs);
    for (int i = 0; i < n_y; i++) accumulate(&c, y[i], g[i]);
    for (uint32_t id = count; id-- > 0 && !m->error.code;) {
        c.n = m->node[id];
        c.g = c.sum[id];
        if (c.g && needs[id]) step_back(&c);
    }
    m->loc = loc;
    for (int i = 0; i < n_wrt; i++) {
        out[i] = c.sum[wrt[i]->id];
        unused += !out[i];
    }
    return unused;
}

int sn_gradient(sn_node *loss, int n_wrt, sn_node *const *wrt, sn_node **out) {
    sn_module *m = loss->m;
    int unused = sn_pullback(loss, sn_gr_fill(loss, 1), n_wrt, wrt, out);
    for (int i = 0; i < n_wrt; i++) {
        if (out[i] && !m->error.code) continue;
        if (!m->error.code)
            sn_module_note(m, wrt[i], "the loss does not depend on it: its gradient is zero");
        out[i] = m->error.code ? m->error_node : sn_gr_fill(wrt[i], 0);
    }
    return m->error.code ? 0 : unused;
}
