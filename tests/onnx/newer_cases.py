# newer_cases.py: the node tests of a checkout of onnx/onnx, whose scripts are run with Debian's python3-onnx: it has no release of
# its own for them. What 1.12 lacks is replaced here; tests of types that NumPy does not have are left out, by name.
import pathlib
import sys
import types

import numpy as np
import onnx
import onnx.defs
import onnx.parser
from onnx import TensorProto, helper, mapping, numpy_helper
from onnx.backend.test.case import base, node

NEWEST = 28  # opset of tests that do not say one: they are of the latest version
NO_TYPE = {"bfloat16": "u2", "float8_e4m3fn": "u1", "float8_e4m3fnuz": "i1", "float8_e5m2": "u1", "float8_e5m2fnuz": "i1",
           "float8_e8m0fnu": "u1", "int4": "i1", "uint4": "u1", "float4_e2m1fn": "u1", "int2": "i1", "uint2": "u1"}


def install(checkout):
    """Makes the modules of the checkout importable beside python3-onnx, and gives that what they need."""
    ml_dtypes = types.ModuleType("ml_dtypes")
    for i, (name, stored) in enumerate(NO_TYPE.items()):
        setattr(ml_dtypes, name, np.dtype([(name, stored)]))
    sys.modules["ml_dtypes"] = ml_dtypes
    onnx.__path__.append(f"{checkout}/onnx")
    node.__path__.insert(0, f"{checkout}/onnx/backend/test/case/node")
    for i, name in enumerate(("FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "UINT4", "INT4", "FLOAT4E2M1",
                              "FLOAT8E8M0", "UINT2", "INT2"), 17):
        setattr(TensorProto, name, i)
    onnx.parser.parse_node = lambda text: onnx.parser.parse_graph("g (float x) => (float y) {" + text + "}").node[0]
    onnx.defs.onnx = onnx
    onnx.defs.get_all_schemas_with_history = lambda: []
    onnx.defs.AI_ONNX_PREVIEW_DOMAIN = "ai.onnx.preview"
    onnx.onnx_cpp2py_export.defs.get_all_schemas_with_history = lambda: []
    helper.tensor_dtype_to_np_dtype = lambda t: mapping.TENSOR_TYPE_TO_NP_TYPE[t]
    helper.np_dtype_to_tensor_dtype = lambda t: mapping.NP_TYPE_TO_TENSOR_TYPE[np.dtype(t)]
    helper.create_op_set_id_version_map = lambda table: {}
    numpy_helper.create_random_int = lambda shape, dtype, seed=1: np.random.RandomState(seed).randint(
        max(np.iinfo(dtype).min, -1000), min(np.iinfo(dtype).max, 1000), size=shape).astype(dtype)


def cases(checkout):
    """(the cases, Counter-like dict of what was left out: why -> names)."""
    install(checkout)
    found, left = [], {}

    def expect(n, inputs, outputs, name, **options):
        names = [x for x in n.input if x], [x for x in n.output if x]
        given = options.get("input_type_protos") or [None] * len(inputs), options.get("output_type_protos") or [None] * len(outputs)

        def info(name, x, proto):
            if proto is not None:
                return helper.make_value_info(name, proto)
            kind = TensorProto.STRING if x.dtype.kind in "OU" else mapping.NP_TYPE_TO_TENSOR_TYPE[x.dtype]
            return helper.make_tensor_value_info(name, kind, x.shape)

        try:
            values = [[info(*v) for v in zip(names[i], arrays, given[i])] for i, arrays in enumerate((inputs, outputs))]
        except (KeyError, AttributeError, TypeError) as e:
            left.setdefault(f"a type: {e}", []).append(name)
            return
        graph = helper.make_graph([n], name, *values)
        opsets = options.get("opset_imports") or [helper.make_operatorsetid(n.domain, NEWEST if not n.domain else 1)]
        found.append(types.SimpleNamespace(name=f"new_{name}", model=helper.make_model(graph, opset_imports=opsets),
                                           data_sets=[(inputs, outputs)], rtol=1e-3))

    class Exporter(type):
        def __init__(cls, name, bases, members):
            for key, f in members.items():
                if key.startswith("export"):
                    try:
                        f.__func__()
                    except Exception as e:
                        left.setdefault(f"{type(e).__name__}: {str(e)[:90]}", []).append(f"{name}.{key}")
            super().__init__(name, bases, members)

    node.expect = expect
    base.Base = Exporter("Base", (), {})
    for script in sorted(pathlib.Path(checkout, "onnx/backend/test/case/node").glob("[a-z]*.py")):
        try:
            exec(compile(script.read_text(), str(script), "exec"), {"__name__": f"node_{script.stem}", "__file__": str(script)})
        except Exception as e:
            left.setdefault(f"{type(e).__name__}: {str(e)[:90]}", []).append(script.stem)
    return found, left
