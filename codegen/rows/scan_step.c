/* scan_step.c: see scan_step.h. The body is emitted value by value: for each node and element of the
 * inner axis. Values with an inner axis are emitted in loops over it, one for each stage: what a reduction
 * gives is read in a later loop. Short inner axes are unrolled. */
#include "codegen/rows/scan_step.h"

#include <string.h>

enum { PARTIAL = 2 }; /* partial sums of a reduction */
/* Values with an inner axis; all but those that are computed once for all groups. */
enum { OF_INNER = 1, OF_GROUP = 2 };

value *sn_step_value(const gen *g, const sn_node *n) {
    return &g->value[g->l.body->index[n->id]];
}

const sn_view *sn_step_view(const gen *g, int i) {
    return sn_view_of(g->k->step, i);
}

/* The node of the body that operand or result i is. */
static const sn_node *type_of(const gen *g, int i) {
    return i < g->n_in ? g->l.s.body->arg[i] : g->l.s.body->out[sn_step_out(g, i - g->n_in)];
}

int sn_step_out(const gen *g, int i) {
    return i < g->n_own ? i : i + g->l.s.n_again;
}

/* Whether it has an axis of elements. */
bool sn_step_is_sequence(const gen *g, int i) {
    return i < g->n_in ? sn_scan_is_sequence(&g->l.s, i) : i >= g->n_in + g->n_own;
}

bool sn_step_is_summed(const gen *g, int i) {
    i -= g->n_in + g->n_own;
    return i >= 0 && g->l.s.sums && g->l.s.sums[i] >= 0;
}

bool sn_step_has_inner(gen *g, const sn_node *n) {
    return sn_lanes_axis(&g->l, n, g->l.inner) >= 0;
}

/* The stride of operand or result i along a class; 0: it has no such axis. */
sn_dim sn_step_stride(gen *g, int i, int class) {
    int a = sn_lanes_axis(&g->l, type_of(g, i), class);
    return a < 0 ? 0 : sn_step_view(g, i)->stride[a + sn_step_is_sequence(g, i)];
}

/* ---- memory ---- */

static em_val on_all_lanes(gen *g, em_val v) {
    return em_splat(g->e, v, em_lanes_of(v) > 1 ? 1 : g->lanes);
}

static em_val element_ptr(gen *g, int i, int u) {
    em *e = g->e;
    sn_dtype t = sn_step_view(g, i)->dtype;
    em_val by = sn_kernel_dim(e, g->k, sn_step_stride(g, i, g->l.inner));
    em_val off = em_mul(e, em_add(e, g->inner, u), by);
    return em_gep(e, g->at[i], t, off);
}

static em_val load_operand(gen *g, int i, int u) {
    em *e = g->e;
    sn_dtype t = sn_step_view(g, i)->dtype;
    sn_dim stride = sn_step_stride(g, i, g->l.lane);
    em_val p = element_ptr(g, i, u), by = sn_kernel_dim(e, g->k, stride);
    return sn_emit_loaded(e, t,
                          stride ? tile_load(e, t, p, by, g->lanes, g->mask) : em_load(e, t, p, 1));
}

/* Adds v to the vector of sums for this element: halves are added up until it is one of the target's. */
static void add_to_sum(gen *g, int i, int u, em_val v) {
    em *e = g->e;
    sn_dtype t = sn_step_view(g, i)->dtype;
    bool inner = sn_step_has_inner(g, type_of(g, i));
    v = on_all_lanes(g, v);
    if (g->mask) v = em_select(e, g->mask, v, em_splat(e, em_zero(e->ft), g->lanes));
    for (int n = g->lanes / 2; n >= e->lanes; n /= 2)
        v = em_add(e, em_part(e, v, 0, n), em_part(e, v, n, n));
    em_val at = inner ? em_mul(e, g->local, g->l.n_inner) : g->local;
    if (inner) at = em_add(e, at, em_add(e, g->inner, u));
    em_val p = em_gep_bytes(e, g->sums, g->sum[i - g->n_in]);
    p = em_gep(e, p, t, em_mul(e, at, e->lanes));
    em_store(e, t, p, em_add(e, em_load(e, t, p, e->lanes), v));
}

static void store_result(gen *g, int i, int u, em_val v) {
    em *e = g->e;
    sn_dtype t = sn_step_view(g, i)->dtype;
    if (sn_step_is_summed(g, i)) {
        add_to_sum(g, i, u, v);
        return;
    }
    sn_dim stride = sn_step_stride(g, i, g->l.lane);
    em_val p = element_ptr(g, i, u);
    if (sn_lanes_axis(&g->l, type_of(g, i), g->l.lane) < 0) {
        em_store(e, t, p, v);
        return;
    }
    v = on_all_lanes(g, v);
    tile_store(e, t, p, sn_kernel_dim(e, g->k, stride), v, g->mask);
}

/* ---- what is kept ---- */

int64_t sn_step_elements(const gen *g, const value *x) {
    return (x->inner ? g->l.n_inner : 1) * (x->lane ? g->lanes : 1);
}

static em_val kept_ptr(gen *g, const value *x, place in, int u) {
    em *e = g->e;
    int64_t each = x->lane ? g->lanes : 1;
    em_val base = x->kept;
    if (in == SCRATCH) base = em_gep_bytes(e, g->store, x->offset);
    if (in == CHECKPOINT) base = em_gep_bytes(e, g->checkpoint, x->checkpoint);
    em_val at = x->inner ? em_mul(e, em_add(e, g->inner, u), each) : em_i64(e, 0);
    return em_gep(e, base, (sn_dtype)x->n->dtype, at);
}

static em_val record_ptr(gen *g, const value *x, int u) {
    em *e = g->e;
    em_val at = em_mul(e, g->local, sn_step_elements(g, x));
    if (x->inner) at = em_add(e, at, em_mul(e, em_add(e, g->inner, u), x->lane ? g->lanes : 1));
    return em_gep(e, em_gep_bytes(e, g->record, x->record), (sn_dtype)x->n->dtype, at);
}

static em_val load_kept(gen *g, const value *x, place from, int u) {
    sn_dtype t = (sn_dtype)x->n->dtype;
    if (from == OPERAND) return load_operand(g, (int)sn_attr_int(x->n, SN_A_index, 0), u);
    em_val v = em_load(g->e, t, kept_ptr(g, x, from, u), x->lane ? g->lanes : 1);
    return sn_emit_loaded(g->e, t, v);
}

static void store_kept(gen *g, const value *x, place to, int u, em_val v) {
    em *e = g->e;
    if (to == RESULT) {
        store_result(g, g->n_in + (int)sn_attr_int(x->n, SN_A_index, 0), u, v);
        return;
    }
    if (x->lane) v = on_all_lanes(g, v);
    em_store(e, (sn_dtype)x->n->dtype, kept_ptr(g, x, to, u), v);
}

/* ---- sums over the lanes ---- */

static em_val neutral(gen *g, const sn_node *n) {
    if (n->op == SN_OP_dot) return em_zero(g->e->ft);
    return sn_reduce_neutral(g->e, n);
}

/* The lanes of v as one number, as n combines them. */
static em_val cross(gen *g, const sn_node *n, em_val v) {
    em *e = g->e;
    v = on_all_lanes(g, v);
    if (g->mask) v = em_select(e, g->mask, v, em_splat(e, neutral(g, n), g->lanes));
    return n->op == SN_OP_dot ? em_reduce(e, EM_SUM, v) : sn_reduce_lanes(e, n, false, v);
}

/* ---- values ---- */

/* A value that is not elementwise, or is kept. */
static em_val emit_leaf(const sn_region_code *c, int i, int u) {
    gen *g = c->ctx;
    const value *x = &g->value[i];
    const sn_node *n = x->n;
    if (x->recorded && g->phase == WALK) {
        em_val v = em_load(g->e, (sn_dtype)n->dtype, record_ptr(g, x, u), x->lane ? g->lanes : 1);
        return sn_emit_loaded(g->e, (sn_dtype)n->dtype, v);
    }
    if (x->keeps && g->phase != BEFORE) return load_kept(g, x, STACK, u);
    if (n->op == SN_OP_arg) return load_operand(g, (int)sn_attr_int(n, SN_A_index, 0), u);
    if (n->op == SN_OP_dim_value) return sn_kernel_leaf(g->e, g->k, n);
    if (!n->n_in || sn_is_elementwise(n)) return NULL;
    em_val v = sn_region_at(c, c->operand[i][0], u);
    if (n->op == SN_OP_dot) v = em_mul(g->e, v, sn_region_at(c, c->operand[i][1], u));
    return x->crosses ? cross(g, n, v) : v;
}

void sn_step_begin(gen *g) {
    sn_module *m = g->k->m;
    size_t n = (size_t)g->n_value;
    sn_region_code *c = &g->code;
    *c = (sn_region_code){.e = g->e, .copies = g->group, .leaf = emit_leaf, .ctx = g};
    c->order = (sn_order){sn_arena_alloc(m, n * sizeof *c->order.node), g->n_value};
    c->operand = sn_arena_alloc(m, n * sizeof *c->operand);
    c->once = sn_arena_alloc(m, n * sizeof *c->once);
    c->deps = sn_arena_alloc(m, n * sizeof *c->deps);
    c->value = sn_arena_alloc(m, n * sizeof *c->value * (size_t)g->group);
    for (int i = 0; i < g->n_value; i++) {
        const value *x = &g->value[i];
        if (!x->n) continue;
        c->order.node[i] = x->n;
        c->operand[i] = sn_arena_alloc(m, (size_t)x->n->n_in * sizeof **c->operand);
        for (int k = 0; k < x->n->n_in; k++) c->operand[i][k] = g->l.body->index[x->n->in[k]->id];
        c->once[i] = !x->inner;
        c->deps[i] = x->inner ? OF_INNER | OF_GROUP : sn_step_is_fixed_scalar(x) ? 0 : OF_GROUP;
    }
}

/* The value at element u of the group. */
em_val sn_step_emit(gen *g, const sn_node *n, int u) {
    return sn_region_at(&g->code, g->l.body->index[n->id], u);
}

bool sn_step_is_fixed_scalar(const value *x) {
    return !x->moves && !x->lane && !x->inner && !x->stage && !x->mixed;
}

void sn_step_forget_all(gen *g) {
    sn_region_forget(&g->code, ~0u);
}
void sn_step_forget_group(gen *g) {
    sn_region_forget(&g->code, OF_GROUP);
}

/* ---- loops over the inner axis ---- */

em_loop sn_step_begin_inner(gen *g) {
    em *e = g->e;
    em_loop l = {0};
    g->inner = em_i64(e, 0);
    if (g->l.n_inner == g->group) return l;
    l = em_for(e, 0, g->l.n_inner, g->group);
    g->inner = l.i;
    return l;
}

void sn_step_end_inner(gen *g, em_loop *l) {
    if (g->l.n_inner != g->group) em_end(g->e, l);
    g->inner = em_i64(g->e, 0);
}

/* What a reduction adds up at element u. */
static em_val accumulate(gen *g, const sn_node *n, em_val sum, int u) {
    em *e = g->e;
    em_val x = sn_step_emit(g, n->in[0], u);
    if (sn_step_value(g, n)->crosses) x = on_all_lanes(g, x);
    if (n->op != SN_OP_dot) return sn_reduce(e, n, false, sum, x);
    em_val y = sn_step_emit(g, n->in[1], u);
    tile_add(e, &sum, 1, x, &y);
    return sum;
}

static em_val combine(gen *g, const sn_node *n, em_val a, em_val b) {
    return n->op == SN_OP_dot ? em_add(g->e, a, b) : sn_reduce(g->e, n, false, a, b);
}

/* A reduction under way: partial results in turn. */
typedef struct running {
    value *x;
    int n;
    em_val sum[PARTIAL];
} running;

int sn_step_operand_stage(const gen *g, const sn_node *n) {
    int stage = 0;
    for (int i = 0; i < n->n_in; i++) {
        const value *x = sn_step_value(g, n->in[i]);
        if (x->stage > stage) stage = x->stage;
    }
    return stage;
}

/* The reductions of a stage. */
static int begin_running(gen *g, int stage, running *r, em_loop *l) {
    em *e = g->e;
    int n = 0;
    bool looped = g->l.n_inner != g->group;
    for (int i = 0; i < g->n_value; i++) {
        value *x = &g->value[i];
        if (!x->n || !x->reduces || !sn_step_computes(g, x)) continue;
        if (sn_step_operand_stage(g, x->n) != stage) continue;
        r[n] = (running){.x = x, .n = g->group < PARTIAL ? g->group : PARTIAL};
        em_val first = em_splat(e, neutral(g, x->n), x->lane || x->crosses ? g->lanes : 1);
        for (int k = 0; k < r[n].n; k++) r[n].sum[k] = first;
        if (looped) em_carries(e, l, r[n].sum, r[n].n);
        n++;
    }
    return n;
}

static void end_running(gen *g, running *r, int n, em_loop *l) {
    sn_step_end_inner(g, l);
    for (int i = 0; i < n; i++) {
        for (int k = 1; k < r[i].n; k++)
            r[i].sum[0] = combine(g, r[i].x->n, r[i].sum[0], r[i].sum[k]);
        if (r[i].x->crosses) r[i].sum[0] = cross(g, r[i].x->n, r[i].sum[0]);
        g->code.value[r[i].x - g->value] = r[i].sum[0];
    }
}

/* What WALK reads of element u. */
static void keep_record(gen *g, bool inner, int u) {
    for (int i = 0; i < g->n_value; i++) {
        const value *x = &g->value[i];
        if (!x->n || !x->recorded || x->inner != inner) continue;
        em_val v = sn_step_emit(g, x->n, u);
        if (x->lane) v = on_all_lanes(g, v);
        em_store(g->e, (sn_dtype)x->n->dtype, record_ptr(g, x, u), v);
    }
}

/* Whether this phase computes result i of the body. */
static bool is_result(const gen *g, int i) {
    return (g->phase == WALK) == (sn_scan_result(&g->l.s, i) >= 0);
}

/* Stores result i of the body at element u. */
static void store(gen *g, int i, int u, em_val v) {
    const sn_region *r = g->l.s.body;
    if (i < g->l.s.n_carry)
        store_kept(g, sn_step_value(g, r->arg[i]), STACK, u, v);
    else
        store_result(g, g->n_in + sn_scan_result(&g->l.s, i), u, v);
}

/* Stores all results with an inner axis (inner) or without one at element u: carries are read by the
 * other results, so all are computed before. */
static void store_element(gen *g, bool inner, int u) {
    const sn_region *r = g->l.s.body;
    em_val v[SN_MAX_RESULTS];
    if (g->phase == RECORD) keep_record(g, inner, u);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < r->n_out; i++)
            if (sn_step_has_inner(g, r->out[i]) == inner && is_result(g, i)) {
                if (pass)
                    store(g, i, u, v[i]);
                else
                    v[i] = sn_step_emit(g, r->out[i], u);
            }
}

static void store_results(gen *g, bool inner) {
    for (int u = 0; u < (inner ? g->group : 1); u++) store_element(g, inner, u);
}

static bool is_needed(const gen *g, const value *x) {
    return g->phase == WALK ? x->walk : x->forward;
}

bool sn_step_computes(const gen *g, const value *x) {
    return g->phase == BEFORE ? !x->moves : x->moves && is_needed(g, x);
}

/* Values without an inner axis that can be computed by now. */
static void emit_outer(gen *g, int stage) {
    const sn_order *o = &g->l.body->order;
    for (int i = 0; i < o->n; i++) {
        const value *x = sn_step_value(g, o->node[i]);
        bool now = sn_step_computes(g, x) || (g->phase != BEFORE && x->keeps && is_needed(g, x));
        if (x->inner || !now || (x->stage > stage && !x->keeps)) continue;
        sn_step_emit(g, x->n, 0);
    }
}

/* Puts what does not move into scratch. */
static void keep_fixed(gen *g, bool inner) {
    for (int i = 0; i < g->n_value; i++) {
        const value *x = &g->value[i];
        if (!x->n || !x->keeps || x->moves || x->inner != inner) continue;
        for (int u = 0; u < (inner ? g->group : 1); u++)
            store_kept(g, x, SCRATCH, u, sn_step_emit(g, x->n, u));
    }
}

void sn_step_stages(gen *g) {
    int most = 0;
    for (int i = 0; i < g->n_value; i++) most += g->value[i].reduces;
    running *r = sn_arena_alloc(g->k->m, sizeof *r * (size_t)(most + 1));
    for (int stage = 0; g->l.inner >= 0 && stage <= g->last; stage++) {
        emit_outer(g, stage);
        em_loop l = sn_step_begin_inner(g);
        sn_region_forget(&g->code, OF_INNER);
        int n = begin_running(g, stage, r, &l);
        for (int u = 0; u < g->group; u++)
            for (int i = 0; i < n; i++) {
                em_val *sum = &r[i].sum[u % r[i].n];
                *sum = accumulate(g, r[i].x->n, *sum, u);
            }
        if (stage == g->last && g->phase != BEFORE) store_results(g, true);
        if (stage == g->last && g->phase == BEFORE) keep_fixed(g, true);
        end_running(g, r, n, &l);
        sn_region_forget(&g->code, OF_INNER);
    }
    emit_outer(g, g->n_value);
    if (g->phase == BEFORE) keep_fixed(g, false);
}

void sn_step_run(gen *g) {
    sn_step_forget_group(g);
    sn_step_stages(g);
    store_results(g, false);
}

/* Moves a carry, or something that does not move. */
void sn_step_move(gen *g, const value *x, place from, place to) {
    em_loop l = {0};
    if (x->inner) l = sn_step_begin_inner(g);
    for (int u = 0; u < (x->inner ? g->group : 1); u++)
        store_kept(g, x, to, u, load_kept(g, x, from, u));
    if (x->inner) sn_step_end_inner(g, &l);
}
