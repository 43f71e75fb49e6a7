/* spec_components.c: [PH22]'s Algorithms 1 to 7, rotary positions and packed attention as rows of
 * the specification, each between an embedding of tokens and an unembedding, so that it can be
 * trained: on the token before by what attends, on the token itself by what does not. */
#include "frontend/algorithms.h"
#include "tests/e2e/spec_rows.h"

enum { V = 11, D = 16, HEADS = 2, CONTEXT = 32 };

typedef struct stage {
    sn_module *m;
    sn_tensor tokens, x; /* [B, T], [B, T, D]: tokens with positions */
    sn_dim B, T;
} stage;

/* The component under test: x [B, T, D] or [B, D] in any width. */
typedef sn_tensor part_fn(const stage *s);

static stage begin(sn_module *m, const char *entry, const sn_model_options *o) {
    sn_entry_begin(m, entry);
    stage s = {.m = m, .B = sn_symbol(m, "B", 1, o->max_batch), .T = sn_symbol(m, "T", 1, CONTEXT)};
    s.tokens = sn_input(m, "tokens", SN_I32, s.B, s.T);
    s.x = sn_add(sn_a1_token_embedding(s.tokens, V, D),
                 sn_a2_positional_embedding(m, s.T, CONTEXT, D));
    return s;
}

static sn_tensor logits_of(const stage *s, part_fn *part) {
    return sn_nn_linear(part(s), "unembed", V, 0);
}

/* attends: the targets are a separate input, [B, T], or [B] for one result per text. */
static void define(sn_module *m, const sn_model_options *o, part_fn *part, bool attends) {
    stage s = begin(m, "forward", o);
    sn_output("logits", logits_of(&s, part));
    if (!(o->entries & SN_LOSS)) return;
    s = begin(m, "loss", o);
    sn_tensor y = logits_of(&s, part), targets = s.tokens;
    if (attends && sn_rank_of(y) == 2) targets = sn_input(m, "targets", SN_I32, s.B);
    if (attends && sn_rank_of(y) == 3) targets = sn_input(m, "targets", SN_I32, s.B, s.T);
    sn_output("loss", sn_cross_entropy(y, targets));
}

static sn_tensor token_embedding(const stage *s) {
    return sn_a1_token_embedding(s->tokens, V, D);
}
static sn_tensor learned_positions(const stage *s) {
    return s->x;
}
static sn_tensor sinusoid(const stage *s) {
    return sn_add(token_embedding(s), sn_a2s_sinusoid(s->m, s->T, CONTEXT, D));
}
static sn_tensor single_query(const stage *s) {
    sn_tensor last = sn_squeeze(sn_slice(s->x, 1, sn_dim_sub(s->m, s->T, 1), 1), 1);
    return sn_a3_single_query_attention(last, s->x, D, D);
}
static sn_tensor self_attention(const stage *s) {
    return sn_add(s->x, sn_a4_attention(s->x, s->x, D, D, true));
}
static sn_tensor cross_attention(const stage *s) {
    return sn_add(s->x, sn_a4_attention(s->x, sn_concat(2, s->x, s->x), D / 2, D, false));
}
static sn_tensor multi_head(const stage *s) {
    return sn_add(s->x, sn_a5_mh_attention(s->x, s->x, HEADS, D / 2, D / 4, D, true));
}
static sn_tensor layer_norm(const stage *s) {
    return sn_a6_layer_norm(s->x, 1e-5);
}
static sn_tensor rms_norm(const stage *s) {
    return sn_a6r_rms_norm(s->x, 1e-5);
}
static sn_tensor packed_attention(const stage *s) {
    return sn_add(s->x, sn_sa_attention(s->x, s->x, HEADS, true));
}
static sn_tensor rotary(const stage *s) {
    sn_tensor part[3], pos = sn_arange(s->m, SN_I32, s->T);
    sn_split(sn_nn_linear(token_embedding(s), "qkv", 3 * D, 0), 2, 3, part);
    sn_tensor q = sn_rope(sn_split_heads(part[0], HEADS), pos);
    sn_tensor k = sn_rope(sn_split_heads(part[1], HEADS), pos);
    sn_tensor y = sn_attention(q, k, sn_split_heads(part[2], HEADS), .causal = true);
    return sn_add(token_embedding(s), sn_merge_heads(y));
}

#define COMPONENT(part, attends)                                                                   \
    static void define_##part(sn_module *m, const sn_model_options *o) {                           \
        define(m, o, part, attends);                                                               \
    }
COMPONENT(token_embedding, false)
COMPONENT(learned_positions, false)
COMPONENT(sinusoid, false)
COMPONENT(single_query, true)
COMPONENT(self_attention, true)
COMPONENT(cross_attention, true)
COMPONENT(multi_head, true)
COMPONENT(layer_norm, false)
COMPONENT(rms_norm, false)
COMPONENT(packed_attention, true)
COMPONENT(rotary, true)

/* A7 gives probabilities; the loss is minus their logarithm. */
static void define_unembedding(sn_module *m, const sn_model_options *o) {
    stage s = begin(m, "forward", o);
    sn_output("logits", sn_a7_unembedding(s.x, V, false));
    if (!(o->entries & SN_LOSS)) return;
    s = begin(m, "loss", o);
    sn_output("loss", sn_cross_entropy(sn_log(sn_a7_unembedding(s.x, V, false)), s.tokens));
}

#define ROW(name, part, kernels)                                                                   \
    { name, "frontend/algorithms.c", define_##part, NULL, kernels, NULL, 0.1, 300, 0 }
const spec_row spec_components[] = {
    ROW("A1 token embedding", token_embedding, "1 map_reduce, 1 gemm"),
    ROW("A2 positions", learned_positions, "2 map_reduce, 1 gemm"),
    ROW("A2s sinusoidal", sinusoid, "6 map_reduce, 1 gemm"),
    ROW("A3 single query", single_query, "2 map_reduce, 3 gemm, 1 flash"),
    ROW("A4 attention, self", self_attention, "3 map_reduce, 2 gemm, 1 flash"),
    ROW("A4 attention, cross", cross_attention, "5 map_reduce, 3 gemm, 1 flash"),
    ROW("A5 multi-head", multi_head, "2 map_reduce, 3 gemm, 1 flash"),
    ROW("A6 layer norm", layer_norm, "2 map_reduce, 1 gemm"),
    ROW("A6r RMS norm", rms_norm, "2 map_reduce, 1 gemm"),
    ROW("A7 unembedding", unembedding, "3 map_reduce, 1 gemm"),
    ROW("RoPE", rotary, "8 map_reduce, 2 gemm, 1 flash"),
    ROW("SA packed attention", packed_attention, "3 map_reduce, 2 gemm, 1 flash"),
    {0}};
