/* probe.h: what this machine can do at most: the measured roofline.
 * A bench interleaves these with its work, because a shared machine changes from minute
 * to minute. */
#ifndef SN_PROBE_H
#define SN_PROBE_H

#include "runtime/base.h"

/* f32 multiply-adds as fast as `threads` OpenMP threads can issue them, for `seconds`: GFLOP/s (2
 * an element). Uses AVX-512, AVX2 with FMA, or plain C, as the CPU has it. */
double sn_probe_fma_peak(int threads, double seconds);

/* Read bandwidth in GB/s of `bytes` bytes at p, each thread reading its part once in order. */
double sn_probe_read(int threads, const void *p, size_t bytes);

/* The same of a new buffer of `bytes` bytes that was written before; best of three passes. 0 if
 * there is no memory. */
double sn_probe_read_bandwidth(int threads, size_t bytes);

/* Other element types of the multiply-add units, as named by sn_probe_peak_name ("f32", "f64",
 * "bf16", "int8"): GFLOP/s (2 a product), 0 where the CPU has no instruction for it. */
double sn_probe_peak(int kind, int threads, double seconds);
const char *sn_probe_peak_name(int kind); /* NULL after the last */

/* Seconds of streaming once: reads n_read bytes at src and writes n_write bytes at dst, every
 * thread its part in order; what both have in common is a copy. */
double sn_probe_stream(int threads, const void *src, size_t n_read, void *dst, size_t n_write);

/* Seconds of reading n blocks once, one after the other: every thread its part of each,
 * in order. */
typedef struct sn_probe_block {
    const void *at; /* aligned to 64 */
    size_t bytes;
} sn_probe_block;
double sn_probe_blocks(int threads, const sn_probe_block *block, int n);

double sn_probe_now(void); /* seconds of a monotonic clock */

#endif
