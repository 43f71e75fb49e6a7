/* cosFormer (Qin et al. 2022), causal: weights relu(q) relu(k) cos(pi/2 (i - j)/M), as a linear recurrence. */
#define DECODE
#include "layer.h"
static void step(sn_scan_step *s) { /* q, k [B,H,2E], [v, 1] [B,H,E+1] */
    s->next[0] = sn_add(s->carry[0], sn_einsum("bhi,bhj->bhij", s->x[1], s->x[2]));
    s->y[0] = sn_einsum("bhi,bhij->bhj", s->x[0], s->next[0]);
}
static sn_tensor feature(const sn_forward_ctx *s, sn_tensor x) {
    sn_tensor angle = sn_expand(sn_mul(sn_cast(s->pos, SN_F32), M_PI / 2 / CAP), -1); /* [T, 1] */
    x = sn_relu(x);
    return sn_concat(-1, sn_mul(x, sn_cos(angle)), sn_mul(x, sn_sin(angle)));
}
static sn_tensor layer(const sn_forward_ctx *s, sn_tensor x) {
    sn_tensor q = feature(s, heads(x, "q", H, E)), k = feature(s, heads(x, "k", H, E));
    sn_tensor v = sn_pad(heads(x, "v", H, E), 3, 0, 1, 1);
    sn_tensor S = s->capacity ? sn_state(s->m, "S", SN_F32, s->B, H, 2 * E, E + 1)
                              : sn_full(s->m, SN_F32, 0, s->B, H, 2 * E, E + 1);
    sn_scanned r = sn_scan(.carry = {S}, .x = {q, k, v}, .axis = 2, .body = step);
    if (s->capacity) sn_assign(S, r.carry[0]);
    sn_tensor y = sn_div(sn_slice(r.y[0], 3, 0, E), sn_max(sn_slice(r.y[0], 3, E, 1), 1e-6));
    return sn_nn_linear(sn_merge_heads(y), "out", D, 0);
}
