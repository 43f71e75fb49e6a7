/* back.h: what the files of the backward attention kernel share, beside what they take
 * from the forward one. */
#ifndef SN_ATTENTION_BACK_H
#define SN_ATTENTION_BACK_H

#include "codegen/attention/impl.h"

/* What part of a gradient a value of the score's derivative depends on; see ATT_DEP_HEAD ... */
enum { ATT_BACK_TABLES = SN_MAX_RESULTS };

/* Beside the forward plan's scratch: */
typedef struct att_back {
    att_plan p; /* for the forward part that is done again */
    const sn_attention_grad *g;
    int d, dv;                     /* widths, whole vectors */
    int64_t dp_at;                 /* [key][query] d weights, then d scores */
    int64_t do_at, dq_at;          /* [element][query] */
    int64_t q_rows_at, do_rows_at; /* [query][element], zeros beyond the last query */
    int64_t top_at, log_sum_at, delta_at;
    int n_diagonal, *diagonal_row; /* [n_read] of reads: its row of sums; -1: none */
    int64_t slide_at;              /* sums along a tile's diagonals, row by row */
} att_back;

/* outer.c: functions of the module
 *   outer(C, A, B, keys, queries): C[k][..] += A[k][q] B[q][..], rows of C and B `width` long
 *   copy_rows(from, stride, rows, all, to): whole vectors, zeros for rows .. all - 1
 *   store_rows(from, rows, to, stride): the way back, times factor
 *   zero(at, elements) */
em_val att_emit_outer(em *e, const att_plan *p, const char *name, int width);
em_val att_emit_copy_rows(em *e, const att_plan *p, const char *name, sn_dtype t, int d);
em_val att_emit_store_rows(em *e, const att_plan *p, const char *name, sn_dtype t, int d,
                           double factor);
em_val att_emit_zero(em *e, const att_plan *p, const char *name);

static inline int64_t att_slide_bytes(const att_plan *p) {
    return (int64_t)(ATT_KEYS + 4 + 2 * p->lanes + 63) / 64 * 64 * p->esize;
}

/* dtables.c: which reads of captured tensors that get a gradient follow from q - k. */
void att_find_diagonal_reads(att_back *b);
/* Where an element of a read is: its indices move with the query in some lanes, but often all have
 * the same one. */
typedef struct att_contribution {
    em_val base, at; /* pointer; the part of the offset that all lanes share */
    em_val lanes;    /* the rest, NULL: 0 */
    em_val x;
} att_contribution;
att_contribution att_find_element(em *e, const att_back *b, const sn_region_code *code, int i,
                                  em_val batch, em_val head);
void att_add_element(em *e, const att_plan *p, em_val base, em_val at, em_val x);
/* Lanes in order, unless all add to one element. spill: place for a vector of numbers and one of
 * offsets. */
void att_add_lanes(em *e, const att_plan *p, const att_contribution *c, const em_val spill[2]);
/* Does the read's element depend on the key or the query at all? */
bool att_read_stays(const att_back *b, const att_regions *g, int i);
/* A key's vector x joins the sum, which moves on by an element and is stored at `at`: what it
 * leaves there in the last lane is done. */
em_val att_along_diagonal(em *e, const att_back *b, em_val sum, em_val x, em_val at);
/* n numbers at `from` are added to the head's sums from element `to` on. */
void att_add_diagonals(em *e, const att_back *b, int row, em_val from, em_val to, em_val n);
em_val att_diagonal_sums(em *e, const att_back *b); /* of the head: n_diagonal rows */
/* give_diagonals(buf, dim, scratch, batch, head): the head's sums go to the tables and are cleared.
 * NULL: there are none. */
em_val att_emit_give_diagonals(em *e, const att_back *b);
/* zero_tables(buf, dim, batch, head): the parts that the head adds to. NULL: there are none. */
em_val att_emit_zero_tables(em *e, const att_back *b);

/* dscore.c: dscore(buf, dim, scratch, vector, lo, hi, k0, q0, batch, head, tables): of
 * one vector of queries and keys [lo, hi) of the tile at k0: scores become weights (those that are
 * left after dropout), their gradients become those of the scores; `tables`: with what flows to
 * captured tensors. masked: with the mask region. */
em_val att_emit_dscore(em *e, const att_back *b, bool masked);

#endif
