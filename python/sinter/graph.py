"""Graphs: modules, sizes, tensors and their operators. Each tensor knows the line of Python that made it."""
from __future__ import annotations

import ctypes
import sys
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Union

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._library import _LAYOUTS, Error, _Error, _library, _P, _TypeError, _ValueError
from .artefact import _TYPES

_NAMES = list(_TYPES)  # in the order of sn_dtype
_END = -2**63          # ends a list of sizes
_NO_AXIS = -2**31      # ends a list of axes
_SYMBOLIC = -2**40     # handles of sizes that are not numbers are this or less


class _Place(ctypes.Structure):  # sn_loc
    _fields_ = [("file", ctypes.c_char_p), ("line", ctypes.c_int)]


class _Operand(ctypes.Structure):  # sn_operand
    _fields_ = [("kind", ctypes.c_int), ("tensor", _P), ("number", ctypes.c_double), ("dim", ctypes.c_int64)]


_LAYOUTS["sn_operand"] = _Operand


_files: Dict[str, bytes] = {}  # graphs refer to these names as long as the process lives


def here() -> _Place:
    """The line of the caller outside this package."""
    frame: Any = sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__package__") == __package__:
        frame = frame.f_back
    name = frame.f_code.co_filename
    return _Place(_files.setdefault(name, name.encode()), frame.f_lineno)


_functions: Dict[str, Any] = {}


def function(name: str, result: Any = _P) -> Any:
    """The function sn_NAME of the library."""
    if name not in _functions:
        _functions[name] = getattr(_library(), "sn_" + name)
        _functions[name].restype = result
    return _functions[name]


class Dim:
    """A size that is known when the program runs. Sums, differences, products and exact quotients (//) are sizes."""
    __array_ufunc__ = None  # NumPy's numbers leave operators to it

    def __init__(self, module: Module, handle: int) -> None:
        self.module, self.handle = module, handle

    def _join(self, name: str, x: Size, y: Size) -> Size:
        place = [here()] if name == "quot_at" else []
        made = function("dim_" + name, ctypes.c_int64)(*place, self.module._as_parameter_, _size_of(x), _size_of(y))
        self.module.check()
        return _size(self.module, made)

    def __add__(self, y: Size) -> Size:
        return self._join("add", self, y)

    def __radd__(self, x: Size) -> Size:
        return self._join("add", x, self)

    def __sub__(self, y: Size) -> Size:
        return self._join("sub", self, y)

    def __rsub__(self, x: Size) -> Size:
        return self._join("sub", x, self)

    def __mul__(self, y: Size) -> Size:
        return self._join("mul", self, y)

    def __rmul__(self, x: Size) -> Size:
        return self._join("mul", x, self)

    def __floordiv__(self, y: Size) -> Size:
        return self._join("quot_at", self, y)

    def __eq__(self, y: object) -> bool:
        return isinstance(y, Dim) and (self.handle, self.module) == (y.handle, y.module)

    def __hash__(self) -> int:
        return hash(self.handle)


Size = Union[int, Dim]
Number = Union[int, float]
Operand = Union["Node", Dim, int, float]
Shape = Union[Size, Sequence[Size]]
Axes = Union[None, int, Sequence[int]]


def _size(module: Module, handle: int) -> Size:
    return Dim(module, handle) if handle <= _SYMBOLIC else handle


def _size_of(x: Size) -> ctypes.c_int64:
    return ctypes.c_int64(x.handle if isinstance(x, Dim) else int(x))


def sizes(shape: Shape) -> Any:
    """A list of sizes as the library takes it."""
    listed = [shape] if isinstance(shape, (int, Dim)) else list(shape)
    return (ctypes.c_int64 * (len(listed) + 1))(*[_size_of(s).value for s in listed], _END)


def axes(listed: Axes) -> Any:
    """A list of axes as the library takes it; None: all."""
    if listed is None:
        return _P()
    some = [listed] if isinstance(listed, int) else list(listed)
    return (ctypes.c_int * (len(some) + 1))(*some, _NO_AXIS)


def tensors(listed: Sequence[Node]) -> Any:
    """A list of tensors as the library takes it."""
    return (_P * (len(listed) + 1))(*[t.handle for t in listed], None)


def dtype_of(name: str) -> int:
    """The number of an element type."""
    if name not in _NAMES:
        raise _ValueError("there is no element type '%s': %s" % (name, ", ".join(_NAMES)))
    return _NAMES.index(name)


class Node:
    """A tensor of a graph. Arithmetic, comparisons, & | ^ ~, @ and indices make others; it has no value yet."""
    __array_ufunc__ = None

    def __init__(self, module: Module, handle: Optional[int]) -> None:
        self.module, self.handle = module, handle
        self._as_parameter_ = _P(handle)

    @property
    def rank(self) -> int:
        return int(function("rank_of", ctypes.c_int)(self))

    @property
    def shape(self) -> Tuple[Size, ...]:
        of = function("dim_of_at", ctypes.c_int64)
        return tuple(_size(self.module, of(here(), self, axis)) for axis in range(self.rank))

    @property
    def dtype(self) -> str:
        return str(_NAMES[function("dtype_of", ctypes.c_int)(self)])

    @property
    def name(self) -> Optional[str]:
        """Of an input, parameter or state, with its scopes."""
        found = function("name_of", ctypes.c_char_p)(self)
        return found.decode() if found else None

    @property
    def mT(self) -> Node:
        """The last two axes swapped."""
        return build(self.module, "swap", self, -1, -2)

    def cast(self, dtype: str) -> Node:
        """The same values in another element type."""
        return build(self.module, "cast", self, dtype_of(dtype))

    def __repr__(self) -> str:
        return "<sinter.Node %s %s>" % (self.name or "", self.dtype)

    def __bool__(self) -> bool:
        raise _TypeError("a tensor of a graph has no value yet: use sinter.where and & | ~, not if, and, or, not")

    def __iter__(self) -> Iterator[Node]:
        raise _TypeError("a tensor of a graph is not iterable: use sinter.split")

    __hash__ = object.__hash__

    def __neg__(self) -> Node:
        return build(self.module, "neg", self)

    def __abs__(self) -> Node:
        return build(self.module, "abs", self)

    def __invert__(self) -> Node:
        return build(self.module, "not", self)

    def __add__(self, y: Operand) -> Node:
        return binary("add", self, y)

    def __radd__(self, x: Operand) -> Node:
        return binary("add", x, self)

    def __sub__(self, y: Operand) -> Node:
        return binary("sub", self, y)

    def __rsub__(self, x: Operand) -> Node:
        return binary("sub", x, self)

    def __mul__(self, y: Operand) -> Node:
        return binary("mul", self, y)

    def __rmul__(self, x: Operand) -> Node:
        return binary("mul", x, self)

    def __truediv__(self, y: Operand) -> Node:
        return binary("div", self, y)

    def __rtruediv__(self, x: Operand) -> Node:
        return binary("div", x, self)

    def __mod__(self, y: Operand) -> Node:
        return binary("mod", self, y)

    def __pow__(self, y: Operand) -> Node:
        return build(self.module, "powi", self, y) if isinstance(y, int) and abs(y) <= 64 else binary("pow", self, y)

    def __rpow__(self, x: Operand) -> Node:
        return binary("pow", x, self)

    def __matmul__(self, y: Node) -> Node:
        return build(self.module, "matmul", self, y)

    def __lt__(self, y: Operand) -> Node:
        return binary("lt", self, y)

    def __le__(self, y: Operand) -> Node:
        return binary("le", self, y)

    def __gt__(self, y: Operand) -> Node:
        return binary("lt", y, self)

    def __ge__(self, y: Operand) -> Node:
        return binary("le", y, self)

    def __eq__(self, y: Operand) -> Node:  # type: ignore[override]
        return binary("eq", self, y)

    def __ne__(self, y: Operand) -> Node:  # type: ignore[override]
        return binary("ne", self, y)

    def __and__(self, y: Operand) -> Node:
        return binary("and", self, y)

    def __or__(self, y: Operand) -> Node:
        return binary("or", self, y)

    def __xor__(self, y: Operand) -> Node:
        return binary("xor", self, y)

    def __getitem__(self, index: Any) -> Node:
        """x[i], x[:, 2:], x[..., None, -1]: integers remove an axis, None inserts one. Integer tensors, one for each
        axis, read single elements; one alone reads slices along its axis."""
        items = list(index) if isinstance(index, tuple) else [index]
        if all(isinstance(i, Node) for i in items) and len(items) == self.rank:
            return build(self.module, "at", self, tensors(items))
        if sum(isinstance(i, Node) for i in items) > 1:
            raise _ValueError("integer tensors as indices: one for each axis, or one alone")
        given = sum(i is not None and i is not Ellipsis for i in items)
        if given > self.rank:
            raise _ValueError("%d indices for %d axes" % (given, self.rank))
        if not any(i is Ellipsis for i in items):
            items.append(Ellipsis)
        x, axis = self, 0
        for i in items:
            if i is Ellipsis:
                axis += self.rank - given
            elif i is None:
                x, axis = build(self.module, "expand", x, axis), axis + 1
            elif isinstance(i, slice):
                x, axis = x._slice(axis, i), axis + 1
            elif isinstance(i, Node):
                rank = i.rank
                x, axis = build(self.module, "gather", x, axis, i), axis + rank
            else:
                x = build(self.module, "index", x, axis, _size_of(_from_end(i, x.shape[axis])))
        return x

    def _slice(self, axis: int, s: slice) -> Node:
        if s.start is None and s.stop is None and s.step is None:
            return self
        whole, step = self.shape[axis], 1 if s.step is None else int(s.step)
        if step < 1:
            raise _ValueError("a step is positive; sinter.flip reverses an axis")
        start = 0 if s.start is None else _from_end(s.start, whole)
        stop = whole if s.stop is None else _from_end(s.stop, whole)
        if isinstance(stop, int) and isinstance(whole, int):
            stop = min(stop, whole)
        count = stop - start if step == 1 else (stop - start + step - 1) // step
        return build(self.module, "slice", self, axis, _size_of(start), _size_of(count), ctypes.c_int64(step))


def _from_end(i: Size, whole: Size) -> Size:
    return whole + i if isinstance(i, int) and i < 0 else i


def build(module: Module, name: str, *arguments: Any) -> Node:
    """Calls sn_NAME_at at the caller's line. Raises the error that it records in the module."""
    for x in arguments:
        if x is None or isinstance(x, str):
            raise _TypeError("%s: a tensor is needed, not %r" % (name, x))
    made = Node(module, function(name + "_at")(here(), *arguments))
    module.check()
    return made


def optional(x: Optional[Node]) -> Any:
    """A tensor that may be missing, as the library takes it."""
    return _P() if x is None else x


def operand(x: Operand) -> _Operand:
    """A tensor, a number or a size as an operand of arithmetic."""
    if isinstance(x, Node):
        return _Operand(0, x.handle, 0, 0)
    if isinstance(x, Dim):
        return _Operand(2, None, 0, x.handle)
    if not isinstance(x, (int, float, np.number)):
        raise _TypeError("arithmetic needs tensors, numbers and sizes, not %r" % (x,))
    return _Operand(1, None, float(x), 0)


def binary(name: str, x: Operand, y: Operand) -> Node:
    """An operation on two operands, of which at least one is a tensor."""
    some = x if isinstance(x, Node) else y
    if not isinstance(some, Node):
        raise _TypeError("%s: at least one operand must be a tensor" % name)
    return build(some.module, name, operand(x), operand(y))


Initial = Union[ArrayLike, Callable[[np.random.Generator, Tuple[int, ...]], ArrayLike]]


class Module:
    """A graph under construction: symbols, inputs, parameters and states, and the entries that use them."""

    def __init__(self, name: str = "model", handle: Optional[int] = None) -> None:
        self.name = name
        self._as_parameter_ = _P(handle if handle else function("module_new")(name.encode()))
        self._free = function("module_free", None)
        self._error: Any = function("module_error", ctypes.POINTER(_Error))(self)
        self.initial: Dict[str, Initial] = {}           # initial values of parameters, by name
        self.inputs: Dict[str, List[Node]] = {}         # of each entry, as they are declared
        self.outputs: Dict[str, Dict[str, Node]] = {}   # of each entry
        self._entry = ""
        self._kept: List[object] = []                   # callbacks and libraries that the graph refers to

    def __del__(self) -> None:
        if getattr(self, "_free", None):
            self._free(self)

    def check(self) -> None:
        """Raises the first error of the module."""
        e = self._error.contents
        if e.code:
            raise Error(e.message.decode(errors="replace"), e.code)

    def symbol(self, name: str, least: int, largest: int) -> Dim:
        """A size that is known only when the program runs."""
        made = function("new_symbol_at", ctypes.c_int64)(here(), self, name.encode(), ctypes.c_int64(least),
                                                        ctypes.c_int64(largest))
        self.check()
        return Dim(self, made)

    def entry(self, name: str) -> None:
        """Starts a function of the program: the outputs and assignments that follow belong to it."""
        function("entry_begin_at", None)(here(), self, name.encode())
        self.check()
        self._entry = name
        self.inputs[name], self.outputs[name] = [], {}

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Names of parameters and states inside begin with NAME and a dot."""
        function("scope_push_at", None)(here(), self, b"%s", name.encode())
        try:
            yield
        finally:
            function("scope_pop_at", None)(here(), self)

    def _leaf(self, what: str, name: str, dtype: str, shape: Shape) -> Node:
        return build(self, what, self, name.encode(), dtype_of(dtype), sizes(shape))

    def input(self, name: str, dtype: str, shape: Shape) -> Node:
        """A tensor that each call passes."""
        made = self._leaf("input", name, dtype, shape)
        known = self.inputs.setdefault(self._entry, [])
        if all(i.name != name for i in known):
            known.append(made)
        return made

    def param(self, name: str, dtype: str, shape: Shape, init: Optional[Initial] = None) -> Node:
        """A weight. The same name gives the same tensor. init: an array, a number, or a function of a NumPy generator
        and the shape; None: drawn by the rules of GPT-2."""
        made = self._leaf("param", name, dtype, shape)
        if init is not None:
            self.initial[str(made.name)] = init
        return made

    def state(self, name: str, dtype: str, shape: Shape) -> Node:
        """A tensor that persists between runs, zero at first."""
        return self._leaf("state", name, dtype, shape)

    def full(self, dtype: str, value: Number, shape: Shape) -> Node:
        """A constant tensor; shape (): a scalar."""
        return build(self, "full", self, dtype_of(dtype), ctypes.c_double(value), sizes(shape))

    def array(self, values: ArrayLike, dtype: Optional[str] = None) -> Node:
        """A constant of at most 256 elements."""
        given: NDArray[Any] = np.asarray(values)
        kind = dtype or {"i": "i32", "b": "bool"}.get(given.dtype.kind) or "f32"
        flat = (ctypes.c_double * max(given.size, 1))(*given.astype(np.float64).reshape(-1).tolist())
        return build(self, "array", self, dtype_of(kind), ctypes.c_int64(given.size), flat, sizes(given.shape))

    def arange(self, dtype: str, count: Size) -> Node:
        """0, 1, ... count - 1."""
        return build(self, "iota", self, dtype_of(dtype), 0, sizes(count))

    def value(self, dtype: str, size: Size) -> Node:
        """The value of a size as a scalar tensor."""
        return build(self, "dim_tensor", self, dtype_of(dtype), _size_of(size))

    def output(self, name: str, x: Node) -> None:
        """An output of the current entry."""
        function("output_at", None)(here(), name.encode(), x)
        self.check()
        self.outputs.setdefault(self._entry, {})[name] = x

    def describe(self, x: Union[Node, Dim], text: str) -> None:
        """What an input, parameter, state, output of the current entry, or size is, in one line for those who use the
        model: it stands in headers of artefacts and in Artefact.about, of inputs, outputs and sizes also in
        `sinter inspect` and in errors that refuse an input."""
        if isinstance(x, Dim):
            function("describe_dim_at", ctypes.c_int64)(here(), self, ctypes.c_int64(x.handle), text.encode())
        else:
            function("describe_at")(here(), x, text.encode())
        self.check()

    def assign(self, state: Node, x: Node) -> None:
        """The value of the state, or parameter, after the run."""
        function("assign_at", None)(here(), state, x)
        self.check()
