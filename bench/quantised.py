#!/usr/bin/python3
"""quantised.py: what weights and products of few bits cost trained models, with and without `sinter quantize`.

usage: bench/quantised.py [--sinter FILE] [--stories MODEL] [--shakespeare FOLDER] [--minilm FOLDER] [--folder DIR]
                          [--json FILE]

  --stories      stories15M, a folder or file; text: stories that it writes itself in f32, other ones to calibrate with
  --shakespeare  what `sinter train examples/train/shakespeare.json` writes; text: its last tenth, of the rest to calibrate
  --minilm       all-MiniLM-L6-v2; text: sentences of Shakespeare; the figure is 1 - cosine to f32 embeddings
The encoder-decoder of examples/models is always measured: the figure is how many of its greedy outputs differ.

Folders of `sinter quantize` have its default --max-loss and are used without options. Prints a table in Markdown; exits
with 1 if a requirement is not met. --json writes a record per line, as bench/claims.py reads them. Needs python3-numpy
for --minilm."""
import argparse
import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
NAMES = "Lily Tom Mia Ben Sara Max Anna Tim Lucy Jack".split()
STARTS = ["Once upon a time, there was a {}", "One day, {} went to the park", "{} had a big red ball",
          "{} and a friend were playing outside", "It was a sunny day and {}"]
# Names in Arabic letters, for the transliteration model.
WORDS = ("آتزمون آتشيسون آرباكه آرثر محمد أحمد فاطمة سعيد خالد ياسر كريم جميل حسن حسين سليم عمر علي زينب مريم يوسف إبراهيم "
         "موسى عيسى نوح داود سليمان يعقوب إسحاق هارون زكريا لندن باريس روما برلين مدريد موسكو طوكيو بكين دلهي أوتاوا "
         "كندا فرنسا ألمانيا إيطاليا اسبانيا روسيا اليابان الصين الهند البرازيل مكسيكو شيكاغو بوسطن دالاس هيوستن "
         "جون مايكل روبرت ديفيد وليم ريتشارد توماس كريستوفر دانيال ماثيو أنتوني مارك دونالد ستيفن بول أندرو جوشوا كينيث "
         "كيفن برايان جورج إدوارد رونالد تيموثي جيسون جيفري رايان جاكوب غاري نيكولاس إريك جوناثان لاري جاستن سكوت براندون "
         "ماري باتريشا جنيفر ليندا إليزابيث باربرا سوزان جيسيكا سارة كارين نانسي ليزا مارغريت بيتي ساندرا أشلي كيمبرلي إيميلي").split()


class Bench:
    def __init__(self, program, folder):
        self.program, self.folder, self.records, self.failed, self.seconds = program, folder, [], False, 0

    def run(self, *args):
        begin = time.monotonic()
        r = subprocess.run([self.program, *args], capture_output=True, text=True)
        self.seconds = time.monotonic() - begin
        if r.returncode:
            sys.exit(f"{' '.join(args)}: {r.stderr}")
        return r.stdout

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w") as f:
            f.write(text)
        return self.path(name)

    def report(self, model, way, loss, limit, note="", unit="%"):
        bad = limit is not None and loss > limit
        how = f"{way} ({note})" if note else way
        self.records.append({"name": model, "shape": way, "backend": "native", "level": 4,
                             "ms_median": 1e3 * self.seconds, "loss": loss})
        self.failed |= bad
        print(f"| {model} | {how} | {loss:+.3f} {unit} | {'' if limit is None else f'{limit:g} {unit}'} | "
              f"{'' if limit is None else 'NOT MET' if bad else 'met'} |", flush=True)

    def perplexity(self, name, model, calibration, text, limit="30000"):
        def measure(args):
            lines = dict(l.split() for l in self.run("eval", args[0], text, "--limit", limit, *args[1:]).splitlines())
            return float(lines["loss"])

        reference = measure([model, "--weights", "f32"])
        print(f"| {name} | f32 | perplexity {math.exp(reference):.3f} | | |", flush=True)
        for way, args, most in self.ways(model, calibration):
            self.report(name, way, 100 * math.expm1(measure(args) - reference), most)

    def ways(self, model, calibration, *more):
        """(name, arguments, requirement), each made when it is needed."""
        for weights, required, without in (("int8", 0.5, 1.5), ("int4", 3, None)):
            yield weights, [model, "--weights", weights, *(["--compute", "int8"] if weights == "int8" else [])], without
            target = self.path(f"{os.path.basename(model)}.{weights}")
            options = ["quantize", model, "--text", calibration, *more, "-o", target, "--weights", weights, "--force", "--quick"]
            if weights == "int4":
                self.run(*options, "--max-loss", "1000")
                yield weights + " compensated", [target], None
            self.run(*options)
            yield weights + " quantize", [target], required

    def stories(self, model):
        if not os.path.isdir(model):
            self.run("import", model, "-o", self.path("stories"))
            model = self.path("stories")
        prompts = self.write("prompts", "".join(s.format(n) + "\n" for n in NAMES for s in STARTS))
        text = [self.run("generate", model, "-f", prompts, "--batch", "10", "-n", "240", "--temperature", "1", "--seed", str(seed))
                for seed in (1, 2, 3)]
        text = ["".join(l for l in t.splitlines(True) if not l.startswith("==> ")) for t in text]
        self.perplexity("stories15M", model, self.write("stories.calibrate", text[0] + text[1]), self.write("stories.text", text[2]))

    def shakespeare(self, model):
        with open(os.path.join(ROOT, "examples/data/tinyshakespeare.txt")) as f:
            text = f.read()
        cut = len(text) * 9 // 10
        self.perplexity("Shakespeare", model, self.write("shakespeare.calibrate", text[:cut]), self.write("shakespeare.text", text[cut:]))

    def minilm(self, model):
        import numpy
        with open(os.path.join(ROOT, "examples/data/tinyshakespeare.txt")) as f:
            lines = [" ".join(p.split()) for p in f.read().split("\n\n")]
        lines = [l for l in lines if 40 < len(l) < 400]
        calibration = self.write("sentences.calibrate", "\n".join(lines[:600]) + "\n")
        text = self.write("sentences.text", "\n".join(lines[600:800]) + "\n")

        def vectors(args):
            v = numpy.array([[float(x) for x in l.split()] for l in self.run("embed", args[0], "-f", text, *args[1:]).splitlines()])
            return v / numpy.linalg.norm(v, axis=1, keepdims=True)

        reference = vectors([model, "--weights", "f32"])
        for way, args, _ in self.ways(model, calibration):
            cosine = (vectors(args) * reference).sum(1)
            self.report("MiniLM", way, 100 * (1 - cosine.mean()), 0.2 if way == "int8 quantize" else None,
                        f"1 - cosine; worst {1 - cosine.min():.5f}")

    def pairs(self):
        model = self.path("transliteration")
        self.run("import", os.path.join(ROOT, "examples/models/aren-transliteration/model.bin"), "-o", model)
        half = len(WORDS) // 2
        source = [self.write("source.calibrate", "\n".join(WORDS[:half]) + "\n"), self.write("source.text", "\n".join(WORDS[half:]) + "\n")]
        target = self.write("target", self.run("translate", model, "-f", source[0], "--weights", "f32"))

        def outputs(args):
            return self.run("translate", args[0], "-f", source[1], *args[1:]).splitlines()

        reference = outputs([model, "--weights", "f32"])
        for way, args, _ in self.ways(model, source[0], "--target", target):
            other = sum(a != b for a, b in zip(outputs(args), reference))
            self.report("transliteration", way, 100 * other / len(reference), 0 if way == "int8 quantize" else None,
                        f"{other} of {len(reference)} greedy outputs differ")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--sinter", default=os.path.join(ROOT, "build/release/tools/sinter"))
    p.add_argument("--stories")
    p.add_argument("--shakespeare")
    p.add_argument("--minilm")
    p.add_argument("--folder", help="keeps texts and folders here")
    p.add_argument("--json", metavar="FILE")
    o = p.parse_args()
    if o.minilm and not importlib.util.find_spec("numpy"):
        sys.exit(f"bench/quantised.py: --minilm needs numpy, which {sys.executable} does not have: install python3-numpy "
                 "and run this with /usr/bin/python3")
    with tempfile.TemporaryDirectory() as temporary:
        if o.folder:
            os.makedirs(o.folder, exist_ok=True)
        b = Bench(os.path.abspath(o.sinter), o.folder or temporary)
        print("| model | how | loss | required | |\n|---|---|---|---|---|")
        b.pairs()
        for name in ("shakespeare", "minilm", "stories"):
            if getattr(o, name):
                getattr(b, name)(getattr(o, name))
    if o.json:
        with open(o.json, "w") as f:
            f.writelines(json.dumps(r) + "\n" for r in b.records)
    sys.exit(b.failed)


main()
