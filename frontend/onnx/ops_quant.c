/* ops_quant.c: values that are quantised as integers with a scale and a zero point. */
#include "frontend/onnx/ops.h"

/* A scale or zero point beside x: a number, a vector along an axis, or one for each block of the axis. */
static sn_tensor along(onnx_call *c, sn_tensor v, sn_tensor x, int axis) {
    const int64_t block = onnx_int(c, "block_size", 0);
    const int rank = v ? sn_rank_of(v) : 0;
    if (block > 0 && rank == sn_rank_of(x) && rank < SN_MAX_RANK) {
        sn_dim shape[SN_MAX_RANK + 2], all = sn_dim_mul(c->m, sn_dim_of(v, axis), block);
        for (int i = 0, k = 0; i < rank; i++) {
            shape[k++] = sn_dim_of(v, i);
            if (i == axis) shape[k++] = block;
        }
        shape[rank + 1] = SN_END;
        v = sn_broadcast_at(c->at, sn_expand(v, axis + 1), shape);
        for (int i = 0; i < rank; i++) shape[i] = i == axis ? all : sn_dim_of(v, i + (i > axis));
        shape[rank] = SN_END;
        v = sn_reshape_at(c->at, v, shape);
        return all == sn_dim_of(x, axis) ? v : sn_slice(v, axis, 0, sn_dim_of(x, axis));
    }
    if (!v || rank != 1) return v;
    if (sn_dim_of(v, 0) == 1) return sn_reshape(v, SN_SCALAR);
    for (int i = axis + 1; i < sn_rank_of(x); i++) v = sn_expand(v, -1);
    return v;
}

static const struct range {
    onnx_type type;
    double low, high;
} ranges[] = {{ONNX_UINT8, 0, 255},
              {ONNX_INT8, -128, 127},
              {ONNX_UINT16, 0, 65535},
              {ONNX_INT16, -32768, 32767}};

static const struct range *range_of(int64_t type) {
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (ranges[i].type == (onnx_type)type) return &ranges[i];
    return NULL;
}

/* Of the type of input i, a zero point. */
static const struct range *range_like(const onnx_call *c, int i) {
    const onnx_value *v = c->in[i];
    return range_of(v->narrow ? v->narrow : v->type == SN_I8 ? ONNX_INT8 : ONNX_UINT8);
}

/* round(x / scale) + zero, within the range of the type */
static sn_tensor quantise(onnx_call *c, sn_tensor x, sn_tensor scale, sn_tensor zero,
                          const struct range *r) {
    sn_tensor y = sn_round(sn_ieee_div(sn_cast(x, SN_F32), sn_cast(scale, SN_F32)));
    sn_dtype type = SN_U8;
    if (zero) y = sn_add(y, sn_cast(zero, SN_F32));
    onnx_dtype(r->type, &type);
    return sn_cast(sn_max(sn_min(y, r->high), r->low), type);
}

/* x - zero as i32 */
static sn_tensor centred(onnx_call *c, sn_tensor x, sn_tensor zero) {
    x = sn_cast(x, SN_I32);
    return zero ? sn_sub(x, sn_cast(zero, SN_I32)) : x;
}

sn_tensor onnx_beside(onnx_call *c, int i, bool rows) {
    sn_tensor z = onnx_in_or_null(c, i);
    if (z && sn_rank_of(z) == 1 && sn_dim_of(z, 0) == 1) return sn_reshape(z, SN_SCALAR);
    return z && rows && sn_rank_of(z) == 1 ? sn_expand(z, 1) : z;
}

bool onnx_quantise(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0), scale = onnx_in(c, 1), zero = onnx_in_or_null(c, 2);
    const int64_t wanted = onnx_int(c, "output_dtype", 0);
    const struct range *r = zero ? range_like(c, 2) : range_of(wanted ? wanted : ONNX_UINT8);
    int axis = 0;
    if (!r) return onnx_fail(c, "the result has neither 8 nor 16 bits");
    if (sn_rank_of(x) && sn_rank_of(scale) &&
        !onnx_axis(c, onnx_int(c, "axis", 1), sn_rank_of(x), &axis))
        return false;
    sn_tensor y = quantise(c, x, along(c, scale, x, axis), along(c, zero, x, axis), r);
    return onnx_set_narrow(c, 0, y, r->type);
}

bool onnx_dequantise(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0), scale = onnx_in(c, 1), zero = onnx_in_or_null(c, 2);
    int axis = 0;
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
    *scale = sn_ieee_div(sn_sub(high, low), 255);
    sn_tensor z = sn_round(sn_ieee_div(sn_neg(low), *scale));
    *zero = sn_cast(sn_max(sn_min(z, 255), 0), SN_U8);
    return quantise(c, x, *scale, *zero, &ranges[0]);
}

bool onnx_dynamic_quantise(onnx_call *c) {
    sn_tensor scale, zero, y = quantise_range(c, onnx_in(c, 0), &scale, &zero);
    return onnx_set(c, 0, y) && onnx_set(c, 1, scale) && onnx_set(c, 2, zero);
}

/* Integers of 8 bits as i8: those without a sign less 128. */
static sn_tensor signed_bytes(onnx_call *c, sn_tensor x) {
    return sn_dtype_of(x) == SN_I8 ? x : sn_cast(sn_sub(sn_cast(x, SN_I32), 128), SN_I8);
}

/* The zero point of input i, for x as signed_bytes gives it; NULL: it is known to be 0. */
static sn_tensor signed_zero(onnx_call *c, sn_tensor x, sn_tensor zero, const onnx_value *value) {
    const int shift = sn_dtype_of(x) == SN_I8 ? 0 : 128;
    double known = 0;
    if (!zero || (value && onnx_number(c, value, &known)))
        return known == shift ? NULL : sn_scalar(c->m, SN_I32, known - shift);
    zero = sn_cast(zero, SN_I32);
    return shift ? sn_sub(zero, shift) : zero;
}

static bool is_bytes(sn_tensor x) {
    return sn_dtype_of(x) == SN_I8 || sn_dtype_of(x) == SN_U8;
}

/* Of a constant matrix, by the kernel of products of i8: with the zero points p and q, sum (x - p) (w - q) =
 * sum x w - q sum x - p sum (w - q). */
sn_tensor onnx_integer_product(onnx_call *c, sn_tensor x, sn_tensor x_zero, int i, int i_zero) {
    sn_tensor w = onnx_in(c, i), w_zero = onnx_beside(c, i_zero, false);
    const bool constant = c->in[i] && (c->in[i]->weight || c->in[i]->known);
    const bool columns = !w_zero || sn_rank_of(w_zero) < 2; /* a zero point for each, or one */
    if (!constant || !columns || sn_rank_of(w) != 2 || sn_rank_of(x) < 2 || !is_bytes(x) ||
        !is_bytes(w))
        return onnx_product(c, centred(c, x, x_zero), centred(c, w, w_zero));
    if (!onnx_equal(c, sn_dim_of(x, -1), sn_dim_of(w, 0)) && onnx_again(c)) return NULL;
    sn_tensor p = signed_zero(c, x, x_zero, NULL);
    sn_tensor q = signed_zero(c, w, w_zero, onnx_given(c, i_zero) ? c->in[i_zero] : NULL);
    x = sn_cast(signed_bytes(c, x), SN_I32);
    w = sn_cast(signed_bytes(c, sn_swap(w, 0, 1)), SN_I32);
    sn_tensor y = sn_matmul(x, sn_swap(w, 0, 1));
    if (q) y = sn_sub(y, sn_mul(sn_sum_keep(x, -1), q));
    if (q && sn_rank_of(q)) q = sn_expand(q, 1);
    return p ? sn_sub(y, sn_mul(p, sn_sum(q ? sn_sub(w, q) : w, -1))) : y;
}

bool onnx_matmul_integer(onnx_call *c) {
    return onnx_set(c, 0, onnx_integer_product(c, onnx_in(c, 0), onnx_beside(c, 2, true), 1, 3));
}

bool onnx_qlinear_matmul(onnx_call *c) {
    sn_tensor y = onnx_integer_product(c, onnx_in(c, 0), onnx_beside(c, 2, true), 3, 5);
    sn_tensor scale = sn_mul(onnx_beside(c, 1, true), onnx_beside(c, 4, false));
    sn_tensor z = y ? sn_mul(sn_cast(y, SN_F32), sn_cast(scale, SN_F32)) : NULL;
    if (!z) return false;
    if (!onnx_given(c, 7)) return onnx_fail(c, "its last zero point is missing");
    const struct range *r = range_like(c, 7);
    if (!r) return onnx_fail(c, "the result has neither 8 nor 16 bits");
    sn_tensor q = quantise(c, z, onnx_beside(c, 6, true), onnx_beside(c, 7, true), r);
    return onnx_set_narrow(c, 0, q, r->type);
}

/* Sums of products of integers are exact in f64. */
bool onnx_conv_integer(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0), w = onnx_in(c, 1), zero = onnx_in_or_null(c, 3);
    x = centred(c, x, onnx_beside(c, 2, false));
    w = centred(c, w, along(c, zero, w, 0));
    return onnx_convolution(c, sn_cast(x, SN_F64), sn_cast(w, SN_F64), NULL, SN_I32);
}

/* com.microsoft: x, integers with a zero point, times integers, as floats with a scale. */
static bool product(onnx_call *c, sn_tensor x, sn_tensor zero, sn_tensor scale, int w, int w_scale,
                    int w_zero, int b) {
    sn_tensor bias = onnx_in_or_null(c, b), y = onnx_integer_product(c, x, zero, w, w_zero);
    if (!y) return false;
    y = sn_mul(sn_mul(sn_cast(y, SN_F32), scale), onnx_beside(c, w_scale, false));
    return onnx_set_narrow(c, 0, bias ? sn_add(y, bias) : y, ONNX_FLOAT);
}

/* x quantised by its range */
bool onnx_ms_dynamic_matmul(onnx_call *c) {
    sn_tensor scale, zero, x = quantise_range(c, onnx_in(c, 0), &scale, &zero);
    return product(c, x, zero, scale, 1, 2, 3, 4);
}

bool onnx_ms_matmul_integer(onnx_call *c) {
    return product(c, onnx_in(c, 0), onnx_beside(c, 4, true), onnx_beside(c, 2, true), 1, 3, 5, 6);
}
