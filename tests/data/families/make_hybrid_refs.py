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
    rot = int(w * c["partial_rotary_factor"])
    freq = m.plain(rot, c["rope_theta"])
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
    z = m.linear(p, a + "in_proj_qkvz", x, 2 * G * K + 2 * H * V).reshape(n, G, -1)
    ba = m.linear(p, a + "in_proj_ba", x, 2 * H).reshape(n, G, 2 * per)
    q, k, v, gate = np.split(z, [K, 2 * K, 2 * K + per * V], axis=-1)
    mixed = np.concatenate([y.reshape(n, -1) for y in (q, k, v)], -1)
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
    x = p("model.embed_tokens.weight", c["vocab_size"], d)[tokens]
    for l in range(c["num_hidden_layers"]):
        h = f"model.layers.{l}."
        y = m.rms(p, h + "input_layernorm", x, eps, 1)
        full = (l + 1) % c["full_attention_interval"] == 0
        x = x + (qwen3_next_attention(p, c, h + "self_attn.", y) if full else
                 gated_deltanet(p, c, h + "linear_attn.", y))
        y = m.rms(p, h + "post_attention_layernorm", x, eps, 1)
        out = e.experts(p, h + "mlp.", y, c["num_experts"], c["num_experts_per_tok"], c["moe_intermediate_size"],
                        c["norm_topk_prob"], e.LLAMA_PARTS, "gate")
        s = e.gated(p, h + "mlp.shared_expert.", y, c["shared_expert_intermediate_size"])
        x = x + out + s * sigmoid(m.linear(p, h + "mlp.shared_expert_gate", y, 1))
    return m.rms(p, "model.norm", x, eps, 1) @ p("lm_head.weight", c["vocab_size"], d).T


CASES = {
    "qwen3_next": (qwen3_next, {
        **e.SIZES, "model_type": "qwen3_next", "head_dim": 8, "partial_rotary_factor": 0.5, "num_experts": 4,
        "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 24,
        "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [], "full_attention_interval": 2,
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 6, "linear_num_key_heads": 2,
        "linear_num_value_heads": 4}),
}

if __name__ == "__main__":
    m.write_decoders(CASES, sys.argv[1])
