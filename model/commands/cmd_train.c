/* cmd_train.c: `sinter train`: trains a model from a config and a text. */
#include "model/commands/commands.h"
#include "runtime/cli/drawing.h"
#include "model/train/train.h"
#include "model/train/train_ranks.h"

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
    const char *config, *output, *text, *source, *precision, *optimizer;
    const char *reduction;
    int64_t steps, seed, warmup, batch, block, validate_every, slices, zero, tensor, context;
    double rate;
    const char *profile;
    bool resume, force;
} options;

#define AT(field) offsetof(options, field)
static const arg table[] = {
    {"CONFIG", 0, ARG_PLACE, AT(config), NULL, NULL, 0, 0,
     "JSON file, a model folder or GGUF file to fine-tune, or a model in C"},
    {"output", 'o', ARG_TEXT, AT(output), "DIR", NULL, 0, 0, "folder of the model and the run"},
    {"resume", 'r', ARG_FLAG, AT(resume), NULL, NULL, 0, 0, "resume the run in DIR"},
    {"force", 0, ARG_FLAG, AT(force), NULL, NULL, 0, 0, "start over, overwriting the run in DIR"},
    CMD_CHECK_NAN_ARG(options),
    {"text", 0, ARG_TEXT, AT(text), "FILE", NULL, 0, 0,
     "training text, -: standard input; default: the config's"},
    {"source", 0, ARG_TEXT, AT(source), "FILE", NULL, 0, 0,
     "the C file (.c, .so) of the model in the folder CONFIG"},
    {"steps", 'n', ARG_INT, AT(steps), "N", "0", 0, 1 << 30,
     "stop after step N; 0: as in the config"},
    {"optimizer", 0, ARG_CHOICE, AT(optimizer),
     "sgd|rmsprop|adagrad|adam|adamw|lion|muon|normuon|adafactor|shampoo|soap", NULL, 0, 0,
     "optimizer, with its usual settings; muon, normuon, shampoo and soap for hidden matrices, "
     "with "
     "adamw for the rest; default: the config's"},
    {"rate", 0, ARG_NUMBER, AT(rate), "R", "auto", 0, 1e3,
     "learning rate after the warm-up; auto: as in the config"},
    {"warmup", 0, ARG_INT, AT(warmup), "N", "auto", 0, INT32_MAX,
     "steps in which the rate rises from 0; auto: as in the config"},
    {"batch", 0, ARG_INT, AT(batch), "N", "0", 0, 1 << 20, "rows per batch; 0: as in the config"},
    {"block", 0, ARG_INT, AT(block), "N", "0", 0, 1 << 24, "tokens per row; 0: as in the config"},
    {"validate-every", 0, ARG_INT, AT(validate_every), "N", "0", 0, INT32_MAX,
     "steps between validations and between checkpoints; 0: as in the config"},
    {"slices", 0, ARG_INT, AT(slices), "N", "0", 0, 1 << 20,
     "equal parts of a batch, whose gradients are added in an order that no number of ranks "
     "changes; "
     "0: as in the config"},
    {"zero", 0, ARG_INT, AT(zero), "N", "auto", 0, 3,
     "what ranks divide among themselves, 1: the optimizer's states; 2: the gradients, too; 3: the "
     "parameters, too; 0: nothing; auto: as in the config. No bit changes"},
    {"tensor", 0, ARG_INT, AT(tensor), "P", "0", 0, 1 << 16,
     "so many ranks share a model (heads, MLPs, vocabulary), the others compute other slices; 0: "
     "as "
     "in the config"},
    {"context", 0, ARG_INT, AT(context), "P", "0", 0, 1 << 16,
     "so many ranks divide the tokens of each row, for rows that one cannot hold; 0: as in the "
     "config"},
    {"reduction", 0, ARG_CHOICE, AT(reduction), "exact|fast", "exact", 0, 0,
     "sums over ranks; exact: the same bits for any number of ranks; fast: what MPI takes for "
     "fastest"},
    {"seed", 0, ARG_INT, AT(seed), "S", "auto", 0, INT32_MAX,
     "random seed; auto: as in the config"},
    {"precision", 0, ARG_CHOICE, AT(precision), "f32|bf16", NULL, 0, 0,
     "precision of activations stored for the backward pass; default: the config's"},
    CMD_PROFILE_ARG(options),
    CMD_COMPILE_ARGS(options),
    {0},
};

static const arg_key keys[] = {
    {"step", "integer?", "one line per logged step, as in metrics.jsonl"},
    {"loss", "number?", "of the last batch; of the last line: of the last step"},
    {"validation_loss", "number?", "of a step with a validation"},
    {"norm", "number?", "norm of the gradient"},
    {"rate", "number?", "learning rate"},
    {"precision", "text?", "--precision"},
    {"tokens_per_second", "number?", "speed"},
    {"gflops", "number?", "speed"},
    {"seconds", "number?", "since the start"},
    {"steps", "integer?", "last line: steps in all"},
    {"best", "number?", "last line: lowest validation loss; null: none"},
    {"best_step", "integer?", "last line: its step"},
    {"parameters", "integer?", "last line: number of parameters"},
    {0}};

static const arg_command command = {
    NAME,
    "train a model on a text",
    "CONFIG has the sections model (the keys of config.json), tokenizer, data, optimizer,\n"
    "schedule and training; docs/training.md lists all keys. DIR becomes a model folder for\n"
    "generate, eval and the other commands; the run adds checkpoint.safetensors, metrics.jsonl\n"
    "and loss.svg (loss.png, too, where rsvg-convert is). Ctrl-C (SIGINT, SIGTERM, SIGHUP) saves "
    "the run and exits with code\n"
    "128 + signal. --resume continues it with bit-identical results, as if it had never\n"
    "stopped. A model folder as CONFIG is fine-tuned, by default at a rate of 5e-5.\n",
    table,
    .examples =
        "sinter train examples/train/shakespeare.json -o shakespeare -n 20 --profile trace.json\n"
        "sinter train examples/train/shakespeare.json -o shakespeare\n"
        "sinter generate shakespeare -p \"ROMEO:\" -n 300\n",
    .json = keys};

typedef struct run {
    const options *o;
    const sn_comm *comm;
    bool written; /* the profile of all ranks */
    screen_progress progress;
    sn_trace *trace;
    sn_error trace_error;
} run;

static void show_line(void *ctx, const char *line) {
    run *r = ctx;
    sn_screen_progress_show(&r->progress, "%s", line);
}

static void show_event(void *ctx, const char *line) {
    run *r = ctx;
    sn_screen_progress_end(&r->progress);
    if (!sn_screen()->quiet) fprintf(stderr, "%s\n", line);
}

/* With --json: the lines of metrics.jsonl. */
static void show_metrics(void *ctx, const char *line) {
    (void)ctx;
    fputs(line, stdout);
    fflush(stdout);
}

/* The first signal that requested the end; 0: none. */
static volatile sig_atomic_t caught;

static void on_signal(int signal) {
    if (!caught) caught = signal;
}

static bool was_stopped(void *ctx) {
    (void)ctx;
    return caught != 0;
}

/* From the first step on, a signal is noted, and the run saves and exits. Before that there is
 * nothing to save: signals end the process as usual, even while it reads, compiles or tunes. With
 * nohup the run survives the loss of its terminal. A closed pipe on our output must not end it
 * either. */
static void catch_signals(void *ctx, sn_session *session) {
    run *r = ctx;
    static const int list[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction now, note = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        bool ignored = sigaction(list[i], NULL, &now) == 0 && now.sa_handler == SIG_IGN;
        if (list[i] != SIGHUP || !ignored) sigaction(list[i], &note, NULL);
    }
    signal(SIGPIPE, SIG_IGN);
    enum { EVENTS = 1 << 20 };
    if (r->comm && r->comm->rank && r->o->profile) /* the first rank writes the file */
        r->trace = sn_trace_begin(session, NULL, EVENTS, &r->trace_error);
    else
        r->trace = cmd_profile_begin(r->o->profile, session, &r->trace_error);
}

/* One file with the calls of all ranks. */
static bool write_profile(void *ctx, train_ranks *ranks, sn_error *err) {
    run *r = ctx;
    *err = r->trace_error;
    bool ok = train_ranks_agree(ranks, r->trace != NULL, err) &&
              train_profile_write(ranks, r->trace, r->o->profile, err);
    r->written = true;
    r->trace_error = (sn_error){0};
    return ok;
}

static bool change_settings(const options *o, train_settings *s, sn_error *err) {
    if (o->steps) s->steps = o->steps;
    if (o->seed >= 0) s->seed = s->data.seed = (uint64_t)o->seed;
    if (o->precision) s->precision = o->precision;
    if (o->optimizer && !train_settings_optimizer(s, o->optimizer, err)) return false;
    sn_schedule *c = &s->training.schedule;
    if (o->rate >= 0) c->peak = o->rate;
    if (o->warmup >= 0) c->warmup = o->warmup;
    if (o->batch) s->data.batch = o->batch;
    if (o->block) s->data.block = o->block;
    if (o->slices) s->slices = o->slices;
    if (o->zero >= 0) s->zero = (int)o->zero;
    if (o->tensor > 0) s->tensor = o->tensor;
    if (o->context > 0) s->context = o->context;
    s->reduction = !strcmp(o->reduction, "fast") ? SN_REDUCE_FAST : SN_REDUCE_EXACT;
    if (o->validate_every) s->validate_every = s->save_every = o->validate_every;
    if (c->total > 0 && c->warmup >= c->total)
        return sn_fail(err, SN_ERR_USAGE,
                       "--warmup %lld must be less than the number of steps, %lld",
                       (long long)c->warmup, (long long)c->total);
    if (!o->text) return true;
    const char *text = cmd_input_path(o->text, err);
    if (!text) return false;
    free(s->text);
    s->text = strdup(text);
    return s->text || sn_fail(err, SN_ERR_MEMORY, "out of memory");
}

static void print_result(const train_result *r) {
    if (sn_screen()->json) {
        json_out j = sn_json_begin(stdout);
        sn_json_integer(&j, "steps", r->steps);
        sn_json_number(&j, "loss", r->loss);
        sn_json_number(&j, "validation_loss", r->validation);
        sn_json_number(&j, "best", r->best);
        sn_json_integer(&j, "best_step", r->best_step);
        sn_json_integer(&j, "parameters", r->parameters);
        sn_json_number(&j, "tokens_per_second", r->tokens_per_second);
        sn_json_number(&j, "gflops", r->gflops);
        sn_json_number(&j, "seconds", r->seconds);
        sn_json_end(&j);
        return;
    }
    printf("steps            %lld\n", (long long)r->steps);
    if (isfinite(r->loss)) printf("loss             %.5f\n", r->loss);
    if (isfinite(r->validation)) printf("validation_loss  %.5f\n", r->validation);
    if (isfinite(r->best))
        printf("best             %.5f (step %lld)\n", r->best, (long long)r->best_step);
    if (r->seconds > 0)
        printf("tokens_per_s     %.0f\ngflops           %.1f\nseconds          %.1f\n",
               r->tokens_per_second, r->gflops, r->seconds);
}

/* loss.png beside loss.svg, if a converter is installed. */
static void draw_png(const char *folder) {
    sn_error none = {0};
    char *svg = sn_path_join(folder, "loss.svg"), *png = sn_path_join(folder, "loss.png");
    if (svg && png) sn_drawing_convert(svg, png, &none);
    free(svg);
    free(png);
}

static int finish(const options *o, train_end end, const train_result *r, const sn_error *err) {
    if (end == TRAIN_FAILED) return cmd_fail(NAME, err);
    if (end == TRAIN_EARLY)
        sn_screen_say(NAME, "the validation loss stopped improving: ended after step %lld",
                      (long long)r->steps);
    if (end == TRAIN_INTERRUPTED) {
        fprintf(stderr,
                "%s: interrupted after step %lld; the run is saved in %s. To continue, repeat the "
                "command with --resume\n",
                NAME, (long long)r->steps, o->output);
        return 128 + (caught ? caught : SIGTERM); /* which another rank got */
    }
    if (end == TRAIN_DONE && !(r->seconds > 0))
        sn_screen_say(
            NAME,
            "nothing to do: the run in %s is already at step %lld; --steps N continues to a "
            "later one",
            o->output, (long long)r->steps);
    print_result(r);
    draw_png(o->output);
    sn_screen_say(NAME, "model, metrics.jsonl and loss.svg are in %s", o->output);
    sn_screen_wrote(NAME, o->output);
    return cmd_finish(NAME);
}

/* The first rank speaks. */
static void speak(const sn_comm *c, train_request *r) {
    bool leads = !c || c->rank == 0;
    r->progress = leads ? show_line : NULL;
    r->event = leads ? show_event : NULL;
    r->metrics = leads && sn_screen()->json ? show_metrics : NULL;
    if (leads) return;
    r->compile.advance = NULL;
    r->compile.progress = NULL;
    sn_screen()->quiet = true;
}

/* Ends this rank, or all of them if the others wait for this one. */
static int end_ranks(sn_comm *c, const options *o, train_end end, const train_result *r,
                     const sn_error *err) {
    if (c && r->alone && c->size > 1) {
        sn_screen_error(NAME, "rank %d on %s: %s\n", c->rank, c->host[c->rank], err->message);
        c->ops->abort(c, EXIT_WRONG);
    }
    int code = !c || c->rank == 0         ? finish(o, end, r, err)
               : end == TRAIN_FAILED      ? EXIT_WRONG
               : end == TRAIN_INTERRUPTED ? 128 + (caught ? caught : SIGTERM)
                                          : EXIT_OK;
    sn_comm_close(c);
    return code;
}

int cmd_train(int argc, char **argv) {
    options o;
    int code = sn_args_parse(&command, argc, argv, &o);
    if (code != ARGS_RUN) return code;
    if (!o.output) {
        sn_screen_error(NAME, "no output folder: give -o DIR\n(%s --help lists all options)\n",
                        NAME);
        return EXIT_USAGE;
    }
    sn_error err = {0};
    run shown = {.o = &o};
    train_settings settings;
    sn_comm *comm = NULL;
    if (!sn_comm_open(&comm, &err)) return cmd_fail(NAME, &err);
    shown.comm = comm;
    bool ok = train_settings_read(o.config, o.source, &settings, &err) &&
              change_settings(&o, &settings, &err);
    ok = sn_comm_agree(comm, ok, &err);
    train_request r = {.settings = &settings,
                       .folder = o.output,
                       .resume = o.resume,
                       .force = o.force,
                       .compile = cmd_options(&o.compile),
                       .comm = comm,
                       .begun = catch_signals,
                       .ended = comm && o.profile ? write_profile : NULL,
                       .stopped = was_stopped,
                       .ctx = &shown};
    r.compile.threads = cmd_rank_threads(comm, r.compile.threads);
    speak(comm, &r);
    train_result result = {0};
    train_end end = ok ? train_run(&r, &result, &err) : TRAIN_FAILED;
    sn_screen_progress_end(&shown.progress);
    code = end_ranks(comm, &o, end, &result, &err);
    bool kept = shown.written ? cmd_profile_wrote(o.profile, shown.trace)
                              : cmd_profile_end(o.profile, shown.trace, &shown.trace_error);
    if (shown.trace_error.code || !kept) code = cmd_fail(NAME, &shown.trace_error);
    train_settings_free(&settings);
    return code;
}
