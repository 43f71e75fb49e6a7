/* picture.h: pictures from PNG and JPEG files, their scaling, and the pixels that a model takes. */
#ifndef SN_PICTURE_H
#define SN_PICTURE_H

#include "runtime/config.h"
#include "runtime/file.h"

typedef struct picture {
    int width, height, channels; /* channels: 1 (gray) or 3 (red, green, blue) */
    unsigned char *data;         /* [height, width, channels]; owned */
} picture;

enum { PICTURE_MAX_SIDE = 1 << 15 };

/* Allocates the data; false: no memory, or a side outside 1 .. PICTURE_MAX_SIDE. */
bool picture_new(picture *out, int width, int height, int channels, sn_error *err);
void picture_free(picture *p); /* an empty one is allowed */

/* Whether the bytes begin like a PNG or a JPEG file. */
bool picture_matches(const sn_mapping *m);
/* The same of a file; false also if it cannot be read. */
bool picture_is_file(const char *path);

/* Reads a PNG or JPEG file into `channels` channels: gray values are repeated, colours are weighted
 * as in ITU-R 601-2, transparency is ignored, 16 bits become 8, and the orientation that a camera
 * noted is applied. Errors: neither format, damaged, larger than PICTURE_MAX_SIDE. */
bool picture_read(const char *path, int channels, picture *out, sn_error *err);

/* Filters, numbered as in PIL and in preprocessor_config.json. */
typedef enum picture_filter {
    PICTURE_LANCZOS = 1,
    PICTURE_BILINEAR = 2,
    PICTURE_BICUBIC = 3,
    PICTURE_BOX = 4,
    PICTURE_HAMMING = 5
} picture_filter;

/* Scales to width x height, with the filter widened where the picture shrinks. The bytes are those
 * of Pillow's Image.resize: weights of 22 bits, rows first, rounded in between. */
bool picture_resize(const picture *x, int width, int height, picture_filter filter, picture *out,
                    sn_error *err);

/* The middle, of width x height; beyond the picture 0. */
bool picture_crop(const picture *x, int width, int height, picture *out, sn_error *err);

/* What preprocessor_config.json says: scale, cut out the middle, multiply by `factor`, subtract
 * `mean` and divide by `std`. */
typedef struct picture_rules {
    bool resize, shortest; /* shortest: the shorter side becomes `height`, the other follows */
    int height, width;
    picture_filter filter;
    bool crop;
    int crop_height, crop_width;
    double factor; /* 1: pixels are 0 .. 255 */
    double mean[3], std[3];
} picture_rules;

/* Bilinear to side x side, and 0 .. 1: of models without a preprocessor_config.json. */
picture_rules picture_rules_plain(int side);
/* Whether a preprocessor_config.json describes pictures. */
bool picture_rules_in(const sn_config *c);
/* Reads one. Mistakes, also unknown keys and steps, are recorded in c. */
picture_rules picture_rules_read(sn_config *c);
/* The side of the squares that they make; 0: not always squares of one size. */
int picture_rules_side(const picture_rules *r);

/* How pictures are scaled and cut, in words. */
void picture_rules_print(const picture_rules *r, char *text, size_t size);

/* A byte of channel c as a pixel. */
float picture_normalise(const picture_rules *r, int c, unsigned char byte);

/* Reads a file and writes pixels [channels, side, side]. */
bool picture_pixels(const char *path, const picture_rules *r, int channels, int side, float *out,
                    sn_error *err);

/* ---- parts of picture_read, each with an error without the path ---- */

typedef struct picture_source {
    const unsigned char *data;
    size_t size, at;
    char why[200];   /* the decoder's complaint */
    int orientation; /* 1 .. 8, as in EXIF */
} picture_source;

/* Decode to the channels that the file has, 1 or 3. False: source->why says why. */
bool picture_decode_png(picture_source *source, picture *out);
bool picture_decode_jpeg(picture_source *source, picture *out);
/* Applies an EXIF orientation. */
bool picture_orient(picture *p, int orientation, sn_error *err);

#endif
