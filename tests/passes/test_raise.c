/* Raising: every way to write an activation, a norm, a softmax or a loss becomes the composite that
 * a user could have called, with the same text, and keeps its value. */
#include "tests/support/raise_check.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { V = 24 };

static sn_tensor input(sn_module *m) {
    return sn_input(m, "x", SN_F32, sn_symbol(m, "B", 1, 8), sn_symbol(m, "T", 1, 16), V);
}

#define SPELLING(name, expression)                                                                 \
    static sn_tensor name(sn_module *m) {                                                          \
        sn_tensor x = input(m);                                                                    \
        return expression;                                                                         \
    }

/* ---- activations ---- */

SPELLING(gelu_op, sn_gelu(x))
SPELLING(gelu_plain, sn_mul(sn_mul(x, 0.5), sn_add(1, sn_erf(sn_div(x, sqrt(2))))))
SPELLING(gelu_half_last, sn_mul(sn_mul(x, sn_add(sn_erf(sn_mul(x, sqrt(0.5))), 1)), 0.5))
SPELLING(gelu_inner_half, sn_mul(x, sn_add(0.5, sn_mul(0.5, sn_erf(sn_div(x, sqrt(2)))))))
SPELLING(gelu_cdf, sn_mul(x, sn_mul(0.5, sn_add(1, sn_erf(sn_mul(0.70710678, x))))))
SPELLING(gelu_spread, sn_add(sn_mul(x, 0.5), sn_mul(sn_mul(x, sn_erf(sn_div(x, sqrt(2)))), 0.5)))
CHECK(gelu, "= gelu %", S(gelu_op), S(gelu_plain), S(gelu_half_last), S(gelu_inner_half),
      S(gelu_cdf), S(gelu_spread))

static sn_tensor cubic(sn_tensor x, sn_tensor cube) {
    return sn_mul(sn_add(x, sn_mul(0.044715, cube)), sqrt(2 / M_PI));
}
SPELLING(tanh_op, sn_gelu_tanh(x))
SPELLING(tanh_pow, sn_mul(sn_mul(0.5, x), sn_add(1, sn_tanh(cubic(x, sn_pow(x, 3))))))
SPELLING(tanh_mul, sn_mul(sn_mul(x, sn_add(1, sn_tanh(cubic(x, sn_mul(sn_mul(x, x), x))))), 0.5))
SPELLING(tanh_square, sn_mul(sn_mul(x, 0.5), sn_add(sn_tanh(cubic(x, sn_mul(x, sn_square(x)))), 1)))
SPELLING(tanh_horner, sn_mul(sn_mul(x, 0.5),
                             sn_add(1, sn_tanh(sn_mul(sn_mul(x, 0.7978845608),
                                                      sn_add(1, sn_mul(sn_mul(0.044715, x), x)))))))
CHECK(gelu_tanh, "= gelu_tanh %", S(tanh_op), S(tanh_pow), S(tanh_mul), S(tanh_square),
      S(tanh_horner))

SPELLING(silu_op, sn_silu(x))
SPELLING(silu_mul, sn_mul(sn_sigmoid(x), x))
SPELLING(silu_div, sn_div(x, sn_add(1, sn_exp(sn_neg(x)))))
SPELLING(silu_recip, sn_mul(x, sn_div(1, sn_add(1, sn_exp(sn_mul(x, -1))))))
SPELLING(silu_exp, sn_mul(x, sn_div(sn_exp(x), sn_add(sn_exp(x), 1))))
CHECK(silu, "= silu %", S(silu_op), S(silu_mul), S(silu_div), S(silu_recip), S(silu_exp))

SPELLING(relu_op, sn_relu(x))
SPELLING(relu_max, sn_max(0, x))
SPELLING(relu_where, sn_where(sn_gt(x, 0), x, 0))
CHECK(relu, "= relu %", S(relu_op), S(relu_max), S(relu_where))

SPELLING(softplus_op, sn_softplus(x))
SPELLING(softplus_log, sn_log(sn_add(1, sn_exp(x))))
SPELLING(softplus_log1p, sn_log1p(sn_exp(x)))
SPELLING(softplus_stable, sn_add(sn_max(x, 0), sn_log1p(sn_exp(sn_neg(sn_abs(x))))))
CHECK(softplus, "= softplus %", S(softplus_op), S(softplus_log), S(softplus_log1p),
      S(softplus_stable))

/* ---- softmax ---- */

SPELLING(softmax_op, sn_softmax(x, -1))
SPELLING(softmax_bare, sn_div(sn_exp(x), sn_sum_keep(sn_exp(x), -1)))
SPELLING(softmax_recip, sn_mul(sn_exp(x), sn_recip(sn_sum_keep(sn_exp(x), -1))))
static sn_tensor softmax_shifted(sn_module *m) {
    sn_tensor x = input(m), e = sn_exp(sn_sub(x, sn_amax_keep(x, -1)));
    return sn_div(e, sn_sum_keep(e, -1));
}
static sn_tensor softmax_dropped(sn_module *m) {
    sn_tensor x = input(m), top = sn_stop_gradient(sn_amax(x, 2));
    sn_tensor e = sn_exp(sn_sub(x, sn_expand(top, -1)));
    return sn_div(e, sn_expand(sn_sum(e, 2), 2));
}
SPELLING(softmax_lse, sn_exp(sn_sub(x, sn_expand(sn_logsumexp(x, -1), -1))))
SPELLING(softmax_log, sn_exp(sn_log_softmax(x, -1)))
SPELLING(softmax_twice, sn_exp(sn_sub(x, sn_log(sn_sum_keep(sn_exp(x), -1)))))
CHECK(softmax, "= softmax %", S(softmax_op), S(softmax_bare), S(softmax_recip), S(softmax_shifted),
      S(softmax_dropped), S(softmax_lse), S(softmax_log), S(softmax_twice))

static sn_tensor visible(sn_module *m) {
    return sn_gt(sn_input(m, "seen", SN_I32, sn_symbol(m, "T", 1, 16), V), 0);
}
SPELLING(masked_where, sn_softmax(sn_where(visible(m), x, -INFINITY), -1))
SPELLING(masked_add, sn_softmax(sn_add(x, sn_where(visible(m), 0, -INFINITY)), -1))
SPELLING(masked_not, sn_softmax(sn_where(sn_not(visible(m)), -INFINITY, x), -1))
SPELLING(masked_log, sn_softmax(sn_add(x, sn_log(sn_cast(visible(m), SN_F32))), -1))
static sn_tensor masked_weights(sn_module *m) {
    sn_tensor x = input(m), e = sn_mul(sn_exp(x), sn_cast(visible(m), SN_F32));
    return sn_div(e, sn_sum_keep(e, -1));
}
static sn_tensor masked_again(sn_module *m) {
    sn_tensor p = sn_where(visible(m), sn_softmax(input(m), -1), 0);
    return sn_div(p, sn_sum_keep(p, -1));
}
CHECK(masked_softmax, "= softmax %", S(masked_where), S(masked_add), S(masked_not), S(masked_log),
      S(masked_weights), S(masked_again))

SPELLING(log_softmax_op, sn_log_softmax(x, -1))
SPELLING(log_softmax_log, sn_log(sn_softmax(x, -1)))
SPELLING(log_softmax_lse, sn_sub(x, sn_expand(sn_logsumexp(x, -1), -1)))
static sn_tensor log_softmax_shifted(sn_module *m) {
    sn_tensor x = input(m), z = sn_sub(x, sn_amax_keep(x, -1));
    return sn_sub(z, sn_log(sn_sum_keep(sn_exp(z), -1)));
}
static sn_tensor log_softmax_sum(sn_module *m) {
    sn_tensor x = input(m), top = sn_amax_keep(x, -1);
    return sn_sub(x, sn_add(top, sn_log(sn_sum_keep(sn_exp(sn_sub(x, top)), -1))));
}
CHECK(log_softmax, "= log_softmax %", S(log_softmax_op), S(log_softmax_log), S(log_softmax_lse),
      S(log_softmax_shifted), S(log_softmax_sum))

/* ---- norms ---- */

static sn_tensor gain(sn_module *m) {
    return sn_param(m, "gain", SN_F32, V);
}
static sn_tensor bias(sn_module *m) {
    return sn_param(m, "bias", SN_F32, V);
}

SPELLING(rms_op, sn_rms_norm(x, gain(m), 1e-6))
SPELLING(rms_rsqrt,
         sn_mul(sn_mul(x, sn_rsqrt(sn_add(sn_mean_keep(sn_square(x), -1), 1e-6))), gain(m)))
SPELLING(rms_div, sn_mul(gain(m), sn_div(x, sn_sqrt(sn_add(sn_mean_keep(sn_pow(x, 2), -1), 1e-6)))))
SPELLING(rms_sum, sn_div(sn_mul(x, gain(m)),
                         sn_sqrt(sn_add(sn_div(sn_sum_keep(sn_mul(x, x), -1), V), 1e-6))))
SPELLING(rms_inner,
         sn_mul(x, sn_mul(sn_pow(sn_add(sn_expand(sn_mean(sn_mul(x, x), -1), -1), 1e-6), -0.5),
                          gain(m))))
CHECK(rms_norm, "= rms_norm %", S(rms_op), S(rms_rsqrt), S(rms_div), S(rms_sum), S(rms_inner))

SPELLING(rms_plain_op, sn_rms_norm(x, NULL, 1e-5))
SPELLING(rms_plain, sn_div(x, sn_sqrt(sn_add(sn_mean_keep(sn_mul(x, x), -1), 1e-5))))
CHECK(rms_norm_plain, "= rms_norm %", S(rms_plain_op), S(rms_plain))

SPELLING(layer_op, sn_layer_norm(x, gain(m), bias(m), 1e-5))
SPELLING(layer_variance, sn_add(sn_mul(sn_mul(sn_sub(x, sn_mean_keep(x, -1)),
                                              sn_rsqrt(sn_add(sn_variance_keep(x, -1), 1e-5))),
                                       gain(m)),
                                bias(m)))
static sn_tensor layer_squares(sn_module *m) {
    sn_tensor x = input(m), away = sn_sub(x, sn_mean_keep(x, -1));
    sn_tensor var = sn_mean_keep(sn_square(away), -1);
    return sn_add(bias(m), sn_mul(gain(m), sn_div(away, sn_sqrt(sn_add(var, 1e-5)))));
}
static sn_tensor layer_difference(sn_module *m) {
    sn_tensor x = input(m), mean = sn_div(sn_sum(x, -1), V);
    sn_tensor var = sn_sub(sn_mean(sn_mul(x, x), -1), sn_square(mean));
    sn_tensor away = sn_sub(x, sn_expand(mean, -1));
    sn_tensor y = sn_div(away, sn_expand(sn_pow(sn_add(var, 1e-5), 0.5), -1));
    return sn_add(sn_mul(y, gain(m)), bias(m));
}
static sn_tensor layer_early_gain(sn_module *m) {
    sn_tensor x = input(m), away = sn_sub(x, sn_mean_keep(x, -1));
    sn_tensor root = sn_rsqrt(sn_add(sn_mean_keep(sn_mul(away, away), -1), 1e-5));
    return sn_add(sn_mul(away, sn_mul(root, gain(m))), bias(m));
}
static sn_tensor layer_of_rms(sn_module *m) {
    sn_tensor x = input(m);
    return sn_add(sn_rms_norm(sn_sub(x, sn_mean_keep(x, -1)), gain(m), 1e-5), bias(m));
}
CHECK(layer_norm, "= layer_norm %", S(layer_op), S(layer_variance), S(layer_squares),
      S(layer_difference), S(layer_early_gain), S(layer_of_rms))

SPELLING(layer_bias_op, sn_layer_norm(x, NULL, bias(m), 1e-5))
SPELLING(layer_bias, sn_add(sn_div(sn_sub(x, sn_mean_keep(x, -1)),
                                   sn_sqrt(sn_add(sn_variance_keep(x, -1), 1e-5))),
                            bias(m)))
CHECK(layer_norm_bias, "= layer_norm %", S(layer_bias_op), S(layer_bias))

/* ---- losses and products ---- */

static sn_tensor target(sn_module *m) {
    return sn_input(m, "t", SN_I32, sn_symbol(m, "B", 1, 8), sn_symbol(m, "T", 1, 16));
}
SPELLING(loss_op, sn_mean_all(sn_cross_entropy(x, target(m))))
SPELLING(loss_one_hot,
         sn_neg(sn_mean_all(sn_sum(sn_mul(sn_one_hot(target(m), V, SN_F32), sn_log_softmax(x, -1)),
                                   -1))))
SPELLING(loss_eq, sn_mean_all(sn_neg(sn_sum(sn_where(sn_eq(sn_expand(target(m), -1),
                                                           sn_arange(m, SN_I32, V)),
                                                     sn_log(sn_softmax(x, -1)), 0),
                                            -1))))
static sn_tensor loss_at(sn_module *m) {
    sn_tensor x = input(m), t = target(m);
    sn_dim B = sn_dim_of(x, 0), T = sn_dim_of(x, 1);
    return sn_neg(sn_mean_all(sn_at(sn_log_softmax(x, -1), sn_iota(m, SN_I32, 0, B, T),
                                    sn_expand(sn_arange(m, SN_I32, T), 0), t)));
}
CHECK(cross_entropy, "= cross_entropy %", S(loss_op), S(loss_one_hot), S(loss_eq), S(loss_at))

static sn_tensor weight(sn_module *m) {
    return sn_param(m, "w", SN_F32, 7, V);
}
static sn_tensor out_bias(sn_module *m) {
    return sn_param(m, "b", SN_F32, 7);
}
SPELLING(linear_op, sn_linear(x, weight(m), out_bias(m)))
SPELLING(linear_matmul, sn_add(sn_matmul(x, sn_swap(weight(m), 0, 1)), out_bias(m)))
SPELLING(linear_einsum, sn_add(out_bias(m), sn_einsum("bti,oi->bto", x, weight(m))))
SPELLING(linear_bare, sn_add(sn_linear(x, weight(m), NULL), out_bias(m)))
CHECK(linear, "= linear %", S(linear_op), S(linear_matmul), S(linear_einsum), S(linear_bare))

/* A value that is needed itself stays, next to the composite. */
static sn_tensor shared(sn_module *m) {
    sn_tensor x = input(m), e = sn_exp(x);
    sn_output("weights", e);
    return sn_div(e, sn_sum_keep(e, -1));
}
static void shared_value(void **state) {
    (void)state;
    static const raise_spelling list[] = {S(shared)};
    raise_check(list, 1, "= softmax %");
    raise_check(list, 1, "= exp %");
}

/* What nearly is a composite is not one; raise_text compares values before and after. */
static sn_tensor sum_of_exp(sn_tensor x, int axis) {
    return sn_sum_keep(sn_exp(x), axis);
}
static sn_tensor away_from(sn_tensor x, int axis) {
    return sn_sub(x, sn_mean_keep(x, axis));
}
static sn_tensor over_root(sn_tensor x, sn_tensor squares) {
    return sn_mul(x, sn_rsqrt(sn_add(sn_mean_keep(squares, -1), 1e-5)));
}
static sn_tensor second(sn_module *m) {
    return sn_input(m, "x2", SN_F32, sn_symbol(m, "B", 1, 8), sn_symbol(m, "T", 1, 16), V);
}
#define GATE(x, t) sn_mul(sn_mul(x, 0.5), sn_add(1, t))
SPELLING(gelu_of_other, GATE(second(m), sn_erf(sn_div(x, sqrt(2)))))
SPELLING(gelu_unscaled, GATE(x, sn_erf(x)))
SPELLING(gelu_minus, sn_mul(sn_mul(x, 0.5), sn_sub(1, sn_erf(sn_div(x, sqrt(2))))))
SPELLING(gelu_more, sn_mul(sn_mul(x, 0.5), sn_add(1.25, sn_erf(sn_div(x, sqrt(2))))))
static sn_tensor gelu_and(sn_tensor x, sn_tensor (*more)(sn_tensor x, sn_tensor t)) {
    sn_tensor t = sn_erf(sn_div(x, sqrt(2)));
    return sn_add(sn_mul(x, 0.5), sn_add(sn_mul(sn_mul(x, t), 0.5), more(x, t)));
}
static sn_tensor square_of_x(sn_tensor x, sn_tensor t) {
    (void)t;
    return sn_square(x);
}
static sn_tensor square_of_gate(sn_tensor x, sn_tensor t) {
    return sn_mul(x, sn_mul(t, t));
}
static sn_tensor gate_alone(sn_tensor x, sn_tensor t) {
    (void)x;
    return t;
}
SPELLING(gelu_and_square, gelu_and(x, square_of_x))
SPELLING(gelu_and_gates, gelu_and(x, square_of_gate))
SPELLING(gelu_and_gate, gelu_and(x, gate_alone))
SPELLING(gelu_of_gate, sn_mul(sn_add(1, sn_erf(sn_div(x, sqrt(2)))), sn_erf(sn_div(x, sqrt(2)))))
SPELLING(gelu_erf_cubic, GATE(x, sn_erf(cubic(x, sn_pow(x, 3)))))
SPELLING(gelu_tanh_plain, GATE(x, sn_tanh(sn_mul(x, sqrt(2 / M_PI)))))
SPELLING(gelu_tanh_square, GATE(x, sn_tanh(cubic(x, sn_square(x)))))
SPELLING(gelu_tanh_other, GATE(x, sn_tanh(cubic(x, sn_pow(second(m), 3)))))
SPELLING(gelu_tanh_offset, GATE(x, sn_tanh(sn_add(cubic(x, sn_pow(x, 3)), 0.125))))
SPELLING(silu_of_other, sn_mul(second(m), sn_sigmoid(x)))
SPELLING(silu_scaled, sn_mul(x, sn_sigmoid(sn_mul(x, 1.5))))
SPELLING(softplus_scaled, sn_log1p(sn_exp(sn_add(sn_exp(x), x))))
SPELLING(softplus_half, sn_add(sn_max(x, 0), sn_log1p(sn_exp(sn_neg(x)))))
SPELLING(softmax_axes, sn_div(sn_exp(x), sn_sum_keep(sn_sum_keep(sn_exp(x), -1), 1)))
SPELLING(softmax_of_other, sn_div(sn_exp(x), sum_of_exp(second(m), -1)))
SPELLING(softmax_half, sn_div(sn_exp(x), sn_add(sum_of_exp(x, -1), 1)))
SPELLING(softmax_mean, sn_div(sn_exp(x), sn_amax_keep(sn_exp(x), -1)))
SPELLING(log_softmax_other, sn_sub(x, sn_log(sum_of_exp(second(m), -1))))
SPELLING(rms_of_other, over_root(x, sn_square(second(m))))
SPELLING(rms_product, over_root(x, sn_mul(x, second(m))))
SPELLING(rms_time, sn_mul(x, sn_rsqrt(sn_add(sn_mean_keep(sn_square(x), 1), 1e-5))))
SPELLING(layer_time, over_root(away_from(x, 1), sn_square(away_from(x, -1))))
SPELLING(layer_off, over_root(x, sn_square(away_from(x, -1))))
/* Columns beside those of x in a softmax, which are dropped: sinks, or not. */
static sn_tensor padded(sn_tensor x, int axis, int64_t low, int64_t high, double value,
                        int64_t start) {
    return sn_slice(sn_softmax(sn_pad(x, -1, low, high, value), axis), -1, start, V);
}
static sn_tensor beside(sn_module *m, bool before, int64_t start) {
    sn_tensor x = input(m), z = sn_slice(second(m), -1, 3, 1);
    return sn_slice(sn_softmax(before ? sn_concat(-1, z, x) : sn_concat(-1, x, z), -1), -1, start,
                    V);
}
static sn_tensor gated(sn_tensor x, sn_tensor at) {
    return sn_mul(sn_softmax(x, -1), sn_sigmoid(at));
}
SPELLING(pad_after, padded(x, -1, 0, 2, 0.5, 0))
SPELLING(pad_before, padded(x, -1, 2, 0, 0.5, 2))
SPELLING(pad_around, padded(x, -1, 1, 2, 0.5, 1))
SPELLING(pad_kept, padded(x, -1, 1, 2, 0.5, 2))
SPELLING(pad_first, padded(x, -1, 2, 0, 0.5, 0))
SPELLING(pad_nothing, padded(x, -1, 2, 0, -INFINITY, 2))
SPELLING(pad_other_axis, padded(x, 1, 0, 2, 0.5, 0))
SPELLING(pad_step, sn_slice_step(sn_softmax(sn_pad(x, -1, 0, V, 0.5), -1), -1, 0, V, 2))
SPELLING(column_first, ((void)x, beside(m, true, 1)))
SPELLING(column_last, ((void)x, beside(m, false, 0)))
SPELLING(column_kept, ((void)x, beside(m, true, 0)))
SPELLING(column_of_x, ((void)x, beside(m, false, 1)))
SPELLING(gate, gated(x, sn_sub(sn_expand(sn_logsumexp(x, -1), -1), 0.5)))
SPELLING(gate_reversed, gated(x, sn_sub(0.5, sn_expand(sn_logsumexp(x, -1), -1))))
SPELLING(gate_of_other, gated(x, sn_expand(sn_logsumexp(second(m), -1), -1)))
SPELLING(gate_per_column, gated(x, sn_sub(sn_expand(sn_logsumexp(x, -1), -1), second(m))))
SPELLING(gate_scaled, gated(x, sn_mul(sn_expand(sn_logsumexp(x, -1), -1), 2)))

/* What is picked of log-probabilities: the target's, or something else. */
static sn_tensor picked(sn_tensor logp, sn_tensor hit) {
    return sn_neg(sn_sum(sn_where(hit, logp, 0), -1));
}
static sn_tensor is_column(sn_module *m, sn_tensor t) {
    return sn_eq(sn_expand(t, -1), sn_arange(m, SN_I32, V));
}
SPELLING(pick_next, picked(sn_log_softmax(x, -1), is_column(m, sn_add(target(m), 1))))
SPELLING(pick_others, picked(sn_log_softmax(x, -1), sn_not(is_column(m, target(m)))))
SPELLING(pick_below,
         picked(sn_log_softmax(x, -1), sn_lt(sn_expand(target(m), -1), sn_arange(m, SN_I32, V))))
SPELLING(pick_of_axis, picked(sn_log_softmax(x, 1), is_column(m, target(m))))
SPELLING(pick_of_other,
         picked(sn_sub(x, sn_expand(sn_logsumexp(second(m), -1), -1)), is_column(m, target(m))))
SPELLING(pick_and_more,
         sn_neg(sn_sum(sn_where(is_column(m, target(m)), sn_log_softmax(x, -1), 0.25), -1)))
SPELLING(pick_twice, picked(sn_mul(sn_log_softmax(x, -1), x), is_column(m, target(m))))
static sn_tensor hits(sn_tensor x, sn_tensor t) {
    sn_dim B = sn_dim_of(x, 0), T = sn_dim_of(x, 1);
    return picked(sn_log_softmax(x, -1),
                  sn_eq(sn_expand(t, -1), sn_iota(sn_module_of(x), SN_I32, 2, B, T, V)));
}
SPELLING(pick_one_row, hits(x, sn_slice(target(m), 0, 0, 1)))
SPELLING(pick_one_item, hits(x, sn_slice(target(m), 1, 0, 1)))

static void near_misses(void **state) {
    (void)state;
    static const struct {
        raise_spelling of;
        const char *without; /* "": values only */
    } list[] = {
        {S(gelu_of_other), "= gelu"},
        {S(gelu_unscaled), "= gelu"},
        {S(gelu_minus), "= gelu"},
        {S(gelu_more), "= gelu"},
        {S(gelu_of_gate), "= gelu"},
        {S(gelu_erf_cubic), "= gelu"},
        {S(gelu_tanh_plain), "= gelu"},
        {S(gelu_tanh_square), "= gelu"},
        {S(gelu_tanh_other), "= gelu"},
        {S(gelu_tanh_offset), "= gelu"},
        {S(gelu_and_square), "= gelu"},
        {S(gelu_and_gates), "= gelu"},
        {S(gelu_and_gate), "= gelu"},
        {S(silu_of_other), "= silu"},
        {S(silu_scaled), "= silu"},
        {S(softplus_half), ""},
        {S(softplus_scaled), ""},
        {S(softmax_axes), "= softmax"},
        {S(softmax_of_other), "= softmax"},
        {S(softmax_half), ""},
        {S(softmax_mean), "= softmax"},
        {S(log_softmax_other), "= log_softmax"},
        {S(rms_of_other), "= rms_norm"},
        {S(rms_product), "= rms_norm"},
        {S(rms_time), "= rms_norm"},
        {S(layer_time), "= layer_norm"},
        {S(layer_off), "= rms_norm"},
        {S(pad_after), ""},
        {S(pad_before), ""},
        {S(pad_around), ""},
        {S(pad_kept), ""},
        {S(pad_first), ""},
        {S(pad_nothing), ""},
        {S(pad_other_axis), ""},
        {S(pad_step), ""},
        {S(column_first), ""},
        {S(column_last), ""},
        {S(column_kept), ""},
        {S(column_of_x), ""},
        {S(gate), ""},
        {S(gate_reversed), ""},
        {S(gate_of_other), ""},
        {S(gate_per_column), ""},
        {S(gate_scaled), ""},
        {S(pick_next), ""},
        {S(pick_others), ""},
        {S(pick_below), ""},
        {S(pick_of_axis), ""},
        {S(pick_of_other), ""},
        {S(pick_and_more), ""},
        {S(pick_twice), ""},
        {S(pick_one_row), ""},
        {S(pick_one_item), ""},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char *text = raise_text(&list[i].of);
        if (*list[i].without && strstr(text, list[i].without))
            fail_msg("%s became\n%s", list[i].of.name, text);
        free(text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gelu),           cmocka_unit_test(gelu_tanh),
        cmocka_unit_test(silu),           cmocka_unit_test(relu),
        cmocka_unit_test(softplus),       cmocka_unit_test(softmax),
        cmocka_unit_test(masked_softmax), cmocka_unit_test(log_softmax),
        cmocka_unit_test(rms_norm),       cmocka_unit_test(rms_norm_plain),
        cmocka_unit_test(layer_norm),     cmocka_unit_test(layer_norm_bias),
        cmocka_unit_test(cross_entropy),  cmocka_unit_test(linear),
        cmocka_unit_test(shared_value),   cmocka_unit_test(near_misses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
