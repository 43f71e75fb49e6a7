/* int8.c: products of 8-bit integers with i32 sums: words of 4, an i32.
 *
 *   vnni     vpdpbusd: A without sign (integers + 128) times B with sign. The panel's first row
 *            holds the sums of its columns times -128, with which the accumulators start.
 *   sdot     AArch64: both with sign
 *   pairs    x86 without VNNI, WebAssembly: vpmaddwd on 16-bit integers. A is packed as these, the
 *            even k of a word before the odd ones; B is widened in registers. (vpmaddubsw would
 *            saturate.)
 *   plain    elsewhere: a multiplication for each k of a word
 *
 * All of them are exact as long as sums fit i32, so targets agree bit for bit. */
#include "codegen/gemm/impl.h"

enum { QUAD = 4 }; /* integers of a word */

/* ---- the microkernel ---- */

static em_val add_vnni(em *e, const gemm_plan *p, const em_val *a, const em_val *b, em_val acc) {
    static const char *const names[] = {"llvm.x86.avx512.vpdpbusd.128",
                                        "llvm.x86.avx512.vpdpbusd.256",
                                        "llvm.x86.avx512.vpdpbusd.512"};
    return em_intrinsic(e, names[p->lanes / 8], NULL, 0, (em_val[]){acc, a[0], b[0]}, 3);
}

static em_val add_sdot(em *e, const gemm_plan *p, const em_val *a, const em_val *b, em_val acc) {
    em_type bytes = em_vec(e->i8, QUAD * p->lanes), over[] = {LLVMTypeOf(acc), bytes};
    em_val args[] = {acc, em_bitcast(e, b[0], bytes), em_bitcast(e, a[0], bytes)}; /* a: by lane */
    if (e->target->sve_bytes) return em_sve(e, "llvm.aarch64.sve.sdot", true, args, 3);
    return em_intrinsic(e, "llvm.aarch64.neon.sdot", over, 2, args, 3);
}

static em_val add_pairs(em *e, const gemm_plan *p, const em_val *a, const em_val *b, em_val acc) {
    static const char *const names[] = {"llvm.x86.sse2.pmadd.wd", "llvm.x86.avx2.pmadd.wd",
                                        "llvm.x86.avx512.pmaddw.d.512"};
    em_val sum[2];
    for (int i = 0; i < 2; i++) {
        em_val args[] = {em_bitcast(e, a[i], em_vec(e->i16, 2 * p->lanes)), b[i]};
        bool wasm = e->target->arch == SN_ARCH_WASM32;
        sum[i] = em_intrinsic(e, wasm ? "llvm.wasm.dot" : names[p->lanes / 8], NULL, 0, args, 2);
    }
    return em_add(e, acc, em_add(e, sum[0], sum[1]));
}

static em_val add_plain(em *e, const gemm_plan *p, const em_val *a, const em_val *b, em_val acc) {
    (void)p;
    em_val sum = em_mul(e, a[0], b[0]);
    for (int i = 1; i < QUAD; i++) sum = em_add(e, sum, em_mul(e, a[i], b[i]));
    return em_add(e, acc, sum);
}

/* Integer t of each word, with its sign. */
static em_val take_byte(em *e, em_val words, int t) {
    em_val x = t < QUAD - 1 ? em_shl(e, words, em_like(e, words, 24 - 8 * t)) : words;
    return em_ashr(e, x, em_like(e, words, 24));
}

static void take_b_pairs(em *e, const gemm_plan *p, em_val words, em_val *b) {
    em_val x = em_bitcast(e, words, em_vec(e->i16, 2 * p->lanes)), eight = em_like(e, x, 8);
    b[0] = em_ashr(e, em_shl(e, x, eight), eight);
    b[1] = em_ashr(e, x, eight);
}

static void take_b_plain(em *e, const gemm_plan *p, em_val words, em_val *b) {
    (void)p;
    for (int t = 0; t < QUAD; t++) b[t] = take_byte(e, words, t);
}

static void take_a_plain(em *e, const gemm_plan *p, em_val from, em_val *a) {
    for (int t = 0; t < QUAD; t++) {
        em_val x = em_load(e, SN_I8, em_gep_bytes(e, from, t), 1);
        a[t] = em_splat(e, em_int_cast(e, x, e->i32), p->lanes);
    }
}

/* ---- A ---- */

static void store_bytes(em *e, const gemm_plan *p, em_val v, em_val row, em_val k) {
    if (p->dot->unsigns_a) v = em_xor(e, v, em_like(e, v, -128));
    em_store_raw(e, v, em_gep_bytes(e, row, k), 1);
}

static void store_shorts(em *e, const gemm_plan *p, em_val v, em_val row, em_val k) {
    (void)p;
    int lane[64], n = em_lanes_of(v);
    for (int i = 0; i < n; i++) lane[i] = i / 4 * 4 + i % 2 * 2 + i / 2 % 2;
    v = em_int_cast(e, em_shuffle(e, v, v, lane, n), e->i16);
    em_store_raw(e, v, em_gep_bytes(e, row, em_mul(e, k, 2)), 1);
}

static const gemm_dot vnni = {"vnni",      QUAD,        1,        1,          true,
                              gemm_take_a, gemm_take_b, add_vnni, store_bytes},
                      sdot = {"sdot",      QUAD,        1,        1,          false,
                              gemm_take_a, gemm_take_b, add_sdot, store_bytes},
                      pairs = {"pairs",     QUAD,         2,         2,           false,
                               gemm_take_a, take_b_pairs, add_pairs, store_shorts},
                      plain = {"plain",      QUAD,         QUAD,      1,          false,
                               take_a_plain, take_b_plain, add_plain, store_bytes};

const gemm_dot *gemm_int8_dot(const sn_target *t) {
    if (t->arch == SN_ARCH_X86_64) return t->has_vnni ? &vnni : &pairs;
    if (t->arch == SN_ARCH_WASM32) return &pairs;
    return sn_target_has(t, "dotprod") ? &sdot : &plain;
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
    em_val lane = em_mul(e, em_iota(e, e->i64, p->lanes), em_splat(e, p->lanes / QUAD, p->lanes));
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
