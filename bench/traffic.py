#!/usr/bin/env python3
"""traffic.py: bytes that a rank sends in a step, as its communicators count them, against what the algorithm needs.

usage: bench/traffic.py [--sinter FILE] [--mpirun COMMAND] [--json FILE]

Trains examples/train/shakespeare.json for two steps with 4 slices on 2 and 4 ranks: with whole gradients, with what
ZeRO 1 to 3 divide, and with 2 ranks that share the model. N ranks and p bytes of parameters need 2 p (N - 1) / N for sums
of gradients and, with ZeRO 2 and 3, what docs/guides/cluster.md says; 2 ranks that share the model sum the hidden state
of each token 4 times a layer, once for the embedding and once for the gradient of the logits' product. Prints a table in
Markdown; exits with 1 if more than 1.02 times as much was sent. --json writes a record per line, as bench/claims.py reads
them."""
import argparse
import json
import os
import re
import sys
import tempfile

import steps

LIMIT, SLICES = 1.02, 4


def minimum(settings, parameters, ranks, zero, tensor):
    """Bytes."""
    model, training = settings["model"], settings["training"]
    groups = ranks // tensor
    each = 4 * parameters / tensor * (groups - 1) / groups
    passes = {0: 2, 1: 2, 2: 1 + SLICES / groups, 3: 3 * SLICES / groups}[zero]
    hidden = 4 * training["batch"] / groups * training["block"] * model["n_embd"]
    return passes * each + (4 * model["n_layer"] + 2) * hidden * 2 * (tensor - 1) / tensor


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--sinter", default=steps.SINTER)
    p.add_argument("--mpirun", default=steps.MPIRUN)
    p.add_argument("--json", metavar="FILE")
    o = p.parse_args()
    settings = steps.read_settings(os.path.join(steps.ROOT, "examples/train/shakespeare.json"))
    settings["training"].update(steps=2)
    records = []
    print("| ranks | | MB sent by each in a step | minimum | sent / minimum |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "config.json")
        with open(config, "w") as f:
            json.dump(settings, f)
        for ranks in (2, 4):
            for zero, tensor in ((0, 1), (1, 1), (2, 1), (3, 1), (0, 2)):
                options = ["--slices", str(SLICES), "--zero", str(zero), "--tensor", str(tensor)]
                ms, text = steps.train(o, config, os.path.join(folder, f"{ranks}.{zero}.{tensor}"), ranks, 1, *options)
                sent = float(re.search(r"each rank sent ([\d.e+]+) MB", text).group(1))
                parameters = 1e6 * float(re.search(r"([\d.]+) M parameters", text).group(1))
                least = minimum(settings, parameters, ranks, zero, tensor) * 1e-6
                how = f"tensor {tensor}" if tensor > 1 else f"zero {zero}" if zero else "data"
                print(f"| {ranks} | {how} | {sent:.4g} | {least:.4g} | {sent / least:.3f} |", flush=True)
                records.append({"backend": "native", "level": 4, "shape": "shakespeare", "name": f"{ranks} ranks, {how}",
                                "ms_median": min(ms), "sent_mb": sent, "of_minimum": round(sent / least, 4)})
    if o.json:
        with open(o.json, "w") as f:
            f.writelines(json.dumps(r) + "\n" for r in records)
    return 0 if all(r["of_minimum"] <= LIMIT for r in records) else 1


sys.exit(main())
