#!/usr/bin/env python3
"""Writes a llama folder with random bf16 weights, in shards, to measure memory and loading.

    bench/make_llama.py DIR [--size 15M|0.2B|1.1B|7B] [--tied] [--context N] [--dtype BF16|F32] [--shards N]

Needs nothing but Python. The numbers are random, so the text that such a model makes is noise.
"""
import argparse
import array
import json
import os
import random
import struct

SIZES = {  # width, layers, heads, key heads, mlp, vocabulary
    "tiny": (64, 2, 4, 2, 176, 512),
    "15M": (288, 6, 6, 6, 768, 32000),
    "0.2B": (1024, 12, 16, 4, 2816, 32000),
    "1.1B": (2048, 22, 32, 4, 5632, 32000),
    "7B": (4096, 32, 32, 32, 11008, 32000),
}
BLOCK = 1 << 20  # numbers that are drawn; tensors take them from different places


def tensors(d, layers, heads, key_heads, mlp, vocab, tied):
    head = d // heads
    yield "model.embed_tokens.weight", (vocab, d)
    for i in range(layers):
        p = f"model.layers.{i}."
        yield p + "input_layernorm.weight", (d,)
        yield p + "self_attn.q_proj.weight", (d, d)
        yield p + "self_attn.k_proj.weight", (key_heads * head, d)
        yield p + "self_attn.v_proj.weight", (key_heads * head, d)
        yield p + "self_attn.o_proj.weight", (d, d)
        yield p + "post_attention_layernorm.weight", (d,)
        yield p + "mlp.gate_proj.weight", (mlp, d)
        yield p + "mlp.up_proj.weight", (mlp, d)
        yield p + "mlp.down_proj.weight", (d, mlp)
    yield "model.norm.weight", (d,)
    if not tied:
        yield "lm_head.weight", (vocab, d)


def make_numbers(dtype):
    """A block of random numbers with standard deviation 0.02, and their size in bytes."""
    f = array.array("f", (random.gauss(0, 0.02) for _ in range(BLOCK)))
    if dtype == "F32":
        return f.tobytes(), 4
    return bf16(f), 2


def bf16(f):
    """bf16: the upper halves of f32 numbers."""
    raw = f.tobytes()
    out = bytearray(len(raw) // 2)
    out[0::2] = raw[2::4]
    out[1::2] = raw[3::4]
    return bytes(out)


def write_shard(path, part, block, size, dtype):
    header, at = {}, 0
    for name, shape in part:
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + count * size]}
        at += count * size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for name, _ in part:
            begin, end = header[name]["data_offsets"]
            left, start = end - begin, random.randrange(BLOCK) * size
            while left:
                piece = block[start:start + left]
                f.write(piece)
                left -= len(piece)
                start = 0
    return at


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    a.add_argument("dir")
    a.add_argument("--size", choices=SIZES, default="0.2B")
    a.add_argument("--dtype", choices=("BF16", "F32"), default="BF16")
    a.add_argument("--shards", type=int, default=3)
    a.add_argument("--context", type=int, default=2048)
    a.add_argument("--tied", action="store_true")
    o = a.parse_args()
    random.seed(1)
    d, layers, heads, key_heads, mlp, vocab = SIZES[o.size]
    os.makedirs(o.dir, exist_ok=True)
    block, size = make_numbers(o.dtype)
    every = list(tensors(d, layers, heads, key_heads, mlp, vocab, o.tied))
    weight_map, total = {}, 0
    for i in range(o.shards):
        part = every[len(every) * i // o.shards:len(every) * (i + 1) // o.shards]
        name = f"model-{i + 1:05}-of-{o.shards:05}.safetensors"
        total += write_shard(os.path.join(o.dir, name), part, block, size, o.dtype)
        weight_map.update((t, name) for t, _ in part)
    with open(os.path.join(o.dir, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {"total_size": total}, "weight_map": weight_map}, f)
    config = {"model_type": "llama", "hidden_size": d, "num_hidden_layers": layers,
              "num_attention_heads": heads, "num_key_value_heads": key_heads,
              "intermediate_size": mlp, "vocab_size": vocab, "max_position_embeddings": o.context,
              "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": o.tied,
              "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2}
    with open(os.path.join(o.dir, "config.json"), "w") as f:
        json.dump(config, f, indent=1)


if __name__ == "__main__":
    main()
