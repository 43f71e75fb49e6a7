/* processes.h: a measurement in several fresh processes, as one report: where memory lies and what else a process
 * draws when it starts makes its times differ by more than its rounds do. */
#ifndef SN_BENCH_PROCESSES_H
#define SN_BENCH_PROCESSES_H

#include "bench/measure.h"

/* Runs this program n times in sequence (at most SN_BENCH_PROCESSES), and appends to out (empty) what the runs
 * measured: of each record the samples of all processes, and medians of what they do not tell. argv: the arguments of
 * the first process [0] and of the others [1], which make it print its records as JSON. Starts no other process after
 * one that fails: then false, and what those before it measured is in out, with a note. *stopped: stop (NULL: never)
 * said so, which a process that runs is told by SIGINT, or one ended with exit code `interrupted`; what it measured is
 * in. */
bool sn_bench_run_processes(int n, char **const *argv, int interrupted, bool (*stop)(void),
                            sn_bench_report *out, bool *stopped, sn_error *err);

/* Merges the reports of n processes into out, which has no records: numbers are those of the processes that count,
 * rates are at the median time. */
bool sn_bench_merge(const sn_bench_report *each, int n, sn_bench_report *out, sn_error *err);

#endif
