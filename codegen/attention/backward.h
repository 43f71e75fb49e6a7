/* backward.h: what the files of the backward attention kernel share, besides what they use of the
 * forward kernel. */
#ifndef SN_ATTENTION_BACKWARD_H
#define SN_ATTENTION_BACKWARD_H

#include "codegen/attention/impl.h"

typedef struct att_backward {
    att_plan p; /* of the scores, which are recomputed */
    const sn_attention_grad *g;
    int d, dv;                             /* widths of rows, whole vectors */
    int64_t dp_offset;                     /* [key][query] dp, then ds; words: of two queries */
    int64_t ds_offset;                     /* the same for dq; words: of two keys */
    int64_t do_offset, dq_offset;          /* [element][query], factors; sums */
    int64_t do_floats_offset;              /* dout before it is rounded */
    int64_t q_rows_offset, do_rows_offset; /* [query][element], 0 beyond the last query; factors */
    int64_t m_offset, log2_l_offset, delta_offset; /* of each query; delta: D */
    int n_relative, *relative_row; /* [n_read] row of sums per distance of a read; -1: none */
    int64_t diagonal_offset;       /* sums along the diagonals of a tile, row by row */
} att_backward;

/* ---- dkv.c ---- */

/* c[k][..] += a[k][q] b[q][..] over `queries`, pairs of them if factors are words, for `keys` rows. Rows of b have `width` elements, whole
 * vectors, those of c the first d of these, `row` from the next. next: c of a later call,
 * whose rows are prefetched. */
#define ATT_DKV_PARAMS(P) P(ptr, c) P(ptr, a) P(ptr, b) P(i64, keys) P(i64, queries) P(ptr, next)
ATT_SIGNATURE(att_dkv, ATT_DKV_PARAMS)
em_val att_emit_dkv(em *e, const att_plan *p, const char *name, int d, int row, int width);
/* Copies n_rows rows of d elements, times factor, padded to whole vectors; rows up to n_dst become 0.
 * Words: of two rows. */
#define ATT_COPY_ROWS_PARAMS(P) P(ptr, src) P(i64, stride) P(i64, n_rows) P(i64, n_dst) P(ptr, dst)
ATT_SIGNATURE(att_copy_rows, ATT_COPY_ROWS_PARAMS)
em_val att_emit_copy_rows(em *e, const att_plan *p, const char *name, sn_dtype t, int d,
                          double factor);
/* The same for the rows that index[] names, one vector of them. */
em_val att_emit_copy_chosen(em *e, const att_plan *p, const char *name, sn_dtype t, int d);
/* The inverse, times factor. */
#define ATT_STORE_ROWS_PARAMS(P) P(ptr, src) P(i64, n_rows) P(ptr, dst) P(i64, stride)
ATT_SIGNATURE(att_store_rows, ATT_STORE_ROWS_PARAMS)
em_val att_emit_store_rows(em *e, const att_plan *p, const char *name, sn_dtype t, int d,
                           double factor);
#define ATT_ZERO_PARAMS(P) P(ptr, dst) P(i64, elements) /* whole vectors */
ATT_SIGNATURE(att_zero, ATT_ZERO_PARAMS)
em_val att_emit_zero(em *e, const att_plan *p, const char *name);

/* ---- captured_grad.c: gradients of captured tensors ---- */

static inline int64_t att_diagonal_bytes(const att_plan *p) {
    return (int64_t)(ATT_TILE_KEYS + 4 + 2 * p->lanes + 63) / 64 * 64 * p->esize;
}
/* Sets n_relative and relative_row: which reads of captured tensors with a gradient depend on
 * query - key only. */
void att_find_relative_reads(att_backward *b);
/* An addition of x to elements of a captured tensor's gradient. Indices that depend on the query
 * differ from lane to lane, but often they are all equal. */
typedef struct att_contribution {
    em_val base, at; /* pointer; the part of the element's offset that all lanes share */
    em_val lanes;    /* the rest; NULL: 0 */
    em_val x;
} att_contribution;
att_contribution att_find_element(em *e, const att_backward *b, const sn_region_code *code, int i,
                                  em_val batch, em_val head);
void att_add_element(em *e, const att_plan *p, em_val base, em_val at, em_val x);
/* Adds the lanes in order; as one vector to consecutive elements, or their sum to a single one. spill: memory for a vector
 * of numbers and one of offsets. */
void att_add_lanes(em *e, const att_plan *p, const att_contribution *c, const em_val spill[2]);
/* Whether the element of a read depends on neither query nor key. */
bool att_read_is_uniform(const att_backward *b, const att_regions *g, int i);
/* Shifts `sum` by a lane (from key k to k - 1 a query's distance grows by one), adds x, and stores
 * it at dst: the last lane is then complete. */
em_val att_add_to_diagonal(em *e, const att_backward *b, em_val sum, em_val x, em_val dst);
/* Adds n numbers at src to a row of the head's sums per distance, from element i on. */
void att_add_relative_sums(em *e, const att_backward *b, int row, em_val src, em_val i, em_val n);
em_val att_relative_sums(em *e, const att_backward *b); /* pointer: n_relative rows */
/* Row k of dk or dv of a head, in scratch. */
em_val att_dkv_row(em *e, const att_backward *b, em_val tk, bool of_v, em_val k);
/* Adds the head's sums per distance to the gradients of the tables, and clears them. */
#define ATT_HEAD_PARAMS(P) ATT_CONTEXT(P) P(i64, batch) P(i64, head)
ATT_SIGNATURE(att_head, ATT_HEAD_PARAMS)
em_val att_emit_flush_relative_sums(em *e, const att_backward *b); /* NULL: there are none */
/* Clears the parts of the tables' gradients that the head adds to. */
#define ATT_ZERO_TABLES_PARAMS(P) P(ptr, buf) P(ptr, dim) P(i64, batch) P(i64, head)
ATT_SIGNATURE(att_zero_tables, ATT_ZERO_TABLES_PARAMS)
em_val att_emit_zero_tables(em *e, const att_backward *b); /* NULL: there are none */

/* ---- softmax_grad.c ---- */

/* Vector v of queries, keys [lo, hi) of the tile at k0: s becomes p after dropout, dp becomes ds, both as factors;
 * tables: adds to the gradients of captured tensors. masked: applies the mask region. */
/* clang-format off */
#define ATT_SOFTMAX_GRAD_PARAMS(P) \
    ATT_CONTEXT(P) P(i64, v) P(i64, lo) P(i64, hi) P(i64, k0) P(i64, q0) P(i64, batch) \
    P(i64, head) P(i1, tables)
/* clang-format on */
ATT_SIGNATURE(att_softmax_grad, ATT_SOFTMAX_GRAD_PARAMS)
em_val att_emit_softmax_grad(em *e, const att_backward *b, bool masked);

#endif
