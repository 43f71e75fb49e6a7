/* pair.c: EDInference [PH22 A15] with any implementation of the encoder and decoder. */
#include "runtime/cli/pair.h"
#include "runtime/clock.h"
#include "runtime/text/beam.h"
#include "runtime/text/lm_impl.h"
#include "runtime/cli/text_gen.h"
#include "runtime/tokenizer/tok.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct run {
    const pair_model *m;
    int32_t length;            /* length of the source */
    int64_t max_tokens;        /* maximum number of tokens in a result */
    float *logits;             /* [rows, vocab] */
    int32_t *tokens, *parents; /* [rows] */
} run;

static bool check_source(const pair_model *m, const int32_t *source, int64_t n, sn_error *err) {
    if (n < 1)
        return sn_fail(err, SN_ERR_USAGE, "the source is empty: there is nothing to translate");
    if (n > m->context)
        return sn_fail(err, SN_ERR_RANGE,
                       "the source has %lld tokens, but the model's limit is %lld: split it",
                       (long long)n, (long long)m->context);
    for (int64_t i = 0; i < n; i++)
        if (source[i] < 0 || source[i] >= m->source_vocab)
            return sn_fail(err, SN_ERR_RANGE,
                           "token %d (number %lld) is outside the source vocabulary 0..%lld",
                           (int)source[i], (long long)i, (long long)m->source_vocab - 1);
    return true;
}

/* Logits of the next token for each row; `past` tokens of each row are already cached. */
static bool next_logits(run *r, int64_t past, sn_error *err) {
    return r->m->next(r->m->model, r->tokens, past, r->length, r->logits, err);
}

static bool follow_parents(run *r, sn_error *err) {
    bool same = true;
    for (int64_t i = 0; i < r->m->rows; i++) same &= r->parents[i] == i;
    return same || r->m->follow(r->m->model, r->parents, err);
}

/* ---- sampling and beam search ---- */

static bool search(run *r, const pair_options *o, sn_ids *out, double *log_p, sn_error *err) {
    sn_beam_options bo = {.beams = (int32_t)r->m->rows,
                          .eos = &r->m->eos,
                          .n_eos = 1,
                          .max_tokens = r->max_tokens,
                          .length_penalty = o->length_penalty};
    sn_beam *b = sn_beam_new(&bo, (size_t)r->m->vocab, err);
    int32_t *text = malloc(sizeof *text * (size_t)r->max_tokens);
    bool ok = b && (text || sn_fail(err, SN_ERR_MEMORY, "out of memory"));
    for (int64_t past = 0; ok && !sn_beam_done(b); past++)
        ok = next_logits(r, past, err) && sn_beam_step(b, r->logits, r->tokens, r->parents, err) &&
             (sn_beam_done(b) || follow_parents(r, err));
    size_t n = ok ? sn_beam_result(b, 0, text, log_p) : 0;
    for (size_t i = 0; ok && i < n; i++) ok = sn_ids_push(out, text[i], err);
    free(text);
    sn_beam_free(b);
    return ok;
}

/* A15 lines 3 to 8 */
static bool sample_tokens(run *r, const pair_options *o, sn_ids *out, double *log_p,
                          sn_error *err) {
    if (r->m->rows != 1) return sn_fail(err, SN_ERR_USAGE, "sampling needs --beams 1");
    sn_sampler *s = sn_sampler_new(o->sample, (size_t)r->m->vocab, err);
    bool ok = s != NULL;
    double total = 0;
    for (int64_t past = 0; ok && past < r->max_tokens; past++) {
        int32_t id = next_logits(r, past, err) ? sn_sampler_next(s, r->logits, err) : -1;
        ok = id >= 0;
        if (ok) total += sn_sample_log_p(r->logits, r->m->vocab, id);
        if (!ok || id == r->m->eos) break;
        ok = sn_ids_push(out, id, err);
        r->tokens[0] = id;
    }
    sn_sampler_free(s);
    if (log_p) *log_p = total;
    return ok;
}

bool pair_translate(const pair_model *m, const int32_t *source, int64_t n, const pair_options *o,
                    sn_ids *out, double *log_p, sn_error *err) {
    run r = {.m = m, .max_tokens = m->context};
    if (!check_source(m, source, n, err)) return false;
    r.length = (int32_t)n;
    if (o->max_tokens && o->max_tokens < r.max_tokens) r.max_tokens = o->max_tokens;
    size_t rows = (size_t)m->rows;
    r.logits = malloc(sizeof *r.logits * rows * (size_t)m->vocab);
    r.tokens = malloc(sizeof *r.tokens * rows * 2);
    bool ok = (r.logits && r.tokens) || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    if (ok) {
        r.parents = r.tokens + rows;
        for (size_t i = 0; i < rows; i++) r.tokens[i] = m->bos; /* A15 line 1 */
        ok = m->encode(m->model, source, r.length, err) &&
             (o->sample ? sample_tokens : search)(&r, o, out, log_p, err);
    }
    free(r.logits);
    free(r.tokens);
    return ok;
}

/* ---- lines of text ---- */

typedef struct job {
    const pair_model *m;
    const sn_tokenizer *source, *target;
    const pair_choice *c;
    sn_sample_options sample;
    pair_options how;
    pair_totals *totals;
} job;

static bool print_result(const job *j, const sn_ids *ids, double log_p, sn_error *err) {
    sn_bytes text = {0};
    bool as_ids = j->c->print_ids || !j->target;
    if (!as_ids && !sn_tokenizer_decode(j->target, ids->data, ids->count, 0, &text, err))
        return false;
    if (j->c->scores) printf("%.6f\t", log_p);
    for (size_t i = 0; as_ids && i < ids->count; i++) printf(i ? " %d" : "%d", (int)ids->data[i]);
    printf("%s\n", text.data ? text.data : "");
    fflush(stdout);
    sn_bytes_free(&text);
    return true;
}

static bool do_line(job *j, const char *line, size_t size, sn_error *err) {
    sn_ids source = {0}, result = {0};
    double log_p = 0, start = sn_clock();
    bool ok =
        lm_encode_text(j->source, line, size, false, &source, err) &&
        pair_translate(j->m, source.data, (int64_t)source.count, &j->how, &result, &log_p, err);
    j->totals->seconds += sn_clock() - start;
    j->totals->lines++;
    j->totals->tokens += (int64_t)result.count;
    ok = ok && print_result(j, &result, log_p, err);
    sn_ids_free(&source);
    sn_ids_free(&result);
    return ok;
}

static bool do_text(job *j, const char *text, size_t size, sn_error *err) {
    for (size_t at = 0; at < size || (at == 0 && size == 0);) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t n = end ? (size_t)(end - text) - at : size - at;
        sn_error why = {0};
        if (!do_line(j, text + at, n, &why))
            return sn_fail(err, why.code, "line %lld: %s", (long long)j->totals->lines,
                           why.message);
        if (ferror(stdout) || !size) break;
        at += n + 1;
    }
    return true;
}

bool pair_run(const pair_model *m, const sn_tokenizer *source, const sn_tokenizer *target,
              const pair_choice *c, pair_totals *totals, sn_error *err) {
    if (!c->text == !c->file)
        return sn_fail(err, SN_ERR_USAGE, "give the text with --prompt, or a file with --file");
    job j = {.m = m,
             .source = source,
             .target = target,
             .c = c,
             .sample = {.temperature = (float)c->temperature,
                        .top_k = (int32_t)c->top_k,
                        .top_p = (float)c->top_p,
                        .seed = (uint64_t)c->seed},
             .totals = totals};
    j.how = (pair_options){.max_tokens = c->tokens,
                           .length_penalty = c->penalty,
                           .sample = c->temperature > 0 ? &j.sample : NULL};
    if (c->text) return do_text(&j, c->text, strlen(c->text), err);
    size_t size;
    char *text = text_read(c->file, &size, err);
    bool ok = text && do_text(&j, text, size, err);
    free(text);
    return ok;
}

void pair_print_totals(const pair_totals *t) {
    fprintf(stderr, "translate %lld lines, %lld tokens in %.2f ms: %.0f tokens/s\n",
            (long long)t->lines, (long long)t->tokens, t->seconds * 1e3,
            (double)t->tokens / t->seconds);
}
