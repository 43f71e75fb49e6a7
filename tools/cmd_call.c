/* cmd_call.c: `sinter call`: runs an entry once on given arrays; prints or writes its outputs, and their
 * gradients. */
#include "frontend/gradients.h"
#include "tools/cmd.h"
#include "driver/npz.h"
#include "runtime/file.h"
#include "runtime/str.h"
#include "tools/inspect/summary.h"
#include "tools/run/results.h"
#include "tools/run/values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "sinter call"

typedef struct options {
    cmd_model model;
    cmd_compile compile;
    arg_texts input;
    const char *entry, *sizes, *output, *gradient, *loss;
    int64_t seed;
} options;

#define AT(field) offsetof(options, field)
static const arg table[] = {
    CMD_MODEL_ARGS(options),
    {"entry", 0, ARG_TEXT, AT(entry), "NAME", NULL, 0, 0,
     "the entry to run; default: the only one, or forward"},
    {"input", 'i', ARG_TEXTS, AT(input), "NAME=VALUE", NULL, 0, 0,
     "an input or a parameter: FILE.npy, FILE.npz[:ARRAY], random, LO..HI, a number; FILE.npz "
     "alone gives all of its arrays; default: random"},
    {"sizes", 0, ARG_TEXT, AT(sizes), "B=2,T=13", NULL, 0, 0,
     "sizes that no given array determines; default: one sequence of 13"},
    {"output", 'o', ARG_TEXT, AT(output), "FILE.npz|DIR", NULL, 0, 0,
     "write outputs, states and gradients to an archive, or each to DIR/NAME.npy"},
    {"gradient", 0, ARG_TEXT, AT(gradient), "NAME|all", NULL, 0, 0,
     "also gradients with respect to a parameter or input, or to all, as gradient.NAME"},
    {"loss", 0, ARG_TEXT, AT(loss), "OUTPUT", NULL, 0, 0,
     "with --gradient: of the sum of this output; default: of the sum of all float outputs"},
    {"seed", 0, ARG_INT, AT(seed), "N", "1", 0, INT64_MAX, "of random parameters"},
    CMD_COMPILE_ARGS(options),
    CMD_CHECK_NAN_ARG(options),
    {0},
};

static const arg_key keys[] = {
    {"name", "text", "a line per output, state, and gradient (gradient.NAME)"},
    {"shape", "list", "its sizes"},
    {"mean", "number", "of its elements"},
    {"deviation", "number", "likewise"},
    {"min", "number", "likewise"},
    {"max", "number", "likewise"},
    {0}};

static const arg_command command = {
    NAME,
    "run an entry of a model on given arrays, and write outputs and gradients",
    "Arrays are converted: floats to floats, integers to integers that hold them. Sizes follow "
    "from\n"
    "the arrays. Parameters come from the model's weights, from --checkpoint or from --input; "
    "others\n"
    "are random. States are zero before the run.\n",
    table,
    .examples =
        "sinter call mine.c --entry forward -i tokens=tokens.npy -o logits.npz\n"
        "sinter run mine.c call -i x=x.npz:features -i temperature=0.7 --gradient x -o out/\n"
        "sinter call MODEL -i tokens=0..511 --sizes T=5\n",
    .json = keys};

static const sn_entry *choose_entry(sn_module *m, const char *name, sn_error *err) {
    const sn_entry *e = name                     ? sn_entry_get(m, name)
                        : sn_entry_count(m) == 1 ? sn_entry_at(m, 0)
                                                 : sn_entry_get(m, "forward");
    if (!e) cmd_has_entry(m, name ? name : "forward", err);
    return e;
}

/* bf16, which .npy files do not have, as f32. */
static bool widen(run_tensor *t, sn_dtype *type, sn_error *err) {
    *type = (sn_dtype)t->node->dtype;
    if (*type != SN_BF16) return true;
    float *wide = malloc(sizeof *wide * (size_t)t->n + 8);
    if (!wide) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    for (int64_t i = 0; i < t->n; i++) wide[i] = (float)sn_dtype_load(SN_BF16, t->data, i);
    free(t->data);
    t->data = wide;
    *type = SN_F32;
    return true;
}

static bool write_all(const char *path, run_tensor **t, const sn_dtype *type, int n,
                      sn_error *err) {
    bool archive = sn_ends_with(path, ".npz"), ok = true;
    npz_array *list = calloc((size_t)n + 1, sizeof *list);
    if (!list) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    if (!archive) ok = sn_folder_make(path, err);
    for (int i = 0; ok && i < n; i++) {
        const char *name = t[i]->name;
        list[i] = (npz_array){name,        type[i],    t[i]->node->rank,
                              t[i]->shape, t[i]->data, (size_t)t[i]->n * sn_dtype_size(type[i])};
        if (archive) continue;
        char file[512];
        snprintf(file, sizeof file, "%.500s.npy", name);
        for (char *p = file; *p; p++)
            if (*p == '/') *p = '_';
        char *full = sn_path_join(path, file);
        ok = full ? sn_npy_save(full, type[i], t[i]->node->rank, t[i]->shape, t[i]->data, err)
                  : sn_fail(err, SN_ERR_MEMORY, "out of memory");
        free(full);
    }
    ok = ok && (!archive || npz_write(path, list, n, err));
    free(list);
    if (ok) sn_screen_wrote(NAME, path);
    return ok;
}

static bool show(const options *o, run_results *results, int n_result, sn_error *err) {
    int n = 0, k = 0;
    for (int i = 0; i < n_result; i++) n += results[i].n;
    run_tensor **t = calloc((size_t)n + 1, sizeof *t);
    sn_dtype *type = calloc((size_t)n + 1, sizeof *type);
    bool ok = (t && type) || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    for (int i = 0; ok && i < n_result; i++)
        for (int q = 0; ok && q < results[i].n; q++) {
            t[k] = &results[i].list[q];
            ok = widen(t[k], &type[k], err);
            k++;
        }
    for (int i = 0; ok && i < n; i++)
        inspect_summarise(t[i]->name, type[i], t[i]->node->rank, t[i]->shape, t[i]->data);
    ok = ok && (!o->output || write_all(o->output, t, type, n, err));
    free(type);
    free(t);
    return ok;
}

/* After a run that failed, perhaps because of a size that nobody gave. */
static bool note_sizes(const sn_module *m, const inspect_inputs *in, const sn_error *err) {
    char text[256] = "";
    for (int i = 0; i < sn_symbol_count(m); i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s=%lld", i ? "," : "",
                 sn_symbol_at(m, i)->name, (long long)in->symbol[i]);
    }
    if (err->code == SN_ERR_RANGE && *text)
        sn_screen_note(NAME, "sizes of the run: %s; --sizes sets those that no array determines",
                       text);
    return false;
}

static bool call(const options *o, open_model *m, run_given *given, sn_error *err) {
    static const char gradient_entry[] = "gradient";
    sn_module *mod = m->model.module;
    run_params params = {0};
    inspect_inputs in = {.n = 0};
    run_results results[2] = {{0}, {0}};
    char sizes[512];
    int64_t vocab = m->model.labels ? m->model.labels : m->model.vocab;
    const char *wrt = o->gradient && strcmp(o->gradient, "all") != 0 ? o->gradient : NULL;
    const sn_entry *e = choose_entry(mod, o->entry, err);
    if (!e) return false;
    const char *name = e->name;
    if (o->gradient) {
        int n = sn_entry_gradient(mod, e, gradient_entry, o->loss, wrt, false, NULL, NULL, err);
        if (n < 0 && !err->code)
            sn_fail(err, SN_ERR_USAGE, "entry '%s' has nothing to differentiate", name);
        if (n < 0) return false;
    }
    sn_options compile = cmd_options(&o->compile);
    if (!cmd_choose_compute(NAME, &compile, NULL, err)) return false;
    bool ok = run_params_make(&params, m, given, (uint64_t)o->seed, err);
    sn_program *p = ok ? sn_compile(mod, &compile, err) : NULL;
    sn_session *s = NULL;
    e = sn_entry_get(mod, name); /* compiling makes the entries anew */
    s = p ? sn_session_new_arrays(p, params.list, params.n, err) : NULL;
    ok = s && run_sizes(mod, e, given, 13, 1, false, o->sizes, sizes, sizeof sizes, err) &&
         run_inputs_make(&in, p, name, sizes, given, vocab, err) &&
         run_given_used(given, mod, m->model.type ? m->model.type : "the model", NAME, err) &&
         (run_entry(s, mod, e, &in, false, &results[0], err) || note_sizes(mod, &in, err));
    if (ok && o->gradient)
        ok = run_entry(s, mod, sn_entry_get(mod, gradient_entry), &in, false, &results[1], err);
    ok = ok && show(o, results, o->gradient ? 2 : 1, err);
    run_results_free(&results[0]);
    run_results_free(&results[1]);
    inspect_inputs_free(&in);
    sn_session_free(s);
    sn_program_free(p);
    run_params_free(&params);
    return ok;
}

int cmd_call(int argc, char **argv) {
    options o = {0};
    int code = sn_args_parse(&command, argc, argv, &o);
    if (code != ARGS_RUN) return code;
    sn_error err = {0};
    run_given given;
    bool ok = run_given_read(&o.input, &given, &err);
    open_model *m = NULL;
    if (ok) {
        open_options lo = {.entries = SN_ALL_ENTRIES, .any_model = true, .build_only = true};
        lo.compile = cmd_options(&o.compile);
        m = cmd_open_model(NAME, &o.model, lo, &err);
    }
    ok = m && call(&o, m, &given, &err);
    code = ok ? cmd_finish(NAME) : cmd_fail(NAME, &err);
    model_close(m);
    run_given_free(&given);
    return code;
}
