/* infer.c: type and shape rules, one function per rule of ops.def. Each computes the result type or
 * explains the error, to which the op, the operands with their shapes and the user's line are
 * added. */
#include "ir/module_impl.h"

#include <stdarg.h>
#include <string.h>

typedef struct infer_ctx {
    sn_module *m;
    sn_op op;
    int n_in;
    sn_node *const *in;
    int n_attr;
    const sn_attr *attr;
    sn_type out;
    sn_type *all; /* [SN_MAX_RESULTS] of an op with several results, `out` is not used */
    int n_all;
    char why[400];
} ctx;

static bool bad(ctx *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool bad(ctx *c, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(c->why, sizeof c->why, fmt, ap);
    va_end(ap);
    return false;
}

static const sn_attr *attr_of(const ctx *c, sn_attr_key key) {
    return sn_attr_find(c->n_attr, c->attr, key);
}

/* A required attribute; NULL: an error was recorded. */
static const sn_attr *need(ctx *c, sn_attr_key key) {
    const sn_attr *a = attr_of(c, key);
    if (!a) bad(c, "attribute '%s' is missing", sn_attr_table[key].name);
    return a;
}

static const char *dim_text(const ctx *c, sn_dim d, char buf[64]) {
    sn_dim_print(c->m, d, buf, 64);
    return buf;
}

static bool shape_equal(const sn_node *a, const sn_node *b) {
    return a->rank == b->rank &&
           (!a->rank || !memcmp(a->shape, b->shape, sizeof(sn_dim) * a->rank));
}

static bool set_like(ctx *c, const sn_node *n, sn_dtype t) {
    c->out = (sn_type){.dtype = t, .rank = n->rank};
    if (n->rank) memcpy(c->out.shape, n->shape, sizeof(sn_dim) * n->rank);
    return true;
}

static bool set_shape(ctx *c, int n, const sn_dim *shape) {
    if (n > SN_MAX_RANK) return bad(c, "rank %d exceeds the limit of %d", n, SN_MAX_RANK);
    c->out.rank = n;
    for (int i = 0; i < n; i++) {
        char b[64];
        if (sn_dim_hi(c->m, shape[i]) < 0)
            return bad(c, "axis %d of the shape is negative: %s", i, dim_text(c, shape[i], b));
        c->out.shape[i] = shape[i];
    }
    return true;
}

static bool is_int(sn_dtype t) {
    return !sn_dtype_is_float(t) && t != SN_BOOL;
}

static bool axis_ok(ctx *c, int64_t axis, int rank) {
    return (axis >= 0 && axis < rank) ||
           bad(c, "axis %lld is outside 0..%d", (long long)axis, rank - 1);
}

/* ---- elementwise ---- */

static bool equal_operands(ctx *c, int from) {
    for (int i = from + 1; i < c->n_in; i++) {
        if (!shape_equal(c->in[from], c->in[i])) return bad(c, "shapes differ");
        if (c->in[from]->dtype != c->in[i]->dtype)
            return bad(c, "element types differ; cast one of them");
    }
    return true;
}

static bool infer_any(ctx *c) {
    return equal_operands(c, 0) && set_like(c, c->in[0], (sn_dtype)c->in[0]->dtype);
}

static bool infer_num(ctx *c) {
    if (c->in[0]->dtype == SN_BOOL) return bad(c, "needs numbers, not bool; cast first");
    return infer_any(c);
}

static bool infer_flt(ctx *c) {
    if (!sn_dtype_is_float((sn_dtype)c->in[0]->dtype))
        return bad(c, "needs a float type; cast first");
    return infer_any(c);
}

static bool infer_boole(ctx *c) {
    if (c->in[0]->dtype != SN_BOOL) return bad(c, "needs bool; compare first");
    return infer_any(c);
}

static bool infer_bits(ctx *c) {
    if (sn_dtype_is_float((sn_dtype)c->in[0]->dtype))
        return bad(c, "needs bool or an integer type");
    return infer_any(c);
}

static bool infer_cmp(ctx *c) {
    return equal_operands(c, 0) && set_like(c, c->in[0], SN_BOOL);
}

static bool infer_select(ctx *c) {
    if (c->in[0]->dtype != SN_BOOL) return bad(c, "the condition must be bool");
    if (!shape_equal(c->in[0], c->in[1])) return bad(c, "shapes differ");
    return equal_operands(c, 1) && set_like(c, c->in[1], (sn_dtype)c->in[1]->dtype);
}

static bool dtype_attr(ctx *c, sn_dtype *t) {
    const sn_attr *a = need(c, SN_A_dtype);
    if (!a) return false;
    if (a->i < 0 || a->i >= SN_DTYPE_COUNT)
        return bad(c, "unknown element type %lld", (long long)a->i);
    *t = (sn_dtype)a->i;
    return true;
}

static bool infer_cast(ctx *c) {
    sn_dtype t = SN_F32;
    return dtype_attr(c, &t) && set_like(c, c->in[0], t);
}

/* ---- leaves ---- */

static bool infer_leaf(ctx *c) {
    if (!dtype_attr(c, &c->out.dtype)) return false;
    if (c->op == SN_OP_const) return need(c, SN_A_value) != NULL;
    if (c->op == SN_OP_dim_value) {
        if (c->out.dtype == SN_BOOL) return bad(c, "a dimension's value is a number");
        return need(c, SN_A_dim) != NULL;
    }
    const sn_attr *s = need(c, SN_A_shape);
    if (!s || !need(c, c->op == SN_OP_arg ? SN_A_index : SN_A_name)) return false;
    return set_shape(c, s->n, s->v);
}

static bool infer_iota(ctx *c) {
    const sn_attr *s = need(c, SN_A_shape), *axis = need(c, SN_A_axis);
    if (!s || !axis || !dtype_attr(c, &c->out.dtype) || !set_shape(c, s->n, s->v)) return false;
    if (c->out.dtype == SN_BOOL) return bad(c, "needs a number type");
    return axis_ok(c, axis->i, s->n);
}

static bool infer_random(ctx *c) {
    const sn_attr *s = need(c, SN_A_shape);
    if (!s || !need(c, SN_A_stream)) return false;
    if (c->in[0]->dtype != SN_I64 || c->in[0]->rank != 1 || c->in[0]->shape[0] != 2)
        return bad(c, "the operand must be i64[2]: seed, step");
    c->out.dtype = SN_F32;
    return set_shape(c, s->n, s->v);
}

/* ---- views ---- */

static bool infer_broadcast(ctx *c) {
    const sn_attr *s = need(c, SN_A_shape);
    const sn_node *x = c->in[0];
    if (!s || !set_shape(c, s->n, s->v)) return false;
    c->out.dtype = (sn_dtype)x->dtype;
    if (x->rank > s->n) return bad(c, "cannot drop axes");
    for (int i = 0; i < x->rank; i++) {
        char a[64], b[64];
        sn_dim from = x->shape[i], to = s->v[s->n - x->rank + i];
        if (from != to && from != 1)
            return bad(c, "axis %d of size %s cannot become %s", i, dim_text(c, from, a),
                       dim_text(c, to, b));
    }
    return true;
}

static bool infer_reshape(ctx *c) {
    const sn_attr *s = need(c, SN_A_shape);
    const sn_node *x = c->in[0];
    if (!s || !set_shape(c, s->n, s->v)) return false;
    c->out.dtype = (sn_dtype)x->dtype;
    sn_dim from = sn_dim_product(c->m, x->rank, x->shape), to = sn_dim_product(c->m, s->n, s->v);
    char a[64], b[64];
    return from == to ||
           bad(c, "%s elements cannot become %s", dim_text(c, from, a), dim_text(c, to, b));
}

static bool infer_transpose(ctx *c) {
    const sn_attr *p = need(c, SN_A_perm);
    const sn_node *x = c->in[0];
    if (!p) return false;
    if (p->n != x->rank) return bad(c, "perm has %d axes, but the operand %d", p->n, x->rank);
    c->out = (sn_type){.dtype = (sn_dtype)x->dtype, .rank = x->rank};
    unsigned seen = 0;
    for (int i = 0; i < p->n; i++) {
        if (!axis_ok(c, p->v[i], x->rank)) return false;
        if (seen & 1u << p->v[i])
            return bad(c, "axis %lld is listed twice in perm", (long long)p->v[i]);
        seen |= 1u << p->v[i];
        c->out.shape[i] = x->shape[p->v[i]];
    }
    return true;
}

static bool infer_slice(ctx *c) {
    const sn_attr *start = need(c, SN_A_start), *size = need(c, SN_A_size);
    const sn_attr *step = attr_of(c, SN_A_step);
    const sn_node *x = c->in[0];
    if (!start || !size) return false;
    if (start->n != x->rank || size->n != x->rank || (step && step->n != x->rank))
        return bad(c, "start, size and step need one number per axis");
    c->out.dtype = (sn_dtype)x->dtype;
    for (int i = 0; i < x->rank; i++) {
        int64_t st = step ? step->v[i] : 1;
        if (st < 1) return bad(c, "step on axis %d must be at least 1", i);
        /* the last index read, if it can be decided: start + (size - 1) step < extent */
        sn_dim last =
            sn_dim_add(c->m, start->v[i], sn_dim_mul(c->m, sn_dim_sub(c->m, size->v[i], 1), st));
        sn_dim room = sn_dim_sub(c->m, sn_dim_sub(c->m, x->shape[i], 1), last);
        char a[64], b[64], d[64];
        if (sn_dim_hi(c->m, start->v[i]) < 0 ||
            (sn_dim_hi(c->m, room) < 0 && sn_dim_lo(c->m, size->v[i]) > 0))
            return bad(c, "axis %d: %s elements from %s exceed %s", i, dim_text(c, size->v[i], a),
                       dim_text(c, start->v[i], b), dim_text(c, x->shape[i], d));
    }
    return set_shape(c, size->n, size->v);
}

/* ---- other movement ---- */

static bool infer_concat(ctx *c) {
    const sn_attr *axis = need(c, SN_A_axis);
    const sn_node *x = c->in[0];
    if (!axis || !axis_ok(c, axis->i, x->rank)) return false;
    set_like(c, x, (sn_dtype)x->dtype);
    for (int i = 1; i < c->n_in; i++) {
        const sn_node *y = c->in[i];
        if (y->dtype != x->dtype || y->rank != x->rank)
            return bad(c, "operand %d has another element type or rank", i);
        for (int a = 0; a < x->rank; a++)
            if (a != axis->i && y->shape[a] != x->shape[a])
                return bad(c, "axis %d of operand %d differs", a, i);
        c->out.shape[axis->i] = sn_dim_add(c->m, c->out.shape[axis->i], y->shape[axis->i]);
    }
    return true;
}

static bool infer_pad(ctx *c) {
    const sn_attr *low = need(c, SN_A_low), *high = need(c, SN_A_high);
    const sn_node *x = c->in[0];
    if (!low || !high || !need(c, SN_A_value)) return false;
    if (low->n != x->rank || high->n != x->rank)
        return bad(c, "low and high need one number per axis");
    c->out.dtype = (sn_dtype)x->dtype;
    sn_dim s[SN_MAX_RANK];
    for (int i = 0; i < x->rank; i++) {
        if (sn_dim_hi(c->m, low->v[i]) < 0 || sn_dim_hi(c->m, high->v[i]) < 0)
            return bad(c, "padding of axis %d is negative; use slice", i);
        s[i] = sn_dim_add(c->m, sn_dim_add(c->m, x->shape[i], low->v[i]), high->v[i]);
    }
    return set_shape(c, x->rank, s);
}

static bool infer_update_slice(ctx *c) {
    const sn_attr *start = need(c, SN_A_start);
    const sn_node *x = c->in[0], *y = c->in[1];
    if (!start) return false;
    if (y->dtype != x->dtype || y->rank != x->rank || start->n != x->rank)
        return bad(c, "both operands need the same element type and rank, and start needs one "
                      "number per axis");
    for (int i = 0; i < x->rank; i++) {
        sn_dim room = sn_dim_sub(c->m, x->shape[i], sn_dim_add(c->m, start->v[i], y->shape[i]));
        char b[64];
        if (sn_dim_hi(c->m, start->v[i]) < 0)
            return bad(c, "the start %s on axis %d is negative", dim_text(c, start->v[i], b), i);
        if (sn_dim_hi(c->m, room) < 0)
            return bad(c, "the update extends past the end of axis %d", i);
    }
    return set_like(c, x, (sn_dtype)x->dtype);
}

static bool infer_update_rows(ctx *c) {
    const sn_attr *axis = need(c, SN_A_axis);
    const sn_node *x = c->in[0], *y = c->in[1], *ids = c->in[2];
    if (!axis || !axis_ok(c, axis->i, x->rank)) return false;
    if (axis->i < 1) return bad(c, "the rows themselves cannot be the axis");
    if (y->dtype != x->dtype || y->rank != x->rank)
        return bad(c, "both operands need the same element type and rank");
    if (!is_int((sn_dtype)ids->dtype) || ids->rank != 1 || ids->shape[0] != y->shape[0])
        return bad(c, "needs an integer for each row of the update");
    for (int i = 0; i < x->rank; i++) {
        bool whole = i && i != axis->i;
        if (whole ? y->shape[i] != x->shape[i]
                  : sn_dim_lo(c->m, sn_dim_sub(c->m, x->shape[i], y->shape[i])) < 0)
            return bad(c, "the update does not fit into axis %d", i);
    }
    return set_like(c, x, (sn_dtype)x->dtype);
}

static bool infer_like0(ctx *c) {
    const sn_attr *axis = need(c, SN_A_axis);
    return axis && axis_ok(c, axis->i, c->in[0]->rank) &&
           set_like(c, c->in[0], (sn_dtype)c->in[0]->dtype);
}

/* ---- collectives ---- */

/* The number of ranks; 0: wrong. */
static int64_t mesh_size(ctx *c) {
    const sn_attr *mesh = need(c, SN_A_mesh), *ranks = mesh ? need(c, SN_A_ranks) : NULL;
    if (!ranks) return 0;
    if (ranks->i < 1) bad(c, "%lld ranks: there must be at least one", (long long)ranks->i);
    if (!sn_dtype_is_float((sn_dtype)c->in[0]->dtype)) return bad(c, "needs floats");
    return ranks->i < 1 ? 0 : ranks->i;
}

static bool infer_all_reduce(ctx *c) {
    return mesh_size(c) && set_like(c, c->in[0], (sn_dtype)c->in[0]->dtype);
}

/* Elements of a rank's part. */
static int64_t part_of(int64_t size, int64_t ranks) {
    return (size + ranks - 1) / ranks;
}

static bool infer_collective_permute(ctx *c) {
    int64_t n = c->n_in ? mesh_size(c) : 0;
    const sn_attr *shift = n ? need(c, SN_A_shift) : NULL;
    if (!c->n_in) return bad(c, "needs an operand");
    if (!shift) return false;
    if (shift->i <= -n || shift->i >= n)
        return bad(c, "a shift by %lld among %lld ranks", (long long)shift->i, (long long)n);
    return set_like(c, c->in[0], (sn_dtype)c->in[0]->dtype);
}

static bool infer_collective_root(ctx *c) {
    int64_t n = mesh_size(c);
    const sn_attr *root = n ? need(c, SN_A_root) : NULL;
    if (root && (root->i < 0 || root->i >= n))
        return bad(c, "there is no rank %lld among %lld", (long long)root->i, (long long)n);
    return root && set_like(c, c->in[0], (sn_dtype)c->in[0]->dtype);
}

static bool infer_all_gather(ctx *c) {
    int64_t n = mesh_size(c), part;
    if (!n || !infer_like0(c)) return false;
    sn_dim *size = &c->out.shape[attr_of(c, SN_A_axis)->i];
    const sn_attr *extent = attr_of(c, SN_A_extent);
    if (!extent) {
        *size = sn_dim_mul(c->m, *size, sn_dim_const(c->m, n));
        return true;
    }
    if (extent->i < 1 || !sn_dim_is_const(c->m, *size, &part) || part != part_of(extent->i, n))
        return bad(c, "%lld elements are not those of %lld such parts", (long long)extent->i,
                   (long long)n);
    *size = sn_dim_const(c->m, extent->i);
    return true;
}

/* The axis is divided among the ranks. */
static bool divide_axis(ctx *c, int64_t *ranks, int64_t *size) {
    *ranks = mesh_size(c);
    if (!*ranks || !infer_like0(c)) return false;
    sn_dim d = c->out.shape[attr_of(c, SN_A_axis)->i];
    return sn_dim_is_const(c->m, d, size) || *ranks == 1 ||
           bad(c, "the size of the axis must be a constant");
}

static bool infer_all_to_all(ctx *c) {
    int64_t n, size;
    if (!divide_axis(c, &n, &size)) return false;
    return n == 1 || size % n == 0 ||
           bad(c, "%lld elements cannot be divided among %lld ranks", (long long)size,
               (long long)n);
}

static bool infer_reduce_scatter(ctx *c) {
    int64_t n, size;
    if (!divide_axis(c, &n, &size)) return false;
    if (n > 1) c->out.shape[attr_of(c, SN_A_axis)->i] = sn_dim_const(c->m, part_of(size, n));
    return true;
}

/* The sizes of the parts add up to the axis, and each can be divided; one part alone need not. */
static bool infer_shard(ctx *c) {
    const sn_attr *mesh = need(c, SN_A_mesh), *ranks = mesh ? need(c, SN_A_ranks) : NULL;
    const sn_attr *parts = ranks ? attr_of(c, SN_A_parts) : NULL;
    int64_t size, sum = 0;
    if (!ranks || !infer_like0(c)) return false;
    if (ranks->i < 1) return bad(c, "%lld ranks: there must be at least one", (long long)ranks->i);
    if (!sn_dim_is_const(c->m, c->out.shape[attr_of(c, SN_A_axis)->i], &size))
        return bad(c, "the size of a divided axis must be a constant");
    if (attr_of(c, SN_A_zigzag) ? parts || size % (2 * ranks->i) : !parts && size < ranks->i)
        return bad(c, "%lld elements cannot be divided among %lld ranks%s", (long long)size,
                   (long long)ranks->i, attr_of(c, SN_A_zigzag) ? ", two halves each" : "");
    for (int i = 0; parts && i < parts->n; sum += parts->v[i++])
        if (parts->v[i] < 1 || parts->v[i] % ranks->i)
            return bad(c, "a part of %lld elements cannot be divided among %lld ranks",
                       (long long)parts->v[i], (long long)ranks->i);
    return !parts || sum == size ||
           bad(c, "the parts have %lld elements, the axis %lld", (long long)sum, (long long)size);
}

static bool infer_argmax(ctx *c) {
    if (!infer_like0(c)) return false;
    c->out.dtype = SN_I32;
    c->out.shape[attr_of(c, SN_A_axis)->i] = 1;
    return true;
}

static bool infer_argsort(ctx *c) {
    const sn_attr *size = attr_of(c, SN_A_size);
    int64_t n, k;
    if (!infer_like0(c)) return false;
    c->out.dtype = SN_I32;
    sn_dim *axis = &c->out.shape[attr_of(c, SN_A_axis)->i];
    if (!size || size->n != 1) return !size || bad(c, "size is one number of indices");
    if (sn_dim_is_const(c->m, size->v[0], &k) && sn_dim_is_const(c->m, *axis, &n) &&
        (k < 0 || k > n))
        return bad(c, "%lld indices of %lld elements", (long long)k, (long long)n);
    *axis = size->v[0];
    return true;
}

static bool infer_reduce(ctx *c) {
    const sn_attr *axes = need(c, SN_A_axes);
    const sn_node *x = c->in[0];
    if (!axes) return false;
    if (x->dtype == SN_BOOL) return bad(c, "needs numbers, not bool; cast first");
    set_like(c, x, (sn_dtype)x->dtype);
    for (int i = 0; i < axes->n; i++) {
        if (!axis_ok(c, axes->v[i], x->rank)) return false;
        if (i && axes->v[i] <= axes->v[i - 1]) return bad(c, "axes must be in ascending order");
        c->out.shape[axes->v[i]] = 1;
    }
    return true;
}

/* ---- products and indices ---- */

static bool axis_list(ctx *c, const sn_attr *l, const sn_node *x, unsigned *seen) {
    for (int i = 0; l && i < l->n; i++) {
        if (!axis_ok(c, l->v[i], x->rank)) return false;
        if (*seen & 1u << l->v[i]) return bad(c, "axis %lld is listed twice", (long long)l->v[i]);
        *seen |= 1u << l->v[i];
    }
    return true;
}

static bool same_sizes(ctx *c, const sn_attr *la, const sn_attr *lb, const char *what) {
    if ((la ? la->n : 0) != (lb ? lb->n : 0)) return bad(c, "the numbers of %s axes differ", what);
    for (int i = 0; la && i < la->n; i++) {
        sn_dim p = c->in[0]->shape[la->v[i]], q = c->in[1]->shape[lb->v[i]];
        char s[64], t[64];
        if (p != q)
            return bad(c, "%s axes %lld and %lld have sizes %s and %s", what, (long long)la->v[i],
                       (long long)lb->v[i], dim_text(c, p, s), dim_text(c, q, t));
    }
    return true;
}

static bool infer_dot(ctx *c) {
    const sn_attr *ba = attr_of(c, SN_A_batch_a), *bb = attr_of(c, SN_A_batch_b);
    const sn_attr *ca = attr_of(c, SN_A_contract_a), *cb = attr_of(c, SN_A_contract_b);
    const sn_node *x = c->in[0], *y = c->in[1];
    unsigned seen_a = 0, seen_b = 0;
    if (x->dtype != y->dtype) return bad(c, "element types differ; cast one of them");
    if (x->dtype == SN_BOOL) return bad(c, "needs numbers, not bool; cast first");
    if (!axis_list(c, ba, x, &seen_a) || !axis_list(c, bb, y, &seen_b) ||
        !axis_list(c, ca, x, &seen_a) || !axis_list(c, cb, y, &seen_b) ||
        !same_sizes(c, ba, bb, "batch") || !same_sizes(c, ca, cb, "contracted"))
        return false;
    sn_dim s[3 * SN_MAX_RANK];
    int n = 0;
    for (int i = 0; ba && i < ba->n; i++) s[n++] = x->shape[ba->v[i]];
    for (int i = 0; i < x->rank; i++)
        if (!(seen_a & 1u << i)) s[n++] = x->shape[i];
    for (int i = 0; i < y->rank; i++)
        if (!(seen_b & 1u << i)) s[n++] = y->shape[i];
    c->out.dtype = (sn_dtype)x->dtype;
    return set_shape(c, n, s);
}

static bool infer_gather(ctx *c) {
    const sn_attr *axis = need(c, SN_A_axis);
    const sn_node *x = c->in[0], *y = c->in[1];
    if (!axis || !axis_ok(c, axis->i, x->rank)) return false;
    if (!is_int((sn_dtype)y->dtype)) return bad(c, "indices must be integers");
    sn_dim s[2 * SN_MAX_RANK];
    int n = 0;
    for (int i = 0; i < axis->i; i++) s[n++] = x->shape[i];
    for (int i = 0; i < y->rank; i++) s[n++] = y->shape[i];
    for (int i = (int)axis->i + 1; i < x->rank; i++) s[n++] = x->shape[i];
    c->out.dtype = (sn_dtype)x->dtype;
    return set_shape(c, n, s);
}

/* x has the shape that gather would return: {shape} with {axis} replaced by y's shape. */
static bool infer_scatter_add(ctx *c) {
    const sn_attr *axis = need(c, SN_A_axis), *shape = need(c, SN_A_shape);
    const sn_node *x = c->in[0], *y = c->in[1];
    if (!axis || !shape || !set_shape(c, shape->n, shape->v) || !axis_ok(c, axis->i, shape->n))
        return false;
    if (!is_int((sn_dtype)y->dtype)) return bad(c, "indices must be integers");
    if (x->rank != shape->n - 1 + y->rank) return bad(c, "the rank of the rows does not match");
    for (int i = 0; i < x->rank; i++) {
        sn_dim want = i < axis->i             ? shape->v[i]
                      : i < axis->i + y->rank ? y->shape[i - axis->i]
                                              : shape->v[i - y->rank + 1];
        if (x->shape[i] != want) return bad(c, "axis %d of the rows does not match", i);
    }
    c->out.dtype = (sn_dtype)x->dtype;
    return true;
}

static bool indices_ok(ctx *c, int first, int rank) {
    if (c->n_in - first != rank) return bad(c, "needs %d indices, one per axis", rank);
    for (int i = first; i < c->n_in; i++) {
        if (!is_int((sn_dtype)c->in[i]->dtype)) return bad(c, "indices must be integers");
        if (!shape_equal(c->in[i], c->in[first])) return bad(c, "the indices' shapes differ");
    }
    return true;
}

static bool infer_gather_nd(ctx *c) {
    const sn_node *x = c->in[0];
    if (x->rank < 1) return bad(c, "a scalar has no elements to index");
    return indices_ok(c, 1, x->rank) && set_like(c, c->in[1], (sn_dtype)x->dtype);
}

static bool infer_scatter_nd_add(ctx *c) {
    const sn_attr *shape = need(c, SN_A_shape);
    if (!shape || !set_shape(c, shape->n, shape->v)) return false;
    if (shape->n < 1) return bad(c, "a scalar has no elements to index");
    c->out.dtype = (sn_dtype)c->in[0]->dtype;
    if (!indices_ok(c, 1, shape->n)) return false;
    return shape_equal(c->in[0], c->in[1]) || bad(c, "needs one element per index");
}

static bool infer_take_blocks(ctx *c) {
    const sn_attr *blocks = need(c, SN_A_blocks);
    const sn_node *x = c->in[0], *y = c->in[1];
    int last = x->rank - 1;
    int64_t columns;
    if (!blocks) return false;
    if (last < 0 || y->rank != x->rank) return bad(c, "needs indices of the same rank");
    if (!is_int((sn_dtype)y->dtype)) return bad(c, "indices must be integers");
    for (int i = 0; i < last; i++)
        if (x->shape[i] != y->shape[i]) return bad(c, "axis %d of the indices does not match", i);
    if (blocks->i < 1 || !sn_dim_is_const(c->m, x->shape[last], &columns) || columns % blocks->i)
        return bad(c, "the last axis is no multiple of %lld blocks", (long long)blocks->i);
    sn_dim s[SN_MAX_RANK + 1];
    for (int i = 0; i <= last; i++) s[i] = y->shape[i];
    s[last + 1] = columns / blocks->i;
    c->out.dtype = (sn_dtype)x->dtype;
    return set_shape(c, last + 2, s);
}

/* Factors of one float type; z [M, J] integers, J a number, M the rows of operand `once`. */
static bool grouped_ok(ctx *c, int once) {
    const sn_node *x = c->in[0], *z = c->in[2];
    c->out.dtype = (sn_dtype)x->dtype;
    return x->rank == 2 && z->rank == 2 && is_int((sn_dtype)z->dtype) &&
           x->dtype == c->in[1]->dtype && sn_dim_is_const(c->m, z->shape[1], NULL) &&
           z->shape[0] == c->in[once]->shape[0] && sn_dtype_is_float((sn_dtype)x->dtype);
}

static bool infer_grouped_dot(ctx *c) {
    const sn_node *x = c->in[0], *w = c->in[1], *z = c->in[2];
    if (!grouped_ok(c, 0) || w->rank != 3 || x->shape[1] != w->shape[2] ||
        !sn_dim_is_const(c->m, w->shape[0], NULL))
        return bad(c, "needs floats [M, k], [E, n, k] and integers [M, J]");
    return set_shape(c, 2,
                     (const sn_dim[]){sn_dim_mul(c->m, z->shape[0], z->shape[1]), w->shape[1]});
}

static bool infer_ragged_dot(ctx *c) {
    const sn_attr *blocks = need(c, SN_A_blocks);
    const sn_node *x = c->in[0], *y = c->in[1], *z = c->in[2];
    if (!blocks || y->rank != 2 || !grouped_ok(c, 1) || blocks->i < 0 ||
        x->shape[0] != sn_dim_mul(c->m, z->shape[0], z->shape[1]))
        return bad(c, "needs floats [M J, n], [M, k] and integers [M, J]");
    return set_shape(c, 3, (const sn_dim[]){blocks->i, x->shape[1], y->shape[1]});
}

/* ---- scan ---- */

const char *sn_scan_read(int n_in, int n_attr, const sn_attr *attr, sn_scan *out) {
    const sn_attr *carries = sn_attr_find(n_attr, attr, SN_A_carries),
                  *sequences = sn_attr_find(n_attr, attr, SN_A_sequences),
                  *body = sn_attr_find(n_attr, attr, SN_A_body),
                  *reverse = sn_attr_find(n_attr, attr, SN_A_reverse),
                  *tiles = sn_attr_find(n_attr, attr, SN_A_tiles),
                  *again = sn_attr_find(n_attr, attr, SN_A_recomputed),
                  *sums = sn_attr_find(n_attr, attr, SN_A_sums),
                  *kept = sn_attr_find(n_attr, attr, SN_A_again);
    int64_t n = carries->i, s = sequences->i;
    *out = (sn_scan){.n_in = n_in, .body = body->r, .reverse = reverse && reverse->i};
    if (s < 1) return "it needs at least one sequence";
    if (n < 0 || n + s > n_in) return "operands are missing";
    if (out->body->n_arg != n_in) return "the body takes another number of tensors";
    if (out->body->n_out > SN_MAX_RESULTS || out->body->n_out < 1 || out->body->n_out < n)
        return "it must have a result for each carry, and at most 16 in all";
    out->n_carry = (int)n, out->n_sequence = (int)s, out->n_again = again ? (int)again->i : 0;
    out->sums = sums ? sums->v : NULL, out->again = kept ? kept->r : NULL;
    if (out->n_again < 0 || out->n_again > out->n_carry)
        return "it recomputes more than it carries";
    if (sums && sums->n != out->body->n_out - out->n_carry)
        return "attribute 'sums' has the wrong length";
    if (!sn_scan_again_fits(out)) return "attribute 'again' does not fit its sequences";
    if (!tiles) return NULL;
    out->n_tile = (int)tiles->v[0];
    out->tile = tiles->v + 1;
    if (tiles->v[0] < 1 || tiles->v[0] > SN_MAX_RANK ||
        tiles->n != 1 + out->n_tile * (n_in + out->body->n_out))
        return "attribute 'tiles' has the wrong length";
    return NULL;
}

sn_scan sn_scan_of(const sn_node *n) {
    sn_scan s;
    sn_scan_read(n->n_in, n->n_attr, n->attr, &s);
    return s;
}

/* Operand i without axis 0 if it is a sequence: must be what the body takes, but for axes of which
 * it has a part. */
static bool scan_operand(ctx *c, const sn_scan *s, int i) {
    const sn_node *x = c->in[i], *arg = s->body->arg[i];
    int skip = sn_scan_is_sequence(s, i);
    if (x->rank < skip) return bad(c, "sequence %d is a scalar; it needs an axis", i - s->n_carry);
    if (skip && x->shape[0] != c->in[s->n_carry]->shape[0])
        return bad(c, "sequence %d has another length than the first", i - s->n_carry);
    if (x->dtype != arg->dtype || x->rank - skip != arg->rank)
        return bad(c, "operand %d is not what the body takes", i);
    for (int a = 0; a < arg->rank; a++) {
        bool tiled = false;
        int64_t part, whole;
        for (int k = 0; k < s->n_tile; k++) tiled |= sn_scan_tile(s, i, k) == a;
        if (x->shape[a + skip] == arg->shape[a]) continue;
        bool divides =
            sn_dim_is_const(c->m, arg->shape[a], &part) && part > 0 &&
            (part == 1 || (sn_dim_is_const(c->m, x->shape[a + skip], &whole) && whole % part == 0));
        if (!tiled || !divides)
            return bad(c, "axis %d of operand %d is not what the body takes", a + skip, i);
    }
    return true;
}

/* The whole size of independent axis k; 0: no operand has it. */
static sn_dim scan_size(const ctx *c, const sn_scan *s, int k) {
    for (int i = 0; i < c->n_in; i++) {
        int a = sn_scan_tile(s, i, k);
        if (a >= 0) return c->in[i]->shape[a + sn_scan_is_sequence(s, i)];
    }
    return 0;
}

static bool infer_scan(ctx *c) {
    sn_scan s;
    if (!need(c, SN_A_carries) || !need(c, SN_A_sequences) || !need(c, SN_A_body)) return false;
    const char *fault = sn_scan_read(c->n_in, c->n_attr, c->attr, &s);
    if (fault) return bad(c, "%s", fault);
    for (int i = 0; i < c->n_in; i++)
        if (!scan_operand(c, &s, i)) return false;
    for (int i = 0; i < s.body->n_out; i++) {
        const sn_node *y = s.body->out[i];
        int more = i >= s.n_carry;
        sn_type *t = &c->all[i];
        *t = (sn_type){.dtype = (sn_dtype)y->dtype, .rank = y->rank + more};
        if (t->rank > SN_MAX_RANK) return bad(c, "output %d has too many axes", i - s.n_carry);
        if (more) t->shape[0] = c->in[s.n_carry]->shape[0];
        for (int a = 0; a < y->rank; a++) t->shape[a + more] = y->shape[a];
        for (int k = 0; k < s.n_tile; k++) {
            int a = sn_scan_tile(&s, c->n_in + i, k);
            if (a >= y->rank) return bad(c, "attribute 'tiles' is wrong");
            if (a >= 0) t->shape[a + more] = scan_size(c, &s, k);
        }
        if (i < s.n_carry &&
            (t->dtype != c->in[i]->dtype || t->rank != c->in[i]->rank ||
             memcmp(t->shape, c->in[i]->shape, sizeof *t->shape * (size_t)t->rank)))
            return bad(c, "the body must return carry %d with the type that it has at the start",
                       i);
    }
    c->n_all = s.body->n_out;
    return true;
}

/* ---- recurrence ---- */

/* Operand i is [T, .., size]; the decays also [T, .., 1]. */
static bool recurrent_operand(ctx *c, int i, sn_dim size) {
    const sn_node *x = c->in[i], *start = c->in[SN_REC_START];
    const int last = start->rank - 1;
    bool ok = x->rank == start->rank && x->shape[0] == c->in[0]->shape[0] &&
              (x->shape[last] == size || (i == SN_REC_G && x->shape[last] == 1)) &&
              !memcmp(x->shape + 1, start->shape, sizeof *x->shape * (size_t)(last - 1));
    return ok || bad(c, "operand %d does not fit the carry, operand %d", i, SN_REC_START);
}

static int64_t int_of(const ctx *c, sn_attr_key key) {
    return attr_of(c, key) ? attr_of(c, key)->i : 0;
}

static bool infer_recurrence(ctx *c) {
    const int64_t delta = int_of(c, SN_A_delta), silent = int_of(c, SN_A_silent),
                  turned = int_of(c, SN_A_transposed), n_in = c->n_in - turned;
    if (turned < silent || turned > SN_REC_TURNED)
        return bad(c, "{transposed} or {silent} is wrong");
    if (n_in != SN_REC_END && (n_in != SN_REC_B || delta))
        return bad(c, "besides those of {transposed} it needs 5 or 7 operands, with {delta} 7");
    const sn_node *start = c->in[SN_REC_START];
    const bool same = delta != SN_DELTA_OF_K || c->in[SN_REC_B] == c->in[SN_REC_K];
    if (start->rank < 2 || !same) return bad(c, same ? "no matrix is carried" : "b must be k");
    sn_dim K = start->shape[start->rank - 2], V = start->shape[start->rank - 1];
    const sn_dim size[SN_REC_END] = {K, K, V, K, 0, K, delta ? K : V}; /* Q, K, V, G, .., B, A */
    for (int i = 0; i < c->n_in; i++) {
        if (c->in[i]->dtype != start->dtype || !sn_dtype_is_float((sn_dtype)start->dtype))
            return bad(c, "all operands must have one float type");
        if (i != SN_REC_START && !recurrent_operand(c, i, i < n_in ? size[i] : V)) return false;
    }
    for (int64_t i = 0; i < 2 + !!delta + turned - silent; i++) {
        int of = i == 1 ? SN_REC_START : (i ? i > 1 + !!delta : silent) ? SN_REC_K : SN_REC_V;
        sn_type *y = &c->all[c->n_all++];
        *y = (sn_type){.dtype = (sn_dtype)start->dtype, .rank = start->rank};
        memcpy(y->shape, c->in[of]->shape, sizeof *y->shape * (size_t)start->rank);
    }
    return true;
}

static bool infer_result(ctx *c) {
    const sn_attr *index = need(c, SN_A_index);
    const sn_node *x = c->in[0];
    if (!index) return false;
    if (x->n_result < 2 || index->i < 0 || index->i >= x->n_result)
        return bad(c, "the operand has no result %lld", (long long)index->i);
    const sn_node *t = x->result_type[index->i];
    return set_like(c, t, (sn_dtype)t->dtype);
}

/* ---- dispatch ---- */

typedef bool (*rule_fn)(ctx *);
static const rule_fn rules[SN_OP_COUNT] = {
#define ELEM(name, n, rule, flags, doc, expr) [SN_OP_##name] = infer_##rule,
#define PRIM(name, n, rule, flags, doc) [SN_OP_##name] = infer_##rule,
#include "ir/ops.def"
};

int sn_operands_print(int n_in, sn_node *const *in, char *buf, size_t size) {
    size_t at = (size_t)snprintf(buf, size, "%s", n_in ? "" : "none");
    for (int i = 0; i < n_in && at + 100 < size; i++) {
        char shape[128];
        sn_shape_print(in[i]->m, in[i]->rank, in[i]->shape, shape, sizeof shape);
        const char *name = sn_attr_str(in[i], SN_A_name, NULL);
        at += (size_t)snprintf(buf + at, size - at, "%s%s%.100s%s%.60s%s", i ? ", " : "",
                               sn_dtype_name((sn_dtype)in[i]->dtype), shape, name ? " \"" : "",
                               name ? name : "", name ? "\"" : "");
        if (at >= size) at = size - 1;
    }
    return (int)at;
}

/* "linear (in dot): why; operands f32[2,3] "x", f32[4,5] "h.0.weight"" */
static void report(ctx *c) {
    const sn_node *outer = c->m->composite;
    int n_in = outer ? outer->n_in : c->n_in;
    char list[480];
    sn_operands_print(n_in, outer ? outer->in : c->in, list, sizeof list);
    if (outer)
        sn_module_fail(c->m, SN_ERR_SHAPE, "%s (in its %s): %s; operands: %s",
                       sn_ops[outer->op].name, sn_ops[c->op].name, c->why, list);
    else
        sn_module_fail(c->m, SN_ERR_SHAPE, "%s: %s; operands: %s", sn_ops[c->op].name, c->why,
                       list);
}

bool sn_infer(sn_module *m, sn_op op, int n_in, sn_node *const *in, int n_attr, const sn_attr *attr,
              int *n_result, sn_type result[SN_MAX_RESULTS]) {
    ctx c = {
        .m = m, .op = op, .n_in = n_in, .in = in, .n_attr = n_attr, .attr = attr, .all = result};
    if (!rules[op](&c)) {
        report(&c);
        return false;
    }
    *n_result = c.n_all ? c.n_all : 1;
    if (!c.n_all) result[0] = c.out;
    return !m->error.code;
}
