/* missed.c: what stood in the way of attention. After the last rule has applied, each product that
 * reads a tensor of queries and keys, computed from another product, is reported with the operation
 * between the two that no kernel holds; likewise softmax and large products that nothing took. */
#include "passes/fused_scan.h"
#include "passes/graph_util.h"
#include "passes/raise/attention.h"
#include "passes/raise/recurrence.h"

#include <string.h>

enum { MAX_VISITS = 400, LONG_AXIS = 64 };

typedef struct finder {
    sn_raiser *r;
    sn_order order;
    uint32_t count;           /* of nodes when the report begins */
    uint8_t *seen, *reported; /* by id */
    const sn_node *product;
    sn_dim rows, keys;      /* of the tensor that the product reads */
    const sn_node *scores;  /* the first product; NULL: not found */
    const sn_node *culprit; /* the nearest operation that is in the way; NULL: none */
    bool exponential;       /* one of scores is between the products */
    int visits;
    const sn_node *softmax[2]; /* those below the product, before other softmaxes */
    int n_softmax;             /* of them, or more */
    bool other_axis;           /* the first one is not over the keys */
} finder;

/* A tensor's size grows with the run's sizes there, or it is long. */
static bool is_long(const finder *f, sn_dim d) {
    int64_t n;
    return !sn_dim_is_const(f->r->m, d, &n) || n >= LONG_AXIS;
}

static bool has_pair(const finder *f, const sn_node *n) {
    int rows = 0, keys = 0;
    for (int a = 0; a < n->rank; a++) {
        rows += n->shape[a] == f->rows;
        keys += n->shape[a] == f->keys;
    }
    return rows && keys && (f->rows != f->keys || rows > 1);
}

static bool is_held(const sn_node *n) {
    return sn_is_elementwise(n) || sn_element_opened((sn_node *)(uintptr_t)n) ||
           n->op == SN_OP_softmax || n->op == SN_OP_dropout || n->op == SN_OP_reshape ||
           n->op == SN_OP_transpose || n->op == SN_OP_broadcast;
}

/* The number of keys of operand i: concat, pad and slice change it. */
static sn_dim keys_below(const finder *f, const sn_node *n, int i) {
    const sn_node *x = n->in[i];
    int keys = -1;
    if (n->op != SN_OP_concat && n->op != SN_OP_pad && n->op != SN_OP_slice) return f->keys;
    for (int a = 0; a < n->rank; a++)
        if (n->shape[a] == f->keys && x->shape[a] != f->keys) keys = a;
    return keys < 0 ? f->keys : x->shape[keys];
}

/* Looks for the product of the scores below n. */
static void visit(finder *f, const sn_node *n, const sn_node *culprit) {
    bool mixes = false;
    if (f->scores || f->seen[n->id] || ++f->visits > MAX_VISITS || !has_pair(f, n)) return;
    f->seen[n->id] = 1;
    for (int i = 0; i < n->n_in; i++) mixes |= has_pair(f, n->in[i]);
    if (n->op == SN_OP_dot && !mixes) {
        f->scores = n;
        f->culprit = culprit;
        return;
    }
    f->exponential |= n->op == SN_OP_exp;
    if (!culprit && !is_held(n)) culprit = n->op == SN_OP_result ? n->in[0] : n;
    const sn_dim keys = f->keys;
    for (int i = 0; i < n->n_in && !f->scores; i++) {
        f->keys = keys_below(f, n, i);
        visit(f, n->in[i], culprit);
        f->keys = keys;
    }
}

/* Looks for softmaxes below n, whose axis `keys` is that of the keys; keys < 0: not known any more. */
static void visit_softmaxes(finder *f, const sn_node *n, int keys) {
    if (f->seen[n->id] || ++f->visits > MAX_VISITS || !has_pair(f, n)) return;
    f->seen[n->id] = 1;
    if (n->op == SN_OP_softmax) {
        int axis = (int)sn_attr_int(n, SN_A_axis, n->rank - 1);
        if (!f->n_softmax) f->other_axis = n->shape[axis] != f->keys || (keys >= 0 && axis != keys);
        if (f->n_softmax < 2) f->softmax[f->n_softmax] = n;
        f->n_softmax++;
        return;
    }
    bool elementwise = sn_is_elementwise(n);
    for (int i = 0; i < n->n_in; i++) visit_softmaxes(f, n->in[i], elementwise ? keys : -1);
}

static const char *shape_of(const finder *f, const sn_node *n) {
    char text[128];
    sn_shape_print(f->r->m, n->rank, n->shape, text, sizeof text);
    return sn_arena_printf(f->r->m, "%s%s", sn_dtype_name((sn_dtype)n->dtype), text);
}

#define RUNNING                                                                                    \
    "sums over keys between two products depend on all tiles before: apply them to q, k or v"
#define COLUMNS                                                                                    \
    "write columns that have no value as .sink of sn_attention, and join keys to those that have " \
    "one"
#define MAXIMUM "let sn_softmax subtract the maximum, or divide weights by .divide of sn_attention"

/* Whether n, a slice, changes the number of keys; whether it, a sum, is over them. */
static bool changes_keys(const sn_node *n, const ra_way *w) {
    for (int a = 0; a < n->rank; a++)
        if ((n->shape[a] == w->keys || n->in[0]->shape[a] == w->keys) &&
            n->shape[a] != n->in[0]->shape[a])
            return true;
    return false;
}

static bool sums_keys(const sn_node *n, const ra_way *w) {
    const sn_attr *axes = sn_attr_get(n, SN_A_axes);
    for (int i = 0; i < axes->n; i++)
        if (n->in[0]->shape[axes->v[i]] == w->keys) return true;
    return false;
}

static bool has_exponential(const sn_node *n, const ra_way *w) {
    (void)n;
    return w->exponential;
}

/* What to write instead, by the operation in the way. What is missing has no other form. */
static const struct {
    sn_op op;
    bool beside; /* the operation is not between the products, but reads what is */
    bool (*fits)(const sn_node *n, const ra_way *w); /* NULL: always */
    const char *text;
} advice[] = {
    {SN_OP_dot, false, NULL,
     "heads may mix by one matrix [H, H] before the softmax and by one after it, as .mix_scores "
     "and "
     ".mix_weights of sn_attention"},
    {SN_OP_concat, false, NULL, COLUMNS},
    {SN_OP_slice, false, changes_keys, COLUMNS},
    {SN_OP_pad, false, NULL, COLUMNS},
    {SN_OP_slice, false, NULL, "cut queries and keys, for a product of each part"},
    {SN_OP_cumsum, false, NULL, RUNNING},
    {SN_OP_cumsum, true, NULL, RUNNING},
    {SN_OP_scan, false, NULL, RUNNING},
    {SN_OP_scan, true, NULL, RUNNING},
    {SN_OP_log_softmax, false, NULL, "write sn_softmax"},
    {SN_OP_logsumexp, true, NULL, ".lse of sn_attention gives it"},
    {SN_OP_reduce_sum, false, NULL,
     "sums over heads are .mix_scores and .mix_weights of sn_attention, or sn_einsum; those over "
     "keys "
     ".divide"},
    {SN_OP_reduce_sum, true, sums_keys,
     ".divide of sn_attention, or for another sum a second sn_attention: .weight is what it adds "
     "up, "
     "and v one column of ones"},
    {SN_OP_dot, true, NULL,
     "join all values that the same weights take, by sn_concat on their last axis"},
    {SN_OP_reduce_max, false, has_exponential, MAXIMUM},
    {SN_OP_reduce_max, true, has_exponential, MAXIMUM},
};

const char *ra_advice_on(const sn_node *n, const ra_way *w) {
    for (size_t i = 0; n && i < sizeof advice / sizeof *advice; i++)
        if (advice[i].op == n->op && w->beside == advice[i].beside &&
            (!advice[i].fits || advice[i].fits(n, w)))
            return advice[i].text;
    bool output = !n || sn_is_elementwise(n) || sn_element_opened((sn_node *)(uintptr_t)n);
    return w->beside && output ? "compute it in an entry of its own, or from the result" : NULL;
}

static sn_remark *remark_on(const finder *f, const sn_node *n) {
    const sn_passes *p = f->r->p;
    for (int i = 0; i < p->n_remark; i++)
        if (p->remark[i].node == n) return &p->remark[i];
    return NULL;
}

static bool is_remarked(const finder *f, const sn_node *n) {
    return remark_on(f, n) != NULL;
}

/* The tensor of queries and keys that operand `side` is, if the product sums over the keys. */
static bool reads_pairs(finder *f, const sn_node *n, int side) {
    const sn_node *w = n->in[side], *v = sn_below_views(n->in[1 - side]);
    const sn_attr *over = ra_contract_of(n, side);
    if (!over || over->n != 1 || !is_long(f, f->keys = w->shape[over->v[0]])) return false;
    if (v->op == SN_OP_param) return false;
    f->rows = 0;
    for (int i = 0, from[2]; i < n->rank; i++) {
        ra_result_axis(n, i, from);
        if (from[side] >= 0 && from[1 - side] < 0) f->rows = w->shape[from[side]];
    }
    bool run_time = !sn_dim_is_const(n->m, f->keys, NULL) && !sn_dim_is_const(n->m, f->rows, NULL);
    return f->rows && (run_time || (f->rows == f->keys && ra_batch_of(n, side) && w->rank > 2));
}

/* No kernel will ever hold it, whatever else a rule has found. */
static bool is_hopeless(const sn_node *n) {
    return n && (n->op == SN_OP_cumsum || n->op == SN_OP_scan);
}

/* Says why the product n of weights, its operand `side`, and values is none of attention. */
static void report_product(finder *f, const sn_node *n, int side) {
    const char *stored = shape_of(f, n->in[side]);
    sn_passes *p = f->r->p;
    sn_remark *before = remark_on(f, n);
    if (before && !is_hopeless(f->culprit)) return;
    if (before) /* the better one follows */
        memmove(before, before + 1,
                sizeof *before * (size_t)(p->remark + p->n_remark-- - before - 1));
    if (f->culprit) {
        const ra_way way = {.keys = f->keys, .exponential = f->exponential};
        const char *instead = ra_advice_on(f->culprit, &way);
        sn_remark_add(p, "raise", n, true,
                      "no attention kernel: %s stands between the scores %s and this product, so "
                      "%s stays in memory. %s%s",
                      sn_name_with_place(f->culprit), sn_name_with_place(f->scores), stored,
                      instead ? "Instead: " : "",
                      instead ? instead
                              : "Between the products a kernel holds elementwise operations, one "
                                "softmax or division by the row's sum, and dropout");
        return;
    }
    memset(f->seen, 0, f->count);
    f->visits = f->n_softmax = 0;
    visit_softmaxes(f, n->in[side], (int)ra_contract_of(n, side)->v[0]);
    if (f->n_softmax > 1)
        sn_remark_add(
            p, "raise", n, true,
            "no attention kernel: its weights are made of %s and %s, and a kernel has one "
            "softmax, so %s stays in memory. Instead: one sn_attention for each; sums and "
            "differences of weights are those of the results",
            sn_name_with_place(f->softmax[0]), sn_name_with_place(f->softmax[1]), stored);
    else if (f->n_softmax && f->other_axis)
        sn_remark_add(
            p, "raise", n, true,
            "no attention kernel: %s is not over the keys, so %s stays in memory. Instead: "
            "sn_attention, whose softmax is over the keys of each query and head; what columns are "
            "divided by is .lse of sn_attention with queries and keys exchanged, which .weight can "
            "read",
            sn_name_with_place(f->softmax[0]), stored);
    else if (f->n_softmax)
        sn_remark_add(
            p, "raise", n, true,
            "no attention kernel: between %s and this product its weights change in a way that no "
            "kernel holds, so %s stays in memory. Instead: change the scores before the softmax (a "
            "power of weights that are divided again is a factor of the scores), or .weight and "
            ".divide of sn_attention",
            sn_name_with_place(f->softmax[0]), stored);
    else
        sn_remark_add(p, "raise", n, true,
                      "no attention kernel: the axes of its operands, or their types, are not "
                      "those of attention, so %s stays in memory. Instead: sn_attention",
                      stored);
}

static void report(finder *f, const sn_node *n) {
    for (int side = 0; side < 2; side++) {
        if (!reads_pairs(f, n, side)) continue;
        memset(f->seen, 0, f->count);
        f->scores = f->culprit = NULL;
        f->visits = 0;
        f->exponential = false;
        visit(f, n->in[side], NULL);
        if (!f->scores) continue;
        f->reported[f->scores->id] = 1;
        report_product(f, n, side);
        return;
    }
}

/* What reads n, through views and elementwise operations: a product, or the operation that keeps the
 * tensor from one. NULL: an output. */
static const sn_node *find_reader(const finder *f, const sn_node *n) {
    for (int visits = 0; visits < 8; visits++) {
        const sn_node *reader = NULL;
        for (int i = 0; i < f->order.n && !reader; i++)
            for (int k = 0; k < f->order.node[i]->n_in; k++)
                if (f->order.node[i]->in[k] == n) reader = f->order.node[i];
        if (!reader || reader->op == SN_OP_dot || !is_held(reader) || !has_pair(f, reader))
            return reader;
        n = reader;
    }
    return n;
}

/* A softmax that no kernel of attention has taken. */
static void report_softmax(finder *f, const sn_node *n) {
    int axis = (int)sn_attr_int(n, SN_A_axis, n->rank - 1), beside = axis ? axis - 1 : axis + 1;
    sn_passes *p = f->r->p;
    char keys[64];
    sn_dim_print(n->m, n->shape[axis], keys, sizeof keys);
    if (n->rank < 2 || !is_long(f, n->shape[axis])) {
        sn_remark_add(p, "raise", n, false,
                      "a kernel over rows of %s elements, with what is elementwise around it",
                      keys);
        return;
    }
    f->keys = n->shape[axis];
    f->rows = n->shape[beside];
    f->scores = f->culprit = NULL;
    f->visits = 0;
    memset(f->seen, 0, f->count);
    visit(f, n->in[0], NULL);
    const sn_node *reader = find_reader(f, n);
    bool product = reader && reader->op == SN_OP_dot;
    if (!f->scores)
        sn_remark_add(
            p, "raise", n, false,
            "a kernel over rows of %s elements: its scores come from no product of queries "
            "and keys",
            keys);
    else if (product)
        sn_remark_add(p, "raise", n, !is_remarked(f, reader),
                      "a kernel over rows of %s elements, not a part of attention with %s and %s",
                      keys, sn_name_with_place(f->scores), sn_name_with_place(reader));
    else
        sn_remark_add(
            p, "raise", n, true,
            "no attention kernel: the weights %s stay in memory for %s, not for a product "
            "with values. Instead: sn_attention gives that product, and .lse what the "
            "weights are divided by",
            shape_of(f, n), reader ? sn_name_with_place(reader) : "an output");
}

/* A product of queries and keys that is not part of attention. */
static void report_square(finder *f, const sn_node *n) {
    f->rows = n->shape[n->rank - 2];
    f->keys = n->shape[n->rank - 1];
    const sn_node *reader = find_reader(f, n);
    bool bias = reader && reader->op == SN_OP_attention;
    sn_remark_add(
        f->r->p, "raise", n, false, "%s stays in memory: %s%s", shape_of(f, n),
        bias ? sn_name_with_place(reader) : "no second product takes it, as attention has",
        bias ? " reads it as a bias. Scores may be a sum of products with the same batches "
               "and heads"
             : "");
}

/* Whether the compiler made the loop: from the smaller carries of one whose matrix is a recurrence. */
static bool is_rest(const finder *f, const sn_node *n) {
    for (int i = 0; i < f->order.n; i++) {
        const sn_node *x = f->order.node[i];
        if (x->op == SN_OP_recurrence && x->loc.file == n->loc.file && x->loc.line == n->loc.line)
            return true;
    }
    return false;
}

/* A loop of the user's that is not a recurrence. Its gradient has no other reason. */
static void report_loop(finder *f, const sn_node *n) {
    if (is_remarked(f, n) || is_rest(f, n) || sn_scan_is_gradient(n)) return;
    const char *why = sn_scan_is_running_result(n) ? NULL : sn_why_no_recurrence(n);
    if (why)
        sn_remark_add(f->r->p, "raise", n, false,
                      "elements are computed one after the other, not in chunks of products: %s",
                      why);
}

void sn_raise_report(sn_raiser *r, int n_root, sn_node *const *root) {
    uint32_t count = sn_module_node_count(r->m);
    finder f = {.r = r,
                .order = sn_topo(r->m, n_root, root),
                .count = count,
                .seen = sn_arena_alloc(r->m, count),
                .reported = sn_arena_alloc(r->m, count)};
    for (int i = 0; i < f.order.n; i++)
        if (f.order.node[i]->op == SN_OP_dot) report(&f, f.order.node[i]);
    for (int i = 0; i < f.order.n; i++) {
        const sn_node *n = f.order.node[i];
        if (n->op == SN_OP_softmax || n->op == SN_OP_log_softmax) report_softmax(&f, n);
        if (n->op == SN_OP_scan) report_loop(&f, n);
        if (n->op == SN_OP_dot && ra_is_square(n) && !f.reported[n->id] && !is_remarked(&f, n))
            report_square(&f, n);
    }
}
