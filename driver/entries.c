/* entries.c: entries by the names that users give them. */
#include "driver/entries.h"

#include "ir/ir.h"

#include <stdio.h>
#include <string.h>

/* Names, with an entry that the model then has, or another one (towers of pictures embed). */
static const struct {
    const char *name;
    int flag;
    const char *entry, *other;
} names[] = {{"forward", SN_FORWARD, "forward", NULL}, {"loss", SN_LOSS, "loss", NULL},
             {"cached", SN_CACHED, "decode", NULL},    {"step", SN_STEP, "step", NULL},
             {"encode", SN_ENCODE, "encode", "embed"}, {"embed", SN_EMBED, "embed", "embed_image"}};
enum { NAMES = sizeof names / sizeof *names };

bool model_entries_read(const char *list, int *out, sn_error *err) {
    *out = 0;
    while (list && *list) {
        size_t n = strcspn(list, ","), i = 0;
        while (i < NAMES && (strlen(names[i].name) != n || strncmp(names[i].name, list, n))) i++;
        if (i == NAMES)
            return sn_fail(err, SN_ERR_USAGE,
                           "entry '%.*s': expected forward, loss, cached, step, encode or embed",
                           (int)n, list);
        *out |= names[i].flag;
        list += n + (list[n] == ',');
    }
    return true;
}

static bool has(sn_module *m, size_t i) {
    return sn_entry_get(m, names[i].entry) || (names[i].other && sn_entry_get(m, names[i].other));
}

int model_entries_missing(sn_module *m, int named) {
    int missing = 0;
    for (size_t i = 0; i < NAMES; i++)
        if (named & names[i].flag && !has(m, i)) missing |= names[i].flag;
    return missing;
}

bool model_entries_fail(const char *type, sn_module *m, int named, sn_module *all, sn_error *err) {
    char list[128] = "";
    const char *wanted = "";
    int missing = model_entries_missing(m, named);
    for (size_t i = NAMES; i-- > 0;)
        if (missing & names[i].flag) wanted = names[i].name;
    for (size_t i = 0, at = 0; i < NAMES; i++)
        if (has(all, i))
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", at ? ", " : "",
                                   names[i].name);
    return sn_fail(err, SN_ERR_USAGE, "%s models have no entry '%s' for --entries: this one has %s",
                   type, wanted, *list ? list : "entries of its own, which are always compiled");
}
