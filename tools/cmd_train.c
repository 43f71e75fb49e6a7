/* cmd_train.c: `sinter train`: from a config and a text to a model folder. */
#include "tools/cmd.h"
#include "tools/train.h"

#include "runtime/file.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME "sinter train"

typedef struct options {
    cmd_compile compile;
    const char *config, *output, *text, *source, *precision;
    int64_t steps, seed;
    bool resume, force, check_nan;
} options;

#define AT(field) offsetof(options, field)
static const arg table[] = {
    {"CONFIG", 0, ARG_PLACE, AT(config), NULL, NULL, 0, 0,
     "JSON file, a model folder to train further, or a model in C"},
    {"output", 'o', ARG_TEXT, AT(output), "DIR", NULL, 0, 0, "folder of the model and the run"},
    {"resume", 'r', ARG_FLAG, AT(resume), NULL, NULL, 0, 0, "go on where the run in DIR stopped"},
    {"force", 0, ARG_FLAG, AT(force), NULL, NULL, 0, 0, "begin anew although DIR has a run"},
    {"check-nan", 0, ARG_FLAG, AT(check_nan), NULL, NULL, 0, 0,
     "stop at the kernel that makes the first NaN or infinity, and tell its operations"},
    {"text", 0, ARG_TEXT, AT(text), "FILE", NULL, 0, 0, "what to train on; else the config's"},
    {"source", 0, ARG_TEXT, AT(source), "FILE", NULL, 0, 0,
     "the model in C (.c, .so) whose weights CONFIG, a folder, holds"},
    {"steps", 'n', ARG_INT, AT(steps), "N", "0", 0, 1 << 30,
     "stop after step N; 0: the config's number"},
    {"seed", 0, ARG_INT, AT(seed), "S", "-1", -1, INT32_MAX,
     "of weights, order and dropout; -1: the config's"},
    {"precision", 0, ARG_CHOICE, AT(precision), "f32|bf16", NULL, 0, 0,
     "of what the forward pass keeps for the backward pass; else the config's"},
    CMD_COMPILE_ARGS(options),
    {0},
};

static const arg_command command = {
    NAME, "train a model on a text",
    "CONFIG has the sections model (the keys of config.json), tokenizer, data, optimizer,\n"
    "schedule and training; docs/training.md lists all keys. DIR becomes a model folder for\n"
    "generate, eval and the rest, with the run beside it: checkpoint.safetensors,\n"
    "metrics.jsonl, loss.svg. Ctrl-C saves and leaves; --resume then goes on, and gives the\n"
    "same bits as a run that was never stopped.\n"
    "\n  sinter train examples/train/shakespeare.json -o shakespeare\n"
    "  sinter generate shakespeare -p \"ROMEO:\" -n 300\n",
    table};

typedef struct screen {
    cmd_progress progress;
    sigset_t signals;
} screen;

static void show_line(void *ctx, const char *line) {
    screen *s = ctx;
    cmd_progress_show(&s->progress, "%s", line);
}

static void show_event(void *ctx, const char *line) {
    screen *s = ctx;
    cmd_progress_end(&s->progress);
    fprintf(stderr, "%s\n", line);
}

/* Ctrl-C and a request to end are waited for, not delivered. */
static bool was_stopped(void *ctx) {
    const screen *s = ctx;
    static const struct timespec at_once = {0};
    return sigtimedwait(&s->signals, NULL, &at_once) > 0;
}

static void catch_signals(screen *s) {
    sigemptyset(&s->signals);
    sigaddset(&s->signals, SIGINT);
    sigaddset(&s->signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &s->signals, NULL);
}

static bool change_settings(const options *o, train_settings *s, sn_error *err) {
    if (o->steps) s->steps = o->steps;
    if (o->seed >= 0) s->seed = s->data.seed = (uint64_t)o->seed;
    if (o->precision) s->precision = o->precision;
    if (!o->text) return true;
    free(s->text);
    s->text = strdup(o->text);
    return s->text || sn_fail(err, SN_ERR_MEMORY, "out of memory");
}

static void print_result(const train_result *r) {
    printf("steps            %lld\n", (long long)r->steps);
    if (isfinite(r->loss)) printf("loss             %.5f\n", r->loss);
    if (isfinite(r->validation)) printf("validation_loss  %.5f\n", r->validation);
    if (isfinite(r->best))
        printf("best             %.5f (step %lld)\n", r->best, (long long)r->best_step);
    if (r->seconds > 0)
        printf("tokens_per_s     %.0f\ngflops           %.1f\nseconds          %.1f\n",
               r->tokens_per_second, r->gflops, r->seconds);
}

static int finish(const options *o, train_end end, const train_result *r, const sn_error *err) {
    if (end == TRAIN_FAILED) return cmd_fail(NAME, err);
    if (end == TRAIN_EARLY)
        fprintf(stderr, "%s: the validation loss no longer falls: stopped after step %lld\n", NAME,
                (long long)r->steps);
    if (end == TRAIN_INTERRUPTED) {
        fprintf(stderr,
                "%s: interrupted after step %lld; all is saved in %s. To go on: %s %s -o %s "
                "--resume\n",
                NAME, (long long)r->steps, o->output, NAME, o->config, o->output);
        return EXIT_WRONG;
    }
    if (end == TRAIN_DONE && !(r->seconds > 0))
        fprintf(stderr,
                "%s: nothing to do: the run in %s is at step %lld already; --steps N goes "
                "on to a later one\n",
                NAME, o->output, (long long)r->steps);
    print_result(r);
    fprintf(stderr, "%s: model, metrics.jsonl and loss.svg are in %s\n", NAME, o->output);
    return cmd_finish(NAME);
}

int cmd_train(int argc, char **argv) {
    options o;
    int code = args_parse(&command, argc, argv, &o);
    if (code != ARGS_RUN) return code;
    if (!o.output) {
        fprintf(stderr, "%s: give the folder to make: -o DIR\n(%s --help lists all options)\n",
                NAME, NAME);
        return EXIT_USAGE;
    }
    sn_error err = {0};
    screen s = {0};
    train_settings settings;
    catch_signals(&s);
    if (!train_settings_read(o.config, o.source, &settings, &err)) return cmd_fail(NAME, &err);
    train_request r = {.settings = &settings,
                       .folder = o.output,
                       .resume = o.resume,
                       .force = o.force,
                       .compile = cmd_options(&o.compile),
                       .progress = show_line,
                       .event = show_event,
                       .stopped = was_stopped,
                       .ctx = &s};
    r.compile.check_nan = o.check_nan;
    train_result result = {0};
    train_end end =
        change_settings(&o, &settings, &err) ? train_run(&r, &result, &err) : TRAIN_FAILED;
    cmd_progress_end(&s.progress);
    code = finish(&o, end, &result, &err);
    train_settings_free(&settings);
    return code;
}
