/* bench_model.c: whole models with random weights: all logits of a text, decode steps, or training
 * steps. */
#include "runtime/file.h"
#include "bench/benches.h"
#include "bench/graph_case.h"
#include "codegen/program/sizes.h"
#include "frontend/gradients.h"
#include "frontend/models.h"
#include "frontend/train.h"
#include "ir/ir.h"
#include "ir/lookups.h"
#include "runtime/model_dir.h"
#include "runtime/str.h"

#include <cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { CHECKED_PRODUCTS = 400000000, MAX_CHECKED = 400000000 /* parameters */ };

static const char train_entry[] = "train_step";

typedef struct spec {
    const char *model;
    bool (*build)(void *source, const sn_model_options *o, sn_model *out, sn_error *err);
    void *source;     /* of `build`; NULL: a preset or the config of a folder */
    const char *file; /* ONNX; NULL: none */
    int64_t batch, tokens;
    sn_bench_mode mode;
    double clip;
    sn_optimizer_kind optimizer;
    const char *sizes; /* "B=1,N=64" of any dimensions; NULL: tokens and batch say it */
    const char *entry; /* NULL: the usual one of the mode */
    bool any_entry;    /* it was asked for */
    bool gradient;     /* times the gradients of the entry's outputs */
    bool usual;        /* the default sizes: those beyond the model's context are skipped */
} spec;

/* Which entry is timed for a model without decode. */
static const struct architecture {
    const char *type, *entry;
    int entries;
} architectures[] = {{"bert", "encode", SN_ENCODE}, {NULL, "forward", SN_FORWARD}};

static const struct architecture *architecture_of(const char *type) {
    const struct architecture *a = architectures;
    while (a->type && (!type || strcmp(a->type, type) != 0)) a++;
    return a;
}

static sn_config *open_config(const char *model, sn_error *err) {
    const char *text = sn_model_preset(model);
    if (text) return sn_config_parse(model, text, strlen(text), err);
    struct stat st;
    if (!stat(model, &st)) return sn_model_dir_config(model, err);
    char names[256] = "";
    for (size_t at = 0, i = 0; sn_model_preset_name((int)i) && at < sizeof names; i++)
        at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", i ? ", " : "",
                               sn_model_preset_name((int)i));
    sn_fail(err, SN_ERR_USAGE,
            "'%s' is neither a folder with a config.json, a GGUF file nor a preset (%s)", model,
            names);
    return NULL;
}

/* The optimizer that is asked for; group: memory for its groups. */
static sn_optimizer optimizer_of(const spec *s, sn_optimizer_group *group) {
    sn_optimizer o = sn_optimizer_of(s->optimizer), rest = sn_optimizer_of(SN_ADAMW);
    if (sn_optimizer_of_matrices(s->optimizer)) o = sn_optimizer_hidden(&o, &rest, group);
    o.max_norm = s->clip;
    return o;
}

static bool build_model(const spec *s, sn_model *m, sn_error *err) {
    sn_config *c = s->source ? NULL : open_config(s->model, err);
    if (!c && !s->source) return false;
    const char *type = c ? sn_config_string_or(c, "model_type", NULL) : NULL;
    int entries = architecture_of(type)->entries;
    if (s->mode == SN_BENCH_DECODE) entries = SN_CACHED;
    if (s->mode == SN_BENCH_TRAIN) entries |= SN_TRAIN;
    if (s->any_entry || (s->file && s->mode == SN_BENCH_FORWARD)) entries = SN_ALL_ENTRIES;
    sn_training t = sn_training_default();
    sn_optimizer_group group[SN_HIDDEN_GROUPS];
    t.optimizer = optimizer_of(s, group);
    sn_model_options mo = {.entries = entries, .batch = s->batch, .training = &t};
    bool traced = c && sn_config_has(c, "source") && sn_folder_has(s->model, SN_MODEL_GRAPH);
    char *graph = traced ? sn_path_join(s->model, SN_MODEL_GRAPH) : NULL;
    bool ok = graph ? sn_model_build_graph(graph, NULL, m, err)
              : c   ? sn_model_build(c, &mo, m, err)
                    : s->build(s->source, &mo, m, err);
    free(graph);
    sn_config_free(c);
    return ok;
}

/* Keeps only the timed entry in the module, so that nothing is bound that others read. Of the outputs of a
 * training step only the loss: PyTorch's script does not compute the gradient norm either. */
static bool keep_entry(sn_module *m, const spec *s, sn_error *err) {
    sn_entry *e = sn_entry_get(m, s->entry);
    const char *name = s->gradient ? "gradient" : s->entry;
    if (e && s->gradient && sn_entry_gradient(m, e, name, NULL, NULL, false, NULL, NULL, err) < 0)
        return err->code
                   ? false
                   : sn_fail(err, SN_ERR_USAGE, "entry '%s' of %s has nothing to differentiate",
                             s->entry, s->model);
    for (int i = 0; i < sn_entry_count(m); i++) {
        e = sn_entry_at(m, i);
        e->n_tap = 0;
        if (strcmp(e->name, name) != 0) e->n_output = e->n_assign = 0;
        if (!strcmp(e->name, train_entry) && e->n_output) e->n_output = 1;
    }
    return sn_entry_get(m, name) ||
           sn_fail(err, SN_ERR_USAGE, "%s has no entry '%s'", s->model, s->entry);
}

static sn_module *build(const void *p, sn_error *err) {
    const spec *s = p;
    sn_model m;
    if (!build_model(s, &m, err)) return NULL;
    if (keep_entry(m.module, s, err)) return m.module;
    sn_module_free(m.module);
    return NULL;
}

static int64_t parameters_of(sn_module *m) {
    int64_t sum = 0;
    for (uint32_t i = 0; i < sn_module_node_count(m); i++) {
        const sn_node *n = sn_module_node(m, i);
        int64_t count = n->op == SN_OP_param;
        for (int a = 0; count && a < n->rank; a++) count *= n->shape[a];
        sum += count;
    }
    return sum;
}

static bool decodes(const spec *s) {
    return s->mode == SN_BENCH_DECODE;
}

static const char *entry_of(const spec *s, const char *type) {
    static const char *const names[] = {
        [SN_BENCH_DECODE] = "decode", [SN_BENCH_TRAIN] = train_entry};
    return names[s->mode] ? names[s->mode] : architecture_of(type)->entry;
}

/* ---- models without tokens ---- */

/* Of files, encoder-decoders have no entry that does all. */
static bool is_pair(const spec *s, const sn_model *m) {
    return s->file && (m->source_vocab || m->mel);
}

/* The entry that is timed: the one that was asked for, the usual one, or else the only one. */
static const char *any_entry(const spec *s, const sn_model *model, sn_error *err) {
    sn_module *m = model->module;
    const char *usual = s->mode != SN_BENCH_FORWARD ? entry_of(s, NULL)
                        : is_pair(s, model)         ? "prefill"
                                                    : "forward";
    const char *name = s->entry ? s->entry : usual;
    char names[160] = "";
    if (sn_entry_get(m, name)) return name;
    if (!s->entry && s->mode == SN_BENCH_FORWARD && sn_entry_count(m) == 1)
        return sn_entry_at(m, 0)->name;
    for (size_t i = 0, n = 0; (int)i < sn_entry_count(m) && n < sizeof names; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "",
                              sn_entry_at(m, (int)i)->name);
    sn_fail(err, SN_ERR_USAGE, "%s has no entry '%s'; it has: %s", s->model, name, names);
    return NULL;
}

/* The request to peers that can run the file: its path, and each input's type, shape and limit of indices.
 * The caller frees it; NULL: not a file, or other work than what it computes. */
static char *file_request(const sn_bench_options *o, const spec *s, sn_module *m,
                          const int64_t *symbol) {
    if (!s->file || s->gradient || sn_bench_factors(o) != SN_F32) return NULL;
    char *path = realpath(s->file, NULL);
    cJSON *q = cJSON_CreateObject(), *inputs = cJSON_AddObjectToObject(q, "inputs");
    cJSON_AddStringToObject(q, "work", "file");
    cJSON_AddStringToObject(q, "path", path);
    for (uint32_t i = 0; i < sn_module_node_count(m); i++) {
        const sn_node *n = sn_module_node(m, i);
        if (n->op != SN_OP_input) continue;
        cJSON *in = cJSON_AddObjectToObject(inputs, sn_attr_str(n, SN_A_name, ""));
        cJSON *dims = cJSON_AddArrayToObject(in, "dims");
        cJSON_AddStringToObject(in, "type", sn_dtype_name((sn_dtype)n->dtype));
        for (int a = 0; a < n->rank; a++)
            cJSON_AddItemToArray(dims,
                                 cJSON_CreateNumber((double)sn_dim_eval(m, n->shape[a], symbol)));
        int64_t limit = sn_input_limit(m, sn_entry_get(m, s->entry), n, symbol);
        cJSON_AddNumberToObject(in, "limit", (double)limit);
    }
    char *text = cJSON_PrintUnformatted(q);
    cJSON_Delete(q);
    free(path);
    return text;
}

static int64_t size_of(sn_module *m, const char *name, const int64_t *symbol, int64_t other) {
    const int i = sn_symbol_find(m, name);
    return i < 0 ? other : symbol[i];
}

/* Not what entries share, such as masks and constants, whose place is in the file that had it first. */
static bool is_product(const sn_node *n) {
    return n->op == SN_OP_linear || n->op == SN_OP_matmul;
}

/* The request to run the files that an entry of models.h was made from, which are the places of its products: of
 * prefill of an encoder-decoder the encoder's and that of the decoder's first step. NULL: as of file_request. */
static char *files_request(const sn_bench_options *o, const spec *s, const sn_model *model,
                           const char *name, const int64_t *symbol) {
    enum { FILES = 2 };
    sn_module *m = model->module;
    const sn_entry *e = sn_entry_get(m, name);
    const char *file[FILES] = {NULL};
    int n = 0;
    if (!s->file || s->gradient || !e || sn_bench_factors(o) != SN_F32) return NULL;
    sn_order order = sn_entry_topo(m, e);
    for (int i = 0; i < order.n && n < FILES; i++) {
        const char *of = is_product(order.node[i]) ? order.node[i]->loc.file : NULL;
        if (of && sn_ends_with(of, ".onnx") && (!n || strcmp(of, file[0]) != 0)) file[n++] = of;
    }
    const int64_t heard = model->frames ? model->frames / 2 : s->tokens;
    const int64_t source = size_of(m, "S", symbol, heard), past = size_of(m, "P", symbol, 0);
    const int64_t tokens = strcmp(name, "prefill") ? 1 : size_of(m, "T", symbol, source);
    cJSON *q = cJSON_CreateObject(), *files = cJSON_AddArrayToObject(q, "files");
    cJSON_AddStringToObject(q, "work", "files");
    for (int i = 0; i < n; i++) {
        char *path = realpath(file[i], NULL);
        cJSON *f = cJSON_CreateObject();
        cJSON_AddItemToArray(files, f);
        cJSON_AddStringToObject(f, "path", path);
        cJSON_AddNumberToObject(f, "batch", (double)s->batch);
        cJSON_AddNumberToObject(f, "tokens", (double)(i ? 1 : tokens));
        cJSON_AddNumberToObject(f, "past", (double)(is_pair(s, model) && n == 2 ? 0 : past));
        cJSON_AddNumberToObject(f, "source", (double)source);
        cJSON_AddNumberToObject(f, "mel", (double)model->mel);
        cJSON_AddNumberToObject(f, "frames", (double)model->frames);
        cJSON_AddNumberToObject(f, "limit", (double)model->vocab);
        free(path);
    }
    char *text = n ? cJSON_PrintUnformatted(q) : NULL;
    cJSON_Delete(q);
    return text;
}

/* The same where all sizes are the number of tokens. */
static char *decode_request(const sn_bench_options *o, const spec *s, const sn_model *model,
                            const char *entry) {
    enum { SYMBOLS = 32 };
    int64_t symbol[SYMBOLS];
    for (int i = 0; i < SYMBOLS; i++) symbol[i] = s->tokens;
    return sn_symbol_count(model->module) > SYMBOLS ? NULL
                                                    : files_request(o, s, model, entry, symbol);
}

/* Any entry: dimensions B and batch… have the batch size, --sizes says others, the rest have the number of
 * tokens, or what is nearest to it. *more: another number of tokens makes another size. */
static bool run_any(const sn_bench_options *o, const spec *asked, const sn_model *model, bool *more,
                    sn_bench_report *out, sn_error *err) {
    enum { SYMBOLS = 16, CHECKED = 8 };
    sn_module *m = model->module;
    sn_bench_size size[SYMBOLS];
    char shape[64] = "", title[48];
    int64_t value[SYMBOLS];
    int n = sn_symbol_count(m);
    spec one = *asked;
    const spec *s = &one;
    one.entry = any_entry(asked, model, err);
    if (!one.entry) return false;
    if (n > SYMBOLS)
        return sn_fail(err, SN_ERR_USAGE, "%s has too many symbolic dimensions", s->model);
    *more = false;
    for (int i = 0; i < n; i++) {
        const sn_symbol *d = sn_symbol_at(m, i);
        bool batch = !strcmp(d->name, "B") || !strncmp(d->name, "batch", strlen("batch"));
        int64_t want = batch ? s->batch : s->tokens;
        value[i] = want < d->lo ? d->lo : want > d->hi ? d->hi : want;
        *more |= !batch && value[i] == s->tokens;
    }
    if (!sn_sizes_read(m, "--sizes:", s->sizes, value, err)) return false;
    for (int i = 0, at = 0; i < n; i++) {
        const sn_symbol *d = sn_symbol_at(m, i);
        int64_t few = d->lo > CHECKED ? d->lo : CHECKED;
        size[i] = (sn_bench_size){d->name, value[i], value[i] < few ? value[i] : few};
        if (at < (int)sizeof shape)
            at += snprintf(shape + at, sizeof shape - (size_t)at, "%s%s=%lld", i ? "," : "",
                           d->name, (long long)value[i]);
    }
    const char *base = sn_base_name(s->model);
    snprintf(title, sizeof title, "%.22s %.15s%s", base, s->entry, s->gradient ? " gradient" : "");
    sn_bench_graph g = {.kind = s->mode == SN_BENCH_TRAIN ? "train" : "model",
                        .name = title,
                        .shape = *shape ? shape : "-",
                        .build = build,
                        .spec = s,
                        .entry = s->gradient ? "gradient" : s->entry,
                        .size = size,
                        .n_size = n,
                        .flop = -1,
                        .bytes = {-1, -1},
                        .check = parameters_of(m) <= MAX_CHECKED};
    char *request = strcmp(s->entry, "forward") ? files_request(o, s, model, s->entry, value)
                                                : file_request(o, s, m, value);
    bool done = sn_bench_graph_run(o, &g, request, NULL, 0, out, err);
    free(request);
    return done;
}

/* *more: whether other numbers of tokens are other problems. */
static bool run_spec(const sn_bench_options *o, const spec *asked, bool *more, sn_bench_report *out,
                     sn_error *err) {
    sn_model m;
    spec one = *asked;
    const spec *s = &one;
    *more = true;
    if (!build_model(s, &m, err)) return false;
    if (!m.context || s->sizes || s->entry || s->gradient ||
        (s->file && s->mode == SN_BENCH_FORWARD)) {
        bool done = run_any(o, s, &m, more, out, err);
        sn_module_free(m.module);
        return done;
    }
    int64_t parameters = parameters_of(m.module), max_tokens = m.context - decodes(s);
    const char *entry = one.entry = entry_of(s, m.type);
    bool has = sn_entry_get(m.module, entry) != NULL;
    char *files = has && s->tokens <= max_tokens ? decode_request(o, s, &m, entry) : NULL;
    sn_module_free(m.module);
    if (!has) return sn_fail(err, SN_ERR_USAGE, "%s has no entry '%s'", s->model, entry);
    if (s->tokens > max_tokens && s->usual && s->tokens > 64) return true;
    if (s->tokens > max_tokens)
        return sn_fail(err, SN_ERR_USAGE, "%lld tokens exceed the context of %s (%lld)",
                       (long long)s->tokens, s->model, (long long)max_tokens);
    const char *base = sn_base_name(s->model);
    char name[80], shape[64], request[256];
    const bool usual = s->optimizer == SN_ADAMW;
    snprintf(name, sizeof name, "%.30s %s%s%s%s", base, entry, s->clip > 0 ? " clipped" : "",
             usual ? "" : " ", usual ? "" : sn_optimizer_names()[s->optimizer]);
    snprintf(shape, sizeof shape, decodes(s) ? "%lldx1 after %lld" : "%lldx%lld",
             (long long)s->batch, (long long)s->tokens);
    snprintf(request, sizeof request,
             "{\"work\": \"%s\", \"name\": \"%.30s\", \"batch\": %lld, \"tokens\": %lld, "
             "\"past\": %lld, \"decode\": %s, \"clip\": %g%s}",
             s->mode == SN_BENCH_TRAIN ? "train" : "model", base, (long long)s->batch,
             (long long)(decodes(s) ? 1 : s->tokens), (long long)(decodes(s) ? s->tokens : 0),
             decodes(s) ? "true" : "false", s->clip, sn_bench_peer_compute(o));
    int64_t checked = CHECKED_PRODUCTS / (parameters + 1);
    checked = checked < 2 ? 2 : checked > s->tokens ? s->tokens : checked;
    const sn_bench_size sizes[2][3] = {
        {{"B", s->batch, 1}, {"T", s->tokens, checked}, {"S", s->tokens, checked}},
        {{"P", s->tokens, s->tokens < 3 ? s->tokens : 3}, {"S", s->tokens, checked}}};
    sn_bench_graph g = {.kind = s->mode == SN_BENCH_TRAIN ? "train" : "model",
                        .name = name,
                        .shape = shape,
                        .build = build,
                        .spec = s,
                        .entry = entry,
                        .size = sizes[decodes(s)],
                        .n_size = decodes(s) ? 2 : 3,
                        .id_limit = m.vocab,
                        .flop = -1,
                        .bytes = {-1, -1},
                        .tokens = (double)(s->batch * (decodes(s) ? 1 : s->tokens)),
                        .check = parameters <= MAX_CHECKED};
    if (!g.check && o->check)
        sn_bench_note(out,
                      "%s has too many parameters for the reference evaluator: errors not measured",
                      base);
    /* no peer computes a model in C, nor steps of optimizers other than AdamW */
    bool done = sn_bench_graph_run(o, &g, s->source || !usual ? files : request, NULL, 0, out, err);
    free(files);
    return done;
}

/* The kind of that name. */
static bool read_optimizer(const char *name, sn_optimizer_kind *kind, sn_error *err) {
    const char *const *names = sn_optimizer_names();
    char all[256] = "";
    for (int i = 0; names[i]; i++) {
        *kind = (sn_optimizer_kind)i;
        if (!strcmp(names[i], name)) return true;
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? ", " : "", names[i]);
    }
    return sn_fail(err, SN_ERR_USAGE, "--optimizer is '%s'; it must be one of %s", name, all);
}

bool sn_bench_models(const sn_bench_options *o, const sn_bench_model *b, sn_bench_report *out,
                     sn_error *err) {
    static const char *const usual[] = {[SN_BENCH_FORWARD] = "64,256,1024",
                                        [SN_BENCH_DECODE] = "64,512",
                                        [SN_BENCH_TRAIN] = "64,256"};
    const char *p = b->tokens ? b->tokens : usual[b->mode];
    sn_optimizer_kind optimizer = SN_ADAMW;
    if (b->optimizer && !read_optimizer(b->optimizer, &optimizer, err)) return false;
    for (bool more = true; more;) {
        char *end;
        long long n = strtoll(p, &end, 10);
        if (end == p || n < 1 || (*end && *end != ',') || (*end && !end[1]))
            return sn_fail(err, SN_ERR_USAGE, "--tokens is '%s'; write numbers, such as 64,256", p);
        spec s = {.model = b->model,
                  .build = b->build,
                  .source = b->source,
                  .file = b->file,
                  .batch = b->batch,
                  .tokens = n,
                  .mode = b->mode,
                  .clip = b->clip,
                  .optimizer = optimizer,
                  .sizes = b->sizes,
                  .entry = b->entry,
                  .any_entry = b->entry != NULL,
                  .gradient = b->gradient,
                  .usual = !b->tokens};
        bool other = true;
        if (!run_spec(o, &s, &other, out, err)) return false;
        more = *end == ',' && other && !b->sizes;
        p = end + 1;
    }
    return true;
}
