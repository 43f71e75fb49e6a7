/* expand.c: composites become primitives, except where the level has a kernel for the whole.
 *
 * Requires nothing. Keeps values. Breaks: no COMP node is left. Records for each new node which
 * composite it came from (p->unit): a level that does not fuse across the user's operations still
 * makes one kernel of one composite. */
#include "passes/graph_util.h"
#include "passes/passes.h"

#include <string.h>

enum { FLASH_LEVEL = 3 };

static void set_unit(sn_passes *p, const sn_node *n, uint32_t unit) {
    if (n->id >= p->n_unit) {
        uint32_t size = 2 * sn_module_node_count(p->m) + 64;
        uint32_t *grown = sn_arena_alloc(p->m, sizeof *grown * size);
        if (p->n_unit) memcpy(grown, p->unit, sizeof *grown * p->n_unit);
        p->unit = grown;
        p->n_unit = size;
    }
    if (!p->unit[n->id]) p->unit[n->id] = unit;
}

static sn_node *expand_comp(sn_passes *p, sn_node *n, uint32_t unit);

/* A reduction over the last axis and others is two: rows first, then columns. */
static sn_node *split_reduce(sn_node *n) {
    bool last;
    if (!sn_reduces(n, &last) || last) return n;
    const sn_attr *axes = sn_attr_get(n, SN_A_axes);
    if (axes->n < 2 || axes->v[axes->n - 1] != n->rank - 1) return n;
    sn_node *rows = sn_b_reduce((sn_op)n->op, n->in[0], 1, &axes->v[axes->n - 1]);
    return sn_b_reduce((sn_op)n->op, rows, axes->n - 1, axes->v);
}

/* The index of the first maximum: the smallest index whose element equals the maximum. */
static sn_node *spell_argmax(sn_node *n) {
    if (n->op != SN_OP_argmax) return n;
    sn_node *x = n->in[0];
    int64_t axis = sn_attr_int(n, SN_A_axis, 0);
    sn_node *top = sn_b_reduce(SN_OP_reduce_max, x, 1, &axis);
    sn_node *hit = sn_b_binary(SN_OP_eq, x, top);
    if (sn_dtype_is_float((sn_dtype)x->dtype)) /* a NaN is a maximum, but equals nothing */
        hit = sn_b_binary(SN_OP_or, hit, sn_b_binary(SN_OP_ne, x, x));
    sn_node *index = sn_b_iota(n->m, SN_I32, x->rank, x->shape, (int)axis);
    sn_node *none = sn_b_const(n->m, SN_I32, 2147483647.0);
    sn_node *first = sn_b_reduce(SN_OP_reduce_min, sn_b_select(hit, index, none), 1, &axis);
    return sn_b_select(sn_b_binary(SN_OP_eq, first, none), sn_b_const(n->m, SN_I32, 0), first);
}

static sn_node *spell_prim(sn_node *n) {
    return split_reduce(spell_argmax(n));
}

/* Memo of one expansion: meanings are small, a list will do. */
typedef struct memo {
    sn_passes *p;
    const sn_node *top;
    uint32_t unit;
    sn_node **from, **to;
    int n, cap;
} memo;

static sn_node *expand_below(memo *w, sn_node *n) {
    for (int i = 0; i < w->top->n_in; i++)
        if (w->top->in[i] == n) return n;
    for (int i = 0; i < w->n; i++)
        if (w->from[i] == n) return w->to[i];
    sn_node **in = sn_arena_alloc(n->m, sizeof *in * (size_t)(n->n_in + 1));
    for (int i = 0; i < n->n_in; i++) in[i] = expand_below(w, n->in[i]);
    sn_node *made = n->n_in ? sn_node_with(n, in) : n;
    made = sn_ops[made->op].kind == SN_COMP ? expand_comp(w->p, made, w->unit) : spell_prim(made);
    if (w->unit && !sn_is_leaf(made)) set_unit(w->p, made, w->unit);
    if (w->n == w->cap) {
        int cap = w->cap ? 2 * w->cap : 32;
        sn_node **grown = sn_arena_alloc(n->m, 2 * sizeof *grown * (size_t)cap);
        if (w->n) {
            memcpy(grown, w->from, sizeof *grown * (size_t)w->n);
            memcpy(grown + cap, w->to, sizeof *grown * (size_t)w->n);
        }
        w->from = grown;
        w->to = grown + cap;
        w->cap = cap;
    }
    w->from[w->n] = n;
    w->to[w->n++] = made;
    return made;
}

static sn_node *expand_comp(sn_passes *p, sn_node *n, uint32_t unit) {
    if (n->op == SN_OP_attention && p->o.level >= FLASH_LEVEL && strcmp(p->o.backend, "onednn")) {
        sn_node *flash = sn_node_new(n->m, SN_OP_flash, n->n_in, n->in, n->n_attr, n->attr);
        return sn_b_result(flash, 0);
    }
    /* Attention is not one kernel below its level: its products and its softmax are the units. */
    if (!unit && n->op != SN_OP_attention) unit = n->id + 1;
    memo w = {.p = p, .top = n, .unit = unit};
    return expand_below(&w, n->meaning);
}

static sn_node *rule(void *ctx, sn_node *n) {
    sn_passes *p = ctx;
    return sn_ops[n->op].kind == SN_COMP ? expand_comp(p, n, 0) : spell_prim(n);
}

int sn_pass_expand(sn_passes *p) {
    return sn_rewrite_module(p->m, rule, p);
}
