/* cmd_translate.c: `sinter translate`: translates every line of the input with an encoder-decoder
 * [PH22 A15]. */
#include "model/commands/commands.h"
#include "model/translate.h"

#include <stdio.h>

#define NAME "sinter translate"

typedef struct options {
    cmd_model model;
    cmd_compile compile;
    seq2seq_choice pair;
    int64_t beams;
} options;

static const arg table[] = {
    CMD_MODEL_ARGS(options),
    SEQ2SEQ_ARGS(options),
    {"beams", 'b', ARG_INT, offsetof(options, beams), "N", "auto", 1, 1024,
     "number of beams, 1: greedy; auto: of generation_config.json, or 1"},
    CMD_COMPILE_ARGS(options),
    CMD_CHECK_NAN_ARG(options),
    {0},
};

static const arg_command command = {
    NAME,
    "translate lines of text with an encoder-decoder model",
    "Prints one line per input line. The encoder runs once per line; then tokens are chosen by "
    "beam\n"
    "search or sampling, until the model's end token. A model without a tokenizer reads and "
    "prints\n"
    "token ids.\n",
    table,
    .examples =
        "sinter translate examples/models/aren-transliteration/model.bin -p آتزمون --beams 4\n",
    .json = sn_seq2seq_keys};

int cmd_translate(int argc, char **argv) {
    options o = {0};
    int code = sn_args_parse(&command, argc, argv, &o);
    if (code != ARGS_RUN) return code;
    sn_error err = {0};
    if (o.pair.temperature > 0 && o.beams > 1) {
        sn_fail(&err, SN_ERR_USAGE, "--temperature samples tokens, --beams searches: choose one");
        return cmd_fail(NAME, &err);
    }
    if (o.beams < 0) o.beams = o.pair.temperature > 0; /* 0: of the folder */
    open_model *m =
        cmd_open(NAME, &o.model, &o.compile,
                 (open_options){.entries = SN_CACHED, .translates = true, .beams = o.beams}, &code);
    if (!m) return code;
    seq2seq_model p;
    seq2seq_totals totals = {0};
    bool ok = translate_model(m, &p, &err) &&
              sn_seq2seq_run(&p, m->io->source ? m->io->source : m->io->tokenizer, m->io->tokenizer,
                             &o.pair, &totals, &err);
    code = ok ? cmd_finish(NAME) : cmd_fail(NAME, &err);
    if (ok && o.pair.stats) {
        if (!sn_screen()->verbose) cmd_print_model(m);
        sn_seq2seq_print_totals(&totals);
        fprintf(stderr, "recompilations %d\n", sn_program_stats(m->program).recompilations);
    }
    model_close(m);
    return code;
}
