/* cmd_generate.c: `sinter generate`: runs a language model with the JIT; the generation loop is in
 * text_gen.c. */
#include "tools/cmd.h"
#include "runtime/cli/text_gen.h"

#include <stdio.h>

#define NAME "sinter generate"

typedef struct options {
    cmd_model model;
    cmd_compile compile;
    text_options text;
    const char *profile;
} options;

static const arg table[] = {
    CMD_MODEL_ARGS(options),
    TEXT_ARGS(options),
    CMD_PROFILE_ARG(options),
    CMD_COMPILE_ARGS(options),
    {0},
};

static const arg_command command = {
    NAME, "continue a text with a language model",
    "Prints the prompt and its continuation. A model without a tokenizer reads and prints "
    "token\nids. Stops at the model's end-of-text token, after N tokens, or when the context is "
    "full.\n\n  sinter generate MODEL -p \"Once upon a time\" -n 200 --temperature 0 --stats\n",
    table};

static const float *feed(void *model, const int32_t *ids, int64_t n, sn_error *err) {
    lm *m = model;
    return lm_feed(m, ids, n, err) ? m->logits : NULL;
}

int cmd_generate(int argc, char **argv) {
    options o = {0};
    int code = args_parse(&command, argc, argv, &o);
    if (code != ARGS_RUN) return code;
    sn_error err = {0};
    lm *m = cmd_open(NAME, &o.model, &o.compile, SN_CACHED, true, &code);
    if (!m) return code;
    text_times times = {0};
    const text_model t = {.model = m,
                          .feed = feed,
                          .vocab = m->model.vocab,
                          .context = m->model.context,
                          .tokenizer = m->tokenizer,
                          .eos = m->eos,
                          .n_eos = m->n_eos,
                          .no_bos = !lm_begins_with_bos(m),
                          .folder = m->dir ? m->dir->path : NULL};
    sn_trace *trace = cmd_profile_begin(o.profile, m->session, &err);
    bool ok = !err.code && text_generate(NAME, &t, &o.text, &times, &err);
    ok = cmd_profile_end(o.profile, trace, &err) && ok;
    code = ok ? cmd_finish(NAME) : cmd_fail(NAME, &err);
    if (ok && o.text.stats) {
        cmd_print_model(m);
        text_print_times(&times);
        fprintf(stderr, "recompilations %d\n", sn_program_stats(m->program).recompilations);
    }
    lm_close(m);
    return code;
}
