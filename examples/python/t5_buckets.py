"""Relative positions as a learned bias per head and bucket of distances. Raffel et al. 2020 (T5), section 2.1.
formula: softmax(q k / √d + bias[h, bucket(i − j)]) v"""
import sinter
from small import HEADS, join, project, remember, small

BUCKETS, NEAR = 16, 8  # distances from 64 on share the last bucket


def add_bias(c, table):
    distance = sinter.max(c.distance, 0)
    step = sinter.log(sinter.max(distance, 1).cast("f32") / NEAR) / 2.0794415416798357  # ln(64 / NEAR)
    far = (step * (BUCKETS - NEAR)).cast("i32") + NEAR
    bucket = sinter.where(distance < NEAR, distance, sinter.min(far, BUCKETS - 1))
    return c.score + table[bucket, c.h]


def attend(s, x):
    q, k, v = remember(s, *project(x))
    table = s.module.param("buckets", "f32", (BUCKETS, HEADS))
    return join(sinter.attention(q, k, v, causal=True, score=add_bias, captured=[table]))


module = small("t5_buckets", attend)
