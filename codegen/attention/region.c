/* region.c: emits the score and mask regions in stages: what depends on head and query only first,
 * the rest key by key. Values come from captured tensors, bias tiles and relative rows. */
#include "codegen/attention/impl.h"

#include <math.h>
#include <string.h>

/* Whether the lanes of an index that is f(q) + g(k) are consecutive elements of the axis; at: receives
 * the first one. The lanes of f decide it, once for all keys. */
static em_val reads_in_a_row(em *e, const att_separable *x, em_size axis, em_val *at) {
    int lanes = em_lanes_of(x->of_query);
    em_val f = em_extract(e, x->of_query, 0), step = em_iota(e, LLVMTypeOf(f), lanes);
    em_val gap = em_cmp(e, EM_NE, x->of_query, em_add(e, em_splat(e, f, lanes), step));
    *at = em_idx(e, x->of_key ? em_add(e, f, x->of_key) : f);
    em_val end = em_add(e, *at, lanes), size = em_size_value(e, axis);
    em_val inside = em_and(e, em_cmp(e, EM_GE, *at, 0), em_cmp(e, EM_LE, end, size));
    return em_and(e, em_not(e, att_any_lane(e, gap)), inside);
}

/* The index of a read whose lanes may be consecutive, and its axis; NULL: there is none. */
static const att_separable *index_in_a_row(const att_captured *t, const sn_attention_captured *c,
                                           const sn_node *n, const em_val *index, int *axis) {
    const att_separable *found = NULL;
    for (int i = 0; i < n->n_in - 1; i++) {
        if (em_lanes_of(index[i]) == 1) continue;
        if (found || c->stride[i].slot >= 0 || c->stride[i].value != 1) return NULL;
        found = att_separable_of(t->separables, n->in[i + 1]);
        if (!found || em_lanes_of(found->of_query) == 1) return NULL;
        if (found->of_key && em_lanes_of(found->of_key) > 1) return NULL;
        *axis = i;
    }
    return sn_dtype_is_float(c->dtype) ? found : NULL;
}

/* A read of a captured tensor. Scalar indices are added to the base; vectors become a gather, or one
 * load where their lanes are consecutive. Indices are clamped to the axis. */
static em_val read_captured(const att_captured *t, const sn_node *n, const em_val *index) {
    em *e = t->e;
    int which;
    const sn_attention_captured *c = att_captured_tensor(t, n, &which);
    if (!c) return sn_emit_const(e, (sn_dtype)n->dtype, 0);
    em_val tile = t->bias_tiles ? att_bias_tile_row(e, t->bias_tiles, n) : NULL;
    if (tile) return tile;
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
    em_val base = em_gep(e, em_buf(e, c->buf), c->dtype, at), first;
    int axis;
    const att_separable *row = lanes ? index_in_a_row(t, c, n, index, &axis) : NULL;
    if (row) {
        em_var value = em_let(e, em_splat(e, em_f(e, 0), em_lanes_of(lanes)));
        em_branch br = em_if(e, reads_in_a_row(e, row, c->shape[axis], &first));
        em_val from = em_gep(e, base, c->dtype, first);
        em_set(e, value, em_load(e, c->dtype, from, em_lanes_of(lanes)));
        em_else(e, &br);
        em_set(e, value, em_gather(e, c->dtype, base, lanes, NULL));
        em_endif(e, &br);
        return em_get(e, value);
    }
    em_val v = lanes ? em_gather(e, c->dtype, base, lanes, NULL) : em_load(e, c->dtype, base, 1);
    return sn_emit_loaded(e, c->dtype, v);
}

static em_val emit_leaf(const sn_region_code *c, int i, int copy) {
    const sn_node *n = c->order.node[i];
    if (n->op == SN_OP_dim_value)
        return sn_emit_integer(c->e, (sn_dtype)n->dtype, att_dim_value(c->ctx, n));
    if (n->op != SN_OP_gather_nd) return NULL;
    em_val index[SN_MAX_RANK];
    for (int j = 1; j < n->n_in; j++) index[j - 1] = sn_region_at(c, c->operand[i][j], copy);
    return read_captured(c->ctx, n, index);
}

static const sn_region *region_of(const att_plan *p, bool score) {
    if (!score) return p->a->mask;
    return p->derivative ? p->derivative : p->a->score;
}

static em_val as_index(em *e, const sn_region *r, int i, em_val v) {
    return em_int_cast(e, v, em_mem_type(e, (sn_dtype)r->arg[i]->dtype));
}

/* Begins region r, whose arguments have no values yet. */
static bool begin_code(att_region *u, em *e, const att_plan *p, const sn_region *r, int first) {
    static const uint32_t fixed[] = {ATT_DEP_HEAD, ATT_DEP_HEAD, ATT_DEP_Q, ATT_DEP_K};
    u->used = r != NULL;
    if (!r) return false;
    u->first = first;
    u->separables.n = 0;
    u->captured = (att_captured){.e = e, .a = p->a, .first = first + 4};
    u->code = (sn_region_code){.leaf = emit_leaf, .ctx = &u->captured};
    if (!sn_region_begin(&u->code, e, r)) return false;
    for (int i = 0; i < 4 && first + i < r->n_arg; i++)
        sn_region_arg(&u->code, first + i, NULL, fixed[i]);
    if (first) sn_region_arg(&u->code, 0, NULL, ATT_DEP_SCORE);
    if (r == p->derivative) sn_region_arg(&u->code, r->n_arg - 1, NULL, ATT_DEP_GRAD);
    return true;
}

/* Sets all arguments but the key, the score and its cotangent. */
static bool open_region(att_region *u, em *e, const att_plan *p, const sn_region *r, int first,
                        em_val batch, em_val head, em_val q) {
    if (!begin_code(u, e, p, r, first)) return false;
    em_val fixed[] = {batch, head, q};
    for (int i = 0; i < 3 && first + i < r->n_arg; i++)
        sn_region_arg(&u->code, first + i, as_index(e, r, first + i, fixed[i]),
                      i == 2 ? ATT_DEP_Q : ATT_DEP_HEAD);
    for (int i = first + 4; i < r->n_arg - (r == p->derivative); i++)
        if (r->arg[i]->rank == 0)
            sn_region_arg(&u->code, i, att_captured_scalar(e, p->a, i - first - 4), ATT_DEP_HEAD);
    return true;
}

/* Emits without contraction. The backward kernel recomputes the scores of the forward kernel, and
 * both must round alike: at scores of 1e9 one rounding error changes the weight by e^64. */
static void emit_exact(em *e, sn_region_code *c, uint32_t allowed) {
    LLVMFastMathFlags fast = em_fast(e, 0);
    sn_region_emit(c, allowed);
    em_fast(e, fast);
}

/* From now on computes only what root[] need, down to what is in relative rows (`relative`: they are
 * there) and to joins of terms of query and key. */
static void prune(att_region *u, const att_plan *p, bool relative, sn_node *const *root,
                  int n_root) {
    const sn_node *leaf[ATT_RELATIVE_ROWS + ATT_SEPARABLES];
    int n = relative ? att_relative_nodes(&u->code, p, leaf) : 0;
    if (n || root != u->code.region->out) sn_region_only(&u->code, root, n_root, leaf, n);
    att_separable_find(&u->separables, &u->code);
    if (!u->separables.n) return;
    sn_node *term[ATT_SEPARABLES * ATT_SEPARABLE_TERMS];
    int n_term = att_separable_terms(&u->separables, term), all = n_root + n_term;
    sn_node **wanted = sn_arena_alloc(u->code.region->out[0]->m, sizeof *wanted * (size_t)all);
    memcpy(wanted, root, sizeof *wanted * (size_t)n_root);
    memcpy(wanted + n_root, term, sizeof *wanted * (size_t)n_term);
    for (int i = 0; i < u->separables.n; i++) leaf[n++] = u->separables.of[i].node;
    sn_region_only(&u->code, wanted, all, leaf, n);
}

int sn_attention_separable_terms(const sn_attention *a, const sn_region *derivative) {
    em nowhere = {.buf = NULL}; /* nothing is emitted */
    att_plan p = {.a = a, .derivative = derivative, .t = SN_F32};
    int n = 0;
    att_relative_find(&p);
    for (int score = 0; score < 2; score++) {
        att_region u;
        const sn_region *r = region_of(&p, score);
        if (!begin_code(&u, &nowhere, &p, r, score)) continue;
        prune(&u, &p, true, r->out, r->n_out);
        n += u.separables.n;
    }
    return n;
}

/* Emits what depends on head and query only of what root[] need. */
static void begin_stages(att_region *u, em *e, const att_plan *p, bool relative,
                         sn_node *const *root, int n_root) {
    prune(u, p, relative, root, n_root);
    u->captured.separables = &u->separables;
    emit_exact(e, &u->code, ATT_DEP_HEAD | ATT_DEP_Q);
    att_separable_begin(&u->separables, e, &u->code);
}

static void begin_region(att_region *u, em *e, const att_plan *p, bool of_score, bool relative,
                         em_val batch, em_val head, em_val q) {
    if (!open_region(u, e, p, region_of(p, of_score), of_score, batch, head, q)) return;
    begin_stages(u, e, p, relative, u->code.region->out, u->code.region->n_out);
}

static void set_key(att_region *u, em *e, em_val k) {
    const sn_region *r = u->code.region;
    int at_k = u->first + 3;
    if (at_k < r->n_arg) sn_region_arg(&u->code, at_k, as_index(e, r, at_k, k), ATT_DEP_K);
}

bool att_region_at_distances(att_region *u, em *e, const att_plan *p, bool score,
                             const em_val of[2], em_val i, sn_node *const *root, int n_root) {
    em_val tk = em_size_value(e, p->a->tk);
    em_val max_distance = em_splat(e, em_sub(e, em_size_value(e, p->a->tq), 1), p->lanes);
    em_val least = em_splat(e, em_sub(e, 1, tk), p->lanes);
    em_val zero = em_splat(e, 0, p->lanes);
    em_val first = em_splat(e, em_add(e, i, em_sub(e, 1, tk)), p->lanes);
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
    if (u->separables.n) {
        emit_exact(e, &u->code, ATT_DEP_HEAD | ATT_DEP_K);
        att_separable_give(&u->separables, e, &u->code);
    }
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
    begin_stages(&g->score, e, p, true, p->bias.term, p->bias.n);
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
