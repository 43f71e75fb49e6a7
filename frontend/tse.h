/* tse.h: the transformer of [TSE] as a frame whose heads can be replaced: tse_gpt.c has the frame
 * and the usual heads, tse_alt.c the heads as two circuits. Not public. */
#ifndef SN_TSE_H
#define SN_TSE_H

#include "frontend/models.h"

typedef struct tse tse;
struct tse {
    int64_t n_vocab, n_ctx, n_layers, n_heads, d_model, d_head, d_mlp;
    sn_tensor (*nonlinear)(sn_loc, sn_tensor);
    bool keeps_states;   /* the cache holds states instead of keys and values */
    const void *variant; /* configuration of the heads */

    /* states [B, T, d_model] of the queries -> updates of the same shape; seen: the states that the
     * queries may attend to, with keeps_states also earlier ones */
    sn_tensor (*head)(const tse *g, const sn_forward_ctx *s, sn_tensor states, sn_tensor seen);
};

tse tse_read(sn_config *c); /* with the usual heads; errors are recorded in c */
void tse_build(const tse *g, sn_config *c, const sn_model_options *o, sn_model *out);
/* Which of n_keys states each position sees: bool [T, n_keys], or [B, T, n_keys]. */
sn_tensor tse_mask(const sn_forward_ctx *s, sn_dim n_keys);

#endif
