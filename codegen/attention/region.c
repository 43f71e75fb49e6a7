/* region.c: the score and mask regions over scores, in stages: what depends on the head and the
 * query once, the rest key by key; tables, sheets and rows of differences where they read them. */
#include "codegen/attention/impl.h"

#include <math.h>

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
    em_val base = em_gep(e, em_buf(e, c->buf), c->dtype, at);
    em_val v = lanes ? em_gather(e, c->dtype, base, lanes, NULL) : em_load(e, c->dtype, base, 1);
    return sn_emit_loaded(e, c->dtype, v);
}

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

/* Emits without contraction. A kernel recomputes scores that another one has made, in other
 * surroundings; both must round alike, for at scores of 1e9 one rounding is worth e^64. */
static void emit_exact(em *e, sn_region_code *c, uint32_t allowed) {
    LLVMFastMathFlags fast = em_fast(e, 0);
    sn_region_emit(c, allowed);
    em_fast(e, fast);
}

static void begin_region(att_region *u, em *e, const att_plan *p, bool of_score, bool diagonal,
                         em_val batch, em_val head, em_val q) {
    if (!open_region(u, e, p, region_of(p, of_score), of_score, batch, head, q)) return;
    const sn_region *r = u->code.region;
    if (diagonal) att_diagonals_limit(&u->code, p, r->out, r->n_out);
    emit_exact(e, &u->code, ATT_DEP_HEAD | ATT_DEP_Q);
}

static void set_key(att_region *u, em *e, em_val k) {
    const sn_region *r = u->code.region;
    int at_k = u->first + 3;
    if (at_k < r->n_arg) sn_region_arg(&u->code, at_k, as_index(e, r, at_k, k), ATT_DEP_K);
}

bool att_region_at_differences(att_region *u, em *e, const att_plan *p, bool score,
                               const em_val of[2], em_val i, sn_node *const *root, int n_root) {
    em_val one = em_i64(e, 1), tk = att_size(e, p->a->tk);
    em_val most = em_splat(e, em_sub(e, att_size(e, p->a->tq), one), p->lanes);
    em_val least = em_splat(e, em_sub(e, one, tk), p->lanes);
    em_val zero = em_splat(e, em_i64(e, 0), p->lanes);
    em_val first = em_splat(e, em_add(e, i, em_sub(e, one, tk)), p->lanes);
    em_val back = em_add(e, first, em_iota(e, e->i64, p->lanes));
    back = em_imax(e, em_imin(e, back, most), least); /* beyond the ends tables stay in range */
    em_val q = em_int_cast(e, em_imax(e, back, zero), e->i32);
    em_val k = em_int_cast(e, em_imax(e, em_neg(e, back), zero), e->i32);
    if (!open_region(u, e, p, region_of(p, score), score, of[0], of[1], q)) return false;
    set_key(u, e, k);
    sn_region_only(&u->code, root, n_root, NULL, 0);
    emit_exact(e, &u->code, ~0u);
    return true;
}

bool att_region_of_differences(att_region *u, em *e, const att_plan *p, bool score,
                               const em_val of[2], em_val i) {
    const att_diagonals *d = &p->diagonals;
    sn_node *root[ATT_DIAGONALS];
    int n = 0;
    for (int j = 0; j < d->n; j++)
        if (d->row[j].region == region_of(p, score)) root[n++] = d->row[j].node;
    return n && att_region_at_differences(u, e, p, score, of, i, root, n);
}

static void evaluate_region(att_region *u, em *e, const att_plan *p, em_val score, em_val k,
                            em_val diagonal) {
    sn_region_forget(&u->code, ATT_DEP_K | ATT_DEP_SCORE | ATT_DEP_GRAD);
    set_key(u, e, k);
    if (diagonal) att_diagonals_give(&u->code, e, p, em_sub(e, diagonal, k));
    if (u->first) sn_region_arg(&u->code, 0, score, ATT_DEP_SCORE);
    emit_exact(e, &u->code, ~(uint32_t)ATT_DEP_GRAD);
}

static em_val apply_region(att_region *u, em *e, const att_plan *p, em_val score, em_val k,
                           em_val diagonal) {
    evaluate_region(u, e, p, score, k, diagonal);
    return sn_region_value(&u->code, 0);
}

void att_regions_begin(att_regions *g, em *e, const att_plan *p, bool masked, em_val batch,
                       em_val head, em_val q) {
    begin_region(&g->score, e, p, true, g->diagonal, batch, head, q);
    if (masked) begin_region(&g->mask, e, p, false, g->diagonal, batch, head, q);
}

void att_regions_begin_mask(att_regions *g, em *e, const att_plan *p, em_val batch, em_val head,
                            em_val q) {
    begin_region(&g->mask, e, p, false, g->diagonal, batch, head, q);
}

void att_regions_begin_addend(att_regions *g, em *e, const att_plan *p, em_val batch, em_val head,
                              em_val q) {
    if (!open_region(&g->score, e, p, p->a->score, 1, batch, head, q)) return;
    att_diagonals_limit(&g->score.code, p, p->addend.term, p->addend.n);
    emit_exact(e, &g->score.code, ATT_DEP_HEAD | ATT_DEP_Q);
}

/* The sum of the addend's terms, once they have their values. */
static em_val sum_terms(const att_regions *g, em *e, const att_plan *p) {
    const sn_region_code *c = &g->score.code;
    em_val sum = NULL;
    LLVMFastMathFlags fast = em_fast(e, 0);
    for (int i = 0; i < p->addend.n; i++) {
        em_val x = att_lanes(e, p, sn_region_node(c, p->addend.term[i]));
        if (p->addend.minus[i]) x = em_neg(e, x);
        sum = sum ? em_add(e, sum, x) : x;
    }
    em_fast(e, fast);
    return sum;
}

em_val att_regions_addend(att_regions *g, em *e, const att_plan *p, em_val k) {
    evaluate_region(&g->score, e, p, NULL, k, g->diagonal);
    return sum_terms(g, e, p);
}

em_val att_regions_apply(att_regions *g, em *e, const att_plan *p, em_val x, em_val k) {
    em_val at = g->diagonal;
    if (g->score.used) {
        em_val y = apply_region(&g->score, e, p, x, k, at);
        /* in the order of the kernels that lay the addend first */
        x = p->addend.n ? em_add(e, x, sum_terms(g, e, p)) : att_lanes(e, p, y);
    }
    if (g->mask.used)
        x = em_select(e, apply_region(&g->mask, e, p, NULL, k, at), x, em_vf(e, -INFINITY));
    return x;
}

void att_regions_derive(att_regions *g, em *e, em_val cotangent) {
    sn_region_arg(&g->score.code, g->score.code.region->n_arg - 1, cotangent, ATT_DEP_GRAD);
    emit_exact(e, &g->score.code, ~0u);
}
