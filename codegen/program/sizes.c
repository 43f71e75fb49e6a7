/* sizes.c: values of a module's symbolic dimensions, see sizes.h. */
#include "codegen/program/sizes.h"

#include <math.h>
#include <stdio.h>

void sn_sizes_middle(const sn_module *m, int64_t *symbol) {
    for (int i = 0; i < sn_symbol_count(m); i++) {
        const sn_symbol *s = sn_symbol_at(m, i);
        double lo = s->lo < 1 ? 1 : (double)s->lo, middle = round(sqrt(lo * (double)s->hi));
        symbol[i] = middle < (double)s->lo ? s->lo : (int64_t)middle;
    }
}

static bool unknown_name(const sn_module *m, const char *what, const char *name, sn_error *err) {
    char names[160] = "none";
    size_t n = 0;
    for (int i = 0; i < sn_symbol_count(m) && n < sizeof names; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "",
                              sn_symbol_at(m, i)->name);
    return sn_fail(err, SN_ERR_USAGE, "%s: module %s has no dimension '%s'; it has: %s", what,
                   sn_module_name(m), name, names);
}

bool sn_sizes_read(const sn_module *m, const char *what, const char *text, int64_t *symbol,
                   sn_error *err) {
    for (const char *s = text; s && *s;) {
        char name[64];
        int used = 0, i;
        long long value;
        if (sscanf(s, "%63[^= ,]=%lld%n", name, &value, &used) != 2 || (s[used] && s[used] != ','))
            return sn_fail(err, SN_ERR_USAGE, "%s '%s': write them as \"B=12,T=64\"", what, text);
        i = sn_symbol_find(m, name);
        if (i < 0) return unknown_name(m, what, name, err);
        const sn_symbol *d = sn_symbol_at(m, i);
        if (value < d->lo || value > d->hi)
            return sn_fail(err, SN_ERR_RANGE, "%s: %s = %lld is outside %lld..%lld", what, name,
                           value, (long long)d->lo, (long long)d->hi);
        symbol[i] = value;
        s += used + (s[used] == ',');
    }
    return true;
}
