/* product.c: products of tensors become products of matrices, see product.h. Row axes that not
 * every operand can walk with one stride become batch axes. */
#include "passes/plan/product.h"
#include "passes/graph_util.h"
#include "passes/holds.h"

#include <string.h>

enum { MIN_SYMMETRIC = 64 }; /* rows of a symmetric product: the triangle is much less than all */

typedef struct axes {
    int n;
    int64_t axis[SN_MAX_RANK];
} axes;

typedef struct product {
    sn_module *m;
    axes batch_a, batch_b, contract_a, contract_b, rows, cols; /* rows: of a, cols: of b */
} product;

static axes listed(const sn_node *n, sn_attr_key key) {
    const sn_attr *a = sn_attr_get(n, key);
    axes r = {.n = a ? a->n : 0};
    for (int i = 0; i < r.n; i++) r.axis[i] = a->v[i];
    return r;
}

static axes others(int rank, const axes *x, const axes *y) {
    axes r = {.n = 0};
    for (int a = 0; a < rank; a++) {
        bool used = false;
        for (int i = 0; i < x->n; i++) used |= x->axis[i] == a;
        for (int i = 0; i < y->n; i++) used |= y->axis[i] == a;
        if (!used) r.axis[r.n++] = a;
    }
    return r;
}

static void append(axes *to, const axes *from, int first, int last) {
    for (int i = first; i < last; i++) to->axis[to->n++] = from->axis[i];
}

/* The view with its axes in the order `lead` (the first `merged` of them as one axis, the others
 * separately), then the groups g1 and g2 as one axis each. */
static bool three_parts(sn_module *m, const sn_view *v, int merged, const axes *lead,
                        const axes *g1, const axes *g2, sn_view *out) {
    int64_t perm[SN_MAX_RANK];
    sn_dim shape[SN_MAX_RANK + 2];
    int n = 0, rank = merged > 0;
    sn_dim p1 = 1, p2 = 1;
    shape[0] = 1;
    for (int i = 0; i < lead->n; i++) {
        sn_dim size = v->shape[lead->axis[i]];
        perm[n++] = lead->axis[i];
        if (i < merged)
            shape[0] = sn_dim_mul(m, shape[0], size);
        else
            shape[rank++] = size;
    }
    for (int i = 0; i < g1->n; i++) {
        p1 = sn_dim_mul(m, p1, v->shape[g1->axis[i]]);
        perm[n++] = g1->axis[i];
    }
    for (int i = 0; i < g2->n; i++) {
        p2 = sn_dim_mul(m, p2, v->shape[g2->axis[i]]);
        perm[n++] = g2->axis[i];
    }
    if (rank + 2 > SN_MAX_RANK) return false;
    shape[rank++] = p1;
    shape[rank++] = p2;
    sn_view ordered = sn_view_transpose(v, perm);
    return sn_view_reshape(m, &ordered, rank, shape, out);
}

/* Appends axes of v to `out`, as few as strides allow, at least one. */
static bool add_levels(sn_module *m, const sn_view *v, const axes *group, sn_view *out) {
    int first = out->rank;
    for (int i = 0; i < group->n; i++) {
        sn_dim size = v->shape[group->axis[i]], stride = v->stride[group->axis[i]];
        int above = out->rank - 1;
        if (size == 1) continue;
        if (above >= first && out->stride[above] == sn_dim_mul(m, stride, size))
            size = sn_dim_mul(m, out->shape[above], size);
        else
            above = out->rank++;
        if (above == SN_MAX_RANK) return false;
        out->shape[above] = size;
        out->stride[above] = stride;
    }
    if (out->rank > first) return true;
    if (first == SN_MAX_RANK) return false;
    out->shape[first] = 1;
    out->stride[first] = 0;
    out->rank++;
    return true;
}

/* An operand of the epilogue: rows and columns as one axis each, or several where a single stride
 * is not possible. */
static bool lay_over(sn_module *m, const sn_view *v, int merged, const axes *lead, const axes *rows,
                     const axes *cols, sn_view *out) {
    if (three_parts(m, v, merged, lead, rows, cols, out)) return true;
    *out = *v;
    out->rank = 0;
    for (int i = 0, last; i < lead->n; i = last) {
        axes group = {.n = 0};
        int above = out->rank;
        last = i < merged ? merged : i + 1;
        append(&group, lead, i, last);
        if (!add_levels(m, v, &group, out) || out->rank > above + 1) return false;
    }
    return add_levels(m, v, rows, out) && add_levels(m, v, cols, out);
}

int sn_product_row_axes(sn_module *m, const sn_step *s, const sn_view *v) {
    int first = s->in[0].rank - 2, n = 1;
    sn_dim rows = v->shape[first];
    while (rows != s->in[0].shape[first] && first + n < v->rank)
        rows = sn_dim_mul(m, rows, v->shape[first + n++]);
    return n;
}

/* The right factor as matrices; it is broadcast along the extra batch axes of the left one. */
static bool split_right(const product *p, const sn_step *s, int merged, int extra,
                        const sn_view *left, sn_view *out) {
    sn_view b;
    if (!three_parts(p->m, &s->in[1], merged, &p->batch_b, &p->contract_b, &p->cols, &b))
        return false;
    int r = b.rank - 2;
    *out = b;
    out->rank = b.rank + extra;
    for (int i = 0; i < extra; i++) {
        out->shape[r + i] = left->shape[r + i];
        out->stride[r + i] = 0;
    }
    for (int i = 0; i < 2; i++) {
        out->shape[r + extra + i] = b.shape[r + i];
        out->stride[r + extra + i] = b.stride[r + i];
    }
    return true;
}

static const sn_node *result_node(const sn_step *s, int i) {
    const sn_region *epi = sn_attr_region(s->node, SN_A_epilogue);
    return epi ? epi->out[i] : s->node;
}

bool sn_product_sums(const sn_step *s, int i) {
    return sn_panel_sum(result_node(s, i)) != NULL;
}

int sn_product_shape(const sn_step *s, sn_dim *shape) {
    const sn_node *first = result_node(s, 0), *x = sn_panel_sum(first);
    if (!x) x = first;
    if (x->rank) memcpy(shape, x->shape, sizeof *shape * x->rank);
    return x->rank;
}

sn_view sn_product_broadcast(sn_module *m, const sn_step *s, int i) {
    const sn_view *v = &s->in[i];
    sn_dim shape[SN_MAX_RANK], whole = sn_dim_const(m, 2 * sn_attr_int(s->node, SN_A_pair, 0));
    int rank = sn_product_shape(s, shape);
    if (sn_attr_get(s->node, SN_A_pair) && v->rank && v->shape[v->rank - 1] == whole)
        shape[rank - 1] = whole;
    return sn_view_broadcast(v, rank, shape);
}

/* The indices of blocks as a matrix [rows, k]. */
static sn_dim *index_shape(sn_module *m, const sn_step *s) {
    const sn_view *v = &s->in[sn_kernel_prologue_operand(s->node) - 1];
    sn_dim *shape = sn_arena_alloc(m, 2 * sizeof *shape);
    shape[0] = sn_dim_product(m, v->rank - 1, v->shape);
    shape[1] = v->shape[v->rank - 1];
    return shape;
}

/* Uses the first `extra` row axes as batch axes; more batch axes than the kernels support become
 * one. Returns -1, or the index of an operand that does not fit. */
static int try_split(const product *p, const sn_step *s, int extra, sn_view *in, sn_view *out) {
    int n_lead = p->batch_a.n + extra, n_rows = p->rows.n - extra;
    int merged = n_lead > SN_PRODUCT_BATCH ? p->batch_a.n : 0;
    if (merged && 1 + extra > SN_PRODUCT_BATCH) return 0;
    axes lead_a = {.n = 0}, row_a = {.n = 0};
    append(&lead_a, &p->batch_a, 0, p->batch_a.n);
    append(&lead_a, &p->rows, 0, extra);
    append(&row_a, &p->rows, extra, p->rows.n);
    if (!three_parts(p->m, &s->in[0], merged, &lead_a, &row_a, &p->contract_a, &in[0])) return 0;
    if (sn_attr_get(s->node, SN_A_packed))
        in[1] = s->in[1];
    else if (!split_right(p, s, merged, extra, &in[0], &in[1]))
        return 1;
    /* results and epilogue operands: batch axes, rows, columns in this order */
    axes lead = {.n = n_lead}, rows = {.n = n_rows}, cols = {.n = p->cols.n};
    for (int i = 0; i < n_lead; i++) lead.axis[i] = i;
    for (int i = 0; i < n_rows; i++) rows.axis[i] = n_lead + i;
    for (int i = 0; i < p->cols.n; i++) cols.axis[i] = n_lead + n_rows + i;
    int first = sn_kernel_prologue_operand(s->node), last = sn_kernel_region_operand(s->node);
    bool blocks = sn_attr_get(s->node, SN_A_blocks);
    for (int i = 2; i < first - blocks; i++) in[i] = s->in[i]; /* factors of grouped integers */
    if (blocks &&
        !sn_view_reshape(p->m, &s->in[first - 1], 2, index_shape(p->m, s), &in[first - 1]))
        return first - 1;
    for (int i = first; i < last; i++) { /* of the prologue: broadcast over the left factor */
        sn_view wide = sn_view_broadcast(&s->in[i], s->in[0].rank, s->in[0].shape);
        if (!three_parts(p->m, &wide, merged, &lead_a, &row_a, &p->contract_a, &in[i])) return i;
    }
    for (int i = last; i < s->n_in; i++) {
        sn_view wide = sn_product_broadcast(p->m, s, i);
        bool whole = sn_attr_get(s->node, SN_A_backend); /* a primitive's bias */
        if (whole ? !three_parts(p->m, &wide, merged, &lead, &rows, &cols, &in[i])
                  : !lay_over(p->m, &wide, merged, &lead, &rows, &cols, &in[i]))
            return i;
    }
    for (int i = 0; i < s->n_out; i++) {
        sn_view y = s->out[i];
        if (blocks) { /* rows [.., k] and the columns of a block */
            rows.axis[rows.n] = rows.n;
            rows.n++;
            cols.axis[0] = rows.n;
        } else
            y.rank = n_lead + n_rows + p->cols.n; /* of the panels' sums without their last axis */
        if (!three_parts(p->m, &y, merged, &lead, &rows, &cols, &out[i])) return s->n_in + i;
    }
    return -1;
}

static product describe(sn_module *m, const sn_step *s) {
    const sn_node *n = s->node;
    product p = {.m = m};
    p.batch_a = listed(n, SN_A_batch_a);
    p.batch_b = listed(n, SN_A_batch_b);
    p.contract_a = listed(n, SN_A_contract_a);
    p.contract_b = listed(n, SN_A_contract_b);
    p.rows = others(n->in[0]->rank, &p.batch_a, &p.contract_a);
    const sn_attr *packed = sn_attr_get(n, SN_A_packed);
    p.cols = others(packed ? packed->n : n->in[1]->rank, &p.batch_b, &p.contract_b);
    return p;
}

void sn_product_order(sn_module *m, const sn_step *s, int operand, int64_t *order) {
    if (s->node->op == SN_OP_pack_b) {
        axes none = {.n = 0}, k = listed(s->node, SN_A_contract_b);
        axes n = others(s->in[0].rank, &k, &none);
        append(&k, &n, 0, n.n);
        memcpy(order, k.axis, sizeof k.axis);
        return;
    }
    product p = describe(m, s);
    const axes *parts[2][3] = {{&p.batch_a, &p.rows, &p.contract_a},
                               {&p.batch_b, &p.contract_b, &p.cols}};
    axes all = {.n = 0};
    for (int i = 0; i < 3; i++) append(&all, parts[operand][i], 0, parts[operand][i]->n);
    memcpy(order, all.axis, sizeof all.axis);
}

int sn_product_views(sn_module *m, sn_step *s) {
    product p = describe(m, s);
    sn_view *in = sn_arena_alloc(m, sizeof *in * (size_t)s->n_in);
    sn_view *out = sn_arena_alloc(m, sizeof *out * (size_t)s->n_out);
    int bad = 0, first_bad = -1;
    int max_extra = sn_attr_get(s->node, SN_A_blocks) ? 0 : p.rows.n;
    for (int extra = 0; extra <= max_extra; extra++) {
        bad = try_split(&p, s, extra, in, out);
        if (bad < 0) {
            memcpy(s->in, in, sizeof *in * (size_t)s->n_in);
            memcpy(s->out, out, sizeof *out * (size_t)s->n_out);
            return -1;
        }
        if (first_bad < 0) first_bad = bad;
    }
    return first_bad;
}

sn_dim sn_product_columns(sn_module *m, const sn_step *s) {
    const sn_attr *packed = sn_attr_get(s->node, SN_A_packed);
    const sn_view *b = &s->in[1];
    sn_dim n = packed ? 1 : b->shape[b->rank - 1];
    axes none = {.n = 0}, k = listed(s->node, SN_A_contract_b);
    axes cols = others(packed ? packed->n : 0, &k, &none);
    for (int i = 0; i < cols.n; i++) n = sn_dim_mul(m, n, packed->v[cols.axis[i]]);
    return n;
}

/* Whether in[1] is in[0] transposed. */
static bool factors_agree(const sn_step *s) {
    const sn_view *a = &s->in[0], *b = &s->in[1];
    int row = a->rank - 2, col = a->rank - 1;
    if (a->buffer != b->buffer || a->offset != b->offset || a->dtype != b->dtype ||
        a->rank != b->rank)
        return false;
    for (int i = 0; i < row; i++)
        if (a->stride[i] != b->stride[i]) return false;
    return a->shape[row] == b->shape[col] && a->stride[row] == b->stride[col] &&
           a->stride[col] == b->stride[row];
}

bool sn_product_symmetric(sn_module *m, const sn_step *s) {
    static const sn_attr_key special[] = {SN_A_packed,   SN_A_blocks, SN_A_pair,
                                          SN_A_prologue, SN_A_group,  SN_A_backend};
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        if (sn_attr_get(s->node, special[i])) return false;
    int64_t rows, rank = s->in[0].rank;
    bool few = sn_dim_is_const(m, s->in[0].shape[rank - 2], &rows) && rows < MIN_SYMMETRIC;
    if (few || !factors_agree(s)) return false;
    for (int i = 0; i < s->n_out; i++)
        if (sn_product_sums(s, i)) return false;
    for (int i = 2; i < s->n_in; i++)
        if (s->in[i].rank != rank) return false;
    const sn_region *epi = sn_attr_region(s->node, SN_A_epilogue);
    sn_order order = epi ? sn_region_topo(m, epi) : (sn_order){.n = 0};
    for (int i = 0; i < order.n; i++) {
        const sn_node *n = order.node[i];
        bool moves = n->op == SN_OP_gather || n->op == SN_OP_slice || n->op == SN_OP_reshape ||
                     n->op == SN_OP_iota || sn_reduces(n);
        if (moves) return false;
    }
    return true;
}

sn_dim sn_product_work(sn_module *m, const sn_step *s) {
    const sn_view *a = &s->in[0], *y = &s->out[0];
    if (!sn_attr_get(s->node, SN_A_blocks)) {
        sn_dim of_a = sn_dim_product(m, a->rank, a->shape), n = sn_product_columns(m, s), half;
        bool halves = sn_product_symmetric(m, s) &&
                      sn_dim_div(m, sn_dim_mul(m, of_a, sn_dim_add(m, n, 1)), 2, &half);
        return halves ? half : sn_dim_mul(m, of_a, n);
    }
    sn_dim each = sn_dim_mul(m, a->shape[a->rank - 1], sn_attr_get(s->node, SN_A_pair) ? 2 : 1);
    return sn_dim_mul(m, sn_dim_product(m, y->rank, y->shape), each);
}

static bool unit_axis(const sn_view *v, int axis) {
    return v->stride[axis] == 1 || v->shape[axis] == 1;
}

static bool repeats(const sn_view *v, int axis) {
    return v->stride[axis] == 0 && v->shape[axis] != 1;
}

int sn_product_unfit(const sn_step *s) {
    for (int i = 0; i < 2; i++) { /* factors: one contiguous axis without repetition */
        const sn_view *v = &s->in[i];
        int row = v->rank - 2, col = v->rank - 1;
        if (!(unit_axis(v, row) || unit_axis(v, col)) || repeats(v, row) || repeats(v, col))
            return i;
    }
    for (int i = 0; i < s->in[0].rank - 2; i++) /* a batch axis along which both factors repeat */
        if (repeats(&s->in[0], i) && repeats(&s->in[1], i)) return 0;
    return s->n_in > 2 && !unit_axis(&s->in[2], s->in[2].rank - 1) ? 2 : -1; /* the bias */
}

bool sn_pack_view(sn_module *m, sn_step *s) {
    axes none = {.n = 0}, k = listed(s->node, SN_A_contract_b);
    axes n = others(s->in[0].rank, &k, &none);
    sn_view v;
    for (int i = 0; i < s->n_in; i++) {
        if (!three_parts(m, &s->in[i], 0, &none, &k, &n, &v)) return false;
        s->in[i] = v;
    }
    return true;
}
