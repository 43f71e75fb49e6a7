/* fused_scan.c: a scan in one kernel. A unit of work is a block of the `lane` axis of the carry, with
 * all elements of the reduced (`inner`) axis. It walks the sequence in chunks; within a chunk one vector
 * after the other, whose carry stays in registers, or in L1 if there are too many. So rows
 * are read in pieces of several lines, and few pages are open at a time. Between chunks the carries of
 * a block, and what does not depend on the element, are in scratch.
 *
 * A vector here is several of the target's, so that independent operations alternate. The body is
 * emitted value by value: for each node and element of the inner axis. Values with an inner axis are emitted in loops over it, one for each stage: what a reduction
 * gives is read in a later loop. Short inner axes are unrolled.
 *
 * Threads share the units. Bits do not depend on the number of threads. */
#include "codegen/emit/elem.h"
#include "codegen/rows/body.h"
#include "passes/fused_scan.h"
#include "runtime/memory.h"

#include <string.h>

enum {
    VECTORS = 4, /* of the target to one of the kernel */
    UNROLL = 16, /* of these, along the inner axis */
    PARTIAL = 2, /* partial sums of a reduction */
    CHUNK = 32,  /* elements of the sequence */
    BLOCK = 64,  /* elements of the lane axis in a block, at least a vector */
    LINE = 64
};

typedef struct value {
    const sn_node *n;
    bool lane, inner, moves; /* changes along the axis; along the sequence */
    bool reduces;
    int stage;      /* reductions that must be finished before */
    em_val *v;      /* [group] of this element; scalars without lanes */
    bool keeps;     /* a carry, or what does not move and is read by what does */
    em_val kept;    /* on the stack, for a chunk */
    int64_t offset; /* in the group's part of scratch, in bytes */
} value;

typedef struct gen {
    em *e;
    const sn_kernel *k;
    sn_lanes l;
    value *value;                    /* by place */
    int n_value, lanes, group, last; /* last: stage of the last loop over the inner axis */
    int n_in, n_out;
    int64_t bytes;     /* of a group in scratch */
    em_val *base, *at; /* of operands and results: of this block; of this group and element */
    em_val store;      /* this group's part of scratch */
    em_val T, chunk;   /* the sequence's length; the chunk's first element */
    em_val mask;       /* NULL: all lanes */
    em_val inner;      /* index of the group's first element of the inner axis */
    bool before;       /* the loop over the sequence */
} gen;

static value *value_of(const gen *g, const sn_node *n) {
    return &g->value[g->l.body->place[n->id]];
}

static const sn_view *view_of(const gen *g, int i) {
    const sn_step *s = g->k->step;
    return i < s->n_in ? &s->in[i] : &s->out[i - s->n_in];
}

/* The node of the body that operand or result i is. */
static const sn_node *type_of(const gen *g, int i) {
    return i < g->n_in ? g->l.s.body->arg[i] : g->l.s.body->out[i - g->n_in];
}

/* Whether it has an axis of elements. */
static bool is_sequence(const gen *g, int i) {
    return i < g->n_in ? sn_scan_is_sequence(&g->l.s, i) : i >= g->n_in + g->l.s.n_carry;
}

static bool has_inner(gen *g, const sn_node *n) {
    return sn_lanes_axis(&g->l, n, g->l.inner) >= 0;
}

/* The stride of operand or result i along a class; 0: it has no such axis. */
static sn_dim stride_of(gen *g, int i, int class) {
    int a = sn_lanes_axis(&g->l, type_of(g, i), class);
    return a < 0 ? 0 : view_of(g, i)->stride[a + is_sequence(g, i)];
}

/* ---- memory ---- */

static em_val element_ptr(gen *g, int i, int u) {
    em *e = g->e;
    sn_dtype t = view_of(g, i)->dtype;
    em_val by = sn_kernel_dim(e, g->k, stride_of(g, i, g->l.inner));
    em_val off = em_mul(e, em_addi(e, g->inner, u), by);
    return em_gep(e, g->at[i], t, off);
}

static em_val load_operand(gen *g, int i, int u) {
    em *e = g->e;
    sn_dtype t = view_of(g, i)->dtype;
    sn_dim stride = stride_of(g, i, g->l.lane);
    em_val p = element_ptr(g, i, u), x;
    if (stride == 0) {
        x = em_load(e, t, p, 1);
    } else if (stride == 1) {
        x = em_load_mask(e, t, p, g->lanes, g->mask, NULL);
    } else {
        em_val index = em_iota(e, e->i64, g->lanes);
        index = em_mul(e, index, em_splat(e, sn_kernel_dim(e, g->k, stride), g->lanes));
        x = em_gather(e, t, p, index, g->mask);
    }
    return sn_emit_loaded(e, t, x);
}

static void store_result(gen *g, int i, int u, em_val v) {
    em *e = g->e;
    sn_dtype t = view_of(g, i)->dtype;
    sn_dim stride = stride_of(g, i, g->l.lane);
    em_val p = element_ptr(g, i, u);
    v = em_splat(e, v, em_lanes_of(v) > 1 ? 1 : g->lanes);
    if (stride == 1) {
        em_store_mask(e, t, p, v, g->mask);
        return;
    }
    for (int lane = 0; lane < g->lanes; lane++) {
        em_branch br = {0};
        if (g->mask) br = em_if(e, em_extract(e, g->mask, lane));
        em_val by = em_muli(e, sn_kernel_dim(e, g->k, stride), lane);
        em_store(e, t, em_gep(e, p, t, by), em_extract(e, v, lane));
        if (g->mask) em_endif(e, &br);
    }
}

/* ---- what is kept ---- */

typedef enum place { OPERAND, RESULT, STACK, SCRATCH } place;

static int64_t elements_of(const gen *g, const value *x) {
    return (x->inner ? g->l.n_inner : 1) * (x->lane ? g->lanes : 1);
}

static em_val kept_ptr(gen *g, const value *x, place in, int u) {
    em *e = g->e;
    int64_t each = x->lane ? g->lanes : 1;
    em_val base = in == STACK ? x->kept : em_gep_bytes(e, g->store, em_i64(e, x->offset));
    em_val at = x->inner ? em_muli(e, em_addi(e, g->inner, u), each) : em_i64(e, 0);
    return em_gep(e, base, (sn_dtype)x->n->dtype, at);
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
    if (x->lane) v = em_splat(e, v, em_lanes_of(v) > 1 ? 1 : g->lanes);
    em_store(e, (sn_dtype)x->n->dtype, kept_ptr(g, x, to, u), v);
}

/* ---- values ---- */

static em_val emit_value(gen *g, const sn_node *n, int u);

static em_val compute(gen *g, const value *x, int u) {
    const sn_node *n = x->n;
    em_val in[SN_MAX_RANK + 8];
    if (x->keeps && !g->before) return load_kept(g, x, STACK, u);
    if (n->op == SN_OP_arg) return load_operand(g, (int)sn_attr_int(n, SN_A_index, 0), u);
    if (!n->n_in) return sn_kernel_leaf(g->e, g->k, n);
    for (int i = 0; i < n->n_in; i++) in[i] = emit_value(g, n->in[i], u);
    if (n->op == SN_OP_dot) return em_mul(g->e, in[0], in[1]); /* contracts an axis of size 1 */
    return sn_ops[n->op].kind == SN_ELEM ? sn_emit_elem(g->e, n, in) : in[0];
}

/* The value at element u of the group. */
static em_val emit_value(gen *g, const sn_node *n, int u) {
    const value *x = value_of(g, n);
    em_val *v = &x->v[x->inner ? u : 0];
    if (!*v) *v = compute(g, x, x->inner ? u : 0);
    return *v;
}

static bool is_fixed_scalar(const value *x) {
    return !x->moves && !x->lane && !x->inner && !x->stage;
}

/* Values with an inner axis; all but those that are computed once for all groups; all. */
typedef enum extent { OF_INNER, OF_GROUP, ALL } extent;
static void forget(gen *g, extent what) {
    for (int i = 0; i < g->n_value; i++) {
        value *x = &g->value[i];
        if (x->n && (what == ALL || (what == OF_INNER ? x->inner : !is_fixed_scalar(x))))
            memset(x->v, 0, sizeof *x->v * (size_t)g->group);
    }
}

/* ---- loops over the inner axis ---- */

static em_loop begin_inner(gen *g) {
    em *e = g->e;
    em_loop l = {0};
    g->inner = em_i64(e, 0);
    if (g->l.n_inner == g->group) return l;
    l = em_for(e, em_i64(e, 0), em_i64(e, g->l.n_inner), em_i64(e, g->group));
    g->inner = l.i;
    return l;
}

static void end_inner(gen *g, em_loop *l) {
    if (g->l.n_inner != g->group) em_end(g->e, l);
    g->inner = em_i64(g->e, 0);
}

static sn_item item_of(const sn_node *n) {
    return (sn_item){.n = n};
}

static em_val neutral(gen *g, const sn_node *n) {
    if (n->op == SN_OP_dot) return em_zero(g->e->ft);
    return sn_body_neutral(g->e, n);
}

/* What a reduction adds up at element u. */
static em_val accumulate(gen *g, const sn_node *n, em_val sum, int u) {
    em *e = g->e;
    sn_item it = item_of(n);
    em_val x = emit_value(g, n->in[0], u);
    if (n->op == SN_OP_dot) return em_fma(e, x, emit_value(g, n->in[1], u), sum);
    return sn_body_combine(e, &it, sum, x);
}

static em_val combine(gen *g, const sn_node *n, em_val a, em_val b) {
    sn_item it = item_of(n);
    return n->op == SN_OP_dot ? em_add(g->e, a, b) : sn_body_combine(g->e, &it, a, b);
}

/* A reduction under way: partial results in turn. */
typedef struct running {
    value *x;
    int n;
    em_val sum[PARTIAL], carried[PARTIAL];
} running;

static int operand_stage(const gen *g, const sn_node *n) {
    int stage = 0;
    for (int i = 0; i < n->n_in; i++) {
        const value *x = value_of(g, n->in[i]);
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
        if (!x->n || !x->reduces || x->moves == g->before || operand_stage(g, x->n) != stage)
            continue;
        {
            r[n] = (running){.x = x, .n = g->group < PARTIAL ? g->group : PARTIAL};
            em_val first = em_splat(e, neutral(g, x->n), x->lane ? g->lanes : 1);
            for (int k = 0; k < r[n].n; k++)
                r[n].sum[k] = r[n].carried[k] = looped ? em_carry(e, l, first) : first;
            n++;
        }
    }
    return n;
}

static void end_running(gen *g, running *r, int n, em_loop *l) {
    em *e = g->e;
    bool looped = g->l.n_inner != g->group;
    for (int i = 0; looped && i < n; i++)
        for (int k = 0; k < r[i].n; k++) em_next(e, l, r[i].carried[k], r[i].sum[k]);
    end_inner(g, l);
    for (int i = 0; i < n; i++) {
        for (int k = 0; looped && k < r[i].n; k++) r[i].sum[k] = em_final(e, l, r[i].carried[k]);
        for (int k = 1; k < r[i].n; k++)
            r[i].sum[0] = combine(g, r[i].x->n, r[i].sum[0], r[i].sum[k]);
        r[i].x->v[0] = r[i].sum[0];
    }
}

/* Stores all results with an inner axis (inner) or without one at this element, carries last, which
 * other results may read. */
static void store_results(gen *g, bool inner) {
    const sn_region *r = g->l.s.body;
    int n = g->group;
    for (int carry = 0; carry < 2; carry++) {
        em_val *v = sn_arena_alloc(g->k->m, sizeof(em_val) * (size_t)(r->n_out * n));
        for (int pass = 0; pass < 2; pass++)
            for (int i = 0; i < r->n_out; i++) {
                if ((i < g->l.s.n_carry) != carry || has_inner(g, r->out[i]) != inner) continue;
                for (int u = 0; u < (inner ? g->group : 1); u++) {
                    em_val *x = &v[i * n + u];
                    if (!pass)
                        *x = emit_value(g, r->out[i], u);
                    else if (carry)
                        store_kept(g, value_of(g, r->arg[i]), STACK, u, *x);
                    else
                        store_result(g, g->n_in + i, u, *x);
                }
            }
    }
}

/* Values without an inner axis that can be computed by now. */
static void emit_outer(gen *g, int stage) {
    const sn_order *o = &g->l.body->order;
    for (int i = 0; i < o->n; i++) {
        const value *x = value_of(g, o->node[i]);
        bool now = g->before ? !x->moves : x->moves || x->keeps;
        if (x->inner || !now || (x->stage > stage && !x->keeps)) continue;
        emit_value(g, x->n, 0);
    }
}

/* Puts what does not move into scratch. */
static void keep_fixed(gen *g, bool inner) {
    for (int i = 0; i < g->n_value; i++) {
        const value *x = &g->value[i];
        if (!x->n || !x->keeps || x->moves || x->inner != inner) continue;
        for (int u = 0; u < (inner ? g->group : 1); u++)
            store_kept(g, x, SCRATCH, u, emit_value(g, x->n, u));
    }
}

static void emit_stages(gen *g) {
    int most = 0;
    for (int i = 0; i < g->n_value; i++) most += g->value[i].reduces;
    running *r = sn_arena_alloc(g->k->m, sizeof *r * (size_t)(most + 1));
    for (int stage = 0; g->l.inner >= 0 && stage <= g->last; stage++) {
        emit_outer(g, stage);
        em_loop l = begin_inner(g);
        forget(g, OF_INNER);
        int n = begin_running(g, stage, r, &l);
        for (int u = 0; u < g->group; u++)
            for (int i = 0; i < n; i++) {
                em_val *sum = &r[i].sum[u % r[i].n];
                *sum = accumulate(g, r[i].x->n, *sum, u);
            }
        if (stage == g->last && !g->before) store_results(g, true);
        if (stage == g->last && g->before) keep_fixed(g, true);
        end_running(g, r, n, &l);
        forget(g, OF_INNER);
    }
    emit_outer(g, g->n_value);
    if (g->before) keep_fixed(g, false);
}

/* ---- a group ---- */

/* Moves a carry, or something that does not move. */
static void move(gen *g, const value *x, place from, place to) {
    em_loop l = {0};
    if (x->inner) l = begin_inner(g);
    for (int u = 0; u < (x->inner ? g->group : 1); u++)
        store_kept(g, x, to, u, load_kept(g, x, from, u));
    if (x->inner) end_inner(g, &l);
}

static void move_carries(gen *g, place from, place to) {
    for (int i = 0; i < g->l.s.n_carry; i++) move(g, value_of(g, g->l.s.body->arg[i]), from, to);
}

/* Rows of the sequences are far apart, further than hardware prefetches: those of the next chunk. */
static void prefetch(gen *g, int i, em_val step) {
    em *e = g->e;
    sn_dtype t = view_of(g, i)->dtype;
    if (stride_of(g, i, g->l.lane) != 1 || has_inner(g, type_of(g, i))) return;
    int64_t bytes = (int64_t)sn_dtype_size(t) * g->lanes;
    em_val p = em_gep(e, g->at[i], t, em_muli(e, step, CHUNK));
    for (int64_t b = 0; b < bytes; b += LINE)
        em_prefetch(e, em_gep_bytes(e, p, em_i64(e, b)), i >= g->n_in, 3);
}

/* Before the first chunk. */
static void begin_group(gen *g) {
    forget(g, OF_GROUP);
    move_carries(g, OPERAND, SCRATCH);
    g->before = true;
    emit_stages(g);
    g->before = false;
}

/* The chunk's elements. */
static void walk_chunk(gen *g) {
    em *e = g->e;
    em_val *group = sn_arena_alloc(g->k->m, sizeof *group * (size_t)(g->n_in + g->n_out));
    memcpy(group, g->at, sizeof *group * (size_t)(g->n_in + g->n_out));
    for (int i = 0; i < g->n_value; i++)
        if (g->value[i].keeps) move(g, &g->value[i], SCRATCH, STACK);
    em_val end = em_imin(e, em_addi(e, g->chunk, CHUNK), g->T);
    em_loop t = em_for(e, g->chunk, end, em_i64(e, 1));
    em_val now = g->l.s.reverse ? em_sub(e, em_subi(e, g->T, 1), t.i) : t.i;
    for (int i = 0; i < g->n_in + g->n_out; i++) {
        if (!is_sequence(g, i)) continue;
        const sn_view *v = view_of(g, i);
        em_val step = sn_kernel_dim(e, g->k, v->stride[0]);
        g->at[i] = em_gep(e, group[i], v->dtype, em_mul(e, now, step));
        prefetch(g, i, g->l.s.reverse ? em_neg(e, step) : step);
    }
    forget(g, OF_GROUP);
    emit_stages(g);
    store_results(g, false);
    em_end(e, &t);
    memcpy(g->at, group, sizeof *group * (size_t)(g->n_in + g->n_out));
    move_carries(g, STACK, SCRATCH);
}

/* After the last chunk. */
static void end_group(gen *g) {
    move_carries(g, SCRATCH, RESULT);
}

/* ---- a block ---- */

static int64_t block_of(const gen *g) {
    return BLOCK > g->lanes ? BLOCK / g->lanes * g->lanes : g->lanes;
}

/* Does something for each group of the block, which has `left` elements on the lane axis. The last
 * group may have fewer than its vectors. */
static void for_groups(gen *g, em_val left, void (*part)(gen *)) {
    em *e = g->e;
    int64_t width = g->lanes, n;
    em_val most = em_i64(e, block_of(g));
    em_loop l = em_for(e, em_i64(e, 0), em_imin(e, left, most), em_i64(e, width));
    for (int i = 0; i < g->n_in + g->n_out; i++) {
        em_val by = em_mul(e, l.i, sn_kernel_dim(e, g->k, stride_of(g, i, g->l.lane)));
        g->at[i] = em_gep(e, g->base[i], view_of(g, i)->dtype, by);
    }
    g->store = em_gep_bytes(e, e->scratch, em_muli(e, em_div(e, l.i, em_i64(e, width)), g->bytes));
    if (sn_dim_is_const(g->k->m, g->l.n_lane, &n) && n % width == 0) {
        part(g);
    } else {
        em_val here = em_sub(e, left, l.i);
        em_branch whole = em_if(e, em_cmp(e, EM_GE, here, em_i64(e, width)));
        part(g);
        em_else(e, &whole);
        g->mask = em_tail_mask(e, here, g->lanes);
        part(g);
        em_endif(e, &whole);
        g->mask = NULL;
    }
    em_end(e, &l);
}

static void emit_block(gen *g, em_val left) {
    em *e = g->e;
    forget(g, ALL);
    memcpy(g->at, g->base, sizeof *g->at * (size_t)(g->n_in + g->n_out));
    g->before = true;
    for (int i = 0; i < g->l.body->order.n; i++) {
        const value *x = value_of(g, g->l.body->order.node[i]);
        if (is_fixed_scalar(x)) emit_value(g, x->n, 0);
    }
    g->before = false;
    for_groups(g, left, begin_group);
    em_loop chunk = em_for(e, em_i64(e, 0), g->T, em_i64(e, CHUNK));
    g->chunk = chunk.i;
    for_groups(g, left, walk_chunk);
    em_end(e, &chunk);
    for_groups(g, left, end_group);
}

/* ---- the kernel ---- */

static em_val start_of(gen *g, int i, const em_val *unit, em_val lane) {
    em *e = g->e;
    em_val off = em_mul(e, lane, sn_kernel_dim(e, g->k, stride_of(g, i, g->l.lane)));
    for (int a = 0; a < g->l.n_unit; a++)
        off = em_add(e, off,
                     em_mul(e, unit[a], sn_kernel_dim(e, g->k, stride_of(g, i, g->l.unit[a]))));
    return em_gep(e, em_buf(e, i), view_of(g, i)->dtype, off);
}

static void read_values(gen *g) {
    const sn_order *o = &g->l.body->order;
    sn_module *m = g->k->m;
    const bool *moves = sn_lanes_moving(&g->l);
    size_t each = (size_t)g->group;
    g->n_value = o->n + g->l.s.n_in;
    g->value = sn_arena_alloc(m, sizeof *g->value * (size_t)g->n_value);
    memset(g->value, 0, sizeof *g->value * (size_t)g->n_value);
    for (int i = 0; i < o->n + g->l.s.n_in; i++) {
        const sn_node *n = i < o->n ? o->node[i] : g->l.s.body->arg[i - o->n];
        value *x = value_of(g, n);
        if (x->n) continue;
        *x = (value){.n = n,
                     .lane = n->op == SN_OP_arg && sn_lanes_axis(&g->l, n, g->l.lane) >= 0,
                     .inner = n->op == SN_OP_arg && has_inner(g, n),
                     .moves = moves[g->l.body->place[n->id]],
                     .reduces = sn_lanes_reduces(&g->l, n)};
        for (int k = 0; k < n->n_in; k++) {
            x->lane |= value_of(g, n->in[k])->lane;
            x->inner |= value_of(g, n->in[k])->inner && !x->reduces;
        }
        x->v = sn_arena_alloc(m, sizeof *x->v * each);
        x->stage = operand_stage(g, n) + x->reduces;
        if ((x->reduces && x->stage > g->last + 1)) g->last = x->stage - 1;
        if (x->inner && x->stage > g->last) g->last = x->stage;
    }
    for (int i = 0; i < g->n_out; i++) {
        const sn_node *n = g->l.s.body->out[i];
        if (has_inner(g, n) && value_of(g, n)->stage > g->last) g->last = value_of(g, n)->stage;
    }
}

static void keep(gen *g, value *x) {
    int64_t bytes = elements_of(g, x) * (int64_t)sn_dtype_size((sn_dtype)x->n->dtype);
    if (x->keeps) return;
    x->keeps = true;
    x->offset = g->bytes;
    g->bytes += SN_ROUND_UP(bytes, LINE);
}

/* Carries, and what does not move but is read by what does. */
static void find_kept(gen *g) {
    const sn_order *o = &g->l.body->order;
    const sn_region *r = g->l.s.body;
    for (int i = 0; i < g->l.s.n_carry; i++) keep(g, value_of(g, r->arg[i]));
    for (int i = 0; i < o->n + r->n_out; i++) {
        const sn_node *n = i < o->n ? o->node[i] : NULL;
        for (int k = 0; k < (n ? n->n_in : 1); k++) {
            value *x = value_of(g, n ? n->in[k] : r->out[i - o->n]);
            bool read = !n || value_of(g, n)->moves;
            if (read && !x->moves && !is_fixed_scalar(x)) keep(g, x);
        }
    }
}

/* Vectors of the target to one of the kernel: as many as the lane axis fills. */
static int vectors_of(const sn_lanes *l, int lanes) {
    int n = l->n_inner > 1 ? VECTORS / 2 : VECTORS; /* elements of it are independent, too */
    int64_t all;
    if (!sn_dim_is_const(l->axes.m, l->n_lane, &all)) return n;
    while (n > 1 && (n / 2) * lanes >= all) n /= 2;
    return n;
}

/* Elements of the inner axis that are emitted one after the other: all, or a divisor. */
static int group_of(const sn_lanes *l, int vectors) {
    int most = UNROLL / vectors, n = most;
    if (l->n_inner <= most) return (int)l->n_inner;
    while (l->n_inner % n) n--;
    return n;
}

static void plan(gen *g, const sn_kernel *k, int lanes) {
    const sn_node *at;
    *g = (gen){.k = k, .n_in = k->step->n_in, .n_out = k->step->n_out};
    sn_lanes_read(&g->l, k->step->node, &at);
    int vectors = vectors_of(&g->l, lanes);
    g->lanes = vectors * lanes;
    g->group = group_of(&g->l, vectors);
    read_values(g);
    find_kept(g);
}

static sn_dim scratch(const sn_kernel *k, const sn_target *t) {
    gen g;
    plan(&g, k, sn_target_lanes(t, k->compute));
    return sn_dim_const(k->m, g.bytes * (block_of(&g) / g.lanes));
}

static void emit(em *e, const sn_kernel *k) {
    gen g;
    plan(&g, k, e->lanes);
    g.e = e;
    g.base = sn_arena_alloc(k->m, 2 * sizeof(em_val) * (size_t)(g.n_in + g.n_out));
    g.at = g.base + g.n_in + g.n_out;
    em_kernel(e, k->name);
    g.inner = em_i64(e, 0);
    for (int i = 0; i < g.n_value; i++) {
        value *x = &g.value[i];
        if (x->keeps) x->kept = em_stack(e, (sn_dtype)x->n->dtype, elements_of(&g, x));
    }
    int64_t width = block_of(&g);
    em_val lanes = sn_kernel_dim(e, k, g.l.n_lane), blocks = em_ceil_div(e, lanes, width);
    em_val items = blocks, lo, hi, unit[SN_MAX_RANK];
    for (int a = 0; a < g.l.n_unit; a++) items = em_mul(e, items, sn_kernel_dim(e, k, g.l.n[a]));
    em_share(e, items, &lo, &hi);
    g.T = sn_kernel_dim(e, k, view_of(&g, g.l.s.n_carry)->shape[0]);
    em_loop item = em_for(e, lo, hi, em_i64(e, 1));
    em_val first = em_muli(e, em_rem(e, item.i, blocks), width), rest = em_div(e, item.i, blocks);
    for (int a = g.l.n_unit - 1; a >= 0; a--) {
        em_val n = sn_kernel_dim(e, k, g.l.n[a]);
        unit[a] = em_rem(e, rest, n);
        rest = em_div(e, rest, n);
    }
    for (int i = 0; i < g.n_in + g.n_out; i++) g.base[i] = start_of(&g, i, unit, first);
    emit_block(&g, em_sub(e, lanes, first));
    em_end(e, &item);
    em_end_kernel(e);
}

const sn_family sn_family_fused_scan = {.emit = emit, .scratch = scratch};
