/* onednn.h: oneDNN's primitives of f32, and products of bf16 and int8, as plain C functions over raw pointers.
 * Primitives are made at first use of a shape and kept. oneDNN runs on OpenMP's threads itself:
 * call from outside parallel regions; the number of threads is omp_get_max_threads(). */
#ifndef SN_ONEDNN_H
#define SN_ONEDNN_H

#include "codegen/backend.h"

/* An engine, a stream and the primitives made so far. Used by one thread at a time. NULL and `err`
 * (SN_ERR_TARGET) on failure and in builds without oneDNN. */
typedef struct sn_dnnl sn_dnnl;
sn_dnnl *sn_dnnl_create(sn_error *err);
void sn_dnnl_destroy(sn_dnnl *d);
const char *sn_dnnl_version(void); /* "2.6.3"; "none" in builds without it */

bool sn_dnnl_run_matmul(sn_dnnl *d, const sn_matmul *s, const void *a, const void *b,
                        const float *bias, float *c, sn_error *err);

/* oneDNN's own layout of B for this product (s->packed must be 1; b_row and b_col tell the plain
 * layout). It may depend on m. Bytes, or -1 on failure. */
int64_t sn_dnnl_packed_bytes(sn_dnnl *d, const sn_matmul *s, sn_error *err);
/* oneDNN's name of the code that computes a product; "": it has none. */
const char *sn_dnnl_code(sn_dnnl *d, const sn_matmul *s);
bool sn_dnnl_pack(sn_dnnl *d, const sn_matmul *s, const void *b, void *packed, sn_error *err);

/* Whether the CPU has products with factors of bf16. */
bool sn_dnnl_multiplies_bf16(void);
/* For a product of bf16: rounds a factor (0: a, 1: b) of f32, to nearest even. *x and the strides of
 * s become those of the rounded factor, which d keeps until its next product. */
bool sn_dnnl_round_factor(sn_dnnl *d, sn_matmul *s, int which, const void **x, sn_error *err);

/* As sn_dnnl_run_matmul for a B of f32 that never changes while d lives, given in its plain layout with
 * s->packed = 1 and no batch of its own: it is put in oneDNN's layout once for each layout that the sizes ask
 * for. */
bool sn_dnnl_run_constant(sn_dnnl *d, const sn_matmul *s, const void *a, const float *b,
                          const float *bias, float *c, sn_error *err);

/* y[i,:] = softmax(x[i,:]) of (rows, n), contiguous. */
bool sn_dnnl_run_softmax(sn_dnnl *d, int64_t rows, int64_t n, const float *x, float *y,
                         sn_error *err);

/* y[i,:] = (x[i,:] - mean) / sqrt(var + eps) * gain + bias of (rows, n), contiguous; gain
 * and bias may be NULL. */
bool sn_dnnl_run_layer_norm(sn_dnnl *d, int64_t rows, int64_t n, float eps, const float *x,
                            const float *gain, const float *bias, float *y, sn_error *err);

/* What flows back to x: of softmax from its result y and the cotangent g of that; of layer norm
 * from x and g. dx is not what is read. */
bool sn_dnnl_run_softmax_grad(sn_dnnl *d, int64_t rows, int64_t n, const float *y, const float *g,
                              float *dx, sn_error *err);
bool sn_dnnl_run_layer_norm_grad(sn_dnnl *d, int64_t rows, int64_t n, float eps, const float *x,
                                 const float *g, const float *gain, float *dx, sn_error *err);

/* y = convolution of x (batch, in, height, width) with w (out, in / groups, kernel_h,
 * kernel_w), plus bias[out] (may be NULL); y (batch, out, out_h, out_w); all contiguous; zeros
 * outside x. */
typedef struct sn_dnnl_conv {
    int64_t batch, in, out, height, width, kernel_h, kernel_w;
    int64_t stride_h, stride_w, dilate_h, dilate_w; /* dilate 1: none */
    int64_t pad_top, pad_left, pad_bottom, pad_right;
    int64_t groups; /* 0 or 1: none */
    int64_t bias;   /* 1: there is one */
} sn_dnnl_conv;

int64_t sn_dnnl_conv_out(int64_t size, int64_t kernel, int64_t stride, int64_t dilate, int64_t pad);
bool sn_dnnl_run_conv(sn_dnnl *d, const sn_dnnl_conv *s, const float *x, const float *w,
                      const float *bias, float *y, sn_error *err);
/* What flows back from y's cotangent g: to x, through w, and to w, through x. s->bias must be 0. */
bool sn_dnnl_run_conv_grad_x(sn_dnnl *d, const sn_dnnl_conv *s, const float *w, const float *g,
                             float *dx, sn_error *err);
bool sn_dnnl_run_conv_grad_w(sn_dnnl *d, const sn_dnnl_conv *s, const float *x, const float *g,
                             float *dw, sn_error *err);

/* supports.c: the columns of the back end's row (passes/backend.h). */
bool onednn_supports(const sn_node *n, const char **why);
bool onednn_epilogue(const sn_node *product, const sn_node *n);
const sn_backend_cost *onednn_cost(sn_op op);
/* run.c: computes a step. Nothing is computed where there are no elements. */
bool onednn_run(void *state, const sn_step_call *c, sn_error *err);

#endif
