/* test_ops.c: every op on every row of tests/support/ops.def, once a mode. `test_ops MODE OP` runs
 * a part; MODE may be `evaluator` for those below, `jit` for the fusion levels and `targets` for
 * the other compiled ones, which op_compiled.c describes.
 *
 *   shape   the inferred type is the type of the evaluated value
 *   value   the value is the one that the row wants, or the composite's textbook formula
 *   f32     rounding to f32 after every node stays within the row's tolerance: the
 *           tolerance has a meaning
 *   f64     the row also builds and evaluates in f64
 *   text    the row prints and parses to the same graph
 *   grad    the gradient, and its gradient, are the differences in f64
 *
 * A row whose op has no value of its own (leaves) takes part where it can. */
#include "tests/support/effort.h"
#include "tests/support/op_case.h"
#include "tests/support/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* One row, built and evaluated for one value of T. */
typedef struct run {
    const op_case *row;
    int64_t len;
    sn_module *m;
    sn_node *in[MAX_IN], *n;
    sn_eval *ev;
    const sn_value *value; /* NULL: there is none for the op alone */
} run;

static bool has_value(const op_case *row) {
    return !(sn_ops[row->op].flags & SN_OPF_LEAF) || row->n_want || row->op == SN_OP_iota;
}

static void start(run *r, const op_case *row, bool wide, bool exact, int64_t len) {
    *r = (run){.row = row, .len = len, .m = sn_module_new("row")};
    r->n = op_case_build(row, r->m, wide, 0, r->in);
    r->ev = op_case_eval(row, r->m, wide, len);
    assert_non_null(r->ev);
    sn_eval_set_exact(r->ev, exact);
    if (has_value(row)) r->value = sn_eval_node(r->ev, r->n);
    if (sn_module_error(r->m)->code)
        fail_msg("T = %d: %s", (int)len, sn_module_error(r->m)->message);
}

static void stop(run *r) {
    sn_eval_free(r->ev);
    sn_module_free(r->m);
}

static void compare(const run *r, const double *want, double tol) {
    bool narrow = r->value->dtype == SN_F32;
    for (int64_t i = 0; i < r->value->n; i++) {
        double got = r->value->data[i];
        bool overflows =
            narrow && isinf((float)got) && isinf((float)want[i]); /* infinite, with a sign */
        if (overflows ? signbit(got) != signbit(want[i]) : !op_case_close(got, want[i], tol))
            fail_msg("T = %d: element %d is %.17g, not %.17g", (int)r->len, (int)i, got, want[i]);
    }
}

/* ---- modes ---- */

static void mode_shape(const op_case *row, int64_t len) {
    run r;
    start(&r, row, false, true, len);
    const sn_value *v = r.value;
    if (v) {
        int64_t n = 1;
        assert_int_equal(v->dtype, r.n->dtype);
        assert_int_equal(v->rank, r.n->rank);
        for (int i = 0; i < v->rank; i++) {
            assert_int_equal(v->shape[i], sn_dim_eval(r.m, r.n->shape[i], &len));
            n *= v->shape[i];
        }
        assert_int_equal(v->n, n);
    } else {
        const sn_attr *shape = sn_attr_get(r.n, SN_A_shape);
        assert_int_equal(r.n->rank, shape ? shape->n : 0);
    }
    stop(&r);
}

static void mode_value(const op_case *row, int64_t len) {
    run r;
    ref_fn ref = row->ref ? row->ref : ref_of(row->op);
    if (!row->n_want && !ref) return;
    start(&r, row, false, true, len);
    if (row->n_want) {
        assert_int_equal(r.value->n, row->n_want);
        compare(&r, row->want, 0);
    } else {
        const sn_value *in[MAX_IN];
        for (int i = 0; i < op_case_n_in(row); i++) in[i] = sn_eval_node(r.ev, r.in[i]);
        double *out = calloc((size_t)r.value->n + 1, sizeof *out);
        assert_non_null(out);
        ref(&(ref_call){r.n, row, in, r.value, out});
        bool narrow = r.value->dtype == SN_BF16 || r.value->dtype == SN_F16;
        compare(&r, out, narrow ? row->tol : 1e-10);
        free(out);
    }
    stop(&r);
}

static void against_exact(const op_case *row, int64_t len, bool wide, double tol) {
    run exact, other;
    if (!has_value(row)) return;
    start(&exact, row, false, true, len);
    start(&other, row, wide, wide, len);
    assert_int_equal(exact.value->n, other.value->n);
    compare(&other, exact.value->data, tol);
    stop(&exact);
    stop(&other);
}

static void mode_f32(const op_case *row, int64_t len) {
    against_exact(row, len, false, row->tol);
}

static void mode_f64(const op_case *row, int64_t len) {
    against_exact(row, len, true, row->tol);
}

static void mode_text(const op_case *row, int64_t len) {
    run r;
    start(&r, row, false, true, len);
    if (row->op == SN_OP_arg) { /* no node of an entry */
        stop(&r);
        return;
    }
    sn_entry_output(r.m, sn_entry_add(r.m, "main"), "y", sn_b_result(r.n, 0));
    if (!sn_verify(r.m)) fail_msg("%s", sn_module_error(r.m)->message);
    char *text = module_text(r.m);
    for (int raw = 0; raw < 2; raw++) {
        sn_error err = {0};
        sn_module *m = sn_parse(text, "row.sn", raw, &err);
        if (!m) fail_msg("%s\nin\n%s", err.message, text);
        char *again = module_text(m);
        assert_string_equal(again, text);
        free(again);
        sn_eval *ev = op_case_eval(row, m, false, len);
        assert_non_null(ev);
        sn_node *y = sn_entry_get(m, "main")->output[0].node;
        const sn_value *v = r.value ? sn_eval_node(ev, y) : NULL;
        if (sn_module_error(m)->code) fail_msg("%s", sn_module_error(m)->message);
        if (v) compare(&r, v->data, 0);
        sn_eval_free(ev);
        sn_module_free(m);
    }
    free(text);
    stop(&r);
}

static void mode_grad(const op_case *row, int64_t len) {
    if (op_grad_takes(row)) op_grad_check(row, len);
}

#define MODE(name)                                                                                 \
    { #name, mode_##name, {17, 0, 1 }, 3 }
static const op_mode modes[] = {MODE(shape), MODE(value), MODE(f32),
                                MODE(f64),   MODE(text),  MODE(grad)};
enum { N_MODE = sizeof modes / sizeof *modes };

/* ---- the program ---- */

typedef struct job {
    const op_mode *mode;
    const op_case *row;
    char name[64];
} job;

/* Whether a mode takes every row. */
static bool is_full(const op_mode *mode) {
    return !strcmp(mode->name, "jit0") || !strcmp(mode->name, "jit4");
}

/* Levels 0 and 4 share the lengths in the default run. */
static void run_job(void **state) {
    const job *j = *state;
    size_t odd = !strcmp(j->mode->name, "jit4");
    for (int i = 0; i < (op_case_is_symbolic(j->row) ? j->mode->n_len : 1); i++)
        if (!is_full(j->mode) || !op_case_is_symbolic(j->row) || effort_takes((size_t)i + odd, 2))
            j->mode->run(j->row, j->mode->len[i]);
}

/* Ops that promise their own gradient. */
static bool has_gradient(sn_op op) {
    return sn_ops[op].kind != SN_FUSED && !(sn_ops[op].flags & (SN_OPF_LEAF | SN_OPF_NOGRAD)) &&
           op != SN_OP_result && op != SN_OP_one_hot && op != SN_OP_sinusoid;
}

static bool is_of(const op_case *row, int op) {
    return (int)(row->op == SN_OP_result ? row->of : row->op) == op || (int)row->op == op;
}

/* Names every op without a row, or without one whose gradient is checked; true: there is none. */
static bool check_coverage(void) {
    bool complete = true;
    for (int op = 0; op < SN_OP_COUNT; op++) {
        int rows = 0;
        for (int i = 0; i < op_case_count; i++) rows += is_of(&op_cases[i], op);
        if (!rows) fprintf(stderr, "tests/support/ops.def has no row for %s\n", sn_ops[op].name);
        int slopes = 0;
        for (int i = 0; i < op_case_count; i++)
            slopes += is_of(&op_cases[i], op) && op_grad_takes(&op_cases[i]);
        if (!slopes && has_gradient((sn_op)op))
            fprintf(stderr, "tests/support/ops.def has no row for the gradient of %s\n",
                    sn_ops[op].name);
        complete &= rows > 0 && (slopes > 0 || !has_gradient((sn_op)op));
    }
    return complete;
}

/* Whether a mode belongs to the group of fusion levels. */
static bool is_level(const op_mode *mode) {
    return !strncmp(mode->name, "jit", 3) && strlen(mode->name) == 4;
}

/* Whether `what` selects mode k: by its name, or as a group of modes. */
static bool meant(const char *what, int k, const op_mode *mode) {
    return !strcmp(what, mode->name) || !strcmp(what, k < N_MODE       ? "evaluator"
                                                      : is_level(mode) ? "jit"
                                                                       : "targets");
}

/* The default run takes every row in the evaluator's modes, and compiled at levels 0 and 4. Of the other modes, with N
 * modes in all, a level takes every 5N-th row and a target every 3N-th, each from another row on. */
static bool sampled(size_t i, int k) {
    if (effort_is_long() || k < N_MODE) return true;
    const op_mode *mode = &op_compiled_modes[k - N_MODE];
    const size_t apart = is_level(mode) ? 5 : 3;
    return is_full(mode) ||
           effort_takes(i + (size_t)(k - N_MODE), (size_t)op_compiled_count * apart);
}

int main(int argc, char **argv) {
    if (!check_coverage()) return 1;
    size_t rows = (size_t)op_case_count, max = (size_t)(N_MODE + op_compiled_count) * rows, n = 0;
    job *jobs = calloc(max, sizeof *jobs);
    struct CMUnitTest *tests = calloc(max, sizeof *tests);
    if (!jobs || !tests || op_compiled_begin(argc < 3)) return 1;
    for (size_t i = 0; i < max; i++) {
        int k = (int)(i / rows);
        const op_mode *mode = k < N_MODE ? &modes[k] : &op_compiled_modes[k - N_MODE];
        const op_case *row = &op_cases[i % rows];
        if (argc > 1 && !meant(argv[1], k, mode)) continue;
        if (argc > 2 && strcmp(argv[2], sn_ops[row->op].name)) continue;
        if (argc < 3 && !sampled(i % rows, k)) continue;
        jobs[n] = (job){.mode = mode, .row = row};
        snprintf(jobs[n].name, sizeof jobs[n].name, "%s %s ops.def:%d #%d", mode->name,
                 sn_ops[row->op].name, row->line, (int)(row - op_cases));
        tests[n] = (struct CMUnitTest){jobs[n].name, run_job, NULL, NULL, &jobs[n]};
        n++;
    }
    int failed = n ? _cmocka_run_group_tests("ops", tests, n, NULL, NULL) : 1;
    op_compiled_end();
    free(jobs);
    free(tests);
    return failed;
}
