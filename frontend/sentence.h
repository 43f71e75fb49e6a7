/* sentence.h: embeddings of texts by the modules of a Sentence-Transformers folder, which the config
 * has as the section "sentence_embedding" (runtime/files/sentence_modules.h). Not public. */
#ifndef SN_SENTENCE_H
#define SN_SENTENCE_H

#include "frontend/models.h"

enum { SENTENCE_MODULES = 8 };

typedef struct sentence_module {
    int kind, act;
    bool pools[6]; /* which kinds of pooling are joined */
    bool bias;
    char name[64];
    int64_t width; /* of its result */
} sentence_module;

typedef struct sentence_head {
    sentence_module module[SENTENCE_MODULES]; /* the first one pools */
    int n;                                    /* 0: mean, scaled to norm 1 */
} sentence_head;

/* Reads the section for hidden states of this width; returns the width of the embedding. Mistakes
 * are recorded in c. */
int64_t sentence_read(sn_config *c, int64_t width, sentence_head *out);

/* hidden [B, T, d], lengths [B] -> [B, width]. */
sn_tensor sentence_embed(const sentence_head *h, sn_tensor hidden, sn_tensor lengths);

#endif
