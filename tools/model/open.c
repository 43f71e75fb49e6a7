/* open.c: opens a model by the options of a command line. */
#include "tools/model/open.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const open_hooks *cmd_hooks;

/* Progress of tuning: a line per choice; an empty line ends it. */
static void show_tuning(void *ctx, const char *line) {
    (void)ctx;
    if (sn_screen()->quiet) return;
    bool terminal = isatty(STDERR_FILENO);
    if (terminal)
        fprintf(stderr, "\r\033[K%s", line);
    else if (*line)
        fprintf(stderr, "%s\n", line);
    fflush(stderr);
}

void cmd_advance(void *ctx, const char *what, double done) {
    static screen_progress p;
    (void)ctx;
    if (done <= 0 || done >= 1) sn_screen_progress_end(&p);
    if (done < 1) sn_screen_progress_of(&p, what, 100 * done, 100);
}

void cmd_note_threads(int64_t n) {
    static bool warned;
    cpu_set_t set;
    if (warned || sched_getaffinity(0, sizeof set, &set) || n <= CPU_COUNT(&set)) return;
    warned = true;
    sn_screen_note("sinter", "%lld threads share %d CPUs; using fewer is usually faster (-t)",
                   (long long)n, CPU_COUNT(&set));
}

const char *cmd_compute(const char *option) {
    return option && strcmp(option, "stored") ? option : NULL;
}

bool cmd_choose_compute(const char *name, sn_options *o, const char *target, sn_error *err) {
    char note[200];
    if (!sn_choose_compute(o, target, note, sizeof note, err)) return false;
    if (*note) sn_screen_note(name, "%s", note);
    return true;
}

sn_options cmd_options(const cmd_compile *c) {
    cmd_note_threads(c->threads);
    sn_options o = sn_options_default();
    o.level = (int)c->level;
    o.threads = (int)c->threads;
    o.backend = c->backend;
    o.weights = c->weights;
    o.compute = cmd_compute(c->compute);
    o.cache = c->cache;
    o.invariant = c->invariant;
    o.target = c->target;
    o.cache_dir = c->cache_dir;
    o.weights_cache = c->weights_cache ? c->weights_cache : -1;
    o.passes = c->off;
    o.strict_fusion = c->strict;
    o.accept = c->accept;
    o.check_nan = c->check_nan;
    o.memory_budget = c->budget;
    o.tune = c->tune;
    o.tune_sizes = c->tune_sizes;
    if (c->tune) o.progress = show_tuning;
    o.advance = cmd_advance;
    return o;
}

/* Warns about config keys that no part of the model reads, since they may be misspelt. */
static void note_unknown_keys(const char *name, const open_model *m) {
    const char *key;
    for (int i = 0; !*m->code.name && !m->graph && (key = sn_model_unknown_key(m->config, i)); i++)
        sn_screen_note(name, "%s: \"%s\" has no effect on %s models: is it misspelt?",
                       sn_config_name(m->config), key, m->model.type);
}

open_model *cmd_open_model(const char *name, const cmd_model *model, open_options o,
                           sn_error *err) {
    if (!model->path == !model->preset) {
        sn_fail(err, SN_ERR_USAGE, "give %s (%s --help lists all options)",
                model->path ? "either a model or --preset, not both"
                            : "a model folder, or --preset",
                name);
        return NULL;
    }
    o.command = name;
    o.hooks = cmd_hooks;
    o.path = model->path;
    o.preset = model->preset;
    o.tokenizer = model->tokenizer;
    o.checkpoint = model->checkpoint;
    o.context = model->context;
    open_model *m = model_open(&o, err);
    if (!m) return NULL;
    note_unknown_keys(name, m);
    if (m->model.text_only)
        sn_screen_note(
            name, "of this %s model only the text model is read: tensors of pictures are skipped",
            m->model.type);
    const char *note = m->program ? sn_program_stats(m->program).note : NULL;
    if (note) sn_screen_note(name, "%s", note);
    if (*m->storage_note) sn_screen_note(name, "%s", m->storage_note);
    if (*m->compute_note) sn_screen_note(name, "%s", m->compute_note);
    if (m->n_random)
        sn_screen_note(name, "the weights are random%s",
                       model->preset ? ": a preset has no weights"
                                     : "; load trained ones with --checkpoint PATH");
    return m;
}
