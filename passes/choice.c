/* choice.c: the cost model of `auto`, and the choices that a chooser may change. */
#include "passes/backend.h"
#include "passes/choice.h"
#include "passes/graph_util.h"
#include "passes/kernels/costs.h"
#include "passes/kernels/table.h"

#include <string.h>

const char *const sn_candidate_names[3] = {"fused", "unfused", "library"};

/* Unfused attention stores all scores; it is a candidate up to this many bytes. */
enum { MAX_SCORES = 1 << 24 };

static const sn_backend_cost *library_cost(const sn_passes *p, const sn_node *n) {
    return p->o.library ? p->o.library->cost((sn_op)n->op) : NULL;
}

/* ---- identity ---- */

/* A product of tensors, or the kernel made of it. */
static bool is_product(const sn_node *n) {
    return n->op == SN_OP_dot || sn_kernel_of(n)->contraction;
}

static sn_node *placeholder(const sn_node *x, int i, bool constant) {
    return sn_node_new(x->m, constant ? SN_OP_param : SN_OP_input, 0, NULL,
                       SN_ATTRS(SN_STR(name, sn_arena_printf(x->m, "@operand%d", i)),
                                SN_INT(dtype, x->dtype), SN_LIST(shape, x->rank, x->shape)));
}

static sn_node *with_placeholders(const sn_node *n) {
    bool product = is_product(n);
    int n_in = product ? 2 : n->n_in;
    sn_node **in = sn_arena_alloc(n->m, sizeof *in * (size_t)(n_in + 1));
    for (int i = 0; i < n_in; i++)
        in[i] = placeholder(n->in[i], i, product && i && sn_from_params_only(n->in[i]));
    if (!product) return sn_node_with(n, in);
    static const sn_attr_key axes[] = {SN_A_batch_a, SN_A_batch_b, SN_A_contract_a,
                                       SN_A_contract_b};
    sn_attr attr[4];
    for (int i = 0; i < 4; i++) {
        const sn_attr *a = sn_attr_get(n, axes[i]);
        attr[i] = a ? *a : (sn_attr){.key = axes[i]};
    }
    return sn_node_new(n->m, SN_OP_dot, 2, in, 4, attr);
}

/* ---- choices ---- */

static bool scores_are_few(const sn_node *n) {
    double scores = 1;
    for (int i = 0; i < 3; i++) scores *= (double)sn_dim_hi(n->m, n->in[0]->shape[i]);
    return scores * (double)sn_dim_hi(n->m, n->in[1]->shape[2]) <= MAX_SCORES;
}

static bool in_module(sn_module *m, sn_op op) {
    for (int i = 0; i < sn_entry_count(m); i++) {
        sn_order order = sn_entry_topo(m, sn_entry_at(m, i));
        for (int j = 0; j < order.n; j++)
            if (order.node[j]->op == op) return true;
    }
    return false;
}

/* The candidates, and what the cost model chooses. A chooser may take any library that is deterministic. */
static void apply_model(const sn_passes *p, const sn_node *n, sn_choice *q) {
    bool native = !strcmp(p->o.backend, sn_backend_native.name);
    const sn_backend_cost *c = library_cost(p, n);
    bool product = n->op == SN_OP_dot, supported = sn_backend_supports(p, n);
    q->candidates = 1u << SN_CHOOSE_FUSED;
    q->why = native    ? "backend native"
             : c       ? c->why
             : product ? "cost model: the native epilogue is free"
                       : "cost model: scores stay in registers";
    if (sn_backend_wanted(p)) { /* whoever asks adds a remark if a composite is not supported */
        q->model = !product || supported ? SN_CHOOSE_LIBRARY : SN_CHOOSE_FUSED;
        q->candidates = 1u << q->model;
        q->why = sn_arena_printf(p->m, "backend %s", p->o.backend);
        return;
    }
    if (p->o.weights || p->o.bf16_compute)
        return; /* of fewer bits: only native kernels read them */
    if (!native && c && supported && c->deterministic) {
        q->candidates |= 1u << SN_CHOOSE_LIBRARY;
        if (c->time <= SN_MAX_RELATIVE_TIME)
            q->model = SN_CHOOSE_LIBRARY, q->why = "cost model: faster";
    }
    if (product && !p->o.invariant && sn_level_fuses(p->o.level))
        q->candidates |= 1u << SN_CHOOSE_UNFUSED;
    if (n->op == SN_OP_attention && !p->o.invariant && scores_are_few(n) &&
        !in_module(p->m, SN_OP_attention_grad))
        q->candidates |= 1u << SN_CHOOSE_UNFUSED;
}

/* Makes room for a choice by id. */
static void make_room(sn_passes *p, int id) {
    if (id < p->cap_choice_of) return;
    int more = 2 * id + 64;
    sn_choice **grown = sn_arena_alloc(p->m, sizeof *grown * (size_t)more);
    if (p->cap_choice_of) memcpy(grown, p->choice_of, sizeof *grown * (size_t)p->cap_choice_of);
    p->choice_of = grown;
    p->cap_choice_of = more;
}

static sn_choice *choice_of(sn_passes *p, const sn_node *n) {
    int id = (int)n->id;
    if (id < p->cap_choice_of && p->choice_of[id]) return p->choice_of[id];
    const sn_node *node = with_placeholders(n);
    sn_choice *q = NULL;
    for (int i = 0; i < p->n_choice && !q; i++)
        if (p->choice[i]->node == node) q = p->choice[i];
    if (!q) {
        q = sn_arena_alloc(p->m, sizeof *q);
        q->node = node;
        apply_model(p, node, q);
        q->chosen = q->model;
        if (p->o.chooser && q->candidates & (q->candidates - 1))
            p->o.chooser->ask(p->o.chooser->ctx, q);
        p->choice = sn_arena_grow(p->m, p->choice, sizeof *p->choice, p->n_choice, &p->cap_choice);
        p->choice[p->n_choice++] = q;
    }
    make_room(p, id);
    q->entries |= sn_entries_of(p, n);
    return p->choice_of[id] = q;
}

static void set_sample(sn_passes *p, sn_choice *q, int n_out, sn_node *const *out, int n_member,
                       sn_node *const *member) {
    if (q->n_out || !p->o.chooser) return;
    sn_node **copy = sn_arena_alloc(p->m, sizeof *copy * (size_t)(n_out + n_member));
    memcpy(copy, out, sizeof *copy * (size_t)n_out);
    memcpy(copy + n_out, member, sizeof *copy * (size_t)n_member);
    q->n_out = n_out, q->out = copy;
    q->n_member = n_member, q->member = copy + n_out;
}

sn_candidate sn_choose(sn_passes *p, const sn_node *n) {
    bool product = is_product(n);
    if (!product && n->op != SN_OP_attention && !library_cost(p, n)) return SN_CHOOSE_FUSED;
    sn_choice *q = choice_of(p, n);
    sn_node *self = (sn_node *)(uintptr_t)n;
    if (!product) set_sample(p, q, 1, &self, 1, &self);
    return q->chosen;
}

void sn_choice_sample(sn_passes *p, const sn_node *dot, int n_out, sn_node *const *out,
                      int n_member, sn_node *const *member) {
    set_sample(p, choice_of(p, dot), n_out, out, n_member, member);
}
