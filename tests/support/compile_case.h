/* compile_case.h: small graphs for the tests of compiled code, checked at every fusion level.
 * Include after cmocka.h. */
#ifndef SN_TESTS_COMPILE_CASE_H
#define SN_TESTS_COMPILE_CASE_H

#include "tests/support/jit_run.h"

#define SHAPE(...)                                                                                 \
    (int)(sizeof((sn_dim[]){__VA_ARGS__}) / sizeof(sn_dim)), (const sn_dim[]) {                    \
        __VA_ARGS__                                                                                \
    }
#define SCALAR 0, NULL
#define AXES(...)                                                                                  \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) {                 \
        __VA_ARGS__                                                                                \
    }

/* Leaves by name; their elements follow from name and type. Floats are normal samples; a name "iN…"
 * gives indices in [0, N), other integers are in -9 … 9 (u8: 0 … 255). */
sn_node *cc_input(sn_module *m, const char *name, sn_dtype t, int rank, const sn_dim *shape);
sn_node *cc_param(sn_module *m, const char *name, sn_dtype t, int rank, const sn_dim *shape);
sn_node *cc_state(sn_module *m, const char *name, sn_dtype t, int rank, const sn_dim *shape);

/* A new entry with the single output "y", named by fmt. */
sn_entry *cc_entry(sn_module *m, sn_node *y, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
sn_node *cc_dot(sn_node *x, sn_node *y, int n_batch, const int64_t *ba, const int64_t *bb,
                int n_contract, const int64_t *ca, const int64_t *cb);
sn_node *cc_slice(sn_node *x, const sn_dim *start, const sn_dim *size, const int64_t *step);

/* Compiles the module at the levels lo … hi, and again with oneDNN at level hi, runs every entry
 * with T = each of the lengths (once if the module has no T) and compares with the evaluator; then
 * frees the module. Fails the test on a difference. Kernels that several levels have in common are
 * compiled once. */
void cc_check(sn_module *m, int lo, int hi, int n_len, const int64_t *len, double tol);
/* The same with oneDNN at levels 0, 2 and 4 and this sn_options.compute, where exactly this many primitives must be used; keeps
 * the module. Does nothing in builds without oneDNN. */
void cc_check_onednn(sn_module *m, const char *compute, int primitives, int n_len,
                     const int64_t *len, double tol);
/* How often `sinter explain` prints `what` for the module at a level, without oneDNN; keeps the
 * module. */
int cc_count_report(sn_module *m, int level, const char *what);
/* Checks that results are bit-identical for any number of threads; keeps the module. */
void cc_check_threads(sn_module *m, int level, int64_t len);

int cc_begin(void **state); /* group fixtures: create and remove the cache folder */
int cc_end(void **state);

#endif
