/* latent.h: multi-head latent attention: queries, keys and values from low-rank latents, and one
 * rotated key for all heads [DeepSeek-AI 2024, "DeepSeek-V2", section 2.1]. Fields of causal_lm. Not
 * public. */
#ifndef SN_LATENT_H
#define SN_LATENT_H

#include "frontend/sinter.h"

/* Names as in causal_names, sizes of the config. kv_down NULL: the family has no such attention. */
typedef struct latent_attention {
    const char *q_down, *q_norm, *q_up;    /* queries by their latent, or */
    const char *q;                         /* directly if q_rank is 0 */
    const char *kv_down, *kv_norm, *kv_up; /* kv_down: to the latent and the rotated key */
    bool bias;                             /* of the maps to latents */
    int64_t q_rank, kv_rank;               /* sizes of the latents */
    int64_t plain, rotary, value;          /* of a head: elements not rotated, rotated, of values */
} latent_attention;

/* Queries, keys [B, H, T, plain + rotary] and values [B, H, T, value] of x [B, T, d], before the
 * rotation. part[0], part[1]: the elements that are not rotated, and those that are, with one head
 * of keys. */
typedef struct latent_parts {
    sn_tensor q[2], k[2], v;
} latent_parts;
latent_parts latent_project(const latent_attention *a, sn_tensor x, int64_t heads);
/* [B, H, T, plain + rotary] from the two parts, of which the second may have one head. */
sn_tensor latent_join(const sn_tensor part[2]);

#endif
