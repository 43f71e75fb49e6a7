/* smt.h: rows of rules as problems of SMT-LIB: unsatisfiable if the row is right. */
#ifndef SN_TEST_SMT_H
#define SN_TEST_SMT_H

#include "passes/rules/form.h"

/* Text of any length and arrays, which live until smt_free. */
const char *smt_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char **smt_array(int n);
void smt_free(void);

/* One problem for each assignment of types to the nodes of a row and each comparison that ~ stands
 * for; equal ones once. The row is right if no values satisfy the facts and the negated goal. */
typedef struct problems {
    const char **facts, **goal; /* [n] commands */
    const char **symbols;       /* [n] whose values are a counterexample */
    int n;
    const char *why; /* what of the row cannot be said; NULL: nothing */
} problems;

/* rounds, finite: what the row claims. */
problems smt_elementwise(const sn_form *form, bool rounds, bool finite);
/* Rows with sums along an axis, in real numbers. */
problems smt_sums(const sn_form *form);
bool smt_has_sums(const sn_form *form);

#endif
