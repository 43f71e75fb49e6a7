/* problems.h: collects several complaints about one file, so that a user sees all of them at once.
 * Used by readers of configs and by whoever binds weights to parameters. */
#ifndef SN_PROBLEMS_H
#define SN_PROBLEMS_H

#include "runtime/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Zero-initialise. Caller-owned, nothing to free. Text beyond the buffer is counted, not kept. */
typedef struct sn_problems {
    int count; /* complaints made */
    int shown; /* complaints that `text` holds, separated by "; " */
    size_t len;
    char text[720];
} sn_problems;

/* Adds one complaint (no final period or newline). */
void sn_problem(sn_problems *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* True when there are none. Otherwise fails with "HEAD: first; second; … and N more". */
bool sn_problems_check(const sn_problems *p, const char *head, sn_code code, sn_error *err);

/* Copies a string from an untrusted file for display: control characters become '?', too long a
 * string ends in "...". Bytes from 128 pass (UTF-8). Returns buf. */
const char *sn_printable(char *buf, size_t size, const char *s);

#ifdef __cplusplus
}
#endif
#endif
