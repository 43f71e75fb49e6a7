/* regex.h: splits text with a Unicode regular expression, as tokenizers do. The only interface to
 * PCRE2; regex.c uses its JIT where available. */
#ifndef SN_REGEX_H
#define SN_REGEX_H

#include "runtime/base.h"

typedef struct sn_regex sn_regex;

/* Compiles a pattern (Perl syntax; UTF-8, Unicode properties for \s and the like). NULL: err gives
 * the reason and the position. */
sn_regex *sn_regex_new(const char *pattern, size_t size, sn_error *err);
void sn_regex_free(sn_regex *r); /* NULL is allowed */
/* The pattern that it was made from, NUL-terminated. */
const char *sn_regex_pattern(const sn_regex *r, size_t *size);

/* Receives a piece of the text, in order: a match, or the text between two matches. Returns false
 * to stop. */
typedef bool (*sn_regex_piece)(void *ctx, const char *text, size_t size, bool matched);

/* Calls fn for every non-empty piece; concatenated, the pieces are the text. Invalid UTF-8 matches
 * nothing. False if fn returned false, or (with err set) if matching exceeded PCRE2's limits. */
bool sn_regex_split(const sn_regex *r, const char *text, size_t size, sn_regex_piece fn, void *ctx,
                    sn_error *err);

#endif
