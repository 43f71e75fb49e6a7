/* evidence.c: writes the folder that repeats a measurement, see evidence.h. */
#include "tools/evidence.h"
#include "bench/claims.h"
#include "runtime/file.h"
#include "runtime/str.h"
#include "tools/artefact/sha256.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char records_name[] = "records.json", claims_name[] = "claims.txt",
                  script_name[] = "repeat.sh", sums_name[] = "files.sha256", model_name[] = "model";

/* ---- the command ---- */

/* Options of the measurement that say where its results go, or are of this machine. */
static const struct {
    const char *name;
    bool local;
} left_out[] = {{"--evidence", false}, {"--json", false},      {"--plot", false},
                {"--with", false},     {"--threshold", false}, {"--processes", false},
                {"--rounds", false},   {"--profile", true},    {"--peer-dir", true},
                {"--cache-dir", true}};

int evidence_leaves_out(const char *arg, bool local) {
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++) {
        size_t n = strlen(left_out[i].name);
        bool same = !strncmp(arg, left_out[i].name, n) && (!arg[n] || arg[n] == '=');
        if (same && (local || !left_out[i].local)) return arg[n] ? 1 : 2;
    }
    return 0;
}

/* For a shell: in quotes; a quote inside ends them, and begins them again. */
static void quote(FILE *f, const char *text) {
    fputc('\'', f);
    for (const char *p = text; *p; p++) fputs(*p == '\'' ? "'\\''" : (char[]){*p, 0}, f);
    fputs("' ", f);
}

char *evidence_command(int argc, char **argv, const char *model, const char *as,
                       const sn_bench_options *o) {
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    bool given = false;
    if (!f) return NULL;
    for (int i = 1; i < argc; i++) {
        int skipped = evidence_leaves_out(argv[i], true);
        given |= !strncmp(argv[i], "-t", 2) || !strncmp(argv[i], "--threads", 9);
        if (skipped)
            i += skipped - 1;
        else
            quote(f, argv[i] == model ? as : argv[i]);
    }
    if (!given) fprintf(f, "--threads %d ", sn_bench_threads(o));
    fprintf(f, "--rounds %d ", o->rounds);
    if (o->processes > 1) fprintf(f, "--processes %d ", o->processes);
    if (fclose(f)) {
        free(text);
        return NULL;
    }
    if (size) text[size - 1] = 0;
    return text;
}

/* ---- files ---- */

static bool copy_file(const char *from, const char *to, sn_error *err) {
    sn_mapping m;
    if (!sn_file_map(from, &m, err)) return false;
    bool ok = sn_file_save(to, m.data, m.size, err);
    sn_file_unmap(&m);
    return ok;
}

/* Files that a benchmark of a folder reads: weights are random. */
static bool is_read(const char *name) {
    static const char *const ends[] = {".onnx", ".onnx_data", ".onnx.data", NULL};
    if (!strcmp(name, "config.json")) return true;
    for (int i = 0; ends[i]; i++)
        if (sn_ends_with(name, ends[i])) return true;
    return false;
}

/* Copies what a benchmark reads of a folder and, once, of the folder `onnx` in it. */
static bool copy_folder(const char *from, const char *to, bool inner, sn_error *err) {
    DIR *dir = opendir(from);
    if (!dir) return sn_fail(err, SN_ERR_FILE, "cannot read %s: %s", from, strerror(errno));
    bool ok = sn_folder_make(to, err);
    for (struct dirent *d; ok && (d = readdir(dir));) {
        char *a = sn_path_join(from, d->d_name), *b = sn_path_join(to, d->d_name);
        struct stat st;
        if (!a || !b)
            ok = sn_fail(err, SN_ERR_MEMORY, "out of memory");
        else if (!stat(a, &st) && S_ISDIR(st.st_mode) && !inner && !strcmp(d->d_name, "onnx"))
            ok = copy_folder(a, b, true, err);
        else if (is_read(d->d_name))
            ok = copy_file(a, b, err);
        free(a);
        free(b);
    }
    closedir(dir);
    return ok;
}

/* "model/NAME" in a folder, where the model keeps its name, which records have. */
static void place_of(const char *model, char *text, size_t size) {
    snprintf(text, size, "%s/%s", model_name, sn_base_name(model));
}

/* Copies the model, and of an ONNX file the config and the weights beside it. */
static bool copy_model(const char *dir, const char *model, sn_error *err) {
    char place[PATH_MAX], to[2 * PATH_MAX];
    struct stat st;
    if (!model || stat(model, &st)) return true;
    place_of(model, place, sizeof place);
    snprintf(to, sizeof to, "%s/%s", dir, model_name);
    if (!sn_folder_make(to, err)) return false;
    snprintf(to, sizeof to, "%s/%s", dir, place);
    if (S_ISDIR(st.st_mode)) return copy_folder(model, to, false, err);
    static const char *const beside[] = {"_data", ".data"};
    bool ok = copy_file(model, to, err);
    for (int i = 0; i < 2 && ok && sn_ends_with(model, ".onnx"); i++) {
        char from[PATH_MAX];
        snprintf(from, sizeof from, "%s%s", model, beside[i]);
        snprintf(to, sizeof to, "%s/%s%s", dir, place, beside[i]);
        if (sn_file_exists(from)) ok = copy_file(from, to, err);
    }
    char *folder = strdup(model), *slash = folder ? strrchr(folder, '/') : NULL;
    if (slash) *slash = 0;
    char *config = folder ? sn_path_join(slash ? folder : ".", "config.json") : NULL;
    snprintf(to, sizeof to, "%s/%s/config.json", dir, model_name);
    if (ok && config && sn_ends_with(model, ".onnx") && sn_file_exists(config))
        ok = copy_file(config, to, err);
    free(folder);
    free(config);
    return ok;
}

static bool write_claims(const char *path, const sn_bench_report *r, sn_error *err) {
    sn_file *f = sn_file_create(path, err);
    if (!f) return false;
    sn_bench_print(r, sn_file_stream(f));
    sn_bench_print_claims(r, sn_file_stream(f));
    return sn_file_commit(f, err);
}

static const char script[] =
    "#!/bin/sh\n"
    "# repeat.sh [NEW.json]: measures again, and compares the verdicts with those of "
    "records.json.\n"
    "# Exit code 1: a verdict differs; 2: there was no measurement, or all verdicts are refused. "
    "SINTER: the program.\n"
    "sinter=${SINTER:-sinter} new=${1:-$(mktemp)}\n"
    "case $sinter in /*) ;; */*) sinter=$PWD/$sinter ;; esac\n"
    "case $new in /*) ;; *) new=$PWD/$new ;; esac\n"
    "[ $# -gt 0 ] || trap 'rm -f \"$new\"' EXIT\n"
    "cd \"$(dirname \"$0\")\" || exit 2\n"
    "sha256sum -c files.sha256 >/dev/null || exit 2\n"
    "\"$sinter\" bench %s --json \"$new\" || exit 2\n"
    "\"$sinter\" bench compare records.json \"$new\" --claims\n";

static bool write_script(const char *path, const char *command, sn_error *err) {
    sn_file *f = sn_file_create(path, err);
    if (!f) return false;
    const char *at = strstr(script, "%s");
    fprintf(sn_file_stream(f), "%.*s%s%s", (int)(at - script), script, command, at + 2);
    if (!sn_file_commit(f, err)) return false;
    return !chmod(path, 0755) || sn_fail(err, SN_ERR_FILE, "%s: %s", path, strerror(errno));
}

/* Adds the hashes of the files in a folder, but not of the list. */
static bool add_sums(FILE *f, const char *dir, const char *prefix, sn_error *err) {
    DIR *d = opendir(dir);
    bool ok = d || sn_fail(err, SN_ERR_FILE, "cannot read %s: %s", dir, strerror(errno));
    for (struct dirent *e; ok && (e = readdir(d));) {
        char path[PATH_MAX], name[PATH_MAX], hex[65];
        struct stat st;
        sn_mapping m;
        if (*e->d_name == '.' || !strcmp(e->d_name, sums_name)) continue;
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        snprintf(name, sizeof name, "%s%s", prefix, e->d_name);
        if (!stat(path, &st) && S_ISDIR(st.st_mode)) {
            strncat(name, "/", sizeof name - strlen(name) - 1);
            ok = add_sums(f, path, name, err);
            continue;
        }
        ok = sn_file_map(path, &m, err);
        if (!ok) break;
        sha256 s = sha256_begin();
        sha256_add(&s, m.data, m.size);
        sha256_end(&s, hex);
        sn_file_unmap(&m);
        fprintf(f, "%s  %s\n", hex, name);
    }
    if (d) closedir(d);
    return ok;
}

static bool write_sums(const char *dir, const char *path, sn_error *err) {
    sn_file *f = sn_file_create(path, err);
    if (f && add_sums(sn_file_stream(f), dir, "", err)) return sn_file_commit(f, err);
    sn_file_discard(f);
    return false;
}

/* ---- the folder ---- */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static void remove_folder(const char *path) {
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Makes a folder beside `dir` that will get its name. */
static bool make_folder(const char *dir, char path[PATH_MAX], sn_error *err) {
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/') n--;
    if (!n || snprintf(path, PATH_MAX, "%.*s.XXXXXX", (int)n, dir) >= PATH_MAX)
        return sn_fail(err, SN_ERR_USAGE, "--evidence: the name of a folder is empty or too long");
    if (!access(dir, F_OK))
        return sn_fail(err, SN_ERR_USAGE, "--evidence: %s exists: name a new folder", dir);
    return (mkdtemp(path) && !chmod(path, 0755)) ||
           sn_fail(err, SN_ERR_FILE, "--evidence: cannot make the folder %s: %s", dir,
                   strerror(errno));
}

bool evidence_can(const char *dir, sn_error *err) {
    char path[PATH_MAX];
    return !dir || (make_folder(dir, path, err) && (!rmdir(path) || true));
}

static bool write_all(const char *dir, int argc, char **argv, const char *model,
                      const sn_bench_report *r, const sn_bench_options *o, sn_error *err) {
    char path[PATH_MAX + 32], place[PATH_MAX] = "";
    bool is_file = model && !access(model, F_OK);
    if (is_file) place_of(model, place, sizeof place);
    char *command = evidence_command(argc, argv, is_file ? model : NULL, place, o);
    if (!command) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    snprintf(path, sizeof path, "%s/%s", dir, records_name);
    bool ok = sn_bench_write_json(r, o, path, err);
    snprintf(path, sizeof path, "%s/%s", dir, claims_name);
    ok = ok && write_claims(path, r, err) && copy_model(dir, model, err);
    snprintf(path, sizeof path, "%s/%s", dir, script_name);
    ok = ok && write_script(path, command, err);
    snprintf(path, sizeof path, "%s/%s", dir, sums_name);
    ok = ok && write_sums(dir, path, err);
    free(command);
    return ok;
}

bool evidence_write(const char *dir, int argc, char **argv, const char *model,
                    const sn_bench_report *r, const sn_bench_options *o, sn_error *err) {
    char path[PATH_MAX];
    if (!sn_bench_claims(r, NULL))
        return sn_fail(err, SN_ERR_USAGE,
                       "--evidence: the run claims nothing: measure two levels (--levels 0,4) or a "
                       "peer (--peers)");
    if (!make_folder(dir, path, err)) return false;
    if (!write_all(path, argc, argv, model, r, o, err)) {
        remove_folder(path);
        return false;
    }
    if (!access(dir, F_OK) || rename(path, dir)) {
        sn_fail(err, SN_ERR_FILE, "--evidence: cannot name the folder %s: %s", dir,
                access(dir, F_OK) ? strerror(errno) : "it exists");
        remove_folder(path);
        return false;
    }
    return true;
}
