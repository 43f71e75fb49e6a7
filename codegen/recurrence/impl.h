/* impl.h: a linear recurrence in chunks, private to this folder. recurrence.c has the algorithm. */
#ifndef SN_RECURRENCE_IMPL_H
#define SN_RECURRENCE_IMPL_H

#include "codegen/emit/family.h"

/* Elements of a chunk; of a block, after which a thread turns to the next of its carries. */
enum { REC_CHUNK = 8, REC_BLOCK = 32, REC_PAIRS = 2 };

/* A tile in scratch: rows of `ld` elements of the compute type. */
typedef struct rec_tile {
    int64_t at, ld; /* offset in elements */
    bool of_unit;   /* each unit of a group has one: the offset is from `unit` */
} rec_tile;

/* What the kernel's step determines. Pair 0 is k and v, pair 1 b and u; the rows of pair 1 come first
 * in `key` and `right`, so that u is a product with the rows after it. */
typedef struct rec_plan {
    const sn_kernel *k;
    sn_recurrence r;
    sn_dtype t;
    int lanes;
    int64_t K, V;     /* of the carry */
    int64_t inner;    /* K in whole vectors */
    int64_t cols;     /* columns of a block of V, in whole vectors */
    int64_t n_block;  /* blocks of V, which are independent */
    int pairs, first; /* pairs of vectors of an element; REC_CHUNK times that */
    rec_tile left;    /* [CHUNK][first + inner]: weights of each row of `right` in y; q */
    rec_tile left_u;  /* the same in u; a */
    rec_tile right;   /* [first + inner][cols]: u, v, the carry */
    rec_tile key;     /* [first][inner]: b, k */
    rec_tile decay;   /* [CHUNK][inner or cols] */
    rec_tile total;   /* [1][the same]: product of the decays so far */
    rec_tile so_far;  /* `columns`: [CHUNK][cols]: that at each row */
    rec_tile out;     /* [CHUNK][cols] */
    int64_t elements; /* of scratch, without what each unit has */
    int64_t each;     /* elements that each unit has */
    int64_t group;    /* units that a thread computes in turns, block by block */
    em_val unit;      /* where the tiles of the current unit begin */
} rec_plan;

/* A dim that the kernel requires to be a number. */
int64_t rec_constant(const sn_kernel *k, sn_dim d);
void rec_plan_make(rec_plan *p, const sn_kernel *k, const sn_target *t);

/* Where pair i begins in `key`, `right` and the columns of `left`. */
static inline int rec_first_of(const rec_plan *p, int pair) {
    return pair == 1 ? 0 : (p->pairs - 1) * REC_CHUNK;
}

/* How many elements of the chunk, from the first on, y of element t reads; u of it; and element t's
 * decay applies to. */
int rec_seen(const rec_plan *p, int pair, int t);
int rec_seen_by_u(const rec_plan *p, int pair, int t);
int rec_decayed(const rec_plan *p, int pair, int t);

/* A pointer into a tile; row and column are i64. */
em_val rec_at(em *e, const rec_plan *p, rec_tile tile, em_val row, em_val col);
em_val rec_at_const(em *e, const rec_plan *p, rec_tile tile, int64_t row, em_val col);
em_val rec_load(em *e, const rec_plan *p, em_val at);
void rec_store(em *e, const rec_plan *p, em_val at, em_val v);

/* Of columns in whole vectors from number `vector` on: as many as are in registers at a time. */
int rec_vectors_at(em *e, const rec_plan *p, int vector);
/* Columns of n vectors of to[CHUNK][cols] = left[.., first ..] right[first ..]; with `columns` times
 * so_far, plus what is there. */
void rec_emit_product(em *e, const rec_plan *p, rec_tile left, int64_t first, rec_tile to,
                      int vector, int n);
/* The same columns of the carry: times `total`, plus key^T right. */
void rec_emit_update(em *e, const rec_plan *p, int vector, int n);

#endif
