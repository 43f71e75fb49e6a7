/* model_case.c: models with random weights, evaluated and compiled. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/support/effort.h"
#include "tests/support/model_case.h"
#include "ir/ir.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void need(bool ok, const sn_error *err) {
    if (!ok) fail_msg("%s", err->message);
}

void fill_tokens(int32_t *t, int n, int vocab) {
    for (int i = 0; i < n; i++) t[i] = (i * 11 + 3) % vocab;
}

static void add_param(model_case *c, const sn_node *n) {
    int64_t count = 1;
    for (int a = 0; a < n->rank; a++) count *= n->shape[a];
    float *data = malloc(sizeof *data * (size_t)count);
    assert_non_null(data);
    fill_floats(data, count, (uint32_t)c->n_param + 1);
    for (int64_t i = 0; i < count; i++) data[i] *= 0.3f;
    assert_true(c->n_param < CASE_PARAM);
    c->param[c->n_param++] =
        (sn_arg_binding){sn_attr_str(n, SN_A_name, ""), SN_F32, n->rank, n->shape, data};
}

void case_open(model_case *c, const char *config, int entries) {
    sn_error err = {0};
    *c = (model_case){0};
    sn_config *json = sn_config_parse("test", config, strlen(config), &err);
    need(json != NULL, &err);
    need(sn_model_build(json, &(sn_model_options){.entries = entries}, &c->model, &err), &err);
    sn_config_free(json);
    case_adopt(c, c->model.module);
}

void case_adopt(model_case *c, sn_module *m) {
    sn_error err = {0};
    need(sn_module_ok(m, &err), &err);
    if (m != c->model.module) *c = (model_case){.model = {.module = m}};
    for (uint32_t i = 0; i < sn_module_node_count(m); i++) {
        const sn_node *n = sn_module_node(m, i);
        if (n->op == SN_OP_param && sn_attr_str(n, SN_A_name, "@")[0] != '@') add_param(c, n);
    }
}

void case_close(model_case *c) {
    for (int i = 0; i < c->n_param; i++) free(c->param[i].data);
    sn_module_free(c->model.module);
}

const float *case_param(const model_case *c, const char *name) {
    for (int i = 0; i < c->n_param; i++)
        if (!strcmp(c->param[i].name, name)) return c->param[i].data;
    fail_msg("no parameter '%s'", name);
    return NULL;
}

void case_size(model_case *c, const char *symbol, int64_t value) {
    int i = 0;
    while (i < c->n_size && strcmp(c->size[i].name, symbol)) i++;
    assert_true(i < CASE_SYMBOLS);
    c->size[i].name = symbol;
    c->size[i].value = value;
    if (i == c->n_size) c->n_size++;
}

static size_t bytes_of(const sn_arg_binding *a) {
    size_t n = sn_dtype_size(a->dtype);
    for (int i = 0; i < a->rank; i++) n *= (size_t)a->shape[i];
    return n;
}

static sn_node *find_output(sn_module *m, const char *entry, const char *name) {
    const sn_entry *e = sn_entry_get(m, entry);
    assert_non_null(e);
    for (int i = 0; i < e->n_output; i++)
        if (!strcmp(e->output[i].name, name)) return e->output[i].node;
    fail_msg("%s has no output '%s'", entry, name);
    return NULL;
}

void case_evaluate(model_case *c, const char *entry, const char *output, const sn_arg_binding *in,
                   int n_in, double *out, int64_t n) {
    sn_module *m = c->model.module;
    int64_t symbol[16] = {0};
    for (int i = 0; i < sn_symbol_count(m); i++) {
        symbol[i] = 1;
        for (int k = 0; k < c->n_size; k++)
            if (!strcmp(sn_symbol_at(m, i)->name, c->size[k].name)) symbol[i] = c->size[k].value;
    }
    sn_eval *ev = sn_eval_new(m, symbol);
    assert_non_null(ev);
    for (int i = 0; i < c->n_param; i++)
        assert_true(sn_eval_bind(ev, c->param[i].name, c->param[i].data, bytes_of(&c->param[i])));
    for (int i = 0; i < n_in; i++)
        if (in[i].rank) assert_true(sn_eval_bind(ev, in[i].name, in[i].data, bytes_of(&in[i])));
    const sn_value *v = sn_eval_node(ev, find_output(m, entry, output));
    need(v != NULL, sn_module_error(m));
    assert_int_equal(v->n, n);
    memcpy(out, v->data, sizeof *out * (size_t)n);
    sn_eval_free(ev);
}

sn_session *case_compile(model_case *c, int level, const char *tap, sn_program **p) {
    sn_error err = {0};
    sn_options o = sn_options_default();
    o.level = level;
    o.taps = &tap;
    o.n_taps = tap != NULL;
    *p = sn_compile(c->model.module, &o, &err);
    need(*p != NULL, &err);
    sn_session *s = sn_session_new_arrays(*p, c->param, c->n_param, &err);
    need(s != NULL, &err);
    return s;
}

static void check_level(model_case *c, int level, const char *entry, const char *output,
                        const sn_arg_binding *in, int n_in, const double *want, int64_t n) {
    float *got = malloc(sizeof *got * (size_t)n);
    assert_non_null(got);
    sn_error err = {0};
    sn_program *p;
    sn_session *s = case_compile(c, level, NULL, &p);
    int64_t shape[8];
    int rank = sn_output_shape(p, entry, in, n_in, output, shape, &err);
    need(rank >= 0, &err);
    sn_arg_binding out = {output, SN_F32, rank, shape, got};
    need(sn_run(s, entry, in, n_in, &out, 1, &err), &err);
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= 2e-4 * (1 + fabs(want[i]))))
            fail_msg("%s level %d: element %lld is %g, not %g", entry, level, (long long)i, got[i],
                     want[i]);
    sn_session_free(s);
    sn_program_free(p);
    free(got);
}

void case_check(model_case *c, int lowest, const char *entry, const char *output,
                const sn_arg_binding *in, int n_in, int64_t n) {
    double *want = malloc(sizeof *want * (size_t)n);
    assert_non_null(want);
    case_evaluate(c, entry, output, in, n_in, want, n);
    static size_t calls;
    if (lowest < 4 && effort_takes(calls++, 2))
        check_level(c, lowest, entry, output, in, n_in, want, n);
    check_level(c, 4, entry, output, in, n_in, want, n);
    free(want);
}

void case_check_grad(model_case *c, const char *entry, const char *output, const sn_arg_binding *in,
                     int n_in) {
    sn_module *m = c->model.module;
    sn_tensor param[CASE_PARAM];
    sn_arg_binding value[CASE_PARAM + CASE_SYMBOLS + 16];
    sn_error err = {0};
    sn_grad_error worst;
    sn_tensor loss = sn_mean_all(find_output(m, entry, output));
    int n = sn_params_of(loss, CASE_PARAM, param);
    assert_true(n > 0 && n <= CASE_PARAM && n_in <= 16);
    memcpy(value, in, sizeof *in * (size_t)n_in);
    memcpy(value + n_in, c->param, sizeof *c->param * (size_t)c->n_param);
    int n_value = n_in + c->n_param;
    for (int i = 0; i < c->n_size; i++)
        value[n_value++] =
            (sn_arg_binding){.name = c->size[i].name, .dtype = SN_I64, .data = &c->size[i].value};
    for (;;) {
        need(sn_check_grad(loss, n, param, value, n_value, &worst, &err), &err);
        bool none = fabs(worst.slope) < 1e-10 && fabs(worst.difference) < 1e-10;
        if (worst.error < 1e-5 || !none || n == 1) break;
        param[worst.index] = param[--n]; /* a bias of keys shifts all scores equally: gradient 0 */
    }
    if (!(worst.error < 1e-5))
        fail_msg("%s: the gradient of '%s' is off by %g: slope %g, difference %g", entry,
                 sn_attr_str(param[worst.index], SN_A_name, "?"), worst.error, worst.slope,
                 worst.difference);
}
