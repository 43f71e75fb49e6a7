/* scan.c: which operands and results of a scan are what. */
#include "ir/ir.h"

#include <string.h>

/* Whether `again` gives the first sequences' elements from what the body takes. */
static bool computes_again(const sn_scan *s) {
    const sn_region *r = s->again;
    if (r->n_arg != s->n_in || r->n_out < 1 || r->n_out > s->n_sequence) return false;
    for (int i = 0; i < r->n_out; i++) {
        const sn_node *x = s->body->arg[s->n_carry + i], *y = r->out[i];
        if (x->dtype != y->dtype || x->rank != y->rank ||
            memcmp(x->shape, y->shape, sizeof *x->shape * (size_t)x->rank))
            return false;
    }
    return true;
}

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
    out->n_carry = (int)n;
    out->n_sequence = (int)s;
    out->n_again = again ? (int)again->i : 0;
    out->sums = sums ? sums->v : NULL;
    if (out->n_again < 0 || out->n_again > out->n_carry)
        return "it recomputes more than it carries";
    if (sums && sums->n != out->body->n_out - out->n_carry)
        return "attribute 'sums' has the wrong length";
    out->again = kept ? kept->r : NULL;
    if (out->again && !computes_again(out)) return "attribute 'again' does not fit its sequences";
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
