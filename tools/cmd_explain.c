/* cmd_explain.c: `sinter explain`: the kernels of a compiled model, and what prevented further
 * fusion. */
#include "tools/cmd.h"
#include "ir/ir.h"
#include "passes/stages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "sinter explain"

typedef struct options {
    cmd_model model;
    cmd_compile compile;
    const char *entry;
    bool train, stages;
} options;

static const arg table[] = {
    CMD_MODEL_ARGS(options),
    {"entry", 'e', ARG_TEXT, offsetof(options, entry), "NAME", NULL, 0, 0,
     "only this entry: forward, loss, prefill, decode, train_step"},
    {"training", 0, ARG_FLAG, offsetof(options, train), NULL, NULL, 0, 0,
     "the training entries, with AdamW, instead of the others"},
    {"stages", 0, ARG_FLAG, offsetof(options, stages), NULL, NULL, 0, 0,
     "list the stages of a compilation in order: level, purpose, file and function"},
    CMD_COMPILE_ARGS(options),
    {0},
};

static const arg_command command = {
    NAME, "show the kernel of every operation, what was fused, and what was not",
    "MODEL may also be a graph in text form (.sn). Each line is a kernel call: its number, "
    "family,\nresult, and operations (prologue and epilogue: fused into a product), followed by "
    "the source\nline it came from. Remarks of the passes are listed at the end.\n",
    table};

static bool is_text(const char *path) {
    size_t n = path ? strlen(path) : 0;
    return n > 3 && !strcmp(path + n - 3, ".sn");
}

static bool explain(sn_program *p, sn_module *m, const char *entry, sn_error *err) {
    if (entry && !sn_entry_get(m, entry)) {
        char names[160] = "";
        size_t n = 0;
        for (int i = 0; i < sn_entry_count(m) && n < sizeof names; i++)
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "",
                                  sn_entry_at(m, i)->name);
        return sn_fail(err, SN_ERR_USAGE, "there is no entry '%s'; there are: %s", entry, names);
    }
    sn_program_explain(p, entry, stdout);
    return true;
}

static int explain_text(const options *o) {
    sn_error err = {0};
    size_t size;
    char *text = cmd_read_text(o->model.path, &size, &err);
    sn_module *m = text ? sn_parse(text, o->model.path, false, &err) : NULL;
    sn_options compile = cmd_options(&o->compile);
    sn_program *p = m ? sn_compile(m, &compile, &err) : NULL;
    bool ok = p && explain(p, m, o->entry, &err);
    sn_program_free(p);
    sn_module_free(m);
    free(text);
    return ok ? cmd_finish(NAME) : cmd_fail(NAME, &err);
}

int cmd_explain(int argc, char **argv) {
    options o = {0};
    int code = args_parse(&command, argc, argv, &o);
    if (code != ARGS_RUN) return code;
    if (o.stages) {
        sn_stages_print(stdout);
        return cmd_finish(NAME);
    }
    if (is_text(o.model.path)) return explain_text(&o);
    sn_error err = {0};
    int entries = o.train ? SN_LOSS | SN_TRAIN : SN_ALL_ENTRIES;
    lm *m = cmd_open(NAME, &o.model, &o.compile, entries, false, &code);
    if (!m) return code;
    bool ok = explain(m->program, m->model.module, o.entry, &err);
    code = ok ? cmd_finish(NAME) : cmd_fail(NAME, &err);
    lm_close(m);
    return code;
}
