/* op_case.c: modules and data for the rows of tests/support/ops.def. */
#include "tests/support/op_case.h"
#include "runtime/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the regions named in rows: each as a graph and as plain C ---- */

static const sn_region *score_region(sn_module *m, int n_in, sn_node *const *in, bool with_score,
                                     sn_node *(*body)(sn_node *const *arg)) {
    sn_node *arg[5 + MAX_IN];
    int n = 0;
    if (with_score) arg[n] = sn_arg(m, n, (sn_dtype)in[0]->dtype, 0, NULL), n++;
    for (int i = 0; i < 4; i++, n++) arg[n] = sn_arg(m, n, SN_I32, 0, NULL);
    for (int i = 3; i < n_in; i++, n++)
        arg[n] = sn_arg(m, n, (sn_dtype)in[i]->dtype, in[i]->rank, in[i]->shape);
    sn_node *out = body(arg);
    return sn_region_new(m, n, arg, 1, &out);
}

static sn_node *causal_body(sn_node *const *a) { /* b, h, q, k */
    return sn_b_binary(SN_OP_le, a[3], a[2]);
}
static const sn_region *make_causal(sn_module *m, int n_in, sn_node *const *in) {
    return score_region(m, n_in, in, false, causal_body);
}
static double plain_causal(double x, const int64_t *at, const sn_value *const *in) {
    (void)x, (void)in;
    return at[3] <= at[2];
}

static sn_node *documents_body(sn_node *const *a) { /* b, h, q, k, ids [B, T] */
    sn_node *of_q = SN_NODE(a[0]->m, gather_nd, SN_NO_ATTRS, a[4], a[0], a[2]);
    sn_node *of_k = SN_NODE(a[0]->m, gather_nd, SN_NO_ATTRS, a[4], a[0], a[3]);
    return sn_b_binary(SN_OP_and, sn_b_binary(SN_OP_eq, of_q, of_k),
                       sn_b_binary(SN_OP_lt, a[3], a[2])); /* strict: some rows are empty */
}
static const sn_region *make_documents(sn_module *m, int n_in, sn_node *const *in) {
    return score_region(m, n_in, in, false, documents_body);
}
static double plain_documents(double x, const int64_t *at, const sn_value *const *in) {
    (void)x;
    const double *id = in[3]->data + at[0] * in[3]->shape[1];
    return id[at[2]] == id[at[3]] && at[3] < at[2];
}

/* ALiBi: score - (h + 1) / 4 |q - k| */
static sn_node *alibi_body(sn_node *const *a) {
    sn_dtype t = (sn_dtype)a[0]->dtype;
    sn_node *far = sn_b_unary(SN_OP_abs, sn_b_cast(sn_b_binary(SN_OP_sub, a[3], a[4]), t));
    sn_node *slope = sn_b_scalar(SN_OP_mul, sn_b_scalar(SN_OP_add, sn_b_cast(a[2], t), 1), 0.25);
    return sn_b_binary(SN_OP_sub, a[0], sn_b_binary(SN_OP_mul, slope, far));
}
static const sn_region *make_alibi(sn_module *m, int n_in, sn_node *const *in) {
    return score_region(m, n_in, in, true, alibi_body);
}
static double plain_alibi(double x, const int64_t *at, const sn_value *const *in) {
    (void)in;
    return x - (double)(at[1] + 1) / 4 * fabs((double)(at[2] - at[3]));
}

/* a learned bias table [H, Tq, Tk] and a soft cap */
static sn_node *bias_body(sn_node *const *a) {
    sn_node *bias = SN_NODE(a[0]->m, gather_nd, SN_NO_ATTRS, a[5], a[2], a[3], a[4]);
    sn_node *capped = sn_b_unary(SN_OP_tanh, sn_b_scalar(SN_OP_div, a[0], 5));
    return sn_b_binary(SN_OP_add, sn_b_scalar(SN_OP_mul, capped, 5), bias);
}
static const sn_region *make_bias(sn_module *m, int n_in, sn_node *const *in) {
    return score_region(m, n_in, in, true, bias_body);
}
static double plain_bias(double x, const int64_t *at, const sn_value *const *in) {
    const sn_value *b = in[3];
    return 5 * tanh(x / 5) + b->data[(at[1] * b->shape[1] + at[2]) * b->shape[2] + at[3]];
}

/* Bodies of fused kernels: a region over tensors of the operands' types. */
static const sn_region *tensor_region(sn_module *m, int n, sn_node *const *like, int n_out,
                                      void (*body)(sn_node *const *arg, sn_node **out)) {
    sn_node *arg[2 * MAX_IN], *out[MAX_IN];
    for (int i = 0; i < n; i++)
        arg[i] = sn_arg(m, i, (sn_dtype)like[i]->dtype, like[i]->rank, like[i]->shape);
    body(arg, out);
    return sn_region_new(m, n, arg, n_out, out);
}

static void add_softmax(sn_node *const *arg, sn_node **out) { /* softmax(x + y) */
    out[0] = sn_b_binary(SN_OP_add, arg[0], arg[1]);
    out[0] = SN_NODE(arg[0]->m, softmax, SN_NO_ATTRS, out[0])
                 ->decomposition; /* bodies hold primitives */
}
static const sn_region *make_add_softmax(sn_module *m, int n_in, sn_node *const *in) {
    return tensor_region(m, n_in, in, 1, add_softmax);
}

static void one_softmax(sn_node *const *arg, sn_node **out) {
    out[0] = SN_NODE(arg[0]->m, softmax, SN_NO_ATTRS, arg[0]);
}
static const sn_region *make_softmax(sn_module *m, int n_in, sn_node *const *in) {
    return tensor_region(m, n_in, in, 1, one_softmax);
}

static void sum_and_product(sn_node *const *arg, sn_node **out) {
    out[0] = sn_b_binary(SN_OP_add, arg[0], arg[1]);
    out[1] = sn_b_binary(SN_OP_mul, arg[0], arg[1]);
}
static const sn_region *make_two(sn_module *m, int n_in, sn_node *const *in) {
    return tensor_region(m, n_in, in, 2, sum_and_product);
}

/* rows of x [M, K]: exp(x w), and its sum over all rows */
static void exp_and_sum(sn_node *const *arg, sn_node **out) {
    sn_node *product = SN_NODE(arg[0]->m, dot,
                               SN_ATTRS(SN_LIST(contract_a, 1, (const int64_t[]){1}),
                                        SN_LIST(contract_b, 1, (const int64_t[]){0})),
                               arg[0], arg[1]);
    out[0] = sn_b_unary(SN_OP_exp, product);
    out[1] = sn_b_reduce(SN_OP_reduce_sum, out[0], 1, &(int64_t){0});
}
static const sn_region *make_exp_rows(sn_module *m, int n_in, sn_node *const *in) {
    return tensor_region(m, n_in, in, 2, exp_and_sum);
}

/* gemm(x [M, K], w, gain [K], bias [N]): the prologue scales, the epilogue adds and cuts */
static void scale_rows(sn_node *const *arg, sn_node **out) {
    out[0] = sn_b_binary(SN_OP_mul, arg[0], arg[1]);
}
static const sn_region *make_scale(sn_module *m, int n_in, sn_node *const *in) {
    (void)n_in;
    return tensor_region(m, 2, (sn_node *[]){in[0], in[2]}, 1, scale_rows);
}
static void bias_relu(sn_node *const *arg, sn_node **out) {
    out[0] = sn_b_scalar(SN_OP_max, sn_b_binary(SN_OP_add, arg[0], arg[1]), 0);
}
static const sn_region *make_bias_relu(sn_module *m, int n_in, sn_node *const *in) {
    (void)n_in;
    sn_dim shape[2] = {in[0]->shape[0], in[3]->shape[0]};
    sn_node *product = sn_b_broadcast(sn_b_const(m, (sn_dtype)in[0]->dtype, 0), 2, shape);
    return tensor_region(m, 2, (sn_node *[]){product, in[3]}, 1, bias_relu);
}

/* gemm(x [M, K], w [K, 2F]): max(0, first half) second half, [M, F] */
static void reglu(sn_node *const *arg, sn_node **out) {
    sn_dim f = arg[0]->shape[1] / 2;
    sn_node *gate = sn_b_slice(arg[0], 1, 0, f), *up = sn_b_slice(arg[0], 1, f, f);
    out[0] = sn_b_binary(SN_OP_mul, sn_b_scalar(SN_OP_max, gate, 0), up);
}
static const sn_region *make_reglu(sn_module *m, int n_in, sn_node *const *in) {
    (void)n_in;
    sn_dim shape[2] = {in[0]->shape[0], in[1]->shape[2] * in[1]->shape[0]};
    sn_node *product = sn_b_broadcast(sn_b_const(m, (sn_dtype)in[0]->dtype, 0), 2, shape);
    return tensor_region(m, 1, &product, 1, reglu);
}

/* scan of (carry [n], x [T, n], y [T, n], w [n]): carry' = sigmoid(x) carry + w y, and carry' y */
static void decayed_sum(sn_node *const *arg, sn_node **out) {
    sn_node *keep = sn_b_binary(SN_OP_mul, sn_b_unary(SN_OP_sigmoid, arg[1]), arg[0]);
    out[0] = sn_b_binary(SN_OP_add, keep, sn_b_binary(SN_OP_mul, arg[3], arg[2]));
    out[1] = sn_b_binary(SN_OP_mul, out[0], arg[2]);
}
static const sn_region *make_step(sn_module *m, sn_node *const *in, int n_out) {
    sn_node *like[4] = {in[0], in[0], in[0], in[3]};
    return tensor_region(m, 4, like, n_out, decayed_sum);
}
static const sn_region *make_carry(sn_module *m, int n_in, sn_node *const *in) {
    (void)n_in;
    return make_step(m, in, 1);
}
/* scan of (carry [n], x [T, n]): carry' = max(carry, x), and both */
static void running_max(sn_node *const *arg, sn_node **out) {
    out[0] = out[1] = sn_b_binary(SN_OP_max, arg[0], arg[1]);
    out[2] = arg[0];
}
static const sn_region *make_running(sn_module *m, int n_in, sn_node *const *in) {
    (void)n_in;
    return tensor_region(m, 2, (sn_node *[]){in[0], in[0]}, 3, running_max);
}
static const sn_region *make_carry_and_output(sn_module *m, int n_in, sn_node *const *in) {
    (void)n_in;
    return make_step(m, in, 2);
}

/* fused_recurrence: q, k, v, g of (S, q, k, v, g, share [.., 1]), and with 7 operands b, a; the seventh is
 * a factor for each of k's columns */
static sn_node *unit_row(sn_node *x) {
    sn_node *sum = sn_b_reduce(SN_OP_reduce_sum, sn_b_binary(SN_OP_mul, x, x), 1,
                               (const int64_t[]){x->rank - 1});
    return sn_b_binary(SN_OP_div, x, sn_b_unary(SN_OP_sqrt, sn_b_scalar(SN_OP_add, sum, 0.1)));
}
static void gated_rows(sn_node *const *arg, sn_node **out) {
    out[0] = sn_b_unary(SN_OP_tanh, arg[0]);
    out[1] = unit_row(arg[1]);
    out[2] = sn_b_binary(SN_OP_add, sn_b_binary(SN_OP_mul, arg[2], arg[4]), arg[2]);
    out[3] = sn_b_scalar(SN_OP_mul, sn_b_unary(SN_OP_sigmoid, arg[3]), -0.5);
}
static void corrected_rows(sn_node *const *arg, sn_node **out) {
    gated_rows(arg, out);
    out[4] = sn_b_binary(SN_OP_mul, out[1], sn_b_unary(SN_OP_sigmoid, arg[5]));
    out[5] = sn_b_unary(SN_OP_neg, unit_row(sn_b_binary(SN_OP_add, out[1], out[4])));
}
static const sn_region *make_gated(sn_module *m, int n_in, sn_node *const *in) {
    return tensor_region(m, n_in - 1, in + 1, 4, gated_rows);
}
static const sn_region *make_corrected(sn_module *m, int n_in, sn_node *const *in) {
    return tensor_region(m, n_in - 1, in + 1, 6, corrected_rows);
}
static void gated_with_exp(sn_node *const *arg, sn_node **out) {
    gated_rows(arg, out);
    out[4] = sn_b_unary(SN_OP_exp, arg[2]);
}
/* Prologues of gradients, whose last operand is a carry. */
static const sn_region *make_with_exp(sn_module *m, int n_in, sn_node *const *in) {
    return tensor_region(m, n_in - 2, in + 1, 5, gated_with_exp);
}
static const sn_region *make_as_is(sn_module *m, int n_in, sn_node *const *in) {
    sn_node *arg[MAX_IN];
    for (int i = 1; i < n_in - 1; i++)
        arg[i - 1] = sn_arg(m, i - 1, (sn_dtype)in[i]->dtype, in[i]->rank, in[i]->shape);
    return sn_region_new(m, n_in - 2, arg, n_in - 2, arg);
}
static sn_node *row_sum(sn_node *x, sn_node *y) {
    return sn_b_reduce(SN_OP_reduce_sum, sn_b_binary(SN_OP_mul, x, y), 1,
                       (const int64_t[]){x->rank - 1});
}
/* An epilogue of a gradient: its results (dv, dS, dq, dk, [da, db,] dg) begin the arguments, then q, k, ... */
static void grad_rows(sn_node *const *arg, sn_node **out) {
    out[0] = arg[0];
    out[1] = arg[1];
    out[2] = sn_b_binary(SN_OP_mul, arg[2], sn_b_unary(SN_OP_sigmoid, arg[3]));
    out[3] = row_sum(arg[2], arg[3]);
    out[4] = sn_b_binary(SN_OP_sub, arg[3], sn_b_binary(SN_OP_mul, arg[4], out[3]));
}
static const sn_region *make_of_gradient(sn_module *m, int n_in, sn_node *const *in) {
    const int n_row = n_in - 2, n_result = n_row > 5 ? 7 : 5;
    sn_node *like[2 * MAX_IN] = {in[3], in[0], in[1], in[1], n_row > 5 ? in[1] : in[4],
                                 in[1], in[4]};
    memcpy(like + n_result, in + 1, sizeof *like * (size_t)n_row);
    return tensor_region(m, n_result + n_row, like, 5, grad_rows);
}

#define REGION_OF(name) static const case_region name = {make_##name, plain_##name};
REGION_OF(causal)
REGION_OF(documents)
REGION_OF(alibi)
REGION_OF(bias)
static const case_region add_softmax_body = {make_add_softmax, NULL},
                         softmax_body = {make_softmax, NULL}, two = {make_two, NULL},
                         exp_rows = {make_exp_rows, NULL}, scale = {make_scale, NULL},
                         relu_of_sum = {make_bias_relu, NULL}, gate = {make_reglu, NULL},
                         carry = {make_carry, NULL}, running = {make_running, NULL},
                         carry_and_output = {make_carry_and_output, NULL},
                         gated = {make_gated, NULL}, corrected = {make_corrected, NULL},
                         with_exp = {make_with_exp, NULL}, as_is = {make_as_is, NULL},
                         of_gradient = {make_of_gradient, NULL};

/* ---- the table ---- */

void ref_map_reduce_softmax(const ref_call *c);
void ref_gemm(const ref_call *c);
void ref_gate(const ref_call *c);
void ref_exp_rows(const ref_call *c);
void ref_flash_grad(const ref_call *c);
void ref_flash_mixed_grad(const ref_call *c);
void ref_softmax(const ref_call *c);

#define STRIP(...) __VA_ARGS__
#define NONE ({.used = false})
#define IN(t, g, ...)                                                                              \
    {                                                                                              \
        .used = true, .dtype = SN_##t, .gen = g,                                                   \
        .rank = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), .shape = {              \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define SCALAR(t, g)                                                                               \
    { .used = true, .dtype = SN_##t, .gen = g }
#define NORMAL GEN_NORMAL
#define POSITIVE GEN_POSITIVE
#define UNIT GEN_UNIT
#define SMALL GEN_SMALL
#define DECAY GEN_DECAY
#define APART GEN_APART
#define COUNT GEN_COUNT
#define BOOLS GEN_BOOL
#define SPECIAL GEN_SPECIAL
#define HIDDEN GEN_HIDDEN
#define IDS(n) (GEN_IDS | (int64_t)(n) << 8)
#define INT(k, x)                                                                                  \
    {                                                                                              \
        .used = true, .attr = {.key = SN_A_##k, .i = (x) }                                         \
    }
#define TYPE(x) INT(dtype, SN_##x)
#define FLT(k, x)                                                                                  \
    {                                                                                              \
        .used = true, .attr = {.key = SN_A_##k, .f = (x) }                                         \
    }
#define STR(k, x)                                                                                  \
    {                                                                                              \
        .used = true, .attr = {.key = SN_A_##k, .s = (x) }                                         \
    }
#define LIST(k, ...)                                                                               \
    {                                                                                              \
        .used = true, .attr = {                                                                    \
            .key = SN_A_##k,                                                                       \
            .n = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),                        \
            .v = (const int64_t[]){__VA_ARGS__}                                                    \
        }                                                                                          \
    }
#define EMPTY(k)                                                                                   \
    {                                                                                              \
        .used = true, .attr = {.key = SN_A_##k }                                                   \
    }
#define REG(k, x)                                                                                  \
    { .used = true, .attr = {.key = SN_A_##k}, .region = &x }
#define TOL(x) .tol = (x)
#define AS_IS .as_is = true
#define SUM_OF(axis) .sum_axis = (axis), .only_sum = true
#define WANT(...)                                                                                  \
    .want = (const double[]){__VA_ARGS__},                                                         \
    .n_want = (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double))
#define REF(f) .ref = f
#define OF(name, i) .of = SN_OP_##name, .index = i
#define T(name, inputs, attrs, ...)                                                                \
    {.op = SN_OP_##name,                                                                           \
     .line = __LINE__,                                                                             \
     .in = {STRIP inputs},                                                                         \
     .attr = {STRIP attrs},                                                                        \
     __VA_ARGS__},
const op_case op_cases[] = {
#include "tests/support/ops.def"
};
const int op_case_count = sizeof op_cases / sizeof *op_cases;

/* ---- building ---- */

int op_case_n_in(const op_case *row) {
    int n = 0;
    while (row->in[n].used) n++;
    return n;
}

bool op_case_is_symbolic(const op_case *row) {
    for (const case_in *in = row->in; in->used; in++)
        for (int k = 0; k < in->rank; k++)
            if (in->shape[k] == LEN) return true;
    for (const case_attr *a = row->attr; a->used; a++)
        for (int k = 0; k < a->attr.n; k++)
            if (a->attr.v[k] == LEN) return true;
    return false;
}

static bool is_wide(const op_case *row, bool wide) {
    return wide && !row->as_is;
}

static sn_dtype type_of(const op_case *row, int i, bool wide) {
    sn_dtype t = row->in[i].dtype;
    return is_wide(row, wide) && t == SN_F32 ? SN_F64 : t;
}

/* Gradients of attention: rows have q, k, v, the cotangent of the result, captured tensors. The
 * results of the forward part are inserted: the output, and for flash_grad also the log-sum-exp. */
static bool is_gradient(sn_op op) {
    return op == SN_OP_attention_grad || op == SN_OP_flash_grad ||
           op == SN_OP_mixed_attention_grad || op == SN_OP_flash_mixed_grad;
}

/* q, k, v, log-sum-exp, cotangent, the rest */
static sn_node *build_mixed_gradient(sn_module *m, int n_in, sn_node *const *in, int n_attr,
                                     const sn_attr *attr) {
    sn_node *fwd[MAX_IN], *all[MAX_IN + 1];
    for (int i = 0; i < n_in; i++) {
        if (i != 3) fwd[i < 3 ? i : i - 1] = in[i];
        all[i < 3 ? i : i + 1] = in[i];
    }
    all[3] = sn_b_result(sn_node_new(m, SN_OP_flash_mixed, n_in - 1, fwd, n_attr, attr), 1);
    return sn_node_new(m, SN_OP_flash_mixed_grad, n_in + 1, all, n_attr, attr);
}

static sn_node *build_gradient(sn_module *m, sn_op op, int n_in, sn_node *const *in, int n_attr,
                               const sn_attr *attr) {
    sn_node *fwd[MAX_IN], *all[MAX_IN + 4];
    sn_attr kept[MAX_CASE_ATTR];
    bool lse =
        sn_attr_find(n_attr, attr, SN_A_lse) != NULL; /* its cotangent: sums of the other's */
    int n_kept = 0, made = op == SN_OP_flash_grad ? 2 : 1, more = lse ? made + 2 : made;
    int64_t width = 3;
    for (int i = 0; i < n_in; i++) {
        all[i < 3 ? i : i == 3 ? i + made : i + more] = in[i];
        if (i != 3) fwd[i < 3 ? i : i - 1] = in[i];
    }
    for (int i = 0; i < n_attr; i++)
        if (attr[i].key != SN_A_index && attr[i].key != SN_A_wrt && attr[i].key != SN_A_lse)
            kept[n_kept++] = attr[i];
    sn_op forward = made == 2                          ? SN_OP_flash
                    : op == SN_OP_mixed_attention_grad ? SN_OP_mixed_attention
                                                       : SN_OP_attention;
    sn_node *y = sn_node_new(m, forward, n_in - 1, fwd, n_kept, kept);
    all[3] = made == 2 ? sn_b_result(y, 0) : y;
    if (made == 2) all[4] = sn_b_result(y, 1);
    if (lse) {
        all[5] = sn_b_attention_lse(y);
        all[6] = sn_b_reduce(SN_OP_reduce_sum, in[3], 1, &width);
    }
    return sn_node_new(m, op, n_in + more, all, n_attr, attr);
}

static sn_node *build_node(sn_module *m, sn_op op, int n_in, sn_node *const *in, int n_attr,
                           const sn_attr *attr) {
    if (op == SN_OP_flash_mixed_grad) return build_mixed_gradient(m, n_in, in, n_attr, attr);
    if (is_gradient(op)) return build_gradient(m, op, n_in, in, n_attr, attr);
    if (op != SN_OP_attention_lse) return sn_node_new(m, op, n_in, in, n_attr, attr);
    return sn_b_attention_lse(sn_node_new(m, SN_OP_attention, n_in, in, n_attr, attr));
}

/* Matrices that mix heads follow v. */
static int count_mixes(const op_case *row) {
    for (const case_attr *a = row->attr; a->used; a++)
        if (a->attr.key == SN_A_mix) return (int)(a->attr.i & 1) + (int)(a->attr.i >> 1 & 1);
    return 0;
}

/* A gradient starts from the states of its recurrence, which has its operands; with {delta} 1 the u that is given. */
static sn_node *states_of(sn_node *const *in, int n_in, int n_attr, const sn_attr *attr) {
    sn_node *operand[2 * MAX_IN] = {in[0]};
    sn_attr same[MAX_CASE_ATTR];
    int n_same = 0;
    bool second = false;
    memcpy(operand + 1, in + 1, sizeof *in * (size_t)(n_in - 1));
    for (int i = 0; i < n_attr; i++) {
        if (attr[i].key == SN_A_prologue) sn_region_inline(attr[i].r, in + 1, operand + 1);
        if (attr[i].key == SN_A_delta) second = attr[i].i == 1;
        if (attr[i].key == SN_A_reads || attr[i].key == SN_A_reverse) same[n_same++] = attr[i];
    }
    if (second) operand[SN_REC_A] = operand[SN_REC_END + 1];
    sn_node *r = sn_node_new(in[0]->m, SN_OP_recurrence, second ? SN_REC_END : SN_REC_B, operand,
                             n_same, same);
    return sn_b_result(r, 2);
}

static sn_node *build(const op_case *row, sn_module *m, bool wide, unsigned params, sn_node **in,
                      const char *suffix) {
    sn_dim len = sn_symbol_add(m, "T", 0, 4096);
    int n_in = op_case_n_in(row), n_attr = 0;
    for (int i = 0; i < n_in; i++) {
        sn_dim shape[SN_MAX_RANK];
        bool fixed = true;
        for (int k = 0; k < row->in[i].rank; k++) {
            shape[k] = row->in[i].shape[k] == LEN ? len : row->in[i].shape[k];
            fixed &= row->in[i].shape[k] != LEN;
        }
        char name[32];
        snprintf(name, sizeof name, "x%d%s", i, suffix);
        sn_op leaf = fixed && params >> i & 1 ? SN_OP_param : SN_OP_input;
        in[i] = sn_node_new(m, leaf, 0, NULL,
                            SN_ATTRS(SN_STR(name, name), SN_INT(dtype, type_of(row, i, wide)),
                                     SN_LIST(shape, row->in[i].rank, shape)));
    }
    sn_op op = row->op == SN_OP_result ? row->of : row->op;
    sn_node *forward[MAX_IN]; /* regions number captured tensors as attention does */
    int n_forward = 0;
    int first = is_gradient(op) ? 4 : 3, captured = first + count_mixes(row);
    for (int i = 0; i < n_in; i++)
        if (i < 3 || i >= captured) forward[n_forward++] = in[i];
    sn_attr attr[MAX_CASE_ATTR];
    int64_t list[MAX_CASE_ATTR][SN_MAX_RANK];
    for (; row->attr[n_attr].used; n_attr++) {
        const case_attr *a = &row->attr[n_attr];
        sn_attr *b = &attr[n_attr];
        *b = a->attr;
        if (a->region) b->r = a->region->make(m, n_forward, forward);
        if (is_wide(row, wide) && b->key == SN_A_dtype && b->i == SN_F32) b->i = SN_F64;
        for (int k = 0; k < b->n; k++) list[n_attr][k] = a->attr.v[k] == LEN ? len : a->attr.v[k];
        if (b->n) b->v = list[n_attr];
        if (b->key == SN_A_dim && b->i == LEN) b->i = len;
    }
    sn_node *operand[MAX_IN];
    memcpy(operand, in, sizeof *in * (size_t)n_in);
    for (int i = 0; i < n_attr; i++)
        if (attr[i].key == SN_A_gradient) operand[0] = states_of(in, n_in, n_attr, attr);
    sn_node *n = build_node(m, op, n_in, operand, n_attr, attr);
    return row->op == SN_OP_result ? sn_b_result(n, row->index) : n;
}

sn_node *op_case_build(const op_case *row, sn_module *m, bool wide, unsigned params, sn_node **in) {
    return build(row, m, wide, params, in, "");
}

sn_node *op_case_build_beside(const op_case *row, sn_module *m, bool wide, unsigned params,
                              sn_node **in) {
    char suffix[16];
    snprintf(suffix, sizeof suffix, "_%d", (int)(row - op_cases));
    return build(row, m, wide, params, in, suffix);
}

/* ---- data ---- */

static double special_value(int64_t i) {
    static const double v[] = {0,     -0.0,  1,    -1,       INFINITY, -INFINITY, NAN,    0x1p-126,
                               1e-40, -1e-3, 88.5, -87.25,   3e38,     -3e38,     0.5,    2.5,
                               -2.5,  1e8,   -1e8, 0x1p-149, 709,      M_PI,      -M_PI_2};
    return v[(size_t)i % (sizeof v / sizeof *v)];
}

static double make_element(int64_t gen, sn_rng *r, int64_t i, int64_t row_length) {
    double z;
    switch (gen & 255) {
    case GEN_POSITIVE:
        return 0.1 + 3.9 * sn_rng_uniform(r);
    case GEN_UNIT:
        return 1.99 * sn_rng_uniform(r) - 0.995;
    case GEN_SMALL:
        return 0.2 * sn_rng_uniform(r) - 0.1;
    case GEN_DECAY:
        return -2 * sn_rng_uniform(r);
    case GEN_APART:
        do z = sn_rng_normal(r);
        while (fabs(z - rint(2 * z) / 2) < 0.1);
        return z;
    case GEN_COUNT:
        return (double)i;
    case GEN_IDS:
        return sn_rng_below(r, (uint32_t)(gen >> 8));
    case GEN_BOOL:
        return sn_rng_below(r, 2);
    case GEN_SPECIAL:
        return special_value(i);
    case GEN_HIDDEN:
        z = sn_rng_normal(r);
        return i < row_length || sn_rng_below(r, 3) == 0 ? -INFINITY : z;
    default:
        return sn_rng_normal(r);
    }
}

void *op_case_data(const op_case *row, int i, bool wide, int64_t len, size_t *bytes) {
    const case_in *in = &row->in[i];
    int64_t n = 1, last = 1;
    for (int k = 0; k < in->rank; k++) n *= last = in->shape[k] == LEN ? len : in->shape[k];
    sn_dtype t = type_of(row, i, wide);
    *bytes = (size_t)n * sn_dtype_size(t);
    void *p = calloc((size_t)n + 1, 8);
    if (!p) return NULL;
    sn_rng r = {.seed = (uint64_t)row->line, .stream = SN_STREAM_DATA, .step = (uint32_t)i};
    for (int64_t e = 0; e < n; e++) /* f64: the same numbers as the row of the narrow type */
        sn_dtype_store(t, p, e, (float)make_element(in->gen, &r, e, last));
    return p;
}

sn_eval *op_case_eval(const op_case *row, sn_module *m, bool wide, int64_t len) {
    sn_eval *ev = sn_eval_new(m, &len);
    for (int i = 0; ev && row->in[i].used; i++) {
        char name[16];
        size_t bytes;
        void *data = op_case_data(row, i, wide, len, &bytes);
        snprintf(name, sizeof name, "x%d", i);
        if (!data || !sn_eval_bind(ev, name, data, bytes)) {
            sn_eval_free(ev);
            ev = NULL;
        }
        free(data);
    }
    return ev;
}

bool op_case_close(double a, double b, double tol) {
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
    if (isinf(a) || isinf(b)) return a == b;
    return fabs(a - b) <= tol * (1 + fabs(b));
}
