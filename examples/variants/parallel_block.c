/* parallel_block.c: attention and feed-forward part read the same normalised stream, and their
 * results are added: one norm per layer, and one product for the five matrices that read it. Wang &
 * Komatsuzaki 2021 (GPT-J); Chowdhery et al. 2022 (PaLM), section 2.
 * formula: x + attention(norm x) + feed-forward(norm x) */
#include "small.h"

static sn_tensor layers(const void *config, const sn_forward_ctx *s) {
    (void)config;
    sn_tensor x = embed(s, false);
    for (int l = 0; l < LAYERS; l++) {
        sn_scope_push(s->m, "layer%d", l);
        sn_tensor n = sn_nn_layer_norm(x, "norm", 1e-5);
        qkv p = project(n);
        p.q = sn_rope(p.q, s->pos);
        p.k = sn_rope(p.k, s->pos);
        p = remember(s, p);
        sn_tensor a = join(sn_attention(p.q, p.k, p.v, .causal = true));
        x = add_part(s, x, sn_add(a, feed_forward(s, n)));
        sn_scope_pop(s->m);
    }
    return x;
}

SN_MODEL(m, o) {
    sn_decoder_entries(m, &(sn_decoder){NULL, layers, small_logits, CONTEXT, LAYERS}, o);
}
