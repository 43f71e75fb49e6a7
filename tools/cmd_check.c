/* cmd_check.c: `sinter check`: everything that must hold of a model, in one table. */
#include "tools/cmd.h"
#include "tools/run/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define NAME "sinter check"

typedef struct options {
    cmd_model model;
    arg_texts input;
    const char *entry, *sizes, *levels, *backend, *compute, *weights, *off, *cache_dir;
    double tolerance;
    int64_t seed;
    const char *invariant; /* NULL: not asked for; what the program is compiled with, or "" */
    bool exact, no_gradients, no_threads, no_decoding, allow_nan;
} options;

#define AT(field) offsetof(options, field)
static const arg table[] = {
    CMD_MODEL_ARGS(options),
    {"entry", 0, ARG_TEXT, AT(entry), "NAME", NULL, 0, 0, "check this entry only; default: all"},
    {"sizes", 0, ARG_TEXT, AT(sizes), "B=2,T=13", NULL, 0, 0,
     "sizes of the runs; default: two sequences of 13 tokens, then one of 70"},
    {"input", 'i', ARG_TEXTS, AT(input), "NAME=VALUE", NULL, 0, 0,
     "an input or a parameter: FILE.npy, FILE.npz[:ARRAY], random, LO..HI, a number; FILE.npz "
     "alone gives all of its arrays; default: random"},
    {"levels", 0, ARG_TEXT, AT(levels), "L,…|L..L", "0..4", 0, 0, "fusion levels, 0 to 4"},
    {"tolerance", 0, ARG_NUMBER, AT(tolerance), "X", "1e-4", 0, 1,
     "largest error, relative to the tensor's largest element, unless rounding alone makes more"},
    {"seed", 0, ARG_INT, AT(seed), "N", "1", 0, INT64_MAX, "of random parameters"},
    {"no-gradients", 0, ARG_FLAG, AT(no_gradients), NULL, NULL, 0, 0, "do not check gradients"},
    {"no-threads", 0, ARG_FLAG, AT(no_threads), NULL, NULL, 0, 0,
     "do not compare the bits of 1, 2, 3 and 7 threads"},
    {"no-decoding", 0, ARG_FLAG, AT(no_decoding), NULL, NULL, 0, 0,
     "do not compare decoding with forward"},
    {"allow-nan", 0, ARG_FLAG, AT(allow_nan), NULL, NULL, 0, 0,
     "accept NaN where the evaluator has NaN, too; default: it fails"},
    {"exact", 0, ARG_FLAG, AT(exact), NULL, NULL, 0, 0,
     "instead: each level's graph against the one that is written, equal over finite fields"},
    {"invariant", 0, ARG_OPTIONAL, AT(invariant), "[=batch,chunk]", NULL, 0, 0,
     "instead: whether threads, sessions, other rows, levels, CPUs and pieces change bits; with a "
     "value: of a program that is compiled with it, and must hold to it"},
    {"backend", 0, ARG_CHOICE, AT(backend), "auto|native|onednn", "native", 0, 0,
     "kernels: Sinter's own, oneDNN's, or the faster one of each"},
    {"compute", 0, ARG_CHOICE, AT(compute), "f32|bf16|bf16-unordered|int8", "f32", 0, 0,
     "arithmetic of products; bf16: the evaluator rounds their factors, too, where it tells what "
     "rounding alone makes; int8: with --invariant"},
    {"weights", 0, ARG_CHOICE, AT(weights), "f32|bf16|int8|int4", NULL, 0, 0,
     "with --invariant: storage of constant matrices; default: f32, with --compute int8 int8"},
    {"off", 0, ARG_TEXT, AT(off), "PASS,…", NULL, 0, 0, "passes to disable"},
    {"cache-dir", 0, ARG_TEXT, AT(cache_dir), "DIR|none", NULL, 0, 0,
     "cache of compiled kernels; default: ~/.cache/sinter"},
    {0},
};

static const arg_key keys[] = {
    {"entry", "text", "a line per check: the entry"},
    {"of", "text", "results (outputs and states), or gradients"},
    {"check", "text",
     "level 0 … level 4: against the evaluator; threads: equal bits; differences: against those of "
     "the loss; forward: decoding against it; with --invariant what changes: batch, padding, "
     "chunk, "
     "session, threads, level, x86-64-v2 …"},
    {"error", "number", "largest error; null: nothing was measured"},
    {"limit", "number", "what it may be"},
    {"holds", "boolean", "the verdict"},
    {"tokens", "integer?", "of check forward: length of the sequence that was decoded"},
    {"verdict", "text?",
     "with --exact and --invariant: equal, differs, undecided, or depends on tokens behind"},
    {"detail", "text?", "where it does not hold, or why nothing could be compared"},
    {0}};

static const arg_command command = {
    NAME,
    "check a model: evaluator, fusion levels, gradients, threads, decoding",
    "Runs every entry on random inputs (or those given) and compares: outputs and states of each\n"
    "fusion level with the reference evaluator, which computes in double precision; gradients of\n"
    "all parameters and float inputs with the evaluator at each level, and in double precision "
    "with\n"
    "differences of the loss; the bits of 1, 2, 3 and 7 threads; prefill and decode with forward.\n"
    "Errors are relative to the largest element of the tensor. Exit code 1 if a check fails.\n"
    "\n"
    "With --exact nothing is compiled. The graph as it is written and the graph after all passes "
    "of\n"
    "each level are evaluated over finite fields, where nothing is rounded: sums, products,\n"
    "quotients and e^x are exact, an order of keyed numbers stands for comparisons, and other\n"
    "functions are keyed hashes of their operands. Results are equal, or differ at an element.\n"
    "Different results look equal with a probability below 2^-30; another --seed draws again.\n"
    "More than 9 exponentials or logarithms inside each other, or e^ of a part of a logarithm, "
    "may\n"
    "leave a result undecided.\n"
    "\n"
    "With --invariant results are compared bit by bit: with another session and 2, 3 and 8 "
    "threads,\n"
    "which never differ; each row of a batch of three with the row alone, where there are no "
    "states; all levels with the "
    "highest;\n"
    "each token with the same followed by more tokens (padding), where results do not depend on "
    "them;\n"
    "code for x86-64-v2, -v3 and -v4, where this CPU runs it, with that for this CPU; and forward "
    "with\n"
    "a prompt of five tokens and the rest one by one (chunk), which may differ by rounding.\n",
    table,
    .examples = "sinter check examples/variants/alibi.c\n"
                "sinter check examples/variants/alibi.c --exact\n"
                "sinter run examples/variants/alibi.c check --levels 0,4\n"
                "sinter check mine.c --sizes B=1,T=200 --input mask=mask.npy\n",
    .json = keys};

static void show(void *ctx, const char *what) {
    screen_progress *p = ctx;
    sn_screen_progress_show(p, "check: %s", what);
}

static void print_json(const check_report *r) {
    for (int i = 0; i < r->n; i++) {
        const check_cell *c = &r->cell[i];
        json_out j = sn_json_begin(stdout);
        sn_json_text(&j, "entry", c->entry);
        sn_json_text(&j, "of", c->of);
        sn_json_text(&j, "check", c->check);
        sn_json_number(&j, "error", c->error);
        sn_json_number(&j, "limit", c->limit);
        sn_json_bool(&j, "holds", c->holds);
        if (c->tokens) sn_json_integer(&j, "tokens", c->tokens);
        if (c->verdict) sn_json_text(&j, "verdict", c->verdict);
        if (c->detail[0]) sn_json_text(&j, "detail", c->detail);
        sn_json_end(&j);
    }
}

/* A row per entry and kind of result, a column per check. */
static void print_table(const check_report *r) {
    enum { COLUMNS = 10 };
    const char *column[COLUMNS];
    int n = 0, failed = 0;
    for (int i = 0; i < r->n; i++) {
        int k = 0;
        while (k < n && strcmp(column[k], r->cell[i].check) != 0) k++;
        if (k == n && n < COLUMNS) column[n++] = r->cell[i].check;
        failed += !r->cell[i].holds;
    }
    int wide = 16;
    for (int i = 0; i < r->n; i++) wide = (int)fmax(wide, (double)strlen(r->cell[i].entry));
    printf("%-*s %-10s", wide, "entry", "of");
    for (int k = 0; k < n; k++) printf(" %11s", column[k]);
    printf("\n");
    for (int i = 0; i < r->n; i++) {
        const check_cell *row = &r->cell[i];
        bool first = true;
        for (int k = 0; k < i; k++)
            first &= strcmp(r->cell[k].entry, row->entry) || strcmp(r->cell[k].of, row->of);
        if (!first) continue;
        printf("%-*s %-10s", wide, row->entry, row->of);
        for (int k = 0; k < n; k++) {
            const check_cell *cell = NULL;
            for (int q = i; q < r->n; q++)
                if (!strcmp(r->cell[q].entry, row->entry) && !strcmp(r->cell[q].of, row->of) &&
                    !strcmp(r->cell[q].check, column[k]))
                    cell = &r->cell[q];
            char text[32] = "-";
            if (cell && cell->verdict)
                snprintf(text, sizeof text, "%s", cell->verdict);
            else if (cell && !cell->holds)
                snprintf(text, sizeof text, "FAILED");
            else if (cell && isnan(cell->error))
                snprintf(text, sizeof text, "same bits");
            else if (cell)
                snprintf(text, sizeof text, "%.1e", cell->error);
            printf(" %11s", text);
        }
        printf("\n");
    }
    for (int i = 0; i < r->n; i++)
        if (r->cell[i].verdict && r->cell[i].detail[0])
            printf("%s: %s, %s, %s: %s\n", r->cell[i].verdict, r->cell[i].entry, r->cell[i].of,
                   r->cell[i].check, r->cell[i].detail);
        else if (!r->cell[i].holds)
            printf("FAILED: %s, %s, %s: error %.3g, limit %.3g: %s\n", r->cell[i].entry,
                   r->cell[i].of, r->cell[i].check, r->cell[i].error, r->cell[i].limit,
                   r->cell[i].detail);
    for (int i = 0; i < r->n; i++)
        if (r->cell[i].tokens)
            printf("decoding was compared over %lld tokens\n", (long long)r->cell[i].tokens);
    printf("%d checks, %d failed\n", r->n, failed);
}

static bool takes_options(const options *o, sn_error *err) {
    if (o->exact && o->invariant)
        return sn_fail(err, SN_ERR_USAGE, "--exact and --invariant: give one of them");
    if (o->exact && (strcmp(o->compute, "f32") || strcmp(o->backend, "native") || o->allow_nan))
        return sn_fail(err, SN_ERR_USAGE,
                       "--exact evaluates graphs in exact arithmetic: it takes neither --compute, "
                       "--backend nor --allow-nan");
    if (!o->invariant && (o->weights || !strcmp(o->compute, "int8")))
        return sn_fail(err, SN_ERR_USAGE,
                       "--weights and --compute int8 need --invariant: the evaluator does "
                       "not store in fewer bits");
    return true;
}

int cmd_check(int argc, char **argv) {
    options o = {0};
    int code = sn_args_parse(&command, argc, argv, &o);
    if (code != ARGS_RUN) return code;
    sn_error err = {0};
    run_given given;
    check_report r = {0};
    screen_progress progress = {0};
    open_options model = {.command = NAME,
                          .hooks = cmd_hooks,
                          .path = o.model.path,
                          .checkpoint = o.model.checkpoint,
                          .preset = o.model.preset,
                          .tokenizer = o.model.tokenizer,
                          .context = o.model.context,
                          .entries = SN_ALL_ENTRIES,
                          .any_model = true,
                          .build_only = true};
    check_options c = {.model = &model,
                       .given = &given,
                       .entry = o.entry,
                       .sizes = o.sizes,
                       .cache_dir = o.cache_dir,
                       .backend = o.backend,
                       .compute = o.compute,
                       .weights = o.weights || strcmp(o.compute, "int8") ? o.weights : "int8",
                       .invariant = o.invariant,
                       .off = o.off,
                       .tolerance = o.tolerance,
                       .seed = (uint64_t)o.seed,
                       .gradients = !o.no_gradients,
                       .threads = !o.no_threads,
                       .decoding = !o.no_decoding,
                       .allow_nan = o.allow_nan,
                       .progress = show,
                       .ctx = &progress};
    bool ok = takes_options(&o, &err) && run_given_read(&o.input, &given, &err) &&
              cmd_read_levels(o.levels, &c.levels, &err) &&
              (o.exact       ? check_exact
               : o.invariant ? check_invariant
                             : check_model)(&c, &r, &err);
    sn_screen_progress_end(&progress);
    if (ok && sn_screen()->json)
        print_json(&r);
    else if (ok)
        print_table(&r);
    code = !ok ? cmd_fail(NAME, &err) : check_holds(&r) ? cmd_finish(NAME) : EXIT_WRONG;
    run_given_free(&given);
    check_report_free(&r);
    return code;
}
