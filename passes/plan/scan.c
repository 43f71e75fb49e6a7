/* scan.c: see scan.h. */
#include "passes/plan/order.h"
#include "passes/plan/scan_impl.h"

#include <string.h>

/* ---- planning ---- */

/* How many parts each independent axis has. */
static void count_parts(sn_planner *p, scan_plan *c, const sn_node *n) {
    for (int k = 0; k < c->s.n_tile; k++)
        for (int i = 0; i < c->s.n_in; i++) {
            int a = sn_scan_tile(&c->s, i, k);
            if (a < 0) continue;
            sn_dim whole = n->in[i]->shape[a + sn_scan_is_sequence(&c->s, i)];
            sn_dim_div(p->m, whole, c->s.body->arg[i]->shape[a], &c->loop->parts[k]);
        }
}

/* Operands as the body's arguments; copies the carries to where they begin. */
static void open_scan(sn_planner *p, scan_plan *c, const sn_node *n) {
    for (int i = 0; i < c->s.n_in; i++) {
        const sn_node *arg = c->s.body->arg[i];
        if (sn_scan_computes(c, i)) continue;
        sn_view one =
            sn_scan_add_window(p, c, i, &c->loop->in[i], arg, sn_scan_is_sequence(&c->s, i));
        if (i < c->s.n_carry) {
            c->carry[i] = sn_scan_new_carry(p, arg);
            sn_view now = sn_scan_whole(p, c->carry[i].now, arg);
            sn_planner_copy(p, one, now, "a carry at the start");
            one = now;
        }
        sn_planner_set_view(p, arg, one);
    }
    count_parts(p, c, n);
}

static void close_scan(sn_planner *p, scan_plan *c, const sn_node *n) {
    const sn_region *body = c->s.body;
    sn_view out[SN_MAX_RESULTS];
    for (int i = 0; i < n->n_result; i++)
        if (i < c->s.n_carry || !sn_scan_keeps(c, i))
            out[i] = sn_scan_add_window(p, c, c->s.n_in + i, &c->loop->out[i], body->out[i],
                                        i >= c->s.n_carry);
    for (int i = 0; i < c->s.n_carry; i++) {
        const sn_node *t = body->out[i];
        sn_scan_deliver(p, c, t, sn_scan_whole(p, c->carry[i].next, t));
    }
    for (int i = c->s.n_carry; i < n->n_result; i++) {
        if (!sn_scan_keeps(c, i)) sn_scan_deliver(p, c, body->out[i], out[i]);
    }
    c->loop->end = p->plan->n_step - c->first;
    for (int i = 0; i < c->s.n_carry; i++) {
        const sn_node *t = body->out[i];
        sn_planner_copy(p, sn_scan_whole(p, c->carry[i].now, t), out[i], "a carry at the end");
    }
}

void sn_planner_scan(sn_planner *p, sn_node *n) {
    scan_plan c = {.s = sn_scan_of(n), .first = p->plan->n_step};
    int n_view = 2 * c.s.n_in + n->n_result;
    c.n_carry = c.s.n_carry;
    c.n_recomputed = sn_scan_recomputes(p, n) ? c.s.again->n_out : 0;
    bool inside = p->inside, local = p->local;
    sn_view *in = sn_arena_alloc(p->m, sizeof *in * (size_t)(c.s.n_in + 1));
    sn_view *out = sn_arena_alloc(p->m, sizeof *out * (size_t)(n->n_result + 1));
    c.loop = sn_arena_alloc(p->m, sizeof *c.loop);
    c.window = sn_arena_alloc(p->m, sizeof *c.window * (size_t)n_view);
    c.carry = sn_arena_alloc(p->m, sizeof *c.carry * (size_t)(c.s.n_carry + 1));
    c.order = sn_region_topo(p->m, c.s.body);
    for (int i = 0; i < c.s.n_in; i++) in[i] = sn_planner_view(p, n->in[i]);
    for (int i = 0; i < n->n_result; i++) {
        const sn_node *type = n->n_result > 1 ? n->result_type[i] : n;
        const int64_t *axes = NULL;
        const char *state = inside ? NULL : sn_inplace_target(p->entry, p->order, p->at, i, &axes);
        out[i] = state ? sn_planner_state(p, type, state, axes) : sn_planner_fresh(p, type, NULL);
    }
    c.saved = sn_scan_find_saved(p, n);
    for (int i = c.s.n_carry; i < n->n_result; i++)
        if (sn_scan_keeps(&c, i)) {
            sn_buffer *b = &p->plan->buffer[out[i].buffer];
            b->count = out[i].stride[0];
            b->segments = out[i].shape[0];
        }
    *c.loop = (sn_scan_loop){.parent = -1,
                             .reverse = c.s.reverse,
                             .length = n->in[c.s.n_carry]->shape[0],
                             .n_tile = c.s.n_tile,
                             .window = c.window,
                             .carry = c.carry,
                             .n_carry = c.s.n_carry,
                             .in = in,
                             .out = out,
                             .n_in = c.s.n_in,
                             .n_out = n->n_result};
    /* another scan, such as the one around this one, may have the same nodes in its body, whose
     * views are those of its own operands */
    sn_view **before = sn_scan_take_views(p, c.s.body, c.order);
    p->inside = p->local = true;
    open_scan(p, &c, n);
    c.loop->begin = p->plan->n_step - c.first;
    if (c.n_recomputed) sn_scan_plan_again(p, &c);
    sn_scan_plan_saved(p, &c);
    c.loop->hoisted_end = p->plan->n_step - c.first;
    for (int i = 0; i < c.order.n; i++)
        if (c.order.node[i]->op != SN_OP_arg) p->node(p, c.order.node[i]);
    close_scan(p, &c, n);
    p->inside = inside;
    p->local = local;
    sn_scan_restore_views(p, c.s.body, c.order, before);
    sn_step whole = {.node = n, .n_in = c.s.n_in, .n_out = n->n_result, .in = in, .out = out};
    whole.scan = c.loop;
    whole.n_inner = p->plan->n_step - c.first;
    whole.inner = sn_arena_alloc(p->m, sizeof *whole.inner * (size_t)(whole.n_inner + 1));
    memcpy(whole.inner, p->plan->step + c.first, sizeof *whole.inner * (size_t)whole.n_inner);
    p->plan->n_step = c.first;
    *sn_planner_step(p, n, 0, 0) = whole;
    p->view[n->id] = sn_arena_alloc(p->m, sizeof *out * (size_t)(n->n_result + 1));
    memcpy(p->view[n->id], out, sizeof *out * (size_t)n->n_result);
}

/* ---- the loops ---- */

void sn_scan_count(const sn_step *s, int *steps, int *scans) {
    if (!s->scan) {
        ++*steps;
        return;
    }
    ++*scans;
    for (int i = 0; i < s->n_inner; i++) sn_scan_count(&s->inner[i], steps, scans);
}

int sn_scan_unfold(sn_plan *p, const sn_step *whole, sn_step *to, int at, int parent) {
    int n = 0, mine = p->n_scan++;
    const sn_scan_loop *s = whole->scan;
    sn_scan_loop loop = *s; /* its step numbers count whole steps of the body */
    loop.first = at;
    loop.parent = parent;
    loop.in = whole->in; /* a copy of the step may refer to other buffers */
    loop.out = whole->out;
    loop.n_in = whole->n_in;
    loop.n_out = whole->n_out;
    if (s->recompute) {
        loop.recompute = sn_arena_alloc(p->m, sizeof *loop.recompute);
        *loop.recompute = *s->recompute;
    }
    for (int i = 0; i <= whole->n_inner; i++) {
        if (i == s->begin) loop.begin = at + n;
        if (i == s->hoisted_end) loop.hoisted_end = at + n;
        if (s->recompute && i == s->recompute->restore_end) loop.recompute->restore_end = at + n;
        if (s->recompute && i == s->recompute->store_end) loop.recompute->store_end = at + n;
        if (s->recompute && i == s->recompute->step_end) loop.recompute->step_end = at + n;
        if (i == s->end) loop.end = at + n;
        if (i == whole->n_inner) break;
        if (whole->inner[i].scan)
            n += sn_scan_unfold(p, &whole->inner[i], to + n, at + n, mine);
        else
            to[n++] = whole->inner[i];
    }
    loop.last = at + n;
    p->scan[mine] = loop;
    return n;
}

const sn_scan_loop *sn_scan_around(const sn_plan *p, int i) {
    for (int k = 0; k < p->n_scan; k++)
        if (i >= p->scan[k].first && i < p->scan[k].last) return &p->scan[k];
    return NULL;
}

/* Steps that run for the first element of a segment only. */
static bool once_a_segment(const sn_scan_loop *l, int i) {
    int from = l->recompute ? l->recompute->step_end : l->begin;
    return (l->recompute && i < l->recompute->restore_end) || (i >= from && i < l->hoisted_end);
}

sn_dim sn_scan_iterations(const sn_plan *p, int i, sn_dim *segments) {
    sn_dim n = 1;
    if (segments) *segments = 0;
    for (int k = 0; k < p->n_scan; k++) {
        const sn_scan_loop *l = &p->scan[k];
        if (i < l->first || i >= l->last) continue;
        n = sn_dim_mul(p->m, n, sn_dim_product(p->m, l->n_tile, l->parts));
        if (i < l->begin || i >= l->end) continue;
        if (segments && once_a_segment(l, i))
            *segments = l->length;
        else
            n = sn_dim_mul(p->m, n, l->length);
    }
    return n;
}
