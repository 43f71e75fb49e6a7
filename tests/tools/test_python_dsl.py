#!/usr/bin/env python3
"""test_python_dsl.py SOURCE_DIR BUILD_DIR: models in Python: values against NumPy, errors with lines, variants against those
in C. Skipped (77) without NumPy."""
import contextlib
import io
import os
import re
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    print("skipped: NumPy is not installed (Debian: python3-numpy)")
    sys.exit(77)

SOURCE, BUILD = sys.argv[1:3]
sys.dont_write_bytecode = True
sys.path[:0] = [os.path.join(BUILD, "python"), os.path.join(SOURCE, "examples", "python")]
import sinter  # noqa: E402

RNG = np.random.default_rng(1)


def draw(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def refuses(what, call, *arguments, kind=sinter.Error, **options):
    try:
        call(*arguments, **options)
    except sinter.Error as error:
        assert all(w in str(error) for w in what.split("...")) and isinstance(error, kind), repr(error)
        return
    raise AssertionError("no error: " + what)


def operators():
    def body(x, w, ids):
        cut, m = x[1:, ::2], x.module
        return {"product": sinter.relu(x @ w.mT) / x.shape[0], "arithmetic": 2 - -x * 3 + x**2 - abs(x) / 4 + 2.0**x,
                "compared": (x > 0) & ~(x >= 1) | (x == 0), "index": x[-1, None, 2:5], "cut": cut, "rows": w[ids],
                "element": x[ids, ids], "all": sinter.sum(x) + m.array([1, 2, 3])[2].cast("f32"), "least": sinter.min(x, 0.5),
                "rest": (x % 2)[..., 0], "count": m.value("i32", 2 * x.shape[0] + 1)}
    f = sinter.compile(body, {"x": "f32[T,8]", "w": "f32[5,8]", "ids": np.zeros(3, np.int32)}, level=0)
    x, w, ids = draw(6, 8), draw(5, 8), np.array([0, 3, 1], np.int32)
    got = f(x, w, ids)
    want = {"product": np.maximum(x @ w.T, 0) / 6, "arithmetic": 2 + x * 3 + x**2 - abs(x) / 4 + 2.0**x,
            "compared": (x > 0) & (x < 1), "index": x[-1, None, 2:5], "cut": x[1:, ::2], "rows": w[ids], "element": x[ids, ids],
            "all": x.sum() + 3, "least": np.minimum(x, 0.5), "rest": (x % 2)[:, 0], "count": 13}
    assert set(got) == set(want)
    for name, value in want.items():
        assert np.allclose(got[name], value, atol=1e-5) and got[name].shape == np.shape(value), name
    assert f(x[:2], w=w, ids=ids)["count"] == 5
    assert np.array_equal(f(x.tolist(), w, memoryview(ids))["cut"], x[1:, ::2])  # converted, or through the buffer protocol
    refuses("needs 2 axes", f, x[0], w, ids, kind=ValueError)
    refuses("'w' must be f32[5,8]", f, x, w[:, :3], ids)
    refuses("unknown argument 'z'", f, x, w, ids, z=1, kind=TypeError)
    refuses("takes 3 inputs", f, x, kind=TypeError)
    refuses("an array of int32 is needed", f, x, w, [0.5, 1, 2], kind=TypeError)
    assert "(%s:" % __file__ in f.explain() and f.bench(levels=[0], seconds=0, T=3).seconds[0] > 0


def attention():
    """Score and mask functions, captured tensors, log-sum-exp; a gradient."""
    q, k, v, bias = draw(1, 2, 5, 4), draw(1, 2, 5, 4), draw(1, 2, 5, 4), draw(2)

    def body(q, k, v, bias):
        sums = []
        y = sinter.attention(q, k, v, score=lambda c, b: c.score + b[c.h] * c.distance.cast("f32"), captured=[bias],
                             mask=lambda c, b: c.distance >= 0, lse=sums)
        gradient, = sinter.grad(sinter.sum(sinter.square(y)), [bias])
        return {"y": y, "lse": sums[0], "gradient": gradient}
    f = sinter.compile(body, {"q": q, "k": k, "v": v, "bias": bias})

    def reference(bias):
        distance = np.arange(5)[:, None] - np.arange(5)
        s = np.where(distance >= 0, q @ k.swapaxes(2, 3) / 2 + bias[:, None, None] * distance, -np.inf)
        w = np.exp(s)
        return w @ v / w.sum(-1, keepdims=True), np.log(w.sum(-1, keepdims=True))
    got, want = f(q, k, v, bias), reference(bias)
    assert np.allclose(got["y"], want[0], atol=1e-5) and np.allclose(got["lse"], want[1], atol=1e-5)
    for i, e in enumerate(np.eye(2) * 1e-3):
        difference = ((reference(bias + e)[0]**2).sum() - (reference(bias - e)[0]**2).sum()) / 2e-3
        assert abs(got["gradient"][i] - difference) < 1e-2, (got["gradient"], difference)


def loops_and_training():
    m = sinter.Module("counter")
    T = m.symbol("T", 1, 64)
    m.entry("run")
    x = m.input("x", "f32", (T, 3))
    h = m.state("h", "f32", 3)
    last, sums = sinter.scan(lambda h, x: (h * 0.5 + x, h), [h], [x], axis=0)
    m.assign(h, last[0])
    m.output("before", sums[0])
    powers = sinter.scan(lambda p, t: p * 2 + t.cast("f32"), [m.full("f32", 1, ())], count=T)
    m.output("powers", powers.carry[0])
    m.entry("train")
    w = m.param("w", "f32", 3, init=[1, 2, 3])
    with m.scope("deep"):
        b = m.param("b", "f32", (), init=lambda rng, shape: rng.standard_normal(shape))
    y = sinter.nn_linear(m.input("x", "f32", (T, 3)), "layer", 3)
    loss = sinter.mean(sinter.square(y - w + b))
    m.output("norm", sinter.optimize(loss, 0.1, how=sinter.optimizer("sgd")))
    m.output("loss", loss)
    p = sinter.compile(m, seed=4)
    x = draw(4, 3)
    got, h, rows = p.run(x), np.zeros(3), []
    for row in x:
        rows.append(h)
        h = h * 0.5 + row
    assert np.allclose(got["before"], rows, atol=1e-6) and np.allclose(p.read("h"), h, atol=1e-6) and got["powers"] == 27
    p.write("h", [1, 2, 3])
    assert np.array_equal(p.run(x=x)["before"][0], [1, 2, 3])
    p.reset()
    assert not p.read("h").any()
    losses = [float(p.train(x)["loss"]) for _ in range(20)]
    assert losses[-1] < losses[0] / 4 and sorted(p.parameters) == ["deep.b", "layer.bias", "layer.weight", "w"], losses
    assert not np.array_equal(p.read("w"), p.parameters["w"])  # the program trains a copy
    refuses("there is no state 'g'", p.read, "g", kind=ValueError)
    refuses("parameter 'w' has the shape [3], not [2]", sinter.compile, m, values={**p.parameters, "w": [1, 2]}, kind=ValueError)
    refuses("no option 'lvl'", sinter.compile, m, lvl=3, kind=TypeError)


def line(name, n):
    """The n-th line of a function of this file."""
    return "%s:%d:" % (os.path.basename(__file__), globals()[name].__code__.co_firstlineno + n)


def bad_shapes(x):
    y = x * 2
    return y @ y


def bad_score(x):
    return sinter.attention(x, x, x, score=lambda c: c.score @ c.score)


def bad_body(x):
    return sinter.scan(lambda h, x: 1 / 0, [x[0]], [x]).carry[0]


def errors():
    refuses(line("bad_shapes", 2) + "...[4,3]", sinter.compile, bad_shapes, {"x": "f32[4,3]"})
    refuses(line("bad_score", 1), sinter.compile, bad_score, {"x": "f32[1,1,4,3]"})
    try:
        sinter.compile(bad_body, {"x": "f32[4,3]"})
    except ZeroDivisionError:
        pass
    refuses("use sinter.where", sinter.compile, lambda x: x if x > 0 else -x, {"x": "f32[4]"}, kind=TypeError)
    refuses("no element type 'f33'", sinter.compile, lambda x: x, {"x": "f33[4]"}, kind=ValueError)
    refuses("arithmetic needs", sinter.compile, lambda x: x + "a", {"x": "f32[4]"}, kind=TypeError)
    refuses("give the size 'P'", sinter.compile(lambda x: sinter.sum(x, 1), {"x": "f32[2,P]"}).bench, kind=TypeError)


def variants(*names):
    """Models of examples/python give the bits of examples/variants."""
    for name in names:
        program = sinter.compile(__import__(name).module, seed=3)
        files = [os.path.join(SOURCE, folder, name) for folder in ("examples/python", "examples/variants")]
        in_c = sinter.compile(sinter.load_model(files[1] + ".c", ("forward", "loss", "cached")), values=program.parameters)
        assert list(program.entries) == list(in_c.entries), program
        tokens = RNG.integers(0, 256, (2, 40)).astype(np.int32)
        assert np.array_equal(program.forward(tokens), in_c.forward(tokens)), name
        for p, part in (0, tokens[:1]), (40, tokens[:1, :1]):
            call = "decode" if p else "prefill"
            assert np.array_equal(*(run.entries[call](tokens=part, P=p) for run in (program, in_c))), name
        lengths = [len(open(f + end).read().splitlines()) for f, end in zip(files, (".py", ".c"))]
        assert lengths[0] <= lengths[1], (name, lengths)


def onnx():
    """A file that PyTorch exported gives its results."""
    file = os.path.join(SOURCE, "tests/data/onnx/gpt")
    program, data = sinter.compile(sinter.load_onnx(file + ".onnx")), np.load(file + ".npz")
    got = program.forward(data["in.input_ids"])
    assert np.allclose(got, data["out.logits"], atol=1e-4), np.abs(got - data["out.logits"]).max()


def artefacts(tmp):
    program = sinter.compile(lambda x: sinter.nn_linear(x, "up", 3), {"x": "f32[N,4]"}, seed=2)
    x = draw(5, 4)
    with sinter.Artefact(program.save_artefact(tmp, "up", embed_weights=True)) as artefact:
        assert np.array_equal(artefact.run("forward", x=x)["y"], program(x))
        assert not artefact.about, artefact.about
    m = sinter.Module("told")
    rows, w, wide = m.symbol("N", 1, 9), m.param("w", "f32", (4,)), m.param("a wide one", "f32", (4,))
    m.describe(rows, "rows of a table")
    m.describe(w, "weights of columns")
    m.describe(wide, "first\u2028second\x85third  fourth")
    m.entry("forward")
    y = m.input("x", "f32", (rows, 4)) * w + wide
    m.describe(y, "weighted é")
    m.output("y", y)
    for text in "  ", " x", "x ":
        other = sinter.Module("blank")
        refuses("must not begin or end with a space", other.describe, other.symbol("N", 1, 9), text)
    program = sinter.compile(m, seed=1)
    with sinter.Artefact(program.save_artefact(tmp, "told", embed_weights=True)) as artefact:
        assert artefact.about == {"w": "weights of columns",
                                  "a_wide_one": "first\u2028second\x85third  fourth"}, artefact.about
        assert artefact.entries["forward"].about == {"N": "rows of a table", "y": "weighted é"}, artefact.entries


def documentation(tmp):
    """The blocks of docs/python.md run, one after another; those of models and artefacts: test_python.py;
    those of PyTorch: tests/long/test_python_torch.py."""
    with open(os.path.join(SOURCE, "docs/python.md")) as file:
        blocks = re.findall(r"```python\n(.*?)```", file.read(), re.S)
    os.chdir(tmp)
    names, run = {}, 0
    with contextlib.redirect_stdout(io.StringIO()):
        for block in blocks:
            if "MODEL" not in block and "torch" not in block:
                exec(compile(block, block.splitlines()[0], "exec"), names)
                run += 1
    assert run == len(blocks) - 2, run


if len(sys.argv) > 3:
    variants(*sys.argv[3:])
else:
    operators()
    attention()
    loops_and_training()
    errors()
    onnx()
    variants("forgetting_transformer")
    with tempfile.TemporaryDirectory() as scratch:
        artefacts(scratch)
        documentation(scratch)
print("models in Python have the values that they should have")
