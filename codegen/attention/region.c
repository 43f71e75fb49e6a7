/* region.c: emits the score and mask regions in stages: what depends on head and query only first,
 * the rest key by key. Values come from captured tensors, bias tiles and relative rows. */
#include "codegen/attention/impl.h"

#include <math.h>

/* A read of a captured tensor. Scalar indices are added to the base; vectors become a gather.
 * Indices are clamped to the axis. */
static em_val read_captured(void *ctx, const sn_node *n, const em_val *index) {
    const att_captured *t = ctx;
    em *e = t->e;
    int which;
    const sn_attention_captured *c = att_captured_tensor(t, n, &which);
    if (!c) return sn_emit_const(e, (sn_dtype)n->dtype, 0);
    em_val row = t->bias_tiles ? att_bias_tile_row(e, t->bias_tiles, n) : NULL;
    if (row) return row;
    em_val at = em_size_value(e, c->offset), lanes = NULL;
    for (int i = 0; i < n->n_in - 1; i++) {
        em_val x = em_idx(e, index[i]);
        if (!att_index_in_range(t, n->in[i + 1], c->shape[i]))
            x = att_clamp_index(e, x, c->shape[i]);
        x = em_mul(e, x, em_size_value(e, c->stride[i]));
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

/* Sets all arguments but the key, the score and its cotangent. */
static bool open_region(att_region *u, em *e, const att_plan *p, const sn_region *r, int first,
                        em_val batch, em_val head, em_val q) {
    u->used = r != NULL;
    if (!r) return false;
    u->first = first;
    u->captured = (att_captured){.e = e, .a = p->a, .first = first + 4};
    u->code = (sn_region_code){.at = read_captured, .dim = att_dim_value, .ctx = &u->captured};
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

/* Emits without contraction. The backward kernel recomputes the scores of the forward kernel, and
 * both must round alike: at scores of 1e9 one rounding error changes the weight by e^64. */
static void emit_exact(em *e, sn_region_code *c, uint32_t allowed) {
    LLVMFastMathFlags fast = em_fast(e, 0);
    sn_region_emit(c, allowed);
    em_fast(e, fast);
}

static void begin_region(att_region *u, em *e, const att_plan *p, bool of_score, bool relative,
                         em_val batch, em_val head, em_val q) {
    if (!open_region(u, e, p, region_of(p, of_score), of_score, batch, head, q)) return;
    const sn_region *r = u->code.region;
    if (relative) att_relative_prune(&u->code, p, r->out, r->n_out);
    emit_exact(e, &u->code, ATT_DEP_HEAD | ATT_DEP_Q);
}

static void set_key(att_region *u, em *e, em_val k) {
    const sn_region *r = u->code.region;
    int at_k = u->first + 3;
    if (at_k < r->n_arg) sn_region_arg(&u->code, at_k, as_index(e, r, at_k, k), ATT_DEP_K);
}

bool att_region_at_distances(att_region *u, em *e, const att_plan *p, bool score,
                             const em_val of[2], em_val i, sn_node *const *root, int n_root) {
    em_val one = em_i64(e, 1), tk = em_size_value(e, p->a->tk);
    em_val max_distance = em_splat(e, em_sub(e, em_size_value(e, p->a->tq), one), p->lanes);
    em_val least = em_splat(e, em_sub(e, one, tk), p->lanes);
    em_val zero = em_splat(e, em_i64(e, 0), p->lanes);
    em_val first = em_splat(e, em_add(e, i, em_sub(e, one, tk)), p->lanes);
    em_val distance = em_add(e, first, em_iota(e, e->i64, p->lanes));
    distance = em_imax(e, em_imin(e, distance, max_distance),
                       least); /* elements beyond the ends stay in range of tables */
    em_val q = em_int_cast(e, em_imax(e, distance, zero), e->i32);
    em_val k = em_int_cast(e, em_imax(e, em_neg(e, distance), zero), e->i32);
    if (!open_region(u, e, p, region_of(p, score), score, of[0], of[1], q)) return false;
    set_key(u, e, k);
    sn_region_only(&u->code, root, n_root, NULL, 0);
    emit_exact(e, &u->code, ~0u);
    return true;
}

bool att_region_of_distances(att_region *u, em *e, const att_plan *p, bool score,
                             const em_val of[2], em_val i) {
    const att_relative *d = &p->relative;
    sn_node *root[ATT_RELATIVE_ROWS];
    int n = 0;
    for (int j = 0; j < d->n; j++)
        if (d->row[j].region == region_of(p, score)) root[n++] = d->row[j].node;
    return n && att_region_at_distances(u, e, p, score, of, i, root, n);
}

static void evaluate_region(att_region *u, em *e, const att_plan *p, em_val score, em_val k,
                            em_val relative) {
    sn_region_forget(&u->code, ATT_DEP_K | ATT_DEP_SCORE | ATT_DEP_GRAD);
    set_key(u, e, k);
    if (relative) att_relative_load(&u->code, e, p, em_sub(e, relative, k));
    if (u->first) sn_region_arg(&u->code, 0, score, ATT_DEP_SCORE);
    emit_exact(e, &u->code, ~(uint32_t)ATT_DEP_GRAD);
}

static em_val apply_region(att_region *u, em *e, const att_plan *p, em_val score, em_val k,
                           em_val relative) {
    evaluate_region(u, e, p, score, k, relative);
    return sn_region_value(&u->code, 0);
}

void att_regions_begin(att_regions *g, em *e, const att_plan *p, bool masked, em_val batch,
                       em_val head, em_val q) {
    begin_region(&g->score, e, p, true, g->relative, batch, head, q);
    if (masked) begin_region(&g->mask, e, p, false, g->relative, batch, head, q);
}

void att_regions_begin_mask(att_regions *g, em *e, const att_plan *p, em_val batch, em_val head,
                            em_val q) {
    begin_region(&g->mask, e, p, false, g->relative, batch, head, q);
}

void att_regions_begin_bias(att_regions *g, em *e, const att_plan *p, em_val batch, em_val head,
                            em_val q) {
    if (!open_region(&g->score, e, p, p->a->score, 1, batch, head, q)) return;
    att_relative_prune(&g->score.code, p, p->bias.term, p->bias.n);
    emit_exact(e, &g->score.code, ATT_DEP_HEAD | ATT_DEP_Q);
}

/* The sum of the additive bias' terms, after the region was evaluated. */
static em_val sum_terms(const att_regions *g, em *e, const att_plan *p) {
    const sn_region_code *c = &g->score.code;
    em_val sum = NULL;
    LLVMFastMathFlags fast = em_fast(e, 0);
    for (int i = 0; i < p->bias.n; i++) {
        em_val x = att_lanes(e, p, sn_region_node(c, p->bias.term[i]));
        if (p->bias.negated[i]) x = em_neg(e, x);
        sum = sum ? em_add(e, sum, x) : x;
    }
    em_fast(e, fast);
    return sum;
}

em_val att_regions_bias(att_regions *g, em *e, const att_plan *p, em_val k) {
    evaluate_region(&g->score, e, p, NULL, k, g->relative);
    return sum_terms(g, e, p);
}

em_val att_regions_apply(att_regions *g, em *e, const att_plan *p, em_val x, em_val k) {
    em_val at = g->relative;
    if (g->score.used) {
        em_val y = apply_region(&g->score, e, p, x, k, at);
        /* in the order of kernels that store the bias first */
        x = p->bias.n ? em_add(e, x, sum_terms(g, e, p)) : att_lanes(e, p, y);
    }
    if (g->mask.used)
        x = em_select(e, apply_region(&g->mask, e, p, NULL, k, at), x, em_vf(e, -INFINITY));
    return x;
}

void att_regions_derive(att_regions *g, em *e, em_val cotangent) {
    sn_region_arg(&g->score.code, g->score.code.region->n_arg - 1, cotangent, ATT_DEP_GRAD);
    emit_exact(e, &g->score.code, ~0u);
}
