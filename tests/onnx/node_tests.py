#!/usr/bin/python3
# node_tests.py SINTER [PATTERN [CHECKOUT]]: ONNX's node tests, and own_cases.py, at levels 0 and 4: passed, failed and unsupported by
# operator, and what failed. With a checkout of onnx/onnx its tests are run instead of those of Debian's python3-onnx, which is needed
# for both. All take long; `node_tests.py SINTER sample` takes one of each operator, at level 4, and all of
# own_cases.py.
import collections
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import numpy_helper

for name, kind in (("float", float), ("int", int), ("bool", bool), ("object", object)):
    setattr(np, name, kind)  # python3-onnx 1.12 uses names that NumPy 1.24 does not have
from onnx.backend.test.case.node import collect_testcases
from newer_cases import cases as newer_cases
from own_cases import cases as own_cases

SAMPLE = sys.argv[2:] == ["sample"]
LEVELS = ("4",) if SAMPLE else ("0", "4")
FIRST = ("ConstantOfShape", "Range", "NonZero")  # whose first input says a shape
TYPES = {np.dtype(t): np.dtype(t) for t in ("f4", "f8", "f2", "i1", "u1", "i4", "i8", "?")}
TYPES.update({np.dtype(t): np.dtype(u) for t, u in (("i2", "i4"), ("u2", "i4"), ("u4", "i8"), ("u8", "i8"))})  # as the importer has them


def array_of(x, info):
    """A value as the importer has it; bf16, which the package gives as its bits, as f32. None: a sequence or the like."""
    if not isinstance(x, (np.ndarray, np.generic)):
        return None
    x = np.asarray(x)
    if info.type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16 and x.dtype == np.uint16:
        return (x.astype(np.uint32) << 16).view(np.float32)
    return x.astype(TYPES[x.dtype]) if x.dtype in TYPES else x


def fix(case):
    """A copy whose small inputs after the first, such as shapes, bounds and axes, are initialisers."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    for value, x in list(zip(case.model.graph.input, case.data_sets[0][0])):
        small = isinstance(x, (np.ndarray, np.generic)) and np.ndim(x) < 2 and np.size(x) <= 16
        if small and (value.name != case.model.graph.input[0].name or case.model.graph.node[0].op_type in FIRST):
            model.graph.initializer.append(numpy_helper.from_array(np.asarray(x), value.name))
            model.graph.input.remove(value)
    return model


def run(sinter, case, folder):
    """(result, why) of one test, perhaps with the sizes that it asks for as initialisers."""
    os.makedirs(folder, exist_ok=True)
    result = attempt(sinter, case, case.model, folder)
    return attempt(sinter, case, fix(case), folder) if re.search("known|computed from data|follow from", result[1]) else result


def attempt(sinter, case, model, folder, unused=frozenset()):
    """(result, why): passed, failed or unsupported."""
    path, out = folder + "/m.onnx", folder + "/out.npz"
    onnx.save(model, path)
    for inputs, outputs in case.data_sets:
        names = [v.name for v in case.model.graph.input], [v.name for v in case.model.graph.output]
        infos = *case.model.graph.input, *case.model.graph.output
        arrays = [array_of(x, info) for x, info in zip((*inputs, *outputs), infos)]
        for x in arrays:
            if x is None or x.dtype not in TYPES:
                why = "sequence or optional" if x is None else "string" if x.dtype.kind in "OUS" else x.dtype
                return "unsupported", f"a type: {why}"
        left = {v.name for v in model.graph.input} - unused
        np.savez(folder + "/in.npz", **{n: x for n, x in zip(names[0], arrays) if n in left})
        for level in LEVELS:
            if os.path.exists(out):
                os.remove(out)
            done = subprocess.run([sinter, "call", path, "-q", "-t", "1", "--level", level, "--cache-dir", "none",
                                   "-i", folder + "/in.npz", "-o", out], capture_output=True, text=True)
            if done.returncode:
                unknown = re.search("no input or parameter '([^']*)'", done.stderr)
                if unknown:  # an input that no output depends on
                    return attempt(sinter, case, model, folder, {*unused, unknown[1]})
                text = (done.stderr.strip() or f"exit {done.returncode}").split("\n")[-1]
                refused = "not supported" in text or re.search(r"m\.onnx: \w+ '", text)
                return "unsupported" if refused else "failed", text
            found = np.load(out)
            for name, want, info in zip(names[1], arrays[len(inputs):], case.model.graph.output):
                if name not in found or found[name].shape != want.shape or found[name].dtype != want.dtype:
                    return "failed", f"level {level}: shape or type of {name}"
                # the package cuts a float to bf16, where ONNX and Sinter round it
                part = 2 ** -7 if info.type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16 else 1e-3
                if not np.allclose(found[name].astype(np.float64), want, max(case.rtol, part), 1e-5, True):
                    return "failed", f"level {level}: values of {name}"
    return "passed", ""


def operator_of(case):
    return case.model.graph.node[0].op_type if len(case.model.graph.node) == 1 else "(functions)"


def main():
    if len(sys.argv) < 2 or not os.access(sys.argv[1], os.X_OK):
        sys.exit("usage: node_tests.py SINTER [PATTERN [CHECKOUT]]")
    sinter, pattern = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    found, left = newer_cases(sys.argv[3]) if len(sys.argv) > 3 else (collect_testcases(None), {})
    for why, names in left.items():
        print(f"left out, {why}: {' '.join(names)}")
    found = {operator_of(c): c for c in reversed(found)}.values() if SAMPLE else found  # the first of each
    cases = [c for c in [*found, *own_cases()] if SAMPLE or re.search(pattern, c.name)]
    count = collections.defaultdict(collections.Counter)
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = [(c, pool.submit(run, sinter, c, f"{folder}/{i}")) for i, c in enumerate(cases)]
        for case, job in jobs:
            try:
                result, why = job.result()
            except Exception as e:
                result, why = "failed", f"{type(e).__name__}: {e}"
            count[operator_of(case)][result] += 1
            if result != "passed" and not (SAMPLE and result == "unsupported"):
                print(f"{result} {case.name}: {why[:200]}", flush=True)
    print(f"{'operator':30} passed failed unsupported")
    total = collections.Counter()
    for op in sorted(count):
        c = count[op]
        total.update(c)
        print(f"{op:30} {c['passed']:6} {c['failed']:6} {c['unsupported']:11}")
    print(f"{'all':30} {total['passed']:6} {total['failed']:6} {total['unsupported']:11}")
    return 1 if total["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
