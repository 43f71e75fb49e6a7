"""The operations that the op table does not have: reductions, shapes, look-ups, attention, loops, layers, gradients."""
from __future__ import annotations

import ctypes
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple, Union

from ._library import _LAYOUTS, _P, _TypeError, _ValueError
from .graph import (Axes, Module, Node, Number, Operand, Size, _size, _size_of, axes, build, function, here, operand, sizes,
                    tensors)

__all__ = ["where", "square", "log_sigmoid", "sum", "mean", "variance", "amax", "amin", "argmax", "logsumexp", "cumsum",
           "reshape", "transpose", "swap", "broadcast", "expand", "squeeze", "flip", "split", "concat", "stack", "pad",
           "update", "split_heads", "merge_heads", "einsum", "gather", "scatter_add", "take_along", "sort", "argsort",
           "top_k", "take_blocks", "expert_linear", "grouped_matmul", "solve_triangular", "conv2d", "rope",
           "smooth_cross_entropy", "Score", "attention", "causal_mask", "Scanned", "scan", "nn_linear", "nn_embedding",
           "nn_layer_norm", "nn_rms_norm", "grad", "parameters_of", "Optimizer", "optimizer", "optimize", "Context",
           "decoder"]

_I64, _REAL, _BOOL, _FLAG, _NAME = ctypes.c_int64, ctypes.c_double, ctypes.c_bool, ctypes.c_int, ctypes.c_char_p
MAX_LIST = 8  # SN_MAX_SCAN, SN_MAX_CAPTURED
_List = _P * MAX_LIST


def _listed(what: str, listed: Sequence[Node]) -> Any:
    if len(listed) > MAX_LIST:
        raise _ValueError("%s: %d tensors; at most %d" % (what, len(listed), MAX_LIST))
    return _List(*[t.handle for t in listed])


class _Struct(ctypes.Structure):
    """An options struct; tensors are given as Node or None."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**{n: v.handle if isinstance(v, Node) else v for n, v in fields.items()})


# ---- elementwise operations with other operands ----


def where(condition: Node, x: Operand, y: Operand) -> Node:
    """condition ? x : y, element by element."""
    return build(condition.module, "where", condition, operand(x), operand(y))


def square(x: Node) -> Node:
    """x x"""
    return build(x.module, "square", x)


def log_sigmoid(x: Node) -> Node:
    """ln sigmoid(x), precise for any x."""
    return build(x.module, "log_sigmoid", x)


# ---- reductions over the listed axes, None: all; keep: they remain with size 1 ----


def _reduce(name: str, x: Node, axis: Axes, keep: bool) -> Node:
    return build(x.module, name, x, axes(axis), keep)


def sum(x: Node, axis: Axes = None, keep: bool = False) -> Node:
    """Sum over axes."""
    return _reduce("sum", x, axis, keep)


def mean(x: Node, axis: Axes = None, keep: bool = False) -> Node:
    """Mean over axes."""
    return _reduce("mean", x, axis, keep)


def variance(x: Node, axis: Axes = None, keep: bool = False) -> Node:
    """Mean square difference from the mean, over axes."""
    return _reduce("variance", x, axis, keep)


def amax(x: Node, axis: Axes = None, keep: bool = False) -> Node:
    """The largest element over axes."""
    return _reduce("amax", x, axis, keep)


def amin(x: Node, axis: Axes = None, keep: bool = False) -> Node:
    """The smallest element over axes."""
    return _reduce("amin", x, axis, keep)


def argmax(x: Node, axis: int) -> Node:
    """i32 index of the first maximum along the axis, which is removed."""
    return build(x.module, "argmax", x, axis)


def logsumexp(x: Node, axis: int) -> Node:
    """ln of the sum of e^x along the axis, which is removed."""
    return build(x.module, "logsumexp", x, axis)


def cumsum(x: Node, axis: int) -> Node:
    """Running sums along the axis."""
    return build(x.module, "cumsum", x, axis)


# ---- shapes ----


def reshape(x: Node, *shape: Size) -> Node:
    """The same elements in row-major order; one size may be -1."""
    return build(x.module, "reshape", x, sizes(shape))


def transpose(x: Node, *order: int) -> Node:
    """Axis i of the result is axis order[i] of x."""
    return build(x.module, "transpose", x, axes(order))


def swap(x: Node, axis1: int, axis2: int) -> Node:
    """Two axes swapped."""
    return build(x.module, "swap", x, axis1, axis2)


def broadcast(x: Node, *shape: Size) -> Node:
    """x repeated to the shape."""
    return build(x.module, "broadcast", x, sizes(shape))


def expand(x: Node, axis: int) -> Node:
    """A new axis of size 1."""
    return build(x.module, "expand", x, axis)


def squeeze(x: Node, axis: int) -> Node:
    """Without an axis of size 1."""
    return build(x.module, "squeeze", x, axis)


def flip(x: Node, axis: int) -> Node:
    """The last element first."""
    return build(x.module, "flip", x, axis)


def split(x: Node, axis: int, parts: int) -> List[Node]:
    """Equal parts of an axis."""
    made = (_P * parts)()
    function("split_at", None)(here(), x, axis, parts, made)
    x.module.check()
    return [Node(x.module, p) for p in made]


def concat(axis: int, *listed: Node) -> Node:
    """Tensors one after another on an axis."""
    return build(listed[0].module, "concat", axis, tensors(listed))


def stack(axis: int, *listed: Node) -> Node:
    """Tensors along a new axis."""
    return build(listed[0].module, "stack", axis, tensors(listed))


def pad(x: Node, axis: int, low: Size, high: Size, value: Number = 0) -> Node:
    """`low` elements before x and `high` after it along an axis."""
    return build(x.module, "pad", x, axis, _size_of(low), _size_of(high), _REAL(value))


def update(x: Node, y: Node, *start: Size) -> Node:
    """x with y written at the start, one number for each axis."""
    return build(x.module, "update", x, y, sizes(start))


def split_heads(x: Node, heads: int) -> Node:
    """[B, T, H D] -> [B, H, T, D]"""
    return build(x.module, "split_heads", x, _I64(heads))


def merge_heads(x: Node) -> Node:
    """[B, H, T, D] -> [B, T, H D]"""
    return build(x.module, "merge_heads", x)


# ---- products and look-ups ----


def einsum(spec: str, x: Node, y: Node) -> Node:
    """Labels name axes: einsum("bhqd,bhkd->bhqk", q, k)."""
    return build(x.module, "einsum", spec.encode(), x, y)


def gather(x: Node, axis: int, ids: Node) -> Node:
    """Slices of x at integer indices: the shape of ids replaces the axis."""
    return build(x.module, "gather", x, axis, ids)


def scatter_add(x: Node, axis: int, ids: Node, count: Size) -> Node:
    """`count` zeros along the axis, to which the slices of x are added at ids."""
    return build(x.module, "scatter_add", x, axis, ids, _size_of(count))


def take_along(x: Node, axis: int, ids: Node) -> Node:
    """y[.., j, ..] = x[.., ids[.., j, ..], ..]"""
    return build(x.module, "take_along", x, axis, ids)


def sort(x: Node, axis: int, descending: bool = False) -> Node:
    """The elements in order along an axis."""
    return build(x.module, "sort", x, axis, descending)


def argsort(x: Node, axis: int, descending: bool = False) -> Node:
    """Their indices, i32."""
    return build(x.module, "argsort", x, axis, descending)


def top_k(x: Node, k: Size) -> Tuple[Node, Node]:
    """The k largest elements along the last axis, and their indices."""
    order = _P()
    best = build(x.module, "top_k", x, _size_of(k), ctypes.byref(order))
    return best, Node(x.module, order.value)


def take_blocks(x: Node, index: Node, blocks: int) -> Node:
    """Blocks of the last axis whose numbers are in index: [.., blocks d] -> [.., k, d]."""
    return build(x.module, "take_blocks", x, index, _I64(blocks))


def expert_linear(x: Node, w: Node, index: Node) -> Node:
    """y[.., j, :] = w[index[.., j]] x"""
    return build(x.module, "expert_linear", x, w, index)


def grouped_matmul(x: Node, w: Node, group: Node) -> Node:
    """y[.., :] = w[group[..]] x[.., :]"""
    return build(x.module, "grouped_matmul", x, w, group)


class _Triangular(_Struct):  # sn_triangular_options
    _fields_ = [("b", _P), ("upper", _BOOL), ("transposed", _BOOL), ("unit", _BOOL)]


def solve_triangular(a: Node, b: Node, upper: bool = False, transposed: bool = False, unit: bool = False) -> Node:
    """X of A X = b for a triangular A [.., T, T]."""
    return build(a.module, "solve_triangular", a, _Triangular(b=b, upper=upper, transposed=transposed, unit=unit))


class _Conv2d(_Struct):  # sn_conv2d_options
    _fields_ = [("bias", _P), ("stride", _I64 * 2), ("padding", _I64 * 2), ("dilation", _I64 * 2), ("groups", _I64)]


def conv2d(x: Node, w: Node, bias: Optional[Node] = None, stride: Tuple[int, int] = (1, 1),
           padding: Tuple[int, int] = (0, 0), dilation: Tuple[int, int] = (1, 1), groups: int = 1) -> Node:
    """x [B, C, H, W], w [O, C / groups, kh, kw] -> [B, O, Ho, Wo]"""
    return build(x.module, "conv2d", x, w, _Conv2d(bias=bias, stride=stride, padding=padding, dilation=dilation, groups=groups))


class _Rope(_Struct):  # sn_rope_options
    _fields_ = [("pos", _P), ("base", _REAL), ("halves", _BOOL), ("freq", _P)]


def rope(x: Node, pos: Node, base: float = 0, halves: bool = False, freq: Optional[Node] = None) -> Node:
    """Rotary positions: x [B, .., T, d], pos [T] or [B, T]; base 0: 10000."""
    return build(x.module, "rope", x, _Rope(pos=pos, base=base, halves=halves, freq=freq))


def smooth_cross_entropy(x: Node, target: Node, smoothing: float) -> Node:
    """cross_entropy, of which a share has all classes as targets."""
    return build(x.module, "smooth_cross_entropy", x, target, _REAL(smoothing))


# ---- callbacks: functions of Python that the library calls once, while it builds the graph ----


class Traced:
    """Keeps what a function raises until the library has returned."""

    def __init__(self) -> None:
        self.raised: Optional[BaseException] = None

    def guard(self, call: Callable[[], Any], otherwise: Any = None) -> Any:
        try:
            return call()
        except BaseException as e:  # C code is between here and the caller
            self.raised = self.raised or e
            return otherwise

    def again(self) -> None:
        if self.raised:
            raise self.raised


# ---- attention ----


class _ScoreContext(ctypes.Structure):  # sn_score_ctx
    _fields_ = [("m", _P), ("score", _P), ("b", _P), ("h", _P), ("q", _P), ("k", _P), ("n_q", _I64), ("n_k", _I64),
                ("past", _P), ("captured", ctypes.POINTER(_P)), ("user", _P)]


_SCORE = ctypes.CFUNCTYPE(_P, ctypes.POINTER(_ScoreContext))


class _Attention(_Struct):  # sn_attention_args
    _fields_ = [("q", _P), ("k", _P), ("v", _P), ("scale", _REAL), ("causal", _BOOL), ("window", _I64), ("past", _P),
                ("score", _SCORE), ("weight", _SCORE), ("divide", _FLAG), ("sink", _P), ("mix_scores", _P), ("mix_weights", _P),
                ("mask", _SCORE), ("captured", _List), ("user", _P), ("dropout", _REAL), ("rng", _P),
                ("lse", ctypes.POINTER(_P)), ("mesh", _NAME), ("ranks", _I64), ("zigzag", _BOOL), ("piece", _I64)]


class Score:
    """One score of attention and its indices, as scalars: batch, query head, query, key. In a mask `score` is not set."""

    def __init__(self, module: Module, c: Any) -> None:
        self.module, self._c = module, c
        self.b, self.h, self.q, self.k = (Node(module, t) for t in (c.contents.b, c.contents.h, c.contents.q, c.contents.k))
        self.score = Node(module, c.contents.score)
        self.n_q, self.n_k = _size(module, c.contents.n_q), _size(module, c.contents.n_k)

    @property
    def distance(self) -> Node:
        """From the key to the query in positions, i32; negative: the key is in the future."""
        made = Node(self.module, function("query_key_distance_at")(here(), self._c))
        self.module.check()
        return made


ScoreFunction = Callable[..., Node]
_DIVIDE = {"none": 0, "sum": 1, "abs_sum": 2}


def _made(x: Any) -> Node:
    if not isinstance(x, Node):
        raise _TypeError("a score, mask or weight function returns a tensor, not %r" % (x,))
    return x


def attend(call: Callable[[Any], Any], q: Node, k: Node, v: Node, scale: float = 0, causal: bool = False, window: int = 0,
           past: Optional[Node] = None, score: Optional[ScoreFunction] = None, mask: Optional[ScoreFunction] = None,
           weight: Optional[ScoreFunction] = None, divide: str = "none", sink: Optional[Node] = None,
           mix_scores: Optional[Node] = None, mix_weights: Optional[Node] = None, captured: Sequence[Node] = (),
           dropout: float = 0, rng: Optional[Node] = None, lse: Optional[List[Node]] = None) -> Node:
    """The call of sn_attention, or of a function like it, with these options."""
    module, traced, rows = q.module, Traced(), _P()

    def traces(user: Optional[ScoreFunction]) -> Any:
        def trace(c: Any) -> Any:
            tables = [Node(module, c.contents.captured[i]) for i in range(len(captured))]
            return traced.guard(lambda: user and _made(user(Score(module, c), *tables)).handle)
        return _SCORE(trace) if user else ctypes.cast(_P(), _SCORE)

    if divide not in _DIVIDE:
        raise _ValueError("divide is one of %s, not '%s'" % (", ".join(_DIVIDE), divide))
    a = _Attention(q=q, k=k, v=v, scale=scale, causal=causal, window=window, past=past, score=traces(score), mask=traces(mask),
                   weight=traces(weight), divide=_DIVIDE[divide], sink=sink, mix_scores=mix_scores, mix_weights=mix_weights,
                   captured=_listed("attention", captured), dropout=dropout, rng=rng,
                   lse=ctypes.pointer(rows) if lse is not None else None)
    made = Node(module, call(ctypes.byref(a)))
    traced.again()
    module.check()
    if lse is not None:
        lse.append(Node(module, rows.value))
    return made


def attention(q: Node, k: Node, v: Node, **options: Any) -> Node:
    """softmax(scale q k^T, with score and mask applied) v: q [B, H, Tq, d], k [B, Hk, Tk, d], v [B, Hk, Tk, dv].

    causal; window: the last keys that a query sees, 0: all. score, mask, weight: functions of a sinter.Score, and of the
    tensors `captured`, which are called once; they return the new score, whether the key is visible, or the weight of a
    key in place of softmax, which `divide` ("none", "sum", "abs_sum") divides. past, sink, mix_scores, mix_weights,
    dropout with rng: as in sn_attention_args. scale 0: 1 / sqrt(d). lse: a list to which the log-sum-exp is added."""
    place = here()
    return attend(lambda a: function("attention_at")(place, a), q, k, v, **options)


def causal_mask(module: Module, queries: Size, keys: Size, window: int = 0) -> Node:
    """bool [queries, keys]: the last query is at the position of the last key. window: the last keys that it sees."""
    return build(module, "window_mask", module, _size_of(queries), _size_of(keys), _I64(window))


# ---- loops ----


class _ScanStep(ctypes.Structure):  # sn_scan_step
    _fields_ = [("m", _P), ("carry", ctypes.POINTER(_P)), ("x", ctypes.POINTER(_P)), ("index", _P), ("next", ctypes.POINTER(_P)),
                ("y", ctypes.POINTER(_P)), ("user", _P)]


_BODY = ctypes.CFUNCTYPE(None, ctypes.POINTER(_ScanStep))


class _Scan(ctypes.Structure):  # sn_scan_args
    _fields_ = [("carry", _List), ("x", _List), ("count", _I64), ("axis", ctypes.c_int), ("reverse", _BOOL), ("body", _BODY),
                ("user", _P)]


class _Scanned(ctypes.Structure):  # sn_scanned
    _fields_ = [("carry", _List), ("y", _List)]


class Scanned(NamedTuple):
    """Results of a loop: the carries after the last element, and the outputs of all elements on the axis."""
    carry: List[Node]
    y: List[Node]


def scan(body: Callable[..., Union[Node, Sequence[Node]]], carry: Sequence[Node], x: Sequence[Node] = (), axis: int = 0,
         reverse: bool = False, count: Size = 0) -> Scanned:
    """Runs the body for one element of each sequence after the other. It is called once with the carries and the elements
    (without sequences: with the number of the iteration, of `count`), and returns the next carries, then outputs."""
    if not carry and not x:
        raise _ValueError("scan: give a carry or a sequence")
    module, traced, outputs = (list(carry) + list(x))[0].module, Traced(), [0]

    def one(s: Any) -> None:
        step = s.contents
        given = [step.carry[i] for i in range(len(carry))] + ([step.x[i] for i in range(len(x))] if x else [step.index])
        made = body(*[Node(module, t) for t in given])
        listed = [made] if isinstance(made, Node) else list(made)
        if not len(carry) <= len(listed) <= len(carry) + MAX_LIST:
            raise _ValueError("scan: the body returned %d tensors: the %d next carries, then at most %d outputs" % (
                len(listed), len(carry), MAX_LIST))
        for i, t in enumerate(listed):
            (step.next if i < len(carry) else step.y)[i if i < len(carry) else i - len(carry)] = t.handle
        outputs[0] = len(listed) - len(carry)

    a = _Scan(_listed("scan", carry), _listed("scan", x), _size_of(count), axis, reverse, _BODY(lambda s: traced.guard(lambda: one(s))))
    r = function("scan_at", _Scanned)(here(), ctypes.byref(a))
    traced.again()
    module.check()
    return Scanned([Node(module, r.carry[i]) for i in range(len(carry))], [Node(module, r.y[i]) for i in range(outputs[0])])


# ---- layers that declare their parameters, NAME.weight and NAME.bias in the scope ----


def nn_linear(x: Node, name: str, width: int, bias: bool = True) -> Node:
    """x [.., in] -> [.., width]"""
    return build(x.module, "nn_linear", x, name.encode(), _I64(width), int(bias))


def nn_embedding(ids: Node, name: str, count: int, width: int) -> Node:
    """ids [..] -> [.., width]"""
    return build(ids.module, "nn_embedding", ids, name.encode(), _I64(count), _I64(width))


def nn_layer_norm(x: Node, name: str, eps: float = 1e-5) -> Node:
    """Layer norm of the last axis."""
    return build(x.module, "nn_layer_norm", x, name.encode(), _REAL(eps))


def nn_rms_norm(x: Node, name: str, eps: float = 1e-6) -> Node:
    """RMS norm of the last axis."""
    return build(x.module, "nn_rms_norm", x, name.encode(), _REAL(eps))


# ---- gradients and training ----


def grad(loss: Node, wrt: Sequence[Node]) -> List[Node]:
    """Gradients of a scalar."""
    made = (_P * max(len(wrt), 1))()
    function("grad_at", ctypes.c_int)(here(), loss, len(wrt), tensors(wrt), made)
    loss.module.check()
    return [Node(loss.module, made[i]) for i in range(len(wrt))]


def parameters_of(x: Node) -> List[Node]:
    """The parameters that x depends on, in the order of declaration."""
    count = function("params_of", ctypes.c_int)
    made = (_P * max(count(x, 0, None), 1))()
    return [Node(x.module, made[i]) for i in range(count(x, len(made), made))]


class Optimizer(ctypes.Structure):
    """sn_optimizer: kind, momentum, beta1, beta2, eps, decay, max_norm, average ..."""
    _fields_ = [("kind", ctypes.c_int), ("update", _P), ("by_rows", _BOOL), ("momentum", _REAL), ("nesterov", _BOOL),
                ("polar", _BOOL), ("beta1", _REAL), ("beta2", _REAL), ("eps", _REAL), ("decay", _REAL), ("decays", _P),
                ("user", _P), ("max_norm", _REAL), ("average", _REAL), ("group", _P), ("groups", ctypes.c_int)]


def _optimizers() -> List[str]:
    names = function("optimizer_names", ctypes.POINTER(ctypes.c_char_p))()
    listed: List[str] = []
    while names[len(listed)]:
        listed.append(names[len(listed)].decode())
    return listed


def optimizer(kind: str = "adamw", **settings: float) -> Optimizer:
    """An optimizer with PyTorch's defaults; settings: momentum, nesterov, polar, beta1, beta2, eps, decay, max_norm,
    average."""
    known = _optimizers()
    if kind not in known:
        raise _ValueError("there is no optimizer '%s': %s" % (kind, ", ".join(known)))
    made: Optimizer = function("optimizer_of", Optimizer)(known.index(kind))
    for name, value in settings.items():
        if name not in ("momentum", "nesterov", "polar", "beta1", "beta2", "eps", "decay", "max_norm", "average"):
            raise _ValueError("an optimizer has no setting '%s'" % name)
        setattr(made, name, value)
    return made


def optimize(loss: Node, rate: Operand, parameters: Optional[Sequence[Node]] = None, how: Optional[Optimizer] = None) -> Node:
    """Adds one step of the optimizer (None: AdamW) to the entry; parameters None: all that the loss depends on. Returns
    the norm of the gradient."""
    trained = parameters_of(loss) if parameters is None else list(parameters)
    speed = rate if isinstance(rate, Node) else loss.module.full("f32", float(rate), ())  # type: ignore[arg-type]
    return build(loss.module, "optimize", loss, speed, len(trained), tensors(trained), ctypes.byref(how or optimizer()))


# ---- decoders: the entries of language models from their layers ----


class _Forward(ctypes.Structure):  # sn_forward_ctx
    _fields_ = [("m", _P), ("tokens", _P), ("pos", _P), ("B", _I64), ("T", _I64), ("past", _I64), ("capacity", _I64), ("hidden", _P),
                ("training", _P), ("documents", _P), ("ranks", _I64), ("zigzag", _BOOL), ("rows", _I64), ("row", _I64), ("each", _P)]


class Context:
    """What the layers of a decoder see: tokens i32 [B, T] and their positions, after `past` cached ones. capacity: of the
    caches, 0: there are none."""

    def __init__(self, module: Module, s: Any) -> None:
        c = s.contents
        self.module, self._s = module, s
        self.tokens, self.pos = Node(module, c.tokens), Node(module, c.pos)
        self.documents = Node(module, c.documents) if c.documents else None
        self.B, self.T, self.past = (_size(module, d) for d in (c.B, c.T, c.past))
        self.capacity, self.training = int(c.capacity), bool(c.training)

    def append_kv(self, x: Node, name: str) -> Node:
        """With caches: appends x [.., T, d] to the cache and returns all cached rows; otherwise x."""
        return build(self.module, "append_kv", self._s, x, name.encode())

    def dropout(self, x: Node) -> Node:
        """x with the dropout of the training, if any."""
        made = Node(self.module, function("forward_dropout")(self._s, x))
        self.module.check()
        return made

    def attention(self, q: Node, k: Node, v: Node, **options: Any) -> Node:
        """sinter.attention with the dropout and the documents of the training."""
        place = here()
        return attend(lambda a: function("forward_attention_at")(place, self._s, a), q, k, v, **options)


_LAYERS = ctypes.CFUNCTYPE(_P, _P, ctypes.POINTER(_Forward))
_UNEMBED = ctypes.CFUNCTYPE(_P, _P, _P)


class _Decoder(ctypes.Structure):  # sn_decoder
    _fields_ = [("config", _P), ("layers", _LAYERS), ("unembed", _UNEMBED), ("context", _I64), ("n_layers", _I64)]


class _Schedule(ctypes.Structure):  # sn_schedule
    _fields_ = [("kind", ctypes.c_int), ("peak", _REAL), ("final", _REAL), ("warmup", _I64), ("total", _I64)]


class _Training(ctypes.Structure):  # sn_training
    _fields_ = [("optimizer", Optimizer), ("schedule", _Schedule), ("dropout", _REAL), ("accumulate", _I64), ("slices", _I64),
                ("zero", ctypes.c_int), ("ranks", _I64), ("documents", _BOOL),
                ("takes_rate", _BOOL)]


class ModelOptions(ctypes.Structure):
    """sn_model_options."""
    _fields_ = [("entries", ctypes.c_int), ("batch", _I64), ("beams", _I64), ("sequences", _I64), ("context", _I64),
                ("max_batch", _I64), ("tokens", _I64), ("training", ctypes.POINTER(_Training)), ("image", _I64), ("weights", _P),
                ("mesh", _P)]


_ENTRIES = {"forward": 1, "loss": 2, "cached": 4, "encode": 8, "lens": 16, "train": 32, "step": 64, "embed": 128, "classify": 256}


def model_options(entries: Sequence[str], batch: int = 1, max_batch: int = 1024) -> ModelOptions:
    """Which entries a model has: "forward", "loss", "cached" (prefill, decode), "train", "step", "lens" ..."""
    for name in entries:
        if name not in _ENTRIES:
            raise _ValueError("there are no entries '%s': %s" % (name, ", ".join(_ENTRIES)))
    usual = function("training_default", _Training)()
    flags = 0
    for name in entries:
        flags |= _ENTRIES[name]
    return ModelOptions(entries=flags, batch=batch, max_batch=max_batch, training=ctypes.pointer(usual))


def decoder(module: Module, layers: Callable[[Context], Node], unembed: Callable[[Node], Node], context: int, n_layers: int,
            entries: Sequence[str] = ("forward", "loss", "cached")) -> None:
    """The entries of a language model. layers: what the tokens of a context become, [B, T, d]; unembed: their logits."""
    traced, bad = Traced(), module.full("f32", 0, ())
    rows = _LAYERS(lambda _, s: traced.guard(lambda: layers(Context(module, s)).handle, bad.handle))
    logits = _UNEMBED(lambda _, x: traced.guard(lambda: unembed(Node(module, x)).handle, bad.handle))
    d, o = _Decoder(None, rows, logits, context, n_layers), model_options(entries)
    function("decoder_entries", None)(module, ctypes.byref(d), ctypes.byref(o))
    traced.again()
    module.check()


_LAYOUTS.update({
    "sn_score_ctx": _ScoreContext, "sn_attention_args": _Attention, "sn_scan_step": _ScanStep, "sn_scan_args": _Scan,
    "sn_scanned": _Scanned, "sn_triangular_options": _Triangular, "sn_conv2d_options": _Conv2d, "sn_rope_options": _Rope,
    "sn_optimizer": Optimizer, "sn_schedule": _Schedule, "sn_training": _Training, "sn_model_options": ModelOptions,
    "sn_forward_ctx": _Forward, "sn_decoder": _Decoder})
