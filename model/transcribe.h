/* transcribe.h: speech to text with Whisper (Radford et al. 2022): windows of sound, one after the
 * other, each decoded greedily or by beam search. */
#ifndef SN_TRANSCRIBE_H
#define SN_TRANSCRIBE_H

#include "model/media/audio.h"
#include "model/open.h"

/* Receives a part of the text: from `begin` to `end` in seconds, token ids without special ones.
 * False stops. */
typedef bool transcribe_sink(void *user, double begin, double end, const int32_t *ids, int64_t n,
                             sn_error *err);

typedef struct transcribe_options {
    const char *language; /* of the sound, "en"; NULL: what the model hears in the first window */
    bool to_english;      /* translate to English; else the text is in that language */
    bool timestamps;      /* parts are as long as the model says; else one part for each window */
    transcribe_sink *sink;
    void *user;
} transcribe_options;

/* Transcribes sound of any rate. A model opened with SN_CACHED and its number of beams, 1: greedy.
 * Tokens are chosen as Hugging Face
 * does by generation_config.json: suppressed tokens, languages, timestamps in pairs that do not
 * decrease. Sound that is longer than a window is always read with timestamps; the next window
 * begins at the last one. Errors: another kind of model, an unknown language, too little sound. */
bool transcribe(open_model *m, audio *sound, const transcribe_options *o, sn_error *err);

#endif
