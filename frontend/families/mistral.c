/* mistral.c: Mistral 7B [Jiang et al. 2023] and Ministral: Llama with a sliding window in every
 * layer, or none. */
#include "frontend/families/families.h"

static const config_key keys[] = {SIZE_KEYS,
                                  CONTEXT_KEY,
                                  KV_HEADS_KEY,
                                  D_HEAD_KEY,
                                  D_MLP_KEY,
                                  RMS_EPS_KEY,
                                  BASE_KEY,
                                  TIED_KEY(false),
                                  ACT_KEY("hidden_act", ACT_SILU),
                                  INT_KEY_OR(causal_lm, window, "sliding_window", 0, 1, INT32_MAX),
                                  END_KEYS};

const causal_family mistral_family = {
    .names = {LLAMA_NAMES}, .usual = {.norm = RMS_NORM}, .keys = keys};
