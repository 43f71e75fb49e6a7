/* config.h: reads and writes the config.json of a model directory.
 * Getters collect problems; one check at the end reports them all with file, key and value. */
#ifndef SN_CONFIG_H
#define SN_CONFIG_H

#include "runtime/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A JSON object. Not thread-safe: getters record problems in it. Keys are case-sensitive. */
typedef struct sn_config sn_config;

/* Reads a file. NULL if it is missing, larger than 16 MB, not JSON, not an object, or has more than
 * 4096 keys. */
sn_config *sn_config_open(const char *path, sn_error *err);
/* Parses a string; messages refer to it as `name`. */
sn_config *sn_config_parse(const char *name, const char *text, size_t bytes, sn_error *err);
sn_config *sn_config_new(const char *name); /* empty, for writing; NULL if out of memory */
void sn_config_free(sn_config *c);          /* NULL is allowed */

const char *sn_config_name(const sn_config *c); /* path or name, for messages; owned by c */
bool sn_config_has(const sn_config *c, const char *key); /* present and not null */

bool sn_config_is_object(const sn_config *c, const char *key); /* its value is an object {...} */

/* Whether the key has this value, given as JSON ("false", "\"absolute\""). Does not mark the key as
 * read. */
bool sn_config_equals(const sn_config *c, const char *key, const char *json);

/* Getters. The plain form requires the key; the _or form has a default for a key that is absent or
 * null. lo and hi are inclusive. A missing, mistyped or out-of-range value is recorded as a
 * problem; the getter then returns a safe value (lo, the default, "" or 0) so that the caller can
 * continue. Integers must be exact (|v| <= 2^53). Strings live as long as `c`. */
int64_t sn_config_int(sn_config *c, const char *key, int64_t lo, int64_t hi);
int64_t sn_config_int_or(sn_config *c, const char *key, int64_t dflt, int64_t lo, int64_t hi);
double sn_config_float(sn_config *c, const char *key, double lo, double hi);
double sn_config_float_or(sn_config *c, const char *key, double dflt, double lo, double hi);
bool sn_config_bool(sn_config *c, const char *key);
bool sn_config_bool_or(sn_config *c, const char *key, bool dflt);
const char *sn_config_string(sn_config *c, const char *key);
const char *sn_config_string_or(sn_config *c, const char *key, const char *dflt);

/* Index of the key's string in the NULL-terminated list `names`. */
int sn_config_choice(sn_config *c, const char *key, const char *const *names);
int sn_config_choice_or(sn_config *c, const char *key, const char *const *names, int dflt);

/* An array of integers, or a single integer; returns the count (at most max), 0 if the key is
 * absent. */
size_t sn_config_int_list(sn_config *c, const char *key, int64_t *out, size_t max, int64_t lo,
                          int64_t hi);
/* An array of numbers; an array of strings of the NULL-terminated list `names`, or one string, as
 * indices of the list. */
size_t sn_config_float_list(sn_config *c, const char *key, double *out, size_t max, double lo,
                            double hi);
size_t sn_config_choice_list(sn_config *c, const char *key, const char *const *names, int *out,
                             size_t max);

/* The object at a key as a separate config ("FILE: KEY" in messages); empty if the key is absent.
 * NULL if it is not an object (recorded) or out of memory. The caller frees it. */
sn_config *sn_config_section(sn_config *c, const char *key);

/* The i-th object of the array at a key, in the same way; NULL also if there are no more. The array has
 * at most `max`. */
sn_config *sn_config_item(sn_config *c, const char *key, size_t i, size_t max);

/* Records a problem for every key that is not in the NULL-terminated list `names`. */
void sn_config_only(sn_config *c, const char *const *names);

/* The i-th key that no getter has read, perhaps misspelt; NULL: no more. */
const char *sn_config_unread(const sn_config *c, int i);

/* Records a problem that concerns several keys ("image" and "channels" belong together). */
void sn_config_problem(sn_config *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Records a problem unless the value of one key (not 0) divides the value of another. */
void sn_config_divides(sn_config *c, const char *key, int64_t part, const char *whole_key,
                       int64_t whole);

/* True if no problems were recorded. Otherwise fails with "FILE: problem; problem; …". */
bool sn_config_check(const sn_config *c, sn_error *err);

/* Setters replace or append. If out of memory they record a problem, which sn_config_save
 * reports. */
void sn_config_set_int(sn_config *c, const char *key, int64_t value);
void sn_config_set_float(sn_config *c, const char *key, double value);
void sn_config_set_bool(sn_config *c, const char *key, bool value);
void sn_config_set_string(sn_config *c, const char *key, const char *value);

/* Sets the key to the object `section`, which is copied. */
void sn_config_set_section(sn_config *c, const char *key, const sn_config *section);

/* Copies every key of `from` into `c`, replacing existing keys. */
void sn_config_merge(sn_config *c, const sn_config *from);

/* The object as indented JSON with a final newline (not NUL-terminated), allocated; NULL if out of
 * memory. */
char *sn_config_print(const sn_config *c, size_t *bytes);
/* Writes that text to a file, atomically (runtime/file.h). */
bool sn_config_save(sn_config *c, const char *path, sn_error *err);

#ifdef __cplusplus
}
#endif
#endif
