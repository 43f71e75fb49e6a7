/* lower_grouped.c: lowers grouped products: of the rows of x, where each names its matrix
 * (grouped_dot), and of the rows that name the same (ragged_dot). blocks.c sorts the rows. */
#include "codegen/emit/family.h"
#include "codegen/gemm/gemm.h"

enum { X, Y, INDEX }; /* operands */

static sn_gemm_operand matrix(const sn_kernel *k, const sn_view *v, int buf, int row, int col) {
    sn_gemm_operand o = {.buf = buf, .dtype = v->dtype, .offset = EM_SIZE_CONST(0)};
    for (int i = 0; i < SN_GEMM_BATCH; i++) o.batch[i] = EM_SIZE_CONST(0);
    o.row = sn_kernel_size(k, v->stride[row]);
    o.col = sn_kernel_size(k, v->stride[col]);
    return o;
}

static void read_index(const sn_kernel *k, sn_gemm *g) {
    const sn_view *index = &k->step->in[INDEX];
    int64_t per_row = 0;
    sn_dim_is_const(k->m, index->shape[1], &per_row);
    g->per_row = (int)per_row;
    g->index_buf = INDEX;
    g->index_dtype = index->dtype;
    g->index_row = sn_kernel_size(k, index->stride[0]);
    g->index_col = sn_kernel_size(k, index->stride[1]);
}

/* x [M, k], w [E, n, k], index [M, J]: [M J, n] */
static sn_gemm grouped(const sn_kernel *k) {
    const sn_view *w = &k->step->in[Y], *out = &k->step->out[0];
    int64_t blocks = 0;
    sn_dim_is_const(k->m, w->shape[0], &blocks);
    sn_gemm g = {.m = sn_kernel_size(k, out->shape[0]),
                 .n = sn_kernel_size(k, w->shape[1]),
                 .k = sn_kernel_size(k, w->shape[2]),
                 .a = matrix(k, &k->step->in[X], X, 0, 1),
                 .b = matrix(k, w, Y, 2, 1),
                 .c = matrix(k, out, 3, 0, 1),
                 .n_blocks = blocks,
                 .b_block = sn_kernel_size(k, w->stride[0])};
    read_index(k, &g);
    return g;
}

/* x [M J, n], y [M, k], index [M, J]: [E, n, k] */
static sn_gemm ragged(const sn_kernel *k) {
    const sn_view *x = &k->step->in[X], *y = &k->step->in[Y], *out = &k->step->out[0];
    sn_gemm g = {.n_batch = 1,
                 .batch = {sn_kernel_size(k, out->shape[0])},
                 .m = sn_kernel_size(k, x->shape[1]),
                 .n = sn_kernel_size(k, y->shape[1]),
                 .k = sn_kernel_size(k, x->shape[0]),
                 .a = matrix(k, x, X, 1, 0),
                 .b = matrix(k, y, Y, 0, 1),
                 .c = matrix(k, out, 3, 1, 2),
                 .ragged_k = true};
    g.a.row = EM_SIZE_CONST(1); /* unit_rows; an axis of size 1 may have another stride */
    g.c.batch[0] = sn_kernel_size(k, out->stride[0]);
    read_index(k, &g);
    return g;
}

static sn_gemm spec_of(const sn_kernel *k) {
    sn_gemm g = k->step->node->op == SN_OP_ragged_dot ? ragged(k) : grouped(k);
    g.bf16 = sn_attr_get(k->step->node, SN_A_compute);
    return g;
}

static void emit_grouped(em *e, const sn_kernel *k) {
    sn_gemm g = spec_of(k);
    sn_gemm_emit(e, k->name, &g);
}

static sn_dim grouped_scratch(const sn_kernel *k, const sn_target *t) {
    sn_gemm g = spec_of(k);
    const sn_view *index = &k->step->in[INDEX];
    sn_dim rows = sn_dim_mul(k->m, index->shape[0], index->shape[1]);
    sn_dim sorted = sn_dim_mul(k->m, rows, sn_dim_const(k->m, sn_gemm_scratch_per_row(&g)));
    return sn_dim_add(k->m, sn_dim_const(k->m, sn_gemm_scratch(&g, t, k->compute)), sorted);
}

const sn_family sn_family_grouped = {.emit = emit_grouped, .scratch = grouped_scratch};
const sn_family sn_family_ragged = {.emit = emit_grouped, .scratch = grouped_scratch};
