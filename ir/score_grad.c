/* score_grad.c: the derivative of attention's score region, by the same rules as all gradients.
 * Reads of captured tensors are leaves, so that a kernel can accumulate their gradients where it
 * has the indices. */
#include "ir/module_impl.h"

enum { SCORE, BATCH, FIRST_CAPTURED = 5 }; /* arguments of the region */

static int arg_index(const sn_node *n) {
    return n->op == SN_OP_arg ? (int)sn_attr_int(n, SN_A_index, -1) : -1;
}

int sn_score_read_of(const sn_node *n) {
    int at = n->op == SN_OP_gather_nd ? arg_index(n->in[0]) : n->rank ? -1 : arg_index(n);
    return at < FIRST_CAPTURED ? -1 : at - FIRST_CAPTURED;
}

int sn_attention_n_captured(const sn_node *n) {
    bool drops = sn_attr_get(n, SN_A_rate) != NULL;
    return n->n_in - 3 - drops - (sn_attr_int(n, SN_A_sink, 0) != 0);
}

int sn_attention_sink(const sn_node *n) {
    return sn_attr_int(n, SN_A_sink, 0) ? 3 + sn_attention_n_captured(n) : -1;
}

static bool listed(int captured, int n, const int64_t *list) {
    for (int i = 0; i < n; i++)
        if (list[i] == captured) return true;
    return false;
}

bool sn_score_gradient(sn_module *m, const sn_region *score, int n_wrt, const int64_t *wrt,
                       sn_score_grad *out) {
    sn_order order = sn_region_topo(m, score);
    size_t capacity = (size_t)order.n + 1; /* the reads, and the score itself */
    sn_node **to = sn_arena_alloc(m, sizeof *to * capacity),
            **d = sn_arena_alloc(m, sizeof *d * capacity);
    int n = 1;
    to[0] = score->arg[SCORE];
    for (int i = 0; i < order.n; i++) {
        int captured = sn_score_read_of(order.node[i]);
        if (captured < 0 || !listed(captured, n_wrt, wrt)) continue;
        to[n++] = order.node[i];
    }
    sn_score_read *read = sn_arena_alloc(m, sizeof *read * (size_t)n);
    sn_node **result = sn_arena_alloc(m, sizeof *result * (size_t)(2 + n * (1 + SN_MAX_RANK)));
    sn_node **arg = sn_arena_alloc(m, sizeof *arg * (size_t)(score->n_arg + 1));
    for (int i = 0; i < score->n_arg; i++) arg[i] = score->arg[i];
    sn_dtype t = (sn_dtype)score->out[0]->dtype;
    arg[score->n_arg] = sn_arg(m, score->n_arg, t, 0, NULL);
    sn_pullback(score->out[0], arg[score->n_arg], n, to, d);
    int n_out = 2;
    result[0] = score->out[0];
    result[1] = d[0] ? d[0] : sn_b_const(m, t, 0);
    out->read = read;
    out->n_read = 0;
    for (int i = 1; i < n; i++) {
        if (!d[i]) continue;
        sn_score_read *r = &read[out->n_read++];
        *r = (sn_score_read){.captured = sn_score_read_of(to[i]), .value = n_out};
        r->n_index = to[i]->op == SN_OP_gather_nd ? to[i]->n_in - 1 : 0;
        result[n_out++] = d[i];
        for (int j = 0; j < r->n_index; j++) result[n_out++] = to[i]->in[1 + j];
    }
    out->region = sn_region_new(m, score->n_arg + 1, arg, n_out, result);
    return !m->error.code;
}

bool sn_score_reads(const sn_region *score, int captured) {
    sn_order order = score ? sn_region_topo(score->out[0]->m, score) : (sn_order){0};
    for (int i = 0; i < order.n; i++)
        if (sn_score_read_of(order.node[i]) == captured) return true;
    return false;
}

void sn_score_axes(const sn_region *score, int captured, const sn_dim size[2], int axis[2]) {
    sn_order order = sn_region_topo(score->out[0]->m, score);
    const sn_node *table = NULL;
    unsigned common[2] = {~0u, ~0u};
    for (int i = 0; i < order.n; i++) {
        const sn_node *n = order.node[i];
        if (sn_score_read_of(n) != captured) continue;
        unsigned here[2] = {0, 0};
        table = n->op == SN_OP_gather_nd ? n->in[0] : n;
        for (int j = 0; table != n && j < table->rank; j++)
            for (int w = 0; w < 2; w++)
                if (arg_index(n->in[1 + j]) == BATCH + w && table->shape[j] == size[w])
                    here[w] |= 1u << j;
        for (int w = 0; w < 2; w++) common[w] &= here[w];
    }
    for (int w = 0; w < 2; w++) {
        axis[w] = -1;
        for (int j = 0; table && j < table->rank && axis[w] < 0; j++)
            if (common[w] >> j & 1) axis[w] = j;
    }
}
