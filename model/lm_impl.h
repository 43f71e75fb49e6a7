/* lm_impl.h: a model that was opened with lm_open, as an sn_lm. */
#ifndef SN_MODEL_LM_IMPL_H
#define SN_MODEL_LM_IMPL_H

#include "model/lm.h"
#include "model/open.h"

/* m: opened with SN_CACHED. Closing the result closes m. NULL on error; then m stays open. */
sn_lm *lm_new(open_model *m, sn_error *err);

/* The same in two steps: what runs the model, and the sn_lm of that or of another engine. */
sn_lm_engine lm_engine(open_model *m);
sn_lm *lm_new_with(const open_model *m, const sn_lm_engine *engine, sn_error *err);

/* The options that do not depend on what the model is for. o may be NULL. */
open_options lm_options_of(const char *path, const sn_lm_options *o);

#endif
