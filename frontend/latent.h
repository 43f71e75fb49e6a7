/* latent.h: multi-head latent attention: queries, keys and values from low-rank latents, and one
 * rotated key for all heads [DeepSeek-AI 2024, "DeepSeek-V2", section 2.1]. Fields of causal_lm. Not
 * public. */
#ifndef SN_LATENT_H
#define SN_LATENT_H

#include "frontend/indexer.h"

/* Names as in causal_names, sizes of the config. kv_down NULL: the family has no such attention. */
typedef struct latent_attention {
    const char *q_down, *q_norm, *q_up;    /* queries by their latent, or */
    const char *q;                         /* directly if q_rank is 0 */
    const char *kv_down, *kv_norm, *kv_up; /* kv_down: to the latent and the rotated key */
    bool bias;                             /* of the maps to latents */
    bool separate;                         /* kv_up is two parameters, as in GGUF files */
    int64_t q_rank, kv_rank;               /* sizes of the latents */
    int64_t plain, rotary, value;          /* of a head: elements not rotated, rotated, of values */
    token_indexer indexer;                 /* tokens that a query attends to */
} latent_attention;

/* What attention is made of, for x [B, T, d], before the rotation. q[0] [B, H, T, plain] is not
 * rotated, q[1] [B, H, T, rotary] is. latent [B, 1, T, kv_rank] holds the keys that are not rotated
 * and the values of all heads; key [B, 1, T, rotary] is the rotated key of all heads; query [B, T, q_rank] the
 * latent of the queries, x if q_rank is 0. */
typedef struct latent_parts {
    sn_tensor q[2], latent, key, query;
} latent_parts;
latent_parts latent_project(const latent_attention *a, sn_tensor x, int64_t heads);

/* What caches hold: latent and rotated key, [B, 1, T, kv_rank + rotary]. */
sn_tensor latent_row(const latent_parts *p);
/* p with the latents and keys of all cached rows [B, 1, Tk, kv_rank + rotary]. */
void latent_take_rows(const latent_attention *a, latent_parts *p, sn_tensor rows);

/* Queries, keys [B, H, T, plain + rotary] and values [B, H, T, value] of every head. */
void latent_expand(const latent_attention *a, const latent_parts *p, int64_t heads,
                   sn_tensor part[3]);
/* The same attention with one head of keys and values, the latents themselves: the maps of keys are
 * multiplied into the queries, and latent_values applies the maps of values afterwards. Per query
 * that takes kv_rank / plain times the operations for scores, and nothing per cached row. */
void latent_absorb(const latent_attention *a, const latent_parts *p, int64_t heads,
                   sn_tensor part[3]);
/* y [B, H, T, kv_rank], weighted sums of latents -> [B, H, T, value]. */
sn_tensor latent_values(const latent_attention *a, sn_tensor y, int64_t heads);

#endif
