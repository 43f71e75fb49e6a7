/* ops_resize.c: Resize and Upsample: each axis is interpolated by itself. The sizes of resized axes are numbers, so
 * places and weights are computed while the graph is imported. */
#include "frontend/onnx/ops.h"

#include <math.h>
#include <string.h>

enum { MAX_SIZE = ONNX_ARRAY_MAX, MAX_TAPS = 256 };

typedef struct resize {
    onnx_call *c;
    bool cubic, nearest, antialias, exclude, crops;
    double a; /* of the cubic kernel */
    const char *transform, *rounding;
} resize;

/* Where element i of `out` lies in x with n elements, scaled by `scale`. */
static double place(const resize *r, double i, double n, double out, double scale,
                    const double roi[2]) {
    const double width = scale * n;
    if (!strcmp(r->transform, "asymmetric")) return i / scale;
    if (!strcmp(r->transform, "align_corners")) return width == 1 ? 0 : i * (n - 1) / (width - 1);
    if (r->crops) {
        const double size = (roi[1] - roi[0]) * (n - 1);
        return roi[0] * (n - 1) + (width == 1 ? size / 2 : i * size / (width - 1));
    }
    if (!strcmp(r->transform, "pytorch_half_pixel") && width == 1) return -0.5;
    const bool symmetric = !strcmp(r->transform, "half_pixel_symmetric");
    return (symmetric ? n / 2 * (1 - out / width) : 0) + (i + 0.5) / scale - 0.5;
}

static double kernel(const resize *r, double x) {
    const double a = r->a;
    x = fabs(x);
    if (!r->cubic) return x < 1 ? 1 - x : 0;
    if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

static double round_place(const resize *r, double x) {
    if (!strcmp(r->rounding, "floor")) return floor(x);
    if (!strcmp(r->rounding, "ceil")) return ceil(x);
    return strcmp(r->rounding, "round_prefer_ceil") != 0 ? ceil(x - 0.5) : floor(x + 0.5);
}

/* Values along an axis of a tensor with this rank. */
static sn_tensor along(onnx_call *c, const double *value, sn_dtype type, int64_t n, int axis,
                       int rank) {
    sn_dim shape[SN_MAX_RANK + 1];
    for (int i = 0; i < rank; i++) shape[i] = i == axis ? n : 1;
    shape[rank] = SN_END;
    return sn_array_at(c->at, c->m, type, n, value, shape);
}

static sn_tensor resize_axis(const resize *r, sn_tensor x, int axis, double size, double scale,
                             const double roi[2]) {
    onnx_call *c = r->c;
    const int64_t n = sn_dim_of(x, axis);
    const int rank = sn_rank_of(x);
    const double narrow = r->antialias && !r->nearest && scale < 1 ? scale : 1;
    const double reach = (r->cubic ? 2 : 1) / narrow;
    if (!(reach < MAX_TAPS / 2) || !(size >= 1 && size <= MAX_SIZE) || n < 1) {
        onnx_fail(c, "axis %d is resized from %lld to %.0f elements", axis, (long long)n, size);
        return NULL;
    }
    const int64_t out = (int64_t)size;
    const int start = (int)floor(-reach) + 1, taps = r->nearest ? 1 : 2 - 2 * start;
    double *id = sn_arena_alloc(c->m, sizeof *id * (size_t)(out * taps));
    double *weight = sn_arena_alloc(c->m, sizeof *weight * (size_t)(out * taps));
    double *outside = sn_arena_alloc(c->m, sizeof *outside * (size_t)out);
    for (int64_t i = 0; i < out; i++) {
        const double at = place(r, (double)i, (double)n, (double)out, scale, roi);
        const double first = (r->nearest ? round_place(r, at) : ceil(at) - 1) + start;
        double sum = 0;
        outside[i] = at < 0 || at > (double)n - 1;
        for (int t = 0; t < taps; t++) {
            const double k = first + t;
            double w = r->nearest ? 1 : kernel(r, (k - at) * narrow);
            if (r->exclude && (k < 0 || k >= (double)n)) w = 0;
            sum += weight[t * out + i] = w;
            id[t * out + i] = fmin(fmax(k, 0), (double)n - 1);
        }
        for (int t = 0; t < taps; t++) weight[t * out + i] /= sum;
    }
    sn_tensor y = NULL;
    for (int t = 0; t < taps; t++) {
        sn_tensor ids = along(c, id + t * out, SN_I32, out, 0, 1), term = sn_gather(x, axis, ids);
        if (!r->nearest)
            term = sn_mul(term, along(c, weight + t * out, sn_dtype_of(x), out, axis, rank));
        y = y ? sn_add(y, term) : term;
    }
    if (!r->crops) return y;
    return sn_where(along(c, outside, SN_BOOL, out, axis, rank),
                    onnx_float(c, "extrapolation_value", 0), y);
}

/* The numbers of input i, whose float elements are those of the file. *n = 0: there are none. */
static bool numbers(onnx_call *c, int i, int *n, double *out) {
    const onnx_value *v = onnx_given(c, i) ? c->in[i] : NULL;
    *n = v ? (int)onnx_count(v) : 0;
    if (*n < 0 || *n > 2 * SN_MAX_RANK || (*n && !v->known && !v->weight))
        return onnx_fail(c, "input %d must be numbers that are known", i);
    const size_t size = sn_dtype_size(v ? v->type : SN_F32);
    for (int k = 0; k < *n; k++) {
        int64_t one = 0; /* arrays of the file may lie at any address */
        if (!v->known) memcpy(&one, (const char *)v->weight->data + size * (size_t)k, size);
        if (!v->known)
            out[k] = sn_dtype_load(v->type, &one, 0);
        else if (!onnx_elem_value(&v->known[k], &out[k]))
            return onnx_fail(c, "only sizes that are numbers can be resized");
    }
    return true;
}

/* One scale for all axes: the smallest, or the largest, and the sizes that it gives. */
static void keep_ratio(bool smaller, int n, const sn_tensor x, const int *axis, double *scale,
                       double *size) {
    double all = scale[0];
    for (int i = 1; i < n; i++) all = smaller ? fmin(all, scale[i]) : fmax(all, scale[i]);
    for (int i = 0; i < n; i++) {
        size[i] = floor(all * (double)sn_dim_of_at((sn_loc){0}, x, axis[i]) + 0.5);
        scale[i] = all;
    }
}

bool onnx_resize(onnx_call *c) {
    const bool old = c->opset < 11;
    const char *mode = onnx_text(c, "mode", "nearest"),
               *policy = onnx_text(c, "keep_aspect_ratio_policy", "stretch"),
               *transform = onnx_text(c, "coordinate_transformation_mode", "half_pixel");
    const resize r = {.c = c,
                      .cubic = !strcmp(mode, "cubic"),
                      .nearest = !strcmp(mode, "nearest"),
                      .antialias = onnx_int(c, "antialias", 0),
                      .exclude = onnx_int(c, "exclude_outside", 0),
                      .a = onnx_float(c, "cubic_coeff_a", -0.75),
                      .crops = !old && !strcmp(transform, "tf_crop_and_resize"),
                      .transform = old ? "asymmetric" : transform,
                      .rounding =
                          old ? "floor" : onnx_text(c, "nearest_mode", "round_prefer_floor")};
    double scale[2 * SN_MAX_RANK], size[2 * SN_MAX_RANK], roi[2 * SN_MAX_RANK];
    int64_t axes[SN_MAX_RANK];
    int axis[SN_MAX_RANK], n_scale, n_size = 0, n_roi = 0;
    sn_tensor x = onnx_in(c, 0);
    const sn_dtype type = sn_dtype_of(x);
    int n = onnx_ints(c, "axes", axes, SN_MAX_RANK);
    for (int i = 0; n < 0 && i < sn_rank_of(x); i++) axes[i] = i;
    n = n < 0 ? sn_rank_of(x) : n;
    if (!numbers(c, old ? 1 : 2, &n_scale, scale)) return false;
    if (!old && (!numbers(c, 3, &n_size, size) || !numbers(c, 1, &n_roi, roi))) return false;
    if (r.crops && n_roi != 2 * n)
        return onnx_fail(c, "its region needs two numbers for each axis");
    if ((n_size ? n_size : n_scale) != n)
        return onnx_fail(c, "it needs a size or scale for each axis");
    for (int i = 0; i < n; i++) {
        if (!onnx_axis(c, axes[i], sn_rank_of(x), &axis[i])) return false;
        const sn_dim of = sn_dim_of(x, axis[i]);
        if (of < 0 && (n_size || scale[i] != 1))
            return onnx_fail(c, "only sizes that are numbers can be resized");
        if (n_size) scale[i] = size[i] / (double)of;
        if (!n_size) size[i] = floor((double)of * scale[i]);
    }
    if (n_size && strcmp(policy, "stretch") != 0)
        keep_ratio(!strcmp(policy, "not_larger"), n, x, axis, scale, size);
    if (!r.nearest && !sn_dtype_is_float(type)) x = sn_cast(x, SN_F32);
    for (int i = 0; i < n && x; i++) {
        const double part[2] = {r.crops ? roi[i] : 0, r.crops ? roi[i + n] : 1};
        if (scale[i] != 1 || part[0] != 0 || part[1] != 1)
            x = resize_axis(&r, x, axis[i], size[i], scale[i], part);
    }
    return x && onnx_set(c, 0, sn_cast(x, type));
}
