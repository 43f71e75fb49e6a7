/* recurrence.h: the loops of recurrent layers, for kernels.def; what they and those of tests share. */
#ifndef SN_BENCH_RECURRENCE_H
#define SN_BENCH_RECURRENCE_H

#include "frontend/sinter.h"

/* x [.., N] as [.., N, 1] and as [.., 1, N]; q [.., K] times S [.., K, V]. */
static inline sn_tensor col(sn_tensor x) {
    return sn_expand(x, -1);
}
static inline sn_tensor row(sn_tensor x) {
    return sn_expand(x, -2);
}
static inline sn_tensor times_state(sn_tensor q, sn_tensor S) {
    return sn_squeeze(sn_matmul(row(q), S), -2);
}

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
