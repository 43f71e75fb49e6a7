"""Post-norm with a scaled residual stream. Wang et al. 2022, "DeepNet". formula: norm(a x + part(x)), a = (2 L)^¼"""
import sinter
from small import LAYERS, causal_attention, embed, feed_forward, model


def layers(s):
    x, a = embed(s, True), (2 * LAYERS)**0.25
    for layer in range(LAYERS):
        with s.module.scope("layer%d" % layer):
            x = sinter.nn_layer_norm(x * a + causal_attention(s, x), "norm1")
            x = sinter.nn_layer_norm(x * a + feed_forward(s, x), "norm2")
    return x


module = model("deepnorm", layers)
