/* cmd_generate.c: `sinter generate`: runs a language model with the JIT; runtime/lm.h does the
 * work. */
#include "tools/cmd.h"
#include "model/lm_impl.h"
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
    CMD_MODEL_ARGS(options),   TEXT_ARGS(options),         CMD_PROFILE_ARG(options),
    CMD_COMPILE_ARGS(options), CMD_CHECK_NAN_ARG(options), {0},
};

static const arg_command command = {
    NAME,
    "continue a text with a language model",
    "Prints the prompt and its continuation. A model without a tokenizer reads and prints token\n"
    "ids. Stops at the model's end-of-text token, after N tokens, or when the context is full.\n"
    "\n"
    "With --batch N, each line of the prompt file is a prompt; N run at once. Text i is the one "
    "that\n"
    "-p with --seed S+i-1 gives alone.\n",
    table,
    .examples = "sinter generate MODEL -p \"Once upon a time\" --json\n"
                "sinter generate MODEL -p \"Once upon a time\" -n 200 --temperature 0 --stats\n",
    .json = text_keys};

int cmd_generate(int argc, char **argv) {
    options o = {0};
    int code = args_parse(&command, argc, argv, &o);
    if (code != ARGS_RUN) return code;
    sn_error err = {0};
    lm *m = cmd_open_rows(NAME, &o.model, &o.compile, text_sequences(&o.text), &code);
    if (!m) return code;
    sn_trace *trace = cmd_profile_begin(o.profile, m->session, &err);
    sn_lm *l = err.code ? NULL : lm_new(m, &err);
    bool ok = l && text_generate(NAME, l, &o.text, &err);
    ok = cmd_profile_end(o.profile, trace, &err) && ok;
    code = ok ? cmd_finish(NAME) : cmd_fail(NAME, &err);
    if (l && o.text.stats) {
        if (!screen()->verbose) cmd_print_model(m);
        text_print_times(l);
        fprintf(stderr, "recompilations %d\n", sn_program_stats(m->program).recompilations);
    }
    if (l)
        sn_lm_close(l);
    else
        lm_close(m);
    return code;
}
