/* exact_check.c: see exact_check.h. */
#include "tests/support/exact_check.h"

#include "passes/passes.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct binding {
    sn_module *m;
    const char *entry;
    const int64_t *symbol;
    jit_data_fn *data;
    void *ctx;
} binding;

static bool bind_integers(void *ctx, sn_eval *ev) {
    const binding *b = ctx;
    sn_order order = sn_entry_topo(b->m, sn_entry_get(b->m, b->entry));
    bool ok = true;
    for (int i = 0; ok && i < order.n; i++) {
        const sn_node *leaf = order.node[i];
        if (!(sn_ops[leaf->op].flags & SN_OPF_EXTERNAL) || sn_is_float(leaf)) continue;
        size_t bytes;
        void *data = b->data(b->ctx, leaf, b->symbol, &bytes);
        ok = data && sn_eval_bind(ev, sn_attr_str(leaf, SN_A_name, ""), data, bytes);
        free(data);
    }
    return ok;
}

static bool check_level(sn_exact *x, const binding *b, int level, exact_counts *counts, char *why,
                        size_t size) {
    sn_error err = {0};
    sn_passes p;
    const sn_pass_options o = {
        .level = level, .backend = "native", .constant_params = true, .verify = true};
    const sn_exact_row *row = NULL;
    int n = sn_passes_run(&p, b->m, &o) ? sn_exact_compare(x, &row, &err) : -1;
    bool ok = n > 0;
    if (!ok)
        snprintf(why, size, "%s: exact: level %d: %s", b->entry, level,
                 !n         ? "no results"
                 : err.code ? err.message
                            : sn_module_error(b->m)->message);
    for (int i = 0; ok && i < n; i++) {
        if (counts) counts->compared++, counts->undecided += row[i].verdict == SN_EXACT_UNDECIDED;
        ok = row[i].verdict != SN_EXACT_DIFFERS;
        if (!ok)
            snprintf(why, size, "%s: exact: level %d: element %lld of '%s' is another function",
                     b->entry, level, (long long)row[i].at, row[i].name);
    }
    return ok;
}

bool exact_check(sn_module *m, const char *entry, const int64_t *symbol, unsigned levels,
                 jit_data_fn *data, void *ctx, exact_counts *counts, char *why, size_t size) {
    sn_error err = {0};
    binding b = {m, entry, symbol, data, ctx};
    sn_exact *x = sn_exact_new(m, entry, symbol, 1, bind_integers, &b, &err);
    bool ok = x != NULL;
    if (!ok) snprintf(why, size, "%s: exact: %s", entry, err.message);
    for (int level = 0; ok && level <= 4; level++) {
        if (!(levels >> level & 1)) continue;
        sn_entries *written = sn_entries_save(m);
        ok = check_level(x, &b, level, counts, why, size);
        sn_entries_restore(m, written);
    }
    sn_exact_free(x);
    return ok;
}

bool exact_decides(const exact_counts *c) {
    return c->undecided * 20 <= c->compared;
}

const char *exact_told(const exact_counts *c) {
    static char text[64];
    if (c->compared)
        snprintf(text, sizeof text, ", %d results, %d undecided", c->compared, c->undecided);
    return text;
}
