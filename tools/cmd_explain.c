/* cmd_explain.c: `sinter explain`: the kernels of a compiled model, and what prevented further
 * fusion. */
#include "tools/cmd.h"
#include "codegen/program/program.h"
#include "ir/ir.h"
#include "passes/stages.h"
#include "runtime/file.h"
#include "runtime/str.h"
#include "tools/inspect/explain_time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "sinter explain"

typedef struct options {
    cmd_model model;
    cmd_compile compile;
    const char *entry, *sizes, *sort, *json, *dot, *diff, *why;
    int64_t slices, zero, ranks;
    bool train, stages, full, time;
} options;

static const arg table[] = {
    CMD_MODEL_ARGS(options),
    {"entry", 'e', ARG_TEXT, offsetof(options, entry), "NAME", NULL, 0, 0,
     "only this entry: forward, loss, prefill, decode, train_step"},
    {"training", 0, ARG_FLAG, offsetof(options, train), NULL, NULL, 0, 0,
     "the training entries, with AdamW, instead of the others"},
    {"slices", 0, ARG_INT, offsetof(options, slices), "N", "0", 0, 1 << 20,
     "with --training: the sums over N slices of a batch, as on several ranks"},
    {"zero", 0, ARG_INT, offsetof(options, zero), "N", "0", 0, 3,
     "with --training: what --ranks divide among themselves, as sinter train --zero"},
    {"ranks", 0, ARG_INT, offsetof(options, ranks), "N", "0", 0, 1 << 16,
     "with --zero: the number of ranks; default: --slices"},
    {"sizes", 0, ARG_TEXT, offsetof(options, sizes), "B=1,T=256", NULL, 0, 0,
     "sizes for operations, bytes and times; default: B=1, 256 of the others, or the maximum"},
    {"time", 0, ARG_FLAG, offsetof(options, time), NULL, NULL, 0, 0,
     "run the entry a few times and show medians and minima instead of estimated shares"},
    {"sort", 0, ARG_CHOICE, offsetof(options, sort), "call|cost", "call", 0, 0,
     "order of the table: as the calls run, or the most expensive first"},
    {"full", 0, ARG_FLAG, offsetof(options, full), NULL, NULL, 0, 0,
     "list every call with the name of its kernel function, and every choice of a kernel"},
    {"json", 0, ARG_TEXT, offsetof(options, json), "FILE", NULL, 0, 0,
     "write the calls as JSON instead; -: standard output"},
    {"dot", 0, ARG_TEXT, offsetof(options, dot), "FILE", NULL, 0, 0,
     "write the calls as a Graphviz graph instead; -: standard output"},
    {"diff", 0, ARG_TEXT, offsetof(options, diff), "A,B", NULL, 0, 0,
     "compare two fusion levels: --diff 0,4"},
    {"why", 0, ARG_TEXT, offsetof(options, why), "TENSOR", NULL, 0, 0,
     "why it is in memory: a parameter, a named tensor, a place of the table, a call's number, or "
     "FILE:LINE"},
    {"stages", 0, ARG_FLAG, offsetof(options, stages), NULL, NULL, 0, 0,
     "list the stages of a compilation in order (level, purpose, file and function), and what each "
     "fusion level fuses"},
    CMD_COMPILE_ARGS(options),
    {0},
};

static const arg_command command = {
    NAME, "show the kernel of every operation, what was fused, and what was not",
    "MODEL may also be a graph in text form (.sn). Each row is a kernel call: its number, kernel "
    "family,\n"
    "where in the model it computes (by its parameters), result, share of the entry's time, "
    "operations,\n"
    "bytes, fused operations (prologue and epilogue: fused into a product), and the source line.\n"
    "Calls that repeat from layer to layer are shown once. Shares are estimated from operations "
    "and\n"
    "bytes unless --time measures them. Tiles of a mask are counted at 512 tokens, or --sizes.\n"
    "Remarks of the passes are listed at the end.\n",
    table,
    .examples = "sinter explain MODEL --entry decode --time --sort cost\n"
                "sinter explain MODEL --diff 0,4\n"
                "sinter explain MODEL --entry decode --why model.layers.0.mlp.down_proj\n"
                "sinter explain MODEL --entry forward --dot - | dot -Tsvg -o forward.svg\n"};

static bool is_text(const char *path) {
    return path && sn_ends_with(path, ".sn");
}

/* ---- a compiled program, from a model or from text ---- */

typedef struct compiled {
    open_model *model; /* NULL: from text */
    sn_module *m;
    sn_program *p;
} compiled;

static void release(compiled *c) {
    if (!c->model) {
        sn_program_free(c->p);
        sn_module_free(c->m);
    }
    lm_close(c->model);
}

static bool compile_text(compiled *c, const options *o, sn_error *err) {
    size_t size;
    char *text = cmd_read_text(o->model.path, &size, err);
    c->m = text ? sn_parse(text, o->model.path, false, err) : NULL;
    free(text);
    sn_options compile = cmd_options(&o->compile);
    compile.plan_only = true;
    c->p = c->m ? sn_compile(c->m, &compile, err) : NULL;
    return c->p;
}

/* Prints what is wrong and returns the exit code, or EXIT_OK. */
static int compile(compiled *c, const options *o) {
    sn_error err = {0};
    *c = (compiled){0};
    if (is_text(o->model.path)) return compile_text(c, o, &err) ? EXIT_OK : cmd_fail(NAME, &err);
    int code, entries = o->train ? SN_LOSS | SN_TRAIN : SN_ALL_ENTRIES;
    if (o->train && (o->slices > 1 || o->ranks > 1)) {
        lm_options q = {.entries = entries,
                        .compile_only = true,
                        .slices = o->slices > o->ranks ? o->slices : o->ranks,
                        .zero = (int)o->zero,
                        .ranks = o->ranks ? o->ranks : o->slices,
                        .compile = cmd_options(&o->compile)};
        c->model = cmd_open_model(NAME, &o->model, q, &err);
        code = c->model ? EXIT_OK : cmd_fail(NAME, &err);
    } else
        c->model = o->time ? cmd_open_encoder(NAME, &o->model, &o->compile, entries, NULL, &code)
                           : cmd_open(NAME, &o->model, &o->compile, entries, false, &code);
    if (!c->model) return code;
    c->m = c->model->model.module;
    c->p = c->model->program;
    return EXIT_OK;
}

static bool check_entry(const sn_module *m, const char *entry, sn_error *err) {
    if (!entry || sn_entry_get((sn_module *)(uintptr_t)m, entry)) return true;
    char names[160] = "";
    size_t n = 0;
    for (int i = 0; i < sn_entry_count(m) && n < sizeof names; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "",
                              sn_entry_at(m, i)->name);
    return sn_fail(err, SN_ERR_USAGE, "there is no entry '%s'; there are: %s", entry, names);
}

/* ---- what was asked for ---- */

enum { MAX_ENTRIES = 32 };

typedef struct views {
    explain_entry e[MAX_ENTRIES];
    int n;
} views;

static void close_views(views *v) {
    for (int i = 0; i < v->n; i++) explain_close(&v->e[i]);
}

static bool open_views(views *v, const compiled *c, const options *o, sn_error *err) {
    v->n = 0;
    if (!check_entry(c->m, o->entry, err)) return false;
    for (int i = 0; i < sn_entry_count(c->m) && v->n < MAX_ENTRIES; i++) {
        const char *name = sn_entry_at(c->m, i)->name;
        if (*name == '@' || (o->entry && strcmp(name, o->entry) != 0)) continue;
        explain_entry *e = &v->e[v->n++];
        if (!explain_open(e, c->p, name, o->sizes, err) ||
            (o->time && !explain_measure(e, c->model->session, c->p, err)) ||
            !explain_find_folds(e, err) || !explain_find_tiles(e, c->p, err))
            return false;
    }
    return true;
}

/* What a rank keeps from step to step. */
static void print_memory(FILE *f, const sn_program *p) {
    static const char *const kinds[] = {"optimizer.", "gradient.", ""};
    enum { KINDS = 3 };
    double bytes[KINDS] = {0};
    for (int i = 0; i < p->n_leaf; i++) {
        const sn_node *n = p->leaf[i].node;
        int64_t count = 0;
        int kind = 0;
        while (strncmp(p->leaf[i].name, kinds[kind], strlen(kinds[kind]))) kind++;
        if (sn_dim_is_const(n->m, sn_dim_product(n->m, n->rank, n->shape), &count))
            bytes[kind] += (double)count * (double)sn_dtype_size((sn_dtype)n->dtype);
    }
    fprintf(f, "memory of a rank: parameters %.4g MB, optimizer states %.4g MB, gradients %.4g MB",
            bytes[2] * 1e-6, bytes[0] * 1e-6, bytes[1] * 1e-6);
    double gathered = (double)sn_program_gathered(p);
    if (gathered > 0) fprintf(f, ", at most %.4g MB of parameters gathered", gathered * 1e-6);
    fputc('\n', f);
}

static bool print_views(FILE *f, const views *v, const compiled *c, const options *o,
                        sn_error *err) {
    const char *const *remark;
    int n = sn_program_remarks(c->p, o->entry, o->json != NULL, &remark, err);
    if (n < 0) return false;
    if (o->json)
        return explain_json(f, v->e, v->n, remark, n) ||
               sn_fail(err, SN_ERR_MEMORY, "out of memory for the report");
    for (int i = 0; i < v->n; i++) {
        if (o->dot)
            explain_dot(f, &v->e[i]);
        else
            explain_table(f, &v->e[i], !strcmp(o->sort, "cost"));
    }
    if (o->train && !o->dot && (o->slices > 1 || o->ranks > 1)) print_memory(f, c->p);
    for (int i = 0; i < n && !o->dot; i++) fprintf(f, "%s\n", remark[i]);
    return true;
}

static bool write_views(const views *v, const compiled *c, const options *o, sn_error *err) {
    const char *path = o->json ? o->json : o->dot;
    if (!path) return print_views(stdout, v, c, o, err);
    sn_file *file = sn_file_output(path, err);
    if (!file) return false;
    if (print_views(sn_file_stream(file), v, c, o, err)) {
        bool ok = sn_file_commit(file, err);
        if (ok) screen_wrote(NAME, path);
        return ok;
    }
    sn_file_discard(file);
    return false;
}

static int explain(const options *o) {
    sn_error err = {0};
    compiled c;
    views v = {.n = 0};
    int code = compile(&c, o);
    if (code == EXIT_OK && o->full) {
        code = check_entry(c.m, o->entry, &err) ? EXIT_OK : cmd_fail(NAME, &err);
        if (code == EXIT_OK) sn_program_explain(c.p, o->entry, stdout);
    } else if (code == EXIT_OK) {
        bool ok = open_views(&v, &c, o, &err) &&
                  (o->why ? explain_why(stdout, v.e, v.n, c.p, c.m, o->why, &err)
                          : write_views(&v, &c, o, &err));
        code = ok ? EXIT_OK : cmd_fail(NAME, &err);
        close_views(&v);
    }
    release(&c);
    return code == EXIT_OK ? cmd_finish(NAME) : code;
}

/* --diff A,B: the same model at two levels, entry by entry. */
static int explain_levels(const options *o) {
    int level[2], used = 0;
    compiled c[2] = {{0}};
    views v[2] = {{.n = 0}};
    sn_error err = {0};
    if (sscanf(o->diff, "%d,%d%n", &level[0], &level[1], &used) != 2 || o->diff[used] ||
        level[0] < 0 || level[0] > 4 || level[1] < 0 || level[1] > 4) {
        sn_fail(&err, SN_ERR_USAGE, "--diff '%s': give two levels from 0 to 4, such as 0,4",
                o->diff);
        return cmd_fail(NAME, &err);
    }
    int code = EXIT_OK;
    for (int i = 0; i < 2 && code == EXIT_OK; i++) {
        options one = *o;
        one.compile.level = level[i];
        code = compile(&c[i], &one);
        if (code == EXIT_OK && !open_views(&v[i], &c[i], &one, &err)) code = cmd_fail(NAME, &err);
    }
    char name[2][16];
    for (int i = 0; i < 2; i++) snprintf(name[i], sizeof name[i], "level %d", level[i]);
    for (int i = 0; code == EXIT_OK && i < v[0].n && i < v[1].n; i++)
        explain_diff(stdout, &v[0].e[i], &v[1].e[i], name[0], name[1]);
    for (int i = 0; i < 2; i++) {
        close_views(&v[i]);
        release(&c[i]);
    }
    return code == EXIT_OK ? cmd_finish(NAME) : code;
}

static int one_output(const options *o) {
    static const char *const names[] = {"--full", "--json", "--dot", "--diff", "--why"};
    const bool given[] = {o->full, o->json != NULL, o->dot != NULL, o->diff != NULL,
                          o->why != NULL};
    const char *first = NULL;
    sn_error err = {0};
    for (int i = 0; i < 5; i++) {
        if (given[i] && first) sn_fail(&err, SN_ERR_USAGE, "%s contradicts %s", names[i], first);
        if (given[i] && !first) first = names[i];
    }
    if (o->time && o->full) sn_fail(&err, SN_ERR_USAGE, "--time contradicts --full");
    if (o->time && is_text(o->model.path))
        sn_fail(&err, SN_ERR_USAGE, "--time needs a model; %s is a graph in text form",
                o->model.path);
    if (o->dot && !o->entry)
        sn_fail(&err, SN_ERR_USAGE, "--dot draws one entry: choose it with --entry");
    return err.code ? cmd_fail(NAME, &err) : EXIT_OK;
}

int cmd_explain(int argc, char **argv) {
    options o = {0};
    int code = args_parse(&command, argc, argv, &o);
    if (code != ARGS_RUN) return code;
    if (o.stages) {
        sn_stages_print(stdout);
        return cmd_finish(NAME);
    }
    code = one_output(&o);
    if (code != EXIT_OK) return code;
    return o.diff ? explain_levels(&o) : explain(&o);
}
