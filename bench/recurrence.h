/* recurrence.h: the loops of recurrent layers, for kernels.def. */
#ifndef SN_BENCH_RECURRENCE_H
#define SN_BENCH_RECURRENCE_H

#include "frontend/sinter.h"

#include "bench/recurrence_bodies.h"

typedef enum sn_bench_loop {
    SN_BENCH_GLA,
    SN_BENCH_MAMBA2,
    SN_BENCH_GATED_DELTANET,
    SN_BENCH_RWKV7,
    SN_BENCH_MAMBA
} sn_bench_loop;

/* The outputs [1, R, C] of R elements; backward: the gradient of the sum of
 * their squares with respect to the first input, and outputs for the others. */
sn_tensor sn_bench_recurrence(sn_bench_loop kind, bool backward, sn_module *m, sn_dim R, int64_t C);

#endif
