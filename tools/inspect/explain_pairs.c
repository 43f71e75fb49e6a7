/* explain_pairs.c: how often an entry, as it was defined, has a softmax before a product: one operation, or spelled out as
 * exponentials that are divided by their sum, before the product or after it. */
#include "tools/inspect/explain.h"

#include <stdlib.h>
#include <string.h>

/* What a node has of a softmax or of the exponentials of one; PRODUCT: of exponentials that are not divided yet. */
enum { NOTHING, POWERS, SUM, INVERSE, WEIGHTS, PRODUCT };
typedef struct trace {
    uint32_t of; /* the softmax or exponential */
    unsigned char what;
} trace;

/* Whether the result is a softmax's weights if operand i is: it moves, chooses or casts elements. */
static bool passes_on(const sn_node *n) {
    return sn_ops[n->op].flags & SN_OPF_VIEW || n->op == SN_OP_cast || n->op == SN_OP_select ||
           n->op == SN_OP_dropout;
}

static bool multiplies(const sn_node *n) {
    return n->op == SN_OP_dot || n->op == SN_OP_matmul;
}

/* What is divided by the sum of the same exponentials. */
static trace quotient(const sn_node *n, const trace *t) {
    for (int k = 0; k < 2 && (n->op == SN_OP_mul || n->op == SN_OP_div); k++) {
        const trace x = t[n->in[k]->id], y = t[n->in[!k]->id];
        const bool divides = n->op == SN_OP_div ? !k && y.what == SUM : y.what == INVERSE;
        if (divides && x.of == y.of && (x.what == POWERS || x.what == PRODUCT))
            return (trace){x.of, x.what == POWERS ? WEIGHTS : NOTHING};
        if (n->op == SN_OP_div && k && x.what == SUM && y.what == NOTHING)
            return (trace){x.of, INVERSE};
    }
    return (trace){0, NOTHING};
}

/* A sum may be bounded. */
static bool passes_sum(const sn_node *n, unsigned char what) {
    return what == SUM && (n->op == SN_OP_add || n->op == SN_OP_max);
}

/* Of node n, from its operands'. */
static trace follow(const sn_node *n, const trace *t) {
    if (n->op == SN_OP_softmax) return (trace){n->id, WEIGHTS};
    if (n->op == SN_OP_exp || n->op == SN_OP_exp2) return (trace){n->id, POWERS};
    for (int k = 0; k < n->n_in; k++) {
        const trace x = t[n->in[k]->id];
        if (x.what == NOTHING) continue;
        if (n->op == SN_OP_reduce_sum && x.what == POWERS) return (trace){x.of, SUM};
        if (multiplies(n) && x.what == POWERS) return (trace){x.of, PRODUCT};
        if (n->op == SN_OP_recip && x.what == SUM) return (trace){x.of, INVERSE};
        if (passes_on(n) || passes_sum(n, x.what)) return x;
    }
    return quotient(n, t);
}

int explain_pairs(sn_module *m, const sn_entry *e) {
    sn_order order = sn_entry_topo(m, e);
    const size_t n_nodes = sn_module_node_count(m);
    trace *t = calloc(n_nodes + 1, sizeof *t);
    bool *found = calloc(n_nodes + 1, sizeof *found); /* of a softmax: it is counted */
    int pairs = 0;
    for (int i = 0; t && found && i < order.n; i++) {
        const sn_node *n = order.node[i];
        pairs += n->op == SN_OP_attention || n->op == SN_OP_mixed_attention ||
                 n->op == SN_OP_ring_attention;
        t[n->id] = follow(n, t);
        const trace late = quotient(n, t);
        for (int k = 0; k <= n->n_in; k++) {
            const trace x = k < n->n_in ? t[n->in[k]->id] : late;
            const bool is_pair =
                k < n->n_in ? x.what == WEIGHTS && multiplies(n) : x.what == NOTHING && x.of;
            if (!is_pair || found[x.of]) continue;
            found[x.of] = true;
            pairs++;
        }
    }
    if (!t || !found) pairs = -1;
    free(t);
    free(found);
    return pairs;
}

int explain_fused(const explain_entry *e) {
    int fused = 0;
    for (int i = 0; i < e->n; i++)
        fused += !strcmp(e->call[i].family, "flash") || !strcmp(e->call[i].family, "flash_mixed");
    return fused < e->pairs ? fused : e->pairs;
}
