"""Attention with linear biases: each head subtracts its slope times the key's distance from the score. Press et al. 2021.
formula: softmax(q k / √d − 2^(−8 (h+1)/H) (i − j)) v"""
import sinter
from small import HEADS, join, project, remember, small


def penalty(c):
    slope = sinter.exp2((c.h + 1).cast("f32") * (-8 / HEADS))
    return c.score - slope * c.distance.cast("f32")


def attend(s, x):
    return join(sinter.attention(*remember(s, *project(x)), causal=True, score=penalty))


module = small("alibi", attend)
