/* graph_case.h: benchmarks a graph of the DSL: compiled for every requested level and back end,
 * checked against the f64 evaluator on a reduced problem, timed in interleaved rounds beside its
 * peers. */
#ifndef SN_GRAPH_CASE_H
#define SN_GRAPH_CASE_H

#include "bench/measure.h"
#include "frontend/sinter.h"

/* A symbolic dimension: its value when timed, and its value in the reduced problem. */
typedef struct sn_bench_size {
    const char *name;
    int64_t timed, checked;
} sn_bench_size;

typedef struct sn_bench_graph {
    const char *kind, *name, *shape;
    /* Builds the graph into a new module, NULL on failure. Called once per variant. */
    sn_module *(*build)(const void *spec, sn_error *err);
    const void *spec;
    const char *entry; /* the entry to run */
    const sn_bench_size *size;
    int n_size;
    int64_t id_limit; /* integer inputs are below it where they index no table; 0: they are 0 */
    double flop;      /* < 0: as `sinter explain` counts it at level 4 */
    /* bytes read and written; < 0: inputs and parameters once (gathered tables: the rows read),
     * outputs once */
    double bytes[2];
    double tokens; /* of models: for tokens_s */
    double runs;   /* the graph does the work this many times, on different weights; 0: once */
    bool check;    /* compare with the evaluator if the options allow it */
} sn_bench_graph;

/* Attention in plain operations: q, k and v [B,H,T,d], of the entry that is being built. The results
 * are [B,H,T,d], causal. */
typedef struct sn_bench_plain {
    sn_module *m;
    sn_tensor q, k, v;
    sn_dim B, T;
    int64_t H, d;
} sn_bench_plain;
sn_tensor sn_bench_plain_retention(const sn_bench_plain *p);
sn_tensor sn_bench_plain_sigmoid(const sn_bench_plain *p);
sn_tensor sn_bench_plain_relu2(const sn_bench_plain *p);
/* With a sink of each head: a column that is cut off, a term of the sum, a gate of logsumexp; softmax
 * plus one. */
sn_tensor sn_bench_sink_column(const sn_bench_plain *p);
sn_tensor sn_bench_sink_term(const sn_bench_plain *p);
sn_tensor sn_bench_sink_gate(const sn_bench_plain *p);
sn_tensor sn_bench_sink_one(const sn_bench_plain *p);
/* Heads that mix before and after the softmax; the first one without a mask. */
sn_tensor sn_bench_talking(const sn_bench_plain *p);
sn_tensor sn_bench_talking_causal(const sn_bench_plain *p);

/* Element i of boolean inputs: three of four are true, in pseudo-random order. */
bool sn_bench_truth(int64_t i);

/* peer_request: the request to the peers, a JSON object without the number of repeats; NULL: no
 * peers. more: further entrants (may be NULL). */
bool sn_bench_graph_run(const sn_bench_options *o, const sn_bench_graph *g,
                        const char *peer_request, const sn_bench_entrant *more, int n_more,
                        sn_bench_report *out, sn_error *err);

/* Bytes per element of a weight stored as `weights`, relative to f32. */
double sn_bench_storage(const char *weights);
/* The type of a product's factors: f32, bf16, or i8 for products with constant matrices. */
sn_dtype sn_bench_factors(const sn_bench_options *o);
/* How a request to a peer ends (peers.h) for that. */
const char *sn_bench_peer_compute(const sn_bench_options *o);

#endif
