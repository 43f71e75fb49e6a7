/* encoder_parts.c: linear maps, norms and activations as an encoder's description says. */
#include "frontend/causal_lm.h"
#include "frontend/encoder_lm.h"
#include "frontend/front.h"

sn_tensor encoder_columns(sn_tensor x, const char *name, int n, const int64_t *parts, bool bias) {
    return front_linear(SN_HERE, x, name, SN_COLUMNS | (bias ? SN_BIAS : 0), n, parts);
}

sn_tensor encoder_rows(sn_tensor x, const char *name, int64_t n_out, bool bias) {
    return sn_nn_linear(x, name, n_out, SN_ROWS | (bias ? SN_BIAS : 0));
}

sn_tensor encoder_linear(sn_tensor x, const char *name, int64_t n_out, bool bias) {
    return sn_nn_linear(x, name, n_out, bias ? SN_BIAS : 0);
}

sn_tensor encoder_activate(const encoder_lm *g, encoder_act *act, sn_tensor x) {
    return (act ? act : causal_act_fns[g->act])(SN_HERE, x);
}

sn_tensor encoder_norm(const encoder_lm *g, sn_tensor x, const char *name) {
    if (!g->gamma && g->norm_bias) return sn_nn_layer_norm(x, name, g->eps);
    sn_module *m = sn_module_of(x);
    sn_scope_push(m, "%s", name);
    sn_dim d = sn_dim_of(x, -1);
    sn_tensor gain = sn_param(m, g->gamma ? "gamma" : "weight", SN_F32, d);
    sn_tensor bias = g->norm_bias ? sn_param(m, "beta", SN_F32, d) : NULL;
    sn_scope_pop(m);
    return sn_layer_norm(x, gain, bias, g->eps);
}
