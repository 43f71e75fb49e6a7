/* check.c: see check.h. Each kind of module (the model's entries; the gradients of one entry) is compiled
 * for every level, run at one or two sizes, and compared with the evaluator, in double precision and
 * rounded: what rounding alone may change is not an error. */
#include "frontend/gradients.h"
#include "tools/run/check.h"
#include "codegen/program/program.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Errors that rounding explains: what it makes in the evaluator, times SLACK; of bf16 much of it is seen
 * there already. */
enum { LEVELS = 5, SLACK = 32, SLACK_BF16 = 4 };
static const int thread_counts[] = {1, 2, 3, 7};
enum { N_THREADS = sizeof thread_counts / sizeof *thread_counts };

typedef struct checker {
    const check_options *o;
    check_report *r;
    open_model *m; /* of the current module */
    run_params params;
    const char *of; /* "results" or "gradients" */
    sn_program *program[LEVELS];
    sn_session *session[LEVELS];
    sn_error *err;
} checker;

static check_cell *add_cell(checker *c, const char *entry, const char *check) {
    check_cell *cell = check_add(c->r, entry, c->of, check);
    if (!cell) sn_fail(c->err, SN_ERR_MEMORY, "out of memory");
    return cell;
}

static void fail_cell(check_cell *cell, const char *why) {
    if (!cell || !cell->holds) return;
    cell->holds = false;
    snprintf(cell->detail, sizeof cell->detail, "%.390s", why);
}

static void tell(const checker *c, const char *entry, const char *what) {
    char text[160];
    snprintf(text, sizeof text, "%s, %s: %s", entry, c->of, what);
    if (c->o->progress) c->o->progress(c->o->ctx, text);
}

/* ---- the evaluator ---- */

typedef struct reference {
    sn_eval *exact, *rounded;
    const sn_value **want, **near; /* [results] */
    double largest;                /* of all float results */
} reference;

static sn_eval *make_eval(checker *c, const sn_entry *e, const inspect_inputs *in, bool exact) {
    sn_module *m = c->m->model.module;
    sn_eval *ev = sn_eval_new(m, in->symbol);
    if (!ev) return NULL;
    sn_eval_set_exact(ev, exact);
    sn_eval_set_bf16(ev, check_in_bf16(c->o) && !exact);
    bool ok = true;
    for (int i = 0; i < in->n_data; i++) {
        const sn_arg_binding *a = &in->arg[i];
        size_t bytes = sn_dtype_size(a->dtype);
        for (int k = 0; k < a->rank; k++) bytes *= (size_t)a->shape[k];
        ok = ok && sn_eval_bind(ev, a->name, a->data, bytes);
    }
    for (int i = 0; i < c->params.n; i++) {
        const sn_arg_binding *a = &c->params.list[i];
        size_t bytes = sn_dtype_size(a->dtype);
        for (int k = 0; k < a->rank; k++) bytes *= (size_t)a->shape[k];
        ok = ok && sn_eval_bind(ev, a->name, a->data, bytes);
    }
    sn_order order = sn_entry_topo(m, e);
    for (int i = 0; ok && i < order.n; i++) {
        const sn_node *s = order.node[i];
        if (s->op != SN_OP_state) continue;
        int64_t n = 1;
        for (int a = 0; a < s->rank; a++) n *= sn_dim_eval(m, s->shape[a], in->symbol);
        size_t bytes = (size_t)n * sn_dtype_size((sn_dtype)s->dtype);
        void *data = malloc(bytes + 1);
        if (data) run_state_fill(s, n, data);
        ok = data && sn_eval_bind(ev, sn_attr_str(s, SN_A_name, ""), data, bytes);
        free(data);
    }
    if (ok) return ev;
    sn_eval_free(ev);
    return NULL;
}

static void reference_free(reference *f) {
    sn_eval_free(f->exact);
    sn_eval_free(f->rounded);
    free(f->want);
    free(f->near);
}

static bool reference_make(checker *c, const sn_entry *e, const inspect_inputs *in, reference *f) {
    int n = e->n_output + e->n_assign;
    *f = (reference){.exact = make_eval(c, e, in, true),
                     .rounded = make_eval(c, e, in, false),
                     .want = calloc((size_t)n + 1, sizeof *f->want),
                     .near = calloc((size_t)n + 1, sizeof *f->near)};
    sn_module *m = c->m->model.module;
    bool ok = f->exact && f->rounded && f->want && f->near;
    for (int i = 0; ok && i < n; i++) {
        sn_node *x = i < e->n_output ? e->output[i].node : e->assign[i - e->n_output].node;
        f->want[i] = sn_eval_node(f->exact, x);
        f->near[i] = sn_eval_node(f->rounded, x);
        ok = f->want[i] && f->near[i];
        for (int64_t k = 0; ok && sn_is_float(x) && k < f->want[i]->n; k++)
            if (isfinite(f->want[i]->data[k]))
                f->largest = fmax(f->largest, fabs(f->want[i]->data[k]));
    }
    if (ok) return true;
    return sn_module_ok(m, c->err) ? sn_fail(c->err, SN_ERR_MEMORY, "out of memory") : false;
}

/* ---- comparing ---- */

/* Elements that rounding alone makes finite or not decide nothing. */
static bool is_decided(double want, double near) {
    return isnan(want) == isnan(near) && isinf(want) == isinf(near);
}

static void compare_tensor(const checker *c, const run_tensor *got, const sn_value *want,
                           const sn_value *near, double largest, const char *sizes,
                           check_cell *cell) {
    bool is_float = sn_is_float(got->node);
    double size = 0, rounding = 0, worst = 0;
    int64_t at = -1;
    for (int64_t i = 0; i < got->n; i++) {
        double w = want->data[i], x = sn_dtype_load((sn_dtype)got->node->dtype, got->data, i);
        if (got->node->dtype == SN_F32) w = (float)w; /* may overflow */
        if (!is_decided(w, near->data[i])) continue;
        double far = check_distance(c->o, x, w);
        if (isfinite(w) && isfinite(x))
            size = fmax(size, fabs(w)), rounding = fmax(rounding, fabs(near->data[i] - w));
        if (far > worst) worst = far, at = i;
    }
    /* a gradient of 0 is a sum of others' terms, and has their rounding */
    double unit = is_float ? fmax(size, 1e-2 * largest) : 1;
    double error = worst > 0 ? worst / unit : 0;
    rounding *= (check_in_bf16(c->o) ? SLACK_BF16 : SLACK) / (unit > 0 ? unit : 1);
    double limit = is_float ? fmax(check_tolerance(c->o), rounding) : 0;
    if (!cell->holds) return; /* it says where, with that tensor's error and limit */
    bool fails = error > limit;
    if (fails || !(cell->error >= error)) cell->error = error;
    if (fails || cell->limit < limit) cell->limit = limit;
    if (!fails) return;
    char text[400];
    int n = snprintf(text, sizeof text,
                     "%s '%.120s', element %lld of %lld: ", got->state ? "state" : "output",
                     got->name, (long long)at, (long long)got->n);
    double x = sn_dtype_load((sn_dtype)got->node->dtype, got->data, at), w = want->data[at];
    if (isnan(x) && isnan(w))
        snprintf(text + n, sizeof text - (size_t)n,
                 "NaN, in the evaluator too, so it shows nothing (%.100s); --check-nan of `sinter "
                 "call` names the operation, --allow-nan accepts it",
                 sizes);
    else
        snprintf(text + n, sizeof text - (size_t)n, "%.9g, not %.9g (%.100s)",
                 isnan(x) ? (double)NAN : x, w, sizes);
    fail_cell(cell, text);
}

static void check_level(checker *c, const sn_entry *e, const inspect_inputs *in, const reference *f,
                        int level, const char *sizes) {
    char name[24], what[48];
    snprintf(name, sizeof name, "level %d", level);
    snprintf(what, sizeof what, "level %d, %.20s", level, sizes);
    tell(c, e->name, what);
    check_cell *cell = add_cell(c, e->name, name);
    run_results got = {0};
    sn_error err = {0};
    if (!c->session[level]) return;
    if (!run_entry(c->session[level], c->m->model.module, e, in, true, &got, &err))
        fail_cell(cell, err.message);
    else if (cell)
        for (int i = 0; i < got.n; i++)
            compare_tensor(c, &got.list[i], f->want[i], f->near[i], f->largest, sizes, cell);
    run_results_free(&got);
}

static int top_level(const checker *c) {
    int top = 0;
    for (int l = 0; l < LEVELS; l++)
        if (c->o->levels >> l & 1) top = l;
    return top;
}

/* ---- programs ---- */

static sn_options options_of(const checker *c, int level, int threads) {
    return (sn_options){.level = level,
                        .threads = threads,
                        .backend = c->o->backend,
                        .compute = c->o->compute,
                        .cache_dir = c->o->cache_dir,
                        .passes = c->o->off};
}

static bool open_session(checker *c, int level, int threads, sn_program **p, sn_session **s,
                         sn_error *err) {
    sn_options o = options_of(c, level, threads);
    *p = sn_compile(c->m->model.module, &o, err);
    *s = *p ? sn_session_new_arrays(*p, c->params.list, c->params.n, err) : NULL;
    return *s != NULL;
}

/* Bits of all entries with other numbers of threads, against those of one. */
static bool check_threads(checker *c, const char *entry, const inspect_inputs *in,
                          const char *sizes) {
    check_cell *cell = add_cell(c, entry, "threads");
    sn_module *m = c->m->model.module;
    tell(c, entry, "threads");
    run_results one = {0};
    for (int t = 0; cell && cell->holds && t < N_THREADS; t++) {
        sn_program *p = NULL;
        sn_session *s = NULL;
        sn_error err = {0};
        run_results more = {0}, *got = t ? &more : &one;
        char why[300];
        bool ok = open_session(c, top_level(c), thread_counts[t], &p, &s, &err) &&
                  run_entry(s, m, sn_entry_get(m, entry), in, true, got, &err);
        if (!ok) {
            snprintf(why, sizeof why, "%d threads: %.250s", thread_counts[t], err.message);
            fail_cell(cell, why);
        }
        for (int i = 0; ok && t && i < one.n; i++) {
            const run_tensor *x = &one.list[i];
            if (!memcmp(x->data, more.list[i].data,
                        (size_t)x->n * sn_dtype_size((sn_dtype)x->node->dtype)))
                continue;
            snprintf(why, sizeof why, "'%s' differs between 1 and %d threads (%.80s)", x->name,
                     thread_counts[t], sizes);
            fail_cell(cell, why);
        }
        run_results_free(&more);
        sn_session_free(s);
        sn_program_free(p);
    }
    run_results_free(&one);
    return cell != NULL;
}

/* ---- one module ---- */

/* By name, because compiling makes a module's entries anew. */
static bool check_entry(checker *c, const char *entry) {
    static const struct { int64_t length, batch; } usual[] = {{13, 2}, {70, 1}};
    sn_module *m = c->m->model.module;
    int64_t vocab = c->m->model.labels ? c->m->model.labels : c->m->model.vocab;
    bool ok = true;
    char last[512] = "";
    for (int k = 0; ok && k < (c->o->sizes ? 1 : 2); k++) {
        char sizes[512];
        inspect_inputs in = {.n = 0};
        reference f = {.largest = 0};
        int top = top_level(c);
        const sn_entry *e = sn_entry_get(m, entry);
        if (!c->program[top]) break;
        ok = run_sizes(m, e, c->o->given, usual[k].length, usual[k].batch,
                       inspect_inputs_past(m, e), c->o->sizes, sizes, sizeof sizes, c->err);
        if (ok && k && !strcmp(sizes, last)) break;
        snprintf(last, sizeof last, "%s", sizes);
        tell(c, entry, "evaluator");
        ok = ok &&
             run_inputs_make(&in, c->program[top], entry, sizes, c->o->given, vocab, c->err) &&
             reference_make(c, e, &in, &f);
        for (int l = 0; ok && l < LEVELS; l++)
            if (c->o->levels >> l & 1) check_level(c, e, &in, &f, l, sizes);
        ok = ok && (!c->o->threads || k || check_threads(c, entry, &in, sizes));
        reference_free(&f);
        inspect_inputs_free(&in);
    }
    return ok && !c->err->code;
}

static void close_module(checker *c) {
    for (int l = 0; l < LEVELS; l++) {
        sn_session_free(c->session[l]);
        sn_program_free(c->program[l]);
        c->session[l] = NULL;
        c->program[l] = NULL;
    }
    run_params_free(&c->params);
    model_close(c->m);
    c->m = NULL;
}

static bool open_module(checker *c) {
    c->m = model_open(c->o->model, c->err);
    return c->m && run_params_make(&c->params, c->m, c->o->given, c->o->seed, c->err);
}

/* What cannot be compiled at a level fails the checks of that level. */
static void compile_levels(checker *c) {
    for (int l = 0; l < LEVELS; l++) {
        sn_error err = {0};
        if (!(c->o->levels >> l & 1)) continue;
        char name[24];
        snprintf(name, sizeof name, "level %d", l);
        tell(c, "all entries", name);
        if (open_session(c, l, 2, &c->program[l], &c->session[l], &err)) continue;
        for (int i = 0; i < sn_entry_count(c->m->model.module); i++)
            fail_cell(add_cell(c, sn_entry_at(c->m->model.module, i)->name, name), err.message);
    }
}

/* ---- gradients ---- */

static bool check_differences(checker *c, const sn_entry *e, sn_node *loss, int n, sn_node **wrt) {
    char sizes[512];
    inspect_inputs in = {.n = 0};
    int top = top_level(c);
    sn_module *m = c->m->model.module;
    int64_t vocab = c->m->model.labels ? c->m->model.labels : c->m->model.vocab;
    if (!c->program[top]) return true;
    tell(c, e->name, "differences");
    check_cell *cell = add_cell(c, e->name, "differences");
    bool ok = cell &&
              run_sizes(m, e, c->o->given, 5, 2, false, c->o->sizes, sizes, sizeof sizes, c->err) &&
              run_inputs_make(&in, c->program[top], e->name, sizes, c->o->given, vocab, c->err);
    sn_arg_binding *value = calloc((size_t)(in.n + c->params.n) + 1, sizeof *value);
    sn_grad_error worst = {0};
    sn_error err = {0};
    if (ok && value) {
        memcpy(value, in.arg, sizeof *value * (size_t)in.n);
        memcpy(value + in.n, c->params.list, sizeof *value * (size_t)c->params.n);
        cell->limit =
            1e-3; /* where the loss does not depend on a tensor, its rounding makes 1e-4 */
        if (!sn_check_grad(loss, n, wrt, value, in.n + c->params.n, &worst, &err))
            fail_cell(cell, err.message);
        else
            cell->error = worst.error;
        if (!(worst.error <= cell->limit)) {
            char why[300];
            snprintf(why, sizeof why, "gradient of '%s': slope %.9g, difference %.9g (%.100s)",
                     sn_attr_str(wrt[worst.index], SN_A_name, ""), worst.slope,
                     isnan(worst.difference) ? (double)NAN : worst.difference, sizes);
            fail_cell(cell, why);
        }
    }
    free(value);
    inspect_inputs_free(&in);
    return ok;
}

static bool check_gradients(checker *c, const char *entry) {
    if (!open_module(c)) return false;
    sn_module *m = c->m->model.module;
    const sn_entry *e = sn_entry_get(m, entry);
    sn_node *loss = NULL, **wrt = NULL;
    sn_error err = {0};
    c->of = "gradients";
    sn_entry found = *e; /* the others are removed: they were checked */
    sn_entries_clear(m);
    int n = sn_entry_gradient(m, &found, entry, NULL, NULL, true, &loss, &wrt, &err);
    bool ok = true;
    if (n < 0 && err.code) fail_cell(add_cell(c, entry, "differences"), err.message);
    if (n > 0) {
        compile_levels(c);
        ok = check_entry(c, entry) && check_differences(c, sn_entry_get(m, entry), loss, n, wrt);
    }
    close_module(c);
    return ok;
}

bool check_model(const check_options *o, check_report *r, sn_error *err) {
    checker c = {.o = o, .r = r, .of = "results", .err = err};
    *r = (check_report){0};
    bool ok = open_module(&c);
    sn_module *m = ok ? c.m->model.module : NULL;
    int n_pure = 0; /* entries without states, which have gradients */
    char **pure = calloc(m ? (size_t)sn_entry_count(m) + 1 : 1, sizeof *pure);
    if (ok && !pure) ok = sn_fail(err, SN_ERR_MEMORY, "out of memory");
    if (ok && o->entry && !sn_entry_get(m, o->entry))
        ok = sn_fail(err, SN_ERR_USAGE, "there is no entry '%s'", o->entry);
    if (ok) compile_levels(&c);
    for (int i = 0; ok && i < sn_entry_count(m); i++) {
        const sn_entry *e = sn_entry_at(m, i);
        if (o->entry && strcmp(o->entry, e->name) != 0) continue;
        if (!e->n_assign && !inspect_inputs_past(m, e))
            ok = (pure[n_pure++] = strdup(e->name)) != NULL;
        ok = (ok || sn_fail(err, SN_ERR_MEMORY, "out of memory")) && check_entry(&c, e->name);
    }
    int64_t vocab = ok ? c.m->model.vocab : 0;
    if (ok && o->decoding && c.session[top_level(&c)])
        ok = check_decoding(o, c.session[top_level(&c)], vocab, r, err);
    ok = ok && run_given_used(o->given, m, o->model->path ? o->model->path : "the model",
                              "sinter check", err);
    close_module(&c);
    for (int i = 0; i < n_pure; i++) {
        ok = ok && (!o->gradients || check_gradients(&c, pure[i]));
        free(pure[i]);
    }
    free(pure);
    return ok;
}
