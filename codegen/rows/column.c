/* column.c: reductions over axes other than the last. Vectors run along the columns, which remain.
 * Each thread takes blocks of columns and visits the reduced axes in order, so the sums do not
 * depend on the number of threads. */
#include "codegen/rows/body.h"

enum { COLUMN_VECTORS = 4 }; /* vectors of a block of columns */

static int root_reduce(const sn_body *b) {
    for (int i = 0; i < b->n_item; i++)
        if (sn_attr_get(b->item[i].n, SN_A_axes)) return i;
    return -1;
}

static em_val size_of(sn_body *b, uint32_t axes) {
    em_val n = em_i64(b->e, 1);
    for (int a = 0; a < b->rank; a++)
        if (axes >> a & 1) n = em_mul(b->e, n, sn_body_extent(b, a));
    return n;
}

static void emit_column(em *e, const sn_kernel *k) {
    sn_body body, *b = &body;
    if (!sn_body_init(b, e, k, false)) {
        sn_fail(&e->err, SN_ERR_INTERNAL, "%s", sn_module_error(k->m)->message);
        return;
    }
    int root = root_reduce(b);
    const sn_item *red = &b->item[root];
    uint32_t reduced = b->item[red->op[0]].vary & ~red->vary, all = (1u << b->rank) - 1;
    for (int a = 0; a < b->rank; a++) /* also reduced axes along which nothing varies */
        if (b->out_stride[0][a] == 0 && b->domain[a] != 1) reduced |= 1u << a;
    uint32_t kept = all & ~reduced & ~(1u << b->row);
    if (reduced >> b->row & 1) {
        sn_fail(&e->err, SN_ERR_INTERNAL, "%s: a column kernel cannot reduce its rows", k->name);
        return;
    }
    em_kernel(e, k->name);
    int vectors = b->domain[b->row] == 1 ? 1 : COLUMN_VECTORS, block = vectors * b->lanes;
    em_val n_row = sn_body_extent(b, b->row), blocks = em_ceil_div(e, n_row, block), lo, hi;
    em_val depth = size_of(b, reduced), zero = em_i64(e, 0);
    em_share(e, em_mul(e, size_of(b, kept), blocks), &lo, &hi);
    em_loop item = em_for(e, lo, hi, 1);
    em_val from = em_mul(e, em_rem(e, item.i, blocks), block);
    for (int a = 0; a < b->rank; a++) b->index[a] = zero;
    sn_body_split(b, kept, em_div(e, item.i, blocks));
    em_var acc[COLUMN_VECTORS];
    for (int v = 0; v < vectors; v++)
        acc[v] = em_let(e, em_splat(e, sn_reduce_neutral(e, red->n), b->lanes));
    em_loop depth_loop = em_for(e, zero, depth, 1);
    sn_body_split(b, reduced, depth_loop.i);
    sn_body_forget_row(b);
    sn_body_pointers(b);
    sn_body_uniforms(b, red->op[0]);
    for (int v = 0; v < vectors; v++) {
        b->j = em_add(e, from, (int64_t)v * b->lanes);
        b->mask = em_tail_mask(e, em_sub(e, n_row, b->j), b->lanes);
        sn_body_forget_vectors(b);
        em_val x = sn_body_vector(b, red->op[0]);
        if (em_lanes_of(x) == 1) x = em_splat(e, x, b->lanes);
        em_set(e, acc[v], sn_reduce(e, red->n, red->ignores_nan, em_get(e, acc[v]), x));
    }
    em_end(e, &depth_loop);
    for (int a = 0; a < b->rank; a++)
        if (reduced >> a & 1) b->index[a] = zero;
    sn_body_forget_row(b);
    sn_body_pointers(b);
    for (int v = 0; v < vectors; v++) {
        b->j = em_add(e, from, (int64_t)v * b->lanes);
        b->mask = em_tail_mask(e, em_sub(e, n_row, b->j), b->lanes);
        sn_body_store(b, 0, em_get(e, acc[v]));
    }
    em_end(e, &item);
    em_end_kernel(e);
}

const sn_family sn_family_column = {.emit = emit_column};
