/* cmd_import.c: `sinter import`: converts models of other formats to model folders. */
#include "model/commands/commands.h"
#include "model/import/import.h"
#include "runtime/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "sinter import"

typedef struct options {
    const char *file, *output, *tokenizer, *config, *format;
    bool list, force;
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
    {"force", 0, ARG_FLAG, AT(force), NULL, NULL, 0, 0, "overwrite the model in DIR"},
    {"list-formats", 0, ARG_FLAG, AT(list), NULL, NULL, 0, 0, "list the known formats"},
    {0},
};

static const arg_key keys[] = {{"output", "text?", "the folder"},
                               {"tensors", "integer?", "number of tensors"},
                               {"bytes", "integer?", "their size"},
                               {"format", "text?", "with --list-formats: name of a format"},
                               {"what", "text?", "with --list-formats: what has it"},
                               {0}};

static const arg_command command = {
    NAME,
    "convert a model of another format to a model folder",
    "A model folder holds config.json, model.safetensors and the tokenizer's files.\n",
    table,
    .examples = "sinter import stories260K.bin -o stories260K\n"
                "sinter import gpt.onnx -o gpt\n",
    .json = keys};

static void print_format(const import_format *f) {
    if (!sn_screen()->json) {
        printf("%-14s%s\n", f->name, f->what);
        return;
    }
    json_out j = sn_json_begin(stdout);
    sn_json_text(&j, "format", f->name);
    sn_json_text(&j, "what", f->what);
    sn_json_end(&j);
}

static void show_writing(void *ctx, double done, double total) {
    sn_screen_progress_of(ctx, "writing", total > 0 ? 100 * done / total : 100, 100);
}

/* A model in the folder may be somebody's only copy. */
static bool check_output(const options *o, sn_error *err) {
    static const char *const files[] = {"config.json", "model.safetensors"};
    bool ok = true;
    for (size_t i = 0; ok && !o->force && i < sizeof files / sizeof *files; i++) {
        char *path = sn_path_join(o->output, files[i]);
        if (!path) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
        if (sn_file_exists(path))
            ok = sn_fail(err, SN_ERR_FILE,
                         "%s holds a model: %s exists. Choose another folder, or overwrite it with "
                         "--force",
                         o->output, files[i]);
        free(path);
    }
    return ok;
}

int cmd_import(int argc, char **argv) {
    options o;
    int code = sn_args_parse(&command, argc, argv, &o);
    if (code != ARGS_RUN) return code;
    if (o.list) {
        for (const import_format *f = import_formats; f->name; f++) print_format(f);
        return cmd_finish(NAME);
    }
    if (!o.file || !o.output) {
        sn_screen_error(NAME, "give %s\n(%s --help lists all options)\n",
                        o.file ? "the output folder: -o DIR" : "the file to import", NAME);
        return EXIT_USAGE;
    }
    sn_error err = {0};
    if (!check_output(&o, &err)) return cmd_fail(NAME, &err);
    screen_progress progress = {0};
    sn_weights_progress writing = {.advance = show_writing, .ctx = &progress};
    import_request r = {o.file, o.output, o.tokenizer, o.config, &writing};
    sn_screen_progress_show(&progress, "reading %s", o.file);
    bool ok = import_model(&r, o.format, &err);
    sn_screen_progress_end(&progress);
    if (!ok) return cmd_fail(NAME, &err);
    sn_model_dir *dir = sn_model_dir_open(o.output, &err);
    if (!dir) return cmd_fail(NAME, &err);
    size_t bytes = 0;
    for (size_t i = 0; i < sn_weights_count(dir->weights); i++)
        bytes += sn_weights_at(dir->weights, i)->bytes;
    sn_screen_say(NAME, "%s: %zu tensors", o.output, sn_weights_count(dir->weights));
    sn_screen_wrote(NAME, o.output);
    if (sn_screen()->json) {
        json_out j = sn_json_begin(stdout);
        sn_json_text(&j, "output", o.output);
        sn_json_integer(&j, "tensors", (int64_t)sn_weights_count(dir->weights));
        sn_json_integer(&j, "bytes", (int64_t)bytes);
        sn_json_end(&j);
    }
    sn_model_dir_close(dir);
    return cmd_finish(NAME);
}
