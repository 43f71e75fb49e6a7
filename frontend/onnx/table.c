/* table.c: the table of operators: what each is in calls of the DSL. A row holds from version `since` of its
 * domain on, until the next row of the name; the functions look at attributes and inputs for what changed
 * between versions. Sources: onnx/onnx, docs/Operators.md and docs/Changelog.md; microsoft/onnxruntime,
 * docs/ContribOperators.md. */
#include "frontend/onnx/ops.h"

#include <string.h>

#define MS "com.microsoft"
#define MAKE(name, domain, since, until, make)                                                     \
    { name, domain, since, until, make, NULL, NULL, NULL, 0 }
#define MAKE_FLAG(name, since, make, flag)                                                         \
    { name, "", since, 0, make, NULL, NULL, NULL, flag }
#define UNARY(name, since, fn, known)                                                              \
    { name, "", since, 0, onnx_unary, fn, NULL, known, 0 }
#define BINARY(name, since, make, fn, known, flag)                                                 \
    { name, "", since, 0, make, NULL, fn, known, flag }
#define KNOWN(name, since, make, known, flag)                                                      \
    { name, "", since, 0, make, NULL, NULL, known, flag }

static const onnx_row rows[] = {
    /* elementwise, one operand */
    UNARY("Abs", 6, sn_abs_at, onnx_k_abs),
    UNARY("Acos", 7, sn_acos_at, NULL),
    UNARY("Acosh", 9, onnx_u_acosh, NULL),
    UNARY("Asin", 7, sn_asin_at, NULL),
    UNARY("Asinh", 9, onnx_u_asinh, NULL),
    UNARY("Atan", 7, sn_atan_at, NULL),
    UNARY("Atanh", 9, onnx_u_atanh, NULL),
    UNARY("BitwiseNot", 18, onnx_u_bitwise_not, NULL),
    UNARY("Ceil", 6, sn_ceil_at, onnx_k_ceil),
    UNARY("Cos", 7, sn_cos_at, NULL),
    UNARY("Cosh", 9, onnx_u_cosh, NULL),
    UNARY("Erf", 9, sn_erf_at, NULL),
    UNARY("Exp", 6, sn_exp_at, NULL),
    UNARY("Floor", 6, sn_floor_at, onnx_k_floor),
    UNARY("IsNaN", 9, onnx_u_is_nan, NULL),
    UNARY("Log", 6, sn_log_at, NULL),
    UNARY("Mish", 18, onnx_u_mish, NULL),
    UNARY("Neg", 6, sn_neg_at, onnx_k_neg),
    UNARY("Not", 1, sn_not_at, onnx_k_not),
    UNARY("Reciprocal", 6, sn_recip_at, NULL),
    UNARY("Relu", 6, sn_relu_at, NULL),
    UNARY("Round", 11, sn_round_at, NULL),
    UNARY("Sigmoid", 6, sn_sigmoid_at, NULL),
    UNARY("Sign", 9, sn_sign_at, NULL),
    UNARY("Sin", 7, sn_sin_at, NULL),
    UNARY("Sinh", 9, onnx_u_sinh, NULL),
    UNARY("Softplus", 1, sn_softplus_at, NULL),
    UNARY("Softsign", 1, onnx_u_softsign, NULL),
    UNARY("Sqrt", 6, sn_sqrt_at, onnx_k_sqrt),
    UNARY("Tan", 7, onnx_u_tan, NULL),
    UNARY("Tanh", 6, sn_tanh_at, NULL),
    MAKE("Celu", "", 12, 0, onnx_celu),
    MAKE("Clip", "", 6, 0, onnx_clip),
    MAKE("Elu", "", 6, 0, onnx_elu),
    MAKE("Gelu", "", 20, 0, onnx_gelu),
    MAKE("HardSigmoid", "", 6, 0, onnx_hard_sigmoid),
    MAKE("HardSwish", "", 14, 0, onnx_hard_swish),
    MAKE("IsInf", "", 10, 0, onnx_is_inf),
    MAKE("LeakyRelu", "", 6, 0, onnx_leaky_relu),
    MAKE("PRelu", "", 7, 0, onnx_prelu),
    MAKE("Selu", "", 6, 0, onnx_selu),
    MAKE("Shrink", "", 9, 0, onnx_shrink),
    MAKE("SwiGLU", "", 28, 0, onnx_swiglu),
    MAKE("Swish", "", 24, 0, onnx_swish),
    MAKE("ThresholdedRelu", "", 10, 0, onnx_thresholded),
    /* elementwise, several operands */
    BINARY("Add", 7, onnx_binary, sn_add_at, onnx_k_add, 0),
    BINARY("And", 7, onnx_binary, sn_and_at, onnx_k_and, 0),
    BINARY("BitwiseAnd", 18, onnx_binary, sn_and_at, NULL, 0),
    BINARY("BitwiseOr", 18, onnx_binary, sn_or_at, NULL, 0),
    BINARY("BitwiseXor", 18, onnx_binary, sn_xor_at, NULL, 0),
    BINARY("Equal", 7, onnx_compare, sn_eq_at, onnx_k_equal, 0),
    BINARY("Greater", 7, onnx_compare, onnx_b_greater, onnx_k_greater, 0),
    BINARY("GreaterOrEqual", 12, onnx_compare, onnx_b_greater_equal, onnx_k_greater_equal, 0),
    BINARY("Less", 7, onnx_compare, sn_lt_at, onnx_k_less, 0),
    BINARY("LessOrEqual", 12, onnx_compare, sn_le_at, onnx_k_less_equal, 0),
    BINARY("Max", 8, onnx_many, sn_max_at, onnx_k_max, 0),
    BINARY("Mean", 8, onnx_many, sn_add_at, NULL, 1),
    BINARY("Min", 8, onnx_many, sn_min_at, onnx_k_min, 0),
    BINARY("Mul", 7, onnx_binary, sn_mul_at, onnx_k_mul, 0),
    BINARY("Or", 7, onnx_binary, sn_or_at, onnx_k_or, 0),
    BINARY("Sub", 7, onnx_binary, sn_sub_at, onnx_k_sub, 0),
    BINARY("Sum", 8, onnx_many, sn_add_at, onnx_k_add, 0),
    BINARY("Xor", 7, onnx_binary, sn_xor_at, NULL, 0),
    MAKE("BitCast", "", 26, 0, onnx_bit_cast),
    MAKE("BitShift", "", 11, 0, onnx_shift),
    KNOWN("Div", 7, onnx_div, onnx_k_div, 0),
    KNOWN("Mod", 10, onnx_mod, onnx_k_mod, 0),
    KNOWN("Pow", 7, onnx_pow, onnx_k_pow, 0),
    KNOWN("Where", 9, onnx_where, onnx_k_where, 0),
    KNOWN("Cast", 6, onnx_cast, onnx_k_cast, 0),
    MAKE("CastLike", "", 15, 0, onnx_cast_like),
    MAKE("Dropout", "", 7, 0, onnx_dropout),
    MAKE("Identity", "", 1, 0, onnx_identity),
    /* graphs */
    MAKE("Loop", "", 1, 0, onnx_loop),
    MAKE("Scan", "", 9, 0, onnx_scan),
    /* shapes */
    MAKE("Concat", "", 4, 0, onnx_concat),
    MAKE("Constant", "", 1, 0, onnx_constant),
    MAKE("ConstantOfShape", "", 9, 0, onnx_constant_of_shape),
    MAKE("DepthToSpace", "", 1, 0, onnx_depth_to_space),
    MAKE("Expand", "", 8, 0, onnx_expand),
    MAKE("Flatten", "", 1, 0, onnx_flatten),
    MAKE("Gather", "", 1, 0, onnx_gather),
    MAKE("If", "", 1, 0, onnx_if),
    MAKE("Pad", "", 1, 0, onnx_pad),
    MAKE("Range", "", 11, 0, onnx_range),
    MAKE("Reshape", "", 1, 0, onnx_reshape),
    MAKE("Shape", "", 1, 0, onnx_shape_of),
    MAKE("Size", "", 1, 0, onnx_size),
    MAKE("Slice", "", 1, 0, onnx_slice),
    MAKE("SpaceToDepth", "", 1, 0, onnx_space_to_depth),
    MAKE("Split", "", 2, 0, onnx_split),
    MAKE("Squeeze", "", 1, 0, onnx_squeeze),
    MAKE("Tile", "", 6, 0, onnx_tile),
    MAKE("Transpose", "", 1, 0, onnx_transpose),
    MAKE("Unsqueeze", "", 1, 0, onnx_unsqueeze),
    /* look-ups, orders, reductions */
    MAKE_FLAG("ArgMax", 1, onnx_arg, 0),
    MAKE_FLAG("ArgMin", 1, onnx_arg, 1),
    MAKE_FLAG("CumProd", 26, onnx_cumulate, SN_CUMPROD),
    MAKE_FLAG("CumSum", 11, onnx_cumulate, SN_CUMSUM),
    MAKE("EyeLike", "", 9, 0, onnx_eye_like),
    MAKE("GatherElements", "", 11, 0, onnx_gather_elements),
    MAKE("GatherND", "", 11, 0, onnx_gather_nd),
    MAKE("NonZero", "", 9, 0, onnx_non_zero),
    MAKE("OneHot", "", 9, 0, onnx_one_hot),
    MAKE_FLAG("ReduceL1", 1, onnx_reduce, ONNX_R_L1),
    MAKE_FLAG("ReduceL2", 1, onnx_reduce, ONNX_R_L2),
    MAKE_FLAG("ReduceLogSum", 1, onnx_reduce, ONNX_R_LOG_SUM),
    MAKE_FLAG("ReduceLogSumExp", 1, onnx_reduce, ONNX_R_LOG_SUM_EXP),
    KNOWN("ReduceMax", 1, onnx_reduce, onnx_k_max, ONNX_R_MAX),
    MAKE_FLAG("ReduceMean", 1, onnx_reduce, ONNX_R_MEAN),
    KNOWN("ReduceMin", 1, onnx_reduce, onnx_k_min, ONNX_R_MIN),
    KNOWN("ReduceProd", 1, onnx_reduce, onnx_k_mul, ONNX_R_PROD),
    KNOWN("ReduceSum", 1, onnx_reduce, onnx_k_add, ONNX_R_SUM),
    MAKE_FLAG("ReduceSumSquare", 1, onnx_reduce, ONNX_R_SQUARES),
    MAKE("Scatter", "", 9, 10, onnx_scatter_elements),
    MAKE("ScatterElements", "", 11, 0, onnx_scatter_elements),
    MAKE("ScatterND", "", 11, 0, onnx_scatter_nd),
    MAKE("TensorScatter", "", 24, 0, onnx_tensor_scatter),
    MAKE("TopK", "", 1, 0, onnx_top_k),
    MAKE("Trilu", "", 14, 0, onnx_trilu),
    /* products, convolutions, norms */
    MAKE("Attention", "", 23, 0, onnx_attention_op),
    MAKE_FLAG("AveragePool", 1, onnx_pool, 0),
    MAKE("BatchNormalization", "", 7, 0, onnx_batch_norm),
    MAKE("CausalConvWithState", "", 27, 0, onnx_causal_conv),
    MAKE_FLAG("Conv", 1, onnx_conv, 0),
    MAKE_FLAG("ConvTranspose", 1, onnx_conv, 1),
    MAKE("FlexAttention", "ai.onnx.preview", 1, 0, onnx_flex_attention),
    MAKE("Einsum", "", 12, 0, onnx_einsum),
    MAKE("Gemm", "", 7, 0, onnx_gemm),
    MAKE_FLAG("GlobalAveragePool", 1, onnx_global_pool, 0),
    MAKE_FLAG("GlobalMaxPool", 1, onnx_global_pool, 1),
    MAKE("GroupNormalization", "", 18, 0, onnx_group_norm),
    MAKE("Hardmax", "", 1, 0, onnx_hardmax),
    MAKE("InstanceNormalization", "", 6, 0, onnx_instance_norm),
    MAKE("LayerNormalization", "", 1, 0, onnx_layer_norm), /* before 17: ONNX Runtime's */
    MAKE("LinearAttention", "", 27, 0, onnx_linear_attention),
    MAKE_FLAG("LogSoftmax", 1, onnx_softmax, 1),
    MAKE("LpNormalization", "", 1, 0, onnx_lp_norm),
    MAKE("MatMul", "", 1, 0, onnx_matmul),
    MAKE_FLAG("MaxPool", 1, onnx_pool, 1),
    MAKE("MeanVarianceNormalization", "", 9, 0, onnx_mvn),
    MAKE("Resize", "", 10, 0, onnx_resize),
    MAKE("Upsample", "", 9, 9, onnx_resize),
    MAKE("RotaryEmbedding", "", 23, 0, onnx_rotary),
    MAKE("RMSNormalization", "", 23, 0, onnx_rms_norm),
    MAKE("SimplifiedLayerNormalization", "", 1, 0, onnx_rms_norm), /* ONNX Runtime's */
    MAKE_FLAG("Softmax", 1, onnx_softmax, 0),
    /* quantised */
    MAKE("ConvInteger", "", 10, 0, onnx_conv_integer),
    MAKE("DequantizeLinear", "", 10, 0, onnx_dequantise),
    MAKE("DynamicQuantizeLinear", "", 11, 0, onnx_dynamic_quantise),
    MAKE("MatMulInteger", "", 10, 0, onnx_matmul_integer),
    MAKE("QLinearMatMul", "", 10, 0, onnx_qlinear_matmul),
    MAKE("QuantizeLinear", "", 10, 0, onnx_quantise),
    /* com.microsoft */
    MAKE("Attention", MS, 1, 0, onnx_ms_attention),
    MAKE("BiasGelu", MS, 1, 0, onnx_bias_gelu),
    MAKE("DynamicQuantizeMatMul", MS, 1, 0, onnx_ms_dynamic_matmul),
    MAKE("EmbedLayerNormalization", MS, 1, 0, onnx_ms_embed_norm),
    MAKE("FastGelu", MS, 1, 0, onnx_fast_gelu),
    MAKE("FusedConv", MS, 1, 0, onnx_ms_activated),
    {"FusedGemm", MS, 1, 0, onnx_ms_activated, NULL, NULL, NULL, 1},
    MAKE("FusedMatMul", MS, 1, 0, onnx_ms_matmul),
    MAKE("Gelu", MS, 1, 0, onnx_gelu),
    MAKE("GroupQueryAttention", MS, 1, 0, onnx_ms_group_query),
    MAKE("MatMulIntegerToFloat", MS, 1, 0, onnx_ms_matmul_integer),
    MAKE("MatMulNBits", MS, 1, 0, onnx_ms_matmul_n_bits),
    MAKE("MultiHeadAttention", MS, 1, 0, onnx_ms_multi_head),
    MAKE("QAttention", MS, 1, 0, onnx_ms_q_attention),
    MAKE("QuickGelu", MS, 1, 0, onnx_quick_gelu),
    MAKE("RotaryEmbedding", MS, 1, 0, onnx_ms_rotary),
    MAKE("SkipLayerNormalization", MS, 1, 0, onnx_ms_skip_norm),
    {"SkipSimplifiedLayerNormalization", MS, 1, 0, onnx_ms_skip_norm, NULL, NULL, NULL, 1},
    MAKE("TransposeMatMul", MS, 1, 0, onnx_ms_matmul),
};
enum { ROWS = sizeof rows / sizeof *rows };

const onnx_row *onnx_find_row(const char *domain, const char *op, int64_t version,
                              const onnx_row **near) {
    *near = NULL;
    for (int i = 0; i < ROWS; i++) {
        const onnx_row *r = &rows[i];
        if (*r->name != *op || strcmp(r->name, op) != 0 || strcmp(r->domain, domain) != 0) continue;
        if (version >= r->since && (!r->until || version <= r->until)) return r;
        *near = r;
    }
    return NULL;
}

const onnx_row *onnx_row_at(int i) {
    return i >= 0 && i < ROWS ? &rows[i] : NULL;
}
