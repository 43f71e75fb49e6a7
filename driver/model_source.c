/* model_source.c: compiles models in C and loads them, and imports ONNX files; see model_source.h. The cache key is the
 * text after the preprocessor, so changed headers are noticed. */
#include "driver/model_source.h"
#include "codegen/jit/cache.h"
#include "runtime/file.h"
#include "runtime/model_dir.h"
#include "runtime/str.h"
#include "driver/installed.h"
#include "driver/temporary.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

enum { MAX_ARGS = 64 };

static bool is_onnx(const char *path) {
    return sn_ends_with(path, ".onnx");
}

bool model_source_is(const char *path) {
    return path && (sn_ends_with(path, ".c") || sn_ends_with(path, ".so") || is_onnx(path));
}

/* ---- running the C compiler ---- */

typedef struct command {
    char *arg[MAX_ARGS + 1];
    int n;
    char *words; /* $CC and $CFLAGS, split at spaces */
    char include[PATH_MAX + 96];
} command;

static void add_arg(command *c, char *arg) {
    if (c->n < MAX_ARGS) c->arg[c->n++] = arg;
}

static void add_words(command *c, char *text) {
    char *rest;
    for (char *w = strtok_r(text, " ", &rest); w; w = strtok_r(NULL, " ", &rest)) add_arg(c, w);
}

/* Headers of an installed program lie in ../include, those of one in its build tree in ../api. */
static bool find_headers(char *flag, size_t size, sn_error *err) {
    char path[PATH_MAX + 64];
    if (!installed_folder("include", "api", "sinter/models.h", path, sizeof path))
        return sn_fail(err, SN_ERR_FILE, "sinter/models.h is not in %s", path);
    snprintf(flag, size, "-I%s", path);
    return true;
}

static bool begin_command(command *c, sn_error *err) {
    const char *cc = getenv("CC"), *flags = getenv("CFLAGS");
    *c = (command){.n = 0};
    if (!find_headers(c->include, sizeof c->include, err)) return false;
    if (!cc || !*cc) cc = "cc";
    if (!flags) flags = "-O1";
    size_t size = strlen(cc) + strlen(flags) + 2;
    c->words = malloc(size);
    if (!c->words) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    snprintf(c->words, size, "%s", cc);
    char *second = c->words + strlen(cc) + 1;
    memcpy(second, flags, strlen(flags) + 1);
    add_words(c, c->words);
    add_words(c, second);
    static char *const always[] = {"-std=gnu11",
                                   "-fPIC",
                                   "-Werror=implicit-function-declaration",
                                   "-Werror=incompatible-pointer-types",
                                   "-Werror=int-conversion",
                                   "-fdiagnostics-color=never"};
    for (size_t i = 0; i < sizeof always / sizeof *always; i++) add_arg(c, always[i]);
    add_arg(c, c->include);
    return true;
}

/* Reads a descriptor to the end and closes it. */
static char *read_all(int fd, size_t *size) {
    FILE *f = fdopen(fd, "r");
    char *text = f ? sn_stream_read(f, "the C compiler", size, NULL) : NULL;
    if (f)
        fclose(f);
    else
        close(fd);
    return text;
}

/* Removes what does not help: which header includes which, and the definitions of macros. */
static void trim(char *messages) {
    const char *line = messages, *end;
    char *to = messages;
    bool removing = false;
    for (; *line; line = end) {
        end = line + strcspn(line, "\n");
        end += *end == '\n';
        char *note = strstr(line, "note: in definition of macro");
        bool begins = !strncmp(line, "In file included from ", 22) || (note && note < end);
        removing = begins || (removing && *line == ' ');
        if (removing) continue;
        memmove(to, line, (size_t)(end - line));
        to += end - line;
    }
    *to = 0;
}

/* As many whole lines of the compiler's messages as fit in an error. */
static bool fail_compile(const char *path, char *messages, sn_error *err) {
    trim(messages);
    size_t room = sizeof err->message - strlen(path) - 40, n = strlen(messages);
    if (n > room)
        for (n = room; n && messages[n - 1] != '\n';) n--;
    while (n && messages[n - 1] == '\n') n--;
    return sn_fail(err, SN_ERR_USAGE, "%s does not compile:\n%.*s", path, (int)n, messages);
}

/* Runs the command; returns its standard output (in the second form: an empty text), which the
 * caller frees. NULL with the compiler's messages in err. */
static char *run_command(command *c, const char *path, size_t *size, sn_error *err) {
    int out[2] = {-1, -1}, messages = memfd_create("sinter-cc", MFD_CLOEXEC);
    if (messages < 0 || pipe2(out, O_CLOEXEC)) {
        sn_fail(err, SN_ERR_FILE, "cannot run the C compiler: %s", strerror(errno));
        if (messages >= 0) close(messages);
        return NULL;
    }
    c->arg[c->n] = NULL;
    pid_t child = fork();
    if (!child) {
        dup2(out[1], STDOUT_FILENO);
        dup2(messages, STDERR_FILENO);
        execvp(c->arg[0], c->arg);
        dprintf(STDERR_FILENO, "cannot run %s: %s; install a C compiler, or name one in CC\n",
                c->arg[0], strerror(errno));
        _exit(127);
    }
    close(out[1]);
    char *text = read_all(out[0], size), *said = NULL;
    int status = -1;
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (!text || status) {
        size_t n;
        lseek(messages, 0, SEEK_SET);
        said = read_all(dup(messages), &n);
        fail_compile(path, said && *said ? said : (char[]){"the C compiler failed"}, err);
        free(text);
        text = NULL;
    }
    free(said);
    close(messages);
    return text;
}

/* ---- compiling the shared object ---- */

/* The text after the preprocessor, and the command that compiles it. */
static sn_cache_key key_of(const command *c, const char *text, size_t size) {
    XXH128_hash_t hash[MAX_ARGS + 1]; /* a hash of hashes keeps the parts separate */
    for (int i = 0; i < c->n; i++) hash[i] = XXH3_128bits(c->arg[i], strlen(c->arg[i]));
    hash[c->n] = XXH3_128bits(text, size);
    XXH128_hash_t h = XXH3_128bits(hash, sizeof *hash * (size_t)(c->n + 1));
    return (sn_cache_key){h.low64, h.high64};
}

static bool read_object(const char *path, sn_object *out, sn_error *err) {
    sn_mapping m;
    if (!sn_file_map(path, &m, err)) return false;
    *out = (sn_object){malloc(m.size + 1), m.size};
    if (out->data) memcpy(out->data, m.data, m.size);
    sn_file_unmap(&m);
    return out->data || sn_fail(err, SN_ERR_MEMORY, "out of memory");
}

/* Compiles in a private folder and reads the result. */
static bool make_object(command *c, const char *path, sn_object *out, sn_error *err) {
    size_t size;
    temporary t;
    if (!temporary_make(&t, err)) return false;
    char *object = sn_path_join(t.path, "model.so");
    add_arg(c, "-shared");
    add_arg(c, "-o");
    add_arg(c, object);
    add_arg(c, (char *)(uintptr_t)path);
    char *text = object ? run_command(c, path, &size, err) : NULL;
    bool ok = text ? read_object(object, out, err)
                   : object || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    ok = ok && text;
    free(text);
    free(object);
    temporary_remove(&t);
    return ok;
}

/* ---- loading ---- */

static void close_library(model_source *s) {
    if (!s->library) return;
    dlclose(s->library);
    if (s->file >= 0) close(s->file);
    s->library = NULL;
}

static bool load(model_source *s, const char *path, const char *object, sn_error *err) {
    s->file = -1;
    s->library = dlopen(object, RTLD_NOW | RTLD_LOCAL);
    if (!s->library) {
        const char *why = dlerror();
        const char *symbol = strstr(why, "undefined symbol");
        return sn_fail(err, SN_ERR_USAGE, "%s: %s", path, symbol ? symbol : why);
    }
    const int *version = dlsym(s->library, "sn_model_version");
    *(void **)&s->define = dlsym(s->library, "sn_model_define");
    if (!version || !s->define)
        return sn_fail(err, SN_ERR_USAGE,
                       "%s does not define a model: put the code that adds entries to m in "
                       "SN_MODEL(m, o) { … }, which <sinter/models.h> declares",
                       path);
    if (*version != SN_MODEL_VERSION)
        return sn_fail(err, SN_ERR_USAGE,
                       "%s was compiled for version %d of the model interface, but this program "
                       "has version %d: recompile it, or pass the .c file",
                       path, *version, SN_MODEL_VERSION);
    return true;
}

/* dlopen needs a file: use one in memory. It stays open as long as the library, because dlopen
 * takes equal names for the same library. */
static bool load_object(model_source *s, const char *path, const sn_object *o, sn_error *err) {
    char name[64];
    int fd = memfd_create("sinter-model", MFD_CLOEXEC);
    FILE *f = fd >= 0 ? fdopen(dup(fd), "wb") : NULL;
    bool ok = f && fwrite(o->data, 1, o->size, f) == o->size;
    if (f) ok &= fclose(f) == 0;
    if (!ok)
        sn_fail(err, SN_ERR_FILE, "%s: out of memory when loading it: %s", path, strerror(errno));
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ok = ok && load(s, path, name, err);
    if (s->library)
        s->file = fd;
    else if (fd >= 0)
        close(fd);
    return ok;
}

/* Loads the cached object of this key. One that cannot be loaded is removed; that is not an
 * error. */
static bool load_cached(model_source *s, const char *path, sn_cache *cache, sn_cache_key key) {
    sn_object o;
    sn_error unloadable = {0};
    if (!sn_cache_get(cache, SN_CACHE_MODEL, key, &o)) return false;
    bool ok = load_object(s, path, &o, &unloadable);
    sn_object_free(&o);
    if (ok) return true;
    close_library(s);
    sn_cache_drop(cache, SN_CACHE_MODEL, key);
    return false;
}

static bool compile_and_load(model_source *s, const char *path, const char *cache_dir,
                             sn_error *err) {
    command c;
    size_t size;
    if (!begin_command(&c, err)) return false;
    int n = c.n;
    add_arg(&c, "-E");
    add_arg(&c, (char *)(uintptr_t)path);
    char *text = run_command(&c, path, &size, err);
    c.n = n;
    bool use_disk = text && !sn_cache_is_off(cache_dir), ok = false;
    sn_cache *cache = use_disk ? sn_cache_open(cache_dir, 0, err) : NULL;
    if (text && (cache || !use_disk)) {
        sn_cache_key key = key_of(&c, text, size);
        sn_object o = {0};
        ok = load_cached(s, path, cache, key);
        if (!ok && make_object(&c, path, &o, err)) {
            ok = load_object(s, path, &o, err);
            if (ok) sn_cache_put(cache, SN_CACHE_MODEL, key, &o);
        }
        sn_object_free(&o);
    }
    sn_cache_close(cache);
    free(text);
    free(c.words);
    return ok;
}

bool model_source_open(const char *path, const char *cache_dir, model_source *out, sn_error *err) {
    *out = (model_source){0};
    struct stat st;
    if (stat(path, &st)) return sn_fail(err, SN_ERR_FILE, "%s: %s", path, strerror(errno));
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    snprintf(out->name, sizeof out->name, "%.*s", (int)(strrchr(name, '.') - name), name);
    char full[PATH_MAX]; /* dlopen searches other folders for a bare name */
    if (!realpath(path, full)) return sn_fail(err, SN_ERR_FILE, "%s: %s", path, strerror(errno));
    if (is_onnx(path))
        return (out->onnx = strdup(path)) || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    bool ok = sn_ends_with(path, ".so") ? load(out, path, full, err)
                                        : compile_and_load(out, path, cache_dir, err);
    if (!ok) model_source_close(out);
    return ok;
}

char *model_source_in(const char *folder, bool cached) {
    static const char *const names[] = {"decoder_model_merged.onnx", "decoder_with_past_model.onnx",
                                        "model.onnx"};
    enum { NAMES = sizeof names / sizeof *names };
    const bool has = !sn_folder_has(folder, "config.json") || sn_model_dir_has_weights(folder);
    char *deep = has ? NULL : sn_path_join(folder, "onnx"), *found = NULL;
    for (size_t i = 0; deep && i < 2 * NAMES && !found; i++) {
        const char *in = i % 2 ? deep : folder;
        const char *name = names[(i / 2 + (cached ? 0 : NAMES - 1)) % NAMES];
        if (sn_folder_has(in, name)) found = sn_path_join(in, name);
    }
    free(deep);
    return found;
}

char *model_source_folder(const char *onnx) {
    const char *slash = strrchr(onnx, '/');
    char *folder = slash ? strndup(onnx, (size_t)(slash - onnx) + (slash == onnx)) : strdup(".");
    if (folder && !sn_folder_has(folder, "config.json") &&
        (!strcmp(folder, "onnx") || sn_ends_with(folder, "/onnx"))) {
        folder[strlen(folder) - 4] = 0;
        if (!*folder) strcpy(folder, ".");
    }
    if (folder && sn_folder_has(folder, "config.json")) return folder;
    free(folder);
    return NULL;
}

bool model_source_build(model_source *s, const sn_model_options *o, sn_model *out, sn_error *err) {
    sn_weights *weights = NULL;
    if (!s->onnx) return sn_model_build_with(s->define, s->name, o, out, err);
    if (!sn_model_build_onnx(s->onnx, s->name, s->config, o, out, &weights, err)) return false;
    if (s->weights)
        sn_weights_close(weights);
    else
        s->weights = weights;
    return true;
}

void model_source_close(model_source *s) {
    close_library(s);
    sn_weights_close(s->weights);
    free(s->onnx);
    *s = (model_source){0};
}
