/* causal_lm.h: decoders of Hugging Face's families, described by what they differ in: names of
 * parameters and config keys are tables, the rest are the fields below. frontend/families/ has one
 * file a family; causal_lm.c builds them all [PH22 A10]. Not public. */
#ifndef SN_CAUSAL_LM_H
#define SN_CAUSAL_LM_H

#include "frontend/experts.h"
#include "frontend/keys.h"
#include "frontend/latent.h"
#include "frontend/models.h"
#include "frontend/recurrent.h"
#include "frontend/rope_scaling.h"

/* Names of parameters without ".weight" and ".bias", within their scope. NULL: the family has no
 * such thing; a norm that is NULL is the identity. */
typedef struct causal_names {
    const char *prefix;               /* scope of all but `head`; files may lack it */
    const char *embed, *embed_norm;   /* tokens, and the norm after it */
    const char *positions;            /* learned ones */
    const char *embed_in, *embed_out; /* maps from and to embeddings of another width */
    const char *layers;               /* scope of layer l is LAYERS.l */
    const char *q, *k, *v, *qkv, *o;  /* qkv: in one matrix, and the three are NULL */
    const char *q_norm, *k_norm;
    const char *sinks; /* one more score of each head, in the sum of its softmax only */
    const char *before_attn, *after_attn, *before_mlp, *after_mlp; /* norms of a layer */
    const char *gate, *up, *gate_up; /* gate: gated; gate_up: both in one matrix */
    const char *down;                /* NULL: layers without an MLP */
    const char *norm, *head;
} causal_names;

typedef enum causal_norm {
    LAYER_NORM,
    RMS_NORM,
    RMS_NORM_PLUS_ONE /* gain 1 + weight */
} causal_norm;
typedef enum causal_block {
    PRE_NORM, /* x += f(norm x), twice; with after_attn and after_mlp: norms of the updates */
    PARALLEL, /* x += attention(norm x) + mlp(norm x) */
    POST_NORM /* x = norm(x + f x), twice */
} causal_block;
typedef enum causal_positions { ROTARY, LEARNED, ALIBI, NO_POSITIONS } causal_positions;
typedef enum qkv_layout {
    QKV_SIDE_BY_SIDE, /* rows of all queries, keys, values */
    QKV_BY_GROUP      /* for each key head: its queries, its key, its value */
} qkv_layout;

enum { MAX_LAYER_TYPES = 256 };
/* Names of config's "layer_types", and what they are. */
typedef enum causal_layer { FULL_ATTENTION, SLIDING_ATTENTION, RECURRENT } causal_layer;

/* Zero is the usual value of everything. */
typedef struct causal_lm {
    causal_names names; /* the family's, which `finish` may change */
    const char *prefix, *head_prefix;
    int64_t vocab, context, layers, heads, kv_heads, d, d_head, d_mlp;
    int64_t d_embed; /* 0: d */

    causal_norm norm;
    bool norm_without_bias; /* LAYER_NORM */
    bool no_final_norm;
    double eps;
    causal_block block;

    int layout; /* a qkv_layout */
    bool qkv_bias, o_bias, mlp_bias, head_bias;
    bool norm_whole_qk; /* q_norm and k_norm run over all heads at once, else over each */
    double clip;        /* of queries, keys and values; 0: none */
    double score_scale; /* 0: 1 / sqrt(d_head) */
    double score_cap;   /* c tanh(score / c); 0: none */

    causal_positions positions;
    int64_t position_offset;   /* row of the table of position 0 */
    int64_t rotary;            /* rotated elements of a head; 0: all */
    double rotary_part;        /* the same as a part of d_head; 0: all */
    bool interleaved;          /* pairs (2i, 2i + 1), else (i, i + rotary / 2) */
    double base, local_base;   /* local_base: of layers with a window; 0: base */
    rope_scaling rope;         /* of the layers without a window, or of all */
    double alibi_scale;        /* factor of the slopes' exponents; 0: 8 */
    bool alibi_before_scaling; /* the bias is multiplied by score_scale, too */

    int64_t window;                  /* a token attends to the last `window` keys; 0: to all */
    int64_t full_every;              /* every n-th layer attends without a window; 0: all have it */
    int64_t first_windowed;          /* layers before this one have no window */
    int layer_type[MAX_LAYER_TYPES]; /* each a causal_layer */
    size_t n_layer_types;            /* config's "layer_types", or as `finish` says; 0: none */
    recurrent_layer recurrent;       /* of the layers of type RECURRENT */
    bool gated; /* q has a gate beside each query; its sigmoid scales the head's result */

    int act;                                                    /* index of causal_acts */
    double embed_scale, residual_scale, logit_scale, logit_cap; /* 0: none */
    expert_mlp experts;
    latent_attention latent; /* instead of q, k and v */
    bool tied;
} causal_lm;

typedef struct causal_family {
    causal_names names;
    causal_lm usual;        /* what the config does not say */
    const config_key *keys; /* of causal_lm */
    /* What the keys imply together, or NULL. Mistakes are recorded in c. */
    void (*finish)(sn_config *c, const sn_model_options *o, causal_lm *g);
} causal_family;

/* Activations: names in configs, and functions. Names of qkv_layout. */
extern const char *const causal_acts[];
extern const char *const qkv_layouts[];
extern sn_tensor (*const causal_act_fns[])(sn_loc, sn_tensor);

void causal_lm_build(const causal_family *f, sn_config *c, const sn_model_options *o,
                     sn_model *out);

/* Keys that most families share. */
#define SIZE_KEYS                                                                                  \
    INT_KEY(causal_lm, vocab, "vocab_size", 1, 1 << 24),                                           \
        INT_KEY(causal_lm, layers, "num_hidden_layers", 1, 1 << 12),                               \
        INT_KEY(causal_lm, heads, "num_attention_heads", 1, 1 << 12),                              \
        INT_KEY(causal_lm, d, "hidden_size", 1, 1 << 20)
#define CONTEXT_KEY INT_KEY(causal_lm, context, "max_position_embeddings", 1, 1 << 24)
#define KV_HEADS_KEY INT_KEY_OR(causal_lm, kv_heads, "num_key_value_heads", 0, 1, 1 << 12)
#define D_HEAD_KEY INT_KEY_OR(causal_lm, d_head, "head_dim", 0, 1, 1 << 16)
#define D_MLP_KEY INT_KEY(causal_lm, d_mlp, "intermediate_size", 1, 1 << 22)
#define RMS_EPS_KEY FLOAT_KEY_OR(causal_lm, eps, "rms_norm_eps", 1e-6, 0, 1)
#define BASE_KEY FLOAT_KEY_OR(causal_lm, base, "rope_theta", 10000, 1, 1e12)
#define TIED_KEY(usual) BOOL_KEY_OR(causal_lm, tied, "tie_word_embeddings", usual)
#define EXPERTS_KEY(key) INT_KEY(causal_lm, experts.count, key, 1, 1 << 12)
#define EXPERTS_PER_TOKEN_KEY INT_KEY(causal_lm, experts.per_token, "num_experts_per_tok", 1, 256)
#define D_EXPERT_KEY INT_KEY(causal_lm, experts.d, "moe_intermediate_size", 1, 1 << 22)
#define NORMED_KEY(usual) BOOL_KEY_OR(causal_lm, experts.normed, "norm_topk_prob", usual)
#define FIRST_EXPERTS_KEY                                                                          \
    INT_KEY_OR(causal_lm, experts.first, "first_k_dense_replace", 0, 0, 1 << 12)
#define EXPERT_SCALE_KEY                                                                           \
    FLOAT_KEY_OR(causal_lm, experts.scale, "routed_scaling_factor", 1, 1e-6, 1e6)
/* Sinter's, for GGUF files. */
#define LAYOUT_KEY(usual) CHOICE_KEY_OR(causal_lm, layout, "qkv_layout", qkv_layouts, usual)
#define ACT_KEY(key, usual) CHOICE_KEY_OR(causal_lm, act, key, causal_acts, usual)
enum {
    ACT_SILU,
    ACT_GELU,
    ACT_GELU_TANH,
    ACT_GELU_NEW,
    ACT_RELU = 6,
    ACT_QUICK_GELU
}; /* indices of causal_acts */

/* Experts whose parts are named as Llama's MLP. */
#define LLAMA_EXPERTS                                                                              \
    .router = "mlp.gate", .experts = "mlp.experts", .gate = "gate_proj", .up = "up_proj",          \
    .down = "down_proj"

/* Names and keys of latent attention as in DeepSeek's models. */
#define LATENT_NAMES                                                                               \
    .q = "self_attn.q_proj", .q_down = "self_attn.q_a_proj", .q_norm = "self_attn.q_a_layernorm",  \
    .q_up = "self_attn.q_b_proj", .kv_down = "self_attn.kv_a_proj_with_mqa",                       \
    .kv_norm = "self_attn.kv_a_layernorm", .kv_up = "self_attn.kv_b_proj"
#define LATENT_KEYS                                                                                \
    INT_KEY_OR(causal_lm, latent.q_rank, "q_lora_rank", 0, 1, 1 << 20),                            \
        INT_KEY(causal_lm, latent.kv_rank, "kv_lora_rank", 1, 1 << 20),                            \
        INT_KEY(causal_lm, latent.plain, "qk_nope_head_dim", 1, 1 << 16),                          \
        INT_KEY(causal_lm, latent.rotary, "qk_rope_head_dim", 2, 1 << 16),                         \
        INT_KEY(causal_lm, latent.value, "v_head_dim", 1, 1 << 16),                                \
        BOOL_KEY_OR(causal_lm, latent.separate, "separate_kv_b", false) /* Sinter's, for GGUF */

/* The names of Llama, which many families keep. LLAMA_ATTENTION: without those of the MLP and the norms after attention. */
#define LLAMA_ATTENTION                                                                            \
    .prefix = "model.", .embed = "embed_tokens", .layers = "layers", .q = "self_attn.q_proj",      \
    .k = "self_attn.k_proj", .v = "self_attn.v_proj", .o = "self_attn.o_proj",                     \
    .before_attn = "input_layernorm", .head = "lm_head"
#define LLAMA_NAMES                                                                                \
    LLAMA_ATTENTION, .before_mlp = "post_attention_layernorm", .gate = "mlp.gate_proj",            \
                     .up = "mlp.up_proj", .down = "mlp.down_proj", .norm = "norm"

#endif
