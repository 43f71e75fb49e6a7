/* file.h: the format of an artefact's weights file. Known to the code that glue.c emits, to
 * the writer and to `sinter inspect`. */
#ifndef SN_AOT_FILE_H
#define SN_AOT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The first page; then tensors, each aligned to 64 bytes, up to the end of a page; then a checksum of
 * each block of SN_AOT_BLOCK bytes of the tensors (of the last one what there is), up to the end of a
 * page. */
typedef struct sn_aot_header {
    char magic[8]; /* SN_AOT_MAGIC */
    uint32_t version, header_bytes;
    uint64_t hash;     /* of the layout */
    uint64_t checksum; /* of the rest of the first page and the blocks' checksums, so of all */
    uint64_t bytes;    /* of the file */
    uint64_t tensors;  /* bytes of tensors: where their checksums begin, behind the first page */
    char name[64];
} sn_aot_header;
#define SN_AOT_MAGIC "SNWGHT01"
enum { SN_AOT_FILE_VERSION = 3, SN_AOT_PAGE = 4096, SN_AOT_BLOCK = 65536 };
/* Where the part with a checksum begins; what is before it is compared when the file is opened. */
#define SN_AOT_CHECKED offsetof(sn_aot_header, bytes)

/* A checksum: four chains over the 64-bit words w[i], i mod 4: h = (h ^ w) * prime, folded in the same
 * way, of a multiple of 32 bytes. Any change of one word changes it, since each step is a bijection. It is
 * not made to withstand people who choose the change. */
#define SN_AOT_PRIME UINT64_C(0x9E3779B185EBCA87)

/* Bytes of the blocks' checksums, up to the end of a page. */
size_t sn_aot_sums_bytes(size_t tensors);
/* Fills the checksums of a file in memory, whose header's sizes are set. */
void sn_aot_seal(void *image);
/* Whether a file in memory has the size that its header says, and its checksums. */
bool sn_aot_is_whole(const void *image, size_t bytes);

#endif
