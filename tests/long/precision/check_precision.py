#!/usr/bin/env python3
"""Checks on random arguments what the manual promises of numbers: functions within 3 units in the last place in f32 and
f64, integer powers exact where the type holds them, and level 0 with the quotients that the formula has.

usage: check_precision.py SINTER [SEED]     SEED 0: a new one, which is printed"""
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
          "sqrt": (1e-10, 1e10), "rsqrt": (1e-10, 1e10), "erf": (-5, 5)}
FORMULAS = {"sigmoid": lambda x: 1 / (1 + np.exp(-x)), "rsqrt": lambda x: 1 / np.sqrt(x),
            "softplus": lambda x: np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0),
            "erf": lambda x: np.array([math.erf(v) for v in x], EXACT)}
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


def main():
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    seed = seed or int.from_bytes(os.urandom(3), "little") + 1
    print("seed", seed)
    rng = np.random.default_rng(seed)
    for target in TARGETS:
        for dtype, name in (np.float32, "f32"), (np.float64, "f64"):
            functions(sys.argv[1], target, dtype, "functions_" + name, rng)
            quotients(sys.argv[1], target, dtype, "quotients_" + name, N, rng)
            quotients(sys.argv[1], target, dtype, "broadcast_" + name, 1, rng)
    print(f"{checks - len(failures)} passed, {len(failures)} failed")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
