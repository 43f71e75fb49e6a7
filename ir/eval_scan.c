/* eval_scan.c: the value of a scan, by running its body element by element. */
#include "ir/eval_impl.h"

#include <stdlib.h>
#include <string.h>

typedef struct run {
    eval_call *c;
    sn_scan s;
    int64_t length;
    int64_t parts[SN_MAX_RANK], part[SN_MAX_RANK]; /* of each independent axis: number, current */
    sn_value *arg;                                 /* [n_in] what the body takes */
    double **next; /* [n_carry] of the next element: a result may be another carry's block */
} run;

static int64_t count(int rank, const int64_t *shape) {
    int64_t n = 1;
    for (int i = 0; i < rank; i++) n *= shape[i];
    return n;
}

/* Copies a part of a tensor to or from a contiguous block: operand or result i, element t if it is a
 * sequence. */
static void move_part(const run *r, int i, bool sequence, int64_t t, const sn_value *whole,
                      const sn_value *block, bool store) {
    int rank = block->rank;
    int64_t start[SN_MAX_RANK] = {0}, stride[SN_MAX_RANK], at[SN_MAX_RANK] = {0}, step = 1;
    for (int a = rank - 1; a >= 0; a--) {
        stride[a] = step;
        step *= whole->shape[a + sequence];
    }
    for (int k = 0; k < r->s.n_tile; k++) {
        int a = sn_scan_tile(&r->s, i, k);
        if (a >= 0) start[a] = r->part[k] * block->shape[a];
    }
    double *base = whole->data + (sequence ? t * step : 0);
    for (int64_t e = 0; e < block->n; e++) {
        int64_t place = 0;
        for (int a = 0; a < rank; a++) place += (start[a] + at[a]) * stride[a];
        if (store)
            base[place] = block->data[e];
        else
            block->data[e] = base[place];
        for (int a = rank - 1; a >= 0 && ++at[a] == block->shape[a]; a--) at[a] = 0;
    }
}

/* Runs the body over the whole sequence for one part of the independent axes. */
static bool run_part(run *r) {
    const sn_scan *s = &r->s;
    const sn_region *body = s->body;
    eval_call *c = r->c;
    for (int i = 0; i < s->n_in; i++)
        if (!sn_scan_is_sequence(s, i)) move_part(r, i, false, 0, c->in[i], &r->arg[i], false);
    for (int64_t k = 0; k < r->length; k++) {
        int64_t t = s->reverse ? r->length - 1 - k : k;
        sn_value out[SN_MAX_RESULTS];
        for (int i = s->n_carry; i < s->n_carry + s->n_sequence; i++)
            move_part(r, i, true, t, c->in[i], &r->arg[i], false);
        if (!sn_eval_region(c, body, r->arg, out)) return false;
        for (int i = s->n_carry; i < body->n_out; i++)
            move_part(r, s->n_in + i, true, t, &c->out[i], &out[i], true);
        for (int i = 0; i < s->n_carry; i++)
            if (out[i].n) memcpy(r->next[i], out[i].data, sizeof *r->next[i] * (size_t)out[i].n);
        for (int i = 0; i < s->n_carry; i++) {
            double *old = r->arg[i].data;
            r->arg[i].data = r->next[i];
            r->next[i] = old;
        }
    }
    for (int i = 0; i < s->n_carry; i++)
        move_part(r, s->n_in + i, false, 0, &c->out[i], &r->arg[i], true);
    return true;
}

/* The results, and blocks for what the body takes. */
static bool prepare(run *r) {
    eval_call *c = r->c;
    const sn_scan *s = &r->s;
    for (int k = 0; k < s->n_tile; k++) r->parts[k] = 1;
    for (int i = 0; i < s->n_in; i++) {
        const sn_node *type = s->body->arg[i];
        bool sequence = sn_scan_is_sequence(s, i);
        sn_value *v = &r->arg[i];
        *v = (sn_value){.dtype = (sn_dtype)type->dtype, .rank = type->rank};
        for (int a = 0; a < type->rank; a++) v->shape[a] = sn_eval_dim(c, type->shape[a]);
        v->n = count(v->rank, v->shape);
        v->data = calloc((size_t)v->n + 1, sizeof *v->data);
        if (i < s->n_carry) r->next[i] = calloc((size_t)v->n + 1, sizeof *v->data);
        if (!v->data || (i < s->n_carry && !r->next[i]))
            return sn_eval_fail(c, SN_ERR_MEMORY, "out of memory");
        for (int k = 0; k < s->n_tile; k++) {
            int a = sn_scan_tile(s, i, k);
            if (a >= 0) r->parts[k] = c->in[i]->shape[a + sequence] / v->shape[a];
        }
    }
    sn_value *first = c->out;
    for (int i = 0; i < c->n->n_result; i++) {
        const sn_node *type = c->n->n_result > 1 ? c->n->result_type[i] : c->n;
        int64_t shape[SN_MAX_RANK];
        for (int a = 0; a < type->rank; a++) shape[a] = sn_eval_dim(c, type->shape[a]);
        c->out = first + i;
        bool ok = sn_eval_alloc(c, (sn_dtype)type->dtype, type->rank, shape) != NULL;
        c->out = first;
        if (!ok) return false;
    }
    return true;
}

bool eval_scan(eval_call *c) {
    run r = {.c = c, .s = sn_scan_of(c->n)};
    int64_t parts = 1;
    r.length = c->in[r.s.n_carry]->shape[0];
    r.arg = calloc((size_t)r.s.n_in + 1, sizeof *r.arg);
    r.next = calloc((size_t)r.s.n_carry + 1, sizeof *r.next);
    bool ok = r.arg && r.next ? prepare(&r) : sn_eval_fail(c, SN_ERR_MEMORY, "out of memory");
    for (int k = 0; ok && k < r.s.n_tile; k++) parts *= r.parts[k];
    for (int64_t p = 0; ok && p < parts; p++) {
        ok = run_part(&r);
        for (int k = r.s.n_tile - 1; k >= 0 && ++r.part[k] == r.parts[k]; k--) r.part[k] = 0;
    }
    for (int i = 0; r.arg && i < r.s.n_in; i++) free(r.arg[i].data);
    for (int i = 0; r.next && i < r.s.n_carry; i++) free(r.next[i]);
    free(r.arg);
    free(r.next);
    return ok;
}
