/* scatter.c: primitives that write at indices: sums into rows or elements, updates of rows. Threads share what
 * is independent (rows, columns); one thread visits the indices in order, so the bits do not depend on the
 * number of threads. */
#include "codegen/emit/elem.h"
#include "codegen/rows/lines.h"

/* What becomes of the rows of an index. */
static int64_t combines(const sn_kernel *k) {
    return sn_attr_int(k->step->node, SN_A_combine, 0);
}

static void combine_at(em *e, const sn_kernel *k, em_val p, em_val v) {
    sn_dtype t = k->step->out[0].dtype;
    em_val old = em_load(e, t, p, 1);
    em_val largest = em_is_float(v) ? em_max_nan(e, old, v) : em_imax(e, old, v);
    int64_t how = combines(k);
    em_store(e, t, p, how == 0 ? em_add(e, old, v) : how == 1 ? largest : em_mul(e, old, v));
}

static em_val clamp(em *e, em_val i, em_val n) {
    return em_imax(e, em_imin(e, em_idx(e, i), em_sub(e, n, 1)), 0);
}

/* Gives this thread's elements the value without rows: those whose flat index over the axes other than `axis` lies in
 * [lo, hi). */
static void clear(em *e, const sn_kernel *k, const sn_view *y, int buf, int axis, em_val lo,
                  em_val hi) {
    em_loop row = em_for(e, lo, hi, 1);
    em_val off = sn_line_offset(e, k, y, axis, row.i);
    em_loop step = em_for(e, 0, sn_line_extent(e, k, y, axis), 1);
    em_val at = em_add(e, off, em_mul(e, step.i, sn_kernel_dim(e, k, y->stride[axis])));
    em_type t = sn_dtype_is_float(y->dtype) ? e->ft : em_mem_type(e, y->dtype);
    em_val none = combines(k) == 0   ? em_zero(t)
                  : combines(k) == 1 ? em_neutral(e, EM_MAX, t)
                                     : sn_emit_const(e, y->dtype, 1);
    em_store(e, y->dtype, em_gep(e, em_buf(e, buf), y->dtype, at), none);
    em_end(e, &step);
    em_end(e, &row);
}

/* Adds rows of x to rows of y, or takes the largest, or multiplies. Each thread handles some elements of all rows, row by row. */
static void emit_scatter_rows(em *e, const sn_kernel *k) {
    const sn_view *x = &k->step->in[0], *index = &k->step->in[1], *y = &k->step->out[0];
    int axis = (int)sn_attr_int(k->step->node, SN_A_axis, 0);
    em_val lo, hi;
    em_share(e, sn_line_count(e, k, y, axis), &lo, &hi);
    clear(e, k, y, 2, axis, lo, hi);
    em_loop row = em_for(e, 0, sn_line_count(e, k, index, -1), 1);
    em_val iat = sn_line_offset(e, k, index, -1, row.i);
    em_val i = clamp(e, em_load(e, index->dtype, em_gep(e, em_buf(e, 1), index->dtype, iat), 1),
                     sn_line_extent(e, k, y, axis));
    /* x's axes: y's before `axis`, the index's, y's after it */
    em_val from = em_i64(e, 0), rest = row.i;
    for (int a = axis + index->rank - 1; a >= axis; a--) {
        em_val n = sn_line_extent(e, k, x, a);
        from = em_add(e, from, em_mul(e, em_rem(e, rest, n), sn_kernel_dim(e, k, x->stride[a])));
        rest = em_div(e, rest, n);
    }
    em_val to = em_mul(e, i, sn_kernel_dim(e, k, y->stride[axis]));
    em_loop col = em_for(e, lo, hi, 1);
    em_val xo = from, yo = to, flat = col.i;
    for (int a = y->rank - 1; a >= 0; a--) {
        if (a == axis) continue;
        em_val n = sn_line_extent(e, k, y, a), part = em_rem(e, flat, n);
        int xa = a < axis ? a : a + index->rank - 1;
        xo = em_add(e, xo, em_mul(e, part, sn_kernel_dim(e, k, x->stride[xa])));
        yo = em_add(e, yo, em_mul(e, part, sn_kernel_dim(e, k, y->stride[a])));
        flat = em_div(e, flat, n);
    }
    em_val v = em_load(e, x->dtype, em_gep(e, em_buf(e, 0), x->dtype, xo), 1);
    combine_at(e, k, em_gep(e, em_buf(e, 2), y->dtype, yo), v);
    em_end(e, &col);
    em_end(e, &row);
}

/* Adds elements of x at their indices: one thread, in order. */
static void emit_scatter_elements(em *e, const sn_kernel *k) {
    const sn_view *x = &k->step->in[0], *y = &k->step->out[0];
    int n_index = k->step->n_in - 1;
    em_val zero = em_i64(e, 0), mine = em_cmp(e, EM_EQ, e->tid, zero);
    em_val rows = em_select(e, mine, sn_line_count(e, k, y, 0), zero);
    clear(e, k, y, k->step->n_in, 0, zero, rows);
    em_val n = em_select(e, mine, sn_line_count(e, k, x, -1), zero);
    em_loop step = em_for(e, 0, n, 1);
    em_val to = zero;
    for (int a = 0; a < n_index; a++) {
        const sn_view *index = &k->step->in[a + 1];
        em_val at = sn_line_offset(e, k, index, -1, step.i);
        em_val i = em_load(e, index->dtype, em_gep(e, em_buf(e, a + 1), index->dtype, at), 1);
        to = em_add(
            e, to,
            em_mul(e, clamp(e, i, sn_line_extent(e, k, y, a)), sn_kernel_dim(e, k, y->stride[a])));
    }
    em_val at = sn_line_offset(e, k, x, -1, step.i);
    em_val v = em_load(e, x->dtype, em_gep(e, em_buf(e, 0), x->dtype, at), 1);
    combine_at(e, k, em_gep(e, em_buf(e, k->step->n_in), y->dtype, to), v);
    em_end(e, &step);
}

/* Whether the axes from `first` on are contiguous. */
static bool is_row(sn_module *m, const sn_view *v, int first) {
    sn_dim step = 1;
    for (int a = v->rank - 1; a >= first; a--) {
        if (v->shape[a] != 1 && v->stride[a] != step) return false;
        step = sn_dim_mul(m, step, v->shape[a]);
    }
    return true;
}

/* Whether whole rows are added to whole rows, as in the gradient of an embedding table. */
static bool adds_rows(const sn_kernel *k) {
    const sn_view *x = &k->step->in[0], *index = &k->step->in[1], *y = &k->step->out[0];
    return sn_attr_int(k->step->node, SN_A_axis, 0) == 0 && !combines(k) && y->rank > 1 &&
           x->dtype == y->dtype && x->dtype == k->compute && is_row(k->m, y, 1) &&
           is_row(k->m, x, index->rank);
}

/* A vector at position j of a row with `left` elements left. */
static void update_vector(em *e, sn_dtype t, em_val to, em_val from, em_val j, em_val left,
                          bool whole) {
    em_val mask = whole ? NULL : em_tail_mask(e, left, e->lanes);
    em_val p = em_gep(e, to, t, j), v = em_vf(e, 0);
    if (from) {
        v = em_load_mask(e, t, em_gep(e, from, t, j), e->lanes, mask, NULL);
        v = em_add(e, em_load_mask(e, t, p, e->lanes, mask, NULL), v);
    }
    em_store_mask(e, t, p, v, mask);
}

/* to[j] = 0, or to[j] += from[j], for lo <= j < hi */
static void update_row(em *e, sn_dtype t, em_val to, em_val from, em_val lo, em_val hi) {
    em_val whole = em_add(e, lo, em_round_down(e, em_sub(e, hi, lo), e->lanes));
    em_loop main = em_for(e, lo, whole, e->lanes);
    update_vector(e, t, to, from, main.i, NULL, true);
    em_end(e, &main);
    em_loop tail = em_for(e, whole, hi, e->lanes);
    update_vector(e, t, to, from, tail.i, em_sub(e, hi, tail.i), false);
    em_end(e, &tail);
}

/* Each thread handles some columns, whole cache lines, of all rows. */
static void emit_scatter_vectors(em *e, const sn_kernel *k) {
    const sn_view *x = &k->step->in[0], *index = &k->step->in[1], *y = &k->step->out[0];
    sn_dtype t = y->dtype;
    int64_t line = 128 / (int64_t)sn_dtype_size(t);
    em_val cols = sn_line_count(e, k, y, 0), rows = sn_line_extent(e, k, y, 0), lo, hi;
    em_val zero = em_i64(e, 0);
    em_share(e, em_ceil_div(e, cols, line), &lo, &hi);
    lo = em_mul(e, lo, line);
    hi = em_imin(e, em_mul(e, hi, line), cols);
    em_val step = sn_kernel_dim(e, k, y->stride[0]);
    em_loop clear = em_for(e, zero, rows, 1);
    update_row(e, t, em_gep(e, em_buf(e, 2), t, em_mul(e, clear.i, step)), NULL, lo, hi);
    em_end(e, &clear);
    em_loop row = em_for(e, zero, sn_line_count(e, k, index, -1), 1);
    em_val iat = sn_line_offset(e, k, index, -1, row.i), from = zero, rest = row.i;
    em_val i =
        clamp(e, em_load(e, index->dtype, em_gep(e, em_buf(e, 1), index->dtype, iat), 1), rows);
    for (int a = index->rank - 1; a >= 0; a--) {
        em_val n = sn_line_extent(e, k, x, a);
        from = em_add(e, from, em_mul(e, em_rem(e, rest, n), sn_kernel_dim(e, k, x->stride[a])));
        rest = em_div(e, rest, n);
    }
    update_row(e, t, em_gep(e, em_buf(e, 2), t, em_mul(e, i, step)),
               em_gep(e, em_buf(e, 0), t, from), lo, hi);
    em_end(e, &row);
}

/* Copies n elements from `from` to `to`, which are contiguous if `whole`. */
static void copy_row(em *e, const sn_kernel *k, em_val from, em_val to, bool whole) {
    const sn_view *y = &k->step->in[0], *x = &k->step->out[0];
    int last = y->rank - 1;
    em_val n = sn_line_extent(e, k, y, last);
    em_val vectors = whole ? em_round_down(e, n, e->lanes) : em_i64(e, 0);
    em_loop main = em_for(e, 0, vectors, e->lanes);
    em_val v = em_load(e, y->dtype, em_gep(e, from, y->dtype, main.i), e->lanes);
    em_store(e, x->dtype, em_gep(e, to, x->dtype, main.i), v);
    em_end(e, &main);
    em_loop rest = em_for(e, vectors, n, 1);
    em_val i = em_mul(e, rest.i, sn_kernel_dim(e, k, y->stride[last]));
    em_val j = em_mul(e, rest.i, sn_kernel_dim(e, k, x->stride[last]));
    v = em_load(e, y->dtype, em_gep(e, from, y->dtype, i), 1);
    em_store(e, x->dtype, em_gep(e, to, x->dtype, j), v);
    em_end(e, &rest);
}

/* Writes row b of y into row b of x, from a position of its own on. Threads share the innermost
 * rows. */
static void emit_update_rows(em *e, const sn_kernel *k) {
    const sn_view *y = &k->step->in[0], *ids = &k->step->in[1], *x = &k->step->out[0];
    int axis = (int)sn_attr_int(k->step->node, SN_A_axis, 0), last = y->rank - 1;
    bool whole = y->stride[last] == 1 && x->stride[last] == 1 && axis != last;
    em_val lo, hi, zero = em_i64(e, 0);
    em_share(e, sn_line_count(e, k, y, last), &lo, &hi);
    em_loop row = em_for(e, lo, hi, 1);
    em_val from = zero, to = zero, flat = row.i, at = zero;
    for (int a = last - 1; a >= 0; a--) {
        em_val n = sn_line_extent(e, k, y, a), i = a ? em_rem(e, flat, n) : flat;
        from = em_add(e, from, em_mul(e, i, sn_kernel_dim(e, k, y->stride[a])));
        to = em_add(e, to, em_mul(e, i, sn_kernel_dim(e, k, x->stride[a])));
        flat = a ? em_div(e, flat, n) : flat;
        if (!a) at = em_mul(e, i, sn_kernel_dim(e, k, ids->stride[0]));
    }
    em_val room = em_sub(e, sn_line_extent(e, k, x, axis), sn_line_extent(e, k, y, axis));
    em_val start = clamp(e, em_load(e, ids->dtype, em_gep(e, em_buf(e, 1), ids->dtype, at), 1),
                         em_add(e, room, 1));
    to = em_add(e, to, em_mul(e, start, sn_kernel_dim(e, k, x->stride[axis])));
    copy_row(e, k, em_gep(e, em_buf(e, 0), y->dtype, from), em_gep(e, em_buf(e, 2), x->dtype, to),
             whole);
    em_end(e, &row);
}

static void emit_scatter(em *e, const sn_kernel *k) {
    const bool rows = k->step->node->op == SN_OP_scatter_add;
    em_kernel(e, k->name);
    (k->step->node->op == SN_OP_update_rows ? emit_update_rows
     : rows && adds_rows(k)                 ? emit_scatter_vectors
     : rows                                 ? emit_scatter_rows
                                            : emit_scatter_elements)(e, k);
    em_end_kernel(e);
}

const sn_family sn_family_scatter = {.emit = emit_scatter};
