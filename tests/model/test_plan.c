/* test_plan.c: ranks in step with each other (model/plan/predict.c), with times and sums that are made up so
 * that the answers are simple. */
#include "model/plan/plan.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* A step of 10 s that starts a sum of 8e9 bytes after 4 s and waits for it after 9; slices before it take 6 s. */
typedef struct made {
    train_settings settings;
    plan_request r;
    plan_sum sum[1];
    plan_event event[2];
    double at[2];
    plan p;
} made;

static void make(made *m, int64_t batch, int64_t slices, const char *net) {
    sn_error err = {0};
    *m = (made){.sum = {{8e9, 2, 2}}, .event = {{3, 0, false}, {5, 0, true}}, .at = {4, 9}};
    m->settings.data.batch = batch, m->settings.data.block = 10;
    m->settings.slices = slices, m->settings.training.accumulate = 1;
    m->r = (plan_request){.settings = &m->settings, .per_machine = 1, .cpus = 2};
    m->r.compile.threads = 1;
    assert_true(plan_net_read(net, &m->r.net, &err));
    m->p = (plan){.r = &m->r,
                  .step = {m->sum, 1, m->event, 2},
                  .gradients = 8e9,
                  .partial = 8e9,
                  .fixed = 1e9,
                  .n_memory = 1,
                  .n_times = 1};
    m->p.memory[0] = (plan_memory){1, 5e8};
    m->p.times[0] = (plan_times){.rows = 1, .level = 1, .accumulate = 6, .step = 10, .at = m->at};
}

static plan_point at(made *m, int ranks) {
    sn_error err = {0};
    plan_point o = {.ranks = ranks};
    assert_true(plan_predict(&m->p, &o, &err));
    return o;
}

static void check(double got, double want) {
    assert_true(fabs(got - want) < 1e-6 * (1 + fabs(want)));
}

static void one_rank(void **state) {
    (void)state;
    made m;
    make(&m, 4, 4, "8GB,0s");
    plan_point o = at(&m, 1);
    check(o.step, 3 * 6 + 10);
    check(o.tokens, 40 / 28.0);
    check(o.sent, 0);
    check(o.hidden, 0);
    check(o.memory, 1e9 + 5e8 + 2 * 8e9); /* partial sums of 4 slices: two */
}

static void network(void **state) {
    (void)state;
    made m;
    make(&m, 4, 4, "8GB,1ms,0ns"); /* 2 ranks send 8e9 bytes each: 1 s, hidden behind 5 s */
    plan_point o = at(&m, 2);
    assert_int_equal(o.own, 2);
    check(o.sent, 8e9);
    check(o.network, 1);
    check(o.hidden, 1);
    check(o.step, 6 + 10 + 2e-3);
    make(&m, 4, 4, "1GB,0ms,0ns"); /* 8 s: 3 of them are waited for */
    o = at(&m, 2);
    check(o.network, 8);
    check(o.waited, 3);
    check(o.hidden, 1 - 3.0 / 8);
    check(o.step, 6 + 10 + 3);
    make(&m, 4, 4, "8GB,0ms,1s"); /* 3 messages in each of two rounds */
    o = at(&m, 4);
    check(o.network, 1.5 + 6);
    m.r.per_machine = 2; /* two on each of two machines: 2 of 3 bytes leave, of both ranks */
    m.r.net.gap = 0;
    o = at(&m, 4);
    check(o.network, 1.5 * 2 / 3 * 2);
}

/* The next step waits for what this one has left, where it uses that: in its first slice. */
static void left_to_the_next_step(void **state) {
    (void)state;
    made m;
    double slice_at[] = {1};
    make(&m, 2, 2, "1GB,0ms,0ns");
    m.sum[0].passes = 1; /* 4 s; 3 are left at the end of a step */
    m.event[0] = (plan_event){1, 0, SN_WAIT_LEFT}, m.event[1] = (plan_event){5, 0, SN_WAIT_NOT};
    m.at[0] = 2;
    plan_point o = at(&m, 2);
    check(o.busy, 4), check(o.waited, 1), check(o.hidden, 0.75), check(o.step, 11);
    make(&m, 4, 4, "1GB,0ms,0ns");
    m.sum[0].passes = 1;
    m.event[0] = (plan_event){1, 0, SN_WAIT_LEFT}, m.event[1] = (plan_event){5, 0, SN_WAIT_NOT};
    m.p.slice = (plan_program){NULL, 0, m.event, 1};
    m.p.times[0].slice_at = slice_at;
    o = at(&m, 2);
    check(o.waited, 2), check(o.step, 6 + 10 + 2);
}

/* Groups of two ranks share a model: its sums stay in the machine or cross the network at once; gradients
 * are summed over groups. */
static void groups(void **state) {
    (void)state;
    made m;
    plan_sum slice[] = {{1e9, 2, 2, true}};
    make(&m, 4, 4, "1GB,0ms,0ns");
    m.settings.tensor = 2;
    m.p.slice = (plan_program){slice, 1, NULL,
                               0}; /* 2 ranks: 1e9 bytes, 1 s, in every slice but the last */
    plan_point o = at(&m, 2);
    assert_int_equal(o.own, 4);
    check(o.sent, 3e9), check(o.network, 3), check(o.waited, 3);
    check(o.step, 3 * (6 + 1) + 10);
    m.r.per_machine = 2, m.r.cpus = 4; /* the group is in one machine */
    m.p.times[0].level = 2;
    o = at(&m, 2);
    check(o.network, 0), check(o.step, 3 * 6 + 10);
    o = at(&m, 4); /* two groups: a rank sends 8e9 bytes of gradients, both of a machine at once */
    assert_int_equal(o.own, 2);
    check(o.sent, 1e9 + 8e9), check(o.network, 16), check(o.step, 6 + 4 + 16 + 1);
}

static void machine(void **state) {
    (void)state;
    made m;
    make(&m, 8, 8, "1GB,0s");
    m.r.per_machine = 4; /* 4 ranks on 2 CPUs, without a network */
    m.p.times[0].level = 2;
    plan_point o = at(&m, 4);
    check(o.step, 2 * (6 + 10));
    m.p.carry = 1 / 12e9; /* 12e9 bytes: 1 s of a CPU, shared by two 2, and no CPU is idle */
    o = at(&m, 4);
    check(o.network, 2);
    check(o.step, 2 * (6 + 10) + 2);
    m.r.cpus = 8; /* others carry the bytes */
    m.r.compile.threads = 1;
    m.p.times[0].level = 4;
    o = at(&m, 4);
    check(o.step, 6 + 10);
}

/* Batches and slices of few rows, and slices that do not come out even. */
static void divisions(void **state) {
    (void)state;
    made m;
    int64_t batch, slices;
    make(&m, 12, 8, "1GB,0s");
    plan_divide(&m.r, 4, &batch, &slices);
    assert_int_equal(batch, 12), assert_int_equal(slices, 8);
    plan_divide(&m.r, 64, &batch, &slices);
    assert_int_equal(batch, 64), assert_int_equal(slices, 64);
    m.r.rows = 3;
    plan_divide(&m.r, 2, &batch, &slices);
    assert_int_equal(batch, 6), assert_int_equal(slices, 6);
    int64_t rows = 0;
    for (int i = 0; i < 8; i++) rows += plan_rows(12, 8, i);
    assert_int_equal(rows, 12);
}

static void networks(void **state) {
    (void)state;
    plan_net n;
    sn_error err = {0};
    assert_true(plan_net_read("25Gbit,10us", &n, &err));
    check(n.bandwidth, 25e9 / 8), check(n.latency, 10e-6), check(n.gap, 1e-6);
    assert_true(plan_net_read("100MB,1ms,500ns", &n, &err));
    check(n.bandwidth, 1e8), check(n.gap, 5e-7);
    static const char *const wrong[] = {"",
                                        "25",
                                        "25Gbit",
                                        "25Gbit,",
                                        "25Gbits,1us",
                                        "25Gbit,10",
                                        "25Gbit,1us,",
                                        "-1Gbit,1us",
                                        "nanGbit,1us",
                                        "1Gbit,1usx",
                                        "1Gbit,1us,1us,1us"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        err = (sn_error){0};
        assert_false(plan_net_read(wrong[i], &n, &err));
        assert_non_null(strstr(err.message, "such as 25Gbit,10us"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_rank),
                                       cmocka_unit_test(network),
                                       cmocka_unit_test(left_to_the_next_step),
                                       cmocka_unit_test(groups),
                                       cmocka_unit_test(machine),
                                       cmocka_unit_test(divisions),
                                       cmocka_unit_test(networks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
