/* values.c: sizes of random graphs and values of their leaves, from the names of these; the seed. */
#include "tests/support/fuzz/fuzz.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static uint64_t hash_name(const char *s) {
    uint64_t h = 1469598103934665603u; /* FNV-1a */
    for (; *s; s++) h = (h ^ (uint8_t)*s) * 1099511628211u;
    return h;
}

void fuzz_symbol_values(const sn_module *m, int64_t *values) {
    for (int i = 0; i < sn_symbol_count(m); i++) {
        const sn_symbol *s = sn_symbol_at(m, i);
        int64_t range = s->hi - s->lo < 5 ? s->hi - s->lo + 1 : 5;
        values[i] = s->lo + (int64_t)(hash_name(s->name) % (uint64_t)range);
    }
}

/* Multiples of 1/4 in [-3, 3], occasionally NaN or infinity; integers in [-5, 5], unsigned in [0,
 * 10]. */
static double random_value(fuzz_rng *r, sn_dtype t) {
    if (t == SN_BOOL) return fuzz_below(r, 2);
    if (t == SN_U8) return fuzz_below(r, 11);
    if (!sn_dtype_is_float(t)) return fuzz_below(r, 11) - 5;
    switch (fuzz_below(r, 60)) {
    case 0:
        return NAN;
    case 1:
        return -INFINITY;
    default:
        return 0.25 * (fuzz_below(r, 25) - 12);
    }
}

void *fuzz_leaf_data(const sn_node *n, const int64_t *symbols, size_t *bytes) {
    sn_dtype t = (sn_dtype)n->dtype;
    int64_t count = 1;
    for (int i = 0; i < n->rank; i++) {
        int64_t size = sn_dim_eval(n->m, n->shape[i], symbols);
        count *= size < 0 ? 0 : size;
    }
    *bytes = (size_t)count * sn_dtype_size(t);
    void *data = calloc(1, *bytes + 1);
    fuzz_rng r = {hash_name(sn_attr_str(n, SN_A_name, ""))};
    for (int64_t i = 0; data && i < count; i++) sn_dtype_store(t, data, i, random_value(&r, t));
    return data;
}

static bool bind_leaf(sn_eval *ev, const sn_node *n, const int64_t *symbols) {
    size_t bytes;
    void *data = fuzz_leaf_data(n, symbols, &bytes);
    bool ok = data && sn_eval_bind(ev, sn_attr_str(n, SN_A_name, ""), data, bytes);
    free(data);
    return ok;
}

bool fuzz_bind(sn_eval *ev, sn_module *m, const sn_entry *e, const int64_t *symbols) {
    sn_order order = sn_entry_topo(m, e);
    for (int i = 0; i < order.n; i++) {
        const sn_node *n = order.node[i];
        if ((sn_ops[n->op].flags & SN_OPF_EXTERNAL) && !bind_leaf(ev, n, symbols)) return false;
    }
    return true;
}

void fuzz_remove_kernels(const char *folder) {
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) unlinkat(dirfd(d), e->d_name, 0);
    if (d) closedir(d);
    rmdir(folder);
}

uint64_t fuzz_seed(const char *argument) {
    uint64_t seed = argument ? strtoull(argument, NULL, 0) : 1;
    if (!seed) seed = (uint64_t)time(NULL) << 20;
    printf("seed %llu\n", (unsigned long long)seed);
    fflush(stdout);
    return seed;
}
