/* gated_mlp.c: gated feed-forward layers: SwiGLU in the even layers, GeGLU in the odd ones. Shazeer
 * 2020, "GLU variants improve transformer". formula: (silu(x G) ∘ x U) D */
#include "small.h"

enum { GATED = HIDDEN * 2 / 3 }; /* three matrices instead of two: the same number of weights */

static sn_tensor layers(const void *config, const sn_forward_ctx *s) {
    (void)config;
    sn_tensor x = embed(s, true);
    for (int l = 0; l < LAYERS; l++) {
        sn_scope_push(s->m, "layer%d", l);
        x = add_part(s, x, causal_attention(s, sn_nn_layer_norm(x, "norm1", 1e-5)));
        sn_tensor n = sn_nn_layer_norm(x, "norm2", 1e-5);
        sn_tensor gate = sn_param(s->m, "gate.weight", SN_F32, GATED, WIDTH);
        sn_tensor up = sn_param(s->m, "up.weight", SN_F32, GATED, WIDTH);
        sn_tensor down = sn_param(s->m, "down.weight", SN_F32, WIDTH, GATED);
        x = add_part(s, x, l % 2 ? sn_geglu(n, gate, up, down) : sn_swiglu(n, gate, up, down));
        sn_scope_pop(s->m);
    }
    return x;
}

SN_MODEL(m, o) {
    sn_decoder_entries(m, &(sn_decoder){NULL, layers, small_logits, CONTEXT, LAYERS}, o);
}
