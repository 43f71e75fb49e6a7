/* transcribe.c: speech to text: spectrograms or samples in windows, and which tokens Whisper may choose. */
#include "model/transcribe.h"
#include "runtime/file.h"
#include "model/sample.h"
#include "model/text/token_rules.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PROMPT = 4, FRAMES_PER_TIMESTAMP = 2 };
static const double seconds_per_timestamp = 0.02;

typedef struct whisper {
    open_model *m;
    bool samples;    /* the model reads these, and has neither timestamps nor languages */
    size_t frame;    /* samples of a frame: MEL_HOP, or 1 */
    int rate;        /* samples a second */
    bool normalises; /* samples get the mean 0 and the variance 1 */
    const transcribe_options *o;
    cJSON *config; /* generation_config.json, or NULL */
    sn_token_rules rules;
    bool languages;     /* a prompt names language and task */
    int32_t first_time; /* the timestamp 0.00 */
    int32_t max_first;  /* the largest timestamp at the beginning */
    int32_t language;   /* -1: not yet known */
    bool timestamps;
    float *mel;                /* [bins, frames], all of the sound; samples are frames of one bin */
    size_t frames, content;    /* content: frames that are not padding */
    float *window;             /* [bins, model.frames] */
    size_t used;               /* frames of the window, without silence behind them */
    int64_t positions;         /* that the encoder makes of them; 0: always as many */
    int64_t rows;              /* beams */
    float *logits;             /* [rows, vocab] */
    int32_t *tokens, *parents; /* [rows] */
    int32_t *written, *before; /* [rows, context + 2]: of a window, for each beam the last token of
                                  the prompt, then what is chosen; room for them */
    int32_t *ids;              /* of one beam; of the best one at the end */
    int64_t n;
} whisper;

/* ---- special tokens ---- */

/* The id in an object of generation_config.json, or else of a token of the vocabulary; -1: none. */
static int32_t find_token(const whisper *w, const char *table, const char *key, const char *text) {
    const cJSON *ids = cJSON_GetObjectItemCaseSensitive(w->config, table);
    const cJSON *id = cJSON_GetObjectItemCaseSensitive(ids, key);
    if (cJSON_IsNumber(id)) return id->valueint;
    return w->m->io->tokenizer ? sn_tokenizer_id(w->m->io->tokenizer, text, strlen(text)) : -1;
}

static int32_t find_language(const whisper *w, const char *name) {
    char text[40];
    snprintf(text, sizeof text, "<|%s|>", name);
    return find_token(w, "lang_to_id", text, text);
}

static int32_t find_task(const whisper *w) {
    return w->o->to_english ? find_token(w, "task_to_id", "translate", "<|translate|>")
                            : find_token(w, "task_to_id", "transcribe", "<|transcribe|>");
}

/* The language that old folders force: [[1, LANGUAGE], [2, TASK], …]; -1: none. */
static int32_t forced_language(const whisper *w) {
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(w->config, "forced_decoder_ids");
    const cJSON *first = cJSON_GetArrayItem(list, 0), *id = cJSON_GetArrayItem(first, 1);
    return cJSON_IsNumber(id) && cJSON_GetArrayItem(first, 0)->valueint == 1 ? id->valueint : -1;
}

static bool is_token(const whisper *w, int32_t id, const char *what, sn_error *err) {
    return (id >= 0 && id < w->m->model.vocab) ||
           sn_fail(err, SN_ERR_USAGE, "the model has no token for %s", what);
}

static bool read_tokens(whisper *w, sn_error *err) {
    static const char none[] = "<|notimestamps|>";
    const cJSON *id = cJSON_GetObjectItemCaseSensitive(w->config, "no_timestamps_token_id"),
                *many = cJSON_GetObjectItemCaseSensitive(w->config, "is_multilingual"),
                *first = cJSON_GetObjectItemCaseSensitive(w->config, "max_initial_timestamp_index");
    const int32_t untimed = w->samples           ? INT32_MAX - 1
                            : cJSON_IsNumber(id) ? id->valueint
                            : w->m->io->tokenizer
                                ? sn_tokenizer_id(w->m->io->tokenizer, none, strlen(none))
                                : -1;
    w->languages = w->samples           ? false
                   : cJSON_IsBool(many) ? cJSON_IsTrue(many)
                                        : find_language(w, "de") >= 0;
    if ((!w->samples && !is_token(w, untimed, "text without timestamps", err)) ||
        !is_token(w, w->rules.start, "the beginning (decoder_start_token_id)", err) ||
        !is_token(w, w->rules.eos, "the end (eos_token_id)", err))
        return false;
    w->first_time = untimed + 1;
    w->max_first = INT32_MAX;
    if (cJSON_IsNumber(first) && first->valueint >= 0 &&
        first->valueint < INT32_MAX - w->first_time)
        w->max_first = w->first_time + first->valueint;
    w->language = -1;
    if (!w->languages)
        return (!w->o->language && !w->o->to_english) ||
               sn_fail(err, SN_ERR_USAGE,
                       "this model knows one language only: omit the language and the task");
    char what[80];
    snprintf(what, sizeof what, "the language '%.30s'", w->o->language ? w->o->language : "");
    w->language = w->o->language ? find_language(w, w->o->language) : forced_language(w);
    return (!w->o->language || is_token(w, w->language, what, err)) &&
           is_token(w, find_task(w), "the task", err);
}

static bool open_rules(whisper *w, sn_error *err) {
    const char *folder = w->m->folder;
    w->rules = (sn_token_rules)SN_TOKEN_RULES_NONE;
    if (!sn_token_rules_read(&w->rules, folder, err)) return false;
    char *path = folder ? sn_path_join(folder, "generation_config.json") : NULL;
    sn_mapping map;
    if (path && sn_file_exists(path) && sn_file_map(path, &map, err)) {
        w->config = cJSON_ParseWithLength((const char *)map.data, map.size);
        sn_file_unmap(&map);
    }
    free(path);
    return read_tokens(w, err);
}

/* ---- which tokens may follow (Radford et al. 2022, section 2.3, and Hugging Face's
 * WhisperTimeStampLogitsProcessor) ---- */

static void hide(float *logits, int64_t from, int64_t to) {
    for (int64_t i = from; i < to; i++) logits[i] = -INFINITY;
}

static bool is_time(const whisper *w, int64_t i) {
    return w->ids[i] >= w->first_time;
}

/* The earliest timestamp that may follow: they do not decrease, and the end of one part may be the
 * beginning of the next. */
static int32_t earliest(const whisper *w, bool closes) {
    for (int64_t i = w->n - 1; i > 0; i--)
        if (is_time(w, i)) return w->ids[i] + !closes;
    return w->first_time;
}

/* A timestamp is due if all timestamps together are likelier than any other token. */
static bool time_is_due(const whisper *w, const float *logits) {
    double largest = -INFINITY, text = -INFINITY, sum = 0;
    for (int64_t i = 0; i < w->m->model.vocab; i++) {
        largest = fmax(largest, logits[i]);
        if (i < w->first_time) text = fmax(text, logits[i]);
    }
    for (int64_t i = w->first_time; i < w->m->model.vocab; i++) sum += exp(logits[i] - largest);
    return largest > -INFINITY && log(sum) + largest > text;
}

static void apply_timestamps(const whisper *w, float *logits) {
    int64_t V = w->m->model.vocab, chosen = w->n - 1;
    bool last = chosen >= 1 && is_time(w, w->n - 1), before = chosen < 2 || is_time(w, w->n - 2);
    hide(logits, w->first_time - 1, w->first_time);
    if (last && before) hide(logits, w->first_time, V);
    if (last && !before) hide(logits, 0, w->rules.eos);
    hide(logits, w->first_time, earliest(w, last && !before));
    if (!chosen) hide(logits, 0, w->first_time);
    if (!chosen && w->max_first < V) hide(logits, w->max_first + 1, V);
    if (time_is_due(w, logits)) hide(logits, 0, w->first_time);
}

/* ---- a window ---- */

static int64_t row_size(const whisper *w) {
    return w->m->model.context + 2;
}

/* Runs tokens[rows]. */
static bool feed(const whisper *w, int64_t past, sn_error *err) {
    open_model *m = w->m;
    sn_arg_binding in[] = {SN_BIND("tokens", SN_I32, w->tokens, w->rows, 1), SN_BIND_DIM("P", past),
                           SN_BIND_DIM("S", w->positions)};
    sn_arg_binding out = SN_BIND("logits", SN_F32, w->logits, w->rows, m->model.vocab);
    return sn_run(m->session, "decode", in, w->positions ? 3 : 2, &out, 1, err);
}

static bool feed_all(const whisper *w, int32_t token, int64_t past, sn_error *err) {
    for (int64_t i = 0; i < w->rows; i++) w->tokens[i] = token;
    return feed(w, past, err);
}

/* The likeliest language after the beginning's token. */
static void hear_language(whisper *w) {
    const cJSON *item, *all = cJSON_GetObjectItemCaseSensitive(w->config, "lang_to_id");
    const float *logits = w->logits;
    cJSON_ArrayForEach(item, all) {
        int32_t id = item->valueint;
        if (id >= 0 && id < w->m->model.vocab &&
            (w->language < 0 || logits[id] > logits[w->language]))
            w->language = id;
    }
}

/* Runs the prompt; *past: its length. */
static bool begin_window(whisper *w, int64_t *past, sn_error *err) {
    int32_t prompt[MAX_PROMPT] = {w->rules.start};
    int64_t n = 1;
    if (!feed_all(w, prompt[0], 0, err)) return false;
    if (w->languages && w->language < 0) hear_language(w);
    if (w->languages && w->language < 0)
        return sn_fail(err, SN_ERR_USAGE,
                       "the folder does not list the model's languages: name one");
    if (w->languages) prompt[n++] = w->language, prompt[n++] = find_task(w);
    if (!w->timestamps && !w->samples) prompt[n++] = w->first_time - 1;
    for (int64_t i = 1; i < n; i++)
        if (!feed_all(w, prompt[i], i, err)) return false;
    *past = n;
    for (int64_t i = 0; i < w->rows; i++) w->written[i * row_size(w)] = prompt[n - 1];
    w->n = 1;
    return true;
}

/* Which tokens may follow each beam; in a search scores are logarithms of probabilities. */
static void apply_rules(whisper *w, int64_t room) {
    const int64_t vocab = w->m->model.vocab;
    for (int64_t i = 0; i < w->rows; i++) {
        float *x = w->logits + i * vocab;
        w->ids = w->written + i * row_size(w);
        if (w->rows > 1) sn_token_rules_normalise(x, vocab);
        sn_token_rules_apply(&w->rules, w->ids, w->n, room, w->rules.eos, x, vocab);
        if (w->timestamps) apply_timestamps(w, x);
    }
}

/* Beam i continues beam parents[i] with tokens[i]. */
static bool follow_parents(whisper *w, sn_error *err) {
    const size_t size = (size_t)row_size(w);
    bool same = true;
    for (int64_t i = 0; i < w->rows; i++) {
        same &= w->parents[i] == i;
        memcpy(w->before + (size_t)i * size, w->written + (size_t)w->parents[i] * size,
               sizeof *w->before * (size_t)w->n);
        w->before[i * row_size(w) + w->n] = w->tokens[i];
    }
    int32_t *written = w->before;
    w->before = w->written, w->written = written;
    w->n++;
    sn_arg_binding in = SN_BIND("parents", SN_I32, w->parents, w->rows);
    return same || sn_run(w->m->session, "reorder", &in, 1, NULL, 0, err);
}

/* Chooses tokens after the prompt of `past` tokens: the likeliest, or by beam search. */
static bool search(whisper *w, int64_t past, sn_error *err) {
    const int64_t room = w->m->model.context - past;
    const sn_beam_options o = {.beams = (int32_t)w->rows,
                               .eos = &w->rules.eos,
                               .n_eos = 1,
                               .max_tokens = room,
                               .length_penalty = w->rules.length_penalty,
                               .stop = w->rows > 1 ? w->rules.stop : SN_BEAM_STOP_FULL,
                               .log_probabilities = w->rows > 1};
    sn_beam *b = sn_beam_new(&o, (size_t)w->m->model.vocab, err);
    bool ok = b;
    while (ok && !sn_beam_done(b)) {
        apply_rules(w, room - (w->n - 1));
        ok = sn_beam_step(b, w->logits, w->tokens, w->parents, err);
        if (!ok || sn_beam_done(b)) break;
        ok = follow_parents(w, err) && feed(w, past + w->n - 2, err);
    }
    w->ids = w->written;
    if (ok) w->n = 1 + (int64_t)sn_beam_result(b, 0, w->ids + 1, NULL);
    sn_beam_free(b);
    return ok;
}

/* Samples from `seek` on that become a window: if there are more than fit, those before the quietest tenth of a
 * second of its last five seconds, so that no word is cut. */
static size_t samples_of(const whisper *w, size_t seek) {
    const size_t room = (size_t)w->m->model.frames, quiet = (size_t)w->rate / 10;
    if (w->frames - seek <= room) return w->frames - seek;
    size_t best = room;
    double least = INFINITY;
    for (size_t end = room; end >= quiet && end + 50 * quiet > room; end -= quiet) {
        double sum = 0;
        for (size_t i = seek + end - quiet; i < seek + end; i++)
            sum += (double)w->mel[i] * (double)w->mel[i];
        if (sum < least) least = sum, best = end;
    }
    return best;
}

/* Fills ids[1 … n-1]. */
static bool read_window(whisper *w, size_t seek, sn_error *err) {
    open_model *m = w->m;
    size_t bins = (size_t)m->model.mel, length = (size_t)m->model.frames;
    size_t have = w->frames - seek < length ? w->frames - seek : length;
    if (w->samples) have = samples_of(w, seek);
    for (size_t b = 0; b < bins; b++) {
        memcpy(w->window + b * length, w->mel + b * w->frames + seek, have * sizeof *w->window);
        for (size_t i = have; i < length; i++) w->window[b * length + i] = 0;
    }
    const int64_t hop = m->model.hop, lead = m->model.lead;
    if (w->samples) w->positions = ((int64_t)have - lead + hop - 1) / hop;
    if (w->positions < m->model.least) w->positions = m->model.least;
    const sn_arg_binding frames = SN_BIND("features", SN_F32, w->window, 1, m->model.mel,
                                          m->model.frames),
                         samples =
                             SN_BIND("samples", SN_F32, w->window, 1, hop * w->positions + lead);
    sn_arg_binding in[] = {w->samples ? samples : frames, SN_BIND_DIM("S", w->positions)};
    w->used = have;
    sn_session_reset(m->session);
    int64_t past = 0;
    return sn_run(m->session, "prefill", in, w->samples ? 2 : 1, NULL, 0, err) &&
           begin_window(w, &past, err) && search(w, past, err);
}

/* Hands out the parts of ids[1 … n-1], which begin at `offset` seconds. */
static bool give_parts(const whisper *w, double offset, double end, int64_t n, sn_error *err) {
    int32_t *text = malloc(sizeof *text * (size_t)n);
    if (!text) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    double begin = offset;
    int64_t count = 0;
    bool ok = true;
    for (int64_t i = 1; ok && i <= n; i++) {
        bool time = i < n && is_time(w, i);
        if (i < n && (w->samples ? w->ids[i] != w->rules.eos : w->ids[i] < w->rules.eos))
            text[count++] = w->ids[i];
        if (i < n && !time) continue;
        double at = time ? offset + (w->ids[i] - w->first_time) * seconds_per_timestamp : end;
        if (count) ok = w->o->sink(w->o->user, begin, at, text, count, err);
        begin = at;
        count = 0;
    }
    free(text);
    return ok;
}

/* Hands out what was read at frame *seek, and moves that to where the next window begins: after the
 * last part whose end is known, if there is another part behind it. */
static bool end_window(const whisper *w, size_t *seek, sn_error *err) {
    int64_t used = w->n;
    size_t advance = w->samples ? w->used : (size_t)w->m->model.frames;
    bool closed = w->n > 2 && is_time(w, w->n - 1) && !is_time(w, w->n - 2);
    for (int64_t i = w->n - 1; i > 1 && !closed && w->timestamps; i--) {
        if (!is_time(w, i) || !is_time(w, i - 1)) continue;
        int32_t last = w->ids[i - 1] - w->first_time;
        if (last > 0) used = i, advance = (size_t)last * FRAMES_PER_TIMESTAMP;
        break;
    }
    double per_frame = (double)w->frame / w->rate;
    size_t stop = *seek + advance < w->content ? *seek + advance : w->content;
    bool ok = give_parts(w, (double)*seek * per_frame, (double)stop * per_frame, used, err);
    *seek += advance;
    return ok;
}

/* ---- all of the sound ---- */

/* How samples are prepared, as transformers' Wav2Vec2FeatureExtractor does; without a file they stay as they are. */
static bool read_sound(whisper *w, sn_error *err) {
    enum { MIN_RATE = 1000, MAX_RATE = 192000 };
    static const char file[] = "preprocessor_config.json";
    const char *folder = w->m->folder;
    if (!folder || !sn_folder_has(folder, file)) return true;
    char *path = sn_path_join(folder, file);
    sn_config *c = path ? sn_config_open(path, err) : NULL;
    if (!path) sn_fail(err, SN_ERR_MEMORY, "out of memory");
    free(path);
    if (!c) return false;
    w->rate = (int)sn_config_int_or(c, "sampling_rate", MEL_RATE, MIN_RATE, MAX_RATE);
    w->normalises = sn_config_bool_or(c, "do_normalize", true);
    const bool ok = sn_config_check(c, err);
    sn_config_free(c);
    return ok;
}

static void normalise(audio *a) {
    double sum = 0, squares = 0;
    for (size_t i = 0; i < a->n; i++) sum += (double)a->sample[i];
    const double mean = sum / (double)a->n;
    for (size_t i = 0; i < a->n; i++) squares += pow((double)a->sample[i] - mean, 2);
    const double scale = 1 / sqrt(squares / (double)a->n + 1e-7);
    for (size_t i = 0; i < a->n; i++) a->sample[i] = (float)(((double)a->sample[i] - mean) * scale);
}

/* The samples, or the spectrogram of at least one window: shorter sound is followed by silence. */
static bool make_frames(whisper *w, const audio *a, sn_error *err) {
    const sn_model *v = &w->m->model;
    size_t least = w->samples ? 1 : (size_t)v->frames * w->frame, n = a->n > least ? a->n : least;
    float *padded = calloc(n, sizeof *padded);
    if (padded) memcpy(padded, a->sample, a->n * sizeof *padded);
    if (padded && w->samples)
        w->mel = padded, w->frames = n;
    else if (padded)
        w->mel = mel_spectrogram(padded, n, (int)v->mel, &w->frames);
    if (w->mel != padded) free(padded);
    w->content = (a->n + w->frame - 1) / w->frame;
    if (w->content > w->frames) w->content = w->frames;
    w->window = malloc(sizeof *w->window * (size_t)(v->mel * v->frames));
    size_t rows = (size_t)w->rows, written = rows * (size_t)row_size(w);
    w->logits = malloc(sizeof *w->logits * rows * (size_t)v->vocab);
    w->tokens = malloc(sizeof *w->tokens * 2 * rows);
    w->written = malloc(sizeof *w->written * written);
    w->before = malloc(sizeof *w->before * written);
    if (w->tokens) w->parents = w->tokens + rows;
    return (w->mel && w->window && w->logits && w->tokens && w->written && w->before) ||
           sn_fail(err, SN_ERR_MEMORY, "out of memory");
}

bool transcribe(open_model *m, audio *sound, const transcribe_options *o, sn_error *err) {
    const bool samples = m->model.hop != 0;
    whisper w = {.m = m,
                 .o = o,
                 .rows = m->beams,
                 .samples = samples,
                 .frame = samples ? 1 : MEL_HOP,
                 .rate = MEL_RATE};
    if (!m->model.mel)
        return sn_fail(err, SN_ERR_USAGE, "%s models do not transcribe sound: use a whisper",
                       m->model.type);
    if (m->model.context <= MAX_PROMPT || m->model.frames * (int64_t)w.frame < MEL_FFT)
        return sn_fail(err, SN_ERR_USAGE, "the model is too small to transcribe");
    if (samples && o->timestamps)
        return sn_fail(err, SN_ERR_USAGE, "%s models have no timestamps: omit --timestamps",
                       m->model.type);
    if ((samples && !read_sound(&w, err)) || !audio_resample(sound, w.rate, err)) return false;
    if (w.normalises) normalise(sound);
    bool ok = open_rules(&w, err) && make_frames(&w, sound, err);
    w.timestamps = !samples && (o->timestamps || w.content > (size_t)m->model.frames);
    for (size_t seek = 0; ok && seek < w.content;)
        ok = read_window(&w, seek, err) && end_window(&w, &seek, err);
    sn_token_rules_free(&w.rules);
    cJSON_Delete(w.config);
    free(w.mel);
    free(w.window);
    free(w.logits);
    free(w.tokens);
    free(w.written);
    free(w.before);
    return ok;
}
