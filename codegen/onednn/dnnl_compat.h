/* dnnl_compat.h: the differences between oneDNN 2.x and 3.x, as one set of functions.
 * 3.x made memory descriptors opaque and dropped operation descriptors. Only onednn.c
 * includes it. */
#ifndef SN_DNNL_COMPAT_H
#define SN_DNNL_COMPAT_H

#include <dnnl.h>
#include <stdbool.h>
#include <stdlib.h>

#if DNNL_VERSION_MAJOR >= 3

typedef dnnl_memory_desc_t compat_md; /* owned by whoever made it */
typedef const_dnnl_memory_desc_t compat_const_md;

static inline compat_md compat_md_strides(dnnl_data_type_t type, int rank, const dnnl_dims_t dims,
                                          const dnnl_dims_t strides) {
    compat_md md = NULL;
    return dnnl_memory_desc_create_with_strides(&md, rank, dims, type, strides) == dnnl_success
               ? md
               : NULL;
}

static inline compat_md compat_md_tag(dnnl_data_type_t type, int rank, const dnnl_dims_t dims,
                                      dnnl_format_tag_t tag) {
    compat_md md = NULL;
    return dnnl_memory_desc_create_with_tag(&md, rank, dims, type, tag) == dnnl_success ? md : NULL;
}

static inline compat_md compat_md_clone(compat_const_md md) {
    compat_md copy = NULL;
    return dnnl_memory_desc_clone(&copy, md) == dnnl_success ? copy : NULL;
}

static inline void compat_md_free(compat_md md) {
    if (md) dnnl_memory_desc_destroy(md);
}

static inline dnnl_status_t compat_matmul(dnnl_primitive_desc_t *pd, dnnl_engine_t e, compat_md a,
                                          compat_md b, compat_md bias, compat_md c,
                                          const_dnnl_primitive_attr_t attr) {
    return dnnl_matmul_primitive_desc_create(pd, e, a, b, bias, c, attr);
}

static inline dnnl_status_t compat_softmax(dnnl_primitive_desc_t *pd, dnnl_engine_t e, compat_md x,
                                           int axis) {
    return dnnl_softmax_forward_primitive_desc_create(pd, e, dnnl_forward_inference,
                                                      dnnl_softmax_accurate, x, x, axis, NULL);
}

static inline dnnl_status_t compat_layer_norm(dnnl_primitive_desc_t *pd, dnnl_engine_t e,
                                              compat_md x, float eps, unsigned flags) {
    return dnnl_layer_normalization_forward_primitive_desc_create(pd, e, dnnl_forward_inference, x,
                                                                  x, NULL, eps, flags, NULL);
}

static inline dnnl_status_t compat_convolution(dnnl_primitive_desc_t *pd, dnnl_engine_t e,
                                               compat_md x, compat_md w, compat_md bias,
                                               compat_md y, const dnnl_dims_t strides,
                                               const dnnl_dims_t dilates, const dnnl_dims_t pad_l,
                                               const dnnl_dims_t pad_r) {
    return dnnl_convolution_forward_primitive_desc_create(pd, e, dnnl_forward_inference,
                                                          dnnl_convolution_auto, x, w, bias, y,
                                                          strides, dilates, pad_l, pad_r, NULL);
}

static inline dnnl_status_t compat_softmax_backward(dnnl_primitive_desc_t *pd, dnnl_engine_t e,
                                                    compat_md x, int axis) {
    dnnl_primitive_desc_t hint = NULL;
    dnnl_status_t status = dnnl_softmax_forward_primitive_desc_create(
        &hint, e, dnnl_forward_training, dnnl_softmax_accurate, x, x, axis, NULL);
    if (status == dnnl_success)
        status = dnnl_softmax_backward_primitive_desc_create(pd, e, dnnl_softmax_accurate, x, x, x,
                                                             axis, hint, NULL);
    if (hint) dnnl_primitive_desc_destroy(hint);
    return status;
}

/* With a gain, 2.x has the gradient of x only together with the gain's. */
static inline dnnl_status_t compat_layer_norm_backward(dnnl_primitive_desc_t *pd, dnnl_engine_t e,
                                                       compat_md x, compat_md stat, float eps,
                                                       unsigned flags) {
    dnnl_primitive_desc_t hint = NULL;
    dnnl_status_t status = dnnl_layer_normalization_forward_primitive_desc_create(
        &hint, e, dnnl_forward_training, x, x, stat, eps, flags, NULL);
    if (status == dnnl_success)
        status = dnnl_layer_normalization_backward_primitive_desc_create(
            pd, e, flags ? dnnl_backward : dnnl_backward_data, x, x, x, stat, eps, flags, hint,
            NULL);
    if (hint) dnnl_primitive_desc_destroy(hint);
    return status;
}

static inline dnnl_status_t compat_convolution_backward(dnnl_primitive_desc_t *pd, dnnl_engine_t e,
                                                        bool of_weights, compat_md x, compat_md w,
                                                        compat_md y, const dnnl_dims_t strides,
                                                        const dnnl_dims_t dilates,
                                                        const dnnl_dims_t pad_l,
                                                        const dnnl_dims_t pad_r) {
    dnnl_primitive_desc_t hint = NULL;
    dnnl_alg_kind_t direct = dnnl_convolution_direct;
    dnnl_status_t status = dnnl_convolution_forward_primitive_desc_create(
        &hint, e, dnnl_forward_training, direct, x, w, NULL, y, strides, dilates, pad_l, pad_r,
        NULL);
    if (status == dnnl_success)
        status = of_weights
                     ? dnnl_convolution_backward_weights_primitive_desc_create(
                           pd, e, direct, x, w, NULL, y, strides, dilates, pad_l, pad_r, hint, NULL)
                     : dnnl_convolution_backward_data_primitive_desc_create(
                           pd, e, direct, x, w, y, strides, dilates, pad_l, pad_r, hint, NULL);
    if (hint) dnnl_primitive_desc_destroy(hint);
    return status;
}

#else

typedef dnnl_memory_desc_t *compat_md;
typedef const dnnl_memory_desc_t *compat_const_md;

static inline compat_md compat_md_keep(dnnl_status_t status, const dnnl_memory_desc_t *md) {
    compat_md copy = status == dnnl_success ? malloc(sizeof *copy) : NULL;
    if (copy) *copy = *md;
    return copy;
}

static inline compat_md compat_md_strides(dnnl_data_type_t type, int rank, const dnnl_dims_t dims,
                                          const dnnl_dims_t strides) {
    dnnl_memory_desc_t md;
    return compat_md_keep(dnnl_memory_desc_init_by_strides(&md, rank, dims, type, strides), &md);
}

static inline compat_md compat_md_tag(dnnl_data_type_t type, int rank, const dnnl_dims_t dims,
                                      dnnl_format_tag_t tag) {
    dnnl_memory_desc_t md;
    return compat_md_keep(dnnl_memory_desc_init_by_tag(&md, rank, dims, type, tag), &md);
}

static inline compat_md compat_md_clone(compat_const_md md) {
    return compat_md_keep(dnnl_success, md);
}

static inline void compat_md_free(compat_md md) {
    free(md);
}

static inline dnnl_status_t compat_matmul(dnnl_primitive_desc_t *pd, dnnl_engine_t e, compat_md a,
                                          compat_md b, compat_md bias, compat_md c,
                                          const_dnnl_primitive_attr_t attr) {
    dnnl_matmul_desc_t d;
    dnnl_status_t status = dnnl_matmul_desc_init(&d, a, b, bias, c);
    return status != dnnl_success ? status : dnnl_primitive_desc_create(pd, &d, attr, e, NULL);
}

static inline dnnl_status_t compat_softmax(dnnl_primitive_desc_t *pd, dnnl_engine_t e, compat_md x,
                                           int axis) {
    dnnl_softmax_v2_desc_t d;
    dnnl_status_t status = dnnl_softmax_v2_forward_desc_init(&d, dnnl_forward_inference,
                                                             dnnl_softmax_accurate, x, x, axis);
    return status != dnnl_success ? status : dnnl_primitive_desc_create(pd, &d, NULL, e, NULL);
}

static inline dnnl_status_t compat_layer_norm(dnnl_primitive_desc_t *pd, dnnl_engine_t e,
                                              compat_md x, float eps, unsigned flags) {
    dnnl_layer_normalization_desc_t d;
    dnnl_status_t status =
        dnnl_layer_normalization_forward_desc_init(&d, dnnl_forward_inference, x, NULL, eps, flags);
    return status != dnnl_success ? status : dnnl_primitive_desc_create(pd, &d, NULL, e, NULL);
}

static inline dnnl_status_t compat_convolution(dnnl_primitive_desc_t *pd, dnnl_engine_t e,
                                               compat_md x, compat_md w, compat_md bias,
                                               compat_md y, const dnnl_dims_t strides,
                                               const dnnl_dims_t dilates, const dnnl_dims_t pad_l,
                                               const dnnl_dims_t pad_r) {
    dnnl_convolution_desc_t d;
    dnnl_status_t status = dnnl_dilated_convolution_forward_desc_init(
        &d, dnnl_forward_inference, dnnl_convolution_auto, x, w, bias, y, strides, dilates, pad_l,
        pad_r);
    return status != dnnl_success ? status : dnnl_primitive_desc_create(pd, &d, NULL, e, NULL);
}

/* The backward half of an operation: oneDNN wants to know the forward half that it belongs to. */
static inline dnnl_status_t compat_backward(dnnl_primitive_desc_t *pd, dnnl_engine_t e,
                                            const void *forward, const void *backward) {
    dnnl_primitive_desc_t hint = NULL;
    dnnl_status_t status = dnnl_primitive_desc_create(&hint, forward, NULL, e, NULL);
    if (status == dnnl_success) status = dnnl_primitive_desc_create(pd, backward, NULL, e, hint);
    if (hint) dnnl_primitive_desc_destroy(hint);
    return status;
}

static inline dnnl_status_t compat_softmax_backward(dnnl_primitive_desc_t *pd, dnnl_engine_t e,
                                                    compat_md x, int axis) {
    dnnl_softmax_v2_desc_t f, b;
    dnnl_status_t status = dnnl_softmax_v2_forward_desc_init(&f, dnnl_forward_training,
                                                             dnnl_softmax_accurate, x, x, axis);
    if (status == dnnl_success)
        status = dnnl_softmax_v2_backward_desc_init(&b, dnnl_softmax_accurate, x, x, x, axis);
    return status != dnnl_success ? status : compat_backward(pd, e, &f, &b);
}

static inline dnnl_status_t compat_layer_norm_backward(dnnl_primitive_desc_t *pd, dnnl_engine_t e,
                                                       compat_md x, compat_md stat, float eps,
                                                       unsigned flags) {
    dnnl_layer_normalization_desc_t f, b;
    dnnl_status_t status =
        dnnl_layer_normalization_forward_desc_init(&f, dnnl_forward_training, x, stat, eps, flags);
    if (status == dnnl_success)
        status = dnnl_layer_normalization_backward_desc_init(
            &b, flags ? dnnl_backward : dnnl_backward_data, x, x, stat, eps, flags);
    return status != dnnl_success ? status : compat_backward(pd, e, &f, &b);
}

static inline dnnl_status_t compat_convolution_backward(dnnl_primitive_desc_t *pd, dnnl_engine_t e,
                                                        bool of_weights, compat_md x, compat_md w,
                                                        compat_md y, const dnnl_dims_t strides,
                                                        const dnnl_dims_t dilates,
                                                        const dnnl_dims_t pad_l,
                                                        const dnnl_dims_t pad_r) {
    dnnl_convolution_desc_t f, b;
    dnnl_alg_kind_t direct = dnnl_convolution_direct;
    dnnl_status_t status = dnnl_dilated_convolution_forward_desc_init(
        &f, dnnl_forward_training, direct, x, w, NULL, y, strides, dilates, pad_l, pad_r);
    if (status == dnnl_success)
        status = of_weights ? dnnl_dilated_convolution_backward_weights_desc_init(
                                  &b, direct, x, w, NULL, y, strides, dilates, pad_l, pad_r)
                            : dnnl_dilated_convolution_backward_data_desc_init(
                                  &b, direct, x, w, y, strides, dilates, pad_l, pad_r);
    return status != dnnl_success ? status : compat_backward(pd, e, &f, &b);
}

#endif
#endif
