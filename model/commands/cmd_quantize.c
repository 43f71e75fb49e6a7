/* cmd_quantize.c: `sinter quantize`: makes a model folder whose weights and products take few bits at a
 * small, measured loss. */
#include "model/commands/commands.h"
#include "model/quantise/folder.h"
#include "model/quantise/quantise.h"
#include "runtime/clock.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME "sinter quantize"

typedef struct options {
    const char *model, *output, *text, *target, *tokenizer, *weights, *compute, *max_loss,
        *cache_dir;
    int64_t tokens, window, threads;
    double damping;
    bool force, quick, no_smooth, no_compensate;
} options;

#define AT(field) offsetof(options, field)
static const arg table[] = {
    {"MODEL", 0, ARG_PLACE, AT(model), NULL, NULL, 0, 0, "model folder or GGUF file"},
    {"output", 'o', ARG_TEXT, AT(output), "DIR", NULL, 0, 0, "output folder"},
    {"text", 0, ARG_TEXT, AT(text), "FILE", NULL, 0, 0,
     "calibration text of the kind that the model will read; encoders: one text per line; -: "
     "standard input"},
    {"target", 0, ARG_TEXT, AT(target), "FILE", NULL, 0, 0,
     "encoder-decoders: the results of the lines of --text"},
    {"weights", 0, ARG_CHOICE, AT(weights), "int8|int4", "int8", 0, 0,
     "storage of the matrices that the folder is made for; int8: for --compute int8, too"},
    {"max-loss", 0, ARG_TEXT, AT(max_loss), "P%", "auto", 0, 0,
     "most that may be lost: of perplexity, of the cosine of embeddings, or of greedy tokens; "
     "auto: "
     "2.5% with int4; with int8 0.5%, encoders 0.15%, encoder-decoders 0.05%"},
    {"tokens", 0, ARG_INT, AT(tokens), "N", "32768", 16, 1 << 30,
     "calibrate with at most N tokens of the text, evenly distributed; measure with a quarter of "
     "that"},
    {"window", 0, ARG_INT, AT(window), "N", "512", 2, 1 << 24,
     "decoders: tokens per sequence, if the context allows"},
    {"quick", 0, ARG_FLAG, AT(quick), NULL, NULL, 0, 0,
     "measure single products only if the whole loses more than --max-loss"},
    {"no-smooth", 0, ARG_FLAG, AT(no_smooth), NULL, NULL, 0, 0,
     "do not move outliers of activations into weights"},
    {"no-compensate", 0, ARG_FLAG, AT(no_compensate), NULL, NULL, 0, 0,
     "int4: round to the nearest integers, instead of compensating errors"},
    {"damping", 0, ARG_NUMBER, AT(damping), "X", "0.01", 1e-6, 1,
     "int4: part of the mean that is added to the diagonal of the inputs' second moments"},
    {"tokenizer", 0, ARG_TEXT, AT(tokenizer), "PATH", NULL, 0, 0,
     "tokenizer file or folder; default: the model's"},
    {"force", 0, ARG_FLAG, AT(force), NULL, NULL, 0, 0,
     "replace a folder that sinter quantize wrote"},
    {"threads", 't', ARG_INT, AT(threads), "N", "0", 0, 1024, "threads, 0: all available CPUs"},
    {"cache-dir", 0, ARG_TEXT, AT(cache_dir), "DIR|none", NULL, 0, 0,
     "cache of compiled kernels; default: ~/.cache/sinter"},
    {0},
};

static const arg_key keys[] = {
    {"output", "text", "the folder"},
    {"weights", "text", "storage of the matrices"},
    {"tokens", "integer", "tokens that calibrated"},
    {"measured_tokens", "integer", "tokens that measured"},
    {"products", "integer", "matrices that are products' right factors"},
    {"perplexity", "number?", "of the model in f32, if it has a loss"},
    {"measure", "text", "what may be lost: perplexity, 1 - cosine, or greedy tokens"},
    {"lost", "number", "part of it that is lost: 0.01 is 1 %"},
    {"limit", "number", "--max-loss, as a part"},
    {"kept", "list", "names of the matrices that keep more bits"},
    {0}};

static const arg_command command = {
    NAME,
    "make a model folder for 8- and 4-bit weights",
    "Runs the calibration text through the compiled model. The last fifth of the text is only "
    "measured\nwith. Writes a model folder that every command takes, and that is used with its "
    "weights "
    "unless\n--weights says otherwise. Matrices that lose too much in few bits keep more; "
    "config.json "
    "lists them.\n--weights int4 compensates rounding errors (GPTQ). Ctrl-C ends it without a "
    "trace.\nThe folder holds f32 numbers that fewer bits represent without loss: it is as large "
    "as "
    "before.\nWhat ships in few bits is what `sinter compile` makes of it.\n",
    table,
    .examples = "sinter quantize MODEL --text text.txt -o quantised --weights int4 --quick\n",
    .json = keys};

/* ---- progress ---- */

typedef struct report {
    screen_progress progress;
    double begin;
} report;

static volatile sig_atomic_t caught; /* the first signal that ends it; 0: none */

static void on_signal(int signal) {
    if (!caught) caught = signal;
}

static void catch_signals(void) {
    static const int list[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction now, note = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        bool ignored = sigaction(list[i], NULL, &now) == 0 && now.sa_handler == SIG_IGN;
        if (!ignored) sigaction(list[i], &note, NULL);
    }
}

static bool show(void *ctx, const char *what, double done) {
    report *s = ctx;
    double now = sn_clock();
    char left[40] = "";
    if (done <= 0) s->begin = now;
    if (done > 0.02)
        snprintf(left, sizeof left, ", %.0f s left", (now - s->begin) * (1 - done) / done);
    sn_screen_progress_show(&s->progress, "quantize: %s (%.0f %%%s)", what, 100 * done, left);
    return !caught;
}

static void line(void *ctx, const char *text) {
    report *s = ctx;
    sn_screen_progress_end(&s->progress);
    if (sn_screen()->json) return; /* the result alone */
    puts(text);
    fflush(stdout);
}

/* ---- options ---- */

/* "0.5%" or "0.5": percent. */
static bool read_loss(const options *o, const subject *s, double *loss, sn_error *err) {
    static const double usual[] = {
        [SUBJECT_LOSS] = 0.005, [SUBJECT_COSINE] = 0.0015, [SUBJECT_GREEDY] = 0.0005};
    *loss = !strcmp(o->weights, "int4") ? 0.025 : usual[s->kind];
    if (!strcmp(o->max_loss, "auto")) return true;
    char *end;
    double value = strtod(o->max_loss, &end);
    if (end != o->max_loss && *end == '%') end++;
    if (end == o->max_loss || *end || !(value >= 0 && value <= 1000))
        return sn_fail(err, SN_ERR_USAGE, "--max-loss %s: give percent, such as 0.5%%",
                       o->max_loss);
    *loss = value / 100;
    return true;
}

static bool check_options(const options *o, sn_error *err) {
    const char *missing = !o->text     ? "the calibration text: --text FILE"
                          : !o->output ? "the output folder: -o DIR"
                                       : NULL;
    if (missing)
        return sn_fail(err, SN_ERR_USAGE, "give %s\n(%s --help lists all options)", missing, NAME);
    return true;
}

static bool read_file(const char *path, subject_file *f, sn_error *err) {
    if (!path) return true;
    f->name = path;
    f->data = sn_text_read(path, &f->size, err);
    return f->data != NULL;
}

/* ---- the command ---- */

static void print_begin(const subject *s) {
    if (sn_screen()->json) return;
    printf("%s: %lld tokens to calibrate, %lld to measure", s->m->model.type, (long long)s->tokens,
           (long long)s->held_tokens);
    if (s->skipped) printf(", %d texts longer than the context left out", s->skipped);
    printf("; %d products\n", s->n_product);
    fflush(stdout);
}

static void print_json(const options *o, const subject *s, const quantised *q, const char *what,
                       double loss, double limit) {
    json_out j = sn_json_begin(stdout);
    sn_json_text(&j, "output", o->output);
    sn_json_text(&j, "weights", q->weights);
    sn_json_integer(&j, "tokens", (int64_t)s->tokens);
    sn_json_integer(&j, "measured_tokens", (int64_t)s->held_tokens);
    sn_json_integer(&j, "products", s->n_product);
    if (s->kind == SUBJECT_LOSS) sn_json_number(&j, "perplexity", exp(s->reference));
    sn_json_text(&j, "measure", what);
    sn_json_number(&j, "lost", loss);
    sn_json_number(&j, "limit", limit);
    sn_json_list(&j, "kept");
    for (int i = 0; i < q->n_keep; i++) sn_json_text(&j, NULL, q->keep[i].param);
    sn_json_close(&j);
    sn_json_end(&j);
}

static void print_end(const options *o, const subject *s, const quantised *q, double loss,
                      double limit) {
    const char *what = subject_measure_name(s);
    if (sn_screen()->json) {
        print_json(o, s, q, what, loss, limit);
    } else {
        if (s->kind == SUBJECT_LOSS) printf("perplexity %.4f in f32, ", exp(s->reference));
        printf("%s %+.3f %% with %s (at most %.3g %%): %d matrices keep more bits\n", what,
               100 * loss, q->weights, 100 * limit, q->n_keep);
    }
    sn_screen_wrote(NAME, o->output);
    if (loss > limit)
        fprintf(stderr,
                "%s: note: the loss is above --max-loss although everything that can be is kept in "
                "more bits\n",
                NAME);
}

static bool run(const options *o, sn_error *err) {
    report lines = {0};
    const subject_progress progress = {show, line, &lines};
    subject s = {0};
    quantised q = {0};
    quantise_folder folder = {.lock = -1};
    quantise_options qo = {.weights = o->weights,
                           .compute = strcmp(o->weights, "int4") ? "int8" : NULL,
                           .smooth = !o->no_smooth,
                           .compensate = !o->no_compensate,
                           .damping = o->damping,
                           .quick = o->quick};
    cmd_compile compile = {
        .level = 4, .threads = o->threads, .cache_dir = o->cache_dir, .weights = "f32"};
    qo.subject = (subject_options){.command = NAME,
                                   .path = o->model,
                                   .tokenizer = o->tokenizer,
                                   .tokens = o->tokens,
                                   .window = o->window,
                                   .compile = cmd_options(&compile)};
    double loss = 0;
    bool ok = check_options(o, err) && read_file(o->text, &qo.subject.text, err) &&
              read_file(o->target, &qo.subject.target, err) && subject_open(&s, &qo.subject, err) &&
              read_loss(o, &s, &qo.max_loss, err);
    if (ok) catch_signals();
    ok = ok && quantise_folder_open(&folder, o->output, o->force, err);
    if (ok) print_begin(&s);
    ok = ok && quantise(&s, &qo, &progress, &q, &loss, err) &&
         subject_show(&progress, err, 1, "writing") && quantise_folder_save(&folder, &s, &q, err);
    sn_screen_progress_end(&lines.progress);
    if (ok) print_end(o, &s, &q, loss, qo.max_loss);
    if (ok && folder.left_out.count)
        fprintf(stderr,
                "%s: note: not copied, because it is a link out of the folder, a folder "
                "link, a folder more than 4 deep or not a file: %s%s\n",
                NAME, folder.left_out.text,
                folder.left_out.count > folder.left_out.shown ? "; ..." : "");
    quantise_folder_close(&folder);
    quantised_free(&q);
    subject_close(&s);
    free((void *)(uintptr_t)qo.subject.text.data);
    free((void *)(uintptr_t)qo.subject.target.data);
    return ok;
}

int cmd_quantize(int argc, char **argv) {
    options o;
    int code = sn_args_parse(&command, argc, argv, &o);
    if (code != ARGS_RUN) return code;
    sn_error err = {0};
    if (run(&o, &err)) return cmd_finish(NAME);
    if (!caught) return cmd_fail(NAME, &err);
    fprintf(stderr, "%s: interrupted: nothing was written\n", NAME);
    return 128 + caught;
}
