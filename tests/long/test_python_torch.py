#!/usr/bin/env python3
"""test_python_torch.py SOURCE_DIR BUILD_DIR: sinter.torch against PyTorch: values and gradients of attention with scores and
masks, layers, the training of a small GPT, the blocks of docs/python.md for PyTorch."""
import math
import os
import re
import shutil
import subprocess
import sys

import torch

SOURCE, BUILD = sys.argv[1:3]
sys.path.insert(0, os.path.join(BUILD, "python"))
import sinter  # noqa: E402
import sinter.torch as st  # noqa: E402

F = torch.nn.functional


def close(a, b, least=1e-5):
    assert a.shape == b.shape and (a - b).abs().max() <= least * (1 + b.abs().max()), (a - b).abs().max()


def dense(q, k, v, score=lambda s, distance: s, mask=lambda distance: distance >= 0):
    n, m = q.shape[2], k.shape[2]
    distance = torch.arange(n)[:, None] + m - n - torch.arange(m)
    k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v))
    s = score(q @ k.transpose(2, 3) / math.sqrt(q.shape[3]), distance.float())
    return torch.softmax(s.masked_fill(~mask(distance), -math.inf), -1) @ v


def attention():
    bias, documents = torch.randn(4, requires_grad=True), torch.tensor([[0] * 5 + [1] * 6, [0] * 9 + [1] * 2], dtype=torch.int32)
    same = (documents[:, None, :, None] == documents[:, None, None, :])
    cap = 3.0
    cases = [
        ({"causal": True}, {}, []),
        ({}, {"mask": lambda d: d > -99}, []),
        ({"causal": True, "window": 4}, {"mask": lambda d: (d >= 0) & (d < 4)}, []),
        ({"score": lambda c, b: c.score - b[c.h] * c.distance.cast("f32"), "mask": lambda c, b: c.distance >= 0, "captured": [bias]},
         {"score": lambda s, d: s - bias[:, None, None] * d}, [bias]),
        ({"score": lambda c: cap * sinter.tanh(c.score / cap), "causal": True}, {"score": lambda s, d: cap * torch.tanh(s / cap)}, []),
        ({"mask": lambda c, d: d[c.b, c.q] == d[c.b, c.k], "captured": [documents], "causal": True},
         {"mask": lambda d: (d >= 0) & same}, [])]
    for options, reference, extra in cases:
        for heads, queries in ((4, 11), (2, 11), (4, 7)):
            if queries == 7 and "captured" in options and not extra:  # documents of 11 tokens
                continue
            q, k, v = (torch.randn(2, h, n, 16, requires_grad=True) for h, n in ((4, queries), (heads, 11), (heads, 11)))
            y, z = st.flex_attention(q, k, v, **options), dense(q, k, v, **reference)
            close(y, z)
            g = torch.randn_like(y)
            for a, b in zip(*(torch.autograd.grad(out, [q, k, v, *extra], g) for out in (y, z))):
                close(a, b)
    # a score that is made again has one program; another variable around it, another
    def capped(limit):
        return st.flex_attention(q, k, v, score=lambda c: limit * sinter.tanh(c.score / limit))
    before = len(st._attentions)
    capped(2.0), capped(2.0), capped(5.0)
    assert len(st._attentions) == before + 2
    try:
        st.flex_attention(q, k, v.double())
    except sinter.Error as error:
        assert "'v' must be a tensor of torch.float32 on the CPU" in str(error)
    else:
        raise AssertionError("a tensor of another type")


class Block(torch.nn.Module):
    """A block of GPT; `attend` is what the heads do."""

    def __init__(self, width, heads, attend):
        super().__init__()
        self.heads, self.attend = heads, attend
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(self.attend(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(torch.nn.Module):
    def __init__(self, attend):
        super().__init__()
        torch.manual_seed(1)
        self.embed, self.places = torch.nn.Embedding(128, 32), torch.nn.Embedding(64, 32)
        self.blocks = torch.nn.Sequential(*[Block(32, 4, attend) for _ in range(2)])
        self.head = torch.nn.Linear(32, 128)

    def forward(self, tokens):
        return self.head(self.blocks(self.embed(tokens) + self.places(torch.arange(tokens.shape[1]))))


def trained(model, steps=60):
    with open(os.path.join(SOURCE, "README.md"), "rb") as file:
        text = torch.tensor([b & 127 for b in file.read()])
    optimizer, losses = torch.optim.AdamW(model.parameters(), 3e-3), []
    draw = torch.Generator().manual_seed(2)
    for _ in range(steps):
        rows = torch.stack([text[i:i + 33] for i in torch.randint(len(text) - 33, (8,), generator=draw)])
        loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def training():
    """The same losses with torch's attention, and with ours."""
    ours, torchs = (trained(GPT(attend)) for attend in (lambda q, k, v: st.flex_attention(q, k, v, causal=True), dense))
    assert max(abs(a - b) for a, b in zip(ours, torchs)) < 1e-2 and ours[-1] < 0.75 * ours[0], (ours, torchs)


def layers():
    def feed(x):
        with x.module.scope("mlp"):
            return sinter.nn_linear(sinter.gelu(sinter.nn_linear(x, "up", 32)), "down", 8)
    layer = st.Layer(feed, {"x": "f32[N,8]"}, seed=3)
    names = ["mlp.up.weight", "mlp.up.bias", "mlp.down.weight", "mlp.down.bias"]
    assert [n for n, _ in layer.named_parameters()] == names and list(layer.state_dict()) == names
    x = torch.randn(5, 8, requires_grad=True)
    for module in layer.mlp.children():  # biases that are not zero
        torch.nn.init.normal_(module.bias)
    p = list(layer.parameters())
    y, z = layer(x), F.linear(F.gelu(F.linear(x, p[0], p[1])), p[2], p[3])
    close(y, z)
    g = torch.randn_like(y)
    for a, b in zip(*(torch.autograd.grad(out, [x, *p], g) for out in (y, z))):
        close(a, b)
    assert "entry forward.gradient" in layer.explain()
    f = st.function(lambda x, ids: {"rows": x[ids], "best": sinter.argmax(x, 1)}, {"x": "f32[N,4]", "ids": "i32[K]"})
    x, ids = torch.randn(3, 4, requires_grad=True), torch.tensor([2, 0, 2], dtype=torch.int32)
    rows, best = f(x, ids=ids)
    assert not best.requires_grad and torch.equal(best.long(), x.argmax(1))
    rows.sum().backward()
    assert torch.equal(x.grad, torch.tensor([[1.0], [0.0], [2.0]]).expand(3, 4))


def imported():
    """Modules that others have defined: an ONNX file, a model in C."""
    for module, names in ((sinter.load_onnx(os.path.join(SOURCE, "tests/data/onnx/gpt.onnx")), 1),
                          (sinter.load_model(os.path.join(SOURCE, "examples/variants/alibi.c")), 1)):
        layer = st.Layer(module)
        tokens = torch.randint(10, (2, 5)).to({"i64": torch.int64, "i32": torch.int32}[layer._function.entry.inputs[
            [i.name for i in layer._function.entry.inputs].index(layer._function.inputs[0])].type])
        assert len(layer._function.inputs) == names
        y = layer(tokens)
        direction = [torch.randn_like(p) * 1e-3 for p in layer.parameters()]
        g = torch.randn_like(y)
        slope = sum((d * p).sum() for d, p in zip(direction, torch.autograd.grad(y, list(layer.parameters()), g)))
        sides = []
        for sign in (1, -1):
            with torch.no_grad():
                for p, d in zip(layer.parameters(), direction):
                    p += sign * d
                sides.append((layer(tokens) * g).sum())
                for p, d in zip(layer.parameters(), direction):
                    p -= sign * d
        assert abs((sides[0] - sides[1]) / 2 - slope) <= 2e-2 * abs(slope) + 1e-3, (sides, slope)


def documentation():
    with open(os.path.join(SOURCE, "docs/python.md")) as file:
        blocks = [b for b in re.findall(r"```python\n(.*?)```", file.read(), re.S) if "torch" in b]
    assert blocks
    names = {}
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), names)


def types():
    """sinter.torch, too, is fully typed."""
    if shutil.which("mypy"):
        done = subprocess.run(["mypy", "--strict", "--cache-dir", os.path.abspath("mypy"), "-p", "sinter"], stdout=subprocess.PIPE,
                              check=False, env=dict(os.environ, MYPYPATH=os.path.join(BUILD, "python")))
        assert not done.returncode, done.stdout.decode()


torch.manual_seed(5)
attention()
layers()
imported()
training()
documentation()
types()
print("sinter.torch agrees with PyTorch")
