/* decomp_conv.c: convolution as a gather of patches and one product (im2col: Chellapilla, Puri,
 * Simard 2006), so that its gradient and compiled code follow. Patches are gathered along rows
 * first, then along columns: kh + kw strided copies instead of kh kw. */
#include "ir/decomp_impl.h"

#include <string.h>

/* One spatial axis: 0 is the height (axis 2 of x), 1 the width (axis 3). */
typedef struct window {
    int64_t kernel, step, dilate;
    sn_dim low, high, out; /* out: number of window positions */
} window;

static bool positive(const decomp *c, sn_attr_key key, int axis, int64_t *out) {
    const sn_attr *a = sn_dc_attr(c, key);
    *out = a && a->n == 2 ? a->v[axis] : 1;
    if (a && a->n != 2)
        return sn_dc_fail(c, "attribute '%s' needs two numbers", sn_attr_table[key].name);
    return *out > 0 || sn_dc_fail(c, "attribute '%s' must be positive", sn_attr_table[key].name);
}

static bool padding(const decomp *c, sn_attr_key key, int axis, sn_dim *out) {
    const sn_attr *a = sn_dc_attr(c, key);
    *out = a && a->n == 2 ? a->v[axis] : 0;
    if (a && a->n != 2)
        return sn_dc_fail(c, "attribute '%s' needs two numbers", sn_attr_table[key].name);
    return sn_dim_lo(c->m, *out) >= 0 ||
           sn_dc_fail(c, "attribute '%s' must not be negative", sn_attr_table[key].name);
}

/* out = floor((size + low + high - dilate (kernel - 1) - 1) / step) + 1; a symbolic size must
 * divide exactly. */
static bool read_window(const decomp *c, int axis, window *w) {
    if (!sn_dc_number(c, "the size of the kernel", c->in[1]->shape[2 + axis], &w->kernel) ||
        !positive(c, SN_A_step, axis, &w->step) || !positive(c, SN_A_dilate, axis, &w->dilate) ||
        !padding(c, SN_A_low, axis, &w->low) || !padding(c, SN_A_high, axis, &w->high))
        return false;
    if (w->kernel < 1) return sn_dc_fail(c, "the kernel is empty");
    if (w->kernel > UINT16_MAX) /* maximum number of operands of a concat */
        return sn_dc_fail(c, "the kernel has %lld elements on axis %d; the maximum is %d",
                          (long long)w->kernel, 2 + axis, UINT16_MAX);
    int64_t span;
    if (__builtin_mul_overflow(w->dilate, w->kernel - 1, &span) || span == INT64_MAX)
        return sn_dc_fail(c, "the dilation %lld is too large", (long long)w->dilate);
    span++;
    sn_dim padded = sn_dim_add(c->m, c->in[0]->shape[2 + axis], sn_dim_add(c->m, w->low, w->high));
    sn_dim room = sn_dim_sub(c->m, padded, span);
    int64_t n;
    bool known = sn_dim_is_const(c->m, room, &n);
    if (known)
        w->out = n / w->step;
    else if (!sn_dim_div(c->m, room, w->step, &w->out))
        return sn_dc_fail(c, "axis %d has a symbolic size that stride %lld does not divide exactly",
                          2 + axis, (long long)w->step);
    w->out = sn_dim_add(c->m, w->out, 1);
    if (known ? n >= 0 : sn_dim_lo(c->m, w->out) >= 0) return true;
    return sn_dc_fail(
        c, "the kernel spans %lld elements on axis %d, but x with its padding may be smaller",
        (long long)span, 2 + axis);
}

static sn_node *pad(sn_node *x, const window w[2]) {
    sn_dim low[4] = {0, 0, w[0].low, w[1].low}, high[4] = {0, 0, w[0].high, w[1].high};
    if (!low[2] && !low[3] && !high[2] && !high[3]) return x;
    return SN_NODE(x->m, pad,
                   SN_ATTRS(SN_FLT(value, 0), SN_LIST(low, 4, low), SN_LIST(high, 4, high)), x);
}

/* Axis `from` of x replaced by two: element [.., i, .., o, ..] at new axis `at` and old axis
 * `from` + 1 is x[o step + i dilate]. */
static sn_node *spread(sn_node *x, int at, int from, const window *w) {
    sn_node **part = sn_arena_alloc(x->m, sizeof *part * (size_t)w->kernel);
    sn_dim start[SN_MAX_RANK] = {0}, size[SN_MAX_RANK], wide[SN_MAX_RANK];
    int64_t step[SN_MAX_RANK];
    int rank = x->rank;
    for (int i = 0; i < rank; i++) {
        size[i] = i == from ? w->out : x->shape[i];
        step[i] = i == from ? w->step : 1;
    }
    for (int i = 0; i <= rank; i++) wide[i] = i < at ? size[i] : i == at ? 1 : size[i - 1];
    for (int64_t i = 0; i < w->kernel; i++) {
        start[from] = i * w->dilate;
        sn_node *slice = SN_NODE(x->m, slice,
                                 SN_ATTRS(SN_LIST(start, rank, start), SN_LIST(size, rank, size),
                                          SN_LIST(step, rank, step)),
                                 x);
        part[i] = sn_b_reshape(slice, rank + 1, wide);
    }
    return w->kernel == 1 ? part[0] : sn_b_concat(x->m, (int)w->kernel, part, at);
}

static bool check_operands(const decomp *c, int64_t groups, sn_dim *in, sn_dim *out) {
    const sn_node *x = c->in[0], *w = c->in[1];
    if (!sn_dc_float(c, 0) || !sn_dc_float(c, 1)) return false;
    if (x->rank != 4 || w->rank != 4)
        return sn_dc_fail(c, "x must be [B, C, H, W] and the kernel [O, C / groups, kh, kw]");
    if (groups < 1 || !sn_dim_div(c->m, x->shape[1], groups, in) ||
        !sn_dim_div(c->m, w->shape[0], groups, out) || w->shape[1] != *in)
        return sn_dc_fail(c,
                          "the kernel must be [O, C / groups, kh, kw], O and C multiples of "
                          "groups = %lld",
                          (long long)groups);
    return sn_dc_vector(c, 2, w->shape[0]);
}

bool decomp_conv2d(decomp *c) {
    int64_t groups = sn_dc_int(c, SN_A_groups, 1);
    sn_dim in, out;
    window w[2];
    if (!check_operands(c, groups, &in, &out) || !read_window(c, 0, &w[0]) ||
        !read_window(c, 1, &w[1]))
        return false;
    sn_module *m = c->m;
    sn_node *x = sn_dc_operand(c, 0), *k = sn_dc_operand(c, 1);
    sn_dim b = x->shape[0];
    sn_node *p = spread(pad(x, w), 2, 2, &w[0]); /* [B, C, kh, Ho, W] */
    p = spread(p, 3, 4, &w[1]);                  /* [B, C, kh, kw, Ho, Wo] */
    sn_dim terms = sn_dim_mul(m, in, w[0].kernel * w[1].kernel);
    sn_dim places = sn_dim_mul(m, w[0].out, w[1].out);
    p = sn_b_reshape(p, 4, (const sn_dim[]){b, groups, terms, places});
    k = sn_b_reshape(k, 3, (const sn_dim[]){groups, out, terms});
    k = sn_b_broadcast(k, 4, (const sn_dim[]){b, groups, out, terms});
    if (m->error.code) return false;
    sn_node *y = sn_dc_dot(k, p, 2, 3, 2);
    y = sn_b_reshape(y, 4, (const sn_dim[]){b, c->in[1]->shape[0], w[0].out, w[1].out});
    if (c->n_in > 2) {
        const sn_dim column[3] = {c->in[1]->shape[0], 1, 1};
        y = sn_b_binary(SN_OP_add, y, sn_b_reshape(sn_dc_operand(c, 2), 3, column));
    }
    return sn_dc_done(c, y);
}
