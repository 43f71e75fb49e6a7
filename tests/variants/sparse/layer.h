/* layer.h: what the variants of this folder share: entries around layer x [B, T, D] -> y [B, T, D].
 * Entries: forward; loss, the sum of y r; step, its gradients; with DECODE defined, decode, one token. */
#include <sinter/models.h>
#include <math.h>
#ifndef CAP
#define CAP 4096
#endif
enum { D = 128, H = 4, E = D / H };
static sn_tensor layer(const sn_forward_ctx *s, sn_tensor x);
static inline sn_tensor heads(sn_tensor x, const char *name, int64_t n, int64_t width) {
    return sn_split_heads(sn_nn_linear(x, name, n * width, 0), n);
}
SN_MODEL(m, o) {
    (void)o;
    sn_dim B = sn_symbol(m, "B", 1, 64), T = sn_symbol(m, "T", 1, CAP);
    sn_forward_ctx s = {.m = m, .B = B, .T = T, .pos = sn_arange(m, SN_I32, T)};
    sn_tensor x = sn_input(m, "x", SN_F32, B, T, D), y = layer(&s, x);
    sn_entry_begin(m, "forward");
    sn_output("y", y);
    sn_entry_begin(m, "loss");
    sn_tensor loss = sn_sum_all(sn_mul(y, sn_input(m, "r", SN_F32, B, T, D)));
    sn_output("y", y);
    sn_output("loss", loss);
    sn_entry_begin(m, "step");
    sn_tensor all[40], p[40] = {x}, g[40];
    int n = 1, k = sn_params_of(loss, 40, all);
    for (int i = 0; i < k; i++)
        if (sn_dtype_is_float(sn_dtype_of(all[i]))) p[n++] = all[i];
    sn_grad(loss, n, p, g);
    for (int i = 0; i < n; i++) sn_output(sn_name_of(p[i]), g[i]);
#ifdef DECODE
    sn_dim P = sn_symbol(m, "P", 0, CAP - 1);
    sn_forward_ctx c = {.m = m, .B = 1, .T = 1, .past = P, .capacity = CAP};
    c.pos = sn_add(sn_arange(m, SN_I32, 1), P);
    sn_entry_begin(m, "decode");
    sn_output("y", layer(&c, sn_input(m, "x", SN_F32, 1, 1, D)));
#endif
}
