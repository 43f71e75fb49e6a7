"""The formulas of the variants in this folder, as their papers write them, in PyTorch: steps of a loop instead of
chunks, masks instead of tiles. compare.py compares `sinter call` with them in f64."""
import numpy as np
import torch
import torch.nn.functional as F

H = 4
REFERENCES = {}  # file without .c: Reference


class Reference:
    """forward(p, x): p maps names of parameters and inputs to tensors, x is [B, T, width]; returns y [B, T, width]. Or
    x are the tokens of an `entry` without x, and y is its `output`.
    values: {name: number that scales normal random values, or array}; other matrices are scaled by 1/sqrt(last axis).
    integers: {name: f(B, T, rng)}, arrays that have no gradient and so must be given.
    sizes(B, T): option --sizes; multiple: T is a multiple of it; tolerance of forward and gradients."""

    def __init__(self, forward, values={}, integers={}, sizes=None, multiple=1, tolerance=(1e-4, 1e-3),
                 entry="loss", output="y"):
        self.entry, self.output = entry, output
        self.forward, self.values, self.integers = forward, values, integers
        self.sizes, self.multiple, self.tolerance = sizes, multiple, tolerance


def reference(*files, **options):
    def add(forward):
        for name in files:
            REFERENCES[name] = Reference(forward, **options)
        return forward
    return add


def linear(p, x, name):
    y = x @ p[name + ".weight"].T
    return y + p[name + ".bias"] if name + ".bias" in p else y


def heads(x, n=H):
    return x.reshape(x.shape[0], x.shape[1], n, -1).transpose(1, 2)


def merge(x):
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


def project(p, x, names, scope=""):
    return (heads(linear(p, x, scope + n)) for n in names)


def out(p, y, name="out"):
    return linear(p, merge(y), name)


def rms_norm(x, gain=1, eps=1e-5):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * gain


def layer_norm(x, eps):
    return F.layer_norm(x, x.shape[-1:], eps=eps)


def unit(x, axis=-1):
    return x / torch.sqrt((x * x).sum(axis, keepdim=True) + 1e-6)


def shift(x, n):
    return F.pad(x, (0, 0, n, 0))[:, : x.shape[1]]


def conv4(x, w):  # causal and depthwise, w [4, width]
    return sum(shift(x, 3 - i) * w[i] for i in range(4))


def distance(T):
    i = torch.arange(T)
    return i[:, None] - i[None]


def visible(T, window=None):
    d = distance(T)
    return (d >= 0) & (d < (window or T))


def attend(q, k, v, mask, bias=0):
    z = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + bias
    return z.masked_fill(~mask, -torch.inf).softmax(-1) @ v


def zeros(*shape):
    return torch.zeros(*shape, dtype=torch.get_default_dtype())


def row(x):  # [.., n] as [.., 1, n]
    return x.unsqueeze(-2)


def column(x):
    return x.unsqueeze(-1)


def normalised(a, v):
    return (a / a.sum(-1, keepdim=True)) @ v


@reference("recurrent/based")  # Arora et al. 2024: Taylor features to the second order, and a window
def based(p, x):
    def features(x):
        x = x * x.shape[-1] ** -0.25
        return torch.cat([torch.ones_like(x[..., :1]), x, (column(x) * row(x)).flatten(-2) / 2**0.5], -1)
    T = x.shape[1]
    q, k, v = project(p, x, "qkv")
    y = normalised(features(q) @ features(k).transpose(2, 3) * visible(T), v)
    return out(p, y + attend(*project(p, x, ("wq", "wk", "wv")), visible(T, 64)))


@reference("recurrent/performer", "recurrent/performer_quadratic", values={"W": 1.0})
def performer(p, x):  # Choromanski et al. 2021: positive random features
    def features(x):
        x = x * x.shape[-1] ** -0.25
        return torch.exp(x @ p["W"].T - (x * x).sum(-1, keepdim=True) / 2) / p["W"].shape[0] ** 0.5
    q, k, v = project(p, x, "qkv")
    return out(p, normalised(features(q) @ features(k).transpose(2, 3) * visible(x.shape[1]), v))


@reference("recurrent/gated_deltanet", values={"q.conv": 0.5, "k.conv": 0.5, "v.conv": 0.5})  # Yang et al. 2025
def gated_deltanet(p, x):
    q, k, v = (heads(F.silu(conv4(x @ p[n + ".map.weight"].T, p[n + ".conv"]))) for n in "qkv")
    q, k = unit(q), unit(k)
    beta = torch.sigmoid(linear(p, x, "beta")).transpose(1, 2)
    decay = torch.exp(-torch.exp(p["a_log"]) * F.softplus(linear(p, x, "dt"))).transpose(1, 2)
    B, _, T, N = q.shape
    S, ys = zeros(B, H, N, N), []  # [v, k]
    for t in range(T):
        b = beta[:, :, t, None, None]
        S = decay[:, :, t, None, None] * (S @ (torch.eye(N) - b * column(k[:, :, t]) * row(k[:, :, t])))
        S = S + b * column(v[:, :, t]) * row(k[:, :, t])
        ys.append((S @ column(q[:, :, t]))[..., 0])
    return out(p, rms_norm(torch.stack(ys, 2), p["norm"]) * heads(F.silu(linear(p, x, "gate"))))


@reference("recurrent/rwkv7", values={"xi": 1.0, "alpha": 1.0, "rho": 1.0})  # Peng et al. 2025
def rwkv7(p, x):
    mix = lambda n: heads(linear(p, x + p[n + ".mu"] * (shift(x, 1) - x), n + ".map"))
    r, k, v, a = mix("r"), mix("k"), mix("v"), torch.sigmoid(mix("a"))
    w = torch.exp(-torch.sigmoid(mix("w")) * float(np.exp(-0.5)))
    kappa = unit(k * p["xi"])
    k = k * (1 + (a - 1) * p["alpha"])
    B, _, T, N = r.shape
    S, ys = zeros(B, H, N, N), []
    for t in range(T):
        S = S @ (torch.diag_embed(w[:, :, t]) - column(kappa[:, :, t]) * row((a * kappa)[:, :, t]))
        S = S + column(v[:, :, t]) * row(k[:, :, t])
        ys.append((S @ column(r[:, :, t]))[..., 0])
    y = layer_norm(torch.stack(ys, 2), 64e-5) + (r * k * p["rho"]).sum(-1, keepdim=True) * v
    return out(p, y * torch.sigmoid(mix("g")))


@reference("recurrent/hgrn2", "recurrent/hgrn2_log", "recurrent/hgrn2_slice")
def hgrn2(p, x):  # Qin et al. 2024, with the lower bounds of section 3
    share = torch.softmax(p["gamma"], 0)
    least = torch.cumsum(share, 0) - share
    for layer in range(2):
        s = f"layer{layer}."
        n = rms_norm(x, p[s + "norm.weight"])
        f = heads(least[layer] + (1 - least[layer]) * torch.sigmoid(linear(p, n, s + "f")))
        q, v = heads(F.silu(linear(p, n, s + "q"))), heads(linear(p, n, s + "v"))
        B, _, T, N = q.shape
        S, ys = zeros(B, H, N, N), []
        for t in range(T):
            S = column(f[:, :, t]) * S + column(1 - f[:, :, t]) * row(v[:, :, t])
            ys.append((S.transpose(2, 3) @ column(q[:, :, t]))[..., 0])
        x = x + out(p, rms_norm(torch.stack(ys, 2)), s + "out")
    return x


@reference("recurrent/mlstm", values={"f.bias": 3.0})  # Beck et al. 2024, the stabilised form
def mlstm(p, x):
    q, k, v = project(p, x, "qkv")
    B, _, T, N = q.shape
    k = k / N**0.5
    log_i, log_f = linear(p, x, "i").transpose(1, 2), F.logsigmoid(linear(p, x, "f")).transpose(1, 2)
    C, n, m, ys = zeros(B, H, N, N), zeros(B, H, N), zeros(B, H), []
    for t in range(T):
        new = torch.maximum(log_f[:, :, t] + m, log_i[:, :, t])
        i, f = torch.exp(log_i[:, :, t] - new), torch.exp(log_f[:, :, t] + m - new)
        m = new
        C = f[..., None, None] * C + i[..., None, None] * column(v[:, :, t]) * row(k[:, :, t])
        n = f[..., None] * n + i[..., None] * k[:, :, t]
        ys.append((C @ column(q[:, :, t]))[..., 0] / torch.clamp((n * q[:, :, t]).sum(-1, keepdim=True).abs(), min=1))
    return out(p, torch.stack(ys, 2) * heads(torch.sigmoid(linear(p, x, "o"))))


@reference("recurrent/slstm")  # Beck et al. 2024
def slstm(p, x):
    pre = heads(linear(p, x, "in"))
    B, _, T, N = pre.shape
    N //= 4
    c = n = m = h = zeros(B, H, N)
    ys = []
    for t in range(T):
        z, log_i, log_f, o = (pre[:, :, t] + torch.einsum("bhi,hio->bho", h, p["R"])).split(N, -1)
        log_f = F.logsigmoid(log_f)
        new = torch.maximum(log_f + m, log_i)
        i, f = torch.exp(log_i - new), torch.exp(log_f + m - new)
        m = new
        c, n = f * c + i * torch.tanh(z), f * n + i
        h = torch.sigmoid(o) * c / n
        ys.append(h)
    return out(p, torch.stack(ys, 2))


@reference("recurrent/mamba", "recurrent/mamba_sum")  # Gu & Dao 2023
def mamba(p, x):
    state, width, rank = p["A_log"].shape[1], p["A_log"].shape[0], p["dt.weight"].shape[1]
    a, gate = linear(p, x, "in").split(width, -1)
    u = F.silu(conv4(a, p["conv.weight"].T) + p["conv.bias"])
    d, b, c = linear(p, u, "x").split([rank, state, state], -1)
    delta, A = F.softplus(linear(p, d, "dt")), -torch.exp(p["A_log"])
    h, ys = zeros(x.shape[0], width, state), []
    for t in range(x.shape[1]):
        h = torch.exp(column(delta[:, t]) * A) * h + column(delta[:, t] * u[:, t]) * row(b[:, t])
        ys.append((h * row(c[:, t])).sum(-1))
    return linear(p, (torch.stack(ys, 1) + p["D"] * u) * F.silu(gate), "out")


@reference("recurrent/mamba2_hybrid", "recurrent/mamba2_hybrid_heads", values={"conv": 0.5})
def mamba2(p, x):  # Dao & Gu 2024; layer 2 is attention
    B, T, width = x.shape
    N, state = width // H, (p["conv"].shape[1] - width) // 2
    for layer in range(4):
        s = f"l{layer}."
        n = rms_norm(x, p[s + "norm.weight"])
        if layer == 2:
            x = x + out(p, attend(*project(p, n, "qkv", s), visible(T, 64)), s + "out")
            continue
        v, b, c = F.silu(conv4(linear(p, n, s + "in"), p["conv"])).split([width, state, state], -1)
        v = v.reshape(B, T, H, N)
        dt, A = F.softplus(linear(p, n, s + "dt")), -torch.exp(p[s + "A_log"])
        S, ys = zeros(B, H, N, state), []
        for t in range(T):
            write = column(v[:, t] * column(dt[:, t])) * b[:, t, None, None]
            S = torch.exp(dt[:, t] * A)[..., None, None] * S + write
            ys.append((S * c[:, t, None, None]).sum(-1))
        y = (torch.stack(ys, 1) + p[s + "D"] * v).reshape(B, T, width) * F.silu(linear(p, n, s + "z"))
        x = x + linear(p, rms_norm(y, p[s + "norm_y.weight"]), s + "out")
    return x


def ttt(p, x):  # Sun et al. 2024: gradient steps of a linear layer, one base for 16 tokens
    q, k, v = project(p, x, "qkv")
    B, _, T, N = q.shape
    eta = torch.sigmoid(linear(p, x, "eta")).transpose(1, 2) / N
    gain, bias = p["ln.gain"].reshape(H, N), p["ln.bias"].reshape(H, N)
    f = lambda x, W: x + layer_norm(torch.einsum("bhi,bhij->bhj", x, W), 1e-6) * gain + bias
    W = base = p["W0"].expand(B, H, N, N)
    ys = []
    for t in range(T):
        base = W if t % 16 == 0 else base
        loss = ((f(k[:, :, t], base) - v[:, :, t]) ** 2).sum() / 2
        W = W - eta[:, :, t, None, None] * torch.autograd.grad(loss, base, create_graph=True)[0]
        ys.append(f(q[:, :, t], W))
    return out(p, torch.stack(ys, 2))


reference("recurrent/ttt")(ttt)
reference("recurrent/ttt_dual", multiple=16, sizes=lambda B, T: f"C={T // 16}")(ttt)


@reference("recurrent/gpt_oss")
def gpt_oss(p, x):  # OpenAI 2025: sinks, grouped heads, every other layer with a window of 128
    T = x.shape[1]
    for layer in range(2):
        s = f"l{layer}."
        n = rms_norm(x, p[s + "norm.weight"])
        q = heads(linear(p, n, s + "q"))
        k, v = (heads(linear(p, n, s + c), 2).repeat_interleave(H // 2, 1) for c in "kv")
        mask = visible(T, 128 if layer == 0 else None)
        e = torch.exp((q @ k.transpose(2, 3) / q.shape[-1] ** 0.5).masked_fill(~mask, -torch.inf))
        x = x + out(p, e / (e.sum(-1, keepdim=True) + torch.exp(p[s + "sink"])[:, None, None]) @ v, s + "out")
    return x


@reference("recurrent/softmax1_alibi")
def softmax1_alibi(p, x):
    T = x.shape[1]
    q, k, v = project(p, x, "qkv")
    slope = 2.0 ** (-8 / H * (torch.arange(H) + 1))[:, None, None]
    z = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5 - slope * distance(T)
    e = torch.exp(z.masked_fill(~visible(T), -torch.inf))
    return out(p, e / (1 + e.sum(-1, keepdim=True)) @ v)


SHARP = {"q.weight": 0.2, "k.weight": 0.2}  # scores that differ


@reference("sparse/sparsemax", values=SHARP)  # Martins & Astudillo 2016, row by row
def sparsemax_attention(p, x):
    q, k, v = project(p, x, "qkv")
    T, rows = x.shape[1], []
    z = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    for t in range(T):
        r = z[..., t, : t + 1]
        s = torch.sort(r.detach(), -1, descending=True)[0]
        c = s.cumsum(-1)
        n = (1 + torch.arange(1, t + 2) * s > c).sum(-1, keepdim=True)
        support = (r.detach() > (c.gather(-1, n - 1) - 1) / n).to(x.dtype)
        tau = ((r * support).sum(-1, keepdim=True) - 1) / support.sum(-1, keepdim=True)
        rows.append(F.pad((r - tau) * support, (0, T - t - 1)))
    return out(p, torch.stack(rows, -2) @ v)


class Entmax15(torch.autograd.Function):
    """Peters et al. 2019: 60 bisections; the gradient of proposition 2."""

    @staticmethod
    def forward(ctx, z):
        x = z / 2
        lo = x.max(-1, keepdim=True)[0] - 1
        hi = lo + 1
        for _ in range(60):
            mid = (lo + hi) / 2
            above = (torch.relu(x - mid) ** 2).sum(-1, keepdim=True) >= 1
            lo, hi = torch.where(above, mid, lo), torch.where(above, hi, mid)
        weights = torch.relu(x - lo) ** 2
        weights = weights / weights.sum(-1, keepdim=True)
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx, grad):
        s = ctx.saved_tensors[0].sqrt()
        d = grad * s
        return d - s * d.sum(-1, keepdim=True) / s.sum(-1, keepdim=True)


@reference("sparse/entmax", "sparse/entmax_scan", values=SHARP)
def entmax_attention(p, x):
    q, k, v = project(p, x, "qkv")
    z = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    return out(p, Entmax15.apply(z.masked_fill(~visible(x.shape[1]), -1e30)) @ v)


def choose_blocks(mask, t, gates, most, size):
    """Shows query t the `most` blocks of keys with the highest gates [B, heads, blocks]."""
    best = gates.topk(min(most, gates.shape[-1]), -1)[1]
    group = mask.shape[1] // gates.shape[1]
    for b in range(mask.shape[0]):
        for h in range(mask.shape[1]):
            for i in best[b, h // group].tolist():
                mask[b, h, t, i * size : min((i + 1) * size, t + 1)] = True


@reference("sparse/moba", values=SHARP)  # Lu et al. 2025: the own block and three chosen ones
def moba(p, x):
    q, k, v = project(p, x, "qkv")
    (B, _, T, _), size = q.shape, 32
    mask = torch.zeros(B, H, T, T, dtype=torch.bool)
    for t in range(T):
        own = t // size
        mask[:, :, t, own * size : t + 1] = True
        if own:
            mean = torch.stack([k.detach()[:, :, i * size : (i + 1) * size].mean(2) for i in range(own)], 2)
            choose_blocks(mask, t, (q.detach()[:, :, t : t + 1] * mean).sum(-1), 3, size)
    return out(p, attend(q, k, v, mask))


@reference("sparse/nsa", values={**SHARP, "kc.pos": 1.0, "vc.pos": 1.0, "gate.bias": 1.0})
def nsa(p, x):  # Yuan et al. 2025, two branches
    (B, T, _), size, group = x.shape, 32, 2
    q, k, v = heads(linear(p, x, "q")), *(heads(linear(p, x, n), 2) for n in "kv")
    blocks = T // size
    mask = torch.zeros(B, H, T, T, dtype=torch.bool)
    for t in range(T):
        mask[:, :, t, t // size * size : t + 1] = True
    y = torch.zeros_like(q)
    if blocks:
        def compress(u, n):
            u = u[:, :, : blocks * size].reshape(B, 2, blocks, size, -1) + p[n + ".pos"]
            return linear(p, F.gelu(linear(p, u.flatten(-2), n + ".fc")), n + ".proj").repeat_interleave(group, 1)
        kc, vc = compress(k, "kc"), compress(v, "vc")
        done = (torch.arange(blocks)[None] + 1) * size <= torch.arange(T)[:, None] + 1
        weights = (q @ kc.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(~done, -1e30).softmax(-1) * done
        y = weights @ vc
        gates = weights.detach().reshape(B, 2, group, T, blocks).sum(2)
        for t in range(T):
            n = int(done[t].sum())
            if n:
                choose_blocks(mask, t, gates[:, :, t, :n], 4, size)
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    g = column(torch.sigmoid(linear(p, x, "gate")).transpose(1, 2))
    return out(p, g[:, :H] * y + g[:, H:] * attend(q, k, v, mask))


def capacity(B, T):
    return max(1, -(-2 * B * T // 8))


@reference("sparse/expert_choice", values={"router.weight": 0.2}, sizes=lambda B, T: f"C={capacity(B, T)}")
def expert_choice(p, x):  # Zhou et al. 2022
    rows = x.reshape(-1, x.shape[-1])
    s = linear(p, rows, "router").softmax(-1)
    y = torch.zeros_like(rows)
    for e in range(8):
        g, i = s[:, e].topk(capacity(*x.shape[:2]))
        y = y.index_add(0, i, column(g) * (F.gelu(rows[i] @ p["up"][e].T) @ p["down"][e].T))
    return y.reshape(x.shape)


@reference("sparse/soft_moe", values={"phi": 1.0, "scale": np.full(1, 3)})  # Puigcerver et al. 2024
def soft_moe(p, x):
    z = torch.einsum("btd,ds->bts", unit(x), p["scale"] * unit(p["phi"], 0))
    slots = torch.einsum("bts,btd->bsd", z.softmax(1), x)
    y = [F.gelu(slots[:, 4 * e : 4 * e + 4] @ p["up"][e].T) @ p["down"][e].T for e in range(8)]
    return torch.einsum("bts,bsd->btd", z.softmax(2), torch.cat(y, 1))


@reference("sparse/product_keys", "sparse/product_keys_einsum",
           values={"keys": 0.3, "values": 1.0, "norm.weight": 1.0})
def product_keys(p, x):  # Lample et al. 2019
    B, T, width = x.shape
    q = F.layer_norm(linear(p, x, "q"), (width,), p["norm.weight"], p["norm.bias"], 1e-5).reshape(B, T, 2, 2, 32)
    y = 0
    for m in range(2):  # all pairs of keys
        z = column(q[:, :, m, 0] @ p["keys"][m, 0].T) + row(q[:, :, m, 1] @ p["keys"][m, 1].T)
        best, i = z.flatten(-2).topk(8, -1)
        y = y + (column(best.softmax(-1)) * p["values"][i]).sum(2)
    return y


HASHED = dict(integers={"table": lambda B, T, rng: rng.integers(0, 16, 1000),
                        "tokens": lambda B, T, rng: rng.integers(0, 1000, (B, T))})


@reference("sparse/hash_lora", "sparse/hash_lora_grouped", "sparse/hash_lora_rank64", **HASHED)
def hash_lora(p, x):
    a = p["table"][p["tokens"]]
    return linear(p, x, "w") + torch.einsum("btor,btri,bti->bto", p["up"][a], p["down"][a], x)


LAMBDAS = {n: 0.2 for n in ("q1", "k1", "q2", "k2")}


@reference("sparse/differential", "sparse/differential_two", "sparse/differential_literal",
           values={**SHARP, **LAMBDAS, "norm": 1.0})
def differential(p, x):  # Ye et al. 2025
    (B, T, _), first = x.shape, 0.8 - 0.6 * np.exp(-0.6)
    share = torch.exp(p["q1"] @ p["k1"]) - torch.exp(p["q2"] @ p["k2"]) + first
    q, k = (linear(p, x, n).reshape(B, T, H, 2, -1).permute(3, 0, 2, 1, 4) for n in "qk")
    v = heads(linear(p, x, "v"))
    y = attend(q[0], k[0], v, visible(T)) - share * attend(q[1], k[1], v, visible(T))
    return out(p, rms_norm(y, p["norm"]) * (1 - first))


@reference("sparse/mla", values={"kv_norm.weight": 1.0})
def latent(p, x):  # DeepSeek-AI 2024
    def rope(x):  # pairs (2i, 2i + 1) as complex numbers
        T, d = x.shape[-2:]
        angle = torch.arange(T)[:, None] * 10000 ** (-torch.arange(0.0, d, 2) / d)
        z = torch.view_as_complex(x.reshape(*x.shape[:-1], d // 2, 2).contiguous())
        return torch.view_as_real(z * torch.polar(torch.ones_like(angle), angle)).reshape(x.shape)
    q = heads(linear(p, x, "q"))
    c = rms_norm(linear(p, x, "kv_down"), p["kv_norm.weight"], 1e-6)
    k = torch.einsum("btr,hnr->bhtn", c, p["k_up"])
    shared = rope(linear(p, x, "k_rope").unsqueeze(1)).expand(-1, H, -1, -1)
    q, k = torch.cat([q[..., :32], rope(q[..., 32:])], -1), torch.cat([k, shared], -1)
    return out(p, attend(q, k, torch.einsum("btr,hnr->bhtn", c, p["v_up"]), visible(x.shape[1])))


@reference("sparse/cosformer")  # Qin et al. 2022, all pairs; 4096 is the model's capacity
def cosformer(p, x):
    T = x.shape[1]
    q, k, v = project(p, x, "qkv")
    a = torch.relu(q) @ torch.relu(k).transpose(-1, -2) * torch.cos(np.pi / 2 * distance(T) / 4096) * visible(T)
    return out(p, a @ v / a.sum(-1, keepdim=True).clamp(min=1e-6))


@reference("sparse/hopfield", "sparse/hopfield_unrolled", "sparse/hopfield_attention", values=SHARP)
def hopfield(p, x):  # Ramsauer et al. 2021: three updates
    q, k = project(p, x, "qk")
    for _ in range(3):
        q = attend(q, k, k, visible(x.shape[1]))
    return out(p, q)
