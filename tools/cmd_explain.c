/* cmd_explain.c: `sinter explain`: the kernels of a compiled model, and what prevented further
 * fusion. */
#include "tools/cmd.h"
#include "codegen/program/program.h"
#include "ir/ir.h"
#include "passes/stages.h"
#include "runtime/file.h"
#include "runtime/str.h"
#include "tools/inspect/report.h"

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

enum { MAX_ENTRIES = 32 };

/* Of the entries in their order. */
typedef struct pair_counts {
    int pairs[MAX_ENTRIES];
} pair_counts;

static bool count_pairs(void *user, const sn_model *model, sn_options *compile, sn_error *err) {
    pair_counts *c = user;
    bool ok = true;
    (void)compile;
    for (int i = 0; i < MAX_ENTRIES && i < sn_entry_count(model->module); i++) {
        c->pairs[i] = explain_pairs(model->module, sn_entry_at(model->module, i));
        ok &= c->pairs[i] >= 0;
    }
    return ok || sn_fail(err, SN_ERR_MEMORY, "out of memory");
}

/* The compiled model; NULL with what is wrong printed. */
static open_model *compile(const options *o, pair_counts *pairs, int *code) {
    open_options q = {.entries = o->train ? SN_LOSS | SN_TRAIN : SN_ALL_ENTRIES,
                      .compile_only = !o->time,
                      .prepare = count_pairs,
                      .user = pairs,
                      .any_model = true};
    if (o->train && (o->slices > 1 || o->ranks > 1)) {
        q.slices = o->slices > o->ranks ? o->slices : o->ranks;
        q.zero = (int)o->zero;
        q.ranks = o->ranks ? o->ranks : o->slices;
        q.compile_only = true;
    }
    return cmd_open(NAME, &o->model, &o->compile, q, code);
}

/* ---- what was asked for ---- */

typedef struct views {
    explain_entry e[MAX_ENTRIES];
    int n;
} views;

static void close_views(views *v) {
    for (int i = 0; i < v->n; i++) explain_close(&v->e[i]);
}

/* Runs the entry a few times with made-up inputs, which changes the session's states: fills e->seconds. */
static bool measure(explain_entry *e, sn_session *s, const sn_program *p, sn_error *err) {
    inspect_inputs *in = calloc(1, sizeof *in);
    report none = {.root = NULL}; /* its times only, no document */
    double seconds;
    bool ok = in || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    ok = ok && inspect_inputs_make(in, p, e->name, e->sizes, err) &&
         report_run(&none, NULL, e, s, in, &seconds, err) &&
         (!none.full || sn_fail(err, SN_ERR_MEMORY, "out of memory"));
    if (in) inspect_inputs_free(in);
    free(in);
    return ok;
}

static bool open_views(views *v, const open_model *m, const pair_counts *pairs, const options *o,
                       sn_error *err) {
    v->n = 0;
    if (!cmd_has_entry(m->model.module, o->entry, err)) return false;
    for (int i = 0; i < sn_entry_count(m->model.module) && v->n < MAX_ENTRIES; i++) {
        const char *name = sn_entry_at(m->model.module, i)->name;
        if (*name == '@' || (o->entry && strcmp(name, o->entry) != 0)) continue;
        explain_entry *e = &v->e[v->n++];
        if (!explain_open(e, m->program, name, o->sizes, err) ||
            (o->time && !measure(e, m->session, m->program, err)) || !explain_find_folds(e, err) ||
            !explain_find_tiles(e, m->program, err))
            return false;
        if (i < MAX_ENTRIES) e->pairs = pairs->pairs[i];
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

static bool print_views(FILE *f, const views *v, const open_model *m, const options *o,
                        sn_error *err) {
    const char *const *remark;
    int n = sn_program_remarks(m->program, o->entry, o->json != NULL, &remark, err);
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
    if (o->train && !o->dot && (o->slices > 1 || o->ranks > 1)) print_memory(f, m->program);
    for (int i = 0; i < n && !o->dot; i++) fprintf(f, "%s\n", remark[i]);
    return true;
}

static bool write_views(const views *v, const open_model *m, const options *o, sn_error *err) {
    const char *path = o->json ? o->json : o->dot;
    if (!path) return print_views(stdout, v, m, o, err);
    sn_file *file = sn_file_output(path, err);
    if (!file) return false;
    if (print_views(sn_file_stream(file), v, m, o, err)) {
        bool ok = sn_file_commit(file, err);
        if (ok) sn_screen_wrote(NAME, path);
        return ok;
    }
    sn_file_discard(file);
    return false;
}

static int explain(const options *o) {
    sn_error err = {0};
    views v = {.n = 0};
    int code;
    pair_counts pairs = {{0}};
    open_model *m = compile(o, &pairs, &code);
    if (m && o->full) {
        code = cmd_has_entry(m->model.module, o->entry, &err) ? EXIT_OK : cmd_fail(NAME, &err);
        if (code == EXIT_OK) sn_program_explain(m->program, o->entry, stdout);
    } else if (m) {
        bool ok = open_views(&v, m, &pairs, o, &err) &&
                  (o->why ? explain_why(stdout, v.e, v.n, m->program, m->model.module, o->why, &err)
                          : write_views(&v, m, o, &err));
        code = ok ? EXIT_OK : cmd_fail(NAME, &err);
        close_views(&v);
    }
    model_close(m);
    return code == EXIT_OK ? cmd_finish(NAME) : code;
}

/* --diff A,B: the same model at two levels, entry by entry. */
static int explain_levels(const options *o) {
    int level[2], used = 0;
    open_model *m[2] = {NULL};
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
        pair_counts pairs = {{0}};
        m[i] = compile(&one, &pairs, &code);
        if (m[i] && !open_views(&v[i], m[i], &pairs, &one, &err)) code = cmd_fail(NAME, &err);
    }
    char name[2][16];
    for (int i = 0; i < 2; i++) snprintf(name[i], sizeof name[i], "level %d", level[i]);
    for (int i = 0; code == EXIT_OK && i < v[0].n && i < v[1].n; i++)
        explain_diff(stdout, &v[0].e[i], &v[1].e[i], name[0], name[1]);
    for (int i = 0; i < 2; i++) {
        close_views(&v[i]);
        model_close(m[i]);
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
    if (o->time && model_is_graph(o->model.path))
        sn_fail(&err, SN_ERR_USAGE, "--time needs a model; %s is a graph in text form",
                o->model.path);
    if (o->dot && !o->entry)
        sn_fail(&err, SN_ERR_USAGE, "--dot draws one entry: choose it with --entry");
    return err.code ? cmd_fail(NAME, &err) : EXIT_OK;
}

int cmd_explain(int argc, char **argv) {
    options o = {0};
    int code = sn_args_parse(&command, argc, argv, &o);
    if (code != ARGS_RUN) return code;
    if (o.stages) {
        sn_stages_print(stdout);
        return cmd_finish(NAME);
    }
    code = one_output(&o);
    if (code != EXIT_OK) return code;
    return o.diff ? explain_levels(&o) : explain(&o);
}
