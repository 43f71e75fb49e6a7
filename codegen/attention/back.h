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
    int64_t lse_at, delta_at;
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

/* dscore.c: dscore(buf, dim, scratch, vector, lo, hi, k0, q0, batch, head, tables): of
 * one vector of queries and keys [lo, hi) of the tile at k0: scores become weights (those that are
 * left after dropout), their gradients become those of the scores; `tables`: with what flows to
 * captured tensors. masked: with the mask region. */
em_val att_emit_dscore(em *e, const att_back *b, bool masked);
/* zero_tables(buf, dim, batch, head): the parts that the head adds to. NULL: there are none. */
em_val att_emit_zero_tables(em *e, const att_back *b);

#endif
