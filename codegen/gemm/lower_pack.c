/* lower_pack.c: the prologue of a pack step for the generator: a region of elementwise operations on
 * vectors of columns, and of maxima and minima along groups of k. */
#include "codegen/gemm/lower_pack.h"
#include "codegen/emit/elem.h"

#include <string.h>

typedef struct prologue {
    const sn_kernel *k;
    const sn_region *r;
    sn_order order;
    em_val *value;                     /* [order.n] NULL: not computed */
    int reduction[SN_GEMM_REDUCTIONS]; /* places in the order */
    sn_gemm_pack_prologue spec;
} prologue;

static bool is_of_group(const sn_node *n) {
    return n->rank && n->shape[n->rank - 1] == 1;
}

static int place_of(const prologue *p, const sn_node *n) {
    int i = 0;
    while (p->order.node[i] != n) i++;
    return i;
}

static em_val value_of(prologue *p, em *e, const sn_node *n) {
    em_val *v = &p->value[place_of(p, n)], in[4];
    if (*v) return *v;
    if (n->op == SN_OP_const) return *v = sn_kernel_leaf(e, p->k, n);
    if (n->op == SN_OP_broadcast) return *v = value_of(p, e, n->in[0]);
    for (int j = 0; j < n->n_in && j < 4; j++) in[j] = value_of(p, e, n->in[j]);
    return *v = sn_emit_elem(e, n, in);
}

/* Forgets everything but, if `keeps_groups`, what belongs to the group. */
static void forget(prologue *p, bool keeps_groups) {
    for (int i = 0; i < p->order.n; i++)
        if (!keeps_groups || !is_of_group(p->order.node[i])) p->value[i] = NULL;
}

static em_val value_at(prologue *p, em *e, const sn_node *n, em_val x) {
    forget(p, true);
    p->value[place_of(p, p->r->arg[0])] = sn_emit_loaded(e, (sn_dtype)p->r->arg[0]->dtype, x);
    return value_of(p, e, n);
}

static em_val emit_reduced(void *ctx, em *e, int i, em_val x) {
    prologue *p = ctx;
    forget(p, false);
    return value_at(p, e, p->order.node[p->reduction[i]]->in[0], x);
}

static void emit_begin(void *ctx, em *e, const em_val *reduction) {
    prologue *p = ctx;
    forget(p, false);
    for (int i = 0; i < p->spec.n_reduction; i++) p->value[p->reduction[i]] = reduction[i];
    for (int i = 0; i < p->order.n; i++)
        if (is_of_group(p->order.node[i])) value_of(p, e, p->order.node[i]);
}

static em_val emit_factor(void *ctx, em *e, int i) {
    prologue *p = ctx;
    return value_of(p, e, p->r->out[1 + i]);
}

static em_val emit_element(void *ctx, em *e, em_val x) {
    prologue *p = ctx;
    return value_at(p, e, p->r->out[0], x);
}

void gemm_lower_pack(em *e, const sn_kernel *k, sn_gemm_pack *g) {
    const sn_region *r = sn_attr_region(k->step->node, SN_A_prologue);
    int64_t size;
    if (!r) return;
    const sn_node *x = r->arg[0];
    prologue *p = sn_arena_alloc(k->m, sizeof *p);
    *p = (prologue){.k = k, .r = r, .order = sn_region_topo(k->m, r)};
    p->value = sn_arena_alloc(k->m, sizeof *p->value * (size_t)p->order.n);
    sn_gemm_pack_prologue *s = &p->spec;
    *s = (sn_gemm_pack_prologue){.ctx = p,
                                 .n_factor = r->n_out - 1,
                                 .n_panels = (int)sn_attr_int(k->step->node, SN_A_panels, 0),
                                 .reduced = emit_reduced,
                                 .begin = emit_begin,
                                 .factor = emit_factor,
                                 .element = emit_element};
    bool ok = sn_dim_is_const(k->m, x->shape[x->rank - 1], &size) && size <= INT32_MAX &&
              s->n_factor <= SN_GEMM_FACTORS;
    for (int i = 0; ok && i < p->order.n; i++) {
        const sn_node *n = p->order.node[i];
        if (n->op != SN_OP_reduce_max && n->op != SN_OP_reduce_min) continue;
        ok = s->n_reduction < SN_GEMM_REDUCTIONS;
        if (!ok) break;
        s->reduction[s->n_reduction] = n->op == SN_OP_reduce_max ? EM_MAX : EM_MIN;
        p->reduction[s->n_reduction++] = i;
    }
    for (int i = 0; ok && i < s->n_factor; i++) s->factor_dtype[i] = (sn_dtype)r->out[1 + i]->dtype;
    g->n_part = k->step->n_in;
    ok = ok && g->n_part <= SN_GEMM_PARTS;
    g->n.value = 0;
    for (int i = 0; ok && i < g->n_part; i++) {
        ok = sn_dim_is_const(k->m, k->step->in[i].shape[1], &g->part_n[i]);
        g->n.value += g->part_n[i];
    }
    if (!ok) {
        sn_fail(&e->err, SN_ERR_INTERNAL, "%s: its prologue is not supported", k->name);
        return;
    }
    s->size = (int)size;
    g->prologue = s;
}
