#!/usr/bin/python3
# make_refs.py DIR: what PyTorch says about ten AdamW steps of four small models, for test_train_refs:
# DIR/NAME.safetensors with the inputs ("in."), the losses of ten steps and the gradients of the
# first ("grad."). Parameters follow from their names, as start() here and in the test. All in f64.
# Needs Debian's python3-torch (1.13) and numpy; run again when a model's mathematics changes.
import json
import math
import struct
import sys

import numpy as np
import torch
import torch.nn.functional as F

RATE, DECAY, CLIP, STEPS = 1e-3, 0.1, 1.0, 10


def start(name, shape):
    """Numbers of a parameter: a hash of its name and of the place, in f32."""
    h = 2166136261
    for c in name.encode():
        h = (h ^ c) * 16777619 & 0xFFFFFFFF
    n = int(np.prod(shape))
    x = (h + np.arange(n, dtype=np.uint64) * 2654435761) & 0xFFFFFFFF
    for _ in range(2):
        x = ((x ^ (x >> np.uint64(16))) * 0x45D9F3B) & 0xFFFFFFFF
    x = x ^ (x >> np.uint64(16))
    u = (x >> np.uint64(8)).astype(np.float64) * 2.0 ** -24 - 0.5
    gain = len(shape) == 1 and name.endswith("weight")
    v = u * (0.2 if len(shape) == 1 else 0.5) + (1 if gain else 0)
    return torch.tensor(v.astype(np.float32).astype(np.float64).reshape(shape), requires_grad=True)


class Params(dict):
    def get(self, name, *shape):
        if name not in self:
            self[name] = start(name, shape)
        return self[name]


def heads(x, n):
    B, T, d = x.shape
    return x.view(B, T, n, d // n).transpose(1, 2)


def merge(x):
    B, H, T, d = x.shape
    return x.transpose(1, 2).reshape(B, T, H * d)


def attend(q, k, v, visible, bias=0):
    s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + bias
    return s.masked_fill(~visible, float("-inf")).softmax(-1) @ v


def causal(T):
    return torch.ones(T, T, dtype=torch.bool).tril()


def inside(lengths, T):
    return (torch.arange(T)[None] < lengths[:, None])[:, None, None]


def linear(p, name, x, n):
    w, b = p.get(name + ".weight", n, x.shape[-1]), p.get(name + ".bias", n)
    return x @ w.T + b


def conv1d(p, name, x, n):  # GPT-2 stores [in, out]
    return x @ p.get(name + ".weight", x.shape[-1], n) + p.get(name + ".bias", n)


def norm(p, name, x, eps):
    d = x.shape[-1]
    return F.layer_norm(x, (d,), p.get(name + ".weight", d), p.get(name + ".bias", d), eps)


def rms(p, name, x, eps):
    g = p.get(name + ".weight", x.shape[-1])
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * g


def a10(p, c, x, normed, attention):
    d = c["n_embd"]
    for i in range(c["n_layer"]):
        h = f"h.{i}."
        x = x + attention(h, normed(p, h + "ln_1", x, 1e-5))
        y = F.gelu(conv1d(p, h + "mlp.c_fc", normed(p, h + "ln_2", x, 1e-5), 4 * d),
                   approximate="tanh")
        x = x + conv1d(p, h + "mlp.c_proj", y, d)
    return normed(p, "ln_f", x, 1e-5) @ p["wte.weight"].T


def gpt2(p, c, i):
    d, T = c["n_embd"], i["tokens"].shape[1]
    x = p.get("wte.weight", c["vocab_size"], d)[i["tokens"]] + p.get("wpe.weight", c["n_positions"], d)[:T]

    def attention(h, y):
        q, k, v = (heads(z, c["n_head"]) for z in conv1d(p, h + "attn.c_attn", y, 3 * d).split(d, 2))
        return conv1d(p, h + "attn.c_proj", merge(attend(q, k, v, causal(T))), d)
    return a10(p, c, x, norm, attention)


def sinusoid(T, d):
    angle = torch.arange(T, dtype=torch.float64)[:, None] / 10000 ** (torch.arange(0, d, 2) / d)
    return torch.stack([angle.sin(), angle.cos()], -1).reshape(T, d)


def gopher(p, c, i):  # relative positions of Transformer-XL: (q + u) k + (q + w) r of the distance
    d, H, T = c["n_embd"], c["n_head"], i["tokens"].shape[1]
    x = p.get("wte.weight", c["vocab_size"], d)[i["tokens"]]
    distance = (torch.arange(T)[:, None] - torch.arange(T)[None]).clamp(min=0)

    def attention(h, y):
        q, k, v = (heads(z, H) for z in conv1d(p, h + "attn.c_attn", y, 3 * d).split(d, 2))
        r = heads((sinusoid(T, d) @ p.get(h + "attn.r_net.weight", d, d).T)[None], H)
        w = d // H
        position = (q + p.get(h + "attn.r_r_bias", H, w).view(H, 1, w)) @ r.transpose(-1, -2)
        position = position.gather(3, distance.expand(*position.shape)) / math.sqrt(w)
        q = q + p.get(h + "attn.r_w_bias", H, w).view(H, 1, w)
        return conv1d(p, h + "attn.c_proj", merge(attend(q, k, v, causal(T), position)), d)
    return a10(p, c, x, rms, attention)


def bert(p, c, i):
    d, H, T = c["hidden_size"], c["num_attention_heads"], i["tokens"].shape[1]
    e, eps = "embeddings.", 1e-12
    words = p.get(e + "word_embeddings.weight", c["vocab_size"], d)
    x = words[i["tokens"]] + p.get(e + "position_embeddings.weight", c["max_position_embeddings"], d)[:T]
    x = norm(p, e + "LayerNorm", x + p.get(e + "token_type_embeddings.weight", 2, d)[i["types"]], eps)
    visible = inside(i["lengths"], T)
    for n in range(c["num_hidden_layers"]):
        h = f"encoder.layer.{n}."
        q, k, v = (heads(linear(p, h + "attention.self." + z, x, d), H) for z in ("query", "key", "value"))
        y = linear(p, h + "attention.output.dense", merge(attend(q, k, v, visible)), d)
        x = norm(p, h + "attention.output.LayerNorm", x + y, eps)
        y = F.gelu(linear(p, h + "intermediate.dense", x, c["intermediate_size"]))
        x = norm(p, h + "output.LayerNorm", x + linear(p, h + "output.dense", y, d), eps)
    t = "cls.predictions.transform."
    x = norm(p, t + "LayerNorm", F.gelu(linear(p, t + "dense", x, d)), eps)
    return x @ words.T + p.get("cls.predictions.bias", c["vocab_size"])


def edt(p, c, i):
    d, H, ff, eps = c["d_model"], c["attention_heads"], c["ffn_dim"], 1e-5
    words = p.get("embed_tokens.weight", c["vocab_size"], d)
    places = p.get("embed_positions.weight", c["max_position_embeddings"], d)

    def embed(ids):
        return words[ids] + places[:ids.shape[1]]

    def mix(name, x, z, visible):
        q, k, v = (heads(linear(p, f"{name}.{n}", y, d), H) for n, y in (("q", x), ("k", z), ("v", z)))
        return linear(p, name + ".out", merge(attend(q, k, v, visible)), d)

    def mlp(h, x):
        return linear(p, h + "mlp2", F.relu(linear(p, h + "mlp1", x, ff)), d)
    visible = inside(i["lengths"], i["source"].shape[1])
    z = embed(i["source"])
    for n in range(c["encoder_layers"]):
        h = f"encoder.{n}."
        z = norm(p, h + "norm1", z + mix(h + "attn", z, z, visible), eps)
        z = norm(p, h + "norm2", z + mlp(h, z), eps)
    x = embed(i["tokens"])
    for n in range(c["decoder_layers"]):
        h = f"decoder.{n}."
        x = norm(p, h + "norm3", x + mix(h + "attn", x, x, causal(x.shape[1])), eps)
        x = norm(p, h + "norm4", x + mix(h + "cross", x, z, visible), eps)
        x = norm(p, h + "norm5", x + mlp(h, x), eps)
    return x @ words.T


def ids(B, T, V, a, b):
    i, t = torch.arange(B)[:, None], torch.arange(T)[None]
    return (a * i + b * t + i * t * t) % V


def inputs_next(c):
    x = ids(3, 13, c["vocab_size"], 7, 3)
    return {"tokens": x[:, :-1], "targets": x[:, 1:]}


def inputs_masked(c):
    x = ids(3, 10, c["vocab_size"], 5, 3)
    lengths = torch.tensor([10, 7, 4])
    chosen = ((ids(3, 10, 3, 1, 1) == 0) & (torch.arange(10)[None] < lengths[:, None]))
    return {"tokens": torch.where(chosen, c["vocab_size"] - 3, x), "types": ids(3, 10, 2, 1, 0),
            "lengths": lengths, "targets": torch.where(chosen, x, -1)}


def inputs_pairs(c):
    y = ids(3, 9, c["vocab_size"], 11, 5)
    targets = y[:, 1:].clone()
    targets[1, 6:] = -1
    return {"source": ids(3, 11, c["vocab_size"], 3, 7), "lengths": torch.tensor([11, 8, 3]),
            "tokens": y[:, :-1], "targets": targets}


A10 = {"vocab_size": 31, "n_positions": 16, "n_embd": 16, "n_head": 2}
MODELS = {
    "gpt2": (gpt2, inputs_next, {"model_type": "gpt2", **A10, "n_layer": 4}),
    "gopher": (gopher, inputs_next, {"model_type": "gopher", **A10, "n_layer": 2}),
    "bert": (bert, inputs_masked, {"model_type": "bert", "vocab_size": 31, "max_position_embeddings": 16,
                                   "hidden_size": 16, "intermediate_size": 40, "num_hidden_layers": 2,
                                   "num_attention_heads": 2}),
    "edt": (edt, inputs_pairs, {"model_type": "edt", "vocab_size": 31, "max_position_embeddings": 16,
                                "d_model": 16, "ffn_dim": 40, "encoder_layers": 2, "decoder_layers": 2,
                                "attention_heads": 2}),
}


def save(path, config, tensors):
    header, at = {"__metadata__": {"config": json.dumps(config), "torch": torch.__version__}}, 0
    for name, a in tensors.items():
        kind = {"float32": "F32", "int32": "I32"}[str(a.dtype)]
        header[name] = {"dtype": kind, "shape": list(a.shape), "data_offsets": [at, at + a.nbytes]}
        at += a.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for a in tensors.values():
            f.write(np.ascontiguousarray(a).tobytes())


def run(name, folder):
    model, make_inputs, config = MODELS[name]
    inputs, p = make_inputs(config), Params()
    model(p, config, inputs)  # makes the parameters
    groups = [{"params": [x for x in p.values() if x.dim() > 1], "weight_decay": DECAY},
              {"params": [x for x in p.values() if x.dim() == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.999), eps=1e-8)
    losses, gradients = [], {}
    for step in range(STEPS):
        logits = model(p, config, inputs)
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), inputs["targets"].reshape(-1),
                               ignore_index=-1)
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            gradients = {"grad." + k: x.grad.numpy().astype(np.float32) for k, x in p.items()}
        torch.nn.utils.clip_grad_norm_(list(p.values()), CLIP)
        optimizer.step()
        losses.append(loss.item())
    print(name, " ".join(f"{x:.6f}" for x in losses))
    out = {"in." + k: x.numpy().astype(np.int32) for k, x in inputs.items()}
    out["losses"] = np.array(losses, np.float32)
    save(f"{folder}/{name}.safetensors", config, {**out, **gradients})


if len(sys.argv) != 2:
    sys.exit("usage: make_refs.py DIR")
for model_name in MODELS:
    run(model_name, sys.argv[1])
