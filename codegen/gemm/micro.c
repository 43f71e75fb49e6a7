/* micro.c: the micro-kernel: a tile of T = A B with all sums in registers.
 * Two vectors of columns by up to 14 rows with 32 registers (28 sums, 2 of B, broadcasts of A), up
 * to 6 rows with 16. Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication,
 * 2008. */
#include "codegen/gemm/impl.h"

#include <string.h>

/* Steps of k in the loop's body: more of them leave fewer of the loop's own instructions, which
 * compete with the multiply-adds for execution ports (0.3 % of the time from 2 to 4). */
static int choose_unroll(const gemm_plan *p, int rows, bool twin) {
    const sn_gemm_size *k = &p->g->k;
    if ((p->chunked && !p->waits) || k->slot >= 0 || k->value % 2) return 1;
    return (twin || rows == p->mr) && k->value % 4 == 0 ? 4 : 2; /* chunks are whole lines */
}

/* Panels flow through L2 from memory. A short tile is a step every few cycles and waits for memory:
 * it fetches its own panel far ahead into L2 and a little ahead into L1. Two panels at once fetch
 * far ahead into L1, one instruction a line; what comes from memory twice as far ahead into L2 as
 * well (bf16: 35 instead of 32 GB/s), which would cost 3 % for what lies in the last-level cache. A
 * full tile takes long over its panel: meanwhile it fetches, a line a step, what the caller says
 * comes next. */
enum { FAR = 32, FARTHER = 64, NEAR = 4, NEAR_FULL = 8 }; /* steps of k, of compute-type panels */

/* Whether B will hardly stay in a cache until its next use, because all matrices together or this
 * one alone are large. */
static bool from_memory(const gemm_plan *p) {
    enum { LARGE = 16 << 20 };
    const sn_gemm *g = p->g;
    int64_t size = (int64_t)sn_dtype_size(p->b_type);
    if (size >= 4) return true;
    return g->k.slot < 0 && g->n.slot < 0 && g->k.value * g->n.value * size >= LARGE;
}

/* Row u of the loop's body fetches the lines that begin in it (rows of narrow panels share them).
 */
static void fetch_panel(em *e, const gemm_plan *p, em_val b, int u, int steps, int level) {
    int size = (int)sn_dtype_size(p->b_type), ahead = steps * p->panel * p->esize;
    if (u * p->panel * size % 64) return;
    for (int line = 0; line < p->nv * p->lanes * size; line += 64)
        em_prefetch(e, em_at_bytes(e, b, em_i64(e, ahead + line)), false, level);
}

/* The rows of A are as many streams, each of which enters a new line every few steps. The lines
 * after these are fetched by turns, some rows in each body of the loop: 0.1 to 0.5 % of the time.
 * `k`: the body's first step; u: which of its steps this is. */
static void fetch_rows_of_a(em *e, const gemm_plan *p, em_val a, em_val k, int unroll, int u,
                            int rows, int64_t stride) {
    int turns = GEMM_LINE / p->esize / unroll, each = (rows + turns - 1) / turns;
    em_val turn = em_and(e, k, em_i64(e, (turns - 1) * unroll)); /* unroll times that */
    em_val first = em_at_bytes(e, a, em_mul(e, turn, em_i64(e, each * stride * p->esize / unroll)));
    for (int i = u; i < each; i += unroll) {
        em_val row = em_at(e, first, p->t, em_i64(e, i * stride));
        em_prefetch(e, em_at_bytes(e, row, em_i64(e, GEMM_LINE)), false, 3);
    }
}

/* Copies a line of each of the next group's rows `from` over those of the tile, from step k on,
 * which nobody reads any more. What comes later is fetched into L2 alone: rows a multiple of 4 KB
 * apart would push each other out of L1. */
static void copy_line(em *e, const gemm_plan *p, em_val from, em_val k, int rows) {
    enum { AHEAD = 8 * GEMM_LINE };
    em_val src = em_at(e, from, p->t, k), dst = em_at(e, em_param(e, 0), p->t, k);
    for (int i = 0; i < rows; i++) {
        em_val at = em_at(e, src, p->t, em_i64(e, i * p->g->a.row.value));
        em_val to = em_at(e, dst, p->t, em_i64(e, i * p->a_stride));
        for (int j = 0; j < GEMM_LINE / p->esize; j += p->lanes) {
            em_val v = em_load(e, p->t, em_at(e, at, p->t, em_i64(e, j)), p->lanes);
            em_store(e, p->t, em_at(e, to, p->t, em_i64(e, j)), v);
        }
        em_prefetch(e, em_at_bytes(e, at, em_i64(e, AHEAD)), false, 2);
    }
}

/* A vector of a row of B in the compute type. This is where narrow weights widen. */
static em_val load_b(em *e, const gemm_plan *p, em_val at) {
    em_val v = em_load(e, p->b_type, at, p->lanes);
    return sn_dtype_is_float(p->b_type) ? v : em_convert(e, v, p->b_type, p->t);
}

/* void micro(A, B, T, k, next, next_step, b_stride, own, ahead, ahead_step, begun, to, to_row)
 * T[i][j] (row stride: a panel) = sum over k of A[i*a_stride + k] B[k*b_stride + j]; chunked: added
 * to T if begun is not 0. next, next_step: what a full tile fetches, bytes between lines. b_stride
 * in elements, used for unpacked B only. own: the list of lines that the epilogue will read and
 * write. ahead, ahead_step: what else a full tile fetches, likewise. copied: of a plan that reads
 * A's rows where they lie or from a copy, the latter. twin: one row by two panels, b_stride
 * elements apart, whose sums are T[0] and T[1]: of one panel they would wait for each other, and
 * memory for them. turning: copied, and `ahead` are the next group's rows, which take the place of
 * the tile's. direct_c: the sums are written to `to`, rows to_row elements apart. */
em_val gemm_emit_micro(em *e, const gemm_plan *p, int rows, gemm_micro kind) {
    static const char *const names[] = {"micro%d", "twin", "copied%d", "turning%d"};
    char suffix[32];
    snprintf(suffix, sizeof suffix, names[kind], rows);
    bool twin = kind == GEMM_TWIN, turning = kind == GEMM_TURNING;
    int64_t stride = p->dual && kind < GEMM_COPIED ? p->g->a.row.value : p->a_stride;
    const em_type params[GEMM_MICRO_PARAMS] = {e->ptr, e->ptr, e->ptr, e->i64, e->ptr,
                                               e->i64, e->i64, e->ptr, e->ptr, e->i64,
                                               e->i64, e->ptr, e->i64};
    em_val fn = gemm_function(e, p, suffix, params, GEMM_MICRO_PARAMS, true);
    em_val sums = em_param(e, 2);
    const sn_gemm *g = p->g;
    bool const_k = !p->chunked && g->k.slot < 0;
    em_val k = const_k ? em_i64(e, g->k.value) : em_param(e, 3);
    bool in_place = p->direct_b;
    em_val b_stride = in_place ? em_param(e, 6) : em_i64(e, p->panel);
    int unroll = choose_unroll(p, rows, twin), panels = twin ? 2 : 1;
    bool fetch_next = rows == p->mr && !p->fetch, fetch_list = rows == p->mr && p->fetch;
    bool fetch_rows = rows == p->mr && p->ahead && !turning;
    bool fetch_a = rows == p->mr && unroll == 4 && p->a_step == 1;
    bool fetch_own = p->own && rows >= p->half && !twin;

    em_val init[32], acc[32];
    int n = rows * panels * p->nv;
    em_val begun = em_splat(e, em_cmp(e, EM_NE, em_param(e, 10), em_i64(e, 0)), p->lanes);
    for (int i = 0; i < n; i++) {
        int at = i / p->nv * p->panel + i % p->nv * p->lanes;
        em_val from = em_at(e, sums, p->t, em_i64(e, at));
        bool goes_on = p->chunked && !twin;
        init[i] = goes_on ? em_load_mask(e, p->t, from, p->lanes, begun, NULL) : em_vf(e, 0);
    }
    em_val k0 = em_i64(e, 0), k1 = k;
    em_val from_a = em_param(e, 0), from_b = em_param(e, 1), from_next = em_param(e, 4);
    em_loop lines = {0};
    if (turning) { /* a loop in the loop, else LLVM mixes the copy with the sums */
        em_val line = em_i64(e, GEMM_LINE / p->esize);
        lines = em_for(e, k0, k, line);
        from_a = em_carry(e, &lines, from_a), from_b = em_carry(e, &lines, from_b);
        if (fetch_next) from_next = em_carry(e, &lines, from_next);
        for (int i = 0; i < n; i++) init[i] = em_carry(e, &lines, init[i]);
        k0 = lines.i, k1 = em_add(e, lines.i, line);
    }
    em_loop l = em_for(e, k0, k1, em_i64(e, unroll));
    em_val a = em_carry(e, &l, from_a), b = em_carry(e, &l, from_b);
    em_val next = fetch_next ? em_carry(e, &l, from_next) : NULL;
    em_val ahead = fetch_rows ? em_carry(e, &l, em_param(e, 8)) : NULL;
    for (int i = 0; i < n; i++) acc[i] = em_carry(e, &l, init[i]);
    em_val first[32], bu = b, nu = next, ru = ahead;
    memcpy(first, acc, sizeof first);
    for (int u = 0; u < unroll; u++) {
        em_val bv[8], from[2] = {bu, twin ? em_at(e, bu, p->b_type, em_param(e, 6)) : NULL};
        for (int j = 0; j < panels * p->nv; j++) {
            em_val at = em_i64(e, j % p->nv * p->lanes);
            bv[j] = load_b(e, p, em_at(e, from[j / p->nv], p->b_type, at));
        }
        if (fetch_a) fetch_rows_of_a(e, p, a, l.i, unroll, u, rows, stride);
        for (int t = 0; t < panels; t++) {
            int close = twin ? FAR : rows == p->mr ? NEAR_FULL : NEAR;
            fetch_panel(e, p, from[t], u, close, 3);
            if (twin && from_memory(p)) fetch_panel(e, p, from[t], u, FARTHER, 2);
            if (!p->pack_b && rows < p->mr && !twin) fetch_panel(e, p, from[t], u, FAR, 2);
        }
        if (fetch_list) gemm_emit_fetch(e, p, em_param(e, 4), em_add(e, l.i, em_i64(e, u)));
        if (fetch_own && u % (1 << p->own_shift) == 0)
            gemm_emit_own(e, p, em_param(e, 7), em_add(e, l.i, em_i64(e, u)));
        if (fetch_next) {
            em_prefetch(e, nu, false, 2);
            nu = em_at_bytes(e, nu, em_param(e, 5));
        }
        if (fetch_rows) {
            em_prefetch(e, ru, false, 2);
            ru = em_at_bytes(e, ru, em_param(e, 9));
        }
        for (int i = 0; i < rows; i++) {
            em_val at = em_at(e, a, p->t, em_i64(e, i * stride + u * p->a_step));
            em_val av = em_load_splat(e, p->t, at, p->lanes);
            for (int j = 0; j < panels * p->nv; j++)
                acc[i * p->nv + j] = em_fma(e, av, bv[j], acc[i * p->nv + j]);
        }
        bu = em_at(e, bu, p->b_type, b_stride);
    }
    em_next(e, &l, a, em_at(e, a, p->t, em_i64(e, unroll * p->a_step)));
    em_next(e, &l, b, bu);
    if (fetch_next) em_next(e, &l, next, nu);
    if (fetch_rows) em_next(e, &l, ahead, ru);
    for (int i = 0; i < n; i++) em_next(e, &l, first[i], acc[i]);
    em_end(e, &l);
    em_val sum[32];
    for (int i = 0; i < n; i++) sum[i] = em_final(e, &l, first[i]);
    if (turning) {
        copy_line(e, p, em_param(e, 8), lines.i, rows);
        em_next(e, &lines, from_a, em_final(e, &l, a));
        em_next(e, &lines, from_b, em_final(e, &l, b));
        if (fetch_next) em_next(e, &lines, from_next, em_final(e, &l, next));
        for (int i = 0; i < n; i++) em_next(e, &lines, init[i], sum[i]);
        em_end(e, &lines);
        for (int i = 0; i < n; i++) sum[i] = em_final(e, &lines, init[i]);
    }
    bool direct = p->direct_c && !twin;
    em_val to = direct ? em_param(e, 11) : sums,
           to_row = direct ? em_param(e, 12) : em_i64(e, p->panel);
    for (int i = 0; i < n; i++) {
        em_val at =
            em_add(e, em_mul(e, em_i64(e, i / p->nv), to_row), em_i64(e, i % p->nv * p->lanes));
        em_store(e, p->t, em_at(e, to, p->t, at), sum[i]);
    }
    em_ret(e, NULL);
    return fn;
}
