/* match.h: predicates for rules: constants, broadcasts, factors, polynomials. They change nothing;
 * a rule leaves the node alone if the answer is false. */
#ifndef SN_MATCH_H
#define SN_MATCH_H

#include "ir/ir.h"

bool sn_match_const(const sn_node *n, double *v); /* a constant, or one in another shape */
bool sn_match_value(const sn_node *n, double v);  /* exactly that constant */
bool sn_match_near(double x, double want);        /* equal up to a few roundings of f32 */
bool sn_match_float(const sn_node *n);            /* of an f32 or f64 tensor (no narrow types) */
sn_node *sn_match_below(sn_node *n);              /* what is broadcast */
/* n = x c for a constant c (c = 1: n itself); float types only */
sn_node *sn_match_scaled(sn_node *n, double *c);
/* The non-constant factors of a product of products, and the product of the constant ones; `whole`
 * (may be NULL) counts as one factor even if it is a product. -1: more than `cap`. */
int sn_match_factors(sn_node *n, const sn_node *whole, sn_node **factor, int cap, double *c);
/* n is an index or computed from indices by + - * / and casts: small integers, exact in every
 * number type */
bool sn_match_index(const sn_node *n);
/* n, or what it is broadcast from, has size 1 on `axis` of the tensor `like`, and is not constant:
 * that smaller tensor with like's rank; otherwise NULL */
sn_node *sn_match_row(sn_node *n, const sn_node *like, int axis);
/* n is a vector along the last axis, broadcast to n's shape: the vector [d]; otherwise NULL */
sn_node *sn_match_vector(sn_node *n);

/* n as a polynomial in x and t: c[i][j] is the coefficient of x^i t^j. False: n is not a polynomial
 * of degree <= 4 in x and <= 2 in t. t may be NULL. */
typedef struct sn_poly {
    double c[5][3];
} sn_poly;
bool sn_match_poly(sn_node *n, const sn_node *x, const sn_node *t, sn_poly *p);

#endif
