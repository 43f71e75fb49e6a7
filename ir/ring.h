/* ring.h: inside ring_attention: which calls of attention it consists of. */
#ifndef SN_RING_H
#define SN_RING_H

#include "ir/module_impl.h"

struct decomp;

/* Rank r has the queries, keys and values of positions r T to r T + T - 1; with {zigzag} the r-th half
 * block of T/2 positions from the start and the r-th from the end, so that under a causal mask all
 * ranks have equal work. A call of attention takes the queries of a group of heads, in one half, and
 * a piece of the keys of one rank, so that what is under way is small. */
enum { RING_HALVES = 2, RING_WAITS = 5 /* operands of a call that are not read */ };

typedef struct ring {
    sn_module *m;
    int n_in, n_attr;
    sn_node *const *in; /* q, k, v, captured */
    const sn_attr *attr;
    int64_t ranks, blocks;          /* blocks: that a query may see */
    int64_t behind;                 /* with zigzag: halves that it may see before its own */
    bool wrap;                      /* blocks of later ranks, too */
    int64_t groups, halves, slices; /* groups of heads; slices: of the keys in a half */
    sn_node *self, *rows[2];        /* i32: this rank's number, queries and keys in a half */
    sn_dtype type;                  /* of results until they are joined */
} ring;

/* A call's place. */
typedef struct ring_place {
    int64_t group, j;    /* keys of the rank j before this one */
    int64_t half;        /* of the queries */
    int64_t from, slice; /* keys: slice of that half */
} ring_place;

/* Nodes that something waits for, as operands that are not read. */
typedef struct ring_waits {
    int n;
    sn_node *node[RING_WAITS];
} ring_waits;

void ring_open(ring *g, sn_module *m, int n_in, sn_node *const *in, int n_attr,
               const sn_attr *attr);
/* Of x, [B, heads, rows, ..]: a group's queries in a half; a piece of keys. */
sn_node *ring_queries(const ring *g, sn_node *x, const ring_place *at);
sn_node *ring_keys(const ring *g, sn_node *x, const ring_place *at);
/* Whether any rank needs these keys of another one; whether any of the queries may see any of the keys. */
bool ring_needs(const ring *g, const ring_place *at);
bool ring_sees(const ring *g, const ring_place *at);
/* x, a piece of keys of the rank j before this one: fetched when `after` is done. */
sn_node *ring_fetch(const ring *g, sn_node *x, const ring_place *at, const ring_waits *after);
/* d, which belongs to a piece of keys of the rank j before, goes there; the result belongs here. */
sn_node *ring_send_back(const ring *g, sn_node *d, const ring_place *at);
/* Waits for x. NULL: for nothing, with an operand like that of `like`, so that all calls share a kernel. */
void ring_wait(const ring *g, ring_waits *l, sn_node *x, sn_node *like);
/* attention, or given n_given more operands result `index` of its gradient. kv: pieces of keys and
 * values. */
sn_node *ring_call(const ring *g, const ring_place *at, sn_node *const *kv, int n_given,
                   sn_node *const *given, int64_t index, const ring_waits *after);
/* The whole of parts: [groups][n], which follow each other along the rows. */
sn_node *ring_whole(const ring *g, sn_node *const *part, int64_t n);
/* Results [groups][halves], and their log-sum-exps. */
void ring_forward(const ring *g, sn_node **o, sn_node **e);

/* The decomposition of attention_grad with {ranks}: the gradient of ring_attention. */
bool ring_attention_grad(struct decomp *c);

#endif
