/* common.c: what the files of the GEMM generator share: offsets, names, shares of threads. */
#include "codegen/gemm/impl.h"

#include <stdio.h>

bool gemm_is(em_size s, int64_t v) {
    return s.slot < 0 && s.value == v;
}

bool gemm_has_one_panel(const gemm_plan *p) {
    return p->g->n.slot < 0 && p->g->n.value <= p->panel && !p->g->half_width;
}

em_val gemm_first_column(em *e, const gemm_plan *p, int64_t half_width, em_val panel) {
    em_val first = em_mul(e, panel, p->epi_cols);
    if (!half_width) return first;
    em_val h = em_i64(e, half_width); /* skips the second halves of the blocks before */
    return em_add(e, first, em_mul(e, em_div(e, first, h), h));
}

em_val gemm_elements(em *e, em_val words, int of_word) {
    return of_word > 1 ? em_mul(e, words, of_word) : words;
}

em_val gemm_block_elements(em *e, em_val k, em_val pc, em_val kb, int of_word) {
    if (of_word == 1) return kb;
    em_val left = em_sub(e, k, gemm_elements(e, pc, of_word));
    return em_imin(e, gemm_elements(e, kb, of_word), left);
}

em_val gemm_offset(em *e, const sn_gemm *g, const sn_gemm_operand *o, const em_val *batch) {
    em_val at = em_size_value(e, o->offset);
    for (int i = 0; i < g->n_batch; i++)
        at = em_add(e, at, em_mul(e, batch[i], em_size_value(e, o->batch[i])));
    return at;
}

gemm_name gemm_name_of(const gemm_plan *p, const char *suffix) {
    gemm_name name;
    snprintf(name.text, sizeof name.text, "%s.%s", p->name, suffix);
    return name;
}

/* The start of part i when n things are shared evenly by c parts. */
static em_val cut(em *e, em_val n, em_val i, em_val c) {
    return em_div(e, em_mul(e, n, i), c);
}

void gemm_share(em *e, em_val n, em_val part, em_val parts, em_val *lo, em_val *hi) {
    *lo = cut(e, n, part, parts);
    *hi = cut(e, n, em_add(e, part, 1), parts);
}

em_branch gemm_if_packs(em *e, const gemm_state *s) {
    return s->keeps_a ? em_if(e, em_not(e, s->keeps_a)) : (em_branch){0};
}

void gemm_end_packs(em *e, const gemm_state *s, em_branch *br) {
    if (s->keeps_a) em_endif(e, br);
}

em_val gemm_row_scale(em *e, const gemm_plan *p, em_val a, em_val i) {
    em_val end = em_add(e, em_mul(e, i, p->a_row_stride), p->a_row_stride - 1);
    return em_gep(e, a, p->t, end);
}

em_val gemm_row_of_words(em *e, const gemm_plan *p, em_val a) {
    if (!p->ints.on) return a;
    return em_gep_bytes(e, gemm_row_scale(e, p, a, zero(e)), -p->ints.row_scale_offset);
}

int64_t gemm_count_blocks(const sn_gemm *g) {
    return g->ragged_k ? g->batch[0].value : g->n_blocks;
}

em_val gemm_sorted_row(em *e, em_val list, em_val position) {
    em_val at = em_add(e, list, em_mul(e, position, 8));
    return em_load_raw(e, e->i64, LLVMBuildIntToPtr(e->b, at, e->ptr, ""), 8);
}

em_val gemm_row_of_a(em *e, const gemm_plan *p, em_val row_of_c) {
    return p->g->per_row == 1 ? row_of_c : em_div(e, row_of_c, p->g->per_row);
}

/* Loaded elements of type t in the compute type. */
static em_val widened(em *e, sn_dtype t, em_val v) {
    return sn_dtype_is_float(t) ? v : em_convert(e, v, t, e->compute);
}

em_val gemm_load_row(em *e, sn_dtype t, em_val p, int n, em_val mask) {
    return widened(e, t, em_load_mask(e, t, p, n, mask, NULL));
}

/* n elements from p on, `stride` apart. */
em_val gemm_load_strided(em *e, sn_dtype t, em_val p, em_size stride, int n, em_val mask) {
    return widened(e, t, tile_load(e, t, p, em_size_value(e, stride), n, mask));
}
