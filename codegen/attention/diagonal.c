/* diagonal.c: parts of the score and the mask that stay the same where query and key move
 * on together: buckets of distances, tables read at them. They are computed once a head for every
 * difference of query and key, into rows of scratch, and a vector of queries reads its key's
 * differences there next to each other. Rows grow as tiles ask for more, so that what a mask hides
 * is never computed. */
#include "codegen/attention/impl.h"

#include <math.h>

enum {
    SIMPLE = 1, /* cost of an operation, about instructions a vector */
    DIVISION = 8,
    DEAR = 16,   /* a transcendental function, an element of a table */
    WORTHY = 4,  /* what costs more than this is worth a row: reading one costs about half */
    TRIED = 16,  /* rows that are thought of, of which the dearest are kept */
    NOWHERE = -1 /* of `differences`: the head whose rows are there, at first */
};

/* --- what depends on the difference only ------------------------------------------------------ */

/* value(q + 1, k + 1) = value(q, k) + slope, for all q and k; slope NaN: no such number is known */
typedef struct diagonal {
    const sn_node *n;
    double slope;
    bool moves; /* with the query or the key */
    bool seen;  /* by the search for parts; by the sum under way */
    bool counted;
} diagonal;

typedef struct search {
    const sn_region *region;
    int first, end; /* argument of the batch index; after the captured tensors */
    sn_order order;
    diagonal *of;   /* [order.n] */
    uint32_t *slot; /* node id - base -> position in order */
    uint32_t base;
    sn_node *found[TRIED];
    int cost[TRIED], n_found;
} search;

static diagonal *diagonal_of(const search *s, const sn_node *n) {
    return &s->of[s->slot[n->id - s->base]];
}

static double slope_of_arg(const search *s, const sn_node *n) {
    int64_t i = sn_attr_int(n, SN_A_index, -1);
    if (i < s->first || i >= s->end) return NAN; /* the score, what flows back to it */
    return i == s->first + 2 || i == s->first + 3 ? 1 : 0;
}

/* Integers that do not wrap soon, floats in which positions are exact. */
static bool is_wide(const sn_node *n) {
    return n->dtype == SN_I32 || n->dtype == SN_I64 || n->dtype == SN_F32 || n->dtype == SN_F64;
}

static double slope_of_product(const sn_node *n, const double *x) {
    for (int i = 0; i < 2; i++) {
        const sn_node *c = n->in[i];
        double by = c->op == SN_OP_const ? sn_attr_flt(c, SN_A_value, NAN) : NAN;
        if (isfinite(by)) return by * x[1 - i];
    }
    return NAN;
}

static double slope_of_cast(const sn_node *n, const double *x) {
    bool cuts =
        sn_dtype_is_float((sn_dtype)n->in[0]->dtype) && !sn_dtype_is_float((sn_dtype)n->dtype);
    return cuts ? NAN : x[0];
}

#define RULE(name, ...)                                                                            \
    static double name(const sn_node *n, const double *x) {                                        \
        (void)n;                                                                                   \
        return __VA_ARGS__;                                                                        \
    }
RULE(slope_of_same, x[0])
RULE(slope_of_negative, -x[0])
RULE(slope_of_sum, x[0] + x[1])
RULE(slope_of_difference, x[0] - x[1])
RULE(slope_of_choice, x[0] == x[1] ? x[0] : NAN)
RULE(slope_of_comparison, x[0] == x[1] ? 0 : NAN)
RULE(slope_of_select, x[0] == 0 && x[1] == x[2] ? x[1] : NAN)

/* Where an operand has a slope; all other operations of numbers that do not move do not either. */
static double (*const rules[SN_OP_COUNT])(const sn_node *n, const double *x) = {
    [SN_OP_neg] = slope_of_negative,   [SN_OP_add] = slope_of_sum,
    [SN_OP_sub] = slope_of_difference, [SN_OP_mul] = slope_of_product,
    [SN_OP_max] = slope_of_choice,     [SN_OP_min] = slope_of_choice,
    [SN_OP_lt] = slope_of_comparison,  [SN_OP_le] = slope_of_comparison,
    [SN_OP_eq] = slope_of_comparison,  [SN_OP_ne] = slope_of_comparison,
    [SN_OP_select] = slope_of_select,  [SN_OP_stop_gradient] = slope_of_same,
    [SN_OP_cast] = slope_of_cast};

static double slope_of(const search *s, const sn_node *n) {
    if (n->op == SN_OP_arg) return n->rank ? 0 : slope_of_arg(s, n);
    if (n->op == SN_OP_const || n->op == SN_OP_dim_value) return 0;
    if (n->op != SN_OP_at && sn_ops[n->op].kind != SN_ELEM) return NAN;
    double x[SN_MAX_RANK + 1];
    bool still = true;
    for (int i = 0; i < n->n_in; i++) {
        x[i] = diagonal_of(s, n->in[i])->slope;
        still = still && x[i] == 0;
    }
    if (still) return 0;
    double slope = rules[n->op] ? rules[n->op](n, x) : NAN;
    return slope == 0 || is_wide(n) ? slope : NAN;
}

static bool moves(const search *s, const sn_node *n) {
    if (n->op == SN_OP_arg) return !n->rank && slope_of_arg(s, n) != 0;
    for (int i = 0; i < n->n_in; i++)
        if (diagonal_of(s, n->in[i])->moves) return true;
    return false;
}

static int cost_of(const sn_node *n) {
    if (n->op == SN_OP_arg || n->op == SN_OP_const || n->op == SN_OP_stop_gradient) return 0;
    if (sn_ops[n->op].flags & SN_OPF_DEAR) return DEAR;
    static const sn_op divisions[] = {SN_OP_div, SN_OP_mod, SN_OP_sqrt, SN_OP_rsqrt, SN_OP_recip};
    for (size_t i = 0; i < sizeof divisions / sizeof *divisions; i++)
        if (n->op == divisions[i]) return DIVISION;
    return SIMPLE;
}

/* What is spared where n's value is read: each of its operands once. */
static int cost_below(search *s, const sn_node *n) {
    diagonal *d = diagonal_of(s, n);
    if (d->counted || !d->moves) return 0;
    d->counted = true;
    int cost = cost_of(n);
    for (int i = 0; i < n->n_in; i++) cost += cost_below(s, n->in[i]);
    return cost;
}

/* The largest parts that depend on the difference only. */
static void find_parts(search *s, sn_node *n) {
    diagonal *d = diagonal_of(s, n);
    if (!d->moves || d->seen) return;
    d->seen = true;
    if (d->slope != 0) {
        for (int i = 0; i < n->n_in; i++) find_parts(s, n->in[i]);
        return;
    }
    for (int i = 0; i < s->order.n; i++) s->of[i].counted = false;
    int cost = cost_below(s, n);
    if (cost <= WORTHY || s->n_found == TRIED) return;
    s->found[s->n_found] = n;
    s->cost[s->n_found++] = cost;
}

static void search_region(search *s, const sn_region *r, int first, int n_captured) {
    sn_module *m = r->out[0]->m;
    *s = (search){.region = r, .first = first, .end = first + 4 + n_captured};
    s->order = sn_region_topo(m, r);
    s->of = sn_arena_alloc(m, (size_t)s->order.n * sizeof *s->of);
    uint32_t lo = UINT32_MAX, hi = 0;
    for (int i = 0; i < s->order.n; i++) {
        uint32_t id = s->order.node[i]->id;
        lo = id < lo ? id : lo;
        hi = id > hi ? id : hi;
    }
    s->base = lo;
    s->slot = sn_arena_alloc(m, (size_t)(hi - lo + 1) * sizeof *s->slot);
    for (int i = 0; i < s->order.n; i++) {
        const sn_node *n = s->order.node[i];
        s->slot[n->id - lo] = (uint32_t)i;
        s->of[i] = (diagonal){.n = n, .slope = slope_of(s, n), .moves = moves(s, n)};
    }
    for (int i = 0; i < r->n_out; i++) find_parts(s, r->out[i]);
}

/* The dearest parts get the rows. */
static void take_rows(att_diagonals *d, search *s, sn_dtype compute) {
    while (d->n < ATT_DIAGONALS) {
        int best = -1;
        for (int i = 0; i < s->n_found; i++)
            if (s->cost[i] && (best < 0 || s->cost[i] > s->cost[best])) best = i;
        if (best < 0) return;
        s->cost[best] = 0;
        sn_node *n = s->found[best];
        sn_dtype t = sn_dtype_is_float((sn_dtype)n->dtype) ? compute : (sn_dtype)n->dtype;
        d->row[d->n++] = (att_diagonal){n, s->region, t, d->bytes};
        d->bytes += (int)sn_dtype_size(t);
    }
}

void att_diagonals_find(att_plan *p) {
    const sn_attention *a = p->a;
    const sn_region *score = p->derivative ? p->derivative : a->score;
    p->diagonals = (att_diagonals){.n = 0};
    if (a->tq.slot < 0 && a->tq.value <= ATT_FEW) return; /* hardly fewer distances than pairs */
    for (int first = 1; first >= 0; first--) {
        const sn_region *r = first ? score : a->mask;
        search s;
        if (!r) continue;
        search_region(&s, r, first, r->n_arg - first - 4 - (r == p->derivative));
        take_rows(&p->diagonals, &s, p->t);
    }
}

void att_diagonal_results(const att_plan *p, bool *still, bool *moves) {
    const sn_region *r = p->derivative;
    search s;
    search_region(&s, r, 1, r->n_arg - 6);
    for (int i = 0; i < r->n_out; i++) {
        still[i] = diagonal_of(&s, r->out[i])->slope == 0;
        moves[i] = diagonal_of(&s, r->out[i])->moves;
    }
}

int sn_attention_diagonals(const sn_attention *a, const sn_region *derivative) {
    att_plan p = {.a = a, .derivative = derivative, .t = SN_F32};
    att_diagonals_find(&p);
    return p.diagonals.n;
}

/* --- rows -------------------------------------------------------------------------------------
 * Element i of a row is of q - k = i - (tk - 1). */

/* Elements of a row, a multiple of a line's. */
static int64_t row_slack(int lanes) {
    return 2 * lanes + 63;
}

int64_t att_diagonals_most(int lanes, int64_t tq, int64_t tk) {
    return tq + tk + row_slack(lanes);
}

int64_t att_diagonals_bytes(const att_plan *p, int64_t tq, int64_t tk) {
    return p->diagonals.bytes * att_diagonals_most(p->lanes, tq, tk);
}

em_val att_diagonal_elements(em *e, const att_plan *p) {
    em_val n = em_add(e, att_size(e, p->a->tq), att_size(e, p->a->tk));
    return em_and(e, em_add(e, n, em_i64(e, row_slack(p->lanes))), em_i64(e, -64));
}

em_val att_diagonals_end(em *e, const att_plan *p, em_val start) {
    if (!p->diagonals.n) return start;
    return em_gep_bytes(e, start,
                        em_mul(e, att_diagonal_elements(e, p), em_i64(e, p->diagonals.bytes)));
}

em_val att_diagonal_element(em *e, const att_plan *p, const att_diagonal *row, em_val i) {
    em_val at = em_mul(e, att_diagonal_elements(e, p), em_i64(e, row->offset));
    return em_gep(e, em_gep_bytes(e, att_scratch(e, p->tail_at), at), row->dtype, i);
}

em_val att_diagonal_state(em *e, const att_plan *p, int i) {
    return att_scratch(e, p->diagonal_at + 8 * i);
}

void att_diagonals_reset(em *e, const att_plan *p) {
    if (p->diagonals.n) em_store(e, SN_I64, att_diagonal_state(e, p, 0), em_i64(e, NOWHERE));
}

void att_diagonals_enter(em *e, const att_plan *p, em_val head) {
    if (!p->diagonals.n) return;
    em_val was = em_load(e, SN_I64, att_diagonal_state(e, p, 0), 1), zero = em_i64(e, 0);
    em_branch other = em_if(e, em_cmp(e, EM_NE, was, head));
    em_store(e, SN_I64, att_diagonal_state(e, p, 0), head);
    for (int i = 1; i <= 2; i++) em_store(e, SN_I64, att_diagonal_state(e, p, i), zero);
    em_endif(e, &other);
}

em_val att_diagonal_of(em *e, const att_plan *p, em_val q) {
    if (!p->diagonals.n) return NULL;
    return em_add(e, q, em_sub(e, att_size(e, p->a->tk), em_i64(e, 1)));
}

void att_diagonals_limit(sn_region_code *c, const att_plan *p, sn_node *const *root, int n_root) {
    const att_diagonals *d = &p->diagonals;
    const sn_node *leaf[ATT_DIAGONALS];
    int n = 0;
    for (int i = 0; i < d->n; i++)
        if (d->row[i].region == c->region) leaf[n++] = d->row[i].node;
    sn_region_only(c, root, n_root, leaf, n);
}

void att_diagonals_give(sn_region_code *c, em *e, const att_plan *p, em_val at) {
    const att_diagonals *d = &p->diagonals;
    for (int i = 0; i < d->n; i++) {
        const att_diagonal *row = &d->row[i];
        if (row->region != c->region) continue;
        em_val x = em_load(e, row->dtype, att_diagonal_element(e, p, row, at), p->lanes);
        sn_region_give(c, row->node, sn_emit_loaded(e, row->dtype, x));
    }
}
