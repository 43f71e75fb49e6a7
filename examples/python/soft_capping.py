"""Scores and logits are limited to ± CAP by cap tanh(x / cap), so that no single key dominates. Gemma Team 2024, "Gemma 2".
formula: softmax(c tanh(q k / (c √d))) v"""
import sinter
from small import join, logits, model, pre_norm, project, remember

CAP, FINAL_CAP = 50, 30


def attend(s, x):
    return join(sinter.attention(*remember(s, *project(x)), causal=True, score=lambda c: sinter.tanh(c.score / CAP) * CAP))


module = model("soft_capping", lambda s: pre_norm(s, attend, positions=True),
               lambda x: sinter.tanh(logits(x) / FINAL_CAP) * FINAL_CAP)
