/* lower_pack.c: the prologue of a pack step for the generator: a region of elementwise operations on
 * vectors of columns, and of maxima and minima along groups of k. */
#include "codegen/gemm/lower_pack.h"
#include "codegen/emit/elem.h"

enum { OF_ELEMENT = 1, OF_GROUP = 2 }; /* what values of the region depend on */

typedef struct prologue {
    const sn_region *r;
    sn_region_code code;
    const sn_node *reduction[SN_GEMM_REDUCTIONS];
    sn_gemm_pack_prologue spec;
} prologue;

static uint32_t deps_of(const sn_node *n) {
    return n->rank && n->shape[n->rank - 1] == 1 ? OF_GROUP : OF_ELEMENT;
}

static em_val value_at(prologue *p, em *e, const sn_node *n, em_val x) {
    const sn_node *arg = p->r->arg[0];
    sn_region_forget(&p->code, OF_ELEMENT);
    sn_region_give(&p->code, arg, sn_emit_loaded(e, (sn_dtype)arg->dtype, x));
    return sn_region_at(&p->code, sn_region_place(&p->code, n), 0);
}

static em_val emit_reduced(void *ctx, em *e, int i, em_val x) {
    prologue *p = ctx;
    sn_region_forget(&p->code, OF_GROUP);
    return value_at(p, e, p->reduction[i]->in[0], x);
}

static void emit_begin(void *ctx, em *e, const em_val *reduction) {
    prologue *p = ctx;
    (void)e;
    sn_region_forget(&p->code, ~0u);
    for (int i = 0; i < p->spec.n_reduction; i++)
        sn_region_give(&p->code, p->reduction[i], reduction[i]);
    sn_region_emit(&p->code, OF_GROUP);
}

static em_val emit_factor(void *ctx, em *e, int i) {
    prologue *p = ctx;
    (void)e;
    return sn_region_at(&p->code, sn_region_place(&p->code, p->r->out[1 + i]), 0);
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
    *p = (prologue){.r = r};
    if (!sn_region_begin(&p->code, e, r)) return;
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
    for (int i = 0; ok && i < p->code.order.n; i++) {
        const sn_node *n = p->code.order.node[i];
        sn_region_fix(&p->code, n, deps_of(n));
        if (n->op != SN_OP_reduce_max && n->op != SN_OP_reduce_min) continue;
        ok = s->n_reduction < SN_GEMM_REDUCTIONS;
        if (!ok) break;
        s->reduction[s->n_reduction] = n->op == SN_OP_reduce_max ? EM_MAX : EM_MIN;
        p->reduction[s->n_reduction++] = n;
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
