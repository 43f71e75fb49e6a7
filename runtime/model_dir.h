/* model_dir.h: a model folder in Hugging Face's layout: config.json, model.safetensors (or
 * model.safetensors.index.json for several files) and the tokenizer's files; or a GGUF file, which
 * holds all of these. The modules of a Sentence-Transformers folder (modules.json) become a section
 * of the config, "sentence_embedding", and their weights tensors with the prefix of their folder. */
#ifndef SN_MODEL_DIR_H
#define SN_MODEL_DIR_H

#include "runtime/base.h"
#include "runtime/config.h"
#include "runtime/weights.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An open model. Owns config and weights; weights are mapped, not copied. */
typedef struct sn_model_dir {
    char *path;
    sn_config *config;
    sn_weights *weights;
} sn_model_dir;

/* Opens a model folder or a GGUF file. Without model.safetensors, a single *.safetensors file of
 * another name is used. Of a GGUF file, keys and tensors get the names that they have in a folder.
 * NULL on error: the message says what is missing and how to create it. */
sn_model_dir *sn_model_dir_open(const char *path, sn_error *err);
/* Whether sn_model_dir_open would find weights there: a folder may hold a config only. */
bool sn_model_dir_has_weights(const char *path);
/* Only the config of a model folder or GGUF file. The caller frees it. */
sn_config *sn_model_dir_config(const char *path, sn_error *err);
void sn_model_dir_close(sn_model_dir *m); /* NULL is allowed */

/* Path of a file in the folder ("tokenizer.bin"), allocated; NULL if it does not exist (or out of
 * memory). */
char *sn_model_dir_file(const sn_model_dir *m, const char *name);

/* Writes config.json and model.safetensors, each atomically, weights first, into a folder that is
 * created if missing. Refuses to save over a model of several weights files; nothing is removed. */
bool sn_model_dir_save(const char *path, sn_config *config, const sn_weight *tensors, size_t count,
                       sn_error *err);
/* The same; progress: of the weights, see weights.h; may be NULL. */
bool sn_model_dir_save_with(const char *path, sn_config *config, const sn_weight *tensors,
                            size_t count, const sn_weights_progress *progress, sn_error *err);

#ifdef __cplusplus
}
#endif
#endif
