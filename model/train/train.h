/* train.h: trains a model from a config, for `sinter train`. One file each: settings from JSON
 * (train_config.c), texts to batches (train_data.c), saved state (checkpoint.c), reporting
 * (train_log.c), the loop (train.c). */
#ifndef SN_TOOLS_TRAIN_H
#define SN_TOOLS_TRAIN_H

#include "codegen/program/share.h"
#include "frontend/models.h"
#include "runtime/model_dir.h"
#include "runtime/comm/comm.h"
#include "model/dataset.h"
#include "model/tokenizer.h"

#include <stdio.h>

/* ---- settings ---- */

typedef enum train_documents { TRAIN_WHOLE, TRAIN_LINES, TRAIN_PARAGRAPHS } train_documents;

/* Paths are owned and already resolved relative to the process, not to the config. */
typedef struct train_settings {
    sn_config *model; /* config.json of the model; owned */
    /* file of a model in C (model_source.h); NULL: the config names the architecture */
    char *source;
    char *start;     /* a model folder with the initial weights; NULL: random */
    char *tokenizer; /* folder or file of a tokenizer; NULL: trained on the text */
    sn_train_options learn;
    /* training and validation text; NULL: a part of the training text */
    char *text, *text_validation;
    char *target, *target_validation; /* for pairs: the translations */
    double validation_part;           /* 0: no validation */
    train_documents documents;
    sn_dataset_options data; /* without ids of special tokens and vocab */
    sn_training training;
    sn_optimizer_group *group; /* of training.optimizer; owned, with its patterns */
    int decay_groups;          /* the rule for training.optimizer.decays */
    const char *precision;     /* "f32" or "bf16": see sn_options */
    const char *compute;       /* the same of products; NULL: f32 */
    /* equal parts of a batch, whose gradients are added in one order; 0: by the run (train_run) */
    int64_t slices;
    sn_reduction reduction; /* of gradients over ranks */
    int zero;               /* what ranks divide among themselves: sn_training.zero */
    int64_t tensor;         /* so many ranks share a model; 1: each has all of it */
    int64_t context;        /* so many ranks divide the tokens of each row; 1: each has all */
    int64_t steps, log_every, validate_every, validation_batches, save_every, patience;
    uint64_t seed;
} train_settings;

/* Reads a config file, or a model folder: then its weights are the initial ones, and the other
 * settings have their defaults. source: a model in C that replaces the one of the config (NULL:
 * none). A config may name one, too; a model folder is data and may not. False with a list of all
 * errors. */
bool train_settings_read(const char *path, const char *source, train_settings *out, sn_error *err);
/* Another optimizer, by the name that configs have, with its usual settings; clipping and what decays stay. */
bool train_settings_optimizer(train_settings *s, const char *kind, sn_error *err);
void train_settings_free(train_settings *s);
/* A line that differs if the steps of two runs would differ; returns buf. */
const char *train_settings_text(const train_settings *s, char *buf, size_t size);
enum { TRAIN_MAX_GROUPS = 16 }; /* of an optimizer */
/* The default settings for fine-tuning trained weights (settings->start). */
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

/* Loads or trains the tokenizer, reads the texts, and sets the vocabulary size in the model's
 * config if absent. */
bool train_data_open(train_settings *s, train_data *out, sn_error *err);
void train_data_close(train_data *d);
/* Writes the tokenizer into a folder, or copies the files that it was loaded from. */
bool train_data_save_tokenizer(const train_settings *s, const train_data *d, const char *folder,
                               sn_error *err);

/* ---- identity of a run ---- */

typedef enum train_part_kind {
    TRAIN_SETTINGS,
    TRAIN_MODEL,
    TRAIN_TOKENIZER,
    TRAIN_TEXT,
    TRAIN_VALIDATION,
    TRAIN_PARTS
} train_part_kind;

typedef struct train_part {
    const char *key, *what; /* key in a checkpoint's metadata; name in messages */
} train_part;
extern const train_part train_parts[TRAIN_PARTS];

/* The settings as text; hashes of the rest: the model's config (and C file), all tokens of the
 * tokenizer, the tokens and labels of the texts. */
typedef struct train_identity {
    char part[TRAIN_PARTS][8192];
} train_identity;
bool train_identify(const train_settings *s, const train_data *d, train_identity *out,
                    sn_error *err);
/* False if a checkpoint was made with other parts; the error names them. */
bool train_identity_check(const train_identity *now, const sn_weights *made, sn_error *err);

/* ---- the folder ---- */

#define TRAIN_LOG "metrics.jsonl"
#define TRAIN_AVERAGED "averaged" /* a model folder in it, with the averages of the parameters */

typedef struct train_folder {
    const char *path;
    int fd;    /* holds the lock; -1: not open */
    bool made; /* the folder was created */
} train_folder;

/* Creates the folder if needed and locks it for this process. resume: it must have a checkpoint.
 * Otherwise it must contain neither a run (unless force) nor another model or tokenizer, and must
 * not be the folder of the initial weights. Changes nothing in it. */
bool train_folder_open(train_folder *f, const char *path, const train_settings *s, bool resume,
                       bool force, sn_error *err);
/* Removes the files of an earlier run, the checkpoint first, before a new run writes anything: if
 * the process is killed at any moment, the files belong to one run only. */
bool train_folder_begin(const train_folder *f, const train_settings *s, sn_error *err);
/* Releases the lock; removes a folder that was created and stayed empty. */
void train_folder_close(train_folder *f);

/* ---- metrics ---- */

typedef struct train_point {
    int64_t step;
    double loss, validation; /* NAN: not measured */
} train_point;

/* metrics.jsonl and loss.svg of the folder. */
typedef struct train_log {
    char *jsonl, *svg;
    const char *title; /* of the curve: the model's type */
    int fd;            /* descriptor of metrics.jsonl, plus 1; 0: not open */
    train_point *point;
    size_t count, capacity;
    void (*sink)(void *ctx, const char *line); /* gets a copy of each new line; may be NULL */
    void *sink_ctx;
} train_log;

/* Opens the log; keeps lines of an earlier run up to step `keep`, drops the rest. If that fails the
 * log can still be used and keeps its points in memory. A line is written completely or not at
 * all. */
bool train_log_open(train_log *l, const char *folder, int64_t keep, sn_error *err);
typedef struct train_metrics {
    train_point at;
    double norm, rate, tokens_per_second, gflops, seconds;
    const char *precision;
} train_metrics;
bool train_log_add(train_log *l, const train_metrics *m, sn_error *err);
bool train_log_draw(const train_log *l, sn_error *err); /* writes the curve so far */
void train_log_close(train_log *l);

/* ---- saved state ---- */

/* The progress of a run between two steps, as far as it is not in the session's states. */
typedef struct train_state {
    int64_t step;
    double best; /* lowest validation loss; INFINITY: none so far */
    int64_t best_step;
    double loss, norm, rate; /* loss of the last step */
    bool pending;            /* validation of this step is due, but was interrupted */
} train_state;

/* The parameters at the start. */
typedef struct train_start {
    sn_parameters whole; /* without values */
    /* What the session gets: if the ranks divide the parameters (sn_training_divide), this one's part
     * of those. */
    sn_parameters own;
    uint64_t hash; /* of the whole values */
} train_start;
/* Divides the module's parameters and fills own, without a folder with drawn values; values: false
 * leaves them out. Parts of what a group of ranks shares have none: train_start_place. */
bool train_start_open(train_start *start, const sn_model *model, const train_settings *s,
                      const sn_model_dir *dir, int rank, bool values, sn_error *err);
const sn_weight *train_start_whole(const train_start *start, const char *name); /* or NULL */
const sn_weight *train_start_own(const train_start *start, const char *name);
/* FLOP of a step per token: 6 for every weight of a product (forward 2, backward 4), and 12 d T per
 * layer for the products of attention. Look-ups are free; a tied table counts as a product. */
double train_start_flops(const train_start *start, const sn_model *model, int64_t block);
/* Frees the values that sessions of the program have copied. */
void train_start_free_copied(train_start *start, const sn_program *program);
void train_start_close(train_start *start);

/* A tensor that training changes, in the session's memory, which may be only a part. */
typedef struct train_tensor {
    sn_weight whole; /* its name (the module's), type, shape; no data */
    int64_t rows;    /* of the whole, along all axes but the last; a vector is one row */
    size_t row_bytes;
    void *memory;        /* rows [first, last), or elements of the share */
    int64_t first, last; /* all rows unless divided among ranks */
    bool divided;        /* by rows, or among ranks that share the model */
    sn_share share;      /* ranks 0: it has none */
    int64_t at, held;    /* elements [at, at + held) of the share are in memory */
    bool nested;         /* and other groups have the others, in order; else each has all */
} train_tensor;

typedef struct train_tensors {
    train_tensor *tensor;
    size_t count;
} train_tensors;
/* whole: of the model's parameters, for the shapes of what is divided. The session must outlive the
 * list. */
bool train_tensors_open(sn_module *m, const sn_session *s, const sn_parameters *whole, int rank,
                        train_tensors *out, sn_error *err);
/* Gives the session's parts of shares their initial values. */
bool train_start_place(const sn_model *model, const train_settings *s, const train_start *start,
                       const train_tensors *t, sn_error *err);
void train_tensors_close(train_tensors *t);
const train_tensor *train_tensors_find(const train_tensors *t, const char *name); /* or NULL */
size_t train_tensor_bytes(const train_tensor *x);                                 /* in memory */

/* Elements [first, first + count) of the whole: into the tensor's share, as far as it has them; from the
 * memory of `ranks` ranks, group after group, one after another. */
void train_share_take(const train_tensor *x, const void *from, int64_t first, int64_t count);
void train_share_join(const train_tensor *x, const void *all, int ranks, int64_t first,
                      int64_t count, void *out);

/* DIR/checkpoint.safetensors. size: number of files with rows of matrices beside it, one written by
 * each rank; 1: there are none. Each rank calls checkpoint_save_part; when all have, rank 0 calls
 * checkpoint_save, which replaces the old checkpoint atomically and then removes its parts. */
bool checkpoint_save_part(const char *folder, const train_tensors *t, int64_t step, int rank,
                          int size, sn_error *err);
bool checkpoint_save(const char *folder, const train_tensors *t, const train_state *state,
                     const train_identity *id, int size, sn_error *err);
/* Reads the rows that this session has, whoever wrote them. Refuses another architecture, a run with
 * other parts, and invalid metadata. */
bool checkpoint_load(const char *folder, const train_tensors *t, train_state *state,
                     const train_identity *id, sn_error *err);
/* Removes all ranks' files of a folder whose checkpoint.safetensors is gone. */
void checkpoint_clean(const char *folder);
bool checkpoint_exists(const char *folder);
/* The slices of a batch in the run that made the checkpoint. */
bool checkpoint_slices(const char *folder, int64_t *slices, sn_error *err);

/* ---- the run ---- */

typedef enum train_end { TRAIN_DONE, TRAIN_EARLY, TRAIN_INTERRUPTED, TRAIN_FAILED } train_end;

struct train_ranks;
typedef struct train_request {
    train_settings *settings;
    const char *folder; /* output folder */
    bool resume, force; /* resume from a checkpoint; or start over although there is one */
    sn_options compile;
    /* The ranks that train together, all with this request; rank 0 writes the folder and should be
     * the only one with callbacks for display. NULL: this process alone. settings->slices 0: those
     * of the checkpoint; of a new run train_ranks_slices with ranks, else 1. */
    sn_comm *comm;
    /* Callbacks for display; lines have no newline. event: a line that is kept. */
    void (*progress)(void *ctx, const char *line);
    void (*event)(void *ctx, const char *line);
    /* a line of metrics.jsonl, with its newline; may be NULL */
    void (*metrics)(void *ctx, const char *line);
    /* called before the first step, after all preparations; may be NULL */
    void (*begun)(void *ctx, sn_session *s);
    /* called after the last step of a run that has not failed, by every rank, with everything still open;
     * may be NULL */
    bool (*ended)(void *ctx, struct train_ranks *ranks, sn_error *err);
    bool (*stopped)(void *ctx); /* polled after each step and each validation batch */
    void *ctx;
} train_request;

/* Sets s->compute, a setting since another one gives other steps. Decides "auto" (sn_choose_compute); an event
 * says what there is to say. */
bool train_choose_compute(const train_request *r, train_settings *s, sn_error *err);

typedef struct train_result {
    int64_t steps;
    double loss, validation, best; /* NAN: none */
    int64_t best_step;
    double seconds, tokens_per_second, gflops;
    int64_t parameters;
    bool alone; /* TRAIN_FAILED on this rank, and the others do not know: they must be ended */
} train_result;

/* Trains; the folder then contains a model (config.json, model.safetensors, tokenizer), the
 * checkpoint, metrics.jsonl and loss.svg. */
train_end train_run(const train_request *r, train_result *out, sn_error *err);

/* Instead of training: compiles the training step ahead of time, with the initial weights as the
 * state's initial value (sn_emit), and writes the folder NAME.model with config.json and the
 * tokenizer. Adding the trained parameters as model.safetensors completes the model folder.
 * entries: others beside train_step and loss (SN_FORWARD, …); they use the parameters in the state.
 * Sets what o says of the model (vocab, context). */
bool train_emit(train_settings *s, int entries, sn_emit_options *o, sn_error *err);

/* ---- planning ---- */

/* A training program with slices, open for whoever plans a run. */
typedef struct train_probe {
    sn_module *module;
    sn_program *program;
    sn_session *session; /* NULL: compiled with plan_only */
    int64_t parameters;  /* elements */
    double flops;        /* a token */
    const char *type;    /* of the model */
    void *trainer;
} train_probe;

/* A clock for train_probe_run, seconds. */
typedef struct train_clock {
    double (*now)(void *ctx);
    void *ctx;
} train_clock;

/* Opens data and model for settings with s->slices > 1, as train_run does without ranks, calls fn, and
 * closes them; writes no files. ranks > 1: the program is that of so many ranks which divide what s->zero
 * and s->tensor say; it can be looked at, but not run (compile->plan_only). */
bool train_probe_open(train_settings *s, int ranks, const sn_options *compile,
                      bool (*fn)(void *ctx, const train_probe *p, sn_error *err), void *ctx,
                      sn_error *err);
/* Makes a step with the slices [first, last) of a batch, as a rank does that owns these: all but the
 * last run `accumulate`, that one runs `train_step`. slice: [last - first] seconds of each; the
 * difference to *all is spent on sums over slices. */
bool train_probe_run(const train_probe *p, train_clock c, int64_t first, int64_t last,
                     double *slice, double *all, sn_error *err);

#endif
