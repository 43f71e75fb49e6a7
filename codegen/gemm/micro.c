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
    if ((p->k_blocked && !p->keeps_partial_c) || k->slot >= 0 || k->value % 2) return 1;
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

/* One micro-kernel: what its steps do. */
typedef struct micro {
    const gemm_plan *p;
    int rows, panels, unroll;
    bool twin;
    bool fetches_list, fetches_own, fetches_a; /* beside what `at` walks over */
    int64_t a_stride;
    em_val b_stride;
} micro;

/* What goes from step to step: where A, B and what is fetched are, then the sums; NULL:
 * not used. */
enum { AT_A, AT_B, AT_NEXT, AT_AHEAD, SUMS, CARRIED = SUMS + 32 };

static void carry(em *e, em_loop *l, em_val *at) {
    for (int i = 0; i < CARRIED; i++)
        if (at[i]) at[i] = em_carry(e, l, at[i]);
}

/* Ends a loop that began with `first`; `at` is what follows. */
static void end_carry(em *e, em_loop *l, const em_val *first, em_val *at) {
    for (int i = 0; i < CARRIED; i++)
        if (at[i]) em_next(e, l, first[i], at[i]);
    em_end(e, l);
    for (int i = 0; i < CARRIED; i++)
        if (at[i]) at[i] = em_final(e, l, first[i]);
}

/* Row u of the loop's body fetches the lines that begin in it (rows of narrow panels
 * share them). */
static void fetch_panel(em *e, const gemm_plan *p, em_val b, int u, int steps, int level) {
    int size = (int)sn_dtype_size(p->b_type), ahead = steps * p->panel * p->esize;
    if (u * p->panel * size % 64) return;
    for (int line = 0; line < p->nv * p->lanes * size; line += 64)
        em_prefetch(e, em_at_bytes(e, b, em_i64(e, ahead + line)), false, level);
}

/* The rows of A are as many streams, each of which enters a new line every few steps. The lines
 * after these are fetched by turns, some rows in each body of the loop: 0.1 to 0.5 % of the time.
 * `k`: the body's first step; u: which of its steps this is. */
static void fetch_rows_of_a(em *e, const micro *m, em_val a, em_val k, int u) {
    int size = m->p->esize, turns = GEMM_LINE / size / m->unroll;
    int each = (m->rows + turns - 1) / turns;
    em_val turn = em_and(e, k, em_i64(e, (turns - 1) * m->unroll)); /* unroll times that */
    em_val by = em_mul(e, turn, em_i64(e, each * m->a_stride * size / m->unroll));
    em_val first = em_at_bytes(e, a, by);
    for (int i = u; i < each; i += m->unroll) {
        em_val row = em_at(e, first, m->p->t, em_i64(e, i * m->a_stride));
        em_prefetch(e, em_at_bytes(e, row, em_i64(e, GEMM_LINE)), false, 3);
    }
}

/* b: this step's row of each panel; the others as in emit_step. */
static void emit_fetches(em *e, const micro *m, em_val *at, const em_val *b, em_val k, int u) {
    const gemm_plan *p = m->p;
    static const int step[] = {[AT_NEXT] = 5, [AT_AHEAD] = 9}; /* parameters */
    if (m->fetches_a) fetch_rows_of_a(e, m, at[AT_A], k, u);
    for (int t = 0; t < m->panels; t++) {
        int close = m->twin ? FAR : m->rows == p->mr ? NEAR_FULL : NEAR;
        fetch_panel(e, p, b[t], u, close, 3);
        if (m->twin && from_memory(p)) fetch_panel(e, p, b[t], u, FARTHER, 2);
        if (!p->pack_b && m->rows < p->mr && !m->twin) fetch_panel(e, p, b[t], u, FAR, 2);
    }
    if (m->fetches_list) gemm_prefetch_b(e, p, em_param(e, 4), em_add(e, k, em_i64(e, u)));
    if (m->fetches_own && u % (1 << p->c_prefetch_shift) == 0)
        gemm_prefetch_c(e, p, em_param(e, 7), em_add(e, k, em_i64(e, u)));
    for (int i = AT_NEXT; i <= AT_AHEAD; i++) {
        if (!at[i]) continue;
        em_prefetch(e, at[i], false, 2);
        at[i] = em_at_bytes(e, at[i], em_param(e, step[i]));
    }
}

/* A vector of a row of B in the compute type. This is where narrow weights widen. */
static em_val load_b(em *e, const gemm_plan *p, em_val at) {
    em_val v = em_load(e, p->b_type, at, p->lanes);
    return sn_dtype_is_float(p->b_type) ? v : em_convert(e, v, p->b_type, p->t);
}

/* Step u of the body that begins at step k. */
static void emit_step(em *e, const micro *m, em_val *at, em_val k, int u) {
    const gemm_plan *p = m->p;
    em_val b[] = {at[AT_B], m->twin ? em_at(e, at[AT_B], p->b_type, em_param(e, 6)) : NULL}, bv[8];
    for (int j = 0; j < m->panels * p->nv; j++) {
        em_val col = em_i64(e, j % p->nv * p->lanes);
        bv[j] = load_b(e, p, em_at(e, b[j / p->nv], p->b_type, col));
    }
    emit_fetches(e, m, at, b, k, u);
    em_val *sum = at + SUMS;
    for (int i = 0; i < m->rows; i++) {
        em_val from = em_at(e, at[AT_A], p->t, em_i64(e, i * m->a_stride + u * p->a_col_stride));
        em_val av = em_load_splat(e, p->t, from, p->lanes);
        for (int j = 0; j < m->panels * p->nv; j++)
            sum[i * p->nv + j] = em_fma(e, av, bv[j], sum[i * p->nv + j]);
    }
    at[AT_B] = em_at(e, at[AT_B], p->b_type, m->b_stride);
}

static void emit_steps(em *e, const micro *m, em_val *at, em_val k0, em_val k1) {
    em_loop l = em_for(e, k0, k1, em_i64(e, m->unroll));
    em_val first[CARRIED];
    carry(e, &l, at);
    memcpy(first, at, sizeof first);
    for (int u = 0; u < m->unroll; u++) emit_step(e, m, at, l.i, u);
    at[AT_A] = em_at(e, at[AT_A], m->p->t, em_i64(e, m->unroll * m->p->a_col_stride));
    end_carry(e, &l, first, at);
}

/* Copies a line of each of the next group's rows over those of the tile, from step k on, which
 * nobody reads any more. What comes later is fetched into L2 alone: rows a multiple of 4 KB apart
 * would push each other out of L1. */
static void copy_line(em *e, const micro *m, em_val k) {
    enum { AHEAD = 8 * GEMM_LINE };
    const gemm_plan *p = m->p;
    em_val src = em_at(e, em_param(e, 8), p->t, k), dst = em_at(e, em_param(e, 0), p->t, k);
    for (int i = 0; i < m->rows; i++) {
        em_val at = em_at(e, src, p->t, em_i64(e, i * p->g->a.row.value));
        em_val to = em_at(e, dst, p->t, em_i64(e, i * p->a_row_stride));
        for (int j = 0; j < GEMM_LINE / p->esize; j += p->lanes) {
            em_val v = em_load(e, p->t, em_at(e, at, p->t, em_i64(e, j)), p->lanes);
            em_store(e, p->t, em_at(e, to, p->t, em_i64(e, j)), v);
        }
        em_prefetch(e, em_at_bytes(e, at, em_i64(e, AHEAD)), false, 2);
    }
}

/* A loop in a loop, else LLVM mixes the copy with the sums. */
static void emit_turning(em *e, const micro *m, em_val *at, em_val k) {
    em_val line = em_i64(e, GEMM_LINE / m->p->esize), first[CARRIED];
    em_loop l = em_for(e, em_i64(e, 0), k, line);
    carry(e, &l, at);
    memcpy(first, at, sizeof first);
    emit_steps(e, m, at, l.i, em_add(e, l.i, line));
    copy_line(e, m, l.i);
    end_carry(e, &l, first, at);
}

/* Zeros, or what the chunk before left in T. */
static void begin_sums(em *e, const micro *m, em_val *sum) {
    const gemm_plan *p = m->p;
    em_val begun = em_splat(e, em_cmp(e, EM_NE, em_param(e, 10), em_i64(e, 0)), p->lanes);
    for (int i = 0; i < m->rows * m->panels * p->nv; i++) {
        int at = i / p->nv * p->panel + i % p->nv * p->lanes;
        em_val from = em_at(e, em_param(e, 2), p->t, em_i64(e, at));
        bool goes_on = p->k_blocked && !m->twin;
        sum[i] = goes_on ? em_load_mask(e, p->t, from, p->lanes, begun, NULL) : em_vf(e, 0);
    }
}

static void store_sums(em *e, const micro *m, const em_val *sum) {
    const gemm_plan *p = m->p;
    bool direct = p->direct_c && !m->twin;
    em_val to = em_param(e, direct ? 11 : 2);
    em_val to_row = direct ? em_param(e, 12) : em_i64(e, p->panel);
    for (int i = 0; i < m->rows * m->panels * p->nv; i++) {
        em_val at =
            em_add(e, em_mul(e, em_i64(e, i / p->nv), to_row), em_i64(e, i % p->nv * p->lanes));
        em_store(e, p->t, em_at(e, to, p->t, at), sum[i]);
    }
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
em_val gemm_emit_ukr(em *e, const gemm_plan *p, int rows, gemm_ukr kind) {
    static const char *const names[] = {"micro%d", "twin", "copied%d", "turning%d"};
    char suffix[32];
    snprintf(suffix, sizeof suffix, names[kind], rows);
    const em_type params[GEMM_UKR_PARAMS] = {e->ptr, e->ptr, e->ptr, e->i64, e->ptr, e->i64, e->i64,
                                             e->ptr, e->ptr, e->i64, e->i64, e->ptr, e->i64};
    em_val fn = gemm_function(e, p, suffix, params, GEMM_UKR_PARAMS, true);
    bool twin = kind == GEMM_UKR_1X2, turning = kind == GEMM_UKR_PACKING_A, full = rows == p->mr;
    micro m = {.p = p,
               .rows = rows,
               .panels = twin ? 2 : 1,
               .unroll = choose_unroll(p, rows, twin),
               .twin = twin,
               .fetches_list = full && p->b_prefetch,
               .fetches_own = p->c_prefetch && rows >= p->half_mr && !twin,
               .a_stride = p->pack_a_per_call && kind < GEMM_UKR_PACKED_A ? p->g->a.row.value
                                                                          : p->a_row_stride,
               .b_stride = p->b_in_place ? em_param(e, 6) : em_i64(e, p->panel)};
    m.fetches_a = full && m.unroll == 4 && p->a_col_stride == 1;
    em_val at[CARRIED] = {[AT_A] = em_param(e, 0),
                          [AT_B] = em_param(e, 1),
                          [AT_NEXT] = full && !p->b_prefetch ? em_param(e, 4) : NULL,
                          [AT_AHEAD] =
                              full && p->prefetch_next_a && !turning ? em_param(e, 8) : NULL};
    bool const_k = !p->k_blocked && p->g->k.slot < 0;
    em_val k = const_k ? em_i64(e, p->g->k.value) : em_param(e, 3);
    begin_sums(e, &m, at + SUMS);
    if (turning)
        emit_turning(e, &m, at, k);
    else
        emit_steps(e, &m, at, em_i64(e, 0), k);
    store_sums(e, &m, at + SUMS);
    em_ret(e, NULL);
    return fn;
}
