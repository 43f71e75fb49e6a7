/* caches.h: how much data cache one thread of a machine may count on. Block sizes follow from it;
 * results do not. */
#ifndef SN_CACHES_H
#define SN_CACHES_H

#include "runtime/base.h"

/* Bytes for one thread when every logical CPU runs one: hyperthreads divide the L1 and the L2 of
 * their core, all CPUs the last-level cache. */
typedef struct sn_caches {
    int64_t l1, l2, l3;
} sn_caches;

/* What this machine says: x86's CPUID leaves (4 by Intel, 0x8000001d by AMD), else Linux's sysfs.
 * Fields that neither knows stay as they are, so that *c should hold a guess. */
void sn_caches_host(sn_caches *c);

/* Reads one "l1=32K", "l2=1M" or "l3=8M" into *c; K and M are binary. An error names the part. */
bool sn_caches_set(sn_caches *c, const char *part, sn_error *err);

/* "l1=32K,l2=512K,l3=16M" in text[size]; returns text. */
const char *sn_caches_text(const sn_caches *c, char *text, size_t size);

#endif
