/* collectives.c: splits collectives into a start, which stays where the order has put it (as soon as
 * its operand exists), and a wait before the first step that needs the result. Kernels between the
 * two run while the bytes move. */
#include "passes/plan/collectives.h"
#include "passes/plan/row_blocks.h"

#include <string.h>

bool sn_step_is_collective(const sn_step *s) {
    return sn_ops[s->node->op].flags & SN_OPF_COLLECTIVE;
}

static bool touches(const sn_view *v, int n, int buffer) {
    for (int i = 0; i < n; i++)
        if (v[i].buffer == buffer) return true;
    return false;
}

static bool uses(const sn_step *s, int buffer) {
    return touches(s->in, s->n_in, buffer) || touches(s->out, s->n_out, buffer);
}

/* ---- in place ---- */

static void rename_buffer(sn_plan *p, int from, int to) {
    for (int i = 0; i < p->n_step; i++) {
        sn_step *s = &p->step[i];
        for (int k = 0; k < s->n_in; k++)
            if (s->in[k].buffer == from) s->in[k].buffer = to;
        for (int k = 0; k < s->n_out; k++)
            if (s->out[k].buffer == from) s->out[k].buffer = to;
    }
}

/* A sum over ranks may replace its operand, a whole temporary that no later step reads. */
static void sum_in_place(sn_plan *p, int i) {
    const sn_step *s = &p->step[i];
    int from = s->out[0].buffer, to = s->in[0].buffer;
    const sn_buffer *operand = &p->buffer[to], *result = &p->buffer[from];
    if (s->node->op != SN_OP_all_reduce || from == to || s->in[0].offset) return;
    if (operand->kind != SN_BUF_TEMP || result->kind != SN_BUF_TEMP) return;
    if (operand->count != result->count || operand->rows || operand->max_count) return;
    for (int k = i + 1; k < p->n_step; k++)
        if (uses(&p->step[k], to)) return;
    rename_buffer(p, from, to);
}

/* ---- waiting ---- */

/* The first step after i that reads the result or writes what the operation still reads. */
static int first_need(const sn_plan *p, int i) {
    const sn_step *s = &p->step[i];
    int k = i + 1;
    for (; k < p->n_step; k++) {
        const sn_step *t = &p->step[k];
        if (uses(t, s->out[0].buffer) || touches(t->out, t->n_out, s->in[0].buffer)) break;
    }
    const sn_row_loop *loop = k < p->n_step ? sn_row_blocks_loop(p, k) : NULL;
    return loop ? loop->first : k;
}

static bool is_start(const sn_step *s, sn_op op) {
    return s->node->op == op && !s->wait;
}

static int64_t elements(const sn_plan *p, int buffer) {
    int64_t count;
    return sn_dim_is_const(p->m, p->buffer[buffer].count, &count) ? count : 0;
}

/* Where the result of step i is waited for. Operands of reduce_scatter, large gradients, must not
 * pile up until all parts are needed: each is waited for before a later one exceeds the limit. */
static int wait_at(const sn_plan *p, int i) {
    enum { UNDER_WAY = 1 << 22 /* elements that started later */ };
    int need = first_need(p, i), later = 0;
    int64_t total = 0;
    if (p->step[i].node->op != SN_OP_reduce_scatter) return need;
    for (int k = i + 1; k < need; k++) {
        if (!is_start(&p->step[k], SN_OP_reduce_scatter)) continue;
        total += elements(p, p->step[k].in[0].buffer);
        if (later++ && total > UNDER_WAY) return k;
    }
    return need;
}

static void insert_wait(sn_plan *p, int i, int at) {
    sn_step *grown = sn_arena_alloc(p->m, sizeof *grown * (size_t)(p->n_step + 1));
    memcpy(grown, p->step, sizeof *grown * (size_t)at);
    memcpy(grown + at + 1, p->step + at, sizeof *grown * (size_t)(p->n_step - at));
    grown[at] = p->step[i];
    grown[at].wait = true;
    p->step = grown;
    p->n_step++;
    for (int k = 0; k < p->n_loop; k++)
        if (p->loop[k].first >= at) p->loop[k].first++, p->loop[k].last++;
}

void sn_plan_collectives(sn_plan *p) {
    sn_plan_gathers(p);
    for (int i = 0; i < p->n_step; i++) {
        if (!sn_step_is_collective(&p->step[i]) || p->step[i].wait) continue;
        if (sn_plan_wait_of(p, i) < p->n_step) continue;
        sum_in_place(p, i);
        insert_wait(p, i, wait_at(p, i));
    }
}

int sn_plan_wait_of(const sn_plan *p, int i) {
    int k = i + 1;
    while (k < p->n_step && !(p->step[k].wait && p->step[k].node == p->step[i].node)) k++;
    return k;
}
