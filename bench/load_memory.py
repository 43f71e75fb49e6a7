#!/usr/bin/env python3
"""Measures memory and time for opening a model, for each storage type of its weights.

    bench/load_memory.py [--sinter PATH] [--folder DIR] [--size 0.2B|1.1B] [--tied] [--artefact]

Makes a llama folder of random bf16 weights (make_llama.py) unless it is there, runs `sinter
generate` on it and samples the anonymous memory of the process (RssAnon: without pages of mapped
files) 200 times a second. Runs before the measured one fill the cache of kernels. 'weights' is the
size of the file that `sinter compile` writes: the weights in the form that the kernels read them.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
MB = 1e6


def status(pid, key):
    try:
        with open(f"/proc/{pid}/status") as f:
            found = re.search(rf"^{key}:\s+(\d+) kB", f.read(), re.M)
    except OSError:
        return 0
    return int(found.group(1)) * 1024 if found else 0


def run(command):
    """Seconds, maximum RssAnon, maximum RssAnon + RssFile (VmHWM), and the output."""
    begin, anon, peak = time.time(), 0, 0
    p = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while p.poll() is None:
        anon = max(anon, status(p.pid, "RssAnon"))
        peak = max(peak, status(p.pid, "VmHWM"))
        time.sleep(0.005)
    text = p.stderr.read()
    if p.returncode:
        sys.exit(f"{' '.join(command)}: {text}")
    return time.time() - begin, anon, peak, text


def weights_size(o, model, kind):
    with tempfile.TemporaryDirectory() as out:
        subprocess.run([o.sinter, "compile", model, "-o", out, "--name", "model", "--weights", kind],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return os.path.getsize(os.path.join(out, "model.weights"))


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    a.add_argument("--sinter", default=os.path.join(HERE, "../build/release/tools/sinter"))
    a.add_argument("--folder", help="where models are made; else the folder of temporary files")
    a.add_argument("--size", default="0.2B")
    a.add_argument("--tied", action="store_true")
    a.add_argument("--kinds", default="f32,bf16,int8,int4")
    a.add_argument("--artefact", action="store_true", help="size of the .weights files, too")
    a.add_argument("--decode", action="store_true", help="a prompt of 128 tokens, 32 new ones")
    o = a.parse_args()
    folder = o.folder or tempfile.gettempdir()
    model = os.path.join(folder, f"llama-{o.size}{'-tied' if o.tied else ''}")
    if not os.path.exists(os.path.join(model, "config.json")):
        subprocess.run([sys.executable, os.path.join(HERE, "make_llama.py"), model, "--size",
                        o.size] + ["--tied"] * o.tied, check=True)
    n = 128 if o.decode else 1
    print(f"{'storage':8}{'seconds':>9}{'anonymous MB':>14}{'with file MB':>14}{'weights MB':>12}")
    for kind in o.kinds.split(","):
        command = [o.sinter, "generate", model, "--weights", kind, "--ignore-eos", "-s",
                   "--prompt-ids", " ".join(str(i % 500 + 3) for i in range(n)),
                   "-n", "32" if o.decode else "1"]
        run(command)
        seconds, anon, peak, text = run(command)
        size = f"{weights_size(o, model, kind) / MB:12.1f}" if o.artefact else f"{'':12}"
        print(f"{kind:8}{seconds:9.2f}{anon / MB:14.1f}{peak / MB:14.1f}{size}", flush=True)
        if o.decode:
            print("        " + text.strip().replace("\n", "\n        "), flush=True)


if __name__ == "__main__":
    main()
