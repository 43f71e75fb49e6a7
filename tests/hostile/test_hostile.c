/* test_hostile.c SINTER: opens hostile files by the library and by commands. Each is refused with an error that
 * names the file and what is wrong, within bounds of time and memory. */
#include "tests/hostile/hostile.h"
#include "model/import/import.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <cmocka.h>
#include "tests/support/effort.h"
#include "tests/support/scratch.h"

enum { SECONDS = 30, CPU_SECONDS = 3, MEMORY_MB = 128, ADDRESS_MB = 1024, ARGUMENTS = 16 };
enum { ROWS_EACH = 2 }; /* in the default run, each command opens one of so many rows */

static const hostile_format *const formats[] = {
    &hostile_gguf, &hostile_safetensors, &hostile_npz,    &hostile_artefact, &hostile_config,
    &hostile_onnx, &hostile_tokenizer,   &hostile_pieces, &hostile_template, &hostile_graph};
enum { FORMATS = sizeof formats / sizeof *formats };

static const char *sinter;
static char model[256], target[256]; /* folders: a good model; what commands write */
static const hostile_row *now;
static int failures; /* of a format */

/* Says what is wrong with a row. */
static void wrong(const char *format, ...) {
    va_list args;
    fprintf(stderr, "%s: ", now->source);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    putc('\n', stderr);
    failures++;
}

static void on_alarm(int number) {
    (void)number;
    if (write(2, "does not end: ", 14) < 0 || write(2, now->source, strlen(now->source)) < 0)
        _exit(2);
    _exit(1);
}

/* Sanitizers reserve more addresses than there is memory. */
static void limit(bool program) {
    const rlim_t seconds = EFFORT_SANITIZED ? 10 * CPU_SECONDS : CPU_SECONDS;
    if (!EFFORT_SANITIZED)
        setrlimit(RLIMIT_AS, &(struct rlimit){(rlim_t)ADDRESS_MB << 20, (rlim_t)ADDRESS_MB << 20});
    if (program) setrlimit(RLIMIT_CPU, &(struct rlimit){seconds, seconds});
}

/* ---- commands ---- */

/* Runs a line of arguments; returns the exit code, and what it wrote to standard error. */
static int run(const char *line, const char *path, char *said, size_t size) {
    char text[256], *word[ARGUMENTS] = {(char *)(uintptr_t)sinter}, *rest = text;
    int n = 1, status;
    snprintf(text, sizeof text, "%s", line);
    for (char *w; (w = strsep(&rest, " ")) && n < ARGUMENTS - 1;)
        word[n++] = !strcmp(w, "@")   ? (char *)(uintptr_t)path
                    : !strcmp(w, "%") ? model
                    : !strcmp(w, "^") ? target
                                      : w;
    const char *out = scratch_path("said");
    const pid_t child = fork();
    if (!child) {
        const int to = open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600),
                  none = open("/dev/null", O_RDWR);
        dup2(none, 0), dup2(none, 1), dup2(to, 2);
        limit(true);
        execv(sinter, word);
        _exit(127);
    }
    struct rusage used;
    assert_true(child > 0 && wait4(child, &status, 0, &used) == child);
    FILE *f = fopen(out, "r");
    assert_non_null(f);
    said[fread(said, 1, size - 1, f)] = 0;
    fclose(f);
    if (!WIFEXITED(status)) wrong("%s: signal %d: %s", line, WTERMSIG(status), said);
    if (!EFFORT_SANITIZED && used.ru_maxrss > (long)MEMORY_MB << 10)
        wrong("%s: %ld KB of memory", line, used.ru_maxrss);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

/* `says` may be several texts between '|': what the library says, and what commands may say that refuse earlier. */
static bool is_said(const char *message, bool by_library) {
    char text[256], *rest = text;
    assert_true(snprintf(text, sizeof text, "%s", now->says) < (int)sizeof text);
    for (char *one; (one = strsep(&rest, "|"));) {
        if (strstr(message, one)) return true;
        if (by_library) break;
    }
    return false;
}

static void expect_command(const char *line, const char *path) {
    char said[4096];
    const bool lists = now->listed && !strncmp(line, "inspect ", 8);
    const int code = run(line, path, said, sizeof said);
    scratch_remove(target);
    if (lists && code == 0) return;
    if ((code != 1 && code != 2) || !is_said(said, false))
        wrong("%s: exit code %d, wanted \"%s\": %s", line, code, now->says, said);
}

/* ---- rows ---- */

/* `refused`: the number of rows before it that are. */
static void check_row(const hostile_format *f, size_t refused) {
    char path[512];
    sn_bytes bytes = {0};
    sn_error e = {0};
    f->make(now, &bytes);
    snprintf(path, sizeof path, "%s/%s", model, f->file);
    remove(path);
    assert_true(scratch_write(path, bytes.data, bytes.size));
    sn_bytes_free(&bytes);
    alarm(SECONDS);
    const bool ok = f->open(path, &e);
    alarm(0);
    if (ok != !now->says) wrong("%s", ok ? "is accepted" : e.message);
    if (!ok && now->says && (!e.code || !is_said(e.message, true)))
        wrong("wanted \"%s\": %s", now->says, e.message);
    size_t n = 0;
    while (n < HOSTILE_COMMANDS && f->command[n]) n++;
    for (size_t k = 0; k < n && now->says; k++)
        if (effort_is_long() || refused == ROWS_EACH * k) expect_command(f->command[k], path);
}

static void check_format(void **state) {
    const hostile_format *f = *state;
    char path[512], kept[520];
    failures = 0;
    snprintf(path, sizeof path, "%s/%s", model, f->file);
    snprintf(kept, sizeof kept, "%s.good", path);
    const bool had = rename(path, kept) == 0;
    size_t refused = 0;
    for (now = f->row; now->source; refused += now->says != NULL, now++) check_row(f, refused);
    remove(path);
    if (had) assert_int_equal(rename(kept, path), 0);
    assert_int_equal(failures, 0);
}

/* A folder with a small model, data for ONNX files, and links to what is outside. */
static int make_model(void **state) {
    sn_error e = {0};
    if (scratch_make(state)) return -1;
    signal(SIGALRM, on_alarm);
    snprintf(model, sizeof model, "%s/model", scratch_dir);
    snprintf(target, sizeof target, "%s/written", scratch_dir);
    const import_request r = {.input = SN_SOURCE_DIR
                              "/examples/models/nano-gpt-sort/gpt-nano-sort-model.json",
                              .output = model};
    if (!import_model(&r, "json-tensors", &e)) return fprintf(stderr, "%s\n", e.message), -1;
    return scratch_write(scratch_path("model/numbers.bin"), "\0\0\0\0\0\0\0", 8) &&
                   scratch_write(scratch_path("numbers.bin"), "\0\0\0\0\0\0\0", 8) &&
                   !symlink("../numbers.bin", scratch_path("model/link.bin")) &&
                   !symlink("/etc", scratch_path("model/linked"))
               ? 0
               : -1;
}

int main(int argc, char **argv) {
    struct CMUnitTest tests[FORMATS];
    if (argc != 2) return fprintf(stderr, "usage: test_hostile SINTER\n"), 2;
    sinter = argv[1];
    for (int i = 0; i < FORMATS; i++)
        tests[i] = (struct CMUnitTest){formats[i]->name, check_format, NULL, NULL,
                                       (void *)(uintptr_t)formats[i]};
    limit(false);
    return cmocka_run_group_tests(tests, make_model, scratch_end);
}
