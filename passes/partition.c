/* partition.c: collectives as the plan takes them.
 *
 * Requires primitives only (after expand). Keeps values: sums of single elements over ranks, each in
 * the same order as before. Removes collectives of one rank. Puts small sums of the same axis into
 * buckets, one message for many tensors, in the order in which the backward part makes them; large
 * tensors keep a message of their own, so that they are not copied. Terminates: one walk. */
#include "passes/graph_util.h"
#include "passes/passes.h"

#include <stdlib.h>
#include <string.h>

enum {
    SMALL = 1 << 16,  /* elements: below, the latency of a message matters */
    BUCKET = 1 << 16, /* elements of a full bucket, which starts when its last member exists */
    MEMBERS = 64      /* tensors of one bucket */
};

typedef struct bucket {
    sn_node *sum; /* all_reduce of the concatenation */
    sn_node *member[MEMBERS];
    int64_t size[MEMBERS], total;
    int n;
} bucket;

typedef struct partition {
    sn_module *m;
    bucket *bucket;
    int n_bucket;
    int *bucket_of; /* by old id: 1 + bucket; 0: none */
    uint32_t n_id;
} partition;

static int64_t elements(const sn_node *n) {
    int64_t count;
    return sn_dim_is_const(n->m, sn_dim_product(n->m, n->rank, n->shape), &count) ? count : -1;
}

static bool is_small_sum(const sn_node *n) {
    int64_t count = n->op == SN_OP_all_reduce ? elements(n) : -1;
    return count > 0 && count < SMALL && sn_attr_int(n, SN_A_ranks, 1) > 1;
}

static bool is_similar(const sn_node *a, const sn_node *b) {
    return a->dtype == b->dtype && sn_attr_int(a, SN_A_ranks, 1) == sn_attr_int(b, SN_A_ranks, 1) &&
           !strcmp(sn_attr_str(a, SN_A_mesh, ""), sn_attr_str(b, SN_A_mesh, ""));
}

/* Whether n depends on a small sum: a bucket must not depend on its own members. */
static void mark_dependent(sn_order order, uint8_t *dependent) {
    for (int i = 0; i < order.n; i++) {
        const sn_node *n = order.node[i];
        for (int k = 0; k < n->n_in; k++)
            dependent[n->id] |= dependent[n->in[k]->id] || is_small_sum(n->in[k]);
    }
}

static void collect(partition *q, const sn_entry *e) {
    sn_order order = sn_entry_topo(q->m, e);
    uint8_t *dependent = sn_arena_alloc(q->m, q->n_id);
    sn_node **list = sn_arena_alloc(q->m, sizeof *list * (size_t)(order.n + 1));
    int n = 0;
    mark_dependent(order, dependent);
    for (int i = 0; i < order.n; i++)
        if (is_small_sum(order.node[i]) && !dependent[order.node[i]->id] &&
            !q->bucket_of[order.node[i]->id])
            list[n++] = order.node[i];
    if (n) qsort(list, (size_t)n, sizeof *list, sn_by_depth);
    bucket *open = NULL;
    for (int i = 0; i < n; i++) {
        if (!open || open->n == MEMBERS || open->total >= BUCKET ||
            !is_similar(open->member[0], list[i]))
            open = &q->bucket[q->n_bucket++];
        open->member[open->n] = list[i];
        open->size[open->n++] = elements(list[i]);
        open->total += elements(list[i]);
        q->bucket_of[list[i]->id] = q->n_bucket;
    }
}

/* The names of what is summed, a line each: whoever adds other parts looks for them. */
static const char *name_of(const bucket *b) {
    size_t size = 1;
    for (int i = 0; i < b->n; i++) size += strlen(sn_attr_str(b->member[i], SN_A_name, "")) + 1;
    char *name = sn_arena_alloc(b->member[0]->m, size);
    for (int i = 0; i < b->n; i++) {
        if (i) strcat(name, "\n");
        strcat(name, sn_attr_str(b->member[i], SN_A_name, ""));
    }
    return name;
}

static sn_node *make_sum(bucket *b) {
    sn_node *flat[MEMBERS];
    const sn_node *first = b->member[0];
    sn_module *m = first->m;
    for (int i = 0; i < b->n; i++)
        flat[i] = sn_b_reshape(b->member[i]->in[0], 1, (sn_dim[]){sn_dim_const(m, b->size[i])});
    sn_node *all = sn_b_concat(m, b->n, flat, 0);
    return sn_node_new(m, SN_OP_all_reduce, 1, &all,
                       SN_ATTRS(SN_STR(name, name_of(b)),
                                SN_STR(mesh, sn_attr_str(first, SN_A_mesh, "")),
                                SN_INT(ranks, sn_attr_int(first, SN_A_ranks, 1))));
}

static sn_node *member_of(bucket *b, const sn_node *n) {
    int64_t at = 0;
    int i = 0;
    for (; b->member[i] != n; i++) at += b->size[i];
    if (!b->sum) b->sum = make_sum(b);
    sn_node *part = sn_b_slice(b->sum, 0, sn_dim_const(n->m, at), sn_dim_const(n->m, b->size[i]));
    return sn_b_reshape(part, n->rank, n->shape);
}

static sn_node *remove_single(void *ctx, sn_node *n) {
    (void)ctx;
    bool single = (sn_ops[n->op].flags & SN_OPF_COLLECTIVE) && sn_attr_int(n, SN_A_ranks, 1) == 1;
    return single ? n->in[0] : n;
}

static sn_node *rule(void *ctx, sn_node *n) {
    partition *q = ctx;
    int k = n->id < q->n_id ? q->bucket_of[n->id] : 0;
    return k && q->bucket[k - 1].n > 1 ? member_of(&q->bucket[k - 1], n) : n;
}

int sn_pass_partition(sn_passes *p) {
    int changed = sn_rewrite_module(p->m, remove_single, p);
    partition q = {.m = p->m, .n_id = sn_module_node_count(p->m)};
    int sums = 0;
    for (uint32_t id = 0; id < q.n_id; id++) sums += is_small_sum(sn_module_node(p->m, id));
    if (!sums) return changed;
    q.bucket = sn_arena_alloc(p->m, sizeof *q.bucket * (size_t)(sums + 1));
    q.bucket_of = sn_arena_alloc(p->m, sizeof *q.bucket_of * q.n_id);
    for (int e = 0; e < sn_entry_count(p->m); e++) collect(&q, sn_entry_at(p->m, e));
    return changed + sn_rewrite_module(p->m, rule, &q);
}
