/* tower.h: encoders of images, and of texts that are compared with images, described by what they
 * differ in: names of parameters and config keys are tables, the rest are the fields below.
 * frontend/families/ has the descriptions; tower.c builds their layers [PH22 A9], image_tower.c the
 * embedding of images (Dosovitskiy et al. 2021). Not public. */
#ifndef SN_TOWER_H
#define SN_TOWER_H

#include "frontend/keys.h"
#include "frontend/models.h"

/* Names of parameters without ".weight" and ".bias", unless they say "whole". NULL: no such thing. */
typedef struct tower_names {
    const char *prefix; /* scope of all but the heads; files may lack it */
    const char *layers; /* scope of layer l is LAYERS.l; within it: */
    const char *q, *k, *v, *o;
    const char *qkv; /* instead of q, k, v, o: scope of a MultiheadAttention of PyTorch */
    const char *attn_norm, *mlp_norm, *up, *down;
    const char *attn_scale, *mlp_scale; /* whole; factors [d] of what is added to the stream */
    const char *norm;                   /* after the last layer */
    /* images: whole names but `patch` */
    const char *patch, *first[2], *positions, *start_norm; /* first: tokens before the patches */
} tower_names;

typedef struct tower {
    const tower_names *names;
    int64_t layers, heads, d, d_mlp;
    double eps, mlp_ratio; /* mlp_ratio: d_mlp / d, where that is 0 */
    int act;               /* index of causal_acts */
    bool qkv_bias;         /* of the maps to queries, keys and values */
    bool gated;            /* silu(first half) times second half of `up` */
    int post;              /* 1: norms after the sublayers */
    bool causal;

    int64_t image, patch, channels;
    int64_t table;       /* side of the table of positions, in patches; 0: image / patch */
    bool no_patch_bias;  /* the map of patches has no bias */
    bool flat_patch;     /* and a matrix [d, pixels], not a convolution's kernel */
    bool flat_positions; /* positions are [tokens, d], not [1, tokens, d] */
    bool vector_first;   /* the tokens before the patches are [d], not [1, 1, d] */
    bool mean_pool;      /* the image is the mean over all tokens, else the first token */
    double mean, std;    /* pixels are normalised by the model; std 0: by whoever reads them */

    int64_t vocab, context, padding; /* texts; padding: its token */
    int64_t labels, project;
    const char *prefix;
} tower;

/* What sizes imply; mistakes are recorded in c. */
void tower_complete(sn_config *c, tower *g);
/* The prefix of the names, or "" if the weights have `name`.weight without it. */
const char *tower_prefix(const tower_names *n, const sn_weights *w, const char *name);

/* Tokens before the patches. */
int64_t tower_first(const tower *g);
/* Tokens of an image, those included. */
int64_t tower_tokens(const tower *g);

/* The layers and, if it has a name, the norm after them: x [B, T, d] -> [B, T, d]. */
sn_tensor tower_layers(const tower *g, const sn_forward_ctx *s, sn_tensor x);
/* The input `pixels` [B, C, image, image] -> [B, tokens, d], through all layers. */
sn_tensor tower_encode_image(const tower *g, const sn_forward_ctx *s);
/* Attention with the parameters NAME.in_proj_weight, .in_proj_bias, .out_proj of PyTorch's
 * MultiheadAttention: q [B, Tq, d] attends to x [B, T, d]. */
sn_tensor tower_packed_attention(const tower *g, const sn_forward_ctx *s, const char *name,
                                 sn_tensor q, sn_tensor x);
/* x / |x| along the last axis. */
sn_tensor tower_unit(sn_tensor x);

/* Keys that most families share, with the sizes of their smallest published model. */
#define TOWER_SIZE_KEYS(layers_, heads_, d_, d_mlp_, eps_, act_)                                   \
    INT_KEY_OR(tower, layers, "num_hidden_layers", layers_, 1, 1 << 12),                           \
        INT_KEY_OR(tower, heads, "num_attention_heads", heads_, 1, 1 << 12),                       \
        INT_KEY_OR(tower, d, "hidden_size", d_, 1, 1 << 20),                                       \
        INT_KEY_OR(tower, d_mlp, "intermediate_size", d_mlp_, 1, 1 << 22),                         \
        FLOAT_KEY_OR(tower, eps, "layer_norm_eps", eps_, 0, 1),                                    \
        CHOICE_KEY_OR(tower, act, "hidden_act", causal_acts, act_)
#define TOWER_IMAGE_KEYS(patch_)                                                                   \
    INT_KEY_OR(tower, image, "image_size", 224, 1, 1 << 14),                                       \
        INT_KEY_OR(tower, patch, "patch_size", patch_, 1, 1 << 14),                                \
        INT_KEY_OR(tower, channels, "num_channels", 3, 1, 1 << 10)

#endif
