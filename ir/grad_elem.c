/* grad_elem.c: gradients of the elementwise ops, one line each. At points without derivative: abs
 * and sign have slope 0 at 0; equal operands of max and min get half the gradient each. */
#include "ir/grad_impl.h"

#include <math.h>

#define X c->n->in[0]
#define Y c->n->in[1]
#define R c->n /* the result */
#define G c->g

#define RULE1(name, dx)                                                                            \
    bool grad_##name(grad *c) {                                                                    \
        if (sn_gr_needs(c, 0)) sn_gr_give(c, 0, dx);                                               \
        return true;                                                                               \
    }
#define RULE2(name, dx, dy)                                                                        \
    bool grad_##name(grad *c) {                                                                    \
        if (sn_gr_needs(c, 0)) sn_gr_give(c, 0, dx);                                               \
        if (sn_gr_needs(c, 1)) sn_gr_give(c, 1, dy);                                               \
        return true;                                                                               \
    }

/* g where x is selected over y, half of it where they are equal */
static sn_node *winner(grad *c, sn_node *smaller, sn_node *larger) {
    sn_node *tie = sn_b_select(OP2(eq, X, Y), OPC(mul, G, 0.5), sn_gr_fill(G, 0));
    return sn_b_select(OP2(lt, smaller, larger), G, tie);
}

/* a where x != 0, otherwise 0: the limit of the product in which a is a factor */
static sn_node *unless_zero(sn_node *x, sn_node *a) {
    return sn_b_select(OPC(eq, x, 0), sn_gr_fill(a, 0), a);
}

RULE1(neg, OP1(neg, G))
RULE1(abs, OP2(mul, G, OP1(sign, X)))
RULE1(exp, OP2(mul, G, R))
RULE1(exp2, OPC(mul, OP2(mul, G, R), M_LN2))
RULE1(expm1, OP2(mul, G, OP1(exp, X)))
RULE1(log, OP2(div, G, X))
RULE1(log1p, OP2(div, G, OPC(add, X, 1)))
RULE1(sqrt, OP2(div, OPC(mul, G, 0.5), R))
RULE1(rsqrt, OP2(mul, OPC(mul, G, -0.5), OP2(mul, R, OP2(mul, R, R))))
RULE1(recip, OP1(neg, OP2(mul, G, OP2(mul, R, R))))
RULE1(tanh, OP2(sub, G, OP2(mul, G, OP2(mul, R, R))))
RULE1(sigmoid, OP2(mul, OP2(mul, G, R), OP2(sub, sn_gr_fill(R, 1), R)))
RULE1(erf, OP2(mul, OPC(mul, G, M_2_SQRTPI), OP1(exp, OP1(neg, OP2(mul, X, X)))))
RULE1(sin, OP2(mul, G, OP1(cos, X)))
RULE1(cos, OP1(neg, OP2(mul, G, OP1(sin, X))))
RULE1(atan, OP2(div, G, OPC(add, OP2(mul, X, X), 1)))
RULE1(cast, G) /* sn_gr_give casts it back */
RULE2(add, G, G)
RULE2(sub, G, OP1(neg, G))
RULE2(mul, OP2(mul, G, Y), OP2(mul, G, X))
RULE2(div, OP2(div, G, Y), OP1(neg, OP2(div, OP2(mul, G, R), Y)))
RULE2(ieee_div, OP2(div, G, Y), OP1(neg, OP2(div, OP2(mul, G, R), Y)))
RULE2(mod, G, OP1(neg, OP2(mul, G, OP1(floor, OP2(div, X, Y)))))
RULE2(pow, OP2(mul, G, unless_zero(Y, OP2(mul, Y, OP2(pow, X, OPC(sub, Y, 1))))),
      OP2(mul, G, unless_zero(X, OP2(mul, R, OP1(log, X)))))
RULE2(max, winner(c, Y, X), winner(c, X, Y))
RULE2(min, winner(c, X, Y), winner(c, Y, X))

/* (1 + erf(x / sqrt 2)) / 2 + x e^(-x^2 / 2) / sqrt(2 pi) */
static sn_node *gelu_slope(sn_node *x) {
    sn_node *cdf = OPC(mul, OPC(add, OP1(erf, OPC(mul, x, sqrt(0.5))), 1), 0.5);
    sn_node *density = OPC(mul, OP1(exp, OPC(mul, OP2(mul, x, x), -0.5)), sqrt(0.5 / M_PI));
    return OP2(add, OP2(mul, x, density), cdf);
}

/* With t = tanh(u), u = sqrt(2 / pi) (x + a x^3): (1 + t) / 2 + x u' (1 - t^2) / 2 */
static sn_node *gelu_tanh_slope(sn_node *x) {
    const double a = 0.044715, k = sqrt(2 / M_PI);
    sn_node *square = OP2(mul, x, x);
    sn_node *u = OPC(mul, OP2(mul, x, OPC(add, OPC(mul, square, a), 1)), k);
    sn_node *t = OP1(tanh, u), *slope = OPC(add, OPC(mul, square, 3 * a * k), k);
    sn_node *bend = OP2(mul, OP2(mul, x, slope), OP2(sub, sn_gr_fill(t, 1), OP2(mul, t, t)));
    return OPC(mul, OP2(add, bend, OPC(add, t, 1)), 0.5);
}

RULE1(gelu, OP2(mul, G, gelu_slope(X)))
RULE1(gelu_tanh, OP2(mul, G, gelu_tanh_slope(X)))

bool grad_select(grad *c) {
    sn_node *zero = sn_gr_fill(G, 0);
    if (sn_gr_needs(c, 1)) sn_gr_give(c, 1, sn_b_select(X, G, zero));
    if (sn_gr_needs(c, 2)) sn_gr_give(c, 2, sn_b_select(X, zero, G));
    return true;
}
