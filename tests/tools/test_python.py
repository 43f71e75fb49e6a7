#!/usr/bin/env python3
"""test_python.py SINTER SOURCE_DIR LIBRARY: the module python/sinter.py against the program `sinter`, with stories260K and
a tiny BERT. Skipped (77) without NumPy."""
import json
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    print("skipped: NumPy is not installed (Debian: python3-numpy)")
    sys.exit(77)

SINTER, SOURCE, LIBRARY = sys.argv[1:4]
os.environ["SINTER_LIBRARY"] = LIBRARY
sys.path.insert(0, os.path.join(SOURCE, "python"))
import sinter  # noqa: E402

STORIES = os.path.join(SOURCE, "examples/models/stories260K/stories260K.bin")
PROMPTS = ["Once upon a time", "Tom", "One day, a dog"]
TEXT = ", there was a little girl named Lily."


def program(*words):
    return subprocess.run([SINTER, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True).stdout.decode()


def refuses(what, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except sinter.Error as error:
        assert what in str(error) and error.code, error
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
        half = model.stream(PROMPTS[0])
        next(half)
    half.close()  # after its model
    refuses("closed", model.generate, "x")
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
        refuses("closed", story.run, "prefill", tokens=[ids], P=0)
    refuses("none: the weights", sinter.Artefact, os.path.join(tmp, "story.so"), os.path.join(tmp, "none"))
    refuses("not made by", sinter.Artefact, LIBRARY)
    refuses("No such file", sinter.Artefact, os.path.join(tmp, "none.so"))


def training(tmp):
    """The training step of an artefact: the loss falls."""
    program("compile", "--train", os.path.join(SOURCE, "examples/train/shakespeare.json"), "--name", "step", "-o", tmp,
            "--shared", "--threads", "none")
    with sinter.Artefact(os.path.join(tmp, "step.so"), os.path.join(tmp, "step.weights")) as step:
        step.reset()
        entry = step.entries["train_step"]
        tokens = np.arange(32, dtype=np.int32).reshape(2, 16) % 17
        inputs = {"tokens": tokens, "targets": (tokens + 1) % 17}
        for name, _, sizes in entry.inputs:
            if name not in inputs:
                inputs[name] = np.zeros([int(s) for s in sizes])
        losses = [float(np.mean(step.run("train_step", **inputs)["loss"])) for _ in range(8)]
        assert losses[-1] < losses[0] - 0.01, losses


with tempfile.TemporaryDirectory() as scratch:
    generation()
    embeddings(scratch)
    artefacts(scratch)
    training(scratch)
print("the module does what the program does")
