/* arith.c: arithmetic rules: merges constants and moves them out of products, rewrites divisions
 * and powers by cheaper ops, extracts common factors. */
#include "passes/match.h"
#include "passes/simplify/simplify.h"

#include <math.h>

static bool is_signed(const sn_node *n) {
    return sn_is_float(n) || n->dtype == SN_I32 || n->dtype == SN_I64;
}

/* Whether f32 represents the value as a normal number, or it is 0. */
static bool is_tame(double v) {
    return v == 0 || (fabs(v) > 1e-37 && fabs(v) < 1e38);
}

static bool is_one(const sn_node *n) {
    return sn_match_value(n, 1);
}

/* y broadcast to more elements than it has: computing on y is cheaper than on the result */
static bool is_spread(const sn_node *n) {
    double v;
    return n->op == SN_OP_broadcast && !sn_match_const(n, &v);
}

static sn_node *scale(sn_node *x, double c) {
    return c == 1 ? x : c == -1 ? sn_b_unary(SN_OP_neg, x) : sn_b_scalar(SN_OP_mul, x, c);
}

/* x - c = x + (-c);  0 - x = -x;  x - (-y) = x + y */
static sn_node *rewrite_sub(sn_node *n) {
    double c;
    if (!is_signed(n)) return NULL;
    if (sn_match_const(n->in[1], &c) && (sn_is_float(n) || fabs(c) < 0x1p30))
        return sn_b_scalar(SN_OP_add, n->in[0], -c);
    if (sn_match_value(n->in[0], 0)) return sn_b_unary(SN_OP_neg, n->in[1]);
    if (n->in[1]->op == SN_OP_neg) return sn_b_binary(SN_OP_add, n->in[0], n->in[1]->in[0]);
    return NULL;
}

/* x + (-y) = x - y */
static sn_node *add_negative(sn_node *n) {
    for (int i = 0; i < 2; i++)
        if (n->in[i]->op == SN_OP_neg) return sn_b_binary(SN_OP_sub, n->in[1 - i], n->in[i]->in[0]);
    return NULL;
}

/* (x + c) + d = x + (c + d); integers also (x + c) + y = (x + y) + c */
static sn_node *add_constants(sn_node *n) {
    double c, d;
    if (!is_signed(n)) return NULL;
    for (int i = 0; i < 2; i++) {
        sn_node *x = n->in[i], *y = n->in[1 - i];
        if (x->op != SN_OP_add || !sn_match_const(x->in[1], &c)) continue;
        if (sn_match_const(y, &d))
            return is_tame(c) && is_tame(d) ? sn_b_scalar(SN_OP_add, x->in[0], c + d) : NULL;
        if (!sn_is_float(n)) return sn_b_scalar(SN_OP_add, sn_b_binary(SN_OP_add, x->in[0], y), c);
    }
    return NULL;
}

/* (a y) + (b y) = (a + b) y for one common factor y, which may be a constant; x + x y = x (1 + y).
 * Saves a product; rounds once less. */
static sn_node *common_factor(sn_node *n) {
    sn_node *x = n->in[0], *y = n->in[1];
    double c, d;
    if (!sn_is_float(n)) return NULL;
    if (x->op == SN_OP_mul && y->op == SN_OP_mul) {
        if (sn_match_const(x->in[1], &c) && sn_match_const(y->in[1], &d))
            return c == d ? scale(sn_b_binary((sn_op)n->op, x->in[0], y->in[0]), c) : NULL;
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < 2; j++)
                if (x->in[i] == y->in[j] && !sn_match_const(x->in[i], &c))
                    return sn_b_binary(SN_OP_mul, x->in[i],
                                       sn_b_binary((sn_op)n->op, x->in[1 - i], y->in[1 - j]));
    }
    for (int i = 0; i < 2 && n->op == SN_OP_add; i++) {
        sn_node *a = n->in[i], *b = n->in[1 - i];
        for (int j = 0; j < 2 && b->op == SN_OP_mul; j++)
            if (b->in[j] == a && !sn_match_const(b->in[1 - j], &c))
                return sn_b_binary(SN_OP_mul, a, sn_b_scalar(SN_OP_add, b->in[1 - j], 1));
    }
    return NULL;
}

/* e^x + (-1) = expm1 x */
static sn_node *form_expm1(sn_node *n) {
    return sn_is_float(n) && n->in[0]->op == SN_OP_exp && sn_match_value(n->in[1], -1)
               ? sn_b_unary(SN_OP_expm1, n->in[0]->in[0])
               : NULL;
}

/* (x c) d = x (c d);  (x c) y = (x y) c;  (-x) y = -(x y);  x (-1) = -x */
static sn_node *mul_constants(sn_node *n) {
    double c, d;
    if (!sn_is_float(n)) return NULL;
    if (sn_match_value(n->in[1], -1)) return sn_b_unary(SN_OP_neg, n->in[0]);
    for (int i = 0; i < 2; i++) {
        sn_node *x = sn_match_scaled(n->in[i], &c), *y = n->in[1 - i];
        if (x == n->in[i]) continue;
        if (sn_match_const(y, &d)) return is_tame(c * d) ? scale(x, c * d) : NULL;
        return scale(sn_b_binary(SN_OP_mul, x, y), c);
    }
    return NULL;
}

/* x (1 / y) = x / y where both have full size; a broadcast reciprocal stays: it is computed once
 * for many products. Rounds once less. */
static sn_node *mul_recip(sn_node *n) {
    for (int i = 0; i < 2; i++)
        if (n->in[i]->op == SN_OP_recip && n->in[1 - i]->op != SN_OP_recip)
            return sn_b_binary(SN_OP_div, n->in[1 - i], n->in[i]->in[0]);
    return NULL;
}

/* -(x c) = x (-c);  -(x - y) = y - x */
static sn_node *rewrite_neg(sn_node *n) {
    double c;
    sn_node *x = n->in[0];
    if (!sn_is_float(n)) return NULL;
    if (x->op == SN_OP_mul && sn_match_const(x->in[1], &c)) return scale(x->in[0], -c);
    if (x->op == SN_OP_sub) return sn_b_binary(SN_OP_sub, x->in[1], x->in[0]);
    return NULL;
}

/* x / c = x (1 / c) */
static sn_node *div_constant(sn_node *n) {
    double c;
    if (!sn_is_float(n) || !sn_match_const(n->in[1], &c) || c == 0 || !is_tame(c) ||
        !is_tame(1 / c))
        return NULL;
    return scale(n->in[0], 1 / c);
}

/* 1 / x = recip x */
static sn_node *div_one(sn_node *n) {
    return sn_is_float(n) && is_one(n->in[0]) ? sn_b_unary(SN_OP_recip, n->in[1]) : NULL;
}

/* (x c) / y = (x / y) c;  x / sqrt y = x rsqrt y;  x / rsqrt y = x sqrt y */
static sn_node *rewrite_div(sn_node *n) {
    double c;
    sn_node *x = n->in[0], *y = n->in[1];
    if (!sn_is_float(n) || sn_match_const(x, &c)) return NULL;
    sn_node *bare = sn_match_scaled(x, &c);
    if (bare != x) return scale(sn_b_binary(SN_OP_div, bare, y), c);
    if (y->op == SN_OP_sqrt) return sn_b_binary(SN_OP_mul, x, sn_b_unary(SN_OP_rsqrt, y->in[0]));
    if (y->op == SN_OP_rsqrt) return sn_b_binary(SN_OP_mul, x, sn_b_unary(SN_OP_sqrt, y->in[0]));
    return NULL;
}

/* x / y = x (1 / y) where y is broadcast: one division for many elements. Rounds twice. */
static sn_node *div_spread(sn_node *n) {
    if (!sn_is_float(n) || !is_spread(n->in[1]) || is_one(n->in[0])) return NULL;
    sn_node *r = sn_b_unary(SN_OP_recip, sn_match_below(n->in[1]));
    return sn_b_binary(SN_OP_mul, n->in[0], sn_b_broadcast_like(r, n));
}

/* 1 / sqrt x = rsqrt x;  1 / rsqrt x = sqrt x;  1 / (x / y) = y / x;  1 / (c x) = (1 / c) / x */
static sn_node *rewrite_recip(sn_node *n) {
    sn_node *x = n->in[0];
    double c;
    if (x->op == SN_OP_sqrt) return sn_b_unary(SN_OP_rsqrt, x->in[0]);
    if (x->op == SN_OP_rsqrt) return sn_b_unary(SN_OP_sqrt, x->in[0]);
    if (x->op == SN_OP_div) return sn_b_binary(SN_OP_div, x->in[1], x->in[0]);
    if (x->op == SN_OP_mul && sn_match_const(x->in[1], &c) && c != 0 && is_tame(1 / c))
        return scale(sn_b_unary(SN_OP_recip, x->in[0]), 1 / c);
    return NULL;
}

/* sqrt (1 / x) = rsqrt x */
static sn_node *rewrite_sqrt(sn_node *n) {
    return n->in[0]->op == SN_OP_recip ? sn_b_unary(SN_OP_rsqrt, n->in[0]->in[0]) : NULL;
}

/* x^2 = x x, x^3 = (x x) x, x^4 = (x x)(x x), square roots and reciprocals by their ops */
static sn_node *rewrite_pow(sn_node *n) {
    double e;
    sn_node *x = n->in[0];
    if (!sn_match_const(n->in[1], &e)) return NULL;
    if (e == 0.5) return sn_b_unary(SN_OP_sqrt, x);
    if (e == -0.5) return sn_b_unary(SN_OP_rsqrt, x);
    if (e == -1) return sn_b_unary(SN_OP_recip, x);
    if (e != 2 && e != 3 && e != 4) return NULL;
    sn_node *square = sn_b_binary(SN_OP_mul, x, x);
    return e == 2 ? square : sn_b_binary(SN_OP_mul, square, e == 3 ? x : square);
}

/* -v if n is the negative of something no more complex than n */
static sn_node *negated(sn_node *n) {
    double c;
    if (n->op == SN_OP_neg) return n->in[0];
    if (n->op == SN_OP_mul && sn_match_const(n->in[1], &c) && c < 0) return scale(n->in[0], -c);
    return NULL;
}

/* v if n = 1 + e^-v, or if n = 1 + e^v (*flipped) */
static sn_node *logistic_argument(sn_node *n, bool *flipped) {
    if (n->op != SN_OP_add || !is_one(n->in[1]) || n->in[0]->op != SN_OP_exp) return NULL;
    sn_node *u = n->in[0]->in[0], *v = negated(u);
    *flipped = !v;
    return v ? v : u;
}

/* 1 / (1 + e^-x) = sigmoid x;  1 / (1 + e^x) = sigmoid(-x) */
static sn_node *recip_sigmoid(sn_node *n) {
    bool flipped;
    sn_node *v = logistic_argument(n->in[0], &flipped);
    if (!v) return NULL;
    return sn_b_unary(SN_OP_sigmoid, flipped ? sn_b_unary(SN_OP_neg, v) : v);
}

/* y / (1 + e^-x) = y sigmoid x;  e^x / (1 + e^x) = sigmoid x */
static sn_node *div_sigmoid(sn_node *n) {
    bool flipped;
    sn_node *v = logistic_argument(n->in[1], &flipped);
    if (!v) return NULL;
    if (!flipped) return sn_b_binary(SN_OP_mul, n->in[0], sn_b_unary(SN_OP_sigmoid, v));
    return n->in[0] == n->in[1]->in[0] ? sn_b_unary(SN_OP_sigmoid, v) : NULL;
}

/* ln(x + 1) = log1p x */
static sn_node *form_log1p(sn_node *n) {
    sn_node *x = n->in[0];
    return x->op == SN_OP_add && is_one(x->in[1]) ? sn_b_unary(SN_OP_log1p, x->in[0]) : NULL;
}

/* Whether type `to` represents every value of type `from`. */
static bool widens(sn_dtype from, sn_dtype to) {
    static const uint16_t wider[SN_DTYPE_COUNT] = {
        [SN_BOOL] = 0xffff,
        [SN_BF16] = 1 << SN_F32 | 1 << SN_F64,
        [SN_F16] = 1 << SN_F32 | 1 << SN_F64,
        [SN_F32] = 1 << SN_F64,
        [SN_I8] = 1 << SN_I32 | 1 << SN_I64 | 1 << SN_F32 | 1 << SN_F64,
        [SN_U8] = 1 << SN_I32 | 1 << SN_I64 | 1 << SN_F32 | 1 << SN_F64,
        [SN_I32] = 1 << SN_I64 | 1 << SN_F64,
    };
    return wider[from] >> to & 1;
}

/* (x as a) as b = x as b if a represents every value of x */
static sn_node *cast_chain(sn_node *n) {
    sn_node *x = n->in[0];
    if (x->op != SN_OP_cast || !widens((sn_dtype)x->in[0]->dtype, (sn_dtype)x->dtype)) return NULL;
    return sn_b_cast(x->in[0], (sn_dtype)n->dtype);
}

/* sum(x c) = (sum x) c;  mean likewise: fewer products */
static sn_node *reduce_scaled(sn_node *n) {
    double c;
    sn_node *x = sn_match_scaled(n->in[0], &c);
    if (x == n->in[0] || sn_match_const(x, &c)) return NULL;
    sn_match_scaled(n->in[0], &c);
    return scale(sn_node_with(n, &x), c);
}

/* (-x) moved = -(x moved), so that it meets other negations */
static sn_node *move_neg(sn_node *n) {
    sn_node *x = n->in[0];
    if (x->op != SN_OP_neg) return NULL;
    return sn_b_unary(SN_OP_neg, sn_node_with(n, &x->in[0]));
}

const sn_simplification sn_simplify_arith[] = {
    {SN_OP_sub, rewrite_sub},     {SN_OP_sub, common_factor},
    {SN_OP_add, add_negative},    {SN_OP_add, add_constants},
    {SN_OP_add, common_factor},   {SN_OP_add, form_expm1},
    {SN_OP_mul, mul_constants},   {SN_OP_neg, rewrite_neg},
    {SN_OP_div, div_sigmoid},     {SN_OP_div, div_one},
    {SN_OP_recip, recip_sigmoid}, {SN_OP_sqrt, rewrite_sqrt},
    {SN_OP_pow, rewrite_pow},     {SN_OP_log, form_log1p},
    {SN_OP_cast, cast_chain},     {SN_OP_reduce_sum, reduce_scaled},
    {SN_OP_mean, reduce_scaled},  {SN_OP_reshape, move_neg},
    {SN_OP_transpose, move_neg},  {SN_OP_COUNT, NULL},
};

/* Rules that round a quotient more or less often. */
const sn_simplification sn_simplify_quotient[] = {
    {SN_OP_mul, mul_recip},  {SN_OP_div, div_constant},    {SN_OP_div, rewrite_div},
    {SN_OP_div, div_spread}, {SN_OP_recip, rewrite_recip}, {SN_OP_COUNT, NULL},
};
