/* cmd_generate.c: `sinter generate`: runs the prompt at once, then token by token with the caches,
 * and prints the text as it comes [PH22 A14]. */
#include "tools/cmd.h"
#include "runtime/sample.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "sinter generate"

typedef struct options {
    cmd_model model;
    cmd_compile compile;
    const char *prompt, *prompt_file, *ids, *profile;
    int64_t tokens, top_k, seed;
    double temperature, top_p;
    bool print_ids, ignore_eos, stats;
} options;

#define AT(field) offsetof(options, field)
static const arg table[] = {
    CMD_MODEL_ARGS(options),
    {"prompt", 'p', ARG_TEXT, AT(prompt), "TEXT", NULL, 0, 0, "the beginning to continue"},
    {"prompt-file", 'f', ARG_TEXT, AT(prompt_file), "FILE", NULL, 0, 0,
     "the same from a file, -: standard input"},
    {"prompt-ids", 0, ARG_TEXT, AT(ids), "IDS", NULL, 0, 0, "the same as token ids: \"1 403 407\""},
    {"tokens", 'n', ARG_INT, AT(tokens), "N", "256", 0, 1 << 30, "how many to generate at most"},
    {"temperature", 0, ARG_NUMBER, AT(temperature), "T", "1", 0, INFINITY,
     "0: always the most likely token, inf: uniform"},
    {"top-k", 0, ARG_INT, AT(top_k), "K", "0", 0, INT32_MAX,
     "of the K most likely ones, 0: of all"},
    {"top-p", 0, ARG_NUMBER, AT(top_p), "P", "1", 1e-6, 1, "of the likeliest with mass P together"},
    {"seed", 0, ARG_INT, AT(seed), "S", "0", 0, INFINITY, "the same seed gives the same text"},
    {"ignore-eos", 0, ARG_FLAG, AT(ignore_eos), NULL, NULL, 0, 0,
     "go on after an end-of-text token"},
    {"print-ids", 0, ARG_FLAG, AT(print_ids), NULL, NULL, 0, 0, "print token ids, not text"},
    {"stats", 's', ARG_FLAG, AT(stats), NULL, NULL, 0, 0, "times and rates on standard error"},
    CMD_PROFILE_ARG(options),
    CMD_COMPILE_ARGS(options),
    {0},
};

static const arg_command command = {
    NAME, "continue a text with a language model",
    "Prints the prompt and what follows it. A model without a tokenizer takes and prints token\n"
    "ids. Ends at the model's end-of-text token, after N tokens, or when the context is full.\n"
    "\n  sinter generate MODEL -p \"Once upon a time\" -n 200 --temperature 0 --stats\n",
    table};

typedef struct run {
    lm *m;
    const options *o;
    sn_sampler *sampler;
    sn_ids ids; /* the prompt */
    sn_text_stream stream;
    sn_bytes piece;
    bool first;
    double prefill, decode; /* seconds */
    int64_t made;
} run;

/* ---- the prompt ---- */

static bool read_prompt(run *r, sn_error *err) {
    const options *o = r->o;
    if (!!o->prompt + !!o->prompt_file + !!o->ids > 1)
        return sn_fail(err, SN_ERR_USAGE,
                       "--prompt, --prompt-file and --prompt-ids exclude each other");
    lm numbers = {0}; /* without a tokenizer: text is ids */
    if (o->ids) return lm_encode(&numbers, o->ids, strlen(o->ids), false, &r->ids, err);
    size_t size = 0;
    char *text = o->prompt_file ? cmd_read_text(o->prompt_file, &size, err)
                                : strdup(o->prompt ? o->prompt : "");
    if (!text) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    if (!o->prompt_file) size = strlen(text);
    bool ok = lm_encode(r->m, text, size, true, &r->ids, err);
    free(text);
    return ok;
}

static bool check_prompt(const run *r, sn_error *err) {
    long long n = (long long)r->ids.count, room = (long long)r->m->model.context;
    if (!n)
        return sn_fail(err, SN_ERR_USAGE,
                       "the prompt is empty and this model has no token to begin with; give "
                       "--prompt or --prompt-ids");
    if (n > room)
        return sn_fail(err, SN_ERR_RANGE,
                       "the prompt has %lld tokens, the context has room for %lld: shorten it", n,
                       room);
    return true;
}

/* ---- output ---- */

static bool show(run *r, int32_t id, sn_error *err) {
    if (r->o->print_ids || !r->m->tokenizer) {
        printf(r->first ? "%d" : " %d", (int)id);
        r->first = false;
        return true;
    }
    size_t size;
    if (!sn_tokenizer_text(r->m->tokenizer, id, &size)) {
        printf("<%d>", (int)id); /* vocabularies padded to a round size have such ids */
        return true;
    }
    r->piece.size = 0;
    if (!sn_text_stream_next(&r->stream, id, &r->piece, err)) return false;
    if (r->piece.size) fwrite(r->piece.data, 1, r->piece.size, stdout);
    return true;
}

static bool is_end(const run *r, int32_t id) {
    const sn_tokenizer *t = r->m->tokenizer;
    return t && !r->o->ignore_eos &&
           (id == sn_tokenizer_special(t, SN_TOKEN_EOS) ||
            id == sn_tokenizer_special(t, SN_TOKEN_BOS));
}

/* ---- the loop ---- */

static bool decode(run *r, sn_error *err) {
    while (r->made < r->o->tokens) {
        int32_t id = sn_sampler_next(r->sampler, r->m->logits, err);
        if (id < 0) return false;
        r->made++;
        if (is_end(r, id)) return true;
        if (!show(r, id, err)) return false;
        fflush(stdout);
        if (ferror(stdout)) return true; /* reported at the end */
        if (r->made == r->o->tokens) return true;
        if (r->m->past == r->m->model.context) {
            fprintf(stderr, "\n" NAME ": note: the context of %lld tokens is full\n",
                    (long long)r->m->model.context);
            return true;
        }
        double start = cmd_now();
        if (!lm_feed(r->m, &id, 1, err)) return false;
        r->decode += cmd_now() - start;
    }
    return true;
}

static bool generate(run *r, sn_error *err) {
    if (!read_prompt(r, err) || !check_prompt(r, err)) return false;
    double start = cmd_now();
    if (!lm_feed(r->m, r->ids.data, (int64_t)r->ids.count, err)) return false;
    r->prefill = cmd_now() - start;
    for (size_t i = 0; i < r->ids.count; i++)
        if (!show(r, r->ids.data[i], err)) return false;
    bool ok = decode(r, err);
    putchar('\n');
    return ok;
}

static void print_stats(const run *r) {
    size_t n = r->ids.count;
    int64_t steps = r->m->past - (int64_t)n;
    cmd_print_model(r->m);
    fprintf(stderr, "prefill   %zu tokens in %.2f ms: %.0f tokens/s\n", n, r->prefill * 1e3,
            (double)n / r->prefill);
    if (steps)
        fprintf(stderr, "decode    %lld tokens in %.2f ms: %.0f tokens/s\n", (long long)steps,
                r->decode * 1e3, (double)steps / r->decode);
    fprintf(stderr, "recompilations %d\n", sn_program_stats(r->m->program).recompilations);
}

static sn_sampler *make_sampler(const options *o, const lm *m, sn_error *err) {
    sn_sample_options so = {.temperature = (float)o->temperature,
                            .top_k = (int32_t)o->top_k,
                            .top_p = (float)o->top_p,
                            .seed = (uint64_t)o->seed};
    return sn_sampler_new(&so, (size_t)m->model.vocab, err);
}

int cmd_generate(int argc, char **argv) {
    options o = {0};
    int code = args_parse(&command, argc, argv, &o);
    if (code != ARGS_RUN) return code;
    run r = {.o = &o, .first = true};
    sn_error err = {0};
    r.m = cmd_open(NAME, &o.model, &o.compile, SN_CACHED, true, &code);
    if (!r.m) return code;
    r.sampler = make_sampler(&o, r.m, &err);
    if (r.m->tokenizer) r.stream = sn_text_stream_begin(r.m->tokenizer, 0);
    sn_trace *trace = cmd_profile_begin(o.profile, r.m->session, &err);
    bool ok = !err.code && r.sampler && generate(&r, &err);
    ok = cmd_profile_end(o.profile, trace, &err) && ok;
    code = ok ? cmd_finish(NAME) : cmd_fail(NAME, &err);
    if (ok && o.stats) print_stats(&r);
    sn_sampler_free(r.sampler);
    sn_ids_free(&r.ids);
    sn_bytes_free(&r.piece);
    lm_close(r.m);
    return code;
}
