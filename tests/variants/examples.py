"""Formulas of examples/variants in PyTorch: the small decoder around them, and each variant as its paper writes it."""
import torch
import torch.nn.functional as F

from references import attend, column, conv4, heads, layer_norm, linear, merge, reference, rms_norm, row, shift, unit, visible, zeros

VOCAB, LAYERS = 256, 2


class Scope:
    """p with a prefix of names."""

    def __init__(self, p, prefix):
        self.p, self.prefix = p, prefix

    def __getitem__(self, name):
        return self.p[self.prefix + name]

    def __contains__(self, name):
        return self.prefix + name in self.p


def norm(p, x, name):
    return layer_norm(x, 1e-5) * p[name + ".weight"] + p[name + ".bias"]


def feed(p, x):
    return linear(p, F.gelu(linear(p, x, "up")), "down")


def causal(p, x):
    q, k, v = (heads(y) for y in linear(p, x, "qkv").chunk(3, -1))
    return linear(p, merge(attend(q, k, v, visible(x.shape[1]))), "out")


def embed(p, tokens):
    x = p["embed.weight"][tokens]
    return x + p["positions.weight"][: tokens.shape[1]] if "positions.weight" in p else x


def example(name, **options):
    """f(p, tokens): the hidden states before the last norm."""
    def add(f):
        def forward(p, tokens):
            return norm(p, f(p, tokens), "norm") @ p["head.weight"].T
        integers = {"tokens": lambda B, T, rng: rng.integers(0, VOCAB, (B, T))}
        reference("examples/" + name, integers=integers, entry="forward", output="logits", **options)(forward)
        return f
    return add


def decoder(name, **options):
    """attend(p, x, tokens) as the attention part of the small decoder."""
    def add(part):
        def f(p, tokens):
            x = embed(p, tokens)
            for layer in range(LAYERS):
                s = Scope(p, f"layer{layer}.")
                x = x + part(s, norm(s, x, "norm1"), tokens)
                x = x + feed(s, norm(s, x, "norm2"))
            return x
        example(name, **options)(f)
        return part
    return add


def convolved(p, x):
    y = F.silu(conv4(x @ p["qkv.weight"].T, p["conv.weight"]))
    return (heads(part) for part in y.chunk(3, -1))


def gated(p, y, x):
    y = merge(rms_norm(y, p["head_norm.weight"]))
    return linear(p, y * F.silu(linear(p, x, "gate")), "out")


def loop(step, T, S):
    """y of T steps stacked; step(t, S) -> S, y."""
    ys = []
    for t in range(T):
        S, y = step(t, S)
        ys.append(y)
    return torch.stack(ys, 2)


def read(q, S):
    return (row(q) @ S)[..., 0, :]


def state(q):
    B, H, _, N = q.shape
    return zeros(B, H, N, N)


@decoder("kimi_delta_attention")
def kimi_delta_attention(p, x, tokens):
    q, k, v = convolved(p, x)
    q, k = unit(q) * q.shape[-1] ** -0.5, unit(k)
    beta = torch.sigmoid(linear(p, x, "beta")).transpose(1, 2)
    f = heads(linear(p, linear(p, x, "f_low"), "f_high"))
    g = -torch.exp(p["a_log"]) * F.softplus(f)

    def step(t, S):
        S = column(torch.exp(g[:, :, t])) * S
        S = S + beta[:, :, t, None, None] * column(k[:, :, t]) * row(v[:, :, t] - read(k[:, :, t], S))
        return S, read(q[:, :, t], S)
    y = merge(rms_norm(loop(step, x.shape[1], state(q)), p["head_norm.weight"]))
    return linear(p, y * torch.sigmoid(linear(p, linear(p, x, "gate_low"), "gate_high")), "out")


@decoder("gated_deltanet2")
def gated_deltanet2(p, x, tokens):
    q, k, v = convolved(p, x)
    q, k = unit(q) * q.shape[-1] ** -0.5, unit(k)
    g = -torch.exp(p["a_log"]) * F.softplus(heads(linear(p, x, "f")))
    erase, write = (heads(torch.sigmoid(linear(p, x, n))) for n in ("erase", "write"))

    def step(t, S):
        S = column(torch.exp(g[:, :, t])) * S
        new = write[:, :, t] * v[:, :, t] - read(erase[:, :, t] * k[:, :, t], S)
        S = S + column(k[:, :, t]) * row(new)
        return S, read(q[:, :, t], S)
    return gated(p, loop(step, x.shape[1], state(q)), x)


@decoder("comba")
def comba(p, x, tokens):
    q, k, v = convolved(p, x)
    q, k = unit(q) * q.shape[-1] ** -0.5, unit(k)
    beta = torch.sigmoid(linear(p, x, "beta")).transpose(1, 2)
    decay = torch.exp(-torch.exp(p["a_log"]) * F.softplus(linear(p, x, "dt"))).transpose(1, 2)
    feedback, d = torch.sigmoid(p["feedback"])[:, 0], p["d"][:, 0]

    def step(t, S):
        e = feedback * k[:, :, t]
        S = decay[:, :, t, None, None] * S
        S = S + beta[:, :, t, None, None] * column(k[:, :, t]) * row(v[:, :, t] - read(e, S))
        return S, read(q[:, :, t] - d * e, S)
    return gated(p, loop(step, x.shape[1], state(q)), x)


@decoder("mamba3")
def mamba3(p, x, tokens):
    v = heads(linear(p, x, "v"))
    delta = F.softplus(linear(p, x, "dt")).transpose(1, 2)
    lam = torch.sigmoid(linear(p, x, "trap")).transpose(1, 2)
    alpha = torch.exp(-torch.exp(p["a_log"])[:, None] * delta)
    gamma, beta = lam * delta, (1 - lam) * delta * alpha
    theta = torch.cumsum(column(delta) * torch.pi * torch.tanh(linear(p, x, "angles"))[:, None], 2)

    def rotated(name):
        y = rms_norm(x @ p[name + ".weight"].T, p[name + ".norm.weight"])[:, None] + p[name + ".bias"]
        a, b = y.chunk(2, -1)
        c = torch.complex(a, b) * torch.polar(torch.ones_like(theta), theta)
        return torch.cat([c.real, c.imag], -1)
    q, k = rotated("c"), rotated("b")

    def step(t, h):
        pair = lambda u: column(k[:, :, u]) * row(v[:, :, u])
        last = beta[:, :, t, None, None] * pair(t - 1) if t else 0
        h = alpha[:, :, t, None, None] * h + last + gamma[:, :, t, None, None] * pair(t)
        return h, read(q[:, :, t], h)
    y = loop(step, x.shape[1], state(v)) + p["skip"] * v
    return linear(p, merge(y) * F.silu(linear(p, x, "gate")), "out")


@decoder("mamba3_mimo")
def mamba3_mimo(p, x, tokens):
    v, z = heads(linear(p, x, "v")), heads(linear(p, x, "gate"))
    delta = F.softplus(linear(p, x, "dt")).transpose(1, 2)
    lam = torch.sigmoid(linear(p, x, "trap")).transpose(1, 2)
    alpha = torch.exp(-torch.exp(p["a_log"])[:, None] * delta)
    gamma, beta = lam * delta, (1 - lam) * delta * alpha
    theta = torch.cumsum(column(delta) * torch.pi * torch.tanh(linear(p, x, "angles"))[:, None], 2)[:, :, :, None]

    def rotated(name):
        y = (x @ p[name + ".weight"].T).unflatten(-1, (4, -1))
        a, b = (rms_norm(y, p[name + ".norm.weight"])[:, None] + p[name + ".bias"]).chunk(2, -1)
        return torch.cat([a * theta.cos() - b * theta.sin(), a * theta.sin() + b * theta.cos()], -1)
    q, k, v = rotated("c"), rotated("b"), v[:, :, :, None] * p["v_scale"]

    def step(t, h):
        pairs = lambda u: k[:, :, u].mT @ v[:, :, u]
        last = beta[:, :, t, None, None] * pairs(t - 1) if t else 0
        h = alpha[:, :, t, None, None] * h + last + gamma[:, :, t, None, None] * pairs(t)
        y = (q[:, :, t] @ h) * p["y_scale"][:, 0] * F.silu(z[:, :, t, None] * p["gate_scale"][:, 0])
        return h, y.sum(2)
    return linear(p, merge(loop(step, x.shape[1], state(z))), "out")


@decoder("mesanet")
def mesanet(p, x, tokens):
    q, k, v = convolved(p, x)
    q, k = unit(q), unit(k)
    beta, decay = (torch.sigmoid(linear(p, x, n)).transpose(1, 2) for n in ("beta", "decay"))
    ridge = 0.25 + F.softplus(p["ridge"])
    dot = lambda a, b: (a * b).sum(-1, keepdim=True)

    def step(t, S):
        A, B = S
        key = beta[:, :, t, None, None] * column(k[:, :, t])
        A = decay[:, :, t, None, None] * A + key * row(k[:, :, t])
        B = decay[:, :, t, None, None] * B + key * row(v[:, :, t])
        M = A + torch.diag_embed(ridge)
        x = q[:, :, t] / torch.diagonal(M, dim1=-2, dim2=-1)
        r = d = q[:, :, t] - read(x, M)
        for _ in range(30):
            a = dot(r, r) / (dot(d, read(d, M)) + 1e-5)
            new = r - a * read(d, M)
            x, d, r = x + a * d, new + dot(new, new) / (dot(r, r) + 1e-5) * d, new
        return (A, B), read(x, B)
    return gated(p, loop(step, x.shape[1], (state(q), state(q))), x)


@decoder("path_attention")
def path_attention(p, x, tokens):
    q, k, v = (heads(y) for y in linear(p, x, "qkv").chunk(3, -1))
    w = unit(heads(F.silu(conv4(linear(p, x, "w"), p["conv.weight"]))))
    beta = 2 * torch.sigmoid(linear(p, x, "beta")).transpose(1, 2)
    G = F.logsigmoid(linear(p, x, "forget")).transpose(1, 2).cumsum(-1)
    scores = []
    for t in range(x.shape[1]):
        keys = k[:, :, :1] if t == 0 else torch.cat([keys, k[:, :, t:t + 1]], 2)
        if t:
            old, u = keys[:, :, :t], w[:, :, t:t + 1]
            old = old - beta[:, :, t, None, None] * (old * u).sum(-1, keepdim=True) * u
            keys = torch.cat([old, keys[:, :, t:]], 2)
        score = (keys * q[:, :, t:t + 1]).sum(-1) / q.shape[-1] ** 0.5 + G[:, :, t:t + 1] - G[:, :, :t + 1]
        scores.append(read(score.softmax(-1), v[:, :, :t + 1]))
    return linear(p, merge(torch.stack(scores, 2)), "out")


@decoder("wall_attention")
def wall_attention(p, x, tokens):
    q, k, v = (heads(y) for y in linear(p, x, "qkv").chunk(3, -1))
    P, hidden = heads(F.logsigmoid(linear(p, x, "gate"))).cumsum(2), ~visible(x.shape[1])
    age = (P[:, :, :, None] - P[:, :, None]).masked_fill(hidden[..., None], 0)
    score = (q[:, :, :, None] * k[:, :, None] * torch.exp(age)).sum(-1) / q.shape[-1] ** 0.5
    return linear(p, merge(score.masked_fill(hidden, -torch.inf).softmax(-1) @ v), "out")


@decoder("parallax")
def parallax(p, x, tokens):
    q, k, v = (heads(y) for y in linear(p, x, "qkv").chunk(3, -1))
    r, hidden = heads(linear(p, x, "second")), ~visible(x.shape[1])
    weight = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(hidden, -torch.inf).softmax(-1)
    moved = weight * (r @ k.mT)
    return linear(p, merge(weight @ v * (1 + moved.sum(-1, keepdim=True)) - moved @ v), "out")


@decoder("titans")
def titans(p, x, tokens):
    q, k, v = convolved(p, x)
    q, k = unit(q), unit(k)
    theta, alpha, eta = (torch.sigmoid(linear(p, x, n) + more).transpose(1, 2)[..., None, None]
                         for n, more in (("theta", 0), ("alpha", -4), ("eta", 0)))
    gain, bias = p["gain"][:, None], p["bias"][:, None]
    norm = lambda u: layer_norm(u, 1e-2) * gain + bias

    def step(t, state):
        M, S, F = state
        u = row(k[:, :, t]) @ F
        away = u - u.mean(-1, keepdim=True)
        scale = (away.square().mean(-1, keepdim=True) + 1e-2) ** -0.5
        g = (norm(u) - row(v[:, :, t] - k[:, :, t])) * gain  # by the rule of a layer norm
        e = scale * (g - g.mean(-1, keepdim=True)) - away * scale ** 3 * (g * away).mean(-1, keepdim=True)
        S = eta[:, :, t] * S - 0.2 * theta[:, :, t] * column(k[:, :, t]) @ e
        M = (1 - alpha[:, :, t]) * M + S
        return (M, S, M if (t + 1) % 16 == 0 else F), read(q[:, :, t], M)
    y = loop(step, x.shape[1], (state(q),) * 3)
    return gated(p, y + norm(y), x)


@example("deepseek_experts")
def deepseek_experts(p, tokens):
    def clamped(gate, up):
        return F.silu(gate.clamp(max=7)) * up.clamp(-7, 7)
    x = embed(p, tokens)
    for layer in range(LAYERS):
        s = Scope(p, f"layer{layer}.")
        x = x + causal(s, rms_norm(x, s["norm1.weight"]))
        n = rms_norm(x, s["norm2.weight"])
        a = torch.sqrt(F.softplus(linear(s, n, "router")))
        if layer:
            chosen = (a + s["bias"]).topk(2)[1]
        else:
            first = tokens % 8
            chosen = torch.stack([first, (first + 1 + tokens // 8 % 7) % 8], -1)
        mask = F.one_hot(chosen, 8).sum(2)
        w = a * mask / (a * mask).sum(-1, keepdim=True)
        each = clamped(*(torch.einsum("btw,ehw->bteh", n, s[name]) for name in ("gate", "up")))
        y = torch.einsum("bteh,ewh,bte->btw", each, s["down"], w)
        gate, up = linear(s, n, "shared_up").chunk(2, -1)
        x = x + y + linear(s, clamped(gate, up), "shared_down")
    return x


@decoder("engram")
def engram(p, x, tokens):
    primes, rows = ((509, 521), (1009, 1013)), []
    factors = ((25214903917, 11400714819), (6364136223, 14426950411, 27182818285))
    for g in range(2):
        key = tokens * factors[g][0]
        for n in range(1, g + 2):
            key = key ^ (F.pad(tokens, (n, 0))[:, : tokens.shape[1]] * factors[g][n])
        rows += [p[f"table{2 * g + i}.rows.weight"][key % primes[g][i]] for i in range(2)]
    e = torch.cat(rows, -1)
    key = rms_norm(linear(p, e, "key"), p["key_norm.weight"])
    z = (key * rms_norm(x, p["query_norm.weight"])).sum(-1, keepdim=True) / x.shape[-1] ** 0.5
    y = torch.sigmoid(torch.sign(z) * torch.sqrt(z.abs().clamp(min=1e-6))) * linear(p, e, "value")
    n = rms_norm(y, p["norm.weight"])
    added = y + F.silu(sum(shift(n, 9 - 3 * i) * p["conv.weight"][i] for i in range(4)))
    return causal(p, x + added) + added


@example("attention_residuals")
def attention_residuals(p, tokens):
    outputs = [embed(p, tokens)]

    def choose(scope):
        y = torch.stack(outputs, 2)
        score = (rms_norm(y, p[scope + "gain"]) * p[scope + "query"]).sum(-1, keepdim=True)
        return (score.softmax(2) * y).sum(2)
    for layer in range(LAYERS):
        s = f"layer{layer}."
        q = Scope(p, s)
        outputs.append(causal(q, norm(q, choose(s + "attend."), "norm1")))
        outputs.append(feed(q, norm(q, choose(s + "feed."), "norm2")))
    return choose("last.")


@example("hyper_connections")
def hyper_connections(p, tokens):
    X = column(embed(p, tokens)).transpose(2, 3).repeat(1, 1, 4, 1)
    for layer in range(LAYERS):
        for name, part in (("attend", causal), ("feed", feed)):
            s = Scope(p, f"layer{layer}.{name}.")
            u = rms_norm(X.flatten(2), s["flat_norm.weight"], 1e-6) @ s["mix.weight"].T
            scale = torch.repeat_interleave(s["scale"], torch.tensor([4, 4, 16]))
            w = torch.sigmoid(u * scale + s["bias"]) + 1e-6
            pre, post, C = w[..., :4], w[..., 4:8], w[..., 8:].unflatten(-1, (4, 4))
            for _ in range(4):
                C = C / (C.sum(-1, keepdim=True) + 1e-6)
                C = C / (C.sum(-2, keepdim=True) + 1e-6)
            y = part(s, norm(s, (column(pre) * X).sum(2), "norm"))
            X = column(post) * y[:, :, None] + C @ X
    return (torch.sigmoid(p["collapse"]) * X).sum(2)


def turned(x, pos):
    """x [.., T, d], whose last 8 channels are rotated in pairs."""
    angle = pos[:, None] * 10000.0 ** (-torch.arange(0, 8, 2, dtype=x.dtype) / 8)
    c = torch.view_as_complex(x[..., -8:].unflatten(-1, (4, 2)).contiguous())
    c = torch.view_as_real(c * torch.polar(torch.ones_like(angle), angle)).flatten(-2)
    return torch.cat([x[..., :-8], c], -1)


def compressed(p, x, n, parts):
    """Entries of windows of n tokens, [B, E, d], the last one of those that there are; with two parts of the window
    before, too."""
    value, weight = (x @ p[name + ".weight"].T for name in ("value", "weight"))
    d, entries = value.shape[-1] // parts, []
    for first in range(0, x.shape[1], n):
        c, z = value[:, first:first + n, -d:], weight[:, first:first + n, -d:]
        z = z + p["place"][: z.shape[1], -d:]
        if parts == 2 and first:
            c = torch.cat([value[:, first - n:first, :d], c], 1)
            z = torch.cat([weight[:, first - n:first, :d] + p["place"][:, :d], z], 1)
        entries.append((z.softmax(1) * c).sum(1))
    y = rms_norm(torch.stack(entries, 1), p["norm.weight"], 1e-6)
    return turned(y, n * torch.arange(y.shape[1], dtype=x.dtype))


def compressed_attention(p, x, entries, seen):
    """Of each token to its last 32 tokens and to the entries that it sees [B, T, E], with a sink."""
    T, pos = x.shape[1], torch.arange(x.shape[1], dtype=x.dtype)
    q = turned(heads(x @ p["query.weight"].T), pos)
    k = turned(rms_norm(x @ p["key.weight"].T, p["key_norm.weight"], 1e-6), pos)
    age = torch.arange(T)[:, None] - torch.arange(T)
    near = ((age >= 0) & (age < 32)).expand(x.shape[0], T, T)
    k, seen = torch.cat([entries, k], 1)[:, None], torch.cat([seen, near], 2)[:, None]
    score = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~seen, -torch.inf)
    sink = p["sinks"][:, None, None].expand(*score.shape[:3], 1)
    y = merge(turned(torch.cat([score, sink], -1).softmax(-1)[..., :-1] @ k, -pos))
    y = torch.einsum("btgi,gri->btgr", y.unflatten(-1, (2, -1)), p["down"]).flatten(2)
    return linear(p, y, "out")


def closed(x, n):
    """Whether a window of n tokens has ended, [T, E]."""
    T = x.shape[1]
    return (torch.arange(-(-T // n)) + 1) * n <= torch.arange(T)[:, None] + 1


@decoder("heavily_compressed_attention")
def heavily_compressed_attention(p, x, tokens):
    entries = compressed(Scope(p, "compressor."), x, 16, 1)
    return compressed_attention(p, x, entries, closed(x, 16).expand(x.shape[0], -1, -1))


@decoder("compressed_sparse_attention")
def compressed_sparse_attention(p, x, tokens):
    entries, k = (compressed(Scope(p, name), x, 4, 2) for name in ("compressor.", "indexer."))
    pos = torch.arange(x.shape[1], dtype=x.dtype)
    q = turned((x @ p["index_query.weight"].T).unflatten(-1, (8, -1)).transpose(1, 2), pos)
    score = torch.einsum("bth,bhts->bts", x @ p["index_weight.weight"].T, F.relu(q @ k[:, None].mT))
    score = score.masked_fill(~closed(x, 4), -torch.inf)
    best = score.topk(min(8, score.shape[-1]), -1)[1]
    return compressed_attention(p, x, entries, F.one_hot(best, score.shape[-1]).sum(2).bool() & closed(x, 4))
