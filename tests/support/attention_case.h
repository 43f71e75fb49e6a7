/* attention_case.h: what the tests of attention share: the tables that a score captures, gradients
 * as outputs, and a group of variants times levels, types and targets. Include after cmocka.h. */
#ifndef SN_TESTS_ATTENTION_CASE_H
#define SN_TESTS_ATTENTION_CASE_H

#include "frontend/sinter.h"
#include "ir/ir.h"

enum { AC_MAX_GRADIENTS = 3 + SN_MAX_CAPTURED };

/* Input "table<i>" of type t; sizes are ended by 0. */
sn_tensor ac_table(sn_module *m, int i, sn_dtype t, const int64_t *size);

/* Outputs "g0" ... of the entry: gradients of sum(w y) for these n; w: an input "weight" like y. */
void ac_gradients(sn_entry *e, sn_tensor y, int n, const sn_tensor *wrt);

/* One test: a variant of attention, compiled one way. */
typedef struct ac_setting {
    const void *variant; /* the test program's */
    const char *name;    /* the variant's */
    int level;
    sn_dtype t;
    const char *target; /* NULL: this CPU */
    bool back;          /* the gradients */
    bool bits;          /* compares numbers of threads, bit for bit, instead of the evaluator */
    char label[96];
} ac_setting;
typedef sn_module *ac_build_fn(const ac_setting *s);

/* Runs the settings, then `more`, as a cmocka group; kernels are kept in cc_cache_dir(). Returns
 * main's exit code. */
int ac_run(const char *group, ac_build_fn *build, ac_setting *settings, size_t n,
           const struct CMUnitTest *more, size_t n_more);

#endif
