#!/usr/bin/python3
# make_vision_refs.py DIR: what NumPy says about tiny encoders of images and pairs of image and text, for test_vision:
# DIR/NAME.json with the config, names and shapes of all tensors, tokens and results. Pixels and tensors follow from their
# names (make_refs.py). Written from the papers and Hugging Face's model documentation, in f64, apart from Sinter's code.
import math
import os
import sys

import numpy as np

from make_refs import ACTS, Params, heads, layer_norm, linear, merge, start, text, numbers

B = 2


def act(name, x):
    return x / (1 + np.exp(-1.702 * x)) if name == "quick_gelu" else ACTS[name](x)


def attend(q, k, v, n, causal=False):  # [T, d]
    q, k, v = heads(q, n), heads(k, n), heads(v, n)
    s = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
    if causal:
        s = np.where(np.tri(s.shape[1], dtype=bool), s, -np.inf)
    s = np.exp(s - s.max(-1, keepdims=True))
    return merge(s / s.sum(-1, keepdims=True) @ v)


def unit(x):
    return x / np.sqrt((x * x).sum(-1, keepdims=True))


# ---- images ----

def patches(image, size):
    """[C, H, W] -> [rows columns, C size size]; what is left over is dropped"""
    rows, columns = image.shape[1] // size, image.shape[2] // size
    return np.array([image[:, r * size:(r + 1) * size, q * size:(q + 1) * size].ravel()
                     for r in range(rows) for q in range(columns)])


def cubic(x, a=-0.75):
    x = abs(x)
    if x <= 1:
        return (a + 2) * x ** 3 - (a + 3) * x ** 2 + 1
    return a * x ** 3 - 5 * a * x ** 2 + 8 * a * x - 4 * a if x < 2 else 0


def resize_positions(table, n):
    """[m m, d] -> [n n, d], bicubic, one element at a time"""
    m = math.isqrt(len(table))
    grid, out = table.reshape(m, m, -1), []
    for y in range(n):
        for x in range(n):
            cy, cx = (y + 0.5) * m / n - 0.5, (x + 0.5) * m / n - 0.5
            fy, fx, total = math.floor(cy), math.floor(cx), 0
            for i in range(fy - 1, fy + 3):
                for j in range(fx - 1, fx + 3):
                    total = total + cubic(cy - i) * cubic(cx - j) * grid[min(max(i, 0), m - 1), min(max(j, 0), m - 1)]
            out.append(total)
    return np.array(out)


def vit(p, c, image):
    """Dosovitskiy et al. 2021; Touvron et al. 2021 -> hidden [T, d]"""
    pre, d, H = c["prefix"], c["hidden_size"], c["num_attention_heads"]
    size, side = c["patch_size"], c["image_size"] // c["patch_size"]
    w = p(pre + "embeddings.patch_embeddings.projection.weight", d, c["num_channels"], size, size)
    x = patches(image, size) @ w.reshape(d, -1).T + p(pre + "embeddings.patch_embeddings.projection.bias", d)
    first = [p(pre + "embeddings.cls_token", 1, 1, d)[0]]
    if c["model_type"] == "deit":
        first.append(p(pre + "embeddings.distillation_token", 1, 1, d)[0])
    at = p(pre + "embeddings.position_embeddings", 1, len(first) + side * side, d)[0]
    if len(x) != side * side:
        at = np.concatenate([at[:1], resize_positions(at[1:], math.isqrt(len(x)))])
    x, bias, eps = np.concatenate(first + [x]) + at, c.get("qkv_bias", True), c["layer_norm_eps"]
    dino = c["model_type"] == "dinov2"
    for l in range(c["num_hidden_layers"]):
        h = f"{pre}encoder.layer.{l}."
        n1, n2 = ("norm1", "norm2") if dino else ("layernorm_before", "layernorm_after")
        y = layer_norm(p, h + n1, x, eps)
        q, k, v = (linear(p, h + "attention.attention." + i, y, d, bias) for i in ("query", "key", "value"))
        y = linear(p, h + "attention.output.dense", attend(q, k, v, H), d, True)
        x = x + (y * p(h + "layer_scale1.lambda1", d) if dino else y)
        y = layer_norm(p, h + n2, x, eps)
        if not dino:
            y = act(c["hidden_act"], linear(p, h + "intermediate.dense", y, c["intermediate_size"], True))
            y = linear(p, h + "output.dense", y, d, True)
        elif c["use_swiglu_ffn"]:
            ff = (int(int(d * c["mlp_ratio"]) * 2 / 3) + 7) // 8 * 8
            a, b = np.split(linear(p, h + "mlp.weights_in", y, 2 * ff, True), 2, -1)
            y = linear(p, h + "mlp.weights_out", ACTS["silu"](a) * b, d, True)
        else:
            y = act(c["hidden_act"], linear(p, h + "mlp.fc1", y, int(d * c["mlp_ratio"]), True))
            y = linear(p, h + "mlp.fc2", y, d, True)
        x = x + (y * p(h + "layer_scale2.lambda1", d) if dino else y)
    return layer_norm(p, pre + "layernorm", x, eps)


def image_logits(p, c, head, x):
    if head == "two":
        return (linear(p, "cls_classifier", x[:1], 3, True) + linear(p, "distillation_classifier", x[1:2], 3, True))[0] / 2
    if c["model_type"] == "dinov2":
        return linear(p, "classifier", np.concatenate([x[0], x[1:].mean(0)])[None], 3, True)[0]
    return linear(p, "classifier", x[:1], 3, True)[0]


def image_case(c, prefix, head, side):
    p, c = Params(), {**c, "prefix": prefix}
    pixels = start("pixels", (B, c["num_channels"], side or c["image_size"], side or c["image_size"]))
    hidden = np.array([vit(p, c, image) for image in pixels])
    out = {"hidden": hidden, "embedding_image": unit(hidden[:, 0])}
    if head:
        out["logits"] = np.array([image_logits(p, c, head, x) for x in hidden])
    return p, {"pixels": pixels.shape}, out


# ---- pairs (Radford et al. 2021; Zhai et al. 2023) ----

def pair_layers(p, pre, c, x, causal):
    d, eps = c["hidden_size"], c["layer_norm_eps"]
    for l in range(c["num_hidden_layers"]):
        h = f"{pre}encoder.layers.{l}."
        y = layer_norm(p, h + "layer_norm1", x, eps)
        q, k, v = (linear(p, f"{h}self_attn.{i}_proj", y, d, True) for i in "qkv")
        x = x + linear(p, h + "self_attn.out_proj", attend(q, k, v, c["num_attention_heads"], causal), d, True)
        y = act(c["hidden_act"], linear(p, h + "mlp.fc1", layer_norm(p, h + "layer_norm2", x, eps), c["intermediate_size"], True))
        x = x + linear(p, h + "mlp.fc2", y, d, True)
    return x


def pair_image(p, c, image, siglip, width):
    v, pre, e = c["vision_config"], "vision_model.", "vision_model.embeddings."
    d, size = v["hidden_size"], v["patch_size"]
    x = patches(image, size) @ p(e + "patch_embedding.weight", d, 3, size, size).reshape(d, -1).T
    if siglip:
        x = x + p(e + "patch_embedding.bias", d)
    else:
        x = np.concatenate([p(e + "class_embedding", d)[None], x])
    x = x + p(e + "position_embedding.weight", len(x), d)
    if not siglip:
        x = layer_norm(p, pre + "pre_layrnorm", x, v["layer_norm_eps"])
    x = layer_norm(p, pre + "post_layernorm", pair_layers(p, pre, v, x, False), v["layer_norm_eps"])
    if not siglip:
        return unit(linear(p, "visual_projection", x[0], width))
    h = pre + "head."
    w, b = p(h + "attention.in_proj_weight", 3 * d, d), p(h + "attention.in_proj_bias", 3 * d)
    q = p(h + "probe", 1, 1, d)[0] @ w[:d].T + b[:d]
    k, val = x @ w[d:2 * d].T + b[d:2 * d], x @ w[2 * d:].T + b[2 * d:]
    x = linear(p, h + "attention.out_proj", attend(q, k, val, v["num_attention_heads"]), d, True)
    y = act(v["hidden_act"], linear(p, h + "mlp.fc1", layer_norm(p, h + "layernorm", x, v["layer_norm_eps"]),
                                    v["intermediate_size"], True))
    return unit((x + linear(p, h + "mlp.fc2", y, d, True))[0])


def pair_text(p, c, tokens, siglip, width):
    t, pre, e = c["text_config"], "text_model.", "text_model.embeddings."
    if siglip:
        tokens = list(tokens) + [1] * (t["max_position_embeddings"] - len(tokens))
    d = t["hidden_size"]
    x = p(e + "token_embedding.weight", t["vocab_size"], d)[tokens]
    x = x + p(e + "position_embedding.weight", t["max_position_embeddings"], d)[:len(tokens)]
    x = pair_layers(p, pre, t, x, not siglip)
    x = layer_norm(p, pre + "final_layer_norm", x, t["layer_norm_eps"])[-1]
    return unit(linear(p, pre + "head", x, width, True) if siglip else linear(p, "text_projection", x, width))


def pair_case(c, _prefix, _head, _side):
    p, v, siglip = Params(), c["vision_config"], c["model_type"] == "siglip"
    width = v["hidden_size"] if siglip else c["projection_dim"]
    pixels = start("pixels", (B, 3, v["image_size"], v["image_size"]))
    texts = [[(5 * t + t * t + 3 * n) % c["text_config"]["vocab_size"] for t in range(length)] for n, length in enumerate((7, 4, 6))]
    images = np.array([pair_image(p, c, image, siglip, width) for image in pixels])
    embedded = np.array([pair_text(p, c, tokens, siglip, width) for tokens in texts])
    logits = images @ embedded.T * np.exp(p("logit_scale", *([1] if siglip else [])))
    if siglip:
        logits = logits + p("logit_bias", 1)
    padded = [tokens + [2] * (7 - len(tokens)) for tokens in texts]
    return p, {"pixels": pixels.shape, "tokens": padded, "lengths": [len(tokens) for tokens in texts]}, \
        {"embedding_image": images, "embedding": embedded, "logits": logits}


# ---- cases ----

VIT = {"model_type": "vit", "image_size": 12, "patch_size": 4, "num_channels": 3, "hidden_size": 16, "num_hidden_layers": 2,
       "num_attention_heads": 4, "intermediate_size": 20, "hidden_act": "gelu", "layer_norm_eps": 1e-12, "qkv_bias": True,
       "encoder_stride": 16, "initializer_range": 0.02}
LABELS = {"id2label": {"0": "cat", "1": "dog", "2": "house"}}
DINO = {**VIT, "model_type": "dinov2", "layer_norm_eps": 1e-6, "mlp_ratio": 2, "use_swiglu_ffn": False,
        "layerscale_value": 1.0, "drop_path_rate": 0.0}
del DINO["intermediate_size"]
TOWER = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 20}
CLIP = {"model_type": "clip", "projection_dim": 12, "logit_scale_init_value": 2.6592,
        "vision_config": {**TOWER, "image_size": 12, "patch_size": 4, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5,
                          "model_type": "clip_vision_model", "projection_dim": 12, "dropout": 0.0},
        "text_config": {**TOWER, "vocab_size": 31, "max_position_embeddings": 10, "hidden_act": "quick_gelu",
                        "layer_norm_eps": 1e-5, "eos_token_id": 2, "bos_token_id": 0, "model_type": "clip_text_model"}}
SIGLIP = {"model_type": "siglip",
          "vision_config": {**TOWER, "image_size": 14, "patch_size": 4, "hidden_act": "gelu_pytorch_tanh",
                            "layer_norm_eps": 1e-6, "model_type": "siglip_vision_model"},
          "text_config": {**TOWER, "vocab_size": 31, "max_position_embeddings": 10, "hidden_act": "gelu_pytorch_tanh",
                          "layer_norm_eps": 1e-6, "model_type": "siglip_text_model"}}

CASES = {  # function, config, prefix of names, head, side of the images if not the config's
    "vit": (image_case, {**VIT, **LABELS, "architectures": ["ViTForImageClassification"]}, "vit.", "one", 0),
    "vit_bare": (image_case, {**VIT, "qkv_bias": False, "hidden_act": "gelu_new"}, "", "", 0),
    "deit": (image_case, {**VIT, **LABELS, "model_type": "deit"}, "deit.", "two", 0),
    "deit_one": (image_case, {**VIT, **LABELS, "model_type": "deit"}, "deit.", "one", 0),
    "dinov2": (image_case, {**DINO, **LABELS}, "dinov2.", "one", 0),
    "dinov2_resized": (image_case, {**DINO, "image_size": 20, "use_swiglu_ffn": True}, "", "", 12),
    "clip": (pair_case, CLIP, "", "", 0),
    "siglip": (pair_case, SIGLIP, "", "", 0),
}


def main(folder):
    for name, (make, config, prefix, head, side) in CASES.items():
        p, inputs, outputs = make(config, prefix, head, side)
        with open(os.path.join(folder, name + ".json"), "w") as f:
            f.write('{"config":' + text(config) + ',\n"tensors":' + text({k: v.shape for k, v in p.items()}))
            for key, value in inputs.items():
                f.write(f',\n"{key}":' + text(value))
            for key, value in outputs.items():
                f.write(f',\n"{key}":' + numbers(value))
            f.write("}\n")


main(sys.argv[1])
