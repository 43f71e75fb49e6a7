/* ops_elem.c: operators that compute one element at a time. */
#include "frontend/onnx/ops.h"

#include <math.h>
#include <string.h>

/* ---- as the table says ---- */

bool onnx_unary(onnx_call *c) {
    bool done;
    if (!onnx_given(c, 0)) return onnx_fail(c, "input 0 is missing");
    if (!onnx_fold(c, c->in[0]->type, &done)) return false;
    return done || onnx_set(c, 0, c->row->unary(c->at, onnx_in(c, 0)));
}

static bool binary(onnx_call *c, sn_dtype type, sn_tensor (*f)(sn_loc, sn_operand, sn_operand)) {
    bool done;
    if (!onnx_fold(c, type, &done)) return false;
    if (done) return true;
    sn_tensor x = onnx_in(c, 0), y = onnx_in(c, 1);
    if (!onnx_broadcasts(c, x, y)) return false;
    return onnx_set(c, 0, f(c->at, sn_operand_tensor(x), sn_operand_tensor(y)));
}

/* Before version 7, `axis` aligned the second operand. */
bool onnx_binary(onnx_call *c) {
    if (!onnx_given(c, 0) || !onnx_given(c, 1)) return onnx_fail(c, "it needs two inputs");
    return binary(c, c->in[0]->type, c->row->binary);
}

bool onnx_compare(onnx_call *c) {
    if (!onnx_given(c, 0) || !onnx_given(c, 1)) return onnx_fail(c, "it needs two inputs");
    return binary(c, SN_BOOL, c->row->binary);
}

/* Any number of operands: Min, Max, Sum, Mean (flag). */
bool onnx_many(onnx_call *c) {
    if (c->n_in == 2 && !c->row->flag) return onnx_binary(c);
    sn_tensor y = onnx_in(c, 0);
    for (int i = 1; i < c->n_in; i++) {
        sn_tensor x = onnx_in(c, i);
        if (!onnx_broadcasts(c, y, x)) return false;
        y = c->row->binary(c->at, sn_operand_tensor(y), sn_operand_tensor(x));
    }
    return onnx_set(c, 0, c->row->flag ? sn_div(y, (double)c->n_in) : y);
}

sn_tensor onnx_b_greater(sn_loc at, sn_operand x, sn_operand y) {
    return sn_lt_at(at, y, x);
}
sn_tensor onnx_b_greater_equal(sn_loc at, sn_operand x, sn_operand y) {
    return sn_le_at(at, y, x);
}

/* ---- formulas of one operand ---- */

static sn_operand of(double x) {
    return sn_operand_number(x);
}
static sn_operand t(sn_tensor x) {
    return sn_operand_tensor(x);
}

sn_tensor onnx_u_softsign(sn_loc at, sn_tensor x) {
    return sn_div_at(at, t(x), t(sn_add_at(at, of(1), t(sn_abs_at(at, x)))));
}
sn_tensor onnx_u_sinh(sn_loc at, sn_tensor x) {
    sn_tensor e = sn_expm1_at(at, x);
    sn_tensor y = sn_add_at(at, t(e), t(sn_div_at(at, t(e), t(sn_add_at(at, t(e), of(1))))));
    return sn_mul_at(at, t(y), of(0.5));
}
sn_tensor onnx_u_cosh(sn_loc at, sn_tensor x) {
    sn_tensor y = sn_add_at(at, t(sn_exp_at(at, x)), t(sn_exp_at(at, sn_neg_at(at, x))));
    return sn_mul_at(at, t(y), of(0.5));
}
sn_tensor onnx_u_tan(sn_loc at, sn_tensor x) {
    return sn_div_at(at, t(sn_sin_at(at, x)), t(sn_cos_at(at, x)));
}
sn_tensor onnx_u_acosh(sn_loc at, sn_tensor x) { /* ln(x + sqrt(x^2 - 1)) */
    sn_tensor root = sn_sqrt_at(at, sn_sub_at(at, t(sn_square_at(at, x)), of(1)));
    return sn_log_at(at, sn_add_at(at, t(x), t(root)));
}
sn_tensor onnx_u_asinh(sn_loc at, sn_tensor x) { /* ln(|x| + sqrt(x^2 + 1)), with the sign of x */
    sn_tensor root = sn_sqrt_at(at, sn_add_at(at, t(sn_square_at(at, x)), of(1)));
    sn_tensor y = sn_log_at(at, sn_add_at(at, t(sn_abs_at(at, x)), t(root)));
    return sn_mul_at(at, t(y), t(sn_sign_at(at, x)));
}
sn_tensor onnx_u_atanh(sn_loc at, sn_tensor x) { /* (ln(1 + x) - ln(1 - x)) / 2 */
    sn_tensor y = sn_sub_at(at, t(sn_log1p_at(at, x)), t(sn_log1p_at(at, sn_neg_at(at, x))));
    return sn_mul_at(at, t(y), of(0.5));
}
sn_tensor onnx_u_mish(sn_loc at, sn_tensor x) {
    return sn_mul_at(at, t(x), t(sn_tanh_at(at, sn_softplus_at(at, x))));
}
sn_tensor onnx_u_is_nan(sn_loc at, sn_tensor x) {
    return sn_ne_at(at, t(x), t(x));
}
sn_tensor onnx_u_bitwise_not(sn_loc at, sn_tensor x) {
    return sn_xor_at(at, t(x), of(sn_dtype_of(x) == SN_U8 ? 255 : -1));
}

bool onnx_elu(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0);
    const double alpha = onnx_float(c, "alpha", 1);
    return onnx_set(c, 0, sn_where(sn_le(x, 0), sn_mul(sn_expm1(sn_min(x, 0)), alpha), x));
}
bool onnx_celu(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0);
    const double alpha = onnx_float(c, "alpha", 1);
    sn_tensor low = sn_mul(sn_expm1(sn_div(sn_min(x, 0), alpha)), alpha);
    return onnx_set(c, 0, sn_add(sn_max(x, 0), low));
}
bool onnx_selu(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0);
    const double alpha = onnx_float(c, "alpha", 1.67326319217681884765625);
    const double gamma = onnx_float(c, "gamma", 1.05070102214813232421875);
    sn_tensor low = sn_mul(sn_expm1(sn_min(x, 0)), alpha);
    return onnx_set(c, 0, sn_mul(sn_where(sn_le(x, 0), low, x), gamma));
}
bool onnx_leaky_relu(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0);
    return onnx_set(c, 0, sn_where(sn_lt(x, 0), sn_mul(x, onnx_float(c, "alpha", 0.01)), x));
}
bool onnx_prelu(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0), slope = onnx_in(c, 1);
    return onnx_broadcasts(c, x, slope) &&
           onnx_set(c, 0, sn_where(sn_lt(x, 0), sn_mul(x, slope), x));
}
bool onnx_hard_sigmoid(onnx_call *c) {
    sn_tensor y = sn_mul(onnx_in(c, 0), onnx_float(c, "alpha", 0.2));
    return onnx_set(c, 0, sn_max(sn_min(sn_add(y, onnx_float(c, "beta", 0.5)), 1), 0));
}
bool onnx_hard_swish(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0);
    return onnx_set(c, 0, sn_mul(x, sn_max(sn_min(sn_add(sn_mul(x, 1.0 / 6), 0.5), 1), 0)));
}
bool onnx_thresholded(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0);
    return onnx_set(c, 0, sn_where(sn_gt(x, onnx_float(c, "alpha", 1)), x, 0));
}
bool onnx_shrink(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0);
    const double bias = onnx_float(c, "bias", 0), lambda = onnx_float(c, "lambd", 0.5);
    sn_tensor high = sn_where(sn_gt(x, lambda), sn_sub(x, bias), 0);
    return onnx_set(c, 0, sn_where(sn_lt(x, -lambda), sn_add(x, bias), high));
}
bool onnx_gelu(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0);
    const bool tanh = !strcmp(onnx_text(c, "approximate", "none"), "tanh");
    return onnx_set(c, 0, tanh ? sn_gelu_tanh(x) : sn_gelu(x));
}
/* x + bias, if there is one */
static sn_tensor biased(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0), bias = onnx_in_or_null(c, 1);
    return bias ? sn_add(x, bias) : x;
}
bool onnx_bias_gelu(onnx_call *c) {
    return onnx_set(c, 0, sn_gelu(biased(c)));
}
bool onnx_fast_gelu(onnx_call *c) {
    return onnx_set(c, 0, sn_gelu_tanh(biased(c)));
}
bool onnx_quick_gelu(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0);
    return onnx_set(c, 0, sn_mul(x, sn_sigmoid(sn_mul(x, onnx_float(c, "alpha", 1.702)))));
}
static sn_tensor swish(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0);
    const double alpha = onnx_float(c, "alpha", 1);
    return alpha == 1 ? sn_silu(x) : sn_mul(x, sn_sigmoid(sn_mul(x, alpha)));
}
bool onnx_swish(onnx_call *c) {
    return onnx_set(c, 0, swish(c));
}
/* Swish of a gate, times values. */
bool onnx_swiglu(onnx_call *c) {
    return onnx_set(c, 0, sn_mul(swish(c), onnx_in(c, 1)));
}
bool onnx_is_inf(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0);
    sn_tensor high = sn_eq(x, (double)INFINITY), low = sn_eq(x, (double)-INFINITY);
    const bool up = onnx_int(c, "detect_positive", 1), down = onnx_int(c, "detect_negative", 1);
    return onnx_set(c, 0,
                    up && down ? sn_or(high, low)
                    : up       ? high
                    : down     ? low
                               : sn_ne(high, high));
}

/* ---- two operands whose meaning differs from the DSL's ---- */

/* Integers are divided towards 0. */
bool onnx_div(onnx_call *c) {
    if (!onnx_given(c, 0) || !onnx_given(c, 1)) return onnx_fail(c, "it needs two inputs");
    const sn_dtype type = c->in[0]->type;
    bool done;
    if (sn_dtype_is_float(type) || type == SN_U8) return binary(c, type, sn_div_at);
    if (!onnx_fold(c, type, &done) || done) return done;
    sn_tensor x = onnx_in(c, 0), y = onnx_in(c, 1);
    if (!onnx_broadcasts(c, x, y)) return false;
    sn_tensor q = sn_div(x, y), rest = sn_ne(sn_mul(q, y), x);
    sn_tensor up = sn_and(rest, sn_lt(q, 0)); /* it was rounded down to a negative number */
    return onnx_set(c, 0, sn_add(q, sn_cast(up, type)));
}

bool onnx_mod(onnx_call *c) {
    bool done;
    if (!onnx_given(c, 0) || !onnx_given(c, 1)) return onnx_fail(c, "it needs two inputs");
    if (!onnx_int(c, "fmod", 0)) return binary(c, c->in[0]->type, sn_mod_at);
    if (!onnx_fold(c, c->in[0]->type, &done) || done) return done;
    sn_tensor x = onnx_in(c, 0), y = onnx_in(c, 1); /* the sign is x's */
    if (!onnx_broadcasts(c, x, y)) return false;
    sn_tensor r = sn_mod(sn_abs(x), sn_abs(y));
    return onnx_set(c, 0, sn_where(sn_lt(x, 0), sn_neg(r), r));
}

bool onnx_pow(onnx_call *c) {
    enum { MAX_POWER = 16 };
    double n;
    bool done;
    if (!onnx_given(c, 0) || !onnx_given(c, 1)) return onnx_fail(c, "it needs two inputs");
    const sn_dtype type = c->in[0]->type;
    if (!onnx_fold(c, type, &done) || done) return done;
    sn_tensor x = onnx_in(c, 0);
    const bool known = onnx_number(c, c->in[1], &n) && c->in[1]->rank <= c->in[0]->rank;
    if (known && n == 0.5 && sn_dtype_is_float(type)) return onnx_set(c, 0, sn_sqrt(x));
    if (known && n == -0.5 && sn_dtype_is_float(type)) return onnx_set(c, 0, sn_rsqrt(x));
    if (known && n == 1) return onnx_set_value(c, 0, c->in[0]);
    if (known && n == 2) return onnx_set(c, 0, sn_square(x));
    if (known && n == floor(n) && fabs(n) <= MAX_POWER && (n >= 0 || sn_dtype_is_float(type)))
        return onnx_set(c, 0, sn_powi(x, (int)n));
    const sn_dtype wide = sn_dtype_is_float(type) ? type : SN_F64;
    sn_tensor y = onnx_in(c, 1);
    if (!onnx_broadcasts(c, x, y)) return false;
    sn_tensor r = sn_pow(sn_cast(x, wide), sn_cast(y, wide));
    return onnx_set(c, 0, wide == type ? r : sn_cast(sn_round(r), type));
}

bool onnx_shift(onnx_call *c) {
    const bool left = !strcmp(onnx_text(c, "direction", ""), "LEFT");
    if (!onnx_given(c, 0) || !onnx_given(c, 1)) return onnx_fail(c, "it needs two inputs");
    return binary(c, c->in[0]->type, left ? sn_shift_left_at : sn_shift_right_at);
}

/* ---- others ---- */

bool onnx_where(onnx_call *c) {
    bool done;
    if (!onnx_given(c, 0) || !onnx_given(c, 1) || !onnx_given(c, 2))
        return onnx_fail(c, "it needs three inputs");
    if (!onnx_fold(c, c->in[1]->type, &done) || done) return done;
    sn_tensor p = onnx_in(c, 0), x = onnx_in(c, 1), y = onnx_in(c, 2);
    return onnx_broadcasts(c, p, x) && onnx_broadcasts(c, p, y) && onnx_broadcasts(c, x, y) &&
           onnx_set_narrow(c, 0, sn_where(p, x, y), c->in[1]->narrow);
}

static bool cast(onnx_call *c, sn_tensor x, sn_dtype to, onnx_type narrow) {
    const bool test = to == SN_BOOL && sn_dtype_of(x) != SN_BOOL;
    return onnx_set_narrow(c, 0, test ? sn_ne(x, 0) : sn_cast(x, to), narrow);
}

bool onnx_cast(onnx_call *c) {
    const int64_t type = onnx_int(c, "to", 0);
    sn_dtype to;
    bool done;
    if (!onnx_dtype(type, &to))
        return onnx_fail(c, "element type %lld is not supported", (long long)type);
    if (!onnx_fold(c, to, &done)) return false;
    return done || cast(c, onnx_in(c, 0), to, (onnx_type)type);
}
bool onnx_cast_like(onnx_call *c) {
    if (!onnx_given(c, 1)) return onnx_fail(c, "input 1 is missing");
    return cast(c, onnx_in(c, 0), c->in[1]->type, c->in[1]->narrow);
}

/* The same bits as another type: integers of one size. */
bool onnx_bit_cast(onnx_call *c) {
    const int64_t type = onnx_int(c, "to", 0);
    sn_tensor x = onnx_in(c, 0);
    const sn_dtype from = sn_dtype_of(x);
    sn_dtype to;
    if (!onnx_dtype(type, &to) ||
        (from != to && (sn_dtype_is_float(from) || sn_dtype_is_float(to))))
        return onnx_fail(c, "the bits of floats as integers are not supported");
    if (from == SN_U8 && to == SN_I8) {
        x = sn_cast(x, SN_I32);
        x = sn_where(sn_lt(x, 128), x, sn_sub(x, 256));
    } else if (from == SN_I8 && to == SN_U8)
        x = sn_and(sn_cast(x, SN_I32), 255);
    return cast(c, x, to, (onnx_type)type);
}

/* Bounds are attributes before version 11, then inputs. */
bool onnx_clip(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0), lo = onnx_in_or_null(c, 1), hi = onnx_in_or_null(c, 2);
    if (onnx_attr(c, "min")) x = sn_max(x, onnx_float(c, "min", 0));
    if (onnx_attr(c, "max")) x = sn_min(x, onnx_float(c, "max", 0));
    if (lo) x = sn_max(x, lo);
    if (hi) x = sn_min(x, hi);
    return onnx_set(c, 0, x);
}

bool onnx_identity(onnx_call *c) {
    return onnx_given(c, 0) ? onnx_set_value(c, 0, c->in[0]) : onnx_fail(c, "input 0 is missing");
}

/* As in inference; the second output says that all elements are kept. */
bool onnx_dropout(onnx_call *c) {
    double training, rate = 0.5;
    if (onnx_given(c, 2) && (!onnx_number(c, c->in[2], &training) || training) &&
        (!onnx_given(c, 1) || !onnx_number(c, c->in[1], &rate) || rate))
        return onnx_fail(c,
                         "dropout in training is not supported, unless its ratio is known to be 0");
    if (c->node->out.n > 1) {
        sn_tensor x = onnx_in(c, 0);
        if (!onnx_set(c, 1, sn_eq(x, x))) return false;
    }
    return onnx_identity(c);
}
