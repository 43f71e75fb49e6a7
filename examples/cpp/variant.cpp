/* variant.cpp: a model in C++: a decoder over bytes whose attention has a lambda as its score function. It is ALiBi with
 * soft-capping, as a file that `sinter run` loads:
 *
 *   g++ -std=c++17 -O1 -shared -fPIC variant.cpp $(pkg-config --cflags sinter) -o variant.so
 *   sinter run variant.so train --text FILE -o DIR
 *   sinter run variant.so generate --checkpoint DIR -p "ROMEO:" */
#include <sinter/sinter.hpp>

#include <string>

using sinter::tensor;

enum { WIDTH = 64, HEADS = 4, LAYERS = 2, CONTEXT = 256, VOCAB = 256 };

/* x [B, T, WIDTH] -> [B, T, WIDTH] */
static tensor attend(const sn_forward_ctx *s, tensor x) {
    auto part = sinter::split(sinter::nn_linear(x, "qkv", 3 * WIDTH, SN_BIAS), 2, 3);
    for (tensor &p : part) p = sinter::split_heads(p, HEADS);
    tensor keys = sinter::append_kv(s, part[1], "keys"), values = sinter::append_kv(s, part[2], "values");
    sinter::attention_options o;
    o.causal = true;
    double cap = 30; /* a number of the lambda's surroundings: it becomes a constant of the kernel */
    o.score = [cap](const sinter::score_context &c) {
        tensor slope = sinter::exp2(sinter::cast(c.h + 1, SN_F32) * (-8.0 / HEADS));
        return cap * sinter::tanh((c.score - slope * sinter::cast(c.distance(), SN_F32)) / cap);
    };
    return sinter::nn_linear(sinter::merge_heads(sinter::attention(s, part[0], keys, values, o)), "out", WIDTH, SN_BIAS);
}

static sn_tensor layers(const void *, const sn_forward_ctx *s) {
    sinter::builder m(s->m);
    tensor x = sinter::nn_embedding(s->tokens, "embed", VOCAB, WIDTH);
    for (int l = 0; l < LAYERS; l++) {
        auto layer = m.in("layer" + std::to_string(l));
        x = x + attend(s, sinter::nn_layer_norm(x, "norm1"));
        tensor h = sinter::gelu(sinter::nn_linear(sinter::nn_layer_norm(x, "norm2"), "up", 4 * WIDTH, SN_BIAS));
        x = x + sinter::nn_linear(h, "down", WIDTH, SN_BIAS);
    }
    return x.get();
}

static sn_tensor logits(const void *, sn_tensor x) {
    return sinter::nn_linear(sinter::nn_layer_norm(x, "norm"), "head", VOCAB).get();
}

SN_MODEL(m, o) {
    sn_decoder d = {};
    d.layers = layers, d.unembed = logits, d.context = CONTEXT, d.n_layers = LAYERS;
    sn_decoder_entries(m, &d, o);
}
