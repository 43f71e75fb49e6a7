/* train_open.c: what a training run needs before its first step: data, model, program, session, ranks, the
 * state of a checkpoint; also for an artefact (train_emit) and for a plan of training (train_probe_open). */
#include "model/train/train_impl.h"
#include "model/import/import.h"
#include "driver/entries.h"
#include "model/open.h"
#include "runtime/file.h"
#include "runtime/model_dir.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void trainer_note(void (*sink)(void *, const char *), void *ctx, const char *fmt, ...) {
    char line[512];
    va_list ap;
    if (!sink) return;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    sink(ctx, line);
}

/* A model in C has a fixed vocabulary and may have nothing to train. */
static bool check_source(const trainer *t, sn_error *err) {
    if (t->model.vocab && t->model.vocab < t->data.vocab)
        return sn_fail(err, SN_ERR_SHAPE,
                       "the tokenizer has %d tokens, but %s only %lld: use a smaller tokenizer "
                       "(\"vocab\" in the section tokenizer), or a larger model",
                       (int)t->data.vocab, t->s->source, (long long)t->model.vocab);
    if (sn_entry_get(t->model.module, "loss")) return true;
    return sn_fail(err, SN_ERR_USAGE, "%s has no entry \"loss\" to train", t->s->source);
}

/* Records the C file of a trained model for those who open its folder; not where it lay, because the
 * folder may be published. */
static void note_source(train_settings *s) {
    const char *slash = strrchr(s->source, '/');
    sn_config_set_string(s->model, "source", slash ? slash + 1 : s->source);
}

/* The graph as text lets others use the folder without the C file, whose code they need not run. */
static bool save_graph(trainer *t, const char *folder, sn_error *err) {
    sn_model all;
    const sn_model_options every = {.entries = SN_ALL_ENTRIES | SN_STEP};
    if (!model_source_build(&t->code, &every, &all, err)) return false;
    bool ok = import_save_graph(folder, all.module, err);
    sn_module_free(all.module);
    return ok;
}

/* A key that the model does not read may be misspelt. The config.json of a folder has many keys
 * that only other programs read. */
static bool note_unread_keys(const trainer *t) {
    const char *(*next)(const sn_config *, int) =
        t->s->start ? sn_model_unknown_key : sn_config_unread;
    const char *key;
    for (int i = 0; (key = next(t->s->model, i)); i++)
        trainer_note(t->r->event, t->r->ctx, "note: \"model\": \"%s\" has no effect on a %s", key,
                     t->model.type);
    return true;
}

/* Among those that divide what all of them have (ZeRO). */
static int data_rank(const trainer *t) {
    return t->ranks.data ? t->ranks.data->rank : 0;
}

static bool build_model(trainer *t, int entries, sn_error *err) {
    sn_model_dir *dir = t->s->start ? sn_model_dir_open(t->s->start, err) : NULL;
    if (t->s->start && !dir) return false;
    const sn_comm *shares = t->ranks.tensor, *parts = t->ranks.context;
    const sn_mesh_axis mesh[] = {{"tensor", t->s->tensor, shares ? shares->rank : 0},
                                 {"context", parts ? parts->size : 1, parts ? parts->rank : 0},
                                 {0}};
    sn_model_options o = {.entries = SN_LOSS | SN_TRAIN | entries,
                          .mesh = mesh,
                          .tokens = parts ? t->s->data.block : 0,
                          .training = &t->s->training,
                          .max_batch = t->s->data.batch > 1024 ? t->s->data.batch : 1024,
                          .weights = dir ? dir->weights : NULL};
    bool ok = t->s->source
                  ? model_source_open(t->s->source, t->r->compile.cache_dir, &t->code, err) &&
                        model_source_build(&t->code, &o, &t->model, err) && check_source(t, err)
                  : sn_model_build(t->s->model, &o, &t->model, err) && note_unread_keys(t);
    if (ok && t->s->data.block > t->model.context)
        ok = sn_fail(err, SN_ERR_RANGE, "block = %lld exceeds the model's context of %lld tokens",
                     (long long)t->s->data.block, (long long)t->model.context);
    if (ok && parts && !train_divides_rows(t->model.module))
        ok = sn_fail(err, SN_ERR_USAGE,
                     "--context: a %s model has no attention that can be divided", t->model.type);
    bool plan = t->r->compile.plan_only; /* nothing will run */
    ok = ok && train_start_open(&t->start, &t->model, t->s, dir, data_rank(t), !plan, err);
    if (ok && dir && !plan) ok = sn_model_takes_all(&t->model, dir->weights, err);
    sn_model_dir_close(dir);
    return ok;
}

/* The memory budget applies to the actual batches, or their slices: B rows of at most one block. */
static bool compile_model(trainer *t, sn_error *err) {
    sn_module *m = t->model.module;
    sn_options o = t->r->compile;
    char sizes[256];
    if (o.weights && !strcmp(o.weights, "stored")) o.weights = NULL; /* what is trained is f32 */
    if (o.weights && strcmp(o.weights, "f32"))
        return sn_fail(err, SN_ERR_USAGE,
                       "--weights %s: training stores weights as f32; use it with generate or eval "
                       "afterwards (--precision bf16 is for training)",
                       o.weights);
    int64_t rows = (t->s->data.batch + t->ranks.slices - 1) / t->ranks.slices;
    model_sizes(m, rows, t->s->data.block / t->s->context, sizes, sizeof sizes);
    if (o.memory_budget) o.budget_sizes = sizes;
    o.precision = t->s->precision;
    if (!o.tune_sizes) o.tune_sizes = sizes;
    o.compute = t->s->compute;
    t->program = sn_compile(m, &o, err);
    return t->program != NULL;
}

static bool open_session(trainer *t, sn_error *err) {
    size_t n = t->start.own.count;
    sn_arg_binding *p = calloc(n + 1, sizeof *p);
    if (!p) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < n; i++) {
        const sn_weight *w = &t->start.own.weight[i];
        p[i] = (sn_arg_binding){w->name, w->dtype, w->rank, w->shape, (void *)(uintptr_t)w->data};
    }
    t->session = sn_session_new_arrays(t->program, p, (int)n, err);
    free(p);
    return t->session != NULL;
}

static bool check_labels(const trainer *t, sn_error *err) {
    int64_t classes = sn_config_int_or(t->s->model, "num_labels", 0, 0, 1 << 24);
    const int32_t *const list[] = {t->data.label, t->data.label_validation};
    const size_t count[] = {t->data.text.count, t->data.text_validation.count};
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; list[k] && i < count[k]; i++)
            if (list[k][i] >= classes)
                return sn_fail(err, SN_ERR_RANGE,
                               "line %zu has label %d, but \"num_labels\" is %lld", i + 1,
                               (int)list[k][i], (long long)classes);
    return true;
}

/* The files of a model folder besides its weights. */
static bool write_model_files(trainer *t, const char *folder, sn_error *err) {
    if (!sn_folder_make(folder, err)) return false;
    bool wrapped = t->s->data.task != SN_TASK_NEXT || t->s->documents != TRAIN_WHOLE;
    if (!wrapped) sn_config_set_bool(t->s->model, "add_bos_token", false);
    if (t->s->source) note_source(t->s);
    char *path = sn_path_join(folder, "config.json");
    bool ok = path ? sn_config_save(t->s->model, path, err)
                   : sn_fail(err, SN_ERR_MEMORY, "out of memory");
    free(path);
    ok = ok && (!t->s->source || save_graph(t, folder, err));
    return ok && train_data_save_tokenizer(t->s, &t->data, folder, err);
}

/* The log and the curve are informational: failing to write them does not end a run. */
void trainer_note_once(trainer *t, bool ok, const sn_error *why) {
    if (!ok && !t->noted)
        trainer_note(t->r->event, t->r->ctx, "note: %s; training continues", why->message);
    t->noted |= !ok;
}

static void open_log(trainer *t) {
    sn_error why = {0};
    trainer_note_once(t, train_log_open(&t->log, t->r->folder, t->state.step, &why), &why);
    t->log.title = t->model.type;
    t->log.sink = t->r->metrics;
    t->log.sink_ctx = t->r->ctx;
}

/* The number of slices decides the bits, so a run keeps the number that it began with. */
static bool open_ranks(trainer *t, sn_error *err) {
    train_ranks *k = &t->ranks;
    train_settings *s = t->s;
    const train_request *r = t->r;
    bool ok = true;
    k->comm = r->comm;
    if (train_ranks_leads(k)) {
        ok = train_folder_open(&t->folder, r->folder, s, r->resume, r->force, err);
        if (ok && !s->slices && r->resume) ok = checkpoint_slices(r->folder, &s->slices, err);
        if (!s->slices) s->slices = r->comm ? train_ranks_slices(s->data.batch) : 1;
    }
    if (!train_ranks_agree(k, ok, err)) return false;
    if (r->comm && !sn_comm_broadcast(r->comm, &s->slices, sizeof s->slices, 0, err)) return false;
    ok = train_ranks_open(k, r->comm, s, err);
    t->loss = calloc((size_t)s->slices, sizeof *t->loss);
    if (ok && !t->loss) ok = sn_fail(err, SN_ERR_MEMORY, "out of memory");
    return train_ranks_agree(k, ok, err);
}

/* One rank of each machine compiles first, and the others find its kernels in the disk cache. */
static bool compile_one_by_one(trainer *t, sn_error *err) {
    sn_comm *c = t->r->comm;
    bool first = !c || c->local_rank == 0;
    bool ok = !first || compile_model(t, err);
    if (!train_ranks_agree(&t->ranks, ok, err)) return false;
    return train_ranks_agree(&t->ranks, first || compile_model(t, err), err) &&
           train_check_kernels(&t->ranks, t->program, err);
}

/* The checkpoint's state, or that of a new run, on all ranks: each reads its own rows, if the
 * optimizer's states are divided; else only rank 0 needs the folder. */
static bool begin_state(trainer *t, sn_error *err) {
    const train_request *r = t->r;
    bool ok = true, leads = train_ranks_leads(&t->ranks);
    bool divided = t->s->training.zero > 0 || t->ranks.tensor;
    t->state = (train_state){.best = INFINITY};
    if (r->resume && (leads || divided))
        ok = checkpoint_load(r->folder, &t->tensors, &t->state, &t->identity, err);
    if (!r->resume && leads) ok = train_folder_begin(&t->folder, t->s, err);
    if (!train_ranks_agree(&t->ranks, ok, err)) return false;
    return divided ? train_check_begin(&t->ranks, &t->tensors, &t->state, err)
                   : train_share(&t->ranks, &t->tensors, &t->state, err);
}

bool trainer_open(trainer *t, sn_error *err) {
    train_ranks *k = &t->ranks;
    if (!open_ranks(t, err)) return false;
    const bool averages = t->s->training.optimizer.average > 0;
    if (averages) t->averaged = sn_path_join(t->r->folder, TRAIN_AVERAGED);
    bool ok = (!averages || t->averaged || sn_fail(err, SN_ERR_MEMORY, "out of memory")) &&
              train_data_open(t->s, &t->data, err) && build_model(t, 0, err) &&
              check_labels(t, err) && train_choose_compute(t->r, t->s, err) &&
              train_identify(t->s, &t->data, &t->identity, err);
    if (!train_ranks_agree(k, ok, err) ||
        !train_check_same(k, t->r->compile.target, &t->identity, &t->start, err) ||
        !compile_one_by_one(t, err))
        return false;
    ok = open_session(t, err) &&
         train_tensors_open(t->model.module, t->session, &t->start.whole, data_rank(t), &t->tensors,
                            err) &&
         train_start_place(&t->model, t->s, &t->start, &t->tensors, err) &&
         train_ranks_bind(k, t->session, t->model.module, t->program->threads, err);
    if (!train_ranks_agree(k, ok, err)) return false;
    train_start_free_copied(&t->start, t->program);
    if (!begin_state(t, err)) return false;
    t->flops = train_start_flops(&t->start, &t->model, t->s->data.block);
    ok = true;
    if (train_ranks_leads(k)) {
        open_log(t); /* before the model's files: marks them as belonging to a run */
        ok = write_model_files(t, t->r->folder, err) &&
             (!t->averaged || write_model_files(t, t->averaged, err));
    }
    return train_ranks_agree(k, ok, err);
}

void trainer_close(trainer *t) {
    train_log_close(&t->log);
    train_ranks_close(&t->ranks);
    free(t->loss);
    train_tensors_close(&t->tensors);
    sn_batch_free(&t->batch);
    train_rows_free(&t->part);
    free(t->losses);
    sn_session_free(t->session);
    sn_program_free(t->program);
    train_start_close(&t->start);
    sn_module_free(t->model.module);
    train_data_close(&t->data);
    model_source_close(&t->code);
    train_folder_close(&t->folder);
    free(t->averaged);
}

/* ---- artefacts ---- */

static bool write_model_folder(trainer *t, const sn_emit_options *o, sn_error *err) {
    char name[96];
    snprintf(name, sizeof name, "%s.model", o->name);
    char *path = sn_path_join(o->dir ? o->dir : ".", name);
    bool ok = path ? write_model_files(t, path, err) : sn_fail(err, SN_ERR_MEMORY, "out of memory");
    free(path);
    return ok;
}

/* Whether the model has the entries that were asked for by name. */
static bool check_named(trainer *t, int named, sn_error *err) {
    const sn_model_options every = {.entries = LM_ANY_ENTRIES};
    sn_model all;
    if (!model_entries_missing(t->model.module, named)) return true;
    if (t->s->source ? !model_source_build(&t->code, &every, &all, err)
                     : !sn_model_build(t->s->model, &every, &all, err))
        return false;
    model_entries_fail(t->model.type, t->model.module, named, all.module, err);
    sn_module_free(all.module);
    return false;
}

bool train_emit(train_settings *s, int entries, sn_emit_options *o, sn_error *err) {
    o->compile.backend = "native";
    o->compile.precision = s->precision;
    train_request r = {.settings = s, .compile = o->compile};
    trainer t = {.r = &r, .s = s, .folder = {.fd = -1}, .ranks = {.slices = 1}};
    s->training.slices = s->slices, s->tensor = 1;
    bool ok = train_data_open(s, &t.data, err) && build_model(&t, entries, err) &&
              check_named(&t, entries, err) && check_labels(&t, err);
    o->vocab = t.model.vocab, o->context = t.model.context;
    o->source_vocab = t.model.source_vocab;
    t.program = ok ? sn_compile(t.model.module, &r.compile, err) : NULL;
    ok = t.program && open_session(&t, err) && sn_emit(t.session, o, err) &&
         write_model_folder(&t, o, err);
    trainer_close(&t);
    return ok;
}

/* ---- planning ---- */

bool train_probe_open(train_settings *s, int ranks, const sn_options *compile,
                      bool (*fn)(void *ctx, const train_probe *p, sn_error *err), void *ctx,
                      sn_error *err) {
    train_request r = {.settings = s, .compile = *compile};
    trainer t = {.r = &r, .s = s, .folder = {.fd = -1}};
    int64_t tensor = s->tensor;
    s->training.slices = s->slices, s->tensor = 1; /* there are no ranks */
    bool ok = train_data_open(s, &t.data, err) && train_ranks_open(&t.ranks, NULL, s, err);
    if (ranks > 1)
        s->training.zero = s->zero, s->training.ranks = ranks / tensor, s->tensor = tensor;
    ok = ok && build_model(&t, 0, err) && check_labels(&t, err) &&
         train_choose_compute(&r, s, err) && compile_model(&t, err);
    t.loss = calloc((size_t)s->slices, sizeof *t.loss);
    if (ok && !t.loss) ok = sn_fail(err, SN_ERR_MEMORY, "out of memory");
    if (ok && !compile->plan_only)
        ok = open_session(&t, err) &&
             train_ranks_bind(&t.ranks, t.session, t.model.module, t.program->threads, err);
    train_probe p = {.module = t.model.module,
                     .program = t.program,
                     .session = t.session,
                     .parameters = t.start.whole.elements,
                     .type = t.model.type,
                     .trainer = &t};
    if (ok) p.flops = train_start_flops(&t.start, &t.model, t.s->data.block);
    ok = ok && fn(ctx, &p, err);
    trainer_close(&t);
    return ok;
}
