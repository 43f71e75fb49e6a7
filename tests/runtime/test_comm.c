/* test_comm.c: collectives and sums in a fixed order, over simulated ranks. */
#include "runtime/comm/comm.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { LEAVES = 8, N = 1003, MAX_RANKS = 8 };

static float term(int64_t leaf, size_t i) {
    uint32_t x = (uint32_t)(leaf * 7919 + (int64_t)i * 104729 + 1) * 2654435761u;
    x ^= x >> 15;
    return (float)(int32_t)(x * 2246822519u) * 1e-7f + 1e-3f / (float)(leaf + 1);
}

/* The sum of a span in `out`, as the definition says. */
static void add_span(sn_leaves span, float *out) {
    if (span.last - span.first == 1) {
        for (size_t i = 0; i < N; i++) out[i] = term(span.first, i);
        return;
    }
    float *rest = malloc(N * sizeof *rest);
    sn_leaves half[2];
    sn_leaves_split(span, half);
    add_span(half[0], out);
    add_span(half[1], rest);
    sn_comm_add(out, rest, N);
    free(rest);
}

typedef struct job {
    sn_comm *c;
    int64_t leaves;
    sn_reduction how;
    float data[N];
    size_t sent;
    bool ok, agreed;
    sn_error err;
} job;

static void *run_sum(void *arg) {
    job *j = arg;
    sn_comm_sum s = {0};
    bool done = false;
    for (int twice = 0; twice < 2; twice++) { /* the object may be used again */
        add_span(sn_leaves_of_rank(j->leaves, j->c->size, j->c->rank), j->data);
        j->c->sent = 0;
        j->ok = sn_comm_sum_start(&s, j->c, j->how, j->leaves, j->data, N, &j->err) &&
                sn_comm_sum_test(&s, false, &done, &j->err) &&
                (done || sn_comm_sum_test(&s, true, &done, &j->err)) && done;
        j->sent = j->c->sent;
    }
    sn_comm_sum_free(&s);
    sn_comm_close(j->c);
    return NULL;
}

static void *run_others(void *arg) {
    job *j = arg;
    sn_comm *c = j->c;
    int r = c->rank, n = c->size;
    for (int i = 0; i < N; i++) j->data[i] = (float)(r == 1 % n ? i : -1);
    j->ok = sn_comm_broadcast(c, j->data, sizeof j->data, 1 % n, &j->err);
    for (int i = 0; i < N; i++) j->ok &= j->data[i] == (float)i;
    int all[MAX_RANKS] = {0};
    all[r] = 100 + r;
    j->ok &= sn_comm_gather(c, all, sizeof *all, &j->err) && sn_comm_barrier(c, &j->err);
    for (int k = 0; k < n; k++) j->ok &= all[k] == 100 + k;
    bool fails = r >= 2;
    if (fails) sn_fail(&j->err, SN_ERR_FILE, "no space left for %d", r);
    j->agreed = sn_comm_agree(c, !fails, &j->err);
    sn_comm_close(c);
    return NULL;
}

/* Several sums under way at a time; none begins when another rank's does. */
static void *run_engine(void *arg) {
    job *j = arg;
    enum { SUMS = 20 };
    static const size_t size[] = {1, 7, N, 16};
    sn_comm_engine *e = sn_comm_engine_new(j->c, j->how, j->leaves, &j->err);
    float(*data)[N] = calloc(SUMS, sizeof *data);
    j->ok = e && data;
    if (j->how == SN_REDUCE_EXACT && e) sn_comm_engine_delay(e, 1e-4, 1e9);
    for (int k = 0; j->ok && k < SUMS; k++) {
        add_span(sn_leaves_of_rank(j->leaves, j->c->size, j->c->rank), data[k]);
        if ((k + j->c->rank) % 3 == 0) sched_yield();
        j->ok = sn_comm_engine_start(e, data[k], data[k], size[k % 4], &j->err);
    }
    for (int k = SUMS - 1; j->ok && k >= 0; k--) j->ok = sn_comm_engine_wait(e, data[k], &j->err);
    j->agreed = j->ok && !sn_comm_engine_wait(e, j, NULL); /* of a sum that nobody has started */
    for (int k = 0; j->ok && k < SUMS; k++)
        j->agreed &= !memcmp(data[k], j->data, size[k % 4] * sizeof **data);
    sn_comm_times t = e ? sn_comm_engine_times(e) : (sn_comm_times){0};
    j->agreed &= t.bytes > 0 && t.busy > 0 && t.waited > 0;
    sn_comm_engine_free(e);
    free(data);
    sn_comm_close(j->c);
    return NULL;
}

/* Parts of sums, a whole sum between them, and parts back to the whole, all under way at a time. The
 * last rank's part is not full, or empty. */
static void *run_parts(void *arg) {
    job *j = arg;
    sn_comm *c = j->c;
    size_t part = (N + (size_t)c->size - 1) / (size_t)c->size;
    size_t at = (size_t)c->rank * part < N ? (size_t)c->rank * part : N;
    size_t own = part < N - at ? part : N - at;
    sn_comm_engine *e = sn_comm_engine_new(c, j->how, j->leaves, &j->err);
    float *mine = malloc(3 * N * sizeof *mine), *sum = mine + N, *whole = mine + 2 * N;
    float *out = malloc(part * sizeof *out);
    j->ok = e && mine && out;
    for (int i = 0; j->ok && i < N; i++) whole[i] = -1;
    if (j->ok) {
        add_span(sn_leaves_of_rank(j->leaves, c->size, c->rank), mine);
        memcpy(sum, mine, N * sizeof *mine);
        memcpy(whole + at, j->data + at, own * sizeof *whole);
        memset(out, 255, part * sizeof *out);
    }
    j->ok = j->ok &&
            sn_comm_engine_scatter(e, out, (sn_comm_shares){mine, N, part}, out, &j->err) &&
            sn_comm_engine_start(e, sum, sum, N, &j->err) &&
            sn_comm_engine_gather(e, whole, (sn_comm_shares){whole, N, part}, &j->err) &&
            sn_comm_engine_wait(e, whole, &j->err) && sn_comm_engine_wait(e, out, &j->err) &&
            sn_comm_engine_wait(e, sum, &j->err);
    j->agreed = j->ok && !memcmp(out, j->data + at, own * sizeof *out) &&
                !memcmp(whole, j->data, sizeof j->data) &&
                (j->how != SN_REDUCE_EXACT || !memcmp(sum, j->data, sizeof j->data));
    for (size_t i = own; j->agreed && i < part; i++) j->agreed = out[i] == 0;
    sn_comm_engine_free(e);
    free(mine);
    free(out);
    sn_comm_close(c);
    return NULL;
}

static void run_ranks(int n, job *j, void *(*f)(void *)) {
    sn_comm *comm[MAX_RANKS];
    pthread_t thread[MAX_RANKS];
    assert_true(sn_comm_simulate(n, comm, NULL));
    for (int r = 0; r < n; r++) j[r].c = comm[r];
    for (int r = 0; r < n; r++) assert_int_equal(pthread_create(&thread[r], NULL, f, &j[r]), 0);
    for (int r = 0; r < n; r++) pthread_join(thread[r], NULL);
}

static void same_bits_for_any_number_of_ranks(void **state) {
    (void)state;
    static float want[N];
    job *j = calloc(MAX_RANKS, sizeof *j);
    for (int64_t leaves = 1; leaves <= MAX_RANKS; leaves++) {
        add_span((sn_leaves){0, leaves}, want);
        for (int n = 1; n <= leaves; n++) {
            for (int r = 0; r < n; r++) j[r] = (job){.leaves = leaves};
            run_ranks(n, j, run_sum);
            for (int r = 0; r < n; r++) {
                assert_true(j[r].ok);
                assert_memory_equal(j[r].data, want, sizeof want);
            }
        }
    }
    free(j);
}

static void sums_beside_computation(void **state) {
    (void)state;
    job *j = calloc(MAX_RANKS, sizeof *j);
    for (int n = 2; n <= MAX_RANKS; n += 3) {
        for (int r = 0; r < n; r++) {
            j[r] = (job){.leaves = LEAVES};
            add_span((sn_leaves){0, LEAVES}, j[r].data);
        }
        run_ranks(n, j, run_engine);
        for (int r = 0; r < n; r++) assert_true(j[r].ok && j[r].agreed);
    }
    free(j);
}

static void parts_beside_computation(void **state) {
    (void)state;
    job *j = calloc(MAX_RANKS, sizeof *j);
    for (int how = SN_REDUCE_EXACT; how <= SN_REDUCE_FAST; how++)
        for (int n = 1; n <= MAX_RANKS; n++) {
            for (int r = 0; r < n; r++) {
                j[r] = (job){.leaves = LEAVES, .how = (sn_reduction)how};
                add_span((sn_leaves){0, LEAVES}, j[r].data);
            }
            run_ranks(n, j, run_parts);
            for (int r = 0; r < n; r++) assert_true(j[r].ok && j[r].agreed);
        }
    free(j);
}

/* Without a state that it is added to, a slice's -0 counts as 0. */
static void *run_zeros(void *arg) {
    job *j = arg;
    sn_comm_sum s = {0};
    bool done = false;
    for (int i = 0; i < N; i++) j->data[i] = -0.0f;
    j->ok = sn_comm_sum_start(&s, j->c, SN_REDUCE_EXACT, j->c->size, j->data, N, &j->err) &&
            sn_comm_sum_test(&s, true, &done, &j->err);
    sn_comm_sum_free(&s);
    sn_comm_close(j->c);
    return NULL;
}

static void no_sum_of_leaves_is_negative_zero(void **state) {
    (void)state;
    static const float zero[N];
    job *j = calloc(MAX_RANKS, sizeof *j);
    run_ranks(2, j, run_zeros);
    for (int r = 0; r < 2; r++) {
        assert_true(j[r].ok);
        assert_memory_equal(j[r].data, zero, sizeof zero);
    }
    free(j);
}

/* The bytes of a ring, but for parts of whole cache lines. */
static void sums_send_what_a_ring_sends(void **state) {
    (void)state;
    job *j = calloc(MAX_RANKS, sizeof *j);
    for (int n = 2; n <= MAX_RANKS; n *= 2) {
        for (int r = 0; r < n; r++) j[r] = (job){.leaves = LEAVES};
        run_ranks(n, j, run_sum);
        size_t sum = 0, ring = 2 * (size_t)(n - 1) * sizeof j->data;
        for (int r = 0; r < n; r++) sum += j[r].sent;
        assert_int_equal(sum, ring);
    }
    free(j);
}

static void fast_sums_are_close(void **state) {
    (void)state;
    static float want[N];
    job *j = calloc(MAX_RANKS, sizeof *j);
    add_span((sn_leaves){0, LEAVES}, want);
    for (int r = 0; r < 4; r++) j[r] = (job){.leaves = LEAVES, .how = SN_REDUCE_FAST};
    run_ranks(4, j, run_sum);
    for (int i = 0; i < N; i++) assert_float_equal(j[3].data[i], want[i], 1e-2);
    free(j);
}

static void every_leaf_has_one_rank(void **state) {
    (void)state;
    for (int64_t leaves = 1; leaves <= 70; leaves++)
        for (int n = 1; n <= leaves; n++) {
            int64_t at = 0, least = leaves, most = 0;
            for (int r = 0; r < n; r++) {
                sn_leaves s = sn_leaves_of_rank(leaves, n, r);
                assert_int_equal(s.first, at);
                assert_true(s.last > s.first);
                at = s.last;
                if (s.last - s.first < least) least = s.last - s.first;
                if (s.last - s.first > most) most = s.last - s.first;
            }
            assert_int_equal(at, leaves);
            if (!(leaves & (leaves - 1)) && !(n & (n - 1))) assert_int_equal(least, most);
        }
}

static void collectives_and_errors(void **state) {
    (void)state;
    job *j = calloc(MAX_RANKS, sizeof *j);
    for (int n = 1; n <= 4; n++) {
        memset(j, 0, MAX_RANKS * sizeof *j);
        run_ranks(n, j, run_others);
        for (int r = 0; r < n; r++) {
            assert_true(j[r].ok);
            assert_int_equal(j[r].agreed, n < 3);
            if (n > 2)
                assert_string_equal(j[r].err.message, "rank 2 on simulated: no space left for 2");
        }
    }
    free(j);
}

/* Ranks of 2 x 3: neighbours gather, and at the same time those of the same place among neighbours. */
static void *run_groups(void *arg) {
    job *j = arg;
    sn_comm *c = j->c, *row = c->ops->split(c, c->rank / 3, &j->err),
            *column = row ? c->ops->split(c, c->rank % 3, &j->err) : NULL;
    int all[3] = {-1, -1, -1}, same[2] = {-1, -1};
    size_t first[3] = {0, sizeof(int), 2 * sizeof(int)},
           each[3] = {sizeof(int), sizeof(int), sizeof(int)};
    j->ok = column && row->size == 3 && row->rank == c->rank % 3 && column->size == 2 &&
            column->rank == c->rank / 3;
    if (!j->ok) return NULL;
    all[row->rank] = same[column->rank] = c->rank;
    sn_comm_request *r = row->ops->all_gather(row, all, (sn_comm_parts){first, each}, &j->err);
    j->ok = sn_comm_gather(column, same, sizeof *same, &j->err) && sn_comm_wait(row, r, &j->err);
    for (int i = 0; i < 3; i++) j->ok &= all[i] == c->rank / 3 * 3 + i;
    for (int i = 0; i < 2; i++) j->ok &= same[i] == c->rank % 3 + 3 * i;
    sn_comm_close(row);
    sn_comm_close(column);
    sn_comm_close(c);
    return NULL;
}

static void ranks_form_groups(void **state) {
    (void)state;
    job *j = calloc(MAX_RANKS, sizeof *j);
    run_ranks(6, j, run_groups);
    for (int r = 0; r < 6; r++) assert_true(j[r].ok);
    free(j);
}

static void subnormals_are_zero(void **state) {
    (void)state;
    float a[2] = {1e-39f, 1}, b[2] = {1e-39f, 2};
    sn_comm_add(a, b, 2);
    assert_true(a[1] == 3);
#if defined(__x86_64__) || defined(__aarch64__)
    assert_true(a[0] == 0);
#endif
    volatile float tiny = 1e-39f;
    assert_true(tiny * 1.0f != 0); /* the caller's environment is as before */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_for_any_number_of_ranks),
        cmocka_unit_test(sums_beside_computation),
        cmocka_unit_test(parts_beside_computation),
        cmocka_unit_test(no_sum_of_leaves_is_negative_zero),
        cmocka_unit_test(sums_send_what_a_ring_sends),
        cmocka_unit_test(fast_sums_are_close),
        cmocka_unit_test(every_leaf_has_one_rank),
        cmocka_unit_test(collectives_and_errors),
        cmocka_unit_test(ranks_form_groups),
        cmocka_unit_test(subnormals_are_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
