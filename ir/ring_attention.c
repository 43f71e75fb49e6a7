/* ring_attention.c: attention whose rows are divided among ranks [Liu, Zaharia and Abbeel, Ring
 * Attention with Blockwise Transformers, 2023].
 *
 * Rank r has the queries, keys and values of positions r T to r T + T - 1. Its queries attend to one
 * block of keys after the other: their own, those of rank r - 1, r - 2, ... Each block's result o_j
 * and log-sum-exp e_j are merged with what came before:
 *
 *   top = max(e, e_j);  o = (o e^(e - top) + o_j e^(e_j - top)) / sum;  e = top + log sum
 *
 * Regions see positions among all rows: two arguments more are the positions of the first query and
 * of the first key. Tiles that the mask hides cost nothing, as in every attention. With {behind} keys
 * of later ranks, and of ranks too far before, are not sent either.
 *
 * The backward part visits the blocks again with the rows' final result and log-sum-exp. It fetches
 * keys and values a second time rather than keep them, and sends their gradients to their owners. A
 * rank holds three blocks of keys and values at most: its own, the present one, and the next one,
 * which is under way meanwhile. For that, a block is fetched after the last but one is done, and no
 * block begins before the results of the one before are joined. Operands that are not read say so. */
#include "ir/decomp_impl.h"
#include "ir/grad_impl.h"

#include <math.h>
#include <string.h>

enum { MOST = 3 }; /* operands that are not read */

typedef struct ring {
    sn_module *m;
    int n_in, n_attr;
    sn_node *const *in; /* q, k, v, captured */
    const sn_attr *attr;
    int64_t ranks, blocks; /* blocks: that a query may see */
    bool wrap;
    sn_node *self, *rows[2]; /* i32: this rank's number, its queries and keys */
    sn_dtype type;           /* of results until they are joined */
} ring;

typedef struct list {
    int n;
    sn_node *node[MOST];
} list;

static int64_t number(const ring *g, sn_attr_key key, int64_t otherwise) {
    const sn_attr *a = sn_attr_find(g->n_attr, g->attr, key);
    return a ? a->i : otherwise;
}

static void open_ring(ring *g, sn_module *m, int n_in, sn_node *const *in, int n_attr,
                      const sn_attr *attr) {
    *g = (ring){.m = m, .n_in = n_in, .in = in, .n_attr = n_attr, .attr = attr, .type = SN_F32};
    g->ranks = number(g, SN_A_ranks, 1);
    g->wrap = !sn_attr_find(n_attr, attr, SN_A_behind);
    g->blocks = number(g, SN_A_behind, g->ranks - 1) + 1;
    if (g->blocks > g->ranks) g->blocks = g->ranks;
    for (int i = 0; i < n_in; i++)
        if (in[i]->dtype == SN_F64) g->type = SN_F64;
    g->self = sn_b_own_rank(m, sn_attr_find(n_attr, attr, SN_A_mesh)->s, g->ranks);
    for (int i = 0; i < 2; i++) g->rows[i] = sn_b_dim(m, SN_I32, in[i]->shape[2]);
}

/* ---- blocks ---- */

/* One element of each row of the first head of x, for an operand that is not read. */
static sn_node *little(sn_node *x) {
    sn_dim start[4] = {0}, size[4] = {x->shape[0], 1, x->shape[2], 1};
    return sn_node_new(x->m, SN_OP_slice, 1, &x,
                       SN_ATTRS(SN_LIST(start, 4, start), SN_LIST(size, 4, size)));
}

static void add(list *l, sn_node *x) {
    l->node[l->n++] = little(x);
}

/* Makes lists equally long, so that all blocks have the same kernel. */
static void fill(const ring *g, list *l, int n) {
    sn_node *x = sn_b_cast(little(g->in[0]), g->type);
    while (l->n < n) l->node[l->n++] = x;
}

/* x of the rank j before this one; it may be fetched when `after` is done. */
static sn_node *fetch(const ring *g, sn_node *x, int64_t j, const list *after) {
    return j ? sn_b_permute(x, -j, g->wrap, g->n_attr, g->attr, after->n, after->node) : x;
}

/* A region of positions as one of indices, with more arguments: positions of the first query and the
 * first key, and what is not read. first: the argument b. */
static const sn_region *of_indices(const ring *g, const sn_region *r, int first, const list *deps) {
    sn_module *m = g->m;
    int n = r->n_arg;
    sn_node **arg = sn_arena_alloc(m, sizeof *arg * (size_t)(2 * n + 2 + MOST)), *out;
    sn_node **use = arg + n + 2 + MOST;
    for (int i = 0; i < n; i++) {
        const sn_node *a = r->arg[i];
        use[i] = arg[i] = sn_arg(m, i, (sn_dtype)a->dtype, a->rank, a->shape);
    }
    for (int i = 0; i < 2; i++) {
        int at = first + 2 + i;
        arg[n + i] = sn_arg(m, n + i, SN_I32, 0, NULL);
        use[at] = OP2(add, arg[at], arg[n + i]);
    }
    for (int i = 0; i < deps->n; i++) {
        const sn_node *d = deps->node[i];
        arg[n + 2 + i] = sn_arg(m, n + 2 + i, (sn_dtype)d->dtype, d->rank, d->shape);
    }
    sn_region_inline(r, use, &out);
    return sn_region_new(m, n + 2 + deps->n, arg, 1, &out);
}

/* attention, or given more operands its gradient, for keys and values of the rank j before. */
static sn_node *block(const ring *g, int64_t j, sn_node *const *kv, int n_given,
                      sn_node *const *given, int64_t index, const list *deps) {
    sn_module *m = g->m;
    int n = 0, n_attr = 0;
    sn_node **in = sn_arena_alloc(m, sizeof *in * (size_t)(g->n_in + n_given + 2 + MOST));
    sn_attr *attr = sn_arena_alloc(m, sizeof *attr * (size_t)(g->n_attr + 2));
    in[n++] = g->in[0];
    in[n++] = kv[0];
    in[n++] = kv[1];
    for (int i = 0; i < n_given; i++) in[n++] = given[i];
    for (int i = 3; i < g->n_in; i++) in[n++] = g->in[i];
    sn_node *from = OPC(mod, OPC(sub, g->self, (double)j), (double)g->ranks);
    in[n++] = OP2(mul, g->self, g->rows[0]);
    in[n++] = OP2(mul, from, g->rows[1]);
    for (int i = 0; i < deps->n; i++) in[n++] = deps->node[i];
    for (int i = 0; i < g->n_attr; i++) {
        sn_attr a = g->attr[i];
        if (a.key == SN_A_ranks || a.key == SN_A_behind) continue;
        if (a.key == SN_A_score || a.key == SN_A_mask)
            a.r = of_indices(g, a.r, a.key == SN_A_score, deps);
        attr[n_attr++] = a;
    }
    if (!n_given) return sn_node_new(m, SN_OP_attention, n, in, n_attr, attr);
    attr[n_attr++] = SN_INT(lse, 1);
    attr[n_attr++] = SN_INT(index, index);
    return sn_node_new(m, SN_OP_attention_grad, n, in, n_attr, attr);
}

/* o and e of the blocks so far with those of one more; see above. */
static void merge(sn_node **o, sn_node **e, sn_node *o_j, sn_node *e_j) {
    sn_node *top = OP2(max, *e, e_j), *none = OPC(eq, top, -INFINITY);
    sn_node *zero = sn_b_const(top->m, (sn_dtype)top->dtype, 0);
    sn_node *one = sn_b_const(top->m, (sn_dtype)top->dtype, 1);
    sn_node *from = sn_b_select(none, zero, top);
    sn_node *w = OP1(exp, OP2(sub, *e, from)), *w_j = OP1(exp, OP2(sub, e_j, from));
    sn_node *sum = sn_b_select(none, one, OP2(add, w, w_j));
    *o = OP2(add, OP2(mul, *o, OP2(div, w, sum)), OP2(mul, o_j, OP2(div, w_j, sum)));
    *e = OP2(add, top, OP1(log, sum));
}

static void forward(const ring *g, sn_node **o, sn_node **e) {
    sn_node *last_but_one = NULL;
    *o = *e = NULL;
    for (int64_t j = 0; j < g->blocks && !g->m->error.code; j++) {
        list deps = {0}, after = {0};
        if (*o) add(&deps, *o);
        fill(g, &deps, 1);
        if (last_but_one) add(&after, last_but_one);
        sn_node *kv[2] = {fetch(g, g->in[1], j, &after), fetch(g, g->in[2], j, &after)};
        sn_node *y = block(g, j, kv, 0, NULL, 0, &deps), *y_e = sn_b_attention_lse(y);
        last_but_one = *o;
        y = sn_b_cast(y, g->type);
        if (*o)
            merge(o, e, y, y_e);
        else
            *o = y, *e = y_e;
    }
}

bool decomp_ring_attention(decomp *c) {
    ring g;
    sn_node *o, *e;
    if (!sn_dc_attr(c, SN_A_mesh) || sn_dc_int(c, SN_A_ranks, 0) < 1)
        return sn_dc_fail(c, "the mesh axis and the number of its ranks are needed");
    if (sn_dc_attr(c, SN_A_rate) || sn_dc_attr(c, SN_A_weights) || sn_dc_attr(c, SN_A_sink))
        return sn_dc_fail(c, "needs weights that are a softmax, without dropout and sink");
    if (sn_dc_int(c, SN_A_behind, 0) < 0) return sn_dc_fail(c, "hides the keys of its own rank");
    for (int i = 0; i < 3; i++)
        if (c->in[i]->rank != 4) return sn_dc_fail(c, "q, k and v need 4 axes");
    open_ring(&g, c->m, c->n_in, c->in, c->n_attr, c->attr);
    forward(&g, &o, &e);
    return !c->m->error.code && sn_dc_done(c, o);
}

/* ---- gradient ---- */

/* sum + x, in the type of results that are not joined yet */
static sn_node *joined(const ring *g, sn_node *sum, sn_node *x) {
    x = sn_b_cast(x, g->type);
    return sum ? OP2(add, sum, x) : x;
}

/* Captured tensor i of the operands gets a gradient. */
static bool wants(const grad *c, int i) {
    return sn_dtype_is_float((sn_dtype)c->n->in[i]->dtype) && sn_gr_needs(c, i) &&
           sn_score_reads(sn_attr_region(c->n, SN_A_score), i - 3);
}

bool grad_ring_attention(grad *c) {
    sn_node *n = c->n, *o, *e;
    ring g;
    open_ring(&g, n->m, n->n_in, n->in, n->n_attr, n->attr);
    forward(&g, &o, &e);
    if (n->m->error.code) return true;
    int n_wrt = 0;
    int64_t *wrt = sn_arena_alloc(n->m, sizeof *wrt * (size_t)(n->n_in + 1));
    for (int i = 3; i < n->n_in; i++) {
        if (!wants(c, i)) continue;
        if (n_wrt == SN_MAX_RESULTS - 3 || n->in[i]->rank + 2 > SN_MAX_RANK) return false;
        wrt[n_wrt++] = i - 3;
    }
    sn_attr *attr = sn_arena_alloc(n->m, sizeof *attr * (size_t)(n->n_attr + 1));
    memcpy(attr, n->attr, sizeof *attr * (size_t)n->n_attr);
    g.attr = attr;
    if (n_wrt) attr[g.n_attr++] = SN_LIST(wrt, n_wrt, wrt);
    sn_node *given[] = {n, c->g, e, sn_gr_fill(e, 0)};
    /* [3][blocks] sums after each block, of q, and of k and v as they have come back */
    sn_node **sum[3], **of = sn_arena_alloc(n->m, sizeof *of * (size_t)(n->n_in + 3 * g.blocks));
    for (int i = 0; i < 3; i++) sum[i] = of + n->n_in + i * g.blocks;
    for (int64_t j = 0; j < g.blocks && !n->m->error.code; j++) {
        list deps = {0}, after = {0}, none = {0};
        if (j == 1) add(&after, c->g);
        for (int i = 0; i < 3; i++) {
            int64_t late = i ? 1 : 0; /* gradients of k and v travel during the next block */
            if (j >= 1 + late) add(&deps, sum[i][j - 1 - late]);
            if (j >= 2 + late) add(&after, sum[i][j - 2 - late]);
        }
        fill(&g, &deps, MOST);
        sn_node *kv[2] = {fetch(&g, n->in[1], j, &after), fetch(&g, n->in[2], j, &after)};
        for (int i = 0; i < 3; i++) {
            sn_node *d = block(&g, j, kv, 4, given, i, &deps);
            if (i && j) d = sn_b_permute(d, j, g.wrap, g.n_attr, g.attr, none.n, none.node);
            sum[i][j] = joined(&g, j ? sum[i][j - 1] : NULL, d);
        }
        for (int i = 0; i < n_wrt; i++) {
            int at = 3 + (int)wrt[i];
            of[at] = joined(&g, of[at], block(&g, j, kv, 4, given, at, &deps));
        }
    }
    for (int i = 0; i < 3 && !n->m->error.code; i++)
        if (sn_gr_needs(c, i)) sn_gr_give(c, i, sum[i][g.blocks - 1]);
    for (int i = 0; i < n_wrt && !n->m->error.code; i++)
        sn_gr_give(c, 3 + (int)wrt[i], of[3 + wrt[i]]);
    return true;
}
