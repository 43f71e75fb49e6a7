/* storage.h: memory that a model needs: --weights auto stores matrices so that they fit; states. */
#ifndef SN_STORAGE_H
#define SN_STORAGE_H

#include "frontend/sinter.h"

/* "stored" if the weights fit into `available` bytes as the file has them while they are prepared;
 * else the first of bf16, int8, int4 that is smaller and fits; the smallest if none does. w may be
 * NULL: f32. Unless that is "stored", writes a sentence why to note. */
const char *storage_choose(sn_module *m, const sn_weights *w, size_t available, char *note,
                           size_t size);

/* Bytes of all states (keys and values of a whole context), where caches are stored as `cache`:
 * sn_options. */
double storage_of_states(sn_module *m, const char *cache);

#endif
