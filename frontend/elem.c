/* elem.c: elementwise operations and reductions of the DSL: numbers become constants of the other
 * operand's type, shapes broadcast, errors are explained. */
#include "frontend/front.h"

#include <math.h>
#include <string.h>

/* ---- one operand ---- */

static sn_tensor apply_unary(sn_loc at, sn_op op, sn_tensor x) {
    FRONT_ENTER(sn_ops[op].name, x);
    return sn_b_unary(op, x);
}

sn_tensor sn_square_at(sn_loc at, sn_tensor x) {
    FRONT_ENTER("mul", x);
    return sn_b_binary(SN_OP_mul, x, x);
}

sn_tensor sn_cast_at(sn_loc at, sn_tensor x, sn_dtype t) {
    FRONT_ENTER("cast", x);
    return sn_b_cast(x, t);
}

/* ---- two operands ---- */

/* The operand as a tensor of type t; NULL: an error was recorded. */
static sn_tensor to_tensor(sn_module *m, const char *op, sn_operand o, sn_dtype t) {
    static const double limit[SN_DTYPE_COUNT][2] = {
        [SN_I32] = {-2147483648.0, 2147483647.0},
        [SN_I64] = {-9007199254740992.0, 9007199254740992.0},
        [SN_I8] = {-128, 127},
        [SN_U8] = {0, 255},
        [SN_BOOL] = {0, 1},
    };
    if (o.kind == SN_IS_TENSOR) return o.tensor;
    if (o.kind == SN_IS_DIM) {
        if (t != SN_BOOL) return sn_b_dim(m, t, o.dim);
        sn_module_fail(m, SN_ERR_USAGE,
                       "%s: one operand is a dimension, a number, but the other is bool", op);
        return NULL;
    }
    if (!sn_dtype_is_float(t) &&
        !(floor(o.number) == o.number && o.number >= limit[t][0] && o.number <= limit[t][1])) {
        sn_module_fail(
            m, SN_ERR_USAGE,
            "%s: %g cannot be represented in the other operand's type %s; cast that operand", op,
            o.number, sn_dtype_name(t));
        return NULL;
    }
    return sn_b_const(m, t, o.number);
}

/* Explains why two shapes do not broadcast. */
static sn_tensor fail_broadcast(const char *op, sn_tensor x, sn_tensor y) {
    sn_module *m = x->m;
    char a[SN_NODE_TEXT], b[SN_NODE_TEXT], s[64] = "", t[64] = "";
    int axis = 0;
    for (int i = 1; i <= x->rank && i <= y->rank; i++) {
        sn_dim p = x->shape[x->rank - i], q = y->shape[y->rank - i];
        if (p == q || p == 1 || q == 1) continue;
        axis = -i;
        sn_dim_print(m, p, s, sizeof s);
        sn_dim_print(m, q, t, sizeof t);
        break;
    }
    sn_tensor small = x->rank < y->rank ? x : y, large = small == x ? y : x;
    bool leading = small->rank < large->rank && small->rank > 0 &&
                   !memcmp(small->shape, large->shape, sizeof(sn_dim) * small->rank);
    return sn_module_fail(
        m, SN_ERR_SHAPE,
        "%s: shapes do not broadcast: %s and %s; axis %d is %s against %s. Hint: %s", op,
        sn_node_text(x, a), sn_node_text(y, b), axis, s, t,
        leading
            ? "the smaller shape matches the leading axes: add trailing ones with sn_expand(x, -1)"
            : "sizes are aligned at the last axis and must be equal or 1");
}

static sn_tensor apply_binary(sn_loc at, sn_op op, sn_operand ox, sn_operand oy) {
    const char *name = sn_ops[op].name;
    sn_tensor some = ox.kind == SN_IS_TENSOR ? ox.tensor : oy.tensor;
    sn_tensor other = oy.kind == SN_IS_TENSOR ? oy.tensor : ox.tensor;
    FRONT_ENTER(name, some, other);
    sn_module *m = some->m;
    sn_tensor x = to_tensor(m, name, ox, (sn_dtype)some->dtype);
    sn_tensor y = to_tensor(m, name, oy, (sn_dtype)some->dtype);
    if (!x || !y) return sn_module_error_node(m);
    char a[SN_NODE_TEXT], b[SN_NODE_TEXT];
    if (x->dtype != y->dtype)
        return sn_module_fail(m, SN_ERR_SHAPE,
                              "%s: element types differ: %s and %s. Hint: sn_cast one of them",
                              name, sn_node_text(x, a), sn_node_text(y, b));
    int rank;
    sn_dim shape[SN_MAX_RANK];
    if (!sn_b_common_shape(m, x, y, &rank, shape)) return fail_broadcast(name, x, y);
    return sn_b_binary(op, x, y);
}

/* The functions that frontend/ops.h declares. */
#undef SN_UNARY
#define SN_UNARY(name)                                                                             \
    sn_tensor sn_##name##_at(sn_loc at, sn_tensor x) {                                             \
        return apply_unary(at, SN_OP_##name, x);                                                   \
    }
#undef SN_BINARY
#define SN_BINARY(name)                                                                            \
    sn_tensor sn_##name##_at(sn_loc at, sn_operand x, sn_operand y) {                              \
        return apply_binary(at, SN_OP_##name, x, y);                                               \
    }
#include "frontend/ops.h"

sn_tensor sn_where_at(sn_loc at, sn_tensor cond, sn_operand ox, sn_operand oy) {
    sn_tensor some = ox.kind == SN_IS_TENSOR ? ox.tensor : oy.tensor;
    sn_tensor other = oy.kind == SN_IS_TENSOR ? oy.tensor : ox.tensor;
    bool numbers = ox.kind != SN_IS_TENSOR && oy.kind != SN_IS_TENSOR;
    FRONT_ENTER("select", cond, numbers ? cond : some, numbers ? cond : other);
    sn_module *m = cond->m;
    sn_dtype t = numbers ? SN_F32 : (sn_dtype)some->dtype;
    sn_tensor x = to_tensor(m, "select", ox, t), y = to_tensor(m, "select", oy, t);
    if (!x || !y) return sn_module_error_node(m);
    char a[SN_NODE_TEXT], b[SN_NODE_TEXT];
    if (cond->dtype != SN_BOOL)
        return sn_module_fail(m, SN_ERR_SHAPE,
                              "select: the condition %s is not bool. Hint: compare, sn_ne(cond, 0)",
                              sn_node_text(cond, a));
    if (x->dtype != y->dtype)
        return sn_module_fail(m, SN_ERR_SHAPE,
                              "select: element types differ: %s and %s. Hint: sn_cast one of them",
                              sn_node_text(x, a), sn_node_text(y, b));
    int rank;
    sn_dim shape[SN_MAX_RANK];
    if (!sn_b_common_shape(m, x, y, &rank, shape)) return fail_broadcast("select", x, y);
    if (!sn_b_common_shape(m, cond, x, &rank, shape)) return fail_broadcast("select", cond, x);
    if (!sn_b_common_shape(m, cond, y, &rank, shape)) return fail_broadcast("select", cond, y);
    return sn_b_select(cond, x, y);
}

/* ---- reductions ---- */

/* x without the axes of the mask, which have size 1. */
static sn_tensor drop_axes(sn_tensor x, unsigned mask) {
    sn_dim shape[SN_MAX_RANK] = {0};
    int n = 0;
    for (int i = 0; i < x->rank; i++)
        if (!(mask & 1u << i)) shape[n++] = x->shape[i];
    return sn_b_reshape(x, n, shape);
}

static sn_tensor apply_reduce(sn_loc at, sn_op op, sn_tensor x, const int *axes, bool keep) {
    const char *name = sn_ops[op].name;
    FRONT_ENTER(name, x);
    unsigned mask = 0;
    int n = axes ? front_axes(x->m, name, axes) : 0;
    for (int i = 0; i < n; i++) {
        int a = front_axis(x->m, name, x, axes[i], x->rank);
        if (a < 0) return bad_;
        if (mask & 1u << a)
            return sn_module_fail(x->m, SN_ERR_SHAPE, "%s: axis %d is listed twice", name, axes[i]);
        mask |= 1u << a;
    }
    if (n < 0) return bad_;
    if (!axes) mask = (1u << x->rank) - 1;
    int64_t list[SN_MAX_RANK] = {0};
    n = 0;
    for (int i = 0; i < x->rank; i++)
        if (mask & 1u << i) list[n++] = i;
    sn_node *y = sn_b_reduce(op, x, n, list);
    if (y == bad_) return bad_;
    return keep ? y : drop_axes(y, mask);
}

#define REDUCE(name, op)                                                                           \
    sn_tensor sn_##name##_at(sn_loc at, sn_tensor x, const int *axes, bool keep) {                 \
        return apply_reduce(at, SN_OP_##op, x, axes, keep);                                        \
    }
REDUCE(sum, reduce_sum)
REDUCE(mean, mean)
REDUCE(variance, variance)
REDUCE(amax, reduce_max)
REDUCE(amin, reduce_min)
#undef REDUCE

/* Ops with one axis attribute; `drop`: removes the axis, which has size 1 in the op's result. */
static sn_tensor apply_axis(sn_loc at, sn_op op, sn_tensor x, int axis, bool drop) {
    FRONT_ENTER(sn_ops[op].name, x);
    int a = front_axis(x->m, sn_ops[op].name, x, axis, x->rank);
    if (a < 0) return bad_;
    sn_node *y = sn_node_new(x->m, op, 1, &x, SN_ATTRS(SN_INT(axis, a)));
    return drop && y != bad_ ? drop_axes(y, 1u << a) : y;
}

#define ON_AXIS(name, drop)                                                                        \
    sn_tensor sn_##name##_at(sn_loc at, sn_tensor x, int axis) {                                   \
        return apply_axis(at, SN_OP_##name, x, axis, drop);                                        \
    }
ON_AXIS(argmax, true)
ON_AXIS(cumsum, false)
ON_AXIS(logsumexp, true)
ON_AXIS(softmax, false)
ON_AXIS(log_softmax, false)
#undef ON_AXIS
