/* entries.h: entries that a user asks for by name, as --entries of `sinter compile` does. */
#ifndef SN_MODEL_ENTRIES_H
#define SN_MODEL_ENTRIES_H

#include "frontend/models.h"

/* All that a model may have. */
enum { LM_ANY_ENTRIES = SN_ALL_ENTRIES | SN_STEP | SN_EMBED };

/* Reads "forward,cached" as bits of frontend/models.h; NULL or "": 0. False: an unknown name. */
bool model_entries_read(const char *list, int *out, sn_error *err);

/* Those bits of `named` for which the module has no entry. */
int model_entries_missing(sn_module *m, int named);

/* The error that names the first of them, and what `all` has: the same model with LM_ANY_ENTRIES.
 * Returns false. */
bool model_entries_fail(const char *type, sn_module *m, int named, sn_module *all, sn_error *err);

#endif
