/* perceiver.c: a few learned latents read a long input by cross-attention, followed by
 * self-attention among the latents: the cost is linear in the input. Jaegle et al. 2021,
 * "Perceiver". Classifies byte sequences of different lengths (lengths [B]; the rest is padding)
 * into CLASSES classes.
 * formula: latents ← attention(latents, input), then attention among the latents */
#include "small.h"

enum { LATENTS = 8, CLASSES = 5 };

static sn_tensor inside(const sn_score_ctx *c) {
    return sn_lt(c->k, sn_at(c->captured[0], c->b));
}

static sn_tensor heads(sn_tensor x, const char *name) {
    return sn_split_heads(sn_nn_linear(x, name, WIDTH, SN_BIAS), HEADS);
}

/* Logits [B, CLASSES] */
static sn_tensor classify(sn_module *m, sn_dim B, sn_dim T, const sn_training *t) {
    sn_forward_ctx s = {.m = m,
                        .training = t,
                        .B = B,
                        .T = T,
                        .tokens = sn_input(m, "tokens", SN_I32, B, T),
                        .pos = sn_arange(m, SN_I32, T)};
    sn_tensor lengths = sn_input(m, "lengths", SN_I32, B);
    sn_tensor z = sn_nn_layer_norm(embed(&s, true), "norm_in", 1e-5);
    sn_tensor x = sn_param(m, "latents", SN_F32, 1, LATENTS, WIDTH);
    x = sn_broadcast(x, B, LATENTS, WIDTH);
    sn_tensor q = heads(sn_nn_layer_norm(x, "norm_latents", 1e-5), "q");
    x = sn_add(x, join(sn_attention(q, heads(z, "k"), heads(z, "v"), .mask = inside,
                                    .captured = {lengths})));
    for (int l = 0; l < LAYERS; l++) {
        sn_scope_push(m, "layer%d", l);
        qkv p = project(sn_nn_layer_norm(x, "norm1", 1e-5));
        x = add_part(&s, x, join(sn_attention(p.q, p.k, p.v)));
        x = add_part(&s, x, feed_forward(&s, sn_nn_layer_norm(x, "norm2", 1e-5)));
        sn_scope_pop(m);
    }
    return sn_nn_linear(sn_mean(sn_nn_layer_norm(x, "norm", 1e-5), 1), "classes", CLASSES, SN_BIAS);
}

SN_MODEL(m, o) {
    sn_dim B = sn_symbol(m, "B", 1, o->max_batch);
    sn_dim T = sn_symbol(m, "T", 1, o->context ? o->context : CONTEXT);
    if (o->entries & SN_FORWARD) {
        sn_entry_begin(m, "forward");
        sn_output("logits", classify(m, B, T, NULL));
    }
    if (o->entries & SN_LOSS) {
        sn_entry_begin(m, "loss");
        sn_tensor targets = sn_input(m, "targets", SN_I32, B);
        sn_output("loss", sn_cross_entropy(classify(m, B, T, NULL), targets));
    }
    if (o->entries & SN_TRAIN) {
        sn_training_begin(m, o->training);
        sn_training_end(classify(m, B, T, o->training), o->training);
    }
}
