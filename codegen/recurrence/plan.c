/* plan.c: the tiles of a chunk in scratch, and what each of its elements sees. */
#include "codegen/recurrence/impl.h"
#include "runtime/memory.h"

enum { MAX_GROUP = 16 };

/* ---- what an element sees ---- */

int rec_seen(const rec_plan *p, int pair, int t) {
    if (p->r.silent) return 0;
    bool own = p->r.reads == SN_READS_AFTER || (p->r.reads == SN_READS_LATE && pair == 0);
    return t + own;
}

int rec_seen_by_u(const rec_plan *p, int pair, int t) {
    return t + (p->r.reads == SN_READS_LATE && pair == 0);
}

int rec_decayed(const rec_plan *p, int pair, int t) {
    return rec_seen_by_u(p, pair, t);
}

/* ---- operands ---- */

static int n_operands(const rec_plan *p) {
    return p->prologue ? 1 + p->prologue->n_out : p->k->step->n_in;
}

static const sn_node *operand_of(const rec_plan *p, int i) {
    return p->prologue && i ? p->prologue->out[i - 1] : p->k->step->node->in[i];
}

/* How the chunk's element uses operand i; 0: not at all. */
static int use_of(const rec_plan *p, int i) {
    if (i == SN_REC_START || (i == SN_REC_Q && p->r.silent && !p->grads)) return 0;
    if (i == SN_REC_B && p->r.second && p->pairs == 1) return 0;
    if (i >= sn_recurrence_turned(&p->r, p->r.turned)) return p->grads ? REC_WHOLE : 0;
    if (i >= sn_recurrence_turned(&p->r, p->n_turned)) return 0;
    bool columns =
        i == SN_REC_V || i >= sn_recurrence_turned(&p->r, 0) || (i == SN_REC_A && !p->r.delta);
    return columns ? REC_COLUMNS : REC_WHOLE;
}

/* Operands that the epilogue reads. */
static void find_late_reads(rec_plan *p) {
    const int first = sn_recurrence_n_out(&p->r);
    if (!p->epilogue) return;
    sn_order order = sn_region_topo(p->k->m, p->epilogue);
    for (int at = 0; at < order.n; at++) {
        const sn_node *n = order.node[at];
        int64_t i = n->op == SN_OP_arg ? sn_attr_int(n, SN_A_index, 0) : 0;
        if (i >= first) p->reads[1 + i - first] |= REC_WHOLE;
    }
}

/* p->reads. */
static void find_reads(rec_plan *p) {
    sn_order order = {0};
    if (!p->prologue)
        for (int i = 0; i < n_operands(p); i++) p->reads[i] = (uint8_t)use_of(p, i);
    if (!p->prologue) return;
    order = sn_region_topo(p->k->m, p->prologue);
    uint8_t *use = sn_arena_alloc(p->k->m, (size_t)order.n);
    for (int at = order.n; at-- > 0;) {
        const sn_node *n = order.node[at];
        for (int i = 0; i < p->prologue->n_out; i++)
            if (p->prologue->out[i] == n) use[at] |= (uint8_t)use_of(p, 1 + i);
        if (n->op == SN_OP_arg) p->reads[1 + sn_attr_int(n, SN_A_index, 0)] = use[at];
        for (int i = 0; i < n->n_in; i++)
            for (int b = 0; b < at; b++)
                if (order.node[b] == n->in[i])
                    use[b] |= n->op == SN_OP_reduce_sum && use[at] ? REC_WHOLE : use[at];
    }
}

/* ---- plan ---- */

static rec_tile place_in(const rec_plan *p, int64_t *elements, int64_t rows, int64_t ld) {
    rec_tile t = {*elements, ld, elements == &p->each};
    *elements += SN_ROUND_UP(rows * ld, 64 / (int64_t)sn_dtype_size(p->t));
    return t;
}

static rec_tile place(rec_plan *p, int64_t rows, int64_t ld) {
    return place_in(p, &p->elements, rows, ld);
}

/* Blocks of whole vectors, without strides or rounding. */
static bool stores_directly(const rec_plan *p) {
    const sn_view *y = &p->k->step->out[0];
    return !p->r.silent && p->n_block * p->cols == p->V && y->stride[y->rank - 1] == 1 &&
           y->dtype == p->t;
}

/* The carries of a group take half of L2. */
static int64_t group_of(const rec_plan *p, const sn_target *t) {
    int64_t n = t->caches.l2 / 2 / (p->each * (int64_t)sn_dtype_size(p->t));
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

static void place_decays(rec_plan *p) {
    if (p->decays == REC_ONE) {
        p->decay = place(p, 1, REC_CHUNK);
        p->total = place(p, 1, 1);
        p->factors = place(p, 2 + REC_PAIRS, REC_CHUNK);
        return;
    }
    p->decay = place(p, REC_CHUNK, p->inner);
    p->total = place(p, 1, p->inner);
    if (p->weighs) p->sums = place(p, (int64_t)2 * REC_CHUNK * REC_CHUNK, p->lanes);
}

static void place_turned(rec_plan *p) {
    const int64_t n = p->n_turned;
    if (!n) return;
    p->x = place(p, n * REC_CHUNK, p->cols);
    p->turned_x = place(p, p->cols, n * REC_CHUNK);
    p->read = place(p, p->first + p->inner, n * REC_CHUNK);
    p->z = place(p, n * REC_CHUNK, p->inner);
    if (p->inner <= p->cols) p->z.at = p->x.at; /* x has been turned; z's place keeps tiles apart */
    p->kept = p->weighs ? place(p, p->first, p->inner) : p->key;
}

/* Which results of the recurrence are in memory. */
static void find_results(rec_plan *p) {
    const sn_region *r = p->epilogue;
    for (int i = 0; i < sn_recurrence_n_out(&p->r); i++) {
        p->result[i] = (int8_t)(r || i >= p->k->step->n_out ? -1 : i);
        for (int o = 0; r && o < p->k->step->n_out; o++)
            if (r->out[o] == r->arg[i]) p->result[i] = (int8_t)o;
    }
}

static void place_grads(rec_plan *p) {
    if (!p->grads) return;
    p->query = place(p, REC_CHUNK, p->inner);
    p->factor = place(p, (int64_t)SN_REC_FACTORS * REC_CHUNK, p->inner);
    p->paths = place_in(p, &p->each, 1, p->inner);
    p->grad = p->query; /* each row is read before */
}

/* How many of the z are stored. */
static int turned_of(const rec_plan *p) {
    int n = p->r.turned;
    if (p->epilogue) return n;
    while (n && sn_recurrence_turned_result(&p->r, n - 1) >= p->k->step->n_out) n--;
    return n;
}

void rec_plan_make(rec_plan *p, const sn_kernel *k, const sn_target *t) {
    const sn_view *start = &k->step->in[SN_REC_START];
    *p = (rec_plan){.k = k,
                    .r = sn_recurrence_of(k->step->node),
                    .prologue = sn_attr_region(k->step->node, SN_A_prologue),
                    .epilogue = sn_attr_region(k->step->node, SN_A_epilogue),
                    .t = k->compute,
                    .lanes = sn_target_lanes(t, k->compute)};
    p->K = rec_constant(k, start->shape[start->rank - 2]);
    p->V = rec_constant(k, start->shape[start->rank - 1]);
    find_results(p);
    p->stores_u = p->r.delta && p->result[2] >= 0;
    p->weighs = !p->r.silent || p->r.delta;
    p->n_turned = turned_of(p);
    p->grads = p->r.decay_grad && (p->epilogue || k->step->n_out == sn_recurrence_n_out(&p->r));
    int most_rows = p->n_turned ? REC_CHUNK : REC_ROWS_AT_ONCE;
    p->align = p->lanes < most_rows ? most_rows : p->lanes;
    int64_t most = k->traits->prologue.row_bytes / (int64_t)sn_dtype_size(p->t);
    p->n_block =
        p->V > most && !p->n_turned ? (p->V + most - 1) / most : 1; /* z is of all columns */
    p->cols = SN_ROUND_UP((p->V + p->n_block - 1) / p->n_block, p->align);
    p->inner = SN_ROUND_UP(p->K, p->align);
    p->direct = stores_directly(p);
    p->decays = decays_of(p);
    p->pairs = p->r.second && !p->r.same ? 2 : 1;
    p->first = p->pairs * REC_CHUNK;
    int64_t left = p->first + p->inner;
    if (!p->r.silent) p->left = place(p, REC_CHUNK, left);
    if (p->r.delta) p->left_u = place(p, REC_CHUNK, left);
    p->right = place_in(p, &p->each, left, p->cols);
    place_grads(p);
    p->group = group_of(p, t);
    p->key = place(p, p->first, p->inner);
    place_decays(p);
    if (!p->r.silent) p->out = place(p, REC_CHUNK, p->cols);
    p->out_u = p->r.same ? place(p, REC_CHUNK, p->cols) : p->right;
    place_turned(p);
    if (p->epilogue) p->made = place(p, SN_REC_RESULTS, p->inner);
    find_reads(p);
    find_late_reads(p);
}

/* A register tile: accumulators, a row of the right factor, an element. */
int rec_vectors_at(em *e, const rec_plan *p, int first) {
    int n = (int)(p->cols / p->lanes) - first;
    int most = e->target->vector_regs < 32 ? REC_VECTORS - 1 : REC_VECTORS;
    return n < most ? n : most;
}

/* ---- tiles ---- */

static em_val begin_at(em *e, const rec_plan *p, rec_tile tile, em_val at) {
    return em_gep(e, tile.of_unit ? p->unit : e->scratch, p->t, em_addi(e, at, tile.at));
}

em_val rec_at(em *e, const rec_plan *p, rec_tile tile, em_val row, em_val col) {
    return begin_at(e, p, tile, em_add(e, em_muli(e, row, tile.ld), col));
}

em_val rec_at_const(em *e, const rec_plan *p, rec_tile tile, int64_t row, em_val col) {
    return begin_at(e, p, tile, em_addi(e, col, row * tile.ld));
}

em_val rec_load(em *e, const rec_plan *p, em_val at) {
    return em_load(e, p->t, at, p->lanes);
}

void rec_store(em *e, const rec_plan *p, em_val at, em_val v) {
    em_store(e, p->t, at, v);
}

em_loop rec_for_vectors(em *e, const rec_plan *p, int64_t n) {
    return em_for(e, em_i64(e, 0), em_i64(e, n), em_i64(e, p->lanes));
}

void rec_fill(em *e, const rec_plan *p, rec_tile tile, em_val row, int64_t from, int64_t n,
              double value) {
    em_loop l = rec_for_vectors(e, p, n);
    rec_store(e, p, rec_at(e, p, tile, row, em_addi(e, l.i, from)), em_vf(e, value));
    em_end(e, &l);
}
