/* plan.c: the tiles of a chunk in scratch, and what each of its elements sees. */
#include "codegen/recurrence/impl.h"
#include "runtime/memory.h"

enum {
    BLOCK_BYTES = 256, /* of a row of a block of columns */
    MAX_GROUP = 16
};

/* ---- what an element sees ---- */

int rec_seen(const rec_plan *p, int pair, int t) {
    bool own = (p->r.reads == SN_READS_AFTER || (p->r.reads == SN_READS_LATE && pair == 0)) &&
               !p->r.strict;
    return t + own;
}

int rec_seen_by_u(const rec_plan *p, int pair, int t) {
    return t + (p->r.reads == SN_READS_LATE && pair == 0);
}

int rec_decayed(const rec_plan *p, int pair, int t) {
    return rec_seen_by_u(p, pair, t);
}

/* ---- plan ---- */

static rec_tile place_in(const rec_plan *p, int64_t *elements, int64_t rows, int64_t ld) {
    rec_tile t = {*elements, ld, elements == &p->each};
    *elements += SN_ROUND_UP(rows * ld, 64 / (int64_t)sn_dtype_size(p->t));
    return t;
}

static rec_tile place(rec_plan *p, int64_t rows, int64_t ld) {
    return place_in(p, &p->elements, rows, ld);
}

/* The carries of a group take half of L2. */
static int64_t group_of(const rec_plan *p, const sn_target *t) {
    int64_t n = t->caches.l2 / 2 / (p->each * (int64_t)sn_dtype_size(p->t));
    return n < 1 ? 1 : n > MAX_GROUP ? MAX_GROUP : n;
}

int64_t rec_constant(const sn_kernel *k, sn_dim d) {
    int64_t v = 1;
    sn_dim_is_const(k->m, d, &v);
    return v;
}

void rec_plan_make(rec_plan *p, const sn_kernel *k, const sn_target *t) {
    const sn_view *start = &k->step->in[SN_REC_START];
    *p = (rec_plan){.k = k,
                    .r = sn_recurrence_of(k->step->node),
                    .t = k->compute,
                    .lanes = sn_target_lanes(t, k->compute)};
    p->K = rec_constant(k, start->shape[start->rank - 2]);
    p->V = rec_constant(k, start->shape[start->rank - 1]);
    int64_t most = BLOCK_BYTES / (int64_t)sn_dtype_size(p->t);
    p->n_block = p->V > most ? (p->V + most - 1) / most : 1;
    p->cols = SN_ROUND_UP((p->V + p->n_block - 1) / p->n_block, p->lanes);
    p->inner = SN_ROUND_UP(p->K, p->lanes);
    p->pairs = p->r.second ? 2 : 1;
    p->first = p->pairs * REC_CHUNK;
    int64_t left = p->first + p->inner, d = p->r.columns ? p->cols : p->inner;
    p->left = place(p, REC_CHUNK, left);
    if (p->r.delta) p->left_u = place(p, REC_CHUNK, left);
    p->right = place_in(p, &p->each, left, p->cols);
    p->group = group_of(p, t);
    p->key = place(p, p->first, p->inner);
    p->decay = place(p, REC_CHUNK, d);
    p->total = place(p, 1, d);
    if (p->r.columns) p->so_far = place(p, REC_CHUNK, d);
    p->out = place(p, REC_CHUNK, p->cols);
}

/* ---- tiles ---- */

static em_val from(em *e, const rec_plan *p, rec_tile tile, em_val at) {
    return em_gep(e, tile.of_unit ? p->unit : e->scratch, p->t, em_addi(e, at, tile.at));
}

em_val rec_at(em *e, const rec_plan *p, rec_tile tile, em_val row, em_val col) {
    return from(e, p, tile, em_add(e, em_muli(e, row, tile.ld), col));
}

em_val rec_at_const(em *e, const rec_plan *p, rec_tile tile, int64_t row, em_val col) {
    return from(e, p, tile, em_addi(e, col, row * tile.ld));
}

em_val rec_load(em *e, const rec_plan *p, em_val at) {
    return em_load(e, p->t, at, p->lanes);
}

void rec_store(em *e, const rec_plan *p, em_val at, em_val v) {
    em_store(e, p->t, at, v);
}
