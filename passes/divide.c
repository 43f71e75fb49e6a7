/* divide.c: at level 0, a quotient is a single division again.
 *
 * simplify rewrites x / y, where y is broadcast over many elements, as x (1 / y): one division for
 * all of them, but two roundings. Patterns are matched in that form. Level 0 computes operations as
 * written, so products that no pattern used become divisions again, with IEEE's quotient. (At level
 * 0 a quotient by a constant is never rewritten: arith.c.)
 *
 * Requires nothing; runs after raise. Keeps dtype and shape, and values up to rounding. Terminates:
 * each rule removes a product. */
#include "passes/match.h"
#include "passes/passes.h"

static sn_node *rule(void *ctx, sn_node *n) {
    (void)ctx;
    if (n->op != SN_OP_mul || !sn_dtype_is_float((sn_dtype)n->dtype)) return n;
    for (int i = 0; i < 2; i++) {
        sn_node *inverse = sn_match_below(n->in[i]);
        if (inverse->op == SN_OP_recip && inverse != n->in[i])
            return sn_b_binary(SN_OP_div, n->in[1 - i], sn_b_broadcast_like(inverse->in[0], n));
    }
    return n;
}

int sn_pass_divide(sn_passes *p) {
    return sn_module_exact_division(p->m) || p->o.only ? sn_rewrite_module(p->m, rule, p) : 0;
}
