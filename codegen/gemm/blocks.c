/* blocks.c: products of which each row of C needs one block of columns: the maps of experts.
 *
 * Every thread sorts the rows of C by their blocks, stably, by counting: a pass over the indices
 * that takes nothing compared with the products, needs no barrier, and gives every thread the same
 * order. Then the blocks one after the other: their rows are an MC block like any other, gathered
 * when A is packed; the threads share the panels. A block without rows is not read. */
#include "codegen/gemm/impl.h"

static em_val starts(em *e, const gemm_plan *p) {
    return em_gep_bytes(e, e->scratch, em_i64(e, p->sort_offset));
}

static em_val sorted_rows(em *e, const gemm_plan *p) {
    return em_gep(e, starts(e, p), SN_I64, em_i64(e, p->g->n_blocks));
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
    em_val j = em_sub(e, row, em_muli(e, of_a, g->per_row));
    at = em_add(e, at, em_mul(e, j, em_size_value(e, g->index_col)));
    em_val i =
        em_load(e, g->index_dtype, em_gep(e, em_buf(e, g->index_buf), g->index_dtype, at), 1);
    i = em_convert(e, i, g->index_dtype, SN_I64);
    return em_imax(e, em_imin(e, i, em_i64(e, g->n_blocks - 1)), zero(e));
}

/* Counts rows, sums the counts, places the rows; afterwards start[i] is the end of block i. */
static void emit_sort(em *e, const gemm_plan *p, em_val m) {
    em_val start = starts(e, p), list = sorted_rows(e, p), n_blocks = em_i64(e, p->g->n_blocks);
    em_loop clear = em_for(e, zero(e), n_blocks, one(e));
    store_i64(e, zero(e), start, clear.i);
    em_end(e, &clear);
    em_loop count = em_for(e, zero(e), m, one(e));
    em_val b = block_of(e, p, count.i);
    store_i64(e, em_add(e, load_i64(e, start, b), one(e)), start, b);
    em_end(e, &count);
    em_loop sum = em_for(e, zero(e), n_blocks, one(e));
    em_val before = em_carry(e, &sum, zero(e));
    em_val after = em_add(e, before, load_i64(e, start, sum.i));
    store_i64(e, before, start, sum.i);
    em_next(e, &sum, before, after);
    em_end(e, &sum);
    em_loop place = em_for(e, zero(e), m, one(e));
    b = block_of(e, p, place.i);
    em_val at = load_i64(e, start, b);
    store_i64(e, place.i, list, at);
    store_i64(e, em_add(e, at, one(e)), start, b);
    em_end(e, &place);
}

void gemm_emit_blocks(em *e, const gemm_plan *p, gemm_state *s) {
    int64_t panels = p->g->n.value / p->panel / p->g->n_blocks;
    em_val start = starts(e, p), lo, hi;
    emit_sort(e, p, s->m);
    em_share(e, em_i64(e, panels), &lo, &hi);
    s->batch[0] = LLVMBuildPtrToInt(e->b, sorted_rows(e, p), e->i64, "");
    em_loop block = em_for(e, zero(e), em_i64(e, p->g->n_blocks), one(e));
    em_val row0 = em_carry(e, &block, zero(e)), row1 = load_i64(e, start, block.i);
    em_val first = em_muli(e, block.i, panels);
    s->m = em_sub(e, row1, row0);
    s->batch[1] = gemm_first_column(e, p, p->g->pair_distance, first);
    em_branch any = em_if(e, em_cmp(e, EM_GT, s->m, zero(e)));
    gemm_emit_loops(e, p, s, row0, row1, em_add(e, first, lo), em_add(e, first, hi));
    em_endif(e, &any);
    em_next(e, &block, row0, row1);
    em_end(e, &block);
}
