/* prefetch.c: rows of operands and results are as far apart as the rows of all heads together, further
 * than hardware prefetches. While a chunk's products are computed the rows of the same elements in the
 * next unit, or in the next block, are brought to L2: a few lines in each iteration of every product's loop,
 * because a core waits for few lines at a time. */
#include "codegen/recurrence/impl.h"

enum { LINE = 64, LEVEL = 2, ROWS = REC_CHUNK / REC_PARTS };

/* The chunk's first row of view i, ahead. */
static em_val first_row(em *e, const rec_plan *p, const rec_unit *u, int i) {
    const sn_view *v = rec_view(p, i);
    em_val exists, t = rec_position(e, p, u, 0, &exists);
    return em_gep(e, u->next[i], v->dtype, em_mul(e, t, sn_kernel_dim(e, p->k, v->stride[0])));
}

static int64_t row_work(const rec_plan *p, int64_t rows) {
    return rows * REC_CHUNK * p->cols;
}

int64_t rec_update_work(const rec_plan *p) {
    return p->n_update * row_work(p, p->inner);
}

int64_t rec_read_work(const rec_plan *p) {
    return p->n_transposed * row_work(p, p->inner);
}

int64_t rec_work(const rec_plan *p) {
    const int64_t rows = p->update_rows + p->inner;
    int64_t work = rec_update_work(p) + rec_read_work(p);
    if (!p->state_only) work += row_work(p, rows);
    if (p->r.delta) work += row_work(p, rows - REC_CHUNK);
    return work;
}

void rec_prefetch_begin(em *e, const rec_plan *p, const rec_unit *u, int n_view, int64_t work,
                        rec_prefetch *f) {
    int64_t lines = 1;
    *f = (rec_prefetch){.work = work};
    for (int i = 0; i < n_view; i++) {
        const sn_view *v = rec_view(p, i);
        int64_t size = (int64_t)sn_dtype_size(v->dtype), n = rec_row_size(p, i);
        if (n <= 1 || v->stride[v->rank - 1] != 1 || v->stride[0] == 0) continue;
        em_val step = em_mul(e, sn_kernel_dim(e, p->k, v->stride[0]), size),
               row = first_row(e, p, u, i);
        if (p->r.reverse) step = em_sub(e, 0, step);
        for (int part = 0; part < REC_PARTS; part++)
            f->stream[f->n++] =
                (rec_stream){em_gep_bytes(e, row, em_mul(e, step, part * ROWS)), step};
        if (n * size > lines * LINE) lines = (n * size + LINE - 1) / LINE;
    }
    while (1 << f->log_lines < lines) f->log_lines++;
}

/* How many of the streams that are left a part of this much work takes. */
static int share_of(rec_prefetch *f, int64_t work) {
    int64_t left = f->n - f->next,
            n = f->work > work ? (left * work + f->work - 1) / f->work : left;
    f->work -= work;
    return (int)n;
}

rec_share rec_prefetch_part(rec_prefetch *f, int64_t work) {
    rec_share s = {.n = share_of(f, work), .log_lines = f->log_lines};
    for (int k = 0; k < s.n; k++) s.stream[k] = f->stream[f->next++];
    return s;
}

rec_share rec_prefetch_half(em *e, rec_prefetch *f, int64_t work, em_val second) {
    rec_share s = {.n = (share_of(f, work) + 1) / 2, .log_lines = f->log_lines};
    for (int k = 0; k < s.n; k++) {
        const rec_stream a = f->stream[f->next++], b = f->next < f->n ? f->stream[f->next++] : a;
        s.stream[k].row = em_select(e, second, b.row, a.row);
        s.stream[k].step = em_select(e, second, b.step, a.step);
    }
    return s;
}

void rec_prefetch_lines(em *e, const rec_share *s, em_val iteration, int64_t iterations) {
    const int64_t lines = 1LL << s->log_lines, each = (ROWS * lines + iterations - 1) / iterations;
    for (int64_t k = 0; k < each && s->n; k++) {
        em_val n = em_add(e, em_mul(e, iteration, each), k);
        em_val row = em_lshr(e, n, s->log_lines), col = em_mul(e, em_and(e, n, lines - 1), LINE);
        for (int i = 0; i < s->n; i++) {
            em_val off = em_add(e, em_mul(e, row, s->stream[i].step), col);
            em_prefetch(e, em_gep_bytes(e, s->stream[i].row, off), false, LEVEL);
        }
    }
}
