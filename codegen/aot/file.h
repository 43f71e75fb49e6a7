/* file.h: the format of an artefact's weights file. Known to the code that glue.c emits, to
 * the writer and to `sinter inspect`. */
#ifndef SN_AOT_FILE_H
#define SN_AOT_FILE_H

#include <stddef.h>
#include <stdint.h>

/* The first page; then tensors, each aligned to 64 bytes. */
typedef struct sn_aot_header {
    char magic[8]; /* SN_AOT_MAGIC */
    uint32_t version, header_bytes;
    uint64_t hash, checksum,
        bytes; /* hash: of the layout; checksum: of what follows it in the file;
                                       bytes: of the file */
    char name[64];
} sn_aot_header;
#define SN_AOT_MAGIC "SNWGHT01"
enum { SN_AOT_FILE_VERSION = 2, SN_AOT_PAGE = 4096, SN_AOT_UNIT = 32 }; /* bytes */
/* Where the part with a checksum begins; what is before it is compared when the file is opened. */
#define SN_AOT_CHECKED offsetof(sn_aot_header, bytes)

/* The checksum: four chains over the 64-bit words w[i], i mod 4: h = (h ^ w) * prime, folded in the
 * same way. `bytes` is a multiple of SN_AOT_UNIT. */
#define SN_AOT_PRIME UINT64_C(0x9E3779B185EBCA87)
uint64_t sn_aot_checksum(const void *data, size_t bytes);

#endif
