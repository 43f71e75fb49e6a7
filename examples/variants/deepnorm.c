/* deepnorm.c: post-norm with a scaled residual stream, norm(a x + part(x)), a = (2 LAYERS)^(1/4)
 * for a decoder: stable with a thousand layers. Wang et al. 2022, "DeepNet: scaling transformers to
 * 1,000 layers", figure 2. (Its initialisation also scales v, out and both matrices of the
 * feed-forward part by (8 LAYERS)^(-1/4).) formula: norm(a x + part(x)), a = (2 L)^¼ */
#include "small.h"

#include <math.h>

static sn_tensor layers(const void *config, const sn_forward_ctx *s) {
    (void)config;
    const double a = pow(2.0 * LAYERS, 0.25);
    sn_tensor x = embed(s, true);
    for (int l = 0; l < LAYERS; l++) {
        sn_scope_push(s->m, "layer%d", l);
        sn_tensor y = causal_attention(s, x);
        x = sn_nn_layer_norm(sn_add(sn_mul(x, a), y), "norm1", 1e-5);
        x = sn_nn_layer_norm(sn_add(sn_mul(x, a), feed_forward(s, x)), "norm2", 1e-5);
        sn_scope_pop(s->m);
    }
    return x;
}

SN_MODEL(m, o) {
    sn_decoder_entries(m, &(sn_decoder){NULL, layers, small_logits, CONTEXT, LAYERS}, o);
}
