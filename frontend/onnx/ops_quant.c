/* ops_quant.c: values that are quantised as integers with a scale and a zero point. */
#include "frontend/onnx/ops.h"

/* A scale or zero point: a number, or a vector along an axis of x. */
static sn_tensor along(onnx_call *c, sn_tensor v, sn_tensor x, int axis) {
    if (!v || sn_rank_of(v) != 1) return v;
    if (sn_dim_of(v, 0) == 1) return sn_reshape(v, SN_SCALAR);
    for (int i = axis + 1; i < sn_rank_of(x); i++) v = sn_expand(v, -1);
    return v;
}

/* round(x / scale) + zero, within the range of the type */
static sn_tensor quantise(onnx_call *c, sn_tensor x, sn_tensor scale, sn_tensor zero,
                          sn_dtype type) {
    sn_tensor y = sn_round(sn_div(sn_cast(x, SN_F32), scale));
    if (zero) y = sn_add(y, sn_cast(zero, SN_F32));
    const bool plain = type == SN_U8;
    return sn_cast(sn_max(sn_min(y, plain ? 255 : 127), plain ? 0 : -128), type);
}

sn_tensor onnx_centred(onnx_call *c, sn_tensor x, sn_tensor zero) {
    x = sn_cast(x, SN_I32);
    return zero ? sn_sub(x, sn_cast(zero, SN_I32)) : x;
}

sn_tensor onnx_zero_of(onnx_call *c, int i, bool rows) {
    sn_tensor z = onnx_in_or_null(c, i);
    if (z && sn_rank_of(z) == 1 && sn_dim_of(z, 0) == 1) return sn_reshape(z, SN_SCALAR);
    return z && rows && sn_rank_of(z) == 1 ? sn_expand(z, 1) : z;
}

bool onnx_quantise(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0), scale = onnx_in(c, 1), zero = onnx_in_or_null(c, 2);
    const sn_dtype type = zero ? sn_dtype_of(zero) : SN_U8;
    int axis = 0;
    if (onnx_int(c, "block_size", 0)) return onnx_fail(c, "blocks are not supported");
    if (type != SN_U8 && type != SN_I8) return onnx_fail(c, "the result is neither u8 nor i8");
    if (sn_rank_of(x) && sn_rank_of(scale) &&
        !onnx_axis(c, onnx_int(c, "axis", 1), sn_rank_of(x), &axis))
        return false;
    return onnx_set(c, 0, quantise(c, x, along(c, scale, x, axis), along(c, zero, x, axis), type));
}

bool onnx_dequantise(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0), scale = onnx_in(c, 1), zero = onnx_in_or_null(c, 2);
    int axis = 0;
    if (onnx_int(c, "block_size", 0)) return onnx_fail(c, "blocks are not supported");
    if (sn_rank_of(x) && sn_rank_of(scale) &&
        !onnx_axis(c, onnx_int(c, "axis", 1), sn_rank_of(x), &axis))
        return false;
    sn_tensor y = sn_cast(x, sn_dtype_of(scale));
    if (zero) y = sn_sub(y, sn_cast(along(c, zero, x, axis), sn_dtype_of(scale)));
    return onnx_set(c, 0, sn_mul(y, along(c, scale, x, axis)));
}

/* u8 values of x, with the scale and zero point that its range gives. */
static sn_tensor quantise_range(onnx_call *c, sn_tensor x, sn_tensor *scale, sn_tensor *zero) {
    sn_tensor low = sn_min(sn_amin_at(c->at, x, NULL, false), 0);
    sn_tensor high = sn_max(sn_amax_at(c->at, x, NULL, false), 0);
    *scale = sn_div(sn_sub(high, low), 255);
    sn_tensor z = sn_round(sn_div(sn_neg(low), *scale));
    *zero = sn_cast(sn_max(sn_min(z, 255), 0), SN_U8);
    return quantise(c, x, *scale, *zero, SN_U8);
}

bool onnx_dynamic_quantise(onnx_call *c) {
    sn_tensor scale, zero, y = quantise_range(c, onnx_in(c, 0), &scale, &zero);
    return onnx_set(c, 0, y) && onnx_set(c, 1, scale) && onnx_set(c, 2, zero);
}

bool onnx_matmul_integer(onnx_call *c) {
    sn_tensor x = onnx_centred(c, onnx_in(c, 0), onnx_zero_of(c, 2, true));
    sn_tensor y = onnx_centred(c, onnx_in(c, 1), onnx_zero_of(c, 3, false));
    return onnx_set(c, 0, onnx_product(c, x, y));
}

bool onnx_qlinear_matmul(onnx_call *c) {
    sn_tensor x = onnx_centred(c, onnx_in(c, 0), onnx_zero_of(c, 2, true));
    sn_tensor y = onnx_centred(c, onnx_in(c, 3), onnx_zero_of(c, 5, false));
    sn_tensor scale = sn_mul(onnx_zero_of(c, 1, true), onnx_zero_of(c, 4, false));
    sn_tensor z = sn_mul(sn_cast(onnx_product(c, x, y), SN_F32), sn_cast(scale, SN_F32));
    sn_tensor to = onnx_in(c, 7);
    return onnx_set(
        c, 0, quantise(c, z, onnx_zero_of(c, 6, true), onnx_zero_of(c, 7, true), sn_dtype_of(to)));
}

/* Sums of products of integers are exact in f64. */
bool onnx_conv_integer(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0), w = onnx_in(c, 1), zero = onnx_in_or_null(c, 3);
    x = onnx_centred(c, x, onnx_zero_of(c, 2, false));
    w = onnx_centred(c, w, along(c, zero, w, 0));
    return onnx_convolution(c, sn_cast(x, SN_F64), sn_cast(w, SN_F64), NULL, SN_I32);
}

/* com.microsoft: x quantised by its range, times integers. */
bool onnx_ms_dynamic_matmul(onnx_call *c) {
    sn_tensor scale, zero, x = quantise_range(c, onnx_in(c, 0), &scale, &zero);
    sn_tensor bias = onnx_in_or_null(c, 4);
    sn_tensor y = onnx_product(c, onnx_centred(c, x, zero),
                               onnx_centred(c, onnx_in(c, 1), onnx_zero_of(c, 3, false)));
    y = sn_mul(sn_mul(sn_cast(y, SN_F32), scale), onnx_zero_of(c, 2, false));
    return onnx_set(c, 0, bias ? sn_add(y, bias) : y);
}
