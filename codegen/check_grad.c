/* check_grad.c: sn_check_grad: gradients against central differences of the evaluator in f64, one
 * tensor at a time, along random directions. */
#include "codegen/program.h"
#include "runtime/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SYMBOL = 16, DIRECTIONS = 2 };

typedef struct checker {
    sn_module *m;
    const sn_arg_binding *value;
    int n_value;
    int64_t symbol[MAX_SYMBOL];
    sn_error *err;
} checker;

static const sn_arg_binding *find_value(const checker *c, const char *name) {
    for (int i = 0; i < c->n_value; i++)
        if (!strcmp(c->value[i].name, name)) return &c->value[i];
    return NULL;
}

static bool is_named(const sn_node *n) {
    return n->op == SN_OP_input || n->op == SN_OP_param || n->op == SN_OP_state;
}

static int64_t count_of(const checker *c, const sn_node *n) {
    int64_t count = 1;
    for (int i = 0; i < n->rank; i++) count *= sn_dim_eval(c->m, n->shape[i], c->symbol);
    return count;
}

/* The values of symbolic dimensions: bound by name, or from the shapes of the values. */
static bool solve_symbols(checker *c, const sn_order *leaves) {
    bool known[MAX_SYMBOL] = {false};
    int n = sn_symbol_count(c->m);
    if (n > MAX_SYMBOL) return sn_fail(c->err, SN_ERR_USAGE, "more than %d dimensions", MAX_SYMBOL);
    for (int s = 0; s < n; s++) {
        const sn_arg_binding *a = find_value(c, sn_symbol_at(c->m, s)->name);
        if (!a || a->rank || a->dtype != SN_I64) continue;
        memcpy(&c->symbol[s], a->data, sizeof *c->symbol);
        known[s] = true;
    }
    for (int i = 0; i < leaves->n; i++) {
        const sn_node *leaf = leaves->node[i];
        const sn_arg_binding *a = find_value(c, sn_attr_str(leaf, SN_A_name, ""));
        if (!a || !is_named(leaf)) continue;
        if (a->rank != leaf->rank || a->dtype != leaf->dtype)
            return sn_fail(c->err, SN_ERR_SHAPE,
                           "'%s' is bound to a tensor of another type or rank", a->name);
        for (int k = 0; k < leaf->rank; k++)
            for (int s = 0; s < n; s++) {
                char text[64];
                sn_dim_print(c->m, leaf->shape[k], text, sizeof text);
                if (known[s] || strcmp(text, sn_symbol_at(c->m, s)->name)) continue;
                c->symbol[s] = a->shape[k];
                known[s] = true;
            }
    }
    for (int s = 0; s < n; s++)
        if (!known[s])
            return sn_fail(c->err, SN_ERR_USAGE,
                           "the dimension %s follows from no value; bind it with SN_BIND_DIM",
                           sn_symbol_at(c->m, s)->name);
    return true;
}

/* Floats that nobody bound: normal, divided by the root of the last axis. */
static bool bind_drawn(checker *c, sn_eval *ev, const sn_node *leaf, uint32_t stream) {
    int64_t n = count_of(c, leaf), last = 1;
    if (leaf->rank) last = sn_dim_eval(c->m, leaf->shape[leaf->rank - 1], c->symbol);
    double *v = malloc((size_t)(n + 1) * sizeof *v);
    if (!v) return sn_fail(c->err, SN_ERR_MEMORY, "out of memory");
    sn_rng r = {.seed = 1, .stream = SN_STREAM_INIT, .step = stream};
    for (int64_t i = 0; i < n; i++) v[i] = sn_rng_normal(&r) / sqrt((double)(last > 0 ? last : 1));
    bool ok = sn_eval_bind_f64(ev, sn_attr_str(leaf, SN_A_name, ""), v, n);
    free(v);
    return ok;
}

/* An evaluator with everything bound that the roots need. */
static sn_eval *open_eval(checker *c, const sn_order *leaves) {
    sn_eval *ev = sn_eval_new(c->m, c->symbol);
    bool ok = ev != NULL;
    for (int i = 0; ok && i < leaves->n; i++) {
        const sn_node *leaf = leaves->node[i];
        if (!is_named(leaf)) continue;
        const char *name = sn_attr_str(leaf, SN_A_name, "");
        const sn_arg_binding *a = find_value(c, name);
        if (a)
            ok = sn_eval_bind(ev, name, a->data,
                              (size_t)count_of(c, leaf) * sn_dtype_size(a->dtype));
        else if (sn_dtype_is_float((sn_dtype)leaf->dtype))
            ok = bind_drawn(c, ev, leaf, (uint32_t)i);
        else
            ok = sn_fail(c->err, SN_ERR_USAGE,
                         "'%s' has no value; only floats are drawn when nothing is bound", name);
    }
    if (ok) return ev;
    sn_eval_free(ev);
    return NULL;
}

/* ---- one tensor ---- */

typedef struct swap {
    const sn_node *from;
    sn_node *to;
} swap;

static sn_node *swap_node(void *ctx, sn_node *n) {
    const swap *s = ctx;
    return n == s->from ? s->to : n;
}

/* The loss as a function of x: where x is no leaf, an input takes its place. */
static sn_node *loss_of(checker *c, sn_node *loss, sn_node *x, const char **name) {
    if (is_named(x)) {
        *name = sn_attr_str(x, SN_A_name, "");
        return loss;
    }
    *name = sn_arena_printf(c->m, "@check.%u", (unsigned)x->id);
    sn_node *leaf = sn_node_new(
        c->m, SN_OP_input, 0, NULL,
        SN_ATTRS(SN_STR(name, *name), SN_INT(dtype, x->dtype), SN_LIST(shape, x->rank, x->shape)));
    sn_rewrite(c->m, 1, &loss, swap_node, &(swap){x, leaf});
    return loss;
}

typedef struct probe { /* x and its gradient as numbers, and a place to move it to */
    int64_t n;
    double *x, *g, *direction, *moved;
} probe;

static double norm_of(const double *v, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += v[i] * v[i];
    return sqrt(sum);
}

/* The slope along one direction, both ways. */
static bool measure(sn_eval *ev, sn_node *f, const char *name, const probe *p, uint32_t stream,
                    double size, sn_grad_error *out) {
    sn_rng r = {.seed = 2, .stream = SN_STREAM_INIT, .step = stream};
    double scale = p->n ? norm_of(p->x, p->n) / sqrt((double)p->n) : 0, value[2];
    double h = 1e-5 * (scale > 0 ? scale : 1);
    out->slope = 0;
    for (int64_t i = 0; i < p->n; i++) {
        p->direction[i] = sn_rng_normal(&r);
        out->slope += p->g[i] * p->direction[i];
    }
    for (int side = 0; side < 2; side++) {
        double far = side ? -h : h;
        for (int64_t i = 0; i < p->n; i++) p->moved[i] = p->x[i] + far * p->direction[i];
        if (!sn_eval_bind_f64(ev, name, p->moved, p->n)) return false;
        const sn_value *v = sn_eval_node(ev, f);
        if (!v) return false;
        value[side] = v->data[0];
    }
    out->difference = (value[0] - value[1]) / (2 * h);
    double unit = fmax(fmax(norm_of(p->g, p->n), fabs(out->difference)), 1e-6 * size);
    double away = fabs(out->difference - out->slope);
    out->error = away > 0 ? away / unit : isnan(away) ? INFINITY : 0;
    return sn_eval_bind_f64(ev, name, p->x, p->n);
}

static bool fill_probe(checker *c, sn_eval *ev, sn_node *x, sn_node *g, probe *p) {
    const sn_value *v = sn_eval_node(ev, g);
    if (!v) return false;
    p->n = v->n;
    p->x = calloc(4 * (size_t)p->n + 1, sizeof *p->x);
    if (!p->x) return sn_fail(c->err, SN_ERR_MEMORY, "out of memory");
    p->g = p->x + p->n;
    p->direction = p->g + p->n;
    p->moved = p->direction + p->n;
    if (p->n) memcpy(p->g, v->data, (size_t)p->n * sizeof *p->g);
    v = sn_eval_node(ev, x);
    if (v && p->n) memcpy(p->x, v->data, (size_t)p->n * sizeof *p->x);
    return v != NULL;
}

/* Every direction of tensor number i; keeps the worst. */
static bool check_tensor(checker *c, sn_eval *ev, sn_node *loss, sn_node *x, sn_node *g, int i,
                         sn_grad_error *worst) {
    const char *name;
    probe p = {0};
    sn_node *f = loss_of(c, loss, x, &name);
    const sn_value *v = sn_eval_node(ev, loss);
    double size = v ? fabs(v->data[0]) : 0;
    bool ok = v && fill_probe(c, ev, x, g, &p);
    for (int k = 0; ok && k < DIRECTIONS; k++) {
        sn_grad_error e = {.index = i};
        ok = measure(ev, f, name, &p, (uint32_t)(i * DIRECTIONS + k), size, &e);
        if (ok && (e.error > worst->error || worst->index < 0)) *worst = e;
    }
    free(p.x);
    return ok;
}

bool sn_check_grad(sn_tensor loss, int n, const sn_tensor *wrt, const sn_arg_binding *value,
                   int n_value, sn_grad_error *worst, sn_error *err) {
    *worst = (sn_grad_error){.index = -1};
    if (!loss) return sn_fail(err, SN_ERR_USAGE, "sn_check_grad: there is no loss");
    checker c = {.m = loss->m, .value = value, .n_value = n_value, .err = err};
    sn_tensor *g = sn_arena_alloc(c.m, sizeof *g * (size_t)(n + 1));
    sn_grad_at(loss->loc, loss, n, wrt, g);
    if (!sn_module_ok(c.m, err)) return false;
    sn_node **root = sn_arena_alloc(c.m, sizeof *root * (size_t)(2 * n + 1));
    root[0] = loss;
    for (int i = 0; i < n; i++) root[1 + i] = wrt[i], root[1 + n + i] = g[i];
    sn_order leaves = sn_topo(c.m, 2 * n + 1, root);
    sn_error own = {0};
    c.err = &own;
    sn_eval *ev = solve_symbols(&c, &leaves) ? open_eval(&c, &leaves) : NULL;
    bool ok = ev != NULL;
    for (int i = 0; ok && i < n; i++) ok = check_tensor(&c, ev, loss, wrt[i], g[i], i, worst);
    sn_eval_free(ev);
    if (ok) return true;
    return own.code ? sn_fail(err, own.code, "sn_check_grad: %s", own.message)
                    : sn_module_ok(c.m, err);
}
