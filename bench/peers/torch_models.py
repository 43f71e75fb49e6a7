# torch_models.py: the published models in plain PyTorch, random weights, for the peers' scripts.
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def attend(q, k, v, heads, mask=None):
    B, T, d = q.shape
    q, k, v = (x.view(B, x.shape[1], heads, -1).transpose(1, 2) for x in (q, k, v))
    a = (q @ k.transpose(-1, -2)) * (1 / math.sqrt(d // heads))
    if mask is not None:
        a = a.masked_fill(mask, float("-inf"))
    return (a.softmax(-1) @ v).transpose(1, 2).reshape(B, T, d)


def later(T, past=0):
    return torch.ones(T, past + T, dtype=torch.bool).triu(past + 1)


def init(model):
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.normal_(p, std=0.02)


def tied(table):
    """The output head that shares its weights with a table of embeddings."""
    head = nn.Linear(table.embedding_dim, table.num_embeddings, bias=False)
    head.weight = table.weight
    return head


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.qkv, self.proj = nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.ln2, self.fc, self.out = nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x, mask, cache=None, past=0):
        B, T, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).split(d, 2)
        if cache is not None:  # [B, capacity, d]
            cache[0][:, past:past + T], cache[1][:, past:past + T] = k, v
            k, v = cache[0][:, :past + T], cache[1][:, :past + T]
        x = x + self.proj(attend(q, k, v, self.heads, mask))
        return x + self.out(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class GPT2(nn.Module):
    vocab = 50257

    def __init__(self, layers=12, heads=12, d=768, context=1024):
        super().__init__()
        self.d = d
        self.wte, self.wpe = nn.Embedding(self.vocab, d), nn.Embedding(context, d)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.ln_f, self.head = nn.LayerNorm(d), tied(self.wte)
        init(self)

    def forward(self, ids, caches=None, past=0):
        T = ids.shape[1]
        x = self.wte(ids) + self.wpe(torch.arange(past, past + T))
        mask = later(T, past) if T > 1 else None
        for i, b in enumerate(self.blocks):
            x = b(x, mask, caches[i] if caches else None, past)
        x = self.ln_f(x)
        return self.head(x[:, -1:] if caches else x)


class Bert(nn.Module):
    vocab = 30522

    def __init__(self, layers=12, heads=12, d=768, context=512):
        super().__init__()
        self.heads = heads
        self.wte, self.wpe = nn.Embedding(self.vocab, d), nn.Embedding(context, d)
        self.types, self.ln = nn.Embedding(2, d), nn.LayerNorm(d, eps=1e-12)
        self.layers = nn.ModuleList(nn.ModuleDict({
            "q": nn.Linear(d, d), "k": nn.Linear(d, d), "v": nn.Linear(d, d), "o": nn.Linear(d, d),
            "ln1": nn.LayerNorm(d, eps=1e-12), "fc": nn.Linear(d, 4 * d),
            "out": nn.Linear(4 * d, d), "ln2": nn.LayerNorm(d, eps=1e-12)}) for _ in range(layers))
        init(self)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1])) + self.types.weight[0]
        x = self.ln(x)
        for l in self.layers:
            x = l["ln1"](x + l["o"](attend(l["q"](x), l["k"](x), l["v"](x), self.heads)))
            x = l["ln2"](x + l["out"](F.gelu(l["fc"](x))))
        return x


class Attention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))

    def forward(self, x, y, mask=None):
        return self.o(attend(self.q(x), self.k(y), self.v(y), self.heads, mask))


class EncoderDecoder(nn.Module):
    vocab = 32000

    def __init__(self, layers=6, heads=8, d=512, ff=2048, context=512):
        super().__init__()
        self.d, self.emb = d, nn.Embedding(self.vocab, d)
        angle = torch.arange(context)[:, None] / (10000 ** (torch.arange(0, d, 2)[None] / d))
        pe = torch.zeros(context, d)
        pe[:, 0::2], pe[:, 1::2] = angle.sin(), angle.cos()
        self.register_buffer("pe", pe)

        def mlp():
            return nn.Sequential(nn.Linear(d, ff), nn.ReLU(), nn.Linear(ff, d))

        def norms(n):
            return [nn.LayerNorm(d) for _ in range(n)]
        self.enc = nn.ModuleList(nn.ModuleList([Attention(d, heads), mlp(), *norms(2)])
                                 for _ in range(layers))
        self.dec = nn.ModuleList(nn.ModuleList([Attention(d, heads), Attention(d, heads), mlp(),
                                                *norms(3)]) for _ in range(layers))
        self.head = tied(self.emb)
        init(self)

    def embed(self, ids):
        return self.emb(ids) * math.sqrt(self.d) + self.pe[:ids.shape[1]]

    def forward(self, source, ids):
        x, y = self.embed(source), self.embed(ids)
        for a, f, n1, n2 in self.enc:
            x = n1(x + a(x, x))
            x = n2(x + f(x))
        mask = later(ids.shape[1])
        for a, c, f, n1, n2, n3 in self.dec:
            y = n1(y + a(y, y, mask))
            y = n2(y + c(y, x))
            y = n3(y + f(y))
        return self.head(y)


MODELS = {
    "gpt2": GPT2,
    "gpt2-medium": lambda: GPT2(24, 16, 1024),
    "gpt2-large": lambda: GPT2(36, 20, 1280),
    "gpt2-xl": lambda: GPT2(48, 25, 1600),
    "bert-base": Bert,
    "edt-base": EncoderDecoder,
}


def inputs(model, batch, tokens):
    """Random ids of a forward pass, as a tuple."""
    ids = tuple(torch.randint(0, model.vocab, (batch, tokens)) for _ in range(2))
    return ids if isinstance(model, EncoderDecoder) else ids[:1]
