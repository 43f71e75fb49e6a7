/* generation.c: sequences of a language model: rows of the caches, and the steps that run them together. */
#include "runtime/clock.h"
#include "model/text/generation_impl.h"
#include "model/tokenizer/tok.h"

#include <stdlib.h>
#include <string.h>

struct sn_lm_sequence {
    sn_lm *m;
    sn_lm_sequence *next;
    lm_text text;
    sn_ids ids;           /* the tokens so far */
    sn_bytes prompt_text; /* of the first `prompt` tokens */
    int64_t prompt;
    int64_t row;   /* -1: the text has ended */
    int64_t past;  /* tokens that were run; the row holds them */
    float *logits; /* [vocab] if all tokens were run: of the next one */
};

/* ---- the model ---- */

static bool allocate(sn_lm *m, const sn_lm_parts *p) {
    size_t rows = (size_t)p->engine.rows, n_eos = (size_t)p->n_eos;
    m->row = calloc(rows, sizeof *m->row);
    m->ids = calloc(2 * rows, sizeof *m->ids);
    m->eos = calloc(n_eos + 1, sizeof *m->eos);
    m->folder = p->folder ? strdup(p->folder) : NULL;
    m->logits = malloc(sizeof *m->logits * rows * (size_t)p->engine.vocab);
    if (!m->row || !m->ids || !m->eos || !m->logits || (p->folder && !m->folder)) return false;
    m->past = m->ids + rows;
    if (n_eos) memcpy(m->eos, p->eos, n_eos * sizeof *m->eos);
    m->parts = *p;
    m->parts.eos = m->eos;
    m->parts.folder = m->folder;
    return true;
}

static void free_model(sn_lm *m) {
    free(m->row);
    free(m->ids);
    free(m->eos);
    free(m->folder);
    free(m->logits);
    free(m);
}

sn_lm *sn_lm_new(const sn_lm_parts *parts, sn_error *err) {
    if (!sn_given(parts, "sn_lm_new", "the model", err)) return NULL;
    sn_lm *m = calloc(1, sizeof *m);
    bool ok = (m && allocate(m, parts)) || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    if (ok && sn_lm_defaults_read(parts->folder, &m->defaults, err)) return m;
    if (m) free_model(m);
    return NULL;
}

void sn_lm_close(sn_lm *m) {
    if (!m) return;
    while (m->first) sn_lm_end(m->first);
    if (m->parts.engine.close) m->parts.engine.close(m->parts.engine.model);
    free_model(m);
}

int64_t sn_lm_vocab(const sn_lm *m) {
    return m ? m->parts.engine.vocab : 0;
}

int64_t sn_lm_context(const sn_lm *m) {
    return m ? m->parts.engine.context : 0;
}

int64_t sn_lm_rows(const sn_lm *m) {
    return m ? m->parts.engine.rows : 0;
}

const sn_tokenizer *sn_lm_tokenizer(const sn_lm *m) {
    return m ? m->parts.tokenizer : NULL;
}

sn_lm_times sn_lm_measured(const sn_lm *m) {
    return m ? m->times : (sn_lm_times){0};
}

/* ---- running ---- */

bool sn_lm_run_row(sn_lm *m, int64_t row, int64_t past, const int32_t *ids, int64_t n,
                   float *logits, sn_error *err) {
    const sn_lm_engine *e = &m->parts.engine;
    sn_lm_times *t = &m->times;
    double start = sn_clock();
    bool ok = e->feed(e->model, row, past, ids, n, logits, err);
    *(past && n == 1 ? &t->decode : &t->prefill) += sn_clock() - start;
    *(past && n == 1 ? &t->decoded : &t->prompt) += n;
    t->steps += past && n == 1;
    return ok;
}

bool sn_lm_run_step(sn_lm *m, int64_t n, int64_t count, sn_error *err) {
    const sn_lm_engine *e = &m->parts.engine;
    if (!e->step) return sn_lm_run_row(m, 0, m->past[0], m->ids, 1, m->logits, err);
    double start = sn_clock();
    bool ok = e->step(e->model, n, m->ids, m->past, m->logits, err);
    m->times.decode += sn_clock() - start;
    m->times.decoded += count;
    m->times.steps++;
    return ok;
}

/* The sequence has a token that was not run. */
static bool waits(const sn_lm_sequence *s) {
    return s && s->past < (int64_t)s->ids.count;
}

/* Moves the last rows into free ones, so that the rows in use are the first. */
static bool close_gaps(sn_lm *m, sn_error *err) {
    const sn_lm_engine *e = &m->parts.engine;
    while (m->used && !m->row[m->used - 1]) m->used--;
    for (int64_t i = 0; i < m->used; i++) {
        if (m->row[i]) continue;
        int32_t last = (int32_t)m->used - 1;
        sn_lm_sequence *s = m->row[last];
        if (!e->reorder(e->model, i, 1, &last, s->past, err)) return false;
        m->row[i] = s;
        m->row[last] = NULL;
        s->row = i;
        while (!m->row[m->used - 1]) m->used--;
    }
    return true;
}

/* Runs the waiting token of every sequence. Rows between theirs run a token, too, at a position
 * that they have yet to fill, or do not need any more. */
static bool run_waiting(sn_lm *m, sn_error *err) {
    const sn_lm_engine *e = &m->parts.engine;
    if (!close_gaps(m, err)) return false;
    int64_t n = 0, count = 0;
    for (int64_t i = 0; i < m->used; i++) {
        const sn_lm_sequence *s = m->row[i];
        m->ids[i] = waits(s) ? s->ids.data[s->past] : 0;
        m->past[i] = (int32_t)(s->past < e->context ? s->past : e->context - 1);
        if (waits(s)) n = i + 1, count++;
    }
    if (!sn_lm_run_step(m, n, count, err)) return false;
    for (int64_t i = 0; i < n; i++) {
        sn_lm_sequence *s = m->row[i];
        if (!waits(s)) continue;
        memcpy(s->logits, m->logits + i * e->vocab, sizeof *s->logits * (size_t)e->vocab);
        s->past++;
    }
    return true;
}

/* ---- beginning and ending ---- */

static void release(sn_lm_sequence *s) {
    if (s->row >= 0) s->m->row[s->row] = NULL;
    s->row = -1;
}

/* A sequence without tokens in a free row. */
static sn_lm_sequence *new_sequence(sn_lm *m, const sn_lm_request *r, sn_error *err) {
    int64_t row = 0, rows = m->parts.engine.rows;
    while (row < rows && m->row[row]) row++;
    if (row == rows) {
        sn_fail(err, SN_ERR_USAGE,
                "the model was opened for %lld sequence%s at once: end one, or open it for more",
                (long long)rows, rows == 1 ? "" : "s");
        return NULL;
    }
    sn_lm_sequence *s = calloc(1, sizeof *s);
    if (!s) {
        sn_fail(err, SN_ERR_MEMORY, "out of memory");
        return NULL;
    }
    *s = (sn_lm_sequence){.m = m, .next = m->first, .row = row};
    m->first = s;
    m->row[row] = s;
    if (row >= m->used) m->used = row + 1;
    s->logits = malloc(sizeof *s->logits * (size_t)m->parts.engine.vocab);
    if (s->logits ? sn_lm_text_begin(&s->text, m, r, err)
                  : sn_fail(err, SN_ERR_MEMORY, "out of memory"))
        return s;
    sn_lm_end(s);
    return NULL;
}

static bool begin(sn_lm_sequence *s, const sn_lm_request *r, sn_error *err) {
    sn_lm *m = s->m;
    if (!sn_lm_read_prompt(m, r, &s->ids, err)) return false;
    s->prompt = (int64_t)s->ids.count;
    /* the answer of a chat is a text of its own */
    bool ok = r->chat ? sn_sampler_note(s->text.sampler, s->ids.data, s->ids.count, err)
                      : sn_lm_text_follow(&s->text, s->ids.data, s->prompt, &s->prompt_text, err);
    if (!ok || !sn_lm_run_row(m, s->row, 0, s->ids.data, s->prompt, s->logits, err)) return false;
    s->past = s->prompt;
    return true;
}

sn_lm_sequence *sn_lm_begin(sn_lm *m, const sn_lm_request *r, sn_error *err) {
    if (!m) return NULL;
    if (!sn_given(r, "sn_lm_begin", "the request", err)) return NULL;
    sn_lm_sequence *s = new_sequence(m, r, err);
    if (!s || begin(s, r, err)) return s;
    sn_lm_end(s);
    return NULL;
}

static bool fork_from(sn_lm_sequence *s, const sn_lm_sequence *from, sn_error *err) {
    const sn_lm_engine *e = &s->m->parts.engine;
    int32_t parent = (int32_t)from->row;
    for (size_t i = 0; i < from->ids.count; i++)
        if (!sn_ids_push(&s->ids, from->ids.data[i], err)) return false;
    s->prompt = from->prompt;
    s->past = from->past;
    memcpy(s->logits, from->logits, sizeof *s->logits * (size_t)e->vocab);
    s->text.stream = from->text.stream;
    s->text.any = from->text.any;
    return sn_bytes_append(&s->prompt_text, from->prompt_text.data ? from->prompt_text.data : "",
                           from->prompt_text.size, err) &&
           sn_sampler_note(s->text.sampler, s->ids.data, s->ids.count, err) &&
           e->reorder(e->model, s->row, 1, &parent, s->past, err);
}

sn_lm_sequence *sn_lm_fork(sn_lm_sequence *s, const sn_lm_request *r, sn_error *err) {
    if (!s) return NULL;
    if (!sn_given(r, "sn_lm_fork", "the request", err)) return NULL;
    if (s->row < 0) {
        sn_fail(err, SN_ERR_USAGE, "a text that has ended cannot be continued");
        return NULL;
    }
    sn_lm_sequence *copy = new_sequence(s->m, r, err);
    if (!copy || fork_from(copy, s, err)) return copy;
    sn_lm_end(copy);
    return NULL;
}

void sn_lm_end(sn_lm_sequence *s) {
    if (!s) return;
    release(s);
    sn_lm_sequence **link = &s->m->first;
    while (*link != s) link = &(*link)->next;
    *link = s->next;
    sn_lm_text_free(&s->text);
    sn_ids_free(&s->ids);
    sn_bytes_free(&s->prompt_text);
    free(s->logits);
    free(s);
}

/* ---- the next token ---- */

const float *sn_lm_logits(sn_lm_sequence *s, sn_error *err) {
    if (!s || s->row < 0) return NULL;
    return !waits(s) || run_waiting(s->m, err) ? s->logits : NULL;
}

int32_t sn_lm_next_token(sn_lm_sequence *s, sn_error *err) {
    const float *logits = sn_lm_logits(s, err);
    int32_t id = logits ? sn_lm_text_next(&s->text, logits, err) : -1;
    if (id < 0 || !sn_ids_push(&s->ids, id, err)) return -1;
    if (!s->text.ended && s->past == s->m->parts.engine.context &&
        !sn_lm_text_finish(&s->text, SN_LM_CONTEXT, err))
        return -1;
    if (s->text.ended) release(s);
    return id;
}

const char *sn_lm_next(sn_lm_sequence *s, sn_error *err) {
    return sn_lm_next_token(s, err) >= 0 ? s->text.out.data : NULL;
}

bool sn_lm_feed(sn_lm_sequence *s, const int32_t *ids, int64_t n, sn_error *err) {
    if (!s) return false;
    const sn_lm_engine *e = &s->m->parts.engine;
    if (s->row < 0) return sn_fail(err, SN_ERR_USAGE, "a text that has ended cannot be continued");
    if (!sn_given(ids, "sn_lm_feed", "the tokens", err)) return false;
    if ((int64_t)s->ids.count + n > e->context)
        return sn_fail(err, SN_ERR_RANGE,
                       "the sequence has %lld tokens, but the context holds only %lld",
                       (long long)s->ids.count + n, (long long)e->context);
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= e->vocab)
            return sn_fail(err, SN_ERR_RANGE,
                           "token %d (number %lld) is outside the vocabulary 0..%lld", (int)ids[i],
                           (long long)i, (long long)e->vocab - 1);
    for (int64_t i = 0; i < n; i++)
        if (!sn_ids_push(&s->ids, ids[i], err)) return false;
    int64_t count = (int64_t)s->ids.count - s->past;
    if (!sn_lm_text_follow(&s->text, ids, n, NULL, err) ||
        (count &&
         !sn_lm_run_row(s->m, s->row, s->past, s->ids.data + s->past, count, s->logits, err)))
        return false;
    s->past += count;
    return true;
}

/* ---- questions ---- */

sn_lm_end_reason sn_lm_ended(const sn_lm_sequence *s) {
    return s ? s->text.ended : SN_LM_RUNNING;
}

const int32_t *sn_lm_tokens(const sn_lm_sequence *s, int64_t *n) {
    *n = s ? (int64_t)s->ids.count : 0;
    return s ? s->ids.data : NULL;
}

int64_t sn_lm_prompt_tokens(const sn_lm_sequence *s) {
    return s ? s->prompt : 0;
}

const char *sn_lm_prompt_text(const sn_lm_sequence *s) {
    return s && s->prompt_text.data ? s->prompt_text.data : "";
}

double sn_lm_log_p(const sn_lm_sequence *s) {
    return s ? s->text.log_p : 0;
}
