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
one. Errors are exceptions of class sinter.Error. An object is used by one thread at a time.
"""
import ctypes
import ctypes.util
import os
import re
import subprocess
import tempfile

import numpy as np

__all__ = ["Artefact", "Embedder", "Error", "Model"]


class Error(Exception):
    """What went wrong, where, and what to do. `code` is the sn_code of runtime/base.h, or that of an artefact."""

    def __init__(self, message, code):
        super().__init__(message)
        self.code = code


# ---- the library ----


class _Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("message", ctypes.c_char * 1024)]

    def check(self):
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


class _Request(ctypes.Structure):  # sn_lm_request of runtime/lm.h
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
_FUNCTIONS = {  # name: (result, arguments)
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


def _candidates():
    here = os.path.dirname(os.path.abspath(__file__))
    if os.environ.get("SINTER_LIBRARY"):
        return [os.environ["SINTER_LIBRARY"]]
    folders = [here]
    for up in range(1, 5):  # PREFIX/share/sinter/python/sinter.py, or the source tree
        root = os.path.normpath(os.path.join(here, *[".."] * up))
        folders += [os.path.join(root, "lib"), os.path.join(root, "build", "release")]
        folders += sorted(d for d in (os.path.join(root, "lib", n) for n in _names(os.path.join(root, "lib")))
                          if d.endswith("-linux-gnu"))
    found = [os.path.join(f, "libsinter.so") for f in folders if os.path.exists(os.path.join(f, "libsinter.so"))]
    system = ctypes.util.find_library("sinter")
    return found + ([system] if system else [])


def _names(folder):
    return os.listdir(folder) if os.path.isdir(folder) else []


_loaded = None


def _library():
    global _loaded
    if _loaded is None:
        paths = _candidates()
        if not paths:
            raise Error("libsinter.so was not found: install Sinter, or set SINTER_LIBRARY to its path", 4)
        # models in C refer to the library's functions
        lib = ctypes.CDLL(paths[0], mode=ctypes.RTLD_GLOBAL)
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(lib, name)
            function.restype, function.argtypes = result, arguments
        _loaded = lib
    return _loaded


def _text(value):
    return None if value is None else os.fspath(value).encode()


def _call(function, *arguments):
    err = _Error()
    result = function(*arguments, ctypes.byref(err))
    err.check()
    return result


def _options(threads, context, sequences, weights, level, cache_dir, tokenizer, checkpoint, cache=None):
    compile_options = _library().sn_options_default()
    if level is not None:
        compile_options.level = level
    if cache is not None:
        compile_options.cache = _text(cache)
    if cache_dir is not None:
        compile_options.cache_dir = _text(cache_dir)
    options = _LmOptions(threads=threads, context=context, sequences=sequences, weights=_text(weights),
                         compile=ctypes.pointer(compile_options), tokenizer=_text(tokenizer),
                         checkpoint=_text(checkpoint))
    return options


class _Owner:
    """Closes what it opened: by close(), at the end of a with statement, or when it is collected."""
    _handle, _close = None, None

    def close(self):
        if self._handle:
            self._close(self._handle)
        self._handle = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        self.close()

    def _open(self):
        if not self._handle:
            raise Error("the model is closed", 1)
        return self._handle


def _array(what, value, dtype):
    """A contiguous array of the type; fractions are not cut off to make integers."""
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        array = np.asarray(None)
    if array.size and (array.dtype.kind not in "biuf" or array.dtype.kind == "f" and np.dtype(dtype).kind in "iu"):
        raise Error("%s: an array of %s is needed, not %r" % (what, np.dtype(dtype), value), 1)
    return np.ascontiguousarray(array, dtype)


# ---- language models ----


def _is_one(prompt):
    """Is it a text, or the ids of one, and not a list of prompts?"""
    if isinstance(prompt, np.ndarray):
        return prompt.ndim == 1
    if isinstance(prompt, str) or not np.iterable(prompt):
        return True
    return len(prompt) > 0 and np.isscalar(prompt[0]) and not isinstance(prompt[0], str)


class Model(_Owner):
    """A language model: a model folder as Hugging Face publishes them, a GGUF file, or a model in C with a checkpoint.

    threads 0: all CPUs. context 0: the model's. sequences: how many texts run at once. weights: storage of the
    matrices, "stored" (the default: as the file has them), "f32", "bf16", "int8", "int4" or "auto". cache: storage of
    keys and values, "f32", "bf16" or "int8". level: fusion level, 0 to 4."""

    def __init__(self, path, threads=0, context=0, sequences=1, weights=None, level=None, cache_dir=None,
                 tokenizer=None, checkpoint=None, cache=None):
        self._lib = lib = _library()
        options = _options(threads, context, sequences, weights, level, cache_dir, tokenizer, checkpoint, cache)
        self._close = lib.sn_lm_close
        self._handle = _call(lib.sn_lm_open, _text(path), ctypes.byref(options))
        self.vocab = lib.sn_lm_vocab(self._handle)      # size of the vocabulary
        self.context = lib.sn_lm_context(self._handle)  # maximum number of tokens of a text
        self.sequences = lib.sn_lm_rows(self._handle)

    def encode(self, text):
        """The token ids of a text, int32 [n], with BOS if the model's texts begin with it."""
        ids, data = _Ids(), text.encode()
        try:
            _call(self._lib.sn_lm_encode, self._open(), data, len(data), ctypes.byref(ids))
            return np.array(ids.data[:ids.count], np.int32)
        finally:
            self._lib.sn_ids_free(ctypes.byref(ids))

    def decode(self, ids):
        """The text of token ids."""
        ids, out = _array("token ids", ids, np.int32), _Bytes()
        try:
            _call(self._lib.sn_lm_spell, self._open(), ids.ctypes.data, ids.size, 0, ctypes.byref(out))
            return ctypes.string_at(out.data, out.size).decode(errors="replace") if out.size else ""
        finally:
            self._lib.sn_bytes_free(ctypes.byref(out))

    def _request(self, prompt, tokens=0, temperature=None, top_k=0, top_p=0.0, min_p=0.0, repetition_penalty=0.0, seed=0,
                 stop=(), chat=False, system=None, ignore_eos=False):
        stops = [s.encode() for s in ([stop] if isinstance(stop, str) else stop)]
        request = _Request(chat=chat, system=_text(system), tokens=tokens, greedy=temperature == 0,
                           temperature=temperature or 0, top_k=top_k, top_p=top_p, min_p=min_p,
                           repetition_penalty=repetition_penalty, seed=seed,
                           stop=(ctypes.c_char_p * max(len(stops), 1))(*stops), n_stop=len(stops), ignore_eos=ignore_eos)
        if isinstance(prompt, str):
            request.prompt = prompt.encode()
        else:
            ids = _array("a prompt that is no text", prompt, np.int32).reshape(-1)
            request.ids = (ctypes.c_int32 * max(ids.size, 1))(*ids.tolist())
            request.n_ids = ids.size
        return request

    def stream(self, prompt, **sampling):
        """Yields the pieces of a text that continues the prompt (a text, or token ids), as they appear. sampling: tokens
        (at most so many), temperature (0: greedy), top_k, top_p, min_p, repetition_penalty, seed, stop (texts), chat
        (the prompt is a message), system, ignore_eos. What is not given is the model's default."""
        lib, bytes_left = self._lib, b""
        sequence = _call(lib.sn_lm_begin, self._open(), ctypes.byref(self._request(prompt, **sampling)))
        try:
            while True:
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

    def generate(self, prompt, beams=0, length_penalty=0.0, **sampling):
        """The text that continues the prompt (a text, or a 1-d array of token ids); for a list of prompts the list of
        texts, of which `sequences` run at once. beams: beam search. Text i of a list has the seed `seed` + i. sampling:
        as in stream()."""
        if beams:
            return self._search(prompt, beams, length_penalty, sampling)
        if length_penalty:
            raise Error("length_penalty has no effect without beams", 1)
        if _is_one(prompt):
            return "".join(self.stream(prompt, **sampling))
        seed = sampling.pop("seed", 0)
        return self._batch([self._request(p, seed=seed + i, **sampling) for i, p in enumerate(prompt)])

    def _batch(self, requests):
        lib, live, texts, begun = self._lib, {}, [b""] * len(requests), 0
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

    def _search(self, prompt, beams, length_penalty, sampling):
        unused = sorted(set(sampling) - {"tokens", "ignore_eos", "chat", "system"})
        if unused:
            raise Error("beam search finds the most likely text, %s has no effect: omit it" % unused[0], 1)
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

    def logits(self, prompt):
        """The logits [vocab] of the token after the prompt (a text, or token ids), f32."""
        sequence = _call(self._lib.sn_lm_begin, self._open(), ctypes.byref(self._request(prompt)))
        try:
            values = _call(self._lib.sn_lm_logits, sequence)
            return np.ctypeslib.as_array(values, (self.vocab,)).copy()
        finally:
            self._lib.sn_lm_end(sequence)


def _whole(data):
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

    def __init__(self, path, threads=0, context=0, weights=None, level=None, cache_dir=None, tokenizer=None):
        self._lib = lib = _library()
        options = _options(threads, context, 0, weights, level, cache_dir, tokenizer, None)
        self._close = lib.sn_embedder_close
        self._handle = _call(lib.sn_embedder_open, _text(path), ctypes.byref(options))
        self.width = lib.sn_embedder_width(self._handle)

    def embed(self, texts):
        """The embeddings of texts, f32 [n, width]; of one text [width]."""
        one = isinstance(texts, str)
        every = [t.encode() for t in ([texts] if one else texts)]
        out = np.empty((len(every), self.width), np.float32)
        _call(self._lib.sn_embedder_embed_texts, self._open(), (_TEXT * len(every))(*every), len(every),
              out.ctypes.data)
        return out[0] if one else out


# ---- artefacts ----


class _ArtefactModel(ctypes.Structure):  # the struct NAME of NAME.h
    _fields_ = [("weights", ctypes.c_void_p), ("bytes", ctypes.c_int64), ("threads", ctypes.c_int64),
                ("pool", ctypes.c_void_p), ("target", ctypes.c_int32), ("mapped", ctypes.c_int32)]


_TYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": np.uint16, "i32": np.int32, "i64": np.int64,
          "i8": np.int8, "u8": np.uint8, "bool": np.bool_}


def _aligned(size):
    memory = np.zeros(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start:start + size]


def _size(expression, dims):
    """The value of a size such as 4, T or 2*B*T+1."""
    if not re.fullmatch(r"[\w+\-*^() ]+", expression):
        raise Error("the artefact has the size '%s'" % expression, 5)
    return int(eval(expression.replace("^", "**"), {"__builtins__": {}}, dims))


class _Entry:
    def __init__(self, name, has_state):
        self.name, self.has_state = name, has_state
        self.dims, self.inputs, self.outputs = [], [], []  # (name, least, largest); (name, type, [sizes])


class Artefact(_Owner):
    """A model that `sinter compile` wrote: NAME.so (--shared), or NAME.o, which the C compiler links into a temporary
    file. weights: NAME.weights; None: embedded in the object. Loading it executes its code.

    `entries` maps names to their dimensions, inputs and outputs. The state (caches, or parameters during training) is
    one sequence's; reset() empties it. threads 0: OpenMP's default."""

    def __init__(self, path, weights=None, threads=0, cc="cc"):
        path = os.path.abspath(os.fspath(path))
        self._read(self._manifest(path))
        self._lib = _link(path, cc) if path.endswith((".o", ".a")) else ctypes.CDLL(path)
        self._model = _ArtefactModel(threads=threads)
        self._check(self._function("open")(ctypes.byref(self._model), _text(weights)), weights)
        self._model.threads = threads
        self._handle, self._close = self._model, lambda m: self._function("close")(ctypes.byref(m))
        self._state, self._workspace = _aligned(max(self.state_bytes, 64)), _aligned(64)

    def _manifest(self, path):
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError as error:
            raise Error("%s: %s" % (path, error.strerror), 3) from None
        found = re.search(rb"SINTER-ARTEFACT 1\nname [A-Za-z_]\w*\n[^\0]*", data)
        if not found:
            raise Error("%s: not made by `sinter compile`" % path, 3)
        return found.group().decode(errors="replace")

    def _read(self, manifest):
        self.entries, self.state_bytes, entry = {}, 0, None
        for line in manifest.splitlines():
            word = line.split()
            if not word:
                continue
            if word[0] == "name":
                self.name = word[1]
            elif word[0] == "state":
                self.state_bytes = int(word[1])
            elif word[0] == "entry":
                entry = self.entries[word[1]] = _Entry(word[1], "state" in word[2:])
            elif word[0] == "dim" and entry:
                entry.dims.append((word[1], int(word[2]), int(word[3])))
            elif word[0] in ("in", "out") and entry:
                sizes = [s for s in word[3].strip("[]").split(",") if s]
                (entry.inputs if word[0] == "in" else entry.outputs).append((word[1], word[2], sizes))

    def _function(self, suffix, result=ctypes.c_int):
        function = getattr(self._lib, "%s_%s" % (self.name, suffix))
        function.restype = result
        return function

    def _check(self, code, path=None):
        if code:
            message = self._function("message", ctypes.c_char_p)(code).decode(errors="replace")
            raise Error("%s: %s" % (path, message) if path else message, code)

    def reset(self):
        """Empties the state."""
        self._open()
        self._check(self._function("state_init")(ctypes.byref(self._model), ctypes.c_void_p(self._state.ctypes.data)))

    def run(self, entry, **arguments):
        """Runs an entry. arguments: inputs, converted to their types, and dimensions that no input's shape determines.
        Returns a dictionary of the outputs. bf16 is uint16. Shapes and indices are checked: sinter.Error."""
        self._open()
        if entry not in self.entries:
            raise Error("the artefact has no entry '%s': it has %s" % (entry, ", ".join(self.entries)), 1)
        e = self.entries[entry]
        dims, arrays = self._bind(e, arguments)
        outputs = {name: np.empty([_size(s, dims) for s in sizes], _TYPES[t]) for name, t, sizes in e.outputs}
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

    def _bind(self, e, arguments):
        given, dims, arrays = dict(arguments), {}, []
        for name, _, _ in e.dims:
            if name in given and name not in (i[0] for i in e.inputs):
                dims[name] = int(given.pop(name))
        for name in given:
            if name not in (i[0] for i in e.inputs):
                raise Error("%s: unknown argument '%s'; inputs are %s" % (
                    e.name, name, ", ".join(i[0] for i in e.inputs)), 1)
        for name, dtype, sizes in e.inputs:
            if name not in given:
                raise Error("%s needs the input '%s' [%s]" % (e.name, name, ",".join(sizes)), 1)
            array = _array("%s: '%s'" % (e.name, name), given.pop(name), _TYPES[dtype])
            if array.ndim != len(sizes):
                raise Error("%s: '%s' needs %d axes, [%s]" % (e.name, name, len(sizes), ",".join(sizes)), 1)
            for size, length in zip(sizes, array.shape):
                if size.isidentifier():
                    dims.setdefault(size, length)
            arrays.append((array, name, sizes))
        missing = [name for name, _, _ in e.dims if name not in dims]
        if missing:
            raise Error("%s: give the length '%s'" % (e.name, missing[0]), 1)
        for array, name, sizes in arrays:
            if array.shape != tuple(_size(s, dims) for s in sizes):
                raise Error("%s: '%s' has shape %s, not [%s]" % (e.name, name, array.shape, ",".join(sizes)), 1)
        return dims, [a[0] for a in arrays]


def _link(path, cc):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "artefact.so")
        whole = ["-Wl,--whole-archive", path, "-Wl,--no-whole-archive"]
        done = subprocess.run([cc, "-shared", "-o", out, *whole, "-fopenmp", "-lm"], stderr=subprocess.PIPE, check=False)
        if done.returncode:
            raise Error("%s: the C compiler cannot link it: %s" % (path, done.stderr.decode(errors="replace")[:500]), 3)
        return ctypes.CDLL(out)
