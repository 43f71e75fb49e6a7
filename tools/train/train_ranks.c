/* train_ranks.c: gradients of the slices of a batch, added in the order of the tree of comm.h: first
 * those of one rank, then those of all ranks. */
#include "tools/train/train_ranks.h"

#include "codegen/program/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKET = 4 << 20 /* floats; a sum over ranks waits for one bucket while others move */ };

int64_t train_ranks_slices(int64_t batch) {
    int64_t n = 8; /* a power of 2, so that 1, 2, 4 and 8 ranks have equally many */
    while (n > batch) n /= 2;
    return n;
}

static bool check_slices(const sn_comm *c, int64_t slices, int64_t batch, sn_error *err) {
    int size = c ? c->size : 1;
    if (slices > batch)
        return sn_fail(err, SN_ERR_USAGE,
                       "%lld slices: a batch has only %lld rows. Take fewer slices (--slices) or a "
                       "larger batch (--batch)",
                       (long long)slices, (long long)batch);
    if (slices < size)
        return sn_fail(err, SN_ERR_USAGE,
                       "%d ranks: a batch has only %lld slices, and each rank needs one: "
                       "--slices %d, with at least as many rows (--batch)",
                       size, (long long)slices, size);
    return true;
}

bool train_ranks_open(train_ranks *r, sn_comm *c, sn_reduction reduction, int64_t slices,
                      int64_t batch, sn_error *err) {
    int size = c ? c->size : 1;
    r->comm = c, r->reduction = reduction, r->slices = slices;
    if (!check_slices(c, slices, batch, err)) return false;
    r->mine = sn_span_of_rank(slices, size, c ? c->rank : 0);
    r->record = calloc((size_t)slices + 3 * (size_t)size, sizeof *r->record);
    r->at = calloc(2 * (size_t)size, sizeof *r->at);
    if (!r->record || !r->at) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    r->bytes = r->at + size;
    return true;
}

void train_ranks_close(train_ranks *r) {
    for (int k = 0; k < TRAIN_SUMS; k++) sn_comm_sum_free(&r->sum[k]);
    for (int d = 0; d < TRAIN_DEPTH; d++) free(r->partial[d]);
    free(r->gradient);
    free(r->record);
    free(r->at);
}

bool train_ranks_leads(const train_ranks *r) {
    return !r->comm || r->comm->rank == 0;
}

bool train_ranks_agree(train_ranks *r, bool ok, sn_error *err) {
    if (r->agreed) return ok; /* all ranks end */
    bool all = sn_comm_agree(r->comm, ok, err);
    r->agreed = !all;
    return all;
}

const char *train_ranks_name(const train_ranks *r, int rank, char *buf, size_t size) {
    buf[0] = 0;
    if (r->comm && r->comm->size > 1)
        snprintf(buf, size, "rank %d on %s", rank, r->comm->host[rank]);
    return buf;
}

bool train_ranks_same(train_ranks *r, const train_same *list, int n, sn_error *err) {
    sn_comm *c = r->comm;
    if (!c) return true;
    uint64_t *all = calloc((size_t)c->size * (size_t)n, sizeof *all);
    if (!all) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    for (int i = 0; i < n; i++) all[c->rank * n + i] = list[i].hash;
    bool ok = sn_comm_gather(c, all, (size_t)n * sizeof *all, err);
    for (int k = 1; ok && k < c->size; k++)
        for (int i = 0; ok && i < n; i++)
            if (all[k * n + i] != all[i])
                ok = sn_fail(err, SN_ERR_USAGE,
                             "rank %d on %s has not the same %s as rank 0 on %s: %s", k, c->host[k],
                             list[i].what, c->host[0], list[i].hint);
    free(all);
    r->agreed = !ok;
    return ok;
}

/* ---- gradients ---- */

bool train_ranks_bind(train_ranks *r, sn_session *s, const sn_weight *parameter, size_t count,
                      sn_error *err) {
    char name[512];
    if (r->slices == 1) return true;
    r->gradient = calloc(count + 1, sizeof *r->gradient);
    if (!r->gradient) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < count; i++) {
        snprintf(name, sizeof name, "gradient.%s", parameter[i].name);
        float *data = (float *)(uintptr_t)sn_session_memory(s, name);
        size_t n = (size_t)sn_weight_elements(&parameter[i]);
        if (data) r->gradient[r->n_gradient++] = (struct train_gradient){data, n};
        if (data) r->n += n;
    }
    return true;
}

/* The slice's gradients from the states, which are then zero. */
static void take(train_ranks *r, float *out) {
    for (size_t i = 0; i < r->n_gradient; out += r->gradient[i++].n) {
        memcpy(out, r->gradient[i].data, r->gradient[i].n * sizeof *out);
        memset(r->gradient[i].data, 0, r->gradient[i].n * sizeof *out);
    }
}

static void give(train_ranks *r, const float *sum) {
    for (size_t i = 0; i < r->n_gradient; sum += r->gradient[i++].n)
        memcpy(r->gradient[i].data, sum, r->gradient[i].n * sizeof *sum);
}

/* partial[depth] becomes the sum of the span's slices. */
static bool add_slices(train_ranks *r, sn_span span, int depth,
                       bool (*slice)(void *ctx, int64_t slice, sn_error *err), void *ctx,
                       sn_error *err) {
    if (!r->partial[depth]) r->partial[depth] = malloc(r->n * sizeof(float) + 1);
    if (!r->partial[depth])
        return sn_fail(err, SN_ERR_MEMORY, "out of memory: %zu bytes for gradients",
                       r->n * sizeof(float));
    if (span.last - span.first == 1) {
        if (!slice(ctx, span.first, err)) return false;
        take(r, r->partial[depth]);
        return true;
    }
    sn_span half[2];
    sn_span_split(span, half);
    if (!add_slices(r, half[0], depth, slice, ctx, err) ||
        !add_slices(r, half[1], depth + 1, slice, ctx, err))
        return false;
    sn_span_add(r->partial[depth], r->partial[depth + 1], r->n);
    return true;
}

static size_t bucket_size(const train_ranks *r, size_t bucket) {
    size_t left = r->n - bucket * BUCKET;
    return left < BUCKET ? left : BUCKET;
}

/* The sum over ranks, several buckets at a time. */
static bool add_ranks(train_ranks *r, sn_error *err) {
    size_t buckets = (r->n + BUCKET - 1) / BUCKET;
    bool done = true;
    for (size_t k = 0; k < buckets + TRAIN_SUMS; k++) {
        sn_comm_sum *s = &r->sum[k % TRAIN_SUMS];
        if (k >= TRAIN_SUMS && k - TRAIN_SUMS < buckets && !sn_comm_sum_test(s, true, &done, err))
            return false;
        if (k < buckets && !sn_comm_sum_start(s, r->comm, r->reduction, r->slices,
                                              r->partial[0] + k * BUCKET, bucket_size(r, k), err))
            return false;
    }
    return true;
}

bool train_ranks_gradients(train_ranks *r, bool (*slice)(void *ctx, int64_t slice, sn_error *err),
                           void *ctx, sn_error *err) {
    if (!add_slices(r, r->mine, 0, slice, ctx, err)) return false;
    if (r->comm && !add_ranks(r, err)) return false;
    give(r, r->partial[0]);
    return true;
}

/* ---- numbers of all ranks ---- */

/* Rank k's part of the record: its n numbers, then whether it wants to stop. */
static bool exchange(train_ranks *r, sn_error *err) {
    sn_comm *c = r->comm;
    sn_comm_parts parts = {r->at, r->bytes};
    if (!sn_comm_wait(c, c->ops->all_gather(c, r->record, parts, err), err)) return false;
    for (int k = 0; k < c->size; k++)
        r->stop |= r->record[(r->at[k] + r->bytes[k]) / sizeof(double) - 1] != 0;
    return true;
}

bool train_ranks_losses(train_ranks *r, double *loss, bool stop, sn_error *err) {
    sn_comm *c = r->comm;
    r->stop |= stop;
    if (!c) return true;
    for (int k = 0; k < c->size; k++) {
        sn_span span = sn_span_of_rank(r->slices, c->size, k);
        r->at[k] = (size_t)(span.first + k) * sizeof(double);
        r->bytes[k] = (size_t)(span.last - span.first + 1) * sizeof(double);
    }
    double *mine = r->record + r->at[c->rank] / sizeof(double);
    for (int64_t i = r->mine.first; i < r->mine.last; i++) *mine++ = loss[i];
    *mine = stop;
    if (!exchange(r, err)) return false;
    for (int k = 0; k < c->size; k++)
        memcpy(loss + sn_span_of_rank(r->slices, c->size, k).first, (char *)r->record + r->at[k],
               r->bytes[k] - sizeof(double));
    return true;
}

bool train_ranks_pairs(train_ranks *r, const double mine[2], bool stop, double *all,
                       sn_error *err) {
    sn_comm *c = r->comm;
    r->stop |= stop;
    if (!c) {
        memcpy(all, mine, 2 * sizeof *all);
        return true;
    }
    enum { EACH = 3 };
    for (int k = 0; k < c->size; k++) {
        r->at[k] = (size_t)k * EACH * sizeof(double);
        r->bytes[k] = EACH * sizeof(double);
    }
    double *own = r->record + (size_t)c->rank * EACH;
    own[0] = mine[0], own[1] = mine[1], own[2] = stop;
    if (!exchange(r, err)) return false;
    for (int k = 0; k < c->size; k++) memcpy(all + 2 * k, r->record + k * EACH, 2 * sizeof *all);
    return true;
}

bool train_share(train_ranks *r, sn_session *s, const train_tensors *t, train_state *state,
                 sn_error *err) {
    sn_comm *c = r->comm;
    if (!c || c->size == 1) return true;
    if (!train_tensors_read(t, s, err)) return false;
    for (size_t i = 0; i < t->count; i++) {
        const sn_weight *w = &t->weight[i];
        void *data = (void *)(uintptr_t)w->data;
        if (!sn_comm_broadcast(c, data, w->bytes, 0, err)) return false;
        if (c->rank && !sn_state_write(s, w->name, data, w->bytes, err)) return false;
    }
    return sn_comm_broadcast(c, state, sizeof *state, 0, err);
}
