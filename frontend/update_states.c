/* update_states.c: the states of optimizers, and weight decay. */
#include "frontend/updates.h"

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
