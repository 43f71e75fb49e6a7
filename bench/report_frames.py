#!/usr/bin/env python3
"""Measures whether the page of `sinter report` stays fluid with 5,000 nodes.

    bench/report_frames.py [--sinter PATH] [--browser PATH] [--rounds 5]

Writes the report of a small variant and opens it in headless Chromium with the fragment #selftest,
where the page lays out a graph of 5,000 nodes and draws 60 frames of it: zooming in from the whole
graph, then moving along it. Rendering is in software, so that a screen with a GPU is faster. A
screen shows a frame every 16.7 ms. Prints medians over the rounds in ms; exits with 1 if the slowest
frame takes more than 50 ms or the median frame more than 16.7 ms.
"""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KEYS = {"layout_5000_ms": "layout", "frame_5000_ms": "median frame", "frame_5000_slowest_ms": "slowest frame"}


def selftest(browser, page, folder):
    out = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                          f"--user-data-dir={folder}/browser", "--window-size=1400,900", "--virtual-time-budget=30000",
                          "--dump-dom", f"file://{page}#selftest"], capture_output=True, text=True, timeout=120)
    found = re.search(r'<pre id="selftest"[^>]*>(.*)</pre>', out.stdout)
    if not found:
        sys.exit("report_frames.py: the page did not test itself")
    return json.loads(found.group(1).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--sinter", default=os.path.join(ROOT, "build/release/tools/sinter"))
    p.add_argument("--browser", default=shutil.which("chromium") or shutil.which("google-chrome"))
    p.add_argument("--rounds", type=int, default=5)
    a = p.parse_args()
    if not a.browser:
        sys.exit("report_frames.py: there is no Chromium; give one with --browser")
    with tempfile.TemporaryDirectory() as folder:
        page = os.path.join(folder, "page.html")
        subprocess.run([a.sinter, "report", os.path.join(ROOT, "examples/variants/alibi.c"), "-e", "forward", "--levels",
                        "none", "--evaluate", "0", "-q", "-o", page], check=True)
        rounds = [selftest(a.browser, page, folder) for _ in range(a.rounds)]
    of = {k: statistics.median(r[k] for r in rounds) for k in KEYS}
    print("5,000 nodes: " + ", ".join(f"{name} {of[k]:.1f} ms" for k, name in KEYS.items()))
    return of["frame_5000_ms"] > 16.7 or of["frame_5000_slowest_ms"] > 50


if __name__ == "__main__":
    sys.exit(main())
