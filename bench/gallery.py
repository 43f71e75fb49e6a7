#!/usr/bin/env python3
"""gallery.py [--sinter PROGRAM] [--measure [--again]]: writes docs/gallery.md from examples/variants: for every variant what
its opening comment says, its formula, and a picture (docs/gallery/NAME.svg): its time by fusion level, and which tiles of
attention its mask skips.

--measure times the variants that docs/gallery/times.json lacks (--again: all), each level of the entry forward in turn, and
asks `sinter report` for tiles that are not there; saves after each variant. Otherwise the file's numbers are shown. A new
variant needs no change here: a line "formula: ..." of its comment is its formula. --check, the test `gallery`, compares the
page with what would be written.
"""
import argparse
import glob
import json
import os
import re
import subprocess
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TOKENS, LEVELS = 256, "0,1,2,3,4"


def variants():
    return sorted(os.path.basename(f)[:-2] for f in glob.glob(os.path.join(TOP, "examples/variants/*.c")))


def section_of(name):
    """The section that shows the variant."""
    with open(os.path.join(TOP, "examples/variants", name + ".c"), encoding="utf-8") as f:
        text = f.read()
    if '"recurrent.h"' in text:
        return "Recurrent layers"
    if any(word in text for word in ("take_rows", "sn_expert_linear", "sn_grouped_matmul")):
        return "Routing"
    return "Masks" if ".mask = " in text else "Scores, norms and layers"


def described(name):
    """The opening comment in one line without the file's name, and its formula."""
    with open(os.path.join(TOP, "examples/variants", name + ".c"), encoding="utf-8") as f:
        comment = re.match(r"/\*(.*?)\*/\n", f.read(), re.S).group(1)
    comment = " ".join(re.sub(r"\n \*", "\n", comment).split())
    comment = re.sub(r"^\S+\.c: *", "", comment)
    formula = re.search(r"formula: (.*?)(?:\. |$)", comment)
    if formula:
        comment = comment.replace(formula.group(0), "").strip()
    return comment, formula.group(1) if formula else None


def measure(sinter, name):
    """Records of the entry forward at every level, and the machine they come from."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        subprocess.run([sinter, "bench", "compare", os.path.join(TOP, "examples/variants", name + ".c"), "--levels", LEVELS,
                        "--tokens", str(TOKENS), "--rounds", "9", "--backends", "native", "--json", out.name],
                       check=True, stdout=subprocess.DEVNULL)
        records = [json.loads(line) for line in open(out.name, encoding="utf-8")]
    machine = next(r for r in records if r["kind"] == "machine")
    levels = [{"level": r["level"], "ms": r["ms_median"], "bytes": r["peak_bytes"], "error": r["rel_rms"]}
              for r in records if r["kind"] == "model"]
    return {"machine": {k: machine[k] for k in ("cpu", "microarchitecture", "threads", "date", "commit", "others_pct")}, "levels": levels}


def tiles(sinter, name):
    """The maps of tiles of the attentions with a mask, each once: where, its sizes, and a text a block of queries."""
    text = subprocess.run([sinter, "report", os.path.join(TOP, "examples/variants", name + ".c"), "-e", "forward", "-q", "--json",
                           "--levels", "none", "--evaluate", "0", "--sizes", f"T={TOKENS}", "-o", "-"], check=True,
                          capture_output=True, text=True).stdout
    entry, found = json.loads(text)["entries"][0], []
    for a in entry["attention"]:
        call = entry["calls"][a["call"]]
        for m in a.get("maps", []) if "mask: " in call["fused"] else []:
            one = {"where": re.sub(r"^layer\d+\.", "", call["where"]), "queries": a["queries"], "keys": a["keys"],
                   "heads": "" if len(a["maps"]) == 1 else f"head {m['heads'][0]}", "rows": m["rows"]}
            if all(one["rows"] != f["rows"] for f in found):
                found.append(one)
    return found


KINDS = [("#d5d9e0", "skipped"), ("#d55e00", "with the mask"), ("#009e73", "without it")]


def draw_map(m, x, side):
    """A map of tiles to scale, `side` high, from x on, with what it is below it; a stroke marks tiles with the mask."""
    unit = side / max(m["queries"], m["keys"])
    height, width = max(14, unit * m["queries"]), unit * m["keys"]
    dy, dx, out = height / len(m["rows"]), width / len(m["rows"][0]), []
    for i, row in enumerate(m["rows"]):
        for k, kind in enumerate(row):
            left, top, w, h = x + k * dx, 4 + i * dy, dx - 1, dy - 1
            out.append(f'<rect x="{left:.1f}" y="{top:.1f}" width="{w:.1f}" height="{h:.1f}" fill="{KINDS[int(kind)][0]}"/>')
            if kind == "1":
                out.append(f'<path d="M{left + 1:.1f} {top + h - 1:.1f}L{left + w - 1:.1f} {top + 1:.1f}" stroke="#fff"/>')
    all_tiles = "".join(m["rows"])
    out.append(f'<text x="{x}" y="{height + 18:.0f}" font-size="10">{(m["where"] + " " + m["heads"]).strip()}: '
               f'{100 * all_tiles.count("0") / len(all_tiles):.0f} % skipped</text>')
    return "".join(out), max(width, 130)


def picture(measured, maps):
    """An SVG: a bar for each level, with its time and its speed-up against level 0; below it the machine and the date; beside
    it the tiles of each mask."""
    parts, x = [bars(measured["levels"])], 400
    parts.append(f'<text x="0" y="121" font-size="10" fill="#666">{machine_of(measured["machine"])}</text>')
    for m in maps[:3]:
        text, width = draw_map(m, x, 92)
        parts.append(text)
        x += width + 24
    if maps:
        at = 400
        for colour, what in KINDS:
            parts.append(f'<rect x="{at}" y="116" width="8" height="8" fill="{colour}"/>'
                         f'<text x="{at + 11}" y="124" font-size="10">{what}</text>')
            at += 18 + 6 * len(what)
        x = max(x, at)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{x:.0f}" height="126" font-family="sans-serif" '
            'font-size="12" fill="#222"><rect width="100%" height="100%" fill="#fff"/>' + "".join(parts) + "</svg>\n")


def bars(times):
    """A bar for each level, with its time and its speed-up against level 0."""
    slowest, base = max(l["ms"] for l in times), times[0]["ms"]
    rows = []
    for i, l in enumerate(times):
        width, y = 220 * l["ms"] / slowest, 4 + 20 * i
        rows.append(f'<text x="0" y="{y + 12}">level {l["level"]}</text>'
                    f'<rect x="52" y="{y}" width="{width:.1f}" height="15" fill="#4878a8"/>'
                    f'<text x="{58 + width:.1f}" y="{y + 12}">{l["ms"]:.2f} ms, {base / l["ms"]:.2f} ×</text>')
    return "".join(rows)


INTRODUCTION = (
    "Every variant of `examples/variants`: its formula, what it does, and the time of its entry `forward` at each fusion "
    f"level for {TOKENS} tokens, with the machine and the date. Beside the times are the tiles of each mask, queries "
    "downwards, keys to the right: skipped, computed with the mask, or without it. The name of a file leads to its C; "
    "`small.h`, `classifier.h` and `recurrent.h` hold what the files share. Models are small: width 64, two layers, random "
    "weights. `sinter explain FILE` prints the kernels of a variant. `bench/gallery.py --measure` makes this page.")
SECTIONS = {
    "Scores, norms and layers": "Attention with another score, other weights or other projections; norms; the order of parts.",
    "Masks": "Attention whose mask is a function in C.",
    "Recurrent layers": "Layers that carry a state along the sequence.",
    "Routing": "Layers that choose what they compute.",
}


def machine_of(m):
    """The machine of a measurement, how busy it was, and the date."""
    busy = f", other programs used {m['others_pct']:.0f} %" if m.get("others_pct", 0) >= 5 else ""
    name = m["cpu"] + (f" ({m['microarchitecture']})" if m.get("microarchitecture") else "")
    return f"{name}{busy}, {m['threads']} threads, {m['date'][:10]}"


def page(times, maps):
    out = ["# Gallery", "", INTRODUCTION, ""]
    for section, introduction in SECTIONS.items():
        out += [f"## {section}", "", introduction, ""]
        for name in variants():
            if section_of(name) == section:
                out += shown(name, name in times, maps.get(name))
    return wrap("\n".join(out).rstrip("\n") + "\n")


def shown(name, measured, maps):
    """The lines of a variant."""
    comment, formula = described(name)
    out = [f"### {name}"] + ([f"`{formula}`", ""] if formula else [""])
    out += [f"[`{name}.c`](../examples/variants/{name}.c): {comment}"]
    if measured:
        out += [f"![Time of {name} by fusion level{' and the tiles of its mask' if maps else ''}](gallery/{name}.svg)"]
    return out + [""]


def wrap(text):
    """Folds prose at 120 characters, outside formulas."""
    lines = []
    for line in text.split("\n"):
        while not re.fullmatch("`[^`]*`", line) and len(line) > 120 and " " in line[1:121]:
            cut = line.rindex(" ", 0, 121)
            lines.append(line[:cut])
            line = line[cut + 1:]
        lines.append(line)
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sinter", default=os.path.join(TOP, "build/release/tools/sinter"))
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--check", action="store_true", help="only say whether docs/gallery.md is what would be written")
    arguments = parser.parse_args()
    path, folder = os.path.join(TOP, "docs/gallery.md"), os.path.join(TOP, "docs/gallery")
    os.makedirs(folder, exist_ok=True)
    store = os.path.join(folder, "times.json")
    data = json.load(open(store, encoding="utf-8")) if os.path.exists(store) else {}
    times, maps = data.get("times", {}), data.get("tiles", {})
    if arguments.check:
        same = page(times, maps) == open(path, encoding="utf-8").read()
        print("the gallery is that of the tree" if same else "docs/gallery.md is out of date: run bench/gallery.py")
        return 0 if same else 1
    for name in variants():
        if arguments.measure:
            try:
                if name not in maps:
                    maps[name] = tiles(arguments.sinter, name)
                if arguments.again or name not in times:
                    times[name] = measure(arguments.sinter, name)
            except subprocess.CalledProcessError as e:
                print(f"{name}: {' '.join(e.cmd[:3])} failed")
                continue
            with open(store, "w", encoding="utf-8") as f:
                json.dump({"times": times, "tiles": maps}, f, indent=1, sort_keys=True, ensure_ascii=False)
                f.write("\n")
        if name in times:
            with open(os.path.join(folder, name + ".svg"), "w", encoding="utf-8") as f:
                f.write(picture(times[name], maps.get(name, [])))
    with open(path, "w", encoding="utf-8") as f:
        f.write(page(times, maps))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
