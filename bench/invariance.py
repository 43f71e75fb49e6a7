#!/usr/bin/env python3
"""invariance.py SINTER [--rounds N]: what the option --invariant costs.

Times entries of a model with random weights as it is, with `batch` and with `chunk`, in turn, N times, and prints the
medians of the ratios to the time as it is, over rounds."""
import argparse
import re
import statistics
import subprocess

CASES = [
    ("gpt2", "forward", "T=64"),
    ("gpt2", "forward", "T=256"),
    ("gpt2", "forward", "T=1024"),
    ("gpt2", "decode", "P=1000"),
    ("examples/variants/gated_linear_attention.c", "forward", "T=256"),
    ("examples/variants/mamba2.c", "forward", "T=256"),
]
OPTIONS = ["", "batch", "chunk"]


def measure(sinter, model, entry, sizes, option):
    """The shortest run, in ms."""
    command = [sinter, "explain", "--entry", entry, "--time", "--sizes", sizes]
    command += [model] if model.endswith(".c") else ["--preset", model]
    command += ["--invariant", option] if option else []
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(re.search(r"a run took [0-9.]+ ms \(minimum ([0-9.]+)\)", text).group(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sinter")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    print("%-50s %-8s %-8s %9s %9s %9s" % ("model", "entry", "sizes", "ms", "batch", "chunk"))
    for model, entry, sizes in CASES:
        times = [[measure(given.sinter, model, entry, sizes, o) for o in OPTIONS] for _ in range(given.rounds)]
        ratio = [statistics.median(t[i] / t[0] for t in times) for i in (1, 2)]
        plain = statistics.median(t[0] for t in times)
        print("%-50s %-8s %-8s %9.3f %9.2f %9.2f" % (model, entry, sizes, plain, *ratio), flush=True)


if __name__ == "__main__":
    main()
