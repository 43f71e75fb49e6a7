/* exact.h: whether passes keep what an entry computes, over finite fields (ir/field.h) instead of within a
 * tolerance. */
#ifndef SN_EXACT_H
#define SN_EXACT_H

#include "ir/field.h"
#include "ir/ir.h"

/* Of an output or of the value of a state. */
typedef enum sn_exact_verdict {
    SN_EXACT_EQUAL,
    SN_EXACT_DIFFERS,
    SN_EXACT_UNDECIDED /* differs where a law of real numbers was lost (SN_FIELD_…) */
} sn_exact_verdict;

typedef struct sn_exact_row {
    const char *name; /* the module's */
    bool state;
    sn_exact_verdict verdict;
    int64_t at, n; /* the first element that differs, of n */
    unsigned lost; /* there */
} sn_exact_row;

typedef struct sn_exact sn_exact;

/* The values of an entry's results as the module is now. Floats are random; `bind` gives integers and bools their
 * values with sn_eval_bind. symbol: [sn_symbol_count]. NULL: err. */
sn_exact *sn_exact_new(sn_module *m, const char *entry, const int64_t *symbol, uint64_t key,
                       bool (*bind)(void *ctx, sn_eval *ev), void *ctx, sn_error *err);
void sn_exact_free(sn_exact *x);
/* Compares with the same entry after passes (sn_passes_run), with what they compute ahead. Returns the number of
 * rows, in the order of outputs and states, until the next call; -1: err. */
int sn_exact_compare(sn_exact *x, const sn_exact_row **rows, sn_error *err);

#endif
