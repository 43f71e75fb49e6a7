"""What the models of this folder share, as examples/variants/small.h: a decoder over bytes that consists of attention and
feed-forward parts."""
import sinter

WIDTH, VOCAB, HEADS, LAYERS, CONTEXT = 64, 256, 4, 2, 256
HEAD, HIDDEN = WIDTH // HEADS, 4 * WIDTH


def project(x):
    """Queries, keys and values [B, HEADS, T, HEAD] from one product."""
    return [sinter.split_heads(part, HEADS) for part in sinter.split(sinter.nn_linear(x, "qkv", 3 * WIDTH), 2, 3)]


def remember(s, q, k, v):
    """With caches: appends keys and values and returns all cached ones."""
    return q, s.append_kv(k, "keys"), s.append_kv(v, "values")


def join(y):
    """Concatenates the heads and applies the output projection."""
    return sinter.nn_linear(sinter.merge_heads(y), "out", WIDTH)


def causal_attention(s, x):
    return join(sinter.attention(*remember(s, *project(x)), causal=True))


def feed_forward(s, x):
    return sinter.nn_linear(sinter.gelu(sinter.nn_linear(x, "up", HIDDEN)), "down", WIDTH)


def embed(s, positions):
    x = sinter.nn_embedding(s.tokens, "embed", VOCAB, WIDTH)
    return x + sinter.nn_embedding(s.pos, "positions", CONTEXT, WIDTH) if positions else x


def pre_norm(s, attend, feed=feed_forward, positions=False):
    """Pre-norm layers: x + part(norm(x))."""
    x = embed(s, positions)
    for layer in range(LAYERS):
        with s.module.scope("layer%d" % layer):
            x = x + s.dropout(attend(s, sinter.nn_layer_norm(x, "norm1")))
            x = x + s.dropout(feed(s, sinter.nn_layer_norm(x, "norm2")))
    return x


def logits(x):
    return sinter.nn_linear(sinter.nn_layer_norm(x, "norm"), "head", VOCAB, bias=False)


def model(name, layers, unembed=logits, entries=("forward", "loss", "cached")):
    """The module of a decoder."""
    m = sinter.Module(name)
    sinter.decoder(m, layers, unembed, CONTEXT, LAYERS, entries)
    return m


def small(name, attend, **parts):
    """The module of a decoder with this attention part."""
    return model(name, lambda s: pre_norm(s, attend, **parts))
