/* probe.h: measures the machine's limits, the roofline.
 * A bench interleaves these probes with its work, because the speed of a shared machine drifts. */
#ifndef SN_PROBE_H
#define SN_PROBE_H

#include "runtime/base.h"

/* Peak f32 multiply-add rate of `threads` OpenMP threads: GFLOP/s (2 per element) of the fastest of
 * the bursts that fit into `seconds`, at least one. Uses AVX-512, AVX2 with FMA, or plain C, depending on the CPU. */
double sn_probe_fma_peak(int threads, double seconds);

/* Clock of this CPU in GHz, by a loop of dependent multiplications of integers, which take three cycles each on all
 * x86-64 CPUs since 2008: the fastest of some of 0.2 ms. NaN: another architecture. */
double sn_probe_ghz(void);

/* Bandwidth in GB/s of reading `bytes` bytes at p, each thread its part once, in order. */
double sn_probe_read(int threads, const void *p, size_t bytes);

/* The same for a new buffer of `bytes` bytes that was written first; best of three passes. 0: out
 * of memory. */
double sn_probe_read_bandwidth(int threads, size_t bytes);

/* Peak rate for other element types, named by sn_probe_peak_name ("f32", "f64", "bf16", "fp16", "int8"):
 * GFLOP/s (2 per product), 0 if the CPU has no such instruction. "f32 in L1": the mean rate of a tile of products whose
 * factors are loaded from L1, the limit of any product of matrices: some CPUs lower their clock for it. */
double sn_probe_peak(int kind, int threads, double seconds);
const char *sn_probe_peak_name(int kind); /* NULL after the last */

/* Seconds to stream once: reads n_read bytes at src and writes n_write bytes at dst, each thread
 * its part in order; the bytes that both have in common are copied. */
double sn_probe_stream(int threads, const void *src, size_t n_read, void *dst, size_t n_write);

/* Seconds to read n blocks once, one after another; each thread reads its part of each block in
 * order. */
typedef struct sn_probe_block {
    const void *at; /* aligned to 64 */
    size_t bytes;
} sn_probe_block;
double sn_probe_blocks(int threads, const sn_probe_block *block, int n);

#endif
