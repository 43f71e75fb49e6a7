/* simplify.c: one canonical form for scales, masks, divisions and movement, so that later patterns
 * have one form to match. The rules are rows of rules.def; what is not algebra is in mask.c, move.c
 * and dot.c, each with its law above it.
 *
 * Requires nothing. Keeps dtype and shape of every node, and values up to rounding (rules that
 * round differently say so). Works below and above composites, and inside the regions of attention.
 *
 * Terminates: no rule undoes another. Each one either removes a node, or moves something in one
 * direction only: constants to the right and out of products, `not` down to comparisons, -inf to
 * the third place of select, broadcasts and transposes towards the results, reshapes out of
 * products. The pass is also bounded (pass.c). */
#include "passes/simplify/simplify.h"
#include "passes/graph_util.h"
#include "passes/passes.h"

#include <pthread.h>
#include <string.h>

enum { MAX_STEPS = 64 }; /* maximum number of consecutive rewrites of a node: guards against bugs */

static sn_node *apply_birth(sn_node *n) {
    sn_type type = {.dtype = (sn_dtype)n->dtype, .rank = n->rank};
    if (!n->n_in || sn_ops[n->op].kind == SN_FUSED) return NULL;
    if (n->rank) memcpy(type.shape, n->shape, sizeof(sn_dim) * n->rank);
    if (sn_ops[n->op].kind != SN_COMP) {
        sn_node *r = sn_fold(n->m, (sn_op)n->op, n->n_in, n->in, n->n_attr, n->attr, &type);
        if (r) return r;
    }
    if (!(sn_ops[n->op].flags & SN_OPF_COMM)) return NULL;
    return sn_node_new(n->m, (sn_op)n->op, n->n_in, n->in, n->n_attr, n->attr); /* order */
}

static const sn_rule_row list[] = {
#define RULE(...) SN_RULE_ROW(__VA_ARGS__),
#define CODE(id, from, on)                                                                         \
    {.name = #id, .level = SN_LEVEL_##from, .op = SN_OP_##on, .rewrite = sn_simplify_##id},
#include "passes/simplify/rules.def"
};

sn_rules sn_simplify_rules = {.rule = list, .n = sizeof list / sizeof *list};

static void read_rules(void) {
    sn_rules_read(&sn_simplify_rules);
}

sn_node *sn_simplify_node(sn_node *n, int level) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_rules);
    for (int step = 0; step < MAX_STEPS; step++) {
        sn_node *r = apply_birth(n);
        if (!r || r == n) r = sn_rules_apply(&sn_simplify_rules, NULL, level, n);
        if (!r || sn_module_error(n->m)->code) break;
        n = r;
    }
    return n;
}

static sn_node *scalar_rule(void *ctx, sn_node *n) {
    return sn_simplify_node(n, *(const int *)ctx);
}

const sn_region *sn_simplify_region(sn_module *m, const sn_region *r, int level) {
    sn_node *out[SN_MAX_RESULTS];
    if (r->n_out > SN_MAX_RESULTS) return r;
    memcpy(out, r->out, sizeof *out * (size_t)r->n_out);
    for (int round = 0; round < MAX_STEPS; round++)
        if (!sn_rewrite(m, r->n_out, out, scalar_rule, &level)) break;
    return sn_region_new(m, r->n_arg, r->arg, r->n_out, out);
}

sn_node *sn_simplify_regions(sn_node *n, int level) {
    sn_attr attr[16];
    bool changed = false;
    bool known = n->op == SN_OP_attention || n->op == SN_OP_attention_grad ||
                 n->op == SN_OP_mixed_attention || n->op == SN_OP_mixed_attention_grad ||
                 n->op == SN_OP_scan;
    if (!known || n->n_attr > 16) return n;
    for (int i = 0; i < n->n_attr; i++) {
        attr[i] = n->attr[i];
        if (sn_attr_table[attr[i].key].kind != SN_AK_REGION) continue;
        attr[i].r = sn_simplify_region(n->m, attr[i].r, level);
        changed |= attr[i].r != n->attr[i].r;
    }
    return changed ? sn_node_new(n->m, (sn_op)n->op, n->n_in, n->in, n->n_attr, attr) : n;
}

static sn_node *rule(void *ctx, sn_node *n) {
    const int level = *(const int *)ctx;
    if (n->op == SN_OP_attention_lse && n->in[0]->op == SN_OP_attention)
        return sn_b_attention_lse(n->in[0]); /* whose regions may be simpler now */
    return sn_simplify_regions(sn_simplify_node(n, level), level);
}

int sn_pass_simplify(sn_passes *p) {
    int level = sn_passes_level(p);
    return sn_rewrite_module(p->m, rule, &level);
}
