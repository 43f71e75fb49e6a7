#!/usr/bin/python3
"""web_peers.py: a Llama as WebAssembly in Node, beside ONNX Runtime Web and a program for x86-64-v2.

usage: bench/web_peers.py [--sinter FILE] [--modules DIR] [--rounds N] [--steps N] [--threads N] MODEL

MODEL is a llama2.c file, such as stories15M.bin, or a folder in f32, such as `bench/make_llama.py DIR --size 15M
--dtype F32` writes. The same weights go into ONNX files with caches, in ONNX Runtime's fused operators
(GroupQueryAttention, SkipSimplifiedLayerNormalization): in f32, in int8 (products as of quantize_dynamic), in int4
(MatMulNBits), beside modules of the same kind of weights. Each round runs every side in a new process, one after the
other; greedy, from the same 8 tokens; then a prompt of 64 tokens is read again and again. Figures are medians. All
sides work on one thread; --threads adds, in f32, a module with workers on N threads, the same module on one thread,
and ONNX Runtime Web on N threads. Needs node, npm and python3-onnx; --modules keeps the package onnxruntime-web
(default: it is downloaded into a temporary folder). Exits with 1 if tokens of sides in f32 differ or a requirement is
missed. In f32 each token reads all weights, so memory bounds every side: how many times ONNX Runtime's rate a module
has is printed beside what the program's has."""
import argparse
import json
import os
import re
import statistics
import struct
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto as TP, helper as H, numpy_helper as NH

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
PACKAGE = "onnxruntime-web@1.30.0"
PROMPT = 64  # tokens of the prompt that is read repeatedly
IDS = [1, 9038, 2501, 263, 931, 29892, 727, 471]  # "Once upon a time, there was" for the tokenizer of Llama 2
RELAXED = "--experimental-wasm-relaxed-simd"  # Node 20; later ones have it without


def llama2c(path):
    """Sizes and weights of a llama2.c file; matrices are [inputs, outputs]."""
    with open(path, "rb") as f:
        d, mlp, layers, heads, groups, vocab, context = struct.unpack("7i", f.read(28))
        data = np.fromfile(f, np.float32)
    at, shared, vocab, kv = 0, vocab > 0, abs(vocab), d // heads * groups

    def take(*dims):
        nonlocal at
        at += int(np.prod(dims))
        return data[at - int(np.prod(dims)):at].reshape(dims)

    w = {"embed": take(vocab, d), "norm1": take(layers, d), "q": take(layers, d, d), "k": take(layers, kv, d),
         "v": take(layers, kv, d), "o": take(layers, d, d), "norm2": take(layers, d), "gate": take(layers, mlp, d),
         "down": take(layers, d, mlp), "up": take(layers, mlp, d), "norm": take(d)}
    take(context, d // heads)  # tables of angles
    w["head"] = w["embed"] if shared else take(vocab, d)
    return {"layers": layers, "heads": heads, "groups": groups, "head": d // heads, "context": context, "interleaved": 1,
            "eps": 1e-5, "theta": 10000.0}, w


def folder(path):
    """The same of a folder with config.json and model.safetensors."""
    with open(os.path.join(path, "config.json")) as f:
        c = json.load(f)
    with open(os.path.join(path, "model.safetensors"), "rb") as f:
        size, = struct.unpack("<Q", f.read(8))
        table, base = json.loads(f.read(size)), 8 + size
    def tensor(name):
        t = table[name]
        if t["dtype"] != "F32":
            sys.exit(f"{path}: {name} is {t['dtype']}, not F32")
        return np.fromfile(os.path.join(path, "model.safetensors"), np.float32, int(np.prod(t["shape"])),
                           offset=base + t["data_offsets"][0]).reshape(t["shape"])
    layers, heads = c["num_hidden_layers"], c["num_attention_heads"]
    names = {"norm1": "input_layernorm", "q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj",
             "o": "self_attn.o_proj", "norm2": "post_attention_layernorm", "gate": "mlp.gate_proj", "up": "mlp.up_proj",
             "down": "mlp.down_proj"}
    w = {key: [tensor(f"model.layers.{i}.{name}.weight") for i in range(layers)] for key, name in names.items()}
    w.update(embed=tensor("model.embed_tokens.weight"), norm=tensor("model.norm.weight"))
    w["head"] = tensor("lm_head.weight") if "lm_head.weight" in table else w["embed"]
    return {"layers": layers, "heads": heads, "groups": c.get("num_key_value_heads", heads),
            "head": c["hidden_size"] // heads, "context": c["max_position_embeddings"], "interleaved": 0,
            "eps": c["rms_norm_eps"], "theta": c.get("rope_theta", 10000.0)}, w


def write_onnx(sizes, w, path, bits=32):
    """The model with caches: tokens [1, T], last [1, 1] (the position of the last one), length [1], k0, v0, … in; the logits
    of the last token and k0_next, v0_next, … out. With 8 bits products are those of onnxruntime's quantize_dynamic, with a
    scale for each column; with 4 those of its MatMulNBitsQuantizer: blocks of 32, whose products may be of bytes."""
    nodes, tensors, rounded, groups, head = [], [], {}, sizes["groups"], sizes["head"]
    ins = [H.make_tensor_value_info("tokens", TP.INT64, [1, "T"]), H.make_tensor_value_info("last", TP.INT32, [1, 1]),
           H.make_tensor_value_info("length", TP.INT32, [1])]
    outs = [H.make_tensor_value_info("logits", TP.FLOAT, [1, 1, w["head"].shape[0]])]

    def constant(name, value):
        tensors.append(NH.from_array(np.ascontiguousarray(value), name))
        return name

    def op(kind, *args, out=None, domain="", **attrs):
        out = out or [f"t{len(nodes)}"]
        nodes.append(H.make_node(kind, list(args), out, domain=domain, **attrs))
        return out[0]

    def product(x, name, matrix, **out):
        """x times matrix [columns, K], transposed."""
        columns, k = matrix.shape
        if bits == 32:
            return op("MatMul", x, constant(name, matrix.T), **out)
        if bits == 4:
            blocks = matrix.reshape(columns, -1, 32)
            scale = np.take_along_axis(blocks, abs(blocks).argmax(-1)[..., None], -1) / -8
            q = np.clip(np.rint(blocks / np.where(scale == 0, 1, scale)) + 8, 0, 15).astype(np.uint8)
            packed = q[..., ::2] | q[..., 1::2] << 4
            return op("MatMulNBits", x, constant(name, packed), constant(name + "_scale", scale.reshape(-1)), K=k, N=columns,
                      bits=4, block_size=32, accuracy_level=4, domain="com.microsoft", **out)
        scale = abs(matrix).max(1, keepdims=True) / 127
        if x not in rounded:
            rounded[x] = [x + "_q", x + "_scale", x + "_zero"]
            op("DynamicQuantizeLinear", x, out=rounded[x])
        xq, x_scale, zero = rounded[x]
        y = op("MatMulInteger", xq, constant(name, np.rint(matrix / scale).astype(np.int8).T), zero)
        factor = op("Mul", x_scale, constant(name + "_scale", scale.reshape(-1)))
        return op("Mul", op("Cast", y, to=TP.FLOAT), factor, **out)

    def add_norm(x, y, name, scale):
        """The norm of x + y, and x + y."""
        out = [name + "_y", "", "", name + "_sum"]
        op("SkipSimplifiedLayerNormalization", x, y, constant(name, scale), domain="com.microsoft", out=out,
           epsilon=sizes["eps"])
        return out[0], out[3]

    angles = np.outer(np.arange(sizes["context"]), sizes["theta"] ** (-np.arange(head // 2) * 2 / head))
    cos, sin = (constant(n, f(angles).astype(np.float32)) for n, f in (("cos", np.cos), ("sin", np.sin)))
    x = op("Gather", constant("embed", w["embed"]), "tokens")
    y = op("SimplifiedLayerNormalization", x, constant("norm1_0", w["norm1"][0]), axis=-1, epsilon=sizes["eps"])
    for i in range(sizes["layers"]):
        q, k, v = (product(y, f"{n}{i}_w", w[n][i]) for n in "qkv")
        for n in "kv":
            ins.append(H.make_tensor_value_info(f"{n}{i}", TP.FLOAT, [1, groups, "P", head]))
            outs.append(H.make_tensor_value_info(f"{n}{i}_next", TP.FLOAT, [1, groups, "S", head]))
        a = op("GroupQueryAttention", q, k, v, f"k{i}", f"v{i}", "last", "length", cos, sin, domain="com.microsoft",
               out=[f"a{i}", f"k{i}_next", f"v{i}_next"], num_heads=sizes["heads"], kv_num_heads=groups, do_rotary=1,
               rotary_interleaved=sizes["interleaved"])
        y, x = add_norm(x, product(a, f"o{i}_w", w["o"][i]), f"norm2_{i}", w["norm2"][i])
        gate = product(y, f"gate{i}_w", w["gate"][i])
        a = op("Mul", op("Mul", gate, op("Sigmoid", gate)), product(y, f"up{i}_w", w["up"][i]))
        later = w["norm1"][i + 1] if i + 1 < sizes["layers"] else w["norm"]
        y, x = add_norm(x, product(a, f"down{i}_w", w["down"][i]), f"norm1_{i + 1}", later)
    at = op("Sub", op("Shape", "tokens", start=1, end=2), constant("one", np.int64([1])))
    product(op("Gather", y, at, axis=1), "head_w", w["head"], out=["logits"])
    model = H.make_model(H.make_graph(nodes, "llama", ins, outs, tensors),
                         opset_imports=[H.make_opsetid("", 17), H.make_opsetid("com.microsoft", 1)])
    model.ir_version = 8
    onnx.save(model, path)


def vectors(path):
    """How many instructions on vectors of 128 bits a WebAssembly file has, as LLVM's disassembler reads it."""
    with subprocess.Popen(["llvm-objdump-19", "-d", "--no-show-raw-insn", path], stdout=subprocess.PIPE, text=True) as p:
        return sum(1 for line in p.stdout if re.search(r"\b(v128|[if]\d+x\d+)\.", line))


def run(*command):
    r = subprocess.run(command, capture_output=True, text=True)
    if r.returncode:
        sys.exit(f"{' '.join(command)}: {r.stderr}")
    return r


class Side:
    """One way to run the model: a command, and what each of its processes measured."""

    def __init__(self, name, files, *command):
        self.name, self.command, self.rounds = name, command, []
        self.code, self.binary = sum(os.path.getsize(f) for f in files) / 1000, os.path.getsize(files[-1])

    def measure(self):
        self.rounds.append(json.loads(run(*self.command).stdout))

    def median(self, what):
        return statistics.median(r[what] for r in self.rounds)

    def row(self):
        times = " | ".join(f"{self.median(t):.0f}" if t in self.rounds[0] else ""
                           for t in ("load", "first", "rate", "cpu", "prompt"))
        return f"| {self.name} | {self.code:.0f} | {times} |"


class Program(Side):
    def measure(self):
        r = run(*self.command)
        self.rounds.append({"rate": float(re.search(r"decode .* ([0-9.]+) tokens/s", r.stderr)[1]),
                            "ids": [int(i) for i in r.stdout.split()][len(IDS):]})


def sides(args, folder_):
    """Compiles and writes what the sides run."""
    sizes, weights = (folder if os.path.isdir(args.model) else llama2c)(args.model)
    modules = args.modules or folder_
    dist = os.path.join(modules, "node_modules/onnxruntime-web/dist")
    if not os.path.isdir(dist):
        run("npm", "install", "--silent", "--ignore-scripts", "--prefix", modules, PACKAGE)
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers/web_peers.mjs")

    def job(name, **what):
        path = os.path.join(folder_, name + ".json")
        with open(path, "w") as f:
            json.dump({"ids": IDS, "steps": args.steps, "prompt": PROMPT, **what}, f)
        return path

    def compiled(name, target, *options):
        out = os.path.join(folder_, name)
        run(args.sinter, "compile", args.model, "--name", "story", "-o", out, "--target", target, *options)
        return os.path.join(out, "story")

    def web(name, target, given=(), options=(), **what):
        out = compiled(name, target, *given)
        with open(os.path.join(folder_, name, "package.json"), "w") as f:
            f.write('{"type": "module"}')
        return Side(name, [out + ".wasm", out + ".js"], "node", *options, script, job(name, kind="sinter", script=out + ".js", **what))

    def ort(bits, threads=1):
        model = os.path.join(folder_, f"model{bits}.onnx")
        write_onnx(sizes, weights, model, bits)
        kind = "f32" if bits == 32 else f"int{bits}"
        where = f"{kind}, {threads} threads" if threads > 1 else kind
        return Side(f"ONNX Runtime Web, {where}", files, "node", script, job(f"ort{bits}_{threads}", kind="ort",
                    modules=modules, model=model, threads=threads, layers=sizes["layers"], heads=sizes["groups"], head=sizes["head"]))

    native = compiled("native", "x86-64-v2", "--threads", "none", "--exe")
    files = [os.path.join(dist, f) for f in ("ort.node.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")]
    print(f"{os.path.basename(files[2])}: {vectors(files[2])} vector instructions", file=sys.stderr)
    exact = [web("wasm32", "wasm32"), web("wasm32,+relaxed-simd", "wasm32,+relaxed-simd", options=[RELAXED]), ort(32),
             Program("x86-64-v2, one thread", [native], native, "--prompt-ids", " ".join(map(str, IDS)), "-n",
                     str(args.steps), "--temperature", "0", "--print-ids", "--ignore-eos", "--stats")]
    narrow = [web("wasm32, weights in bf16", "wasm32", ["--weights", "bf16"]),
              web("wasm32, int8", "wasm32", ["--weights", "int8", "--compute", "int8"]), ort(8),
              web("wasm32, int4", "wasm32", ["--weights", "int4"]), ort(4)]
    if args.threads > 1:
        exact += [web(f"wasm32 with workers, {n} thread{'s'[:n > 1]}", "wasm32", ["--threads", "workers"], threads=n)
                  for n in (1, args.threads)] + [ort(32, args.threads)]
    return exact, narrow


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("usage:")[0])
    parser.add_argument("--sinter", default=os.path.join(ROOT, "build/release/tools/sinter"))
    parser.add_argument("--modules")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("model")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        exact, narrow = sides(args, temporary)
        for _ in range(args.rounds):
            for side in exact + narrow:
                side.measure()
    print(f"| | code, KB | load, ms | first token, ms | tokens/s | tokens/s of CPU time | prompt of {PROMPT}, ms |")
    print("|---|---|---|---|---|---|---|")
    for side in exact + narrow:
        print(side.row())
    (plain, _, ort, native, *several), (_, int8, ort8, int4, ort4) = exact, narrow
    met = all(r["ids"] == plain.rounds[0]["ids"] for side in exact for r in side.rounds)
    print("tokens of the sides in f32: " + ("equal" if met else "NOT equal"))
    for side in narrow:
        same = [a == b for a, b in zip(side.rounds[0]["ids"], plain.rounds[0]["ids"])] + [False]
        print(f"{side.name}: the first {same.index(False)} tokens are those of f32")
    pairs = [(several[1], peer) for peer in (several[0], plain, several[2])] if several else []
    for side, peer in [(plain, ort), (native, ort), (int8, ort8), (int4, ort4)] + pairs:
        rates = side.median("rate") / peer.median("rate")
        prompts = f", of a prompt {peer.median('prompt') / side.median('prompt'):.2f}" if side is not native else ""
        print(f"{side.name}: {rates:.2f} times the rate of {peer.name}{prompts}")
    if any(r["code"] != side.binary for side in (ort, ort8, ort4) for r in side.rounds):
        sys.exit("ONNX Runtime Web compiled another file than the one whose instructions were counted")
    for what, value, sign, limit in [("code", plain.code, "<=", 300), ("first token", plain.median("first"), "<=", 50),
                                     ("rate of the program", plain.median("rate") / native.median("rate"), ">=", 0.3),
                                     ("rate of ONNX Runtime Web, int8", int8.median("rate") / ort8.median("rate"), ">=", 3)]:
        good = value <= limit if sign == "<=" else value >= limit
        met &= good
        print(f"{what}: {value:.2f}, asked {sign} {limit}" + ("" if good else ": MISSED"))
    return not met


if __name__ == "__main__":
    sys.exit(main())
