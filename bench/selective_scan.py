#!/usr/bin/env python3
"""selective_scan.py: Mamba-1's loop (2048 elements, 1536 channels, 16 states) against what its exponentials
and multiply-adds need, and against the reference implementation in PyTorch.

usage: bench/selective_scan.py [--sinter FILE] [--rounds N] [--threads N] [--python FILE] [--json FILE]

Each of the T x C x N states needs one exponential and four multiply-adds. The bound is the time of T x C x N
exponentials, each with two of these operations, at the rate of the bench `exponentials` (no memory, the same
vector function), and of the other two at the run's multiply-add peak. PyTorch runs `selective_scan_ref` of
the authors' package: all factors at once, then a Python loop over the elements, without gradients. Sinter
and PyTorch take turns; of each the best run counts. --python: an interpreter with PyTorch; without one its row is missing."""
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
T, C, N, threads = map(int, sys.argv[1:])
torch.set_num_threads(threads)
torch.manual_seed(1)
u, delta, z = torch.randn(1, C, T), torch.rand(1, C, T), torch.randn(C)
A, B, D = -torch.rand(C, N), torch.randn(1, N, T), torch.randn(C)
K = torch.randn(1, N, T)
def scan():
    x, ys = torch.zeros(1, C, N), []
    dA = torch.exp(torch.einsum('bdl,dn->bdln', delta, A))
    dB_u = torch.einsum('bdl,bnl,bdl->bdln', delta, B, u)
    for i in range(T):
        x = dA[:, :, i] * x + dB_u[:, :, i]
        ys.append(torch.einsum('bdn,bn->bd', x, K[:, :, i]))
    return torch.stack(ys, dim=2) + u * D.view(-1, 1)
with torch.no_grad():
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


def torch_ms(o):
    try:
        r = subprocess.run([o.python, "-c", REFERENCE, *map(str, (T, C, N, o.threads))], check=True,
                           capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return float(r.stdout)


def bound_ms(r):
    """of the records of one run"""
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
    ms = {"native": [], "bound": [], "torch": []}
    for _ in range(o.rounds):
        r = bench(o, "selective_scan,exponentials")
        ms["native"].append(r["selective_scan"]["ms_min"])
        ms["bound"].append(bound_ms(r))
        peer = torch_ms(o)
        if peer:
            ms["torch"].append(peer)
    ours = statistics.median(ms["native"])
    share = 100 * statistics.median(b / n for b, n in zip(ms["bound"], ms["native"]))
    print(f"{ours:.2f} ms; {share:.0f} % of what exponentials and multiply-adds need")
    if ms["torch"]:
        print(f"PyTorch's loop: {statistics.median(ms['torch']):.0f} ms, "
              f"{statistics.median(t / n for t, n in zip(ms['torch'], ms['native'])):.1f} times as long")
    if o.json:
        with open(o.json, "w") as f:
            for backend, values in ms.items():
                if values:
                    print(json.dumps({"name": "selective_scan", "shape": SHAPE, "backend": backend, "level": 4,
                                      "ms_median": statistics.median(values)}), file=f)
    return 0


sys.exit(main())
