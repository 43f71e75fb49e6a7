/* buckets.h: biases of attention scores by distance, as T5 has them. Not public. */
#ifndef SN_BUCKETS_H
#define SN_BUCKETS_H

#include "frontend/sinter.h"

typedef struct distance_buckets {
    int64_t count;    /* of all keys that are visible */
    int64_t farthest; /* keys at this distance or more share a bucket */
    bool causal;      /* no key is ahead of its query; else half of the buckets are for those */
} distance_buckets;

/* The bucket, i32, of a key `ahead` positions ahead of its query [Raffel et al. 2020, section 2.1]:
 * on each side half of the buckets are one distance each, the others ever wider ranges. */
sn_tensor distance_bucket(const distance_buckets *b, sn_tensor ahead);

#endif
