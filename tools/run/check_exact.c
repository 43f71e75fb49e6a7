/* check_exact.c: the graph of each entry before and after all passes of each level, evaluated over finite
 * fields (passes/exact.h): results and gradients are equal, or differ at an element. Nothing is compiled. */
#include "frontend/gradients.h"
#include "passes/exact.h"
#include "passes/passes.h"
#include "tools/run/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEVELS = 5, TOKENS = 13, BATCH = 2 };

typedef struct exact_run {
    const check_options *o;
    check_report *r;
    sn_module *m;
    run_params params;
    const char *of;
    sn_error *err;
} exact_run;

static bool bind_integers(void *ctx, sn_eval *ev) {
    const inspect_inputs *in = ctx;
    for (int i = 0; i < in->n_data; i++) {
        const sn_arg_binding *a = &in->arg[i];
        size_t bytes = sn_dtype_size(a->dtype);
        for (int k = 0; k < a->rank; k++) bytes *= (size_t)a->shape[k];
        if (!sn_dtype_is_float(a->dtype) && !sn_eval_bind(ev, a->name, a->data, bytes))
            return false;
    }
    return true;
}

/* What a parameter has; NULL: it is none. */
static const void *data_of(const exact_run *x, const char *name) {
    for (int i = 0; i < x->params.n; i++)
        if (!strcmp(x->params.list[i].name, name)) return x->params.list[i].data;
    return NULL;
}

/* Integers of parameters, and of states: zeros. */
static bool bind_others(exact_run *x, const char *entry, const inspect_inputs *in, sn_eval *ev) {
    sn_order order = sn_entry_topo(x->m, sn_entry_get(x->m, entry));
    bool ok = true;
    for (int i = 0; ok && i < order.n; i++) {
        const sn_node *n = order.node[i];
        if (!(sn_ops[n->op].flags & SN_OPF_EXTERNAL) || n->op == SN_OP_input || sn_is_float(n))
            continue;
        size_t bytes = sn_dtype_size((sn_dtype)n->dtype);
        for (int a = 0; a < n->rank; a++)
            bytes *= (size_t)sn_dim_eval(x->m, n->shape[a], in->symbol);
        const char *name = sn_attr_str(n, SN_A_name, "");
        const void *data = data_of(x, name);
        void *zeros = data ? NULL : calloc(bytes + 1, 1);
        ok = (data || zeros) && sn_eval_bind(ev, name, data ? data : zeros, bytes);
        free(zeros);
    }
    return ok;
}

typedef struct binding {
    exact_run *x;
    const char *entry;
    inspect_inputs in;
} binding;

static bool bind_leaves(void *ctx, sn_eval *ev) {
    binding *b = ctx;
    return bind_integers(&b->in, ev) && bind_others(b->x, b->entry, &b->in, ev);
}

static void judge(check_cell *cell, const sn_exact_row *row) {
    if (row->verdict == SN_EXACT_EQUAL || !cell->holds) return;
    bool differs = row->verdict == SN_EXACT_DIFFERS;
    if (!differs && cell->detail[0]) return;
    cell->holds = !differs;
    cell->verdict = differs ? "differs" : "undecided";
    snprintf(cell->detail, sizeof cell->detail, "%s '%.120s', element %lld of %lld%s%s",
             row->state ? "state" : "output", row->name, (long long)row->at, (long long)row->n,
             row->lost & SN_FIELD_SIGN ? ": e^ of a part of a logarithm has no sign" : "",
             row->lost & SN_FIELD_DEEP ? ": too many exponentials or logarithms inside each other"
                                       : "");
}

static bool compare_level(exact_run *x, sn_exact *e, const char *entry, int level) {
    char name[24], what[160];
    snprintf(name, sizeof name, "level %d", level);
    snprintf(what, sizeof what, "%.60s, %s: exact, level %d", entry, x->of, level);
    if (x->o->progress) x->o->progress(x->o->ctx, what);
    sn_passes p;
    sn_pass_options po = {
        .level = level, .backend = "native", .off = x->o->off, .constant_params = true};
    const sn_exact_row *row;
    check_cell *cell = check_add(x->r, entry, x->of, name);
    if (!cell) return sn_fail(x->err, SN_ERR_MEMORY, "out of memory");
    cell->verdict = "equal";
    if (!sn_passes_run(&p, x->m, &po)) return sn_module_ok(x->m, x->err);
    int n = sn_exact_compare(e, &row, x->err);
    for (int i = 0; i < n; i++) judge(cell, &row[i]);
    return n >= 0;
}

static bool compare_entry(exact_run *x, const char *entry) {
    char sizes[512];
    const sn_entry *e = sn_entry_get(x->m, entry);
    binding b = {.x = x, .entry = entry};
    bool ok = run_sizes(x->m, e, x->o->given, TOKENS, BATCH, inspect_inputs_past(x->m, e),
                        x->o->sizes, sizes, sizeof sizes, x->err) &&
              inspect_inputs_written(&b.in, x->m, entry, sizes, x->err) &&
              run_inputs_given(&b.in, x->o->given, x->err);
    sn_exact *exact =
        ok ? sn_exact_new(x->m, entry, b.in.symbol, x->o->seed, bind_leaves, &b, x->err) : NULL;
    ok = exact != NULL;
    for (int level = 0; ok && level < LEVELS; level++) {
        if (!(x->o->levels >> level & 1)) continue;
        sn_entries *written = sn_entries_save(x->m);
        ok = compare_level(x, exact, entry, level);
        sn_entries_restore(x->m, written);
    }
    sn_exact_free(exact);
    inspect_inputs_free(&b.in);
    return ok;
}

/* A module of its own, because sn_entry_gradient adds to it. */
static bool compare_gradients(exact_run *x, const char *entry) {
    sn_error none = {0};
    open_model *m = model_open(x->o->model, x->err);
    if (!m) return false;
    x->m = m->model.module;
    x->of = "gradients";
    sn_entry found = *sn_entry_get(x->m, entry);
    sn_entries_clear(x->m);
    int n = sn_entry_gradient(x->m, &found, entry, NULL, NULL, true, NULL, NULL, &none);
    bool ok = n > 0 ? compare_entry(x, entry)
                    : !none.code || sn_fail(x->err, none.code, "%s", none.message);
    model_close(m);
    return ok;
}

bool check_exact(const check_options *o, check_report *r, sn_error *err) {
    *r = (check_report){0};
    open_model *m = model_open(o->model, err);
    if (!m) return false;
    exact_run x = {.o = o, .r = r, .m = m->model.module, .of = "results", .err = err};
    const int n = sn_entry_count(x.m);
    char **name = calloc((size_t)n + 1, sizeof *name); /* entries are made anew */
    bool *pure = calloc((size_t)n + 1, sizeof *pure);
    bool ok = !o->entry || sn_entry_get(x.m, o->entry) ||
              sn_fail(err, SN_ERR_USAGE, "there is no entry '%s'", o->entry);
    ok = ok && run_params_make(&x.params, m, o->given, o->seed, err);
    for (int i = 0; ok && i < n; i++) {
        const sn_entry *e = sn_entry_at(x.m, i);
        ok = (name && pure && (name[i] = strdup(e->name))) ||
             sn_fail(err, SN_ERR_MEMORY, "out of memory");
        if (!ok || (o->entry && strcmp(o->entry, name[i]) != 0)) continue;
        pure[i] = !e->n_assign && !inspect_inputs_past(x.m, e);
        ok = compare_entry(&x, name[i]);
    }
    model_close(m);
    for (int i = 0; ok && i < n; i++)
        if (o->gradients && pure[i]) ok = compare_gradients(&x, name[i]);
    run_params_free(&x.params);
    for (int i = 0; name && i < n; i++) free(name[i]);
    free(name);
    free(pure);
    return ok;
}
