/* Sound: WAV files of every kind of sample, other rates, log-mel spectrograms compared with NumPy
 * (tests/data/audio); files that do not fit. */
#include "model/media/audio.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/support/model_case.h"
#include "tests/support/scratch.h"
#include "tests/support/text.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <sys/resource.h>

/* sound() of make_audio.py */
static float *make_sound(size_t n, int rate) {
    float *x = malloc(sizeof *x * n);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) {
        double t = (double)i / rate, beat = sin(2 * M_PI * 7 * t);
        x[i] = (float)(0.4 * sin(2 * M_PI * (300 + 900 * t) * t) + 0.2 * sin(2 * M_PI * 3100 * t) +
                       0.1 * ((beat > 0) - (beat < 0)));
    }
    return x;
}

static cJSON *read_json(void) {
    char *text = file_text(SN_SOURCE_DIR "/tests/data/audio/audio.json");
    cJSON *json = cJSON_Parse(text);
    free(text);
    assert_non_null(json);
    return json;
}

static void resampling(void **state) {
    (void)state;
    cJSON *json = read_json();
    const cJSON *item, *x;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(json, "resampled")) {
        sn_error err = {0};
        int rate = atoi(item->string);
        size_t n = (size_t)rate / 2, i = 0;
        audio a = {make_sound(n, rate), n, rate};
        need(audio_resample(&a, 16000, &err), &err);
        assert_int_equal(a.n, 8000);
        cJSON_ArrayForEach(x, item) {
            if (!(fabs(a.sample[i] - x->valuedouble) <= 1e-5))
                fail_msg("%d Hz: sample %zu is %g, not %g", rate, i, a.sample[i], x->valuedouble);
            i += 97;
        }
        audio_free(&a);
    }
    cJSON_Delete(json);
}

/* A short sound of an odd rate has the values of a longer one, costs no more memory than they need,
 * and nothing behind it is read. */
static void short_sounds(void **state) {
    (void)state;
    enum { SHORT = 300, LONG = 20000, BEHIND = 64 };
    static const int rates[] = {44100, 48000, 8000, 11025, 999983};
    struct rusage before, after;
    for (size_t r = 0; r < sizeof rates / sizeof *rates; r++) {
        sn_error err = {0};
        const bool odd = rates[r] == 999983; /* nothing in common with 16000 */
        audio a = {calloc(SHORT + BEHIND, sizeof(float)), SHORT, rates[r]},
              b = {calloc(LONG, sizeof(float)), LONG, rates[r]};
        float *sound = make_sound(SHORT, rates[r]);
        memcpy(a.sample, sound, sizeof *sound * SHORT);
        memcpy(b.sample, sound, sizeof *sound * SHORT);
        for (int i = SHORT; i < SHORT + BEHIND; i++) a.sample[i] = NAN;
        getrusage(RUSAGE_SELF, &before);
        need(audio_resample(&a, 16000, &err), &err);
        getrusage(RUSAGE_SELF, &after);
        if (odd)
            assert_true(after.ru_maxrss - before.ru_maxrss < 8000); /* KB; all weights: 48 MB */
        assert_int_equal(a.n, (SHORT * INT64_C(16000) + rates[r] - 1) / rates[r]);
        if (!odd) need(audio_resample(&b, 16000, &err), &err);
        for (size_t i = 0; i < a.n; i++)
            if (odd ? !isfinite(a.sample[i]) : a.sample[i] != b.sample[i])
                fail_msg("%d Hz: sample %zu is %g, not %g", rates[r], i, a.sample[i], b.sample[i]);
        free(sound);
        audio_free(&a);
        audio_free(&b);
    }
}

static void spectrograms(void **state) {
    (void)state;
    enum { N = 9600, FRAMES = N / MEL_HOP };
    cJSON *json = read_json();
    float *sound = make_sound(N, 16000);
    for (int i = 8000; i < N; i++) sound[i] = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(json, "mel")) {
        size_t frames;
        int bins = atoi(item->string);
        float *mel = mel_spectrogram(sound, N, bins, &frames);
        assert_non_null(mel);
        assert_int_equal(frames, FRAMES);
        const cJSON *x = item->child;
        for (int b = 0; b < bins; b += 7)
            for (int t = 0; t < FRAMES; t += 5, x = x->next)
                if (!(fabs(mel[b * FRAMES + t] - x->valuedouble) <= 1e-4))
                    fail_msg("%d bins: bin %d of frame %d is %g, not %g", bins, b, t,
                             mel[b * FRAMES + t], x->valuedouble);
        assert_null(x);
        free(mel);
    }
    free(sound);
    cJSON_Delete(json);
}

/* ---- files ---- */

static void put(unsigned char *p, uint64_t x, int bytes) {
    for (int i = 0; i < bytes; i++) p[i] = (unsigned char)(x >> (8 * i));
}

/* A file with the samples 0, 1/2, -1/2, -1 in each of two channels; returns its size. */
static size_t make_wav(unsigned char *p, int format, int bits, bool extensible) {
    static const double values[] = {0, 0.5, -0.5, -1};
    size_t bytes = (size_t)bits / 8, head = extensible ? 40 : 16, at = 20 + head + 8;
    memcpy(p, "RIFF\0\0\0\0WAVEfmt ", 16);
    put(p + 16, head, 4);
    memset(p + 20, 0, head);
    put(p + 20, extensible ? 0xFFFE : (uint64_t)format, 2);
    put(p + 22, 2, 2);
    put(p + 24, 22050, 4);
    put(p + 34, (uint64_t)bits, 2);
    if (extensible) put(p + 44, (uint64_t)format, 2);
    memcpy(p + 20 + head, "data", 4);
    put(p + 24 + head, 8 * bytes, 4);
    for (int i = 0; i < 8; i++, at += bytes) {
        double x = values[i / 2];
        float f = (float)x;
        uint64_t d;
        uint32_t s;
        memcpy(&d, &x, 8);
        memcpy(&s, &f, 4);
        put(p + at,
            format == 3 ? (bits == 64 ? d : s)
            : bits == 8 ? (uint64_t)(128 + 128 * x)
                        : (uint64_t)(int64_t)(x * pow(2, bits - 1)),
            (int)bytes);
    }
    return at;
}

static void samples(void **state) {
    (void)state;
    static const int kinds[][2] = {{1, 8}, {1, 16}, {1, 24}, {1, 32}, {3, 32}, {3, 64}};
    for (size_t k = 0; k < 2 * sizeof kinds / sizeof *kinds; k++) {
        sn_error err = {0};
        unsigned char file[212];
        audio a;
        size_t n = make_wav(file, kinds[k / 2][0], kinds[k / 2][1], k % 2);
        if (k % 3 == 0) { /* behind a chunk of three bytes and one that makes their number even */
            memmove(file + 24, file + 12, n - 12);
            memcpy(file + 12, "LIST\3\0\0\0abc", 12);
            n += 12;
        }
        assert_true(scratch_write(scratch_path("x.wav"), file, n));
        need(audio_read(scratch_path("x.wav"), &a, &err), &err);
        assert_int_equal(a.rate, 22050);
        assert_int_equal(a.n, 4);
        const float want[] = {0, 0.5F, -0.5F, -1};
        for (int i = 0; i < 4; i++) assert_true(a.sample[i] == want[i]);
        audio_free(&a);
    }
}

static void refuse(const unsigned char *file, size_t n, const char *why) {
    sn_error err = {0};
    audio a;
    const char *path = scratch_path("x.wav");
    assert_true(scratch_write(path, file, n));
    assert_false(audio_read(path, &a, &err));
    expect_error(&err, SN_ERR_FILE, path, why);
}

static void wrong_files(void **state) {
    (void)state;
    unsigned char file[200];
    size_t n = make_wav(file, 1, 16, false);
    refuse((const unsigned char *)"OggS", 4, "ffmpeg");
    refuse(file, 12, "no format");
    refuse(file, 40, "no samples");
    refuse(file, 44, "no samples");
    for (size_t i = 0; i < n - 4; i++) { /* cut anywhere: an error, or fewer samples */
        sn_error err = {0};
        audio a;
        assert_true(scratch_write(scratch_path("y.wav"), file, i));
        if (audio_read(scratch_path("y.wav"), &a, &err)) audio_free(&a);
    }
    put(file + 20, 2, 2);
    refuse(file, n, "neither PCM");
    put(file + 20, 1, 2);
    put(file + 34, 12, 2);
    refuse(file, n, "neither PCM");
    put(file + 34, 256 + 16, 2);
    refuse(file, n, "neither PCM");
    put(file + 34, 16, 2);
    put(file + 22, 0, 2);
    refuse(file, n, "channels");
    put(file + 22, 2, 2);
    put(file + 24, 10, 4);
    refuse(file, n, "rate");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(short_sounds), cmocka_unit_test(resampling),
                                       cmocka_unit_test(spectrograms), cmocka_unit_test(samples),
                                       cmocka_unit_test(wrong_files)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
