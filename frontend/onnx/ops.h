/* ops.h: the functions of operators, columns of the table. Each sets the outputs of a node by calls of the DSL;
 * false: it failed. Internal. */
#ifndef SN_ONNX_OPS_H
#define SN_ONNX_OPS_H

#include "frontend/onnx/known.h"

typedef bool onnx_make(onnx_call *c);

/* ops_elem.c: one element at a time */
onnx_make onnx_unary, onnx_binary, onnx_many, onnx_compare, onnx_where, onnx_cast, onnx_cast_like,
    onnx_clip, onnx_div, onnx_mod, onnx_pow, onnx_identity, onnx_dropout, onnx_elu, onnx_selu,
    onnx_leaky_relu, onnx_prelu, onnx_hard_sigmoid, onnx_hard_swish, onnx_celu, onnx_thresholded,
    onnx_gelu, onnx_swish, onnx_is_inf, onnx_shift, onnx_bias_gelu, onnx_fast_gelu, onnx_quick_gelu,
    onnx_shrink, onnx_swiglu, onnx_bit_cast;
sn_tensor onnx_u_softsign(sn_loc, sn_tensor), onnx_u_sinh(sn_loc, sn_tensor),
    onnx_u_cosh(sn_loc, sn_tensor), onnx_u_tan(sn_loc, sn_tensor), onnx_u_acosh(sn_loc, sn_tensor),
    onnx_u_asinh(sn_loc, sn_tensor), onnx_u_atanh(sn_loc, sn_tensor),
    onnx_u_mish(sn_loc, sn_tensor), onnx_u_is_nan(sn_loc, sn_tensor),
    onnx_u_bitwise_not(sn_loc, sn_tensor);
sn_tensor onnx_b_greater(sn_loc, sn_operand, sn_operand),
    onnx_b_greater_equal(sn_loc, sn_operand, sn_operand);

/* ops_shape.c: shapes, and moving elements */
onnx_make onnx_constant, onnx_constant_of_shape, onnx_shape_of, onnx_size, onnx_reshape,
    onnx_flatten, onnx_squeeze, onnx_unsqueeze, onnx_transpose, onnx_concat, onnx_split, onnx_slice,
    onnx_gather, onnx_expand, onnx_tile, onnx_pad, onnx_range, onnx_if, onnx_depth_to_space,
    onnx_space_to_depth;

/* ops_index.c: look-ups, orders, sums along axes */
onnx_make onnx_gather_elements, onnx_gather_nd, onnx_scatter_elements, onnx_scatter_nd,
    onnx_cumulate, onnx_top_k, onnx_arg, onnx_one_hot, onnx_trilu, onnx_eye_like, onnx_non_zero,
    onnx_reduce, onnx_tensor_scatter;
enum {
    ONNX_R_SUM,
    ONNX_R_MEAN,
    ONNX_R_MAX,
    ONNX_R_MIN,
    ONNX_R_PROD,
    ONNX_R_L1,
    ONNX_R_L2,
    ONNX_R_LOG_SUM,
    ONNX_R_LOG_SUM_EXP,
    ONNX_R_SQUARES
};

/* ops_resize.c: interpolation */
onnx_make onnx_resize;

/* ops_nn.c: products, convolutions, norms */
onnx_make onnx_matmul, onnx_gemm, onnx_einsum, onnx_conv, onnx_pool, onnx_global_pool, onnx_softmax,
    onnx_hardmax, onnx_causal_conv, onnx_layer_norm, onnx_rms_norm, onnx_batch_norm,
    onnx_instance_norm, onnx_group_norm, onnx_lp_norm, onnx_mvn;
sn_tensor onnx_product(onnx_call *c, sn_tensor x, sn_tensor y);
/* Output 0: the convolution as the attributes say, in this type. */
bool onnx_convolution(onnx_call *c, sn_tensor x, sn_tensor w, sn_tensor bias, sn_dtype type);

/* ops_attention.c: attention as one operator */
onnx_make onnx_attention_op, onnx_flex_attention, onnx_linear_attention, onnx_rotary;
typedef struct onnx_attention {
    onnx_call *c;
    sn_tensor q, k, v; /* [B, H, T, d], [B, Hk, S, d], [B, Hk, S, dv] */
    /* beside the scores, [B, H, T, S] or of axes that broadcast to these; or NULL */
    sn_tensor bias;      /* added */
    sn_tensor visible;   /* bool */
    sn_tensor keys;      /* [B]: the number of keys of each sequence; or NULL */
    sn_tensor sink;      /* [H], a score without a value; or NULL */
    double scale;        /* 0: 1 / sqrt(d) */
    double cap;          /* of the scores: cap tanh(s / cap), before they are masked; 0: none */
    bool causal;         /* key k is visible to query q if k <= q + past */
    sn_dim past;         /* keys before the first query */
    sn_tensor first;     /* [B]: the same for each sequence; or NULL */
    int64_t left, right; /* keys that are visible before and after the query's own; -1: all */
} onnx_attention;
sn_tensor onnx_attend(const onnx_attention *a); /* [B, H, T, dv]; NULL: the import starts again */
/* [B, T, heads d] as [B, heads, T, d]; what has four axes already stays. */
sn_tensor onnx_split_heads(onnx_call *c, sn_tensor x, int64_t heads);
/* x after the cached rows of input i, as output `out`. */
sn_tensor onnx_append(onnx_call *c, int i, sn_tensor x, int out);
/* x [B, H, T, d], its first `width` columns rotated by tables [.., T, width / 2]. */
sn_tensor onnx_rotate(onnx_call *c, sn_tensor x, sn_tensor cosine, sn_tensor sine, sn_dim width,
                      bool pairs);
/* A table [positions, w] at positions [B, T], or a table [B, T, w]: [B, 1, T, w]. */
sn_tensor onnx_rows_at(onnx_call *c, sn_tensor table, sn_tensor at);

/* ops_ms.c: com.microsoft */
onnx_make onnx_ms_attention, onnx_ms_q_attention, onnx_ms_multi_head, onnx_ms_group_query,
    onnx_ms_rotary, onnx_ms_skip_norm, onnx_ms_embed_norm, onnx_ms_matmul_n_bits, onnx_ms_matmul,
    onnx_ms_activated;

/* ops_quant.c: quantised values */
onnx_make onnx_quantise, onnx_dequantise, onnx_dynamic_quantise, onnx_matmul_integer,
    onnx_qlinear_matmul, onnx_ms_dynamic_matmul, onnx_ms_matmul_integer, onnx_conv_integer;
/* The product of x less its zero point, 8-bit integers, and of input i less its one, input i_zero, as i32. NULL: the
 * import starts again. */
sn_tensor onnx_integer_product(onnx_call *c, sn_tensor x, sn_tensor x_zero, int i, int i_zero);
/* Input i, zero points or scales of the rows or columns of a matrix product, as operand beside it. */
sn_tensor onnx_beside(onnx_call *c, int i, bool rows);

/* ops_loop.c: graphs that run for each element of an axis */
onnx_make onnx_loop, onnx_scan;
#endif
