/* weights.h: named tensors of a safetensors or GGUF file, mapped for reading; safetensors are
 * written atomically. Formats: safetensors (huggingface/safetensors README) is a u64 header length, a
 * JSON header, and the tensors' bytes; GGUF is described in runtime/files/gguf.h. */
#ifndef SN_WEIGHTS_H
#define SN_WEIGHTS_H

#include "runtime/base.h"
#include "runtime/problems.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SN_WEIGHT_RANK = 8 };

enum { SN_BLOCK_ELEMENTS = 256, SN_BLOCK_GROUPS = 16 }; /* at most */

/* A block taken apart: integers and factors. */
typedef struct sn_block_parts {
    int8_t q[SN_BLOCK_ELEMENTS];
    int8_t scales[SN_BLOCK_GROUPS], mins[SN_BLOCK_GROUPS]; /* of groups, if there are several */
    uint16_t scale, min;                                   /* f16; bf16 in some formats */
} sn_block_parts;

/* How quantised values are stored: blocks of integers with their factors, along the last axis. A
 * value is q * scale + min, where min is 0 without has_min; in blocks of several groups the group's
 * integer factors times those of the block take the place of scale and min. */
typedef struct sn_block_format {
    const char *name;    /* "Q4_0" */
    int elements, bytes; /* of a block */
    int group;           /* elements that share factors */
    int nibble;          /* sn_nibble of integers that fit 4 bits; SN_NIBBLES: others */
    bool has_min;
    void (*split)(const unsigned char *block, sn_block_parts *out);
    sn_dtype factors; /* type of scale and min: SN_F16, SN_BF16 */
    bool apart;       /* scales are not in the blocks, but bytes elsewhere: sn_weight.scales */
} sn_block_format;

extern const int8_t sn_fp4_doubled[16]; /* the integers of SN_NIBBLE_FP4, by their 4 bits */

/* The parts of all blocks of a tensor, each as an array. */
typedef enum sn_weight_part {
    SN_PART_INTEGERS,  /* i8 [.., K] */
    SN_PART_SCALES,    /* [.., K / group]: the format's factors; i8 if blocks have several groups */
    SN_PART_MINIMA,    /* the same; with has_min */
    SN_PART_OF_SCALES, /* [.., K / elements]: factors of the scales; blocks of several groups */
    SN_PART_OF_MINIMA,
    SN_PARTS
} sn_weight_part;

/* One tensor, row-major; rank 0 is a scalar. When read: the memory belongs to the sn_weights, is
 * read-only, and is aligned as in the file: in a safetensors file whose header has an odd length, not
 * even to the element size (sn_weight_to_f32 and sessions read such data). When written: the memory
 * belongs to the caller. */
typedef struct sn_weight {
    const char *name;
    sn_dtype dtype;
    int rank;
    int64_t shape[SN_WEIGHT_RANK];
    const void *data;
    size_t bytes; /* product of shape times element size; of a quantised tensor, its blocks */
    /* NULL: data is an array of dtype. Otherwise data are blocks, and dtype is SN_F32, the type that
     * sn_weight_to_f32 converts them to. */
    const sn_block_format *block;
    const unsigned char
        *scales; /* of blocks whose format keeps them apart: a byte each, 2^(byte - 127) */
} sn_weight;

typedef struct sn_meta {
    const char *key, *value;
} sn_meta;

/* One open file, or several that form one set. Immutable, so any number of threads may use it. */
typedef struct sn_weights sn_weights;

/* Maps PATH: a .safetensors file, a "….safetensors.index.json" that distributes tensors over
 * several files of its folder, or a GGUF file (by its first bytes; names are those of the file).
 * Tensor data is never copied. The whole header is validated first: offsets inside the file, in order, without overlaps or gaps; shape
 * times size equal to the byte range; known dtypes; unique names; header at most 16 MB. Bytes "NAME_blocks" and
 * "NAME_scales" of MXFP4 become one tensor NAME_blocks. NULL on error, which names the file and the tensor. */
sn_weights *sn_weights_open(const char *path, sn_error *err);
void sn_weights_close(sn_weights *w); /* NULL is allowed */

const char *sn_weights_path(const sn_weights *w);                        /* as opened; owned by w */
size_t sn_weights_count(const sn_weights *w);                            /* number of tensors */
const sn_weight *sn_weights_at(const sn_weights *w, size_t i);           /* in file order */
const sn_weight *sn_weights_find(const sn_weights *w, const char *name); /* NULL if absent */

/* Like find, but a missing tensor or a wrong shape is recorded as a problem (and NULL returned), so
 * that all of them can be reported at once. A dimension of -1 matches any size. */
const sn_weight *sn_weights_need(const sn_weights *w, const char *name, int rank,
                                 const int64_t *shape, sn_problems *p);

/* The "__metadata__" strings of the (first) file. */
size_t sn_weights_meta_count(const sn_weights *w);
sn_meta sn_weights_meta_at(const sn_weights *w, size_t i);
const char *sn_weights_meta(const sn_weights *w, const char *key); /* NULL if absent */

/* A hash that changes when one of the files is replaced or written: of their devices, inodes, sizes
 * and times. 0: unknown. */
uint64_t sn_weights_identity(const sn_weights *w);

/* Removes the pages of a tensor's data from the process's memory until they are read again. Ignores
 * memory that is not a tensor's. */
void sn_weights_release(const sn_weights *w, const void *data, size_t bytes);
/* Starts to read a tensor's data from the disk. Ignores memory that is not a tensor's. */
void sn_weights_prefetch(const sn_weights *w, const void *data, size_t bytes);

/* Memory for sn_weights_read of that many bytes. */
size_t sn_weights_read_room(size_t bytes);
/* Reads a tensor's data from the disk, past the page cache, into `room`, which is aligned to 4096.
 * Returns where it begins there, as aligned as in the file. NULL: most of it is in the page cache,
 * the file system cannot read in that way, the file was replaced or is damaged, or it is not a
 * tensor's data: use the mapped pages. */
const void *sn_weights_read(const sn_weights *w, const void *data, size_t bytes, void *room);

/* Converts elements to f32 (from f32, f64, bf16, f16, blocks); false for other dtypes. `out` has room
 * for sn_weight_elements floats. */
bool sn_weight_to_f32(const sn_weight *t, float *out);

/* Type and number of elements of a part of a block; 0: the format does not have that part. */
int sn_block_part(const sn_block_format *f, sn_weight_part part, sn_dtype *dtype);
/* Writes a part of each of the blocks in t->data. */
void sn_weight_split(const sn_weight *t, sn_weight_part part, void *out);

/* Number of elements; -1 if the shape of a weight that was filled by hand is negative or too
 * large. */
int64_t sn_weight_elements(const sn_weight *t);

/* Writes a file atomically: on failure (such as a full disk) the old one is intact. Tensors whose
 * sizes are multiples of 64 bytes come first and start at multiples of 64; the format allows no
 * padding between tensors, so the others follow at their natural alignment. Otherwise the order is
 * kept. Adds the metadata "format": "pt" unless given, which Hugging Face's loader requires.
 * Invalid names, duplicates, and shapes that do not match `bytes` are errors. */
bool sn_weights_save(const char *path, const sn_weight *tensors, size_t count, const sn_meta *meta,
                     size_t meta_count, sn_error *err);

/* Is told from time to time how many of the bytes are written, and supplies what is not in memory. */
typedef struct sn_weights_progress {
    void (*advance)(void *ctx, double done, double total); /* may be NULL */
    /* The data of tensors[i], whose data is NULL, as long as they are needed: until the next call. Called
     * once for each such tensor. NULL, with the reason in err, ends the writing. */
    const void *(*data)(void *ctx, size_t i, sn_error *err); /* may be NULL */
    void *ctx;
} sn_weights_progress;

/* sn_weights_save without metadata. progress: NULL, or called before every 16 MB and at the end. */
bool sn_weights_save_with(const char *path, const sn_weight *tensors, size_t count,
                          const sn_weights_progress *progress, sn_error *err);

/* A tensor in a block of memory. The struct NAME_parameter of artefacts that train has the same
 * layout. */
typedef struct sn_weight_place {
    const char *name;
    int32_t dtype, rank; /* dtype: an sn_dtype */
    int64_t shape[SN_WEIGHT_RANK];
    int64_t offset, bytes; /* offset in the block, size */
} sn_weight_place;

/* sn_weights_save for `count` tensors of a block, without metadata: writes the trained parameters
 * in an artefact's state as a model.safetensors. */
bool sn_weights_save_state(const char *path, const sn_weight_place *places, size_t count,
                           const void *state, sn_error *err);

#ifdef __cplusplus
}
#endif
#endif
