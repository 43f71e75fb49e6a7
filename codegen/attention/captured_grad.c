/* captured_grad.c: gradients of captured tensors. The cotangent of a read is added to the element
 * that it reads. Where the element depends on query - key only, cotangents are added up along the
 * diagonals of a tile first, then over the head in a row with one element per distance, and added
 * to the gradient once per distance. */
#include "codegen/attention/backward.h"

static const sn_attention_table *table_of(const att_backward *b, int captured) {
    for (int i = 0; i < b->g->n_table; i++)
        if (b->g->table[i].captured == captured) return &b->g->table[i];
    return NULL;
}

/* Offset of the part of a table's gradient that belongs to a batch and head, unless the table has
 * such an axis itself. */
static em_val part_base(em *e, const sn_attention_table *t, em_val batch, em_val head) {
    em_val at = em_size_value(e, t->parts.offset), index[2] = {batch, head};
    for (int i = 0; i < 2; i++)
        if (t->axis[i] < 0)
            at = em_add(e, at, em_mul(e, index[i], em_size_value(e, t->parts.stride[i])));
    return at;
}

em_val att_emit_zero_tables(em *e, const att_backward *b) {
    if (!b->g->n_table) return NULL;
    const att_plan *p = &b->p;
    att_zero_tables_args q = att_zero_tables_begin(e, p, "zero_tables");
    e->buf = q.buf, e->dim = q.dim;
    for (int i = 0; i < b->g->n_table; i++) {
        const sn_attention_table *t = &b->g->table[i];
        em_val at = part_base(e, t, q.batch, q.head);
        em_loop l[SN_MAX_RANK];
        int n = 0;
        for (int a = 0; a < t->parts.rank - 2; a++) {
            em_val index, stride = em_size_value(e, t->parts.stride[2 + a]);
            if (a == t->axis[0] || a == t->axis[1]) {
                index = a == t->axis[0] ? q.batch : q.head;
            } else {
                l[n] = em_for(e, 0, em_size_value(e, t->parts.shape[2 + a]), 1);
                index = l[n++].i;
            }
            at = em_add(e, at, em_mul(e, index, stride));
        }
        em_store(e, p->t, em_gep(e, em_buf(e, t->parts.buf), p->t, at), em_f(e, 0));
        while (n > 0) em_end(e, &l[--n]);
    }
    return att_end(e);
}

void att_add_element(em *e, const att_plan *p, em_val base, em_val at, em_val x) {
    em_val to = em_gep(e, base, p->t, at);
    em_store(e, p->t, to, em_add(e, em_load(e, p->t, to, 1), x));
}

att_contribution att_find_element(em *e, const att_backward *b, const sn_region_code *code, int i,
                                  em_val batch, em_val head) {
    const sn_score_read *r = &b->g->score->read[i];
    const sn_attention_table *t = table_of(b, r->captured);
    att_contribution c = {.base = em_buf(e, t->parts.buf), .at = part_base(e, t, batch, head)};
    for (int j = 0; j < r->n_index; j++) {
        em_val index = em_idx(e, sn_region_value(code, r->value + 1 + j));
        index = att_clamp_index(e, index, t->parts.shape[2 + j]);
        em_val step = em_mul(e, index, em_size_value(e, t->parts.stride[2 + j]));
        if (em_lanes_of(step) > 1)
            c.lanes = c.lanes ? em_add(e, c.lanes, step) : step;
        else
            c.at = em_add(e, c.at, step);
    }
    return c;
}

void att_add_lanes(em *e, const att_plan *p, const att_contribution *c, const em_val spill[2]) {
    em_val first = em_extract(e, c->lanes, 0);
    em_val differ = att_any_lane(e, em_cmp(e, EM_NE, c->lanes, em_splat(e, first, p->lanes)));
    em_val row = em_add(e, em_splat(e, first, p->lanes), em_iota(e, e->i64, p->lanes));
    em_val gap = att_any_lane(e, em_cmp(e, EM_NE, c->lanes, row));
    em_branch br = em_if(e, differ), apart = em_if(e, gap);
    em_store(e, p->t, spill[0], c->x);
    em_store(e, SN_I64, spill[1], c->lanes);
    em_loop l = em_for(e, 0, p->lanes, 1);
    em_val at = em_load(e, SN_I64, em_gep(e, spill[1], SN_I64, l.i), 1);
    em_val x = em_load(e, p->t, em_gep(e, spill[0], p->t, l.i), 1);
    att_add_element(e, p, c->base, em_add(e, c->at, at), x);
    em_end(e, &l);
    em_else(e, &apart);
    em_val to = em_gep(e, c->base, p->t, em_add(e, c->at, first));
    em_store(e, p->t, to, em_add(e, em_load(e, p->t, to, p->lanes), c->x));
    em_endif(e, &apart);
    em_else(e, &br);
    att_add_element(e, p, c->base, em_add(e, c->at, first), em_reduce(e, EM_SUM, c->x));
    em_endif(e, &br);
}

bool att_read_is_uniform(const att_backward *b, const att_regions *g, int i) {
    const struct sn_score_read *r = &b->g->score->read[i];
    uint32_t deps = 0;
    for (int j = 0; j < r->n_index; j++) deps |= sn_region_deps(&g->score.code, r->value + 1 + j);
    return !(deps & (ATT_DEP_Q | ATT_DEP_K | ATT_DEP_SCORE | ATT_DEP_GRAD));
}

/* --- sums per distance ------------------------------------------------------------------------ */

void att_find_relative_reads(att_backward *b) {
    const sn_score_grad *score = b->g->score;
    b->n_relative = 0;
    if (!b->g->n_table) return;
    sn_module *m = score->region->out[0]->m;
    bool *constant = sn_arena_alloc(m, (size_t)score->region->n_out);
    bool *moves = sn_arena_alloc(m, (size_t)score->region->n_out);
    b->relative_row = sn_arena_alloc(m, sizeof *b->relative_row * (size_t)(score->n_read + 1));
    att_relative_results(&b->p, constant, moves);
    for (int i = 0; i < score->n_read; i++) {
        bool all = true, any = false;
        for (int j = 0; j < score->read[i].n_index; j++) {
            all = all && constant[score->read[i].value + 1 + j];
            any = any || moves[score->read[i].value + 1 + j];
        }
        b->relative_row[i] = all && any ? b->n_relative++ : -1;
    }
}

/* Element i of a row of the head's sums, which belongs to q - k = i - (tk - 1). */
static em_val sums_of(em *e, const att_backward *b, int row, em_val i) {
    em_val all = att_relative_elements(e, &b->p);
    em_val at = em_add(e, em_mul(e, all, row), i);
    return em_gep(e, att_relative_sums(e, b), b->p.t, at);
}

em_val att_add_to_diagonal(em *e, const att_backward *b, em_val sum, em_val x, em_val dst) {
    const att_plan *p = &b->p;
    int pick[64];
    pick[0] = p->lanes;
    for (int i = 1; i < p->lanes; i++) pick[i] = i - 1;
    sum = em_add(e, em_shuffle(e, sum, em_vf(e, 0), pick, p->lanes), x);
    em_store(e, p->t, dst, sum);
    return sum;
}

void att_add_relative_sums(em *e, const att_backward *b, int row, em_val src, em_val i, em_val n) {
    const att_plan *p = &b->p;
    em_loop l = em_for(e, 0, n, p->lanes);
    em_val at = sums_of(e, b, row, em_add(e, i, l.i));
    em_val x = em_load(e, p->t, em_gep(e, src, p->t, l.i), p->lanes);
    em_store(e, p->t, at, em_add(e, em_load(e, p->t, at, p->lanes), x));
    em_end(e, &l);
}

em_val att_emit_flush_relative_sums(em *e, const att_backward *b) {
    const att_plan *p = &b->p;
    const sn_score_grad *score = b->g->score;
    if (!b->n_relative) return NULL;
    att_head_args q = att_head_begin(e, p, "flush_relative_sums");
    att_use_context(e, q.buf, q.dim, q.scratch);
    em_val of[] = {q.batch, q.head};
    em_val spill[] = {em_stack(e, p->t, p->lanes), em_stack(e, SN_I64, p->lanes)};
    sn_node **root =
        sn_arena_alloc(score->region->out[0]->m, sizeof *root * (size_t)score->region->n_out);
    int n = 0;
    for (int i = 0; i < score->n_read; i++)
        for (int j = 0; b->relative_row[i] >= 0 && j < score->read[i].n_index; j++)
            root[n++] = score->region->out[score->read[i].value + 1 + j];
    em_loop l = em_for(e, 0, att_relative_elements(e, p), p->lanes);
    att_region r;
    if (att_region_at_distances(&r, e, p, true, of, l.i, root, n))
        for (int i = 0; i < score->n_read; i++) {
            if (b->relative_row[i] < 0) continue;
            em_val at = sums_of(e, b, b->relative_row[i], l.i);
            att_contribution c = att_find_element(e, b, &r.code, i, of[0], of[1]);
            c.x = em_load(e, p->t, at, p->lanes);
            em_store(e, p->t, at, em_vf(e, 0));
            if (c.lanes)
                att_add_lanes(e, p, &c, spill);
            else
                att_add_element(e, p, c.base, c.at, em_reduce(e, EM_SUM, c.x));
        }
    em_end(e, &l);
    return att_end(e);
}
