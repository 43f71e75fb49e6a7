/* recurrence.c: a linear recurrence in chunks of 8 elements [Yang et al. 2024, "Gated linear attention",
 * "Parallelizing linear transformers with the delta rule"; Dao & Gu 2024, "Transformers are SSMs"]. A
 * unit of work is one carry, or a block of its columns, which stays in L1 or L2 for the whole
 * sequence. With S the carry at the chunk's beginning and D_t the product of the decays up to t:
 *
 *     y_t = (q_t D_t) S + sum over j <= t of (q_t . k_j D_t / D_j) v_j
 *     S'  = D S + sum over j of (k_j D / D_j)^T v_j
 *
 * which is a product of rows [weights | q D] with [v; S], and one of k^T with v. No quotient is
 * computed: k_j is multiplied by the decay of each later element, and read in between. So any decay is
 * exact, 0 too, and so is one above 1. With a delta rule u_t = a_t S_t is such a product, too, in which
 * u_j of the chunk's earlier elements are substituted forward. With `columns` v_j is what decays.
 *
 * Threads share the units. Bits do not depend on the number of threads. */
#include "codegen/recurrence/impl.h"
#include "codegen/emit/vmath.h"
#include "runtime/memory.h"

enum { GROUP = 4 /* elements whose weights are computed together */, LINE = 64 };

static sn_dim scratch(const sn_kernel *k, const sn_target *t) {
    rec_plan p;
    rec_plan_make(&p, k, t);
    return sn_dim_const(k->m, (p.elements + p.group * p.each) * (int64_t)sn_dtype_size(p.t));
}

/* ---- tiles ---- */

static em_loop for_vectors(em *e, const rec_plan *p, int64_t n) {
    return em_for(e, em_i64(e, 0), em_i64(e, n), em_i64(e, p->lanes));
}

static void fill(em *e, const rec_plan *p, rec_tile tile, em_val row, int64_t from, int64_t n,
                 double value) {
    em_loop l = for_vectors(e, p, n);
    rec_store(e, p, rec_at(e, p, tile, row, em_addi(e, l.i, from)), em_vf(e, value));
    em_end(e, &l);
}

/* ---- operands and results ---- */

/* A unit of work. */
typedef struct unit {
    em_val base[SN_REC_END + 3]; /* of operands and results: pointers to the first element */
    em_val next[SN_REC_END + 3]; /* the same such that next[i] + t is what follows base[i] + t */
    em_val columns;              /* of V in the block, i64; NULL: p->cols */
    em_val T, chunk;             /* first element of the chunk */
} unit;

static const sn_view *view_of(const rec_plan *p, int i) {
    const sn_step *s = p->k->step;
    return i < s->n_in ? &s->in[i] : &s->out[i - s->n_in];
}

static em_val last_stride(em *e, const rec_plan *p, const sn_view *v) {
    return sn_kernel_dim(e, p->k, v->stride[v->rank - 1]);
}

/* Mask of the vector from element i on of `n` elements, which are `count` if that is not NULL; NULL: all
 * lanes. */
static em_val mask_of(em *e, const rec_plan *p, em_val i, int64_t n, em_val count) {
    if (!count && n % p->lanes == 0) return NULL;
    return em_tail_mask(e, em_sub(e, count ? count : em_i64(e, n), i), p->lanes);
}

/* A vector of view v from element i of the row at `row` on. */
static em_val load_vector(em *e, const rec_plan *p, const sn_view *v, em_val row, em_val i,
                          em_val mask) {
    em_val stride = last_stride(e, p, v), from = em_gep(e, row, v->dtype, em_mul(e, i, stride));
    if (v->stride[v->rank - 1] == 1) return em_load_mask(e, v->dtype, from, p->lanes, mask, NULL);
    em_val index = em_mul(e, em_iota(e, e->i64, p->lanes), em_splat(e, stride, p->lanes));
    return em_gather(e, v->dtype, from, index, mask);
}

/* Rows are as far apart as the rows of all heads together, further than hardware prefetches: those of
 * the same elements in the next unit, or of the next block, arrive while this unit is computed. */
static void prefetch_row(em *e, const rec_plan *p, int i, em_val row, int64_t n) {
    const sn_view *v = view_of(p, i);
    bool result = i >= p->k->step->n_in;
    int64_t line = LINE / (int64_t)sn_dtype_size(v->dtype);
    if (v->stride[v->rank - 1] != 1) return;
    for (int64_t at = 0; at < n; at += line)
        em_prefetch(e, em_gep(e, row, v->dtype, em_i64(e, at)), result, 2);
}

/* Copies a row of n elements of operand i to a tile. */
static void load_row(em *e, const rec_plan *p, int i, em_val row, int64_t n, em_val count,
                     rec_tile tile, em_val to_row, int64_t to_col) {
    em_loop l = for_vectors(e, p, SN_ROUND_UP(n, p->lanes));
    em_val x = load_vector(e, p, view_of(p, i), row, l.i, mask_of(e, p, l.i, n, count));
    rec_store(e, p, rec_at(e, p, tile, to_row, em_addi(e, l.i, to_col)), x);
    em_end(e, &l);
}

/* Decays of an element: e^g. */
static void load_decays(em *e, const rec_plan *p, const unit *u, em_val row, em_val to_row) {
    const sn_view *v = view_of(p, SN_REC_G);
    int64_t width = p->r.columns ? p->cols : p->inner, n = p->r.columns ? p->cols : p->K;
    bool one = rec_constant(p->k, v->shape[v->rank - 1]) == 1;
    em_val same = one ? em_load(e, v->dtype, row, 1) : NULL;
    if (one) same = em_splat(e, sn_vmath_emit(e, SN_V_EXP, same), p->lanes);
    em_loop l = for_vectors(e, p, width);
    em_val count = p->r.columns ? u->columns : NULL;
    em_val d = one ? same
                   : sn_vmath_emit(e, SN_V_EXP,
                                   load_vector(e, p, v, row, l.i, mask_of(e, p, l.i, n, count)));
    rec_store(e, p, rec_at(e, p, p->decay, to_row, l.i), d);
    em_end(e, &l);
}

/* Copies n elements of a tile's row to a row of result i. */
static void store_row(em *e, const rec_plan *p, int i, em_val row, int64_t n, em_val count,
                      rec_tile tile, em_val from_row) {
    const sn_view *v = view_of(p, i);
    if (v->stride[v->rank - 1] == 1) {
        em_loop l = for_vectors(e, p, n);
        em_store_mask(e, v->dtype, em_gep(e, row, v->dtype, l.i),
                      rec_load(e, p, rec_at(e, p, tile, from_row, l.i)),
                      mask_of(e, p, l.i, n, count));
        em_end(e, &l);
        return;
    }
    em_loop l = em_for(e, em_i64(e, 0), count ? count : em_i64(e, n), em_i64(e, 1));
    em_val to = em_gep(e, row, v->dtype, em_mul(e, l.i, last_stride(e, p, v)));
    em_store(e, v->dtype, to, em_load(e, p->t, rec_at(e, p, tile, from_row, l.i), 1));
    em_end(e, &l);
}

/* Row t of operand or result i. */
static em_val element(em *e, const rec_plan *p, const unit *u, int i, em_val t) {
    const sn_view *v = view_of(p, i);
    return em_gep(e, u->base[i], v->dtype, em_mul(e, t, sn_kernel_dim(e, p->k, v->stride[0])));
}

static bool is_carry(const rec_plan *p, int i) {
    return i == SN_REC_START || i == p->k->step->n_in + 1;
}

/* V-wide operands and results, of which a unit has a block of columns. */
static bool is_of_columns(const rec_plan *p, int i) {
    return i == SN_REC_V || i >= p->k->step->n_in || is_carry(p, i) ||
           (i == SN_REC_A && !p->r.delta) || (i == SN_REC_G && p->r.columns);
}

static void prefetch_element(em *e, const rec_plan *p, const unit *u, em_val t) {
    for (int i = 0; i < p->k->step->n_in + p->k->step->n_out; i++) {
        const sn_view *v = view_of(p, i);
        em_val at = em_mul(e, t, sn_kernel_dim(e, p->k, v->stride[0]));
        if (!is_carry(p, i) && rec_constant(p->k, v->shape[v->rank - 1]) != 1)
            prefetch_row(e, p, i, em_gep(e, u->next[i], v->dtype, at),
                         is_of_columns(p, i) ? p->cols : p->K);
    }
}

/* The position of the chunk's element i, and whether it exists. */
static em_val position(em *e, const rec_plan *p, const unit *u, em_val i, em_val *exists) {
    em_val t = em_add(e, u->chunk, i);
    *exists = em_cmp(e, EM_LT, t, u->T);
    return p->r.reverse ? em_sub(e, em_subi(e, u->T, 1), t) : t;
}

/* Vectors of one element, zeros after the last one, which change nothing. */
static void load_elements(em *e, const rec_plan *p, const unit *u) {
    em_loop l = em_for(e, em_i64(e, 0), em_i64(e, REC_CHUNK), em_i64(e, 1));
    em_val exists, t = position(e, p, u, l.i, &exists);
    em_val key[REC_PAIRS], v = em_addi(e, l.i, rec_first_of(p, 0));
    for (int i = 0; i < p->pairs; i++) key[i] = em_addi(e, l.i, rec_first_of(p, i));
    em_branch br = em_if(e, exists);
    load_row(e, p, SN_REC_Q, element(e, p, u, SN_REC_Q, t), p->K, NULL, p->left, l.i, p->first);
    load_row(e, p, SN_REC_K, element(e, p, u, SN_REC_K, t), p->K, NULL, p->key, key[0], 0);
    load_row(e, p, SN_REC_V, element(e, p, u, SN_REC_V, t), p->cols, u->columns, p->right, v, 0);
    load_decays(e, p, u, element(e, p, u, SN_REC_G, t), l.i);
    prefetch_element(e, p, u, t);
    if (p->r.second)
        load_row(e, p, SN_REC_B, element(e, p, u, SN_REC_B, t), p->K, NULL, p->key, key[1], 0);
    if (p->r.delta)
        load_row(e, p, SN_REC_A, element(e, p, u, SN_REC_A, t), p->K, NULL, p->left_u, l.i,
                 p->first);
    else if (p->r.second)
        load_row(e, p, SN_REC_A, element(e, p, u, SN_REC_A, t), p->cols, u->columns, p->right,
                 key[1], 0);
    em_else(e, &br);
    fill(e, p, p->left, l.i, p->first, p->inner, 0);
    fill(e, p, p->right, v, 0, p->cols, 0);
    fill(e, p, p->decay, l.i, 0, p->decay.ld, 1);
    for (int i = 0; i < p->pairs; i++) fill(e, p, p->key, key[i], 0, p->inner, 0);
    if (p->r.delta) fill(e, p, p->left_u, l.i, p->first, p->inner, 0);
    if (p->r.second && !p->r.delta) fill(e, p, p->right, key[1], 0, p->cols, 0);
    em_endif(e, &br);
    em_end(e, &l);
}

/* The chunk's rows of result i, from a tile. */
static void store_elements(em *e, const rec_plan *p, const unit *u, int i, rec_tile tile) {
    em_loop l = em_for(e, em_i64(e, 0), em_i64(e, REC_CHUNK), em_i64(e, 1));
    em_val exists, t = position(e, p, u, l.i, &exists);
    em_branch br = em_if(e, exists);
    store_row(e, p, i, element(e, p, u, i, t), p->cols, u->columns, tile, l.i);
    em_endif(e, &br);
    em_end(e, &l);
}

/* The carry between memory and the tile; i: an operand or a result. */
static void move_carry(em *e, const rec_plan *p, const unit *u, int i, bool store) {
    const sn_view *v = view_of(p, i);
    em_loop l = em_for(e, em_i64(e, 0), em_i64(e, p->K), em_i64(e, 1));
    em_val by = em_mul(e, l.i, sn_kernel_dim(e, p->k, v->stride[v->rank - 2]));
    em_val row = em_gep(e, u->base[i], v->dtype, by), at = em_addi(e, l.i, p->first);
    if (store)
        store_row(e, p, i, row, p->cols, u->columns, p->right, at);
    else
        load_row(e, p, i, row, p->cols, u->columns, p->right, at, 0);
    em_end(e, &l);
}

/* ---- a chunk ---- */

/* Weights of elements j0 <= j < j1 of a pair in y and u of element t, and their decay at t. */
static void emit_weights(em *e, const rec_plan *p, int pair, int t, int j0, int j1) {
    int first = rec_first_of(p, pair), seen = rec_seen(p, pair, t);
    int by_u = p->r.delta ? rec_seen_by_u(p, pair, t) : 0,
        decayed = p->r.columns ? 0 : rec_decayed(p, pair, t);
    bool late = p->r.reads == SN_READS_AFTER; /* y reads after the decay */
    em_loop l = for_vectors(e, p, p->inner);
    em_val y[GROUP], u[GROUP], y0[GROUP], u0[GROUP];
    for (int j = j0; j < j1; j++) {
        y[j - j0] = y0[j - j0] = em_carry(e, &l, em_vf(e, 0));
        u[j - j0] = u0[j - j0] = by_u ? em_carry(e, &l, em_vf(e, 0)) : NULL;
    }
    em_val at = em_addi(e, l.i, p->first), q = rec_load(e, p, rec_at_const(e, p, p->left, t, at));
    em_val a = by_u ? rec_load(e, p, rec_at_const(e, p, p->left_u, t, at)) : NULL;
    em_val d = decayed ? rec_load(e, p, rec_at_const(e, p, p->decay, t, l.i)) : NULL;
    for (int j = j0; j < j1; j++) {
        em_val to = rec_at_const(e, p, p->key, first + j, l.i), k = rec_load(e, p, to);
        int i = j - j0;
        if (j < by_u) u[i] = em_fma(e, a, k, u[i]);
        if (j < seen && !late) y[i] = em_fma(e, q, k, y[i]);
        if (j < decayed) rec_store(e, p, to, k = em_mul(e, k, d));
        if (j < seen && late) y[i] = em_fma(e, q, k, y[i]);
    }
    for (int i = 0; i < j1 - j0; i++) {
        em_next(e, &l, y0[i], y[i]);
        if (by_u) em_next(e, &l, u0[i], u[i]);
    }
    em_end(e, &l);
    for (int j = j0; j < j1; j++) {
        em_val col = em_i64(e, first + j);
        if (j < seen)
            em_store(e, p->t, rec_at_const(e, p, p->left, t, col),
                     em_reduce(e, EM_SUM, em_final(e, &l, y0[j - j0])));
        if (j < by_u)
            em_store(e, p->t, rec_at_const(e, p, p->left_u, t, col),
                     em_reduce(e, EM_SUM, em_final(e, &l, u0[j - j0])));
    }
}

/* q and a of element t times the decays that the carry at the chunk's beginning has by then. */
static void emit_decays(em *e, const rec_plan *p, int t) {
    em_loop l = for_vectors(e, p, p->inner);
    em_val total = rec_at_const(e, p, p->total, 0, l.i), at = em_addi(e, l.i, p->first);
    em_val before = t ? rec_load(e, p, total) : em_vf(e, 1);
    em_val after = em_mul(e, before, rec_load(e, p, rec_at_const(e, p, p->decay, t, l.i)));
    em_val q = rec_at_const(e, p, p->left, t, at), a = rec_at_const(e, p, p->left_u, t, at);
    rec_store(e, p, q, em_mul(e, rec_load(e, p, q), p->r.reads == SN_READS_AFTER ? after : before));
    if (p->r.delta) rec_store(e, p, a, em_mul(e, rec_load(e, p, a), before));
    rec_store(e, p, total, after);
    em_end(e, &l);
}

/* `columns`: the part of y of element t that does not come from the carry, and the decays. */
static void emit_columns(em *e, const rec_plan *p, int t) {
    bool late = p->r.reads == SN_READS_AFTER;
    em_loop l = for_vectors(e, p, p->cols);
    em_val total = rec_at_const(e, p, p->total, 0, l.i), sum = em_vf(e, 0);
    em_val before = t ? rec_load(e, p, total) : em_vf(e, 1);
    em_val d = rec_load(e, p, rec_at_const(e, p, p->decay, t, l.i)), after = em_mul(e, before, d);
    for (int pair = 0; pair < p->pairs; pair++)
        for (int j = 0; j <= t; j++) {
            int row = rec_first_of(p, pair) + j, seen = rec_seen(p, pair, t);
            em_val to = rec_at_const(e, p, p->right, row, l.i), v = rec_load(e, p, to);
            em_val weight = rec_at_const(e, p, p->left, t, em_i64(e, row));
            weight = em_load_splat(e, p->t, weight, p->lanes);
            if (j < seen && !late) sum = em_fma(e, weight, v, sum);
            if (j < rec_decayed(p, pair, t)) rec_store(e, p, to, v = em_mul(e, v, d));
            if (j < seen && late) sum = em_fma(e, weight, v, sum);
        }
    rec_store(e, p, rec_at_const(e, p, p->out, t, l.i), sum);
    rec_store(e, p, rec_at_const(e, p, p->so_far, t, l.i), late ? after : before);
    rec_store(e, p, total, after);
    em_end(e, &l);
}

/* u_t += sum over j < t of (a_t . b_j) u_j, of which the products with v and S are there. */
static void substitute(em *e, const rec_plan *p, int vector, int n) {
    em_val begin = em_i64(e, (int64_t)vector * p->lanes),
           end = em_i64(e, (int64_t)(vector + n) * p->lanes);
    for (int t = 1; t < REC_CHUNK; t++) {
        em_loop l = em_for(e, begin, end, em_i64(e, p->lanes));
        em_val to = rec_at_const(e, p, p->right, t, l.i), sum = rec_load(e, p, to);
        for (int j = 0; j < t; j++) {
            em_val weight = rec_at_const(e, p, p->left_u, t, em_i64(e, j));
            sum = em_fma(e, em_load_splat(e, p->t, weight, p->lanes),
                         rec_load(e, p, rec_at_const(e, p, p->right, j, l.i)), sum);
        }
        rec_store(e, p, to, sum);
        em_end(e, &l);
    }
}

static void emit_chunk(em *e, const rec_plan *p, const unit *u) {
    int n_in = p->k->step->n_in;
    load_elements(e, p, u);
    for (int t = 0; t < REC_CHUNK; t++) {
        for (int pair = 0; pair < p->pairs; pair++) {
            int n = rec_seen(p, pair, t), decayed = p->r.columns ? 0 : rec_decayed(p, pair, t);
            if (n < decayed) n = decayed;
            for (int j = 0; j < n; j += GROUP)
                emit_weights(e, p, pair, t, j, n < j + GROUP ? n : j + GROUP);
        }
        (p->r.columns ? emit_columns : emit_decays)(e, p, t);
    }
    for (int v = 0, n; v < p->cols / p->lanes; v += n) { /* these columns of the carry stay in L1 */
        n = rec_vectors_at(e, p, v);
        if (p->r.delta) { /* u: the first rows of `right` */
            rec_emit_product(e, p, p->left_u, REC_CHUNK, p->right, v, n);
            substitute(e, p, v, n);
        }
        rec_emit_product(e, p, p->left, p->r.columns ? p->first : 0, p->out, v, n);
        rec_emit_update(e, p, v, n);
    }
    store_elements(e, p, u, n_in, p->out);
    if (p->r.delta) store_elements(e, p, u, n_in + 2, p->right);
}

/* ---- the kernel ---- */

/* Weights of later elements stay 0. */
static void clear_weights(em *e, const rec_plan *p) {
    for (int64_t t = 0; t < REC_CHUNK; t++) {
        fill(e, p, p->left, em_i64(e, t), 0, p->first, 0);
        if (p->r.delta) fill(e, p, p->left_u, em_i64(e, t), 0, p->first, 0);
    }
}

/* Pointers to unit `item`: the carry item / n_block, block item % n_block. */
static void point_to(em *e, const rec_plan *p, em_val item, em_val *base, em_val *col) {
    const sn_step *s = p->k->step;
    em_val block = em_rem(e, item, em_i64(e, p->n_block));
    em_val lead = em_div(e, item, em_i64(e, p->n_block));
    *col = em_muli(e, block, p->cols);
    for (int i = 0; i < s->n_in + s->n_out; i++) {
        const sn_view *v = view_of(p, i);
        em_val off = em_i64(e, 0), rest = lead;
        for (int a = p->r.n_lead - 1; a >= 0; a--) {
            em_val n = sn_kernel_dim(e, p->k, s->in[SN_REC_START].shape[a]);
            em_val by = sn_kernel_dim(e, p->k, v->stride[a + !is_carry(p, i)]);
            off = em_add(e, off, em_mul(e, em_rem(e, rest, n), by));
            rest = em_div(e, rest, n);
        }
        if (is_of_columns(p, i) && rec_constant(p->k, v->shape[v->rank - 1]) != 1)
            off = em_add(e, off, em_mul(e, *col, last_stride(e, p, v)));
        base[i] = em_gep(e, em_buf(e, i), v->dtype, off);
    }
}

/* Unit number i of the group that begins with item `first`. */
static void begin_unit(em *e, rec_plan *p, unit *u, em_val first, em_val i) {
    em_val col;
    point_to(e, p, em_add(e, first, i), u->base, &col);
    if (p->n_block * p->cols != p->V)
        u->columns = em_imin(e, em_sub(e, em_i64(e, p->V), col), em_i64(e, p->cols));
    p->unit = em_gep(e, e->scratch, p->t, em_addi(e, em_muli(e, i, p->each), p->elements));
}

/* What is computed after unit i of n: the same block of the next one, or the first one's next block. */
static void find_next(em *e, const rec_plan *p, unit *u, em_val first, em_val i, em_val n) {
    em_val col, more = em_addi(e, i, 1), last = em_cmp(e, EM_EQ, more, n);
    em_val item = em_add(e, first, em_select(e, last, em_i64(e, 0), more));
    em_val ahead =
        em_select(e, last, em_i64(e, p->r.reverse ? -REC_BLOCK : REC_BLOCK), em_i64(e, 0));
    point_to(e, p, item, u->next, &col);
    for (int k = 0; k < p->k->step->n_in + p->k->step->n_out; k++) {
        const sn_view *v = view_of(p, k);
        em_val by = em_mul(e, ahead, sn_kernel_dim(e, p->k, v->stride[0]));
        if (!is_carry(p, k)) u->next[k] = em_gep(e, u->next[k], v->dtype, by);
    }
}

/* The carries of a group of n units from memory to scratch or back. */
static void move_carries(em *e, rec_plan *p, unit *u, em_val first, em_val n, bool store) {
    em_loop each = em_for(e, em_i64(e, 0), n, em_i64(e, 1));
    begin_unit(e, p, u, first, each.i);
    if (!store) /* rows beyond K */
        for (int64_t k = p->K; k < p->inner; k++)
            fill(e, p, p->right, em_i64(e, p->first + k), 0, p->cols, 0);
    move_carry(e, p, u, store ? p->k->step->n_in + 1 : SN_REC_START, store);
    em_end(e, &each);
}

/* Items lo to hi in groups whose carries stay in L2. Units take turns, so that whole rows of memory are
 * read within a short time, and few pages are in use. */
static void emit(em *e, const sn_kernel *k) {
    rec_plan p;
    unit u = {.columns = NULL};
    em_val lo, hi, items;
    rec_plan_make(&p, k, e->target);
    em_kernel(e, k->name);
    items = em_i64(e, p.n_block);
    for (int a = 0; a < p.r.n_lead; a++)
        items = em_mul(e, items, sn_kernel_dim(e, k, k->step->in[SN_REC_START].shape[a]));
    em_share(e, items, &lo, &hi);
    u.T = sn_kernel_dim(e, k, k->step->in[SN_REC_Q].shape[0]);
    clear_weights(e, &p);
    em_loop group = em_for(e, lo, hi, em_i64(e, p.group));
    em_val n = em_imin(e, em_sub(e, hi, group.i), em_i64(e, p.group));
    move_carries(e, &p, &u, group.i, n, false);
    em_loop block = em_for(e, em_i64(e, 0), u.T, em_i64(e, REC_BLOCK));
    em_loop each = em_for(e, em_i64(e, 0), n, em_i64(e, 1));
    begin_unit(e, &p, &u, group.i, each.i);
    find_next(e, &p, &u, group.i, each.i, n);
    em_val end = em_imin(e, em_addi(e, block.i, REC_BLOCK), u.T);
    em_loop chunk = em_for(e, block.i, end, em_i64(e, REC_CHUNK));
    u.chunk = chunk.i;
    emit_chunk(e, &p, &u);
    em_end(e, &chunk);
    em_end(e, &each);
    em_end(e, &block);
    move_carries(e, &p, &u, group.i, n, true);
    em_end(e, &group);
    em_end_kernel(e);
}

const sn_family sn_family_recurrence = {.emit = emit, .scratch = scratch};
