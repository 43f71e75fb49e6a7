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

/* Blocks of MXFP4 [OCP Microscaling Formats 1.0] whose scales are apart; value 2 j is in the low half of
 * byte j, value 2 j + 1 in the high half. */
extern const sn_block_format sn_mxfp4_apart;
/* The scale of the integers of a block of MXFP4, twice its values: bf16 2^(e - 128), NaN of 255. */
uint16_t sn_mxfp4_scale(unsigned char e);

/* NULL: unknown. */
const sn_gguf_tensor_type *sn_gguf_tensor_type_find(uint32_t id);
/* "F32, F16, Q8_0, …", for messages */
void sn_gguf_tensor_type_list(char *out, size_t size);

#endif
