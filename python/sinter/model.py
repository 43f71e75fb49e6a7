"""Language models and encoders of texts."""
from __future__ import annotations

import ctypes
import inspect
import os
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, Union, cast, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._library import (Path, _array, _call, _Ids, _Bytes, _integer, _library, _number, _options, _Owner, _Request, _Search, _text,
                       _TEXT, _TypeError, _utf8, _ValueError)

Prompt = Union[str, Sequence[int], NDArray[Any]]


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
