/* derived.c: operations that are made of others: their gradients and kernels are those of what they are
 * made of. */
#include "frontend/front.h"

enum { MAX_POWER = 64, MAX_ARRAY = 256, BISECTIONS = 12, NEWTON_STEPS = 3 };

sn_tensor sn_log_sigmoid_at(sn_loc at, sn_tensor x) {
    FRONT_ENTER("log_sigmoid", x);
    return sn_b_unary(SN_OP_neg, sn_b_unary(SN_OP_softplus, sn_b_unary(SN_OP_neg, x)));
}

static sn_tensor one_minus(sn_tensor x) {
    return sn_b_scalar(SN_OP_add, sn_b_unary(SN_OP_neg, x), 1);
}

static sn_tensor twice_atan(sn_tensor x) {
    return sn_b_scalar(SN_OP_mul, sn_b_unary(SN_OP_atan, x), 2);
}

sn_tensor sn_asin_at(sn_loc at, sn_tensor x) {
    FRONT_ENTER("asin", x);
    sn_tensor square = sn_b_binary(SN_OP_mul, one_minus(x), sn_b_scalar(SN_OP_add, x, 1));
    sn_tensor cosine = sn_b_unary(SN_OP_sqrt, square);
    return twice_atan(sn_b_binary(SN_OP_div, x, sn_b_scalar(SN_OP_add, cosine, 1)));
}

sn_tensor sn_acos_at(sn_loc at, sn_tensor x) {
    FRONT_ENTER("acos", x);
    sn_tensor ratio = sn_b_binary(SN_OP_div, one_minus(x), sn_b_scalar(SN_OP_add, x, 1));
    return twice_atan(sn_b_unary(SN_OP_sqrt, ratio));
}

sn_tensor sn_powi_at(sn_loc at, sn_tensor x, int n) {
    FRONT_ENTER("powi", x);
    bool is_float = sn_dtype_is_float((sn_dtype)x->dtype);
    if (x->dtype == SN_BOOL || n > MAX_POWER || n < (is_float ? -MAX_POWER : 0))
        return sn_module_fail(x->m, SN_ERR_USAGE,
                              "powi: the exponent %d of a tensor of %s is not in %d … %d; sn_pow "
                              "takes any exponent of floats",
                              n, sn_dtype_name((sn_dtype)x->dtype), is_float ? -MAX_POWER : 0,
                              MAX_POWER);
    sn_tensor power = NULL;
    int left = n < 0 ? -n : n;
    for (sn_tensor square = x; left; left /= 2) {
        if (left % 2) power = power ? sn_b_binary(SN_OP_mul, power, square) : square;
        if (left > 1) square = sn_b_binary(SN_OP_mul, square, square);
    }
    if (!power) return sn_b_broadcast_like(sn_b_const(x->m, (sn_dtype)x->dtype, 1), x);
    return n < 0 ? sn_b_unary(SN_OP_recip, power) : power;
}

sn_tensor sn_flip_at(sn_loc at, sn_tensor x, int axis) {
    FRONT_ENTER("flip", x);
    sn_module *m = x->m;
    int a = front_axis(m, "flip", x, axis, x->rank);
    if (a < 0) return bad_;
    sn_dim last = sn_dim_sub(m, x->shape[a], 1);
    sn_tensor up = sn_b_iota(m, SN_I64, 1, &x->shape[a], 0);
    sn_tensor down = sn_b_binary(SN_OP_sub, sn_b_dim(m, SN_I64, last), up);
    return sn_gather_at(at, x, a, down);
}

sn_tensor sn_take_along_at(sn_loc at, sn_tensor x, int axis, sn_tensor ids) {
    FRONT_ENTER("take_along", x, ids);
    sn_module *m = x->m;
    int a = front_axis(m, "take_along", x, axis, x->rank);
    if (a < 0) return bad_;
    bool fits = ids->rank == x->rank;
    for (int i = 0; fits && i < x->rank; i++) fits = i == a || x->shape[i] == ids->shape[i];
    char tx[SN_NODE_TEXT], ti[SN_NODE_TEXT];
    if (!fits)
        return sn_module_fail(m, SN_ERR_SHAPE,
                              "take_along: indices %s for %s; expected the same shape but for "
                              "axis %d",
                              sn_node_text(ids, ti), sn_node_text(x, tx), a);
    sn_tensor index[SN_MAX_RANK + 1] = {NULL};
    for (int i = 0; i < x->rank; i++)
        index[i] = i == a ? ids : sn_b_iota(m, SN_I64, ids->rank, ids->shape, i);
    return sn_at_at(at, x, index);
}

/* A tree of selections over the index, which halves the list at each step. */
static sn_tensor choose(sn_tensor index, sn_dtype t, const double *value, int64_t first,
                        int64_t n) {
    sn_module *m = index->m;
    bool same = true;
    for (int64_t i = 1; i < n; i++) same &= value[first + i] == value[first];
    if (same) return sn_b_broadcast(sn_b_const(m, t, value[first]), index->rank, index->shape);
    int64_t half = n / 2;
    sn_tensor below = sn_b_binary(SN_OP_lt, index, sn_b_const(m, SN_I32, (double)(first + half)));
    return sn_b_select(below, choose(index, t, value, first, half),
                       choose(index, t, value, first + half, n - half));
}

sn_tensor sn_array_at(sn_loc at, sn_module *m, sn_dtype t, int64_t n, const double *value,
                      const sn_dim *shape) {
    if (!front_enter_module(at, m)) return m ? sn_module_error_node(m) : NULL;
    int rank = front_dims(m, "array", shape);
    if (rank < 0) return sn_module_error_node(m);
    int64_t count;
    if (!value || !sn_dim_is_const(m, sn_dim_product(m, rank, shape), &count) || count != n ||
        n > MAX_ARRAY || n < 1)
        return sn_module_fail(m, SN_ERR_USAGE,
                              "array: an array of %lld values does not have as many elements as "
                              "the shape, or not 1 to %d; larger ones are parameters",
                              (long long)n, MAX_ARRAY);
    for (int64_t i = 0; i < n; i++)
        if (!sn_dtype_is_float(t) && sn_round_to(t, value[i]) != value[i])
            return sn_module_fail(m, SN_ERR_USAGE, "array: %s cannot hold element %lld, %g",
                                  sn_dtype_name(t), (long long)i, value[i]);
    sn_tensor index = sn_b_iota(m, SN_I32, 1, (const sn_dim[]){n}, 0);
    return sn_b_reshape(choose(index, t, value, 0, n), rank, shape);
}

sn_tensor sn_smooth_cross_entropy_at(sn_loc at, sn_tensor x, sn_tensor target, double smoothing) {
    FRONT_ENTER("smooth_cross_entropy", x, target);
    sn_module *m = x->m;
    if (!(smoothing >= 0 && smoothing < 1))
        return sn_module_fail(m, SN_ERR_USAGE,
                              "smooth_cross_entropy: smoothing %g is not in [0, 1)", smoothing);
    sn_tensor right = sn_cross_entropy_at(at, x, target);
    if (smoothing == 0 || sn_module_error(m)->code) return right;
    sn_tensor even =
        sn_b_binary(SN_OP_sub, sn_logsumexp_at(at, x, -1), sn_mean_at(at, x, SN_AXES(-1), false));
    sn_tensor classes = sn_b_dim(m, (sn_dtype)target->dtype, x->shape[x->rank - 1]);
    sn_tensor known = sn_b_binary(
        SN_OP_and, sn_b_binary(SN_OP_le, sn_b_const(m, (sn_dtype)target->dtype, 0), target),
        sn_b_binary(SN_OP_lt, target, classes));
    sn_tensor sum = sn_b_binary(SN_OP_add, sn_b_scalar(SN_OP_mul, right, 1 - smoothing),
                                sn_b_scalar(SN_OP_mul, even, smoothing));
    return sn_b_select(known, sum, sn_b_const(m, (sn_dtype)sum->dtype, 0));
}

/* max(x - t, 0), or its square; the derivative of that by -t. */
static sn_tensor over(sn_tensor x, sn_tensor t, bool squared, bool derivative) {
    sn_tensor r = sn_b_unary(SN_OP_relu, sn_b_binary(SN_OP_sub, x, t));
    if (!derivative) return squared ? sn_b_binary(SN_OP_mul, r, r) : r;
    if (squared) return sn_b_scalar(SN_OP_mul, r, 2);
    return sn_b_cast(sn_b_binary(SN_OP_lt, t, x), (sn_dtype)x->dtype);
}

/* What over() makes of x with the t for which its sum is 1. */
static sn_tensor sparse_weights(sn_loc at, const char *name, sn_tensor x, int axis, bool squared) {
    FRONT_ENTER(name, x);
    int a = front_axis(x->m, name, x, axis, x->rank);
    if (a < 0) return bad_;
    if (!sn_dtype_is_float((sn_dtype)x->dtype))
        return sn_module_fail(x->m, SN_ERR_USAGE, "%s: x must have floats; use sn_cast", name);
    const int64_t axes = a;
    if (squared) x = sn_b_scalar(SN_OP_mul, x, 0.5);
    sn_tensor fixed = sn_b_unary(SN_OP_stop_gradient, x),
              largest = sn_b_reduce(SN_OP_reduce_max, fixed, 1, &axes);
    sn_tensor t = sn_b_scalar(SN_OP_add, sn_b_scalar(SN_OP_max, largest, -1e30), -1);
    double width = 1;
    for (int i = 0; i < BISECTIONS; i++) {
        sn_tensor middle = sn_b_scalar(SN_OP_add, t, width /= 2);
        sn_tensor sum =
            sn_b_reduce(SN_OP_reduce_sum, over(fixed, middle, squared, false), 1, &axes);
        t = sn_b_select(sn_b_binary(SN_OP_lt, sum, sn_b_const(x->m, (sn_dtype)x->dtype, 1)), t,
                        middle);
    }
    for (int i = 0; i < NEWTON_STEPS;
         i++) { /* from below, where the slope is at least 1 if x is finite */
        sn_tensor y = i + 1 < NEWTON_STEPS ? fixed : x;
        t = sn_b_unary(SN_OP_stop_gradient, t);
        sn_tensor sum = sn_b_reduce(SN_OP_reduce_sum, over(y, t, squared, false), 1, &axes);
        sn_tensor slope = sn_b_reduce(SN_OP_reduce_sum, over(fixed, t, squared, true), 1, &axes);
        sum = sn_b_scalar(SN_OP_add, sum, -1);
        t = sn_b_binary(SN_OP_add, t,
                        sn_b_binary(SN_OP_div, sum, sn_b_scalar(SN_OP_max, slope, 1)));
    }
    return over(x, t, squared, false);
}

sn_tensor sn_sparsemax_at(sn_loc at, sn_tensor x, int axis) {
    return sparse_weights(at, "sparsemax", x, axis, false);
}

sn_tensor sn_entmax_at(sn_loc at, sn_tensor x, int axis) {
    return sparse_weights(at, "entmax", x, axis, true);
}
