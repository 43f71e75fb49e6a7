/* Training runs as `sinter train` makes them: a run that is stopped, or killed, and resumed gives the same bits as one
 * that is not; so do one thread and two; a full disk leaves the old checkpoint; wrong configs, data and checkpoints are
 * refused with a reason; the folder is a model. */
#include "ir/ir.h"
#include "runtime/file.h"
#include "model/open.h"
#include "model/train/train.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <spawn.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "tests/model/kill_at_change.h"
#include "tests/support/scratch.h"
#include "tests/support/text.h"

extern char **environ;

enum { STEPS = 12 };

/* Where a run is stopped, and how. */
typedef struct script {
    int64_t stop_at, kill_at, limit_at; /* steps; 0: never */
    int64_t step;
    rlim_t limit;
    int stop_poll, polls; /* the call of on_stop that says yes; 0: none. How many there were */
    char event[1024];     /* all events */
    bool force;
} script;

static void on_progress(void *ctx, const char *line) {
    script *s = ctx;
    s->step = strtoll(line + strlen("step "), NULL, 10);
    if (s->kill_at && s->step == s->kill_at) raise(SIGKILL);
    if (s->limit_at && s->step == s->limit_at) {
        struct rlimit now;
        getrlimit(RLIMIT_FSIZE, &now);
        now.rlim_cur = s->limit;
        setrlimit(RLIMIT_FSIZE, &now);
    }
}

static void on_event(void *ctx, const char *line) {
    script *s = ctx;
    size_t n = strlen(s->event);
    snprintf(s->event + n, sizeof s->event - n, "%s\n", line);
}

static bool on_stop(void *ctx) {
    script *s = ctx;
    s->polls++;
    return (s->stop_at && s->step == s->stop_at) || (s->stop_poll && s->polls == s->stop_poll);
}

static train_end run_config(const char *config, const char *folder, bool resume, int threads,
                            script *how, train_result *result, sn_error *err) {
    train_settings s;
    if (!train_settings_read(config, NULL, &s, err)) return TRAIN_FAILED;
    train_request r = {.settings = &s,
                       .folder = folder,
                       .resume = resume,
                       .force = how->force,
                       .event = on_event,
                       .compile = {.level = -1, .threads = threads},
                       .progress = on_progress,
                       .stopped = on_stop,
                       .ctx = how};
    train_end end = train_run(&r, result, err);
    train_settings_free(&s);
    return end;
}

static const char usual_model[] =
    "{\"model_type\": \"gpt2\", \"n_positions\": 8, \"n_embd\": 16, \"n_layer\": 1, \"n_head\": 2}";
static const char usual_data[] = "\"text\": \"text.txt\"";
static const char usual_training[] = "\"steps\": 12, \"batch\": 4, \"block\": 8, \"dropout\": 0.1, "
                                     "\"save_every\": 3, \"validate_every\": 4, \"log_every\": 3";

/* Writes a config from three sections; returns its path. */
static const char *config_of(const char *model, const char *data, const char *training) {
    char text[2048];
    int n = snprintf(text, sizeof text,
                     "{\"model\": %s, \"data\": {%s}, \"schedule\": {\"kind\": \"cosine\", "
                     "\"rate\": 3e-3, \"warmup\": 2, \"total\": 12}, "
                     "\"optimizer\": {\"clip\": 1, \"average\": 0.7}, "
                     "\"training\": {%s}}",
                     model, data, training);
    assert_true(n > 0 && (size_t)n < sizeof text);
    const char *path = scratch_path("config.json");
    assert_true(scratch_write(path, text, (size_t)n));
    return path;
}

static const char *usual(void) {
    return config_of(usual_model, usual_data, usual_training);
}

static void need(train_end end, train_end want, const sn_error *err) {
    if (end != want) fail_msg("ended with %d, not %d: %s", (int)end, (int)want, err->message);
}

static void same_file(const char *a, const char *b) {
    sn_mapping x, y;
    sn_error err = {0};
    if (!sn_file_map(a, &x, &err) || !sn_file_map(b, &y, &err)) fail_msg("%s", err.message);
    if (x.size != y.size || memcmp(x.data, y.data, x.size) != 0) fail_msg("%s is not %s", a, b);
    sn_file_unmap(&x), sn_file_unmap(&y);
}

static const char *in(const char *folder, const char *file) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return scratch_path(path);
}

/* What a line of the log says of the training, without times. */
static bool next_line(FILE *f, char line[512]) {
    if (!fgets(line, 512, f)) return false;
    char *times = strstr(line, ", \"tokens_per_second\"");
    if (!times) times = strstr(line, ", \"gflops\"");
    if (times) *times = 0;
    return true;
}

static void same_log(const char *a, const char *b) {
    FILE *x = fopen(in(a, "metrics.jsonl"), "r"), *y = fopen(in(b, "metrics.jsonl"), "r");
    assert_true(x && y);
    char line[512], other[512];
    int n = 0;
    for (; next_line(x, line); n++) {
        if (!next_line(y, other)) fail_msg("%s has no line %s", b, line);
        assert_string_equal(line, other);
    }
    if (next_line(y, other)) fail_msg("%s has no line %s", a, other);
    assert_true(n >= 5);
    fclose(x), fclose(y);
}

static const char averaged_model[] = "averaged/model.safetensors";
static void same_run(const char *a, const char *b) {
    same_file(in(a, "checkpoint.safetensors"), in(b, "checkpoint.safetensors"));
    same_file(in(a, "model.safetensors"), in(b, "model.safetensors"));
    same_file(in(a, averaged_model), in(b, averaged_model));
}

/* The run that all others are compared with. */
static int make_reference(void **state) {
    if (scratch_make(state)) return -1;
    char text[3001];
    FILE *f = fopen(SN_SOURCE_DIR "/examples/data/tinyshakespeare.txt", "r");
    bool ok = f && fread(text, 1, 3000, f) == 3000;
    if (f) fclose(f);
    ok = ok && scratch_write(scratch_path("text.txt"), text, 3000);
    script how = {0};
    sn_error err = {0};
    train_result r;
    if (ok && run_config(usual(), scratch_path("whole"), false, 2, &how, &r, &err) != TRAIN_DONE) {
        fprintf(stderr, "%s\n", err.message);
        return -1;
    }
    return ok ? 0 : -1;
}

static void refuse(const char *config, const char *folder, bool resume, const char *say) {
    script how = {0};
    sn_error err = {0};
    train_result r;
    assert_int_equal(run_config(config, scratch_path(folder), resume, 1, &how, &r, &err),
                     TRAIN_FAILED);
    if (!strstr(err.message, say)) fail_msg("'%s' does not say '%s'", err.message, say);
}

static bool has_text(const char *path, const char *text) {
    sn_mapping m;
    sn_error err = {0};
    if (!sn_file_map(path, &m, &err)) fail_msg("%s", err.message);
    bool found = memmem(m.data, m.size, text, strlen(text)) != NULL;
    sn_file_unmap(&m);
    return found;
}

static void test_the_folder_is_a_model(void **unused) {
    (void)unused;
    open_options o = {.path = scratch_path("whole/averaged"), /* as that of the weights */
                      .entries = SN_LOSS | SN_CACHED,
                      .compile = {.level = -1, .threads = 1}};
    sn_error err = {0};
    open_model *m = lm_open(&o, &err);
    if (!m) fail_msg("%s", err.message);
    sn_ids ids = {0};
    assert_true(lm_encode(m, "First", 5, true, &ids, &err));
    assert_int_equal(ids.count, 5); /* it never saw a beginning-of-text token */
    assert_true(lm_feed(m, ids.data, 5, &err));
    float loss[4];
    assert_true(lm_loss(m, ids.data, ids.data + 1, 4, loss, &err));
    assert_true(loss[0] > 0 && loss[0] < 20);
    sn_ids_free(&ids);
    model_close(m);
    assert_true(has_text(in("whole", "loss.svg"), ">loss: mean of -ln P"));     /* of the axis */
    assert_true(has_text(in("whole", "loss.svg"), "r=\"3\" fill=\"#e65100\"")); /* a validation */
}

/* The averages of the last checkpoint. */
static void test_averages(void **unused) {
    (void)unused;
    static const char average[] = "optimizer.average.h.0.attn.c_attn.weight";
    const char *name = average + strlen("optimizer.average.");
    sn_error err = {0};
    sn_weights *run = sn_weights_open(in("whole", "checkpoint.safetensors"), &err),
               *saved = sn_weights_open(in("whole", averaged_model), &err);
    assert_true(run && saved);
    const sn_weight *is = sn_weights_find(saved, name), *mean = sn_weights_find(run, average);
    assert_true(is && mean && is->bytes == mean->bytes);
    assert_memory_equal(is->data, mean->data, mean->bytes);
    assert_memory_not_equal(is->data, sn_weights_find(run, name)->data, mean->bytes);
    sn_weights_close(run), sn_weights_close(saved);
}

static void test_one_thread(void **unused) {
    (void)unused;
    script how = {0};
    sn_error err = {0};
    train_result r;
    need(run_config(usual(), scratch_path("single"), false, 1, &how, &r, &err), TRAIN_DONE, &err);
    assert_true(r.steps == STEPS && isfinite(r.best));
    same_run("single", "whole");
}

static void test_stop_and_resume(void **unused) {
    (void)unused;
    char folder[128];
    snprintf(folder, sizeof folder, "%s", scratch_path("stopped"));
    script how = {.stop_at = 5};
    sn_error err = {0};
    train_result r;
    need(run_config(usual(), folder, false, 2, &how, &r, &err), TRAIN_INTERRUPTED, &err);
    assert_int_equal(r.steps, 5);
    need(run_config(usual(), folder, false, 2, &how, &r, &err), TRAIN_FAILED, &err);
    assert_non_null(strstr(err.message, "--resume"));
    how.stop_at = 10, err.code = 0;
    need(run_config(usual(), folder, true, 1, &how, &r, &err), TRAIN_INTERRUPTED, &err);
    how.stop_at = 0;
    need(run_config(usual(), folder, true, 2, &how, &r, &err), TRAIN_DONE, &err);
    same_run("stopped", "whole");
    same_log("stopped", "whole");
    /* the lines of the log are those of one run, once each */
    int lines = 0;
    double last = 0;
    char line[512];
    FILE *f = fopen(in("stopped", "metrics.jsonl"), "r");
    assert_non_null(f);
    for (; fgets(line, sizeof line, f); lines++) {
        double step = strtod(line + strlen("{\"step\": "), NULL);
        assert_true(step > last);
        last = step;
    }
    fclose(f);
    assert_true(lines >= 3 && last == STEPS);
}

/* Another process, killed at step `at` without a chance to save; its checkpoint is of step 3, 6 or
 * 9, or none. */
static void kill_and_resume(char *config, char *folder, int64_t at) {
    char step[32];
    snprintf(step, sizeof step, "%lld", (long long)at);
    char *argv[] = {"test_train_run", config, scratch_dir, folder, step, NULL};
    pid_t child;
    int status = 0;
    assert_int_equal(posix_spawn(&child, "/proc/self/exe", NULL, NULL, argv, environ), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    script how = {0};
    sn_error err = {0};
    train_result r;
    need(run_config(config, scratch_path(folder), at > 3, 2, &how, &r, &err), TRAIN_DONE, &err);
}

static void test_kill_and_resume(void **unused) {
    (void)unused;
    static const int64_t places[] = {2, 7, 11};
    for (int k = 0; k < 3; k++) {
        char folder[64], config[256];
        snprintf(folder, sizeof folder, "killed%d", k);
        snprintf(config, sizeof config, "%s", usual());
        kill_and_resume(config, folder, places[k]);
        same_run(folder, "whole");
        same_log(folder, "whole");
    }
}

/* A stop while a validation runs: it is done after the resume, and its line is in the log once. */
static void test_stop_in_validation(void **unused) {
    (void)unused;
    sn_error err = {0};
    train_result r;
    script all = {.stop_at = 0};
    need(run_config(usual(), scratch_path("polled"), false, 1, &all, &r, &err), TRAIN_DONE, &err);
    int in_validation = (all.polls - STEPS) / 3; /* of each of the three */
    assert_true(in_validation >= 2);
    const int polls[] = {5, all.polls - 1}; /* of the first validation, of the last one */
    for (int k = 0; k < 2; k++) {
        script how = {.stop_poll = polls[k]};
        char folder[32];
        snprintf(folder, sizeof folder, "validating%d", k);
        need(run_config(usual(), scratch_path(folder), false, 1, &how, &r, &err), TRAIN_INTERRUPTED,
             &err);
        assert_int_equal(r.steps, k ? STEPS : 4);
        how = (script){0};
        need(run_config(usual(), scratch_path(folder), true, 2, &how, &r, &err), TRAIN_DONE, &err);
        same_run(folder, "whole");
        same_log(folder, "whole");
    }
}

static void test_full_disk(void **unused) {
    (void)unused;
    char folder[128];
    snprintf(folder, sizeof folder, "%s", scratch_path("full"));
    script how = {.stop_at = 3};
    sn_error err = {0};
    train_result r;
    need(run_config(usual(), folder, false, 2, &how, &r, &err), TRAIN_INTERRUPTED, &err);
    sn_mapping before, after;
    assert_true(sn_file_map(in("full", "checkpoint.safetensors"), &before, &err));
    struct rlimit old;
    getrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, SIG_IGN);
    how = (script){.limit_at = 5, .limit = 20000};
    need(run_config(usual(), folder, true, 2, &how, &r, &err), TRAIN_FAILED, &err);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_non_null(strstr(err.message, "checkpoint.safetensors"));
    err.code = 0;
    assert_true(sn_file_map(in("full", "checkpoint.safetensors"), &after, &err));
    assert_true(before.size == after.size && before.size > 20000);
    assert_memory_equal(before.data, after.data, after.size);
    sn_file_unmap(&before), sn_file_unmap(&after);
    how = (script){0};
    need(run_config(usual(), folder, true, 2, &how, &r, &err), TRAIN_DONE, &err);
    same_run("full", "whole");
    how = (script){.limit_at = 1,
                   .limit = 20000}; /* not even the first one: the folder is still free */
    need(run_config(usual(), scratch_path("first"), false, 2, &how, &r, &err), TRAIN_FAILED, &err);
    setrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, SIG_DFL);
    how = (script){0};
    need(run_config(usual(), scratch_path("first"), false, 2, &how, &r, &err), TRAIN_DONE, &err);
}

/* Twelve steps of bf16 between forward and backward: near those of f32, the same bits for one
 * thread and two and after a kill; a run in one precision cannot go on in the other. */
static void test_half_precision(void **unused) {
    (void)unused;
    static const char half[] = "\"steps\": 12, \"batch\": 4, \"block\": 8, \"dropout\": 0.1, "
                               "\"save_every\": 3, \"validate_every\": 4, "
                               "\"precision\": \"bf16\"";
    script how = {0};
    sn_error err = {0};
    train_result wide, r;
    need(run_config(usual(), scratch_path("wide"), false, 2, &how, &wide, &err), TRAIN_DONE, &err);
    const char *path = config_of(usual_model, usual_data, half);
    char config[256];
    snprintf(config, sizeof config, "%s", path);
    need(run_config(config, scratch_path("half"), false, 1, &how, &r, &err), TRAIN_DONE, &err);
    assert_true(r.loss != wide.loss && fabs(r.loss - wide.loss) < 2e-3 * wide.loss);
    assert_true(fabs(r.best - wide.best) < 2e-3 * wide.best);
    char folder[] = "halved";
    kill_and_resume(config, folder, 7);
    char line[512];
    FILE *f = fopen(in("halved", "metrics.jsonl"), "r");
    assert_non_null(f);
    assert_true(fgets(line, sizeof line, f) && strstr(line, "\"precision\": \"bf16\""));
    fclose(f);
    same_run("halved", "half");
    refuse(config, "whole", true,
           "precision bf16. Choose another folder, or use the same settings");
    refuse(usual(), "half", true, "created with other settings");
}

/* ---- one folder, one run ---- */

static const char other_heads[] =
    "{\"model_type\": \"gpt2\", \"n_positions\": 8, \"n_embd\": 16, \"n_layer\": 1, \"n_head\": 4}";

static void copy_file(const char *from, const char *to) {
    sn_mapping m;
    sn_error err = {0};
    if (!sn_file_map(from, &m, &err) || !scratch_write(to, m.data, m.size))
        fail_msg("%s: %s", from, err.message);
    sn_file_unmap(&m);
}

static void copy_run(const char *to) {
    static const char *const names[] = {
        "checkpoint.safetensors", "model.safetensors", "config.json", "vocabulary.json",
        "metrics.jsonl",          "loss.svg",          averaged_model};
    scratch_remove(scratch_path(to));
    assert_int_equal(mkdir(scratch_path(to), 0700), 0);
    assert_int_equal(mkdir(in(to, "averaged"), 0700), 0);
    for (int i = 0; i < 7; i++) copy_file(in("whole", names[i]), in(to, names[i]));
}

static bool is_file_of(const char *file, const char *folder) {
    sn_mapping x, y;
    sn_error err = {0};
    if (!sn_file_map(in(folder, file), &x, &err) || !sn_file_map(in("whole", file), &y, &err))
        fail_msg("%s", err.message);
    bool same = x.size == y.size && !memcmp(x.data, y.data, x.size);
    sn_file_unmap(&x), sn_file_unmap(&y);
    return same;
}

/* --force over a run of a model of the same shapes, killed before every change of a file in turn:
 * what is left is never of two runs. */
static void test_force_killed(void **unused) {
    (void)unused;
    char config[256];
    snprintf(config, sizeof config, "%s",
             config_of(other_heads, usual_data,
                       "\"steps\": 1, \"batch\": 4, \"block\": 8, \"validate_every\": 1"));
    int changes = 0;
    for (bool killed = true; killed; changes++) {
        assert_true(changes < 40);
        copy_run("forced");
        char at[32];
        snprintf(at, sizeof at, "%d", changes);
        char *argv[] = {"test_train_run", config, scratch_dir, "forced", at, "force", NULL};
        pid_t child;
        int status = 0;
        assert_int_equal(posix_spawn(&child, "/proc/self/exe", NULL, NULL, argv, environ), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        if (!killed) assert_int_equal(status, 0);
        bool old = has_text(in("forced", "config.json"), "\"n_head\":\t2");
        if (sn_file_exists(in("forced", "model.safetensors")))
            assert_int_equal(is_file_of("model.safetensors", "forced"), old);
        if (sn_file_exists(in("forced", averaged_model)))
            assert_int_equal(is_file_of(averaged_model, "forced"), old);
        if (sn_file_exists(in("forced", "checkpoint.safetensors")))
            assert_int_equal(is_file_of("checkpoint.safetensors", "forced"), old);
        assert_true(killed || !old);
    }
    assert_true(changes >= 9); /* 4 files go; config, vocabulary, model, checkpoint, curve come */
}

static void test_locked_folder(void **unused) {
    (void)unused;
    copy_run("locked");
    int fd = open(scratch_path("locked"), O_RDONLY | O_DIRECTORY);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    refuse(usual(), "locked", true, "another process is training in this folder");
    close(fd);
    script how = {0};
    sn_error err = {0};
    train_result r;
    need(run_config(usual(), scratch_path("locked"), true, 1, &how, &r, &err), TRAIN_DONE, &err);
    same_run("locked", "whole");
}

/* Neither the log nor the curve can be written: notes, and the run is the same. */
static void test_files_that_cannot_be_written(void **unused) {
    (void)unused;
    mkdir(scratch_path("notes"), 0700);
    mkdir(in("notes", "loss.svg"), 0700);
    script how = {.stop_at = 5};
    sn_error err = {0};
    train_result r;
    char folder[128];
    snprintf(folder, sizeof folder, "%s", scratch_path("notes"));
    mkdir(in("notes", "metrics.jsonl"), 0700);
    need(run_config(usual(), folder, false, 2, &how, &r, &err), TRAIN_INTERRUPTED, &err);
    assert_non_null(strstr(how.event, "note: "));
    assert_non_null(strstr(how.event, "training continues"));
    how = (script){.stop_at = 0};
    need(run_config(usual(), folder, true, 2, &how, &r, &err), TRAIN_DONE, &err);
    same_run("notes", "whole");
}

/* ---- refusals ---- */

static void test_other_checkpoints(void **unused) {
    (void)unused;
    refuse(config_of("{\"model_type\": \"gpt2\", \"n_positions\": 8, \"n_embd\": 20, "
                     "\"n_layer\": 1, \"n_head\": 2}",
                     usual_data, usual_training),
           "whole", true, "created with another model");
    refuse(config_of(usual_model, usual_data,
                     "\"steps\": 12, \"batch\": 5, \"block\": 8, \"save_every\": 3"),
           "whole", true, "created with other settings");
    refuse(usual(), "nothing", true, "no checkpoint to resume from");
    assert_false(sn_file_exists(scratch_path("nothing")));
    /* equal shapes, and yet another run */
    refuse(config_of(other_heads, usual_data, usual_training), "whole", true, "another model");
    assert_true(has_text(in("whole", "config.json"), "\"n_head\":\t2"));
    char text[3000];
    FILE *f = fopen(scratch_path("text.txt"), "r");
    assert_int_equal(fread(text, 1, 3000, f), 3000);
    fclose(f);
    char *at = text + 100; /* a character takes the place of the next one */
    while (at[0] == at[1]) at++;
    at[1] = at[0];
    scratch_write(scratch_path("other.txt"), text, 3000);
    refuse(config_of(usual_model, "\"text\": \"other.txt\"", usual_training), "whole", true,
           "created with another text");
    script how = {.stop_at = 1};
    sn_error err = {0};
    train_result r;
    need(run_config(config_of(usual_model, "\"text\": \"text.txt\", \"validation\": \"text.txt\"",
                              usual_training),
                    scratch_path("validated"), false, 1, &how, &r, &err),
         TRAIN_INTERRUPTED, &err);
    refuse(config_of(usual_model, "\"text\": \"text.txt\", \"validation\": \"other.txt\"",
                     usual_training),
           "validated", true, "created with another validation text");
    for (int i = 0; i < 3000; i++)
        if (text[i] == 'F') text[i] = 0x7e;
    scratch_write(scratch_path("other.txt"), text, 3000);
    refuse(config_of(usual_model, "\"text\": \"other.txt\"", usual_training), "whole", true,
           "created with another tokenizer");
    /* numbers that differ in the tenth digit */
    const char *near = config_of(usual_model, usual_data,
                                 "\"steps\": 12, \"batch\": 4, \"block\": 8, "
                                 "\"dropout\": 0.1000000001, \"save_every\": 3");
    refuse(near, "whole", true, "created with other settings");
    scratch_write(scratch_path("nothing"), "", 0);
    refuse(usual(), "nothing", false, "nothing");
}

/* A checkpoint as a run makes it, but for one value of its metadata. */
static void test_wrong_metadata(void **unused) {
    (void)unused;
    static const char *const cases[][3] = {
        {"sinter.step", "nan", "\"sinter.step\" is nan"},
        {"sinter.step", "inf", "\"sinter.step\" is inf"},
        {"sinter.step", "1e300", "is 1e300"},
        {"sinter.step", "-5", "is -5"},
        {"sinter.step", "3.7", "is 3.7"},
        {"sinter.step", "0x10", "is 0x10"},
        {"sinter.step", "99999999999999999999", "is 9999"},
        {"sinter.step", "", "\"sinter.step\" is "},
        {"sinter.step", "12 ", "is 12 "},
        {"sinter.step", "13", "its optimizer is at step 12, but the run at step 13"},
        {"sinter.best_step", "13", "\"sinter.best_step\" is 13"},
        {"sinter.best", "nan", "\"sinter.best\" is nan"},
        {"sinter.best", "inf", "\"sinter.best\" is inf"},
        {"sinter.pending", "2", "\"sinter.pending\" is 2"},
        {"sinter.loss", NULL, "\"sinter.loss\" is missing"},
        {"sinter.text", NULL, "created with another text"},
    };
    static const char *const keys[] = {"sinter.step",    "sinter.best",      "sinter.best_step",
                                       "sinter.loss",    "sinter.norm",      "sinter.rate",
                                       "sinter.pending", "sinter.settings",  "sinter.model",
                                       "sinter.text",    "sinter.tokenizer", "sinter.validation"};
    enum { KEYS = sizeof keys / sizeof *keys };
    sn_error err = {0};
    copy_run("forged");
    sn_weights *w = sn_weights_open(in("whole", "checkpoint.safetensors"), &err);
    assert_non_null(w);
    size_t n = sn_weights_count(w);
    sn_weight *list = malloc(n * sizeof *list);
    for (size_t i = 0; i < n; i++) list[i] = *sn_weights_at(w, i);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        sn_meta meta[KEYS];
        size_t k = 0;
        for (int i = 0; i < KEYS; i++) {
            bool changed = !strcmp(keys[i], cases[c][0]);
            const char *value = changed ? cases[c][1] : sn_weights_meta(w, keys[i]);
            if (value) meta[k++] = (sn_meta){keys[i], value};
        }
        if (!sn_weights_save(in("forged", "checkpoint.safetensors"), list, n, meta, k, &err))
            fail_msg("%s", err.message);
        refuse(usual(), "forged", true, cases[c][2]);
    }
    free(list);
    sn_weights_close(w);
}

/* Folders that hold what is not a run's, and would be lost or mixed up. */
static void test_other_folders(void **unused) {
    (void)unused;
    mkdir(scratch_path("model"), 0700);
    copy_file(in("whole", "model.safetensors"), in("model", "model.safetensors"));
    refuse(usual(), "model", false, "not from a training run: choose another folder");
    mkdir(scratch_path("stale"), 0700);
    assert_true(scratch_write(in("stale", "tokenizer.json"), "{}", 2));
    refuse(usual(), "stale", false, "not from a training run: choose another folder");
    script how = {.force = true, .stop_at = 1};
    sn_error err = {0};
    train_result r;
    need(run_config(usual(), scratch_path("stale"), false, 1, &how, &r, &err), TRAIN_INTERRUPTED,
         &err);
    assert_false(sn_file_exists(in("stale", "tokenizer.json")));
    assert_true(sn_file_exists(in("stale", "vocabulary.json")));
    how.force = false;
    /* a run that ended before its first checkpoint is begun again without a word */
    assert_int_equal(remove(in("stale", "checkpoint.safetensors")), 0);
    need(run_config(usual(), scratch_path("stale"), false, 1, &how, &r, &err), TRAIN_INTERRUPTED,
         &err);
    /* the model to begin with */
    how.force = true;
    char folder[128];
    snprintf(folder, sizeof folder, "%s", scratch_path("stale"));
    err = (sn_error){0};
    assert_int_equal(run_config(folder, folder, false, 1, &how, &r, &err), TRAIN_FAILED);
    assert_non_null(strstr(err.message, "would be overwritten"));
    /* nothing is left of a run that cannot begin */
    refuse(config_of(usual_model, "\"text\": \"missing.txt\"", usual_training), "unborn", false,
           "missing.txt");
    assert_false(sn_file_exists(scratch_path("unborn")));
}

static void test_wrong_data(void **unused) {
    (void)unused;
    scratch_write(scratch_path("empty.txt"), "", 0);
    scratch_write(scratch_path("tiny.txt"), "To be or", 8);
    scratch_write(scratch_path("one.txt"), "x", 1);
    char
        page[4096]; /* a whole page whose last label is missing: the mapping ends with the number */
    for (int i = 0; i < 4092; i++) page[i] = "1\t\n"[i % 3];
    memcpy(page + 4092, "\t123", 4);
    scratch_write(scratch_path("page.txt"), page, sizeof page);
    static const char *const cases[][2] = {
        {"\"text\": \"missing.txt\"", "missing.txt"},
        {"\"text\": \"empty.txt\"", "empty"},
        {"\"text\": \"tiny.txt\"", "a row of block = 8 needs 9"},
        {"\"text\": \"one.txt\"", "cannot be split"},
        {"\"text\": \"text.txt\", \"validation\": \"tiny.txt\"", "validation: the data has 8"},
        {"\"text\": \"text.txt\", \"validation\": \"empty.txt\"", "empty"},
        {"\"task\": \"next\"", "no text to train on"},
        {"\"text\": \"text.txt\", \"task\": \"pairs\"", "\"target\" is missing"},
        {"\"text\": \"text.txt\", \"task\": \"classes\"", "LABEL<tab>TEXT"},
        {"\"text\": \"page.txt\", \"task\": \"classes\"",
         "page.txt: line 1365 is not LABEL<tab>TEXT"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse(config_of(usual_model, cases[i][0], usual_training), "wrong", false, cases[i][1]);
}

static void test_wrong_configs(void **unused) {
    (void)unused;
    static const char *const cases[][3] = {
        {usual_model, "\"steps\": 0", "\"steps\" is 0"},
        {usual_model, "\"stesp\": 5", "unknown key \"stesp\""},
        {usual_model, "\"precision\": \"f16\"", "\"precision\""},
        {usual_model, "\"block\": 9", "exceeds the model's context of 8"},
        {usual_model, "\"steps\": 12, \"block\": 8, \"batch\": 4, \"start\": \"nowhere\"",
         "nowhere"},
        {"{\"model_type\": \"gpt9\"}", usual_training, "model_type"},
        {"{\"model_type\": \"gpt2\", \"vocab_size\": 7, \"n_positions\": 8, \"n_embd\": 16, "
         "\"n_layer\": 1, \"n_head\": 2}",
         usual_training, "tokens, but the model's \"vocab_size\" is 7"},
        {"[]", usual_training, "an object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse(config_of(cases[i][0], usual_data, cases[i][1]), "wrong", false, cases[i][2]);
    scratch_write(scratch_path("flat.json"), "{\"batch\": 3}", 12);
    refuse(scratch_path("flat.json"), "wrong", false, "no section \"model\"");
}

static void test_loss_that_is_no_number(void **unused) {
    (void)unused;
    const char text[] = "{\"model\": {\"model_type\": \"tse_gpt\", \"n_ctx\": 8, \"d_model\": 16, "
                        "\"n_layers\": 1, \"n_heads\": 2}, \"data\": {\"text\": \"text.txt\"}, "
                        "\"optimizer\": {\"kind\": \"sgd\"}, \"schedule\": {\"rate\": 1000}, "
                        "\"training\": {\"steps\": 40, \"batch\": 4, \"block\": 8}}";
    scratch_write(scratch_path("steep.json"), text, sizeof text - 1);
    refuse(scratch_path("steep.json"), "steep", false, "training diverged");
    train_settings s;
    sn_error err = {0};
    script how = {0};
    train_result r;
    assert_true(train_settings_read(scratch_path("steep.json"), NULL, &s, &err));
    train_request q = {.settings = &s,
                       .folder = scratch_path("steeper"),
                       .compile = {.level = -1, .threads = 1, .check_nan = true},
                       .progress = on_progress,
                       .ctx = &how};
    assert_int_equal(train_run(&q, &r, &err), TRAIN_FAILED);
    if (strstr(err.message, "diverged") || !strstr(err.message, "frontend/"))
        fail_msg("'%s' does not tell where", err.message);
    train_settings_free(&s);
}

/* Two kinds of lines, told apart by their letters; a label that the model has no class for. */
static void test_classes(void **unused) {
    (void)unused;
    static const char settings[] =
        "{\"model\": {\"model_type\": \"bert\", \"max_position_embeddings\": 8, "
        "\"hidden_size\": 16, \"intermediate_size\": 32, \"num_hidden_layers\": 1, "
        "\"num_attention_heads\": 2, \"num_labels\": 2}, \"data\": {\"text\": \"classes.txt\"}, "
        "\"schedule\": {\"rate\": 1e-2}, "
        "\"training\": {\"steps\": 40, \"batch\": 8, \"block\": 8}}";
    char text[1024];
    int n = 0;
    for (int i = 0; i < 60; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, i % 2 ? "1\txxy%.*s\n" : "0\tab%.*s\n",
                      i % 5, i % 2 ? "yxxx" : "bbaa");
    scratch_write(scratch_path("classes.txt"), text, (size_t)n);
    scratch_write(scratch_path("classes.json"), settings, sizeof settings - 1);
    char config[128];
    snprintf(config, sizeof config, "%s", scratch_path("classes.json"));
    script how = {0};
    sn_error err = {0};
    train_result r;
    need(run_config(config, scratch_path("classes"), false, 1, &how, &r, &err), TRAIN_DONE, &err);
    if (!(r.validation < 0.2)) fail_msg("validation loss %g; of a guess: 0.69", r.validation);
    n += snprintf(text + n, sizeof text - (size_t)n, "2\tzz\n");
    scratch_write(scratch_path("classes.txt"), text, (size_t)n);
    refuse(config, "others", false, "line 61 has label 2, but \"num_labels\" is 2");
}

/* A rate of 0 leaves the validation loss as it is, which is not better: the run ends `patience` validations after the
 * first, also when it was stopped in between. */
static const char *standing(const char *training) {
    char text[1024];
    int n = snprintf(text, sizeof text,
                     "{\"model\": %s, \"data\": {%s, \"validation_part\": 0.1}, "
                     "\"schedule\": {\"rate\": 0}, \"training\": {\"batch\": 4, "
                     "\"block\": 8, \"steps\": 12, %s}}",
                     usual_model, usual_data, training);
    const char *path = scratch_path("config.json");
    assert_true(scratch_write(path, text, (size_t)n));
    return path;
}

static void test_early_stopping(void **unused) {
    (void)unused;
    script how = {0}, stops = {.stop_at = 2};
    sn_error err = {0};
    train_result r, part;
    const char *config = standing("\"validate_every\": 1, \"patience\": 2");
    need(run_config(config, scratch_path("early"), false, 1, &how, &r, &err), TRAIN_EARLY, &err);
    assert_true(r.steps == 3 && r.best_step == 1 && r.best == r.validation);
    need(run_config(config, scratch_path("again"), false, 1, &stops, &part, &err),
         TRAIN_INTERRUPTED, &err);
    assert_true(part.steps == 2 && part.best_step == 1 && part.best == r.best);
    need(run_config(config, scratch_path("again"), true, 1, &how, &part, &err), TRAIN_EARLY, &err);
    assert_true(part.steps == 3 && part.best_step == 1 && part.best == r.best);
    /* what is due is also done after the last step */
    config = standing("\"validate_every\": 5, \"save_every\": 7, \"log_every\": 5");
    need(run_config(config, scratch_path("last"), false, 1, &how, &r, &err), TRAIN_DONE, &err);
    char *log = file_text(in("last", "metrics.jsonl"));
    assert_true(r.steps == 12 && r.validation == r.best && strstr(log, "{\"step\": 12,"));
    free(log);
    sn_weights *w = sn_weights_open(in("last", "checkpoint.safetensors"), &err);
    assert_non_null(w);
    assert_string_equal(sn_weights_meta(w, "sinter.step"), "12");
    sn_weights_close(w);
}

int main(int argc, char **argv) {
    if (argc == 6) { /* --force, killed before a change of a file: CONFIG SCRATCH FOLDER CHANGE x */
        snprintf(scratch_dir, sizeof scratch_dir, "%s", argv[2]);
        script how = {.force = true};
        sn_error err = {0};
        train_result r;
        changes_left = strtoll(argv[4], NULL, 10);
        return run_config(argv[1], scratch_path(argv[3]), false, 1, &how, &r, &err) != TRAIN_DONE;
    }
    if (argc == 5) { /* the run that is killed: CONFIG SCRATCH FOLDER STEP */
        snprintf(scratch_dir, sizeof scratch_dir, "%s", argv[2]);
        script how = {.kill_at = strtoll(argv[4], NULL, 10)};
        sn_error err = {0};
        train_result r;
        run_config(argv[1], scratch_path(argv[3]), false, 2, &how, &r, &err);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_folder_is_a_model),
        cmocka_unit_test(test_one_thread),
        cmocka_unit_test(test_averages),
        cmocka_unit_test(test_stop_and_resume),
        cmocka_unit_test(test_kill_and_resume),
        cmocka_unit_test(test_stop_in_validation),
        cmocka_unit_test(test_force_killed),
        cmocka_unit_test(test_locked_folder),
        cmocka_unit_test(test_files_that_cannot_be_written),
        cmocka_unit_test(test_wrong_metadata),
        cmocka_unit_test(test_other_folders),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_half_precision),
        cmocka_unit_test(test_other_checkpoints),
        cmocka_unit_test(test_wrong_data),
        cmocka_unit_test(test_wrong_configs),
        cmocka_unit_test(test_loss_that_is_no_number),
        cmocka_unit_test(test_early_stopping),
        cmocka_unit_test(test_classes),
    };
    return cmocka_run_group_tests(tests, make_reference, scratch_end);
}
