/* json.h: parses JSON (RFC 8259) from untrusted files. The text is validated before cJSON parses
 * it, so cJSON can only fail for lack of memory. */
#ifndef SN_JSON_H
#define SN_JSON_H

#include "runtime/base.h"

#include <cjson/cJSON.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Parses a JSON object; the caller deletes it. `name` is the file name for messages. Errors:
 * invalid JSON, with line and column; nesting deeper than 1000; "\u0000", which would end a C
 * string; a number out of range of f64; text that is not an object; duplicate keys in an object
 * (parsers disagree on which one counts). A byte order mark at the beginning is skipped. */
cJSON *sn_json_parse(const char *name, const char *text, size_t size, sn_error *err);

#ifdef __cplusplus
}
#endif
#endif
