#!/usr/bin/env python3
"""Next-token probabilities of llama.cpp beside those that the tests expect of Sinter.

    bench/gguf_agree.py PEER [MODEL ...]

PEER: a folder where the npm package node-llama-cpp is installed. MODEL: NAME of tests/data/gguf/NAME.gguf
with a vocabulary. tests/model/test_gguf.c holds Sinter to NAME.json; this prints, for the four tokens that
llama.cpp finds most likely after the same ids, both probabilities, and the largest difference. llama.cpp
rounds activations to 8 bits in products with quantised matrices.
"""
import json
import math
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "..", "tests", "data", "gguf")
MODELS = ["llama", "llama3", "qwen2", "qwen3", "phi3", "gemma", "gemma2", "gemma3", "gpt2", "mixtral", "qwen3moe"]


def compare(peer, name):
    with open(os.path.join(DATA, name + ".json")) as f:
        expected = json.load(f)
    top = max(expected["logits"])
    weight = [math.exp(v - top) for v in expected["logits"]]
    path = os.path.join(os.path.abspath(DATA), name + ".gguf")
    command = ["node", os.path.join(HERE, "peers", "llama_cpp.mjs"), "next", path, json.dumps(expected["tokens"])]
    out = subprocess.run(command, cwd=peer, capture_output=True, text=True)
    if out.returncode or not out.stdout.strip():
        sys.exit("%s: %s" % (name, out.stderr.strip()[-400:]))
    rows = [(int(i), float(p), weight[int(i)] / sum(weight)) for i, p in map(str.split, out.stdout.strip().split("\n")[:4])]
    print("%-9s largest difference %.4f; token llama.cpp expected: %s" %
          (name, max((abs(a - b) for _, a, b in rows), key=lambda d: (d != d, d)), ", ".join("%d %.4f %.4f" % r for r in rows)), flush=True)


if len(sys.argv) < 2:
    sys.exit(__doc__)
for model in sys.argv[2:] or MODELS:
    compare(sys.argv[1], model)
