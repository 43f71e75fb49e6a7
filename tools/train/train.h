/* train.h: training a model from a config: what `sinter train` stands on. One file each: settings
 * from JSON (train_config.c), texts to batches (train_data.c), saved state (checkpoint.c), what is
 * told on the way (train_log.c), the loop (train.c). */
#ifndef SN_TOOLS_TRAIN_H
#define SN_TOOLS_TRAIN_H

#include "frontend/models.h"
#include "runtime/dataset.h"
#include "runtime/tokenizer.h"

#include <stdio.h>

/* ---- settings ---- */

typedef enum train_documents { TRAIN_WHOLE, TRAIN_LINES, TRAIN_PARAGRAPHS } train_documents;

/* Paths are owned and already relative to the process, not to the config. */
typedef struct train_settings {
    sn_config *model; /* config.json of the model; owned */
    char *source;     /* of a model in C (model_source.h); NULL: the config says what it is */
    char *start;      /* a model folder whose weights to begin with; NULL: drawn */
    char *tokenizer;  /* a tokenizer's folder or file; NULL: learned */
    sn_train_options learn;
    char *text, *text_validation;     /* what to train on, and to validate on; NULL: a part of it */
    char *target, *target_validation; /* of pairs: the translations */
    double validation_part;           /* 0: no validation */
    train_documents documents;
    sn_dataset_options data; /* without ids of special tokens and vocab */
    sn_training training;
    int decay_groups;      /* which rule training.optimizer.decays is */
    const char *precision; /* "f32" or "bf16": sn_options */
    int64_t steps, log_every, validate_every, validation_batches, save_every, patience;
    uint64_t seed;
} train_settings;

/* Reads a config file, or a model folder: then the weights are its own, and all else as by
 * default. source: a model in C that replaces the one of the config (NULL: none). A config may name
 * one itself; a model folder is data and may not. False with every mistake listed. */
bool train_settings_read(const char *path, const char *source, train_settings *out, sn_error *err);
void train_settings_free(train_settings *s);
/* One line that tells two runs apart whose steps differ; returns buf. */
const char *train_settings_text(const train_settings *s, char *buf, size_t size);
/* What `sinter train` begins with when it goes on from trained weights (settings->start). */
#define TRAIN_FURTHER_RATE 5e-5
enum { TRAIN_FURTHER_WARMUP = 100 };

/* ---- data ---- */

typedef struct train_data {
    sn_tokenizer *tokenizer;
    sn_documents text, text_validation, target, target_validation;
    int32_t *label, *label_validation;
    size_t cut_end[2];
    sn_dataset *train, *validation; /* validation may be NULL */
    int32_t vocab;
} train_data;

/* Loads or learns the tokenizer, reads the texts, tells the model's config its vocabulary if that
 * has none. */
bool train_data_open(train_settings *s, train_data *out, sn_error *err);
void train_data_close(train_data *d);
/* Writes the tokenizer into a folder, or copies the files that it came from. */
bool train_data_save_tokenizer(const train_settings *s, const train_data *d, const char *folder,
                               sn_error *err);

/* ---- what a run consists of ---- */

typedef enum train_part_kind {
    TRAIN_SETTINGS,
    TRAIN_MODEL,
    TRAIN_TOKENIZER,
    TRAIN_TEXT,
    TRAIN_VALIDATION,
    TRAIN_PARTS
} train_part_kind;

typedef struct train_part {
    const char *key, *what; /* in a checkpoint's metadata; in messages */
} train_part;
extern const train_part train_parts[TRAIN_PARTS];

/* The settings as text; of the others a hash: of the model's config (and C file), of all tokens of
 * the tokenizer, of the tokens and labels of the texts. */
typedef struct train_identity {
    char part[TRAIN_PARTS][1024];
} train_identity;
bool train_identify(const train_settings *s, const train_data *d, train_identity *out,
                    sn_error *err);
/* False if a checkpoint was made with other parts; the error says which. */
bool train_identity_check(const train_identity *now, const sn_weights *made, sn_error *err);

/* ---- the folder ---- */

#define TRAIN_LOG "metrics.jsonl"

typedef struct train_folder {
    const char *path;
    int fd;    /* holds the lock; -1: not open */
    bool made; /* it did not exist before */
} train_folder;

/* Makes the folder if need be and locks it for this process. resume: it must have a checkpoint.
 * Otherwise it must hold neither a run (force: it may) nor another model or tokenizer, and must not
 * be the model to begin with. Nothing in it changes. */
bool train_folder_open(train_folder *f, const char *path, const train_settings *s, bool resume,
                       bool force, sn_error *err);
/* Removes the files of an earlier run, the checkpoint first, before anything of a new run is
 * written: a process that is killed at any moment leaves files of one run only. */
bool train_folder_begin(const train_folder *f, const train_settings *s, sn_error *err);
/* Gives the lock back; removes a folder that was made and stayed empty. */
void train_folder_close(train_folder *f);

/* ---- what was measured on the way ---- */

typedef struct train_point {
    int64_t step;
    double loss, validation; /* NAN: not measured */
} train_point;

/* metrics.jsonl and loss.svg of the folder. */
typedef struct train_log {
    char *jsonl, *svg;
    int fd; /* of jsonl, plus 1; 0: not open */
    train_point *point;
    size_t count, capacity;
} train_log;

/* Opens the log; keeps lines up to step `keep` of an earlier run, drops the rest. If that fails the
 * log can be used all the same, and keeps its points in memory. A line is written whole or not. */
bool train_log_open(train_log *l, const char *folder, int64_t keep, sn_error *err);
typedef struct train_metrics {
    train_point at;
    double norm, rate, tokens_per_second, gflops, seconds;
    const char *precision;
} train_metrics;
bool train_log_add(train_log *l, const train_metrics *m, sn_error *err);
bool train_log_draw(const train_log *l, sn_error *err); /* the curve so far */
void train_log_close(train_log *l);

/* ---- saved state ---- */

/* Where a run stands between two steps; all that is not in the session's states. */
typedef struct train_state {
    int64_t step;
    double best; /* lowest validation loss; INFINITY: none yet */
    int64_t best_step;
    double loss, norm, rate; /* of the last step */
    bool pending;            /* its validation is due, but was interrupted */
} train_state;

/* The names and shapes of all that training changes, memory of their size included. */
typedef struct train_tensors {
    sn_weight *weight; /* names belong to the module, data to the list */
    size_t count;
} train_tensors;
bool train_tensors_open(sn_module *m, train_tensors *out, sn_error *err);
void train_tensors_close(train_tensors *t);

/* Writes DIR/checkpoint.safetensors: replaced as a whole, or left as it was. */
bool checkpoint_save(const char *folder, const sn_session *s, train_tensors *t,
                     const train_state *state, const train_identity *id, sn_error *err);
/* Reads it back into the session. Refuses another architecture, other parts of a run, and metadata
 * that no run writes. */
bool checkpoint_load(const char *folder, sn_session *s, train_tensors *t, train_state *state,
                     const train_identity *id, sn_error *err);
bool checkpoint_exists(const char *folder);

/* ---- the run ---- */

typedef enum train_end { TRAIN_DONE, TRAIN_EARLY, TRAIN_INTERRUPTED, TRAIN_FAILED } train_end;

typedef struct train_request {
    train_settings *settings;
    const char *folder; /* where everything goes */
    bool resume, force; /* go on with a checkpoint; or begin anew although there is one */
    sn_options compile;
    /* What a caller shows; lines end without a newline. event: a line that stays. */
    void (*progress)(void *ctx, const char *line);
    void (*event)(void *ctx, const char *line);
    void (*begun)(void *ctx);   /* preparations are done, the first step comes; may be NULL */
    bool (*stopped)(void *ctx); /* asked after each step and each batch of a validation */
    void *ctx;
} train_request;

typedef struct train_result {
    int64_t steps;
    double loss, validation, best; /* NAN: none */
    int64_t best_step;
    double seconds, tokens_per_second, gflops;
    int64_t parameters;
} train_result;

/* Trains; the folder then holds a model (config.json, model.safetensors, tokenizer), the
 * checkpoint, metrics.jsonl and loss.svg. */
train_end train_run(const train_request *r, train_result *out, sn_error *err);

/* Instead of training: writes the training step ahead of time, with the initial weights as the
 * state's first value (sn_emit), and the folder NAME.model with config.json and the tokenizer:
 * with the trained parameters as model.safetensors it is a model folder. */
bool train_emit(train_settings *s, const sn_emit_options *o, sn_error *err);

#endif
