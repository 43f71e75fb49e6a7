/* entities.h: what a classifier of tokens says of a text: labels of words, and of the names that
 * several words make up. Used by classify. */
#ifndef SN_ENTITIES_H
#define SN_ENTITIES_H

#include "model/encoder.h"

/* Bytes [begin, end) of the text have the label (an index of lm_label). */
typedef struct entity {
    int64_t label;
    float p; /* the mean over its words; of a model with one label, its own probability */
    size_t begin, end;
} entity;

/* A word has the label of its first token. If labels are named B-X and I-X, words that continue a
 * name (I-X after B-X or I-X) are one entity, and words labelled O are none; otherwise every word is
 * an entity. *out: *n entities in the order of the text; the caller frees it. */
bool encoder_entities(open_model *m, const char *text, size_t size, entity **out, size_t *n,
                      sn_error *err);

/* The label's name without B- (*begins) and I-; NULL: the config does not name it. */
const char *entity_label(const open_model *m, int64_t label, bool *begins);

#endif
