/* folder_tensors.h: the tensors of a quantised model's weights file. */
#ifndef SN_FOLDER_TENSORS_H
#define SN_FOLDER_TENSORS_H

#include "model/quantise/subject.h"

typedef struct folder_tensors {
    sn_weight *list; /* data: of the model's file, of the subject or of `owned` */
    size_t count;
    void **owned;
} folder_tensors;

/* The tensors of the model's own file in its order. Parameters that changed get their values, in the
 * narrowest of bf16, f16 and f32 that holds them exactly; tensors that the model does not read and that
 * equal such a parameter (a second copy of tied embeddings) follow it. Freed in any case. */
bool folder_tensors_make(const subject *s, folder_tensors *t, sn_error *err);
void folder_tensors_free(folder_tensors *t);
/* Whether a tensor belongs to a module of Sentence-Transformers, which has a file of its own. */
bool folder_tensor_is_apart(const subject *s, const char *name);

#endif
