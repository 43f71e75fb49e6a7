/* tower.c: the layers of encoders of images and texts, made from their description (tower.h). */
#include "frontend/tower.h"
#include "frontend/causal_lm.h"

#include <stdio.h>

void tower_complete(sn_config *c, tower *g) {
    sn_config_divides(c, "num_attention_heads", g->heads, "hidden_size", g->d);
    if (!g->patch) return;
    if (g->patch > g->image)
        sn_config_problem(c, "\"patch_size\" is %lld, but the images have %lld pixels a side",
                          (long long)g->patch, (long long)g->image);
    if (!g->table) g->table = g->image / g->patch;
}

const char *tower_prefix(const tower_names *n, const sn_weights *w, const char *name) {
    char text[256];
    snprintf(text, sizeof text, "%s.weight", name);
    return w && sn_weights_find(w, text) ? "" : n->prefix;
}

sn_tensor tower_unit(sn_tensor x) {
    return sn_div(x, sn_max(sn_sqrt(sn_sum_keep(sn_square(x), -1)), 1e-12));
}

/* ---- a layer [PH22 A9 lines 5 to 8] ---- */

static sn_tensor attention(const tower *g, const sn_forward_ctx *s, sn_tensor q, sn_tensor k,
                           sn_tensor v) {
    q = sn_split_heads(q, g->heads);
    k = sn_split_heads(k, g->heads);
    v = sn_split_heads(v, g->heads);
    return sn_merge_heads(sn_model_attention(s->training, q, k, v, .causal = g->causal));
}

sn_tensor tower_packed_attention(const tower *g, const sn_forward_ctx *s, const char *name,
                                 sn_tensor q, sn_tensor x) {
    sn_tensor part[3];
    sn_scope_push(s->m, "%s", name);
    sn_tensor w = sn_param(s->m, "in_proj_weight", SN_F32, 3 * g->d, g->d),
              b = sn_param(s->m, "in_proj_bias", SN_F32, 3 * g->d);
    if (q == x) {
        sn_split(sn_linear(x, w, b), 2, 3, part); /* q|k|v */
    } else {
        sn_tensor of_k_v =
            sn_linear(x, sn_slice(w, 0, g->d, 2 * g->d), sn_slice(b, 0, g->d, 2 * g->d));
        part[0] = sn_linear(q, sn_slice(w, 0, 0, g->d), sn_slice(b, 0, 0, g->d));
        sn_split(of_k_v, 2, 2, part + 1);
    }
    sn_tensor y = attention(g, s, part[0], part[1], part[2]);
    y = sn_nn_linear(y, "out_proj", g->d, SN_BIAS);
    sn_scope_pop(s->m);
    return y;
}

static sn_tensor attend(const tower *g, const sn_forward_ctx *s, sn_tensor x) {
    const tower_names *n = g->names;
    if (n->qkv) return tower_packed_attention(g, s, n->qkv, x, x);
    int bias = g->qkv_bias ? SN_BIAS : 0;
    sn_tensor q = sn_nn_linear(x, n->q, g->d, bias), k = sn_nn_linear(x, n->k, g->d, bias),
              v = sn_nn_linear(x, n->v, g->d, bias);
    return sn_nn_linear(attention(g, s, q, k, v), n->o, g->d, SN_BIAS);
}

static sn_tensor feed_forward(const tower *g, const sn_forward_ctx *s, sn_tensor x) {
    sn_tensor half[2];
    x = sn_nn_linear(x, g->names->up, g->gated ? 2 * g->d_mlp : g->d_mlp, SN_BIAS);
    if (g->gated) {
        sn_split(x, 2, 2, half);
        x = sn_mul(sn_silu(half[0]), half[1]);
    } else {
        x = causal_act_fns[g->act](SN_HERE, x);
    }
    return sn_nn_linear(sn_forward_dropout(s, x), g->names->down, g->d, SN_BIAS);
}

static sn_tensor norm(const tower *g, sn_tensor x, const char *name, bool here) {
    return here ? sn_nn_layer_norm(x, name, g->eps) : x;
}

/* x + scale y, with dropout: after every dense layer except q, k and v, and on the weights of
 * attention (Dosovitskiy et al. 2021, appendix B.1) */
static sn_tensor add(const tower *g, const sn_forward_ctx *s, sn_tensor x, sn_tensor y,
                     const char *scale) {
    if (scale) y = sn_mul(y, sn_param(s->m, scale, SN_F32, g->d));
    return sn_add(x, sn_forward_dropout(s, y));
}

sn_tensor tower_layers(const tower *g, const sn_forward_ctx *s, sn_tensor x) {
    const tower_names *n = g->names;
    for (int l = 0; l < g->layers; l++) {
        sn_scope_push(s->m, "%s.%d", n->layers, l);
        sn_tensor y = attend(g, s, norm(g, x, n->attn_norm, !g->post));
        x = norm(g, add(g, s, x, y, n->attn_scale), n->attn_norm, g->post);
        y = feed_forward(g, s, norm(g, x, n->mlp_norm, !g->post));
        x = norm(g, add(g, s, x, y, n->mlp_scale), n->mlp_norm, g->post);
        sn_scope_pop(s->m);
        sn_name(x, "block%d", l);
    }
    return norm(g, x, n->norm, n->norm != NULL);
}
