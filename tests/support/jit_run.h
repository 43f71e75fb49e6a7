/* jit_run.h: an entry compiled and run, against the evaluator. Every buffer lies between guards,
 * and on an address that is aligned to its element only; results begin as garbage that no kernel
 * makes. */
#ifndef SN_TESTS_JIT_RUN_H
#define SN_TESTS_JIT_RUN_H

#include "frontend/sinter.h"
#include "ir/ir.h"

enum { JIT_WHY = 1200, JIT_MAX = 64 };

/* Fresh elements of a leaf (input, parameter, state) for these values of the symbolic dims; free()d
 * by the caller. NULL: out of memory. */
typedef void *jit_data_fn(void *ctx, const sn_node *leaf, const int64_t *symbol, size_t *bytes);
jit_data_fn jit_random_leaf; /* normal numbers drawn by the leaf's hash; small whole ones */

typedef struct jit_leaf { /* memory of a parameter, for the life of the session */
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
    double worst;      /* error of jit_check so far, over 1 + |value| */
    bool single;       /* jit_check compares with the evaluator in single roundings alone */
    bool loose;        /* jit_check takes any infinity or NaN for any other */
    char why[JIT_WHY]; /* after a failure */
} jit_run;

/* Compiles the module and binds its parameters. False: `why`. The module must outlive it. */
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

/* Runs an entry once, with the states set first; outputs, then assigned states. */
bool jit_call(jit_run *r, const char *entry, const int64_t *symbol, jit_result *out);

/* Runs the entry and compares with the evaluator: |got - want| <= tol (1 + |want|) + slack |want -
 * want in single rounding|, numbers that are not floats exactly. slack 0 for one op; more where
 * roundings add up. */
bool jit_check(jit_run *r, const char *entry, const int64_t *symbol, double tol, double slack);

/* Compiles the module with `o` and checks every entry as jit_check does; false: `why`, JIT_WHY
 * long. */
bool jit_matches(sn_module *m, const sn_options *o, const int64_t *symbol, jit_data_fn *data,
                 void *ctx, double tol, double slack, char *why);

/* Compiles the module with `o` for 1, 2, 3 and 7 threads and runs every entry: false (and `why`,
 * JIT_WHY long) if any run fails or gives other bits than one thread does. */
bool jit_same_bits(sn_module *m, const sn_options *o, const int64_t *symbol, jit_data_fn *data,
                   void *ctx, char *why);

#endif
