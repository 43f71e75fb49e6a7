/* train.c: the training loop [PH22 A11 to A13 lines 2 to 7]: steps, validation, early stopping,
 * saving. */
#include "model/train/train_impl.h"
#include "runtime/clock.h"

#include <math.h>
#include <stdio.h>

/* ---- saving ---- */

static bool save_model(trainer *t, bool averaged, sn_error *err) {
    const char *folder = averaged ? t->averaged : t->r->folder;
    bool ok =
        train_save_model(&t->ranks, &t->tensors, &t->start, averaged, folder, t->s->model, err);
    return train_ranks_agree(&t->ranks, ok, err);
}

static bool save_checkpoint(trainer *t, sn_error *err) {
    sn_error why = {0};
    if (!train_ranks_save(&t->ranks, &t->tensors, &t->state, &t->identity, t->r->folder, err) ||
        (t->averaged && !save_model(t, true, err)))
        return false;
    if (train_ranks_leads(&t->ranks)) trainer_note_once(t, train_log_draw(&t->log, &why), &why);
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
    trainer_note(t->r->progress, t->r->ctx,
                 "step %lld of %lld  loss %.4f%s  %.0f tokens/s  %.1f GFLOP/s  %lld:%02lld left",
                 (long long)t->state.step, (long long)t->s->steps, t->state.loss, validation,
                 m.tokens_per_second, m.gflops, (long long)left / 60, (long long)left % 60);
}

static void add_to_log(trainer *t, const train_metrics *m) {
    sn_error why = {0};
    trainer_note_once(t, train_log_add(&t->log, m, &why), &why);
}

/* Validates; the folder holds the best model so far. */
static bool judge(trainer *t, sn_error *err) {
    if (!t->data.validation) return true;
    double paused = sn_clock();
    if (!trainer_validate(t, err)) return false;
    t->state.pending = t->cut;
    if (t->cut) return true;
    bool better = t->validation < t->state.best;
    if (better) {
        t->state.best = t->validation, t->state.best_step = t->state.step;
        if (!save_model(t, false, err)) return false;
    }
    t->begun += sn_clock() - paused; /* the reported speed excludes validation */
    train_metrics m = measure(t);
    m.at.validation = t->validation;
    trainer_note(t->r->event, t->r->ctx, "step %lld  loss %.4f  validation %.4f%s",
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
    bool requested = t->r->comm ? t->ranks.stop : trainer_stops(t);
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
        if (!trainer_step(t, err)) return TRAIN_FAILED;
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
        trainer_note(
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
    train_end end = trainer_open(&t, err) ? TRAIN_DONE : TRAIN_FAILED;
    if (end != TRAIN_FAILED) {
        trainer_note(
            r->event, r->ctx,
            "%s, %.4g M parameters, vocabulary %lld; %lld rows of %lld tokens%s%s; compiled in "
            "%.1f s",
            t.model.type, (double)t.start.whole.elements * 1e-6, (long long)t.model.vocab,
            (long long)sn_dataset_rows(t.data.train), (long long)r->settings->data.block,
            r->resume ? ", resumed" : "", name_ranks(&t, ranks, sizeof ranks),
            sn_program_stats(t.program).seconds);
        tell_memory(&t);
        if (t.s->start && !r->resume)
            trainer_note(
                r->event, r->ctx,
                "fine-tunes %s at a rate of %g after a warm-up of %lld steps (--rate, --warmup)",
                t.s->start, t.s->training.schedule.peak, (long long)t.s->training.schedule.warmup);
        if (r->begun) r->begun(r->ctx, t.session);
        if (r->ended) train_profile_record(&t.ranks);
        end = run_steps(&t, err);
    }
    if (end != TRAIN_FAILED && train_ranks_times(&t.ranks, t.steps, ranks, sizeof ranks)[0])
        trainer_note(r->event, r->ctx, "%s", ranks);
    if (end != TRAIN_FAILED && r->ended && !r->ended(r->ctx, &t.ranks, err)) end = TRAIN_FAILED;
    /* without validation, or if interrupted before the first one, keep the last model */
    if (end != TRAIN_FAILED && t.state.best_step == 0 && !save_model(&t, false, err))
        end = TRAIN_FAILED;
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
    if (!out->alone || r->comm->size == 1) trainer_close(&t);
    return end;
}
