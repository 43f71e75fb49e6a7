/* body.h: the body of a `loops` kernel laid over a domain of axes: which values vary along which
 * axis, which memory they come from, and their emission for one row position. Shared by the row
 * kernels (loops.c) and the column reductions (column.c). */
#ifndef SN_BODY_H
#define SN_BODY_H

#include "codegen/emit/elem.h"
#include "codegen/emit/family.h"

enum {
    DEAR_COST = 8, /* of an operation with that flag, and of a look-up */
    MOST_COST = 1 << 20,
    DRAWN = 64,        /* consecutive random numbers that come from the same counters: ... */
    DRAWN_BLOCKS = 16, /* ... so many, each of which gives four, that far apart */
    DRAWN_WORDS = 4
};

/* A node at a place: when it is made its axis a lies on axis a + shift of the domain; place[]
 * follows the merging of axes. */
typedef struct sn_item {
    const sn_node *n;
    int shift;
    uint8_t place[SN_MAX_RANK]; /* domain axis of each of the node's axes */
    int op[SN_MAX_RANK + 1]; /* operand items; -1: captured tensor, read by gather, at or random */
    uint32_t vary;           /* axes of the domain along which the value changes */
    int stage;               /* row reductions that must be finished before it can be computed */
    int cost;                /* elementwise operations below it, along the row; dear ones count
                                DEAR_COST */
    int cache;               /* row buffer that keeps it for a later loop, -1: none */
    bool quiet; /* a maximum or minimum that may overlook NaN: its users see it elsewhere */
    int out;    /* result of the kernel that this is, -1: none */
    sn_dim stride[SN_MAX_RANK]; /* of an operand of the kernel, along the domain's axes */
    em_val ptr;                 /* its place for the current indices */
    bool filled;                /* during emission: this loop has written its row buffer */
    bool available;             /* ... an earlier loop has; read it from there */
    em_val word[DRAWN_WORDS];   /* of random bits: of this position and the three that share its
                                   counters */
    em_val uniform, vec;        /* emitted values: of this row; of this position of the row */
} sn_item;

typedef struct sn_body {
    em *e; /* NULL while only analysing */
    const sn_kernel *k;
    const sn_region *region;
    sn_item *item;
    int n_item;
    int rank; /* of the domain, after merging axes */
    int full_rank;
    sn_dim domain[SN_MAX_RANK];
    sn_dim factor[SN_MAX_RANK]
                 [SN_MAX_RANK]; /* of a merged axis' size: sizes that the kernel knows */
    int n_factor[SN_MAX_RANK];
    int row; /* the axis along which vectors run */
    bool reduces;
    sn_dim out_stride[SN_MAX_RESULTS][SN_MAX_RANK];
    bool out_row[SN_MAX_RESULTS]; /* the result has the row axis (else one element a row) */
    int out_item[SN_MAX_RESULTS];
    int n_cache, n_stage;
    /* emission */
    em_val index[SN_MAX_RANK]; /* i64: of the axes other than the row's */
    em_val out_ptr[SN_MAX_RESULTS];
    int quarter; /* emission goes through positions j, j + 16, j + 32, j + 48 for a j whose vector
                    lies in the first 16 of 64 aligned elements: number of this one; else -1 */
    em_val j, mask; /* first lane's position on the row; lanes in use, NULL: all */
    int lanes;
} sn_body;

/* Lays out the body of k. False: the module's error. reduce_rows: reductions run along the row (row
 * kernels). */
bool sn_body_init(sn_body *b, em *e, const sn_kernel *k, bool reduce_rows);
em_val sn_body_extent(sn_body *b, int axis); /* size of a domain axis, i64 */
void sn_body_pointers(sn_body *b); /* operands' and results' places for the current b->index */
/* Does the body draw random numbers of which four positions of a row share counters? */
bool sn_body_draws(const sn_body *b);
void sn_body_forget_vectors(sn_body *b); /* before emission at another position */
void sn_body_forget_row(sn_body *b);     /* before emission of another row */
/* Emits at this point every value below `item` that does not vary along the row. */
void sn_body_uniforms(sn_body *b, int item);
em_val sn_body_vector(sn_body *b,
                      int item); /* at b->j under b->mask; may be a scalar if it is uniform */
em_val sn_body_cache_ptr(sn_body *b, int item);    /* its row buffer in scratch */
void sn_body_store(sn_body *b, int out, em_val v); /* v at b->j into result `out` */
/* Fetches into L2 what the next row has at b->j of the operand that item is, or of result `out`;
 * nothing where the next row is the same one, or is not stored in one piece. */
void sn_body_fetch_next(sn_body *b, int item);
void sn_body_fetch_next_out(sn_body *b, int out);

/* Reductions: the value of nothing (a scalar), and two partial results as one; NaN wins unless
 * the item is quiet. */
em_val sn_body_neutral(em *e, const sn_node *reduction);
em_val sn_body_join(em *e, const sn_item *reduction, em_val a, em_val b);

#endif
