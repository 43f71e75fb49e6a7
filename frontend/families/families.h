/* families.h: the descriptions of this folder's files. Not public. */
#ifndef SN_FAMILIES_H
#define SN_FAMILIES_H

#include "frontend/causal_lm.h"
#include "frontend/encoder_lm.h"
#include "frontend/seq2seq_lm.h"

extern const causal_family bloom_family, cohere_family, falcon_family, gptj_family, granite_family,
    mpt_family, olmo2_family, opt_family, stablelm_family, starcoder2_family, gemma_family,
    gemma2_family, gemma3_family, gpt_neox_family, llama_family, mistral_family, phi_family,
    phi3_family, qwen2_family, qwen3_family;
extern const encoder_family albert_family, bert_family, camembert_family, deberta_v2_family,
    distilbert_family, electra_family, modernbert_family, mpnet_family, nomic_bert_family,
    roberta_family, xlm_roberta_family;

extern const seq2seq_family whisper_family, bart_family, edt_family, m2m_100_family, marian_family,
    mbart_family, pegasus_family, t5_family, umt5_family;

extern const causal_family deepseek_v2_family, deepseek_v3_family, deepseek_v32_family,
    mixtral_family, olmoe_family, qwen2_moe_family, qwen3_moe_family;

extern const causal_family qwen3_next_family, qwen3_5_text_family, qwen3_5_moe_text_family,
    kimi_linear_family, bamba_family, granitemoehybrid_family, jamba_family, mamba_family,
    mamba2_family;

extern const causal_family gpt_oss_family;

#endif
