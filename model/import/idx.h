/* idx.h: the IDX format of the MNIST files: magic 0 0 TYPE RANK, big-endian sizes, bytes.
 * Source: LeCun, Cortes, Burges, "The MNIST database", section "file format". */
#ifndef SN_IDX_H
#define SN_IDX_H

#include "runtime/file.h"

typedef struct sn_idx {
    sn_mapping map;
    int rank; /* 1 labels, 3 images */
    int64_t shape[4];
    const unsigned char *data; /* pointer into the mapping */
} sn_idx;

/* Maps a file of unsigned bytes; its length must match its sizes exactly. */
bool idx_open(const char *path, sn_idx *out, sn_error *err);
void idx_close(sn_idx *x);

#endif
