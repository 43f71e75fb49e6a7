/* file_blocks.h: what the weights file says about parameters, for weights "stored". */
#ifndef SN_FILE_BLOCKS_H
#define SN_FILE_BLOCKS_H

#include "passes/passes.h"

/* How a matrix is stored: as an array of dtype, or in blocks (then dtype is SN_F32). */
typedef struct sn_storage {
    sn_dtype dtype;
    const sn_block_format *block;
} sn_storage;

/* The storage of w: what all parameters have that it is moved or concatenated from. An array of w's
 * own type if they differ, if w is computed, or if the option is another. */
sn_storage sn_file_storage(const sn_passes *p, const sn_node *w);
bool sn_storage_equal(sn_storage a, sn_storage b);

/* A part of w, whose storage is in blocks: a parameter SN_BLOCKS "2.NAME" of the part's type, or rows of
 * such, moved as those of w; [.., elements of the part]. NULL: the format does not have the part, or w
 * cuts rows. */
sn_node *sn_block_param(const sn_passes *p, sn_node *w, sn_weight_part part);

#endif
