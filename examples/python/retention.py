"""Retention instead of softmax attention: a key's weight is its score times the decay of the head for their distance. Sun et
al. 2023, "Retentive Network".
formula: Σ γ^(i − j) (q k / √d) v / max(|Σ γ^(i − j) q k / √d|, 1), each head normalised, gated"""
import sinter
from small import WIDTH, project, remember, small


def decayed(c):
    gamma = 1 - sinter.exp2(-5 - c.h.cast("f32"))
    return c.score * sinter.exp(c.distance.cast("f32") * sinter.log(gamma))


def normalised(y):
    centred = y - sinter.mean(y, -1, keep=True)
    return centred / sinter.sqrt(sinter.mean(sinter.square(centred), -1, keep=True) + 1e-5)


def attend(s, x):
    q, k, v = project(x)
    q, k, v = remember(s, sinter.rope(q, s.pos), sinter.rope(k, s.pos), v)
    y = sinter.attention(q, k, v, causal=True, weight=decayed, divide="abs_sum")
    gate = sinter.silu(sinter.nn_linear(x, "gate", WIDTH, bias=False))
    return sinter.nn_linear(gate * sinter.merge_heads(normalised(y)), "out", WIDTH)


module = small("retention", attend)
