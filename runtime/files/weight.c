/* weight.c: one tensor of a weights file: its size, its values as f32. */
#include "runtime/files/blocks.h"

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

int sn_block_part(const sn_block_format *f, sn_weight_part part, sn_dtype *dtype) {
    bool several = f->group < f->elements;
    *dtype = part == SN_PART_INTEGERS || (several && part <= SN_PART_MINIMA) ? SN_I8 : f->factors;
    if ((part == SN_PART_MINIMA || part == SN_PART_OF_MINIMA) && !f->has_min) return 0;
    if (part >= SN_PART_OF_SCALES) return several;
    return part == SN_PART_INTEGERS ? f->elements : f->elements / f->group;
}

/* The i-th block of t. */
static void split_block(const sn_weight *t, size_t i, sn_block_parts *out) {
    t->block->split((const unsigned char *)t->data + i * (size_t)t->block->bytes, out);
    if (t->block->apart) out->scale = sn_mxfp4_scale(t->scales[i]);
}

static size_t block_count(const sn_weight *t) {
    return t->bytes / (size_t)t->block->bytes;
}

void sn_weight_split(const sn_weight *t, sn_weight_part part, void *out) {
    const sn_block_format *f = t->block;
    sn_block_parts b;
    const bool several = f->group < f->elements;
    const void *const from[SN_PARTS] = {b.q, several ? b.scales : (void *)&b.scale,
                                        several ? b.mins : (void *)&b.min, &b.scale, &b.min};
    sn_dtype dtype;
    size_t size = (size_t)sn_block_part(f, part, &dtype) * sn_dtype_size(dtype);
    for (size_t i = 0; i < block_count(t); i++) {
        split_block(t, i, &b);
        memcpy((char *)out + i * size, from[part], size);
    }
}

/* Every product is rounded to f32, as in the format's reference implementation. */
static void block_to_f32(const sn_block_format *f, const sn_block_parts *b, float *out) {
    float (*widen)(uint16_t) = f->factors == SN_BF16 ? sn_bf16_to_f32 : sn_f16_to_f32;
    float scale = widen(b->scale), min = f->has_min ? widen(b->min) : 0;
    bool several = f->group < f->elements;
    for (int i = 0; i < f->elements; i++) {
        int g = i / f->group;
        float s = several ? scale * (float)b->scales[g] : scale;
        out[i] = s * (float)b->q[i];
        if (f->has_min) out[i] += several ? min * (float)b->mins[g] : min;
    }
}

/* Element i of data that need not be aligned. */
static uint16_t load_u16(const void *data, size_t i) {
    uint16_t v;
    memcpy(&v, (const char *)data + i * sizeof v, sizeof v);
    return v;
}

static double load_f64(const void *data, size_t i) {
    double v;
    memcpy(&v, (const char *)data + i * sizeof v, sizeof v);
    return v;
}

bool sn_weight_to_f32(const sn_weight *t, float *out) {
    if (t->block) {
        sn_block_parts b;
        for (size_t i = 0; i < block_count(t); i++, out += t->block->elements) {
            split_block(t, i, &b);
            block_to_f32(t->block, &b, out);
        }
        return true;
    }
    size_t n = t->bytes / sn_dtype_size(t->dtype);
    if (t->dtype == SN_F32)
        memcpy(out, t->data, t->bytes);
    else if (t->dtype == SN_F64)
        for (size_t i = 0; i < n; i++) out[i] = (float)load_f64(t->data, i);
    else if (t->dtype == SN_F16)
        for (size_t i = 0; i < n; i++) out[i] = sn_f16_to_f32(load_u16(t->data, i));
    else if (t->dtype == SN_BF16)
        for (size_t i = 0; i < n; i++) out[i] = sn_bf16_to_f32(load_u16(t->data, i));
    else
        return false;
    return true;
}
