#!/usr/bin/env python3
"""test_python.py SINTER SOURCE_DIR BUILD_DIR: the package BUILD_DIR/python/sinter against the program `sinter`, with
stories260K and a tiny BERT. Skipped (77) without NumPy."""
import json
import os
import shutil
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    print("skipped: NumPy is not installed (Debian: python3-numpy)")
    sys.exit(77)

SINTER, SOURCE, BUILD = sys.argv[1:4]
os.environ["SINTER_LIBRARY"] = os.path.join(BUILD, "libsinter.so")
sys.path.insert(0, os.path.join(BUILD, "python"))
import sinter  # noqa: E402

STORIES = os.path.join(SOURCE, "examples/models/stories260K/stories260K.bin")
PROMPTS = ["Once upon a time", "Tom", "One day, a dog"]
TEXT = ", there was a little girl named Lily."


def program(*words):
    return subprocess.run([SINTER, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True).stdout.decode()


def refuses(what, call, *arguments, kind=sinter.Error, **options):
    try:
        call(*arguments, **options)
    except sinter.Error as error:
        assert what in str(error) and error.code and isinstance(error, kind), repr(error)
        return
    raise AssertionError("no error: " + what)


def generation():
    with sinter.Model(STORIES, threads=2, sequences=2) as model:
        assert (model.vocab, model.context, model.sequences) == (512, 512, 2)
        text = model.generate(PROMPTS[0], tokens=40, temperature=0)
        assert text.startswith(TEXT), text
        assert PROMPTS[0] + text + "\n" == program("generate", STORIES, "-p", PROMPTS[0], "-n", "40", "--temperature", "0")
        assert "".join(model.stream(PROMPTS[0], tokens=40, temperature=0)) == text
        stopped = model.generate(PROMPTS[0], tokens=40, temperature=0, stop="girl")
        assert stopped == ", there was a little ", stopped
        # a list runs as a batch; each text is what it is alone
        texts = model.generate(PROMPTS, tokens=20, seed=3)
        for i, prompt in enumerate(PROMPTS):
            assert texts[i] == model.generate(prompt, tokens=20, seed=3 + i)
        ids = model.encode(PROMPTS[0])
        assert ids.dtype == np.int32 and list(ids) == [1, 403, 407, 261, 378], ids
        assert model.generate(ids, tokens=40, temperature=0) == text
        assert model.decode(ids) == PROMPTS[0]
        best = model.encode(PROMPTS[0] + TEXT)[len(ids)]
        assert int(model.logits(PROMPTS[0]).argmax()) == best == int(model.logits(ids).argmax())
        assert model.generate(PROMPTS[0], tokens=10, beams=1) == model.generate(PROMPTS[0], tokens=10, temperature=0)
        assert model.generate(PROMPTS[0], tokens=10, beams=2)
        refuses("context holds only 512", model.generate, "dog " * 600)
        refuses("top-p", model.generate, "x", top_p=7.0)
        refuses("outside the vocabulary", model.logits, [512])
        refuses("array of int32 is needed, not 5.5", model.generate, 5.5)
        refuses("array of int32 is needed", model.generate, [1.5, 2])
        refuses("array of int32 is needed", model.generate, None)
        refuses("prompt is empty", model.generate, np.array([], np.int32))
        refuses("no effect without beams", model.generate, "x", length_penalty=1.0)
        refuses("temperature has no effect", model.generate, "x", beams=2, temperature=0.5)
        assert model.generate([]) == []
        assert len(model.generate([[1, 403], [1]], tokens=2)) == 2
        refuses("encode: a text", model.encode, b"x", kind=TypeError)
        refuses("embed", sinter.Embedder.embed, model, [5], kind=TypeError)
        refuses("unknown option 'topp'; options of sampling are tokens, ", model.generate, "x", topp=1, kind=TypeError)
        refuses("seed is -1, not in 0 to", model.generate, "x", seed=-1, kind=ValueError)
        refuses("tokens is an integer, not 1.5", model.generate, "x", tokens=1.5, kind=TypeError)
        refuses("tokens is 18446744073709551617", model.generate, "x", tokens=2**64 + 1, kind=ValueError)
        refuses("top_p is a number, not 'x'", model.generate, "x", top_p="x", kind=TypeError)
        refuses("4294967297 is out of the range of int32", model.decode, [2**32 + 1], kind=ValueError)
        refuses("threads is 4294967297", sinter.Model, STORIES, threads=2**32 + 1, kind=ValueError)
        assert "stories260K" in repr(model) and "closed" not in repr(model)
        half, other, unused = (model.stream(PROMPTS[0]) for _ in range(3))
        next(half)
        half.close()
        next(other)
    refuses("the model is closed", next, other)  # after its model
    refuses("the model is closed", next, unused)
    refuses("closed", model.generate, "x")
    refuses("closed", model.stream, "x")
    assert "closed" in repr(model)
    refuses("cannot open", sinter.Model, "/nowhere")
    with sinter.Model(STORIES, level=0, weights="bf16", cache="int8", cache_dir="none") as model:
        assert model.generate(PROMPTS[0], tokens=5, temperature=0)


def embeddings(tmp):
    with open(os.path.join(SOURCE, "tests/data/families/bert.json")) as file:
        reference = json.load(file)
    folder = os.path.join(tmp, "bert")
    os.mkdir(folder)
    write_folder(folder, reference)
    texts = ["1 2 3", "4 5", "6 7 8"]
    with sinter.Embedder(folder) as encoder:
        vectors = encoder.embed(texts)
        assert vectors.shape == (3, encoder.width) and vectors.dtype == np.float32
        assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
        assert all(np.array_equal(encoder.embed(t), v) for t, v in zip(texts, vectors))
        assert encoder.embed([]).shape == (0, encoder.width)
    want = program("embed", folder, "-p", texts[0]).split()
    assert np.allclose(np.array(want, np.float32), vectors[0], atol=1e-5)
    refuses("", sinter.Embedder, STORIES)


def write_folder(folder, reference):
    """Weights of the right shapes in safetensors."""
    rng, header, parts, at = np.random.default_rng(1), {}, [], 0
    for name, shape in reference["tensors"].items():
        data = rng.standard_normal(shape).astype(np.float32).tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + len(data)]}
        parts.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + b"".join(parts))
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(reference["config"], file)


def artefacts(tmp):
    program("compile", STORIES, "--name", "story", "-o", tmp, "--shared")
    weights = os.path.join(tmp, "story.weights")
    ids = [1, 403, 407, 261, 378]
    with sinter.Model(STORIES) as model:
        want = model.logits(ids)
    for name in "story.so", "story.o":
        with sinter.Artefact(os.path.join(tmp, name), weights, threads=1) as story:
            assert set(story.entries) == {"prefill", "decode", "step"}, story.entries
            logits = story.run("prefill", tokens=[ids], P=0)["logits"]
            assert np.array_equal(logits[0], want)  # the same code, the same bits
            story.reset()
            story.run("prefill", tokens=[ids[:-1]], P=0)
            assert np.allclose(story.run("decode", tokens=[ids[-1:]], P=len(ids) - 1)["logits"][0], want, atol=1e-3)
            refuses("P", story.run, "prefill", tokens=[ids], P=600)
            refuses("give the length 'P'", story.run, "prefill", tokens=[ids])
            refuses("unknown argument 'Q'; inputs are tokens", story.run, "prefill", tokens=[ids], P=0, Q=1)
            refuses("array of int32 is needed", story.run, "prefill", tokens=[[1.5]], P=0)
            refuses("2 axes", story.run, "prefill", tokens=ids, P=0)
            refuses("no entry", story.run, "loss")
            refuses("1099511627776 is out of the range of int32", story.run, "prefill", tokens=[[2**40]], P=0,
                    kind=ValueError)
            refuses("'P' is an integer, not 'x'", story.run, "prefill", tokens=[ids], P="x", kind=TypeError)
            refuses("'P' is an integer, not 0.5", story.run, "prefill", tokens=[ids], P=0.5, kind=TypeError)
            for zero in 0.0, 0, np.float32(0), np.array(0):
                story.reset()
                story.run("prefill", tokens=[ids[:-1]], P=0)
                saved = story.state.copy()
                best = story.run("step", tokens=[ids[-1:]], P=len(ids) - 1, temperature=zero, rng=[0, 0])["next"]
                assert best[0] == want.argmax(), best
            story.reset()
            assert story.state[:64].any() and not story.state[64:].any()
            story.state = saved ^ np.uint8(1)
            refuses("belongs to another artefact", story.run, "prefill", tokens=[ids], P=0)
            story.state = saved
            assert np.array_equal(story.run("step", tokens=[ids[-1:]], P=len(ids) - 1, temperature=0, rng=[0, 0])["next"],
                                  best)
            refuses("bytes are needed", setattr, story, "state", saved[1:], kind=ValueError)
            assert story.parameters == {} and "prefill, decode, step" in repr(story)
            assert str(story.entries["decode"]) == "decode(tokens i32 [1,1], P 0 to 511) -> logits f32 [1,512]"
            run_all(story)
        refuses("closed", story.run, "prefill", tokens=[ids], P=0)
    # the object is linked once
    with sinter.Artefact(os.path.join(tmp, "story.o"), weights, cc="cc") as story:
        with sinter.Artefact(os.path.join(tmp, "story.o"), weights) as again:
            assert story._lib is again._lib and story._state is not again._state
    refuses("no-such-compiler", sinter.Artefact, os.path.join(tmp, "story.o"), weights, cc="no-such-compiler")
    refuses("none: the weights", sinter.Artefact, os.path.join(tmp, "story.so"), os.path.join(tmp, "none"))
    refuses("not made by", sinter.Artefact, os.path.join(BUILD, "libsinter.so"))
    refuses("No such file", sinter.Artefact, os.path.join(tmp, "none.so"))


def run_all(artefact):
    """Runs every entry with ones, and lengths of 1 or the least."""
    for name, entry in artefact.entries.items():
        dims = {dim: max(least, min(largest, 1)) for dim, least, largest in entry.dims}
        inputs = {i.name: np.ones([sinter.artefact._size(s, dims) for s in i.sizes]).astype(sinter.artefact._TYPES[i.type])
                  for i in entry.inputs}
        out = artefact.run(name, **inputs, **dims)
        assert set(out) == {o.name for o in entry.outputs} and all(o.size for o in out.values()), name


CONFIG = """{"model": {"model_type": "gpt2", "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2},
"tokenizer": {"kind": "char"}, "data": {"text": "text.txt"}, "optimizer": {"kind": "adamw", "clip": 1.0},
"schedule": {"kind": "cosine", "rate": 1e-2, "final": 1e-4, "warmup": 2},
"training": {"steps": 6, "batch": 4, "block": 16, "seed": 7, "log_every": 1}}"""


def training(tmp):
    """The training step of an artefact gives the losses of `sinter train`. All rows of the text are equal, so that the
    order of rows does not matter."""
    config, trained, text = os.path.join(tmp, "conf.json"), os.path.join(tmp, "trained"), "the cat sat here"
    with open(config, "w") as file:
        file.write(CONFIG)
    with open(os.path.join(tmp, "text.txt"), "w") as file:
        file.write(text * 40)
    program("train", config, "-o", trained)
    with open(os.path.join(trained, "metrics.jsonl")) as file:
        want = [json.loads(line)["loss"] for line in file]
    assert len(want) == 6, want
    with sinter.Model(trained) as model:
        rows = np.resize(model.encode(text)[-16:], (4, 17))[:1].repeat(4, 0)
    program("compile", "--train", config, "--name", "step", "-o", tmp, "--shared")
    files = os.path.join(tmp, "step.so"), os.path.join(tmp, "step.weights")
    with sinter.Artefact(*files) as step, sinter.Artefact(*files) as second:
        for i, loss in enumerate(want):  # from the initial parameters, without reset()
            if i == 3:  # a saved state continues in another artefact
                second.state = step.state
                step = second
            out = step.run("train_step", tokens=rows[:, :-1], targets=rows[:, 1:])
            assert abs(out["loss"] - loss) < 1e-7 and out["norm"] > 0, (i, out, loss)
        with sinter.Model(trained) as model:
            logits = model.logits(rows[0, :4])
        found = step.parameters
        assert found["wte.weight"].shape == (12, 16) and found["ln_f.bias"].any()
        found["wte.weight"][:] = 0  # parameters are written in place
        assert abs(float(step.run("loss", tokens=rows[:1, :-1], targets=rows[:1, 1:])["loss"][0, 0]) - np.log(12)) < 1e-5
        assert logits.shape == (12,)
        step.reset()
        assert abs(step.run("train_step", tokens=rows[:, :-1], targets=rows[:, 1:])["loss"] - want[0]) < 1e-7
        run_all(step)
    # --slices: scalars, and a struct with a communicator
    program("compile", "--train", config, "--slices", "2", "--entries", "cached,step", "--name", "slices", "-o", tmp, "--shared")
    with sinter.Artefact(os.path.join(tmp, "slices.so"), os.path.join(tmp, "slices.weights")) as step:
        assert {"accumulate", "train_step", "prefill", "decode", "step"} <= set(step.entries), step
        step.run("accumulate", tokens=rows[:2, :-1], targets=rows[:2, 1:], weight=0.5)
        out = step.run("train_step", tokens=rows[2:, :-1], targets=rows[2:, 1:], weight=0.5)
        assert abs(out["loss"] - want[0]) < 1e-6, out
        run_all(step)


def versions(tmp):
    """The module checks the library that it finds; its types are complete."""
    assert program("version").split()[1] == sinter.__version__
    script = "import ctypes, sinter; sinter._library.{}; sinter.Model('none')"
    for change, message in (("__version__ = '0.0.1'", "is Sinter " + sinter.__version__),
                            ("_LAYOUTS['sn_lm_request'] = ctypes.c_int", "sn_lm_request has"),
                            ("_FUNCTIONS['sn_none'] = (None, [])", "has no sn_none")):
        done = subprocess.run([sys.executable, "-c", script.format(change)], stderr=subprocess.PIPE, check=False,
                              env=dict(os.environ, PYTHONPATH=os.path.join(BUILD, "python")))
        assert message in done.stderr.decode(), done.stderr
    with open(os.path.join(tmp, "user.py"), "w") as file:
        file.write("import sinter\n\nwith sinter.Model('m') as model:\n    text: str = model.generate('x', tokens=5)\n"
                   "    texts: list[str] = model.generate(['x', 'y'])\n"
                   "    print(text + texts[0], model.logits('x').argmax(), [p.upper() for p in model.stream('x')])\n"
                   "print(sinter.Artefact('a.so').run('step', P=0)['next'], sinter.__version__)\n")
    if shutil.which("mypy") and os.environ.get("SN_TEST_LONG"):
        done = subprocess.run(["mypy", "--strict", "--cache-dir", os.path.abspath("mypy"), "user.py"], cwd=tmp,
                              stdout=subprocess.PIPE, check=False, env=dict(os.environ, MYPYPATH=os.path.join(BUILD, "python")))
        assert not done.returncode, done.stdout


with tempfile.TemporaryDirectory() as scratch:
    generation()
    embeddings(scratch)
    artefacts(scratch)
    training(scratch)
    versions(scratch)
print("the module does what the program does")
