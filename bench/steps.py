"""steps.py: runs `sinter train` on one or several ranks and reads what its steps took; for the scripts of this folder.

What it starts precedes other programs on this machine, where the system allows that (root)."""
import json
import os
import shlex
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
SINTER = os.path.join(ROOT, "build/release/tools/sinter")
MPIRUN = "mpirun.openmpi --oversubscribe --allow-run-as-root --bind-to none"
GPT2 = {"model_type": "gpt2", "n_positions": 256, "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257}


def precede():
    """In a new process: the highest priority, also of its group of processes, by which Linux divides CPUs first."""
    try:
        os.nice(-20)
        with open("/proc/self/autogroup", "w") as f:
            f.write("-20")
    except OSError:
        pass


def run(command, folder=None, **variables):
    """Runs in the folder, so that a config's paths hold; returns what it printed."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder,
                          start_new_session=True, preexec_fn=precede, env={**os.environ, **variables})
    if done.returncode:
        sys.exit(f"{shlex.join(command)}\n{done.stdout}")
    return done.stdout


def read_settings(config):
    """Settings of a config whose text is found from anywhere, that validates never and logs each step."""
    with open(config) as f:
        settings = json.load(f)
    settings["data"].update(text=os.path.join(os.path.dirname(os.path.abspath(config)), settings["data"]["text"]),
                            validation_part=0)
    settings["schedule"].update(warmup=1)
    settings["training"].update(log_every=1)
    return settings


def train(o, config, out, ranks, threads, *options, **variables):
    """Milliseconds of each step but the first one, which touches its memory for the first time, and what it printed.
    o.sinter, o.mpirun: the program, and a command that starts ranks."""
    launcher = shlex.split(o.mpirun) + ["-n", str(ranks)] if ranks > 1 else []
    text = run([*launcher, os.path.abspath(o.sinter), "train", config, "-o", out, "-t", str(threads), *options],
               **variables)
    with open(os.path.join(out, "metrics.jsonl")) as f:
        end = [1e3 * json.loads(line)["seconds"] for line in f]
    return [b - a for a, b in zip(end, end[1:])], text
