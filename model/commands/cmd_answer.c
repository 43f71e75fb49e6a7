/* cmd_answer.c: `sinter answer`: finds the answer to a question in a text. */
#include "model/commands/commands.h"
#include "model/answers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "sinter answer"

typedef struct options {
    cmd_model model;
    cmd_compile compile;
    const char *question, *text, *file;
    int64_t top, longest;
} options;

#define AT(field) offsetof(options, field)
static const arg table[] = {
    CMD_MODEL_ARGS(options),
    {"question", 'q', ARG_TEXT, AT(question), "TEXT", NULL, 0, 0, "the question"},
    {"prompt", 'p', ARG_TEXT, AT(text), "TEXT", NULL, 0, 0, "the text that holds the answer"},
    {"file", 'f', ARG_TEXT, AT(file), "FILE", NULL, 0, 0, "the same, a file; -: standard input"},
    {"top", 'n', ARG_INT, AT(top), "N", "1", 1, 100, "number of answers"},
    {"longest", 0, ARG_INT, AT(longest), "N", "15", 1, 1 << 20, "tokens of an answer, at most"},
    CMD_COMPILE_ARGS(options),
    CMD_CHECK_NAN_ARG(options),
    {0},
};

static const arg_key keys[] = {{"p", "number", "probability of the answer"},
                               {"begin", "integer", "its first byte in the text"},
                               {"end", "integer", "byte after its last"},
                               {"text", "text", "these bytes"},
                               {0}};

static const arg_command command = {
    NAME,
    "find the answer to a question in a text",
    "Prints a line for each answer, the most likely one first: its probability, bytes BEGIN..END "
    "of\n"
    "the text, and these bytes. A text that the model cannot read at once is read in parts that\n"
    "overlap.\n",
    table,
    .examples = "sinter answer MODEL -q \"Where is the cat?\" -p \"The cat sat on the mat.\"\n",
    .json = keys};

static bool print_answers(open_model *m, const options *o, const char *text, size_t size,
                          sn_error *err) {
    text_answer *list = calloc((size_t)o->top, sizeof *list);
    int64_t n = 0;
    bool ok = (list || sn_fail(err, SN_ERR_MEMORY, "out of memory")) &&
              encoder_answers(m, o->question, text, size, o->longest, o->top, list, &n, err);
    for (int64_t i = 0; i < n && sn_screen()->json; i++) {
        json_out j = sn_json_begin(stdout);
        sn_json_number(&j, "p", list[i].p);
        sn_json_integer(&j, "begin", (int64_t)list[i].begin);
        sn_json_integer(&j, "end", (int64_t)list[i].end);
        sn_json_bytes(&j, "text", text + list[i].begin, list[i].end - list[i].begin);
        sn_json_end(&j);
    }
    for (int64_t i = 0; i < n && !sn_screen()->json; i++)
        printf("%.5f  %zu..%zu  %.*s\n", list[i].p, list[i].begin, list[i].end,
               (int)(list[i].end - list[i].begin), text + list[i].begin);
    free(list);
    return ok;
}

int cmd_answer(int argc, char **argv) {
    options o = {0};
    int code = sn_args_parse(&command, argc, argv, &o);
    if (code != ARGS_RUN) return code;
    sn_error err = {0};
    if (!o.question || !o.text == !o.file) {
        sn_fail(&err, SN_ERR_USAGE, "give a --question, and the text by --prompt or --file");
        return cmd_fail(NAME, &err);
    }
    size_t size = o.text ? strlen(o.text) : 0;
    char *file = o.file ? sn_text_read(o.file, &size, &err) : NULL;
    if (o.file && !file) return cmd_fail(NAME, &err);
    open_model *m = cmd_open(NAME, &o.model, &o.compile, CMD_ENCODER(SN_FORWARD, "forward"), &code);
    if (m) {
        bool ok = print_answers(m, &o, o.text ? o.text : file, size, &err);
        code = ok ? cmd_finish(NAME) : cmd_fail(NAME, &err);
    }
    free(file);
    model_close(m);
    return code;
}
