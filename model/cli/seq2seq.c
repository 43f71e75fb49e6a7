/* seq2seq.c: EDInference [PH22 A15] with any implementation of the encoder and decoder. */
#include "model/cli/seq2seq.h"
#include "runtime/cli/json_out.h"
#include "runtime/clock.h"
#include "model/text/beam.h"
#include "model/text/generation_impl.h"
#include "model/cli/text_gen.h"
#include "model/tokenizer/tok.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct run {
    const seq2seq_model *m;
    int32_t length;            /* length of the source */
    int64_t max_tokens;        /* maximum number of tokens in a result */
    float *logits;             /* [rows, vocab] */
    int32_t *tokens, *parents; /* [rows] */
    int32_t *written,
        *before; /* [rows, max_tokens + 1] the tokens of each row, and room for them */
    const sn_token_rules *rules; /* NULL: none that change scores */
} run;

static bool check_source(const seq2seq_model *m, const int32_t *source, int64_t n, sn_error *err) {
    if (n < 1)
        return sn_fail(err, SN_ERR_USAGE, "the source is empty: there is nothing to translate");
    if (n > m->context)
        return sn_fail(
            err, SN_ERR_RANGE,
            "the source has %lld tokens, but the model's limit is %lld: split it, or open a "
            "T5 with a larger --context",
            (long long)n, (long long)m->context);
    for (int64_t i = 0; i < n; i++)
        if (source[i] < 0 || source[i] >= m->source_vocab)
            return sn_fail(err, SN_ERR_RANGE,
                           "token %d (number %lld) is outside the source vocabulary 0..%lld",
                           (int)source[i], (long long)i, (long long)m->source_vocab - 1);
    return true;
}

/* Applies the rules to each row: to logarithms of probabilities if there are several, as in
 * Hugging Face's search. */
static void apply_rules(run *r, int64_t past) {
    const int64_t vocab = r->m->vocab;
    for (int64_t i = 0; i < r->m->rows; i++) {
        int32_t *row = r->written + i * (r->max_tokens + 1);
        float *x = r->logits + i * vocab;
        row[past] = r->tokens[i];
        if (r->m->rows > 1) sn_token_rules_normalise(x, vocab);
        sn_token_rules_apply(r->rules, row, past + 1, r->max_tokens, r->m->eos, x, vocab);
    }
}

/* Logits of the next token for each row; `past` tokens of each row are already cached. */
static bool next_logits(run *r, int64_t past, sn_error *err) {
    if (!r->m->next(r->m->model, r->tokens, past, r->length, r->logits, err)) return false;
    if (r->rules) apply_rules(r, past);
    return true;
}

static bool follow_parents(run *r, sn_error *err) {
    const size_t size = (size_t)r->max_tokens + 1;
    bool same = true;
    for (int64_t i = 0; i < r->m->rows; i++) same &= r->parents[i] == i;
    if (!same && r->rules) {
        int32_t *to = r->before;
        for (int64_t i = 0; i < r->m->rows; i++)
            memcpy(to + (size_t)i * size, r->written + (size_t)r->parents[i] * size,
                   sizeof *to * size);
        r->before = r->written, r->written = to;
    }
    return same || r->m->follow(r->m->model, r->parents, err);
}

/* ---- sampling and beam search ---- */

static bool search(run *r, const seq2seq_options *o, sn_ids *out, double *log_p, sn_error *err) {
    const sn_token_rules *rules = r->m->rules;
    const double penalty = isnan(o->length_penalty) && rules ? rules->length_penalty : 0;
    sn_beam_options bo = {.beams = (int32_t)r->m->rows,
                          .eos = &r->m->eos,
                          .n_eos = 1,
                          .max_tokens = r->max_tokens,
                          .length_penalty = isnan(o->length_penalty) ? penalty : o->length_penalty,
                          .stop = rules ? rules->stop : SN_BEAM_STOP_SURE,
                          .log_probabilities = r->rules && r->m->rows > 1};
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
static bool sample_tokens(run *r, const seq2seq_options *o, sn_ids *out, double *log_p,
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

static bool make_room(run *r, sn_error *err) {
    size_t rows = (size_t)r->m->rows, written = r->rules ? rows * ((size_t)r->max_tokens + 1) : 0;
    r->logits = malloc(sizeof *r->logits * rows * (size_t)r->m->vocab);
    r->tokens = malloc(sizeof *r->tokens * rows * 2);
    r->written = calloc(written + 1, sizeof *r->written);
    r->before = calloc(written + 1, sizeof *r->before);
    if (!r->logits || !r->tokens || !r->written || !r->before)
        return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    r->parents = r->tokens + rows;
    return true;
}

bool sn_seq2seq_translate(const seq2seq_model *m, const int32_t *source, int64_t n,
                          const seq2seq_options *o, sn_ids *out, double *log_p, sn_error *err) {
    run r = {.m = m, .length = (int32_t)n, .max_tokens = m->context};
    if (!check_source(m, source, n, err)) return false;
    const int64_t usual = m->rules ? m->rules->max_tokens : 0;
    const int64_t wanted = o->max_tokens ? o->max_tokens : usual;
    if (wanted && wanted < r.max_tokens) r.max_tokens = wanted;
    if (sn_token_rules_apply_to(m->rules)) r.rules = m->rules;
    bool ok = make_room(&r, err);
    for (int64_t i = 0; ok && i < m->rows; i++) r.tokens[i] = m->bos; /* A15 line 1 */
    ok = ok && m->encode(m->model, source, r.length, err) &&
         (o->sample ? sample_tokens : search)(&r, o, out, log_p, err);
    free(r.logits);
    free(r.tokens);
    free(r.written);
    free(r.before);
    return ok;
}

/* ---- lines of text ---- */

typedef struct job {
    const seq2seq_model *m;
    const sn_tokenizer *source, *target;
    const seq2seq_choice *c;
    sn_sample_options sample;
    seq2seq_options how;
    seq2seq_totals *totals;
} job;

const arg_key sn_seq2seq_keys[] = {
    {"line", "integer", "number of the line, from 1"},
    {"source", "text", "the line"},
    {"text", "text", "the translation; empty for models without a tokenizer"},
    {"ids", "list", "its token ids, without the one that ends it"},
    {"log_p", "number", "its log probability, end token included"},
    {0}};

static bool print_json(const job *j, const char *line, size_t size, const sn_ids *ids, double log_p,
                       sn_error *err) {
    sn_bytes text = {0};
    if (j->target && !sn_tokenizer_decode(j->target, ids->data, ids->count, 0, &text, err))
        return false;
    json_out out = sn_json_begin(stdout);
    sn_json_integer(&out, "line", j->totals->lines);
    sn_json_bytes(&out, "source", line, size);
    sn_json_text(&out, "text", text.data ? text.data : "");
    sn_json_ids(&out, "ids", ids->data, (int64_t)ids->count);
    sn_json_number(&out, "log_p", log_p);
    sn_json_end(&out);
    sn_bytes_free(&text);
    return true;
}

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

/* With what transformers' tokenizers, or the tokenizer's files, put around a text. */
static bool encode_source(const job *j, const char *line, size_t size, sn_ids *out, sn_error *err) {
    const sn_tokenizer *t = j->source;
    if (!t || (!j->m->rules->transformers && !sn_tokenizer_has_template(t)))
        return sn_lm_encode_text(t, line, size, false, out, err);
    return sn_tokenizer_encode(t, line, size, SN_TOK_SPECIAL | SN_TOK_TEMPLATE, out, err);
}

static bool do_line(job *j, const char *line, size_t size, sn_error *err) {
    sn_ids source = {0}, result = {0};
    double log_p = 0, start = sn_clock();
    bool ok = encode_source(j, line, size, &source, err) &&
              sn_seq2seq_translate(j->m, source.data, (int64_t)source.count, &j->how, &result,
                                   &log_p, err);
    j->totals->seconds += sn_clock() - start;
    j->totals->lines++;
    j->totals->tokens += (int64_t)result.count;
    ok = ok && (sn_screen()->json ? print_json(j, line, size, &result, log_p, err)
                                  : print_result(j, &result, log_p, err));
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
        if (sn_screen_stopped() && at < size)
            return sn_screen_interrupted(err, "after %lld lines", (long long)j->totals->lines);
    }
    return true;
}

static bool unknown_language(const char *code, sn_error *err) {
    return sn_fail(err, SN_ERR_USAGE, "the vocabulary has no token for the language \"%s\"", code);
}

/* Sets the token of the source's language in the tokenizer's template, and that of the target: the
 * result's first token, or its start if that is a language; Marian's begins the source. */
static bool choose_languages(job *j, seq2seq_model *m, sn_token_rules *rules, sn_tokenizer *source,
                             sn_error *err) {
    const char *from = j->c->source_language, *to = j->c->target_language;
    char marian[64];
    if (!from && !to) return true;
    if (!source || !j->target)
        return sn_fail(err, SN_ERR_USAGE, "languages need a tokenizer: this model has none");
    int32_t id = from ? sn_tokenizer_language(source, from) : -1;
    if (from && id < 0) return unknown_language(from, err);
    if (from && !sn_tokenizer_set_language(source, id, err)) return false;
    if (!to) return true;
    snprintf(marian, sizeof marian, ">>%.50s<<", to);
    id = sn_tokenizer_id(source, marian, strlen(marian));
    if (id >= 0) return sn_tokenizer_set_language(source, id, err);
    id = sn_tokenizer_language(j->target, to);
    if (id < 0) return unknown_language(to, err);
    if (sn_tokenizer_is_language(j->target, m->bos))
        m->bos = id;
    else
        rules->first = id;
    return true;
}

bool sn_seq2seq_run(const seq2seq_model *m, sn_tokenizer *source, const sn_tokenizer *target,
                    const seq2seq_choice *c, seq2seq_totals *totals, sn_error *err) {
    if (!c->text == !c->file)
        return sn_fail(err, SN_ERR_USAGE, "give the text with --prompt, or a file with --file");
    static const sn_token_rules none = SN_TOKEN_RULES_NONE;
    seq2seq_model model = *m;
    sn_token_rules rules = m->rules ? *m->rules : none;
    model.rules = &rules;
    job j = {.m = &model,
             .source = source,
             .target = target,
             .c = c,
             .sample = {.temperature = (float)c->temperature,
                        .top_k = (int32_t)c->top_k,
                        .top_p = (float)c->top_p,
                        .seed = (uint64_t)c->seed},
             .totals = totals};
    j.how = (seq2seq_options){.max_tokens = c->tokens,
                              .length_penalty = c->penalty,
                              .sample = c->temperature > 0 ? &j.sample : NULL};
    if (!choose_languages(&j, &model, &rules, source, err)) return false;
    sn_screen_catch_stop();
    if (c->text) return do_text(&j, c->text, strlen(c->text), err);
    size_t size;
    char *text = sn_text_read(c->file, &size, err);
    bool ok = text && do_text(&j, text, size, err);
    free(text);
    return ok;
}

void sn_seq2seq_print_totals(const seq2seq_totals *t) {
    fprintf(stderr, "translate %lld lines, %lld tokens in %.2f ms: %.0f tokens/s\n",
            (long long)t->lines, (long long)t->tokens, t->seconds * 1e3,
            (double)t->tokens / t->seconds);
}
