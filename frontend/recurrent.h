/* recurrent.h: what layers keep of all tokens so far in place of keys and values: a matrix that each head
 * carries along the sequence, and the last tokens that a short convolution sees. Not public. */
#ifndef SN_RECURRENT_H
#define SN_RECURRENT_H

#include "frontend/models.h"

/* Sizes of a recurrent layer, fields of causal_lm, and its function; `mix` NULL: the family has none. */
typedef struct recurrent_layer recurrent_layer;
struct recurrent_layer {
    const char *scope; /* of its parameters, within the layer's */
    /* x [B, T, d] -> [B, T, d] */
    sn_tensor (*mix)(const recurrent_layer *r, const sn_forward_ctx *s, sn_tensor x);
    int64_t key_heads, heads; /* of queries and keys; of values: a multiple */
    int64_t key, value;       /* elements of a head */
    int64_t kernel;           /* tokens that the convolution sees */
    bool conv_bias, bias;     /* of the convolution, of the projections */
    int64_t rank;             /* Mamba's: the width of the steps' projection */
    bool norms;               /* Mamba's: of steps, B and C */
    bool norm_groups;         /* Mamba-2's: of each of key_heads pieces, else of the whole */
    bool separate;            /* Gated DeltaNet's maps: Qwen3.5's, else Qwen3-Next's */
    bool ba;                  /* separate, but for those of betas and decays */
    bool rates;               /* parameters A_log hold -e^A_log, as in GGUF files */
    bool
        tiled; /* head h has the key of group h % key_heads, else those of a group are neighbours */
    double eps; /* of its norms */
};

/* Gated DeltaNet with Qwen3-Next's or Qwen3.5's names [Yang et al. 2024, "Gated Delta Networks"]. */
sn_tensor gated_delta_mix(const recurrent_layer *r, const sn_forward_ctx *s, sn_tensor x);
/* Kimi Delta Attention with Kimi-Linear's names [Kimi Team 2025]: each channel of a key decays by a gate of
 * its own; heads have `key` elements. */
sn_tensor kimi_delta_mix(const recurrent_layer *r, const sn_forward_ctx *s, sn_tensor x);
/* Mamba-2 with Bamba's names [Dao & Gu 2024]: key_heads groups share B and C. */
sn_tensor mamba2_mix(const recurrent_layer *r, const sn_forward_ctx *s, sn_tensor x);

/* Mamba with its authors' names, Jamba's norms [Gu & Dao 2023; Lieber et al. 2024]: `value` channels, each
 * with `key` numbers. */
sn_tensor mamba_mix(const recurrent_layer *r, const sn_forward_ctx *s, sn_tensor x);

/* The carry `name` [B, shape..] at the first token; keep_carry: it after the last. With caches both are a
 * state, whose value a sequence that begins (past 0) in one of several rows does not see; of a single sequence
 * the state is reset. shape ends with SN_END. */
sn_tensor start_carry(const sn_forward_ctx *s, const char *name, const sn_dim *shape);
void keep_carry(const sn_forward_ctx *s, const char *name, sn_tensor last);

/* x [B, T, C]: a causal convolution of each channel over `kernel` tokens, then SiLU; the parameters are
 * NAME.weight [C, 1, kernel] and, with `bias`, NAME.bias [C]. */
sn_tensor short_conv(const sn_forward_ctx *s, sn_tensor x, const char *name, int64_t kernel,
                     bool bias);

/* Runs the body over the tokens, axis 2 of the sequences x (which end with NULL), and keeps the carry
 * [B, heads, rows, columns]. */
sn_tensor recur(const sn_forward_ctx *s, int64_t heads, int64_t rows, int64_t columns,
                sn_scan_fn body, const sn_tensor *x);

/* x [B, T, groups, n] -> [B, heads, T, n]: each group for heads / groups heads, which are neighbours or, tiled, `groups`
 * apart. */
sn_tensor for_heads(sn_tensor x, int64_t heads, bool tiled);

#endif
