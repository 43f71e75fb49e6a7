#!/usr/bin/env python3
"""claims.py: measures all claims about speed and accuracy; one row per claim, with its target.

usage: bench/claims.py [--sinter FILE] [--rounds N] [--list] [RUN ...]     (no RUN: all of them)

A run is one call of `sinter bench`, in which ours, the machine's limits and the peers take turns
(docs/bench.md); every figure below is a ratio within one run. Peers that are not installed are
skipped, and so are the claims about them. Prints a table in Markdown; exits with 1 if a claim is
not met. Nothing else should run on the machine meanwhile."""
import argparse
import json
import os
import subprocess
import sys
import tempfile

PEERS = "--peers onnxruntime,torch,torch-malloc"
MASKS = ("full,causal,window:256,prefix:128,alibi,softcap,documents,dilated:4,blocks:128,"
         "strided:128,neighbours:32,dense,bias,biases,relative,buckets,swin:32")

# run: options of `sinter bench`
RUNS = {
    "gemm": "gemm --no-check --shape '1024,3072,768 1024,768,3072 1024,768,768 4096,4096,4096 "
            "1024,50257,768 128,768,768 64,768,768 64,50257,768'",
    "neighbour": f"gemm --no-check --neighbour 1 --threads {max(1, (os.cpu_count() or 2) - 1)} "
                 "--shape '1024,3072,768 1024,768,3072 1024,768,768 "
                 "4096,4096,4096 1024,50257,768 128,768,768 64,768,768 64,50257,768'",
    "narrow": "gemm --no-check --shape '64,2,768 512,1,512 512,4,512 256,16,768 512,512,13 1024,768,13'",
    "row": "gemm --no-check --shape '1,768,3072 1,3072,768'",
    "fused": "kernel linear,linear_bias_gelu,linear_down,linear_residual --no-check --levels 4",
    "kernels": "kernel layer_norm,softmax,gelu,gelu_erf --no-check --levels 4 --seconds 0.1",
    "attention": "attention --no-check --levels 4 --mask full,causal "
                 "--shape '1,12,1024,64 1,32,2048,128 8,12,128,64'",
    "masks": f"attention --no-check --levels 4 --mask {MASKS} --shape '1,12,1024,64 1,12,4096,64'",
    "weights": "attention --no-check --levels 0,4 --mask causal,retention,sigmoid,relu2 --shape 1,12,1024,64",
    "weights-backward": "attention --no-check --backward --levels 4 --mask causal,retention,sigmoid,relu2 "
                        "--shape 1,12,1024,64",
    "plain": "attention --no-check --levels 0,4 --mask causal,plain-retention,plain-sigmoid,plain-relu2 "
             "--shape 1,12,1024,64",
    "sinks": "attention --no-check --levels 4 --mask causal,sink,sink-column,sink-term,sink-gate,sink-one "
             "--shape 1,12,1024,64",
    "sinks-backward": "attention --no-check --backward --levels 4 "
                      "--mask causal,sink,sink-column,sink-term,sink-gate,sink-one --shape 1,12,1024,64",
    "talking": "attention --no-check --levels 0,4 --mask talking,talking-causal --shape 1,12,1024,64",
    "recurrences": "kernel gla,mamba2,gated_deltanet,rwkv7 --no-check --levels 0,4",
    "recurrences-backward": "kernel gla_backward,mamba2_backward,gated_deltanet_backward,rwkv7_backward --no-check --levels 4",
    "sweep": "attention --no-check --sweep",
    "backward": "attention --no-check --backward --levels 4 --mask full,causal --shape 1,12,1024,64",
    "gpt2": f"model gpt2 --no-check --levels 4 {PEERS} --tokens 64,256,1024",
    "bert": f"model bert-base --no-check --levels 4 {PEERS} --tokens 128",
    "bert8": f"model bert-base --no-check --levels 4 {PEERS} --tokens 128 --batch 8",
    "edt": f"model edt-base --no-check --levels 4 {PEERS} --tokens 64 --batch 8",
    **{f"decode-{w}": f"model gpt2 --no-check --decode --tokens 64,512 --levels 4 --seconds 0.2 "
                      f"--weights {w}" for w in ("f32", "bf16", "int8", "int4")},
    "decode-int4-int8": "model gpt2 --no-check --decode --tokens 64,512 --levels 4 --seconds 0.2 "
                        "--weights int4 --compute int8",
    "gemm-int8": "gemm --no-check --compute int8 "
                 "--shape '1024,3072,768 1024,768,3072 4096,4096,4096'",
    "gpt2-int8": "model gpt2 --no-check --levels 4 --compute int8 --tokens 256,1024 " + PEERS,
    "bert8-int8": "model bert-base --no-check --levels 4 --compute int8 --tokens 128 --batch 8",
    "cold": "model gpt2 --no-check --levels 4 --tokens 64 --cache-dir none",
    "cold-train": "train gpt2 --no-check --levels 4 --tokens 64 --cache-dir none",
    "train": "train gpt2 --no-check --peers torch,torch-malloc --tokens 64,256 --cache-dir none",
    "train-edt": "train edt-base --no-check --peers torch,torch-malloc --tokens 64 --batch 8",
}


# run: a script of this folder; models that it needs are options of claims.py, too
SCRIPTS = {"few-bits": "quantised.py", "ranks": "ranks.py", "ranks-gpt2": "ranks.py --gpt2 --steps 3",
           "plan": "plan.py", "traffic": "traffic.py", "overlap": "overlap.py",
           "overlap-gpt2": "overlap.py --gpt2 --rounds 1 --ways 2:0", "recurrent": "recurrent.py",
           "selective-scan": "selective_scan.py",
           "large-int4-int8": "large_model.py --size 1.1B --kinds int4 --compute int8 --warm --tokens 64",
           "experts": "experts.py --only prefill --layers 2 --weights bf16"}
MODELS = ("stories", "shakespeare", "minilm")


def share(run, name, shape, least):
    """minimum percentage of the limit: of the run's multiply-add peak, or of the streaming bandwidth"""
    return (run, name, shape, "% of the limit",
            lambda of: of()["pct_run_peak"] or of()["pct_roofline"], ">=", least)


def faster(run, name, shape, peer, least):
    """minimum speed-up over the peer"""
    return (run, name, shape, f"times as fast as {peer}",
            lambda of: of(peer)["ms_median"] / of()["ms_median"], ">=", least)


def cost(run, name, shape, other, most):
    """maximum ratio of its time to the other's"""
    return (run, name, shape, f"of the time of {other}",
            lambda of: of()["ms_median"] / of(name=other)["ms_median"], "<=", most)


def unfused(run, name, shape):
    return (run, name, shape, "times as fast as level 2",
            lambda of: of(level=2)["ms_median"] / of()["ms_median"], ">=", 1)


def fused(run, name, shape, least):
    return (run, name, shape, "times as fast as level 0",
            lambda of: of(level=0)["ms_median"] / of()["ms_median"], ">=", least)


def within(run, name, shape, key, unit, most):
    return run, name, shape, unit, lambda of: of()[key], "<=", most


def claims_of_gemm():
    large = ["1024,3072,768", "1024,768,3072", "1024,768,768", "4096,4096,4096", "1024,50257,768"]
    small = ["128,768,768", "64,768,768", "64,50257,768"]
    for s in large:
        yield share("gemm", "product", s, 95)
    for s in large + small:
        yield faster("gemm", "product", s, "onednn-packed", 0.98 if s in large else 0.95)
        yield faster("neighbour", "product, neighbour", s, "onednn-packed", 1)
    for s in ("64,2,768", "512,1,512", "512,4,512", "256,16,768", "512,512,13", "1024,768,13"):
        yield faster("narrow", "product", s, "onednn-packed", 1)
    for s in ("1,768,3072", "1,3072,768"):
        yield share("row", "product, weights in memory", s, 95)
    yield cost("fused", "linear_bias_gelu", "1024x768x3072", "linear", 1.03)
    yield cost("fused", "linear_residual", "1024x3072x768", "linear_down", 1.03)


def claims_of_attention():
    for shape, full, causal in (("1,12,1024,64", 80, 70), ("1,32,2048,128", 80, 70),
                                ("8,12,128,64", 75, 55)):
        yield share("attention", "full", shape, full)
        yield share("attention", "causal", shape, causal)
    for shape in ("1,12,1024,64", "1,12,4096,64"):
        yield cost("masks", "causal", shape, "full", 0.6)
        for name in ("dense", "bias", "biases", "relative", "buckets", "swin:32"):
            yield cost("masks", name, shape, "full", 1.15)
        for name in ("alibi", "softcap", "prefix:128"):
            yield cost("masks", name, shape, "causal", 1.15)
    yield cost("masks", "window:256", "1,12,4096,64", "full", 0.2)
    for name in ("retention", "sigmoid", "relu2"):
        yield cost("weights", name, "1,12,1024,64", "causal", 1.25)
        yield fused("weights", name, "1,12,1024,64", 8)
        yield cost("weights-backward", f"{name} backward", "1,12,1024,64", "causal backward", 1.25)
        yield cost("plain", f"plain-{name}", "1,12,1024,64", "causal", 1.25)
        yield fused("plain", f"plain-{name}", "1,12,1024,64", 8)
    for name in ("talking", "talking-causal"):
        yield fused("talking", name, "1,12,1024,64", 4)
    for name in ("sink", "sink-column", "sink-term", "sink-gate", "sink-one"):
        yield cost("sinks", name, "1,12,1024,64", "causal", 1.1)
        yield cost("sinks-backward", f"{name} backward", "1,12,1024,64", "causal backward", 1.1)
    for shape in ("1,4,16,64", "1,4,64,64", "1,4,256,64", "1,4,1024,64", "1,2,4096,64"):
        for name in MASKS.split(","):
            yield unfused("sweep", name, shape)
    yield share("backward", "full backward", "1,12,1024,64", 65)
    yield share("backward", "causal backward", "1,12,1024,64", 55)


def claims_of_recurrences():
    for name in ("gla", "mamba2", "gated_deltanet", "rwkv7"):
        yield share("recurrences", name, "4096x768", 50)
        yield fused("recurrences", name, "4096x768", 10)
        yield share("recurrences-backward", f"{name}_backward", "4096x768", 50)
    for name in ("gated_linear_attention", "mamba2", "gated_deltanet", "rwkv7"):
        yield share("recurrent", f"{name} decode", "1x1 after 64", 85)


def claims_of_selective_scan():
    yield ("selective-scan", "selective_scan", "2048x1536", "% of what exponentials and multiply-adds need",
           lambda of: 100 * of("bound")["ms_median"] / of()["ms_median"], ">=", 60)
    for name in ("selective_scan", "selective_scan_backward"):
        yield faster("selective-scan", name, "2048x1536", "torch", 20)


def claims_of_models():
    for tokens, times, least in ((64, 1.3, None), (256, 1.2, 85), (1024, 1.45, 85)):
        for peer in ("onnxruntime", "torch"):
            yield faster("gpt2", "gpt2 forward", f"1x{tokens}", peer, times)
        if least:
            yield share("gpt2", "gpt2 forward", f"1x{tokens}", least)
    for run, name, shape, times in (("bert", "bert-base encode", "1x128", 1.15),
                                    ("bert8", "bert-base encode", "8x128", 1.1),
                                    ("edt", "edt-base forward", "8x64", 1.2)):
        for peer in ("onnxruntime", "torch"):
            yield faster(run, name, shape, peer, times)
    for weights, least in (("f32", 95), ("bf16", 90), ("int8", 80), ("int4", 60), ("int4-int8", 90)):
        for past in (64, 512):
            yield share(f"decode-{weights}", "gpt2 decode", f"1x1 after {past}", least)
    for tokens in (64, 256, 1024):
        yield within("experts", "experts, bf16", str(tokens), "of_dense", "of a dense layer's time", 1.25)
    yield within("cold", "gpt2 forward", "1x64", "compile_ms", "ms of compilation", 350)
    yield within("cold-train", "gpt2 train_step", "4x64", "compile_ms", "ms of compilation", 1100)


def has_vnni():
    with open("/proc/cpuinfo") as f:
        flags = f.read().split()
    return "avx512_vnni" in flags or "avx_vnni" in flags


def claims_of_int8():
    """Products of 8-bit integers beside the same in f32 (without VNNI: not slower) and beside oneDNN's.
    Ours include rounding the rows to integers and the scales; oneDNN's begin with integers."""
    vnni = has_vnni()
    for s in ("1024,3072,768", "1024,768,3072", "4096,4096,4096"):
        yield faster("gemm-int8", "product", s, "native-f32", 3.4 if vnni else 1)
        yield faster("gemm-int8", "product", s, "onednn-packed", 1)
    for tokens, times in ((256, 2.5), (1024, 2.2)):
        yield faster("gpt2-int8", "gpt2 forward", f"1x{tokens}", "native-f32", times if vnni else 1)
        for peer in ("onnxruntime", "torch"):
            yield faster("gpt2-int8", "gpt2 forward", f"1x{tokens}", peer, 1.5)
    yield faster("bert8-int8", "bert-base encode", "8x128", "native-f32", 2.7 if vnni else 1)
    yield share("large-int4-int8", "llama-1.1B decode", "int4", 90)


def claims_of_few_bits():
    """What trained models lose in few bits, with and without `sinter quantize`."""
    for model, way, most in (
            ("transliteration", "int8 quantize", 0), ("MiniLM", "int8 quantize", 0.2),
            *((m, way, most) for m in ("Shakespeare", "stories15M")
              for way, most in (("int8", 1.5), ("int8 quantize", 0.5), ("int4 quantize", 3)))):
        yield within("few-bits", model, way, "loss", "% lost", most)


def claims_of_kernels():
    for name, shape in (("layer_norm", "1024x768"), ("softmax", "12288x1024"),
                        ("gelu", "1024x3072"), ("gelu_erf", "1024x3072")):
        yield share("kernels", name, shape, 85)


def claims_of_training():
    for shape, tuned, plain in (("4x64", 1.25, 1.8), ("4x256", 1.15, 1.5)):
        yield faster("train", "gpt2 train_step", shape, "torch", tuned)
        yield faster("train", "gpt2 train_step", shape, "torch-malloc", plain)
    yield share("train", "gpt2 train_step", "4x256", 75)
    yield within("train", "gpt2 train_step", "4x64", "compile_ms", "ms of compilation", 1100)
    yield faster("train-edt", "edt-base train_step", "8x64", "torch", 1.25)
    yield faster("train-edt", "edt-base train_step", "8x64", "torch-malloc", 1.6)
    for run, shape in (("ranks", "shakespeare"), ("ranks-gpt2", "gpt2")):
        yield (run, "2 ranks, 1 thread", shape, "of the speed of 1 rank, 2 threads",
               lambda of: of()["speed"], ">=", 0.9)
    for ranks in (2, 4):
        for how in ("data", "zero 1", "zero 2", "zero 3", "tensor 2"):
            yield within("traffic", f"{ranks} ranks, {how}", "shakespeare", "of_minimum", "of the bytes needed", 1.02)
    for run, shape in (("overlap", "shakespeare"), ("overlap-gpt2", "gpt2")):
        for gbit in (10, 1):
            yield (run, f"{gbit} Gbit/s, 2 slices, zero 0", shape, "% of communication hidden",
                   lambda of: of()["hidden_pct"], ">=", 70)
    for ranks in (1, 2, 4):
        yield within("plan", f"{ranks} ranks", "gpt2", "off_pct", "% off the prediction", 15)


def claims():
    for part in (claims_of_gemm, claims_of_int8, claims_of_kernels, claims_of_attention, claims_of_recurrences, claims_of_selective_scan, claims_of_models,
                 claims_of_training, claims_of_few_bits):
        yield from part()


def measure(o, run):
    """The records of one run."""
    sinter, rounds = o.sinter, o.rounds
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "records")
        if run in SCRIPTS:
            script, *options = SCRIPTS[run].split()
            script = os.path.join(os.path.dirname(os.path.abspath(__file__)), script)
            models = [x for m in MODELS if run == "few-bits" and getattr(o, m) for x in (f"--{m}", getattr(o, m))]
            subprocess.run([sys.executable, script, "--sinter", sinter, "--json", file, *options, *models],
                           stdout=subprocess.DEVNULL)  # 1: a requirement is not met
            if not os.path.exists(file):
                sys.exit(f"claims.py: the run '{run}' failed: {SCRIPTS[run]} wrote no records")
            with open(file) as f:
                return [json.loads(line) for line in f]
        command = f"'{sinter}' bench {RUNS[run]} --rounds {rounds} --json '{file}'"
        if subprocess.run(command, shell=True, stdout=subprocess.DEVNULL).returncode:
            sys.exit(f"claims.py: the run '{run}' failed: {command}")
        with open(file) as f:
            machine, *records = [json.loads(line) for line in f]
        MACHINES[run] = machine
        return records


MACHINES = {}  # of each run of `sinter bench`: the first line of its records


def of_peer(what, records):
    """The peer's version and kernels, as they stand beside each ratio."""
    for r in records:
        if r.get("setup") and what == f"times as fast as {r['backend']}":
            kernels = f", {r['choice']} kernels" if r.get("choice") else ""
            return f"{what} ({r['setup'].split(',')[0]}{kernels})"
    return what


def print_machines():
    """Which machine, and how busy: once if all runs had the same."""
    for text in sorted({f"{m['cpu']} ({m['microarchitecture']}), {m['threads']} threads, {m['date'][:10]}, {m['commit']}"
                        for m in MACHINES.values()}):
        print(f"\n{text}")
    for run, m in MACHINES.items():
        if (m["others_pct"] or 0) + (m["stolen_pct"] or 0) >= 5:
            print(f"{run}: the machine was not idle ({m['others_pct']:.0f} % other programs, "
                  f"{m['stolen_pct']:.0f} % the host): repeat it")


def finder(records, name, shape):
    """A function that finds the record of a back end or peer; default: Sinter's."""
    def of(backend="native", level=4, name=name):
        for r in records:
            ours = r["backend"] != "native" or r["level"] == level
            if r["name"] == name and r["shape"] == shape and r["backend"] == backend and ours:
                return r
        raise LookupError
    return of


def main():
    a = argparse.ArgumentParser(description="measures what is claimed about speed")
    a.add_argument("--sinter", default="build/release/tools/sinter", metavar="FILE")
    a.add_argument("--rounds", type=int, default=5)
    a.add_argument("--list", action="store_true", help="the runs, and what each calls")
    for m in MODELS:
        a.add_argument(f"--{m}", metavar="MODEL", help="for few-bits: see bench/quantised.py")
    a.add_argument("run", nargs="*", metavar="RUN")
    o = a.parse_args()
    if o.list:
        for run, options in RUNS.items():
            print(f"{run:12} sinter bench {options}")
        for run, script in SCRIPTS.items():
            print(f"{run:12} bench/{script}")
        return 0
    for run in o.run:
        if run not in RUNS and run not in SCRIPTS:
            a.error(f"there is no run '{run}'; --list shows them")
    if not os.access(o.sinter, os.X_OK):
        a.error(f"there is no program at {o.sinter}; build it, or give --sinter FILE")
    short, records = 0, {}
    print("| run | work | shape | ms | measured | | asked |\n|---|---|---|---|---|---|---|")
    for run, name, shape, what, quantity, sign, bound in claims():
        if o.run and run not in o.run:
            continue
        if run not in records:
            print(f"{run} …", file=sys.stderr)
            records[run] = measure(o, run)
        of = finder(records[run], name, shape)
        try:
            value = quantity(of)
        except LookupError:
            print(f"| {run} | {name} | {shape} | | not measured | {what} | {sign} {bound} |")
            continue
        met = value >= bound if sign == ">=" else value <= bound
        short += not met
        text = f"{value:.3g}" if value < 1000 else f"{value:.0f}"
        what, ms = of_peer(what, records[run]), of().get("ms_median")
        print(f"| {run} | {name} | {shape} | {'' if ms is None else f'{ms:.4g}'} | {text} | {what} "
              f"| {sign} {bound}{'' if met else ': short'} |", flush=True)
    print_machines()
    return 1 if short else 0


sys.exit(main())
