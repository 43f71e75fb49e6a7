/* base.c: element types, half-precision conversion and error records. */
#include "runtime/base.h"

#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *st_name;
    uint8_t size;
} dtypes[SN_DTYPE_COUNT] = {
#define SN_X(e, n, s, st) [SN_##e] = {n, st, s},
    SN_DTYPES(SN_X)
#undef SN_X
};

const char *sn_version(void) {
    return SN_VERSION;
}

size_t sn_dtype_size(sn_dtype t) {
    return dtypes[t].size;
}

const char *sn_dtype_name(sn_dtype t) {
    return dtypes[t].name;
}

bool sn_dtype_parse(const char *name, sn_dtype *out) {
    for (int i = 0; i < SN_DTYPE_COUNT; i++)
        if (!strcmp(name, dtypes[i].name) || !strcmp(name, dtypes[i].st_name)) {
            *out = (sn_dtype)i;
            return true;
        }
    return false;
}

bool sn_dtype_is_float(sn_dtype t) {
    return t == SN_F32 || t == SN_F64 || t == SN_BF16 || t == SN_F16;
}

/* ---- numbers in files ---- */

/* newlocale returns a constant for "C": nothing is allocated. */
static locale_t use_c_locale(void) {
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return uselocale(c);
}

int sn_number_print(char *buf, size_t size, int digits, double x) {
    locale_t before = use_c_locale();
    int n = snprintf(buf, size, "%.*g", digits, x);
    uselocale(before);
    return n;
}

double sn_number_read(const char *text, char **end) {
    locale_t before = use_c_locale();
    double x = strtod(text, end);
    uselocale(before);
    return x;
}

/* ---- half precision ---- */

static uint32_t bits_of(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}

static float float_of(uint32_t u) {
    float x;
    memcpy(&x, &u, 4);
    return x;
}

uint16_t sn_f32_to_bf16(float x) {
    uint32_t u = bits_of(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

float sn_bf16_to_f32(uint16_t h) {
    return float_of((uint32_t)h << 16);
}

float sn_f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = h >> 10 & 31, man = h & 0x3ff;
    if (exp == 31) return float_of(sign | 0x7f800000u | man << 13);
    if (exp == 0) { /* zero or subnormal: man * 2^-24 is exact in f32 */
        float v = (float)man * 0x1p-24f;
        return sign ? -v : v;
    }
    return float_of(sign | (exp + 112) << 23 | man << 13);
}

uint16_t sn_f32_to_f16(float x) {
    uint32_t u = bits_of(x), sign = u >> 16 & 0x8000, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00 | (a >> 13 & 0x3ff));
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00); /* rounds to 65536 or more */
    if (a < 0x38800000u) {            /* subnormal half: let the FPU round to a multiple of 2^-24 */
        float r = float_of(a) + 0.5f; /* the ulp of [0.5, 1) is 2^-24 */
        return (uint16_t)(sign | (bits_of(r) - 0x3f000000u));
    }
    return (uint16_t)(sign | ((a - 0x38000000u + 0xfffu + (a >> 13 & 1)) >> 13));
}

double sn_dtype_load(sn_dtype t, const void *array, int64_t i) {
    switch (t) {
    case SN_F32:
        return (double)((const float *)array)[i];
    case SN_F64:
        return ((const double *)array)[i];
    case SN_BF16:
        return (double)sn_bf16_to_f32(((const uint16_t *)array)[i]);
    case SN_F16:
        return (double)sn_f16_to_f32(((const uint16_t *)array)[i]);
    case SN_I32:
        return ((const int32_t *)array)[i];
    case SN_I64:
        return (double)((const int64_t *)array)[i];
    case SN_I8:
        return ((const int8_t *)array)[i];
    case SN_U8:
        return ((const uint8_t *)array)[i];
    default: /* bool */
        return ((const uint8_t *)array)[i] != 0;
    }
}

void sn_dtype_store(sn_dtype t, void *array, int64_t i, double v) {
    switch (t) {
    case SN_F32:
        ((float *)array)[i] = (float)v;
        break;
    case SN_F64:
        ((double *)array)[i] = v;
        break;
    case SN_BF16:
        ((uint16_t *)array)[i] = sn_f32_to_bf16((float)v);
        break;
    case SN_F16:
        ((uint16_t *)array)[i] = sn_f32_to_f16((float)v);
        break;
    case SN_I32:
        ((int32_t *)array)[i] = (int32_t)(int64_t)v;
        break;
    case SN_I64:
        ((int64_t *)array)[i] = (int64_t)v;
        break;
    case SN_I8:
        ((int8_t *)array)[i] = (int8_t)(int64_t)v;
        break;
    case SN_U8:
        ((uint8_t *)array)[i] = (uint8_t)(int64_t)v;
        break;
    default: /* bool */
        ((uint8_t *)array)[i] = v != 0;
    }
}

void sn_mask_controls(char *text, const char *keep) {
    for (char *p = text; *p; p++) {
        unsigned char c = (unsigned char)*p, next = (unsigned char)p[1];
        if ((c < 32 || c == 127) && !strchr(keep, c))
            *p = '?';
        else if (c == 0xc2 && next >= 0x80 && next < 0xa0)
            p[0] = p[1] = '?';
    }
}

bool sn_fail(sn_error *err, sn_code code, const char *fmt, ...) {
    if (!err || err->code) return false;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->message, sizeof err->message, fmt, ap);
    va_end(ap);
    sn_mask_controls(err->message, "\n\t");
    err->code = code;
    return false;
}

bool sn_given(const void *p, const char *function, const char *what, sn_error *err) {
    return p || sn_fail(err, SN_ERR_USAGE, "%s: %s is NULL", function, what);
}
