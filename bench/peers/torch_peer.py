# torch_peer.py: PyTorch beside `sinter bench`: answers a request line with a JSON line of seconds.
# The protocol is in bench/peers.h. Models have random weights and the published shapes.
import collections, ctypes, json, math, os, re, sys, tempfile, time

def say(**answer):
    print(json.dumps(answer), flush=True)

try:
    import torch
    import torch.nn.functional as F
    from torch_models import MODELS, inputs
except ImportError as e:
    say(absent=f"python3-torch is not installed ({e})")
    sys.exit(0)

THREADS = int(os.environ.get("PEER_THREADS", "2"))
torch.set_num_threads(THREADS)
torch.manual_seed(0)


def rotary(x):
    T, d = x.shape[-2:]
    angle = torch.arange(T)[:, None] * 10000 ** (-torch.arange(0, d, 2) / d)
    c, s = angle.cos(), angle.sin()
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * c - b * s, a * s + b * c), -1).flatten(-2)


def kernel(r):
    R, C, N = r["rows"], r["width"], r.get("other", 0)
    x = torch.randn(R, C)
    gain, bias = torch.randn(C), torch.randn(C)
    name = r["name"]
    if name == "layer_norm":
        return lambda: F.layer_norm(x, (C,), gain, bias)
    if name == "rms_norm":
        return lambda: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * gain
    if name == "softmax":
        return lambda: x.softmax(-1)
    if name == "gelu":
        return lambda: F.gelu(x, approximate="tanh")
    if name == "gelu_erf":
        return lambda: F.gelu(x)
    if name in ("linear", "linear_bias_gelu", "linear_down", "linear_residual"):
        w, b = torch.randn(N, C), torch.randn(N)
        res = torch.randn(R, N)
        if name in ("linear", "linear_down"):
            return lambda: F.linear(x, w, b)
        if name == "linear_bias_gelu":
            return lambda: F.gelu(F.linear(x, w, b), approximate="tanh")
        return lambda: F.linear(x, w, b) + res
    if name == "qkv":
        w, b = torch.randn(3 * C, C), torch.randn(3 * C)  # one product, as PyTorch users write it
        return lambda: F.linear(x, w, b)
    if name == "swiglu":
        g, u, d = torch.randn(N, C), torch.randn(N, C), torch.randn(C, N)
        return lambda: F.linear(F.silu(F.linear(x, g)) * F.linear(x, u), d)
    if name == "cross_entropy":
        t = torch.randint(0, C, (R,))
        return lambda: F.cross_entropy(x, t, reduction="none")
    if name == "embedding":
        w, ids = torch.randn(N, C), torch.randint(0, N, (R,))
        return lambda: F.embedding(ids, w)
    if name == "rope":
        y = torch.randn(1, N, R, C)
        return lambda: rotary(y)
    return None


def attention(r):
    B, H, T, D = (r[k] for k in ("b", "h", "t", "d"))
    hk = r.get("hk", H)
    q = torch.randn(B, H, T, D)
    k, v = torch.randn(B, hk, T, D), torch.randn(B, hk, T, D)
    i, j = torch.arange(T)[:, None], torch.arange(T)[None]
    kind, size = r["mask"], r.get("size", 0)
    masks = {"full": None, "causal": j > i, "window": (j > i) | (j <= i - size),
             "prefix": (j > i) & (j >= size), "documents": (j > i) | (i // 300 != j // 300)}
    if kind not in masks or hk != H:
        return None
    mask, scale = masks[kind], 1 / math.sqrt(D)

    def run():
        a = (q @ k.transpose(-1, -2)) * scale
        if mask is not None:
            a = a.masked_fill(mask, float("-inf"))
        return a.softmax(-1) @ v

    if not r.get("backward"):
        return run
    g = torch.randn(B, H, T, D)
    inputs = [x.requires_grad_() for x in (q, k, v)]

    def step():
        with torch.enable_grad():
            return torch.autograd.grad(run(), inputs, g)
    return step


def with_int8(module):
    """Its linear maps as products of 8-bit integers, rows quantised at run time, in the fastest engine there is."""
    engines = torch.backends.quantized.supported_engines
    torch.backends.quantized.engine = next(e for e in ("fbgemm", "onednn", "qnnpack") if e in engines)
    return torch.quantization.quantize_dynamic(module, {torch.nn.Linear}, dtype=torch.qint8)


models = {}


def model(r):
    if r["name"] not in MODELS:
        return None
    key = r["name"], r.get("compute")
    m = models.get(key)
    if not m:
        models.clear()
        m = MODELS[r["name"]]().eval()
        m = models[key] = with_int8(m) if r.get("compute") == "int8" else m
    if not r["decode"]:
        given = inputs(m, r["batch"], r["tokens"])
        return lambda: m(*given)
    past = r["past"]
    ids = inputs(m, r["batch"], 1)[0]
    caches = [[torch.zeros(r["batch"], past + 1, m.d) for _ in range(2)] for _ in m.blocks]
    return lambda: m(ids, caches, past)


def train(r):
    if r["name"] not in MODELS:
        return None
    models.clear()
    m = MODELS[r["name"]]()
    m.train()
    given = inputs(m, r["batch"], r["tokens"])
    target = torch.randint(0, m.vocab, (r["batch"] * r["tokens"],))
    o = torch.optim.AdamW(m.parameters(), lr=1e-4)

    def step():
        with torch.enable_grad():
            loss = F.cross_entropy(m(*given).view(-1, m.vocab), target)
            loss.backward()
        if r["clip"] > 0:
            torch.nn.utils.clip_grad_norm_(m.parameters(), r["clip"])
        o.step()
        o.zero_grad(set_to_none=True)
    return step


def gemm(r):
    x = torch.randn(r["m"], r["k"])
    if r.get("compute") == "int8":
        maps = torch.nn.ModuleList(torch.nn.Linear(r["k"], r["n"], bias=False) for _ in range(r["copies"]))
        maps = with_int8(maps.eval())
        return lambda: [f(x) for f in maps]
    ws = [torch.randn(r["n"], r["k"]) for _ in range(r["copies"])]
    if r.get("compute") == "bf16":
        x, ws = x.bfloat16(), [w.bfloat16() for w in ws]

    def run():
        for w in ws:
            F.linear(x, w)
    return run


def autocast(run, r):
    """A pass in which products are of bf16, if that is asked; each casts the weights anew, which change in training."""
    if not run or r.get("compute") != "bf16":
        return run

    def call():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return run()
    return call


WORKS = {"gemm": gemm, "kernel": kernel, "attention": attention, "model": model, "train": train}


def openblas():
    """Which OpenBLAS is loaded: with the pthreads build PyTorch is up to four times slower."""
    with open("/proc/self/maps") as f:
        files = {line.split()[-1] for line in f if "openblas" in line}
    return min(files, default="no OpenBLAS")



def path_of(run):
    """What oneDNN computes in a run, by its verbose log: the most frequent primitives with their implementations."""
    oneDNN = torch.backends.mkldnn
    if not oneDNN.is_available() or not hasattr(oneDNN, "verbose"):
        run()
        return ""
    out = os.dup(1)
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), 1)
        try:
            with oneDNN.verbose(oneDNN.VERBOSE_ON):
                run()
        finally:
            ctypes.CDLL(None).fflush(None)
            os.dup2(out, 1)
            os.close(out)
        log.seek(0)
        lines = [line.split(",") for line in log.read().decode(errors="replace").splitlines()]
    ran = collections.Counter(f"{f[3]} {f[4]}" for f in lines if len(f) > 4 and f[0].endswith("verbose") and f[1] == "exec")
    return "oneDNN: " + ", ".join(f"{n} {what}" for what, n in ran.most_common(3)) if ran else "no oneDNN"


def capability():
    """The vector instructions that PyTorch's kernels take."""
    found = re.search(r"CPU capability usage: (\S+)", torch.__config__.show())
    return found.group(1) if found else "unknown"


engines = "/".join(e for e in torch.backends.quantized.supported_engines if e != "none") or "none"
say(setup=f"PyTorch {torch.__version__} eager, {torch.get_num_threads()} threads, {openblas()}, "
    f"{capability()} kernels, oneDNN {'on' if torch.backends.mkldnn.is_available() else 'off'}, int8 engines {engines}")
last, run, path = None, None, ""
for line in sys.stdin:
    r = json.loads(line)
    repeats = r.pop("repeats")
    try:
        with torch.no_grad():
            if r != last:
                run = None
                work = WORKS.get(r["work"])
                run, last = (autocast(work(r), r) if work else None), r
                path = path_of(run) if run else ""
            if run is None:
                say(skip="not known here")
                continue
            if repeats:
                run()
            runs = repeats or 1
            start = time.perf_counter()
            for _ in range(runs):
                run()
            say(seconds=(time.perf_counter() - start) / runs, path=path)
    except Exception as e:
        say(error=repr(e)[:300])
