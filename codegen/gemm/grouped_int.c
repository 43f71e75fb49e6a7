/* grouped_int.c: products of rows of i8 with right operands of grouped integers, by the integer
 * units (gemm.h): exact sums of each scale group in i32, multiplied by the factors in f32.
 *
 * A word is an i32 that holds consecutive k of a row or a column: four bytes, or two i16 where a
 * product of bytes could overflow (8 bits without dot products of four). Bytes of B are unsigned: an
 * offset (8 or 128) makes them so, and the sum of the row over the group, times the offset, is
 * subtracted. Half of a stored word of eight 4-bit integers, masked, is a word of every second k,
 * hence packed rows of A have k in the order 0 2 4 6, 1 3 5 7. */
#include "codegen/gemm/impl.h"
#include "runtime/memory.h"

enum {
    MAX_UNPACKED_K = 512, /* of a panel at a time: it stays in L1 with the rows that it meets */
    ROWS_SIXTEENTHS = 6,  /* of L2: packed rows of A, which stay there */
    MAX_ROWS = 512,
    SHORT_SUMS = 8, /* words whose products of pairs, up to 2 * 15 * 127, an i16 holds the sum of */
    FP4_SUMS = 4,   /* the same for doubled floats of 4 bits: up to 2 * 24 * 127 */
    UNROLL = 2,     /* words */
    LANES_16 = 2    /* index of 16 lanes in the tables below */
};

/* ---- plan ---- */

static int64_t align_line(int64_t bytes) {
    return SN_ROUND_UP(bytes, GEMM_LINE);
}

/* Places what the loops keep in scratch: sums of C for a panel, packed rows of A, the unpacked
 * panel and its factors, and a row of A in the compute type (8 bits, M = 1), with room behind it. */
static void place(gemm_plan *p) {
    const sn_gemm_groups *g = &p->g->groups;
    gemm_ints *x = &p->ints;
    int64_t groups = p->g->k.value / g->size;
    x->comp_offset = p->g->k.value * 4 / x->k_of_word;
    x->sums_offset = x->comp_offset + (x->offset ? groups * 4 : 0);
    x->row_scale_offset = x->sums_offset + (g->has_min ? groups * 4 : 0);
    int64_t lines = align_line(x->row_scale_offset + (p->g->row_scale ? 4 : 0)) / GEMM_LINE;
    x->row_bytes = (lines | 1) * GEMM_LINE; /* an odd number of lines: different sets of L1 */
    x->mc = p->l2_bytes / 16 * ROWS_SIXTEENTHS / x->row_bytes;
    if (x->mc > MAX_ROWS) x->mc = MAX_ROWS;
    const em_size *m = &p->g->m;
    if (m->slot < 0 && m->value < x->mc) x->mc = m->value;
    x->mc = x->mc < x->mr ? x->mr : SN_ROUND_UP(x->mc, x->mr);
    bool small =
        MAX_UNPACKED_K % g->size == 0 && (!g->outer_group || MAX_UNPACKED_K % g->outer_group == 0);
    x->kc = small ? MAX_UNPACKED_K : 2 * MAX_UNPACKED_K;
    int64_t parts = g->has_min ? 2 : 1;
    x->b_offset = align_line(x->mc * p->panel * 4);
    x->factors_offset = x->b_offset + x->kc / x->k_of_word * p->panel * 4;
    p->a_offset = x->factors_offset + align_line(x->kc / g->size * parts * p->panel * 4);
    p->a_row_stride = align_line(p->g->k.value * p->esize) / p->esize + GEMM_LINE / p->esize;
    int64_t rows = x->mc * x->row_bytes, row = p->a_row_stride * p->esize;
    p->sums_offset = p->a_offset + (rows > row ? rows : row);
    p->sort_offset = p->sums_offset + SN_ROUND_UP(g->has_min ? groups * p->esize : 0, 8);
    p->scratch_bytes = p->sort_offset + p->g->n_blocks * 8;
}

void gemm_plan_ints(gemm_plan *p, const sn_target *t) {
    const sn_gemm *g = p->g;
    gemm_ints *x = &p->ints;
    bool bytes = gemm_is(g->a.col, 1) && (g->row_scale || (g->a.dtype == SN_I8 && !g->prologue));
    x->on = g->groups.size && bytes && sn_target_multiplies_bytes(t);
    if (!x->on) return;
    bool pairs = !t->has_vnni && g->groups.bits == 8;
    x->k_of_word = pairs ? 2 : 4;
    x->sums_shorts = !t->has_vnni && !pairs;
    static const int of_nibble[SN_NIBBLES] = {8, 0, GEMM_FP4_OFFSET};
    x->offset = pairs ? 0 : g->groups.bits == 8 ? 128 : of_nibble[g->groups.nibble];
    x->mr = p->lanes == 16 || t->vector_regs == 32 ? 8 : 4;
    place(p);
}

/* ---- dot products of words ---- */

static int lanes_index(const gemm_plan *p) {
    return p->lanes == 16 ? LANES_16 : p->lanes / 8;
}

static em_val as(em *e, em_val v, em_type elem, int lanes) {
    return em_bitcast(e, v, em_vec(elem, lanes));
}

/* Sums of two neighbouring products of i16, as i32. */
static em_val multiply_pairs(em *e, const gemm_plan *p, em_val a, em_val b) {
    static const char *const names[] = {"llvm.x86.sse2.pmadd.wd", "llvm.x86.avx2.pmadd.wd",
                                        "llvm.x86.avx512.pmaddw.d.512"};
    em_val args[] = {as(e, a, e->i16, 2 * p->lanes), as(e, b, e->i16, 2 * p->lanes)};
    return em_intrinsic(e, names[lanes_index(p)], NULL, 0, args, 2);
}

/* Sums of two neighbouring products of bytes (b unsigned), as i16. */
static em_val multiply_bytes(em *e, const gemm_plan *p, em_val b, em_val a) {
    static const char *const names[] = {"llvm.x86.ssse3.pmadd.ub.sw.128",
                                        "llvm.x86.avx2.pmadd.ub.sw",
                                        "llvm.x86.avx512.pmaddubs.w.512"};
    em_val args[] = {as(e, b, e->i8, 4 * p->lanes), as(e, a, e->i8, 4 * p->lanes)};
    return em_intrinsic(e, names[lanes_index(p)], NULL, 0, args, 2);
}

/* sum + sums of the four products of bytes (b unsigned) in each word. */
static em_val dot_bytes(em *e, const gemm_plan *p, em_val sum, em_val b, em_val a) {
    static const char *const names[] = {"llvm.x86.avx512.vpdpbusd.128",
                                        "llvm.x86.avx512.vpdpbusd.256",
                                        "llvm.x86.avx512.vpdpbusd.512"};
    if (e->target->arch == SN_ARCH_X86_64)
        return em_intrinsic(e, names[lanes_index(p)], NULL, 0, (em_val[]){sum, b, a}, 3);
    em_type types[] = {em_vec(e->i32, p->lanes), em_vec(e->i8, 4 * p->lanes)};
    em_val args[] = {sum, as(e, b, e->i8, 4 * p->lanes), as(e, a, e->i8, 4 * p->lanes)};
    if (e->target->sve_bytes) return em_sve(e, "llvm.aarch64.sve.usdot", true, args, 3);
    return em_intrinsic(e, "llvm.aarch64.neon.usdot", types, 2, args, 3);
}

/* sum + the products of a word. sums_shorts: i16. */
static em_val add_word(em *e, const gemm_plan *p, em_val sum, em_val b, em_val a) {
    if (p->ints.k_of_word == 4 && !p->ints.sums_shorts) return dot_bytes(e, p, sum, b, a);
    return em_add(e, sum,
                  p->ints.sums_shorts ? multiply_bytes(e, p, b, a) : multiply_pairs(e, p, a, b));
}

/* ---- packing A ---- */

/* `n` integers of a row as words; 4 bits: in the order of the stored words. */
static void store_words(em *e, const gemm_plan *p, em_val x, em_val to, int n) {
    int order[32];
    for (int i = 0; i < n; i++) order[i] = i / 8 * 8 + i % 4 * 2 + i / 4 % 2;
    if (p->ints.k_of_word == 2) x = em_int_cast(e, x, e->i16);
    if (p->g->groups.bits == 4) x = em_shuffle(e, x, x, order, n);
    em_store_raw(e, x, to, 4);
}

em_val gemm_emit_int_pack_a(em *e, const gemm_plan *p) {
    em_val fn = gemm_int_pack_a_function(e, gemm_name_of(p, "pack_rows").text);
    gemm_int_pack_a_args q = gemm_int_pack_a_params(e);
    const sn_gemm *g = p->g;
    const gemm_ints *x = &p->ints;
    int size = g->groups.size, n = size % 32 ? 16 : 32;
    e->buf = q.buf;
    e->dim = q.dim;
    em_loop rows = em_for(e, 0, q.n_rows, 1);
    em_val to = em_gep_bytes(e, q.dst, em_mul(e, rows.i, x->row_bytes));
    sn_gemm_at at = {.batch = {q.batch0, q.batch1, q.batch2},
                     .row = em_add(e, q.row, rows.i),
                     .col = zero(e),
                     .lanes = n};
    if (g->n_blocks) at.row = gemm_row_of_a(e, p, gemm_sorted_row(e, q.batch0, at.row));
    em_val from = em_gep(e, q.a, g->a.dtype, em_mul(e, at.row, em_size_value(e, g->a.row)));
    em_val state[SN_GEMM_STATE] = {NULL};
    if (g->row_scale) {
        g->row_prologue(g->ctx, e, &at, state);
        em_store(e, SN_F32, em_gep_bytes(e, to, x->row_scale_offset), state[g->n_state - 1]);
    }
    em_loop l = em_for(e, 0, g->k.value / size, 1);
    em_val sum = NULL;
    for (int i = 0; i < size; i += n) {
        em_val k = at.col = em_add(e, em_mul(e, l.i, size), i);
        em_val a = em_load(e, g->a.dtype, em_gep(e, from, g->a.dtype, k), n);
        if (g->row_scale) a = g->prologue(g->ctx, e, a, &at, state);
        store_words(e, p, a, em_gep_bytes(e, to, em_mul(e, k, 4 / x->k_of_word)), n);
        em_val wide = em_int_cast(e, a, e->i32);
        sum = sum ? em_add(e, sum, wide) : wide;
    }
    sum = em_reduce(e, EM_SUM, sum);
    em_val group = em_mul(e, l.i, 4);
    if (x->offset) {
        em_val comp = em_mul(e, sum, em_i32(e, -x->offset));
        em_store_raw(e, comp, em_gep_bytes(e, to, em_add(e, group, x->comp_offset)), 4);
    }
    if (g->groups.has_min)
        em_store(e, p->t, em_gep_bytes(e, to, em_add(e, group, x->sums_offset)),
                 em_convert(e, sum, SN_I32, p->t));
    em_end(e, &l);
    em_end(e, &rows);
    em_ret(e, NULL);
    return fn;
}

/* ---- words of B ---- */

static em_val constant(em *e, const gemm_plan *p, uint32_t bits) {
    return em_splat(e, em_i32(e, (int32_t)bits), p->lanes);
}

/* Half 0 or 1 of stored words of 4-bit integers. Both halves share the operation that adds the
 * offset, except with AVX-512, where it is part of the mask's (vpternlogd). */
static em_val half_of(em *e, const gemm_plan *p, em_val words, int half) {
    const bool fp4 = p->g->groups.nibble == SN_NIBBLE_FP4;
    bool add = p->ints.offset && !fp4, before = add && !e->target->has_avx512;
    if (before) words = em_xor(e, words, constant(e, p, 0x88888888));
    if (half) words = em_lshr(e, words, em_like(e, words, 4));
    words = em_and(e, words, constant(e, p, 0x0f0f0f0f));
    if (fp4) return gemm_fp4_bytes(e, words);
    return add && !before ? em_xor(e, words, constant(e, p, 0x08080808)) : words;
}

static em_val load_words(em *e, const gemm_plan *p, em_val from, int64_t offset) {
    return em_load_raw(e, em_vec(e->i32, p->lanes), em_gep_bytes(e, from, offset), 4);
}

/* A word of p->lanes columns of 8 bits, from the rows of a panel that begin at `from`. */
static em_val join_bytes(em *e, const gemm_plan *p, em_val from) {
    int n = p->ints.k_of_word, bits = 32 / n;
    em_val words = NULL;
    for (int j = 0; j < n; j++) {
        em_val k = em_load(e, SN_I8, em_gep_bytes(e, from, j * p->panel), p->lanes);
        k = em_int_cast(e, k, e->i32);
        if (j + 1 < n) k = em_and(e, k, constant(e, p, (UINT32_C(1) << bits) - 1));
        if (j) k = em_shl(e, k, em_like(e, k, j * bits));
        words = words ? em_or(e, words, k) : k;
    }
    return p->ints.offset ? em_xor(e, words, constant(e, p, 0x80808080)) : words;
}

/* Unpacks 8 consecutive k of p->lanes columns from column c on. */
static void unpack_8(em *e, const gemm_plan *p, em_val from, em_val to, int c) {
    int row = p->panel * 4, words = 8 / p->ints.k_of_word;
    for (int j = 0; j < words; j++) {
        em_val x =
            p->g->groups.bits == 4
                ? half_of(e, p, load_words(e, p, from, 4 * c), j)
                : join_bytes(e, p, em_gep_bytes(e, from, j * p->ints.k_of_word * p->panel + c));
        em_store_raw(e, x, em_gep_bytes(e, to, j * row + c * 4), 4);
    }
}

em_val gemm_emit_int_unpack(em *e, const gemm_plan *p) {
    em_val fn = gemm_int_unpack_function(e, gemm_name_of(p, "unpack").text);
    gemm_int_unpack_args q = gemm_int_unpack_params(e);
    const sn_gemm_groups *g = &p->g->groups;
    int parts = g->has_min ? 2 : 1, eights = g->size / 8;
    em_loop l = em_for(e, 0, q.n_groups, 1);
    gemm_group_panel b = {q.q, q.factors, q.outer_scales};
    b = gemm_group_of_panel(e, p, &b, l.i);
    em_val to = em_gep(e, q.dst_factors, p->t, em_mul(e, l.i, parts * p->panel));
    for (int part = 0; part < parts; part++)
        for (int c = 0; c < p->panel; c += p->lanes)
            em_store(e, p->t, em_gep(e, to, p->t, part * p->panel + c),
                     gemm_load_factor(e, p, &b, part, c));
    em_loop r = em_for(e, 0, eights, 1);
    em_val row = em_add(e, em_mul(e, l.i, eights), r.i);
    for (int c = 0; c < p->panel; c += p->lanes)
        unpack_8(e, p, em_gep_bytes(e, b.q, em_mul(e, r.i, p->panel * g->bits)),
                 em_gep_bytes(e, q.dst, em_mul(e, row, 8 / p->ints.k_of_word * p->panel * 4)), c);
    em_end(e, &r);
    em_end(e, &l);
    em_ret(e, NULL);
    return fn;
}

/* ---- products ---- */

/* A scale group of B and of rows of A. */
typedef struct group {
    em_val b; /* words, or stored words of 4 bits */
    bool stored;
    em_val a;    /* words of row 0; the next rows are row_bytes further */
    em_val comp; /* of row 0; the sum is sums_offset - comp_offset further */
} group;

/* Something of row r in a packed row. */
static em_val row_address(em *e, const gemm_plan *p, em_val row0, int r, int64_t offset) {
    return em_gep_bytes(e, row0, r * p->ints.row_bytes + offset);
}

/* Word `step` behind `at` in the group, vector v of the columns. */
static em_val word_of(em *e, const gemm_plan *p, const group *s, em_val at, int step, int v) {
    int row = p->panel * 4, col = v * p->lanes * 4;
    if (!s->stored) return load_words(e, p, at, step * row + col);
    return half_of(e, p, load_words(e, p, at, step / 2 * row + col), step % 2);
}

/* sum[r * nv + v] += the products of row r and vector v, for `n` words from `step` on. */
static void add_words(em *e, const gemm_plan *p, const group *s, em_val step, int n, int rows,
                      int nv, em_val *sum) {
    em_val b_at = em_gep_bytes(e, s->b, em_mul(e, step, p->panel * (s->stored ? 2 : 4)));
    em_val a_at = em_gep_bytes(e, s->a, em_mul(e, step, 4));
    for (int u = 0; u < n; u++) {
        em_val b[8];
        for (int v = 0; v < nv; v++) b[v] = word_of(e, p, s, b_at, u, v);
        for (int r = 0; r < rows; r++) {
            em_val a = em_load(e, SN_I32, row_address(e, p, a_at, r, u * 4), 1);
            a = em_splat(e, a, p->lanes);
            for (int v = 0; v < nv; v++) sum[r * nv + v] = add_word(e, p, sum[r * nv + v], b[v], a);
        }
    }
}

/* The products of row r and vector v of words [first, end), added to sum[r * nv + v]. A loop, because
 * LLVM would reorder straight code and spill; the sums of a single row fit. */
static void sum_words(em *e, const gemm_plan *p, const group *s, int first, int end, int rows,
                      int nv, em_val *sum) {
    int by = rows > 1 ? UNROLL : end - first, n = rows * nv;
    em_loop l = em_for(e, first, end, by);
    em_carries(e, &l, sum, n);
    add_words(e, p, s, l.i, by, rows, nv, sum);
    em_end(e, &l);
}

/* -offset times the sum of row r, in all lanes. */
static em_val compensation(em *e, const gemm_plan *p, const group *s, int r) {
    return em_splat(e, em_load(e, SN_I32, row_address(e, p, s->comp, r, 0), 1), p->lanes);
}

/* sum[r * nv + v] = the sum of the products of row r and vector v, in the compute type. */
static void sum_group(em *e, const gemm_plan *p, const group *s, int rows, int nv, em_val *sum) {
    const gemm_ints *x = &p->ints;
    int words = p->g->groups.size / x->k_of_word, n = rows * nv;
    const int most = p->g->groups.nibble == SN_NIBBLE_FP4 ? FP4_SUMS : SHORT_SUMS;
    int run = x->sums_shorts && words > most ? most : words;
    em_val part[32], ones = em_splat(e, em_const(e->i16, 1), 2 * p->lanes);
    em_val none = em_zero(x->sums_shorts ? em_vec(e->i16, 2 * p->lanes) : em_vec(e->i32, p->lanes));
    bool starts = x->offset && !x->sums_shorts;
    for (int i = 0; i < n; i++) sum[i] = starts ? compensation(e, p, s, i / nv) : NULL;
    for (int first = 0; first < words; first += run) {
        for (int i = 0; i < n; i++) part[i] = starts ? sum[i] : none;
        sum_words(e, p, s, first, first + run, rows, nv, part);
        for (int i = 0; i < n; i++) {
            if (x->sums_shorts) part[i] = multiply_pairs(e, p, part[i], ones);
            sum[i] = sum[i] && !starts ? em_add(e, sum[i], part[i]) : part[i];
        }
    }
    for (int i = 0; i < n; i++) {
        if (x->offset && !starts) sum[i] = em_add(e, sum[i], compensation(e, p, s, i / nv));
        sum[i] = em_convert(e, sum[i], SN_I32, p->t);
    }
}

/* acc + scale * sum + minimum * (sum of the row). */
static em_val apply_factors(em *e, const gemm_plan *p, const group *s, int r, em_val acc,
                            em_val sum, em_val scale, em_val min) {
    tile_add(e, &acc, 1, scale, &sum);
    if (!min) return acc;
    em_val all = row_address(e, p, s->comp, r, p->ints.sums_offset - p->ints.comp_offset);
    all = em_load_splat(e, p->t, all, p->lanes);
    tile_add(e, &acc, 1, min, &all);
    return acc;
}

em_val gemm_emit_int_ukr(em *e, const gemm_plan *p, int rows) {
    char suffix[32];
    snprintf(suffix, sizeof suffix, "int_ukr%d", rows);
    em_val fn = gemm_int_ukr_function(e, gemm_name_of(p, suffix).text);
    em_no_inline(e, fn);
    gemm_int_ukr_args q = gemm_int_ukr_params(e);
    const sn_gemm_groups *g = &p->g->groups;
    int words = g->size / p->ints.k_of_word, parts = g->has_min ? 2 : 1;
    em_loop l = em_for(e, 0, q.n_groups, 1);
    group s = {.b = em_gep_bytes(e, q.b, em_mul(e, l.i, words * p->panel * 4)),
               .a = em_gep_bytes(e, q.a, em_mul(e, l.i, words * 4)),
               .comp = em_gep_bytes(e, q.comp, em_mul(e, l.i, 4))};
    em_val factors = em_gep(e, q.factors, p->t, em_mul(e, l.i, parts * p->panel));
    em_val sum[32], f[2][8] = {{NULL}};
    sum_group(e, p, &s, rows, p->nv, sum);
    for (int part = 0; part < parts; part++)
        for (int v = 0; v < p->nv; v++) {
            em_val at = em_i64(e, part * p->panel + v * p->lanes);
            f[part][v] = em_load(e, p->t, em_gep(e, factors, p->t, at), p->lanes);
        }
    for (int i = 0; i < rows * p->nv; i++) {
        int r = i / p->nv, v = i % p->nv;
        em_val at = em_gep(e, q.acc, p->t, r * p->panel + v * p->lanes);
        em_val acc = em_load(e, p->t, at, p->lanes);
        em_store(e, p->t, at, apply_factors(e, p, &s, r, acc, sum[i], f[0][v], f[1][v]));
    }
    em_end(e, &l);
    em_ret(e, NULL);
    return fn;
}

em_val gemm_emit_int_row(em *e, const gemm_plan *p) {
    em_val fn = gemm_int_row_function(e, gemm_name_of(p, "int_row").text);
    em_no_inline(e, fn);
    gemm_int_row_args q = gemm_int_row_params(e);
    const sn_gemm_groups *g = &p->g->groups;
    int nv = p->panel / p->lanes;
    em_val acc[8], sum[8];
    em_loop l = em_for(e, 0, p->g->k.value / g->size, 1);
    for (int v = 0; v < nv; v++) acc[v] = em_vf(e, 0);
    em_carries(e, &l, acc, nv);
    gemm_group_panel b = {q.q, q.factors, q.outer_scales};
    b = gemm_group_of_panel(e, p, &b, l.i);
    group s = {.b = b.q,
               .stored = true,
               .a = em_gep_bytes(e, q.a, em_mul(e, l.i, g->size)),
               .comp = em_gep_bytes(e, q.a, em_add(e, em_mul(e, l.i, 4), p->ints.comp_offset))};
    gemm_prefetch_group(e, p, b.q);
    sum_group(e, p, &s, 1, nv, sum);
    for (int v = 0; v < nv; v++) {
        em_val scale = gemm_load_factor(e, p, &b, 0, v * p->lanes);
        em_val min = g->has_min ? gemm_load_factor(e, p, &b, 1, v * p->lanes) : NULL;
        acc[v] = apply_factors(e, p, &s, 0, acc[v], sum[v], scale, min);
    }
    em_end(e, &l);
    for (int v = 0; v < nv; v++) em_store(e, p->t, em_gep(e, q.c, p->t, v * p->lanes), acc[v]);
    em_ret(e, NULL);
    return fn;
}
