#!/usr/bin/env python3
"""Writes the GGUF files with experts of tests/tools/test_gguf.c: see make_gguf.py.

    make_expert_gguf.py [FOLDER]      default: the folder of this script

Mixtral (architecture llama) with the experts of a layer in one tensor, the same with a tensor for each
as older files have them, Qwen 2 MoE with a shared expert, and Qwen 3 MoE.
"""
import math
import os
import random
import sys

import make_gguf as g

EXPERTS, USED = 4, 2


class Sparse(g.Model):
    """A decoder whose MLPs are mixtures of experts. merged: a layer's experts are one tensor."""

    def __init__(self, *args, merged=True, shared=0, normed=True, **options):
        self.merged, self.shared, self.normed = merged, shared, normed
        super().__init__(*args, **options)

    def linear(self, name, rows, cols):
        block, part = name.rsplit(".", 1)
        if not part.startswith("ffn_"):
            super().linear(name, rows, cols)
            return
        if part == "ffn_gate":
            self.tensor(block + ".ffn_gate_inp.weight", EXPERTS, cols)
            if self.shared:
                self.tensor(block + ".ffn_gate_inp_shexp.weight", 1, cols)
                shape, kind, data = self.tensors[block + ".ffn_gate_inp_shexp.weight"]
                self.tensors[block + ".ffn_gate_inp_shexp.weight"] = (shape[1:], kind, data)
        if self.shared:
            size = {"ffn_down": (rows, self.shared)}.get(part, (self.shared, cols))
            self.tensor(name + "_shexp.weight", *size)
        for e in range(EXPERTS):
            self.tensor(name + ".%d.weight" % e, rows, cols)
        if self.merged:
            parts = [self.tensors.pop(name + ".%d.weight" % e) for e in range(EXPERTS)]
            self.tensors[name + "_exps.weight"] = (
                [EXPERTS, rows, cols], parts[0][1], b"".join(p[2] for p in parts))

    def expert(self, b, end, x):
        gate, up = self.apply(b + "ffn_gate" + end, x), self.apply(b + "ffn_up" + end, x)
        return self.apply(b + "ffn_down" + end, [g.silu(u) * v for u, v in zip(gate, up)])

    def feed(self, b, x):
        p = g.softmax(self.apply(b + "ffn_gate_inp", x))
        best = sorted(range(EXPERTS), key=lambda e: -p[e])[:USED]
        total = sum(p[e] for e in best) if self.normed else 1
        y = [0.0] * self.d
        for e in best:
            y = g.add(y, [v * p[e] / total for v in self.expert(b, ".%d" % e, x)])
        if self.shared:
            factor = 1 / (1 + math.exp(-self.apply(b + "ffn_gate_inp_shexp", x)[0]))
            y = g.add(y, [v * factor for v in self.expert(b, "_shexp", x)])
        return y

    def keys(self):
        a = self.arch + "."
        return {**super().keys(), a + "expert_count": EXPERTS, a + "expert_used_count": USED}


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    v = g.gpt2_vocab("qwen2")
    small = {"d": 32, "tied": True, "layers": 1, "mlp": 32, "vocab": v}
    for name, merged in (("mixtral", True), ("mixtral_old", False)):
        g.write_model(folder, name, Sparse("llama", random.Random(20), g.plain, merged=merged, base=1e6,
                                           kv_heads=1, **small), [])
    halves = {**small, "rope": "halves"}
    g.write_model(folder, "qwen2moe", Sparse(
        "qwen2moe", random.Random(21), g.plain, shared=64, normed=False,
        biases=("attn_q", "attn_k", "attn_v"),
        extra={"qwen2moe.expert_feed_forward_length": 32,
               "qwen2moe.expert_shared_feed_forward_length": 64}, **halves), [])
    g.write_model(folder, "qwen3moe", Sparse(
        "qwen3moe", random.Random(22), g.plain, qk_norm=True,
        extra={"qwen3moe.expert_feed_forward_length": 32}, **halves), [])


if __name__ == "__main__":
    main()
