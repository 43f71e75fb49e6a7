/* sinter.c: the program: the table of the compiler's subcommands. */
#include "frontend/models.h"
#include "ir/ir.h"
#include "runtime/threads.h"
#include "tools/cmd.h"
#include "runtime/problems.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const cmd_row commands[] = {
    {"compile", "compile a model to an object, a library or a program", cmd_compile_ahead, false,
     "compile it to an object, a library or a program, with a checkpoint's weights"},
    {"explain", "show the kernel of every operation, what was fused, and what was not", cmd_explain,
     false, "show its kernels, and what was fused"},
    {"report", "write a page that shows graph, kernels, times and memory of a model", cmd_report,
     true, "write a page about its graph, kernels, times and memory"},
    {"run", "run a model written in C", cmd_run, true, NULL},
    {"call", "run an entry of a model on given arrays, and write outputs and gradients", cmd_call,
     true, "run an entry on arrays of any name; write outputs and gradients"},
    {"check", "check a model: evaluator, fusion levels, gradients, threads, decoding", cmd_check,
     true, "check it: evaluator, fusion levels, gradients, threads, decoding, in one table"},
    {"bench", "measure kernels and models beside the machine's limits and other systems", cmd_bench,
     true, "measure its speed at each fusion level, beside the machine's limits"},
    {"cache", "show or clear the cache of compiled kernels, models and tuned choices", cmd_cache,
     false, NULL},
    {"completion", "print a script that completes command lines in a shell", cmd_completion, false,
     NULL},
    {"env", "describe this machine and installation", cmd_env, false, NULL},
    {"version", "print the version", cmd_version, false, NULL},
    {"opt", "run passes on a graph in text form and print the result", cmd_opt, false, NULL},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands, MAX_COMMANDS = 64 };

const cmd_library *cmd_models;

const cmd_row *cmd_row_at(int i) {
    const cmd_row *r = cmd_models ? cmd_models->rows : NULL;
    for (; r && r->name; r++)
        if (i-- == 0) return r;
    return i < N_COMMANDS ? &commands[i] : NULL;
}

const cmd_row *cmd_find(const char *name, bool verb, bool tell) {
    const char *names[MAX_COMMANDS] = {NULL};
    int n = 0;
    const cmd_row *r;
    for (int i = 0; (r = cmd_row_at(i)); i++) {
        if (verb && !r->verb) continue;
        if (!strcmp(r->name, name)) return r;
        if (n + 2 < MAX_COMMANDS) names[n++] = r->name;
    }
    if (!tell) return NULL;
    if (!verb) names[n] = "help";
    const char *near = sn_nearest_name(name, names);
    sn_screen_error(verb ? "sinter run" : "sinter",
                    verb ? "'%s' is not a command that takes a model" : "unknown command '%s'",
                    name);
    if (near) fprintf(stderr, "; did you mean %s?", near);
    fputs(verb ? "\n(sinter run --help lists them)\n" : "\n(sinter --help lists all commands)\n",
          stderr);
    return NULL;
}

static int dispatch(int argc, char **argv) {
    const cmd_row *r = cmd_find(argv[0], false, true);
    return r ? r->run(argc, argv) : EXIT_USAGE;
}

static void print_help(FILE *f) {
    const char *bold = sn_screen_color(f, STYLE_HEADING), *plain = sn_screen_color(f, STYLE_NONE);
    fprintf(f, "%ssinter%s: a transformer compiler\n\n%susage:%s sinter COMMAND [arguments]\n\n",
            bold, plain, bold, plain);
    const cmd_row *r;
    for (int i = 0; (r = cmd_row_at(i)); i++) fprintf(f, "  %-12s%s\n", r->name, r->what);
    fprintf(f, "\nsinter help COMMAND or sinter COMMAND --help describes a command.\n\nResults go "
               "to standard output, everything else to standard error.\nExit "
               "codes: 0 success, 1 failure, 2 wrong command line, 130 interrupted.\n");
}

/* sinter --complete WORDS…: candidates for the last word. */
static int complete(int n, char **word) {
    static char marker[] = ARGS_COMPLETE;
    if (n < 2) {
        const cmd_row *r;
        for (int i = 0; (r = cmd_row_at(i)); i++)
            if (!n || !strncmp(r->name, word[0], strlen(word[0])))
                printf("%s\t%s\n", r->name, r->what);
        return EXIT_OK;
    }
    if (!strcmp(word[n - 2], "--preset"))
        return cmd_offer(word[n - 1], sn_model_preset_name), EXIT_OK;
    char **line = calloc((size_t)n + 2, sizeof *line);
    if (!line) return EXIT_WRONG;
    line[0] = word[0], line[1] = marker;
    for (int i = 1; i < n; i++) line[i + 1] = word[i];
    int code = dispatch(n + 1, line);
    free(line);
    return code;
}

/* ---- crashes of models in C ---- */

static const struct {
    int number;
    const char *name;
} crashes[] = {{SIGSEGV, "SIGSEGV, an invalid address"},
               {SIGBUS, "SIGBUS, an invalid address"},
               {SIGFPE, "SIGFPE, an impossible division"},
               {SIGILL, "SIGILL, an illegal instruction"},
               {SIGABRT, "SIGABRT"}};

/* Says which model crashed while its function ran; the signal then ends the program, as it would
 * without a handler. */
static void on_crash(int number) {
    char text[1024], line[64] = "";
    sn_loc at;
    const sn_module *m = sn_model_defining(&at);
    const char *name = "";
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
        if (crashes[i].number == number) name = crashes[i].name;
    if (m) {
        if (at.file) snprintf(line, sizeof line, ":%d", at.line);
        int n = snprintf(text, sizeof text,
                         "sinter: the function of the model '%s' crashed (%s)%s%.512s%s\n",
                         sn_module_name(m), name, at.file ? ", after its call at " : "",
                         at.file ? at.file : "", line);
        ssize_t written = write(STDERR_FILENO, text, (size_t)n);
        (void)written;
    }
    raise(number);
}

static void catch_crashes(void) {
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++) {
        struct sigaction old, now = {.sa_handler = on_crash, .sa_flags = (int)SA_RESETHAND};
        bool known =
            !sigaction(crashes[i].number, NULL, &old); /* a sanitizer has its own handlers */
        if (known && old.sa_handler == SIG_DFL) sigaction(crashes[i].number, &now, NULL);
    }
}

int cmd_main(int argc, char **argv, const cmd_library *models) {
    cmd_models = models;
    cmd_hooks = models ? models->open : NULL;
    const char *name = argc > 1 ? argv[1] : NULL;
    if (name && !strcmp(name, ARGS_COMPLETE)) return complete(argc - 2, argv + 2);
    if (name && !strcmp(name, ARGS_CHECK) && argc > 2) {
        sn_screen()->check_only = true;
        return dispatch(argc - 2, argv + 2);
    }
    if (!name) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    const cmd_row *row = cmd_find(name, false, false);
    if (row && row->threads) sn_threads_limit_spinning(argv);
    catch_crashes();
    if (sn_debug_get()->help) return EXIT_OK; /* SINTER_DEBUG=help: the table has been printed */
    bool help = !strcmp(name, "help");
    if (!strcmp(name, "--version") || !strcmp(name, "-V")) {
        printf("sinter %s\n", sn_version());
        return cmd_finish("sinter");
    }
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || (help && argc == 2)) {
        print_help(stdout);
        return cmd_finish("sinter");
    }
    if (!help) return dispatch(argc - 1, argv + 1);
    char *ask[4] = {argv[2]}; /* help bench model */
    int n = 1;
    if (argc > 3) ask[n++] = argv[3];
    ask[n++] = "--help";
    return dispatch(n, ask);
}
