/* npy.h: one array in NumPy's .npy format (versions 1 to 3), for reference data, imports and taps.
 * Source: numpy/lib/format.py ("NEP 1"). */
#ifndef SN_NPY_H
#define SN_NPY_H

#include "runtime/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SN_NPY_RANK = 8 };

/* A row-major array; owns its data: free with sn_npy_free. */
typedef struct sn_npy {
    sn_dtype dtype;
    int rank;
    int64_t shape[SN_NPY_RANK];
    int64_t count; /* number of elements */
    size_t bytes;
    void *data; /* 64-byte aligned */
} sn_npy;

/* Reads a file or a block of memory (`name` is used in messages). Accepts little-endian arrays in C
 * order with an element type of base.h; the length must be exact. On failure `out` is empty. */
bool sn_npy_open(const char *path, sn_npy *out, sn_error *err);
bool sn_npy_parse(const char *name, const void *data, size_t bytes, sn_npy *out, sn_error *err);
void sn_npy_free(sn_npy *a);

/* Writes a row-major array of a type that the format has (all of base.h but bf16), atomically
 * (runtime/file.h). */
bool sn_npy_save(const char *path, sn_dtype t, int rank, const int64_t *shape, const void *data,
                 sn_error *err);
/* What precedes the data of such a file; returns its length. rank <= SN_NPY_RANK. */
enum { SN_NPY_HEADER = 512 };
size_t sn_npy_header(sn_dtype t, int rank, const int64_t *shape, char out[SN_NPY_HEADER]);
bool sn_npy_save_f32(const char *path, int rank, const int64_t *shape, const float *data,
                     sn_error *err);

#ifdef __cplusplus
}
#endif
#endif
