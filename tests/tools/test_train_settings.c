/* Settings of training runs: what a config leaves out, the configs that are shipped, and that
 * accumulated batches are one batch. */
#include "model/train/train.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <dirent.h>
#include <math.h>
#include <string.h>

#include "tests/support/scratch.h"

static const char usual_model[] =
    "{\"model_type\": \"gpt2\", \"n_positions\": 8, \"n_embd\": 16, \"n_layer\": 1, \"n_head\": 2}";

/* All settings of a config with one more key. */
static void settings_with(const char *section, const char *key, const char *value, char *out,
                          size_t size) {
    static const char *const sections[] = {"tokenizer", "data", "optimizer", "schedule",
                                           "training"};
    char text[1024], line[8000];
    int n = snprintf(text, sizeof text, "{\"model\": %s", usual_model);
    for (int i = 0; i < 5; i++) {
        const bool here = key && !strcmp(sections[i], section);
        n += snprintf(text + n, sizeof text - (size_t)n, ", \"%s\": {%s", sections[i],
                      strcmp(sections[i], "schedule") ? "" : "\"kind\": \"linear\"");
        if (here)
            n += snprintf(text + n, sizeof text - (size_t)n, "%s\"%s\": %s",
                          strcmp(section, "schedule") ? "" : ", ", key, value);
        n += snprintf(text + n, sizeof text - (size_t)n, "}");
    }
    snprintf(text + n, sizeof text - (size_t)n, "}");
    train_settings s;
    sn_error err = {0};
    const char *path = scratch_path("config.json");
    assert_true(scratch_write(path, text, strlen(text)));
    if (!train_settings_read(path, NULL, &s, &err)) fail_msg("%s: %s", text, err.message);
    snprintf(out, size, "%s %lld %lld %lld %lld %lld %lld %g %d %lld %lld %lld data %llu %d %d %d",
             train_settings_text(&s, line, sizeof line), (long long)s.steps, (long long)s.log_every,
             (long long)s.validate_every, (long long)s.validation_batches, (long long)s.save_every,
             (long long)s.patience, s.validation_part, s.zero, (long long)s.tensor,
             (long long)s.context, (long long)s.slices, (unsigned long long)s.data.seed,
             (int)s.learn.kind, (int)s.learn.vocab_size, (int)s.learn.min_count);
    train_settings_free(&s);
}

/* docs/training.md */
static void test_usual_settings(void **unused) {
    (void)unused;
    static const struct {
        const char *section, *key, *usual, *other;
    } rows[] = {
        {"tokenizer", "kind", "\"char\"", "\"word\""},
        {"tokenizer", "vocab", "0", "300"},
        {"tokenizer", "min_count", "0", "2"},
        {"data", "task", "\"next\"", "\"masked\""},
        {"data", "validation_part", "0.1", "0.2"},
        {"data", "validation_part", "0.1", "0"},
        {"data", "validation", "null", "\"other.txt\""},
        {"data", "order", "\"shuffled\"", "\"random\""},
        {"data", "documents", "\"whole\"", "\"lines\""},
        {"data", "p_mask", "0.15", "0.2"},
        {"data", "p_replace", "0.8", "0.7"},
        {"data", "p_random", "0.1", "0.2"},
        {"optimizer", "kind", "\"adamw\"", "\"adam\""},
        {"optimizer", "beta1", "0.9", "0.8"},
        {"optimizer", "beta2", "0.999", "0.99"},
        {"optimizer", "eps", "1e-8", "1e-6"},
        {"optimizer", "decay", "0.01", "0.1"},
        {"optimizer", "clip", "0", "1"},
        {"optimizer", "average", "0", "0.9"},
        {"optimizer", "decay_groups", "\"matrices\"", "\"all\""},
        {"schedule", "rate", "1e-3", "5e-5"},
        {"schedule", "final", "0", "1e-4"},
        {"schedule", "warmup", "0", "10"},
        {"schedule", "total", "1000", "900"},
        {"training", "steps", "1000", "900"},
        {"training", "batch", "12", "13"},
        {"training", "block", "8", "4"}, /* the model's positions */
        {"training", "accumulate", "1", "2"},
        {"training", "slices", "null", "2"},
        {"training", "zero", "0", "1"},
        {"training", "tensor", "1", "2"},
        {"training", "context", "1", "2"},
        {"training", "dropout", "0", "0.1"},
        {"training", "seed", "1", "2"},
        {"training", "validate_every", "250", "100"},
        {"training", "save_every", "250", "100"},
        {"training", "validation_batches", "0", "10"},
        {"training", "log_every", "10", "1"},
        {"training", "patience", "0", "3"},
        {"training", "precision", "\"f32\"", "\"bf16\""},
    };
    char without[9000], usual[9000], other[9000];
    settings_with(NULL, NULL, NULL, without, sizeof without);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        settings_with(rows[i].section, rows[i].key, rows[i].usual, usual, sizeof usual);
        settings_with(rows[i].section, rows[i].key, rows[i].other, other, sizeof other);
        if (strcmp(without, usual) != 0)
            fail_msg("%s: without it %s, with %s: %s", rows[i].key, without, rows[i].usual, usual);
        if (!strcmp(without, other)) fail_msg("%s has no effect", rows[i].key);
    }
    /* one seed, validations with checkpoints, one decay */
    settings_with("training", "seed", "7", other, sizeof other);
    assert_non_null(strstr(other, "seed 7"));
    assert_non_null(strstr(other, "data 7"));
    settings_with("training", "validate_every", "100", usual, sizeof usual);
    assert_non_null(strstr(usual, " 1000 10 100 0 100 0 0.1 "));
    settings_with("optimizer", "kind", "\"muon\"", usual, sizeof usual);
    snprintf(other, sizeof other, "*embed* of 0 axes: adamw 0 rate, 0 0 0 %.17g %.17g %.17g %.17g;",
             0.9, 0.999, 1e-8, 0.1);
    if (!strstr(usual, other)) fail_msg("%s: %s", other, usual);
}

static void run(const char *data, const char *training, const char *folder, train_result *r) {
    char config[1024];
    snprintf(config, sizeof config,
             "{\"model\": %s, \"data\": {%s}, \"schedule\": {\"rate\": 0.01}, \"optimizer\": "
             "{\"kind\": \"sgd\"}, \"training\": {\"block\": 8, \"log_every\": 1, %s}}",
             usual_model, data, training);
    const char *path = scratch_path("config.json");
    train_settings s;
    sn_error err = {0};
    assert_true(scratch_write(path, config, strlen(config)));
    if (!train_settings_read(path, NULL, &s, &err)) fail_msg("%s", err.message);
    const train_request how = {
        .settings = &s, .folder = scratch_path(folder), .compile = {.level = -1, .threads = 1}};
    if (train_run(&how, r, &err) != TRAIN_DONE) fail_msg("%s", err.message);
    train_settings_free(&s);
}

enum { LETTERS = 11 };

/* A text of so many letters a line. */
static void write_letters(const char *name, int line) {
    enum { BYTES = 700 };
    char text[BYTES];
    for (int i = 0; i < BYTES; i++)
        text[i] = i % (line + 1) == line ? '\n' : (char)('a' + i * i / 7 % LETTERS);
    assert_true(scratch_write(scratch_path(name), text, BYTES));
}

/* Rows of a step in one batch, in two that are accumulated, in slices: the same gradients but for rounding. */
static void test_accumulated_batches(void **unused) {
    (void)unused;
    static const char *const training[] = {
        "\"steps\": 6, \"batch\": 4", "\"steps\": 6, \"batch\": 2, \"accumulate\": 2",
        "\"steps\": 6, \"batch\": 4, \"slices\": 2",
        "\"steps\": 6, \"batch\": 2, \"accumulate\": 2, \"slices\": 2"};
    enum { N = sizeof training / sizeof *training };
    train_result r[N];
    write_letters("text.txt", 700);
    for (int i = 0; i < N; i++) {
        char folder[32];
        snprintf(folder, sizeof folder, "run%d", i);
        run("\"text\": \"text.txt\", \"validation_part\": 0.1", training[i], folder, &r[i]);
        if (fabs(r[i].loss - r[0].loss) > 1e-5 || fabs(r[i].validation - r[0].validation) > 1e-5)
            fail_msg("%s: loss %.9g, validation %.9g, not %.9g and %.9g", training[i], r[i].loss,
                     r[i].validation, r[0].loss, r[0].validation);
    }
}

/* The first letter of a line is no target. The validation loss is a mean over what is one, here that of a guess: it
 * is not less because others count as 0. */
static void test_targets_only(void **unused) {
    (void)unused;
    const double guess = log(LETTERS);
    train_result r;
    write_letters("lines.txt", 2);
    run("\"text\": \"lines.txt\", \"documents\": \"lines\", \"validation_part\": 0.5",
        "\"steps\": 1, \"batch\": 4", "lines", &r);
    if (!(r.validation > 0.9 * guess && r.validation < 1.3 * guess))
        fail_msg("validation loss %g; of a guess: %g", r.validation, guess);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_usual_settings), cmocka_unit_test(test_accumulated_batches),
        cmocka_unit_test(test_targets_only), cmocka_unit_test(test_examples)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
