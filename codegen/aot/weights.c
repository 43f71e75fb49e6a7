/* weights.c: writes the weights file of an artefact: a header page, then the tensors as the code
 * reads them (packed panels, quantised columns), so that a program only has to map the file. */
#include "codegen/aot/aot.h"
#include "runtime/file.h"
#include "runtime/memory.h"

#include <stdlib.h>
#include <string.h>

void sn_aot_fill_header(const sn_aot *a, sn_aot_header *h) {
    *h = (sn_aot_header){.version = SN_AOT_FILE_VERSION,
                         .header_bytes = SN_AOT_PAGE,
                         .hash = a->hash,
                         .bytes = a->weight_bytes,
                         .tensors = a->tensor_bytes};
    memcpy(h->magic, SN_AOT_MAGIC, sizeof h->magic);
    snprintf(h->name, sizeof h->name, "%s", a->name);
}

static uint64_t checksum(const void *data, size_t bytes) {
    uint64_t h[4] = {0, 1, 2, 3}, w[4], sum = 0;
    for (size_t i = 0; i + 32 <= bytes; i += 32) {
        memcpy(w, (const char *)data + i, 32);
        for (int k = 0; k < 4; k++) h[k] = (h[k] ^ w[k]) * SN_AOT_PRIME;
    }
    for (int k = 0; k < 4; k++) sum = (sum ^ h[k]) * SN_AOT_PRIME;
    return sum;
}

static size_t blocks(size_t tensors) {
    return (tensors + SN_AOT_BLOCK - 1) / SN_AOT_BLOCK;
}

size_t sn_aot_sums_bytes(size_t tensors) {
    return SN_ROUND_UP(8 * blocks(tensors), SN_AOT_PAGE);
}

static uint64_t block_sum(const char *image, size_t tensors, size_t k) {
    size_t at = k * SN_AOT_BLOCK, rest = tensors - at;
    return checksum(image + SN_AOT_PAGE + at, rest < SN_AOT_BLOCK ? rest : SN_AOT_BLOCK);
}

/* Of the first page behind the checksum and of the blocks' checksums. */
static uint64_t root_sum(const char *image, size_t tensors) {
    const uint64_t sums[4] = {checksum(image + SN_AOT_CHECKED, SN_AOT_PAGE - SN_AOT_CHECKED),
                              checksum(image + SN_AOT_PAGE + tensors, sn_aot_sums_bytes(tensors))};
    return checksum(sums, sizeof sums);
}

void sn_aot_seal(void *image) {
    sn_aot_header h;
    memcpy(&h, image, sizeof h);
    char *sums = (char *)image + SN_AOT_PAGE + h.tensors;
    for (size_t k = 0; k < blocks(h.tensors); k++) {
        uint64_t sum = block_sum(image, h.tensors, k);
        memcpy(sums + 8 * k, &sum, 8);
    }
    h.checksum = root_sum(image, h.tensors);
    memcpy(image, &h, sizeof h);
}

bool sn_aot_is_whole(const void *image, size_t bytes) {
    sn_aot_header h;
    if (bytes < SN_AOT_PAGE) return false;
    memcpy(&h, image, sizeof h);
    size_t most = bytes - SN_AOT_PAGE;
    if (h.bytes != bytes || h.tensors % SN_AOT_PAGE || h.tensors > most ||
        sn_aot_sums_bytes(h.tensors) != most - h.tensors ||
        h.checksum != root_sum(image, h.tensors))
        return false;
    const char *sums = (const char *)image + SN_AOT_PAGE + h.tensors;
    bool ok = true;
    for (size_t k = 0; ok && k < blocks(h.tensors); k++) {
        uint64_t sum = block_sum(image, h.tensors, k);
        ok = !memcmp(sums + 8 * k, &sum, 8);
    }
    return ok;
}

void *sn_aot_weights_image(sn_aot *a) {
    char *image = aligned_alloc(SN_AOT_PAGE, a->weight_bytes);
    if (!image) {
        sn_fail(a->err, SN_ERR_MEMORY, "out of memory for %zu bytes of weights", a->weight_bytes);
        return NULL;
    }
    memset(image, 0, a->weight_bytes);
    for (int i = 0; i < a->n_weight; i++)
        memcpy(image + a->weight[i].offset, a->weight[i].data, a->weight[i].bytes);
    for (int i = 0; i < a->n_state; i++)
        if (a->state[i].data) memcpy(image + a->state[i].from, a->state[i].data, a->state[i].bytes);
    sn_aot_header h;
    sn_aot_fill_header(a, &h);
    memcpy(image, &h, sizeof h);
    sn_aot_seal(image);
    return image;
}

bool sn_aot_write_weights(sn_aot *a, const char *path) {
    void *image = sn_aot_weights_image(a);
    bool ok = image && sn_file_save(path, image, a->weight_bytes, a->err);
    free(image);
    return ok;
}
