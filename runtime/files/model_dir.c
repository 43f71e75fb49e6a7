/* model_dir.c: finds the files of a model folder and reports what is missing; opens GGUF files like
 * folders. */
#include "runtime/model_dir.h"
#include "runtime/file.h"
#include "runtime/files/gguf_model.h"
#include "runtime/files/sentence_modules.h"
#include "runtime/files/weights_impl.h"
#include "runtime/str.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CONFIG "config.json"
#define WEIGHTS "model.safetensors"
#define INDEX "model.safetensors.index.json"

/* "path/name", allocated, if it exists; otherwise NULL; if out of memory, NULL with an error. */
static char *find_file(const char *path, const char *name, sn_error *err) {
    if (!sn_folder_has(path, name)) return NULL;
    char *p = sn_path_join(path, name);
    if (!p) sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", path);
    return p;
}

/* The only *.safetensors file of a folder. NULL if there is none, or if there are several (*several
 * is set). */
static char *find_only_weights(const char *path, bool *several, sn_error *err) {
    static const char ending[] = ".safetensors";
    char *found = NULL;
    *several = false;
    DIR *dir = opendir(path);
    for (struct dirent *d; dir && (d = readdir(dir));) {
        if (!sn_ends_with(d->d_name, ending) || d->d_name[0] == '.') continue;
        *several = found != NULL;
        free(found);
        found = *several ? NULL : find_file(path, d->d_name, err);
        if (!found) break;
    }
    if (dir) closedir(dir);
    return found;
}

#define OTHER_ONNX                                                                                 \
    "ONNX files other than model.onnx, decoder_model_merged.onnx and decoder_with_past_model.onnx"

/* Weights of other programs in a folder, which `sinter import` does not read either. */
static const struct {
    const char *file, *what;
} unsupported[] = {{"onnx", OTHER_ONNX},
                   {"model.onnx", "an ONNX file"},
                   {"decoder_model.onnx", OTHER_ONNX},
                   {"pytorch_model.bin", "a PyTorch pickle"},
                   {"pytorch_model.bin.index.json", "PyTorch pickles"},
                   {"tf_model.h5", "weights of TensorFlow"},
                   {"flax_model.msgpack", "weights of Flax"}};

static bool fail_weights(const char *path, bool several, sn_error *err) {
    if (several)
        return sn_fail(err, SN_ERR_FILE,
                       "%s: several .safetensors files, but neither " WEIGHTS " nor " INDEX, path);
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++)
        if (sn_folder_has(path, unsupported[i].file))
            return sn_fail(err, SN_ERR_FILE,
                           "%s: no " WEIGHTS " here, but %s (%s), not read as weights of a folder: "
                           "download the safetensors of this model, or make them in PyTorch with "
                           "save_pretrained",
                           path, unsupported[i].what, unsupported[i].file);
    return sn_fail(err, SN_ERR_FILE,
                   "%s: no " WEIGHTS " here; `sinter import` makes a model folder from other "
                   "formats",
                   path);
}

static char *find_weights(const char *path, sn_error *err) {
    bool several = false;
    sn_error local = {0};
    char *p = find_file(path, WEIGHTS, &local);
    if (!p && !local.code) p = find_file(path, INDEX, &local);
    if (!p && !local.code) p = find_only_weights(path, &several, &local);
    if (local.code)
        sn_fail(err, local.code, "%s", local.message);
    else if (!p)
        fail_weights(path, several, err);
    return p;
}

static bool check_folder(const char *path, sn_error *err) {
    struct stat st;
    if (stat(path, &st) < 0)
        return sn_fail(err, SN_ERR_FILE, "%s: cannot open model folder: %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return sn_fail(err, SN_ERR_FILE,
                       "%s: a model is a folder with " CONFIG " and " WEIGHTS
                       ", or a GGUF file; `sinter import` makes one from other formats",
                       path);
    return true;
}

static void open_gguf(sn_model_dir *m, sn_error *err) {
    sn_weights *w = sn_weights_open(m->path, err);
    m->config = w ? sn_gguf_config(w, err) : NULL;
    if (m->config && sn_gguf_rename(w, err))
        m->weights = w;
    else
        sn_weights_close(w);
}

static void open_folder(sn_model_dir *m, sn_error *err) {
    const char *path = m->path;
    char *config = find_file(path, CONFIG, err), *weights = NULL;
    if (!config && !sn_folder_has(path, CONFIG))
        sn_fail(err, SN_ERR_FILE,
                "%s: no " CONFIG " here; `sinter import` makes a model folder from other formats",
                path);
    else if (config && (weights = find_weights(path, err)) &&
             (m->config = sn_config_open(config, err)))
        m->weights = sn_weights_open(weights, err);
    if (m->weights && !sn_sentence_modules_read(path, m->config, m->weights, err)) {
        sn_weights_close(m->weights);
        m->weights = NULL;
    }
    free(config);
    free(weights);
}

sn_model_dir *sn_model_dir_open(const char *path, sn_error *err) {
    bool gguf = sn_gguf_is_file(path);
    if (!gguf && !check_folder(path, err)) return NULL;
    sn_model_dir *m = calloc(1, sizeof *m);
    if (!m || !(m->path = strdup(path))) {
        sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", path);
        free(m);
        return NULL;
    }
    (gguf ? open_gguf : open_folder)(m, err);
    if (m->weights) return m;
    sn_model_dir_close(m);
    return NULL;
}

bool sn_model_dir_has_weights(const char *path) {
    char *weights = sn_gguf_is_file(path) ? NULL : find_weights(path, NULL);
    bool has = weights || sn_gguf_is_file(path);
    free(weights);
    return has;
}

sn_config *sn_model_dir_config(const char *path, sn_error *err) {
    sn_config *c = NULL;
    if (sn_gguf_is_file(path)) {
        sn_weights *w = sn_weights_open(path, err);
        if (w) c = sn_gguf_config(w, err);
        sn_weights_close(w);
        return c;
    }
    char *file = sn_path_join(path, CONFIG);
    if (file)
        c = sn_config_open(file, err);
    else
        sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", path);
    free(file);
    return c;
}

void sn_model_dir_close(sn_model_dir *m) {
    if (!m) return;
    sn_config_free(m->config);
    sn_weights_close(m->weights);
    free(m->path);
    free(m);
}

char *sn_model_dir_file(const sn_model_dir *m, const char *name) {
    return find_file(m->path, name, NULL);
}

bool sn_model_dir_save(const char *path, sn_config *config, const sn_weight *tensors, size_t count,
                       sn_error *err) {
    return sn_model_dir_save_with(path, config, tensors, count, NULL, err);
}

bool sn_model_dir_save_with(const char *path, sn_config *config, const sn_weight *tensors,
                            size_t count, const sn_weights_progress *progress, sn_error *err) {
    if (!sn_folder_make(path, err)) return false;
    if (sn_folder_has(path, INDEX))
        return sn_fail(err, SN_ERR_FILE,
                       "%s: contains a model of several files (" INDEX "); choose another folder",
                       path);
    char *weights = sn_path_join(path, WEIGHTS), *json = sn_path_join(path, CONFIG);
    bool ok = (weights && json) || sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", path);
    ok = ok && sn_weights_save_with(weights, tensors, count, progress, err) &&
         sn_config_save(config, json, err);
    free(weights);
    free(json);
    return ok;
}
