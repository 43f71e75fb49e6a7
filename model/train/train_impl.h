/* train_impl.h: a training run while it lasts, shared by train.c (the loop), train_open.c (what a run needs)
 * and train_step.c (steps and validation). */
#ifndef SN_TRAIN_IMPL_H
#define SN_TRAIN_IMPL_H

#include "model/train/train.h"
#include "model/train/train_ranks.h"
#include "driver/model_source.h"

typedef struct trainer {
    const train_request *r;
    train_settings *s;
    train_data data;
    model_source code; /* of a model in C */
    sn_model model;
    train_start start;
    sn_program *program;
    sn_session *session;
    train_tensors tensors;
    train_state state;
    train_log log;
    train_folder folder;
    char *averaged; /* the folder of the averages; NULL: there are none */
    bool noted;     /* a file next to the checkpoint cannot be written: reported */
    bool stopping;  /* the caller requested a stop */
    bool cut;       /* stopped during a validation */
    sn_batch batch;
    train_rows part;
    float *losses; /* of a validation batch */
    size_t room;
    train_identity identity;
    train_ranks ranks;
    double *loss; /* [slices] of a step */
    double flops; /* FLOP per token */
    double validation;
    double begun;          /* time at which the first step began */
    int64_t tokens, steps; /* since then */
} trainer;

/* A line for `sink`, if there is one. */
void trainer_note(void (*sink)(void *, const char *), void *ctx, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* train_open.c: everything up to the first step; the caller closes in either case. */
bool trainer_open(trainer *t, sn_error *err);
void trainer_close(trainer *t);
/* Reports that a file beside the checkpoint cannot be written, once. */
void trainer_note_once(trainer *t, bool ok, const sn_error *why);

/* train_step.c */
bool trainer_stops(trainer *t); /* the caller has requested it */
bool trainer_step(trainer *t, sn_error *err);
/* The mean of -ln P(target) over the validation text; sets t->cut if it was stopped. Ranks take the
 * batches in turn. */
bool trainer_validate(trainer *t, sn_error *err);

#endif
