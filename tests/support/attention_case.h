/* attention_case.h: shared by the attention tests: captured tables, gradients as outputs, and a
 * cmocka group of variants times levels, types and targets. Include after cmocka.h. */
#ifndef SN_TESTS_ATTENTION_CASE_H
#define SN_TESTS_ATTENTION_CASE_H

#include "frontend/sinter.h"
#include "ir/ir.h"

enum { AC_MAX_GRADIENTS = 3 + SN_MAX_CAPTURED };

/* Input "table<i>" of type t; the list of sizes ends with 0. */
sn_tensor ac_table(sn_module *m, int i, sn_dtype t, const int64_t *size);

/* Outputs "g0" ... of the entry: gradients of sum(w y) for these n tensors; w: an input "weight"
 * with y's shape. */
void ac_gradients(sn_entry *e, sn_tensor y, int n, const sn_tensor *wrt);

/* A test: a variant of attention, compiled one way. */
typedef struct ac_setting {
    const void *variant; /* of the test program */
    const char *name;    /* name of the variant */
    int level;
    sn_dtype t;
    const char *target; /* NULL: this CPU */
    bool back;          /* checks the gradients */
    bool bf16;          /* products are computed in bf16 */
    /* compares thread counts, bit for bit, instead of comparing with the evaluator */
    bool bits;
    char label[96];
} ac_setting;
typedef sn_module *ac_build_fn(const ac_setting *s);

/* Runs the settings, then `more`, as a cmocka group. Returns
 * main's exit code. */
int ac_run(const char *group, ac_build_fn *build, ac_setting *settings, size_t n,
           const struct CMUnitTest *more, size_t n_more);

#endif
