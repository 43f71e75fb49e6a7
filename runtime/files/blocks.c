/* blocks.c: quantised blocks, most of them of the GGUF format. A block holds integers q and one or two
 * f16 factors: x = d q, or x = d q + m. Blocks of 256 ("K") are divided into groups of 16 or 32 with
 * integer factors of their own, and d and m multiply these. MXFP4 has floats of 4 bits, whose doubles
 * are integers, and as factor a power of two. */
#include "runtime/files/blocks.h"

#include <stdio.h>
#include <string.h>

typedef const unsigned char *bytes;

static uint16_t read_u16(bytes p) {
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t read_u32(bytes p) {
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* ---- blocks of 32: value j is in the low half of byte j, value j + 16 in the high half ---- */

static void take_halves(bytes b, int8_t *q) {
    for (int j = 0; j < 16; j++) {
        q[j] = (int8_t)(b[j] & 15);
        q[j + 16] = (int8_t)(b[j] >> 4);
    }
}

/* Bit 4 of value j is bit j of a 32-bit word. */
static void add_fifth(bytes word, int8_t *q) {
    uint32_t high = read_u32(word);
    for (int j = 0; j < 32; j++) q[j] = (int8_t)(q[j] | (high >> j & 1) << 4);
}

static void subtract(int8_t *q, int by) {
    for (int j = 0; j < 32; j++) q[j] = (int8_t)(q[j] - by);
}

static void split_q4_0(bytes b, sn_block_parts *p) {
    p->scale = read_u16(b);
    take_halves(b + 2, p->q);
    subtract(p->q, 8);
}

static void split_q4_1(bytes b, sn_block_parts *p) {
    p->scale = read_u16(b);
    p->min = read_u16(b + 2);
    take_halves(b + 4, p->q);
}

static void split_q5_0(bytes b, sn_block_parts *p) {
    p->scale = read_u16(b);
    take_halves(b + 6, p->q);
    add_fifth(b + 2, p->q);
    subtract(p->q, 16);
}

static void split_q5_1(bytes b, sn_block_parts *p) {
    p->scale = read_u16(b);
    p->min = read_u16(b + 2);
    take_halves(b + 8, p->q);
    add_fifth(b + 4, p->q);
}

static void split_q8_0(bytes b, sn_block_parts *p) {
    p->scale = read_u16(b);
    memcpy(p->q, b + 2, 32);
}

/* ---- MXFP4: sign, two bits of exponent, one of mantissa ---- */

const int8_t sn_fp4_doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

uint16_t sn_mxfp4_scale(unsigned char e) {
    if (e == 255) return 0x7fc0;
    return (uint16_t)(e > 1 ? (e - 1) << 7 : 32 << e); /* the first two are subnormal */
}

static void split_mxfp4(bytes b, sn_block_parts *p) {
    p->scale = sn_mxfp4_scale(b[0]);
    take_halves(b + 1, p->q);
    for (int j = 0; j < 32; j++) p->q[j] = sn_fp4_doubled[p->q[j]];
}

static void split_mxfp4_apart(bytes b, sn_block_parts *p) {
    for (int j = 0; j < 32; j++) p->q[j] = sn_fp4_doubled[b[j / 2] >> j % 2 * 4 & 15];
}

const sn_block_format sn_mxfp4_apart = {"MXFP4",           32,      16,  32, SN_NIBBLE_FP4, false,
                                        split_mxfp4_apart, SN_BF16, true};

/* ---- blocks of 256 ---- */

/* Scale and minimum of group j, 6 bits each, of Q4_K and Q5_K: 12 bytes for 8 groups. */
static void read_scale(bytes s, int j, int8_t *scale, int8_t *min) {
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[j + 4] & 63;
    } else {
        *scale = (int8_t)((s[j + 4] & 15) | (s[j - 4] >> 6) << 4);
        *min = (int8_t)((s[j + 4] >> 4) | (s[j] >> 6) << 4);
    }
}

/* Groups 2 g and 2 g + 1 are the low and high halves of the same 32 bytes. The minimum is
 * subtracted, so its factor is stored with the other sign. `high`: 32 bytes whose bit i is bit 4 of
 * the values of group i; or NULL. */
static void split_groups(bytes b, bytes high, bytes low, sn_block_parts *p) {
    p->scale = read_u16(b);
    p->min = read_u16(b + 2) ^ 0x8000;
    for (int g = 0; g < 8; g++) {
        read_scale(b + 4, g, &p->scales[g], &p->mins[g]);
        for (int i = 0; i < 32; i++) {
            int q = low[g / 2 * 32 + i] >> (g % 2 ? 4 : 0) & 15;
            if (high) q |= (high[i] >> g & 1) << 4;
            p->q[g * 32 + i] = (int8_t)q;
        }
    }
}

static void split_q4_k(bytes b, sn_block_parts *p) {
    split_groups(b, NULL, b + 16, p);
}

static void split_q5_k(bytes b, sn_block_parts *p) {
    split_groups(b, b + 16, b + 48, p);
}

/* 128 bytes with the low 4 bits, 64 with the high 2, 16 scales, f16 d. */
static void split_q6_k(bytes b, sn_block_parts *p) {
    p->scale = read_u16(b + 208);
    memcpy(p->scales, b + 192, 16);
    for (int half = 0; half < 2; half++)
        for (int part = 0; part < 4; part++)
            for (int i = 0; i < 32; i++) {
                int low = b[half * 64 + part % 2 * 32 + i] >> (part < 2 ? 0 : 4) & 15;
                int high = b[128 + half * 32 + i] >> (2 * part) & 3;
                p->q[half * 128 + part * 32 + i] = (int8_t)((low | high << 4) - 32);
            }
}

/* name, its number in files, elements and bytes of a block, elements of a group, how 4 bits hold its integers,
 * minima, function, type of the factors */
#define BLOCKS(_)                                                                                  \
    _(Q4_0, 2, 32, 18, 32, SN_NIBBLE_SIGNED, false, split_q4_0, SN_F16)                            \
    _(Q4_1, 3, 32, 20, 32, SN_NIBBLE_UNSIGNED, true, split_q4_1, SN_F16)                           \
    _(Q5_0, 6, 32, 22, 32, SN_NIBBLES, false, split_q5_0, SN_F16)                                  \
    _(Q5_1, 7, 32, 24, 32, SN_NIBBLES, true, split_q5_1, SN_F16)                                   \
    _(Q8_0, 8, 32, 34, 32, SN_NIBBLES, false, split_q8_0, SN_F16)                                  \
    _(Q4_K, 12, 256, 144, 32, SN_NIBBLE_UNSIGNED, true, split_q4_k, SN_F16)                        \
    _(Q5_K, 13, 256, 176, 32, SN_NIBBLES, true, split_q5_k, SN_F16)                                \
    _(Q6_K, 14, 256, 210, 16, SN_NIBBLES, false, split_q6_k, SN_F16)                               \
    _(MXFP4, 39, 32, 17, 32, SN_NIBBLE_FP4, false, split_mxfp4, SN_BF16)

#define X(name, id, ...) static const sn_block_format name = {#name, __VA_ARGS__, false};
BLOCKS(X)
#undef X

static const sn_gguf_tensor_type types[] = {
    {0, SN_F32, NULL},  {1, SN_F16, NULL},  {24, SN_I8, NULL},   {26, SN_I32, NULL},
    {27, SN_I64, NULL}, {28, SN_F64, NULL}, {30, SN_BF16, NULL},
#define X(name, id, ...) {id, SN_F32, &name},
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
