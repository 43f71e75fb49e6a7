#!/usr/bin/python3
# exported.py SINTER [FOLDER]: models that torch exports in five spellings of attention (tests/data/onnx/make_onnx.py) give what
# torch gives, at levels 0 and 4, and each softmax before a product of the ONNX graph has become a part of one kernel. Prints one
# line for each model: what explain says about softmax-product pairs, the largest difference. Needs Debian's python3-torch.
import glob
import os
import re
import subprocess
import sys
import tempfile

import numpy as np


def difference(sinter, path, level, folder):
    """The largest difference of an output, relative to its largest element."""
    data = np.load(path.replace(".onnx", ".npz"))
    given = {k[3:]: data[k] for k in data if k.startswith("in.")}
    while True:
        np.savez(f"{folder}/in.npz", **given)
        done = subprocess.run([sinter, "call", path, "-q", "-t", "1", "--level", str(level), "--cache-dir", "none", "-i",
                               f"{folder}/in.npz", "-o", f"{folder}/out.npz"], capture_output=True, text=True)
        unused = [k for k in given if f"no input or parameter '{k}'" in done.stderr]
        if not unused:
            break
        del given[unused[0]]
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    found = np.load(f"{folder}/out.npz")
    return max(abs(found[k[4:]] - data[k]).max() / abs(data[k]).max() for k in data if k.startswith("out."))


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: exported.py SINTER [FOLDER]")
    sinter, wrong = os.path.abspath(sys.argv[1]), 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = sys.argv[2] if len(sys.argv) > 2 else scratch
        if not glob.glob(f"{folder}/*.onnx"):
            make = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../data/onnx/make_onnx.py")
            subprocess.run([sys.executable, "-W", "ignore", make, folder, "all"], check=True, stdout=subprocess.DEVNULL)
        for path in sorted(glob.glob(f"{folder}/*.onnx")):
            done = subprocess.run([sinter, "explain", path], capture_output=True, text=True)
            if done.returncode:
                sys.exit(done.stderr.strip())
            counts = re.search(r"attention: (\d+) of (\d+) softmax-product pairs", done.stdout)
            found, all_pairs = map(int, counts.groups()) if counts else (0, 0)
            worst = max(difference(sinter, path, level, scratch) for level in (0, 4))
            bad = found != all_pairs or worst > 1e-4
            wrong += bad
            print(f"{'FAILED' if bad else 'ok':6} {os.path.basename(path):24} {found} of {all_pairs} fused, {worst:.1e}", flush=True)
    sys.exit(1 if wrong else 0)


main()
