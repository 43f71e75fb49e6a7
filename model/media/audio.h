/* audio.h: sound from WAV files, and its log-mel spectrogram as Whisper takes it. */
#ifndef SN_AUDIO_H
#define SN_AUDIO_H

#include "runtime/base.h"

#include <stddef.h>

/* One channel of samples in -1 .. 1. */
typedef struct audio {
    float *sample;
    size_t n;
    int rate; /* samples a second */
} audio;

void audio_free(audio *a); /* an empty one is allowed */

/* Reads a WAV file: PCM of 8, 16, 24 or 32 bits, or floats of 32 or 64 bits; channels are averaged.
 * Errors: another format, no samples, truncated. */
bool audio_read(const char *path, audio *out, sn_error *err);

/* Changes the rate, band-limited: a sinc of 6 zero crossings on each side, with a Hann window and
 * 0.99 of the lower Nyquist frequency, as torchaudio.functional.resample. */
bool audio_resample(audio *a, int rate, sn_error *err);

enum { MEL_RATE = 16000, MEL_HOP = 160, MEL_FFT = 400 };

/* Log-mel spectrogram [bins, frames] of n samples at MEL_RATE, a frame for every MEL_HOP samples
 * (rounded down): periodic Hann window of MEL_FFT samples, edges mirrored, powers through Slaney's
 * mel filters from 0 to 8000 Hz; log10 of at least 1e-10, and at most 8 below the largest, plus 4,
 * divided by 4. n is at least MEL_FFT. The caller frees it; NULL: out of memory. */
float *mel_spectrogram(const float *sample, size_t n, int bins, size_t *frames);

#endif
