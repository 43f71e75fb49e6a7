/* match.c: predicates for rules: constants, broadcasts, factors, polynomials. */
#include "passes/match.h"
#include "passes/graph_util.h"

#include <math.h>
#include <string.h>

bool sn_match_const(const sn_node *n, double *v) {
    while (n->op == SN_OP_broadcast || n->op == SN_OP_reshape) n = n->in[0];
    if (n->op != SN_OP_const) return false;
    *v = sn_attr_flt(n, SN_A_value, 0);
    return true;
}

bool sn_match_value(const sn_node *n, double v) {
    double c;
    return sn_match_const(n, &c) && c == v;
}

bool sn_match_near(double x, double want) {
    return fabs(x - want) <= 4e-7 * fabs(want);
}

bool sn_match_float(const sn_node *n) {
    return n->dtype == SN_F32 || n->dtype == SN_F64;
}

sn_node *sn_match_below(sn_node *n) {
    while (n->op == SN_OP_broadcast) n = n->in[0];
    return n;
}

sn_node *sn_match_scaled(sn_node *n, double *c) {
    *c = 1;
    if (!sn_dtype_is_float((sn_dtype)n->dtype)) return n;
    if (n->op == SN_OP_mul && sn_match_const(n->in[1], c)) return n->in[0];
    if (n->op == SN_OP_neg) {
        *c = -1;
        return n->in[0];
    }
    *c = 1;
    return n;
}

typedef struct factors {
    const sn_node *whole;
    sn_node **list;
    int n, cap;
    double c;
} factors;

static bool collect_factors(factors *f, sn_node *n, int depth) {
    double v;
    if (n != f->whole && sn_match_const(n, &v)) {
        f->c *= v;
        return true;
    }
    if (n != f->whole && n->op == SN_OP_neg) {
        f->c = -f->c;
        return collect_factors(f, n->in[0], depth);
    }
    if (n != f->whole && n->op == SN_OP_mul && depth)
        return collect_factors(f, n->in[0], depth - 1) && collect_factors(f, n->in[1], depth - 1);
    if (f->n == f->cap) return false;
    f->list[f->n++] = n;
    return true;
}

int sn_match_factors(sn_node *n, const sn_node *whole, sn_node **factor, int cap, double *c) {
    factors f = {.whole = whole, .list = factor, .cap = cap, .c = 1};
    bool ok = collect_factors(&f, n, 6);
    *c = f.c;
    return ok ? f.n : -1;
}

static bool always(const sn_node *n) {
    return n;
}

/* b, h, q or k of a scalar region */
static bool is_position(const sn_node *n) {
    return n->dtype == SN_I32 && n->rank == 0;
}

static bool is_small_integer(const sn_node *n) {
    double v = sn_attr_flt(n, SN_A_value, 0);
    return fabs(v) < 0x1p24 && floor(v) == v;
}

static bool is_integer_division(const sn_node *n) {
    return !sn_dtype_is_float((sn_dtype)n->dtype);
}

static bool is_numeric_cast(const sn_node *n) {
    return n->dtype != SN_BOOL && n->in[0]->dtype != SN_BOOL;
}

/* What index expressions consist of, and under which condition. */
static bool (*const index_ops[SN_OP_COUNT])(const sn_node *n) = {
#define INDEX(op, when) [SN_OP_##op] = when
    INDEX(iota, always),          INDEX(dim_value, always),
    INDEX(arg, is_position),      INDEX(const, is_small_integer),
    INDEX(add, always),           INDEX(sub, always),
    INDEX(mul, always),           INDEX(div, is_integer_division),
    INDEX(cast, is_numeric_cast), INDEX(broadcast, always),
    INDEX(reshape, always),       INDEX(transpose, always),
    INDEX(slice, always),
};

static bool match_index(const sn_node *n, int depth) {
    if (!index_ops[n->op] || !index_ops[n->op](n)) return false;
    for (int i = 0; i < n->n_in; i++)
        if (!depth || !match_index(n->in[i], depth - 1)) return false;
    return true;
}

bool sn_match_index(const sn_node *n) {
    return match_index(n, 6);
}

sn_node *sn_match_row(sn_node *n, const sn_node *like, int axis) {
    double v;
    if (n->op != SN_OP_broadcast || sn_match_const(n, &v)) return NULL;
    sn_node *x = n->in[0];
    int i = axis - (like->rank - x->rank);
    if (i >= 0 && x->shape[i] != 1) return NULL;
    if (like->shape[axis] == 1) return NULL;
    sn_dim shape[SN_MAX_RANK];
    for (int a = 0; a < like->rank; a++) {
        int j = a - (like->rank - x->rank);
        shape[a] = j < 0 ? 1 : x->shape[j];
    }
    return sn_b_reshape(x, like->rank, shape);
}

sn_node *sn_match_vector(sn_node *n) {
    double v;
    if (!n->rank || sn_match_const(n, &v)) return NULL;
    sn_node *x = sn_match_below(n);
    sn_dim d = n->shape[n->rank - 1];
    if (!x->rank || x->shape[x->rank - 1] != d) return NULL;
    for (int i = 0; i + 1 < x->rank; i++)
        if (x->shape[i] != 1) return NULL;
    return sn_b_reshape(x, 1, &d);
}

/* ---- polynomials ---- */

typedef bool poly_rule(const sn_poly *a, const sn_poly *b, sn_poly *p);

/* a + scale b */
static bool poly_sum(const sn_poly *a, double scale, const sn_poly *b, sn_poly *p) {
    for (int i = 0; i < 15; i++)
        p->c[i / 3][i % 3] = a->c[i / 3][i % 3] + scale * b->c[i / 3][i % 3];
    return true;
}

static bool poly_add(const sn_poly *a, const sn_poly *b, sn_poly *p) {
    return poly_sum(a, 1, b, p);
}

static bool poly_sub(const sn_poly *a, const sn_poly *b, sn_poly *p) {
    return poly_sum(a, -1, b, p);
}

static bool poly_neg(const sn_poly *a, const sn_poly *none, sn_poly *p) {
    return poly_sum(none, -1, a, p);
}

static bool poly_mul(const sn_poly *a, const sn_poly *b, sn_poly *p) {
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 3; j++) {
            if (a->c[i][j] == 0) continue;
            for (int k = 0; k < 5; k++)
                for (int l = 0; l < 3; l++) {
                    if (b->c[k][l] == 0) continue;
                    if (i + k > 4 || j + l > 2) return false;
                    p->c[i + k][j + l] += a->c[i][j] * b->c[k][l];
                }
        }
    return true;
}

static poly_rule *const poly_rules[SN_OP_COUNT] = {
#define POLY(op) [SN_OP_##op] = poly_##op
    POLY(add),
    POLY(sub),
    POLY(neg),
    POLY(mul),
};

static bool match_poly(sn_node *n, const sn_node *x, const sn_node *t, sn_poly *p, int depth) {
    double v;
    sn_poly in[2] = {0};
    memset(p, 0, sizeof *p);
    if (n == t || n == x) {
        p->c[n == x][n != x] = 1;
        return true;
    }
    if (sn_match_const(n, &v)) {
        p->c[0][0] = v;
        return true;
    }
    if (!depth || !poly_rules[n->op]) return false;
    for (int i = 0; i < n->n_in; i++)
        if (!match_poly(n->in[i], x, t, &in[i], depth - 1)) return false;
    return poly_rules[n->op](&in[0], &in[1], p);
}

bool sn_match_poly(sn_node *n, const sn_node *x, const sn_node *t, sn_poly *p) {
    return match_poly(n, x, t, p, 8);
}
