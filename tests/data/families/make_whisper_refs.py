#!/usr/bin/python3
# make_whisper_refs.py DIR: what NumPy says about a tiny Whisper, for test_whisper: DIR/NAME.json with the config,
# generation_config, names and shapes of all tensors, hidden states and logits of a spectrogram that follows from its name
# (make_refs.py), and transcriptions of the sound of make_audio.py: tokens of each window, parts and their times. Written from
# the paper (Radford et al. 2022) and Hugging Face's documentation of the model and its logits processors.
import math
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "audio"))
from make_audio import log_mel, sound  # noqa: E402
from make_refs import ACTS, Params, heads, layer_norm, linear, merge, numbers, start, text  # noqa: E402

B = 2


def attend(q, k, v, causal):
    s = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
    if causal:
        s = np.where(np.tri(s.shape[1], dtype=bool), s, -np.inf)
    s = np.exp(s - s.max(-1, keepdims=True))
    return s / s.sum(-1, keepdims=True) @ v


def attention(p, name, x, y, H, causal):
    d = x.shape[1]
    q, k, v = (heads(linear(p, f"{name}.{n}_proj", i, d, n != "k"), H) for n, i in (("q", x), ("k", y), ("v", y)))
    return linear(p, name + ".out_proj", merge(attend(q, k, v, causal)), d, True)


def conv(p, name, x, d, stride):  # [C, T] -> [d, T / stride]
    w, b = p(name + ".weight", d, x.shape[0], 3), p(name + ".bias", d)
    x = np.pad(x, ((0, 0), (1, 1)))
    return np.array([np.einsum("oik,ik->o", w, x[:, t:t + 3]) + b for t in range(0, x.shape[1] - 2, stride)]).T


def encode(p, c, features):
    pre, d = "model.encoder.", c["d_model"]
    x = ACTS["gelu"](conv(p, pre + "conv1", features, d, 1))
    x = ACTS["gelu"](conv(p, pre + "conv2", x, d, 2)).T
    x = x + p(pre + "embed_positions.weight", c["max_source_positions"], d)
    for l in range(c["encoder_layers"]):
        h = f"{pre}layers.{l}."
        y = layer_norm(p, h + "self_attn_layer_norm", x, 1e-5)
        x = x + attention(p, h + "self_attn", y, y, c["encoder_attention_heads"], False)
        y = layer_norm(p, h + "final_layer_norm", x, 1e-5)
        y = ACTS[c["activation_function"]](linear(p, h + "fc1", y, c["encoder_ffn_dim"], True))
        x = x + linear(p, h + "fc2", y, d, True)
    return layer_norm(p, pre + "layer_norm", x, 1e-5)


def decode(p, c, z, tokens):
    pre, d, H = "model.decoder.", c["d_model"], c["decoder_attention_heads"]
    table = p(pre + "embed_tokens.weight", c["vocab_size"], d)
    x = table[tokens] + p(pre + "embed_positions.weight", c["max_target_positions"], d)[:len(tokens)]
    for l in range(c["decoder_layers"]):
        h = f"{pre}layers.{l}."
        y = layer_norm(p, h + "self_attn_layer_norm", x, 1e-5)
        x = x + attention(p, h + "self_attn", y, y, H, True)
        y = layer_norm(p, h + "encoder_attn_layer_norm", x, 1e-5)
        x = x + attention(p, h + "encoder_attn", y, z, H, False)
        y = layer_norm(p, h + "final_layer_norm", x, 1e-5)
        y = ACTS[c["activation_function"]](linear(p, h + "fc1", y, c["decoder_ffn_dim"], True))
        x = x + linear(p, h + "fc2", y, d, True)
    return layer_norm(p, pre + "layer_norm", x, 1e-5) @ table.T


# ---- transcription ----

def log_softmax(x):
    x = x - x.max()
    return x - np.log(np.exp(x).sum())


def timestamp_rules(g, seq, s):
    """s: scores after suppression; seq: tokens chosen so far"""
    first, eos = g["no_timestamps_token_id"] + 1, g["eos_token_id"]
    s = s.copy()
    s[first - 1] = -np.inf
    last = len(seq) >= 1 and seq[-1] >= first
    penultimate = len(seq) < 2 or seq[-2] >= first
    if last and penultimate:
        s[first:] = -np.inf
    elif last:
        s[:eos] = -np.inf
    times = [t for t in seq if t >= first]
    if times:
        s[first:times[-1] if last and not penultimate else times[-1] + 1] = -np.inf
    if not seq:
        s[:first] = -np.inf
        s[first + g["max_initial_timestamp_index"] + 1:] = -np.inf
    log_p = log_softmax(s)
    if np.log(np.exp(log_p[first:]).sum()) > log_p[:first].max():
        s[:first] = -np.inf
    return s


def allowed(g, seq, s, times):
    """Scores s of the token after seq, without those that may not follow."""
    s[g["suppress_tokens"]] = -np.inf
    if not seq:
        s[g["begin_suppress_tokens"]] = -np.inf
    return timestamp_rules(g, seq, s) if times else s


def greedy(g, room, scores, times):
    seq = []
    while len(seq) < room:
        s = allowed(g, seq, scores(seq), times)
        best = np.sort(s)
        assert best[-1] - best[-2] > 2e-3, "the best two logits are too close"
        if int(s.argmax()) == g["eos_token_id"]:
            break
        seq.append(int(s.argmax()))
    return seq


def beam_search(g, room, scores, times, beams):
    """transformers' search with early_stopping false and length_penalty 1."""
    live, done = [(0.0, [])], []
    while live:
        every = []
        for log_p, seq in live:
            s = allowed(g, seq, log_softmax(scores(seq)), times)
            every += [(log_p + s[t], seq, t) for t in range(len(s)) if s[t] > -np.inf]
        every.sort(key=lambda x: -x[0])
        gaps = [x[0] - y[0] for x, y in zip(every[:2 * beams], every[1:])]
        assert min(gaps) > 1e-4, "two continuations are too close"
        live = []
        for rank, (log_p, seq, t) in enumerate(every[:2 * beams]):
            if len(live) == beams:
                break
            if t == g["eos_token_id"]:
                done += [(log_p / (len(seq) + 1), seq)] if rank < beams else []
            elif len(seq) + 1 == room:
                done.append((log_p / room, seq + [t]))
                live.append(None)
            else:
                live.append((log_p, seq + [t]))
        done = sorted(done, key=lambda x: -x[0])[:beams]
        live = [x for x in live if x]
        if live and len(done) == beams and every[0][0] / len(live[0][1]) <= done[-1][0]:
            break
    assert len(done) < 2 or done[0][0] - done[1][0] > 1e-4, "the best two texts are too close"
    return done[0][1]


def window(p, c, g, features, language, task, times, notes, beams):
    z, prompt = encode(p, c, features), [g["decoder_start_token_id"]]
    if g["is_multilingual"]:
        if language is None:
            s = decode(p, c, z, np.array(prompt))[-1]
            ids = sorted(g["lang_to_id"].values())
            language = ids[int(np.argmax(s[ids]))]
        prompt += [language, g["task_to_id"][task]]
    if not times:
        prompt.append(g["no_timestamps_token_id"])
    room = c["max_target_positions"] - len(prompt)
    scores = lambda seq: decode(p, c, z, np.array(prompt + seq))[-1]
    seq = beam_search(g, room, scores, times, beams) if beams else greedy(g, room, scores, times)
    notes.append(seq)
    return seq, language


def transcribe(p, c, g, n, language=None, task="transcribe", times=False, beams=0):
    x, frames = sound(n, 16000), 2 * c["max_source_positions"]
    language = g["lang_to_id"][f"<|{language}|>"] if language else None
    mel = log_mel(np.pad(x, (0, max(0, frames * 160 - n))), c["num_mel_bins"])
    content, first, eos = -(-n // 160), g["no_timestamps_token_id"] + 1, g["eos_token_id"]
    content = min(content, mel.shape[1])
    seek, parts, notes, times_inside = 0, [], [], times or content > frames
    while seek < content:
        part = mel[:, seek:seek + frames]
        part = np.pad(part, ((0, 0), (0, frames - part.shape[1])))
        seq, language = window(p, c, g, part, language, task, times_inside, notes, beams)
        is_time = [t >= first for t in seq]
        single = is_time[-2:] == [False, True]
        pairs = [i for i in range(1, len(seq)) if is_time[i] and is_time[i - 1]]
        used, advance = len(seq), frames
        if times_inside and pairs and not single and seq[pairs[-1] - 1] > first:
            used, advance = pairs[-1], 2 * (seq[pairs[-1] - 1] - first)
        begin, tokens = seek * 0.01, []
        for t in seq[:used] + [None]:
            if t is not None and t < first:
                tokens += [t] if t < eos else []
                continue
            end = min(seek + advance, content) * 0.01 if t is None else seek * 0.01 + (t - first) * 0.02
            if tokens:
                parts.append([round(begin, 2), round(end, 2), tokens])
            begin, tokens = end, []
        seek += advance
    return {"samples": n, "language": None if language is None else language, "task": task, "timestamps": times,
            **({"beams": beams} if beams else {}), "windows": notes, "parts": parts}


# ---- cases ----

WHISPER = {"model_type": "whisper", "vocab_size": 60, "num_mel_bins": 8, "d_model": 16, "encoder_layers": 2,
           "encoder_attention_heads": 4, "decoder_layers": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 20,
           "decoder_ffn_dim": 24, "max_source_positions": 20, "max_target_positions": 14, "activation_function": "gelu",
           "scale_embedding": False, "num_hidden_layers": 2, "is_encoder_decoder": True, "mask_time_prob": 0.05,
           "median_filter_width": 7, "apply_spec_augment": False, "use_weighted_layer_sum": False,
           "decoder_start_token_id": 31, "eos_token_id": 30, "suppress_tokens": [], "begin_suppress_tokens": []}
RULES = {"decoder_start_token_id": 31, "eos_token_id": 30, "is_multilingual": True, "no_timestamps_token_id": 37,
         "lang_to_id": {"<|en|>": 32, "<|de|>": 33, "<|fr|>": 34}, "task_to_id": {"translate": 35, "transcribe": 36},
         "suppress_tokens": [3, 9], "begin_suppress_tokens": [7, 30], "max_initial_timestamp_index": 10, "max_length": 14}
ENGLISH = {**RULES, "is_multilingual": False, "max_initial_timestamp_index": 3}
REQUESTS = [(6000, None, "transcribe", False), (6000, "fr", "translate", False), (5000, "de", "transcribe", True),
            (17000, None, "transcribe", False), (17000, "en", "transcribe", True),
            (17000, "en", "transcribe", True, 3), (6000, "fr", "translate", False, 3)]
CASES = {"whisper": (WHISPER, RULES, REQUESTS),
         "whisper_english": ({**WHISPER, "num_mel_bins": 12, "activation_function": "relu"}, ENGLISH,
                             [(6000, None, "transcribe", False), (4000, None, "transcribe", True)])}


def main(folder):
    for name, (c, g, requests) in CASES.items():
        p, tokens = Params(), [(7 * t + t * t) % c["vocab_size"] for t in range(9)]
        features = start("features", (B, c["num_mel_bins"], 2 * c["max_source_positions"]))
        hidden = np.array([encode(p, c, x) for x in features])
        logits = np.array([decode(p, c, z, np.array(tokens)) for z in hidden])
        requests = [transcribe(p, c, g, *r) for r in requests]
        with open(os.path.join(folder, name + ".json"), "w") as f:
            f.write('{"config":' + text(c) + ',\n"generation_config":' + text(g))
            f.write(',\n"tensors":' + text({k: v.shape for k, v in p.items()}))
            f.write(',\n"features":' + text(features.shape) + ',\n"tokens":' + text(tokens))
            f.write(',\n"hidden":' + numbers(hidden) + ',\n"logits":' + numbers(logits))
            f.write(',\n"requests":[' + ",\n".join(text(r) for r in requests) + "]}\n")


main(sys.argv[1])
