/* fuzz.h: random small graphs for fuzz_graph.c, and the values of their leaves. */
#ifndef SN_TESTS_FUZZ_H
#define SN_TESTS_FUZZ_H

#include "ir/ir.h"

typedef struct fuzz_rng {
    uint64_t state;
} fuzz_rng;

int fuzz_below(fuzz_rng *r, int n); /* in [0, n) */

/* A raw module with one entry "f" of 1 to 3 outputs. Every graph can be evaluated: indices are in
 * range. Odd seeds: elementwise and structural ops of all element types; even seeds: also composite
 * and fused ops, with f64 floats. No float is divided by a zero whose sign depends on folding.
 * NULL: out of memory; a module error is a bug of the generator or the constructors. FUZZ_OPEN: dims
 * have lower bound 0, and sizes, starts and ends are differences of them, so that some runs must be
 * rejected. FUZZ_PRODUCTS: all seeds as even ones, but with
 * f32 floats, often with products, and without ops whose results jump. */
typedef enum fuzz_kind { FUZZ_ANY, FUZZ_OPEN, FUZZ_PRODUCTS } fuzz_kind;
sn_module *fuzz_graph(uint64_t seed, fuzz_kind kind);

/* A value in range for every symbol of the module; depends on the name only. */
void fuzz_symbol_values(const sn_module *m, int64_t *values);
/* Binds every input, parameter and state that the entry reads; depends on name and type only. */
bool fuzz_bind(sn_eval *ev, sn_module *m, const sn_entry *e, const int64_t *symbols);
/* The elements that it binds to a leaf; the caller frees them. */
void *fuzz_leaf_data(const sn_node *leaf, const int64_t *symbols, size_t *bytes);

/* The seed given as a fuzzer's argument; 0: one from the clock. Prints it, so that the run can be
 * repeated. No argument (NULL): 1. */
uint64_t fuzz_seed(const char *argument);

/* Removes a cache folder. */
void fuzz_remove_kernels(const char *folder);

/* compiled.c: whether the contract defines every element that the graph computes: no integer is
 * beyond 2^53, no cast out of range. */
bool fuzz_is_defined(const char *text, const int64_t *symbols);
/* Compiles the graph at every fusion level, with `compute` as in sn_options, and compares with the
 * evaluator. cache_dir: shared kernel cache. False: err has the reason. */
bool fuzz_check_compiled(const char *text, const char *compute, const char *cache_dir, char *why,
                         size_t size);
/* The same for all values of the dims of an open graph, including sizes that must be rejected. */
bool fuzz_check_open(const char *text, const char *cache_dir, char *why, size_t size);

#endif
