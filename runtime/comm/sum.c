/* sum.c: sums over leaves and ranks in the order of one tree. The bytes of an exact sum are those of
 * a ring [Patarasu & Yuan 2009], and the order of its additions does not depend on the ranks. */
#include "runtime/comm/comm.h"
#include "runtime/threads.h"

#include <stdlib.h>
#include <string.h>

void sn_leaves_split(sn_leaves all, sn_leaves half[2]) {
    int64_t middle = all.first + (all.last - all.first + 1) / 2;
    half[0] = (sn_leaves){all.first, middle};
    half[1] = (sn_leaves){middle, all.last};
}

/* How many of n ranks work on the first half: about its share, at least one, and never more than
 * there are leaves on either side. */
static int ranks_of_first(const sn_leaves half[2], int n) {
    int64_t left = half[0].last - half[0].first, right = half[1].last - half[1].first;
    int64_t first = (n * left + (left + right) / 2) / (left + right);
    if (first < n - right) first = n - right;
    if (first > left) first = left;
    return (int)(first < 1 ? 1 : first > n - 1 ? n - 1 : first);
}

sn_leaves sn_leaves_of_rank(int64_t leaves, int size, int rank) {
    sn_leaves all = {0, leaves}, half[2];
    while (size > 1) {
        sn_leaves_split(all, half);
        int first = ranks_of_first(half, size);
        bool left = rank < first;
        all = half[!left];
        rank -= left ? 0 : first;
        size = left ? first : size - first;
    }
    return all;
}

static void add(float *restrict a, const float *restrict b, size_t n) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) a[i] += b[i];
}

void sn_comm_add(float *a, const float *b, size_t n) {
    uint64_t before = sn_fp_set();
    add(a, b, n);
    sn_fp_restore(before);
}

/* The sum of the ranks' terms, term + r * stride for each of `size` ranks, in the first of them. */
static void add_ranks(float *term, size_t stride, sn_leaves all, int size, size_t n) {
    sn_leaves half[2];
    if (size == 1) return;
    sn_leaves_split(all, half);
    int first = ranks_of_first(half, size);
    float *rest = term + (size_t)first * stride;
    add_ranks(term, stride, half[0], first, n);
    add_ranks(rest, stride, half[1], size - first, n);
    sn_comm_add(term, rest, n);
}

/* ---- over ranks ---- */

/* Rank r owns elements [begin(r), begin(r + 1)) of n, in whole cache lines. */
static size_t begin_of(const sn_comm_sum *s, int rank) {
    enum { LINE = 16 };
    size_t lines = (s->n + LINE - 1) / LINE, at = lines * (size_t)rank / (size_t)s->c->size * LINE;
    return at < s->n ? at : s->n;
}

/* Memory for the lists of parts. */
static bool open_lists(sn_comm_sum *s, sn_error *err) {
    size_t size = (size_t)s->c->size;
    if (s->at) return true;
    s->at = calloc(4 * size, sizeof *s->at);
    if (!s->at) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    s->bytes = s->at + size, s->from = s->at + 2 * size, s->own = s->at + 3 * size;
    return true;
}

/* Memory for what the ranks send; the parts are known. */
static bool open_part(sn_comm_sum *s, sn_error *err) {
    size_t size = (size_t)s->c->size, mine = s->bytes[s->c->rank] / sizeof(float);
    for (int r = 0; r < s->c->size; r++) {
        s->from[r] = (size_t)r * mine * sizeof(float);
        s->own[r] = mine * sizeof(float);
    }
    if (mine * size <= s->room) return true;
    free(s->part);
    s->part = malloc(mine * size * sizeof *s->part);
    s->room = s->part ? mine * size : 0;
    return s->part || sn_fail(err, SN_ERR_MEMORY, "out of memory: %zu bytes to add gradients",
                              mine * size * sizeof *s->part);
}

static bool start_round(sn_comm_sum *s, sn_error *err) {
    if (!open_part(s, err)) return false;
    s->request = s->c->ops->all_to_all(s->c, s->data, (sn_comm_parts){s->at, s->bytes}, s->part,
                                       (sn_comm_parts){s->from, s->own}, err);
    s->round = 1;
    return s->request != NULL;
}

bool sn_comm_sum_start(sn_comm_sum *s, sn_comm *c, sn_reduction how, int64_t leaves, float *data,
                       size_t n, sn_error *err) {
    s->c = c, s->data = data, s->n = n, s->leaves = leaves;
    s->round = 0;
    s->out = NULL;
    s->adds = true;
    if (c->size == 1) return true;
    if (how == SN_REDUCE_FAST) {
        s->request = c->ops->all_reduce(c, data, n, err);
        s->round = 2;
        return s->request != NULL;
    }
    if (!open_lists(s, err)) return false;
    for (int r = 0; r < c->size; r++) {
        s->at[r] = begin_of(s, r) * sizeof(float);
        s->bytes[r] = (begin_of(s, r + 1) - begin_of(s, r)) * sizeof(float);
    }
    return start_round(s, err);
}

/* Elements [first, first + count) of each part, as far as they are stored. */
static bool lay_out(sn_comm_sum *s, sn_comm *c, sn_comm_shares x, size_t first, size_t count,
                    sn_error *err) {
    s->c = c, s->data = x.data, s->n = x.n;
    s->round = 0;
    if (!open_lists(s, err)) return false;
    for (int r = 0; r < c->size; r++) {
        size_t at = (size_t)r * x.part + first, left = at < x.n ? x.n - at : 0;
        s->at[r] = (left ? at : 0) * sizeof(float);
        s->bytes[r] = (left < count ? left : count) * sizeof(float);
    }
    return true;
}

bool sn_comm_scatter_start(sn_comm_sum *s, sn_comm *c, int64_t leaves, sn_comm_shares x,
                           size_t first, size_t count, float *out, sn_error *err) {
    if (!lay_out(s, c, x, first, count, err)) return false;
    s->leaves = leaves, s->out = out;
    s->adds = true;
    s->padding = count - s->bytes[c->rank] / sizeof(float);
    return start_round(s, err);
}

bool sn_comm_gather_start(sn_comm_sum *s, sn_comm *c, sn_comm_shares x, size_t first, size_t count,
                          sn_error *err) {
    if (!lay_out(s, c, x, first, count, err)) return false;
    s->out = NULL;
    s->adds = false;
    s->round = c->size > 1;
    return true;
}

static void copy_from_zero(float *restrict to, const float *restrict from, size_t n) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) to[i] = from[i] + 0.0f;
}

/* The own part of the sum, from what the ranks have sent. Leaves that are added to a state count from 0,
 * so no sum of theirs is -0: neither is this one. */
static void add_parts(sn_comm_sum *s) {
    size_t mine = s->own[0] / sizeof(float);
    add_ranks(s->part, mine, (sn_leaves){0, s->leaves}, s->c->size, mine);
    float *to = s->out ? s->out : s->data + s->at[s->c->rank] / sizeof(float);
    uint64_t before = sn_fp_set();
    copy_from_zero(to, s->part, mine);
    sn_fp_restore(before);
    if (s->out) memset(s->out + mine, 0, s->padding * sizeof *s->out);
}

bool sn_comm_sum_test(sn_comm_sum *s, bool wait, bool *done, sn_error *err) {
    sn_comm *c = s->c;
    *done = s->round == 0;
    while (s->round) {
        if (!c->ops->test(c, &s->request, wait, err)) return false;
        if (s->request) return true;
        if (s->round++ == 2) break;
        if (s->adds) add_parts(s);
        if (s->out) break;
        s->request = c->ops->all_gather(c, s->data, (sn_comm_parts){s->at, s->bytes}, err);
        if (!s->request) return false;
    }
    s->round = 0;
    *done = true;
    return true;
}

void sn_comm_sum_free(sn_comm_sum *s) {
    free(s->part);
    free(s->at);
    *s = (sn_comm_sum){0};
}
