/* models.h: ready-made architectures, one file each, and how they are made from a config.json.
 * Parameters have Hugging Face's names, so that weight files bind by name. */
#ifndef SN_MODELS_H
#define SN_MODELS_H

#include "frontend/train.h"
#include "runtime/config.h"
#include "runtime/weights.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Entries of a decoder. i32 tokens and targets, V the vocabulary, B and T symbolic:
 *   forward  tokens [B, T] -> logits [B, T, V]; taps
 *   loss     tokens, targets [B, T] -> loss [B, T], each token's -ln P [PH22 A13 line 5]
 *   prefill  tokens [batch, T], after P tokens in the caches -> logits [batch, V] of the last one
 *   decode   the same for T = 1 [PH22 A14 line 3]
 * P is a dimension that no input shape tells: bind it by name. P + T is at most `context`.
 * Only on demand:
 *   lens     tokens [B, T] -> logits [layers + 1, B, T, V]: the residual stream after the embedding
 *            and after each layer, through the last norm and the unembedding ("logit lens")
 *   step     tokens [batch, 1], temperature, rng i64[2] (seed, number of the step) -> next [batch]:
 *            decode and the choice of the next token in one; temperature 0: the most likely one */
enum {
    SN_FORWARD = 1,
    SN_LOSS = 2,
    SN_CACHED = 4,
    SN_ENCODE = 8,
    SN_ALL_ENTRIES = 15, /* but not: */
    SN_LENS = 16,
    SN_TRAIN = 32, /* the entries of train.h, of the inputs that loss has */
    SN_STEP = 64,
    SN_EMBED = 128,
    SN_CLASSIFY = 256 /* forward of a classifier; of no effect elsewhere */
};

/* Encoders (bert): tokens, types (segments) [B, T] and lengths [B], beyond which is padding:
 *   encode   -> hidden [B, T, d]
 *   forward  -> logits [B, T, V], if the weights have a masked-language-model head
 *   loss     with targets [B, T]: -ln P of each; 0 where the target is no token [PH22 A12 line 7]
 *   embed    -> embedding [B, d]: the mean over a text's tokens, of length 1; only on demand
 * A classifier (config "num_labels", or weights with classifier.weight) has instead
 *   forward  -> logits [B, labels];  loss with targets [B]: -ln P(c | x) [PH22 section 3]
 * and a vision transformer (vit) the same of images: pixels f32 [B, C, H, W] in 0 .. 1; its encode
 * gives [B, patches (and class token), d].
 * Encoder-decoders (edt): source [B, S] with lengths [B], tokens [B, T]:
 *   encode   source -> hidden [B, S, d]
 *   forward  -> logits [B, T, V] for the token after each [PH22 A8];  loss with targets [B, T]
 * and token by token [PH22 A15], for `batch` sources and `beams` rows of tokens for each of them:
 *   prefill  source [batch, S], lengths [batch] -> hidden; keeps each layer's cross keys and values
 *   decode   tokens [batch beams, 1], lengths, dimensions P (tokens before) and S -> logits [.., V]
 *   reorder  parents [batch beams]: row i goes on where row parents[i] was -> parents */

typedef struct sn_model_options {
    int entries;                 /* which of the above; 0: SN_ALL_ENTRIES */
    int64_t batch;               /* of the cached entries; 0: 1 */
    int64_t beams;               /* rows of tokens a source, of encoder-decoders; 0: 1 */
    int64_t context;             /* longest sequence, and capacity of the caches; 0: the model's */
    int64_t max_batch;           /* upper bound of B; 0: 1024 */
    const sn_training *training; /* for SN_TRAIN; NULL: sn_training_default() */
    const sn_weights *weights; /* tells which prefix the names have; NULL: the format's usual one */
} sn_model_options;

/* What was built. */
typedef struct sn_model {
    sn_module *module;             /* the caller's: sn_module_free */
    const char *type;              /* "gpt2", … */
    int64_t vocab, context, batch; /* context: the longest sequence */
    int64_t layers, heads, d_model;
    int64_t source_vocab;    /* of encoder-decoders; 0: no source */
    int64_t labels;          /* of classifiers; else 0 */
    int64_t image, channels; /* height and width of images; 0: it takes none */
    bool tied;               /* "tie_word_embeddings" is true in the config */
} sn_model;

/* Builds the architecture that the config's "model_type" names. Options may be NULL. False with
 * every wrong key listed, or the known types when the type is not one of them. */
bool sn_model_build(sn_config *c, const sn_model_options *o, sn_model *out, sn_error *err);

/* Whether every tensor of the weights is a parameter of the model, or known to be of no effect
 * (causal masks, positions, heads of other tasks, an lm_head.weight that equals the token table or
 * is tied to it by the config). The model must have all of its entries. */
bool sn_model_takes_all(const sn_model *model, const sn_weights *w, sn_error *err);

/* After sn_model_build: the i-th key of the config that the model did not read and that is not
 * known to be of no effect, perhaps a misspelt one; NULL: there are no more. Keys known to change
 * the result are errors of sn_model_build. */
const char *sn_model_unknown_key(const sn_config *c, int i);

/* ---- a model in a C file of its own ---- */

/* SN_MODEL(m, o) { … } is the one thing that such a file exports: it adds entries to the empty
 * module m. o: sn_model_options with every field set but `weights`; sn_decoder_entries takes them
 * as they are. `sinter run FILE.c COMMAND` compiles the file, loads it and runs COMMAND on it. */
#define SN_MODEL(m, o)                                                                             \
    extern const int sn_model_version;                                                             \
    const int sn_model_version = SN_MODEL_VERSION;                                                 \
    void sn_model_define(sn_module *m, const sn_model_options *o);                                 \
    void sn_model_define(sn_module *m, const sn_model_options *o)
/* Of the structs and functions that a model file is compiled against; raised when they change. */
enum { SN_MODEL_VERSION = 2 };
typedef void sn_model_fn(sn_module *m, const sn_model_options *o);

/* Builds what SN_MODEL defined into a module called `name`. The vocabulary is the width of the
 * output "logits" (or of what sn_cross_entropy takes), the context the bound of the input "tokens";
 * 0 where there is none. */
bool sn_model_build_with(sn_model_fn *define, const char *name, const sn_model_options *o,
                         sn_model *out, sn_error *err);

/* config.json texts of published sizes ("gpt2", "gpt2-medium", …), for random weights; NULL: no
 * such name. i counts the names, NULL ends them. */
const char *sn_model_preset(const char *name);
const char *sn_model_preset_name(int i);

/* What an input, output or dimension of an entry above means, in words: "decode", "P". NULL: not
 * known. For sn_emit_options.describe. */
const char *sn_model_describe(const char *entry, const char *argument);

/* ---- the architectures ---- */

/* One pass over T tokens that follow `past` cached ones. */
typedef struct sn_span {
    sn_module *m;
    sn_tensor tokens; /* i32 [B, T] */
    sn_tensor pos;    /* i32 [T]: past, past + 1, … */
    sn_dim B, T;
    sn_dim past;       /* 0 without caches */
    int64_t capacity;  /* of the caches; 0: no caches */
    sn_tensor *stream; /* [layers + 1] the residual stream, to be kept by sn_span_keep; or NULL */
    const sn_training *training; /* NULL: not in training */
    sn_tensor documents;         /* i32 [B, T], or NULL: one sequence is one document */
} sn_span;

/* A decoder: embedding and layers, [B, T, d], then final norm and unembedding, [B, n, V]. */
typedef struct sn_decoder {
    const void *config;
    sn_tensor (*layers)(const void *config, const sn_span *s);
    sn_tensor (*unembed)(const void *config, sn_tensor x);
    int64_t context;  /* bound of T, capacity of the caches; the options may want less */
    int64_t n_layers; /* of sn_span_keep */
} sn_decoder;
/* Adds the entries to m; mistakes stay in m. */
void sn_decoder_entries(sn_module *m, const sn_decoder *d, const sn_model_options *o);
/* x [.., T, d] with what the cache `name` holds in front, if the step has caches. */
sn_tensor sn_span_remember(const sn_span *s, sn_tensor x, const char *name);
/* Tells the residual stream after `layers` layers (0: the embedding). */
void sn_span_keep(const sn_span *s, int64_t layers, sn_tensor x);
/* sn_attention, its weights with the dropout of the training t (NULL: none), and before that as the
 * tap "attention" [B, H, Tq, Tk] of the scope. .dropout and .rng are not to be set. */
#define sn_model_attention(t, q_, k_, ...)                                                         \
    sn_model_attention_at(SN_HERE, t,                                                              \
                          &(const sn_attention_args){.q = q_, .k = k_, .v = __VA_ARGS__})
sn_tensor sn_model_attention_at(sn_loc, const sn_training *t, const sn_attention_args *a);
/* x with the dropout of the training, if there is one. */
sn_tensor sn_span_dropout(const sn_span *s, sn_tensor x);
/* Which of Tk keys each token sees: itself and earlier ones (window > 0: so many in all) of its
 * document; bool [T, Tk] or [B, 1, T, Tk]. */
sn_tensor sn_span_mask(const sn_span *s, sn_dim Tk, int64_t window);
/* sn_model_attention of the training, masked by document; .mask and .user are not to be set. */
#define sn_span_attention(s, q_, k_, ...)                                                          \
    sn_span_attention_at(SN_HERE, s, &(const sn_attention_args){.q = q_, .k = k_, .v = __VA_ARGS__})
sn_tensor sn_span_attention_at(sn_loc, const sn_span *s, const sn_attention_args *a);

/* Squares of `size` pixels in raster order: [n, C, H, W] -> [n, patches, C, size, size]. */
sn_tensor sn_image_patches(sn_tensor image, int64_t size);
/* hidden [B, T, d], lengths [B] -> [B, d]: the mean over the tokens inside, scaled to length 1. */
sn_tensor sn_sentence_embedding(sn_tensor hidden, sn_tensor lengths);

/* Each: reads the config's keys (mistakes are recorded in c), then builds into out->module. */
void sn_gpt2_build(sn_config *c, const sn_model_options *o, sn_model *out);
void sn_gpt3_build(sn_config *c, const sn_model_options *o, sn_model *out);
void sn_gato_build(sn_config *c, const sn_model_options *o, sn_model *out);
void sn_gopher_build(sn_config *c, const sn_model_options *o, sn_model *out);
void sn_bert_build(sn_config *c, const sn_model_options *o, sn_model *out);
void sn_edt_build(sn_config *c, const sn_model_options *o, sn_model *out);
void sn_vit_build(sn_config *c, const sn_model_options *o, sn_model *out);
void sn_llama_build(sn_config *c, const sn_model_options *o, sn_model *out);
void sn_tse_gpt_build(sn_config *c, const sn_model_options *o, sn_model *out);
void sn_tse_alt_build(sn_config *c, const sn_model_options *o, sn_model *out);

#ifdef __cplusplus
}
#endif
#endif
