/* generation.h: continues texts with a language model: sampling, end tokens, stop texts, several sequences
 * at once, beam search.
 *
 * What runs the model is an sn_lm_engine: sn_lm_open (model/lm.h) makes one from a model folder
 * or GGUF file with the JIT; a deployed program makes one from its artefact.
 *
 *   sn_lm_sequence *s = sn_lm_begin(m, &(sn_lm_request){.prompt = "Once upon a time"}, &err);
 *   for (const char *text; (text = sn_lm_next(s, &err));) fputs(text, stdout);
 *   sn_lm_end(s);
 *
 * Ownership: an sn_lm outlives its sequences; texts that functions return belong to the sequence
 * and are valid until the next call with it. Threads: an sn_lm and its sequences are used by one
 * thread at a time; different models may run in different threads. The functions accept a NULL
 * model or sequence, as a failed call returned it, and do nothing: one look at err->code at the end
 * is enough. */
#ifndef SN_GENERATION_H
#define SN_GENERATION_H

#include "model/sample.h"
#include "model/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sn_lm sn_lm;
typedef struct sn_lm_sequence sn_lm_sequence;

/* ---- the model ---- */

/* Runs the model. It has `rows` rows of caches; row i holds the tokens of one sequence. */
typedef struct sn_lm_engine {
    void *model;
    int64_t rows; /* at least 1 */
    int64_t vocab, context;
    /* Appends n tokens to a row that holds `past`; logits [vocab]: of the token after the last. A
     * row with past 0 begins anew. */
    bool (*feed)(void *model, int64_t row, int64_t past, const int32_t *ids, int64_t n,
                 float *logits, sn_error *err);
    /* Appends one token to each of rows 0 … n - 1, which hold past[i]; logits [n, vocab]. May be
     * NULL if there is one row. */
    bool (*step)(void *model, int64_t n, const int32_t *ids, const int32_t *past, float *logits,
                 sn_error *err);
    /* Rows first … first + n - 1 become the first `past` tokens of rows parents[i] as they are now.
     * May be NULL if there is one row. */
    bool (*reorder)(void *model, int64_t first, int64_t n, const int32_t *parents, int64_t past,
                    sn_error *err);
    void (*close)(void *model); /* called by sn_lm_close; or NULL */
} sn_lm_engine;

typedef struct sn_lm_parts {
    sn_lm_engine engine;
    const sn_tokenizer *tokenizer; /* borrowed; NULL: texts are token ids, "1 403 407" */
    const int32_t *eos;            /* [n_eos] tokens that end a text, besides the tokenizer's */
    int n_eos;
    bool no_bos; /* texts do not begin with BOS, unless they are empty */
    /* generation_config.json and the chat template are looked for here; NULL: nowhere */
    const char *folder;
} sn_lm_parts;

/* NULL on error: an unreadable generation_config.json, or out of memory; then the engine is not
 * closed. eos and folder are copied. */
sn_lm *sn_lm_new(const sn_lm_parts *parts, sn_error *err);
void sn_lm_close(sn_lm *m); /* frees its sequences, too, and closes the engine; NULL is allowed */

int64_t sn_lm_vocab(const sn_lm *m);   /* size of the vocabulary, including ids without text */
int64_t sn_lm_context(const sn_lm *m); /* maximum number of tokens in a sequence */
int64_t sn_lm_rows(const sn_lm *m);    /* maximum number of sequences at once */
const sn_tokenizer *sn_lm_tokenizer(const sn_lm *m); /* NULL: none */

/* Appends the ids of a text, with BOS if the model's texts begin with it. */
bool sn_lm_encode(const sn_lm *m, const char *text, size_t size, sn_ids *out, sn_error *err);

/* ---- sequences ---- */

/* What to continue, and how. A field that is 0 has the default of the model's
 * generation_config.json or, if it does not say, the one given here. */
typedef struct sn_lm_request {
    const char *prompt; /* UTF-8 */
    /* Instead of prompt: [n_ids] tokens, taken as they are. */
    const int32_t *ids;
    int64_t n_ids;
    /* The prompt is a message of the user: the model's chat template is applied. `system` (or NULL):
     * a message of the system before it. ids are then those of a chat: the text that follows is one
     * of its own. */
    bool chat;
    const char *system;

    int64_t tokens;            /* maximum number of new tokens: 256 */
    bool greedy;               /* always the most likely token; ignores the temperature */
    double temperature;        /* 1; INFINITY: uniform over what the filters keep */
    double top_p;              /* 1: no filter; model/sample.h describes the filters */
    double min_p;              /* none; negative: none, whatever the model's default */
    int64_t top_k;             /* none; negative: none, whatever the model's default */
    double repetition_penalty; /* 1: none */
    uint64_t seed;             /* of the sequence's own random numbers, whatever runs beside it */
    /* [n_stop] the text ends before any of these; copied; needs a tokenizer */
    const char *const *stop;
    int n_stop;
    bool ignore_eos; /* continues after an end token */
    bool scores;     /* computes sn_lm_log_p */
} sn_lm_request;

/* Begins a sequence and runs its prompt. NULL: an error: no free row (see sn_lm_rows), an empty or
 * too long prompt, a token outside the vocabulary, an option out of range. */
sn_lm_sequence *sn_lm_begin(sn_lm *m, const sn_lm_request *r, sn_error *err);

/* Begins a sequence that has the tokens of s so far, without running them again. r: sampling,
 * tokens, stop; the prompt is ignored. */
sn_lm_sequence *sn_lm_fork(sn_lm_sequence *s, const sn_lm_request *r, sn_error *err);

/* The next piece of text, NUL-terminated; "" if a token does not complete a character, or may begin
 * a stop text. NULL: the text has ended (sn_lm_ended), or an error (err->code). A text whose model
 * has no tokenizer consists of ids, "403 407".
 *
 * If a token must be run first, the waiting tokens of all sequences of the model are run with it as
 * one batch. So a loop that asks each sequence in turn runs batches; a sequence's tokens do not
 * depend on the others. */
const char *sn_lm_next(sn_lm_sequence *s, sn_error *err);

/* The same for token ids: the next one, including the one that ends the text; -1: as NULL. */
int32_t sn_lm_next_token(sn_lm_sequence *s, sn_error *err);

/* Why a text ended. A sequence that has ended frees its row for others. */
typedef enum sn_lm_end_reason {
    SN_LM_RUNNING,
    SN_LM_END_TOKEN, /* a token that ends texts */
    SN_LM_STOP,      /* a stop text */
    SN_LM_TOKENS,    /* the maximum number of new tokens */
    SN_LM_CONTEXT    /* the context is full */
} sn_lm_end_reason;
sn_lm_end_reason sn_lm_ended(const sn_lm_sequence *s);

void sn_lm_end(sn_lm_sequence *s); /* frees it; NULL is allowed */

/* ---- tokens and logits ---- */

/* Appends tokens to a running sequence: the next message of a chat, for example. */
bool sn_lm_feed(sn_lm_sequence *s, const int32_t *ids, int64_t n, sn_error *err);

/* The logits [vocab] of the next token; valid until the next call with a sequence of the model.
 * NULL: the text has ended, or an error. */
const float *sn_lm_logits(sn_lm_sequence *s, sn_error *err);

/* The tokens so far, prompt included. */
const int32_t *sn_lm_tokens(const sn_lm_sequence *s, int64_t *n);
int64_t sn_lm_prompt_tokens(const sn_lm_sequence *s); /* how many of them are the prompt's */

/* The text of the prompt's tokens, as the tokenizer decodes them; "" for a chat. */
const char *sn_lm_prompt_text(const sn_lm_sequence *s);

/* ln P of the new tokens so far, end token included, by the model's own distribution: before
 * temperature, filters and penalty. 0 unless the request had `scores`. */
double sn_lm_log_p(const sn_lm_sequence *s);

/* What the model has run since it was opened. */
typedef struct sn_lm_times {
    int64_t prompt, decoded; /* tokens of prompts, and others */
    int64_t steps;           /* runs that decoded a token of each of several sequences, or of one */
    double prefill, decode;  /* seconds */
} sn_lm_times;
sn_lm_times sn_lm_measured(const sn_lm *m);

/* ---- beam search ---- */

typedef struct sn_lm_search {
    int64_t beams;         /* 1 or more, at most sn_lm_rows; all rows must be free */
    double length_penalty; /* ranks by log P / tokens^length_penalty */
} sn_lm_search;

/* The most probable continuation that beam search finds for the prompt of r; of the rest of r only
 * `tokens` and `ignore_eos` count. Appends its tokens to out, without the prompt and the token that
 * ends the text. *log_p (may be NULL): its ln P, end token included. */
bool sn_lm_search_beams(sn_lm *m, const sn_lm_request *r, const sn_lm_search *how, sn_ids *out,
                        double *log_p, sn_error *err);

/* Appends the text of ids[n]; of the first n_skip, only what the others need (white space between
 * them) is taken into account. Without a tokenizer: the ids. */
bool sn_lm_spell(const sn_lm *m, const int32_t *ids, int64_t n, int64_t n_skip, sn_bytes *out,
                 sn_error *err);

#ifdef __cplusplus
}
#endif
#endif
