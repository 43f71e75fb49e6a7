/* scan_recompute.c: the gradient of a scan reads the scan's carries before each element. Of T elements, only
 * those that begin a segment of about sqrt(T) elements are kept, by the forward scan. The backward
 * scan computes those of a segment again when it comes to its last element, in memory of the thread: so
 * there are never more than about 2 sqrt(T) carries, and each is computed twice. */
#include "passes/plan/scan_impl.h"

#include <math.h>

int64_t sn_scan_segment(int64_t length) {
    return (int64_t)sqrt((double)length) + 1;
}

/* ---- which ---- */

bool sn_scan_recomputes(const sn_planner *p, const sn_node *n) {
    sn_scan s = sn_scan_of(n);
    if (!s.again || p->inside) return false;
    for (int i = 0; i < s.again->n_out; i++) {
        const sn_node *x = n->in[s.n_carry + i];
        if (x->op != SN_OP_result || x->in[0]->op != SN_OP_scan || p->users[x->id] != 1)
            return false;
        sn_scan forward = sn_scan_of(x->in[0]);
        if (forward.reverse == s.reverse || sn_attr_int(x, SN_A_index, 0) < forward.n_carry)
            return false;
    }
    return true;
}

uint32_t sn_scan_find_saved(const sn_planner *p, const sn_node *n) {
    uint32_t saved = 0;
    for (int i = 0; i < p->order.n && !p->inside; i++) {
        const sn_node *x = p->order.node[i], *reader = p->user[x->id];
        if (x->op != SN_OP_result || x->in[0] != n || p->users[x->id] != 1 || !reader ||
            reader->op != SN_OP_scan || !sn_scan_recomputes(p, reader))
            continue;
        sn_scan s = sn_scan_of(reader);
        for (int k = 0; k < s.again->n_out; k++)
            if (reader->in[s.n_carry + k] == x) saved |= 1U << sn_attr_int(x, SN_A_index, 0);
    }
    return saved;
}

bool sn_scan_keeps(const scan_plan *c, int result) {
    return c->saved >> result & 1;
}

bool sn_scan_computes(const scan_plan *c, int operand) {
    return operand >= c->s.n_carry && operand < c->s.n_carry + c->n_recomputed;
}

/* ---- steps ---- */

static void set_when(sn_planner *p, int first, sn_when when) {
    for (int i = first; i < p->plan->n_step; i++) p->plan->step[i].when = when;
}

void sn_scan_plan_saved(sn_planner *p, scan_plan *c) {
    int first = p->plan->n_step;
    for (int i = c->s.n_carry; i < c->s.body->n_out; i++) {
        if (!sn_scan_keeps(c, i)) continue;
        const sn_node *x = c->s.body->out[i];
        sn_view to = sn_scan_operand_window(p, c, c->s.n_in + i, x, SN_BY_SEGMENT);
        sn_planner_copy(p, sn_planner_view(p, x), to, "a carry before a segment");
    }
    set_when(p, first, SN_IF_SEGMENT_BEGINS);
}

/* The calls that compute the carries after an element. */
static void plan_next(sn_planner *p, const scan_plan *c, const scan_carry *carry) {
    const sn_region *r = c->s.again;
    scan_plan g = {.order = sn_region_topo(p->m, r), .first = p->plan->n_step};
    sn_view **before = sn_scan_take_views(p, r, g.order);
    for (int i = 0; i < g.order.n; i++) { /* what the body reads of the element, and captures */
        const sn_node *x = g.order.node[i];
        int k = x->op == SN_OP_arg ? (int)sn_attr_int(x, SN_A_index, 0) : -1;
        if (k >= c->s.n_carry) p->view[x->id] = before[g.order.n + k];
    }
    for (int i = 0; i < r->n_out; i++) {
        const sn_node *arg = r->arg[c->s.n_carry + i];
        sn_planner_set_view(p, arg, sn_scan_whole(p, carry[i].now, arg));
    }
    for (int i = 0; i < g.order.n; i++)
        if (g.order.node[i]->op != SN_OP_arg) p->node(p, g.order.node[i]);
    for (int i = 0; i < r->n_out; i++)
        sn_scan_deliver(p, &g, r->out[i], sn_scan_whole(p, carry[i].next, r->out[i]));
    sn_scan_restore_views(p, r, g.order, before);
    set_when(p, g.first, SN_IF_SEGMENT_GOES_ON);
}

void sn_scan_plan_again(sn_planner *p, scan_plan *c) {
    int n = c->n_recomputed, first = p->plan->n_step;
    scan_carry *carry = sn_arena_alloc(p->m, sizeof *carry * (size_t)n);
    sn_node *const *arg = c->s.body->arg + c->s.n_carry;
    c->loop->recomputes = true;
    for (int i = 0; i < n; i++) {
        carry[i] = sn_scan_new_carry(p, c, arg[i]);
        sn_planner_copy(p, sn_scan_operand_window(p, c, c->s.n_carry + i, arg[i], SN_BY_SEGMENT),
                        sn_scan_whole(p, carry[i].now, arg[i]), "a carry before a segment");
    }
    set_when(p, first, SN_IF_SEGMENT_BEGINS);
    for (int i = 0; i < n; i++) {
        int all = sn_planner_buffer(p, SN_BUF_LOCAL, arg[i], NULL);
        sn_buffer *b = &p->plan->buffer[all];
        b->segments = c->loop->length;
        int one = sn_scan_local_window(p, c, all, arg[i], b->count, SN_BY_PLACE);
        sn_planner_copy(p, sn_scan_whole(p, carry[i].now, arg[i]), sn_scan_whole(p, one, arg[i]),
                        "a carry of a segment");
        sn_planner_set_view(p, arg[i], sn_scan_whole(p, one, arg[i]));
    }
    plan_next(p, c, carry);
    sn_planner_fold(p, SN_STEP_SEGMENT, p->plan->step[first].node, first)->when =
        SN_IF_SEGMENT_ENDS;
}
