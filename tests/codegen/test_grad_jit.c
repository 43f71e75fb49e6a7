/* Gradient graphs as machine code: of every row of tests/support/ops.def in f32 and f64 and of
 * whole models at every fusion level, against the evaluator; of every row in f64 also against
 * central differences of the row's own kernels. */
#include "frontend/models.h"
#include "runtime/rng.h"
#include "tests/support/jit_run.h"
#include "tests/support/effort.h"
#include "tests/support/op_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "tests/support/scratch.h"

enum { ROUNDING = 8 }; /* allowed in addition: this many times the error of f32 between the nodes */

/* ---- rows ---- */

typedef struct setting {
    int level;
    bool wide;
    const op_case *row;
    double far; /* how far operands are moved along a random direction */
    char name[64];
} setting;

/* The i-th of a stream's normals, which repeat after DRAWS. */
static float draw(uint32_t stream, size_t i) {
    enum { DRAWS = 61 };
    static float z[DRAWS]; /* of the stream asked for last */
    static uint32_t of;
    static bool is_full;
    if (!is_full || of != stream) {
        sn_rng r = {.seed = 5, .stream = SN_STREAM_DATA, .step = stream};
        for (int k = 0; k < DRAWS; k++) z[k] = (float)sn_rng_normal(&r);
        of = stream;
        is_full = true;
    }
    return z[i % DRAWS];
}

static size_t count_of(const sn_node *n, const int64_t *symbol) {
    size_t count = 1;
    for (int a = 0; a < n->rank; a++) count *= (size_t)sn_dim_eval(n->m, n->shape[a], symbol);
    return count;
}

/* Floats, a quarter of a normal; integers below 10. */
static void *drawn_data(const sn_node *leaf, const int64_t *symbol, size_t *bytes) {
    size_t n = count_of(leaf, symbol);
    const char *name = sn_attr_str(leaf, SN_A_name, "");
    uint32_t stream = (uint32_t)strlen(name) * 31 + (uint32_t)name[strlen(name) / 2];
    *bytes = n * sn_dtype_size((sn_dtype)leaf->dtype);
    void *data = malloc(*bytes + 1);
    for (size_t i = 0; data && i < n; i++) {
        float z = draw(stream, i) / 4;
        if (leaf->dtype == SN_F64)
            ((double *)data)[i] = z;
        else if (leaf->dtype == SN_F32)
            ((float *)data)[i] = z;
        else
            ((int32_t *)data)[i] = (int32_t)(i * 7 % 10);
    }
    return data;
}

static void *row_data(void *ctx, const sn_node *leaf, const int64_t *symbol, size_t *bytes) {
    const setting *s = ctx;
    const char *name = sn_attr_str(leaf, SN_A_name, "");
    if (name[0] != 'x') return drawn_data(leaf, symbol, bytes);
    double *x = op_case_data(s->row, name[1] - '0', s->wide, symbol[0], bytes);
    for (size_t i = 0; x && s->far != 0 && leaf->dtype == SN_F64 && i < *bytes / sizeof *x; i++)
        x[i] += s->far * draw((uint32_t)name[1], i);
    return x;
}

static const jit_value *value_of(const jit_result *r, const char *name) {
    for (int i = 0; i < r->n; i++)
        if (!strcmp(r->value[i].name, name)) return &r->value[i];
    fail_msg("no result %s", name);
    return NULL;
}

static double loss_at(setting *s, jit_run *run, const int64_t *length, double far) {
    jit_result r = {.n = 0};
    s->far = far;
    if (!jit_call(run, "main", length, &r)) fail_msg("%s", run->why);
    s->far = 0;
    double loss = jit_element(value_of(&r, "loss"), 0);
    jit_result_free(&r);
    return loss;
}

/* The compiled gradient's slope along the direction, against the compiled loss at two places. */
static void check_slope(setting *s, jit_run *run, const int64_t *length, int n,
                        sn_node *const *wrt) {
    const double h = 1e-5;
    double slope = 0, size = 0;
    jit_result r = {.n = 0};
    if (!jit_call(run, "main", length, &r)) fail_msg("%s", run->why);
    for (int i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "g%d", i);
        const jit_value *g = value_of(&r, name);
        for (size_t k = 0; k < g->n; k++) {
            double part =
                jit_element(g, k) * draw((uint32_t)sn_attr_str(wrt[i], SN_A_name, "")[1], k);
            slope += part;
            size += fabs(part);
        }
    }
    jit_result_free(&r);
    double ahead = loss_at(s, run, length, h), back = loss_at(s, run, length, -h);
    double difference = (ahead - back) / (2 * h);
    if (!(fabs(difference - slope) <= 1e-6 * (1 + size) + 1e-9 * fabs(ahead)))
        fail_msg("T = %d: the slope is %.12g, the difference quotient %.12g", (int)*length, slope,
                 difference);
}

static void row_gradient(void **state) {
    setting *s = *state;
    const bool wide = s->wide && !s->row->as_is; /* such a row stays in f32, and is rounded to it */
    sn_module *m = sn_module_new("row");
    sn_node *in[MAX_IN], *wrt[MAX_IN], *g[MAX_IN];
    sn_node *y = op_case_build(s->row, m, s->wide, 0, in);
    int n = 0;
    for (int i = 0; s->row->in[i].used; i++)
        if (s->row->in[i].dtype == SN_F32) wrt[n++] = in[i];
    if (sn_dtype_is_float((sn_dtype)y->dtype)) {
        sn_node *w = sn_node_new(m, SN_OP_input, 0, NULL,
                                 SN_ATTRS(SN_STR(name, "w"), SN_INT(dtype, y->dtype),
                                          SN_LIST(shape, y->rank, y->shape)));
        sn_entry *e = sn_entry_add(m, "main");
        sn_entry_begin(m, "main");
        sn_tensor finite = sn_lt(sn_abs(y), (double)INFINITY);
        sn_tensor loss = sn_sum_all(sn_where(finite, sn_mul(y, w), 0));
        sn_grad(loss, n, wrt, g);
        if (wide) sn_output("loss", sn_cast(loss, SN_F64));
        for (int i = 0; i < n; i++) {
            char name[16];
            snprintf(name, sizeof name, "g%d", i);
            sn_entry_output(m, e, name, g[i]);
        }
        jit_run run;
        sn_options o = {.level = s->level, .threads = 1};
        double tol = wide ? 1e-11 : 1e-5;
        static const int64_t length[] = {17, 0, 130};
        bool ok = jit_open(&run, m, &o, row_data, s);
        for (int i = 0; ok && i < (op_case_is_symbolic(s->row) ? 3 : 1); i++)
            ok = jit_check(&run, "main", &length[i], tol, wide ? 0 : ROUNDING);
        bool smooth = wide && !(sn_ops[s->row->op].flags & SN_OPF_NOGRAD);
        for (int i = 0; ok && smooth && i < (op_case_is_symbolic(s->row) ? 2 : 1); i++)
            check_slope(s, &run, &length[i], n, wrt);
        if (!ok) print_error("%s\n", run.why);
        jit_close(&run);
        if (!ok) sn_module_free(m);
        assert_true(ok);
    }
    sn_module_free(m);
}

/* ---- models ---- */

static void *model_data(void *ctx, const sn_node *leaf, const int64_t *symbol, size_t *bytes) {
    (void)ctx;
    return drawn_data(leaf, symbol, bytes);
}

/* At every level; by default at `usual` only. */
static void check_model(int usual, const char *text) {
    enum { MAX_WRT = 60 };
    sn_error err = {0};
    for (int level = 0; level <= 4; level++) {
        if (level != usual && !effort_is_long()) continue;
        sn_config *c = sn_config_parse("config.json", text, strlen(text), &err);
        sn_model model;
        sn_model_options mo = {.entries = SN_LOSS};
        if (!sn_model_build(c, &mo, &model, &err)) fail_msg("%s", err.message);
        sn_module *m = model.module;
        sn_tensor loss = sn_mean_all(sn_entry_get(m, "loss")->output[0].node);
        sn_tensor wrt[MAX_WRT], g[MAX_WRT];
        int n = sn_params_of(loss, MAX_WRT, wrt);
        assert_in_range(n, 2, MAX_WRT);
        sn_grad(loss, n, wrt, g);
        sn_entry_begin(m, "step");
        sn_output("mean", loss);
        for (int i = 0; i < n; i++) sn_output(sn_attr_str(wrt[i], SN_A_name, ""), g[i]);
        jit_run run;
        sn_options o = {.level = level, .threads = 2};
        bool ok = jit_open(&run, m, &o, model_data, NULL);
        static const int64_t sizes[][2] = {{2, 7}, {1, 1}, {3, 16}};
        for (int k = 0; ok && k < 3; k++) {
            int64_t symbol[4];
            for (int s = 0; s < sn_symbol_count(m); s++)
                symbol[s] = sizes[k][sn_symbol_at(m, s)->name[0] == 'T'];
            ok = jit_check(&run, "step", symbol, 2e-5, ROUNDING);
        }
        char why[JIT_WHY];
        snprintf(why, sizeof why, "level %d: %.1000s", level, run.why);
        jit_close(&run);
        sn_module_free(m);
        sn_config_free(c);
        if (!ok) fail_msg("%s", why);
    }
}

static void gpt2_levels(void **state) {
    (void)state;
    check_model(
        4, "{\"model_type\": \"gpt2\", \"vocab_size\": 11, \"n_positions\": 16, \"n_embd\": 16, "
           "\"n_layer\": 2, \"n_head\": 2}");
}

static void llama_levels(void **state) {
    (void)state;
    check_model(0,
                "{\"model_type\": \"llama\", \"vocab_size\": 11, \"max_position_embeddings\": 16, "
                "\"hidden_size\": 16, \"intermediate_size\": 24, \"num_hidden_layers\": 2, "
                "\"num_attention_heads\": 4, \"num_key_value_heads\": 2}");
}

static void tse_gpt_levels(void **state) {
    (void)state;
    check_model(2, "{\"model_type\": \"tse_gpt\", \"n_vocab\": 11, \"n_ctx\": 16, \"n_layers\": 2, "
                   "\"n_heads\": 2, \"d_model\": 10}");
}

int main(int argc, char **argv) {
    enum { N_WAY = 2 }; /* f32, each row at another level; f64 at the highest */
    const struct CMUnitTest models[] = {
        cmocka_unit_test(gpt2_levels),
        cmocka_unit_test(llama_levels),
        cmocka_unit_test(tse_gpt_levels),
    };
    setting *all = calloc((size_t)(N_WAY * op_case_count), sizeof *all);
    struct CMUnitTest *tests = calloc((size_t)(N_WAY * op_case_count), sizeof *tests);
    size_t n = 0;
    if (!all || !tests || scratch_make(NULL)) return 1;
    for (int i = 0; i < N_WAY * op_case_count; i++) {
        const op_case *row = &op_cases[i % op_case_count];
        if (!op_grad_takes(row) || (argc > 1 && strcmp(argv[1], sn_ops[row->op].name))) continue;
        bool wide = i >= op_case_count;
        if (argc < 2 && !effort_takes((size_t)i + (wide ? 12 : 0), 24)) continue;
        all[n] = (setting){.row = row, .wide = wide, .level = wide ? 4 : i % 5};
        snprintf(all[n].name, sizeof all[n].name, "level %d %s %s ops.def:%d", all[n].level,
                 all[n].wide ? "f64" : "f32", sn_ops[row->op].name, row->line);
        tests[n] = (struct CMUnitTest){all[n].name, row_gradient, NULL, NULL, &all[n]};
        n++;
    }
    int failed = argc > 1 ? 0 : cmocka_run_group_tests_name("models", models, NULL, NULL);
    failed += _cmocka_run_group_tests("rows", tests, n, NULL, NULL);
    scratch_end(NULL);
    free(all);
    free(tests);
    return failed;
}
