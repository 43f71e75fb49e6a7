/* How the bench compares levels: an artificial report with known times. */
#include "bench/claims.h"
#include "bench/noise.h"
#include "bench/processes.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

static void add(sn_bench_report *r, const char *name, const char *backend, int level,
                double ms_median, double ms_min) {
    sn_error err = {0};
    sn_bench_record *x = sn_bench_add(r, &err);
    assert_non_null(x);
    *x = (sn_bench_record){.level = level, .ms_median = ms_median, .ms_min = ms_min};
    snprintf(x->name, sizeof x->name, "%s", name);
    snprintf(x->shape, sizeof x->shape, "8x8");
    snprintf(x->backend, sizeof x->backend, "%s", backend);
}

static void slower_levels(void **state) {
    (void)state;
    sn_bench_report r = {0};
    add(&r, "norm", "native", 0, 10, 9);
    add(&r, "norm", "native", 1, 4, 3.9);
    add(&r, "norm", "native", 2, 4.1, 4.05); /* within the margin */
    add(&r, "norm", "native", 3, 4.6, 3.8);  /* its best round was equally fast */
    add(&r, "norm", "native", 4, 4.5, 4.2);  /* slower than level 1 */
    add(&r, "norm", "onednn", 0, 1, 1);      /* another back end */
    add(&r, "gelu", "native", 0, 1, 1);      /* other work */
    add(&r, "norm", "torch", -1, 0.5, .5);   /* a peer */
    sn_bench_judge(&r);
    assert_int_equal(r.n_note, 1);
    assert_string_equal(r.note[0],
                        "norm 8x8 native: level 4 is slower than level 1, 4.5 against 4 ms");
    sn_bench_report_free(&r);
}

static sn_bench_record timed(int level, int rounds, const double *ms) {
    sn_bench_record x = {.level = level, .rel_rms = NAN, .peak_bytes = NAN};
    snprintf(x.kind, sizeof x.kind, "kernel");
    snprintf(x.name, sizeof x.name, "norm");
    snprintf(x.backend, sizeof x.backend, "native");
    x.samples.n = rounds;
    memcpy(x.samples.ms, ms, sizeof *ms * (size_t)rounds);
    sn_bench_summarise(&x);
    return x;
}

/* Rounds that drift together: the ratio within rounds is exact, that of two runs is not. */
static void intervals(void **state) {
    (void)state;
    static const double slow[] = {10, 20, 14, 12, 18, 16, 11, 19, 15};
    double fast[9], alike[9];
    for (int i = 0; i < 9; i++) fast[i] = slow[i] / 2, alike[i] = slow[8 - i];
    sn_bench_record a = timed(0, 9, slow), b = timed(4, 9, fast), c = timed(4, 9, alike);
    sn_bench_gain g = sn_bench_compare(&a, &b, true, 1, NAN);
    assert_true(g.gain == 2 && g.low == 2 && g.high == 2);
    assert_int_equal(g.verdict, SN_BENCH_FASTER);
    assert_int_equal(sn_bench_compare(&b, &a, true, 1, NAN).verdict, SN_BENCH_SLOWER);
    g = sn_bench_compare(&a, &c, true, 1, NAN); /* -40 % to 90 % is not the same */
    assert_int_equal(g.verdict, SN_BENCH_UNCLEAR);
    assert_true(g.rounds > 9);
    double near[9];
    for (int i = 0; i < 9; i++) near[i] = slow[i] * (1 + 0.0009 * (i - 4));
    sn_bench_record d = timed(4, 9, near);
    assert_int_equal(sn_bench_compare(&a, &d, true, 1, NAN).verdict, SN_BENCH_SAME);
    assert_int_equal(sn_bench_compare(&a, &d, true, 0.1, NAN).verdict, SN_BENCH_UNCLEAR);
    assert_int_equal(sn_bench_compare(&a, &b, true, 100, NAN).verdict, SN_BENCH_SAME);
    /* five rounds: from the least to the greatest */
    sn_bench_record a5 = timed(0, 5, slow), c5 = timed(4, 5, alike);
    g = sn_bench_compare(&a5, &c5, true, 1, NAN);
    assert_true(g.low == 10.0 / 15 && g.high == 14.0 / 11);
    g = sn_bench_compare(&a, &b, false, 1, NAN);
    assert_true(g.gain == 2 && g.low < 1.9 && g.low > 1 && g.high > 2.1);
    g = sn_bench_compare(&a, &c, false, 1, NAN);
    assert_true(g.gain == 1 && g.low < 1 && g.high > 1);
    /* no times of rounds: from the least and the greatest */
    a.samples.n = 0, a.ms_low = 10, a.ms_high = 20, b.ms_low = 4, b.ms_high = 8;
    g = sn_bench_compare(&a, &b, true, 1, NAN);
    assert_true(g.low == 10.0 / 8 && g.high == 20.0 / 4);
}

/* Numbers around 0 with deviation 1, the same each time. */
static double noise(uint64_t *seed) {
    double sum = -6;
    for (int i = 0; i < 12; i++) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        sum += (double)(*seed >> 11) / 9007199254740992.0;
    }
    return sum;
}

/* n rounds of ms with this noise, percent. */
static void planted(sn_bench_samples *s, int n, double ms, double percent, uint64_t *seed) {
    *s = (sn_bench_samples){.n = n};
    for (int k = 0; k < n; k++) s->ms[k] = ms * (1 + percent / 100 * noise(seed));
}

static sn_bench_gain gain_of(double difference, double percent, int n, uint64_t seed) {
    sn_bench_record list[2] = {{.level = 4}, {.level = -1}};
    planted(&list[0].samples, n, 10, percent, &seed);
    planted(&list[0].again, n, 10, percent, &seed);
    planted(&list[1].samples, n, 10 * (1 + difference / 100), percent, &seed);
    for (int i = 0; i < 2; i++) sn_bench_summarise(&list[i]);
    sn_bench_report r = {.list = list, .n = 2};
    return sn_bench_compare(&list[1], &list[0], true, 0, sn_bench_floor_of(&r, &list[1]));
}

/* A difference of 3 % is seen through noise of 1 %; one of 0.5 % is not through noise of 3 %, and
 * programs that are alike are rarely called different. */
static void differences(void **state) {
    (void)state;
    int seen = 0, refused = 0, alike = 0, wrong = 0;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        seen += gain_of(3, 1, 21, seed).verdict == SN_BENCH_FASTER;
        sn_bench_gain g = gain_of(0.5, 3, 21, seed);
        refused += g.verdict == SN_BENCH_REFUSED && strstr(g.why, "the same program timed twice");
        alike += g.verdict == SN_BENCH_FASTER || g.verdict == SN_BENCH_SLOWER;
        g = gain_of(0, 1, 21, seed);
        wrong += g.verdict == SN_BENCH_FASTER || g.verdict == SN_BENCH_SLOWER;
    }
    assert_true(seen >= 90 && refused >= 60 && alike <= 5 && wrong <= 3);
}

/* Intervals of 95 % hold the true median about that often. */
static void bootstrap(void **state) {
    (void)state;
    int held = 0;
    uint64_t seed = 7;
    for (int i = 0; i < 200; i++) {
        sn_bench_samples s;
        sn_bench_numbers x;
        planted(&s, 15, 10, 2, &seed);
        sn_bench_times(&s, &x);
        sn_bench_interval of = sn_bench_estimate(&x, NULL);
        assert_true(of.middle == sn_bench_median(s.ms, s.n) && of.low <= of.middle &&
                    of.middle <= of.high);
        held += of.low <= 10 && 10 <= of.high;
    }
    assert_in_range(held, 180, 200);
}

/* Adds a process of `rounds` rounds. */
static void plant_process(sn_bench_samples *s, int process, int rounds, double ms, double percent,
                          uint64_t *seed) {
    for (int k = 0; k < rounds; k++, s->n++) {
        s->ms[s->n] = ms * (1 + percent / 100 * noise(seed));
        s->process[s->n] = process;
    }
}

/* Processes that differ by 2 % and rounds that do by 0.3 %: the interval holds what is true of all processes, which
 * that of their rounds alone does not; a claim on 3 % of difference is rarely wrong, one on 20 % is seen. */
static void processes(void **state) {
    (void)state;
    enum { TIMES = 100, PROCESSES = 3, ROUNDS = 9 };
    int held = 0, alone = 0, wrong = 0, seen = 0;
    uint64_t seed = 3;
    for (int i = 0; i < TIMES; i++) {
        sn_bench_record a = {.level = 4}, b = {.level = -1}, c = {.level = -1};
        for (int p = 0; p < PROCESSES; p++) {
            double ms = 10 * (1 + 0.02 * noise(&seed));
            plant_process(&a.samples, p, ROUNDS, ms, 0.3, &seed);
            plant_process(&b.samples, p, ROUNDS, 10, 0.3, &seed);
            plant_process(&c.samples, p, ROUNDS, 12, 0.3, &seed);
        }
        sn_bench_summarise(&a), sn_bench_summarise(&b), sn_bench_summarise(&c);
        held += a.ms_low <= 10 && 10 <= a.ms_high;
        sn_bench_gain g = sn_bench_compare(&a, &b, true, 1, NAN);
        assert_true(g.processes == PROCESSES);
        wrong += g.verdict == SN_BENCH_FASTER || g.verdict == SN_BENCH_SLOWER;
        seen += sn_bench_compare(&c, &a, true, 1, NAN).verdict == SN_BENCH_FASTER;
        a.samples.n = ROUNDS;
        sn_bench_summarise(&a);
        alone += a.ms_low <= 10 && 10 <= a.ms_high;
    }
    assert_true(held >= 0.9 * TIMES && alone < 0.5 * TIMES);
    assert_true(wrong <= 0.05 * TIMES && seen >= 0.9 * TIMES);
}

/* One process lost its rounds, or its machine was busy: the others count, one alone does not. */
static void processes_that_count(void **state) {
    (void)state;
    enum { ROUNDS = 9 };
    uint64_t seed = 5;
    sn_bench_record list[2] = {{.level = 0}, {.level = 4}};
    sn_bench_report r = {.list = list, .n = 2, .n_process = 3};
    for (int p = 0; p < 3; p++)
        for (int i = 0; i < 2; i++)
            plant_process(&list[i].samples, p, ROUNDS, p < 2 ? 20 - 10 * i : 99, 0.3, &seed);
    r.busy[2] = 30;
    sn_bench_finish(&r);
    sn_bench_gain g = sn_bench_compare(&list[0], &list[1], true, 1, NAN);
    assert_true(g.processes == 2 && fabs(g.gain - 2) < 0.02 && g.verdict != SN_BENCH_REFUSED);
    assert_true(fabs(list[1].ms_median - 10) < 0.1);
    for (int k = 4; k < ROUNDS; k++) list[1].samples.waited[ROUNDS + k] = 15; /* four count */
    sn_bench_finish(&r);
    assert_true(list[1].preempted == ROUNDS - 4);
    g = sn_bench_compare(&list[0], &list[1], true, 1, NAN);
    assert_true(g.verdict == SN_BENCH_REFUSED &&
                strstr(g.why, "fewer than two of 3 processes have 5 rounds that count"));
}

/* Threads waited for a CPU for up to 8 % of each round: the interval holds the ratio without that, so twice the speed is
 * seen. */
static void waiting(void **state) {
    (void)state;
    enum { TIMES = 100, ROUNDS = 15 };
    static const struct {
        double factor;
        bool one_run;
    } cases[] = {{2, true}, {1.05, true}, {2, false}, {1.05, false}};
    for (int c = 0; c < 4; c++) {
        int held = 0, seen = 0;
        uint64_t seed = 8;
        for (int i = 0; i < TIMES; i++) {
            sn_bench_record x[2] = {{.level = 0}, {.level = 4}};
            for (int j = 0; j < 2; j++) {
                sn_bench_samples *s = &x[j].samples;
                planted(s, ROUNDS, j ? 10 : 10 * cases[c].factor, 0.3, &seed);
                for (int k = 0; k < ROUNDS; k++) {
                    s->waited[k] = fmin(8, 2 + 2 * fabs(noise(&seed)));
                    if (j) s->ms[k] /= 1 - s->waited[k] / 100;
                }
                sn_bench_summarise(&x[j]);
            }
            sn_bench_gain g = sn_bench_compare(&x[0], &x[1], cases[c].one_run, 1, NAN);
            held += g.low <= cases[c].factor && cases[c].factor <= g.high;
            seen += g.verdict == SN_BENCH_FASTER;
        }
        assert_true(held >= 0.95 * TIMES && (cases[c].factor < 2 || seen == TIMES));
    }
}

/* Of three processes one lacks an entrant, then two do: pairs are of those that both have, one alone claims nothing. */
static void processes_of_both(void **state) {
    (void)state;
    enum { ROUNDS = 9 };
    for (int lacking = 1; lacking <= 3; lacking++) {
        uint64_t seed = 6;
        sn_bench_record list[2] = {{.level = 0}, {.level = -1}};
        sn_bench_report r = {.list = list, .n = 2, .n_process = 3};
        for (int p = 0; p < 3; p++) {
            plant_process(&list[0].samples, p, ROUNDS, p ? 20 : 40, 0.3, &seed);
            if (p >= lacking) plant_process(&list[1].samples, p, ROUNDS, 10, 0.3, &seed);
        }
        if (lacking == 3) { /* each has another one */
            list[0].samples.n = ROUNDS;
            plant_process(&list[1].samples, 1, ROUNDS, 10, 0.3, &seed);
        }
        sn_bench_finish(&r);
        sn_bench_gain g = sn_bench_compare(&list[0], &list[1], true, 1, NAN);
        sn_bench_gain back = sn_bench_compare(&list[1], &list[0], true, 1, NAN);
        sn_bench_gain apart = sn_bench_compare(&list[0], &list[1], false, 1, NAN);
        if (lacking == 1) {
            assert_true(g.verdict == SN_BENCH_FASTER && g.processes == 2 &&
                        fabs(g.gain - 2) < 0.02);
            assert_true(back.verdict == SN_BENCH_SLOWER && fabs(back.gain - 0.5) < 0.01);
        } else {
            const char *why = lacking == 2 ? "fewer than two of 3 processes"
                                           : "none of 3 processes measured both";
            assert_true(g.verdict == SN_BENCH_REFUSED && strstr(g.why, why));
            assert_true(back.verdict == SN_BENCH_REFUSED && apart.verdict == SN_BENCH_REFUSED);
        }
    }
}

/* Times and numbers of processes in a file are what they can be. */
static void files(void **state) {
    (void)state;
    static const char *const wrong[][2] = {{"[1,1,1]", "[0,null,1]"},  {"[1,1,1]", "[0,1e300,1]"},
                                           {"[1,1,1]", "[0,-1,1]"},    {"[1,1,1]", "[0,9,1]"},
                                           {"[1,1,1]", "[0,0.5,1]"},   {"[1,0,1]", "[0,0,0]"},
                                           {"[1,null,1]", "[0,0,0]"},  {"[1,1,-1]", "[0,0,0]"},
                                           {"[1,1,1e999]", "[0,0,0]"}, {"[1,2,3]", "[0,8,8]"}};
    enum { N = sizeof wrong / sizeof *wrong };
    for (int i = 0; i < 2 * N; i++) {
        char path[] = "/tmp/bench_report_XXXXXX";
        FILE *f = fdopen(mkstemp(path), "w");
        assert_non_null(f);
        fprintf(f, "{\"kind\":\"kernel\",%s\"round_ms\":%s,\"round_process\":%s%s}\n",
                i < N ? "" : "\"again\":{", wrong[i % N][0], wrong[i % N][1], i < N ? "" : "}");
        fclose(f);
        sn_error err = {0};
        sn_bench_report r = {0};
        bool ok = sn_bench_read_json(path, &r, &err);
        unlink(path);
        const bool right = i % N == N - 1;
        assert_true(ok == right && (right || strstr(err.message, ":1: a wrong value in 'round_")));
        if (right) assert_int_equal((i < N ? r.list->samples : r.list->again).n, 3);
        sn_bench_report_free(&r);
    }
}

/* What processes measured, as one report; a peer that failed in one process is of the others. */
static void merged(void **state) {
    (void)state;
    enum { PROCESSES = 3, ROUNDS = 6 };
    uint64_t seed = 9;
    sn_error err = {0};
    sn_bench_report each[PROCESSES] = {{0}}, r = {0};
    for (int p = 0; p < PROCESSES; p++) {
        for (int i = 0; i < 4; i++) { /* the same work twice, and a peer */
            if (i == 3 && p == 1) continue;
            sn_bench_record *x = sn_bench_add(&each[p], &err);
            assert_non_null(x);
            x->level = i < 3 ? 4 : -1;
            x->measurement = 1 + i / 2;
            x->flop = 5 + p;
            x->gflops = 12.0 / (1 + i) + 5 * p; /* p 0: of the time below */
            x->ms_median = 1 + i;
            snprintf(x->name, sizeof x->name, "%s", i < 3 ? "norm" : "gelu");
            plant_process(&x->samples, 0, ROUNDS, 1 + i, 0.1, &seed);
            if (!i) plant_process(&x->again, 0, ROUNDS, 1 + i, 0.1, &seed);
        }
        each[p].others = p == 2 ? 30 : p; /* too busy to count */
        sn_bench_note(&each[p], "%s", "a note");
    }
    assert_true(sn_bench_merge(each, PROCESSES, &r, &err));
    assert_true(r.n == 4 && r.n_note == 1 && r.n_process == PROCESSES && r.others == 1);
    assert_true(fabs(r.list[0].gflops * r.list[0].ms_median - 12) < 1e-9);

    for (int i = 0; i < 4; i++) {
        const sn_bench_record *x = &r.list[i];
        assert_int_equal(x->samples.n, (PROCESSES - (i == 3)) * ROUNDS);
        assert_int_equal(x->again.n, i ? 0 : PROCESSES * ROUNDS);
        assert_true(fabs(x->ms_median - (1 + i)) < 0.01 && x->flop == (i < 3 ? 5.5 : 6));
        assert_true(isnan(x->floor_pct) == (i > 0) &&
                    x->samples.process[ROUNDS] == (i == 3 ? 2 : 1));
    }
    for (int p = 0; p < PROCESSES; p++) sn_bench_report_free(&each[p]);
    sn_bench_report_free(&r);
}

/* Which samples count: not the slow first ones, nor those whose threads waited for a CPU. */
static void samples_that_count(void **state) {
    (void)state;
    sn_bench_samples s = {.n = 9, .ms = {20, 14, 10.2, 10, 10.1, 9.9, 10, 10.1, 9.9}};
    sn_bench_numbers t;
    sn_bench_find_warm_up(&s);
    assert_int_equal(s.warm_up, 2);
    s.switches[4] = 1, s.waited[4] = 0.4; /* a moment */
    s.switches[5] = 3, s.waited[5] = 12;
    s.switches[6] = 40, s.waited[6] = 0.9; /* many */
    sn_bench_times(&s, &t);
    assert_true(t.n == 6 && !t.few && t.x[0] == 10.2);
    /* CPU time of those that count; the one that was preempted has another */
    for (int k = 0; k < 9; k++) s.cpu_ms[k] = k < 2 ? 90 : k == 5 ? 50 : k < 5 ? 6 : 8;
    sn_bench_record x = {.samples = s};
    sn_bench_summarise(&x);
    assert_true(x.cpu_ms == 7);
    assert_true(x.warm_up == 2 && x.preempted == 1 && x.switches == 44 && x.ms_min == 9.9 &&
                x.ms_max == 10.2);
    sn_bench_samples steady = {.n = 5, .ms = {10.05, 10, 10, 10, 10}};
    sn_bench_find_warm_up(&steady); /* within 1 % */
    assert_int_equal(steady.warm_up, 0);
    sn_bench_samples slow = {.n = 5, .ms = {50, 40, 10, 10, 10}};
    sn_bench_find_warm_up(&slow); /* at most a third */
    assert_int_equal(slow.warm_up, 1);
    for (int k = 0; k < 7; k++) s.switches[k] = 1, s.waited[k] = 50;
    sn_bench_times(&s, &t);
    assert_true(t.n == 9 && t.few);
    sn_bench_record a = {.samples = s}, b = {.samples = s};
    sn_bench_summarise(&a), sn_bench_summarise(&b);
    sn_bench_gain g = sn_bench_compare(&a, &b, true, 1, NAN);
    assert_true(g.verdict == SN_BENCH_REFUSED && strstr(g.why, "fewer than 5 of 9 rounds count"));
}

/* A run with other options compares with the one measurement of the same work that it lacks. */
static void option_sets(void **state) {
    (void)state;
    static const double ms[] = {4, 4, 4, 4, 4, 4};
    sn_bench_record old[] = {timed(0, 6, ms), timed(4, 6, ms)},
                    now[] = {timed(4, 6, ms), timed(4, 6, ms)};
    snprintf(now[1].dtype, sizeof now[1].dtype, "int8");
    sn_bench_report before = {.list = old, .n = 2}, after = {.list = now, .n = 2};
    assert_ptr_equal(sn_bench_baseline(&after, &before, &now[0]), &old[1]);
    assert_ptr_equal(sn_bench_baseline(&after, &before, &now[1]), &old[0]);
    after = (sn_bench_report){.list = &now[1], .n = 1}; /* of two the one of its level */
    assert_ptr_equal(sn_bench_baseline(&after, &before, &now[1]), &old[1]);
    old[0].level = 4;
    snprintf(old[0].backend, sizeof old[0].backend, "onednn");
    assert_null(sn_bench_baseline(&after, &before, &now[1]));
}

static char *printed(const sn_bench_report *r, const sn_bench_report *old, double threshold,
                     sn_bench_compared *done) {
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    *done = sn_bench_print_comparison(r, old, threshold, NULL, f);
    fclose(f);
    return text;
}

/* A verdict says when it cannot be relied on; without pairs there is none. */
static void verdicts(void **state) {
    (void)state;
    static const double slow[] = {2, 2, 2, 2, 2, 2}, fast[] = {1, 1, 1, 1, 1, 1};
    sn_bench_record list[] = {timed(0, 6, slow), timed(4, 6, fast)}, before = timed(4, 6, slow);
    sn_bench_report r = {.list = list, .n = 2, .cpu = "A"},
                    old = {.list = &before, .n = 1, .cpu = "A"};
    sn_bench_compared done;
    char *text = printed(&r, NULL, 0, &done);
    assert_int_equal(done.pairs, 1);
    assert_non_null(strstr(text, "  faster"));
    assert_non_null(strstr(text, "median of the ratios in each round"));
    assert_null(strstr(text, "note:"));
    free(text);
    r.others = 80;
    text = printed(&r, NULL, 0, &done);
    assert_non_null(strstr(text, "  refused: "));
    assert_non_null(strstr(text, "the machine was not idle: other programs used 80 %"));
    free(text);
    r.others = 0, r.n = 1, r.list = &list[1];
    text = printed(&r, &old, 0, &done);
    assert_non_null(strstr(text, "  faster"));
    assert_non_null(strstr(text, "drifts between two runs"));
    free(text);
    before.peak_gflops = 100, list[1].peak_gflops = 120;
    text = printed(&r, &old, 0, &done);
    assert_non_null(strstr(text, "  refused: "));
    free(text);
    snprintf(old.cpu, sizeof old.cpu, "B"); /* another machine has other limits */
    old.others = 30;
    text = printed(&r, &old, 0, &done);
    assert_non_null(strstr(text, "the machines differ: B  against A"));
    assert_non_null(strstr(text, "the old run: the machine was not idle"));
    free(text);
    snprintf(before.shape, sizeof before.shape, "9x9");
    text = printed(&r, &old, 5, &done);
    assert_true(!done.pairs && !done.slower);
    free(text);
}

/* What the machine says of itself, as far as it does. */
static void machine(void **state) {
    (void)state;
    enum { PAGES = 64, PAGE = 4096 };
    double ghz = sn_probe_ghz(), before[SN_BENCH_COUNTERS], after[SN_BENCH_COUNTERS];
    assert_true(isnan(ghz) || (ghz > 0.05 && ghz < 10));
    sn_bench_counters *c = sn_bench_counters_open(2);
    assert_non_null(c);
    sn_bench_counters_read(c, before);
    char *p = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED && !madvise(p, PAGES * PAGE, MADV_NOHUGEPAGE));
    for (int i = 0; i < PAGES; i++) ((volatile char *)p)[i * PAGE] = 1;
    sn_bench_counters_read(c, after);
    munmap(p, PAGES * PAGE);
    assert_true(isnan(after[0]) == (*sn_bench_counters_missing() != 0));
    for (int i = 0; i < SN_BENCH_COUNTERS - 1; i++)
        assert_true(isnan(after[i]) || after[i] > before[i]);
    assert_true(isnan(after[3]) || after[3] - before[3] >= PAGES); /* page faults */
    sn_bench_counters_close(c);
    sn_bench_usage u = sn_bench_usage_of(0), none = sn_bench_usage_of(0x7fffffff);
    assert_true(isnan(u.cpu) || (u.cpu > 0 && u.waited >= 0 && u.switches >= 0));
    assert_true(isnan(none.cpu) && isnan(none.waited) && isnan(none.switches));
    double probe[10] = {90, 91, 92, 93, 94, 95, 96, 97, 98, 100};
    sn_bench_report r = {.probe = probe, .n_probe = 10}, empty = {0};
    assert_true(fabs(sn_bench_spread(&r) - 9) < 1e-9 && isnan(sn_bench_spread(&empty)));
}

/* A run with level 0, level 4 (timed twice) and an unfused peer that takes `times` as long as level 4. */
static void make_run(sn_bench_report *r, double times, double percent, uint64_t seed) {
    static const char *const backend[] = {"native", "native", "torch"};
    const double ms[] = {20, 10, 10 * times};
    for (int i = 0; i < 3; i++) {
        sn_bench_record *x = &r->list[i];
        *x = (sn_bench_record){.level = i < 2 ? 4 * i : -1, .unfused = i == 2};
        snprintf(x->name, sizeof x->name, "norm");
        snprintf(x->backend, sizeof x->backend, "%s", backend[i]);
        planted(&x->samples, 21, ms[i], percent, &seed);
        if (i == 1) planted(&x->again, 21, ms[i], percent, &seed);
        sn_bench_summarise(x);
    }
    r->n = 3;
}

/* What a run claims, and whether another run repeats it. */
static void claims(void **state) {
    (void)state;
    sn_bench_record list[3], again[3];
    sn_bench_report r = {.list = list}, now = {.list = again};
    sn_bench_claim c[6];
    make_run(&r, 1.05, 0.5, 1);
    assert_int_equal(sn_bench_claims(&r, c), 3);
    for (int i = 0; i < 3; i++) {
        bool plain = c[i].x->level == 0;
        assert_true(c[i].base == &list[plain || c[i].base->level < 0 ? 2 : 0]);
        assert_int_equal(c[i].gain.verdict, plain ? SN_BENCH_SLOWER : SN_BENCH_FASTER);
    }
    make_run(&now, 1.06, 0.5, 2);
    FILE *f = fopen("/dev/null", "w");
    sn_bench_repeated same = sn_bench_print_repeated(&r, &now, f);
    assert_true(same.equal == 3 && !same.different && !same.refused);
    make_run(&now, 1, 0.5, 3); /* no faster than the peer there */
    same = sn_bench_print_repeated(&r, &now, f);
    assert_true(same.equal == 2 && same.different == 1 && !same.refused);
    now.n = 2; /* without the peer */
    same = sn_bench_print_repeated(&r, &now, f);
    assert_true(same.equal == 1 && !same.different && same.refused == 2);
    now.n = 3, now.others = 30;
    same = sn_bench_print_repeated(&r, &now, f);
    assert_int_equal(same.refused, 3);
    assert_int_equal(sn_bench_claims(&now, c), 3);
    for (int i = 0; i < 3; i++)
        assert_non_null(strstr(c[i].gain.why, "other programs used 30 % of the CPU time"));
    fclose(f);
}

/* A work that a run measures several times: each measurement claims for itself, however many there are. */
static void repeated_works(void **state) {
    (void)state;
    enum { TIMES = 20 };
    static sn_bench_record list[3 * TIMES];
    sn_bench_report r = {.list = list};
    for (int i = 0; i < TIMES; i++) {
        sn_bench_report one = {.list = list + 3 * i};
        make_run(&one, 1.05, 0.5, (uint64_t)i + 1);
        for (int j = 0; j < 3; j++) one.list[j].measurement = i + 1;
        r.n += one.n;
    }
    sn_bench_claim c[3 * TIMES];
    assert_int_equal(sn_bench_claims(&r, NULL), 3 * TIMES);
    sn_bench_claims(&r, c);
    for (int i = 0; i < 3 * TIMES; i++)
        assert_int_equal(c[i].x->measurement, c[i].base->measurement);
    assert_ptr_equal(sn_bench_baseline(&r, NULL, &list[4]), &list[3]);
    FILE *f = fopen("/dev/null", "w");
    sn_bench_repeated same = sn_bench_print_repeated(&r, &r, f);
    assert_true(same.equal == 3 * TIMES && !same.different && !same.refused);
    for (int i = 0; i < r.n; i++) list[i].measurement = 0; /* a file that does not tell */
    assert_in_range(sn_bench_claims(&r, NULL), 1, 2 * r.n);
    sn_bench_print_claims(&r, f);
    fclose(f);
}

/* Runs 3 slow rounds, in which it touches new memory, then 3 of 1 ms and 3 of 4 ms. */
static bool run_slowly(void *ctx, int repeats, double *seconds, sn_error *err) {
    enum { CALIBRATING = 1, PAGES = 256, PAGE = 4096 };
    (void)repeats, (void)err;
    int round = (*(int *)ctx)++ - CALIBRATING;
    *seconds = round < 3 ? 1 : round < 6 ? 1e-3 : 4e-3;
    if (round < 0 || round >= 3) return true;
    char *p = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || madvise(p, PAGES * PAGE, MADV_NOHUGEPAGE)) return false;
    for (int i = 0; i < PAGES; i++) ((volatile char *)p)[i * PAGE] = 1;
    return !munmap(p, PAGES * PAGE);
}

/* The share of the limit and the counters are of the rounds that count. The median of the shares is between 1 ms and
 * 4 ms, over the share by the median of the times; of all rounds it is that of 4 ms, under it. */
static void limits_that_count(void **state) {
    (void)state;
    int calls = 0;
    sn_error err = {0};
    sn_bench_report r = {0};
    const sn_bench_options o = {.threads = 1, .rounds = 9};
    const sn_bench_work w = {
        .kind = "kernel", .name = "norm", .shape = "8", .dtype = "f32", .flop = 1e6, .runs = 1};
    const sn_bench_entrant e = {.level = -1, .backend = "peer", .time = run_slowly, .ctx = &calls};
    for (int attempt = 0; attempt < 9; attempt++) { /* until no round was preempted */
        sn_bench_report_free(&r);
        calls = 0;
        assert_true(sn_bench_measure(&o, &w, &e, 1, &r, &err));
        if (!(r.list->preempted > 0)) break;
    }
    assert_int_equal(r.n, 1);
    const sn_bench_record *x = r.list;
    assert_true(calls >= 10 && x->warm_up == 3); /* more rounds, if some were preempted */
    assert_true(x->preempted > 0 || x->pct_roofline > 100 * x->gflops / x->peak_gflops);
    assert_true(isnan(x->counter[3]) || x->counter[3] < 20);
    sn_bench_report_free(&r);
    /* of six rounds too few would count */
    sn_bench_options few = {.threads = 1, .rounds = 6};
    calls = 0;
    assert_true(sn_bench_measure(&few, &w, &e, 1, &r, &err));
    assert_in_range(r.list->samples.n, 7, 12);
    sn_bench_report_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(slower_levels),
                                       cmocka_unit_test(intervals),
                                       cmocka_unit_test(differences),
                                       cmocka_unit_test(bootstrap),
                                       cmocka_unit_test(processes),
                                       cmocka_unit_test(processes_that_count),
                                       cmocka_unit_test(processes_of_both),
                                       cmocka_unit_test(waiting),
                                       cmocka_unit_test(files),
                                       cmocka_unit_test(merged),
                                       cmocka_unit_test(samples_that_count),
                                       cmocka_unit_test(option_sets),
                                       cmocka_unit_test(verdicts),
                                       cmocka_unit_test(claims),
                                       cmocka_unit_test(repeated_works),
                                       cmocka_unit_test(limits_that_count),
                                       cmocka_unit_test(machine)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
