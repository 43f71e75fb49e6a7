/* lm_text.c: the new tokens of a sequence: sampling, end tokens, stop texts, and their text
 * [PH22 A14]. */
#include "model/text/generation_impl.h"
#include "model/tokenizer/tok.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- options ---- */

static double given(double value, double otherwise) {
    return value != 0 ? value : otherwise;
}

static sn_sample_options sampling(const sn_lm *m, const sn_lm_request *r) {
    const lm_defaults *d = &m->defaults;
    double min_p = given(r->min_p, d->min_p);
    int64_t top_k = r->top_k ? r->top_k : d->top_k;
    return (sn_sample_options){
        .temperature = r->greedy ? 0 : (float)given(r->temperature, d->temperature),
        .top_k = top_k < 0 ? 0 : (int32_t)(top_k > INT32_MAX ? INT32_MAX : top_k),
        .top_p = (float)given(r->top_p, d->top_p),
        .min_p = min_p < 0 ? 0 : (float)min_p,
        .repetition_penalty = (float)given(r->repetition_penalty, d->repetition_penalty),
        .seed = r->seed};
}

int64_t sn_lm_max_tokens(const sn_lm *m, const sn_lm_request *r) {
    return r->tokens ? r->tokens : m->defaults.tokens;
}

static bool copy_stops(lm_text *t, const sn_lm_request *r, sn_error *err) {
    if (r->n_stop && !t->m->parts.tokenizer)
        return sn_fail(err, SN_ERR_USAGE, "a stop text needs a model with a tokenizer");
    if (r->n_stop) t->stop = calloc((size_t)r->n_stop, sizeof *t->stop);
    for (; t->stop && t->n_stop < r->n_stop; t->n_stop++)
        if (!(t->stop[t->n_stop] = strdup(r->stop[t->n_stop]))) break;
    return t->n_stop == r->n_stop || sn_fail(err, SN_ERR_MEMORY, "out of memory");
}

bool sn_lm_text_begin(lm_text *t, const sn_lm *m, const sn_lm_request *r, sn_error *err) {
    *t = (lm_text){.m = m,
                   .max_tokens = sn_lm_max_tokens(m, r),
                   .ignore_eos = r->ignore_eos,
                   .scores = r->scores};
    if (t->max_tokens < 0)
        return sn_fail(err, SN_ERR_RANGE, "a text cannot be continued by %lld tokens",
                       (long long)t->max_tokens);
    const sn_sample_options o = sampling(m, r);
    t->sampler = sn_sampler_new(&o, (size_t)m->parts.engine.vocab, err);
    if (m->parts.tokenizer) t->stream = sn_text_stream_begin(m->parts.tokenizer, 0);
    return t->sampler && copy_stops(t, r, err);
}

void sn_lm_text_free(lm_text *t) {
    sn_sampler_free(t->sampler);
    sn_bytes_free(&t->piece);
    sn_bytes_free(&t->held);
    sn_bytes_free(&t->out);
    for (int i = 0; i < t->n_stop; i++) free(t->stop[i]);
    free(t->stop);
}

/* ---- text ---- */

bool sn_lm_text_spell(lm_text *t, int32_t id, sn_bytes *out, sn_error *err) {
    size_t size;
    char number[16];
    const sn_tokenizer *tokenizer = t->m->parts.tokenizer;
    if (tokenizer && sn_tokenizer_text(tokenizer, id, &size))
        return sn_text_stream_next(&t->stream, id, out, err);
    /* vocabularies padded to a round size have ids without text */
    int n = snprintf(number, sizeof number, tokenizer ? "<%d>" : t->any ? " %d" : "%d", (int)id);
    t->any = true;
    return sn_bytes_append(out, number, (size_t)n, err);
}

bool sn_lm_text_follow(lm_text *t, const int32_t *ids, int64_t n, sn_bytes *text, sn_error *err) {
    for (int64_t i = 0; i < n; i++) {
        t->piece.size = 0;
        if (!sn_lm_text_spell(t, ids[i], text ? text : &t->piece, err)) return false;
    }
    return sn_sampler_note(t->sampler, ids, (size_t)n, err);
}

/* Gives out `size` bytes of the held text. */
static bool give(lm_text *t, size_t size, sn_error *err) {
    if (!sn_bytes_append(&t->out, t->held.data ? t->held.data : "", size, err)) return false;
    if (size) memmove(t->held.data, t->held.data + size, t->held.size - size);
    t->held.size -= size;
    return true;
}

/* The first place in the held text where a whole stop text begins or, if there is none, where the
 * text ends with the beginning of one; its end: neither. */
static size_t find_stop(const lm_text *t, bool *whole) {
    size_t found[2] = {t->held.size, t->held.size};
    for (size_t at = t->held.size; at-- > 0;)
        for (int i = 0; i < t->n_stop; i++) {
            size_t n = strlen(t->stop[i]), left = t->held.size - at;
            if (n && !memcmp(t->held.data + at, t->stop[i], n < left ? n : left))
                found[n > left] = at;
        }
    *whole = found[0] < t->held.size;
    return found[!*whole];
}

/* ---- tokens ---- */

static bool is_end(const lm_text *t, int32_t id) {
    const sn_lm_parts *p = &t->m->parts;
    if (t->ignore_eos) return false;
    for (int i = 0; i < p->n_eos; i++)
        if (id == p->eos[i]) return true;
    return p->tokenizer && (id == sn_tokenizer_special(p->tokenizer, SN_TOKEN_EOS) ||
                            id == sn_tokenizer_special(p->tokenizer, SN_TOKEN_BOS));
}

bool sn_lm_text_finish(lm_text *t, sn_lm_end_reason why, sn_error *err) {
    t->ended = why;
    if (why == SN_LM_STOP) t->held.size = 0;
    return give(t, t->held.size, err);
}

int32_t sn_lm_text_next(lm_text *t, const float *logits, sn_error *err) {
    t->out.size = 0;
    int32_t id = sn_sampler_next(t->sampler, logits, err);
    if (id < 0) return -1;
    t->made++;
    if (t->scores) t->log_p += sn_sample_log_p(logits, t->m->parts.engine.vocab, id);
    if (is_end(t, id)) return sn_lm_text_finish(t, SN_LM_END_TOKEN, err) ? id : -1;
    bool stop = false;
    if (!sn_lm_text_spell(t, id, &t->held, err)) return -1;
    if (!give(t, find_stop(t, &stop), err)) return -1;
    sn_lm_end_reason why = stop ? SN_LM_STOP : t->made == t->max_tokens ? SN_LM_TOKENS : 0;
    return !why || sn_lm_text_finish(t, why, err) ? id : -1;
}

bool sn_lm_spell(const sn_lm *m, const int32_t *ids, int64_t n, int64_t n_skip, sn_bytes *out,
                 sn_error *err) {
    lm_text t = {.m = m};
    if (m->parts.tokenizer) t.stream = sn_text_stream_begin(m->parts.tokenizer, 0);
    bool ok = true;
    for (int64_t i = 0; ok && i < n; i++) {
        t.piece.size = 0;
        ok = sn_lm_text_spell(&t, ids[i], i < n_skip ? &t.piece : out, err);
    }
    sn_lm_text_free(&t);
    return ok;
}
