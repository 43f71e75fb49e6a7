/* mixture_of_depths.c: a router chooses the tokens of a row that a layer computes; the others pass
 * by. What the layer adds to a chosen token is weighted by the router, which learns by that.
 * Raposo et al. 2024, "Mixture-of-depths".
 * formula: x + σ(r · x) layer(x) for the tokens with the largest r · x, x for the others */
#include "classifier.h"

/* What a layer adds to x [B, n, WIDTH]. */
static sn_tensor added(const sn_forward_ctx *s, sn_tensor x) {
    qkv p = project(sn_nn_layer_norm(x, "norm1", 1e-5));
    sn_tensor y = sn_add(x, join(sn_attention(p.q, p.k, p.v)));
    y = sn_add(y, feed_forward(s, sn_nn_layer_norm(y, "norm2", 1e-5)));
    return sn_sub(y, x);
}

static sn_tensor layer(const sn_forward_ctx *s, sn_tensor x) {
    sn_tensor score = sn_squeeze(sn_nn_linear(x, "router", 1, 0), 2), index; /* [B, T] */
    sn_tensor gate = sn_sigmoid(sn_top_k(score, CHOSEN, &index));            /* [B, CHOSEN] */
    sn_tensor rows = rows_of(s, index);
    sn_tensor y = sn_mul(added(s, take_rows(s, x, rows)), sn_expand(gate, 2));
    sn_dim n = sn_dim_mul(s->m, s->B, CHOSEN);
    return sn_add(x, add_rows(s, sn_reshape(y, n, WIDTH), sn_reshape(rows, n)));
}

SN_MODEL(m, o) {
    classifier(m, o, layer);
}
