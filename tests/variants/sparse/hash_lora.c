/* Hash-routed LoRA: 16 adapters of rank 8 beside one dense map; the adapter of a token is read from a table. */
#include "layer.h"
enum { A = 16, R = 8, VOCAB = 1000 };
static sn_tensor layer(const sn_forward_ctx *s, sn_tensor x) {
    sn_tensor a = sn_gather(sn_param(s->m, "table", SN_I32, VOCAB), 0,
                            sn_input(s->m, "tokens", SN_I32, s->B, s->T));
    sn_tensor down = sn_gather(sn_param(s->m, "down", SN_F32, A, R, D), 0, a);
    sn_tensor up = sn_gather(sn_param(s->m, "up", SN_F32, A, D, R), 0, a);
    sn_tensor low = sn_einsum("btrd,btd->btr", down, x);
    return sn_add(sn_nn_linear(x, "w", D, SN_BIAS), sn_einsum("btdr,btr->btd", up, low));
}
