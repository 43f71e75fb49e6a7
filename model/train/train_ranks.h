/* train_ranks.h: training on several ranks (runtime/comm/comm.h). Every rank holds the whole model
 * and computes the gradients of its slices of each batch; the sum over all slices has one order, so
 * every number of ranks makes the same steps. */
#ifndef SN_TOOLS_TRAIN_RANKS_H
#define SN_TOOLS_TRAIN_RANKS_H

#include "model/train/train.h"
#include "codegen/program/carry.h"
#include "runtime/comm/comm.h"
#include "runtime/threads.h"

enum { TRAIN_DEPTH = 40 /* of the tree of slices */ };

typedef struct train_ranks {
    sn_comm *comm; /* all ranks; NULL: this process trains alone */
    /* Neighbouring ranks that share a model (the mesh axis "tensor"), each with its share of the
     * parameters; NULL: every rank has the whole model. And those with the same share, which compute
     * other slices (the axis "data"): without shares all ranks. */
    sn_comm *tensor, *data;
    /* Neighbours that compute parts of the same rows (the mesh axis "context"); NULL: each computes whole
     * rows. They are ranks of `data`, too: their gradients are added as those of other slices are. */
    sn_comm *context;
    sn_reduction reduction;
    int64_t slices; /* of a batch; 1: it is not divided */
    /* Several slices of a rank: without `rounds`, neighbours, whose gradients it adds itself before
     * they are summed over ranks. With it (ZeRO 2 and 3), all ranks' k-th slices are neighbours and
     * summed over ranks at once, in round k, so that no rank keeps whole gradients. */
    bool rounds;
    int zero;       /* sn_training.zero */
    sn_leaves mine; /* the slices of this rank; its rounds */
    bool stop;      /* a rank was asked to stop, as all of them know */
    bool agreed;    /* all ranks know the error */
    /* the gradients of all parameters, one after another */
    struct train_gradient {
        const char *name; /* of the parameter */
        float *data;      /* state "gradient.NAME" of the session: the whole, or this rank's part */
        size_t n, at;     /* elements; before it in partial */
    } * gradient;
    size_t n_gradient, n;
    sn_threads threads;          /* which add them */
    float *partial[TRAIN_DEPTH]; /* [n] sums of subtrees, by depth */
    int depth; /* of this rank's last slice: its sum is the slice + partial[depth - 1] + … */
    sn_carrier *carrier; /* of the session */
    sn_comm *wire; /* the engine's communicator: of the ranks of `data`, which talk meanwhile */
    sn_comm_engine *engine; /* NULL: one rank */
    size_t within;          /* bytes sent in steps to ranks that share the model or rows */
    double *record;         /* [slices parts + 3 size] numbers of all ranks of `data` */
    size_t *at, *bytes;     /* [size] their parts of it */
} train_ranks;

/* Slices of a batch of that many rows, if the user does not say: the same for 1, 2, 4 and 8 ranks. */
int64_t train_ranks_slices(int64_t batch);
/* Divides the ranks into groups that share a model. Slices: at least one for each group, at most one for each row of a batch; in rounds as many for each
 * rank as the tree needs. Sets s->training for this number of ranks. */
bool train_ranks_open(train_ranks *r, sn_comm *c, train_settings *s, sn_error *err);
/* Ranks that compute the same slices, as they share a model or rows, are a group: this rank's number, how many
 * there are. */
int train_ranks_group(const train_ranks *r);
int train_ranks_groups(const train_ranks *r);
/* Whether gradients are sums, over slices or parts of rows. */
bool train_ranks_sum(const train_ranks *r);
/* How many slices a group has, and which is its k-th. */
int64_t train_ranks_count(const train_ranks *r, int group);
int64_t train_ranks_slice(const train_ranks *r, int group, int64_t k);
/* Of all ranks the first that computes the slice. */
int train_ranks_of_slice(const train_ranks *r, int64_t slice);
void train_ranks_close(train_ranks *r);
bool train_ranks_leads(const train_ranks *r); /* rank 0, which writes all files */
/* sn_comm_agree; notes that all ranks know the error. */
bool train_ranks_agree(train_ranks *r, bool ok, sn_error *err);
/* The host of a rank, "" if there is one only. */
const char *train_ranks_name(const train_ranks *r, int rank, char *buf, size_t size);

/* sn_comm_check_same; all ranks know the error. */
bool train_ranks_same(train_ranks *r, const sn_comm_same *list, int n, sn_error *err);

/* train_same.c: these are equal on all ranks; called by all of them. */
bool train_check_same(train_ranks *r, const char *target, const train_identity *id,
                      const train_start *start, sn_error *err);
bool train_check_kernels(train_ranks *r, const sn_program *p, sn_error *err);
bool train_check_tensors(train_ranks *r, const train_tensors *t, sn_error *err);
/* At the start, where every rank has read the checkpoint itself. */
bool train_check_begin(train_ranks *r, const train_tensors *t, const train_state *state,
                       sn_error *err);
/* The ranks' tensors and progress become those of rank 0. */
bool train_share(train_ranks *r, const train_tensors *t, train_state *state, sn_error *err);

/* train_shares.c: writes the checkpoint: one file, or parts of the ranks that divide tensors. Called by all
 * ranks, which then agree. */
bool train_ranks_save(train_ranks *r, const train_tensors *t, const train_state *state,
                      const train_identity *id, const char *folder, sn_error *err);
/* The ranks that have all parts of a tensor that ranks share: those of a group; of all groups, which
 * divide the shares. */
sn_comm *train_share_comm(const train_ranks *r, const train_tensor *x);
/* A tensor that ranks share. *whole: malloc'ed on the first of these ranks, NULL on the others. */
bool train_share_collect(train_ranks *r, const train_tensor *x, void **whole, sn_error *err);
/* train_save.c: writes a model folder, rank 0 does, with the parameters' last values, or the averages of their values;
 * those that are not trained have their initial ones. Called by all ranks. Of those that are divided rank 0 gathers one
 * at a time. */
bool train_save_model(train_ranks *r, const train_tensors *t, const train_start *start,
                      bool averaged, const char *folder, sn_config *config, sn_error *err);

/* train_rows.c: the memory of a part of rows; zero-initialise. */
typedef struct train_rows {
    int32_t *ids;
    size_t room;
} train_rows;
/* b becomes this rank's part of its rows, in the part's memory, if ranks divide them. */
bool train_rows_of(const train_ranks *r, sn_batch *b, train_rows *part, sn_error *err);
void train_rows_free(train_rows *part);
/* Whether the model's attention is divided among the ranks of "context". */
bool train_divides_rows(sn_module *m);

/* Finds the gradients that the entry "accumulate" stores in the session, and carries its sums. threads: of
 * the session, which add gradients of slices. */
bool train_ranks_bind(train_ranks *r, sn_session *s, sn_module *m, int threads, sn_error *err);
/* Runs `slice` for each slice of this rank. All but the last one add their gradients to the states
 * "gradient.NAME"; the last one's entry sums its own over all slices of all ranks (all_reduce,
 * reduce_scatter). */
bool train_ranks_gradients(train_ranks *r,
                           bool (*slice)(void *ctx, int64_t slice, bool last, sn_error *err),
                           void *ctx, sn_error *err);
/* Parameters may still be on their way between ranks when a step has ended: waits for them, before
 * anybody but the session reads them. Called by all ranks. */
bool train_ranks_settle(train_ranks *r, sn_error *err);
/* A line about what this rank has sent in so many steps, as its communicators have counted, and about the
 * time of sums of gradients; returns buf, "" for one rank. */
const char *train_ranks_times(const train_ranks *r, int64_t steps, char *buf, size_t size);
/* train_profile.c: keeps when sums are under way, for train_profile_write. */
void train_profile_record(train_ranks *r);
/* Writes the ranks' traces to one file, with a process for each rank and a track of its sums; called by all
 * ranks, each with its trace. Rank 0 writes. */
bool train_profile_write(train_ranks *r, const sn_trace *t, const char *path, sn_error *err);
/* loss[i] of each own slice i becomes that of every slice; sets r->stop if any rank wants to. */
bool train_ranks_losses(train_ranks *r, double *loss, bool stop, sn_error *err);
/* *stop becomes true if it is on any rank of the group. */
bool train_ranks_agree_stop(train_ranks *r, bool *stop, sn_error *err);
/* Two numbers of every rank of `data` to all of them, [2 size]; sets r->stop. */
bool train_ranks_pairs(train_ranks *r, const double mine[2], bool stop, double *all, sn_error *err);

#endif
