/* known.c: arithmetic of elements that are known while a graph is imported. A function returns false if the
 * result is not a polynomial or number for all sizes; the elements then become tensors. */
#include "frontend/onnx/known.h"

#include <math.h>
#include <string.h>

static sn_dtype type_of(const onnx_call *c) {
    return c->in[c->n_in - 1] ? c->in[c->n_in - 1]->type : SN_I64;
}

/* Both as numbers, with a result of the operands' type. */
static bool as_numbers(const onnx_elem *x, double *a, double *b) {
    return onnx_elem_value(&x[0], a) && onnx_elem_value(&x[1], b);
}

static bool number(const onnx_call *c, onnx_elem *out, double x) {
    *out = onnx_elem_number(type_of(c), x);
    return true;
}

static bool both_poly(const onnx_elem *x) {
    return x[0].poly && x[1].poly;
}

static bool dim(onnx_elem *out, sn_dim d) {
    *out = onnx_elem_dim(d);
    return true;
}

/* Products and sums of numbers that saturated, as the largest integers do, stay numbers. */
static bool is_small(const onnx_elem *x, int n) {
    for (int i = 0; i < n; i++)
        if (x[i].d > (sn_dim)1 << 40) return false;
    return true;
}

#define SUM(name, call, operator)                                                                  \
    bool onnx_k_##name(onnx_call *c, const onnx_elem *x, onnx_elem *out) {                         \
        double a, b;                                                                               \
        if (both_poly(x) && is_small(x, 2)) return dim(out, call(c->m, x[0].d, x[1].d));           \
        return as_numbers(x, &a, &b) && number(c, out, a operator b);                              \
    }
SUM(add, sn_dim_add, +)
SUM(sub, sn_dim_sub, -)
SUM(mul, sn_dim_mul, *)

bool onnx_k_div(onnx_call *c, const onnx_elem *x, onnx_elem *out) {
    double a, b;
    sn_dim q;
    if (as_numbers(x, &a, &b)) {
        const bool integer = !sn_dtype_is_float(type_of(c));
        return (b != 0 || !integer) && number(c, out, integer ? trunc(a / b) : a / b);
    }
    return both_poly(x) && x[1].d != 0 && sn_dim_div(c->m, x[0].d, x[1].d, &q) && dim(out, q);
}

bool onnx_k_mod(onnx_call *c, const onnx_elem *x, onnx_elem *out) {
    double a, b;
    sn_dim q;
    if (!as_numbers(x, &a, &b)) /* an exact division leaves nothing */
        return both_poly(x) && x[1].d != 0 && sn_dim_div(c->m, x[0].d, x[1].d, &q) && dim(out, 0);
    return b != 0 && number(c, out, onnx_int(c, "fmod", 0) ? fmod(a, b) : a - b * floor(a / b));
}

/* a <= b: 1, a > b for all sizes: 0; -1: it depends. */
static int at_most(onnx_call *c, const onnx_elem *x, const onnx_elem *y) {
    double a, b;
    if (onnx_elem_value(x, &a) && onnx_elem_value(y, &b)) return a <= b;
    sn_dim p = x->d, q = y->d;
    if (!x->poly || !y->poly) { /* a polynomial and a number, as integers */
        const onnx_elem *n = x->poly ? y : x;
        if (n->x != floor(n->x) || fabs(n->x) > 0x1p39) return -1;
        if (n == x)
            p = (sn_dim)n->x;
        else
            q = (sn_dim)n->x;
    }
    if (p > (sn_dim)1 << 40 || q > (sn_dim)1 << 40) return q > (sn_dim)1 << 40;
    const sn_dim d = sn_dim_sub(c->m, q, p);
    return sn_dim_lo(c->m, d) >= 0 ? 1 : sn_dim_hi(c->m, d) < 0 ? 0 : -1;
}

static bool extreme(onnx_call *c, const onnx_elem *x, onnx_elem *out, bool least) {
    double a, b;
    if (as_numbers(x, &a, &b)) {
        *out = (least ? a <= b : a >= b) ? x[0] : x[1];
        return true;
    }
    const int first = at_most(c, &x[0], &x[1]), second = at_most(c, &x[1], &x[0]);
    if (first != 1 && second != 1) return false;
    *out = x[(first == 1) != least];
    return true;
}
bool onnx_k_min(onnx_call *c, const onnx_elem *x, onnx_elem *out) {
    return extreme(c, x, out, true);
}
bool onnx_k_max(onnx_call *c, const onnx_elem *x, onnx_elem *out) {
    return extreme(c, x, out, false);
}

static bool compare(onnx_call *c, const onnx_elem *x, const onnx_elem *y, bool negate,
                    onnx_elem *out) {
    const int r = at_most(c, x, y);
    return r >= 0 && dim(out, negate ? !r : r);
}
bool onnx_k_less_equal(onnx_call *c, const onnx_elem *x, onnx_elem *out) {
    return compare(c, &x[0], &x[1], false, out);
}
bool onnx_k_greater_equal(onnx_call *c, const onnx_elem *x, onnx_elem *out) {
    return compare(c, &x[1], &x[0], false, out);
}
bool onnx_k_less(onnx_call *c, const onnx_elem *x, onnx_elem *out) {
    return compare(c, &x[1], &x[0], true, out);
}
bool onnx_k_greater(onnx_call *c, const onnx_elem *x, onnx_elem *out) {
    return compare(c, &x[0], &x[1], true, out);
}
bool onnx_k_equal(onnx_call *c, const onnx_elem *x, onnx_elem *out) {
    if (both_poly(x) && x[0].d == x[1].d) return dim(out, 1);
    const int first = at_most(c, &x[0], &x[1]), second = at_most(c, &x[1], &x[0]);
    if (first != 0 && second != 0 && !(first == 1 && second == 1)) return false;
    return dim(out, first == 1 && second == 1);
}

bool onnx_k_not(onnx_call *c, const onnx_elem *x, onnx_elem *out) {
    (void)c;
    return dim(out, !x->d);
}
bool onnx_k_and(onnx_call *c, const onnx_elem *x, onnx_elem *out) {
    (void)c;
    return dim(out, x[0].d && x[1].d);
}
bool onnx_k_or(onnx_call *c, const onnx_elem *x, onnx_elem *out) {
    (void)c;
    return dim(out, x[0].d || x[1].d);
}
bool onnx_k_where(onnx_call *c, const onnx_elem *x, onnx_elem *out) {
    (void)c;
    *out = x[0].d ? x[1] : x[2];
    return true;
}

bool onnx_k_neg(onnx_call *c, const onnx_elem *x, onnx_elem *out) {
    if (x->poly) return dim(out, sn_dim_sub(c->m, 0, x->d));
    return number(c, out, -x->x);
}
bool onnx_k_abs(onnx_call *c, const onnx_elem *x, onnx_elem *out) {
    double a;
    if (onnx_elem_value(x, &a)) return number(c, out, fabs(a));
    return sn_dim_lo(c->m, x->d) >= 0 && dim(out, x->d);
}

/* Polynomials are integers for all sizes. */
#define ROUNDED(name)                                                                              \
    bool onnx_k_##name(onnx_call *c, const onnx_elem *x, onnx_elem *out) {                         \
        if (x->poly) return dim(out, x->d);                                                        \
        return number(c, out, name(x->x));                                                         \
    }
ROUNDED(floor)
ROUNDED(ceil)

bool onnx_k_sqrt(onnx_call *c, const onnx_elem *x, onnx_elem *out) {
    double a;
    return onnx_elem_value(x, &a) && a >= 0 && number(c, out, sqrt(a));
}
bool onnx_k_pow(onnx_call *c, const onnx_elem *x, onnx_elem *out) {
    double a, b;
    if (!as_numbers(x, &a, &b)) return false;
    *out = onnx_elem_number(c->in[0]->type, pow(a, b));
    return true;
}

bool onnx_k_cast(onnx_call *c, const onnx_elem *x, onnx_elem *out) {
    sn_dtype to;
    double a;
    if (!onnx_dtype(onnx_int(c, "to", 0), &to)) return false;
    if (!onnx_elem_value(x, &a)) {
        if (to == SN_BOOL) return sn_dim_lo(c->m, x->d) > 0 && dim(out, 1);
        return dim(out, x->d); /* an exact integer in every type */
    }
    if (to == SN_BOOL) return dim(out, a != 0);
    if (x->poly && !sn_dtype_is_float(to)) return dim(out, x->d);
    *out = onnx_elem_number(to, sn_dtype_is_float(to) ? a : trunc(a));
    return isfinite(a) || sn_dtype_is_float(to);
}

/* ---- whole values ---- */

void onnx_strides(const onnx_value *v, int64_t *stride) {
    int64_t n = 1;
    for (int i = v->rank; i-- > 0;) {
        stride[i] = n;
        n *= v->shape[i];
    }
}

bool onnx_known_view(onnx_call *c, int out, const onnx_value *v, int rank, const sn_dim *shape,
                     const int64_t *stride, int64_t start) {
    const onnx_value result = {.rank = rank};
    onnx_value r = result;
    if (rank) memcpy(r.shape, shape, sizeof *shape * (size_t)rank);
    const int64_t n = onnx_count(&r);
    if (n < 0 || n > ONNX_KNOWN_MAX)
        return onnx_fail(c, "more than %d elements that are computed from shapes", ONNX_KNOWN_MAX);
    onnx_elem *e = sn_arena_alloc(c->m, sizeof *e * (size_t)n + 1);
    int64_t index[SN_MAX_RANK] = {0}, at = start;
    for (int64_t i = 0; i < n; i++) {
        e[i] = v->known[at];
        for (int a = rank - 1; a >= 0; a--) {
            at += stride[a];
            if (++index[a] < shape[a]) break;
            at -= stride[a] * index[a];
            index[a] = 0;
        }
    }
    return onnx_set_known(c, out, v->type, rank, shape, e);
}

/* The common shape of the inputs; false: their sizes are not numbers that fit. */
static bool common_shape(const onnx_call *c, onnx_value *out) {
    for (int i = 0; i < c->n_in; i++)
        if (c->in[i]->rank > out->rank) out->rank = c->in[i]->rank;
    for (int a = 0; a < out->rank; a++) out->shape[a] = 1;
    for (int i = 0; i < c->n_in; i++)
        for (int a = 0, from = out->rank - c->in[i]->rank; a < c->in[i]->rank; a++) {
            const sn_dim d = c->in[i]->shape[a];
            sn_dim *to = &out->shape[from + a];
            if (d != 1 && *to != 1 && d != *to) return false;
            if (d != 1) *to = d;
        }
    const int64_t n = onnx_count(out);
    return n >= 0 && n <= ONNX_KNOWN_MAX;
}

bool onnx_fold(onnx_call *c, sn_dtype type, bool *done) {
    onnx_value shape = {.rank = 0};
    *done = false;
    onnx_known_fn *known = c->row->known;
    const int least = known == onnx_k_where ? 3 : known == onnx_k_cast || c->row->unary ? 1 : 2;
    if (!known || c->n_in < least || c->n_in > 3) return true; /* onnx_in says what is missing */
    for (int i = 0; i < c->n_in; i++)
        if (!c->in[i] || !c->in[i]->known) return true;
    if (!common_shape(c, &shape)) return true;
    const int64_t n = onnx_count(&shape);
    onnx_elem *e = sn_arena_alloc(c->m, sizeof *e * (size_t)n + 1);
    for (int64_t k = 0; k < n; k++) {
        onnx_elem x[3];
        for (int i = 0; i < c->n_in; i++) {
            int64_t at = 0, rest = k, step = 1;
            for (int a = c->in[i]->rank; a-- > 0;) {
                const sn_dim all = shape.shape[shape.rank - c->in[i]->rank + a];
                if (c->in[i]->shape[a] != 1) at += rest % all * step;
                rest /= all, step *= c->in[i]->shape[a];
            }
            x[i] = c->in[i]->known[at];
        }
        if (!known(c, x, &e[k])) return true;
    }
    *done = true;
    return onnx_set_known(c, 0, type, shape.rank, shape.shape, e);
}
