/* train_step.c: a step of training and the validation [PH22 A11 to A13]. Everything that a step uses follows
 * from its number, so a resumed run is bit-identical. */
#include "model/train/train_impl.h"
#include "model/open.h"

#include <math.h>
#include <stdlib.h>

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

bool trainer_stops(trainer *t) {
    t->stopping = t->stopping || (t->r->stopped && t->r->stopped(t->r->ctx));
    return t->stopping;
}

bool trainer_step(trainer *t, sn_error *err) {
    float norm = 0, rate = 0;
    bool ok = train_ranks_sum(&t->ranks) ? run_slices(t, &norm, &rate, err)
                                         : run_batches(t, &norm, &rate, err);
    bool stop = ok && t->r->comm && trainer_stops(t); /* of this rank; all hear of it */
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

bool trainer_validate(trainer *t, sn_error *err) {
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
        bool stop = trainer_stops(t);
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

/* ---- slices alone, for plans ---- */

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
