/* translate.c: EDInference [PH22 A15] over the entries prefill, decode and reorder. */
#include "tools/translate.h"
#include "runtime/beam.h"

#include <math.h>
#include <stdlib.h>

typedef struct run {
    lm *m;
    int32_t length; /* of the source */
    int32_t bos, eos;
    int64_t rows, most;                /* most: tokens of a result */
    float *logits;                     /* [rows, vocab] */
    int32_t *tokens, *parents, *moved; /* [rows]; moved: what reorder gives back */
} run;

/* ---- running the entries ---- */

static bool check_source(const lm *m, const int32_t *source, int64_t n, sn_error *err) {
    if (n < 1) return sn_fail(err, SN_ERR_USAGE, "the source is empty: nothing to translate");
    if (n > m->model.context)
        return sn_fail(err, SN_ERR_RANGE,
                       "the source has %lld tokens, the model has room for %lld: cut it up",
                       (long long)n, (long long)m->model.context);
    for (int64_t i = 0; i < n; i++)
        if (source[i] < 0 || source[i] >= m->model.source_vocab)
            return sn_fail(err, SN_ERR_RANGE,
                           "token %d (number %lld) is outside the source vocabulary 0..%lld",
                           (int)source[i], (long long)i, (long long)m->model.source_vocab - 1);
    return true;
}

static bool encode_source(run *r, const int32_t *source, sn_error *err) {
    sn_arg_binding in[] = {SN_BIND("source", SN_I32, (void *)(uintptr_t)source, 1, r->length),
                           SN_BIND("lengths", SN_I32, &r->length, 1)};
    sn_session_reset(r->m->session);
    return sn_run(r->m->session, "prefill", in, 2, NULL, 0, err);
}

/* Logits of what follows tokens[rows], the (past + 1)-th ones of their rows. */
static bool next_logits(run *r, int64_t past, sn_error *err) {
    sn_arg_binding in[] = {SN_BIND("tokens", SN_I32, r->tokens, r->rows, 1),
                           SN_BIND("lengths", SN_I32, &r->length, 1), SN_BIND_DIM("P", past),
                           SN_BIND_DIM("S", r->length)};
    sn_arg_binding out = SN_BIND("logits", SN_F32, r->logits, r->rows, r->m->model.vocab);
    return sn_run(r->m->session, "decode", in, 4, &out, 1, err);
}

static bool follow_parents(run *r, sn_error *err) {
    bool same = true;
    for (int64_t i = 0; i < r->rows; i++) same &= r->parents[i] == i;
    if (same) return true;
    sn_arg_binding in = SN_BIND("parents", SN_I32, r->parents, r->rows);
    sn_arg_binding out = SN_BIND("parents", SN_I32, r->moved, r->rows);
    return sn_run(r->m->session, "reorder", &in, 1, &out, 1, err);
}

/* ---- the two ways to choose ---- */

static bool append(sn_ids *out, const int32_t *ids, size_t n, sn_error *err) {
    if (out->count + n > out->capacity) {
        size_t capacity = 2 * (out->count + n);
        int32_t *more = realloc(out->data, capacity * sizeof *more);
        if (!more) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
        out->data = more;
        out->capacity = capacity;
    }
    for (size_t i = 0; i < n; i++) out->data[out->count++] = ids[i];
    return true;
}

static bool search(run *r, const translate_options *o, sn_ids *out, double *log_p, sn_error *err) {
    sn_beam_options bo = {.beams = (int32_t)r->rows,
                          .eos = r->eos,
                          .max_tokens = r->most,
                          .length_penalty = o->length_penalty};
    sn_beam *b = sn_beam_new(&bo, (size_t)r->m->model.vocab, err);
    int32_t *text = malloc(sizeof *text * (size_t)r->most);
    bool ok = b && (text || sn_fail(err, SN_ERR_MEMORY, "out of memory"));
    for (int64_t past = 0; ok && !sn_beam_done(b); past++)
        ok = next_logits(r, past, err) && sn_beam_step(b, r->logits, r->tokens, r->parents, err) &&
             (sn_beam_done(b) || follow_parents(r, err));
    ok = ok && append(out, text, sn_beam_result(b, 0, text, log_p), err);
    free(text);
    sn_beam_free(b);
    return ok;
}

static double log_probability(const float *x, int64_t n, int32_t token) {
    double sum = 0, most = x[sn_sample_largest(x, (size_t)n)];
    for (int64_t i = 0; i < n; i++) sum += exp(x[i] - most);
    return x[token] - most - log(sum);
}

/* A15 lines 3 to 8 */
static bool draw(run *r, const translate_options *o, sn_ids *out, double *log_p, sn_error *err) {
    if (r->rows != 1) return sn_fail(err, SN_ERR_USAGE, "drawing tokens needs a single beam");
    sn_sampler *s = sn_sampler_new(o->sample, (size_t)r->m->model.vocab, err);
    bool ok = s != NULL;
    double total = 0;
    for (int64_t past = 0; ok && past < r->most; past++) {
        int32_t id = next_logits(r, past, err) ? sn_sampler_next(s, r->logits, err) : -1;
        ok = id >= 0;
        if (ok) total += log_probability(r->logits, r->m->model.vocab, id);
        if (!ok || id == r->eos) break;
        ok = append(out, &id, 1, err);
        r->tokens[0] = id;
    }
    sn_sampler_free(s);
    if (log_p) *log_p = total;
    return ok;
}

bool translate(lm *m, const int32_t *source, int64_t n, const translate_options *o, sn_ids *out,
               double *log_p, sn_error *err) {
    run r = {.m = m, .rows = m->beams, .most = m->model.context};
    if (!check_source(m, source, n, err) || !translate_ends(m, &r.bos, &r.eos, err)) return false;
    r.length = (int32_t)n;
    if (o->max_tokens && o->max_tokens < r.most) r.most = o->max_tokens;
    size_t rows = (size_t)r.rows;
    r.logits = malloc(sizeof *r.logits * rows * (size_t)m->model.vocab);
    r.tokens = malloc(sizeof *r.tokens * rows * 3);
    bool ok = (r.logits && r.tokens) || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    if (ok) {
        r.parents = r.tokens + rows;
        r.moved = r.parents + rows;
        for (size_t i = 0; i < rows; i++) r.tokens[i] = r.bos; /* A15 line 1 */
        ok = encode_source(&r, source, err) && (o->sample ? draw : search)(&r, o, out, log_p, err);
    }
    free(r.logits);
    free(r.tokens);
    return ok;
}
