/* sentence_modules.h: the modules of a Sentence-Transformers folder as a section of the config.
 * Internal. */
#ifndef SN_SENTENCE_MODULES_H
#define SN_SENTENCE_MODULES_H

#include "runtime/config.h"
#include "runtime/weights.h"

#define SN_SENTENCE_MODULES "modules.json"

/* If the folder has a modules.json: adds to the config the section "sentence_embedding", which has a
 * section "0", "1", … for each module after the encoder: its config.json, "module" (the type:
 * "Pooling", "Dense", "Normalize", …) and "name" (its folder). Weights of Dense modules are added to w
 * (NULL: not) as NAME.linear.weight. Other folders are left alone. */
bool sn_sentence_modules_read(const char *folder, sn_config *config, sn_weights *w, sn_error *err);

#endif
