/* ops_index.c: look-ups and scatters, orders, and reductions along axes. */
#include "frontend/onnx/load.h"
#include "frontend/onnx/ops.h"

#include <string.h>

/* ---- reductions ---- */

/* The product of the elements along the last axis, which is removed. */
static sn_tensor product_of_last(onnx_call *c, sn_tensor x) {
    const bool may_be_empty = sn_dim_lo(c->m, sn_dim_of(x, -1)) < 1;
    if (may_be_empty) x = sn_pad(x, -1, 1, 0, 1);
    sn_tensor all = sn_cumprod(x, -1);
    return sn_index(all, -1, sn_dim_sub(c->m, sn_dim_of(x, -1), 1));
}

static sn_tensor product(onnx_call *c, sn_tensor x, const int *axes, bool keep) {
    sn_dim shape[SN_MAX_RANK + 1];
    int perm[SN_MAX_RANK + 1], n = 0, rank = sn_rank_of(x), left = 0;
    unsigned mask = 0;
    sn_dim all = 1;
    for (; axes[n] != INT_MIN; n++) mask |= 1u << axes[n];
    for (int i = 0; i < rank; i++)
        if (!(mask & 1u << i)) shape[left] = sn_dim_of(x, i), perm[left++] = i;
    for (int i = 0; i < n; i++) {
        all = sn_dim_mul(c->m, all, sn_dim_of(x, axes[i]));
        perm[left + i] = axes[i];
    }
    perm[rank] = INT_MIN;
    shape[left] = all;
    shape[left + 1] = SN_END;
    x = product_of_last(c, sn_reshape_at(c->at, sn_transpose_at(c->at, x, perm), shape));
    for (int i = 0; keep && i < rank; i++)
        if (mask & 1u << i) x = sn_expand(x, i);
    return x;
}

static sn_tensor reduce(onnx_call *c, sn_tensor x, const int *axes, bool keep) {
    switch (c->row->flag) {
    case ONNX_R_MEAN:
        return sn_mean_at(c->at, x, axes, keep);
    case ONNX_R_MAX:
        return sn_amax_at(c->at, x, axes, keep);
    case ONNX_R_MIN:
        return sn_amin_at(c->at, x, axes, keep);
    case ONNX_R_PROD:
        return product(c, x, axes, keep);
    case ONNX_R_L1:
        return sn_sum_at(c->at, sn_abs(x), axes, keep);
    case ONNX_R_L2:
        return sn_sqrt(sn_sum_at(c->at, sn_square(x), axes, keep));
    case ONNX_R_LOG_SUM:
        return sn_log(sn_sum_at(c->at, x, axes, keep));
    case ONNX_R_SQUARES:
        return sn_sum_at(c->at, sn_square(x), axes, keep);
    case ONNX_R_LOG_SUM_EXP: {
        sn_tensor high = sn_amax_at(c->at, x, axes, true);
        sn_tensor sum = sn_sum_at(c->at, sn_exp(sn_sub(x, high)), axes, true);
        sn_tensor y = sn_add(sn_log(sum), high);
        return keep ? y : sn_sum_at(c->at, y, axes, false); /* over axes of size 1 */
    }
    default:
        return sn_sum_at(c->at, x, axes, keep);
    }
}

/* Of a list of known elements: their sum, product or extreme. */
static bool reduce_known(onnx_call *c, const onnx_value *v, bool keep, bool *done) {
    const int64_t n = onnx_count(v);
    onnx_elem e = onnx_elem_dim(c->row->flag == ONNX_R_PROD), *out;
    *done = false;
    if (!v->known || v->rank != 1 || !c->row->known || n < 1 || sn_dtype_is_float(v->type))
        return true;
    for (int64_t i = 0; i < n; i++) {
        const onnx_elem two[2] = {i ? e : v->known[0], v->known[i]};
        if (i ? !c->row->known(c, two, &e) : (e = two[0], false)) return true;
    }
    out = sn_arena_alloc(c->m, sizeof *out);
    *out = e;
    *done = true;
    return onnx_set_known(c, 0, v->type, keep, &(sn_dim){1}, out);
}

bool onnx_reduce(onnx_call *c) {
    int64_t list[SN_MAX_RANK];
    int axes[SN_MAX_RANK + 1], n;
    const bool keep = onnx_int(c, "keepdims", 1);
    bool done;
    if (!onnx_given(c, 0)) return onnx_fail(c, "input 0 is missing");
    const onnx_value *v = c->in[0];
    if (!onnx_numbers(c, "axes", 1, &n, list)) return false;
    if (n <= 0 && onnx_int(c, "noop_with_empty_axes", 0)) return onnx_set_value(c, 0, c->in[0]);
    if (!reduce_known(c, v, keep, &done) || done) return done;
    for (int i = 0; i < n; i++)
        if (!onnx_axis(c, list[i], v->rank, &axes[i])) return false;
    if (n <= 0) {
        n = v->rank;
        for (int i = 0; i < n; i++) axes[i] = i;
    }
    axes[n] = INT_MIN;
    sn_tensor x = onnx_in(c, 0);
    if (!n) return onnx_set(c, 0, x);
    if (v->type != SN_BOOL) return onnx_set(c, 0, reduce(c, x, axes, keep));
    return onnx_set(c, 0, sn_gt(reduce(c, sn_cast(x, SN_I32), axes, keep), 0)); /* any, all */
}

/* ---- orders ---- */

/* ArgMax, ArgMin (flag). */
bool onnx_arg(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0);
    int axis;
    const bool last = onnx_int(c, "select_last_index", 0);
    if (!onnx_axis(c, onnx_int(c, "axis", 0), sn_rank_of(x), &axis)) return false;
    if (c->row->flag) x = sn_neg(x);
    if (last) x = sn_flip(x, axis);
    sn_tensor y = sn_cast(sn_argmax(x, axis), SN_I64);
    if (last) y = sn_sub(sn_dim_tensor(c->m, SN_I64, sn_dim_sub(c->m, sn_dim_of(x, axis), 1)), y);
    return onnx_set_narrow(c, 0, onnx_int(c, "keepdims", 1) ? sn_expand(y, axis) : y, ONNX_INT64);
}

bool onnx_top_k(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0), ids;
    sn_dim k = onnx_int(c, "k", 0);
    int axis;
    const bool largest = onnx_int(c, "largest", 1);
    if (!onnx_attr(c, "k") && !onnx_one_dim(c, 1, "k", &k)) return false;
    if (!onnx_axis(c, onnx_int(c, "axis", -1), sn_rank_of(x), &axis)) return false;
    const bool swap = axis != sn_rank_of(x) - 1;
    if (swap) x = sn_swap(x, axis, -1);
    sn_tensor y = sn_top_k(largest ? x : sn_neg(x), k, &ids);
    if (!largest) y = sn_neg(y);
    ids = sn_cast(ids, SN_I64);
    return onnx_set(c, 0, swap ? sn_swap(y, axis, -1) : y) &&
           onnx_set(c, 1, swap ? sn_swap(ids, axis, -1) : ids);
}

/* CumSum and CumProd (flag: an sn_cumulation). */
bool onnx_cumulate(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0);
    sn_dim at;
    int axis;
    if (!onnx_one_dim(c, 1, "its axis", &at)) return false;
    if (!onnx_axis(c, at, sn_rank_of(x), &axis)) return false;
    const bool plain = !onnx_int(c, "exclusive", 0) && !onnx_int(c, "reverse", 0);
    if (plain && c->row->flag == SN_CUMSUM) return onnx_set(c, 0, sn_cumsum(x, axis));
    return onnx_set(c, 0,
                    sn_cumulate(x, .axis = axis, .op = (sn_cumulation)c->row->flag,
                                .reverse = onnx_int(c, "reverse", 0),
                                .exclusive = onnx_int(c, "exclusive", 0)));
}

/* ---- look-ups ---- */

/* Indices as i64 from 0 on: negative ones count from the end of an axis with n elements. */
static sn_tensor from_zero(onnx_call *c, sn_tensor ids, sn_dim n) {
    if (sn_dtype_of(ids) != SN_I64) ids = sn_cast(ids, SN_I64);
    return sn_where(sn_lt(ids, 0), sn_add(ids, sn_dim_tensor(c->m, SN_I64, n)), ids);
}

/* x, whose axes other than `axis` may be longer, as long as ids. */
static sn_tensor cut_like(onnx_call *c, sn_tensor x, sn_tensor ids, int axis) {
    for (int i = 0; i < sn_rank_of(ids); i++)
        if (i != axis && sn_dim_of(x, i) != sn_dim_of(ids, i))
            x = sn_slice(x, i, 0, sn_dim_of(ids, i));
    return x;
}

bool onnx_gather_elements(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0), ids = onnx_in(c, 1);
    int axis;
    if (sn_rank_of(ids) != sn_rank_of(x))
        return onnx_fail(c, "x and indices differ in their number of axes");
    if (!onnx_axis(c, onnx_int(c, "axis", 0), sn_rank_of(x), &axis)) return false;
    ids = from_zero(c, ids, sn_dim_of(x, axis));
    return onnx_set(c, 0, sn_take_along(cut_like(c, x, ids, axis), axis, ids));
}

/* Numbers of the rows that indices [.., r] say, of x with its axes from `batch` to batch + r - 1 as one:
 * [..]. rest: elements of the axes that follow. */
static sn_tensor rows_of(onnx_call *c, sn_tensor x, sn_tensor ids, int batch, int r, sn_dim *rows) {
    const int lead = sn_rank_of(ids) - 1;
    sn_dim shape[SN_MAX_RANK + 1];
    sn_tensor at = NULL;
    for (int i = 0; i < lead; i++) shape[i] = sn_dim_of(ids, i);
    shape[lead] = SN_END;
    *rows = 1;
    for (int i = 0; i < batch + r; i++) {
        const sn_dim n = sn_dim_of(x, i);
        sn_tensor one = i < batch ? sn_iota_at(c->at, c->m, SN_I64, i, shape)
                                  : from_zero(c, sn_index(ids, -1, i - batch), n);
        at = at ? sn_add(sn_mul(at, sn_dim_tensor(c->m, SN_I64, n)), one) : one;
        *rows = sn_dim_mul(c->m, *rows, n);
    }
    return at;
}

/* x [rows, the axes from `from` on] */
static sn_tensor as_rows(onnx_call *c, sn_tensor x, int from, sn_dim rows) {
    sn_dim shape[SN_MAX_RANK + 2] = {rows};
    int n = 1;
    for (int i = from; i < sn_rank_of(x); i++) shape[n++] = sn_dim_of(x, i);
    shape[n] = SN_END;
    return sn_reshape_at(c->at, x, shape);
}

bool onnx_gather_nd(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0), ids = onnx_in(c, 1);
    const int batch = (int)onnx_int(c, "batch_dims", 0);
    const sn_dim r = sn_rank_of(ids) ? sn_dim_of(ids, -1) : 0;
    sn_dim rows;
    if (r < 1 || batch < 0 || batch >= sn_rank_of(ids) || batch + r > sn_rank_of(x))
        return onnx_fail(c, "its indices do not fit x");
    sn_tensor at = rows_of(c, x, ids, batch, (int)r, &rows);
    return onnx_set(c, 0, sn_gather(as_rows(c, x, batch + (int)r, rows), 0, at));
}

/* x with rows y at `at` [n]: written, or added. */
static bool scatter(onnx_call *c, sn_tensor x, sn_tensor rows, sn_tensor at, sn_tensor y,
                    sn_dim n) {
    const char *reduction = onnx_text(c, "reduction", "none");
    const bool add = !strcmp(reduction, "add");
    if (!add && strcmp(reduction, "none") != 0)
        return onnx_fail(c, "reduction '%s' is not supported", reduction);
    sn_tensor sum = sn_scatter_add(y, 0, at, n);
    if (add) {
        sum = sn_add(rows, sum);
    } else {
        sn_tensor one = sn_full(c->m, SN_F32, 1, sn_dim_of(at, 0));
        sn_tensor hit = sn_gt(sn_scatter_add(one, 0, at, n), 0);
        for (int i = 1; i < sn_rank_of(rows); i++) hit = sn_expand(hit, -1);
        sum = sn_where(hit, sum, rows);
    }
    sn_dim shape[SN_MAX_RANK + 1];
    for (int i = 0; i < sn_rank_of(x); i++) shape[i] = sn_dim_of(x, i);
    shape[sn_rank_of(x)] = SN_END;
    return onnx_set(c, 0, sn_reshape_at(c->at, sum, shape));
}

bool onnx_scatter_nd(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0), ids = onnx_in(c, 1), y = onnx_in(c, 2);
    const sn_dim r = sn_rank_of(ids) ? sn_dim_of(ids, -1) : 0;
    sn_dim n;
    if (r < 1 || r > sn_rank_of(x)) return onnx_fail(c, "its indices do not fit x");
    sn_tensor at = sn_reshape(rows_of(c, x, ids, 0, (int)r, &n), SN_REST);
    sn_tensor rows = as_rows(c, x, (int)r, n);
    return scatter(c, x, rows, at, as_rows(c, y, sn_rank_of(ids) - 1, sn_dim_of(at, 0)), n);
}

bool onnx_scatter_elements(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0), ids = onnx_in(c, 1), y = onnx_in(c, 2), at = NULL;
    const int rank = sn_rank_of(x);
    sn_dim shape[SN_MAX_RANK + 1], n = 1;
    int axis;
    if (sn_rank_of(ids) != rank)
        return onnx_fail(c, "x and indices differ in their number of axes");
    if (!onnx_axis(c, onnx_int(c, "axis", 0), rank, &axis)) return false;
    for (int i = 0; i < rank; i++) shape[i] = sn_dim_of(ids, i);
    shape[rank] = SN_END;
    for (int i = 0; i < rank; i++) {
        const sn_dim size = sn_dim_of(x, i);
        sn_tensor one =
            i == axis ? from_zero(c, ids, size) : sn_iota_at(c->at, c->m, SN_I64, i, shape);
        at = at ? sn_add(sn_mul(at, sn_dim_tensor(c->m, SN_I64, size)), one) : one;
        n = sn_dim_mul(c->m, n, size);
    }
    return scatter(c, x, sn_reshape(x, n), sn_reshape(at, SN_REST), sn_reshape(y, SN_REST), n);
}

/* A cache with rows written into sequence b from row `at[b]` on, or, in a circle, modulo its length. */
bool onnx_tensor_scatter(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0), y = onnx_in(c, 1), at = onnx_in_or_null(c, 2);
    int axis, perm[SN_MAX_RANK + 1], rank = sn_rank_of(x);
    if (!onnx_axis(c, onnx_int(c, "axis", -2), rank, &axis) || !axis || sn_rank_of(y) != rank)
        return onnx_fail(c, "its axis is that of sequences, or its inputs differ in rank");
    const sn_dim n = sn_dim_of(x, 0), S = sn_dim_of(x, axis), T = sn_dim_of(y, axis);
    if (!at) at = sn_full(c->m, SN_I64, 0, n);
    if (strcmp(onnx_text(c, "mode", "linear"), "circular") != 0)
        return onnx_set(c, 0, sn_update_rows(x, axis, y, at));
    /* row s is the one that is written mod(s - at, S) after the first */
    at = sn_sub(sn_expand(sn_arange(c->m, SN_I64, S), 0), sn_expand(sn_cast(at, SN_I64), 1));
    at = sn_mod(at, sn_dim_tensor(c->m, SN_I64, S));
    sn_tensor last = sn_dim_tensor(c->m, SN_I64, sn_dim_sub(c->m, T, 1)), new = sn_le(at, last);
    sn_tensor rows = sn_expand(sn_arange(c->m, SN_I64, n), 1);
    rows = sn_add(sn_mul(rows, sn_dim_tensor(c->m, SN_I64, T)), sn_min(at, last));
    for (int i = 0; i <= rank; i++) perm[i] = i == rank ? INT_MIN : i;
    perm[1] = axis, perm[axis] = 1; /* the sequence comes second, for the look-up */
    y = as_rows(c, sn_transpose_at(c->at, y, perm), 2, sn_dim_mul(c->m, n, T));
    y = sn_transpose_at(c->at, sn_gather(y, 0, rows), perm);
    new = sn_reshape(new, n, S);
    for (int i = 1; i < axis; i++) new = sn_expand(new, 1);
    for (int i = axis + 1; i < rank; i++) new = sn_expand(new, -1);
    return onnx_set(c, 0, sn_where(new, y, x));
}

bool onnx_one_hot(onnx_call *c) {
    sn_tensor ids = onnx_in(c, 0), values = onnx_in(c, 2);
    sn_dim depth;
    double number;
    int axis, rank = sn_rank_of(ids);
    if (onnx_given(c, 1) && onnx_number(c, c->in[1], &number))
        depth = (sn_dim)number;
    else if (!onnx_one_dim(c, 1, "its depth", &depth))
        return false;
    if (rank == SN_MAX_RANK || !onnx_axis(c, onnx_int(c, "axis", -1), rank + 1, &axis))
        return false;
    ids = sn_expand(from_zero(c, ids, depth), axis);
    sn_tensor at = sn_arange(c->m, SN_I64, depth);
    for (int i = axis; i < rank; i++) at = sn_expand(at, -1);
    sn_tensor on = sn_index(values, 0, 1), off = sn_index(values, 0, 0);
    return onnx_set(c, 0, sn_where(sn_eq(ids, at), on, off));
}

/* ---- triangles ---- */

bool onnx_trilu(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0);
    sn_dim k = 0;
    if (onnx_given(c, 1) && !onnx_one_dim(c, 1, "k", &k)) return false;
    if (sn_rank_of(x) < 2) return onnx_fail(c, "it needs a matrix");
    const sn_dim rows = sn_dim_of(x, -2), columns = sn_dim_of(x, -1);
    sn_tensor i = sn_iota(c->m, SN_I32, 0, rows, columns),
              j = sn_iota(c->m, SN_I32, 1, rows, columns);
    if (k) i = sn_add(i, sn_dim_tensor(c->m, SN_I32, k));
    sn_tensor in = onnx_int(c, "upper", 1) ? sn_ge(j, i) : sn_le(j, i);
    if (sn_dtype_of(x) == SN_BOOL) return onnx_set(c, 0, sn_and(in, x));
    return onnx_set(c, 0, sn_where(in, x, 0));
}

bool onnx_eye_like(onnx_call *c) {
    sn_dtype type;
    if (!onnx_given(c, 0) || c->in[0]->rank != 2) return onnx_fail(c, "its input is not a matrix");
    const onnx_value *v = c->in[0];
    if (!onnx_dtype(onnx_int(c, "dtype", ONNX_FLOAT), &type))
        return onnx_fail(c, "its type is not supported");
    if (!onnx_attr(c, "dtype")) type = v->type;
    sn_tensor i = sn_iota(c->m, SN_I32, 0, v->shape[0], v->shape[1]);
    sn_tensor j = sn_iota(c->m, SN_I32, 1, v->shape[0], v->shape[1]);
    return onnx_set(c, 0, sn_cast(sn_eq(j, sn_add(i, (double)onnx_int(c, "k", 0))), type));
}

bool onnx_non_zero(onnx_call *c) {
    const onnx_value *v = onnx_given(c, 0) ? c->in[0] : NULL;
    const int64_t n = v ? onnx_count(v) : -1;
    int64_t stride[SN_MAX_RANK], found = 0;
    if (n < 0 || !v->known)
        return onnx_fail(c, "its input must be known when the graph is imported");
    double x;
    for (int64_t i = 0; i < n; i++) found += onnx_elem_value(&v->known[i], &x) ? x != 0 : 1;
    onnx_elem *e = sn_arena_alloc(c->m, sizeof *e * (size_t)(found * v->rank) + 1);
    onnx_strides(v, stride);
    int64_t k = 0;
    for (int64_t i = 0; i < n; i++) {
        if (onnx_elem_value(&v->known[i], &x) && x == 0) continue;
        for (int a = 0; a < v->rank; a++)
            e[a * found + k] = onnx_elem_dim(i / stride[a] % v->shape[a]);
        k++;
    }
    return onnx_set_known(c, 0, SN_I64, 2, (sn_dim[]){v->rank, found}, e);
}
