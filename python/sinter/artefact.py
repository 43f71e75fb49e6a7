"""Models that were compiled ahead of time, without libsinter.so."""
from __future__ import annotations

import ctypes
import os
import re
import subprocess
import tempfile
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Type

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._library import Error, Path, _array, _integer, _Owner, _text, _TypeError, _ValueError


class _ArtefactModel(ctypes.Structure):  # the struct NAME of NAME.h; comm: only with sums over ranks
    _fields_ = [("weights", ctypes.c_void_p), ("bytes", ctypes.c_int64), ("threads", ctypes.c_int64),
                ("pool", ctypes.c_void_p), ("target", ctypes.c_int32), ("mapped", ctypes.c_int32),
                ("comm", ctypes.c_void_p)]


class _Parameter(ctypes.Structure):  # NAME_parameter of NAME.h
    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("shape", ctypes.c_int64 * 8), ("offset", ctypes.c_int64), ("bytes", ctypes.c_int64)]


# In the order of sn_dtype, the numbers of a table of parameters.
_TYPES: Dict[str, Type[Any]] = {"f32": np.float32, "f64": np.float64, "bf16": np.uint16, "f16": np.float16,
                                "i32": np.int32, "i64": np.int64, "i8": np.int8, "u8": np.uint8, "bool": np.bool_}


def _aligned(size: int) -> NDArray[np.uint8]:
    memory = np.zeros(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start:start + size]


def _size(expression: str, dims: Dict[str, int]) -> int:
    """The value of a size such as 4, T, 2*B*T+1 or ceil((T+3)/16)."""
    if not re.fullmatch(r"[\w+\-*/^() ]+", expression):
        raise Error("the artefact has the size '%s'" % expression, 5)
    rounded = re.sub(r"/(\d+)\)", r",\1)", expression.replace("^", "**"))
    return int(eval(rounded, {"__builtins__": {}, "ceil": lambda a, b: -(-a // b)}, dims))


class Tensor(NamedTuple):
    """An input or output of an entry. sizes: numbers, dimensions, or expressions of them."""
    name: str
    type: str
    sizes: List[str]

    def __str__(self) -> str:
        return "%s %s [%s]" % (self.name, self.type, ",".join(self.sizes))


class Entry(NamedTuple):
    """An entry of an artefact; str() is its signature. dims: (name, least, largest); about: what a name means."""
    name: str
    has_state: bool
    dims: List[Tuple[str, int, int]]
    inputs: List[Tensor]
    outputs: List[Tensor]
    about: Dict[str, str]

    def __str__(self) -> str:
        lengths = ["%s %d to %d" % d for d in self.dims]
        return "%s(%s) -> %s" % (self.name, ", ".join([str(i) for i in self.inputs] + lengths),
                                 ", ".join(str(o) for o in self.outputs))


class Artefact(_Owner):
    """A model that `sinter compile` wrote: NAME.so (--shared), or NAME.o, which the C compiler links into a temporary
    file, once in a process. weights: NAME.weights; None: embedded in the object. Loading it executes its code.

    `entries` maps names to their dimensions, inputs and outputs. The state (caches, or parameters and what the optimizer
    has during training) is one sequence's; `state` is its bytes, to copy, save and assign, reset() begins anew.
    `parameters`: what a training step trains, as arrays in the state; `about`: what the model says about parameters and
    states. threads 0: OpenMP's default."""

    def __init__(self, path: Path, weights: Optional[Path] = None, threads: int = 0, cc: str = "cc") -> None:
        self._path = path = os.path.abspath(os.fspath(path))
        self._read(self._manifest(path))
        self._lib = _link(path, cc) if path.endswith((".o", ".a")) else ctypes.CDLL(path)
        self._model = _ArtefactModel(threads=_integer("threads", threads))
        self._check(self._function("open")(ctypes.byref(self._model), _text(weights)), weights)
        self._check(self._function("set_threads")(ctypes.byref(self._model), ctypes.c_int64(threads)))
        self._handle, self._close = self._model, lambda m: self._function("close")(ctypes.byref(m))
        self._state, self._workspace = _aligned(max(self.state_bytes, 64)), _aligned(64)
        self.reset()

    def __repr__(self) -> str:
        return self._describe("%r: %s" % (self._path, ", ".join(self.entries)))

    def _manifest(self, path: str) -> str:
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError as error:
            raise Error("%s: %s" % (path, error.strerror), 3) from None
        found = re.search(rb"SINTER-ARTEFACT 1\nname [A-Za-z_]\w*\n[^\0]*", data)
        if not found:
            raise Error("%s: not made by `sinter compile`" % path, 3)
        return found.group().decode(errors="replace")

    def _read(self, manifest: str) -> None:
        self.entries: Dict[str, Entry] = {}
        self.state_bytes, self._n_parameters = 0, 0
        self.about: Dict[str, str] = {}
        entry = Entry("", False, [], [], [], {})
        for line in manifest.split("\n"):
            word = line.split()
            if not word:
                continue
            if word[0] == "name":
                self.name = word[1]
            elif word[0] == "state":
                self.state_bytes, self._n_parameters = int(word[1]), int(word[2]) if len(word) > 2 else 0
            elif word[0] == "entry":
                entry = self.entries[word[1]] = Entry(word[1], "state" in word[2:], [], [], [], {})
            elif word[0] == "dim":
                entry.dims.append((word[1], int(word[2]), int(word[3])))
            elif word[0] == "about":
                name, _, text = line.lstrip(" ")[len("about "):].partition(" ")
                (entry.about if entry.name else self.about)[name] = text
            elif word[0] in ("in", "out"):
                sizes = [s for s in word[3].strip("[]").split(",") if s]
                (entry.inputs if word[0] == "in" else entry.outputs).append(Tensor(word[1], word[2], sizes))

    def _function(self, suffix: str, result: Any = ctypes.c_int) -> Any:
        function = getattr(self._lib, "%s_%s" % (self.name, suffix))
        function.restype = result
        return function

    def _check(self, code: int, path: Optional[Path] = None) -> None:
        if code:
            message = self._function("message", ctypes.c_char_p)(code).decode(errors="replace")
            raise Error("%s: %s" % (path, message) if path else message, code)

    def reset(self) -> None:
        """Begins anew: empty caches, the parameters that the artefact was compiled with."""
        self._open()
        if self.state_bytes:
            self._check(self._function("state_init")(ctypes.byref(self._model),
                                                     ctypes.c_void_p(self._state.ctypes.data)))

    @property
    def state(self) -> NDArray[np.uint8]:
        """The state, uint8 [state_bytes]. A copy that is assigned later continues from where it was taken, also in
        another process with the same artefact."""
        return self._state[:self.state_bytes]

    @state.setter
    def state(self, value: ArrayLike) -> None:
        array = _array("state", value, np.uint8)
        if array.shape != (self.state_bytes,):
            raise _ValueError("state: [%d] bytes are needed, not %s" % (self.state_bytes, list(array.shape)))
        self._state[:self.state_bytes] = array

    @property
    def parameters(self) -> Dict[str, NDArray[Any]]:
        """What a training step trains, by name: arrays in the state, to read or to write between calls. {}: nothing."""
        if not self._n_parameters:
            return {}
        table = self._function("parameters", ctypes.POINTER(_Parameter))()
        types, found = list(_TYPES.values()), {}
        for row in table[:self._n_parameters]:
            part = self._state[row.offset:row.offset + row.bytes]
            found[row.name.decode()] = part.view(types[row.dtype]).reshape(row.shape[:row.rank])
        return found

    def run(self, entry: str, **arguments: Any) -> Dict[str, NDArray[Any]]:
        """Runs an entry. arguments: inputs, converted to their types, and dimensions that no input's shape determines.
        Returns a dictionary of the outputs. bf16 is uint16. Shapes and indices are checked: sinter.Error."""
        self._open()
        if entry not in self.entries:
            raise _ValueError("the artefact has no entry '%s': it has %s" % (entry, ", ".join(self.entries)))
        e = self.entries[entry]
        dims, arrays = self._bind(e, arguments)
        outputs = {o.name: np.empty([_size(s, dims) for s in o.sizes], _TYPES[o.type]) for o in e.outputs}
        lengths = [ctypes.c_int64(dims[name]) for name, _, _ in e.dims]
        model = ctypes.byref(self._model)
        need = self._function(entry + "_workspace", ctypes.c_int64)(model, *lengths)
        if need < 0:
            self._check(-need)
        if need > self._workspace.size:
            self._workspace = _aligned(need)
        state = [ctypes.c_void_p(self._state.ctypes.data)] if e.has_state else []
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in arrays + list(outputs.values())]
        self._check(self._function(entry)(model, *state, ctypes.c_void_p(self._workspace.ctypes.data), *lengths,
                                          *pointers))
        return outputs

    def _bind(self, e: Entry, arguments: Dict[str, Any]) -> Tuple[Dict[str, int], List[NDArray[Any]]]:
        given, names = dict(arguments), [i.name for i in e.inputs]
        dims: Dict[str, int] = {}
        arrays: List[NDArray[Any]] = []
        for name, _, _ in e.dims:
            if name in given and name not in names:
                dims[name] = _integer("%s: '%s'" % (e.name, name), given.pop(name), -2**63)
        for name in given:
            if name not in names:
                raise _TypeError("%s: unknown argument '%s'; inputs are %s" % (e.name, name, ", ".join(names)))
        for i in e.inputs:
            shape = ",".join(i.sizes)
            if i.name not in given:
                raise _TypeError("%s needs the input '%s' [%s]" % (e.name, i.name, shape))
            array = _array("%s: '%s'" % (e.name, i.name), given.pop(i.name), _TYPES[i.type])
            if array.ndim != len(i.sizes):
                raise _ValueError("%s: '%s' needs %d axes, [%s]" % (e.name, i.name, len(i.sizes), shape))
            for size, length in zip(i.sizes, array.shape):
                if size.isidentifier():
                    dims.setdefault(size, length)
            arrays.append(array)
        missing = [name for name, _, _ in e.dims if name not in dims]
        if missing:
            raise _TypeError("%s: give the length '%s'" % (e.name, missing[0]))
        for array, i in zip(arrays, e.inputs):
            if array.shape != tuple(_size(s, dims) for s in i.sizes):
                raise _ValueError("%s: '%s' has shape %s, not [%s]" % (e.name, i.name, array.shape, ",".join(i.sizes)))
        return dims, arrays


_linked: Dict[Tuple[object, ...], ctypes.CDLL] = {}


def _link(path: str, cc: str) -> ctypes.CDLL:
    file = os.stat(path)
    key = (path, cc, file.st_ino, file.st_size, file.st_mtime_ns)
    if key not in _linked:
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "artefact.so")
            whole = ["-Wl,--whole-archive", path, "-Wl,--no-whole-archive"]
            try:
                done = subprocess.run([cc, "-shared", "-o", out, *whole, "-fopenmp", "-lm"], stderr=subprocess.PIPE,
                                      check=False)
            except OSError as error:
                raise Error("%s: the C compiler cannot link it: %s: %s" % (path, cc, error.strerror), 3) from None
            if done.returncode:
                raise Error("%s: the C compiler cannot link it: %s" % (
                    path, done.stderr.decode(errors="replace")[:500]), 3)
            _linked[key] = ctypes.CDLL(out)
    return _linked[key]
