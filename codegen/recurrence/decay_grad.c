/* decay_grad.c: the gradient of log decays, of the paths through the carry that pass an element:
 *     dg = -a da - (sum of q dq - k dk + a da - b db of the elements before)
 * and -q dq, too, if q reads the carry before the decay. Each row of the carry has its sum; one decay of
 * all rows gets the sum over them. */
#include "codegen/recurrence/impl.h"

static em_val row_at(em *e, const rec_plan *p, rec_tile tile, int row, em_val col) {
    return rec_at_const(e, p, tile, row, col);
}

static em_val load(em *e, const rec_plan *p, rec_tile tile, int row, em_val col) {
    return rec_load(e, p, row_at(e, p, tile, row, col));
}

static int factor_row(sn_rec_factor f, int t) {
    return (int)f * REC_CHUNK + t;
}

/* k dk + b db in place of dk. */
void rec_emit_written(em *e, const rec_plan *p) {
    em_loop l = rec_for_vectors(e, p, p->inner);
    for (int t = 0; t < REC_CHUNK; t++) {
        em_val to = row_at(e, p, p->factor, factor_row(SN_REC_FACTOR_DK, t), l.i);
        em_val sum =
            em_mul(e, load(e, p, p->kept, rec_first_of(p, 0) + t, l.i), rec_load(e, p, to));
        if (p->pairs > 1)
            sum = em_fma(e, load(e, p, p->kept, rec_first_of(p, 1) + t, l.i),
                         load(e, p, p->factor, factor_row(SN_REC_FACTOR_DB, t), l.i), sum);
        rec_store(e, p, to, sum);
    }
    em_end(e, &l);
}

/* dg of element t, of the rows of a vector from `col` on; paths: moves on to the next element. */
static em_val grad_of(em *e, const rec_plan *p, int t, em_val col, em_val *paths) {
    em_val written = load(e, p, p->factor, factor_row(SN_REC_FACTOR_DK, t), col),
           read = em_mul(e, load(e, p, p->query, t, col), load(e, p, p->z, t, col)),
           all = em_sub(e, read, written), here = *paths;
    if (p->n_turned > 1) {
        em_val changed = em_mul(e, load(e, p, p->factor, factor_row(SN_REC_FACTOR_A, t), col),
                                load(e, p, p->z, REC_CHUNK + t, col));
        all = em_add(e, all, changed);
        here = em_add(e, here, changed);
    }
    if (p->r.reads == SN_READS_BEFORE) here = em_add(e, here, read);
    *paths = em_add(e, *paths, all);
    return em_sub(e, em_vf(e, 0), here);
}

void rec_emit_decay_grad(em *e, const rec_plan *p) {
    const bool one = p->decays == REC_ONE;
    em_val sum[REC_CHUNK], carried[REC_CHUNK];
    em_loop l = rec_for_vectors(e, p, p->inner);
    for (int t = 0; t < REC_CHUNK && one; t++) sum[t] = carried[t] = em_carry(e, &l, em_vf(e, 0));
    em_val at = row_at(e, p, p->paths, 0, l.i), paths = rec_load(e, p, at);
    for (int t = 0; t < REC_CHUNK; t++) {
        em_val dg = grad_of(e, p, t, l.i, &paths);
        if (one)
            em_next(e, &l, carried[t], em_add(e, sum[t], dg));
        else
            rec_store(e, p, row_at(e, p, p->grad, t, l.i), dg);
    }
    rec_store(e, p, at, paths);
    em_end(e, &l);
    if (!one) return;
    for (int t = 0; t < REC_CHUNK; t++) sum[t] = em_final(e, &l, carried[t]);
    em_val all = rec_sum_lanes(e, sum);
    for (int t = 0; t < REC_CHUNK; t++)
        em_store(e, p->t, row_at(e, p, p->grad, t, em_i64(e, 0)), em_extract(e, all, t));
}
