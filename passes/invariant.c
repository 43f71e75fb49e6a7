/* invariant.c: the kernels' attribute `invariant`: what must not change the bits of their results
 * (sn_options.invariant). Decisions before, such as a norm in a product's prologue, read the option.
 *
 * Requires fused nodes. Keeps values. Terminates: each node is looked at once. */
#include "passes/graph_util.h"
#include "passes/kernels/table.h"
#include "passes/passes.h"

#include <string.h>

static sn_node *rule(void *ctx, sn_node *n);

/* The attributes with their regions rewritten, as the body of a loop has kernels. */
static bool rewrite_regions(sn_passes *p, const sn_node *n, sn_attr *attr) {
    sn_node *out[SN_MAX_RESULTS];
    bool changed = false;
    memcpy(attr, n->attr, sizeof *attr * n->n_attr);
    for (int i = 0; i < n->n_attr; i++) {
        if (sn_attr_table[attr[i].key].kind != SN_AK_REGION) continue;
        const sn_region *r = attr[i].r;
        memcpy(out, r->out, sizeof *out * (size_t)r->n_out);
        if (!sn_rewrite(n->m, r->n_out, out, rule, p)) continue;
        attr[i].r = sn_region_new(n->m, r->n_arg, r->arg, r->n_out, out);
        changed = true;
    }
    return changed;
}

/* What follows from parameters only is the same in every call. */
static bool is_kernel(const sn_node *n) {
    bool kernel =
        sn_ops[n->op].kind == SN_FUSED || sn_kernel_of(n) == &sn_kernels[SN_KERNEL_recurrence];
    return kernel && !sn_from_params_only(n) && !sn_attr_get(n, SN_A_invariant);
}

static sn_node *rule(void *ctx, sn_node *n) {
    sn_passes *p = ctx;
    sn_attr attr[SN_ATTR_COUNT];
    int n_attr = n->n_attr;
    bool changed = rewrite_regions(p, n, attr), kernel = is_kernel(n);
    if (kernel) attr[n_attr++] = SN_INT(invariant, p->o.invariant);
    return changed || kernel ? sn_node_new(n->m, (sn_op)n->op, n->n_in, n->in, n_attr, attr) : n;
}

int sn_pass_invariant(sn_passes *p) {
    return p->o.invariant ? sn_rewrite_module(p->m, rule, p) : 0;
}
