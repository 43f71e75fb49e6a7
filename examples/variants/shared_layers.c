/* shared_layers.c: one layer applied several times with the same parameters. Dehghani et al. 2019,
 * "Universal transformers"; Lan et al. 2020, "ALBERT". A scope names both parameters and caches;
 * here all iterations share the parameters, but each has its own caches.
 * formula: x ← layer(x), repeatedly, with the same parameters */
#include "small.h"

#include <stdio.h>

static sn_tensor layer(const sn_forward_ctx *s, sn_tensor x, int use) {
    char keys[24], values[24];
    snprintf(keys, sizeof keys, "keys%d", use);
    snprintf(values, sizeof values, "values%d", use);
    qkv p = project(sn_nn_layer_norm(x, "norm1", 1e-5));
    p.k = sn_append_kv(s, p.k, keys);
    p.v = sn_append_kv(s, p.v, values);
    x = add_part(s, x, join(sn_attention(p.q, p.k, p.v, .causal = true)));
    return add_part(s, x, feed_forward(s, sn_nn_layer_norm(x, "norm2", 1e-5)));
}

static sn_tensor layers(const void *config, const sn_forward_ctx *s) {
    (void)config;
    sn_tensor x = embed(s, true);
    for (int use = 0; use < 2 * LAYERS; use++) x = layer(s, x, use);
    return x;
}

SN_MODEL(m, o) {
    sn_decoder_entries(m, &(sn_decoder){NULL, layers, small_logits, CONTEXT, LAYERS}, o);
}
