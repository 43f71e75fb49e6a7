/* grouped.c: right operands of integers that share factors in groups along K (gemm.h): packing
 * them, one row by a panel with the integers widened in registers, and dequantizing panels that
 * several rows use. 4 bits: an i32 word holds 8 consecutive k of a column, the first in the low
 * bits, and a panel row is P words. 8 bits: a panel row is P integers. The factors of a scale group
 * are one row of P or, with minima, two, in panels of their own; so are the factors of factors. */
#include "codegen/gemm/impl.h"
#include "runtime/weights.h"

/* Prefetch distances in bytes of integers: NEAR into L1, FAR into L2. A single distance that covers
 * the latency of memory would need more outstanding misses than L1 has. */
enum { NEAR = 1024, FAR = 8192 };

/* Whether a permutation of a table in a register converts the 4-bit integers. */
static bool has_lookup(em *e, const gemm_plan *p) {
    return e->target->has_avx512 && p->lanes == 16 && p->g->groups.bits == 4;
}

/* The integer that 4 bits are. */
static int integer_of(sn_nibble nibble, int bits) {
    if (nibble == SN_NIBBLE_FP4) return sn_fp4_doubled[bits];
    return bits < 8 || nibble == SN_NIBBLE_UNSIGNED ? bits : bits - 16;
}

/* The table: 4-bit integers to float. */
static em_val make_table(em *e, const gemm_plan *p) {
    em_val t = em_vf(e, 0);
    for (int i = 1; i < 16 && has_lookup(e, p); i++)
        t = em_insert(e, t, em_f(e, integer_of(p->g->groups.nibble, i)), i);
    return t;
}

/* Integer j of each word in the compute type. The AVX-512 lookup uses only the low 4 bits. */
static em_val unpack(em *e, const gemm_plan *p, em_val words, em_val table, int j) {
    if (has_lookup(e, p)) {
        em_val args[] = {table, j ? em_lshr(e, words, em_like(e, words, 4 * j)) : words};
        return em_intrinsic(e, "llvm.x86.avx512.permvar.sf.512", NULL, 0, args, 2);
    }
    const sn_nibble nibble = p->g->groups.nibble;
    em_val high = em_shl(e, words, em_like(e, words, 28 - 4 * j)), by = em_like(e, high, 28);
    em_val q = nibble == SN_NIBBLE_SIGNED ? em_ashr(e, high, by) : em_lshr(e, high, by);
    if (nibble == SN_NIBBLE_FP4) q = gemm_fp4_value(e, q);
    return em_convert(e, q, SN_I32, p->t);
}

/* Bytes of 8 consecutive k of a panel. */
static int64_t bytes_of_8(const gemm_plan *p) {
    return (int64_t)p->panel * p->g->groups.bits;
}

/* Run-time state of the product of one row. */
typedef struct row_state {
    em_val a, q, factors, outer_scales, sums, table;
    em_val acc[2];
    bool may_overread; /* up to 3 bytes behind the words */
} row_state;

/* Integer j of 8 consecutive k, which begin at `at`, vector v. Loading 4-bit integers from byte
 * j / 2 on saves every second shift: shifts and lookups share two ports with the multiply-adds. */
static em_val load_integer(em *e, const gemm_plan *p, const row_state *s, em_val at, int v, int j) {
    if (p->g->groups.bits == 8) {
        em_val from = em_gep_bytes(e, at, j * p->panel + v * p->lanes);
        return em_convert(e, em_load(e, SN_I8, from, p->lanes), SN_I8, p->t);
    }
    int skip = s->may_overread ? j / 2 : 0;
    em_val from = em_gep_bytes(e, at, v * p->lanes * 4 + skip);
    em_val words = em_load_raw(e, em_vec(e->i32, p->lanes), from, skip ? 1 : 4);
    return unpack(e, p, words, s->table, j - 2 * skip);
}

em_val gemm_load_factor(em *e, const gemm_plan *p, const gemm_group_panel *b, int part, int c) {
    const sn_gemm_groups *g = &p->g->groups;
    em_val i = em_i64(e, part * p->panel + c);
    em_val x = em_load(e, g->factor, em_gep(e, b->factors, g->factor, i), p->lanes);
    if (!sn_dtype_is_float(g->factor)) x = em_convert(e, x, g->factor, p->t);
    if (!g->outer_group) return x;
    return em_mul(e, x, em_load(e, SN_F16, em_gep(e, b->outer_scales, SN_F16, i), p->lanes));
}

/* Elements between the factors of consecutive scale groups. */
static int factor_stride(const gemm_plan *p) {
    return p->panel * (p->g->groups.has_min ? 2 : 1);
}

gemm_group_panel gemm_group_panel_at(em *e, const gemm_plan *p, em_val b, em_val first) {
    const sn_gemm_groups *g = &p->g->groups;
    em_val at = em_mul(e, em_div(e, first, 8), bytes_of_8(p));
    gemm_group_panel r = {em_gep_bytes(e, b, at), e->scratch, e->scratch};
    if (g->unscaled) return r;
    at = em_mul(e, em_div(e, first, g->size), factor_stride(p));
    r.factors = em_gep(e, em_buf(e, g->factor_buf), g->factor, at);
    if (!g->outer_group) return r;
    at = em_mul(e, em_div(e, first, g->outer_group), factor_stride(p));
    r.outer_scales = em_gep(e, em_buf(e, g->outer_buf), SN_F16, at);
    return r;
}

gemm_group_panel gemm_group_of_panel(em *e, const gemm_plan *p, const gemm_group_panel *b,
                                     em_val group) {
    const sn_gemm_groups *g = &p->g->groups;
    gemm_group_panel r = *b;
    r.q = em_gep_bytes(e, b->q, em_mul(e, group, g->size / 8 * bytes_of_8(p)));
    r.factors = em_gep(e, b->factors, g->factor, em_mul(e, group, factor_stride(p)));
    if (!g->outer_group) return r;
    em_val row = em_div(e, group, g->outer_group / g->size);
    r.outer_scales = em_gep(e, b->outer_scales, SN_F16, em_mul(e, row, factor_stride(p)));
    return r;
}

/* Scale and minimum of columns c and following; NULL: there is none. */
static void load_factors(em *e, const gemm_plan *p, const gemm_group_panel *b, int c, em_val *f) {
    f[0] = p->g->groups.unscaled ? NULL : gemm_load_factor(e, p, b, 0, c);
    f[1] = p->g->groups.has_min ? gemm_load_factor(e, p, b, 1, c) : NULL;
}

/* Element j of 8 consecutive k. */
static em_val load_element(em *e, const gemm_plan *p, const row_state *s, em_val at, int v, int j,
                           const em_val *f) {
    em_val q = load_integer(e, p, s, at, v, j), x = f[1];
    if (!f[0]) return q;
    tile_add(e, &x, 1, q, &f[0]);
    return x;
}

/* The word that begins with it. */
static em_val load_word(em *e, const gemm_plan *p, const row_state *s, em_val at, int v, int j,
                        const em_val *f) {
    em_val x = load_element(e, p, s, at, v, j, f);
    if (p->dot->k_of_word == 1) return x;
    return tile_bf16_join(e, x, load_element(e, p, s, at, v, j + 1, f));
}

static void prefetch_bytes(em *e, em_val at, int64_t bytes) {
    for (int64_t line = 0; line < bytes; line += GEMM_LINE) {
        em_prefetch(e, em_gep_bytes(e, at, NEAR + line), false, 3);
        em_prefetch(e, em_gep_bytes(e, at, FAR + line), false, 2);
    }
}

void gemm_prefetch_group(em *e, const gemm_plan *p, em_val at) {
    prefetch_bytes(e, at, p->g->groups.size / 8 * bytes_of_8(p));
}

static void prefetch_8(em *e, const gemm_plan *p, em_val at) {
    prefetch_bytes(e, at, p->g->groups.bits == 4 ? p->nr * 4 : bytes_of_8(p));
}

/* acc += scale * (sum over a scale group of a q) + minimum * (sum of a), for n_groups groups, whose
 * sums are independent chains. */
static void add_scale_groups(em *e, const gemm_plan *p, row_state *s, int n_groups) {
    em_val sum[2][2] = {{NULL}};
    int eights = p->g->groups.size / 8;
    for (int r = 0; r < eights; r++)
        for (int g = 0; g < n_groups; g++) {
            int row = g * eights + r;
            em_val at = em_gep_bytes(e, s->q, row * bytes_of_8(p));
            prefetch_8(e, p, at);
            for (int j = 0; j < 8; j++) {
                em_val k = em_i64(e, row * 8 + j);
                em_val a = em_load_splat(e, p->t, em_gep(e, s->a, p->t, k), p->lanes);
                for (int v = 0; v < p->nv; v++) {
                    em_val q = load_integer(e, p, s, at, v, j);
                    tile_add(e, &sum[g][v], 1, a, &q);
                }
            }
        }
    for (int g = 0; g < n_groups; g++) {
        gemm_group_panel b = {.outer_scales = s->outer_scales};
        b.factors = em_gep(e, s->factors, p->g->groups.factor, g * factor_stride(p));
        em_val all = p->g->groups.has_min
                         ? em_load_splat(e, p->t, em_gep(e, s->sums, p->t, g), p->lanes)
                         : NULL;
        for (int v = 0; v < p->nv; v++) {
            em_val scale = gemm_load_factor(e, p, &b, 0, v * p->lanes);
            tile_add(e, &s->acc[v], 1, scale, &sum[g][v]);
            if (!all) continue;
            em_val min = gemm_load_factor(e, p, &b, 1, v * p->lanes);
            tile_add(e, &s->acc[v], 1, min, &all);
        }
    }
}

/* acc += words of a times words of B, in order, for n_groups groups. */
static void add_words(em *e, const gemm_plan *p, row_state *s, int n_groups) {
    const int eights = p->g->groups.size / 8, of_word = p->dot->k_of_word;
    em_val a[GEMM_TERMS], b[GEMM_TERMS], f[2][2];
    for (int r = 0; r < n_groups * eights; r++) {
        gemm_group_panel of = {.outer_scales = s->outer_scales};
        of.factors = em_gep(e, s->factors, p->g->groups.factor, r / eights * factor_stride(p));
        for (int v = 0; v < p->nv && r % eights == 0; v++)
            load_factors(e, p, &of, v * p->lanes, f[v]);
        em_val at = em_gep_bytes(e, s->q, r * bytes_of_8(p));
        prefetch_8(e, p, at);
        for (int j = 0; j < 8; j += of_word) {
            p->dot->a_terms(e, p, em_gep(e, s->a, p->t, (8 * r + j) / of_word), a);
            for (int v = 0; v < p->nv; v++) {
                p->dot->b_terms(e, p, load_word(e, p, s, at, v, j, f[v]), b);
                s->acc[v] = p->dot->multiply_add(e, p, a, b, s->acc[v]);
            }
        }
    }
}

/* Sets what the state says about the pair of scale groups `pair` of the row. */
static void begin_groups(em *e, const gemm_plan *p, row_state *s, const gemm_group_row_args *q,
                         em_val pair) {
    const sn_gemm_groups *g = &p->g->groups;
    s->a = em_gep(e, q->a, p->t, em_mul(e, pair, 2 * g->size / p->dot->k_of_word));
    s->q = em_gep_bytes(e, q->q, em_mul(e, pair, g->size / 4 * bytes_of_8(p)));
    s->factors = em_gep(e, q->factors, g->factor, em_mul(e, pair, 2 * factor_stride(p)));
    s->sums = em_gep(e, q->sums, p->t, em_mul(e, pair, 2));
    s->outer_scales = q->outer_scales;
    if (!g->outer_group) return;
    em_val row = em_div(e, pair, g->outer_group / g->size / 2);
    s->outer_scales = em_gep(e, q->outer_scales, SN_F16, em_mul(e, row, factor_stride(p)));
}

em_val gemm_emit_group_row(em *e, const gemm_plan *p, bool last) {
    const char *suffix = last ? "group_last_row" : "group_row";
    em_val fn = gemm_group_row_function(e, gemm_name_of(p, suffix).text);
    em_no_inline(e, fn);
    gemm_group_row_args q = gemm_group_row_params(e);
    const sn_gemm_groups *g = &p->g->groups;
    int64_t pairs = p->k.value / g->size / 2;
    void (*add)(em *, const gemm_plan *, row_state *, int) =
        p->g->bf16 ? add_words : add_scale_groups;
    row_state s = {.table = make_table(e, p), .may_overread = !last && has_lookup(e, p)};
    for (int v = 0; v < p->nv; v++) s.acc[v] = em_vf(e, 0);
    em_loop l = em_for(e, 0, pairs, 1);
    em_carries(e, &l, s.acc, p->nv);
    begin_groups(e, p, &s, &q, l.i);
    add(e, p, &s, 2);
    em_end(e, &l);
    if (p->k.value / g->size % 2) {
        begin_groups(e, p, &s, &q, em_i64(e, pairs));
        add(e, p, &s, 1);
    }
    for (int v = 0; v < p->nv; v++) em_store(e, p->t, em_gep(e, q.c, p->t, v * p->lanes), s.acc[v]);
    em_ret(e, NULL);
    return fn;
}

em_val gemm_emit_group_sums(em *e, const gemm_plan *p) {
    em_val fn = gemm_group_sums_function(e, gemm_name_of(p, "group_sums").text);
    gemm_group_sums_args q = gemm_group_sums_params(e);
    int size = p->g->groups.size;
    em_loop l = em_for(e, 0, p->g->k.value / size, 1);
    em_val a = em_gep(e, q.a, p->t, em_mul(e, l.i, size)), sum = NULL;
    for (int i = 0; i < size; i += p->lanes) {
        em_val v = em_load(e, p->t, em_gep(e, a, p->t, i), p->lanes);
        sum = sum ? em_add(e, sum, v) : v;
    }
    em_store(e, p->t, em_gep(e, q.sums, p->t, l.i), em_reduce(e, EM_SUM, sum));
    em_end(e, &l);
    em_ret(e, NULL);
    return fn;
}

em_val gemm_emit_dequantize(em *e, const gemm_plan *p) {
    em_val fn = gemm_dequantize_function(e, gemm_name_of(p, "dequantize").text);
    gemm_dequantize_args q = gemm_dequantize_params(e);
    const sn_gemm_groups *g = &p->g->groups;
    row_state s = {.table = make_table(e, p)};
    const int of_word = p->dot->k_of_word;
    em_loop l = em_for(e, 0, q.n_groups, 1);
    gemm_group_panel b = {q.q, q.factors, q.outer_scales};
    b = gemm_group_of_panel(e, p, &b, l.i);
    em_loop r = em_for(e, 0, g->size / 8, 1);
    em_val row = em_add(e, em_mul(e, l.i, g->size / 8), r.i);
    em_val from = em_gep_bytes(e, b.q, em_mul(e, r.i, bytes_of_8(p)));
    em_val to = em_gep(e, q.dst, p->t, em_mul(e, row, 8 / of_word * p->panel));
    for (int c = 0; c < p->panel; c += p->lanes) {
        em_val f[2];
        load_factors(e, p, &b, c, f);
        for (int j = 0; j < 8; j += of_word)
            em_store(e, p->t, em_gep(e, to, p->t, j / of_word * p->panel + c),
                     load_word(e, p, &s, from, c / p->lanes, j, f));
    }
    em_end(e, &r);
    em_end(e, &l);
    em_ret(e, NULL);
    return fn;
}

/* The words of p->lanes columns from 8 consecutive integers i8 each, which begin `lane` times 8 bytes
 * behind src. */
static em_val load_words(em *e, sn_nibble nibble, em_val src, em_val lane, em_val mask) {
    static const int64_t low[] = {0x0f0f0f0f0f0f0f0f, 0x00ff00ff00ff00ff, 0x0000ffff0000ffff};
    em_val x = em_gather(e, SN_I64, src, lane, mask);
    if (nibble == SN_NIBBLE_FP4) {
        em_val bytes = em_bitcast(e, x, em_vec(e->i8, 8 * em_lanes_of(x)));
        x = em_bitcast(e, gemm_fp4_code(e, bytes), LLVMTypeOf(x));
    }
    for (int i = 0; i < 3; i++) { /* 4, 8, 16 bits beside the same number of them */
        x = em_and(e, x, em_splat(e, low[i], em_lanes_of(x)));
        x = em_or(e, x, em_lshr(e, x, em_like(e, x, 4 << i)));
    }
    return em_convert(e, x, SN_I64, SN_I32);
}

em_val gemm_emit_words_pack(em *e, const gemm_plan *p, const sn_gemm_pack *g) {
    em_val fn = gemm_pack_b_function(e, gemm_name_of(p, "pack_b").text);
    gemm_pack_b_args q = gemm_pack_b_params(e);
    e->buf = q.buf;
    e->dim = q.dim;
    const sn_dtype dtype = g->dtype;
    em_val row_stride = em_size_value(e, g->row), col_stride = em_size_value(e, g->col);
    em_val lane = em_mul(e, em_iota(e, e->i64, p->lanes), em_splat(e, col_stride, p->lanes));
    bool eights = dtype == SN_I8 && gemm_is(g->row, 1) && g->col.slot < 0 && g->col.value % 8 == 0;
    if (eights) lane = em_lshr(e, lane, em_like(e, lane, 3));
    em_loop l = em_for(e, 0, q.kb, 8);
    em_val to = em_mul(e, em_div(e, l.i, 8), p->panel);
    for (int c = 0; c < p->panel; c += p->lanes) {
        int64_t j0 = c % p->epi_cols; /* within a half of pairs */
        em_val mask = em_tail_mask(e, em_sub(e, q.n_cols, j0), p->lanes);
        em_val words = NULL;
        em_val column = em_i64(e, j0 + c / p->epi_cols * g->half_width);
        column = em_mul(e, column, col_stride);
        if (eights)
            words = load_words(e, g->nibble, em_gep(e, q.src, dtype, em_add(e, l.i, column)), lane,
                               mask);
        for (int j = 0; !eights && j < 8; j++) {
            em_val at = em_add(e, em_mul(e, em_add(e, l.i, j), row_stride), column);
            em_val x = em_gather(e, dtype, em_gep(e, q.src, dtype, at), lane, mask);
            em_val i = em_convert(e, x, sn_dtype_is_float(dtype) ? p->t : dtype, SN_I32);
            if (g->nibble == SN_NIBBLE_FP4) i = gemm_fp4_code(e, i);
            i = em_shl(e, em_and(e, i, em_like(e, i, 15)), em_like(e, i, 4 * j));
            words = words ? em_or(e, words, i) : i;
        }
        em_val at = em_gep(e, q.dst, SN_I32, em_add(e, to, c));
        em_store(e, SN_I32, at, words);
    }
    em_end(e, &l);
    em_ret(e, NULL);
    return fn;
}
