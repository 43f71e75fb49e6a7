/* update_states.c: the states of optimizers, the direction of Adam, and weight decay. */
#include "frontend/updates.h"

#include <math.h>
#include <string.h>

/* A state of parameter u->param. */
static sn_node *new_state(sn_loc at, const sn_update *u, const char *what, int rank,
                          const sn_dim *shape) {
    if (!front_name(u->m, "sn_update_state", what)) return sn_module_error_node(u->m);
    if (strchr(what, '.'))
        return sn_module_fail(u->m, SN_ERR_USAGE, "sn_update_state: the name '%s' contains a dot",
                              what);
    const char *name =
        sn_arena_printf(u->m, "optimizer.%s.%s", what, sn_attr_str(u->param, SN_A_name, ""));
    return front_state(at, u->m, name, (sn_dtype)u->param->dtype, rank, shape);
}

sn_tensor sn_update_state_at(sn_loc at, const sn_update *u, const char *what) {
    FRONT_ENTER("sn_update_state", u->param);
    return new_state(at, u, what, u->param->rank, u->param->shape);
}

sn_tensor sn_update_axis_state_at(sn_loc at, const sn_update *u, const char *what, int axis) {
    FRONT_ENTER("sn_update_axis_state", u->param);
    char text[SN_NODE_TEXT];
    sn_node *p = u->param;
    if (p->rank == 2 && axis >= 0 && axis < 2 && !(u->o->update && u->o->by_rows))
        return new_state(at, u, what, 1, &p->shape[axis]);
    return sn_module_fail(u->m, SN_ERR_USAGE,
                          "sn_update_axis_state: axis %d of %s: it must be 0 or 1, the parameter a "
                          "matrix, and the optimizer not by_rows",
                          axis, sn_node_text(p, text));
}

sn_node *update_square_state(const sn_update *u, const char *what, int axis) {
    sn_dim n = u->param->shape[axis], square = sn_dim_mul(u->m, n, n);
    return new_state(sn_module_loc(u->m), u, what, 1, &square);
}

sn_node *update_state(const sn_update *u, const char *what) {
    return sn_update_state_at(sn_module_loc(u->m), u, what);
}

/* Assigns the state's next value and returns it. */
sn_node *update_next(sn_node *state, sn_node *value) {
    sn_assign_at(sn_module_loc(state->m), state, value);
    return value;
}

sn_node *update_towards(sn_node *state, sn_node *x, sn_node *part) {
    return update_next(state, add(state, mul(sub(x, state), part)));
}

sn_node *update_decayed(const sn_update *u) {
    return u->decay > 0 ? mul(u->param, plus(scale(u->rate, -u->decay), 1)) : u->param;
}

sn_node *update_mean(const sn_update *u, sn_node *g) {
    sn_node *state = update_state(u, "m");
    double b = u->o->beta1;
    return update_next(state, add(scale(state, b), scale(g, 1 - b)));
}

sn_node *update_mean_square(const sn_update *u, sn_node *g) {
    sn_node *state = update_state(u, "v");
    double b = u->o->beta2;
    return update_next(state, add(scale(state, b), scale(mul(g, g), 1 - b)));
}

/* 1 - beta^t, accurate even where beta^t is close to 1 */
static sn_node *bias_correction(const sn_update *u, double beta) {
    return scale(sn_b_unary(SN_OP_expm1, scale(u->step, log(beta))), -1);
}

sn_node *update_adam(const sn_update *u, sn_node *m, sn_node *g) {
    sn_node *v = update_mean_square(u, g);
    sn_node *size = sn_b_unary(SN_OP_sqrt, over(v, bias_correction(u, u->o->beta2)));
    return over(over(m, bias_correction(u, u->o->beta1)), plus(size, u->o->eps));
}
