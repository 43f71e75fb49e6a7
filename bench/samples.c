/* samples.c: statistics over the rounds of a bench, see samples.h. */
#include "bench/samples.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Percent of a sample's time that its threads may wait for their CPUs. */
static const double most_waited = 1;

bool sn_bench_preempted(const sn_bench_samples *s, int round) {
    return s->switches[round] > 0 && s->waited[round] >= most_waited;
}

bool sn_bench_counts(const sn_bench_samples *s, int round) {
    return round >= s->warm_up && !sn_bench_preempted(s, round);
}

int sn_bench_find_counted(const sn_bench_samples *s, int round[SN_BENCH_ROUNDS], bool *few) {
    int n = 0;
    for (int k = 0; k < s->n; k++)
        if (sn_bench_counts(s, k)) round[n++] = k;
    if (few) *few = 2 * n < s->n;
    if (2 * n >= s->n) return n;
    for (int k = 0; k < s->n; k++) round[k] = k;
    return s->n;
}

int sn_bench_pick(const double *all, const int *round, int n, double some[SN_BENCH_ROUNDS]) {
    for (int k = 0; k < n; k++) some[k] = all[round[k]];
    return n;
}

int sn_bench_counted(const sn_bench_samples *s, double ms[SN_BENCH_ROUNDS], bool *few) {
    int round[SN_BENCH_ROUNDS];
    return sn_bench_pick(s->ms, round, sn_bench_find_counted(s, round, few), ms);
}

int sn_bench_ratios(const sn_bench_samples *a, const sn_bench_samples *b,
                    double ratio[SN_BENCH_ROUNDS], bool *few) {
    int n = 0;
    if (a->n != b->n || a->ms[0] <= 0 || b->ms[0] <= 0) return 0;
    for (int k = 0; k < a->n; k++)
        if (sn_bench_counts(a, k) && sn_bench_counts(b, k)) ratio[n++] = a->ms[k] / b->ms[k];
    *few = 2 * n < a->n;
    if (!*few) return n;
    for (int k = 0; k < a->n; k++) ratio[k] = a->ms[k] / b->ms[k];
    return a->n;
}

int sn_bench_ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double sn_bench_median(const double *x, int n) {
    double sorted[SN_BENCH_ROUNDS];
    memcpy(sorted, x, sizeof *x * (size_t)n);
    qsort(sorted, (size_t)n, sizeof *sorted, sn_bench_ascending);
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

void sn_bench_find_warm_up(sn_bench_samples *s) {
    static const double deviations = 3, to_deviation = 1.4826, least = 0.01;
    double off[SN_BENCH_ROUNDS];
    for (s->warm_up = 0; 3 * (s->warm_up + 1) <= s->n; s->warm_up++) {
        const double *rest = s->ms + s->warm_up + 1;
        int n = s->n - s->warm_up - 1;
        double middle = sn_bench_median(rest, n);
        for (int k = 0; k < n; k++) off[k] = fabs(rest[k] - middle);
        double margin = fmax(least * middle, deviations * to_deviation * sn_bench_median(off, n));
        if (s->ms[s->warm_up] <= middle + margin) return;
    }
}

static double resampled_median(const double *x, int n, uint64_t *seed) {
    double draw[SN_BENCH_ROUNDS];
    for (int k = 0; k < n; k++) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        draw[k] = x[(*seed >> 33) % (unsigned)n];
    }
    return sn_bench_median(draw, n);
}

void sn_bench_bootstrap(const double *x, int n, const double *y, int m, double *low, double *high) {
    enum { DRAWS = 1000 };
    double drawn[DRAWS];
    uint64_t seed = 1;
    for (int k = 0; k < DRAWS; k++) {
        drawn[k] = resampled_median(x, n, &seed);
        if (y) drawn[k] /= resampled_median(y, m, &seed);
    }
    qsort(drawn, DRAWS, sizeof *drawn, sn_bench_ascending);
    *low = drawn[DRAWS * 25 / 1000];
    *high = drawn[DRAWS * 975 / 1000 - 1];
}

double sn_bench_floor(const sn_bench_samples *once, const sn_bench_samples *again) {
    double ratio[SN_BENCH_ROUNDS], low, high;
    bool few;
    int n = sn_bench_ratios(once, again, ratio, &few);
    if (!n) return NAN;
    sn_bench_bootstrap(ratio, n, NULL, 0, &low, &high);
    return 100 * fmax(1 - low, high - 1);
}
