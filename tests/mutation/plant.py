#!/usr/bin/env python3
"""plant.py: plants mistakes in C files, each chosen when the program runs.

usage: tests/mutation/plant.py TREE COMMANDS OUT [--lines N] [--seed N] [--without FILE] FILE...

Rewrites each FILE (paths within TREE) in place: about one place in N lines (default 14), drawn at random, holds a mistake
that happens while SN_MISTAKE is its number (mutation.h). COMMANDS is the compile_commands.json of the tree. OUT gets a list of
{id, file, line, what, old}. --without: a JSON list of ids to leave out, places that do not compile.

A mistake is what a hand would get wrong: a comparison, an operator, a constant by one, a condition that never or always holds,
half of a condition or a `!` left out, two arguments of one type in the wrong order, true for false, a statement left out.
Needs python3-clang-19. run.py does all of it."""
import argparse
import json
import os
import random
import re
import sys

from clang import cindex

KIND, TYPE = cindex.CursorKind, cindex.TypeKind
COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
LOGIC = {"&&": "||", "||": "&&"}
ARITHMETIC = {"+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "&": "|", "|": "&", "<<": ">>", ">>": "<<"}
NUMBERS = {TYPE.BOOL, TYPE.CHAR_S, TYPE.SCHAR, TYPE.UCHAR, TYPE.SHORT, TYPE.USHORT, TYPE.INT, TYPE.UINT, TYPE.LONG, TYPE.ULONG,
           TYPE.LONGLONG, TYPE.ULONGLONG, TYPE.FLOAT, TYPE.DOUBLE}
FLOATS = {TYPE.FLOAT, TYPE.DOUBLE}
ARRAYS = {TYPE.CONSTANTARRAY, TYPE.VARIABLEARRAY, TYPE.INCOMPLETEARRAY}

def is_whole(text):
    """Whether the brackets of a piece of code match, and it holds no preprocessor line."""
    depth = 0
    for c in text:
        depth += (c in "([{") - (c in ")]}")
        if depth < 0:
            return False
    return depth == 0 and "#" not in text

def kind_of(cursor):
    return cursor.type.get_canonical().kind

class File:
    """The places of one file: (first byte, byte after the last, what is wrong, text before the number, text after it)"""

    def __init__(self, path, unit):
        self.path, self.unit, self.places = path, unit, []
        with open(path, "rb") as f:
            self.bytes = f.read()
        self.macros = [(m.extent.start.offset, m.extent.end.offset) for m in unit.cursor.get_children()
                       if m.kind == KIND.MACRO_INSTANTIATION and self.holds(m)]
        for f in unit.cursor.get_children():
            if f.kind == KIND.FUNCTION_DECL and f.is_definition() and self.holds(f):
                for body in f.get_children():
                    if body.kind == KIND.COMPOUND_STMT:
                        self.visit(body)

    def holds(self, cursor):
        return cursor.location.file is not None and cursor.location.file.name == self.path

    def text(self, first, end):
        return self.bytes[first:end].decode("latin1")

    def add(self, first, end, what, make):
        """make: a function of the code that asks whether the mistake was chosen"""
        crosses = any(a < end and first < b and not (a <= first and end <= b) for a, b in self.macros)
        if first < end and not crosses and is_whole(self.text(first, end)):
            self.places.append((first, end, what, make))

    def visit(self, c):
        if c.kind == KIND.VAR_DECL and kind_of(c) in ARRAYS:  # sizes are constant
            for x in c.get_children():
                if x.kind == KIND.INIT_LIST_EXPR:
                    self.visit(x)
            return
        first, end = c.extent.start.offset, c.extent.end.offset
        if c.kind in (KIND.VAR_DECL, KIND.DECL_STMT) and self.text(first, end).startswith("static"):
            return
        children = [x for x in c.get_children() if self.holds(x)]
        rule = self.RULES.get(c.kind)
        if rule:
            rule(self, c, first, end, list(c.get_children()))
        if c.kind in (KIND.COMPOUND_STMT, KIND.IF_STMT, KIND.FOR_STMT, KIND.WHILE_STMT):
            self.statements(c, children)
        for x in children[1:] if c.kind == KIND.CASE_STMT else children:
            self.visit(x)

    def binary(self, c, first, end, operands):
        left_end, right = operands[0].extent.end.offset, operands[1].extent.start.offset
        sign = re.sub(r"/\*.*?\*/", "", self.text(left_end, right)).strip() if left_end <= right else ""
        a, b, types = self.text(first, left_end), self.text(right, end), {kind_of(c), *map(kind_of, operands)}
        if not is_whole(a) or not is_whole(b):
            return
        fits = sign in COMPARISONS or sign in LOGIC or types <= NUMBERS and (sign in "+-*/" or not types & FLOATS)
        wrong = {**COMPARISONS, **LOGIC, **ARITHMETIC}.get(sign)
        if wrong and fits:
            self.add(first, end, f"{sign} -> {wrong}", lambda m: f"({m} ? ({a} {wrong} {b}) : ({a} {sign} {b}))")
        if sign in LOGIC:
            self.add(first, end, "right side left out", lambda m: f"({m} ? ({a}) != 0 : ({a} {sign} {b}))")
            self.add(first, end, "left side left out", lambda m: f"({m} ? ({b}) != 0 : ({a} {sign} {b}))")

    def integer(self, _, first, end, __):
        number = self.text(first, end)
        if number.isdigit():
            self.add(first, end, f"{number} -> {number} + 1", lambda m: f"({number} + {m})")

    def condition(self, _, __, ___, children):
        first, end = children[0].extent.start.offset, children[0].extent.end.offset
        text = self.text(first, end)
        self.add(first, end, "condition never", lambda m: f"(({text}) && !{m})")
        self.add(first, end, "condition always", lambda m: f"(({text}) || {m})")

    def unary(self, _, first, end, children):
        at = children[0].extent.start.offset
        if self.text(first, at).strip() == "!":
            text = self.text(at, end)
            self.add(first, end, "! left out", lambda m: f"({m} ? !!({text}) : !({text}))")

    def call(self, c, _, __, ___):
        arguments = list(c.get_arguments())
        for x, y in zip(arguments, arguments[1:]):
            if x is None or y is None or x.type.get_canonical().spelling != y.type.get_canonical().spelling:
                continue
            first, end = x.extent.start.offset, y.extent.end.offset
            a, b = self.text(first, x.extent.end.offset), self.text(y.extent.start.offset, end)
            texts = KIND.STRING_LITERAL in (x.kind, y.kind)
            if a != b and not texts and x.extent.end.offset <= y.extent.start.offset and not re.search(r"\+\+|--", a + b):
                self.add(first, end, "arguments swapped", lambda m, a=a, b=b: f"({m} ? ({b}) : ({a})), ({m} ? ({a}) : ({b}))")

    def result(self, _, __, ___, children):
        if children:
            first, end = children[0].extent.start.offset, children[0].extent.end.offset
            if self.text(first, end) in ("true", "false"):
                text = self.text(first, end)
                self.places.append((first, end, f"return {text} inverted", lambda m: f"({text} ^ {m})"))

    def statements(self, c, children):
        for x in children if c.kind == KIND.COMPOUND_STMT else children[1:] if c.kind == KIND.IF_STMT else children[-1:]:
            if x.kind in (KIND.CALL_EXPR, KIND.BINARY_OPERATOR, KIND.COMPOUND_ASSIGNMENT_OPERATOR, KIND.UNARY_OPERATOR):
                first, end = x.extent.start.offset, x.extent.end.offset
                text = self.text(first, end)
                if "= {" not in text and "){" not in text:
                    self.add(first, end, "statement left out", lambda m, text=text: f"({{ if (!{m}) {text}; }})")

    RULES = {KIND.BINARY_OPERATOR: binary, KIND.INTEGER_LITERAL: integer, KIND.IF_STMT: condition, KIND.UNARY_OPERATOR: unary,
             KIND.CALL_EXPR: call, KIND.RETURN_STMT: result}

    def draw(self, lines, random_):
        """Places that do not overlap, about one in `lines` lines, in the order of the file."""
        random_.shuffle(self.places)
        chosen = []
        for p in self.places:
            if len(chosen) < max(1, self.bytes.count(b"\n") // lines) and not any(p[0] < q[1] and q[0] < p[1] for q in chosen):
                chosen.append(p)
        return sorted(chosen, key=lambda p: p[0])

    def write(self, chosen):
        """chosen: (id, place), in the order of the file"""
        text = self.bytes
        for i, (first, end, _, make) in reversed(chosen):
            text = text[:first] + make(f"sn_mistake({i})").encode("latin1") + text[end:]
        with open(self.path, "wb") as f:
            f.write(text)

def options_of(commands):
    """{path: (folder, options that change what the preprocessor does)}"""
    options = {}
    for e in commands:
        words, keep = iter(e["command"].split()), []
        for w in words:
            if w.startswith(("-I", "-D", "-std", "-isystem", "-m")):
                keep += [w, next(words)] if w in ("-I", "-D", "-isystem") else [w]
        options.setdefault(os.path.realpath(e["file"]), (e["directory"], keep))
    return options

def main():
    args = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0])
    args.add_argument("tree")
    args.add_argument("commands")
    args.add_argument("out")
    args.add_argument("--lines", type=int, default=14)
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--without")
    args.add_argument("file", nargs="+")
    a = args.parse_args()
    cindex.Config.set_library_file("libclang-19.so.1")
    index, random_, places = cindex.Index.create(), random.Random(a.seed), []
    tree, out = os.path.realpath(a.tree), os.path.realpath(a.out)
    with open(a.commands) as f:
        options = options_of(json.load(f))
    without = set()
    if a.without and os.path.exists(a.without):
        with open(a.without) as f:
            without = set(json.load(f))
    for name in sorted(a.file):
        path = os.path.realpath(os.path.join(tree, name))
        if path not in options:
            continue
        os.chdir(options[path][0])
        unit = index.parse(path, args=options[path][1], options=cindex.TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD)
        file, chosen = File(path, unit), []
        for p in file.draw(a.lines, random_):
            places.append({"id": len(places), "file": name, "line": file.bytes[:p[0]].count(b"\n") + 1, "what": p[2],
                           "old": " ".join(file.text(p[0], p[1]).split())[:200]})
            chosen.append((len(places) - 1, p))
        file.write([c for c in chosen if c[0] not in without])
    if len(places) > 1 << 16:
        sys.exit(f"plant.py: {len(places)} places, more than 65,536 (mutation.h). Hint: a larger --lines")
    with open(out, "w") as f:
        json.dump([p for p in places if p["id"] not in without], f, indent=0)

main()
