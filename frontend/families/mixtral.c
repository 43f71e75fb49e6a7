/* mixtral.c: Mixtral [Jiang et al. 2024]: Mistral whose MLPs are mixtures of experts. */
#include "frontend/families/families.h"

static const config_key keys[] = {SIZE_KEYS,
                                  CONTEXT_KEY,
                                  KV_HEADS_KEY,
                                  D_HEAD_KEY,
                                  INT_KEY(causal_lm, experts.d, "intermediate_size", 1, 1 << 22),
                                  EXPERTS_KEY("num_local_experts"),
                                  EXPERTS_PER_TOKEN_KEY,
                                  FLOAT_KEY_OR(causal_lm, eps, "rms_norm_eps", 1e-5, 0, 1),
                                  FLOAT_KEY_OR(causal_lm, base, "rope_theta", 1e6, 1, 1e12),
                                  TIED_KEY(false),
                                  ACT_KEY("hidden_act", ACT_SILU),
                                  BOOL_KEY_OR(causal_lm, interleaved, "rope_interleaved", false),
                                  INT_KEY_OR(causal_lm, window, "sliding_window", 0, 1, INT32_MAX),
                                  END_KEYS};

const causal_family mixtral_family = {.names = {LLAMA_NAMES},
                                      .usual = {.norm = RMS_NORM,
                                                .experts = {.router = "block_sparse_moe.gate",
                                                            .experts = "block_sparse_moe.experts",
                                                            .gate = "w1",
                                                            .up = "w3",
                                                            .down = "w2",
                                                            .normed = true}},
                                      .keys = keys};
