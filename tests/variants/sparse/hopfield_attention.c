/* Hopfield retrieval (Ramsauer et al. 2020): the query becomes softmax(beta q K) K, three times; then values. */
#define DECODE
#include "layer.h"
typedef struct env {
    sn_tensor k, mask;
} env;
static void retrieve(sn_scan_step *s) {
    const env *e = s->user;
    s->next[0] = sn_attention(s->carry[0], e->k, e->k, .causal = true);
}
static sn_tensor layer(const sn_forward_ctx *s, sn_tensor x) {
    sn_tensor q = heads(x, "q", H, E), k = sn_append_kv(s, heads(x, "k", H, E), "keys");
    env e = {k, sn_causal_mask(s->m, s->T, sn_dim_of(k, 2))};
    sn_scanned r =
        sn_scan(.carry = {q}, .x = {sn_arange(s->m, SN_F32, 3)}, .body = retrieve, .user = &e);
    return sn_nn_linear(sn_merge_heads(r.carry[0]), "out", D, 0);
}
