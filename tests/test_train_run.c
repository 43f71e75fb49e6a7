/* Training runs as `sinter train` makes them: a run that is stopped, or killed, and resumed gives
 * the same bits as one that is not; so do one thread and two; a full disk leaves the old
 * checkpoint; wrong configs, data and checkpoints are refused with a reason; the folder is a model.
 */
#include "ir/ir.h"
#include "runtime/file.h"
#include "tools/lm.h"
#include "tools/train.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "tests/scratch.h"

extern char **environ;

enum { STEPS = 12 };

/* Where a run is stopped, and how. */
typedef struct script {
    int64_t stop_at, kill_at, limit_at; /* steps; 0: never */
    int64_t step;
    rlim_t limit;
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

static bool on_stop(void *ctx) {
    const script *s = ctx;
    return s->stop_at && s->step == s->stop_at;
}

static train_end run_config(const char *config, const char *folder, bool resume, int threads,
                            script *how, train_result *result, sn_error *err) {
    train_settings s;
    if (!train_settings_read(config, NULL, &s, err)) return TRAIN_FAILED;
    train_request r = {.settings = &s,
                       .folder = folder,
                       .resume = resume,
                       .compile = {.level = -1, .threads = threads, .cache_dir = scratch_dir},
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
                                     "\"save_every\": 3, \"validate_every\": 4";

/* Writes a config from three sections; returns its path. */
static const char *config_of(const char *model, const char *data, const char *training) {
    char text[2048];
    int n = snprintf(text, sizeof text,
                     "{\"model\": %s, \"data\": {%s}, \"schedule\": {\"kind\": \"cosine\", "
                     "\"rate\": 3e-3, \"warmup\": 2, \"total\": 12}, \"optimizer\": {\"clip\": 1}, "
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

static void same_run(const char *a, const char *b) {
    same_file(in(a, "checkpoint.safetensors"), in(b, "checkpoint.safetensors"));
    same_file(in(a, "model.safetensors"), in(b, "model.safetensors"));
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

static void test_the_folder_is_a_model(void **unused) {
    (void)unused;
    lm_options o = {.path = scratch_path("whole"),
                    .entries = SN_LOSS | SN_CACHED,
                    .compile = {.level = -1, .threads = 1, .cache_dir = scratch_dir}};
    sn_error err = {0};
    lm *m = lm_open(&o, &err);
    if (!m) fail_msg("%s", err.message);
    sn_ids ids = {0};
    assert_true(lm_encode(m, "First", 5, true, &ids, &err));
    assert_int_equal(ids.count, 5); /* it never saw a beginning-of-text token */
    assert_true(lm_feed(m, ids.data, 5, &err));
    float loss[4];
    assert_true(lm_loss(m, ids.data, ids.data + 1, 4, loss, &err));
    assert_true(loss[0] > 0 && loss[0] < 20);
    sn_ids_free(&ids);
    lm_close(m);
    assert_true(sn_file_exists(in("whole", "loss.svg")));
    assert_true(sn_file_exists(in("whole", "metrics.jsonl")));
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

static void refuse(const char *config, const char *folder, bool resume, const char *say) {
    script how = {0};
    sn_error err = {0};
    train_result r;
    assert_int_equal(run_config(config, scratch_path(folder), resume, 1, &how, &r, &err),
                     TRAIN_FAILED);
    if (!strstr(err.message, say)) fail_msg("'%s' does not say '%s'", err.message, say);
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
    sn_mapping before;
    assert_true(sn_file_map(in("full", "checkpoint.safetensors"), &before, &err));
    struct rlimit old;
    getrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, SIG_IGN);
    how = (script){.limit_at = 5, .limit = 20000};
    need(run_config(usual(), folder, true, 2, &how, &r, &err), TRAIN_FAILED, &err);
    setrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, SIG_DFL);
    assert_non_null(strstr(err.message, "checkpoint.safetensors"));
    sn_mapping after;
    err.code = 0;
    assert_true(sn_file_map(in("full", "checkpoint.safetensors"), &after, &err));
    assert_true(before.size == after.size && before.size > 20000);
    assert_memory_equal(before.data, after.data, after.size);
    sn_file_unmap(&before), sn_file_unmap(&after);
    how = (script){0};
    need(run_config(usual(), folder, true, 2, &how, &r, &err), TRAIN_DONE, &err);
    same_run("full", "whole");
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
    refuse(config, "whole", true, "precision bf16. Give another folder, or the same settings");
    refuse(usual(), "half", true, "made with other settings");
}

/* ---- refusals ---- */

static void test_other_checkpoints(void **unused) {
    (void)unused;
    refuse(config_of("{\"model_type\": \"gpt2\", \"n_positions\": 8, \"n_embd\": 20, "
                     "\"n_layer\": 1, \"n_head\": 2}",
                     usual_data, usual_training),
           "whole", true, "a checkpoint of another architecture");
    refuse(config_of(usual_model, usual_data,
                     "\"steps\": 12, \"batch\": 5, \"block\": 8, \"save_every\": 3"),
           "whole", true, "made with other settings");
    refuse(usual(), "nothing", true, "no checkpoint to go on with");
    scratch_write(scratch_path("nothing"), "", 0);
    refuse(usual(), "nothing", false, "nothing");
}

static void test_wrong_data(void **unused) {
    (void)unused;
    scratch_write(scratch_path("empty.txt"), "", 0);
    scratch_write(scratch_path("tiny.txt"), "To be or", 8);
    scratch_write(scratch_path("one.txt"), "x", 1);
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
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse(config_of(usual_model, cases[i][0], usual_training), "wrong", false, cases[i][1]);
}

static void test_wrong_configs(void **unused) {
    (void)unused;
    static const char *const cases[][3] = {
        {usual_model, "\"steps\": 0", "\"steps\" is 0"},
        {usual_model, "\"stesp\": 5", "\"stesp\" is not known"},
        {usual_model, "\"precision\": \"f16\"", "\"precision\""},
        {usual_model, "\"block\": 9", "longer than the model's context of 8"},
        {usual_model, "\"steps\": 12, \"block\": 8, \"batch\": 4, \"start\": \"nowhere\"",
         "nowhere"},
        {"{\"model_type\": \"gpt9\"}", usual_training, "model_type"},
        {"{\"model_type\": \"gpt2\", \"vocab_size\": 7, \"n_positions\": 8, \"n_embd\": 16, "
         "\"n_layer\": 1, \"n_head\": 2}",
         usual_training, "tokens, the model's \"vocab_size\" is 7"},
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
    refuse(scratch_path("steep.json"), "steep", false, "training has come apart");
    train_settings s;
    sn_error err = {0};
    script how = {0};
    train_result r;
    assert_true(train_settings_read(scratch_path("steep.json"), NULL, &s, &err));
    train_request q = {
        .settings = &s,
        .folder = scratch_path("steeper"),
        .compile = {.level = -1, .threads = 1, .cache_dir = scratch_dir, .check_nan = true},
        .progress = on_progress,
        .ctx = &how};
    assert_int_equal(train_run(&q, &r, &err), TRAIN_FAILED);
    if (strstr(err.message, "come apart") || !strstr(err.message, "frontend/"))
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
    refuse(config, "others", false, "line 61 has label 2, \"num_labels\" is 2");
}

static void test_early_stopping(void **unused) {
    (void)unused;
    script how = {0};
    sn_error err = {0};
    train_result r;
    const char *config = config_of(usual_model, "\"text\": \"text.txt\", \"validation_part\": 0.1",
                                   "\"steps\": 12, \"batch\": 4, \"block\": 8, \"dropout\": 0.1, "
                                   "\"validate_every\": 1, \"patience\": 1, \"seed\": 3");
    train_end end = run_config(config, scratch_path("early"), false, 1, &how, &r, &err);
    if (end == TRAIN_FAILED) fail_msg("%s", err.message);
    assert_true(end == TRAIN_EARLY ? r.best_step == r.steps - 1 : r.best_step == STEPS);
    assert_true(r.best <= r.validation);
}

/* The configs that are shipped: every key is known, the model can be built and trained. */
static void test_examples(void **unused) {
    (void)unused;
    static const char folder[] = SN_SOURCE_DIR "/examples/train";
    DIR *d = opendir(folder);
    assert_non_null(d);
    int n = 0;
    for (struct dirent *e; (e = readdir(d));) {
        if (!strstr(e->d_name, ".json")) continue;
        char path[sizeof folder + sizeof e->d_name + 1];
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        train_settings s;
        sn_model m;
        sn_error err = {0};
        if (!train_settings_read(path, NULL, &s, &err)) fail_msg("%s", err.message);
        sn_config_set_int(s.model, "vocab_size", 300); /* it comes from the text */
        sn_model_options o = {.entries = SN_LOSS | SN_TRAIN, .training = &s.training};
        if (!sn_model_build(s.model, &o, &m, &err)) fail_msg("%s: %s", path, err.message);
        assert_non_null(sn_entry_get(m.module, "train_step"));
        assert_true(s.data.block <= m.context);
        assert_null(sn_config_unread(s.model, 0));
        sn_module_free(m.module);
        train_settings_free(&s);
        n++;
    }
    closedir(d);
    assert_true(n >= 5);
}

int main(int argc, char **argv) {
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
        cmocka_unit_test(test_stop_and_resume),
        cmocka_unit_test(test_kill_and_resume),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_half_precision),
        cmocka_unit_test(test_other_checkpoints),
        cmocka_unit_test(test_wrong_data),
        cmocka_unit_test(test_wrong_configs),
        cmocka_unit_test(test_loss_that_is_no_number),
        cmocka_unit_test(test_early_stopping),
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_examples),
    };
    return cmocka_run_group_tests(tests, make_reference, scratch_end);
}
