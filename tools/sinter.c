/* sinter.c: the program: a table of subcommands. */
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

static const struct {
    const char *name, *what;
    cmd_fn *run;
    bool threads; /* runs models */
} commands[] = {
    {"generate", "continue a text with a language model", cmd_generate, true},
    {"translate", "translate lines of text with an encoder-decoder model", cmd_translate, true},
    {"transcribe", "write down what is said in a sound file", cmd_transcribe, true},
    {"embed", "sentence embeddings; rank sentences by similarity", cmd_embed, true},
    {"fill", "predict the most likely tokens for the masks in a text", cmd_fill, true},
    {"classify", "classify images, texts, or the words of texts", cmd_classify, true},
    {"answer", "find the answer to a question in a text", cmd_answer, true},
    {"eval", "evaluate loss and perplexity on a text", cmd_eval, true},
    {"train", "train a model on a text", cmd_train, true},
    {"plan", "predict memory, communication and speed of training on many ranks", cmd_plan, true},
    {"tokenizer", "train a vocabulary; convert text to token ids and back", cmd_tokenizer, false},
    {"compile", "compile a model to an object, a library or a program", cmd_compile_ahead, false},
    {"import", "convert a model of another format to a model folder", cmd_import, false},
    {"quantize", "make a model folder for 8- and 4-bit weights", cmd_quantize, false},
    {"inspect", "describe a model folder, and look inside a model while it reads a text",
     cmd_inspect, true},
    {"explain", "show the kernel of every operation, what was fused, and what was not", cmd_explain,
     false},
    {"report", "write a page that shows graph, kernels, times and memory of a model", cmd_report,
     true},
    {"run", "run a model written in C", cmd_run, true},
    {"call", "run an entry of a model on given arrays, and write outputs and gradients", cmd_call,
     true},
    {"check", "check a model: evaluator, fusion levels, gradients, threads, decoding", cmd_check,
     true},
    {"bench", "measure kernels and models beside the machine's limits and other systems", cmd_bench,
     true},
    {"cache", "show or clear the cache of compiled kernels, models and tuned choices", cmd_cache,
     false},
    {"completion", "print a script that completes command lines in a shell", cmd_completion, false},
    {"env", "describe this machine and installation", cmd_env, false},
    {"version", "print the version", cmd_version, false},
    {"models", "list the architectures of model folders", cmd_models, false},
    {"opt", "run passes on a graph in text form and print the result", cmd_opt, false},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void print_help(FILE *f) {
    const char *bold = screen_color(f, STYLE_HEADING), *plain = screen_color(f, STYLE_NONE);
    fprintf(f, "%ssinter%s: a transformer compiler\n\n%susage:%s sinter COMMAND [arguments]\n\n",
            bold, plain, bold, plain);
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(f, "  %-12s%s\n", commands[i].name, commands[i].what);
    fprintf(f, "\nsinter help COMMAND or sinter COMMAND --help describes a command.\n\nResults go "
               "to standard output, everything else to standard error.\nExit "
               "codes: 0 success, 1 failure, 2 wrong command line, 130 interrupted.\n");
}

static int find_command(const char *name) {
    const char *names[N_COMMANDS + 2] = {NULL};
    for (int i = 0; i < N_COMMANDS; i++) {
        if (!strcmp(commands[i].name, name)) return i;
        names[i] = commands[i].name;
    }
    names[N_COMMANDS] = "help";
    const char *near = sn_nearest_name(name, names);
    screen_error("sinter", "unknown command '%s'", name);
    if (near) fprintf(stderr, "; did you mean %s?", near);
    fprintf(stderr, "\n(sinter --help lists all commands)\n");
    return -1;
}

int cmd_dispatch(int argc, char **argv) {
    int i = find_command(argv[0]);
    return i < 0 ? EXIT_USAGE : commands[i].run(argc, argv);
}

static bool runs_models(const char *name) {
    for (int i = 0; i < N_COMMANDS; i++)
        if (!strcmp(commands[i].name, name)) return commands[i].threads;
    return false;
}

/* sinter --complete WORDS…: candidates for the last word. */
static int complete(int n, char **word) {
    static char marker[] = ARGS_COMPLETE;
    if (n < 2) {
        for (int i = 0; i < N_COMMANDS; i++)
            if (!n || !strncmp(commands[i].name, word[0], strlen(word[0])))
                printf("%s\t%s\n", commands[i].name, commands[i].what);
        return EXIT_OK;
    }
    if (!strcmp(word[n - 2], "--preset"))
        return cmd_offer(word[n - 1], sn_model_preset_name), EXIT_OK;
    char **line = calloc((size_t)n + 2, sizeof *line);
    if (!line) return EXIT_WRONG;
    line[0] = word[0], line[1] = marker;
    for (int i = 1; i < n; i++) line[i + 1] = word[i];
    int code = cmd_dispatch(n + 1, line);
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

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : NULL;
    if (name && !strcmp(name, ARGS_COMPLETE)) return complete(argc - 2, argv + 2);
    if (name && !strcmp(name, ARGS_CHECK) && argc > 2) {
        screen()->check_only = true;
        return cmd_dispatch(argc - 2, argv + 2);
    }
    if (!name) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    if (runs_models(name)) sn_threads_limit_spinning(argv);
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
    if (!help) return cmd_dispatch(argc - 1, argv + 1);
    char *ask[4] = {argv[2]}; /* help bench model */
    int n = 1;
    if (argc > 3) ask[n++] = argv[3];
    ask[n++] = "--help";
    return cmd_dispatch(n, ask);
}
