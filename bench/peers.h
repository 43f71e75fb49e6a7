/* peers.h: other systems to compare with: OpenBLAS as a shared library, PyTorch and ONNX Runtime as
 * worker processes (bench/peers/). Absent ones are noted and skipped.
 *
 * A worker reads one request per line, a JSON object such as
 *   {"work": "gemm", "m": 64, "n": 768, "k": 768, "threads": 2, "repeats": 3}
 * or, to run an ONNX file,
 *   {"work": "file", "path": "/…/m.onnx",
 *    "inputs": {"ids": {"type": "i64", "dims": [1, 64], "limit": 97}}, …}
 * or, to run several files in turn (the peer makes their inputs: the names of dims in a file say which size they have),
 *   {"work": "files", "files": [{"path": "/…/decoder_model_merged.onnx", "batch": 1, "tokens": 1, "past": 64,
 *                                "source": 64,
 *                                "mel": 0, "frames": 0, "limit": 97}, …]}
 * (limit: of indices; 0: not indices; "compute": "int8" wants linear maps as products of 8-bit integers,
 * whose rows are quantised at run time) and answers with one line: {"seconds": S}, the mean over the repeats after an
 * untimed run (0 repeats: of one run without it), with
 * "path": "…" if the peer knows which kernels it ran;
 * {"skip": "why"} if it does not support the work; or {"error": "what happened"}. The first line
 * that it writes, without a request, is {"setup": "PyTorch 1.13, …"}. */
#ifndef SN_PEERS_H
#define SN_PEERS_H

#include "bench/measure.h"

enum { SN_BENCH_MAX_PEERS = 8 };

typedef struct sn_bench_peers sn_bench_peers;

/* Starts the peers that o->peers names; notes in `out` say which are absent and why. NULL: out of
 * memory, or none requested. */
sn_bench_peers *sn_bench_peers_start(const sn_bench_options *o, sn_bench_report *out);
void sn_bench_peers_stop(sn_bench_peers *p); /* NULL is allowed */

/* Entrants for a request (a JSON object): the peers that support this work. Returns their number.
 * They are valid until the next call. */
int sn_bench_peers_enter(sn_bench_peers *p, const char *request,
                         sn_bench_entrant entrant[SN_BENCH_MAX_PEERS], sn_bench_report *out);

/* Names for help texts: the i-th, or NULL after the last. */
const char *sn_bench_peer_name(int i);

/* bench/openblas.c: tries the kernels of each CPU that this one can run, and those that OpenBLAS and the
 * environment choose, in processes of their own, and returns the fastest as a value of OPENBLAS_CORETYPE;
 * NULL: its own choice; "": OpenBLAS is not installed. */
const char *sn_bench_openblas_core(void);

/* cblas_sgemm of the fastest installed OpenBLAS. NULL with the reason: none
 * found. */
typedef struct sn_bench_openblas sn_bench_openblas;
sn_bench_openblas *sn_bench_openblas_open(int threads, char setup[SN_BENCH_SETUP], sn_error *err);
void sn_bench_openblas_close(sn_bench_openblas *b);
/* y [m, n] = x [m, k] w [n, k]^T for `copies` different w; seconds for all of them */
bool sn_bench_openblas_time(sn_bench_openblas *b, int64_t m, int64_t n, int64_t k, int64_t copies,
                            int repeats, double *seconds, sn_error *err);

#endif
