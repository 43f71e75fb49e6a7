/* samples.c: statistics over the rounds of a bench, see samples.h. */
#include "bench/samples.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Percent of a sample's time that threads may wait for a CPU: long samples always have some, and intervals cover it. */
static const double most_waited = 10;

bool sn_bench_preempted(const sn_bench_samples *s, int round) {
    return s->waited[round] >= most_waited;
}

bool sn_bench_counts(const sn_bench_samples *s, int round) {
    return !s->skipped[round] && !sn_bench_preempted(s, round);
}

/* The round after the last one of the process of round `from`. */
static int end_of_process(const sn_bench_samples *s, int from) {
    int end = from + 1;
    while (end < s->n && s->process[end] == s->process[from]) end++;
    return end;
}

/* The first round of a process; -1: it has none. */
static int begin_of_process(const sn_bench_samples *s, double process) {
    for (int k = 0; k < s->n; k++)
        if (s->process[k] == process) return k;
    return -1;
}

/* What is left of a sample's time without waiting, as a share. Rounds that count wait less than most_waited. */
static double computed(const sn_bench_samples *s, int k) {
    return s->waited[k] > 0 ? 1 - fmin(s->waited[k], most_waited) / 100 : 1;
}

/* Adds round k of a, over round l of b unless it is NULL. */
static void add_round(const sn_bench_samples *a, int k, const sn_bench_samples *b, int l,
                      sn_bench_numbers *to) {
    const double x = b ? a->ms[k] / b->ms[l] : a->ms[k];
    to->x[to->n] = x;
    to->low[to->n] = x * computed(a, k);
    to->high[to->n] = b ? x / computed(b, l) : x;
    to->round[to->n++] = k;
}

/* Adds the rounds of the processes of a, and of b unless it is NULL, with their times or ratios: those that count, of
 * each process that has enough of them; or all, as of one process. */
static void add_rounds(const sn_bench_samples *a, const sn_bench_samples *b, bool all,
                       sn_bench_numbers *to) {
    for (int from = 0, end; from < a->n; from = end) {
        int first = to->n, at = b ? begin_of_process(b, a->process[from]) : from;
        end = end_of_process(a, from);
        for (int k = from, l = at; k < end && at >= 0; k++, l++) {
            if (!all && !(sn_bench_counts(a, k) && (!b || sn_bench_counts(b, l)))) continue;
            add_round(a, k, b, l, to);
        }
        if (all) continue;
        if (to->n - first >= SN_BENCH_ENOUGH && to->processes < SN_BENCH_PROCESSES)
            to->begin[to->processes++] = first;
        else
            to->n = first;
    }
}

/* The rounds in which a and b (NULL: a alone) count. */
static void find_rounds(const sn_bench_samples *a, const sn_bench_samples *b,
                        sn_bench_numbers *to) {
    to->n = to->processes = to->all = 0;
    for (int from = 0; from < a->n; from = end_of_process(a, from)) to->all++;
    if (to->all < a->processes) to->all = a->processes;
    add_rounds(a, b, false, to);
    to->few = to->processes < (to->all > 1 ? 2 : 1);
    if (!to->processes) {
        to->begin[to->processes++] = 0;
        add_rounds(a, b, true, to);
    }
    to->begin[to->processes] = to->n;
}

int sn_bench_pick(const double *all, const sn_bench_numbers *x, double some[SN_BENCH_SAMPLES]) {
    for (int k = 0; k < x->n; k++) some[k] = all[x->round[k]];
    return x->n;
}

void sn_bench_times(const sn_bench_samples *s, sn_bench_numbers *to) {
    find_rounds(s, NULL, to);
}

bool sn_bench_ratios(const sn_bench_samples *a, const sn_bench_samples *b, sn_bench_numbers *to) {
    if (!a->n || !b->n || a->ms[0] <= 0 || b->ms[0] <= 0) return false;
    for (int from = 0, end; from < a->n; from = end) {
        int at = begin_of_process(b, a->process[from]);
        end = end_of_process(a, from);
        if (at >= 0 && end_of_process(b, at) - at != end - from) return false;
    }
    find_rounds(a, b, to);
    return to->n > 0;
}

int sn_bench_ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double sn_bench_median(const double *x, int n) {
    double sorted[SN_BENCH_SAMPLES];
    memcpy(sorted, x, sizeof *x * (size_t)n);
    qsort(sorted, (size_t)n, sizeof *sorted, sn_bench_ascending);
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

/* How many of the first of n times are warm-up. */
static int warm_up_of(const double *ms, int n) {
    static const double deviations = 3, to_deviation = 1.4826, least = 0.01;
    double off[SN_BENCH_SAMPLES];
    int first = 0;
    for (; 3 * (first + 1) <= n; first++) {
        const double *rest = ms + first + 1;
        int m = n - first - 1;
        double middle = sn_bench_median(rest, m);
        for (int k = 0; k < m; k++) off[k] = fabs(rest[k] - middle);
        double margin = fmax(least * middle, deviations * to_deviation * sn_bench_median(off, m));
        if (ms[first] <= middle + margin) break;
    }
    return first;
}

void sn_bench_find_warm_up(sn_bench_samples *s) {
    s->warm_up = 0;
    for (int from = 0, end; from < s->n; from = end) {
        end = end_of_process(s, from);
        int first = warm_up_of(s->ms + from, end - from);
        for (int k = from; k < end; k++) s->skipped[k] = k < from + first;
        s->warm_up += first;
    }
}

static double resampled_median(const double *x, int n, uint64_t *seed) {
    double draw[SN_BENCH_SAMPLES];
    for (int k = 0; k < n; k++) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        draw[k] = x[(*seed >> 33) % (unsigned)n];
    }
    return sn_bench_median(draw, n);
}

/* The geometric mean of the processes' medians of `values`, which are one for each of x's rounds, resampled unless
 * seed is NULL. Adds the squares of what their logarithms are off it to *squares (NULL is allowed). */
static double middle_of(const sn_bench_numbers *x, const double *values, uint64_t *seed,
                        double *squares) {
    double median[SN_BENCH_PROCESSES], mean = 0;
    for (int p = 0; p < x->processes; p++) {
        const double *of = values + x->begin[p];
        int n = x->begin[p + 1] - x->begin[p];
        median[p] = seed ? resampled_median(of, n, seed) : sn_bench_median(of, n);
        mean += log(median[p]) / x->processes;
    }
    for (int p = 0; p < x->processes && squares; p++) *squares += pow(log(median[p]) - mean, 2);
    return x->processes > 1 ? exp(mean) : median[0];
}

sn_bench_interval sn_bench_estimate(const sn_bench_numbers *x, const sn_bench_numbers *y) {
    enum { DRAWS = 1000 };
    /* quantiles of 97.5 % with 1, 2, … degrees of freedom */
    static const double student[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306,
                                     2.262,  2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120};
    double drawn[DRAWS], squares = 0, each = 1.0 / x->processes;
    uint64_t seed = 1;
    for (int k = 0; k < DRAWS; k++) {
        drawn[k] = middle_of(x, x->x, &seed, NULL);
        if (y) drawn[k] /= middle_of(y, y->x, &seed, NULL);
    }
    qsort(drawn, DRAWS, sizeof *drawn, sn_bench_ascending);
    sn_bench_interval i = {middle_of(x, x->x, NULL, &squares), drawn[DRAWS * 25 / 1000],
                           drawn[DRAWS * 975 / 1000 - 1]};
    double low = middle_of(x, x->low, NULL, NULL) / i.middle,
           high = middle_of(x, x->high, NULL, NULL) / i.middle;
    int freedom = x->processes - 1;
    if (y) {
        double other = middle_of(y, y->x, NULL, &squares);
        i.middle /= other;
        low *= other / middle_of(y, y->high, NULL, NULL);
        high *= other / middle_of(y, y->low, NULL, NULL);
        freedom += y->processes - 1;
        each += 1.0 / y->processes;
    }
    double half = freedom ? student[freedom - 1] * sqrt(squares / freedom * each) : 0;
    i.low = fmin(i.low, i.middle * exp(-half)) * low;
    i.high = fmax(i.high, i.middle * exp(half)) * high;
    return i;
}

double sn_bench_floor(const sn_bench_samples *once, const sn_bench_samples *again) {
    sn_bench_numbers ratio;
    if (!sn_bench_ratios(once, again, &ratio)) return NAN;
    sn_bench_interval i = sn_bench_estimate(&ratio, NULL);
    return 100 * fmax(1 - i.low, i.high - 1);
}
