/* exact.c: see exact.h. */
#include "passes/exact.h"
#include "passes/passes.h"

#include <stdlib.h>
#include <string.h>

struct sn_exact {
    sn_module *m;
    const char *entry;
    sn_field *field;
    sn_eval *ev;
    sn_value *before; /* [n] results before the passes; data: copies */
    sn_exact_row *row;
    int n;
};

static bool failed(const sn_exact *x, sn_error *err) {
    return sn_module_ok(x->m, err) ? sn_fail(err, SN_ERR_MEMORY, "out of memory") : false;
}

/* Result i of an entry: an output or, after these, a state's value. */
static const sn_binding *result_at(const sn_entry *e, int i) {
    return i < e->n_output ? &e->output[i] : &e->assign[i - e->n_output];
}

static bool keep_results(sn_exact *x, const sn_entry *e, sn_error *err) {
    x->n = e->n_output + e->n_assign;
    x->before = calloc((size_t)x->n + 1, sizeof *x->before);
    x->row = calloc((size_t)x->n + 1, sizeof *x->row);
    if (!x->before || !x->row) return failed(x, err);
    for (int i = 0; i < x->n; i++) {
        const sn_binding *b = result_at(e, i);
        const sn_value *v = sn_eval_node(x->ev, b->node);
        if (!v) return failed(x, err);
        double *data = malloc(sizeof *data * ((size_t)v->n + 1));
        if (!data) return failed(x, err);
        if (v->n) memcpy(data, v->data, sizeof *data * (size_t)v->n);
        x->before[i] = *v;
        x->before[i].data = data;
        x->row[i] = (sn_exact_row){.name = b->name, .state = i >= e->n_output, .n = v->n};
    }
    return true;
}

sn_exact *sn_exact_new(sn_module *m, const char *entry, const int64_t *symbol, uint64_t key,
                       bool (*bind)(void *ctx, sn_eval *ev), void *ctx, sn_error *err) {
    const sn_entry *e = sn_entry_get(m, entry);
    sn_exact *x = calloc(1, sizeof *x);
    if (!x || !e) {
        free(x);
        sn_fail(err, e ? SN_ERR_MEMORY : SN_ERR_USAGE, e ? "out of memory" : "no entry '%s'",
                entry);
        return NULL;
    }
    *x = (sn_exact){.m = m,
                    .entry = sn_arena_str(m, entry),
                    .field = sn_field_new(key),
                    .ev = sn_eval_new(m, symbol)};
    bool ok = x->field && x->ev;
    if (ok) sn_eval_set_field(x->ev, x->field);
    ok = ok && bind(ctx, x->ev) && keep_results(x, e, err);
    if (ok) return x;
    if (!err->code) failed(x, err);
    sn_exact_free(x);
    return NULL;
}

void sn_exact_free(sn_exact *x) {
    if (!x) return;
    for (int i = 0; x->before && i < x->n; i++) free(x->before[i].data);
    free(x->before);
    free(x->row);
    sn_eval_free(x->ev);
    sn_field_free(x->field);
    free(x);
}

/* Gives parameters that are computed ahead their values. */
static bool prepare(sn_exact *x) {
    for (int k = 0; k < sn_entry_count(x->m); k++) {
        const sn_entry *e = sn_entry_at(x->m, k);
        if (strncmp(e->name, SN_PREPARE, strlen(SN_PREPARE)) != 0) continue;
        for (int i = 0; i < e->n_output; i++) {
            const sn_value *v = sn_eval_node(x->ev, e->output[i].node);
            double *copy = v ? malloc(sizeof *copy * ((size_t)v->n + 1)) : NULL;
            if (!copy) return false;
            if (v->n) memcpy(copy, v->data, sizeof *copy * (size_t)v->n);
            bool ok = sn_eval_bind_f64(x->ev, e->output[i].name, copy, v->n);
            free(copy);
            if (!ok) return false;
        }
    }
    return true;
}

static bool same_type(const sn_value *v, const sn_value *w) {
    return v->dtype == w->dtype && v->rank == w->rank &&
           (!v->rank || !memcmp(v->shape, w->shape, sizeof *v->shape * (size_t)v->rank));
}

static void judge(const sn_exact *x, const sn_value *v, const sn_value *w, sn_exact_row *row) {
    bool is_float = sn_dtype_is_float(v->dtype);
    row->verdict = same_type(v, w) ? SN_EXACT_EQUAL : SN_EXACT_DIFFERS;
    row->at = row->lost = 0;
    for (int64_t i = 0; i < v->n && row->verdict != SN_EXACT_DIFFERS; i++) {
        double a = v->data[i], b = w->data[i];
        if (is_float ? sn_field_same(x->field, a, b) : a == b) continue;
        unsigned lost = is_float ? sn_field_lost(x->field, a) | sn_field_lost(x->field, b)
                                 : sn_field_lost_order(x->field);
        if (lost && row->verdict == SN_EXACT_UNDECIDED) continue;
        row->verdict = lost ? SN_EXACT_UNDECIDED : SN_EXACT_DIFFERS;
        row->at = i;
        row->lost = lost;
    }
}

int sn_exact_compare(sn_exact *x, const sn_exact_row **rows, sn_error *err) {
    bool ok = prepare(x);
    const sn_entry *e = sn_entry_get(x->m, x->entry);
    if (ok && (!e || e->n_output + e->n_assign != x->n)) {
        sn_fail(err, SN_ERR_INTERNAL, "passes lost a result of '%s'", x->entry);
        return -1;
    }
    for (int i = 0; ok && i < x->n; i++) {
        const sn_value *v = sn_eval_node(x->ev, result_at(e, i)->node);
        ok = v != NULL;
        if (ok) judge(x, &x->before[i], v, &x->row[i]);
    }
    *rows = x->row;
    if (ok) return x->n;
    failed(x, err);
    return -1;
}
