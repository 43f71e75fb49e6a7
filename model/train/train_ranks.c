/* train_ranks.c: gradients of the slices of a batch, added in the order of the tree of comm.h: first
 * those of one rank, then those of all ranks. */
#include "model/train/train_ranks.h"

#include "ir/ir.h"
#include "runtime/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t train_ranks_slices(int64_t batch) {
    int64_t n = 8; /* a power of 2, so that 1, 2, 4 and 8 ranks have equally many */
    while (n > batch) n /= 2;
    return n;
}

/* A round is a node of the tree of slices: there are as many as a power of 2. */
static bool check_rounds(int zero, int64_t slices, int64_t size, sn_error *err) {
    int64_t rounds = slices / size, fits = size;
    if (slices % size == 0 && !(rounds & (rounds - 1))) return true;
    while (fits < slices) fits *= 2;
    return sn_fail(err, SN_ERR_USAGE,
                   "--zero %d on %lld ranks sums the gradients of as many slices at a time: a "
                   "batch of %lld slices does not consist of 1, 2, 4, ... such sums. Take "
                   "--slices %lld, with at least as many rows (--batch), or --zero 1",
                   zero, (long long)size, (long long)slices, (long long)fits);
}

static bool check_slices(int size, int64_t slices, int64_t batch, sn_error *err) {
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

/* What parts of rows can be computed of. */
static bool check_context(const train_settings *s, sn_error *err) {
    const char *why = s->training.dropout > 0        ? "needs \"dropout\": 0"
                      : s->data.task != SN_TASK_NEXT ? "needs a model that predicts the next token"
                      : s->documents != TRAIN_WHOLE  ? "needs \"documents\": \"whole\""
                      : s->data.block % s->context   ? "must divide the tokens of a row (--block)"
                                                     : NULL;
    return !why || sn_fail(err, SN_ERR_USAGE, "--context %lld %s", (long long)s->context, why);
}

/* Neighbours share a model or rows; ranks with the same share have other slices. */
static bool divide_ranks(train_ranks *r, const train_settings *s, sn_error *err) {
    sn_comm *c = r->comm;
    int64_t tensor = s->tensor, each = tensor * s->context;
    r->data = c;
    if (each < 2) return true;
    if (!c || c->size % each)
        return sn_fail(err, SN_ERR_USAGE,
                       "--%s %lld%s: %d rank%s cannot be divided into groups of %lld: "
                       "mpirun -n %lld",
                       tensor > 1 ? "tensor" : "context",
                       (long long)(tensor > 1 ? tensor : s->context),
                       tensor > 1 && s->context > 1 ? " with --context" : "", c ? c->size : 1,
                       c && c->size > 1 ? "s" : "", (long long)each, (long long)each);
    if (s->context > 1) {
        if (!check_context(s, err)) return false;
        int64_t group = c->rank / each * tensor + c->rank % tensor;
        r->context = c->ops->split(c, (int)group, err);
        if (!r->context || tensor == 1) return r->context != NULL;
    }
    r->tensor = c->ops->split(c, (int)(c->rank / tensor), err);
    r->data = r->tensor ? c->ops->split(c, (int)(c->rank % tensor), err) : NULL;
    return r->data != NULL;
}

bool train_ranks_open(train_ranks *r, sn_comm *c, train_settings *s, sn_error *err) {
    r->comm = c, r->reduction = s->reduction, r->slices = s->slices;
    if (!divide_ranks(r, s, err)) return false;
    int size = r->data ? r->data->size : 1, groups = train_ranks_groups(r);
    int zero = size > 1 ? s->zero : 0;
    int64_t slices = s->slices;
    r->zero = zero;
    r->rounds = zero > 1 && s->training.accumulate <= 1;
    s->training.slices = slices * (size / groups), s->training.zero = zero,
    s->training.ranks = size;
    if (!check_slices(groups, slices, s->data.batch, err) ||
        (r->rounds && !check_rounds(zero, slices, groups, err)))
        return false;
    r->mine = r->rounds ? (sn_leaves){0, slices / groups}
                        : sn_leaves_of_rank(slices, groups, train_ranks_group(r));
    r->record = calloc((size_t)(slices * (size / groups)) + 3 * (size_t)size, sizeof *r->record);
    r->at = calloc(2 * (size_t)size, sizeof *r->at);
    if (!r->record || !r->at) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    r->bytes = r->at + size;
    return true;
}

static int parts_of_rows(const train_ranks *r) {
    return r->context ? r->context->size : 1;
}

int train_ranks_group(const train_ranks *r) {
    return r->data ? r->data->rank / parts_of_rows(r) : 0;
}

int train_ranks_groups(const train_ranks *r) {
    return r->data ? r->data->size / parts_of_rows(r) : 1;
}

bool train_ranks_sum(const train_ranks *r) {
    return r->slices > 1 || r->context;
}

int64_t train_ranks_count(const train_ranks *r, int group) {
    int size = train_ranks_groups(r);
    if (r->rounds) return r->slices / size;
    sn_leaves span = sn_leaves_of_rank(r->slices, size, group);
    return span.last - span.first;
}

int64_t train_ranks_slice(const train_ranks *r, int group, int64_t k) {
    int size = train_ranks_groups(r);
    return r->rounds ? k * size + group : sn_leaves_of_rank(r->slices, size, group).first + k;
}

int train_ranks_of_slice(const train_ranks *r, int64_t slice) {
    int size = train_ranks_groups(r), group = 0;
    int each = (r->tensor ? r->tensor->size : 1) * parts_of_rows(r);
    if (r->rounds) return (int)(slice % size) * each;
    while (slice >= sn_leaves_of_rank(r->slices, size, group).last) group++;
    return group * each;
}

void train_ranks_close(train_ranks *r) {
    sn_error ignored = {0};
    train_ranks_settle(r, &ignored);
    sn_comm_engine_free(r->engine);
    sn_comm_close(r->wire);
    sn_carrier_free(r->carrier);
    if (r->tensor) sn_comm_close(r->data);
    sn_comm_close(r->tensor);
    sn_comm_close(r->context);
    for (int d = 0; d < TRAIN_DEPTH; d++) free(r->partial[d]);
    sn_threads_free(&r->threads);
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

bool train_ranks_same(train_ranks *r, const sn_comm_same *list, int n, sn_error *err) {
    bool ok = sn_comm_check_same(r->comm, list, n, err);
    r->agreed = !ok;
    return ok;
}

/* ---- gradients ---- */

static const struct train_gradient *find_gradient(const train_ranks *r, const char *name,
                                                  size_t length) {
    for (size_t i = 0; i < r->n_gradient; i++)
        if (!strncmp(r->gradient[i].name, name, length) && !r->gradient[i].name[length])
            return &r->gradient[i];
    return NULL;
}

/* A pass over gradients; each thread has its part. */
typedef struct pass {
    const train_ranks *r;
    float *to;
    const float *from; /* NULL: the slice's gradients, from the states, which become zero */
    size_t n;
    bool add;
} pass;

static void move(float *to, const float *from, size_t n, bool add) {
    if (add)
        sn_comm_add(to, from, n);
    else
        memcpy(to, from, n * sizeof *to);
}

/* Piece by piece, so that a piece is in the cache when it becomes zero. */
static void take(float *to, float *from, size_t n, bool add) {
    enum { PIECE = 1 << 14 };
    for (size_t at = 0, each; at < n; at += each) {
        each = n - at < PIECE ? n - at : PIECE;
        move(to + at, from + at, each, add);
        memset(from + at, 0, each * sizeof *from);
    }
}

static void run_pass(void *arg, int64_t tid, int64_t threads) {
    const pass *p = arg;
    size_t begin = p->n * (size_t)tid / (size_t)threads,
           end = p->n * (size_t)(tid + 1) / (size_t)threads;
    if (p->from) move(p->to + begin, p->from + begin, end - begin, p->add);
    for (size_t i = 0; !p->from && i < p->r->n_gradient; i++) {
        const struct train_gradient *g = &p->r->gradient[i];
        size_t first = g->at > begin ? g->at : begin,
               last = g->at + g->n < end ? g->at + g->n : end;
        if (first < last) take(p->to + first, g->data + (first - g->at), last - first, p->add);
    }
}

static void make_pass(pass p) {
    enum { FEW = 1 << 16 }; /* floats: another thread would take longer to wake */
    sn_threads t = p.r->threads;
    if (p.n < FEW)
        run_pass(&p, 0, 1);
    else
        t.run(&t, run_pass, &p);
}

/* The sums of this rank's other slices come to the last one's gradients before the sum over ranks; in
 * rounds, those of this step's other rounds after it. n's name: the parameters, joined by newlines,
 * one after another in x. */
static bool add_partials(void *ctx, const sn_node *n, bool summed, float *x, sn_error *err) {
    train_ranks *r = ctx;
    const char *name = sn_attr_str(n, SN_A_name, "");
    if (summed != r->rounds) return true;
    while (r->depth && *name) {
        size_t length = strcspn(name, "\n");
        const struct train_gradient *g = find_gradient(r, name, length);
        if (!g) return sn_fail(err, SN_ERR_INTERNAL, "no gradient of '%.*s'", (int)length, name);
        for (int d = r->depth - 1; d >= 0; d--)
            make_pass((pass){r, x, r->partial[d] + g->at, g->n, true});
        x += g->n;
        name += length + (name[length] == '\n');
    }
    return true;
}

/* SINTER_DEBUG=network */
static bool delay(sn_comm_engine *e, sn_error *err) {
    const char *network = sn_debug_get()->network;
    double latency, bandwidth; /* microseconds, Gbit/s */
    int end = 0;
    if (!network) return true;
    if (sscanf(network, "%lf:%lf%n", &latency, &bandwidth, &end) != 2 || network[end] ||
        !(latency >= 0 && latency <= 1e6) || !(bandwidth > 0))
        return sn_fail(err, SN_ERR_USAGE,
                       "SINTER_DEBUG: network=%s is not LATENCY:BANDWIDTH in microseconds (at most "
                       "1000000) and Gbit/s, like 50:10",
                       network);
    sn_comm_engine_delay(e, latency * 1e-6, bandwidth * 1e9 / 8);
    return true;
}

bool train_ranks_bind(train_ranks *r, sn_session *s, sn_module *m, int threads, sn_error *err) {
    static const char prefix[] = "gradient.";
    const sn_entry *e = sn_entry_get(m, "accumulate");
    if (!train_ranks_sum(r) && !r->tensor) return true;
    if (!sn_threads_init(&r->threads, threads, err)) return false;
    r->gradient = calloc(e ? (size_t)e->n_assign + 1 : 1, sizeof *r->gradient);
    if (!r->gradient) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    for (int i = 0; e && i < e->n_assign; i++) {
        const char *name = e->assign[i].name;
        float *data = (float *)(uintptr_t)sn_session_memory(s, name);
        size_t n = sn_session_bytes(s, name) / sizeof *data;
        if (strncmp(name, prefix, strlen(prefix)) || !data) continue;
        name += strlen(prefix);
        r->gradient[r->n_gradient++] = (struct train_gradient){name, data, n, r->n};
        r->n += n;
    }
    if (r->data && r->data->size > 1) {
        /* a part of rows is a term of its own */
        int64_t leaves = r->rounds || r->context ? r->data->size : r->slices;
        r->wire = r->data->ops->split(r->data, 0, err);
        r->engine = r->wire ? sn_comm_engine_new(r->wire, r->reduction, leaves, err) : NULL;
        if (!r->engine || !delay(r->engine, err)) return false;
    }
    const sn_carrier_axis axes[] = {{"data", r->data, r->engine, add_partials, r, .leaves = true},
                                    {.mesh = "tensor", .comm = r->tensor},
                                    {.mesh = "context", .comm = r->context}};
    r->carrier = sn_carrier_new(sizeof axes / sizeof *axes, axes, err);
    if (r->carrier) sn_session_set_collectives(s, sn_carrier_collectives(r->carrier));
    return r->carrier != NULL;
}

bool train_ranks_settle(train_ranks *r, sn_error *err) {
    return sn_carrier_settle(r->carrier, err);
}

typedef struct slices {
    bool (*run)(void *ctx, int64_t slice, bool last, sn_error *err);
    void *ctx;
} slices;

/* The number of this rank's slice, or of its slice in a round. */
static int64_t slice_at(const train_ranks *r, int64_t at) {
    return r->rounds ? train_ranks_slice(r, train_ranks_group(r), at) : at;
}

/* The sum of the span's slices or rounds goes to partial[depth], or is added to it. Adding one slice needs
 * no memory for it. */
static bool add_slices(train_ranks *r, sn_leaves span, int depth, bool add, const slices *s,
                       sn_error *err) {
    int64_t count = span.last - span.first;
    int to = add && count > 1 ? depth + 1 : depth;
    if (!r->partial[to]) r->partial[to] = sn_memory_alloc(r->n * sizeof(float) + 1);
    if (!r->partial[to])
        return sn_fail(err, SN_ERR_MEMORY, "out of memory: %zu bytes for gradients",
                       r->n * sizeof(float));
    if (count == 1) {
        if (!s->run(s->ctx, slice_at(r, span.first), false, err)) return false;
        make_pass((pass){r, r->partial[depth], NULL, r->n, add});
        return true;
    }
    sn_leaves half[2];
    sn_leaves_split(span, half);
    if (!add_slices(r, half[0], to, false, s, err) || !add_slices(r, half[1], to, true, s, err))
        return false;
    if (to > depth) make_pass((pass){r, r->partial[depth], r->partial[to], r->n, true});
    return true;
}

/* Bytes that this rank has sent to those with which it shares a model or rows. */
static size_t sent_within(const train_ranks *r) {
    return (r->tensor ? r->tensor->sent : 0) + (r->context ? r->context->sent : 0);
}

bool train_ranks_gradients(train_ranks *r,
                           bool (*slice)(void *ctx, int64_t slice, bool last, sn_error *err),
                           void *ctx, sn_error *err) {
    slices s = {slice, ctx};
    sn_leaves span = r->mine, half[2];
    size_t before = sent_within(r);
    int depth = 0;
    r->depth = 0; /* until the last slice, sums are those of one round */
    for (; span.last - span.first > 1; span = half[1], depth++) {
        sn_leaves_split(span, half);
        if (!add_slices(r, half[0], depth, false, &s, err)) return false;
    }
    r->depth = depth;
    bool ok = slice(ctx, slice_at(r, span.first), true, err);
    r->within += sent_within(r) - before;
    return ok;
}

const char *train_ranks_times(const train_ranks *r, int64_t steps, char *buf, size_t size) {
    buf[0] = 0;
    if (!r->comm || r->comm->size == 1 || steps < 1) return buf;
    double each = 1 / (double)steps, sent = (double)(r->within + (r->wire ? r->wire->sent : 0));
    int n = snprintf(buf, size, "each rank sent %.4g MB a step", sent * each * 1e-6);
    if (!r->engine) return buf;
    sn_comm_times t = sn_comm_engine_times(r->engine);
    snprintf(buf + n, size - (size_t)n,
             "; %.0f %% of the time of the sums of gradients was hidden behind computation, %.3g "
             "ms a step were not",
             100 * (1 - t.waited / (t.busy > 0 ? t.busy : 1)), 1e3 * t.waited * each);
    return buf;
}

/* ---- numbers of all ranks ---- */

bool train_ranks_agree_stop(train_ranks *r, bool *stop, sn_error *err) {
    sn_comm *c = r->tensor ? r->tensor : r->context;
    if (!c) return true;
    char *all = calloc((size_t)c->size, 1);
    if (!all) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    all[c->rank] = *stop;
    bool ok = sn_comm_gather(c, all, 1, err);
    for (int k = 0; ok && k < c->size; k++) *stop |= all[k] != 0;
    free(all);
    return ok;
}

/* Rank k's part of the record: its n numbers, then whether it wants to stop. */
static bool exchange(train_ranks *r, sn_error *err) {
    sn_comm *c = r->data;
    sn_comm_parts parts = {r->at, r->bytes};
    if (!sn_comm_wait(c, c->ops->all_gather(c, r->record, parts, err), err)) return false;
    for (int k = 0; k < c->size; k++)
        r->stop |= r->record[(r->at[k] + r->bytes[k]) / sizeof(double) - 1] != 0;
    return train_ranks_agree_stop(r, &r->stop, err);
}

bool train_ranks_losses(train_ranks *r, double *loss, bool stop, sn_error *err) {
    sn_comm *c = r->data;
    r->stop |= stop;
    if (!c) return true;
    int parts = parts_of_rows(r), group = train_ranks_group(r);
    size_t at = 0;
    for (int k = 0; k < c->size; k++) {
        r->at[k] = at;
        r->bytes[k] = ((size_t)train_ranks_count(r, k / parts) + 1) * sizeof(double);
        at += r->bytes[k];
    }
    double *mine = r->record + r->at[c->rank] / sizeof(double);
    for (int64_t i = 0; i < train_ranks_count(r, group); i++)
        *mine++ = loss[train_ranks_slice(r, group, i)];
    *mine = stop;
    if (!exchange(r, err)) return false;
    for (int64_t i = 0; i < r->slices; i++) loss[i] = 0;
    for (int k = 0; k < c->size; k++)
        for (int64_t i = 0; i < train_ranks_count(r, k / parts); i++)
            loss[train_ranks_slice(r, k / parts, i)] +=
                r->record[r->at[k] / sizeof(double) + (size_t)i];
    return true;
}

bool train_ranks_pairs(train_ranks *r, const double mine[2], bool stop, double *all,
                       sn_error *err) {
    sn_comm *c = r->data;
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

bool train_share(train_ranks *r, const train_tensors *t, train_state *state, sn_error *err) {
    sn_comm *c = r->comm;
    if (!c || c->size == 1) return true;
    for (size_t i = 0; i < t->count; i++)
        if (!sn_comm_broadcast(c, t->tensor[i].memory, train_tensor_bytes(&t->tensor[i]), 0, err))
            return false;
    return sn_comm_broadcast(c, state, sizeof *state, 0, err);
}
