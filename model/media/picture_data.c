/* picture_data.c: the memory of pictures; cutting and orienting them. */
#include "model/media/picture.h"

#include <stdlib.h>
#include <string.h>

bool picture_new(picture *out, int width, int height, int channels, sn_error *err) {
    *out = (picture){0};
    if (width < 1 || height < 1 || width > PICTURE_MAX_SIDE || height > PICTURE_MAX_SIDE)
        return sn_fail(err, SN_ERR_RANGE, "pictures of %d x %d pixels are not supported", width,
                       height);
    unsigned char *data = calloc((size_t)width * (size_t)height, (size_t)channels);
    if (!data) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    *out = (picture){width, height, channels, data};
    return true;
}

void picture_free(picture *p) {
    free(p->data);
    *p = (picture){0};
}

/* Orientations [EXIF 2.3, 4.6.4 A]: 2 to 4 mirror and rotate by half, 5 to 8 also swap the axes. */
bool picture_orient(picture *p, int orientation, sn_error *err) {
    if (orientation < 2 || orientation > 8) return true;
    bool swap = orientation > 4,
         left = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8,
         up = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    picture to;
    int width = swap ? p->height : p->width, height = swap ? p->width : p->height;
    size_t c = (size_t)p->channels;
    if (!picture_new(&to, width, height, p->channels, err)) return false;
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++) {
            int row = swap ? x : y, column = swap ? y : x;
            if (up) row = p->height - 1 - row;
            if (left) column = p->width - 1 - column;
            size_t from = (size_t)row * (size_t)p->width + (size_t)column,
                   at = (size_t)y * (size_t)width + (size_t)x;
            memcpy(to.data + at * c, p->data + from * c, c);
        }
    picture_free(p);
    *p = to;
    return true;
}

bool picture_crop(const picture *x, int width, int height, picture *out, sn_error *err) {
    if (!picture_new(out, width, height, x->channels, err)) return false;
    /* a side that is too short has the zeros' larger half in front, as in Hugging Face's code */
    int left = width > x->width ? -((width - x->width + 1) / 2) : (x->width - width) / 2,
        top = height > x->height ? -((height - x->height + 1) / 2) : (x->height - height) / 2;
    size_t c = (size_t)x->channels;
    for (int y = 0; y < height; y++) {
        int row = y + top, first = left < 0 ? -left : 0;
        int last = left + width > x->width ? x->width - left : width;
        if (row < 0 || row >= x->height) continue;
        memcpy(out->data + ((size_t)y * (size_t)width + (size_t)first) * c,
               x->data + ((size_t)row * (size_t)x->width + (size_t)(first + left)) * c,
               (size_t)(last - first) * c);
    }
    return true;
}
