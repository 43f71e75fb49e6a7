/* checkpoint.c: the state of a training run, replaced atomically: parameters, the optimizer's states
 * and step under their names; the progress of the run as metadata. One safetensors file, or one with
 * what is small and one for each rank with its rows of the rest: the parts are complete before the
 * file that names them replaces the old one. The position in the data and the random numbers follow
 * from the step (model/dataset.h, runtime/rng.h). */
#include "model/train/train.h"

#include "runtime/file.h"
#include "runtime/str.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_NAME "checkpoint.safetensors"
#define PARTS "checkpoint-" /* begins the names of the ranks' files */
#define ENDING ".safetensors"

/* ---- names of files ---- */

bool checkpoint_exists(const char *folder) {
    return sn_folder_has(folder, FILE_NAME);
}

/* What belongs to a checkpoint is as many ranks' files of that step. */
typedef struct parts {
    int64_t step;
    int size; /* 1: there are none */
} parts;

static char *part_path(const char *folder, parts p, int rank) {
    char name[96];
    snprintf(name, sizeof name, PARTS "%lld-part-%d-of-%d" ENDING, (long long)p.step, rank + 1,
             p.size);
    return sn_path_join(folder, name);
}

/* A rank's file, or one that was not completed. */
static bool is_part(const char *name) {
    if (*name == '.') return !strncmp(name + 1, PARTS, strlen(PARTS)) && sn_ends_with(name, ".tmp");
    return !strncmp(name, PARTS, strlen(PARTS)) && sn_ends_with(name, ENDING);
}

static bool is_kept(const char *name, parts keep) {
    char end[64];
    snprintf(end, sizeof end, "-of-%d" ENDING, keep.size);
    return keep.size > 1 && *name != '.' && sn_ends_with(name, end) &&
           strtoll(name + strlen(PARTS), NULL, 10) == keep.step;
}

/* Removes the parts of older checkpoints, and of one whose writer was killed. */
static void clean(const char *folder, parts keep) {
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));)
        if (is_part(e->d_name) && !is_kept(e->d_name, keep)) unlinkat(dirfd(d), e->d_name, 0);
    if (d) closedir(d);
}

void checkpoint_clean(const char *folder) {
    clean(folder, (parts){0, 1});
}

/* ---- writing ---- */

/* The rows that a rank writes: those that only it has, or its share of what all have. */
static void rows_to_write(const train_tensor *x, int rank, int size, int64_t *first,
                          int64_t *last) {
    int64_t part = (x->rows + size - 1) / size;
    *first = rank * part < x->rows ? rank * part : x->rows;
    *last = *first + part < x->rows ? *first + part : x->rows;
}

/* Whether the tensor lies in the ranks' files, with rows for several of them. */
static bool has_parts(const train_tensor *x, int size) {
    return size > 1 && x->rows > 1;
}

/* As much of the tensor as goes into a file of this kind; false: nothing. */
static bool select_rows(const train_tensor *x, int rank, int size, bool part, sn_weight *out) {
    int64_t first, last;
    *out = x->whole;
    out->data = x->memory;
    if (has_parts(x, size) != part) return false;
    if (!part) return true;
    rows_to_write(x, rank, size, &first, &last);
    out->rank = 2;
    out->shape[0] = last - first, out->shape[1] = x->whole.shape[x->whole.rank - 1];
    out->bytes = (size_t)(last - first) * x->row_bytes;
    out->data = (const char *)x->memory + (size_t)(first - x->first) * x->row_bytes;
    return last > first;
}

static bool write_file(const char *path, const train_tensors *t, int rank, int size, bool part,
                       const sn_meta *meta, size_t n_meta, sn_error *err) {
    sn_weight *list = calloc(t->count + 1, sizeof *list);
    size_t n = 0;
    for (size_t i = 0; list && i < t->count; i++)
        n += select_rows(&t->tensor[i], rank, size, part, &list[n]);
    bool ok = list && path ? sn_weights_save(path, list, n, meta, n_meta, err)
                           : sn_fail(err, SN_ERR_MEMORY, "out of memory");
    free(list);
    return ok;
}

bool checkpoint_save_part(const char *folder, const train_tensors *t, int64_t step, int rank,
                          int size, sn_error *err) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)step);
    sn_meta meta = {"sinter.step", text};
    char *path = part_path(folder, (parts){step, size}, rank);
    bool ok = write_file(path, t, rank, size, true, &meta, 1, err);
    free(path);
    return ok;
}

/* A rank on another machine may have written into another folder of the same name. */
static bool check_written(const char *folder, parts p, sn_error *err) {
    for (int r = 0; r < p.size && p.size > 1; r++) {
        char *path = part_path(folder, p, r);
        if (!path) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
        bool there = sn_file_exists(path);
        if (!there)
            sn_fail(
                err, SN_ERR_FILE,
                "%s: rank %d has written this file, but rank 0 does not find it: with --zero "
                "or --tensor the output folder must be on a file system that all machines share",
                path, r);
        free(path);
        if (!there) return false;
    }
    return true;
}

bool checkpoint_save(const char *folder, const train_tensors *t, const train_state *state,
                     const train_identity *id, int size, sn_error *err) {
    char step[32], best[40], best_step[32], files[32], last[3][40];
    const double of_last[] = {state->loss, state->norm, state->rate};
    const parts now = {state->step, size};
    if (!check_written(folder, now, err)) return false;
    for (int i = 0; i < 3; i++) snprintf(last[i], sizeof last[i], "%a", of_last[i]);
    snprintf(step, sizeof step, "%lld", (long long)state->step);
    snprintf(best, sizeof best, "%a", state->best);
    snprintf(best_step, sizeof best_step, "%lld", (long long)state->best_step);
    snprintf(files, sizeof files, "%d", size);
    enum { STATE = 7 };
    sn_meta meta[STATE + TRAIN_PARTS + 1] = {
        {"sinter.step", step},
        {"sinter.best", best},
        {"sinter.best_step", best_step},
        {"sinter.loss", last[0]},
        {"sinter.norm", last[1]},
        {"sinter.rate", last[2]},
        {"sinter.pending", state->pending ? "1" : "0"},
    };
    for (int p = 0; p < TRAIN_PARTS; p++)
        meta[STATE + p] = (sn_meta){train_parts[p].key, id->part[p]};
    meta[STATE + TRAIN_PARTS] = (sn_meta){"sinter.parts", files};
    char *path = sn_path_join(folder, FILE_NAME);
    bool ok = write_file(path, t, 0, size, false, meta, STATE + TRAIN_PARTS + (size > 1), err);
    if (ok) clean(folder, now);
    free(path);
    return ok;
}

/* ---- reading ---- */

static bool fail_meta(const sn_weights *w, const char *key, const char *text, sn_error *err) {
    return sn_fail(err, SN_ERR_FILE, "%s: not a checkpoint of a training run: \"%s\" is %.40s",
                   sn_weights_path(w), key, text ? text : "missing");
}

static bool read_number(const sn_weights *w, const char *key, double *out, sn_error *err) {
    const char *text = sn_weights_meta(w, key);
    char *end = NULL;
    *out = text ? strtod(text, &end) : 0;
    return (text && end != text && !*end && !isnan(*out)) || fail_meta(w, key, text, err);
}

/* Parses the decimal digits of a number from 0 to `most`. */
static bool read_count(const sn_weights *w, const char *key, int64_t max_value, int64_t *out,
                       sn_error *err) {
    const char *text = sn_weights_meta(w, key);
    size_t digits = text ? strspn(text, "0123456789") : 0;
    bool ok = digits > 0 && digits < 19 && !text[digits];
    *out = ok ? strtoll(text, NULL, 10) : 0;
    return (ok && *out <= max_value) || fail_meta(w, key, text, err);
}

static bool read_state(const sn_weights *w, train_state *s, sn_error *err) {
    int64_t pending, optimizer;
    if (!read_count(w, "sinter.step", INT32_MAX, &s->step, err) ||
        !read_count(w, "sinter.best_step", s->step, &s->best_step, err) ||
        !read_count(w, "sinter.pending", 1, &pending, err) ||
        !read_number(w, "sinter.best", &s->best, err) ||
        !read_number(w, "sinter.loss", &s->loss, err) ||
        !read_number(w, "sinter.norm", &s->norm, err) ||
        !read_number(w, "sinter.rate", &s->rate, err))
        return false;
    s->pending = pending;
    if (s->best_step > 0 ? !isfinite(s->best) : s->best != INFINITY)
        return fail_meta(w, "sinter.best", sn_weights_meta(w, "sinter.best"), err);
    const sn_weight *t = sn_weights_find(w, "optimizer.step");
    if (!t || t->bytes != sizeof optimizer) return true;
    memcpy(&optimizer, t->data, sizeof optimizer);
    return optimizer == s->step ||
           sn_fail(err, SN_ERR_FILE, "%s: its optimizer is at step %lld, but the run at step %lld",
                   sn_weights_path(w), (long long)optimizer, (long long)s->step);
}

/* The files of a checkpoint. */
typedef struct files {
    sn_weights *main, **part; /* part: [size], NULL without parts */
    int size;
} files;

static void close_files(files *f) {
    for (int r = 0; f->part && r < f->size; r++) sn_weights_close(f->part[r]);
    free(f->part);
    sn_weights_close(f->main);
}

static bool open_part(files *f, const char *folder, parts p, int rank, sn_error *err) {
    char *path = part_path(folder, p, rank);
    int64_t step = -1;
    f->part[rank] = path ? sn_weights_open(path, err) : NULL;
    bool ok = f->part[rank] && read_count(f->part[rank], "sinter.step", INT32_MAX, &step, err);
    if (ok && step != p.step)
        ok = sn_fail(err, SN_ERR_FILE, "%s: is of step %lld, not %lld", path, (long long)step,
                     (long long)p.step);
    free(path);
    return ok || sn_fail(err, SN_ERR_MEMORY, "out of memory");
}

static bool open_files(files *f, const char *folder, sn_error *err) {
    enum { MAX_PARTS = 1 << 20 };
    char *path = sn_path_join(folder, FILE_NAME);
    int64_t size = 1, step = 0;
    if (!path) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    f->main = sn_file_exists(path) ? sn_weights_open(path, err) : NULL;
    if (!f->main) sn_fail(err, SN_ERR_FILE, "%s: there is no checkpoint to resume from", path);
    free(path);
    if (!f->main) return false;
    if (!sn_weights_meta(f->main, "sinter.parts")) return true;
    if (!read_count(f->main, "sinter.parts", MAX_PARTS, &size, err) ||
        !read_count(f->main, "sinter.step", INT32_MAX, &step, err))
        return false;
    if (size < 2) return fail_meta(f->main, "sinter.parts", "less than 2", err);
    f->part = calloc((size_t)size, sizeof(sn_weights *));
    if (!f->part) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    f->size = (int)size;
    for (int r = 0; r < f->size; r++)
        if (!open_part(f, folder, (parts){step, f->size}, r, err)) return false;
    return true;
}

/* Rows of a tensor in the ranks' files: all of them, in order. */
static void check_parts(const files *f, const train_tensor *want, sn_problems *p) {
    int64_t rows = 0, row = want->whole.shape[want->whole.rank - 1];
    for (int r = 0; r < f->size; r++) {
        const sn_weight *have = sn_weights_find(f->part[r], want->whole.name);
        if (!have) continue;
        if (have->rank != 2 || have->shape[1] != row || have->dtype != want->whole.dtype) {
            sn_problem(p, "'%s' has rows of %lld %s, not %lld %s", want->whole.name,
                       (long long)have->shape[have->rank ? have->rank - 1 : 0],
                       sn_dtype_name(have->dtype), (long long)row,
                       sn_dtype_name(want->whole.dtype));
            return;
        }
        rows += have->shape[0];
    }
    if (rows != want->rows)
        sn_problem(p, "'%s' has %lld rows, not %lld", want->whole.name, (long long)rows,
                   (long long)want->rows);
}

static void check_whole(const sn_weights *w, const sn_weight *want, sn_problems *p) {
    const sn_weight *have = sn_weights_need(w, want->name, want->rank, want->shape, p);
    if (have && have->dtype != want->dtype)
        sn_problem(p, "'%s' is %s, not %s", want->name, sn_dtype_name(have->dtype),
                   sn_dtype_name(want->dtype));
}

static bool check_tensors(const files *f, const train_tensors *t, sn_error *err) {
    sn_problems p = {0};
    size_t count = 0;
    for (size_t i = 0; i < t->count; i++) {
        bool parts = f->size > 1 && t->tensor[i].rows > 1;
        count += !parts;
        if (parts)
            check_parts(f, &t->tensor[i], &p);
        else
            check_whole(f->main, &t->tensor[i].whole, &p);
    }
    if (sn_weights_count(f->main) != count)
        sn_problem(&p, "it has %zu tensors, the model and its optimizer have %zu",
                   sn_weights_count(f->main), count);
    char head[512];
    snprintf(head, sizeof head, "%s: a checkpoint of another architecture",
             sn_weights_path(f->main));
    return sn_problems_check(&p, head, SN_ERR_SHAPE, err);
}

/* Copies what the session has of these rows, which begin at row `at` of the whole. */
static void take_rows(const train_tensor *x, const sn_weight *have, int64_t at, int64_t rows) {
    if (x->share.ranks) {
        int64_t row = (int64_t)(x->row_bytes / sn_dtype_size(x->whole.dtype));
        train_share_take(x, have->data, at * row, rows * row);
        return;
    }
    int64_t first = at > x->first ? at : x->first;
    int64_t last = at + rows < x->last ? at + rows : x->last;
    if (first < last)
        memcpy((char *)x->memory + (size_t)(first - x->first) * x->row_bytes,
               (const char *)have->data + (size_t)(first - at) * x->row_bytes,
               (size_t)(last - first) * x->row_bytes);
}

static void read_tensor(const files *f, const train_tensor *x) {
    int64_t at = 0;
    if (f->size < 2 || x->rows < 2) {
        take_rows(x, sn_weights_find(f->main, x->whole.name), 0, x->rows);
        return;
    }
    for (int r = 0; r < f->size; r++) {
        const sn_weight *have = sn_weights_find(f->part[r], x->whole.name);
        if (have) take_rows(x, have, at, have->shape[0]);
        at += have ? have->shape[0] : 0;
    }
}

bool checkpoint_load(const char *folder, const train_tensors *t, train_state *state,
                     const train_identity *id, sn_error *err) {
    files f = {.size = 1};
    train_state read = {0};
    bool ok = open_files(&f, folder, err) && train_identity_check(id, f.main, err) &&
              check_tensors(&f, t, err) && read_state(f.main, &read, err);
    for (size_t i = 0; ok && i < t->count; i++) read_tensor(&f, &t->tensor[i]);
    if (ok) *state = read;
    close_files(&f);
    return ok;
}

bool checkpoint_slices(const char *folder, int64_t *slices, sn_error *err) {
    static const char key[] = " slices ";
    char *path = sn_path_join(folder, FILE_NAME);
    if (!path) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    sn_weights *w = sn_weights_open(path, err);
    const char *settings = w ? sn_weights_meta(w, train_parts[TRAIN_SETTINGS].key) : NULL;
    const char *at = settings ? strstr(settings, key) : NULL;
    *slices = at ? strtoll(at + strlen(key), NULL, 10) : 1;
    if (*slices < 1) *slices = 1; /* of a damaged file, which checkpoint_load refuses */
    free(path);
    bool ok = w != NULL;
    sn_weights_close(w);
    return ok;
}
