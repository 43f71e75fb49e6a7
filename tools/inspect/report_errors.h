/* report_errors.h: outputs in double precision at small sizes, and the errors of levels against
 * them. */
#ifndef SN_INSPECT_REPORT_ERRORS_H
#define SN_INSPECT_REPORT_ERRORS_H

#include "tools/inspect/report.h"

enum { REPORT_OUTPUTS = 32 };

typedef struct report_output {
    const char *name;
    sn_dtype dtype;
    int rank;
    int64_t shape[SN_MAX_RANK], n;
    double *want; /* [n] */
} report_output;

typedef struct report_reference {
    inspect_inputs in;
    char sizes[320];
    double products, max_products; /* multiplications of products: of the entry; the limit */
    report_output output[REPORT_OUTPUTS];
    int n;
    char why[480]; /* there is no reference; "": there is */
} report_reference;

/* Evaluates the entry at the longest of a few lengths that has at most so many multiplications. If
 * none has, or the evaluator cannot run it, x->why says so. Parameters are those that the session was
 * given, states zero. False: err (no memory). Free with report_reference_free. */
bool report_reference_make(report_reference *x, const sn_program *p, const char *entry,
                           double max_products, const sn_session *s, sn_error *err);
void report_reference_free(report_reference *x);
void report_reference_describe(report *r, cJSON *entry, const report_reference *x);

/* Runs the entry in a session with the same parameters and zero states, and adds the errors to the
 * level's object; nothing if it cannot be run. False: err (no memory). */
bool report_errors(report *r, cJSON *level, const report_reference *x, sn_session *s,
                   const char *entry, sn_error *err);

#endif
