/* sha256.h: SHA-256 (FIPS 180-4), for bills of materials. */
#ifndef SN_SHA256_H
#define SN_SHA256_H

#include <stddef.h>
#include <stdint.h>

typedef struct sha256 {
    uint32_t h[8];
    uint64_t bytes;
    unsigned char block[64];
} sha256;

sha256 sha256_begin(void);
void sha256_add(sha256 *s, const void *data, size_t bytes);
void sha256_end(sha256 *s, char hex[65]); /* lower case, with a zero byte */

#endif
