/* resample.c: changes the rate of sound by windowed sinc interpolation (Smith, Digital Audio
 * Resampling), with the parameters of torchaudio.functional.resample. */
#include "model/media/audio.h"

#include <math.h>
#include <stdlib.h>

static int divisor(int a, int b) {
    return b ? divisor(b, a % b) : a;
}

/* Weights of the inputs around one output, for each of the offsets that occur: `to`, or all outputs if
 * they are fewer. A short file of an odd rate does not cost megabytes of weights. */
typedef struct kernels {
    int from, to; /* rates without their common divisor */
    int reach;    /* inputs on each side that count */
    int width;
    size_t outputs;
    float *weight; /* [offsets, width] */
} kernels;

/* The first input that counts for output p of a period, relative to the period's beginning. */
static int64_t first_input(const kernels *k, int64_t p) {
    return p * k->from / k->to - k->reach;
}

static bool make_kernels(int from, int to, size_t samples, kernels *k) {
    const double zeros = 6, rolloff = 0.99;
    int common = divisor(from, to);
    k->from = from / common, k->to = to / common;
    double base = fmin(k->from, k->to) * rolloff;
    k->reach = (int)ceil(zeros * k->from / base);
    k->width = 2 * k->reach + 2;
    k->outputs = (samples * (size_t)k->to + (size_t)k->from - 1) / (size_t)k->from;
    const int offsets = k->outputs < (size_t)k->to ? (int)k->outputs : k->to;
    k->weight = malloc(sizeof *k->weight * ((size_t)offsets * (size_t)k->width + 1));
    if (!k->weight) return false;
    for (int p = 0; p < offsets; p++)
        for (int i = 0; i < k->width; i++) {
            double at = (double)(first_input(k, p) + i);
            double t = (at / k->from - (double)p / k->to) * base;
            t = fmin(fmax(t, -zeros), zeros);
            double window = cos(t * M_PI / zeros / 2);
            double sinc = t == 0 ? 1 : sin(t * M_PI) / (t * M_PI);
            k->weight[(size_t)p * (size_t)k->width + (size_t)i] =
                (float)(sinc * window * window * base / k->from);
        }
    return true;
}

bool audio_resample(audio *a, int rate, sn_error *err) {
    if (a->rate == rate) return true;
    kernels k;
    if (!make_kernels(a->rate, rate, a->n, &k)) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    const size_t n = k.outputs;
    float *out = malloc(sizeof *out * (n + 1));
    for (size_t i = 0; out && i < n; i++) {
        int64_t p = (int64_t)(i % (size_t)k.to), first = (int64_t)(i / (size_t)k.to) * k.from;
        const float *w = k.weight + (size_t)p * (size_t)k.width;
        first += first_input(&k, p);
        double sum = 0;
        for (int j = 0; j < k.width; j++)
            if (first + j >= 0 && first + j < (int64_t)a->n)
                sum += (double)w[j] * a->sample[first + j];
        out[i] = (float)sum;
    }
    free(k.weight);
    if (!out) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    free(a->sample);
    *a = (audio){out, n, rate};
    return true;
}
