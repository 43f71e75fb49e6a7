/* eval_recurrence.c: what a linear recurrence computes, element by element. */
#include "ir/eval_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

sn_recurrence sn_recurrence_of(const sn_node *n) {
    int turned = (int)sn_attr_int(n, SN_A_transposed, 0);
    const sn_region *rows = sn_attr_region(n, SN_A_prologue);
    const bool decay_grad = sn_attr_int(n, SN_A_decay_grad, 0);
    int n_in = (rows ? 1 + rows->n_out : n->n_in) - turned - decay_grad * turned;
    return (sn_recurrence){.n_lead = n->in[SN_REC_START]->rank - 2,
                           .reads = (sn_reads)sn_attr_int(n, SN_A_reads, SN_READS_AFTER),
                           .second = n_in > SN_REC_B,
                           .delta = sn_attr_int(n, SN_A_delta, 0),
                           .same = sn_attr_int(n, SN_A_delta, 0) == SN_DELTA_OF_K,
                           .silent = sn_attr_int(n, SN_A_silent, 0),
                           .reverse = sn_attr_int(n, SN_A_reverse, 0),
                           .turned = turned,
                           .decay_grad = decay_grad};
}

int sn_recurrence_turned(const sn_recurrence *r, int i) {
    return (r->second ? SN_REC_END : SN_REC_B) + i;
}

int sn_recurrence_turned_result(const sn_recurrence *r, int i) {
    return r->silent && !i ? 0 : 2 + r->delta + i - r->silent;
}

int sn_recurrence_factor(const sn_recurrence *r, sn_rec_factor f) {
    const bool exists[SN_REC_FACTORS] = {true, r->turned > 1, r->second};
    int at = sn_recurrence_turned(r, r->turned);
    if (!r->decay_grad || !exists[f]) return -1;
    for (int i = 0; i < (int)f; i++) at += exists[i];
    return at;
}

int sn_recurrence_n_in(const sn_recurrence *r) {
    return sn_recurrence_turned(r, r->turned) + r->decay_grad * (r->turned + r->second);
}

int sn_recurrence_n_out(const sn_recurrence *r) {
    return 2 + r->delta + r->turned - r->silent + r->decay_grad;
}

typedef struct run {
    sn_recurrence r;
    int64_t T, lead, K, V, n_g; /* n_g: log decays of an element */
    const sn_value *const *in;
    double *S, *u; /* one carry [K, V]; u of one element [V] */
    double *paths; /* [K] the sum of {decay_grad} of the elements before */
} run;

/* Vector of element t of operand i. */
static const double *vector(const run *r, int i, int64_t t, int64_t lead, int64_t size) {
    return r->in[i]->data + (t * r->lead + lead) * size;
}

/* y = x S */
static void read_carry(const run *r, const double *x, double *y) {
    for (int64_t v = 0; v < r->V; v++) {
        y[v] = 0;
        for (int64_t k = 0; k < r->K; k++) y[v] += x[k] * r->S[k * r->V + v];
    }
}

/* S += x^T y */
static void add_product(const run *r, const double *x, const double *y) {
    for (int64_t k = 0; k < r->K; k++)
        for (int64_t v = 0; v < r->V; v++) r->S[k * r->V + v] += x[k] * y[v];
}

static void decay(const run *r, const double *g) {
    for (int64_t k = 0; k < r->K; k++)
        for (int64_t v = 0; v < r->V; v++) r->S[k * r->V + v] *= exp(g[r->n_g == 1 ? 0 : k]);
}

/* z = x S^T */
static void read_turned(const run *r, const double *x, double *z) {
    for (int64_t k = 0; k < r->K; k++) {
        z[k] = 0;
        for (int64_t v = 0; v < r->V; v++) z[k] += x[v] * r->S[k * r->V + v];
    }
}

/* Of operand x, what z reads of the carry as it is now. */
static void read_for(const run *r, int i, int64_t t, int64_t lead, double *const *out) {
    read_turned(r, vector(r, sn_recurrence_turned(&r->r, i), t, lead, r->V),
                out[sn_recurrence_turned_result(&r->r, i)]);
}

/* A factor of the gradient of decays at row k; 0: there is none. */
static double factor(const run *r, sn_rec_factor f, int64_t t, int64_t lead, int64_t k) {
    int i = sn_recurrence_factor(&r->r, f);
    return i < 0 ? 0 : vector(r, i, t, lead, r->K)[k];
}

static void give_decays(const run *r, int64_t t, int64_t lead, double *const *out) {
    const sn_recurrence *c = &r->r;
    const double *dq = out[sn_recurrence_turned_result(c, 0)], *da = NULL;
    double *dg = out[sn_recurrence_n_out(c) - 1];
    if (c->turned > 1) da = out[sn_recurrence_turned_result(c, 1)];
    for (int64_t i = 0; i < r->n_g; i++) dg[i] = 0;
    for (int64_t k = 0; k < r->K; k++) {
        double read = vector(r, SN_REC_Q, t, lead, r->K)[k] * dq[k],
               written =
                   factor(r, SN_REC_FACTOR_DK, t, lead, k) * vector(r, SN_REC_K, t, lead, r->K)[k],
               changed = da ? factor(r, SN_REC_FACTOR_A, t, lead, k) * da[k] : 0;
        if (c->second)
            written +=
                factor(r, SN_REC_FACTOR_DB, t, lead, k) * vector(r, SN_REC_B, t, lead, r->K)[k];
        dg[r->n_g == 1 ? 0 : k] -= r->paths[k] + changed + (c->reads == SN_READS_BEFORE ? read : 0);
        r->paths[k] += read + changed - written;
    }
}

/* Element t of one carry; out: where its results begin, by number. */
static void step(const run *r, int64_t t, int64_t lead, double *const *out) {
    const sn_recurrence *c = &r->r;
    const double *q = vector(r, SN_REC_Q, t, lead, r->K), *k = vector(r, SN_REC_K, t, lead, r->K),
                 *v = vector(r, SN_REC_V, t, lead, r->V), *g = vector(r, SN_REC_G, t, lead, r->n_g),
                 *b = c->second ? vector(r, SN_REC_B, t, lead, r->K) : NULL,
                 *u = c->delta ? r->u : NULL;
    double *y = out[0];
    if (c->second && !c->delta) u = vector(r, SN_REC_A, t, lead, r->V);
    if (c->reads == SN_READS_LATE) add_product(r, k, v);
    if (c->reads != SN_READS_AFTER && !c->silent) read_carry(r, q, y);
    for (int i = c->reads == SN_READS_AFTER; i < c->turned; i++) read_for(r, i, t, lead, out);
    if (c->delta) {
        read_carry(r, vector(r, SN_REC_A, t, lead, r->K), r->u);
        memcpy(out[2], r->u, sizeof *r->u * (size_t)r->V);
    }
    decay(r, g);
    if (c->reads != SN_READS_LATE) add_product(r, k, v);
    if (b) add_product(r, b, u);
    if (c->reads == SN_READS_AFTER && !c->silent) read_carry(r, q, y);
    if (c->reads == SN_READS_AFTER && c->turned) read_for(r, 0, t, lead, out);
    if (c->decay_grad) give_decays(r, t, lead, out);
}

bool eval_recurrence(eval_call *c) {
    const sn_value *v = c->in[SN_REC_V], *start = c->in[SN_REC_START];
    run r = {.r = sn_recurrence_of(c->n), .T = v->shape[0], .lead = 1, .in = c->in};
    for (int a = 0; a < r.r.n_lead; a++) r.lead *= start->shape[a];
    r.K = start->shape[r.r.n_lead];
    r.V = start->shape[r.r.n_lead + 1];
    r.n_g = c->in[SN_REC_G]->shape[v->rank - 1];
    double *out[SN_MAX_RESULTS] = {NULL};
    int64_t row[SN_MAX_RESULTS];
    for (int i = 0; i < c->n->n_result; i++) {
        const bool of_k = i > 1 + r.r.delta || (!i && r.r.silent);
        const int of = i == 1                                      ? SN_REC_START
                       : r.r.decay_grad && i == c->n->n_result - 1 ? SN_REC_G
                       : of_k                                      ? SN_REC_K
                                                                   : SN_REC_V;
        const sn_value *like = c->in[of];
        eval_call one = *c;
        one.out += i;
        row[i] = like->shape[like->rank - 1];
        out[i] = sn_eval_alloc(&one, start->dtype, like->rank, like->shape);
        if (!out[i]) return false;
    }
    int64_t size = r.K * r.V;
    r.u = malloc(sizeof *r.u * (size_t)(r.V + r.K + 1));
    r.paths = r.u ? r.u + r.V : NULL;
    if (!r.u) return sn_eval_fail(c, SN_ERR_MEMORY, "out of memory");
    for (int64_t lead = 0; lead < r.lead; lead++) {
        r.S = out[1] + lead * size;
        for (int64_t k = 0; k < r.K; k++) r.paths[k] = 0;
        if (size) memcpy(r.S, start->data + lead * size, sizeof *r.S * (size_t)size);
        for (int64_t i = 0; i < r.T; i++) {
            int64_t t = r.r.reverse ? r.T - 1 - i : i;
            double *at[SN_MAX_RESULTS] = {NULL};
            for (int j = 0; j < c->n->n_result; j++)
                if (j != 1) at[j] = out[j] + (t * r.lead + lead) * row[j];
            step(&r, t, lead, at);
        }
    }
    free(r.u);
    return true;
}
