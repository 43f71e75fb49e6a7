/* storage.h: memory that a model needs: --weights auto stores matrices so that they fit; states. */
#ifndef SN_STORAGE_H
#define SN_STORAGE_H

#include "frontend/sinter.h"

/* The first of f32, bf16, int8, int4 that fits into `available` bytes while the weights are prepared;
 * int4 if none does. bf16 comes first if the file's matrices are bf16: it loses nothing then. w may
 * be NULL: random f32. Unless that is the first, writes a sentence why to note. */
const char *storage_choose(sn_module *m, const sn_weights *w, size_t available, char *note,
                           size_t size);

/* Bytes of all states (keys and values of a whole context). */
double storage_of_states(sn_module *m);

#endif
