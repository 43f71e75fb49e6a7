/* weights.c: writes the weights file of an artefact: a header page, then the tensors as the code
 * reads them (packed panels, quantised columns), so that a program only has to map the file. */
#include "codegen/aot/aot.h"
#include "runtime/file.h"

#include <stdlib.h>
#include <string.h>

void sn_aot_fill_header(const sn_aot *a, sn_aot_header *h) {
    *h = (sn_aot_header){.version = SN_AOT_FILE_VERSION,
                         .header_bytes = SN_AOT_PAGE,
                         .hash = a->hash,
                         .bytes = a->weight_bytes};
    memcpy(h->magic, SN_AOT_MAGIC, sizeof h->magic);
    snprintf(h->name, sizeof h->name, "%s", a->name);
}

uint64_t sn_aot_checksum(const void *data, size_t bytes) {
    uint64_t h[4] = {0, 1, 2, 3}, w[4], sum = 0;
    for (size_t i = 0; i + 32 <= bytes; i += 32) {
        memcpy(w, (const char *)data + i, 32);
        for (int k = 0; k < 4; k++) h[k] = (h[k] ^ w[k]) * SN_AOT_PRIME;
    }
    for (int k = 0; k < 4; k++) sum = (sum ^ h[k]) * SN_AOT_PRIME;
    return sum;
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
    h.checksum = sn_aot_checksum(image + SN_AOT_CHECKED, a->weight_bytes - SN_AOT_CHECKED);
    memcpy(image, &h, sizeof h);
    return image;
}

bool sn_aot_write_weights(sn_aot *a, const char *path) {
    void *image = sn_aot_weights_image(a);
    bool ok = image && sn_file_save(path, image, a->weight_bytes, a->err);
    free(image);
    return ok;
}
