/* softmax.c: from scores to weights: score and mask regions, running maximum and sum
 * [Milakov and Gimelshein, Online normalizer calculation for softmax, 2018], captured tensors. */
#include "codegen/attention/impl.h"
#include "codegen/emit/vmath.h"

#include <math.h>

static const double log2_e = 1.44269504088896340736;

/* A maximum may lag behind by this many powers of two before sums are rescaled: weights stay below
 * 2^LAG, which loses nothing in floating point, and most tiles after the first rescale nothing. */
static const double lag = 8;

/* --- 2^x -------------------------------------------------------------------------------------- */

/* Minimax polynomials (Remez, relative error 7.5e-8): on [0, 1) and on [-1/2, 1/2]. */
static const double exp2_unit[] = {0.9999999250635297,   0.6931530732000754,
                                   0.24015361704533508,  0.055826318050040215,
                                   0.008989340094708694, 0.001877576673370389};
static const double exp2_half[] = {1.0000000716546822,  0.6931469670647331,  0.24022119723848476,
                                   0.05550713273542586, 0.00967554133421605, 0.0013276471979478776};

static em_val polynomial(em *e, em_val x, const double *c) {
    em_val y = em_like(e, x, c[5]);
    for (int i = 4; i >= 0; i--) y = em_fma(e, y, x, em_like(e, x, c[i]));
    return y;
}

static em_val avx512_op(em *e, const char *name, em_val x, em_val y) {
    em_val current = em_i32(e, 4); /* rounding as the CPU is set */
    em_val all = LLVMConstAllOnes(LLVMInt16TypeInContext(e->ctx));
    em_val args[] = {x, y, em_vf(e, 0), all, current};
    return em_intrinsic(e, name, NULL, 0, args, 5);
}

em_val att_exp2(em *e, em_val x) {
    return att_exp2_above(e, x, em_elem_type(x) == e->f32 ? -126 : -1022);
}

em_val att_exp2_above(em *e, em_val x, int least) {
    em_val y;
    bool f32 = em_elem_type(x) == e->f32;
    if (!f32) {
        y = sn_vmath_emit(e, SN_V_EXP2, x);
    } else if (e->target->has_avx512 && em_lanes_of(x) == 16) {
        em_val part =
            avx512_op(e, "llvm.x86.avx512.mask.reduce.ps.512", x, em_i32(e, 1)); /* x - floor */
        y = avx512_op(e, "llvm.x86.avx512.mask.scalef.ps.512", polynomial(e, part, exp2_unit), x);
    } else { /* 1.5 2^23 moves the integer part to the low bits; from there to an exponent */
        em_val magic = em_like(e, x, 0x1.8p23), t = em_add(e, x, magic);
        em_val part = em_sub(e, x, em_sub(e, t, magic));
        em_type bits = em_vec(e->i32, em_lanes_of(x));
        em_val power = em_bitcast(e, t, bits);
        power = em_add(e, em_shl(e, power, em_like(e, power, 23)), em_like(e, power, 0x3f800000));
        y = em_mul(e, polynomial(e, part, exp2_half), em_bitcast(e, power, LLVMTypeOf(x)));
    }
    /* subnormal weights are worth nothing and would cost hundreds of cycles in each product */
    return em_select(e, em_cmp(e, EM_LT, x, em_like(e, x, least)), em_like(e, x, 0), y);
}

/* --- captured tensors ------------------------------------------------------------------------- */

const sn_attention_captured *att_captured_of(const att_tables *t, const sn_node *n, int *index) {
    *index = (int)sn_attr_int(n->in[0], SN_A_index, -1) - t->first;
    if (*index >= 0 && *index < t->a->n_captured) return &t->a->captured[*index];
    sn_fail(&t->e->err, SN_ERR_INTERNAL,
            "attention: region reads argument %d, which is not captured", *index + t->first);
    return NULL;
}

em_val att_clamp_index(em *e, em_val i, sn_gemm_size size) {
    int n = em_lanes_of(i);
    em_val zero = em_i64(e, 0), last = em_sub(e, att_size(e, size), em_i64(e, 1));
    return n > 1 ? em_imax(e, em_imin(e, i, em_splat(e, last, n)), em_splat(e, zero, n))
                 : em_imax(e, em_imin(e, i, last), zero);
}

/* Scalar indices move the base; vectors make a gather. One outside counts as the nearest inside. */
em_val att_read_table(void *ctx, const sn_node *n, const em_val *index) {
    const att_tables *t = ctx;
    em *e = t->e;
    int which;
    const sn_attention_captured *c = att_captured_of(t, n, &which);
    if (!c) return sn_emit_const(e, (sn_dtype)n->dtype, 0);
    em_val laid = t->sheets ? att_sheet_row(e, t->sheets, n) : NULL;
    if (laid) return laid;
    em_val at = att_size(e, c->offset), lanes = NULL;
    for (int i = 0; i < n->n_in - 1; i++) {
        em_val x = em_idx(e, index[i]);
        if (!att_surely_inside(t, n->in[i + 1], c->shape[i]))
            x = att_clamp_index(e, x, c->shape[i]);
        x = em_mul(e, x, att_size(e, c->stride[i]));
        if (em_lanes_of(x) > 1)
            lanes = lanes ? em_add(e, lanes, x) : x;
        else
            at = em_add(e, at, x);
    }
    em_val base = em_at(e, em_buf(e, c->buf), c->dtype, at);
    em_val v = lanes ? em_gather(e, c->dtype, base, lanes, NULL) : em_load(e, c->dtype, base, 1);
    return sn_emit_loaded(e, c->dtype, v);
}

em_val att_captured_scalar(em *e, const sn_attention *a, int i) {
    const sn_attention_captured *c = &a->captured[i];
    em_val at = em_at(e, em_buf(e, c->buf), c->dtype, att_size(e, c->offset));
    return sn_emit_loaded(e, c->dtype, em_load(e, c->dtype, at, 1));
}

em_val att_dim_value(void *ctx, const sn_node *n) {
    const att_tables *t = ctx;
    sn_dim d = sn_attr_int(n, SN_A_dim, 0);
    if (d >= 0) return em_i64(t->e, d);
    if (t->a->dim) return t->a->dim(t->a->ctx, t->e, d);
    sn_fail(&t->e->err, SN_ERR_INTERNAL, "attention: a region uses a dimension, but no way to it");
    return em_i64(t->e, 0);
}

/* Elements of a table that are looked at together; integers of 64 bits are kept as they are. */
typedef struct row_range {
    sn_dtype as;
    int n;
    em_var lo, hi; /* by lane */
} row_range;

static row_range begin_range(em *e, const sn_attention_captured *c) {
    sn_gemm_size stride = c->stride[c->rank - 1];
    row_range r = {.as = sn_dtype_size(c->dtype) < 8 ? SN_I32 : SN_I64};
    r.n = stride.slot < 0 && stride.value == 1 ? 16 : 1;
    em_val least = r.as == SN_I32 ? em_i32(e, INT32_MIN) : em_i64(e, INT64_MIN / 4);
    em_val most = r.as == SN_I32 ? em_i32(e, INT32_MAX) : em_i64(e, INT64_MAX / 4);
    r.lo = em_let(e, em_splat(e, most, r.n)), r.hi = em_let(e, em_splat(e, least, r.n));
    return r;
}

/* Minimum and maximum over the last axis from `base` (pointer to index 0 of it), lo .. hi. */
static void emit_row_range(em *e, const sn_attention_captured *c, em_val base, sn_interval last,
                           const row_range *r) {
    em_val end = em_add(e, last.hi, em_i64(e, 1)), stride = att_size(e, c->stride[c->rank - 1]);
    em_loop l = em_for(e, last.lo, end, em_i64(e, r->n));
    em_val at = em_at(e, base, c->dtype, em_mul(e, l.i, stride));
    em_val x = em_load(e, c->dtype, at, 1);
    if (r->n > 1) {
        em_val valid = em_tail_mask(e, em_sub(e, end, l.i), r->n);
        x = em_load_mask(e, c->dtype, at, r->n, valid, em_splat(e, x, r->n));
    }
    x = em_convert(e, x, c->dtype, r->as);
    em_set(e, r->lo, em_imin(e, em_get(e, r->lo), x));
    em_set(e, r->hi, em_imax(e, em_get(e, r->hi), x));
    em_end(e, &l);
}

/* Of truth values: both have been seen, so that the rest of them cannot matter. */
static em_val are_mixed(em *e, const row_range *r) {
    em_val lo = em_get(e, r->lo), hi = em_get(e, r->hi);
    em_val no = em_cmp(e, EM_EQ, lo, em_like(e, lo, 0));
    em_val yes = em_cmp(e, EM_EQ, hi, em_like(e, hi, 1));
    if (r->n == 1) return em_and(e, no, yes);
    return em_and(e, att_any_lane(e, no), att_any_lane(e, yes));
}

/* Elements that a range may have before it is taken as "anything". */
static const int64_t most_elements = 1 << 16;

sn_interval att_table_range(void *ctx, const sn_node *n, const sn_interval *index) {
    const att_tables *t = ctx;
    em *e = t->e;
    int which;
    const sn_attention_captured *c = att_captured_of(t, n, &which);
    if (!c || c->rank != n->n_in - 1 || c->rank > 4) return (sn_interval){NULL, NULL};
    sn_interval r[SN_MAX_RANK];
    em_val count = em_i64(e, 1);
    for (int i = 0; i < c->rank; i++) {
        em_val last = em_sub(e, att_size(e, c->shape[i]), em_i64(e, 1)), zero = em_i64(e, 0);
        r[i].lo = em_imax(e, em_imin(e, index[i].lo, last), zero);
        r[i].hi = em_imax(e, em_imin(e, index[i].hi, last), zero);
        count = em_mul(e, count, em_add(e, em_sub(e, r[i].hi, r[i].lo), em_i64(e, 1)));
        count = em_imin(e, count, em_i64(e, most_elements + 1));
        count = em_select(e, em_cmp(e, EM_LT, last, zero), em_i64(e, most_elements + 1), count);
    }
    em_val small = em_cmp(e, EM_LE, count, em_i64(e, most_elements));
    em_val low = em_i64(e, INT64_MIN / 4), high = em_i64(e, INT64_MAX / 4);
    em_var lo = em_let(e, low), hi = em_let(e, high); /* anything */
    em_branch br = em_if(e, small);
    row_range row = begin_range(e, c);
    em_loop l[4];
    em_val at = att_size(e, c->offset);
    for (int i = 0; i < c->rank - 1; i++) {
        l[i] = em_for(e, r[i].lo, em_add(e, r[i].hi, em_i64(e, 1)), em_i64(e, 1));
        at = em_add(e, at, em_mul(e, l[i].i, att_size(e, c->stride[i])));
    }
    em_branch more = em_if(e, n->dtype == SN_BOOL ? em_not(e, are_mixed(e, &row)) : em_i1(e, true));
    emit_row_range(e, c, em_at(e, em_buf(e, c->buf), c->dtype, at), r[c->rank - 1], &row);
    em_endif(e, &more);
    for (int i = c->rank - 2; i >= 0; i--) em_end(e, &l[i]);
    em_set(e, lo, em_int_cast(e, em_reduce(e, EM_MIN, em_get(e, row.lo)), e->i64));
    em_set(e, hi, em_int_cast(e, em_reduce(e, EM_MAX, em_get(e, row.hi)), e->i64));
    em_endif(e, &br);
    sn_interval v = {em_get(e, lo), em_get(e, hi)};
    if (n->dtype != SN_BOOL) return v;
    em_val zero = em_i64(e, 0); /* bytes 0 and 1: surely true if the least is 1 */
    return (sn_interval){em_cmp(e, EM_GT, v.lo, zero), em_cmp(e, EM_GT, v.hi, zero)};
}

/* --- regions over scores -----------------------------------------------------------------------
 */

static const sn_region *region_of(const att_plan *p, bool score) {
    if (!score) return p->a->mask;
    return p->derivative ? p->derivative : p->a->score;
}

static em_val as_index(em *e, const sn_region *r, int i, em_val v) {
    return em_int_cast(e, v, em_mem_type(e, (sn_dtype)r->arg[i]->dtype));
}

/* Sets all arguments but the key, the score and what flows back to it. */
static bool open_region(att_region *u, em *e, const att_plan *p, const sn_region *r, int first,
                        em_val batch, em_val head, em_val q) {
    u->used = r != NULL;
    if (!r) return false;
    u->first = first;
    u->tables = (att_tables){.e = e, .a = p->a, .first = first + 4};
    u->code = (sn_region_code){.at = att_read_table, .dim = att_dim_value, .ctx = &u->tables};
    if (!sn_region_begin(&u->code, e, r)) return false;
    em_val fixed[] = {batch, head, q};
    for (int i = 0; i < 3 && first + i < r->n_arg; i++)
        sn_region_arg(&u->code, first + i, as_index(e, r, first + i, fixed[i]),
                      i == 2 ? ATT_DEP_Q : ATT_DEP_HEAD);
    for (int i = first + 4; i < r->n_arg - (r == p->derivative); i++)
        if (r->arg[i]->rank == 0)
            sn_region_arg(&u->code, i, att_captured_scalar(e, p->a, i - first - 4), ATT_DEP_HEAD);
    if (first + 3 < r->n_arg) sn_region_arg(&u->code, first + 3, NULL, ATT_DEP_K);
    if (first) sn_region_arg(&u->code, 0, NULL, ATT_DEP_SCORE);
    if (r == p->derivative) sn_region_arg(&u->code, r->n_arg - 1, NULL, ATT_DEP_GRAD);
    return true;
}

static void begin_region(att_region *u, em *e, const att_plan *p, bool of_score, bool diagonal,
                         em_val batch, em_val head, em_val q) {
    if (!open_region(u, e, p, region_of(p, of_score), of_score, batch, head, q)) return;
    if (diagonal) att_diagonals_limit(&u->code, p);
    sn_region_emit(&u->code, ATT_DEP_HEAD | ATT_DEP_Q);
}

static void set_key(att_region *u, em *e, em_val k) {
    const sn_region *r = u->code.region;
    int at_k = u->first + 3;
    if (at_k < r->n_arg) sn_region_arg(&u->code, at_k, as_index(e, r, at_k, k), ATT_DEP_K);
}

bool att_region_of_differences(att_region *u, em *e, const att_plan *p, bool score,
                               const em_val of[2], em_val q, em_val k) {
    const att_diagonals *d = &p->diagonals;
    const sn_region *r = region_of(p, score);
    sn_node *root[ATT_DIAGONALS];
    int n = 0;
    for (int i = 0; i < d->n; i++)
        if (d->row[i].region == r) root[n++] = d->row[i].node;
    if (!n || !open_region(u, e, p, r, score, of[0], of[1], q)) return false;
    set_key(u, e, k);
    sn_region_only(&u->code, root, n, NULL, 0);
    sn_region_emit(&u->code, ~0u);
    return true;
}

static em_val apply_region(att_region *u, em *e, const att_plan *p, em_val score, em_val k,
                           em_val diagonal) {
    sn_region_forget(&u->code, ATT_DEP_K | ATT_DEP_SCORE | ATT_DEP_GRAD);
    set_key(u, e, k);
    if (diagonal) att_diagonals_give(&u->code, e, p, em_sub(e, diagonal, k));
    if (u->first) sn_region_arg(&u->code, 0, score, ATT_DEP_SCORE);
    sn_region_emit(&u->code, ~(uint32_t)ATT_DEP_GRAD);
    return sn_region_value(&u->code, 0);
}

void att_regions_begin(att_regions *g, em *e, const att_plan *p, bool masked, em_val batch,
                       em_val head, em_val q) {
    begin_region(&g->score, e, p, true, g->diagonal, batch, head, q);
    if (masked) begin_region(&g->mask, e, p, false, g->diagonal, batch, head, q);
}

em_val att_regions_apply(att_regions *g, em *e, const att_plan *p, em_val x, em_val k) {
    em_val at = g->diagonal;
    if (g->score.used) x = em_mul(e, apply_region(&g->score, e, p, x, k, at), em_vf(e, log2_e));
    if (g->mask.used)
        x = em_select(e, apply_region(&g->mask, e, p, NULL, k, at), x, em_vf(e, -INFINITY));
    return x;
}

void att_regions_derive(att_regions *g, em_val cotangent) {
    sn_region_arg(&g->score.code, g->score.code.region->n_arg - 1, cotangent, ATT_DEP_GRAD);
    sn_region_emit(&g->score.code, ~0u);
}

/* --- softmax of a column ---------------------------------------------------------------------- */

typedef struct column {
    em_val s, o, max_at, m_at, l_at; /* pointers to this vector's part */
    em_val lo, hi, k0, tk;
    em_val keep; /* what dropout keeps; NULL: everything */
} column;

static em_val score_at(em *e, const att_plan *p, const column *c, em_val k) {
    return em_at(e, c->s, p->t, em_mul(e, k, em_i64(e, p->qb)));
}

static em_val load_vector(em *e, const att_plan *p, em_val at) {
    return em_load_raw(e, e->vt, at, (unsigned)(p->lanes * p->esize));
}

static void store_vector(em *e, const att_plan *p, em_val x, em_val at) {
    em_store_raw(e, x, at, (unsigned)(p->lanes * p->esize));
}

/* Scores through the regions, in place; returns their maximum. Four keys at a time: beyond the last
 * key the scores repeat it (see `scores`), which changes no maximum. */
static em_val emit_regions(em *e, const att_plan *p, const column *c, att_regions *regions) {
    em_loop l = em_for(e, c->lo, c->hi, em_i64(e, 4));
    em_val top = em_carry(e, &l, em_vf(e, -INFINITY)), x[4];
    em_val last = em_sub(e, c->tk, em_i64(e, 1));
    for (int u = 0; u < 4; u++) {
        em_val k = em_add(e, l.i, em_i64(e, u)), at = score_at(e, p, c, k);
        em_val k_abs = em_imin(e, em_add(e, c->k0, k), last);
        regions->sheets.key = k;
        x[u] = att_regions_apply(regions, e, p, load_vector(e, p, at), k_abs);
        store_vector(e, p, x[u], at);
    }
    em_val m = em_max(e, em_max(e, x[0], x[1]), em_max(e, x[2], x[3]));
    em_next(e, &l, top, em_max(e, m, top));
    em_end(e, &l);
    return em_final(e, &l, top);
}

em_val att_any_lane(em *e, em_val cond) {
    unsigned n = (unsigned)em_lanes_of(cond);
    em_type bits = LLVMIntTypeInContext(e->ctx, n);
    em_val packed = em_bitcast(e, cond, bits);
    return LLVMBuildICmp(e->b, LLVMIntNE, packed, LLVMConstInt(bits, 0, false), "");
}

/* Brings m, l and O to the new maximum where it has grown by more than the lag. */
static em_val emit_new_maximum(em *e, const att_plan *p, const column *c, em_val top) {
    em_var m = em_let(e, load_vector(e, p, c->m_at));
    em_val old = em_get(e, m), grown = em_cmp(e, EM_GT, top, em_add(e, old, em_vf(e, lag)));
    em_branch br = em_if(e, att_any_lane(e, grown));
    em_val now = em_select(e, grown, top, old);
    em_val factor = em_select(e, grown, att_exp2(e, em_sub(e, old, now)), em_vf(e, 1));
    em_set(e, m, now);
    store_vector(e, p, now, c->m_at);
    store_vector(e, p, em_mul(e, load_vector(e, p, c->l_at), factor), c->l_at);
    em_branch begun = em_if(e, att_any_lane(e, em_cmp(e, EM_GT, old, em_vf(e, -INFINITY))));
    em_loop l = em_for(e, em_i64(e, 0), em_i64(e, p->a->dv), em_i64(e, 1));
    em_val at = em_at(e, c->o, p->t, em_mul(e, l.i, em_i64(e, p->qb)));
    store_vector(e, p, em_mul(e, load_vector(e, p, at), factor), at);
    em_end(e, &l);
    em_endif(e, &begun);
    em_endif(e, &br);
    em_val v = em_get(e, m);
    return em_select(e, em_cmp(e, EM_EQ, v, em_vf(e, -INFINITY)), em_vf(e, 0), v);
}

static void emit_weights(em *e, const att_plan *p, const column *c, em_val m) {
    em_val count = em_sub(e, c->hi, c->lo), whole = em_and(e, count, em_i64(e, -4));
    em_val middle = em_add(e, c->lo, whole), sum = em_vf(e, 0);
    em_val begin[] = {c->lo, middle}, end[] = {middle, c->hi};
    for (int part = 0; part < 2; part++) {
        int unroll = part ? 1 : 4;
        em_loop l = em_for(e, begin[part], end[part], em_i64(e, unroll));
        em_val acc = em_carry(e, &l, sum), w[4];
        for (int u = 0; u < unroll; u++) {
            em_val at = score_at(e, p, c, em_add(e, l.i, em_i64(e, u)));
            w[u] = att_exp2(e, em_sub(e, load_vector(e, p, at), m));
            em_val left = w[u];
            if (c->keep) {
                em_val bit = att_keep_bit(e, c->keep, em_add(e, l.i, em_i64(e, u)));
                left = em_select(e, bit, left, em_vf(e, 0));
            }
            store_vector(e, p, left, at);
        }
        em_val four = part ? w[0] : em_add(e, em_add(e, w[0], w[1]), em_add(e, w[2], w[3]));
        em_next(e, &l, acc, em_add(e, acc, four));
        em_end(e, &l);
        sum = em_final(e, &l, acc);
    }
    store_vector(e, p, em_add(e, load_vector(e, p, c->l_at), sum), c->l_at);
}

em_val att_emit_softmax(em *e, const att_plan *p, bool masked) {
    const em_type params[] = {e->ptr, e->ptr, e->ptr, e->i64, e->i64,
                              e->i64, e->i64, e->i64, e->i64, e->i64};
    em_val fn = att_function(e, p, masked ? "softmax_mask" : "softmax", params, 10);
    em saved = *e;
    e->buf = em_param(e, 0), e->dim = em_param(e, 1), e->scratch = em_param(e, 2);
    em_val v = em_param(e, 3), q0 = em_param(e, 7), batch = em_param(e, 8), head = em_param(e, 9);
    em_val at = em_mul(e, v, em_i64(e, p->lanes));
    column c = {.s = em_at(e, att_scratch(e, p->s_at), p->t, at),
                .o = em_at(e, att_scratch(e, p->o_at), p->t, at),
                .max_at = em_at(e, att_scratch(e, p->max_at), p->t, at),
                .m_at = em_at(e, att_scratch(e, p->m_at), p->t, at),
                .l_at = em_at(e, att_scratch(e, p->l_at), p->t, at),
                .lo = em_param(e, 4),
                .hi = em_param(e, 5),
                .k0 = em_param(e, 6),
                .tk = att_size(e, p->a->tk)};
    if (att_drops(p)) {
        em_val args[] = {e->buf, e->dim, e->scratch, v, c.k0, q0, batch, head};
        em_call(e, p->keep, args, 8);
        c.keep = att_keep_vector(e, p, v);
    }
    em_val top;
    if (masked || p->a->score) {
        em_val q =
            em_add(e, em_int_cast(e, em_add(e, q0, at), e->i32), em_iota(e, e->i32, p->lanes));
        em_val last = em_int_cast(e, em_sub(e, att_size(e, p->a->tq), em_i64(e, 1)), e->i32);
        q = em_imin(e, q, last); /* lanes beyond the last query repeat it: tables stay in range */
        att_regions regions = {.diagonal = att_diagonal_of(e, p, em_add(e, q0, at))};
        att_regions_begin(&regions, e, p, masked, batch, head, q);
        att_regions_sheets(&regions, e, p, (em_val[]){batch, head}, em_add(e, q0, at), c.k0,
                           (em_val[]){c.lo, c.hi});
        top = emit_regions(e, p, &c, &regions);
    } else {
        top = load_vector(e, p, c.max_at);
    }
    emit_weights(e, p, &c, emit_new_maximum(e, p, &c, top));
    em_ret(e, NULL);
    e->buf = saved.buf, e->dim = saved.dim, e->scratch = saved.scratch;
    return fn;
}
