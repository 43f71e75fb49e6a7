/* picture_png.c: decodes PNG with libpng, as Pillow does: colours as stored, without gamma or
 * colour profiles; transparency is dropped. */
#include "model/media/picture.h"

#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void take(png_structp png, png_bytep out, png_size_t n) {
    picture_source *s = png_get_io_ptr(png);
    if (n > s->size - s->at) png_error(png, "truncated");
    memcpy(out, s->data + s->at, n);
    s->at += n;
}

static void complain(png_structp png, png_const_charp message) {
    picture_source *s = png_get_error_ptr(png);
    snprintf(s->why, sizeof s->why, "damaged PNG: %s", message);
    png_longjmp(png, 1);
}

static void warn(png_structp png, png_const_charp message) {
    (void)png, (void)message;
}

typedef struct decoder {
    png_structp png;
    png_infop info;
    picture_source *source;
    picture *out;
    png_bytep *row;
} decoder;

/* 8 bits of gray, or of red, green and blue. */
static void set_transforms(decoder *d) {
    int type = png_get_color_type(d->png, d->info);
    png_set_strip_16(d->png);
    png_set_packing(d->png);
    if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(d->png);
    if (type == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(d->png);
    png_set_strip_alpha(d->png);
    png_set_interlace_handling(d->png);
    png_read_update_info(d->png, d->info);
}

/* Errors of libpng return here a second time. */
static bool decode(decoder *d) {
    sn_error err = {0};
    if (setjmp(png_jmpbuf(d->png))) return false;
    png_set_user_limits(d->png, PICTURE_MAX_SIDE, PICTURE_MAX_SIDE);
    png_read_info(d->png, d->info);
    set_transforms(d);
    int width = (int)png_get_image_width(d->png, d->info),
        height = (int)png_get_image_height(d->png, d->info),
        channels = png_get_channels(d->png, d->info);
    if (channels != 1 && channels != 3) png_error(d->png, "unknown colours");
    if (!picture_new(d->out, width, height, channels, &err)) png_error(d->png, err.message);
    d->row = calloc((size_t)height, sizeof *d->row);
    if (!d->row) png_error(d->png, "out of memory");
    for (int y = 0; y < height; y++)
        d->row[y] = d->out->data + (size_t)y * (size_t)width * (size_t)channels;
    png_read_image(d->png, d->row);
    png_read_end(d->png, NULL);
    return true;
}

bool picture_decode_png(picture_source *source, picture *out) {
    decoder d = {.source = source, .out = out};
    d.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, source, complain, warn);
    d.info = d.png ? png_create_info_struct(d.png) : NULL;
    bool ok = d.info != NULL;
    if (!ok) snprintf(source->why, sizeof source->why, "out of memory");
    if (ok) {
        png_set_read_fn(d.png, source, take);
        ok = decode(&d);
    }
    png_destroy_read_struct(&d.png, &d.info, NULL);
    free(d.row);
    return ok;
}
