/* cmd_report.c: `sinter report`: one page about a compiled model: graph, kernels, levels, timeline,
 * memory. */
#include "tools/cmd.h"
#include "bench/probe.h"
#include "codegen/program/program.h"
#include "runtime/file.h"
#include "runtime/cli/screen.h"
#include "runtime/str.h"
#include "runtime/threads.h"
#include "tools/inspect/report_errors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "sinter report"

typedef struct options {
    cmd_model model;
    cmd_compile compile;
    const char *entry, *sizes, *output, *levels;
    int64_t evaluate;
    bool train, json;
} options;

static const arg table[] = {
    CMD_MODEL_ARGS(options),
    {"output", 'o', ARG_TEXT, offsetof(options, output), "FILE", "report.html", 0, 0,
     "the page to write; -: standard output"},
    {"json", 0, ARG_FLAG, offsetof(options, json), NULL, NULL, 0, 0,
     "write the data alone, as JSON (docs/report.md describes it)"},
    {"entry", 'e', ARG_TEXT, offsetof(options, entry), "NAME", NULL, 0, 0,
     "only this entry: forward, loss, prefill, decode, train_step"},
    {"training", 0, ARG_FLAG, offsetof(options, train), NULL, NULL, 0, 0,
     "the training entries, with AdamW, instead of the others"},
    {"sizes", 0, ARG_TEXT, offsetof(options, sizes), "B=1,T=256", NULL, 0, 0,
     "sizes for costs and runs; default: 1 for B, for others 256 or half of the maximum"},
    {"levels", 0, ARG_TEXT, offsetof(options, levels), "A,B", "0,1,2,3,4", 0, 0,
     "fusion levels to compare --level with; none: only that one"},
    {"evaluate", 0, ARG_SIZE, offsetof(options, evaluate), "N", "400M", 0, 1e15,
     "errors: most multiplications for which the evaluator in double precision is asked; 0: none"},
    CMD_COMPILE_ARGS(options),
    {0},
};

static const arg_command command = {
    NAME, "write a page that shows graph, kernels, times and memory of a model",
    "MODEL is what `sinter explain` takes. The page needs no network. It shows the model's lines "
    "of "
    "C\n"
    "beside its graph before and after each pass; each kernel with its time, its share of the\n"
    "roofline, and why it ends where it ends; the fusion levels side by side; one run on all "
    "threads;\n"
    "the memory plan; the tiles that attention skips; and errors against double precision. Entries "
    "are\n"
    "run a few times, on made-up inputs; without weights, on random ones.\n",
    table,
    .examples = "sinter report --preset gpt2 -e forward -o gpt2.html\n"
                "sinter report examples/variants/window_sinks.c --training --sizes B=4,T=64\n"
                "sinter report MODEL --levels 0,4 --json -o report.json\n"};

enum { MAX_ENTRIES = 32, MAX_LEVELS = SN_LEVEL_COUNT };

typedef struct job {
    const options *o;
    report r;
    cJSON *entries, *object[MAX_ENTRIES];
    char sizes[LOOK_SIZES], map_sizes[LOOK_SIZES]; /* of runs; of the maps of attention's tiles */
    report_reference reference[MAX_ENTRIES];
    int n_entry, n_level, level[MAX_LEVELS];
    int64_t threads;
    screen_progress progress;
    int done, entries_in_all; /* of all levels */
} job;

/* ---- levels ---- */

/* The levels to compare, the main one first. */
static bool choose_levels(job *j, sn_error *err) {
    const char *s = strcmp(j->o->levels, "none") ? j->o->levels : "";
    j->level[j->n_level++] = (int)j->o->compile.level;
    while (*s) {
        int used = 0, level = -1;
        if (sscanf(s, "%d%n", &level, &used) != 1 || !sn_level_exists(level) || level < 0 ||
            (s[used] && s[used] != ','))
            return sn_fail(err, SN_ERR_USAGE,
                           "--levels '%s': give levels from 0 to %d, such as 0,4, or none",
                           j->o->levels, SN_LEVEL_HIGHEST);
        bool known = false;
        for (int i = 0; i < j->n_level; i++) known |= j->level[i] == level;
        if (!known) j->level[j->n_level++] = level;
        s += used + (s[used] == ',');
    }
    return true;
}

/* ---- programs of one model ---- */

typedef struct compiled {
    sn_program *p;
    sn_session *s; /* NULL: nothing runs */
} compiled;

static sn_options level_options(const options *o, int level, bool keep) {
    sn_options c = cmd_options(&o->compile);
    c.level = level;
    c.keep_stages = keep;
    return c;
}

static open_model *load_model(const options *o, int level, sn_error *err) {
    return cmd_open_model(NAME, &o->model,
                          (open_options){.entries = o->train ? SN_LOSS | SN_TRAIN : SN_ALL_ENTRIES,
                                         .any_model = true,
                                         .compile = level_options(o, level, true)},
                          err);
}

static void release(compiled *c, const open_model *d) {
    sn_session_free(c->s);
    if (c->p != d->program) sn_program_free(c->p);
}

/* Each level runs in a session of its own, which begins with the model's parameters: training steps
 * change them. */
static bool compile(compiled *c, const open_model *d, const options *o, int level, bool main,
                    sn_error *err) {
    sn_options compile = level_options(o, level, false);
    compile.source = model_weights(d);
    compile.compute = d->compiled.compute;
    *c = (compiled){.p = main ? d->program : sn_compile(d->model.module, &compile, err)};
    if (c->p && d->session) c->s = sn_session_new_like(c->p, d->session, err);
    return c->p && (c->s || !d->session);
}

/* ---- the document ---- */

static void describe_machine(job *j) {
    report *r = &j->r;
    sn_threads t;
    sn_error err = {0};
    int threads = (int)j->o->compile.threads;
    if (sn_threads_init(&t, threads, &err)) {
        threads = (int)t.n;
        sn_threads_free(&t);
    }
    j->threads = threads;
    for (int i = 0; i < 2; i++) { /* the best of several: others may use the machine, too */
        double read = sn_probe_read_bandwidth(threads, (size_t)128 << 20);
        r->gbytes = read > r->gbytes ? read : r->gbytes;
    }
    r->gflops = sn_probe_fma_peak(threads, 0.05);
    r->noise = sn_bench_noise_begin();
    r->machine = report_object(r, r->root, "machine");
}

/* After all runs, beside which the peak was probed, too. */
static void finish_machine(job *j) {
    report *r = &j->r;
    cJSON *o = r->machine;
    double others, stolen;
    char text[SN_BENCH_NOISE_TEXT];
    sn_bench_noise_end(&r->noise, &others, &stolen);
    report_number(r, o, "threads", j->threads);
    report_number(r, o, "peak_gflops", r->gflops);
    report_number(r, o, "read_gbytes", r->gbytes);
    report_number(r, o, "others_pct", others);
    report_number(r, o, "stolen_pct", stolen);
    report_text(r, o, "note", sn_bench_noise_text(others, stolen, text));
    if (*text) sn_screen_note(NAME, "%s", text);
}

static void describe_model(job *j, const open_model *d) {
    report *r = &j->r;
    cJSON *o = report_object(r, r->root, "model");
    const char *path = j->o->model.path ? j->o->model.path : j->o->model.preset;
    report_text(r, o, "name", path ? path : "");
    report_text(r, o, "type", d->session && d->model.type ? d->model.type : "");
    report_text(r, o, "module", sn_module_name(d->model.module));
    report_number(r, o, "level", j->level[0]);
    report_text(r, o, "level_text", sn_level_text[j->level[0]]);
    report_text(r, o, "target", d->program->target.name);
    report_text(r, o, "sizes", j->sizes);
    report_flag(r, o, "random_weights", d->session && !model_weights(d));
    if (d->session) report_number(r, o, "parameters", (double)model_parameters(d));
    sn_stats s = sn_program_stats(d->program);
    report_number(r, o, "compile_seconds", s.seconds);
    report_number(r, o, "kernels", s.kernels);
    const char *const *remark;
    sn_error err = {0};
    int n = sn_program_remarks(d->program, NULL, true, &remark, &err);
    cJSON *remarks = report_list(r, r->root, "remarks");
    for (int i = 0; i < n; i++) report_add_text(r, remarks, remark[i]);
}

/* What only the main level has: graph, memory plan, calls, maps of attention. */
static bool describe_entry(job *j, cJSON *entry, const explain_entry *e, const compiled *c,
                           const inspect_inputs *in, sn_error *err) {
    report *r = &j->r;
    if (!report_graph(r, entry, c->p, e->name, err) ||
        !report_memory(r, entry, c->p, e->name, in->symbol, err))
        return false;
    report_calls(r, entry, c->p, e);
    if (!c->s) return true;
    inspect_inputs *map = calloc(1, sizeof *map);
    if (!map) return sn_fail(err, SN_ERR_MEMORY, "out of memory for inputs");
    report_text(r, entry, "attention_sizes", j->map_sizes);
    bool ok = inspect_inputs_make(map, c->p, e->name, j->map_sizes, err) &&
              report_masks(r, entry, c->p, c->s, e, map, err);
    inspect_inputs_free(map);
    free(map);
    return ok;
}

static void describe_level(report *r, cJSON *o, const explain_entry *e, const compiled *c,
                           int level, double seconds) {
    double written = 0;
    int barriers = 0;
    for (int i = 0; i < e->n; i++) {
        written += e->call[i].result_bytes;
        barriers += e->call[i].barrier;
    }
    report_number(r, o, "level", level);
    report_text(r, o, "text", sn_level_text[level]);
    report_number(r, o, "calls", e->n);
    report_number(r, o, "barriers", barriers);
    report_number(r, o, "flop", e->flops);
    report_number(r, o, "bytes", e->bytes);
    report_number(r, o, "written_bytes", written);
    if (!(seconds > 0)) return;
    report_number(r, o, "ms", 1e3 * seconds);
    report_number(r, o, "workspace_bytes", (double)sn_session_workspace(c->s));
}

/* Runs entry number `at` in the level's session; the run is optional. *seconds: 0 without one. */
static bool run_entry(job *j, int at, cJSON *o, explain_entry *e, const compiled *c,
                      const inspect_inputs *in, bool main, double *seconds, sn_error *err) {
    sn_error failed = {0};
    *seconds = 0;
    if (!c->s) return true;
    if (!report_errors(&j->r, o, &j->reference[at], c->s, e->name, err)) return false;
    sn_session_reset(c->s);
    if (report_run(&j->r, main ? j->object[at] : NULL, e, c->s, in, seconds, &failed)) {
        j->r.gflops = e->peak = e->peak > j->r.gflops ? e->peak : j->r.gflops;
        return true;
    }
    free(e->seconds);
    e->seconds = NULL;
    if (main) report_text(&j->r, j->object[at], "not_measured", failed.message);
    return true;
}

/* One level of an entry. *e is open. */
static bool add_level(job *j, int at, explain_entry *e, const compiled *c, int level, bool main,
                      sn_error *err) {
    report *r = &j->r;
    double seconds = 0;
    inspect_inputs *in = calloc(1, sizeof *in);
    if (!in) return sn_fail(err, SN_ERR_MEMORY, "out of memory for inputs");
    cJSON *o = report_object(r, cJSON_GetObjectItem(j->object[at], "levels"), NULL);
    bool ok = inspect_inputs_make(in, c->p, e->name, e->sizes, err) &&
              run_entry(j, at, o, e, c, in, main, &seconds, err) && explain_find_folds(e, err) &&
              (!main || describe_entry(j, j->object[at], e, c, in, err));
    if (ok) describe_level(r, o, e, c, level, seconds);
    inspect_inputs_free(in);
    free(in);
    return ok && (!r->full || sn_fail(err, SN_ERR_MEMORY, "out of memory for the report"));
}

static bool wanted(const options *o, const char *name) {
    return *name != '@' && (!o->entry || !strcmp(name, o->entry));
}

/* The entry's values in double precision, before anything changes the parameters. */
static bool add_reference(job *j, const open_model *d, int at, const char *name, sn_error *err) {
    if (!d->session || !j->o->evaluate) return true;
    sn_screen_progress_show(&j->progress, "double precision: %s", name);
    if (!report_reference_make(&j->reference[at], d->program, name, (double)j->o->evaluate,
                               d->session, err))
        return false;
    report_reference_describe(&j->r, j->object[at], &j->reference[at]);
    return true;
}

static bool add_program(job *j, const open_model *d, const compiled *c, int level, bool main,
                        sn_error *err) {
    sn_module *m = d->model.module;
    int at = 0;
    for (int i = 0; i < sn_entry_count(m) && at < MAX_ENTRIES; i++) {
        const char *name = sn_entry_at(m, i)->name;
        if (!wanted(j->o, name)) continue;
        char what[96];
        snprintf(what, sizeof what, "level %d, %.60s", level, name);
        sn_screen_progress_of(&j->progress, what, j->done++, j->entries_in_all);
        if (main) {
            j->object[at] = report_object(&j->r, j->entries, NULL);
            report_list(&j->r, j->object[at], "levels");
            if (!add_reference(j, d, at, name, err)) return false;
        }
        explain_entry e;
        bool ok = explain_open(&e, c->p, name, j->sizes, err) &&
                  add_level(j, at, &e, c, level, main, err);
        explain_close(&e);
        if (!ok) return false;
        at++;
    }
    if (main) j->n_entry = at;
    return true;
}

static bool add_levels(job *j, const open_model *d, sn_error *err) {
    if (!cmd_has_entry(d->model.module, j->o->entry, err)) return false;
    if (!inspect_inputs_sizes(d->model.module, LOOK_LENGTH, true, j->o->sizes, j->sizes, err) ||
        !inspect_inputs_sizes(d->model.module, LOOK_MAP_LENGTH, false, j->o->sizes, j->map_sizes,
                              err))
        return false;
    describe_model(j, d);
    j->entries = report_list(&j->r, j->r.root, "entries");
    for (int i = 0; i < sn_entry_count(d->model.module); i++)
        j->entries_in_all += wanted(j->o, sn_entry_at(d->model.module, i)->name) ? j->n_level : 0;
    for (int i = 0; i < j->n_level; i++) {
        compiled c;
        sn_screen_progress_show(&j->progress, "level %d: compiling", j->level[i]);
        bool ok = compile(&c, d, j->o, j->level[i], i == 0, err) &&
                  add_program(j, d, &c, j->level[i], i == 0, err);
        release(&c, d);
        if (!ok) return false;
    }
    return true;
}

static bool write_report(const job *j, sn_error *err) {
    sn_file *file = sn_file_output(j->o->output, err);
    if (!file) return false;
    if (!report_write(sn_file_stream(file), &j->r, j->o->json, err)) {
        sn_file_discard(file);
        return false;
    }
    if (!sn_file_commit(file, err)) return false;
    if (strcmp(j->o->output, "-") != 0) sn_screen_wrote(NAME, j->o->output);
    return true;
}

int cmd_report(int argc, char **argv) {
    options o = {0};
    sn_error err = {0};
    int code = sn_args_parse(&command, argc, argv, &o);
    if (code != ARGS_RUN) return code;
    job *j = calloc(1, sizeof *j);
    if (!j) {
        sn_fail(&err, SN_ERR_MEMORY, "out of memory");
        return cmd_fail(NAME, &err);
    }
    j->o = &o;
    bool ok = choose_levels(j, &err) && (!strcmp(o.output, "-") || cmd_can_write(o.output, &err)) &&
              report_begin(&j->r, &err);
    if (ok) {
        sn_screen_progress_show(&j->progress, "level %d: compiling", j->level[0]);
        open_model *d = load_model(&o, j->level[0], &err);
        if (d) describe_machine(j);
        ok = d && add_levels(j, d, &err);
        if (ok) finish_machine(j);
        model_close(d);
    }
    sn_screen_progress_end(&j->progress);
    ok = ok && write_report(j, &err);
    for (int i = 0; i < MAX_ENTRIES; i++) report_reference_free(&j->reference[i]);
    cJSON_Delete(j->r.root);
    free(j);
    return ok ? cmd_finish(NAME) : cmd_fail(NAME, &err);
}
