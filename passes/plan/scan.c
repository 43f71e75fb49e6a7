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
static void open_scan(sn_planner *p, scan_plan *c) {
    for (int i = 0; i < c->s.n_in; i++) {
        const sn_node *arg = c->s.body->arg[i];
        if (sn_scan_computes(c, i)) continue;
        sn_view one = sn_scan_operand_window(
            p, c, i, arg, sn_scan_is_sequence(&c->s, i) ? SN_BY_ELEMENT : SN_BY_PART);
        if (i < c->s.n_carry) {
            c->carry[i] = sn_scan_new_carry(p, c, arg);
            sn_view now = sn_scan_whole(p, c->carry[i].now, arg);
            sn_planner_copy(p, one, now, "a carry at the start");
            one = now;
        }
        sn_planner_set_view(p, arg, one);
    }
}

static void plan_elements(sn_planner *p, scan_plan *c, sn_node *n) {
    sn_node *const *out = c->s.body->out;
    int first = p->plan->n_step;
    if (c->n_recomputed) sn_scan_plan_again(p, c);
    sn_scan_plan_saved(p, c);
    for (int i = 0; i < c->order.n; i++)
        if (c->order.node[i]->op != SN_OP_arg) p->node(p, c->order.node[i]);
    for (int i = 0; i < n->n_result; i++) {
        if (i < c->s.n_carry)
            sn_scan_deliver(p, c, out[i], sn_scan_whole(p, c->carry[i].next, out[i]));
        else if (!sn_scan_keeps(c, i))
            sn_scan_deliver(p, c, out[i],
                            sn_scan_operand_window(p, c, c->s.n_in + i, out[i], SN_BY_ELEMENT));
    }
    sn_planner_fold(p, SN_STEP_ELEMENTS, n, first);
}

/* The carry after the last iteration, or at the start: windows stay where they are. */
static void close_scan(sn_planner *p, scan_plan *c) {
    for (int i = 0; i < c->s.n_carry; i++) {
        const sn_node *t = c->s.body->out[i];
        sn_planner_copy(p, sn_scan_whole(p, c->carry[i].next, t),
                        sn_scan_operand_window(p, c, c->s.n_in + i, t, SN_BY_PART),
                        "a carry at the end");
    }
}

void sn_planner_scan(sn_planner *p, sn_node *n) {
    scan_plan c = {.s = sn_scan_of(n), .first = p->plan->n_step};
    c.n_recomputed = sn_scan_recomputes(p, n) ? c.s.again->n_out : 0;
    bool inside = p->inside, local = p->local;
    sn_view *in = sn_arena_alloc(p->m, sizeof *in * (size_t)(c.s.n_in + 1));
    sn_view *out = sn_arena_alloc(p->m, sizeof *out * (size_t)(n->n_result + 1));
    c.carry = sn_arena_alloc(p->m, sizeof *c.carry * (size_t)(c.s.n_carry + 1));
    c.order = sn_region_topo(p->m, c.s.body);
    c.in = in, c.out = out;
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
    c.loop = sn_arena_alloc(p->m, sizeof *c.loop);
    *c.loop = (sn_scan_loop){
        .reverse = c.s.reverse, .length = n->in[c.s.n_carry]->shape[0], .n_tile = c.s.n_tile};
    int n_window = c.s.n_in + n->n_result + 2 * c.s.n_carry + 3 * c.n_recomputed;
    c.loop->window = sn_arena_alloc(p->m, sizeof *c.loop->window * (size_t)(n_window + 1));
    count_parts(p, &c, n);
    /* another scan, such as the one around this one, may have the same nodes in its body, whose
     * views are those of its own operands */
    sn_view **before = sn_scan_take_views(p, c.s.body, c.order);
    p->inside = p->local = true;
    open_scan(p, &c);
    plan_elements(p, &c, n);
    close_scan(p, &c);
    p->inside = inside;
    p->local = local;
    sn_scan_restore_views(p, c.s.body, c.order, before);
    sn_step *whole = sn_planner_fold(p, SN_STEP_SCAN, n, c.first);
    whole->n_in = c.s.n_in, whole->n_out = n->n_result;
    whole->in = in, whole->out = out;
    whole->scan = c.loop;
    p->view[n->id] = sn_arena_alloc(p->m, sizeof *out * (size_t)(n->n_result + 1));
    memcpy(p->view[n->id], out, sizeof *out * (size_t)n->n_result);
}

/* ---- loops ---- */

const sn_step *sn_scan_elements(const sn_step *scan) {
    const sn_step *s = scan->inner;
    while (s->kind != SN_STEP_ELEMENTS) s++;
    return s;
}

sn_dim sn_scan_iterations(sn_module *m, const sn_step *s, sn_dim *segments) {
    sn_dim n = 1;
    bool once = segments && s->when == SN_IF_SEGMENT_BEGINS;
    if (segments) *segments = 0;
    for (; s->around; s = s->around) {
        const sn_scan_loop *l = s->around->scan;
        if (!l) continue;
        n = sn_dim_mul(m, n, sn_dim_product(m, l->n_tile, l->parts));
        if (s->kind != SN_STEP_ELEMENTS) continue;
        if (once)
            *segments = l->length;
        else
            n = sn_dim_mul(m, n, l->length);
        once = false;
    }
    return n;
}
