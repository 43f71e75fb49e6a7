"""Compiling graphs and running them: entries that take and return NumPy arrays."""
from __future__ import annotations

import ctypes
import os
import shlex
import subprocess
import tempfile
import time
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np
from numpy.typing import NDArray

from ._library import (_LAYOUTS, Error, Path, _array, _call, _Error, _integer, _library, _Options, _P, _text, _TypeError, _ValueError,
                       headers)
from .artefact import _TYPES, Tensor, _size
from .dsl import model_options
from .graph import Initial, Module, Node, Size, dtype_of, function

Array = NDArray[Any]
_I64 = ctypes.c_int64


class _Binding(ctypes.Structure):  # sn_arg_binding
    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_int), ("rank", ctypes.c_int), ("shape", ctypes.POINTER(_I64)),
                ("data", _P)]


class _Weight(ctypes.Structure):  # sn_weight
    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_int), ("rank", ctypes.c_int), ("shape", _I64 * 8), ("data", _P),
                ("bytes", ctypes.c_size_t), ("block", _P), ("scales", _P)]


class _Emit(ctypes.Structure):  # sn_emit_options
    _fields_ = [("name", ctypes.c_char_p), ("dir", ctypes.c_char_p), ("targets", ctypes.c_char_p), ("kinds", ctypes.c_int),
                ("threads", ctypes.c_char_p), ("program", ctypes.c_bool), ("describe", _P), ("source_vocab", _I64), ("vocab", _I64),
                ("context", _I64), ("bos", ctypes.c_int32), ("eos", _P), ("n_eos", ctypes.c_int), ("no_bos", ctypes.c_bool),
                ("pixels", _P), ("label", _P), ("n_label", ctypes.c_int), ("file", _P), ("n_file", ctypes.c_int),
                ("embed_weights", ctypes.c_bool), ("compile", _Options)]


class _Model(ctypes.Structure):  # sn_model; its first field is read only
    _fields_ = [("module", _P), ("rest", ctypes.c_byte * 160)]


_LAYOUTS.update({"sn_arg_binding": _Binding, "sn_weight": _Weight, "sn_model": _Model, "sn_emit_options": _Emit})


def _binding(name: str, dtype: int, shape: Sequence[int], data: Optional[int] = None) -> _Binding:
    return _Binding(name.encode(), dtype, len(shape), (_I64 * max(len(shape), 1))(*shape), data)


class _Call:
    """A call of an entry with inputs of certain shapes: everything but the addresses is ready."""

    def __init__(self, program: Program, entry: str, inputs: Sequence[Tensor], shapes: Sequence[Tuple[int, ...]],
                 dims: Mapping[str, int], outputs: Sequence[Tensor]) -> None:
        known = dict(dims)
        for i, shape in zip(inputs, shapes):
            if len(shape) != len(i.sizes):
                raise _ValueError("%s: '%s' needs %d axes, [%s], not %s" % (entry, i.name, len(i.sizes), ",".join(i.sizes), list(shape)))
            for size, length in zip(i.sizes, shape):
                if size.isidentifier():
                    known.setdefault(size, length)
        self._dims = {name: _I64(value) for name, value in dims.items()}
        listed = [_binding(i.name, dtype_of(i.type), s) for i, s in zip(inputs, shapes)]
        listed += [_binding(n, dtype_of("i64"), (), ctypes.addressof(v)) for n, v in self._dims.items()]
        try:
            self.shapes = [tuple(_size(s, known) for s in o.sizes) for o in outputs]
        except NameError as e:
            raise _TypeError("%s: give the size '%s'" % (entry, str(e).split("'")[1])) from None
        self.types = [np.dtype(_TYPES[o.type]) for o in outputs]
        made = [_binding(o.name, dtype_of(o.type), s) for o, s in zip(outputs, self.shapes)]
        self._in = (_Binding * max(len(listed), 1))(*listed)
        self._out = (_Binding * max(len(made), 1))(*made)
        self._places = [self._in[i] for i in range(len(inputs))] + [self._out[i] for i in range(len(made))]
        self._error = _Error()
        self._session = program.session
        self._run = function("run", ctypes.c_bool)
        self._arguments = (_P(program.session), ctypes.c_char_p(entry.encode()), self._in, ctypes.c_int(len(listed)), self._out,
                           ctypes.c_int(len(made)), ctypes.byref(self._error))

    def run(self, addresses: Sequence[int]) -> None:
        """Addresses of the inputs, then of the outputs."""
        for place, address in zip(self._places, addresses):
            place.data = address
        if not self._run(*self._arguments):
            error = _Error.from_buffer_copy(self._error)
            self._error.code = 0
            error.check()


_byte: Any = ctypes.c_char.from_buffer


def _address(a: Array) -> int:
    try:
        return ctypes.addressof(_byte(a))  # four times as fast
    except (TypeError, ValueError):  # not writable, empty
        return a.ctypes.data


class Function:
    """An entry of a program. It is called with its inputs, in the order of `inputs` or by name, and with sizes that no
    input determines by name. It returns the output, or a dictionary of several."""

    def __init__(self, program: Program, name: str, inputs: List[Tensor], outputs: List[Tensor]) -> None:
        self.name, self.inputs, self.outputs = name, inputs, outputs
        self._program, self._calls = program, {}  # type: Program, Dict[Any, _Call]
        self._types = [np.dtype(_TYPES[i.type]) for i in inputs]

    def __str__(self) -> str:
        return "%s(%s) -> %s" % (self.name, ", ".join(map(str, self.inputs)), ", ".join(map(str, self.outputs)))

    def call(self, shapes: Sequence[Tuple[int, ...]], dims: Mapping[str, int]) -> _Call:
        """What runs inputs of these shapes; the last ones are kept."""
        key = (tuple(shapes), tuple(sorted(dims.items())))
        if key not in self._calls:
            if len(self._calls) == 1000:  # shapes that a long-lived process has used
                self._calls.clear()
            self._calls[key] = _Call(self._program, self.name, self.inputs, shapes, dims, self.outputs)
        return self._calls[key]

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        given, dims = self._ordered(arrays, named) if named else (arrays, {})
        if len(given) != len(self.inputs):
            raise _TypeError("%s takes %d inputs, %s, not %d" % (self.name, len(self.inputs), ", ".join(map(str, self.inputs)), len(given)))
        ready = [a if type(a) is np.ndarray and a.dtype == t and a.flags.c_contiguous else self._convert(i, a)
                 for i, (a, t) in enumerate(zip(given, self._types))]
        key = tuple([a.shape for a in ready])
        found = (self._calls.get((key, ())) if not dims else None) or self.call(key, dims)
        made = [np.empty(shape, dtype) for shape, dtype in zip(found.shapes, found.types)]
        found.run([_address(a) for a in ready + made])
        return made[0] if len(made) == 1 else {o.name: a for o, a in zip(self.outputs, made)}

    def _ordered(self, arrays: Sequence[Any], named: Dict[str, Any]) -> Tuple[List[Any], Dict[str, int]]:
        names = [i.name for i in self.inputs]
        if len(arrays) > len(names) or any(n in named for n in names[:len(arrays)]):
            raise _TypeError("%s takes %s, each once" % (self.name, ", ".join(names)))
        given = dict(zip(names, arrays))
        given.update(named)
        dims = {n: _integer("%s: '%s'" % (self.name, n), given.pop(n), -2**63) for n in list(given)
                if n in self._program.dims and n not in names}
        for name in given:
            if name not in names:
                raise _TypeError("%s: unknown argument '%s'; inputs are %s" % (self.name, name, ", ".join(names)))
        for i in self.inputs:
            if i.name not in given:
                raise _TypeError("%s needs the input '%s'" % (self.name, i))
        return [given[n] for n in names], dims

    def _convert(self, i: int, value: Any) -> Array:
        if not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__"):
            value = np.from_dlpack(value)
        return _array("%s: '%s'" % (self.name, self.inputs[i].name), value, self._types[i])


class Times(NamedTuple):
    """Seconds of one run at each fusion level; str() is a table."""
    entry: str
    seconds: Dict[int, float]

    def __str__(self) -> str:
        least = min(self.seconds.values())
        return "\n".join("%s, level %d: %10.3f ms %6.2f" % (self.entry, level, 1e3 * t, t / least) for level, t in self.seconds.items())


_TEXTS = ("backend", "target", "weights", "compute", "precision", "cache", "invariant", "cache_dir")


def _compile_options(given: Mapping[str, Any]) -> Tuple[_Options, List[object]]:
    o = function("options_default", _Options)()
    kept: List[object] = []
    for name, value in given.items():
        if name in ("level", "threads"):
            setattr(o, name, _integer(name, value, 0, 4 if name == "level" else 2**31 - 1))
        elif name in _TEXTS:
            kept.append(_text(value))
            setattr(o, name, kept[-1])
        else:
            raise _TypeError("compile has no option '%s': level, threads, %s" % (name, ", ".join(_TEXTS)))
    return o, kept


Values = Union[None, Path, Mapping[str, Any]]


class Program:
    """Compiled entries with the weights and states of one user. `entries` maps names to functions, which are also
    attributes: program.forward(x). Calling the program calls its only entry. It is used by one thread at a time."""

    def __init__(self, module: Module, values: Values = None, seed: int = 0, **options: Any) -> None:
        self.module, self.session, self._program = module, None, None  # type: Module, Optional[int], Optional[int]
        self._given = (values, seed, options)
        module.check()
        o, self._kept = _compile_options(options)
        self._program = _call(function("compile"), module, ctypes.byref(o))
        self._read(self._written("program_signature"))
        self.parameters = self._values(values, seed)
        listed = [_binding(n, dtype_of(t.type), self.parameters[n].shape, self.parameters[n].ctypes.data)
                  for n, t in self._parameters.items()]
        self._bound = list(self.parameters.values())  # the session reads them
        self.session = _call(function("session_new_arrays"), _P(self._program), (_Binding * max(len(listed), 1))(*listed), len(listed))

    def __del__(self) -> None:
        if getattr(self, "session", None):
            function("session_free", None)(_P(self.session))
        if getattr(self, "_program", None):
            function("program_free", None)(_P(self._program))

    def _written(self, name: str, *arguments: Any) -> str:
        """What a function of the library prints."""
        libc, text, size = ctypes.CDLL(None), ctypes.c_char_p(), ctypes.c_size_t()
        libc.open_memstream.restype = _P
        file = _P(libc.open_memstream(ctypes.byref(text), ctypes.byref(size)))
        function(name, None)(_P(self._program), *arguments, file)
        libc.fclose(file)
        found = ctypes.string_at(text, size.value).decode(errors="replace")
        libc.free(text)
        return found

    def _read(self, signature: str) -> None:
        self.entries: Dict[str, Function] = {}
        self.dims: Dict[str, Tuple[int, int]] = {}
        self._parameters: Dict[str, Tensor] = {}
        self.states: Dict[str, Tensor] = {}
        inputs: List[Tensor] = []
        outputs: List[Tensor] = []
        for line in signature.splitlines():
            word = line.split("\t")
            if word[0] == "dim":
                self.dims[word[1]] = (int(word[2]), int(word[3]))
            elif word[0] == "entry":
                inputs, outputs = [], []
                self.entries[word[1]] = Function(self, word[1], inputs, outputs)
            else:
                t = Tensor(word[1], word[2], [s for s in word[3].strip("[]").split(",") if s])
                if word[0] in ("in", "out"):
                    (inputs if word[0] == "in" else outputs).append(t)
                else:
                    (self._parameters if word[0] == "param" else self.states)[t.name] = t
        for name, f in self.entries.items():  # as they were declared
            order = [i.name for i in self.module.inputs.get(name, [])]
            f.inputs.sort(key=lambda i: order.index(i.name) if i.name in order else len(order))
            f._types = [np.dtype(_TYPES[i.type]) for i in f.inputs]

    def _values(self, values: Values, seed: int) -> Dict[str, Array]:
        if values is not None and not isinstance(values, Mapping):
            values = load(values)
        found: Dict[str, Array] = {}
        for at, (name, t) in enumerate(self._parameters.items()):
            shape = tuple(_size(s, {}) for s in t.sizes)
            if values is not None and name in values:
                found[name] = _array(name, values[name], _TYPES[t.type])
            elif values is not None and name not in self.module.initial:
                raise _ValueError("the values have no parameter '%s'" % name)
            else:
                found[name] = initial(self.module, t, seed, at)
            if found[name].shape != shape:
                raise _ValueError("the parameter '%s' has the shape %s, not %s" % (name, list(shape), list(found[name].shape)))
        return found

    def __getattr__(self, name: str) -> Function:
        if name.startswith("_") or name not in self.__dict__.get("entries", {}):
            raise AttributeError("the program has no entry '%s'" % name)
        return self.entries[name]

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        if len(self.entries) != 1:
            raise _TypeError("the program has the entries %s: call one" % ", ".join(self.entries))
        return next(iter(self.entries.values()))(*arrays, **named)

    def __repr__(self) -> str:
        return "<sinter.Program %s>" % "; ".join(map(str, self.entries.values()))

    def reset(self) -> None:
        """Sets all states to zero."""
        function("session_reset", None)(_P(self.session))

    def read(self, name: str) -> Array:
        """A copy of a state, or of a parameter that an entry assigns."""
        out = self._state(name)
        _call(function("state_read", ctypes.c_bool), _P(self.session), name.encode(), _P(out.ctypes.data), ctypes.c_size_t(out.nbytes))
        return out

    def write(self, name: str, value: Any) -> None:
        """Sets a state, or a parameter that an entry assigns."""
        want = self._state(name)
        a = _array(name, value, want.dtype)
        if a.shape != want.shape:
            raise _ValueError("'%s' has the shape %s, not %s" % (name, list(want.shape), list(a.shape)))
        _call(function("state_write", ctypes.c_bool), _P(self.session), name.encode(), _P(a.ctypes.data), ctypes.c_size_t(a.nbytes))

    def _state(self, name: str) -> Array:
        t = self.states.get(name) or self._parameters.get(name)
        if not t:
            raise _ValueError("there is no state '%s': %s" % (name, ", ".join([*self.states, *self._parameters])))
        return np.empty(tuple(_size(s, {}) for s in t.sizes), _TYPES[t.type])

    def explain(self, entry: Optional[str] = None) -> str:
        """For every kernel of an entry (None: of all) what was fused into it, and what was not fused and why."""
        return self._written("program_explain", ctypes.c_char_p(_text(entry)))

    def bench(self, entry: Optional[str] = None, levels: Sequence[int] = (0, 4), seconds: float = 0.5, **given: Any) -> Times:
        """Times of an entry at fusion levels. given: inputs, and sizes for which the other inputs are drawn."""
        name = entry or next(iter(self.entries))
        if name not in self.entries:
            raise _ValueError("there is no entry '%s': %s" % (name, ", ".join(self.entries)))
        values, seed, options = self._given
        rng, f = np.random.default_rng(seed), self.entries[name]
        dims = {n: v for n, v in given.items() if n in self.dims}
        for i in f.inputs:
            if i.name not in given:
                try:
                    shape = tuple(_size(s, dims) for s in i.sizes)
                except NameError as e:
                    raise _TypeError("bench: give the size '%s'" % str(e).split("'")[1]) from None
                drawn: Array = rng.standard_normal(shape).astype(np.float32) if i.type[0] in "fb" else np.zeros(shape)
                if i.type == "bf16":
                    drawn = drawn.view(np.uint32) >> 16
                given[i.name] = drawn.astype(_TYPES[i.type])
        arguments = {n: v for n, v in given.items() if n not in self.dims or not any(n in i.sizes for i in f.inputs)}
        times = {}
        for level in levels:
            run = Program(self.module, self.parameters, **{**options, "level": level}).entries[name]
            run(**arguments)
            best, end = float("inf"), time.perf_counter() + seconds
            while time.perf_counter() < end:
                begin = time.perf_counter()
                run(**arguments)
                best = min(best, time.perf_counter() - begin)
            times[level] = best
        return Times(name, times)

    def save_artefact(self, folder: Path, name: Optional[str] = None, embed_weights: bool = False) -> str:
        """Writes NAME.o, NAME.h and NAME.weights, which need neither Python nor libsinter.so; returns the path of the
        object, for sinter.Artefact or a C compiler."""
        o = function("emit_options_default", _Emit)()
        kept, options = [_text(name), _text(folder)], {k: v for k, v in self._given[2].items() if k != "threads"}
        o.name, o.dir, o.embed_weights = kept[0], kept[1], embed_weights
        o.compile, texts = _compile_options(options)
        _call(function("emit", ctypes.c_bool), _P(self.session), ctypes.byref(o))
        del texts
        return os.path.join(os.fspath(folder), (name or self.module.name) + ".o")


def initial(module: Module, t: Tensor, seed: int, number: int) -> Array:
    """The value that the module's parameter t, the `number`-th, begins with."""
    shape, dtype = tuple(_size(s, {}) for s in t.sizes), np.dtype(_TYPES[t.type])
    if t.name in module.initial:
        init: Initial = module.initial[t.name]
        made = _array(t.name, init(np.random.default_rng([seed, number]), shape) if callable(init) else init, dtype)
        return made if made.shape == shape else np.array(np.broadcast_to(made, shape))
    if t.type != "f32":
        raise _ValueError("the parameter '%s' is %s: give its initial value" % (t.name, t.type))
    found = np.empty(shape, dtype)
    w = _Weight(t.name.encode(), 0, len(shape), (_I64 * 8)(*shape))
    function("parameter_draw", None)(ctypes.byref(w), b"gpt2", _I64(1), ctypes.c_uint64(seed), _P(found.ctypes.data))
    return found


def load(path: Path) -> Dict[str, Array]:
    """The tensors of a .safetensors or GGUF file that are arrays, by name; bf16 as uint16."""
    file = _Weights(_call(function("weights_open"), ctypes.c_char_p(_text(path))))
    return {name: array.copy() for name, array in file.arrays().items()}


class _Weights:
    """An open file of weights."""

    def __init__(self, handle: int) -> None:
        self._handle, self._close = _P(handle), function("weights_close", None)

    def __del__(self) -> None:
        self._close(self._handle)

    def arrays(self) -> Dict[str, Array]:
        """Its tensors, except blocks: views of the mapped file, which must stay open."""
        at, found = function("weights_at", ctypes.POINTER(_Weight)), {}
        for i in range(function("weights_count", ctypes.c_size_t)(self._handle)):
            w = at(self._handle, ctypes.c_size_t(i)).contents
            if not w.block:
                memory: Any = (ctypes.c_char * w.bytes).from_address(w.data) if w.bytes else b""
                if w.bytes:
                    memory.file = self  # an array keeps it, and it keeps the file open
                found[w.name.decode()] = np.frombuffer(memory, list(_TYPES.values())[w.dtype]).reshape(list(w.shape[:w.rank]))
                found[w.name.decode()].flags.writeable = False
        return found


def load_onnx(path: Path) -> Module:
    """The graph of an ONNX file, as the entry "forward". Its weights stay in the mapped file."""
    module = Module(os.path.splitext(os.path.basename(os.fspath(path)))[0])
    file = _Weights(_call(function("onnx_load"), module, ctypes.c_char_p(_text(path)), None))
    module.initial.update(file.arrays())
    module._kept.append(file)
    return module


def load_model(path: Path, entries: Sequence[str] = ("forward",), batch: int = 1, cc: str = "cc") -> Module:
    """The graph of a model in C: a file with SN_MODEL, which the C compiler builds, or a shared object made from one."""
    _library()
    name = os.path.splitext(os.path.basename(os.fspath(path)))[0]
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, name + ".so")
        if os.fspath(path).endswith(".c"):
            flags = ["-std=gnu11", "-O1", "-shared", "-fPIC", "-I" + headers(), "-o", out, os.fspath(path)]
            done = subprocess.run([*shlex.split(cc), *flags], stderr=subprocess.PIPE, check=False)
            if done.returncode:
                raise Error("%s: %s" % (path, done.stderr.decode(errors="replace")[:900]), 3)
        else:
            out = os.path.abspath(os.fspath(path))
        library = ctypes.CDLL(out)
    made, options = _Model(), model_options(entries, batch)
    _call(function("model_build_with", ctypes.c_bool), library.sn_model_define, name.encode(), ctypes.byref(options), ctypes.byref(made))
    module = Module(name, made.module)
    module._kept.append(library)
    return module


def _spec(module: Module, name: str, given: Any, dims: Mapping[str, Tuple[int, int]]) -> Node:
    """An input from "f32[B,T,64]", or like an array."""
    if isinstance(given, str):
        dtype, _, rest = given.partition("[")
        words = [w.strip() for w in rest.rstrip("]").split(",") if w.strip()]
        shape: List[Size] = [int(w) if w.lstrip("-").isdigit() else module.symbol(w, *dims.get(w, (1, 65536))) for w in words]
        return module.input(name, dtype.strip(), shape)
    array = np.asarray(given)
    kinds = [n for n, t in _TYPES.items() if np.dtype(t) == array.dtype and n != "bf16"]
    if not kinds:
        raise _TypeError("'%s': arrays of %s have no element type here" % (name, array.dtype))
    return module.input(name, kinds[0], array.shape)


def trace(body: Callable[..., Any], inputs: Mapping[str, Any], dims: Mapping[str, Tuple[int, int]] = {}) -> Module:
    """The graph of a function of tensors: `inputs` are its arguments by name, "f32[T,64]" or arrays like them; `dims` has
    the bounds of their symbols (otherwise 1 to 65536). It returns a tensor, several, or a dictionary: the outputs."""
    module = Module(getattr(body, "__name__", "model").strip("<>"))
    module.entry("forward")
    made = body(**{name: _spec(module, name, given, dims) for name, given in inputs.items()})
    if isinstance(made, Node):
        made = {"y": made}
    elif not isinstance(made, Mapping):
        made = {"y%d" % i: t for i, t in enumerate(made)}
    for name, t in made.items():
        module.output(name, t)
    return module


def compile(what: Union[Module, Callable[..., Any]], inputs: Optional[Mapping[str, Any]] = None,
            dims: Mapping[str, Tuple[int, int]] = {}, values: Values = None, seed: int = 0, **options: Any) -> Program:
    """Compiles a module, or a function of tensors with the `inputs` and `dims` of trace().

    values: parameters by name, or a .safetensors file; without them, parameters begin as their `init` says,
    or are drawn with `seed`; with them, only those with an `init` may be missing.
    options: level (fusion, 0 to 4), threads (0: all CPUs), weights, compute, precision, cache: as in sn_options."""
    return Program(what if isinstance(what, Module) else trace(what, inputs or {}, dims), values, seed, **options)
