/* gguf_model.h: a GGUF file as a model folder: its keys as a config, its tensors under the names
 * that Sinter's architectures use. Internal. */
#ifndef SN_GGUF_MODEL_H
#define SN_GGUF_MODEL_H

#include "runtime/config.h"
#include "runtime/files/gguf.h"

/* The config that config.json would hold, of a GGUF file opened as weights, before sn_gguf_rename.
 * An unknown architecture, and keys that change the result and have no counterpart, are errors. NULL
 * on error. */
sn_config *sn_gguf_config(const sn_weights *w, sn_error *err);

/* Name of the i-th architecture in GGUF files; NULL: no more. */
const char *sn_gguf_architecture(int i);

/* Renames the tensors of a GGUF file. Tensors that the architecture does not know keep their
 * names. */
bool sn_gguf_rename(sn_weights *w, sn_error *err);

#endif
