/* link.c: runs the C compiler as a linker. */
#include "tools/artefact/link.h"
#include "driver/installed.h"
#include "codegen/emit/target.h"
#include "runtime/file.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { MAX_ARGS = 48 };

typedef struct command {
    const char *argv[MAX_ARGS + 1];
    char *owned[MAX_ARGS]; /* paths to free */
    int n, n_owned;
    bool failed;
} command;

static void add(command *c, const char *word) {
    if (c->n < MAX_ARGS)
        c->argv[c->n++] = word;
    else
        c->failed = true;
}

static void add_path(command *c, const char *dir, const char *name, const char *ending) {
    char file[160];
    snprintf(file, sizeof file, "%s%s", name, ending);
    char *path = sn_path_join(dir, file);
    if (path && c->n_owned < MAX_ARGS) {
        c->owned[c->n_owned++] = path;
        add(c, path);
    } else {
        free(path);
        c->failed = true;
    }
}

static void drop(command *c) {
    for (int i = 0; i < c->n_owned; i++) free(c->owned[i]);
}

/* Runs the command with the process's stdout and stderr. Frees the paths. */
static bool run(command *c, const char *what, sn_error *err) {
    pid_t pid;
    int status = 0, failed = 0;
    c->argv[c->n] = NULL;
    bool ok = !c->failed || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    if (ok) failed = posix_spawnp(&pid, c->argv[0], NULL, NULL, (char *const *)c->argv, environ);
    if (ok && failed)
        ok = sn_fail(err, SN_ERR_FILE, "%s needs '%s': %s; install it, or name another with --cc",
                     what, c->argv[0], strerror(failed));
    if (ok && (waitpid(pid, &status, 0) < 0 || status))
        ok = sn_fail(err, SN_ERR_FILE, "%s: '%s' failed; its messages are above", what, c->argv[0]);
    drop(c);
    return ok;
}

/* The compiler for a target: a cross compiler if the architecture differs from this machine's. */
static const char *compiler_of(const link_request *r, sn_error *err) {
    static const char *const cross[] = {[SN_ARCH_X86_64] = "x86_64-linux-gnu-gcc",
                                        [SN_ARCH_AARCH64] = "aarch64-linux-gnu-gcc",
                                        [SN_ARCH_RISCV64] = "riscv64-linux-gnu-gcc",
                                        [SN_ARCH_WASM32] = NULL};
    sn_target t, host;
    sn_error none = {0};
    char first[128];
    if (r->cc) return r->cc;
    if (r->windows) return "x86_64-w64-mingw32-gcc";
    snprintf(first, sizeof first, "%.*s", (int)strcspn(r->target, ","), r->target);
    if (!sn_target_init(&t, first, err)) return NULL;
    bool here = sn_target_init(&host, "native", &none) && host.arch == t.arch;
    return here ? "cc" : cross[t.arch];
}

static void begin(command *c, const char *cc) {
    *c = (command){0};
    add(c, cc);
}

bool link_shared(const link_request *r, sn_error *err) {
    const char *cc = compiler_of(r, err);
    command c;
    if (!cc) return false;
    begin(&c, cc);
    char soname[160]; /* else a program that was linked with a path needs the file there */
    snprintf(soname, sizeof soname, "-Wl,-soname,%s.so", r->name);
    add(&c, "-shared");
    add(&c, soname);
    add(&c, "-o");
    add_path(&c, r->dir, r->name, ".so");
    add_path(&c, r->dir, r->name, ".o");
    if (r->openmp) add(&c, "-lgomp");
    add(&c, "-lm");
    return run(&c, "a shared library", err);
}

/* The first line that a compiler or linker prints, allocated; NULL: none. No shell reads the name of
 * the program. */
static char *ask(const char *cc, const char *option) {
    const char *const argv[] = {cc, option, NULL};
    char *line = NULL;
    size_t room = 0;
    int fd = memfd_create("answer", MFD_CLOEXEC), status = 1;
    posix_spawn_file_actions_t files;
    pid_t pid;
    if (fd < 0 || posix_spawn_file_actions_init(&files)) return fd < 0 ? NULL : (close(fd), NULL);
    bool ok = !posix_spawn_file_actions_adddup2(&files, fd, STDOUT_FILENO) &&
              !posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0) &&
              !posix_spawnp(&pid, cc, &files, NULL, (char *const *)argv, environ) &&
              waitpid(pid, &status, 0) == pid && !status && lseek(fd, 0, SEEK_SET) == 0;
    posix_spawn_file_actions_destroy(&files);
    FILE *f = ok ? fdopen(fd, "r") : NULL;
    if (f && getline(&line, &room, f) > 0) line[strcspn(line, "\n")] = 0;
    if (f ? fclose(f) : close(fd)) ok = false;
    return line;
}

/* ---- WebAssembly modules ---- */

const char *link_wasm_linker(const char *cc, sn_error *err) {
    static const char *const usual[] = {"wasm-ld-19", "wasm-ld", NULL};
    const char *const given[] = {cc, NULL};
    for (const char *const *name = cc ? given : usual; *name; name++) {
        char *version = ask(*name, "--version");
        const bool runs = version != NULL;
        free(version);
        if (runs) return *name;
    }
    sn_fail(err, SN_ERR_FILE,
            "a WebAssembly module needs the linker '%s', which does not run; install lld (Debian: "
            "apt-get install lld-19), or name wasm-ld with --cc",
            cc ? cc : "wasm-ld");
    return NULL;
}

bool link_wasm(const link_request *r, sn_error *err) {
    /* a stack that overflows leaves memory and traps, because it comes first */
    static const char *const flags[] = {
        "--no-entry",          "--stack-first", "-z",
        "stack-size=2097152",  "--strip-all",   "--max-memory=4294967296",
        "--export=__heap_base"};
    static const char *const shared[] = {"--shared-memory", "--import-memory", "--export-memory",
                                         "--export=__stack_pointer"};
    char initial[40];
    snprintf(initial, sizeof initial, "--initial-memory=%d", LINK_WASM_MEMORY);
    const char *linker = link_wasm_linker(r->cc, err);
    command c;
    if (!linker) return false;
    begin(&c, linker);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) add(&c, flags[i]);
    for (size_t i = 0; i < sizeof shared / sizeof *shared && r->workers; i++) add(&c, shared[i]);
    if (r->workers) add(&c, initial);
    add(&c, "-o");
    add_path(&c, r->dir, r->name, ".wasm");
    add_path(&c, r->dir, r->name, ".wasm.o");
    return run(&c, "a WebAssembly module", err);
}

/* ---- programs ---- */

/* A library of Sinter, installed with this program or from its build tree. */
static bool add_library(command *c, const char *name, sn_error *err) {
    static const char *const built[] = {"runtime", "model", "windows"};
    char folder[4400];
    size_t i = 0;
    while (i < 3 && !installed_folder(SN_LIBDIR, built[i], name, folder, sizeof folder)) i++;
    if (i == 3)
        return sn_fail(
            err, SN_ERR_FILE,
            "a program needs %s, which is neither installed with this program nor in its "
            "build tree%s; link the object with your own main instead",
            name, strstr(name, "windows") ? " (it is built where CMake finds MinGW)" : "");
    add_path(c, folder, name, "");
    return true;
}

/* A system library: the static one if the compiler has it (true), so that the program does not need
 * it at run time. */
static bool add_archive(command *c, const char *cc, const char *name) {
    char option[80];
    snprintf(option, sizeof option, "-print-file-name=lib%s.a", name);
    char *word = ask(cc, option);
    const bool found = word && strchr(word, '/');
    if (!found) {
        free(word);
        if ((word = malloc(strlen(name) + 3))) sprintf(word, "-l%s", name);
    }
    if (word && c->n_owned < MAX_ARGS) {
        c->owned[c->n_owned++] = word;
        add(c, word);
    } else {
        free(word);
        c->failed = true;
    }
    return found;
}

/* A library that is not a part of Sinter. MinGW has none for Windows, but users may. */
static bool add_foreign(command *c, const link_request *r, const char *cc, const char *name,
                        const char *why, sn_error *err) {
    return add_archive(c, cc, name) || !r->windows ||
           sn_fail(err, SN_ERR_FILE,
                   "a program needs lib%s.a for %s, and '%s' has none: install that library for "
                   "Windows, use a model whose tokenizer does without, or leave out --exe and link "
                   "%s.obj with a main of yours that takes token ids",
                   name, why, cc, r->name);
}

static bool add_libraries(command *c, const link_request *r, const char *cc, sn_error *err) {
    static const char *const names[2][4] = {
        {"libsinter_plain.a", "libsinter_program.a", "libsinter_text.a", "libsinter_rt.a"},
        {"libsinter_windows_plain.a", "libsinter_windows.a"}};
    const char *const *name = names[r->windows];
    if (!r->unicode) add(c, "-Wl,-u,sn_unicode_need"); /* before libsinter_text.a has it */
    if (!r->regex) add(c, "-Wl,-u,sn_regex_new");
    if (!add_library(c, *name++, err)) return false;
    add(c, "-Wl,--start-group"); /* the runtime calls the program's JSON reader */
    for (; name < names[r->windows] + 4 && *name; name++)
        if (!add_library(c, *name, err)) return false;
    if (r->regex &&
        !add_foreign(c, r, cc, "pcre2-8", "the regular expressions of this tokenizer", err))
        return false;
    if (r->unicode &&
        !add_foreign(c, r, cc, "utf8proc", "the tables of Unicode of this tokenizer", err))
        return false;
    add(c, "-Wl,--end-group"); /* libraries may call checked.c */
    return true;
}

static bool program_command(command *c, const link_request *r, sn_error *err) {
    const char *cc = compiler_of(r, err);
    *c = (command){0};
    if (!cc) return false;
    if (!r->cc && strcmp(cc, "cc") && !r->windows)
        return sn_fail(err, SN_ERR_TARGET,
                       "programs can only be linked for this machine's architecture; for target "
                       "'%s' link NAME.o with your own main (examples/deploy)",
                       r->target);
    char *version = ask(cc, "--version");
    if (!version)
        return sn_fail(err, SN_ERR_FILE,
                       "a program needs '%s', which does not run; install it%s, or name another "
                       "with --cc",
                       cc, r->windows ? " (Debian: apt-get install gcc-mingw-w64-x86-64)" : "");
    free(version);
    begin(c, cc);
    if (r->is_static || r->windows) add(c, "-static");
    if (r->windows) add(c, "-Wl,-S"); /* without what debuggers need of MinGW's C runtime */
    for (const char *const *flag = (const char *const[]){SN_LINK_FLAGS NULL}; *flag && !r->windows;
         flag++)
        add(c, *flag);
    add(c, "-Wl,--gc-sections");
    add(c, "-o");
    add_path(c, r->dir, r->name, r->windows ? ".exe" : "");
    add_path(c, r->dir, r->name, r->windows ? ".obj" : ".o");
    if (!add_libraries(c, r, cc, err)) return false;
    const bool gomp = r->openmp && add_archive(c, cc, "gomp"); /* sn_threads_limit_spinning */
    if (r->static_gomp) *r->static_gomp = gomp;
    if (gomp) add(c, "-lpthread"); /* it needs them before glibc 2.34 */
    if (gomp && !r->windows) add(c, "-ldl");
    add(c, "-lm");
    return true;
}

bool link_program(const link_request *r, sn_error *err) {
    command c;
    if (program_command(&c, r, err)) return run(&c, "a program", err);
    drop(&c);
    return false;
}

bool link_program_possible(const link_request *r, sn_error *err) {
    command c;
    const bool ok = program_command(&c, r, err);
    drop(&c);
    return ok;
}
