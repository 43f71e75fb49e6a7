/* weight.c: one tensor of a weights file: its size, its values as f32. */
#include "runtime/weights.h"

#include <string.h>

int64_t sn_weight_elements(const sn_weight *t) {
    int64_t n = 1;
    bool over = false, zero = false;
    for (int i = 0; i < t->rank; i++) {
        if (t->shape[i] < 0) return -1;
        zero = zero || t->shape[i] == 0;
        over = over || __builtin_mul_overflow(n, t->shape[i], &n);
    }
    return zero ? 0 : over ? -1 : n;
}

bool sn_weight_to_f32(const sn_weight *t, float *out) {
    if (t->block) {
        const unsigned char *block = t->data, *end = block + t->bytes;
        for (; block < end; block += t->block->bytes, out += t->block->elements)
            t->block->to_f32(block, out);
        return true;
    }
    size_t n = t->bytes / sn_dtype_size(t->dtype);
    const uint16_t *half = t->data;
    const double *wide = t->data;
    if (t->dtype == SN_F32)
        memcpy(out, t->data, t->bytes);
    else if (t->dtype == SN_F64)
        for (size_t i = 0; i < n; i++) out[i] = (float)wide[i];
    else if (t->dtype == SN_F16)
        for (size_t i = 0; i < n; i++) out[i] = sn_f16_to_f32(half[i]);
    else if (t->dtype == SN_BF16)
        for (size_t i = 0; i < n; i++) out[i] = sn_bf16_to_f32(half[i]);
    else
        return false;
    return true;
}
