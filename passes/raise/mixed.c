/* mixed.c: raises attention whose heads mix to mixed_attention: products with a matrix [H,H] over the
 * heads of the scores, of the weights, or of both.
 *
 * Without these products the chain from the scores to the values is attention. So the chain is copied
 * without them: a transpose takes the place of each, which puts the axis of heads where the product
 * puts that of mixed heads. attention.c matches the copy, whatever its spelling, and makes the node
 * with the matrices. What must hold of the products is checked on the original chain: they sum over
 * the whole axis of heads, one before the softmax, of the scores times a number, and one after it. */
#include "passes/match.h"
#include "passes/raise/attention.h"

#include <string.h>

enum { STAND_IN = 3000 };

/* A product with a matrix over the heads. */
typedef struct mix {
    sn_node *x, *matrix; /* [mixed head, head] */
    int axis;            /* of x: its heads */
    int64_t perm[SN_MAX_RANK];
    /* of the result: axes of x; that of mixed heads is in the place of x's heads */
} mix;

/* What is known of a node of the chain. */
typedef struct layout {
    bool done, ok, after; /* after: the softmax */
    bool scaled;          /* only views of the scores, times numbers */
    sn_index ix[SN_MAX_RANK];
} layout;

typedef struct chain {
    sn_raiser *r;
    sn_module *m;
    sn_node *scores;
    uint8_t *above;        /* by id: is_above, once it is known */
    layout **layout;       /* by id */
    sn_node **counterpart; /* by id */
    uint32_t *uses;        /* by id: in the chain */
    ra_mix found;
} chain;

/* ---- products over the heads ---- */

static bool is_square(const sn_node *w) {
    return w->rank == 2 && w->shape[0] == w->shape[1] && sn_match_float(w) &&
           sn_dim_is_const(w->m, w->shape[0], NULL);
}

/* x W^T + b. What is added to all scores of a row does not change their softmax. */
static bool is_linear_mix(sn_node *n, mix *k, bool *bias) {
    if (n->op != SN_OP_linear || !is_square(n->in[1]) || n->rank < 3) return false;
    *bias = n->n_in > 2;
    k->x = n->in[0];
    k->matrix = n->in[1];
    k->axis = n->rank - 1;
    for (int i = 0; i < n->rank; i++) k->perm[i] = i;
    return true;
}

static bool is_dot_mix(sn_node *n, mix *k) {
    if (n->op != SN_OP_dot) return false;
    for (int side = 0; side < 2; side++) {
        const sn_attr *of_w = ra_contract_of(n, side), *of_x = ra_contract_of(n, 1 - side);
        const sn_attr *batch = ra_batch_of(n, side);
        sn_node *full = n->in[side], *w = sn_match_below(full);
        if (!is_square(w) || !of_w || of_w->n != 1 || n->in[1 - side]->rank < 3) continue;
        int first = full->rank - 2, at = (int)of_w->v[0] - first;
        bool fits = at >= 0 && (batch ? batch->n : 0) == first;
        for (int i = 0; batch && i < batch->n; i++) fits &= batch->v[i] < first;
        if (!fits) continue;
        k->x = n->in[1 - side];
        k->axis = (int)of_x->v[0];
        k->matrix = at ? w : sn_b_transpose(w, 2, (const int64_t[]){1, 0});
        for (int i = 0, from[2]; i < n->rank; i++) {
            ra_result_axis(n, i, from);
            k->perm[i] = from[1 - side] < 0 ? k->axis : from[1 - side];
        }
        return true;
    }
    return false;
}

static bool is_mix(sn_node *n, mix *k, bool *bias) {
    *bias = false;
    return is_dot_mix(n, k) || is_linear_mix(n, k, bias);
}

/* ---- the chain ---- */

static bool is_step(sn_node *n) {
    return sn_is_elementwise(n) || n->op == SN_OP_reshape || n->op == SN_OP_transpose ||
           n->op == SN_OP_softmax || sn_element_opened(n);
}

/* Products below n that may be the scores; *mixes: whether heads mix on the way. */
static int find_scores(sn_node *n, uint8_t *seen, sn_node **found, int count, int cap,
                       bool *mixes) {
    mix k;
    bool bias;
    if (seen[n->id]) return count;
    seen[n->id] = 1;
    if (is_mix(n, &k, &bias)) {
        *mixes = true;
        return find_scores(k.x, seen, found, count, cap, mixes);
    }
    if (n->op == SN_OP_dot) {
        if (count < cap) found[count++] = n;
        return count;
    }
    for (int i = 0; i < n->n_in && is_step(n) && n->dtype != SN_BOOL; i++)
        count = find_scores(n->in[i], seen, found, count, cap, mixes);
    return count;
}

/* Whether the scores are below n. */
static bool is_above(chain *c, sn_node *n) {
    enum { UNKNOWN, NO, YES };
    mix k;
    bool bias;
    if (n == c->scores) return true;
    if (c->above[n->id] == UNKNOWN) {
        bool yes = false;
        c->above[n->id] = NO;
        if (is_mix(n, &k, &bias))
            yes = is_above(c, k.x);
        else if (is_step(n))
            for (int i = 0; i < n->n_in; i++) yes |= is_above(c, n->in[i]);
        c->above[n->id] = yes ? YES : NO;
    }
    return c->above[n->id] == YES;
}

static layout *find_layout(chain *c, sn_node *n);

/* A product over the heads: where heads are in the scores, it must say as all others do. */
static bool layout_of_mix(chain *c, const mix *k, bool bias, layout *p) {
    layout *x = find_layout(c, k->x);
    if (!x || x->ix[k->axis].n != 1 || (!x->after && !x->scaled) || (x->after && bias))
        return false;
    const sn_digit *d = &x->ix[k->axis].d[0];
    ra_mix *f = &c->found;
    if (f->matrix[x->after] || d->size != k->matrix->shape[0]) return false;
    int axis = (int)sn_attr_int(d->src, SN_A_index, 0) - STAND_IN;
    bool first = !f->matrix[0] && !f->matrix[1];
    if (!first && (f->axis != axis || f->low != d->low || f->size != d->size)) return false;
    f->axis = axis, f->low = d->low, f->size = d->size;
    f->matrix[x->after] = k->matrix;
    for (size_t i = 0; i < sizeof p->ix / sizeof *p->ix && (int)i < k->x->rank; i++)
        p->ix[i] = x->ix[k->perm[i]];
    p->after = x->after;
    return true;
}

static bool layout_of_step(chain *c, sn_node *n, layout *p) {
    const layout *from = NULL;
    double by;
    for (int i = 0; i < n->n_in; i++) {
        if (!is_above(c, n->in[i])) continue;
        layout *x = find_layout(c, n->in[i]);
        if (!x) return false;
        if (!from) from = x;
    }
    if (!from) return false;
    bool view = n->op == SN_OP_reshape || n->op == SN_OP_transpose;
    bool scales =
        n->op == SN_OP_mul && (sn_match_const(n->in[0], &by) || sn_match_const(n->in[1], &by));
    p->after = from->after || n->op == SN_OP_softmax;
    p->scaled = from->scaled && (view || scales);
    if (view) return sn_index_push(n, from->ix, p->ix);
    memcpy(p->ix, from->ix, sizeof p->ix);
    return true;
}

/* The indices of n's elements in those of the scores; NULL: heads mix in another way. */
static layout *find_layout(chain *c, sn_node *n) {
    layout *p = c->layout[n->id];
    mix k;
    bool bias;
    if (p) return p->ok ? p : NULL;
    p = c->layout[n->id] = sn_arena_alloc(c->m, sizeof *p);
    *p = (layout){.done = true};
    if (n == c->scores) {
        for (int i = 0; i < n->rank; i++)
            p->ix[i] = sn_index_whole(sn_arg(c->m, STAND_IN + i, SN_I32, 0, NULL), n->shape[i]);
        p->ok = p->scaled = true;
    } else {
        p->ok = is_mix(n, &k, &bias) ? layout_of_mix(c, &k, bias, p) : layout_of_step(c, n, p);
    }
    return p->ok ? p : NULL;
}

/* n without products over the heads; counts the uses of the chain's nodes. */
static sn_node *make_counterpart(chain *c, sn_node *n) {
    mix k;
    bool bias;
    c->uses[n->id]++;
    if (n == c->scores || c->counterpart[n->id]) return n == c->scores ? n : c->counterpart[n->id];
    sn_node *t;
    if (is_mix(n, &k, &bias)) {
        t = sn_b_transpose(make_counterpart(c, k.x), k.x->rank, k.perm);
    } else {
        sn_node **in = sn_arena_alloc(c->m, sizeof *in * n->n_in);
        for (int i = 0; i < n->n_in; i++)
            in[i] = is_above(c, n->in[i]) ? make_counterpart(c, n->in[i]) : n->in[i];
        t = sn_node_with(n, in);
    }
    return c->counterpart[n->id] = t;
}

/* Whether a node of the chain is needed elsewhere, too. */
static bool has_other_user(const chain *c, uint32_t n_node) {
    for (uint32_t id = 0; id < n_node; id++)
        if (c->uses[id] && c->uses[id] < (id < c->r->n_uses ? c->r->uses[id] : 0)) return true;
    return false;
}

static sn_node *match_scores(sn_raiser *r, sn_node *n, int side, sn_node *scores) {
    uint32_t count = sn_module_node_count(r->m);
    chain c = {.r = r, .m = r->m, .scores = scores};
    c.above = sn_arena_alloc(r->m, count);
    c.layout = sn_arena_alloc(r->m, sizeof *c.layout * count);
    c.counterpart = sn_arena_alloc(r->m, sizeof *c.counterpart * count);
    c.uses = sn_arena_alloc(r->m, sizeof *c.uses * count);
    const layout *top = is_above(&c, n->in[side]) ? find_layout(&c, n->in[side]) : NULL;
    if (!top || !top->after || (!c.found.matrix[0] && !c.found.matrix[1])) return NULL;
    sn_node *in[2] = {n->in[0], n->in[1]};
    in[side] = make_counterpart(&c, n->in[side]);
    if (sn_module_error(r->m)->code || has_other_user(&c, count)) return NULL;
    return ra_raise_product(r, sn_node_with(n, in), side, &c.found);
}

/* Whether n was there before this round: the users of its operands are known only then. */
static bool is_settled(const sn_raiser *r, const sn_node *n) {
    for (int i = 0; i < r->order.n; i++)
        if (r->order.node[i] == n) return true;
    return false;
}

/* A product of weights, which mix, and values. */
sn_node *sn_raise_mixed(sn_raiser *r, sn_node *n) {
    sn_node *found[4];
    if (!sn_raise_wants_attention(r) || !sn_match_float(n)) return NULL;
    for (int side = 0; side < 2; side++) {
        bool mixes = false;
        uint8_t *seen = sn_marks_open(r->m);
        int count = find_scores(n->in[side], seen, found, 0, 4, &mixes);
        sn_marks_close(r->m, seen);
        if (!mixes || !is_settled(r, n)) continue;
        for (int i = 0; i < count; i++) {
            sn_node *y = match_scores(r, n, side, found[i]);
            if (y || sn_module_error(r->m)->code) return y;
        }
    }
    return NULL;
}
