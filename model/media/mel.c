/* mel.c: log-mel spectrograms as in Whisper (Radford et al. 2022, section 2.2). */
#include "model/media/audio.h"

#include <complex.h>
#include <math.h>
#include <stdlib.h>

enum { FREQUENCIES = MEL_FFT / 2 + 1 };

/* ---- Fourier transform (Cooley & Tukey 1965), by the prime factors of n ---- */

/* out[k] = sum of x[i stride] e^(-2 pi i k sqrt(-1) / n); root: powers of e^(-2 pi sqrt(-1) / MEL_FFT);
 * every `step`-th is used, step = MEL_FFT / n. */
static void transform(const double *x, int n, int stride, const double complex *root,
                      double complex *out) {
    if (n == 1) {
        *out = *x;
        return;
    }
    int p = n % 2 ? 5 : 2, part = n / p, step = MEL_FFT / n;
    double complex of_part[5];
    for (int r = 0; r < p; r++) transform(x + r * stride, part, stride * p, root, out + r * part);
    for (int k = 0; k < part; k++) {
        for (int r = 0; r < p; r++) of_part[r] = out[r * part + k];
        for (int q = 0; q < p; q++) {
            double complex sum = of_part[0];
            for (int r = 1; r < p; r++)
                sum += of_part[r] * root[r * (q * part + k) * step % MEL_FFT];
            out[q * part + k] = sum;
        }
    }
}

/* ---- mel filters (Slaney 1998, Auditory Toolbox) ---- */

/* Linear up to 1000 Hz, then logarithmic. */
static double mel_to_hertz(double mel) {
    return mel < 15 ? mel * 200 / 3 : 1000 * exp(log(6.4) / 27 * (mel - 15));
}

/* Triangles over the frequencies, of equal area: [bins, FREQUENCIES]. */
static void make_filters(int bins, double *out) {
    const double top = 15 + 27 / log(6.4) * log(8);
    for (int b = 0; b < bins; b++) {
        double edge[3];
        for (int i = 0; i < 3; i++) edge[i] = mel_to_hertz(top * (b + i) / (bins + 1));
        for (int f = 0; f < FREQUENCIES; f++) {
            double hertz = (double)f * MEL_RATE / MEL_FFT;
            double up = (hertz - edge[0]) / (edge[1] - edge[0]),
                   down = (edge[2] - hertz) / (edge[2] - edge[1]);
            out[b * FREQUENCIES + f] = fmax(0, fmin(up, down)) * 2 / (edge[2] - edge[0]);
        }
    }
}

/* ---- spectrogram ---- */

typedef struct analyser {
    double complex root[MEL_FFT];
    double window[MEL_FFT];
    double *filter; /* [bins, FREQUENCIES] */
    int bins;
} analyser;

/* Sample i of a signal mirrored at both ends. */
static double mirrored(const float *x, size_t n, int64_t i) {
    if (i < 0) i = -i;
    if (i >= (int64_t)n) i = 2 * ((int64_t)n - 1) - i;
    return x[i];
}

/* log10 of the energies of frame t; the largest so far. */
static double analyse(const analyser *a, const float *x, size_t n, size_t t, size_t frames,
                      float *out, double largest) {
    double part[MEL_FFT], power[FREQUENCIES];
    double complex spectrum[MEL_FFT];
    for (int i = 0; i < MEL_FFT; i++)
        part[i] = mirrored(x, n, (int64_t)t * MEL_HOP + i - MEL_FFT / 2) * a->window[i];
    transform(part, MEL_FFT, 1, a->root, spectrum);
    for (int f = 0; f < FREQUENCIES; f++)
        power[f] =
            creal(spectrum[f]) * creal(spectrum[f]) + cimag(spectrum[f]) * cimag(spectrum[f]);
    for (int b = 0; b < a->bins; b++) {
        double sum = 0;
        for (int f = 0; f < FREQUENCIES; f++) sum += a->filter[b * FREQUENCIES + f] * power[f];
        double level = log10(fmax(sum, 1e-10));
        out[(size_t)b * frames + t] = (float)level;
        largest = fmax(largest, level);
    }
    return largest;
}

float *mel_spectrogram(const float *sample, size_t n, int bins, size_t *frames) {
    analyser a = {.bins = bins};
    double largest = -INFINITY;
    *frames = n / MEL_HOP;
    float *out = malloc(sizeof *out * ((size_t)bins * *frames + 1));
    a.filter = malloc(sizeof *a.filter * (size_t)bins * FREQUENCIES);
    if (!out || !a.filter) {
        free(out);
        free(a.filter);
        return NULL;
    }
    make_filters(bins, a.filter);
    for (int i = 0; i < MEL_FFT; i++) {
        double angle = 2 * M_PI * i / MEL_FFT;
        a.window[i] = 0.5 - 0.5 * cos(angle);
        a.root[i] = CMPLX(cos(angle), -sin(angle));
    }
    for (size_t t = 0; t < *frames; t++) largest = analyse(&a, sample, n, t, *frames, out, largest);
    for (size_t i = 0; i < (size_t)bins * *frames; i++)
        out[i] = (float)((fmax(out[i], largest - 8) + 4) / 4);
    free(a.filter);
    return out;
}
