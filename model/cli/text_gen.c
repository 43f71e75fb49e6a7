/* text_gen.c: continues the text that a command line gives, and prints it. */
#include "model/cli/text_gen.h"
#include "model/text/generation_impl.h"
#include "model/tokenizer/tok.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- one text, as it appears ---- */

static void print_ids(const int32_t *ids, int64_t n, bool first) {
    for (int64_t i = 0; i < n; i++) printf(first && i == 0 ? "%d" : " %d", (int)ids[i]);
}

/* The text as JSON, when it is complete. */
static bool collect(sn_lm_sequence *s, const text_options *o, sn_error *err) {
    sn_bytes all = {0};
    for (const char *text; o->tokens && !sn_screen_stopped() && (text = sn_lm_next(s, err));)
        if (!sn_bytes_append(&all, text, strlen(text), err)) break;
    if (!err->code) sn_text_print_json(s, 0, all.data, NULL, 0, 0);
    sn_bytes_free(&all);
    return !err->code;
}

static bool stream(sn_lm_sequence *s, const text_options *o, sn_error *err) {
    int64_t n;
    const int32_t *ids = sn_lm_tokens(s, &n);
    bool as_ids = o->print_ids, first = o->chat;
    if (as_ids && !o->chat) print_ids(ids, n, true);
    if (!as_ids) fputs(sn_lm_prompt_text(s), stdout);
    const char *text;
    while (o->tokens && !ferror(stdout) && !sn_screen_stopped() && (text = sn_lm_next(s, err))) {
        ids = sn_lm_tokens(s, &n);
        if (!as_ids)
            fputs(text, stdout);
        else if (sn_lm_ended(s) != SN_LM_END_TOKEN)
            print_ids(ids + n - 1, 1, first), first = false;
        fflush(stdout);
    }
    putchar('\n');
    return !err->code;
}

static bool one_text(const char *name, sn_lm *m, sn_lm_sequence *s, const text_options *o,
                     sn_error *err) {
    if (!(sn_screen()->json ? collect : stream)(s, o, err)) return false;
    if (sn_lm_ended(s) == SN_LM_CONTEXT)
        sn_screen_note(name, "the context of %lld tokens is full", (long long)sn_lm_context(m));
    int64_t n;
    sn_lm_tokens(s, &n);
    return sn_lm_ended(s) || !sn_screen_stopped() ||
           sn_screen_interrupted(err, "after %lld tokens", (long long)(n - sn_lm_prompt_tokens(s)));
}

int64_t sn_text_sequences(const text_options *o) {
    int64_t n = o->batch > o->beams ? o->batch : o->beams;
    return o->best_of > n ? o->best_of : n;
}

bool sn_text_check(const text_options *o, sn_error *err) {
    if (o->batch && !o->prompt_file)
        return sn_fail(err, SN_ERR_USAGE,
                       "--batch reads a prompt from each line of --prompt-file: give one");
    if (!!o->batch + !!o->beams + !!o->best_of > 1)
        return sn_fail(err, SN_ERR_USAGE, "give one of --batch, --beams and --best-of");
    if (o->beams && o->stop.n) return sn_fail(err, SN_ERR_USAGE, "--beams does not know --stop");
    bool samples = !isnan(o->temperature) || !isnan(o->top_p) || !isnan(o->min_p) ||
                   !isnan(o->repetition_penalty) || o->top_k >= 0;
    if (o->beams && samples)
        return sn_fail(err, SN_ERR_USAGE,
                       "--beams finds the most likely text, it does not sample: omit "
                       "--temperature, --top-k, --top-p, --min-p and --repetition-penalty");
    if (o->length_penalty > 0 && !o->beams)
        return sn_fail(err, SN_ERR_USAGE,
                       "--length-penalty has no effect without --beams: it ranks their texts");
    return true;
}

bool sn_text_generate(const char *name, sn_lm *m, const text_options *o, sn_error *err) {
    if (*m->defaults.unread)
        sn_screen_note(name, "generation_config.json: %s: not supported, without effect here",
                       m->defaults.unread);
    sn_screen_catch_stop();
    if (o->batch) return sn_text_generate_batch(m, o, err);
    if (o->best_of) return sn_text_generate_best(m, o, err);
    if (o->beams) return sn_text_generate_beams(m, o, err);
    sn_lm_sequence *s = sn_text_begin(m, o, NULL, 0, err);
    bool ok = s && one_text(name, m, s, o, err);
    sn_lm_end(s);
    return ok;
}

void sn_text_print_times(const sn_lm *m) {
    const sn_lm_times t = sn_lm_measured(m);
    fprintf(stderr, "prefill   %lld tokens in %.2f ms: %.0f tokens/s\n", (long long)t.prompt,
            t.prefill * 1e3, (double)t.prompt / t.prefill);
    if (t.steps)
        fprintf(stderr, "decode    %lld tokens in %.2f ms: %.0f tokens/s\n", (long long)t.decoded,
                t.decode * 1e3, (double)t.decoded / t.decode);
}
