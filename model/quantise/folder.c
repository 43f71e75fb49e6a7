/* folder.c: writes a quantised model under a temporary name, then renames it. */
#include "model/quantise/folder.h"
#include "model/quantise/folder_tensors.h"
#include "runtime/file.h"
#include "runtime/files/gguf.h"
#include "runtime/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- opening and closing ---- */

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)st, (void)kind;
    return at->level ? remove(path) : 0;
}

/* Removes what is in a folder. */
static void empty_folder(const char *path) {
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static bool is_empty(const char *path) {
    bool empty = true;
    DIR *dir = opendir(path);
    for (struct dirent *d; dir && (d = readdir(dir));)
        empty &= !strcmp(d->d_name, ".") || !strcmp(d->d_name, "..");
    if (dir) closedir(dir);
    return empty;
}

static bool was_quantised(const char *path) {
    sn_error ignored = {0};
    char *file = sn_path_join(path, "config.json");
    sn_config *c = file ? sn_config_open(file, &ignored) : NULL;
    bool is = c && sn_config_has(c, SN_QUANTISED_KEY);
    sn_config_free(c);
    free(file);
    return is;
}

static bool check_target(const char *path, bool force, sn_error *err) {
    struct stat st;
    if (stat(path, &st) != 0) return true;
    if (!S_ISDIR(st.st_mode))
        return sn_fail(err, SN_ERR_USAGE, "%s: is a file: give the name of a folder", path);
    if (is_empty(path) || (force && was_quantised(path))) return true;
    return sn_fail(
        err, SN_ERR_USAGE,
        was_quantised(path)
            ? "%s: contains a quantised model: choose another folder, or replace it with "
              "--force"
            : "%s: is not empty and not a folder that sinter quantize wrote: choose "
              "another folder",
        path);
}

bool quantise_folder_open(quantise_folder *f, const char *path, bool force, sn_error *err) {
    *f = (quantise_folder){.lock = -1};
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    f->path = strndup(path, n);
    f->staging = malloc(n + sizeof ".tmp");
    if (!f->path || !f->staging) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    snprintf(f->staging, n + sizeof ".tmp", "%s.tmp", f->path);
    if (!check_target(f->path, force, err) || !sn_folder_make(f->staging, err)) return false;
    f->lock = open(f->staging, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (f->lock < 0)
        return sn_fail(err, SN_ERR_FILE, "%s: cannot open folder: %s", f->staging, strerror(errno));
    if (flock(f->lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        close(f->lock);
        f->lock = -1;
        return sn_fail(err, SN_ERR_FILE,
                       "%s: another process is writing this folder: wait for it, or choose another",
                       f->path);
    }
    empty_folder(f->staging); /* of a killed process */
    return true;
}

void quantise_folder_close(quantise_folder *f) {
    if (f->lock >= 0) {
        empty_folder(f->staging);
        rmdir(f->staging);
        close(f->lock);
    }
    free(f->path);
    free(f->staging);
    *f = (quantise_folder){.lock = -1};
}

/* ---- other files ---- */

/* Weights in other formats would not be those of the quantised model. */
static bool is_left_out(const char *name, bool top) {
    static const char *const names[] = {"config.json", "pytorch_model.bin", "tf_model.h5",
                                        "checkpoint.safetensors"};
    static const char *const endings[] = {".index.json", ".onnx",        ".msgpack", ".h5", ".pt",
                                          ".pth",        ".safetensors", ".gguf",    ".ot", ".tmp"};
    bool out = name[0] == '.' || !strncmp(name, "pytorch_model", 13);
    for (size_t i = 0; top && i < sizeof names / sizeof *names; i++) out |= !strcmp(name, names[i]);
    for (size_t i = 0; top && i < sizeof endings / sizeof *endings; i++)
        out |= sn_ends_with(name, endings[i]) && strcmp(name, "tokenizer.gguf") != 0;
    return out;
}

/* top: the folder of the model; `from`: it, or one in it. */
static bool copy_folder(quantise_folder *f, const char *top, const char *from, const char *to,
                        int depth, sn_error *err) {
    enum { MAX_DEPTH = 4 };
    DIR *dir = opendir(from);
    if (!dir) return sn_fail(err, SN_ERR_FILE, "%s: cannot read folder: %s", from, strerror(errno));
    bool ok = sn_folder_make(to, err);
    for (struct dirent *d; ok && (d = readdir(dir));) {
        if (is_left_out(d->d_name, depth == 0)) continue;
        struct stat st;
        char shown[200];
        char *a = sn_path_join(from, d->d_name), *b = sn_path_join(to, d->d_name);
        if (!a || !b)
            ok = sn_fail(err, SN_ERR_MEMORY, "out of memory");
        else if (sn_folder_owns(top, a))
            ok = sn_file_copy(top, a, b, err);
        else if (lstat(a, &st) == 0 && S_ISDIR(st.st_mode) && depth < MAX_DEPTH)
            ok = copy_folder(f, top, a, b, depth + 1, err);
        else
            sn_problem(&f->left_out, "%s", sn_printable(shown, sizeof shown, a));
        free(a);
        free(b);
    }
    closedir(dir);
    return ok;
}

/* Of a GGUF file its tokenizer, of a folder everything else. */
static bool copy_rest(quantise_folder *f, const subject *s, sn_error *err) {
    const char *from = s->m->dir->path;
    if (!sn_gguf_is_file(from)) return copy_folder(f, from, from, f->staging, 0, err);
    char *keys = sn_path_join(f->staging, "tokenizer.gguf");
    bool ok =
        keys ? sn_gguf_save_keys(from, keys, err) : sn_fail(err, SN_ERR_MEMORY, "out of memory");
    free(keys);
    return ok;
}

/* ---- saving ---- */

/* Gives the staged folder its name. What had the name before is removed. */
static bool rename_folder(quantise_folder *f, sn_error *err) {
    rmdir(f->path); /* if it is empty */
    if (rename(f->staging, f->path) == 0) {
        close(f->lock);
        f->lock = -1;
        return true;
    }
    if (renameat2(AT_FDCWD, f->staging, AT_FDCWD, f->path, RENAME_EXCHANGE) == 0)
        return true; /* closing removes the old one, which is staged now */
    return sn_fail(err, SN_ERR_FILE, "%s: cannot rename %s: %s", f->path, f->staging,
                   strerror(errno));
}

bool quantise_folder_save(quantise_folder *f, const subject *s, const quantised *q, sn_error *err) {
    folder_tensors t = {0};
    sn_config *config = sn_model_dir_config(s->m->dir->path, err);
    bool ok = config && quantised_write(q, config, err) && copy_rest(f, s, err) &&
              folder_tensors_make(s, &t, err) &&
              sn_model_dir_save(f->staging, config, t.list, t.count, err) && rename_folder(f, err);
    folder_tensors_free(&t);
    sn_config_free(config);
    return ok;
}
