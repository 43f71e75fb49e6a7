/* picture_jpeg.c: decodes JPEG with libjpeg's defaults, as Pillow does, and finds the orientation
 * that a camera noted. */
#include "model/media/picture.h"

#include <setjmp.h>
#include <stdio.h> /* jpeglib.h needs it */
#include <string.h>

#include <jpeglib.h>

typedef struct decoder {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    jmp_buf back;
    picture_source *source;
    picture *out;
} decoder;

static void complain(j_common_ptr jpeg) {
    decoder *d = jpeg->client_data;
    char text[JMSG_LENGTH_MAX];
    jpeg->err->format_message(jpeg, text);
    snprintf(d->source->why, sizeof d->source->why, "damaged JPEG: %.150s", text);
    longjmp(d->back, 1);
}

/* Warnings are about damaged data, too: the rest of the picture would be made up. */
static void note(j_common_ptr jpeg, int level) {
    if (level < 0) complain(jpeg);
}

/* ---- orientation: tag 0x112 of the first directory [EXIF 2.3, 4.5, 4.6] ---- */

typedef struct tiff {
    const unsigned char *data;
    size_t size;
    bool big; /* big-endian */
} tiff;

static uint32_t read_number(const tiff *t, size_t at, int bytes) {
    uint32_t x = 0;
    if (at > t->size || t->size - at < (size_t)bytes) return 0;
    for (int i = 0; i < bytes; i++) x = x << 8 | t->data[at + (size_t)(t->big ? i : bytes - 1 - i)];
    return x;
}

static int find_orientation(const unsigned char *data, size_t size) {
    if (size < 14 || memcmp(data, "Exif\0\0", 6) != 0) return 1;
    tiff t = {data + 6, size - 6, data[6] == 'M'};
    size_t at = read_number(&t, 4, 4);
    uint32_t n = read_number(&t, at, 2);
    for (uint32_t i = 0; i < n && at < t.size; i++) {
        size_t entry = at + 2 + 12 * (size_t)i;
        if (read_number(&t, entry, 2) != 0x112) continue;
        uint32_t value = read_number(&t, entry + 8, 2);
        return value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}

/* ---- pixels ---- */

/* Errors of libjpeg return here a second time. */
static bool decode(decoder *d) {
    struct jpeg_decompress_struct *j = &d->jpeg;
    sn_error err = {0};
    if (setjmp(d->back)) return false;
    jpeg_create_decompress(j);
    j->client_data = d;
    jpeg_mem_src(j, d->source->data, d->source->size);
    jpeg_save_markers(j, JPEG_APP0 + 1, 0xFFFF);
    jpeg_read_header(j, TRUE);
    for (jpeg_saved_marker_ptr m = j->marker_list; m && d->source->orientation == 1; m = m->next)
        d->source->orientation = find_orientation(m->data, m->data_length);
    j->out_color_space = j->num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
    if (j->num_components > 3) {
        snprintf(d->source->why, sizeof d->source->why,
                 "a JPEG of four colours (CMYK) is not supported: convert it to RGB");
        return false;
    }
    jpeg_start_decompress(j);
    if (!picture_new(d->out, (int)j->output_width, (int)j->output_height, j->output_components,
                     &err)) {
        snprintf(d->source->why, sizeof d->source->why, "%.150s", err.message);
        return false;
    }
    size_t stride = (size_t)j->output_width * (size_t)j->output_components;
    while (j->output_scanline < j->output_height) {
        JSAMPROW row = d->out->data + j->output_scanline * stride;
        jpeg_read_scanlines(j, &row, 1);
    }
    jpeg_finish_decompress(j);
    return true;
}

bool picture_decode_jpeg(picture_source *source, picture *out) {
    decoder d = {.source = source, .out = out};
    d.jpeg.err = jpeg_std_error(&d.errors);
    d.jpeg.client_data = &d;
    d.errors.error_exit = complain;
    d.errors.emit_message = note;
    bool ok = decode(&d);
    jpeg_destroy_decompress(&d.jpeg);
    return ok;
}
