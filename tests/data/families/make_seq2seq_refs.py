#!/usr/bin/python3
# make_seq2seq_refs.py DIR: the same as make_refs.py for encoder-decoders, for test_seq2seq: DIR/NAME.json with two sources, the second shorter,
# the encoder's hidden states, tokens of the decoder, logits, and the tokens that greedy decoding of the first source adds.
# Written from the papers (Raffel et al. 2020; Lewis et al. 2020; Liu et al. 2020; Junczys-Dowmunt et al. 2018; Fan et al.
# 2021; Zhang et al. 2020) and Hugging Face's model documentation.
import json
import math
import os
import sys

import numpy as np

from make_refs import ACTS, MORE, Params, heads, layer_norm, linear, merge, numbers, relu, rms, silu, text

S, T = 9, 7
ACTS = {**ACTS, "swish": silu, "gated-gelu": ACTS["gelu_new"], "gated-silu": silu}


def attend(q, k, v, scale, causal, bias=None):
    s = q @ k.transpose(0, 2, 1) * scale
    if bias is not None:
        s = s + bias
    if causal:
        s = np.where(np.arange(k.shape[1])[None] <= np.arange(q.shape[1])[:, None], s, -np.inf)
    s = np.exp(s - s.max(-1, keepdims=True))
    return s / s.sum(-1, keepdims=True) @ v


# ---- BART and its relatives ----

def sinusoids(c, n):
    """All sines, then all cosines."""
    half, pos = c["d_model"] // 2, np.arange(n)[:, None]
    if c["model_type"] == "m2m_100":  # tensor2tensor's wavelengths; positions count from padding + 1
        angle = (pos + 2) * np.exp(-math.log(10000) / (half - 1) * np.arange(half))
    else:
        angle = pos / 10000 ** (2 * np.arange(half) / c["d_model"])
    return np.concatenate([np.sin(angle), np.cos(angle)], -1)


def bart_stack(p, c, tokens, stack, z=None):
    kind, d, pre = c["model_type"], c["d_model"], f"model.{stack}."
    H, ff, act = c[stack + "_attention_heads"], c[stack + "_ffn_dim"], ACTS[c["activation_function"]]
    first = kind in ("mbart", "m2m_100", "pegasus")  # norms before the sublayers
    shared = c.get("share_encoder_decoder_embeddings", True)
    size = c["vocab_size"] if stack == "encoder" else c.get("decoder_vocab_size", c["vocab_size"])
    x = p("model.shared.weight" if shared else pre + "embed_tokens.weight", size, d)[tokens]
    x = x * (math.sqrt(d) if c["scale_embedding"] else 1)
    if kind in ("bart", "mbart"):
        x = x + p(pre + "embed_positions.weight", c["max_position_embeddings"] + 2, d)[2:2 + len(tokens)]
        x = layer_norm(p, pre + "layernorm_embedding", x, 1e-5)
    else:
        x = x + sinusoids(c, len(tokens))

    def sublayer(x, name, f):
        if first:
            return x + f(layer_norm(p, name, x, 1e-5))
        return layer_norm(p, name, x + f(x), 1e-5)

    def attention(name, x, y, causal):
        q, k, v = (heads(linear(p, f"{name}.{n}_proj", i, d, True), H) for n, i in (("q", x), ("k", y), ("v", y)))
        return linear(p, name + ".out_proj", merge(attend(q, k, v, (d // H) ** -0.5, causal)), d, True)
    for l in range(c[stack + "_layers"]):
        h = f"{pre}layers.{l}."
        x = sublayer(x, h + "self_attn_layer_norm", lambda y: attention(h + "self_attn", y, y, z is not None))
        if z is not None:
            x = sublayer(x, h + "encoder_attn_layer_norm", lambda y: attention(h + "encoder_attn", y, z, False))
        x = sublayer(x, h + "final_layer_norm", lambda y: linear(p, h + "fc2", act(linear(p, h + "fc1", y, ff, True)), d, True))
    return layer_norm(p, pre + "layer_norm", x, 1e-5) if first else x


def bart(p, c, source, tokens):
    z = bart_stack(p, c, source, "encoder")
    x, size = bart_stack(p, c, tokens, "decoder", z), c.get("decoder_vocab_size", c["vocab_size"])
    shared = c.get("share_encoder_decoder_embeddings", True)
    table = "model.shared.weight" if shared else "model.decoder.embed_tokens.weight"
    if not c.get("tie_word_embeddings", True):
        table = "lm_head.weight"
    logits = x @ p(table, size, c["d_model"]).T
    return z, logits if c["model_type"] == "m2m_100" else logits + p("final_logits_bias", 1, size)


# ---- T5 ----

def bucket(ahead, c, causal):
    n, most = c["relative_attention_num_buckets"], c["relative_attention_max_distance"]
    base = 0
    if causal:
        far = max(-ahead, 0)
    else:
        n //= 2
        base, far = n * (ahead > 0), abs(ahead)
    exact = n // 2
    if far >= exact:
        far = min(exact + int(math.log(far / exact) / math.log(most / exact) * (n - exact)), n - 1)
    return base + far


def t5_stack(p, c, tokens, stack, z=None):
    d, H, w, eps, n = c["d_model"], c["num_heads"], c["d_kv"], c["layer_norm_epsilon"], len(tokens)
    kind, causal = c["feed_forward_proj"], z is not None
    layers = c.get("num_decoder_layers", c["num_layers"]) if causal else c["num_layers"]
    x = p("shared.weight", c["vocab_size"], d)[tokens]

    def attention(name, x, y, bias, causal):
        q, k, v = (heads(linear(p, f"{name}.{m}", i, H * w), H) for m, i in (("q", x), ("k", y), ("v", y)))
        return linear(p, name + ".o", merge(attend(q, k, v, 1, causal, bias)), d)

    def mlp(name, x):
        if not kind.startswith("gated"):
            return linear(p, name + ".wo", ACTS[kind](linear(p, name + ".wi", x, c["d_ff"])), d)
        gate = ACTS[kind](linear(p, name + ".wi_0", x, c["d_ff"]))
        return linear(p, name + ".wo", gate * linear(p, name + ".wi_1", x, c["d_ff"]), d)
    place = np.arange(n)
    buckets = np.vectorize(lambda ahead: bucket(ahead, c, causal))(place[None] - place[:, None])
    for l in range(layers):
        h, owner = f"{stack}.block.{l}.layer.", l if c["model_type"] == "umt5" else 0
        table = p(f"{stack}.block.{owner}.layer.0.SelfAttention.relative_attention_bias.weight",
                  c["relative_attention_num_buckets"], H)
        y = rms(p, h + "0.layer_norm", x, eps)
        x = x + attention(h + "0.SelfAttention", y, y, table[buckets].transpose(2, 0, 1), causal)
        if causal:
            x = x + attention(h + "1.EncDecAttention", rms(p, h + "1.layer_norm", x, eps), z, None, False)
        last = h + ("2" if causal else "1")
        x = x + mlp(last + ".DenseReluDense", rms(p, last + ".layer_norm", x, eps))
    return rms(p, stack + ".final_layer_norm", x, eps)


def t5(p, c, source, tokens):
    z = t5_stack(p, c, source, "encoder")
    x = t5_stack(p, c, tokens, "decoder", z)
    if c.get("tie_word_embeddings", True):
        return z, x * c["d_model"] ** -0.5 @ p("shared.weight", c["vocab_size"], c["d_model"]).T
    return z, linear(p, "lm_head", x, c["vocab_size"])


# ---- searches, as Hugging Face's generation ----

def log_softmax(x):
    return x - x.max() - np.log(np.exp(x - x.max()).sum())


def ruled(g, tokens, x, eos):
    """Scores under the rules of a generation config."""
    x, n = x.copy(), len(tokens)
    only = g["forced_bos_token_id"] if n == 1 and "forced_bos_token_id" in g else \
        g["forced_eos_token_id"] if n == g["max_length"] - 1 and "forced_eos_token_id" in g else None
    if only is not None:
        return np.where(np.arange(len(x)) == only, 0, -np.inf)
    for t in set(tokens):
        x[t] = x[t] * g.get("repetition_penalty", 1) if x[t] < 0 else x[t] / g.get("repetition_penalty", 1)
    size = g.get("no_repeat_ngram_size", 0)
    if size:
        seen = [tuple(tokens[i:i + size]) for i in range(n - size + 1)]
        for t in range(len(x)):
            if tuple(tokens[n - size + 1:]) + (t,) in seen:
                x[t] = -np.inf
    for row in g.get("bad_words_ids", []):
        if len(row) == 1 or tokens[-(len(row) - 1):] == row[:-1]:
            x[row[-1]] = -np.inf
    if n < g.get("min_length", 0):
        x[eos] = -np.inf
    for t in g.get("suppress_tokens", []) + (g.get("begin_suppress_tokens", []) if n == 1 + ("forced_bos_token_id" in g) else []):
        x[t] = -np.inf
    return x


def search(logits, g, start, eos):
    """logits(tokens): of the next token. Greedy search, or beam search with its early_stopping true or false."""
    beams, power = g.get("num_beams", 1), g.get("length_penalty", 1.0)
    if beams == 1:
        tokens = [start]
        while tokens[-1] != eos or len(tokens) == 1:
            tokens.append(int(ruled(g, tokens, logits(tokens), eos).argmax()))
            if len(tokens) == g["max_length"]:
                break
        return [t for t in tokens[1:] if t != eos]
    live, ended = [(0.0, [start])], []

    def add(score, tokens, length):
        ended.append((score / length ** power, tokens))
        ended.sort(key=lambda e: -e[0])
        del ended[beams:]
    while True:
        size = len(live[0][1])
        all_next = [(s + x, k, t) for k, (s, tokens) in enumerate(live)
                    for t, x in enumerate(ruled(g, tokens, log_softmax(logits(tokens)), eos)) if x > -np.inf]
        best = sorted(all_next, key=lambda e: -e[0])[:2 * beams]
        next_live = []
        for rank, (s, k, t) in enumerate(best):
            if t == eos and rank < beams:
                add(s, live[k][1][1:], size)
            elif t != eos and len(next_live) < beams:
                next_live.append((s, live[k][1] + [t]))
        done = len(ended) == beams and (g.get("early_stopping", False) or ended[-1][0] >= best[0][0] / size ** power)
        live = next_live
        if done or not live or size + 1 == g["max_length"]:
            break
    for s, tokens in [] if done else live:
        add(s, tokens[1:], len(tokens) - 1)
    return ended[0][1]


# ---- cases ----

BART = {"vocab_size": 23, "max_position_embeddings": 32, "encoder_layers": 2, "decoder_layers": 2, "d_model": 16,
        "encoder_attention_heads": 4, "decoder_attention_heads": 2, "encoder_ffn_dim": 20, "decoder_ffn_dim": 24,
        "activation_function": "gelu", "scale_embedding": False, "decoder_start_token_id": 2, "eos_token_id": 2, "forced_eos_token_id": 2,
        "is_encoder_decoder": True, "model_type": "bart"}
OLD = {"add_bias_logits": False, "add_final_layer_norm": False, "normalize_before": False, "normalize_embedding": True,
       "static_position_embeddings": False, "num_hidden_layers": 2}
T5 = {"vocab_size": 23, "d_model": 16, "d_kv": 6, "d_ff": 20, "num_layers": 2, "num_decoder_layers": 1, "num_heads": 4,
      "relative_attention_num_buckets": 8, "relative_attention_max_distance": 6, "dropout_rate": 0.1, "n_positions": 32,
      "layer_norm_epsilon": 1e-6, "feed_forward_proj": "relu", "is_encoder_decoder": True, "model_type": "t5"}
CASES = {
    "bart": (bart, {**BART, **OLD}),
    "mbart": (bart, {**BART, **OLD, "model_type": "mbart", "add_final_layer_norm": True, "normalize_before": True,
                     "scale_embedding": True, "decoder_layers": 1, "tie_word_embeddings": False}),
    "m2m_100": (bart, {**BART, "model_type": "m2m_100", "activation_function": "relu", "scale_embedding": True}),
    "marian": (bart, {**BART, **OLD, "model_type": "marian", "activation_function": "swish", "scale_embedding": True,
                      "normalize_embedding": False, "static_position_embeddings": True}),
    "marian_apart": (bart, {**BART, "model_type": "marian", "activation_function": "swish", "scale_embedding": True,
                            "share_encoder_decoder_embeddings": False, "decoder_vocab_size": 19}),
    "pegasus": (bart, {**BART, **OLD, "model_type": "pegasus", "activation_function": "relu", "scale_embedding": True,
                       "add_final_layer_norm": True, "normalize_before": True, "normalize_embedding": False,
                       "static_position_embeddings": True, "extra_pos_embeddings": 1}),
    "t5": (t5, T5),
    "t5_gated": (t5, {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "num_decoder_layers": 2}),
    "mt5": (t5, {**T5, "model_type": "mt5", "feed_forward_proj": "gated-gelu", "relative_attention_num_buckets": 32,
                 "relative_attention_max_distance": 128}),
    "umt5": (t5, {**T5, "model_type": "umt5", "feed_forward_proj": "gated-gelu", "num_decoder_layers": 2}),
}

SEARCHES = {"bart": [
    {"eos_token_id": 1, "max_length": 12},
    {"eos_token_id": 1, "max_length": 12, "no_repeat_ngram_size": 2, "forced_bos_token_id": 5, "forced_eos_token_id": 2,
     "min_length": 6, "repetition_penalty": 1.3, "suppress_tokens": [7], "begin_suppress_tokens": [11],
     "bad_words_ids": [[3], [5, 17]]},
    {"eos_token_id": 17, "max_length": 12, "num_beams": 3, "length_penalty": 2.0, "early_stopping": True, "min_length": 4,
     "no_repeat_ngram_size": 2},
    {"eos_token_id": 1, "max_length": 14, "num_beams": 3, "min_length": 5, "bad_words_ids": [[7]], "forced_eos_token_id": 1},
    {"eos_token_id": 22, "max_length": 10, "num_beams": 3, "length_penalty": 0.5, "repetition_penalty": 1.5,
     "suppress_tokens": [1, 9]}]}


def main(folder):
    for name, (model, c) in CASES.items():
        p, size = Params(), c.get("decoder_vocab_size", c["vocab_size"])
        source, lengths = [(7 * t + t * t + 1) % c["vocab_size"] for t in range(S)], [S, S - 4]
        tokens = [(5 * t + t * t + 2) % size for t in range(T)]
        results = [model(p, c, np.array(source[:n]), np.array(tokens)) for n in lengths]
        more = list(tokens)
        for _ in range(MORE):
            last = model(p, c, np.array(source), np.array(more))[1][-1]
            best = np.sort(last)
            assert best[-1] - best[-2] > 1e-3, f"{name}: the best two logits are too close"
            more.append(int(last.argmax()))
        searches = []
        for g in SEARCHES.get(name, []):
            def next_logits(tokens):
                return model(p, c, np.array(source), np.array(tokens))[1][-1]
            result = search(next_logits, g, c["decoder_start_token_id"], g["eos_token_id"])
            searches.append({"generation": g, "result": result})
        hidden = np.array([np.pad(z, ((0, S - len(z)), (0, 0))) for z, _ in results])
        with open(os.path.join(folder, name + ".json"), "w") as f:
            f.write('{"config":' + text(c) + ',\n"tensors":' + text({k: v.shape for k, v in p.items()}))
            f.write(',\n"source":' + text(source) + ',\n"lengths":' + text(lengths))
            f.write(',\n"tokens":' + text(tokens) + ',\n"greedy":' + text(more[T:]))
            f.write(',\n"searches":' + text(searches))
            f.write(',\n"hidden":' + numbers(hidden) + ',\n"logits":' + numbers(np.array([y for _, y in results])) + "}\n")
    write_texts(folder)


def write_texts(folder):
    """Models without numbers, as large as the vocabularies of tests/data/tokenizers/classes.json."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tokenizers/classes.json")) as f:
        sizes = {c["class"]: len(c["vocab"] or []) for c in json.load(f)}
    small = {"encoder_layers": 1, "decoder_layers": 1, "eos_token_id": 0, "pad_token_id": 1}
    for name, of, size in (("marian_text", "marian", sizes["MarianTokenizer"]),
                           ("m2m_100_text", "m2m_100", sizes["M2M100Tokenizer"] + 100 + 8)):
        model, c = CASES[of]
        p, c = Params(), {**c, **small, "vocab_size": size}
        model(p, c, np.array([0, 1]), np.array([0, 1]))
        with open(os.path.join(folder, name + ".json"), "w") as f:
            f.write('{"config":' + text(c) + ',\n"tensors":' + text({k: v.shape for k, v in p.items()}) + "}\n")


if __name__ == "__main__":
    main(sys.argv[1])
