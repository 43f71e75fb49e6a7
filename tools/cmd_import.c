/* cmd_import.c: `sinter import`: converts models of other formats to model folders. */
#include "tools/cmd.h"
#include "model/import/import.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "sinter import"

typedef struct options {
    const char *file, *output, *tokenizer, *config, *format;
    bool list;
} options;

#define AT(field) offsetof(options, field)
static const arg table[] = {
    {"FILE", 0, ARG_PLACE_OR_NONE, AT(file), NULL, NULL, 0, 0, "the model to import"},
    {"output", 'o', ARG_TEXT, AT(output), "DIR", NULL, 0, 0, "output folder"},
    {"tokenizer", 0, ARG_TEXT, AT(tokenizer), "FILE", NULL, 0, 0,
     "the model's tokenizer; default: looked for next to FILE"},
    {"config", 0, ARG_TEXT, AT(config), "FILE", NULL, 0, 0,
     "JSON file with keys to add to config.json, or to replace"},
    {"format", 0, ARG_TEXT, AT(format), "NAME", NULL, 0, 0, "format of FILE; default: detected"},
    {"list-formats", 0, ARG_FLAG, AT(list), NULL, NULL, 0, 0, "list the known formats"},
    {0},
};

static const arg_command command = {
    NAME, "convert a model of another format to a model folder",
    "A model folder holds config.json, model.safetensors and the tokenizer's files.\n"
    "\n  sinter import stories260K.bin -o stories260K\n",
    table};

int cmd_import(int argc, char **argv) {
    options o;
    int code = args_parse(&command, argc, argv, &o);
    if (code != ARGS_RUN) return code;
    if (o.list) {
        for (const import_format *f = import_formats; f->name; f++)
            printf("%-14s%s\n", f->name, f->what);
        return cmd_finish(NAME);
    }
    if (!o.file || !o.output) {
        fprintf(stderr, "%s: give %s\n(%s --help lists all options)\n", NAME,
                o.file ? "the output folder: -o DIR" : "the file to import", NAME);
        return EXIT_USAGE;
    }
    import_request r = {o.file, o.output, o.tokenizer, o.config};
    sn_error err = {0};
    if (!import_model(&r, o.format, &err)) return cmd_fail(NAME, &err);
    sn_model_dir *dir = sn_model_dir_open(o.output, &err);
    if (!dir) return cmd_fail(NAME, &err);
    fprintf(stderr, "%s: %zu tensors\n", o.output, sn_weights_count(dir->weights));
    sn_model_dir_close(dir);
    return EXIT_OK;
}
