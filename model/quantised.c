/* quantised.c: reads and writes what `sinter quantize` records in a config.json. */
#include "model/quantised.h"

#include <stdlib.h>
#include <string.h>

static const char *const storages[] = {"f32", "bf16", "int8", "int4", NULL};
static const char *const arithmetics[] = {"f32", "bf16", "int8", NULL};
enum { WHOLE, WEIGHTS, PRODUCTS };
static const char *const lists[] = {[WEIGHTS] = "keep_weights", [PRODUCTS] = "keep_products"};

bool quantised_is_open(const char *option) {
    return !option || !strcmp(option, "stored") || !strcmp(option, "auto");
}

/* The entry of the parameter; NULL: out of memory. */
static sn_keep *entry_of(quantised *q, const char *param) {
    for (int i = 0; i < q->n_keep; i++)
        if (!strcmp(q->keep[i].param, param)) return &q->keep[i];
    sn_keep *more = realloc(q->keep, sizeof *more * (size_t)(q->n_keep + 1));
    if (!more) return NULL;
    q->keep = more;
    more[q->n_keep] = (sn_keep){.param = param};
    return &more[q->n_keep++];
}

/* One of the two lists. */
static bool read_list(quantised *q, int kind, sn_error *err) {
    if (!sn_config_has(q->parts[WHOLE], lists[kind])) return true;
    sn_config *c = q->parts[kind] = sn_config_section(q->parts[WHOLE], lists[kind]);
    if (!c)
        return sn_config_check(q->parts[WHOLE], err) &&
               sn_fail(err, SN_ERR_MEMORY, "out of memory");
    for (const char *name; (name = sn_config_unread(c, 0));) {
        int i = sn_config_choice(c, name, kind == WEIGHTS ? storages : arithmetics);
        sn_keep *k = entry_of(q, name);
        if (!k) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
        if (kind == WEIGHTS)
            k->weights = storages[i];
        else
            k->products = i == 0;
    }
    return sn_config_check(c, err);
}

static const char *choice(sn_config *c, const char *key, const char *const *names) {
    return sn_config_has(c, key) ? names[sn_config_choice(c, key, names)] : NULL;
}

bool quantised_read(sn_config *config, quantised *out, sn_error *err) {
    *out = (quantised){0};
    if (!config || !sn_config_has(config, SN_QUANTISED_KEY)) return true;
    sn_config *c = out->parts[WHOLE] = sn_config_section(config, SN_QUANTISED_KEY);
    if (!c) return sn_config_check(config, err) && sn_fail(err, SN_ERR_MEMORY, "out of memory");
    out->weights = choice(c, "weights", storages);
    out->compute = choice(c, "compute", arithmetics);
    return read_list(out, WEIGHTS, err) && read_list(out, PRODUCTS, err) && sn_config_check(c, err);
}

void quantised_free(quantised *q) {
    for (int i = 0; i < 3; i++) sn_config_free(q->parts[i]);
    free(q->keep);
    *q = (quantised){0};
}

bool quantised_write(const quantised *q, sn_config *config, sn_error *err) {
    sn_config *part[3] = {0};
    bool ok = true;
    for (int i = 0; i < 3; i++) ok &= (part[i] = sn_config_new(SN_QUANTISED_KEY)) != NULL;
    for (int i = 0; ok && i < q->n_keep; i++) {
        const sn_keep *k = &q->keep[i];
        if (k->weights) sn_config_set_string(part[WEIGHTS], k->param, k->weights);
        if (k->products) sn_config_set_string(part[PRODUCTS], k->param, "f32");
    }
    if (ok && q->weights) sn_config_set_string(part[WHOLE], "weights", q->weights);
    if (ok && q->compute) sn_config_set_string(part[WHOLE], "compute", q->compute);
    for (int i = WEIGHTS; ok && i <= PRODUCTS; i++)
        if (sn_config_unread(part[i], 0)) sn_config_set_section(part[WHOLE], lists[i], part[i]);
    if (ok) sn_config_set_section(config, SN_QUANTISED_KEY, part[WHOLE]);
    for (int i = 0; ok && i < 3; i++) ok = sn_config_check(part[i], err);
    for (int i = 0; i < 3; i++) sn_config_free(part[i]);
    return ok || (!err->code && sn_fail(err, SN_ERR_MEMORY, "out of memory"));
}
