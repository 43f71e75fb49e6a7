/* recurrence.c: a scan whose carry is a matrix S that each element changes by a decay of its rows, a
 * product of vectors, and a product of a vector with one that is linear in S (delta rules):
 *     S' = e^g S + b^T (a S) + k^T v,    y = q S' or q S
 * becomes a `recurrence`, however the body writes it. Either of the two last axes of S may be the one
 * that a, b, k, q and the decay belong to ("inner"); the other is v's ("outer").
 *
 * The body is read as a form in S. Vectors that do not depend on S are computed for all elements at
 * once, outside of the loop. */
#include "passes/graph_util.h"
#include "passes/match.h"
#include "passes/raise/attention.h"
#include "passes/raise/raise.h"
#include "passes/raise/recurrence.h"

#include <string.h>

enum { MAX_TERM = 2 };

/* Linear in S: a matrix `scale` S + sum of col^T (a S) + sum of col^T row; or a vector a S + row, `wide`
 * if it is repeated along the inner axis. Columns are [lead, K or 1], rows [lead, V or 1]. */
typedef struct form {
    bool vector, wide;
    sn_node *scale;              /* of a matrix: NULL: no S */
    sn_node *a, *row;            /* of a vector; NULL: zero */
    sn_node *delta[MAX_TERM][2]; /* col, a */
    sn_node *outer[MAX_TERM][2]; /* col, row */
    int n_delta, n_outer;
} form;

typedef struct body {
    sn_module *m;
    sn_node *n; /* the scan */
    sn_scan s;
    sn_node *S;        /* what the form is in: the carry before or after the element */
    int inner, n_lead; /* axes of S */
    uint8_t *depends;  /* by id: on S; 2: not known yet */
    sn_node **lifted;  /* by id: for all elements, or the node itself outside of the loop */
    bool *moves;       /* by id: `lifted` has an axis for the elements */
    uint32_t count;
    sn_node **culprit; /* the innermost node that has no form */
} body;

static sn_node *times(sn_node *x, sn_node *y) {
    return !x ? y : !y ? x : sn_b_binary(SN_OP_mul, x, y);
}

static sn_node *plus(sn_node *x, sn_node *y) {
    return !x ? y : !y ? x : sn_b_binary(SN_OP_add, x, y);
}

static sn_node *minus(sn_node *x) {
    return x ? sn_b_unary(SN_OP_neg, x) : NULL;
}

static bool depends(const body *b, const sn_node *n) {
    if (n == b->S) return true;
    if (n->id >= b->count) return false;
    if (b->depends[n->id] != 2) return b->depends[n->id];
    bool any = false;
    for (int i = 0; i < n->n_in; i++) any |= depends(b, n->in[i]);
    b->depends[n->id] = any;
    return any;
}

/* ---- vectors that do not depend on S ---- */

/* x, whose axes are S's or fewer, without `drop`, on which it has size 1: [lead, d]. */
static sn_node *without_axis(const body *b, sn_node *x, int drop) {
    sn_dim shape[SN_MAX_RANK], full[SN_MAX_RANK];
    int missing = b->S->rank - x->rank, rank = 0;
    for (int i = 0; i < b->S->rank; i++) {
        if (i == drop) continue;
        shape[rank] = i < missing ? 1 : x->shape[i - missing];
        full[rank] = i < b->n_lead ? b->S->shape[i] : shape[rank];
        rank++;
    }
    return sn_b_broadcast(sn_b_reshape(x, rank, shape), rank, full);
}

static sn_dim size_on(const body *b, const sn_node *x, int axis) {
    int i = axis - (b->S->rank - x->rank);
    return i < 0 ? 1 : x->shape[i];
}

/* A captured tensor that is broadcast outside of the loop, with size 1 on those of the matrix's axes on
 * which it does not depend. */
static sn_node *narrow(const body *b, sn_node *x) {
    for (int i = b->s.n_carry + b->s.n_sequence; i < b->s.n_in; i++) {
        const sn_node *wide = b->n->in[i], *from = wide->in ? wide->in[0] : NULL;
        if (b->s.body->arg[i] != x || wide->op != SN_OP_broadcast) continue;
        for (int a = wide->rank - 2; a < wide->rank; a++) {
            int at = a - (wide->rank - from->rank);
            if (a >= 0 && (at < 0 || from->shape[at] == 1)) x = sn_b_slice(x, a, 0, 1);
        }
    }
    return x;
}

/* Takes x, which has S's axes, apart into a column times a row. */
static bool split(const body *b, sn_node *x, sn_node **col, sn_node **row) {
    const int outer = 2 * b->n_lead + 1 - b->inner;
    while (x->op == SN_OP_broadcast || x->op == SN_OP_matmul)
        x = x->op == SN_OP_matmul ? x->decomposition : x->in[0];
    x = narrow(b, x);
    if (x->rank > b->S->rank) return false;
    if (size_on(b, x, outer) == 1) {
        *col = times(*col, without_axis(b, x, outer));
        return true;
    }
    if (size_on(b, x, b->inner) == 1) {
        *row = times(*row, without_axis(b, x, b->inner));
        return true;
    }
    if (x->op == SN_OP_mul) return split(b, x->in[0], col, row) && split(b, x->in[1], col, row);
    const sn_attr *sum = x->op == SN_OP_dot ? sn_attr_get(x, SN_A_contract_a) : NULL;
    const sn_attr *batch = sum ? sn_attr_get(x, SN_A_batch_a) : NULL;
    if (!sum || sum->n != 1 || x->in[0]->shape[sum->v[0]] != 1 || x->rank != b->S->rank ||
        (batch ? batch->n : 0) != b->n_lead)
        return false;
    for (int i = 0; i < 2; i++) { /* [lead, d, 1] or [lead, 1, d] */
        bool inner = i == b->inner - b->n_lead;
        sn_dim shape[SN_MAX_RANK];
        for (int a = 0; a < b->n_lead; a++) {
            const sn_attr *list = sn_attr_get(x, i ? SN_A_batch_b : SN_A_batch_a);
            if (list->v[a] != a) return false;
            shape[a] = x->shape[a];
        }
        shape[b->n_lead] = x->shape[b->n_lead + i];
        sn_node *f = sn_b_reshape(x->in[i], b->n_lead + 1, shape);
        *(inner ? col : row) = times(*(inner ? col : row), f);
    }
    return true;
}

/* ---- forms ---- */

static bool read_form(const body *b, sn_node *n, form *f);

static void scale_by(form *f, sn_node *col) {
    if (f->vector) {
        f->a = f->a ? times(f->a, col) : NULL;
        f->row = f->row ? times(f->row, col) : NULL;
    }
    f->scale = f->scale ? times(f->scale, col) : NULL;
    for (int i = 0; i < f->n_delta; i++) f->delta[i][0] = times(f->delta[i][0], col);
    for (int i = 0; i < f->n_outer; i++) f->outer[i][0] = times(f->outer[i][0], col);
}

static void negate(form *f) {
    f->a = minus(f->a);
    f->row = minus(f->row);
    f->scale = minus(f->scale);
    for (int i = 0; i < f->n_delta; i++) f->delta[i][0] = minus(f->delta[i][0]);
    for (int i = 0; i < f->n_outer; i++) f->outer[i][0] = minus(f->outer[i][0]);
}

static bool add_pair(sn_node *list[][2], int *n, sn_node *x, sn_node *y) {
    if (*n == MAX_TERM) return false;
    list[*n][0] = x;
    list[(*n)++][1] = y;
    return true;
}

static bool add_forms(form *f, const form *g) {
    if (f->vector != g->vector || f->wide != g->wide) return false;
    f->a = plus(f->a, g->a);
    f->row = plus(f->row, g->row);
    f->scale = plus(f->scale, g->scale);
    for (int i = 0; i < g->n_delta; i++)
        if (!add_pair(f->delta, &f->n_delta, g->delta[i][0], g->delta[i][1])) return false;
    for (int i = 0; i < g->n_outer; i++)
        if (!add_pair(f->outer, &f->n_outer, g->outer[i][0], g->outer[i][1])) return false;
    return true;
}

/* x, of the shape of a vector ([lead, V] and axes of size 1), as [lead, V or 1]. NULL: it is not. */
static sn_node *as_row(const body *b, sn_node *x) {
    const sn_dim V = b->S->shape[2 * b->n_lead + 1 - b->inner];
    sn_node *y = sn_match_below(x);
    sn_dim shape[SN_MAX_RANK], full[SN_MAX_RANK];
    int missing = x->rank - y->rank, at = x->rank - 1;
    if (at >= b->n_lead + 1 && x->shape[at] == 1) at--;
    if (at < b->n_lead || at > b->n_lead + 1 || x->shape[at] != V) return NULL;
    for (int i = 0; i < x->rank; i++) {
        int from = i < b->n_lead ? i : i == at ? b->n_lead : -1;
        sn_dim size = i < missing ? 1 : y->shape[i - missing];
        if (from < 0 && x->shape[i] != 1) return NULL;
        if (from < 0) continue;
        shape[from] = full[from] = size;
        if (i >= b->n_lead) continue;
        full[i] = b->S->shape[i];
        if (x->shape[i] != full[i]) return NULL;
    }
    return sn_b_broadcast(sn_b_reshape(y, b->n_lead + 1, shape), b->n_lead + 1, full);
}

/* What does not depend on S, beside a form f. */
static bool read_constant(const body *b, sn_node *x, const form *f, form *g) {
    *g = (form){.vector = f->vector, .wide = f->wide};
    if (f->vector && !f->wide) return (g->row = as_row(b, x)) != NULL;
    if (f->vector) return false;
    sn_node *col = NULL, *row = NULL;
    if (!split(b, x, &col, &row) || !col || !row) return false;
    return add_pair(g->outer, &g->n_outer, col, row);
}

static bool read_sum(const body *b, sn_node *n, form *f) {
    form part[2];
    bool known[2] = {depends(b, n->in[0]), depends(b, n->in[1])};
    for (int i = 0; i < 2; i++)
        if (known[i] && !read_form(b, n->in[i], &part[i])) return false;
    for (int i = 0; i < 2; i++)
        if (!known[i] && !read_constant(b, n->in[i], &part[1 - i], &part[i])) return false;
    if (n->op == SN_OP_sub) negate(&part[1]);
    *f = part[0];
    return add_forms(f, &part[1]);
}

/* The wide vector f times the column x: a matrix. */
static bool spread(form *f, sn_node *col) {
    form g = {.vector = false};
    bool ok = !f->a || add_pair(g.delta, &g.n_delta, col, f->a);
    ok = ok && (!f->row || add_pair(g.outer, &g.n_outer, col, f->row));
    *f = g;
    return ok;
}

static bool read_product(const body *b, sn_node *n, form *f) {
    int at = depends(b, n->in[1]);
    sn_node *x = n->in[1 - at], *col = NULL, *row = NULL;
    if (depends(b, x) || !read_form(b, n->in[at], f)) return false;
    if (f->vector && !f->wide) {
        sn_node *y = as_row(b, x);
        if (!y) return false;
        if (y->shape[b->n_lead] != 1 && f->a) return false;
        scale_by(f, y);
        return true;
    }
    if (!split(b, x, &col, &row)) return false;
    if (row && row->shape[b->n_lead] != 1) return false;
    col = times(col, row);
    if (f->wide) return spread(f, col);
    scale_by(f, col);
    return true;
}

static bool read_broadcast(const body *b, sn_node *n, form *f) {
    if (!read_form(b, n->in[0], f)) return false;
    if (!f->vector || f->wide) return false;
    f->wide =
        n->rank == b->S->rank && sn_shapes_equal(n, b->S) && size_on(b, n->in[0], b->inner) == 1;
    return f->wide;
}

static bool read_product_in(const body *b, sn_node *n, const sn_attr *order, form *f);

/* Views that keep a vector's elements in order, or bring those of a product into it. */
static bool read_view(const body *b, sn_node *n, form *f) {
    if (n->op == SN_OP_transpose && n->in[0]->op == SN_OP_dot &&
        read_product_in(b, n->in[0], sn_attr_get(n, SN_A_perm), f))
        return f->vector;
    if (!read_form(b, n->in[0], f) || !f->vector || f->wide) return false;
    if (n->op == SN_OP_reshape) return true;
    const sn_attr *perm = sn_attr_get(n, SN_A_perm);
    int64_t last = -1;
    for (int i = 0; i < n->rank; i++) {
        if (n->in[0]->shape[perm->v[i]] == 1) continue;
        if (perm->v[i] < last) return false;
        last = perm->v[i];
    }
    return true;
}

static bool sum_matrix(const form *m, form *f) {
    if (m->vector || m->n_delta || m->n_outer || !m->scale) return false;
    *f = (form){.vector = true, .a = m->scale};
    return true;
}

static bool read_reduce(const body *b, sn_node *n, form *f) {
    const sn_attr *axes = sn_attr_get(n, SN_A_axes);
    form m;
    return axes->n == 1 && axes->v[0] == b->inner && read_form(b, n->in[0], &m) &&
           sum_matrix(&m, f);
}

/* Whether x, a matrix for each of the leading axes, is the identity. */
static bool is_identity(const body *b, sn_node *x) {
    x = sn_match_below(x);
    for (int i = b->s.n_carry + b->s.n_sequence; i < b->s.n_in; i++)
        if (b->s.body->arg[i] == x) x = sn_match_below(b->n->in[i]);
    const sn_value *v = x->rank >= 2 ? sn_known_array(x) : NULL;
    const int64_t n = v ? (int64_t)x->shape[x->rank - 1] : 0;
    bool ok = v && n == x->shape[x->rank - 2];
    for (int64_t i = 0; ok && i < v->n; i++) ok = v->data[i] == (i / n % n == i % n);
    return ok;
}

enum { MATRIX_DEPTH = 4 };

/* The matrix x times a form in S: the identity keeps it, a diagonal one scales it, (col row) S is col (row S).
 * first: the rows of x are summed over. */
static bool read_matrix(const body *b, sn_node *x, bool first, const form *m, int depth, form *f) {
    sn_node *pair[2] = {NULL, NULL};
    while (x->op == SN_OP_broadcast) x = x->in[0];
    if (depth && (x->op == SN_OP_add || x->op == SN_OP_sub)) {
        form g;
        if (!read_matrix(b, x->in[0], first, m, depth - 1, f)) return false;
        if (!read_matrix(b, x->in[1], first, m, depth - 1, &g)) return false;
        if (x->op == SN_OP_sub) negate(&g);
        return add_forms(f, &g);
    }
    for (int i = 0; i < 2 && x->op == SN_OP_mul; i++) {
        if (!is_identity(b, x->in[i])) continue;
        if (!split(b, x->in[1 - i], &pair[0], &pair[1])) return false;
        *f = *m;
        scale_by(f, times(pair[0], pair[1]));
        return true;
    }
    if (is_identity(b, x)) return *f = *m, true;
    if (!sum_matrix(m, f) || !split(b, x, &pair[first], &pair[!first]) || !pair[0] || !pair[1])
        return false;
    f->a = times(f->a, pair[1]);
    return spread(f, pair[0]);
}

/* The vector that product n multiplies a matrix in S, its operand `at`, by: [lead or 1, K]. Heads may share it.
 * order: in which n's axes are read; NULL: as they are. NULL: n is another product, or its axes are not in S's
 * order. */
static sn_node *vector_of(const body *b, const sn_node *n, int at, const sn_attr *order) {
    sn_node *x = n->in[1 - at];
    const sn_attr *over = ra_contract_of(n, 1 - at);
    int axis[SN_MAX_RANK], last = -1, k = 0; /* axis: of x, by leading axis of S */
    int64_t perm[SN_MAX_RANK];
    sn_dim shape[SN_MAX_RANK];
    bool used[SN_MAX_RANK] = {false};
    for (int a = 0; a < b->n_lead; a++) axis[a] = -1;
    for (int i = 0, from[2]; i < n->rank; i++) {
        ra_result_axis(n, order ? (int)order->v[i] : i, from);
        const int of_S = from[at], of_x = from[1 - at];
        if (of_S >= b->n_lead && of_x >= 0) return NULL;
        if (of_S >= 0 && of_S < b->n_lead) axis[of_S] = of_x;
        if ((of_S < 0 ? x->shape[of_x] : b->S->shape[of_S]) == 1) continue;
        if (of_S <= last) return NULL;
        last = of_S;
    }
    for (int a = 0; a < b->n_lead; a++) {
        shape[a] = axis[a] < 0 ? 1 : x->shape[axis[a]];
        if (axis[a] >= 0) used[perm[k++] = axis[a]] = true;
    }
    shape[b->n_lead] = b->S->shape[b->inner];
    used[over->v[0]] = true;
    for (int a = 0; a < x->rank; a++)
        if (!used[a]) perm[k++] = a;
    perm[k] = over->v[0];
    return sn_b_reshape(sn_b_transpose(x, x->rank, perm), b->n_lead + 1, shape);
}

/* Whether product n goes along all leading axes of S, in order. */
static bool keeps_lead(const body *b, const sn_node *n) {
    for (int i = 0; i < 2; i++) {
        const sn_attr *batch = ra_batch_of(n, i);
        if ((batch ? batch->n : 0) != b->n_lead) return false;
        for (int a = 0; a < b->n_lead; a++)
            if (batch->v[a] != a) return false;
    }
    return true;
}

/* A product of a vector or a matrix with a matrix in S, or of a column with a vector in S; order: as above. */
static bool read_product_in(const body *b, sn_node *n, const sn_attr *order, form *f) {
    int at = depends(b, n->in[1]);
    sn_node *x = n->in[1 - at], *y = n->in[at];
    const sn_attr *sum = ra_contract_of(n, at);
    form m;
    if (depends(b, x) || !sum || sum->n != 1 || !read_form(b, y, &m) || m.wide) return false;
    const bool in_place =
        !order && keeps_lead(b, n) && sn_shapes_equal(n, b->S) && at == (b->inner == b->n_lead);
    sn_dim shape[SN_MAX_RANK], free = 1;
    for (int i = 0, from[2]; i < n->rank; i++) {
        ra_result_axis(n, i, from);
        if (from[at] < 0) free = sn_dim_mul(b->m, free, n->shape[i]);
    }
    if (!m.vector) { /* q S, or a matrix times S */
        if (sum->v[0] != b->inner) return false;
        if (in_place && free != 1)
            return read_matrix(b, x, ra_contract_of(n, 1 - at)->v[0] == b->inner, &m, MATRIX_DEPTH,
                               f);
        sn_node *q = vector_of(b, n, at, order);
        if (!q || !sum_matrix(&m, f)) return false;
        f->a = times(f->a, q);
        return true;
    }
    if (y->shape[sum->v[0]] != 1 || !in_place || free != b->S->shape[b->inner]) return false;
    *f = m;
    for (int a = 0; a < b->n_lead; a++) shape[a] = x->shape[a];
    shape[b->n_lead] = free;
    return spread(f, sn_b_reshape(x, b->n_lead + 1, shape));
}

static bool read_dot(const body *b, sn_node *n, form *f) {
    return read_product_in(b, n, NULL, f);
}

static bool read_negative(const body *b, sn_node *n, form *f) {
    if (!read_form(b, n->in[0], f)) return false;
    negate(f);
    return true;
}

static bool read_form(const body *b, sn_node *n, form *f) {
    static bool (*const table[SN_OP_COUNT])(const body *, sn_node *, form *) = {
        [SN_OP_add] = read_sum,
        [SN_OP_sub] = read_sum,
        [SN_OP_mul] = read_product,
        [SN_OP_neg] = read_negative,
        [SN_OP_broadcast] = read_broadcast,
        [SN_OP_reshape] = read_view,
        [SN_OP_transpose] = read_view,
        [SN_OP_reduce_sum] = read_reduce,
        [SN_OP_dot] = read_dot,
    };
    if (n == b->S) {
        sn_dim shape[SN_MAX_RANK];
        for (int i = 0; i < b->n_lead; i++) shape[i] = n->shape[i];
        shape[b->n_lead] = 1;
        sn_node *one = sn_b_const(b->m, (sn_dtype)n->dtype, 1);
        *f = (form){.scale = sn_b_broadcast(one, b->n_lead + 1, shape)};
        return true;
    }
    if (n->op == SN_OP_matmul) n = n->decomposition;
    bool ok = table[n->op] && table[n->op](b, n, f);
    if (!ok && !*b->culprit) *b->culprit = n;
    return ok;
}

/* ---- for all elements at once ---- */

static sn_node *lift(body *b, sn_node *n);

/* Operand i of n with the axis of the elements. */
static sn_node *moving(body *b, const sn_node *n, int i) {
    sn_node *x = lift(b, n->in[i]);
    sn_dim shape[SN_MAX_RANK];
    if (!x || b->moves[n->in[i]->id]) return x;
    if (x->rank == SN_MAX_RANK) return NULL;
    shape[0] = b->n->in[b->s.n_carry]->shape[0];
    for (int a = 0; a < x->rank; a++) shape[a + 1] = x->shape[a];
    return sn_b_broadcast(x, x->rank + 1, shape);
}

/* What becomes of attributes for tensors with one more axis in front: numbers of axes grow, and lists
 * that have an item for each axis begin with one for the new axis. */
typedef enum first_item { NO_ITEM, ZERO, ONE, LENGTH } first_item;
static const struct {
    first_item first;
    bool axes;
} shifts[SN_ATTR_COUNT] = {
    [SN_A_axes] = {NO_ITEM, true},       [SN_A_contract_a] = {NO_ITEM, true},
    [SN_A_contract_b] = {NO_ITEM, true}, [SN_A_perm] = {ZERO, true},
    [SN_A_batch_a] = {ZERO, true},       [SN_A_batch_b] = {ZERO, true},
    [SN_A_shape] = {LENGTH, false},      [SN_A_size] = {LENGTH, false},
    [SN_A_start] = {ZERO, false},        [SN_A_step] = {ONE, false},
};

static int shifted(const body *b, const sn_node *n, sn_attr *attr) {
    const sn_dim first[] = {[ZERO] = 0, [ONE] = 1, [LENGTH] = b->n->in[b->s.n_carry]->shape[0]};
    static const int64_t zero = 0;
    int n_attr = n->n_attr;
    for (int k = 0; k < n_attr; k++) {
        sn_attr *a = &attr[k];
        *a = n->attr[k];
        if (a->key == SN_A_axis) a->i++;
        if (!shifts[a->key].first && !shifts[a->key].axes) continue;
        int64_t *v = sn_arena_alloc(b->m, sizeof *v * (size_t)(a->n + 2));
        int at = 0;
        if (shifts[a->key].first) v[at++] = first[shifts[a->key].first];
        for (int i = 0; i < a->n; i++) v[at++] = a->v[i] + shifts[a->key].axes;
        a->v = v;
        a->n = at;
    }
    if (n->op == SN_OP_dot && !sn_attr_get(n, SN_A_batch_a)) {
        attr[n_attr++] = SN_LIST(batch_a, 1, &zero);
        attr[n_attr++] = SN_LIST(batch_b, 1, &zero);
    }
    return n_attr;
}

static sn_node *lift(body *b, sn_node *n) {
    static const uint8_t known[SN_OP_COUNT] = {
#define ELEM(name, ...) [SN_OP_##name] = 1,
#include "ir/ops.def"
        [SN_OP_broadcast] = 1,  [SN_OP_reshape] = 1,    [SN_OP_transpose] = 1,
        [SN_OP_slice] = 1,      [SN_OP_reduce_sum] = 1, [SN_OP_reduce_max] = 1,
        [SN_OP_reduce_min] = 1, [SN_OP_dot] = 1,        [SN_OP_concat] = 1,
    };
    bool moves = false;
    if (b->lifted[n->id]) return b->lifted[n->id];
    if (!n->n_in) return b->lifted[n->id] = n;
    for (int i = 0; i < n->n_in; i++) {
        if (!lift(b, n->in[i])) return NULL;
        moves |= b->moves[n->in[i]->id];
    }
    sn_node **in = sn_arena_alloc(b->m, sizeof *in * (size_t)(n->n_in + 1));
    if (moves && !known[n->op] && n->decomposition) {
        sn_node *r = lift(b, n->decomposition);
        b->moves[n->id] = r && b->moves[n->decomposition->id];
        return b->lifted[n->id] = r;
    }
    if (moves && (!known[n->op] || n->rank == SN_MAX_RANK)) return NULL;
    b->moves[n->id] = moves;
    for (int i = 0; i < n->n_in; i++) {
        in[i] = moves ? moving(b, n, i) : lift(b, n->in[i]);
        if (!in[i]) return NULL;
    }
    sn_attr *attr = sn_arena_alloc(b->m, sizeof *attr * (size_t)(n->n_attr + 2));
    if (!moves) return b->lifted[n->id] = sn_node_with(n, in);
    int n_attr = shifted(b, n, attr);
    return b->lifted[n->id] = sn_node_new(b->m, (sn_op)n->op, n->n_in, in, n_attr, attr);
}

/* A column or row for all elements, with this size of the last axis: [T, lead, size]. */
static sn_node *for_all(body *b, sn_node *x, sn_dim size) {
    sn_dim shape[SN_MAX_RANK];
    sn_node *y = lift(b, x);
    if (!y) return NULL;
    shape[0] = b->n->in[b->s.n_carry]->shape[0];
    for (int i = 0; i < b->n_lead; i++) shape[i + 1] = b->S->shape[i];
    shape[b->n_lead + 1] = size;
    return sn_b_broadcast(y, b->n_lead + 2, shape);
}

/* -(x moved) = (-x) moved, which the kernel that makes x computes. */
static sn_node *negate_first(sn_node *n) {
    const sn_node *moved = n->op == SN_OP_neg ? n->in[0] : n;
    if (moved == n || (moved->op != SN_OP_transpose && moved->op != SN_OP_reshape)) return n;
    sn_node *x = negate_first(sn_b_unary(SN_OP_neg, moved->in[0]));
    return sn_node_with(moved, &x);
}

/* ---- the rule ---- */

static void missed(sn_raiser *r, const sn_node *n, const char *why) {
    sn_remark_add(r->p, "raise", n, true,
                  "elements are computed one after the other, not in chunks of products: %s", why);
}

/* Both outputs as forms. False: not such a recurrence. */
static bool read_body(body *b, form *next, form *y, bool *before) {
    const sn_region *r = b->s.body;
    b->S = r->arg[0];
    memset(b->depends, 2, b->count);
    if (!read_form(b, r->out[0], next) || next->vector || !next->scale || next->n_delta > 1 ||
        next->n_outer != 1)
        return false;
    if (r->n_out == 1) return true;
    sn_node *S = b->S;
    *before = depends(b, r->out[1]);
    b->S = r->out[0];
    memset(b->depends, 2, b->count);
    b->depends[S->id] = 0;
    if (depends(b, r->out[1]) && read_form(b, r->out[1], y)) {
        b->S = S;
        *before = false;
        return y->vector && !y->wide && y->a;
    }
    b->S = S;
    memset(b->depends, 2, b->count);
    return *before && read_form(b, r->out[1], y) && y->vector && !y->wide && y->a;
}

static sn_node *swapped(sn_node *x) {
    int64_t perm[SN_MAX_RANK];
    for (int i = 0; i < x->rank; i++) perm[i] = i;
    perm[x->rank - 1] = x->rank - 2;
    perm[x->rank - 2] = x->rank - 1;
    return sn_b_transpose(x, x->rank, perm);
}

/* The operands, for all elements; false: something cannot be computed outside of the loop. */
static bool take(body *b, const form *next, const form *y, sn_node **in) {
    sn_dim K = b->S->shape[b->inner], V = b->S->shape[2 * b->n_lead + 1 - b->inner];
    sn_node *decay = lift(b, next->scale);
    if (!decay || !sn_is_positive(decay)) return false;
    decay = for_all(b, next->scale, next->scale->shape[b->n_lead]);
    in[SN_REC_G] = sn_log_of(decay);
    in[SN_REC_K] = for_all(b, next->outer[0][0], K);
    in[SN_REC_V] = for_all(b, next->outer[0][1], V);
    in[SN_REC_Q] = y->vector ? for_all(b, y->a, K) : in[SN_REC_K];
    in[SN_REC_START] = b->inner == b->n_lead ? b->n->in[0] : swapped(b->n->in[0]);
    if (next->n_delta) {
        in[SN_REC_B] = for_all(b, next->delta[0][0], K);
        in[SN_REC_A] = for_all(b, next->delta[0][1], K);
        if (!in[SN_REC_A] || !in[SN_REC_B]) return false;
        for (int i = SN_REC_B; i < SN_REC_END; i++) in[i] = negate_first(in[i]);
    }
    return in[SN_REC_Q] && in[SN_REC_K] && in[SN_REC_V];
}

/* Why a scan with these carries and outputs is not a recurrence; NULL: it may be one. */
static const char *why_unfit(const sn_node *n, const sn_scan *s) {
    const sn_node *S = s->body->arg[0];
    int64_t size;
    if (s->n_carry != 1)
        return sn_largest_carry(s) < 0
                   ? "several of its carries have the most axes, and a recurrence in chunks is one "
                     "matrix"
                   : "it has several carries; a recurrence in chunks is one matrix, which may need "
                     "smaller "
                     "carries that do not need it. Instead: a sum beside it is one more column of "
                     "ones in v, a "
                     "running maximum sn_cummax before the loop";
    if (S->rank < 2 || !sn_dim_is_const(n->m, S->shape[S->rank - 2], &size) ||
        !sn_dim_is_const(n->m, S->shape[S->rank - 1], &size))
        return "the last two axes of its carry are not a matrix of constant size. Chunks need a "
               "carry "
               "[.., rows, columns]";
    if (S->dtype != SN_F32) return "its carry is not f32. Instead: sn_cast it";
    if (s->body->n_out > 2)
        return "it has several outputs, a recurrence in chunks one. Instead: a loop for each";
    return s->n_tile ? "it is divided already" : NULL;
}

static bool reads(body *b, int side, form *next, form *y, bool *before) {
    b->inner = b->n_lead + side;
    b->depends = sn_arena_alloc(b->m, b->count + 1);
    return read_body(b, next, y, before);
}

const char *sn_why_no_recurrence(const sn_node *n) {
    sn_node *culprit = NULL;
    body b = {.m = n->m,
              .n = (sn_node *)(uintptr_t)n,
              .s = sn_scan_of(n),
              .count = sn_module_node_count(n->m),
              .culprit = &culprit};
    sn_region without = *b.s.body; /* carries that are kept for a gradient */
    b.s.body = &without;
    while (without.n_out > b.s.n_carry + 1 && without.out[without.n_out - 1]->op == SN_OP_arg)
        without.n_out--;
    const char *why = why_unfit(n, &b.s);
    form next, y = {.vector = false};
    bool before = false;
    int64_t size;
    if (sn_dim_is_const(n->m, n->in[1]->shape[0], &size) && size < 2) return NULL;
    if (why) return why;
    b.n_lead = b.s.body->arg[0]->rank - 2;
    if (reads(&b, 0, &next, &y, &before))
        return "what the body reads besides the carry cannot be computed for all elements first. "
               "Instead: compute it before the loop";
    return sn_arena_printf(
        n->m,
        "%s is in the way of chunks, for which the carry S becomes a decay of its "
        "rows times S plus a column times a row, and the output is a vector times S",
        culprit ? sn_name_with_place(culprit) : "a second such term");
}

/* The results of scan n as a recurrence: carry, output. */
static bool as_recurrence(sn_raiser *r, sn_node *n, sn_node **result) {
    sn_node *culprit = NULL;
    body b = {.m = n->m,
              .n = n,
              .s = sn_scan_of(n),
              .count = sn_module_node_count(n->m),
              .culprit = &culprit};
    const sn_region *region = b.s.body;
    if (why_unfit(n, &b.s)) return false;
    b.n_lead = region->arg[0]->rank - 2;
    for (int side = 0; side < 2; side++) {
        form next, y = {.vector = false};
        bool before = false;
        if (!reads(&b, side, &next, &y, &before)) continue;
        size_t room = sn_module_node_count(n->m); /* with those that reading has made */
        b.lifted = sn_arena_alloc(n->m, sizeof *b.lifted * room);
        b.moves = sn_arena_alloc(n->m, room);
        for (int i = 0; i < b.s.n_in; i++) {
            b.lifted[region->arg[i]->id] = n->in[i];
            b.moves[region->arg[i]->id] = sn_scan_is_sequence(&b.s, i);
        }
        sn_node *in[SN_REC_END];
        if (!take(&b, &next, &y, in)) {
            missed(r, n,
                   "the decay is not known to be positive. Instead: exp or sigmoid of something, "
                   "inside the body or as a sequence");
            return false;
        }
        bool same = next.n_delta && in[SN_REC_B] == in[SN_REC_K];
        sn_node *all =
            sn_node_new(n->m, SN_OP_recurrence, next.n_delta ? SN_REC_END : SN_REC_B, in,
                        SN_ATTRS(SN_INT(reads, before ? SN_READS_BEFORE : SN_READS_AFTER),
                                 SN_INT(delta, same ? SN_DELTA_OF_K : next.n_delta),
                                 SN_INT(reverse, b.s.reverse)));
        result[0] = sn_b_result(all, 1);
        if (side) result[0] = swapped(result[0]);
        if (y.vector) {
            sn_node *out = sn_b_result(n, 1), *v = in[SN_REC_V];
            sn_node *row = y.row ? for_all(&b, y.row, v->shape[v->rank - 1]) : NULL;
            if (y.row && !row) return false;
            result[1] = sn_b_reshape(plus(sn_b_result(all, 0), row), out->rank, out->shape);
        }
        return !sn_module_error(n->m)->code;
    }
    return false;
}

/* The same of a scan with smaller carries besides the matrix. */
static bool as_parts(sn_raiser *r, sn_node *n, sn_node **result) {
    sn_node *main[SN_MAX_RESULTS] = {NULL};
    int carry, output;
    sn_node *loop = sn_split_scan(n, &carry, &output, result);
    if (!loop || !as_recurrence(r, loop, main)) return false;
    result[carry] = main[0];
    if (output >= 0) result[output] = main[1];
    return true;
}

sn_node *sn_raise_result(sn_raiser *r, sn_node *n) {
    sn_node *result[SN_MAX_RESULTS] = {NULL}, *scan = n->in[0];
    if (scan->op != SN_OP_scan) return NULL;
    if (!as_recurrence(r, scan, result) && !as_parts(r, scan, result)) return NULL;
    return result[sn_attr_int(n, SN_A_index, 0)];
}

sn_node *sn_raise_scan(sn_raiser *r, sn_node *n) {
    sn_node *result[SN_MAX_RESULTS] = {NULL};
    return n->n_result == 1 && as_recurrence(r, n, result) ? result[0] : NULL;
}
