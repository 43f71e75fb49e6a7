/* batch_norm.c: batch norm instead of layer norm: each channel is normalised over the tokens of the
 * batch. Ioffe & Szegedy 2015, algorithms 1 and 2. Training uses the batch's mean and variance and
 * updates the running ones; inference uses the running ones, which are parameters that the training
 * step assigns in addition to its gradient step. (A mean over later tokens leaks information about
 * them: as a language model it trains with a leak, which is one reason why transformers normalise
 * per token.)
 * formula: (x − mean of the batch) / √(variance of the batch + ε) · gain + bias, per channel */
#include "small.h"

static const double MOMENTUM = 0.1;

/* running <- running + MOMENTUM (batch - running) */
static void follow(sn_tensor running, sn_tensor batch) {
    batch = sn_reshape(sn_stop_gradient(batch), WIDTH);
    sn_assign(running, sn_add(running, sn_mul(sn_sub(batch, running), MOMENTUM)));
}

static sn_tensor batch_norm(const sn_forward_ctx *s, sn_tensor x, const char *name) {
    sn_scope_push(s->m, "%s", name);
    sn_tensor gain = sn_param(s->m, "weight", SN_F32, WIDTH);
    sn_tensor bias = sn_param(s->m, "bias", SN_F32, WIDTH);
    sn_tensor mean = sn_param(s->m, "running_mean", SN_F32, WIDTH);
    sn_tensor variance = sn_param(s->m, "running_var", SN_F32, WIDTH);
    if (s->training) {
        sn_tensor running_mean = mean, running_variance = variance;
        mean = sn_mean_keep(x, 0, 1);
        variance = sn_variance_keep(x, 0, 1);
        follow(running_mean, mean);
        follow(running_variance, variance);
    }
    sn_scope_pop(s->m);
    x = sn_mul(sn_sub(x, mean), sn_rsqrt(sn_add(variance, 1e-5)));
    return sn_add(sn_mul(x, gain), bias);
}

static sn_tensor layers(const void *config, const sn_forward_ctx *s) {
    (void)config;
    sn_tensor x = embed(s, true);
    for (int l = 0; l < LAYERS; l++) {
        sn_scope_push(s->m, "layer%d", l);
        x = add_part(s, x, causal_attention(s, batch_norm(s, x, "norm1")));
        x = add_part(s, x, feed_forward(s, batch_norm(s, x, "norm2")));
        sn_scope_pop(s->m);
    }
    return batch_norm(s, x, "norm");
}

static sn_tensor logits(const void *config, sn_tensor x) {
    (void)config;
    return sn_nn_linear(x, "head", VOCAB, 0);
}

SN_MODEL(m, o) {
    sn_decoder_entries(m, &(sn_decoder){NULL, layers, logits, CONTEXT, LAYERS}, o);
}
