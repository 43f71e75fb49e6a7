/* Only the first product of 20-hash-lora.c: sn_gather(w, 0, a) with rows of 128 is not a grouped product in `forward`, though R is 64. */
#include "layer.h"
enum { A = 16, R = 64, VOCAB = 1000 };
static sn_tensor layer(const sn_forward_ctx *s, sn_tensor x) {
    sn_tensor a = sn_gather(sn_param(s->m, "table", SN_I32, VOCAB), 0,
                            sn_input(s->m, "tokens", SN_I32, s->B, s->T));
    sn_tensor down = sn_gather(sn_param(s->m, "down", SN_F32, A, R, D), 0, a);
    sn_tensor up = sn_gather(sn_param(s->m, "up", SN_F32, A, D, R), 0, a);
    sn_tensor low = sn_einsum("btrd,btd->btr", down, x);
    (void)up;
    return sn_pad(low, 2, 0, D - R, 0);
}
