/* checkpoint.c: the state of a training run as one safetensors file, replaced atomically:
 * parameters, the optimizer's states and step under their names; the progress of the run as
 * metadata. The position in the data and the random numbers follow from the step
 * (runtime/dataset.h, runtime/rng.h). */
#include "tools/train/train.h"

#include "ir/ir.h"
#include "runtime/file.h"
#include "runtime/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FILE_NAME "checkpoint.safetensors"

/* ---- saved tensors ---- */

static bool listed(const train_tensors *t, const char *name) {
    for (size_t i = 0; i < t->count; i++)
        if (!strcmp(t->weight[i].name, name)) return true;
    return false;
}

static bool add_tensor(const char *name, const sn_node *n, train_tensors *t, sn_error *err) {
    sn_weight w = {.name = name, .dtype = (sn_dtype)n->dtype, .rank = n->rank};
    for (int a = 0; a < n->rank; a++)
        if (!sn_dim_is_const(n->m, n->shape[a], &w.shape[a]))
            return sn_fail(err, SN_ERR_SHAPE, "'%s' has a symbolic shape", name);
    w.bytes = (size_t)sn_weight_elements(&w) * sn_dtype_size(w.dtype);
    sn_weight *grown = realloc(t->weight, sizeof *grown * (t->count + 1));
    if (grown) t->weight = grown;
    void *data = grown ? sn_memory_alloc(w.bytes) : NULL;
    if (!data)
        return sn_fail(err, SN_ERR_MEMORY, "out of memory: %zu bytes for '%s'", w.bytes, name);
    w.data = data;
    t->weight[t->count++] = w;
    return true;
}

/* Accumulated gradients are zero between steps. */
static bool is_kept(const char *name) {
    return strncmp(name, "gradient.", 9) != 0;
}

bool train_tensors_open(sn_module *m, train_tensors *out, sn_error *err) {
    *out = (train_tensors){0};
    const sn_entry *e = sn_entry_get(m, "train_step");
    bool ok = e || sn_fail(err, SN_ERR_USAGE, "the model has no entry \"train_step\"");
    for (int i = 0; ok && i < e->n_assign; i++) {
        const char *name = e->assign[i].name;
        if (is_kept(name) && !listed(out, name)) ok = add_tensor(name, e->assign[i].node, out, err);
    }
    if (!ok) train_tensors_close(out);
    return ok;
}

void train_tensors_close(train_tensors *t) {
    for (size_t i = 0; i < t->count; i++) free((void *)(uintptr_t)t->weight[i].data);
    free(t->weight);
    *t = (train_tensors){0};
}

bool train_tensors_read(const train_tensors *t, const sn_session *s, sn_error *err) {
    for (size_t i = 0; i < t->count; i++) {
        const sn_weight *w = &t->weight[i];
        if (!sn_state_read(s, w->name, (void *)(uintptr_t)w->data, w->bytes, err)) return false;
    }
    return true;
}

/* ---- files ---- */

bool checkpoint_exists(const char *folder) {
    return sn_folder_has(folder, FILE_NAME);
}

bool checkpoint_save(const char *folder, const train_tensors *t, const train_state *state,
                     const train_identity *id, sn_error *err) {
    char step[32], best[40], best_step[32], last[3][40];
    const double of_last[] = {state->loss, state->norm, state->rate};
    for (int i = 0; i < 3; i++) snprintf(last[i], sizeof last[i], "%a", of_last[i]);
    snprintf(step, sizeof step, "%lld", (long long)state->step);
    snprintf(best, sizeof best, "%a", state->best);
    snprintf(best_step, sizeof best_step, "%lld", (long long)state->best_step);
    enum { STATE = 7 };
    sn_meta meta[STATE + TRAIN_PARTS] = {
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
    char *path = sn_path_join(folder, FILE_NAME);
    bool ok =
        path ? sn_weights_save(path, t->weight, t->count, meta, sizeof meta / sizeof *meta, err)
             : sn_fail(err, SN_ERR_MEMORY, "out of memory");
    free(path);
    return ok;
}

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

static bool check_tensors(const sn_weights *w, const train_tensors *t, sn_error *err) {
    sn_problems p = {0};
    for (size_t i = 0; i < t->count; i++) {
        const sn_weight *want = &t->weight[i];
        const sn_weight *have = sn_weights_need(w, want->name, want->rank, want->shape, &p);
        if (have && have->dtype != want->dtype)
            sn_problem(&p, "'%s' is %s, not %s", want->name, sn_dtype_name(have->dtype),
                       sn_dtype_name(want->dtype));
    }
    if (sn_weights_count(w) != t->count)
        sn_problem(&p, "it has %zu tensors, the model and its optimizer have %zu",
                   sn_weights_count(w), t->count);
    char head[512];
    snprintf(head, sizeof head, "%s: a checkpoint of another architecture", sn_weights_path(w));
    return sn_problems_check(&p, head, SN_ERR_SHAPE, err);
}

static bool load_from(const sn_weights *w, sn_session *s, const train_tensors *t,
                      train_state *state, const train_identity *id, sn_error *err) {
    train_state read = {0};
    if (!check_tensors(w, t, err) || !train_identity_check(id, w, err) ||
        !read_state(w, &read, err))
        return false;
    for (size_t i = 0; i < t->count; i++) {
        const sn_weight *have = sn_weights_find(w, t->weight[i].name);
        if (!sn_state_write(s, have->name, have->data, have->bytes, err)) return false;
    }
    *state = read;
    return true;
}

bool checkpoint_load(const char *folder, sn_session *s, train_tensors *t, train_state *state,
                     const train_identity *id, sn_error *err) {
    char *path = sn_path_join(folder, FILE_NAME);
    if (!path) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    sn_weights *w = sn_file_exists(path) ? sn_weights_open(path, err) : NULL;
    if (!w) sn_fail(err, SN_ERR_FILE, "%s: there is no checkpoint to resume from", path);
    bool ok = w && load_from(w, s, t, state, id, err);
    sn_weights_close(w);
    free(path);
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
