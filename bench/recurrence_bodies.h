/* recurrence_bodies.h: bodies of recurrent loops, for benchmarks and for tests of models in C, which
 * include Sinter's header first. */
#ifndef SN_BENCH_RECURRENCE_BODIES_H
#define SN_BENCH_RECURRENCE_BODIES_H

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

/* x[0 ..] are q, k, v, the decay and, in delta rules, the share. */
static inline void gla(sn_scan_step *s) {
    s->next[0] = sn_add(sn_mul(col(s->x[3]), s->carry[0]), sn_mul(col(s->x[1]), row(s->x[2])));
    s->y[0] = times_state(s->x[0], s->next[0]);
}
static inline void mamba2(sn_scan_step *s) {
    sn_tensor kept = sn_mul(sn_expand(col(s->x[3]), -1), s->carry[0]);
    s->next[0] = sn_add(kept, sn_mul(col(s->x[1]), row(s->x[2])));
    s->y[0] = times_state(s->x[0], s->next[0]);
}
static inline void gated_deltanet(sn_scan_step *s) {
    sn_tensor S = sn_mul(sn_expand(col(s->x[3]), -1), s->carry[0]);
    sn_tensor miss = sn_sub(s->x[2], times_state(s->x[1], S));
    s->next[0] = sn_add(S, sn_mul(col(s->x[1]), row(sn_mul(col(s->x[4]), miss))));
    s->y[0] = times_state(s->x[0], s->next[0]);
}
static inline void rwkv7(sn_scan_step *s) {
    sn_tensor S = s->carry[0], removed = sn_mul(col(s->x[4]), row(times_state(s->x[1], S)));
    S = sn_sub(sn_mul(col(s->x[3]), S), removed);
    s->next[0] = sn_add(S, sn_mul(col(s->x[1]), row(s->x[2])));
    s->y[0] = times_state(s->x[0], s->next[0]);
}

#endif
