/* cmd_translate.c: `sinter translate`: every line of the input through an encoder-decoder
 * [PH22 A15]. */
#include "tools/cmd.h"
#include "tools/translate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "sinter translate"

typedef struct options {
    cmd_model model;
    cmd_compile compile;
    const char *text, *file;
    int64_t tokens, beams, top_k, seed;
    double penalty, temperature, top_p;
    bool print_ids, scores, stats;
} options;

#define AT(field) offsetof(options, field)
static const arg table[] = {
    CMD_MODEL_ARGS(options),
    {"prompt", 'p', ARG_TEXT, AT(text), "TEXT", NULL, 0, 0, "what to translate"},
    {"file", 'f', ARG_TEXT, AT(file), "FILE", NULL, 0, 0, "each line of a file, -: standard input"},
    {"tokens", 'n', ARG_INT, AT(tokens), "N", "0", 0, 1 << 24,
     "of a result at most; 0: all that the context has room for"},
    {"beams", 'b', ARG_INT, AT(beams), "N", "1", 1, 1024, "hypotheses of the search, 1: greedy"},
    {"length-penalty", 0, ARG_NUMBER, AT(penalty), "A", "0", 0, 10,
     "rank results by log P / tokens^A"},
    {"temperature", 0, ARG_NUMBER, AT(temperature), "T", "0", 0, INFINITY,
     "above 0: draw tokens instead of searching"},
    {"top-k", 0, ARG_INT, AT(top_k), "K", "0", 0, INT32_MAX,
     "draw of the K most likely, 0: of all"},
    {"top-p", 0, ARG_NUMBER, AT(top_p), "P", "1", 1e-6, 1,
     "draw of the likeliest with mass P together"},
    {"seed", 0, ARG_INT, AT(seed), "S", "0", 0, INFINITY, "the same seed gives the same text"},
    {"print-ids", 0, ARG_FLAG, AT(print_ids), NULL, NULL, 0, 0, "print token ids, not text"},
    {"scores", 0, ARG_FLAG, AT(scores), NULL, NULL, 0, 0,
     "the result's log-probability and a tab before it"},
    {"stats", 's', ARG_FLAG, AT(stats), NULL, NULL, 0, 0, "times and rates on standard error"},
    CMD_COMPILE_ARGS(options),
    {0},
};

static const arg_command command = {
    NAME, "translate lines of text with an encoder-decoder model",
    "Prints a line for every line. The encoder runs once a line; then tokens are chosen by beam\n"
    "search, or drawn, until the model's end token. A model without a tokenizer takes and prints\n"
    "token ids.\n"
    "\n  sinter translate examples/models/aren-transliteration/model.bin -p آتزمون --beams 4\n",
    table};

typedef struct job {
    lm *m;
    const options *o;
    sn_sample_options sample;
    translate_options how;
    int64_t lines, tokens;
    double seconds;
} job;

static bool print_result(const job *j, const sn_ids *ids, double log_p, sn_error *err) {
    sn_bytes text = {0};
    bool as_ids = j->o->print_ids || !j->m->tokenizer;
    if (!as_ids && !sn_tokenizer_decode(j->m->tokenizer, ids->data, ids->count, 0, &text, err))
        return false;
    if (j->o->scores) printf("%.6f\t", log_p);
    for (size_t i = 0; as_ids && i < ids->count; i++) printf(i ? " %d" : "%d", (int)ids->data[i]);
    printf("%s\n", text.data ? text.data : "");
    fflush(stdout);
    sn_bytes_free(&text);
    return true;
}

static bool do_line(job *j, const char *line, size_t size, sn_error *err) {
    sn_ids source = {0}, result = {0};
    double log_p = 0, start = cmd_now();
    bool ok = lm_encode_source(j->m, line, size, &source, err) &&
              translate(j->m, source.data, (int64_t)source.count, &j->how, &result, &log_p, err);
    j->seconds += cmd_now() - start;
    j->lines++;
    j->tokens += (int64_t)result.count;
    ok = ok && print_result(j, &result, log_p, err);
    sn_ids_free(&source);
    sn_ids_free(&result);
    return ok;
}

static bool do_text(job *j, const char *text, size_t size, sn_error *err) {
    for (size_t at = 0; at < size || (at == 0 && size == 0);) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t n = end ? (size_t)(end - text) - at : size - at;
        sn_error why = {0};
        if (!do_line(j, text + at, n, &why))
            return sn_fail(err, why.code, "line %lld: %s", (long long)j->lines, why.message);
        if (ferror(stdout) || !size) break;
        at += n + 1;
    }
    return true;
}

static bool run_job(job *j, sn_error *err) {
    const options *o = j->o;
    if (!o->text == !o->file)
        return sn_fail(err, SN_ERR_USAGE, "give the text with --prompt, or a file with --file");
    if (o->text) return do_text(j, o->text, strlen(o->text), err);
    size_t size;
    char *text = cmd_read_text(o->file, &size, err);
    bool ok = text && do_text(j, text, size, err);
    free(text);
    return ok;
}

int cmd_translate(int argc, char **argv) {
    options o = {0};
    int code = args_parse(&command, argc, argv, &o);
    if (code != ARGS_RUN) return code;
    sn_error err = {0};
    if (o.temperature > 0 && o.beams > 1) {
        sn_fail(&err, SN_ERR_USAGE, "--temperature draws tokens, --beams searches: choose one");
        return cmd_fail(NAME, &err);
    }
    job j = {.o = &o,
             .sample = {.temperature = (float)o.temperature,
                        .top_k = (int32_t)o.top_k,
                        .top_p = (float)o.top_p,
                        .seed = (uint64_t)o.seed}};
    j.how = (translate_options){.max_tokens = o.tokens,
                                .length_penalty = o.penalty,
                                .sample = o.temperature > 0 ? &j.sample : NULL};
    j.m = cmd_open_pair(NAME, &o.model, &o.compile, o.beams, &code);
    if (!j.m) return code;
    bool ok = run_job(&j, &err);
    code = ok ? cmd_finish(NAME) : cmd_fail(NAME, &err);
    if (ok && o.stats) {
        cmd_print_model(j.m);
        fprintf(stderr, "translate %lld lines, %lld tokens in %.2f ms: %.0f tokens/s\n",
                (long long)j.lines, (long long)j.tokens, j.seconds * 1e3,
                (double)j.tokens / j.seconds);
        fprintf(stderr, "recompilations %d\n", sn_program_stats(j.m->program).recompilations);
    }
    lm_close(j.m);
    return code;
}
