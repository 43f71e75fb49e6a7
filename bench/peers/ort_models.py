# ort_models.py REQUEST FILE: writes the ONNX graph of a request of bench/peers.h to FILE, and its
# inputs to FILE.json ({"skip": true} where there is none). Attention is ONNX Runtime's own fused
# operator; whole models are exported from torch_models.py.
import json
import sys

import numpy as np
import onnx
from onnx import TensorProto as TP, helper as H, numpy_helper as NH

request, path = json.loads(sys.argv[1]), sys.argv[2]
rng = np.random.default_rng(0)


class Graph:
    def __init__(self):
        self.nodes, self.inits, self.inputs = [], [], {}

    def input(self, name, *dims):
        self.inputs[name] = list(dims)
        return name

    def weight(self, name, *dims):
        self.inits.append(NH.from_array((rng.random(dims) - 0.5).astype(np.float32), name))
        return name

    def op(self, kind, *args, own=False, **attrs):
        out = f"t{len(self.nodes)}"
        self.nodes.append(H.make_node(kind, list(args), [out],
                                      domain="com.microsoft" if own else "", **attrs))
        return out

    def linear(self, x, n, k, name="w"):
        return self.op("Add", self.op("MatMul", x, self.weight(name, k, n)),
                       self.weight(name + "b", n))

    def save(self, out, dims):
        self.nodes.append(H.make_node("Identity", [out], ["y"]))
        if self.nodes[-2].output[0] == out:  # no copy at the end
            self.nodes.pop()
            self.nodes[-1].output[0] = "y"
        graph = H.make_graph(
            self.nodes, "g",
            [H.make_tensor_value_info(n, TP.FLOAT, d) for n, d in self.inputs.items()],
            [H.make_tensor_value_info("y", TP.FLOAT, list(dims))], self.inits)
        model = H.make_model(graph, opset_imports=[H.make_opsetid("", 17),
                                                   H.make_opsetid("com.microsoft", 1)])
        model.ir_version = 8
        onnx.save(model, path)
        return {n: {"type": "float32", "dims": d} for n, d in self.inputs.items()}


def to_int8(file):
    """Products with constant matrices become products of 8-bit integers: rows are quantised at run time, columns of
    weights have a scale each. These are the operators that ONNX Runtime's own quantize_dynamic writes."""
    m = onnx.load(file)
    g = m.graph
    tensors, users, nodes, rows = {t.name: t for t in g.initializer}, {}, [], {}
    for n in g.node:
        for i in n.input:
            users[i] = users.get(i, 0) + 1
    for n in g.node:
        t = tensors.get(n.input[1]) if n.op_type == "MatMul" else None
        if t is None or len(t.dims) != 2:
            nodes.append(n)
            continue
        x, w, y = n.input[0], NH.to_array(t), n.output[0]
        scale = np.maximum(np.abs(w).max(0), 1e-30) / 127
        for name, value in (("q", np.round(w / scale).astype(np.int8)), ("s", scale.astype(np.float32)),
                            ("z", np.zeros(w.shape[1], np.int8))):
            g.initializer.append(NH.from_array(value, f"{y}_w{name}"))
        if x not in rows:
            rows[x] = [f"{x}_{part}" for part in ("int8", "scale", "zero")]
            nodes.append(H.make_node("DynamicQuantizeLinear", [x], rows[x]))
        q, s, z = rows[x]
        nodes += [H.make_node("MatMulInteger", [q, f"{y}_wq", z, f"{y}_wz"], [f"{y}_i32"]),
                  H.make_node("Cast", [f"{y}_i32"], [f"{y}_f32"], to=TP.FLOAT),
                  H.make_node("Mul", [s, f"{y}_ws"], [f"{y}_both"]),
                  H.make_node("Mul", [f"{y}_f32", f"{y}_both"], [y])]
        users[t.name] -= 1
        if not users[t.name]:
            g.initializer.remove(t)
    del g.node[:]
    g.node.extend(nodes)
    onnx.save(m, file)


def gemm(r):
    if r["copies"] > 1:
        return None
    g = Graph()
    x = g.input("x", r["m"], r["k"])
    return g.save(g.op("MatMul", x, g.weight("w", r["k"], r["n"])), (r["m"], r["n"]))


def kernel(r):
    g, R, C, N, name = Graph(), r["rows"], r["width"], r["other"], r["name"]
    x = g.input("x", R, C)
    dims = (R, C)
    if name == "layer_norm":
        y = g.op("LayerNormalization", x, g.weight("g", C), g.weight("b", C), axis=-1)
    elif name == "rms_norm":
        y = g.op("SimplifiedLayerNormalization", x, g.weight("g", C), axis=-1, epsilon=1e-5)
    elif name == "softmax":
        y = g.op("Softmax", x, axis=-1)
    elif name == "gelu":
        y = g.op("FastGelu", x, own=True)
    elif name == "gelu_erf":
        y = g.op("Gelu", x, own=True)
    elif name in ("linear", "linear_bias_gelu", "linear_down", "linear_residual"):
        dims = (R, N)
        y = g.linear(x, N, C)
        if name == "linear_bias_gelu":
            y = g.op("FastGelu", y, own=True)
        if name == "linear_residual":
            y = g.op("Add", y, g.input("residual", R, N))
    elif name == "qkv":
        dims = (R, 3 * C)
        y = g.linear(x, 3 * C, C)
    elif name == "swiglu":
        a = g.op("MatMul", x, g.weight("gate", C, N))
        a = g.op("Mul", a, g.op("Sigmoid", a))
        a = g.op("Mul", a, g.op("MatMul", x, g.weight("up", C, N)))
        y = g.op("MatMul", a, g.weight("down", N, C))
    else:
        return None
    return g.save(y, dims)


def plain_attention(g, B, Hn, T, D, causal):
    """One operator after the other, as level 0 computes it."""
    q, k, v = (g.input(n, B, Hn, T, D) for n in "qkv")
    g.inits.append(NH.from_array(np.float32(D ** -0.5), "scale"))
    a = g.op("Mul", g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2])), "scale")
    if causal:
        g.inits.append(NH.from_array(np.triu(np.full((T, T), -np.inf, np.float32), 1), "mask"))
        a = g.op("Add", a, "mask")
    return g.save(g.op("MatMul", g.op("Softmax", a, axis=-1), v), (B, Hn, T, D))


def attention(r):
    B, Hn, T, D = (r[k] for k in ("b", "h", "t", "d"))
    if r["mask"] not in ("full", "causal") or r["hk"] != Hn or r.get("backward"):
        return None
    g = Graph()
    if r.get("unfused"):
        return plain_attention(g, B, Hn, T, D, r["mask"] == "causal")
    q, k, v = (g.input(n, B, T, Hn * D) for n in "qkv")
    y = g.op("MultiHeadAttention", q, k, v, own=True, num_heads=Hn,
             unidirectional=int(r["mask"] == "causal"))
    return g.save(y, (B, T, Hn * D))


def model(r):
    import torch
    from torch_models import MODELS, inputs
    if r["name"] not in MODELS or r["decode"]:
        return None

    class Forward(torch.nn.Module):  # no other arguments than ids
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, *ids):
            return self.model(*ids)

    m = MODELS[r["name"]]().eval()
    given = inputs(m, r["batch"], r["tokens"])
    names = ["source", "tokens"][-len(given):]
    with torch.no_grad():
        torch.onnx.export(Forward(m).eval(), given, path, input_names=names, output_names=["y"], opset_version=16,
                          do_constant_folding=True)
    return {n: {"type": "int64", "dims": list(x.shape), "limit": m.vocab}
            for n, x in zip(names, given)}


works = {"gemm": gemm, "kernel": kernel, "attention": attention, "model": model}
known = request["work"] in works and request.get("compute") != "bf16"  # its CPU kernels have no bf16
made = works[request["work"]](request) if known else None
if made and request.get("compute") == "int8":
    to_int8(path)
with open(path + ".json", "w") as f:
    json.dump({"inputs": made} if made else {"skip": True}, f)
