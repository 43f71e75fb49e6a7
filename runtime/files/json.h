/* json.h: reading JSON (RFC 8259) in files that come from outside. The whole text is checked before
 * cJSON reads it, so that a failure of cJSON can only be one of memory. */
#ifndef SN_JSON_H
#define SN_JSON_H

#include "runtime/base.h"

#include <cjson/cJSON.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The object that a text holds; the caller deletes it. `name` is for messages: the file.
 * Errors: what is not JSON, with line and column; nesting over 1000; "\u0000", which would end a
 * string; a number beyond f64; a text that is no object; a key that occurs twice in an object
 * (programs disagree on which counts). A byte order mark at the beginning is skipped. */
cJSON *sn_json_parse(const char *name, const char *text, size_t size, sn_error *err);

#ifdef __cplusplus
}
#endif
#endif
