/* lm_impl.h: a model that was opened with lm_open, as an sn_lm. */
#ifndef SN_MODEL_LM_IMPL_H
#define SN_MODEL_LM_IMPL_H

#include "model/lm.h"
#include "model/open.h"

/* m: opened with SN_CACHED. Closing the result closes m. NULL on error; then m stays open. */
sn_lm *lm_new(lm *m, sn_error *err);

/* The options that do not depend on what the model is for. o may be NULL. */
lm_options lm_options_of(const char *path, const sn_lm_options *o);

#endif
