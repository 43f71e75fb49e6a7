#!/usr/bin/env python3
"""run.py: how many of the mistakes that are planted in Sinter its default tests find.

usage: tests/mutation/run.py FOLDER [--sample N] [--seed N] [--lines N] [--jobs N] [--budget SECONDS] [ROOM ...]

Exports the commit to FOLDER, plants mistakes in the C files of the rooms (default: kernels, passes, graphs, parsers; plant.py),
builds once, notes which tests run each place, and draws N of the places. A mistake that at least one test runs is tried with
those tests, the quickest first, until one fails or SECONDS of them have passed. Each run has a cache of kernels of its own.
FOLDER keeps all of it: called again, run.py goes on where it stopped. FOLDER/results.jsonl has a line for each mistake; what no
test found is printed with its place. Takes ten minutes and about 10 s for each mistake. Not all that is left is a fault of the
tests: some mistakes change speed, memory or nothing."""
import argparse
import collections
import concurrent.futures
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOMS = ["codegen/attention", "codegen/gemm", "codegen/recurrence", "codegen/rows", "codegen/tile", "codegen/emit", "passes", "ir", "frontend",
         "runtime/files", "model/tokenizer", "model/text"]
HERE = os.path.dirname(os.path.realpath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))

def call(*command, **options):
    return subprocess.run(command, check=True, **options)

def read(path, default=None):
    if not os.path.exists(path):
        return default
    with open(path) as f:
        return json.load(f)

def write(path, value):
    with open(path + ".part", "w") as f:
        json.dump(value, f)
    os.replace(path + ".part", path)

class Tree:
    """The tree with mistakes: FOLDER/tree, built in FOLDER/build."""

    def __init__(self, folder):
        self.folder, self.tree, self.build = folder, os.path.join(folder, "tree"), os.path.join(folder, "build")

    def path(self, name):
        return os.path.join(self.folder, name)

    def plant(self, args):
        shutil.rmtree(self.tree, ignore_errors=True)
        os.makedirs(self.tree)
        archive = call("git", "-C", SOURCE, "archive", "HEAD", stdout=subprocess.PIPE).stdout
        call("tar", "-x", "-C", self.tree, input=archive)
        if not os.path.exists(self.path("commands.json")):
            self.configure("-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
            shutil.copy(os.path.join(self.build, "compile_commands.json"), self.path("commands.json"))
        files = [os.path.relpath(os.path.join(d, f), self.tree) for room in args.room for d, _, names in os.walk(os.path.join(self.tree, room))
                 for f in names if f.endswith(".c")]
        call(sys.executable, os.path.join(HERE, "plant.py"), self.tree, self.path("commands.json"), self.path("places.json"),
             "--lines", str(args.lines), "--seed", str(args.seed), "--without", self.path("without.json"), *files)
        # programs for Windows are built by a command of their own; mistakes make warnings
        header = os.path.join(HERE, "mutation.h")
        with open(os.path.join(self.tree, "cmake/windows.cmake"), "r+") as f:
            text = re.sub(r"-Wall -Wextra -Wpedantic -Werror", f"-w -include {header}", f.read())
            f.seek(0)
            f.write(text)
            f.truncate()
        self.configure(f"-DCMAKE_C_FLAGS=-w -include {header}", "-DCMAKE_CXX_FLAGS=-w")

    def configure(self, *options):
        call("cmake", "-S", self.tree, "-B", self.build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", *options, stdout=subprocess.DEVNULL)

    def make(self, args):
        """Builds; places that do not compile are left out, until all compile."""
        while True:
            log = subprocess.run(["ninja", "-k", "0", "-C", self.build], stdout=subprocess.PIPE, text=True)
            if not log.returncode:
                return
            without = set(read(self.path("without.json"), []))
            found = {i for m in re.finditer(r"^(\S+\.c):(\d+):\d+: error:", log.stdout, re.M) for i in self.nearest(m.group(1), int(m.group(2)))}
            if found <= without:
                sys.exit(f"run.py: the tree with mistakes does not build:\n{log.stdout[-2000:]}")
            write(self.path("without.json"), sorted(without | found))
            self.plant(args)

    def nearest(self, path, line):
        """The mistakes at the line, or as near as there are any."""
        with open(os.path.join(self.build, path), encoding="latin1") as f:
            lines = f.read().split("\n")
        for far in range(8):
            found = re.findall(r"sn_mistake\((\d+)\)", "\n".join(lines[max(0, line - 1 - far):line + far]))
            if found:
                return map(int, found)
        return []

    def tests(self):
        shown = json.loads(call("ctest", "--test-dir", self.build, "--show-only=json-v1", "-LE", "long", stdout=subprocess.PIPE).stdout)
        tests = {}
        for t in shown["tests"]:
            p = {x["name"]: x["value"] for x in t.get("properties", [])}
            tests[t["name"]] = {"command": t["command"], "folder": p.get("WORKING_DIRECTORY", self.build), "skip": p.get("SKIP_RETURN_CODE"),
                                "environment": dict(e.split("=", 1) for e in p.get("ENVIRONMENT", []))}
        return tests

def alone():
    """A session of its own, so that all its processes can be ended, and limits for mistakes that never stop writing."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 30, 2 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

def run(test, limit, **environment):
    """(whether it passes, seconds)"""
    with tempfile.TemporaryDirectory(prefix="mutation", ignore_cleanup_errors=True) as folder:
        own = {**os.environ, **test["environment"], **environment, "XDG_CACHE_HOME": os.path.join(folder, "cache"), "TMPDIR": folder}
        begun = time.monotonic()
        p = subprocess.Popen(test["command"], cwd=test["folder"], env=own, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL, preexec_fn=alone)
        try:
            code = p.wait(limit)
        except subprocess.TimeoutExpired:
            code = "timeout"
        try:
            os.killpg(p.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        p.wait()
        return code == 0 or code == test["skip"] is not None, time.monotonic() - begun

def cover(tree, tests, jobs):
    """{test: {seconds, places that it runs}} of the tests that pass without a mistake"""
    def one(name):
        with tempfile.NamedTemporaryFile() as seen:
            seen.truncate(1 << 16)
            passes, seconds = run(tests[name], 1200, SN_MISTAKE="-1", SN_MISTAKES_SEEN=seen.name)
            return name, {"seconds": seconds, "places": [i for i, b in enumerate(seen.read()) if b]} if passes else None

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        covered = dict(pool.map(one, tests))
    for name in [n for n, c in covered.items() if not c]:
        print(f"run.py: {name} fails without a mistake and is left out", file=sys.stderr)
    return {n: c for n, c in covered.items() if c}

def try_all(tree, tests, covered, drawn, args):
    """Adds a line to results.jsonl for each mistake that has none."""
    path, locks, finds = tree.path("results.jsonl"), {n: threading.Lock() for n in tests}, collections.Counter()
    done = {r["id"] for r in results(tree)}

    def one(place):
        names = [n for n, c in covered.items() if place["id"] in c["places"]]
        # quickest first, but a test that found mistakes in the same file comes sooner
        names.sort(key=lambda n: covered[n]["seconds"] / (1 + 4 * finds[place["file"], n]))
        spent, tried, finder = 0, 0, None
        for n in names:
            if finder or spent > args.budget:
                break
            with locks[n]:
                passes, seconds = run(tests[n], 6 * covered[n]["seconds"] + 15, SN_MISTAKE=str(place["id"]))
            spent, tried, finder = spent + seconds, tried + 1, None if passes else n
        finds[place["file"], finder] += 1
        return {**place, "found_by": finder, "tried": tried, "tests": len(names)}

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool, open(path, "a") as f:
        for r in pool.map(one, [p for p in drawn if p["id"] not in done]):
            f.write(json.dumps(r) + "\n")
            f.flush()

def results(tree):
    path = tree.path("results.jsonl")
    if not os.path.exists(path):
        return []
    with open(path) as f:
        return [json.loads(line) for line in f]

def report(all_results):
    rooms = collections.defaultdict(lambda: [0, 0])
    for r in sorted(all_results, key=lambda r: r["id"]):
        room = rooms["/".join(r["file"].split("/")[:-1])]
        room[0] += 1
        room[1] += r["found_by"] is not None
        if not r["found_by"]:
            how = f"{r['tried']} of {r['tests']} tests tried" if r["tests"] else "run by no test"
            print(f"{r['file']}:{r['line']}: {r['what']}: {r['old'][:100]} ({how})")
    for name, (all_, found) in sorted(rooms.items()):
        print(f"{name:24} {found:5} of {all_:5} found")
    print(f"{'all':24} {sum(f for _, f in rooms.values()):5} of {sum(a for a, _ in rooms.values()):5} found")

def main():
    args = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0])
    args.add_argument("folder")
    args.add_argument("--sample", type=int, default=300)
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--lines", type=int, default=14)
    args.add_argument("--jobs", type=int, default=os.cpu_count())
    args.add_argument("--budget", type=float, default=60)
    args.add_argument("room", nargs="*", default=ROOMS)
    args = args.parse_args()
    tree = Tree(os.path.realpath(args.folder))
    if not os.path.exists(tree.path("covered.json")):
        tree.plant(args)
        tree.make(args)
        write(tree.path("covered.json"), cover(tree, tree.tests(), args.jobs))
    places = read(tree.path("places.json"))
    drawn = random.Random(args.seed).sample(places, min(args.sample, len(places)))
    try_all(tree, tree.tests(), read(tree.path("covered.json")), drawn, args)
    report(results(tree))

main()
