/* updates.c: the optimizers: what each makes of one parameter, as a graph. Formulas and defaults are
 * PyTorch's, so published settings can be used unchanged. */
#include "frontend/updates.h"

#include <math.h>
#include <string.h>

sn_tensor sn_update_state_at(sn_loc at, const sn_update *u, const char *what) {
    FRONT_ENTER("sn_update_state", u->param);
    sn_node *p = u->param;
    if (!front_name(u->m, "sn_update_state", what)) return bad_;
    if (strchr(what, '.'))
        return sn_module_fail(u->m, SN_ERR_USAGE, "sn_update_state: the name '%s' contains a dot",
                              what);
    const char *name =
        sn_arena_printf(u->m, "optimizer.%s.%s", what, sn_attr_str(p, SN_A_name, ""));
    return front_state(at, u->m, name, (sn_dtype)p->dtype, p->rank, p->shape);
}

static sn_node *state_of(const sn_update *u, const char *what) {
    return sn_update_state_at(sn_module_loc(u->m), u, what);
}

/* Assigns the state's next value and returns it. */
static sn_node *next(sn_node *state, sn_node *value) {
    sn_assign_at(sn_module_loc(state->m), state, value);
    return value;
}

/* L2 regularisation: adds the gradient of decay / 2 |p|^2 */
static sn_node *regular_gradient(const sn_update *u) {
    return u->decay > 0 ? add(u->gradient, scale(u->param, u->decay)) : u->gradient;
}

/* v <- momentum v + g; p <- p - rate v */
static sn_node *step_sgd(const sn_update *u) {
    sn_node *g = regular_gradient(u);
    double momentum = u->o->momentum;
    if (momentum > 0) {
        sn_node *state = state_of(u, "m");
        sn_node *v = next(state, add(scale(state, momentum), g));
        g = u->o->nesterov ? add(g, scale(v, momentum)) : v;
    }
    return sub(u->param, mul(g, u->rate));
}

/* v <- beta2 v + (1 - beta2) g^2 */
static sn_node *mean_square(const sn_update *u, sn_node *g) {
    sn_node *state = state_of(u, "v");
    double b = u->o->beta2;
    return next(state, add(scale(state, b), scale(mul(g, g), 1 - b)));
}

/* p - rate g / (sqrt v + eps) */
static sn_node *step_by_root(const sn_update *u, sn_node *g, sn_node *v) {
    sn_node *size = plus(sn_b_unary(SN_OP_sqrt, v), u->o->eps);
    return sub(u->param, mul(over(g, size), u->rate));
}

/* Tieleman & Hinton 2012 */
static sn_node *step_rmsprop(const sn_update *u) {
    sn_node *g = regular_gradient(u);
    return step_by_root(u, g, mean_square(u, g));
}

/* Duchi, Hazan & Singer 2011 */
static sn_node *step_adagrad(const sn_update *u) {
    sn_node *g = regular_gradient(u), *state = state_of(u, "v");
    return step_by_root(u, g, next(state, add(state, mul(g, g))));
}

/* 1 - beta^t, accurate even where beta^t is close to 1 */
static sn_node *bias_correction(const sn_update *u, double beta) {
    return scale(sn_b_unary(SN_OP_expm1, scale(u->step, log(beta))), -1);
}

/* Kingma & Ba 2015, algorithm 1, for the gradient g */
static sn_node *adam_direction(const sn_update *u, sn_node *g) {
    sn_node *state = state_of(u, "m");
    double b = u->o->beta1;
    sn_node *m = next(state, add(scale(state, b), scale(g, 1 - b)));
    sn_node *v = mean_square(u, g);
    sn_node *size = sn_b_unary(SN_OP_sqrt, over(v, bias_correction(u, u->o->beta2)));
    return over(over(m, bias_correction(u, b)), plus(size, u->o->eps));
}

static sn_node *step_adam(const sn_update *u) {
    return sub(u->param, mul(adam_direction(u, regular_gradient(u)), u->rate));
}

/* Loshchilov & Hutter 2019, algorithm 2: the decay is not part of the gradient */
static sn_node *step_adamw(const sn_update *u) {
    sn_node *p = u->param;
    if (u->decay > 0) p = mul(p, plus(scale(u->rate, -u->decay), 1));
    return sub(p, mul(adam_direction(u, u->gradient), u->rate));
}

/* ---- all of them ---- */

typedef struct optimizer {
    sn_optimizer usual;
    sn_update_fn update;
    bool by_rows;
} optimizer;
static const optimizer table[] = {
    [SN_SGD] = {{0}, step_sgd, true},
    [SN_RMSPROP] = {{.beta2 = 0.99, .eps = 1e-8}, step_rmsprop, true},
    [SN_ADAGRAD] = {{.eps = 1e-10}, step_adagrad, true},
    [SN_ADAM] = {{.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}, step_adam, true},
    [SN_ADAMW] = {{.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .decay = 0.01}, step_adamw, true},
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

bool front_updates_rows(const sn_optimizer *o) {
    const optimizer *row = row_of(o->kind);
    return o->update ? o->by_rows : row && row->by_rows;
}

sn_update_fn update_of(const sn_optimizer *o) {
    const optimizer *row = row_of(o->kind);
    return o->update ? o->update : row ? row->update : NULL;
}
