/* buckets.c: the bucket of the distance from a query to a key. */
#include "frontend/buckets.h"

#include <math.h>

sn_tensor distance_bucket(const distance_buckets *b, sn_tensor ahead) {
    int64_t side = b->causal ? b->count : b->count / 2, exact = side / 2;
    sn_tensor far = b->causal ? sn_max(sn_neg(ahead), 0) : sn_abs(ahead);
    sn_tensor bucket = sn_min(far, (double)exact);
    for (int64_t i = 1; i < side - exact; i++) {
        double part = (double)i / (double)(side - exact);
        double first = ceil((double)exact * pow((double)b->farthest / (double)exact, part) - 1e-9);
        bucket = sn_add(bucket, sn_cast(sn_ge(far, first), SN_I32));
    }
    return b->causal ? bucket : sn_where(sn_gt(ahead, 0), sn_add(bucket, (double)side), bucket);
}
