/* subject.h: a model that is being quantised: its parameters as f32 arrays, its linear maps and
 * tables, and texts to run it on. */
#ifndef SN_SUBJECT_H
#define SN_SUBJECT_H

#include "ir/ir.h"
#include "model/open.h"

/* A parameter of rank 2 that products read as [n, k], outputs by inputs. */
typedef struct subject_matrix {
    int param; /* index */
    int64_t n, k;
    bool swapped;       /* stored as [k, n] */
    bool table;         /* rows are looked up, too, or only */
    const sn_node *map; /* the linear map; NULL: only a table */
    int product;        /* index; -1: only a table */
} subject_matrix;

/* Linear maps of one tensor: they are merged, so they are treated alike. */
typedef struct subject_product {
    sn_node *input; /* [.., k] */
    int64_t k;
    int *matrix, n_matrix; /* indices */
    char label[120];       /* "layers.0.self_attn.q_proj+k_proj+v_proj" */
} subject_product;

typedef struct subject_param {
    const sn_node *node;
    const char *name;
    int64_t count;
    float *data;     /* as it is now */
    float *original; /* as it was; the same memory if it did not change since subject_commit */
    bool changed;    /* it is not, or was not always, what the file says */
} subject_param;

/* A text as inputs of the entry: one row. */
typedef struct subject_text {
    int32_t *tokens, *targets, *source; /* targets, source: NULL: the entry has none */
    int64_t n, n_source;
} subject_text;

/* What is measured: of decoders -ln P per token; of encoders vectors, which are compared with those in
 * f32; of encoder-decoders logits, whose most likely tokens are compared with those in f32. */
typedef enum subject_kind { SUBJECT_LOSS, SUBJECT_COSINE, SUBJECT_GREEDY } subject_kind;

typedef struct subject {
    open_model *m;
    sn_module *module;
    const char *output; /* what is measured: "loss", "embedding", "hidden", "logits" */
    subject_kind kind;
    sn_node *measured;
    sn_options compile; /* level, threads, cache */
    subject_param *param;
    subject_matrix *matrix;
    subject_product *product; /* in the order in which they are computed */
    int n_param, n_matrix, n_product;
    subject_text *text; /* the last n_held are for measuring only */
    int n_text, n_held;
    int64_t tokens, held_tokens; /* of the others; of the last */
    int skipped;                 /* texts that were longer than the context */
    double reference;            /* mean loss in f32, of subject_reference */
    float **vectors;             /* [n_held] in f32: vectors or logits; NULL: of losses */
} subject;

/* A file in memory. */
typedef struct subject_file {
    const char *name, *data; /* data NULL: not given */
    size_t size;
} subject_file;

typedef struct subject_options {
    const char *command, *path, *tokenizer;
    subject_file text, target; /* target: results of the lines of text, for encoder-decoders */
    int64_t tokens; /* most tokens to run at once over; those to measure are a quarter more */
    int64_t window; /* most tokens of a sequence of a decoder */
    sn_options compile;
} subject_options;

/* Opens a model and reads the texts. s: to be closed in any case. */
bool subject_open(subject *s, const subject_options *o, sn_error *err);
void subject_close(subject *s);

/* A session of the entry "measure" with these options of storage and arithmetic. original: with the
 * parameters as they were, except those with changed[i] (NULL: none). */
typedef struct subject_session {
    sn_program *program;
    sn_session *session;
} subject_session;
bool subject_session_open(subject *s, subject_session *out, const sn_options *o, bool original,
                          const bool *changed, sn_error *err);
void subject_session_close(subject_session *x);

/* Runs an entry on a text. Outputs as of sn_run. */
bool subject_run(sn_session *session, const char *entry, const subject_text *t,
                 const sn_arg_binding *out, int n_out, sn_error *err);

/* Measures the model in f32 as it is: what subject_measure compares with. */
bool subject_reference(subject *s, sn_error *err);
/* The loss on the texts for measuring: perplexity over that in f32, minus 1; 1 minus the mean cosine
 * between the vectors and those in f32; or the part of the greedy tokens that are others than in f32,
 * at least the part that is expected of the mean change of a token's lead over the next one. */
bool subject_measure(const subject *s, const subject_session *x, double *loss, sn_error *err);
/* "perplexity", "1 - cosine", "greedy tokens" */
const char *subject_measure_name(const subject *s);

/* The value of a parameter as [n, k]; the caller frees it. NULL: out of memory. */
float *subject_matrix_get(const subject *s, const subject_matrix *w);
/* Makes it the parameter's value; the original is kept. */
bool subject_matrix_set(subject *s, const subject_matrix *w, const float *value, sn_error *err);
/* The parameter's data, to be changed; the original is kept. NULL: out of memory. */
float *subject_param_edit(subject *s, int param, sn_error *err);

/* Makes a parameter what it was. */
void subject_restore(subject *s, int param);
/* Makes the parameters as they are now the originals. */
void subject_commit(subject *s);

/* Progress of long work: false: stop, with the error "interrupted". */
typedef struct subject_progress {
    bool (*show)(void *ctx, const char *what, double done); /* done: 0 .. 1 */
    void (*line)(void *ctx, const char *text);
    void *ctx;
} subject_progress;
bool subject_show(const subject_progress *p, sn_error *err, double done, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void subject_line(const subject_progress *p, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
