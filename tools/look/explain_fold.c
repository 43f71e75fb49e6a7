/* explain_fold.c: the calls of an entry with their costs, and which of them repeat. */
#include "tools/look/explain.h"
#include "codegen/program/calls.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool alike(const explain_entry *e, int i, int j) {
    const sn_kernel_call *a = &e->call[i], *b = &e->call[j];
    return a->line == b->line && a->barrier == b->barrier && a->flops == b->flops &&
           a->bytes == b->bytes && sn_call_similar_names(a->name, b->name) &&
           !strcmp(a->family, b->family) && !strcmp(a->result, b->result) &&
           !strcmp(a->fused, b->fused) && !strcmp(a->when, b->when) &&
           !strcmp(a->notes, b->notes) && !strcmp(a->file, b->file) && !*a->loop == !*b->loop;
}

/* How many times the calls [i, i + period) follow each other. */
static int repeats(const explain_entry *e, int i, int period) {
    int k = 0;
    while (i + period + k < e->n && alike(e, i + k, i + period + k)) k++;
    return k / period + 1;
}

bool explain_find_folds(explain_entry *e, sn_error *err) {
    enum { LEAST_SAVED = 3, MAX_PERIOD = 256 };
    e->fold = calloc((size_t)e->n + 1, sizeof *e->fold);
    if (!e->fold) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    for (int i = 0; i < e->n;) {
        explain_fold best = {i, 1, 1};
        for (int period = 1; period <= MAX_PERIOD && i + 2 * period <= e->n; period++) {
            int times = repeats(e, i, period);
            if ((times - 1) * period > (best.times - 1) * best.period)
                best = (explain_fold){i, period, times};
        }
        if ((best.times - 1) * best.period < LEAST_SAVED) {
            i++;
            continue;
        }
        e->fold[e->n_fold++] = best;
        for (int k = i; k < i + best.period; k++) {
            e->folded[k] = sn_call_common_name(e->call[k].name, e->call[k + best.period].name);
            if (!e->folded[k]) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
        }
        i += best.period * best.times;
    }
    return true;
}

const explain_fold *explain_fold_at(const explain_entry *e, int i) {
    for (int k = 0; k < e->n_fold; k++)
        if (e->fold[k].first == i) return &e->fold[k];
    return NULL;
}

/* Without a measurement: as if each call were bound by either its operations or its bytes, with this
 * many operations in the time of a byte. It ranks calls on a CPU with wide vectors; --time measures. */
static double weight(const explain_entry *e, int i) {
    enum { FLOPS_PER_BYTE = 16 };
    if (e->seconds) return e->seconds[i];
    return fmax(e->call[i].flops / FLOPS_PER_BYTE, e->call[i].bytes);
}

double explain_share(const explain_entry *e, int i) {
    double total = 0;
    for (int k = 0; k < e->n; k++) total += weight(e, k);
    return total > 0 ? weight(e, i) / total : 0;
}

bool explain_open(explain_entry *e, const sn_program *p, const char *name, const char *sizes,
                  sn_error *err) {
    *e = (explain_entry){.name = name, .sizes = sizes};
    e->n = sn_program_calls(p, name, sizes, &e->call, err);
    if (e->n < 0) return false;
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
}
