/* counters.h: what the CPU and the system count while threads run, where they may be asked. */
#ifndef SN_BENCH_COUNTERS_H
#define SN_BENCH_COUNTERS_H

enum { SN_BENCH_COUNTERS = 4 };
extern const char *const sn_bench_counter_names[SN_BENCH_COUNTERS];

/* Counters of the OpenMP threads of this process, begun by sn_bench_counters_open. NULL: out of memory. */
typedef struct sn_bench_counters sn_bench_counters;
sn_bench_counters *sn_bench_counters_open(int threads);
void sn_bench_counters_close(sn_bench_counters *c); /* NULL is allowed */

/* The sums over the threads so far; NaN: this machine does not let us count it. */
void sn_bench_counters_read(const sn_bench_counters *c, double value[SN_BENCH_COUNTERS]);

/* Why the CPU's counters cannot be read, "" if they can. Valid until the process ends. */
const char *sn_bench_counters_missing(void);

#endif
