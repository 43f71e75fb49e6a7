/* prologue.c: the vectors of an element, from memory to their tiles. A fused recurrence computes them of
 * rows in memory: first sums along rows, then what there is one of for the element, such as the
 * reciprocal of a norm, then all vectors of K elements in one loop and all vectors of V elements in
 * another, so that each row is loaded once for the operands that it is part of. */
#include "codegen/emit/elem.h"
#include "codegen/emit/vmath.h"
#include "codegen/recurrence/impl.h"
#include "runtime/memory.h"

enum { OF_ELEMENT = 1, OF_ROW = 2 }; /* what values of the region depend on */
enum { MAX_TARGETS = SN_MAX_REC_IN };

typedef struct loader {
    em *e;
    const rec_plan *p;
    const rec_unit *u;
    em_val t;                /* the element */
    em_val row;              /* of the tiles, for an epilogue */
    const sn_region *region; /* the prologue, or the epilogue */
    int first;               /* the region's argument that is the first operand in memory */
    bool used[SN_REC_SOURCES + SN_MAX_RESULTS]; /* by argument */
    sn_region_code code;                        /* of the region */
    int n_sum;
    sn_node *sum[MAX_TARGETS]; /* reductions, operands first */
    int stage[MAX_TARGETS];    /* how many stages of sums come before */
} loader;

/* ---- values ---- */

/* Whether the elements of a row of view v differ. */
static bool varies(const rec_plan *p, const sn_view *v) {
    return rec_constant(p->k, v->shape[v->rank - 1]) != 1 && v->stride[v->rank - 1] != 0;
}

/* Operand i in memory at element `at` of the row, or of the unit's columns. */
static em_val load(loader *l, int i, em_val at, em_val mask, int how) {
    em *e = l->e;
    const sn_view *v = rec_view(l->p, i);
    em_val row = rec_element(e, l->p, l->u, i, l->t);
    if (!varies(l->p, v)) return sn_emit_loaded(e, v->dtype, em_load(e, v->dtype, row, 1));
    if (how == REC_COLUMNS && l->p->reads[i] != REC_COLUMNS) at = em_add(e, at, l->u->col);
    return sn_emit_loaded(e, v->dtype, rec_load_vector(e, l->p, v, row, at, mask));
}

/* Whether argument i of the region differs along a row. */
static bool arg_varies(const loader *l, int i) {
    if (i < l->first) return i != l->p->n_out - 1 || l->p->decays == REC_ROWS;
    return varies(l->p, rec_view(l->p, 1 + i - l->first));
}

/* Result i of the recurrence, a gradient, as the epilogue reads it. */
static em_val load_result(loader *l, int i, em_val at) {
    em *e = l->e;
    const rec_rows *from = &l->p->stored[i];
    em_val row = from->flipped ? em_sub(e, REC_CHUNK - 1, l->row) : l->row;
    row = em_add(e, row, from->row);
    if (arg_varies(l, i)) return rec_load(e, l->p, rec_at(e, l->p, from->tile, row, at));
    return em_load(e, l->p->t, rec_at(e, l->p, from->tile, row, 0), 1);
}

/* Gives the region's arguments their values that belong to the whole element, or at a place of the row. */
static void give(loader *l, bool rows, em_val at, em_val mask, int how) {
    for (int i = 0; i < l->region->n_arg; i++) {
        const sn_node *arg = l->region->arg[i];
        if (!l->used[i] || !sn_region_needs(&l->code, arg) || arg_varies(l, i) != rows) continue;
        if (i < l->first)
            sn_region_give(&l->code, arg, load_result(l, i, at));
        else
            sn_region_give(&l->code, arg, load(l, 1 + i - l->first, at, mask, how));
    }
}

/* From now on these are computed; first what there is one of for the element. */
static void begin_values(loader *l, sn_node *const *root, int n) {
    const sn_node *leaf[MAX_TARGETS];
    for (int i = 0; i < l->n_sum; i++) leaf[i] = l->sum[i];
    sn_region_only(&l->code, root, n, leaf, l->n_sum);
    sn_region_emit(&l->code, OF_ELEMENT);
}

static em_val spread(loader *l, em_val x) {
    return em_lanes_of(x) == 1 ? em_splat(l->e, x, l->p->lanes) : x;
}

/* The value of a node at a place of the row, as a vector; 0 in lanes that do not exist. */
static em_val vector_of(loader *l, const sn_node *n, em_val mask) {
    em *e = l->e;
    em_val x = spread(l, sn_region_node(&l->code, n));
    return mask ? em_select(e, mask, x, em_vf(e, 0)) : x;
}

static em_val place(loader *l, em_loop *at, int k) {
    return em_add(l->e, at->i, (int64_t)k * l->p->lanes);
}

static em_loop for_places(loader *l, int64_t n, int iterations) {
    em *e = l->e;
    return em_for(e, 0, n, (int64_t)iterations * l->p->lanes);
}

/* ---- sums along rows ---- */

/* The sums of one stage along rows of n elements. */
static void add_up(loader *l, sn_node *const *sum, int n_sum, int64_t n) {
    em *e = l->e;
    sn_node *x[MAX_TARGETS];
    em_val acc[MAX_TARGETS][EM_COPIES];
    const int64_t whole = SN_ROUND_UP(n, l->p->align);
    const int iterations = rec_at_once(l->p, whole);
    for (int i = 0; i < n_sum; i++) x[i] = sum[i]->in[0];
    begin_values(l, x, n_sum);
    em_loop at = for_places(l, whole, iterations);
    for (int i = 0; i < n_sum; i++) {
        for (int k = 0; k < iterations; k++) acc[i][k] = em_vf(e, 0);
        em_carries(e, &at, acc[i], iterations);
    }
    for (int k = 0; k < iterations; k++) {
        em_val j = place(l, &at, k), mask = rec_mask(e, l->p, j, n, NULL);
        give(l, true, j, mask, REC_WHOLE);
        sn_region_emit(&l->code, OF_ELEMENT | OF_ROW);
        for (int i = 0; i < n_sum; i++) acc[i][k] = em_add(e, acc[i][k], vector_of(l, x[i], mask));
        sn_region_forget(&l->code, OF_ROW);
    }
    em_end(e, &at);
    for (int i = 0; i < n_sum; i++) {
        for (int k = 1; k < iterations; k++) acc[i][0] = em_add(e, acc[i][0], acc[i][k]);
        em_val all = em_reduce(e, EM_SUM, acc[i][0]);
        sn_region_give(&l->code, sum[i], sn_emit_rounded(e, (sn_dtype)sum[i]->dtype, all));
    }
}

static int64_t row_of(const loader *l, const sn_node *sum) {
    const sn_node *x = sum->in[0];
    return rec_constant(l->p->k, x->shape[x->rank - 1]);
}

/* Those of one stage and one length share a loop. */
static void add_up_all(loader *l) {
    bool done[MAX_TARGETS] = {false};
    for (int stage = 0, left = l->n_sum; left; stage++)
        for (int first = 0; first < l->n_sum; first++) {
            sn_node *same[MAX_TARGETS];
            int n = 0;
            for (int i = first; i < l->n_sum && l->stage[first] == stage && !done[first]; i++) {
                if (l->stage[i] != stage || row_of(l, l->sum[i]) != row_of(l, l->sum[first]))
                    continue;
                same[n++] = l->sum[i];
                if (i != first) done[i] = true;
            }
            if (n) add_up(l, same, n, row_of(l, l->sum[first]));
            left -= n;
        }
}

/* How many stages of sums node i of the region needs; before: the same of the nodes before it. */
static int stages_below(const loader *l, int i, const int *before) {
    const sn_node *n = l->code.order.node[i];
    int most = 0;
    for (int k = 0; k < n->n_in; k++)
        for (int j = 0; j < i; j++) {
            if (l->code.order.node[j] != n->in[k]) continue;
            int s = before[j] + (n->in[k]->op == SN_OP_reduce_sum);
            if (s > most) most = s;
        }
    return most;
}

/* ---- an element ---- */

static void begin_element(loader *l) {
    const sn_region *r = l->region;
    if (!r || !sn_region_begin(&l->code, l->e, r)) return;
    int *below = sn_arena_alloc(l->p->k->m, sizeof *below * (size_t)l->code.order.n);
    for (int i = 0; i < l->code.order.n; i++) {
        sn_node *n = l->code.order.node[i];
        if (n->op == SN_OP_arg) l->used[sn_attr_int(n, SN_A_index, 0)] = true;
        below[i] = stages_below(l, i, below);
        if (n->op != SN_OP_reduce_sum || l->n_sum == MAX_TARGETS) continue;
        l->stage[l->n_sum] = below[i];
        l->sum[l->n_sum++] = n;
        sn_region_fix(&l->code, n, OF_ELEMENT);
    }
    for (int i = 0; i < r->n_arg; i++)
        sn_region_arg(&l->code, i, NULL, arg_varies(l, i) ? OF_ROW : OF_ELEMENT);
    give(l, false, NULL, NULL, REC_WHOLE);
    add_up_all(l);
}

/* Computes a vector of each row that is loaded `how`, to row `to` of its tiles. */
static void fill_vector(loader *l, em_val to, em_val at, em_val mask, int how) {
    em *e = l->e;
    const rec_plan *p = l->p;
    if (p->prologue) {
        give(l, true, at, mask, how);
        sn_region_emit(&l->code, OF_ELEMENT | OF_ROW);
    }
    for (int i = 0; i < p->n_load; i++) {
        const rec_operand *x = &p->load[i];
        if (x->how != how) continue;
        em_val v = p->prologue ? vector_of(l, p->prologue->out[x->operand - 1], mask)
                               : spread(l, load(l, x->operand, at, mask, how));
        if (x->exp) v = sn_vmath_emit(e, SN_V_EXP, v);
        rec_store(e, p, rec_at(e, p, x->tile, em_add(e, to, x->row), em_add(e, at, x->col)), v);
    }
    if (p->prologue) sn_region_forget(&l->code, OF_ROW);
}

/* Computes rows of n elements; `count` of them exist if that is not NULL. */
static void fill(loader *l, em_val to, int64_t n, em_val count, int how) {
    em *e = l->e;
    const rec_plan *p = l->p;
    sn_node *root[REC_LOADS];
    int n_root = 0;
    const int64_t whole = SN_ROUND_UP(n, p->align);
    const int iterations = rec_at_once(p, whole);
    for (int i = 0; i < p->n_load && p->prologue; i++)
        if (p->load[i].how == how) root[n_root++] = p->prologue->out[p->load[i].operand - 1];
    if (p->prologue) begin_values(l, root, n_root);
    em_loop at = for_places(l, whole, iterations);
    em_copies c = em_begin_copies(e);
    for (int k = 0; k < iterations; k++) {
        em_val j = place(l, &at, k);
        fill_vector(l, to, j, rec_mask(e, p, j, n, count), how);
        em_end_copy(e, &c);
    }
    em_interleave(e, &c);
    em_end(e, &at);
}

/* The one decay of the element. e^g is computed for the whole chunk. */
static void load_decay(loader *l, em_val to) {
    em_val g;
    if (l->p->prologue) {
        sn_node *root = l->p->prologue->out[SN_REC_G - 1];
        begin_values(l, &root, 1);
        g = sn_region_node(&l->code, root);
    } else {
        g = load(l, SN_REC_G, NULL, NULL, REC_WHOLE);
    }
    em_store(l->e, l->p->t, rec_at(l->e, l->p, l->p->decay, 0, to), g);
}

void(rec_load_rows)(em *e, const rec_plan *p, const rec_unit *u, em_val t, em_val to) {
    loader l = {.e = e, .p = p, .u = u, .t = t, .region = p->prologue};
    if (e->err.code) return; /* by an operation that no region has */
    begin_element(&l);
    if (p->decays == REC_ONE) load_decay(&l, to);
    fill(&l, to, p->K, NULL, REC_WHOLE);
    fill(&l, to, p->cols, u->columns, REC_COLUMNS);
}

/* ---- the epilogue ---- */

/* Whether elements of a row of the step's result i are side by side. */
static bool is_contiguous(const rec_plan *p, int i) {
    const sn_view *v = rec_view(p, p->k->step->n_in + i);
    return v->stride[v->rank - 1] == 1;
}

/* A vector of the step's result i, in memory or in its row of `epilogue_rows`. */
static void store_vector(loader *l, int i, em_val at, em_val x, em_val mask) {
    em *e = l->e;
    const int view = l->p->k->step->n_in + i;
    const sn_dtype t = rec_view(l->p, view)->dtype;
    if (!is_contiguous(l->p, i)) {
        rec_store(e, l->p, rec_at(e, l->p, l->p->epilogue_rows, i, at), x);
        return;
    }
    em_val row = rec_element(e, l->p, l->u, view, l->t);
    em_store_mask(e, t, em_gep(e, row, t, at), x, mask);
}

/* Results of the epilogue that differ along a row. */
static void make_rows(loader *l, const int *out, int n) {
    em *e = l->e;
    const rec_plan *p = l->p;
    sn_node *root[SN_REC_RESULTS];
    const int iterations = rec_at_once(p, p->inner);
    for (int i = 0; i < n; i++) root[i] = l->region->out[out[i]];
    begin_values(l, root, n);
    em_loop at = for_places(l, p->inner, iterations);
    em_copies c = em_begin_copies(e);
    for (int k = 0; k < iterations; k++) {
        em_val j = place(l, &at, k), mask = rec_mask(e, p, j, p->K, NULL);
        give(l, true, j, mask, REC_WHOLE);
        sn_region_emit(&l->code, OF_ELEMENT | OF_ROW);
        for (int i = 0; i < n; i++) store_vector(l, out[i], j, vector_of(l, root[i], mask), mask);
        sn_region_forget(&l->code, OF_ROW);
        em_end_copy(e, &c);
    }
    em_interleave(e, &c);
    em_end(e, &at);
}

void rec_store_epilogue(em *e, const rec_plan *p, const rec_unit *u, em_val t, em_val from) {
    loader l = {
        .e = e, .p = p, .u = u, .t = t, .row = from, .region = p->epilogue, .first = p->n_out};
    int rows[SN_REC_RESULTS], n_row = 0;
    if (e->err.code) return;
    begin_element(&l);
    for (int i = 0; i < p->k->step->n_out; i++) {
        sn_node *n = p->epilogue->out[i];
        if (n->op == SN_OP_arg) continue; /* stored already */
        if (rec_constant(p->k, n->shape[n->rank - 1]) != 1) {
            rows[n_row++] = i;
            continue;
        }
        const sn_view *v = rec_view(p, p->k->step->n_in + i);
        begin_values(&l, &n, 1);
        em_store(e, v->dtype, rec_element(e, p, u, p->k->step->n_in + i, t),
                 sn_region_node(&l.code, n));
    }
    if (n_row) make_rows(&l, rows, n_row);
    for (int i = 0; i < n_row; i++)
        if (!is_contiguous(p, rows[i]))
            rec_store_result(e, p, u, rows[i], p->epilogue_rows, t, em_i64(e, rows[i]));
}
