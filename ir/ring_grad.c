/* ring_grad.c: the gradient of attention whose rows are divided among ranks (ring_attention.c). It
 * visits the pieces of keys again with the rows' final result and log-sum-exp. It fetches keys and
 * values a second time rather than keep them, and sends their gradients to their owners while the
 * next call runs. */
#include "ir/decomp_impl.h"
#include "ir/grad_impl.h"
#include "ir/ring.h"

#include <string.h>

/* What a step leaves behind: the sum of gradients of queries; of its keys and values those that it
 * has found, and the sums after they have come back. */
typedef struct step {
    sn_node *q, *found[2], *sum[2];
} step;

typedef struct backward {
    ring g;
    sn_node *result, *cotangent;
    sn_node *const *e;  /* [groups][halves] log-sum-exps */
    const sn_attr *wrt; /* captured tensors with a gradient; NULL: none */
    sn_node **of;       /* [n_in] their sums */
    sn_node **q;        /* [halves] sums of the group */
    step done[3];       /* the last steps, the last one first */
} backward;

/* sum + x, in the type of results that are not joined yet */
static sn_node *joined(const ring *g, sn_node *sum, sn_node *x) {
    x = sn_b_cast(x, g->type);
    return sum ? OP2(add, sum, x) : x;
}

static void call(backward *b, const ring_place *at, sn_node *const *kv, step *now) {
    const ring *g = &b->g;
    sn_node *q = ring_queries(g, g->in[0], at), *k = kv[0];
    sn_node *e = b->e[at->group * g->halves + at->half];
    sn_node *given[] = {ring_queries(g, b->result, at), ring_queries(g, b->cotangent, at), e,
                        sn_gr_fill(e, 0)};
    ring_waits waits = {0};
    ring_wait(g, &waits, now->q ? now->q : b->done[0].q, q);
    for (int i = 0; i < 2; i++) {
        ring_wait(g, &waits, b->done[0].found[i], k);
        ring_wait(g, &waits, b->done[1].sum[i], k); /* they travel during the next step */
    }
    sn_node *d[3];
    for (int i = 0; i < 3; i++) d[i] = ring_call(g, at, kv, 4, given, i, &waits);
    now->q = b->q[at->half] = joined(g, b->q[at->half], d[0]);
    for (int i = 0; i < 2; i++) now->found[i] = joined(g, now->found[i], d[1 + i]);
    for (int i = 0; b->wrt && i < b->wrt->n; i++) {
        sn_node **of = &b->of[3 + b->wrt->v[i]];
        *of = joined(g, *of, ring_call(g, at, kv, 4, given, 3 + b->wrt->v[i], &waits));
    }
}

/* All halves of a group's queries and one piece of keys. sum: [2] gradients of this rank's */
static void backward_step(backward *b, ring_place at, sn_node **sum) {
    const ring *g = &b->g;
    ring_waits after = {0};
    step now = {0};
    const step *first = &b->done[1], *second = &b->done[2];
    ring_wait(g, &after, first->q, NULL);
    for (int i = 0; i < 2; i++)
        if (second->sum[i]) ring_wait(g, &after, second->sum[i], NULL);
    sn_node *kv[2];
    for (int i = 0; i < 2; i++) kv[i] = ring_fetch(g, ring_keys(g, g->in[1 + i], &at), &at, &after);
    for (at.half = 0; at.half < g->halves; at.half++)
        if (ring_sees(g, &at)) call(b, &at, kv, &now);
    for (int i = 0; i < 2 && !g->m->error.code; i++) {
        sn_node *d = sn_b_cast(now.found[i], (sn_dtype)g->in[1 + i]->dtype);
        now.sum[i] = sum[i] = joined(g, sum[i], ring_send_back(g, d, &at));
    }
    memmove(b->done + 1, b->done, 2 * sizeof *b->done);
    b->done[0] = now;
}

/* All gradients, in b->of. */
static void find_all(backward *b) {
    const ring *g = &b->g;
    int64_t pieces = g->halves * g->slices;
    size_t n_q = (size_t)(g->groups * g->halves), n_k = (size_t)(g->groups * pieces);
    sn_node **q = sn_arena_alloc(g->m, (n_q + 2 * n_k) * sizeof *q),
            **kv[2] = {q + n_q, q + n_q + n_k};
    ring_place at = {0};
    for (at.group = 0; at.group < g->groups; at.group++) {
        b->q = q + at.group * g->halves;
        for (int64_t p = 0; p < pieces; p++) {
            sn_node *sum[2] = {NULL, NULL};
            at.from = p / g->slices, at.slice = p % g->slices;
            for (at.j = 0; at.j < g->blocks && !g->m->error.code; at.j++)
                if (ring_needs(g, &at)) backward_step(b, at, sum);
            for (int i = 0; i < 2; i++) kv[i][at.group * pieces + p] = sum[i];
        }
    }
    if (g->m->error.code) return;
    b->of[0] = ring_whole(g, q, g->halves);
    for (int i = 0; i < 2; i++) b->of[1 + i] = ring_whole(g, kv[i], pieces);
}

/* Operands of attention_grad after k and v: the result and its cotangent. */
enum { RESULT = 3, COTANGENT, CAPTURED };

bool ring_attention_grad(decomp *c) {
    sn_module *m = c->m;
    int n_in = c->n_in - (CAPTURED - RESULT), index = (int)sn_dc_int(c, SN_A_index, 0);
    sn_node **in = sn_arena_alloc(m, sizeof *in * (size_t)c->n_in);
    sn_attr *attr = sn_arena_alloc(m, sizeof *attr * (size_t)c->n_attr);
    int n_attr = 0;
    for (int i = 0, n = 0; i < c->n_in; i++)
        if (i < RESULT || i >= CAPTURED) in[n++] = c->in[i];
    for (int i = 0; i < c->n_attr; i++)
        if (c->attr[i].key != SN_A_index && c->attr[i].key != SN_A_wrt) attr[n_attr++] = c->attr[i];
    backward b = {.result = c->in[RESULT], .cotangent = c->in[COTANGENT]};
    ring_open(&b.g, m, n_in, in, n_attr, attr);
    size_t parts = (size_t)(b.g.groups * b.g.halves);
    sn_node **o = sn_arena_alloc(m, 2 * parts * sizeof *o);
    ring_forward(&b.g, o, o + parts);
    b.e = o + parts;
    if (m->error.code) return false;
    b.done[0].q = b.done[1].q = o[parts - 1]; /* not during the forward part */
    b.g.attr = c->attr, b.g.n_attr = c->n_attr;
    b.wrt = sn_dc_attr(c, SN_A_wrt);
    b.of = sn_arena_alloc(m, sizeof *b.of * (size_t)n_in);
    find_all(&b);
    if (m->error.code) return false;
    if (index < 0 || index >= n_in || !b.of[index])
        return sn_dc_fail(c, "operand %d has no gradient", index);
    c->out[0] = sn_b_cast(b.of[index], (sn_dtype)in[index]->dtype);
    c->n_out = 1;
    return true;
}

/* Captured tensor i of the operands gets a gradient. */
static bool wants(const grad *c, int i) {
    return sn_dtype_is_float((sn_dtype)c->n->in[i]->dtype) && sn_gr_needs(c, i) &&
           sn_score_reads(sn_attr_region(c->n, SN_A_score), i - 3);
}

bool grad_ring_attention(grad *c) {
    sn_node *n = c->n;
    int n_wrt = 0, n_attr = n->n_attr;
    int64_t *wrt = sn_arena_alloc(n->m, sizeof *wrt * (size_t)(n->n_in + 1));
    for (int i = 3; i < n->n_in; i++) {
        if (!wants(c, i)) continue;
        if (n_wrt == SN_MAX_RESULTS - 3 || n->in[i]->rank + 2 > SN_MAX_RANK) return false;
        wrt[n_wrt++] = i - 3;
    }
    sn_attr *attr = sn_arena_alloc(n->m, sizeof *attr * (size_t)(n->n_attr + 2));
    sn_node **in = sn_arena_alloc(n->m, sizeof *in * (size_t)(n->n_in + 2));
    memcpy(attr, n->attr, sizeof *attr * (size_t)n->n_attr);
    if (n_wrt) attr[n_attr++] = SN_LIST(wrt, n_wrt, wrt);
    for (int i = 0; i < n->n_in; i++) in[i < RESULT ? i : i + CAPTURED - RESULT] = n->in[i];
    in[RESULT] = n, in[COTANGENT] = c->g;
    for (int i = 0; i < n->n_in; i++) {
        if (i < 3 ? !sn_gr_needs(c, i) : !wants(c, i)) continue;
        attr[n_attr] = SN_INT(index, i);
        sn_gr_give(c, i,
                   sn_node_new(n->m, SN_OP_attention_grad, n->n_in + 2, in, n_attr + 1, attr));
    }
    return true;
}
