"""The C library: where it is, its structs and functions, its errors."""
from __future__ import annotations

import ctypes
import ctypes.util
import operator
import os
from typing import Any, Callable, Dict, List, Optional, Tuple, TypeVar, Union, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

__version__ = "0.1.0"

Path = Union[str, "os.PathLike[str]"]
_Self = TypeVar("_Self", bound="_Owner")


class Error(Exception):
    """What went wrong, where, and what to do. `code` is the sn_code of runtime/base.h, or that of an artefact."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


class _TypeError(Error, TypeError):
    """An argument of a wrong type."""


class _ValueError(Error, ValueError):
    """An argument with a wrong value."""


# ---- the library ----


class _Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("message", ctypes.c_char * 1024)]

    def check(self) -> None:
        if self.code:
            raise Error(self.message.decode(errors="replace"), self.code)


class _Options(ctypes.Structure):  # sn_options of ir/compile.h, as far as it is used here
    _fields_ = [("level", ctypes.c_int), ("threads", ctypes.c_int), ("backend", ctypes.c_char_p),
                ("target", ctypes.c_char_p), ("weights", ctypes.c_char_p), ("keep", ctypes.c_void_p),
                ("n_keep", ctypes.c_int), ("compute", ctypes.c_char_p), ("source", ctypes.c_void_p),
                ("precision", ctypes.c_char_p), ("cache", ctypes.c_char_p), ("invariant", ctypes.c_char_p),
                ("cache_dir", ctypes.c_char_p), ("rest", ctypes.c_byte * 256)]


class _LmOptions(ctypes.Structure):  # sn_lm_options of model/lm.h
    _fields_ = [("threads", ctypes.c_int), ("context", ctypes.c_int64), ("sequences", ctypes.c_int),
                ("weights", ctypes.c_char_p), ("compile", ctypes.POINTER(_Options)), ("tokenizer", ctypes.c_char_p),
                ("checkpoint", ctypes.c_char_p)]


class _Request(ctypes.Structure):  # sn_lm_request of model/generation.h
    _fields_ = [("prompt", ctypes.c_char_p), ("ids", ctypes.POINTER(ctypes.c_int32)), ("n_ids", ctypes.c_int64),
                ("chat", ctypes.c_bool), ("system", ctypes.c_char_p), ("tokens", ctypes.c_int64),
                ("greedy", ctypes.c_bool), ("temperature", ctypes.c_double), ("top_p", ctypes.c_double),
                ("min_p", ctypes.c_double), ("top_k", ctypes.c_int64), ("repetition_penalty", ctypes.c_double),
                ("seed", ctypes.c_uint64), ("stop", ctypes.POINTER(ctypes.c_char_p)), ("n_stop", ctypes.c_int),
                ("ignore_eos", ctypes.c_bool), ("scores", ctypes.c_bool)]


class _Ids(ctypes.Structure):
    _fields_ = [("data", ctypes.POINTER(ctypes.c_int32)), ("count", ctypes.c_size_t), ("capacity", ctypes.c_size_t)]


class _Bytes(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_size_t), ("capacity", ctypes.c_size_t)]


class _Search(ctypes.Structure):
    _fields_ = [("beams", ctypes.c_int64), ("length_penalty", ctypes.c_double)]


_P, _TEXT, _I64, _BOOL = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64, ctypes.c_bool
_ERR = ctypes.POINTER(_Error)
# Structs of the library as they are declared above; there is room for an sn_options that has grown.
_LAYOUTS: Dict[str, Any] = {"sn_error": _Error, "sn_options": _Options, "sn_lm_options": _LmOptions, "sn_lm_request": _Request,
            "sn_ids": _Ids, "sn_bytes": _Bytes, "sn_lm_search": _Search}
_FUNCTIONS: Dict[str, Tuple[Any, List[Any]]] = {  # name: (result, arguments)
    "sn_version": (_TEXT, []),
    "sn_struct_bytes": (ctypes.c_size_t, [_TEXT]),
    "sn_options_default": (_Options, []),
    "sn_lm_open": (_P, [_TEXT, ctypes.POINTER(_LmOptions), _ERR]),
    "sn_lm_close": (None, [_P]),
    "sn_lm_vocab": (_I64, [_P]),
    "sn_lm_context": (_I64, [_P]),
    "sn_lm_rows": (_I64, [_P]),
    "sn_lm_encode": (_BOOL, [_P, _TEXT, ctypes.c_size_t, ctypes.POINTER(_Ids), _ERR]),
    "sn_lm_spell": (_BOOL, [_P, _P, _I64, _I64, ctypes.POINTER(_Bytes), _ERR]),
    "sn_lm_begin": (_P, [_P, ctypes.POINTER(_Request), _ERR]),
    "sn_lm_next": (_P, [_P, _ERR]),
    "sn_lm_next_token": (ctypes.c_int32, [_P, _ERR]),
    "sn_lm_ended": (ctypes.c_int, [_P]),
    "sn_lm_end": (None, [_P]),
    "sn_lm_logits": (ctypes.POINTER(ctypes.c_float), [_P, _ERR]),
    "sn_lm_search_beams": (_BOOL, [_P, ctypes.POINTER(_Request), ctypes.POINTER(_Search), ctypes.POINTER(_Ids),
                                   ctypes.POINTER(ctypes.c_double), _ERR]),
    "sn_ids_free": (None, [ctypes.POINTER(_Ids)]),
    "sn_bytes_free": (None, [ctypes.POINTER(_Bytes)]),
    "sn_embedder_open": (_P, [_TEXT, ctypes.POINTER(_LmOptions), _ERR]),
    "sn_embedder_close": (None, [_P]),
    "sn_embedder_width": (_I64, [_P]),
    "sn_embedder_embed_texts": (_BOOL, [_P, ctypes.POINTER(_TEXT), _I64, _P, _ERR]),
}


def _candidates() -> List[str]:
    here = os.path.dirname(os.path.abspath(__file__))
    if os.environ.get("SINTER_LIBRARY"):
        return [os.environ["SINTER_LIBRARY"]]
    try:
        with open(os.path.join(here, "library.txt")) as f:  # the one that pip installed the package beside (setup.py)
            return [f.read()]
    except OSError:
        folders = [here]
    for up in range(1, 6):  # PREFIX/share/sinter/python/sinter/__init__.py, or a build tree
        root = os.path.normpath(os.path.join(here, *[".."] * up))
        folders += [root, os.path.join(root, "lib"), os.path.join(root, "build", "release")]
        folders += sorted(d for d in (os.path.join(root, "lib", n) for n in _names(os.path.join(root, "lib")))
                          if d.endswith("-linux-gnu"))
    found = [os.path.join(f, "libsinter.so") for f in folders if os.path.exists(os.path.join(f, "libsinter.so"))]
    system = ctypes.util.find_library("sinter")
    return found + ([system] if system else [])


def _names(folder: str) -> List[str]:
    return os.listdir(folder) if os.path.isdir(folder) else []


_loaded: Optional[ctypes.CDLL] = None


def _library() -> ctypes.CDLL:
    global _loaded
    if _loaded is None:
        paths = _candidates()
        if not paths:
            raise Error("libsinter.so was not found: install Sinter, or set SINTER_LIBRARY to its path", 4)
        # models in C refer to the library's functions
        lib = ctypes.CDLL(paths[0], mode=ctypes.RTLD_GLOBAL)
        try:
            for name, (result, arguments) in _FUNCTIONS.items():
                function = getattr(lib, name)
                function.restype, function.argtypes = result, arguments
        except AttributeError:
            raise Error("%s has no %s: this module, %s, needs a libsinter.so of its own version" % (
                paths[0], name, __version__), 4) from None
        _check_layouts(lib, paths[0])
        _loaded = lib
    return _loaded


def headers() -> str:
    """The folder of <sinter/models.h>, beside the library in a build tree or an installation."""
    lib = os.path.dirname(os.path.realpath(_library()._name))
    for folder in ("api", "../include", "../../include"):
        found = os.path.normpath(os.path.join(lib, folder))
        if os.path.exists(os.path.join(found, "sinter", "models.h")):
            return found
    raise Error("the headers of Sinter were not found beside %s" % lib, 3)


def _check_layouts(lib: ctypes.CDLL, path: str) -> None:
    """Structs are copied from headers, so the library must be one that was built from the same headers."""
    version = lib.sn_version().decode()
    if version != __version__:
        raise Error("%s is Sinter %s, but this module is for %s: use the module of that installation" % (
            path, version, __version__), 4)
    for name, layout in _LAYOUTS.items():
        size, own = lib.sn_struct_bytes(name.encode()), ctypes.sizeof(layout)
        last, kind = getattr(layout, "_fields_", [("", None)])[-1][:2]
        if kind is _Options:
            own = getattr(layout, last).offset + lib.sn_struct_bytes(b"sn_options")
        if size != own and not (hasattr(layout, "rest") and layout.rest.offset <= size <= own):
            raise Error("%s: %s has %d bytes, but %d in this module: use the module of that installation" % (
                path, name, size, own), 4)


def _text(value: Union[None, str, Path]) -> Optional[bytes]:
    return None if value is None else os.fspath(value).encode()


def _utf8(what: str, value: object) -> bytes:
    if not isinstance(value, str):
        raise _TypeError("%s: a text (str) is needed, not %r" % (what, value))
    return value.encode()


def _integer(what: str, value: object, least: int = 0, largest: int = 2**63 - 1) -> int:
    """An integer in this range; ctypes would take its lowest bits."""
    try:
        number = operator.index(cast(Any, value))
    except TypeError:
        raise _TypeError("%s is an integer, not %r" % (what, value)) from None
    if not least <= number <= largest:
        raise _ValueError("%s is %d, not in %d to %d" % (what, number, least, largest))
    return number


def _number(what: str, value: object) -> float:
    try:
        return float(cast(Any, value))
    except (TypeError, ValueError):
        raise _TypeError("%s is a number, not %r" % (what, value)) from None


def _call(function: Any, *arguments: Any) -> Any:
    err = _Error()
    result = function(*arguments, ctypes.byref(err))
    err.check()
    return result


def _options(threads: int, context: int, sequences: int, weights: Optional[str], level: Optional[int],
             cache_dir: Optional[Path], tokenizer: Optional[Path], checkpoint: Optional[Path],
             cache: Optional[str] = None) -> _LmOptions:
    compile_options = _library().sn_options_default()
    if level is not None:
        compile_options.level = _integer("level", level, 0, 4)
    if cache is not None:
        compile_options.cache = _text(cache)
    if cache_dir is not None:
        compile_options.cache_dir = _text(cache_dir)
    return _LmOptions(threads=_integer("threads", threads, 0, 2**31 - 1), context=_integer("context", context),
                      sequences=_integer("sequences", sequences, 0, 2**31 - 1), weights=_text(weights),
                      compile=ctypes.pointer(compile_options), tokenizer=_text(tokenizer),
                      checkpoint=_text(checkpoint))


class _Owner:
    """Closes what it opened: by close(), at the end of a with statement, or when it is collected."""
    _handle: Any = None
    _close: Callable[[Any], object]

    def close(self) -> None:
        if self._handle:
            self._close(self._handle)
        self._handle = None

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def _open(self) -> Any:
        if not self._handle:
            raise Error("the model is closed")
        return self._handle

    def _describe(self, what: str) -> str:
        return "<sinter.%s %s%s>" % (type(self).__name__, what, "" if self._handle else ", closed")


def _array(what: str, value: object, dtype: DTypeLike) -> NDArray[Any]:
    """A contiguous array of the type, whose values it can hold: fractions are not cut off, integers do not wrap."""
    to = np.dtype(dtype)
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        array = np.asarray(None)
    if array.size and (array.dtype.kind not in "biuf" or array.dtype.kind == "f" and to.kind in "biu"):
        raise _TypeError("%s: an array of %s is needed, not %r" % (what, to, value))
    if array.size and array.dtype.kind in "iu" and to.kind in "biu":
        least, largest = (0, 1) if to.kind == "b" else (int(np.iinfo(to).min), int(np.iinfo(to).max))
        for bound in int(array.min()), int(array.max()):
            if not least <= bound <= largest:
                raise _ValueError("%s: %d is out of the range of %s" % (what, bound, to))
    return np.asarray(array, to, order="C")  # np.ascontiguousarray would make scalars vectors
