/* idx.c: reads IDX files. */
#include "model/import/idx.h"

#include <stdio.h>

static const char *parse(sn_idx *x) {
    const unsigned char *p = x->map.data;
    size_t size = x->map.size;
    if (size >= 2 && p[0] == 0x1f && p[1] == 0x8b) return "compressed: gunzip it first";
    if (size < 4 || p[0] || p[1]) return "not an IDX file";
    if (p[2] != 8) return "only element type u8 is supported";
    x->rank = p[3];
    if (x->rank < 1 || x->rank > 4) return "expected 1 to 4 dimensions";
    size_t head = 4 + 4 * (size_t)x->rank;
    if (size < head) return "truncated";
    uint64_t count = 1;
    for (int i = 0; i < x->rank; i++) {
        const unsigned char *q = p + 4 + 4 * i;
        x->shape[i] =
            (int64_t)((uint32_t)q[0] << 24 | (uint32_t)q[1] << 16 | (uint32_t)q[2] << 8 | q[3]);
        if (x->shape[i] && count > (uint64_t)size / (uint64_t)x->shape[i] + 1) return "truncated";
        count *= (uint64_t)x->shape[i];
    }
    if (count != size - head) return "its length does not match its sizes";
    x->data = p + head;
    return NULL;
}

bool idx_open(const char *path, sn_idx *out, sn_error *err) {
    *out = (sn_idx){0};
    if (!sn_file_map(path, &out->map, err)) return false;
    const char *why = parse(out);
    if (!why) return true;
    idx_close(out);
    return sn_fail(err, SN_ERR_FILE, "%s: %s", path, why);
}

void idx_close(sn_idx *x) {
    sn_file_unmap(&x->map);
    *x = (sn_idx){0};
}
