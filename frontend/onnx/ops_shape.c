/* ops_shape.c: operators that make, look at or change shapes, and that move elements. Of values that are known
 * they give known ones. */
#include "frontend/onnx/load.h"
#include "frontend/onnx/ops.h"

#include <math.h>
#include <string.h>

/* A list of dims with its end. */
static const sn_dim *ended(sn_dim *list, int n) {
    list[n] = SN_END;
    return list;
}

static bool is_number(sn_dim d) {
    return d > -((sn_dim)1 << 40);
}

/* Input 0, which must be given. */
static onnx_value *first(onnx_call *c) {
    if (onnx_given(c, 0)) return c->in[0];
    onnx_fail(c, "input 0 is missing");
    return NULL;
}

/* ---- constants ---- */

static bool constant_list(onnx_call *c, sn_dtype type, int n, const float *f, const int64_t *i) {
    if (n > ONNX_KNOWN_MAX) return onnx_fail(c, "more than %d numbers", ONNX_KNOWN_MAX);
    onnx_elem *e = sn_arena_alloc(c->im->arena, sizeof *e * (size_t)n + 1);
    for (int k = 0; k < n; k++) {
        e[k] = onnx_elem_number(type, f ? f[k] : 0);
        if (i) e[k].d = i[k];
    }
    return onnx_set_known(c, 0, type, 1, &(sn_dim){n}, e);
}

bool onnx_constant(onnx_call *c) {
    const onnx_attribute *a = onnx_attr(c, "value");
    const char *name = c->node->out.n ? ONNX_AT(c->node->out, const char *, 0) : "";
    if (a && a->tensor) return onnx_set_value(c, 0, onnx_file_value(c, a->tensor, name));
    onnx_elem *e = sn_arena_alloc(c->im->arena, sizeof *e);
    if ((a = onnx_attr(c, "value_int"))) {
        *e = onnx_elem_dim(a->i);
        return onnx_set_known(c, 0, SN_I64, 0, NULL, e);
    }
    if ((a = onnx_attr(c, "value_float"))) {
        *e = onnx_elem_number(SN_F32, a->f);
        return onnx_set_known(c, 0, SN_F32, 0, NULL, e);
    }
    if ((a = onnx_attr(c, "value_ints")))
        return constant_list(c, SN_I64, a->ints.n, NULL, a->ints.item);
    if ((a = onnx_attr(c, "value_floats")))
        return constant_list(c, SN_F32, a->floats.n, a->floats.item, NULL);
    return onnx_fail(c, "it has no value of a supported kind");
}

bool onnx_constant_of_shape(onnx_call *c) {
    sn_dim shape[SN_MAX_RANK + 1];
    int rank;
    const onnx_attribute *a = onnx_attr(c, "value");
    onnx_value *v = a && a->tensor ? onnx_file_value(c, a->tensor, "") : NULL;
    onnx_elem e = v && v->known ? v->known[0] : onnx_elem_number(SN_F32, 0);
    const sn_dtype type = v ? v->type : SN_F32;
    double x;
    if (a && (!v || !onnx_number(c, v, &x))) return onnx_fail(c, "its value is not a number");
    if (!onnx_dims(c, 0, &rank, shape)) return false;
    onnx_value whole = {.rank = rank};
    memcpy(whole.shape, shape, sizeof *shape * (size_t)rank);
    const int64_t n = onnx_count(&whole);
    if (sn_dtype_is_float(type) || n < 0 || n > ONNX_ARRAY_MAX) {
        onnx_elem_value(&e, &x);
        return onnx_set(c, 0, sn_full_at(c->at, c->m, type, x, ended(shape, rank)));
    }
    const int64_t stride[SN_MAX_RANK] = {0};
    whole.known = &e;
    whole.type = type;
    return onnx_known_view(c, 0, &whole, rank, shape, stride, 0);
}

bool onnx_shape_of(onnx_call *c) {
    const onnx_value *v = first(c);
    if (!v) return false;
    int64_t start = onnx_int(c, "start", 0), end = onnx_int(c, "end", v->rank);
    start = start < 0 ? start + v->rank : start;
    end = end < 0 ? end + v->rank : end;
    start = start < 0 ? 0 : start > v->rank ? v->rank : start;
    end = end > v->rank ? v->rank : end < start ? start : end;
    onnx_elem *e = sn_arena_alloc(c->im->arena, sizeof *e * SN_MAX_RANK);
    for (int64_t i = start; i < end; i++) e[i - start] = onnx_elem_dim(v->shape[i]);
    return onnx_set_known(c, 0, SN_I64, 1, &(sn_dim){end - start}, e);
}

bool onnx_size(onnx_call *c) {
    const onnx_value *v = first(c);
    onnx_elem *e = sn_arena_alloc(c->im->arena, sizeof *e);
    if (!v) return false;
    *e = onnx_elem_dim(sn_dim_product(c->m, v->rank, v->shape));
    return onnx_set_known(c, 0, SN_I64, 0, NULL, e);
}

bool onnx_range(onnx_call *c) {
    double a, b, step;
    const onnx_value *start = first(c);
    for (int i = 0; i < 3; i++)
        if (!onnx_given(c, i) || !c->in[i]->known || onnx_count(c->in[i]) != 1)
            return onnx_fail(c, "its bounds must follow from the sizes of the inputs");
    const sn_dtype type = start->type;
    const onnx_elem *e = start->known, *limit = c->in[1]->known;
    if (!onnx_number(c, c->in[2], &step) || step == 0)
        return onnx_fail(c, "its step must be a number other than 0");
    if (onnx_number(c, start, &a) && onnx_number(c, c->in[1], &b)) {
        const double n = fmax(0, ceil((b - a) / step));
        if (n > 0x1p31) return onnx_fail(c, "more than 2^31 elements");
        if (n > ONNX_ARRAY_MAX || sn_dtype_is_float(type)) {
            sn_tensor i = sn_cast(sn_arange(c->m, SN_I64, (sn_dim)n), type);
            return onnx_set(c, 0, sn_add(sn_mul(i, step), a));
        }
        onnx_elem *all = sn_arena_alloc(c->m, sizeof *all * (size_t)n + 1);
        for (int i = 0; i < n; i++) all[i] = onnx_elem_number(type, a + i * step);
        return onnx_set_known(c, 0, type, 1, &(sn_dim){(sn_dim)n}, all);
    }
    sn_dim n = 0;
    if (!e->poly || !limit->poly || step != floor(step) ||
        !sn_dim_div(c->m, sn_dim_sub(c->m, limit->d, e->d), (sn_dim)step, &n))
        return onnx_fail(c, "its length is not a polynomial of the sizes of the inputs");
    sn_tensor i = sn_arange(c->m, type, n);
    if (step != 1) i = sn_mul(i, step);
    return onnx_set(c, 0, e->d ? sn_add(i, sn_dim_tensor(c->m, type, e->d)) : i);
}

/* ---- the same elements in another shape ---- */

static bool reshape(onnx_call *c, onnx_value *v, int rank, sn_dim *shape) {
    onnx_value whole = {.rank = rank};
    int64_t stride[SN_MAX_RANK];
    if (v->known) {
        sn_dim known = 1;
        int rest = -1;
        for (int i = 0; i < rank; i++) {
            if (shape[i] == SN_REST)
                rest = i;
            else if (__builtin_mul_overflow(known, is_number(shape[i]) ? shape[i] : 0, &known))
                known = 0;
        }
        if (rest >= 0 && known > 0) shape[rest] = onnx_count(v) / known;
        memcpy(whole.shape, shape, sizeof *shape * (size_t)rank);
        if (onnx_count(&whole) == onnx_count(v)) {
            onnx_strides(&whole, stride);
            return onnx_known_view(c, 0, v, rank, shape, stride, 0);
        }
    }
    return onnx_set(c, 0, sn_reshape_at(c->at, onnx_tensor_of(c, v), ended(shape, rank)));
}

bool onnx_reshape(onnx_call *c) {
    sn_dim shape[SN_MAX_RANK + 1];
    int rank = onnx_ints(c, "shape", shape, SN_MAX_RANK);
    onnx_value *v = first(c);
    if (!v || (rank < 0 && !onnx_dims(c, 1, &rank, shape))) return false;
    sn_dim all = sn_dim_product(c->m, v->rank, v->shape);
    for (int i = 0; i < rank; i++) {
        if (shape[i] == 0 && i < v->rank && !onnx_int(c, "allowzero", 0)) shape[i] = v->shape[i];
        if (shape[i] < -1 && is_number(shape[i])) return onnx_fail(c, "a size is negative");
    }
    sn_dim known = 1;
    bool rest = false;
    for (int i = 0; i < rank; i++) {
        rest |= shape[i] == SN_REST;
        if (shape[i] != SN_REST) known = sn_dim_mul(c->m, known, shape[i]);
    }
    if (!rest && all != known && !onnx_equal(c, all, known) && onnx_again(c)) return false;
    return reshape(c, v, rank, shape);
}

bool onnx_flatten(onnx_call *c) {
    onnx_value *v = first(c);
    if (!v) return false;
    int64_t axis = onnx_int(c, "axis", 1);
    axis = axis < 0 ? axis + v->rank : axis;
    if (axis < 0 || axis > v->rank) return onnx_fail(c, "axis %lld", (long long)axis);
    sn_dim shape[3] = {sn_dim_product(c->m, (int)axis, v->shape),
                       sn_dim_product(c->m, v->rank - (int)axis, v->shape + axis)};
    return reshape(c, v, 2, shape);
}

bool onnx_squeeze(onnx_call *c) {
    int64_t axes[SN_MAX_RANK];
    sn_dim shape[SN_MAX_RANK + 1];
    unsigned drop = 0;
    int n, rank = 0;
    onnx_value *v = first(c);
    if (!v || !onnx_numbers(c, "axes", 1, &n, axes)) return false;
    for (int i = 0, a; i < n; i++) {
        if (!onnx_axis(c, axes[i], v->rank, &a)) return false;
        if (v->shape[a] != 1 && !onnx_equal(c, v->shape[a], 1))
            return onnx_fail(c, "the size of axis %d is not 1", a);
        drop |= 1u << a;
    }
    for (int i = 0; i < v->rank; i++)
        if (n < 0 ? v->shape[i] != 1 : !(drop & 1u << i)) shape[rank++] = v->shape[i];
    return reshape(c, v, rank, shape);
}

bool onnx_unsqueeze(onnx_call *c) {
    int64_t axes[SN_MAX_RANK];
    sn_dim shape[SN_MAX_RANK + 1];
    unsigned new = 0;
    int n;
    onnx_value *v = first(c);
    if (!v || !onnx_numbers(c, "axes", 1, &n, axes)) return false;
    if (n < 0 || v->rank + n > SN_MAX_RANK) return onnx_fail(c, "more than %d axes", SN_MAX_RANK);
    for (int i = 0, a; i < n; i++) {
        if (!onnx_axis(c, axes[i], v->rank + n, &a)) return false;
        if (new & 1u << a) return onnx_fail(c, "axis %d is listed twice", a);
        new |= 1u << a;
    }
    for (int i = 0, k = 0; i < v->rank + n; i++) shape[i] = new & 1u << i ? 1 : v->shape[k++];
    return reshape(c, v, v->rank + n, shape);
}

/* ---- moved elements ---- */

bool onnx_transpose(onnx_call *c) {
    int64_t perm[SN_MAX_RANK], stride[SN_MAX_RANK], moved[SN_MAX_RANK];
    sn_dim shape[SN_MAX_RANK];
    int axes[SN_MAX_RANK + 1];
    onnx_value *v = first(c);
    if (!v) return false;
    const int n = onnx_ints(c, "perm", perm, SN_MAX_RANK);
    if (n >= 0 && n != v->rank) return onnx_fail(c, "perm has %d axes, x has %d", n, v->rank);
    for (int i = 0; i < v->rank; i++)
        if (!onnx_axis(c, n < 0 ? v->rank - 1 - i : perm[i], v->rank, &axes[i])) return false;
    axes[v->rank] = INT_MIN;
    if (!v->known) return onnx_set(c, 0, sn_transpose_at(c->at, onnx_tensor_of(c, v), axes));
    onnx_strides(v, stride);
    for (int i = 0; i < v->rank; i++) moved[i] = stride[axes[i]], shape[i] = v->shape[axes[i]];
    return onnx_known_view(c, 0, v, v->rank, shape, moved, 0);
}

bool onnx_concat(onnx_call *c) {
    int axis;
    int64_t all = 0;
    onnx_value *v = first(c);
    if (!v || !onnx_axis(c, onnx_int(c, "axis", 1), v->rank, &axis)) return false;
    bool known = v->rank == 1;
    for (int i = 0; i < c->n_in; i++) {
        if (!c->in[i] || c->in[i]->rank != v->rank)
            return onnx_fail(c, "input %d has another number of axes", i);
        known = known && c->in[i]->known;
        all += known ? c->in[i]->shape[0] : 0;
        for (int a = 0; a < v->rank; a++)
            if (a != axis && !onnx_equal(c, v->shape[a], c->in[i]->shape[a]))
                return onnx_again(c) ? false : onnx_fail(c, "axis %d of input %d differs", a, i);
    }
    if (known && all <= ONNX_KNOWN_MAX) {
        onnx_elem *e = sn_arena_alloc(c->m, sizeof *e * (size_t)all + 1), *to = e;
        for (int i = 0; i < c->n_in; i++)
            for (int64_t k = 0; k < c->in[i]->shape[0]; k++) *to++ = c->in[i]->known[k];
        return onnx_set_known(c, 0, v->type, 1, &(sn_dim){all}, e);
    }
    if (c->n_in == 1) return onnx_set_value(c, 0, v);
    sn_tensor *x = sn_arena_alloc(c->im->arena, sizeof *x * (size_t)(c->n_in + 1));
    for (int i = 0; i < c->n_in; i++) x[i] = onnx_in(c, i);
    return onnx_set(
        c, 0, c->n_in == 2 ? onnx_after_past(c, axis, x[0], x[1]) : sn_concat_at(c->at, axis, x));
}

/* `size` elements from `start` of output `out`, every step-th, perhaps the last one first. */
static bool take(onnx_call *c, int out, onnx_value *v, int axis, sn_dim start, sn_dim size,
                 int64_t step, bool flip) {
    int64_t stride[SN_MAX_RANK], at;
    if (v->known && is_number(start) && is_number(size)) {
        sn_dim shape[SN_MAX_RANK];
        if (start < 0 || (size > 0 && start + (size - 1) * step >= v->shape[axis]))
            return onnx_fail(c, "elements outside of axis %d", axis);
        memcpy(shape, v->shape, sizeof shape);
        onnx_strides(v, stride);
        at = stride[axis] * (flip && size ? start + (size - 1) * step : start);
        stride[axis] *= flip ? -step : step;
        shape[axis] = size;
        return onnx_known_view(c, out, v, v->rank, shape, stride, size ? at : 0);
    }
    onnx_at_most(c, sn_dim_add(c->m, start, size), v->shape[axis]);
    sn_tensor x = onnx_tensor_of(c, v);
    if (start != 0 || size != v->shape[axis] || step != 1)
        x = sn_slice_at(c->at, x, axis, start, size, step);
    return onnx_set_narrow(c, out, flip ? sn_flip(x, axis) : x, v->narrow);
}

bool onnx_split(onnx_call *c) {
    sn_dim size[SN_MAX_RANK * 8], at = 0;
    onnx_value *v = first(c);
    int axis, n = c->node->out.n, listed = onnx_ints(c, "split", size, SN_MAX_RANK * 8);
    if (!v || !onnx_axis(c, onnx_int(c, "axis", 0), v->rank, &axis)) return false;
    if (n > SN_MAX_RANK * 8 || n > ONNX_OUT_MAX)
        return onnx_fail(c, "more than %d parts", ONNX_OUT_MAX);
    if (listed < 0 && onnx_given(c, 1)) {
        listed = (int)onnx_count(c->in[1]);
        if (!c->in[1]->known || listed < n)
            return onnx_fail(c, "sizes that are computed from data");
        for (int i = 0; i < n; i++) size[i] = c->in[1]->known[i].d;
    }
    for (int i = 0; i < n && listed < 0; i++) { /* equal parts; the last may be smaller */
        const sn_dim all = v->shape[axis];
        if (is_number(all)) {
            const int64_t part = all / n + (all % n != 0);
            size[i] = i < n - 1 ? part : all - part * (n - 1);
        } else if (!sn_dim_div(c->m, all, n, &size[i]))
            return onnx_fail(c, "axis %d cannot be split into %d equal parts", axis, n);
    }
    for (int i = 0; i < n; i++) {
        if (!take(c, i, v, axis, at, size[i], 1, false)) return false;
        at = sn_dim_add(c->m, at, size[i]);
    }
    return true;
}

/* A bound of a slice as an index from 0 to n: negative ones count from the end, others are clamped where that
 * can be decided; where not, it is within the axis, or the run fails. */
static sn_dim clamp(onnx_call *c, sn_dim at, sn_dim n, sn_dim low) {
    if (is_number(at) && at > (sn_dim)1 << 40) at = n;
    if (sn_dim_hi(c->m, at) < 0) at = sn_dim_add(c->m, at, n);
    if (sn_dim_hi(c->m, at) < low) return low;
    return at == n || sn_dim_le(c->m, n, at) ? n : at;
}

static bool slice_axis(onnx_call *c, onnx_value *v, int axis, sn_dim start, sn_dim end,
                       int64_t step) {
    const sn_dim n = v->shape[axis];
    sn_dim size;
    if (step > 0) {
        start = clamp(c, start, n, 0);
        end = clamp(c, end, n, 0);
        size = sn_dim_sub(c->m, end, start);
    } else {
        const sn_dim last = sn_dim_sub(c->m, n, 1);
        start = clamp(c, start, n, -1);
        if (start == n) start = last;
        end = is_number(end) && end <= -((sn_dim)1 << 39) ? -1 : clamp(c, end, n, -1);
        size = sn_dim_sub(c->m, start, end);
    }
    const int64_t by = step < 0 ? -step : step;
    if (sn_dim_hi(c->m, size) <= 0) return take(c, 0, v, axis, 0, 0, 1, false);
    if (is_number(size))
        size = (size + by - 1) / by;
    else if (!sn_dim_div(c->m, size, by, &size))
        return onnx_fail(c, "the number of elements on axis %d is not a polynomial", axis);
    if (step < 0) /* the elements in their order, then the last one first */
        start = sn_dim_sub(c->m, start, sn_dim_mul(c->m, sn_dim_sub(c->m, size, 1), by));
    return take(c, 0, v, axis, start, size, by, step < 0);
}

bool onnx_slice(onnx_call *c) {
    sn_dim start[SN_MAX_RANK], end[SN_MAX_RANK];
    int64_t axes[SN_MAX_RANK], step[SN_MAX_RANK];
    onnx_value *v = first(c);
    int n = onnx_ints(c, "starts", start, SN_MAX_RANK),
        n_end = onnx_ints(c, "ends", end, SN_MAX_RANK);
    int n_axes, n_step;
    if (!v || (n < 0 && !(onnx_dims(c, 1, &n, start) && onnx_dims(c, 2, &n_end, end))))
        return false;
    if (!onnx_numbers(c, "axes", 3, &n_axes, axes) || !onnx_numbers(c, NULL, 4, &n_step, step))
        return false;
    if (n != n_end || (n_axes >= 0 && n_axes != n) || (n_step >= 0 && n_step != n) || n > v->rank)
        return onnx_fail(c, "the lists of starts, ends, axes and steps have different lengths");
    c->out[0] = v;
    for (int i = 0, a; i < n; i++) {
        if (!onnx_axis(c, n_axes < 0 ? i : axes[i], v->rank, &a)) return false;
        if (n_step >= 0 && step[i] == 0) return onnx_fail(c, "a step is 0");
        if (!slice_axis(c, c->out[0], a, start[i], end[i], n_step < 0 ? 1 : step[i])) return false;
    }
    return true;
}

/* Elements of known integers at known indices. */
static bool gather_known(onnx_call *c, const onnx_value *v, const onnx_value *ids, int axis) {
    sn_dim shape[SN_MAX_RANK];
    int rank = 0;
    int64_t inner = 1, outer = 1, all, n = v->shape[axis], m = onnx_count(ids);
    bool wraps = m < 0; /* without elements any product of other sizes can */
    for (int i = 0; i < axis; i++)
        wraps |= __builtin_mul_overflow(outer, shape[rank++] = v->shape[i], &outer);
    for (int i = 0; i < ids->rank; i++) shape[rank++] = ids->shape[i];
    for (int i = axis + 1; i < v->rank; i++)
        wraps |= __builtin_mul_overflow(inner, shape[rank++] = v->shape[i], &inner);
    wraps |= __builtin_mul_overflow(outer, m, &all);
    wraps |= __builtin_mul_overflow(all, inner, &all);
    if (wraps || all > ONNX_KNOWN_MAX) return onnx_fail(c, "too many known elements");
    onnx_elem *e = sn_arena_alloc(c->m, sizeof *e * (size_t)all + 1), *to = e;
    const bool empty = !(m && inner); /* whatever the number of its rows */
    for (int64_t o = 0; !empty && o < outer; o++)
        for (int64_t i = 0; i < m; i++) {
            const sn_dim at = ids->known[i].d < 0 ? ids->known[i].d + n : ids->known[i].d;
            if (at < 0 || at >= n)
                return onnx_fail(c, "index %lld of %lld", (long long)at, (long long)n);
            for (int64_t k = 0; k < inner; k++) *to++ = v->known[(o * n + at) * inner + k];
        }
    return onnx_set_known(c, 0, v->type, rank, shape, e);
}

bool onnx_gather(onnx_call *c) {
    onnx_value *v = first(c), *ids = onnx_given(c, 1) ? c->in[1] : NULL;
    int axis;
    bool numbers = ids && ids->known;
    if (!v || !ids) return onnx_fail(c, "it needs two inputs");
    bool below = !v->weight && !numbers; /* negative indices count from the end */
    if (!onnx_axis(c, onnx_int(c, "axis", 0), v->rank, &axis)) return false;
    if (v->rank + ids->rank - 1 > SN_MAX_RANK)
        return onnx_fail(c, "more than %d axes", SN_MAX_RANK);
    for (int64_t i = 0; numbers && i < onnx_count(ids); i++)
        below |= ids->known[i].d < 0, numbers = is_number(ids->known[i].d);
    if (numbers && v->known) return gather_known(c, v, ids, axis);
    if (ids->known && onnx_count(ids) == 1 && ids->rank < 2) {
        sn_dim at = ids->known[0].d;
        if (sn_dim_hi(c->m, at) < 0) at = sn_dim_add(c->m, at, v->shape[axis]);
        sn_tensor y = sn_slice(onnx_in(c, 0), axis, at, 1);
        return onnx_set(c, 0, ids->rank ? y : sn_squeeze(y, axis));
    }
    sn_tensor x = onnx_in(c, 0), i = onnx_in(c, 1);
    if (below)
        i = sn_where(sn_lt(i, 0), sn_add(i, sn_dim_tensor(c->m, ids->type, v->shape[axis])), i);
    return onnx_set(c, 0, sn_gather(x, axis, i));
}

bool onnx_expand(onnx_call *c) {
    sn_dim shape[SN_MAX_RANK + 1];
    int64_t stride[SN_MAX_RANK] = {0}, strides[SN_MAX_RANK];
    int rank;
    onnx_value *v = first(c);
    if (!v || !onnx_dims(c, 1, &rank, shape)) return false;
    for (; rank < v->rank; rank++) {
        memmove(shape + 1, shape, sizeof *shape * (size_t)rank);
        shape[0] = 1;
    }
    bool numbers = true;
    if (v->known) onnx_strides(v, strides);
    for (int i = 0, from = rank - v->rank; i < rank; i++) {
        const sn_dim d = i < from ? 1 : v->shape[i - from];
        if (d != 1 && shape[i] != 1 && !onnx_equal(c, d, shape[i]))
            return onnx_again(c) ? false
                                 : onnx_fail(c, "axis %d of x does not broadcast", i - from);
        if (d != 1) shape[i] = d;
        if (d != 1 && v->known) stride[i] = strides[i - from];
        numbers &= is_number(shape[i]);
    }
    onnx_value whole = {.rank = rank};
    memcpy(whole.shape, shape, sizeof *shape * (size_t)rank);
    const int64_t n = onnx_count(&whole);
    if (v->known && numbers && n >= 0 && n <= ONNX_ARRAY_MAX)
        return onnx_known_view(c, 0, v, rank, shape, stride, 0);
    return onnx_set(c, 0, sn_broadcast_at(c->at, onnx_tensor_of(c, v), ended(shape, rank)));
}

/* x, repeated `times` on the axis. */
static sn_tensor repeat(onnx_call *c, sn_tensor x, int axis, sn_dim times) {
    sn_dim split[SN_MAX_RANK + 2], shape[SN_MAX_RANK + 1];
    const int rank = sn_rank_of(x);
    for (int i = 0, k = 0; i < rank; i++) {
        shape[i] = sn_dim_of(x, i);
        if (i == axis) split[k++] = times, shape[i] = sn_dim_mul(c->m, times, shape[i]);
        split[k++] = sn_dim_of(x, i);
    }
    sn_tensor y = sn_broadcast_at(c->at, sn_expand(x, axis), ended(split, rank + 1));
    return sn_reshape_at(c->at, y, ended(shape, rank));
}

bool onnx_tile(onnx_call *c) {
    sn_dim times[SN_MAX_RANK];
    int n;
    onnx_value *v = first(c);
    if (!v || !onnx_dims(c, 1, &n, times)) return false;
    if (n != v->rank) return onnx_fail(c, "repeats needs a number for each axis");
    sn_tensor x = onnx_in(c, 0);
    for (int i = 0; i < n; i++)
        if (times[i] != 1) x = repeat(c, x, i, times[i]);
    return onnx_set(c, 0, x);
}

/* ---- padding ---- */

/* x with elements of x itself before and after it: its ends (edge), mirrored at them (reflect), or those of the other
 * end (wrap). */
static sn_tensor pad_own(onnx_call *c, sn_tensor x, int axis, sn_dim low, sn_dim high, char mode) {
    const sn_dim n = sn_dim_of(x, axis);
    const bool edge = mode == 'e', wrap = mode == 'w';
    sn_tensor part[4] = {NULL};
    int k = 0;
    if (low) {
        sn_dim from = wrap ? sn_dim_sub(c->m, n, low) : !edge;
        sn_tensor y = sn_slice(x, axis, from, edge ? 1 : low);
        part[k++] = edge ? repeat(c, y, axis, low) : wrap ? y : sn_flip(y, axis);
    }
    part[k++] = x;
    if (high) {
        sn_dim from = wrap ? 0 : sn_dim_sub(c->m, n, edge ? 1 : sn_dim_add(c->m, high, 1));
        sn_tensor y = sn_slice(x, axis, from, edge ? 1 : high);
        part[k++] = edge ? repeat(c, y, axis, high) : wrap ? y : sn_flip(y, axis);
    }
    return sn_concat_at(c->at, axis, part);
}

bool onnx_pad(onnx_call *c) {
    sn_dim pads[2 * SN_MAX_RANK];
    int64_t axes[SN_MAX_RANK];
    double value = onnx_float(c, "value", 0);
    const char *mode = onnx_text(c, "mode", "constant");
    const bool constant = !strcmp(mode, "constant");
    onnx_value *v = first(c);
    int n_axes, n = onnx_ints(c, "pads", pads, 2 * SN_MAX_RANK);
    if (n < 0) n = onnx_ints(c, "paddings", pads, 2 * SN_MAX_RANK);
    if (!v || !onnx_numbers(c, NULL, 3, &n_axes, axes)) return false;
    for (int i = 0; i < n; i++) /* below are handles of polynomials */
        if (pads[i] < -((sn_dim)1 << 39))
            return onnx_fail(c, "a pad of %lld elements", (long long)pads[i]);
    if (n < 0 && onnx_given(c, 1) && c->in[1]->known && onnx_count(c->in[1]) <= 2 * SN_MAX_RANK) {
        n = (int)onnx_count(c->in[1]);
        for (int i = 0; i < n; i++) pads[i] = c->in[1]->known[i].d;
    }
    if (n_axes < 0) {
        n_axes = v->rank;
        for (int i = 0; i < n_axes; i++) axes[i] = i;
    }
    if (n != 2 * n_axes) return onnx_fail(c, "pads must be known, two numbers for each axis");
    if (!constant && strcmp(mode, "edge") != 0 && strcmp(mode, "reflect") != 0 &&
        strcmp(mode, "wrap") != 0)
        return onnx_fail(c, "mode '%s'", mode);
    if (onnx_given(c, 2) && !onnx_number(c, c->in[2], &value)) {
        if (constant) return onnx_fail(c, "its value must be known");
    }
    sn_tensor x = onnx_in(c, 0);
    for (int i = 0, a; i < n_axes; i++) {
        sn_dim low = pads[i], high = pads[i + n_axes];
        if (!onnx_axis(c, axes[i], v->rank, &a)) return false;
        if (!low && !high) continue;
        const sn_dim cut = sn_dim_hi(c->m, low) < 0 ? sn_dim_sub(c->m, 0, low) : 0;
        const sn_dim end = sn_dim_hi(c->m, high) < 0 ? sn_dim_sub(c->m, 0, high) : 0;
        if (cut || end) { /* negative: elements are left out */
            sn_dim size = sn_dim_sub(c->m, sn_dim_of(x, a), sn_dim_add(c->m, cut, end));
            x = sn_slice(x, a, cut, size);
            low = cut ? 0 : low;
            high = end ? 0 : high;
        }
        if (!low && !high) continue;
        x = constant ? sn_pad(x, a, low, high, value) : pad_own(c, x, a, low, high, *mode);
    }
    return onnx_set(c, 0, x);
}

bool onnx_depth_to_space(onnx_call *c) {
    const int64_t b = onnx_int(c, "blocksize", 0);
    const bool crd = !strcmp(onnx_text(c, "mode", "DCR"), "CRD");
    sn_tensor x = onnx_in(c, 0);
    sn_dim depth;
    if (sn_rank_of(x) != 4 || b < 1 || !sn_dim_div(c->m, sn_dim_of(x, 1), b * b, &depth))
        return onnx_fail(c, "x must be [N, C, H, W] with C a multiple of blocksize^2");
    const sn_dim n = sn_dim_of(x, 0), h = sn_dim_of(x, 2), w = sn_dim_of(x, 3);
    x = crd ? sn_transpose(sn_reshape(x, n, depth, b, b, h, w), 0, 1, 4, 2, 5, 3)
            : sn_transpose(sn_reshape(x, n, b, b, depth, h, w), 0, 3, 4, 1, 5, 2);
    return onnx_set(c, 0, sn_reshape(x, n, depth, sn_dim_mul(c->m, h, b), sn_dim_mul(c->m, w, b)));
}

bool onnx_space_to_depth(onnx_call *c) {
    const int64_t b = onnx_int(c, "blocksize", 0);
    sn_tensor x = onnx_in(c, 0);
    sn_dim h, w;
    if (sn_rank_of(x) != 4 || b < 1 || !sn_dim_div(c->m, sn_dim_of(x, 2), b, &h) ||
        !sn_dim_div(c->m, sn_dim_of(x, 3), b, &w))
        return onnx_fail(c, "x must be [N, C, H, W] with H and W multiples of blocksize");
    const sn_dim n = sn_dim_of(x, 0), d = sn_dim_of(x, 1);
    x = sn_transpose(sn_reshape(x, n, d, h, b, w, b), 0, 3, 5, 1, 2, 4);
    return onnx_set(c, 0, sn_reshape(x, n, sn_dim_mul(c->m, d, b * b), h, w));
}

/* ---- branches ---- */

/* A condition that follows from shapes chooses a branch; one that depends on data, between their results. */
bool onnx_if(onnx_call *c) {
    const onnx_attribute *branch[2] = {onnx_attr(c, "else_branch"), onnx_attr(c, "then_branch")};
    onnx_value **out[2];
    double which;
    if (!onnx_given(c, 0) || !branch[0] || !branch[1] || !branch[0]->graph || !branch[1]->graph)
        return onnx_fail(c, "it needs a condition and two graphs");
    for (int i = 0; i < 2; i++) out[i] = sn_arena_alloc(c->im->arena, sizeof **out * ONNX_OUT_MAX);
    if (onnx_number(c, c->in[0], &which)) {
        if (!c->im->run_graph(c, branch[which != 0]->graph, 0, NULL, out[0])) return false;
        memcpy(c->out, out[0], sizeof c->out);
        return true;
    }
    if (onnx_count(c->in[0]) != 1) return onnx_fail(c, "its condition is not one bool");
    for (int i = 0; i < 2; i++)
        if (!c->im->run_graph(c, branch[i]->graph, 0, NULL, out[i])) return false;
    sn_tensor cond = sn_reshape(onnx_in(c, 0), SN_SCALAR);
    for (int i = 0; i < ONNX_OUT_MAX && out[0][i] && out[1][i]; i++) {
        sn_tensor no = onnx_tensor_of(c, out[0][i]), yes = onnx_tensor_of(c, out[1][i]);
        if (!front_same_shape(no, yes))
            return onnx_fail(
                c, "its condition depends on data, and the shapes of the branches' results differ");
        if (!onnx_set(c, i, sn_where(cond, yes, no))) return false;
    }
    return true;
}
