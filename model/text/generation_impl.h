/* generation_impl.h: shared by the files of model/generation.h. */
#ifndef SN_GENERATION_IMPL_H
#define SN_GENERATION_IMPL_H

#include "model/generation.h"

/* What a request leaves open. */
typedef struct lm_defaults {
    int64_t tokens, top_k;
    double temperature, top_p, min_p, repetition_penalty;
    char unread[120]; /* keys that would change the tokens and are not read, "a, b"; "": none */
} lm_defaults;

/* lm_defaults.c: from folder/generation_config.json, if there is one; folder may be NULL. */
bool sn_lm_defaults_read(const char *folder, lm_defaults *out, sn_error *err);

/* lm_prompt.c: a list of numbers, "0 2 1", or with commas. */
bool sn_lm_read_ids(const char *text, size_t size, sn_ids *out, sn_error *err);
/* Encodes text; with `bos`, BOS first if the vocabulary has one. Without a tokenizer the text is a
 * list of numbers. */
bool sn_lm_encode_text(const sn_tokenizer *t, const char *text, size_t size, bool bos, sn_ids *out,
                       sn_error *err);

/* lm_chat.c: appends the ids of a chat with one message of the user, up to where the answer begins.
 * The template is folder/chat_template.jinja, or "chat_template" of tokenizer_config.json there. */
bool sn_lm_encode_chat(const sn_tokenizer *t, const char *folder, const char *system,
                       const char *user, sn_ids *out, sn_error *err);

struct sn_lm {
    sn_lm_parts parts;
    char *folder;
    int32_t *eos;
    lm_defaults defaults;
    sn_lm_sequence **row; /* [rows] NULL: free */
    sn_lm_sequence *first;
    int64_t used; /* rows from here on are free */
    /* buffers of a step */
    float *logits;       /* [rows, vocab] */
    int32_t *ids, *past; /* [rows] */
    sn_lm_times times;
};

/* The prompt of a request, encoded and checked: at least one token, inside the vocabulary, and not
 * longer than the context. */
bool sn_lm_read_prompt(const sn_lm *m, const sn_lm_request *r, sn_ids *out, sn_error *err);

/* Runs tokens of one row; counts and measures. */
bool sn_lm_run_row(sn_lm *m, int64_t row, int64_t past, const int32_t *ids, int64_t n,
                   float *logits, sn_error *err);
/* Runs m->ids[i], i < n, in rows that hold m->past[i] tokens; results in m->logits. `count`: how
 * many of them are wanted. */
bool sn_lm_run_step(sn_lm *m, int64_t n, int64_t count, sn_error *err);

int64_t sn_lm_max_tokens(const sn_lm *m, const sn_lm_request *r);

/* ---- lm_text.c: the new tokens of a sequence: sampled, spelled, ended ---- */

typedef struct lm_text {
    const sn_lm *m;
    sn_sampler *sampler;
    sn_text_stream stream;
    sn_bytes piece; /* text of a token */
    sn_bytes held;  /* text that is not given out yet: it may begin a stop text */
    sn_bytes out;   /* what sn_lm_next returns */
    char **stop;    /* [n_stop] */
    int n_stop;
    int64_t made, max_tokens;
    bool ignore_eos, scores, any; /* any: an id was spelled, of a model without a tokenizer */
    double log_p;
    sn_lm_end_reason ended;
} lm_text;

bool sn_lm_text_begin(lm_text *t, const sn_lm *m, const sn_lm_request *r, sn_error *err);
void sn_lm_text_free(lm_text *t);
/* Goes on after these tokens; *text (may be NULL): theirs. */
bool sn_lm_text_follow(lm_text *t, const int32_t *ids, int64_t n, sn_bytes *text, sn_error *err);
/* Samples a token; t->out is what its text adds, t->ended whether it was the last. -1: error. */
int32_t sn_lm_text_next(lm_text *t, const float *logits, sn_error *err);
/* Ends the text: what was held back is given out, too. */
bool sn_lm_text_finish(lm_text *t, sn_lm_end_reason why, sn_error *err);
/* Appends the text of an id. */
bool sn_lm_text_spell(lm_text *t, int32_t id, sn_bytes *out, sn_error *err);

#endif
