/* problems.h: collects several problems with one file, so that the user sees them all at once. Used
 * by config readers and when weights are bound to parameters. */
#ifndef SN_PROBLEMS_H
#define SN_PROBLEMS_H

#include "runtime/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Zero-initialise; nothing to free. Text beyond the buffer is counted but not kept. */
typedef struct sn_problems {
    int count; /* number of problems */
    int shown; /* number of problems in `text`, separated by "; " */
    size_t len;
    char text[720];
} sn_problems;

/* Adds one problem (no final period or newline). */
void sn_problem(sn_problems *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* True if there are no problems. Otherwise fails with "HEAD: first; second; … and N more". */
bool sn_problems_check(const sn_problems *p, const char *head, sn_code code, sn_error *err);

/* Copies a string from an untrusted file for display: control characters become '?', and a string
 * that is too long ends in "...". Bytes from 128 on pass unchanged (UTF-8). Returns buf. */
const char *sn_printable(char *buf, size_t size, const char *s);

/* The name in `list` (NULL-terminated) that is most similar to `word`; NULL if none is close. */
const char *sn_nearest_name(const char *word, const char *const *list);

#ifdef __cplusplus
}
#endif
#endif
