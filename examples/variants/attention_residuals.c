/* attention_residuals.c: residual connections that choose: the input of a part is an average of the
 * outputs of all parts before it, weighted by a softmax over these. Kimi Team 2026, "Attention residuals".
 * formula: x = Σ_j p_j y_j, p = softmax_j(w · norm(y_j)), y_0 = embedding, y_l = part_l(x) */
#include "small.h"

typedef struct outputs {
    sn_tensor y[2 * LAYERS + 1]; /* [B, T, WIDTH] */
    int n;
} outputs;

/* [B, T, WIDTH]: the weighted average of all outputs so far. Softmax and sum are written as terms, since
 * the outputs lie in different arrays. */
static sn_tensor choose(const sn_forward_ctx *s, const outputs *o, const char *name) {
    sn_scope_push(s->m, "%s", name);
    sn_tensor w = sn_param(s->m, "query", SN_F32, WIDTH), score[2 * LAYERS + 1];
    sn_tensor gain = sn_param(s->m, "gain", SN_F32, WIDTH), most = NULL, sum = NULL, x = NULL;
    for (int j = 0; j < o->n; j++) {
        score[j] = sn_sum_keep(sn_mul(sn_rms_norm(o->y[j], gain, 1e-5), w), -1);
        most = most ? sn_max(most, score[j]) : score[j];
    }
    for (int j = 0; j < o->n; j++) {
        sn_tensor weight = sn_exp(sn_sub(score[j], sn_stop_gradient(most)));
        sum = sum ? sn_add(sum, weight) : weight;
        x = x ? sn_add(x, sn_mul(weight, o->y[j])) : sn_mul(weight, o->y[j]);
    }
    sn_scope_pop(s->m);
    return sn_div(x, sum);
}

static sn_tensor layers(const void *config, const sn_forward_ctx *s) {
    (void)config;
    outputs o = {{NULL}, 0};
    o.y[o.n++] = embed(s, true);
    for (int l = 0; l < LAYERS; l++) {
        sn_scope_push(s->m, "layer%d", l);
        sn_tensor x = sn_nn_layer_norm(choose(s, &o, "attend"), "norm1", 1e-5);
        o.y[o.n++] = sn_forward_dropout(s, causal_attention(s, x));
        x = sn_nn_layer_norm(choose(s, &o, "feed"), "norm2", 1e-5);
        o.y[o.n++] = sn_forward_dropout(s, feed_forward(s, x));
        sn_scope_pop(s->m);
    }
    return choose(s, &o, "last");
}

SN_MODEL(m, o) {
    sn_decoder d = {NULL, layers, small_logits, CONTEXT, LAYERS};
    sn_decoder_entries(m, &d, o);
}
