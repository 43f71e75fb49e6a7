/* resize.c: scales pictures as Pillow does (src/libImaging/Resample.c): a separable filter, which is
 * as wide as the source of a pixel where the picture shrinks; weights have 22 bits. */
#include "model/media/picture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- filters, by the distance from the middle ---- */

static double box(double x) {
    return x > -0.5 && x <= 0.5;
}

static double bilinear(double x) {
    return fmax(1 - fabs(x), 0);
}

static double hamming(double x) {
    x = fabs(x);
    if (x == 0) return 1;
    if (x >= 1) return 0;
    x *= M_PI;
    return sin(x) / x * (0.54 + 0.46 * cos(x));
}

/* Keys 1981, with a = -0.5 */
static double bicubic(double x) {
    const double a = -0.5;
    x = fabs(x);
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

static double sinc(double x) {
    return x == 0 ? 1 : sin(x * M_PI) / (x * M_PI);
}

static double lanczos(double x) {
    return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0;
}

static const struct {
    double (*at)(double);
    double support;
} filters[] = {[PICTURE_LANCZOS] = {lanczos, 3},
               [PICTURE_BILINEAR] = {bilinear, 1},
               [PICTURE_BICUBIC] = {bicubic, 2},
               [PICTURE_BOX] = {box, 0.5},
               [PICTURE_HAMMING] = {hamming, 1}};

/* ---- weights ---- */

enum { BITS = 22 };

/* For each of `n` results: `count` weights of the sources from `first` on. */
typedef struct taps {
    int *first, *count;
    int32_t *weight; /* [n, width] */
    int width;
} taps;

static void free_taps(taps *t) {
    free(t->first);
    free(t->weight);
}

static bool make_taps(taps *t, int from, int to, picture_filter f, sn_error *err) {
    double scale = (double)from / to, wide = fmax(scale, 1), support = filters[f].support * wide;
    t->width = (int)ceil(support) * 2 + 1;
    t->first = calloc(2 * (size_t)to, sizeof *t->first);
    t->weight = calloc((size_t)to * (size_t)t->width, sizeof *t->weight);
    double *w = malloc(sizeof *w * (size_t)t->width);
    bool ok = (t->first && t->weight && w) || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    t->count = ok ? t->first + to : NULL;
    for (int i = 0; ok && i < to; i++) {
        double center = (i + 0.5) * scale, sum = 0;
        int low = (int)fmax(center - support + 0.5, 0), high = (int)(center + support + 0.5);
        if (high > from) high = from;
        for (int x = low; x < high; x++)
            sum += w[x - low] = filters[f].at((x - center + 0.5) / wide);
        t->first[i] = low, t->count[i] = high - low;
        for (int x = 0; x < high - low; x++) {
            double k = sum != 0 ? w[x] / sum : w[x];
            t->weight[(size_t)i * (size_t)t->width + (size_t)x] =
                (int32_t)((k < 0 ? -0.5 : 0.5) + k * (1 << BITS));
        }
    }
    free(w);
    return ok;
}

/* sum of weight[i] x[i stride], as a byte */
static unsigned char weigh(const int32_t *weight, int n, const unsigned char *x, size_t stride) {
    int32_t sum = 1 << (BITS - 1);
    for (int i = 0; i < n; i++) sum += weight[i] * x[(size_t)i * stride];
    sum >>= BITS;
    return (unsigned char)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

static bool scale_rows(const picture *x, int width, picture_filter f, picture *out, sn_error *err) {
    taps t = {0};
    size_t c = (size_t)x->channels;
    bool ok = make_taps(&t, x->width, width, f, err) &&
              picture_new(out, width, x->height, x->channels, err);
    for (int y = 0; ok && y < x->height; y++)
        for (int i = 0; i < width; i++)
            for (size_t k = 0; k < c; k++) {
                size_t row = (size_t)y * (size_t)x->width + (size_t)t.first[i];
                out->data[((size_t)y * (size_t)width + (size_t)i) * c + k] = weigh(
                    t.weight + (size_t)i * (size_t)t.width, t.count[i], x->data + row * c + k, c);
            }
    free_taps(&t);
    return ok;
}

static bool scale_columns(const picture *x, int height, picture_filter f, picture *out,
                          sn_error *err) {
    taps t = {0};
    size_t stride = (size_t)x->width * (size_t)x->channels;
    bool ok = make_taps(&t, x->height, height, f, err) &&
              picture_new(out, x->width, height, x->channels, err);
    for (int i = 0; ok && i < height; i++)
        for (size_t k = 0; k < stride; k++)
            out->data[(size_t)i * stride + k] =
                weigh(t.weight + (size_t)i * (size_t)t.width, t.count[i],
                      x->data + (size_t)t.first[i] * stride + k, stride);
    free_taps(&t);
    return ok;
}

bool picture_resize(const picture *x, int width, int height, picture_filter filter, picture *out,
                    sn_error *err) {
    picture rows = {0};
    *out = (picture){0};
    bool wider = width != x->width, higher = height != x->height;
    if (!wider && !higher) return picture_crop(x, width, height, out, err);
    bool ok = !wider || scale_rows(x, width, filter, higher ? &rows : out, err);
    if (ok && higher) ok = scale_columns(wider ? &rows : x, height, filter, out, err);
    picture_free(&rows);
    if (!ok) picture_free(out);
    return ok;
}
