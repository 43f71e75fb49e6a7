#!/usr/bin/env python3
"""plan.py: what `sinter plan` predicts for 1, 2 and 4 ranks on this machine, and what they take.

usage: bench/plan.py [--sinter FILE] [--mpirun COMMAND] [--config FILE] [--steps N] [--rounds N] [--ranks 1,2,4]
                     [--tensor P] [--json FILE]

Each round plans with `--per-machine 4 --threads 1`, then trains with the same slices on 1, 2 and 4 ranks of one
thread, which share this machine's CPUs; their time is the median of the steps but the first. Prints a table in Markdown
with the medians; exits with 1 if a prediction is off by more than 15 % in the median round, because other programs change
the machine's speed from round to round.
--json writes a record per line, as bench/claims.py reads them."""
import argparse
import json
import os
import statistics
import sys
import tempfile

import steps

LIMIT = 0.15


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--sinter", default=steps.SINTER)
    p.add_argument("--mpirun", default=steps.MPIRUN)
    p.add_argument("--config", default=os.path.join(steps.ROOT, "examples/train/shakespeare.json"))
    p.add_argument("--steps", type=int, default=30)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--ranks", default="1,2,4")
    p.add_argument("--tensor", type=int, default=1, help="ranks that share a model")
    p.add_argument("--json", metavar="FILE")
    o = p.parse_args()
    settings = steps.read_settings(o.config)
    settings["training"].update(steps=o.steps)
    tensor = ["--tensor", str(o.tensor)] if o.tensor > 1 else []
    ranks = [int(n) for n in o.ranks.split(",")]
    predicted, measured = {n: [] for n in ranks}, {n: [] for n in ranks}
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "config.json")
        with open(config, "w") as f:
            json.dump(settings, f)
        for k in range(o.rounds):
            text = steps.run([os.path.abspath(o.sinter), "plan", config, "--ranks", o.ranks, "--per-machine",
                              str(max(ranks)), "-t", "1", *tensor, "--json"])
            plan, _ = json.JSONDecoder().raw_decode(text[text.index("{"):])
            for point in plan["points"]:
                n = point["ranks"]
                ms, _ = steps.train(o, config, os.path.join(folder, f"{k}.{n}"), n, 1, "--slices",
                                    str(point["slices"]), *tensor)
                predicted[n].append(point["step_ms"])
                measured[n].append(statistics.median(ms))
    print("| ranks | predicted, ms a step | measured | predicted / measured |\n|---|---|---|---|")
    records, right = [], True
    for n in ranks:
        a, b = statistics.median(predicted[n]), statistics.median(measured[n])
        ratio = statistics.median(x / y for x, y in zip(predicted[n], measured[n]))
        right &= abs(ratio - 1) <= LIMIT
        print(f"| {n} | {a:.1f} ({', '.join(f'{t:.1f}' for t in predicted[n])}) "
              f"| {b:.1f} ({', '.join(f'{t:.1f}' for t in measured[n])}) | {ratio:.2f} |")
        records.append({"backend": "native", "level": 4, "shape": plan["model"], "name": f"{n} ranks", "ms_median": b,
                        "predicted_ms": a, "off_pct": round(100 * abs(ratio - 1), 1)})
    if o.json:
        with open(o.json, "w") as f:
            f.writelines(json.dumps(r) + "\n" for r in records)
    return 0 if right else 1


sys.exit(main())
