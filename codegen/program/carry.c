/* carry.c: see carry.h. Every exchange is an all_to_all of the communicator: in a collective_permute
 * one rank's part is the whole tensor and the others are empty. */
#include "codegen/program/carry.h"

#include <stdlib.h>
#include <string.h>

typedef struct pending {
    struct pending *next;
    const sn_node *node;
    sn_comm_request *request;
    size_t list[]; /* [4 size]: where and how long the parts are that are sent, and that come */
} pending;

struct sn_carrier {
    sn_collectives hook; /* first: the session knows this */
    sn_comm *c;
    pending *first;
};

/* The rank that is `shift` further; -1: none. */
static int neighbour(const sn_comm *c, const sn_node *n, int64_t shift) {
    int64_t r = c->rank + shift;
    if (sn_attr_int(n, SN_A_wrap, 0)) r = (r + c->size) % c->size;
    return r >= 0 && r < c->size ? (int)r : -1;
}

/* Fills in the parts of x, `bytes` long. False: it is no exchange. */
static bool lay_out(const sn_comm *c, const sn_collective *x, size_t bytes, pending *p) {
    size_t n = (size_t)c->size, *at = p->list, *send = at + n, *get = send + 2 * n;
    int64_t shift = sn_attr_int(x->node, SN_A_shift, 0);
    if (x->node->op == SN_OP_collective_permute) {
        int from = neighbour(c, x->node, shift), to = neighbour(c, x->node, -shift);
        if (to >= 0) send[to] = bytes;
        if (from >= 0) get[from] = bytes;
        if (from < 0) memset(x->out, 0, bytes);
        return true;
    }
    for (size_t r = 0; r < n; r++) {
        send[r] = get[r] = bytes / n;
        at[r] = at[2 * n + r] = r * (bytes / n);
    }
    bool leading = sn_attr_int(x->node, SN_A_axis, 0) == 0;
    return x->node->op == SN_OP_all_to_all && leading;
}

static bool start(sn_collectives *self, const sn_collective *x, sn_error *err) {
    sn_carrier *k = (sn_carrier *)self;
    size_t n = (size_t)k->c->size, bytes = x->n * sn_dtype_size((sn_dtype)x->node->dtype);
    if (sn_attr_int(x->node, SN_A_ranks, 1) != k->c->size)
        return sn_fail(err, SN_ERR_USAGE, "%s joins %lld ranks, but the communicator has %d",
                       sn_ops[x->node->op].name, (long long)sn_attr_int(x->node, SN_A_ranks, 1),
                       k->c->size);
    if (bytes > SN_COMM_MAX)
        return sn_fail(err, SN_ERR_RANGE, "%s of %zu bytes: a message has at most %zu",
                       sn_ops[x->node->op].name, bytes, SN_COMM_MAX);
    pending *p = calloc(1, sizeof *p + 4 * n * sizeof *p->list);
    if (!p) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    p->node = x->node;
    if (!lay_out(k->c, x, bytes, p)) {
        free(p);
        return sn_fail(err, SN_ERR_USAGE,
                       "%s over ranks: only exchanges between ranks, along the "
                       "first axis, are carried",
                       sn_ops[x->node->op].name);
    }
    size_t *l = p->list;
    p->request = k->c->ops->all_to_all(k->c, x->in, (sn_comm_parts){l, l + n}, x->out,
                                       (sn_comm_parts){l + 2 * n, l + 3 * n}, err);
    if (!p->request) {
        free(p);
        return false;
    }
    p->next = k->first;
    k->first = p;
    return true;
}

static bool finish(sn_collectives *self, const sn_collective *x, sn_error *err) {
    sn_carrier *k = (sn_carrier *)self;
    pending **at = &k->first, *p;
    while (*at && (*at)->node != x->node) at = &(*at)->next;
    if (!(p = *at))
        return sn_fail(err, SN_ERR_INTERNAL, "%s was not started", sn_ops[x->node->op].name);
    *at = p->next;
    bool ok = sn_comm_wait(k->c, p->request, err);
    free(p);
    return ok;
}

sn_carrier *sn_carrier_new(sn_comm *c, sn_error *err) {
    sn_carrier *k = calloc(1, sizeof *k);
    if (k) *k = (sn_carrier){{start, finish}, c, NULL};
    if (!k) sn_fail(err, SN_ERR_MEMORY, "out of memory");
    return k;
}

void sn_carrier_free(sn_carrier *k) {
    for (pending *p = k ? k->first : NULL, *next; p; p = next) {
        next = p->next;
        free(p);
    }
    free(k);
}

sn_collectives *sn_carrier_collectives(sn_carrier *k) {
    return &k->hook;
}
