/* open.c: opens, compiles and runs a language model; initialises presets with random weights. */
#include "model/open.h"
#include "model/entries.h"
#include "ir/ir.h"
#include "runtime/files/weights_impl.h"
#include "runtime/memory.h"
#include "runtime/rng.h"
#include "runtime/str.h"
#include "model/import/import.h"
#include "model/storage.h"
#include "model/temporary.h"
#include "model/text/generation_impl.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- locating the model ---- */

static bool has_tokenizer(const char *folder) {
    static const char *const names[] = {
        "tokenizer.json", "vocabulary.json", "vocab.json",
        "encoder.json",   "tokenizer.model", "sentencepiece.bpe.model",
        "spiece.model",   "spm.model",       "tokenizer.bin",
        "vocab.txt",      "tokenizer.gguf"};
    bool found = false;
    for (size_t i = 0; i < sizeof names / sizeof *names && !found; i++)
        found = sn_folder_has(folder, names[i]);
    return found;
}

static bool open_tokenizer(open_model *m, const char *path, sn_error *err) {
    m->tokenizer_path = strdup(path);
    if (!m->tokenizer_path) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    m->tokenizer = sn_tokenizer_load(path, err);
    return m->tokenizer != NULL;
}

/* Loads the two vocabularies of an encoder-decoder: Sinter's or Marian's. *found: the files
 * exist. */
static bool open_vocabularies(open_model *m, bool *found, sn_error *err) {
    static const char *const names[][2] = {{"source_vocabulary.json", "target_vocabulary.json"},
                                           {"source.spm", "target.spm"}};
    const char *path = m->dir->path, *const *pair = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !pair; i++)
        if (sn_folder_has(path, names[i][0]) && sn_folder_has(path, names[i][1])) pair = names[i];
    *found = pair;
    if (!pair) return true;
    m->source_path = sn_path_join(path, pair[0]);
    char *target = sn_path_join(path, pair[1]);
    bool ok = (m->source_path && target) || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    if (ok) m->source = sn_tokenizer_load(m->source_path, err);
    ok = m->source && open_tokenizer(m, target, err);
    free(target);
    return ok;
}

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

/* Reads how pictures become pixels, if the folder says it. */
static bool open_pictures(open_model *m, const char *folder, sn_error *err) {
    if (!sn_folder_has(folder, "preprocessor_config.json")) return true;
    char *path = sn_path_join(folder, "preprocessor_config.json");
    if (!path) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    sn_config *c = sn_config_open(path, err);
    free(path);
    if (!c) return false;
    m->has_pictures = picture_rules_in(c);
    if (m->has_pictures) m->pictures = picture_rules_read(c);
    bool ok = sn_config_check(c, err);
    sn_config_free(c);
    return ok;
}

/* The error of a folder without config.json: names the file in it that is a model by itself. */
static void name_file_in(const char *path, sn_error *err) {
    DIR *dir = opendir(path);
    char *found = NULL;
    for (struct dirent *d; dir && !found && (d = readdir(dir));) {
        char *file = sn_path_join(path, d->d_name);
        struct stat st;
        bool regular = file && stat(file, &st) == 0 && S_ISREG(st.st_mode);
        if (regular && (sn_gguf_is_file(file) || import_knows(file)))
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

static bool open_folder(open_model *m, const char *path, const lm_options *o, sn_error *err) {
    if (!check_path(path, err)) return false;
    m->dir = sn_model_dir_open(path, err);
    if (!m->dir && !sn_folder_has(path, "config.json")) name_file_in(path, err);
    if (!m->dir) return false;
    m->config = m->dir->config;
    if (sn_config_bool_or(m->config, "is_encoder_decoder", false) &&
        !sn_token_rules_read(&m->rules, path, err))
        return false;
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
    if (!open_pictures(m, path, err)) return false;
    bool two = false;
    if (!o->tokenizer && !open_vocabularies(m, &two, err)) return false;
    const sn_gguf *gguf = sn_weights_gguf(m->dir->weights);
    bool has = gguf ? sn_gguf_has_vocabulary(gguf) : has_tokenizer(path);
    if (two || (!o->tokenizer && !has)) return true;
    return open_tokenizer(m, o->tokenizer ? o->tokenizer : path, err);
}

/* Imports a file of another format into a temporary folder, which is deleted as soon as it is
 * mapped. */
static bool open_foreign(open_model *m, const lm_options *o, sn_error *err) {
    temporary t;
    if (!temporary_make(&t, err)) return false;
    import_request r = {.input = o->path, .output = t.path, .tokenizer = NULL};
    bool ok = import_model(&r, NULL, err) && open_folder(m, t.path, o, err);
    m->imported = true;
    temporary_remove(&t);
    return ok;
}

/* Weights and, if present, the tokenizer of a model in C. */
static bool open_checkpoint(open_model *m, const lm_options *o, sn_error *err) {
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
    const char *tokenizer = o->tokenizer                             ? o->tokenizer
                            : folder && has_tokenizer(o->checkpoint) ? o->checkpoint
                                                                     : NULL;
    return !tokenizer || open_tokenizer(m, tokenizer, err);
}

static bool open_preset(open_model *m, const lm_options *o, sn_error *err) {
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
    if (!m->config) return false;
    return !o->tokenizer || open_tokenizer(m, o->tokenizer, err);
}

static bool open_source(open_model *m, const lm_options *o, sn_error *err) {
    if (o->sequences && model_source_is(o->path))
        return sn_fail(err, SN_ERR_USAGE,
                       "%s: a model in C runs one sequence at a time, because its code decides "
                       "what a token sees",
                       o->path);
    if (!o->path == !o->preset)
        return sn_fail(err, SN_ERR_USAGE, "give either a model folder or a preset");
    if (o->checkpoint && !model_source_is(o->path))
        return sn_fail(err, SN_ERR_USAGE,
                       "--checkpoint is for models in C: a model folder has its own weights");
    if (model_source_is(o->path))
        return model_source_open(o->path, o->compile.cache_dir, &m->code, err) &&
               open_checkpoint(m, o, err);
    if (o->preset) return open_preset(m, o, err);
    struct stat st;
    bool file = stat(o->path, &st) == 0 && S_ISREG(st.st_mode) && !sn_gguf_is_file(o->path);
    return file ? open_foreign(m, o, err) : open_folder(m, o->path, o, err);
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
    enum { PIECE = 1 << 16 };
    int64_t pieces = (n + PIECE - 1) / PIECE;
#pragma omp parallel for schedule(static)
    for (int64_t p = 0; p < pieces; p++) {
        int64_t at = p * PIECE, count = n - at < PIECE ? n - at : PIECE;
        sn_rng rng = {
            .seed = seed, .index = (uint64_t)at, .stream = SN_STREAM_INIT, .step = stream_step};
        sn_rng_fill_uniform(&rng, (float)-width, (float)width, out + at, (size_t)count);
    }
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

static bool check_vocabulary(const sn_tokenizer *t, int64_t vocab, sn_error *err) {
    if (!t || !vocab || sn_tokenizer_vocab_size(t) <= vocab) return true;
    return sn_fail(
        err, SN_ERR_SHAPE,
        "the tokenizer (%s) has %d tokens but the model's vocabulary only %lld: they do not match",
        sn_tokenizer_kind(t), (int)sn_tokenizer_vocab_size(t), (long long)vocab);
}

/* Whether the entry exists and has no inputs other than tokens (and targets). */
static bool reads_tokens(sn_module *m, sn_entry *e) {
    if (!e) return false;
    sn_order order = sn_entry_topo(m, e);
    bool ok = true;
    for (int i = 0; i < order.n; i++) {
        const char *name = sn_attr_str(order.node[i], SN_A_name, "");
        if (order.node[i]->op == SN_OP_input)
            ok &= !strcmp(name, "tokens") || !strcmp(name, "targets") || !strcmp(name, "past");
    }
    return ok;
}

/* Encoders have no caches; the loss of encoders and encoder-decoders needs more inputs than
 * tokens. */
static bool check_kind(const open_model *m, const lm_options *o, sn_error *err) {
    sn_module *mod = m->model.module;
    int entries = o->entries;
    bool lacks = o->needs && !sn_entry_get(mod, o->needs);
    if (lacks && !strcmp(o->needs, "embed_image"))
        return sn_fail(err, SN_ERR_USAGE, "%s models do not take images", m->model.type);
    if (lacks && !strcmp(o->needs, "decode"))
        return sn_fail(err, SN_ERR_USAGE, "%s models do not transcribe sound: use a whisper",
                       m->model.type);
    if (lacks && m->model.image && !strcmp(o->needs, "embed"))
        return sn_fail(err, SN_ERR_USAGE, "%s models read images: give one with --image",
                       m->model.type);
    if (lacks)
        return sn_fail(err, SN_ERR_USAGE,
                       "the weights of this %s model have no head for '%s': use an encoder that "
                       "was trained for it, such as a bert with a %s",
                       m->model.type, o->needs,
                       strcmp(o->needs, "classify") ? "masked-language-model head or a pooler"
                                                    : "classifier");
    if (o->any_model) return true;
    if (o->translates && !m->model.source_vocab)
        return sn_fail(
            err, SN_ERR_USAGE,
            "%s models are not encoder-decoders: translate needs one, such as bart, t5 or marian",
            m->model.type);
    if (o->translates) return true;
    if (m->model.mel && entries & (SN_CACHED | SN_LOSS))
        return sn_fail(err, SN_ERR_USAGE, "%s models transcribe sound: use sinter transcribe",
                       m->model.type);
    if (m->model.source_vocab && entries & (SN_CACHED | SN_LOSS))
        return sn_fail(err, SN_ERR_USAGE,
                       "%s models predict a result from a source: use sinter translate",
                       m->model.type);
    bool ok = (!(entries & SN_CACHED) || reads_tokens(mod, sn_entry_get(mod, "decode"))) &&
              (!(entries & SN_LOSS) || reads_tokens(mod, sn_entry_get(mod, "loss")));
    if (!ok && m->code.library)
        return sn_fail(err, SN_ERR_USAGE,
                       "the model '%s' has no entries that predict the next token: "
                       "sn_decoder_entries makes them",
                       m->model.type);
    return ok || sn_fail(err, SN_ERR_USAGE,
                         "%s models do not predict the next token: generate and eval need a "
                         "decoder, such as gpt2 or llama",
                         m->model.type);
}

/* Reads "id2label" of Hugging Face's configs: {"0": "negative", ...} */
static bool open_labels(open_model *m, sn_error *err) {
    if (!m->model.labels || !m->config || !sn_config_has(m->config, "id2label")) return true;
    m->labels = sn_config_section(m->config, "id2label");
    for (int64_t i = 0; m->labels && i < m->model.labels; i++) lm_label(m, i);
    if (!sn_config_check(m->labels ? m->labels : m->config, err)) return false;
    return m->labels || sn_fail(err, SN_ERR_MEMORY, "out of memory");
}

void lm_sizes(sn_module *m, int64_t batch, int64_t length, char *text, size_t size) {
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
static bool build(const open_model *m, const lm_options *o, int entries, sn_model *out,
                  sn_error *err) {
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
                                 .image = m->has_pictures ? picture_rules_side(&m->pictures) : 0,
                                 .sequences = o->sequences,
                                 .mesh = o->mesh,
                                 .weights = m->dir ? m->dir->weights : NULL};
    return !m->code.define ? sn_model_build(m->config, &mo, out, err)
                           : sn_model_build_with(m->code.define, m->code.name, &mo, out, err);
}

/* Whether the model has what `named` asks for. */
static bool check_named(const open_model *m, const lm_options *o, sn_error *err) {
    sn_model all;
    if (!lm_entries_missing(m->model.module, o->named)) return true;
    if (!build(m, o, LM_ANY_ENTRIES, &all, err)) return false;
    lm_entries_fail(m->model.type, m->model.module, o->named, all.module, err);
    sn_module_free(all.module);
    return false;
}

/* With only the requested entries, some tensors of the weights may be unused. */
static bool check_unused(const open_model *m, const lm_options *o, const sn_weights *w,
                         sn_error *err) {
    sn_model all;
    if (sn_model_takes_all(&m->model, w, NULL)) return true;
    if (!build(m, o, SN_ALL_ENTRIES | SN_EMBED, &all, err)) return false;
    bool ok = sn_model_takes_all(&all, w, err);
    sn_module_free(all.module);
    return ok;
}

bool lm_check_room(const open_model *m, int64_t rows, int64_t past, int64_t end, sn_error *err) {
    double part = m->sequences ? (double)rows / (double)m->sequences : 1;
    double each = part * m->state_bytes / (double)m->model.context,
           room = (double)sn_memory_available();
    if (!m->session) room = fmin(room, (double)sn_memory_space()); /* then it has its own already */
    if (each * (double)(end - past) <= room) return true;
    return sn_fail(
        err, SN_ERR_MEMORY,
        "a context of %lld tokens needs %.2f GB of memory for keys and values (%.0f KB "
        "each), but %.2f GB are available: use at most %lld tokens (--context, a shorter "
        "prompt), or caches of fewer bits (--cache)",
        (long long)end, each * (double)end / 1e9, each / 1e3, (room + each * (double)past) / 1e9,
        (long long)(past + (int64_t)(room / each)));
}

/* What the folder records holds for options that are not given, where those that are given allow it. */
static void take_recorded(const open_model *m, sn_options *compile) {
    const quantised *q = &m->recorded;
    bool library = compile->backend && !strcmp(compile->backend, "onednn"); /* f32 only */
    const char *given = quantised_is_open(compile->weights) ? NULL : compile->weights;
    bool wide = given && (!strcmp(given, "f32") || !strcmp(given, "bf16"));
    if (!compile->compute && !library && !wide) compile->compute = q->compute;
    if (q->weights && !given && !library) compile->weights = q->weights;
    compile->keep = q->keep;
    compile->n_keep = q->n_keep;
}

static bool open_parts(open_model *m, const lm_options *o, sn_error *err) {
    if (!open_source(m, o, err)) return false;
    if (!quantised_read(m->config, &m->recorded, err)) return false;
    m->beams = o->beams ? o->beams : m->rules.beams ? m->rules.beams : 1;
    m->sequences = o->sequences;
    if (!build(m, o, o->entries, &m->model, err) || !check_named(m, o, err)) return false;
    if (!check_vocabulary(m->tokenizer, m->model.vocab, err) ||
        !check_vocabulary(m->source, m->model.source_vocab, err) || !open_labels(m, err) ||
        !lm_open_ends(m, m->dir ? m->dir->path : o->checkpoint, err))
        return false;
    const sn_weights *w = lm_weights(m);
    bool runs = !o->build_only && !o->compile_only;
    if (runs && !check_kind(m, o, err)) return false;
    /* build_only: whoever makes a session may have other values for a tensor */
    if (w && !o->build_only && !check_weights(m, w, err)) return false;
    if (w && !check_unused(m, o, w, err)) return false;
    if (o->build_only) return true;
    m->state_bytes = storage_of_states(m->model.module, o->compile.cache);
    sn_options compile = o->compile;
    take_recorded(m, &compile);
    if (o->prepare && !o->prepare(o->user, &m->model, &compile, err)) return false;
    char sizes[256]; /* for eval: whole windows */
    lm_sizes(m->model.module, 1, m->model.context, sizes, sizeof sizes);
    if (o->entries == SN_LOSS && !compile.tune_sizes) compile.tune_sizes = sizes;
    if (compile.weights && !strcmp(compile.weights, "auto"))
        compile.weights = storage_choose(m->model.module, w, sn_memory_available(), m->storage_note,
                                         sizeof m->storage_note);
    compile.source = w;
    compile.plan_only = o->compile_only;
    if (m->imported) compile.weights_cache = -1; /* the next import makes other files */
    if (o->context && !o->compile_only && !lm_check_room(m, m->sequences, 0, o->context, err))
        return false;
    m->compiled = compile;
    if (o->compile_only)
        sn_training_divide(m->model.module, &(sn_training){.zero = o->zero, .ranks = o->ranks});
    m->program = sn_compile(m->model.module, &compile, err);
    if (!m->program || o->compile_only) return m->program != NULL;
    m->logits = malloc(sizeof *m->logits * (size_t)m->model.vocab);
    if (!m->logits) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    if (!w) return random_session(m, o->seed, err);
    m->session = sn_session_new(m->program, w, err);
    return m->session && (!o->context || lm_check_room(m, m->sequences, 0, o->context, err));
}

open_model *lm_open(const lm_options *o, sn_error *err) {
    open_model *m = calloc(1, sizeof *m);
    if (!m) {
        sn_fail(err, SN_ERR_MEMORY, "out of memory");
        return NULL;
    }
    m->rules = (sn_token_rules)SN_TOKEN_RULES_NONE;
    if (open_parts(m, o, err)) return m;
    lm_close(m);
    return NULL;
}

const sn_weights *lm_weights(const open_model *m) {
    return m->dir ? m->dir->weights : m->checkpoint;
}

void lm_close(open_model *m) {
    if (!m) return;
    sn_session_free(m->session);
    sn_program_free(m->program);
    sn_module_free(m->model.module);
    sn_tokenizer_free(m->tokenizer);
    free(m->tokenizer_path);
    sn_tokenizer_free(m->source);
    free(m->source_path);
    sn_token_rules_free(&m->rules);
    sn_model_dir_close(m->dir);
    free(m->graph);
    sn_config_free(m->labels);
    sn_config_free(m->own_config);
    for (int i = 0; i < m->n_random; i++) free(m->random[i]);
    free(m->random);
    quantised_free(&m->recorded);
    free(m->logits);
    sn_weights_close(m->checkpoint);
    /* last, because its strings are referenced as source locations by the module */
    model_source_close(&m->code);
    free(m);
}

int64_t lm_parameters(const open_model *m) {
    int64_t n = 0;
    for (uint32_t i = 0; i < sn_module_node_count(m->model.module); i++) {
        const sn_node *p = sn_module_node(m->model.module, i);
        if (is_param(p)) n += elements_of(p);
    }
    return n;
}

bool lm_has_input(sn_module *m, const char *name) {
    for (uint32_t i = 0; i < sn_module_node_count(m); i++) {
        const sn_node *n = sn_module_node(m, i);
        if (n->op == SN_OP_input && !strcmp(sn_attr_str(n, SN_A_name, ""), name)) return true;
    }
    return false;
}

const char *lm_label(const open_model *m, int64_t i) {
    char key[24];
    snprintf(key, sizeof key, "%lld", (long long)i);
    return m->labels ? sn_config_string_or(m->labels, key, NULL) : NULL;
}

/* ---- running ---- */

static bool check_tokens(const open_model *m, const int32_t *ids, int64_t n, sn_error *err) {
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= m->model.vocab)
            return sn_fail(err, SN_ERR_RANGE,
                           "token %d (number %lld) is outside the vocabulary 0..%lld", (int)ids[i],
                           (long long)i, (long long)m->model.vocab - 1);
    return true;
}

bool lm_append(open_model *m, int64_t past, const int32_t *ids, int64_t n, float *logits,
               sn_error *err) {
    if (n < 1) return sn_fail(err, SN_ERR_USAGE, "no tokens to run");
    if (past + n > m->model.context)
        return sn_fail(err, SN_ERR_RANGE,
                       "the sequence has %lld tokens, but the context holds only %lld",
                       (long long)(past + n), (long long)m->model.context);
    if (!check_tokens(m, ids, n, err)) return false;
    if (n > 1 && !lm_check_room(m, 1, past, past + n, err)) return false;
    sn_arg_binding in[] = {SN_BIND("tokens", SN_I32, (void *)(uintptr_t)ids, 1, n),
                           SN_BIND_DIM("P", past)};
    sn_arg_binding out = SN_BIND("logits", SN_F32, logits, 1, m->model.vocab);
    if (!sn_run(m->session, n == 1 ? "decode" : "prefill", in, 2, &out, 1, err)) return false;
    m->past = past + n;
    return true;
}

bool lm_feed(open_model *m, const int32_t *ids, int64_t n, sn_error *err) {
    return lm_append(m, m->past, ids, n, m->logits, err);
}

void lm_reset(open_model *m) {
    sn_session_reset(m->session);
    m->past = 0;
}

bool lm_loss(open_model *m, const int32_t *tokens, const int32_t *targets, int64_t n, float *loss,
             sn_error *err) {
    if (!check_tokens(m, tokens, n, err) || !check_tokens(m, targets, n, err)) return false;
    sn_arg_binding in[] = {SN_BIND("tokens", SN_I32, (void *)(uintptr_t)tokens, 1, n),
                           SN_BIND("targets", SN_I32, (void *)(uintptr_t)targets, 1, n)};
    sn_arg_binding out = SN_BIND("loss", SN_F32, loss, 1, n);
    return sn_run(m->session, "loss", in, 2, &out, 1, err) && lm_check_output("loss", loss, n, err);
}

bool lm_check_output(const char *output, const float *x, int64_t n, sn_error *err) {
    int64_t i = 0;
    while (i < n && !isnan(x[i])) i++;
    return i == n ||
           sn_fail(err, SN_ERR_RANGE,
                   "element %lld of '%s' is NaN (--check-nan, or check_nan of sn_options, "
                   "names the operation)",
                   (long long)i, output);
}

const char *lm_nan_parameter(const open_model *m, sn_error *err) {
    sn_module *module = m->model.module;
    const char *found = NULL;
    for (uint32_t i = 0; !found && i < sn_module_node_count(module); i++) {
        const sn_node *n = sn_module_node(module, i);
        const char *name = n->op == SN_OP_param ? sn_attr_str(n, SN_A_name, "") : "";
        const sn_weight *t = sn_weights_find(lm_weights(m), name);
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

/* ---- text ---- */

bool lm_begins_with_bos(const open_model *m) {
    bool unless = !m->tokenizer || sn_tokenizer_adds_bos(m->tokenizer, true);
    return m->config ? sn_config_bool_or(m->config, "add_bos_token", unless) : unless;
}

bool lm_encode(const open_model *m, const char *text, size_t size, bool bos, sn_ids *out,
               sn_error *err) {
    if (size && !lm_begins_with_bos(m)) bos = false;
    return sn_lm_encode_text(m->tokenizer, text, size, bos, out, err);
}

bool lm_encode_source(const open_model *m, const char *text, size_t size, sn_ids *out,
                      sn_error *err) {
    if (!m->source) return lm_encode(m, text, size, false, out, err);
    return sn_tokenizer_encode(m->source, text, size, SN_TOK_SPECIAL, out, err);
}
