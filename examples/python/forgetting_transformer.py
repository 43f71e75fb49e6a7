"""Each token has a forget gate f for each head: the score of an earlier key is lowered by the sum of -ln f of the tokens after
it. Lin et al. 2025, "Forgetting Transformer". formula: softmax(q k / √d + Σ ln f(l) for j < l ≤ i) v, f = sigmoid(x W)"""
import sinter
from small import HEADS, join, project, remember, small


def faded(c, total):
    here = c.distance + c.k  # the query's position
    return c.score + (total[c.b, c.h, here] - total[c.b, c.h, c.k])


def attend(s, x):
    q, k, v = remember(s, *project(x))
    f = sinter.log_sigmoid(sinter.nn_linear(x, "forget", HEADS))
    f = s.append_kv(sinter.swap(f, 1, 2)[..., None], "forgotten")  # [B, HEADS, Tk, 1]
    return join(sinter.attention(q, k, v, causal=True, score=faded, captured=[sinter.squeeze(sinter.cumsum(f, 2), 3)]))


module = small("forgetting_transformer", attend)
