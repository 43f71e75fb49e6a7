"""A matrix carried along the sequence instead of a KV cache: each token decays its rows, adds k^T v, and reads it with q. Yang
et al. 2024, "Gated Linear Attention". formula: S ← α ∘ S + kᵀ v, y = q S, α = sigmoid(x W)^(1/16)"""
import sinter
from small import HEAD, HEADS, WIDTH, project, small


def step(S, q, k, v, decay):
    S = decay[..., None] * S + k[..., None] * v[..., None, :]
    return S, (q[..., None, :] @ S)[..., 0, :]


def attend(s, x):
    forget = sinter.nn_linear(sinter.nn_linear(x, "gate_low", 16, bias=False), "gate_high", WIDTH)
    decay, shape = sinter.exp(sinter.softplus(-forget) * (-1 / 16)), (s.B, HEADS, HEAD, HEAD)
    S = s.module.state("state", "f32", shape) if s.capacity else s.module.full("f32", 0, shape)
    r = sinter.scan(step, [S], [*project(x), sinter.split_heads(decay, HEADS)], axis=2)
    if s.capacity:
        s.module.assign(S, r.carry[0])
    y = sinter.merge_heads(sinter.nn_rms_norm(r.y[0], "head_norm", 1e-5))
    return sinter.nn_linear(y * sinter.silu(sinter.nn_linear(x, "gate", WIDTH, bias=False)), "out", WIDTH, bias=False)


module = small("gated_linear_attention", attend)
