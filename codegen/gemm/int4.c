/* int4.c: right operands of 4-bit integers: packing them, one row by a panel with the integers
 * widened in registers, and dequantizing panels that several rows use.
 * An i32 word holds 8 consecutive k of a column, the first in the low bits. A panel row is P words;
 * the bf16 scales of a scale group are a row of P in panels of their own. */
#include "codegen/gemm/impl.h"

enum { PREFETCH_BYTES = 2048 }; /* distance within a panel */

/* Whether a permutation of a table in a register converts the integers. */
static bool has_lookup(em *e, const gemm_plan *p) {
    return e->target->has_avx512 && p->lanes == 16;
}

/* The table: int4 in two's complement to float. */
static em_val make_table(em *e, const gemm_plan *p) {
    em_val t = em_vf(e, 0);
    for (int i = 1; i < 16 && has_lookup(e, p); i++)
        t = em_insert(e, t, em_f(e, i < 8 ? i : i - 16), i);
    return t;
}

/* Integer j of each word in the compute type. The AVX-512 lookup uses only the low 4 bits. */
static em_val unpack(em *e, const gemm_plan *p, em_val words, em_val table, int j) {
    if (has_lookup(e, p)) {
        em_val args[] = {table, j ? em_lshr(e, words, em_like(e, words, 4 * j)) : words};
        return em_intrinsic(e, "llvm.x86.avx512.permvar.sf.512", NULL, 0, args, 2);
    }
    em_val high = em_shl(e, words, em_like(e, words, 28 - 4 * j));
    return em_convert(e, em_ashr(e, high, em_like(e, high, 28)), SN_I32, p->t);
}

/* Run-time state of the product of one row. */
typedef struct row_state {
    em_val a, words, scales, table;
    em_val acc[2];
    bool may_overread; /* up to 3 bytes behind the words */
} row_state;

/* Integer j of the words at `row`, vector v. Loading from byte j / 2 on saves every second shift:
 * shifts and lookups share two ports with the multiply-adds. */
static em_val load_integer(em *e, const gemm_plan *p, const row_state *s, em_val row, int v,
                           int j) {
    int skip = s->may_overread ? j / 2 : 0;
    em_val at = em_gep_bytes(e, row, em_i64(e, v * p->lanes * 4 + skip));
    em_val words = em_load_raw(e, em_vec(e->i32, p->lanes), at, skip ? 1 : 4);
    return unpack(e, p, words, s->table, j - 2 * skip);
}

/* acc += scale * (sum over a scale group of a q), for n_groups groups, whose sums are independent
 * chains. */
static void add_scale_groups(em *e, const gemm_plan *p, row_state *s, int n_groups) {
    em_val sum[2][2];
    for (int r = 0; r < p->g->scale_group / INT4_PER_WORD; r++)
        for (int g = 0; g < n_groups; g++) {
            int row = g * p->g->scale_group / INT4_PER_WORD + r;
            em_val at = em_gep(e, s->words, SN_I32, em_i64(e, row * p->panel));
            for (int line = 0; line < p->nr * 4; line += GEMM_LINE)
                em_prefetch(e, em_gep_bytes(e, at, em_i64(e, PREFETCH_BYTES + line)), false, 3);
            for (int j = 0; j < INT4_PER_WORD; j++) {
                em_val k = em_i64(e, row * INT4_PER_WORD + j);
                em_val a = em_load_splat(e, p->t, em_gep(e, s->a, p->t, k), p->lanes);
                for (int v = 0; v < p->nv; v++) {
                    em_val q = load_integer(e, p, s, at, v, j);
                    sum[g][v] = r + j ? em_fma(e, a, q, sum[g][v]) : em_mul(e, a, q);
                }
            }
        }
    for (int g = 0; g < n_groups; g++)
        for (int v = 0; v < p->nv; v++) {
            em_val at = em_i64(e, g * p->panel + v * p->lanes);
            em_val scale = em_load(e, SN_BF16, em_gep(e, s->scales, SN_BF16, at), p->lanes);
            s->acc[v] = em_fma(e, scale, sum[g][v], s->acc[v]);
        }
}

em_val gemm_emit_int4_row(em *e, const gemm_plan *p, bool last) {
    const char *suffix = last ? "int4_last_row" : "int4_row";
    em_val fn = gemm_int4_row_function(e, gemm_name_of(p, suffix).text);
    em_no_inline(e, fn);
    gemm_int4_row_args q = gemm_int4_row_params(e);
    int group = p->g->scale_group;
    int64_t pairs = p->g->k.value / group / 2, k = 2 * group;
    row_state s = {.table = make_table(e, p), .may_overread = !last && has_lookup(e, p)};
    em_loop l = em_for(e, zero(e), em_i64(e, pairs), one(e));
    em_val a = em_carry(e, &l, q.a), words = em_carry(e, &l, q.words);
    em_val scales = em_carry(e, &l, q.scales), acc[2];
    for (int v = 0; v < p->nv; v++) s.acc[v] = acc[v] = em_carry(e, &l, em_vf(e, 0));
    s.a = a, s.words = words, s.scales = scales;
    add_scale_groups(e, p, &s, 2);
    em_next(e, &l, a, em_gep(e, a, p->t, em_i64(e, k)));
    em_next(e, &l, words, em_gep(e, words, SN_I32, em_i64(e, k / INT4_PER_WORD * p->panel)));
    em_next(e, &l, scales, em_gep(e, scales, SN_BF16, em_i64(e, 2 * p->panel)));
    for (int v = 0; v < p->nv; v++) em_next(e, &l, acc[v], s.acc[v]);
    em_end(e, &l);
    s.a = em_final(e, &l, a), s.words = em_final(e, &l, words);
    s.scales = em_final(e, &l, scales);
    for (int v = 0; v < p->nv; v++) s.acc[v] = em_final(e, &l, acc[v]);
    if (p->g->k.value / group % 2) add_scale_groups(e, p, &s, 1);
    for (int v = 0; v < p->nv; v++)
        em_store(e, p->t, em_gep(e, q.c, p->t, em_i64(e, v * p->lanes)), s.acc[v]);
    em_ret(e, NULL);
    return fn;
}

em_val gemm_emit_int4_dequantize(em *e, const gemm_plan *p) {
    em_val fn = gemm_int4_dequantize_function(e, gemm_name_of(p, "int4_dequantize").text);
    gemm_int4_dequantize_args q = gemm_int4_dequantize_params(e);
    em_val table = make_table(e, p);
    int rows = p->g->scale_group / INT4_PER_WORD;
    em_loop l = em_for(e, zero(e), q.n_groups, one(e));
    em_val scales = em_muli(e, l.i, p->panel);
    em_loop r = em_for(e, zero(e), em_i64(e, rows), one(e));
    em_val row = em_muli(e, em_add(e, em_muli(e, l.i, rows), r.i), p->panel);
    em_val to = em_gep(e, q.dst, p->t, em_muli(e, row, INT4_PER_WORD));
    for (int c = 0; c < p->panel; c += p->lanes) {
        em_val at = em_gep(e, q.words, SN_I32, em_addi(e, row, c));
        em_val words = em_load(e, SN_I32, at, p->lanes);
        at = em_gep(e, q.scales, SN_BF16, em_addi(e, scales, c));
        em_val scale = em_load(e, SN_BF16, at, p->lanes);
        for (int j = 0; j < INT4_PER_WORD; j++)
            em_store(e, p->t, em_gep(e, to, p->t, em_i64(e, j * p->panel + c)),
                     em_mul(e, unpack(e, p, words, table, j), scale));
    }
    em_end(e, &r);
    em_end(e, &l);
    em_ret(e, NULL);
    return fn;
}

em_val gemm_emit_int4_pack(em *e, const gemm_plan *p, sn_dtype dtype, em_size row, em_size col,
                           int64_t pair_distance) {
    em_val fn = gemm_pack_b_function(e, gemm_name_of(p, "pack_b").text);
    gemm_pack_b_args q = gemm_pack_b_params(e);
    e->buf = q.buf;
    e->dim = q.dim;
    em_val row_stride = em_size_value(e, row), col_stride = em_size_value(e, col);
    em_val lane = em_mul(e, em_iota(e, e->i64, p->lanes), em_splat(e, col_stride, p->lanes));
    em_loop l = em_for(e, zero(e), q.kb, em_i64(e, INT4_PER_WORD));
    em_val to = em_muli(e, em_div(e, l.i, em_i64(e, INT4_PER_WORD)), p->panel);
    for (int c = 0; c < p->panel; c += p->lanes) {
        int64_t j0 = c % p->epi_cols; /* within a half of pairs */
        em_val mask = em_tail_mask(e, em_subi(e, q.n_cols, j0), p->lanes);
        em_val words = NULL;
        for (int j = 0; j < INT4_PER_WORD; j++) {
            em_val at = em_mul(e, em_addi(e, l.i, j), row_stride);
            em_val column = em_i64(e, j0 + c / p->epi_cols * pair_distance);
            at = em_add(e, at, em_mul(e, column, col_stride));
            em_val x = em_gather(e, dtype, em_gep(e, q.src, dtype, at), lane, mask);
            em_val i = em_convert(e, x, p->t, SN_I32);
            i = em_shl(e, em_and(e, i, em_like(e, i, 15)), em_like(e, i, 4 * j));
            words = words ? em_or(e, words, i) : i;
        }
        em_val at = em_gep(e, q.dst, SN_I32, em_addi(e, to, c));
        em_store(e, SN_I32, at, words);
    }
    em_end(e, &l);
    em_ret(e, NULL);
    return fn;
}
