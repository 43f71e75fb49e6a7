/* sinter.h: the public header: write a model in C, compile it, run it.
 * Ownership: a module is an arena that owns every tensor, dimension and name made in it, and all
 * go with it. A program owns its code, a session its states and workspace. A program keeps its
 * module, a session its program, a trace its session: free yours in any order, memory goes with the
 * last. Buffers that you pass in or get filled belong to you.
 *
 * Threads: a module belongs to one thread at a time (so do sn_compile, sn_emit and
 * sn_program_explain, which work in it), a session too. Any number of threads may open, run and
 * free sessions of one program, also while its module is built further or compiled again.
 *
 * Errors: the first mistake in a module (what, shapes, your file and line, what to do) sticks; all
 * later calls pass on an error tensor, and sn_compile reports it. No function aborts on a mistake
 * of yours, and none prints, with one exception for developers: SINTER_DEBUG (ir/debug.def) writes
 * what it is asked for, and complaints about its own value, to stderr.
 *
 * Layout: row-major, tokens as rows: X [B, T, d]; a linear map is Y = X W^T + b with W [out, in].
 * Axes count from 0; a negative axis counts from the last (-1). Shapes broadcast as in NumPy:
 * aligned at the last axis, 1 fits anything. Element types never mix silently: sn_cast.
 * Sources: [PH22] Phuong & Hutter 2022, "A" numbers are its algorithms; [TSE] Transformers for
 * software engineers. */
#ifndef SN_SINTER_H
#define SN_SINTER_H

#include "runtime/base.h"
#include "runtime/weights.h"

#include <limits.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sn_module sn_module;
typedef struct sn_node *sn_tensor;
/* A dimension: a number, or the handle (-2^40 or below) of an integer polynomial of
 * symbolic dims. */
typedef int64_t sn_dim;

#define SN_HERE ((sn_loc){__FILE__, __LINE__})

/* ---- modules and dimensions ---- */

sn_module *sn_module_new(const char *name);     /* NULL: out of memory */
void sn_module_free(sn_module *m);              /* NULL is allowed */
sn_error *sn_module_error(sn_module *m);        /* the first mistake; code 0: none */
bool sn_module_ok(sn_module *m, sn_error *err); /* true: no mistake so far; otherwise copies it */

/* A symbolic dimension: a size known only at run time, in [lo, hi]. The same name gives the same
 * dimension. A new value never recompiles. */
#define sn_symbol(m, name, lo, hi) sn_new_symbol_at(SN_HERE, m, name, lo, hi)
sn_dim sn_new_symbol_at(sn_loc, sn_module *m, const char *name, int64_t lo, int64_t hi);

sn_dim sn_dim_add(sn_module *m, sn_dim a, sn_dim b);
sn_dim sn_dim_sub(sn_module *m, sn_dim a, sn_dim b);
sn_dim sn_dim_mul(sn_module *m, sn_dim a, sn_dim b);
/* a / b where the division is exact for every value; otherwise an error of the module */
#define sn_dim_quot(m, a, b) sn_dim_quot_at(SN_HERE, m, a, b)
sn_dim sn_dim_quot_at(sn_loc, sn_module *m, sn_dim a, sn_dim b);
/* The run-time value of a dimension as a scalar tensor. */
#define sn_dim_tensor(m, dtype, d) sn_dim_tensor_at(SN_HERE, m, dtype, d)
sn_tensor sn_dim_tensor_at(sn_loc, sn_module *m, sn_dtype t, sn_dim d);

/* What a tensor is. Of the error tensor: 1, 0, f32. */
#define sn_dim_of(x, axis) sn_dim_of_at(SN_HERE, x, axis)
sn_dim sn_dim_of_at(sn_loc, sn_tensor x, int axis);
int sn_rank_of(sn_tensor x);
/* Of an input, parameter or state, with its scopes; NULL: x has none. The module's memory. */
const char *sn_name_of(sn_tensor x);
sn_dtype sn_dtype_of(sn_tensor x);
sn_module *sn_module_of(sn_tensor x);

/* Lists in macro calls end with a mark, so that no count has to be given. */
#define SN_END INT64_MIN /* ends a list of dimensions */
#define SN_REST (-1)     /* in sn_reshape: the size that keeps the number of elements */
#define SN_SCALAR SN_END /* as the only dimension: rank 0 */
#define SN_DIMS(...) ((const sn_dim[]){__VA_ARGS__, SN_END})
#define SN_AXES(...) ((const int[]){__VA_ARGS__, INT_MIN})
#define SN_TENSORS(...) ((const sn_tensor[]){__VA_ARGS__, NULL})

/* Operands of arithmetic may be tensors, C numbers (they take the other operand's type), or
 * dimensions (variables of type sn_dim: their run-time value). */
typedef enum sn_operand_kind { SN_IS_TENSOR, SN_IS_NUMBER, SN_IS_DIM } sn_operand_kind;
typedef struct sn_operand {
    sn_operand_kind kind;
    sn_tensor tensor;
    double number;
    sn_dim dim;
} sn_operand;
static inline sn_operand sn_operand_tensor(sn_tensor x) {
    return (sn_operand){.kind = SN_IS_TENSOR, .tensor = x};
}
static inline sn_operand sn_operand_number(double x) {
    return (sn_operand){.kind = SN_IS_NUMBER, .number = x};
}
static inline sn_operand sn_operand_dim(sn_dim x) {
    return (sn_operand){.kind = SN_IS_DIM, .dim = x};
}
#define SN_OPERAND(x)                                                                              \
    __extension__({                                                                                \
        __auto_type sn_x_ = (x);                                                                   \
        _Generic(sn_x_, sn_tensor                                                                  \
                 : sn_operand_tensor, int64_t                                                      \
                 : sn_operand_dim, default                                                         \
                 : sn_operand_number)(sn_x_);                                                      \
    })

/* ---- leaves ---- */

/* Scopes prefix the names of parameters, states and taps: after sn_scope_push(m, "h.%d", i),
 * "ln_1.weight" is "h.0.ln_1.weight". sn_scope_params adds a prefix to parameters only, before all
 * scopes ("transformer."); NULL or "" takes it away. */
#define sn_scope_push(m, ...) sn_scope_push_at(SN_HERE, m, __VA_ARGS__)
#define sn_scope_pop(m) sn_scope_pop_at(SN_HERE, m)
void sn_scope_push_at(sn_loc, sn_module *m, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void sn_scope_pop_at(sn_loc, sn_module *m);
void sn_scope_params(sn_module *m, const char *prefix);

/* A tensor that the caller gives at each run: sn_input(m, "tokens", SN_I32, B, T). No scope. */
#define sn_input(m, name, dtype, ...) sn_input_at(SN_HERE, m, name, dtype, SN_DIMS(__VA_ARGS__))
/* A named weight: sn_param(m, "wte.weight", SN_F32, V, d). The same name gives the same tensor. */
#define sn_param(m, name, dtype, ...) sn_param_at(SN_HERE, m, name, dtype, SN_DIMS(__VA_ARGS__))
/* A named tensor that outlives a run, zero at first; its value when the entry starts. */
#define sn_state(m, name, dtype, ...) sn_state_at(SN_HERE, m, name, dtype, SN_DIMS(__VA_ARGS__))
/* A constant: a scalar, or a tensor full of it. */
#define sn_scalar(m, dtype, value) sn_full_at(SN_HERE, m, dtype, value, SN_DIMS(SN_SCALAR))
#define sn_full(m, dtype, value, ...) sn_full_at(SN_HERE, m, dtype, value, SN_DIMS(__VA_ARGS__))
/* 0, 1, … n-1 [n]; and y[i…] = i[axis] of any shape. */
#define sn_arange(m, dtype, n) sn_iota_at(SN_HERE, m, dtype, 0, SN_DIMS(n))
#define sn_iota(m, dtype, axis, ...) sn_iota_at(SN_HERE, m, dtype, axis, SN_DIMS(__VA_ARGS__))
/* Uniform in [0, 1), f32, of the shape given. rng: i64[2] = seed, step. Two calls are independent;
 * the same seed and step repeat the numbers. Philox, counter-based. */
#define sn_uniform(rng, ...) sn_uniform_at(SN_HERE, rng, SN_DIMS(__VA_ARGS__))

sn_tensor sn_input_at(sn_loc, sn_module *, const char *name, sn_dtype, const sn_dim *shape);
sn_tensor sn_param_at(sn_loc, sn_module *, const char *name, sn_dtype, const sn_dim *shape);
sn_tensor sn_state_at(sn_loc, sn_module *, const char *name, sn_dtype, const sn_dim *shape);
sn_tensor sn_full_at(sn_loc, sn_module *, sn_dtype, double value, const sn_dim *shape);
sn_tensor sn_iota_at(sn_loc, sn_module *, sn_dtype, int axis, const sn_dim *shape);
sn_tensor sn_uniform_at(sn_loc, sn_tensor rng, const sn_dim *shape);

/* ---- entries: the functions of the compiled program. They share parameters and states. ---- */

/* What follows belongs to this entry. Its inputs are those that its outputs and states need. */
#define sn_entry_begin(m, name) sn_entry_begin_at(SN_HERE, m, name)
#define sn_output(name, x) sn_output_at(SN_HERE, name, x) /* a result of the current entry */
/* The state's value after the run. A parameter may be assigned as well: then it changes from run to
 * run, each session works on a copy of its own (sn_state_read and sn_state_write by its name), and
 * nothing that depends on it is computed ahead. */
#define sn_assign(state, x) sn_assign_at(SN_HERE, state, x)
/* Names x (scope, then a printf format) for reading it out; returns x. Free unless asked for. */
#define sn_name(x, ...) sn_name_at(SN_HERE, x, __VA_ARGS__)
void sn_entry_begin_at(sn_loc, sn_module *m, const char *name);
void sn_output_at(sn_loc, const char *name, sn_tensor x);
void sn_assign_at(sn_loc, sn_tensor state, sn_tensor x);
sn_tensor sn_name_at(sn_loc, sn_tensor x, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- elementwise: y has x's shape (two operands: their common shape) ---- */

#define sn_neg(x) sn_neg_at(SN_HERE, x)         /* -x */
#define sn_abs(x) sn_abs_at(SN_HERE, x)         /* |x| */
#define sn_sign(x) sn_sign_at(SN_HERE, x)       /* -1, 0 or 1 */
#define sn_exp(x) sn_exp_at(SN_HERE, x)         /* e^x */
#define sn_exp2(x) sn_exp2_at(SN_HERE, x)       /* 2^x */
#define sn_expm1(x) sn_expm1_at(SN_HERE, x)     /* e^x - 1 */
#define sn_log(x) sn_log_at(SN_HERE, x)         /* ln x */
#define sn_log1p(x) sn_log1p_at(SN_HERE, x)     /* ln(1 + x) */
#define sn_sqrt(x) sn_sqrt_at(SN_HERE, x)       /* square root */
#define sn_rsqrt(x) sn_rsqrt_at(SN_HERE, x)     /* 1 / square root */
#define sn_recip(x) sn_recip_at(SN_HERE, x)     /* 1 / x */
#define sn_square(x) sn_square_at(SN_HERE, x)   /* x x */
#define sn_tanh(x) sn_tanh_at(SN_HERE, x)       /* hyperbolic tangent */
#define sn_sigmoid(x) sn_sigmoid_at(SN_HERE, x) /* 1 / (1 + e^-x) */
#define sn_erf(x) sn_erf_at(SN_HERE, x)         /* error function */
#define sn_sin(x) sn_sin_at(SN_HERE, x)
#define sn_cos(x) sn_cos_at(SN_HERE, x)
#define sn_floor(x) sn_floor_at(SN_HERE, x)
#define sn_ceil(x) sn_ceil_at(SN_HERE, x)
#define sn_round(x) sn_round_at(SN_HERE, x)         /* ties to even */
#define sn_not(x) sn_not_at(SN_HERE, x)             /* logical not of bool */
#define sn_relu(x) sn_relu_at(SN_HERE, x)           /* max(x, 0) [PH22 A8] */
#define sn_gelu(x) sn_gelu_at(SN_HERE, x)           /* x (1 + erf(x / sqrt 2)) / 2 [PH22 A9, A10] */
#define sn_gelu_tanh(x) sn_gelu_tanh_at(SN_HERE, x) /* its tanh approximation, as in GPT-2 */
#define sn_silu(x) sn_silu_at(SN_HERE, x)           /* x sigmoid(x) */
#define sn_softplus(x) sn_softplus_at(SN_HERE, x)   /* ln(1 + e^x) */
#define sn_stop_gradient(x) sn_stop_gradient_at(SN_HERE, x) /* x, but constant to gradients */
#define sn_cast(x, dtype) sn_cast_at(SN_HERE, x, dtype)     /* x in another element type */

sn_tensor sn_neg_at(sn_loc, sn_tensor), sn_abs_at(sn_loc, sn_tensor), sn_sign_at(sn_loc, sn_tensor),
    sn_exp_at(sn_loc, sn_tensor), sn_exp2_at(sn_loc, sn_tensor), sn_expm1_at(sn_loc, sn_tensor),
    sn_log_at(sn_loc, sn_tensor), sn_log1p_at(sn_loc, sn_tensor), sn_sqrt_at(sn_loc, sn_tensor),
    sn_rsqrt_at(sn_loc, sn_tensor), sn_recip_at(sn_loc, sn_tensor), sn_square_at(sn_loc, sn_tensor),
    sn_tanh_at(sn_loc, sn_tensor), sn_sigmoid_at(sn_loc, sn_tensor), sn_erf_at(sn_loc, sn_tensor),
    sn_sin_at(sn_loc, sn_tensor), sn_cos_at(sn_loc, sn_tensor), sn_floor_at(sn_loc, sn_tensor),
    sn_ceil_at(sn_loc, sn_tensor), sn_round_at(sn_loc, sn_tensor), sn_not_at(sn_loc, sn_tensor),
    sn_relu_at(sn_loc, sn_tensor), sn_gelu_at(sn_loc, sn_tensor),
    sn_gelu_tanh_at(sn_loc, sn_tensor), sn_silu_at(sn_loc, sn_tensor),
    sn_softplus_at(sn_loc, sn_tensor), sn_stop_gradient_at(sn_loc, sn_tensor);
sn_tensor sn_cast_at(sn_loc, sn_tensor x, sn_dtype t);

/* Two operands, at least one of them a tensor: sn_add(x, y), sn_mul(x, 0.5), sn_sub(1, x),
 * sn_div(x, T) with sn_dim T. Comparisons give bool. */
#define SN_OP2_(f, x, y) f(SN_HERE, SN_OPERAND(x), SN_OPERAND(y))
#define sn_add(x, y) SN_OP2_(sn_add_at, x, y)
#define sn_sub(x, y) SN_OP2_(sn_sub_at, x, y)
#define sn_mul(x, y) SN_OP2_(sn_mul_at, x, y)
#define sn_div(x, y) SN_OP2_(sn_div_at, x, y) /* integers: floored */
#define sn_mod(x, y) SN_OP2_(sn_mod_at, x, y) /* x - y floor(x / y) */
#define sn_pow(x, y) SN_OP2_(sn_pow_at, x, y)
#define sn_max(x, y) SN_OP2_(sn_max_at, x, y) /* the larger; NaN if one is NaN */
#define sn_min(x, y) SN_OP2_(sn_min_at, x, y) /* the smaller; NaN if one is NaN */
#define sn_lt(x, y) SN_OP2_(sn_lt_at, x, y)   /* x < y */
#define sn_le(x, y) SN_OP2_(sn_le_at, x, y)   /* x <= y */
#define sn_gt(x, y) SN_OP2_(sn_lt_at, y, x)   /* x > y */
#define sn_ge(x, y) SN_OP2_(sn_le_at, y, x)   /* x >= y */
#define sn_eq(x, y) SN_OP2_(sn_eq_at, x, y)
#define sn_ne(x, y) SN_OP2_(sn_ne_at, x, y)
#define sn_and(x, y) SN_OP2_(sn_and_at, x, y) /* bool: logical; integers: bitwise */
#define sn_or(x, y) SN_OP2_(sn_or_at, x, y)
#define sn_xor(x, y) SN_OP2_(sn_xor_at, x, y)
/* cond ? x : y; cond bool; x and y tensors or numbers; all three broadcast */
#define sn_where(cond, x, y) sn_where_at(SN_HERE, cond, SN_OPERAND(x), SN_OPERAND(y))

sn_tensor sn_add_at(sn_loc, sn_operand, sn_operand), sn_sub_at(sn_loc, sn_operand, sn_operand),
    sn_mul_at(sn_loc, sn_operand, sn_operand), sn_div_at(sn_loc, sn_operand, sn_operand),
    sn_mod_at(sn_loc, sn_operand, sn_operand), sn_pow_at(sn_loc, sn_operand, sn_operand),
    sn_max_at(sn_loc, sn_operand, sn_operand), sn_min_at(sn_loc, sn_operand, sn_operand),
    sn_lt_at(sn_loc, sn_operand, sn_operand), sn_le_at(sn_loc, sn_operand, sn_operand),
    sn_eq_at(sn_loc, sn_operand, sn_operand), sn_ne_at(sn_loc, sn_operand, sn_operand),
    sn_and_at(sn_loc, sn_operand, sn_operand), sn_or_at(sn_loc, sn_operand, sn_operand),
    sn_xor_at(sn_loc, sn_operand, sn_operand);
sn_tensor sn_where_at(sn_loc, sn_tensor cond, sn_operand x, sn_operand y);

/* ---- reductions over the axes listed, which vanish; the _keep forms leave them with size 1 --- */

#define sn_sum(x, ...) sn_sum_at(SN_HERE, x, SN_AXES(__VA_ARGS__), false)
#define sn_mean(x, ...) sn_mean_at(SN_HERE, x, SN_AXES(__VA_ARGS__), false)
#define sn_variance(x, ...) sn_variance_at(SN_HERE, x, SN_AXES(__VA_ARGS__), false) /* over n */
/* -inf over nothing */
#define sn_amax(x, ...) sn_amax_at(SN_HERE, x, SN_AXES(__VA_ARGS__), false)
/* +inf over nothing */
#define sn_amin(x, ...) sn_amin_at(SN_HERE, x, SN_AXES(__VA_ARGS__), false)
#define sn_sum_keep(x, ...) sn_sum_at(SN_HERE, x, SN_AXES(__VA_ARGS__), true)
#define sn_mean_keep(x, ...) sn_mean_at(SN_HERE, x, SN_AXES(__VA_ARGS__), true)
#define sn_variance_keep(x, ...) sn_variance_at(SN_HERE, x, SN_AXES(__VA_ARGS__), true)
#define sn_amax_keep(x, ...) sn_amax_at(SN_HERE, x, SN_AXES(__VA_ARGS__), true)
#define sn_amin_keep(x, ...) sn_amin_at(SN_HERE, x, SN_AXES(__VA_ARGS__), true)
#define sn_sum_all(x) sn_sum_at(SN_HERE, x, NULL, false)   /* over every axis: a scalar */
#define sn_mean_all(x) sn_mean_at(SN_HERE, x, NULL, false) /* over every axis: a scalar */
/* i32 index of the first maximum on the axis, which vanishes */
#define sn_argmax(x, axis) sn_argmax_at(SN_HERE, x, axis)
/* running sum on the axis, this element included; x's shape */
#define sn_cumsum(x, axis) sn_cumsum_at(SN_HERE, x, axis)
/* ln of the sum of e^x on the axis, which vanishes */
#define sn_logsumexp(x, axis) sn_logsumexp_at(SN_HERE, x, axis)

sn_tensor sn_sum_at(sn_loc, sn_tensor, const int *axes, bool keep),
    sn_mean_at(sn_loc, sn_tensor, const int *axes, bool keep),
    sn_variance_at(sn_loc, sn_tensor, const int *axes, bool keep),
    sn_amax_at(sn_loc, sn_tensor, const int *axes, bool keep),
    sn_amin_at(sn_loc, sn_tensor, const int *axes, bool keep);
sn_tensor sn_argmax_at(sn_loc, sn_tensor, int axis), sn_cumsum_at(sn_loc, sn_tensor, int axis),
    sn_logsumexp_at(sn_loc, sn_tensor, int axis);

/* ---- shapes ---- */

/* The same elements in row-major order: sn_reshape(x, B, T, 12, 64); one size may be SN_REST. */
#define sn_reshape(x, ...) sn_reshape_at(SN_HERE, x, SN_DIMS(__VA_ARGS__))
/* y's axis i is x's axis perm[i]: sn_transpose(x, 0, 2, 1, 3). */
#define sn_transpose(x, ...) sn_transpose_at(SN_HERE, x, SN_AXES(__VA_ARGS__))
#define sn_swap(x, axis1, axis2) sn_swap_at(SN_HERE, x, axis1, axis2) /* two axes exchanged */
#define sn_broadcast(x, ...) sn_broadcast_at(SN_HERE, x, SN_DIMS(__VA_ARGS__))
#define sn_expand(x, axis) sn_expand_at(SN_HERE, x, axis)   /* a new axis of size 1 there */
#define sn_squeeze(x, axis) sn_squeeze_at(SN_HERE, x, axis) /* that axis of size 1 vanishes */
/* size elements from start on one axis; the step form takes every step-th. */
#define sn_slice(x, axis, start, size) sn_slice_at(SN_HERE, x, axis, start, size, 1)
#define sn_slice_step(x, axis, start, size, step) sn_slice_at(SN_HERE, x, axis, start, size, step)
#define sn_index(x, axis, i) sn_index_at(SN_HERE, x, axis, i) /* element i of an axis, no axis */
/* n equal parts of an axis in part[0 … n-1]. */
#define sn_split(x, axis, n, part) sn_split_at(SN_HERE, x, axis, n, part)
#define sn_concat(axis, ...) sn_concat_at(SN_HERE, axis, SN_TENSORS(__VA_ARGS__))
/* on a new axis */
#define sn_stack(axis, ...) sn_stack_at(SN_HERE, axis, SN_TENSORS(__VA_ARGS__))
/* low and high elements of value around x on one axis. */
#define sn_pad(x, axis, low, high, value) sn_pad_at(SN_HERE, x, axis, low, high, value)
/* x with y written at the start given, one number an axis: sn_update(cache, k, 0, 0, P, 0). */
#define sn_update(x, y, ...) sn_update_at(SN_HERE, x, y, SN_DIMS(__VA_ARGS__))

sn_tensor sn_reshape_at(sn_loc, sn_tensor, const sn_dim *shape),
    sn_transpose_at(sn_loc, sn_tensor, const int *perm), sn_swap_at(sn_loc, sn_tensor, int, int),
    sn_broadcast_at(sn_loc, sn_tensor, const sn_dim *shape),
    sn_expand_at(sn_loc, sn_tensor, int axis), sn_squeeze_at(sn_loc, sn_tensor, int axis),
    sn_slice_at(sn_loc, sn_tensor, int axis, sn_dim start, sn_dim size, int64_t step),
    sn_index_at(sn_loc, sn_tensor, int axis, sn_dim i),
    sn_concat_at(sn_loc, int axis, const sn_tensor *x),
    sn_stack_at(sn_loc, int axis, const sn_tensor *x),
    sn_pad_at(sn_loc, sn_tensor, int axis, sn_dim low, sn_dim high, double value),
    sn_update_at(sn_loc, sn_tensor x, sn_tensor y, const sn_dim *start);
void sn_split_at(sn_loc, sn_tensor, int axis, int n, sn_tensor *part);

/* ---- products and look-ups ---- */

/* x [.., m, k], y [.., k, n] -> [.., m, n]; leading axes broadcast. */
#define sn_matmul(x, y) sn_matmul_at(SN_HERE, x, y)
/* Letters name axes: sn_einsum("bhqd,bhkd->bhqk", q, k). Letters in both and in the result are
 * batch axes, letters in both only are summed over; each letter once an operand. */
#define sn_einsum(spec, x, y) sn_einsum_at(SN_HERE, spec, x, y)
/* x W^T + b: x [.., in], w [out, in], b [out] or NULL -> [.., out]. */
#define sn_linear(x, w, b) sn_linear_at(SN_HERE, x, w, b)
/* Convolution of images: x [B, C, H, W], w [O, C / groups, kh, kw] -> [B, O, Ho, Wo] with
 * Ho = floor((H + 2 padding - dilation (kh - 1) - 1) / stride) + 1; zeros outside x. Options after
 * w: sn_conv2d(x, w, bias, .stride = {2, 2}, .padding = {1, 1}); pairs are height, width. An open
 * H or W must divide exactly. One-dimensional: H = kh = 1. [LeCun 1989; as a cross-correlation] */
#define sn_conv2d(x, w, ...) sn_conv2d_at(SN_HERE, x, w, (sn_conv2d_options){.bias = __VA_ARGS__})
typedef struct sn_conv2d_options {
    sn_tensor bias;                             /* [O] or NULL */
    int64_t stride[2], padding[2], dilation[2]; /* stride, dilation 0: 1 */
    int64_t groups; /* 0: 1; C and O in so many parts, each on its own */
} sn_conv2d_options;
sn_tensor sn_conv2d_at(sn_loc, sn_tensor x, sn_tensor w, sn_conv2d_options);
/* Rows of a table: table [n, d], ids [..] integers -> [.., d] [PH22 A1, A2]. */
#define sn_embedding(table, ids) sn_embedding_at(SN_HERE, table, ids)
/* x's slices on an axis at integer indices: the axis is replaced by the shape of ids. */
#define sn_gather(x, axis, ids) sn_gather_at(SN_HERE, x, axis, ids)
/* n zeros on the axis, plus x's slices added at ids, in order: the transpose of sn_gather. */
#define sn_scatter_add(x, axis, ids, n) sn_scatter_add_at(SN_HERE, x, axis, ids, n)
/* Single elements: sn_at(table, i, j) with one integer tensor an axis, of one shape: that shape. */
#define sn_at(x, ...) sn_at_at(SN_HERE, x, SN_TENSORS(__VA_ARGS__))
/* 1 where the last axis' index equals x, else 0: x [..] integers -> [.., n]. */
#define sn_one_hot(x, n, dtype) sn_one_hot_at(SN_HERE, x, n, dtype)

sn_tensor sn_matmul_at(sn_loc, sn_tensor, sn_tensor),
    sn_einsum_at(sn_loc, const char *spec, sn_tensor, sn_tensor),
    sn_linear_at(sn_loc, sn_tensor x, sn_tensor w, sn_tensor b),
    sn_embedding_at(sn_loc, sn_tensor table, sn_tensor ids),
    sn_gather_at(sn_loc, sn_tensor, int axis, sn_tensor ids),
    sn_scatter_add_at(sn_loc, sn_tensor, int axis, sn_tensor ids, sn_dim n),
    sn_at_at(sn_loc, sn_tensor, const sn_tensor *index),
    sn_one_hot_at(sn_loc, sn_tensor, int64_t n, sn_dtype);

/* ---- gradients ---- */

/* out[i] = d loss / d wrt[i], for i < n: tensors of wrt[i]'s type and shape that any entry may use,
 * also in another sn_grad. loss: a float scalar. wrt: any float tensors that the loss is made of:
 * parameters, inputs, tensors on the way, tensors captured by sn_attention. Where the loss does not
 * depend on one its gradient is zeros, and `explain` notes it; the number of those is returned.
 * Equal tensors are one tensor: the gradient of exp(x) counts every exp(x) of the module.
 * Attention in plain operations gets the gradient of sn_attention, whose weights stay out of
 * memory, if wrt are parameters, inputs and states only. At kinks: relu, abs, sign, floor, … have
 * slope 0; equal operands of sn_max and sn_min get half each, and the elements that attain sn_amax
 * and sn_amin share alike. Keys that sn_attention hides, rows without a visible key, and targets
 * outside the vocabulary give zero, never NaN, even if the score callback gives NaN there. Written
 * out, sn_where follows the chain rule: where(mask, log1p(x), -inf) has the gradient 0 of the
 * hidden side times the slope of log1p, which is NaN where that is. Hide the argument instead:
 * log1p(where(mask, x, 0)). */
#define sn_grad(loss, n, wrt, out) sn_grad_at(SN_HERE, loss, n, wrt, out)
int sn_grad_at(sn_loc, sn_tensor loss, int n, const sn_tensor *wrt, sn_tensor *out);
/* The parameters that x is made of, at most `max` of them, in the order of declaration; sn_name_of
 * tells which is which. Returns their number, which may be more than max. */
int sn_params_of(sn_tensor x, int max, sn_tensor *out);

/* ---- training: one step of an optimizer is a part of the entry's graph [PH22 A11, A13] ---- */

typedef enum sn_optimizer_kind {
    SN_SGD,     /* v <- momentum v + g; p <- p - rate v (nesterov: rate (g + momentum v)) */
    SN_RMSPROP, /* v <- beta2 v + (1 - beta2) g^2; p <- p - rate g / (sqrt v + eps) */
    SN_ADAGRAD, /* v <- v + g^2; p <- p - rate g / (sqrt v + eps) */
    SN_ADAM,    /* Kingma & Ba 2015, algorithm 1 */
    SN_ADAMW    /* Loshchilov & Hutter 2019, algorithm 2, rate decay p instead of lambda p */
} sn_optimizer_kind;
typedef struct sn_optimizer {
    sn_optimizer_kind kind;
    double momentum; /* of SGD; 0: none */
    bool nesterov;
    double beta1, beta2, eps;
    double decay; /* weight decay; added to the gradient as decay p, but AdamW's is not */
    /* Does the parameter of this name decay? NULL: those with two axes or more do. */
    bool (*decays)(const char *name, int rank, const void *user);
    const void *user;
    double max_norm; /* gradients are scaled down to this length of all together; 0: not */
} sn_optimizer;
/* PyTorch's defaults: no momentum; betas 0.9 and 0.999 (RMSProp 0.99), eps 1e-8 (AdaGrad 1e-10);
 * decay 0, AdamW 0.01; no max_norm. */
sn_optimizer sn_optimizer_of(sn_optimizer_kind kind);

/* One step in the current entry: gradients of the scalar loss, then sn_assign of every param[i],
 * i < n (f32 or f64 parameters or states), of the optimizer's states "optimizer.m.NAME" and
 * "optimizer.v.NAME", and of the step. rate: float scalar. The loss and everything else of the
 * entry see the values before the step. Returns the length of the gradient (f32 scalar, of all
 * parameters together, before it is scaled down); whoever wants it outputs it. */
#define sn_optimize(loss, rate, n, param, o) sn_optimize_at(SN_HERE, loss, rate, n, param, o)
/* The same with gradients that were made elsewhere: gradient[i] has param[i]'s type and shape. */
#define sn_apply_gradients(rate, n, param, gradient, o)                                            \
    sn_apply_gradients_at(SN_HERE, rate, n, param, gradient, o)
/* The number of steps that were made, an i64 scalar: the state "optimizer.step". */
#define sn_train_step(m) sn_train_step_at(SN_HERE, m)

typedef enum sn_schedule_kind {
    SN_CONSTANT,
    SN_LINEAR,
    SN_COSINE,
    SN_INVERSE_SQRT
} sn_schedule_kind;
typedef struct sn_schedule {
    sn_schedule_kind kind;
    double peak;    /* the rate at the end of the warm-up */
    double final;   /* linear and cosine: the rate from step `total` on; 0 for the others */
    int64_t warmup; /* steps; the rate of step t = 1, 2, … is multiplied by min(1, t / warmup) */
    int64_t total;  /* linear and cosine: steps in all, more than warmup */
} sn_schedule;
/* The rate of the next step, an f32 scalar, for t = step + 1 and u = (t - warmup) / (total -
 * warmup) within 0 and 1: constant; linear: peak - u (peak - final); cosine: final + (peak - final)
 * (1 + cos pi u) / 2; inverse square root [Vaswani 2017]: peak sqrt(warmup / t) after the warm-up.
 * sn_rate(sn_train_step(m), .kind = SN_COSINE, .peak = 1e-3, .warmup = 100, .total = 2000) */
#define sn_rate(step, ...) sn_rate_at(SN_HERE, step, &(const sn_schedule){__VA_ARGS__})
sn_tensor sn_optimize_at(sn_loc, sn_tensor loss, sn_tensor rate, int n, const sn_tensor *param,
                         const sn_optimizer *o),
    sn_apply_gradients_at(sn_loc, sn_tensor rate, int n, const sn_tensor *param,
                          const sn_tensor *gradient, const sn_optimizer *o),
    sn_train_step_at(sn_loc, sn_module *m),
    sn_rate_at(sn_loc, sn_tensor step, const sn_schedule *s);

/* ---- normalisation, positions, losses ---- */

/* e^x / sum on the axis [PH22 (2)]; a row of -inf only gives 0. */
#define sn_softmax(x, axis) sn_softmax_at(SN_HERE, x, axis)
#define sn_log_softmax(x, axis) sn_log_softmax_at(SN_HERE, x, axis)
/* (x - mean) / sqrt(variance + eps) gain + bias over the last axis; gain, bias [d] or NULL
 * [PH22 A6; the paper has no eps]. */
#define sn_layer_norm(x, gain, bias, eps) sn_layer_norm_at(SN_HERE, x, gain, bias, eps)
/* x / sqrt(mean x^2 + eps) gain over the last axis; gain [d] or NULL [PH22 A6, m = beta = 0]. */
#define sn_rms_norm(x, gain, eps) sn_rms_norm_at(SN_HERE, x, gain, eps)
/* Rotary positions [TSE]: x [B, .., T, d], pos [T] or [B, T]. Pairs are turned by pos base^(-2i/d).
 * .base = 10000; .halves = true: pairs (i, i + d/2), Hugging Face's; otherwise (2i, 2i+1). */
#define sn_rope(x, ...) sn_rope_at(SN_HERE, x, (sn_rope_options){.pos = __VA_ARGS__})
/* Sine and cosine of positions [T] -> [T, d], f32 [PH22 A2]: angles (t+1) / base^(2(i+1)/d) in
 * columns 2i and 2i+1 as the paper counts; vaswani: t / base^(2i/d), as published in 2017. */
#define sn_sinusoid(pos, d, base, vaswani) sn_sinusoid_at(SN_HERE, pos, d, base, vaswani)
/* -ln softmax(x)[target]: x [.., V], target [..] integers -> [..] [PH22 A13]. */
#define sn_cross_entropy(x, target) sn_cross_entropy_at(SN_HERE, x, target)
/* x mask / (1 - rate), each element kept with probability 1 - rate; rng as in sn_uniform. */
#define sn_dropout(x, rng, rate) sn_dropout_at(SN_HERE, x, rng, rate)

typedef struct sn_rope_options {
    sn_tensor pos;
    double base; /* 0: 10000 */
    bool halves;
} sn_rope_options;
sn_tensor sn_softmax_at(sn_loc, sn_tensor, int axis),
    sn_log_softmax_at(sn_loc, sn_tensor, int axis),
    sn_layer_norm_at(sn_loc, sn_tensor x, sn_tensor gain, sn_tensor bias, double eps),
    sn_rms_norm_at(sn_loc, sn_tensor x, sn_tensor gain, double eps),
    sn_rope_at(sn_loc, sn_tensor x, sn_rope_options),
    sn_sinusoid_at(sn_loc, sn_tensor pos, int64_t d, double base, bool vaswani),
    sn_cross_entropy_at(sn_loc, sn_tensor x, sn_tensor target),
    sn_dropout_at(sn_loc, sn_tensor x, sn_tensor rng, double rate);

/* ---- attention [PH22 A3, A4, A5] ---- */

/* softmax(scale q k^T, changed and masked) v: q [B, H, Tq, d], k [B, Hk, Tk, d], v [B, Hk, Tk, dv]
 * -> [B, H, Tq, dv]. Hk divides H: query head h uses key head h / (H / Hk). Options after v:
 * sn_attention(q, k, v, .causal = true, .score = alibi, .captured = {slopes}). A query with no
 * visible key gives 0. You may as well write it as matmul, sn_where, sn_softmax, matmul: both ways
 * give the same kernel. */
#define sn_attention(q_, k_, ...)                                                                  \
    sn_attention_at(SN_HERE, &(const sn_attention_args){.q = q_, .k = k_, .v = __VA_ARGS__})

#define SN_MAX_CAPTURED 8
/* One score, as scalars, in a callback. */
typedef struct sn_score_ctx {
    sn_module *m;
    sn_tensor score;           /* scaled q k, f32 (f64 if q is); NULL in a mask callback */
    sn_tensor b, h, q, k;      /* i32: which batch, head, query, key */
    sn_dim n_q, n_k;           /* numbers of queries and keys */
    const sn_tensor *captured; /* the tensors captured, for sn_at */
    const void *user;
} sn_score_ctx;
/* Returns the new score (a scalar of score's type), or whether the key is visible (bool). May use
 * the context, numbers and sn_at(captured[i], …) only; runs once, when the graph is built. */
typedef sn_tensor (*sn_score_fn)(const sn_score_ctx *c);
/* In a callback: how many positions the key lies behind the query, i32; the last query stands at
 * the last key, so that it is right with a cache too. Negative: the key is in the future. */
#define sn_behind(c) sn_behind_at(SN_HERE, c)
sn_tensor sn_behind_at(sn_loc, const sn_score_ctx *c);

typedef struct sn_attention_args {
    sn_tensor q, k, v;
    double scale;      /* positive; 0: 1 / sqrt(d) */
    bool causal;       /* visible: k <= q + (Tk - Tq): the last query sees every key */
    int64_t window;    /* with causal, if > 0: the last so many keys only, itself included */
    sn_score_fn score; /* NULL: as it is */
    sn_score_fn mask;  /* NULL: all; joined with causal by "and" */
    sn_tensor captured[SN_MAX_CAPTURED]; /* ends at the first NULL */
    const void *user;                    /* handed to the callbacks */
    double dropout; /* of the weights, with `rng` as sn_dropout has it; the mask is never stored */
    sn_tensor rng;
} sn_attention_args;
sn_tensor sn_attention_at(sn_loc, const sn_attention_args *);

/* [B, T, H D] -> [B, H, T, D] and back. */
#define sn_split_heads(x, heads) sn_split_heads_at(SN_HERE, x, heads)
#define sn_merge_heads(x) sn_merge_heads_at(SN_HERE, x)
sn_tensor sn_split_heads_at(sn_loc, sn_tensor, int64_t heads), sn_merge_heads_at(sn_loc, sn_tensor);

/* A state named NAME in the scope, [.., capacity, d], that remembers x [.., T, d] of earlier runs:
 * writes x at index `past` and gives all that is remembered, [.., past + T, d]. The other sizes
 * must be numbers. A name holds one cache in an entry. */
#define sn_kv_cache(x, name, past, capacity) sn_kv_cache_at(SN_HERE, x, name, past, capacity)
sn_tensor sn_kv_cache_at(sn_loc, sn_tensor x, const char *name, sn_dim past, int64_t capacity);

/* Masks as bool tensors, true = visible. [Tq, Tk]: the last query sees the last key. */
#define sn_causal_mask(m, Tq, Tk) sn_window_mask_at(SN_HERE, m, Tq, Tk, 0)    /* k <= q + Tk - Tq */
#define sn_window_mask(m, Tq, Tk, w) sn_window_mask_at(SN_HERE, m, Tq, Tk, w) /* and the last w */
/* Padding: lengths [B] integers -> [B, 1, 1, Tk], true where k < length. */
#define sn_length_mask(lengths, Tk) sn_length_mask_at(SN_HERE, lengths, Tk)
/* Packed documents: ids [B, T] -> [B, 1, T, T], true within one document. */
#define sn_document_mask(ids) sn_document_mask_at(SN_HERE, ids)
/* x where the mask is true, -inf elsewhere [PH22 A4 line 5]. */
#define sn_mask_scores(x, mask) sn_mask_scores_at(SN_HERE, x, mask)
sn_tensor sn_window_mask_at(sn_loc, sn_module *m, sn_dim Tq, sn_dim Tk, int64_t window),
    sn_length_mask_at(sn_loc, sn_tensor lengths, sn_dim Tk),
    sn_document_mask_at(sn_loc, sn_tensor ids),
    sn_mask_scores_at(sn_loc, sn_tensor x, sn_tensor mask);

/* ---- layers that make their own parameters, named NAME.weight and NAME.bias in the scope ---- */

enum { SN_BIAS = 1, SN_IN_OUT = 2 /* weight stored [in, out], as GPT-2's Conv1D */ };
/* x [.., in] -> [.., out] */
#define sn_nn_linear(x, name, n_out, flags) sn_nn_linear_at(SN_HERE, x, name, n_out, flags)
/* ids [..] -> [.., d]; table [n, d] */
#define sn_nn_embedding(ids, name, n, d) sn_nn_embedding_at(SN_HERE, ids, name, n, d)
#define sn_nn_layer_norm(x, name, eps) sn_nn_layer_norm_at(SN_HERE, x, name, eps)
#define sn_nn_rms_norm(x, name, eps) sn_nn_rms_norm_at(SN_HERE, x, name, eps) /* no bias */
/* (act(x gate^T) * (x up^T)) down^T, no bias: swiglu with act = silu, geglu with gelu */
#define sn_swiglu(x, gate, up, down) sn_glu_at(SN_HERE, x, gate, up, down, sn_silu_at)
#define sn_geglu(x, gate, up, down) sn_glu_at(SN_HERE, x, gate, up, down, sn_gelu_at)
sn_tensor sn_nn_linear_at(sn_loc, sn_tensor x, const char *name, int64_t n_out, int flags),
    sn_nn_embedding_at(sn_loc, sn_tensor ids, const char *name, int64_t n, int64_t d),
    sn_nn_layer_norm_at(sn_loc, sn_tensor x, const char *name, double eps),
    sn_nn_rms_norm_at(sn_loc, sn_tensor x, const char *name, double eps),
    sn_glu_at(sn_loc, sn_tensor x, sn_tensor gate, sn_tensor up, sn_tensor down,
              sn_tensor (*act)(sn_loc, sn_tensor));

/* ---- compile and run ---- */

typedef struct sn_program sn_program; /* compiled entries; read-only, any thread may use it */
typedef struct sn_session sn_session; /* one user of a program: bound weights, states, workspace */

typedef struct sn_options {
    int level;           /* fusion level 0 to 4; -1: 4, everything */
    int threads;         /* 0: as many as the process may use */
    const char *backend; /* "auto" (or NULL), "own", "onednn" */
    const char *target;  /* NULL: this CPU; "x86-64-v3", … */
    const char *weights; /* storage of constant matrices: "f32" (or NULL), "bf16", "int8", "int4" */
    /* What an entry that trains (it has an output "loss", and assigns) stores between kernels:
     * "f32" (or NULL) or "bf16": large tensors that its forward part leaves for the backward part,
     * and what attention's gradient gives. Sums, parameters and the optimizer's states stay f32. */
    const char *precision;
    const char *cache_dir;   /* NULL: the user's cache directory; "none" or "": no disk cache; a
                                folder of that name is "./none" */
    const char *passes;      /* NULL; or "-name,-name": passes switched off */
    const char *const *taps; /* [n_taps] names of tensors to read out, "*": all; they become
                                outputs */
    int n_taps;
    bool strict_fusion; /* an op that was expected to fuse and did not is an error */
    /* Choose kernels by measuring, where several are right and no choice is remembered for the
     * sizes in the disk cache, which must be usable; compilation takes seconds longer. Choices that
     * are remembered are taken without it. */
    bool tune;
    /* The sizes in use, for tuned choices: "B=1,T=256". Dimensions that are not named count at the
     * middle of their range (the geometric mean of its ends). */
    const char *tune_sizes;
    /* A line for each choice that is measured, "" when all are; NULL: silent. */
    void (*progress)(void *ctx, const char *line);
    void *progress_ctx;
    bool check_nan; /* a run stops after the kernel that makes the first NaN, or the first infinity
                       that is not meant (as a masked score is), and says which: slow */
    bool check_index; /* a run stops, before it writes anything, at an index outside its table
                         (gather, scatter, sn_at, embeddings, targets of cross entropy) and says
                         which: slow. Without it such indices count as the nearest inside */
    /* Bytes that the tensors between an entry's kernels may take together (scratch memory of
     * threads comes on top); 0: as many as they need. Where they would take more, kernels run a
     * second time instead of keeping what they made: the same bits, later. */
    int64_t memory_budget;
    const char *budget_sizes; /* the dimensions that the budget is meant for, "B=12,T=64"; those not
                                 named (NULL: all) count at their upper bounds */
} sn_options;
sn_options sn_options_default(void);

/* Compiles every entry. NULL with the module's first mistake, a bad option, or a kernel that
 * cannot be made. o NULL: defaults. */
sn_program *sn_compile(sn_module *m, const sn_options *o, sn_error *err);
void sn_program_free(sn_program *p); /* sessions keep it; NULL is allowed */

typedef struct sn_stats {
    int kernels;                  /* distinct kernels of the program */
    int compiled, cached;         /* made now; loaded from the disk cache */
    int onednn;                   /* primitives used instead of own kernels */
    int measured;                 /* choices that were measured now */
    int tuned;                    /* choices that somebody measured, now or before */
    int changed;                  /* of these, those that the cost model had made otherwise */
    int recompilations;           /* after sn_compile: 0, whatever the sizes */
    double seconds;               /* of sn_compile in all */
    double passes, codegen, load; /* its parts */
    size_t code_bytes;
    const char *note; /* what the user should know (an unusable cache folder), or NULL */
} sn_stats;
sn_stats sn_program_stats(const sn_program *p);
/* For every op of an entry (NULL: of all): its kernel, what was fused into it, why not more. */
void sn_program_explain(const sn_program *p, const char *entry, FILE *f);

/* The cost of one run: multiplications of all matrix products of an entry, attention's included
 * (and counted in full, whatever a mask hides), for inputs of these sizes (their data may be NULL).
 * `explain` prints it as a formula of the symbolic dims. -1 with an error. */
struct sn_arg_binding;
int64_t sn_program_products(const sn_program *p, const char *entry, const struct sn_arg_binding *in,
                            int n_in, sn_error *err);

/* A named buffer. A name of a symbolic dim binds its value (rank 0, i64), which only dims that no
 * input shape determines need: SN_BIND_DIM("P", 17). */
typedef struct sn_arg_binding {
    const char *name;
    sn_dtype dtype;
    int rank;
    const int64_t *shape;
    void *data; /* row-major; inputs are only read */
} sn_arg_binding;
#define SN_BIND(name_, dtype_, data_, ...)                                                         \
    ((sn_arg_binding){.name = (name_),                                                             \
                      .dtype = (dtype_),                                                           \
                      .rank = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),           \
                      .shape = (const int64_t[]){__VA_ARGS__},                                     \
                      .data = (data_)})
#define SN_BIND_DIM(name_, value_)                                                                 \
    ((sn_arg_binding){.name = (name_), .dtype = SN_I64, .data = &(int64_t){value_}})

/* Binds every parameter by name (and checks its shape; all that do not fit are listed) and
 * allocates states, zero: memory that costs nothing until it is written. Packs and quantises
 * weights one after the other; of what only that reads nothing is kept. SN_ERR_MEMORY, before
 * anything is done, if the weights need more than is available. `w` must outlive the session, which
 * changes nothing in it: parameters that an entry assigns are copied. */
sn_session *sn_session_new(sn_program *p, const sn_weights *w, sn_error *err);
/* The same from arrays, n of them; they must outlive the session. */
sn_session *sn_session_new_arrays(sn_program *p, const sn_arg_binding *param, int n, sn_error *err);
void sn_session_free(sn_session *s);  /* NULL is allowed */
void sn_session_reset(sn_session *s); /* all states to zero, but not parameters */
/* Times of every kernel on every thread, as Chrome's trace events (opens in Perfetto). Begin before
 * the runs to look at; the first `events` kernel calls are kept, and sn_trace_lost counts the rest.
 * entry NULL: of all. sn_trace_write: false, and no file, if it cannot be written. */
typedef struct sn_trace sn_trace;
sn_trace *sn_trace_begin(sn_session *s, const char *entry, size_t events, sn_error *err);
bool sn_trace_write(const sn_trace *t, const char *path, sn_error *err);
/* The same as a table: time of each kernel summed over calls, most first. */
void sn_trace_print(const sn_trace *t, FILE *f);
size_t sn_trace_lost(const sn_trace *t);
void sn_trace_end(sn_trace *t);

/* Copies a state out or in; bytes must be its size. */
bool sn_state_read(const sn_session *s, const char *name, void *data, size_t bytes, sn_error *err);
bool sn_state_write(sn_session *s, const char *name, const void *data, size_t bytes, sn_error *err);

/* Runs an entry. Symbolic dims follow from the input shapes. Before anything is read or written all
 * sizes are checked: bounds of dims, sizes and starts below 0, ends of slices and updates, indices
 * into an empty axis (SN_ERR_RANGE), tensors of more than 2^48 elements (SN_ERR_MEMORY).
 * Outputs (and taps) that are not bound are not copied out; inputs that the entry does not have are
 * passed over. Outputs may not overlap inputs or each other; nor may they overlap weights that the
 * session was opened with, which is not checked. Kernels round
 * to nearest and take subnormal numbers as zero; the floating-point state of the calling thread is
 * the same afterwards. */
bool sn_run(sn_session *s, const char *entry, const sn_arg_binding *in, int n_in,
            const sn_arg_binding *out, int n_out, sn_error *err);
/* Shape of an output for given inputs (their data may be NULL); its rank, or -1 with an error. The
 * sizes are checked as sn_run checks them. */
int sn_output_shape(const sn_program *p, const char *entry, const sn_arg_binding *in, int n_in,
                    const char *output, int64_t shape[8], sn_error *err);

/* ---- ahead of time ---- */

enum { SN_EMIT_OBJECT = 1, SN_EMIT_ARCHIVE = 2 };

typedef struct sn_emit_options {
    const char *name;    /* C identifier: begins every symbol and names the files; NULL: module's */
    const char *dir;     /* folder for the files, made if missing; NULL: the current one */
    const char *targets; /* NULL: this CPU; or several with commas, of one architecture:
                            "x86-64-v2,x86-64-v4,+avx512vnni"; the program chooses when it starts */
    int kinds;           /* SN_EMIT_OBJECT for NAME.o, SN_EMIT_ARCHIVE for NAME.a */
    const char *threads; /* "openmp" (or NULL), "none" */
    bool program;        /* with the table by which libsinter_program's main calls it */
    /* What an input, output or dimension means, for NAME.h; may return NULL. NULL: no comments. */
    const char *(*describe)(const char *entry, const char *argument);
    int64_t source_vocab;   /* of an encoder-decoder: token ids of the source; 0: none */
    int64_t vocab, context; /* constants of NAME.h: token ids, longest sequence; 0: left out */
    int32_t bos;            /* the token that begins a text; -1 (the default): none */
    const int32_t *eos;     /* [n_eos] tokens that end one, at most 16 */
    int n_eos;
    bool no_bos;              /* tells that main that texts begin without the token BOS */
    const char *const *label; /* [n_label] names of classes, for that main: one line each, at most
                                 255 bytes; NULL: has none */
    int n_label;
    bool embed_weights; /* in the object instead of in NAME.weights */
    sn_options compile; /* level, weights, passes, cache_dir; target is of no effect, backend may
                           not be onednn, tune and checks may not be set */
} sn_emit_options;
sn_emit_options sn_emit_options_default(void);

/* Writes the session's program as NAME.o and/or NAME.a, NAME.h with one C function an entry, and
 * NAME.weights: the session's parameters as they are now, in the form that the code reads them, to
 * be mapped. The object needs libc, libm and (unless threads is "none") an OpenMP runtime; no LLVM,
 * no Sinter. The same bits come out as from this process for the same target. The session's module
 * must still be there. */
bool sn_emit(sn_session *s, const sn_emit_options *o, sn_error *err);

/* ---- gradients under test ---- */

/* Tests sn_grad(loss, n, wrt): along two random directions for each tensor, the slope that the
 * gradient tells against the central difference of the loss. Everything runs as compiled code in
 * f64: the graph once more with every float an f64, whatever its own types. A NaN in a
 * gradient is an infinite error; attention with a score of its own is also tried at fusion level 0,
 * where nothing that a mask hides is left out. value: inputs,
 * parameters, states and dimensions (SN_BIND_DIM) of the loss, in their own types; floats that are
 * missing are drawn. *worst: the largest error. False with the reason if there is nothing to
 * compare: a mistake in the module, an integer input without a value. */
typedef struct sn_grad_error {
    double error;             /* |slope - difference| / the length of the gradient: about 1e-8 */
    double slope, difference; /* along the worst direction */
    int index;                /* of wrt; -1: n is 0 */
} sn_grad_error;
bool sn_check_grad(sn_tensor loss, int n, const sn_tensor *wrt, const sn_arg_binding *value,
                   int n_value, sn_grad_error *worst, sn_error *err);

#ifdef __cplusplus
}
#endif
#endif
