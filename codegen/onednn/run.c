/* run.c: from a step of the plan to a primitive's numbers. */
#include "codegen/onednn/onednn.h"

#include <math.h>
#include <string.h>

static int64_t dim_of(const sn_step_call *c, sn_dim d) {
    int64_t v;
    if (sn_dim_is_const(c->kernel->m, d, &v)) return v;
    return c->dim[sn_kernel_dim_slot(c->kernel, d)];
}

/* Product of the sizes of v's axes [first, last). */
static int64_t count(const sn_step_call *c, const sn_view *v, int first, int last) {
    int64_t n = 1;
    for (int i = first; i < last; i++) n *= dim_of(c, v->shape[i]);
    return n;
}

/* The composite in the body of a `primitive` node. */
static const sn_node *composite_of(const sn_node *n) {
    return sn_attr_region(n, SN_A_body)->out[0];
}

/* The composite's operand i in buf; NULL: it has fewer. */
static const float *operand(const sn_step_call *c, int i) {
    const sn_node *n = composite_of(c->kernel->step->node);
    return i < n->n_in ? c->buf[sn_attr_int(n->in[i], SN_A_index, 0)] : NULL;
}

static const sn_view *view(const sn_step_call *c, int i) {
    const sn_node *n = composite_of(c->kernel->step->node);
    return &c->kernel->step->in[sn_attr_int(n->in[i], SN_A_index, 0)];
}

static float *result(const sn_step_call *c) {
    return c->buf[c->kernel->step->n_in];
}

/* ---- rows ---- */

static void rows_of(const sn_step_call *c, int64_t *rows, int64_t *n) {
    const sn_view *v = &c->kernel->step->out[0];
    *rows = count(c, v, 0, v->rank - 1);
    *n = dim_of(c, v->shape[v->rank - 1]);
}

/* Where a whole row is -inf, the primitive divides 0 by 0; a softmax without any weight is 0. */
static void clear_hidden(int64_t rows, int64_t n, const float *x, float *y) {
    for (int64_t r = 0; r < rows; r++, x += n, y += n) {
        if (!isnan(y[0])) continue;
        int64_t i = 0;
        while (i < n && x[i] == -INFINITY) i++;
        if (i == n) memset(y, 0, sizeof *y * (size_t)n);
    }
}

static bool run_softmax(sn_dnnl *d, const sn_step_call *c, sn_error *err) {
    int64_t rows, n;
    rows_of(c, &rows, &n);
    if (!rows || !n) return true;
    if (!sn_dnnl_run_softmax(d, rows, n, operand(c, 0), result(c), err)) return false;
    clear_hidden(rows, n, operand(c, 0), result(c));
    return true;
}

static bool run_layer_norm(sn_dnnl *d, const sn_step_call *c, sn_error *err) {
    int64_t rows, n;
    rows_of(c, &rows, &n);
    double eps = sn_attr_flt(composite_of(c->kernel->step->node), SN_A_eps, 1e-5);
    return !rows || !n ||
           sn_dnnl_run_layer_norm(d, rows, n, (float)eps, operand(c, 0), operand(c, 1),
                                  operand(c, 2), result(c), err);
}

static bool run_softmax_grad(sn_dnnl *d, const sn_step_call *c, sn_error *err) {
    int64_t rows, n;
    rows_of(c, &rows, &n);
    return !rows || !n ||
           sn_dnnl_run_softmax_grad(d, rows, n, operand(c, 0), operand(c, 1), result(c), err);
}

static bool run_layer_norm_grad(sn_dnnl *d, const sn_step_call *c, sn_error *err) {
    int64_t rows, n;
    rows_of(c, &rows, &n);
    double eps = sn_attr_flt(composite_of(c->kernel->step->node), SN_A_eps, 1e-5);
    return !rows || !n ||
           sn_dnnl_run_layer_norm_grad(d, rows, n, (float)eps, operand(c, 0), operand(c, 1),
                                       operand(c, 2), result(c), err);
}

/* ---- convolution ---- */

static void read_pair(const sn_node *n, sn_attr_key key, int64_t *height, int64_t *width) {
    const sn_attr *a = sn_attr_get(n, key);
    if (!a) return;
    *height = a->v[0];
    *width = a->v[1];
}

/* The convolution of operands 0 and 1; of its gradient the same. */
static sn_dnnl_conv read_conv(const sn_step_call *c) {
    const sn_node *n = composite_of(c->kernel->step->node);
    const sn_view *x = view(c, 0), *w = view(c, 1);
    sn_dnnl_conv s = {.batch = dim_of(c, x->shape[0]),
                      .in = dim_of(c, x->shape[1]),
                      .out = dim_of(c, w->shape[0]),
                      .height = dim_of(c, x->shape[2]),
                      .width = dim_of(c, x->shape[3]),
                      .kernel_h = dim_of(c, w->shape[2]),
                      .kernel_w = dim_of(c, w->shape[3]),
                      .stride_h = 1,
                      .stride_w = 1,
                      .dilate_h = 1,
                      .dilate_w = 1,
                      .groups = sn_attr_int(n, SN_A_groups, 1),
                      .bias = n->op == SN_OP_conv2d && n->n_in > 2};
    read_pair(n, SN_A_step, &s.stride_h, &s.stride_w);
    read_pair(n, SN_A_dilate, &s.dilate_h, &s.dilate_w);
    read_pair(n, SN_A_low, &s.pad_top, &s.pad_left);
    read_pair(n, SN_A_high, &s.pad_bottom, &s.pad_right);
    return s;
}

static bool run_conv2d(sn_dnnl *d, const sn_step_call *c, sn_error *err) {
    sn_dnnl_conv s = read_conv(c);
    return !count(c, &c->kernel->step->out[0], 0, 4) ||
           sn_dnnl_run_conv(d, &s, operand(c, 0), operand(c, 1), operand(c, 2), result(c), err);
}

static bool run_conv2d_grad(sn_dnnl *d, const sn_step_call *c, sn_error *err) {
    sn_dnnl_conv s = read_conv(c);
    int64_t n = count(c, &c->kernel->step->out[0], 0, 4);
    if (!n || !count(c, view(c, 2), 0, 4)) { /* nothing, or a sum of nothing */
        memset(result(c), 0, (size_t)n * sizeof(float));
        return true;
    }
    if (sn_attr_int(composite_of(c->kernel->step->node), SN_A_index, 0))
        return sn_dnnl_run_conv_grad_w(d, &s, operand(c, 0), operand(c, 2), result(c), err);
    return sn_dnnl_run_conv_grad_x(d, &s, operand(c, 1), operand(c, 2), result(c), err);
}

/* ---- products ---- */

/* Axes of size 1 may have any stride; the primitive wants one that could be. */
static void settle_strides(int64_t rows, int64_t cols, int64_t *row, int64_t *col) {
    if (cols == 1) *col = rows == 1 || *row > 1 ? 1 : rows;
    if (rows == 1) *row = *col > 1 || cols == 1 ? 1 : cols;
}

static bool run_product(sn_dnnl *d, const sn_step_call *c, sn_error *err) {
    const sn_step *s = c->kernel->step;
    const sn_view *a = &s->in[0], *b = &s->in[1], *y = &s->out[0];
    int nb = a->rank - 2;
    sn_matmul p = {.n_batch = nb, .bias = s->n_in > 2, .packed = c->constant_right};
    for (int i = 0; i < nb; i++) {
        p.batch[i] = dim_of(c, a->shape[i]);
        p.a_batch[i] = dim_of(c, a->stride[i]);
        p.b_batch[i] = dim_of(c, b->stride[i]);
        p.c_batch[i] = dim_of(c, y->stride[i]);
        p.packed &= p.b_batch[i] == 0;
    }
    p.m = dim_of(c, a->shape[nb]);
    p.k = dim_of(c, a->shape[nb + 1]);
    p.n = dim_of(c, b->shape[nb + 1]);
    p.a_row = dim_of(c, a->stride[nb]);
    p.a_col = dim_of(c, a->stride[nb + 1]);
    p.b_row = dim_of(c, b->stride[nb]);
    p.b_col = dim_of(c, b->stride[nb + 1]);
    p.c_row = dim_of(c, y->stride[nb]);
    p.c_col = dim_of(c, y->stride[nb + 1]);
    settle_strides(p.m, p.k, &p.a_row, &p.a_col);
    settle_strides(p.k, p.n, &p.b_row, &p.b_col);
    settle_strides(p.m, p.n, &p.c_row, &p.c_col);
    const float *bias = p.bias ? c->buf[2] : NULL;
    const void *x[2] = {c->buf[0], c->buf[1]};
    p.factors = sn_attr_int(s->node, SN_A_compute, SN_F32);
    for (int i = 0; i < 2; i++)
        if (s->in[i].dtype != p.factors && !(i && p.packed) &&
            !sn_dnnl_round_factor(d, &p, i, &x[i], err))
            return false;
    return p.packed ? sn_dnnl_run_constant(d, &p, x[0], x[1], bias, result(c), err)
                    : sn_dnnl_run_matmul(d, &p, x[0], x[1], bias, result(c), err);
}

/* ---- dispatch ---- */

static const struct primitive {
    sn_op op; /* of the composite, or of the step itself */
    bool (*run)(sn_dnnl *d, const sn_step_call *c, sn_error *err);
} primitives[] = {{SN_OP_gemm, run_product},
                  {SN_OP_softmax, run_softmax},
                  {SN_OP_layer_norm, run_layer_norm},
                  {SN_OP_conv2d, run_conv2d},
                  {SN_OP_softmax_grad, run_softmax_grad},
                  {SN_OP_layer_norm_grad, run_layer_norm_grad},
                  {SN_OP_conv2d_grad, run_conv2d_grad}};

bool onednn_run(void *state, const sn_step_call *c, sn_error *err) {
    const sn_node *n = c->kernel->step->node;
    if (n->op == SN_OP_primitive) n = composite_of(n);
    for (size_t i = 0; i < sizeof primitives / sizeof *primitives; i++)
        if (primitives[i].op == n->op) return primitives[i].run(state, c, err);
    return sn_fail(err, SN_ERR_INTERNAL, "no primitive computes '%s'", sn_ops[n->op].name);
}
