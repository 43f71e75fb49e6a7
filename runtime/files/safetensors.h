/* safetensors.h: what the reader (weights.c) and the writer (weights_write.c) of safetensors files
 * share: limits, names of types, a table of names, messages. Internal. */
#ifndef SN_SAFETENSORS_H
#define SN_SAFETENSORS_H

#include "runtime/weights.h"

#define SN_ST_HEADER_LIMIT ((size_t)16 << 20)
#define SN_ST_METADATA "__metadata__"
enum { SN_ST_ALIGN = 64 }; /* of the data that is written */

extern const char *const sn_st_types[SN_DTYPE_COUNT];

/* Elements times size; false on overflow. */
bool sn_st_bytes(const sn_weight *t, uint64_t *bytes);

/* Maps names to indices: open addressing, index + 1 in each slot, 0: free. */
typedef struct sn_st_table {
    uint32_t *slot;
    size_t mask;
} sn_st_table;

/* Fills the table. Stops at a duplicate name and stores it in *twice. False: duplicate, or out of
 * memory if *twice is NULL. */
bool sn_st_fill(sn_st_table *t, const sn_weight *w, size_t count, const char **twice);

/* What a message about a tensor needs. */
typedef struct sn_st_where {
    const char *path, *tensor;
    sn_error *err;
} sn_st_where;
bool sn_st_fail(const sn_st_where *at, const char *what); /* false */

#endif
