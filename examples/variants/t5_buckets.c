/* t5_buckets.c: relative positions as a learned bias per head and bucket of distances: near keys
 * have one bucket each, far ones share logarithmic buckets. Raffel et al. 2020, "Exploring the
 * limits of transfer learning" (T5), section 2.1.
 * formula: softmax(q k / √d + bias[h, bucket(i − j)]) v */
#include "small.h"

/* distances from FAR on share the last bucket */
enum { BUCKETS = 16, NEAR = BUCKETS / 2, FAR = 64 };

static sn_tensor add_bias(const sn_score_ctx *c) {
    sn_tensor distance = sn_max(sn_query_key_distance(c), 0);
    sn_tensor ratio = sn_div(sn_cast(sn_max(distance, 1), SN_F32), (double)NEAR);
    sn_tensor step = sn_div(sn_log(ratio), 2.0794415416798357); /* ln(FAR / NEAR) */
    sn_tensor far = sn_add(sn_cast(sn_mul(step, BUCKETS - NEAR), SN_I32), NEAR);
    sn_tensor bucket = sn_where(sn_lt(distance, NEAR), distance, sn_min(far, BUCKETS - 1));
    return sn_add(c->score, sn_at(c->captured[0], bucket, c->h));
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    qkv p = remember(s, project(x));
    sn_tensor table = sn_param(s->m, "buckets", SN_F32, BUCKETS, HEADS);
    return join(
        sn_attention(p.q, p.k, p.v, .causal = true, .score = add_bias, .captured = {table}));
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend});
}
