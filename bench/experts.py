#!/usr/bin/env python3
"""experts.py: what a mixture of experts costs: decoding against the bandwidth for the bytes that the
selected experts have, and prefill against a dense model with as many active weights.

usage: bench/experts.py [--sinter FILE] [--rounds N] [--weights f32,bf16,int8,int4] [--only decode|prefill]
                        [--layers N] [--tokens N,…] [--json FILE]

The model is a Mixtral with 8 experts, 2 per token, width 1024, 3584 hidden units per expert, 8
layers; the dense one has the same layers with 7168 hidden units. Weights are random. Prints two
tables in Markdown; exits with 1 if decoding needs more than 1.15 times what the bandwidth allows, or
prefill more than 1.25 times the dense model's time. The two models take turns. --json writes a record
per line, as bench/claims.py reads them. Nothing else should run on the machine meanwhile."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

SIZES = {"vocab_size": 8192, "hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 16,
         "num_key_value_heads": 4, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5}
MODELS = {
    "sparse": {**SIZES, "model_type": "mixtral", "intermediate_size": 3584, "num_local_experts": 8,
               "num_experts_per_tok": 2},
    "dense": {**SIZES, "model_type": "llama", "intermediate_size": 7168},
}
DECODE_LIMIT = 1.15
PREFILL_LIMIT = 1.25
TURNS = 3


def bench(args, folder, model, options):
    """The records of a run of `sinter bench model`."""
    path = os.path.join(folder, "records.json")
    command = [args.sinter, "bench", "model", os.path.join(folder, model), "--no-check", "--levels", "4",
               "--rounds", str(args.rounds), "--json", path, *options]
    if os.path.exists(path):
        os.remove(path)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with open(path) as f:
        return [r for r in map(json.loads, f) if r["kind"] == "model"]


def decode(args, folder):
    print("| weights | tokens/s | time, of what the bandwidth allows |\n|---|---|---|")
    ok = True
    for w in args.weights.split(","):
        (r,) = bench(args, folder, "sparse", ["--decode", "--tokens", "64", "--weights", w, "--seconds", "0.2"])
        ratio = 100 / r["pct_roofline"]
        ok &= ratio <= DECODE_LIMIT
        print(f"| {w} | {1000 / r['ms_median']:.1f} | {ratio:.2f} |", flush=True)
    return ok


def prefill(args, folder, records):
    print("\n| weights | tokens | ms | time, of a dense layer's |\n|---|---|---|---|")
    ok = True
    for w in args.weights.split(","):
        times = {"sparse": [], "dense": []}
        for _ in range(TURNS):
            for model, runs in times.items():
                runs.append(bench(args, folder, model, ["--tokens", args.tokens, "--weights", w, "--seconds", "0.1"]))
        for i, n in enumerate(args.tokens.split(",")):
            ms = {m: statistics.median(r[i]["ms_median"] for r in runs) for m, runs in times.items()}
            ratio = ms["sparse"] / ms["dense"]
            ok &= ratio <= PREFILL_LIMIT
            records.append({"name": f"experts, {w}", "shape": n, "backend": "native", "level": 4, "of_dense": ratio,
                            "ms_median": ms["sparse"], **ms})
            print(f"| {w} | {n} | {ms['sparse']:.1f} | {ratio:.2f} |", flush=True)
    return ok


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = os.path.dirname(os.path.abspath(__file__))
    p.add_argument("--sinter", default=os.path.join(here, "..", "build", "release", "tools", "sinter"))
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--weights", default="bf16,int4")
    p.add_argument("--only", choices=("decode", "prefill"))
    p.add_argument("--layers", type=int, default=8)
    p.add_argument("--tokens", default="64,256,1024")
    p.add_argument("--json", metavar="FILE")
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, config in MODELS.items():
            os.mkdir(os.path.join(folder, name))
            with open(os.path.join(folder, name, "config.json"), "w") as f:
                json.dump({**config, "num_hidden_layers": args.layers}, f)
        records = []
        ok = args.only == "prefill" or decode(args, folder)
        if args.only != "decode":
            ok &= prefill(args, folder, records)
    if args.json:
        with open(args.json, "w") as f:
            f.writelines(json.dumps(r) + "\n" for r in records)
    sys.exit(not ok)


if __name__ == "__main__":
    main()
