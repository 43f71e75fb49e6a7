/* cache.h: keys and values that states keep from call to call, in fewer bits (cache.c). */
#ifndef SN_CACHE_STATES_H
#define SN_CACHE_STATES_H

#include "ir/ir.h"

/* Whether `name` is a storage of caches: "bf16" or "int8". */
bool sn_cache_knows(const char *name);
/* The states that are caches of keys and values, in arena memory; *n: how many. */
const sn_node *const *sn_cache_states(sn_module *m, int *n);
/* Bytes of such a state as `cache` stores it; NULL: in its own type. */
double sn_cache_bytes(const sn_node *state, const char *cache);

#endif
