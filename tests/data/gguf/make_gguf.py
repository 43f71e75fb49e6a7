#!/usr/bin/env python3
"""Writes the GGUF files of tests/tools/test_gguf.c and what they must give.

    make_gguf.py [FOLDER]      default: the folder of this script

Standard library only, and nothing of Sinter: the writer and the formulas of the blocks follow
ggml's docs/gguf.md and block definitions, the models the published architectures as llama.cpp
computes them. formats.gguf has a tensor of each type, formats.safetensors the same values as f32.
NAME.gguf is a tiny model with random weights; NAME.json has token ids, the logits after the last of
them, and texts with their token ids.
"""
import json
import math
import os
import random
import struct
import sys

F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, BF16, MXFP4 = 0, 1, 2, 3, 6, 7, 8, 12, 13, 14, 30, 39
NAMES = {F32: "F32", F16: "F16", Q4_0: "Q4_0", Q4_1: "Q4_1", Q5_0: "Q5_0", Q5_1: "Q5_1",
         Q8_0: "Q8_0", Q4_K: "Q4_K", Q5_K: "Q5_K", Q6_K: "Q6_K", BF16: "BF16", MXFP4: "MXFP4"}


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def f16(x):
    return struct.unpack("<e", struct.pack("<e", x))[0]


def h(x):
    return struct.pack("<e", x)


# ---- quantisers: values to bytes. Any valid block will do; these round to the nearest ----

def clamp(x, lo, hi):
    return max(lo, min(hi, x))


def halves(q):
    """16 bytes: value j in the low half of byte j, value j + 16 in the high half."""
    return bytes(q[j] | q[j + 16] << 4 for j in range(16))


def q4_0(x):
    top = max(x, key=abs)
    d = f16(top / -8)
    return h(d) + halves([clamp(int(v / d + 8.5) if d else 8, 0, 15) for v in x])


def affine(x, levels):
    lo, hi = min(x), max(x)
    d, m = f16((hi - lo) / levels), f16(lo)
    return d, m, [clamp(int((v - m) / d + 0.5) if d else 0, 0, levels) for v in x]


def q4_1(x):
    d, m, q = affine(x, 15)
    return h(d) + h(m) + halves(q)


def fifth_bits(q):
    return struct.pack("<I", sum((v >> 4) << j for j, v in enumerate(q)))


def q5_0(x):
    top = max(x, key=abs)
    d = f16(top / -16)
    q = [clamp(int(v / d + 16.5) if d else 16, 0, 31) for v in x]
    return h(d) + fifth_bits(q) + halves([v & 15 for v in q])


def q5_1(x):
    d, m, q = affine(x, 31)
    return h(d) + h(m) + fifth_bits(q) + halves([v & 15 for v in q])


def q8_0(x):
    d = f16(max(abs(v) for v in x) / 127)
    return h(d) + bytes(clamp(round(v / d) if d else 0, -127, 127) & 255 for v in x)


def pack_scales(sc, mn):
    """Eight 6-bit scales and minimums in 12 bytes."""
    s = bytearray(12)
    for j in range(4):
        s[j] = sc[j] | (sc[j + 4] >> 4) << 6
        s[j + 4] = mn[j] | (mn[j + 4] >> 4) << 6
        s[j + 8] = (sc[j + 4] & 15) | (mn[j + 4] & 15) << 4
    return bytes(s)


def k_groups(x, levels):
    """d, dmin, scales, minimums and integers of 8 groups of 32: x = d sc q - dmin mn."""
    groups = [x[i:i + 32] for i in range(0, 256, 32)]
    lows = [max(0, -min(g)) for g in groups]
    steps = [(max(g) + low) / levels for g, low in zip(groups, lows)]
    d, dmin = f16(max(steps) / 63), f16(max(lows) / 63)
    sc = [clamp(round(s / d) if d else 0, 0, 63) for s in steps]
    mn = [clamp(round(v / dmin) if dmin else 0, 0, 63) for v in lows]
    q = []
    for g, s, m in zip(groups, sc, mn):
        q += [clamp(round((v + dmin * m) / (d * s)) if d * s else 0, 0, levels) for v in g]
    return d, dmin, pack_scales(sc, mn), q


def k_low(q):
    out = bytearray()
    for g in range(0, 256, 64):
        out += bytes((q[g + i] & 15) | (q[g + 32 + i] & 15) << 4 for i in range(32))
    return bytes(out)


def q4_k(x):
    d, dmin, scales, q = k_groups(x, 15)
    return h(d) + h(dmin) + scales + k_low(q)


def q5_k(x):
    d, dmin, scales, q = k_groups(x, 31)
    high = bytes(sum((q[g * 32 + i] >> 4) << g for g in range(8)) for i in range(32))
    return h(d) + h(dmin) + scales + high + k_low(q)


def q6_k(x):
    steps = [max(x[i:i + 16], key=abs) / -32 for i in range(0, 256, 16)]
    d = f16(max(steps, key=abs) / -128)
    sc = [clamp(round(s / d) if d else 0, -128, 127) for s in steps]
    q = [clamp(round(v / (d * sc[i // 16])) if d * sc[i // 16] else 0, -32, 31) + 32
         for i, v in enumerate(x)]
    low, high = bytearray(128), bytearray(64)
    for half in range(2):
        for i in range(32):
            v = [q[half * 128 + part * 32 + i] for part in range(4)]
            low[half * 64 + i] = (v[0] & 15) | (v[2] & 15) << 4
            low[half * 64 + 32 + i] = (v[1] & 15) | (v[3] & 15) << 4
            high[half * 32 + i] = sum((v[part] >> 4) << 2 * part for part in range(4))
    return bytes(low) + bytes(high) + struct.pack("<16b", *sc) + h(d)


# ---- the formulas: bytes to values, in f32 ----

def unhalve(b):
    return [v & 15 for v in b] + [v >> 4 for v in b]


def get(b, at):
    return struct.unpack_from("<e", b, at)[0]


def from_q4_0(b):
    return [f32((q - 8) * get(b, 0)) for q in unhalve(b[2:])]


def from_q4_1(b):
    return [f32(f32(q * get(b, 0)) + get(b, 2)) for q in unhalve(b[4:])]


def fives(high, b):
    return [q | (high >> j & 1) << 4 for j, q in enumerate(unhalve(b))]


def from_q5_0(b):
    return [f32((q - 16) * get(b, 0)) for q in fives(struct.unpack_from("<I", b, 2)[0], b[6:])]


def from_q5_1(b):
    return [f32(f32(q * get(b, 0)) + get(b, 2))
            for q in fives(struct.unpack_from("<I", b, 4)[0], b[8:])]


def from_q8_0(b):
    return [f32(q * get(b, 0)) for q in struct.unpack_from("<32b", b, 2)]


def scale_min(s, j):
    if j < 4:
        return s[j] & 63, s[j + 4] & 63
    return (s[j + 4] & 15) | (s[j - 4] >> 6) << 4, (s[j + 4] >> 4) | (s[j] >> 6) << 4


def from_k(b, low, high):
    d, dmin, out = get(b, 0), get(b, 2), []
    for g in range(8):
        sc, mn = scale_min(b[4:16], g)
        for i in range(32):
            byte = low[g // 2 * 32 + i]
            q = (byte >> 4 if g % 2 else byte & 15) | ((high[i] >> g & 1) << 4 if high else 0)
            out.append(f32(f32(f32(d * sc) * q) - f32(dmin * mn)))
    return out


def from_q4_k(b):
    return from_k(b, b[16:], None)


def from_q5_k(b):
    return from_k(b, b[48:], b[16:48])


def from_q6_k(b):
    d, out = get(b, 208), [0.0] * 256
    scales = struct.unpack_from("<16b", b, 192)
    for at in range(256):
        half, part, i = at // 128, at // 32 % 4, at % 32
        byte = b[half * 64 + part % 2 * 32 + i]
        low = byte & 15 if part < 2 else byte >> 4
        q = (low | (b[128 + half * 32 + i] >> 2 * part & 3) << 4) - 32
        out[at] = f32(f32(d * scales[at // 16]) * q)
    return out


FP4 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]


def mxfp4(x):
    """A power of two for all, and floats of 4 bits: sign, two bits of exponent, one of mantissa."""
    top = max(abs(v) for v in x)
    e = clamp(math.floor(math.log2(top)) - 2 + 127, 0, 254) if top else 0
    return bytes([e]) + halves([min(range(16), key=lambda q: abs(FP4[q] * 2.0 ** (e - 127) - v)) for v in x])


def from_mxfp4(b):
    return [f32(FP4[q] * 2.0 ** (b[0] - 127)) + 0.0 for q in unhalve(b[1:])]


# elements and bytes of a block, to bytes, to values
TYPES = {
    F32: (1, 4, lambda x: struct.pack("<f", x[0]), lambda b: list(struct.unpack("<f", b))),
    F16: (1, 2, lambda x: h(x[0]), lambda b: [get(b, 0)]),
    BF16: (1, 2, lambda x: struct.pack("<f", x[0])[2:],
           lambda b: list(struct.unpack("<f", b"\0\0" + b))),
    Q4_0: (32, 18, q4_0, from_q4_0), Q4_1: (32, 20, q4_1, from_q4_1),
    Q5_0: (32, 22, q5_0, from_q5_0), Q5_1: (32, 24, q5_1, from_q5_1),
    Q8_0: (32, 34, q8_0, from_q8_0), Q4_K: (256, 144, q4_k, from_q4_k),
    Q5_K: (256, 176, q5_k, from_q5_k), Q6_K: (256, 210, q6_k, from_q6_k),
    MXFP4: (32, 17, mxfp4, from_mxfp4),
}


def encode(kind, values):
    n, size, to, _ = TYPES[kind]
    out = b"".join(to(values[i:i + n]) for i in range(0, len(values), n))
    assert len(out) == len(values) // n * size
    return out


def decode(kind, data):
    _, size, _, back = TYPES[kind]
    out = []
    for i in range(0, len(data), size):
        out += back(data[i:i + size])
    return out


# ---- the container ----

def string(s):
    b = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(b)) + b


U32, I32, FLOAT, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
SCALAR = {U32: "<I", I32: "<i", FLOAT: "<f", BOOL: "<?"}


def value(kind, v):
    return string(v) if kind == STRING else struct.pack(SCALAR[kind], v)


def guess(v):
    return (BOOL if isinstance(v, bool) else U32 if isinstance(v, int) else
            FLOAT if isinstance(v, float) else STRING)


def key(name, v):
    if isinstance(v, tuple):  # (type, list)
        return (string(name) + struct.pack("<IIQ", ARRAY, v[0], len(v[1])) +
                b"".join(value(v[0], x) for x in v[1]))
    return string(name) + struct.pack("<I", guess(v)) + value(guess(v), v)


def write_gguf(path, keys, tensors, version=3, alignment=32):
    """tensors: name -> (shape, slowest first; type; bytes)"""
    def pad(n):
        return b"\0" * (-n % alignment)
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys))
    head += b"".join(key(k, v) for k, v in keys.items())
    body = b""
    for name, (shape, kind, data) in tensors.items():
        head += string(name) + struct.pack("<I", len(shape))
        head += b"".join(struct.pack("<Q", n) for n in reversed(shape))
        head += struct.pack("<IQ", kind, len(body))
        body += data + pad(len(data))
    with open(path, "wb") as f:
        f.write(head + pad(len(head)) + body)


def write_safetensors(path, tensors):
    """name -> (shape, values)"""
    head, body = {}, b""
    for name, (shape, values) in tensors.items():
        data = struct.pack("<%df" % len(values), *values)
        head[name] = {"dtype": "F32", "shape": shape,
                      "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + body)


def write_formats(folder):
    rng = random.Random(1)
    tensors, expected = {}, {}
    for kind, (n, size, _, _) in TYPES.items():
        shape = [2, 32] if n == 1 else [2, 2 * n] if n == 32 else [2, n]
        count = shape[0] * shape[1]
        data = bytearray(encode(kind, [rng.gauss(0, 1) for _ in range(count)]))
        if n > 1:  # the second half: arbitrary bits, with finite factors
            blocks = count // n
            for b in range(blocks // 2, blocks):
                raw = bytearray(rng.randbytes(size))
            if kind == MXFP4:
                raw[0] = (0, 1, 2, 252)[b % 4]
                for at in ([208] if kind == Q6_K else
                           [] if kind == MXFP4 else
                       [0, 2] if kind in (Q4_1, Q5_1, Q4_K, Q5_K) else [0]):
                    raw[at:at + 2] = h(rng.gauss(0, 0.01))
                data[b * size:(b + 1) * size] = raw
        tensors[NAMES[kind]] = (shape, kind, bytes(data))
        expected[NAMES[kind]] = (shape, decode(kind, bytes(data)))
    write_gguf(os.path.join(folder, "formats.gguf"),
               {"general.architecture": "none", "general.alignment": 64}, tensors, 2, 64)
    write_safetensors(os.path.join(folder, "formats.safetensors"), expected)


# ---- models ----

def matvec(w, x):
    return [sum(a * b for a, b in zip(row, x)) for row in w]


def add(x, y):
    return [a + b for a, b in zip(x, y)]


def softmax(x):
    top = max(x)
    e = [math.exp(v - top) for v in x]
    total = sum(e)
    return [v / total for v in e]


def silu(v):
    return v / (1 + math.exp(-v))


def gelu_tanh(v):
    return 0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v ** 3)))


def cap(v, c):
    return c * math.tanh(v / c) if c else v


class Model:
    """A decoder by GGUF's names. The options are what the architectures differ in."""

    def __init__(self, arch, rng, kinds, d=32, heads=2, kv_heads=2, d_head=None, mlp=64, layers=2,
                 context=32, vocab=None, eps=1e-5, base=10000.0, norm="rms", rope="adjacent",
                 act=silu, gated=True, biases=(), qk_norm=False, tied=False, scale=1.0,
                 fused=False, extra=None, factors=None, post_norms=False, score_cap=0.0,
                 logit_cap=0.0, window=0, full_every=0, local_base=0.0):
        self.__dict__.update(locals())
        self.d_head = d_head or d // heads
        self.tensors, self.w = {}, {}
        self.vocab_size = len(vocab["tokenizer.ggml.tokens"][1])
        self.make()

    def tensor(self, name, rows, cols=None, around=0.0, spread=None):
        shape = [rows, cols] if cols else [rows]
        n = rows * (cols or 1)
        kind = self.kinds(name) if cols else F32
        spread = spread or (1.5 / math.sqrt(cols) if cols else 0.2)
        data = encode(kind, [self.rng.gauss(around, spread) for _ in range(n)])
        self.tensors[name] = (shape, kind, data)
        v = decode(kind, data)
        self.w[name] = [v[i * cols:(i + 1) * cols] for i in range(rows)] if cols else v

    def linear(self, name, rows, cols):
        self.tensor(name + ".weight", rows, cols)
        if name.split(".")[-1] in self.biases:
            self.tensor(name + ".bias", rows)

    def norm_weights(self, name, n):
        self.tensor(name + ".weight", n, around=1.0)
        if self.norm == "layer":
            self.tensor(name + ".bias", n)

    def make(self):
        q, kv = self.heads * self.d_head, self.kv_heads * self.d_head
        self.tensor("token_embd.weight", self.vocab_size, self.d, spread=1.0)
        if self.factors:
            self.w["rope_freqs.weight"] = self.factors
            self.tensors["rope_freqs.weight"] = (
                [len(self.factors)], F32, struct.pack("<%df" % len(self.factors), *self.factors))
        if self.rope is None:
            self.tensor("position_embd.weight", self.context, self.d, spread=0.5)
        for i in range(self.layers):
            b = "blk.%d." % i
            self.norm_weights(b + "attn_norm", self.d)
            if self.fused:
                self.linear(b + "attn_qkv", q + 2 * kv, self.d)
            else:
                self.linear(b + "attn_q", q, self.d)
                self.linear(b + "attn_k", kv, self.d)
                self.linear(b + "attn_v", kv, self.d)
            if self.qk_norm:
                self.tensor(b + "attn_q_norm.weight", self.d_head, around=1.0)
                self.tensor(b + "attn_k_norm.weight", self.d_head, around=1.0)
            self.linear(b + "attn_output", self.d, q)
            if self.post_norms:
                self.norm_weights(b + "post_attention_norm", self.d)
                self.norm_weights(b + "post_ffw_norm", self.d)
            self.norm_weights(b + "ffn_norm", self.d)
            if self.gated and not self.fused:
                self.linear(b + "ffn_gate", self.mlp, self.d)
            self.linear(b + "ffn_up", self.mlp * (2 if self.gated and self.fused else 1), self.d)
            self.linear(b + "ffn_down", self.d, self.mlp)
        self.norm_weights("output_norm", self.d)
        if not self.tied:
            self.tensor("output.weight", self.vocab_size, self.d)

    # the forward pass, in double precision

    def apply(self, name, x):
        y = matvec(self.w[name + ".weight"], x)
        return add(y, self.w[name + ".bias"]) if name + ".bias" in self.w else y

    def rms(self, x, w):
        r = 1 / math.sqrt(sum(v * v for v in x) / len(x) + self.eps)
        return [v * r * g for v, g in zip(x, w)]

    def normalise(self, name, x):
        w = self.w[name + ".weight"]
        if self.norm == "rms":
            return self.rms(x, w)
        mean = sum(x) / len(x)
        r = 1 / math.sqrt(sum((v - mean) ** 2 for v in x) / len(x) + self.eps)
        return [(v - mean) * r * g + b for v, g, b in zip(x, w, self.w[name + ".bias"])]

    def local(self, layer):
        return self.window and not (self.full_every and (layer + 1) % self.full_every == 0)

    def rotate(self, x, pos, base):
        n, out = len(x), list(x)
        for i in range(n // 2):
            a, b = (2 * i, 2 * i + 1) if self.rope == "adjacent" else (i, i + n // 2)
            angle = pos * base ** (-2 * i / n) / (self.factors[i] if self.factors else 1)
            c, s = math.cos(angle), math.sin(angle)
            out[a], out[b] = x[a] * c - x[b] * s, x[a] * s + x[b] * c
        return out

    def heads_of(self, x, n, name, pos, base):
        parts = [x[i * self.d_head:(i + 1) * self.d_head] for i in range(n)]
        if name and self.qk_norm:
            parts = [self.rms(p, self.w[name + ".weight"]) for p in parts]
        return [self.rotate(p, pos, base) for p in parts] if name and self.rope else parts

    def qkv(self, b, x, pos, base):
        if self.fused:
            y = self.apply(b + "attn_qkv", x)
            q, kv = self.heads * self.d_head, self.kv_heads * self.d_head
            parts = y[:q], y[q:q + kv], y[q + kv:]
        else:
            parts = [self.apply(b + "attn_" + n, x) for n in "qkv"]
        return (self.heads_of(parts[0], self.heads, b + "attn_q_norm", pos, base),
                self.heads_of(parts[1], self.kv_heads, b + "attn_k_norm", pos, base),
                self.heads_of(parts[2], self.kv_heads, None, pos, base))

    def feed(self, b, x):
        up = self.apply(b + "ffn_up", x)
        if not self.gated:
            return self.apply(b + "ffn_down", [self.act(v) for v in up])
        gate = up[:self.mlp] if self.fused else self.apply(b + "ffn_gate", x)
        up = up[self.mlp:] if self.fused else up
        return self.apply(b + "ffn_down", [self.act(g) * u for g, u in zip(gate, up)])

    def logits(self, tokens):
        xs = [[v * self.scale for v in self.w["token_embd.weight"][t]] for t in tokens]
        if self.rope is None:
            xs = [add(x, self.w["position_embd.weight"][p]) for p, x in enumerate(xs)]
        for i in range(self.layers):
            b = "blk.%d." % i
            base = self.local_base if self.local(i) and self.local_base else self.base
            qkv = [self.qkv(b, self.normalise(b + "attn_norm", x), p, base)
                   for p, x in enumerate(xs)]
            for p, x in enumerate(xs):
                y = []
                for head in range(self.heads):
                    k = head * self.kv_heads // self.heads
                    q = qkv[p][0][head]
                    seen = range(max(0, p + 1 - self.window) if self.local(i) else 0, p + 1)
                    a = softmax([cap(sum(u * v for u, v in zip(q, qkv[s][1][k])) /
                                     math.sqrt(self.d_head), self.score_cap) for s in seen])
                    y += [sum(e * qkv[s][2][k][c] for e, s in zip(a, seen))
                          for c in range(self.d_head)]
                x = add(x, self.after(b + "post_attention_norm", self.apply(b + "attn_output", y)))
                y = self.feed(b, self.normalise(b + "ffn_norm", x))
                xs[p] = add(x, self.after(b + "post_ffw_norm", y))
        x = self.normalise("output_norm", xs[-1])
        return [cap(v, self.logit_cap) for v in
                matvec(self.w["token_embd.weight" if self.tied else "output.weight"], x)]

    def after(self, name, x):
        return self.normalise(name, x) if self.post_norms else x

    def keys(self):
        a = self.arch + "."
        eps = "attention.layer_norm_rms_epsilon" if self.norm == "rms" else \
            "attention.layer_norm_epsilon"
        out = {"general.architecture": self.arch, "general.name": "tiny " + self.arch,
               "general.file_type": 2, "general.quantization_version": 2,
               a + "context_length": self.context, a + "embedding_length": self.d,
               a + "block_count": self.layers, a + "feed_forward_length": self.mlp,
               a + "attention.head_count": self.heads, a + eps: self.eps}
        if self.arch == "qwen2":
            out["tokenizer.chat_template"] = "{% for m in messages %}{{ m['content'] }} the{% endfor %}"
        if self.rope:
            out[a + "attention.head_count_kv"] = self.kv_heads
            out[a + "rope.freq_base"] = self.base
            if self.d_head * self.heads == self.d:
                out[a + "rope.dimension_count"] = self.d_head
            else:
                out[a + "attention.key_length"] = self.d_head
                out[a + "attention.value_length"] = self.d_head
        out.update(self.extra or {})
        out.update(self.vocab)
        return out


class Bert(Model):
    """An encoder: norms after the sums, every token sees all others."""

    def make(self):
        self.tensor("token_embd.weight", self.vocab_size, self.d, spread=0.5)
        self.tensor("position_embd.weight", self.context, self.d, spread=0.5)
        self.tensor("token_types.weight", 2, self.d, spread=0.5)
        self.norm_weights("token_embd_norm", self.d)
        for i in range(self.layers):
            b = "blk.%d." % i
            for n in ("attn_q", "attn_k", "attn_v", "attn_output"):
                self.linear(b + n, self.d, self.d)
            self.norm_weights(b + "attn_output_norm", self.d)
            self.linear(b + "ffn_up", self.mlp, self.d)
            self.linear(b + "ffn_down", self.d, self.mlp)
            self.norm_weights(b + "layer_output_norm", self.d)

    def logits(self, tokens):
        """The last layer's states, one token after the other."""
        types = self.w["token_types.weight"][0]
        xs = [self.normalise("token_embd_norm", add(add(
            self.w["token_embd.weight"][t], self.w["position_embd.weight"][p]), types))
            for p, t in enumerate(tokens)]
        for i in range(self.layers):
            b = "blk.%d." % i
            qkv = [self.qkv(b, x, p, 0) for p, x in enumerate(xs)]
            for p, x in enumerate(xs):
                y = []
                for k in range(self.heads):
                    a = softmax([sum(u * v for u, v in zip(qkv[p][0][k], qkv[s][1][k])) /
                                 math.sqrt(self.d_head) for s in range(len(xs))])
                    y += [sum(a[s] * qkv[s][2][k][c] for s in range(len(xs)))
                          for c in range(self.d_head)]
                x = self.normalise(b + "attn_output_norm",
                                   add(x, self.apply(b + "attn_output", y)))
                xs[p] = self.normalise(b + "layer_output_norm", add(x, self.feed(b, x)))
        return [v for x in xs for v in x]


# ---- vocabularies ----

def llama_vocab(extra=()):
    extra = list(extra)
    words = ["▁the", "▁cat", "▁sat", "▁on", "▁mat", "▁Hello", "▁wor", "ld"]
    tokens, scores, types = ["<unk>", "<s>", "</s>"], [0.0] * 3, [2, 3, 3]
    for b in range(256):
        tokens.append("<0x%02X>" % b)
        scores.append(0.0)
        types.append(6)
    pieces = set()
    for w in words:  # every prefix, so that merges reach the word
        for n in range(2, len(w) + 1):
            pieces.add(w[:n])
    letters = sorted(set("".join(words)))
    for rank, p in enumerate(sorted(pieces, key=lambda p: (-len(p), p)) + letters):
        tokens.append(p)
        scores.append(-float(rank))
        types.append(1)
    tokens += ["<|im_start|>", "[tool]"] + extra
    scores += [0.0, 0.0] + [0.0] * len(extra)
    types += [3, 4] + [3] * len(extra)
    return {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": (STRING, tokens),
            "tokenizer.ggml.scores": (FLOAT, scores),
            "tokenizer.ggml.token_type": (I32, types), "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.unknown_token_id": 0,
            "tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_eos_token": False}


def encode_llama(vocab, text):
    """Naive SentencePiece BPE: merge the best scored neighbours until there are none."""
    ids = {t: i for i, t in enumerate(vocab["tokenizer.ggml.tokens"][1])}
    scores = vocab["tokenizer.ggml.scores"][1]
    types = vocab["tokenizer.ggml.token_type"][1]
    parts = list("▁" + text.replace(" ", "▁")) if text else []
    while True:
        best = None
        for i in range(len(parts) - 1):
            both = parts[i] + parts[i + 1]
            if both in ids and types[ids[both]] == 1:
                if best is None or scores[ids[both]] > scores[ids[parts[best] + parts[best + 1]]]:
                    best = i
        if best is None:
            break
        parts[best:best + 2] = [parts[best] + parts[best + 1]]
    out = []
    for p in parts:
        out += [ids[p]] if p in ids else [3 + b for b in p.encode()]
    return out


def letters():
    """GPT-2's printable letter of each byte."""
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    out, extra = {}, 0
    for b in range(256):
        out[b] = chr(b) if b in keep else chr(256 + extra)
        extra += b not in keep
    return out


MERGES = [("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("Ġ", "c"), ("a", "t"), ("Ġc", "at"), ("1", "2"),
          ("H", "e"), ("l", "l"), ("He", "ll"), ("Hell", "o")]


def gpt2_vocab(pre):
    tokens = [letters()[b] for b in range(256)] + [a + b for a, b in MERGES]
    types = [1] * len(tokens) + [3]
    tokens.append("<|endoftext|>")
    return {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre,
            "tokenizer.ggml.tokens": (STRING, tokens), "tokenizer.ggml.token_type": (I32, types),
            "tokenizer.ggml.merges": (STRING, [a + " " + b for a, b in MERGES]),
            "tokenizer.ggml.bos_token_id": len(tokens) - 1,
            "tokenizer.ggml.eos_token_id": len(tokens) - 1}


def encode_gpt2(vocab, pieces):
    """pieces: the words that the pattern gives, split by hand."""
    ids = {t: i for i, t in enumerate(vocab["tokenizer.ggml.tokens"][1])}
    out = []
    for piece in pieces:
        parts = [letters()[b] for b in piece.encode()]
        for a, b in MERGES:
            i = 0
            while i + 1 < len(parts):
                if (parts[i], parts[i + 1]) == (a, b):
                    parts[i:i + 2] = [a + b]
                i += 1
        out += [ids[p] for p in parts]
    return out


def bert_vocab():
    words = ["the", "cat", "##s", "sat", "un", "##able", ",", "a", "##b"]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    # converters drop "##" and mark the first piece of a word
    tokens = special + [w[2:] if w.startswith("##") else "▁" + w for w in words]
    tokens += ["▁<t%d>" % i for i in range(259 - len(tokens))]
    return {"tokenizer.ggml.model": "bert", "tokenizer.ggml.tokens": (STRING, tokens),
            "tokenizer.ggml.token_type": (I32, [3] * 5 + [1] * (len(tokens) - 5)),
            "tokenizer.ggml.unknown_token_id": 1, "tokenizer.ggml.seperator_token_id": 3,
            "tokenizer.ggml.padding_token_id": 0, "tokenizer.ggml.cls_token_id": 2,
            "tokenizer.ggml.mask_token_id": 4}


# ---- the files ----

def write_model(folder, name, model, texts):
    tokens = [1, 5, 70, 200, 9, 258, 31]
    write_gguf(os.path.join(folder, name + ".gguf"), model.keys(), model.tensors)
    with open(os.path.join(folder, name + ".json"), "w") as f:
        json.dump({"tokens": tokens, "logits": [float("%.9g" % v) for v in model.logits(tokens)],
                   "texts": [{"text": t, "ids": ids} for t, ids in texts]}, f)
        f.write("\n")


def mixed(name):
    """A type for each matrix of 32 columns, and the K types for rows of 256."""
    for part, kind in (("attn_q.", Q4_0), ("attn_k.", F16), ("attn_v.", BF16),
                       ("attn_output", Q5_1), ("ffn_gate", Q4_1), ("ffn_up", Q5_0),
                       ("0.ffn_down", Q4_K), ("1.ffn_down", Q6_K),
                       ("output", Q8_0), ("token_embd", Q8_0)):
        if part in name:
            return kind
    return F32


def plain(name):
    """Three types, and smaller files."""
    return Q8_0 if "embd" in name else Q4_0 if "ffn" in name else F16


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    write_formats(folder)
    v = llama_vocab()
    write_model(folder, "llama", Model("llama", random.Random(2), mixed, kv_heads=1, mlp=256,
                                       vocab=v),
                [(t, encode_llama(v, t)) for t in
                 ("the cat sat on the mat", "Hello world", "", " the", "caté\n")])
    small = {"d": 32, "tied": True, "layers": 1, "rope": "halves"}
    write_model(folder, "gemma", Model(
        "gemma", random.Random(4), plain, vocab=v, scale=math.sqrt(32), act=gelu_tanh, d_head=24,
        **small), [])
    gemma2 = {"post_norms": True, "full_every": 2, "window": 3, "scale": math.sqrt(32),
              "act": gelu_tanh, "vocab": v}
    write_model(folder, "gemma2", Model(
        "gemma2", random.Random(5), plain, score_cap=5.0, logit_cap=30.0,
        extra={"gemma2.attention.sliding_window": 3, "gemma2.attn_logit_softcapping": 5.0,
               "gemma2.final_logit_softcapping": 30.0}, **{**small, "layers": 2}, **gemma2), [])
    write_model(folder, "gemma3", Model(
        "gemma3", random.Random(6), plain, qk_norm=True, base=1e6, local_base=10000.0,
        extra={"gemma3.attention.sliding_window": 3},
        **{**gemma2, "full_every": 6}, **{**small, "layers": 6, "mlp": 32}), [])
    write_model(folder, "phi3", Model("phi3", random.Random(7), plain, fused=True,
                                      vocab=llama_vocab(["<|endoftext|>"]), **small), [])
    words = ["Hello", " the", " cat", "'s", " ", "1", "2", "?\n\n", " the"]
    v = gpt2_vocab("qwen2")
    write_model(folder, "qwen2", Model("qwen2", random.Random(8), plain, vocab=v, kv_heads=1,
                                       base=1e6, biases=("attn_q", "attn_k", "attn_v"), **small),
                [("".join(words), encode_gpt2(v, words))])
    write_model(folder, "qwen3", Model("qwen3", random.Random(9), plain, vocab=v, d_head=24,
                                       qk_norm=True, **small), [])
    words[5:7] = ["12"]
    v = gpt2_vocab("llama-bpe")
    write_model(folder, "llama3", Model(
        "llama", random.Random(10), plain, vocab=v, base=500000.0,
        factors=[1.0, 1.0, 1.5, 2.25, 4.0, 8.0, 8.0, 8.0], **{**small, "rope": "adjacent"}),
                [("".join(words), encode_gpt2(v, words))])
    linears = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_down")
    write_model(folder, "bert", Bert(
        "bert", random.Random(11), plain, vocab=bert_vocab(), norm="layer", rope=None, gated=False,
        act=lambda v: v * (1 + math.erf(v / math.sqrt(2))) / 2, layers=2, biases=linears,
        extra={"bert.attention.causal": False, "bert.pooling_type": 1}),
                [("the cats sat unable", [5, 6, 7, 8, 9, 10])])
    v = gpt2_vocab("gpt-2")
    words = ["Hello", " the", " cat", "'s", " 12", "?", "\n", " ", " the"]
    write_model(folder, "gpt2", Model("gpt2", random.Random(3), plain, vocab=v, norm="layer",
                                      rope=None, act=gelu_tanh, gated=False, fused=True, tied=True,
                                      biases=("attn_qkv", "attn_output", "ffn_up", "ffn_down")),
                [("".join(words), encode_gpt2(v, words)), ("", [])])


if __name__ == "__main__":
    main()
