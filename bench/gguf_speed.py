#!/usr/bin/env python3
"""Speed of GGUF files beside llama.cpp: tokens a second of prefill and decode for each format.

    bench/gguf_speed.py SINTER PEER [FORMAT ...]

SINTER: the program. PEER: a folder where the npm package node-llama-cpp is installed. Models of 311
million random parameters (bench/peers/random_gguf.py, which needs NumPy) are written to $GGUF_MODELS,
or a temporary folder. Both read about 256 tokens, then write 32, on 2 threads, in turns: Sinter with
--compute f32 and int8, then llama.cpp, which rounds activations to 8 bits. The table has medians of the
rounds, and the ratio of int8 to llama.cpp. Sinter uses the blocks as stored.
"""
import os
import re
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.environ.get("PYTHON", "/usr/bin/python3")
FORMATS = ["F16", "Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q5_K", "Q6_K"]
COMPUTE = ["f32", "int8"]
ROUNDS, THREADS, PROMPT, TOKENS = 3, "2", 256, 32
TEXT = "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ 0123456789 " * 4


def run(command, folder=None):
    r = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace")
    if r.returncode:
        sys.exit("%s: %s" % (" ".join(command[:3]), r.stderr.strip()[-400:]))
    return r.stdout + r.stderr


def sinter(program, path, compute):
    out = run([program, "generate", path, "-t", THREADS, "-p", TEXT[:PROMPT - 1], "-n", str(TOKENS), "--temperature",
               "0", "--stats", "--compute", compute])
    return [float(re.search(name + r" .*: (\d+(?:\.\d+)?) tokens/s", out).group(1)) for name in ("prefill", "decode")]


def peer(folder, path):
    out = run(["node", os.path.join(HERE, "peers", "llama_cpp.mjs"), "speed", path, str(PROMPT), str(TOKENS), THREADS],
              folder)
    rounds = re.findall(r"prefill ([\d.]+), decode ([\d.]+)", out)
    return [statistics.median(float(r[i]) for r in rounds) for i in range(2)]


def measure(program, folder, path):
    for c in COMPUTE:
        sinter(program, path, c)  # compiles
    rounds = [[sinter(program, path, c) for c in COMPUTE] + [peer(folder, path)] for _ in range(ROUNDS)]
    return [[statistics.median(r[who][i] for r in rounds) for i in range(2)] for who in range(3)]


def main(program, folder, *formats):
    models = os.environ.get("GGUF_MODELS") or tempfile.mkdtemp()
    print("| format | prefill: f32 | int8 | llama.cpp | ratio | decode: f32 | int8 | llama.cpp | ratio |")
    print("|---|---|---|---|---|---|---|---|---|")
    for kind in formats or FORMATS:
        path = os.path.join(models, "random-%s.gguf" % kind)
        if not os.path.exists(path):
            run([PYTHON, os.path.join(HERE, "peers", "random_gguf.py"), path, kind])
        medians = measure(os.path.abspath(program), folder, path)
        cells = ["%.0f | %.0f | %.0f | %.2f" % (f, i, t, i / t) for f, i, t in zip(*medians)]
        print("| %s | %s |" % (kind, " | ".join(cells)), flush=True)
        if "GGUF_MODELS" not in os.environ:
            os.remove(path)


if len(sys.argv) < 3:
    sys.exit(__doc__)
main(*sys.argv[1:])
