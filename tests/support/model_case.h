/* model_case.h: shared by the tests of architectures: builds a model with random weights from a
 * config text, evaluates it with the reference evaluator, and checks compiled code against it at
 * every fusion level. Include after cmocka.h. */
#ifndef SN_TEST_MODEL_CASE_H
#define SN_TEST_MODEL_CASE_H

#include "frontend/models.h"
#include "tests/support/noise.h"

enum { CASE_PARAM = 192, CASE_SYMBOLS = 8 };

typedef struct model_case {
    sn_model model;
    sn_arg_binding param[CASE_PARAM]; /* random, depends on the config text only */
    int n_param;
    struct {
        const char *name;
        int64_t value;
    } size[CASE_SYMBOLS]; /* values of the symbolic dims for case_evaluate */
    int n_size;
} model_case;

/* Fails the test with the error's message. */
void need(bool ok, const sn_error *err);

/* entries as in sn_model_options, 0: all */
void case_open(model_case *c, const char *config, int entries);
void case_adopt(model_case *c, sn_module *m); /* a module built by hand, which c then owns */
const float *case_param(const model_case *c, const char *name);
void case_close(model_case *c);
void case_size(model_case *c, const char *symbol, int64_t value); /* sets a dim for case_evaluate */

/* The value of an output by the evaluator, computed in f64; n elements. */
void case_evaluate(model_case *c, const char *entry, const char *output, const sn_arg_binding *in,
                   int n_in, double *out, int64_t n);
/* Compiles at a level; taps as in sn_options, may be NULL. */
sn_session *case_compile(model_case *c, int level, const char *tap, sn_program **p);
/* Runs the entry at fusion levels `lowest` and 4 against the evaluator: |got - want| <= 2e-4 (1 +
 * |want|). */
void case_check(model_case *c, int lowest, const char *entry, const char *output,
                const sn_arg_binding *in, int n_in, int64_t n);
/* Checks the gradient of the output's mean with respect to every parameter it depends on against
 * differences: relative errors below 1e-5. Adds nodes to the module: close the case afterwards. */
void case_check_grad(model_case *c, const char *entry, const char *output, const sn_arg_binding *in,
                     int n_in);

void fill_tokens(int32_t *t, int n, int vocab);

#endif
