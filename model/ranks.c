/* ranks.c: ranks that run one language model together: the collectives of their sessions, and the calls
 * that rank 0 sends to the others. */
#include "model/ranks.h"

#include "ir/ir.h"

#include <stdlib.h>
#include <string.h>

/* A collective under way. */
typedef struct operation {
    const sn_node *node; /* NULL: free */
    sn_comm_sum sum;
    sn_comm_request *gather;
    size_t *at, *bytes; /* [size each] the ranks' parts of a gather */
} operation;

struct lm_ranks {
    sn_collectives hook; /* first: the session knows this */
    sn_comm *comm;
    const char *mesh;
    operation *list;
    int n;
    sn_lm_engine inner; /* of the leader */
};

/* ---- collectives ---- */

static operation *find(lm_ranks *r, const sn_node *node) {
    for (int i = 0; i < r->n; i++)
        if (r->list[i].node == node) return &r->list[i];
    return NULL;
}

/* A free one. Others may move. */
static operation *take(lm_ranks *r, sn_error *err) {
    operation *o = find(r, NULL);
    if (o) return o;
    operation *grown = realloc(r->list, sizeof *grown * (size_t)(r->n + 1));
    if (grown) r->list = grown, grown[r->n] = (operation){0};
    size_t *parts = grown ? calloc(2 * (size_t)r->comm->size, sizeof *parts) : NULL;
    if (!parts) {
        sn_fail(err, SN_ERR_MEMORY, "out of memory");
        return NULL;
    }
    o = &grown[r->n++];
    o->at = parts, o->bytes = parts + r->comm->size;
    return o;
}

/* The parts follow each other: the axis is the first one of more than one element. */
static bool start_gather(lm_ranks *r, operation *o, const sn_collective *c, sn_error *err) {
    size_t bytes = c->n * sn_dtype_size((sn_dtype)c->node->dtype);
    for (int k = 0; k < r->comm->size; k++) o->at[k] = (size_t)k * bytes, o->bytes[k] = bytes;
    memcpy((char *)c->out + o->at[r->comm->rank], c->in, bytes);
    o->gather = r->comm->ops->all_gather(r->comm, c->out, (sn_comm_parts){o->at, o->bytes}, err);
    return o->gather != NULL;
}

static bool start(sn_collectives *self, const sn_collective *c, sn_error *err) {
    lm_ranks *r = (lm_ranks *)self;
    const sn_node *n = c->node;
    bool sum = n->op == SN_OP_all_reduce && n->dtype == SN_F32;
    bool gather = n->op == SN_OP_all_gather && !sn_attr_int(n, SN_A_axis, 0);
    if (strcmp(sn_attr_str(n, SN_A_mesh, ""), r->mesh) != 0 ||
        sn_attr_int(n, SN_A_ranks, 1) != r->comm->size || (!sum && !gather))
        return sn_fail(err, SN_ERR_USAGE, "%s over %lld ranks of \"%s\" cannot run on %d of \"%s\"",
                       sn_ops[n->op].name, (long long)sn_attr_int(n, SN_A_ranks, 1),
                       sn_attr_str(n, SN_A_mesh, ""), r->comm->size, r->mesh);
    operation *o = take(r, err);
    if (!o) return false;
    o->node = n;
    if (gather) return start_gather(r, o, c, err);
    if (c->in != c->out) memcpy(c->out, c->in, c->n * sizeof(float));
    return sn_comm_sum_start(&o->sum, r->comm, SN_REDUCE_EXACT, r->comm->size, c->out, c->n, err);
}

static bool wait(sn_collectives *self, const sn_collective *c, sn_error *err) {
    lm_ranks *r = (lm_ranks *)self;
    operation *o = find(r, c->node);
    bool done;
    if (!o) return sn_fail(err, SN_ERR_INTERNAL, "no such operation is under way");
    o->node = NULL;
    if (!o->gather) return sn_comm_sum_test(&o->sum, true, &done, err);
    sn_comm_request *gather = o->gather;
    o->gather = NULL;
    return sn_comm_wait(r->comm, gather, err);
}

lm_ranks *lm_ranks_new(sn_comm *c, const char *mesh, sn_error *err) {
    lm_ranks *r = calloc(1, sizeof *r);
    if (!r) sn_fail(err, SN_ERR_MEMORY, "out of memory");
    if (r) *r = (lm_ranks){.hook = {start, wait}, .comm = c, .mesh = mesh};
    return r;
}

void lm_ranks_free(lm_ranks *r) {
    if (!r) return;
    for (int i = 0; i < r->n; i++) {
        sn_comm_sum_free(&r->list[i].sum);
        free(r->list[i].at);
    }
    free(r->list);
    free(r);
}

void lm_ranks_bind(lm_ranks *r, sn_session *s) {
    sn_session_set_collectives(s, &r->hook);
}

/* ---- calls ---- */

typedef enum call_kind { CALL_CLOSE, CALL_FEED, CALL_STEP, CALL_REORDER } call_kind;

/* What rank 0 sends, and after it n integers, twice n of a step. */
typedef struct call {
    int64_t kind, row, past, n;
} call;

static size_t words_of(const call *c) {
    return (size_t)c->n * (c->kind == CALL_STEP ? 2 : 1);
}

/* Whether all ranks have done it. */
static bool agree(lm_ranks *r, bool ok, sn_error *err) {
    sn_comm *c = r->comm;
    char *all = calloc((size_t)c->size, 1);
    sn_error why = {0};
    bool every = true;
    if (!all) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    all[c->rank] = !ok;
    bool known = sn_comm_gather(c, all, 1, &why);
    for (int i = 0; i < c->size; i++) every &= !all[i];
    free(all);
    if (!known) return sn_fail(err, why.code, "%s", why.message);
    return every || sn_comm_agree(c, ok, err);
}

static bool run(lm_ranks *r, const sn_lm_engine *e, const call *c, const int32_t *words,
                float *logits, sn_error *err) {
    bool ok = c->kind == CALL_FEED   ? e->feed(e->model, c->row, c->past, words, c->n, logits, err)
              : c->kind == CALL_STEP ? e->step(e->model, c->n, words, words + c->n, logits, err)
                                     : e->reorder(e->model, c->row, c->n, words, c->past, err);
    return agree(r, ok, err);
}

/* ---- rank 0 ---- */

/* ids and, of a step, past: [n] each */
static bool send(lm_ranks *r, call c, const int32_t *ids, const int32_t *past, float *logits,
                 sn_error *err) {
    int32_t *words = malloc(words_of(&c) * sizeof *words + 1);
    if (!words) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    memcpy(words, ids, (size_t)c.n * sizeof *words);
    if (past) memcpy(words + c.n, past, (size_t)c.n * sizeof *words);
    bool ok = sn_comm_broadcast(r->comm, &c, sizeof c, 0, err) &&
              sn_comm_broadcast(r->comm, words, words_of(&c) * sizeof *words, 0, err) &&
              run(r, &r->inner, &c, words, logits, err);
    free(words);
    return ok;
}

static bool lead_feed(void *model, int64_t row, int64_t past, const int32_t *ids, int64_t n,
                      float *logits, sn_error *err) {
    return send(model, (call){CALL_FEED, row, past, n}, ids, NULL, logits, err);
}

static bool lead_step(void *model, int64_t n, const int32_t *ids, const int32_t *past,
                      float *logits, sn_error *err) {
    return send(model, (call){CALL_STEP, 0, 0, n}, ids, past, logits, err);
}

static bool lead_reorder(void *model, int64_t first, int64_t n, const int32_t *parents,
                         int64_t past, sn_error *err) {
    return send(model, (call){CALL_REORDER, first, past, n}, parents, NULL, NULL, err);
}

static void lead_close(void *model) {
    lm_ranks *r = model;
    call c = {.kind = CALL_CLOSE};
    sn_error ignored = {0};
    sn_comm_broadcast(r->comm, &c, sizeof c, 0, &ignored);
    if (r->inner.close) r->inner.close(r->inner.model);
}

void lm_ranks_lead(lm_ranks *r, sn_lm_engine *e) {
    r->inner = *e;
    e->model = r;
    e->feed = lead_feed;
    e->step = e->step ? lead_step : NULL;
    e->reorder = e->reorder ? lead_reorder : NULL;
    e->close = lead_close;
}

/* ---- the other ranks ---- */

bool lm_ranks_serve(lm_ranks *r, const sn_lm_engine *e, sn_error *err) {
    float *logits = malloc(sizeof *logits * (size_t)(e->rows * e->vocab) + 1);
    bool ok = logits || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    while (ok) {
        call c;
        if (!(ok = sn_comm_broadcast(r->comm, &c, sizeof c, 0, err)) || c.kind == CALL_CLOSE) break;
        int32_t *words = malloc(words_of(&c) * sizeof *words + 1);
        sn_error known = {0}; /* by rank 0, which tells */
        ok = (words || sn_fail(err, SN_ERR_MEMORY, "out of memory")) &&
             sn_comm_broadcast(r->comm, words, words_of(&c) * sizeof *words, 0, err);
        if (ok) run(r, e, &c, words, logits, &known);
        free(words);
    }
    free(logits);
    return ok;
}
