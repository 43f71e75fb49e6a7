/* sandwich_norm.c: a norm before and after each part: x + norm(part(norm(x))). Ding et al. 2021,
 * "CogView", section 2.4. formula: x + norm(part(norm(x))) */
#include "small.h"

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    sn_tensor y = causal_attention(s, x);
    return sn_nn_layer_norm(y, "norm1_behind", 1e-5);
}

static sn_tensor feed(const sn_forward_ctx *s, sn_tensor x) {
    return sn_nn_layer_norm(feed_forward(s, x), "norm2_behind", 1e-5);
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend, .feed = feed, .positions = true});
}
