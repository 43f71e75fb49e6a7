"""Each head has a learned score without a value, its sink, as one more term of the softmax. OpenAI 2025, "gpt-oss".
formula: Σ e^(q k / √d) v / (Σ e^(q k / √d) + e^sink)"""
import sinter
from small import HEADS, join, project, remember, small


def attend(s, x):
    q, k, v = remember(s, *project(x))
    return join(sinter.attention(q, k, v, causal=True, sink=s.module.param("sinks", "f32", HEADS)))


module = small("attention_sinks", attend, positions=True)
