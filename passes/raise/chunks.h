/* chunks.h: linear recurrences as products of chunks. */
#ifndef SN_RAISE_CHUNKS_H
#define SN_RAISE_CHUNKS_H

#include "ir/ir.h"

/* S' = e^g S + b^T (a S) + k^T v and y = q S' (or q S, `before`), for each element: rows of T elements
 * with common axes `lead` in between. */
typedef struct sn_recurrence {
    sn_dim T;
    int n_lead;
    sn_dim lead[SN_MAX_RANK], K, V;
    sn_node *g;       /* [T, lead, K or 1], at most 0 */
    sn_node *a, *b;   /* [T, lead, K]; NULL: none */
    sn_node *k, *v;   /* [T, lead, K], [T, lead, V] */
    sn_node *q;       /* [T, lead, K]; NULL: no output */
    sn_node *start;   /* [lead, K, V] */
    bool before;      /* y reads the carry before the element */
    sn_node *y, *end; /* results: [T, lead, V], [lead, K, V] */
} sn_recurrence;

/* Whether the sizes allow it. */
bool sn_chunks_fit(const sn_recurrence *r);
/* Sets y and end. Sums of decays stay within a chunk; every exponential is of a difference of sums that
 * is at most 0, or of few elements. */
void sn_chunks_make(sn_recurrence *r);

#endif
