#!/usr/bin/env python3
"""overlap.py: how much of the communication of 2 ranks is hidden behind computation, over a simulated network.

usage: bench/overlap.py [--sinter FILE] [--mpirun COMMAND] [--gpt2] [--network 50:10,50:1] [--ways SLICES:ZERO,...]
                        [--steps N] [--rounds N] [--json FILE]

Trains examples/train/shakespeare.json, or with --gpt2 the model of 124 M parameters on 4 rows of 256 tokens, with
SINTER_DEBUG=network=LATENCY:GBIT (us, Gbit/s) and --slices and --zero of each way. Of --profile it takes all steps but the
first, of both ranks: how long collectives are under way, and for how long of that the rank waits. The bound: what the
collectives need on that network, and the time from the start of a step's first sum to that of its last one. Nothing else
can hide sums without --zero; with it the next step hides gathers. Prints a table in Markdown with the median of the rounds.
--json writes a record per line, as bench/claims.py reads them."""
import argparse
import json
import os
import statistics
import sys
import tempfile

import steps

RANKS = 2


def covered(spans):
    """The length of the union of (begin, end), in order of begin."""
    total, until = 0, 0
    for begin, end in spans:
        total += max(0, end - max(begin, until))
        until = max(until, end)
    return total


def read_profile(path, count):
    """Milliseconds a step and rank: collectives are under way, of it waited, from a step's first start to its last; and
    collectives of a step."""
    with open(path) as f:
        events = [e for e in json.load(f)["traceEvents"] if e.get("ph") == "X"]
    busy = waited = window = number = 0
    ranks = {e["pid"] for e in events}
    for rank in ranks:
        spans = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e["pid"] == rank and e["cat"] == "network")
        number = len(spans) // count
        spans = spans[number:]
        busy += covered(spans)
        window += sum(spans[i + number - 1][0] - spans[i][0] for i in range(0, len(spans), number))
        for e in events:
            begin, end = e["ts"], e["ts"] + e["dur"]
            if e["pid"] == rank and e["cat"] == "collective" and begin >= spans[0][0]:
                starts = any(begin <= s[0] <= end for s in spans)
                waited += 0 if starts else e["dur"]
    each = 1e-3 / (count - 1) / len(ranks)
    return busy * each, waited * each, window * each, number


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--sinter", default=steps.SINTER)
    p.add_argument("--mpirun", default=steps.MPIRUN)
    p.add_argument("--gpt2", action="store_true")
    p.add_argument("--network", default="50:10,50:1", metavar="LATENCY:GBIT,...")
    p.add_argument("--ways", metavar="SLICES:ZERO,...", help="default: 2:0,2:1,8:0,8:1; with --gpt2 2:0,2:1")
    p.add_argument("--steps", type=int, help="default: 20, with --gpt2 3")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--json", metavar="FILE")
    o = p.parse_args()
    count = o.steps or (3 if o.gpt2 else 20)
    settings = steps.read_settings(os.path.join(steps.ROOT, "examples/train/shakespeare.json"))
    settings["training"].update(steps=count)
    if o.gpt2:
        settings["model"] = steps.GPT2
        settings["training"].update(batch=4, block=256)
    shape = "gpt2" if o.gpt2 else "shakespeare"
    records = []
    print("| network | slices | zero | ms a step | under way, ms | waited, ms | hidden, % | needed, ms | hideable, ms |\n"
          "|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        config, profile = os.path.join(folder, "config.json"), os.path.join(folder, "profile.json")
        with open(config, "w") as f:
            json.dump(settings, f)
        for network in o.network.split(","):
            latency, gbit = map(float, network.split(":"))
            for way in (o.ways or ("2:0,2:1" if o.gpt2 else "2:0,2:1,8:0,8:1")).split(","):
                slices, zero = way.split(":")
                rounds = []
                for _ in range(o.rounds):
                    ms, text = steps.train(o, config, os.path.join(folder, "out"), RANKS, 1, "--slices", slices, "--zero",
                                           zero, "--profile", profile, "--force", SINTER_DEBUG=f"network={network}")
                    busy, waited, window, number = read_profile(profile, count)
                    sent = float(text.split("each rank sent ")[1].split()[0])
                    needed = number * latency * 1e-3 + sent * 8 / gbit
                    rounds.append((statistics.median(ms), busy, waited, 100 * (1 - waited / busy), needed, window))
                step, busy, waited, hidden, needed, window = map(statistics.median, zip(*rounds))
                bound = f"{window:.4g}" if zero == "0" else ""
                print(f"| {network} | {slices} | {zero} | {step:.4g} | {busy:.4g} | {waited:.3g} | {hidden:.0f} | {needed:.4g} "
                      f"| {bound} |", flush=True)
                records.append({"backend": "native", "level": 4, "shape": shape,
                                "name": f"{gbit:g} Gbit/s, {slices} slices, zero {zero}", "ms_median": step,
                                "hidden_pct": round(hidden, 1), "waited_ms": waited, "needed_ms": needed,
                                "hideable_ms": window})
    if o.json:
        with open(o.json, "w") as f:
            f.writelines(json.dumps(r) + "\n" for r in records)
    return 0


sys.exit(main())
