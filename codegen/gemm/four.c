/* four.c: right factors of 4-bit integers: their panels, one row by a panel with the integers
 * widened in registers, and panels widened to the compute type where several rows use them.
 * An i32 holds 8 consecutive k of a column, the first in the low bits; a panel row is P such words,
 * a group's factors are a row of P in panels of their own. */
#include "codegen/gemm/impl.h"

enum { AHEAD = 2048 }; /* bytes of panel fetched ahead */

static bool looks_up(em *e, const gemm_plan *p) {
    return e->target->has_avx512 && p->lanes == 16;
}

/* 4-bit integers as floats, two's complement. */
static em_val make_table(em *e, const gemm_plan *p) {
    em_val t = em_vf(e, 0);
    for (int i = 1; i < 16 && looks_up(e, p); i++)
        t = em_insert(e, t, em_f(e, i < 8 ? i : i - 16), i);
    return t;
}

/* Number j of each word in the compute type: with AVX-512 the low 4 bits look it up. */
static em_val number_of(em *e, const gemm_plan *p, em_val words, em_val table, int j) {
    if (looks_up(e, p)) {
        em_val args[] = {table, j ? em_lshr(e, words, em_like(e, words, 4 * j)) : words};
        return em_intrinsic(e, "llvm.x86.avx512.permvar.sf.512", NULL, 0, args, 2);
    }
    em_val high = em_shl(e, words, em_like(e, words, 28 - 4 * j));
    return em_convert(e, em_ashr(e, high, em_like(e, high, 28)), SN_I32, p->t);
}

typedef struct row_state {
    em_val a, words, factors, table;
    em_val acc[2];
    bool spill; /* may read up to 3 bytes behind the words */
} row_state;

/* Number j of the words at `row`. A load from byte j / 2 on saves every second shift, and shifts
 * and table look-ups share two ports with the multiply-adds. */
static em_val load_number(em *e, const gemm_plan *p, const row_state *s, em_val row, int v, int j) {
    int skip = s->spill ? j / 2 : 0;
    em_val at = em_at_bytes(e, row, em_i64(e, v * p->lanes * 4 + skip));
    em_val words = em_load_raw(e, em_vec(e->i32, p->lanes), at, skip ? 1 : 4);
    return number_of(e, p, words, s->table, j - 2 * skip);
}

/* acc += factor (sum over the group of a q), for `groups` groups, whose sums do not wait for each
 * other. */
static void add_groups(em *e, const gemm_plan *p, row_state *s, int groups) {
    em_val sum[2][2];
    for (int r = 0; r < p->g->scale_group / INT4_PER_WORD; r++)
        for (int g = 0; g < groups; g++) {
            int row = g * p->g->scale_group / INT4_PER_WORD + r;
            em_val at = em_at(e, s->words, SN_I32, em_i64(e, row * p->panel));
            for (int line = 0; line < p->nv * p->lanes * 4; line += 64)
                em_prefetch(e, em_at_bytes(e, at, em_i64(e, AHEAD + line)), false, 3);
            for (int j = 0; j < INT4_PER_WORD; j++) {
                em_val k = em_i64(e, row * INT4_PER_WORD + j);
                em_val a = em_load_splat(e, p->t, em_at(e, s->a, p->t, k), p->lanes);
                for (int v = 0; v < p->nv; v++) {
                    em_val q = load_number(e, p, s, at, v, j);
                    sum[g][v] = r + j ? em_fma(e, a, q, sum[g][v]) : em_mul(e, a, q);
                }
            }
        }
    for (int g = 0; g < groups; g++)
        for (int v = 0; v < p->nv; v++) {
            em_val at = em_i64(e, g * p->panel + v * p->lanes);
            em_val f = em_load(e, SN_BF16, em_at(e, s->factors, SN_BF16, at), p->lanes);
            s->acc[v] = em_fma(e, f, sum[g][v], s->acc[v]);
        }
}

/* void row(A, words, factors, T): T[j] = the row A times nv vectors of columns of a panel. last: of
 * the last panel, behind which nothing may be read. */
em_val gemm_emit_int4_row(em *e, const gemm_plan *p, bool last) {
    const em_type params[] = {e->ptr, e->ptr, e->ptr, e->ptr};
    em_val fn = gemm_function(e, p, last ? "last_row" : "row", params, 4, true);
    int group = p->g->scale_group;
    int64_t pairs = p->g->k.value / group / 2, k = 2 * group;
    row_state s = {.table = make_table(e, p), .spill = !last && looks_up(e, p)};
    em_loop l = em_for(e, em_i64(e, 0), em_i64(e, pairs), em_i64(e, 1));
    em_val a = em_carry(e, &l, em_param(e, 0)), words = em_carry(e, &l, em_param(e, 1));
    em_val factors = em_carry(e, &l, em_param(e, 2)), acc[2];
    for (int v = 0; v < p->nv; v++) s.acc[v] = acc[v] = em_carry(e, &l, em_vf(e, 0));
    s.a = a, s.words = words, s.factors = factors;
    add_groups(e, p, &s, 2);
    em_next(e, &l, a, em_at(e, a, p->t, em_i64(e, k)));
    em_next(e, &l, words, em_at(e, words, SN_I32, em_i64(e, k / INT4_PER_WORD * p->panel)));
    em_next(e, &l, factors, em_at(e, factors, SN_BF16, em_i64(e, 2 * p->panel)));
    for (int v = 0; v < p->nv; v++) em_next(e, &l, acc[v], s.acc[v]);
    em_end(e, &l);
    s.a = em_final(e, &l, a), s.words = em_final(e, &l, words);
    s.factors = em_final(e, &l, factors);
    for (int v = 0; v < p->nv; v++) s.acc[v] = em_final(e, &l, acc[v]);
    if (p->g->k.value / group % 2) add_groups(e, p, &s, 1);
    for (int v = 0; v < p->nv; v++)
        em_store(e, p->t, em_at(e, em_param(e, 3), p->t, em_i64(e, v * p->lanes)), s.acc[v]);
    em_ret(e, NULL);
    return fn;
}

/* void widen(words, factors, dst, groups): the numbers times their factors as a panel [K][P]. */
em_val gemm_emit_int4_dequantize(em *e, const gemm_plan *p) {
    const em_type params[] = {e->ptr, e->ptr, e->ptr, e->i64};
    em_val fn = gemm_function(e, p, "widen", params, 4, false);
    em_val table = make_table(e, p);
    int rows = p->g->scale_group / INT4_PER_WORD;
    em_loop l = em_for(e, em_i64(e, 0), em_param(e, 3), em_i64(e, 1));
    em_val factors = em_mul(e, l.i, em_i64(e, p->panel));
    em_loop r = em_for(e, em_i64(e, 0), em_i64(e, rows), em_i64(e, 1));
    em_val row = em_mul(e, em_add(e, em_mul(e, l.i, em_i64(e, rows)), r.i), em_i64(e, p->panel));
    em_val to = em_at(e, em_param(e, 2), p->t, em_mul(e, row, em_i64(e, INT4_PER_WORD)));
    for (int c = 0; c < p->panel; c += p->lanes) {
        em_val at = em_at(e, em_param(e, 0), SN_I32, em_add(e, row, em_i64(e, c)));
        em_val w = em_load(e, SN_I32, at, p->lanes);
        at = em_at(e, em_param(e, 1), SN_BF16, em_add(e, factors, em_i64(e, c)));
        em_val f = em_load(e, SN_BF16, at, p->lanes);
        for (int j = 0; j < INT4_PER_WORD; j++)
            em_store(e, p->t, em_at(e, to, p->t, em_i64(e, j * p->panel + c)),
                     em_mul(e, number_of(e, p, w, table, j), f));
    }
    em_end(e, &r);
    em_end(e, &l);
    em_ret(e, NULL);
    return fn;
}

/* void pack(buf, dim, src, dst, k, columns): a panel of words of integers from -8 to 7 that
 * src holds as floats; the signature is that of gemm_emit_pack_b. */
em_val gemm_emit_int4_pack(em *e, const gemm_plan *p, sn_dtype dtype, sn_gemm_size row,
                           sn_gemm_size col, int64_t pair) {
    const em_type params[] = {e->ptr, e->ptr, e->ptr, e->ptr, e->i64, e->i64};
    em_val fn = gemm_function(e, p, "panel", params, 6, false);
    e->buf = em_param(e, 0);
    e->dim = em_param(e, 1);
    em_val step = gemm_size(e, row), across = gemm_size(e, col);
    em_val lane = em_mul(e, em_iota(e, e->i64, p->lanes), em_splat(e, across, p->lanes));
    em_loop l = em_for(e, em_i64(e, 0), em_param(e, 4), em_i64(e, INT4_PER_WORD));
    em_val to = em_mul(e, em_div(e, l.i, em_i64(e, INT4_PER_WORD)), em_i64(e, p->panel));
    for (int c = 0; c < p->panel; c += p->lanes) {
        int64_t j0 = c % p->epi_cols; /* of the panel's part that is read as it lies */
        em_val mask = em_tail_mask(e, em_sub(e, em_param(e, 5), em_i64(e, j0)), p->lanes);
        em_val words = NULL;
        for (int j = 0; j < INT4_PER_WORD; j++) {
            em_val at = em_mul(e, em_add(e, l.i, em_i64(e, j)), step);
            at = em_add(e, at, em_mul(e, em_i64(e, j0 + c / p->epi_cols * pair), across));
            em_val x = em_gather(e, dtype, em_at(e, em_param(e, 2), dtype, at), lane, mask);
            em_val q = em_convert(e, x, p->t, SN_I32);
            q = em_shl(e, em_and(e, q, em_like(e, q, 15)), em_like(e, q, 4 * j));
            words = words ? em_or(e, words, q) : q;
        }
        em_val at = em_at(e, em_param(e, 3), SN_I32, em_add(e, to, em_i64(e, c)));
        em_store(e, SN_I32, at, words);
    }
    em_end(e, &l);
    em_ret(e, NULL);
    return fn;
}
