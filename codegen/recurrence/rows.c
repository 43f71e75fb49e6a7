/* rows.c: between memory and the tiles of a chunk: vectors of its elements, results, states. */
#include "codegen/recurrence/impl.h"
#include "runtime/memory.h"

/* Copies a row of n elements of type t to a tile. */
static void load_row(em *e, const rec_plan *p, sn_dtype t, em_val row, em_val stride, int64_t n,
                     em_val count, rec_tile tile, em_val to_row) {
    int64_t whole = SN_ROUND_UP(n, p->align);
    int iterations = rec_at_once(p, whole);
    em_loop l = em_for(e, 0, whole, (int64_t)iterations * p->lanes);
    for (int k = 0; k < iterations; k++) {
        em_val at = em_add(e, l.i, (int64_t)k * p->lanes);
        em_val x = tile_load(e, t, em_gep(e, row, t, em_mul(e, at, stride)), stride, p->lanes,
                             rec_mask(e, p, at, n, count));
        rec_store(e, p, rec_at(e, p, tile, to_row, at), x);
    }
    em_end(e, &l);
}

em_val(rec_position)(em *e, const rec_plan *p, const rec_unit *u, em_val i, em_val *exists) {
    em_val t = em_add(e, u->chunk, i);
    *exists = em_cmp(e, EM_LT, t, u->T);
    return p->r.reverse ? em_sub(e, em_sub(e, u->T, 1), t) : t;
}

/* Zeros, which change nothing, as row `to` of the tiles. */
static void clear_element(em *e, const rec_plan *p, em_val to) {
    if (p->decays == REC_ONE) em_store(e, p->t, rec_at(e, p, p->decay, 0, to), em_f(e, 0));
    for (int i = 0; i < p->n_load; i++) {
        const rec_operand *l = &p->load[i];
        rec_fill(e, p, l->tile, em_add(e, to, l->row), l->col,
                 l->how == REC_WHOLE ? p->inner : p->cols, l->exp);
    }
}

void rec_load_elements(em *e, const rec_plan *p, const rec_unit *u) {
    em_loop l = em_for(e, 0, REC_CHUNK, 1);
    em_val exists, t = rec_position(e, p, u, l.i, &exists);
    em_branch br = em_if(e, exists);
    rec_load_rows(e, p, u, t, l.i);
    em_else(e, &br);
    clear_element(e, p, l.i);
    em_endif(e, &br);
    em_end(e, &l);
}

em_val rec_y_at(em *e, const rec_plan *p, const rec_unit *u, em_val row, em_val col) {
    em_val exists, t, tile = rec_at(e, p, p->out, row, col);
    if (!p->direct) return tile;
    t = rec_position(e, p, u, row, &exists);
    em_val memory = em_gep(e, rec_element(e, p, u, p->k->step->n_in, t), p->t, col);
    return em_select(e, exists, memory, tile);
}

/* Row i of the recurrence's results to element t. */
static void store_results(em *e, const rec_plan *p, const rec_unit *u, em_val t, em_val i) {
    for (int k = 0; k < p->n_out; k++) {
        const rec_rows *from = &p->stored[k];
        if (p->result[k] < 0 || rec_is_state(p, p->k->step->n_in + p->result[k]) ||
            (!k && p->direct))
            continue;
        em_val row = from->flipped ? em_sub(e, REC_CHUNK - 1, i) : i;
        rec_store_result(e, p, u, p->result[k], from->tile, t, em_add(e, row, from->row));
    }
}

void rec_store_elements(em *e, const rec_plan *p, const rec_unit *u) {
    if (p->direct && !p->stores_u) return;
    em_loop l = em_for(e, 0, REC_CHUNK, 1);
    em_val exists, t = rec_position(e, p, u, l.i, &exists);
    em_branch br = em_if(e, exists);
    store_results(e, p, u, t, l.i);
    if (p->epilogue) rec_store_epilogue(e, p, u, t, l.i);
    em_endif(e, &br);
    em_end(e, &l);
}

void rec_load_element(em *e, const rec_plan *p, const rec_unit *u, em_val i) {
    em_val exists;
    rec_load_rows(e, p, u, rec_position(e, p, u, i, &exists), 0);
}

void rec_store_element(em *e, const rec_plan *p, const rec_unit *u, em_val i) {
    em_val exists, t = rec_position(e, p, u, i, &exists), first = em_i64(e, 0);
    rec_plan all = *p;
    all.direct = false;
    store_results(e, &all, u, t, first);
}

/* ---- states ---- */

/* Row k of a state, operand or result i. */
static em_val state_row(em *e, const rec_plan *p, const rec_unit *u, int i, em_val k) {
    const sn_view *v = rec_view(p, i);
    em_val by = em_mul(e, k, sn_kernel_dim(e, p->k, v->stride[v->rank - 2]));
    return em_gep(e, u->base[i], v->dtype, by);
}

void rec_load_state(em *e, const rec_plan *p, const rec_unit *u, int i, rec_tile tile) {
    const sn_view *v = rec_view(p, i);
    em_loop l = em_for(e, 0, p->K, 1);
    load_row(e, p, v->dtype, state_row(e, p, u, i, l.i), rec_stride(e, p, v, v->rank - 1), p->cols,
             u->columns, tile, l.i);
    em_end(e, &l);
    for (int64_t k = p->K; k < p->inner; k++) rec_fill(e, p, tile, em_i64(e, k), 0, p->cols, 0);
}

void rec_store_state(em *e, const rec_plan *p, const rec_unit *u) {
    int i = p->k->step->n_in + 1;
    em_loop l = em_for(e, 0, p->K, 1);
    rec_store_row(e, p, i, state_row(e, p, u, i, l.i), p->cols, u->columns, p->state, l.i);
    em_end(e, &l);
}

/* Row k of the state before the block of element t in operand or result i. */
static em_val saved_row(em *e, const rec_plan *p, const rec_unit *u, int i, em_val t, em_val k) {
    const sn_view *v = rec_view(p, i);
    em_val by = em_mul(e, t, sn_kernel_dim(e, p->k, v->stride[v->rank - 2]));
    return em_gep(e, u->base[i], v->dtype, em_add(e, by, em_mul(e, k, p->V)));
}

void rec_load_saved(em *e, const rec_plan *p, const rec_unit *u, int i, em_val t, rec_tile tile) {
    em_loop l = em_for(e, 0, p->K, 1);
    load_row(e, p, rec_view(p, i)->dtype, saved_row(e, p, u, i, t, l.i), em_i64(e, 1), p->cols,
             u->columns, tile, l.i);
    em_end(e, &l);
    for (int64_t k = p->K; k < p->inner; k++) rec_fill(e, p, tile, em_i64(e, k), 0, p->cols, 0);
}

void rec_save(em *e, const rec_plan *p, const rec_unit *u, int i, em_val t, rec_tile tile) {
    em_loop l = em_for(e, 0, p->K, 1);
    rec_store_row(e, p, i, saved_row(e, p, u, i, t, l.i), p->cols, u->columns, tile, l.i);
    em_end(e, &l);
}

/* ---- units ---- */

/* Pointers to unit `item`: the state item / n_block, block item % n_block. */
static void point_to(em *e, const rec_plan *p, em_val item, em_val *base, em_val *col) {
    const sn_step *s = p->k->step;
    em_val block = em_rem(e, item, p->n_block);
    em_val lead = em_div(e, item, p->n_block);
    *col = em_mul(e, block, p->cols);
    for (int i = 0; i < rec_n_views(p); i++) {
        const sn_view *v = rec_view(p, i);
        em_val off = em_i64(e, 0), rest = lead;
        for (int a = p->r.n_lead - 1; a >= 0; a--) {
            em_val n = sn_kernel_dim(e, p->k, s->in[SN_REC_START].shape[a]);
            em_val by = rec_stride(e, p, v, a + !rec_is_state(p, i));
            off = em_add(e, off, em_mul(e, em_rem(e, rest, n), by));
            rest = em_div(e, rest, n);
        }
        if (rec_is_of_columns(p, i))
            off = em_add(e, off, em_mul(e, *col, rec_stride(e, p, v, v->rank - 1)));
        base[i] = em_gep(e, em_buf(e, i), v->dtype, off);
    }
}

em_loop rec_for_units(em *e, const rec_plan *p, rec_unit *u, em_val first, em_val n) {
    em_loop each = em_for(e, 0, n, 1);
    point_to(e, p, em_add(e, first, each.i), u->base, &u->col);
    if (p->n_block * p->cols != p->V) u->columns = em_imin(e, em_sub(e, p->V, u->col), p->cols);
    p->space->base[REC_PER_UNIT] =
        em_gep_bytes(e, p->space->units, em_mul(e, each.i, p->space->unit_bytes));
    return each;
}

void rec_find_next(em *e, const rec_plan *p, rec_unit *u, em_val first, em_val i, em_val n,
                   bool last_first) {
    em_val col, more = em_add(e, i, 1), last = em_cmp(e, EM_EQ, more, n);
    em_val item = em_add(e, first, em_select(e, last, 0, more));
    em_val ahead = em_select(e, last, p->r.reverse != last_first ? -p->block : p->block, 0);
    point_to(e, p, item, u->next, &col);
    for (int k = 0; k < rec_n_views(p); k++) {
        const sn_view *v = rec_view(p, k);
        em_val by = em_mul(e, ahead, rec_stride(e, p, v, 0));
        if (!rec_is_state(p, k)) u->next[k] = em_gep(e, u->next[k], v->dtype, by);
    }
}
