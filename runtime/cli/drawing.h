/* drawing.h: files that hold a picture: SVG as it is written, or PNG if the name ends with .png, which
 * rsvg-convert (librsvg) or ImageMagick makes of it. */
#ifndef SN_DRAWING_H
#define SN_DRAWING_H

#include "runtime/file.h"

#include <stdio.h>

typedef struct drawing {
    FILE *f; /* for the SVG */
    const char *path;
    sn_file *file;
    char *text; /* the SVG of a PNG */
    size_t size;
} drawing;

/* Begins the picture that replaces `path` ("-": standard output, an SVG). False: err. */
bool sn_drawing_open(drawing *p, const char *path, sn_error *err);
/* Whether the name ends with .svg or .png, or has no such ending, or is NULL; sn_drawing_open requires it,
 * too. */
bool sn_drawing_named(const char *path, sn_error *err);
/* Ends it: converts it if it is a PNG, and puts the file in its place. False: err, and an earlier file is
 * unchanged. A PNG needs one of the converters: err names what to install. */
bool sn_drawing_close(drawing *p, sn_error *err);

/* Makes a PNG of an SVG file. False: err. */
bool sn_drawing_convert(const char *svg, const char *png, sn_error *err);

#endif
