/* blocks.c: the values of quantised blocks, by the formulas of the GGUF format. A block holds
 * integers q and one or two f16 factors: x = d q, or x = d q + m. Blocks of 256 ("K") are divided
 * into groups of 16 or 32 with integer factors of their own. Every product is rounded to f32, as in
 * the format's reference implementation. */
#include "runtime/files/blocks.h"

#include <stdio.h>
#include <string.h>

typedef const unsigned char *bytes;

static float read_f16(bytes p) {
    return sn_f16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

static uint32_t read_u32(bytes p) {
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* ---- blocks of 32: value j is in the low half of byte j, value j + 16 in the high half ---- */

static void read_q4_0(bytes b, float *y) {
    float d = read_f16(b);
    for (int j = 0; j < 16; j++) {
        y[j] = (float)((b[2 + j] & 15) - 8) * d;
        y[j + 16] = (float)((b[2 + j] >> 4) - 8) * d;
    }
}

static void read_q4_1(bytes b, float *y) {
    float d = read_f16(b), m = read_f16(b + 2);
    for (int j = 0; j < 16; j++) {
        y[j] = (float)(b[4 + j] & 15) * d + m;
        y[j + 16] = (float)(b[4 + j] >> 4) * d + m;
    }
}

/* Bit 4 of value j is bit j of a 32-bit word before the halves. */
static void read_q5_0(bytes b, float *y) {
    float d = read_f16(b);
    uint32_t high = read_u32(b + 2);
    for (int j = 0; j < 16; j++) {
        y[j] = (float)((int)((b[6 + j] & 15) | (high >> j & 1) << 4) - 16) * d;
        y[j + 16] = (float)((int)((b[6 + j] >> 4) | (high >> (j + 16) & 1) << 4) - 16) * d;
    }
}

static void read_q5_1(bytes b, float *y) {
    float d = read_f16(b), m = read_f16(b + 2);
    uint32_t high = read_u32(b + 4);
    for (int j = 0; j < 16; j++) {
        y[j] = (float)((b[8 + j] & 15) | (high >> j & 1) << 4) * d + m;
        y[j + 16] = (float)((b[8 + j] >> 4) | (high >> (j + 16) & 1) << 4) * d + m;
    }
}

static void read_q8_0(bytes b, float *y) {
    float d = read_f16(b);
    for (int j = 0; j < 32; j++) y[j] = (float)(int8_t)b[2 + j] * d;
}

/* ---- blocks of 256 ---- */

/* Scale and minimum of group j, 6 bits each, of Q4_K and Q5_K: 12 bytes for 8 groups. */
static void read_scale(bytes s, int j, int *scale, int *min) {
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
        *min = (s[j + 4] >> 4) | (s[j] >> 6) << 4;
    }
}

/* Groups 2 g and 2 g + 1 are the low and high halves of the same 32 bytes. `high`: 32 bytes whose
 * bit i is bit 4 of the values of group i; or NULL. */
static void read_groups(bytes b, bytes high, bytes low, float *y) {
    float d = read_f16(b), dmin = read_f16(b + 2);
    for (int g = 0; g < 8; g++) {
        int scale, min;
        read_scale(b + 4, g, &scale, &min);
        float s = d * (float)scale, m = dmin * (float)min;
        for (int i = 0; i < 32; i++) {
            int q = low[g / 2 * 32 + i] >> (g % 2 ? 4 : 0) & 15;
            if (high) q |= (high[i] >> g & 1) << 4;
            y[g * 32 + i] = s * (float)q - m;
        }
    }
}

static void read_q4_k(bytes b, float *y) {
    read_groups(b, NULL, b + 16, y);
}

static void read_q5_k(bytes b, float *y) {
    read_groups(b, b + 16, b + 48, y);
}

/* 128 bytes with the low 4 bits, 64 with the high 2, 16 scales, f16 d. */
static void read_q6_k(bytes b, float *y) {
    float d = read_f16(b + 208);
    for (int half = 0; half < 2; half++)
        for (int part = 0; part < 4; part++)
            for (int i = 0; i < 32; i++) {
                int low = b[half * 64 + part % 2 * 32 + i] >> (part < 2 ? 0 : 4) & 15;
                int high = b[128 + half * 32 + i] >> (2 * part) & 3;
                int8_t scale = (int8_t)b[192 + half * 8 + part * 2 + i / 16];
                y[half * 128 + part * 32 + i] = d * (float)scale * (float)((low | high << 4) - 32);
            }
}

/* name, its number in files, elements and bytes of a block, function */
#define BLOCKS(_)                                                                                  \
    _(Q4_0, 2, 32, 18, read_q4_0)                                                                  \
    _(Q4_1, 3, 32, 20, read_q4_1)                                                                  \
    _(Q5_0, 6, 32, 22, read_q5_0)                                                                  \
    _(Q5_1, 7, 32, 24, read_q5_1)                                                                  \
    _(Q8_0, 8, 32, 34, read_q8_0)                                                                  \
    _(Q4_K, 12, 256, 144, read_q4_k)                                                               \
    _(Q5_K, 13, 256, 176, read_q5_k)                                                               \
    _(Q6_K, 14, 256, 210, read_q6_k)

#define X(name, id, elements, size, read)                                                          \
    static const sn_block_format name = {#name, elements, size, read};
BLOCKS(X)
#undef X

static const sn_gguf_tensor_type types[] = {
    {0, SN_F32, NULL},  {1, SN_F16, NULL},  {24, SN_I8, NULL},   {26, SN_I32, NULL},
    {27, SN_I64, NULL}, {28, SN_F64, NULL}, {30, SN_BF16, NULL},
#define X(name, id, elements, size, read) {id, SN_F32, &name},
    BLOCKS(X)
#undef X
};
enum { TYPES = sizeof types / sizeof *types };

const sn_gguf_tensor_type *sn_gguf_tensor_type_find(uint32_t id) {
    for (int i = 0; i < TYPES; i++)
        if (types[i].id == id) return &types[i];
    return NULL;
}

void sn_gguf_tensor_type_list(char *out, size_t size) {
    size_t n = 0;
    *out = 0;
    for (int i = 0; i < TYPES && n < size; i++)
        n +=
            (size_t)snprintf(out + n, size - n, "%s%s", i ? ", " : "",
                             types[i].block ? types[i].block->name : sn_dtype_name(types[i].dtype));
}
