#!/usr/bin/python3
# make_onnx.py DIR [all]: small transformers as torch 1.13's exporter writes them, and what torch says about them, for
# test_onnx: DIR/NAME.onnx, and DIR/NAME.npz with inputs ("in.") and outputs ("out."). `all`: more and larger ones, each in
# five spellings of attention and three opsets. The modules are written here from the papers. Needs Debian's python3-torch.
import math
import os
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

ALL = len(sys.argv) > 2
V, D, H, LAYERS = (100, 32, 4, 2) if ALL else (11, 16, 4, 1)
MEL, FRAMES, SAMPLES = 8, 24, 336
LEAST = torch.finfo(torch.float32).min


def heads(x, n):
    return x.view(x.shape[0], x.shape[1], n, x.shape[2] // n).transpose(1, 2)


def merge(x):
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], x.shape[1] * x.shape[3])


def attend(q, k, v, mask, how):
    """how: 0 divides by sqrt(d), 1 scales both factors, 2 uses einsum and fills the hidden scores, 3 is torch dynamo's
    scaled_dot_product_attention, where hidden rows are 0, 4 TensorFlow's, with masks of -1e4."""
    d = q.shape[-1]
    if how == 3:
        root = math.sqrt(1 / math.sqrt(d))
        s = (q * root) @ (k.transpose(-1, -2) * root)
        if mask is None:
            return F.softmax(s, dim=-1) @ v
        p = F.softmax(s + torch.where(mask > -1, torch.tensor(0.0), torch.tensor(-math.inf)), dim=-1)
        return torch.where(torch.isnan(p), torch.tensor(0.0), p) @ v
    if how == 4:
        s = (q @ k.transpose(-1, -2)) * (1 / math.sqrt(d))
        return F.softmax(s if mask is None else s + (1.0 - (mask > -1).float()) * -10000.0, dim=-1) @ v
    if how == 2:
        s = torch.einsum("bhqd,bhkd->bhqk", q, k) * d ** -0.5
        if mask is not None:
            s = torch.where(mask < -1, torch.full_like(s, -1e9), s)
        return torch.einsum("bhqk,bhkd->bhqd", F.softmax(s, dim=-1), v)
    root = math.sqrt(1 / math.sqrt(d))
    s = (q * root) @ (k * root).transpose(-1, -2) if how else q @ k.transpose(-1, -2) / math.sqrt(d)
    return torch.softmax(s if mask is None else s + mask, -1) @ v


def gelu_tanh(h):
    return 0.5 * h * (1 + torch.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * torch.pow(h, 3))))


def padding(mask):
    return (1.0 - mask[:, None, None, :].to(torch.float32)) * LEAST


class RMS(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class Model(nn.Module):
    def __init__(self, how, norm=nn.LayerNorm, bias=True, **maps):
        super().__init__()
        self.how = how
        self.tok = nn.Embedding(V, D)
        self.norm = norm(D)
        maps = {"o": D, "f": 4 * D, **maps}
        self.layer = nn.ModuleList()
        for _ in range(LAYERS):
            parts = {n: nn.Linear(D, size, bias=bias) for n, size in maps.items()}
            parts.update(g=nn.Linear(4 * D, D, bias=bias), n1=norm(D), n2=norm(D), n3=norm(D))
            self.layer.append(nn.ModuleDict(parts))


class Bert(Model):
    def __init__(self, how):
        super().__init__(how, q=D, k=D, v=D)
        self.pos, self.typ, self.out = nn.Embedding(64, D), nn.Embedding(2, D), nn.Linear(D, V)
        self.hidden = False
        self.register_buffer("ids", torch.arange(64).expand(1, -1))

    def forward(self, input_ids, attention_mask, token_type_ids):
        mask = padding(attention_mask)
        x = self.tok(input_ids) + self.pos(self.ids[:, :input_ids.shape[1]]) + self.typ(token_type_ids)
        x = self.norm(x)
        for l in self.layer:
            a = attend(heads(l.q(x), H), heads(l.k(x), H), heads(l.v(x), H), mask, self.how)
            x = l.n1(x + l.o(merge(a)))
            x = l.n2(x + l.g(F.gelu(l.f(x))))
        return x if self.hidden else self.out(x)


class Encoder(Bert):
    def __init__(self, how):
        super().__init__(how)
        self.hidden = True


class Gpt(Model):
    """how: a table of bools that is sliced, -inf above the diagonal, or positions that are compared."""

    def __init__(self, how):
        super().__init__(how, qkv=3 * D)
        self.pos = nn.Embedding(64, D)
        self.register_buffer("bias", torch.tril(torch.ones(64, 64, dtype=torch.uint8)).view(1, 1, 64, 64))

    def forward(self, input_ids, *past):
        T, P = input_ids.shape[1], past[0].shape[2] if past else 0
        x = self.tok(input_ids) + self.pos(torch.arange(P, P + T).unsqueeze(0))
        present = []
        for i, l in enumerate(self.layer):
            q, k, v = (heads(y, H) for y in l.qkv(l.n1(x)).split(D, dim=2))
            if past:
                k, v = torch.cat([past[2 * i], k], 2), torch.cat([past[2 * i + 1], v], 2)
                present += [k, v]
            S = k.shape[-2]
            w = q @ k.transpose(-1, -2) / float(D // H) ** 0.5
            if self.how == 0:
                w = torch.where(self.bias[:, :, S - T:S, :S].bool(), w, torch.tensor(LEAST))
            elif self.how == 1:
                future = torch.arange(S)[None, :] > torch.arange(T)[:, None] + S - T
                w = w + (torch.zeros(T, S).masked_fill(future, float("-inf")) if past
                         else torch.full((T, S), float("-inf")).triu(S - T + 1))
            else:
                w = w.masked_fill(~(torch.arange(S)[None, :] <= torch.arange(T)[:, None] + (S - T)), -1e4)
            x = x + l.o(merge(w.softmax(-1) @ v))
            x = x + l.g(gelu_tanh(l.f(l.n2(x))))
        return (self.norm(x) @ self.tok.weight.t(), *present)


class Llama(Model):
    def __init__(self, how):
        super().__init__(how, RMS, False, q=D, k=D // 2, v=D // 2, u=4 * D)
        w = D // H
        self.register_buffer("freq", 1.0 / (10000 ** (torch.arange(0, w, 2).float() / w)))

    def forward(self, input_ids, attention_mask, position_ids, *past):
        x, (B, T) = self.tok(input_ids), input_ids.shape
        S, present = T + (past[0].shape[2] if past else 0), []
        at = position_ids[:, None, :].float()
        angle = (self.freq[None, :, None].expand(B, -1, 1) @ at).transpose(1, 2)
        angle = torch.cat((angle, angle), -1)[:, None]
        mask = torch.full((T, S), LEAST)
        first = torch.arange(T) + 1 + (S - T) if past else torch.arange(T) + 1
        mask = mask.masked_fill(torch.arange(S) < first.view(T, 1), 0)[None, None].expand(B, 1, T, S)
        hidden = 1.0 - attention_mask[:, None, None, :].expand(B, 1, T, S).float()
        mask = mask + hidden.masked_fill(hidden.bool(), LEAST)
        for i, l in enumerate(self.layer):
            def rotate(y):
                half = torch.cat((-y[..., y.shape[-1] // 2:], y[..., :y.shape[-1] // 2]), -1)
                return y * angle.cos() + half * angle.sin()

            def repeat(y):
                b, n, t, d = y.shape
                return y[:, :, None].expand(b, n, 2, t, d).reshape(b, 2 * n, t, d)

            y = l.n1(x)
            q, k, v = rotate(heads(l.q(y), H)), rotate(heads(l.k(y), H // 2)), heads(l.v(y), H // 2)
            if past:
                k, v = torch.cat([past[2 * i], k], 2), torch.cat([past[2 * i + 1], v], 2)
                present += [k, v]
            x = x + l.o(merge(attend(q, repeat(k), repeat(v), mask, self.how)))
            y = l.n2(x)
            x = x + l.g(F.silu(l.f(y)) * l.u(y))
        logits = self.norm(x) @ self.tok.weight.t()
        return (logits, *present) if past else logits


class T5(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.encoder = Model(how, RMS, False, q=D, k=D, v=D)
        self.decoder = Model(how, RMS, False, q=D, k=D, v=D, cq=D, ck=D, cv=D, co=D)
        self.near = nn.ModuleList([nn.Embedding(32, H), nn.Embedding(32, H)])

    def bias(self, n, decoder):
        rel = torch.arange(n)[None, :] - torch.arange(n)[:, None]
        r, buckets = 0, 32
        if decoder:
            rel = -torch.min(rel, torch.zeros_like(rel))
        else:
            buckets = 16
            r, rel = (rel > 0).long() * buckets, rel.abs()
        exact = buckets // 2
        far = exact + (torch.log(rel.float() / exact) / math.log(128 / exact) * (buckets - exact)).long()
        far = torch.min(far, torch.full_like(far, buckets - 1))
        return self.near[decoder](r + torch.where(rel < exact, rel, far)).permute(2, 0, 1).unsqueeze(0)

    def attend(self, l, names, y, z, bias):
        q, k, v, o = (l[n] for n in names)
        s = heads(q(y), H) @ heads(k(z), H).transpose(3, 2) + bias
        return o(merge(F.softmax(s.float(), dim=-1).type_as(s) @ heads(v(z), H)))

    def forward(self, input_ids, attention_mask, decoder_input_ids):
        S, T = input_ids.shape[1], decoder_input_ids.shape[1]
        mask = padding(attention_mask)
        bias = self.bias(S, 0) + mask
        x = self.encoder.tok(input_ids)
        for l in self.encoder.layer:
            y = l.n1(x)
            x = x + self.attend(l, "qkvo", y, y, bias)
            x = x + l.g(F.relu(l.f(l.n2(x))))
        z, x, i = self.encoder.norm(x), self.encoder.tok(decoder_input_ids), torch.arange(T)
        seen = i[None, None, :].repeat(x.shape[0], T, 1) <= i[None, :, None]
        bias = self.bias(T, 1) + (1.0 - seen.to(attention_mask.dtype)[:, None].float()) * LEAST
        for l in self.decoder.layer:
            y = l.n1(x)
            x = x + self.attend(l, "qkvo", y, y, bias)
            x = x + self.attend(l, ("cq", "ck", "cv", "co"), l.n3(x), z, mask)
            x = x + l.g(F.relu(l.f(l.n2(x))))
        return (self.decoder.norm(x) * D ** -0.5) @ self.encoder.tok.weight.t()


class Bart(nn.Module):
    """Norms after the sums, as BART and Marian have them; cross-attention; biases everywhere."""

    def __init__(self, how):
        super().__init__()
        self.encoder = Model(how, q=D, k=D, v=D)
        self.decoder = Model(how, q=D, k=D, v=D, cq=D, ck=D, cv=D, co=D)
        self.pos = nn.Embedding(64, D)

    def attend(self, l, names, y, z, mask):
        q, k, v, o = (l[n] for n in names)
        return o(merge(attend(heads(q(y), H), heads(k(z), H), heads(v(z), H), mask, self.encoder.how)))

    def start(self, side, ids):
        return side.norm(self.encoder.tok(ids) + self.pos(torch.arange(ids.shape[1])))

    def forward(self, input_ids, attention_mask, decoder_input_ids):
        T = decoder_input_ids.shape[1]
        mask = padding(attention_mask)
        z, x = self.start(self.encoder, input_ids), self.start(self.decoder, decoder_input_ids)
        for l in self.encoder.layer:
            z = l.n1(z + self.attend(l, "qkvo", z, z, mask))
            z = l.n2(z + l.g(F.gelu(l.f(z))))
        i = torch.arange(T)
        future = torch.full((T, T), LEAST).masked_fill(i < (i + 1).view(T, 1), 0)[None, None]
        for l in self.decoder.layer:
            x = l.n1(x + self.attend(l, "qkvo", x, x, future))
            x = l.n3(x + self.attend(l, ("cq", "ck", "cv", "co"), x, z, mask))
            x = l.n2(x + l.g(F.gelu(l.f(x))))
        return x @ self.encoder.tok.weight.t()


class Pair(Bart):
    """A decoder with caches. sound: spectrograms instead of tokens, as Whisper has them, or samples, as Moonshine; near: T5's
    relative positions."""

    def __init__(self, how, sound="", near=False):
        super().__init__(how)
        self.sound, self.near = sound, near
        if sound == "spectrograms":
            self.wave = nn.ModuleList([nn.Conv1d(MEL, D, 3, 1, 1), nn.Conv1d(D, D, 3, 2, 1)])
        if sound == "samples":
            self.wave = nn.ModuleList([nn.Conv1d(1, D, 15, 8, bias=False), nn.Conv1d(D, D, 5, 3), nn.Conv1d(D, D, 3, 2)])
        if near:
            self.bias = nn.Embedding(64, H)

    def encode(self, source, attention_mask=None):
        if self.sound == "spectrograms":
            x = F.gelu(self.wave[1](F.gelu(self.wave[0](source)))).transpose(1, 2)
            z, mask = x + self.pos.weight[:FRAMES // 2], None
        elif self.sound:
            x = torch.tanh(self.wave[0](source.unsqueeze(1)))
            z, mask = F.gelu(self.wave[2](F.gelu(self.wave[1](x)))).transpose(1, 2), None
        else:
            z, mask = self.start(self.encoder, source), padding(attention_mask)
        for l in self.encoder.layer:
            z = l.n1(z + self.attend(l, "qkvo", z, z, mask))
            z = l.n2(z + l.g(F.gelu(l.f(z))))
        return z

    def decode(self, ids, z, attention_mask=None, past=None):
        T, P = ids.shape[1], past[0].shape[2] if past else 0
        mask = None if self.sound else padding(attention_mask)
        x = self.encoder.tok(ids) + self.pos(torch.arange(P, P + T))
        x, i, present = self.decoder.norm(x), torch.arange(T), []
        future = None if past else torch.full((T, T), LEAST).masked_fill(i < (i + 1).view(T, 1), 0)[None, None]
        if self.near:
            rel = torch.arange(P, P + T)[:, None] - torch.arange(P + T)[None, :]
            bias = self.bias(rel.clamp(0, 63)).permute(2, 0, 1).unsqueeze(0)
            future = bias if past else bias + future
        for n, l in enumerate(self.decoder.layer):
            q, k, v = heads(l.q(x), H), heads(l.k(x), H), heads(l.v(x), H)
            if past:
                k, v = torch.cat([past[4 * n], k], 2), torch.cat([past[4 * n + 1], v], 2)
            ck, cv = past[4 * n + 2:4 * n + 4] if past else (heads(l.ck(z), H), heads(l.cv(z), H))
            x = l.n1(x + l.o(merge(attend(q, k, v, future, self.encoder.how))))
            x = l.n3(x + l.co(merge(attend(heads(l.cq(x), H), ck, cv, mask, self.encoder.how))))
            x = l.n2(x + l.g(F.gelu(l.f(x))))
            present += [k, v] if past else [k, v, ck, cv]
        return (x @ self.encoder.tok.weight.t(), *present)


class Part(nn.Module):
    def __init__(self, model, call):
        super().__init__()
        self.model, self.call = model, call

    def forward(self, *x):
        return self.call(*x)


class Conformer(Model):
    """Half steps of two feed-forward parts around attention and a gated depthwise convolution over time."""

    def __init__(self, how):
        super().__init__(how, q=D, k=D, v=D, h=4 * D, two=2 * D, last=D)
        self.wave, self.fold = nn.Conv1d(8, D, 3, 2, 1), nn.ModuleList(nn.Linear(4 * D, D) for _ in range(LAYERS))
        self.deep = nn.ModuleList(nn.Conv1d(D, D, 5, padding=2, groups=D) for _ in range(LAYERS))
        self.stat = nn.ModuleList(nn.BatchNorm1d(D) for _ in range(LAYERS))

    def forward(self, input_features):
        x = self.wave(input_features).transpose(1, 2)
        for l, fold, deep, stat in zip(self.layer, self.fold, self.deep, self.stat):
            x = x + 0.5 * l.g(F.silu(l.f(l.n1(x))))
            y = l.n2(x)
            x = x + l.o(merge(attend(heads(l.q(y), H), heads(l.k(y), H), heads(l.v(y), H), None, self.how)))
            y = F.glu(l.two(l.n3(x)), -1).transpose(1, 2)
            x = x + l.last(F.silu(stat(deep(y))).transpose(1, 2))
            x = self.norm(x + 0.5 * fold(F.silu(l.h(x))))
        return x


class Vit(Model):
    def __init__(self, how):
        super().__init__(how, qkv=3 * D)
        self.patch, self.pos = nn.Conv2d(3, D, 8, 8, bias=False), nn.Embedding(17, D)
        self.first, self.head = nn.Parameter(torch.randn(D)), nn.Linear(D, 10)
        self.register_buffer("ids", torch.arange(17).expand(1, -1))

    def forward(self, pixel_values):
        x = self.patch(pixel_values).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(pixel_values.shape[0], 1, -1), x], 1) + self.pos(self.ids)
        for l in self.layer:
            B, N, C = x.shape
            q, k, v = l.qkv(l.n1(x)).reshape(B, N, 3, H, C // H).permute(2, 0, 3, 1, 4)
            x = x + l.o(merge(attend(q, k, v, None, self.how)))
            h = l.f(l.n2(x))
            x = x + l.g(h * torch.sigmoid(1.702 * h))
        return self.head(self.norm(x)[:, 0])


def export(name, model, given, axes, outputs, opset):
    torch.manual_seed(1)
    model.eval()
    for p in model.parameters():
        p.data += 0.2 * torch.randn_like(p)
    with torch.no_grad():
        result = model(*given.values())
    result = result if isinstance(result, tuple) else (result,)
    path = f"{sys.argv[1]}/{name}"
    torch.onnx.export(model, tuple(given.values()), path + ".onnx", input_names=list(given), output_names=outputs,
                      dynamic_axes=axes, opset_version=opset)
    np.savez(path + ".npz", **{"in." + n: x.numpy() for n, x in given.items()},
             **{"out." + n: x.detach().numpy() for n, x in zip(outputs, result)})


def export_all(how, opset, suffix):
    B, T = 2, 7
    ids, text, target = torch.randint(0, V, (B, T)), {0: "batch", 1: "sequence"}, {0: "batch", 1: "target"}
    mask = torch.ones(B, T, dtype=torch.long)
    mask[1, 4:] = 0
    kinds = [f"{i}.{k}" for i in range(LAYERS) for k in ("key", "value")]
    past = {"past_key_values." + k: torch.randn(B, H, 5, D // H) for k in kinds}
    pairs = {k: x[:, :H // 2].contiguous() for k, x in past.items()}
    long = {0: "batch", 1: "past_sequence_length + sequence"} # as Optimum has it
    two = {"input_ids": ids, "attention_mask": mask}
    for name, model, given, axes, more in (
            ("bert", Bert, {**two, "token_type_ids": torch.zeros_like(ids)}, {"token_type_ids": text}, []),
            ("gpt", Gpt, {"input_ids": ids}, {}, []),
            ("gpt_past", Gpt, {"input_ids": ids, **past}, {k: {0: "batch", 2: "past"} for k in past},
             ["present." + k for k in kinds]),
            ("llama", Llama, {**two, "position_ids": torch.arange(T).expand(B, T).contiguous()},
             {"position_ids": text}, []),
            ("llama_past", Llama, {"input_ids": ids, "attention_mask": torch.cat([torch.ones(B, 5, dtype=torch.long), mask], 1),
                                   "position_ids": torch.arange(5, 5 + T).expand(B, T).contiguous(), **pairs},
             {"position_ids": text, "attention_mask": long, **{k: {0: "batch", 2: "past_sequence_length"} for k in pairs}},
             ["present." + k for k in kinds]),
            ("encoder", Encoder, {**two, "token_type_ids": torch.zeros_like(ids)}, {"token_type_ids": text}, []),
            ("t5", T5, {**two, "decoder_input_ids": torch.randint(0, V, (B, 5))},
             {"decoder_input_ids": target}, []),
            ("vit", Vit, {"pixel_values": torch.randn(B, 3, 32, 32)}, {"pixel_values": {0: "batch"}}, []),
            *((("bart", Bart, {**two, "decoder_input_ids": torch.randint(0, V, (B, 5))}, {"decoder_input_ids": target}, []),
               ("conformer", Conformer, {"input_features": torch.randn(B, 8, 20)},
                {"input_features": {0: "batch", 2: "frames"}}, [])) if ALL else ())):
        axes.update({k: text for k in given if k in ("input_ids", "attention_mask") and k not in axes})
        torch.manual_seed(2)
        export(name + suffix, model(how), given, axes, ["last_hidden_state" if name == "encoder" else "logits"] + more, opset)


def merge_decoders(folder):
    """decoder_model.onnx and decoder_with_past_model.onnx become branches of one file, as Optimum merges them."""
    import onnx
    from onnx import TensorProto as T
    from onnx import helper
    first, later = (onnx.load(f"{folder}/decoder{x}_model.onnx") for x in ("", "_with_past"))
    known = {i.name: i for i in first.graph.initializer}
    for i in later.graph.initializer: # equal arrays are there once
        if i.name in known and known[i.name] != i:
            for n in later.graph.node:
                n.input[:] = [x + "_" if x == i.name else x for x in n.input]
            i.name += "_"
        known[i.name] = i
    given = {i.name: i for g in (first.graph, later.graph) for i in g.input}
    given["input_ids"] = next(i for i in first.graph.input if i.name == "input_ids")
    names = [o.name for o in first.graph.output]
    for g in (first.graph, later.graph):
        missing = [n for n in names if n not in [o.name for o in g.output]]
        for n in missing: # nothing reads it
            g.node.append(helper.make_node("Constant", [], [n], value=helper.make_tensor("zero", T.FLOAT, [1, H, 1, 1], [0.0] * H)))
            g.output.append(helper.make_tensor_value_info(n, T.FLOAT, [1, H, 1, 1]))
        outputs = sorted(g.output, key=lambda o: names.index(o.name))
        del g.input[:], g.initializer[:], g.output[:]
        g.output.extend(outputs)
    branch = helper.make_tensor_value_info("use_cache_branch", T.BOOL, [1])
    choose = helper.make_node("If", ["use_cache_branch"], names, then_branch=later.graph, else_branch=first.graph)
    results = [helper.make_empty_tensor_value_info(n) for n in names]
    graph = helper.make_graph([choose], "merged", [*given.values(), branch], results, list(known.values()))
    onnx.save(helper.make_model(graph, opset_imports=first.opset_import), f"{folder}/decoder_model_merged.onnx")


def export_pair(name, how, opset, sound="", near=False):
    """encoder_model, decoder_model, decoder_with_past_model and decoder_model_merged as Optimum names inputs and outputs."""
    folder = f"{sys.argv[1]}/{name}"
    os.makedirs(folder, exist_ok=True)
    torch.manual_seed(3)
    m, B, S, T = Pair(how, sound, near).eval(), 2, 6, 8
    for p in m.parameters():
        p.data += 0.2 * torch.randn_like(p)
    source, mask = torch.randint(0, V, (B, S)), torch.ones(B, S, dtype=torch.long)
    mask[1, 4:] = 0
    if sound:
        source, mask = torch.randn(B, MEL, FRAMES) if sound == "spectrograms" else torch.randn(B, SAMPLES), None
    ids = torch.randint(0, V, (B, T))
    kinds = [f"{i}.{side}.{k}" for i in range(LAYERS) for side in ("decoder", "encoder") for k in ("key", "value")]
    own = [k for k in kinds if ".decoder." in k]
    with torch.no_grad():
        z = m.encode(source, mask)
        logits, *past = m.decode(ids, z, mask)
    batch = {0: "batch_size"}
    axes = {"input_ids": {**batch, 1: "encoder_sequence_length"}, "attention_mask": {**batch, 1: "encoder_sequence_length"},
            "input_features": {**batch, 1: "feature_size", 2: "encoder_sequence_length"},
            "input_values": {**batch, 1: "num_samples"}, "last_hidden_state": batch}
    source_name = {"": "input_ids", "spectrograms": "input_features", "samples": "input_values"}[sound]

    def save(part, call, given, results):
        torch.onnx.export(Part(m, call), tuple(given.values()), f"{folder}/{part}.onnx", input_names=list(given),
                          output_names=results, dynamic_axes={k: v for k, v in axes.items() if k in (*given, *results)},
                          opset_version=opset)

    more = {} if sound else {"attention_mask": mask}
    save("encoder_model", m.encode, {source_name: source, **more}, ["last_hidden_state"])
    axes.update({"input_ids": {**batch, 1: "decoder_sequence_length"}, "encoder_attention_mask": axes["attention_mask"],
                 "encoder_hidden_states": {**batch, 1: "encoder_sequence_length" + " / 2" * (sound == "spectrograms")}})
    axes.update({"past_key_values." + k: {**batch, 2: "encoder_sequence_length_out" if ".encoder." in k else
                                          "past_decoder_sequence_length"} for k in kinds})
    more = {} if sound else {"encoder_attention_mask": mask}
    with_mask = (lambda i, z, *_: m.decode(i, z)) if sound else lambda e, i, z: m.decode(i, z, e)
    save("decoder_model", with_mask, {**more, "input_ids": ids, "encoder_hidden_states": z},
         ["logits", *("present." + k for k in kinds)])
    del axes["input_ids"][1]
    later = (lambda i, *past: m.decode(i, None, None, past)) if sound else lambda e, i, *past: m.decode(i, None, e, past)
    save("decoder_with_past_model", later, {**more, "input_ids": ids[:, :1], **dict(zip(["past_key_values." + k for k in kinds], past))},
         ["logits", *("present." + k for k in own)])
    merge_decoders(folder)
    np.savez(f"{folder}/reference.npz", source=source, lengths=np.full(B, S) if sound else mask.sum(1), ids=ids, logits=logits)


def write_operators():
    """Operators that no exporter here writes, in one file: a seed for fuzz_files."""
    from onnx import TensorProto as T
    from onnx import helper, save
    rng = np.random.default_rng(0)

    def value(name, *shape):
        return helper.make_tensor_value_info(name, T.FLOAT, shape)

    def graph(ops, given, results, *inits):
        return helper.make_graph(ops, "g", given, results, list(inits))

    def tensor(name, kind, *x, shape=None):
        return helper.make_tensor(name, kind, [len(x)] if shape is None else shape, x)

    node = helper.make_node
    cap = graph([node("Tanh", ["s"], ["c"])], [value("s", "B", "H", "T", "S")], [value("c", "B", "H", "T", "S")])
    body = graph([node("Add", ["a", "b"], ["c"]), node("Identity", ["c"], ["d"])], [value("a", "n"), value("b", "n")],
                 [value("c", "n"), value("d", "n")])
    blocks = tensor("w4", T.UINT8, *rng.integers(0, 255, 32 * 2 * 8).tolist(), shape=[32, 2, 8])
    ops = [node("MatMulNBits", ["x", "w4", "s4"], ["q"], domain="com.microsoft", K=32, N=32, bits=4, block_size=16),
           node("Attention", ["q", "x", "x", "", "", "", "len"], ["y0"], q_num_heads=4, kv_num_heads=4, is_causal=1,
                left_window_size=2, softcap=2.0),
           node("GroupQueryAttention", ["y0", "x", "x", "", "", "last", "all"], ["y1"], domain="com.microsoft", num_heads=4,
                kv_num_heads=4, local_window_size=3),
           node("Reshape", ["y1", "four"], ["h"]), node("Transpose", ["h"], ["t"], perm=[0, 2, 1, 3]),
           node("FlexAttention", ["t", "t", "t"], ["f"], domain="ai.onnx.preview", score_mod=cap),
           node("Resize", ["f", "", "scales"], ["r"], mode="cubic", antialias=1),
           node("LinearAttention", ["q", "x", "x", "", "x", "one"], ["l", "state"], q_num_heads=4, kv_num_heads=4),
           node("TensorScatter", ["x", "l", "zero"], ["z"], mode="circular"),
           node("CausalConvWithState", ["z", "kernel"], ["v", "kept"], activation="silu"),
           node("Squeeze", ["v", "zero"], ["rows"]),
           node("Scan", ["begin", "rows"], ["end", "sums"], num_scan_inputs=1, body=body)]
    inits = [blocks, tensor("s4", T.FLOAT, *[0.1] * 64), tensor("len", T.INT64, 5), tensor("last", T.INT32, 4),
             tensor("all", T.INT32, 5, shape=[]), tensor("four", T.INT64, 1, 5, 4, 8), tensor("zero", T.INT64, 0),
             tensor("scales", T.FLOAT, 1, 1, 1, 0.5), tensor("one", T.FLOAT, *[0.5] * 5, shape=[1, 5, 1]),
             tensor("kernel", T.FLOAT, *[0.5] * 15, shape=[5, 1, 3]), tensor("begin", T.FLOAT, *[0.0] * 32)]
    results = [value("r", 1, 4, 5, 4), value("state", 1, 4, 8, 8), value("end", 32), value("sums", 5, 32)]
    save(helper.make_model(graph(ops, [value("x", 1, 5, 32)], results, *inits), opset_imports=[
        helper.make_opsetid(*v) for v in (("", 27), ("com.microsoft", 1), ("ai.onnx.preview", 1))]),
        sys.argv[1] + "/operators.onnx")


torch.manual_seed(0)
if ALL:
    for how, opset in ((0, 11), (0, 16), (1, 14), (2, 14), (3, 16), (4, 14)):
        export_all(how, opset, f"_{how}_{opset}")
else:
    export_all(0, 13, "")
    write_operators()
    export_pair("text", 0, 14)
    export_pair("near", 1, 16, near=True)
    export_pair("sound", 3, 14, sound="spectrograms")
    export_pair("samples", 3, 14, sound="samples")
