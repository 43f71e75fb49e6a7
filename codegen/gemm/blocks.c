/* blocks.c: expert products: each row of C uses the columns of one expert, a block.
 *
 * Every thread sorts the rows of C by their blocks, stably, by counting: a pass over the indices
 * that takes nothing compared with the products, needs no barrier, and gives every thread the same
 * order. Then the blocks one after another: their rows are an MC block like any other, gathered
 * when A is packed; the threads share the panels. A block without rows is not read.
 *
 * ragged_k: what is sorted are the k of a product; each block sums over its own, and is 0 without. */
#include "codegen/gemm/impl.h"

enum { ROW_UNIT = 8 }; /* threads share rows by multiples of this */

static em_val starts(em *e, const gemm_plan *p) {
    return em_gep_bytes(e, e->scratch, p->sort_offset);
}

static em_val sorted_rows(em *e, const gemm_plan *p) {
    return em_gep(e, starts(e, p), SN_I64, gemm_count_blocks(p->g));
}

static em_val load_i64(em *e, em_val list, em_val i) {
    return em_load_raw(e, e->i64, em_gep(e, list, SN_I64, i), 8);
}

static void store_i64(em *e, em_val v, em_val list, em_val i) {
    em_store_raw(e, v, em_gep(e, list, SN_I64, i), 8);
}

/* The block of a row of C, clamped. */
static em_val block_of(em *e, const gemm_plan *p, em_val row) {
    const sn_gemm *g = p->g;
    em_val of_a = gemm_row_of_a(e, p, row);
    em_val at = em_mul(e, of_a, em_size_value(e, g->index_row));
    em_val j = em_sub(e, row, em_mul(e, of_a, g->per_row));
    at = em_add(e, at, em_mul(e, j, em_size_value(e, g->index_col)));
    em_val i =
        em_load(e, g->index_dtype, em_gep(e, em_buf(e, g->index_buf), g->index_dtype, at), 1);
    i = em_convert(e, i, g->index_dtype, SN_I64);
    return em_imax(e, em_imin(e, i, gemm_count_blocks(g) - 1), 0);
}

/* Counts rows, sums the counts, places the rows; afterwards start[i] is the end of block i. */
static void emit_sort(em *e, const gemm_plan *p, em_val m) {
    em_val start = starts(e, p), list = sorted_rows(e, p),
           n_blocks = em_i64(e, gemm_count_blocks(p->g));
    em_loop clear = em_for(e, 0, n_blocks, 1);
    store_i64(e, zero(e), start, clear.i);
    em_end(e, &clear);
    em_loop count = em_for(e, 0, m, 1);
    em_val b = block_of(e, p, count.i);
    store_i64(e, em_add(e, load_i64(e, start, b), 1), start, b);
    em_end(e, &count);
    em_loop sum = em_for(e, 0, n_blocks, 1);
    em_val before = zero(e);
    em_carries(e, &sum, &before, 1);
    em_val n = load_i64(e, start, sum.i), after = em_add(e, before, n);
    store_i64(e, before, start, sum.i);
    before = after;
    em_end(e, &sum);
    em_loop row = em_for(e, 0, m, 1);
    b = block_of(e, p, row.i);
    em_val at = load_i64(e, start, b);
    store_i64(e, row.i, list, at);
    store_i64(e, em_add(e, at, 1), start, b);
    em_end(e, &row);
}

/* A list in memory as a number, which batch indices can hold. */
static em_val address(em *e, em_val list) {
    return LLVMBuildPtrToInt(e->b, list, e->i64, "");
}

/* The panels of a block, packed: the threads share them. */
static void emit_packed(em *e, const gemm_plan *p, gemm_state *s, em_val block, em_val row0,
                        em_val row1) {
    int64_t panels = p->g->n.value / p->panel / p->g->n_blocks;
    em_val first = em_mul(e, block, panels), lo, hi;
    em_share(e, em_i64(e, panels), &lo, &hi);
    s->batch[1] = gemm_first_column(e, p, p->g->half_width, first);
    gemm_emit_loops(e, p, s, row0, row1, em_add(e, first, lo), em_add(e, first, hi));
}

/* A block in memory: the threads share its columns or, if these are few, its rows. */
static void emit_unpacked(em *e, const gemm_plan *p, gemm_state *s, em_val b, em_val block,
                          em_val row0, em_val row1) {
    em_val lo, hi, first, last, n = em_sub(e, row1, row0);
    em_val many = em_cmp(e, EM_GE, s->n_panels, em_mul(e, e->nthreads, 2));
    em_share(e, s->n_panels, &lo, &hi);
    em_share(e, em_ceil_div(e, n, ROW_UNIT), &first, &last);
    first = em_select(e, many, 0, em_mul(e, first, ROW_UNIT));
    last = em_select(e, many, n, em_imin(e, em_mul(e, last, ROW_UNIT), n));
    lo = em_select(e, many, lo, 0);
    hi = em_select(e, many, hi, s->n_panels);
    s->b = em_gep(e, b, p->g->b.dtype, em_mul(e, block, em_size_value(e, p->g->b_block)));
    s->batch[1] = zero(e);
    gemm_emit_loops(e, p, s, em_add(e, row0, first), em_add(e, row0, last), lo, hi);
}

void gemm_emit_blocks(em *e, const gemm_plan *p, gemm_state *s) {
    em_val start = starts(e, p), b = s->b;
    emit_sort(e, p, s->m);
    s->batch[0] = address(e, sorted_rows(e, p));
    em_loop block = em_for(e, 0, p->g->n_blocks, 1);
    em_val row0 = zero(e), row1;
    em_carries(e, &block, &row0, 1);
    row1 = load_i64(e, start, block.i);
    s->m = em_sub(e, row1, row0);
    em_branch any = em_if(e, em_cmp(e, EM_GT, s->m, 0));
    if (p->g->b_packed)
        emit_packed(e, p, s, block.i, row0, row1);
    else
        emit_unpacked(e, p, s, b, block.i, row0, row1);
    em_endif(e, &any);
    row0 = row1;
    em_end(e, &block);
}

void gemm_sort_ragged(em *e, const gemm_plan *p) {
    emit_sort(e, p, em_size_value(e, p->k));
}

void gemm_begin_ragged(em *e, const gemm_plan *p, gemm_state *s, em_val item) {
    em_val before = em_imax(e, em_sub(e, item, 1), 0);
    em_val from = em_select(e, em_cmp(e, EM_GT, item, 0), load_i64(e, starts(e, p), before), 0);
    s->batch[1] = em_sub(e, load_i64(e, starts(e, p), item), from);
    s->k = s->batch[1];
    if (p->dot->k_of_word > 1) s->k = em_ceil_div(e, s->k, p->dot->k_of_word);
    s->batch[2] = address(e, em_gep(e, sorted_rows(e, p), SN_I64, from));
}
