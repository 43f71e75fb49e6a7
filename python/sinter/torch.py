"""Sinter inside PyTorch: compiled entries and their gradients as functions of tensors, attention with any score and mask,
layers whose parameters are torch's. Tensors are on the CPU; they are passed by address."""
from __future__ import annotations

import ctypes
from types import FunctionType
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from ._library import _call, _TypeError, _ValueError
from .artefact import Tensor
from .dsl import ScoreFunction, attention
from .graph import Module, Node, Size, function as _c
from .program import Function as _Entry, Program, initial, trace

_MAX_PARAMETERS = 1 << 16
__all__ = ["Function", "Layer", "flex_attention", "function"]

_TYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16, "i32": torch.int32,
          "i64": torch.int64, "i8": torch.int8, "u8": torch.uint8, "bool": torch.bool}


class Function:
    """An entry as a differentiable function of tensors. It is called with its inputs in the order of `inputs`, or by
    name, then with its parameters; it returns the output, or a tuple of several, whose gradients torch.autograd asks
    another entry for. The module is compiled here, and must not be extended afterwards."""

    def __init__(self, module: Module, entry: str = "forward", seed: int = 0, **options: Any) -> None:
        _call(_c("entry_vjp", ctypes.c_int), module, entry.encode(), (entry + ".gradient").encode())
        count = _c("params_to_inputs", ctypes.c_int)
        listed = (ctypes.c_char_p * _MAX_PARAMETERS)()
        known_as = [n.decode() for n in listed[:count(module, _MAX_PARAMETERS, listed)] if n]
        self.program = Program(module, **options)
        if self.program.states:
            raise _ValueError("a function of tensors cannot have states: " + ", ".join(self.program.states))
        self.entry = self.program.entries[entry]
        found = {i.name: i for i in self.entry.inputs}
        self.inputs = [n for n in found if n not in known_as]
        self.parameters = {n: torch.tensor(initial(module, found[n], seed, at)) for at, n in enumerate(known_as) if n in found}
        self.outputs = [o.name for o in self.entry.outputs]
        self._names = self.inputs + list(self.parameters)
        self._order = [self._names.index(i.name) for i in self.entry.inputs]
        self._gradient = self.program.entries.get(entry + ".gradient")
        known = {s for i in self._gradient.inputs for s in i.sizes} if self._gradient else set()
        # sizes that no input of the gradient has, and where those of the entry have them
        self._sizes = {s: (self._names.index(i.name), axis) for i in self.entry.inputs for axis, s in enumerate(i.sizes)
                       if s.isidentifier() and s not in known}

    def __call__(self, *tensors: torch.Tensor, **named: torch.Tensor) -> Any:
        given = list(tensors)
        for name in self._names[len(given):]:
            if name not in named:
                raise _TypeError("%s needs the tensor '%s'" % (self.entry.name, name))
            given.append(named.pop(name))
        if named or len(given) > len(self._names):
            raise _TypeError("%s takes the tensors %s" % (self.entry.name, ", ".join(self._names)))
        made = _Apply.apply(self, *given)
        return made[0] if len(made) == 1 else made

    def _forward(self, given: Sequence[torch.Tensor]) -> List[torch.Tensor]:
        return _run(self.entry, [given[i] for i in self._order], {})

    def _gradients(self, given: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor]) -> List[Optional[torch.Tensor]]:
        found: List[Optional[torch.Tensor]] = [None] * len(given)
        if self._gradient:
            values = dict(zip(self._names, given))
            values.update(("weights.%s" % n, g) for n, g in zip(self.outputs, cotangents))
            made = _run(self._gradient, [values[i.name] for i in self._gradient.inputs],
                        {s: given[i].shape[axis] for s, (i, axis) in self._sizes.items()})
            for o, g in zip(self._gradient.outputs, made):
                found[self._names.index(o.name[len("gradient."):])] = g
        return found


class _Apply(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, f: Function, *given: torch.Tensor) -> Tuple[torch.Tensor, ...]:  # type: ignore[override]
        ctx.f = f
        ctx.save_for_backward(*given)
        made = tuple(f._forward(given))
        ctx.mark_non_differentiable(*[t for t in made if not t.is_floating_point()])
        return made

    @staticmethod
    @once_differentiable  # type: ignore[misc]
    def backward(ctx: Any, *cotangents: torch.Tensor) -> Tuple[Any, ...]:
        return (None, *ctx.f._gradients(ctx.saved_tensors, cotangents))


def _run(entry: _Entry, given: Sequence[torch.Tensor], dims: Mapping[str, int]) -> List[torch.Tensor]:
    ready = [_checked(entry, i, t) for i, t in zip(entry.inputs, given)]
    call = entry.call([tuple(t.shape) for t in ready], dims)
    made = [torch.empty(shape, dtype=_TYPES[o.type]) for shape, o in zip(call.shapes, entry.outputs)]
    call.run([t.data_ptr() for t in ready + made])
    return made


def _checked(entry: _Entry, i: Tensor, t: torch.Tensor) -> torch.Tensor:
    if not isinstance(t, torch.Tensor) or t.dtype != _TYPES[i.type] or t.device.type != "cpu":
        raise _TypeError("%s: '%s' must be a tensor of %s on the CPU, not %s" % (
            entry.name, i.name, _TYPES[i.type], "%s on %s" % (t.dtype, t.device) if isinstance(t, torch.Tensor) else repr(t)))
    return t.contiguous()


Graph = Union[Module, Callable[..., Any]]
Bounds = Mapping[str, Tuple[int, int]]


def function(model: Graph, inputs: Optional[Mapping[str, Any]] = None, entry: str = "forward", dims: Bounds = {}, **options: Any) -> Function:
    """An entry of a module, also of load_model() and load_onnx(), or a function of tensors with the `inputs` and `dims` of sinter.trace(), as a differentiable
    function. options: seed of the parameters, and those of sinter.compile()."""
    return Function(model if isinstance(model, Module) else trace(model, inputs or {}, dims), entry, **options)


class Layer(torch.nn.Module):
    """A layer in the DSL: its parameters are parameters of torch with the same names. Arguments as in function()."""

    def __init__(self, model: Graph, inputs: Optional[Mapping[str, Any]] = None, entry: str = "forward", dims: Bounds = {},
                 **options: Any) -> None:
        super().__init__()
        self._function = function(model, inputs, entry, dims, **options)
        self._places: List[Tuple[torch.nn.Module, str]] = []
        for name, value in self._function.parameters.items():
            holder: torch.nn.Module = self
            *scopes, leaf = name.split(".")
            for scope in scopes:
                if scope not in dict(holder.named_children()):
                    holder.add_module(scope, torch.nn.Module())
                holder = dict(holder.named_children())[scope]
            holder.register_parameter(leaf, torch.nn.Parameter(value))
            self._places.append((holder, leaf))

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self._function(*tensors, *[getattr(holder, leaf) for holder, leaf in self._places])

    def explain(self) -> str:
        """What was fused, also in the gradient."""
        return self._function.program.explain()


_attentions: Dict[Any, Tuple[Function, Any]] = {}


def flex_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, score: Optional[ScoreFunction] = None,
                   mask: Optional[ScoreFunction] = None, causal: bool = False, window: int = 0, scale: float = 0,
                   captured: Sequence[torch.Tensor] = (), **options: Any) -> torch.Tensor:
    """sinter.attention of tensors q [B, H, Tq, d], k [B, Hk, Tk, d], v [B, Hk, Tk, dv], with a gradient, also of floats
    among the captured tensors. score and mask: functions of a sinter.Score and of the captured tensors.

    A program is compiled for each pair of functions (their code and the variables around them), types and numbers of
    heads; it serves all batches and lengths. options: those of sinter.compile()."""
    square, like = q.shape[2] == k.shape[2], [(t.dtype, t.dim()) for t in captured]
    key = (_identity(score), _identity(mask), causal, window, scale, square, q.dtype, q.shape[1], q.shape[3], k.shape[1], v.shape[3],
           tuple(like), tuple(sorted(options.items())))
    if key not in _attentions:
        m = Module("flex_attention")
        m.entry("forward")
        batch: Size = m.symbol("B", 1, 65536)
        queries: Size = m.symbol("T", 1, 2**20)
        keys = queries if square else m.symbol("S", 1, 2**20)
        kind, tables = _name_of(q.dtype), []
        q_, k_, v_ = (m.input(n, kind, (batch, int(t.shape[1]), rows, int(t.shape[3])))
                      for n, t, rows in (("q", q, queries), ("k", k, keys), ("v", v, keys)))
        for i, t in enumerate(captured):
            tables.append(m.input("captured%d" % i, _name_of(t.dtype), [m.symbol("C%d_%d" % (i, a), 1, 2**30) for a in range(t.dim())]))
        m.output("y", attention(q_, k_, v_, score=score, mask=mask, causal=causal, window=window, scale=scale, captured=tables))
        _attentions[key] = Function(m, **options), (score, mask)
    found: torch.Tensor = _attentions[key][0](q, k, v, *captured)
    return found


def _identity(f: Optional[ScoreFunction]) -> Any:
    """Equal for a function that is made again by the same code with the same variables around it."""
    if not isinstance(f, FunctionType):
        return f
    around = [c.cell_contents for c in f.__closure__ or ()] + [*(f.__defaults__ or ()), *(f.__kwdefaults__ or {}).values()]
    return f.__code__, tuple((type(x), x if getattr(x, "__hash__", None) else _content(x)) for x in around)


def _content(x: Any) -> Any:
    return (x.tobytes(), x.dtype.str, x.shape) if isinstance(x, np.ndarray) else repr(x)


def _name_of(dtype: torch.dtype) -> str:
    for name, t in _TYPES.items():
        if t == dtype:
            return name
    raise _TypeError("there is no element type for %s" % dtype)
