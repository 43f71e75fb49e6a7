/* infer.c: type and shape rules, one function per rule of ops.def: of elementwise operations, leaves, views,
 * movement and reductions. Each computes the result type or explains the error, to which the op, the operands
 * with their shapes and the user's line are added. */
#include "ir/infer_impl.h"

#include <stdarg.h>
#include <string.h>

bool sn_infer_fail(infer_ctx *c, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(c->why, sizeof c->why, fmt, ap);
    va_end(ap);
    return false;
}

const sn_attr *sn_infer_attr(const infer_ctx *c, sn_attr_key key) {
    return sn_attr_find(c->n_attr, c->attr, key);
}

/* A required attribute; NULL: an error was recorded. */
const sn_attr *sn_infer_need(infer_ctx *c, sn_attr_key key) {
    const sn_attr *a = sn_infer_attr(c, key);
    if (!a) sn_infer_fail(c, "attribute '%s' is missing", sn_attr_table[key].name);
    return a;
}

const char *sn_infer_dim(const infer_ctx *c, sn_dim d, char buf[64]) {
    sn_dim_print(c->m, d, buf, 64);
    return buf;
}

bool sn_shapes_equal(const sn_node *a, const sn_node *b) {
    return a->rank == b->rank &&
           (!a->rank || !memcmp(a->shape, b->shape, sizeof(sn_dim) * a->rank));
}

bool sn_infer_int(sn_dtype t) {
    return !sn_dtype_is_float(t) && t != SN_BOOL;
}

bool sn_infer_like(infer_ctx *c, const sn_node *n, sn_dtype t) {
    c->out = (sn_type){.dtype = t, .rank = n->rank};
    if (n->rank) memcpy(c->out.shape, n->shape, sizeof(sn_dim) * n->rank);
    return true;
}

bool sn_infer_shape(infer_ctx *c, int n, const sn_dim *shape) {
    if (n > SN_MAX_RANK) return sn_infer_fail(c, "rank %d exceeds the limit of %d", n, SN_MAX_RANK);
    c->out.rank = n;
    for (int i = 0; i < n; i++) {
        char b[64];
        if (sn_dim_hi(c->m, shape[i]) < 0)
            return sn_infer_fail(c, "axis %d of the shape is negative: %s", i,
                                 sn_infer_dim(c, shape[i], b));
        c->out.shape[i] = shape[i];
    }
    return true;
}

bool sn_infer_axis(infer_ctx *c, int64_t axis, int rank) {
    return (axis >= 0 && axis < rank) ||
           sn_infer_fail(c, "axis %lld is outside 0..%d", (long long)axis, rank - 1);
}

/* ---- elementwise ---- */

static bool equal_operands(infer_ctx *c, int from) {
    for (int i = from + 1; i < c->n_in; i++) {
        if (!sn_shapes_equal(c->in[from], c->in[i])) return sn_infer_fail(c, "shapes differ");
        if (c->in[from]->dtype != c->in[i]->dtype)
            return sn_infer_fail(c, "element types differ; cast one of them");
    }
    return true;
}

bool infer_any(infer_ctx *c) {
    return equal_operands(c, 0) && sn_infer_like(c, c->in[0], (sn_dtype)c->in[0]->dtype);
}

bool infer_num(infer_ctx *c) {
    if (c->in[0]->dtype == SN_BOOL) return sn_infer_fail(c, "needs numbers, not bool; cast first");
    return infer_any(c);
}

bool infer_flt(infer_ctx *c) {
    if (!sn_dtype_is_float((sn_dtype)c->in[0]->dtype))
        return sn_infer_fail(c, "needs a float type; cast first");
    return infer_any(c);
}

bool infer_boole(infer_ctx *c) {
    if (c->in[0]->dtype != SN_BOOL) return sn_infer_fail(c, "needs bool; compare first");
    return infer_any(c);
}

bool infer_bits(infer_ctx *c) {
    if (sn_dtype_is_float((sn_dtype)c->in[0]->dtype))
        return sn_infer_fail(c, "needs bool or an integer type");
    return infer_any(c);
}

bool infer_shift(infer_ctx *c) {
    if (c->in[0]->dtype == SN_BOOL || sn_dtype_is_float((sn_dtype)c->in[0]->dtype))
        return sn_infer_fail(c, "needs an integer type");
    return infer_any(c);
}

bool infer_cmp(infer_ctx *c) {
    return equal_operands(c, 0) && sn_infer_like(c, c->in[0], SN_BOOL);
}

bool infer_select(infer_ctx *c) {
    if (c->in[0]->dtype != SN_BOOL) return sn_infer_fail(c, "the condition must be bool");
    if (!sn_shapes_equal(c->in[0], c->in[1])) return sn_infer_fail(c, "shapes differ");
    return equal_operands(c, 1) && sn_infer_like(c, c->in[1], (sn_dtype)c->in[1]->dtype);
}

static bool dtype_attr(infer_ctx *c, sn_dtype *t) {
    const sn_attr *a = sn_infer_need(c, SN_A_dtype);
    if (!a) return false;
    if (a->i < 0 || a->i >= SN_DTYPE_COUNT)
        return sn_infer_fail(c, "unknown element type %lld", (long long)a->i);
    *t = (sn_dtype)a->i;
    return true;
}

bool infer_cast(infer_ctx *c) {
    sn_dtype t = SN_F32;
    return dtype_attr(c, &t) && sn_infer_like(c, c->in[0], t);
}

/* ---- leaves ---- */

bool infer_leaf(infer_ctx *c) {
    if (!dtype_attr(c, &c->out.dtype)) return false;
    if (c->op == SN_OP_const) return sn_infer_need(c, SN_A_value) != NULL;
    if (c->op == SN_OP_dim_value) {
        if (c->out.dtype == SN_BOOL) return sn_infer_fail(c, "a dimension's value is a number");
        return sn_infer_need(c, SN_A_dim) != NULL;
    }
    const sn_attr *s = sn_infer_need(c, SN_A_shape);
    if (!s || !sn_infer_need(c, c->op == SN_OP_arg ? SN_A_index : SN_A_name)) return false;
    return sn_infer_shape(c, s->n, s->v);
}

bool infer_iota(infer_ctx *c) {
    const sn_attr *s = sn_infer_need(c, SN_A_shape), *axis = sn_infer_need(c, SN_A_axis);
    if (!s || !axis || !dtype_attr(c, &c->out.dtype) || !sn_infer_shape(c, s->n, s->v))
        return false;
    if (c->out.dtype == SN_BOOL) return sn_infer_fail(c, "needs a number type");
    return sn_infer_axis(c, axis->i, s->n);
}

bool infer_random(infer_ctx *c) {
    const sn_attr *s = sn_infer_need(c, SN_A_shape);
    if (!s || !sn_infer_need(c, SN_A_stream)) return false;
    if (c->in[0]->dtype != SN_I64 || c->in[0]->rank != 1 || c->in[0]->shape[0] != 2)
        return sn_infer_fail(c, "the operand must be i64[2]: seed, step");
    c->out.dtype = SN_F32;
    return sn_infer_shape(c, s->n, s->v);
}

/* ---- views ---- */

bool infer_broadcast(infer_ctx *c) {
    const sn_attr *s = sn_infer_need(c, SN_A_shape);
    const sn_node *x = c->in[0];
    if (!s || !sn_infer_shape(c, s->n, s->v)) return false;
    c->out.dtype = (sn_dtype)x->dtype;
    if (x->rank > s->n) return sn_infer_fail(c, "cannot drop axes");
    for (int i = 0; i < x->rank; i++) {
        char a[64], b[64];
        sn_dim from = x->shape[i], to = s->v[s->n - x->rank + i];
        if (from != to && from != 1)
            return sn_infer_fail(c, "axis %d of size %s cannot become %s", i,
                                 sn_infer_dim(c, from, a), sn_infer_dim(c, to, b));
    }
    return true;
}

bool infer_reshape(infer_ctx *c) {
    const sn_attr *s = sn_infer_need(c, SN_A_shape);
    const sn_node *x = c->in[0];
    if (!s || !sn_infer_shape(c, s->n, s->v)) return false;
    c->out.dtype = (sn_dtype)x->dtype;
    sn_dim from = sn_dim_product(c->m, x->rank, x->shape), to = sn_dim_product(c->m, s->n, s->v);
    char a[64], b[64];
    return from == to || sn_infer_fail(c, "%s elements cannot become %s", sn_infer_dim(c, from, a),
                                       sn_infer_dim(c, to, b));
}

bool infer_transpose(infer_ctx *c) {
    const sn_attr *p = sn_infer_need(c, SN_A_perm);
    const sn_node *x = c->in[0];
    if (!p) return false;
    if (p->n != x->rank)
        return sn_infer_fail(c, "perm has %d axes, but the operand %d", p->n, x->rank);
    c->out = (sn_type){.dtype = (sn_dtype)x->dtype, .rank = x->rank};
    unsigned seen = 0;
    for (int i = 0; i < p->n; i++) {
        if (!sn_infer_axis(c, p->v[i], x->rank)) return false;
        if (seen & 1u << p->v[i])
            return sn_infer_fail(c, "axis %lld is listed twice in perm", (long long)p->v[i]);
        seen |= 1u << p->v[i];
        c->out.shape[i] = x->shape[p->v[i]];
    }
    return true;
}

bool infer_slice(infer_ctx *c) {
    const sn_attr *start = sn_infer_need(c, SN_A_start), *size = sn_infer_need(c, SN_A_size);
    const sn_attr *step = sn_infer_attr(c, SN_A_step);
    const sn_node *x = c->in[0];
    if (!start || !size) return false;
    if (start->n != x->rank || size->n != x->rank || (step && step->n != x->rank))
        return sn_infer_fail(c, "start, size and step need one number per axis");
    c->out.dtype = (sn_dtype)x->dtype;
    for (int i = 0; i < x->rank; i++) {
        int64_t st = step ? step->v[i] : 1;
        if (st < 1) return sn_infer_fail(c, "step on axis %d must be at least 1", i);
        /* the last index read, if it can be decided: start + (size - 1) step < extent */
        sn_dim last =
            sn_dim_add(c->m, start->v[i], sn_dim_mul(c->m, sn_dim_sub(c->m, size->v[i], 1), st));
        sn_dim room = sn_dim_sub(c->m, sn_dim_sub(c->m, x->shape[i], 1), last);
        char a[64], b[64], d[64];
        if (sn_dim_hi(c->m, start->v[i]) < 0 ||
            (sn_dim_hi(c->m, room) < 0 && sn_dim_lo(c->m, size->v[i]) > 0))
            return sn_infer_fail(c, "axis %d: %s elements from %s exceed %s", i,
                                 sn_infer_dim(c, size->v[i], a), sn_infer_dim(c, start->v[i], b),
                                 sn_infer_dim(c, x->shape[i], d));
    }
    return sn_infer_shape(c, size->n, size->v);
}

/* ---- other movement ---- */

bool infer_concat(infer_ctx *c) {
    const sn_attr *axis = sn_infer_need(c, SN_A_axis);
    const sn_node *x = c->in[0];
    if (!axis || !sn_infer_axis(c, axis->i, x->rank)) return false;
    sn_infer_like(c, x, (sn_dtype)x->dtype);
    for (int i = 1; i < c->n_in; i++) {
        const sn_node *y = c->in[i];
        if (y->dtype != x->dtype || y->rank != x->rank)
            return sn_infer_fail(c, "operand %d has another element type or rank", i);
        for (int a = 0; a < x->rank; a++)
            if (a != axis->i && y->shape[a] != x->shape[a])
                return sn_infer_fail(c, "axis %d of operand %d differs", a, i);
        c->out.shape[axis->i] = sn_dim_add(c->m, c->out.shape[axis->i], y->shape[axis->i]);
    }
    return true;
}

bool infer_pad(infer_ctx *c) {
    const sn_attr *low = sn_infer_need(c, SN_A_low), *high = sn_infer_need(c, SN_A_high);
    const sn_node *x = c->in[0];
    if (!low || !high || !sn_infer_need(c, SN_A_value)) return false;
    if (low->n != x->rank || high->n != x->rank)
        return sn_infer_fail(c, "low and high need one number per axis");
    c->out.dtype = (sn_dtype)x->dtype;
    sn_dim s[SN_MAX_RANK];
    for (int i = 0; i < x->rank; i++) {
        if (sn_dim_hi(c->m, low->v[i]) < 0 || sn_dim_hi(c->m, high->v[i]) < 0)
            return sn_infer_fail(c, "padding of axis %d is negative; use slice", i);
        s[i] = sn_dim_add(c->m, sn_dim_add(c->m, x->shape[i], low->v[i]), high->v[i]);
    }
    return sn_infer_shape(c, x->rank, s);
}

bool infer_update_slice(infer_ctx *c) {
    const sn_attr *start = sn_infer_need(c, SN_A_start);
    const sn_node *x = c->in[0], *y = c->in[1];
    if (!start) return false;
    if (y->dtype != x->dtype || y->rank != x->rank || start->n != x->rank)
        return sn_infer_fail(
            c, "both operands need the same element type and rank, and start needs one "
               "number per axis");
    for (int i = 0; i < x->rank; i++) {
        sn_dim room = sn_dim_sub(c->m, x->shape[i], sn_dim_add(c->m, start->v[i], y->shape[i]));
        char b[64];
        if (sn_dim_hi(c->m, start->v[i]) < 0)
            return sn_infer_fail(c, "the start %s on axis %d is negative",
                                 sn_infer_dim(c, start->v[i], b), i);
        if (sn_dim_hi(c->m, room) < 0)
            return sn_infer_fail(c, "the update extends past the end of axis %d", i);
    }
    return sn_infer_like(c, x, (sn_dtype)x->dtype);
}

bool infer_update_rows(infer_ctx *c) {
    const sn_attr *axis = sn_infer_need(c, SN_A_axis);
    const sn_node *x = c->in[0], *y = c->in[1], *ids = c->in[2];
    if (!axis || !sn_infer_axis(c, axis->i, x->rank)) return false;
    if (axis->i < 1) return sn_infer_fail(c, "the rows themselves cannot be the axis");
    if (y->dtype != x->dtype || y->rank != x->rank)
        return sn_infer_fail(c, "both operands need the same element type and rank");
    if (!sn_infer_int((sn_dtype)ids->dtype) || ids->rank != 1 || ids->shape[0] != y->shape[0])
        return sn_infer_fail(c, "needs an integer for each row of the update");
    for (int i = 0; i < x->rank; i++) {
        bool whole = i && i != axis->i;
        if (whole ? y->shape[i] != x->shape[i]
                  : sn_dim_lo(c->m, sn_dim_sub(c->m, x->shape[i], y->shape[i])) < 0)
            return sn_infer_fail(c, "the update does not fit into axis %d", i);
    }
    return sn_infer_like(c, x, (sn_dtype)x->dtype);
}

bool infer_like0(infer_ctx *c) {
    const sn_attr *axis = sn_infer_need(c, SN_A_axis);
    return axis && sn_infer_axis(c, axis->i, c->in[0]->rank) &&
           sn_infer_like(c, c->in[0], (sn_dtype)c->in[0]->dtype);
}

/* ---- reductions ---- */

bool infer_argmax(infer_ctx *c) {
    if (!infer_like0(c)) return false;
    c->out.dtype = SN_I32;
    c->out.shape[sn_infer_attr(c, SN_A_axis)->i] = 1;
    return true;
}

bool infer_argsort(infer_ctx *c) {
    const sn_attr *size = sn_infer_attr(c, SN_A_size);
    int64_t n, k;
    if (!infer_like0(c)) return false;
    c->out.dtype = SN_I32;
    sn_dim *axis = &c->out.shape[sn_infer_attr(c, SN_A_axis)->i];
    if (!size || size->n != 1) return !size || sn_infer_fail(c, "size is one number of indices");
    if (sn_dim_is_const(c->m, size->v[0], &k) && sn_dim_is_const(c->m, *axis, &n) &&
        (k < 0 || k > n))
        return sn_infer_fail(c, "%lld indices of %lld elements", (long long)k, (long long)n);
    *axis = size->v[0];
    return true;
}

bool infer_reduce(infer_ctx *c) {
    const sn_attr *axes = sn_infer_need(c, SN_A_axes);
    const sn_node *x = c->in[0];
    if (!axes) return false;
    if (x->dtype == SN_BOOL) return sn_infer_fail(c, "needs numbers, not bool; cast first");
    sn_infer_like(c, x, (sn_dtype)x->dtype);
    for (int i = 0; i < axes->n; i++) {
        if (!sn_infer_axis(c, axes->v[i], x->rank)) return false;
        if (i && axes->v[i] <= axes->v[i - 1])
            return sn_infer_fail(c, "axes must be in ascending order");
        c->out.shape[axes->v[i]] = 1;
    }
    return true;
}

/* ---- dispatch ---- */

bool infer_result(infer_ctx *c) {
    const sn_attr *index = sn_infer_need(c, SN_A_index);
    const sn_node *x = c->in[0];
    if (!index) return false;
    if (x->n_result < 2 || index->i < 0 || index->i >= x->n_result)
        return sn_infer_fail(c, "the operand has no result %lld", (long long)index->i);
    const sn_node *t = x->result_type[index->i];
    return sn_infer_like(c, t, (sn_dtype)t->dtype);
}

typedef bool (*rule_fn)(infer_ctx *);
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
static void report(infer_ctx *c) {
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
    infer_ctx c = {
        .m = m, .op = op, .n_in = n_in, .in = in, .n_attr = n_attr, .attr = attr, .all = result};
    if (!rules[op](&c)) {
        report(&c);
        return false;
    }
    *n_result = c.n_all ? c.n_all : 1;
    if (!c.n_all) result[0] = c.out;
    return !m->error.code;
}
