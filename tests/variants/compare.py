#!/usr/bin/env python3
"""Compares the variants of this folder and examples with their formulas (references.py, examples.py, PyTorch in f64): outputs and the gradients of
all inputs and parameters, at random sizes, levels, threads and targets.

usage: compare.py SINTER [SEED [ROUNDS [NAME...]]]     SEED 0: a new one, which is printed
The last line counts; the exit code is 1 if a comparison failed."""
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.join(os.path.dirname(os.path.dirname(HERE)), "examples", "variants")
sys.path.insert(0, HERE)
import examples
from references import REFERENCES

torch.set_num_threads(1)


def call(sinter, name, ref, B, T, folder, options=()):
    """Runs the entry, returns its arrays, or its message as text."""
    if ref.sizes:
        options = [*options, "--sizes", ref.sizes(B, T)]
    file = f"{HERE}/{name}.c".replace(HERE + "/examples", EXAMPLES)
    loss = "loss" if ref.entry == "loss" else ref.output
    command = [sinter, "call", file, "--entry", ref.entry, "-i", folder + "/in.npz", "--gradient", "all",
               "--loss", loss, "-q", "-o", folder + "/out.npz", *options]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        return f"exit code {run.returncode}: {run.stderr.strip()[-800:]}"
    return dict(np.load(folder + "/out.npz"))


def draw(ref, shapes, B, T, rng):
    arrays = {n: f(B, T, rng).astype("i4") for n, f in ref.integers.items()}
    for n, shape in shapes.items():
        value = ref.values.get(n, shape[-1] ** -0.5 if len(shape) > 1 else 0.5)
        if n in ("x", "g", "r"):
            value = 1.0
        arrays[n] = (value if isinstance(value, np.ndarray) else value * rng.standard_normal(shape)).astype("f4")
    return arrays


def rms(x):
    return np.sqrt((x.astype("f8") ** 2).mean())


def expected(ref, arrays, dtype="f8"):
    torch.set_default_dtype(torch.float32 if dtype == "f4" else torch.float64)
    p = {n: torch.tensor(a.astype("i8" if a.dtype.kind == "i" else dtype)) for n, a in arrays.items()}
    floats = [t for t in p.values() if t.is_floating_point()]
    for t in floats:
        t.requires_grad_()
    y = ref.forward(p, p["x" if "x" in p else "tokens"])
    (y * p.get("g", p.get("r", 1))).sum().backward()
    gradients = {n: t.grad.numpy() for n, t in p.items() if t.is_floating_point() and t.grad is not None}
    return y.detach().numpy(), gradients


def largest_error(ref, arrays, got):
    """The largest errors over their bounds, forward and gradients, and where. NaN counts as infinite."""
    y, gradients = expected(ref, arrays)
    single = expected(ref, arrays, "f4")[1]
    forward, gradient = ref.tolerance
    size = max(rms(g) for g in gradients.values())
    worst = [(np.abs(got[ref.output] - y).max() / np.abs(y).max() / forward, ref.output)]
    for n, g in gradients.items():
        if n in ("g", "r"):
            continue
        if "gradient." + n not in got:
            return np.inf, "gradient." + n + ", which is missing"
        # a gradient far below the others is rounding of theirs; f32 itself may do no better
        bound = max(gradient * rms(g), 1e-6 * size, 4 * rms(single[n] - g))
        worst.append((rms(got["gradient." + n] - g) / bound, "gradient." + n))
    return max((np.inf, n) if np.isnan(e) else (e, n) for e, n in worst)


def compare(sinter, name, rng):
    ref = REFERENCES[name]
    B, T = int(rng.integers(1, 4)), int(rng.choice([1, 2, 37, 63, 64, 65, rng.integers(3, 200)]))
    T = -(-T // ref.multiple) * ref.multiple
    options = ["--level", str(rng.integers(0, 5)), "-t", str(rng.integers(1, 4)), "--target",
               str(rng.choice(["native", "native", "x86-64-v3", "x86-64-v2"]))]
    with tempfile.TemporaryDirectory() as folder:
        width = 64 if name.startswith("recurrent") else 128
        given = {n: f(B, T, rng).astype("i4") for n, f in ref.integers.items()}
        if ref.entry == "loss":
            given["x"] = np.zeros((B, T, width), "f4")
        np.savez(folder + "/in.npz", **given)
        first = call(sinter, name, ref, B, T, folder)  # its gradients have the shapes of all parameters
        if isinstance(first, str):
            return first
        shapes = {n[9:]: a.shape for n, a in first.items() if n.startswith("gradient.")}
        arrays = draw(ref, shapes, B, T, rng)
        np.savez(folder + "/in.npz", **arrays)
        got = call(sinter, name, ref, B, T, folder, options)
    error, where = (np.inf, got) if isinstance(got, str) else largest_error(ref, arrays, got)
    line = f"{name} B={B} T={T} {' '.join(options)}: {error:.1e} of the bound, {where}"
    print(line, "ok" if error <= 1 else "WRONG", flush=True)
    return None if error <= 1 else line


def main():
    sinter, *rest = sys.argv[1:]
    seed = int(rest[0]) if rest else 0
    rounds = int(rest[1]) if len(rest) > 1 else 1
    seed = seed or int.from_bytes(os.urandom(3), "little") + 1
    print("seed", seed)
    rng = np.random.default_rng(seed)
    names = rest[2:] or sorted(REFERENCES)
    failed = [line for _ in range(rounds) for name in names if (line := compare(sinter, name, rng))]
    print("\n".join(failed))
    print(f"{rounds * len(names) - len(failed)} passed, {len(failed)} failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
