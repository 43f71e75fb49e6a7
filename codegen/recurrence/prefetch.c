/* prefetch.c: rows of operands and results are as far apart as the rows of all heads together, further
 * than hardware prefetches. While a chunk's products are computed the rows of the same elements in the
 * next unit, or in the next block, are brought to L2, and those of the next chunk to L1: a few lines in
 * each turn of a product's loop, because a core waits for few lines at a time. */
#include "codegen/recurrence/impl.h"

enum { LINE = 64 };
static const int level_of[] = {[REC_NEXT_UNIT] = 2, [REC_NEXT_CHUNK] = 3};

/* The chunk's first row of view i. */
static em_val first_row(em *e, const rec_plan *p, const rec_unit *u, int i, rec_ahead kind) {
    const sn_view *v = rec_view(p, i);
    const int64_t sign = p->r.reverse ? -1 : 1;
    em_val exists, base = u->next[i], t = rec_position(e, p, u, em_i64(e, 0), &exists);
    if (kind == REC_NEXT_CHUNK) {
        em_val more = em_select(e, u->last, em_i64(e, sign * (REC_CHUNK - REC_BLOCK)),
                                em_i64(e, sign * REC_CHUNK));
        base = em_select(e, u->last, base, u->base[i]);
        t = em_add(e, t, more);
    }
    return em_gep(e, base, v->dtype, em_mul(e, t, sn_kernel_dim(e, p->k, v->stride[0])));
}

void rec_prefetch_begin(em *e, const rec_plan *p, const rec_unit *u, rec_prefetch *f) {
    int64_t lines = 1;
    int rows = p->n_turned ? rec_turned_rows(e, p) : 1,
        parts = p->n_turned ? ((int)(p->first + p->inner) + rows - 1) / rows : 0;
    *f = (rec_prefetch){.n = 0};
    for (int v = 0; v < p->cols / p->lanes; v += rec_vectors_at(e, p, v))
        parts += 2 * (!p->r.silent + p->r.delta);
    for (int i = 0; i < rec_n_views(p); i++) {
        const sn_view *v = rec_view(p, i);
        int64_t size = (int64_t)sn_dtype_size(v->dtype), n = rec_row_size(p, i);
        if (n <= 1 || v->stride[v->rank - 1] != 1 || (i == SN_REC_Q && p->r.silent)) continue;
        em_val step = em_muli(e, sn_kernel_dim(e, p->k, v->stride[0]), size);
        f->step[f->n] = p->r.reverse ? em_sub(e, em_i64(e, 0), step) : step;
        for (int kind = 0; kind < REC_AHEAD; kind++)
            f->row[kind][f->n] = first_row(e, p, u, i, (rec_ahead)kind);
        if (n * size > lines * LINE) lines = (n * size + LINE - 1) / LINE;
        f->n++;
    }
    while (1 << f->log_lines < lines) f->log_lines++;
    f->each = (f->n + parts - 1) / parts;
}

void rec_prefetch_part(rec_prefetch *f) {
    f->n_now = 0;
    for (int k = 0; k < f->each && f->next < f->n; k++, f->n_now++, f->next++) {
        f->now_step[k] = f->step[f->next];
        for (int kind = 0; kind < REC_AHEAD; kind++) f->now[kind][k] = f->row[kind][f->next];
    }
}

void rec_prefetch_half(em *e, rec_prefetch *f, em_val second) {
    f->n_now = 0;
    for (int k = 0; k < f->each && f->next < f->n; k++, f->n_now++) {
        const int a = f->next++, b = f->next < f->n ? f->next++ : a;
        f->now_step[k] = em_select(e, second, f->step[b], f->step[a]);
        for (int kind = 0; kind < REC_AHEAD; kind++)
            f->now[kind][k] = em_select(e, second, f->row[kind][b], f->row[kind][a]);
    }
}

void rec_prefetch_turn(em *e, const rec_prefetch *f, em_val turn, int64_t turns) {
    const int64_t lines = 1LL << f->log_lines, each = (REC_CHUNK * lines + turns - 1) / turns;
    for (int64_t k = 0; k < each && f->n_now; k++) {
        em_val n = em_addi(e, em_muli(e, turn, each), k);
        em_val row = em_lshr(e, n, em_i64(e, f->log_lines)),
               col = em_muli(e, em_and(e, n, em_i64(e, lines - 1)), LINE);
        for (int i = 0; i < f->n_now; i++) {
            em_val off = em_add(e, em_mul(e, row, f->now_step[i]), col);
            for (int kind = 0; kind < REC_AHEAD; kind++)
                em_prefetch(e, em_gep_bytes(e, f->now[kind][i], off), false, level_of[kind]);
        }
    }
}
