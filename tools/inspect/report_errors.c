/* report_errors.c: the outputs of an entry at each level against the evaluator, which computes the
 * graph as it was written in double precision. */
#include "tools/inspect/report_errors.h"
#include "codegen/program/program.h"
#include "codegen/program/sizes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- small sizes ---- */

/* Multiplications of the entry at these sizes. */
static double products(const sn_program *p, const char *entry, const int64_t *symbol) {
    const sn_compiled_entry *c = sn_program_entry(p, entry);
    return (double)sn_dim_eval(p->m, c->code.products, symbol);
}

static void print_sizes(report_reference *x, const sn_module *m, const int64_t *symbol) {
    size_t n = 0;
    x->sizes[0] = 0;
    for (int i = 0; i < sn_symbol_count(m) && n + 80 < sizeof x->sizes; i++)
        n += (size_t)snprintf(x->sizes + n, sizeof x->sizes - n, "%s%s=%lld", n ? "," : "",
                              sn_symbol_at(m, i)->name, (long long)symbol[i]);
}

/* The longest of a few lengths that the evaluator can do. */
static bool choose_sizes(report_reference *x, const sn_program *p, const char *entry) {
    static const int64_t lengths[] = {19, 7, 3, 1};
    int64_t symbol[LOOK_SYMBOLS];
    const sn_module *m = p->m;
    if (sn_symbol_count(m) > LOOK_SYMBOLS) return false;
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        for (int i = 0; i < sn_symbol_count(m); i++) {
            const sn_symbol *s = sn_symbol_at(m, i);
            int64_t v = !strcmp(s->name, "B") ? 1 : lengths[k];
            v = v > s->hi / 2 ? s->hi / 2 : v;
            symbol[i] = v < s->lo ? s->lo : v;
        }
        x->products = products(p, entry, symbol);
        print_sizes(x, m, symbol);
        if (x->products <= x->max_products) return true;
    }
    return false;
}

/* ---- the reference ---- */

/* Parameters as the session was given them; states are zero. */
static bool bind_leaves(report_reference *x, const sn_program *p, sn_eval *ev, const sn_entry *e,
                        const sn_session *s, sn_error *err) {
    sn_order order = sn_entry_topo(p->m, e);
    bool ok = true;
    for (int i = 0; ok && i < order.n; i++) {
        const sn_node *n = order.node[i];
        if (!(sn_ops[n->op].flags & SN_OPF_EXTERNAL)) continue;
        const char *name = sn_attr_str(n, SN_A_name, "");
        int64_t count = 1;
        for (int a = 0; a < n->rank; a++) count *= sn_dim_eval(p->m, n->shape[a], x->in.symbol);
        size_t bytes = (size_t)count * sn_dtype_size((sn_dtype)n->dtype);
        const void *data = NULL;
        void *own = NULL;
        for (int k = 0; n->op == SN_OP_input && k < x->in.n_data; k++)
            if (!strcmp(x->in.arg[k].name, name)) data = x->in.arg[k].data;
        if (!data) own = calloc(1, bytes + 1);
        if (own && n->op == SN_OP_param && n->dtype != SN_F32)
            ok = sn_fail(err, SN_ERR_USAGE, "parameter '%s' is not f32", name);
        else if (own && n->op == SN_OP_param && !sn_session_parameter(s, name, own, count))
            ok = sn_fail(err, SN_ERR_USAGE, "the value of parameter '%s' is not at hand", name);
        if (ok && (!(data || own) || !sn_eval_bind(ev, name, data ? data : own, bytes)))
            ok = sn_fail(err, SN_ERR_MEMORY, "out of memory for the evaluator");
        free(own);
    }
    return ok;
}

static bool keep_output(report_reference *x, const sn_binding *b, sn_eval *ev) {
    report_output *o = &x->output[x->n];
    const sn_value *v = sn_eval_node(ev, b->node);
    if (!v) return false;
    *o = (report_output){.name = b->name, .dtype = v->dtype, .rank = v->rank, .n = v->n};
    memcpy(o->shape, v->shape, sizeof o->shape);
    o->want = malloc(sizeof *o->want * (size_t)(v->n + 1));
    if (!o->want) return false;
    memcpy(o->want, v->data, sizeof *o->want * (size_t)v->n);
    x->n++;
    return true;
}

typedef struct request {
    report_reference *x;
    const sn_program *p;
    const char *entry;
    const sn_session *session;
    sn_eval *eval;
    sn_error *err;
    bool ok;
} request;

static void evaluate(void *ctx) {
    request *q = ctx;
    report_reference *x = q->x;
    const sn_entry *e = sn_entry_get(q->p->m, q->entry);
    q->eval = sn_eval_new(q->p->m, x->in.symbol);
    q->ok = q->eval && bind_leaves(x, q->p, q->eval, e, q->session, q->err);
    for (int i = 0; q->ok && i < e->n_output && x->n < REPORT_OUTPUTS; i++)
        q->ok = !sn_is_float(e->output[i].node) || keep_output(x, &e->output[i], q->eval);
}

bool report_reference_make(report_reference *x, const sn_program *p, const char *entry,
                           double max_products, const sn_session *s, sn_error *err) {
    *x = (report_reference){.max_products = max_products};
    request q = {x, p, entry, s, NULL, err, false};
    if (!choose_sizes(x, p, entry)) {
        snprintf(x->why, sizeof x->why,
                 "even at %s the entry has %.3g multiplications; the evaluator takes %.3g at most",
                 x->sizes, x->products, x->max_products);
        return true;
    }
    if (!inspect_inputs_make(&x->in, p, entry, x->sizes, err)) return false;
    if (!sn_module_try(p->m, evaluate, &q)) sn_fail(err, SN_ERR_MEMORY, "out of memory");
    sn_eval_free(q.eval);
    if (q.ok && !x->n) snprintf(x->why, sizeof x->why, "the entry has no output of floats");
    if (!q.ok)
        snprintf(x->why, sizeof x->why, "the evaluator cannot run it: %.120s",
                 err->code ? err->message : sn_module_error(p->m)->message);
    if (!q.ok && err->code != SN_ERR_MEMORY) *err = (sn_error){0};
    return !err->code;
}

void report_reference_free(report_reference *x) {
    inspect_inputs_free(&x->in);
    for (int i = 0; i < x->n; i++) free(x->output[i].want);
    x->n = 0;
}

/* ---- a level against it ---- */

static void add_error(report *r, cJSON *list, const report_output *o, const void *got) {
    double diff = 0, size = 0, worst = 0;
    for (int64_t i = 0; i < o->n; i++) {
        double want = o->want[i], d = fabs(sn_dtype_load(o->dtype, got, i) - want);
        if (isnan(d)) d = INFINITY;
        diff += d * d, size += want * want;
        worst = fmax(worst, d);
    }
    double rms = sqrt(size / (double)(o->n ? o->n : 1));
    cJSON *e = report_object(r, list, NULL);
    report_text(r, e, "output", o->name);
    report_number(r, e, "elements", (double)o->n);
    report_number(r, e, "rms", rms);
    report_number(r, e, "rel_rms", size > 0 ? sqrt(diff / size) : sqrt(diff));
    report_number(r, e, "max_abs", worst);
}

bool report_errors(report *r, cJSON *level, const report_reference *x, sn_session *s,
                   const char *entry, sn_error *err) {
    sn_arg_binding out[REPORT_OUTPUTS];
    int n = 0;
    bool ok = true;
    for (int i = 0; ok && i < x->n; i++) {
        const report_output *o = &x->output[i];
        if (o->dtype != SN_F32 && o->dtype != SN_F64) continue;
        void *data = calloc((size_t)o->n + 1, sn_dtype_size(o->dtype));
        ok = data || sn_fail(err, SN_ERR_MEMORY, "out of memory for outputs");
        if (ok) out[n++] = (sn_arg_binding){o->name, o->dtype, o->rank, o->shape, data};
    }
    sn_session_reset(s);
    sn_error failed = {0};
    if (ok && n && sn_run(s, entry, x->in.arg, x->in.n, out, n, &failed)) {
        cJSON *list = report_list(r, level, "errors");
        for (int i = 0, at = 0; i < x->n && at < n; i++)
            if (!strcmp(x->output[i].name, out[at].name))
                add_error(r, list, &x->output[i], out[at++].data);
    }
    for (int i = 0; i < n; i++) free(out[i].data);
    return ok;
}

void report_reference_describe(report *r, cJSON *entry, const report_reference *x) {
    cJSON *o = report_object(r, entry, "reference");
    report_text(r, o, "sizes", x->sizes);
    report_number(r, o, "products", x->products);
    report_number(r, o, "max_products", x->max_products);
    if (*x->why) report_text(r, o, "unknown", x->why);
}
