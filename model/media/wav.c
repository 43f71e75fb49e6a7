/* wav.c: reads WAV files: RIFF chunks "fmt " and "data" (Microsoft, Multimedia Programming Interface
 * and Data Specifications 1.0; WAVEFORMATEXTENSIBLE). */
#include "model/media/audio.h"
#include "runtime/file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FORMAT_PCM = 1, FORMAT_FLOAT = 3, FORMAT_EXTENSIBLE = 0xFFFE, MAX_CHANNELS = 64 };

typedef struct wav {
    int format, channels, rate, bits;
    const unsigned char *data;
    size_t size;
} wav;

static uint64_t read_number(const unsigned char *p, int bytes) {
    uint64_t x = 0;
    for (int i = bytes - 1; i >= 0; i--) x = x << 8 | p[i];
    return x;
}

/* Finds both chunks; returns why not, or NULL. A data chunk that is longer than the file ends with
 * it, as written by programs that do not know its length. */
static const char *parse(const unsigned char *p, size_t size, wav *w) {
    if (size < 12 || memcmp(p, "RIFF", 4) != 0 || memcmp(p + 8, "WAVE", 4) != 0)
        return "not a WAV file; ffmpeg -i FILE -ar 16000 -ac 1 sound.wav converts others";
    for (size_t at = 12; size - at >= 8;) {
        const unsigned char *chunk = p + at;
        size_t n = (size_t)read_number(chunk + 4, 4), left = size - at - 8;
        if (n > left) n = left;
        if (!memcmp(chunk, "fmt ", 4) && n >= 16) {
            w->format = (int)read_number(chunk + 8, 2),
            w->channels = (int)read_number(chunk + 10, 2);
            w->rate = (int)read_number(chunk + 12, 4), w->bits = (int)read_number(chunk + 22, 2);
            if (w->format == FORMAT_EXTENSIBLE && n >= 26)
                w->format = (int)read_number(chunk + 32, 2);
        } else if (!memcmp(chunk, "data", 4)) {
            w->data = chunk + 8, w->size = n;
            break;
        }
        at += 8 + n + (n & 1);
        if (at > size) break;
    }
    if (!w->rate) return "it has no format";
    if (!w->data) return "it has no samples";
    return NULL;
}

static const char *check(const wav *w) {
    bool pcm = w->format == FORMAT_PCM &&
               (w->bits == 8 || w->bits == 16 || w->bits == 24 || w->bits == 32);
    bool real = w->format == FORMAT_FLOAT && (w->bits == 32 || w->bits == 64);
    if (!pcm && !real) return "its samples are neither PCM of 8 to 32 bits nor floats";
    if (w->channels < 1 || w->channels > MAX_CHANNELS) return "its number of channels";
    if (w->rate < 1000 || w->rate > 1000000) return "its rate is not between 1 kHz and 1 MHz";
    if (w->size < (size_t)(w->bits / 8 * w->channels)) return "it has no samples";
    return NULL;
}

static double sample_at(const wav *w, const unsigned char *p) {
    if (w->format == FORMAT_FLOAT) {
        float f;
        double d;
        memcpy(&f, p, sizeof f);
        if (w->bits == 32) return isfinite(f) ? f : 0;
        memcpy(&d, p, sizeof d);
        return isfinite(d) ? d : 0;
    }
    if (w->bits == 8) return (p[0] - 128) / 128.0;
    uint64_t x = read_number(p, w->bits / 8) << (64 - w->bits);
    return (double)(int64_t)x / 0x1p63;
}

bool audio_read(const char *path, audio *out, sn_error *err) {
    *out = (audio){0};
    sn_mapping m;
    if (!sn_file_map(path, &m, err)) return false;
    wav w = {0};
    const char *why = parse(m.data, m.size, &w);
    if (!why) why = check(&w);
    bool ok = !why || sn_fail(err, SN_ERR_FILE, "%s: %s", path, why);
    size_t bytes = ok ? (size_t)w.bits / 8 : 1, c = ok ? (size_t)w.channels : 1,
           n = w.size / (bytes * c);
    float *sample = ok ? malloc(sizeof *sample * n) : NULL;
    ok = ok && (sample || sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", path));
    for (size_t i = 0; ok && i < n; i++) {
        double sum = 0;
        for (size_t k = 0; k < c; k++) sum += sample_at(&w, w.data + (i * c + k) * bytes);
        sample[i] = (float)(sum / (double)c);
    }
    sn_file_unmap(&m);
    if (ok) *out = (audio){sample, n, w.rate};
    return ok;
}

void audio_free(audio *a) {
    free(a->sample);
    *a = (audio){0};
}
