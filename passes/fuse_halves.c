/* fuse_halves.c: products whose halves meet in elementwise work: act(x Wg) (x Wu) after merge.c
 * made one product of two. The panels of such a product can hold columns j and F + j side by side,
 * so that the epilogue has both in registers and only [.., F] is stored.
 *
 * Source: Shazeer 2020, "GLU variants improve transformer" (what is computed). */
#include "passes/graph_util.h"
#include "passes/grouping.h"

#include <string.h>

/* What a node is made of, as bits: the whole product, or slice i of it (FIRST << i). */
enum { WHOLE = 1, FIRST = 2, MAX_SLICES = 6 };

typedef struct pair {
    sn_node *dot, *slice[MAX_SLICES];
    int n_slice;
    sn_group group; /* of the product */
    int whole;      /* operations on the whole product, each done for both halves */
    bool meets;
    const char *why; /* not; NULL: nothing is in the way */
} pair;

typedef struct finder {
    const sn_grouping *g;
    pair *pair;
    int n_pair, cap_pair;
    int *of;       /* by node id: 1 + its pair */
    uint8_t *part; /* by node id */
} finder;

static pair *pair_of(const finder *f, const sn_node *n) {
    return f->of[n->id] ? &f->pair[f->of[n->id] - 1] : NULL;
}

static void set_part(finder *f, const sn_node *n, const pair *p, int part) {
    f->of[n->id] = 1 + (int)(p - f->pair);
    f->part[n->id] = (uint8_t)part;
}

static void spoil(pair *p, const char *why) {
    if (!p->why) p->why = why;
}

static void add_product(finder *f, sn_node *dot) {
    const sn_attr *contract = sn_attr_get(dot, SN_A_contract_b);
    int64_t n;
    if (!contract || dot->in[1]->rank - contract->n != 1 || !dot->rank ||
        !sn_dim_is_const(f->g->m, dot->shape[dot->rank - 1], &n) || n % 2)
        return;
    f->pair = sn_arena_grow(f->g->m, f->pair, sizeof *f->pair, f->n_pair, &f->cap_pair);
    pair *p = &f->pair[f->n_pair++];
    *p = (pair){.dot = dot, .group = sn_group_for(f->g, SN_KERNEL_gemm, dot)};
    set_part(f, dot, p, WHOLE);
}

/* One number for each row, as the scale of a left factor of integers is. (What is made of the product itself would have been found to read it.) */
static bool is_scale_of_rows(const sn_node *n) {
    return n->op == SN_OP_broadcast && n->in[0]->rank == n->rank &&
           n->in[0]->shape[n->rank - 1] == 1;
}

/* Can the epilogue compute n, elementwise work on what has the shape of `like`, if it is fused at all? */
static bool is_held(const finder *f, const pair *p, const sn_node *n, const sn_node *like) {
    sn_group k = sn_group_for(f->g, SN_KERNEL_NONE, like);
    k.kernel = SN_KERNEL_gemm;
    k.member = (sn_node **)&p->dot;
    k.fused = true;
    return sn_is_elementwise(n) && sn_group_joins(f->g, &k, n);
}

/* Is n arithmetic on the whole product with operands that are known before it runs? */
static bool works_on_whole(const finder *f, const pair *p, const sn_node *n) {
    if (!is_held(f, p, n, p->dot) || p->whole == sn_kernels[SN_KERNEL_gemm].epilogue.before_halves)
        return false;
    for (int i = 0; i < n->n_in; i++) {
        bool whole = pair_of(f, n->in[i]) == p && f->part[n->in[i]->id] == WHOLE;
        if (!whole && !sn_is_fixed(n->in[i]) && !is_scale_of_rows(n->in[i])) return false;
    }
    return true;
}

static bool works_on_half(const finder *f, const pair *p, const sn_node *n) {
    const pair *q = pair_of(f, n);
    return is_held(f, p, n, p->why ? n : p->slice[0]) && (!q || q == p);
}

static bool is_slice_of(const pair *p, const sn_node *n) {
    for (int i = 0; i < p->n_slice; i++)
        if (p->slice[i] == n) return true;
    return false;
}

static void add_slice(finder *f, pair *p, sn_node *n) {
    p->group.member = &p->dot;
    const char *why = sn_kernel_refuses(&p->group, SN_IN_EPILOGUE, n);
    if (why) spoil(p, why);
    if (p->n_slice && n->in[0] != p->slice[0]->in[0])
        spoil(p, "its halves are taken at different steps");
    if (p->n_slice == MAX_SLICES) return;
    set_part(f, n, p, FIRST << p->n_slice);
    p->slice[p->n_slice++] = n;
}

/* n reads x, which is part of p. */
static void follow(finder *f, pair *p, sn_node *n, const sn_node *x) {
    int part = f->part[x->id];
    if (part == WHOLE && n->op == SN_OP_slice) {
        add_slice(f, p, n);
    } else if (part == WHOLE && works_on_whole(f, p, n)) {
        p->whole += pair_of(f, n) != p;
        set_part(f, n, p, WHOLE);
    } else if (part == WHOLE) {
        spoil(p, "the product is read as a whole, too");
    } else if (works_on_half(f, p, n)) {
        part |= f->part[n->id];
        set_part(f, n, p, part);
        p->meets |= (part & (part - 1)) != 0;
    } else if (is_slice_of(p, x)) {
        spoil(p, "a half is read by something else, too");
    }
}

/* What leaves the entry is stored. */
static void leave(const finder *f, const sn_node *n) {
    pair *p = pair_of(f, n);
    if (p && (f->part[n->id] == WHOLE || is_slice_of(p, n)))
        spoil(p, "the product or a half of it is a result");
}

/* Why its halves are not computed together: once for each reason. */
static void tell(const finder *f, const pair *p) {
    for (const pair *q = f->pair; q < p; q++)
        if (q->meets && q->why == p->why) return;
    sn_remark_add(f->g->p, "fuse", p->dot, false,
                  "the halves of this product meet in a kernel of their own: %s", p->why);
}

sn_node **sn_halves_find(const sn_grouping *g) {
    finder f = {.g = g};
    sn_node **found = sn_arena_alloc(g->m, sizeof *found * g->n_id);
    f.of = sn_arena_alloc(g->m, sizeof *f.of * g->n_id);
    f.part = sn_arena_alloc(g->m, g->n_id);
    if (!sn_kernel_holds(&sn_kernels[SN_KERNEL_gemm], SN_HOLDS_HALVES, g->p->o.level)) return found;
    double begin = sn_stage_begin();
    for (int i = 0; i < g->order.n; i++) {
        sn_node *n = g->order.node[i];
        for (int j = 0; j < n->n_in; j++)
            if (pair_of(&f, n->in[j])) follow(&f, pair_of(&f, n->in[j]), n, n->in[j]);
        if (n->op == SN_OP_dot) add_product(&f, n);
    }
    for (int i = 0; i < g->n_root; i++) leave(&f, g->root[i]);
    for (int i = 0; i < f.n_pair; i++) {
        const pair *p = &f.pair[i];
        if (!p->meets) continue;
        for (int k = 0; k < p->n_slice && !p->why; k++) found[p->slice[k]->id] = p->dot;
        if (p->why) tell(&f, p);
    }
    sn_stage_end(SN_STAGE_halves, begin, -1);
    return found;
}
