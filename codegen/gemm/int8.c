/* int8.c: products of 8-bit integers with i32 sums, as one more compute type of the GEMM generator.
 *
 * The loops see words: 4 consecutive k are an i32, K is counted in words (the last is filled with
 * zeros), and accumulators are i32, so a panel has as many columns, and a block as many bytes, as
 * in f32. Only what touches the integers is different: packing, and a step of the microkernel,
 * which multiplies words:
 *
 *   vnni     vpdpbusd: A without sign (integers + 128) times B with sign. The panel's first row
 *            holds the sums of its columns times -128, with which the accumulators start.
 *   sdot     AArch64: both with sign
 *   pairs    x86 without VNNI: vpmaddwd on 16-bit integers. A is packed as these, the even k of
 *            a word before the odd ones; B is widened in registers. (vpmaddubsw would saturate.)
 *   plain    elsewhere: a multiplication for each k of a word
 *
 * All of them are exact as long as sums fit i32, so targets agree bit for bit. */
#include "codegen/gemm/impl.h"

enum { QUAD = 4 }; /* integers of a word */

void gemm_plan_int8(gemm_plan *p, const sn_target *t) {
    bool x86 = t->arch == SN_ARCH_X86_64;
    p->dot = x86 && t->has_vnni            ? GEMM_DOT_VNNI
             : x86                         ? GEMM_DOT_PAIRS
             : sn_target_has(t, "dotprod") ? GEMM_DOT_SDOT
                                           : GEMM_DOT_PLAIN;
    p->terms = p->dot == GEMM_DOT_PAIRS ? 2 : p->dot == GEMM_DOT_PLAIN ? QUAD : 1;
    p->sum_rows = 1;
}

bool gemm_starts_at_sums(const gemm_plan *p) {
    return p->dot == GEMM_DOT_VNNI;
}

/* ---- the microkernel ---- */

static em_val multiply_words(em *e, const gemm_plan *p, em_val acc, em_val a, em_val b) {
    static const char *const vnni[] = {"llvm.x86.avx512.vpdpbusd.128",
                                       "llvm.x86.avx512.vpdpbusd.256",
                                       "llvm.x86.avx512.vpdpbusd.512"};
    if (p->dot == GEMM_DOT_VNNI)
        return em_intrinsic(e, vnni[p->lanes / 8], NULL, 0, (em_val[]){acc, a, b}, 3);
    em_type bytes = em_vec(e->i8, QUAD * p->lanes), over[] = {LLVMTypeOf(acc), bytes};
    em_val args[] = {acc, em_bitcast(e, a, bytes), em_bitcast(e, b, bytes)};
    return em_intrinsic(e, "llvm.aarch64.neon.sdot", over, 2, args, 3);
}

static em_val multiply_pairs(em *e, const gemm_plan *p, em_val a, em_val b) {
    static const char *const names[] = {"llvm.x86.sse2.pmadd.wd", "llvm.x86.avx2.pmadd.wd",
                                        "llvm.x86.avx512.pmaddw.d.512"};
    em_val args[] = {em_bitcast(e, a, em_vec(e->i16, 2 * p->lanes)), b};
    return em_intrinsic(e, names[p->lanes / 8], NULL, 0, args, 2);
}

em_val gemm_multiply_add(em *e, const gemm_plan *p, const em_val *a, const em_val *b, em_val acc) {
    if (p->dot == GEMM_DOT_FLOAT) {
        tile_add(e, &acc, 1, a[0], b);
        return acc;
    }
    if (p->terms == 1) return multiply_words(e, p, acc, a[0], b[0]);
    em_val sum = NULL;
    for (int i = 0; i < p->terms; i++) {
        em_val x =
            p->dot == GEMM_DOT_PAIRS ? multiply_pairs(e, p, a[i], b[i]) : em_mul(e, a[i], b[i]);
        sum = sum ? em_add(e, sum, x) : x;
    }
    return em_add(e, acc, sum);
}

/* Integer t of each word, with its sign. */
static em_val take_byte(em *e, em_val words, int t) {
    em_val x = t < QUAD - 1 ? em_shl(e, words, em_like(e, words, 24 - 8 * t)) : words;
    return em_ashr(e, x, em_like(e, words, 24));
}

void gemm_b_terms(em *e, const gemm_plan *p, em_val words, em_val *b) {
    b[0] = words;
    if (p->dot == GEMM_DOT_PAIRS) {
        em_val x = em_bitcast(e, words, em_vec(e->i16, 2 * p->lanes)), eight = em_like(e, x, 8);
        b[0] = em_ashr(e, em_shl(e, x, eight), eight);
        b[1] = em_ashr(e, x, eight);
    }
    for (int t = 0; t < QUAD && p->dot == GEMM_DOT_PLAIN; t++) b[t] = take_byte(e, words, t);
}

void gemm_a_terms(em *e, const gemm_plan *p, em_val from, em_val *a) {
    if (p->dot != GEMM_DOT_PLAIN) {
        for (int t = 0; t < p->terms; t++)
            a[t] = em_load_splat(e, p->t, em_gep(e, from, p->t, t), p->lanes);
        return;
    }
    for (int t = 0; t < QUAD; t++) {
        em_val x = em_load(e, SN_I8, em_gep_bytes(e, from, t), 1);
        a[t] = em_splat(e, em_int_cast(e, x, e->i32), p->lanes);
    }
}

/* ---- A ---- */

void gemm_store_int8(em *e, const gemm_plan *p, em_val v, em_val row, em_val k) {
    if (p->dot == GEMM_DOT_VNNI) v = em_xor(e, v, em_like(e, v, -128));
    if (p->dot == GEMM_DOT_PAIRS) {
        int lane[64], n = em_lanes_of(v);
        for (int i = 0; i < n; i++) lane[i] = i / 4 * 4 + i % 2 * 2 + i / 2 % 2;
        v = em_int_cast(e, em_shuffle(e, v, v, lane, n), e->i16);
        k = em_mul(e, k, 2);
    }
    em_store_raw(e, v, em_gep_bytes(e, row, k), 1);
}

/* ---- B ---- */

/* Columns [0, lanes) from `src` on, k from k0: their integers to block[column][lanes]. */
static void load_block(em *e, const gemm_plan *p, const gemm_pack_b_args *q, em_val block,
                       const gemm_quads *b, em_val src, em_val n_cols, em_val k0) {
    em_val mask = em_tail_mask(e, em_sub(e, q->kb, k0), p->lanes);
    em_loop l = em_for(e, 0, p->lanes, 1);
    em_val exists = em_splat(e, em_cmp(e, EM_LT, l.i, n_cols), p->lanes);
    em_val at = em_mul(e, k0, em_size_value(e, b->row));
    at = em_add(e, at, em_mul(e, l.i, em_size_value(e, b->col)));
    em_val from = em_gep(e, src, b->dtype, at), x;
    mask = em_and(e, mask, exists);
    if (gemm_is(b->row, 1)) {
        x = em_load_mask(e, b->dtype, from, p->lanes, mask, NULL);
    } else {
        em_val index = em_splat(e, em_size_value(e, b->row), p->lanes);
        index = em_mul(e, em_iota(e, e->i64, p->lanes), index);
        x = em_gather(e, b->dtype, from, index, mask);
    }
    if (sn_dtype_is_float(b->dtype)) x = em_convert(e, x, e->compute, SN_I8);
    em_store_raw(e, x, em_gep_bytes(e, block, em_mul(e, l.i, p->lanes)), 1);
    em_end(e, &l);
}

/* `lanes` columns of the panel, from column c of it on. */
static void pack_columns(em *e, const gemm_plan *p, const gemm_pack_b_args *q, const gemm_quads *b,
                         em_val block, int c) {
    int first = c % p->epi_cols; /* within a half of pairs */
    em_val col = em_i64(e, first + c / p->epi_cols * b->half_width);
    em_val src = em_gep(e, q->src, b->dtype, em_mul(e, col, em_size_value(e, b->col)));
    em_val lane =
        em_mul(e, em_iota(e, e->i64, p->lanes), em_splat(e, em_i64(e, p->lanes / QUAD), p->lanes));
    em_val words = em_ceil_div(e, q->kb, QUAD), to = em_gep(e, q->dst, SN_I32, c);
    em_loop l = em_for(e, 0, q->kb, p->lanes);
    em_val sum = em_splat(e, em_i32(e, 0), p->lanes);
    em_carries(e, &l, &sum, 1);
    load_block(e, p, q, block, b, src, em_sub(e, q->n_cols, first), l.i);
    for (int i = 0; i < p->lanes / QUAD; i++) {
        em_val row = em_add(e, em_div(e, l.i, QUAD), i);
        em_val from = em_gep(e, block, SN_I32, i);
        em_val x = em_gather(e, SN_I32, from, lane, NULL);
        for (int t = 0; t < QUAD; t++) sum = em_add(e, sum, take_byte(e, x, t));
        em_branch inside = em_if(e, em_cmp(e, EM_LT, row, words));
        row = em_add(e, row, p->sum_rows);
        em_store(e, SN_I32, em_gep(e, to, SN_I32, em_mul(e, row, p->panel)), x);
        em_endif(e, &inside);
    }
    em_end(e, &l);
    em_store(e, SN_I32, to, em_mul(e, sum, em_like(e, sum, -128)));
}

em_val gemm_emit_quads_pack(em *e, const gemm_plan *p, const gemm_quads *b) {
    em_val fn = gemm_pack_b_function(e, gemm_name_of(p, "pack_b").text);
    gemm_pack_b_args q = gemm_pack_b_params(e);
    e->buf = q.buf;
    e->dim = q.dim;
    em_val block = em_stack(e, SN_I8, (int64_t)p->lanes * p->lanes);
    for (int c = 0; c < p->panel; c += p->lanes) pack_columns(e, p, &q, b, block, c);
    em_ret(e, NULL);
    return fn;
}
