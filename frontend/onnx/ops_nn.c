/* ops_nn.c: products, convolutions, pools and norms. */
#include "frontend/onnx/ops.h"

#include <math.h>
#include <string.h>

/* ---- products ---- */

sn_tensor onnx_product(onnx_call *c, sn_tensor x, sn_tensor y) {
    const bool row = sn_rank_of(x) == 1, column = sn_rank_of(y) == 1;
    if (row) x = sn_expand(x, 0);
    if (column) y = sn_expand(y, 1);
    const int p = sn_rank_of(x), q = sn_rank_of(y);
    if (p < 2 || q < 2) {
        onnx_fail(c, "its operands need axes");
        return sn_module_error_node(c->m);
    }
    if (!onnx_equal(c, sn_dim_of(x, -1), sn_dim_of(y, -2)) && onnx_again(c)) return NULL;
    for (int i = 3; i <= p && i <= q; i++) {
        const sn_dim a = sn_dim_of(x, -i), b = sn_dim_of(y, -i);
        if (a != 1 && b != 1) onnx_equal(c, a, b);
    }
    const bool matrix = q == 2 && sn_dtype_is_float(sn_dtype_of(x));
    sn_tensor z = matrix ? sn_linear(x, sn_swap(y, 0, 1), NULL) : sn_matmul(x, y);
    if (column) z = sn_squeeze(z, -1);
    return row ? sn_squeeze(z, column ? -1 : -2) : z;
}

bool onnx_matmul(onnx_call *c) {
    return onnx_set(c, 0, onnx_product(c, onnx_in(c, 0), onnx_in(c, 1)));
}

bool onnx_gemm(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0), w = onnx_in(c, 1), b = onnx_in_or_null(c, 2);
    const double alpha = onnx_float(c, "alpha", 1), beta = onnx_float(c, "beta", 1);
    if (sn_rank_of(x) != 2 || sn_rank_of(w) != 2)
        return onnx_fail(c, "its operands are not matrices");
    if (onnx_int(c, "transA", 0)) x = sn_swap(x, 0, 1);
    if (!onnx_int(c, "transB", 0)) w = sn_swap(w, 0, 1);
    if (!onnx_equal(c, sn_dim_of(x, 1), sn_dim_of(w, 1)) && onnx_again(c)) return false;
    const bool bias =
        b && sn_rank_of(b) == 1 && sn_dim_of(b, 0) == sn_dim_of(w, 0) && beta == 1 && alpha == 1;
    sn_tensor y = sn_linear(x, w, bias ? b : NULL);
    if (alpha != 1) y = sn_mul(y, alpha);
    if (b && !bias) y = sn_add(y, beta == 1 ? b : sn_mul(b, beta));
    return onnx_set(c, 0, y);
}

enum { LABELS = 64 };
/* The labels of an operand, an ellipsis as capital letters from 'A' on, aligned at the last. */
static bool labels_of(const char *from, const char *end, int rank, char *out) {
    int n = 0, named = 0;
    for (const char *p = from; p < end; p++)
        named += (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z');
    for (const char *p = from; p < end; p++) {
        if (*p == '.' && p + 2 < end) {
            for (int i = rank - named; i > 0 && n < LABELS - 1; i--) out[n++] = (char)('Z' + 1 - i);
            p += 2;
        } else if (*p != ' ' && n < LABELS - 1)
            out[n++] = *p;
    }
    out[n] = 0;
    return rank < 0 || n == rank;
}

/* x without the axes whose labels neither `other` nor `result` has: their sums. */
static sn_tensor sum_alone(onnx_call *c, sn_tensor x, char *label, const char *other,
                           const char *result) {
    for (int i = (int)strlen(label) - 1; i >= 0; i--)
        if (!strchr(other, label[i]) && !strchr(result, label[i])) {
            x = sn_sum(x, i);
            memmove(label + i, label + i + 1, strlen(label + i));
        }
    return x;
}

bool onnx_einsum(onnx_call *c) {
    const char *text = onnx_text(c, "equation", ""), *arrow = strstr(text, "->");
    const char *end = arrow ? arrow : text + strlen(text),
               *comma = memchr(text, ',', (size_t)(end - text));
    char a[LABELS], b[LABELS] = "", r[LABELS] = "", spec[3 * LABELS];
    sn_tensor x = onnx_in(c, 0), y = comma ? onnx_in(c, 1) : NULL;
    if (c->n_in > 2) return onnx_fail(c, "more than two operands");
    if (!labels_of(text, comma ? comma : end, sn_rank_of(x), a) ||
        (comma && !labels_of(comma + 1, end, sn_rank_of(y), b)))
        return onnx_fail(c, "'%s' has not a label for each axis", text);
    int dots = 0; /* axes of the ellipsis of the result: the longer one */
    for (const char *p = a; *p; p++) dots += *p >= 'A' && *p <= 'Z' && strstr(text, "...");
    int other = 0;
    for (const char *p = b; *p; p++) other += *p >= 'A' && *p <= 'Z' && strstr(text, "...");
    dots = dots > other ? dots : other;
    if (arrow) {
        int named = 0;
        for (const char *p = arrow + 2; *p; p++) named += *p != '.' && *p != ' ';
        labels_of(arrow + 2, arrow + strlen(arrow), strstr(arrow, "...") ? named + dots : named, r);
    } else {
        int n = 0;
        for (int i = dots; i > 0; i--) r[n++] = (char)('Z' + 1 - i);
        for (char l = 'a'; l <= 'z'; l++) {
            int times = 0;
            for (const char *p = a; *p; p++) times += *p == l;
            for (const char *p = b; *p; p++) times += *p == l;
            if (times == 1) r[n++] = l;
        }
        r[n] = 0;
    }
    x = sum_alone(c, x, a, b, r);
    if (y) y = sum_alone(c, y, b, a, r);
    for (int i = 0; a[i] && y; i++) {
        const char *at = strchr(b, a[i]);
        if (at && !onnx_equal(c, sn_dim_of(x, i), sn_dim_of(y, (int)(at - b))) && onnx_again(c))
            return false;
    }
    if (y) {
        strcpy(stpcpy(stpcpy(stpcpy(stpcpy(spec, a), ","), b), "->"), r);
        return onnx_set(c, 0, sn_einsum(spec, x, y));
    }
    int perm[SN_MAX_RANK + 1];
    const int n = (int)strlen(r);
    if (n != (int)strlen(a)) return onnx_fail(c, "'%s': diagonals are not supported", text);
    for (int i = 0; i < n; i++) {
        const char *at = strchr(a, r[i]);
        if (!at) return onnx_fail(c, "'%s' is not of the form ab,bc->ac", text);
        perm[i] = (int)(at - a);
    }
    perm[n] = INT_MIN;
    return onnx_set(c, 0, sn_transpose_at(c->at, x, perm));
}

/* ---- windows: convolutions and pools ---- */

enum { MAX_AXES = 3, MAX_KERNEL = 128, MAX_STEP = 4096 };
/* What the attributes say about each spatial axis. */
typedef struct window {
    int n; /* axes: 1 to 3, of convolutions 2 */
    int64_t kernel[MAX_AXES], stride[MAX_AXES], dilation[MAX_AXES], low[MAX_AXES], high[MAX_AXES];
} window;

/* Far above any window and its padding, low enough that no sum or product overflows. */
static bool is_small(int64_t x) {
    return x >= INT32_MIN && x <= INT32_MAX;
}

static bool read_window(onnx_call *c, sn_tensor x, const sn_dim *kernel, bool transposed,
                        window *w) {
    int64_t pads[2 * MAX_AXES] = {0}, list[MAX_AXES];
    const char *mode = onnx_text(c, "auto_pad", "NOTSET");
    w->n = sn_rank_of(x) - 2;
    if (w->n < 1 || w->n > MAX_AXES)
        return onnx_fail(c, "only 1 to %d spatial axes are supported, not %d", MAX_AXES, w->n);
    if (kernel)
        memcpy(w->kernel, kernel, sizeof *kernel * (size_t)w->n);
    else if (onnx_ints(c, "kernel_shape", w->kernel, MAX_AXES) != w->n)
        return onnx_fail(c, "kernel_shape has another number of axes");
    const bool strides = onnx_ints(c, "strides", list, MAX_AXES) == w->n;
    for (int i = 0; i < w->n; i++) w->stride[i] = strides ? list[i] : 1;
    const bool dilations = onnx_ints(c, "dilations", list, MAX_AXES) == w->n;
    for (int i = 0; i < w->n; i++) w->dilation[i] = dilations ? list[i] : 1;
    onnx_ints(c, "pads", pads, 2 * w->n);
    for (int i = 0; i < w->n; i++) {
        w->low[i] = pads[i];
        w->high[i] = pads[i + w->n];
        if (w->stride[i] < 1 || w->dilation[i] < 1 || w->kernel[i] < 1 || w->stride[i] > MAX_STEP ||
            w->dilation[i] > MAX_STEP || !is_small(w->kernel[i]) || !is_small(w->low[i]) ||
            !is_small(w->high[i]))
            return onnx_fail(c, "sizes of the window must be positive, steps at most %d", MAX_STEP);
        if (!strcmp(mode, "NOTSET") || !strcmp(mode, "VALID") || transposed) continue;
        const sn_dim size = sn_dim_of(x, i + 2);
        if (size < 0) return onnx_fail(c, "auto_pad needs spatial sizes that are numbers");
        const int64_t out = (size + w->stride[i] - 1) / w->stride[i];
        int64_t all = (out - 1) * w->stride[i] + w->dilation[i] * (w->kernel[i] - 1) + 1 - size;
        all = all < 0 ? 0 : all;
        w->low[i] = strcmp(mode, "SAME_LOWER") ? all / 2 : all - all / 2;
        w->high[i] = all - w->low[i];
    }
    return true;
}

/* room / step rounded down, as a polynomial, where at least one window has room; and what is left. */
static bool count_steps(onnx_call *c, sn_dim room, int64_t step, sn_dim *out, int64_t *left) {
    if (room > -((sn_dim)1 << 40)) {
        *out = room < 0 ? -1 : room / step;
        *left = room < 0 ? 0 : room % step;
        return true;
    }
    onnx_at_least(c, room, 0);
    for (*left = 0; *left < step; ++*left)
        if (sn_dim_div(c->m, sn_dim_sub(c->m, room, *left), step, out)) return true;
    onnx_divides(c, room, step);
    return !onnx_again(c) &&
           onnx_fail(c, "its number of steps of %lld is not a polynomial", (long long)step);
}

/* y = conv(x, w) with what the window says; one spatial axis becomes two. */
static sn_tensor convolve(onnx_call *c, sn_tensor x, sn_tensor w, sn_tensor bias, window v,
                          int64_t groups) {
    sn_conv2d_options o = {.bias = bias, .stride = {1, 1}, .dilation = {1, 1}, .groups = groups};
    const bool line = v.n == 1;
    for (int i = 0; i < v.n; i++) {
        const int at = line ? 1 : i;
        sn_dim n = sn_dim_of(x, i + 2), out;
        int64_t left;
        n = sn_dim_add(c->m, n, v.low[i] + v.high[i] - v.dilation[i] * (v.kernel[i] - 1) - 1);
        if (!count_steps(c, n, v.stride[i], &out, &left)) return sn_module_error_node(c->m);
        if (n < 0) v.high[i] -= left; /* a symbolic size divides exactly */
        o.stride[at] = v.stride[i];
        o.dilation[at] = v.dilation[i];
        if (v.low[i] == v.high[i] && v.low[i] >= 0)
            o.padding[at] = v.low[i];
        else if (v.low[i] < 0 || v.high[i] < 0) {
            const int64_t low = v.low[i] < 0 ? -v.low[i] : 0, high = v.high[i] < 0 ? -v.high[i] : 0;
            x = sn_slice(x, i + 2, low, sn_dim_sub(c->m, sn_dim_of(x, i + 2), low + high));
            x = sn_pad(x, i + 2, low ? 0 : v.low[i], high ? 0 : v.high[i], 0);
        } else
            x = sn_pad(x, i + 2, v.low[i], v.high[i], 0);
    }
    if (line) x = sn_expand(x, 2), w = sn_expand(w, 2);
    sn_tensor y = sn_conv2d_at(c->at, x, w, o);
    return line ? sn_squeeze(y, 2) : y;
}

/* The gradient of a convolution: x with stride - 1 zeros between its elements, convolved with the flipped
 * kernel [in, out / groups, ..]. */
static sn_tensor transposed(onnx_call *c, sn_tensor x, sn_tensor w, sn_tensor bias, window v,
                            int64_t groups) {
    int64_t extra[2] = {0}, shape[2];
    onnx_ints(c, "output_padding", extra, v.n);
    const bool sized = onnx_ints(c, "output_shape", shape, v.n) == v.n;
    const bool upper = !strcmp(onnx_text(c, "auto_pad", ""), "SAME_UPPER");
    const bool same = upper || !strcmp(onnx_text(c, "auto_pad", ""), "SAME_LOWER");
    for (int i = 0, a = 2; i < v.n; i++, a++) {
        const int64_t s = v.stride[i], reach = v.dilation[i] * (v.kernel[i] - 1);
        const sn_dim n = sn_dim_of(x, a);
        if (!is_small(extra[i]) || (sized && !(is_small(n) && is_small(shape[i]))))
            return onnx_fail(c, "its sizes must be numbers below 2^31"), NULL;
        if (sized || same) { /* pads so that the result has the size that is asked for */
            const int64_t all = (sized ? s * n - shape[i] : 0) - s + extra[i] + reach + 1;
            const int64_t half = (all - (all & 1)) / 2; /* rounded down, if it is negative, too */
            v.low[i] = upper ? half : all - half;
            v.high[i] = all - v.low[i];
        }
        if (s > 1) {
            sn_dim to[SN_MAX_RANK + 1];
            for (int k = 0; k < sn_rank_of(x); k++) to[k] = sn_dim_of(x, k);
            to[sn_rank_of(x)] = SN_END;
            to[a] = sn_dim_mul(c->m, n, s);
            x = sn_reshape_at(c->at, sn_pad(sn_expand(x, a + 1), a + 1, 0, s - 1, 0), to);
            x = sn_slice(x, a, 0, sn_dim_sub(c->m, to[a], s - 1));
        }
        w = sn_flip(w, a);
        v.low[i] = reach - v.low[i];
        v.high[i] = reach - v.high[i] + extra[i];
        v.stride[i] = 1;
    }
    const sn_dim in = sn_dim_of(w, 0), out = sn_dim_of(w, 1), k0 = sn_dim_of(w, 2);
    const sn_dim k1 = v.n == 2 ? sn_dim_of(w, 3) : 1;
    w = sn_swap(sn_reshape(w, groups, sn_dim_quot(c->m, in, groups), out, k0, k1), 1, 2);
    w = v.n == 2 ? sn_reshape(w, groups * out, in / groups, k0, k1)
                 : sn_reshape(w, groups * out, in / groups, k0);
    return convolve(c, x, w, bias, v, groups);
}

bool onnx_convolution(onnx_call *c, sn_tensor x, sn_tensor w, sn_tensor bias, sn_dtype type) {
    window v;
    sn_dim kernel[2];
    const int64_t groups = onnx_int(c, "group", 1);
    if (sn_rank_of(w) != sn_rank_of(x) || sn_rank_of(x) > 4 || groups < 1)
        return onnx_fail(c, "only 1 and 2 spatial axes are supported");
    for (int i = 2; i < sn_rank_of(w); i++) kernel[i - 2] = sn_dim_of(w, i);
    if (!read_window(c, x, kernel, c->row->flag, &v)) return false;
    sn_tensor y =
        c->row->flag ? transposed(c, x, w, bias, v, groups) : convolve(c, x, w, bias, v, groups);
    return y && onnx_set(c, 0, sn_cast(y, type));
}

bool onnx_conv(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0);
    return onnx_convolution(c, x, onnx_in(c, 1), onnx_in_or_null(c, 2), sn_dtype_of(x));
}

/* A causal convolution of each channel over x [B, C, T] after the columns that input 3 keeps of the past; the
 * last ones are output 1. */
bool onnx_causal_conv(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0), w = onnx_in(c, 1), bias = onnx_in_or_null(c, 2),
              past = onnx_in_or_null(c, 3);
    const char *act = onnx_text(c, "activation", "none");
    const bool silu = !strcmp(act, "silu") || !strcmp(act, "swish");
    if (!silu && strcmp(act, "none") != 0) return onnx_fail(c, "activation '%s'", act);
    const int64_t k = sn_rank_of(w) == 3 ? sn_dim_of(w, 2) : 0;
    if (sn_rank_of(x) != 3 || k < 1 || k > MAX_KERNEL || sn_dim_of(w, 0) < 1)
        return onnx_fail(c, "it needs three axes, a kernel of 1 to %d elements", MAX_KERNEL);
    const sn_dim T = sn_dim_of(x, 2);
    const sn_dtype type = sn_dtype_of(x), wide = type == SN_F64 ? SN_F64 : SN_F32;
    sn_tensor all = past ? sn_concat(2, past, x) : sn_pad(x, 2, k - 1, 0, 0), y = NULL;
    for (int64_t i = 0; i < k; i++) {
        sn_tensor part = sn_cast(sn_slice(all, 2, i, T), wide);
        sn_tensor term = sn_mul(part, sn_cast(sn_index(w, 2, i), wide));
        y = y ? sn_add(y, term) : term;
    }
    if (bias) y = sn_add(y, sn_cast(sn_expand(bias, 1), wide));
    y = sn_cast(silu ? sn_silu(y) : y, type);
    return onnx_set(c, 0, y) && (c->node->out.n < 2 || onnx_set(c, 1, sn_slice(all, 2, T, k - 1)));
}

/* The maximum or sum of each window along an axis. */
static sn_tensor reduce_windows(onnx_call *c, sn_tensor x, int axis, const window *w, int i,
                                sn_dim out, bool max) {
    sn_tensor y = NULL;
    for (int64_t k = 0; k < w->kernel[i]; k++) {
        sn_tensor part = sn_slice_step(x, axis, k * w->dilation[i], out, w->stride[i]);
        y = !y ? part : max ? sn_max(y, part) : sn_add(y, part);
    }
    return y;
}

/* Max (flag) and average pools, axis by axis. */
bool onnx_pool(onnx_call *c) {
    const bool max = c->row->flag, ceil_mode = onnx_int(c, "ceil_mode", 0);
    const bool all = onnx_int(c, "count_include_pad", 0);
    sn_tensor x = onnx_in(c, 0);
    window w;
    if (c->node->out.n > 1) return onnx_fail(c, "indices of the maxima are not supported");
    if (!read_window(c, x, NULL, false, &w)) return false;
    sn_tensor count = NULL; /* elements of each window */
    for (int i = 0; i < w.n; i++) {
        const int a = i + 2;
        sn_dim out, n = sn_dim_of(x, a);
        const int64_t reach = w.dilation[i] * (w.kernel[i] - 1) + 1, s = w.stride[i];
        int64_t left, more = 0; /* more: elements behind the padding, of a last partial window */
        const sn_dim room = sn_dim_sub(c->m, sn_dim_add(c->m, n, w.low[i] + w.high[i]), reach);
        if (w.kernel[i] > MAX_KERNEL)
            return onnx_fail(c, "a window of more than %d elements", MAX_KERNEL);
        if (!count_steps(c, room, s, &out, &left)) return false;
        if (out == -1) return onnx_fail(c, "the window is larger than the padded axis %d", a);
        out = sn_dim_add(c->m, out, 1);
        if (room >= 0 && ceil_mode && left && (out * s) < n + w.low[i]) more = s - left, out++;
        if (w.low[i] || w.high[i] + more)
            x = sn_pad(x, a, w.low[i], w.high[i] + more, max ? (double)-INFINITY : 0);
        x = reduce_windows(c, x, a, &w, i, out, max);
        if (max) continue;
        sn_tensor one =
            sn_full(c->m, SN_F32, 1, all ? sn_dim_add(c->m, n, w.low[i] + w.high[i]) : n);
        one = all ? sn_pad(one, 0, 0, more, 0) : sn_pad(one, 0, w.low[i], w.high[i] + more, 0);
        one = reduce_windows(c, one, 0, &w, i, out, false);
        for (int k = i + 1; k < w.n; k++) one = sn_expand(one, -1);
        count = count ? sn_mul(count, one) : one;
    }
    if (!max) x = sn_div(x, sn_cast(count, sn_dtype_of(x)));
    return onnx_set(c, 0, x);
}

/* Axes from `from` on. */
static const int *axes_from(int from, int rank, int *list) {
    int n = 0;
    for (int i = from; i < rank; i++) list[n++] = i;
    list[n] = INT_MIN;
    return list;
}

bool onnx_global_pool(onnx_call *c) {
    int axes[SN_MAX_RANK + 1];
    sn_tensor x = onnx_in(c, 0);
    axes_from(2, sn_rank_of(x), axes);
    return onnx_set(
        c, 0, c->row->flag ? sn_amax_at(c->at, x, axes, true) : sn_mean_at(c->at, x, axes, true));
}

/* ---- softmax and norms ---- */

/* x as [.., the product of the axes from `axis` on]. */
static sn_tensor flatten_from(onnx_call *c, sn_tensor x, int axis) {
    sn_dim shape[SN_MAX_RANK + 1], rest = 1;
    for (int i = 0; i < axis; i++) shape[i] = sn_dim_of(x, i);
    for (int i = axis; i < sn_rank_of(x); i++) rest = sn_dim_mul(c->m, rest, sn_dim_of(x, i));
    shape[axis] = rest;
    shape[axis + 1] = SN_END;
    return sn_reshape_at(c->at, x, shape);
}

static sn_tensor reshape_like(onnx_call *c, sn_tensor x, sn_tensor like) {
    sn_dim shape[SN_MAX_RANK + 1];
    for (int i = 0; i < sn_rank_of(like); i++) shape[i] = sn_dim_of(like, i);
    shape[sn_rank_of(like)] = SN_END;
    return sn_reshape_at(c->at, x, shape);
}

/* f along the attribute `axis`. Before version 13 the axes from there on are one. */
static bool along_axis(onnx_call *c, sn_tensor (*f)(onnx_call *c, sn_tensor x, int axis)) {
    const bool old = c->opset < 13;
    sn_tensor x = onnx_in(c, 0);
    int axis;
    if (!onnx_axis(c, onnx_int(c, "axis", old ? 1 : -1), sn_rank_of(x), &axis)) return false;
    const bool flat = old && axis != sn_rank_of(x) - 1;
    sn_tensor y = f(c, flat ? flatten_from(c, x, axis) : x, axis);
    return onnx_set(c, 0, flat ? reshape_like(c, y, x) : y);
}

static sn_tensor softmax(onnx_call *c, sn_tensor x, int axis) {
    return c->row->flag ? sn_log_softmax(x, axis) : sn_softmax(x, axis);
}

bool onnx_softmax(onnx_call *c) {
    return along_axis(c, softmax);
}

/* 1 at the first maximum of the axis, 0 elsewhere. */
static sn_tensor hardmax(onnx_call *c, sn_tensor x, int axis) {
    sn_tensor at = sn_arange(c->m, SN_I32, sn_dim_of(x, axis));
    for (int i = axis + 1; i < sn_rank_of(x); i++) at = sn_expand(at, -1);
    return sn_cast(sn_eq(sn_expand(sn_argmax(x, axis), axis), at), sn_dtype_of(x));
}

bool onnx_hardmax(onnx_call *c) {
    return along_axis(c, hardmax);
}

/* Layer and RMS norms over the axes from `axis` on. */
static bool norm(onnx_call *c, bool rms) {
    sn_tensor x = onnx_in(c, 0), gain = onnx_in_or_null(c, 1),
              bias = rms ? NULL : onnx_in_or_null(c, 2);
    const double eps = onnx_float(c, "epsilon", 1e-5);
    const sn_dtype type = sn_dtype_of(x);
    int axis;
    if (!onnx_axis(c, onnx_int(c, "axis", -1), sn_rank_of(x), &axis)) return false;
    sn_tensor flat = flatten_from(c, x, axis);
    sn_tensor part[2] = {gain, bias};
    bool fits = true;
    for (int i = 0; i < 2; i++) {
        sn_dim n = 1;
        for (int a = 0; part[i] && a < sn_rank_of(part[i]); a++)
            n = sn_dim_mul(c->m, n, sn_dim_of(part[i], a));
        fits &= !part[i] || n == sn_dim_of(flat, -1);
        if (fits && part[i]) part[i] = sn_cast(sn_reshape(part[i], n), type);
    }
    sn_tensor y = rms ? sn_rms_norm(flat, fits ? part[0] : NULL, eps)
                      : sn_layer_norm(flat, fits ? part[0] : NULL, fits ? part[1] : NULL, eps);
    y = reshape_like(c, y, x);
    if (!fits && gain) y = sn_mul(y, gain);
    if (!fits && bias) y = sn_add(y, bias);
    if (!onnx_set(c, 0, y)) return false;
    int axes[SN_MAX_RANK + 1];
    axes_from(axis, sn_rank_of(x), axes);
    if (c->node->out.n > 1 && !onnx_set(c, 1, sn_mean_at(c->at, x, axes, true))) return false;
    if (c->node->out.n < 3) return true;
    return onnx_set(c, 2, sn_rsqrt(sn_add(sn_variance_at(c->at, x, axes, true), eps)));
}
bool onnx_layer_norm(onnx_call *c) {
    return norm(c, false);
}
bool onnx_rms_norm(onnx_call *c) {
    return norm(c, true);
}

/* A vector [C] as [C, 1, ..] beside x [N, C, ..]. */
static sn_tensor channels(onnx_call *c, int i, sn_tensor x) {
    sn_tensor v = onnx_in(c, i);
    for (int a = 2; a < sn_rank_of(x); a++) v = sn_expand(v, -1);
    return v;
}

bool onnx_batch_norm(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0);
    if (onnx_int(c, "training_mode", 0)) return onnx_fail(c, "training_mode is not supported");
    sn_tensor scale = sn_mul(channels(c, 1, x),
                             sn_rsqrt(sn_add(channels(c, 4, x), onnx_float(c, "epsilon", 1e-5))));
    sn_tensor y = sn_mul(sn_sub(x, channels(c, 3, x)), scale);
    return onnx_set(c, 0, sn_add(y, channels(c, 2, x)));
}

/* (x - mean) / sqrt(variance + eps) over the axes from `from` on */
static sn_tensor normalise(onnx_call *c, sn_tensor x, int from, double eps) {
    int axes[SN_MAX_RANK + 1];
    axes_from(from, sn_rank_of(x), axes);
    sn_tensor centred = sn_sub(x, sn_mean_at(c->at, x, axes, true));
    return sn_mul(centred, sn_rsqrt(sn_add(sn_variance_at(c->at, x, axes, true), eps)));
}

bool onnx_instance_norm(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0), y = normalise(c, x, 2, onnx_float(c, "epsilon", 1e-5));
    return onnx_set(c, 0, sn_add(sn_mul(y, channels(c, 1, x)), channels(c, 2, x)));
}

/* Before version 21 scale and bias are those of groups. */
bool onnx_group_norm(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0);
    const int64_t groups = onnx_int(c, "num_groups", 1);
    sn_dim each;
    if (sn_rank_of(x) < 3 || groups < 1 || !sn_dim_div(c->m, sn_dim_of(x, 1), groups, &each))
        return onnx_fail(c, "num_groups does not divide the channels");
    sn_tensor flat = sn_reshape(x, sn_dim_of(x, 0), groups, SN_REST);
    sn_tensor y = normalise(c, flat, 2, onnx_float(c, "epsilon", 1e-5));
    if (c->opset < 21) {
        y = sn_add(sn_mul(y, channels(c, 1, y)), channels(c, 2, y));
        return onnx_set(c, 0, reshape_like(c, y, x));
    }
    y = reshape_like(c, y, x);
    return onnx_set(c, 0, sn_add(sn_mul(y, channels(c, 1, x)), channels(c, 2, x)));
}

bool onnx_lp_norm(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0);
    int axis;
    if (!onnx_axis(c, onnx_int(c, "axis", -1), sn_rank_of(x), &axis)) return false;
    sn_tensor n = onnx_int(c, "p", 2) == 1 ? sn_sum_keep(sn_abs(x), axis)
                                           : sn_sqrt(sn_sum_keep(sn_square(x), axis));
    return onnx_set(c, 0, sn_where(sn_eq(n, 0), 0, sn_div(x, n)));
}

bool onnx_mvn(onnx_call *c) {
    int64_t list[SN_MAX_RANK] = {0, 2, 3};
    int axes[SN_MAX_RANK + 1], n = onnx_ints(c, "axes", list, SN_MAX_RANK);
    sn_tensor x = onnx_in(c, 0);
    n = n < 0 ? 3 : n;
    for (int i = 0; i < n; i++)
        if (!onnx_axis(c, list[i], sn_rank_of(x), &axes[i])) return false;
    axes[n] = INT_MIN;
    sn_tensor centred = sn_sub(x, sn_mean_at(c->at, x, axes, true));
    return onnx_set(c, 0,
                    sn_div(centred, sn_add(sn_sqrt(sn_variance_at(c->at, x, axes, true)), 1e-9)));
}
