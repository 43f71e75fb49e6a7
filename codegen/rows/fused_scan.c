/* fused_scan.c: a scan in one kernel. A unit of work is a block of the `lane` axis of the carry, with
 * all elements of the reduced (`inner`) axis. It walks the sequence in chunks; within a chunk one vector
 * after the other, whose carry stays in registers, or in L1 if there are too many. So rows
 * are read in pieces of several lines, and few pages are open at a time. Between chunks the carries of
 * a block, and what does not depend on the element, are in scratch. A vector here is several of the
 * target's, so that independent operations alternate. Where operations reduce the lanes, too, it is all of them.
 *
 * Gradients have carries that are recomputed: the forward scan's. They go through the sequence first, in
 * its direction, and leave a checkpoint before each chunk. Then the chunks follow in the other
 * direction: each vector goes through the chunk again from the checkpoint and records the carries
 * before each element, in L1 or L2, with what is expensive and needed by both; then the other
 * carries go back. Sums over the lane axis are vectors for each element of the chunk, which the vectors
 * of the block are added to in turn.
 *
 * Threads share the units. Bits do not depend on the number of threads. */
#include "codegen/rows/scan_step.h"
#include "runtime/memory.h"

#include <string.h>

enum {
    VECTORS = 4, /* of the target to one of the kernel */
    UNROLL = 16, /* of these, along the inner axis */
    LINE = 64
};

/* ---- a group ---- */

/* The carries that are recomputed, or the others. */
static void move_carries(gen *g, bool again, place from, place to) {
    const sn_scan *s = &g->l.s;
    for (int i = again ? g->n_own : 0; i < (again ? s->n_carry : g->n_own); i++)
        sn_step_move(g, sn_step_value(g, s->body->arg[i]), from, to);
}

/* Whether this phase reads or writes it. */
static bool is_used(const gen *g, int i) {
    if (i >= g->n_in) return g->phase == WALK && !sn_step_is_summed(g, i);
    const value *x = sn_step_value(g, g->l.s.body->arg[i]);
    return g->phase == WALK ? x->walk : x->forward;
}

/* Rows of the sequences are far apart, further than hardware prefetches: those of the next chunk. */
static void prefetch(gen *g, int i, em_val step) {
    em *e = g->e;
    sn_dtype t = sn_step_view(g, i)->dtype;
    const sn_region *r = g->l.s.body;
    const sn_node *n = i < g->n_in ? r->arg[i] : r->out[sn_step_out(g, i - g->n_in)];
    if (sn_step_stride(g, i, g->l.lane) != 1 || sn_step_has_inner(g, n)) return;
    int64_t bytes = (int64_t)sn_dtype_size(t) * g->lanes;
    em_val p = em_gep(e, g->at[i], t, em_mul(e, step, CHUNK));
    for (int64_t b = 0; b < bytes; b += LINE)
        em_prefetch(e, em_gep_bytes(e, p, b), i >= g->n_in, 3);
}

/* Before the first chunk. */
static void begin_group(gen *g) {
    sn_step_forget_group(g);
    move_carries(g, true, OPERAND, SCRATCH);
    move_carries(g, false, OPERAND, SCRATCH);
    g->phase = BEFORE;
    sn_step_stages(g);
}

static void load_kept(gen *g) {
    const sn_scan *s = &g->l.s;
    for (int i = 0; i < g->n_value; i++) {
        const value *x = &g->value[i];
        if (x->keeps && !x->moves && (g->phase == WALK ? x->walk : x->forward))
            sn_step_move(g, x, SCRATCH, STACK);
    }
    if (s->n_again) move_carries(g, true, g->phase == RECORD ? CHECKPOINT : SCRATCH, STACK);
    if (g->phase == WALK) move_carries(g, false, SCRATCH, STACK);
}

static em_val chunk_end(gen *g) {
    return em_imin(g->e, em_add(g->e, g->chunk, CHUNK), g->T);
}

/* The place in the sequences of element `local` of the chunk. Recomputed carries go through chunks in
 * their direction, the others through theirs, which is the opposite. */
static em_val place_in_sequence(gen *g, em_val local) {
    em *e = g->e;
    em_val at = em_add(e, g->chunk, local);
    bool reverse = g->l.s.reverse != (g->l.s.n_again > 0);
    return reverse ? em_sub(e, em_sub(e, g->T, 1), at) : at;
}

/* The chunk's elements. */
static void walk_chunk(gen *g, phase ph) {
    em *e = g->e;
    int n = g->n_in + g->n_out;
    em_val *group = sn_arena_alloc(g->k->m, sizeof *group * (size_t)n);
    bool backward = ph == WALK && g->l.s.n_again, downward = (ph == WALK) == g->l.s.reverse;
    memcpy(group, g->at, sizeof *group * (size_t)n);
    g->phase = ph;
    load_kept(g);
    em_val length = em_sub(e, chunk_end(g), g->chunk);
    em_loop t = em_for(e, 0, length, 1);
    g->local = backward ? em_sub(e, em_sub(e, length, 1), t.i) : t.i;
    em_val now = place_in_sequence(g, g->local);
    for (int i = 0; i < n; i++) {
        if (!sn_step_is_sequence(g, i) || !is_used(g, i)) continue;
        const sn_view *v = sn_step_view(g, i);
        em_val step = sn_kernel_dim(e, g->k, v->stride[0]);
        g->at[i] = em_gep(e, group[i], v->dtype, em_mul(e, now, step));
        if (ph != RECORD) prefetch(g, i, downward ? em_neg(e, step) : step);
    }
    sn_step_run(g);
    em_end(e, &t);
    memcpy(g->at, group, sizeof *group * (size_t)n);
    if (ph == FORWARD) move_carries(g, true, STACK, SCRATCH);
    if (ph == WALK) move_carries(g, false, STACK, SCRATCH);
}

static void save_checkpoint(gen *g) {
    move_carries(g, true, SCRATCH, CHECKPOINT);
}

static void forward_chunk(gen *g) {
    save_checkpoint(g);
    walk_chunk(g, FORWARD);
}

static void back_chunk(gen *g) {
    if (g->l.s.n_again) walk_chunk(g, RECORD);
    walk_chunk(g, WALK);
}

/* After the last chunk. */
static void end_group(gen *g) {
    move_carries(g, false, SCRATCH, RESULT);
}

/* ---- a block ---- */

/* Elements of the lane axis in a block. */
static int64_t block_of(const gen *g) {
    return g->l.whole ? g->lanes : SN_SCAN_BLOCK;
}

/* Groups of a block. */
static int64_t groups_of(const gen *g) {
    int64_t n;
    bool known = sn_dim_is_const(g->k->m, g->l.n_lane, &n);
    int64_t most = known && n < block_of(g) ? n : block_of(g);
    return (most + g->lanes - 1) / g->lanes;
}

/* Does something for each group of the block, which has `left` elements on the lane axis. The last
 * group may have fewer than its vectors. */
static void for_groups(gen *g, em_val left, void (*part)(gen *)) {
    em *e = g->e;
    int64_t width = g->lanes, n, groups = groups_of(g);
    em_loop l = em_for(e, 0, em_imin(e, left, block_of(g)), width);
    for (int i = 0; i < g->n_in + g->n_out; i++) {
        g->at[i] = g->base[i];
        if (sn_step_is_summed(g, i)) continue;
        em_val by = em_mul(e, l.i, sn_kernel_dim(e, g->k, sn_step_stride(g, i, g->l.lane)));
        g->at[i] = em_gep(e, g->base[i], sn_step_view(g, i)->dtype, by);
    }
    em_val group = em_div(e, l.i, width), first = em_i64(e, groups * g->bytes);
    g->store = em_gep_bytes(e, e->scratch, em_mul(e, group, g->bytes));
    g->record = em_gep_bytes(e, e->scratch, first);
    g->sums = em_gep_bytes(e, g->record, g->record_bytes);
    em_val c = em_add(e, em_mul(e, em_div(e, g->chunk, CHUNK), groups), group);
    g->checkpoint = em_gep_bytes(e, g->sums, g->sum_bytes);
    g->checkpoint = em_gep_bytes(e, g->checkpoint, em_mul(e, c, g->checkpoint_bytes));
    if (sn_dim_is_const(g->k->m, g->l.n_lane, &n) && n % width == 0) {
        part(g);
    } else {
        em_val here = em_sub(e, left, l.i);
        em_branch whole = em_if(e, em_cmp(e, EM_GE, here, width));
        part(g);
        em_else(e, &whole);
        g->mask = em_tail_mask(e, here, g->lanes);
        part(g);
        em_endif(e, &whole);
        g->mask = NULL;
    }
    em_end(e, &l);
}

/* ---- sums of the block ---- */

static em_val sums_of(gen *g) {
    em_val first = em_i64(g->e, groups_of(g) * g->bytes + g->record_bytes);
    return em_gep_bytes(g->e, g->e->scratch, first);
}

static void clear_sums(gen *g) {
    em *e = g->e;
    if (!g->sum_bytes) return;
    em_val zero = em_splat(e, em_zero(e->ft), e->lanes);
    em_loop l = em_for(e, 0, g->sum_bytes, LINE);
    for (int64_t b = 0; b < LINE; b += e->lanes * (int64_t)sn_dtype_size(e->compute))
        em_store(e, e->compute, em_gep_bytes(e, sums_of(g), em_add(e, l.i, b)), zero);
    em_end(e, &l);
}

static int64_t inner_of(gen *g, int i) {
    const sn_node *n = g->l.s.body->out[sn_step_out(g, i - g->n_in)];
    return sn_step_has_inner(g, n) ? g->l.n_inner : 1;
}

static void store_sums(gen *g) {
    em *e = g->e;
    for (int i = g->n_in; i < g->n_in + g->n_out; i++) {
        if (!sn_step_is_summed(g, i)) continue;
        const sn_view *v = sn_step_view(g, i);
        em_val from = em_gep_bytes(e, sums_of(g), g->sum[i - g->n_in]);
        em_val length = em_sub(e, chunk_end(g), g->chunk);
        em_loop t = em_for(e, 0, length, 1);
        em_val step = sn_kernel_dim(e, g->k, v->stride[0]);
        em_val to = em_gep(e, g->base[i], v->dtype, em_mul(e, place_in_sequence(g, t.i), step));
        int64_t inner = inner_of(g, i);
        em_loop l = em_for(e, 0, inner, 1);
        em_val at = em_add(e, em_mul(e, t.i, inner), l.i);
        em_val x =
            em_load(e, v->dtype, em_gep(e, from, v->dtype, em_mul(e, at, e->lanes)), e->lanes);
        em_val by = sn_kernel_dim(e, g->k, sn_step_stride(g, i, g->l.inner));
        em_store(e, v->dtype, em_gep(e, to, v->dtype, em_mul(e, l.i, by)), em_reduce(e, EM_SUM, x));
        em_end(e, &l);
        em_end(e, &t);
    }
}

/* ---- the kernel ---- */

/* Carries that are recomputed go through all chunks but the last. */
static void leave_checkpoints(gen *g, em_val left) {
    em *e = g->e;
    em_val last = em_imax(e, em_round_down(e, em_sub(e, g->T, 1), CHUNK), 0);
    em_loop l = em_for(e, 0, last, CHUNK);
    g->chunk = l.i;
    for_groups(g, left, forward_chunk);
    em_end(e, &l);
    g->chunk = last;
    for_groups(g, left, save_checkpoint);
}

static void emit_block(gen *g, em_val left) {
    em *e = g->e;
    sn_step_forget_all(g);
    memcpy(g->at, g->base, sizeof *g->at * (size_t)(g->n_in + g->n_out));
    g->phase = BEFORE;
    const em_val first = g->chunk = em_i64(e, 0);
    for (int i = 0; i < g->l.body->order.n; i++) {
        const value *x = sn_step_value(g, g->l.body->order.node[i]);
        if (sn_step_is_fixed_scalar(x)) sn_step_emit(g, x->n, 0);
    }
    for_groups(g, left, begin_group);
    if (g->l.s.n_again) leave_checkpoints(g, left);
    em_loop chunk = em_for(e, 0, g->T, CHUNK);
    g->chunk = chunk.i;
    if (g->l.s.n_again) /* the last one first */
        g->chunk = em_sub(e, em_round_down(e, em_sub(e, g->T, 1), CHUNK), chunk.i);
    clear_sums(g);
    for_groups(g, left, back_chunk);
    store_sums(g);
    em_end(e, &chunk);
    g->chunk = first;
    for_groups(g, left, end_group);
}

static em_val start_of(gen *g, int i, const em_val *unit, em_val lane) {
    em *e = g->e;
    if (sn_step_is_summed(g, i)) lane = em_div(e, lane, SN_SCAN_BLOCK);
    em_val off = em_mul(e, lane, sn_kernel_dim(e, g->k, sn_step_stride(g, i, g->l.lane)));
    for (int a = 0; a < g->l.n_unit; a++)
        off = em_add(
            e, off, em_mul(e, unit[a], sn_kernel_dim(e, g->k, sn_step_stride(g, i, g->l.unit[a]))));
    return em_gep(e, em_buf(e, i), sn_step_view(g, i)->dtype, off);
}

/* ---- the plan ---- */

static void read_values(gen *g) {
    const sn_order *o = &g->l.body->order;
    sn_module *m = g->k->m;
    const bool *moves = sn_lanes_moving(&g->l);
    g->n_value = o->n + g->l.s.n_in;
    g->value = sn_arena_alloc(m, sizeof *g->value * (size_t)g->n_value);
    memset(g->value, 0, sizeof *g->value * (size_t)g->n_value);
    for (int i = 0; i < o->n + g->l.s.n_in; i++) {
        sn_node *n = i < o->n ? o->node[i] : g->l.s.body->arg[i - o->n];
        value *x = sn_step_value(g, n);
        if (x->n) continue;
        *x = (value){.n = n,
                     .lane = n->op == SN_OP_arg && sn_lanes_axis(&g->l, n, g->l.lane) >= 0,
                     .inner = n->op == SN_OP_arg && sn_step_has_inner(g, n),
                     .moves = moves[g->l.body->index[n->id]],
                     .reduces = sn_lanes_reduces(&g->l, n, g->l.inner),
                     .crosses = g->l.whole && sn_lanes_reduces(&g->l, n, g->l.lane)};
        x->mixed = x->crosses;
        for (int k = 0; k < n->n_in; k++) {
            x->lane |= sn_step_value(g, n->in[k])->lane && !x->crosses;
            x->mixed |= sn_step_value(g, n->in[k])->mixed;
            x->inner |= sn_step_value(g, n->in[k])->inner && !x->reduces;
        }
        x->stage = sn_step_operand_stage(g, n) + x->reduces;
        if ((x->reduces && x->stage > g->last + 1)) g->last = x->stage - 1;
        if (x->inner && x->stage > g->last) g->last = x->stage;
    }
    for (int i = 0; i < g->l.s.body->n_out; i++) {
        const sn_node *n = g->l.s.body->out[i];
        if (sn_step_has_inner(g, n) && sn_step_value(g, n)->stage > g->last)
            g->last = sn_step_value(g, n)->stage;
    }
}

static int64_t bytes_of(const gen *g, const value *x) {
    return sn_step_elements(g, x) * (int64_t)sn_dtype_size((sn_dtype)x->n->dtype);
}

static void keep(gen *g, value *x) {
    if (x->keeps) return;
    x->keeps = true;
    x->offset = g->bytes;
    g->bytes += SN_ROUND_UP(bytes_of(g, x), LINE);
}

static void record(gen *g, value *x) {
    x->recorded = true;
    x->record = g->record_bytes;
    g->record_bytes += SN_ROUND_UP(CHUNK * bytes_of(g, x), LINE);
}

/* What the results of the body that are `own`, or the others, need: forward, or walk, which does not
 * need what is recorded. */
static void find_needed(gen *g, bool own) {
    const sn_region *r = g->l.s.body;
    const sn_order *o = &g->l.body->order;
    for (int i = 0; i < g->n_value; i++) *(own ? &g->value[i].walk : &g->value[i].forward) = false;
    for (int i = o->n + r->n_out; i-- > 0;) {
        if (i >= o->n && (sn_scan_result(&g->l.s, i - o->n) >= 0) != own) continue;
        value *x = sn_step_value(g, i < o->n ? o->node[i] : r->out[i - o->n]);
        bool *needed = own ? &x->walk : &x->forward;
        if (i >= o->n) *needed = true;
        if (!*needed || (own && x->recorded)) continue;
        for (int k = 0; k < x->n->n_in; k++) {
            value *y = sn_step_value(g, x->n->in[k]);
            *(own ? &y->walk : &y->forward) = true;
        }
    }
}

/* Recorded are carries, and what is expensive and needed by both. */
static void find_recorded(gen *g) {
    const sn_scan *s = &g->l.s;
    find_needed(g, false);
    find_needed(g, true);
    for (int i = 0; i < s->n_again; i++) {
        value *x = sn_step_value(g, s->body->arg[g->n_own + i]);
        if (x->walk) record(g, x);
        x->checkpoint = g->checkpoint_bytes;
        g->checkpoint_bytes += SN_ROUND_UP(bytes_of(g, x), LINE);
    }
    for (int i = 0; i < g->n_value; i++) {
        value *x = &g->value[i];
        bool expensive = x->n && sn_ops[x->n->op].flags & SN_OPF_EXPENSIVE;
        if (expensive && x->moves && x->forward && x->walk) record(g, x);
    }
    find_needed(g, true);
}

static void place_sums(gen *g, int lanes) {
    for (int i = g->n_in; i < g->n_in + g->n_out; i++) {
        if (!sn_step_is_summed(g, i)) continue;
        int64_t each = lanes * (int64_t)sn_dtype_size(sn_step_view(g, i)->dtype);
        g->sum[i - g->n_in] = g->sum_bytes;
        g->sum_bytes += SN_ROUND_UP(CHUNK * inner_of(g, i) * each, LINE);
    }
}

/* Carries, and what does not move but is read by what does. */
static void find_kept(gen *g) {
    const sn_order *o = &g->l.body->order;
    const sn_region *r = g->l.s.body;
    for (int i = 0; i < g->l.s.n_carry; i++) keep(g, sn_step_value(g, r->arg[i]));
    for (int i = 0; i < o->n + r->n_out; i++) {
        const sn_node *n = i < o->n ? o->node[i] : NULL;
        for (int k = 0; k < (n ? n->n_in : 1); k++) {
            value *x = sn_step_value(g, n ? n->in[k] : r->out[i - o->n]);
            bool read = !n || sn_step_value(g, n)->moves;
            if (read && !x->moves && !sn_step_is_fixed_scalar(x)) keep(g, x);
        }
    }
}

/* Vectors of the target to one of the kernel: as many as the lane axis fills. */
static int vectors_of(const sn_lanes *l, int lanes) {
    int n = l->n_inner > 1 ? VECTORS / 2 : VECTORS; /* elements of it are independent, too */
    int64_t all;
    if (!sn_dim_is_const(l->axes.m, l->n_lane, &all)) return n;
    while (l->whole && n * lanes < all) n *= 2;
    while (n > 1 && (n / 2) * lanes >= all) n /= 2;
    return n;
}

/* Elements of the inner axis that are emitted one after another: all, or a divisor. */
static int group_of(const sn_lanes *l, int vectors) {
    int most = vectors < UNROLL ? UNROLL / vectors : 1, n = most;
    if (l->n_inner <= most) return (int)l->n_inner;
    while (l->n_inner % n) n--;
    return n;
}

static void plan(gen *g, const sn_kernel *k, int lanes) {
    const sn_node *at;
    *g = (gen){.k = k, .n_in = k->step->n_in, .n_out = k->step->n_out};
    sn_lanes_read(&g->l, k->step->node, &at);
    g->n_own = g->l.s.n_carry - g->l.s.n_again;
    int vectors = vectors_of(&g->l, lanes);
    g->lanes = g->l.lane < 0 ? 1 : vectors * lanes;
    g->group = group_of(&g->l, vectors);
    read_values(g);
    find_kept(g);
    find_recorded(g);
    place_sums(g, lanes);
}

static sn_dim scratch(const sn_kernel *k, const sn_target *t) {
    gen g;
    plan(&g, k, sn_target_lanes(t, k->compute));
    int64_t groups = groups_of(&g), each = groups * g.checkpoint_bytes;
    sn_dim fixed = sn_dim_const(k->m, groups * g.bytes + g.record_bytes + g.sum_bytes + each);
    sn_dim length = sn_step_view(&g, g.l.s.n_carry)->shape[0];
    /* one for each chunk, rounded up in bytes */
    return sn_dim_add(k->m, fixed, sn_dim_mul(k->m, length, sn_dim_const(k->m, each / CHUNK)));
}

static void emit(em *e, const sn_kernel *k) {
    gen g;
    plan(&g, k, e->lanes);
    g.e = e;
    g.base = sn_arena_alloc(k->m, 2 * sizeof(em_val) * (size_t)(g.n_in + g.n_out));
    g.at = g.base + g.n_in + g.n_out;
    em_kernel(e, k->name);
    g.inner = em_i64(e, 0);
    sn_step_begin(&g);
    for (int i = 0; i < g.n_value; i++) {
        value *x = &g.value[i];
        if (x->keeps) x->kept = em_stack(e, (sn_dtype)x->n->dtype, sn_step_elements(&g, x));
    }
    int64_t width = block_of(&g);
    em_val lanes = sn_kernel_dim(e, k, g.l.n_lane), blocks = em_ceil_div(e, lanes, width);
    em_val items = blocks, lo, hi, unit[SN_MAX_RANK];
    for (int a = 0; a < g.l.n_unit; a++) items = em_mul(e, items, sn_kernel_dim(e, k, g.l.n[a]));
    em_share(e, items, &lo, &hi);
    g.T = sn_kernel_dim(e, k, sn_step_view(&g, g.l.s.n_carry)->shape[0]);
    em_loop item = em_for(e, lo, hi, 1);
    em_val first = em_mul(e, em_rem(e, item.i, blocks), width), rest = em_div(e, item.i, blocks);
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
