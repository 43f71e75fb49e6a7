/* Whisper as published: folders with config.json, generation_config.json and safetensors, compared
 * with NumPy (tests/data/families/make_whisper_refs.py) at fusion levels 4 and 0: hidden states,
 * logits, and transcriptions with and without timestamps, of several windows. What does not fit is
 * an error. */
#include "model/transcribe.h"
#include "ir/ir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/e2e/family_folder.h"
#include "tests/support/compile_case.h"
#include "tests/support/effort.h"
#include "tests/support/model_case.h"
#include "tests/support/scratch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"whisper", "whisper_english"};

static void write_whisper(const char *dir, const family_folder *f) {
    family_write(dir, f, false);
    char *text = cJSON_Print(cJSON_GetObjectItem(f->json, "generation_config"));
    family_write_file(dir, "generation_config.json", text);
    cJSON_free(text);
}

static int64_t number(const cJSON *object, const char *key) {
    return cJSON_GetObjectItem(object, key)->valueint;
}

static open_model *load_model(int level, int entries, const char *needs) {
    sn_error err = {0};
    open_options o = {.path = scratch_dir,
                      .entries = entries,
                      .any_model = true,
                      .needs = needs,
                      .compile = sn_options_default()};
    o.compile.level = level;
    o.compile.threads = 1;
    open_model *m = lm_open(&o, &err);
    need(m != NULL, &err);
    assert_null(sn_model_unknown_key(m->config, 0));
    return m;
}

/* ---- the graph ---- */

static void check_forward(const family_folder *f, int level) {
    const cJSON *c = cJSON_GetObjectItem(f->json, "config"), *item;
    sn_error err = {0};
    int64_t mel = number(c, "num_mel_bins"), S = number(c, "max_source_positions"),
            d = number(c, "d_model"), V = number(c, "vocab_size"), T = 0;
    int32_t tokens[64];
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(f->json, "tokens"))
        tokens[T] = tokens[T + 9] = item->valueint, T++;
    assert_int_equal(T, 9);
    size_t n = (size_t)(2 * mel * 2 * S);
    float *features = malloc(sizeof *features * n),
          *hidden = malloc(sizeof *hidden * 2 * (size_t)(S * d)),
          *logits = malloc(sizeof *logits * 2 * (size_t)(T * V));
    assert_true(features && hidden && logits);
    for (size_t i = 0; i < n; i++) features[i] = family_value("features", 3, i);
    open_model *m = load_model(level, SN_FORWARD | SN_ENCODE, "forward");
    sn_arg_binding in[] = {SN_BIND("features", SN_F32, features, 2, mel, 2 * S),
                           SN_BIND("tokens", SN_I32, tokens, 2, T)};
    sn_arg_binding z = SN_BIND("hidden", SN_F32, hidden, 2, S, d),
                   y = SN_BIND("logits", SN_F32, logits, 2, T, V);
    need(sn_run(m->session, "encode", in, 1, &z, 1, &err), &err);
    need(sn_run(m->session, "forward", in, 2, &y, 1, &err), &err);
    family_compare(f, "hidden", 0, 2 * S * d, hidden, "encode");
    family_compare(f, "logits", 0, 2 * T * V, logits, "forward");
    model_close(m);
    free(features);
    free(hidden);
    free(logits);
}

/* ---- transcriptions ---- */

/* sound() of tests/data/audio/make_audio.py */
static audio make_sound(size_t n) {
    audio a = {malloc(sizeof(float) * n), n, MEL_RATE};
    assert_non_null(a.sample);
    for (size_t i = 0; i < n; i++) {
        double t = (double)i / MEL_RATE, beat = sin(2 * M_PI * 7 * t);
        a.sample[i] = (float)(0.4 * sin(2 * M_PI * (300 + 900 * t) * t) +
                              0.2 * sin(2 * M_PI * 3100 * t) + 0.1 * ((beat > 0) - (beat < 0)));
    }
    return a;
}

/* Compares each part with the next of the reference's. */
static bool compare_part(void *user, double begin, double end, const int32_t *ids, int64_t n,
                         sn_error *err) {
    const cJSON **part = user, *token;
    if (!*part) return sn_fail(err, SN_ERR_RANGE, "one part too many");
    const cJSON *list = cJSON_GetArrayItem(*part, 2);
    double b = cJSON_GetArrayItem(*part, 0)->valuedouble,
           e = cJSON_GetArrayItem(*part, 1)->valuedouble;
    if (!(fabs(begin - b) <= 1e-6 && fabs(end - e) <= 1e-6))
        return sn_fail(err, SN_ERR_RANGE, "%g to %g instead of %g to %g", begin, end, b, e);
    int64_t i = 0;
    cJSON_ArrayForEach(token, list) {
        if (i >= n || ids[i] != token->valueint)
            return sn_fail(err, SN_ERR_RANGE, "token %d of the part from %g s", (int)i, b);
        i++;
    }
    *part = (*part)->next;
    return i == n || sn_fail(err, SN_ERR_RANGE, "%d tokens too many", (int)(n - i));
}

/* The requests with that many beams, 0: greedy. The language is named if the reference was asked for
 * it; else the model hears it. */
static void check_requests(const family_folder *f, int level, int beams) {
    open_model *m = load_model(level, SN_CACHED, "decode");
    const cJSON *request;
    static const char *const languages[] = {NULL, "fr", "de", NULL, "en", "en", "fr"};
    bool many = cJSON_IsTrue(
        cJSON_GetObjectItem(cJSON_GetObjectItem(f->json, "generation_config"), "is_multilingual"));
    int i = -1, n = 0;
    cJSON_ArrayForEach(request, cJSON_GetObjectItem(f->json, "requests")) {
        const cJSON *wanted = cJSON_GetObjectItem(request, "beams");
        sn_error err = {0};
        i++;
        if ((wanted ? wanted->valueint : 0) != beams) continue;
        n++;
        audio a = make_sound((size_t)number(request, "samples"));
        const cJSON *part = cJSON_GetObjectItem(request, "parts")->child;
        transcribe_options o = {
            .language = many ? languages[i] : NULL,
            .to_english = !strcmp(cJSON_GetObjectItem(request, "task")->valuestring, "translate"),
            .timestamps = cJSON_IsTrue(cJSON_GetObjectItem(request, "timestamps")),
            .sink = compare_part,
            .user = &part};
        if (!transcribe(m, &a, &o, &err))
            fail_msg("level %d, request %d: %s", level, i, err.message);
        if (part) fail_msg("level %d, request %d: parts are missing", level, i);
        audio_free(&a);
    }
    assert_true(n >= 2);
    model_close(m);
}

/* Greedy, and with the number of beams that generation_config.json names. */
static void check_transcriptions(const family_folder *f, int level, bool search) {
    check_requests(f, level, 0);
    if (!search) return;
    cJSON *config = cJSON_Duplicate(cJSON_GetObjectItem(f->json, "generation_config"), true);
    cJSON_AddNumberToObject(config, "num_beams", 3);
    char *text = cJSON_Print(config);
    family_write_file(scratch_dir, "generation_config.json", text);
    check_requests(f, level, 3);
    cJSON_free(text);
    cJSON_Delete(config);
    write_whisper(scratch_dir, f);
}

static void run_case(void **state) {
    family_folder f;
    assert_int_equal(scratch_make(NULL), 0);
    family_read("whisper", *state, SN_F32, &f);
    write_whisper(scratch_dir, &f);
    bool all = effort_is_long(), first = *state == names[0];
    for (int level = 4; level >= 0; level -= all || first ? 4 : 5) {
        if (all || (first && level)) check_forward(&f, level);
        check_transcriptions(&f, level, first && (all || level));
    }
    family_free(&f);
    scratch_end(NULL);
}

/* ---- what does not fit ---- */

static void try_config(const char *key, const char *json, const char *why) {
    family_folder f;
    sn_error err = {0};
    assert_int_equal(scratch_make(NULL), 0);
    family_read("whisper", "whisper", SN_F32, &f);
    family_set_key(&f, key, json);
    write_whisper(scratch_dir, &f);
    sn_model_dir *dir = sn_model_dir_open(scratch_dir, &err);
    need(dir, &err);
    sn_model model = {0};
    sn_model_options o = {.entries = SN_FORWARD, .weights = dir->weights};
    if (sn_model_build(dir->config, &o, &model, &err) &&
        sn_model_takes_all(&model, dir->weights, &err)) {
        const char *unread = sn_model_unknown_key(dir->config, 0);
        sn_options how = {.level = 4, .threads = 1};
        sn_program *p = unread ? NULL : sn_compile(model.module, &how, &err);
        sn_session *session = p ? sn_session_new(p, dir->weights, &err) : NULL;
        if (unread) sn_fail(&err, SN_ERR_FILE, "not read: %s", unread);
        sn_session_free(session);
        sn_program_free(p);
    }
    if (!strstr(err.message, why)) fail_msg("%s: wanted '%s' in: %s", key, why, err.message);
    sn_module_free(model.module);
    sn_model_dir_close(dir);
    family_free(&f);
    scratch_end(NULL);
}

static void wrong_configs(void **state) {
    (void)state;
    try_config("encoder_layers", "1", "no parameters");
    try_config("decoder_attention_heads", "3", "does not divide");
    try_config("activation_function", "\"tanh\"", "activation_function");
    try_config("num_mel_bins", "9", "conv1");
    try_config("use_weighted_layer_sum", "true", "use_weighted_layer_sum");
    try_config("model_type", "\"bart\"", "max_position_embeddings");
    try_config("audio_gain", "2", "not read: audio_gain");
}

static void refuse(open_model *m, const char *language, bool translate, const char *why) {
    sn_error err = {0};
    audio a = make_sound(4000);
    const cJSON *none = NULL;
    transcribe_options o = {
        .language = language, .to_english = translate, .sink = compare_part, .user = &none};
    assert_false(transcribe(m, &a, &o, &err));
    if (!strstr(err.message, why)) fail_msg("wanted '%s' in: %s", why, err.message);
    audio_free(&a);
}

static bool ignore_part(void *user, double begin, double end, const int32_t *ids, int64_t n,
                        sn_error *err) {
    (void)begin, (void)end, (void)ids, (void)n, (void)err;
    ++*(int *)user;
    return true;
}

/* A largest first timestamp that is none is as if there were none. */
static void try_first_timestamp(open_model *m, const family_folder *f, double index) {
    cJSON *config = cJSON_Duplicate(cJSON_GetObjectItem(f->json, "generation_config"), true);
    cJSON_DeleteItemFromObject(config, "max_initial_timestamp_index");
    cJSON_AddNumberToObject(config, "max_initial_timestamp_index", index);
    char *text = cJSON_Print(config);
    family_write_file(scratch_dir, "generation_config.json", text);
    sn_error err = {0};
    audio a = make_sound(4000);
    int parts = 0;
    transcribe_options o = {.timestamps = true, .sink = ignore_part, .user = &parts};
    if (!transcribe(m, &a, &o, &err)) fail_msg("%s", err.message);
    assert_true(parts > 0);
    audio_free(&a);
    cJSON_free(text);
    cJSON_Delete(config);
}

static void wrong_requests(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        family_folder f;
        assert_int_equal(scratch_make(NULL), 0);
        family_read("whisper", names[i], SN_F32, &f);
        write_whisper(scratch_dir, &f);
        open_model *m = load_model(4, SN_CACHED, "decode");
        if (i == 0) {
            refuse(m, "xx", false, "no token for the language 'xx'");
            try_first_timestamp(m, &f, -4e6);
            try_first_timestamp(m, &f, INT32_MAX);
            family_write_file(scratch_dir, "generation_config.json", "{\"eos_token_id\": 30}");
            refuse(m, NULL, false, "no token for");
        } else {
            refuse(m, "en", false, "one language");
            refuse(m, NULL, true, "one language");
        }
        model_close(m);
        family_free(&f);
        scratch_end(NULL);
    }
}

/* Writes DIR/sound.wav: 17000 samples of 16 bits. */
static void write_sound(const char *dir) {
    enum { N = 17000 };
    static int16_t file[22 + N] = {0};
    const uint32_t head[] = {36 + 2 * N,   16,           1 | 1 << 16, MEL_RATE,
                             2 * MEL_RATE, 2 | 16 << 16, 2 * N};
    char path[600], *p = (char *)file;
    memcpy(p, "RIFF", 4);
    memcpy(p + 4, head, 4);
    memcpy(p + 8, "WAVEfmt ", 8);
    memcpy(p + 16, head + 1, 20);
    memcpy(p + 36, "data", 4);
    memcpy(p + 40, head + 6, 4);
    audio a = make_sound(N);
    for (int i = 0; i < N; i++) file[22 + i] = (int16_t)lroundf(32767 * a.sample[i]);
    audio_free(&a);
    snprintf(path, sizeof path, "%s/sound.wav", dir);
    assert_true(scratch_write(path, file, sizeof file));
}

/* NAME DIR: writes the folder of a case, with sound.wav, for tests of programs. */
int main(int argc, char **argv) {
    if (argc > 2) {
        family_folder f;
        family_read("whisper", argv[1], SN_F32, &f);
        write_whisper(argv[2], &f);
        write_sound(argv[2]);
        family_free(&f);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        {names[0], run_case, NULL, NULL, (void *)(uintptr_t)names[0]},
        {names[1], run_case, NULL, NULL, (void *)(uintptr_t)names[1]},
        cmocka_unit_test(wrong_configs),
        cmocka_unit_test(wrong_requests)};
    return _cmocka_run_group_tests("whisper", tests, 4, cc_begin, cc_end);
}
