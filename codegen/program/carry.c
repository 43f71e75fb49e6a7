/* carry.c: see carry.h. One row of `carried` for each collective. An exchange is an all_to_all of the
 * communicator: in a collective_permute one rank's part is the whole tensor and the others are empty. */
#include "codegen/program/carry.h"

#include <stdlib.h>
#include <string.h>

/* What is under way on the session's thread. */
typedef struct operation {
    struct operation *next;
    const sn_node *node; /* NULL: none; its memory serves the next one */
    sn_comm_sum sum;
    sn_comm_request *request; /* NULL: it is a sum */
    size_t *list; /* [4 ranks]: where and how long the parts are that go, and that come */
    int ranks;
} operation;

struct sn_carrier {
    sn_collectives hook; /* first: the session knows this */
    operation *first;
    int n_axis;
    sn_carrier_axis axis[];
};

typedef const sn_carrier_axis axis;
typedef const sn_collective call;

static int ranks_of(axis *a) {
    return a->comm ? a->comm->size : 1;
}

static size_t size_of(call *x) {
    return sn_dtype_size((sn_dtype)x->node->dtype);
}

/* ---- each collective ---- */

static bool add_terms(axis *a, call *x, bool summed, float *to, sn_error *err) {
    return !a->terms || a->terms(a->ctx, x->node, summed, to, err);
}

static bool start_all_reduce(axis *a, call *x, operation *o, sn_error *err) {
    if (x->in != x->out) memcpy(x->out, x->in, x->n * sizeof(float));
    if (!add_terms(a, x, false, x->out, err)) return false;
    if (a->engine) return sn_comm_engine_start(a->engine, x->out, x->out, x->n, err);
    return !o || sn_comm_sum_start(&o->sum, a->comm, SN_REDUCE_EXACT, o->ranks, x->out, x->n, err);
}

static bool start_reduce_scatter(axis *a, call *x, operation *o, sn_error *err) {
    float *data = (float *)(uintptr_t)x->in; /* which the plan lets us overwrite */
    sn_comm_shares all = {data, x->n, x->n_out};
    if (!add_terms(a, x, false, data, err)) return false;
    if (a->engine) return sn_comm_engine_scatter(a->engine, x->out, all, x->out, err);
    return sn_comm_scatter_start(&o->sum, a->comm, o->ranks, all, 0, x->n_out, x->out, err);
}

/* Of rank r's part, of `part` elements, the bytes that a whole of n stores; *at: where. */
static size_t stored(call *x, int r, size_t n, size_t part, size_t *at) {
    *at = (size_t)r * part;
    size_t count = *at >= n ? 0 : n - *at < part ? n - *at : part;
    *at = count ? *at * size_of(x) : 0;
    return count * size_of(x);
}

static bool start_all_gather(axis *a, call *x, operation *o, sn_error *err) {
    size_t at, bytes = stored(x, a->comm->rank, x->n_out, x->n, &at);
    if (bytes) memmove((char *)x->out + at, x->in, bytes);
    if (a->engine)
        return sn_comm_engine_gather(a->engine, x->out, (sn_comm_shares){x->out, x->n_out, x->n},
                                     err);
    sn_comm_parts parts = {o->list, o->list + o->ranks};
    for (int r = 0; r < o->ranks; r++)
        o->list[o->ranks + r] = stored(x, r, x->n_out, x->n, &o->list[r]);
    o->request = a->comm->ops->all_gather(a->comm, x->out, parts, err);
    return o->request != NULL;
}

static bool take_own_part(axis *a, call *x, operation *o, sn_error *err) {
    (void)o, (void)err;
    size_t at, bytes = stored(x, a->comm ? a->comm->rank : 0, x->n, x->n_out, &at);
    if (bytes) memmove(x->out, (const char *)x->in + at, bytes);
    memset((char *)x->out + bytes, 0, x->n_out * size_of(x) - bytes);
    return true;
}

/* Starts what the list says. */
static bool exchange(axis *a, call *x, operation *o, sn_error *err) {
    size_t *l = o->list, n = (size_t)o->ranks;
    o->request = a->comm->ops->all_to_all(a->comm, x->in, (sn_comm_parts){l, l + n}, x->out,
                                          (sn_comm_parts){l + 2 * n, l + 3 * n}, err);
    return o->request != NULL;
}

static bool start_all_to_all(axis *a, call *x, operation *o, sn_error *err) {
    size_t *l = o->list, n = (size_t)o->ranks, each = x->n * size_of(x) / n;
    for (size_t r = 0; r < n; r++) {
        l[r] = l[2 * n + r] = r * each;
        l[n + r] = l[3 * n + r] = each;
    }
    return exchange(a, x, o, err);
}

/* The rank that is `shift` further; -1: none. */
static int neighbour(const sn_comm *c, const sn_node *n, int64_t shift) {
    int64_t r = c->rank + shift;
    if (sn_attr_int(n, SN_A_wrap, 0)) r = (r + c->size) % c->size;
    return r >= 0 && r < c->size ? (int)r : -1;
}

static int root_of(call *x) {
    return (int)sn_attr_int(x->node, SN_A_root, 0);
}

static bool start_broadcast(axis *a, call *x, operation *o, sn_error *err) {
    size_t bytes = x->n * size_of(x);
    if (a->comm->rank == root_of(x) && x->in != x->out) memcpy(x->out, x->in, bytes);
    o->request = a->comm->ops->broadcast(a->comm, x->out, bytes, root_of(x), err);
    return o->request != NULL;
}

/* A sum, which ranks but the root forget at the end. */
static bool start_reduce(axis *a, call *x, operation *o, sn_error *err) {
    if (x->in != x->out) memcpy(x->out, x->in, x->n * sizeof(float));
    return sn_comm_sum_start(&o->sum, a->comm, SN_REDUCE_EXACT, o->ranks, x->out, x->n, err);
}

static bool start_permute(axis *a, call *x, operation *o, sn_error *err) {
    int64_t shift = sn_attr_int(x->node, SN_A_shift, 0);
    int from = neighbour(a->comm, x->node, shift), to = neighbour(a->comm, x->node, -shift);
    size_t *l = o->list, n = (size_t)o->ranks, bytes = x->n * size_of(x);
    memset(l, 0, 4 * n * sizeof *l);
    if (to >= 0) l[n + (size_t)to] = bytes;
    if (from >= 0) l[3 * n + (size_t)from] = bytes;
    if (from < 0) memset(x->out, 0, bytes);
    return exchange(a, x, o, err);
}

static void keep_at_root(axis *a, call *x) {
    if (a->comm->rank != root_of(x)) memset(x->out, 0, x->n * sizeof(float));
}

enum {
    SUMS = 1,   /* f32 only */
    TERMS = 2,  /* with those that this process has itself */
    ENGINE = 4, /* an engine carries it, f32 only */
    AT_ONCE = 8 /* complete when it has started */
};

static const struct carried {
    sn_op op;
    int how;
    bool (*start)(axis *a, call *x, operation *o, sn_error *err);
    void (*end)(axis *a, call *x); /* may be NULL */
} carried[] = {{SN_OP_all_reduce, SUMS | TERMS | ENGINE, start_all_reduce, NULL},
               {SN_OP_reduce_scatter, SUMS | TERMS | ENGINE, start_reduce_scatter, NULL},
               {SN_OP_all_gather, ENGINE, start_all_gather, NULL},
               {SN_OP_own_part, AT_ONCE, take_own_part, NULL},
               {SN_OP_all_to_all, 0, start_all_to_all, NULL},
               {SN_OP_collective_permute, 0, start_permute, NULL},
               {SN_OP_collective_broadcast, 0, start_broadcast, NULL},
               {SN_OP_collective_reduce, SUMS, start_reduce, keep_at_root}};

/* ---- the session's calls ---- */

static const struct carried *find_carried(sn_op op) {
    size_t i = 0;
    while (i < sizeof carried / sizeof *carried && carried[i].op != op) i++;
    return i < sizeof carried / sizeof *carried ? &carried[i] : NULL;
}

static axis *find_axis(const sn_carrier *k, const sn_node *n) {
    const char *mesh = sn_attr_str(n, SN_A_mesh, "");
    for (int i = 0; i < k->n_axis; i++)
        if (!k->axis[i].mesh || !strcmp(k->axis[i].mesh, mesh)) return &k->axis[i];
    return NULL;
}

static bool by_engine(axis *a, const struct carried *how) {
    return a->engine && how->how & ENGINE;
}

/* Whether the axis can carry it. */
static bool check(axis *a, const struct carried *how, call *x, sn_error *err) {
    const char *name = sn_ops[x->node->op].name, *mesh = sn_attr_str(x->node, SN_A_mesh, "");
    int64_t ranks = sn_attr_int(x->node, SN_A_ranks, 1);
    bool terms = a && a->terms && x->node->op == SN_OP_all_reduce;
    size_t largest = x->n > x->n_out ? x->n : x->n_out;
    if (!a || (!terms && ranks != ranks_of(a)))
        return sn_fail(err, SN_ERR_USAGE, "%s joins %lld ranks of \"%s\", which has %d", name,
                       (long long)ranks, mesh, a ? ranks_of(a) : 0);
    if (!how || sn_attr_int(x->node, SN_A_axis, 0) != 0)
        return sn_fail(err, SN_ERR_USAGE,
                       "%s over \"%s\": tensors are exchanged along their first axis only", name,
                       mesh);
    if ((how->how & SUMS || by_engine(a, how)) && x->node->dtype != SN_F32)
        return sn_fail(err, SN_ERR_USAGE, "%s over \"%s\" of %s: only f32 is carried", name, mesh,
                       sn_dtype_name((sn_dtype)x->node->dtype));
    if (a->comm && !by_engine(a, how) && !(how->how & AT_ONCE) &&
        largest * size_of(x) > SN_COMM_MAX)
        return sn_fail(err, SN_ERR_RANGE, "%s of %zu bytes: a message has at most %zu", name,
                       largest * size_of(x), SN_COMM_MAX);
    return true;
}

static operation *take(sn_carrier *k, axis *a, sn_error *err) {
    int n = ranks_of(a);
    operation *o = k->first;
    while (o && (o->node || o->ranks != n)) o = o->next;
    if (o) return o;
    o = calloc(1, sizeof *o);
    size_t *list = calloc(4 * (size_t)n, sizeof *list);
    if (!o || !list) {
        free(o), free(list);
        sn_fail(err, SN_ERR_MEMORY, "out of memory");
        return NULL;
    }
    o->list = list, o->ranks = n, o->next = k->first;
    return k->first = o;
}

/* It needs no memory of the session's thread. */
static bool needs_none(axis *a, const struct carried *how) {
    return by_engine(a, how) || how->how & AT_ONCE || !a->comm;
}

static bool start(sn_collectives *self, call *x, sn_error *err) {
    sn_carrier *k = (sn_carrier *)self;
    axis *a = find_axis(k, x->node);
    const struct carried *how = find_carried((sn_op)x->node->op);
    if (!check(a, how, x, err)) return false;
    if (by_engine(a, how)) sn_comm_engine_label(a->engine, sn_attr_str(x->node, SN_A_name, ""));
    operation *o = needs_none(a, how) ? NULL : take(k, a, err);
    if (!o && !needs_none(a, how)) return false;
    if (!how->start(a, x, o, err)) return false;
    if (o) o->node = x->node;
    return true;
}

static bool finish(const sn_carrier *k, axis *a, call *x, sn_error *err) {
    operation *o = k->first;
    bool done;
    while (o && o->node != x->node) o = o->next;
    if (!o) return sn_fail(err, SN_ERR_INTERNAL, "%s was not started", sn_ops[x->node->op].name);
    sn_comm_request *request = o->request;
    o->node = NULL, o->request = NULL;
    return request ? sn_comm_wait(a->comm, request, err)
                   : sn_comm_sum_test(&o->sum, true, &done, err);
}

static bool wait(sn_collectives *self, call *x, sn_error *err) {
    const sn_carrier *k = (const sn_carrier *)self;
    axis *a = find_axis(k, x->node);
    const struct carried *how = find_carried((sn_op)x->node->op);
    bool ok = true;
    if (!check(a, how, x, err)) return false;
    bool leaves = a->leaves && a->engine;
    if (leaves ? x->kind == SN_WAIT_LEAVE : x->kind == SN_WAIT_LEFT) return true;
    if (x->kind == SN_WAIT_LEFT && !sn_comm_engine_carries(a->engine, x->out)) return true;
    if (by_engine(a, how))
        ok = sn_comm_engine_wait(a->engine, x->out, err);
    else if (!needs_none(a, how))
        ok = finish(k, a, x, err);
    if (ok && a->comm && how->end) how->end(a, x);
    return ok && (!(how->how & TERMS) || add_terms(a, x, true, x->out, err));
}

sn_carrier *sn_carrier_new(int n, axis *list, sn_error *err) {
    sn_carrier *k = calloc(1, sizeof *k + (size_t)n * sizeof *list);
    if (!k) {
        sn_fail(err, SN_ERR_MEMORY, "out of memory");
        return NULL;
    }
    k->hook = (sn_collectives){start, wait};
    k->n_axis = n;
    memcpy(k->axis, list, (size_t)n * sizeof *list);
    return k;
}

bool sn_carrier_settle(sn_carrier *k, sn_error *err) {
    for (int i = 0; k && i < k->n_axis; i++)
        if (k->axis[i].engine && !sn_comm_engine_settle(k->axis[i].engine, err)) return false;
    return true;
}

void sn_carrier_free(sn_carrier *k) {
    for (operation *o = k ? k->first : NULL, *next; o; o = next) {
        next = o->next;
        sn_comm_sum_free(&o->sum);
        free(o->list);
        free(o);
    }
    free(k);
}

sn_collectives *sn_carrier_collectives(sn_carrier *k) {
    return &k->hook;
}
