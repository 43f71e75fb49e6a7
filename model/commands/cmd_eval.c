/* cmd_eval.c: `sinter eval`: loss, perplexity and bits per byte of a model on a text. */
#include "model/commands/commands.h"
#include "runtime/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "sinter eval"

typedef struct options {
    cmd_model model;
    cmd_compile compile;
    const char *file, *profile;
    int64_t stride, limit;
    bool no_bos, stats;
} options;

#define AT(field) offsetof(options, field)
static const arg table[] = {
    {"MODEL", 0, ARG_PLACE, AT(model.path), NULL, NULL, 0, 0,
     "model folder, GGUF file, file that `sinter import` can read, or model in C"},
    {"FILE", 0, ARG_PLACE, AT(file), NULL, NULL, 0, 0, "text file, -: standard input"},
    {"tokenizer", 0, ARG_TEXT, AT(model.tokenizer), "PATH", NULL, 0, 0,
     "tokenizer file or folder; default: the model's"},
    CMD_CHECKPOINT_ARG(options),
    {"context", 0, ARG_INT, AT(model.context), "N", "0", 0, 1 << 24,
     "window length in tokens; 0: the model's context"},
    {"stride", 0, ARG_INT, AT(stride), "N", "0", 0, 1 << 24,
     "distance between window starts in tokens; 0: windows do not overlap"},
    {"limit", 0, ARG_INT, AT(limit), "N", "0", 0, INFINITY,
     "evaluate only the first N tokens; 0: all"},
    {"no-bos", 0, ARG_FLAG, AT(no_bos), NULL, NULL, 0, 0,
     "do not prepend the beginning-of-text token"},
    {"stats", 's', ARG_FLAG, AT(stats), NULL, NULL, 0, 0,
     "print times and rates to standard error"},
    CMD_PROFILE_ARG(options),
    CMD_COMPILE_ARGS(options),
    CMD_CHECK_NAN_ARG(options),
    {0},
};

static const arg_key keys[] = {
    {"tokens", "integer", "number of predicted tokens"},
    {"bytes", "integer", "bytes of the evaluated text"},
    {"loss", "number", "mean of -ln P of a token"},
    {"perplexity", "number", "e^loss"},
    {"bits_per_byte", "number?", "absent for models without a tokenizer"},
    {"seconds", "number", "time of the evaluation"},
    {"complete", "boolean", "false after Ctrl-C: of the first tokens only"},
    {0}};

static const arg_command command = {
    NAME,
    "evaluate loss and perplexity on a text",
    "The text is one sequence of tokens, split into windows. Every token except the first counts\n"
    "once. loss is the mean of -ln P(token | window before it), perplexity is e^loss, bits per "
    "byte\n"
    "is the summed loss over ln 2 and the number of bytes. With a stride smaller than the window,\n"
    "each token sees at least context - stride tokens before it. Prints one result per line:\n"
    "tokens, bytes, loss, perplexity, bits_per_byte.\n",
    table,
    .examples = "sinter eval MODEL text.txt --stats\n"
                "sinter eval MODEL text.txt --context 256 --stride 64 --json\n",
    .json = keys};

typedef struct score {
    double sum;     /* nats */
    int64_t tokens; /* number of predicted tokens */
    double seconds;
} score;

/* Splits ids[n] into windows: window w predicts ids[from + 1 .. from + len]; those that no earlier
 * window predicted count. */
static bool score_text(open_model *m, const options *o, const sn_ids *ids, score *s,
                       sn_error *err) {
    int64_t n = (int64_t)ids->count, window = m->model.context;
    int64_t stride = o->stride ? o->stride : window;
    if (stride > window)
        return sn_fail(
            err, SN_ERR_USAGE,
            "--stride %lld is longer than the window of %lld tokens: some tokens would be skipped",
            (long long)stride, (long long)window);
    float *loss = malloc(sizeof *loss * (size_t)window);
    if (!loss) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    screen_progress progress = {0};
    sn_screen_catch_stop();
    double start = sn_clock();
    int64_t done = 0; /* targets up to this index have been counted */
    bool ok = true;
    for (int64_t from = 0; ok && done < n - 1 && !sn_screen_stopped(); from += stride) {
        int64_t len = n - 1 - from < window ? n - 1 - from : window;
        ok = lm_loss(m, ids->data + from, ids->data + from + 1, len, loss, err);
        for (int64_t i = done - from; ok && i < len; i++) s->sum += loss[i];
        if (ok) done = from + len;
        char what[80];
        snprintf(what, sizeof what, "eval: loss %.4f, %.0f tokens/s, tokens", s->sum / (double)done,
                 (double)done / (sn_clock() - start));
        sn_screen_progress_of(&progress, what, (double)done, (double)(n - 1));
    }
    sn_screen_progress_end(&progress);
    s->tokens = done;
    s->seconds = sn_clock() - start;
    free(loss);
    return ok;
}

static bool count_bytes(const open_model *m, const sn_ids *ids, size_t all, bool cut, size_t *bytes,
                        sn_error *err) {
    *bytes = all;
    if (!cut || !m->io->tokenizer) return true;
    sn_bytes text = {0};
    bool ok = sn_tokenizer_decode(m->io->tokenizer, ids->data, ids->count, 0, &text, err);
    *bytes = text.size;
    sn_bytes_free(&text);
    return ok;
}

static bool eval(open_model *m, const options *o, sn_error *err) {
    size_t bytes = 0;
    sn_ids ids = {0};
    score s = {0};
    char *text = sn_text_read(o->file, &bytes, err);
    bool ok = text && lm_encode(m, text, bytes, !o->no_bos, &ids, err);
    free(text);
    bool cut = o->limit && (int64_t)ids.count > o->limit;
    if (cut) ids.count = (size_t)o->limit;
    const int64_t all = (int64_t)ids.count - 1;
    if (ok && ids.count < 2)
        ok = sn_fail(err, SN_ERR_FILE, "%s: the text has fewer than 2 tokens: nothing to predict",
                     o->file);
    ok = ok && score_text(m, o, &ids, &s, err);
    const bool complete = s.tokens == all;
    if (ok && !complete) ids.count = (size_t)s.tokens + 1;
    ok = ok && count_bytes(m, &ids, bytes, cut || !complete, &bytes, err);
    sn_ids_free(&ids);
    if (!ok) return false;
    if (!s.tokens) return sn_screen_interrupted(err, "nothing was evaluated");
    double loss = s.sum / (double)s.tokens;
    if (isinf(loss))
        sn_screen_note(NAME, "the loss is infinite: --check-nan names the kernel that begins it");
    if (sn_screen()->json) {
        json_out j = sn_json_begin(stdout);
        sn_json_integer(&j, "tokens", s.tokens);
        sn_json_integer(&j, "bytes", (int64_t)bytes);
        sn_json_number(&j, "loss", loss);
        sn_json_number(&j, "perplexity", exp(loss));
        if (m->io->tokenizer) sn_json_number(&j, "bits_per_byte", s.sum / log(2) / (double)bytes);
        sn_json_number(&j, "seconds", s.seconds);
        sn_json_bool(&j, "complete", complete);
        sn_json_end(&j);
    } else
        printf(
            "tokens         %lld\nbytes          %zu\nloss           %.5f\nperplexity     %.4f\n",
            (long long)s.tokens, bytes, loss, exp(loss));
    if (m->io->tokenizer && !sn_screen()->json)
        printf("bits_per_byte  %.4f\n", s.sum / log(2) / (double)bytes);
    if (o->stats) {
        if (!sn_screen()->verbose) cmd_print_model(m);
        fprintf(stderr, "eval      %lld tokens in %.2f s: %.0f tokens/s\n", (long long)s.tokens,
                s.seconds, (double)s.tokens / s.seconds);
    }
    return complete || sn_screen_interrupted(err, "these are the first %lld of %lld tokens",
                                             (long long)s.tokens, (long long)all);
}

int cmd_eval(int argc, char **argv) {
    options o = {0};
    int code = sn_args_parse(&command, argc, argv, &o);
    if (code != ARGS_RUN) return code;
    o.model.preset = NULL;
    open_model *m = cmd_open(NAME, &o.model, &o.compile, (open_options){.entries = SN_LOSS}, &code);
    if (!m) return code;
    sn_error err = {0};
    sn_trace *trace = cmd_profile_begin(o.profile, m->session, &err);
    bool ok = !err.code && eval(m, &o, &err);
    ok = cmd_profile_end(o.profile, trace, &err) && ok;
    code = ok ? cmd_finish(NAME) : cmd_fail(NAME, &err);
    model_close(m);
    return code;
}
