/* memory.h: large blocks of memory for weights and activations. */
#ifndef SN_MEMORY_H
#define SN_MEMORY_H

#include <stddef.h>

/* `bytes` of memory aligned to 64, to be released by free(). Blocks of 4 MB and more are whole huge
 * pages and ask the kernel for such: weights that stream from memory come 3 to 7 % faster, and
 * first touches cost fewer page faults. NULL: out of memory. */
void *sn_memory_alloc(size_t bytes);

/* Zero bytes straight from the system, aligned to huge pages: they cost memory only from the first
 * write on. Not for free(). NULL: out of memory; bytes may be 0. */
void *sn_memory_map(size_t bytes);
void sn_memory_unmap(void *p, size_t bytes); /* NULL is allowed */

/* Writes zeros; whole pages are given back to the system instead, which reads them as zeros and
 * costs no memory. The memory must be a mapping of sn_memory_map. */
void sn_memory_zero(void *p, size_t bytes);
/* What is in these bytes is no longer needed: gives whole pages back. Of any allocated memory. */
void sn_memory_drop(void *p, size_t bytes);

/* How much memory the system can give without taking it from other programs (MemAvailable and free
 * swap), and how much more address space the process may take (RLIMIT_AS, RLIMIT_DATA). SIZE_MAX:
 * not known, or no limit. */
size_t sn_memory_available(void);
size_t sn_memory_space(void);

#endif
