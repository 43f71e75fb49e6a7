/* choose.c: measures the loss of each product, and keeps the most expensive in more bits. */
#include "model/quantise/choose.h"

#include <stdlib.h>
#include <string.h>

/* What is decided as one: a product, or a table that is not a product. */
typedef struct item {
    int product, matrix; /* matrix: of a table; else -1 */
    double loss;         /* if it alone is rounded */
} item;

typedef struct chooser {
    subject *s;
    const subject_progress *p;
    const char *weights, *compute;
    item *list; /* [n], the most expensive first after sorting */
    int n;
    sn_keep *keep; /* room for all parameters */
    bool *changed; /* [n_param] */
} chooser;

static int params_of(const subject *s, const item *x, int *param) {
    if (x->matrix >= 0) return *param = s->matrix[x->matrix].param, 1;
    const subject_product *p = &s->product[x->product];
    for (int i = 0; i < p->n_matrix; i++) param[i] = s->matrix[p->matrix[i]].param;
    return p->n_matrix;
}

static const char *label(const subject *s, const item *x) {
    return x->matrix >= 0 ? s->param[s->matrix[x->matrix].param].name
                          : s->product[x->product].label;
}

/* Keeps the items for which `kept` is true: list[from .. to - 1], or all others (invert). Fills c->keep
 * and c->changed; returns the number of entries. whole: as f32 altogether, to measure one item alone. */
static int fill_keep(chooser *c, int from, int to, bool invert, bool whole) {
    int n = 0, *param = calloc((size_t)c->s->n_matrix + 1, sizeof *param);
    const char *wider = whole ? "f32" : !strcmp(c->weights, "int4") ? "int8" : "bf16";
    if (!param) return -1;
    memset(c->changed, 0, sizeof *c->changed * (size_t)c->s->n_param);
    for (int i = 0; i < c->n; i++) {
        bool kept = (i >= from && i < to) != invert;
        int m = params_of(c->s, &c->list[i], param);
        for (int j = 0; j < m; j++) {
            c->changed[param[j]] = !kept;
            if (kept) c->keep[n++] = (sn_keep){c->s->param[param[j]].name, wider, true};
        }
    }
    free(param);
    return n;
}

/* The loss with these n matrices kept, and original. */
static bool measure(chooser *c, int n, double *loss, sn_error *err) {
    if (n < 0) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    sn_options o = c->s->compile;
    subject_session x;
    o.weights = c->weights;
    o.compute = c->compute;
    o.keep = c->keep;
    o.n_keep = n;
    bool ok = subject_session_open(c->s, &x, &o, true, c->changed, err) &&
              subject_measure(c->s, &x, loss, err);
    if (ok) subject_session_close(&x);
    return ok;
}

static int by_loss(const void *a, const void *b) {
    double x = ((const item *)a)->loss, y = ((const item *)b)->loss;
    return (x < y) - (x > y);
}

static bool measure_items(chooser *c, sn_error *err) {
    for (int i = 0; i < c->n; i++) {
        item *x = &c->list[i];
        if (!subject_show(c->p, err, (double)i / c->n, "measuring %s", label(c->s, x)) ||
            !measure(c, fill_keep(c, i, i + 1, true, true), &x->loss, err))
            return false;
        subject_line(c->p, "  %-52s alone  %s %+.3f %%", label(c->s, x), subject_measure_name(c->s),
                     100 * x->loss);
    }
    qsort(c->list, (size_t)c->n, sizeof *c->list, by_loss);
    return true;
}

/* The smallest number of items to keep, the most expensive ones first, by bisection; with none it is too
 * much. *loss: with them. */
static bool find_count(chooser *c, double max_loss, int *count, double *loss, sn_error *err) {
    double best;
    int few = 0, enough = c->n;
    if (!measure(c, fill_keep(c, 0, enough, false, false), &best, err)) return false;
    while (enough - few > 1) {
        int middle = (few + enough) / 2;
        double here;
        if (!subject_show(c->p, err, 1 - (double)(enough - few) / c->n, "keeping %d of %d products",
                          middle, c->n) ||
            !measure(c, fill_keep(c, 0, middle, false, false), &here, err))
            return false;
        if (here <= max_loss)
            enough = middle, best = here;
        else
            few = middle;
    }
    *count = enough;
    *loss = best;
    return true;
}

static bool take(chooser *c, int count, quantised *out, sn_error *err) {
    int n = fill_keep(c, 0, count, false, false);
    if (n < 0) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    out->keep = malloc(sizeof *out->keep * (size_t)n + 1);
    if (!out->keep) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    memcpy(out->keep, c->keep, sizeof *out->keep * (size_t)n);
    out->n_keep = n;
    for (int i = 0; i < count; i++)
        subject_line(c->p, "  %-52s kept   %s", label(c->s, &c->list[i]),
                     strcmp(c->weights, "int4") ? "bf16" : "int8");
    for (int i = 0; i < c->s->n_param; i++)
        if (!c->changed[i]) subject_restore(c->s, i);
    return true;
}

static bool make_list(chooser *c, sn_error *err) {
    const subject *s = c->s;
    c->list = calloc((size_t)(s->n_product + s->n_matrix) + 1, sizeof *c->list);
    c->keep = calloc((size_t)s->n_matrix + 1, sizeof *c->keep);
    c->changed = calloc((size_t)s->n_param + 1, sizeof *c->changed);
    if (!c->list || !c->keep || !c->changed) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    for (int i = 0; i < s->n_matrix; i++)
        if (s->matrix[i].product < 0) c->list[c->n++] = (item){-1, i, 0};
    for (int i = 0; i < s->n_product; i++) c->list[c->n++] = (item){i, -1, 0};
    return true;
}

bool choose_bits(subject *s, const choose_options *o, const subject_progress *p, quantised *out,
                 double *loss, sn_error *err) {
    chooser c = {.s = s, .p = p, .weights = o->weights, .compute = o->compute};
    int count = 0;
    bool ok = make_list(&c, err);
    ok = ok && measure(&c, fill_keep(&c, 0, 0, false, false), loss, err);
    bool enough = ok && *loss <= o->max_loss;
    if (ok && !(enough && o->quick)) ok = measure_items(&c, err);
    if (ok && !enough) ok = find_count(&c, o->max_loss, &count, loss, err);
    ok = ok && take(&c, count, out, err);
    free(c.list);
    free(c.keep);
    free(c.changed);
    return ok;
}
