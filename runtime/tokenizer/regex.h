/* regex.h: cutting text by a Unicode regular expression, which is all that tokenizers need of one.
 * The only interface to PCRE2 (regex.c includes it, compiled to machine code where it can). */
#ifndef SN_REGEX_H
#define SN_REGEX_H

#include "runtime/base.h"

typedef struct sn_regex sn_regex;

/* Compiles a pattern (Perl syntax; UTF-8, Unicode properties for \s and the like). NULL: err says
 * what is wrong at which place. */
sn_regex *sn_regex_new(const char *pattern, size_t size, sn_error *err);
void sn_regex_free(sn_regex *r); /* NULL is fine */

/* A piece of the text, in order: a match, or the text between two matches. False stops. */
typedef bool (*sn_regex_piece)(void *ctx, const char *text, size_t size, bool matched);

/* Calls fn for every non-empty piece, so that all pieces together are the text. Bytes that are not
 * UTF-8 match nothing. False if fn said so, or (with err set) if matching hit PCRE2's limits. */
bool sn_regex_split(const sn_regex *r, const char *text, size_t size, sn_regex_piece fn, void *ctx,
                    sn_error *err);

#endif
