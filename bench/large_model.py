#!/usr/bin/env python3
"""Opens and runs a Llama of billions of parameters and compares it with the disk and the memory.

    bench/large_model.py [--size 7B] [--kinds bf16,int4] [--tokens 16] [--prompt 1] [--folder DIR] [--keep]
                         [--json FILE]

Makes the model with random bf16 weights (make_llama.py; 7B: 13.5 GB) unless it is there, and
deletes it afterwards if it made it. For each storage of the weights, in this order:

  read      seconds to read the files of the model, with the page cache emptied before
  first     the same for `sinter generate` until its first token: files and weights not cached,
            kernels compiled before
  again     until the first token of a second start: files, and packed weights if the storage takes
            at most 4 GiB, in the page cache
  anon, hwm the process's largest anonymous memory, and largest memory with mapped files (VmHWM)
  tokens/s  of decoding
  % bw      bytes of the matrices that a token reads, times tokens/s, over the bandwidth at which
            `sinter bench roofline` reads memory, measured right after it

A virtual machine gets its memory from its host at the first touch, here and there at half a GB/s.
That is neither the disk's speed nor the program's, so before each timing with an empty page cache
a process touches as much memory as is free (--no-touch omits that).

Targets for 7B: first at most 1.3 read; anon under 15 GB (bf16) and 5 GB (int4); 90 % (bf16), 85 %
(int4) of the bandwidth; for 1.1B: again under 1 s. Run it on an idle machine.
"""
import argparse
import glob
import json
import mmap
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import make_llama

HERE = os.path.dirname(os.path.abspath(__file__))
BYTES = {"f32": 4, "bf16": 2, "int8": 1, "int4": 0.5625}


def forget(paths):
    """Empties the page cache of these files."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def touch_free_memory():
    """Makes the host of a virtual machine supply the free memory; a child, so that all is freed."""
    child = os.fork()
    if not child:
        with open("/proc/meminfo") as f:
            free = int(re.search(r"MemFree:\s+(\d+)", f.read()).group(1)) * 1024
        with mmap.mmap(-1, max(free - (1 << 30), mmap.PAGESIZE), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as m:
            if hasattr(mmap, "MADV_HUGEPAGE"):
                m.madvise(mmap.MADV_HUGEPAGE)
            for at in range(0, len(m), mmap.PAGESIZE):
                m[at] = 1
        os._exit(0)
    os.waitpid(child, 0)


def read(paths):
    buffer, begin = bytearray(1 << 24), time.time()
    for path in paths:
        with open(path, "rb", buffering=0) as f:
            while f.readinto(buffer):
                pass
    return time.time() - begin


def status(pid):
    try:
        with open(f"/proc/{pid}/status") as f:
            return {k: int(v) * 1024 for k, v in re.findall(r"^(\w+):\s+(\d+) kB", f.read(), re.M)}
    except OSError:
        return {}


class Run:
    """A command: seconds until its first output, largest memory, tokens a second of decoding."""

    def __init__(self, command):
        self.first = self.anon = self.hwm = 0
        begin = time.time()
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as p:
            def wait():
                p.stdout.read(1)
                self.first = time.time() - begin
                p.stdout.read()
            thread = threading.Thread(target=wait)
            thread.start()
            while p.poll() is None:
                now = status(p.pid)
                self.anon = max(self.anon, now.get("RssAnon", 0))
                self.hwm = max(self.hwm, now.get("VmHWM", 0))
                time.sleep(0.01)
            thread.join()
            text = p.stderr.read().decode()
        if p.returncode:
            sys.exit(f"{' '.join(command)}: {text}")
        self.text = text
        found = re.search(r"decode\s+(\d+) tokens in ([\d.]+) ms", text)
        self.speed = int(found.group(1)) / float(found.group(2)) * 1e3 if found else float("nan")


def bandwidth(sinter, threads):
    with tempfile.TemporaryDirectory() as out:
        path = os.path.join(out, "roofline.json")
        subprocess.run([sinter, "bench", "roofline", "-t", str(threads), "--rounds", "5", "--json",
                        path], check=True, stdout=subprocess.DEVNULL)
        with open(path) as f:
            rows = [json.loads(line) for line in f]
    return next(r["gbytes_s"] for r in rows
                if r.get("name") == "read" and r["shape"].startswith("memory"))


def matrices(size):
    """Numbers that a token reads: all matrices but the table in which it is looked up."""
    every = make_llama.tensors(*make_llama.SIZES[size], False)
    return sum(s[0] * s[1] for name, s in every if len(s) == 2 and "embed" not in name)


def empty(o, files):
    forget(files)
    if not o.no_touch:
        touch_free_memory()


def measure(o, model, kind):
    cache = os.path.join(o.folder, "cache")
    files = sorted(glob.glob(os.path.join(model, "*.safetensors")))
    command = [o.sinter, "generate", model, "--weights", kind, "--ignore-eos", "-s", "--temperature",
               "0", "-t", str(o.threads), "--compute", o.compute, "--cache-dir", cache, "-n", str(o.tokens),
               "--prompt-ids", " ".join(str(i % 500 + 3) for i in range(o.prompt))]
    if o.context:
        command += ["--context", str(o.context)]
    subprocess.run([o.sinter, "explain", model, "--weights", kind, "--compute", o.compute, "--cache-dir", cache, "-t",
                    str(o.threads)] + (["--context", str(o.context)] if o.context else []),
                   check=True, stdout=subprocess.DEVNULL)  # compiles the kernels
    plain = float("nan")
    if not o.warm:
        empty(o, files)
        plain = read(files)
        empty(o, files)
    cold = Run(command)
    again = Run(command)
    rate = bandwidth(o.sinter, o.threads)
    share = matrices(o.size) * BYTES[kind] * again.speed / rate / 1e9
    print(f"{kind:6}{plain:8.2f}{cold.first:8.2f}{cold.first / plain:8.2f}{again.first:8.2f}"
          f"{max(cold.anon, again.anon) / 1e9:9.2f}{max(cold.hwm, again.hwm) / 1e9:8.2f}"
          f"{again.speed:10.2f}{rate:8.1f}{100 * share:8.1f}", flush=True)
    if o.verbose:
        print(again.text.strip(), flush=True)
    if o.json:
        with open(o.json, "a") as f:
            print(json.dumps({"name": f"llama-{o.size} decode", "shape": kind, "backend": "native", "level": 4,
                              "ms_median": 1e3 / again.speed, "pct_roofline": 100 * share, "pct_run_peak": None}),
                  file=f)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    a.add_argument("--sinter", default=os.path.join(HERE, "../build/release/tools/sinter"))
    a.add_argument("--folder", help="where models and packed weights are; default: a temporary one")
    a.add_argument("--size", default="7B", choices=make_llama.SIZES)
    a.add_argument("--kinds", default="bf16,int4")
    a.add_argument("--tokens", type=int, default=16, help="tokens to generate")
    a.add_argument("--prompt", type=int, default=1, help="tokens of the prompt")
    a.add_argument("--context", type=int, default=0, help="0: 2048")
    a.add_argument("--threads", type=int, default=2)
    a.add_argument("--warm", action="store_true", help="leave the page cache as it is")
    a.add_argument("--no-touch", action="store_true", help="do not touch free memory beforehand")
    a.add_argument("--compute", default="f32", choices=["f32", "int8"], help="arithmetic of decoding")
    a.add_argument("--keep", action="store_true", help="do not delete a model that was made")
    a.add_argument("--json", metavar="FILE", help="appends a record per storage, as bench/claims.py reads them")
    a.add_argument("--verbose", action="store_true", help="statistics of the second start")
    o = a.parse_args()
    made = None
    if not o.folder:
        made = o.folder = tempfile.mkdtemp(prefix="large_model_")
    model = os.path.join(o.folder, f"llama-{o.size}")
    try:
        if not os.path.exists(os.path.join(model, "config.json")):
            made = made or model
            subprocess.run([sys.executable, os.path.join(HERE, "make_llama.py"), model, "--size",
                            o.size], check=True)
        print("          read   first   ratio   again  anon GB  hwm GB  tokens/s    GB/s    % bw")
        for kind in o.kinds.split(","):
            measure(o, model, kind)
    finally:
        shutil.rmtree(os.path.join(o.folder, "cache"), ignore_errors=True)
        if made and not o.keep:
            shutil.rmtree(made, ignore_errors=True)


if __name__ == "__main__":
    main()
