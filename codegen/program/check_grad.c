/* check_grad.c: sn_check_grad: gradients against central differences of the loss, one tensor at a
 * time, along random directions. The graph is compiled once more with every float an f64: what is
 * tested is the gradient's formula and the kernels that compute it. */
#include "codegen/program/program.h"
#include "passes/graph_util.h"
#include "passes/raise/gradient.h"
#include "runtime/rng.h"
#include "runtime/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SYMBOL = 16, DIRECTIONS = 2 };
#define AGREES 1e-6 /* an error that no other step has to confirm */

typedef struct input { /* of the wide graph: its value */
    const sn_node *node;
    const char *name;
    int64_t shape[SN_MAX_RANK], n;
    void *data; /* [n] doubles, or integers as bound */
} input;

typedef struct tensor { /* one of wrt, in the wide graph */
    sn_node *node, *gradient;
    int place;         /* its place among the inputs */
    const char *entry; /* that computes the loss from it */
    int64_t n;
    double *x, *g, *direction;
} tensor;

typedef struct checker {
    sn_module *m;
    sn_node *loss; /* of the wide graph */
    const sn_arg_binding *value;
    int n_value;
    int64_t symbol[MAX_SYMBOL];
    input *in;
    int n_in;
    sn_session *s;
    bool fused_score;
    sn_error *err;
} checker;

static int64_t count_of(const checker *c, const sn_node *n) {
    int64_t count = 1;
    for (int i = 0; i < n->rank; i++) count *= sn_dim_eval(c->m, n->shape[i], c->symbol);
    return count;
}

/* ---- values ---- */

/* The values of symbolic dimensions: bound by name, or from the shapes of the values. */
static bool solve_symbols(checker *c, const sn_order *order) {
    bool known[MAX_SYMBOL] = {false};
    int n = sn_symbol_count(c->m);
    if (n > MAX_SYMBOL) return sn_fail(c->err, SN_ERR_USAGE, "more than %d dimensions", MAX_SYMBOL);
    for (int s = 0; s < n; s++) {
        const sn_arg_binding *a = sn_find_arg(c->value, c->n_value, sn_symbol_at(c->m, s)->name);
        if (!a || a->rank || a->dtype != SN_I64) continue;
        memcpy(&c->symbol[s], a->data, sizeof *c->symbol);
        known[s] = true;
    }
    for (int i = 0; i < order->n; i++) {
        const sn_node *leaf = order->node[i];
        const sn_arg_binding *a =
            sn_find_arg(c->value, c->n_value, sn_attr_str(leaf, SN_A_name, ""));
        if (!a || leaf->op != SN_OP_input) continue;
        bool same = a->dtype == leaf->dtype ||
                    (sn_dtype_is_float(a->dtype) && sn_dtype_is_float((sn_dtype)leaf->dtype));
        if (a->rank != leaf->rank || !same)
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
                           "no value determines dimension %s; bind it with SN_BIND_DIM",
                           sn_symbol_at(c->m, s)->name);
    return true;
}

static double number_at(const sn_arg_binding *a, int64_t i) {
    const char *p = (const char *)a->data + (size_t)i * sn_dtype_size(a->dtype);
    float f;
    double d;
    if (a->dtype == SN_F64) return memcpy(&d, p, sizeof d), d;
    sn_weight one = {.dtype = a->dtype, .bytes = sn_dtype_size(a->dtype), .data = p};
    sn_weight_to_f32(&one, &f);
    return (double)f;
}

/* Normal numbers divided by the root of the last axis. */
static void draw(const input *in, uint32_t stream) {
    int rank = in->node->rank;
    double last = rank && in->shape[rank - 1] > 0 ? (double)in->shape[rank - 1] : 1;
    sn_rng r = {.seed = 1, .stream = SN_STREAM_INIT, .step = stream};
    for (int64_t i = 0; i < in->n; i++) ((double *)in->data)[i] = sn_rng_normal(&r) / sqrt(last);
}

static bool add_input(checker *c, const sn_node *leaf) {
    input *in = &c->in[c->n_in];
    *in = (input){.node = leaf, .name = sn_attr_str(leaf, SN_A_name, ""), .n = count_of(c, leaf)};
    const sn_arg_binding *a = sn_find_arg(c->value, c->n_value, in->name);
    for (int i = 0; i < leaf->rank; i++) {
        in->shape[i] = sn_dim_eval(c->m, leaf->shape[i], c->symbol);
        if (a && (a->rank != leaf->rank || a->shape[i] != in->shape[i]))
            return sn_fail(c->err, SN_ERR_SHAPE, "'%s' is bound to a tensor of another shape",
                           in->name);
    }
    in->data = calloc((size_t)in->n + 1, 8);
    if (!in->data) return sn_fail(c->err, SN_ERR_MEMORY, "out of memory");
    c->n_in++;
    if (a && leaf->dtype == SN_F64)
        for (int64_t i = 0; i < in->n; i++) ((double *)in->data)[i] = number_at(a, i);
    else if (a)
        memcpy(in->data, a->data, (size_t)in->n * sn_dtype_size(a->dtype));
    else if (leaf->dtype == SN_F64)
        draw(in, (uint32_t)c->n_in);
    else
        return sn_fail(c->err, SN_ERR_USAGE, "'%s' has no value; only floats get random values",
                       in->name);
    return true;
}

static int find_input(const checker *c, const char *name) {
    for (int i = 0; i < c->n_in; i++)
        if (!strcmp(c->in[i].name, name)) return i;
    return -1;
}

/* ---- running ---- */

static bool run(checker *c, const char *entry, const sn_arg_binding *out, int n_out) {
    const sn_compiled_entry *e = sn_program_entry(sn_session_program(c->s), entry);
    int n_symbol = sn_symbol_count(c->m);
    sn_arg_binding *in = calloc((size_t)(c->n_in + n_symbol + 1), sizeof *in);
    int n = 0;
    if (!in) return sn_fail(c->err, SN_ERR_MEMORY, "out of memory");
    for (int i = 0; i < e->code.plan->n_input; i++) {
        const input *v = &c->in[find_input(c, e->code.plan->input[i].name)];
        in[n++] =
            (sn_arg_binding){v->name, (sn_dtype)v->node->dtype, v->node->rank, v->shape, v->data};
    }
    for (int s = 0; s < n_symbol; s++)
        in[n++] = (sn_arg_binding){
            .name = sn_symbol_at(c->m, s)->name, .dtype = SN_I64, .data = &c->symbol[s]};
    bool ok = sn_run(c->s, entry, in, n, out, n_out, c->err);
    free(in);
    return ok;
}

#define SCALAR(name_, data_) (&(sn_arg_binding){.name = (name_), .dtype = SN_F64, .data = (data_)})

/* The loss with x at x + far direction. */
static bool loss_at(checker *c, const tensor *t, double far, double *loss) {
    input *in = &c->in[t->place];
    for (int64_t i = 0; i < t->n; i++) ((double *)in->data)[i] = t->x[i] + far * t->direction[i];
    bool ok = run(c, t->entry, SCALAR("loss", loss), 1);
    if (t->n) memcpy(in->data, t->x, (size_t)t->n * sizeof *t->x);
    return ok;
}

static double norm_of(const double *v, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += v[i] * v[i];
    return sqrt(sum);
}

/* How far a tensor's elements are from 0, the unit of steps. */
static double scale_of(const tensor *t) {
    double scale = t->n ? norm_of(t->x, t->n) / sqrt((double)t->n) : 0;
    return scale > 0 ? scale : 1;
}

/* By how much the loss changes with the tensor that matters most: the terms of a loss may be larger
 * than their sum, whose rounding they determine. */
static double size_of_terms(const tensor *t, int n, double loss) {
    double size = fabs(loss);
    for (int i = 0; i < n; i++) {
        double change = norm_of(t[i].g, t[i].n) * scale_of(&t[i]);
        if (change > size) size = change;
    }
    return size;
}

/* The slope along one direction, both ways. A difference is wrong if its step is so small that it
 * measures rounding, or so large that it crosses a kink: another step follows. */
static bool measure(checker *c, const tensor *t, uint32_t stream, double size, sn_grad_error *out) {
    static const double steps[] = {1e-5, 1e-3, 1e-7};
    sn_rng r = {.seed = 2, .stream = SN_STREAM_INIT, .step = stream};
    double scale = scale_of(t);
    out->slope = 0;
    for (int64_t i = 0; i < t->n; i++) {
        t->direction[i] = sn_rng_normal(&r);
        out->slope += t->g[i] * t->direction[i];
    }
    double least = fmax(norm_of(t->g, t->n), 1e-6 * size / scale);
    out->error = INFINITY;
    for (size_t k = 0; k < sizeof steps / sizeof *steps && out->error > AGREES; k++) {
        double ahead = 0, back = 0, h = steps[k] * scale;
        if (!loss_at(c, t, h, &ahead) || !loss_at(c, t, -h, &back)) return false;
        double difference = (ahead - back) / (2 * h), away = fabs(difference - out->slope);
        double error = isnan(away) ? INFINITY : away > 0 ? away / fmax(least, fabs(difference)) : 0;
        if (k && !(error < out->error)) continue;
        out->error = error;
        out->difference = difference;
    }
    return true;
}

/* ---- the wide graph ---- */

/* The entry "check" gives the loss, the tensors and their gradients. */
static void make_check(checker *c, const tensor *t, int n) {
    sn_entry *e = sn_entry_add(c->m, "check");
    sn_entry_output(c->m, e, "loss", c->loss);
    for (int i = 0; i < n; i++) {
        sn_entry_output(c->m, e, sn_arena_printf(c->m, "x.%d", i), t[i].node);
        sn_entry_output(c->m, e, sn_arena_printf(c->m, "g.%d", i), t[i].gradient);
    }
}

/* For each tensor that is not a leaf another entry takes an input in its place. */
static void make_entries(checker *c, tensor *t, int n) {
    make_check(c, t, n);
    for (int i = 0; i < n; i++) {
        t[i].entry = "check";
        if (t[i].node->op == SN_OP_input) continue;
        t[i].entry = sn_arena_printf(c->m, "check.%d", i);
        sn_node *moved = c->loss;
        sn_node *leaf = sn_node_new(c->m, SN_OP_input, 0, NULL,
                                    SN_ATTRS(SN_STR(name, t[i].entry), SN_INT(dtype, SN_F64),
                                             SN_LIST(shape, t[i].node->rank, t[i].node->shape)));
        sn_rewrite_node(c->m, 1, &moved, t[i].node, leaf);
        sn_entry_output(c->m, sn_entry_add(c->m, t[i].entry), "loss", moved);
    }
}

static bool take_inputs(checker *c) {
    int n_root = 0;
    for (int i = 0; i < sn_entry_count(c->m); i++) n_root += sn_entry_at(c->m, i)->n_output;
    sn_node **root = sn_arena_alloc(c->m, sizeof *root * (size_t)(n_root + 1));
    n_root = 0;
    for (int i = 0; i < sn_entry_count(c->m); i++)
        for (int o = 0; o < sn_entry_at(c->m, i)->n_output; o++)
            root[n_root++] = sn_entry_at(c->m, i)->output[o].node;
    sn_order order = sn_topo(c->m, n_root, root);
    c->in = sn_arena_alloc(c->m, sizeof *c->in * (size_t)(order.n + 1));
    bool ok = solve_symbols(c, &order);
    for (int i = 0; ok && i < order.n; i++)
        if (order.node[i]->op == SN_OP_input) ok = add_input(c, order.node[i]);
    return ok;
}

/* Runs "check" and keeps what it tells of each tensor. */
static bool take_values(checker *c, tensor *t, int n, double *loss) {
    sn_arg_binding *out = calloc(2 * (size_t)n + 1, sizeof *out);
    int64_t(*shape)[SN_MAX_RANK] = calloc((size_t)n + 1, sizeof *shape);
    bool ok = out && shape;
    if (ok) out[0] = *SCALAR("loss", loss);
    for (int i = 0; ok && i < n; i++) {
        t[i].n = count_of(c, t[i].node);
        if (!t[i].x) t[i].x = calloc(3 * (size_t)t[i].n + 1, sizeof *t[i].x);
        ok = t[i].x != NULL;
        if (!ok) break;
        t[i].g = t[i].x + t[i].n;
        t[i].direction = t[i].g + t[i].n;
        for (int a = 0; a < t[i].node->rank; a++)
            shape[i][a] = sn_dim_eval(c->m, t[i].node->shape[a], c->symbol);
        sn_arg_binding x = {sn_arena_printf(c->m, "x.%d", i), SN_F64, t[i].node->rank, shape[i],
                            t[i].x};
        out[1 + 2 * i] = x;
        x.name = sn_arena_printf(c->m, "g.%d", i);
        x.data = t[i].g;
        out[2 + 2 * i] = x;
    }
    if (!ok) sn_fail(c->err, SN_ERR_MEMORY, "out of memory");
    ok = ok && run(c, "check", out, 2 * n + 1);
    free(shape);
    free(out);
    return ok;
}

/* Compiles the entries, runs "check" and calls `then`, if there is one. */
static bool with_program(checker *c, int level, tensor *t, int n, sn_grad_error *worst,
                         bool (*then)(checker *, tensor *, int, double, sn_grad_error *)) {
    double loss = 0;
    sn_program *p = sn_compile(c->m, &(sn_options){.level = level, .threads = 1}, c->err);
    c->s = p ? sn_session_new_arrays(p, NULL, 0, c->err) : NULL;
    bool ok = c->s && take_values(c, t, n, &loss) && then(c, t, n, loss, worst);
    sn_session_free(c->s);
    if (p) sn_program_free(p);
    return ok;
}

/* Whether a kernel of "check" computes attention with a score region. */
static bool has_score(const checker *c) {
    const sn_plan *p = sn_program_entry(sn_session_program(c->s), "check")->code.plan;
    for (int i = 0; i < p->n_call; i++)
        if (sn_attr_get(p->call[i]->node, SN_A_score)) return true;
    return false;
}

static bool measure_all(checker *c, tensor *t, int n, double loss, sn_grad_error *worst) {
    bool ok = true;
    double size = size_of_terms(t, n, loss);
    c->fused_score = has_score(c);
    for (int i = 0; ok && i < n; i++) {
        const char *name =
            t[i].node->op == SN_OP_input ? sn_attr_str(t[i].node, SN_A_name, "") : t[i].entry;
        t[i].place = find_input(c, name);
        for (int k = 0; ok && k < DIRECTIONS; k++) {
            sn_grad_error e = {.index = i};
            if (t[i].place >= 0) ok = measure(c, &t[i], (uint32_t)(i * DIRECTIONS + k), size, &e);
            if (ok && (e.error > worst->error || worst->index < 0)) *worst = e;
        }
    }
    return ok;
}

/* A NaN in any gradient is an error without limit. */
static bool find_nan(checker *c, tensor *t, int n, double loss, sn_grad_error *worst) {
    (void)c, (void)loss;
    for (int i = 0; i < n && worst->error < INFINITY; i++)
        for (int64_t k = 0; k < t[i].n; k++)
            if (isnan(t[i].g[k]))
                *worst = (sn_grad_error){.error = INFINITY, .slope = NAN, .index = i};
    return true;
}

/* A fused attention kernel leaves out what is masked, which may hide a NaN in the formula of the
 * score's gradient. Level 0 computes every operation. */
static bool check_all(checker *c, tensor *t, int n, sn_grad_error *worst) {
    if (!take_inputs(c) || !with_program(c, -1, t, n, worst, measure_all)) return false;
    if (!c->fused_score) return true;
    sn_entries_clear(c->m);
    make_check(c, t, n);
    return with_program(c, 0, t, n, worst, find_nan);
}

bool sn_check_grad(sn_tensor loss, int n, const sn_tensor *wrt, const sn_arg_binding *value,
                   int n_value, sn_grad_error *worst, sn_error *err) {
    sn_error local = {0};
    sn_grad_error unwanted;
    if (!worst) worst = &unwanted;
    *worst = (sn_grad_error){.index = -1};
    if (!sn_bindings_check(value, n_value, "value", true, err)) return false;
    if (n < 0 || (n && !wrt))
        return sn_fail(err, SN_ERR_USAGE, "sn_check_grad: %d tensors%s", n,
                       wrt ? "" : ", but their list is NULL");
    if (!loss) return sn_fail(err, SN_ERR_USAGE, "sn_check_grad: there is no loss");
    sn_module *m = loss->m;
    checker c = {.m = m, .value = value, .n_value = n_value, .err = &local};
    sn_node **g = sn_arena_alloc(m, sizeof *g * (size_t)(2 * n + 2)), **wide = g + n;
    sn_module_set_loc(m, loss->loc);
    if (n)
        sn_loss_gradient(loss, n, wrt, g); /* what is wrong with the graph as the user wrote it */
    if (!sn_module_ok(m, err)) return false;
    sn_node **root = sn_arena_alloc(m, sizeof *root * (size_t)(n + 1));
    for (int i = 0; i < n; i++) root[i] = wrt[i];
    root[n] = loss;
    sn_promote_to_f64(m, n + 1, root, wide);
    c.loss = wide[n];
    tensor *t = sn_arena_alloc(m, sizeof *t * (size_t)(n + 1));
    sn_gradient(c.loss, n, wide, g);
    for (int i = 0; i < n; i++) t[i] = (tensor){.node = wide[i], .gradient = g[i]};
    sn_entries *saved = sn_entries_save(m);
    sn_entries_clear(m);
    bool ok = !sn_module_error(m)->code;
    if (ok) make_entries(&c, t, n);
    ok = ok && check_all(&c, t, n, worst);
    sn_entries_restore(m, saved);
    for (int i = 0; i < n; i++) free(t[i].x);
    for (int i = 0; i < c.n_in; i++) free(c.in[i].data);
    if (ok) return true;
    return local.code ? sn_fail(err, local.code, "sn_check_grad: %s", local.message)
                      : sn_module_ok(m, err);
}
