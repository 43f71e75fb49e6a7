#!/usr/bin/python3
# make_expert_refs.py DIR: as make_refs.py, for the families with experts: routers, experts and shared experts from the
# papers and Hugging Face's model documentation, each expert computed for each token that selects it.
import sys

import numpy as np

import make_refs as m


def gated(p, scope, x, ff, names=("gate_proj", "up_proj", "down_proj")):
    g, u = (m.linear(p, scope + n, x, ff) for n in names[:2])
    return m.linear(p, scope + names[2], m.silu(g) * u, x.shape[-1])


def top(x, k):  # indices of the k largest, descending; the first of equal ones
    return np.argsort(-x, kind="stable")[:k]


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def experts(p, scope, x, n, k, ff, normed, names, router):
    """x [T, d]: the weighted sum of the k experts with the largest probabilities."""
    prob = softmax(m.linear(p, scope + router, x, n))
    y = np.zeros_like(x)
    for e in range(n):  # all experts have parameters
        for name in names:
            shape = (x.shape[-1], ff) if name == names[2] else (ff, x.shape[-1])
            p(f"{scope}experts.{e}.{name}.weight", *shape)
    for t in range(len(x)):
        best = top(prob[t], k)
        w = prob[t][best]
        if normed:
            w = w / w.sum()
        for i, e in enumerate(best):
            y[t] += w[i] * gated(p, f"{scope}experts.{e}.", x[t:t + 1], ff, names)[0]
    return y


LLAMA_PARTS = ("gate_proj", "up_proj", "down_proj")


def mlp_of(p, c):
    kind = c["model_type"]

    def mlp(l, h, x):
        if kind == "mixtral":
            return experts(p, h + "block_sparse_moe.", x, c["num_local_experts"], c["num_experts_per_tok"],
                           c["intermediate_size"], True, ("w1", "w3", "w2"), "gate")
        if l in c.get("mlp_only_layers", []) or (l + 1) % c.get("decoder_sparse_step", 1):
            return gated(p, h + "mlp.", x, c["intermediate_size"])
        y = experts(p, h + "mlp.", x, c["num_experts"], c["num_experts_per_tok"],
                    c.get("moe_intermediate_size", c["intermediate_size"]), c["norm_topk_prob"], LLAMA_PARTS, "gate")
        if kind == "qwen2_moe":
            s = gated(p, h + "mlp.shared_expert.", x, c["shared_expert_intermediate_size"])
            y = y + s / (1 + np.exp(-m.linear(p, h + "mlp.shared_expert_gate", x, 1)))
        return y
    return mlp


def decoder(p, c, tokens):
    kind = c["model_type"]
    d, H, G, eps = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"], c["rms_norm_eps"]
    w = c.get("head_dim", d // H)
    freq, mlp = m.plain(w, c["rope_theta"]), mlp_of(p, c)
    x = p("model.embed_tokens.weight", c["vocab_size"], d)[tokens]
    for l in range(c["num_hidden_layers"]):
        h = f"model.layers.{l}."
        a, y = h + "self_attn.", m.rms(p, h + "input_layernorm", x, eps)
        q, k, v = (m.linear(p, a + n + "_proj", y, g * w, kind == "qwen2_moe") for n, g in (("q", H), ("k", G), ("v", G)))
        if kind == "olmoe":
            q, k = m.rms(p, a + "q_norm", q, eps), m.rms(p, a + "k_norm", k, eps)
        q, k, v = m.heads(q, H), m.heads(k, G), m.heads(v, G)
        if kind == "qwen3_moe":
            q, k = m.rms(p, a + "q_norm", q, eps), m.rms(p, a + "k_norm", k, eps)
        y = m.attend(m.rope(q, freq), m.rope(k, freq), v, window=c.get("sliding_window"))
        x = x + m.linear(p, a + "o_proj", m.merge(y), d)
        x = x + mlp(l, h, m.rms(p, h + "post_attention_layernorm", x, eps))
    return m.rms(p, "model.norm", x, eps) @ p("lm_head.weight", c["vocab_size"], d).T


def yarn(c):
    r = c["rope_scaling"]
    return 0.1 * r["mscale_all_dim"] * np.log(r["factor"]) + 1


def deepseek_experts(p, c, scope, x, names=LLAMA_PARTS):
    """DeepSeek-V2, section 2.2; V3, section 2.1.2: groups by their best (V2), or the sum of their best two (V3)."""
    n, k, ff, v3 = c["n_routed_experts"], c["num_experts_per_tok"], c["moe_intermediate_size"], c["model_type"] != "deepseek_v2"
    scores = m.linear(p, scope + "gate", x, n)
    scores = 1 / (1 + np.exp(-scores)) if v3 else softmax(scores)
    bias = p(scope + "gate.e_score_correction_bias", n) if v3 else 0
    for e in range(n):
        for name in names:
            p(f"{scope}experts.{e}.{name}.weight", *((x.shape[-1], ff) if name == names[2] else (ff, x.shape[-1])))
    y = gated(p, scope + "shared_experts.", x, ff * c["n_shared_experts"])
    for t in range(len(x)):
        choice = scores[t] + bias
        if v3 or c["topk_method"] == "group_limited_greedy":
            groups = np.sort(choice.reshape(c["n_group"], -1))
            group = groups[:, -2:].sum(-1) if v3 else groups[:, -1]
            seen = np.isin(np.arange(n) // (n // c["n_group"]), top(group, c["topk_group"]))
            choice = np.where(seen, choice, 0)
        best = top(choice, k)
        w = scores[t][best]
        if c["norm_topk_prob"]:
            w = w / w.sum()
        for i, e in enumerate(best):
            y[t] += w[i] * c["routed_scaling_factor"] * gated(p, f"{scope}experts.{e}.", x[t:t + 1], ff, names)[0]
    return y


def chosen_tokens(p, c, a, x, latent):
    """DeepSeek-V3.2, section 2.1: of the tokens up to its own, for each the index_topk with the largest scores, [T, T]."""
    H, w, rot = c["index_n_heads"], c["index_head_dim"], c["qk_rope_head_dim"]
    freq = m.plain(rot, c["rope_theta"])
    q, k = m.heads(m.linear(p, a + "wq_b", latent, H * w), H), m.linear(p, a + "wk", x, w)
    k = m.layer_norm(p, a + "k_norm", k, 1e-6)[None]
    q, k = (m.part(z, rot, lambda y: m.rope(y, freq)) for z in (q, k))
    weight = m.linear(p, a + "weights_proj", x, H) / np.sqrt(H * w)
    score = (np.maximum(q @ k.transpose(0, 2, 1), 0) * weight.T[..., None]).sum(0)
    seen = np.zeros(score.shape, bool)
    for t in range(len(x)):
        seen[t, top(score[t, :t + 1], c["index_topk"])] = True
    return seen


def latent_attention(p, c, a, x, scale=1, turn=lambda y: y):
    """Multi-head latent attention: DeepSeek-V2, section 2.1 and appendix C; the rotated key is common to all heads."""
    H, rank, plain, rot, value = (c[k] for k in ("num_attention_heads", "kv_lora_rank", "qk_nope_head_dim",
                                                 "qk_rope_head_dim", "v_head_dim"))
    hidden = None
    if c.get("q_lora_rank"):
        q = m.rms(p, a + "q_a_layernorm", m.linear(p, a + "q_a_proj", x, c["q_lora_rank"]), 1e-6)
        if "index_topk" in c:
            hidden = np.where(chosen_tokens(p, c, a + "indexer.", x, q), 0, -np.inf)
        q = m.linear(p, a + "q_b_proj", q, H * (plain + rot))
    else:
        q = m.linear(p, a + "q_proj", x, H * (plain + rot))
    q = m.heads(q, H)
    down = m.linear(p, a + "kv_a_proj_with_mqa", x, rank + rot)
    kv = m.heads(m.linear(p, a + "kv_b_proj", m.rms(p, a + "kv_a_layernorm", down[:, :rank], 1e-6), H * (plain + value)), H)
    q = np.concatenate([q[..., :plain], turn(q[..., plain:])], -1)
    key = np.repeat(turn(down[None, :, rank:]), H, axis=0)
    y = m.attend(q, np.concatenate([kv[..., :plain], key], -1), kv[..., plain:], scale=scale / np.sqrt(plain + rot), bias=hidden)
    return m.linear(p, a + "o_proj", m.merge(y), x.shape[-1])


def deepseek(p, c, tokens):
    d, eps, rot = c["hidden_size"], c["rms_norm_eps"], c["qk_rope_head_dim"]
    freq, scale = m.plain(rot, c["rope_theta"]), 1
    if c.get("rope_scaling"):
        freq, _ = m.scaled(c, rot, c["rope_theta"])
        scale = yarn(c) ** 2  # mscale equals mscale_all_dim: cos and sin have no factor
    x = p("model.embed_tokens.weight", c["vocab_size"], d)[tokens]
    for l in range(c["num_hidden_layers"]):
        h = f"model.layers.{l}."
        y = m.rms(p, h + "input_layernorm", x, eps)
        x = x + latent_attention(p, c, h + "self_attn.", y, scale, lambda z: m.rope_pairs(z, freq))
        y = m.rms(p, h + "post_attention_layernorm", x, eps)
        x = x + (gated(p, h + "mlp.", y, c["intermediate_size"]) if l < c["first_k_dense_replace"] else
                 deepseek_experts(p, c, h + "mlp.", y))
    return m.rms(p, "model.norm", x, eps) @ p("lm_head.weight", c["vocab_size"], d).T


# Experts of 32 units in models of width 32: whole panels, of which the kernels select.
FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


def mxfp4(p, name, *shape):
    """Values of blocks of 32: two in a byte, the first in its low half, times 2^(scale - 127) [OCP MX 1.0]."""
    blocks = p(name + "_blocks", *shape[:-1], shape[-1] // 32, 16).astype(int)
    scales = p(name + "_scales", *shape[:-1], shape[-1] // 32).astype(float)
    values = FP4[np.stack([blocks & 15, blocks >> 4], -1)].reshape(*shape[:-1], -1, 32)
    return (values * 2.0 ** (scales[..., None] - 127)).reshape(shape)


def gpt_oss_experts(p, c, scope, x):
    """OpenAI 2025: gate and up alternate; both are clamped."""
    n, k, ff, d = c["num_local_experts"], c["num_experts_per_tok"], c["intermediate_size"], x.shape[-1]
    most = c.get("swiglu_limit", 7)
    score = m.linear(p, scope + "router", x, n, True)
    scope += "experts."
    if "quantization_config" in c:
        up, down = mxfp4(p, scope + "gate_up_proj", n, 2 * ff, d), mxfp4(p, scope + "down_proj", n, d, ff)
    else:
        up, down = (p(scope + name, n, *shape).transpose(0, 2, 1) for name, shape in
                    (("gate_up_proj", (d, 2 * ff)), ("down_proj", (ff, d))))
    up_bias, down_bias = p(scope + "gate_up_proj_bias", n, 2 * ff), p(scope + "down_proj_bias", n, d)
    y = np.zeros_like(x)
    for t in range(len(x)):
        best = top(score[t], k)
        for w, i in zip(softmax(score[t][best]), best):
            z = up[i] @ x[t] + up_bias[i]
            g, u = np.minimum(z[0::2], most), np.clip(z[1::2], -most, most)
            y[t] += w * (down[i] @ ((u + 1) * g / (1 + np.exp(-1.702 * g))) + down_bias[i])
    return y


def gpt_oss(p, c, tokens):
    d, H, G, w, eps = (c[k] for k in ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps"))
    freq, factor = m.scaled(c, w, c["rope_theta"])
    x = p("model.embed_tokens.weight", c["vocab_size"], d)[tokens]
    for l in range(c["num_hidden_layers"]):
        h = f"model.layers.{l}."
        a, y = h + "self_attn.", m.rms(p, h + "input_layernorm", x, eps)
        q, k, v = (m.heads(m.linear(p, a + n + "_proj", y, g * w, True), g) for n, g in (("q", H), ("k", G), ("v", G)))
        local = c["layer_types"][l] == "sliding_attention" if "layer_types" in c else l % 2 == 0
        y = m.attend(m.rope(q, freq, factor), m.rope(k, freq, factor), v, window=c["sliding_window"] if local else None,
                     sink=p(a + "sinks", H))
        x = x + m.linear(p, a + "o_proj", m.merge(y), d, True)
        x = x + gpt_oss_experts(p, c, h + "mlp.", m.rms(p, h + "post_attention_layernorm", x, eps))
    return m.rms(p, "model.norm", x, eps) @ p("lm_head.weight", c["vocab_size"], d).T


SIZES = {**m.LLAMA, "hidden_size": 32, "intermediate_size": 32}
MANY = {**SIZES, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
DEEPSEEK = {**{k: v for k, v in SIZES.items() if k != "num_key_value_heads"}, "q_lora_rank": 12, "kv_lora_rank": 8,
            "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 6, "n_routed_experts": 8, "num_experts_per_tok": 3,
            "moe_intermediate_size": 32, "first_k_dense_replace": 1, "n_group": 4, "topk_group": 2, "moe_layer_freq": 1,
            "intermediate_size": 20}
GPT_OSS = {**SIZES, "model_type": "gpt_oss", "head_dim": 12, "num_local_experts": 4, "num_experts_per_tok": 2,
           "experts_per_token": 2, "attention_bias": True, "sliding_window": 4, "rope_theta": 150000.0,
           "initial_context_length": 8, "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 4.0, "beta_slow": 1.0,
                                                         "truncate": False, "original_max_position_embeddings": 8}}
CASES = {
    "gpt_oss": (gpt_oss, {**GPT_OSS, "layer_types": ["full_attention", "sliding_attention"], "swiglu_limit": 1.5}),
    "gpt_oss_mxfp4": (gpt_oss, {**GPT_OSS, "hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 1, "quantization_config": {
        "quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}}),
    "deepseek_v2": (deepseek, {**DEEPSEEK, "model_type": "deepseek_v2", "n_shared_experts": 2, "norm_topk_prob": False,
                               "routed_scaling_factor": 2.0, "topk_method": "group_limited_greedy", "scoring_func": "softmax",
                               "rope_scaling": {"type": "yarn", "factor": 4.0, "beta_fast": 4, "beta_slow": 1, "mscale": 0.7,
                                                "mscale_all_dim": 0.7, "original_max_position_embeddings": 8}}),
    "deepseek_v2_lite": (deepseek, {**DEEPSEEK, "model_type": "deepseek_v2", "q_lora_rank": None, "n_shared_experts": 1,
                                    "norm_topk_prob": False, "routed_scaling_factor": 1.0, "topk_method": "greedy",
                                    "n_group": 1, "topk_group": 1}),
    "deepseek_v3": (deepseek, {**DEEPSEEK, "model_type": "deepseek_v3", "n_shared_experts": 1, "norm_topk_prob": True,
                               "routed_scaling_factor": 2.5, "topk_method": "noaux_tc", "scoring_func": "sigmoid",
                               "num_nextn_predict_layers": 1}),
    "deepseek_v32": (deepseek, {**DEEPSEEK, "model_type": "deepseek_v32", "n_shared_experts": 1, "norm_topk_prob": True,
                                "routed_scaling_factor": 2.5, "topk_method": "noaux_tc", "scoring_func": "sigmoid",
                                "index_n_heads": 3, "index_head_dim": 8, "index_topk": 5}),

    "mixtral": (decoder, {**SIZES, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2,
                          "sliding_window": None, "router_aux_loss_coef": 0.02, "output_router_logits": False}),
    "qwen2_moe": (decoder, {**MANY, "model_type": "qwen2_moe", "moe_intermediate_size": 20, "norm_topk_prob": False,
                            "shared_expert_intermediate_size": 24, "decoder_sparse_step": 1, "num_hidden_layers": 3,
                            "mlp_only_layers": [1], "use_sliding_window": False}),
    "qwen3_moe": (decoder, {**MANY, "model_type": "qwen3_moe", "head_dim": 8, "norm_topk_prob": True,
                            "decoder_sparse_step": 2, "mlp_only_layers": [], "attention_bias": False}),
    "olmoe": (decoder, {**SIZES, "model_type": "olmoe", "num_experts": 4, "num_experts_per_tok": 3,
                        "norm_topk_prob": False, "clip_qkv": None, "num_hidden_layers": 1}),
}

if __name__ == "__main__":
    m.write_decoders(CASES, sys.argv[1])
