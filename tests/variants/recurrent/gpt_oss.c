/* gpt-oss sinks: a learned logit a head in the softmax's sum; layer 0 sees 128 keys, layer 1 all; grouped heads */
#include "layer.h"
enum { KV = 2 };
static sn_tensor attend(const ctx *s, sn_tensor x, bool near) {
    sn_tensor q = heads(sn_nn_linear(x, "q", D, SN_BIAS), H);
    sn_tensor k = keys(s, heads(sn_nn_linear(x, "k", KV * N, SN_BIAS), KV), "keys");
    sn_tensor v = keys(s, heads(sn_nn_linear(x, "v", KV * N, SN_BIAS), KV), "values");
    sn_dim Tk = sn_dim_of(k, 2);
    q = sn_reshape(q, s->B, KV, H / KV, s->T, N);
    sn_tensor a =
        sn_div(sn_matmul(q, sn_swap(sn_expand(k, 2), 3, 4)), sqrt(N)); /* [B, KV, G, T, Tk] */
    a = sn_mask_scores(a,
                       near ? sn_window_mask(s->m, s->T, Tk, 128) : sn_causal_mask(s->m, s->T, Tk));
    sn_tensor sink = sn_reshape(sn_param(s->m, "sink", SN_F32, H), 1, KV, H / KV, 1, 1);
    a = sn_concat(4, a, sn_broadcast(sink, s->B, KV, H / KV, s->T, 1));
    a = sn_slice(sn_softmax(a, -1), 4, 0, Tk);
    return out(sn_reshape(sn_matmul(a, sn_expand(v, 2)), s->B, H, s->T, N));
}
static sn_tensor layer(const ctx *s, sn_tensor x) {
    for (int l = 0; l < 2; l++) {
        sn_scope_push(s->m, "l%d", l);
        x = sn_add(x, attend(s, sn_nn_rms_norm(x, "norm", 1e-5), l == 0));
        sn_scope_pop(s->m);
    }
    return x;
}
