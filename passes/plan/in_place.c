/* in_place.c: see in_place.h. A row kernel processes a row in several loops: each computes the
 * nodes with the same number of reductions below them (codegen/rows/map_reduce.c). A sum of columns
 * has another shape than the operands below it, so its result never lies in one of them. */
#include "passes/plan/in_place.h"
#include "passes/graph_util.h"

typedef struct reading {
    int stage;  /* the loop that computes it: number of reductions below */
    bool reads; /* the argument, at the loop's own index */
} reading;

static bool is_result(const sn_region *body, const sn_node *n) {
    for (int i = 0; i < body->n_out; i++)
        if (body->out[i] == n) return true;
    return false;
}

bool sn_reads_before(const sn_region *body, int arg, int result) {
    sn_module *m = body->out[0]->m;
    sn_order order = sn_region_topo(m, body);
    reading *at = sn_arena_alloc(m, sizeof *at * (size_t)(order.n + 1));
    int last = 0; /* the last loop that reads the argument */
    for (int k = 0; k < order.n; k++) {
        const sn_node *n = order.node[k];
        bool reduces = sn_reduces(n), below = n == body->arg[arg];
        for (int j = 0; j < n->n_in; j++)
            for (int b = 0; b < k; b++) {
                if (order.node[b] != n->in[j]) continue;
                if (at[b].stage > at[k].stage) at[k].stage = at[b].stage;
                below |= at[b].reads;
            }
        if (below && n->n_in && !sn_is_elementwise(n) && !reduces) return false;
        if (below && (reduces || is_result(body, n)) && at[k].stage > last) last = at[k].stage;
        at[k].reads = below && !reduces;
        at[k].stage += reduces;
    }
    for (int k = 0; k < order.n; k++)
        if (order.node[k] == body->out[result]) return last <= at[k].stage;
    return false;
}
