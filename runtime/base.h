/* base.h: types that all of Sinter uses: element types and errors.
 * The lowest header of the project; deployed programs include it too. Depends on libc only. */
#ifndef SN_BASE_H
#define SN_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Element types: enum suffix, name in text form, size in bytes, name in safetensors files. */
#define SN_DTYPES(_)                                                                               \
    _(F32, "f32", 4, "F32")                                                                        \
    _(F64, "f64", 8, "F64")                                                                        \
    _(BF16, "bf16", 2, "BF16")                                                                     \
    _(F16, "f16", 2, "F16")                                                                        \
    _(I32, "i32", 4, "I32")                                                                        \
    _(I64, "i64", 8, "I64")                                                                        \
    _(I8, "i8", 1, "I8")                                                                           \
    _(U8, "u8", 1, "U8")                                                                           \
    _(BOOL, "bool", 1, "BOOL")

typedef enum sn_dtype {
#define SN_X(e, name, size, st) SN_##e,
    SN_DTYPES(SN_X)
#undef SN_X
        SN_DTYPE_COUNT
} sn_dtype;

/* How 4 bits are an integer. FP4: twice a float of 4 bits (E2M1), 0 1 2 3 4 6 8 12 by the low three bits, and a sign. */
typedef enum sn_nibble {
    SN_NIBBLE_SIGNED,
    SN_NIBBLE_UNSIGNED,
    SN_NIBBLE_FP4,
    SN_NIBBLES
} sn_nibble;

size_t sn_dtype_size(sn_dtype t);                     /* bytes of one element */
const char *sn_dtype_name(sn_dtype t);                /* "f32" */
bool sn_dtype_parse(const char *name, sn_dtype *out); /* from "f32" or "F32" */
bool sn_dtype_is_float(sn_dtype t);

/* IEEE half and bfloat16, round to nearest even; NaN stays NaN. */
uint16_t sn_f32_to_f16(float x);
float sn_f16_to_f32(uint16_t h);
uint16_t sn_f32_to_bf16(float x);
float sn_bf16_to_f32(uint16_t h);

/* Element i of an array of type t as a double: i64 is rounded, bool becomes 0 or 1. */
double sn_dtype_load(sn_dtype t, const void *array, int64_t i);

/* Stores v as element i of an array of type t: a float is rounded to nearest even; an integer loses its
 * fraction and keeps the low bits of what i64 holds; a bool becomes 0 or 1. */
void sn_dtype_store(sn_dtype t, void *array, int64_t i, double v);

/* printf's "%.*g" and strtod, with a decimal point whatever the locale of the process says: numbers in
 * files must not depend on it. */
int sn_number_print(char *buf, size_t size, int digits, double x);
double sn_number_read(const char *text, char **end);

/* A named axis of the mesh of ranks that a program is for. */
typedef struct sn_mesh_axis {
    const char *name;
    int64_t size, rank; /* rank: the program's place on the axis, 0 to size - 1 */
} sn_mesh_axis;

/* A place in a source file, for messages. */
typedef struct sn_loc {
    const char *file; /* a literal, or a string that outlives all users; NULL: unknown */
    int line;
} sn_loc;

/* The version of the library, "0.1.0". */
const char *sn_version(void);

/* Errors. A function that can fail because of user input takes an `sn_error *` (may be NULL). On
 * failure it returns NULL, false or a negative number and fills the error: what, where, what to do.
 * The first error is kept: sn_fail does nothing if an error is already set. */
typedef enum sn_code {
    SN_OK = 0,
    SN_ERR_USAGE,  /* a wrong argument or option */
    SN_ERR_SHAPE,  /* shapes or dtypes do not match */
    SN_ERR_FILE,   /* missing, unreadable, truncated or malformed file */
    SN_ERR_RANGE,  /* a value out of range: token, length, position */
    SN_ERR_MEMORY, /* out of memory */
    SN_ERR_TARGET, /* not supported by this CPU or target */
    SN_ERR_INTERNAL,
    SN_ERR_UNFUSED /* strict fusion: an operation that should have been fused was not */
} sn_code;

typedef struct sn_error {
    sn_code code;
    char message[1024];
} sn_error;

/* Replaces control characters by '?', except those in `keep`; includes the C1 controls (U+0080 to
 * U+009F in UTF-8). Text from a file must not control the terminal that shows it. */
void sn_mask_controls(char *text, const char *keep);

/* Records the error unless one is already set. Always returns false, so callers can return the
 * call. Control characters in the message, except newlines and tabs, are replaced. */
bool sn_fail(sn_error *err, sn_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Whether p is not NULL; if it is NULL, records the error "function: what is NULL". */
bool sn_given(const void *p, const char *function, const char *what, sn_error *err);

#ifdef __cplusplus
}
#endif
#endif
