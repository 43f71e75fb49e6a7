#!/usr/bin/python3
# quantised.py SINTER FOLDER: an encoder of texts that others exported to ONNX, with integer products, from texts to embeddings:
# `sinter embed` at levels 0 and 4 and ONNX Runtime, both beside the exact result: the same integers, all else in f64 (exact.py).
# How far rounding alone may be from it is measured, too. FOLDER has config.json, tokenizer.json and
# onnx/model_quantized.onnx or onnx/model.onnx; the latter is quantised here as ONNX Runtime's quantize_dynamic does it: one
# scale for a matrix, rows of u8 at run time. Needs python3-onnx, node and onnxruntime-node ($PEER_NODE_MODULES).
import json
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto as TP, helper as H, numpy_helper as NH

import exact

TEXTS = ["a cat", "How old are you?", "What is your age?", "The quick brown fox jumps over the lazy dog.",
         " ".join(["Sentence embeddings map a text to a vector, so that similar texts are near each other."] * 6)]
SEEDS = 6
NODE = """
const ort = require(process.env.PEER_NODE_MODULES + '/onnxruntime-node');
(async () => {
  const s = await ort.InferenceSession.create(process.argv[1], {graphOptimizationLevel: process.argv[2]}), all = [];
  for (const ids of JSON.parse(require('fs').readFileSync(0))) {
    const of = (f) => new ort.Tensor('int64', BigInt64Array.from(ids, (x) => BigInt(f(x))), [1, ids.length]);
    const x = {input_ids: of((x) => x), attention_mask: of(() => 1), token_type_ids: of(() => 0)}, feeds = {};
    for (const n of s.inputNames) feeds[n] = x[n];
    all.push(Array.from((await s.run(feeds)).last_hidden_state.data));
  }
  console.log(JSON.stringify(all));
})();
"""


def quantise(source, path):
    m = onnx.load(source)
    weights, nodes, rows, count = {t.name: t for t in m.graph.initializer}, [], {}, 0
    for n in m.graph.node:
        t = weights.get(n.input[1]) if n.op_type == "MatMul" else None
        if t is None or len(t.dims) != 2:
            nodes.append(n)
            continue
        x, w, y = n.input[0], NH.to_array(t), n.output[0]
        scale = np.float32(np.abs(w).max() / 127)
        for name, value in ("q", np.round(w / scale).astype(np.int8)), ("s", scale), ("z", np.int8(0)):
            m.graph.initializer.append(NH.from_array(np.asarray(value), f"{y}_{name}"))
        if x not in rows:
            rows[x] = [f"{x}_{part}" for part in ("u8", "scale", "zero")]
            nodes.append(H.make_node("DynamicQuantizeLinear", [x], rows[x]))
        u8, s, z = rows[x]
        nodes += [H.make_node("MatMulInteger", [u8, f"{y}_q", z, f"{y}_z"], [f"{y}_i32"]),
                  H.make_node("Cast", [f"{y}_i32"], [f"{y}_f32"], to=TP.FLOAT), H.make_node("Mul", [s, f"{y}_s"], [f"{y}_both"]),
                  H.make_node("Mul", [f"{y}_f32", f"{y}_both"], [y])]
        m.graph.initializer.remove(t)
        count += 1
    del m.graph.node[:]
    m.graph.node.extend(nodes)
    onnx.save(m, path)
    return f"{m.producer_name} {m.producer_version}, opset {m.opset_import[0].version}; {count} products quantised here"


def embed(sinter, folder, level):
    texts = "".join(t + "\n" for t in TEXTS)  # one at a time: the scale of a tensor is that of all texts in it
    out = subprocess.run([sinter, "embed", folder, "-f", "-", "--batch", "1", "--level", level, "--json"], input=texts,
                         capture_output=True, text=True)
    if out.returncode:
        sys.exit(out.stderr)
    return np.array([json.loads(line)["embedding"] for line in out.stdout.splitlines()])


def ids_of(sinter, folder, text):
    out = subprocess.run([sinter, "tokenizer", "encode", folder, "--bos", "--eos"], input=text, capture_output=True, text=True, check=True)
    return [int(x) for x in out.stdout.split()]


def unit(hidden):
    return hidden.mean(0) / np.linalg.norm(hidden.mean(0))


def exactly(file, given, noise=0, seed=0):
    model, rows = onnx.load(file), []
    for ids in json.loads(given):
        x = {"input_ids": np.array([ids]), "attention_mask": np.ones((1, len(ids)), int), "token_type_ids": np.zeros((1, len(ids)), int)}
        rows.append(unit(exact.run(model, x, noise, seed)[0]))
    return np.array(rows)


def show(what, cosines):
    print(f"{what:34}", " ".join(f"{c:.6f}" for c in cosines))


def peer(file, given, level):
    done = subprocess.run(["node", "-e", NODE, file, level], input=given, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return np.array([unit(np.array(h).reshape(len(i), -1)) for h, i in zip(json.loads(done.stdout), json.loads(given))])


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: quantised.py SINTER FOLDER")
    sinter, source = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.onnx"))
        file, plain = folder + "/onnx/model.onnx", None
        if os.path.exists(source + "/onnx/model_quantized.onnx"):
            shutil.copy(source + "/onnx/model_quantized.onnx", file)
            print("model_quantized.onnx as it is")
        else:
            plain = embed(sinter, source, "4")
            print(quantise(source + "/onnx/model.onnx", file))
        given = json.dumps([ids_of(sinter, source, t) for t in TEXTS])
        wanted = exactly(file, given)
        print("cosines to the exact result, one for each text:")
        spread = [(exactly(file, given, 1e-7, seed) * wanted).sum(1) for seed in range(SEEDS)]
        for cosines in spread:
            show("exact, quantised values 1e-7 off", cosines)
        for level in "disabled", "all":
            show(f"ONNX Runtime, optimisations: {level}", (peer(file, given, level) * wanted).sum(1))
        near = True
        for level in "0", "4":
            found = embed(sinter, folder, level)
            show(f"level {level}", (found * wanted).sum(1))
            # no further from the exact result than rounding explains; NaN is not
            near &= bool((np.min(spread, axis=0) - (found * wanted).sum(1) <= 0.002).all())
            if plain is not None:
                print(f"  to the f32 file: {(found * plain).sum(1).min():.4f}")
    return 0 if near else 1


if __name__ == "__main__":
    sys.exit(main())
