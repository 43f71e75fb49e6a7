/* match.c: questions that rules ask about nodes: constants, broadcasts, factors, polynomials. */
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

static bool match_index(const sn_node *n, int depth) {
    double v;
    switch (n->op) {
    case SN_OP_iota:
    case SN_OP_dim_value:
        return true;
    case SN_OP_arg: /* of a scalar region: b, h, q, k */
        return n->dtype == SN_I32 && n->rank == 0;
    case SN_OP_const:
        v = sn_attr_flt(n, SN_A_value, 0);
        return fabs(v) < 0x1p24 && floor(v) == v;
    case SN_OP_add:
    case SN_OP_sub:
    case SN_OP_mul:
    case SN_OP_div:
        if (n->op == SN_OP_div && sn_dtype_is_float((sn_dtype)n->dtype)) return false;
        return depth && match_index(n->in[0], depth - 1) && match_index(n->in[1], depth - 1);
    case SN_OP_cast:
        return n->dtype != SN_BOOL && n->in[0]->dtype != SN_BOOL && depth &&
               match_index(n->in[0], depth - 1);
    case SN_OP_broadcast:
    case SN_OP_reshape:
    case SN_OP_transpose:
    case SN_OP_slice:
        return depth && match_index(n->in[0], depth - 1);
    default:
        return false;
    }
}

bool sn_match_index(const sn_node *n) {
    return match_index(n, 6);
}

sn_node *sn_match_reduced(const sn_node *n, sn_op op, int axis) {
    const sn_attr *a = n->op == op ? sn_attr_get(n, SN_A_axes) : NULL;
    return a && a->n == 1 && a->v[0] == axis ? n->in[0] : NULL;
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

static bool poly_mul(const sn_poly *a, const sn_poly *b, sn_poly *p) {
    memset(p, 0, sizeof *p);
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

static bool match_poly(sn_node *n, const sn_node *x, const sn_node *t, sn_poly *p, int depth) {
    double v;
    sn_poly a, b;
    memset(p, 0, sizeof *p);
    if (n == t || n == x) {
        p->c[n == x][n != x] = 1;
        return true;
    }
    if (sn_match_const(n, &v)) {
        p->c[0][0] = v;
        return true;
    }
    if (!depth || !n->n_in || !match_poly(n->in[0], x, t, &a, depth - 1)) return false;
    double sign = n->op == SN_OP_sub ? -1 : 1;
    switch (n->op) {
    case SN_OP_neg:
        for (int i = 0; i < 15; i++) p->c[i / 3][i % 3] = -a.c[i / 3][i % 3];
        return true;
    case SN_OP_add:
    case SN_OP_sub:
        if (!match_poly(n->in[1], x, t, &b, depth - 1)) return false;
        for (int i = 0; i < 15; i++)
            p->c[i / 3][i % 3] = a.c[i / 3][i % 3] + sign * b.c[i / 3][i % 3];
        return true;
    case SN_OP_mul:
        return match_poly(n->in[1], x, t, &b, depth - 1) && poly_mul(&a, &b, p);
    case SN_OP_div:
        if (!sn_match_const(n->in[1], &v) || v == 0) return false;
        for (int i = 0; i < 15; i++) p->c[i / 3][i % 3] = a.c[i / 3][i % 3] / v;
        return true;
    default:
        return false;
    }
}

bool sn_match_poly(sn_node *n, const sn_node *x, const sn_node *t, sn_poly *p) {
    return match_poly(n, x, t, p, 8);
}
