/* choice.c: the cost model of `auto`, and the questions that a chooser may answer otherwise. */
#include "passes/choice.h"
#include "passes/graph_util.h"
#include "passes/kernels/table.h"
#include "passes/primitive.h"

#include <string.h>

const char *const sn_answer_names[3] = {"fused", "apart", "onednn"};

/* The cost model: a primitive's time relative to that of the native kernel for the same work,
 * measured with two threads on an AVX-512 server (oneDNN 2.6; `sinter bench kernel` and `gemm`
 * repeat it), and whether its results are the same for any number of threads. `auto` uses a
 * deterministic primitive that needs at most MOST of the time; a chooser may use any deterministic
 * one. */
static const struct cost {
    sn_op op;
    double time;
    bool steady;
    const char *why; /* reason for the native kernel */
} costs[] = {
    {SN_OP_dot, 1.05, true, "cost model: same speed, and the native epilogue is free"},
    {SN_OP_softmax, 1.9, true,
     "cost model: the native kernel is faster, and its neighbours are fused"},
    {SN_OP_layer_norm, 1.03, true,
     "cost model: same speed, and the native kernel fuses with its neighbours"},
    {SN_OP_softmax_grad, 1.5, true,
     "cost model: the native kernel is faster, and its neighbours are fused"},
    {SN_OP_layer_norm_grad, 1.5, true,
     "cost model: the native kernel is faster, and its neighbours are fused"},
    {SN_OP_conv2d, 0.85, false,
     "cost model: oneDNN is faster, but its results depend on the number of threads"},
    {SN_OP_conv2d_grad, 0.85, false,
     "cost model: oneDNN is faster, but its results depend on the number of threads"},
};
static const double MOST = 0.97;

/* Unfused attention stores all scores; it is a candidate up to this many bytes. */
enum { MOST_SCORES = 1 << 24 };

static const struct cost *cost_of(sn_op op) {
    for (size_t i = 0; i < sizeof costs / sizeof *costs; i++)
        if (costs[i].op == op) return &costs[i];
    return NULL;
}

/* ---- identity ---- */

/* A product of tensors, or the kernel made of it. */
static bool is_product(const sn_node *n) {
    return n->op == SN_OP_dot || sn_kernel_of(n)->contraction;
}

static sn_node *stand_in(const sn_node *x, int i, bool constant) {
    return sn_node_new(x->m, constant ? SN_OP_param : SN_OP_input, 0, NULL,
                       SN_ATTRS(SN_STR(name, sn_arena_printf(x->m, "@operand%d", i)),
                                SN_INT(dtype, x->dtype), SN_LIST(shape, x->rank, x->shape)));
}

static sn_node *on_operands_of_its_own(const sn_node *n) {
    bool product = is_product(n);
    int n_in = product ? 2 : n->n_in;
    sn_node **in = sn_arena_alloc(n->m, sizeof *in * (size_t)(n_in + 1));
    for (int i = 0; i < n_in; i++)
        in[i] = stand_in(n->in[i], i, product && i && sn_from_params_only(n->in[i]));
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

/* ---- questions ---- */

static bool scores_are_few(const sn_node *n) {
    double scores = 1;
    for (int i = 0; i < 3; i++) scores *= (double)sn_dim_hi(n->m, n->in[0]->shape[i]);
    return scores * (double)sn_dim_hi(n->m, n->in[1]->shape[2]) <= MOST_SCORES;
}

static bool in_module(sn_module *m, sn_op op) {
    for (int i = 0; i < sn_entry_count(m); i++) {
        sn_order order = sn_entry_topo(m, sn_entry_at(m, i));
        for (int j = 0; j < order.n; j++)
            if (order.node[j]->op == op) return true;
    }
    return false;
}

/* The model's answer, and what else would be right. */
static void judge(const sn_passes *p, const sn_node *n, sn_question *q) {
    bool own = !strcmp(p->o.backend, "own"), onednn = sn_primitive_wanted(p);
    const struct cost *c = cost_of((sn_op)n->op);
    bool product = n->op == SN_OP_dot, fits = product ? sn_primitive_dot(n) : sn_primitive_fits(n);
    q->allowed = 1u << SN_CHOOSE_FUSED;
    q->why = own ? "backend own" : c ? c->why : "cost model: scores stay in registers";
    if (onednn) { /* the caller adds a remark for a composite that does not fit */
        q->model = !product || fits ? SN_CHOOSE_PRIMITIVE : SN_CHOOSE_FUSED;
        q->allowed = 1u << q->model;
        q->why = "backend onednn";
        return;
    }
    if (p->o.weights) return; /* only native kernels read weights of fewer bits */
    if (!own && c && fits && c->steady) {
        q->allowed |= 1u << SN_CHOOSE_PRIMITIVE;
        if (c->time <= MOST) q->model = SN_CHOOSE_PRIMITIVE, q->why = "cost model: faster";
    }
    if (product && sn_level_fuses(p->o.level)) q->allowed |= 1u << SN_CHOOSE_APART;
    if (n->op == SN_OP_attention && scores_are_few(n) && !in_module(p->m, SN_OP_attention_grad))
        q->allowed |= 1u << SN_CHOOSE_APART;
}

/* Makes room for a choice by id. */
static void reach(sn_passes *p, int id) {
    if (id < p->cap_asked) return;
    int more = 2 * id + 64;
    sn_question **grown = sn_arena_alloc(p->m, sizeof *grown * (size_t)more);
    if (p->cap_asked) memcpy(grown, p->asked, sizeof *grown * (size_t)p->cap_asked);
    p->asked = grown;
    p->cap_asked = more;
}

static sn_question *question_of(sn_passes *p, const sn_node *n) {
    int id = (int)n->id;
    if (id < p->cap_asked && p->asked[id]) return p->asked[id];
    const sn_node *node = on_operands_of_its_own(n);
    sn_question *q = NULL;
    for (int i = 0; i < p->n_question && !q; i++)
        if (p->question[i]->node == node) q = p->question[i];
    if (!q) {
        q = sn_arena_alloc(p->m, sizeof *q);
        q->node = node;
        judge(p, node, q);
        q->answer = q->model;
        if (p->o.chooser && q->allowed & (q->allowed - 1)) p->o.chooser->ask(p->o.chooser->ctx, q);
        p->question =
            sn_arena_grow(p->m, p->question, sizeof *p->question, p->n_question, &p->cap_question);
        p->question[p->n_question++] = q;
    }
    reach(p, id);
    return p->asked[id] = q;
}

static void set_sample(sn_passes *p, sn_question *q, int n_out, sn_node *const *out, int n_member,
                       sn_node *const *member) {
    if (q->n_out || !p->o.chooser) return;
    sn_node **copy = sn_arena_alloc(p->m, sizeof *copy * (size_t)(n_out + n_member));
    memcpy(copy, out, sizeof *copy * (size_t)n_out);
    memcpy(copy + n_out, member, sizeof *copy * (size_t)n_member);
    q->n_out = n_out, q->out = copy;
    q->n_member = n_member, q->member = copy + n_out;
}

sn_answer sn_choose(sn_passes *p, const sn_node *n) {
    bool product = is_product(n);
    if (!product && n->op != SN_OP_attention && !cost_of((sn_op)n->op)) return SN_CHOOSE_FUSED;
    sn_question *q = question_of(p, n);
    sn_node *self = (sn_node *)(uintptr_t)n;
    if (!product) set_sample(p, q, 1, &self, 1, &self);
    return q->answer;
}

void sn_choice_sample(sn_passes *p, const sn_node *dot, int n_out, sn_node *const *out,
                      int n_member, sn_node *const *member) {
    set_sample(p, question_of(p, dot), n_out, out, n_member, member);
}
