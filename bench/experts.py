#!/usr/bin/env python3
"""experts.py: what a mixture of experts costs: decoding against the bandwidth for the bytes that the
selected experts have, and prefill against a dense model with as many active weights.

usage: bench/experts.py [--sinter FILE] [--rounds N] [--weights f32,bf16,int8,int4]

The model is a Mixtral with 8 experts, 2 per token, width 1024, 3584 hidden units per expert, 8
layers; the dense one has the same layers with 7168 hidden units. Weights are random. Prints two
tables in Markdown; exits with 1 if decoding needs more than 1.15 times what the bandwidth allows.
Nothing else should run on the machine meanwhile."""
import argparse
import json
import os
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


def prefill(args, folder):
    tokens = "64,256,1024"
    print("\n| weights | tokens | ms | time, of a dense layer's |\n|---|---|---|---|")
    for w in args.weights.split(","):
        runs = [bench(args, folder, m, ["--tokens", tokens, "--weights", w]) for m in ("sparse", "dense")]
        for n, s, d in zip(tokens.split(","), *runs):
            print(f"| {w} | {n} | {s['ms_median']:.1f} | {s['ms_median'] / d['ms_median']:.2f} |", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = os.path.dirname(os.path.abspath(__file__))
    p.add_argument("--sinter", default=os.path.join(here, "..", "build", "release", "tools", "sinter"))
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--weights", default="bf16,int4")
    p.add_argument("--only", choices=("decode", "prefill"))
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, config in MODELS.items():
            os.mkdir(os.path.join(folder, name))
            with open(os.path.join(folder, name, "config.json"), "w") as f:
                json.dump(config, f)
        ok = args.only == "prefill" or decode(args, folder)
        if args.only != "decode":
            prefill(args, folder)
    sys.exit(not ok)


if __name__ == "__main__":
    main()
