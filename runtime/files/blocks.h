/* blocks.h: the quantised tensor types of GGUF files: blocks of integers with their scales.
 * Internal. */
#ifndef SN_BLOCKS_H
#define SN_BLOCKS_H

#include "runtime/weights.h"

/* A type of a tensor in a GGUF file: an array of `dtype`, or blocks that become f32. */
typedef struct sn_gguf_tensor_type {
    uint32_t id;
    sn_dtype dtype;
    const sn_block_format *block; /* NULL: an array */
} sn_gguf_tensor_type;

/* NULL: unknown. */
const sn_gguf_tensor_type *sn_gguf_tensor_type_find(uint32_t id);
/* "F32, F16, Q8_0, …", for messages */
void sn_gguf_tensor_type_list(char *out, size_t size);

#endif
