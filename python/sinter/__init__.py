"""Sinter from Python: models in the DSL, language models, embeddings and ahead-of-time artefacts, over ctypes and NumPy.

    import sinter

    def block(x, w):                                 # called once, with tensors of a graph
        return sinter.relu(x @ w.mT)

    f = sinter.compile(block, {"x": "f32[T,64]", "w": "f32[32,64]"})
    y = f(x, w)                                      # NumPy arrays
    print(f.explain(), f.bench(T=512))

    with sinter.Model("MODEL") as model:             # a model folder or GGUF file
        print(model.generate("Once upon a time", tokens=50))
        for piece in model.stream("Once upon a time"):
            print(piece, end="", flush=True)

    with sinter.Embedder("ENCODER") as encoder:
        vectors = encoder.embed(["a rider", "a horse"])   # [2, width]

    story = sinter.Artefact("out/story.so", "out/story.weights")   # sinter compile --shared
    logits = story.run("prefill", tokens=[[1, 403, 407]], P=0)["logits"]

Needs NumPy and libsinter.so (artefacts do not need it). The library is looked for beside this folder, in the
installation and the build tree that it belongs to, and by the system's loader; SINTER_LIBRARY names another one. Errors
are exceptions of class sinter.Error, those of a graph with the line of Python that made it; for a wrong argument they
are a TypeError or ValueError, too. An object is used by one thread at a time. sinter.torch is for PyTorch.
"""
from ._library import Error as Error, __version__ as __version__
from .artefact import Artefact as Artefact, Entry as Entry, Tensor as Tensor
from .dsl import *
from .graph import Dim as Dim, Module as Module, Node as Node
from .model import Embedder as Embedder, Model as Model
from .ops import *
from .program import (Function as Function, Program as Program, compile as compile, load as load, load_model as load_model,
                      load_onnx as load_onnx, trace as trace)
