/* cmd_transcribe.c: `sinter transcribe`: speech to text. */
#include "model/commands/commands.h"
#include "model/transcribe.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define NAME "sinter transcribe"

typedef struct options {
    cmd_model model;
    cmd_compile compile;
    const char *sound, *language, *task;
    int64_t beams;
    bool timestamps, print_ids;
} options;

#define AT(field) offsetof(options, field)
static const arg table[] = {
    CMD_MODEL_ARGS(options),
    {"FILE", 0, ARG_PLACE, AT(sound), NULL, NULL, 0, 0,
     "a WAV file: PCM or floats, any rate and number of channels; -: standard input"},
    {"language", 0, ARG_TEXT, AT(language), "CODE", NULL, 0, 0,
     "of the sound: en, de, …; default: as the model hears it"},
    {"task", 0, ARG_CHOICE, AT(task), "transcribe|translate", "transcribe", 0, 0,
     "write what is said, or translate it to English"},
    {"beams", 'b', ARG_INT, AT(beams), "N", "auto", 1, 1024,
     "number of beams, 1: greedy; auto: of generation_config.json, or 1"},
    {"timestamps", 0, ARG_FLAG, AT(timestamps), NULL, NULL, 0, 0,
     "a line for each part, with its begin and end"},
    {"print-ids", 0, ARG_FLAG, AT(print_ids), NULL, NULL, 0, 0, "print token ids, not text"},
    CMD_COMPILE_ARGS(options),
    CMD_CHECK_NAN_ARG(options),
    {0},
};

static const arg_key keys[] = {
    {"begin", "number", "of the part, in seconds"},
    {"end", "number", "of the part"},
    {"text", "text", "what is said; empty for models without a tokenizer"},
    {"ids", "list", "its token ids"},
    {0}};

static const arg_command command = {NAME,
                                    "write down what is said in a sound file",
                                    "Reads sound in windows of 30 seconds. If it is longer, each "
                                    "window begins where the last whole\n"
                                    "part of the one before ended. Models of samples (ONNX files "
                                    "such as Moonshine's) read 1500\n"
                                    "positions at once; longer sound is divided where it is "
                                    "quiet.\n",
                                    table,
                                    .examples =
                                        "sinter transcribe WHISPER speech.wav --timestamps\n",
                                    .json = keys};

typedef struct printer {
    const options *o;
    const open_model *m;
    bool started;
} printer;

static void print_time(double t) {
    long long cs = llround(t * 100);
    if (cs >= 360000) printf("%lld:", cs / 360000);
    printf("%02lld:%02lld.%02lld", cs / 6000 % 60, cs / 100 % 60, cs % 100);
}

/* Without timestamps all parts are one text, which begins without a space. */
static bool print_part(void *user, double begin, double end, const int32_t *ids, int64_t n,
                       sn_error *err) {
    printer *p = user;
    bool times = p->o->timestamps, as_ids = p->o->print_ids || !p->m->io->tokenizer;
    sn_bytes text = {0};
    if (!as_ids && !sn_tokenizer_decode(p->m->io->tokenizer, ids, (size_t)n, 0, &text, err))
        return false;
    const char *s = text.data ? text.data : "";
    if (sn_screen()->json) {
        json_out j = sn_json_begin(stdout);
        sn_json_number(&j, "begin", begin);
        sn_json_number(&j, "end", end);
        sn_json_text(&j, "text", s);
        sn_json_ids(&j, "ids", ids, n);
        sn_json_end(&j);
        sn_bytes_free(&text);
        return !sn_screen_stopped() || sn_screen_interrupted(err, "after %.2f s of sound", end);
    }
    if (times) printf("["), print_time(begin), printf(" --> "), print_time(end), printf("]  ");
    if (times || !p->started) s += strspn(s, " ");
    if (as_ids && p->started && !times) putchar(' ');
    for (int64_t i = 0; as_ids && i < n; i++) printf(i ? " %d" : "%d", (int)ids[i]);
    fputs(s, stdout);
    if (times) putchar('\n');
    fflush(stdout);
    p->started = true;
    sn_bytes_free(&text);
    return !sn_screen_stopped() || sn_screen_interrupted(err, "after %.2f s of sound", end);
}

int cmd_transcribe(int argc, char **argv) {
    options o = {0};
    int code = sn_args_parse(&command, argc, argv, &o);
    if (code != ARGS_RUN) return code;
    sn_error err = {0};
    audio sound;
    const char *file = cmd_input_path(o.sound, &err);
    if (!file || !audio_read(file, &sound, &err)) return cmd_fail(NAME, &err);
    open_options how = CMD_ENCODER(SN_CACHED, "decode");
    if (o.beams > 0) how.beams = o.beams;
    open_model *m = cmd_open(NAME, &o.model, &o.compile, how, &code);
    if (m) {
        printer p = {&o, m, false};
        sn_screen_catch_stop();
        transcribe_options t = {.language = o.language,
                                .to_english = !strcmp(o.task, "translate"),
                                .timestamps = o.timestamps,
                                .sink = print_part,
                                .user = &p};
        bool ok = transcribe(m, &sound, &t, &err);
        if (p.started && !o.timestamps) putchar('\n');
        code = ok ? cmd_finish(NAME) : cmd_fail(NAME, &err);
    }
    model_close(m);
    audio_free(&sound);
    return code;
}
