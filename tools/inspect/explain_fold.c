/* explain_fold.c: the calls of an entry with their costs, and which of them repeat. */
#include "tools/inspect/explain.h"
#include "codegen/program/calls.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool explain_alike(const void *ctx, int i, int j) {
    const explain_entry *e = ctx;
    const sn_kernel_call *a = &e->call[i], *b = &e->call[j];
    return a->line == b->line && a->barrier == b->barrier && a->operations == b->operations &&
           a->bytes == b->bytes && sn_call_similar_names(a->name, b->name) &&
           !strcmp(a->family, b->family) && !strcmp(a->result, b->result) &&
           !strcmp(a->fused, b->fused) && !strcmp(a->when, b->when) &&
           !strcmp(a->notes, b->notes) && !strcmp(a->file, b->file) && !*a->loop == !*b->loop;
}

int inspect_folds_find(int n, int max_period, bool (*alike)(const void *ctx, int i, int j),
                       const void *ctx, inspect_fold *fold) {
    enum { LEAST_SAVED = 3 };
    int n_fold = 0;
    for (int i = 0; i < n;) {
        inspect_fold best = {i, 1, 1};
        for (int period = 1; period <= max_period && i + 2 * period <= n; period++) {
            int k = 0; /* items that are like those one period earlier */
            while (i + period + k < n && alike(ctx, i + k, i + period + k)) k++;
            int times = k / period + 1;
            if ((times - 1) * period > (best.times - 1) * best.period)
                best = (inspect_fold){i, period, times};
        }
        if ((best.times - 1) * best.period < LEAST_SAVED) {
            i++;
            continue;
        }
        fold[n_fold++] = best;
        i += best.period * best.times;
    }
    return n_fold;
}

bool explain_find_folds(explain_entry *e, sn_error *err) {
    enum { MAX_PERIOD = 256 };
    e->fold = calloc((size_t)e->n + 1, sizeof *e->fold);
    if (!e->fold) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    e->n_fold = inspect_folds_find(e->n, MAX_PERIOD, explain_alike, e, e->fold);
    for (int i = 0; i < e->n_fold; i++) {
        const inspect_fold *d = &e->fold[i];
        for (int k = d->first; k < d->first + d->period; k++) {
            e->folded[k] = sn_call_common_name(e->call[k].name, e->call[k + d->period].name);
            if (!e->folded[k]) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
        }
    }
    return true;
}

bool explain_repeats(const explain_entry *e, int i) {
    for (int k = 0; k < e->n_fold; k++) {
        const inspect_fold *d = &e->fold[k];
        if (i >= d->first + d->period && i < d->first + d->period * d->times) return true;
    }
    return false;
}

const inspect_fold *explain_fold_at(const explain_entry *e, int i) {
    for (int k = 0; k < e->n_fold; k++)
        if (e->fold[k].first == i) return &e->fold[k];
    return NULL;
}

double explain_estimate(const sn_kernel_call *c) {
    enum { FLOPS_PER_BYTE = 16 };
    return fmax(c->operations / FLOPS_PER_BYTE, c->bytes);
}

static double weight(const explain_entry *e, int i) {
    return e->seconds ? e->seconds[i] : explain_estimate(&e->call[i]);
}

double explain_share(const explain_entry *e, int i) {
    double total = 0;
    for (int k = 0; k < e->n; k++) total += weight(e, k);
    return total > 0 ? weight(e, i) / total : 0;
}

bool explain_chooses(const sn_kernel_call *c) {
    return strstr(c->notes, "that see a tile are gathered") != NULL;
}

bool explain_above_peak(const explain_entry *e, int i) {
    static const double above = 1.02;
    const sn_kernel_call *c = &e->call[i];
    bool wide = !strstr(c->notes, "integers") && !strstr(c->notes, "bf16");
    return wide && !explain_chooses(c) && e->peak > 0 &&
           c->flops > above * 1e9 * e->peak * e->least[i];
}

bool explain_open(explain_entry *e, const sn_program *p, const char *name, const char *sizes,
                  sn_error *err) {
    inspect_inputs *in = calloc(1, sizeof *in);
    *e = (explain_entry){.name = name, .given = sizes};
    const sn_entry *entry = sn_entry_get(p->m, name);
    bool past = entry && inspect_inputs_past(p->m, entry);
    bool ok = in || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    ok = ok && inspect_inputs_sizes(p->m, LOOK_LENGTH, past, sizes, e->sizes, err) &&
         inspect_inputs_make(in, p, name, e->sizes, err);
    if (ok) e->n = sn_program_calls_on(p, name, e->sizes, in->arg, in->n, &e->call, err);
    if (in) inspect_inputs_free(in);
    free(in);
    if (!ok || e->n < 0) return false;
    e->folded = calloc((size_t)e->n + 1, sizeof *e->folded);
    if (!e->folded) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    for (int i = 0; i < e->n; i++) {
        e->flops += e->call[i].flops;
        e->bytes += e->call[i].bytes;
    }
    return true;
}

void explain_close(explain_entry *e) {
    for (int i = 0; e->folded && i < e->n; i++) free(e->folded[i]);
    free(e->folded);
    free(e->fold);
    free(e->seconds);
    free(e->least);
    free(e->tiles);
}
