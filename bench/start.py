#!/usr/bin/env python3
"""start.py: from exec to the first token: programs of `sinter compile --exe`, by storage of the weights and kind of linking.

usage: bench/start.py [--sinter FILE] [--rounds N] [--prompt-ids IDS] MODEL

Compiles MODEL in each way, then runs all programs in turns, for one token after a prompt, with weights in memory. Prints the
least and the median time of a process in ms, its page faults, and those of `true`, which does nothing."""
import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
WAYS = {
    "f32": [], "f32, static": ["--static"], "f32, static, one thread": ["--static", "--threads", "none"],
    "bf16, static": ["--weights", "bf16", "--static"], "int8, static": ["--weights", "int8", "--static"],
    "int8, products of int8, static": ["--weights", "int8", "--compute", "int8", "--static"],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("usage:")[0])
    parser.add_argument("--sinter", default=os.path.join(ROOT, "build/release/tools/sinter"))
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--prompt-ids", default="1 403 407 471")
    parser.add_argument("model")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        commands = {"true": ["true"]}
        for i, (name, options) in enumerate(WAYS.items()):
            out = os.path.join(folder, str(i))
            r = subprocess.run([args.sinter, "compile", args.model, "--name", "story", "-o", out, "--exe", *options],
                               capture_output=True, text=True)
            if r.returncode:
                sys.exit(f"{name}: {r.stderr}")
            commands[name] = [out + "/story", "--prompt-ids", args.prompt_ids, "-n", "1", "--print-ids"]
        times, faults = {name: [] for name in commands}, {}
        for n in range(args.rounds + 1):  # the first one brings files into memory
            for name, command in commands.items():
                before, begin = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt, time.perf_counter()
                pid = os.posix_spawnp(command[0], command, os.environ, file_actions=[
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)])
                status = os.waitpid(pid, 0)[1]
                ms = (time.perf_counter() - begin) * 1e3
                if status:
                    sys.exit(f"{name}: {' '.join(command)} failed")
                faults[name] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt - before
                if n:
                    times[name].append(ms)
    print("| | least, ms | median, ms | page faults |\n|---|---|---|---|")
    for name, found in times.items():
        print(f"| {name} | {min(found):.1f} | {statistics.median(found):.1f} | {faults[name]} |")


if __name__ == "__main__":
    main()
