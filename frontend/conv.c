/* conv.c: convolution in the DSL: checks operands and explains errors; the definition is in
 * ir/decomp_conv.c. */
#include "frontend/front.h"

static sn_tensor fail(sn_tensor x, sn_tensor w, const char *why) {
    char a[SN_NODE_TEXT], b[SN_NODE_TEXT];
    return sn_module_fail(x->m, SN_ERR_SHAPE, "conv2d: %s and %s: %s", sn_node_text(x, a),
                          sn_node_text(w, b), why);
}

sn_tensor sn_conv2d_at(sn_loc at, sn_tensor x, sn_tensor w, sn_conv2d_options o) {
    sn_tensor in[3] = {x, w, o.bias}, bad;
    if (!front_enter(at, "conv2d", 3, 2, in, &bad)) return bad;
    int64_t groups = o.groups ? o.groups : 1, step[2], dilate[2];
    sn_dim part;
    if (x->rank != 4 || w->rank != 4)
        return fail(x, w, "x must be [B, C, H, W], the kernel [O, C, kh, kw]");
    if (!sn_dtype_is_float((sn_dtype)x->dtype) || !sn_dtype_is_float((sn_dtype)w->dtype))
        return fail(x, w, "both need a float type. Hint: sn_cast");
    if (groups < 1 || !sn_dim_div(x->m, x->shape[1], groups, &part) || w->shape[1] != part)
        return fail(x, w, "the kernel's second axis must be x's channels / groups");
    if (o.bias && (o.bias->rank != 1 || o.bias->shape[0] != w->shape[0]))
        return fail(w, o.bias, "the bias must be [O], the kernel's first axis");
    for (int i = 0; i < 2; i++) {
        if (o.stride[i] < 0 || o.padding[i] < 0 || o.dilation[i] < 0)
            return fail(x, w, "stride, padding and dilation must not be negative");
        step[i] = o.stride[i] ? o.stride[i] : 1;
        dilate[i] = o.dilation[i] ? o.dilation[i] : 1;
    }
    return sn_node_new(x->m, SN_OP_conv2d, o.bias ? 3 : 2, in,
                       SN_ATTRS(SN_LIST(step, 2, step), SN_LIST(low, 2, o.padding),
                                SN_LIST(high, 2, o.padding), SN_LIST(dilate, 2, dilate),
                                SN_INT(groups, groups)));
}
