#!/usr/bin/env python3
"""inner_loops.py: the share of multiply-adds in the inner loops of AArch64 products, by count, and the bound of a CPU's model.

usage: bench/inner_loops.py [--sinter FILE] [--cpu NAME] [MODEL]
       bench/inner_loops.py [--cpu NAME] --asm FILE...
       bench/inner_loops.py --least PERCENT --asm FILE...

Compiles MODEL (default: examples/models/stories260K) to assembler text for each feature set, finds the innermost loop with
the most multiply-adds in the microkernels of its products, and prints multiply-adds, all instructions, their share, and the
multiply-adds in a cycle that llvm-mca-19 expects of the CPU (default: neoverse-v2): of the loop with the most of them, and
of those the least share. --asm counts the text of another compiler, such as that of ggml's kernels, for each function.
--least checks instead that this share of the text of Sinter is at least PERCENT."""
import argparse
import glob
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
SETS = ["aarch64", "aarch64,+dotprod", "aarch64,+i8mm", "aarch64,+bf16", "neoverse-v2", "apple-m1", "neoverse-v1,+bf16,sve=256"]
WAYS = [[], ["--weights", "int8", "--compute", "int8"], ["--compute", "bf16"]]
PRODUCTS = re.compile(r"(fmla|fmad|fmlal2?|fmadd|sdot|udot|usdot|sudot|smmla|usmmla|ummla|bfdot|bfmmla|bfmlal[bt]|smlal2?)$")
BRANCH = re.compile(r"\t(?:b\.?\w\w|cbn?z|tbn?z)\t(?:.*, *)?([.\w$]+)$")


def functions(path):
    """Name and lines of each function."""
    name, lines = None, []
    with open(path, encoding="utf-8", errors="replace") as f:
        for line in f:
            line = re.sub(r"\s*(//|;).*", "", line.rstrip("\n"))
            label = re.match(r"([A-Za-z_][\w.$]*):$", line)
            if label:
                if name:
                    yield name, lines
                name, lines = label[1], []
            elif name:
                lines.append(line)
    if name:
        yield name, lines


def loops(lines):
    """The instructions of each innermost loop."""
    at = {line[:-1]: i for i, line in enumerate(lines) if line.endswith(":")}
    found = []
    for i, line in enumerate(lines):
        branch = BRANCH.match(line)
        if branch and at.get(branch[1], i) < i:
            found.append((at[branch[1]], i + 1))
    for a, b in found:
        if not any(a <= c and d <= b and (a, b) != (c, d) for c, d in found):
            yield [x for x in lines[a:b] if re.match(r"\t\w", x)]


def products(instructions):
    return sum(1 for x in instructions if PRODUCTS.match(x.split()[0]) and re.search(r"\b[vz]\d+\.", x))


def largest(path, wanted):
    """The loop of each function with the largest number of multiply-adds: (share, number, loop, name), the least share first."""
    best = {}
    for name, lines in functions(path):
        for loop in loops(lines) if wanted in name else ():
            n = products(loop)
            if n >= 4 and (name not in best or n > best[name][1]):
                best[name] = (n / len(loop), n, loop, name)
    return sorted(best.values(), key=lambda x: x[:2])


def worst(found):
    """Of the loops with the most multiply-adds that with the least share."""
    return max(found, key=lambda x: (x[1], -x[0]))


def bound(loop, cpu):
    """Multiply-adds in a cycle by the model of a CPU."""
    r = subprocess.run(["llvm-mca-19", "-mtriple=aarch64", f"-mcpu={cpu}", "-mattr=+dotprod,+i8mm,+bf16,+fp16fml",
                        "-iterations=100"], input="\n".join(loop), capture_output=True, text=True)
    cycles = re.search(r"Total Cycles: +(\d+)", r.stdout)
    return f"{100 * products(loop) / int(cycles[1]):.2f}" if cycles else "?"


def row(what, found, cpu):
    share, n, loop, name = found
    print(f"| {what} | {name} | {n} of {len(loop)} | {100 * share:.0f} % | {bound(loop, cpu)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("usage:")[0])
    parser.add_argument("--sinter", default=os.path.join(ROOT, "build/release/tools/sinter"))
    parser.add_argument("--cpu", default="neoverse-v2")
    parser.add_argument("--asm", nargs="+")
    parser.add_argument("--least", type=float, metavar="PERCENT")
    parser.add_argument("model", nargs="?", default=os.path.join(ROOT, "examples/models/stories260K/stories260K.bin"))
    args = parser.parse_args()
    for path in args.asm if args.least else ():
        share, n, loop, name = worst(largest(path, ".ukr"))
        if 100 * share < args.least:
            sys.exit(f"{path}: {n} of {len(loop)} instructions of {name} are multiply-adds, {100 * share:.1f} %")
    if args.least:
        return
    print(f"| | function | multiply-adds | share | in a cycle ({args.cpu}) |\n|---|---|---|---|---|")
    for path in args.asm or ():
        for found in largest(path, ""):
            row(os.path.basename(path), found, args.cpu)
    for target in SETS if not args.asm else ():
        for way in WAYS:
            with tempfile.TemporaryDirectory() as out:
                r = subprocess.run([args.sinter, "compile", args.model, "--name", "m", "-o", out, "--threads", "none", "--emit",
                                    "asm", "--target", target, *way], capture_output=True, text=True)
                if r.returncode:
                    sys.exit(f"{target}: {r.stderr}")
                found = largest(glob.glob(os.path.join(out, "*.s"))[0], ".ukr")
            if found:
                row(" ".join([target, *way[-1:]]), worst(found), args.cpu)


if __name__ == "__main__":
    main()
