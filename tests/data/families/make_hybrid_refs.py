#!/usr/bin/python3
# make_hybrid_refs.py DIR: as make_refs.py, for the families whose layers attend or recur. Recurrences run token by
# token, as the papers write them.
import sys

import numpy as np

import make_expert_refs as e
import make_refs as m


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softplus(x):
    return np.log1p(np.exp(x))


def short_conv(p, name, x, kernel, bias=False):  # x [T, C]; the parameter is [C, 1, kernel]
    w = p(name + ".weight", x.shape[1], 1, kernel)[:, 0]
    padded = np.concatenate([np.zeros((kernel - 1, x.shape[1])), x])
    y = sum(padded[i:i + len(x)] * w[:, i] for i in range(kernel))
    return m.silu(y + p(name + ".bias", x.shape[1]) if bias else y)


def unit(x):
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6)


def qwen3_next_attention(p, c, a, x):
    H, G, w, eps = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"], c["rms_norm_eps"]
    r = c.get("rope_parameters", c)
    rot = int(w * r["partial_rotary_factor"])
    freq = m.plain(rot, r["rope_theta"])
    both = m.linear(p, a + "q_proj", x, 2 * H * w).reshape(len(x), H, 2 * w)
    q, gate = both[..., :w].transpose(1, 0, 2), both[..., w:].reshape(len(x), -1)
    k, v = (m.heads(m.linear(p, a + n + "_proj", x, G * w), G) for n in "kv")
    q, k = m.rms(p, a + "q_norm", q, eps, 1), m.rms(p, a + "k_norm", k, eps, 1)
    q, k = (m.part(z, rot, lambda y: m.rope(y, freq)) for z in (q, k))
    return m.linear(p, a + "o_proj", m.merge(m.attend(q, k, v)) * sigmoid(gate), x.shape[-1])


def gated_deltanet(p, c, a, x):
    """Yang et al. 2024, equation 10, with keys and queries of length 1; value heads of a group share both."""
    n, G, H = len(x), c["linear_num_key_heads"], c["linear_num_value_heads"]
    K, V, per = c["linear_key_head_dim"], c["linear_value_head_dim"], H // G
    if c["model_type"] == "qwen3_next":
        z = m.linear(p, a + "in_proj_qkvz", x, 2 * G * K + 2 * H * V).reshape(n, G, -1)
        ba = m.linear(p, a + "in_proj_ba", x, 2 * H).reshape(n, G, 2 * per)
        q, k, v, gate = np.split(z, [K, 2 * K, 2 * K + per * V], axis=-1)
        mixed = np.concatenate([y.reshape(n, -1) for y in (q, k, v)], -1)
    else:
        mixed, gate, b, dt = (m.linear(p, a + "in_proj_" + k, x, size) for k, size in (
            ("qkv", 2 * G * K + H * V), ("z", H * V), ("b", H), ("a", H)))
        ba = np.concatenate([y.reshape(n, G, per) for y in (b, dt)], -1)
    mixed = short_conv(p, a + "conv1d", mixed, c["linear_conv_kernel_dim"])
    q, k, v = np.split(mixed, [G * K, 2 * G * K], axis=-1)
    q, k = (np.repeat(unit(y.reshape(n, G, K)), per, axis=1) for y in (q, k))
    v, gate = v.reshape(n, H, V), gate.reshape(n, H, V)
    beta = sigmoid(ba[..., :per].reshape(n, H))
    dt = softplus(ba[..., per:].reshape(n, H) + p(a + "dt_bias", H))
    alpha = np.exp(-np.exp(p(a + "A_log", H)) * dt)
    y = np.empty((n, H, V))
    for h in range(H):
        S = np.zeros((K, V))
        for t in range(n):
            S = alpha[t, h] * S
            S = S + beta[t, h] * np.outer(k[t, h], v[t, h] - k[t, h] @ S)
            y[t, h] = q[t, h] @ S / np.sqrt(K)
    y = m.rms(p, a + "norm", y, c["rms_norm_eps"]) * m.silu(gate)
    return m.linear(p, a + "out_proj", y.reshape(n, -1), x.shape[-1])


def qwen3_next(p, c, tokens):
    d, eps = c["hidden_size"], c["rms_norm_eps"]
    table = p("model.embed_tokens.weight", c["vocab_size"], d)
    x = table[tokens]
    for l in range(c["num_hidden_layers"]):
        h = f"model.layers.{l}."
        y = m.rms(p, h + "input_layernorm", x, eps, 1)
        full = (l + 1) % c["full_attention_interval"] == 0
        x = x + (qwen3_next_attention(p, c, h + "self_attn.", y) if full else
                 gated_deltanet(p, c, h + "linear_attn.", y))
        y = m.rms(p, h + "post_attention_layernorm", x, eps, 1)
        if "num_experts" not in c:
            x = x + e.gated(p, h + "mlp.", y, c["intermediate_size"])
            continue
        out = (e.experts(p, h + "mlp.", y, c["num_experts"], c["num_experts_per_tok"], c["moe_intermediate_size"],
                         c["norm_topk_prob"], e.LLAMA_PARTS, "gate") if c["model_type"] == "qwen3_next" else
               stacked_experts(p, y, c["num_experts"], c["num_experts_per_tok"], c["moe_intermediate_size"],
                               h + "mlp.gate", h + "mlp.experts.gate_up_proj", h + "mlp.experts.down_proj"))
        s = e.gated(p, h + "mlp.shared_expert.", y, c["shared_expert_intermediate_size"])
        x = x + out + s * sigmoid(m.linear(p, h + "mlp.shared_expert_gate", y, 1))
    return m.rms(p, "model.norm", x, eps, 1) @ (table if c.get("tie_word_embeddings") else
                                                p("lm_head.weight", c["vocab_size"], d)).T


def kimi_delta(p, c, a, x):
    """Kimi Team 2025, section 3: each channel of a key decays by itself."""
    L, n = c["linear_attn_config"], len(x)
    H, K = L["num_heads"], L["head_dim"]
    q, k, v = (short_conv(p, f"{a}{z}_conv1d", m.linear(p, f"{a}{z}_proj", x, H * K), L["short_conv_kernel_size"])
               .reshape(n, H, K) for z in "qkv")
    q, k = unit(q), unit(k)
    f, gate = (m.linear(p, f"{a}{z}_b_proj", m.linear(p, f"{a}{z}_a_proj", x, K), H * K) for z in "fg")
    dt = softplus(f + p(a + "dt_bias", H * K)).reshape(n, H, K)
    alpha = np.exp(-np.exp(p(a + "A_log", 1, 1, H, 1)[0]) * dt)
    beta = sigmoid(m.linear(p, a + "b_proj", x, H))
    y = np.empty((n, H, K))
    for h in range(H):
        S = np.zeros((K, K))
        for t in range(n):
            S = alpha[t, h][:, None] * S
            S = S + beta[t, h] * np.outer(k[t, h], v[t, h] - k[t, h] @ S)
            y[t, h] = q[t, h] @ S / np.sqrt(K)
    y = m.rms(p, a + "o_norm", y, c["rms_norm_eps"]).reshape(n, -1)
    return m.linear(p, a + "o_proj", y * sigmoid(gate), x.shape[-1])


def kimi_linear(p, c, tokens):
    d, eps, L = c["hidden_size"], c["rms_norm_eps"], c["linear_attn_config"]
    routed = {"model_type": "deepseek_v3", "n_routed_experts": c["num_experts"], "n_group": c["num_expert_group"],
              "num_experts_per_tok": c["num_experts_per_token"], "n_shared_experts": c["num_shared_experts"],
              "norm_topk_prob": c["moe_renormalize"], **{k: c[k] for k in ("moe_intermediate_size", "topk_group",
                                                                           "routed_scaling_factor")}}
    x = p("model.embed_tokens.weight", c["vocab_size"], d)[tokens]
    for l in range(c["num_hidden_layers"]):
        h = f"model.layers.{l}."
        y = m.rms(p, h + "input_layernorm", x, eps)
        attend = kimi_delta if l + 1 in L["kda_layers"] else e.latent_attention
        x = x + attend(p, c, h + "self_attn.", y)
        y = m.rms(p, h + "post_attention_layernorm", x, eps)
        x = x + (e.gated(p, h + "mlp.", y, c["intermediate_size"]) if l < c["first_k_dense_replace"] else
                 e.deepseek_experts(p, routed, h + "block_sparse_moe.", y, ("w1", "w3", "w2")))
    return m.rms(p, "model.norm", x, eps) @ p("lm_head.weight", c["vocab_size"], d).T


def mamba2(p, a, x, H, G, K, V, kernel, eps, conv_bias=True, pieces=1):
    """Dao & Gu 2024, section 6 and 7: h = e^(dt A) h + dt B x, y = C h + D x; then gate, norm (of each piece)
    and projection."""
    n = len(x)
    z = m.linear(p, a + "in_proj", x, 2 * H * V + 2 * G * K + H)
    gate, mixed, dt = np.split(z, [H * V, 2 * H * V + 2 * G * K], axis=-1)
    mixed = short_conv(p, a + "conv1d", mixed, kernel, conv_bias)
    u, B, C = np.split(mixed, [H * V, H * V + G * K], axis=-1)
    u = u.reshape(n, H, V)
    B, C = (np.repeat(y.reshape(n, G, K), H // G, axis=1) for y in (B, C))
    dt = softplus(dt + p(a + "dt_bias", H))
    alpha, D = np.exp(-np.exp(p(a + "A_log", H)) * dt), p(a + "D", H)
    y = np.empty((n, H, V))
    for h in range(H):
        S = np.zeros((K, V))
        for t in range(n):
            S = alpha[t, h] * S + np.outer(B[t, h], dt[t, h] * u[t, h])
            y[t, h] = C[t, h] @ S + D[h] * u[t, h]
    y = (y.reshape(n, -1) * m.silu(gate)).reshape(n, pieces, -1)
    y = (y / np.sqrt((y * y).mean(-1, keepdims=True) + eps)).reshape(n, -1) * p(a + "norm.weight", H * V)
    return m.linear(p, a + "out_proj", y, x.shape[-1])


def mamba1(p, a, x, inner, K, rank, kernel, norm=None):
    """Gu & Dao 2023, algorithm 2; norm: of dt, B and C, as Jamba has them."""
    z = m.linear(p, a + "in_proj", x, 2 * inner)
    u, gate = short_conv(p, a + "conv1d", z[:, :inner], kernel, True), z[:, inner:]
    dt, B, C = np.split(m.linear(p, a + "x_proj", u, rank + 2 * K), [rank, rank + K], axis=-1)
    if norm:
        dt, B, C = (m.rms(p, a + k + "_layernorm", y, norm) for k, y in (("dt", dt), ("b", B), ("c", C)))
    dt = softplus(m.linear(p, a + "dt_proj", dt, inner, True))
    A, h, y = -np.exp(p(a + "A_log", inner, K)), np.zeros((inner, K)), np.empty_like(u)
    for t in range(len(x)):
        h = np.exp(dt[t][:, None] * A) * h + (dt[t] * u[t])[:, None] * B[t]
        y[t] = h @ C[t] + p(a + "D", inner) * u[t]
    return m.linear(p, a + "out_proj", y * m.silu(gate), x.shape[-1])


def bamba_mixer(p, c, a, x):
    H = c["mamba_n_heads"]
    return mamba2(p, a, x, H, c["mamba_n_groups"], c["mamba_d_state"], c["mamba_expand"] * c["hidden_size"] // H,
                  c["mamba_d_conv"], c["rms_norm_eps"])


def attention(p, c, a, x, rot=0, scale=None):
    H, G, d = c["num_attention_heads"], c["num_key_value_heads"], x.shape[-1]
    w = d // H
    q, k, v = (m.heads(m.linear(p, a + n + "_proj", x, g * w), g) for n, g in (("q", H), ("k", G), ("v", G)))
    if rot:
        freq = m.plain(rot, c["rope_theta"])
        q, k = (m.part(z, rot, lambda y: m.rope(y, freq)) for z in (q, k))
    return m.linear(p, a + "o_proj", m.merge(m.attend(q, k, v, scale=scale)), d)


def bamba(p, c, tokens):
    d, eps = c["hidden_size"], c["rms_norm_eps"]
    x = p("model.embed_tokens.weight", c["vocab_size"], d)[tokens]
    for l in range(c["num_hidden_layers"]):
        h = f"model.layers.{l}."
        y = m.rms(p, h + "input_layernorm", x, eps)
        x = x + (attention(p, c, h + "self_attn.", y, c["attn_rotary_emb"]) if l in c["attn_layer_indices"] else
                 bamba_mixer(p, c, h + "mamba.", y))
        x = x + e.gated(p, h + "feed_forward.", m.rms(p, h + "pre_ff_layernorm", x, eps), c["intermediate_size"])
    return m.rms(p, "model.final_layernorm", x, eps) @ p("lm_head.weight", c["vocab_size"], d).T


def both(p, name, x, ff):  # gate and up in one matrix
    z = m.linear(p, name, x, 2 * ff)
    return m.silu(z[:, :ff]) * z[:, ff:]


def stacked_experts(p, x, n, k, ff, router, in_name, out_name):
    d = x.shape[-1]
    score = m.linear(p, router, x, n)
    up, down = p(in_name, n, 2 * ff, d), p(out_name, n, d, ff)
    y = np.zeros_like(x)
    for t in range(len(x)):
        best = e.top(score[t], k)
        for w, i in zip(e.softmax(score[t][best]), best):
            z = up[i] @ x[t]
            y[t] += w * (down[i] @ (m.silu(z[:ff]) * z[ff:]))
    return y


def granite_hybrid(p, c, tokens):
    d, eps, r = c["hidden_size"], c["rms_norm_eps"], c["residual_multiplier"]
    table = p("model.embed_tokens.weight", c["vocab_size"], d)
    x = table[tokens] * c["embedding_multiplier"]
    for l, kind in enumerate(c["layer_types"]):
        h = f"model.layers.{l}."
        y = m.rms(p, h + "input_layernorm", x, eps)
        x = x + r * (attention(p, c, h + "self_attn.", y, scale=c["attention_multiplier"]) if kind == "attention" else
                     bamba_mixer(p, c, h + "mamba.", y))
        y = m.rms(p, h + "post_attention_layernorm", x, eps)
        z = m.linear(p, h + "shared_mlp.output_linear", both(p, h + "shared_mlp.input_linear", y,
                                                            c["shared_intermediate_size"]), d)
        if c["num_local_experts"]:
            a = h + "block_sparse_moe."
            z = z + stacked_experts(p, y, c["num_local_experts"], c["num_experts_per_tok"], c["intermediate_size"],
                                    a + "router.layer", a + "input_linear.weight", a + "output_linear.weight")
        x = x + r * z
    return m.rms(p, "model.norm", x, eps) @ table.T / c["logits_scaling"]


def jamba(p, c, tokens):
    d, eps = c["hidden_size"], c["rms_norm_eps"]
    x = p("model.embed_tokens.weight", c["vocab_size"], d)[tokens]
    for l in range(c["num_hidden_layers"]):
        h = f"model.layers.{l}."
        y = m.rms(p, h + "input_layernorm", x, eps)
        x = x + (attention(p, c, h + "self_attn.", y) if l % c["attn_layer_period"] == c["attn_layer_offset"] else
                 mamba1(p, h + "mamba.", y, c["mamba_expand"] * d, c["mamba_d_state"], c["mamba_dt_rank"],
                        c["mamba_d_conv"], eps))
        y = m.rms(p, h + "pre_ff_layernorm", x, eps)
        x = x + (e.experts(p, h + "feed_forward.", y, c["num_experts"], c["num_experts_per_tok"], c["intermediate_size"],
                           False, e.LLAMA_PARTS, "router") if l % c["expert_layer_period"] == c["expert_layer_offset"]
                 else e.gated(p, h + "feed_forward.", y, c["intermediate_size"]))
    return m.rms(p, "model.final_layernorm", x, eps) @ p("lm_head.weight", c["vocab_size"], d).T


def pure(p, c, tokens):
    d, eps = c["hidden_size"], c["layer_norm_epsilon"]
    table = p("backbone.embeddings.weight", c["vocab_size"], d)
    x = table[tokens]
    for l in range(c["num_hidden_layers"]):
        h = f"backbone.layers.{l}."
        y = m.rms(p, h + "norm", x, eps)
        x = x + (mamba1(p, h + "mixer.", y, c["intermediate_size"], c["state_size"], c["time_step_rank"], c["conv_kernel"])
                 if c["model_type"] == "mamba" else
                 mamba2(p, h + "mixer.", y, c["num_heads"], c["n_groups"], c["state_size"], c["head_dim"],
                        c["conv_kernel"], eps, c["use_conv_bias"], c.get("norm_groups", 1)))
    return m.rms(p, "backbone.norm_f", x, eps) @ (table if c["tie_word_embeddings"] else
                                                 p("lm_head.weight", c["vocab_size"], d)).T


def text_part(model, layers, head, skipped):
    """The text model within one of pictures and texts, which has its parameters under other names."""
    def run(p, c, tokens):
        p(skipped, 4, 4)
        return model(lambda name, *shape: p((layers if name.startswith("model.") else head) + name.split("model.", 1)[-1], *shape),
                     {"tie_word_embeddings": c.get("tie_word_embeddings", False), **c["text_config"]}, tokens)
    return run


MAMBA2 = {"mamba_n_heads": 4, "mamba_n_groups": 2, "mamba_d_state": 6, "mamba_d_conv": 4, "mamba_expand": 2,
          "mamba_d_head": "auto", "mamba_chunk_size": 256, "mamba_conv_bias": True, "mamba_proj_bias": False}
PURE = {"vocab_size": 23, "hidden_size": 16, "num_hidden_layers": 2, "layer_norm_epsilon": 1e-5, "conv_kernel": 4,
        "use_conv_bias": True, "use_bias": False, "hidden_act": "silu", "residual_in_fp32": True, "rescale_prenorm_residual": False,
        "time_step_min": 0.001, "time_step_max": 0.1, "time_step_floor": 1e-4, "expand": 2}
DELTA = {"full_attention_interval": 2, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 6,
         "linear_num_key_heads": 2, "linear_num_value_heads": 4}
QWEN35 = {**{k: v for k, v in e.SIZES.items() if k not in ("rope_theta", "intermediate_size")}, **DELTA, "head_dim": 8,
          "attn_output_gate": True, "mamba_ssm_dtype": "float32", "mlp_only_layers": [], "mtp_num_hidden_layers": 1,
          "mtp_use_dedicated_embeddings": False, "layer_types": ["linear_attention", "full_attention"],
          "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0, "partial_rotary_factor": 0.5,
                              "mrope_interleaved": True, "mrope_section": [1, 1, 0]}}
KIMI = {
    **{k: v for k, v in e.SIZES.items() if k != "max_position_embeddings"}, "model_type": "kimi_linear", "num_hidden_layers": 3,
    "num_key_value_heads": 4, "head_dim": 8, "model_max_length": 32, "q_lora_rank": None, "kv_lora_rank": 8,
    "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 6, "mla_use_nope": True, "rope_scaling": None,
    "num_experts": 4, "num_experts_per_token": 2, "num_shared_experts": 1, "moe_intermediate_size": 32,
    "moe_renormalize": True, "moe_router_activation_func": "sigmoid", "moe_layer_freq": 1, "first_k_dense_replace": 1,
    "routed_scaling_factor": 2.446, "use_grouped_topk": True, "num_expert_group": 1, "topk_group": 1,
    "num_nextn_predict_layers": 0, "tie_word_embeddings": False,
    "linear_attn_config": {"kda_layers": [1, 3], "full_attn_layers": [2], "num_heads": 3, "head_dim": 8,
                           "short_conv_kernel_size": 4}}
CASES = {
    "qwen3_next": (qwen3_next, {
        **e.SIZES, "model_type": "qwen3_next", "head_dim": 8, "partial_rotary_factor": 0.5, "num_experts": 4,
        "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 24,
        "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [], **DELTA}),
    "qwen3_5": (qwen3_next, {**QWEN35, "model_type": "qwen3_5_text", "intermediate_size": 20, "tie_word_embeddings": True}),
    "qwen3_5_moe": (qwen3_next, {**QWEN35, "model_type": "qwen3_5_moe_text", "num_experts": 4, "num_experts_per_tok": 2,
                                 "moe_intermediate_size": 32, "shared_expert_intermediate_size": 24}),
    "qwen3_5_pictures": (text_part(qwen3_next, "model.language_model.", "", "model.visual.patch_embed.proj.weight"), {
        "model_type": "qwen3_5", "vocab_size": m.SIZES["vocab_size"], "image_token_id": 7, "tie_word_embeddings": True, "vision_config": {"depth": 1},
        "text_config": {**QWEN35, "model_type": "qwen3_5_text", "intermediate_size": 20}}),
    "llava": (text_part(m.llama, "language_model.model.", "language_model.", "multi_modal_projector.linear_1.weight"), {
        "model_type": "llava", "vocab_size": m.SIZES["vocab_size"], "image_token_index": 7, "vision_config": {"hidden_size": 4},
        "text_config": {**m.LLAMA, "num_attention_heads": 4}}),
    "kimi_linear": (kimi_linear, KIMI),
    "kimi_linear_groups": (kimi_linear, {**KIMI, "q_lora_rank": 12, "num_experts": 8, "num_expert_group": 4, "topk_group": 2}),
    "bamba": (bamba, {**m.LLAMA, **MAMBA2, "model_type": "bamba", "hidden_size": 32, "attn_layer_indices": [1], "attn_rotary_emb": 4,
                      "num_logits_to_keep": 1, "tie_word_embeddings": False}),
    "granite_hybrid": (granite_hybrid, {
        **e.SIZES, **MAMBA2, "model_type": "granitemoehybrid", "mamba_n_groups": 1, "mamba_d_head": 16, "layer_types": ["mamba", "attention"],
        "num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 24, "embedding_multiplier": 3.0,
        "residual_multiplier": 0.5, "attention_multiplier": 0.4, "logits_scaling": 2.0, "tie_word_embeddings": True,
        "position_embedding_type": "nope"}),
    "granite_hybrid_dense": (granite_hybrid, {
        **m.LLAMA, **MAMBA2, "model_type": "granitemoehybrid", "layer_types": ["attention", "mamba"],
        "num_local_experts": 0, "num_experts_per_tok": 0, "shared_intermediate_size": 24, "embedding_multiplier": 3.0,
        "residual_multiplier": 0.5, "attention_multiplier": 0.4, "logits_scaling": 2.0, "tie_word_embeddings": True}),
    "jamba": (jamba, {
        **{k: v for k, v in e.SIZES.items() if k != "rope_theta"}, "model_type": "jamba", "num_hidden_layers": 3,
        "attn_layer_period": 3, "attn_layer_offset": 1, "expert_layer_period": 2,
        "expert_layer_offset": 1, "num_experts": 4, "num_experts_per_tok": 2, "mamba_d_state": 4, "mamba_d_conv": 4,
        "mamba_expand": 2, "mamba_dt_rank": 3, "mamba_conv_bias": True, "mamba_proj_bias": False, "use_mamba_kernels": True,
        "tie_word_embeddings": False}),
    "mamba": (pure, {**PURE, "model_type": "mamba", "intermediate_size": 32, "state_size": 4, "time_step_rank": 3,
                     "tie_word_embeddings": True}),
    "mamba2": (pure, {**PURE, "model_type": "mamba2", "num_heads": 4, "head_dim": 8, "n_groups": 2, "state_size": 6,
                      "chunk_size": 256, "rms_norm": True, "tie_word_embeddings": False}),
}

if __name__ == "__main__":
    m.write_decoders(CASES, sys.argv[1])
