/* pack_groups.c: quantises B and packs it in one kernel (spec `prologue` of sn_gemm_pack). A vector
 * holds the same k of consecutive columns, so that maxima and minima along k are of whole vectors.
 *
 *   for each vector of columns of a panel
 *     for each group of k
 *       for each block of k: load and transpose it; reduce          [short groups: keep it]
 *       factors of the group
 *       for each UNIT of k: [long groups: load it again;] quantise; store words or integers */
#include "codegen/gemm/impl.h"

enum {
    UNIT = 16,        /* k that are stored at a time: whole words, whole vectors */
    SHORT_GROUP = 64, /* longest group that is kept on the stack */
};

/* One vector of columns. */
typedef struct strip {
    em *e;
    const gemm_plan *p;
    const sn_gemm_pack *g;
    const sn_gemm_pack_prologue *q;
    int64_t groups;
    em_val panel, c;    /* the panel, the first column within it */
    em_val col, n_cols; /* the first column of B, how many exist from there on */
    em_val mask;        /* of these */
    em_val src, dst;    /* first element of B; of the panel, from column c on */
    em_val kept;        /* [UNIT or the size of a short group][lanes] */
    em_var sums;        /* quads: of the integers so far */
} strip;

/* v[i] = the elements k0 + i, i < lanes; columns that do not exist repeat the last one, or are 0. */
static void load_block(const strip *s, em_val k0, em_val *v) {
    em *e = s->e;
    int n = s->p->lanes;
    sn_dtype t = s->g->dtype;
    em_val row = em_size_value(e, s->g->row), col = em_size_value(e, s->g->col);
    em_val from = em_gep(e, s->src, t, em_mul(e, k0, row));
    if (!gemm_is(s->g->row, 1)) {
        for (int i = 0; i < n; i++) {
            em_val at = em_gep(e, from, t, em_mul(e, row, i));
            v[i] = gemm_load_strided(e, t, at, s->g->col, n, s->mask);
        }
        return;
    }
    for (int i = 0; i < n; i++) {
        em_val column = em_imin(e, i, em_sub(e, s->n_cols, 1));
        v[i] = em_load(e, t, em_gep(e, from, t, em_mul(e, column, col)), n);
    }
    em_transpose(e, v, n);
}

static em_val kept_at(const strip *s, em_val k) {
    return em_gep(s->e, s->kept, s->p->t, em_mul(s->e, k, s->p->lanes));
}

static void keep_block(const strip *s, em_val k, const em_val *v) {
    for (int i = 0; i < s->p->lanes; i++)
        em_store(s->e, s->p->t, kept_at(s, em_add(s->e, k, i)), v[i]);
}

/* The reductions of the group from k0 on. */
static void reduce_group(const strip *s, em_val k0, em_val *reduction) {
    em *e = s->e;
    em_var acc[SN_GEMM_REDUCTIONS];
    em_val v[64];
    for (int r = 0; r < s->q->n_reduction; r++)
        acc[r] = em_let(e, em_neutral(e, s->q->reduction[r], em_vec(e->ft, s->p->lanes)));
    em_loop l = em_for(e, 0, s->q->size, s->p->lanes);
    load_block(s, em_add(e, k0, l.i), v);
    if (s->q->size <= SHORT_GROUP) keep_block(s, l.i, v);
    for (int r = 0; r < s->q->n_reduction; r++)
        for (int i = 0; i < s->p->lanes; i++) {
            em_val x = s->q->reduced(s->q->ctx, e, r, v[i]), before = em_get(e, acc[r]);
            em_set(e, acc[r],
                   s->q->reduction[r] == EM_MAX ? em_max_nan(e, x, before)
                                                : em_min_nan(e, x, before));
        }
    em_end(e, &l);
    for (int r = 0; r < s->q->n_reduction; r++) reduction[r] = em_get(e, acc[r]);
}

static em_val lanes_of(const strip *s, em_val v) {
    return em_lanes_of(v) == 1 ? em_splat(s->e, v, s->p->lanes) : v;
}

/* Zero in columns that do not exist. */
static em_val masked(const strip *s, em_val v) {
    return em_select(s->e, s->mask, v, em_like(s->e, v, 0));
}

static void store_factor(const strip *s, int i, em_val group, em_val v) {
    em *e = s->e;
    sn_dtype t = s->q->factor_dtype[i];
    em_val to = em_buf(e, s->g->n_part + 1 + i);
    if (i < s->q->n_panels) {
        em_val row = em_add(e, em_mul(e, s->panel, s->groups), group);
        em_val at = em_add(e, em_mul(e, row, s->p->panel), s->c);
        em_store(e, t, em_gep(e, to, t, at), masked(s, v));
        return;
    }
    em_val first = em_add(e, em_mul(e, s->col, s->groups), group);
    tile_store(e, t, em_gep(e, to, t, first), em_i64(e, s->groups), v, s->mask);
}

/* Elements k .. k + n - 1 of those kept, as integers of `bits` bits from the lowest of a word on. */
static em_val join_word(const strip *s, em_val k, int n, int bits) {
    em *e = s->e;
    em_val word = NULL;
    for (int j = 0; j < n; j++) {
        em_val x = em_load(e, s->p->t, kept_at(s, em_add(e, k, j)), s->p->lanes);
        x = lanes_of(s, s->q->element(s->q->ctx, e, x));
        if (em_is_float(x)) x = em_convert(e, x, s->p->t, SN_I8);
        x = masked(s, em_convert(e, x, SN_I8, SN_I32));
        if (s->g->quads) em_set(e, s->sums, em_add(e, em_get(e, s->sums), x));
        if (j + 1 < n) x = em_and(e, x, em_like(e, x, (1 << bits) - 1));
        x = em_shl(e, x, em_like(e, x, bits * j));
        word = word ? em_or(e, word, x) : x;
    }
    return word;
}

/* Stores the elements from k on; they are kept from `at` on. */
static void store_unit(const strip *s, em_val k, em_val at) {
    em *e = s->e;
    int each = s->g->packed4 ? 8 : s->g->quads ? 4 : 1;
    for (int i = 0; i < UNIT; i += each) {
        em_val from = em_add(e, at, i), x;
        em_val row = em_div(e, em_add(e, k, i), each);
        if (each > 1) {
            x = join_word(s, from, each, 32 / each);
        } else {
            x = em_load(e, s->p->t, kept_at(s, from), s->p->lanes);
            x = masked(s, lanes_of(s, s->q->element(s->q->ctx, e, x)));
        }
        em_val to = em_mul(e, em_add(e, row, s->p->sum_rows), s->p->panel);
        em_store(e, s->p->b_type, em_gep(e, s->dst, s->p->b_type, to), x);
    }
}

static void pack_group(const strip *s, em_val group) {
    em *e = s->e;
    em_val reduction[SN_GEMM_REDUCTIONS], v[64], k0 = em_mul(e, group, s->q->size);
    bool kept = s->q->size <= SHORT_GROUP;
    reduce_group(s, k0, reduction);
    s->q->begin(s->q->ctx, e, reduction);
    for (int i = 0; i < s->q->n_factor; i++)
        store_factor(s, i, group, lanes_of(s, s->q->factor(s->q->ctx, e, i)));
    em_loop l = em_for(e, 0, s->q->size, UNIT);
    em_val k = em_add(e, k0, l.i);
    for (int i = 0; i < UNIT && !kept; i += s->p->lanes) {
        load_block(s, em_add(e, k, i), v);
        keep_block(s, em_i64(e, i), v);
    }
    store_unit(s, k, kept ? l.i : zero(e));
    em_end(e, &l);
}

void gemm_emit_pack_groups(em *e, const gemm_plan *p, const sn_gemm_pack *g, em_val panel,
                           em_val col, em_val left) {
    const sn_gemm_pack_prologue *q = g->prologue;
    strip s = {.e = e, .p = p, .g = g, .q = q, .groups = g->k.value / q->size, .panel = panel};
    s.kept = em_stack(e, p->t, (q->size <= SHORT_GROUP ? q->size : UNIT) * (int64_t)p->lanes);
    int64_t rows = g->packed4 ? g->k.value / 8 : g->quads ? g->k.value / 4 + 1 : g->k.value;
    em_loop l = em_for(e, 0, p->panel, p->lanes);
    em_val half = em_select(e, em_cmp(e, EM_LT, l.i, p->epi_cols), 0, 1);
    em_val at = em_sub(e, l.i, em_mul(e, half, p->epi_cols));
    s.c = l.i;
    s.col = em_add(e, em_add(e, col, at), em_mul(e, half, g->half_width));
    s.n_cols = em_sub(e, left, at);
    s.mask = em_tail_mask(e, s.n_cols, p->lanes);
    em_val source = em_buf(e, 0), first = zero(e);
    for (int64_t i = 1, begin = g->part_n[0]; i < g->n_part; begin += g->part_n[i++]) {
        em_val behind = em_cmp(e, EM_GE, s.col, begin);
        source = em_select(e, behind, em_buf(e, (int)i), source);
        first = em_select(e, behind, begin, first);
    }
    em_val column = em_sub(e, s.col, first);
    s.src = em_gep(e, source, g->dtype, em_mul(e, column, em_size_value(e, g->col)));
    em_val to = em_add(e, em_mul(e, panel, rows * p->panel), l.i);
    s.dst = em_gep(e, em_buf(e, g->n_part), p->b_type, to);
    em_val none = em_splat(e, em_i32(e, 0), p->lanes);
    if (g->quads) s.sums = em_let(e, none);
    em_loop groups = em_for(e, 0, s.groups, 1);
    pack_group(&s, groups.i);
    em_end(e, &groups);
    if (g->quads) {
        em_val sum = em_get(e, s.sums);
        em_store(e, SN_I32, s.dst, em_mul(e, sum, em_like(e, sum, -128)));
    }
    em_end(e, &l);
}
