/* relative_bias.c: values of the score and mask regions that depend on query - key only (Toeplitz
 * matrices): buckets of distances, tables read at them. They are computed once per head and
 * distance into rows of scratch. A vector of queries then reads its values at a key from
 * consecutive elements. Rows are extended when a tile needs more elements, so nothing is computed
 * for distances that a mask hides everywhere. */
#include "codegen/attention/impl.h"
#include "passes/kernels/costs.h"

#include <math.h>

enum {
    MAX_CANDIDATES = 16, /* the most expensive ones get rows */
    NO_HEAD = -1         /* state 0: no head has valid rows */
};

/* --- which values depend on the distance only ------------------------------------------------- */

/* value(q + 1, k + 1) = value(q, k) + slope for all q and k; slope NaN: not known to have one. */
typedef struct node_facts {
    double slope;
    bool moves;   /* depends on the query or the key */
    bool visited; /* by find_parts */
    bool counted; /* by cost_below */
} node_facts;

typedef struct search {
    const sn_region *region;
    int first, end; /* argument of the batch index; after the captured tensors */
    sn_order order;
    node_facts *facts; /* [order.n] */
    uint32_t *slot;    /* node id - base -> position in order */
    uint32_t base;
    sn_node *found[MAX_CANDIDATES];
    int cost[MAX_CANDIDATES], n_found;
} search;

static node_facts *facts_of(const search *s, const sn_node *n) {
    return &s->facts[s->slot[n->id - s->base]];
}

static double slope_of_arg(const search *s, const sn_node *n) {
    int64_t i = sn_attr_int(n, SN_A_index, -1);
    if (i < s->first || i >= s->end) return NAN; /* the score, its cotangent */
    return i == s->first + 2 || i == s->first + 3 ? 1 : 0;
}

/* Integers that do not wrap for positions, floats in which positions are exact. */
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

/* For operands with a slope. Any other operation on constant operands is constant. */
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
    if (n->op != SN_OP_gather_nd && !sn_is_elementwise(n)) return NAN;
    double x[SN_MAX_RANK + 1];
    bool constant = true;
    for (int i = 0; i < n->n_in; i++) {
        x[i] = facts_of(s, n->in[i])->slope;
        constant = constant && x[i] == 0;
    }
    if (constant) return 0;
    double slope = rules[n->op] ? rules[n->op](n, x) : NAN;
    return slope == 0 || is_wide(n) ? slope : NAN;
}

static bool moves(const search *s, const sn_node *n) {
    if (n->op == SN_OP_arg) return !n->rank && slope_of_arg(s, n) != 0;
    for (int i = 0; i < n->n_in; i++)
        if (facts_of(s, n->in[i])->moves) return true;
    return false;
}

static int cost_of(const sn_node *n) {
    if (n->op == SN_OP_arg || n->op == SN_OP_const || n->op == SN_OP_stop_gradient) return 0;
    static const sn_op divisions[] = {SN_OP_div,  SN_OP_ieee_div, SN_OP_mod,
                                      SN_OP_sqrt, SN_OP_rsqrt,    SN_OP_recip};
    for (size_t i = 0; i < sizeof divisions / sizeof *divisions; i++)
        if (n->op == divisions[i]) return SN_COST_DIVISION;
    return sn_cost_of(n, SN_COST_SIMPLE);
}

/* Cost of n and of what it is computed from: what reading n's value saves. */
static int cost_below(search *s, const sn_node *n) {
    node_facts *d = facts_of(s, n);
    if (d->counted || !d->moves) return 0;
    d->counted = true;
    int cost = cost_of(n);
    for (int i = 0; i < n->n_in; i++) cost += cost_below(s, n->in[i]);
    return cost;
}

/* Finds the largest parts that depend on the distance only. */
static void find_parts(search *s, sn_node *n) {
    node_facts *d = facts_of(s, n);
    if (!d->moves || d->visited) return;
    d->visited = true;
    if (d->slope != 0) {
        for (int i = 0; i < n->n_in; i++) find_parts(s, n->in[i]);
        return;
    }
    for (int i = 0; i < s->order.n; i++) s->facts[i].counted = false;
    int cost = cost_below(s, n);
    if (cost <= SN_COST_RELATIVE_ROW || s->n_found == MAX_CANDIDATES) return;
    s->found[s->n_found] = n;
    s->cost[s->n_found++] = cost;
}

static void search_region(search *s, const sn_region *r, int first, int n_captured) {
    sn_module *m = r->out[0]->m;
    *s = (search){.region = r, .first = first, .end = first + 4 + n_captured};
    s->order = sn_region_topo(m, r);
    s->facts = sn_arena_alloc(m, (size_t)s->order.n * sizeof *s->facts);
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
        s->facts[i] = (node_facts){.slope = slope_of(s, n), .moves = moves(s, n)};
    }
    for (int i = 0; i < r->n_out; i++) find_parts(s, r->out[i]);
}

/* Gives rows to the most expensive parts. */
static void take_rows(att_relative *d, search *s, sn_dtype compute) {
    while (d->n < ATT_RELATIVE_ROWS) {
        int best = -1;
        for (int i = 0; i < s->n_found; i++)
            if (s->cost[i] && (best < 0 || s->cost[i] > s->cost[best])) best = i;
        if (best < 0) return;
        s->cost[best] = 0;
        sn_node *n = s->found[best];
        sn_dtype t = sn_dtype_is_float((sn_dtype)n->dtype) ? compute : (sn_dtype)n->dtype;
        d->row[d->n++] = (att_relative_row){n, s->region, t, d->bytes};
        d->bytes += (int)sn_dtype_size(t);
    }
}

void att_relative_find(att_plan *p) {
    const sn_attention *a = p->a;
    const sn_region *score = p->derivative ? p->derivative : a->score;
    p->relative = (att_relative){.n = 0};
    if (att_decodes_only(a)) return; /* hardly fewer distances than (query, key) pairs */
    for (int first = 1; first >= 0; first--) {
        const sn_region *r = first ? score : a->mask;
        search s;
        if (!r) continue;
        search_region(&s, r, first, r->n_arg - first - 4 - (r == p->derivative));
        take_rows(&p->relative, &s, p->t);
    }
}

void att_relative_results(const att_plan *p, bool *constant, bool *moves) {
    const sn_region *r = p->derivative;
    search s;
    search_region(&s, r, 1, r->n_arg - 6);
    for (int i = 0; i < r->n_out; i++) {
        constant[i] = facts_of(&s, r->out[i])->slope == 0;
        moves[i] = facts_of(&s, r->out[i])->moves;
    }
}

int sn_attention_relative_terms(const sn_attention *a, const sn_region *derivative) {
    att_plan p = {.a = a, .derivative = derivative, .t = SN_F32};
    att_relative_find(&p);
    return p.relative.n;
}

/* --- rows -------------------------------------------------------------------------------------
 * Element i of a row belongs to q - k = i - (tk - 1). */

/* A row has tq + tk elements and this slack, rounded down to whole cache lines. */
static int64_t row_slack(int lanes) {
    return 2 * lanes + 63;
}

int64_t att_relative_max_elements(int lanes, int64_t tq, int64_t tk) {
    return tq + tk + row_slack(lanes);
}

int64_t att_relative_bytes(const att_plan *p, int64_t tq, int64_t tk) {
    return p->relative.bytes * att_relative_max_elements(p->lanes, tq, tk);
}

em_val att_relative_elements(em *e, const att_plan *p) {
    em_val n = em_add(e, em_size_value(e, p->a->tq), em_size_value(e, p->a->tk));
    return em_and(e, em_add(e, n, row_slack(p->lanes)), -64);
}

em_val att_relative_end(em *e, const att_plan *p, em_val start) {
    if (!p->relative.n) return start;
    return em_gep_bytes(e, start, em_mul(e, att_relative_elements(e, p), p->relative.bytes));
}

em_val att_relative_element(em *e, const att_plan *p, const att_relative_row *row, em_val i) {
    em_val at = em_mul(e, att_relative_elements(e, p), row->offset);
    return em_gep(e, em_gep_bytes(e, att_scratch(e, p->tail_offset), at), row->dtype, i);
}

em_val att_relative_state(em *e, const att_plan *p, int i) {
    return att_scratch(e, p->relative_state_offset + 8 * i);
}

void att_relative_reset(em *e, const att_plan *p) {
    if (p->relative.n) em_store(e, SN_I64, att_relative_state(e, p, 0), em_i64(e, NO_HEAD));
}

void att_relative_begin_head(em *e, const att_plan *p, em_val head) {
    if (!p->relative.n) return;
    em_val was = em_load(e, SN_I64, att_relative_state(e, p, 0), 1);
    em_branch other = em_if(e, em_cmp(e, EM_NE, was, head));
    em_store(e, SN_I64, att_relative_state(e, p, 0), head);
    for (int i = 1; i <= 2; i++) em_store(e, SN_I64, att_relative_state(e, p, i), 0);
    em_endif(e, &other);
}

em_val att_relative_index(em *e, const att_plan *p, em_val q) {
    if (!p->relative.n) return NULL;
    return em_add(e, q, em_sub(e, em_size_value(e, p->a->tk), 1));
}

int att_relative_nodes(const sn_region_code *c, const att_plan *p, const sn_node **node) {
    const att_relative *d = &p->relative;
    int n = 0;
    for (int i = 0; i < d->n; i++)
        if (d->row[i].region == c->region) node[n++] = d->row[i].node;
    return n;
}

void att_relative_load(sn_region_code *c, em *e, const att_plan *p, em_val at) {
    const att_relative *d = &p->relative;
    for (int i = 0; i < d->n; i++) {
        const att_relative_row *row = &d->row[i];
        if (row->region != c->region) continue;
        em_val x = em_load(e, row->dtype, att_relative_element(e, p, row, at), p->lanes);
        sn_region_give(c, row->node, sn_emit_loaded(e, row->dtype, x));
    }
}

/* Computes elements from .. to - 1, multiples of lanes, of all rows. */
static void emit_elements(em *e, const att_plan *p, const em_val of[2], em_val from, em_val to) {
    const att_relative *d = &p->relative;
    em_loop l = em_for(e, from, to, p->lanes);
    for (int is_score = 0; is_score < 2; is_score++) {
        att_region r;
        if (!att_region_of_distances(&r, e, p, is_score, of, l.i)) continue;
        for (int i = 0; i < d->n; i++) {
            if (d->row[i].region != r.code.region) continue;
            em_val x = sn_region_node(&r.code, d->row[i].node);
            em_store(e, d->row[i].dtype, att_relative_element(e, p, &d->row[i], l.i),
                     em_splat(e, x, p->lanes / em_lanes_of(x)));
        }
    }
    em_end(e, &l);
}

em_val att_emit_relative_rows(em *e, const att_plan *p) {
    if (!p->relative.n) return NULL;
    att_relative_rows_args q = att_relative_rows_begin(e, p, "relative_rows");
    att_use_context(e, q.buf, q.dim, q.scratch);
    em_val of[] = {q.batch, q.head};
    em_val from = em_load(e, SN_I64, att_relative_state(e, p, 1), 1),
           to = em_load(e, SN_I64, att_relative_state(e, p, 2), 1);
    em_val none = em_cmp(e, EM_EQ, from, to);
    from = em_select(e, none, q.lo, from), to = em_select(e, none, q.lo, to);
    em_val begin = em_imin(e, q.lo, from), end = em_imax(e, q.hi, to);
    em_loop l = em_for(e, 0, 2, 1); /* below and above the valid elements */
    em_val above = em_cmp(e, EM_EQ, l.i, 1);
    emit_elements(e, p, of, em_select(e, above, to, begin), em_select(e, above, end, from));
    em_end(e, &l);
    em_store(e, SN_I64, att_relative_state(e, p, 1), begin);
    em_store(e, SN_I64, att_relative_state(e, p, 2), end);
    return att_end(e);
}

void att_relative_extend(em *e, em_val fn, const att_query_block *b, em_val k0, em_val n) {
    const att_plan *p = b->p;
    if (!fn) return;
    em_val down = em_i64(e, -p->lanes);
    em_val key = em_sub(e, em_add(e, k0, n), 1);
    em_val lo = em_and(e, em_sub(e, att_relative_index(e, p, b->q0), key), down);
    em_val end = em_add(e, b->q0, em_mul(e, b->nv, p->lanes)); /* the query after the last lane */
    em_val hi = em_add(e, em_sub(e, att_relative_index(e, p, end), k0), p->lanes - 1);
    hi = em_and(e, hi, down);
    em_val below = em_cmp(e, EM_LT, lo, em_load(e, SN_I64, att_relative_state(e, p, 1), 1));
    em_val above = em_cmp(e, EM_GT, hi, em_load(e, SN_I64, att_relative_state(e, p, 2), 1));
    em_branch more = em_if(e, em_or(e, below, above));
    att_relative_rows_call(e, fn,
                           (att_relative_rows_args){ATT_PASS_CONTEXT(e), .batch = b->batch,
                                                    .head = b->head, .lo = lo, .hi = hi});
    em_endif(e, &more);
}
