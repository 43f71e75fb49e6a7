/* use_lite.c: the Universal Sentence Encoder lite [Cer et al. 2018], an architecture that no model_type names: two layers of
 * different widths, norms before the sublayers, positions added to twice the embedding, then the mean over the tokens, a
 * layer with tanh, and norm 1. bench/real_weights.py downloads and converts its trained weights and compares the embeddings
 * with TensorFlow.js:
 *
 *   sinter embed examples/use_lite.c --checkpoint FOLDER -p "How old are you?" */
#include <sinter/models.h>

#include <math.h>

enum { VOCAB = 8002, WIDTH = 256, WIDER = 512, MLP = 1536, HEADS = 4, CONTEXT = 128 };

/* sin and cos of positions at 128 frequencies [T, WIDTH] */
static sn_tensor positions(sn_module *m, sn_dim T) {
    sn_tensor i = sn_cast(sn_arange(m, SN_I32, WIDTH / 2), SN_F32);
    sn_tensor frequency = sn_exp(sn_mul(i, -log(10000) / (WIDTH / 2 - 1)));
    sn_tensor angle = sn_mul(sn_expand(sn_cast(sn_arange(m, SN_I32, T), SN_F32), 1), frequency);
    return sn_concat(1, sn_sin(angle), sn_cos(angle));
}

/* x [B, T, n] -> [B, T, WIDER] */
static sn_tensor layer(sn_tensor x, sn_tensor lengths) {
    sn_tensor part[3], y = sn_nn_layer_norm(x, "norm1", 1e-6);
    int64_t n = sn_dim_of(x, 2); /* a number */
    sn_split(sn_nn_linear(y, "qkv", 3 * n, SN_BIAS), 2, 3, part);
    for (int i = 0; i < 3; i++) part[i] = sn_split_heads(part[i], HEADS);
    y = sn_merge_heads(sn_padded_attention(NULL, lengths, part[0], part[1], part[2]));
    if (n != WIDER) x = sn_nn_linear(x, "residual", WIDER, SN_BIAS);
    x = sn_add(x, sn_nn_linear(y, "out", WIDER, SN_BIAS));
    y = sn_relu(sn_nn_linear(sn_nn_layer_norm(x, "norm2", 1e-6), "up", MLP, SN_BIAS));
    return sn_add(x, sn_nn_linear(y, "down", WIDER, SN_BIAS));
}

SN_MODEL(m, o) {
    if (!(o->entries & SN_EMBED)) return;
    sn_dim B = sn_symbol(m, "B", 1, o->max_batch), T = sn_symbol(m, "T", 1, CONTEXT);
    sn_entry_begin(m, "embed");
    sn_tensor tokens = sn_input(m, "tokens", SN_I32, B, T),
              lengths = sn_input(m, "lengths", SN_I32, B);
    sn_tensor x = sn_nn_embedding(tokens, "embeddings", VOCAB, WIDTH);
    x = sn_add(sn_mul(x, 2), positions(m, T));
    for (int i = 0; i < 2; i++) {
        sn_scope_push(m, "layers.%d", i);
        x = layer(x, lengths);
        sn_scope_pop(m);
    }
    x = sn_tanh(sn_nn_linear(sn_token_mean(x, lengths), "tanh", WIDER, SN_BIAS));
    sn_output("embedding", sn_unit_norm(x));
}
