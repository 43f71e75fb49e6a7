/* train.c: the training loop [PH22 A11 to A13 lines 2 to 7]: steps, validation, early stopping,
 * saving. Everything that a step uses follows from its number, so a resumed run is
 * bit-identical. */
#include "model/train/train.h"
#include "model/train/train_ranks.h"
#include "model/import/import.h"
#include "driver/model_source.h"
#include "driver/entries.h"
#include "model/open.h"
#include "runtime/clock.h"
#include "runtime/file.h"
#include "runtime/model_dir.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct trainer {
    const train_request *r;
    train_settings *s;
    train_data data;
    model_source code; /* of a model in C */
    sn_model model;
    train_start start;
    sn_program *program;
    sn_session *session;
    train_tensors tensors;
    train_state state;
    train_log log;
    train_folder folder;
    bool noted;    /* a file next to the checkpoint cannot be written: reported */
    bool stopping; /* the caller requested a stop */
    bool cut;      /* stopped during a validation */
    sn_batch batch;
    train_rows part;
    float *losses; /* of a validation batch */
    size_t room;
    train_identity identity;
    train_ranks ranks;
    double *loss; /* [slices] of a step */
    double flops; /* FLOP per token */
    double validation;
    double begun;          /* time at which the first step began */
    int64_t tokens, steps; /* since then */
} trainer;

static void report_note(void (*sink)(void *, const char *), void *ctx, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void report_note(void (*sink)(void *, const char *), void *ctx, const char *fmt, ...) {
    char line[512];
    va_list ap;
    if (!sink) return;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    sink(ctx, line);
}

/* ---- preparation ---- */

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
static bool save_graph(trainer *t, sn_error *err) {
    sn_model all;
    const sn_model_options every = {.entries = SN_ALL_ENTRIES | SN_STEP};
    if (!model_source_build(&t->code, &every, &all, err)) return false;
    bool ok = import_save_graph(t->r->folder, all.module, err);
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
        report_note(t->r->event, t->r->ctx, "note: \"model\": \"%s\" has no effect on a %s", key,
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
static bool write_model_files(trainer *t, sn_error *err) {
    if (!sn_folder_make(t->r->folder, err)) return false;
    bool wrapped = t->s->data.task != SN_TASK_NEXT || t->s->documents != TRAIN_WHOLE;
    if (!wrapped) sn_config_set_bool(t->s->model, "add_bos_token", false);
    if (t->s->source) note_source(t->s);
    char *path = sn_path_join(t->r->folder, "config.json");
    bool ok = path ? sn_config_save(t->s->model, path, err)
                   : sn_fail(err, SN_ERR_MEMORY, "out of memory");
    free(path);
    ok = ok && (!t->s->source || save_graph(t, err));
    return ok && train_data_save_tokenizer(t->s, &t->data, t->r->folder, err);
}

/* The log and the curve are informational: failing to write them does not end a run. */
static void note_once(trainer *t, bool ok, const sn_error *why) {
    if (!ok && !t->noted)
        report_note(t->r->event, t->r->ctx, "note: %s; training continues", why->message);
    t->noted |= !ok;
}

static void open_log(trainer *t) {
    sn_error why = {0};
    note_once(t, train_log_open(&t->log, t->r->folder, t->state.step, &why), &why);
    t->log.title = t->model.type;
    t->log.sink = t->r->metrics;
    t->log.sink_ctx = t->r->ctx;
}

static void add_to_log(trainer *t, const train_metrics *m) {
    sn_error why = {0};
    note_once(t, train_log_add(&t->log, m, &why), &why);
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

static bool open_trainer(trainer *t, sn_error *err) {
    train_ranks *k = &t->ranks;
    if (!open_ranks(t, err)) return false;
    bool ok = train_data_open(t->s, &t->data, err) && build_model(t, 0, err) &&
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
        ok = write_model_files(t, err);
    }
    return train_ranks_agree(k, ok, err);
}

static void close_trainer(trainer *t) {
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
}

/* ---- one step ---- */

enum { MAX_INPUTS = 9 };
typedef struct inputs {
    sn_arg_binding arg[MAX_INPUTS];
    int64_t shape[MAX_INPUTS][2], rng[2];
    int n;
} inputs;

static void add_input(inputs *in, const char *name, int32_t *data, int64_t rows, int64_t columns) {
    if (!data) return;
    int64_t *shape = in->shape[in->n];
    shape[0] = rows, shape[1] = columns;
    in->arg[in->n++] = (sn_arg_binding){name, SN_I32, columns ? 2 : 1, shape, data};
}

static void bind_batch(trainer *t, const sn_batch *b, int64_t number, inputs *in) {
    in->n = 0;
    add_input(in, "tokens", b->tokens, b->B, b->T);
    add_input(in, "targets", b->targets, b->B, t->s->data.task == SN_TASK_CLASSES ? 0 : b->T);
    add_input(in, "source", b->source, b->B, b->S);
    if (lm_has_input(t->model.module, "types")) add_input(in, "types", b->types, b->B, b->T);
    add_input(in, "lengths", b->lengths, b->B, 0);
    add_input(in, "documents", b->documents, b->B, b->T);
    in->rng[0] = (int64_t)t->s->seed, in->rng[1] = number;
    in->shape[in->n][0] = 2;
    in->arg[in->n] = (sn_arg_binding){"rng", SN_I64, 1, in->shape[in->n], in->rng};
    in->n++;
}

static sn_arg_binding scalar(const char *name, float *out) {
    return (sn_arg_binding){name, SN_F32, 0, NULL, out};
}

/* Whole batches: the gradients of several are accumulated in the session. */
static bool run_batches(trainer *t, float *norm, float *rate, sn_error *err) {
    int64_t parts = t->s->training.accumulate > 1 ? t->s->training.accumulate : 1;
    float loss = 0;
    double sum = 0;
    inputs in = {.n = 0};
    sn_arg_binding out[] = {scalar("norm", norm), scalar("rate", rate), scalar("loss", &loss)};
    for (int64_t k = 0; k < parts; k++) {
        int64_t number = t->state.step * parts + k;
        if (!sn_dataset_batch(t->data.train, number, &t->batch, err)) return false;
        bind_batch(t, &t->batch, number, &in);
        bool ok = parts > 1 ? sn_run(t->session, "accumulate", in.arg, in.n, &out[2], 1, err)
                            : sn_run(t->session, "train_step", in.arg, in.n, out, 3, err);
        if (!ok) return false;
        sum += loss;
        t->tokens += t->batch.B * (t->batch.T + t->batch.S);
    }
    t->loss[0] = sum / (double)parts;
    return parts == 1 || sn_run(t->session, "train_step", NULL, 0, out, 2, err);
}

static int64_t count_targets(const train_settings *s, const sn_batch *b) {
    int64_t n = s->data.task == SN_TASK_CLASSES ? b->B : b->B * b->T, count = 0;
    for (int64_t i = 0; i < n; i++) count += b->targets[i] >= 0;
    return count;
}

/* Rows of a slice of the batch, in the batch's memory. */
static sn_batch slice_of(const trainer *t, int64_t slice) {
    const sn_batch *b = &t->batch;
    int64_t first = b->B * slice / t->ranks.slices, last = b->B * (slice + 1) / t->ranks.slices;
    int32_t *const *from[] = {&b->tokens, &b->targets, &b->source,
                              &b->types,  &b->lengths, &b->documents};
    bool classes = t->s->data.task == SN_TASK_CLASSES;
    const int64_t width[] = {b->T, classes ? 1 : b->T, b->S, b->T, 1, b->T};
    sn_batch out = {.B = last - first, .S = b->S, .T = b->T};
    int32_t **to[] = {&out.tokens, &out.targets, &out.source,
                      &out.types,  &out.lengths, &out.documents};
    for (size_t i = 0; i < sizeof to / sizeof *to; i++)
        if (*from[i]) *to[i] = *from[i] + first * width[i];
    return out;
}

struct slice_run {
    trainer *t;
    float *norm, *rate; /* of the step */
};

/* The gradients of a slice of each of the step's batches. Its weight is its share of the targets, so
 * that the step's gradient is that of the mean over all of them. */
static bool run_slice(void *ctx, int64_t slice, bool last, sn_error *err) {
    struct slice_run *run = ctx;
    trainer *t = run->t;
    int64_t parts = t->s->training.accumulate;
    float loss = 0, weight = 0;
    inputs in = {.n = 0};
    sn_arg_binding out[] = {scalar("loss", &loss), scalar("norm", run->norm),
                            scalar("rate", run->rate)};
    t->loss[slice] = 0;
    for (int64_t k = 0; k < parts; k++) {
        int64_t number = t->state.step * parts + k;
        if (!sn_dataset_batch(t->data.train, number, &t->batch, err)) return false;
        sn_batch b = slice_of(t, slice);
        if (!train_rows_of(&t->ranks, &b, &t->part, err)) return false;
        int64_t all = count_targets(t->s, &t->batch), own = count_targets(t->s, &b);
        weight = (float)((double)own / (double)(all ? all : 1) / (double)parts);
        bind_batch(t, &b, number * t->ranks.slices + slice, &in);
        in.arg[in.n] = scalar("weight", &weight);
        bool step = last && k == parts - 1;
        if (!sn_run(t->session, step ? "train_step" : "accumulate", in.arg, in.n + 1, out,
                    step ? 3 : 1, err))
            return false;
        t->loss[slice] += (double)weight * (double)loss;
        if (slice == train_ranks_slice(&t->ranks, train_ranks_group(&t->ranks), 0))
            t->tokens += t->batch.B * (t->batch.T + t->batch.S);
    }
    return true;
}

static bool run_slices(trainer *t, float *norm, float *rate, sn_error *err) {
    struct slice_run run = {t, norm, rate};
    return train_ranks_gradients(&t->ranks, run_slice, &run, err);
}

static bool fail_diverged(trainer *t, double loss, double norm, sn_error *err) {
    char name[256] = "";
    sn_comm *c = t->r->comm;
    for (int64_t i = 0; c && !name[0] && i < t->ranks.slices; i++)
        if (!isfinite(t->loss[i]))
            train_ranks_name(&t->ranks, train_ranks_of_slice(&t->ranks, i), name, sizeof name);
    t->ranks.agreed = true; /* all ranks have these numbers */
    return sn_fail(
        err, SN_ERR_RANGE,
        "%s%straining diverged at step %lld: the loss is %g, the gradient norm %g. Rerun "
        "with --check-nan to find the operation; a lower rate, a warm-up or clipping "
        "may help. The last checkpoint is unchanged",
        name, name[0] ? ": " : "", (long long)t->state.step + 1, loss, norm);
}

static bool stop_requested(trainer *t) {
    t->stopping = t->stopping || (t->r->stopped && t->r->stopped(t->r->ctx));
    return t->stopping;
}

static bool make_step(trainer *t, sn_error *err) {
    float norm = 0, rate = 0;
    bool ok = train_ranks_sum(&t->ranks) ? run_slices(t, &norm, &rate, err)
                                         : run_batches(t, &norm, &rate, err);
    bool stop = ok && t->r->comm && stop_requested(t); /* of this rank; all hear of it */
    if (!ok || !train_ranks_losses(&t->ranks, t->loss, stop, err)) return false;
    double loss = 0;
    for (int64_t i = 0; i < t->ranks.slices; i++) loss += t->loss[i];
    t->steps++;
    if (!isfinite(loss) || !isfinite(norm)) return fail_diverged(t, loss, norm, err);
    t->state.loss = loss, t->state.norm = norm, t->state.rate = rate;
    t->state.step++;
    return true;
}

/* ---- validation ---- */

static bool room_for_losses(trainer *t, size_t n, sn_error *err) {
    if (n <= t->room) return true;
    float *grown = realloc(t->losses, n * sizeof *grown);
    if (!grown) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    t->losses = grown, t->room = n;
    return true;
}

/* The sum of the losses of batch `number`, and their count. Behind the last batch there are none, but
 * ranks that divide the parameters need each other to compute. */
static bool validate_batch(trainer *t, int64_t number, int64_t batches, double sum[2],
                           sn_error *err) {
    inputs in = {.n = 0};
    bool counts = number < batches;
    if (!counts && t->s->training.zero < 3) return true;
    if (!counts) number = batches - 1;
    bool classes = t->s->data.task == SN_TASK_CLASSES;
    if (!sn_dataset_batch(t->data.validation, number, &t->batch, err)) return false;
    sn_batch own = t->batch, *b = &own;
    if (!train_rows_of(&t->ranks, b, &t->part, err)) return false;
    int64_t shape[] = {b->B, b->T}, n = classes ? b->B : b->B * b->T;
    if (!room_for_losses(t, (size_t)n, err)) return false;
    bind_batch(t, b, number, &in);
    sn_arg_binding out = {"loss", SN_F32, classes ? 1 : 2, shape, t->losses};
    if (!sn_run(t->session, "loss", in.arg, in.n, &out, 1, err)) return false;
    for (int64_t i = 0; i < n; i++)
        if (counts && b->targets[i] >= 0) sum[0] += t->losses[i], sum[1]++;
    return true;
}

/* The mean of -ln P(target) over the validation text; sets t->cut if it was stopped. Ranks take the
 * batches in turn. */
static bool validate(trainer *t, sn_error *err) {
    int64_t batches = sn_dataset_batches(t->data.validation),
            max_batches = t->s->validation_batches;
    if (max_batches > 0 && batches > max_batches) batches = max_batches;
    int size = t->ranks.data ? t->ranks.data->size : 1;
    int groups = train_ranks_groups(&t->ranks), group = train_ranks_group(&t->ranks);
    double sum = 0, count = 0;
    double(*all)[2] = calloc((size_t)size, sizeof *all);
    bool ok = all || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    t->cut = false;
    for (int64_t k = 0; ok && k < batches; k += groups) {
        double mine[2] = {0, 0};
        bool stop = stop_requested(t);
        ok = train_ranks_agree_stop(&t->ranks, &stop, err);
        if (ok && (!stop || t->s->training.zero > 2)) /* others need this rank */
            ok = validate_batch(t, k + group, batches, mine, err);
        ok = ok && train_ranks_pairs(&t->ranks, mine, stop, all[0], err);
        t->cut = t->ranks.stop;
        if (t->cut) break;
        for (int r = 0; r < size; r++) sum += all[r][0], count += all[r][1];
    }
    free(all);
    t->validation = sum / fmax(count, 1);
    return ok;
}

/* ---- saving ---- */

static bool save_model(trainer *t, sn_error *err) {
    bool ok = train_save_model(&t->ranks, &t->tensors, &t->start, t->r->folder, t->s->model, err);
    return train_ranks_agree(&t->ranks, ok, err);
}

static bool save_checkpoint(trainer *t, sn_error *err) {
    sn_error why = {0};
    if (!train_ranks_save(&t->ranks, &t->tensors, &t->state, &t->identity, t->r->folder, err))
        return false;
    if (train_ranks_leads(&t->ranks)) note_once(t, train_log_draw(&t->log, &why), &why);
    return true;
}

static train_metrics measure(const trainer *t) {
    double seconds = sn_clock() - t->begun, speed = (double)t->tokens / seconds;
    return (train_metrics){.at = {t->state.step, t->state.loss, NAN},
                           .norm = t->state.norm,
                           .rate = t->state.rate,
                           .tokens_per_second = speed,
                           .gflops = speed * t->flops * 1e-9,
                           .seconds = seconds,
                           .precision = t->s->precision};
}

static void show_progress(trainer *t) {
    train_metrics m = measure(t);
    double left = m.seconds / (double)t->steps * (double)(t->s->steps - t->state.step);
    char validation[32] = "";
    if (isfinite(t->validation))
        snprintf(validation, sizeof validation, ", validation %.4f", t->validation);
    report_note(t->r->progress, t->r->ctx,
                "step %lld of %lld  loss %.4f%s  %.0f tokens/s  %.1f GFLOP/s  %lld:%02lld left",
                (long long)t->state.step, (long long)t->s->steps, t->state.loss, validation,
                m.tokens_per_second, m.gflops, (long long)left / 60, (long long)left % 60);
}

/* Validates; the folder holds the best model so far. */
static bool judge(trainer *t, sn_error *err) {
    if (!t->data.validation) return true;
    double paused = sn_clock();
    if (!validate(t, err)) return false;
    t->state.pending = t->cut;
    if (t->cut) return true;
    bool better = t->validation < t->state.best;
    if (better) {
        t->state.best = t->validation, t->state.best_step = t->state.step;
        if (!save_model(t, err)) return false;
    }
    t->begun += sn_clock() - paused; /* the reported speed excludes validation */
    train_metrics m = measure(t);
    m.at.validation = t->validation;
    report_note(t->r->event, t->r->ctx, "step %lld  loss %.4f  validation %.4f%s",
                (long long)t->state.step, t->state.loss, t->validation,
                better ? "  (best so far)" : "");
    add_to_log(t, &m);
    return true;
}

static bool is_due(int64_t step, int64_t every, int64_t last) {
    return step % every == 0 || step == last;
}

/* Saves if due. Returns how the run ends; TRAIN_DONE: it continues. */
static train_end end_step(trainer *t, sn_error *err) {
    const train_settings *s = t->s;
    const train_state *at = &t->state;
    bool early = s->patience > 0 && isfinite(at->best) && !at->pending &&
                 (at->step - at->best_step) / s->validate_every >= s->patience;
    bool requested = t->r->comm ? t->ranks.stop : stop_requested(t);
    bool stopped = requested && (at->step < s->steps || at->pending);
    if ((is_due(at->step, s->save_every, s->steps) || early || stopped) && !save_checkpoint(t, err))
        return TRAIN_FAILED;
    return early ? TRAIN_EARLY : stopped ? TRAIN_INTERRUPTED : TRAIN_DONE;
}

static train_end run_steps(trainer *t, sn_error *err) {
    const train_settings *s = t->s;
    train_end end = TRAIN_DONE;
    t->begun = sn_clock();
    t->validation = NAN;
    if (t->state.pending) end = judge(t, err) ? end_step(t, err) : TRAIN_FAILED;
    while (end == TRAIN_DONE && t->state.step < s->steps) {
        if (!make_step(t, err)) return TRAIN_FAILED;
        int64_t step = t->state.step;
        show_progress(t);
        bool judged = is_due(step, s->validate_every, s->steps) && t->data.validation;
        train_metrics m = measure(t);
        if (!judged && is_due(step, s->log_every, s->steps)) add_to_log(t, &m);
        if (judged && !judge(t, err)) return TRAIN_FAILED;
        end = end_step(t, err);
    }
    return end;
}

/* With ZeRO: how much of what training changes this rank has. */
static void tell_memory(const trainer *t) {
    double own = 0, all = 0;
    for (size_t i = 0; i < t->tensors.count; i++) {
        own += (double)train_tensor_bytes(&t->tensors.tensor[i]);
        all += (double)t->tensors.tensor[i].whole.bytes;
    }
    char whole[96] = "";
    if (t->s->training.zero > 2)
        snprintf(whole, sizeof whole, "; at most %.4g MB of parameters are whole at a time",
                 (double)sn_program_gathered(t->program) * 1e-6);
    if (t->s->training.zero > 0)
        report_note(
            t->r->event, t->r->ctx,
            "zero %d: each rank has %.4g MB of the %.4g MB of parameters and optimizer states%s",
            t->s->training.zero, own * 1e-6, all * 1e-6, whole);
}

static const char *name_ranks(const trainer *t, char *buf, size_t size) {
    const sn_comm *c = t->r->comm;
    int64_t slices = t->ranks.slices;
    int n = 0;
    buf[0] = 0;
    if (c) n = snprintf(buf, size, "; %d ranks (%s)", c->size, c->library);
    if (slices > 1)
        snprintf(buf + n, size - (size_t)n, "%s%lld slices of a batch", c ? ", " : "; ",
                 (long long)slices);
    return buf;
}

train_end train_run(const train_request *r, train_result *out, sn_error *err) {
    char ranks[512];
    trainer t = {.r = r, .s = r->settings, .folder = {.fd = -1}, .validation = NAN};
    train_end end = open_trainer(&t, err) ? TRAIN_DONE : TRAIN_FAILED;
    if (end != TRAIN_FAILED) {
        report_note(
            r->event, r->ctx,
            "%s, %.4g M parameters, vocabulary %lld; %lld rows of %lld tokens%s%s; compiled in "
            "%.1f s",
            t.model.type, (double)t.start.whole.elements * 1e-6, (long long)t.model.vocab,
            (long long)sn_dataset_rows(t.data.train), (long long)r->settings->data.block,
            r->resume ? ", resumed" : "", name_ranks(&t, ranks, sizeof ranks),
            sn_program_stats(t.program).seconds);
        tell_memory(&t);
        if (t.s->start && !r->resume)
            report_note(
                r->event, r->ctx,
                "fine-tunes %s at a rate of %g after a warm-up of %lld steps (--rate, --warmup)",
                t.s->start, t.s->training.schedule.peak, (long long)t.s->training.schedule.warmup);
        if (r->begun) r->begun(r->ctx, t.session);
        if (r->ended) train_profile_record(&t.ranks);
        end = run_steps(&t, err);
    }
    if (end != TRAIN_FAILED && train_ranks_times(&t.ranks, t.steps, ranks, sizeof ranks)[0])
        report_note(r->event, r->ctx, "%s", ranks);
    if (end != TRAIN_FAILED && r->ended && !r->ended(r->ctx, &t.ranks, err)) end = TRAIN_FAILED;
    /* without validation, or if interrupted before the first one, keep the last model */
    if (end != TRAIN_FAILED && t.state.best_step == 0 && !save_model(&t, err)) end = TRAIN_FAILED;
    *out = (train_result){.alone = end == TRAIN_FAILED && r->comm && !t.ranks.agreed,
                          .steps = t.state.step,
                          .loss = t.steps ? t.state.loss : NAN,
                          .validation = t.validation,
                          .best = t.state.best_step ? t.state.best : NAN,
                          .best_step = t.state.best_step,
                          .parameters = t.start.whole.elements};
    if (t.steps) {
        train_metrics m = measure(&t);
        out->seconds = m.seconds, out->tokens_per_second = m.tokens_per_second;
        out->gflops = m.gflops;
    }
    /* alone: sums are under way, which use this memory until the caller ends all ranks */
    if (!out->alone || r->comm->size == 1) close_trainer(&t);
    return end;
}

static bool write_model_folder(trainer *t, const sn_emit_options *o, sn_error *err) {
    char name[96];
    snprintf(name, sizeof name, "%s.model", o->name);
    char *path = sn_path_join(o->dir ? o->dir : ".", name);
    t->r = &(train_request){.settings = t->s, .folder = path};
    bool ok = path ? write_model_files(t, err) : sn_fail(err, SN_ERR_MEMORY, "out of memory");
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

bool train_emit(train_settings *s, int entries, const sn_emit_options *o, sn_error *err) {
    sn_emit_options options = *o;
    options.compile.backend = "native";
    options.compile.precision = s->precision;
    train_request r = {.settings = s, .compile = options.compile};
    trainer t = {.r = &r, .s = s, .folder = {.fd = -1}, .ranks = {.slices = 1}};
    s->training.slices = s->slices, s->tensor = 1;
    bool ok = train_data_open(s, &t.data, err) && build_model(&t, entries, err) &&
              check_named(&t, entries, err) && check_labels(&t, err);
    options.vocab = t.model.vocab, options.context = t.model.context;
    options.source_vocab = t.model.source_vocab;
    t.program = ok ? sn_compile(t.model.module, &r.compile, err) : NULL;
    ok = t.program && open_session(&t, err) && sn_emit(t.session, &options, err) &&
         write_model_folder(&t, &options, err);
    close_trainer(&t);
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
    close_trainer(&t);
    return ok;
}

struct probed_slices {
    struct slice_run run;
    train_clock clock;
    int64_t first;
    double *seconds;
};

static bool time_slice(void *ctx, int64_t slice, bool last, sn_error *err) {
    struct probed_slices *q = ctx;
    double begin = q->clock.now(q->clock.ctx);
    bool ok = run_slice(&q->run, slice, last, err);
    q->seconds[slice - q->first] = q->clock.now(q->clock.ctx) - begin;
    return ok;
}

bool train_probe_run(const train_probe *p, train_clock c, int64_t first, int64_t last,
                     double *slice, double *all, sn_error *err) {
    trainer *t = p->trainer;
    float norm, rate;
    struct probed_slices q = {{t, &norm, &rate}, c, first, slice};
    double begin = c.now(c.ctx);
    t->ranks.mine = (sn_leaves){first, last};
    bool ok = train_ranks_gradients(&t->ranks, time_slice, &q, err);
    *all = c.now(c.ctx) - begin;
    return ok;
}
