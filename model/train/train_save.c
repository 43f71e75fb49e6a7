/* train_save.c: writes the trained model. If the ranks divide the parameters, rank 0 asks for one after
 * the other, in the order of the file, and all gather it: no more than one is whole at a time. */
#include "model/train/train_ranks.h"

#include "runtime/memory.h"
#include "runtime/model_dir.h"

#include <stdlib.h>
#include <string.h>

typedef struct gathering {
    train_ranks *ranks;
    sn_comm *comm; /* those that have the parts of one model: a group, or with ZeRO 3 all ranks */
    const train_tensors *tensors;
    const train_start *start;
    bool averaged; /* the averages of the parameters, not their last values */
    float *whole;  /* of the present tensor */
    bool failed;   /* rank 0 has not got a tensor */
} gathering;

static bool gather_rows(gathering *g, const train_tensor *x, sn_error *err) {
    enum { PIECE = 1 << 22 };
    sn_comm *c = g->ranks->data;
    size_t row = x->row_bytes / sizeof(float), n = x->whole.bytes / sizeof(float);
    size_t part = ((size_t)x->rows + (size_t)c->size - 1) / (size_t)c->size * row;
    sn_comm_sum sum = {0};
    bool ok = true, done;
    g->whole = sn_memory_alloc(x->whole.bytes);
    if (!sn_comm_agree(c,
                       g->whole || sn_fail(err, SN_ERR_MEMORY, "out of memory: %zu bytes for '%s'",
                                           x->whole.bytes, x->whole.name),
                       err))
        return false;
    memcpy(g->whole + (size_t)x->first * row, x->memory, train_tensor_bytes(x));
    for (size_t at = 0; ok && at < part; at += PIECE) {
        size_t count = part - at < PIECE ? part - at : PIECE;
        sn_comm_shares shares = {g->whole, n, part};
        ok = sn_comm_gather_start(&sum, c, shares, at, count, err) &&
             sn_comm_sum_test(&sum, true, &done, err);
    }
    sn_comm_sum_free(&sum);
    return ok;
}

static bool gather(gathering *g, const train_tensor *x, sn_error *err) {
    void *whole = NULL;
    free(g->whole);
    g->whole = NULL;
    if (!x->share.ranks) return gather_rows(g, x, err);
    bool ok = train_share_collect(g->ranks, x, &whole, err);
    g->whole = whole;
    return ok;
}

/* Rank 0 says which tensor comes next; -1: no more. */
static bool next_tensor(gathering *g, int64_t *i, sn_error *err) {
    return sn_comm_broadcast(g->comm, i, sizeof *i, 0, err) &&
           (*i < 0 || gather(g, &g->tensors->tensor[*i], err));
}

/* What is saved of a parameter; NULL: it is not trained. */
static const train_tensor *saved(const gathering *g, const char *name) {
    static const char prefix[] = "optimizer.average.";
    for (size_t i = 0; g->averaged && i < g->tensors->count; i++) {
        const train_tensor *x = &g->tensors->tensor[i];
        if (!strncmp(x->whole.name, prefix, strlen(prefix)) &&
            !strcmp(x->whole.name + strlen(prefix), name))
            return x;
    }
    return g->averaged ? NULL : train_tensors_find(g->tensors, name);
}

/* The data of parameter i, one that is divided. */
static const void *fetch(void *ctx, size_t i, sn_error *err) {
    gathering *g = ctx;
    const char *name = g->start->whole.weight[i].name;
    int64_t at = saved(g, name) - g->tensors->tensor;
    g->failed = !next_tensor(g, &at, err);
    return g->failed ? NULL : g->whole;
}

static bool write_model(gathering *g, const char *folder, sn_config *config, sn_error *err) {
    const sn_parameters *p = &g->start->whole;
    const sn_weights_progress source = {.data = fetch, .ctx = g};
    sn_weight *list = calloc(p->count + 1, sizeof *list);
    for (size_t i = 0; list && i < p->count; i++) {
        const train_tensor *x = saved(g, p->weight[i].name);
        list[i] = p->weight[i];
        if (!x)
            list[i].data = train_start_own(g->start, list[i].name)->data;
        else if (!x->divided)
            list[i].data = x->memory;
    }
    bool ok = list ? sn_model_dir_save_with(folder, config, list, p->count, &source, err)
                   : sn_fail(err, SN_ERR_MEMORY, "out of memory");
    free(list);
    return ok;
}

static bool any_divided(const gathering *g) {
    bool any = false;
    for (size_t i = 0; i < g->start->whole.count; i++) {
        const train_tensor *x = saved(g, g->start->whole.weight[i].name);
        any |= x && x->divided;
    }
    return any;
}

bool train_save_model(train_ranks *r, const train_tensors *t, const train_start *start,
                      bool averaged, const char *folder, sn_config *config, sn_error *err) {
    bool group = r->tensor && r->zero < 3;
    gathering g = {.ranks = r,
                   .comm = group ? r->tensor : r->comm,
                   .tensors = t,
                   .start = start,
                   .averaged = averaged};
    bool parts = any_divided(&g), leads = train_ranks_leads(r), ok = true;
    int64_t i = 0;
    if (!train_ranks_settle(r, err)) return false;
    if (group && r->data->rank) return true; /* another group does */
    if (leads) ok = write_model(&g, folder, config, err);
    if (leads && parts && !g.failed) {
        sn_error late = {0};
        i = -1;
        if (!next_tensor(&g, &i, ok ? err : &late)) ok = false;
    }
    while (!leads && parts && ok && i >= 0) ok = next_tensor(&g, &i, err);
    free(g.whole);
    return ok;
}
