/* ranks.c: ranks that run one language model together: rank 0 sends its calls to the others. */
#include "model/ranks.h"

#include "codegen/program/carry.h"

#include <stdlib.h>
#include <string.h>

struct lm_ranks {
    sn_carrier *carrier;
    sn_comm *comm;
    sn_lm_engine inner; /* of the leader */
};

lm_ranks *lm_ranks_new(sn_comm *c, const char *mesh, sn_error *err) {
    lm_ranks *r = calloc(1, sizeof *r);
    if (!r) {
        sn_fail(err, SN_ERR_MEMORY, "out of memory");
        return NULL;
    }
    r->comm = c;
    r->carrier = sn_carrier_new(1, &(sn_carrier_axis){.mesh = mesh, .comm = c}, err);
    if (r->carrier) return r;
    free(r);
    return NULL;
}

void lm_ranks_free(lm_ranks *r) {
    if (!r) return;
    sn_carrier_free(r->carrier);
    free(r);
}

void lm_ranks_bind(lm_ranks *r, sn_session *s) {
    sn_session_set_collectives(s, sn_carrier_collectives(r->carrier));
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
