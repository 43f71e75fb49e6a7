/* tok_sp_class.h: how transformers' tokenizer classes number the pieces of a SentencePiece model,
 * which tokens they add, and what their texts begin and end with. Internal. */
#ifndef SN_TOK_SP_CLASS_H
#define SN_TOK_SP_CLASS_H

#include "model/tokenizer/tok.h"

typedef struct sn_sp_class sn_sp_class;

typedef struct sn_sp_numbering {
    const sn_sp_class *class; /* NULL: a token is the number of its piece */
    char folder[4096];
    const cJSON *config; /* tokenizer_config.json; or NULL */
    sn_vocab names;      /* vocab.json, for classes that number by it */
    int32_t pieces;      /* number of pieces so far */
    int32_t unknown;     /* pieces that vocab.json lacks */
} sn_sp_numbering;

/* Finds the class by tokenizer_class in the config or, without one, by model_type in the folder's
 * config.json. A class that is known to do more than is written here is an error. */
bool sn_sp_begin(sn_sp_numbering *n, const char *path, const cJSON *config, sn_error *err);
/* Adds what the class does with texts before the model's normalizer. */
bool sn_sp_add_steps(const sn_sp_numbering *n, sn_tokenizer *t, sn_error *err);
/* The token of the next piece, as the file writes it; -1: it has none. */
int32_t sn_sp_next(sn_sp_numbering *n, const char *piece, size_t size, bool is_text);
/* Adds the other tokens and the template; before the roles of tokens are set. */
bool sn_sp_finish(sn_sp_numbering *n, sn_tokenizer *t, sn_error *err);
void sn_sp_end(sn_sp_numbering *n);

#endif
