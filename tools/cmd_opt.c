/* cmd_opt.c: `sinter opt`: runs passes on a graph in text form. */
#include "tools/cmd.h"
#include "passes/opt.h"
#include "passes/passes.h"

#include <stdio.h>
#include <stdlib.h>

#define NAME "sinter opt"

typedef struct options {
    const char *file, *passes, *precision;
    int64_t level;
    bool list;
} options;

#define AT(field) offsetof(options, field)
static const arg table[] = {
    {"FILE", 0, ARG_PLACE_OR_NONE, AT(file), NULL, NULL, 0, 0,
     "graph in text form (.sn); default: standard input"},
    {"passes", 0, ARG_TEXT, AT(passes), "A,B", NULL, 0, 0, "passes to run; default: none"},
    {"level", 0, ARG_INT, AT(level), "0..4", "4", 0, 4, "fusion level"},
    {"precision", 0, ARG_CHOICE, AT(precision), "f32|bf16", "f32", 0, 0,
     "precision of activations that the pass store_bf16 stores for the backward part"},
    {"list-passes", 0, ARG_FLAG, AT(list), NULL, NULL, 0, 0, "list all passes in order"},
    {0},
};

static const arg_key keys[] = {
    {"graph", "text?", "the graph after the passes, in text form"},
    {"pass", "text?", "with --list-passes: its name"},
    {"level", "integer?", "with --list-passes: the fusion level from which on it runs"},
    {"purpose", "text?", "with --list-passes: what it does"},
    {0}};

static const arg_command command = {
    NAME,
    "run passes on a graph in text form and print the result",
    "The text is read without folding. The graph is verified after every pass.\n",
    table,
    .examples = "sinter opt --passes=simplify,raise graph.sn\n",
    .json = keys};

int cmd_opt(int argc, char **argv) {
    options o;
    int code = sn_args_parse(&command, argc, argv, &o);
    if (code != ARGS_RUN) return code;
    for (int i = 0; o.list && i < sn_pass_count; i++) {
        const sn_stage *pass = &sn_stages[sn_pass_table[i].stage];
        if (!sn_screen()->json) {
            printf("%-16s level %d  %s\n", pass->name, pass->level, pass->purpose);
            continue;
        }
        json_out j = sn_json_begin(stdout);
        sn_json_text(&j, "pass", pass->name);
        sn_json_integer(&j, "level", pass->level);
        sn_json_text(&j, "purpose", pass->purpose);
        sn_json_end(&j);
    }
    if (o.list) return cmd_finish(NAME);
    sn_error err = {0};
    const char *file = o.file ? o.file : "-";
    size_t size, n = 0;
    char *text = sn_text_read(file, &size, &err), *graph = NULL;
    FILE *out = sn_screen()->json ? open_memstream(&graph, &n) : stdout;
    bool ok = text && (out || sn_fail(&err, SN_ERR_MEMORY, "out of memory")) &&
              sn_opt(text, file, o.passes, (int)o.level, o.precision, out, &err);
    if (out && out != stdout) fclose(out);
    if (ok && sn_screen()->json) {
        json_out j = sn_json_begin(stdout);
        sn_json_bytes(&j, "graph", graph ? graph : "", n);
        sn_json_end(&j);
    }
    free(graph);
    free(text);
    return ok ? cmd_finish(NAME) : cmd_fail(NAME, &err);
}
