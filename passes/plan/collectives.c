/* collectives.c: splits collectives into a start, which stays where the order has put it (as soon as
 * its operand exists), and a wait before the first step that needs the result. Kernels between the
 * two run while the bytes move. */
#include "passes/plan/collectives.h"
#include "passes/graph_util.h"
#include "passes/plan/edit.h"

#include <string.h>

bool sn_step_is_collective(const sn_step *s) {
    return sn_ops[s->node->op].flags & SN_OPF_COLLECTIVE;
}

/* ---- in place ---- */

/* A sum over ranks may replace its operand, a whole temporary that no later step reads. */
static void sum_in_place(sn_plan *p, int i) {
    const sn_step *s = &p->step[i];
    int from = s->out[0].buffer, to = s->in[0].buffer;
    const sn_buffer *operand = &p->buffer[to], *result = &p->buffer[from];
    if (s->node->op != SN_OP_all_reduce || from == to || s->in[0].offset) return;
    if (operand->kind != SN_BUF_TEMP || result->kind != SN_BUF_TEMP) return;
    if (operand->count != result->count || operand->rows || operand->max_count) return;
    for (int k = i + 1; k < p->n_step; k++)
        if (sn_plan_uses(p, k, to)) return;
    sn_plan_rename(p, from, to, 0, p->n_step);
}

/* ---- waiting ---- */

/* The first step after i that reads the result or writes what the operation still reads. */
static int first_need(const sn_plan *p, int i) {
    const sn_step *s = &p->step[i];
    int k = i + 1;
    while (k < p->n_step && !sn_plan_uses(p, k, s->out[0].buffer) &&
           !sn_plan_writes(p, k, s->in[0].buffer))
        k++;
    return k;
}

static bool is_start(const sn_step *s, sn_op op) {
    return s->node->op == op && !s->wait;
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
        total += sn_plan_elements(p, p->step[k].in[0].buffer);
        if (later++ && total > UNDER_WAY) return k;
    }
    return need;
}

static void insert(sn_plan *p, sn_step step, int at) {
    sn_step *grown = sn_arena_alloc(p->m, sizeof *grown * (size_t)(p->n_step + 1));
    memcpy(grown, p->step, sizeof *grown * (size_t)at);
    memcpy(grown + at + 1, p->step + at, sizeof *grown * (size_t)(p->n_step - at));
    grown[at] = step;
    p->step = grown;
    p->n_step++;
}

/* ---- from run to run ---- */

/* A wait whose gathered tensor is all that is still used. */
static sn_step wait_for_whole(sn_node *gather, sn_view *whole, sn_wait wait) {
    return (sn_step){
        .node = gather, .n_in = 1, .n_out = 1, .in = whole, .out = whole, .wait = wait};
}

static bool may_be_left(const sn_plan *p, const sn_step *s) {
    return s->node->op == SN_OP_all_gather && p->buffer[s->out[0].buffer].kind == SN_BUF_STATE;
}

/* The all_gather whose result an entry assigns to the state; NULL: there is none. */
static sn_node *gather_of(sn_module *m, const char *state) {
    for (int k = 0; k < sn_entry_count(m); k++) {
        const sn_entry *e = sn_entry_at(m, k);
        for (int i = 0; i < e->n_assign; i++) {
            sn_node *n = sn_below_views(e->assign[i].node);
            if (n->op == SN_OP_all_gather && !strcmp(e->assign[i].name, state)) return n;
        }
    }
    return NULL;
}

static void wait_for_left(sn_plan *p, int buffer) {
    const sn_buffer *b = &p->buffer[buffer];
    sn_node *n = b->kind == SN_BUF_STATE ? gather_of(p->m, b->name) : NULL;
    int at = 0;
    while (n && at < p->n_step && !sn_plan_uses(p, at, buffer)) at++;
    if (!n || at == p->n_step) return;
    sn_view *whole = sn_arena_alloc(p->m, sizeof *whole);
    *whole = sn_view_whole(p->m, buffer, (sn_dtype)n->dtype, n->rank, n->shape, NULL);
    insert(p, wait_for_whole(n, whole, SN_WAIT_LEFT), at);
}

static bool has_wait(const sn_plan *p, int i) {
    for (int k = i + 1; k < p->n_step; k++)
        if (p->step[k].wait && p->step[k].node == p->step[i].node) return true;
    return false;
}

void sn_plan_collectives(sn_plan *p) {
    sn_plan_gathers(p);
    for (int i = 0; i < p->n_step; i++) {
        const sn_step *s = &p->step[i];
        if (!sn_step_is_collective(s) || s->wait || has_wait(p, i)) continue;
        sum_in_place(p, i);
        sn_step wait = p->step[i];
        int at = wait_at(p, i);
        wait.wait = SN_WAIT;
        if (at == p->n_step && may_be_left(p, s))
            wait = wait_for_whole(s->node, s->out, SN_WAIT_LEAVE);
        insert(p, wait, at);
    }
    for (int b = 0; b < p->n_buffer; b++) wait_for_left(p, b);
}

int sn_plan_wait_of(const sn_plan *p, int i) {
    int k = i + 1;
    while (k < p->n_call && !(p->call[k]->wait && p->call[k]->node == p->call[i]->node)) k++;
    return k;
}
