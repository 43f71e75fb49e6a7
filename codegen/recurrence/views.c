/* views.c: operands and results in memory: rows of elements, vectors of rows. */
#include "codegen/recurrence/impl.h"

int rec_n_views(const rec_plan *p) {
    return p->k->step->n_in + p->k->step->n_out;
}

const sn_view *rec_view(const rec_plan *p, int i) {
    return sn_view_of(p->k->step, i);
}

em_val rec_stride(em *e, const rec_plan *p, const sn_view *v, int axis) {
    int64_t n;
    bool one = sn_dim_is_const(p->k->m, v->shape[axis], &n) && n == 1;
    return one ? em_i64(e, 0) : sn_kernel_dim(e, p->k, v->stride[axis]);
}

bool rec_is_state(const rec_plan *p, int i) {
    const int n_in = p->k->step->n_in;
    return i == SN_REC_START || i == n_in + 1 ||
           i == (p->r.gradient ? n_in - 1 : n_in + sn_recurrence_states(&p->r));
}

bool rec_is_of_columns(const rec_plan *p, int i) {
    const int n_in = p->k->step->n_in;
    if (rec_is_state(p, i)) return true;
    return i < n_in ? p->reads[i] == REC_COLUMNS : !sn_recurrence_is_of_keys(&p->r, true, i - n_in);
}

int64_t rec_row_size(const rec_plan *p, int i) {
    const sn_view *v = rec_view(p, i);
    if (rec_is_state(p, i) || (i < p->k->step->n_in && !p->reads[i])) return 0;
    int64_t n = rec_constant(p->k, v->shape[v->rank - 1]);
    return n != 1 && rec_is_of_columns(p, i) ? p->cols : n;
}

em_val rec_mask(em *e, const rec_plan *p, em_val i, int64_t n, em_val count) {
    if (!count && n % p->align == 0) return NULL;
    return em_tail_mask(e, em_sub(e, count ? count : em_i64(e, n), i), p->lanes);
}

em_val rec_load_vector(em *e, const rec_plan *p, const sn_view *v, em_val row, em_val i,
                       em_val mask) {
    em_val stride = rec_stride(e, p, v, v->rank - 1),
           from = em_gep(e, row, v->dtype, em_mul(e, i, stride));
    return tile_load(e, v->dtype, from, stride, p->lanes, mask);
}

int rec_at_once(const rec_plan *p, int64_t n) {
    int vectors = EM_COPIES;
    while (vectors > 1 && n % ((int64_t)vectors * p->lanes)) vectors /= 2;
    return vectors;
}

em_val rec_element(em *e, const rec_plan *p, const rec_unit *u, int i, em_val t) {
    const sn_view *v = rec_view(p, i);
    return em_gep(e, u->base[i], v->dtype, em_mul(e, t, rec_stride(e, p, v, 0)));
}

void rec_store_row(em *e, const rec_plan *p, int i, em_val row, int64_t n, em_val count,
                   rec_tile tile, em_val from_row) {
    const sn_view *v = rec_view(p, i);
    if (v->stride[v->rank - 1] == 1) {
        int iterations = rec_at_once(p, n);
        em_loop l = em_for(e, 0, n, (int64_t)iterations * p->lanes);
        for (int k = 0; k < iterations; k++) {
            em_val at = em_add(e, l.i, (int64_t)k * p->lanes);
            em_store_mask(e, v->dtype, em_gep(e, row, v->dtype, at),
                          rec_load(e, p, rec_at(e, p, tile, from_row, at)),
                          rec_mask(e, p, at, n, count));
        }
        em_end(e, &l);
        return;
    }
    em_loop l = em_for(e, 0, count ? count : em_i64(e, n), 1);
    em_val to = em_gep(e, row, v->dtype, em_mul(e, l.i, rec_stride(e, p, v, v->rank - 1)));
    em_store(e, v->dtype, to, em_load(e, p->t, rec_at(e, p, tile, from_row, l.i), 1));
    em_end(e, &l);
}

void rec_store_result(em *e, const rec_plan *p, const rec_unit *u, int i, rec_tile tile, em_val t,
                      em_val from) {
    i += p->k->step->n_in;
    em_val count = rec_is_of_columns(p, i) ? u->columns : NULL;
    rec_store_row(e, p, i, rec_element(e, p, u, i, t), rec_row_size(p, i), count, tile, from);
}
