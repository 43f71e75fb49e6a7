#!/usr/bin/env python3
"""Checks on random arguments what the manual promises of numbers: functions within 3 units in the last place in f32 and
f64, integer powers exact where the type holds them, and level 0 with the quotients that the formula has; and long
sums, products, attention and recurrences, whose errors are bounded and are the table of docs/precision.md.

usage: check_precision.py SINTER [SEED]     SEED 0: a new one, which is printed
       check_precision.py SINTER --table    prints the table"""
import math
import os
import subprocess
import sys
import tempfile

import numpy as np

MODEL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "precision.c")
TARGETS = ("native", "x86-64-v3", "x86-64-v2")
N = 20000
EXACT = np.longdouble
RANGES = {"exp": (-80, 80), "exp2": (-100, 100), "expm1": (-10, 10), "log": (1e-30, 1e30), "log1p": (-0.99, 100),
          "tanh": (-10, 10), "sigmoid": (-60, 60), "softplus": (-60, 60), "sin": (-1e5, 1e5), "cos": (-1e5, 1e5),
          "atan": (-20, 20), "asin": (-1, 1), "acos": (-1, 1),
          "sqrt": (1e-10, 1e10), "rsqrt": (1e-10, 1e10), "erf": (-5, 5)}
FORMULAS = {"atan": np.arctan, "asin": np.arcsin, "acos": np.arccos,
            "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "rsqrt": lambda x: 1 / np.sqrt(x),
            "softplus": lambda x: np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0),
            "erf": lambda x: np.array([math.erf(v) for v in x], EXACT)}
# Root mean square of the errors over that of the results, in f32 and in bf16 (factors of products of bf16).
SUMS = {"gemm": ("K", (64, 768, 3072, 50257)),
        **{entry: ("T", (16, 256, 4096, 16384)) for entry in ("attention", "gla", "mamba2", "gated_deltanet", "rwkv7")}}
LIMITS = {"f32": 6e-6, "bf16": 5e-3}
WIDTH = 64
failures, checks = [], 0


def check(holds, text):
    global checks
    checks += 1
    if not holds:
        failures.append(text)
        print("WRONG:", text, flush=True)


def call(sinter, entry, arrays, options):
    with tempfile.TemporaryDirectory() as d:
        np.savez(d + "/in.npz", **arrays)
        subprocess.run([sinter, "call", MODEL, "--entry", entry, "-i", d + "/in.npz", "-o", d + "/out.npz", "-q", *options],
                       check=True, stdout=subprocess.DEVNULL)
        return dict(np.load(d + "/out.npz"))


def ulps(got, want, dtype):
    return np.abs(got.astype(EXACT) - want) / np.spacing(np.abs(want.astype(dtype))).astype(EXACT)


def functions(sinter, target, dtype, entry, rng):
    x = {f: np.exp(rng.uniform(math.log(lo), math.log(hi), N)) if lo > 0 else rng.uniform(lo, hi, N)
         for f, (lo, hi) in RANGES.items()}
    x = {f: a.astype(dtype) for f, a in x.items()}
    bits = np.finfo(dtype).nmant + 1
    integers = np.array([(a, b, a**b) for a in range(1, 30) for b in range(9) if a**b < 2**bits], dtype)
    base, power = np.exp(rng.uniform(-3, 3, N)), rng.uniform(-20, 20, N)
    base[: len(integers)], power[: len(integers)] = integers.T[:2]
    base, power = base.astype(dtype), power.astype(dtype)
    got = call(sinter, entry, {**{f + "_x": a for f, a in x.items()}, "pow_x": base, "pow_y": power},
               ["--target", target, "--level", str(rng.integers(5))])
    for f, a in x.items():
        worst = float(ulps(got[f], FORMULAS.get(f, getattr(np, f, None))(a.astype(EXACT)), dtype).max())
        check(worst <= 3, f"{entry} {target}: {f} errs by {worst:.1f} units in the last place")
    error = ulps(got["pow"], np.power(base.astype(EXACT), power.astype(EXACT)), dtype)
    check(error.max() <= 3, f"{entry} {target}: pow errs by {float(error.max()):.1f} units in the last place")
    wrong = int((got["pow"][: len(integers)] != integers[:, 2]).sum())
    check(wrong == 0, f"{entry} {target}: {wrong} of {len(integers)} integer powers are not exact")


def quotients(sinter, target, dtype, entry, divisors, rng):
    x, y, w = (rng.standard_normal(n).astype(dtype) for n in (N, divisors, divisors))
    got = call(sinter, entry, {"x": x, "y": y, "w": w}, ["--target", target, "--level", "0"])
    three, one = dtype(3), dtype(1)
    for name, want in {"x/(y/3)": x / (y / three), "x/(3y)": x / (y * three), "x/(y/w)": x / (y / w),
                       "x/(1/y)": x / (one / y), "(x/y)y": (x / y) * y, "x/y/3": x / y / three, "xy/y": x * y / y}.items():
        wrong = int((got[name] != want).sum())
        check(wrong == 0, f"{entry} {target}, level 0: {wrong} of {N} results of {name} are not those of IEEE arithmetic")


def loop(entry, q, k, v, decay, share):
    """The results of a recurrence, step by step."""
    S, y = np.zeros((WIDTH, WIDTH)), np.empty_like(q)
    for t in range(len(q)):
        removed = np.zeros_like(S)
        if entry == "rwkv7":
            removed = np.outer(share[t], k[t] @ S)
        S = np.atleast_1d(np.exp(decay[t]))[:, None] * S - removed
        new = share[t] * (v[t] - k[t] @ S) if entry == "gated_deltanet" else v[t]
        S += np.outer(k[t], new)
        y[t] = q[t] @ S
    return y


def draw(entry, n, rng):
    """Inputs of f32."""
    if entry == "gemm":
        x = {name: rng.standard_normal((WIDTH, n)) for name in "xw"}
    else:
        x = {name: rng.standard_normal((n, WIDTH)) for name in "qkv"}
        numbers = n if entry in ("mamba2", "gated_deltanet") else (n, WIDTH)
        if entry != "attention":
            x["k"] /= np.linalg.norm(x["k"], axis=1, keepdims=True)
            x["decay"] = np.log(rng.uniform(0.9, 1, numbers))
        if entry in ("gated_deltanet", "rwkv7"):
            x["share"] = rng.uniform(0, 1, numbers) * (x["k"] if entry == "rwkv7" else 1)
    return {name: a.astype(np.float32) for name, a in x.items()}


def exact(entry, x):
    """The rows that are compared, and what they are in f64."""
    x = {name: a.astype(np.float64) for name, a in x.items()}
    if entry == "gemm":
        return slice(None), x["x"] @ x["w"].T
    if entry != "attention":
        return slice(None), loop(entry, x["q"], x["k"], x["v"], x["decay"], x.get("share"))
    rows = np.unique(np.linspace(0, len(x["q"]) - 1, 256).astype(int))
    score = x["q"][rows] @ x["k"].T / math.sqrt(WIDTH)
    score[np.arange(len(x["q"])) > rows[:, None]] = -np.inf
    p = np.exp(score - score.max(1, keepdims=True))
    return rows, p @ x["v"] / p.sum(1, keepdims=True)


def sums(sinter, rng):
    """Errors by entry, arithmetic and length."""
    errors = {}
    for entry, (_, lengths) in SUMS.items():
        for n in lengths:
            x = draw(entry, n, rng)
            rows, want = exact(entry, x)
            if entry != "gemm":
                x = {name: a[None, None] for name, a in x.items()}
            for compute, limit in LIMITS.items():
                got = call(sinter, entry, x, ["--compute", compute, "--backend", "native"])["y"].squeeze()[rows]
                error = float(np.sqrt(np.square(got - want).mean() / np.square(want).mean()))
                errors[entry, compute, n] = error
                check(error <= limit, f"{entry} of {n} in {compute}: error {error:.2g}")
    return errors


def print_table(sinter):
    errors = sums(sinter, np.random.default_rng(1))
    for of in "KT":
        lengths = next(n for name, n in SUMS.values() if name == of)
        print(f"| {of} = | " + " | ".join(map(str, lengths)) + " |\n|---|" + "---|" * len(lengths))
        for entry in (e for e in SUMS if SUMS[e][0] == of):
            for compute in LIMITS:
                print(f"| {entry}, {compute} | " + " | ".join(f"{errors[entry, compute, n]:.1e}" for n in lengths) + " |")
        print()


def main():
    if sys.argv[2:] == ["--table"]:
        print_table(sys.argv[1])
        sys.exit(bool(failures))
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    seed = seed or int.from_bytes(os.urandom(3), "little") + 1
    print("seed", seed)
    rng = np.random.default_rng(seed)
    for target in TARGETS:
        for dtype, name in (np.float32, "f32"), (np.float64, "f64"):
            functions(sys.argv[1], target, dtype, "functions_" + name, rng)
            quotients(sys.argv[1], target, dtype, "quotients_" + name, N, rng)
            quotients(sys.argv[1], target, dtype, "broadcast_" + name, 1, rng)
    sums(sys.argv[1], rng)
    print(f"{checks - len(failures)} passed, {len(failures)} failed")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
