/* share.h: a rank's share of a parameter: which elements of the whole it consists of. */
#ifndef SN_SHARE_H
#define SN_SHARE_H

#include "ir/ir.h"

/* Elements of the whole tensor [outer, size, inner]: of each of the `parts` of the middle axis the
 * rank-th of `ranks` equal pieces. */
typedef struct sn_share {
    int64_t ranks, rank; /* ranks 0: the tensor is not divided */
    int64_t outer, size, inner;
    int n_part;
    const int64_t *part; /* [n_part] */
    /* > 0: how many ranks of another mesh axis hold a part each of this share, rows (outer is 1) one after
     * the other */
    int64_t nested;
} sn_share;

/* The share that a parameter or state of a program is (attributes of the pass shard). */
sn_share sn_share_of(const sn_node *n);
/* The shape of the whole tensor, if n is a share; else n's. All sizes are numbers. */
void sn_share_whole(const sn_node *n, sn_dim shape[SN_MAX_RANK]);
/* Whether it is one run of elements: *first is where it begins, *count its length. */
bool sn_share_is_run(const sn_share *s, int64_t *first, int64_t *count);

/* `count` consecutive elements of the whole from `from` on are those of the share from `to` on;
 * `missing` more of the share, after them, are beyond the end of the whole. */
typedef struct sn_elements {
    int64_t from, to, count, missing;
} sn_elements;
/* That are held of the share, those beyond the end included. */
int64_t sn_share_elements(const sn_share *s);
int64_t sn_share_runs(const sn_share *s); /* their number */
sn_elements sn_share_run(const sn_share *s, int64_t i);

#endif
