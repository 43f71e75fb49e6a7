/* images.c: images as sequences of squares, and the ResNet block that embeds them. */
#include "frontend/models.h"

sn_tensor sn_image_patches(sn_tensor image, int64_t size) {
    sn_module *m = sn_module_of(image);
    sn_dim n = sn_dim_of(image, 0), c = sn_dim_of(image, 1);
    sn_dim rows = sn_dim_quot(m, sn_dim_of(image, 2), size),
           columns = sn_dim_quot(m, sn_dim_of(image, 3), size);
    sn_tensor x = sn_reshape(image, n, c, rows, size, columns, size);
    x = sn_transpose(x, 0, 2, 4, 1, 3, 5);
    return sn_reshape(x, n, sn_dim_mul(m, rows, columns), c, size, size);
}

/* x [n, C, h, w]: groups of channels get mean 0 and variance 1 (Wu & He 2018) */
static sn_tensor group_norm(sn_tensor x, const char *name, int64_t filters, int64_t groups) {
    sn_module *m = sn_module_of(x);
    sn_dim n = sn_dim_of(x, 0), h = sn_dim_of(x, 2), w = sn_dim_of(x, 3);
    sn_scope_push(m, "%s", name);
    sn_tensor gain = sn_param(m, "weight", SN_F32, filters, 1, 1),
              bias = sn_param(m, "bias", SN_F32, filters, 1, 1);
    sn_scope_pop(m);
    sn_tensor y = sn_layer_norm(sn_reshape(x, n, groups, SN_REST), NULL, NULL, 1e-5);
    return sn_add(sn_mul(sn_reshape(y, n, filters, h, w), gain), bias);
}

static sn_tensor convolve(sn_tensor x, const char *name, int64_t filters, int64_t stride) {
    sn_module *m = sn_module_of(x);
    sn_scope_push(m, "%s", name);
    sn_tensor w = sn_param(m, "weight", SN_F32, filters, sn_dim_of(x, 1), 3, 3),
              b = sn_param(m, "bias", SN_F32, filters);
    sn_scope_pop(m);
    return sn_conv2d(x, w, b, .stride = {stride, stride}, .padding = {1, 1});
}

sn_tensor sn_image_resnet(sn_tensor image, int64_t filters, int64_t groups) {
    sn_tensor x = convolve(image, "resnet.conv_in", filters, 2);
    sn_tensor y = sn_gelu(group_norm(x, "resnet.norm1", filters, groups));
    y = convolve(y, "resnet.conv1", filters, 1);
    y = sn_gelu(group_norm(y, "resnet.norm2", filters, groups));
    return sn_add(x, convolve(y, "resnet.conv2", filters, 1));
}
