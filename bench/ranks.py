#!/usr/bin/env python3
"""ranks.py: training on 2 ranks of one thread, against one process of two threads, with the same bits.

usage: bench/ranks.py [--sinter FILE] [--mpirun COMMAND] [--gpt2] [--steps N] [--rounds N] [--json FILE]

Both train examples/train/shakespeare.json with 8 slices, in turns; the time is the median of the steps but the first, and
of the rounds. --gpt2: the model of 124 M parameters, 4 rows of 256 tokens in 4 slices (12 GB of memory). Prints a table in
Markdown; exits with 1 if the bits differ. --json writes a record per line, as bench/claims.py reads them."""
import argparse
import hashlib
import json
import os
import re
import shutil
import statistics
import sys
import tempfile

import steps

ONE, TWO = "1 rank, 2 threads", "2 ranks, 1 thread"


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--sinter", default=steps.SINTER)
    p.add_argument("--mpirun", default=steps.MPIRUN)
    p.add_argument("--gpt2", action="store_true")
    p.add_argument("--steps", type=int, default=100)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--json", metavar="FILE")
    o = p.parse_args()
    settings = steps.read_settings(os.path.join(steps.ROOT, "examples/train/shakespeare.json"))
    settings["training"].update(steps=o.steps)
    if o.gpt2:
        settings["model"] = steps.GPT2
        settings["training"].update(batch=4, block=256)
    slices = 4 if o.gpt2 else 8
    ms, log, bits = {ONE: [], TWO: []}, {}, {}
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "config.json")
        with open(config, "w") as f:
            json.dump(settings, f)
        for k in range(o.rounds):
            for name, ranks in ((ONE, 1), (TWO, 2)):
                out = os.path.join(folder, f"{k}.{ranks}")
                each, log[name] = steps.train(o, config, out, ranks, 3 - ranks, "--slices", str(slices))
                ms[name].append(statistics.median(each))
                with open(os.path.join(out, "checkpoint.safetensors"), "rb") as f:
                    bits[name] = hashlib.file_digest(f, "sha256").hexdigest()
                shutil.rmtree(out)
    sent, hidden, waited = re.search(r"sent ([\d.e+]+) MB .*?; (-?\d+) % .*, ([\d.e+-]+) ms a step", log[TWO]).groups()
    parameters = float(re.search(r"([\d.]+) M parameters", log[TWO]).group(1))
    records = [{"backend": "native", "level": 4, "shape": "gpt2" if o.gpt2 else "shakespeare", "name": name,
                "ms_median": statistics.median(t)} for name, t in ms.items()]
    ring = 2 * (2 - 1) / 2 * 4 * parameters
    records[1].update(sent_mb=float(sent), hidden_pct=float(hidden), waited_ms=float(waited),
                      bytes_of_ring=round(float(sent) / ring, 2),
                      speed=round(statistics.median(a / b for a, b in zip(ms[ONE], ms[TWO])), 3))
    print("| | ms a step | all rounds |\n|---|---|---|")
    for r in records:
        print(f"| {r['name']} | {r['ms_median']:.2f} | {', '.join(f'{t:.2f}' for t in ms[r['name']])} |")
    same = bits[ONE] == bits[TWO]
    print(f"\n{records[1]['speed']} of the speed of {ONE}; {sent} MB sent by each rank a step, "
          f"{records[1]['bytes_of_ring']} of a ring's; {hidden} % of the sums' time hidden, {waited} ms a step not; "
          f"bits {'equal' if same else 'DIFFER'}")
    if o.json:
        with open(o.json, "w") as f:
            f.writelines(json.dumps(r) + "\n" for r in records)
    return 0 if same else 1


sys.exit(main())
