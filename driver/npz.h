/* npz.h: NumPy's .npz archives: zip files of .npy arrays, stored or deflated. */
#ifndef SN_NPZ_H
#define SN_NPZ_H

#include "runtime/file.h"
#include "runtime/npy.h"

bool npz_is(const sn_mapping *m); /* begins as one does */

/* Called with each array, in the order of the archive; owns it. False with err: stops. */
typedef bool npz_take(void *ctx, const char *name, sn_npy *a, sn_error *err);

/* Reads an archive whose files are all arrays. Limits the unpacked size, checks checksums, and
 * refuses a name that occurs twice. */
bool npz_read(const char *path, npz_take *take, void *ctx, sn_error *err);

typedef struct npz_array {
    const char *name; /* without ".npy" */
    sn_dtype dtype;   /* one that .npy files have: not bf16 */
    int rank;
    const int64_t *shape;
    const void *data; /* row-major */
    size_t bytes;
} npz_array;

/* Writes n arrays, stored, as one file (runtime/file.h: atomically). At most 4 GB. */
bool npz_write(const char *path, const npz_array *list, int n, sn_error *err);

#endif
