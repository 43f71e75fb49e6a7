/* measure.h: what every bench shares: entrants that are timed in interleaved rounds together with
 * the machine's limits, and one record a measurement.
 *
 * A shared machine changes from minute to minute. So each round times every entrant once, in
 * turning order, with the FMA-peak probe between them, and, for work that memory may bound, with
 * the streaming of the same number of bytes: of the entrant's own memory just before and after it,
 * where that is known, because what of it lies in the last-level cache makes a difference; else of
 * other memory at the round's beginning and end. A round's limits are the best that its probes saw
 * (a probe beside threads that still spin sees less). Shares and speed-ups are medians of ratios
 * taken within a round. A second limit is the 90 % quantile of all looks at the FMA peak of the
 * run, of 25 ms each, one before and one after each entrant. */
#ifndef SN_MEASURE_H
#define SN_MEASURE_H

#include "bench/probe.h"
#include "runtime/base.h"

#include <signal.h>
#include <stdio.h>

enum { SN_BENCH_SETUP = 512 }; /* room for the words on how a peer was set up */

/* One measurement, as it stands in the JSON file. Absent numbers are NaN, absent texts "". */
typedef struct sn_bench_record {
    char kind[16];    /* "gemm", "kernel", "attention", "model", "roofline" */
    char name[48];    /* "layer_norm", "attention causal", "gpt2 forward" */
    char shape[64];   /* "1024x768" */
    char backend[24]; /* "own", "onednn", "auto", or a peer */
    char dtype[8];
    char setup[SN_BENCH_SETUP]; /* how it was set up (peers) */
    int level;                  /* fusion level; -1: a peer, or a probe */
    int threads, rounds;
    double ms_median, ms_min, ms_max;
    double flop, bytes; /* of one run: operations that the result needs; compulsory traffic */
    double gflops, gbytes_s;
    double peak_gflops, stream_gbytes_s;  /* medians of the probes */
    double pct_roofline;                  /* of the measured limit of its round */
    double run_peak_gflops, pct_run_peak; /* the whole run's limit, and the share of it of work
                                             that is bound by computing */
    char bound[8];                        /* "compute" or "memory": which limit that was */
    double speedup_vs_level0;
    double rel_rms, max_ulp, max_rel; /* against the f64 evaluator */
    char checked[64];                 /* the problem that the error was taken on */
    double peak_bytes;                /* working memory */
    double compile_ms;
    double tokens_s; /* of models: tokens through the model a second */
} sn_bench_record;

/* A growing list; zero-initialised, list from malloc. */
typedef struct sn_bench_report {
    sn_bench_record *list;
    int n, cap;
    char **note; /* [n_note] things to know: peers that are absent and why */
    int n_note;
    double *probe; /* [n_probe] looks at the f32 peak, GFLOP/s: the mean of one before and one
                      after each run of an entrant; sorted */
    int n_probe, cap_probe;
    double others, stolen; /* noise.h, percent; -1: not known */
} sn_bench_report;
sn_bench_record *sn_bench_add(sn_bench_report *r, sn_error *err); /* empty record; NULL: memory */
void sn_bench_note(sn_bench_report *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Notes each record that is slower than the same work at a lower level of the same back end: a
 * fused kernel slower than its parts is a bug. Slower: even its shortest time is 3 % above the
 * other's median. */
void sn_bench_judge(sn_bench_report *r);
void sn_bench_report_free(sn_bench_report *r);

/* Options of all benches. */
typedef struct sn_bench_options {
    unsigned levels;      /* bit l: level l */
    const char *backends; /* names with commas between */
    const char *peers;    /* "all", "none", or names with commas between */
    const char *peer_dir; /* scripts of the peers */
    const char *target, *cache_dir;
    const char *profile;   /* a file for the times of the last variant's kernels; NULL: none */
    const char *weights;   /* storage of constant matrices: NULL, "f32", "bf16", "int8", "int4" */
    const char *precision; /* of training: NULL, "f32", "bf16" */
    int threads;           /* 0: as many as OpenMP offers */
    int rounds;            /* at least 5 */
    double seconds;        /* of one entrant in one round, at least */
    bool check;            /* against the f64 evaluator */
    bool direct;           /* the kernel generators alone beside it */
    bool tune;             /* own entrants choose their kernels by measuring */
    const volatile sig_atomic_t *stop; /* not 0: no further round is begun; NULL: never */
    FILE *progress;                    /* NULL: none */
    double *shown;                     /* when progress was shown last; 0 at first */
    struct sn_bench_peers *started;    /* peers.h: sn_bench_peers_start; NULL: none */
} sn_bench_options;
int sn_bench_threads(const sn_bench_options *o);

/* Whether `name` is in a list with commas between. */
bool sn_bench_listed(const char *list, const char *name);

/* What is computed, for all entrants. */
typedef struct sn_bench_work {
    const char *kind, *name, *shape, *dtype;
    double flop, read, write; /* bytes */
    double tokens;            /* 0: no model */
    double runs;              /* an entrant's run does it so many times, on other bytes each */
} sn_bench_work;

/* Something that does the work. */
typedef struct sn_bench_entrant {
    int level; /* -1: a peer */
    const char *backend;
    char setup[SN_BENCH_SETUP];
    /* Seconds of one run, the mean over `repeats` runs after an untimed one. */
    bool (*time)(void *ctx, int repeats, double *seconds, sn_error *err);
    void *ctx;
    double rel_rms, max_ulp, max_rel, compile_ms;
    char checked[64];
    size_t (*workspace)(const void *ctx); /* after the runs; NULL: not known */
    /* What a run reads and what stays where it is (weights, caches): the number of blocks, -1: out
     * of memory. *list, from malloc, is the caller's. NULL: not known. */
    int (*memory)(const void *ctx, sn_probe_block **list);
} sn_bench_entrant;

/* Times all entrants; a record for each. A peer that fails becomes a note; an own entrant that
 * fails is an error. */
bool sn_bench_measure(const sn_bench_options *o, const sn_bench_work *w, sn_bench_entrant *e, int n,
                      sn_bench_report *out, sn_error *err);

/* A line of progress, which replaces the last one on a terminal and comes every ten seconds
 * elsewhere; end takes it away. */
void sn_bench_progress(const sn_bench_options *o, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void sn_bench_progress_end(const sn_bench_options *o);

double sn_bench_median(const double *x, int n);

/* bench/report.c */
void sn_bench_print(const sn_bench_report *r, FILE *f);
/* One object a line; the first line describes machine and settings. */
bool sn_bench_write_json(const sn_bench_report *r, const sn_bench_options *o, const char *path,
                         sn_error *err);

/* bench/plot.c: a picture of all records: the roofline with a point a record on the left, bars of
 * levels and peers on the right. */
bool sn_bench_write_svg(const sn_bench_report *r, const char *path, sn_error *err);

#endif
