/* scan_parts.c: windows, carries and results of the body of a scan that is being planned. */
#include "passes/plan/scan_impl.h"

/* A window of a buffer of this type; the loop's last one. */
static sn_window *add_window(sn_planner *p, scan_plan *c, const sn_node *type, sn_index index) {
    sn_window *w = &c->loop->window[c->loop->n_window++];
    *w = (sn_window){sn_planner_buffer(p, SN_BUF_WINDOW, type, NULL), .index = index};
    c->loop->segments |= index == SN_BY_SEGMENT || index == SN_BY_PLACE;
    return w;
}

sn_view sn_scan_operand_window(sn_planner *p, scan_plan *c, int i, const sn_node *type,
                               sn_index index) {
    const sn_view *v = i < c->s.n_in ? &c->in[i] : &c->out[i - c->s.n_in];
    sn_window *w = add_window(p, c, type, index);
    bool moves = index != SN_BY_PART;
    w->operand = i;
    if (moves) w->step = v->stride[0];
    sn_view one = {.buffer = w->buffer, .dtype = v->dtype, .rank = type->rank};
    for (int a = 0; a < type->rank; a++) {
        one.shape[a] = type->shape[a];
        one.stride[a] = v->stride[a + moves];
    }
    for (int k = 0; k < c->s.n_tile; k++) {
        int a = sn_scan_tile(&c->s, i, k);
        if (a >= 0) w->tile_step[k] = sn_dim_mul(p->m, one.stride[a], type->shape[a]);
    }
    return one;
}

int sn_scan_local_window(sn_planner *p, scan_plan *c, int local, const sn_node *type, sn_dim step,
                         sn_index index) {
    sn_window *w = add_window(p, c, type, index);
    w->operand = -1;
    w->local = local;
    w->step = step;
    return w->buffer;
}

sn_view sn_scan_whole(sn_planner *p, int buffer, const sn_node *t) {
    return sn_view_whole(p->m, buffer, (sn_dtype)t->dtype, t->rank, t->shape, NULL);
}

/* Both places of f32 begin with a cache line; those of wider types, too. */
scan_carry sn_scan_new_carry(sn_planner *p, scan_plan *c, const sn_node *t) {
    enum { LINE = 16 /* elements of 4 bytes */ };
    int local = sn_planner_buffer(p, SN_BUF_LOCAL, t, NULL);
    sn_dim *count = &p->plan->buffer[local].count;
    sn_dim step = sn_dim_mul(p->m, sn_dim_div_up(p->m, *count, LINE), LINE);
    *count = sn_dim_mul(p->m, step, 2);
    return (scan_carry){sn_scan_local_window(p, c, local, t, step, SN_BY_PARITY),
                        sn_scan_local_window(p, c, local, t, step, SN_BY_NEXT_PARITY)};
}

sn_view **sn_scan_take_views(sn_planner *p, const sn_region *r, sn_order order) {
    sn_view **before = sn_arena_alloc(p->m, sizeof(sn_view *) * (size_t)(order.n + r->n_arg + 1));
    for (int i = 0; i < order.n + r->n_arg; i++)
        before[i] = p->view[(i < order.n ? order.node[i] : r->arg[i - order.n])->id];
    for (int i = 0; i < order.n; i++) p->view[order.node[i]->id] = NULL;
    return before;
}

void sn_scan_restore_views(sn_planner *p, const sn_region *r, sn_order order,
                           sn_view *const *before) {
    for (int i = 0; i < order.n + r->n_arg; i++)
        p->view[(i < order.n ? order.node[i] : r->arg[i - order.n])->id] = before[i];
}

/* The view x of a whole local, with the strides of `to`, which is to take its place. */
static bool moved_view(sn_planner *p, const sn_view *x, const sn_view *to, sn_view *out) {
    if (x->offset || !sn_view_contiguous(p->m, x) ||
        sn_dim_product(p->m, x->rank, x->shape) != sn_dim_product(p->m, to->rank, to->shape))
        return false;
    return sn_view_reshape(p->m, to, x->rank, x->shape, out);
}

/* Whether the steps of the body see `v`, a whole local that a kernel writes, as a whole only, and
 * `to` may take its place: products need the same strides. */
static bool may_move(sn_planner *p, const scan_plan *c, const sn_view *v, const sn_view *to) {
    bool written = false;
    sn_view new;
    if (p->plan->buffer[v->buffer].kind != SN_BUF_LOCAL || v->offset) return false;
    for (int s = c->first; s < p->plan->n_step; s++) {
        const sn_step *t = &p->plan->step[s];
        for (int k = 0; k < t->n_in + t->n_out; k++) {
            const sn_view *x = sn_view_of(t, k);
            if (x->buffer != v->buffer) continue;
            if (!moved_view(p, x, to, &new)) return false;
            for (int a = 0; a < x->rank && t->node->op != SN_OP_map_reduce; a++)
                if (x->shape[a] != 1 && x->stride[a] != new.stride[a]) return false;
            written |= k >= t->n_in;
        }
    }
    for (int i = 0; i < c->order.n; i++) { /* of other results */
        const sn_node *n = c->order.node[i];
        for (int k = 0; p->view[n->id] && k < n->n_result; k++)
            if (p->view[n->id][k].buffer == v->buffer &&
                !moved_view(p, &p->view[n->id][k], to, &new))
                return false;
    }
    return written;
}

static void move_view(sn_planner *p, sn_view *x, int from, const sn_view *to) {
    sn_view was = *x;
    if (x->buffer == from) moved_view(p, &was, to, x);
}

void sn_scan_deliver(sn_planner *p, const scan_plan *c, const sn_node *x, sn_view to) {
    sn_view v = sn_planner_view(p, x);
    if (!may_move(p, c, &v, &to)) {
        sn_planner_copy(p, v, to, "a result of the iteration, to its place");
        return;
    }
    for (int s = c->first; s < p->plan->n_step; s++) {
        const sn_step *t = &p->plan->step[s];
        for (int k = 0; k < t->n_in + t->n_out; k++) move_view(p, sn_view_of(t, k), v.buffer, &to);
    }
    for (int i = 0; i < c->order.n; i++) { /* other results may be views of it */
        const sn_node *n = c->order.node[i];
        for (int k = 0; p->view[n->id] && k < n->n_result; k++)
            move_view(p, &p->view[n->id][k], v.buffer, &to);
    }
}
