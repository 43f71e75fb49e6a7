/* processes.h: a measurement in several fresh processes, as one report: where memory lies and what else a process
 * draws when it starts makes its times differ by more than its rounds do. */
#ifndef SN_BENCH_PROCESSES_H
#define SN_BENCH_PROCESSES_H

#include "bench/measure.h"

/* Runs this program n times (at most SN_BENCH_PROCESSES), one after the other, with arguments (ending with two NULL) that
 * make it print its records as JSON (all but the first without the errors, which are equal), and appends to out (empty) what they measured: of each record the samples of all
 * processes, and medians of what they do not tell. Fails if a process does. *stopped (then no other one is started):
 * a process ended with exit code `interrupted`; what it measured is in. */
bool sn_bench_run_processes(int n, char **argv, int interrupted, sn_bench_report *out,
                            bool *stopped, sn_error *err);

/* Merges the reports of n processes into out, which is empty. */
bool sn_bench_merge(const sn_bench_report *each, int n, sn_bench_report *out, sn_error *err);

#endif
