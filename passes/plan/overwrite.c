/* overwrite.c: see overwrite.h. From the last step to the first: a temporary that a kernel reads for the
 * last time becomes the part of the result's buffer that the kernel writes. */
#include "passes/plan/overwrite.h"
#include "passes/plan/in_place.h"

/* By buffer: the first and the last step that use it, and whether all are plain. */
typedef struct life {
    int first, last;
    bool plain;
} life;

typedef struct search {
    const sn_plan *p;
    life *life;
} search;

/* A call that runs once. */
static bool is_plain(const sn_plan *p, int at) {
    const sn_step *s = &p->step[at];
    return s->kind == SN_STEP_CALL && s->when == SN_ALWAYS && !s->rows;
}

static void find_lives(const sn_plan *p, life *l) {
    for (int i = 0; i < p->n_buffer; i++) l[i] = (life){-1, -1, true};
    for (int k = 0; k < p->n_step; k++) {
        const sn_step *s = &p->step[k];
        for (int i = 0; i < s->n_in + s->n_out; i++) {
            life *x = &l[sn_view_of(s, i)->buffer];
            if (x->first < 0) x->first = k;
            x->last = k;
            x->plain &= is_plain(p, k);
        }
    }
}

/* The elements of a contiguous view with known numbers: [*from, *to). */
static bool span(const sn_plan *p, const sn_view *v, int64_t *from, int64_t *to) {
    int64_t n;
    *from = 0;
    if (!sn_view_contiguous(p->m, v) || (v->offset && !sn_dim_is_const(p->m, v->offset, from)) ||
        !sn_dim_is_const(p->m, sn_dim_product(p->m, v->rank, v->shape), &n))
        return false;
    *to = *from + n;
    return true;
}

/* Whether no operand of a step, and no result, shares an element with x; of a loop: its buffer. */
static bool avoids(const sn_plan *p, const sn_step *s, bool results, const sn_view *x) {
    int64_t from, to, first, end;
    for (int i = 0; i < s->n_in + (results ? s->n_out : 0); i++) {
        const sn_view *v = sn_view_of(s, i);
        if (v->buffer == x->buffer && (s->kind != SN_STEP_CALL || !span(p, x, &from, &to) ||
                                       !span(p, v, &first, &end) || (first < to && from < end)))
            return false;
    }
    return true;
}

/* Whether operand x of step `at` is a whole temporary that only plain steps up to this one use, and these leave the
 * result's place alone. */
static bool can_move(const search *f, int at, const sn_view *x, const sn_view *to) {
    const sn_buffer *b = &f->p->buffer[x->buffer];
    const life *l = &f->life[x->buffer];
    if (b->kind != SN_BUF_TEMP || !l->plain || l->last > at ||
        sn_dim_product(f->p->m, x->rank, x->shape) != b->count)
        return false;
    for (int k = l->first; k <= at; k++)
        if (!avoids(f->p, &f->p->step[k], k < at, to)) return false;
    return true;
}

/* Operand i and result o lie in memory in the same order, without gaps. */
static bool fits(const sn_plan *p, const sn_view *x, const sn_view *to) {
    bool same = x->buffer != to->buffer && x->dtype == to->dtype && x->rank == to->rank &&
                sn_view_contiguous(p->m, x) && sn_view_contiguous(p->m, to);
    for (int a = 0; same && a < x->rank; a++) same = x->shape[a] == to->shape[a];
    return same;
}

static void move(const search *f, int buffer, sn_view to) {
    const life *from = &f->life[buffer];
    life *l = &f->life[to.buffer];
    for (int k = from->first; k <= from->last; k++) {
        sn_step *s = &f->p->step[k];
        for (int i = 0; i < s->n_in + s->n_out; i++) {
            sn_view *v = sn_view_of(s, i);
            if (v->buffer != buffer) continue;
            v->buffer = to.buffer;
            v->offset = sn_dim_add(f->p->m, v->offset, to.offset);
        }
    }
    if (from->first < l->first) l->first = from->first;
}

/* Gives result o the memory of the operand that has lived longest, a partial sum. */
static void overwrite(const search *f, int at, int o) {
    const sn_plan *p = f->p;
    const sn_step *s = &p->step[at];
    sn_view to = s->out[o];
    sn_buffer_kind kind = p->buffer[to.buffer].kind;
    int best = -1;
    if (kind != SN_BUF_TEMP && kind != SN_BUF_OUTPUT) return;
    for (int i = 0; i < s->n_in; i++) {
        int buffer = s->in[i].buffer, times = 0, since = f->life[buffer].first;
        for (int k = 0; k < s->n_in; k++) times += s->in[k].buffer == buffer;
        if (times == 1 && fits(p, &s->in[i], &to) &&
            (best < 0 || since < f->life[s->in[best].buffer].first) &&
            can_move(f, at, &s->in[i], &to) &&
            sn_reads_before(sn_attr_region(s->node, SN_A_body), i, o))
            best = i;
    }
    if (best >= 0) move(f, s->in[best].buffer, to);
}

void sn_plan_overwrite(sn_plan *p) {
    search f = {p, sn_arena_alloc(p->m, sizeof *f.life * (size_t)(p->n_buffer + 1))};
    find_lives(p, f.life);
    for (int at = p->n_step - 1; at >= 0; at--)
        for (int o = 0;
             p->step[at].node->op == SN_OP_map_reduce && is_plain(p, at) && o < p->step[at].n_out;
             o++)
            overwrite(&f, at, o);
}
