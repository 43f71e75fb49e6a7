/* keys.h: the keys of a config.json as a table: each row names a key and the field of a struct that
 * takes its value. Not public. */
#ifndef SN_KEYS_H
#define SN_KEYS_H

#include "runtime/config.h"

#include <stddef.h>

typedef enum key_kind { KEY_INT, KEY_FLOAT, KEY_BOOL, KEY_CHOICE } key_kind;

typedef struct config_key {
    const char *key;
    key_kind kind;
    size_t field;             /* offset of an int64_t, double, bool or int */
    bool required;            /* its absence is a mistake of the config */
    double low, high;         /* of numbers, inclusive */
    double value;             /* where the key is absent */
    const char *const *names; /* of a choice: strings, ended by NULL; the field is the index */
    const char *also;         /* another name of the key, or NULL */
} config_key;

/* Rows. T is the struct; a key with a default may be absent. */
#define INT_KEY(T, field, key, low, high)                                                          \
    { key, KEY_INT, offsetof(T, field), true, low, high, 0, NULL, NULL }
#define INT_KEY_ALSO(T, field, key, also, low, high)                                               \
    { key, KEY_INT, offsetof(T, field), true, low, high, 0, NULL, also }
#define INT_KEY_OR(T, field, key, value, low, high)                                                \
    { key, KEY_INT, offsetof(T, field), false, low, high, value, NULL, NULL }
#define FLOAT_KEY_OR(T, field, key, value, low, high)                                              \
    { key, KEY_FLOAT, offsetof(T, field), false, low, high, value, NULL, NULL }
#define BOOL_KEY_OR(T, field, key, value)                                                          \
    { key, KEY_BOOL, offsetof(T, field), false, 0, 0, value, NULL, NULL }
#define CHOICE_KEY_OR(T, field, key, names, value)                                                 \
    { key, KEY_CHOICE, offsetof(T, field), false, 0, 0, value, names, NULL }
#define END_KEYS                                                                                   \
    { NULL, KEY_INT, 0, false, 0, 0, 0, NULL, NULL }

/* Reads the keys, in order, until END_KEYS. Mistakes are recorded in c. */
void config_read(sn_config *c, const config_key *keys, void *out);

#endif
