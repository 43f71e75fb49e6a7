"""Queries and keys are normalised per head, with learned gains. Henry et al. 2020. formula: softmax(norm(q) norm(k) / √d) v"""
import sinter
from small import join, project, remember, small


def attend(s, x):
    q, k, v = project(x)
    q, k, v = remember(s, sinter.nn_rms_norm(q, "q_norm"), sinter.nn_rms_norm(k, "k_norm"), v)
    return join(sinter.attention(q, k, v, causal=True))


module = small("qk_norm", attend, positions=True)
