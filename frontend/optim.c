/* optim.c: steps of optimizers as graphs over parameters and states, clipping by the global norm,
 * learning rates as graphs of the step [PH22 A11 line 7: theta <- theta - eta grad]. */
#include "frontend/updates.h"
#include "frontend/zero.h"

#include <math.h>
#include <string.h>

/* ---- the step and the rate ---- */

static const char step_name[] = "optimizer.step";

sn_tensor sn_train_step_at(sn_loc at, sn_module *m) {
    if (!front_enter_module(at, m)) return m ? sn_module_error_node(m) : NULL;
    return front_state(at, m, step_name, SN_I64, 0, NULL);
}

/* Warm-up factor of step t, counted from 1: t / warmup, at most 1. */
static sn_node *warm_up(sn_node *t, int64_t warmup) {
    return sn_b_scalar(SN_OP_min, scale(t, 1 / (double)warmup), 1);
}

/* Progress: 0 at the end of the warm-up, 1 from the last step on. */
static sn_node *progress(sn_node *t, const sn_schedule *s) {
    double span = s->total > s->warmup ? (double)(s->total - s->warmup) : 1;
    sn_node *part = scale(plus(t, -(double)s->warmup), 1 / span);
    return sn_b_scalar(SN_OP_min, sn_b_scalar(SN_OP_max, part, 0), 1);
}

/* Each gives the part of peak - final that is left at step t; 1 at the end of the warm-up. */
static sn_node *no_fall(sn_node *t, const sn_schedule *s) {
    (void)s;
    return sn_b_const(t->m, SN_F32, 1);
}

static sn_node *fall_linear(sn_node *t, const sn_schedule *s) {
    return plus(scale(progress(t, s), -1), 1);
}

static sn_node *fall_cosine(sn_node *t, const sn_schedule *s) {
    return scale(plus(sn_b_unary(SN_OP_cos, scale(progress(t, s), M_PI)), 1), 0.5);
}

static sn_node *fall_root(sn_node *t, const sn_schedule *s) {
    double first = s->warmup > 0 ? (double)s->warmup : 1;
    sn_node *since = sn_b_scalar(SN_OP_max, t, first);
    return scale(sn_b_unary(SN_OP_rsqrt, since), sqrt(first));
}

sn_tensor sn_learning_rate_at(sn_loc at, sn_tensor step, const sn_schedule *s) {
    static sn_node *(*const fall[])(sn_node *,
                                    const sn_schedule *) = {[SN_CONSTANT] = no_fall,
                                                            [SN_LINEAR] = fall_linear,
                                                            [SN_COSINE] = fall_cosine,
                                                            [SN_INVERSE_SQRT] = fall_root};
    FRONT_ENTER("sn_learning_rate", step);
    if (!s || s->kind < SN_CONSTANT || s->kind > SN_INVERSE_SQRT)
        return sn_module_fail(step->m, SN_ERR_USAGE, "sn_learning_rate: %s",
                              s ? "unknown kind of schedule" : "the schedule is NULL");
    if (step->rank || !front_is_integer(step))
        return sn_module_fail(
            step->m, SN_ERR_SHAPE,
            "sn_learning_rate: the step must be an integer scalar. Hint: sn_train_step");
    bool falls = s->kind == SN_LINEAR || s->kind == SN_COSINE;
    if (s->warmup < 0 || s->total < 0 || (falls && s->total <= s->warmup))
        return sn_module_fail(
            step->m, SN_ERR_USAGE,
            "sn_learning_rate: a warm-up of %lld steps and %lld in all; the rate falls "
            "between the two",
            (long long)s->warmup, (long long)s->total);
    sn_node *t = plus(sn_b_cast(step, SN_F32), 1);
    sn_node *rate = plus(scale(fall[s->kind](t, s), s->peak - s->final), s->final);
    return s->warmup > 0 ? mul(rate, warm_up(t, s->warmup)) : rate;
}

static bool in_range(const sn_optimizer *o) {
    return o && update_of(o) && o->momentum >= 0 && o->beta1 >= 0 && o->beta1 < 1 &&
           o->beta2 >= 0 && o->beta2 < 1 && o->eps >= 0 && o->decay >= 0 && o->max_norm >= 0 &&
           o->average >= 0 && o->average < 1;
}

static bool check_settings(sn_tensor rate, const sn_optimizer *o) {
    char t[SN_NODE_TEXT];
    if (!in_range(o))
        sn_module_fail(rate->m, SN_ERR_USAGE,
                       "sn_optimize: a setting is out of range. Hint: start with sn_optimizer_of");
    else if (rate->rank || !sn_dtype_is_float((sn_dtype)rate->dtype))
        sn_module_fail(
            rate->m, SN_ERR_SHAPE,
            "sn_optimize: the rate is %s; it must be a float scalar. Hint: sn_learning_rate, or "
            "sn_scalar",
            sn_node_text(rate, t));
    for (int i = 0; in_range(o) && i < o->groups; i++) {
        const sn_optimizer_group *g = &o->group[i];
        if (in_range(&g->optimizer) && g->rate >= 0 && !g->optimizer.max_norm &&
            !g->optimizer.average && !g->optimizer.groups)
            continue;
        sn_module_fail(
            rate->m, SN_ERR_USAGE,
            "sn_optimize: group %d ('%s'): a setting is out of range, or it has max_norm, "
            "average or groups, which belong to the whole optimizer",
            i + 1, g->match ? g->match : "*");
    }
    return !sn_module_error(rate->m)->code;
}

static bool check_params(sn_module *m, int n, const sn_tensor *param) {
    char t[SN_NODE_TEXT];
    for (int i = 0; i < n; i++) {
        bool leaf = param[i]->op == SN_OP_param || param[i]->op == SN_OP_state;
        if (leaf && (param[i]->dtype == SN_F32 || param[i]->dtype == SN_F64)) continue;
        sn_module_fail(
            m, SN_ERR_USAGE,
            "sn_optimize: tensor %d is %s; it must be a parameter or a state of type f32 "
            "or f64",
            i + 1, sn_node_text(param[i], t));
        return false;
    }
    return true;
}

static sn_node *sum_of_squares(sn_node *g) {
    int64_t axes[SN_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    sn_node *square = mul(g, g);
    return square->rank ? sn_b_reduce(SN_OP_reduce_sum, square, square->rank, axes) : square;
}

/* Whether g is only the own part of the gradient of p. */
static bool is_part(const sn_node *g, const sn_node *p) {
    return g->op == SN_OP_reduce_scatter && sn_attr_int(g, SN_A_ranks, 1) > 1 &&
           !strcmp(sn_attr_str(g, SN_A_name, ""), sn_attr_str(p, SN_A_name, ""));
}

/* The global norm of all gradients; f32. */
static sn_node *global_norm(sn_module *m, int n, const sn_tensor *param, sn_node *const *g) {
    sn_node **square = sn_arena_alloc(m, sizeof *square * (size_t)n), *sum = NULL;
    sn_node **part = sn_arena_alloc(m, sizeof *part * (size_t)n);
    sn_node **whole = sn_arena_alloc(m, sizeof *whole * (size_t)n);
    const sn_node **of = sn_arena_alloc(m, sizeof *of * (size_t)n);
    int parts = 0;
    for (int i = 0; i < n; i++)
        if (is_part(g[i], param[i]))
            part[parts] = g[i], of[parts++] = param[i];
        else
            square[i] = sum_of_squares(g[i]);
    if (parts) zero_squares(parts, part, of, sn_attr_int(part[0], SN_A_ranks, 1), whole);
    for (int i = n - 1; i >= 0; i--)
        if (!square[i]) square[i] = whole[--parts];
    for (int i = 0; i < n; i++) {
        sn_node *one = sn_b_cast(sn_b_reshape(square[i], 0, NULL), SN_F32);
        sum = sum ? add(sum, one) : one;
    }
    return sn_b_unary(SN_OP_sqrt, sum);
}

static bool decays(const sn_optimizer *o, const sn_node *p) {
    return o->decays ? o->decays(sn_attr_str(p, SN_A_name, ""), p->rank, o->user) : p->rank > 1;
}

/* The new value of u->param, checked; NULL: an error was recorded. */
static sn_node *new_value(sn_loc at, const sn_update *u) {
    char text[SN_NODE_TEXT] = "NULL", old[SN_NODE_TEXT];
    sn_node *p = u->param, *x = update_of(u->o)(u);
    sn_module_set_loc(u->m, at);
    if (sn_module_error(u->m)->code) return NULL;
    if (x && x->m == u->m && x->dtype == p->dtype && front_same_shape(x, p)) return x;
    if (x) sn_node_text(x, text);
    sn_module_fail(u->m, SN_ERR_SHAPE,
                   "the update of parameter '%s' returned %s; it must return the new value, with "
                   "the type and shape of the old one, %s",
                   sn_attr_str(p, SN_A_name, ""), text, sn_node_text(p, old));
    return NULL;
}

/* The first values count in full: a mean of all of them until 1 / step is less than 1 - decay. */
static void keep_average(const sn_update *u, double decay, sn_node *value) {
    sn_node *part = sn_b_scalar(
        SN_OP_max, over(sn_b_const(u->m, (sn_dtype)u->step->dtype, 1), u->step), 1 - decay);
    update_towards(update_state(u, "average"), value, part);
}

/* Updates every parameter with the gradients g[n], which were checked: of a part of a gradient only
 * that part, with its part of the states; the ranks' parts make the parameter. Returns the global
 * norm. */
static sn_node *apply(sn_loc at, sn_tensor rate, int n, const sn_tensor *param, sn_node *const *g,
                      const sn_optimizer *o) {
    sn_module *m = rate->m;
    sn_node *norm = global_norm(m, n, param, g), *shrink = NULL;
    if (o->max_norm > 0) { /* as torch.nn.utils.clip_grad_norm_ */
        sn_node *limit = sn_b_const(m, SN_F32, o->max_norm);
        shrink = sn_b_scalar(SN_OP_min, over(limit, plus(norm, 1e-6)), 1);
    }
    sn_node *done = sn_train_step_at(at, m), *t = plus(done, 1);
    for (int i = 0; i < n; i++) {
        sn_dtype type = (sn_dtype)param[i]->dtype;
        int64_t ranks = is_part(g[i], param[i]) ? sn_attr_int(g[i], SN_A_ranks, 1) : 1;
        const sn_optimizer_group *group = update_group(o, param[i]);
        const sn_optimizer *used = group ? &group->optimizer : o;
        sn_node *its_rate = group && group->rate ? scale(rate, group->rate) : rate;
        sn_update u = {.m = m,
                       .o = used,
                       .param = ranks > 1 ? zero_own_part(param[i], ranks) : param[i],
                       .gradient = shrink ? mul(g[i], sn_b_cast(shrink, type)) : g[i],
                       .rate = sn_b_cast(its_rate, type),
                       .step = sn_b_cast(t, type),
                       .decay = decays(used, param[i]) ? used->decay : 0};
        sn_node *value = new_value(at, &u);
        if (!value) break;
        if (o->average > 0) keep_average(&u, o->average, value);
        sn_assign_at(at, param[i], ranks > 1 ? zero_whole(value, param[i], ranks) : value);
    }
    sn_assign_at(at, done, t);
    return norm;
}

sn_tensor sn_optimize_at(sn_loc at, sn_tensor loss, sn_tensor rate, int n, const sn_tensor *param,
                         const sn_optimizer *o) {
    FRONT_ENTER("sn_optimize", loss, rate);
    sn_module *m = loss->m;
    if (n < 1)
        return sn_module_fail(m, SN_ERR_USAGE, "sn_optimize: there is no parameter to train");
    sn_node **g = sn_arena_alloc(m, sizeof *g * (size_t)n);
    sn_grad_at(at, loss, n, param, g);
    if (sn_module_error(m)->code || !check_settings(rate, o) || !check_params(m, n, param))
        return bad_;
    sn_node *norm = apply(at, rate, n, param, g, o);
    return sn_module_error(m)->code ? bad_ : norm;
}

static bool check_gradients(sn_module *m, int n, const sn_tensor *param, const sn_tensor *g) {
    char t[SN_NODE_TEXT], u[SN_NODE_TEXT];
    for (int i = 0; i < n; i++) {
        if (g[i]->dtype == param[i]->dtype &&
            (front_same_shape(g[i], param[i]) || is_part(g[i], param[i])))
            continue;
        sn_module_fail(m, SN_ERR_SHAPE,
                       "sn_apply_gradients: gradient %d is %s, but its parameter %s", i + 1,
                       sn_node_text(g[i], t), sn_node_text(param[i], u));
        return false;
    }
    return true;
}

sn_tensor sn_apply_gradients_at(sn_loc at, sn_tensor rate, int n, const sn_tensor *param,
                                const sn_tensor *gradient, const sn_optimizer *o) {
    FRONT_ENTER("sn_apply_gradients", rate);
    sn_module *m = rate->m;
    if (n < 1)
        return sn_module_fail(m, SN_ERR_USAGE,
                              "sn_apply_gradients: there is no parameter to train");
    if (!front_list(m, "sn_apply_gradients", n, param) ||
        !front_list(m, "sn_apply_gradients", n, gradient) ||
        !front_enter(at, "sn_apply_gradients", n, n, param, &bad_) ||
        !front_enter(at, "sn_apply_gradients", n, n, gradient, &bad_))
        return bad_;
    if (!check_settings(rate, o) || !check_params(m, n, param) ||
        !check_gradients(m, n, param, gradient))
        return bad_;
    sn_node *norm = apply(at, rate, n, param, gradient, o);
    return sn_module_error(m)->code ? bad_ : norm;
}
