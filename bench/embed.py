#!/usr/bin/env python3
"""Embeddings of many texts: texts a second by --batch, interleaved runs.

    bench/embed.py MODEL [--sinter PROGRAM] [--texts N] [--words 1-8] [--batch 1,32] [--rounds 3] [--threads N]

The texts are random words of a made-up lexicon, as many as --words says; the time of a run with one text (opening the
model) is subtracted. Prints the median, the processor time, and whether the embeddings are the same bits.
"""
import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time


def measure(o, texts, batch):
    """Seconds, processor seconds and output of a run."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as f:
        f.write("\n".join(texts) + "\n")
        f.flush()
        before, begin = os.times(), time.monotonic()
        command = [o.sinter, "embed", o.model, "-f", f.name, "--batch", str(batch), "-t", str(o.threads), "-q"]
        out = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
        end, after = time.monotonic(), os.times()
    return end - begin, after.children_user - before.children_user, out


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model")
    p.add_argument("--sinter", default="build/release/tools/sinter")
    p.add_argument("--texts", type=int, default=2000)
    p.add_argument("--words", default="1-8")
    p.add_argument("--batch", default="1,32")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--threads", type=int, default=0)
    o = p.parse_args()
    low, high = (int(n) for n in o.words.split("-"))
    draw = random.Random(1)
    lexicon = "the a house runs blue in of water small people time with new green".split()
    texts = [" ".join(draw.choices(lexicon, k=draw.randint(low, high))) for _ in range(o.texts)]
    batches = [int(b) for b in o.batch.split(",")]
    runs, outputs = {b: [] for b in batches}, set()
    measure(o, texts[:1], 1)  # compiles
    for _ in range(o.rounds):
        start, start_cpu, _ = measure(o, texts[:1], 1)
        for b in batches:
            seconds, cpu, out = measure(o, texts, b)
            runs[b].append((seconds - start, cpu - start_cpu))
            outputs.add(out)
    print(f"{o.texts} texts of {o.words} words, {o.rounds} rounds")
    for b in batches:
        seconds, cpu = (statistics.median(r[i] for r in runs[b]) for i in (0, 1))
        print(f"--batch {b:4d}  {o.texts / seconds:8.0f} texts/s  {1e3 * cpu / o.texts:8.3f} ms of processor time each")
    print("the same bits" if len(outputs) == 1 else "DIFFERENT results")
    return len(outputs) != 1


if __name__ == "__main__":
    sys.exit(main())
