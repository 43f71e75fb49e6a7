/* families_plain.c: movement, comparisons, products, norms, softmax. */
#include "tests/rules/families.h"
#include "passes/raise/raise.h"

#include <math.h>

/* x with size 1 on some axes, perhaps without leading ones, broadcast to the shape. */
static sn_node *spread(const char *name, int rank, const sn_dim *shape) {
    sn_dim small[SN_MAX_RANK];
    const int without = choose(rank);
    for (int i = without; i < rank; i++)
        small[i - without] = shape[i] == 1 || choose(2) ? shape[i] : 1;
    return sn_b_broadcast(leaf(name, rank - without, small), rank, shape);
}

static const int64_t orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                    {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

/* ---- movement ---- */

static sn_node *elementwise(sn_node *x, sn_node *y) {
    switch (choose(4)) {
    case 0:
        return sn_b_unary(SN_OP_neg, x);
    case 1:
        return sn_b_binary(SN_OP_sub, x, y);
    case 2:
        return sn_b_scalar(SN_OP_mul, x, 3);
    default:
        return sn_b_select(sn_b_binary(SN_OP_lt, x, y), y, x);
    }
}

static sn_node *below_elementwise(void) {
    sn_dim shape[3];
    const int rank = 1 + choose(3);
    choose_sizes(rank, shape, 2);
    return elementwise(spread("x", rank, shape), spread("y", rank, shape));
}

static sn_node *views_of_two(void) {
    sn_dim shape[3], flat[2];
    choose_sizes(3, shape, 3);
    flat[0] = shape[0], flat[1] = shape[1] * shape[2];
    sn_node *x = leaf("x", 3, shape), *y = leaf("y", 3, shape);
    if (choose(2)) return elementwise(sn_b_reshape(x, 2, flat), sn_b_reshape(y, 2, flat));
    const int64_t *order = orders[choose(6)];
    return elementwise(sn_b_transpose(x, 3, order), sn_b_transpose(y, 3, order));
}

static sn_node *units_of_broadcast(void) {
    sn_dim shape[3], to[4];
    const int rank = 1 + choose(3);
    int n = 0;
    choose_sizes(rank, shape, 3);
    for (int i = 0; i < rank; i++) {
        if (choose(2) && n < 4) to[n++] = 1;
        if (shape[i] != 1 || choose(2)) {
            if (n == 4) return NULL;
            to[n++] = shape[i];
        }
    }
    return n ? sn_b_reshape(spread("x", rank, shape), n, to) : NULL;
}

static sn_node *transposed_broadcast(void) {
    sn_dim shape[3];
    choose_sizes(3, shape, 3);
    return sn_b_transpose(spread("x", 3, shape), 3, orders[choose(6)]);
}

static sn_node *transposed(void) {
    sn_dim shape[3];
    choose_sizes(3, shape, 3);
    return sn_b_transpose(leaf("x", 3, shape), 3, orders[choose(6)]);
}

static sn_node *broadcast_of_units(void) {
    sn_dim shape[2], to[4], wide[4];
    const int rank = 1 + choose(2), more = 1 + choose(2);
    choose_sizes(rank, shape, 3);
    for (int i = 0; i < more + rank; i++) {
        to[i] = i < more ? 1 : shape[i - more];
        wide[i] = to[i] != 1 ? to[i] : 1 + choose(3);
    }
    return sn_b_broadcast(sn_b_reshape(leaf("x", rank, shape), more + rank, to), more + rank, wide);
}

/* Some elements of each of two axes, perhaps every second one. */
static sn_node *slice_of(sn_node *x) {
    sn_dim start[2], size[2], step[2];
    for (int a = 0; a < 2; a++) {
        start[a] = choose((int)x->shape[a]);
        step[a] = 1 + choose(2);
        size[a] = 1 + choose((int)((x->shape[a] - start[a] - 1) / step[a] + 1));
    }
    return SN_NODE(
        m, slice,
        SN_ATTRS(SN_LIST(start, 2, start), SN_LIST(size, 2, size), SN_LIST(step, 2, step)), x);
}

static sn_node *slices(void) {
    return slice_of(slice_of(leaf("x", 2, (sn_dim[]){4, 2})));
}

static sn_node *joined(int axis, int n, bool empty) {
    static const char *const name[] = {"x", "y", "z"};
    sn_node *part[3];
    for (int i = 0; i < n; i++) {
        sn_dim shape[2] = {2, 2};
        shape[axis] = empty ? choose(3) : 1 + choose(3);
        part[i] = leaf(name[i], 2, shape);
    }
    return sn_b_concat(m, n, part, axis);
}

static sn_node *slice_of_concat(void) {
    return slice_of(joined(choose(2), 2, false));
}

static sn_node *concat_with_empty(void) {
    return joined(choose(2), 3, true);
}

static sn_node *concat_of_slices(void) {
    sn_node *x = leaf("x", 2, (sn_dim[]){4, 2}), *part[3];
    const int axis = choose(2), n = 2 + choose(2);
    for (int i = 0; i < n; i++) {
        const int64_t all = x->shape[axis], start = choose((int)all);
        part[i] = sn_b_slice(x, axis, start, 1 + choose((int)(all - start)));
    }
    return sn_b_concat(m, n, part, axis);
}

static sn_node *padded(const char *name, int axis, sn_dim low, sn_dim size, sn_dim high) {
    sn_dim shape[2] = {2, 2}, before[2] = {0}, after[2] = {0};
    shape[axis] = size, before[axis] = low, after[axis] = high;
    return SN_NODE(m, pad,
                   SN_ATTRS(SN_LIST(low, 2, before), SN_LIST(high, 2, after),
                            SN_FLT(value, choose(4) ? 0 : 1)),
                   leaf(name, 2, shape));
}

static sn_node *sum_of_padded(void) {
    const int axis = choose(2), n = 5;
    const int64_t x0 = choose(3), nx = 1 + choose(2), y0 = choose(3), ny = 1 + choose(2);
    return sn_b_binary(SN_OP_add, padded("x", axis, x0, nx, n - x0 - nx),
                       padded("y", axis, y0, ny, n - y0 - ny));
}

static sn_node *indices(void) {
    static const sn_dtype types[] = {SN_I32, SN_I64, SN_F32};
    sn_dim shape[3];
    const int rank = 1 + choose(3);
    choose_sizes(rank, shape, 3);
    return sn_b_iota(m, types[choose(3)], rank, shape, choose(rank));
}

/* ---- comparisons ---- */

static sn_node *index_along(sn_dtype t, int axis) {
    sn_node *x = sn_b_iota(m, t, 2, (sn_dim[]){3, 4}, axis);
    return choose(2) ? x : sn_b_scalar(SN_OP_add, x, choose(2) ? 2 : -1);
}

static sn_node *compared(sn_op op) {
    static const sn_dtype types[] = {SN_I64, SN_F32, SN_F64, SN_BF16};
    const sn_dtype t = types[choose(4)];
    sn_node *x = index_along(t, 0);
    if (choose(2)) x = sn_b_scalar(SN_OP_mul, x, 3);
    return sn_b_binary(op, x, choose(2) ? index_along(t, 1) : sn_b_const(m, t, choose(4)));
}

static sn_node *compared_bool(sn_op op) {
    const double number[] = {0, 1, -1, 2, 0.5};
    static const sn_dtype types[] = {SN_BOOL, SN_I32, SN_F32};
    const sn_dtype t = types[choose(3)];
    sn_node *x = sn_b_iota(m, SN_I32, 1, (sn_dim[]){4}, 0);
    x = sn_b_cast(sn_b_binary(SN_OP_lt, x, sn_b_const(m, SN_I32, 2)), t);
    sn_node *c = sn_b_const(m, t, number[choose(t == SN_BOOL ? 2 : t == SN_I32 ? 4 : 5)]);
    return choose(2) ? sn_b_binary(op, x, c) : sn_b_binary(op, c, x);
}

#define COMPARED(name, f)                                                                          \
    static sn_node *f##_##name(void) {                                                             \
        return f(SN_OP_##name);                                                                    \
    }
COMPARED(lt, compared)
COMPARED(le, compared)
COMPARED(eq, compared)
COMPARED(ne, compared)
COMPARED(lt, compared_bool)
COMPARED(le, compared_bool)
COMPARED(eq, compared_bool)
COMPARED(ne, compared_bool)

/* ---- products ---- */

/* Batch, free and summed axes of both sides in any order, through a transpose on either side. */
static sn_node *dot_of_transposed(void) {
    const int64_t *ox = orders[choose(6)], *oy = orders[choose(6)];
    const bool tx = choose(2), ty = choose(2);
    const int batch_x = choose(3), over_x = (batch_x + 1 + choose(2)) % 3, n_batch = choose(2);
    const int batch_y = choose(3), over_y = (batch_y + 1 + choose(2)) % 3;
    sn_dim shape[2][3], under[2][3];
    for (int i = 0; i < 3; i++) {
        shape[0][i] = n_batch && i == batch_x ? 2 : i == over_x ? 3 : 1 + i;
        shape[1][i] = n_batch && i == batch_y ? 2 : i == over_y ? 3 : 3 - i;
    }
    for (int i = 0; i < 3; i++) under[0][ox[i]] = shape[0][i], under[1][oy[i]] = shape[1][i];
    sn_node *x = tx ? sn_b_transpose(leaf("x", 3, under[0]), 3, ox) : leaf("x", 3, shape[0]);
    sn_node *y = ty ? sn_b_transpose(leaf("y", 3, under[1]), 3, oy) : leaf("y", 3, shape[1]);
    return dot(x, y, n_batch, batch_x, batch_y, 1, over_x, over_y);
}

static sn_node *scaled(sn_node *x) {
    static const double factor[] = {3, -1, 0.5};
    x = sn_b_scalar(SN_OP_mul, x, factor[choose(3)]);
    switch (choose(4)) {
    case 0:
        return x;
    case 1:
        return sn_b_transpose(x, 2, (int64_t[]){1, 0});
    case 2:
        return sn_b_reshape(x, 2, (sn_dim[]){x->shape[0], x->shape[1]});
    default:
        return sn_b_slice(x, 0, 1, x->shape[0] - 1);
    }
}

static sn_node *dot_of_scaled(void) {
    sn_node *x = leaf("x", 2, (sn_dim[]){3, 3}), *y = leaf("y", 2, (sn_dim[]){3, 3});
    const int which = choose(3);
    if (which != 1) x = scaled(x);
    if (which != 0) y = scaled(y);
    for (int cx = 0; cx < 2; cx++)
        for (int cy = 0; cy < 2; cy++)
            if (x->shape[cx] == y->shape[cy] && choose(2)) return dot(x, y, 0, 0, 0, 1, cx, cy);
    return NULL;
}

static sn_node *matmul_of_scaled(void) {
    sn_node *x = scaled(leaf("x", 2, (sn_dim[]){3, 3})), *y = leaf("y", 2, (sn_dim[]){3, 3});
    return x->shape[1] == 3 ? SN_NODE(m, matmul, SN_NO_ATTRS, x, y) : NULL;
}

static sn_node *dot_of_padded(void) {
    const int axis = choose(2), over = choose(2), side = choose(2);
    const int64_t low = choose(3), size = 1 + choose(2), high = choose(3);
    sn_node *x = padded("x", axis, low, size, high);
    sn_node *y = leaf("y", 2, (sn_dim[]){x->shape[over], x->shape[over]});
    const int64_t at = choose(2);
    return side ? dot(x, y, 0, 0, 0, 1, over, at) : dot(y, x, 0, 0, 0, 1, at, over);
}

static sn_node *matmuls(void) {
    sn_dim shape[2][4];
    const int rank[2] = {2 + choose(3), 2 + choose(3)};
    for (int i = 0; i < 2; i++) {
        for (int a = 0; a < rank[i] - 2; a++)
            shape[i][a] = rank[i] - 2 - a == 1 && choose(2) ? 2 : 1;
        shape[i][rank[i] - 2] = i ? 3 : 2;
        shape[i][rank[i] - 1] = i ? 1 + choose(2) : 3;
    }
    return SN_NODE(m, matmul, SN_NO_ATTRS, leaf("x", rank[0], shape[0]),
                   leaf("y", rank[1], shape[1]));
}

/* A vector along the last axis, in x's shape. */
static sn_node *vector(const char *name, const sn_node *x) {
    return sn_b_broadcast_like(leaf(name, 1, &x->shape[x->rank - 1]), x);
}

static sn_node *with_bias(void) {
    sn_node *x = leaf("x", 3, (sn_dim[]){3, 1 + choose(2), 3}), *y;
    const int out = 1 + choose(3), over = choose(2);
    sn_node *w = leaf("w", 2, over ? (sn_dim[]){out, 3} : (sn_dim[]){3, out});
    y = choose(2) || !over ? dot(x, w, 0, 0, 0, 1, choose(3) ? 2 : 0, over)
                           : SN_NODE(m, linear, SN_NO_ATTRS, x, w);
    return in_any_order(SN_OP_add, y, vector("b", y));
}

/* Two products of queries and keys, whose numbers the compiler does not know. */
static sn_node *two_scores(void) {
    static const char *const name[2][2] = {{"q", "k"}, {"r", "s"}};
    const sn_dim n_query = sn_symbol(m, "Q", 1, 9), n_key = sn_symbol(m, "K", 1, 9);
    const int width = 1 + choose(2), n_batch = choose(2);
    sn_node *s[2];
    for (int i = 0; i < 2; i++) {
        const sn_dim d = i ? width : 2, q[] = {2, n_query, d}, k[] = {2, n_key, d};
        s[i] = dot(leaf(name[i][0], 2 + n_batch, q + 1 - n_batch),
                   leaf(name[i][1], 2 + n_batch, k + 1 - n_batch), n_batch, 0, 0, 1, 1 + n_batch,
                   1 + n_batch);
        if (choose(2)) s[i] = sn_b_scalar(SN_OP_mul, s[i], choose(2) ? 0.5 : 3);
    }
    return sn_b_binary(SN_OP_add, s[0], s[1]);
}

/* ---- activations and norms ---- */

static sn_node *gelu_terms(sn_node **x) {
    *x = leaf("x", 1, (sn_dim[]){2});
    sn_node *u = *x;
    if (choose(2)) return sn_b_unary(SN_OP_erf, sn_b_scalar(SN_OP_mul, u, sqrt(0.5)));
    sn_node *cube = sn_b_binary(SN_OP_mul, sn_b_binary(SN_OP_mul, u, u), u);
    u = in_any_order(SN_OP_add, u, sn_b_scalar(SN_OP_mul, cube, 0.044715));
    return sn_b_unary(SN_OP_tanh, sn_b_scalar(SN_OP_mul, u, sqrt(2 / M_PI)));
}

static sn_node *gelu_product(void) {
    sn_node *x, *t = gelu_terms(&x);
    static const double factor[] = {0.5, 1, -2};
    const double c = factor[choose(3)];
    sn_node *one = sn_b_scalar(SN_OP_add, t, 1);
    if (choose(2)) return in_any_order(SN_OP_mul, sn_b_scalar(SN_OP_mul, x, c), one);
    return sn_b_scalar(SN_OP_mul, in_any_order(SN_OP_mul, x, one), c);
}

static sn_node *gelu_sum(void) {
    sn_node *x, *t = gelu_terms(&x);
    const double c = choose(2) ? 0.5 : 3;
    sn_node *h = sn_b_scalar(SN_OP_mul, x, c);
    return in_any_order(SN_OP_add, h, sn_b_binary(SN_OP_mul, h, t));
}

static sn_node *silu_product(void) {
    sn_node *x = leaf("x", 1, (sn_dim[]){2}), *y = leaf("y", 1, (sn_dim[]){2});
    sn_node *s = sn_b_unary(SN_OP_sigmoid, x);
    switch (choose(4)) {
    case 0:
        return in_any_order(SN_OP_mul, x, s);
    case 1:
        return in_any_order(SN_OP_mul, sn_b_binary(SN_OP_mul, x, y), s);
    case 2:
        return in_any_order(SN_OP_mul, sn_b_binary(SN_OP_mul, y, s), sn_b_scalar(SN_OP_mul, x, 3));
    default:
        return in_any_order(SN_OP_mul, sn_b_binary(SN_OP_mul, s, s), x);
    }
}

static sn_node *mean_of(sn_node *x) {
    const int64_t last = x->rank - 1;
    return SN_NODE(m, mean, SN_ATTRS(SN_LIST(axes, 1, &last)), x);
}

static sn_node *normalised(void) {
    const bool centred = choose(2);
    const int64_t last = 1;
    sn_node *x = leaf("x", 2, (sn_dim[]){2, 3}), *away = x, *v;
    if (centred) {
        away = sn_b_binary(SN_OP_sub, x, sn_b_broadcast_like(mean_of(x), x));
        v = SN_NODE(m, variance, SN_ATTRS(SN_LIST(axes, 1, &last)), x);
    } else {
        v = mean_of(sn_b_binary(SN_OP_mul, x, x));
    }
    if (choose(2)) v = sn_b_scalar(SN_OP_mul, v, 4);
    if (choose(2)) v = sn_b_scalar(SN_OP_add, v, 0.5);
    sn_node *root = sn_b_broadcast_like(sn_b_unary(SN_OP_rsqrt, v), x);
    switch (choose(4)) {
    case 0:
        return in_any_order(SN_OP_mul, away, root);
    case 1:
        return in_any_order(SN_OP_mul, sn_b_binary(SN_OP_mul, away, vector("g", x)), root);
    case 2:
        return sn_b_scalar(SN_OP_mul, sn_b_binary(SN_OP_mul, away, root), -3);
    default:
        return in_any_order(SN_OP_mul, sn_b_binary(SN_OP_mul, root, leaf("y", 2, (sn_dim[]){2, 3})),
                            away);
    }
}

static sn_node *norm_of(bool gain) {
    sn_node *x = leaf("x", 2, (sn_dim[]){2, 3}),
            *in[2] = {x, gain ? leaf("g", 1, &x->shape[1]) : NULL};
    return sn_node_new(m, choose(2) ? SN_OP_rms_norm : SN_OP_layer_norm, gain ? 2 : 1, in,
                       SN_ATTRS(SN_FLT(eps, 0.5)));
}

static sn_node *norm_and_gain(void) {
    sn_node *y = norm_of(choose(2));
    return in_any_order(SN_OP_mul, y, vector("a", y));
}

static sn_node *norm_and_bias(void) {
    sn_node *y = norm_of(choose(2));
    return in_any_order(SN_OP_add, y, vector("b", y));
}

/* ---- softmax ---- */

/* Weights e^x, perhaps masked or shifted, along an axis. */
static sn_node *weights(int axis, sn_node **x) {
    *x = leaf("x", 2, (sn_dim[]){3, 3});
    sn_node *z = *x, *at = sn_b_iota(m, SN_I32, 2, (sn_dim[]){3, 3}, axis);
    sn_dim row[2] = {3, 3};
    row[axis] = 1;
    if (choose(2)) z = sn_b_binary(SN_OP_sub, z, sn_b_broadcast_like(leaf("m", 2, row), z));
    sn_node *w = sn_b_unary(SN_OP_exp, z), *c = sn_b_binary(SN_OP_lt, at, sn_b_const(m, SN_I32, 2));
    switch (choose(3)) {
    case 0:
        return w;
    case 1:
        return sn_b_select(c, w, sn_b_const(m, SN_F32, 0));
    default:
        return sn_b_binary(SN_OP_mul, w, sn_b_cast(c, SN_F32));
    }
}

/* Their sum, perhaps with one more term. */
static sn_node *divisor(sn_node *w, int axis) {
    const int64_t along = axis;
    sn_node *sum = sn_b_reduce(SN_OP_reduce_sum, w, 1, &along);
    if (choose(2)) return sum;
    if (choose(2)) return sn_b_scalar(SN_OP_add, sum, 1);
    return sn_b_binary(SN_OP_add, sum, sn_b_unary(SN_OP_exp, leaf("z", sum->rank, sum->shape)));
}

static sn_node *quotient(void) {
    const int axis = choose(2);
    sn_node *x, *w = weights(axis, &x);
    return sn_b_binary(SN_OP_div, w, sn_b_broadcast_like(divisor(w, axis), w));
}

static sn_node *by_reciprocal(void) {
    const int axis = choose(2);
    sn_node *x, *w = weights(axis, &x), *r = sn_b_unary(SN_OP_recip, divisor(w, axis));
    r = sn_b_broadcast_like(r, w);
    if (choose(2)) return in_any_order(SN_OP_mul, w, r);
    sn_node *y = leaf("y", 2, (sn_dim[]){3, 3});
    return in_any_order(SN_OP_mul, sn_b_binary(SN_OP_mul, w, y), r);
}

static sn_node *divided_product(bool product) {
    sn_node *x, *w = weights(1, &x), *y = dot(w, leaf("v", 2, (sn_dim[]){3, 2}), 0, 0, 0, 1, 1, 0);
    sn_node *d = divisor(w, 1);
    if (product)
        return in_any_order(SN_OP_mul, y, sn_b_broadcast_like(sn_b_unary(SN_OP_recip, d), y));
    return sn_b_binary(SN_OP_div, y, sn_b_broadcast_like(d, y));
}

static sn_node *quotient_or_product(void) {
    return choose(2) ? quotient() : divided_product(false);
}

static sn_node *reciprocal_or_product(void) {
    return choose(2) ? by_reciprocal() : divided_product(true);
}

static sn_node *log_softmax_and_target(sn_node **target) {
    sn_node *x = leaf("x", 2, (sn_dim[]){2, 3});
    *target = sn_b_iota(m, SN_I32, 1, (sn_dim[]){2}, 0);
    return sn_raise_on_axis(SN_OP_log_softmax, x, 1);
}

static sn_node *picked(void) {
    const sn_dim columns = 3;
    const int64_t last = 1;
    sn_node *t, *l = log_softmax_and_target(&t), *hit;
    hit = sn_b_binary(SN_OP_eq, sn_b_iota(m, SN_I32, 2, (sn_dim[]){2, 3}, 1),
                      sn_b_broadcast_like(sn_b_column(t), l));
    switch (choose(3)) {
    case 0:
        l = in_any_order(SN_OP_mul, l, sn_b_cast(hit, SN_F32));
        break;
    case 1:
        l = sn_b_select(hit, l, sn_b_const(m, SN_F32, 0));
        break;
    default:
        l = in_any_order(
            SN_OP_mul, l,
            SN_NODE(m, one_hot, SN_ATTRS(SN_LIST(size, 1, &columns), SN_INT(dtype, SN_F32)), t));
    }
    return sn_b_reduce(SN_OP_reduce_sum, l, 1, &last);
}

static sn_node *picked_at(void) {
    sn_node *t, *l = log_softmax_and_target(&t);
    return SN_NODE(m, gather_nd, SN_NO_ATTRS, l, sn_b_iota(m, SN_I32, 1, (sn_dim[]){2}, 0), t);
}

static sn_node *dropped_column(void) {
    const int axis = choose(2), first = choose(2), more = 1; /* of several the logarithm is taken */
    sn_dim shape[2] = {3, 3}, extra[2] = {3, 3}, low[2] = {0}, high[2] = {0};
    sn_node *x = leaf("x", 2, shape), *all;
    extra[axis] = more;
    sn_node *z = leaf("z", 2, extra);
    if (choose(2)) {
        all = sn_b_concat(m, 2, first ? (sn_node *[]){z, x} : (sn_node *[]){x, z}, axis);
    } else {
        (first ? low : high)[axis] = more;
        all = SN_NODE(m, pad,
                      SN_ATTRS(SN_LIST(low, 2, low), SN_LIST(high, 2, high), SN_FLT(value, 0)), x);
    }
    return sn_b_slice(sn_b_softmax(all, NULL, axis), axis, choose(2) && first ? more : 0, 3);
}

/* ---- the table ---- */

const family plain_families[] = {
    {"compare_indices", SN_OP_lt, compared_lt, SN_CLAIM_EQUAL, BY_INDEX},
    {"compare_indices", SN_OP_le, compared_le, SN_CLAIM_EQUAL, BY_INDEX},
    {"compare_indices", SN_OP_eq, compared_eq, SN_CLAIM_EQUAL, BY_INDEX},
    {"compare_indices", SN_OP_ne, compared_ne, SN_CLAIM_EQUAL, BY_INDEX},
    {"compare_bool", SN_OP_lt, compared_bool_lt, SN_CLAIM_EQUAL, BY_INDEX},
    {"compare_bool", SN_OP_le, compared_bool_le, SN_CLAIM_EQUAL, BY_INDEX},
    {"compare_bool", SN_OP_eq, compared_bool_eq, SN_CLAIM_EQUAL, BY_INDEX},
    {"compare_bool", SN_OP_ne, compared_bool_ne, SN_CLAIM_EQUAL, BY_INDEX},
    {"shrink_iota", SN_OP_iota, indices, SN_CLAIM_EQUAL, BY_INDEX},
    {"sink_broadcast", SN_OP_COUNT, below_elementwise, SN_CLAIM_EQUAL, BY_INDEX},
    {"raise_view", SN_OP_COUNT, views_of_two, SN_CLAIM_EQUAL, BY_INDEX},
    {"reshape_broadcast", SN_OP_reshape, units_of_broadcast, SN_CLAIM_EQUAL, BY_INDEX},
    {"transpose_broadcast", SN_OP_transpose, transposed_broadcast, SN_CLAIM_EQUAL, BY_INDEX},
    {"transpose_units", SN_OP_transpose, transposed, SN_CLAIM_EQUAL, BY_INDEX},
    {"broadcast_reshape", SN_OP_broadcast, broadcast_of_units, SN_CLAIM_EQUAL, BY_INDEX},
    {"slice_slice", SN_OP_slice, slices, SN_CLAIM_EQUAL, BY_CUT},
    {"slice_concat", SN_OP_slice, slice_of_concat, SN_CLAIM_EQUAL, BY_CUT},
    {"concat_empty", SN_OP_concat, concat_with_empty, SN_CLAIM_EQUAL, BY_CUT},
    {"concat_slices", SN_OP_concat, concat_of_slices, SN_CLAIM_EQUAL, BY_CUT},
    {"add_pads", SN_OP_add, sum_of_padded, SN_CLAIM_ROUNDS_FINITE, BY_CUT},
    {"dot_padded", SN_OP_dot, dot_of_padded, SN_CLAIM_ROUNDS_FINITE, BY_CUT},
    {"dot_transpose", SN_OP_dot, dot_of_transposed, SN_CLAIM_EQUAL, BY_SUM},
    {"dot_scale", SN_OP_dot, dot_of_scaled, SN_CLAIM_ROUNDS_FINITE, BY_SUM},
    {"dot_scale", SN_OP_matmul, matmul_of_scaled, SN_CLAIM_ROUNDS_FINITE, BY_SUM},
    {"open_matmul", SN_OP_matmul, matmuls, SN_CLAIM_EQUAL, BY_SUM},
    {"linear", SN_OP_add, with_bias, SN_CLAIM_ROUNDS_FINITE, BY_SUM},
    {"join_scores", SN_OP_add, two_scores, SN_CLAIM_ROUNDS_FINITE, BY_SUM},
    {"gelu", SN_OP_mul, gelu_product, SN_CLAIM_ROUNDS_FINITE, BY_INDEX},
    {"gelu", SN_OP_add, gelu_sum, SN_CLAIM_ROUNDS_FINITE, BY_INDEX},
    {"silu", SN_OP_mul, silu_product, SN_CLAIM_ROUNDS_FINITE, BY_INDEX},
    {"norm", SN_OP_mul, normalised, SN_CLAIM_ROUNDS_FINITE, BY_SUM},
    {"gain", SN_OP_mul, norm_and_gain, SN_CLAIM_ROUNDS_FINITE, BY_SUM},
    {"bias", SN_OP_add, norm_and_bias, SN_CLAIM_ROUNDS_FINITE, BY_SUM},
    {"quotient", SN_OP_div, quotient_or_product, SN_CLAIM_ROUNDS_FINITE, BY_SUM},
    {"quotient", SN_OP_mul, reciprocal_or_product, SN_CLAIM_ROUNDS_FINITE, BY_SUM},
    {"pick", SN_OP_reduce_sum, picked, SN_CLAIM_ROUNDS_FINITE, BY_SUM},
    {"pick_at", SN_OP_gather_nd, picked_at, SN_CLAIM_ROUNDS_FINITE, BY_SUM},
    {"drop_column", SN_OP_slice, dropped_column, SN_CLAIM_ROUNDS_FINITE, BY_CUT},
};
const int n_plain_families = sizeof plain_families / sizeof *plain_families;
