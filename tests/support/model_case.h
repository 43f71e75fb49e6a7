/* model_case.h: what tests of architectures share: a model with random weights from a config text,
 * its value by the reference evaluator, and compiled code against it at every fusion level.
 * For programs that include cmocka.h first. */
#ifndef SN_TEST_MODEL_CASE_H
#define SN_TEST_MODEL_CASE_H

#include "frontend/models.h"
#include "tests/support/noise.h"

enum { CASE_PARAM = 192, CASE_SYMBOLS = 8 };

typedef struct model_case {
    sn_model model;
    sn_arg_binding param[CASE_PARAM]; /* random, the same for the same text */
    int n_param;
    struct {
        const char *name;
        int64_t value;
    } size[CASE_SYMBOLS]; /* of symbolic dims, for case_evaluate */
    int n_size;
} model_case;

/* Fails the test with the error's message. */
void need(bool ok, const sn_error *err);

/* entries as in sn_model_options, 0: all */
void case_open(model_case *c, const char *config, int entries);
void case_adopt(model_case *c, sn_module *m); /* a module built by hand, which c then owns */
const float *case_param(const model_case *c, const char *name);
void case_close(model_case *c);
void case_size(model_case *c, const char *symbol, int64_t value); /* a size for case_evaluate */

/* The value of an output by the evaluator, in f64 steps; n elements. */
void case_evaluate(model_case *c, const char *entry, const char *output, const sn_arg_binding *in,
                   int n_in, double *out, int64_t n);
/* Compiles at a level; taps as in sn_options, may be NULL. */
sn_session *case_compile(model_case *c, int level, const char *tap, sn_program **p);
/* Runs the entry at fusion levels `lowest` and 4 against the evaluator: |got - want| <= 2e-4 (1 +
 * |want|). */
void case_check(model_case *c, int lowest, const char *entry, const char *output,
                const sn_arg_binding *in, int n_in, int64_t n);
/* The gradient of the output's mean with respect to every parameter that it is made of, against
 * differences: relative errors below 1e-5. Adds nodes to the module: close the case after it. */
void case_check_grad(model_case *c, const char *entry, const char *output, const sn_arg_binding *in,
                     int n_in);

void fill_tokens(int32_t *t, int n, int vocab);

#endif
