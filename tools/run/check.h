/* check.h: everything that must hold of a model, checked by running it: results and gradients of every
 * fusion level against the reference evaluator, gradients against differences of the loss, the same bits
 * for any number of threads, decoding against forward. */
#ifndef SN_RUN_CHECK_H
#define SN_RUN_CHECK_H

#include "tools/run/results.h"
#include "tools/run/values.h"

typedef struct check_options {
    const open_options *model; /* how to open it; build_only */
    run_given *given;
    const char *entry;     /* NULL: all */
    const char *sizes;     /* "B=1,T=70"; NULL: two sizes */
    const char *cache_dir; /* of compiled kernels */
    const char *backend, *off;
    const char *compute;   /* arithmetic of products; bf16: in the evaluator, too */
    const char *weights;   /* with `invariant`: storage of constant matrices; NULL: f32 */
    const char *invariant; /* what the program is compiled with; NULL, "": nothing */
    unsigned levels;       /* bit set */
    double tolerance;      /* of errors relative to a tensor's largest element */
    uint64_t seed;         /* of parameters that the model has no weights for */
    bool gradients, threads, decoding;
    bool allow_nan; /* NaN in a result equals NaN in what it is compared with; else nothing */
    void (*progress)(void *ctx, const char *what);
    void *ctx;
} check_options;

bool check_in_bf16(const check_options *o);
/* What errors may be by `tolerance`, or by a few roundings to bf16. */
double check_tolerance(const check_options *o);

/* One thing that was compared. */
typedef struct check_cell {
    char entry[64], of[16]; /* of: "results", "gradients" */
    char check[24];         /* "level 0", "threads", "differences", "forward" */
    double error, limit;    /* error: NAN if nothing was measured, as of equal bits */
    int64_t tokens;         /* of decoding that was compared with forward; 0: something else was */
    int64_t first;          /* of these the first that differs; -1: none */
    bool holds;
    const char *verdict; /* instead of an error: "equal", "differs", "undecided"; NULL */
    char detail[400];    /* where the largest error is, or why nothing could be compared */
} check_cell;

typedef struct check_report {
    check_cell *cell;
    int n, room;
} check_report;

/* True: the checks ran, and r says how they ended. False: err (no such entry, a file, memory). Free in
 * either case. */
bool check_model(const check_options *o, check_report *r, sn_error *err);
void check_report_free(check_report *r);
bool check_holds(const check_report *r);

/* check_exact.c: instead of running anything, the graph before and after the passes of each level, over finite
 * fields. Of o: entry, given (integers), sizes, off, levels, seed, gradients. */
bool check_exact(const check_options *o, check_report *r, sn_error *err);

/* check_invariant.c: which changes leave the bits of results as they are. Of o: all but gradients and threads. */
bool check_invariant(const check_options *o, check_report *r, sn_error *err);

/* |got - want|; 0: equal infinities; INFINITY: one of them is not finite, or NaN that is not allowed. */
double check_distance(const check_options *o, double got, double want);
/* check_report.c: the cell of that name, added if it is new; NULL: out of memory. */
check_cell *check_add(check_report *r, const char *entry, const char *of, const char *check);
/* check_decode.c: prefill and decode against forward, with a session of a module that has all three; adds a
 * cell, or none if the entries do not decode. */
bool check_decoding(const check_options *o, sn_session *s, int64_t vocab, check_report *r,
                    sn_error *err);

#endif
