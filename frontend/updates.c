/* updates.c: the optimizers: what each makes of one parameter, as a graph. Formulas and defaults are
 * PyTorch's, so published settings can be used unchanged. */
#include "frontend/updates.h"

#include <assert.h>
#include <float.h>
#include <fnmatch.h>
#include <math.h>
#include <string.h>

/* L2 regularisation: adds the gradient of decay / 2 |p|^2 */
static sn_node *regular_gradient(const sn_update *u) {
    return u->decay > 0 ? add(u->gradient, scale(u->param, u->decay)) : u->gradient;
}

/* v <- momentum v + g; p <- p - rate v */
static sn_node *step_sgd(const sn_update *u) {
    sn_node *g = regular_gradient(u);
    double momentum = u->o->momentum;
    if (momentum > 0) {
        sn_node *state = update_state(u, "m");
        sn_node *v = update_next(state, add(scale(state, momentum), g));
        g = u->o->nesterov ? add(g, scale(v, momentum)) : v;
    }
    return sub(u->param, mul(g, u->rate));
}

/* p - rate g / (sqrt v + eps) */
static sn_node *step_by_root(const sn_update *u, sn_node *g, sn_node *v) {
    sn_node *size = plus(sn_b_unary(SN_OP_sqrt, v), u->o->eps);
    return sub(u->param, mul(over(g, size), u->rate));
}

/* Tieleman & Hinton 2012 */
static sn_node *step_rmsprop(const sn_update *u) {
    sn_node *g = regular_gradient(u);
    return step_by_root(u, g, update_mean_square(u, g));
}

/* Duchi, Hazan & Singer 2011 */
static sn_node *step_adagrad(const sn_update *u) {
    sn_node *g = regular_gradient(u), *state = update_state(u, "v");
    return step_by_root(u, g, update_next(state, add(state, mul(g, g))));
}

static sn_node *step_adam(const sn_update *u) {
    sn_node *g = regular_gradient(u);
    return sub(u->param, mul(update_adam(u, update_mean(u, g), g), u->rate));
}

/* Loshchilov & Hutter 2019, algorithm 2: the decay is not part of the gradient */
static sn_node *step_adamw(const sn_update *u) {
    return sub(update_decayed(u),
               mul(update_adam(u, update_mean(u, u->gradient), u->gradient), u->rate));
}

/* Chen et al. 2023, algorithm 2 */
static sn_node *step_lion(const sn_update *u) {
    sn_node *m = update_state(u, "m"), *g = u->gradient;
    double b1 = u->o->beta1, b2 = u->o->beta2;
    sn_node *x = sn_b_unary(SN_OP_sign, add(scale(m, b1), scale(g, 1 - b1)));
    update_next(m, add(scale(m, b2), scale(g, 1 - b2)));
    return sub(update_decayed(u), mul(x, u->rate));
}

/* ---- all of them ---- */

typedef struct optimizer {
    sn_optimizer usual;
    sn_update_fn update;
    bool by_rows, matrices; /* as sn_optimizer.by_rows; updates matrices only */
} optimizer;
static const optimizer table[] = {
    [SN_SGD] = {{0}, step_sgd, true},
    [SN_RMSPROP] = {{.beta2 = 0.99, .eps = 1e-8}, step_rmsprop, true},
    [SN_ADAGRAD] = {{.eps = 1e-10}, step_adagrad, true},
    [SN_ADAM] = {{.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}, step_adam, true},
    [SN_ADAMW] = {{.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .decay = 0.01}, step_adamw, true},
    [SN_LION] = {{.beta1 = 0.9, .beta2 = 0.99}, step_lion, true},
    [SN_MUON] = {{.momentum = 0.95, .nesterov = true, .eps = 1e-7, .decay = 0.1},
                 update_muon,
                 .matrices = true},
    [SN_NORMUON] = {{.momentum = 0.95, .nesterov = true, .beta2 = 0.95, .eps = 1e-7, .decay = 0.1},
                    update_normuon,
                    .matrices = true},
    [SN_ADAFACTOR] = {{.eps = FLT_EPSILON}, update_adafactor},
    [SN_SHAMPOO] = {{.momentum = 0.95, .nesterov = true, .beta2 = 0.95, .eps = 1e-5, .decay = 0.1},
                    update_shampoo,
                    .matrices = true},
    [SN_SOAP] = {{.beta1 = 0.95, .beta2 = 0.95, .eps = 1e-8, .decay = 0.01},
                 update_soap,
                 .matrices = true},
};

static const optimizer *row_of(sn_optimizer_kind kind) {
    return (size_t)kind < sizeof table / sizeof *table ? &table[kind] : NULL;
}

sn_optimizer sn_optimizer_of(sn_optimizer_kind kind) {
    const optimizer *row = row_of(kind);
    sn_optimizer o = row ? row->usual : (sn_optimizer){0};
    o.kind = kind; /* sn_optimize reports an unknown one */
    return o;
}

const char *const *sn_optimizer_names(void) {
    static const char *const names[] = {"sgd",  "rmsprop", "adagrad",   "adam",    "adamw", "lion",
                                        "muon", "normuon", "adafactor", "shampoo", "soap",  NULL};
    return names;
}

bool sn_optimizer_of_matrices(sn_optimizer_kind kind) {
    const optimizer *row = row_of(kind);
    return row && row->matrices;
}

static bool is_by_rows(const sn_optimizer *o) {
    const optimizer *row = row_of(o->kind);
    return o->update ? o->by_rows : row && row->by_rows;
}

const sn_optimizer_group *update_group(const sn_optimizer *o, const sn_node *p) {
    const char *name = sn_attr_str(p, SN_A_name, "");
    for (int i = 0; i < o->groups; i++) {
        const sn_optimizer_group *g = &o->group[i];
        if ((!g->axes || g->axes == p->rank) && (!g->match || !fnmatch(g->match, name, 0)))
            return g;
    }
    return NULL;
}

bool front_divides_rows(const sn_optimizer *o, const sn_node *p) {
    const sn_optimizer_group *g = update_group(o, p);
    return is_by_rows(g ? &g->optimizer : o);
}

sn_optimizer sn_optimizer_hidden(const sn_optimizer *matrices, const sn_optimizer *rest,
                                 sn_optimizer_group group[SN_HIDDEN_GROUPS]) {
    static const char *const others[] = {"*embed*",    "*wte*",     "*wpe*",
                                         "*position*", "*lm_head*", "*classifier*"};
    static_assert(sizeof others / sizeof *others + 1 == SN_HIDDEN_GROUPS, "one more for matrices");
    sn_optimizer o = *rest, inner = *rest;
    inner.max_norm = inner.average = 0;
    for (int i = 0; i < SN_HIDDEN_GROUPS - 1; i++)
        group[i] = (sn_optimizer_group){.match = others[i], .optimizer = inner};
    group[SN_HIDDEN_GROUPS - 1] = (sn_optimizer_group){.axes = 2, .optimizer = *matrices};
    o.group = group, o.groups = SN_HIDDEN_GROUPS;
    return o;
}

sn_update_fn update_of(const sn_optimizer *o) {
    const optimizer *row = row_of(o->kind);
    return o->update ? o->update : row ? row->update : NULL;
}
