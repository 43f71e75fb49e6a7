#!/usr/bin/env python3
"""torch_attention.py [BATCH HEADS TOKENS WIDTH [MASK]]: attention with its gradient in PyTorch: sinter.torch.flex_attention
against the same in operations of PyTorch (eager), and the time of a call of a small entry.

    OMP_WAIT_POLICY=passive PYTHONPATH=build/release/python bench/torch_attention.py 1 12 1024 64

The least of three times each, in turns, with the largest difference of results and gradients."""
import math
import sys
import time

import numpy as np
import torch

import sinter
import sinter.torch

B, H, T, D = [int(a) for a in sys.argv[1:5]] or [1, 12, 1024, 64]
q, k, v = (torch.randn(B, H, T, D, requires_grad=True) for _ in range(3))
cotangent = torch.randn(B, H, T, D)
places = torch.arange(T)
distance = (places[:, None] - places).float()
documents = (places * 4 // T).int()[None].expand(B, T).contiguous()
slopes = 2.0**(-8 * (torch.arange(H) + 1) / H)
same = documents[:, None, :, None] == documents[:, None, None, :]


def dense(score=lambda s: s, mask=distance >= 0):
    s = score(q @ k.transpose(2, 3) / math.sqrt(D))
    return torch.softmax(s.masked_fill(~mask, -math.inf), -1) @ v


def flex(**options):
    return sinter.torch.flex_attention(q, k, v, causal=True, threads=torch.get_num_threads(), **options)


CASES = {  # name: ours, PyTorch's
    "causal": (flex, dense),
    "alibi": (lambda: flex(score=lambda c: c.score - sinter.exp2((c.h + 1).cast("f32") * (-8 / H)) * c.distance.cast("f32")),
              lambda: dense(lambda s: s - slopes[:, None, None] * distance)),
    "documents": (lambda: flex(mask=lambda c, d: d[c.b, c.q] == d[c.b, c.k], captured=[documents]),
                  lambda: dense(mask=(distance >= 0) & same)),
    "soft cap": (lambda: flex(score=lambda c: 50 * sinter.tanh(c.score / 50)), lambda: dense(lambda s: 50 * torch.tanh(s / 50)))}


def run(attend):
    begin = time.perf_counter()
    y = attend()
    gradients = torch.autograd.grad(y, [q, k, v], cotangent)
    return time.perf_counter() - begin, [y, *gradients]


f = sinter.compile(lambda x, y: x + y, {"x": "f32[T]", "y": "f32[T]"}, threads=1)
x = np.ones(8, np.float32)
best = math.inf
for _ in range(20):
    begin = time.perf_counter()
    for _ in range(1000):
        f(x, x)
    best = min(best, time.perf_counter() - begin)
print("a call: %.1f µs" % (best * 1e3))
for name, pair in CASES.items():
    if len(sys.argv) > 5 and name not in sys.argv[5:]:
        continue
    times = [math.inf, math.inf]
    results = [run(attend)[1] for attend in pair]
    for _ in range(3):
        times = [min(t, run(attend)[0]) for t, attend in zip(times, pair)]
    worst = max((a - b).abs().max().item() for a, b in zip(*results))
    print("%-10s %8.1f ms, PyTorch %8.1f ms, %5.1f times as fast; difference %.1e" % (
        name, 1e3 * times[0], 1e3 * times[1], times[1] / times[0], worst))
