/* plan.c: the tiles of a chunk in scratch, and what each of its elements sees. */
#include "codegen/recurrence/impl.h"
#include "runtime/memory.h"

enum { MAX_GROUP = 16 };

/* ---- what an element sees ---- */

int rec_n_visible(const rec_plan *p, int pair, int t) {
    if (p->state_only) return 0;
    bool own = p->order == REC_READS_AFTER || (p->order == REC_READS_LATE && pair == 0);
    return t + own;
}

int rec_n_visible_to_u(const rec_plan *p, int pair, int t) {
    return t + (p->order == REC_READS_LATE && pair == 0);
}

int rec_n_decayed(const rec_plan *p, int pair, int t) {
    return rec_n_visible_to_u(p, pair, t);
}

/* ---- operands ---- */

static const sn_node *operand_of(const rec_plan *p, int i) {
    return p->prologue && i ? p->prologue->out[i - 1] : p->k->step->node->in[i];
}

void rec_add_load(rec_plan *p, int operand, int how, rec_tile tile, int row, int64_t col) {
    p->load[p->n_load++] = (rec_operand){operand, how, tile, row, col, operand == SN_REC_G};
}

/* How the chunk's element uses operand i; 0: not at all. */
static uint8_t use_of(const rec_plan *p, int i) {
    int how = i == SN_REC_G ? REC_WHOLE : 0;
    for (int k = 0; k < p->n_load; k++)
        if (p->load[k].operand == i) how |= p->load[k].how;
    return (uint8_t)how;
}

/* Operands that the epilogue reads. */
static void find_late_reads(rec_plan *p) {
    if (!p->epilogue) return;
    sn_order order = sn_region_topo(p->k->m, p->epilogue);
    for (int at = 0; at < order.n; at++) {
        const sn_node *n = order.node[at];
        int64_t i = n->op == SN_OP_arg ? sn_attr_int(n, SN_A_index, 0) : 0;
        if (i >= p->n_out) p->reads[1 + i - p->n_out] |= REC_WHOLE;
    }
}

void rec_find_reads(rec_plan *p) {
    sn_order order = {0};
    if (!p->prologue) {
        for (int i = 1; i < p->k->step->n_in; i++) p->reads[i] = use_of(p, i);
        return;
    }
    order = sn_region_topo(p->k->m, p->prologue);
    uint8_t *use = sn_arena_alloc(p->k->m, (size_t)order.n);
    for (int at = order.n; at-- > 0;) {
        const sn_node *n = order.node[at];
        for (int i = 0; i < p->prologue->n_out; i++)
            if (p->prologue->out[i] == n) use[at] |= use_of(p, 1 + i);
        if (n->op == SN_OP_arg) p->reads[1 + sn_attr_int(n, SN_A_index, 0)] = use[at];
        for (int i = 0; i < n->n_in; i++)
            for (int b = 0; b < at; b++)
                if (order.node[b] == n->in[i])
                    use[b] |= n->op == SN_OP_reduce_sum && use[at] ? REC_WHOLE : use[at];
    }
    find_late_reads(p);
}

/* ---- plan ---- */

rec_tile rec_place(const rec_plan *p, rec_home home, int64_t rows, int64_t ld) {
    rec_tile t = {p->space->used[home], ld, home};
    p->space->used[home] += SN_ROUND_UP(rows * ld, 64 / (int64_t)sn_dtype_size(p->t));
    return t;
}

static rec_tile place(const rec_plan *p, int64_t rows, int64_t ld) {
    return rec_place(p, REC_SHARED, rows, ld);
}

/* Blocks of whole vectors, without strides or rounding. */
static bool stores_directly(const rec_plan *p) {
    const sn_view *y = &p->k->step->out[0];
    return p->n_block * p->cols == p->V && y->stride[y->rank - 1] == 1 && y->dtype == p->t;
}

/* The states of a group take half of L2. */
int64_t rec_group_of(const rec_plan *p, const sn_target *t) {
    int64_t n = t->caches.l2 / 2 / (p->space->used[REC_PER_UNIT] * (int64_t)sn_dtype_size(p->t));
    return n < 1 ? 1 : n > MAX_GROUP ? MAX_GROUP : n;
}

int64_t rec_constant(const sn_kernel *k, sn_dim d) {
    int64_t v = 1;
    sn_dim_is_const(k->m, d, &v);
    return v;
}

static rec_decays decays_of(const rec_plan *p) {
    const sn_node *g = operand_of(p, SN_REC_G);
    return rec_constant(p->k, g->shape[g->rank - 1]) == 1 ? REC_ONE : REC_ROWS;
}

/* Which results of the recurrence are in memory. */
static void find_results(rec_plan *p) {
    const sn_region *r = p->epilogue;
    const int n = p->k->step->n_out;
    for (int i = 0; i < p->n_out; i++) {
        p->result[i] = (int8_t)(r || i >= n ? -1 : i);
        for (int o = 0; r && o < n; o++)
            if (r->out[o] == r->arg[i]) p->result[i] = (int8_t)o;
    }
}

void rec_plan_begin(rec_plan *p, rec_space *space, const sn_kernel *k, const sn_target *t) {
    *p = (rec_plan){.k = k,
                    .r = sn_recurrence_of(k->step->node),
                    .prologue = sn_attr_region(k->step->node, SN_A_prologue),
                    .epilogue = sn_attr_region(k->step->node, SN_A_epilogue),
                    .t = k->compute,
                    .by_element = sn_kernel_keeps_chunks(k),
                    .bf16 = sn_attr_get(k->step->node, SN_A_compute),
                    .lanes = sn_target_lanes(t, k->compute),
                    .space = space};
    const sn_view *carry = &k->step->in[sn_recurrence_carry(&p->r, k->step->n_in)];
    p->K = rec_constant(k, carry->shape[carry->rank - 2]);
    p->V = rec_constant(k, carry->shape[carry->rank - 1]);
    p->order = p->r.reads == SN_READS_AFTER ? REC_READS_AFTER : REC_READS_BEFORE;
    p->n_out = sn_recurrence_n_out(&p->r);
    find_results(p);
    const int max_rows = p->r.gradient || p->bf16 ? REC_CHUNK : REC_ROWS_AT_ONCE;
    const int64_t most = k->traits->prologue.row_bytes / (int64_t)sn_dtype_size(p->t);
    p->align = p->lanes < max_rows ? max_rows : p->lanes;
    p->n_block =
        p->V > most && !p->r.gradient ? (p->V + most - 1) / most : 1; /* z is of all columns */
    p->cols = SN_ROUND_UP((p->V + p->n_block - 1) / p->n_block, p->align);
    p->inner = SN_ROUND_UP(p->K, p->align);
    p->decays = decays_of(p);
}

rec_tile rec_place_decay(const rec_plan *p, rec_home home) {
    return p->decays == REC_ONE ? rec_place(p, home, 1, REC_CHUNK)
                                : rec_place(p, home, REC_CHUNK, p->inner);
}

void rec_plan_tiles(rec_plan *p, rec_home home) {
    p->n_update = p->r.second && !p->r.same ? 2 : 1;
    p->update_rows = p->n_update * REC_CHUNK;
    const int64_t rows = p->update_rows + p->inner, n = (int64_t)p->n_transposed * REC_CHUNK;
    const bool one = p->decays == REC_ONE, reads = !p->state_only || p->r.delta;
    if (!p->state_only) p->weights_y = place(p, REC_CHUNK, rows);
    if (p->r.delta) p->weights_u = place(p, REC_CHUNK, rows);
    if (p->bf16) p->words = rec_place(p, home, (reads ? rows : p->update_rows) / 2, p->cols);
    p->values_and_state = rec_place(p, home, p->update_rows, p->cols);
    p->key = place(p, p->update_rows, p->inner);
    p->total = place(p, 1, one ? 1 : p->inner);
    if (one && reads) p->factors = place(p, 2 + REC_PAIRS, REC_CHUNK);
    if (!one && reads) p->sums = place(p, 2 * REC_CHUNK, REC_CHUNK);
    if (!p->state_only) p->out = place(p, REC_CHUNK, p->cols);
    p->out_u = p->r.same ? place(p, REC_CHUNK, p->cols) : p->values_and_state;
    if (!n) return;
    p->transposed_x = place(p, p->cols, n);
    p->read = place(p, rows, n);
    p->z = place(p, n, p->inner);
}

void rec_plan_forward(rec_plan *p, rec_space *space, const sn_kernel *k, const sn_target *t) {
    rec_plan_begin(p, space, k, t);
    p->direct = stores_directly(p);
    p->stores_u = p->r.delta && p->result[2] >= 0;
    rec_plan_tiles(p, REC_PER_UNIT);
    p->state = p->next =
        rec_place(p, REC_PER_UNIT, p->inner, p->cols); /* follows `values_and_state` */
    p->decay = rec_place_decay(p, REC_SHARED);
    p->block = REC_BLOCK;
    p->group = rec_group_of(p, t);
    p->stored[0] = (rec_rows){.tile = p->out};
    if (p->r.delta) p->stored[2] = (rec_rows){.tile = p->out_u};
    const int pair[REC_PAIRS] = {rec_update_row(p, 0), rec_update_row(p, 1)};
    rec_add_load(p, SN_REC_Q, REC_WHOLE, p->weights_y, 0, p->update_rows);
    rec_add_load(p, SN_REC_K, REC_WHOLE, p->key, pair[0], 0);
    if (p->decays == REC_ROWS) rec_add_load(p, SN_REC_G, REC_WHOLE, p->decay, 0, 0);
    if (p->n_update > 1) rec_add_load(p, SN_REC_B, REC_WHOLE, p->key, pair[1], 0);
    if (p->r.delta) rec_add_load(p, SN_REC_A, REC_WHOLE, p->weights_u, 0, p->update_rows);
    rec_add_load(p, SN_REC_V, REC_COLUMNS, p->values_and_state, pair[0], 0);
    if (p->r.second && !p->r.delta)
        rec_add_load(p, SN_REC_A, REC_COLUMNS, p->values_and_state, pair[1], 0);
    rec_find_reads(p);
}

/* A register tile: accumulators, a row of the right factor, an element. */
int rec_vectors_at(em *e, const rec_plan *p, int first) {
    int n = (int)(p->cols / p->lanes) - first;
    int most = e->target->vector_regs < 32 ? REC_VECTORS - 1 : REC_VECTORS;
    return n < most ? n : most;
}

/* ---- tiles ---- */

static em_val begin_at(em *e, const rec_plan *p, rec_tile tile, em_val at) {
    return em_gep(e, p->space->base[tile.home], p->t, em_add(e, at, tile.at));
}

em_val(rec_at)(em *e, const rec_plan *p, rec_tile tile, em_val row, em_val col) {
    return begin_at(e, p, tile, em_add(e, col, em_mul(e, row, tile.ld)));
}

em_val rec_load(em *e, const rec_plan *p, em_val at) {
    return em_load(e, p->t, at, p->lanes);
}

void rec_store(em *e, const rec_plan *p, em_val at, em_val v) {
    em_store(e, p->t, at, v);
}

em_loop rec_for_vectors(em *e, const rec_plan *p, int64_t n) {
    return em_for(e, 0, n, p->lanes);
}

void rec_fill(em *e, const rec_plan *p, rec_tile tile, em_val row, int64_t from, int64_t n,
              double value) {
    em_loop l = rec_for_vectors(e, p, n);
    rec_store(e, p, rec_at(e, p, tile, row, em_add(e, l.i, from)), em_vf(e, value));
    em_end(e, &l);
}
