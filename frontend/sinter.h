/* sinter.h: the public header: define a model in C, compile it, run it.
 *
 * Ownership: a module is an arena; it owns every tensor, dimension and name created in it and frees
 * them together. A program owns its code; a session owns its states and workspace. A program holds
 * a reference to its module, a session to its program, a trace to its session, so they can be freed
 * in any order. Buffers that you pass in, and output buffers, are yours.
 *
 * Threads: a module may be used by one thread at a time; this includes sn_compile, sn_emit and
 * sn_program_explain, which modify it. The same holds for a session. Any number of threads may
 * open, run and free sessions of one program, even while its module is extended or compiled again.
 *
 * Errors: the first error in a module is recorded (operation, shapes, your file and line, hint).
 * Later calls return an error tensor, and sn_compile reports the recorded error. No function aborts
 * because of a user's error, and none prints. One exception, for developers: SINTER_DEBUG
 * (ir/debug.def) writes debug output and errors in its own value to stderr.
 *
 * Layout: row-major, tokens are rows: X [B, T, d]; a linear map is Y = X W^T + b with W [out, in].
 * Axes count from 0; a negative axis counts from the last (-1). Shapes broadcast as in NumPy:
 * aligned at the last axis, size 1 is expanded. There is no implicit type conversion: use sn_cast.
 * Sources: [PH22] Phuong & Hutter 2022, with its algorithms as A1 to A15; [TSE] Transformers for
 * software engineers. */
#ifndef SN_SINTER_H
#define SN_SINTER_H

#include "ir/compile.h" /* compiling and running */
#include "runtime/base.h"
#include "runtime/weights.h"

#include <limits.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A dimension: a number, or a handle (-2^40 or below) of an integer polynomial in symbolic dims. */
typedef int64_t sn_dim;

#ifdef __cplusplus
#define SN_HERE (sn_loc{__FILE__, __LINE__})
#else
#define SN_HERE ((sn_loc){__FILE__, __LINE__})
#endif

/* ---- modules and dimensions ---- */

sn_module *sn_module_new(const char *name); /* NULL if out of memory */
void sn_module_free(sn_module *m);          /* NULL is allowed */
sn_error *sn_module_error(sn_module *m);    /* the first error; code 0: none */
/* true: no error so far; otherwise copies it to err */
bool sn_module_ok(sn_module *m, sn_error *err);

/* A symbolic dimension: a size in [lo, hi] that is known only at run time. The same name returns
 * the same dimension. A new value does not recompile anything. */
#define sn_symbol(m, name, lo, hi) sn_new_symbol_at(SN_HERE, m, name, lo, hi)
sn_dim sn_new_symbol_at(sn_loc, sn_module *m, const char *name, int64_t lo, int64_t hi);

/* a + b, a - b, a b as dimensions. Overflow is an error of the module. */
sn_dim sn_dim_add(sn_module *m, sn_dim a, sn_dim b);
sn_dim sn_dim_sub(sn_module *m, sn_dim a, sn_dim b);
sn_dim sn_dim_mul(sn_module *m, sn_dim a, sn_dim b);
/* a / b. The division must be exact for all values; otherwise it is an error of the module. */
#define sn_dim_quot(m, a, b) sn_dim_quot_at(SN_HERE, m, a, b)
sn_dim sn_dim_quot_at(sn_loc, sn_module *m, sn_dim a, sn_dim b);
/* a / by rounded up, for a number by >= 1: chunks of 16 for any T. Rounded down: sn_dim_quot_up(m,
 * sn_dim_sub(m, a, by - 1), by). At most 8 different ones in a module. */
#define sn_dim_quot_up(m, a, by) sn_dim_quot_up_at(SN_HERE, m, a, by)
sn_dim sn_dim_quot_up_at(sn_loc, sn_module *m, sn_dim a, int64_t by);
/* The run-time value of a dimension as a scalar tensor. */
#define sn_dim_tensor(m, dtype, d) sn_dim_tensor_at(SN_HERE, m, dtype, d)
sn_tensor sn_dim_tensor_at(sn_loc, sn_module *m, sn_dtype t, sn_dim d);

/* Size, rank, type of a tensor. The error tensor has size 1, rank 0, type f32. */
#define sn_dim_of(x, axis) sn_dim_of_at(SN_HERE, x, axis)
sn_dim sn_dim_of_at(sn_loc, sn_tensor x, int axis);
int sn_rank_of(sn_tensor x);
/* The name of an input, parameter or state, including its scopes; NULL: x has no name. The string
 * belongs to the module. */
const char *sn_name_of(sn_tensor x);
sn_dtype sn_dtype_of(sn_tensor x);
sn_module *sn_module_of(sn_tensor x);

/* List arguments of macros end with a sentinel, so no count is passed. */
#define SN_END INT64_MIN /* ends a list of dimensions */
#define SN_REST (-1)     /* in sn_reshape: inferred from the number of elements */
#define SN_SCALAR SN_END /* instead of dimensions: rank 0 */
#define SN_DIMS(...) ((const sn_dim[]){__VA_ARGS__, SN_END})
#define SN_AXES(...) ((const int[]){__VA_ARGS__, INT_MIN})
#define SN_TENSORS(...) ((const sn_tensor[]){__VA_ARGS__, NULL})

/* Operands of arithmetic are tensors, C numbers (converted to the other operand's type), or
 * dimensions (variables of type sn_dim; their run-time value). */
typedef enum sn_operand_kind { SN_IS_TENSOR, SN_IS_NUMBER, SN_IS_DIM } sn_operand_kind;
typedef struct sn_operand {
    sn_operand_kind kind;
    sn_tensor tensor;
    double number;
    sn_dim dim;
} sn_operand;
static inline sn_operand sn_operand_tensor(sn_tensor x) {
    sn_operand o = {SN_IS_TENSOR, x, 0, 0};
    return o;
}
static inline sn_operand sn_operand_number(double x) {
    sn_operand o = {SN_IS_NUMBER, NULL, x, 0};
    return o;
}
static inline sn_operand sn_operand_dim(sn_dim x) {
    sn_operand o = {SN_IS_DIM, NULL, 0, x};
    return o;
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
 * "ln_1.weight" becomes "h.0.ln_1.weight". sn_scope_params sets a prefix for parameters only, in
 * front of all scopes ("transformer."); NULL or "" removes it. */
#define sn_scope_push(m, ...) sn_scope_push_at(SN_HERE, m, __VA_ARGS__)
#define sn_scope_pop(m) sn_scope_pop_at(SN_HERE, m)
void sn_scope_push_at(sn_loc, sn_module *m, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void sn_scope_pop_at(sn_loc, sn_module *m);
void sn_scope_params(sn_module *m, const char *prefix);

/* A tensor that is bound at each run: sn_input(m, "tokens", SN_I32, B, T). Scopes do not apply. */
#define sn_input(m, name, dtype, ...) sn_input_at(SN_HERE, m, name, dtype, SN_DIMS(__VA_ARGS__))
/* A named weight: sn_param(m, "wte.weight", SN_F32, V, d). The same name returns the same
 * tensor. */
#define sn_param(m, name, dtype, ...) sn_param_at(SN_HERE, m, name, dtype, SN_DIMS(__VA_ARGS__))
/* A named tensor that persists between runs, initially zero. Its value is the one at the start of
 * the entry. */
#define sn_state(m, name, dtype, ...) sn_state_at(SN_HERE, m, name, dtype, SN_DIMS(__VA_ARGS__))
/* A constant: a scalar, or a tensor filled with it. */
#define sn_scalar(m, dtype, value) sn_full_at(SN_HERE, m, dtype, value, SN_DIMS(SN_SCALAR))
#define sn_full(m, dtype, value, ...) sn_full_at(SN_HERE, m, dtype, value, SN_DIMS(__VA_ARGS__))
/* A constant array, from an array of doubles (not a pointer), row-major; at most 256 elements:
 * sn_array(m, SN_F32, ((double[]){1, 4, 6, 4, 1}), 5). Larger ones are parameters. */
#define sn_array(m, dtype, values, ...)                                                            \
    sn_array_at(SN_HERE, m, dtype, (int64_t)(sizeof(values) / sizeof *(values)), values,           \
                SN_DIMS(__VA_ARGS__))
/* sn_arange: 0, 1, … n-1 [n]. sn_iota: any shape, y[i…] = i[axis]. */
#define sn_arange(m, dtype, n) sn_iota_at(SN_HERE, m, dtype, 0, SN_DIMS(n))
#define sn_iota(m, dtype, axis, ...) sn_iota_at(SN_HERE, m, dtype, axis, SN_DIMS(__VA_ARGS__))
/* Uniform samples in [0, 1), f32, of the given shape. rng: i64[2] = seed, step. Two calls are
 * independent of each other; the same seed and step reproduce the samples. Counter-based
 * (Philox). */
#define sn_uniform(rng, ...) sn_uniform_at(SN_HERE, rng, SN_DIMS(__VA_ARGS__))

sn_tensor sn_input_at(sn_loc, sn_module *, const char *name, sn_dtype, const sn_dim *shape);
sn_tensor sn_param_at(sn_loc, sn_module *, const char *name, sn_dtype, const sn_dim *shape);
sn_tensor sn_state_at(sn_loc, sn_module *, const char *name, sn_dtype, const sn_dim *shape);
sn_tensor sn_full_at(sn_loc, sn_module *, sn_dtype, double value, const sn_dim *shape);
sn_tensor sn_array_at(sn_loc, sn_module *, sn_dtype, int64_t n, const double *values,
                      const sn_dim *shape);
sn_tensor sn_iota_at(sn_loc, sn_module *, sn_dtype, int axis, const sn_dim *shape);
sn_tensor sn_uniform_at(sn_loc, sn_tensor rng, const sn_dim *shape);

/* ---- entries: the functions of the compiled program; they share parameters and states ---- */

/* Starts an entry; the outputs, assignments and taps that follow belong to it. Its inputs are those
 * that its outputs and states depend on. */
#define sn_entry_begin(m, name) sn_entry_begin_at(SN_HERE, m, name)
#define sn_output(name, x) sn_output_at(SN_HERE, name, x) /* an output of the current entry */
/* Sets the state's value after the run. A parameter may be assigned too. Then each session works on
 * its own copy (sn_state_read and sn_state_write take the parameter's name), and values that depend
 * on the parameter are computed at each run, not when the session is opened. */
#define sn_assign(state, x) sn_assign_at(SN_HERE, state, x)
/* Gives x a name (scope, then a printf format) under which it can be read out; returns x. Costs
 * nothing unless sn_options.taps requests it. */
#define sn_name(x, ...) sn_name_at(SN_HERE, x, __VA_ARGS__)
/* Accepts that the operations of the line that made x (for a result of sn_scan: of the line of the loop) are not
 * fused where `explain` says `not fused`: it says `accepted`, and strict fusion lets them pass, at every level and in
 * every entry. Returns x. If nothing in that line is unfused, a note says so. */
#define sn_accept_unfused(x) sn_accept_unfused_at(SN_HERE, x)
/* What x is, for those who use the model: an input, a parameter, a state or a result of the current entry (before or
 * after sn_output); of other tensors nothing is said. One line, for example "loudness in dB, one row for each 10 ms". It
 * stands in comments of NAME.h; of inputs and results also in NAME.d.ts, in `sinter inspect`, and in errors that refuse
 * an input. A later text replaces it. Returns x. sn_describe_dim: the same of a symbol, in the current entry, or before
 * the first one in all (`sinter inspect MODEL.c` shows only the latter, --json neither); returns d. */
#define sn_describe(x, text) sn_describe_at(SN_HERE, x, text)
#define sn_describe_dim(m, d, text) sn_describe_dim_at(SN_HERE, m, d, text)
sn_tensor sn_describe_at(sn_loc, sn_tensor x, const char *text);
sn_dim sn_describe_dim_at(sn_loc, sn_module *m, sn_dim d, const char *text);
void sn_entry_begin_at(sn_loc, sn_module *m, const char *name);
void sn_output_at(sn_loc, const char *name, sn_tensor x);
void sn_assign_at(sn_loc, sn_tensor state, sn_tensor x);
sn_tensor sn_accept_unfused_at(sn_loc, sn_tensor x);
sn_tensor sn_name_at(sn_loc, sn_tensor x, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- operations of the op table ---- */

/* frontend/ops.h declares sn_NAME for the rows of the op table (ir/ops.def), with their formulas. The
 * build generates it. Elementwise: sn_tanh(x) has the shape of x. Two operands, at least one of them
 * a tensor: sn_add(x, y), sn_mul(x, 0.5), sn_sub(1, x), sn_div(x, T) with sn_dim T; the result has
 * their common shape, and comparisons give bool. Composites: sn_softmax(x, axis), sn_linear(x, w,
 * b), sn_layer_norm(x, gain, bias, eps), ... */
#define SN_UNARY(name) sn_tensor sn_##name##_at(sn_loc, sn_tensor x);
#define SN_BINARY(name) sn_tensor sn_##name##_at(sn_loc, sn_operand x, sn_operand y);
#include "frontend/ops.h"

/* ---- elementwise operations with other operands ---- */

#define sn_square(x) sn_square_at(SN_HERE, x)           /* x x */
#define sn_cast(x, dtype) sn_cast_at(SN_HERE, x, dtype) /* converts the element type */
/* x^n for a C int n, by products: floats -64 … 64, integers 0 … 64 */
#define sn_powi(x, n) sn_powi_at(SN_HERE, x, n)
#define sn_log_sigmoid(x) sn_log_sigmoid_at(SN_HERE, x) /* ln sigmoid(x), precise for any x */
/* arc sine within [-pi/2, pi/2], arc cosine within [0, pi]; NaN outside [-1, 1] */
#define sn_asin(x) sn_asin_at(SN_HERE, x)
#define sn_acos(x) sn_acos_at(SN_HERE, x)
#define sn_gt(x, y) sn_lt(y, x) /* x > y */
#define sn_ge(x, y) sn_le(y, x) /* x >= y */
/* cond ? x : y; cond is bool; x and y are tensors or numbers; all three broadcast */
#define sn_where(cond, x, y) sn_where_at(SN_HERE, cond, SN_OPERAND(x), SN_OPERAND(y))

sn_tensor sn_square_at(sn_loc, sn_tensor x), sn_cast_at(sn_loc, sn_tensor x, sn_dtype t),
    sn_powi_at(sn_loc, sn_tensor x, int n), sn_log_sigmoid_at(sn_loc, sn_tensor x),
    sn_asin_at(sn_loc, sn_tensor x), sn_acos_at(sn_loc, sn_tensor x),
    sn_where_at(sn_loc, sn_tensor cond, sn_operand x, sn_operand y);

/* ---- reductions over the listed axes (removed; kept as size 1 by the _keep forms) ---- */

#define sn_sum(x, ...) sn_sum_at(SN_HERE, x, SN_AXES(__VA_ARGS__), false)
#define sn_mean(x, ...) sn_mean_at(SN_HERE, x, SN_AXES(__VA_ARGS__), false)
/* divides by the number of elements */
#define sn_variance(x, ...) sn_variance_at(SN_HERE, x, SN_AXES(__VA_ARGS__), false)
/* -inf if there are no elements */
#define sn_amax(x, ...) sn_amax_at(SN_HERE, x, SN_AXES(__VA_ARGS__), false)
/* +inf if there are no elements */
#define sn_amin(x, ...) sn_amin_at(SN_HERE, x, SN_AXES(__VA_ARGS__), false)
#define sn_sum_keep(x, ...) sn_sum_at(SN_HERE, x, SN_AXES(__VA_ARGS__), true)
#define sn_mean_keep(x, ...) sn_mean_at(SN_HERE, x, SN_AXES(__VA_ARGS__), true)
#define sn_variance_keep(x, ...) sn_variance_at(SN_HERE, x, SN_AXES(__VA_ARGS__), true)
#define sn_amax_keep(x, ...) sn_amax_at(SN_HERE, x, SN_AXES(__VA_ARGS__), true)
#define sn_amin_keep(x, ...) sn_amin_at(SN_HERE, x, SN_AXES(__VA_ARGS__), true)
#define sn_sum_all(x) sn_sum_at(SN_HERE, x, NULL, false)   /* over all axes: a scalar */
#define sn_mean_all(x) sn_mean_at(SN_HERE, x, NULL, false) /* over all axes: a scalar */
/* i32 index of the first maximum along the axis, which is removed */
#define sn_argmax(x, axis) sn_argmax_at(SN_HERE, x, axis)
/* inclusive prefix sum along the axis; x's shape */
#define sn_cumsum(x, axis) sn_cumsum_at(SN_HERE, x, axis)
/* ln of the sum of e^x along the axis, which is removed */
#define sn_logsumexp(x, axis) sn_logsumexp_at(SN_HERE, x, axis)
/* Sparse relatives of softmax along the axis: max(x - t, 0) [Martins & Astudillo 2016] and max(x / 2 - t, 0)^2
 * [entmax for alpha = 1.5, Peters et al. 2019] with the t that makes their sum 1: by 12 bisections and three steps
 * of Newton, whose last one has the gradient. A row that is -inf everywhere gives 0. */
#define sn_sparsemax(x, axis) sn_sparsemax_at(SN_HERE, x, axis)
#define sn_entmax(x, axis) sn_entmax_at(SN_HERE, x, axis)

sn_tensor sn_sum_at(sn_loc, sn_tensor, const int *axes, bool keep),
    sn_mean_at(sn_loc, sn_tensor, const int *axes, bool keep),
    sn_variance_at(sn_loc, sn_tensor, const int *axes, bool keep),
    sn_amax_at(sn_loc, sn_tensor, const int *axes, bool keep),
    sn_amin_at(sn_loc, sn_tensor, const int *axes, bool keep);
sn_tensor sn_argmax_at(sn_loc, sn_tensor, int axis), sn_cumsum_at(sn_loc, sn_tensor, int axis),
    sn_logsumexp_at(sn_loc, sn_tensor, int axis), sn_sparsemax_at(sn_loc, sn_tensor, int axis),
    sn_entmax_at(sn_loc, sn_tensor, int axis);

/* ---- loops over an axis ---- */

/* Runs `body` for one element of each sequence after the other: x[i][.., t, ..] for t = 0 .. T - 1 on
 * the axis, and what it made of the carries before. The body is called once, when the graph is
 * built, and describes an iteration; it may use any other tensor. Results: the carries after the last
 * element, and y[i] of all elements, joined on the axis. With .count = T instead of .x there are no
 * sequences, and the body reads its number, s->index.
 *
 *     static void step(sn_scan_step *s) {
 *         s->next[0] = sn_add(sn_mul(s->x[0], s->carry[0]), s->x[1]);
 *         s->y[0] = s->next[0];
 *     }
 *     sn_scanned r = sn_scan(.carry = {h}, .x = {decay, x}, .axis = 1, .body = step);
 *
 * Axes that the body treats independently (batches, heads, channels) are divided among the threads;
 * the carries stay in the cache. The gradient keeps few of the carries, and computes the others again.
 * To decode, begin with a state and assign it r.carry[0]. */
#define sn_scan(...) sn_scan_at(SN_HERE, &(const sn_scan_args){__VA_ARGS__})

#define SN_MAX_SCAN 8
typedef struct sn_scan_step {
    sn_module *m;
    const sn_tensor *carry; /* before this element */
    const sn_tensor *x;     /* this element of each sequence, without the axis */
    sn_tensor index;        /* t, an i32 scalar */
    sn_tensor *next;        /* to be set: each carry after this element, of its type */
    sn_tensor *y;           /* may be set from y[0] on: outputs of this element */
    const void *user;
} sn_scan_step;
typedef void (*sn_scan_fn)(sn_scan_step *s);
typedef struct sn_scan_args {
    sn_tensor carry[SN_MAX_SCAN]; /* before the first element; NULL-terminated */
    sn_tensor x[SN_MAX_SCAN];     /* sequences of one length; NULL-terminated */
    sn_dim count; /* without sequences: the number of iterations; at least one carry is needed */
    int axis;     /* of the sequences and outputs; negative: counted from the end of x[0]'s */
    bool reverse; /* from the last element to the first */
    sn_scan_fn body;
    const void *user; /* passed to the body */
} sn_scan_args;
typedef struct sn_scanned {
    sn_tensor carry[SN_MAX_SCAN], y[SN_MAX_SCAN]; /* those after the last are NULL */
} sn_scanned;
sn_scanned sn_scan_at(sn_loc, const sn_scan_args *);

/* Running results along an axis, of x's shape: y[t] combines x[0] to x[t], from level 2 on perhaps
 * blocks of them first, which rounds differently; floats, i32 or i64. The gradient of a maximum goes to
 * the element that it is. */
#define sn_cumprod(x, axis) sn_cumprod_at(SN_HERE, x, axis)
#define sn_cummax(x, axis) sn_cummax_at(SN_HERE, x, axis)
#define sn_cummin(x, axis) sn_cummin_at(SN_HERE, x, axis)
/* ln of the running sum of e^x, without overflow; floats. Infinities count as the numbers they are:
 * -inf adds nothing, and its gradient is 0. */
#define sn_cumlogsumexp(x, axis) sn_cumlogsumexp_at(SN_HERE, x, axis)
/* The same, with options: sn_cumulate(x, .axis = 1, .op = SN_CUMSUM, .reverse = true). */
#define sn_cumulate(x, ...) sn_cumulate_at(SN_HERE, x, &(const sn_cumulate_args){__VA_ARGS__})
typedef enum sn_cumulation { SN_CUMSUM, SN_CUMPROD, SN_CUMMAX, SN_CUMMIN } sn_cumulation;
typedef sn_tensor (*sn_combine_fn)(sn_tensor before, sn_tensor x, const void *user);
typedef struct sn_cumulate_args {
    int axis;
    sn_cumulation op;
    bool reverse;   /* y[t] combines the last element to x[t] */
    bool exclusive; /* without x[t] itself: the first y is what no element gives */
    bool
        associative; /* `combine` is: it may combine results of blocks, too, which rounds differently */
    sn_combine_fn
        combine;      /* instead of `op`: called once, on one element, as the body of sn_scan */
    double first;     /* with `combine` or a sum: the result before the first element */
    const void *user; /* passed to `combine` */
} sn_cumulate_args;
sn_tensor sn_cumulate_at(sn_loc, sn_tensor, const sn_cumulate_args *),
    sn_cumprod_at(sn_loc, sn_tensor, int axis), sn_cummax_at(sn_loc, sn_tensor, int axis),
    sn_cummin_at(sn_loc, sn_tensor, int axis), sn_cumlogsumexp_at(sn_loc, sn_tensor, int axis);

/* ---- ranks ---- */

/* Every rank of the mesh axis runs the same program on values of its own and gets: the sum of x over
 * the ranks; x of all ranks, one after another on the axis; its part, on the axis, of the sum; from
 * each rank the part that is meant for it. ranks: the size of the axis; 1: y is x. The size of a
 * divided axis must be a constant, for all_to_all a multiple of it; for reduce_scatter, parts have
 * the size / ranks, rounded up, with zeros at the end. Sums have one order, whatever carries them. The
 * gradient is that of the sum of all ranks' losses. */
#define sn_all_reduce(x, mesh, ranks) sn_all_reduce_at(SN_HERE, x, mesh, ranks)
#define sn_all_gather(x, axis, mesh, ranks) sn_all_gather_at(SN_HERE, x, axis, mesh, ranks)
#define sn_reduce_scatter(x, axis, mesh, ranks) sn_reduce_scatter_at(SN_HERE, x, axis, mesh, ranks)
#define sn_all_to_all(x, axis, mesh, ranks) sn_all_to_all_at(SN_HERE, x, axis, mesh, ranks)
sn_tensor sn_all_reduce_at(sn_loc, sn_tensor, const char *mesh, int64_t ranks),
    sn_all_gather_at(sn_loc, sn_tensor, int axis, const char *mesh, int64_t ranks),
    sn_reduce_scatter_at(sn_loc, sn_tensor, int axis, const char *mesh, int64_t ranks),
    sn_all_to_all_at(sn_loc, sn_tensor, int axis, const char *mesh, int64_t ranks);
/* x of the rank that is `shift` further on the axis, -ranks < shift < ranks. wrap: the axis is a ring;
 * otherwise a rank that has no such neighbour gets zeros. */
#define sn_collective_permute(x, shift, wrap, mesh, ranks)                                         \
    sn_collective_permute_at(SN_HERE, x, shift, wrap, mesh, ranks)
sn_tensor sn_collective_permute_at(sn_loc, sn_tensor, int64_t shift, bool wrap, const char *mesh,
                                   int64_t ranks);
/* x of rank `root` on all ranks, whatever theirs is: what one rank alone has read or drawn. And the sum
 * of all ranks' x on rank `root`, zeros on the others. Each is the other's gradient. */
#define sn_collective_broadcast(x, root, mesh, ranks)                                              \
    sn_collective_broadcast_at(SN_HERE, x, root, mesh, ranks)
#define sn_collective_reduce(x, root, mesh, ranks)                                                 \
    sn_collective_reduce_at(SN_HERE, x, root, mesh, ranks)
sn_tensor sn_collective_broadcast_at(sn_loc, sn_tensor, int64_t root, const char *mesh,
                                     int64_t ranks),
    sn_collective_reduce_at(sn_loc, sn_tensor, int64_t root, const char *mesh, int64_t ranks);
/* This rank's number on the axis, from 0: i32 []. For positions: those of rank r begin at r T. */
#define sn_mesh_rank(m, mesh, ranks) sn_mesh_rank_at(SN_HERE, m, mesh, ranks)
sn_tensor sn_mesh_rank_at(sn_loc, sn_module *, const char *mesh, int64_t ranks);
/* i32 [T]: the positions of this rank's rows, of T ranks in all; zigzag: T must be even, see sn_attention. */
#define sn_mesh_positions(m, T, zigzag, mesh, ranks)                                               \
    sn_mesh_positions_at(SN_HERE, m, T, zigzag, mesh, ranks)
sn_tensor sn_mesh_positions_at(sn_loc, sn_module *, sn_dim T, bool zigzag, const char *mesh,
                               int64_t ranks);

/* The mesh of ranks that the program is for: up to four named axes with their sizes, the last one
 * first in the order of ranks: sn_mesh(m, "data", 2, "tensor", 4) is for 8 ranks, and 0 to 3
 * share the first batch. Call it before the tensors that it divides are made. An axis that the module
 * already has must have the same size. Rank 0 unless sn_mesh_place says otherwise. */
#define sn_mesh(m, ...)                                                                            \
    sn_mesh_at(SN_HERE, m,                                                                         \
               (const sn_mesh_axis[]){SN_MESH_PICK(__VA_ARGS__, SN_MESH_4, _, SN_MESH_3, _,        \
                                                   SN_MESH_2, _, SN_MESH_1, _)(__VA_ARGS__),       \
                                      {NULL, 0, 0}})
#define SN_MESH_PICK(a, b, c, d, e, f, g, h, pick, ...) pick
#define SN_MESH_1(name, size)                                                                      \
    { name, size, 0 }
#define SN_MESH_2(name, size, ...) {name, size, 0}, SN_MESH_1(__VA_ARGS__)
#define SN_MESH_3(name, size, ...) {name, size, 0}, SN_MESH_2(__VA_ARGS__)
#define SN_MESH_4(name, size, ...) {name, size, 0}, SN_MESH_3(__VA_ARGS__)
/* The program is for this rank of the mesh, 0 to the product of the axes less 1. */
#define sn_mesh_place(m, rank) sn_mesh_place_at(SN_HERE, m, rank)
/* axis: ends with a name of NULL; `rank` is the program's place on the axis. */
void sn_mesh_at(sn_loc, sn_module *m, const sn_mesh_axis *axis),
    sn_mesh_place_at(sn_loc, sn_module *m, int64_t rank);
int64_t sn_mesh_size(sn_module *m, const char *mesh); /* of an axis; 1 if there is none */

/* x, whose axis is divided among the ranks of the mesh axis: rank r holds the r-th part. Divide
 * parameters, or activations; compiling finds how everything between is divided, gives each rank its
 * own, smaller program, and places the collectives. Results are those of one rank, up to the rounding
 * of sums. A size that is not a multiple of the ranks leaves the last rank a smaller part. Sessions
 * read their rank's slice of a divided parameter. Without such a mesh axis: x.
 * sn_shard_parts: the axis consists of parts of these sizes, each divided, as in a matrix for queries,
 * keys and values: sn_shard_parts(w, 0, "tensor", d, d, d). They must be multiples of the ranks.
 * Positions may be divided, too: after sn_shard(x, 1, "context") of activations [B, T, d] each rank
 * computes its part of the positions. In sn_attention keys and values travel from rank to rank (as with
 * .mesh there), if they are divided as queries are; operations that mix positions otherwise (a
 * convolution, a scan) gather them. T must be a number.
 * sn_shard_zigzag: of 2 R equal parts rank r holds the r-th from the start and the r-th from the end, so
 * that causal attention is equal work for all R ranks. The axis must be a multiple of 2 R. */
#define sn_shard(x, axis, mesh) sn_shard_at(SN_HERE, x, axis, mesh, SN_DIMS(SN_END))
#define sn_shard_parts(x, axis, mesh, ...) sn_shard_at(SN_HERE, x, axis, mesh, SN_DIMS(__VA_ARGS__))
#define sn_shard_zigzag(x, axis, mesh) sn_shard_zigzag_at(SN_HERE, x, axis, mesh)
sn_tensor sn_shard_at(sn_loc, sn_tensor x, int axis, const char *mesh, const sn_dim *parts),
    sn_shard_zigzag_at(sn_loc, sn_tensor x, int axis, const char *mesh);

/* ---- shapes ---- */

/* The same elements in row-major order: sn_reshape(x, B, T, 12, 64); one size may be SN_REST. */
#define sn_reshape(x, ...) sn_reshape_at(SN_HERE, x, SN_DIMS(__VA_ARGS__))
/* Axis i of y is axis perm[i] of x: sn_transpose(x, 0, 2, 1, 3). */
#define sn_transpose(x, ...) sn_transpose_at(SN_HERE, x, SN_AXES(__VA_ARGS__))
#define sn_swap(x, axis1, axis2) sn_swap_at(SN_HERE, x, axis1, axis2) /* swaps two axes */
#define sn_broadcast(x, ...) sn_broadcast_at(SN_HERE, x, SN_DIMS(__VA_ARGS__))
#define sn_expand(x, axis) sn_expand_at(SN_HERE, x, axis)   /* inserts an axis of size 1 */
#define sn_squeeze(x, axis) sn_squeeze_at(SN_HERE, x, axis) /* removes an axis of size 1 */
/* `size` elements from `start` along one axis; sn_slice_step takes every step-th element. */
#define sn_slice(x, axis, start, size) sn_slice_at(SN_HERE, x, axis, start, size, 1)
#define sn_slice_step(x, axis, start, size, step) sn_slice_at(SN_HERE, x, axis, start, size, step)
#define sn_index(x, axis, i) sn_index_at(SN_HERE, x, axis, i) /* element i of an axis (removed) */
#define sn_flip(x, axis) sn_flip_at(SN_HERE, x, axis)         /* the last element first */
/* Splits an axis into n equal parts, part[0 … n-1]. */
#define sn_split(x, axis, n, part) sn_split_at(SN_HERE, x, axis, n, part)
#define sn_concat(axis, ...) sn_concat_at(SN_HERE, axis, SN_TENSORS(__VA_ARGS__))
/* along a new axis */
#define sn_stack(axis, ...) sn_stack_at(SN_HERE, axis, SN_TENSORS(__VA_ARGS__))
/* Adds `low` elements before x and `high` after it along one axis, filled with value. */
#define sn_pad(x, axis, low, high, value) sn_pad_at(SN_HERE, x, axis, low, high, value)
/* x with y written at the given start, one number per axis: sn_update(cache, k, 0, 0, P, 0). */
#define sn_update(x, y, ...) sn_update_at(SN_HERE, x, y, SN_DIMS(__VA_ARGS__))
/* x [R, ..] with row b of y [B, ..], B <= R, written into its row b, from position ids[b] of the axis
 * on: caches of sequences that differ in length. ids: integers [B], within the axis. Its gradient is
 * 0, as `explain` notes. */
#define sn_update_rows(x, axis, y, ids) sn_update_rows_at(SN_HERE, x, axis, y, ids)

sn_tensor sn_reshape_at(sn_loc, sn_tensor, const sn_dim *shape),
    sn_transpose_at(sn_loc, sn_tensor, const int *perm), sn_swap_at(sn_loc, sn_tensor, int, int),
    sn_broadcast_at(sn_loc, sn_tensor, const sn_dim *shape),
    sn_expand_at(sn_loc, sn_tensor, int axis), sn_squeeze_at(sn_loc, sn_tensor, int axis),
    sn_slice_at(sn_loc, sn_tensor, int axis, sn_dim start, sn_dim size, int64_t step),
    sn_index_at(sn_loc, sn_tensor, int axis, sn_dim i), sn_flip_at(sn_loc, sn_tensor, int axis),
    sn_concat_at(sn_loc, int axis, const sn_tensor *x),
    sn_stack_at(sn_loc, int axis, const sn_tensor *x),
    sn_pad_at(sn_loc, sn_tensor, int axis, sn_dim low, sn_dim high, double value),
    sn_update_at(sn_loc, sn_tensor x, sn_tensor y, const sn_dim *start),
    sn_update_rows_at(sn_loc, sn_tensor x, int axis, sn_tensor y, sn_tensor ids);
void sn_split_at(sn_loc, sn_tensor, int axis, int n, sn_tensor *part);

/* ---- products, convolutions and look-ups ---- */

/* Labels name axes: sn_einsum("bhqd,bhkd->bhqk", q, k). Labels in both operands and the result are
 * batch axes; labels in both operands only are summed over. Without any, as in "bi,bj->bij", the result
 * is an elementwise product. A label occurs at most once per operand. */
#define sn_einsum(spec, x, y) sn_einsum_at(SN_HERE, spec, x, y)
/* X of A X = b for a triangular A: a [.., T, T], b [.., T, n] -> [.., T, n]; leading axes are broadcast. Options
 * follow b: sn_solve_triangular(a, b, .unit = true). Without them A is what a has on and below its diagonal. The
 * rest of a is not read. Types narrower than f32 are computed in f32. */
#define sn_solve_triangular(a, ...)                                                                \
    sn_solve_triangular_at(SN_HERE, a, (sn_triangular_options){.b = __VA_ARGS__})
typedef struct sn_triangular_options {
    sn_tensor b;
    bool upper;      /* A is what a has on and above its diagonal */
    bool transposed; /* solves A^T X = b */
    bool unit;       /* A has ones on its diagonal, whatever a has there */
} sn_triangular_options;
sn_tensor sn_solve_triangular_at(sn_loc, sn_tensor a, sn_triangular_options);
/* 2-D convolution: x [B, C, H, W], w [O, C / groups, kh, kw] -> [B, O, Ho, Wo] with Ho = floor((H +
 * 2 padding - dilation (kh - 1) - 1) / stride) + 1; x is zero-padded. Options follow w:
 * sn_conv2d(x, w, bias, .stride = {2, 2}, .padding = {1, 1}); pairs are height, width. A symbolic H
 * or W must divide exactly. For one dimension use H = kh = 1. [LeCun 1989; as a
 * cross-correlation] */
#define sn_conv2d(x, w, ...) sn_conv2d_at(SN_HERE, x, w, (sn_conv2d_options){.bias = __VA_ARGS__})
typedef struct sn_conv2d_options {
    sn_tensor bias;                             /* [O] or NULL */
    int64_t stride[2], padding[2], dilation[2]; /* 0 in stride or dilation: 1 */
    /* 0: 1; grouped convolution: C and O are split into this many independent groups */
    int64_t groups;
} sn_conv2d_options;
sn_tensor sn_conv2d_at(sn_loc, sn_tensor x, sn_tensor w, sn_conv2d_options);
/* 3-D convolution: x [B, C, D, H, W], w [O, C / groups, kd, kh, kw], as the 2-D one of the kd slices that each
 * element of the new D needs, side by side as channels. Triples are depth, height, width; D is a number. */
#define sn_conv3d(x, w, ...) sn_conv3d_at(SN_HERE, x, w, (sn_conv3d_options){.bias = __VA_ARGS__})
typedef struct sn_conv3d_options {
    sn_tensor bias;
    int64_t stride[3], padding[3], dilation[3], groups; /* as of sn_conv2d */
} sn_conv3d_options;
sn_tensor sn_conv3d_at(sn_loc, sn_tensor x, sn_tensor w, sn_conv3d_options);
/* Slices of x along an axis at integer indices: the shape of ids replaces the axis. */
#define sn_gather(x, axis, ids) sn_gather_at(SN_HERE, x, axis, ids)
/* The transpose of sn_gather: a tensor with n zeros along the axis, to which the slices of x are
 * added at ids, in order. */
#define sn_scatter_add(x, axis, ids, n) sn_scatter_add_at(SN_HERE, x, axis, ids, n)
/* The same with the largest of the slices of each index (-inf without one, or the least integer), and
 * with their product (1 without one). Equal maxima share the gradient. Not of u8 and bool. */
#define sn_scatter_max(x, axis, ids, n) sn_scatter_max_at(SN_HERE, x, axis, ids, n)
#define sn_scatter_product(x, axis, ids, n) sn_scatter_product_at(SN_HERE, x, axis, ids, n)
/* Single elements: sn_at(table, i, j) takes one integer tensor per axis, of shapes that broadcast;
 * the result has their common shape. sn_take_along reads one axis at integers of its own for each
 * element: y[.., j, ..] = x[.., ids[.., j, ..], ..], where ids has x's shape but for the axis. */
#define sn_at(x, ...) sn_at_at(SN_HERE, x, SN_TENSORS(__VA_ARGS__))
#define sn_take_along(x, axis, ids) sn_take_along_at(SN_HERE, x, axis, ids)

/* Orders along an axis. Equal elements keep their order (0 and -0 are equal); NaN is above all
 * numbers: last in ascending order, first in descending. sn_sort gives the elements, x's shape and
 * type; sn_argsort their indices, i32. The gradient of an element of x is that of its place. */
#define sn_sort(x, axis, descending) sn_sort_at(SN_HERE, x, axis, descending)
#define sn_argsort(x, axis, descending) sn_argsort_at(SN_HERE, x, axis, descending)
/* The k largest elements along the last axis, in descending order as above, and their indices, i32:
 * x [.., n] -> [.., k] each. Of equal elements the first. index may be NULL. k is an integer or a
 * dim, from 1 to n. For another axis, sn_transpose it to the end: that costs nothing. */
#define sn_top_k(x, k, index) sn_top_k_at(SN_HERE, x, k, index)
/* Reads the last axis of x [.., blocks d] as equal blocks and returns those whose numbers are in
 * index [.., k]: [.., k, d]. If x is a linear map of constant weights (and elementwise operations
 * on it), a compiled program computes the selected blocks only. */
#define sn_take_blocks(x, index, blocks) sn_take_blocks_at(SN_HERE, x, index, blocks)
/* Linear maps selected row by row: w [experts, out, in], index [.., k] integers from 0 to
 * experts - 1. x [.., in]: y[.., j, :] = w[index[.., j]] x[.., :]. x [.., k, in]: y[.., j, :] =
 * w[index[.., j]] x[.., j, :]. The result is [.., k, out]. A compiled program reads and computes the
 * selected maps only, at every level and any number of rows, in training too: the gradients of x and
 * of w are grouped products. Elementwise operations between the map and sn_take_blocks undo that in
 * training. [Shazeer et al. 2017] */
#define sn_expert_linear(x, w, index) sn_expert_linear_at(SN_HERE, x, w, index)
/* One matrix for each row: w [groups, out, in], group [..] integers from 0 to groups - 1, x [.., in]:
 * y[.., :] = w[group[..]] x[.., :], of shape [.., out]. As sn_expert_linear with k = 1: adapters of
 * the sequences of a batch, for instance. */
#define sn_grouped_matmul(x, w, group) sn_grouped_matmul_at(SN_HERE, x, w, group)

sn_tensor sn_top_k_at(sn_loc, sn_tensor, sn_dim k, sn_tensor *index),
    sn_sort_at(sn_loc, sn_tensor, int axis, bool descending),
    sn_argsort_at(sn_loc, sn_tensor, int axis, bool descending),
    sn_take_blocks_at(sn_loc, sn_tensor, sn_tensor index, int64_t blocks),
    sn_expert_linear_at(sn_loc, sn_tensor x, sn_tensor w, sn_tensor index),
    sn_grouped_matmul_at(sn_loc, sn_tensor x, sn_tensor w, sn_tensor group);
sn_tensor sn_einsum_at(sn_loc, const char *spec, sn_tensor, sn_tensor),
    sn_gather_at(sn_loc, sn_tensor, int axis, sn_tensor ids),
    sn_scatter_add_at(sn_loc, sn_tensor, int axis, sn_tensor ids, sn_dim n),
    sn_scatter_max_at(sn_loc, sn_tensor, int axis, sn_tensor ids, sn_dim n),
    sn_scatter_product_at(sn_loc, sn_tensor, int axis, sn_tensor ids, sn_dim n),
    sn_at_at(sn_loc, sn_tensor, const sn_tensor *index),
    sn_take_along_at(sn_loc, sn_tensor, int axis, sn_tensor ids);

/* (1 - s) cross_entropy(x, target) + s times its mean over all classes as targets
 * [Szegedy et al. 2016]; 0 for a target outside [0, V). s: a number in [0, 1). */
#define sn_smooth_cross_entropy(x, target, s) sn_smooth_cross_entropy_at(SN_HERE, x, target, s)
sn_tensor sn_smooth_cross_entropy_at(sn_loc, sn_tensor x, sn_tensor target, double s);

/* ---- gradients ---- */

/* out[i] = d loss / d wrt[i] for i < n, with wrt[i]'s type and shape. The results are ordinary
 * tensors: any entry, and another sn_grad, may use them. loss: a float scalar. wrt: float tensors
 * that the loss depends on: parameters, inputs, intermediate values, tensors captured by
 * sn_attention. If the loss does not depend on wrt[i], out[i] is zero and `explain` notes it; the
 * return value counts these. Equal tensors are one tensor: the gradient of exp(x) covers every
 * exp(x) in the module.
 *
 * Attention written in plain operations gets the memory-efficient gradient of sn_attention (the
 * weights are not stored) if wrt contains only parameters, inputs and states.
 *
 * Non-differentiable points: relu, abs, sign, floor, … have slope 0 there; equal operands of sn_max
 * and sn_min get half the gradient each; elements that attain sn_amax or sn_amin share it equally.
 * Keys hidden from sn_attention, rows without a visible key, and targets outside the vocabulary get
 * gradient zero, never NaN, even if the score callback returns NaN there. sn_where follows the
 * chain rule: where(mask, log1p(x), -inf) has gradient 0 times the slope of log1p on the masked
 * side, which is NaN where that slope is not finite. Mask the argument instead: log1p(where(mask,
 * x, 0)). */
#define sn_grad(loss, n, wrt, out) sn_grad_at(SN_HERE, loss, n, wrt, out)
int sn_grad_at(sn_loc, sn_tensor loss, int n, const sn_tensor *wrt, sn_tensor *out);
/* Stores the parameters that x depends on, at most `max` of them, in the order of declaration
 * (sn_name_of returns their names). Returns their number, which may exceed max. */
int sn_params_of(sn_tensor x, int max, sn_tensor *out);
/* Adds the entry `name` with the gradients of `entry`: from its inputs and "weights.OUTPUT", the gradient of a loss
 * with respect to each of its float outputs, to "gradient.NAME" for each float input and parameter (vector-Jacobian
 * products). Returns the number of these; 0: there is nothing to differentiate; -1: err. */
int sn_entry_vjp(sn_module *m, const char *entry, const char *name, sn_error *err);
/* Makes every parameter of the module an input of its name, type and shape: for callers that keep the parameters
 * themselves and change them between runs. The last step before compiling; no entry may assign a parameter.
 * Stores the names of those that entries read, at most `max` of them; the module owns them. Returns their number. */
int sn_params_to_inputs(sn_module *m, int max, const char **names);

#include "frontend/optim.h" /* training: optimizers */

/* ---- rotary positions ---- */

/* Rotary positions [TSE]: x [B, .., T, d], pos [T] or [B, T]. Pair i is rotated by the angle pos
 * base^(-2i/d), .base = 10000, or pos .freq[i], .freq floats [d/2]. .halves = true: pairs are (i, i + d/2), as in Hugging Face;
 * otherwise (2i, 2i+1). To rotate some columns only: sn_slice, sn_rope, sn_concat, which is one operation from level 2 on. */
#define sn_rope(x, ...) sn_rope_at(SN_HERE, x, (sn_rope_options){.pos = __VA_ARGS__})
typedef struct sn_rope_options {
    sn_tensor pos;
    double base; /* 0: 10000 */
    bool halves;
    sn_tensor freq; /* NULL: base */
} sn_rope_options;
sn_tensor sn_rope_at(sn_loc, sn_tensor x, sn_rope_options);

/* ---- attention [PH22 A3, A4, A5] ---- */

/* softmax(scale q k^T, with score and mask applied) v: q [B, H, Tq, d], k [B, Hk, Tk, d], v [B, Hk,
 * Tk, dv] -> [B, H, Tq, dv]. Hk divides H: query head h uses K/V head h / (H / Hk). Options follow
 * v: sn_attention(q, k, v, .causal = true, .score = alibi, .captured = {slopes}). A query without a
 * visible key gives 0. The same attention written as matmul, sn_where, sn_softmax, matmul compiles
 * to the same kernel. */
#define sn_attention(q_, k_, ...)                                                                  \
    sn_attention_at(SN_HERE, &(const sn_attention_args){.q = q_, .k = k_, .v = __VA_ARGS__})

#define SN_MAX_CAPTURED 8
/* One score and its indices, as scalars, passed to the callbacks. */
typedef struct sn_score_ctx {
    sn_module *m;
    sn_tensor score;           /* scaled q k, f32 (f64 if q is f64); NULL in a mask callback */
    sn_tensor b, h, q, k;      /* i32 indices: batch, query head, query, key */
    sn_dim n_q, n_k;           /* numbers of queries and keys */
    sn_tensor past;            /* keys before the first query, i32; NULL: n_k - n_q */
    const sn_tensor *captured; /* the captured tensors; read them with sn_at */
    const void *user;
} sn_score_ctx;
/* Returns the new score (a scalar of the score's type), or whether the key is visible (bool). May
 * use only the context, numbers and sn_at(captured[i], …). It is called once, when the graph is
 * built. */
typedef sn_tensor (*sn_score_fn)(const sn_score_ctx *c);
/* In a callback: the distance from the key to the query in positions, i32. The last query is at the
 * position of the last key (or where .past puts it), so this also holds with a KV cache. Negative:
 * the key is in the future. */
#define sn_query_key_distance(c) sn_query_key_distance_at(SN_HERE, c)
sn_tensor sn_query_key_distance_at(sn_loc, const sn_score_ctx *c);

/* What the weights of a query are divided by; a query whose divisor is 0 gives 0. */
typedef enum sn_row_divisor {
    SN_DIVIDE_BY_1,
    SN_DIVIDE_BY_SUM,    /* over the keys */
    SN_DIVIDE_BY_ABS_SUM /* max(|sum|, 1), as in retention */
} sn_row_divisor;

typedef struct sn_attention_args {
    sn_tensor q, k, v;
    double scale; /* positive; 0: 1 / sqrt(d) */
    /* key k is visible to query q if k <= q + (Tk - Tq): the last query sees all keys */
    bool causal;
    /* with causal: only the last `window` keys, including the query's own position; 0: all */
    int64_t window;
    /* For sequences that differ in length: i32 [B], the number of keys before the first query of
     * each, in place of Tk - Tq; NULL: Tk - Tq for all. Needs .causal, which hides the keys that a
     * shorter sequence does not have. Counts as a captured tensor. */
    sn_tensor past;
    sn_score_fn score; /* NULL: unchanged */
    /* Weights that are not a softmax: called as score is, with what score has made of c->score, and
     * returns the weight. A hidden key weighs 0. NULL: softmax */
    sn_score_fn weight;
    sn_row_divisor divide; /* of .weight: what the weights of a query are divided by */
    /* One more term of each query's divisor, a key without a value: a score, or with .weight a weight.
     * A float tensor [H], or with axes that broadcast to [B, H, Tq]; its gradient exists. NULL: none */
    sn_tensor sink;
    /* Heads that mix, by float tensors [H,H]; NULL: they do not. Before the softmax head g gets the sum
     * over h of mix_scores[g,h] times the scores of head h; score, mask and causal see these sums.
     * After it, the sum over h of mix_weights[g,h] times the weights of head h. Both have gradients.
     * k and v need as many heads as q, and values of hidden keys must be finite. Not with .weight,
     * .sink, .dropout, .lse, .mesh */
    sn_tensor mix_scores, mix_weights;
    sn_score_fn mask;                    /* NULL: all keys; with causal: both must hold */
    sn_tensor captured[SN_MAX_CAPTURED]; /* NULL-terminated */
    const void *user;                    /* passed to the callbacks */
    /* dropout of the weights with `rng`, as in sn_dropout; the mask is never stored */
    double dropout;
    sn_tensor rng;
    /* Not NULL: receives the log-sum-exp of each query's scores over the keys that it sees, before
     * dropout: [B, H, Tq, 1], f32 (f64 if q is f64), -inf if it sees none. Not with .weight, .sink. The
     * kernel of attention computes it on the way; it has a gradient. */
    sn_tensor *lse;
    /* Rows divided among ranks: rank r of the mesh axis `mesh` has the queries, keys and values of
     * positions r T to r T + T - 1, and gets the results of its queries. Masks and scores see
     * positions; captured tensors are whole on every rank. Keys and values travel from rank to rank
     * while attention to others is computed; those that .causal and .window hide from all queries
     * of a rank do not. Not with .past, .weight, .sink, .dropout, .lse. NULL: rows are not divided */
    const char *mesh;
    int64_t ranks; /* size of that axis */
    /* The rank's rows are two halves, the r-th of 2 R from the start and the r-th from the end, in this
     * order, as sn_mesh_positions says: with .causal all ranks have equal work. T must be even. */
    bool zigzag;
    int64_t
        piece; /* bytes of keys that travel at a time, at most; 0: 256 KiB. Never more than 16 pieces */
} sn_attention_args;
sn_tensor sn_attention_at(sn_loc, const sn_attention_args *);

/* [B, T, H D] -> [B, H, T, D] and the inverse. */
#define sn_split_heads(x, heads) sn_split_heads_at(SN_HERE, x, heads)
#define sn_merge_heads(x) sn_merge_heads_at(SN_HERE, x)
sn_tensor sn_split_heads_at(sn_loc, sn_tensor, int64_t heads), sn_merge_heads_at(sn_loc, sn_tensor);

/* A KV cache: a state NAME in the scope, [.., capacity, d]. Writes x [.., T, d] at index `past` and
 * returns all cached rows, [.., past + T, d]. All other sizes must be numbers. Within an entry a
 * name denotes one cache. */
#define sn_kv_cache(x, name, past, capacity) sn_kv_cache_at(SN_HERE, x, name, past, capacity)
sn_tensor sn_kv_cache_at(sn_loc, sn_tensor x, const char *name, sn_dim past, int64_t capacity);

/* Boolean masks, true = visible. [Tq, Tk]: the last query is at the position of the last key. */
#define sn_causal_mask(m, Tq, Tk) sn_window_mask_at(SN_HERE, m, Tq, Tk, 0) /* k <= q + Tk - Tq */
/* strictly: k < q + Tk - Tq, without the query's own position; the first row may see nothing */
#define sn_strict_mask(m, Tq, Tk) sn_strict_mask_at(SN_HERE, m, Tq, Tk)
/* of sn_causal_mask only the last w */
#define sn_window_mask(m, Tq, Tk, w) sn_window_mask_at(SN_HERE, m, Tq, Tk, w)
/* Padding: lengths [B] integers -> [B, 1, 1, Tk], true where k < length. */
#define sn_length_mask(lengths, Tk) sn_length_mask_at(SN_HERE, lengths, Tk)
/* Packed documents: ids [B, T] -> [B, 1, T, T], true within a document. */
#define sn_document_mask(ids) sn_document_mask_at(SN_HERE, ids)
/* x where the mask is true, -inf elsewhere [PH22 A4 line 5]. */
#define sn_mask_scores(x, mask) sn_mask_scores_at(SN_HERE, x, mask)
sn_tensor sn_window_mask_at(sn_loc, sn_module *m, sn_dim Tq, sn_dim Tk, int64_t window),
    sn_strict_mask_at(sn_loc, sn_module *m, sn_dim Tq, sn_dim Tk),
    sn_length_mask_at(sn_loc, sn_tensor lengths, sn_dim Tk),
    sn_document_mask_at(sn_loc, sn_tensor ids),
    sn_mask_scores_at(sn_loc, sn_tensor x, sn_tensor mask);

/* ---- layers that declare their parameters, NAME.weight and NAME.bias in the scope ---- */

enum {
    SN_BIAS = 1,
    SN_IN_OUT = 2, /* weight stored as [in, out], as in GPT-2's Conv1D */
    /* On a mesh with the axis "tensor" (sn_mesh): the outputs, or the inputs, are divided among its
     * ranks. An MLP's first map has SN_COLUMNS, its last SN_ROWS; so do the maps to the heads of
     * attention, and from them. [Shoeybi et al. 2019] */
    SN_COLUMNS = 4,
    SN_ROWS = 8
};
/* x [.., in] -> [.., out] */
#define sn_nn_linear(x, name, n_out, flags) sn_nn_linear_at(SN_HERE, x, name, n_out, flags)
/* ids [..] -> [.., d]; table [n, d] */
#define sn_nn_embedding(ids, name, n, d) sn_nn_embedding_at(SN_HERE, ids, name, n, d)
#define sn_nn_layer_norm(x, name, eps) sn_nn_layer_norm_at(SN_HERE, x, name, eps)
#define sn_nn_rms_norm(x, name, eps) sn_nn_rms_norm_at(SN_HERE, x, name, eps) /* no bias */
/* (act(x gate^T) * (x up^T)) down^T, no bias: SwiGLU with act = silu, GeGLU with gelu */
#define sn_swiglu(x, gate, up, down) sn_glu_at(SN_HERE, x, gate, up, down, sn_silu_at)
#define sn_geglu(x, gate, up, down) sn_glu_at(SN_HERE, x, gate, up, down, sn_gelu_at)
sn_tensor sn_nn_linear_at(sn_loc, sn_tensor x, const char *name, int64_t n_out, int flags),
    sn_nn_embedding_at(sn_loc, sn_tensor ids, const char *name, int64_t n, int64_t d),
    sn_nn_layer_norm_at(sn_loc, sn_tensor x, const char *name, double eps),
    sn_nn_rms_norm_at(sn_loc, sn_tensor x, const char *name, double eps),
    sn_glu_at(sn_loc, sn_tensor x, sn_tensor gate, sn_tensor up, sn_tensor down,
              sn_tensor (*act)(sn_loc, sn_tensor));

#ifdef __cplusplus
}
#endif
#endif
