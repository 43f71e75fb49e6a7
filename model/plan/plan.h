/* plan.h: what training on many ranks would cost, from the compiled step and this machine's speed:
 * memory, bytes, time. `sinter plan` prints it. One file each: what is measured (plan.c), processes
 * that load this machine as ranks would (team.c), times of slices (measure.c), ranks in step with
 * each other (predict.c), ranks that divide something (divided.c), the picture (draw.c). */
#ifndef SN_TOOLS_PLAN_H
#define SN_TOOLS_PLAN_H

#include "passes/plan/plan.h"
#include "model/train/train.h"

/* ---- what is asked ---- */

/* The network of a machine, which its ranks share. */
typedef struct plan_net {
    double bandwidth; /* bytes a second, each way */
    double latency;   /* seconds until a message has arrived ... */
    double gap;       /* ... and between two messages of a rank */
} plan_net;
/* Reads "25Gbit,10us" or "25Gbit,10us,500ns". False: err. */
bool plan_net_read(const char *text, plan_net *out, sn_error *err);

enum { PLAN_POINTS = 32, PLAN_ROWS = 8, PLAN_LEVELS = 8 };

typedef enum plan_speed { PLAN_AUTO, PLAN_STEP, PLAN_ROOFLINE } plan_speed;

typedef struct plan_request {
    train_settings *settings;  /* batch and slices are changed while a slice is measured */
    sn_options compile;        /* threads: of a rank, at least 1 */
    int ranks[PLAN_POINTS], n; /* ascending */
    int per_machine;           /* ranks of a machine, which share its CPUs and network */
    int cpus;                  /* of a machine */
    int64_t rows;              /* of each rank; 0: the batch is divided */
    plan_net net;
    /* of calls: measured steps, or the machine's limits; AUTO: steps if memory suffices */
    plan_speed speed;
} plan_request;

/* ---- what is known of a slice ---- */

/* A sum over ranks, or another collective of the step. */
typedef struct plan_sum {
    double bytes;  /* of the whole tensor */
    double passes; /* a rank sends passes (N - 1) / N of the bytes ... */
    int rounds;    /* ... in so many rounds of N - 1 messages; N: the ranks that it joins */
    bool
        within; /* joins the ranks that share a model, which wait for it; else those with the same share */
} plan_sum;

/* Where an entry starts a collective, or waits for it; SN_WAIT_LEFT: for one of the step before. One
 * that a step leaves to the next one has no wait at its end. */
typedef struct plan_event {
    int call, sum;
    sn_wait wait;
} plan_event;

/* The collectives of an entry. */
typedef struct plan_program {
    plan_sum *sum;
    int n_sum;
    plan_event *event;
    int n_event;
} plan_program;

/* Times of a slice with so many rows, on a machine where `level` ranks run. */
typedef struct plan_times {
    int64_t rows;
    int level;
    double accumulate; /* seconds of a slice whose gradients are kept: the usual time ... */
    double step;       /* of the slice that ends a step */
    double spread;     /* standard deviation of a few slices together, divided by their number */
    double add;        /* to add the gradients of all parameters once */
    double *at;        /* [step.n_event] of the step */
    double *slice_at;  /* [slice.n_event] of the slice whose gradients are kept */
} plan_times;

typedef struct plan_memory {
    int64_t rows;
    double workspace; /* bytes */
} plan_memory;

typedef struct plan_point {
    int ranks;
    int64_t batch, slices, own; /* own: slices of the rank that has the most */
    double memory;              /* bytes of a rank */
    double sent;                /* bytes of a rank and step */
    double network;             /* seconds in which bytes are under way */
    double busy;                /* seconds in which sums are, with what they wait for */
    double waited, hidden;      /* of busy; hidden: share, 0 to 1 */
    double step;                /* seconds */
    double tokens;              /* a second */
} plan_point;

typedef struct plan {
    const plan_request *r;
    char model[64];
    int64_t parameters;
    double flops; /* a token */
    bool measured;
    plan_program step, slice; /* slice: one whose gradients are kept */
    double gradients;         /* bytes of the step's collectives but those within groups */
    double partial;           /* bytes of the gradients that a rank keeps of a slice */
    double fixed;             /* bytes of parameters, states and gradients */
    struct {
        int level;
        double peak, stream; /* operations and bytes a second of each of its ranks */
    } limit[PLAN_LEVELS];
    int n_limit;
    plan_times times[PLAN_ROWS * PLAN_LEVELS];
    int n_times;
    plan_memory memory[PLAN_ROWS];
    int n_memory;
    double carry;  /* CPU seconds for each byte that a rank sends: copies and additions */
    double others; /* percent of the CPUs that other programs used meanwhile; -1: unknown */
    double meet;   /* seconds of a sum of few bytes between ranks of a machine */
    plan_point point[PLAN_POINTS];
} plan;

/* Plans all points. Frees with plan_free in either case. */
bool plan_make(const plan_request *r, plan *out, sn_error *err);
void plan_free(plan *p);
/* SVG, or PNG, of speed and of the parts of a step by ranks. */
bool plan_draw(const plan *p, const char *path, sn_error *err);

/* ---- parts ---- */

/* Processes that do the same, so that a measurement sees the load of several ranks. Only the first
 * one, rank 0, goes on after plan_team_end. */
typedef struct plan_team plan_team;
plan_team *plan_team_start(int size, sn_error *err); /* before any thread exists */
int plan_team_rank(const plan_team *t);
/* Returns when all have called it. False: one of them has ended, err says why. */
bool plan_team_meet(plan_team *t, sn_error *err);
/* A flag that all see. */
void plan_team_raise(plan_team *t, bool up);
bool plan_team_raised(const plan_team *t);
void plan_team_end(plan_team *t, const sn_error *err); /* err: why this one ended early */

/* Times of slices with `rows` rows at each of the levels; by all members of the team. ranks: that divide
 * what the settings' zero and tensor say (then nothing is measured, only estimated); 1: nothing is
 * divided. */
bool plan_measure(plan *p, plan_team *t, int64_t rows, const int *level, int n_level, int ranks,
                  sn_error *err);
/* divided.c: the plan of ranks that divide something, by p, which divides nothing: its collectives and
 * memory, and p's times in proportion to the operations and bytes of its calls. plan_free it. */
bool plan_divided(const plan *p, int ranks, plan *out, sn_error *err);
/* Fills p->carry. */
bool plan_measure_carry(plan *p, sn_error *err);
/* Ranks of one machine that run at the same time, of n; more of them take turns. */
int plan_level(const plan_request *r, int ranks);
/* How many ranks share a model, and into how many such groups ranks are divided. */
int plan_shares(const plan_request *r);
int plan_groups(const plan_request *r, int ranks);
/* Whether every slice's gradients are summed over the ranks at once. */
bool plan_rounds(const plan_request *r, int ranks);
/* Batch and slices with that many ranks: with rounds, as many for each rank as 1, 2, 4, ... */
void plan_divide(const plan_request *r, int ranks, int64_t *batch, int64_t *slices);
int64_t plan_rows(int64_t batch, int64_t slices, int64_t slice); /* rows of a slice */
/* Fills out, whose number of ranks is set. */
bool plan_predict(const plan *p, plan_point *out, sn_error *err);

#endif
