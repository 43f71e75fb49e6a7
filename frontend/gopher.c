/* gopher.c: Gopher: [PH22 A10] with RMSnorm in lines 5, 7 and 10, and with relative positions in
 * the style of Transformer-XL in place of line 2's (Rae et al. 2021, section 2.1; Dai et al. 2019,
 * section 3.3). The score of query i and key j has a content and a position term:
 *     (q_i + u) . k_j + (q_i + v) . W_R R_{i-j}
 * with the sinusoid R of the distance, learned u and v for each head. Dai's (b) and (d) are in the
 * second term, (a) and (c) in the first. Columns of R are alternating sine and cosine, where theirs
 * are all sines first: a permutation of W_R's columns. Config keys: GPT-2's. Parameters: GPT-2's
 * without wpe and norms' biases; attn.r_net.weight [d, d], attn.r_w_bias and attn.r_r_bias [H,
 * d/H]. */
#include "frontend/decoder.h"
#include "frontend/front.h"

#include <math.h>

static sn_tensor embed(const decoder *g, const sn_forward_ctx *s) {
    return sn_name(front_vocabulary(SN_HERE, s->tokens, "wte", g->vocab, g->d), "tok_emb");
}

static sn_tensor norm(const decoder *g, sn_tensor x, const char *name) {
    return sn_nn_rms_norm(x, name, g->eps);
}

/* captured: the position term [B, H, Tq, distances] */
static sn_tensor add_position(const sn_score_ctx *c) {
    sn_tensor distance = sn_max(sn_query_key_distance(c), 0); /* keys of the future are masked */
    return sn_add(c->score, sn_at(c->captured[0], c->b, c->h, c->q, distance));
}

/* q [B, H, Tq, d/H] plus a bias of each head */
static sn_tensor shift(const decoder *g, sn_tensor q, const char *name) {
    int64_t width = g->d / g->heads;
    sn_tensor bias = sn_param(sn_module_of(q), name, SN_F32, g->heads, width);
    return sn_add(q, sn_reshape(bias, g->heads, 1, width));
}

static sn_tensor attend(const decoder *g, const sn_forward_ctx *s, sn_tensor x, int layer) {
    (void)layer;
    sn_tensor part[3];
    if (s->ranks > 1) /* of the scores below each would have its own rows, which are read as all */
        return sn_module_fail(s->m, SN_ERR_USAGE,
                              "ranks of the mesh axis \"" FRONT_CONTEXT
                              "\" cannot divide a gopher model's scores of positions");
    sn_split(decoder_qkv(g, x), 2, 3, part);
    sn_tensor q = sn_name(sn_split_heads(part[0], g->heads), "q");
    sn_tensor k = sn_name(sn_split_heads(part[1], g->heads), "k");
    sn_tensor v = sn_name(sn_split_heads(part[2], g->heads), "v");
    k = sn_append_kv(s, k, "k_cache");
    v = sn_append_kv(s, v, "v_cache");

    sn_tensor distance = sn_arange(s->m, SN_I32, sn_dim_of(k, 2));
    sn_tensor r = sn_sinusoid(distance, g->d, 10000, true); /* [Tk, d] */
    r = sn_split_heads(sn_nn_linear(sn_expand(r, 0), "attn.r_net", g->d, SN_COLUMNS), g->heads);
    sn_tensor position = sn_matmul(shift(g, q, "attn.r_r_bias"), sn_swap(r, -1, -2));
    position = sn_name(sn_mul(position, 1 / sqrt((double)(g->d / g->heads))), "position");
    sn_tensor y = sn_forward_attention(s, shift(g, q, "attn.r_w_bias"), k, v, .causal = true,
                                       .score = add_position, .captured = {position});
    return sn_nn_linear(sn_merge_heads(y), "attn.c_proj", g->d, g->linear | SN_ROWS);
}

void sn_gopher_build(sn_config *c, const sn_model_options *o, sn_model *out) {
    decoder g = decoder_read(c, o);
    g.embed = embed, g.norm = norm, g.attend = attend;
    if (g.d % 2) sn_config_problem(c, "\"n_embd\" = %lld must be even", (long long)g.d);
    decoder_build(&g, c, o, out);
}
