/* safetensors.c: see safetensors.h. */
#include "runtime/files/safetensors.h"

#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL /* header-only: deployed programs link no xxHash library */
#include <xxhash.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors files are little-endian and are mapped directly"
#endif

const char *const sn_st_types[SN_DTYPE_COUNT] = {
#define SN_X(e, name, size, st) [SN_##e] = st,
    SN_DTYPES(SN_X)
#undef SN_X
};

bool sn_st_bytes(const sn_weight *t, uint64_t *bytes) {
    int64_t n = sn_weight_elements(t);
    return n >= 0 && !__builtin_mul_overflow((uint64_t)n, sn_dtype_size(t->dtype), bytes);
}

bool sn_st_fill(sn_st_table *t, const sn_weight *w, size_t count, const char **twice) {
    *twice = NULL;
    size_t size = 16;
    while (size < count * 2) size *= 2;
    t->slot = calloc(size, sizeof *t->slot);
    if (!t->slot) return false;
    t->mask = size - 1;
    for (size_t i = 0; i < count; i++) {
        size_t at = XXH3_64bits(w[i].name, strlen(w[i].name)) & t->mask;
        for (; t->slot[at]; at = (at + 1) & t->mask)
            if (!strcmp(w[t->slot[at] - 1].name, w[i].name)) {
                *twice = w[i].name;
                return false;
            }
        t->slot[at] = (uint32_t)(i + 1);
    }
    return true;
}

bool sn_st_fail(const sn_st_where *at, const char *what) {
    char name[120];
    return sn_fail(at->err, SN_ERR_FILE, "%s: tensor \"%s\": %s", at->path,
                   sn_printable(name, sizeof name, at->tensor), what);
}
