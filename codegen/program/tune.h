/* tune.h: choices by measurement: which of several right kernels is the fastest at the sizes in
 * use, remembered in the disk cache. tune.c knows what is remembered, tune_measure.c measures. */
#ifndef SN_TUNE_H
#define SN_TUNE_H

#include "codegen/jit/cache.h"
#include "codegen/program/program.h"
#include "passes/choice.h"

/* A choice must be so much faster than the cost model's to replace it. */
#define SN_TUNE_MARGIN 0.03
enum {
    SN_TUNE_ROWS = 16 /* fewer run at the speed of the memory, which no loop over warm data shows */
};

typedef struct sn_known { /* a choice that somebody measured */
    const char *text;     /* what it is about */
    int candidate;
    const char *why; /* for reports */
    bool changed;    /* the cost model had said otherwise */
} sn_known;

typedef sn_program *sn_compile_fn(sn_module *m, const sn_options *o, const sn_object_sink *sink,
                                  const sn_chooser *forced, sn_error *err);

typedef struct sn_tuner {
    sn_module *m;
    const sn_options *o;
    const sn_target *target;
    sn_cache *cache;
    const int64_t *symbol;          /* [sn_symbol_count] the sizes in use */
    const sn_compiled_entry *entry; /* [n_entry] the user's, with what their sizes must fulfil */
    int n_entry;
    int level, threads;
    const char *backend;
    char cpu[80];
    sn_stats *stats;
    sn_error *err;
    sn_compile_fn *compile; /* makes candidates: sn_program_make */
    sn_chooser chooser;     /* for the passes: applies the known choices */
    sn_known *known;
    int n_known, cap_known;
} sn_tuner;

/* What the system says this CPU is; the target names only a family. */
void sn_read_cpu(char *cpu, size_t size);

void sn_tuner_init(sn_tuner *t);

/* The sizes that share a choice with v >= 0: a power of two and what is below the next; 0 alone. */
typedef struct sn_bucket {
    int64_t from, to;
} sn_bucket;
sn_bucket sn_tune_bucket(int64_t v);

/* Whether every entry may run at these sizes; otherwise err tells the first that may not,
 * and why. */
bool sn_tuner_may_run(const sn_tuner *t, const int64_t *symbol, sn_error *err);

/* Measures the choices of the passes that are not known yet. *again: a candidate other than the
 * model's won, so the passes must run once more. False: t->err. */
bool sn_tuner_measure(sn_tuner *t, const sn_passes *p, bool *again);

/* Takes the tile that is known to be the fastest; measures it if t->o->tune says so. */
bool sn_tuner_tile(sn_tuner *t, sn_kernel *k);

/* tune_measure.c: a trial measures n candidates. The winner is the fastest; it is 0 unless another
 * is faster by SN_TUNE_MARGIN. gain: time of candidate 0 divided by the winner's; runner_up: by
 * that of the best candidate that did not win, 0 if there was none. */
typedef struct sn_trial {
    int n, winner;
    double gain, runner_up;
} sn_trial;
bool sn_tune_kernel(sn_tuner *t, const sn_kernel *k, sn_trial *c);
/* Program i of the trial is the module compiled with candidate[i] chosen. */
bool sn_tune_choice(sn_tuner *t, const sn_choice *q, const sn_candidate *candidate, sn_trial *c);

#endif
