/* jit_run.h: compiles and runs an entry and compares with the evaluator. Every buffer is between
 * guards and aligned to its element size only; results are pre-filled with a pattern that no kernel
 * produces. */
#ifndef SN_TESTS_JIT_RUN_H
#define SN_TESTS_JIT_RUN_H

#include "frontend/sinter.h"
#include "ir/ir.h"

enum { JIT_WHY = 1200, JIT_MAX = 256 };

/* The elements of a leaf (input, parameter, state) for these values of the symbolic dims; the
 * caller frees them. NULL: out of memory. */
typedef void *jit_data_fn(void *ctx, const sn_node *leaf, const int64_t *symbol, size_t *bytes);
jit_data_fn jit_random_leaf; /* normal samples seeded by the leaf's hash; small integers */

typedef struct jit_leaf { /* data of a parameter, for the lifetime of the session */
    const char *name;
    unsigned char *block;
    void *data;
    size_t bytes;
} jit_leaf;

typedef struct jit_run {
    sn_module *m;
    sn_program *p;
    sn_session *s;
    jit_data_fn *data;
    void *ctx;
    jit_leaf param[JIT_MAX];
    int n_param;
    double worst;      /* maximum error seen by jit_check so far, relative to 1 + |value| */
    bool bf16;         /* products are of bf16, in the evaluator in single precision too */
    bool single;       /* jit_check compares only with the evaluator in single precision */
    bool loose;        /* jit_check accepts any infinity or NaN for any other, but ... */
    bool allow_nan;    /* ... a result that is NaN everywhere only with this: nothing is compared */
    char why[JIT_WHY]; /* after a failure */
} jit_run;

/* Compiles the module and binds its parameters. False: `why` is set. The module must outlive it. */
bool jit_open(jit_run *r, sn_module *m, const sn_options *o, jit_data_fn *data, void *ctx);
void jit_close(jit_run *r); /* also after a failed jit_open */

/* One result of a run: an output, or a state after it. */
typedef struct jit_value {
    const char *name;
    const sn_node *node;
    size_t n;
    unsigned char *bytes; /* n elements as stored */
} jit_value;
typedef struct jit_result {
    int n;
    jit_value value[JIT_MAX];
} jit_result;
void jit_result_free(jit_result *v);
double jit_element(const jit_value *v, size_t i);

/* Runs an entry once, after setting the states; returns outputs, then assigned states. */
bool jit_call(jit_run *r, const char *entry, const int64_t *symbol, jit_result *out);

/* Runs the entry and compares with the evaluator: |got - want| <= tol (1 + |want|) + slack |want -
 * want in single precision|; integers exactly. slack 0 for a single op; more where rounding errors
 * accumulate. */
bool jit_check(jit_run *r, const char *entry, const int64_t *symbol, double tol, double slack);

/* The same result by result, in this order. symbol must outlive it; jit_check_end also after a failure. */
typedef struct jit_checks {
    jit_result got;
    const sn_entry *entry;
    const int64_t *symbol;
    sn_eval *exact, *rounded; /* NULL: not needed so far */
} jit_checks;
bool jit_check_begin(jit_run *r, const char *entry, const int64_t *symbol, jit_checks *c);
bool jit_check_value(jit_run *r, jit_checks *c, int i, double tol, double slack);
void jit_check_end(jit_checks *c);

/* Compiles the module with `o` and checks every entry like jit_check; false: `why`, JIT_WHY
 * long. */
bool jit_matches(sn_module *m, const sn_options *o, const int64_t *symbol, jit_data_fn *data,
                 void *ctx, double tol, double slack, char *why);

/* Compiles the module with `o` for 1, 2, 3 and 7 threads and runs every entry: false (and `why`,
 * JIT_WHY long) if any run fails or its results are not bit-identical to those of one thread. */
bool jit_same_bits(sn_module *m, const sn_options *o, const int64_t *symbol, jit_data_fn *data,
                   void *ctx, char *why);

#endif
