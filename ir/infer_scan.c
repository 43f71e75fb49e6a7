/* infer_scan.c: types and shapes of scans and of linear recurrences. */
#include "ir/infer_impl.h"

#include <string.h>

/* ---- scan ---- */

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
    out->n_carry = (int)n, out->n_sequence = (int)s, out->n_again = again ? (int)again->i : 0;
    out->sums = sums ? sums->v : NULL, out->again = kept ? kept->r : NULL;
    if (out->n_again < 0 || out->n_again > out->n_carry)
        return "it recomputes more than it carries";
    if (sums && sums->n != out->body->n_out - out->n_carry)
        return "attribute 'sums' has the wrong length";
    if (!sn_scan_again_fits(out)) return "attribute 'again' does not fit its sequences";
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

/* Operand i without axis 0 if it is a sequence: must be what the body takes, but for axes that
 * are divided into parts. */
static bool scan_operand(infer_ctx *c, const sn_scan *s, int i) {
    const sn_node *x = c->in[i], *arg = s->body->arg[i];
    int skip = sn_scan_is_sequence(s, i);
    if (x->rank < skip)
        return sn_infer_fail(c, "sequence %d is a scalar; it needs an axis", i - s->n_carry);
    if (skip && x->shape[0] != c->in[s->n_carry]->shape[0])
        return sn_infer_fail(c, "sequence %d has another length than the first", i - s->n_carry);
    if (x->dtype != arg->dtype || x->rank - skip != arg->rank)
        return sn_infer_fail(c, "operand %d is not what the body takes", i);
    for (int a = 0; a < arg->rank; a++) {
        bool tiled = false;
        int64_t part, whole;
        for (int k = 0; k < s->n_tile; k++) tiled |= sn_scan_tile(s, i, k) == a;
        if (x->shape[a + skip] == arg->shape[a]) continue;
        bool divides =
            sn_dim_is_const(c->m, arg->shape[a], &part) && part > 0 &&
            (part == 1 || (sn_dim_is_const(c->m, x->shape[a + skip], &whole) && whole % part == 0));
        if (!tiled || !divides)
            return sn_infer_fail(c, "axis %d of operand %d is not what the body takes", a + skip,
                                 i);
    }
    return true;
}

/* The whole size of independent axis k; 0: no operand has it. */
static sn_dim scan_size(const infer_ctx *c, const sn_scan *s, int k) {
    for (int i = 0; i < c->n_in; i++) {
        int a = sn_scan_tile(s, i, k);
        if (a >= 0) return c->in[i]->shape[a + sn_scan_is_sequence(s, i)];
    }
    return 0;
}

bool infer_scan(infer_ctx *c) {
    sn_scan s;
    if (!sn_infer_need(c, SN_A_carries) || !sn_infer_need(c, SN_A_sequences) ||
        !sn_infer_need(c, SN_A_body))
        return false;
    const char *fault = sn_scan_read(c->n_in, c->n_attr, c->attr, &s);
    if (fault) return sn_infer_fail(c, "%s", fault);
    for (int i = 0; i < c->n_in; i++)
        if (!scan_operand(c, &s, i)) return false;
    for (int i = 0; i < s.body->n_out; i++) {
        const sn_node *y = s.body->out[i];
        int more = i >= s.n_carry;
        sn_type *t = &c->all[i];
        *t = (sn_type){.dtype = (sn_dtype)y->dtype, .rank = y->rank + more};
        if (t->rank > SN_MAX_RANK)
            return sn_infer_fail(c, "output %d has too many axes", i - s.n_carry);
        if (more) t->shape[0] = c->in[s.n_carry]->shape[0];
        for (int a = 0; a < y->rank; a++) t->shape[a + more] = y->shape[a];
        for (int k = 0; k < s.n_tile; k++) {
            int a = sn_scan_tile(&s, c->n_in + i, k);
            if (a >= y->rank) return sn_infer_fail(c, "attribute 'tiles' is wrong");
            if (a >= 0) t->shape[a + more] = scan_size(c, &s, k);
        }
        if (i < s.n_carry &&
            (t->dtype != c->in[i]->dtype || t->rank != c->in[i]->rank ||
             memcmp(t->shape, c->in[i]->shape, sizeof *t->shape * (size_t)t->rank)))
            return sn_infer_fail(
                c, "the body must return carry %d with the type that it has at the start", i);
    }
    c->n_all = s.body->n_out;
    return true;
}

/* ---- recurrence ---- */

/* Operand i is [T, .., size]; the decays also [T, .., 1]; the cotangent of the carry is like that. */
static bool recurrent_operand(infer_ctx *c, const sn_node *start, int i, sn_dim size) {
    const sn_node *x = c->in[i];
    const int last = start->rank - 1;
    bool ok = x->rank == start->rank && x->shape[0] == c->in[SN_REC_Q]->shape[0] &&
              (x->shape[last] == size || (i == SN_REC_G && x->shape[last] == 1)) &&
              !memcmp(x->shape + 1, start->shape, sizeof *x->shape * (size_t)(last - 1));
    return ok || sn_infer_fail(c, "operand %d does not fit the carry", i);
}

/* The states before blocks of a sequence of length T. */
static sn_type type_of_states(sn_module *m, const sn_node *carry, sn_dim T) {
    const int last = carry->rank - 1;
    sn_type y = {.dtype = (sn_dtype)carry->dtype, .rank = carry->rank};
    sn_dim numbers = sn_dim_mul(m, carry->shape[last - 1], carry->shape[last]);
    int64_t n;
    memcpy(y.shape, carry->shape, sizeof *y.shape * (size_t)carry->rank);
    y.shape[last - 1] = sn_dim_add(m, T, SN_REC_BLOCK);
    y.shape[last] = sn_dim_is_const(m, numbers, &n)
                        ? sn_dim_const(m, (n + SN_REC_BLOCK - 1) / SN_REC_BLOCK)
                        : numbers;
    return y;
}

static int64_t int_of(const infer_ctx *c, sn_attr_key key) {
    return sn_infer_attr(c, key) ? sn_infer_attr(c, key)->i : 0;
}

bool infer_recurrence(infer_ctx *c) {
    const int64_t delta = int_of(c, SN_A_delta);
    sn_recurrence r = {.reads = (sn_reads)int_of(c, SN_A_reads),
                       .delta = delta,
                       .same = delta == SN_DELTA_OF_K,
                       .gradient = int_of(c, SN_A_gradient)};
    r.second = delta || (!r.gradient && c->n_in > SN_REC_B);
    const int n_in = sn_recurrence_n_in(&r), n_out = sn_recurrence_n_out(&r);
    if (c->n_in != n_in)
        return sn_infer_fail(c, "it needs %d operands%s", n_in,
                             r.gradient || delta ? "" : ", or 7 with a second pair");
    const sn_node *start = c->in[sn_recurrence_carry(&r, n_in)];
    const bool same = !r.same || c->in[SN_REC_B] == c->in[SN_REC_K];
    if (start->rank < 2 || !same || r.reads > SN_READS_BEFORE)
        return sn_infer_fail(c, !same             ? "b must be k"
                                : start->rank < 2 ? "no matrix is carried"
                                                  : "{reads} must be 0 or 1");
    if (!sn_infer_compute(c, (sn_dtype)start->dtype)) return false;
    sn_dim K = start->shape[start->rank - 2], V = start->shape[start->rank - 1];
    for (int i = 0; i < n_in; i++) {
        if (c->in[i]->dtype != start->dtype || !sn_dtype_is_float((sn_dtype)start->dtype))
            return sn_infer_fail(c, "all operands must have one float type");
        if (i == SN_REC_START || i == sn_recurrence_carry(&r, n_in)) continue;
        if (!recurrent_operand(c, start, i, sn_recurrence_is_of_keys(&r, false, i) ? K : V))
            return false;
    }
    const sn_type states = type_of_states(c->m, start, c->in[SN_REC_Q]->shape[0]);
    const sn_node *x = c->in[SN_REC_START];
    if (r.gradient &&
        (x->rank != states.rank || memcmp(x->shape, states.shape, sizeof *x->shape * x->rank)))
        return sn_infer_fail(c, "operand 0 is not the states before blocks");
    for (int i = 0; i < n_out; i++) {
        int of = i == SN_REC_DSTART                      ? sn_recurrence_carry(&r, n_in)
                 : r.gradient && i == n_out - 1          ? SN_REC_G
                 : sn_recurrence_is_of_keys(&r, true, i) ? SN_REC_K
                                                         : SN_REC_V;
        sn_type *y = &c->all[c->n_all++];
        *y = (sn_type){.dtype = (sn_dtype)start->dtype, .rank = start->rank};
        memcpy(y->shape, c->in[of]->shape, sizeof *y->shape * (size_t)start->rank);
        if (!r.gradient && i == sn_recurrence_states(&r)) *y = states;
    }
    return true;
}
