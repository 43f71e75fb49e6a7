/* cmd_run.c: `sinter run MODEL.c [COMMAND]`: prints the inputs and outputs of a model in C, or runs
 * another subcommand with it: one whose row has a verb. */
#include "tools/cmd.h"
#include "ir/ir.h"
#include "driver/model_source.h"
#include "runtime/problems.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "sinter run"

static void print_help(FILE *f) {
    fprintf(f, NAME ": run a model written as a C file without a main program\n\nusage: sinter run "
                    "MODEL.c [COMMAND [options of COMMAND]]\n\nWithout COMMAND, prints the inputs "
                    "and outputs of each entry; with options of `call`, such as --input "
                    "NAME=FILE, runs one.\nCOMMAND is one of\n");
    const cmd_row *r;
    for (int i = 0; (r = cmd_row_at(i)); i++)
        if (r->verb) fprintf(f, "  %-12s%s\n", r->name, r->verb);
    fprintf(f, "\nThe file defines one model (sinter/models.h):\n\n  #include "
               "<sinter/models.h>\n  SN_MODEL(m, o) { … adds entries to m … }\n\nIt is "
               "compiled with $CC (cc) and $CFLAGS (-O1) and cached; a shared object compiled from "
               "it is\naccepted too. Weights are random unless --checkpoint PATH names the folder "
               "of a training run.\nThe other commands take MODEL.c too: sinter explain "
               "MODEL.c.\n\nexamples:\n  sinter run examples/variants/alibi.c\n  sinter run "
               "examples/variants/alibi.c explain --entry decode\n");
}

/* ---- summary of a model ---- */

static void print_tensor(const sn_entry *e, sn_text_kind kind, const char *name, const sn_node *n) {
    char shape[128], about[SN_TEXT_IN];
    sn_shape_print(n->m, n->rank, n->shape, shape, sizeof shape);
    printf("    %-8s %-12s %s%s%s\n", kind == SN_TEXT_INPUT ? "input" : "output", name,
           sn_dtype_name((sn_dtype)n->dtype), shape,
           sn_module_text_in(n->m, kind, e->name, name, about));
}

static void print_entry(sn_module *m, const sn_entry *e) {
    printf("  %s\n", e->name);
    sn_order order = sn_entry_topo(m, e);
    for (int i = 0; i < order.n; i++)
        if (order.node[i]->op == SN_OP_input)
            print_tensor(e, SN_TEXT_INPUT, sn_attr_str(order.node[i], SN_A_name, ""),
                         order.node[i]);
    for (int i = 0; i < e->n_output; i++)
        print_tensor(e, SN_TEXT_OUTPUT, e->output[i].name, e->output[i].node);
    if (e->n_assign) printf("    assigns  %d states or parameters\n", e->n_assign);
}

static void json_tensor(json_out *j, const sn_entry *e, sn_text_kind kind, const char *name,
                        const sn_node *n) {
    char shape[128];
    const char *about = sn_module_text(n->m, kind, e->name, name);
    sn_shape_print(n->m, n->rank, n->shape, shape, sizeof shape);
    sn_json_object(j, NULL);
    sn_json_text(j, "name", name);
    sn_json_text(j, "type", sn_dtype_name((sn_dtype)n->dtype));
    sn_json_text(j, "shape", shape);
    if (about) sn_json_text(j, "about", about);
    sn_json_close(j);
}

static void json_entry(json_out *j, sn_module *m, const sn_entry *e) {
    sn_json_object(j, NULL);
    sn_json_text(j, "name", e->name);
    sn_json_bool(j, "state", e->n_assign > 0);
    sn_json_list(j, "inputs");
    sn_order order = sn_entry_topo(m, e);
    for (int i = 0; i < order.n; i++)
        if (order.node[i]->op == SN_OP_input)
            json_tensor(j, e, SN_TEXT_INPUT, sn_attr_str(order.node[i], SN_A_name, ""),
                        order.node[i]);
    sn_json_close(j);
    sn_json_list(j, "outputs");
    for (int i = 0; i < e->n_output; i++)
        json_tensor(j, e, SN_TEXT_OUTPUT, e->output[i].name, e->output[i].node);
    sn_json_close(j);
    sn_json_close(j);
}

static void print_json(const sn_model *model, int64_t parameters) {
    sn_module *m = model->module;
    json_out j = sn_json_begin(stdout);
    sn_json_text(&j, "name", model->type);
    sn_json_integer(&j, "parameters", parameters);
    sn_json_list(&j, "entries");
    for (int i = 0; i < sn_entry_count(m); i++) json_entry(&j, m, sn_entry_at(m, i));
    sn_json_close(&j);
    sn_json_list(&j, "sizes");
    for (int i = 0; i < sn_symbol_count(m); i++) {
        const sn_symbol *s = sn_symbol_at(m, i);
        sn_json_object(&j, NULL);
        sn_json_text(&j, "name", s->name);
        sn_json_integer(&j, "min", s->lo);
        sn_json_integer(&j, "max", s->hi);
        sn_json_close(&j);
    }
    sn_json_end(&j);
}

static void print_model(const sn_model *model) {
    sn_module *m = model->module;
    int64_t elements = 0, count = 0;
    for (uint32_t i = 0; i < sn_module_node_count(m); i++) {
        const sn_node *n = sn_module_node(m, i);
        if (n->op != SN_OP_param) continue;
        int64_t size = 1;
        for (int a = 0; a < n->rank; a++) size *= n->shape[a];
        elements += size;
        count++;
    }
    if (sn_screen()->json) {
        print_json(model, elements);
        return;
    }
    printf("model       %s: %lld parameters in %lld tensors", model->type, (long long)elements,
           (long long)count);
    if (model->context) printf(", context %lld", (long long)model->context);
    if (model->vocab) printf(", vocabulary %lld", (long long)model->vocab);
    printf("\nentries\n");
    for (int i = 0; i < sn_entry_count(m); i++) print_entry(m, sn_entry_at(m, i));
    char about[SN_TEXT_IN];
    printf("sizes\n");
    for (int i = 0; i < sn_symbol_count(m); i++) {
        const sn_symbol *s = sn_symbol_at(m, i);
        printf("    %s in %lld..%lld%s\n", s->name, (long long)s->lo, (long long)s->hi,
               sn_module_text_in(m, SN_TEXT_DIM, NULL, s->name, about));
    }
}

int cmd_describe_source(const char *name, const char *path) {
    sn_error err = {0};
    model_source source;
    sn_model model = {0};
    bool ok = model_source_open(path, NULL, &source, &err) &&
              model_source_build(&source, NULL, &model, &err);
    if (ok) print_model(&model);
    sn_module_free(model.module);
    model_source_close(&source);
    return ok ? cmd_finish(name) : cmd_fail(name, &err);
}

/* ---- the command line ---- */

/* argv: run MODEL.c COMMAND …; for the completion of shells before it another word, and the marker. */
static int run_verb(const cmd_row *r, char *marker, int argc, char **argv) {
    char *path = argv[1], **line = argv + 3;
    *--line = path;
    if (marker) *--line = marker;
    *--line = (char *)(uintptr_t)r->name;
    return r->run(argc - (int)(line - argv), line);
}

/* sinter --complete run FILE WORDS…: the file, a command, or the words of the command. */
static int complete(int argc, char **argv) {
    if (argc < 4) return puts(ARGS_FILES) < 0 ? EXIT_WRONG : EXIT_OK;
    const cmd_row *r = argc > 4 ? cmd_find(argv[3], true, false) : NULL;
    if (r) return run_verb(r, argv[1], argc - 1, argv + 1);
    for (int i = 0; argc == 4 && (r = cmd_row_at(i)); i++)
        if (r->verb && !strncmp(r->name, argv[3], strlen(argv[3])))
            printf("%s\t%s\n", r->name, r->verb);
    return EXIT_OK;
}

/* Do the options say what to run the model on? */
static bool gives_values(int argc, char **argv) {
    static const char *const words[] = {"--input", "-i", "--entry", "--gradient", "--sizes"};
    for (int i = 2; i < argc; i++)
        for (size_t k = 0; k < sizeof words / sizeof *words; k++)
            if (!strncmp(argv[i], words[k], strlen(words[k]))) return true;
    return false;
}

/* After a wrong command line whose options come before a command. */
static void advise_order(int argc, char **argv) {
    for (int i = 3; i < argc; i++)
        if (cmd_find(argv[i], true, false)) {
            fprintf(stderr, "(a command comes before its options: sinter run %s %s …)\n", argv[1],
                    argv[i]);
            return;
        }
}

static int describe(int argc, char **argv) {
    static const arg table[] = {
        {"MODEL", 0, ARG_PLACE, 0, NULL, NULL, 0, 0, "model in C (sinter run --help)"}, {0}};
    static const arg_key keys[] = {{"entries", "list", "with inputs and outputs"}, {0}};
    static const arg_command command = {NAME, "describe a model in C", "", table, "", keys};
    const char *path;
    int code = sn_args_parse(&command, argc, argv, &path);
    return code == ARGS_RUN ? cmd_describe_source(NAME, path) : code;
}

int cmd_run(int argc, char **argv) {
    if (argc > 2 && !strcmp(argv[1], ARGS_COMPLETE)) return complete(argc, argv);
    const char *path = argc > 1 ? argv[1] : NULL;
    if (!path || !strcmp(path, "--help") || !strcmp(path, "-h")) {
        print_help(path ? stdout : stderr);
        return path ? cmd_finish(NAME) : EXIT_USAGE;
    }
    if (!model_source_is(path)) {
        sn_screen_error(NAME,
                        "'%s' is not a model in C or an ONNX file (NAME.c, a NAME.so compiled from "
                        "it, NAME.onnx); "
                        "for a model folder write sinter COMMAND %s\n",
                        path, path);
        return EXIT_USAGE;
    }
    if (argc > 2 && argv[2][0] != '-') {
        const cmd_row *r = cmd_find(argv[2], true, true);
        return r ? run_verb(r, NULL, argc, argv) : EXIT_USAGE;
    }
    /* options of a run, or of the description */
    const cmd_row *r = cmd_find("inspect", true, false);
    int code = gives_values(argc, argv) ? cmd_call(argc, argv)
               : r && argc > 2          ? r->run(argc, argv)
                                        : describe(argc, argv);
    if (code == EXIT_USAGE) advise_order(argc, argv);
    return code;
}
