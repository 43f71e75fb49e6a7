/* scan.c: see scan.h. */
#include "passes/plan/scan_impl.h"

#include <string.h>

/* ---- planning ---- */

/* A window of operand (or result) i of the scan, which has this view: what one iteration sees. */
sn_view sn_scan_add_window(sn_planner *p, scan_plan *c, int i, const sn_view *v,
                           const sn_node *type, bool moves) {
    sn_window *w = &c->window[c->loop->n_window++];
    *w = (sn_window){.buffer = sn_planner_buffer(p, SN_BUF_WINDOW, type, NULL), .operand = i};
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
    for (int i = 0; i < c->n_carry; i++)
        for (int k = 0; k < 2; k++)
            if (c->carry[i].local[k] == v->buffer) return false;
    for (int s = c->first; s < p->plan->n_step; s++) {
        const sn_step *t = &p->plan->step[s];
        for (int k = 0; k < t->n_in + t->n_out; k++) {
            const sn_view *x = k < t->n_in ? &t->in[k] : &t->out[k - t->n_in];
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

/* The body's result x is to be in `to`: written there by its kernel, or copied. */
void sn_scan_deliver(sn_planner *p, const scan_plan *c, const sn_node *x, sn_view to) {
    sn_view v = sn_planner_view(p, x);
    if (!may_move(p, c, &v, &to)) {
        sn_planner_copy(p, v, to, "a result of the iteration, to its place");
        return;
    }
    for (int s = c->first; s < p->plan->n_step; s++) {
        sn_step *t = &p->plan->step[s];
        for (int k = 0; k < t->n_in; k++) move_view(p, &t->in[k], v.buffer, &to);
        for (int k = 0; k < t->n_out; k++) move_view(p, &t->out[k], v.buffer, &to);
    }
    for (int i = 0; i < c->order.n; i++) { /* other results may be views of it */
        const sn_node *n = c->order.node[i];
        for (int k = 0; p->view[n->id] && k < n->n_result; k++)
            move_view(p, &p->view[n->id][k], v.buffer, &to);
    }
}

sn_view sn_scan_whole(sn_planner *p, int buffer, const sn_node *t) {
    return sn_view_whole(p->m, buffer, (sn_dtype)t->dtype, t->rank, t->shape, NULL);
}

sn_scan_carry sn_scan_new_carry(sn_planner *p, const sn_node *t) {
    return (sn_scan_carry){
        sn_planner_buffer(p, SN_BUF_WINDOW, t, NULL),
        sn_planner_buffer(p, SN_BUF_WINDOW, t, NULL),
        {sn_planner_buffer(p, SN_BUF_LOCAL, t, NULL), sn_planner_buffer(p, SN_BUF_LOCAL, t, NULL)}};
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

void sn_planner_scan(sn_planner *p, sn_node *n) {
    scan_plan c = {.s = sn_scan_of(n), .first = p->plan->n_step};
    int n_view = 2 * c.s.n_in + n->n_result;
    c.n_carry = c.s.n_carry;
    c.n_again = sn_scan_is_kept(p, n) ? c.s.again->n_out : 0;
    bool inside = p->inside, local = p->local;
    sn_view *in = sn_arena_alloc(p->m, sizeof *in * (size_t)(c.s.n_in + 1));
    sn_view *out = sn_arena_alloc(p->m, sizeof *out * (size_t)(n->n_result + 1));
    c.loop = sn_arena_alloc(p->m, sizeof *c.loop);
    c.window = sn_arena_alloc(p->m, sizeof *c.window * (size_t)n_view);
    c.carry = sn_arena_alloc(p->m, sizeof *c.carry * (size_t)(c.s.n_carry + 1));
    c.order = sn_region_topo(p->m, c.s.body);
    for (int i = 0; i < c.s.n_in; i++) in[i] = sn_planner_view(p, n->in[i]);
    for (int i = 0; i < n->n_result; i++)
        out[i] = sn_planner_fresh(p, n->n_result > 1 ? n->result_type[i] : n, NULL);
    c.kept = sn_scan_find_kept(p, n);
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
    if (c.n_again) sn_scan_plan_again(p, &c);
    sn_scan_plan_kept(p, &c);
    c.loop->kept = p->plan->n_step - c.first;
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
    if (s->again) {
        loop.again = sn_arena_alloc(p->m, sizeof *loop.again);
        *loop.again = *s->again;
    }
    for (int i = 0; i <= whole->n_inner; i++) {
        if (i == s->begin) loop.begin = at + n;
        if (i == s->kept) loop.kept = at + n;
        if (s->again && i == s->again->restored) loop.again->restored = at + n;
        if (s->again && i == s->again->stored) loop.again->stored = at + n;
        if (s->again && i == s->again->stepped) loop.again->stepped = at + n;
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

sn_dim sn_scan_turns(const sn_plan *p, int i) {
    sn_dim n = 1;
    for (int k = 0; k < p->n_scan; k++) {
        const sn_scan_loop *l = &p->scan[k];
        if (i < l->first || i >= l->last) continue;
        n = sn_dim_mul(p->m, n, sn_dim_product(p->m, l->n_tile, l->parts));
        if (i >= l->begin && i < l->end) n = sn_dim_mul(p->m, n, l->length);
    }
    return n;
}
