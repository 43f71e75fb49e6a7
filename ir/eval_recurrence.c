/* eval_recurrence.c: what a linear recurrence computes, element by element. */
#include "ir/eval_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

sn_recurrence sn_recurrence_of(const sn_node *n) {
    const sn_region *rows = sn_attr_region(n, SN_A_prologue);
    const int64_t delta = sn_attr_int(n, SN_A_delta, 0);
    const bool gradient = sn_attr_int(n, SN_A_gradient, 0);
    const int n_in = rows ? 1 + rows->n_out : n->n_in;
    return (sn_recurrence){.n_lead = n->in[SN_REC_START]->rank - 2,
                           .reads = (sn_reads)sn_attr_int(n, SN_A_reads, SN_READS_AFTER),
                           .second = gradient ? delta : n_in > SN_REC_B,
                           .delta = delta,
                           .same = delta == SN_DELTA_OF_K,
                           .reverse = sn_attr_int(n, SN_A_reverse, 0),
                           .gradient = gradient};
}

int sn_recurrence_dy(const sn_recurrence *r) {
    return r->second ? SN_REC_END : SN_REC_B;
}

/* Whether the gradient needs u and gives db. */
static bool has_u(const sn_recurrence *r) {
    return r->delta && !r->same;
}

int sn_recurrence_n_in(const sn_recurrence *r) {
    return sn_recurrence_dy(r) + (r->gradient ? 2 + has_u(r) : 0);
}

int sn_recurrence_n_out(const sn_recurrence *r) {
    return r->gradient ? SN_REC_DA + r->delta + has_u(r) + 1 : sn_recurrence_states(r) + 1;
}

int sn_recurrence_states(const sn_recurrence *r) {
    return 2 + r->delta;
}

int sn_recurrence_carry(const sn_recurrence *r, int n_in) {
    return r->gradient ? n_in - 1 : SN_REC_START;
}

bool sn_recurrence_is_of_keys(const sn_recurrence *r, bool result, int i) {
    if (result) return r->gradient && i >= SN_REC_DQ;
    return i != SN_REC_START && i != SN_REC_V && i < sn_recurrence_dy(r) &&
           (i != SN_REC_A || r->delta);
}

typedef struct run {
    sn_recurrence r;
    const eval_call *call;
    sn_dtype type;
    bool bf16;                  /* products are */
    int64_t T, lead, K, V, n_g; /* n_g: log decays of an element */
    const sn_value *const *in;
    double *S;         /* one carry [K, V] */
    double *R;         /* its cotangent */
    double *u;         /* of one element [V], or its cotangent */
    double *kept;      /* with {gradient}: [T, K, V], the carry before each element */
    int64_t of_states; /* numbers of all states of one carry, and of a row */
    int64_t state_row;
} run;

/* Vector of element t of operand i. */
static const double *vector(const run *r, int i, int64_t t, int64_t lead) {
    int64_t size = i == SN_REC_G ? r->n_g : sn_recurrence_is_of_keys(&r->r, false, i) ? r->K : r->V;
    return r->in[i]->data + (t * r->lead + lead) * size;
}

static double factor(const run *r, double x) {
    return r->bf16 ? sn_eval_bf16(x) : x;
}

/* x + y z */
static double add_to(const run *r, double x, double y, double z) {
    double part = sn_eval_elem(r->call, SN_OP_mul, r->type, factor(r, y), factor(r, z));
    return sn_eval_elem(r->call, SN_OP_add, r->type, x, part);
}

/* x + e y z, without rounding to bf16 */
static double add_scaled(const run *r, double x, double e, double y, double z) {
    const double part = sn_eval_elem(r->call, SN_OP_mul, r->type, y, e);
    return sn_eval_elem(r->call, SN_OP_add, r->type, x,
                        sn_eval_elem(r->call, SN_OP_mul, r->type, part, z));
}

/* y = x S */
static void read_carry(const run *r, const double *S, const double *x, double *y) {
    for (int64_t v = 0; v < r->V; v++) {
        y[v] = 0;
        for (int64_t k = 0; k < r->K; k++) y[v] = add_to(r, y[v], x[k], S[k * r->V + v]);
    }
}

/* z = x S^T */
static void read_transposed(const run *r, const double *S, const double *x, double *z) {
    for (int64_t k = 0; k < r->K; k++) {
        z[k] = 0;
        for (int64_t v = 0; v < r->V; v++) z[k] = add_to(r, z[k], x[v], S[k * r->V + v]);
    }
}

/* S += x^T y */
static void add_product(const run *r, double *S, const double *x, const double *y) {
    for (int64_t k = 0; k < r->K; k++)
        for (int64_t v = 0; v < r->V; v++) S[k * r->V + v] = add_to(r, S[k * r->V + v], x[k], y[v]);
}

static void decay(const run *r, double *S, const double *g) {
    for (int64_t k = 0; k < r->K; k++) {
        const double by = g[r->n_g == 1 ? 0 : k],
                     e = sn_eval_elem(r->call, SN_OP_exp, r->type, by, by);
        for (int64_t v = 0; v < r->V; v++)
            S[k * r->V + v] = sn_eval_elem(r->call, SN_OP_mul, r->type, S[k * r->V + v], e);
    }
}

/* S' of element t; u: NULL: there is no second pair. */
static void change_carry(const run *r, int64_t t, int64_t lead, const double *u) {
    decay(r, r->S, vector(r, SN_REC_G, t, lead));
    add_product(r, r->S, vector(r, SN_REC_K, t, lead), vector(r, SN_REC_V, t, lead));
    if (u) add_product(r, r->S, vector(r, SN_REC_B, t, lead), u);
}

/* Element t of one carry; out: where its results begin, by number. */
static void step(const run *r, int64_t t, int64_t lead, double *const *out) {
    const sn_recurrence *c = &r->r;
    const double *q = vector(r, SN_REC_Q, t, lead), *u = c->delta ? r->u : NULL;
    if (c->second && !c->delta) u = vector(r, SN_REC_A, t, lead);
    if (c->reads == SN_READS_BEFORE) read_carry(r, r->S, q, out[0]);
    if (c->delta) {
        read_carry(r, r->S, vector(r, SN_REC_A, t, lead), r->u);
        memcpy(out[2], r->u, sizeof *r->u * (size_t)r->V);
    }
    change_carry(r, t, lead, u);
    if (c->reads == SN_READS_AFTER) read_carry(r, r->S, q, out[0]);
}

/* The same of a gradient, the last element first. r->S: the carry before it. */
static void step_back(const run *r, int64_t t, int64_t lead, double *const *out) {
    const sn_recurrence *c = &r->r;
    const bool after = c->reads == SN_READS_AFTER;
    const double *q = vector(r, SN_REC_Q, t, lead), *g = vector(r, SN_REC_G, t, lead),
                 *dy = vector(r, sn_recurrence_dy(c), t, lead),
                 *u = has_u(c) ? vector(r, sn_recurrence_dy(c) + 1, t, lead) : NULL;
    double *dg = out[sn_recurrence_n_out(c) - 1];
    if (after) add_product(r, r->R, q, dy);
    for (int64_t i = 0; i < r->n_g; i++) dg[i] = 0;
    for (int64_t k = 0; k < r->K; k++)
        for (int64_t v = 0, i = r->n_g == 1 ? 0 : k; v < r->V; v++) {
            const double e = sn_eval_elem(r->call, SN_OP_exp, r->type, g[i], g[i]);
            dg[i] = add_scaled(r, dg[i], e, r->R[k * r->V + v], r->S[k * r->V + v]);
        }
    read_carry(r, r->R, vector(r, SN_REC_K, t, lead), out[SN_REC_DV]);
    read_transposed(r, r->R, vector(r, SN_REC_V, t, lead), out[SN_REC_DK]);
    if (u) read_transposed(r, r->R, u, out[SN_REC_DA + 1]);
    if (c->delta) {
        read_carry(r, r->R, vector(r, SN_REC_B, t, lead), r->u);
        read_transposed(r, r->S, r->u, out[SN_REC_DA]);
    }
    decay(r, r->R, g);
    if (c->delta) add_product(r, r->R, vector(r, SN_REC_A, t, lead), r->u);
    if (after)
        change_carry(r, t, lead, u);
    else
        add_product(r, r->R, q, dy);
    read_transposed(r, r->S, dy, out[SN_REC_DQ]);
}

static void run_forward(run *r, int64_t lead, double *const *out, const int64_t *row) {
    double *at[SN_MAX_RESULTS] = {NULL};
    const int states = sn_recurrence_states(&r->r);
    for (int64_t i = 0; i < r->T; i++) {
        int64_t t = r->r.reverse ? r->T - 1 - i : i;
        if (i % SN_REC_BLOCK == 0)
            memcpy(out[states] + lead * r->of_states + i * r->state_row, r->S,
                   sizeof *r->S * (size_t)(r->K * r->V));
        for (int j = 0; j < states; j++)
            if (j != 1) at[j] = out[j] + (t * r->lead + lead) * row[j];
        step(r, t, lead, at);
    }
}

static void run_back(run *r, int64_t lead, double *const *out, const int64_t *row) {
    double *at[SN_MAX_RESULTS] = {NULL}, *S = r->S;
    const int64_t size = r->K * r->V;
    for (int64_t i = 0; i < r->T; i++) {
        int64_t t = r->r.reverse ? r->T - 1 - i : i;
        if (i % SN_REC_BLOCK == 0)
            memcpy(S, r->in[SN_REC_START]->data + lead * r->of_states + i * r->state_row,
                   sizeof *S * (size_t)size);
        memcpy(r->kept + i * size, S, sizeof *S * (size_t)size);
        change_carry(r, t, lead,
                     has_u(&r->r) ? vector(r, sn_recurrence_dy(&r->r) + 1, t, lead) : NULL);
    }
    for (int64_t i = r->T; i-- > 0;) {
        int64_t t = r->r.reverse ? r->T - 1 - i : i;
        for (int j = 0; j < sn_recurrence_n_out(&r->r); j++)
            if (j != 1) at[j] = out[j] + (t * r->lead + lead) * row[j];
        r->S = r->kept + i * size;
        step_back(r, t, lead, at);
    }
    r->S = S;
}

bool eval_recurrence(eval_call *c) {
    const sn_value *v = c->in[SN_REC_V];
    run r = {.r = sn_recurrence_of(c->n),
             .call = c,
             .type = v->dtype,
             .bf16 = sn_attr_get(c->n, SN_A_compute) && !sn_eval_has_numbers(c),
             .T = v->shape[0],
             .lead = 1,
             .in = c->in};
    const sn_value *start = c->in[sn_recurrence_carry(&r.r, c->n->n_in)];
    for (int a = 0; a < r.r.n_lead; a++) r.lead *= start->shape[a];
    r.K = start->shape[r.r.n_lead];
    r.V = start->shape[r.r.n_lead + 1];
    r.n_g = c->in[SN_REC_G]->shape[v->rank - 1];
    double *out[SN_MAX_RESULTS] = {NULL};
    int64_t row[SN_MAX_RESULTS];
    for (int i = 0; i < c->n->n_result; i++) {
        const sn_node *like = c->n->result_type[i];
        int64_t shape[SN_MAX_RANK];
        eval_call one = *c;
        one.out += i;
        for (int a = 0; a < like->rank; a++) shape[a] = sn_eval_dim(c, like->shape[a]);
        row[i] = shape[like->rank - 1];
        out[i] = sn_eval_alloc(&one, start->dtype, like->rank, shape);
        if (!out[i]) return false;
        if (!r.r.gradient && i == sn_recurrence_states(&r.r))
            memset(out[i], 0, sizeof *out[i] * (size_t)one.out->n);
    }
    const sn_value *states =
        r.r.gradient ? c->in[SN_REC_START] : &c->out[sn_recurrence_states(&r.r)];
    r.state_row = states->shape[r.r.n_lead + 1];
    r.of_states = states->shape[r.r.n_lead] * r.state_row;
    const int64_t size = r.K * r.V, n_kept = r.r.gradient ? size * (r.T + 1) : 0;
    r.u = malloc(sizeof *r.u * (size_t)(r.V + n_kept + 1));
    if (!r.u) return sn_eval_fail(c, SN_ERR_MEMORY, "out of memory");
    r.kept = r.u + r.V;
    for (int64_t lead = 0; lead < r.lead; lead++) {
        double *carry = out[1] + lead * size;
        if (size) memcpy(carry, start->data + lead * size, sizeof *carry * (size_t)size);
        r.S = carry;
        if (r.r.gradient) {
            r.R = carry;
            r.S = r.kept + r.T * size;
            run_back(&r, lead, out, row);
        } else {
            run_forward(&r, lead, out, row);
        }
    }
    free(r.u);
    return true;
}
