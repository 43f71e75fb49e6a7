/* json_out.h: writes results as JSON lines: an object per line, without anything between. Numbers
 * have nine significant digits; NaN and infinities, which JSON does not have, are null; bytes that are
 * not UTF-8 become U+FFFD. Keys are those that the command's table documents (arg_key). */
#ifndef SN_JSON_OUT_H
#define SN_JSON_OUT_H

#include "runtime/base.h"

#include <stdio.h>

typedef struct json_out {
    FILE *f;
    int depth;
    bool first; /* nothing in the innermost object or list yet */
    char closes[16];
} json_out;

json_out json_begin(FILE *f); /* begins an object */
void json_end(json_out *j);   /* ends it and the line */
/* key NULL: an element of a list. Nest at most 14 deep. */
void json_object(json_out *j, const char *key);
void json_list(json_out *j, const char *key);
void json_close(json_out *j);                                /* ends the innermost object or list */
void json_text(json_out *j, const char *key, const char *s); /* NULL: null */
void json_bytes(json_out *j, const char *key, const char *s, size_t n);
void json_int(json_out *j, const char *key, int64_t v);
void json_number(json_out *j, const char *key, double v);
void json_bool(json_out *j, const char *key, bool v);
void json_ids(json_out *j, const char *key, const int32_t *ids, int64_t n);

#endif
