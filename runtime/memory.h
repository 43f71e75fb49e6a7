/* memory.h: allocates large blocks for weights and activations. */
#ifndef SN_MEMORY_H
#define SN_MEMORY_H

#include <stddef.h>

/* The least multiple of `to` that is not below n >= 0. */
#define SN_ROUND_UP(n, to) (((n) + (to)-1) / (to) * (to))

/* Allocates `bytes` aligned to 64; release with free(). Blocks of 4 MB and more are aligned to huge
 * pages and request them from the kernel: streaming weights from memory gets 3 to 7 % faster, and
 * first touches cause fewer page faults. NULL: out of memory. */
void *sn_memory_alloc(size_t bytes);

/* Maps zeroed memory aligned to huge pages. It uses no memory until it is written. Release with
 * sn_memory_unmap, not free(). NULL: out of memory; bytes may be 0. */
void *sn_memory_map(size_t bytes);
/* The same in pages of the smallest size: memory written in places that lie far apart costs only
 * these places. */
void *sn_memory_map_sparse(size_t bytes);
/* Makes pages of such a mapping huge, from p, a multiple of 2 MB, on: those of the first 2 MB at once, in 0.3 ms, with what
 * is in them (from Linux 6.1 on), and others when they are written first. Else the system may do that later. */
void sn_memory_collapse(void *p, size_t bytes);
void sn_memory_unmap(void *p, size_t bytes); /* NULL is allowed */

/* Zeroed memory that ends at a page without access, so that whoever touches the byte behind it
 * crashes. Aligned to what `bytes` is a multiple of, up to a page. NULL: out of memory. */
void *sn_memory_guarded(size_t bytes);
void sn_memory_release_guarded(void *p, size_t bytes); /* NULL is allowed */

/* Zeroes memory of sn_memory_map. Whole pages are returned to the system, so they use no memory. */
void sn_memory_zero(void *p, size_t bytes);
/* Discards the contents: returns whole pages to the system. Valid for any allocated memory. */
void sn_memory_drop(void *p, size_t bytes);

/* Pages of a mapped file, of its first GiB, all at once: one by one, at the first use of each, they take several times as
 * long. A piece of 2 MB is taken if its first page is in the page cache: the rest of it is read from the disk if it is not
 * there. Of a file that the process may not write, the kernel says that all is. The mapping begins at a page. Nothing happens
 * before Linux 5.14. */
void sn_memory_populate_file(const void *mapped, size_t bytes);
/* All pages of allocated memory at once, before they are written. Nothing happens before Linux 5.14. */
void sn_memory_populate(void *p, size_t bytes);
/* With glibc, malloc's next blocks lie in huge pages: so many bytes, at most 24 MB. For programs whose start matters: a small
 * page costs a fault at its first use (on some virtual machines 20 us). Once per process. */
void sn_memory_huge_heap(size_t bytes);

/* Memory that the system can provide without taking it from other processes (MemAvailable and free
 * swap), limited by the address space left to the process (RLIMIT_AS, RLIMIT_DATA). SIZE_MAX:
 * unknown, or no limit. */
size_t sn_memory_available(void);
size_t sn_memory_space(void);

#endif
