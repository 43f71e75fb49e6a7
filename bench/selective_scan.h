/* selective_scan.h: Mamba-1's loop, for kernels.def. */
#ifndef SN_BENCH_SELECTIVE_SCAN_H
#define SN_BENCH_SELECTIVE_SCAN_H

#include "frontend/sinter.h"

enum { SN_BENCH_STATES = 16 }; /* of each channel */

/* y [1, R, C] for inputs x and dt [1, R, C], B and C [1, R, 16], A [C, 16], a skip [C] and the states at
 * the start [1, C, 16]; with `backward` the gradients of the sum of squares. */
sn_tensor sn_bench_exponentials(sn_tensor x); /* 16 of each element, each with a multiply-add */
sn_tensor sn_bench_selective_scan(bool backward, sn_module *m, sn_dim R, int64_t C);

#endif
