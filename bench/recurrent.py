#!/usr/bin/env python3
"""recurrent.py: decoding with recurrent layers, against the bandwidth at which weights and states can be read.

usage: bench/recurrent.py [--sinter FILE] [--least PERCENT] [--layers N] [--rounds N] [--json FILE] [VARIANT ...]
       bench/recurrent.py --lengths [--sinter FILE] [--rounds N] [LOOP ...]

Models of 12 layers of width 768 with the layers of examples/variants, of which 64 tokens are in the state. Prints the
tables of `sinter bench model`; exits with 1 if one has less than the required share of the bandwidth. --json writes a
record per line, as bench/claims.py reads them.

--lengths: the loops of `sinter bench kernel`, forward and backward, over 4096 and 16384 elements: time and memory must
grow in proportion. Exits with 1 if four times the elements take more than 6 times the time, which is noise (quadratic:
16), or 4.2 times the memory."""
import argparse
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
LOOPS = ("gla", "mamba2", "gated_deltanet", "rwkv7")
LENGTHS = (4096, 16384)
VARIANTS = ("gated_linear_attention", "mamba2", "gated_deltanet", "rwkv7")
MODEL = """#define WIDTH 768
#define VOCAB 256
#define HEADS 12
#define LAYERS {layers}
#define CONTEXT 1024
#include "{file}"
"""


def measure(o, variant, folder):
    """The record of its decode step."""
    source, out = os.path.join(folder, f"{variant}.c"), os.path.join(folder, "records")
    with open(source, "w") as f:
        f.write(MODEL.format(layers=o.layers, file=os.path.join(ROOT, "examples/variants", f"{variant}.c")))
    subprocess.run([o.sinter, "bench", "model", source, "--decode", "--no-check", "--levels", "4", "--tokens", "64",
                    "--rounds", str(o.rounds), "--json", out], check=True)
    with open(out) as f:
        return [json.loads(line) for line in f][1]


def linear(o):
    """Whether time and memory of every loop are linear in its length; prints both."""
    good = True
    for name in o.variants:
        records = []
        for rows in LENGTHS:
            done = subprocess.run([o.sinter, "bench", "kernel", name, "--shape", f"{rows}x768", "--no-check", "--levels", "4",
                                   "--rounds", str(o.rounds), "--json", "-"], check=True, capture_output=True, text=True)
            records.append(json.loads(done.stdout.strip().splitlines()[-1]))
        time, memory = (records[1][key] / records[0][key] for key in ("ms_min", "peak_bytes"))
        good &= time <= 6 and memory <= 4.2
        print(f"{name}: {records[0]['ms_min']:.1f} and {records[1]['ms_min']:.1f} ms, {time:.2f} times the time, "
              f"{memory:.2f} times the memory of intermediate results")
    return good


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--sinter", default=os.path.join(ROOT, "build/release/tools/sinter"))
    p.add_argument("--least", type=float, default=85, metavar="PERCENT")
    p.add_argument("--layers", type=int, default=12)
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--json", metavar="FILE")
    p.add_argument("--lengths", action="store_true")
    p.add_argument("variants", nargs="*", metavar="VARIANT")
    o = p.parse_args()
    if o.lengths:
        o.variants = o.variants or [name + part for name in LOOPS for part in ("", "_backward")]
        sys.exit(not linear(o))
    o.variants = o.variants or VARIANTS
    with tempfile.TemporaryDirectory() as folder:
        records = [measure(o, v, folder) for v in o.variants]
    for r in records:
        print(f"{r['name']}: {r['pct_roofline']:.1f} % of the bandwidth of weights and states")
    if o.json:
        with open(o.json, "w") as f:
            f.writelines(json.dumps(r) + "\n" for r in records)
    sys.exit(any(r["pct_roofline"] < o.least for r in records))


if __name__ == "__main__":
    main()
