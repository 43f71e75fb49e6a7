/* Hopfield retrieval (Ramsauer et al. 2020): the query becomes softmax(beta q K) K, three times; then values. */
#define DECODE
#include "layer.h"
static sn_tensor layer(const sn_forward_ctx *s, sn_tensor x) {
    sn_tensor q = heads(x, "q", H, E), k = sn_append_kv(s, heads(x, "k", H, E), "keys");
    for (int i = 0; i < 3; i++) q = sn_attention(q, k, k, .causal = true);
    return sn_nn_linear(sn_merge_heads(q), "out", D, 0);
}
