/* cumulate.c: running results along an axis: products, maxima, or what the user combines. Each is a scan
 * that carries the result so far, from which values, gradient, text and kernel follow. */
#include "frontend/front.h"

#include <math.h>

static sn_tensor combine(const sn_cumulate_args *a, sn_tensor before, sn_tensor x) {
    static const sn_op ops[] = {[SN_CUMSUM] = SN_OP_add,
                                [SN_CUMPROD] = SN_OP_mul,
                                [SN_CUMMAX] = SN_OP_max,
                                [SN_CUMMIN] = SN_OP_min};
    if (a->combine) return a->combine(before, x, a->user);
    return sn_b_binary(ops[a->op], before, x);
}

static void step(sn_scan_step *s) {
    const sn_cumulate_args *a = s->user;
    s->next[0] = combine(a, s->carry[0], s->x[0]);
    s->y[0] = a->exclusive ? s->carry[0] : s->next[0];
}

/* The result of no element. */
static double first_of(const sn_cumulate_args *a, sn_dtype t) {
    bool wide = t == SN_I64;
    double minimum = wide ? (double)INT64_MIN : (double)INT32_MIN;
    double maximum = wide ? (double)(INT64_MAX - 1023) : (double)INT32_MAX;
    if (a->combine || a->op == SN_CUMSUM) return a->first;
    if (a->op == SN_CUMPROD) return 1;
    if (sn_dtype_is_float(t)) return a->op == SN_CUMMAX ? -INFINITY : INFINITY;
    return a->op == SN_CUMMAX ? minimum : maximum;
}

static bool is_summable(sn_dtype t) {
    return sn_dtype_is_float(t) || t == SN_I32 || t == SN_I64;
}

sn_tensor sn_cumulate_at(sn_loc at, sn_tensor x, const sn_cumulate_args *a) {
    sn_tensor bad;
    if (!front_enter(at, "cumulate", 1, 1, &x, &bad)) return bad;
    sn_module *m = x->m;
    int axis = front_axis(m, "cumulate", x, a->axis, x->rank);
    if (axis < 0) return sn_module_error_node(m);
    if ((unsigned)a->op > SN_CUMMIN || !is_summable((sn_dtype)x->dtype))
        return sn_module_fail(m, SN_ERR_USAGE, "cumulate: %s",
                              is_summable((sn_dtype)x->dtype)
                                  ? ".op is none of SN_CUMSUM .. SN_CUMMIN"
                                  : "x must have floats, i32 or i64; use sn_cast");
    if (!a->combine && a->op == SN_CUMSUM && !a->reverse && !a->exclusive && !a->first)
        return sn_cumsum_at(at, x, axis);
    sn_dim shape[SN_MAX_RANK];
    for (int i = 0, n = 0; i < x->rank; i++)
        if (i != axis) shape[n++] = x->shape[i];
    sn_tensor first = sn_b_const(m, (sn_dtype)x->dtype, first_of(a, (sn_dtype)x->dtype));
    first = sn_b_broadcast(first, x->rank - 1, shape);
    sn_scan_args loop = {
        .carry = {first}, .x = {x}, .axis = axis, .reverse = a->reverse, .body = step, .user = a};
    return front_scan(at, &loop, a->combine && a->associative).y[0];
}

#define CUMULATION(name, which)                                                                    \
    sn_tensor sn_##name##_at(sn_loc at, sn_tensor x, int axis) {                                   \
        return sn_cumulate_at(at, x, &(sn_cumulate_args){.axis = axis, .op = which});              \
    }
CUMULATION(cumprod, SN_CUMPROD)
CUMULATION(cummax, SN_CUMMAX)
CUMULATION(cummin, SN_CUMMIN)

/* ln(e^a + e^b). Equal operands, also infinite ones, have the gap 0, not their difference. */
static sn_tensor log_of_sum(sn_tensor a, sn_tensor b, const void *user) {
    (void)user;
    sn_tensor zero = sn_b_broadcast_like(sn_b_const(a->m, (sn_dtype)a->dtype, 0), a);
    sn_tensor gap = sn_b_binary(SN_OP_sub, a, b);
    gap = sn_b_select(sn_b_binary(SN_OP_eq, a, b), zero, gap);
    sn_tensor rest = sn_b_unary(SN_OP_exp, sn_b_unary(SN_OP_neg, sn_b_unary(SN_OP_abs, gap)));
    return sn_b_binary(SN_OP_add, sn_b_binary(SN_OP_max, a, b), sn_b_unary(SN_OP_log1p, rest));
}

sn_tensor sn_cumlogsumexp_at(sn_loc at, sn_tensor x, int axis) {
    FRONT_ENTER("cumlogsumexp", x);
    sn_cumulate_args a = {
        .axis = axis, .associative = true, .combine = log_of_sum, .first = -INFINITY};
    if (!sn_dtype_is_float((sn_dtype)x->dtype))
        return sn_module_fail(x->m, SN_ERR_USAGE, "cumlogsumexp: x must have floats; use sn_cast");
    return sn_cumulate_at(at, x, &a);
}
