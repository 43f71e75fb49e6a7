#!/usr/bin/env python3
"""close_runs.py A B [TOLERANCE]: whether two folders of `sinter train` agree within TOLERANCE (1e-6): the losses of every
step and the norm of the last gradient relative to each value, the weights relative to the norm of all of them."""
import array, json, struct, sys

CODES = {"F32": "f", "I64": "q", "I32": "i"}


def tensors(path):
    with open(path, "rb") as f:
        data = f.read()
    size = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8 : 8 + size])
    meta = head.pop("__metadata__", {})
    out = {}
    for name, t in head.items():
        begin, end = (8 + size + x for x in t["data_offsets"])
        out[name] = array.array(CODES[t["dtype"]], data[begin:end])
    return meta, out


def distance(x, y):
    """Relative; infinite if a value is NaN, which JSON writes as null."""
    away = float("inf") if x is None or y is None else abs(x - y) / abs(x)
    return away if away == away else float("inf")


def compare(a, b):
    lines = [[json.loads(x) for x in open(d + "/metrics.jsonl")] for d in (a, b)]
    assert [x["step"] for x in lines[0]] == [x["step"] for x in lines[1]], "other steps"
    found = {}
    for key in ("loss", "validation_loss"):
        pairs = [(x[key], y[key]) for x, y in zip(*lines) if key in x]
        if pairs:
            found[key] = max(distance(x, y) for x, y in pairs)
    x, y = (float.fromhex(tensors(d + "/checkpoint.safetensors")[0]["sinter.norm"]) for d in (a, b))
    found["norm"] = abs(x - y) / abs(x)
    x, y = (tensors(d + "/model.safetensors")[1] for d in (a, b))
    assert x.keys() == y.keys(), "other tensors"
    square = sum(p * p for name in x for p in x[name])
    found["weights"] = (sum((p - q) ** 2 for name in x for p, q in zip(x[name], y[name])) / square) ** 0.5
    return found


tolerance = float(sys.argv[3]) if len(sys.argv) > 3 else 1e-6
result = compare(sys.argv[1], sys.argv[2])
print(", ".join(f"{key} {value:.2g}" for key, value in result.items()))
sys.exit(not all(value <= tolerance for value in result.values()))
