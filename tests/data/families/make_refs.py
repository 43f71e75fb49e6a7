#!/usr/bin/python3
# make_refs.py DIR: what NumPy says about tiny models of each family, for test_families: DIR/NAME.json with the config,
# names and shapes of all tensors, tokens, logits, and the tokens that greedy decoding adds. Everything here is written from
# the papers and Hugging Face's model documentation, in f64 and without caches, apart from Sinter's code. Tensors follow
# from their names, as start() here and in the test; their values are exact in bf16 and f16.
# Needs numpy; run again when a case is added.
import json
import math
import os
import sys

import numpy as np

T, MORE = 12, 5


def start(name, shape):
    """Numbers of a tensor: a hash of its name and of the place, multiples of 1/64 (vectors: 1/128). Blocks of MXFP4 are
    bytes, the exponents of their scales -4 to -1."""
    h = 2166136261
    for c in name.encode():
        h = (h ^ c) * 16777619 & 0xFFFFFFFF
    x = (h + np.arange(int(np.prod(shape)), dtype=np.uint64) * 2654435761) & 0xFFFFFFFF
    for _ in range(2):
        x = ((x ^ (x >> np.uint64(16))) * 0x45D9F3B) & 0xFFFFFFFF
    x = x ^ (x >> np.uint64(16))
    if name.endswith("_blocks"):
        return (x >> np.uint64(24)).reshape(shape)
    if name.endswith("_scales"):
        return (123 + (x >> np.uint64(30))).reshape(shape)
    u = (x >> np.uint64(26)).astype(np.float64) - 32  # -32 .. 31
    v = u / 64 if len(shape) > 1 else u / 128 + (1 if name.endswith("weight") else 0)
    return v.reshape(shape)


class Params(dict):
    def __call__(self, name, *shape):
        if name not in self:
            self[name] = start(name, shape)
        return self[name]


# ---- parts ----

def silu(x):
    return x / (1 + np.exp(-x))


def gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def relu(x):
    return np.maximum(x, 0)


ACTS = {"silu": silu, "gelu": gelu, "gelu_new": gelu_tanh, "gelu_pytorch_tanh": gelu_tanh, "relu": relu}


def linear(p, name, x, n, bias=False):
    y = x @ p(name + ".weight", n, x.shape[-1]).T
    return y + p(name + ".bias", n) if bias else y


def layer_norm(p, name, x, eps, bias=True):
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)
    x = x * p(name + ".weight", x.shape[-1])
    return x + p(name + ".bias", x.shape[-1]) if bias else x


def rms(p, name, x, eps, one=0):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * (one + p(name + ".weight", x.shape[-1]))


def heads(x, n):  # [T, n d] -> [n, T, d]
    return x.reshape(x.shape[0], n, -1).transpose(1, 0, 2)


def merge(x):
    return x.transpose(1, 0, 2).reshape(x.shape[1], -1)


def attend(q, k, v, scale=None, cap=None, window=None, bias=None, sink=None):
    """q [H, T, d], k and v [G, T, d]: query head h reads key head h G / H. sink [H]: a term of each head's divisor."""
    n = q.shape[1]
    k, v = (np.repeat(x, q.shape[0] // x.shape[0], axis=0) for x in (k, v))
    s = q @ k.transpose(0, 2, 1) * (scale or 1 / math.sqrt(q.shape[-1]))
    if cap:
        s = cap * np.tanh(s / cap)
    if bias is not None:
        s = s + bias
    i, j = np.arange(n)[:, None], np.arange(n)[None]
    seen = j <= i if not window else (j <= i) & (j > i - window)
    s = np.where(seen, s, -np.inf)
    most = s.max(-1, keepdims=True)
    s = np.exp(s - most)
    rest = 0 if sink is None else np.exp(sink[:, None, None] - most)
    return s / (s.sum(-1, keepdims=True) + rest) @ v


def plain(width, base):
    return base ** (-np.arange(0, width, 2) / width)


def rope(x, freq, scale=1.0):  # halves: (i, i + d/2); x [H, T, d]
    angle = np.arange(x.shape[1])[:, None] * freq
    c, s = np.cos(angle) * scale, np.sin(angle) * scale
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate([a * c - b * s, b * c + a * s], -1)


def rope_pairs(x, freq):  # interleaved: (2i, 2i + 1)
    angle = np.arange(x.shape[1])[:, None] * freq
    c, s = np.cos(angle), np.sin(angle)
    y = np.empty_like(x)
    y[..., 0::2] = x[..., 0::2] * c - x[..., 1::2] * s
    y[..., 1::2] = x[..., 1::2] * c + x[..., 0::2] * s
    return y


def part(x, width, turn):  # only the first elements of a head
    return np.concatenate([turn(x[..., :width]), x[..., width:]], -1)


def alibi(n_heads, n, most=8):
    """[H, 1, T]: slopes as in the authors' code, times the position of the key."""
    def slopes(h):
        if math.log2(h).is_integer():
            first = 2 ** (-most / h)
            return [first ** (i + 1) for i in range(h)]
        near = 2 ** math.floor(math.log2(h))
        return slopes(near) + slopes(2 * near)[0::2][:h - near]
    return np.array(slopes(n_heads))[:, None, None] * np.arange(n)[None, None]


# ---- long contexts ----

def scaled(c, width, base):
    """(frequencies, factor of cos and sin)"""
    freq, r = plain(width, base), c.get("rope_scaling")
    if not r:
        return freq, 1.0
    kind = r.get("rope_type", r.get("type"))
    first = r.get("original_max_position_embeddings", c.get("original_max_position_embeddings"))
    if kind == "linear":
        return freq / r["factor"], 1.0
    if kind == "dynamic":  # up to max_position_embeddings nothing changes
        return freq, 1.0
    if kind == "llama3":
        new = []
        for f in freq:
            length = 2 * math.pi / f
            if length < first / r["high_freq_factor"]:
                new.append(f)
            elif length > first / r["low_freq_factor"]:
                new.append(f / r["factor"])
            else:
                s = (first / length - r["low_freq_factor"]) / (r["high_freq_factor"] - r["low_freq_factor"])
                new.append((1 - s) * f / r["factor"] + s * f)
        return np.array(new), 1.0
    if kind == "yarn":
        def dim(turns):
            return width * math.log(first / (turns * 2 * math.pi)) / (2 * math.log(base))
        low, high = dim(r.get("beta_fast", 32)), dim(r.get("beta_slow", 1))
        if r.get("truncate", True):
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, width - 1)
        ramp = np.clip((np.arange(width // 2) - low) / (high - low if high > low else 0.001), 0, 1)
        return freq / r["factor"] * ramp + freq * (1 - ramp), 0.1 * math.log(r["factor"]) + 1
    if kind == "longrope":
        factor = c["max_position_embeddings"] / first
        used = "long_factor" if c.get("context", 0) > first else "short_factor"
        return freq / np.array(r[used]), math.sqrt(1 + math.log(factor) / math.log(first))
    raise ValueError(kind)


# ---- families: tokens -> logits ----

def llama_like(p, c, tokens, *, qkv_bias=False, o_bias=False, qk_norm=None, window=lambda l: None, qkv=None, gate_up=None,
               turn=None, mlp_bias=False, post=False, pre="model."):
    """Llama 2, sections 2.2; Mistral; Qwen 2 and 3; Phi-3 (matrices in one); OLMo 2 (norms of the updates)."""
    d, H = c["hidden_size"], c["num_attention_heads"]
    G, eps, ff = c.get("num_key_value_heads", H), c["rms_norm_eps"], c["intermediate_size"]
    w = c.get("head_dim", d // H)
    if not turn:
        freq, factor = scaled(c, w, c.get("rope_theta", 10000.0))

        def turn(x):
            return rope(x, freq, factor)
    table = p(pre + "embed_tokens.weight", c["vocab_size"], d)
    x = table[tokens]
    for l in range(c["num_hidden_layers"]):
        h = f"{pre}layers.{l}."

        def attention(y):
            a = h + "self_attn."
            if qkv:
                z = linear(p, a + qkv, y, (H + 2 * G) * w)
                q, k, v = z[:, :H * w], z[:, H * w:(H + G) * w], z[:, (H + G) * w:]
            else:
                q, k, v = (linear(p, a + n + "_proj", y, m * w, qkv_bias) for n, m in (("q", H), ("k", G), ("v", G)))
            if qk_norm == "whole":
                q, k = rms(p, a + "q_norm", q, eps), rms(p, a + "k_norm", k, eps)
            q, k, v = heads(q, H), heads(k, G), heads(v, G)
            if qk_norm == "head":
                q, k = rms(p, a + "q_norm", q, eps), rms(p, a + "k_norm", k, eps)
            return linear(p, a + "o_proj", merge(attend(turn(q), turn(k), v, window=window(l))), d, o_bias)

        def mlp(y):
            if gate_up:
                z = linear(p, h + "mlp." + gate_up, y, 2 * ff)
                g, u = z[:, :ff], z[:, ff:]
            else:
                g, u = (linear(p, h + f"mlp.{n}_proj", y, ff, mlp_bias) for n in ("gate", "up"))
            return linear(p, h + "mlp.down_proj", silu(g) * u, d, mlp_bias)
        if post:
            x = x + rms(p, h + "post_attention_layernorm", attention(x), eps)
            x = x + rms(p, h + "post_feedforward_layernorm", mlp(x), eps)
        else:
            x = x + attention(rms(p, h + "input_layernorm", x, eps))
            x = x + mlp(rms(p, h + "post_attention_layernorm", x, eps))
    x = rms(p, pre + "norm", x, eps)
    return x @ (table if c.get("tie_word_embeddings") else p("lm_head.weight", c["vocab_size"], d)).T


def llama(p, c, t):
    return llama_like(p, c, t, qkv_bias=c.get("attention_bias", False), o_bias=c.get("attention_bias", False),
                      mlp_bias=c.get("mlp_bias", False))


def mistral(p, c, t):
    return llama_like(p, c, t, window=lambda l: c["sliding_window"])


def qwen2(p, c, t):
    def window(l):
        return c["sliding_window"] if c.get("use_sliding_window") and l >= c["max_window_layers"] else None
    return llama_like(p, c, t, qkv_bias=True, window=window)


def qwen3(p, c, t):
    return llama_like(p, c, t, qk_norm="head")


def phi3(p, c, t):
    w = int(c["hidden_size"] // c["num_attention_heads"] * c.get("partial_rotary_factor", 1.0))
    freq, factor = scaled(c, w, c["rope_theta"])
    return llama_like(p, c, t, qkv="qkv_proj", gate_up="gate_up_proj", window=lambda l: c.get("sliding_window"),
                      turn=lambda x: part(x, w, lambda y: rope(y, freq, factor)))


def olmo2(p, c, t):
    return llama_like(p, c, t, qk_norm="whole", post=True)


def gemma(p, c, tokens):
    """Gemma reports 1 to 3: `kind` 1, 2, 3"""
    kind = {"gemma": 1, "gemma2": 2, "gemma3_text": 3}[c["model_type"]]
    d, H, G, w = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    eps, ff = c["rms_norm_eps"], c["intermediate_size"]
    scale = c["query_pre_attn_scalar"] ** -0.5 if kind > 1 else None
    table = p("model.embed_tokens.weight", c["vocab_size"], d)
    x = table[tokens] * math.sqrt(d)
    for l in range(c["num_hidden_layers"]):
        h, local = f"model.layers.{l}.", False
        if kind == 2:
            local = l % 2 == 0
        if kind == 3:
            local = (l + 1) % c["sliding_window_pattern"] != 0 if "layer_types" not in c else \
                c["layer_types"][l] == "sliding_attention"
        if "rope_parameters" in c:  # the same keys, a section for each kind of layer
            r = c["rope_parameters"]["sliding_attention" if local else "full_attention"]
            freq, factor = scaled({"rope_scaling": r} if r["rope_type"] != "default" else {}, w, r["rope_theta"])
        else:
            freq, factor = scaled(c, w, c.get("rope_theta", 10000.0))
            if kind == 3 and local:
                freq, factor = plain(w, c["rope_local_base_freq"]), 1.0
        y = rms(p, h + "input_layernorm", x, eps, 1)
        q, k, v = (heads(linear(p, h + f"self_attn.{n}_proj", y, m * w), m) for n, m in (("q", H), ("k", G), ("v", G)))
        if kind == 3:
            q, k = rms(p, h + "self_attn.q_norm", q, eps, 1), rms(p, h + "self_attn.k_norm", k, eps, 1)
        y = attend(rope(q, freq, factor), rope(k, freq, factor), v, scale, c.get("attn_logit_softcapping"),
                   c["sliding_window"] if local else None)
        y = linear(p, h + "self_attn.o_proj", merge(y), d)
        if kind == 1:
            x = x + y
            y = rms(p, h + "post_attention_layernorm", x, eps, 1)
        else:
            x = x + rms(p, h + "post_attention_layernorm", y, eps, 1)
            y = rms(p, h + "pre_feedforward_layernorm", x, eps, 1)
        y = gelu_tanh(linear(p, h + "mlp.gate_proj", y, ff)) * linear(p, h + "mlp.up_proj", y, ff)
        y = linear(p, h + "mlp.down_proj", y, d)
        x = x + (y if kind == 1 else rms(p, h + "post_feedforward_layernorm", y, eps, 1))
    logits = rms(p, "model.norm", x, eps, 1) @ table.T
    cap = c.get("final_logit_softcapping")
    return cap * np.tanh(logits / cap) if cap else logits


def phi(p, c, tokens):
    d, H, eps = c["hidden_size"], c["num_attention_heads"], c["layer_norm_eps"]
    r = c.get("rope_parameters", c)
    w = int(r["partial_rotary_factor"] * (d // H))
    freq = plain(w, r["rope_theta"])
    x = p("model.embed_tokens.weight", c["vocab_size"], d)[tokens]
    for l in range(c["num_hidden_layers"]):
        h = f"model.layers.{l}."
        n = layer_norm(p, h + "input_layernorm", x, eps)
        q, k, v = (heads(linear(p, h + f"self_attn.{i}_proj", n, d, True), H) for i in "qkv")
        q, k = (part(z, w, lambda y: rope(y, freq)) for z in (q, k))
        a = linear(p, h + "self_attn.dense", merge(attend(q, k, v)), d, True)
        m = linear(p, h + "mlp.fc2", gelu_tanh(linear(p, h + "mlp.fc1", n, c["intermediate_size"], True)), d, True)
        x = x + a + m
    return linear(p, "lm_head", layer_norm(p, "model.final_layernorm", x, eps), c["vocab_size"], True)


def gpt_neox(p, c, tokens):
    d, H, eps = c["hidden_size"], c["num_attention_heads"], c["layer_norm_eps"]
    w = int(c["rotary_pct"] * (d // H))
    freq = plain(w, c["rotary_emb_base"])
    x = p("gpt_neox.embed_in.weight", c["vocab_size"], d)[tokens]
    for l in range(c["num_hidden_layers"]):
        h = f"gpt_neox.layers.{l}."
        z = linear(p, h + "attention.query_key_value", layer_norm(p, h + "input_layernorm", x, eps), 3 * d, True)
        q, k, v = z.reshape(len(tokens), H, 3, d // H).transpose(2, 1, 0, 3)
        q, k = (part(y, w, lambda y: rope(y, freq)) for y in (q, k))
        a = linear(p, h + "attention.dense", merge(attend(q, k, v)), d, True)
        y = layer_norm(p, h + "post_attention_layernorm", x if c["use_parallel_residual"] else x + a, eps)
        m = linear(p, h + "mlp.dense_h_to_4h", y, c["intermediate_size"], True)
        x = x + a + linear(p, h + "mlp.dense_4h_to_h", ACTS[c["hidden_act"]](m), d, True)
    return layer_norm(p, "gpt_neox.final_layer_norm", x, eps) @ p("embed_out.weight", c["vocab_size"], d).T


def gptj(p, c, tokens):
    d, H, eps, w = c["n_embd"], c["n_head"], c["layer_norm_epsilon"], c["rotary_dim"]
    freq = plain(w, 10000.0)
    x = p("transformer.wte.weight", c["vocab_size"], d)[tokens]
    for l in range(c["n_layer"]):
        h = f"transformer.h.{l}."
        n = layer_norm(p, h + "ln_1", x, eps)
        q, k, v = (heads(linear(p, h + f"attn.{i}_proj", n, d), H) for i in "qkv")
        q, k = (part(z, w, lambda y: rope_pairs(y, freq)) for z in (q, k))
        a = linear(p, h + "attn.out_proj", merge(attend(q, k, v)), d)
        m = gelu_tanh(linear(p, h + "mlp.fc_in", n, c["n_inner"] or 4 * d, True))
        x = x + a + linear(p, h + "mlp.fc_out", m, d, True)
    return linear(p, "lm_head", layer_norm(p, "transformer.ln_f", x, eps), c["vocab_size"], True)


def opt(p, c, tokens):
    d, H, e, pre = c["hidden_size"], c["num_attention_heads"], c["word_embed_proj_dim"], "model.decoder."
    table, first = p(pre + "embed_tokens.weight", c["vocab_size"], e), c["do_layer_norm_before"]
    places = p(pre + "embed_positions.weight", c["max_position_embeddings"] + 2, d)
    x = table[tokens]
    if e != d:
        x = linear(p, pre + "project_in", x, d)
    x = x + places[np.arange(len(tokens)) + 2]

    def sublayer(x, name, f):
        if first:
            return x + f(layer_norm(p, name, x, 1e-5))
        return layer_norm(p, name, x + f(x), 1e-5)
    for l in range(c["num_hidden_layers"]):
        h = f"{pre}layers.{l}."

        def attention(y):
            q, k, v = (heads(linear(p, h + f"self_attn.{i}_proj", y, d, True), H) for i in "qkv")
            return linear(p, h + "self_attn.out_proj", merge(attend(q, k, v)), d, True)
        x = sublayer(x, h + "self_attn_layer_norm", attention)
        x = sublayer(x, h + "final_layer_norm", lambda y: linear(
            p, h + "fc2", relu(linear(p, h + "fc1", y, c["ffn_dim"], True)), d, True))
    if first:
        x = layer_norm(p, pre + "final_layer_norm", x, 1e-5)
    if e != d:
        x = linear(p, pre + "project_out", x, e)
    return x @ table.T


def bloom(p, c, tokens):
    d, H, eps, pre = c["n_embed"], c["num_attention_heads"], c["layer_norm_epsilon"], ""
    table = p(pre + "word_embeddings.weight", c["vocab_size"], d)
    x = layer_norm(p, pre + "word_embeddings_layernorm", table[tokens], eps)
    for l in range(c["n_layer"]):
        h = f"{pre}h.{l}."
        z = linear(p, h + "self_attention.query_key_value", layer_norm(p, h + "input_layernorm", x, eps), 3 * d, True)
        q, k, v = z.reshape(len(tokens), H, 3, d // H).transpose(2, 1, 0, 3)
        y = merge(attend(q, k, v, bias=alibi(H, len(tokens))))
        x = x + linear(p, h + "self_attention.dense", y, d, True)
        y = linear(p, h + "mlp.dense_h_to_4h", layer_norm(p, h + "post_attention_layernorm", x, eps), 4 * d, True)
        x = x + linear(p, h + "mlp.dense_4h_to_h", gelu_tanh(y), d, True)
    return layer_norm(p, pre + "ln_f", x, eps) @ table.T


def falcon(p, c, tokens):
    d, H, eps, bias, n = c["hidden_size"], c["num_attention_heads"], c["layer_norm_epsilon"], c["bias"], len(tokens)
    w, new = d // H, c["new_decoder_architecture"]
    table = p("transformer.word_embeddings.weight", c["vocab_size"], d)
    x = table[tokens]
    for l in range(c["num_hidden_layers"]):
        h = f"transformer.h.{l}."
        if new:
            a, m = layer_norm(p, h + "ln_attn", x, eps), layer_norm(p, h + "ln_mlp", x, eps)
            G = c["num_kv_heads"]
            z = linear(p, h + "self_attention.query_key_value", a, (H + 2 * G) * w, bias)
            z = z.reshape(n, G, H // G + 2, w)
            q, k, v = z[:, :, :-2].reshape(n, H, w), z[:, :, -2], z[:, :, -1]
        else:
            a = m = layer_norm(p, h + "input_layernorm", x, eps)
            if c["multi_query"]:
                z = linear(p, h + "self_attention.query_key_value", a, (H + 2) * w, bias).reshape(n, H + 2, w)
                q, k, v = z[:, :H], z[:, H:H + 1], z[:, H + 1:]
            else:
                z = linear(p, h + "self_attention.query_key_value", a, 3 * d, bias).reshape(n, H, 3, w)
                q, k, v = z[:, :, 0], z[:, :, 1], z[:, :, 2]
        q, k, v = (y.transpose(1, 0, 2) for y in (q, k, v))
        if c["alibi"]:
            y = attend(q, k, v, bias=alibi(H, n) / math.sqrt(w))
        else:
            freq = plain(w, c["rope_theta"])
            y = attend(rope(q, freq), rope(k, freq), v)
        y = linear(p, h + "self_attention.dense", merge(y), d, bias)
        if not new and not c["parallel_attn"]:
            x = x + y
            y, m = 0, layer_norm(p, h + "post_attention_layernorm", x, eps)
        z = gelu(linear(p, h + "mlp.dense_h_to_4h", m, 4 * d, bias))
        x = x + y + linear(p, h + "mlp.dense_4h_to_h", z, d, bias)
    return layer_norm(p, "transformer.ln_f", x, eps) @ table.T


def mpt(p, c, tokens):
    d, H, a = c["d_model"], c["n_heads"], c["attn_config"]
    table, n = p("transformer.wte.weight", c["vocab_size"], d), len(tokens)
    x = table[tokens]
    slopes = 2.0 ** -(np.arange(1, 2 ** math.ceil(math.log2(H)) + 1) * a["alibi_bias_max"] / 2 ** math.ceil(math.log2(H)))
    if len(slopes) != H:
        slopes = np.concatenate([slopes[1::2], slopes[::2]])[:H]
    bias = slopes[:, None, None] * (np.arange(n) - n + 1)[None, None]
    for l in range(c["n_layers"]):
        h = f"transformer.blocks.{l}."
        z = linear(p, h + "attn.Wqkv", layer_norm(p, h + "norm_1", x, 1e-5, False), 3 * d)
        if a["clip_qkv"]:
            z = np.clip(z, -a["clip_qkv"], a["clip_qkv"])
        q, k, v = (heads(y, H) for y in np.split(z, 3, -1))
        x = x + linear(p, h + "attn.out_proj", merge(attend(q, k, v, a["softmax_scale"], bias=bias)), d)
        y = gelu(linear(p, h + "ffn.up_proj", layer_norm(p, h + "norm_2", x, 1e-5, False), c["expansion_ratio"] * d))
        x = x + linear(p, h + "ffn.down_proj", y, d)
    return layer_norm(p, "transformer.norm_f", x, 1e-5, False) @ table.T


def other_blocks(p, c, tokens):
    """StableLM, StarCoder 2, Command R: layer norms around Llama's parts"""
    kind, d, H, G, ff = (c[k] for k in ("model_type", "hidden_size", "num_attention_heads", "num_key_value_heads",
                                        "intermediate_size"))
    w, eps = d // H, c.get("layer_norm_eps", c.get("norm_epsilon"))
    qkv, all_bias, gain_only = c.get("use_qkv_bias", False), c.get("use_bias", False), kind == "cohere"
    table = p("model.embed_tokens.weight", c["vocab_size"], d)
    x = table[tokens]
    r = int(w * c.get("partial_rotary_factor", 1))
    freq = plain(r, c["rope_theta"])

    def norm(name, y):
        return layer_norm(p, name, y, eps, not gain_only)

    def turn(y):
        return part(y, r, lambda z: rope_pairs(z, freq) if kind == "cohere" else rope(z, freq))
    for l in range(c["num_hidden_layers"]):
        h = f"model.layers.{l}."
        y = norm(h + "input_layernorm", x)
        q, k, v = (heads(linear(p, h + f"self_attn.{i}_proj", y, m * w, qkv or all_bias), m)
                   for i, m in (("q", H), ("k", G), ("v", G)))
        a = merge(attend(turn(q), turn(k), v, window=c.get("sliding_window")))
        a = linear(p, h + "self_attn.o_proj", a, d, all_bias)
        if kind != "cohere" and not c.get("use_parallel_residual"):
            x = x + a
            a, y = 0, norm(h + "post_attention_layernorm", x)
        if kind == "starcoder2":
            m = linear(p, h + "mlp.c_proj", gelu_tanh(linear(p, h + "mlp.c_fc", y, ff, True)), d, True)
        else:
            m = silu(linear(p, h + "mlp.gate_proj", y, ff)) * linear(p, h + "mlp.up_proj", y, ff)
            m = linear(p, h + "mlp.down_proj", m, d)
        x = x + a + m
    x = norm("model.norm", x)
    return x @ (table if c["tie_word_embeddings"] else p("lm_head.weight", c["vocab_size"], d)).T * c.get("logit_scale", 1)


def granite(p, c, tokens):
    d, H, G, eps, ff = (c[k] for k in ("hidden_size", "num_attention_heads", "num_key_value_heads", "rms_norm_eps",
                                       "intermediate_size"))
    table, freq = p("model.embed_tokens.weight", c["vocab_size"], d), plain(d // H, c["rope_theta"])
    x = table[tokens] * c["embedding_multiplier"]
    for l in range(c["num_hidden_layers"]):
        h = f"model.layers.{l}."
        y = rms(p, h + "input_layernorm", x, eps)
        q, k, v = (heads(linear(p, h + f"self_attn.{i}_proj", y, m * (d // H)), m) for i, m in (("q", H), ("k", G), ("v", G)))
        y = merge(attend(rope(q, freq), rope(k, freq), v, c["attention_multiplier"]))
        x = x + linear(p, h + "self_attn.o_proj", y, d) * c["residual_multiplier"]
        y = rms(p, h + "post_attention_layernorm", x, eps)
        y = silu(linear(p, h + "mlp.gate_proj", y, ff)) * linear(p, h + "mlp.up_proj", y, ff)
        x = x + linear(p, h + "mlp.down_proj", y, d) * c["residual_multiplier"]
    return rms(p, "model.norm", x, eps) @ table.T / c["logits_scaling"]


# ---- encoders: tokens, types -> hidden states; heads ----

BERT_NAMES = {"layer": "encoder.layer.%d.", "q": "attention.self.query", "k": "attention.self.key",
              "v": "attention.self.value", "o": "attention.output.dense", "n1": "attention.output.LayerNorm",
              "up": "intermediate.dense", "down": "output.dense", "n2": "output.LayerNorm"}
ROBERTA_HEAD = ("lm_head.dense", "lm_head.layer_norm", "lm_head.bias", "lm_head.decoder.weight")
# prefix, names of a layer, masked-LM head, classifier of texts, and its activation
ENCODERS = {
    "bert": ("bert.", BERT_NAMES, ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm",
             "cls.predictions.bias", "cls.predictions.decoder.weight"), ("bert.pooler.dense", "classifier"), np.tanh),
    "roberta": ("roberta.", BERT_NAMES, ROBERTA_HEAD, ("classifier.dense", "classifier.out_proj"), np.tanh),
    "xlm-roberta": ("roberta.", BERT_NAMES, ROBERTA_HEAD, ("classifier.dense", "classifier.out_proj"), np.tanh),
    "electra": ("electra.", BERT_NAMES, ("generator_predictions.dense", "generator_predictions.LayerNorm",
                "generator_lm_head.bias", "generator_lm_head.weight"), ("classifier.dense", "classifier.out_proj"), gelu),
    "mpnet": ("mpnet.", {**BERT_NAMES, "q": "attention.attn.q", "k": "attention.attn.k", "v": "attention.attn.v",
              "o": "attention.attn.o", "n1": "attention.LayerNorm"}, ROBERTA_HEAD,
              ("classifier.dense", "classifier.out_proj"), np.tanh),
    "distilbert": ("distilbert.", {"layer": "transformer.layer.%d.", "q": "attention.q_lin", "k": "attention.k_lin",
                   "v": "attention.v_lin", "o": "attention.out_lin", "n1": "sa_layer_norm", "up": "ffn.lin1",
                   "down": "ffn.lin2", "n2": "output_layer_norm"},
                   ("vocab_transform", "vocab_layer_norm", "vocab_projector.bias", "vocab_projector.weight"),
                   ("pre_classifier", "classifier"), relu),
    "albert": ("albert.", {"layer": "encoder.albert_layer_groups.%d.albert_layers.", "q": "attention.query",
               "k": "attention.key", "v": "attention.value", "o": "attention.dense", "n1": "attention.LayerNorm",
               "up": "ffn", "down": "ffn_output", "n2": "full_layer_layer_norm"},
               ("predictions.dense", "predictions.LayerNorm", "predictions.bias", "predictions.decoder.weight"),
               ("albert.pooler", "classifier"), np.tanh),
}


def distance_bucket(ahead, buckets):
    """T5's and MPNet's relative positions: of a key so far ahead of the query"""
    side, far = buckets // 2, abs(ahead)
    exact = side // 2
    if far >= exact:
        far = min(side - 1, exact + int(math.log(far / exact) / math.log(128 / exact) * (side - exact) + 1e-9))
    return far + (side if ahead > 0 else 0)


def encoder_hidden(p, c, tokens, types):
    """Devlin et al. 2019; Liu et al. 2019; Sanh et al. 2019; Lan et al. 2020; Clark et al. 2020"""
    kind, d = c["model_type"], c.get("hidden_size", c.get("dim"))
    pre, names = ENCODERS[kind][:2]
    H, L = c.get("num_attention_heads", c.get("n_heads")), c.get("num_hidden_layers", c.get("n_layers"))
    ff, eps, act = c.get("intermediate_size", c.get("hidden_dim")), c.get("layer_norm_eps", 1e-12), \
        ACTS[c.get("hidden_act", c.get("activation"))]
    e, n = c.get("embedding_size", d), len(tokens)
    at = np.arange(n) + (c["pad_token_id"] + 1 if kind in ("roberta", "xlm-roberta") else 2 if kind == "mpnet" else 0)
    x = p(pre + "embeddings.word_embeddings.weight", c["vocab_size"], e)[tokens]
    x = x + p(pre + "embeddings.position_embeddings.weight", c["max_position_embeddings"], e)[at]
    if kind not in ("distilbert", "mpnet"):
        x = x + p(pre + "embeddings.token_type_embeddings.weight", c["type_vocab_size"], e)[types]
    x = layer_norm(p, pre + "embeddings.LayerNorm", x, eps)
    if kind == "electra" and e != d:
        x = linear(p, pre + "embeddings_project", x, d, True)
    if kind == "albert":
        x = linear(p, pre + "encoder.embedding_hidden_mapping_in", x, d, True)
    blocks = [names["layer"] % l for l in range(L)]
    if kind == "albert":
        groups = c["num_hidden_groups"]
        blocks = [names["layer"] % int(l / (L / groups)) + f"{i}." for l in range(L) for i in range(c["inner_group_num"])]
    for h in blocks:
        q, k, v = (heads(linear(p, pre + h + names[i], x, d, True), H) for i in "qkv")
        s = q @ k.transpose(0, 2, 1) / math.sqrt(d // H)
        if kind == "mpnet":
            rows, buckets = c["relative_attention_num_buckets"], np.arange(n)[None] - np.arange(n)[:, None]
            buckets = np.vectorize(lambda ahead: distance_bucket(ahead, rows))(buckets)
            s = s + p(pre + "encoder.relative_attention_bias.weight", rows, H)[buckets].transpose(2, 0, 1)
        s = np.exp(s - s.max(-1, keepdims=True))
        y = linear(p, pre + h + names["o"], merge(s / s.sum(-1, keepdims=True) @ v), d, True)
        x = layer_norm(p, pre + h + names["n1"], x + y, eps)
        y = linear(p, pre + h + names["down"], act(linear(p, pre + h + names["up"], x, ff, True)), d, True)
        x = layer_norm(p, pre + h + names["n2"], x + y, eps)
    return x


def encoder_logits(p, c, x, head):
    pre, _, (dense, norm, bias, table), (pool, out), pool_act = ENCODERS[c["model_type"]]
    d, eps = x.shape[1], c.get("layer_norm_eps", 1e-12)
    if head == "tokens":
        return linear(p, "classifier", x, 3, True)
    if head == "classes":
        return linear(p, out, pool_act(linear(p, pool, x[:1], d, True)), 3, True)
    e = c.get("embedding_size", d)
    act = gelu if c["model_type"] in ("roberta", "xlm-roberta", "electra", "mpnet") else ACTS[c.get("hidden_act", c.get("activation"))]
    x = layer_norm(p, norm, act(linear(p, dense, x, e, True)), eps)
    if c.get("tie_word_embeddings", True):
        table = pre + "embeddings.word_embeddings.weight"
    return x @ p(table, c["vocab_size"], e).T + p(bias, c["vocab_size"])


def encoder_reference(c, head, hidden_of=encoder_hidden, logits_of=encoder_logits):
    """Two texts, the second shorter: padded positions are 0 here and are not compared."""
    p, lengths = Params(), [T, T - 5]
    tokens = [(5 * t + t * t) % c["vocab_size"] for t in range(T)]
    types = [int(t > 6 and c.get("type_vocab_size", 2) > 1) for t in range(T)]
    logits, embedding, hidden = [], [], []
    for n in lengths:
        x = hidden_of(p, c, np.array(tokens[:n]), np.array(types[:n]))
        y = logits_of(p, c, x, head)
        logits.append(np.pad(y, ((0, 0 if head == "classes" else T - n), (0, 0))))
        hidden.append(np.pad(x, ((0, T - n), (0, 0))))
        embedding.append(x.mean(0) / np.sqrt((x.mean(0) ** 2).sum()))
    return p, {"tokens": tokens, "types": types, "lengths": lengths}, \
        {"logits": np.array(logits), "hidden": np.array(hidden), "embedding": np.array(embedding)}


# ---- cases ----

SIZES = {"vocab_size": 23, "max_position_embeddings": 32, "hidden_size": 16, "num_hidden_layers": 2,
         "num_attention_heads": 4}
LLAMA = {**SIZES, "intermediate_size": 20, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
         "hidden_act": "silu"}
GEMMA = {**LLAMA, "head_dim": 6, "hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 1e-6}
del GEMMA["hidden_act"]
PLAIN = {k: v for k, v in LLAMA.items() if k != "rms_norm_eps"}

CASES = {
    "llama": (llama, {**LLAMA, "model_type": "llama", "head_dim": 8, "attention_bias": True, "mlp_bias": True}),
    "llama_llama3": (llama, {**LLAMA, "model_type": "llama", "tie_word_embeddings": True, "head_dim": 8, "rope_theta": 500.0,
                             "rope_scaling": {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0,
                                              "high_freq_factor": 4.0, "original_max_position_embeddings": 16}}),
    "llama_linear": (llama, {**LLAMA, "model_type": "llama", "rope_scaling": {"type": "linear", "factor": 2.0}}),
    "llama_dynamic": (llama, {**LLAMA, "model_type": "llama", "rope_scaling": {"type": "dynamic", "factor": 2.0}}),
    "mistral": (mistral, {**LLAMA, "model_type": "mistral", "sliding_window": 4}),
    "qwen2": (qwen2, {**LLAMA, "model_type": "qwen2", "tie_word_embeddings": True, "use_sliding_window": False,
                      "sliding_window": 4, "max_window_layers": 1}),
    "qwen2_window": (qwen2, {**LLAMA, "model_type": "qwen2", "use_sliding_window": True, "sliding_window": 4,
                             "max_window_layers": 1}),
    "qwen2_yarn": (qwen2, {**LLAMA, "model_type": "qwen2", "head_dim": 16, "rope_scaling":
                           {"type": "yarn", "factor": 4.0, "beta_fast": 4.0, "original_max_position_embeddings": 8}}),
    "qwen3": (qwen3, {**LLAMA, "model_type": "qwen3", "head_dim": 8, "attention_bias": False}),
    "gemma": (gemma, {**GEMMA, "model_type": "gemma", "hidden_act": "gelu"}),
    "gemma2": (gemma, {**GEMMA, "model_type": "gemma2", "query_pre_attn_scalar": 20, "attn_logit_softcapping": 2.0,
                       "final_logit_softcapping": 3.0, "sliding_window": 4}),
    "gemma3": (gemma, {**GEMMA, "model_type": "gemma3_text", "query_pre_attn_scalar": 20, "sliding_window": 4,
                       "num_hidden_layers": 3, "sliding_window_pattern": 3, "rope_theta": 1000.0,
                       "rope_local_base_freq": 100.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
    "gemma3_types": (gemma, {**GEMMA, "model_type": "gemma3_text", "query_pre_attn_scalar": 20, "sliding_window": 4,
                             "layer_types": ["full_attention", "sliding_attention"], "rope_theta": 1000.0,
                             "rope_local_base_freq": 100.0}),
    "phi": (phi, {**SIZES, "model_type": "phi", "hidden_size": 32, "intermediate_size": 24, "layer_norm_eps": 1e-5,
                  "partial_rotary_factor": 0.5, "rope_theta": 10000.0, "hidden_act": "gelu_new"}),
    "phi_parameters": (phi, {**SIZES, "model_type": "phi", "hidden_size": 32, "intermediate_size": 24, "layer_norm_eps": 1e-5,
                             "hidden_act": "gelu_new", "rope_parameters": {"rope_type": "default", "rope_theta": 500.0,
                                                                           "partial_rotary_factor": 0.25}}),
    "gemma3_parameters": (gemma, {**{k: v for k, v in GEMMA.items() if k != "rope_theta"}, "model_type": "gemma3_text",
                                  "query_pre_attn_scalar": 20, "sliding_window": 4,
                                  "layer_types": ["sliding_attention", "full_attention"], "rope_parameters":
                                  {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000.0},
                                   "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}}),
    "phi3_longrope_long": (phi3, {**LLAMA, "model_type": "phi3", "hidden_size": 32, "partial_rotary_factor": 0.75,
                                  "original_max_position_embeddings": 8, "rope_scaling":
                                  {"type": "longrope", "short_factor": [1.0, 1.5, 2.0], "long_factor": [2.0, 4.0, 8.0]}}, 32),
    "phi3": (phi3, {**LLAMA, "model_type": "phi3", "sliding_window": 4}),
    "phi3_longrope": (phi3, {**LLAMA, "model_type": "phi3", "hidden_size": 32, "partial_rotary_factor": 0.75,
                             "original_max_position_embeddings": 20, "rope_scaling":
                             {"type": "longrope", "short_factor": [1.0, 1.5, 2.0], "long_factor": [2.0, 4.0, 8.0]}}),
    "gpt_neox": (gpt_neox, {**SIZES, "model_type": "gpt_neox", "hidden_size": 32, "intermediate_size": 24,
                            "layer_norm_eps": 1e-5, "rotary_pct": 0.25, "rotary_emb_base": 10000, "hidden_act": "gelu",
                            "use_parallel_residual": True}),
    "gpt_neox_serial": (gpt_neox, {**SIZES, "model_type": "gpt_neox", "intermediate_size": 24, "layer_norm_eps": 1e-5,
                                   "rotary_pct": 1.0, "rotary_emb_base": 10000, "hidden_act": "gelu_new",
                                   "use_parallel_residual": False}),
    "gptj": (gptj, {"model_type": "gptj", "vocab_size": 23, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 4,
                    "n_inner": None, "rotary_dim": 4, "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new",
                    "rotary": True, "tie_word_embeddings": False}),
    "opt": (opt, {**SIZES, "model_type": "opt", "ffn_dim": 20, "word_embed_proj_dim": 16, "do_layer_norm_before": True,
                  "activation_function": "relu", "_remove_final_layer_norm": False}),
    "opt_post": (opt, {**SIZES, "model_type": "opt", "ffn_dim": 20, "word_embed_proj_dim": 8, "do_layer_norm_before": False,
                       "activation_function": "relu"}),
    "bloom": (bloom, {"model_type": "bloom", "vocab_size": 23, "n_embed": 24, "n_layer": 2, "num_attention_heads": 6,
                      "n_inner": None, "layer_norm_epsilon": 1e-5, "apply_residual_connection_post_layernorm": False,
                      "offset_alibi": 100, "seq_length": 32}),
    "falcon": (falcon, {**SIZES, "model_type": "falcon", "layer_norm_epsilon": 1e-5, "bias": False, "alibi": False,
                        "new_decoder_architecture": False, "multi_query": True, "parallel_attn": True, "rope_theta": 10000.0}),
    "falcon_groups": (falcon, {**SIZES, "model_type": "falcon", "layer_norm_epsilon": 1e-5, "bias": False, "alibi": False,
                               "new_decoder_architecture": True, "multi_query": True, "parallel_attn": True,
                               "num_kv_heads": 2, "rope_theta": 10000.0}),
    "falcon_alibi": (falcon, {**SIZES, "model_type": "falcon", "layer_norm_epsilon": 1e-5, "bias": True, "alibi": True,
                              "new_decoder_architecture": False, "multi_query": False, "parallel_attn": False}),
    "mpt": (mpt, {"model_type": "mpt", "vocab_size": 23, "d_model": 24, "n_layers": 2, "n_heads": 6, "expansion_ratio": 2,
                  "max_seq_len": 32, "no_bias": True, "logit_scale": None, "attn_config":
                  {"alibi": True, "alibi_bias_max": 4, "clip_qkv": 0.8, "softmax_scale": 0.7, "qk_ln": False,
                   "attn_type": "multihead_attention", "prefix_lm": False, "attn_impl": "torch"}}),
    "olmo2": (olmo2, {**LLAMA, "model_type": "olmo2"}),
    "granite": (granite, {**LLAMA, "model_type": "granite", "embedding_multiplier": 3.0, "residual_multiplier": 0.5,
                          "attention_multiplier": 0.4, "logits_scaling": 2.0, "tie_word_embeddings": True}),
    "stablelm": (other_blocks, {**PLAIN, "model_type": "stablelm", "hidden_size": 32, "layer_norm_eps": 1e-5,
                                "partial_rotary_factor": 0.25, "use_qkv_bias": True, "tie_word_embeddings": False}),
    "starcoder2": (other_blocks, {**SIZES, "model_type": "starcoder2", "num_key_value_heads": 2, "intermediate_size": 20,
                                  "norm_epsilon": 1e-5, "rope_theta": 10000.0, "use_bias": True, "sliding_window": 4,
                                  "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": True}),
    "cohere": (other_blocks, {**PLAIN, "model_type": "cohere", "layer_norm_eps": 1e-5, "logit_scale": 0.25,
                              "tie_word_embeddings": True}),
}

BERT = {**SIZES, "intermediate_size": 20, "type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_act": "gelu",
        "pad_token_id": 0, "model_type": "bert"}
ROBERTA = {**BERT, "model_type": "roberta", "type_vocab_size": 1, "layer_norm_eps": 1e-5, "pad_token_id": 1}
ELECTRA = {**BERT, "model_type": "electra", "embedding_size": 8}
DISTILBERT = {"model_type": "distilbert", "vocab_size": 23, "max_position_embeddings": 32, "dim": 16, "hidden_dim": 20,
              "n_layers": 2, "n_heads": 4, "activation": "gelu", "sinusoidal_pos_embds": False, "tie_weights_": True}
ALBERT = {**BERT, "model_type": "albert", "embedding_size": 8, "num_hidden_layers": 4, "num_hidden_groups": 1,
          "inner_group_num": 1, "hidden_act": "gelu_new", "gap_size": 0, "num_memory_blocks": 0, "net_structure_type": 0,
          "down_scale_factor": 1}
MPNET = {**SIZES, "model_type": "mpnet", "intermediate_size": 20, "layer_norm_eps": 1e-5, "hidden_act": "gelu",
         "relative_attention_num_buckets": 16, "pad_token_id": 1}


def labelled(c, kind):
    return {**c, "architectures": [kind], "id2label": {"0": "a", "1": "b", "2": "c"}}


ENCODER_CASES = {
    "bert": (BERT, "masked"),
    "bert_untied": ({**BERT, "tie_word_embeddings": False, "hidden_act": "relu"}, "masked"),
    "bert_classes": (labelled(BERT, "BertForSequenceClassification"), "classes"),
    "bert_tokens": (labelled(BERT, "BertForTokenClassification"), "tokens"),
    "roberta": (ROBERTA, "masked"),
    "roberta_classes": (labelled(ROBERTA, "RobertaForSequenceClassification"), "classes"),
    "roberta_tokens": ({**ROBERTA, "pad_token_id": 3}, "tokens"),
    "xlm_roberta": ({**ROBERTA, "model_type": "xlm-roberta"}, "masked"),
    "mpnet": (MPNET, "masked"),
    "mpnet_classes": ({**MPNET, "relative_attention_num_buckets": 32}, "classes"),
    "distilbert": (DISTILBERT, "masked"),
    "distilbert_classes": (labelled(DISTILBERT, "DistilBertForSequenceClassification"), "classes"),
    "distilbert_tokens": (DISTILBERT, "tokens"),
    "electra": (ELECTRA, "masked"),
    "electra_classes": ({**ELECTRA, "embedding_size": 16, "hidden_act": "relu"}, "classes"),
    "electra_tokens": (ELECTRA, "tokens"),
    "albert": (ALBERT, "masked"),
    "albert_groups": ({**ALBERT, "num_hidden_groups": 2, "inner_group_num": 2}, "masked"),
    "albert_classes": (labelled({**ALBERT, "embedding_size": 16}, "AlbertForSequenceClassification"), "classes"),
    "albert_tokens": (ALBERT, "tokens"),
}


def text(x):
    return json.dumps(x, separators=(",", ":"))


def numbers(x):
    return text([float(f"{v:.7g}") for v in x.ravel()])


def write_encoders(folder, cases, reference):
    for name, (config, head) in cases.items():
        p, inputs, outputs = reference(config, head)
        with open(os.path.join(folder, name + ".json"), "w") as f:
            f.write('{"config":' + text(config) + ',\n"tensors":' + text({k: v.shape for k, v in p.items()}))
            for key, value in inputs.items():
                f.write(f',\n"{key}":' + text(value))
            for key, value in outputs.items():
                f.write(f',\n"{key}":' + numbers(value))
            f.write("}\n")


def write_decoders(cases, folder):
    for name, (model, config, *context) in cases.items():  # context: what --context asks for
        p, seen = Params(), {**config, "context": context[0]} if context else config
        tokens = [(5 * t + t * t) % config["vocab_size"] for t in range(T)]
        logits = model(p, seen, np.array(tokens))
        more = list(tokens)
        for _ in range(MORE):
            last = np.sort(model(p, seen, np.array(more))[-1])
            assert last[-1] - last[-2] > 1e-3, f"{name}: the best two logits are too close"
            more.append(int(model(p, seen, np.array(more))[-1].argmax()))
        with open(os.path.join(folder, name + ".json"), "w") as f:
            f.write('{"config":' + text(config) + ',\n"tensors":' + text({k: v.shape for k, v in p.items()}))
            if context:
                f.write(f',\n"context":{context[0]}')
            f.write(',\n"tokens":' + text(tokens) + ',\n"greedy":' + text(more[T:]))
            f.write(',\n"logits":' + numbers(logits) + "}\n")


if __name__ == "__main__":
    write_encoders(sys.argv[1], ENCODER_CASES, encoder_reference)
    write_decoders(CASES, sys.argv[1])
