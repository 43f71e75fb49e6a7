/* models.h: ready-made architectures, one file each, built from a config.json. Parameters have
 * Hugging Face's names, so weight files bind by name. */
#ifndef SN_MODELS_H
#define SN_MODELS_H

#include "frontend/train.h"
#include "runtime/config.h"
#include "runtime/weights.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Entries of a decoder. tokens and targets are i32, V is the vocabulary size, B and T are symbolic:
 *   forward  tokens [B, T] -> logits [B, T, V]; has taps
 *   loss     tokens, targets [B, T] -> loss [B, T]: -ln P of each token [PH22 A13 line 5]
 *   prefill  tokens [batch, T], after P tokens in the caches -> logits [batch, V] of the last token
 *   decode   the same for T = 1 [PH22 A14 line 3]
 * No input shape determines P: bind it by name. P + T is at most `context`. For several sequences
 * (sn_model_options.sequences = N), the caches have N rows, and instead of these there are
 *   prefill  tokens [1, T], after P tokens in row R -> logits [1, V] of the last token
 *   decode   tokens [B, 1], past [B] i32 -> logits [B, V]: a token in each of rows 0 … B - 1, which
 *            hold past[b] <= P tokens
 *   reorder  parents [B] i32 -> parents: rows R … R + B - 1 become the first P tokens of rows
 *            parents[b] as they are
 * On request only:
 *   lens     tokens [B, T] -> logits [layers + 1, B, T, V]: the residual stream after the embedding
 *            and after each layer, through the final norm and the unembedding ("logit lens")
 *   step     tokens [batch, 1], temperature, rng i64[2] (seed, step number) -> next [batch]:
 *            decode, then sampling of the next token; temperature 0: the most likely token */
enum {
    SN_FORWARD = 1,
    SN_LOSS = 2,
    SN_CACHED = 4,
    SN_ENCODE = 8,
    SN_ALL_ENTRIES = 15, /* not included in SN_ALL_ENTRIES: */
    SN_LENS = 16,
    SN_TRAIN = 32, /* the entries of train.h, with the inputs of `loss` */
    SN_STEP = 64,
    SN_EMBED = 128,
    SN_CLASSIFY = 256, /* forward of a classifier; ignored by other models */
    SN_SENTENCES = 512 /* embed of an encoder of texts without classes; ignored by other models */
};

/* Encoders (bert, roberta, …): tokens, types (segments; not of distilbert) [B, T] and lengths [B];
 * positions from length on are padding:
 *   encode   -> hidden [B, T, d]
 *   forward  -> logits [B, T, V], if the weights have a masked-language-model head
 *   loss     with targets [B, T]: -ln P of each; 0 where target is not a token [PH22 A12 line 7]
 *   embed    -> embedding [B, d]: mean over a text's tokens, scaled to norm 1, or what the folder's
 *            modules.json says [B, n]; on request only
 * A classifier (config "num_labels", or weights with classifier.weight) has instead
 *   forward  -> logits [B, labels];  loss with targets [B]: -ln P(c | x) [PH22 section 3]
 * and a classifier of tokens (config "architectures", or weights without the part before the
 * classifier) has
 *   forward  -> logits [B, T, labels];  loss with targets [B, T]
 * Question answering (qa_outputs, or "architectures") is the same with 2 labels: of the first and of
 * the last token of the answer; ELECTRA's discriminator with 1: whether the token was replaced.
 * Encoders of images (vit, deit, dinov2) have the same entries for pixels f32 [B, C, H, W], which
 * the caller resizes and normalises as preprocessor_config.json says (a vit with Sinter's earlier
 * names: in 0 .. 1); encode returns [B, tokens before the patches, and patches, d], and instead of
 * embed there is, on request,
 *   embed_image  pixels -> embedding [B, d]: the class token's state, scaled to norm 1
 * Pairs of towers (clip, siglip) have, with SN_ENCODE or SN_EMBED, embed (tokens [B, T], lengths [B])
 * and embed_image, whose results are comparable, and with SN_FORWARD or SN_CLASSIFY
 *   forward      pixels [B, ..], tokens [N, T], lengths [N] -> logits [B, N] of image and text
 * Encoder-decoders (edt, bart, t5, …): source [B, S] with lengths [B], tokens [B, T]:
 *   encode   source -> hidden [B, S, d]
 *   forward  -> logits [B, T, V] of the next token [PH22 A8];  loss with targets [B, T]
 * (whisper: features [B, mel, frames], a log-mel spectrogram, in place of source and lengths; models that read the
 * sound itself: samples [B, hop S + lead])
 * and token by token [PH22 A15], for `batch` sources with `beams` rows of tokens each:
 *   prefill  source [batch, S], lengths [batch] -> hidden; fills the cross K/V caches
 *   decode   tokens [batch beams, 1], lengths, dimensions P (past tokens) and S -> logits [.., V]
 *   reorder  parents [batch beams]: row i continues row parents[i] -> parents */

typedef struct sn_model_options {
    int entries;       /* bit set of the above; 0: SN_ALL_ENTRIES */
    int64_t batch;     /* batch size of the entries with caches; 0: 1 */
    int64_t beams;     /* encoder-decoders: rows of tokens per source; 0: 1 */
    int64_t sequences; /* decoders: rows of the caches, see above; 0: one sequence */
    /* maximum sequence length and capacity of the caches; 0: the model's */
    int64_t context;
    int64_t max_batch; /* upper bound of B; 0: 1024 */
    /* decoders: tokens of a row in the entries "loss" and "train_step"; 0: any number. If twice the ranks of
     * the mesh axis "context" divide it, their rows are zigzag halves (sn_rows_zigzag) */
    int64_t tokens;
    const sn_training *training; /* used with SN_TRAIN; NULL: sn_training_default() */
    /* side of images, for models that interpolate positions (dinov2); 0: the model's */
    int64_t image;
    /* used to detect the prefix of parameter names; NULL: the format's usual prefix */
    const sn_weights *weights;
    /* the mesh of ranks (sn_mesh_at), ends with a name of NULL; its axis "tensor" divides heads, MLPs
     * and vocabularies, "context" sequences in the entries "loss" and "train_step" of decoders. NULL:
     * one rank */
    const sn_mesh_axis *mesh;
} sn_model_options;

/* What the logits of a pair of image and text mean. */
typedef enum sn_compares {
    SN_COMPARES_NOTHING, /* the model has no such pairs */
    SN_COMPARES_ALL,     /* softmax over the texts: the text that fits the image best (clip) */
    SN_COMPARES_EACH     /* sigmoid: whether this text fits the image (siglip) */
} sn_compares;

/* A model that was built. */
typedef struct sn_model {
    sn_module *module;             /* owned by the caller: sn_module_free */
    const char *type;              /* "gpt2", … */
    int64_t vocab, context, batch; /* context: the maximum sequence length */
    int64_t layers, heads, d_model;
    int64_t source_vocab; /* encoder-decoders; 0: no source of tokens */
    int64_t mel, frames;  /* encoder-decoders of sound: bins and frames of a spectrogram; 0 */
    /* Encoder-decoders of samples: S positions, from `least` on, take hop S + lead of them; mel is 1, frames the most samples.
     * 0: others */
    int64_t hop, lead, least;
    int64_t labels;          /* classifiers; otherwise 0 */
    bool per_token;          /* a classifier of each token, not of the text */
    bool spans;              /* its labels are the begin and the end of an answer */
    int64_t image, channels; /* height and width of images; 0: no image input */
    bool normalises;         /* pixels are 0 .. 1, which the model normalises */
    sn_compares compares;    /* images with texts */
    bool recurrent; /* its caches hold sums over all tokens so far, which a new sequence resets */
    bool tied;      /* the config sets "tie_word_embeddings" */
    bool text_only; /* the text part of a model of pictures and texts: other tensors are skipped */
} sn_model;

/* Builds the architecture named by the config's "model_type". Options may be NULL. On error returns
 * false with a list of all invalid keys, or the type that is nearest to an unknown one. */
bool sn_model_build(sn_config *c, const sn_model_options *o, sn_model *out, sn_error *err);

/* Whether every tensor of the weights is either a parameter of the model or known to have no effect
 * (causal masks, positions, heads of other tasks, an lm_head.weight that equals the token table or
 * is tied to it by the config). The model must have all of its entries. */
bool sn_model_takes_all(const sn_model *model, const sn_weights *w, sn_error *err);

/* After sn_model_build: the i-th config key that the model did not read and that is not known to be
 * irrelevant, perhaps misspelt; NULL: no more. Keys that are known to change the result but are not
 * supported are errors of sn_model_build. */
const char *sn_model_unknown_key(const sn_config *c, int i);

/* ---- models in user-written C files ---- */

/* SN_MODEL(m, o) { … } is the only symbol that such a file exports: it adds entries to the empty
 * module m. o: sn_model_options with all fields set except `weights`; pass it on to
 * sn_decoder_entries. `sinter run FILE.c COMMAND` compiles the file, loads it and runs COMMAND with
 * it. */
#ifdef __cplusplus
#define SN_MODEL_EXTERN extern "C"
#else
#define SN_MODEL_EXTERN extern
#endif
#define SN_MODEL(m, o)                                                                             \
    SN_MODEL_EXTERN const int sn_model_version;                                                    \
    const int sn_model_version = SN_MODEL_VERSION;                                                 \
    SN_MODEL_EXTERN void sn_model_define(sn_module *m, const sn_model_options *o);                 \
    void sn_model_define(sn_module *m, const sn_model_options *o)
/* ABI version of the structs and functions that a model file uses; increased when they change. */
enum { SN_MODEL_VERSION = 7 };
typedef void sn_model_fn(sn_module *m, const sn_model_options *o);

/* Builds the model defined by SN_MODEL into a module called `name`. The vocabulary size is the
 * width of the output "logits" (or of the operand of sn_cross_entropy), the context is the upper
 * bound of the length of the input "tokens"; 0 if there is none. Mistakes in the function, also a scope
 * that it leaves open, have the code SN_ERR_FILE instead of SN_ERR_USAGE, which is for the arguments. */
bool sn_model_build_with(sn_model_fn *define, const char *name, const sn_model_options *o,
                         sn_model *out, sn_error *err);
/* The module whose function sn_model_build_with is calling in this thread, for handlers of signals that
 * report a crash; NULL: none. Then *at, if not NULL, receives where the last call began. */
const sn_module *sn_model_defining(sn_loc *at);

/* The file in the folder of a trained model in C that holds its graph as text (`sinter opt` prints
 * such texts). */
#define SN_MODEL_GRAPH "graph.sn"
/* Builds a model from such a file: nothing is executed. Of o, `entries` and `context` are looked at. A
 * graph with `step` holds all entries of sn_decoder_entries: those that are not asked for are left
 * out. Another context than the graph's is an error. */
bool sn_model_build_graph(const char *path, const sn_model_options *o, sn_model *out,
                          sn_error *err);

/* Builds an ONNX file (frontend/onnx/onnx.h) into a module called `name`. The caller closes the weights. Where the
 * graph's inputs and outputs have the names of Hugging Face's Optimum, these `entries` of the options become those
 * above:
 *   SN_CACHED                  prefill, decode: input_ids, past_key_values.* -> logits, present.*, which become states
 *                              (also together with others, but SN_FORWARD without SN_ALL_ENTRIES); prefill, decode, reorder of an
 *                              encoder-decoder, whose other files lie beside that of the decoder
 *   SN_EMBED                   embed: input_ids -> sentence_embedding, or what becomes one: last_hidden_state;
 *                              embed_image: pixel_values -> image_embeds, last_hidden_state
 *   SN_FORWARD | SN_CLASSIFY   forward: input_ids or pixel_values -> logits
 * and attention_mask, position_ids, token_type_ids follow from tokens, lengths and P. The config may be NULL; it says
 * the context and the size of pictures where the file leaves them open, and how embeddings are pooled. All else is
 * the entry "forward" with the graph's inputs and outputs. SN_ALL_ENTRIES: that and, as far as they can be made, those
 * of SN_CACHED. */
bool sn_model_build_onnx(const char *path, const char *name, sn_config *config,
                         const sn_model_options *o, sn_model *out, sn_weights **weights,
                         sn_error *err);

/* The config.json text of a published size ("gpt2", "gpt2-medium", …), for use with random weights;
 * NULL: unknown name. sn_model_preset_name(i) enumerates the names; NULL ends them. */
const char *sn_model_preset(const char *name);
const char *sn_model_preset_name(int i);

/* The known architectures, by "model_type", for lists of them (docs/models.md). NULL: no more. */
typedef struct sn_model_family {
    const char *type;    /* "model_type" of config.json */
    const char *what;    /* published models that have it */
    const char *heads;   /* what the model is for */
    const char *checked; /* what its results were compared with */
    bool encodes;        /* an encoder of texts, with the entries above */
    bool pairs;          /* an encoder-decoder of texts */
    bool text_only;      /* the text model of one of pictures and texts, see sn_model */
} sn_model_family;
const sn_model_family *sn_model_family_at(int i);

/* Describes an input, output or dimension of an entry above ("decode", "P"). NULL: not known. For
 * sn_emit_options.describe. */
const char *sn_model_describe(const char *entry, const char *argument);

/* ---- the architectures ---- */

/* Whether ranks that divide rows of this many tokens have two halves each, the r-th from the start and the r-th from
 * the end, and therefore equal work. */
bool sn_rows_zigzag(int64_t tokens, int64_t ranks);

/* The forward context: T tokens that follow `past` cached ones. */
typedef struct sn_forward_ctx {
    sn_module *m;
    sn_tensor tokens; /* i32 [B, T] */
    sn_tensor pos;    /* i32 [T]: past, past + 1, …; [B, T] if there is `each` */
    sn_dim B, T;
    sn_dim past;       /* 0 without caches */
    int64_t capacity;  /* of the caches; 0: no caches */
    sn_tensor *hidden; /* [layers + 1] hidden states recorded by sn_record_hidden; or NULL */
    const sn_training *training; /* NULL: inference */
    sn_tensor documents;         /* i32 [B, T], or NULL: each sequence is one document */
    /* Ranks of the mesh axis "context", which divide the sequences: T positions of each, to which pos
     * belongs. 0, 1: nobody does */
    int64_t ranks;
    bool zigzag; /* see sn_rows_zigzag */
    /* Caches of several sequences, which differ in length: */
    int64_t rows;   /* rows of the caches; 0: B, which then is a number */
    sn_dim row;     /* the row of the only sequence, if `each` is NULL */
    sn_tensor each; /* i32 [B]: cached tokens of rows 0 … B - 1, at most `past`; pos is [B, T] */
} sn_forward_ctx;

/* A decoder: embedding and layers -> [B, T, d]; then final norm and unembedding -> [B, n, V]. */
typedef struct sn_decoder {
    const void *config;
    sn_tensor (*layers)(const void *config, const sn_forward_ctx *s);
    sn_tensor (*unembed)(const void *config, sn_tensor x);
    int64_t context;  /* upper bound of T, capacity of the caches; options may reduce it */
    int64_t n_layers; /* number of layers recorded by sn_record_hidden */
} sn_decoder;
/* Adds the entries to m; errors are recorded in m. */
void sn_decoder_entries(sn_module *m, const sn_decoder *d, const sn_model_options *o);
/* With caches: appends x [.., T, d] to the cache `name` and returns all cached rows; otherwise
 * returns x. */
#define sn_append_kv(s, x, name) sn_append_kv_at(SN_HERE, s, x, name)
sn_tensor sn_append_kv_at(sn_loc, const sn_forward_ctx *s, sn_tensor x, const char *name);
/* Records the hidden state after `layers` layers (0: the embedding). */
void sn_record_hidden(const sn_forward_ctx *s, int64_t layers, sn_tensor x);
/* sn_attention with the attention dropout of the training t (NULL: none). Its weights before
 * dropout are the tap "attention" [B, H, Tq, Tk] of the scope. Do not set .dropout and .rng. */
#define sn_model_attention(t, q_, k_, ...)                                                         \
    sn_model_attention_at(SN_HERE, t,                                                              \
                          &(const sn_attention_args){.q = q_, .k = k_, .v = __VA_ARGS__})
sn_tensor sn_model_attention_at(sn_loc, const sn_training *t, const sn_attention_args *a);
/* x with the dropout of the training, if any. */
sn_tensor sn_forward_dropout(const sn_forward_ctx *s, sn_tensor x);
/* The causal mask over Tk keys: each token sees itself and earlier tokens of its sequence and document
 * (window > 0: at most `window` in all); bool [T, Tk] or, with documents or `each`, [B, 1, T, Tk]. */
sn_tensor sn_forward_mask(const sn_forward_ctx *s, sn_dim Tk, int64_t window);
/* sn_model_attention with the context's training, masked by document; do not set .mask. */
#define sn_forward_attention(s, q_, k_, ...)                                                       \
    sn_forward_attention_at(SN_HERE, s,                                                            \
                            &(const sn_attention_args){.q = q_, .k = k_, .v = __VA_ARGS__})
sn_tensor sn_forward_attention_at(sn_loc, const sn_forward_ctx *s, const sn_attention_args *a);

/* An encoder. Its functions make their own inputs, of s->B rows and up to s->T positions. */
typedef struct sn_encoder {
    const void *config;
    sn_tensor (*encode)(const void *config, const sn_forward_ctx *s); /* hidden [B, T, d] */
    sn_tensor (*logits)(const void *config, const sn_forward_ctx *s); /* NULL: it has no head */
    int64_t context; /* upper bound of T; 0: T is not used */
    bool embeds;     /* it has the input `lengths`, and therefore an entry `embed` */
    int classifies;  /* SN_CLASSIFY if the logits are those of classes, else 0 */
    /* hidden [B, T, d], lengths [B] -> embedding [B, n]; NULL: sn_sentence_embedding */
    sn_tensor (*embed)(const void *config, sn_tensor hidden, sn_tensor lengths);
} sn_encoder;
void sn_encoder_entries(sn_module *m, const sn_encoder *e, const sn_model_options *o);

/* What a decoder attends to: the encoder's output z or, token by token, the keys and values of it
 * that the entry `prefill` cached. */
typedef struct sn_source {
    sn_tensor z;             /* [B, S, d]; NULL: cached */
    sn_tensor lengths;       /* [B] of the sources */
    sn_dim S, past;          /* tokens of the source; cached tokens of the decoder */
    int64_t batch, capacity; /* of the caches; 0: no caches */
    int64_t source_capacity; /* of the caches of the source */
} sn_source;
/* An encoder-decoder. The caches of decoder layer l are the states k_cache and v_cache of the
 * scopes LAYER.l.SELF and LAYER.l.CROSS; `cache_source` fills the latter from z. */
typedef struct sn_encoder_decoder {
    const void *config;
    sn_tensor (*encode)(const void *config, const sn_training *t, sn_tensor source,
                        sn_tensor lengths);
    sn_tensor (*decode)(const void *config, const sn_training *t, sn_tensor tokens,
                        const sn_source *y); /* logits [B, T, V] */
    void (*cache_source)(const void *config, sn_tensor z, int64_t capacity);
    int64_t context, layers, heads, d_head; /* of the decoder */
    /* the source is sound, "features" f32 [B, mel, 2 length], and z has `length` positions; 0: it is
     * tokens */
    int64_t mel, length;
    const char *layer_scope, *self_scope, *cross_scope;
} sn_encoder_decoder;
void sn_encoder_decoder_entries(sn_module *m, const sn_encoder_decoder *d,
                                const sn_model_options *o);
/* The state `name` of the scope, up to the source's length: [batch, heads, S, d_head]. */
sn_tensor sn_cached_source(const sn_encoder_decoder *d, sn_module *m, const char *name,
                           const sn_source *y);
/* sn_model_attention that does not see keys from lengths [B] on. */
#define sn_padded_attention(t, lengths, q_, k_, v_)                                                \
    sn_padded_attention_at(SN_HERE, t, &(const sn_attention_args){.q = q_, .k = k_, .v = v_},      \
                           lengths)
sn_tensor sn_padded_attention_at(sn_loc, const sn_training *t, const sn_attention_args *a,
                                 sn_tensor lengths);

/* Squares of `size` pixels in raster order: [n, C, H, W] -> [n, patches, C, size, size]. */
sn_tensor sn_image_patches(sn_tensor image, int64_t size);
/* [n, C, h, w] -> [n, filters, h / 2, w / 2]: a convolution of stride 2, then a residual block
 * (group norm, GELU, convolution, twice). Parameters resnet.NAME. */
sn_tensor sn_image_resnet(sn_tensor image, int64_t filters, int64_t groups);
/* hidden [B, T, d], lengths [B] -> [B, d]: mean over the valid tokens; scaled to norm 1. */
sn_tensor sn_token_mean(sn_tensor hidden, sn_tensor lengths);
sn_tensor sn_sentence_embedding(sn_tensor hidden, sn_tensor lengths);
sn_tensor sn_unit_norm(sn_tensor x); /* [.., d], each scaled to norm 1 */

/* Each reads the config's keys (errors are recorded in c), then builds into out->module. */
void sn_gpt2_build(sn_config *c, const sn_model_options *o, sn_model *out);
void sn_gpt3_build(sn_config *c, const sn_model_options *o, sn_model *out);
void sn_gato_build(sn_config *c, const sn_model_options *o, sn_model *out);
void sn_gopher_build(sn_config *c, const sn_model_options *o, sn_model *out);
void sn_vit_build(sn_config *c, const sn_model_options *o, sn_model *out);
void sn_deit_build(sn_config *c, const sn_model_options *o, sn_model *out);
void sn_dinov2_build(sn_config *c, const sn_model_options *o, sn_model *out);
void sn_clip_build(sn_config *c, const sn_model_options *o, sn_model *out);
void sn_siglip_build(sn_config *c, const sn_model_options *o, sn_model *out);
void sn_tse_gpt_build(sn_config *c, const sn_model_options *o, sn_model *out);
void sn_tse_alt_build(sn_config *c, const sn_model_options *o, sn_model *out);

#ifdef __cplusplus
}
#endif
#endif
