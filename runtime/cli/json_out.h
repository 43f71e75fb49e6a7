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

json_out sn_json_begin(FILE *f); /* begins an object */
void sn_json_end(json_out *j);   /* ends it and the line */
/* key NULL: an element of a list. Nest at most 14 deep. */
void sn_json_object(json_out *j, const char *key);
void sn_json_list(json_out *j, const char *key);
void sn_json_close(json_out *j); /* ends the innermost object or list */
void sn_json_text(json_out *j, const char *key, const char *s); /* NULL: null */
void sn_json_bytes(json_out *j, const char *key, const char *s, size_t n);
void sn_json_integer(json_out *j, const char *key, int64_t v);
void sn_json_number(json_out *j, const char *key, double v);
void sn_json_bool(json_out *j, const char *key, bool v);
void sn_json_ids(json_out *j, const char *key, const int32_t *ids, int64_t n);

#endif
