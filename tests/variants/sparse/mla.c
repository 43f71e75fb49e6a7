/* Multi-head latent attention with decoupled rotary keys (DeepSeek-V2). Decoding attends to the latents. */
#define DECODE
#include "layer.h"
enum { R = 64, DN = 32, DR = 16, DV = 32 };
static sn_tensor layer(const sn_forward_ctx *s, sn_tensor x) {
    sn_tensor q = heads(x, "q", H, DN + DR), k, v;
    sn_tensor qn = sn_slice(q, 3, 0, DN), qr = sn_rope(sn_slice(q, 3, DN, DR), s->pos);
    sn_tensor c = sn_nn_rms_norm(sn_nn_linear(x, "kv_down", R, 0), "kv_norm", 1e-6);
    sn_tensor kr = sn_rope(sn_expand(sn_nn_linear(x, "k_rope", DR, 0), 1), s->pos);
    sn_tensor k_up = sn_param(s->m, "k_up", SN_F32, H, DN, R),
              v_up = sn_param(s->m, "v_up", SN_F32, H, DV, R);
    c = sn_expand(sn_append_kv(s, c, "latent"), 1); /* [B, 1, n, R] */
    kr = sn_append_kv(s, kr, "rope");               /* [B, 1, n, DR] */
    if (s->capacity) {
        qn = sn_matmul(qn, k_up); /* [B, H, T, R] */
        k = v = c;
    } else {
        k = sn_matmul(c, sn_swap(k_up, 1, 2));
        v = sn_matmul(c, sn_swap(v_up, 1, 2));
    }
    sn_tensor z = sn_add(sn_matmul(qn, sn_swap(k, 2, 3)), sn_matmul(qr, sn_swap(kr, 2, 3)));
    z = sn_mask_scores(sn_div(z, sqrt(DN + DR)), sn_causal_mask(s->m, s->T, sn_dim_of(kr, 2)));
    sn_tensor y = sn_matmul(sn_softmax(z, -1), v);
    if (s->capacity) y = sn_matmul(y, sn_swap(v_up, 1, 2));
    return sn_nn_linear(sn_merge_heads(y), "out", D, 0);
}
