/* keys.c: config.json read by a table of keys. */
#include "frontend/keys.h"

static void read_int(sn_config *c, const config_key *k, void *field) {
    int64_t low = (int64_t)k->low, high = (int64_t)k->high;
    *(int64_t *)field = k->required ? sn_config_int(c, k->key, low, high)
                                    : sn_config_int_or(c, k->key, (int64_t)k->value, low, high);
}

static void read_float(sn_config *c, const config_key *k, void *field) {
    *(double *)field = sn_config_float_or(c, k->key, k->value, k->low, k->high);
}

static void read_bool(sn_config *c, const config_key *k, void *field) {
    *(bool *)field = sn_config_bool_or(c, k->key, k->value != 0);
}

static void read_choice(sn_config *c, const config_key *k, void *field) {
    *(int *)field = sn_config_choice_or(c, k->key, k->names, (int)k->value);
}

void config_read(sn_config *c, const config_key *keys, void *out) {
    static void (*const readers[])(sn_config *, const config_key *,
                                   void *) = {[KEY_INT] = read_int,
                                              [KEY_FLOAT] = read_float,
                                              [KEY_BOOL] = read_bool,
                                              [KEY_CHOICE] = read_choice};
    for (const config_key *k = keys; k->key; k++) {
        config_key used = *k;
        if (k->also && !sn_config_has(c, k->key) && sn_config_has(c, k->also)) used.key = k->also;
        readers[k->kind](c, &used, (char *)out + k->field);
    }
}
