#!/usr/bin/env python3
"""against.py: compares two builds of sinter in one run.

usage: bench/against.py OLD NEW [--rounds N] [RUN ...]      (no RUN: all of them)

OLD and NEW are sinter programs. Each round runs `sinter bench` of one build and then of the other, in changing order, so
that both meet the same state of the machine. Prints for each measurement the shortest time of either build, and the
median of the ratios new / old within rounds with its range. Nothing else should run on the machine meanwhile."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

RUNS = {
    "gpt2": "model gpt2 --levels 4 --tokens 64,256,1024",
    "decode": "model gpt2 --decode --levels 4 --tokens 64",
    "int8": "model gpt2 --decode --compute int8 --levels 4 --tokens 64",
    "attention": "attention --levels 4 --mask full,causal,window:256,softcap,alibi --shape 1,12,1024,64",
    "backward": "attention --backward --levels 4 --mask full,causal,window:256 --shape 1,12,1024,64",
    "mixed": "attention --levels 4 --mask talking,talking-causal --shape 1,12,1024,64",
    "mixed_backward": "attention --backward --levels 4 --mask talking-causal --shape 1,12,1024,64",
    "recurrences": "kernel gla,mamba2,gated_deltanet,rwkv7 --levels 4",
    "recurrences_backward": "kernel gla_backward,mamba2_backward,gated_deltanet_backward,rwkv7_backward --levels 4",
    "few": "attention --levels 4 --mask decode --shape 1,12,1024,64",
    "train": "train gpt2 --tokens 64",
    "kernels": "kernel layer_norm,softmax,gelu,gelu_erf --levels 4",
}

def measure(sinter, run, cache):
    """{name of a measurement: milliseconds}, each the shortest of the run's rounds"""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "out.json")
        command = [sinter, "bench", *RUNS[run].split(), "--no-check", "--rounds", "5", "--cache-dir", cache, "--json", path]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(f"against.py: {' '.join(command)}: exit code {done.returncode}\n{done.stderr[-500:]}")
        times = {}
        for line in open(path):
            r = json.loads(line)
            backend = r.get("backend", "").replace("own", "native")  # as builds before November 2026 call it
            key = f"{r.get('name', run)} {r.get('shape', '')} {backend}".strip()
            if "ms_min" in r or "ms_median" in r:
                times[key] = r.get("ms_min") or r["ms_median"]
        return times

def main():
    p = argparse.ArgumentParser(description=__doc__ + "\n\nruns: " + ", ".join(RUNS), formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("old")
    p.add_argument("new")
    p.add_argument("run", nargs="*", metavar="RUN")
    p.add_argument("--rounds", type=int, default=5)
    a = p.parse_intermixed_args()
    for sinter in (a.old, a.new):
        if not os.access(sinter, os.X_OK) or os.path.isdir(sinter):
            p.error(f"there is no program at {sinter}")
    for run in a.run:
        if run not in RUNS:
            p.error(f"there is no run '{run}'; the runs are: {', '.join(RUNS)}")
    if a.rounds < 1:
        p.error("--rounds must be at least 1")
    print("| run | measurement | old ms | new ms | new / old, median (range) |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        caches = [os.path.join(folder, "old"), os.path.join(folder, "new")]
        for run in a.run or RUNS:
            times = [[], []]
            for i in range(a.rounds):
                for which in (0, 1) if i % 2 else (1, 0):
                    times[which].append(measure((a.old, a.new)[which], run, caches[which]))
            for key in times[0][0]:
                old, new = ([t[key] for t in side if key in t] for side in times)
                ratios = [n / o for o, n in zip(old, new)]
                if ratios:
                    print(f"| {run} | {key} | {min(old):.3f} | {min(new):.3f} | {statistics.median(ratios):.3f} "
                          f"({min(ratios):.3f} to {max(ratios):.3f}) |", flush=True)
            for key in times[0][0].keys() ^ times[1][0].keys():
                print(f"{run}: only one of the builds measured {key}", file=sys.stderr)
    return 0

if __name__ == "__main__":
    sys.exit(main())
