/* memory.h: large blocks of memory for weights and activations. */
#ifndef SN_MEMORY_H
#define SN_MEMORY_H

#include <stddef.h>

/* `bytes` of memory aligned to 64, to be released by free(). Blocks of 4 MB and more are whole huge
 * pages and ask the kernel for such: weights that stream from memory come 3 to 7 % faster, and
 * first touches cost fewer page faults. NULL: out of memory. */
void *sn_memory_alloc(size_t bytes);

/* Many blocks that live and end together, side by side in huge pages (a model's packed weights),
 * from chunks of 64 MB, which cost memory only where they are used. Zero-initialised; free releases
 * all. */
typedef struct sn_memory_pool {
    void **chunk; /* [n_chunk] */
    size_t n_chunk, left;
    char *at;
} sn_memory_pool;
void *sn_memory_pool_alloc(sn_memory_pool *p, size_t bytes); /* as sn_memory_alloc */
void sn_memory_pool_free(sn_memory_pool *p);

#endif
