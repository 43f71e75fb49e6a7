/* visible.c: counts the pairs that a mask shows, see visible.h. */
#include "codegen/program/visible.h"

#include <string.h>

bool sn_mask_reads(sn_module *m, const sn_region *mask, int arg) {
    if (arg >= mask->n_arg) return false;
    sn_order order = sn_region_topo(m, mask);
    for (int i = 0; i < order.n; i++)
        for (int k = 0; k < order.node[i]->n_in; k++)
            if (order.node[i]->in[k] == mask->arg[arg]) return true;
    return mask->out[0] == mask->arg[arg];
}

const char *sn_mask_bind(const sn_mask_inputs *q, sn_eval *ev, sn_node *n) {
    static const double maximum = 1e7; /* elements of all nodes */
    double elements = 0;
    sn_order order = sn_topo(q->m, 1, &n);
    for (int i = 0; i < order.n; i++) {
        const sn_node *x = order.node[i];
        int64_t count = 1;
        for (int a = 0; a < x->rank; a++) count *= sn_dim_eval(q->m, x->shape[a], q->symbol);
        elements += (double)count;
        if (elements > maximum || sn_kernel_of(x)->contraction || sn_kernel_of(x)->unit_rows)
            return "the mask depends on tensors that the model computes from its inputs";
        if (!(sn_ops[x->op].flags & SN_OPF_EXTERNAL)) continue;
        const char *name = sn_attr_str(x, SN_A_name, "");
        const sn_arg_binding *a = x->op == SN_OP_input ? sn_find_arg(q->in, q->n_in, name) : NULL;
        const void *data = a ? a->data : q->s ? sn_session_memory(q->s, name) : NULL;
        if (!data) return "a tensor that the mask reads is not in memory";
        if (!sn_eval_bind(ev, name, data, (size_t)count * sn_dtype_size((sn_dtype)x->dtype)))
            return "out of memory for a tensor that the mask reads";
    }
    return NULL;
}

/* Where captured tensors begin in the node's operands: sink and seed follow them. */
static int first_captured(const sn_node *n, const sn_region *mask) {
    bool sink = sn_attr_int(n, SN_A_sink, 0) != 0, drops = sn_attr_get(n, SN_A_rate) != NULL;
    return n->n_in - drops - sink - (mask->n_arg - SN_MASK_POSITIONS);
}

/* Which queries are counted: `rows` of them, `step` apart; with `mirrored` as many from the end. */
typedef struct sample {
    int64_t size[4]; /* b, h, q and k of the tensor that is counted */
    int64_t step, first, last;
    bool mirrored;
} sample;

static sample choose(const int64_t size[4]) {
    enum { MAX_ELEMENTS = 1 << 20 };
    int64_t others = size[0] * size[1] * size[3], rows = MAX_ELEMENTS / (others > 0 ? others : 1);
    sample s = {{size[0], size[1], size[2], size[3]}, 1, 0, size[2] - 1, rows < size[2]};
    if (!s.mirrored) return s;
    s.size[2] = rows / 2 > 1 ? rows / 2 : 1;
    s.step = size[2] / (2 * s.size[2]);
    s.first = s.step / 2;
    return s;
}

/* The mask at the sampled pairs as a tensor of truth values. */
static sn_node *mask_at(const sn_mask_inputs *q, const sn_node *n, const sn_region *mask,
                        const sample *s, bool from_end) {
    sn_module *m = q->m;
    sn_node **arg = sn_arena_alloc(m, sizeof *arg * (size_t)mask->n_arg), *out;
    sn_dim shape[4];
    for (int a = 0; a < 4; a++) shape[a] = sn_dim_const(m, s->size[a]);
    for (int a = 0; a < 4; a++) arg[a] = sn_b_iota(m, SN_I32, 4, shape, a);
    arg[2] =
        sn_b_scalar(SN_OP_add, sn_b_scalar(SN_OP_mul, arg[2], (double)s->step), (double)s->first);
    if (from_end) arg[2] = sn_b_scalar(SN_OP_add, sn_b_unary(SN_OP_neg, arg[2]), (double)s->last);
    int first = first_captured(n, mask);
    for (int i = SN_MASK_POSITIONS; i < mask->n_arg; i++)
        arg[i] = n->in[first + i - SN_MASK_POSITIONS];
    sn_region_map(mask, arg, 4, shape, &out);
    return out;
}

/* -1: unknown */
static double count(const sn_mask_inputs *q, sn_eval *ev, const sn_node *n, const sn_region *mask,
                    const sample *s) {
    double seen = 0, all = 0;
    for (int i = SN_MASK_POSITIONS; i < mask->n_arg; i++)
        if (sn_mask_reads(q->m, mask, i) &&
            sn_mask_bind(q, ev, n->in[first_captured(n, mask) + i - SN_MASK_POSITIONS]))
            return -1;
    for (int end = 0; end <= s->mirrored; end++) {
        const sn_value *v = sn_eval_node(ev, mask_at(q, n, mask, s, end));
        for (int64_t i = 0; v && i < v->n; i++) seen += v->data[i] != 0;
        all += v ? (double)v->n : 0;
    }
    return all > 0 ? seen / all : -1;
}

double sn_visible_share(const sn_mask_inputs *q, const sn_node *n, sn_visible_cache *cache) {
    const sn_region *mask = sn_attr_region(n, SN_A_mask);
    if (!mask || n->n_in < 3 || n->in[0]->rank != 4 || n->in[1]->rank != 4) return 1;
    bool positions = true;
    for (int i = SN_MASK_POSITIONS; i < mask->n_arg; i++)
        positions &= !sn_mask_reads(q->m, mask, i);
    int64_t size[4];
    for (int a = 0; a < 4; a++)
        size[a] = a < 2 && !sn_mask_reads(q->m, mask, a)
                      ? 1
                      : sn_dim_eval(q->m, n->in[a == 3]->shape[a == 3 ? 2 : a], q->symbol);
    const char *text = positions ? sn_region_text(q->m, mask) : NULL;
    if (text && cache->mask && !strcmp(text, cache->mask) &&
        !memcmp(size, cache->size, sizeof size))
        return cache->share;
    sn_eval *ev = sn_eval_new(q->m, q->symbol);
    sample s = choose(size);
    double share = ev ? count(q, ev, n, mask, &s) : -1;
    sn_eval_free(ev);
    if (share < 0) share = 1;
    if (text) {
        *cache = (sn_visible_cache){.mask = text, .share = share};
        memcpy(cache->size, size, sizeof size);
    }
    return share;
}
