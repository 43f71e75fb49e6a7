/* micro.c: the microkernel: microtile C += A B with all accumulators in registers.
 * With 32 registers NR is two vectors and MR at most 14: 28 accumulators, 2 vectors of B, broadcasts of
 * A. With 16, NR is four vectors and MR 3, or NR is two and MR at most 6. By lane, NR is four and MR 6, or two and 8.
 * Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008. */
#include "codegen/gemm/impl.h"

enum { UNROLL = 4, MAX_STRAIGHT = 8 /* steps of the block kernel without a loop */ };

/* By lane, a full microtile prefetches between blocks of steps. An iteration of the loop over the steps of a
 * block has 192 multiply-adds, 16 loads of pairs of B, 12 of A, and 4 other instructions. Steps more would
 * need a second address of B: the offset of a pair is at most 1008 bytes. */
enum { LANED_UNROLL = 8, LANED_BLOCK = 32, LANED_B_NEXT = 8 /* steps for each line of b_next */ };

/* Whether the loop is that of emit_counted_steps. */
static bool counts_steps(const gemm_plan *p) {
    return p->small_tile && p->a_col_stride == 1;
}

/* Steps of k per iteration of the loop: more steps mean fewer loop instructions, which compete with
 * the multiply-adds for execution ports (0.3 % of the time from 2 to 4). */
static int choose_unroll(const gemm_plan *p, int rows, gemm_ukr_kind kind) {
    const em_size *k = &p->g->k;
    if (p->by_lane && kind != GEMM_UKR_1X2) return rows < p->mr ? UNROLL : LANED_UNROLL;
    if ((p->k_blocked && !p->keeps_partial_c) || k->slot >= 0) return 1;
    bool wide = kind == GEMM_UKR_1X2 || rows == p->mr;
    if (!p->k_blocked && wide && k->value >= UNROLL) return UNROLL;
    if (k->value % 2) return 1;
    return wide && k->value % UNROLL == 0 ? UNROLL : 2; /* KC is a multiple of a line */
}

/* Prefetch distances in steps of k (of panels of the compute type). Panels stream from memory
 * through L2.
 *   Short microtile: a step takes few cycles and waits for memory. It prefetches its own panel, FAR
 *     ahead into L2 and NEAR ahead into L1.
 *   1x2: prefetches FAR ahead into L1, one instruction per line. If B comes from memory it also
 *     prefetches FARTHER ahead into L2 (bf16: 35 instead of 32 GB/s); that would cost 3 % if B is
 *     in the last-level cache.
 *   Full microtile: takes long for its panel. It prefetches what comes next (b_next), each line once.
 *   Full microtile of few registers (small_tile): a step has 12 multiply-adds, 7 or 8 loads, and each
 *     other instruction takes a 24th of the time in which a core issues them. Where the core's other
 *     hardware thread is busy, that is what limits it: it takes 0.9 of the time that it takes with
 *     all prefetches and their addresses. So it prefetches b_next once in UNROLL steps, which
 *     suffices where four microtiles share a panel, and not its own panel, which is in L2. */
enum { FAR = 32, FARTHER = 64, NEAR = 4, NEAR_FULL = 8 };

/* Whether B hardly stays in a cache until its next use: all matrices of a model together are large,
 * or this one is. */
static bool from_memory(const gemm_plan *p) {
    enum { LARGE = 16 << 20 };
    const sn_gemm *g = p->g;
    int64_t size = (int64_t)sn_dtype_size(p->b_type);
    if (size >= 4) return true;
    return g->k.slot < 0 && g->n.slot < 0 && g->k.value * g->n.value * size >= LARGE;
}

/* The microkernel that is being emitted. */
typedef struct micro {
    const gemm_plan *p;
    gemm_ukr_args arg;
    int rows, panels, unroll;
    int next_a_lines;                /* of an iteration */
    bool is_1x2, by_lane, in_blocks; /* in_blocks: prefetches between blocks of steps */
    bool skips_own_panel;
    bool prefetches_b_list, prefetches_c_list;
    int64_t a_stride;
    em_val b_stride;
} micro;

/* What the loop over k carries. NULL: not used. */
enum { MAX_ACC = 32 };
typedef union carried {
    struct {
        em_val a, b, b_next, next_a; /* addresses */
        em_val acc[MAX_ACC];
    };
    em_val all[4 + MAX_ACC];
} carried;
enum { N_CARRIED = 4 + MAX_ACC };

/* Rows of A by lane: 16 bytes each, for QUAD steps; if transposed, 16 bytes of each step for as many rows. */
enum { MAX_LANED = 8, QUAD = 4 };

static int lane_of(const gemm_plan *p, int row, int u) {
    return (p->a_transposed ? row : u) % QUAD;
}

/* Prefetches a panel `steps` of k ahead. Row u of the unrolled body prefetches the lines that begin
 * in it; several rows of a narrow panel share a line. */
static void prefetch_panel(em *e, const gemm_plan *p, em_val b, int u, int steps, int level) {
    int size = (int)sn_dtype_size(p->b_type), distance = steps * p->panel * p->esize;
    if (u * p->panel * size % GEMM_LINE) return;
    for (int line = 0; line < p->nr * size; line += GEMM_LINE)
        em_prefetch(e, em_gep_bytes(e, b, distance + line), false, level);
}

/* Prefetches lines from, from + by, … of the n of a stream into L2; lines begin `step` bytes apart. */
static void prefetch_lines(em *e, em_val stream, em_val step, int from, int by, int n) {
    for (int i = from; i < n; i += by)
        em_prefetch(e, em_gep_bytes(e, stream, em_mul(e, step, i)), false, 2);
}

/* What n steps of k prefetch of b_next: its first line, and others unless they are the same one. A prefetch takes
 * the place of a load, and a step of 14 rows by 2 vectors has 16 in 14 cycles: with 19 in all it takes 14 cycles, with
 * 21 it takes 15 (Xeon with AMX). */
static void prefetch_b_next(em *e, const micro *m, carried *c, int n) {
    if (!c->b_next) return;
    em_val step = m->arg.b_next_step;
    prefetch_lines(e, c->b_next, step, 0, n, n);
    for (int by = n; by > 1 && !m->p->small_tile && !m->in_blocks; by /= 2) {
        em_branch others = em_if(e, em_cmp(e, EM_GT, step, GEMM_LINE / by));
        prefetch_lines(e, c->b_next, step, by / 2, by, n);
        em_endif(e, &others);
    }
    c->b_next = em_gep_bytes(e, c->b_next, em_mul(e, step, n));
}

/* ... of next_a. Its step is 0 but in the last panel of an MC block: then there is nothing to prefetch. */
static void prefetch_next_a(em *e, const micro *m, carried *c, int lines) {
    if (!c->next_a) return;
    em_val step = m->arg.next_a_step;
    em_branch due = em_if(e, em_cmp(e, EM_NE, step, 0));
    prefetch_lines(e, c->next_a, step, 0, 1, lines);
    em_endif(e, &due);
    c->next_a = em_gep_bytes(e, c->next_a, em_mul(e, step, lines));
}

/* All prefetches of step u. b: this step's row of each panel. */
static void emit_prefetches(em *e, const micro *m, carried *c, const em_val *b, em_val k, int u) {
    const gemm_plan *p = m->p;
    for (int t = 0; t < m->panels; t++) {
        int near = m->is_1x2 ? FAR : m->rows == p->mr ? NEAR_FULL : NEAR;
        if (!m->skips_own_panel) prefetch_panel(e, p, b[t], u, near, 3);
        if (m->is_1x2 && from_memory(p)) prefetch_panel(e, p, b[t], u, FARTHER, 2);
        if (!p->pack_b && m->rows < p->mr && !m->is_1x2) prefetch_panel(e, p, b[t], u, FAR, 2);
    }
    if (m->prefetches_b_list) gemm_prefetch_b(e, p, m->arg.b_next, em_add(e, k, u));
    if (m->prefetches_c_list && u % (1 << p->c_prefetch_shift) == 0)
        gemm_prefetch_c(e, p, m->arg.c_list, em_add(e, k, u));
    if (u > 0) return;
    prefetch_b_next(e, m, c, m->unroll);
    prefetch_next_a(e, m, c, m->next_a_lines);
}

/* A vector of B in the compute type: narrow panels are widened here. */
static em_val load_b(em *e, const gemm_plan *p, em_val at) {
    em_val v = em_load(e, p->b_type, at, p->lanes);
    bool ready = sn_dtype_is_float(p->b_type) || p->b_type == p->t;
    return ready ? v : em_convert(e, v, p->b_type, p->t);
}

static void load_a_terms(em *e, const micro *m, em_val a, int row, int u, em_val *lanes,
                         em_val *terms) {
    const gemm_plan *p = m->p;
    if (lanes) {
        const int lane = lane_of(p, row, u);
        em_val *v = &lanes[p->a_transposed ? row / QUAD : row];
        em_val from = em_gep(e, a, p->t, row * m->a_stride + u * p->a_col_stride);
        if (lane == 0)
            *v = p->lanes == QUAD ? em_load(e, p->t, from, QUAD)
                                  : em_load_quads(e, em_vec(em_mem_type(e, p->t), p->lanes), from);
        if (e->target->sve_bytes)
            terms[0] = *v;
        else if (p->g->bf16)
            tile_bf16_lane(e, *v, lane, terms);
        else
            terms[0] = em_splat(e, em_extract(e, *v, lane), p->lanes);
        return;
    }
    em_val at = em_i64(e, row * m->a_stride + u * p->a_col_stride);
    p->dot->a_terms(e, p, em_gep(e, a, p->t, at), terms);
}

static void load_b_terms(em *e, const micro *m, const em_val *b, int vector, em_val *terms) {
    const gemm_plan *p = m->p;
    em_val at = em_gep(e, b[vector / p->nv], p->b_type, vector % p->nv * p->lanes);
    p->dot->b_terms(e, p, load_b(e, p, at), terms);
}

/* A term of SVE, whose instructions take a lane of the quads that `a` repeats; NEON's are found by LLVM. */
static em_val add_lane(em *e, const gemm_plan *p, em_val a, int lane, em_val b, em_val acc) {
    if (!p->g->bf16 && !p->g->int8)
        return em_sve(e, "llvm.aarch64.sve.fmla.lane", true, (em_val[]){acc, b, a, em_i32(e, lane)},
                      4);
    em_type t = p->g->int8 ? em_vec(e->i8, 4 * p->lanes)
                           : em_vec(LLVMBFloatTypeInContext(e->ctx), 2 * p->lanes);
    a = em_bitcast(e, a, t);
    b = em_bitcast(e, b, t);
    if (p->g->int8)
        return em_sve(e, "llvm.aarch64.sve.sdot.lane", true, (em_val[]){acc, b, a, em_i32(e, lane)},
                      4);
    em_val odd[] = {acc, b, a, em_i32(e, 2 * lane + 1)}, even[] = {NULL, b, a, em_i32(e, 2 * lane)};
    even[0] = em_sve(e, "llvm.aarch64.sve.bfmlalt.lane.v2", false, odd, 4);
    return em_sve(e, "llvm.aarch64.sve.bfmlalb.lane.v2", false, even, 4);
}

/* Step u of the iteration that starts at step k: a rank-1 update of the microtile. The factors that
 * are fewer stay in registers. lanes: what step 0 leaves for the others; NULL: A is not taken by lane. */
static void emit_step(em *e, const micro *m, carried *c, em_val k, int u, em_val *lanes) {
    const gemm_plan *p = m->p;
    em_val b[] = {c->b, m->is_1x2 ? em_gep(e, c->b, p->b_type, m->arg.b_stride) : NULL};
    em_val kept[8][GEMM_TERMS], other[GEMM_TERMS];
    int vectors = m->panels * p->nv;
    bool keeps_a = p->nv == 4 || p->by_lane;
    for (int x = 0; x < (keeps_a ? m->rows : vectors); x++) {
        if (keeps_a)
            load_a_terms(e, m, c->a, x, u, lanes, kept[x]);
        else
            load_b_terms(e, m, b, x, kept[x]);
    }
    if (!m->in_blocks) emit_prefetches(e, m, c, b, k, u);
    for (int x = 0; x < m->rows * vectors; x++) {
        int row = keeps_a ? x % m->rows : x / vectors, vector = keeps_a ? x / m->rows : x % vectors;
        bool starts = keeps_a ? row == 0 : vector == 0;
        if (starts && keeps_a) load_b_terms(e, m, b, vector, other);
        if (starts && !keeps_a) load_a_terms(e, m, c->a, row, u, lanes, other);
        em_val *acc = &c->acc[row * p->nv + vector];
        *acc = keeps_a && lanes && e->target->sve_bytes
                   ? add_lane(e, p, kept[row][0], lane_of(p, row, u), other[0], *acc)
               : keeps_a ? p->dot->multiply_add(e, p, kept[row], other, *acc)
                         : p->dot->multiply_add(e, p, other, kept[vector], *acc);
    }
    c->b = em_gep(e, c->b, p->b_type, m->b_stride);
}

/* Steps [0, k), counted up from -k to 0, which is the index of A, too: one instruction counts,
 * compares and moves A. For few registers (see FAR). `rest` more steps follow the loop. */
static void emit_counted_steps(em *e, const micro *m, carried *c, em_val k, int rest) {
    k = em_sub(e, k, rest);
    em_val end = em_gep(e, c->a, m->p->t, k);
    c->a = NULL;
    em_loop l = em_for(e, em_sub(e, 0, k), 0, m->unroll);
    em_carries(e, &l, c->all, N_CARRIED);
    for (int u = 0; u < m->unroll; u++) {
        c->a = em_gep(e, end, m->p->t, l.i);
        emit_step(e, m, c, em_add(e, l.i, k), u, NULL);
    }
    em_end(e, &l);
    c->a = end;
    for (int u = 0; u < rest; u++) emit_step(e, m, c, k, u, NULL);
}

/* Steps [k0, k1), whose number is a multiple of the unrolling. in_blocks: counted up to 0; all registers are
 * in use, so the next vectors of A must not be loaded early. */
static void emit_steps(em *e, const micro *m, carried *c, em_val k0, em_val k1) {
    em_val from = m->in_blocks ? em_sub(e, k0, k1) : k0, a[MAX_LANED];
    em_loop l = em_for(e, from, m->in_blocks ? zero(e) : k1, m->unroll);
    em_carries(e, &l, c->all, N_CARRIED);
    for (int u = 0; u < m->unroll; u++) {
        if (m->in_blocks && u % QUAD == 0) em_in_order(e, c->acc, m->rows * m->p->nv);
        emit_step(e, m, c, l.i, u, m->by_lane ? a : NULL);
    }
    c->a = em_gep(e, c->a, m->p->t, m->unroll * m->p->a_col_stride);
    em_end(e, &l);
}

/* What the steps [k, k + steps) prefetch. */
static void emit_block_prefetches(em *e, const micro *m, carried *c, em_val k, int steps) {
    em_val end = em_add(e, k, steps);
    for (int i = 0; i < steps; i += LANED_B_NEXT) prefetch_b_next(e, m, c, LANED_B_NEXT);
    if (m->prefetches_b_list) {
        em_loop l = em_for(e, k, end, 1);
        gemm_prefetch_b(e, m->p, m->arg.b_next, l.i);
        em_end(e, &l);
    }
    if (m->prefetches_c_list) {
        em_loop l = em_for(e, k, end, 1 << m->p->c_prefetch_shift);
        gemm_prefetch_c(e, m->p, m->arg.c_list, l.i);
        em_end(e, &l);
    }
}

/* The steps [0, k) in blocks, with their prefetches. */
static void emit_blocks_of_steps(em *e, const micro *m, carried *c, em_val k) {
    em_loop l = em_for(e, 0, k, LANED_BLOCK);
    em_carries(e, &l, c->all, N_CARRIED);
    emit_block_prefetches(e, m, c, l.i, LANED_BLOCK);
    emit_steps(e, m, c, l.i, em_imin(e, em_add(e, l.i, LANED_BLOCK), k));
    em_end(e, &l);
}

/* All k steps by lane: whole iterations, then whole vectors of A, then single steps. */
static void emit_laned_steps(em *e, const micro *m, carried *c, em_val k) {
    micro part = *m;
    em_val from = em_round_down(e, k, m->unroll), to = em_round_down(e, k, QUAD);
    if (m->in_blocks)
        emit_blocks_of_steps(e, m, c, from);
    else
        emit_steps(e, m, c, zero(e), from);
    part.unroll = QUAD;
    if (m->unroll > part.unroll) emit_steps(e, &part, c, from, to);
    part.unroll = 1;
    part.by_lane = false;
    emit_steps(e, &part, c, to, k);
}

/* All k steps; the last `rest` are behind a loop. */
static void emit_all_steps(em *e, const micro *m, carried *c, em_val k, int rest) {
    if (m->by_lane && !m->is_1x2) {
        emit_laned_steps(e, m, c, k);
        return;
    }
    if (counts_steps(m->p)) {
        emit_counted_steps(e, m, c, k, rest);
        return;
    }
    k = em_sub(e, k, rest);
    emit_steps(e, m, c, zero(e), k);
    for (int u = 0; u < rest; u++) emit_step(e, m, c, k, u, NULL);
}

/* Packs a line of each row of the next MC block over the line that starts at step k, which was read
 * for the last time. Later lines are prefetched into L2 only: rows a multiple of 4 KB apart would
 * evict each other from L1. */
static void pack_line(em *e, const micro *m, em_val k) {
    enum { DISTANCE = 8 * GEMM_LINE };
    const gemm_plan *p = m->p;
    em_val src = em_gep(e, m->arg.next_a, p->t, k), dst = em_gep(e, m->arg.a, p->t, k);
    for (int i = 0; i < m->rows; i++) {
        em_val from = em_gep(e, src, p->t, i * p->g->a.row.value);
        em_val to = em_gep(e, dst, p->t, i * p->a_row_stride);
        for (int j = 0; j < GEMM_LINE / p->esize; j += p->lanes) {
            em_val v = em_load(e, p->t, em_gep(e, from, p->t, j), p->lanes);
            em_store(e, p->t, em_gep(e, to, p->t, j), v);
        }
        em_prefetch(e, em_gep_bytes(e, from, DISTANCE), false, 2);
    }
}

/* All steps with packing: a loop nest, because LLVM would interleave the copy with the
 * multiply-adds of a single loop. */
static void emit_packing_steps(em *e, const micro *m, carried *c, em_val k) {
    em_val line = em_i64(e, GEMM_LINE / m->p->esize);
    em_loop l = em_for(e, 0, k, line);
    em_carries(e, &l, c->all, N_CARRIED);
    if (m->in_blocks) emit_block_prefetches(e, m, c, l.i, GEMM_LINE / m->p->esize);
    emit_steps(e, m, c, l.i, em_add(e, l.i, line));
    pack_line(e, m, l.i);
    em_end(e, &l);
}

/* What accumulator i starts with where k does: 0, or what the panel says. */
static em_val first_sum(em *e, const micro *m, int i) {
    const gemm_plan *p = m->p;
    em_val none = em_splat(e, em_const(p->t == SN_I32 ? e->i32 : e->ft, 0), p->lanes);
    if (!p->dot->unsigns_a) return none;
    em_val b = em_gep(e, m->arg.b, p->b_type, i % p->nv * p->lanes - p->panel);
    if (m->is_1x2 && i >= p->nv) b = em_gep(e, b, p->b_type, m->arg.b_stride);
    return em_load(e, p->t, b, p->lanes);
}

/* Accumulators start at that, or at the partial C that the KC block before left. */
static void load_accumulators(em *e, const micro *m, em_val *acc) {
    const gemm_plan *p = m->p;
    em_val continues = em_splat(e, em_cmp(e, EM_NE, m->arg.pc, 0), p->lanes);
    for (int i = 0; i < m->rows * m->panels * p->nv; i++) {
        int at = i / p->nv * p->panel + i % p->nv * p->lanes;
        bool blocked = p->k_blocked && !m->is_1x2;
        acc[i] = first_sum(e, m, i);
        if (!blocked) continue;
        em_val from = em_gep(e, m->arg.tile, p->t, at);
        acc[i] = em_load_mask(e, p->t, from, p->lanes, continues, acc[i]);
    }
}

static void store_accumulators(em *e, const micro *m, const em_val *acc) {
    const gemm_plan *p = m->p;
    bool direct = p->direct_c && !m->is_1x2;
    em_val to = direct ? m->arg.c : m->arg.tile;
    em_val row = direct ? m->arg.c_stride : em_i64(e, p->panel);
    for (int i = 0; i < m->rows * m->panels * p->nv; i++) {
        em_val at = em_add(e, em_mul(e, i / p->nv, row), i % p->nv * p->lanes);
        em_store(e, p->t, em_gep(e, to, p->t, at), acc[i]);
    }
}

em_val gemm_emit_ukr(em *e, const gemm_plan *p, int rows, gemm_ukr_kind kind) {
    static const char *const names[] = {"ukr%d", "ukr_1x2", "ukr_packed_a%d", "ukr_packing_a%d"};
    char suffix[32];
    snprintf(suffix, sizeof suffix, names[kind], rows);
    em_val fn = gemm_ukr_function(e, gemm_name_of(p, suffix).text);
    em_no_inline(e, fn);
    gemm_ukr_args arg = gemm_ukr_params(e);
    bool is_1x2 = kind == GEMM_UKR_1X2, packing = kind == GEMM_UKR_PACKING_A, full = rows == p->mr;
    bool in_place = p->pack_a_per_call && kind < GEMM_UKR_PACKED_A;
    micro m = {.p = p,
               .arg = arg,
               .rows = rows,
               .panels = is_1x2 ? 2 : 1,
               .unroll = choose_unroll(p, rows, kind),
               .is_1x2 = is_1x2,
               .prefetches_b_list = full && p->b_prefetch,
               .prefetches_c_list = p->c_prefetch && rows >= p->half_mr && !is_1x2,
               .a_stride = in_place ? p->g->a.row.value : p->a_row_stride,
               .b_stride = p->b_in_place ? arg.b_stride : em_i64(e, p->panel)};
    m.by_lane = p->by_lane && m.unroll % UNROLL == 0;
    m.in_blocks = m.by_lane && full && !is_1x2;
    /* addresses of SVE's loads have no constant offsets of this size: each would need a register */
    if (m.by_lane && e->target->sve_bytes) m.b_stride = em_opaque(e, m.b_stride);
    m.skips_own_panel = full && p->small_tile && !p->pack_b && !is_1x2;
    m.next_a_lines = (p->next_a_bytes * m.unroll + GEMM_LINE - 1) / GEMM_LINE;
    carried c = {.a = arg.a,
                 .b = arg.b,
                 .b_next = full && !p->b_prefetch && !gemm_one_panel(p) ? arg.b_next : NULL,
                 .next_a = full && p->prefetch_next_a && !packing ? arg.next_a : NULL};
    bool const_k = !p->k_blocked && p->g->k.slot < 0;
    em_val k = const_k ? em_i64(e, p->g->k.value) : arg.k;
    if (p->amx) {
        gemm_emit_amx(e, p, rows, m.a_stride, k, &arg);
        em_ret(e, NULL);
        return fn;
    }
    load_accumulators(e, &m, c.acc);
    if (packing)
        emit_packing_steps(e, &m, &c, k);
    else
        emit_all_steps(e, &m, &c, k, const_k ? (int)(p->g->k.value % m.unroll) : 0);
    store_accumulators(e, &m, c.acc);
    em_ret(e, NULL);
    return fn;
}

/* One microtile of the block kernel. */
static void emit_block_tile(em *e, const micro *m) {
    int64_t k = m->p->g->k.value;
    carried c = {.a = m->arg.a, .b = m->arg.b};
    load_accumulators(e, m, c.acc);
    if (k <= m->unroll && !m->by_lane) {
        for (int u = 0; u < k; u++) emit_step(e, m, &c, zero(e), u, NULL);
    } else {
        emit_all_steps(e, m, &c, em_i64(e, k), (int)(k % m->unroll));
    }
    store_accumulators(e, m, c.acc);
}

/* For panels, for microtiles, for NR columns of the panel. */
em_val gemm_emit_block(em *e, const gemm_plan *p) {
    const em_size *row = &p->g->c.row;
    em_val fn = gemm_block_function(e, gemm_name_of(p, "block").text);
    em_no_inline(e, fn);
    gemm_block_args arg = gemm_block_params(e);
    int64_t k = p->g->k.value;
    const int unroll = k <= MAX_STRAIGHT ? (int)k : UNROLL;
    micro m = {.p = p,
               .rows = p->mr,
               .panels = 1,
               .unroll = p->by_lane ? LANED_UNROLL : unroll,
               .by_lane = p->by_lane,
               .in_blocks = p->by_lane,
               .skips_own_panel = p->small_tile,
               .a_stride = p->a_row_stride,
               .b_stride = em_i64(e, p->panel)};
    m.arg.pc = zero(e);
    m.arg.c_stride = row->slot < 0 ? em_i64(e, row->value) : arg.c_stride;
    em_val tile_a = em_i64(e, p->a_transposed ? p->kc * p->a_col_stride : p->mr * p->a_row_stride);
    em_val tile_c = em_mul(e, m.arg.c_stride, p->mr);
    em_loop jr = em_for(e, 0, arg.n_panels, 1);
    em_val b = em_gep(e, arg.b, p->b_type, em_mul(e, jr.i, p->panel * k));
    em_val c = em_gep(e, arg.c, p->t, em_mul(e, jr.i, p->panel));
    em_loop ir = em_for(e, 0, p->mc / p->mr, 1);
    m.arg.a = em_gep(e, arg.a, p->t, em_mul(e, ir.i, tile_a));
    em_val c_tile = em_gep(e, c, p->t, em_mul(e, ir.i, tile_c));
    em_loop j = em_for(e, 0, p->panel_tiles, 1);
    em_val col = em_mul(e, j.i, p->nr);
    m.arg.b = em_gep(e, b, p->b_type, col);
    m.arg.c = em_gep(e, c_tile, p->t, col);
    emit_block_tile(e, &m);
    em_end(e, &j);
    em_end(e, &ir);
    em_end(e, &jr);
    em_ret(e, NULL);
    return fn;
}
