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

void sn_scan_plan_saved(sn_planner *p, scan_plan *c) {
    for (int i = c->s.n_carry; i < c->s.body->n_out; i++) {
        if (!sn_scan_keeps(c, i)) continue;
        const sn_node *x = c->s.body->out[i];
        sn_view to = sn_scan_add_window(p, c, c->s.n_in + i, &c->loop->out[i], x, true);
        c->window[c->loop->n_window - 1].per_segment = true;
        sn_planner_copy(p, sn_planner_view(p, x), to, "a carry before a segment");
    }
}

/* A window of operand i that steps set to an element. */
static sn_view add_place(sn_planner *p, scan_plan *c, int i, sn_scan_place *place) {
    const sn_node *arg = c->s.body->arg[i];
    sn_view one = sn_scan_add_window(p, c, i, &c->loop->in[i], arg, true);
    sn_window *home = &c->window[c->loop->n_window - 1];
    *place =
        (sn_scan_place){one.buffer, sn_planner_buffer(p, SN_BUF_WINDOW, arg, NULL), home->step};
    home->step = 0;
    one.buffer = place->at;
    return one;
}

static void plan_steps(sn_planner *p, scan_plan *c, sn_recompute *a) {
    const sn_region *r = c->s.again;
    sn_order order = sn_region_topo(p->m, r);
    scan_plan g = {.s = c->s, .loop = c->loop, .window = c->window, .order = order};
    g.carry = a->carry;
    g.n_carry = a->n;
    sn_view **before = sn_scan_take_views(p, r, order);
    for (int i = 0; i < a->n; i++) {
        const sn_node *arg = r->arg[c->s.n_carry + i];
        sn_planner_set_view(p, arg, sn_scan_whole(p, a->carry[i].now, arg));
    }
    for (int i = 0; i < order.n; i++) {
        const sn_node *x = order.node[i];
        int k = x->op == SN_OP_arg ? (int)sn_attr_int(x, SN_A_index, 0) : -1;
        if (k >= c->s.n_carry + c->s.n_sequence)
            p->view[x->id] = before[order.n + k]; /* captured */
        if (k < 0 || !sn_scan_is_sequence(&c->s, k) || sn_scan_computes(c, k)) continue;
        sn_planner_set_view(p, x, add_place(p, c, k, &a->sequence[a->n_sequence++]));
    }
    g.first = p->plan->n_step;
    for (int i = 0; i < order.n; i++)
        if (order.node[i]->op != SN_OP_arg) p->node(p, order.node[i]);
    for (int i = 0; i < a->n; i++)
        sn_scan_deliver(p, &g, r->out[i], sn_scan_whole(p, a->carry[i].next, r->out[i]));
    sn_scan_restore_views(p, r, order, before);
}

void sn_scan_plan_again(sn_planner *p, scan_plan *c) {
    sn_recompute *a = c->loop->recompute = sn_arena_alloc(p->m, sizeof *a);
    *a = (sn_recompute){.n = c->n_recomputed};
    a->carry = sn_arena_alloc(p->m, sizeof *a->carry * (size_t)a->n);
    a->first = sn_arena_alloc(p->m, sizeof *a->first * (size_t)(2 * a->n + c->s.n_sequence));
    a->past = a->first + a->n;
    a->sequence = a->past + a->n;
    for (int i = 0; i < a->n; i++) {
        const sn_node *arg = c->s.body->arg[c->s.n_carry + i];
        a->carry[i] = sn_scan_new_carry(p, arg);
        a->past[i] = (sn_scan_place){sn_planner_buffer(p, SN_BUF_LOCAL, arg, NULL),
                                     sn_planner_buffer(p, SN_BUF_WINDOW, arg, NULL),
                                     sn_dim_product(p->m, arg->rank, arg->shape)};
        p->plan->buffer[a->past[i].home].segments = c->loop->length;
        sn_planner_copy(p, add_place(p, c, c->s.n_carry + i, &a->first[i]),
                        sn_scan_whole(p, a->carry[i].now, arg), "a carry before a segment");
    }
    a->restore_end = p->plan->n_step - c->first;
    for (int i = 0; i < a->n; i++) {
        const sn_node *arg = c->s.body->arg[c->s.n_carry + i];
        sn_planner_copy(p, sn_scan_whole(p, a->carry[i].now, arg),
                        sn_scan_whole(p, a->past[i].at, arg), "a carry of a segment");
    }
    a->store_end = p->plan->n_step - c->first;
    plan_steps(p, c, a);
    a->step_end = p->plan->n_step - c->first;
    for (int i = 0; i < a->n; i++) {
        const sn_node *arg = c->s.body->arg[c->s.n_carry + i];
        sn_planner_set_view(p, arg, sn_scan_whole(p, a->past[i].at, arg));
    }
}
