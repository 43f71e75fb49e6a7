/* latent.c: projections of multi-head latent attention, see latent.h. */
#include "frontend/latent.h"

enum { LAST = 3 };
static const double eps = 1e-6; /* of the latents' norms, whatever the config's */

/* norm(x W), of the first `rank` columns. */
static sn_tensor normed(sn_tensor x, int64_t rank, const char *name) {
    return sn_nn_rms_norm(sn_slice(x, 2, 0, rank), name, eps);
}

latent_parts latent_project(const latent_attention *a, sn_tensor x, int64_t heads) {
    int bias = a->bias ? SN_BIAS : 0;
    int64_t key = a->plain + a->rotary;
    sn_tensor q =
        a->q_rank ? normed(sn_nn_linear(x, a->q_down, a->q_rank, bias), a->q_rank, a->q_norm) : x;
    q = sn_split_heads(sn_nn_linear(q, a->q_rank ? a->q_up : a->q, heads * key, 0), heads);
    sn_tensor down = sn_nn_linear(x, a->kv_down, a->kv_rank + a->rotary, bias);
    sn_tensor kv = sn_nn_linear(normed(down, a->kv_rank, a->kv_norm), a->kv_up,
                                heads * (a->plain + a->value), 0);
    kv = sn_split_heads(kv, heads);
    return (latent_parts){
        .q = {sn_slice(q, LAST, 0, a->plain), sn_slice(q, LAST, a->plain, a->rotary)},
        .k = {sn_slice(kv, LAST, 0, a->plain),
              sn_expand(sn_slice(down, 2, a->kv_rank, a->rotary), 1)},
        .v = sn_slice(kv, LAST, a->plain, a->value)};
}

sn_tensor latent_join(const sn_tensor part[2]) {
    sn_dim B = sn_dim_of(part[0], 0), H = sn_dim_of(part[0], 1), T = sn_dim_of(part[0], 2);
    return sn_concat(LAST, part[0], sn_broadcast(part[1], B, H, T, sn_dim_of(part[1], LAST)));
}
