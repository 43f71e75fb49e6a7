/* measure.h: shared by all benches: times entrants in interleaved rounds together with the
 * machine's limits, and makes one record per measurement.
 *
 * The speed of a shared machine drifts. So each round times every entrant once, in rotating order,
 * with a probe of the FMA peak between them. For work that may be memory-bound it also times
 * streaming the same number of bytes: of the entrant's own memory just before and after it if that
 * is known, since the part that stays in the last-level cache matters; otherwise of other memory at
 * the round's beginning and end. A round's limits are the best values of its probes (a probe next
 * to threads that still spin is slower). Shares and speed-ups are medians of ratios taken within a
 * round. A second limit is the 90 % quantile of all FMA probes of the run, of 25 ms each, one
 * before and one after each entrant. */
#ifndef SN_MEASURE_H
#define SN_MEASURE_H

#include "bench/counters.h"
#include "bench/probe.h"
#include "bench/samples.h"
#include "runtime/base.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>

enum { SN_BENCH_SETUP = 1024 /* size of the text that describes a peer's configuration */ };

/* The larger error; one that is NaN is infinite, because fmax would leave it out. */
static inline double sn_bench_worse(double worst, double error) {
    return isnan(error) ? INFINITY : fmax(worst, error);
}

/* One measurement, as written to the JSON file. Missing numbers are NaN, missing texts "". */
typedef struct sn_bench_record {
    char kind[16];              /* "gemm", "kernel", "attention", "model", "roofline" */
    char name[48];              /* "layer_norm", "attention causal", "gpt2 forward" */
    char shape[64];             /* "1024x768" */
    char backend[24];           /* "native", "onednn", "auto", or a peer */
    char dtype[12];             /* of the factors and of storage: "f32", "bf16 x bf16", "int4" */
    char setup[SN_BENCH_SETUP]; /* configuration (peers) */
    char choice[48];            /* kernels that a peer computes with */
    int level;                  /* fusion level; -1: a peer, or a probe */
    bool unfused;               /* a peer that computes one operation after the other */
    int threads;
    int measurement; /* the same number: timed in the same rounds, by one sn_bench_measure; 0: unknown */
    /* Of the entrant, and of the same one as if it were another (n 0: it is not timed twice). What follows is of the
     * samples that count. */
    sn_bench_samples samples, again;
    double ms_median, ms_min, ms_max;
    double ms_low, ms_high; /* the interval of the median */
    double cpu_ms;          /* CPU time of all threads of a run, median */
    double switches;        /* involuntary context switches during all samples; NaN: unknown */
    /* number of samples that do not count because they were preempted; NaN: unknown */
    double preempted;
    double warm_up;   /* number of samples that do not count because they are the first; NaN: 0 */
    double floor_pct; /* sn_bench_floor of both; NaN: not timed twice */
    /* of the threads in a run, a mean over the rounds that count; NaN: not available, or a peer's */
    double counter[SN_BENCH_COUNTERS];
    double flop, bytes; /* per run: FLOP that the result requires; compulsory traffic in bytes */
    double traffic;     /* bytes that the kernels of this level read and write */
    double gflops, gbytes_s;
    double peak_gflops, stream_gbytes_s; /* medians of the probes */
    double pct_roofline;                 /* of the limit measured in its round */
    /* the run's FMA peak; share of it, for compute-bound work */
    double run_peak_gflops, pct_run_peak;
    char bound[8]; /* the limit that applies: "compute" or "memory" */
    double speedup_vs_level0;
    double speedup_vs_f32;            /* of products of fewer bits */
    double rel_rms, max_ulp, max_rel; /* against the f64 evaluator */
    char checked[64];                 /* sizes of the problem used for the error */
    double peak_bytes;                /* workspace */
    double compile_ms;
    double tokens_s; /* models: tokens per second */
} sn_bench_record;

/* A text of a record. */
typedef struct sn_bench_text {
    const char *key; /* in JSON */
    size_t offset, size;
} sn_bench_text;

/* A number of a record or a report, and its column in the table of records (head NULL: none). */
typedef struct sn_bench_number {
    const char *key; /* in JSON */
    size_t offset;   /* of a double */
    const char *head, *format;
    int width;
    double scale;
} sn_bench_number;
enum { SN_BENCH_NUMBERS = 32, SN_BENCH_MACHINE_NUMBERS = 8, SN_BENCH_TEXTS = 9 };
/* bench/records.c: those of a record, and those of a report */
extern const sn_bench_text sn_bench_texts_of[SN_BENCH_TEXTS];
extern const sn_bench_number sn_bench_numbers_of[SN_BENCH_NUMBERS];
extern const sn_bench_number sn_bench_machine_numbers[SN_BENCH_MACHINE_NUMBERS];
static inline double *sn_bench_number_at(const void *of, const sn_bench_number *x) {
    return (double *)(void *)((uintptr_t)of + x->offset);
}

/* A growing list. Zero-initialise; the list is allocated with malloc. */
typedef struct sn_bench_report {
    sn_bench_record *list;
    int n, cap;
    char **note; /* [n_note] notes, such as absent peers with the reason */
    int n_note;
    /* [n_probe] probes of the f32 peak, GFLOP/s: the mean of one before and one after each run of
     * an entrant; sorted */
    double *probe;
    int n_probe, cap_probe;
    double
        others; /* CPU time that other programs used meanwhile, percent of all (noise.h); -1: unknown */
    double
        stolen; /* CPU time that the host took meanwhile, percent of all (noise.h); -1: unknown */
    double switches; /* involuntary context switches of this process meanwhile */
    bool cold;       /* the caches were flushed before each sample (sn_bench_options) */
    double load[2];  /* load average of the last minute before [0] and after [1] it; NaN: unknown */
    double ghz[2];   /* clock before [0] and after [1] it, GHz (sn_probe_ghz); NaN: unknown */
    double spread;   /* sn_bench_spread of its probes */
    /* others and stolen together while each of several processes measured; n_process 0: this one did */
    int n_process;
    double busy[SN_BENCH_PROCESSES];
    double read_gbytes_s; /* bandwidth of reading main memory, beside a picture; 0: not measured */
    /* of the machine and the program; "": unknown */
    char cpu[128], microarchitecture[64], commit[64], date[32];
} sn_bench_report;
/* an empty record; NULL: out of memory */
sn_bench_record *sn_bench_add(sn_bench_report *r, sn_error *err);
/* Fills the numbers that follow from the samples; there must be one. */
void sn_bench_summarise(sn_bench_record *x);
/* Finds which samples of a report's records count, and summarises those that have samples. If several processes
 * measured, those do not count during which the machine was busy. */
void sn_bench_finish(sn_bench_report *r);
void sn_bench_note(sn_bench_report *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Adds a note for each record that is slower than the same work at a lower level of the same back
 * end: a fused kernel that is slower than its parts is a bug. Slower means that its minimum is 3 %
 * above the other's median. */
void sn_bench_judge(sn_bench_report *r);
void sn_bench_report_free(sn_bench_report *r);

/* All works of a run. A bench that is called with `counting` only counts its works (and checks its
 * arguments). */
typedef struct sn_bench_total {
    bool counting;
    int works, done;
    double begin; /* sn_clock() */
} sn_bench_total;

/* Options of all benches. */
typedef struct sn_bench_options {
    unsigned levels;      /* bit l: level l */
    const char *backends; /* comma-separated names */
    const char *peers;    /* "all", "none", or comma-separated names */
    const char *peer_dir; /* folder of the peers' scripts */
    const char *target, *cache_dir;
    const char *command;   /* the arguments of `sinter bench`, for the record; NULL: unknown */
    const char *profile;   /* receives the kernel times of the last variant; NULL: none */
    const char *compute;   /* arithmetic of products with these: NULL, "f32", "int8" */
    const char *weights;   /* storage of constant matrices: NULL, "f32", "bf16", "int8", "int4" */
    const char *cache;     /* storage of keys and values: NULL, "f32", "bf16", "int8" */
    const char *precision; /* of training: NULL, "f32", "bf16" */
    const char *invariant; /* as of sn_options; also timed without; NULL: none */
    int threads;           /* 0: OpenMP's default number */
    int processes;         /* that measure (processes.h); 0 or 1: this one */
    int rounds; /* at least 5; more until SN_BENCH_ENOUGH count, up to twice as many, for 10 s */
    double seconds;                 /* minimum time per entrant and round */
    bool check;                     /* against the f64 evaluator */
    bool direct;                    /* also the time in kernels alone, without that between them */
    bool tune;                      /* Sinter's entrants choose their kernels by measuring */
    bool cold;                      /* caches are flushed before each sample, which is one run */
    bool (*stop)(void);             /* true: start no further round; NULL: never */
    FILE *progress;                 /* NULL: none */
    double *shown;                  /* time of the last progress line; 0 at first */
    struct sn_bench_total *total;   /* for progress: how much there is to do; NULL: unknown */
    struct sn_bench_peers *started; /* peers.h: sn_bench_peers_start; NULL: none */
} sn_bench_options;
int sn_bench_threads(const sn_bench_options *o);
/* Counts a work if that is all that is wanted. */
bool sn_bench_only_counts(const sn_bench_options *o);

/* Whether `name` is in a comma-separated list. */
bool sn_bench_listed(const char *list, const char *name);

/* The work that all entrants do. */
typedef struct sn_bench_work {
    const char *kind, *name, *shape, *dtype;
    double flop, read, write; /* bytes */
    double tokens;            /* 0: not a model */
    /* an entrant's run does the work this many times, on different data */
    double runs;
} sn_bench_work;

/* An implementation that does the work. */
typedef struct sn_bench_entrant {
    int level; /* -1: a peer */
    bool unfused;
    const char *backend;
    const char *dtype; /* NULL: the work's, or f32 for a peer */
    char setup[SN_BENCH_SETUP];
    char choice[48]; /* of the kernels that a peer computes with; "": it has none */
    /* Seconds per run, the mean over `repeats` runs after an untimed one; 0: of a run without one. */
    bool (*time)(void *ctx, int repeats, double *seconds, sn_error *err);
    void *ctx;
    long pid; /* of the process that does the work; 0: this one */
    double rel_rms, max_ulp, max_rel, compile_ms;
    double traffic; /* bytes that its kernels read and write in a run; 0: unknown */
    char checked[64];
    size_t (*workspace)(const void *ctx); /* called after the runs; NULL: unknown */
    /* Memory that a run reads and that stays in place (weights, caches). Returns the number of
     * blocks, -1 if out of memory. The caller frees *list. NULL: unknown. */
    int (*memory)(const void *ctx, sn_probe_block **list);
} sn_bench_entrant;

/* Times all entrants, Sinter's of the highest level twice, and adds a record for each. A peer that fails becomes a
 * note; a failure of Sinter is an error. */
bool sn_bench_measure(const sn_bench_options *o, const sn_bench_work *w, const sn_bench_entrant *e,
                      int n, sn_bench_report *out, sn_error *err);

/* A line of progress: replaces the previous one on a terminal, printed every ten seconds elsewhere.
 * sn_bench_progress_end removes it. */
void sn_bench_progress(const sn_bench_options *o, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void sn_bench_progress_end(const sn_bench_options *o);

/* bench/records.c; the keys of the lists of a record's samples */
typedef struct sn_bench_sample_key {
    const char *key;
    size_t offset; /* of the list in sn_bench_samples */
} sn_bench_sample_key;
enum { SN_BENCH_SAMPLE_KEYS = 5 };
extern const sn_bench_sample_key sn_bench_sample_keys[SN_BENCH_SAMPLE_KEYS];

void sn_bench_print(const sn_bench_report *r, FILE *f);
/* One object per line; the first line describes machine and settings. */
bool sn_bench_write_json(const sn_bench_report *r, const sn_bench_options *o, const char *path,
                         sn_error *err);

/* bench/plot.c: an SVG of all records: the roofline with a point for each, and bars of time with the
 * speed-up over the lowest level, or over `old` (NULL: none). */
bool sn_bench_write_svg(const sn_bench_report *r, const sn_bench_report *old, const char *subtitle,
                        const char *path, sn_error *err);
/* How far the run's probes of the peak are apart: the 10 % and the 90 % quantile, percent of the latter. On an idle
 * machine they are alike; other tenants of its cores are not. NaN: there were none. */
double sn_bench_spread(const sn_bench_report *r);
/* The state of the machine before (0) or after (1) the measurement. */
void sn_bench_look(sn_bench_report *r, int when);
/* Fills r's texts about the machine and the program. */
void sn_bench_identify(sn_bench_report *r);
/* "CPU (microarchitecture), 2 threads, 2026-11-22", and whether it was busy */
void sn_bench_describe(const sn_bench_report *r, const sn_bench_options *o, char *out, size_t size);

#endif
