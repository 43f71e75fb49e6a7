/* neighbour.h: threads that walk through memory while something is measured, as another program on
 * the same machine would: they take bandwidth and the caches that they share with the bench. */
#ifndef SN_NEIGHBOUR_H
#define SN_NEIGHBOUR_H

#include "runtime/base.h"

typedef struct sn_bench_neighbour sn_bench_neighbour;

/* Starts `threads` (1 to 64) threads, each with 256 MB of its own. NULL and `err` on failure. */
sn_bench_neighbour *sn_bench_neighbour_start(int threads, sn_error *err);
/* Stops them. Returns the bytes that they have read and written; NULL: 0. */
double sn_bench_neighbour_stop(sn_bench_neighbour *n);

#endif
