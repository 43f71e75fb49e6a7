#!/usr/bin/env python3
"""ranks.py: training on 2 ranks of one thread, against one process of two threads, with the same bits.

usage: bench/ranks.py [--sinter FILE] [--mpirun "COMMAND -n 2"] [--gpt2] [--steps N] [--rounds N] [--json FILE]

Both train examples/train/shakespeare.json with 8 slices, in turns; the time is the median of the rounds. --gpt2: the
model of 124 M parameters, 4 rows of 256 tokens in 4 slices (12 GB of memory). Prints a table in Markdown; exits with 1 if
the bits differ. --json writes a record per line, as bench/claims.py reads them."""
import argparse
import hashlib
import json
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
ONE, TWO = "1 rank, 2 threads", "2 ranks, 1 thread"


GPT2 = {"model_type": "gpt2", "n_positions": 256, "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257}


def train(launcher, sinter, config, folder, threads, slices):
    """Tokens a second, and what the program printed."""
    command = [*launcher, sinter, "train", config, "-o", folder, "--slices", str(slices), "-t", str(threads)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}")
    with open(os.path.join(folder, "metrics.jsonl")) as f:
        last = json.loads(f.readlines()[-1])
    return last["tokens_per_second"], done.stdout


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--sinter", default=os.path.join(ROOT, "build/release/tools/sinter"))
    p.add_argument("--mpirun", default="mpirun.openmpi --oversubscribe --allow-run-as-root --bind-to none -n 2")
    p.add_argument("--gpt2", action="store_true")
    p.add_argument("--steps", type=int, default=100)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--json", metavar="FILE")
    o = p.parse_args()
    with open(os.path.join(ROOT, "examples/train/shakespeare.json")) as f:
        settings = json.load(f)
    settings["data"].update(text=os.path.join(ROOT, "examples/data/tinyshakespeare.txt"), validation_part=0)
    settings["schedule"].update(warmup=1)
    settings["training"].update(steps=o.steps)
    if o.gpt2:
        settings["model"] = GPT2
        settings["training"].update(batch=4, block=256)
    slices = 4 if o.gpt2 else 8
    tokens = settings["training"]["batch"] * settings["training"]["block"]
    ms, log, bits = {ONE: [], TWO: []}, {}, {}
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "config.json")
        with open(config, "w") as f:
            json.dump(settings, f)
        for k in range(o.rounds):
            for name, launcher, threads in ((ONE, [], 2), (TWO, shlex.split(o.mpirun), 1)):
                out = os.path.join(folder, f"{k}.{threads}")
                speed, log[name] = train(launcher, os.path.abspath(o.sinter), config, out, threads, slices)
                ms[name].append(1e3 * tokens / speed)
                with open(os.path.join(out, "checkpoint.safetensors"), "rb") as f:
                    bits[name] = hashlib.file_digest(f, "sha256").hexdigest()
                shutil.rmtree(out)
    sent, hidden, waited = re.search(r"sent ([\d.e+]+) MB .*?; (-?\d+) % .*, ([\d.e+-]+) ms a step", log[TWO]).groups()
    parameters = float(re.search(r"([\d.]+) M parameters", log[TWO]).group(1))
    records = [{"backend": "native", "level": 4, "shape": "gpt2" if o.gpt2 else "shakespeare", "name": name,
                "ms_median": statistics.median(t)} for name, t in ms.items()]
    ring = 2 * (2 - 1) / 2 * 4 * parameters
    records[1].update(sent_mb=float(sent), hidden_pct=float(hidden), waited_ms=float(waited),
                      bytes_of_ring=round(float(sent) / ring, 2))
    print("| | ms a step | all rounds |\n|---|---|---|")
    for r in records:
        print(f"| {r['name']} | {r['ms_median']:.2f} | {', '.join(f'{t:.2f}' for t in ms[r['name']])} |")
    same = bits[ONE] == bits[TWO]
    print(f"\n{sent} MB sent by each rank a step, {records[1]['bytes_of_ring']} of a ring's; {hidden} % of the sums' time "
          f"hidden, {waited} ms a step not; bits {'equal' if same else 'DIFFER'}")
    if o.json:
        with open(o.json, "w") as f:
            f.writelines(json.dumps(r) + "\n" for r in records)
    return 0 if same else 1


sys.exit(main())
