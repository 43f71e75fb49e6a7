# own_cases.py: tests of operators that python3-onnx 1.12 does not know, as its node tests are: attention, rotary
# positions and norms of later versions, and of com.microsoft. Expected values are NumPy's, written from onnx/onnx,
# docs/Operators.md, and microsoft/onnxruntime, docs/ContribOperators.md.
import types

import numpy as np
from onnx import helper, numpy_helper

MS = "com.microsoft"
rng = np.random.default_rng(0)


def f(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def softmax(s):
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def split(x, n):
    return x.reshape(x.shape[0], x.shape[1], n, -1).transpose(0, 2, 1, 3)


def merge(x):
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def attend(q, k, v, bias=0.0, visible=None, scale=None, cap=0.0):
    n = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, n, 1), np.repeat(v, n, 1)
    s = q @ k.transpose(0, 1, 3, 2) * (scale or q.shape[-1] ** -0.5)
    s = cap * np.tanh(s / cap) if cap else s
    s = s + bias
    return softmax(s if visible is None else np.where(visible, s, -np.inf)) @ v


def causal(q, k, past=0):
    return np.arange(k)[None, :] <= np.arange(q)[:, None] + past


def layer_norm(x, gain, bias, eps=1e-12):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps) * gain + bias


def rms_norm(x, gain, eps=1e-12):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * gain


def rotate(x, cos, sin, pairs=False):
    a, b = (x[..., ::2], x[..., 1::2]) if pairs else np.split(x, 2, -1)
    y = a * cos - b * sin, b * cos + a * sin
    return np.stack(y, -1).reshape(x.shape) if pairs else np.concatenate(y, -1)


def case(name, op, inputs, outputs, domain="", version=23, **attributes):
    names = ["" if x is None else f"i{k}" for k, x in enumerate(inputs)]
    given = [x for x in inputs if x is not None]
    results = ["" if y is None else f"o{k}" for k, y in enumerate(outputs)]
    wanted = [y for y in outputs if y is not None]

    def info(n, x):
        return helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype) if hasattr(
            helper, "np_dtype_to_tensor_dtype") else numpy_helper.from_array(np.zeros(1, x.dtype)).data_type, x.shape)

    node = helper.make_node(op, names, results, domain=domain, **attributes)
    graph = helper.make_graph([node], "g", [info(n, x) for n, x in zip([n for n in names if n], given)],
                              [info(n, x) for n, x in zip([n for n in results if n], wanted)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(domain, 1 if domain else version)])
    return types.SimpleNamespace(name=f"own_{name}", model=model, data_sets=[(given, wanted)], rtol=1e-3)


def cases():
    B, H, T, S, d = 2, 4, 5, 7, 8
    q, k, v = f(B, H, T, d), f(B, H, S, d), f(B, H, S, d)
    g, u = f(B, 2, S, d), f(B, 2, S, d)
    seen, bias = rng.random((T, S)) < 0.7, f(B, H, T, S)
    seen[:, 0] = True
    yield case("attention_4d", "Attention", [q, k, v], [attend(q, k, v)])
    yield case("attention_3d", "Attention", [merge(q), merge(g), merge(u)], [merge(attend(q, g, u))],
               q_num_heads=H, kv_num_heads=2)
    yield case("attention_bool", "Attention", [q, k, v, seen], [attend(q, k, v, visible=seen)])
    short = np.concatenate([seen[..., :S - 2], np.zeros_like(seen[..., S - 2:])], -1)  # keys without a mask are hidden
    yield case("attention_short_mask", "Attention", [q, k, v, seen[..., :S - 2]], [attend(q, k, v, visible=short)],
               version=24)
    yield case("attention_bias", "Attention", [q, k, v, bias], [attend(q, k, v, bias, scale=0.1)], scale=0.1)
    yield case("attention_causal", "Attention", [q, k, v], [attend(q, k, v, visible=causal(T, S))], is_causal=1)
    yield case("attention_softcap", "Attention", [q, k, v], [attend(q, k, v, cap=2.0)], softcap=2.0)
    past, more = f(B, H, 3, d), f(B, H, 3, d)
    both, values = np.concatenate([past, k], 2), np.concatenate([more, v], 2)
    yield case("attention_past", "Attention", [q, k, v, None, past, more],
               [attend(q, both, values, visible=causal(T, S + 3, 3)), both, values], is_causal=1)
    angle = f(16, d // 2)
    cos, sin, at = np.cos(angle), np.sin(angle), rng.integers(0, 16, (B, T))
    tables = cos[at][:, None], sin[at][:, None]
    yield case("rotary", "RotaryEmbedding", [q, cos, sin, at], [rotate(q, *tables)])
    yield case("rotary_pairs", "RotaryEmbedding", [merge(q), cos, sin, at], [merge(rotate(q, *tables, True))],
               interleaved=1, num_heads=H)
    yield case("ms_rotary", "RotaryEmbedding", [merge(q), at, cos, sin], [merge(rotate(q, *tables))], MS, num_heads=H)
    x, y, gain, shift = f(B, T, 32), f(B, T, 32), f(32), f(32)
    yield case("rms_norm", "RMSNormalization", [x, gain], [rms_norm(x, gain, 1e-5)])
    yield case("skip_norm", "SkipLayerNormalization", [x, y, gain, shift, gain],
               [layer_norm(x + y + gain, gain, shift), None, None, x + y + gain], MS)
    yield case("skip_rms", "SkipSimplifiedLayerNormalization", [x, y, gain],
               [rms_norm(x + y, gain), None, None, x + y], MS)
    w, b, lengths = f(32, 96), f(96), np.array([5, 3], np.int32)
    parts = [split(z, H) for z in np.split(x @ w + b, 3, -1)]
    hidden = (np.arange(T)[None, :] < lengths[:, None])[:, None, None]
    yield case("ms_attention", "Attention", [x, w, b, lengths], [merge(attend(*parts, visible=hidden))], MS, num_heads=H)
    yield case("ms_attention_causal", "Attention", [x, w, b], [merge(attend(*parts, visible=causal(T, T)))], MS,
               num_heads=H, unidirectional=1)
    yield case("ms_multi_head", "MultiHeadAttention", [merge(q), merge(k), merge(v)], [merge(attend(q, k, v))], MS,
               num_heads=H)
    words, ids = f(20, 32), rng.integers(0, 20, (B, T)).astype(np.int32)
    yield case("ms_embed", "EmbedLayerNormalization", [ids, ids % 2, words, f(9, 32) * 0, words[:2], gain, shift],
               [layer_norm(words[ids] + words[ids % 2], gain, shift)], MS)
    h = f(B, T, 32)
    yield case("quick_gelu", "QuickGelu", [h], [h / (1 + np.exp(-1.702 * h))], MS)
    low, high = min(x.min(), 0), max(x.max(), 0)
    scale = np.float32((high - low) / 255)
    zero = np.clip(np.round(-low / scale), 0, 255)
    xq = np.clip(np.round(x / scale) + zero, 0, 255) - zero
    wq, ws = rng.integers(-127, 127, (32, 6)).astype(np.int8), np.float32([0.02])
    yield case("dynamic_matmul", "DynamicQuantizeMatMul", [x, wq, ws],
               [(xq @ wq.astype(np.float64) * scale * ws).astype(np.float32)], MS)
    yield from own_ms_cases()


def own_ms_cases():
    """com.microsoft: queries in groups with caches of sequences that differ in length, packed heads, weights in blocks."""
    B, T, H, G, d = 2, 3, 4, 2, 8
    q, k, v = f(B, T, H * d), f(B, T, G * d), f(B, T, G * d)
    heads = split(q, H), split(k, G), split(v, G)
    full, total = np.array([T - 1] * B, np.int32), np.array(T, np.int32)
    options = {"num_heads": H, "kv_num_heads": G}
    lower = causal(T, T)
    yield case("gqa", "GroupQueryAttention", [q, k, v, None, None, full, total],
               [merge(attend(*heads, visible=lower)), heads[1], heads[2]], MS, **options)
    yield case("gqa_packed", "GroupQueryAttention", [np.concatenate([q, k, v], 2), None, None, None, None, full, total],
               [merge(attend(*heads, visible=lower))], MS, **options)
    near = lower & (np.arange(T)[None] > np.arange(T)[:, None] - 2)
    yield case("gqa_window", "GroupQueryAttention", [q, k, v, None, None, full, total],
               [merge(attend(*heads, visible=near, cap=3.0, scale=0.5))], MS, local_window_size=2, softcap=3.0, scale=0.5,
               **options)
    P, first, angle = 5, np.array([5, 2]), f(16, d // 2)
    past, more = f(B, G, P, d), f(B, G, P, d)
    cos, sin = np.cos(angle), np.sin(angle)
    at = first[:, None] + np.arange(T)
    turned = [rotate(h, cos[at][:, None], sin[at][:, None]) for h in heads[:2]]
    keys, values = (np.concatenate([old, np.zeros((B, G, T, d), np.float32)], 2) for old in (past, more))
    for b in range(B):
        keys[b, :, first[b]:first[b] + T], values[b, :, first[b]:first[b] + T] = turned[1][b], heads[2][b]
    see = np.arange(P + T)[None, None] <= at[:, :, None]
    yield case("gqa_past", "GroupQueryAttention",
               [q, k, v, past, more, (first + T - 1).astype(np.int32), np.array(P + T, np.int32), cos, sin],
               [merge(attend(turned[0], keys, values, visible=see[:, None])), keys, values], MS, do_rotary=1, **options)
    sink = f(H)
    s = np.concatenate([heads[0] @ np.repeat(heads[1], 2, 1).transpose(0, 1, 3, 2) * d ** -0.5 + np.where(lower, 0, -np.inf),
                        np.broadcast_to(sink[:, None, None], (B, H, T, 1))], -1)
    yield case("gqa_sink", "GroupQueryAttention", [q, k, v, None, None, full, total, None, None, None, None, sink],
               [merge(softmax(s)[..., :-1] @ np.repeat(heads[2], 2, 1)).astype(np.float32)], MS, **options)
    many, bias = f(B, T, H, 3, d), f(3 * H * d)
    parts = [many[:, :, :, i].transpose(0, 2, 1, 3) + bias.reshape(3, H, 1, d)[i] for i in range(3)]
    yield case("multi_head_packed", "MultiHeadAttention", [many, None, None, bias], [merge(attend(*parts))], MS, num_heads=H)
    for bits, size, zeros in ((4, 16, False), (4, 16, True), (8, 32, False), (8, 16, True)):
        K, N = 40, 6
        blocks = -(-K // size)
        w = rng.integers(0, 2 ** bits, (N, blocks, size)).astype(np.uint8)
        scale, zero = np.abs(f(N, blocks)), rng.integers(0, 2 ** bits, (N, blocks)).astype(np.uint8)
        pack = (lambda a: a) if bits == 8 else lambda a: a[..., ::2] | a[..., 1::2] << 4
        even = np.pad(zero, ((0, 0), (0, blocks % 2))) if bits == 4 else zero
        of = (w.astype(np.float32) - (zero[..., None] if zeros else 2 ** (bits - 1))) * scale[..., None]
        y = f(3, K)
        yield case(f"matmul_{bits}_bits_{zeros}", "MatMulNBits",
                   [y, pack(w), scale.reshape(-1)] + [pack(even).reshape(-1)] * zeros,
                   [y @ of.reshape(N, -1)[:, :K].T], MS, K=K, N=N, bits=bits, block_size=size)
    xq, wq = rng.integers(0, 255, (B, T, 32)).astype(np.uint8), rng.integers(-127, 127, (32, 96)).astype(np.int8)
    sx, sw, b, zx = np.float32([0.02]), np.float32([0.01]), f(96), np.array([120], np.uint8)
    real = ((xq.astype(np.float32) - 120) * sx) @ (wq.astype(np.float32) * sw) + b
    parts = [split(z, H) for z in np.split(real.astype(np.float32), 3, -1)]
    yield case("q_attention", "QAttention", [xq, wq, b, sx, sw, None, zx], [merge(attend(*parts))], MS, num_heads=H)
    x, y = f(3, B, T, 5), f(3, B, 6, 5)
    yield case("fused_matmul", "FusedMatMul", [x, y], [0.5 * x @ y.transpose(0, 1, 3, 2)], MS, alpha=0.5, transB=1)
    yield case("transpose_matmul", "TransposeMatMul", [x, x], [x.transpose(0, 1, 3, 2) @ x], MS, transA=1)
    x, y, b = f(T, 3, B, 5), f(3, B, 5, 6), f(6)
    yield case("fused_matmul_batch", "FusedMatMul", [x, y], [x.transpose(1, 2, 0, 3) @ y], MS, transBatchA=1)
    x, y = x[:, 0, 0], y[0, 0]
    yield case("fused_gemm", "FusedGemm", [x, y, b], [np.tanh(0.5 * x @ y + b)], MS, alpha=0.5, activation="Tanh")
    x, w, more = f(2, 3, 7), f(4, 3, 1), f(2, 4, 7)
    yield case("fused_conv", "FusedConv", [x, w, f(4) * 0, more], [np.maximum(w[:, :, 0] @ x + more, 0)], MS, activation="Relu")
    xq, wq = rng.integers(0, 255, (B, T, 32)).astype(np.uint8), rng.integers(-127, 127, (32, 6)).astype(np.int8)
    zx, zw, sw = np.array(120, np.uint8), np.array([1, 0, -2, 3, 0, 5], np.int8), np.abs(f(6))
    real = ((xq.astype(np.float32) - 120) * 0.02) @ ((wq.astype(np.float32) - zw) * sw) + b
    yield case("matmul_integer_to_float", "MatMulIntegerToFloat", [xq, wq, np.float32(0.02), sw, zx, zw, b],
               [real.astype(np.float32)], MS)
    x, gain = f(2, T, 32), f(32)
    yield case("simplified_norm", "SimplifiedLayerNormalization", [x, gain], [rms_norm(x, gain, 1e-5)], version=14)
    yield case("layer_norm_14", "LayerNormalization", [x, gain, f(32) * 0], [layer_norm(x, gain, 0, 1e-5)], version=14)
