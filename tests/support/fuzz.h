/* fuzz.h: random small graphs for fuzz_graph.c, and the values of their leaves. */
#ifndef SN_TESTS_FUZZ_H
#define SN_TESTS_FUZZ_H

#include "ir/ir.h"

typedef struct fuzz_rng {
    uint64_t state;
} fuzz_rng;

int fuzz_below(fuzz_rng *r, int n); /* in [0, n) */

/* A raw module with one entry "f" of 1 to 3 outputs. Every graph can be evaluated: indices are in
 * range. Odd seeds: elementwise and structural ops of all element types; even seeds: composite and
 * fused ops too, floats are f64. No float is divided by a zero whose sign folding may change. NULL:
 * out of memory; module error: a fault of the generator or the constructors. open: dims are 0 at
 * least and sizes, starts and ends are differences of them, so that some runs must be refused. */
sn_module *fuzz_graph(uint64_t seed, bool open);

/* A value for every symbol of the module, within its range; the same for the same name. */
void fuzz_symbol_values(const sn_module *m, int64_t *values);
/* Binds every input, parameter and state that the entry reads; the same for the same name
 * and type. */
bool fuzz_bind(sn_eval *ev, sn_module *m, const sn_entry *e, const int64_t *symbols);
/* The elements that it binds to one leaf; free()d by the caller. */
void *fuzz_leaf_data(const sn_node *leaf, const int64_t *symbols, size_t *bytes);

/* The seed that a fuzzer's argument means: itself, or one drawn from the clock for 0. Prints it, so
 * that a run can be repeated. No argument (NULL): 1. */
uint64_t fuzz_seed(const char *argument);

/* Removes a folder of compiled kernels. */
void fuzz_remove_kernels(const char *folder);

/* fuzz_compiled.c: the graph as machine code at every fusion level against the evaluator.
 * cache_dir: where equal kernels are kept. False: why. */
bool fuzz_check_compiled(const char *text, const char *cache_dir, char *why, size_t size);
/* The same for all values of the dims of an open graph, refusals included. */
bool fuzz_check_open(const char *text, const char *cache_dir, char *why, size_t size);

#endif
