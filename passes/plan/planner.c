/* planner.c: see planner.h. */
#include "passes/plan/planner.h"

#include <string.h>

/* ---- growing lists ---- */

int sn_planner_buffer(sn_planner *p, sn_buffer_kind kind, const sn_node *type, const char *name) {
    sn_plan *plan = p->plan;
    plan->buffer =
        sn_arena_grow(p->m, plan->buffer, sizeof *plan->buffer, plan->n_buffer, &p->cap_buffer);
    plan->buffer[plan->n_buffer] =
        (sn_buffer){.kind = kind,
                    .dtype = (sn_dtype)type->dtype,
                    .name = name,
                    .count = sn_dim_product(p->m, type->rank, type->shape),
                    .slot = -1};
    return plan->n_buffer++;
}

sn_step *sn_planner_step(sn_planner *p, sn_node *node, int n_in, int n_out) {
    sn_plan *plan = p->plan;
    plan->step = sn_arena_grow(p->m, plan->step, sizeof *plan->step, plan->n_step, &p->cap_step);
    sn_step *s = &plan->step[plan->n_step++];
    *s = (sn_step){.node = node, .n_in = n_in, .n_out = n_out};
    s->in = sn_arena_alloc(p->m, sizeof *s->in * (size_t)(n_in + 1));
    s->out = sn_arena_alloc(p->m, sizeof *s->out * (size_t)(n_out + 1));
    return s;
}

sn_step *sn_planner_fold(sn_planner *p, sn_step_kind kind, sn_node *node, int first) {
    int n = p->plan->n_step - first;
    sn_step *inner = sn_arena_alloc(p->m, sizeof *inner * (size_t)(n + 1));
    memcpy(inner, p->plan->step + first, sizeof *inner * (size_t)n);
    p->plan->n_step = first;
    sn_step *s = sn_planner_step(p, node, 0, 0);
    s->kind = kind;
    s->inner = inner;
    s->n_inner = n;
    return s;
}

/* ---- views ---- */

void sn_planner_set_view(sn_planner *p, const sn_node *n, sn_view v) {
    sn_view *kept = sn_arena_alloc(p->m, sizeof *kept);
    *kept = v;
    p->view[n->id] = kept;
}

sn_view sn_planner_fresh(sn_planner *p, const sn_node *type, const int64_t *order) {
    int b = sn_planner_buffer(p, p->local ? SN_BUF_LOCAL : SN_BUF_TEMP, type, NULL);
    return sn_view_whole(p->m, b, (sn_dtype)type->dtype, type->rank, type->shape, order);
}

sn_view sn_planner_view(sn_planner *p, const sn_node *n) {
    return *p->view[n->id];
}

int sn_planner_find_buffer(const sn_planner *p, sn_buffer_kind kind, const char *name) {
    for (int i = 0; i < p->plan->n_buffer; i++)
        if (p->plan->buffer[i].kind == kind && !strcmp(p->plan->buffer[i].name, name)) return i;
    return -1;
}

sn_view sn_planner_state(sn_planner *p, const sn_node *type, const char *name,
                         const int64_t *order) {
    int b = sn_planner_find_buffer(p, SN_BUF_STATE, name);
    if (b < 0) b = sn_planner_buffer(p, SN_BUF_STATE, type, name);
    return sn_view_whole(p->m, b, (sn_dtype)type->dtype, type->rank, type->shape, order);
}

/* ---- copies: a `map_reduce` kernel whose body is its argument ---- */

static sn_node *identity_kernel(sn_planner *p, const sn_view *src) {
    sn_node *arg = sn_arg(p->m, 0, src->dtype, src->rank, src->shape);
    sn_region *body = sn_region_new(p->m, 1, &arg, 1, &arg);
    /* only the operand's type matters: any node of that type will do */
    sn_node *x = sn_node_new(p->m, SN_OP_input, 0, NULL,
                             SN_ATTRS(SN_STR(name, "copy"), SN_INT(dtype, src->dtype),
                                      SN_LIST(shape, src->rank, src->shape)));
    return sn_node_new(p->m, SN_OP_map_reduce, 1, &x, SN_ATTRS(SN_REG(body, body)));
}

void sn_planner_copy(sn_planner *p, sn_view src, sn_view dst, const char *why) {
    sn_step *s = sn_planner_step(p, identity_kernel(p, &src), 1, 1);
    s->in[0] = src;
    s->out[0] = dst;
    s->why = why;
}
