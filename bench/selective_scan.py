#!/usr/bin/env python3
"""selective_scan.py: Mamba-1's loop (2048 elements, 1536 channels, 16 states) against what its exponentials
and multiply-adds need, and against the reference implementation in PyTorch.

usage: bench/selective_scan.py [--sinter FILE] [--rounds N] [--threads N] [--python FILE] [--json FILE]

Each of the T x C x N states needs one exponential and four multiply-adds. The bound is the time of T x C x N
exponentials, each with two of these operations, at the rate of the bench `exponentials` (no memory, the same
vector function), and of the other two at the run's multiply-add peak. PyTorch runs `selective_scan_ref` of
the authors' package: all factors at once, then a Python loop over the elements, which reads them by unbind: the
gradient of an index would write a whole tensor for each element. Both are run without and with the gradient. Of
Sinter the medians of the bench count, of PyTorch the best of two runs; they take turns. --python: an interpreter
with PyTorch; without one its rows are missing."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

T, C, N = 2048, 1536, 16
SHAPE = f"{T}x{C}"

REFERENCE = """
import sys, time, torch
T, C, N, threads, train = map(int, sys.argv[1:])
torch.set_num_threads(threads)
torch.manual_seed(1)
u, delta, z = torch.randn(1, C, T), torch.rand(1, C, T), torch.randn(C)
A, B, D = -torch.rand(C, N), torch.randn(1, N, T), torch.randn(C)
K = torch.randn(1, N, T)
for leaf in (u, delta, A, B, D, K):
    leaf.requires_grad = bool(train)
def scan():
    x, ys = torch.zeros(1, C, N), []
    dA = torch.exp(torch.einsum('bdl,dn->bdln', delta, A)).unbind(2)
    dB_u = torch.einsum('bdl,bnl,bdl->bdln', delta, B, u).unbind(2)
    Ks = K.unbind(2)
    for i in range(T):
        x = dA[i] * x + dB_u[i]
        ys.append(torch.einsum('bdn,bn->bd', x, Ks[i]))
    y = torch.stack(ys, dim=2) + u * D.view(-1, 1)
    if train:
        y.square().sum().backward()
with torch.set_grad_enabled(bool(train)):
    scan()
    best = []
    for _ in range(2):
        t = time.perf_counter()
        scan()
        best.append(1e3 * (time.perf_counter() - t))
    print(min(best))
"""


def bench(o, names):
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "records")
        subprocess.run([o.sinter, "bench", "kernel", names, "--no-check", "--levels", "4", "--rounds", "25", "--seconds", "0.001",
                        "--threads", str(o.threads), "--json", file], check=True, stdout=subprocess.DEVNULL)
        with open(file) as f:
            lines = [json.loads(line) for line in f]
    return {r["name"]: r for r in lines[1:]}


def torch_ms(o, train):
    try:
        r = subprocess.run([o.python, "-c", REFERENCE, *map(str, (T, C, N, o.threads, int(train)))], check=True,
                           capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return float(r.stdout)


def bound_ms(r):
    """of the forward loop, from the records of one run"""
    e, ours = r["exponentials"], r["selective_scan"]
    rows, width = map(int, e["shape"].split("x"))
    per_exp = e["ms_min"] / (rows * width * 16)
    peak = ours["run_peak_gflops"] or ours["peak_gflops"]  # 2 operations to a multiply-add
    return T * C * N * (per_exp + 2 * 2 / (peak * 1e6))


def main():
    a = argparse.ArgumentParser(description="measures Mamba-1's loop")
    a.add_argument("--sinter", default="build/release/tools/sinter", metavar="FILE")
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    a.add_argument("--python", default="/usr/bin/python3", metavar="FILE")
    a.add_argument("--json", metavar="FILE", help="one record per line")
    o = a.parse_args()
    names = {"selective_scan": False, "selective_scan_backward": True}
    ms = {(name, backend): [] for name in names for backend in ("native", "bound", "torch")}
    for _ in range(o.rounds):
        r = bench(o, ",".join(names) + ",exponentials")
        ms["selective_scan", "bound"].append(bound_ms(r))
        for name, train in names.items():
            ms[name, "native"].append(r[name]["ms_median"])
            peer = torch_ms(o, train)
            if peer:
                ms[name, "torch"].append(peer)
    middle = {key: statistics.median(values) for key, values in ms.items() if values}
    ours = ms["selective_scan", "native"]
    share = 100 * statistics.median(b / n for b, n in zip(ms["selective_scan", "bound"], ours))
    print(f"{middle['selective_scan', 'native']:.2f} ms; {share:.0f} % of what exponentials and multiply-adds need")
    print(f"with its gradient: {middle['selective_scan_backward', 'native']:.2f} ms")
    for name in names:
        if (name, "torch") in middle:
            ratio = statistics.median(t / n for t, n in zip(ms[name, "torch"], ms[name, "native"]))
            print(f"PyTorch's loop, {name}: {middle[name, 'torch']:.0f} ms, {ratio:.1f} times as long")
    if o.json:
        with open(o.json, "w") as f:
            for (name, backend), value in middle.items():
                print(json.dumps({"name": name, "shape": SHAPE, "backend": backend, "level": 4, "ms_median": value}), file=f)
    return 0


sys.exit(main())
