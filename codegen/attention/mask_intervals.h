/* mask_intervals.h: emits interval arithmetic of a mask region, which bounds the mask over a whole
 * tile of queries and keys.
 *
 * Every integer node becomes an interval lo <= value <= hi (i64), every bool node a pair "certainly
 * true", "possibly true" (i1). Floats have one too, where they have a single value for the tile (of
 * constants, sizes, batch and head) or follow from others monotonically. Some nodes have none (other
 * floats, tables of unknown size): comparisons with them are possibly, but not certainly, true. */
#ifndef SN_MASK_INTERVALS_H
#define SN_MASK_INTERVALS_H

#include "codegen/emit/elem.h"

/* lo == NULL: nothing is known. Scalars, or vectors of one tile a lane. */
typedef struct sn_interval {
    em_val lo, hi;
} sn_interval;

typedef struct sn_interval_code sn_interval_code;
struct sn_interval_code {
    em *e;
    const sn_region *region;
    sn_order order;
    sn_interval *value; /* [order.n] */
    bool *done;         /* [order.n] */
    uint32_t *deps;     /* [order.n] */
    /* Range of captured tensor n->in[0] over the given index ranges. */
    sn_interval (*at)(void *ctx, const sn_node *n, const sn_interval *index);
    em_val (*dim)(void *ctx, const sn_node *n);
    void *ctx;
    /* Of a larger tile: its table reads are taken over, but for those with an index that depends on `fine` and not on
     * `same`; other indices keep the interval that they have there if they depend on `same`. */
    const sn_interval_code *coarse;
    uint32_t fine, same;
};

bool sn_interval_begin(sn_interval_code *c, em *e, const sn_region *r);
void sn_interval_arg(sn_interval_code *c, int i, sn_interval v, uint32_t deps);
void sn_interval_emit(sn_interval_code *c, uint32_t allowed); /* as sn_region_emit */
/* Of the region's result 0: lo "surely true", hi "possibly true"; never NULL after emission. */
sn_interval sn_interval_result(const sn_interval_code *c);

/* What intervals can find out about tiles of the region, as flags; 0: its result is "possibly, not
 * surely" whatever the tile. `culprit` (may be NULL) receives the first node that cannot be
 * followed, or NULL. */
enum { SN_SHOWS_EMPTY = 1, SN_SHOWS_FULL = 2 };
int sn_interval_shows(const sn_region *r, const sn_node **culprit);

#endif
