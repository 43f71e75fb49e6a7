/* scan.c: which operands and results of a scan are what. */
#include "ir/ir.h"

#include <string.h>

bool sn_scan_again_fits(const sn_scan *s) {
    const sn_region *r = s->again;
    if (!r) return true;
    if (r->n_arg != s->n_in || r->n_out < 1 || r->n_out > s->n_sequence) return false;
    for (int i = 0; i < r->n_out; i++) {
        const sn_node *x = s->body->arg[s->n_carry + i], *y = r->out[i];
        if (x->dtype != y->dtype || x->rank != y->rank ||
            memcmp(x->shape, y->shape, sizeof *x->shape * (size_t)x->rank))
            return false;
    }
    return true;
}

bool sn_scan_is_sequence(const sn_scan *s, int operand) {
    return operand >= s->n_carry && operand < s->n_carry + s->n_sequence;
}

int sn_scan_result(const sn_scan *s, int i) {
    if (i < s->n_carry - s->n_again) return i;
    return i < s->n_carry ? -1 : i - s->n_again;
}

int sn_scan_tile(const sn_scan *s, int i, int k) {
    return s->n_tile ? (int)s->tile[i * s->n_tile + k] : -1;
}
