/* open.c: opens, compiles and runs a model; gives one without weights random ones. */
#include "driver/open.h"
#include "driver/entries.h"
#include "driver/storage.h"
#include "ir/ir.h"
#include "runtime/files/sentence_modules.h"
#include "runtime/files/weights_impl.h"
#include "runtime/memory.h"
#include "runtime/str.h"
#include "runtime/threads.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- finding the model ---- */

/* A path that is not a folder may be a preset, or a model id of a hub. */
static bool check_path(const char *path, sn_error *err) {
    struct stat st;
    if (stat(path, &st) == 0) return true;
    if (sn_ends_with(path, ".gguf"))
        return sn_fail(err, SN_ERR_FILE, "%s: cannot open the file: %s", path, strerror(errno));
    if (sn_model_preset(path))
        return sn_fail(err, SN_ERR_FILE,
                       "%s: cannot open model folder; --preset %s is this size with random weights",
                       path, path);
    const char *slash = strchr(path, '/');
    bool hub = slash && slash > path && slash[1] && !strchr(slash + 1, '/') && path[0] != '.';
    return sn_fail(err, SN_ERR_FILE, "%s: cannot open model folder: %s%s", path, strerror(errno),
                   hub ? "; models of a hub must be downloaded first" : "");
}

/* The error of a folder without config.json: names the file in it that is a model by itself. */
static void name_file_in(const char *path, const open_hooks *hooks, sn_error *err) {
    DIR *dir = opendir(path);
    char *found = NULL;
    for (struct dirent *d; dir && !found && (d = readdir(dir));) {
        char *file = sn_path_join(path, d->d_name);
        struct stat st;
        bool regular = file && stat(file, &st) == 0 && S_ISREG(st.st_mode);
        if (regular && (sn_gguf_is_file(file) || (hooks && hooks->knows(file))))
            found = file;
        else
            free(file);
    }
    if (dir) closedir(dir);
    if (!found) return;
    err->code = SN_OK;
    sn_fail(err, SN_ERR_FILE, "%s: no config.json here; give its file, %s", path, found);
    free(found);
}

static bool found(open_model *m, const open_options *o, const char *folder, sn_error *err) {
    if (folder && !(m->folder = strdup(folder)))
        return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    return !o->hooks || o->hooks->found(m, o, folder, err);
}

bool model_open_folder(open_model *m, const char *path, const open_options *o, sn_error *err) {
    if (!check_path(path, err)) return false;
    m->dir = sn_model_dir_open(path, err);
    if (!m->dir && !sn_folder_has(path, "config.json")) name_file_in(path, o->hooks, err);
    if (!m->dir) return false;
    m->config = m->dir->config;
    const char *source = sn_config_string_or(m->config, "source", NULL);
    if (source && sn_folder_has(path, SN_MODEL_GRAPH)) {
        m->graph = sn_path_join(path, SN_MODEL_GRAPH);
        if (!m->graph) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
        if (o->sequences)
            return sn_fail(err, SN_ERR_USAGE,
                           "%s: a model in C runs one sequence at a time, because its code decides "
                           "what a token sees",
                           path);
    } else if (source)
        return sn_fail(
            err, SN_ERR_USAGE,
            "%s contains the weights of a model in C; name its code, too: %s %s --checkpoint %s",
            path, o->command ? o->command : "sinter COMMAND", source, path);
    return found(m, o, path, err);
}

/* The weights of a model in C. */
static bool open_checkpoint(open_model *m, const open_options *o, sn_error *err) {
    struct stat st;
    bool folder = o->checkpoint && stat(o->checkpoint, &st) == 0 && S_ISDIR(st.st_mode);
    char *file = !o->checkpoint ? NULL
                 : folder       ? sn_path_join(o->checkpoint, "model.safetensors")
                                : strdup(o->checkpoint);
    if (o->checkpoint && !file) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    if (file) m->checkpoint = sn_weights_open(file, err);
    free(file);
    if (o->checkpoint && !m->checkpoint) return false;
    if (folder && sn_folder_has(o->checkpoint, "config.json")) {
        char *config = sn_path_join(o->checkpoint, "config.json");
        if (!config) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
        m->config = m->own_config = sn_config_open(config, err);
        free(config);
        if (!m->config) return false;
    }
    return found(m, o, folder ? o->checkpoint : NULL, err);
}

/* What the folder of an ONNX file says matters to the entries that models.h describes only. Where the graph as it is
 * is wanted beside them, only the config does, which says their sizes. */
static bool open_onnx(open_model *m, const open_options *o, sn_error *err) {
    if (o->checkpoint)
        return sn_fail(err, SN_ERR_USAGE,
                       "--checkpoint is for models in C: an ONNX file has its own weights");
    const bool graph = o->entries & SN_ALL_ENTRIES & ~SN_CACHED && !(o->entries & SN_CLASSIFY);
    char *folder = graph && !(o->entries & SN_CACHED) ? NULL : model_source_folder(m->code.onnx);
    bool ok = true;
    if (folder) {
        sn_error none = {0}, *e = graph ? &none : err; /* the graph as it is does without */
        m->code.config = m->own_config = sn_model_dir_config(folder, e);
        ok = m->own_config && sn_sentence_modules_read(folder, m->own_config, NULL, e);
        if (!graph) m->config = m->own_config;
        ok |= graph;
    }
    ok = ok && found(m, o, graph ? NULL : folder, err);
    free(folder);
    return ok;
}

static bool open_preset(open_model *m, const open_options *o, sn_error *err) {
    const char *text = sn_model_preset(o->preset);
    if (!text) {
        char names[256] = "";
        size_t n = 0;
        for (int i = 0; sn_model_preset_name(i) && n < sizeof names; i++)
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "",
                                  sn_model_preset_name(i));
        return sn_fail(err, SN_ERR_USAGE, "unknown preset '%s'; known: %s", o->preset, names);
    }
    m->own_config = m->config = sn_config_parse(o->preset, text, strlen(text), err);
    return m->config && found(m, o, NULL, err);
}

bool model_is_graph(const char *path) {
    return path && sn_ends_with(path, ".sn");
}

static bool open_code(open_model *m, const char *path, const open_options *o, sn_error *err) {
    if (o->sequences && !sn_ends_with(path, ".onnx"))
        return sn_fail(
            err, SN_ERR_USAGE,
            "%s: a model in C runs one sequence at a time, because its code decides what "
            "a token sees",
            path);
    return model_source_open(path, o->compile.cache_dir, &m->code, err) &&
           (m->code.onnx ? open_onnx : open_checkpoint)(m, o, err);
}

static bool open_source(open_model *m, const open_options *o, sn_error *err) {
    if (!o->path == !o->preset)
        return sn_fail(err, SN_ERR_USAGE, "give either a model folder or a preset");
    if (o->checkpoint && !model_source_is(o->path))
        return sn_fail(err, SN_ERR_USAGE,
                       "--checkpoint is for models in C: a model folder has its own weights");
    if (model_source_is(o->path)) return open_code(m, o->path, o, err);
    if (o->preset) return open_preset(m, o, err);
    if (model_is_graph(o->path)) {
        m->graph = strdup(o->path);
        return m->graph ? found(m, o, NULL, err) : sn_fail(err, SN_ERR_MEMORY, "out of memory");
    }
    struct stat st;
    bool file = stat(o->path, &st) == 0 && S_ISREG(st.st_mode) && !sn_gguf_is_file(o->path);
    if (file && o->hooks) return o->hooks->import(m, o, err);
    char *onnx = model_source_in(o->path, o->entries & SN_CACHED);
    bool ok = onnx ? open_code(m, onnx, o, err) : model_open_folder(m, o->path, o, err);
    free(onnx);
    return ok;
}

/* ---- random weights ---- */

/* Mean 0 and standard deviation 0.02 (GPT-2's initialisation), gains of norms 1, biases 0. */
static void fill_random(const char *name, uint64_t seed, uint32_t stream_step, float *out,
                        int64_t n) {
    const double width = 0.02 * sqrt(3);
    bool bias = sn_ends_with(name, ".bias");
    bool gain = strstr(name, "ln_") || strstr(name, "norm");
    if (bias || gain) {
        for (int64_t i = 0; i < n; i++) out[i] = bias ? 0 : 1;
        return;
    }
    const sn_rng rng = {.seed = seed, .stream = SN_STREAM_INIT, .step = stream_step};
    sn_threads_fill(&rng, sn_rng_fill_uniform, (float)-width, (float)width, out, n);
}

static int64_t elements_of(const sn_node *n) {
    int64_t count = 1;
    for (int a = 0; a < n->rank; a++) count *= n->shape[a];
    return count;
}

static bool is_param(const sn_node *n) {
    bool share = sn_attr_get(n, SN_A_parts); /* of a parameter of the module, made by a pass */
    return n->op == SN_OP_param && !share && sn_attr_str(n, SN_A_name, "@")[0] != '@';
}

static bool random_session(open_model *m, uint64_t seed, sn_error *err) {
    sn_module *mod = m->model.module;
    uint32_t nodes = sn_module_node_count(mod);
    int n = 0;
    for (uint32_t i = 0; i < nodes; i++) n += is_param(sn_module_node(mod, i));
    sn_arg_binding *list = calloc((size_t)n + 1, sizeof *list);
    m->random = calloc((size_t)n + 1, sizeof *m->random);
    bool ok = (list && m->random) || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    for (uint32_t i = 0; ok && i < nodes; i++) {
        const sn_node *p = sn_module_node(mod, i);
        if (!is_param(p)) continue;
        const char *name = sn_attr_str(p, SN_A_name, "");
        int64_t count = elements_of(p);
        float *data = aligned_alloc(64, ((size_t)count * sizeof(float) + 63) / 64 * 64);
        if (!data) {
            ok = sn_fail(err, SN_ERR_MEMORY, "out of memory for '%s'", name);
            break;
        }
        fill_random(name, seed, (uint32_t)m->n_random, data, count);
        list[m->n_random] = (sn_arg_binding){name, SN_F32, p->rank, p->shape, data};
        m->random[m->n_random++] = data;
    }
    if (ok) m->session = sn_session_new_arrays(m->program, list, m->n_random, err);
    free(list);
    return ok && m->session;
}

/* ---- opening ---- */

void model_sizes(sn_module *m, int64_t batch, int64_t length, char *text, size_t size) {
    size_t at = 0;
    text[0] = 0;
    for (int i = 0; i < sn_symbol_count(m) && at + 100 < size; i++) {
        const sn_symbol *s = sn_symbol_at(m, i);
        int64_t n = strcmp(s->name, "B") ? length : batch;
        at += (size_t)snprintf(text + at, size - at, "%s%s=%lld", at ? "," : "", s->name,
                               (long long)(n > s->hi ? s->hi : n));
    }
}

/* Checks that the weights contain every parameter of an entry with its shape, before a compilation
 * that may take long. */
static bool check_weights(const open_model *m, const sn_weights *w, sn_error *err) {
    sn_module *mod = m->model.module;
    sn_problems problems = {0};
    uint32_t count = sn_module_node_count(mod);
    bool *seen = calloc((size_t)count + 1, sizeof *seen);
    if (!seen) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    for (int e = 0; e < sn_entry_count(mod); e++) {
        sn_order order = sn_entry_topo(mod, sn_entry_at(mod, e));
        for (int i = 0; i < order.n; i++) {
            const sn_node *n = order.node[i];
            if (!is_param(n) || seen[n->id]) continue;
            seen[n->id] = true;
            sn_weights_need(w, sn_attr_str(n, SN_A_name, ""), n->rank, n->shape, &problems);
        }
    }
    free(seen);
    return sn_problems_check(&problems, sn_weights_path(w), SN_ERR_FILE, err);
}

/* Builds the model with these entries. */
static bool build(open_model *m, const open_options *o, int entries, sn_model *out, sn_error *err) {
    if (m->graph)
        return sn_model_build_graph(
            m->graph, &(sn_model_options){.entries = entries, .context = o->context}, out, err);
    sn_training training = sn_training_default();
    training.slices = o->slices;
    training.zero = o->zero, training.ranks = o->ranks;
    const sn_model_options mo = {.entries = entries,
                                 .training = o->slices > 1 ? &training : NULL,
                                 .context = o->context,
                                 .beams = m->beams,
                                 .image = m->image,
                                 .sequences = o->sequences,
                                 .mesh = o->mesh,
                                 .weights = m->dir ? m->dir->weights : NULL};
    return *m->code.name ? model_source_build(&m->code, &mo, out, err)
                         : sn_model_build(m->config, &mo, out, err);
}

/* Whether the model has what `named` asks for. */
static bool check_named(open_model *m, const open_options *o, sn_error *err) {
    sn_model all;
    if (!model_entries_missing(m->model.module, o->named)) return true;
    if (!build(m, o, LM_ANY_ENTRIES, &all, err)) return false;
    model_entries_fail(m->model.type, m->model.module, o->named, all.module, err);
    sn_module_free(all.module);
    return false;
}

/* With only the requested entries, some tensors of the weights may be unused. */
static bool check_unused(open_model *m, const open_options *o, const sn_weights *w, sn_error *err) {
    sn_model all;
    if (sn_model_takes_all(&m->model, w, NULL)) return true;
    if (!build(m, o, SN_ALL_ENTRIES | SN_EMBED, &all, err)) return false;
    bool ok = sn_model_takes_all(&all, w, err);
    sn_module_free(all.module);
    return ok;
}

static bool open_parts(open_model *m, const open_options *o, sn_error *err) {
    const open_hooks *hooks = o->hooks;
    m->beams = o->beams ? o->beams : 1;
    if (!open_source(m, o, err)) return false;
    if (!build(m, o, o->entries, &m->model, err) || !check_named(m, o, err)) return false;
    if (hooks && !hooks->built(m, o, err)) return false;
    const sn_weights *w = model_weights(m);
    /* build_only: whoever makes a session may have other values for a tensor */
    if (w && !o->build_only && !check_weights(m, w, err)) return false;
    if (w && !check_unused(m, o, w, err)) return false;
    if (o->build_only) return true;
    sn_options compile = o->compile;
    if (hooks && !hooks->compile(m, o, &compile, err)) return false;
    if (o->prepare && !o->prepare(o->user, &m->model, &compile, err)) return false;
    char sizes[256]; /* for eval: whole windows */
    model_sizes(m->model.module, 1, m->model.context, sizes, sizeof sizes);
    if (o->entries == SN_LOSS && !compile.tune_sizes) compile.tune_sizes = sizes;
    if (compile.weights && !strcmp(compile.weights, "auto"))
        compile.weights = storage_choose(m->model.module, w, sn_memory_available(), m->storage_note,
                                         sizeof m->storage_note);
    compile.source = w;
    compile.plan_only = o->compile_only;
    if (!sn_choose_compute(&compile, o->targets, m->compute_note, sizeof m->compute_note, err))
        return false;
    m->compiled = compile;
    if (o->compile_only)
        sn_training_divide(m->model.module, &(sn_training){.zero = o->zero, .ranks = o->ranks});
    m->program = sn_compile(m->model.module, &compile, err);
    if (!m->program || o->compile_only) return m->program != NULL;
    if (w)
        m->session = sn_session_new(m->program, w, err);
    else if (!random_session(m, o->seed, err))
        return false;
    return m->session && (!hooks || hooks->opened(m, o, err));
}

open_model *model_open(const open_options *o, sn_error *err) {
    open_model *m = calloc(1, sizeof *m);
    if (!m) {
        sn_fail(err, SN_ERR_MEMORY, "out of memory");
        return NULL;
    }
    open_options with = *o;
    with.compile_only |= model_is_graph(o->path);
    m->hooks = o->hooks;
    if (open_parts(m, &with, err)) return m;
    model_close(m);
    return NULL;
}

const sn_weights *model_weights(const open_model *m) {
    return m->dir ? m->dir->weights : m->checkpoint ? m->checkpoint : m->code.weights;
}

void model_close(open_model *m) {
    if (!m) return;
    sn_session_free(m->session);
    sn_program_free(m->program);
    sn_module_free(m->model.module);
    if (m->hooks) m->hooks->close(m);
    sn_model_dir_close(m->dir);
    free(m->graph);
    free(m->folder);
    sn_config_free(m->own_config);
    for (int i = 0; i < m->n_random; i++) free(m->random[i]);
    free(m->random);
    sn_weights_close(m->checkpoint);
    /* last, because its strings are referenced as source locations by the module */
    model_source_close(&m->code);
    free(m);
}

int64_t model_parameters(const open_model *m) {
    int64_t n = 0;
    for (uint32_t i = 0; i < sn_module_node_count(m->model.module); i++) {
        const sn_node *p = sn_module_node(m->model.module, i);
        if (is_param(p)) n += elements_of(p);
    }
    return n;
}

const char *model_nan_parameter(const open_model *m, sn_error *err) {
    sn_module *module = m->model.module;
    const char *found = NULL;
    for (uint32_t i = 0; !found && i < sn_module_node_count(module); i++) {
        const sn_node *n = sn_module_node(module, i);
        const char *name = n->op == SN_OP_param ? sn_attr_str(n, SN_A_name, "") : "";
        const sn_weight *t = sn_weights_find(model_weights(m), name);
        if (!t || !t->bytes || !sn_dtype_is_float(t->dtype)) continue;
        sn_weight row = *t; /* rows: converted, all of a table would need much memory */
        const size_t rows = t->rank > 1 ? (size_t)t->shape[0] : 1;
        if (t->rank > 1) row.shape[0] = 1;
        row.bytes /= rows;
        const int64_t count = sn_weight_elements(&row);
        float *values = malloc(sizeof *values * (size_t)count);
        if (!values) return sn_fail(err, SN_ERR_MEMORY, "out of memory"), NULL;
        for (size_t k = 0; !found && k < rows; k++) {
            bool some = false;
            row.data = (const char *)t->data + k * row.bytes;
            if (!sn_weight_to_f32(&row, values)) break;
            for (int64_t j = 0; j < count; j++) some |= isnan(values[j]);
            if (some) found = name;
        }
        free(values);
    }
    return found;
}
