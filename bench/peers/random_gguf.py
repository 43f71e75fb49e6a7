#!/usr/bin/env python3
"""Writes a GGUF file of a Llama with random weights, to measure speed with.

    random_gguf.py FILE FORMAT [WIDTH [LAYERS [VOCABULARY]]]

FORMAT: F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K or Q6_K, for all matrices. Default: width
1024, 22 layers, 32000 tokens: 311 million parameters. The blocks hold random integers; their factors
give the values a standard deviation of about 0.02. Written tensor by tensor. Needs NumPy.
"""
import struct
import sys

import numpy as np

rng = np.random.default_rng(1)
HEAD = 64


def f16(x, n):
    return np.full((n, 1), x, np.float16).view(np.uint8)


def noise(n, size):
    return rng.integers(0, 256, (n, size), np.uint8)


def whole(n, kind):
    x = rng.standard_normal(n, np.float32) * np.float32(0.02)
    return x.astype(np.float16) if kind == "F16" else (x.view(np.uint32) >> 16).astype(np.uint16)


def block_k(n, size):
    """d, dmin, 12 bytes of 6-bit factors (mean 32) and minima, the integers."""
    return np.hstack([f16(0.02 / 150, n), f16(0.02 * 7.5 / 150 if size == 144 else 0.02 * 15.5 / 150, n),
                      noise(n, size - 4)])


# number in files, values and bytes of a block, n blocks
FORMATS = {
    "F16": (1, 1, 2, lambda n: whole(n, "F16")),
    "BF16": (30, 1, 2, lambda n: whole(n, "BF16")),
    "Q8_0": (8, 32, 34, lambda n: np.hstack([f16(0.02 / 74, n), noise(n, 32)])),
    "Q4_0": (2, 32, 18, lambda n: np.hstack([f16(0.02 / 4.6, n), noise(n, 16)])),
    "Q4_1": (3, 32, 20, lambda n: np.hstack([f16(0.02 / 4.6, n), f16(-0.02 * 7.5 / 4.6, n), noise(n, 16)])),
    "Q5_0": (6, 32, 22, lambda n: np.hstack([f16(0.02 / 9.2, n), noise(n, 20)])),
    "Q5_1": (7, 32, 24, lambda n: np.hstack([f16(0.02 / 9.2, n), f16(-0.02 * 15.5 / 9.2, n), noise(n, 20)])),
    "Q4_K": (12, 256, 144, lambda n: block_k(n, 144)),
    "Q5_K": (13, 256, 176, lambda n: block_k(n, 176)),
    "Q6_K": (14, 256, 210, lambda n: np.hstack([noise(n, 208), f16(0.02 / 18.5 / 74, n)])),
}


def string(s):
    b = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(b)) + b


def key(name, kind, value):
    return string(name) + struct.pack("<I", kind) + value


def number(name, v):
    return key(name, 6, struct.pack("<f", v)) if isinstance(v, float) else key(name, 4, struct.pack("<I", v))


def vocabulary(n):
    tokens = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % i for i in range(256)]
    tokens += ["▁w%d" % i for i in range(n - len(tokens))]
    kinds = [2, 3, 3] + [6] * 256 + [1] * (n - 259)
    head = lambda kind: struct.pack("<IQ", kind, n)
    return [key("tokenizer.ggml.model", 8, string("llama")),
            key("tokenizer.ggml.tokens", 9, head(8) + b"".join(map(string, tokens))),
            key("tokenizer.ggml.scores", 9, head(6) + struct.pack("<%df" % n, *(-float(i) for i in range(n)))),
            key("tokenizer.ggml.token_type", 9, head(5) + struct.pack("<%di" % n, *kinds)),
            number("tokenizer.ggml.bos_token_id", 1), number("tokenizer.ggml.eos_token_id", 2)]


def main(path, kind, width=1024, layers=22, vocab=32000):
    width, layers, vocab = int(width), int(layers), int(vocab)
    heads, wide = width // HEAD, width * 11 // 4
    keys = [key("general.architecture", 8, string("llama")),
            number("llama.context_length", 2048), number("llama.embedding_length", width),
            number("llama.block_count", layers), number("llama.feed_forward_length", wide),
            number("llama.attention.head_count", heads), number("llama.attention.head_count_kv", max(heads // 4, 1)),
            number("llama.rope.dimension_count", HEAD), number("llama.rope.freq_base", 10000.0),
            number("llama.attention.layer_norm_rms_epsilon", 1e-5)] + vocabulary(vocab)
    kv = HEAD * max(heads // 4, 1)
    tensors = [("token_embd", vocab, width), ("output_norm", 1, width), ("output", vocab, width)]
    for i in range(layers):
        tensors += [("blk.%d.%s" % (i, n), a, b) for n, a, b in
                    [("attn_norm", 1, width), ("attn_q", width, width), ("attn_k", kv, width), ("attn_v", kv, width),
                     ("attn_output", width, width), ("ffn_norm", 1, width), ("ffn_gate", wide, width),
                     ("ffn_up", wide, width), ("ffn_down", width, wide)]]
    info, at, size = b"", 0, []
    for name, rows, columns in tensors:
        number_of, each, bytes_of, _ = FORMATS[kind] if rows > 1 else (0, 1, 4, None)
        size.append(rows * columns // each * bytes_of)
        shape = struct.pack("<IQQ", 2, columns, rows) if rows > 1 else struct.pack("<IQ", 1, columns)
        info += string(name + ".weight") + shape + struct.pack("<IQ", number_of, at)
        at += (size[-1] + 31) // 32 * 32
    with open(path, "wb") as f:
        f.write(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys) + info)
        f.write(bytes(-f.tell() % 32))
        for (name, rows, columns), n in zip(tensors, size):
            _, each, _, make = FORMATS[kind]
            count = rows * columns
            (make(count // each) if rows > 1 else np.ones(count, np.float32)).tofile(f)
            f.write(bytes(-n % 32))


if len(sys.argv) < 3 or sys.argv[2] not in FORMATS:
    sys.exit(__doc__)
main(*sys.argv[1:])
