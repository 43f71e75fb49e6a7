/* picture.c: reads pictures and makes them as many channels as are asked for. */
#include "model/media/picture.h"

#include <string.h>

static bool is_png(const unsigned char *data, size_t size) {
    return size >= 8 && !memcmp(data, "\x89PNG\r\n\x1a\n", 8);
}

static bool is_jpeg(const unsigned char *data, size_t size) {
    return size >= 3 && !memcmp(data, "\xff\xd8\xff", 3);
}

bool picture_matches(const sn_mapping *m) {
    return is_png(m->data, m->size) || is_jpeg(m->data, m->size);
}

bool picture_is_file(const char *path) {
    sn_mapping m;
    if (!sn_file_map(path, &m, NULL)) return false;
    bool is = picture_matches(&m);
    sn_file_unmap(&m);
    return is;
}

/* Gray to colours, or colours to gray as Pillow's convert("L"). */
static bool set_channels(picture *p, int channels, sn_error *err) {
    if (p->channels == channels) return true;
    picture to;
    if (!picture_new(&to, p->width, p->height, channels, err)) return false;
    size_t n = (size_t)p->width * (size_t)p->height;
    for (size_t i = 0; i < n; i++) {
        const unsigned char *x = p->data + i * (size_t)p->channels;
        unsigned char *y = to.data + i * (size_t)channels;
        if (channels == 1)
            *y = (unsigned char)((x[0] * 19595u + x[1] * 38470u + x[2] * 7471u + 0x8000u) >> 16);
        else
            y[0] = y[1] = y[2] = *x;
    }
    picture_free(p);
    *p = to;
    return true;
}

bool picture_read(const char *path, int channels, picture *out, sn_error *err) {
    *out = (picture){0};
    if (channels != 1 && channels != 3)
        return sn_fail(err, SN_ERR_SHAPE, "%s: the model takes pictures of %d channels", path,
                       channels);
    sn_mapping m;
    if (!sn_file_map(path, &m, err)) return false;
    picture_source source = {.data = m.data, .size = m.size, .orientation = 1};
    bool png = is_png(m.data, m.size);
    bool ok =
        picture_matches(&m) || sn_fail(err, SN_ERR_FILE, "%s: neither a PNG nor a JPEG file", path);
    if (ok && !(png ? picture_decode_png : picture_decode_jpeg)(&source, out))
        ok = sn_fail(err, SN_ERR_FILE, "%s: %s", path, source.why);
    sn_file_unmap(&m);
    ok = ok && picture_orient(out, source.orientation, err) && set_channels(out, channels, err);
    if (!ok) picture_free(out);
    return ok;
}
