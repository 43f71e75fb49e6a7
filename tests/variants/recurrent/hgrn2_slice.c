/* HGRN2: S <- diag(f) S + (1 - f) v^T, y = S^T q; two layers, f of layer l >= sum of softmax(gamma) below l */
#include "layer.h"
enum { LAYERS = 2 };
static void step(sn_scan_step *s) { /* x: q, f, v */
    sn_tensor f = s->x[1];
    s->next[0] = sn_add(sn_mul(sn_expand(f, -1), s->carry[0]),
                        sn_einsum("bhk,bhv->bhkv", sn_sub(1, f), s->x[2]));
    s->y[0] = sn_einsum("bhkv,bhk->bhv", s->next[0], s->x[0]);
}
static sn_tensor layer(const ctx *s, sn_tensor x) {
    sn_tensor share = sn_softmax(sn_param(s->m, "gamma", SN_F32, LAYERS, D), 0);
    sn_tensor least = sn_concat(0, sn_full(s->m, SN_F32, 0, 1, D),
                                sn_slice(share, 0, 0, 1)); /* without a running sum */
    for (int l = 0; l < LAYERS; l++) {
        sn_scope_push(s->m, "layer%d", l);
        sn_tensor n = sn_nn_rms_norm(x, "norm", 1e-5), low = sn_index(least, 0, l);
        sn_tensor f =
            sn_add(low, sn_mul(sn_sub(1, low), sn_sigmoid(sn_nn_linear(n, "f", D, SN_BIAS))));
        sn_tensor q = heads(sn_silu(sn_nn_linear(n, "q", D, 0)), H),
                  v = heads(sn_nn_linear(n, "v", D, 0), H);
        sn_tensor S = CARRY(s, "S", H, N, N);
        sn_scanned r = sn_scan(.carry = {S}, .x = {q, heads(f, H), v}, .axis = 2, .body = step);
        KEEP(s, S, r.carry[0]);
        x = sn_add(x, out(sn_rms_norm(r.y[0], NULL, 1e-5)));
        sn_scope_pop(s->m);
    }
    return x;
}
