# exact.py: run(model, feeds): the first output of a graph of an encoder in f64, operator by operator with NumPy, and with
# integers where the file says integers. noise: each value that is quantised changes by this part of itself, as the rounding
# of f32 would change it.
import math

import numpy as np
from onnx import helper as H, numpy_helper as NH

erf = np.frompyfunc(math.erf, 1, 1)


def widen(x):
    return x.astype(np.float64) if x.dtype == np.float32 else x


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def slices(x, begin, end, axes):
    part = [slice(None)] * x.ndim
    for b, e, a in zip(begin, end, axes):
        part[a] = slice(int(b), int(min(e, 2 ** 31)))
    return x[tuple(part)]


def quantise(x):
    low, high = min(x.min(), 0), max(x.max(), 0)
    scale = (high - low) / 255
    zero = np.clip(np.rint(-low / scale), 0, 255)
    return np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.uint8), scale, np.uint8(zero)


def product(x, y, x_zero, y_zero):
    return (x.astype(np.float64) - x_zero) @ (y.astype(np.float64) - y_zero)  # exact in f64


TYPES = {1: np.float64, 6: np.int32, 7: np.int64, 9: np.bool_}
OPERATORS = {  # of the operands and the node's attributes
    "Add": lambda x, a: x[0] + x[1],
    "Sub": lambda x, a: x[0] - x[1],
    "Mul": lambda x, a: x[0] * x[1],
    "Div": lambda x, a: x[0] / x[1] if x[0].dtype.kind == "f" else x[0] // x[1],
    "Pow": lambda x, a: x[0] ** x[1],
    "Sqrt": lambda x, a: np.sqrt(x[0]),
    "Erf": lambda x, a: erf(x[0]).astype(np.float64),
    "Equal": lambda x, a: x[0] == x[1],
    "Where": lambda x, a: np.where(*x),
    "MatMul": lambda x, a: x[0] @ x[1],
    "MatMulInteger": lambda x, a: product(*x),
    "DynamicQuantizeLinear": lambda x, a: quantise(x[0]),
    "Softmax": lambda x, a: softmax(x[0]),
    "ReduceMean": lambda x, a: x[0].mean(tuple(a["axes"]), keepdims=bool(a.get("keepdims", 1))),
    "Cast": lambda x, a: x[0].astype(TYPES[a["to"]]),
    "Constant": lambda x, a: widen(NH.to_array(a["value"])),
    "ConstantOfShape": lambda x, a: np.full(tuple(x[0]), widen(NH.to_array(a["value"]))[0] if "value" in a else 0.0),
    "Shape": lambda x, a: np.array(x[0].shape),
    "Gather": lambda x, a: np.take(x[0], x[1], axis=a.get("axis", 0)),
    "Concat": lambda x, a: np.concatenate(x, axis=a["axis"]),
    "Expand": lambda x, a: np.broadcast_to(x[0], np.broadcast_shapes(x[0].shape, tuple(x[1]))),
    "Unsqueeze": lambda x, a: np.expand_dims(x[0], tuple(a["axes"] if "axes" in a else x[1])),
    "Reshape": lambda x, a: x[0].reshape([x[0].shape[i] if n == 0 else int(n) for i, n in enumerate(x[1])]),
    "Transpose": lambda x, a: x[0].transpose(a["perm"]),
    "Slice": lambda x, a: slices(*x[:3], x[3] if len(x) > 3 else range(len(x[1]))),
}


def run(model, feeds, noise=0, seed=0):
    values = {t.name: widen(NH.to_array(t)) for t in model.graph.initializer} | feeds
    random = np.random.default_rng(seed)
    for n in model.graph.node:
        x = [values[name] for name in n.input]
        if noise and n.op_type == "DynamicQuantizeLinear":
            x = [x[0] * (1 + noise * random.standard_normal(x[0].shape))]
        y = OPERATORS[n.op_type](x, {a.name: H.get_attribute_value(a) for a in n.attribute})
        values.update(zip(n.output, y if isinstance(y, tuple) else (y,)))
    return values[model.graph.output[0].name]
