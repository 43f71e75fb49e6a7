/* conv.c: convolution in the DSL: checks operands and explains errors; the definition is in
 * ir/decomp_conv.c. */
#include "frontend/front.h"

enum { MAX_DEPTH = 64 }; /* of a 3-D kernel */

static sn_tensor fail(const char *op, sn_tensor x, sn_tensor w, const char *why) {
    char a[SN_NODE_TEXT], b[SN_NODE_TEXT];
    return sn_module_fail(x->m, SN_ERR_SHAPE, "%s: %s and %s: %s", op, sn_node_text(x, a),
                          sn_node_text(w, b), why);
}

sn_tensor sn_conv2d_at(sn_loc at, sn_tensor x, sn_tensor w, sn_conv2d_options o) {
    sn_tensor in[3] = {x, w, o.bias}, bad;
    if (!front_enter(at, "conv2d", 3, 2, in, &bad)) return bad;
    int64_t groups = o.groups ? o.groups : 1, step[2], dilate[2];
    sn_dim part;
    if (x->rank != 4 || w->rank != 4)
        return fail("conv2d", x, w, "x must be [B, C, H, W], the kernel [O, C, kh, kw]");
    if (!sn_dtype_is_float((sn_dtype)x->dtype) || !sn_dtype_is_float((sn_dtype)w->dtype))
        return fail("conv2d", x, w, "both need a float type. Hint: sn_cast");
    if (groups < 1 || !sn_dim_div(x->m, x->shape[1], groups, &part) || w->shape[1] != part)
        return fail("conv2d", x, w, "the kernel's second axis must be x's channels / groups");
    if (o.bias && (o.bias->rank != 1 || o.bias->shape[0] != w->shape[0]))
        return fail("conv2d", w, o.bias, "the bias must be [O], the kernel's first axis");
    for (int i = 0; i < 2; i++) {
        if (o.stride[i] < 0 || o.padding[i] < 0 || o.dilation[i] < 0)
            return fail("conv2d", x, w, "stride, padding and dilation must not be negative");
        step[i] = o.stride[i] ? o.stride[i] : 1;
        dilate[i] = o.dilation[i] ? o.dilation[i] : 1;
    }
    return sn_node_new(x->m, SN_OP_conv2d, o.bias ? 3 : 2, in,
                       SN_ATTRS(SN_LIST(step, 2, step), SN_LIST(low, 2, o.padding),
                                SN_LIST(high, 2, o.padding), SN_LIST(dilate, 2, dilate),
                                SN_INT(groups, groups)));
}

sn_tensor sn_conv3d_at(sn_loc at, sn_tensor x, sn_tensor w, sn_conv3d_options o) {
    sn_tensor in[3] = {x, w, o.bias}, bad, slice[MAX_DEPTH + 1] = {NULL};
    if (!front_enter(at, "conv3d", 3, 2, in, &bad)) return bad;
    const int64_t step = o.stride[0] ? o.stride[0] : 1, dilate = o.dilation[0] ? o.dilation[0] : 1;
    int64_t depth, kd;
    if (x->rank != 5 || w->rank != 5 || !sn_dim_is_const(x->m, x->shape[2], &depth) ||
        !sn_dim_is_const(x->m, w->shape[2], &kd))
        return fail("conv3d", x, w,
                    "x must be [B, C, D, H, W], the kernel [O, C, kd, kh, kw]; D and kd numbers");
    const int64_t room = depth + 2 * o.padding[0] - dilate * (kd - 1) - 1;
    if (step < 1 || dilate < 1 || o.padding[0] < 0 || kd < 1 || kd > MAX_DEPTH || room < 0)
        return fail("conv3d", x, w, "the kernel's depth does not fit, or exceeds 64");
    x = sn_pad_at(at, x, 2, o.padding[0], o.padding[0], 0);
    for (int i = 0; i < kd; i++)
        slice[i] = sn_expand_at(at, sn_slice_at(at, x, 2, i * dilate, room / step + 1, step), 2);
    x = sn_transpose_at(at, sn_concat_at(at, 2, slice), SN_AXES(0, 3, 1, 2, 4, 5));
    const sn_dim *s = x->shape, *k = w->shape; /* [B, D, C, kd, H, W] */
    sn_dim B = s[0], D = s[1], H = s[4], W = s[5];
    x = sn_reshape_at(at, x, SN_DIMS(sn_dim_mul(x->m, B, D), sn_dim_mul(x->m, s[2], kd), H, W));
    w = sn_reshape_at(at, w, SN_DIMS(k[0], sn_dim_mul(x->m, k[1], kd), k[3], k[4]));
    sn_tensor y = sn_conv2d_at(at, x, w,
                               (sn_conv2d_options){.bias = o.bias,
                                                   .stride = {o.stride[1], o.stride[2]},
                                                   .padding = {o.padding[1], o.padding[2]},
                                                   .dilation = {o.dilation[1], o.dilation[2]},
                                                   .groups = o.groups});
    if (sn_module_error(x->m)->code) return y;
    y = sn_reshape_at(at, y, SN_DIMS(B, D, y->shape[1], y->shape[2], y->shape[3]));
    return sn_transpose_at(at, y, SN_AXES(0, 2, 1, 3, 4));
}
