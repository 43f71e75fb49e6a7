/* body.h: the body of a map-reduce kernel over a domain of axes: along which axes each value varies,
 * where operands lie in memory, and the code of a vector of the row. Shared by the row kernels
 * (map_reduce.c) and the column reductions (column.c). */
#ifndef SN_BODY_H
#define SN_BODY_H

#include "codegen/emit/elem.h"
#include "codegen/emit/family.h"
#include "codegen/tile/tile.h"
#include "passes/kernels/costs.h"

enum {
    COST_MAX = 1 << 20,
    RANDOM_GROUP = 64,  /* consecutive random numbers of one Philox computation: ... */
    RANDOM_BLOCKS = 16, /* ... blocks; a block gives four numbers, this far apart */
    RANDOM_WORDS = 4
};

/* A node of the body, aligned with the domain: before axes are merged, its axis a is axis a + shift
 * of the domain. domain_axis[] is kept up to date. */
typedef struct sn_item {
    sn_node *n;
    int shift;
    uint8_t domain_axis[SN_MAX_RANK]; /* of each of the node's axes */
    int op[SN_MAX_RANK + 1]; /* operand items; -1: captured tensor, read by gather, at or random */
    uint32_t vary;           /* axes of the domain along which the value changes */
    int stage;               /* row reductions that must be finished before it can be computed */
    int cost;                /* of the elementwise operations below it, along the row */
    int cache;               /* row buffer that holds it for a later loop; -1: none */
    bool ignores_nan;        /* maximum or minimum that may ignore NaN: results show it anyway */
    int out;                 /* result of the kernel that this is, -1: none */
    sn_dim stride[SN_MAX_RANK]; /* of an operand of the kernel, along the domain's axes */
    em_val ptr;                 /* its address for the current indices */
    bool filled;                /* during emission: this loop has written its row buffer */
    bool available;             /* ... an earlier loop has; read it from there */
    em_val word[RANDOM_WORDS];  /* random bits of this position and of the three that share its
                                   Philox blocks */
} sn_item;

typedef struct sn_body {
    em *e; /* NULL while only analysing */
    const sn_kernel *k;
    const sn_region *region;
    sn_item *item;
    int n_item;
    sn_region_code code; /* of the items; copies: values of this row; of this position of the row */
    int rank;            /* of the domain, after merging axes */
    int full_rank;
    sn_dim domain[SN_MAX_RANK];
    sn_dim factor[SN_MAX_RANK][SN_MAX_RANK]; /* of a merged axis: the sizes of its axes */
    int n_factor[SN_MAX_RANK];
    int row; /* the axis along which vectors run */
    bool reduces;
    sn_dim out_stride[SN_MAX_RESULTS][SN_MAX_RANK];
    bool out_row[SN_MAX_RESULTS]; /* the result has the row axis (else one element per row) */
    int out_item[SN_MAX_RESULTS];
    int n_cache, n_stage;
    /* emission */
    em_val index[SN_MAX_RANK]; /* i64: of the axes other than the row's */
    em_val out_ptr[SN_MAX_RESULTS];
    int quarter;    /* 0 .. 3 if emission visits positions j, j + 16, j + 32, j + 48 of 64 aligned
                    elements, and this is position j + 16 * quarter; else -1 */
    em_val j, mask; /* first lane's position on the row; lanes in use, NULL: all */
    int lanes;
} sn_body;

/* Lays out the body of k. False: the module's error. reduce_rows: reductions run along the row (row
 * kernels). */
bool sn_body_init(sn_body *b, em *e, const sn_kernel *k, bool reduce_rows);
em_val sn_body_extent(sn_body *b, int axis); /* size of a domain axis, i64 */
/* Indices of the axes in the set `axes` from a flat number, innermost fastest. */
void sn_body_split(sn_body *b, uint32_t axes, em_val flat);
void sn_body_pointers(sn_body *b); /* addresses of operands and results for b->index */
/* Whether the body has random numbers whose Philox blocks serve four positions of a row. */
bool sn_body_shares_random(const sn_body *b);
void sn_body_forget_vectors(sn_body *b); /* before emission at another position */
void sn_body_forget_row(sn_body *b);     /* before emission of another row */
/* Emits here every value below `item` that does not vary along the row. */
void sn_body_uniforms(sn_body *b, int item);
em_val sn_body_vector(sn_body *b,
                      int item); /* at b->j under b->mask; may be a scalar if it is uniform */
em_val sn_body_cache_ptr(sn_body *b, int item);    /* its row buffer in scratch */
void sn_body_store(sn_body *b, int out, em_val v); /* v at b->j into result `out` */
/* Prefetches into L2 the next row's elements at b->j of operand `item`, or of result `out`. Does
 * nothing if the next row is the same one or its elements are not contiguous. */
void sn_body_prefetch_next(sn_body *b, int item);
void sn_body_prefetch_next_out(sn_body *b, int out);

#endif
