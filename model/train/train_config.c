/* train_config.c: reads the settings of a training run from a JSON file with the sections model,
 * tokenizer, data, optimizer, schedule and training. Paths are relative to the file's folder. */
#include "model/train/train.h"

#include "runtime/files/gguf.h"
#include "runtime/model_dir.h"
#include "driver/model_source.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The sections of one file; errors of all sections are reported together. */
typedef struct reader {
    sn_config *root;
    char *folder; /* of the file */
    bool is_data; /* a model folder, possibly untrusted: it must not name code to run */
    sn_error *err;
    bool failed;
} reader;

static sn_config *open_section(reader *r, const char *key, const char *const *keys) {
    sn_config *c = sn_config_section(r->root, key);
    if (!c) {
        if (sn_config_check(r->root, r->err)) sn_fail(r->err, SN_ERR_MEMORY, "out of memory");
        r->failed = true;
        return NULL;
    }
    if (keys) sn_config_only(c, keys);
    return c;
}

static void close_section(reader *r, sn_config *c) {
    if (c && !sn_config_check(c, r->err)) r->failed = true;
    sn_config_free(c);
}

static char *path_of(reader *r, sn_config *c, const char *key) {
    const char *path = sn_config_string_or(c, key, NULL);
    if (!path) return NULL;
    char *out = path[0] == '/' ? strdup(path) : sn_path_join(r->folder, path);
    if (!out) {
        sn_fail(r->err, SN_ERR_MEMORY, "out of memory");
        r->failed = true;
    }
    return out;
}

static void read_tokenizer(reader *r, train_settings *s) {
    static const char *const keys[] = {"path", "kind", "vocab", "min_count", NULL};
    static const char *const kinds[] = {"bpe", "word", "char", NULL};
    sn_config *c = open_section(r, "tokenizer", keys);
    if (!c) return;
    if (!r->is_data) s->tokenizer = path_of(r, c, "path");
    s->learn.kind = (sn_train_kind)sn_config_choice_or(c, "kind", kinds, SN_TRAIN_CHAR);
    s->learn.vocab_size = (int32_t)sn_config_int_or(c, "vocab", 0, 0, 1 << 24);
    s->learn.min_count = (int32_t)sn_config_int_or(c, "min_count", 0, 0, INT32_MAX);
    s->learn.unk = s->learn.kind != SN_TRAIN_BPE;
    close_section(r, c);
}

/* The default task of a model. */
static int usual_task(sn_config *model) {
    const char *type = sn_config_string_or(model, "model_type", "");
    const sn_model_family *f;
    for (int i = 0; (f = sn_model_family_at(i)) && strcmp(f->type, type) != 0;) i++;
    if (f && f->pairs) return SN_TASK_PAIRS;
    if (!f || !f->encodes) return SN_TASK_NEXT;
    return sn_config_has(model, "num_labels") ? SN_TASK_CLASSES : SN_TASK_MASKED;
}

static void read_data(reader *r, train_settings *s) {
    static const char *const keys[] = {
        "task",  "text",      "target", "validation", "validation_target", "validation_part",
        "order", "documents", "p_mask", "p_replace",  "p_random",          NULL};
    static const char *const tasks[] = {"next", "masked", "pairs", "classes", NULL};
    static const char *const orders[] = {"shuffled", "random", NULL};
    static const char *const units[] = {"whole", "lines", "paragraphs", NULL};
    sn_config *c = open_section(r, "data", keys);
    if (!c) return;
    s->data = sn_dataset_options_default();
    s->data.task = (sn_task)sn_config_choice_or(c, "task", tasks, usual_task(s->model));
    s->data.order = (sn_row_order)sn_config_choice_or(c, "order", orders, SN_ORDER_SHUFFLED);
    bool lines = s->data.task == SN_TASK_PAIRS || s->data.task == SN_TASK_CLASSES;
    s->documents = (train_documents)sn_config_choice_or(c, "documents", units,
                                                        lines ? TRAIN_LINES : TRAIN_WHOLE);
    if (lines && s->documents != TRAIN_LINES)
        sn_config_problem(c, "\"documents\" must be \"lines\" for pairs and classes");
    s->text = path_of(r, c, "text");
    s->target = path_of(r, c, "target");
    s->text_validation = path_of(r, c, "validation");
    s->target_validation = path_of(r, c, "validation_target");
    s->validation_part =
        sn_config_float_or(c, "validation_part", s->text_validation ? 0 : 0.1, 0, 0.9);
    if (s->data.task == SN_TASK_PAIRS && s->text && !s->target)
        sn_config_problem(c, "\"target\" is missing: the file of translations");
    s->data.p_mask = sn_config_float_or(c, "p_mask", s->data.p_mask, 0, 1);
    s->data.p_replace = sn_config_float_or(c, "p_replace", s->data.p_replace, 0, 1);
    s->data.p_random = sn_config_float_or(c, "p_random", s->data.p_random, 0, 1);
    close_section(r, c);
}

static bool (*const decays[])(const char *, int, const void *) = {NULL, sn_decays_all,
                                                                  sn_decays_no_embedding};

/* The kind and its settings, without clipping. */
static void read_rule(sn_config *c, sn_optimizer *o) {
    *o = sn_optimizer_of(
        (sn_optimizer_kind)sn_config_choice_or(c, "kind", sn_optimizer_names(), SN_ADAMW));
    o->momentum = sn_config_float_or(c, "momentum", o->momentum, 0, 1);
    o->nesterov = sn_config_bool_or(c, "nesterov", o->nesterov);
    o->polar = sn_config_bool_or(c, "polar", false);
    o->beta1 = sn_config_float_or(c, "beta1", o->beta1, 0, 0.9999999);
    o->beta2 = sn_config_float_or(c, "beta2", o->beta2, 0, 0.9999999);
    o->eps = sn_config_float_or(c, "eps", o->eps, 0, 1);
    o->decay = sn_config_float_or(c, "decay", o->decay, 0, 1e3);
}

static void read_groups(reader *r, sn_config *from, train_settings *s) {
    static const char *const keys[] = {"match",    "axes",  "kind",  "rate",     "polar", "eps",
                                       "momentum", "beta1", "beta2", "nesterov", "decay", NULL};
    sn_optimizer *o = &s->training.optimizer;
    sn_config *c;
    while ((c = sn_config_item(from, "groups", (size_t)o->groups, TRAIN_MAX_GROUPS))) {
        sn_optimizer_group *g = &s->group[o->groups++];
        sn_config_only(c, keys);
        const char *match = sn_config_string_or(c, "match", "*");
        if (strlen(match) > 60) sn_config_problem(c, "\"match\" is longer than 60 characters");
        g->match = strdup(match);
        if (!g->match) r->failed = !sn_fail(r->err, SN_ERR_MEMORY, "out of memory");
        g->axes = (int)sn_config_int_or(c, "axes", 0, 1, SN_MAX_RANK);
        g->rate = sn_config_float_or(c, "rate", 1, 1e-9, 1e9);
        read_rule(c, &g->optimizer);
        g->optimizer.decays = o->decays;
        close_section(r, c);
    }
}

/* Optimizers of matrices get the usual groups if there are none. */
static bool add_usual_groups(train_settings *s, sn_error *err) {
    sn_optimizer *o = &s->training.optimizer;
    if (o->groups || !sn_optimizer_of_matrices(o->kind)) return true;
    sn_optimizer matrices = *o, rest = sn_optimizer_of(SN_ADAMW);
    rest.max_norm = o->max_norm, rest.average = o->average;
    matrices.max_norm = matrices.average = 0;
    rest.decays = o->decays, rest.decay = o->decay;
    *o = sn_optimizer_hidden(&matrices, &rest, s->group);
    for (int i = 0; i < o->groups; i++) {
        sn_optimizer_group *g = &s->group[i];
        g->match = strdup(g->match ? g->match : "*");
        if (!g->match) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    }
    return true;
}

static void free_groups(train_settings *s) {
    for (int i = 0; s->group && i < TRAIN_MAX_GROUPS; i++)
        free((char *)(uintptr_t)s->group[i].match);
    free(s->group);
    s->group = NULL;
}

/* Memory for groups, which the optimizer points to: the settings may be moved. */
static bool make_groups(train_settings *s, sn_error *err) {
    s->group = calloc(TRAIN_MAX_GROUPS, sizeof *s->group);
    s->training.optimizer.group = s->group;
    return s->group || sn_fail(err, SN_ERR_MEMORY, "out of memory");
}

static void read_optimizer(reader *r, train_settings *s) {
    static const char *const keys[] = {"kind",         "momentum", "nesterov", "polar", "beta1",
                                       "beta2",        "eps",      "decay",    "clip",  "groups",
                                       "decay_groups", "average",  NULL};
    static const char *const groups[] = {"matrices", "all", "no_embeddings", NULL};
    sn_config *c = open_section(r, "optimizer", keys);
    if (!c) return;
    sn_optimizer *o = &s->training.optimizer;
    read_rule(c, o);
    o->max_norm = sn_config_float_or(c, "clip", s->start ? 1 : 0, 0, 1e9);
    o->average = sn_config_float_or(c, "average", 0, 0, 0.9999999);
    s->decay_groups = sn_config_choice_or(c, "decay_groups", groups, 0);
    o->decays = decays[s->decay_groups];
    if (!make_groups(s, r->err)) r->failed = true;
    if (s->group) read_groups(r, c, s);
    if (s->group && !add_usual_groups(s, r->err)) r->failed = true;
    close_section(r, c);
}

bool train_settings_optimizer(train_settings *s, const char *kind, sn_error *err) {
    int i = 0;
    while (sn_optimizer_names()[i] && strcmp(sn_optimizer_names()[i], kind) != 0) i++;
    sn_optimizer o = sn_optimizer_of((sn_optimizer_kind)i);
    o.max_norm = s->training.optimizer.max_norm, o.decays = s->training.optimizer.decays;
    o.average = s->training.optimizer.average;
    s->training.optimizer = o;
    free_groups(s);
    return make_groups(s, err) && add_usual_groups(s, err);
}

static void read_schedule(reader *r, train_settings *s) {
    static const char *const keys[] = {"kind", "rate", "final", "warmup", "total", NULL};
    static const char *const kinds[] = {"constant", "linear", "cosine", "inverse_sqrt", NULL};
    sn_config *c = open_section(r, "schedule", keys);
    if (!c) return;
    sn_schedule *o = &s->training.schedule;
    o->kind = (sn_schedule_kind)sn_config_choice_or(c, "kind", kinds, SN_CONSTANT);
    o->peak = sn_config_float_or(c, "rate", s->start ? TRAIN_FURTHER_RATE : 1e-3, 0, 1e3);
    o->final = sn_config_float_or(c, "final", 0, 0, 1e3);
    bool falls = o->kind == SN_LINEAR || o->kind == SN_COSINE;
    o->total = sn_config_int_or(c, "total", falls ? s->steps : 0, 0, INT32_MAX);
    int64_t warmup = s->start ? TRAIN_FURTHER_WARMUP : 0;
    if (falls && warmup > o->total / 10) warmup = o->total / 10;
    o->warmup = sn_config_int_or(c, "warmup", warmup, 0, INT32_MAX);
    if (falls && o->total <= o->warmup)
        sn_config_problem(c, "\"warmup\" = %lld must be less than the number of steps, %lld",
                          (long long)o->warmup, (long long)o->total);
    if (!falls && o->final != 0)
        sn_config_problem(c, "\"final\" applies to the linear and the cosine schedule only");
    close_section(r, c);
}

/* 64 tokens, or the model's maximum sequence length if smaller. */
static int64_t usual_block(sn_config *model) {
    static const char *const keys[] = {"n_positions", "max_position_embeddings", "n_ctx"};
    int64_t block = 64;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int64_t context = sn_config_int_or(model, keys[i], block, 1, 1 << 24);
        if (context < block) block = context;
    }
    return block;
}

static void read_training(reader *r, train_settings *s) {
    static const char *const keys[] = {"steps",      "batch",          "block",
                                       "dropout",    "accumulate",     "seed",
                                       "log_every",  "validate_every", "validation_batches",
                                       "save_every", "patience",       "start",
                                       "precision",  "slices",         "zero",
                                       "tensor",     "context",        NULL};
    static const char *const precisions[] = {"f32", "bf16", NULL};
    sn_config *c = open_section(r, "training", keys);
    if (!c) return;
    s->steps = sn_config_int_or(c, "steps", 1000, 1, INT32_MAX);
    s->data.batch = sn_config_int_or(c, "batch", 12, 1, 1 << 20);
    s->data.block = sn_config_int_or(c, "block", usual_block(s->model), 1, 1 << 24);
    s->training.dropout = sn_config_float_or(c, "dropout", 0, 0, 0.99);
    s->training.accumulate = sn_config_int_or(c, "accumulate", 1, 1, 1 << 20);
    s->seed = (uint64_t)sn_config_int_or(c, "seed", 1, 0, INT32_MAX);
    s->log_every = sn_config_int_or(c, "log_every", 10, 1, INT32_MAX);
    s->validate_every = sn_config_int_or(c, "validate_every", 250, 1, INT32_MAX);
    s->validation_batches = sn_config_int_or(c, "validation_batches", 0, 0, INT32_MAX);
    s->save_every = sn_config_int_or(c, "save_every", s->validate_every, 1, INT32_MAX);
    s->patience = sn_config_int_or(c, "patience", 0, 0, INT32_MAX);
    if (!r->is_data) s->start = path_of(r, c, "start");
    s->slices = sn_config_int_or(c, "slices", 0, 1, 1 << 20);
    s->zero = (int)sn_config_int_or(c, "zero", 0, 0, 3);
    s->tensor = sn_config_int_or(c, "tensor", 1, 1, 1 << 16);
    s->context = sn_config_int_or(c, "context", 1, 1, 1 << 16);
    s->precision = precisions[sn_config_choice_or(c, "precision", precisions, 0)];
    close_section(r, c);
}

static char *folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? strndup(path, (size_t)(slash - path) + (slash == path)) : strdup(".");
}

static void read_all(reader *r, train_settings *s) {
    static const char *const sections[] = {"model",    "tokenizer", "data", "optimizer",
                                           "schedule", "training",  NULL};
    sn_config_only(r->root, sections);
    if (!s->model) s->model = open_section(r, "model", NULL);
    if (!s->model) return;
    if (!r->is_data) s->source = path_of(r, s->model, "source");
    read_data(r, s);
    read_training(r, s);
    read_tokenizer(r, s);
    read_optimizer(r, s);
    read_schedule(r, s);
    s->training.documents = s->data.documents =
        s->data.task == SN_TASK_NEXT && s->documents != TRAIN_WHOLE;
    s->data.seed = s->seed;
    if (!sn_config_check(r->root, r->err)) r->failed = true;
}

/* A model folder as the start of a run, with its config, weights and tokenizer. */
static bool read_folder(const char *path, const char *source, reader *r, train_settings *s) {
    sn_config *model = s->model = sn_model_dir_config(path, r->err);
    if (!model) return false;
    const char *code = sn_config_string_or(model, "source", NULL);
    if (code && !source)
        return sn_fail(r->err, SN_ERR_USAGE,
                       "%s contains the weights of a model in C, %s. Files of a folder are data "
                       "and are not run: name the C file, --source FILE, if you trust it",
                       path, code);
    r->is_data = true;
    r->root = sn_config_new(path);
    s->start = strdup(path), s->tokenizer = strdup(path);
    if (!r->root || !s->start || !s->tokenizer)
        return sn_fail(r->err, SN_ERR_MEMORY, "out of memory");
    read_all(r, s);
    return true;
}

static bool take_source(const char *path, const char *source, train_settings *s, sn_error *err) {
    if (!source) return true;
    if (!model_source_is(source) || model_source_is(path))
        return sn_fail(err, SN_ERR_USAGE, "--source %s: %s", source,
                       model_source_is(path) ? "the config already names a model"
                                             : "a model in C is a .c or .so file");
    free(s->source);
    s->source = strdup(source);
    return s->source || sn_fail(err, SN_ERR_MEMORY, "out of memory");
}

bool train_settings_read(const char *path, const char *source, train_settings *out, sn_error *err) {
    *out = (train_settings){0};
    struct stat st;
    reader r = {.folder = folder_of(path), .err = err};
    bool ok = r.folder || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    if (ok && stat(path, &st) == 0 && (S_ISDIR(st.st_mode) || sn_gguf_is_file(path))) {
        ok = read_folder(path, source, &r, out);
    } else if (ok && model_source_is(path)) {
        r.root = sn_config_new(path);
        if (r.root) read_all(&r, out);
        out->source = strdup(path);
        ok = (r.root && out->source) || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    } else if (ok) {
        r.root = sn_config_open(path, err);
        ok = r.root != NULL;
        if (ok && !sn_config_has(r.root, "model"))
            ok = sn_fail(err, SN_ERR_FILE,
                         "%s: no section \"model\": a training config has the sections model, "
                         "tokenizer, data, optimizer, schedule and training",
                         path);
        if (ok) read_all(&r, out);
    }
    sn_config_free(r.root);
    free(r.folder);
    if (ok && !r.failed && take_source(path, source, out, err)) return true;
    train_settings_free(out);
    return false;
}

void train_settings_free(train_settings *s) {
    sn_config_free(s->model);
    free(s->source), free(s->start), free(s->tokenizer), free(s->text), free(s->text_validation);
    free(s->target), free(s->target_validation);
    free_groups(s);
    *s = (train_settings){0};
}

/* What differs from one optimizer for all parameters, of Jordan's coefficients: which older runs do not
 * have. */
static void print_groups(const train_settings *s, char *buf, size_t size) {
    const sn_optimizer *o = &s->training.optimizer;
    size_t n = (size_t)snprintf(buf, size, "%s", o->polar ? " polar" : "");
    for (int i = 0; i < o->groups && n < size; i++) {
        const sn_optimizer_group *g = &o->group[i];
        const sn_optimizer *p = &g->optimizer;
        n +=
            (size_t)snprintf(buf + n, size - n,
                             "; %s of %d axes: %s %.17g rate, %.17g %d %d %.17g %.17g %.17g %.17g",
                             g->match, g->axes, sn_optimizer_names()[p->kind], g->rate, p->momentum,
                             (int)p->nesterov, (int)p->polar, p->beta1, p->beta2, p->eps, p->decay);
    }
}

const char *train_settings_text(const train_settings *s, char *buf, size_t size) {
    const sn_optimizer *o = &s->training.optimizer;
    const sn_schedule *c = &s->training.schedule;
    /* not printed if all is f32, or without slices: older runs do not have the keys */
    bool f32 = !strcmp(s->precision, "f32");
    char slices[64] = "", average[48] = "", groups[6000];
    print_groups(s, groups, sizeof groups);
    if (s->slices > 1)
        snprintf(slices, sizeof slices, " slices %lld%s", (long long)s->slices,
                 s->reduction == SN_REDUCE_FAST ? " reduction fast" : "");
    if (o->average > 0) snprintf(average, sizeof average, " average %.17g", o->average);
    snprintf(
        buf, size,
        "task %d order %d documents %d batch %lld block %lld seed %llu dropout %.17g accumulate "
        "%lld masks %.17g %.17g %.17g optimizer %d %.17g %d %.17g %.17g %.17g %.17g %d %.17g%s "
        "schedule %d %.17g %.17g %lld %lld%s%s%s%s%s%s",
        (int)s->data.task, (int)s->data.order, (int)s->documents, (long long)s->data.batch,
        (long long)s->data.block, (unsigned long long)s->seed, s->training.dropout,
        (long long)s->training.accumulate, s->data.p_mask, s->data.p_replace, s->data.p_random,
        (int)o->kind, o->momentum, (int)o->nesterov, o->beta1, o->beta2, o->eps, o->decay,
        s->decay_groups, o->max_norm, average, (int)c->kind, c->peak, c->final,
        (long long)c->warmup, (long long)c->total, f32 ? "" : " precision ",
        f32 ? "" : s->precision, slices, s->compute ? " compute " : "",
        s->compute ? s->compute : "", groups);
    return buf;
}
