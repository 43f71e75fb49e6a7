/* train_folder.c: the folder of a run: used by one process at a time, with the files of one run
 * only. */
#include "model/train/train.h"

#include "runtime/file.h"
#include "model/import/import.h"
#include "model/open.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static bool holds(const train_folder *f, const char *name) {
    return faccessat(f->fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static bool lock_folder(train_folder *f, sn_error *err) {
    struct stat st;
    f->made = stat(f->path, &st) != 0;
    if (!sn_folder_make(f->path, err)) return false;
    f->fd = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->fd < 0)
        return sn_fail(err, SN_ERR_FILE, "%s: cannot open folder: %s", f->path, strerror(errno));
    /* file systems without locks are used unlocked */
    if (flock(f->fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return true;
    return sn_fail(
        err, SN_ERR_FILE,
        "%s: another process is training in this folder: stop it first, or choose another folder",
        f->path);
}

static bool is_same(const train_folder *f, const char *path) {
    struct stat a, b;
    return path && stat(path, &a) == 0 && fstat(f->fd, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

/* Whether the run reads its tokenizer from its own folder. */
static bool has_tokenizer_inside(const train_folder *f, const train_settings *s) {
    char *beside = s->tokenizer ? import_beside(s->tokenizer, ".") : NULL;
    bool inside = is_same(f, s->tokenizer) || is_same(f, beside);
    free(beside);
    return inside;
}

/* The folder of averages in it; fd -1: there is none. */
static train_folder averaged_in(const train_folder *f) {
    return (train_folder){
        .path = TRAIN_AVERAGED,
        .fd = openat(f->fd, TRAIN_AVERAGED, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
}

static bool has_start(const train_folder *f, const train_settings *s) {
    train_folder averaged = averaged_in(f);
    bool has = is_same(f, s->start) || (averaged.fd >= 0 && is_same(&averaged, s->start));
    if (averaged.fd >= 0) close(averaged.fd);
    return has;
}

/* A model that does not come from a training run may be the only copy. */
static bool check_new(const train_folder *f, const train_settings *s, bool force, sn_error *err) {
    if (checkpoint_exists(f->path) && !force)
        return sn_fail(err, SN_ERR_USAGE,
                       "%s: contains a training run: --resume continues it, --force starts over",
                       f->path);
    if (has_start(f, s))
        return sn_fail(
            err, SN_ERR_USAGE,
            "%s contains the initial weights and would be overwritten: choose another folder",
            f->path);
    if (holds(f, "model.safetensors.index.json"))
        return sn_fail(err, SN_ERR_USAGE,
                       "%s: contains a model of several files (model.safetensors.index.json); "
                       "choose another folder",
                       f->path);
    bool foreign = holds(f, "model.safetensors") ||
                   (s->training.optimizer.average > 0 && holds(f, TRAIN_AVERAGED));
    for (size_t i = 0; import_tokenizer_file(i) && !has_tokenizer_inside(f, s); i++)
        foreign |= holds(f, import_tokenizer_file(i));
    if (foreign && !holds(f, TRAIN_LOG) && !force)
        return sn_fail(err, SN_ERR_USAGE,
                       "%s: contains a model or a tokenizer that is not from a training run: "
                       "choose another folder, or replace it with --force",
                       f->path);
    return true;
}

bool train_folder_open(train_folder *f, const char *path, const train_settings *s, bool resume,
                       bool force, sn_error *err) {
    *f = (train_folder){.path = path, .fd = -1};
    if (resume && !checkpoint_exists(path))
        return sn_fail(err, SN_ERR_FILE, "%s: there is no checkpoint to resume from", path);
    return lock_folder(f, err) && (resume || check_new(f, s, force, err));
}

static bool remove_old(const train_folder *f, const char *name, sn_error *err) {
    struct stat st;
    bool folder = fstatat(f->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
    return folder || unlinkat(f->fd, name, 0) == 0 || errno == ENOENT ||
           sn_fail(err, SN_ERR_FILE, "%s/%s: cannot remove this file of an older run: %s", f->path,
                   name, strerror(errno));
}

static bool remove_model(const train_folder *f, const train_settings *s, sn_error *err) {
    static const char *const run[] = {"checkpoint.safetensors", "model.safetensors", SN_MODEL_GRAPH,
                                      "loss.svg", "loss.png"};
    enum { RUN = sizeof run / sizeof *run };
    bool inside = has_tokenizer_inside(f, s), ok = true;
    for (size_t i = 0; ok && (i < RUN || (!inside && import_tokenizer_file(i - RUN))); i++)
        ok = remove_old(f, i < RUN ? run[i] : import_tokenizer_file(i - RUN), err);
    return ok;
}

/* Whether the run in the folder has averages. */
static bool keeps_averages(const train_folder *f) {
    sn_error none = {0};
    char *path = sn_path_join(f->path, "checkpoint.safetensors");
    sn_weights *w = path && checkpoint_exists(f->path) ? sn_weights_open(path, &none) : NULL;
    const char *settings = w ? sn_weights_meta(w, train_parts[TRAIN_SETTINGS].key) : NULL;
    bool keeps = settings && strstr(settings, " average ");
    sn_weights_close(w);
    free(path);
    return keeps;
}

static bool remove_averages(const train_folder *f, const train_settings *s, sn_error *err) {
    train_folder averaged = averaged_in(f);
    if (averaged.fd < 0) return true;
    bool ok = !keeps_averages(f) ||
              (remove_model(&averaged, s, err) && remove_old(&averaged, "config.json", err));
    close(averaged.fd);
    if (ok) unlinkat(f->fd, TRAIN_AVERAGED, AT_REMOVEDIR); /* if it is empty */
    return ok;
}

bool train_folder_begin(const train_folder *f, const train_settings *s, sn_error *err) {
    bool ok = remove_averages(f, s, err) && remove_model(f, s, err);
    if (!ok || !remove_old(f, TRAIN_LOG, err)) return false; /* last: marks the others */
    checkpoint_clean(f->path);
    fsync(f->fd);
    return true;
}

void train_folder_close(train_folder *f) {
    if (f->fd < 0) return;
    if (f->made) rmdir(f->path); /* fails unless the folder is empty */
    close(f->fd);
    f->fd = -1;
}
