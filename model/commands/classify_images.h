/* classify_images.h: the part of `sinter classify` that is about images. */
#ifndef SN_CLASSIFY_IMAGES_H
#define SN_CLASSIFY_IMAGES_H

#include "model/open.h"
#include "runtime/cli/json_out.h"

typedef struct classify_options {
    const char *images, *labels;      /* a PNG, JPEG or IDX file; true labels (IDX) or NULL */
    const char *text, *second, *file; /* texts: with images, what these might show */
    int64_t batch, top;               /* images per run; classes to print, 0: the usual number */
} classify_options;

/* Prints the classes of all images, or how many are right, or the texts by how well they fit. */
bool classify_images(open_model *m, const classify_options *o, sn_error *err);

/* Prints `before`, the name of class i, and its probability; with j an element of its list instead. */
void classify_print(json_out *j, const open_model *m, int64_t i, float p, const char *before);

/* With --json: begins the line of an input, up to its list of classes. */
json_out classify_begin(const char *input, size_t size, int64_t index);

#endif
