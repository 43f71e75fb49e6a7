"""Sinter from Python: language models, embeddings and ahead-of-time artefacts, over ctypes and NumPy.

    import sinter

    with sinter.Model("MODEL") as model:             # a model folder or GGUF file
        print(model.generate("Once upon a time", tokens=50))
        for piece in model.stream("Once upon a time"):
            print(piece, end="", flush=True)

    with sinter.Embedder("ENCODER") as encoder:
        vectors = encoder.embed(["a rider", "a horse"])   # [2, width]

    story = sinter.Artefact("out/story.so", "out/story.weights")   # sinter compile --shared
    logits = story.run("prefill", tokens=[[1, 403, 407]], P=0)["logits"]

Needs NumPy and libsinter.so (artefacts do not need it). The library is looked for beside this file, in the
installation and the build tree that this file belongs to, and by the system's loader; SINTER_LIBRARY names another
one. Errors are exceptions of class sinter.Error; for a wrong argument they are a TypeError or ValueError, too. An object
is used by one thread at a time.
"""
from __future__ import annotations

import ctypes
import ctypes.util
import inspect
import operator
import os
import re
import subprocess
import tempfile
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Type, TypeVar, Union
from typing import cast, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

__all__ = ["Artefact", "Embedder", "Entry", "Error", "Model", "Tensor"]
__version__ = "0.1.0"

Path = Union[str, "os.PathLike[str]"]
Prompt = Union[str, Sequence[int], NDArray[Any]]
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
                ("precision", ctypes.c_char_p), ("cache", ctypes.c_char_p), ("cache_dir", ctypes.c_char_p),
                ("rest", ctypes.c_byte * 256)]


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
_LAYOUTS = {"sn_error": _Error, "sn_options": _Options, "sn_lm_options": _LmOptions, "sn_lm_request": _Request,
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
    folders = [here]
    for up in range(1, 6):  # PREFIX/share/sinter/python/sinter/__init__.py, or the source tree
        root = os.path.normpath(os.path.join(here, *[".."] * up))
        folders += [os.path.join(root, "lib"), os.path.join(root, "build", "release")]
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


def _check_layouts(lib: ctypes.CDLL, path: str) -> None:
    """Structs are copied from headers, so the library must be one that was built from the same headers."""
    version = lib.sn_version().decode()
    if version != __version__:
        raise Error("%s is Sinter %s, but this module is for %s: use the module of that installation" % (
            path, version, __version__), 4)
    for name, layout in _LAYOUTS.items():
        size, own = lib.sn_struct_bytes(name.encode()), ctypes.sizeof(layout)
        if size != own and not (name == "sn_options" and _Options.rest.offset <= size <= own):
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


# ---- language models ----


def _is_one(prompt: object) -> bool:
    """Is it a text, or the ids of one, and not a list of prompts?"""
    if isinstance(prompt, np.ndarray):
        return prompt.ndim == 1
    if isinstance(prompt, str) or not np.iterable(prompt):
        return True
    prompts = cast(Sequence[object], prompt)
    return len(prompts) > 0 and np.isscalar(prompts[0]) and not isinstance(prompts[0], str)


def _request(prompt: object, tokens: int = 0, temperature: Optional[float] = None, top_k: int = 0, top_p: float = 0.0,
             min_p: float = 0.0, repetition_penalty: float = 0.0, seed: int = 0, stop: Union[str, Sequence[str]] = (), chat: bool = False,
             system: Optional[str] = None, ignore_eos: bool = False) -> _Request:
    stops = [_utf8("stop", s) for s in ([stop] if isinstance(stop, str) else stop)]
    heat = 0.0 if temperature is None else _number("temperature", temperature)
    request = _Request(chat=chat, system=None if system is None else _utf8("system", system),
                       tokens=_integer("tokens", tokens, -2**63), greedy=temperature is not None and heat == 0,
                       temperature=heat, top_k=_integer("top_k", top_k, -2**63), top_p=_number("top_p", top_p),
                       min_p=_number("min_p", min_p), seed=_integer("seed", seed, 0, 2**64 - 1),
                       repetition_penalty=_number("repetition_penalty", repetition_penalty),
                       stop=(ctypes.c_char_p * max(len(stops), 1))(*stops), n_stop=len(stops), ignore_eos=ignore_eos)
    if isinstance(prompt, str):
        request.prompt = prompt.encode()
    else:
        ids = _array("a prompt that is no text", prompt, np.int32).reshape(-1)
        request.ids = (ctypes.c_int32 * max(ids.size, 1))(*ids.tolist())
        request.n_ids = ids.size
    return request


class Model(_Owner):
    """A language model: a model folder as Hugging Face publishes them, a GGUF file, or a model in C with a checkpoint.

    threads 0: all CPUs. context 0: the model's. sequences: how many texts run at once. weights: storage of the
    matrices, "stored" (the default: as the file has them), "f32", "bf16", "int8", "int4" or "auto". cache: storage of
    keys and values, "f32", "bf16" or "int8". level: fusion level, 0 to 4."""

    def __init__(self, path: Path, threads: int = 0, context: int = 0, sequences: int = 1,
                 weights: Optional[str] = None, level: Optional[int] = None, cache_dir: Optional[Path] = None,
                 tokenizer: Optional[Path] = None, checkpoint: Optional[Path] = None,
                 cache: Optional[str] = None) -> None:
        self._lib = lib = _library()
        options = _options(threads, context, sequences, weights, level, cache_dir, tokenizer, checkpoint, cache)
        self._close, self._path = lib.sn_lm_close, os.fspath(path)
        self._handle = _call(lib.sn_lm_open, _text(path), ctypes.byref(options))
        self.vocab: int = lib.sn_lm_vocab(self._handle)      # size of the vocabulary
        self.context: int = lib.sn_lm_context(self._handle)  # maximum number of tokens of a text
        self.sequences: int = lib.sn_lm_rows(self._handle)

    def __repr__(self) -> str:
        return self._describe("%r, vocabulary %d, context %d" % (self._path, self.vocab, self.context))

    def encode(self, text: str) -> NDArray[np.int32]:
        """The token ids of a text, int32 [n], with BOS if the model's texts begin with it."""
        ids, data = _Ids(), _utf8("encode", text)
        try:
            _call(self._lib.sn_lm_encode, self._open(), data, len(data), ctypes.byref(ids))
            return np.array(ids.data[:ids.count], np.int32)
        finally:
            self._lib.sn_ids_free(ctypes.byref(ids))

    def decode(self, ids: ArrayLike) -> str:
        """The text of token ids."""
        array, out = _array("token ids", ids, np.int32), _Bytes()
        try:
            _call(self._lib.sn_lm_spell, self._open(), array.ctypes.data, array.size, 0, ctypes.byref(out))
            return ctypes.string_at(out.data, out.size).decode(errors="replace") if out.size else ""
        finally:
            self._lib.sn_bytes_free(ctypes.byref(out))

    def _request(self, prompt: object, **sampling: Any) -> _Request:
        known = list(inspect.signature(_request).parameters)[1:]
        for name in sampling:
            if name not in known:
                raise _TypeError("unknown option '%s'; options of sampling are %s" % (name, ", ".join(known)))
        return _request(prompt, **sampling)

    def stream(self, prompt: Prompt, **sampling: Any) -> Iterator[str]:
        """Yields the pieces of a text that continues the prompt (a text, or token ids), as they appear. sampling: tokens
        (at most so many), temperature (0: greedy), top_k, top_p, min_p, repetition_penalty, seed, stop (texts), chat
        (the prompt is a message), system, ignore_eos. What is not given is the model's default."""
        self._open()
        return self._pieces(self._request(prompt, **sampling))

    def _pieces(self, request: _Request) -> Iterator[str]:
        lib, bytes_left = self._lib, b""
        sequence = _call(lib.sn_lm_begin, self._open(), ctypes.byref(request))
        try:
            while True:
                self._open()  # the model owns the sequence, and may have been closed since the last piece
                text = _call(lib.sn_lm_next, sequence)
                if not text:
                    break
                piece, bytes_left = _whole(bytes_left + ctypes.string_at(text))
                if piece:
                    yield piece
            if bytes_left:
                yield bytes_left.decode(errors="replace")
        finally:
            if self._handle:
                lib.sn_lm_end(sequence)

    @overload  # type: ignore[misc] # a str is a sequence of str
    def generate(self, prompt: Union[str, Sequence[int], NDArray[Any]], beams: int = 0, length_penalty: float = 0.0,
                 **sampling: Any) -> str: ...

    @overload
    def generate(self, prompt: Sequence[Prompt], beams: int = 0, length_penalty: float = 0.0,
                 **sampling: Any) -> List[str]: ...

    def generate(self, prompt: Any, beams: int = 0, length_penalty: float = 0.0,
                 **sampling: Any) -> Union[str, List[str]]:
        """The text that continues the prompt (a text, or a 1-d array of token ids); for a list of prompts the list of
        texts, of which `sequences` run at once. beams: beam search. Text i of a list has the seed `seed` + i. sampling:
        as in stream()."""
        if beams:
            return self._search(prompt, _integer("beams", beams), _number("length_penalty", length_penalty), sampling)
        if length_penalty:
            raise _ValueError("length_penalty has no effect without beams")
        if _is_one(prompt):
            return "".join(self.stream(prompt, **sampling))
        seed = _integer("seed", sampling.pop("seed", 0))
        return self._batch([self._request(p, seed=seed + i, **sampling) for i, p in enumerate(prompt)])

    def _batch(self, requests: List[_Request]) -> List[str]:
        lib, texts, begun = self._lib, [b""] * len(requests), 0
        live: Dict[int, Any] = {}
        try:
            while begun < len(requests) or live:
                while begun < len(requests) and len(live) < self.sequences:
                    live[begun] = _call(lib.sn_lm_begin, self._open(), ctypes.byref(requests[begun]))
                    begun += 1
                for i in list(live):
                    text = _call(lib.sn_lm_next, live[i])
                    texts[i] += ctypes.string_at(text) if text else b""
                    if lib.sn_lm_ended(live[i]):
                        lib.sn_lm_end(live.pop(i))
        finally:
            for sequence in live.values():
                lib.sn_lm_end(sequence)
        return [t.decode(errors="replace") for t in texts]

    def _search(self, prompt: Any, beams: int, length_penalty: float, sampling: Dict[str, Any]) -> str:
        unused = sorted(set(sampling) - {"tokens", "ignore_eos", "chat", "system"})
        if unused:
            raise _ValueError("beam search finds the most likely text, %s has no effect: omit it" % unused[0])
        prompt = self.encode(prompt) if isinstance(prompt, str) and not sampling.get("chat") else prompt
        ids, how = _Ids(), _Search(beams, length_penalty)
        try:
            _call(self._lib.sn_lm_search_beams, self._open(), ctypes.byref(self._request(prompt, **sampling)),
                  ctypes.byref(how), ctypes.byref(ids), None)
            found = ids.data[:ids.count]
        finally:
            self._lib.sn_ids_free(ctypes.byref(ids))
        before = [] if isinstance(prompt, str) else list(prompt)
        return self.decode(before + found)[len(self.decode(before)):]

    def logits(self, prompt: Prompt) -> NDArray[np.float32]:
        """The logits [vocab] of the token after the prompt (a text, or token ids), f32."""
        sequence = _call(self._lib.sn_lm_begin, self._open(), ctypes.byref(self._request(prompt)))
        try:
            values = _call(self._lib.sn_lm_logits, sequence)
            return np.ctypeslib.as_array(values, (self.vocab,)).copy()
        finally:
            self._lib.sn_lm_end(sequence)


def _whole(data: bytes) -> Tuple[str, bytes]:
    """data as text up to the last whole UTF-8 character, and the bytes that remain."""
    for cut in range(min(3, len(data)) + 1):
        try:
            end = len(data) - cut
            return data[:end].decode(), data[end:]
        except UnicodeDecodeError:
            pass
    return data.decode(errors="replace"), b""


# ---- embeddings ----


class Embedder(_Owner):
    """An encoder of texts. Options as in Model."""

    def __init__(self, path: Path, threads: int = 0, context: int = 0, weights: Optional[str] = None,
                 level: Optional[int] = None, cache_dir: Optional[Path] = None,
                 tokenizer: Optional[Path] = None) -> None:
        self._lib = lib = _library()
        options = _options(threads, context, 0, weights, level, cache_dir, tokenizer, None)
        self._close, self._path = lib.sn_embedder_close, os.fspath(path)
        self._handle = _call(lib.sn_embedder_open, _text(path), ctypes.byref(options))
        self.width: int = lib.sn_embedder_width(self._handle)

    def __repr__(self) -> str:
        return self._describe("%r, width %d" % (self._path, self.width))

    def embed(self, texts: Union[str, Sequence[str]]) -> NDArray[np.float32]:
        """The embeddings of texts, f32 [n, width]; of one text [width]."""
        every = [_utf8("embed", t) for t in ([texts] if isinstance(texts, str) else texts)]
        out = np.empty((len(every), self.width), np.float32)
        _call(self._lib.sn_embedder_embed_texts, self._open(), (_TEXT * len(every))(*every), len(every),
              out.ctypes.data)
        return cast("NDArray[np.float32]", out[0]) if isinstance(texts, str) else out


# ---- artefacts ----


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
    """The value of a size such as 4, T or 2*B*T+1."""
    if not re.fullmatch(r"[\w+\-*^() ]+", expression):
        raise Error("the artefact has the size '%s'" % expression, 5)
    return int(eval(expression.replace("^", "**"), {"__builtins__": {}}, dims))


class Tensor(NamedTuple):
    """An input or output of an entry. sizes: numbers, dimensions, or expressions of them."""
    name: str
    type: str
    sizes: List[str]

    def __str__(self) -> str:
        return "%s %s [%s]" % (self.name, self.type, ",".join(self.sizes))


class Entry(NamedTuple):
    """An entry of an artefact; str() is its signature. dims: (name, least, largest)."""
    name: str
    has_state: bool
    dims: List[Tuple[str, int, int]]
    inputs: List[Tensor]
    outputs: List[Tensor]

    def __str__(self) -> str:
        lengths = ["%s %d to %d" % d for d in self.dims]
        return "%s(%s) -> %s" % (self.name, ", ".join([str(i) for i in self.inputs] + lengths),
                                 ", ".join(str(o) for o in self.outputs))


class Artefact(_Owner):
    """A model that `sinter compile` wrote: NAME.so (--shared), or NAME.o, which the C compiler links into a temporary
    file, once in a process. weights: NAME.weights; None: embedded in the object. Loading it executes its code.

    `entries` maps names to their dimensions, inputs and outputs. The state (caches, or parameters and what the optimizer
    has during training) is one sequence's; `state` is its bytes, to copy, save and assign, reset() begins anew.
    `parameters`: what a training step trains, as arrays in the state. threads 0: OpenMP's default."""

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
        entry = Entry("", False, [], [], [])
        for line in manifest.splitlines():
            word = line.split()
            if not word:
                continue
            if word[0] == "name":
                self.name = word[1]
            elif word[0] == "state":
                self.state_bytes, self._n_parameters = int(word[1]), int(word[2]) if len(word) > 2 else 0
            elif word[0] == "entry":
                entry = self.entries[word[1]] = Entry(word[1], "state" in word[2:], [], [], [])
            elif word[0] == "dim":
                entry.dims.append((word[1], int(word[2]), int(word[3])))
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
