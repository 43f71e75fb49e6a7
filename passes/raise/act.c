/* act.c: activations. gelu is recognised by the polynomial that an expression is in x and tanh(...)
 * or erf(...), so its written form does not matter. */
#include "passes/match.h"
#include "passes/raise/raise.h"

#include <math.h>

/* The first tanh or erf in the sums and products of n. */
static sn_node *find_gate(sn_node *n, int depth) {
    if (n->op == SN_OP_tanh || n->op == SN_OP_erf) return n;
    if (!depth || (n->op != SN_OP_add && n->op != SN_OP_sub && n->op != SN_OP_mul)) return NULL;
    sn_node *t = find_gate(n->in[0], depth - 1);
    return t ? t : find_gate(n->in[1], depth - 1);
}

/* Whether it is c[1][0] x + c[3][0] x^3. */
static bool odd_cubic(const sn_poly *p) {
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 3; j++)
            if ((j || (i != 1 && i != 3)) && p->c[i][j] != 0) return false;
    return p->c[1][0] != 0;
}

/* The x for which `u` is the argument of gelu's tanh or erf; NULL: none. */
static sn_node *find_gelu_x(sn_node *top, sn_node *u, bool erf, int depth) {
    sn_poly p;
    if (sn_match_poly(top, u, NULL, &p) && odd_cubic(&p)) {
        double linear = erf ? sqrt(0.5) : sqrt(2 / M_PI), cubic = erf ? 0 : 0.044715 * linear;
        bool fits = fabs(p.c[1][0] - linear) < 1e-5 && fabs(p.c[3][0] - cubic) < 1e-6;
        if (fits) return u;
    }
    if (!depth || (u->op != SN_OP_add && u->op != SN_OP_sub && u->op != SN_OP_mul)) return NULL;
    sn_node *x = find_gelu_x(top, u->in[0], erf, depth - 1);
    return x ? x : find_gelu_x(top, u->in[1], erf, depth - 1);
}

/* a (x + x t) = 2 a gelu x, t = erf(x / sqrt 2) or tanh(sqrt(2/pi) (x + 0.044715 x^3)) */
sn_node *sn_raise_gelu(sn_node *n) {
    sn_poly p;
    if (!sn_match_float(n)) return NULL;
    sn_node *t = find_gate(n, 5);
    sn_node *x = t ? find_gelu_x(t->in[0], t->in[0], t->op == SN_OP_erf, 4) : NULL;
    if (!x || !sn_match_poly(n, x, t, &p)) return NULL;
    double a = p.c[1][0];
    if (a == 0 || !sn_match_near(p.c[1][1], a)) return NULL;
    for (int i = 0; i < 15; i++)
        if (p.c[i / 3][i % 3] != 0 && (i / 3 != 1 || i % 3 == 2)) return NULL;
    double c = sn_match_near(2 * a, 1) ? 1 : 2 * a;
    sn_node *y = sn_b_unary(t->op == SN_OP_erf ? SN_OP_gelu : SN_OP_gelu_tanh, x);
    return sn_raise_times(y, 0, NULL, c);
}

/* x sigmoid(x) y = silu(x) y */
sn_node *sn_raise_silu(sn_node *n) {
    sn_node *f[6];
    double c;
    int k = sn_match_factors(n, NULL, f, 6, &c);
    if (!sn_match_float(n)) return NULL;
    for (int i = 0; i < k; i++) {
        if (f[i]->op != SN_OP_sigmoid) continue;
        sn_node *s = f[i], *x = s->in[0], *g[6];
        int kg = sn_match_factors(n, x, g, 6, &c), at_s = -1, at_x = -1;
        for (int j = 0; j < kg; j++) {
            if (g[j] == s && at_s < 0)
                at_s = j;
            else if (g[j] == x)
                at_x = j;
        }
        if (at_s < 0 || at_x < 0) continue;
        g[at_s] = g[at_x] = NULL;
        return sn_raise_times(sn_b_unary(SN_OP_silu, x), kg, g, c);
    }
    return NULL;
}
