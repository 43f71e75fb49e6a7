/* spdx.h: NAME.spdx.json, the bill of materials of an artefact: SPDX 2.3 as JSON
 * (https://spdx.github.io/spdx-spec/v2.3/). */
#ifndef SN_SPDX_H
#define SN_SPDX_H

#include "runtime/base.h"

/* What an artefact contains or is linked with besides generated code. */
enum {
    SPDX_SINTER = 1, /* Sinter's runtime libraries, or scripts */
    SPDX_PCRE2 = 2,
    SPDX_UTF8PROC = 4,
    SPDX_GOMP = 8,
    SPDX_LLD = 16,
    SPDX_STATIC_GOMP = 32, /* of a program that contains it */
    SPDX_STATIC_LIBC = 64
};

typedef struct spdx_request {
    const char *name, *dir;  /* of the artefact */
    const char *options;     /* how it was compiled, in words */
    const char *model;       /* its name */
    const char *const *made; /* [n_made] files and folders of the artefact */
    const char *const *read; /* [n_read] files and folders of the model; NULL: left out */
    const char *weights;     /* the one of them that has the weights; NULL: none */
    int n_made, n_read;
    unsigned parts; /* SPDX_… */
} spdx_request;

/* Reads all of these files for their SHA-256: of folders the visible files, and of folders of the model
 * also those in "onnx" and in folders named as "1_Pooling"; with NAME.onnx also the files beside it whose
 * names begin so (its external data). The licence of the weights is what the README.md beside them
 * declares ("license:" in its front matter); if there is none, or none that SPDX lists, the text is the
 * LICENSE there. Equal inputs give equal bytes: the time is SOURCE_DATE_EPOCH, or 1970-01-01. False: err. */
bool spdx_write(const spdx_request *r, sn_error *err);

#endif
